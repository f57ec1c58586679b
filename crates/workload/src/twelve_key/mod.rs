//! The partition microbenchmark of Jones, Abadi and Madden ("Low Overhead Concurrency Control for Partitioned Main
//! Memory Databases", SIGMOD 2010, sections 5.1 to 5.4). Each transaction reads and updates twelve keys, all on one
//! partition, or six on each of two.
//!
//! Every client has twelve keys of its own on every partition, so without conflicts no two clients meet (5.1). With
//! conflicts (5.2), the first clients, one for each partition, run their single-partition transactions on their
//! partition. The others exchange one key, with the chosen probability, for that partition's hot key, which is the
//! first of its client. A transaction touches at most one key that others touch too, so deadlocks are impossible.
//! Transactions chosen to abort (5.3) do so at one of their partitions, before they do anything there. General
//! transactions (5.4) read in a first round what they write in a second.
//!
//! Departures: a value is a counter of eight bytes, not four, so that lost updates show. A general transaction also
//! writes the sum of all its reads into each row. So its second round depends on the first at both partitions. Where
//! the database has no partitions, the numbers only part the keys.

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

pub use input::{Inputs, KEYS, KeyLocation, KeysInput};
pub use options::{Options, Rounds, open};
pub use schema::{Cell, Tables};
pub use terminal::TwelveKeyTerminal;
pub use transactions::{GivenUp, KeysOutput, one_round, procedures, two_rounds};

use crate::ledger::{Count, Ledgers};
use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "twelve-key",
    about: "updates of twelve keys on one partition or two (the speculation paper's microbenchmark)",
    knobs: &[
        Knob { name: "partitions", value: "N", default: "2", about: "partitions" },
        Knob {
            name: "clients",
            value: "N",
            default: "40",
            about: "clients with keys of their own; terminals beyond them share keys with the first",
        },
        Knob { name: "multi", value: "PERCENT", default: "0", about: "transactions on two partitions, six keys each" },
        Knob {
            name: "conflict",
            value: "PERCENT",
            default: "0",
            about: "transactions that write a partition's hot key, of clients beyond the first of each partition",
        },
        Knob { name: "abort", value: "PERCENT", default: "0", about: "transactions that roll back" },
        Knob {
            name: "rounds",
            value: "1|2",
            default: "1",
            about: "rounds of a transaction on two partitions: with 2, writes depend on reads at both",
        },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    let (tables, mut session) = (Tables::open(db).ok()?, db.session());
    // A partition has the cells of all clients.
    let cells_of = |client| {
        let mut count = |partition| {
            let found = session.snapshot(|tx| Ok(tx.get(&tables.cell, &(partition, client, 0))?.is_some()));
            found.is_ok_and(|found| *found)
        };
        (0..u16::MAX).take_while(|&partition| count(partition)).count() as u64
    };
    let partitions = { cells_of }(0);
    let clients = rows("cell").checked_div(partitions * input::KEYS as u64)?;
    let (partitions, clients) = (u16::try_from(partitions).ok()?, u16::try_from(clients).ok()?);
    (clients > 0).then(|| Box::new(TwelveKey::new(Options { partitions, clients, ..Options::default() })) as _)
}

/// The kinds of transaction.
pub const KINDS: [&str; 2] = ["single_partition", "multi_partition"];

/// The committed transactions of one terminal.
#[derive(Debug)]
#[repr(align(128))]
struct Ledger {
    client: u16,
    /// Updates of its client's keys, but for a hot one.
    own: Count,
    /// Updates of hot keys.
    hot: Count,
}

/// The twelve-key microbenchmark as a [`Workload`].
pub struct TwelveKey {
    options: Options,
    ledgers: Ledgers<Ledger>,
}

impl TwelveKey {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there is no partition or no client, or if several partitions are wanted and there is one. Or if conflicts are
    /// wanted and every client has its own partition.
    pub fn new(options: Options) -> TwelveKey {
        assert!(options.partitions > 0 && options.clients > 0);
        assert!(options.multi == 0 || options.partitions > 1);
        assert!(options.conflict == 0 || options.clients > options.partitions);
        TwelveKey { options, ledgers: Ledgers::default() }
    }
}

impl Workload for TwelveKey {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        db.create_or_open::<Cell>()?;
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        schema::load(db, &self.options, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        consistency::check(db, &self.options, Some(&self.ledgers))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(consistency::check(db, &self.options, None)?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        Tables::open(db)?;
        let client = index % self.options.clients;
        let inputs = Inputs::new(Rng::from_seed(seed ^ u64::from(index) << 48), self.options, client);
        let ledger = self.ledgers.open(|_| Ledger { client, own: Count::default(), hot: Count::default() });
        Ok(Box::new(TwelveKeyTerminal::new(inputs, self.options, ledger)))
    }
}
