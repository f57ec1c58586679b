//! Conflicts, counted by row, cause, and the two transactions in conflict.
//!
//! Conflicts are rare, and are counted under a lock. To name the other transaction, each commit notes for each
//! row that it writes which procedure wrote it. The notes are in a table of fixed size, by the hash of the key.
//! So a name may be that of the last writer of another row with the same hash. The whole module is inactive
//! unless it is requested.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use seriatim_base::{TableId, Tid};
use seriatim_catalog::{Key, KeyBuf};
use seriatim_txn::{Before, Cause, ConflictInfo, HotRecord, Redo, RowPtr, Table};

/// Rows whose last writers are known at one time.
const WRITERS: usize = 1 << 16;

/// Combinations of row, cause and transactions that are counted separately.
const PLACES_MAX: usize = 1 << 16;

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contender {
    /// Not known: no transaction committed a write of the row since the database was opened.
    Unknown,
    /// A closure or an explicit transaction.
    AdHoc,
    /// A registered procedure.
    Procedure(&'static str),
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Contender::Unknown => "unknown",
            Contender::AdHoc => "ad hoc",
            Contender::Procedure(name) => name,
        })
    }
}

/// Attempts that ended by one cause at one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contended {
    /// The table or index, if the conflict was at one.
    pub table: Option<String>,
    /// The key, if the conflict was at one row.
    pub key: Option<String>,
    /// The phase of the attempts, and the reason why they ended.
    pub cause: Cause,
    /// The transactions that were aborted.
    pub aborted: Contender,
    /// The transaction that last committed a write of the row. (The holder of a conflicting lock may be
    /// another.)
    pub by: Contender,
    /// The number of attempts.
    pub count: u64,
}

/// A row that the protocol has found contended: transactions lock it when they access it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRow {
    /// The table or index; `None` once it is dropped.
    pub table: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// Waits and conflicts at the row in the period before the protocol last decided that it is hot.
    pub failures: u64,
    /// For how long it has been hot.
    pub hot_for: Duration,
}

/// The conflicts of a database since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// By row, cause and transactions, the most frequent first.
    pub places: Vec<Contended>,
    /// Attempts beyond the first 65,536 combinations.
    pub elsewhere: u64,
    /// The rows that are hot now, those with the most failures first. `None` if the protocol does not detect
    /// hot rows, or if an option makes all or none hot.
    pub hot: Option<Vec<HotRow>>,
}

impl Contention {
    /// The number of attempts that ended by conflicts.
    pub fn count(&self) -> u64 {
        self.elsewhere + self.places.iter().map(|place| place.count).sum::<u64>()
    }

    /// The number of attempts for each value of `of`, the most frequent first: by table, by cause, by pair of
    /// procedures.
    ///
    /// ```
    /// # use seriatim_engine::Contention;
    /// # let contention = Contention::default();
    /// let by_table = contention.by(|place| place.table.clone());
    /// let by_pair = contention.by(|place| (place.aborted, place.by));
    /// # assert!(by_table.is_empty() && by_pair.is_empty());
    /// ```
    pub fn by<K: Ord>(&self, of: impl Fn(&Contended) -> K) -> Vec<(K, u64)> {
        let mut sums = std::collections::BTreeMap::new();
        self.places.iter().for_each(|place| *sums.entry(of(place)).or_default() += place.count);
        let mut sums: Vec<(K, u64)> = sums.into_iter().collect();
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sums
    }
}

/// The row of a conflict, its cause, and the two transactions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ConflictSite {
    at: Option<(TableId, Option<KeyBuf>)>,
    cause: Cause,
    aborted: u32,
    by: u32,
}

#[derive(Debug, Default)]
struct Counted {
    places: HashMap<ConflictSite, u64>,
    elsewhere: u64,
}

/// Counts conflicts.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Names of procedures, by number: the first has [`FIRST`].
    names: RwLock<Vec<&'static str>>,
    /// Numbers of the last writers, by hash of the key.
    writers: Box<[AtomicU32]>,
    counted: Mutex<Counted>,
}

const UNKNOWN: u32 = 0;
/// The number of all transactions that are no procedure.
pub(crate) const AD_HOC: u32 = 1;
const FIRST: u32 = 2;

impl Tracker {
    pub(crate) fn new() -> Tracker {
        let writers = (0..WRITERS).map(|_| AtomicU32::new(UNKNOWN)).collect();
        Tracker { names: RwLock::default(), writers, counted: Mutex::default() }
    }

    /// The number of a procedure.
    pub(crate) fn number_of(&self, name: &'static str) -> u32 {
        let find = |names: &[&str]| names.iter().position(|other| *other == name);
        let at = find(&self.names.read().unwrap_or_else(PoisonError::into_inner));
        let at = at.unwrap_or_else(|| {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            find(&names).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        });
        FIRST + at as u32
    }

    fn writer(&self, table: TableId, key: Key<'_>) -> &AtomicU32 {
        let mut hasher = DefaultHasher::new();
        (table.0, &*key.to_bytes()).hash(&mut hasher);
        &self.writers[hasher.finish() as usize % WRITERS]
    }

    /// The redo buffer for a commit of the transaction with this number: it notes the writes and passes them to
    /// `redo`.
    pub(crate) fn note_writes<'c>(&'c self, redo: &'c mut dyn Redo, by: u32) -> NotesWrites<'c> {
        NotesWrites { tracker: self, redo, by }
    }

    /// Counts a conflict that ended an attempt of the transaction with this number.
    #[cold]
    pub(crate) fn count(&self, cause: Cause, info: Option<&ConflictInfo>, aborted: u32) {
        let at = info.and_then(|info| Some((info.table?, info.key.clone())));
        // ORDERING: a name for a report.
        let by = match &at {
            Some((table, Some(key))) => self.writer(*table, key.as_key()).load(Ordering::Relaxed),
            _ => UNKNOWN,
        };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let place = ConflictSite { at, cause, aborted, by };
        let is_full = counted.places.len() == PLACES_MAX;
        match counted.places.get_mut(&place) {
            Some(count) => *count += 1,
            None if is_full => counted.elsewhere += 1,
            None => drop(counted.places.insert(place, 1)),
        }
    }

    /// The counts and the hot rows; `describe` names tables and keys.
    pub(crate) fn contention(
        &self,
        hot: Option<Vec<HotRecord>>,
        describe: impl Fn(TableId, Option<Key<'_>>) -> (Option<String>, Option<String>),
    ) -> Contention {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let contender = |number: u32| match number {
            UNKNOWN => Contender::Unknown,
            AD_HOC => Contender::AdHoc,
            number => Contender::Procedure(names[(number - FIRST) as usize]),
        };
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let places = counted.places.iter().map(|(place, &count)| {
            let described = place.at.as_ref().map(|(table, key)| describe(*table, key.as_ref().map(KeyBuf::as_key)));
            let (table, key) = described.unwrap_or_default();
            let (aborted, by) = (contender(place.aborted), contender(place.by));
            Contended { table, key, cause: place.cause, aborted, by, count }
        });
        let mut places: Vec<Contended> = places.collect();
        places.sort_by(|one, other| {
            let names =
                |place: &Contended| (place.table.clone(), place.key.clone(), place.cause, place.aborted, place.by);
            other.count.cmp(&one.count).then_with(|| names(one).cmp(&names(other)))
        });
        let hot = hot.map(|records| {
            let rows = records.into_iter().map(|HotRecord { table, key, failures, since }| {
                let (table, key) = describe(table, Some(key.as_key()));
                HotRow { table, key, failures, hot_for: since.elapsed() }
            });
            let mut rows: Vec<HotRow> = rows.collect();
            rows.sort_by(|one, other| {
                other.failures.cmp(&one.failures).then_with(|| (&one.table, &one.key).cmp(&(&other.table, &other.key)))
            });
            rows
        });
        Contention { places, elsewhere: counted.elsewhere, hot }
    }
}

/// Notes the writer of each row, then passes the write on.
pub(crate) struct NotesWrites<'c> {
    tracker: &'c Tracker,
    redo: &'c mut dyn Redo,
    by: u32,
}

impl Redo for NotesWrites<'_> {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        // ORDERING: as where it is read.
        self.tracker.writer(table.id, key).store(self.by, Ordering::Relaxed);
        if self.redo.listens() {
            self.redo.write(table, key, tid, before, after);
        }
    }

    fn add(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Before, after: RowPtr) {
        // ORDERING: as where it is read.
        self.tracker.writer(table.id, key).store(self.by, Ordering::Relaxed);
        if self.redo.listens() {
            self.redo.add(table, key, tid, before, after);
        }
    }

    fn defers(&mut self) -> u64 {
        self.redo.defers()
    }
}

#[cfg(test)]
mod tests {
    use seriatim_txn::{Phase, Reason};

    use super::*;

    #[test]
    fn places_beyond_the_bound_are_counted_together() {
        let tracker = Tracker::new();
        let cause = Cause { phase: Phase::Validate, reason: Reason::RecordChanged };
        let info = |key| ConflictInfo { cause, table: Some(TableId(0)), key: Some(KeyBuf::from(Key::Word8(key))) };
        (0..PLACES_MAX as u64 + 5).for_each(|key| tracker.count(cause, Some(&info(key)), AD_HOC));
        tracker.count(cause, Some(&info(7)), AD_HOC);
        let contention = tracker.contention(None, |_, key| (None, key.map(|key| format!("{:?}", key.to_bytes()))));
        assert_eq!((contention.places.len(), contention.elsewhere), (PLACES_MAX, 5));
        assert_eq!((contention.places[0].count, contention.count()), (2, PLACES_MAX as u64 + 6));
        assert_eq!(contention.by(|place| place.cause), [(cause, PLACES_MAX as u64 + 1)]);
    }

    #[test]
    fn a_procedure_has_one_number() {
        let tracker = Tracker::new();
        assert_eq!(["pay", "order", "pay"].map(|name| tracker.number_of(name)), [FIRST, FIRST + 1, FIRST]);
    }
}
