//! The bounded pool of workers: one per open transaction.
//!
//! A session's lease is sticky: its next transaction takes the same worker again, by one exchange. In between, another
//! session may steal the worker, if it finds no other that is free. It then has a lease of that worker, too.
//!
//! Access rule: a slot's worker and its writer are touched only by the thread that has its `lock`.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Thread};
use seriatim_base::{CacheAligned, TryLock, WaitingList};
use seriatim_htm::RegionStatistics;
use seriatim_redo::Writer;
use seriatim_txn::{Environment, Priority, Worker};

use crate::cancel::Deadline;
use crate::error::MemoryHeld;
use crate::held_back::{Bound, HeldBack, Holder};
use crate::parking::Parking;
use crate::protocol::OpenProtocol;
use crate::statistics::{Counters, Statistics};

/// How long a session waits for a worker before it reports that all are busy.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How long a session that waits for a worker sleeps at a time. [`Pool::give_back`] may miss a session that begins to
/// wait at that moment. By design that session finds the worker after at most this time.
const WAIT_SLICE: Duration = Duration::from_millis(10);

pub(crate) struct Pool {
    slots: Box<[CacheAligned<Slot>]>,
    /// Sessions that wait for a worker.
    waiting: WaitingList<Thread>,
    /// The explicit transaction of each slot, if there is one. It is kept apart from the slots because the ticker reads
    /// it.
    parked: Box<[Mutex<Option<Arc<Parking>>>]>,
    watched: Mutex<Vec<Watched>>,
    overdue: AtomicUsize,
}

/// The ticker's view of a slot.
#[derive(Clone, Copy, Default)]
struct Watched {
    leases: u32,
    /// When the ticker first saw the open transaction.
    since: u64,
    /// The memory that it holds back, if it is a snapshot or explicit.
    held_back: Option<HeldBack>,
}

struct Slot {
    number: usize,
    lock: TryLock,
    worker: UnsafeCell<Option<Box<dyn Worker>>>,
    /// Its end of the log, if the database has one.
    writer: UnsafeCell<Option<Writer>>,
    /// Held by a helper that collects the garbage of an idle worker.
    helping: Mutex<()>,
    counters: Counters,
    /// Published periodically, for readers that find the worker busy.
    regions: Mutex<RegionStatistics>,
    leases: AtomicU32,
    /// The value of `leases` at which a snapshot took this slot, if one did.
    reading: AtomicU32,
    /// The deadline of the session that last had a snapshot here. The address identifies it.
    reader: Mutex<Deadline>,
    reader_address: AtomicUsize,
    /// The priority drawn last; written by the holder of the slot.
    drawn: AtomicU64,
}

// SAFETY: the cells are touched under the access rule above; workers are Send.
unsafe impl Sync for Slot {}

impl Slot {
    /// Makes the worker of a locked slot if there is none yet. Returns `false` if none can be made.
    ///
    /// # Safety
    /// The access rule: the caller has locked the slot.
    #[inline]
    unsafe fn has_worker(&self, protocol: &dyn OpenProtocol, environment: &Environment) -> bool {
        // SAFETY: as the caller promises.
        let worker = unsafe { &mut *self.worker.get() };
        if worker.is_none() {
            *worker = environment.core().map(|core| protocol.worker(core));
        }
        worker.is_some()
    }
}

/// Deleted records that a worker unlinks after each transaction, at most. So the transactions after a large delete
/// share its cost. Idle workers unlink everything.
const CHORES_MAX: usize = 64;

/// A worker taken from the pool: its slot, which never moves. Give it back with [`Pool::give_back`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease(NonNull<Slot>);

/// A transaction that is open, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    slot: usize,
    leases: u32,
}

impl Pool {
    /// A pool of `workers`, each with its end of the log if there is one.
    pub(crate) fn new(workers: usize, writers: Option<Vec<Writer>>) -> Pool {
        let mut writers = writers.map(Vec::into_iter);
        let mut slot = |number| {
            CacheAligned(Slot {
                number,
                lock: TryLock::default(),
                worker: UnsafeCell::new(None),
                writer: UnsafeCell::new(writers.as_mut().and_then(Iterator::next)),
                helping: Mutex::default(),
                counters: Counters::default(),
                regions: Mutex::default(),
                leases: AtomicU32::new(0),
                reading: AtomicU32::new(u32::MAX),
                reader: Mutex::default(),
                reader_address: AtomicUsize::new(0),
                drawn: AtomicU64::new(0),
            })
        };
        Pool {
            slots: (0..workers).map(&mut slot).collect(),
            waiting: WaitingList::default(),
            parked: (0..workers).map(|_| Mutex::default()).collect(),
            watched: Mutex::new(vec![Watched::default(); workers]),
            overdue: AtomicUsize::new(0),
        }
    }

    /// Notes the explicit transaction of this slot, which may be ended while it is parked.
    pub(crate) fn park(&self, slot: usize, parking: Arc<Parking>) {
        *self.parked[slot].lock().unwrap_or_else(PoisonError::into_inner) = Some(parking);
    }

    /// The explicit transaction of this slot ends in a call.
    pub(crate) fn unpark(&self, slot: usize) {
        self.parked[slot].lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The transaction of this slot is a snapshot with this deadline.
    #[inline]
    pub(crate) fn reads(&self, lease: Lease, deadline: &Deadline) {
        let slot = self.slot(lease);
        if !deadline.is_of(slot.reader_address.load(Ordering::Relaxed)) {
            *slot.reader.lock().unwrap_or_else(PoisonError::into_inner) = deadline.clone();
            slot.reader_address.store(deadline.address(), Ordering::Relaxed);
        }
        // ORDERING: pairs with the acquire in `reader_of`, which then finds this session's deadline.
        slot.reading.store(slot.leases.load(Ordering::Relaxed), Ordering::Release);
    }

    /// The deadline of the snapshot that has had this slot since the ticker saw this many leases, if one has.
    fn reader_of(&self, slot: usize, leases: u32) -> Option<Deadline> {
        let slot = &self.slots[slot];
        // ORDERING: pairs with the release in `reads`.
        let is_read = slot.lock.is_locked() && slot.reading.load(Ordering::Acquire) == leases;
        is_read.then(|| slot.reader.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// As [`Pool::reader_of`], also for an explicit transaction.
    fn holder_of(&self, slot: usize, leases: u32) -> Option<Holder> {
        let explicit =
            || self.parked[slot].lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|it| it.holder());
        self.reader_of(slot, leases).map(|deadline| Holder { deadline, wrote: 0, ends: true }).or_else(explicit)
    }

    /// Ends the snapshots and the parked transactions that hold back more memory than the bound permits. `measure`
    /// returns how many bytes rows and indexes do not need, and how many are free. It is called only if one is open.
    pub(crate) fn end_holders(&self, bound: Bound, measure: impl FnOnce() -> (usize, usize)) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<(usize, Holder)> =
            (0..watched.len()).filter_map(|slot| Some((slot, self.holder_of(slot, watched[slot].leases)?))).collect();
        if open.is_empty() {
            return;
        }
        let (waste, free) = measure();
        let waste = waste.saturating_sub(open.iter().map(|(_, holder)| holder.wrote).sum());
        for (slot, Holder { deadline, ends, .. }) in open {
            let Watched { leases, held_back, .. } = &mut watched[slot];
            if held_back.get_or_insert_with(|| bound.begin(waste, free)).exceeds(waste) && ends {
                // ORDERING: after the deadline was read, and before the worker is given back, see `Deadline::end_if`.
                deadline.end_if(|| self.slots[slot].leases.load(Ordering::Relaxed) == *leases);
            }
        }
    }

    /// Ends the explicit transactions that are parked and over their deadline. Counts those that have been open for
    /// longer than `age` and cannot be ended. `leave_gate` is called for each ended transaction that excluded chains.
    pub(crate) fn reap(&self, now: u64, age: u64, leave_gate: impl Fn()) {
        for slot in 0..self.slots.len() {
            let mut place = self.parked[slot].lock().unwrap_or_else(PoisonError::into_inner);
            let Some(parking) = place.clone() else { continue };
            let Some(ending) = parking.seize(now) else { continue };
            place.take();
            drop(place);
            // SAFETY: the access rules: the slot was locked for the transaction, and the transaction seized by us.
            let Some(worker) = (unsafe { &mut *self.slots[slot].worker.get() }) else { continue };
            self.slots[slot].counters.conflict_aborted(parking.cause());
            worker.abort();
            parking.release();
            self.give_back(Lease(NonNull::from(&*self.slots[slot])));
            if parking.gated {
                leave_gate();
            }
            drop(ending);
        }
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut overdue = 0;
        for (slot, watched) in self.slots.iter().zip(watched.iter_mut()) {
            let leases = slot.leases.load(Ordering::Relaxed);
            if !slot.lock.is_locked() || leases != watched.leases {
                *watched = Watched { leases, since: now, held_back: None };
            }
            overdue += usize::from(now.saturating_sub(watched.since) > age);
        }
        self.overdue.store(overdue, Ordering::Relaxed);
    }

    /// The oldest open transaction that the ticker has seen, except that of slot `own`, if it is old enough to report.
    #[cold]
    pub(crate) fn holds_memory(&self, now: u64, own: Option<usize>) -> Option<MemoryHeld> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |&(slot, watched): &(usize, &Watched)| {
            let Slot { lock, leases, .. } = &*self.slots[slot];
            Some(slot) != own && lock.is_locked() && leases.load(Ordering::Relaxed) == watched.leases
        };
        let (worker, oldest) = watched.iter().enumerate().filter(is_open).min_by_key(|(_, watched)| watched.since)?;
        let age = Duration::from_nanos(now.saturating_sub(oldest.since));
        drop(watched);
        let snapshot =
            self.parked[worker].lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|it| it.snapshot);
        (age >= MemoryHeld::AGE_MIN).then(|| MemoryHeld { snapshot: snapshot.unwrap_or(false), worker, age })
    }

    #[inline]
    pub(crate) fn counters(&self, lease: Lease) -> &Counters {
        &self.slot(lease).counters
    }

    /// The priority of a transaction whose first attempt has leased this slot, at this time of the ticker.
    #[inline]
    pub(crate) fn draw_priority(&self, lease: Lease, now: u64) -> Priority {
        let Slot { number, drawn, .. } = self.slot(lease);
        let priority = Priority::from_bits(drawn.load(Ordering::Relaxed)).next(Priority::period(now), *number);
        drawn.store(priority.bits(), Ordering::Relaxed);
        priority
    }

    /// The slot of a lease of this pool.
    #[inline(always)]
    fn slot(&self, lease: Lease) -> &Slot {
        // SAFETY: a lease's slot is one of `slots`, which live as long as the pool.
        unsafe { lease.0.as_ref() }
    }

    /// The number of a lease's slot.
    #[inline]
    pub(crate) fn number(&self, lease: Lease) -> usize {
        self.slot(lease).number
    }

    /// The worker of a lease.
    #[inline(always)]
    pub(crate) fn worker(&self, lease: Lease) -> NonNull<dyn Worker> {
        // SAFETY: the access rule: the lease is the caller's.
        let worker = unsafe { &mut *self.slot(lease).worker.get() };
        NonNull::from(worker.as_deref_mut().expect("a leased slot has a worker"))
    }

    /// Its end of the log, if the database has one.
    #[inline(always)]
    pub(crate) fn writer(&self, lease: Lease) -> Option<NonNull<Writer>> {
        // SAFETY: the access rule: the lease is the caller's.
        unsafe { &mut *self.slot(lease).writer.get() }.as_mut().map(NonNull::from)
    }

    /// Takes the worker of an earlier lease of this pool again, if no other session has it.
    #[inline]
    pub(crate) fn lease_again(&self, lease: Lease) -> bool {
        self.slot(lease).lock.try_lock()
    }

    /// Takes a worker, preferably the one at `preferred`. Returns `None` if all were busy, for [`WAIT_MAX`] if `wait`
    /// is set.
    #[inline]
    pub(crate) fn lease(
        &self,
        preferred: usize,
        protocol: &dyn OpenProtocol,
        environment: &Environment,
        wait: bool,
    ) -> Option<Lease> {
        let slot = &self.slots[preferred];
        let slot = if slot.lock.try_lock() { slot } else { self.lock_any(wait)? };
        // SAFETY: the access rule: we locked the slot.
        if unsafe { slot.has_worker(protocol, environment) } {
            return Some(Lease(NonNull::from(slot)));
        }
        self.release(slot);
        None
    }

    #[cold]
    fn lock_any(&self, wait: bool) -> Option<&Slot> {
        let free = || self.slots.iter().map(|slot| &**slot).find(|slot| slot.lock.try_lock());
        if let Some(slot) = free() {
            return Some(slot);
        }
        if !wait {
            return None;
        }
        let (began, own) = (Instant::now(), self.waiting.enter(thread::current()));
        let found = loop {
            self.waiting.list(&own);
            // This thread is listed, so `release` wakes it from here on, and `give_back` mostly does.
            let found = free();
            let left = WAIT_MAX.saturating_sub(began.elapsed());
            if found.is_some() || left.is_zero() {
                break found;
            }
            thread::park_timeout(left.min(WAIT_SLICE));
        };
        let is_free = || self.slots.iter().any(|slot| !slot.lock.is_locked());
        wake(self.waiting.leave(&own, is_free));
        found
    }

    /// Gives a worker back; its transaction has ended.
    #[inline]
    pub(crate) fn give_back(&self, lease: Lease) {
        let slot = self.slot(lease);
        // SAFETY: the access rule: the lease is ours.
        let worker = unsafe { self.worker(lease).as_mut() };
        worker.collect_garbage(CHORES_MAX);
        let leases = slot.leases.load(Ordering::Relaxed).wrapping_add(1);
        slot.leases.store(leases, Ordering::Relaxed);
        if leases.is_multiple_of(1024) {
            *slot.regions.lock().unwrap_or_else(PoisonError::into_inner) = worker.core().agent.statistics();
        }
        slot.lock.unlock();
        // ORDERING: by design no fence, as each transaction would pay for it. The partner is the fence in
        // `WaitingList::list`, between a session's entry and its look at the lock. Without a fence here the load of the
        // count may pass the store, and miss a session that has found the slot locked. That session looks again after
        // `WAIT_SLICE`.
        wake(self.waiting.to_wake_if_seen());
    }

    /// Gives a worker back that had no transaction.
    pub(crate) fn give_back_unused(&self, lease: Lease) {
        self.release(self.slot(lease));
    }

    /// Releases a slot that was locked for something else than a transaction. A waiting session is not missed: this is
    /// rare enough for a fence.
    fn release(&self, slot: &Slot) {
        slot.lock.unlock();
        wake(self.waiting.to_wake());
    }

    /// Commits and conflicts of all workers until now.
    pub(crate) fn decided(&self) -> (u64, u64) {
        let decided = self.slots.iter().map(|slot| slot.counters.decided());
        decided.fold((0, 0), |sum, decided| (sum.0 + decided.0, sum.1 + decided.1))
    }

    /// Workers with an open transaction, at this moment.
    pub(crate) fn busy(&self) -> usize {
        self.slots.iter().filter(|slot| slot.lock.is_locked()).count()
    }

    /// Has every idle worker unlink its deleted records, as it would after its next transactions.
    pub(crate) fn collect_garbage(&self) {
        (0..self.slots.len()).for_each(|slot| self.collect_slot_garbage(slot));
    }

    /// As [`Pool::collect_garbage`], for workers without a transaction since the last call with `leases`. Busy workers
    /// collect their own garbage.
    pub(crate) fn collect_idle_garbage(&self, leases: &mut Vec<u32>) {
        leases.resize(self.slots.len(), 0);
        for (at, before) in leases.iter_mut().enumerate() {
            let now = self.slots[at].leases.load(Ordering::Relaxed);
            if now != 0 && now == *before {
                self.collect_slot_garbage(at);
            }
            *before = now;
        }
    }

    /// The transactions that are open now, without that of a lease. One that begins later finds what this thread stored
    /// before the call.
    pub(crate) fn open_now(&self, own: Option<Lease>) -> Vec<Open> {
        // ORDERING: the partner is the lock of a slot. If it is taken after it was found free here, or after the leases
        // were counted, the holder finds what was stored before this fence.
        fence(Ordering::SeqCst);
        let own = own.map(|lease| self.number(lease));
        let others = self.slots.iter().filter(|slot| Some(slot.number) != own);
        others.filter_map(|slot| self.open_in(slot)).collect()
    }

    fn open_in(&self, slot: &Slot) -> Option<Open> {
        if slot.lock.try_lock() {
            self.release(slot);
            return None;
        }
        Some(Open { slot: slot.number, leases: slot.leases.load(Ordering::Relaxed) })
    }

    /// Whether a transaction that was open has ended.
    pub(crate) fn has_ended(&self, open: Open) -> bool {
        let slot = &self.slots[open.slot];
        slot.leases.load(Ordering::Relaxed) != open.leases || self.open_in(slot).is_none()
    }

    /// The transaction of a lease.
    pub(crate) fn open_of(&self, lease: Lease) -> Open {
        let slot = self.slot(lease);
        Open { slot: slot.number, leases: slot.leases.load(Ordering::Relaxed) }
    }

    /// How often each worker was leased until now, and whether it is, without that of a lease.
    pub(crate) fn leases(&self, own: Lease) -> Vec<(u32, bool)> {
        let others = self.slots.iter().filter(|slot| slot.number != self.number(own));
        others.map(|slot| (slot.leases.load(Ordering::Relaxed), slot.lock.is_locked())).collect()
    }

    fn collect_slot_garbage(&self, slot: usize) {
        let Ok(_helping) = self.slots[slot].helping.try_lock() else { return };
        if self.slots[slot].lock.try_lock() {
            // SAFETY: the access rule: we locked the slot.
            if let Some(worker) = unsafe { &mut *self.slots[slot].worker.get() } {
                // Begins the grace period of everything retired or deferred, however little it is.
                worker.core().local.collect();
                worker.collect_garbage(usize::MAX);
                worker.rest();
            }
            // SAFETY: as above.
            if let Some(writer) = unsafe { &mut *self.slots[slot].writer.get() } {
                writer.rest();
            }
            self.release(&self.slots[slot]);
        }
    }

    /// Runs `f` while no transaction is open and none can be opened. `None` if one stays open for so long.
    pub(crate) fn quietly<R>(&self, wait: Duration, f: impl FnOnce() -> R) -> Option<R> {
        let began = Instant::now();
        let locked = (0..self.slots.len()).take_while(|&slot| self.lock_soon(slot, began, wait)).count();
        let result = (locked == self.slots.len()).then(f);
        self.slots[..locked].iter().for_each(|slot| self.release(slot));
        result
    }

    /// Locks a slot without a transaction. It waits for a transaction until so long after it `began`, and for a helper
    /// until it has finished.
    fn lock_soon(&self, slot: usize, began: Instant, wait: Duration) -> bool {
        while !self.slots[slot].lock.try_lock() {
            if began.elapsed() >= wait {
                let _no_helper = self.slots[slot].helping.lock().unwrap_or_else(PoisonError::into_inner);
                return self.slots[slot].lock.try_lock();
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        statistics.overdue = self.overdue.load(Ordering::Relaxed);
        for slot in &self.slots {
            slot.counters.add_to(statistics);
            if slot.lock.try_lock() {
                // SAFETY: the access rule: we locked the slot.
                if let Some(worker) = unsafe { &mut *slot.worker.get() } {
                    statistics.regions += worker.core().agent.statistics();
                }
                self.release(slot);
            } else {
                statistics.regions += *slot.regions.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Wakes this session, which waits for a worker.
#[inline]
fn wake(waiting: Option<Arc<Thread>>) {
    if let Some(waiting) = waiting {
        waiting.unpark();
    }
}

#[cfg(test)]
mod tests {
    use seriatim_txn::Mode;

    use super::*;
    use crate::{Settings, TransactError};

    #[test]
    fn a_helper_is_waited_for_and_a_transaction_is_not() {
        let engine = Settings { workers: 1, step_helpers: true, ..Settings::default() }.open().expect("in memory");
        let pool = &engine.inner().pool;
        let (began, slot) = (Instant::now(), &pool.slots[0]);
        std::thread::scope(|scope| {
            let helping = slot.helping.lock().expect("no panic");
            assert!(slot.lock.try_lock());
            let waits = scope.spawn(|| pool.quietly(WAIT_MAX, || ()));
            while began.elapsed() < WAIT_MAX + 2 * WAIT_SLICE {
                thread::sleep(WAIT_SLICE);
            }
            slot.lock.unlock();
            drop(helping);
            assert_eq!(waits.join().expect("no panic"), Some(()));
        });
        let mut holds = engine.runner();
        holds.begin(Mode::ReadWrite).expect("a worker is free");
        let refused = engine.check_structure().expect_err("a transaction is open");
        assert!(refused.contains("a transaction is open: end it"), "{refused}");
        holds.end_explicit();
    }

    #[test]
    fn a_session_that_is_woken_in_vain_waits_further_for_a_worker() {
        let engine = Settings { workers: 1, ..Settings::default() }.open().expect("in memory");
        let pool = &engine.inner().pool;
        let mut holds = engine.runner();
        holds.begin(Mode::ReadWrite).expect("a worker is free");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let began = Instant::now();
                (engine.runner().transact(|_| Ok(())).map(drop), began.elapsed())
            });
            let mut woken = 0;
            while woken < 2 * WAIT_MAX.as_millis() / WAIT_SLICE.as_millis() && !waits.is_finished() {
                if let Some(listed) = pool.waiting.to_wake() {
                    listed.unpark();
                    woken += 1;
                }
                thread::yield_now();
            }
            holds.end_explicit();
            match waits.join().expect("no panic") {
                (Ok(()), _) => {}
                (Err(TransactError::WorkersBusy), waited) => assert!(waited >= WAIT_MAX, "it waited for {waited:?}"),
                (Err(error), _) => panic!("{error}"),
            }
        });
        assert!(pool.waiting.is_empty());
    }

    #[test]
    fn whoever_frees_a_worker_wakes_a_session_that_waits_for_one() {
        let engine = Settings { workers: 1, step_helpers: true, ..Settings::default() }.open().expect("in memory");
        let pool = &engine.inner().pool;
        let waits = pool.waiting.enter(thread::current());
        let releases: [(&str, &dyn Fn()); 4] = [
            ("a transaction", &|| _ = engine.runner().transact(|_| Ok(())).expect("the worker is free")),
            ("a helper", &|| pool.collect_garbage()),
            ("a check of the structure", &|| assert_eq!(pool.quietly(WAIT_MAX, || ()), Some(()))),
            ("statistics", &|| pool.add_to(&mut Statistics::default())),
        ];
        for (who, release) in releases {
            pool.waiting.list(&waits);
            release();
            assert!(pool.waiting.to_wake().is_none(), "{who} wakes nobody");
        }
        // Whoever leaves while a worker is free wakes the next one.
        let other = pool.waiting.enter(thread::current());
        pool.waiting.list(&other);
        assert!(pool.waiting.leave(&waits, || true).is_some_and(|next| Arc::ptr_eq(&next, &other)));
        assert!(pool.waiting.leave(&other, || true).is_none() && pool.waiting.is_empty());
    }
}
