//! The measurements that are commands of `seriatim bench` and print what they find: what a transaction costs over its
//! index, and over a map in the same program, what dispatch costs, what a declared procedure costs over the same by
//! hand, what prefetching by plans brings, whether memory grows, what durability costs, what hardware regions bring,
//! what a long reader costs a writer.
//!
//! Each is one module with a small size that runs as a test and asserts relations, never times. Standard output
//! is data, standard error is talk. Arms that are compared run in alternating pairs, and medians come with
//! their quartiles, because the machine's speed drifts more than most differences.

use std::error::Error;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use seriatim_base::say;

use crate::measure::Length;
use crate::setting::{Options, Setting};
use crate::{
    busy, churn, disk, dispatch, durability, embedded, footprint, instructions, prefetch, procedures, raw_index,
    reader, rtm,
};

#[derive(Subcommand)]
enum Measurement {
    /// One-operation transactions, 80 % reads and 20 % read-modify-writes, against the same on the bare index
    RawIndex {
        #[command(flatten)]
        pairs: Pairs,
        /// Records
        #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
        keys: u64,
        /// Concurrency-control protocol
        #[arg(long, default_value = "auto")]
        protocol: String,
    },
    /// A single-read transaction through a session's closure, through `dyn Worker`, and monomorphised
    Dispatch {
        #[command(flatten)]
        pairs: Pairs,
        /// Records: few, so that they stay in the cache
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
        keys: u64,
    },
    /// Reads of one row and transfers between two, by closures and by registered procedures, against the same
    /// on a `HashMap` behind a mutex
    Embedded {
        #[command(flatten)]
        pairs: Pairs,
        /// Rows that are read
        #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
        entries: u64,
        /// Accounts between which is transferred
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..))]
        accounts: u64,
        /// Concurrency-control protocol
        #[arg(long, default_value = "auto")]
        protocol: String,
    },
    /// New-Order and Payment of TPC-C, and YCSB with 16 operations, 80 % reads and 20 % read-modify-writes, as
    /// registered procedures against closures written by hand
    Procedures {
        #[command(flatten)]
        options: Options,
        /// Warehouses; each is in turn home of the one terminal
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        warehouses: u16,
    },
    /// TPC-C's full mix, and YCSB with 16 operations, 80 % reads and 20 % read-modify-writes, with prefetching
    /// by plans against the same without
    Prefetch {
        #[command(flatten)]
        options: Options,
        /// Numbers of warehouses, a comparison each; one thread serves a terminal of every warehouse in turn
        #[arg(long, value_delimiter = ',', default_value = "1,10", value_parser = clap::value_parser!(u16).range(1..))]
        warehouses: Vec<u16>,
    },
    /// TPC-C's full mix beside busy loops of other scheduling groups against the same alone
    Busy(busy::Options),
    /// One of these loops
    #[command(hide = true)]
    BusyLoop,
    /// Transfers beside a thread that holds snapshots and sums in them, against the same beside one that sleeps
    Reader(reader::Options),
    /// Memory in use while rows are updated, deleted and inserted again
    Churn(churn::Options),
    /// What stays of memory when all rows are deleted, and what opening a full directory takes
    Footprint(footprint::Options),
    /// Batches written and flushed one after the other, as a logger does
    Disk(disk::Options),
    /// TPC-C's full mix with group commit against durability off; bytes of the log, a checkpoint, recovery
    Durability(durability::Options),
    /// TPC-C in portions, to be run under callgrind: see `cargo xtask instructions`
    Instructions(instructions::Options),
    /// Cost, capacity and duration of hardware regions, fallbacks, and TPC-C with regions and without beside
    /// the roofline
    Rtm(rtm::Options),
}

/// How often and how long arms run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Pairs {
    /// Rounds; in each, every arm runs once
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: u32,
    /// Length of each arm's run
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Determines rows and inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds are a number from 0.001 to 86400".to_owned()),
    }
}

/// Compares under the setting that the options ask for.
fn compare(options: Options, run: impl FnOnce(&Setting) -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    run(&Setting::try_from(options)?)
}

/// Adds the measurements to the commands of `bench`.
pub fn add(bench: Command) -> Command {
    Measurement::augment_subcommands(bench)
}

/// Runs the measurement that was asked for, which prints what it found; `None` where another command was.
///
/// # Errors
/// What it failed by; an [`io::Error`](std::io::Error) where its output could not be written.
pub fn run(bench: &ArgMatches) -> Option<Result<(), Box<dyn Error>>> {
    bench.subcommand_name().filter(|name| Measurement::has_subcommand(name))?;
    Some(Measurement::from_arg_matches(bench).map_err(Into::into).and_then(measure))
}

/// Runs a measurement, which prints what it found.
fn measure(measurement: Measurement) -> Result<(), Box<dyn Error>> {
    match measurement {
        Measurement::RawIndex { pairs, keys, protocol } => {
            raw_index::run(&protocol, keys, pairs.pairs, Length::Seconds(pairs.seconds), pairs.seed)
        }
        Measurement::Dispatch { pairs, keys } => {
            dispatch::run(keys, pairs.pairs, Length::Seconds(pairs.seconds), pairs.seed)
        }
        Measurement::Embedded { pairs, entries, accounts, protocol } => {
            let length = Length::Seconds(pairs.seconds);
            embedded::run(&protocol, (entries, accounts), pairs.pairs, length, pairs.seed)
        }
        Measurement::Procedures { options, warehouses } => {
            compare(options, |setting| procedures::run(warehouses, setting))
        }
        Measurement::Prefetch { options, warehouses } => {
            compare(options, |setting| prefetch::run(&warehouses, setting))
        }
        Measurement::Busy(options) => busy::run(options),
        Measurement::BusyLoop => busy::spin(),
        Measurement::Reader(options) => reader::run(options),
        Measurement::Churn(options) => churn::run(&options),
        Measurement::Footprint(options) => footprint::run(&options),
        Measurement::Disk(options) => disk::run(&options),
        Measurement::Durability(options) => durability::run(options),
        Measurement::Instructions(options) => instructions::run(&options).and_then(|text| Ok(say!("{text}")?)),
        Measurement::Rtm(options) => rtm::run(&options).and_then(|text| Ok(say!("{text}")?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_every_measurement_are_declared_soundly() {
        add(Command::new("bench")).debug_assert();
    }
}
