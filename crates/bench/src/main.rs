//! Measurements below the workloads: what a transaction costs over its index, what dispatch costs, what a
//! declared procedure costs over the same by hand, what prefetching by plans brings, whether memory grows, what durability costs.
//!
//! Each is one module with a small size that runs as a test and asserts relations, never times. Standard output is data,
//! standard error is talk. Arms that are compared run in alternating pairs, and medians come with their quartiles, because the
//! machine's speed drifts more than most differences.

mod churn;
mod disk;
mod dispatch;
mod durability;
mod footprint;
mod measure;
mod prefetch;
mod procedures;
mod raw_index;
mod report;
mod row;
mod setting;

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use measure::Length;
use setting::{Options, Setting};

/// Measures what lies below the workloads.
#[derive(Parser)]
#[command(name = "seriatim-bench", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    measurement: Measurement,
}

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
    /// New-Order and Payment of TPC-C, and YCSB with 16 operations, 80 % reads and 20 % read-modify-writes, as registered
    /// procedures against closures written by hand
    Procedures {
        #[command(flatten)]
        options: Options,
        /// Warehouses; each is in turn home of the one terminal
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
        warehouses: u16,
    },
    /// TPC-C's full mix, and YCSB with 16 operations, 80 % reads and 20 % read-modify-writes, with prefetching by plans against
    /// the same without
    Prefetch {
        #[command(flatten)]
        options: Options,
        /// Numbers of warehouses, a comparison each; one thread serves a terminal of every warehouse in turn
        #[arg(long, value_delimiter = ',', default_value = "1,10", value_parser = clap::value_parser!(u16).range(1..))]
        warehouses: Vec<u16>,
    },
    /// Memory in use while rows are updated, deleted and inserted again
    Churn(churn::Options),
    /// What stays of memory when all rows are deleted, and what opening a full directory takes
    Footprint(footprint::Options),
    /// Batches written and flushed one after the other, as a logger does
    Disk(disk::Options),
    /// TPC-C's full mix with group commit against durability off; bytes of the log, a checkpoint, recovery
    Durability(durability::Options),
}

/// How often and how long arms run.
#[derive(Args, Clone, Debug)]
struct Pairs {
    /// Rounds; in each, every arm runs once
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Length of each arm's run
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Determines rows and inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds are a number from 0.001 to 86400".to_owned()),
    }
}

/// Compares under the setting that the options ask for.
fn compare(options: Options, run: impl FnOnce(&Setting) -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    run(&Setting::try_from(options)?)
}

fn main() -> ExitCode {
    let done = match Arguments::parse().measurement {
        Measurement::RawIndex { pairs, keys, protocol } => {
            raw_index::run(&protocol, keys, pairs.pairs, Length::Seconds(pairs.seconds), pairs.seed)
        }
        Measurement::Dispatch { pairs, keys } => {
            dispatch::run(keys, pairs.pairs, Length::Seconds(pairs.seconds), pairs.seed)
        }
        Measurement::Procedures { options, warehouses } => {
            compare(options, |setting| procedures::run(warehouses, setting))
        }
        Measurement::Prefetch { options, warehouses } => {
            compare(options, |setting| prefetch::run(&warehouses, setting))
        }
        Measurement::Churn(options) => churn::run(&options),
        Measurement::Footprint(options) => footprint::run(&options),
        Measurement::Disk(options) => disk::run(&options),
        Measurement::Durability(options) => durability::run(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seriatim-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
