//! Walks over all records of an index that is in use, chunk by chunk: for a checkpoint.
//!
//! Invariant: a record that is linked from before the first chunk until after the last is visited at least
//! once. One that is linked or unlinked meanwhile may be visited or not. Between chunks a walk is a place in
//! the index and nothing that points into it, so its worker may go offline.
//!
//! A tree is walked as a scan of all keys, which continues by key. A hash table is walked by number of bucket.
//! Each bucket's chain is read at one time, as its word proves. A split moves records to the new last bucket,
//! so to a higher number, and nothing else moves a record to another bucket. Suppose that a record was in no
//! chain when that chain was read. Then its bucket was beyond each bucket at the time when that bucket was
//! read. It was beyond the first, since it was not there. If it was beyond bucket `b` then, it was at or
//! beyond `b + 1` when that was read, and not there. So it is beyond the last bucket, which is impossible. The walk
//! ends when it reaches the number of buckets, which is loaded after the last bucket was read.

use crate::cursor::Cursor;
use crate::tree::LeafHint;

/// A walk over one index: [`Index::walk`](crate::Index::walk) moves it.
#[derive(Debug, Default)]
pub struct Walk {
    pub(crate) begun: bool,
    /// Of a tree: the position of the scan of all keys.
    pub(crate) cursor: Cursor,
    pub(crate) leaf_hint: LeafHint,
    /// Of a hash table: the next bucket.
    pub(crate) bucket: u64,
}

impl Walk {
    /// A walk that has not begun.
    pub fn new() -> Walk {
        Walk::default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Walk;
    use crate::cursor::Cursor;
    use crate::tree::LeafHint;
    use crate::{Index, Inserted, RecordPtr, StoreCx, Unobserved, key_bytes, out_of_line_bytes, read_key, write_key};
    use seriatim_base::{Rng, rng, thread};
    use seriatim_catalog::{Key, KeyClass, Organization};
    use seriatim_htm::{Agent, Budget, Emulation, Htm, HtmMode, Outside};
    use seriatim_memory::{Local, Memory, Options};
    use std::collections::HashMap;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    const KINDS: [(Organization, KeyClass); 5] = [
        (Organization::Ordered, KeyClass::Word8),
        (Organization::Ordered, KeyClass::Bytes),
        (Organization::Hash, KeyClass::Word8),
        (Organization::Hash, KeyClass::Word16),
        (Organization::Hash, KeyClass::Bytes),
    ];

    /// A worker, and its context.
    struct Worker {
        local: Local,
        agent: Agent,
        outside: Outside,
    }

    impl Worker {
        fn new(memory: &Memory, htm: &Htm) -> Worker {
            let local = memory.register().expect("a free slot");
            let agent = htm.agent(local.worker(), Budget::default());
            Worker { local, agent, outside: Outside::claim() }
        }

        fn cx(&mut self) -> StoreCx<'_> {
            StoreCx { local: &mut self.local, agent: &mut self.agent, outside: &mut self.outside }
        }

        fn insert(&mut self, index: &Index, n: u64) -> RecordPtr {
            with_key(index.class(), n, |key| {
                let out_of_line = out_of_line_bytes(key);
                let out_of_line =
                    (out_of_line > 0).then(|| self.local.allocate(&mut self.outside, out_of_line).expect("memory"));
                let memory = self.local.allocate(&mut self.outside, key_bytes(index.class())).expect("memory");
                // SAFETY: just allocated, and private.
                let record = unsafe { RecordPtr::from_raw(memory) };
                // SAFETY: as above.
                unsafe { write_key(record, key, out_of_line) };
                assert_eq!(index.insert(&mut self.cx(), key, record, &mut Unobserved), Ok(Inserted::Linked));
                record
            })
        }

        /// Links records for these numbers, times `step`.
        fn fill(&mut self, index: &Index, numbers: std::ops::Range<u64>, step: u64) {
            self.local.enter();
            for n in numbers {
                self.insert(index, step * n);
            }
            self.local.leave();
        }

        /// Unlinks and retires a record; its key's out-of-line value is left to the memory.
        fn remove(&mut self, index: &Index, n: u64, record: RecordPtr) {
            with_key(index.class(), n, |key| assert!(index.remove(&mut self.cx(), key, record, &mut Unobserved)));
            let memory = NonNull::new(record.as_ptr()).expect("a record has an address");
            // SAFETY: allocated by `insert` with this size, and unlinked.
            unsafe { self.local.retire(memory, key_bytes(index.class())) }
        }

        /// As `step_beside_changes`, and the chunk is small.
        fn step(&mut self, index: &Index, walk: &mut Walk, visits: &mut HashMap<u64, u64>) -> bool {
            let before = visits.values().sum::<u64>();
            let more = self.step_beside_changes(index, walk, visits);
            let chunk = visits.values().sum::<u64>() - before;
            assert!(chunk <= 2 * crate::index::CHUNK as u64, "a chunk of {chunk} records");
            more
        }

        /// The visits of a scan of all records by key, online for one leaf at a time.
        fn scan_all(&mut self, index: &Index) -> HashMap<u64, u64> {
            let (mut cursor, mut visits, mut more) = (Cursor::new(), HashMap::new(), true);
            index.scan_all(&mut cursor);
            while more {
                self.local.enter();
                more = index.next_leaf(&mut cursor, &mut LeafHint::default(), self.local.pinned());
                for record in cursor.records().iter().filter(|_| more) {
                    // SAFETY: found under a pin that is still held.
                    *visits.entry(number(unsafe { read_key(*record, index.class()) })).or_default() += 1;
                }
                self.local.leave();
            }
            visits
        }

        /// The next chunk of a walk, online for no longer; whether there was one. Visits are counted by key.
        /// A chain may be of any length while a hash table is about to grow.
        fn step_beside_changes(&mut self, index: &Index, walk: &mut Walk, visits: &mut HashMap<u64, u64>) -> bool {
            let mut out = Vec::new();
            self.local.enter();
            let more = index.walk(walk, self.local.pinned(), &mut out);
            assert!(more || out.is_empty());
            for record in out {
                // SAFETY: found under a pin that is still held.
                *visits.entry(number(unsafe { read_key(record, index.class()) })).or_default() += 1;
            }
            self.local.leave();
            more
        }
    }

    fn with_key<T>(class: KeyClass, n: u64, f: impl FnOnce(Key<'_>) -> T) -> T {
        match class {
            KeyClass::Word8 => f(Key::Word8(n)),
            KeyClass::Word16 => f(Key::Word16(u128::from(n) << 70 | 1)),
            KeyClass::Bytes => f(Key::Bytes(format!("the record with number {n:09}").as_bytes())),
        }
    }

    fn number(key: Key<'_>) -> u64 {
        match key {
            Key::Word8(n) => n,
            Key::Word16(n) => (n >> 70) as u64,
            Key::Bytes(bytes) => {
                let text = std::str::from_utf8(bytes).expect("text");
                text.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("it ends with a number")
            }
        }
    }

    fn open(mode: HtmMode) -> (Memory, Htm) {
        let options = Options { workers_max: 8, huge_pages: false, ..Options::default() };
        (Memory::new(options).expect("memory"), Htm::new(mode).expect("always there"))
    }

    fn index(kind: (Organization, KeyClass), htm: &Htm, worker: &mut Worker) -> Index {
        worker.local.enter();
        let index = Index::new(kind.0, kind.1, 10, htm, &mut worker.cx()).expect("memory");
        worker.local.leave();
        index
    }

    #[test]
    fn a_walk_alone_visits_every_record_once() {
        for kind in KINDS {
            for records in [0, 1, 5, 700] {
                let (memory, htm) = open(HtmMode::Absent);
                let mut worker = Worker::new(&memory, &htm);
                let index = index(kind, &htm, &mut worker);
                worker.fill(&index, 0..records, 1);
                let (mut walk, mut visits) = (Walk::new(), HashMap::new());
                while worker.step(&index, &mut walk, &mut visits) {}
                assert!(!worker.step(&index, &mut walk, &mut visits), "the end stays the end");
                assert_eq!(visits, (0..records).map(|n| (n, 1)).collect(), "{kind:?}");
            }
        }
    }

    #[test]
    fn records_that_move_behind_the_walks_first_end_are_visited() {
        for kind in KINDS {
            let (memory, htm) = open(HtmMode::Absent);
            let mut worker = Worker::new(&memory, &htm);
            let index = index(kind, &htm, &mut worker);
            worker.fill(&index, 0..300, 1);
            let (mut walk, mut visits) = (Walk::new(), HashMap::new());
            assert!(worker.step(&index, &mut walk, &mut visits));
            assert!(visits.len() < 150, "most of the walk lies ahead");
            // SAFETY: the only thread.
            let leaves = unsafe { index.statistics() }.leaves;
            worker.fill(&index, 300..3000, 1);
            // SAFETY: as above.
            assert!(unsafe { index.statistics() }.leaves > 4 * leaves, "{kind:?} has grown");
            while worker.step(&index, &mut walk, &mut visits) {}
            let missed: Vec<u64> = (0..300).filter(|n| !visits.contains_key(n)).collect();
            assert_eq!(missed, [], "{kind:?}");
        }
    }

    /// Records stay while a thread links and unlinks others by phases. So leaves split and empty, chains grow and
    /// shrink, and a hash table doubles. Another thread walks.
    fn walks_beside_changes(kind: (Organization, KeyClass), mode: HtmMode, seed: u64) {
        const STAY: u64 = 400;
        let walks = rng::tries(2, 12);
        let (memory, htm) = open(mode);
        let mut walker = Worker::new(&memory, &htm);
        let index = index(kind, &htm, &mut walker);
        // Every seventh stays: others come between them.
        walker.fill(&index, 0..STAY, 7);
        let (enough, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for half in 0..2 {
                let (memory, htm, index, enough, changes) = (&memory, &htm, &index, &enough, &changes);
                scope.spawn(move || {
                    let (mut worker, mut rng) = (Worker::new(memory, htm), Rng::from_seed(seed + half));
                    let mut linked = HashMap::new();
                    let mut room = 500;
                    while !enough.load(Ordering::Relaxed) {
                        // Grows for a while, then shrinks to nothing; each time larger, so that a hash table
                        // grows again.
                        let growing = linked.len() < room;
                        for _ in 0..room {
                            worker.local.enter();
                            // Between those that stay, and not the other thread's.
                            let n = 14 * rng.below(2 * room as u64) + 1 + half;
                            match linked.remove(&n) {
                                Some(record) => worker.remove(index, n, record),
                                None if growing => drop(linked.insert(n, worker.insert(index, n))),
                                None => {}
                            }
                            worker.local.leave();
                            changes.fetch_add(1, Ordering::Relaxed);
                        }
                        if !growing {
                            worker.local.enter();
                            linked.drain().for_each(|(n, record)| worker.remove(index, n, record));
                            worker.local.leave();
                            room = (room * 5 / 4).min(20_000);
                        }
                        thread::yield_now();
                    }
                });
            }
            for number in 0..walks {
                let (mut walk, mut visits) = (Walk::new(), HashMap::new());
                let before = changes.load(Ordering::Relaxed);
                while walker.step_beside_changes(&index, &mut walk, &mut visits) {
                    thread::yield_now();
                }
                while changes.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
                let missed: Vec<u64> = (0..STAY).map(|n| 7 * n).filter(|n| !visits.contains_key(n)).collect();
                enough.store(!missed.is_empty(), Ordering::Relaxed);
                assert_eq!(missed, [], "{kind:?} on {mode}: walk {number} missed records that stayed");
                if kind.0 == Organization::Ordered {
                    assert!((0..STAY).all(|n| visits[&(7 * n)] == 1), "a tree's walk shows what stays once");
                }
                let shown = walker.scan_all(&index);
                let amiss: Vec<u64> = (0..STAY).map(|n| 7 * n).filter(|n| shown.get(n) != Some(&1)).collect();
                enough.store(number + 1 == walks || !amiss.is_empty(), Ordering::Relaxed);
                assert_eq!(amiss, [], "{kind:?} on {mode}: scan {number} shows what stays exactly once");
            }
        });
        // SAFETY: the only thread.
        assert_eq!(unsafe { index.check() }, Ok(()));
    }

    #[test]
    fn remaining_records_are_visited_whatever_others_come_and_go() {
        let seed = rng::seed("remaining_records_are_visited_whatever_others_come_and_go");
        for kind in KINDS {
            for mode in [HtmMode::Absent, HtmMode::Emulated(Emulation { seed, abort_one_in: 4, yields: true })] {
                walks_beside_changes(kind, mode, seed);
            }
        }
    }
}
