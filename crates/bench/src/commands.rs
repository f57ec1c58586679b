//! Measurements that are commands of `seriatim bench` and print their results. Some measure the overhead of
//! transactions over an index and over a map, of dispatch, and of declared procedures over handwritten ones. Others
//! measure durability, hardware regions, long readers, the benefit of prefetching by plans, and the growth of memory.
//!
//! Each is one module with a small size that runs as a test and checks relations, never times. This file prints the
//! first line, which says the conditions, and the last, which is the verdict. A signal ends a measurement after the
//! current round or row. Data goes to standard output, messages to standard error. Compared arms run in alternating
//! pairs, and medians have quartiles, since the machine's speed varies more than most differences.

use std::error::Error;
use std::io;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::{Map, Value, json};
use seriatim_base::{interrupt, say};

use crate::report::Format;
use crate::setting::{Options, Setting, resolve};
use crate::{
    busy, churn, disk, dispatch, durability, embedded, footprint, instructions, prefetch, procedures, raw_index,
    reader, rtm, server,
};

#[derive(Subcommand)]
enum Kind {
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
    /// Compares reads, updates and transfers with those of a `HashMap` behind a mutex: by closures, procedures and
    /// prepared statements of SQL. With --server, compares reads, updates and TPC-B through the wire with a server that
    /// answers constants
    Embedded {
        #[command(flatten)]
        pairs: Pairs,
        /// Runs a server of ours on loopback instead: throughput, latencies and processor time through the wire
        #[arg(long)]
        server: bool,
        #[command(flatten)]
        wire: server::Options,
        /// Rows to read
        #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(i64).range(1..))]
        entries: i64,
        /// Accounts for transfers, and for TPC-B
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(2..))]
        accounts: i64,
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
    /// The format of standard output; with JSON, the table is on standard error
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.001 to 86400".to_owned()),
    }
}

/// Adds the measurements to the commands of `bench`.
pub fn add(bench: Command) -> Command {
    Kind::augment_subcommands(bench)
}

/// Options that have their own places in the conditions, or none.
const SAID: [&str; 6] = ["protocol", "threads", "seed", "format", "kind", "probe"];

/// A measurement with its options.
pub struct Measurement<'m> {
    name: &'m str,
    options: &'m ArgMatches,
    kind: Kind,
}

impl<'m> Measurement<'m> {
    /// The requested measurement; `None` for any other command.
    ///
    /// # Errors
    /// The arguments are invalid.
    pub fn find(bench: &'m ArgMatches) -> Option<Result<Measurement<'m>, clap::Error>> {
        let (name, options) = bench.subcommand().filter(|(name, _)| Kind::has_subcommand(name))?;
        Some(Kind::from_arg_matches(bench).map(|kind| Measurement { name, options, kind }))
    }

    /// An option as it was given, or its default.
    fn given(&self, option: &str) -> Option<String> {
        let values = self.options.try_get_raw(option).ok()??;
        Some(values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(","))
    }

    /// Whether it has conditions, a table and a verdict, and ends early at a signal. Otherwise other programs read
    /// its output.
    pub fn is_reported(&self) -> bool {
        let is_asked = |flag| self.given(flag).is_some_and(|given| given == "true");
        !matches!(self.kind, Kind::Instructions(_) | Kind::BusyLoop) && !is_asked("kind") && !is_asked("probe")
    }

    /// Runs it, and prints its results. `place` is the machine and the revision, and `more` has them as fields.
    ///
    /// # Errors
    /// The failure of the measurement; an [`io::Error`] if its output could not be written.
    pub fn run(self, place: &str, more: Map<String, Value>) -> Result<(), Box<dyn Error>> {
        if !self.is_reported() {
            return measure(self.kind).map(drop);
        }
        let format = if self.given("format").as_deref() == Some("json") { Format::Json } else { Format::Text };
        let (name, number) = (self.name, |option| self.given(option)?.parse::<u64>().ok());
        let protocol = self.given("protocol").map(|name| resolve(&name)).transpose()?;
        let (threads, durability) = match self.kind {
            Kind::Embedded { server: true, ref wire, .. } => (wire.clients().into(), wire.durability()),
            Kind::Durability(_) => (2, "off, group and sync"),
            Kind::Disk(_) => (1, "a flush for each batch"),
            Kind::Footprint(_) if self.given("data").is_some() => (1, "off, then group"),
            Kind::Reader(_) | Kind::Rtm(_) => (2, "off"),
            _ => (number("threads").unwrap_or(1), "off"),
        };
        let under = protocol.map_or_else(String::new, |protocol| format!(" under {protocol}"));
        let all = add(Command::new("bench"));
        let options = all.find_subcommand(name).into_iter().flat_map(Command::get_arguments);
        let names = options.map(|option| option.get_id().as_str()).filter(|name| !SAID.contains(name));
        let options = names.filter_map(|name| Some(format!("{name} {}", self.given(name)?))).collect::<Vec<_>>();
        let seed = number("seed");
        let threaded = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        format.line(&format!(
            "conditions     {name}{under}, {threaded}, durability {durability}; {}; {place}{}",
            options.join(", "),
            seed.map_or_else(String::new, |seed| format!("; seed {seed}"))
        ))?;
        let object = match measure(self.kind) {
            Err(error) if format == Format::Text && !error.is::<io::Error>() => {
                say!("verdict        failed: {error}\n")?;
                return Err(error);
            }
            measured => measured?,
        };
        let is_interrupted = interrupt::is_requested();
        if format == Format::Text {
            let early = if is_interrupted { "; interrupted, so some rows or rounds are missing" } else { "" };
            return Ok(say!("verdict        passed: no operation failed{early}\n")?);
        }
        let mut report = json!({
            "measurement": name, "protocol": protocol, "threads": threads, "durability": durability, "seed": seed,
            "interrupted": is_interrupted, "verdict": "passed",
        });
        if let (Some(report), Value::Object(object)) = (report.as_object_mut(), object) {
            report.extend(object.into_iter().chain(more));
        }
        Ok(say!("{report}\n")?)
    }
}

/// Runs a measurement, which prints its table. Returns its results as an object.
fn measure(kind: Kind) -> Result<Value, Box<dyn Error>> {
    match kind {
        Kind::RawIndex { pairs, keys, protocol } => raw_index::run(&protocol, keys, &pairs),
        Kind::Dispatch { pairs, keys } => dispatch::run(keys, &pairs),
        Kind::Embedded { pairs, accounts, protocol, wire, server: true, .. } => {
            server::run(&protocol, accounts, &wire, &pairs)
        }
        Kind::Embedded { pairs, entries, accounts, protocol, .. } => {
            embedded::run(&protocol, (entries, accounts), &pairs)
        }
        Kind::Procedures { options, warehouses } => {
            Ok(procedures::report(warehouses, &Setting::try_from(options)?)?.json())
        }
        Kind::Prefetch { options, warehouses } => {
            Ok(prefetch::report(&warehouses, &Setting::try_from(options)?)?.json())
        }
        Kind::Busy(options) => busy::run(options),
        Kind::BusyLoop => busy::spin(),
        Kind::Reader(options) => reader::run(options),
        Kind::Churn(options) => churn::run(&options),
        Kind::Footprint(options) => footprint::run(&options),
        Kind::Disk(options) => disk::run(&options),
        Kind::Durability(options) => durability::run(options),
        Kind::Instructions(options) => Ok(say!("{}", instructions::run(&options)?).map(|()| Value::Null)?),
        Kind::Rtm(options) => Ok(say!("{}", rtm::run(&options)?).map(|()| Value::Null)?),
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
