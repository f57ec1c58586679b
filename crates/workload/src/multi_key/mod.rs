//! The multi-key microbenchmark of HTCC (Wu and Tan, "Scalable In-Memory Transaction Processing with HTM", USENIX ATC 2016,
//! section 2, figure 1): a hash map of a million records, each transaction updates ten of them, drawn by Zipf's law.
//!
//! Where the paper is silent: the ten records differ, the hottest have the lowest keys, and an update adds to what it finds.
//! The paper shows theta 0 and 0.8.

mod consistency;
mod input;
mod options;
#[cfg(test)]
mod plans;
mod schema;
mod terminal;
#[cfg(test)]
mod tests;
mod transactions;

pub use input::{Inputs, KEYS, UpdateInput};
pub use options::{Options, open};
pub use schema::{Record, Tables};
pub use terminal::MultiKeyTerminal;
pub use transactions::{procedures, update};

use crate::ledger::{Count, Ledgers};
use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "multi-key",
    about: "updates of ten records of a hash table by skewed keys (HTCC, figure 1)",
    knobs: &[
        Knob { name: "records", value: "N", default: "1000000", about: "rows, at least 10" },
        Knob { name: "theta", value: "Z", default: "0", about: "skew of the keys: 0 is none, below 1" },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let records = rows("record");
    (records >= KEYS as u64).then(|| Box::new(MultiKey::new(Options { records, ..Options::default() })) as _)
}

/// The kinds of transaction.
pub const KINDS: [&str; 1] = ["update"];

/// What one terminal has committed.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ledger {
    /// Records updated.
    updates: Count,
    /// What was added to them, modulo 2^64.
    amounts: Count,
}

/// The multi-key microbenchmark as a [`Workload`].
pub struct MultiKey {
    options: Options,
    ledgers: Ledgers<Ledger>,
}

impl MultiKey {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there are fewer than [`KEYS`] records, or theta is outside `[0, 1)`.
    pub fn new(options: Options) -> MultiKey {
        assert!(options.records >= KEYS as u64 && (0.0..1.0).contains(&options.theta));
        MultiKey { options, ledgers: Default::default() }
    }
}

impl Workload for MultiKey {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        db.create_or_open::<Record>()?;
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        schema::load(db, self.options.records, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        consistency::check(db, &self.options, Some(&self.ledgers))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(consistency::check(db, &self.options, None)?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        Tables::open(db)?;
        let inputs = Inputs::new(Rng::from_seed(seed ^ u64::from(index) << 48), &self.options);
        let ledger = self.ledgers.open(|_| Ledger::default());
        Ok(Box::new(MultiKeyTerminal::new(inputs, ledger)))
    }
}
