//! Recording while transactions run: one log per worker, merged afterwards.
//!
//! A [`Recorder`] belongs to one worker and shares nothing with others while a transaction runs. A commit
//! appends to a log whose lock only [`Recording::take`] contends for. A recorder reads no clock: the engine
//! passes the instants.
//!
//! A deferred addition is pending until it is published; then it enters the history. Transactions with groups
//! that ended while it was pending are shown to other groups from the publication on. An addition counts as
//! pending from the moment when the first of its transactions went to its commit. Transactions that had ended
//! by then were decided while nothing was pending, so they come before all that were decided since.

use crate::{Addition, Columns, Group, Key, Read, Saw, Scan, Transaction, Write};
use seriatim_base::TableId;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The transactions that one recorder has committed.
#[derive(Debug, Default)]
struct Log {
    transactions: Vec<Transaction>,
    /// Of each transaction that deferred something: its id, and an instant before it was decided.
    publishers: Vec<(u64, u64)>,
}

/// The logs of all recorders of a database. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    logs: Arc<Mutex<Vec<Arc<Mutex<Log>>>>>,
    deferred: Arc<Mutex<Vec<Deferred>>>,
}

/// An addition that a transaction deferred when it committed, and that is now published.
#[derive(Debug)]
struct Deferred {
    id: u64,
    addition: Addition,
    /// An instant after it was visible.
    ended: u64,
}

impl Recording {
    /// A recording without recorders.
    pub fn new() -> Recording {
        Recording::default()
    }

    /// A recorder for one more worker.
    pub fn recorder(&self) -> Recorder {
        let log = Arc::default();
        let mut logs = lock(&self.logs);
        logs.push(Arc::clone(&log));
        let (number, open) = (logs.len() as u64, Transaction::default());
        Recorder { log, number, committed: 0, decides: 0, defers: false, open }
    }

    /// Transactions with these ids had deferred an addition, which is visible at the instant `ended`. Other
    /// groups must see them from then on, and also all that ended since the first of them went to its commit.
    /// A transaction that begins before `ended` may come before any of them.
    pub fn deferred(&self, ids: &[u64], addition: &Addition, ended: u64) {
        let all = ids.iter().map(|&id| Deferred { id, addition: addition.clone(), ended });
        lock(&self.deferred).extend(all);
    }

    /// Takes all transactions that were recorded since the last call, also those of dropped recorders. A
    /// transaction in the middle of its commit may be missing, so let the workers finish first.
    pub fn take(&self) -> Vec<Transaction> {
        let (mut all, mut publishers) = (Vec::new(), HashMap::new());
        for log in lock(&self.logs).iter() {
            let mut log = lock(log);
            all.append(&mut log.transactions);
            publishers.extend(log.publishers.drain(..));
        }
        let deferred = std::mem::take(&mut *lock(&self.deferred));
        if !deferred.is_empty() {
            publish(&mut all, &publishers, deferred);
        }
        all
    }
}

/// Adds each deferred addition to its transaction, and sets when transactions that ended while it was pending
/// are shown to other groups. `publishers` has an instant before each publisher was decided.
fn publish(all: &mut [Transaction], publishers: &HashMap<u64, u64>, deferred: Vec<Deferred>) {
    let places: HashMap<u64, usize> = all.iter().enumerate().map(|(at, t)| (t.id, at)).collect();
    // By the instant of a publication, the instant since which something was pending.
    let mut pending: BTreeMap<u64, u64> = BTreeMap::new();
    for Deferred { id, addition, ended } in deferred {
        let Some(&at) = places.get(&id) else { continue };
        let since = pending.entry(ended).or_insert(u64::MAX);
        *since = (*since).min(publishers.get(&id).copied().unwrap_or(all[at].began));
        all[at].additions.push(addition);
    }
    for t in all {
        let Some(group) = &mut t.group else { continue };
        if let Some((published, _)) = pending.range(t.ended..).next().filter(|(_, since)| **since <= t.ended) {
            group.shown = *published;
        }
    }
}

/// The log of one worker.
#[derive(Debug)]
pub struct Recorder {
    log: Arc<Mutex<Log>>,
    number: u64,
    committed: u64,
    /// An instant before the open transaction is decided.
    decides: u64,
    /// It has deferred something.
    defers: bool,
    open: Transaction,
}

impl Recorder {
    /// Starts a transaction, or starts it again and drops the notes since the last commit. `began` is an
    /// instant before its first operation.
    pub fn begin(&mut self, session: u32, began: u64) {
        self.open.reads.clear();
        self.open.scans.clear();
        self.open.writes.clear();
        self.open.additions.clear();
        (self.open.session, self.open.began, self.open.snapshot, self.open.group) = (session, began, None, None);
        (self.decides, self.defers) = (began, false);
    }

    /// Puts the open transaction into the [group](Group) with this number. Transactions of one group are
    /// ordered as they end. Others see the transaction once everything is published that is pending by then.
    pub fn in_group(&mut self, number: u32) {
        self.open.group = Some(Group { number, shown: 0 });
    }

    /// The open transaction runs on a snapshot that shows every transaction that ended before `instant`.
    pub fn snapshot(&mut self, instant: u64) {
        self.open.snapshot = Some(instant);
    }

    /// Notes a point read that used these columns.
    pub fn read(&mut self, table: TableId, key: &[u8], columns: Columns, saw: Saw) {
        self.open.reads.push(Read { table, key: Key::new(key), columns, saw });
    }

    /// Notes a range read that used these columns of each row. [`Recorder::scan_saw`] then lists its rows, and
    /// [`Recorder::scan_ended`] shortens it.
    pub fn scan(&mut self, table: TableId, low: Bound<&[u8]>, high: Bound<&[u8]>, columns: Columns) {
        let (low, high) = (low.map(Key::new), high.map(Key::new));
        self.open.scans.push(Scan { table, low, high, columns, saw: Vec::new() });
    }

    /// The latest range read found this row or absence.
    ///
    /// # Panics
    /// Without a range read.
    pub fn scan_saw(&mut self, key: &[u8], saw: Saw) {
        let scan = self.open.scans.last_mut().expect("a scan was noted before what it saw");
        scan.saw.push((Key::new(key), saw));
    }

    /// The latest range read stopped early, and claims nothing above `high`.
    ///
    /// # Panics
    /// Without a range read.
    pub fn scan_ended(&mut self, high: Bound<&[u8]>) {
        self.open.scans.last_mut().expect("a scan was noted before it ended").high = high.map(Key::new);
    }

    /// Notes a version that the commit installed; `columns` as in [`Write::columns`].
    pub fn write(&mut self, table: TableId, key: &[u8], version: u64, deleted: bool, columns: Option<Columns>) {
        self.open.writes.push(Write { table, key: Key::new(key), version, deleted, columns });
    }

    /// Notes a version that the commit installed by adding to these columns.
    pub fn add(&mut self, table: TableId, key: &[u8], version: u64, columns: Columns) {
        self.open.additions.push(Addition { table, key: Key::new(key), version, columns, deferred: false });
    }

    /// Drops the notes of reads that were repeated: those of point reads and range reads, by number, for which
    /// `stays` is false.
    pub fn retain(&mut self, mut read_stays: impl FnMut(usize) -> bool, mut scan_stays: impl FnMut(usize) -> bool) {
        let (mut reads, mut scans) = (0.., 0..);
        self.open.reads.retain(|_| reads.next().is_some_and(&mut read_stays));
        self.open.scans.retain(|_| scans.next().is_some_and(&mut scan_stays));
    }

    /// The open transaction is about to be decided, at the instant `now` or later.
    pub fn decides(&mut self, now: u64) {
        self.decides = now;
    }

    /// The open transaction has deferred something. Returns the id that it will have in the history once it
    /// has committed.
    pub fn defers(&mut self) -> u64 {
        self.defers = true;
        self.number_of_next()
    }

    fn number_of_next(&self) -> u64 {
        self.number * 1_000_000_000 + self.committed + 1
    }

    /// The transaction has committed; `ended` is an instant after its writes were visible. Returns its id in
    /// the history.
    pub fn commit(&mut self, ended: u64) -> u64 {
        let id = self.number_of_next();
        self.committed += 1;
        let open = &mut self.open;
        let transaction = Transaction {
            id,
            ended,
            group: open.group.map(|group| Group { shown: ended, ..group }),
            // Allocate exactly what is needed; the recorder keeps its own buffers.
            reads: open.reads.drain(..).collect(),
            scans: open.scans.drain(..).collect(),
            writes: open.writes.drain(..).collect(),
            additions: open.additions.drain(..).collect(),
            ..*open
        };
        let mut log = lock(&self.log);
        log.transactions.push(transaction);
        if self.defers {
            log.publishers.push((id, self.decides));
        }
        id
    }
}

/// Locks. A panic under the lock cannot leave a log half changed, because all that happens under it is one
/// push.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_all_workers_are_merged_and_aborted_attempts_forgotten() {
        let recording = Recording::new();
        seriatim_base::thread::scope(|scope| {
            for worker in 0..3u32 {
                let mut recorder = recording.recorder();
                scope.spawn(move || {
                    for i in 0..10u64 {
                        recorder.begin(worker, i);
                        recorder.write(TableId(9), b"aborted", 1, false, None);
                        recorder.begin(worker, i);
                        recorder.read(TableId(0), b"k", Columns::ALL, Saw::Absent);
                        recorder.scan(TableId(0), Bound::Unbounded, Bound::Unbounded, Columns::ALL);
                        recorder.scan_saw(b"m", Saw::Row(3));
                        recorder.scan_ended(Bound::Included(b"m"));
                        recorder.write(TableId(0), &i.to_be_bytes(), i + 1, i % 2 == 0, None);
                        recorder.commit(i + 1);
                    }
                });
            }
        });
        let all = recording.take();
        assert_eq!(all.len(), 30);
        assert!(all.iter().all(|t| t.writes.len() == 1 && t.reads.len() == 1 && t.writes[0].table == TableId(0)));
        assert!(all.iter().all(|t| t.scans[0].high == Bound::Included("m".into()) && t.scans[0].saw.len() == 1));
        let ids: std::collections::BTreeSet<u64> = all.iter().map(|t| t.id).collect();
        assert_eq!(ids.len(), 30);
        assert!(recording.take().is_empty());
    }

    #[test]
    fn reads_that_were_made_again_are_forgotten() {
        let recording = Recording::new();
        let mut recorder = recording.recorder();
        recorder.begin(0, 0);
        for key in ["a", "b", "c"] {
            recorder.read(TableId(0), key.as_bytes(), Columns::ALL, Saw::Absent);
            recorder.scan(TableId(0), Bound::Included(key.as_bytes()), Bound::Unbounded, Columns::ALL);
        }
        recorder.retain(|read| read != 1, |scan| scan == 2);
        recorder.commit(1);
        let all = recording.take();
        assert_eq!(all[0].reads.iter().map(|read| read.key.clone()).collect::<Vec<_>>(), ["a".into(), "c".into()]);
        assert_eq!((all[0].scans.len(), &all[0].scans[0].low), (1, &Bound::Included("c".into())));
    }

    #[test]
    fn a_deferred_addition_belongs_to_its_transaction_and_is_shown_to_other_groups_when_it_is_published() {
        let recording = Recording::new();
        let mut recorder = recording.recorder();
        // When each began, went to its commit and ended; its group, if any; whether it defers.
        let mut run = |(began, decides, ended, group, defers): (u64, u64, u64, Option<u32>, bool)| {
            recorder.begin(0, began);
            group.into_iter().for_each(|group| recorder.in_group(group));
            recorder.decides(decides);
            let id = defers.then(|| recorder.defers());
            let committed = recorder.commit(ended);
            assert!(id.is_none_or(|id| id == committed));
            committed
        };
        let ids = [
            (0, 0, 1, Some(0), false),
            (0, 2, 3, Some(1), false),
            (0, 4, 5, Some(1), true),
            (4, 4, 5, None, false),
            (4, 4, 6, Some(0), false),
            (6, 6, 7, Some(1), true),
            (20, 20, 21, Some(1), false),
        ]
        .map(&mut run);
        let (table, key, columns) = (TableId(0), Key::new(b"k"), Columns::of(&[1]));
        let addition = Addition { table, key, version: 9, columns, deferred: true };
        recording.deferred(&[ids[2], ids[5]], &addition, 10);
        let all = recording.take();
        let found = ids.map(|id| {
            let t = all.iter().find(|t| t.id == id).expect("it has committed");
            (t.ended, t.group.map(|group| (group.number, group.shown)), t.additions.len())
        });
        let expected = [
            (1, Some((0, 1)), 0),
            (3, Some((1, 3)), 0),
            (5, Some((1, 10)), 1),
            (5, None, 0),
            (6, Some((0, 10)), 0),
            (7, Some((1, 10)), 1),
            (21, Some((1, 21)), 0),
        ];
        assert_eq!(found, expected);
    }
}
