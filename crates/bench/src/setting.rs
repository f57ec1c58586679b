//! The common options of comparisons of workloads: protocol, sizes, rounds, and loaded databases.

use std::error::Error;

use clap::{Args, ValueEnum};
use seriatim::{Database, OpenError};
use seriatim_base::talk;
use seriatim_workload::tpcc::{self, Scale, Tpcc};
use seriatim_workload::ycsb::{self, Core, Distribution, Shares, Ycsb};
use seriatim_workload::{Loading, Workload};

use crate::commands::Pairs;
use crate::measure::Length;
use crate::report::Format;

const MIB: usize = 1 << 20;
/// Bytes that TPC-C adds per second. Measured: about 0.6 KB a transaction, at some 250,000 per second.
const GROWTH: f64 = 150.0 * MIB as f64;
/// The most bytes that are touched beforehand by default. A machine with less memory needs a smaller number in
/// the options.
const PREFAULT_MAX: f64 = 6144.0 * MIB as f64;

/// The options.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    pairs: Pairs,
    /// Concurrency-control protocol
    #[arg(long, default_value = "auto")]
    protocol: String,
    /// Rows of TPC-C per warehouse: as specified, or a hundredth for tests
    #[arg(long, value_enum, default_value_t = Rows::Spec)]
    scale: Rows,
    /// Rows of YCSB's table
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Memory to touch beforehand, in MiB; by default the expected growth of TPC-C, but at most 6144
    #[arg(long, value_name = "MIB")]
    prefault: Option<usize>,
}

/// Rows of a warehouse.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rows {
    /// As specified.
    Spec,
    /// A hundredth.
    Small,
}

/// The name of the protocol that a name chooses.
pub(crate) fn resolve(protocol: &str) -> Result<&'static str, OpenError> {
    Ok(Database::builder().protocol(protocol).open()?.protocol().name)
}

/// The setting of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) protocol: String,
    pub(crate) rounds: u32,
    /// The length of each arm's run.
    pub(crate) length: Length,
    pub(crate) seed: u64,
    pub(crate) format: Format,
    /// The rows of TPC-C for this many warehouses.
    pub(crate) scale: fn(u16) -> Scale,
    /// The number of rows of YCSB.
    pub(crate) records: u64,
    prefault: Option<usize>,
}

impl TryFrom<Options> for Setting {
    type Error = OpenError;

    /// Resolves the protocol's name.
    fn try_from(options: Options) -> Result<Setting, OpenError> {
        let Options { pairs, protocol, scale, records, prefault } = options;
        let protocol = resolve(&protocol)?.to_owned();
        let scale = match scale {
            Rows::Spec => Scale::spec,
            Rows::Small => Scale::small,
        };
        let Pairs { pairs: rounds, seconds, seed, format } = pairs;
        let length = Length::Seconds(seconds);
        Ok(Setting { protocol, rounds, length, seed, format, scale, records, prefault })
    }
}

/// The distribution of YCSB's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skew {
    /// Uniform.
    Uniform,
    /// Zipf's law with theta 0.99.
    Hot,
}

impl Skew {
    pub(crate) const ALL: [Skew; 2] = [Skew::Uniform, Skew::Hot];

    /// The exponent of Zipf's law.
    pub(crate) fn theta(self) -> f64 {
        match self {
            Skew::Uniform => 0.0,
            Skew::Hot => 0.99,
        }
    }

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Skew::Uniform => "uniform",
            Skew::Hot => "theta 0.99",
        }
    }
}

/// The name of an index.
pub(crate) fn index(is_ordered: bool) -> &'static str {
    if is_ordered { "ordered" } else { "hash" }
}

impl Setting {
    /// A small setting for tests.
    #[cfg(test)]
    pub(crate) fn small(protocol: &str, rounds: u32, operations: u64) -> Setting {
        let (length, format, scale) = (Length::Operations(operations), Format::Text, Scale::small as fn(u16) -> Scale);
        Setting { protocol: protocol.to_owned(), rounds, length, seed: 7, format, scale, records: 500, prefault: None }
    }

    /// TPC-C's full mix.
    pub(crate) fn tpcc(&self, warehouses: u16) -> Tpcc {
        Tpcc::new(tpcc::Options::new((self.scale)(warehouses), self.seed))
    }

    /// YCSB with 16 operations a transaction, 80 % reads and 20 % read-modify-writes of one value of 100 bytes.
    pub(crate) fn ycsb(&self, is_ordered: bool, skew: Skew) -> Ycsb {
        let distribution = match skew {
            Skew::Uniform => Distribution::Uniform,
            Skew::Hot => Distribution::Scrambled,
        };
        Ycsb::new(ycsb::Options {
            ops: 16,
            shares: Shares { read: 80, read_modify_write: 20, ..Shares::default() },
            theta: skew.theta(),
            distribution,
            value_bytes: ycsb::FIELD_BYTES,
            is_ordered,
            ..ycsb::Options::core(Core::A, self.records, self.seed)
        })
    }

    /// A database with the workload's rows.
    pub(crate) fn load(&self, workload: &dyn Workload) -> Result<Database, Box<dyn Error>> {
        let db = Database::builder().protocol(&self.protocol).seed(self.seed).open()?;
        workload.load(&db, &Loading::default())?;
        Ok(db)
    }

    /// Touches the memory that `arms` in turn will need if they add rows as TPC-C does.
    pub(crate) fn prefault(&self, db: &Database, arms: usize) -> Result<(), Box<dyn Error>> {
        let seconds = match self.length {
            Length::Seconds(seconds) => seconds * f64::from(self.rounds) * arms as f64,
            Length::Operations(_) => 0.0,
        };
        let expected = (seconds * GROWTH).min(PREFAULT_MAX) as usize;
        let bytes = self.prefault.map_or(expected, |mib| mib.saturating_mul(MIB));
        if bytes > 0 {
            talk!("touching {} MiB", bytes / MIB);
            db.prefault(bytes)?;
        }
        Ok(())
    }
}
