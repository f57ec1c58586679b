//! An index without transactions: lookups, in-place changes and insertions by several threads, on the [`Index`]
//! that transactions use.
//!
//! A record is `key | version | 13 words`, with 104 bytes of values. A writer locks the version first and unlocks it
//! last, in a region if there are regions ([`Way::Changes`]). A reader copies the words, and repeats that if the
//! version changed meanwhile. With [`Way::Operations`] each operation runs in one region, or under one lock for all:
//! DBX (Wang et al., EuroSys 2014, §4) has its stores in regions. Without regions that is one spin lock.
//!
//! Invariant, checked after each run: all words of a record were incremented equally often, and all records
//! together as often as operations changed one. The index has exactly the records that were loaded or inserted.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Barrier};

use seriatim_base::clock::Instant;
use seriatim_base::{Backoff, Rng, interrupt, thread};
use seriatim_catalog::{Key, KeyClass, Organization};
use seriatim_htm::{
    Access, Agent, Body, BodyError, Budget, Htm, HtmMode, NoLocks, Outside, RegionStatistics, SpinLock, Whole,
};
use seriatim_memory::{Local, Memory, OutOfMemory, Pinned};
use seriatim_store::{Index, Inserted, RecordPtr, StoreCx, Unobserved, key_bytes, read_key, write_key};

/// Words of a value: 104 bytes.
const VALUE: usize = 13;
/// Operations between two checks of the clock.
const BATCH: u64 = 256;
/// The first inserted key, which is above all loaded keys.
const INSERTED: u64 = 1 << 63;
/// Scatters consecutive keys. It is odd, so that the multiplication is a permutation.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Why there is no measurement.
pub type Failure = Box<dyn Error>;

/// The operations that run in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Changes. Lookups are optimistic, as in transactions.
    Changes,
    /// Each operation, including lookups. They share one fallback lock.
    Operations,
    /// Nothing: the only thread reads and changes records in place.
    SingleThread,
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The kind of index.
    pub organization: Organization,
    /// The number of loaded records.
    pub records: u64,
    /// The percentage of operations that read.
    pub reads: u32,
    /// The percentage of operations that insert a record. All others read a record and change it.
    pub inserts: u32,
    /// The operations that run in a region.
    pub way: Way,
    /// The back end for regions.
    pub htm: HtmMode,
    /// Threads.
    pub threads: usize,
    /// The length of the run.
    pub seconds: f64,
    /// The seed of keys and operations.
    pub seed: u64,
}

/// The results of the threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Operations.
    pub operations: u64,
    /// Operations per second, of all threads.
    pub per_second: f64,
    /// The longest time of a thread.
    pub seconds: f64,
    /// Operations that changed a record.
    pub changes: u64,
    /// Operations that inserted a record.
    pub inserts: u64,
    /// The outcomes of regions; with [`Way::Operations`] of those around operations.
    pub regions: RegionStatistics,
}

/// The version of a record and the words of its value.
#[derive(Debug)]
struct Row([AtomicU64; 1 + VALUE]);

impl Row {
    /// The row of a record.
    fn of(record: RecordPtr, _: Pinned<'_>) -> &Row {
        // SAFETY: `Client::record` makes records: the row follows the key, is aligned, and is never released.
        unsafe { &*record.as_ptr().add(key_bytes(KeyClass::Word8)).cast() }
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0[1..]
    }

    fn copy(&self) -> [u64; VALUE] {
        let mut words = self.words().iter().map(|word| word.load(Ordering::Relaxed));
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }

    /// The words of one version.
    fn read(&self) -> [u64; VALUE] {
        let mut backoff = Backoff::new();
        loop {
            // ORDERING: pairs with the release of the writer that unlocks it.
            let version = self.0[0].load(Ordering::Acquire);
            let words = self.copy();
            fence(Ordering::Acquire);
            if version & 1 == 0 && self.0[0].load(Ordering::Relaxed) == version {
                return words;
            }
            // Reaching the bound only means a long wait: the writer that holds the lock is running.
            let _ = backoff.wait();
        }
    }

    /// Increments every word under the row's lock.
    fn advance(&self) {
        for word in self.words() {
            word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// Increments every word of a row atomically for readers.
struct Advance<'r>(&'r Row);

// SAFETY: rule 3: the row is borrowed while the body runs.
unsafe impl Body for Advance<'_> {
    type Output = ();

    fn run<A: Access>(&mut self, access: &mut A) -> Result<(), BodyError> {
        let version = access.load(&self.0.0[0]);
        if version & 1 == 1 || !access.lock(&self.0.0[0], version, version + 1) {
            return Err(BodyError::Busy);
        }
        for word in self.0.words() {
            let value = access.load(word);
            access.store(word, value.wrapping_add(1));
        }
        access.store(&self.0.0[0], version + 2);
        Ok(())
    }
}

/// The state that all threads share.
pub(crate) struct Shared {
    options: Options,
    memory: Memory,
    htm: Htm,
    index: Index,
    lock: Arc<SpinLock>,
}

/// The state of one thread.
pub(crate) struct Client<'s> {
    shared: &'s Shared,
    local: Local,
    agent: Agent,
    whole: Whole,
    outside: Outside,
}

impl Client<'_> {
    pub(crate) fn new(shared: &Shared) -> Result<Client<'_>, Failure> {
        let mut local = shared.memory.register().ok_or("no worker is left")?;
        let agent = shared.htm.agent(local.worker(), Budget::default());
        let whole = Whole::new(&shared.htm, Budget::default(), &shared.lock);
        local.enter();
        Ok(Client { shared, local, agent, whole, outside: Outside::claim() })
    }

    /// An unlinked record whose words all have its key.
    fn record(&mut self, key: u64) -> Result<RecordPtr, OutOfMemory> {
        let head = key_bytes(KeyClass::Word8);
        let memory = self.local.allocate(&mut self.outside, head + size_of::<Row>())?;
        let words = std::array::from_fn(|at| AtomicU64::new(if at == 0 { 0 } else { key }));
        // SAFETY: the memory is new, large enough for key and row, aligned for both, and never released. No
        // other thread has its address.
        unsafe {
            memory.add(head).cast::<Row>().write(Row(words));
            let record = RecordPtr::from_raw(memory);
            write_key(record, Key::Word8(key), None);
            Ok(record)
        }
    }

    fn insert(&mut self, key: u64, way: Way) -> Result<(), OutOfMemory> {
        let record = self.record(key)?;
        let Client { shared, local, agent, whole, outside } = self;
        let mut link = || {
            let mut cx = StoreCx { local, agent, outside };
            shared.index.insert(&mut cx, Key::Word8(key), record, &mut Unobserved)
        };
        let inserted = match way {
            Way::Changes | Way::SingleThread => link(),
            Way::Operations => {
                let mut inserted = Ok(Inserted::Linked);
                whole.run(&mut || inserted = link());
                inserted
            }
        };
        assert_eq!(inserted?, Inserted::Linked, "keys are distinct");
        Ok(())
    }

    /// Passes the row of a key to `f`.
    fn find<R>(shared: &Shared, local: &Local, key: u64, f: impl FnOnce(&Row) -> R) -> R {
        let pin = local.pinned();
        let Ok(record) = shared.index.get(Key::Word8(key), pin) else { panic!("every key is linked") };
        f(Row::of(record, pin))
    }

    pub(crate) fn read(&mut self, key: u64) {
        let Client { shared, local, whole, .. } = self;
        match shared.options.way {
            Way::SingleThread => Client::find(shared, local, key, |row| _ = black_box(row.copy())),
            Way::Changes => Client::find(shared, local, key, |row| _ = black_box(row.read())),
            Way::Operations => {
                let mut words = [0; VALUE];
                whole.run(&mut || words = Client::find(shared, local, key, Row::copy));
                black_box(words);
            }
        }
    }

    pub(crate) fn change(&mut self, key: u64) {
        let Client { shared, local, agent, whole, outside } = self;
        match shared.options.way {
            Way::SingleThread => Client::find(shared, local, key, Row::advance),
            Way::Changes => Client::find(shared, local, key, |row| {
                black_box(row.read());
                // An error means that the row was locked for longer than the bound.
                while agent.run(outside, &NoLocks, &mut Advance(row)).is_err() {}
            }),
            Way::Operations => whole.run(&mut || Client::find(shared, local, key, Row::advance)),
        }
    }

    /// How often a record was changed.
    #[cfg(test)]
    pub(crate) fn changes(&self, key: u64) -> u64 {
        Client::find(self.shared, &self.local, key, Row::copy)[0].wrapping_sub(key)
    }

    /// Runs operations for the given time.
    fn run(&mut self, at: usize, start: &Barrier) -> Result<Measured, OutOfMemory> {
        let Options { records, reads, inserts, seconds, threads, seed, way, .. } = self.shared.options;
        let mut rng = Rng::from_seed(seed.wrapping_add(at as u64 + 1));
        let mut measured = Measured::default();
        let before = self.regions();
        start.wait();
        let began = Instant::now();
        while measured.seconds < seconds && !interrupt::is_requested() || measured.operations == 0 {
            for _ in 0..BATCH {
                match rng.below(100) as u32 {
                    dice if dice < reads => self.read(rng.below(records)),
                    dice if dice < reads + inserts => {
                        let number = measured.inserts * threads as u64 + at as u64;
                        self.insert(INSERTED | number.wrapping_mul(SCATTER) & (INSERTED - 1), way)?;
                        measured.inserts += 1;
                    }
                    _ => {
                        self.change(rng.below(records));
                        measured.changes += 1;
                    }
                }
            }
            measured.operations += BATCH;
            self.local.leave();
            self.local.enter();
            measured.seconds = began.elapsed().as_secs_f64();
        }
        measured.per_second = measured.operations as f64 / measured.seconds;
        measured.regions = self.regions().since(&before);
        Ok(measured)
    }

    fn regions(&self) -> RegionStatistics {
        match self.shared.options.way {
            Way::Changes | Way::SingleThread => self.agent.statistics(),
            Way::Operations => self.whole.statistics(),
        }
    }
}

/// Checks the records.
fn check(shared: &Shared, done: &Measured) -> Result<(), String> {
    // SAFETY: no thread uses the index any more.
    unsafe { shared.index.check()? };
    let (mut records, mut changes, mut torn) = (0, 0, 0);
    let mut look = |record: RecordPtr| {
        // SAFETY: records of the index have this key class. Their keys were set before they were linked, and
        // they are never released.
        let (key, row) = unsafe {
            let Key::Word8(key) = read_key(record, KeyClass::Word8) else { panic!("keys are words") };
            (key, &*record.as_ptr().add(key_bytes(KeyClass::Word8)).cast::<Row>())
        };
        let words = row.copy();
        records += 1;
        changes += words[0].wrapping_sub(key);
        torn += u64::from(words.iter().any(|word| *word != words[0]));
    };
    // SAFETY: as above.
    unsafe { shared.index.for_each(&mut look) };
    if torn > 0 {
        return Err(format!("{torn} records were changed in part"));
    }
    if (records, changes) != (shared.options.records + done.inserts, done.changes) {
        return Err(format!(
            "{records} records were changed {changes} times: {} were loaded, {} inserted, and {} changes made",
            shared.options.records, done.inserts, done.changes
        ));
    }
    Ok(())
}

/// Loads an index.
pub(crate) fn load(options: Options) -> Result<Shared, Failure> {
    let memory = Memory::new(seriatim_memory::Options { workers_max: options.threads + 1, ..Default::default() })?;
    let htm = Htm::new(options.htm)?;
    let mut local = memory.register().ok_or("no worker is left")?;
    let mut agent = htm.agent(local.worker(), Budget::default());
    let mut outside = Outside::claim();
    local.enter();
    let mut cx = StoreCx { local: &mut local, agent: &mut agent, outside: &mut outside };
    let index = Index::new(options.organization, KeyClass::Word8, options.records as usize, &htm, &mut cx)?;
    drop(local);
    let shared = Shared { options, memory, htm, index, lock: Arc::default() };
    let mut loader = Client::new(&shared)?;
    (0..options.records).try_for_each(|key| loader.insert(key, Way::Changes))?;
    drop(loader);
    Ok(shared)
}

/// Runs and checks the measurement. Also returns the back end of regions.
///
/// # Errors
/// The back end is unavailable, memory or a thread is refused, or the check fails.
pub fn run(options: Options) -> Result<(Measured, String), Failure> {
    let shared = load(options)?;
    let start = Barrier::new(options.threads);
    let clients = (0..options.threads).map(|_| Client::new(&shared)).collect::<Result<Vec<_>, _>>()?;
    let parts = thread::scope(|scope| {
        let one = |(at, mut client): (usize, Client<'_>)| client.run(at, &start);
        let running: Vec<_> = clients.into_iter().enumerate().map(|client| scope.spawn(move || one(client))).collect();
        running.into_iter().map(|thread| thread.join().expect("a client panicked")).collect::<Vec<_>>()
    });
    let mut done = Measured::default();
    for part in parts {
        let part = part?;
        done = Measured {
            operations: done.operations + part.operations,
            per_second: done.per_second + part.per_second,
            seconds: done.seconds.max(part.seconds),
            changes: done.changes + part.changes,
            inserts: done.inserts + part.inserts,
            regions: done.regions + part.regions,
        };
    }
    check(&shared, &done)?;
    Ok((done, shared.htm.backend().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_htm::{Emulation, detect};

    fn options(organization: Organization, way: Way, htm: HtmMode) -> Options {
        let (reads, inserts, threads, seconds) = (50, 25, 2, 0.01);
        Options { organization, records: 300, reads, inserts, way, htm, threads, seconds, seed: 1 }
    }

    #[test]
    fn every_way_runs_on_every_back_end_and_passes_the_check() {
        let rtm = detect().probe_commits.then_some(HtmMode::Rtm);
        let emulated = HtmMode::Emulated(Emulation { seed: 5, abort_one_in: 8, yields: false });
        for htm in [HtmMode::Absent, emulated].into_iter().chain(rtm) {
            for organization in [Organization::Hash, Organization::Ordered] {
                for way in [Way::Changes, Way::Operations] {
                    let (done, backend) = run(options(organization, way, htm)).expect("it is right");
                    let Measured { operations, changes, inserts, per_second, regions, .. } = done;
                    assert!(per_second > 0.0 && backend == Htm::new(htm).expect("it is here").backend().to_string());
                    assert!(changes > 0 && inserts > 0 && changes + inserts < operations, "{done:?}");
                    let begun = htm != HtmMode::Absent && (way == Way::Changes || htm == HtmMode::Rtm);
                    assert_eq!(regions.started > 0, begun, "{htm}, {way:?}: {regions:?}");
                }
            }
        }
    }

    #[test]
    fn canary_half_done_or_uncounted_changes_are_reported() {
        let shared = load(options(Organization::Ordered, Way::Changes, HtmMode::Absent)).expect("memory");
        assert_eq!(check(&shared, &Measured::default()), Ok(()));
        for (done, word) in [
            (Measured { changes: 1, ..Measured::default() }, "1 changes made"),
            (Measured { inserts: 1, ..Measured::default() }, "1 inserted"),
        ] {
            assert!(check(&shared, &done).is_err_and(|wrong| wrong.contains(word)));
        }
        let client = Client::new(&shared).expect("memory");
        Client::find(&shared, &client.local, 7, |row| row.words()[VALUE - 1].store(0, Ordering::Relaxed));
        drop(client);
        assert!(check(&shared, &Measured::default()).is_err_and(|wrong| wrong.contains("in part")));
    }
}
