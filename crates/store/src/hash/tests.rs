//! Properties of the hash table, with sections of 4 buckets so that directories grow too.

use super::bucket::{Bucket, Slot, load};
use super::hasher::{HashValue, Hashed};
use super::{Hash, LOAD};
use crate::index::{Inserted, StoreCx};
use crate::node_version::NodeVersion;
use crate::observer::{Observer, Unobserved};
use crate::record::{Bytes, Kind, RecordPtr, Word8, Word16, write_key};
use seriatim_base::{Rng, rng, thread};
use seriatim_catalog::{Key, KeyClass};
use seriatim_htm::{Agent, Budget, Emulation, Htm, HtmMode, Outside};
use seriatim_memory::{Local, Memory, Options};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// A database's ground, for a handful of workers.
struct World {
    memory: Memory,
    htm: Htm,
}

struct Worker {
    local: Local,
    agent: Agent,
    outside: Outside,
}

impl World {
    fn new(mode: HtmMode) -> World {
        let memory = Memory::new(Options { workers_max: 8, huge_pages: false, ..Options::default() });
        World { memory: memory.expect("memory"), htm: Htm::new(mode).expect("these modes are everywhere") }
    }

    fn worker(&self) -> Worker {
        let local = self.memory.register().expect("a free slot");
        let agent = self.htm.agent(local.worker(), Budget::default());
        Worker { local, agent, outside: Outside::claim() }
    }
}

impl Worker {
    fn cx(&mut self) -> StoreCx<'_> {
        StoreCx { local: &mut self.local, agent: &mut self.agent, outside: &mut self.outside }
    }

    fn table<K: Hashed>(&mut self, world: &World, capacity: usize) -> Hash<K> {
        Hash::new(capacity, &world.htm, &mut self.cx()).expect("memory")
    }

    fn insert<K: Hashed>(&mut self, table: &Hash<K>, key: &Owned, record: RecordPtr) -> Inserted {
        self.insert_seen(table, key, record, &mut Unobserved)
    }

    fn insert_seen<K: Hashed>(
        &mut self,
        table: &Hash<K>,
        key: &Owned,
        record: RecordPtr,
        observer: &mut impl Observer,
    ) -> Inserted {
        table.insert(&mut self.cx(), K::probe(key.key()), record, observer).expect("memory")
    }

    fn remove<K: Hashed>(&mut self, table: &Hash<K>, key: &Owned, record: RecordPtr) -> bool {
        table.remove(&mut self.cx(), K::probe(key.key()), record, &mut Unobserved)
    }

    fn get<K: Hashed>(&self, table: &Hash<K>, key: &Owned) -> Result<RecordPtr, NodeVersion> {
        table.get(K::probe(key.key()), self.local.pinned())
    }

    fn absent<K: Hashed>(&self, table: &Hash<K>, key: &Owned) -> NodeVersion {
        self.get(table, key).expect_err("the key is absent")
    }

    /// A record with this key.
    fn record(&mut self, key: &Owned) -> RecordPtr {
        let out_of_line = match key {
            Owned::Bytes(bytes) => Some(self.local.allocate(&mut self.outside, 8 + bytes.len()).expect("memory")),
            _ => None,
        };
        let memory = self.local.allocate(&mut self.outside, RECORD_BYTES).expect("memory");
        // SAFETY: private memory with room for the key words.
        unsafe {
            let record = RecordPtr::from_raw(memory);
            write_key(record, key.key(), out_of_line);
            record
        }
    }

    /// Retires an unlinked record of word keys.
    fn retire(&mut self, record: RecordPtr) {
        let memory = std::ptr::NonNull::new(record.as_ptr()).expect("a record has an address");
        // SAFETY: allocated by `record` with this size, and unlinked.
        unsafe { self.local.retire(memory, RECORD_BYTES) }
    }
}

const RECORD_BYTES: usize = 16;

/// A key of any class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owned {
    Word8(u64),
    Word16(u128),
    Bytes(Vec<u8>),
}

impl Owned {
    fn key(&self) -> Key<'_> {
        match self {
            Owned::Word8(key) => Key::Word8(*key),
            Owned::Word16(key) => Key::Word16(*key),
            Owned::Bytes(key) => Key::Bytes(key),
        }
    }

    fn new(class: KeyClass, n: u64) -> Owned {
        match class {
            KeyClass::Word8 => Owned::Word8(n),
            KeyClass::Word16 => Owned::Word16(u128::from(n % 7) << 64 | u128::from(n)),
            KeyClass::Bytes => Owned::Bytes(format!("row {n}").into_bytes()),
        }
    }
}

/// The back ends every machine has: absent, emulated, and emulated so that every body falls back.
fn modes(seed: u64) -> [HtmMode; 3] {
    let emulated = |abort_one_in| HtmMode::Emulated(Emulation { seed, abort_one_in, yields: true });
    [HtmMode::Absent, emulated(4), emulated(1)]
}

/// As [`modes`], for tests of one thread: with no other to yield to.
fn modes_alone(seed: u64) -> [HtmMode; 3] {
    modes(seed).map(|mode| match mode {
        HtmMode::Emulated(emulation) => HtmMode::Emulated(Emulation { yields: false, ..emulation }),
        mode => mode,
    })
}

fn still_valid(node_version: &NodeVersion) -> bool {
    // SAFETY: words of buckets live as long as their table.
    unsafe { node_version.still_valid() }
}

fn agrees_with_a_map<K: Hashed>(mode: HtmMode, seed: u64, operations: u64) {
    let mut rng = Rng::from_seed(seed);
    let world = World::new(mode);
    let mut worker = world.worker();
    worker.local.enter();
    let table = worker.table::<K>(&world, rng.below(100) as usize);
    let mut model: HashMap<Owned, RecordPtr> = HashMap::new();
    let mut node_versions: HashMap<Owned, NodeVersion> = HashMap::new();
    // Keys first grow in number, then shrink.
    for operation in 0..operations {
        let key = Owned::new(K::CLASS, rng.below(600));
        let growing = if operation < operations / 2 { 70 } else { 30 };
        match worker.get(&table, &key) {
            Ok(found) => assert_eq!(model.get(&key), Some(&found)),
            Err(node_version) => {
                assert!(!model.contains_key(&key), "{key:?} is lost");
                assert!(still_valid(&node_version));
                node_versions.insert(key.clone(), node_version);
            }
        }
        if rng.percent(growing) {
            let record = worker.record(&key);
            match worker.insert(&table, &key, record) {
                Inserted::Linked => assert!(model.insert(key, record).is_none()),
                Inserted::Exists(other) => assert_eq!(model.get(&key), Some(&other)),
                Inserted::Refused => unreachable!("nobody refuses"),
            }
        } else {
            let record = model.remove(&key);
            let stranger = worker.record(&key);
            assert!(!worker.remove(&table, &key, stranger), "another record of the same key is not the record");
            assert!(record.is_none_or(|record| worker.remove(&table, &key, record)));
            assert!(record.is_none_or(|record| !worker.remove(&table, &key, record)));
        }
        if operation % 64 == 0 {
            table.check().expect("the table is sound");
            // A valid node version is one that a new look would give, wherever the key's bucket is now.
            node_versions.retain(|_, node_version| still_valid(node_version));
            for (key, node_version) in &node_versions {
                assert_eq!(worker.absent(&table, key), *node_version);
            }
        }
    }
    let mut left = HashSet::new();
    table.for_each(|record| assert!(left.insert(record)));
    assert_eq!(left, model.values().copied().collect());
    assert_eq!(table.statistics().records, model.len());
    // SAFETY: no other thread uses it.
    unsafe { table.dispose(&mut worker.local) };
}

#[test]
fn agrees_with_a_map_of_the_standard_library() {
    let seed = rng::seed("agrees_with_a_map_of_the_standard_library");
    for mode in modes_alone(seed) {
        let operations = if mode == HtmMode::Absent { 20_000 } else { 1_000 };
        agrees_with_a_map::<Word8>(mode, seed, operations);
        agrees_with_a_map::<Word16>(mode, seed, operations);
        agrees_with_a_map::<Bytes>(mode, seed, operations);
    }
}

#[test]
fn every_change_of_membership_changes_the_node_version() {
    for mode in modes_alone(rng::seed("every_change_of_membership_changes_the_node_version")) {
        let world = World::new(mode);
        let mut worker = world.worker();
        worker.local.enter();
        let table = worker.table::<Word8>(&world, 1000);
        for n in 0..200 {
            let key = Owned::Word8(n);
            let before = worker.absent(&table, &key);
            let record = worker.record(&key);
            assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
            assert!(!still_valid(&before));
            assert!(worker.remove(&table, &key, record));
            let after = worker.absent(&table, &key);
            assert_eq!(before.address(), after.address());
            assert_ne!(before.value(), after.value(), "insert and remove leave no trace");
            // Operations without effect change no node version.
            assert!(!worker.remove(&table, &key, record));
            assert!(still_valid(&after));
            worker.retire(record);
        }
    }
}

#[test]
fn a_split_changes_the_node_version_of_every_key_that_moves() {
    let seed = rng::seed("a_split_changes_the_node_version_of_every_key_that_moves");
    for mode in modes_alone(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        worker.local.enter();
        let table = worker.table::<Word8>(&world, 0);
        let ghosts: Vec<Owned> = (0..500).map(|n| Owned::Word8(1 << 40 | n)).collect();
        let (mut moved, mut stayed) = (0, 0);
        let mut node_versions: Vec<NodeVersion> = ghosts.iter().map(|key| worker.absent(&table, key)).collect();
        for n in 0..500 {
            let key = Owned::Word8(n);
            let record = worker.record(&key);
            assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
            for (key, node_version) in ghosts.iter().zip(&mut node_versions) {
                let now = worker.absent(&table, key);
                if now.address() == node_version.address() {
                    stayed += u32::from(still_valid(node_version));
                } else {
                    assert!(!still_valid(node_version), "{key:?} moved, and its node version still holds");
                    moved += 1;
                }
                *node_version = now;
            }
        }
        assert!(moved > 500 && stayed > 500, "{moved} {stayed}");
    }
}

/// Keeps node versions as a transaction keeps its node set.
#[derive(Default)]
struct NodeSet {
    nodes: HashMap<usize, u64>,
    splits: usize,
}

impl NodeSet {
    fn add(&mut self, node_version: &NodeVersion) {
        let value = *self.nodes.entry(node_version.address().addr()).or_insert(node_version.value());
        assert_eq!(value, node_version.value());
    }
}

impl Observer for NodeSet {
    const ADMITS: bool = false;

    fn changed(&mut self, word: &AtomicU64, before: u64, after: u64) {
        let address = std::ptr::from_ref(word).addr();
        if let Some(value) = self.nodes.get_mut(&address) {
            assert_eq!(*value, before);
            *value = after;
        }
    }

    fn created(&mut self, from: &AtomicU64, _from_before: u64, word: &AtomicU64, value: u64, gap: &AtomicU64) {
        self.splits += 1;
        assert_eq!(gap.load(Ordering::Relaxed), 0);
        if self.nodes.contains_key(&std::ptr::from_ref(from).addr()) {
            assert!(self.nodes.insert(std::ptr::from_ref(word).addr(), value).is_none());
        }
    }
}

#[test]
fn a_transaction_can_follow_its_own_splits() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    worker.local.enter();
    let table = worker.table::<Word8>(&world, 0);
    let mut nodes = NodeSet::default();
    let ghosts: Vec<Owned> = (0..300).map(|n| Owned::Word8(1 << 40 | n)).collect();
    ghosts.iter().for_each(|key| nodes.add(&worker.absent(&table, key)));
    for n in 0..2000 {
        let key = Owned::Word8(n);
        let record = worker.record(&key);
        assert_eq!(worker.insert_seen(&table, &key, record, &mut nodes), Inserted::Linked);
        if n % 7 == 0 {
            table.remove(&mut worker.cx(), Word8::probe(key.key()), record, &mut nodes);
        }
    }
    assert!(nodes.splits > 100, "{}", nodes.splits);
    for key in &ghosts {
        let node_version = worker.absent(&table, key);
        assert_eq!(nodes.nodes.get(&node_version.address().addr()), Some(&node_version.value()));
    }
}

/// Refuses as configured, and remembers the gap that it was asked about.
struct Doorman {
    admits: bool,
    asked: usize,
}

impl Observer for Doorman {
    fn admit(&mut self, gap: &AtomicU64, word: &AtomicU64) -> bool {
        self.asked += 1;
        assert_eq!(std::ptr::from_ref(gap), std::ptr::from_ref(word).wrapping_add(1));
        assert_eq!(word.load(Ordering::Relaxed) & 1, 1, "the bucket is latched");
        self.admits
    }
}

#[test]
fn a_refused_insert_changes_nothing() {
    for mode in modes_alone(rng::seed("a_refused_insert_changes_nothing")) {
        let world = World::new(mode);
        let mut worker = world.worker();
        worker.local.enter();
        let table = worker.table::<Word8>(&world, 0);
        for n in 0..100 {
            let key = Owned::Word8(n);
            let record = worker.record(&key);
            let node_version = worker.absent(&table, &key);
            let mut doorman = Doorman { admits: false, asked: 0 };
            assert_eq!(worker.insert_seen(&table, &key, record, &mut doorman), Inserted::Refused);
            assert_eq!(doorman.asked, 1);
            assert!(still_valid(&node_version));
            doorman.admits = true;
            assert_eq!(worker.insert_seen(&table, &key, record, &mut doorman), Inserted::Linked);
            assert!(!still_valid(&node_version));
        }
        table.check().expect("the table is sound");
    }
}

#[test]
fn a_bucket_whose_gap_is_held_is_not_split() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    worker.local.enter();
    let table = worker.table::<Word8>(&world, 0);
    let victim = table.directory.extent().victim(table.directory.base());
    // SAFETY: below the extent.
    let gap = &unsafe { table.directory.bucket(victim) }.gap;
    gap.store(1, Ordering::SeqCst);
    let buckets = table.directory.extent().buckets();
    let fill = |worker: &mut Worker, keys: std::ops::Range<u64>| {
        for key in keys.map(Owned::Word8) {
            let record = worker.record(&key);
            assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
        }
    };
    fill(&mut worker, 0..500);
    assert_eq!(table.directory.extent().buckets(), buckets);
    gap.store(0, Ordering::SeqCst);
    fill(&mut worker, 500..1500);
    assert!(table.directory.extent().buckets() * (LOAD + 1) > 1000);
    table.check().expect("the table is sound");
}

/// Readers look for keys that are always there while writers make the table grow. How many lookups missed.
fn lost_during_growth(
    mode: HtmMode,
    keys: u64,
    look: impl Fn(&Worker, &Hash<Word8>, &Owned) -> bool + Sync,
) -> (u64, Result<(), String>) {
    let world = World::new(mode);
    let mut worker = world.worker();
    worker.local.enter();
    let table = worker.table::<Word8>(&world, 0);
    let resident: Vec<Owned> = (0..200).map(|n| Owned::Word8(1 << 40 | n)).collect();
    for key in &resident {
        let record = worker.record(key);
        assert_eq!(worker.insert(&table, key, record), Inserted::Linked);
    }
    worker.local.leave();
    let (writing, lost) = (AtomicU64::new(2), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..2 {
            let (world, table, writing) = (&world, &table, &writing);
            scope.spawn(move || {
                let mut worker = world.worker();
                for n in 0..keys {
                    let key = Owned::Word8(n << 1 | writer);
                    worker.local.enter();
                    let record = worker.record(&key);
                    assert_eq!(worker.insert(table, &key, record), Inserted::Linked);
                    if n % 4 == 0 {
                        assert!(worker.remove(table, &key, record));
                        worker.retire(record);
                    }
                    worker.local.leave();
                }
                writing.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            let (world, table, writing, lost, resident, look) = (&world, &table, &writing, &lost, &resident, &look);
            scope.spawn(move || {
                let mut worker = world.worker();
                while writing.load(Ordering::Relaxed) > 0 {
                    worker.local.enter();
                    let missed = resident.iter().filter(|key| !look(&worker, table, key)).count();
                    lost.fetch_add(missed as u64, Ordering::Relaxed);
                    worker.local.leave();
                }
            });
        }
    });
    worker.local.enter();
    for n in 0..2 * keys {
        assert_eq!(worker.get(&table, &Owned::Word8(n)).is_ok(), n / 2 % 4 != 0, "{n}");
    }
    // An insertion that should have made it grow may have been late, and the last one at the end.
    assert!(table.directory.extent().buckets() > keys / (2 * LOAD + 2));
    (lost.into_inner(), table.check())
}

#[test]
fn no_key_is_lost_while_the_table_grows() {
    for mode in modes(rng::seed("no_key_is_lost_while_the_table_grows")) {
        let keys = if mode == HtmMode::Absent { rng::tries(1_500, 50_000) } else { 400 };
        let (lost, checked) = lost_during_growth(mode, keys, |worker, table, key| worker.get(table, key).is_ok());
        assert_eq!((lost, checked), (0, Ok(())));
    }
}

#[test]
fn no_key_is_lost_while_chains_are_compacted() {
    let seed = rng::seed("no_key_is_lost_while_chains_are_compacted");
    for mode in modes(seed) {
        let changes = if mode == HtmMode::Absent { rng::tries(1_500, 50_000) } else { 300 };
        let world = World::new(mode);
        let mut worker = world.worker();
        worker.local.enter();
        let table = worker.table::<Word8>(&world, 0);
        worker.local.leave();
        // Keys that are not counted leave the table at four buckets, so that chains are long.
        let keys = (0..).filter(|&n| !Word8::hash(n).is_counted()).take(changes as usize);
        let keys: Vec<Owned> = keys.map(Owned::Word8).collect();
        // A queue of 40: the place of the oldest is taken by one of the youngest. Keys `removing .. inserted`
        // are there.
        let (inserted, removing) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut worker = world.worker();
                let mut queue = std::collections::VecDeque::new();
                for (n, key) in keys.iter().enumerate() {
                    worker.local.enter();
                    let record = worker.record(key);
                    assert_eq!(worker.insert(&table, key, record), Inserted::Linked);
                    inserted.store(n as u64 + 1, Ordering::SeqCst);
                    queue.push_back((key, record));
                    if queue.len() > 40
                        && let Some((key, record)) = queue.pop_front()
                    {
                        removing.fetch_add(1, Ordering::SeqCst);
                        assert!(worker.remove(&table, key, record));
                        worker.retire(record);
                    }
                    worker.local.leave();
                }
            });
            scope.spawn(|| {
                let (mut worker, mut rng) = (world.worker(), Rng::from_seed(seed));
                loop {
                    let end = inserted.load(Ordering::SeqCst);
                    if end == changes {
                        break;
                    }
                    let n = end.saturating_sub(rng.range(1, 10));
                    worker.local.enter();
                    let found = worker.get(&table, &keys[n as usize]).is_ok();
                    worker.local.leave();
                    let begin = removing.load(Ordering::SeqCst);
                    assert!(found || n < begin || n >= end, "key {n} of {begin}..{end}");
                }
            });
            // A walk visits what is there from before it until after it.
            scope.spawn(|| {
                let mut worker = world.worker();
                loop {
                    let end = inserted.load(Ordering::SeqCst);
                    if end == changes {
                        break;
                    }
                    let (mut next, mut records) = (0, Vec::new());
                    worker.local.enter();
                    while table.walk(&mut next, 1, worker.local.pinned(), &mut records) {}
                    // SAFETY: online since they were found.
                    let visited: HashSet<u64> = records.iter().map(|&record| unsafe { Word8::of(record) }).collect();
                    worker.local.leave();
                    for n in removing.load(Ordering::SeqCst)..end {
                        let Owned::Word8(key) = keys[n as usize] else { unreachable!("keys are words") };
                        assert!(visited.contains(&key), "the walk missed key {n}, there until {end}");
                    }
                }
            });
        });
        assert_eq!(table.directory.extent().buckets(), table.directory.base());
        table.check().expect("the table is sound");
    }
}

#[test]
fn canary_a_reader_that_does_not_validate_its_misses_loses_keys() {
    let careless = |worker: &Worker, table: &Hash<Word8>, key: &Owned| {
        assert!(worker.local.is_online());
        let probe = Word8::probe(key.key());
        let hash = Word8::hash(probe);
        let bucket: &Bucket = table.home(hash);
        thread::yield_now();
        // SAFETY: online.
        unsafe { bucket.find(hash, |record| Word8::matches(record, probe)) }.is_some()
    };
    // Without a limit: a reader may come too late for most of the changes.
    let caught = (1..).any(|seed| {
        let mode = HtmMode::Emulated(Emulation { seed, ..Emulation::default() });
        lost_during_growth(mode, 400, careless).0 > 0
    });
    assert!(caught, "the test above would not notice lost keys");
}

#[test]
fn a_valid_node_version_saw_every_finished_change() {
    for mode in modes(rng::seed("a_valid_node_version_saw_every_finished_change")) {
        let rounds = if mode == HtmMode::Absent { 500 } else { 60 };
        let world = World::new(mode);
        let mut worker = world.worker();
        worker.local.enter();
        let table = worker.table::<Word8>(&world, 0);
        worker.local.leave();
        let key = Owned::Word8(u64::MAX);
        // Rounds whose insert may begin, has begun, has ended; and whose every change has ended.
        let [asked, started, finished, idle] = [const { AtomicU64::new(0) }; 4];
        let wait_for = |word: &AtomicU64, round: u64| {
            while word.load(Ordering::SeqCst) < round {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut worker = world.worker();
                for round in 1..=rounds {
                    wait_for(&asked, round);
                    worker.local.enter();
                    let record = worker.record(&key);
                    started.store(round, Ordering::SeqCst);
                    assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
                    finished.store(round, Ordering::SeqCst);
                    assert!(worker.remove(&table, &key, record));
                    worker.retire(record);
                    // The table grows, so that the key's bucket is another one by and by.
                    for other in (0..4).map(|n| Owned::Word8(round * 4 + n)) {
                        let record = worker.record(&other);
                        assert_eq!(worker.insert(&table, &other, record), Inserted::Linked);
                    }
                    worker.local.leave();
                    idle.store(round, Ordering::SeqCst);
                }
            });
            // A reader whose node version is older than each insert.
            scope.spawn(|| {
                let mut worker = world.worker();
                for round in 1..=rounds {
                    wait_for(&idle, round - 1);
                    worker.local.enter();
                    let node_version = worker.absent(&table, &key);
                    assert!(still_valid(&node_version));
                    asked.store(round, Ordering::SeqCst);
                    wait_for(&finished, round);
                    assert!(!still_valid(&node_version), "round {round}");
                    worker.local.leave();
                }
            });
            // A reader that comes at any time.
            scope.spawn(|| {
                let mut worker = world.worker();
                while idle.load(Ordering::SeqCst) < rounds {
                    worker.local.enter();
                    if let Err(node_version) = worker.get(&table, &key) {
                        let first = started.load(Ordering::SeqCst);
                        thread::yield_now();
                        let last = finished.load(Ordering::SeqCst);
                        assert!(last <= first || !still_valid(&node_version), "{first} {last}");
                    }
                    worker.local.leave();
                }
            });
        });
        table.check().expect("the table is sound");
    }
}

#[test]
fn of_many_inserters_of_a_key_one_wins() {
    for mode in modes(rng::seed("of_many_inserters_of_a_key_one_wins")) {
        let keys = if mode == HtmMode::Absent { 10_000 } else { 150 };
        let world = World::new(mode);
        let mut worker = world.worker();
        let table = worker.table::<Word16>(&world, 0);
        let wins = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut worker = world.worker();
                    for n in 0..keys {
                        let key = Owned::new(KeyClass::Word16, n);
                        worker.local.enter();
                        let record = worker.record(&key);
                        let linked = match worker.insert(&table, &key, record) {
                            Inserted::Linked => record,
                            Inserted::Exists(other) => other,
                            Inserted::Refused => unreachable!("nobody refuses"),
                        };
                        wins.fetch_add(u64::from(linked == record), Ordering::Relaxed);
                        assert_eq!(worker.get(&table, &key), Ok(linked));
                        worker.local.leave();
                    }
                });
            }
        });
        assert_eq!(wins.into_inner(), keys);
        table.check().expect("the table is sound");
    }
}

#[test]
fn churn_needs_no_more_memory() {
    let seed = rng::seed("churn_needs_no_more_memory");
    let mut rng = Rng::from_seed(seed);
    for capacity in [0, 3000] {
        let world = World::new(HtmMode::Absent);
        let mut worker = world.worker();
        worker.local.enter();
        let table = worker.table::<Word8>(&world, capacity);
        let mut live: Vec<(Owned, RecordPtr)> = Vec::new();
        let mut next = 0;
        let mut churn = |worker: &mut Worker, rounds: usize| {
            for _ in 0..rounds {
                while live.len() < 3000 {
                    next += 1;
                    let key = Owned::Word8(next);
                    let record = worker.record(&key);
                    assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
                    live.push((key, record));
                }
                for _ in 0..300 {
                    let (key, record) = live.swap_remove(rng.below(live.len() as u64) as usize);
                    assert!(worker.remove(&table, &key, record));
                    worker.retire(record);
                }
                worker.local.leave();
                worker.local.enter();
            }
        };
        churn(&mut worker, 20);
        let before = (world.memory.in_use_bytes(), table.directory.extent().buckets());
        churn(&mut worker, 200);
        let after = (world.memory.in_use_bytes(), table.directory.extent().buckets());
        // The number counted wavers, and with it where growth stops.
        assert!(after.1 <= before.1 + before.1 / 4, "buckets: {before:?} {after:?}");
        assert!(after.0 <= before.0 + before.0 / 4, "bytes: {before:?} {after:?}");
        table.check().expect("the table is sound");
    }
}

#[test]
fn all_memory_comes_back() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    worker.local.enter();
    let bytes = world.memory.in_use_bytes();
    let table = worker.table::<Word8>(&world, 0);
    let mut records = Vec::new();
    for n in 0..5000 {
        let key = Owned::Word8(n);
        let record = worker.record(&key);
        assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
        records.push(record);
    }
    // SAFETY: no other thread uses it.
    unsafe { table.dispose(&mut worker.local) };
    records.into_iter().for_each(|record| worker.retire(record));
    worker.local.leave();
    worker.local.collect();
    assert_eq!(world.memory.in_use_bytes(), bytes);
}

#[test]
fn out_of_memory_changes_nothing() {
    let options = Options { workers_max: 2, huge_pages: false, limit_bytes: Some(64 << 10), ..Options::default() };
    let world = World { memory: Memory::new(options).expect("memory"), ..World::new(HtmMode::Absent) };
    let mut worker = world.worker();
    worker.local.enter();
    let table = worker.table::<Word8>(&world, 0);
    let mut failed = 0;
    // Records come from elsewhere, so that it is the table that runs out.
    let records: Vec<[u64; 2]> = (0..20_000).map(|n| [n, 0]).collect();
    for words in &records {
        // SAFETY: key words of class Word8.
        let record = unsafe { RecordPtr::from_raw(std::ptr::NonNull::from(words).cast()) };
        let node_version = worker.absent(&table, &Owned::Word8(words[0]));
        if table.insert(&mut worker.cx(), words[0], record, &mut Unobserved).is_err() {
            failed += 1;
            assert!(still_valid(&node_version));
        }
    }
    assert!(failed > 0);
    assert_eq!(table.statistics().records, records.len() - failed);
    table.check().expect("the table is sound");
}

/// Keys as benchmarks make them, and what hash functions stumble over.
fn patterns() -> Vec<(&'static str, Vec<Owned>)> {
    let words = |f: fn(u64) -> u64| (0..30_000).map(|n| Owned::Word8(f(n))).collect();
    let pairs = |f: fn(u64) -> (u64, u64)| {
        (0..30_000).map(f).map(|(high, low)| Owned::Word16(u128::from(high) << 64 | u128::from(low))).collect()
    };
    vec![
        ("sequential", words(|n| n)),
        ("even", words(|n| n << 1)),
        ("multiples of 2^32", words(|n| n << 32)),
        ("multiples of 2^48", words(|n| (n % (1 << 15)) << 48)),
        ("multiples of 1000", words(|n| n * 1000)),
        ("warehouse, item", words(|n| (n / 1000) << 32 | (n % 1000))),
        ("warehouse, district, order", words(|n| (n / 3000) << 40 | (n / 300 % 10) << 32 | (n % 300))),
        (
            "warehouse, district, order, line",
            words(|n| (n / 10000) << 48 | (n / 1000 % 10) << 40 | (n / 10 % 100) << 8 | (n % 10)),
        ),
        ("descending", words(|n| !n)),
        ("sequential pairs", pairs(|n| (0, n))),
        ("high halves", pairs(|n| (n, 0))),
        ("grid", pairs(|n| (n / 173, n % 173))),
        ("equal halves", pairs(|n| (n, n))),
        ("grid of high bits", pairs(|n| ((n / 173) << 40, (n % 173) << 48))),
        ("short text", (0..30_000).map(|n| Owned::Bytes(n.to_string().into_bytes())).collect()),
        ("long text", (0..30_000).map(|n| Owned::Bytes(format!("{:?}", [n, n / 7, n % 11]).into_bytes())).collect()),
        (
            "numbers",
            (0..30_000u64).map(|n| Owned::Bytes([n / 100, n % 100, 0].map(u64::to_be_bytes).concat())).collect(),
        ),
        ("zeros", (0..3_000).map(|n| Owned::Bytes(vec![0; n])).collect()),
    ]
}

/// Overflowed keys in per mille, and tags that agree with another of the same bucket in per mille, at `LOAD`.
fn quality(keys: &[Owned], base: u64, level: u32) -> (u64, u64) {
    let hash = |key: &Owned| match key.key() {
        key @ Key::Word8(_) => Word8::hash(Word8::probe(key)),
        key @ Key::Word16(_) => Word16::hash(Word16::probe(key)),
        key @ Key::Bytes(_) => Bytes::hash(Bytes::probe(key)),
    };
    let mut buckets: HashMap<u64, Vec<u64>> = HashMap::new();
    for hash in keys.iter().map(hash) {
        let home = hash.spread(base) + base * (hash.levels() & ((1 << level) - 1));
        buckets.entry(home).or_default().push(hash.tag());
    }
    let over: usize = buckets.values().map(|tags| tags.len().saturating_sub(super::bucket::BUCKET_SLOTS)).sum();
    let twins: usize = buckets.values().map(|tags| tags.len() - tags.iter().collect::<HashSet<_>>().len()).sum();
    let mille = |n: usize| n as u64 * 1000 / keys.len() as u64;
    (mille(over), mille(twins))
}

#[test]
fn composite_keys_spread_evenly() {
    // Poisson with mean 3: 4.4 % of keys lie beyond the fifth of their bucket.
    for (name, keys) in patterns() {
        let buckets = keys.len() as u64 / LOAD;
        for level in [0, 10, 3, 1, 6].into_iter().take(rng::tries(2, 5) as usize) {
            let (over, twins) = quality(&keys, (buckets >> level).max(1), level);
            println!("{name}: level {level}: over {over}, twins {twins}");
            assert!(over <= 60, "{name}: {over} of 1000 keys overflow at level {level}");
            let expected = if level > 6 { 60 } else { 4 };
            assert!(twins <= expected, "{name}: {twins} of 1000 tags say nothing at level {level}");
        }
    }
}

#[test]
fn chains_are_short_in_a_grown_table() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    worker.local.enter();
    for capacity in [0, 20_000] {
        let table = worker.table::<Word8>(&world, capacity);
        for n in 0..20_000 {
            let key = Owned::Word8((n / 100) << 32 | (n % 100));
            let record = worker.record(&key);
            assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
        }
        let (statistics, buckets) = (table.statistics(), table.directory.extent().buckets() as usize);
        let chained = statistics.leaves - buckets;
        // Halfway between two doublings, unsplit buckets are twice as full as split ones.
        assert!(chained * 100 <= buckets * 15, "{chained} overflow lines beside {buckets} buckets");
        assert!(statistics.height <= 3, "a chain of {} lines", statistics.height);
        assert!((14_000..26_000).contains(&table.len_estimate()));
    }
}

#[test]
fn a_counted_key_is_one_in_sixteen() {
    let counted = (0..160_000).filter(|&n| Word8::hash(n).is_counted()).count();
    assert!((9_000..11_000).contains(&counted), "{counted}");
    assert_eq!(HashValue::SAMPLING, 16);
}

#[test]
fn canaries_of_the_checker() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    worker.local.enter();
    let table = worker.table::<Word8>(&world, 0);
    for n in 0..40 {
        let key = Owned::Word8(n);
        let record = worker.record(&key);
        assert_eq!(worker.insert(&table, &key, record), Inserted::Linked);
    }
    assert_eq!(table.check(), Ok(()));
    let lines = || {
        (0..table.directory.extent().buckets()).map(|index| {
            // SAFETY: below the extent; no other thread uses the table.
            unsafe { table.directory.bucket(index).lines() }.next().expect("a bucket is a line")
        })
    };
    let full = lines().find(|line| !load(&line.slots[2]).is_empty()).expect("a bucket with three records");
    let complains = |word: &AtomicU64, value: u64, about: &str| {
        let before = word.swap(value, Ordering::Relaxed);
        let complaint = table.check().expect_err(about);
        assert!(complaint.contains(about), "{complaint}");
        word.store(before, Ordering::Relaxed);
        assert_eq!(table.check(), Ok(()));
    };
    complains(&full.slots[0], Slot::EMPTY.0, "behind an empty slot");
    complains(&full.slots[0], load(&full.slots[0]).0 ^ 1 << 50, "wrong tag");
    complains(&full.slots[0], load(&full.slots[1]).0, "twice");
    let stranger = lines().find(|line| !std::ptr::eq(line.slots, full.slots) && !load(&line.slots[0]).is_empty());
    complains(&full.slots[0], load(&stranger.expect("two buckets in use").slots[0]).0, "elsewhere");
    // SAFETY: below the extent.
    let word = &unsafe { table.directory.bucket(0) }.word;
    complains(word, word.load(Ordering::Relaxed) | 1, "its word");
}
