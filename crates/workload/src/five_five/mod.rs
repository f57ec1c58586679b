//! The validator microbenchmark of Ding, Kot and Gehrke ("Improving Optimistic Concurrency Control Through Transaction Batching
//! and Operation Reordering", PVLDB 12(2), 2018, section 5): 100 K objects; each transaction reads five and writes five,
//! drawn by Zipf's law; one of the objects read is also written.
//!
//! Departure: the paper leaves values null. Here the object read and written counts its writes by what was read, so that a lost
//! update shows, and every write stores a value that no other transaction writes, so that a blind write that got lost shows. The
//! other four writes are blind, as in the paper: they set a column and read none. Where the paper is silent: the nine objects
//! differ, and the hottest have the lowest numbers.

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

pub use input::{BLIND, Inputs, ReadWriteInput, Values};
pub use options::{Options, open};
pub use schema::{Object, Tables};
pub use terminal::FiveFiveTerminal;
pub use transactions::{procedures, read_write};

use crate::ledger::{Count, Ledgers};
use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "five-five",
    about: "five reads and five writes of objects by skewed keys (the reordering paper's validator microbenchmark)",
    knobs: &[
        Knob { name: "objects", value: "N", default: "100000", about: "rows, 9 to 16777216" },
        Knob { name: "theta", value: "Z", default: "0.9", about: "skew of the objects: 0 is none, below 1" },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let objects = rows("object");
    let is_possible = (Options::OBJECTS_MIN..=Options::OBJECTS_MAX).contains(&objects);
    is_possible.then(|| Box::new(FiveFive::new(Options { objects, ..Options::default() })) as _)
}

/// The kinds of transaction.
pub const KINDS: [&str; 1] = ["read_write"];

/// What one terminal has committed.
#[derive(Debug)]
#[repr(align(128))]
struct Ledger {
    /// Its place among the ledgers.
    number: usize,
    /// Transactions.
    committed: Count,
    /// The value it last wrote to each object; zero if none.
    last: Box<[Count]>,
}

/// The five-five microbenchmark as a [`Workload`].
pub struct FiveFive {
    options: Options,
    ledgers: Ledgers<Ledger>,
}

impl FiveFive {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there are too few or too many objects, or theta is outside `[0, 1)`.
    pub fn new(options: Options) -> FiveFive {
        assert!((Options::OBJECTS_MIN..=Options::OBJECTS_MAX).contains(&options.objects));
        assert!((0.0..1.0).contains(&options.theta));
        FiveFive { options, ledgers: Ledgers::default() }
    }
}

impl Workload for FiveFive {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        db.create_or_open::<Object>()?;
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        schema::load(db, self.options.objects, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        consistency::check(db, &self.options, Some(&self.ledgers))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(consistency::check(db, &self.options, None)?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        Tables::open(db)?;
        let last = (0..self.options.objects).map(|_| Count::default()).collect();
        let ledger = self.ledgers.open(|number| Ledger { number, committed: Count::default(), last });
        let rng = Rng::from_seed(seed ^ u64::from(index) << 48);
        let inputs = Inputs::new(rng, &self.options, Values::of_terminal(ledger.number));
        Ok(Box::new(FiveFiveTerminal::new(inputs, ledger)))
    }
}
