//! Measurements that are commands of `seriatim bench` and print their results. Some measure the overhead of
//! transactions over an index and over a map, of dispatch, and of declared procedures over handwritten ones. Others
//! measure durability, hardware regions, long readers, the benefit of prefetching by plans, and the growth of memory.
//!
//! Each is one module with a small size that runs as a test and checks relations, never times. Data goes to
//! standard output, messages to standard error. Compared arms run in alternating pairs, and medians have
//! quartiles, since the machine's speed varies more than most differences.

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
    /// Compares one-operation transactions, 80 % reads and 20 % read-modify-writes, with the same operations on
    /// the bare index
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
    /// Compares a single-read transaction through a session's closure, through `dyn Worker`, and monomorphized
    Dispatch {
        #[command(flatten)]
        pairs: Pairs,
        /// Records: few, so that they stay in the cache
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
        keys: u64,
    },
    /// Compares reads of one row and transfers between two, by closures and by registered procedures, with the
    /// same operations on a `HashMap` behind a mutex
    Embedded {
        #[command(flatten)]
        pairs: Pairs,
        /// Rows to read
        #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
        entries: u64,
        /// Accounts for transfers
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..))]
        accounts: u64,
        /// Concurrency-control protocol
        #[arg(long, default_value = "auto")]
        protocol: String,
    },
    /// Compares New-Order and Payment of TPC-C, and YCSB with 16 operations (80 % reads, 20 %
    /// read-modify-writes), as registered procedures and as handwritten closures
    Procedures {
        #[command(flatten)]
        options: Options,
        /// Warehouses; the terminal uses them in turn
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        warehouses: u16,
    },
    /// Compares TPC-C's full mix, and YCSB with 16 operations (80 % reads, 20 % read-modify-writes), with
    /// prefetching by plans and without
    Prefetch {
        #[command(flatten)]
        options: Options,
        /// Numbers of warehouses to compare; one thread serves a terminal of each warehouse in turn
        #[arg(long, value_delimiter = ',', default_value = "1,10", value_parser = clap::value_parser!(u16).range(1..))]
        warehouses: Vec<u16>,
    },
    /// Compares TPC-C's full mix beside busy loops in other scheduling groups and alone
    Busy(busy::Options),
    /// Runs one of these loops
    #[command(hide = true)]
    BusyLoop,
    /// Compares transfers beside a thread that reads snapshots and beside one that sleeps
    Reader(reader::Options),
    /// Measures memory in use while rows are updated, deleted and inserted again
    Churn(churn::Options),
    /// Measures the memory that remains when all rows are deleted, and opening a full directory
    Footprint(footprint::Options),
    /// Writes and flushes batches one after another, as a logger does
    Disk(disk::Options),
    /// Compares TPC-C's full mix with group commit and without durability; measures log bytes, a checkpoint, recovery
    Durability(durability::Options),
    /// Runs TPC-C in portions under callgrind: see `cargo xtask instructions`
    Instructions(instructions::Options),
    /// Measures cost, capacity and duration of hardware regions, fallbacks, and TPC-C with and without regions
    /// beside the roofline
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
    /// The seed of rows and inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.001 to 86400".to_owned()),
    }
}

/// Runs a comparison under the setting of the options.
fn compare(options: Options, run: impl FnOnce(&Setting) -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    run(&Setting::try_from(options)?)
}

/// Adds the measurements to the commands of `bench`.
pub fn add(bench: Command) -> Command {
    Measurement::augment_subcommands(bench)
}

/// Runs the requested measurement, which prints its results. Returns `None` for any other command.
///
/// # Errors
/// The failure of the measurement; an [`io::Error`](std::io::Error) if its output could not be written.
pub fn run(bench: &ArgMatches) -> Option<Result<(), Box<dyn Error>>> {
    bench.subcommand_name().filter(|name| Measurement::has_subcommand(name))?;
    Some(Measurement::from_arg_matches(bench).map_err(Into::into).and_then(measure))
}

/// Runs a measurement, which prints its results.
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
