//! YCSB: single-table reads and writes by skewed keys (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB",
//! SoCC 2010). It has the core workloads A to F, and free mixes with any number of operations per transaction.
//!
//! Departures: keys are the numbers 0, 1, 2, …, not hashed strings. Every row has a counter of its writes, so that lost
//! updates show. A value is one letter repeated, so that torn values show.

mod chooser;
mod consistency;
mod input;
mod options;
#[cfg(test)]
mod plans;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use chooser::{Chooser, Distribution};
pub use input::{INSERT, Inputs, Operation, OperationsInput, READ, READ_MODIFY_WRITE, SCAN, UPDATE};
pub use options::{Core, Options, Shares, ValueLayout, open};
pub use table::{
    FIELD_BYTES, HashOne, HashTen, NoSuchOperation, OrderedOne, OrderedTen, Tables, UserTable, ends, filled,
};
pub use terminal::YcsbTerminal;

use crate::ledger::{Count, Ledgers};
use crate::parallel;
use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng, SchemaError};
use table::with_table_type;

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "ycsb",
    about: "YCSB: reads and writes of one table by skewed keys",
    knobs: &[
        Knob {
            name: "core",
            value: "A..F",
            default: "",
            about: "a core workload: A half updates, B 5% updates, C reads, D 5% inserts and latest reads, E scans, \
                    F half read-modify-writes; sets the mix, --keys and --value-bytes",
        },
        Knob { name: "records", value: "N", default: "1000000", about: "rows at the start" },
        Knob {
            name: "ops",
            value: "N",
            default: "1",
            about: "operations of a transaction; the reordering paper has 16, with --reads 50 --rmw 50",
        },
        Knob { name: "reads", value: "PERCENT", default: "50", about: "operations that read; the others update" },
        Knob { name: "rmw", value: "PERCENT", default: "0", about: "operations that read, then update" },
        Knob { name: "theta", value: "Z", default: "0.99", about: "skew of the keys: 0 is none, below 1" },
        Knob {
            name: "keys",
            value: "scrambled|zipfian|uniform|latest",
            default: "scrambled",
            about: "which keys are hot: some anywhere, the first, none, the newest",
        },
        Knob {
            name: "value-bytes",
            value: "N",
            default: "100",
            about: "bytes of a row's values: up to 100 in one column, up to 1000 in ten; --core has 1000",
        },
        Knob { name: "index", value: "hash|ordered", default: "hash", about: "how the table finds its rows" },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    fn of<T: UserTable>(db: &Database, is_ordered: bool, records: u64) -> Option<Box<dyn Workload>> {
        let table = db.table::<T>().ok()?;
        // All rows have values of one length.
        let length = db.session().snapshot(|tx| Ok(tx.get(&table, &0)?.map(|row| T::field(&row, 0).len()))).ok()?;
        let value_bytes = length.into_value()? * T::FIELDS;
        Some(Box::new(Ycsb::new(Options { value_bytes, is_ordered, ..Options::core(Core::A, records, 0) })))
    }
    let records = rows("usertable");
    // An ordered table would also serve as a hashed one.
    let ordered = of::<OrderedOne>(db, true, records).or_else(|| of::<OrderedTen>(db, true, records));
    ordered.or_else(|| of::<HashOne>(db, false, records)).or_else(|| of::<HashTen>(db, false, records))
}

/// The kinds of transaction with one operation.
pub const KINDS_OF_ONE: [&str; 5] = ["read", "update", "insert", "scan", "read_modify_write"];
/// The kinds of transaction with several operations.
pub const KINDS_OF_SEVERAL: [&str; 2] = ["read_only", "read_write"];

/// YCSB as a [`Workload`].
pub struct Ycsb {
    options: Options,
    shared: Arc<Shared>,
}

/// The state that terminals and the check share.
struct Shared {
    /// The key that the next insert takes.
    next_key: AtomicU64,
    ledgers: Ledgers<Ledger>,
}

/// The commits of one terminal.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ledger {
    writes: Count,
    inserts: Count,
}

impl Ycsb {
    /// The workload with these options.
    pub fn new(options: Options) -> Ycsb {
        let shared = Shared { next_key: AtomicU64::new(options.records), ledgers: Ledgers::default() };
        Ycsb { options, shared: Arc::new(shared) }
    }

    /// Inputs as a terminal of this seed has them.
    pub fn inputs(&self, seed: u64) -> Inputs {
        Inputs::new(self.options, Rng::from_seed(seed), Arc::clone(&self.shared))
    }

    fn declare_table<T: UserTable>(db: &Database) -> Result<(), LoadError> {
        db.create_or_open::<T>()?;
        db.register(T::procedures())?;
        Ok(())
    }

    fn load_table<T: UserTable>(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        let Options { records, value_bytes, seed, .. } = self.options;
        let table = db.table::<T>()?;
        let make = |rng: &mut Rng, key| T::new(key, rng.below(26) as u8, value_bytes);
        parallel::populate(db, loading, (records, records), seed, make, |tx, row| tx.insert(&table, row).map(|()| 1))
    }

    fn terminal_of_table<T: UserTable>(&self, db: &Database, seed: u64) -> Result<Box<dyn Terminal>, SchemaError> {
        Tables::<T>::open(db)?;
        Ok(Box::new(YcsbTerminal::<T>::new(self.inputs(seed), self.shared.ledgers.open(|_| Ledger::default()))))
    }
}

impl Workload for Ycsb {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        if self.options.ops == 1 { &KINDS_OF_ONE } else { &KINDS_OF_SEVERAL }
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        with_table_type!(self.options, T => Ycsb::declare_table::<T>(db))
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        with_table_type!(self.options, T => self.load_table::<T>(db, loading))
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        with_table_type!(self.options, T => consistency::check::<T>(db, &self.options, Some(&self.shared)))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(with_table_type!(self.options, T => consistency::check::<T>(db, &self.options, None))?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        let seed = seed ^ u64::from(index) << 48;
        Ok(with_table_type!(self.options, T => self.terminal_of_table::<T>(db, seed))?)
    }
}
