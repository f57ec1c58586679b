//! What a history says: committed transactions, what they saw and what they wrote.
//!
//! Rules for filling one:
//!
//! (a) Only committed transactions, and all of them: a version nobody here wrote counts as one that was aborted.
//! (b) Reads and scans say what the *committed* state showed, under the transaction's own writes. A version of its own may
//!     be listed and says nothing. A key it wrote that a scan does not list says nothing either, because its own write may
//!     have hidden it; list it as [`Saw::Absent`] to claim that it was not there before. A key whose own write lay over it
//!     during the scan and was then taken back is no write of the transaction: list it as [`Saw::Hidden`].
//! (c) An insert that must not find a row, and an update or delete that must, depends on what was there: record that read.
//! (d) A write's version is the TID the commit gave it: above every earlier version of its key, for ever.
//! (e) `began` is read before the first operation, `ended` after the commit was visible, all from one clock.

use crate::Key;
use seriatim_base::TableId;
use std::ops::Bound;

/// Committed transactions and the state they started from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Names of tables for explanations, by [`TableId`]. A table without a name is shown as `t` and its number.
    pub tables: Vec<String>,
    /// What was there before the first recorded transaction.
    pub initial: Initial,
    /// The transactions, in any order.
    pub transactions: Vec<Transaction>,
}

/// The state before the first recorded transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// Nothing: every row was written by a recorded transaction.
    #[default]
    Empty,
    /// Exactly these rows.
    Rows(Vec<InitialRow>),
    /// Some rows were loaded without being recorded. A version that nobody wrote, below all written versions of its key, is
    /// that key's initial row; a key has at most one.
    Unknown,
}

/// A row that was there before the first recorded transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialRow {
    /// Its table.
    pub table: TableId,
    /// Its key.
    pub key: Key,
    /// Its version, below all that recorded transactions gave this key.
    pub version: u64,
}

/// A committed transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Its name in explanations.
    pub id: u64,
    /// The session that ran it; a session runs one transaction at a time.
    pub session: u32,
    /// When it began; `began <= ended`. 0 if unknown.
    pub began: u64,
    /// When its commit had returned. `u64::MAX` if unknown.
    pub ended: u64,
    /// `Some(instant)`: ran on a snapshot that promises to show every transaction that ended before `instant` (0 promises
    /// nothing), where others promise to show all that ended before they began.
    pub snapshot: Option<u64>,
    /// Point reads.
    pub reads: Vec<Read>,
    /// Range reads.
    pub scans: Vec<Scan>,
    /// Writes, normally one a key; of several the one with the highest version is the final one.
    pub writes: Vec<Write>,
}

/// A point read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// What was there.
    pub saw: Saw,
}

/// What a reader found at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saw {
    /// The row with this version.
    Row(u64),
    /// No row as of this TID: a tombstone's, or that of an empty record made after it. The key's newest version at or
    /// below the TID is a delete, or there is none.
    AbsentAt(u64),
    /// No row, and nothing that says since when: before the first write or after any delete.
    Absent,
    /// A write of its own, taken back since or not: says nothing of what was there.
    Hidden,
}

/// A range read: in the range there was what is listed, and nothing else. A scan that stopped early ends at its last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The table.
    pub table: TableId,
    /// The lower end.
    pub low: Bound<Key>,
    /// The upper end.
    pub high: Bound<Key>,
    /// What was found, in any order: rows, and absences of which more is known.
    pub saw: Vec<(Key, Saw)>,
}

/// A version a transaction committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// The version; above 0.
    pub version: u64,
    /// Whether this version is the row's absence.
    pub deleted: bool,
}

impl History {
    /// The name of a table.
    pub(crate) fn table_name(&self, table: TableId) -> String {
        self.tables.get(table.index()).cloned().unwrap_or_else(|| format!("t{table}"))
    }
}

/// Building by hand, for tests: each method adds one fact.
impl Transaction {
    /// A transaction that did nothing, at an unknown time.
    pub fn new(id: u64) -> Transaction {
        Transaction { id, ended: u64::MAX, ..Transaction::default() }
    }

    /// It ran from `began` to `ended`.
    pub fn during(mut self, began: u64, ended: u64) -> Transaction {
        (self.began, self.ended) = (began, ended);
        self
    }

    /// It ran in this session.
    pub fn in_session(mut self, session: u32) -> Transaction {
        self.session = session;
        self
    }

    /// It ran on a snapshot that shows all transactions that ended before `instant`.
    pub fn on_snapshot(mut self, instant: u64) -> Transaction {
        self.snapshot = Some(instant);
        self
    }

    /// It saw this at a key of table `table`.
    pub fn read(mut self, table: u32, key: impl Into<Key>, saw: Saw) -> Transaction {
        self.reads.push(Read { table: TableId(table), key: key.into(), saw });
        self
    }

    /// It saw these row versions, and nothing else, in `low..=high` of table `table`.
    pub fn scan(mut self, table: u32, low: &str, high: &str, rows: &[(&str, u64)]) -> Transaction {
        let saw = rows.iter().map(|&(key, version)| (Key::from(key), Saw::Row(version))).collect();
        let (low, high) = (Bound::Included(low.into()), Bound::Included(high.into()));
        self.scans.push(Scan { table: TableId(table), low, high, saw });
        self
    }

    /// It wrote a row.
    pub fn write(mut self, table: u32, key: impl Into<Key>, version: u64) -> Transaction {
        self.writes.push(Write { table: TableId(table), key: key.into(), version, deleted: false });
        self
    }

    /// It deleted a row.
    pub fn delete(mut self, table: u32, key: impl Into<Key>, version: u64) -> Transaction {
        self.writes.push(Write { table: TableId(table), key: key.into(), version, deleted: true });
        self
    }
}
