//! The contents of a history: committed transactions, their reads and their writes.
//!
//! Rules for filling one:
//!
//! (a) It lists all committed transactions and no others: a version that none of them wrote counts as aborted. (b)
//! Reads and scans say what the *committed* state showed, beneath the transaction's own writes. A version that the
//! transaction itself wrote may be listed and says nothing. A key that it wrote and that a scan does not list says
//! nothing either, because its own write may have hidden the row. List the key as [`Saw::Absent`] to claim that there
//! was no row before. Its own write may have covered the key during the scan and then have been undone. Then the
//! transaction has no write of the key: list it as [`Saw::Hidden`]. (c) An insert requires that there is no row, an
//! update or delete that there is one: record that read. (d) A write's version is the TID that the commit gave it:
//! above every earlier version of its key, for ever. (e) `began` is read before the first operation, `ended` after the
//! commit was visible, all from one clock. A transaction that only its own group sees by then ([`Group`]) has a second
//! instant.
//!
//! Where a protocol keeps column groups apart ([`History::groups`]), facts name columns, and these rules change:
//!
//! (f) A read names the columns that it used, a write those that it changed. Insertions and deletions change
//!     all columns. Every read and update also uses the existence of the row, even if it names no column.
//!     Where column groups have versions of their own, there is a fact for each.
//! (g) A read names a version of the row: in each group it saw the newest version at or below that one. A protocol with
//!     one TID a row names that TID; one with a TID a group names each group's.
//! (h) An update's version is above every earlier one of the columns that it changed and above the row's insertion. The
//!     version of an insertion or deletion is above all of its key.
//! (i) A write that only adds to columns may be listed as an addition. Additions to a column may be ordered
//!     in any way among themselves, whatever their versions. A reader of the column saw the additions at or
//!     below the version that it names, and no others. Additions that are published later together may have
//!     one version.

use crate::Key;
use seriatim_base::TableId;
use std::ops::{Bound, RangeBounds};

/// Committed transactions and the state they started from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Names of tables for explanations, by [`TableId`]. A table without a name is shown as `t` and its number.
    pub tables: Vec<String>,
    /// By [`TableId`], the column groups that are judged apart, because the protocol keeps them apart. The
    /// columns of no group form one more. A table without groups is judged by whole rows, whatever columns its
    /// facts name.
    pub groups: Vec<Vec<Columns>>,
    /// The rows before the first recorded transaction.
    pub initial: Initial,
    /// The transactions, in any order.
    pub transactions: Vec<Transaction>,
}

/// Columns of a table, by position: bit `min(column, 63)`, so that columns from the 64th on share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns(pub u64);

impl Columns {
    /// Every column.
    pub const ALL: Columns = Columns(u64::MAX);
    /// No column.
    pub const NONE: Columns = Columns(0);

    /// The set of these columns.
    pub const fn of(columns: &[u32]) -> Columns {
        let (mut bits, mut i) = (0, 0);
        while i < columns.len() {
            bits |= 1 << if columns[i] < 63 { columns[i] } else { 63 };
            i += 1;
        }
        Columns(bits)
    }

    /// Whether the sets share a column.
    pub const fn intersects(self, other: Columns) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn union(self, other: Columns) -> Columns {
        Columns(self.0 | other.0)
    }

    pub(crate) const fn others(self) -> Columns {
        Columns(!self.0)
    }
}

impl Default for Columns {
    fn default() -> Columns {
        Columns::ALL
    }
}

/// The state before the first recorded transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// Nothing: every row was written by a recorded transaction.
    #[default]
    Empty,
    /// Exactly these rows.
    Rows(Vec<InitialRow>),
    /// Some rows were loaded without being recorded. A version that no transaction wrote, below all written
    /// versions of its key, is that key's initial row; a key has at most one.
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
    /// `Some(instant)`: the transaction ran on a snapshot. It promises to show every transaction that ended
    /// before `instant` (0 promises nothing). Other transactions promise to show all that ended before they
    /// began.
    pub snapshot: Option<u64>,
    /// The group that sees the transaction from its end on, while other groups may see it later. `None`: all
    /// transactions see it from its end on, and it sees all that had ended when it began. A snapshot has none.
    pub group: Option<Group>,
    /// Point reads.
    pub reads: Vec<Read>,
    /// Range reads.
    pub scans: Vec<Scan>,
    /// Writes, normally one a key. If there are several, the one with the highest version is the final one.
    pub writes: Vec<Write>,
    /// Writes that only added to an existing row, at most one a key. Their keys are not in `writes`.
    pub additions: Vec<Addition>,
}

/// A group of transactions that are ordered as they ended. Other groups see them from a later instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's number.
    pub number: u32,
    /// The instant from which beginning transactions of other groups must see this one: its end or later.
    pub shown: u64,
}

/// A point read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// The columns used.
    pub columns: Columns,
    /// The value found.
    pub saw: Saw,
}

/// The value that a reader found at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saw {
    /// The row with this version.
    Row(u64),
    /// No row as of this TID, which is that of a tombstone or of an empty record made after it. The key's
    /// newest version at or below the TID is a delete, or there is none.
    AbsentAt(u64),
    /// No row, with nothing that says since when: before the first write or after any delete.
    Absent,
    /// A write of the transaction itself, undone since or not: says nothing about the committed row.
    Hidden,
}

/// A range read: the range held the listed rows and no others. A scan that stopped early ends at its last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The table.
    pub table: TableId,
    /// The lower end.
    pub low: Bound<Key>,
    /// The upper end.
    pub high: Bound<Key>,
    /// The columns used of each row. Rows with other columns are listed as point reads.
    pub columns: Columns,
    /// The rows found, in any order, and absences of which more is known.
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
    /// The columns that an update changed; `None`: the whole row, by an insertion or a deletion.
    pub columns: Option<Columns>,
}

/// A version that a transaction committed by adding to columns of an existing row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Key,
    /// The version; above 0.
    pub version: u64,
    /// The columns added to.
    pub columns: Columns,
    /// Whether it was published later, possibly together with additions of others, which then have the same
    /// version.
    pub deferred: bool,
}

impl Write {
    /// Whether it is an insertion or a deletion.
    pub(crate) fn is_whole(&self) -> bool {
        self.deleted || self.columns.is_none()
    }

    /// The columns changed.
    pub(crate) fn changed(&self) -> Columns {
        self.columns.filter(|_| !self.deleted).unwrap_or(Columns::ALL)
    }
}

impl Transaction {
    /// The instant from which all transactions see it.
    pub(crate) fn shown(&self) -> u64 {
        self.group.map_or(self.ended, |group| group.shown)
    }

    /// The instant from which `later` must see this one, if real-time order is promised.
    pub(crate) fn shown_to(&self, later: &Transaction) -> u64 {
        match (self.group, later.group) {
            (Some(own), Some(other)) if own.number != other.number => own.shown,
            _ => self.ended,
        }
    }
}

impl Scan {
    /// Whether a key lies in the range.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        (self.low.as_ref(), self.high.as_ref()).contains(key)
    }
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

    /// Sets the time: from `began` to `ended`.
    pub fn during(mut self, began: u64, ended: u64) -> Transaction {
        (self.began, self.ended) = (began, ended);
        self
    }

    /// Sets the session.
    pub fn in_session(mut self, session: u32) -> Transaction {
        self.session = session;
        self
    }

    /// Makes it run on a snapshot that shows all transactions that ended before `instant`.
    pub fn on_snapshot(mut self, instant: u64) -> Transaction {
        self.snapshot = Some(instant);
        self
    }

    /// Puts it into the group with this number; other groups must see it from the instant `shown` on.
    pub fn in_group(mut self, number: u32, shown: u64) -> Transaction {
        self.group = Some(Group { number, shown });
        self
    }

    /// Adds a read of a key of table `table`.
    pub fn read(self, table: u32, key: impl Into<Key>, saw: Saw) -> Transaction {
        self.read_columns(table, key, Columns::ALL, saw)
    }

    /// Adds a read of these columns of a row of table `table`, or of its absence.
    pub fn read_columns(mut self, table: u32, key: impl Into<Key>, columns: Columns, saw: Saw) -> Transaction {
        self.reads.push(Read { table: TableId(table), key: key.into(), columns, saw });
        self
    }

    /// Adds a scan that found these row versions, and nothing else, in `low..=high` of table `table`.
    pub fn scan(mut self, table: u32, low: &str, high: &str, rows: &[(&str, u64)]) -> Transaction {
        let saw = rows.iter().map(|&(key, version)| (Key::from(key), Saw::Row(version))).collect();
        let (low, high) = (Bound::Included(low.into()), Bound::Included(high.into()));
        self.scans.push(Scan { table: TableId(table), low, high, columns: Columns::ALL, saw });
        self
    }

    /// Adds a write of a row.
    pub fn write(mut self, table: u32, key: impl Into<Key>, version: u64) -> Transaction {
        self.writes.push(Write { table: TableId(table), key: key.into(), version, deleted: false, columns: None });
        self
    }

    /// Adds an update of these columns of a row.
    pub fn update(mut self, table: u32, key: impl Into<Key>, columns: Columns, version: u64) -> Transaction {
        let columns = Some(columns);
        self.writes.push(Write { table: TableId(table), key: key.into(), version, deleted: false, columns });
        self
    }

    /// Adds an addition to these columns of a row.
    pub fn add(mut self, table: u32, key: impl Into<Key>, columns: Columns, version: u64) -> Transaction {
        let (table, key) = (TableId(table), key.into());
        self.additions.push(Addition { table, key, version, columns, deferred: false });
        self
    }

    /// Adds an addition to these columns of a row that was published later.
    pub fn defer(mut self, table: u32, key: impl Into<Key>, columns: Columns, version: u64) -> Transaction {
        let (table, key) = (TableId(table), key.into());
        self.additions.push(Addition { table, key, version, columns, deferred: true });
        self
    }

    /// Adds a delete of a row.
    pub fn delete(mut self, table: u32, key: impl Into<Key>, version: u64) -> Transaction {
        self.writes.push(Write { table: TableId(table), key: key.into(), version, deleted: true, columns: None });
        self
    }
}
