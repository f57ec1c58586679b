//! Options of YCSB and their command-line spelling.

use super::Ycsb;
use super::chooser::Distribution;
use super::table::FIELD_BYTES;
use crate::Workload;
use crate::registry::{Misuse, Values};

/// Percent of the operations; the rest update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Reads of one row.
    pub read: u8,
    /// Reads of a row that is then updated.
    pub read_modify_write: u8,
    /// Inserts of a new row.
    pub insert: u8,
    /// Reads of up to 100 rows in key order.
    pub scan: u8,
}

/// How a row holds its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueLayout {
    /// In one column.
    One,
    /// In ten columns; an update writes one of them.
    Ten,
}

/// A core workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the letters are their names")]
pub enum Core {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl Core {
    const ALL: [(&str, Core); 6] =
        [("A", Core::A), ("B", Core::B), ("C", Core::C), ("D", Core::D), ("E", Core::E), ("F", Core::F)];

    /// Its operations (YCSB's files workloada to workloadf).
    pub fn shares(self) -> Shares {
        let none = Shares::default();
        match self {
            Core::A => Shares { read: 50, ..none },
            Core::B => Shares { read: 95, ..none },
            Core::C => Shares { read: 100, ..none },
            Core::D => Shares { read: 95, insert: 5, ..none },
            Core::E => Shares { scan: 95, insert: 5, ..none },
            Core::F => Shares { read: 50, read_modify_write: 50, ..none },
        }
    }

    /// Its keys.
    pub fn distribution(self) -> Distribution {
        if self == Core::D { Distribution::Latest } else { Distribution::Scrambled }
    }
}

/// Options of YCSB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Rows at the start, at least 1.
    pub records: u64,
    /// Operations of a transaction, 1 to [`Options::OPS_MAX`].
    pub ops: usize,
    /// Which operations.
    pub shares: Shares,
    /// Skew, in `[0, 1)`.
    pub theta: f64,
    /// Which keys are hot.
    pub distribution: Distribution,
    /// Bytes of a row's values, 1 to [`Options::VALUE_BYTES_MAX`].
    pub value_bytes: usize,
    /// Whether the table is ordered; else hashed. Scans need it.
    pub is_ordered: bool,
    /// Determines the population.
    pub seed: u64,
}

impl Options {
    /// Most operations of a transaction.
    pub const OPS_MAX: usize = 1000;
    /// Most bytes of a row's values.
    pub const VALUE_BYTES_MAX: usize = 10 * FIELD_BYTES;

    /// A core workload as YCSB defines it: one operation a transaction, theta 0.99, ten fields of 100 bytes.
    pub fn core(core: Core, records: u64, seed: u64) -> Options {
        Options {
            records,
            ops: 1,
            shares: core.shares(),
            theta: 0.99,
            distribution: core.distribution(),
            value_bytes: Self::VALUE_BYTES_MAX,
            is_ordered: core == Core::E,
            seed,
        }
    }

    /// How rows hold values of this size.
    pub fn value_layout(&self) -> ValueLayout {
        if self.value_bytes <= FIELD_BYTES { ValueLayout::One } else { ValueLayout::Ten }
    }
}

/// YCSB from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing, or two that contradict each other.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    Ok(Box::new(Ycsb::new(parse(values)?)))
}

/// The options that the knobs give.
pub(super) fn parse(values: &Values) -> Result<Options, Misuse> {
    let records = values.number("records", 1, 1 << 40)?;
    let core = match values.text("core")? {
        "" => None,
        text => match Core::ALL.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, core)) => Some(*core),
            None => return Err(Misuse::new("core", text, "a letter from A to F")),
        },
    };
    let mut options = match core {
        Some(core) => {
            if let Some(name) = ["reads", "rmw"].into_iter().find(|name| values.given(name).is_some()) {
                let given = values.text(name)?;
                return Err(Misuse::new(name, given, "left out with --core, which sets the mix"));
            }
            Options::core(core, records, values.seed())
        }
        None => {
            let read: u8 = values.number("reads", 0, 100)?;
            let read_modify_write = values.number("rmw", 0, 100 - read)?;
            let shares = Shares { read, read_modify_write, ..Shares::default() };
            let value_bytes = values.number("value-bytes", 1, Options::VALUE_BYTES_MAX)?;
            Options { shares, value_bytes, ..Options::core(Core::A, records, values.seed()) }
        }
    };
    options.ops = values.number("ops", 1, Options::OPS_MAX)?;
    let theta: f64 = values.number("theta", 0.0, 1.0)?;
    if theta >= 1.0 {
        return Err(Misuse::new("theta", values.text("theta")?, "at least 0 and below 1"));
    }
    options.theta = theta;
    if core.is_none() || values.given("keys").is_some() {
        options.distribution = match values.text("keys")? {
            "scrambled" => Distribution::Scrambled,
            "zipfian" => Distribution::Zipfian,
            "uniform" => Distribution::Uniform,
            "latest" => Distribution::Latest,
            other => return Err(Misuse::new("keys", other, "scrambled, zipfian, uniform or latest")),
        };
    }
    if values.given("value-bytes").is_some() {
        options.value_bytes = values.number("value-bytes", 1, Options::VALUE_BYTES_MAX)?;
    }
    options.is_ordered = match values.given("index") {
        None => options.is_ordered,
        Some("ordered") => true,
        Some("hash") if options.shares.scan == 0 => false,
        Some("hash") => return Err(Misuse::new("index", "hash", "ordered for core workload E, which scans")),
        Some(other) => return Err(Misuse::new("index", other, "hash or ordered")),
    };
    Ok(options)
}
