//! Hash indexes through the public interface: agreement with the standard library's map under threads, and
//! what they cost.

use seriatim_base::clock::Instant;
use seriatim_base::{Rng, rng, thread};
use seriatim_catalog::{Key, KeyClass, Organization};
use seriatim_htm::{Agent, Budget, Emulation, Htm, HtmMode, Outside};
use seriatim_memory::{Local, Memory, Options};
use seriatim_store::{Index, Inserted, RecordPtr, StoreCx, Unobserved, write_key};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

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

    fn record(&mut self, key: u64) -> RecordPtr {
        let memory = self.local.allocate(&mut self.outside, RECORD_BYTES).expect("memory");
        // SAFETY: private memory with room for the key words.
        unsafe {
            let record = RecordPtr::from_raw(memory);
            write_key(record, Key::Word8(key), None);
            record
        }
    }

    fn insert(&mut self, index: &Index, key: u64, record: RecordPtr) -> Inserted {
        index.insert(&mut self.cx(), Key::Word8(key), record, &mut Unobserved).expect("memory")
    }

    fn remove(&mut self, index: &Index, key: u64, record: RecordPtr) {
        assert!(index.remove(&mut self.cx(), Key::Word8(key), record, &mut Unobserved));
        let memory = NonNull::new(record.as_ptr()).expect("a record has an address");
        // SAFETY: allocated by `record` with this size, and unlinked.
        unsafe { self.local.retire(memory, RECORD_BYTES) }
    }
}

/// One line, as a small row would take.
const RECORD_BYTES: usize = 64;

/// Each thread changes keys of its own, which it knows, and reads those of all.
fn threads_agree_with_their_maps(mode: HtmMode, threads: u64, operations: u64, seed: u64) {
    let memory = Memory::new(Options { workers_max: 8, huge_pages: false, ..Options::default() }).expect("memory");
    let htm = Htm::new(mode).expect("these modes are everywhere");
    let mut worker = Worker::new(&memory, &htm);
    worker.local.enter();
    let index = Index::new(Organization::Hash, KeyClass::Word8, 100, &htm, &mut worker.cx()).expect("memory");
    let (linked, live) = (AtomicU64::new(0), AtomicU64::new(0));
    worker.local.leave();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (memory, htm, index, linked, live) = (&memory, &htm, &index, &linked, &live);
            scope.spawn(move || {
                let mut rng = Rng::from_seed(seed + thread);
                let mut worker = Worker::new(memory, htm);
                let mut mine: HashMap<u64, RecordPtr> = HashMap::new();
                for operation in 0..operations {
                    worker.local.enter();
                    let key = rng.below(operations / 2) * threads + thread;
                    assert_eq!(index.get(Key::Word8(key), worker.local.pinned()).ok(), mine.get(&key).copied());
                    let others = rng.below(operations / 2 * threads);
                    if let Ok(record) = index.get(Key::Word8(others), worker.local.pinned()) {
                        // SAFETY: online since it was found.
                        assert_eq!(unsafe { seriatim_store::read_key(record, KeyClass::Word8) }, Key::Word8(others));
                    }
                    let growing = operation < operations * 3 / 4;
                    match mine.remove(&key) {
                        Some(record) if !growing || rng.percent(30) => worker.remove(index, key, record),
                        Some(record) => {
                            let stranger = worker.record(key);
                            assert_eq!(worker.insert(index, key, stranger), Inserted::Exists(record));
                            mine.insert(key, record);
                        }
                        None => {
                            let record = worker.record(key);
                            assert_eq!(worker.insert(index, key, record), Inserted::Linked);
                            linked.fetch_add(1, Ordering::Relaxed);
                            mine.insert(key, record);
                        }
                    }
                    worker.local.leave();
                }
                live.fetch_add(mine.len() as u64, Ordering::Relaxed);
            });
        }
    });
    // SAFETY: the threads have ended.
    unsafe {
        index.check().expect("the index is sound");
        assert_eq!(index.statistics().records as u64, live.into_inner());
        index.dispose(&mut worker.local);
    }
    assert!(linked.into_inner() > operations / 4);
}

#[test]
fn threads_agree_with_their_maps_in_every_mode() {
    let seed = rng::seed("threads_agree_with_their_maps_in_every_mode");
    let emulated = HtmMode::Emulated(Emulation { seed, abort_one_in: 8, ..Emulation::default() });
    for (mode, threads, operations) in [(HtmMode::Absent, 4, 40_000), (emulated, 3, 3_000)] {
        threads_agree_with_their_maps(mode, threads, operations, seed);
    }
}

/// Nanoseconds for each call of `f`, of which there are `calls`.
fn time(calls: usize, f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Run with `cargo test --release -p seriatim-store --test hash -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn costs() {
    let seed = 1;
    println!("seed {seed}; ns an operation, one thread, 64-byte records, keys in random order");
    for records in [1_000, 100_000, 1_000_000usize] {
        let memory = Memory::new(Options::default()).expect("memory");
        memory.prefault(records * 128 + (8 << 20)).expect("memory");
        let htm = Htm::new(HtmMode::Absent).expect("absent");
        let mut worker = Worker::new(&memory, &htm);
        worker.local.enter();
        let mut rng = Rng::from_seed(seed);
        // (warehouse, item), as TPC-C's stock.
        let key = |n: usize| ((n / 1000) as u64) << 32 | (n % 1000) as u64;
        let mut keys: Vec<u64> = (0..records).map(key).collect();
        rng.shuffle(&mut keys);
        let linked: Vec<(u64, RecordPtr)> = keys.iter().map(|&key| (key, worker.record(key))).collect();
        let absent: Vec<u64> = keys.iter().map(|&key| key | 1 << 60).collect();
        rng.shuffle(&mut keys);
        println!("{records} records");
        for (name, capacity) in [("presized", records), ("grown", 0)] {
            let index = Index::new(Organization::Hash, KeyClass::Word8, capacity, &htm, &mut worker.cx());
            let index = index.expect("memory");
            let insert = time(records, || {
                for &(key, record) in &linked {
                    assert_eq!(worker.insert(&index, key, record), Inserted::Linked);
                }
            });
            let pin = worker.local.pinned();
            let rounds = (2_000_000 / records).max(1);
            let calls = rounds * records;
            let repeat = |f: &dyn Fn(&[u64])| time(calls, || (0..rounds).for_each(|_| f(&keys)));
            let found = |keys: &[u64]| keys.iter().filter(|&&key| index.get(Key::Word8(key), pin).is_ok()).count();
            let hit = repeat(&|keys| assert_eq!(found(keys), records));
            let miss = time(calls, || (0..rounds).for_each(|_| assert_eq!(found(&absent), 0)));
            // Each lookup's key is only known once the one before has answered: latency, not throughput.
            let dependent = repeat(&|keys| {
                let mut last = 0;
                for &key in keys {
                    let record = index.get(Key::Word8(key ^ last), pin).expect("linked");
                    last = std::hint::black_box(record.addr() as u64) >> 63;
                }
            });
            let waves = repeat(&|keys| {
                for wave in keys.chunks(10) {
                    let mut hints = [None; 10];
                    for (hint, &key) in hints.iter_mut().zip(wave) {
                        *hint = index.prefetch_bucket(Key::Word8(key));
                    }
                    for record in hints.iter().flatten().filter_map(|&hint| {
                        // SAFETY: the index is still there.
                        unsafe { hint.guess(pin) }
                    }) {
                        seriatim_base::prefetch::line(record.as_ptr());
                    }
                    assert_eq!(found(wave), wave.len());
                }
            });
            let remove = time(records, || {
                for &(key, record) in &linked {
                    assert!(index.remove(&mut worker.cx(), Key::Word8(key), record, &mut Unobserved));
                }
            });
            println!(
                "  {name:8} insert {insert:6.1}  hit {hit:6.1}  one after another {dependent:6.1}  in waves of ten \
                 {waves:6.1}  miss {miss:6.1}  remove {remove:6.1}"
            );
            // SAFETY: no other thread uses it.
            unsafe { index.dispose(&mut worker.local) };
        }
    }
}
