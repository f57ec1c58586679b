//! The traps of hardware transactions and their canaries: variants, built here only, whose damage must show.

use super::{Words, Worker, all, emulated, increment, skip};
use crate::{Access, BodyError, Budget, FallbackLocks, Htm, HtmMode, NoLocks, Outside, SpinLock, assert_outside};
use seriatim_base::{Backoff, panic_text, thread};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SEED: u64 = 7;

/// A canary: a lock that regions do not subscribe to.
struct Unsubscribed<'a>(&'a SpinLock);

impl FallbackLocks for Unsubscribed<'_> {
    fn held(&self, _access: &mut impl Access) -> bool {
        false
    }

    fn acquire(&self, htm: &Htm) {
        self.0.acquire(htm);
    }

    fn release(&self, htm: &Htm) {
        self.0.release(htm);
    }

    fn wait_until_free(&self) -> bool {
        true
    }
}

/// A lock that regions find held and direct bodies walk through: a test with one thread holds it for another.
struct HeldByOther<'a>(&'a SpinLock);

impl FallbackLocks for HeldByOther<'_> {
    fn held(&self, access: &mut impl Access) -> bool {
        self.0.held(access)
    }

    fn acquire(&self, _htm: &Htm) {}

    fn release(&self, _htm: &Htm) {}

    fn wait_until_free(&self) -> bool {
        self.0.wait_until_free()
    }
}

/// Two workers increment a counter `times` each.
fn count(htm: &Htm, budget: Budget, times: u64) -> u64 {
    let (lock, counter) = (SpinLock::new(), AtomicU64::new(0));
    thread::scope(|scope| {
        for id in 0..2 {
            let (lock, counter) = (&lock, &counter);
            scope.spawn(move || {
                let mut worker = Worker::new(htm, id, budget);
                for _ in 0..times {
                    worker.run(lock, |access| increment(access, counter)).expect("increments are not refused");
                }
                assert_eq!(worker.statistics().begun_while_locked, 0);
            });
        }
    });
    counter.into_inner()
}

#[test]
fn trap_1_no_update_is_lost_between_regions_and_fallbacks() {
    println!("seed {SEED}");
    let times = if cfg!(miri) { 50 } else { 5_000 };
    assert_eq!(count(&emulated(SEED, 100), Budget::ONE, times), 2 * times, "one fallback in a hundred");
    for htm in all() {
        assert_eq!(count(&htm, Budget::default(), times / 10), times / 5, "{htm:?}");
    }
}

/// A direct increment, and between its load and its store that of a region.
#[test]
fn trap_1_canary_without_subscription_loses_updates() {
    let htm = emulated(SEED, 0);
    let (mut holder, mut other) = (Worker::new(&htm, 0, Budget::ONE), Worker::new(&htm, 1, Budget::ONE));
    let (lock, counter) = (SpinLock::new(), AtomicU64::new(0));
    let locks = Unsubscribed(&lock);
    let body = |access: &mut dyn Words| {
        outside_regions(access)?;
        let value = access.load(&counter);
        other.run(&locks, |access| increment(access, &counter)).expect("increments are not refused");
        access.store(&counter, value + 1);
        Ok(())
    };
    holder.run(&locks, body).expect("increments are not refused");
    assert_eq!((holder.statistics().fallback, other.statistics().committed), (1, 1));
    assert_eq!(counter.into_inner(), 1, "the canary is alive");
}

/// Makes a body fall back.
fn outside_regions(access: &mut dyn Words) -> Result<(), BodyError> {
    if access.region() { Err(BodyError::Busy) } else { Ok(()) }
}

#[test]
fn trap_1_subscription_keeps_the_updates_the_canary_loses() {
    let htm = emulated(SEED, 0);
    let (lock, counter, loaded) = (SpinLock::new(), AtomicU64::new(0), AtomicBool::new(false));
    let patient = Budget { explicit: u32::MAX, ..Budget::default() };
    thread::scope(|scope| {
        scope.spawn(|| {
            Worker::new(&htm, 0, Budget::ONE).run(&lock, |access| {
                outside_regions(access)?;
                let value = access.load(&counter);
                loaded.store(true, Ordering::Release);
                for _ in 0..100 {
                    thread::yield_now();
                }
                access.store(&counter, value + 1);
                Ok(())
            })
        });
        scope.spawn(|| {
            while !loaded.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let mut worker = Worker::new(&htm, 1, patient);
            worker.run(&lock, |access| increment(access, &counter)).expect("increments are not refused");
            assert_eq!(worker.statistics().committed, 1, "it waited and ran in a region");
        });
    });
    assert_eq!(counter.into_inner(), 2);
}

/// A direct body writes two words that are equal between bodies; between its stores a region begins, looks at
/// them, and last at the lock. With `early` it subscribes at its beginning too. Whether it saw them differ.
fn torn(early: bool) -> bool {
    let htm = emulated(SEED, 0);
    let (mut holder, mut other) = (Worker::new(&htm, 0, Budget::ONE), Worker::new(&htm, 1, Budget::ONE));
    // The region is to begin although the lock is held: the holder took it after the other had looked.
    other.agent.never_wait();
    let (lock, a, b, torn) = (SpinLock::new(), AtomicU64::new(0), AtomicU64::new(0), Cell::new(false));
    let body = |access: &mut dyn Words| {
        outside_regions(access)?;
        access.store(&a, 1);
        let look = |access: &mut dyn Words| {
            if !access.region() {
                return Ok(());
            }
            torn.set(torn.get() | (access.load(&a) != access.load(&b)));
            if access.load(&lock.0) != 0 { Err(BodyError::Busy) } else { Ok(()) }
        };
        let result = if early { other.run(&HeldByOther(&lock), look) } else { other.run(&NoLocks, look) };
        result.expect("looking is not refused");
        access.store(&b, 1);
        Ok(())
    };
    holder.run(&lock, body).expect("stores are not refused");
    let statistics = other.statistics();
    assert_eq!((statistics.started, statistics.committed), (1, 0), "late or early, subscription stops the commit");
    torn.get()
}

#[test]
fn trap_1_canary_subscribed_late_acts_on_torn_state() {
    assert!(torn(false), "the canary is alive");
}

#[test]
fn trap_1_subscribed_early_no_region_acts_on_torn_state() {
    assert!(!torn(true));
}

#[test]
fn trap_2_a_hopeless_region_falls_back_within_its_budgets() {
    println!("seed {SEED}");
    let (htm, budget, lock, word) = (emulated(SEED, 1), Budget::default(), SpinLock::new(), AtomicU64::new(0));
    for runs in 1..=20 {
        let mut worker = Worker::new(&htm, runs, budget);
        worker.run(&lock, |access| increment(access, &word)).expect("increments are not refused");
        let statistics = worker.statistics();
        assert_eq!((statistics.committed, statistics.fallback), (0, 1));
        let aborted = statistics.aborted;
        assert!(aborted.system == 2 || aborted.capacity == 10 || aborted.conflict == 100);
        assert!(aborted.system <= 2 && aborted.capacity <= 10 && aborted.conflict <= 100 && aborted.explicit == 0);
        assert_eq!(word.load(Ordering::Relaxed), u64::from(runs));
    }
}

#[test]
fn trap_2_long_bodies_have_less_of_conflicts_alone() {
    for (weight, conflict) in [(0, 100), (1, 100), (2, 50), (40, 2), (101, 0)] {
        assert_eq!(Budget::default().for_weight(weight), Budget { conflict, ..Budget::default() });
        assert_eq!(Budget::PAPER.for_weight(weight), Budget::PAPER, "the paper's is not divided");
        let most =
            Budget { conflict: u32::MAX, divided: false, capacity: u32::MAX, system: u32::MAX, explicit: u32::MAX };
        let same = Budget::SAME_MAX;
        assert_eq!(most.for_weight(weight), Budget { capacity: same, system: same, ..most }, "what stays ends");
    }
}

#[test]
fn trap_2_a_region_that_outgrows_the_processor_falls_back_after_ten() {
    let (htm, lock) = (emulated(SEED, 0), SpinLock::new());
    let words: Vec<_> = (0..600 * 8).map(|_| AtomicU64::new(0)).collect();
    let mut worker = Worker::new(&htm, 0, Budget::default());
    worker.run(&lock, |access| words.iter().try_for_each(|word| increment(access, word))).expect("not refused");
    let statistics = worker.statistics();
    assert_eq!((statistics.aborted.capacity, statistics.fallback, statistics.committed), (10, 1, 0));
    assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 1));
}

#[test]
fn trap_2_untouched_pages_and_pauses_fall_back_in_hardware() {
    let htm = match Htm::new(HtmMode::Rtm) {
        Ok(htm) => htm,
        Err(unavailable) => return skip(unavailable),
    };
    let lock = SpinLock::new();
    // Zeroed pages that no thread has touched.
    let words: Vec<u64> = vec![0; 1 << 22];
    let mut worker = Worker::new(&htm, 0, Budget::default());
    for page in 0..64 {
        // SAFETY: a `u64` is an `AtomicU64` in memory, and the vector is not used otherwise meanwhile.
        let word = unsafe { &*words.as_ptr().add(page * 8192).cast::<AtomicU64>() };
        worker.run(&lock, |access| increment(access, word)).expect("increments are not refused");
        assert_eq!(word.load(Ordering::Relaxed), 1);
    }
    let counter = AtomicU64::new(0);
    for _ in 0..64 {
        let body = |access: &mut dyn Words| {
            std::hint::spin_loop();
            increment(access, &counter)
        };
        worker.run(&lock, body).expect("increments are not refused");
    }
    assert_eq!(counter.into_inner(), 64);
}

#[test]
fn trap_3_no_region_begins_while_a_lock_is_held() {
    let (htm, lock, word, asked) = (emulated(SEED, 0), SpinLock::new(), AtomicU64::new(0), AtomicBool::new(false));
    lock.acquire(&htm);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let patient = Budget { explicit: u32::MAX, ..Budget::default() };
            let mut worker = Worker::new(&htm, 0, patient);
            asked.store(true, Ordering::Release);
            worker.run(&lock, |access| increment(access, &word)).expect("increments are not refused");
            worker.statistics()
        });
        while !asked.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for _ in 0..1000 {
            thread::yield_now();
        }
        assert_eq!(word.load(Ordering::Acquire), 0);
        lock.release(&htm);
        let statistics = waiting.join().expect("the waiting thread does not panic");
        assert_eq!((statistics.started, statistics.committed, statistics.begun_while_locked), (1, 1, 0));
    });
}

#[test]
fn trap_3_a_lock_held_for_ever_costs_no_region() {
    let (htm, lock, word) = (emulated(SEED, 0), SpinLock::new(), AtomicU64::new(0));
    lock.acquire(&htm);
    let mut worker = Worker::new(&htm, 0, Budget { explicit: 3, ..Budget::default() });
    worker.run(&HeldByOther(&lock), |access| increment(access, &word)).expect("increments are not refused");
    let statistics = worker.statistics();
    assert_eq!((statistics.started, statistics.fallback, statistics.begun_while_locked), (0, 1, 0));
}

#[test]
fn trap_3_canary_that_does_not_wait_is_counted() {
    let (htm, lock, word) = (emulated(SEED, 0), SpinLock::new(), AtomicU64::new(0));
    lock.acquire(&htm);
    let mut worker = Worker::new(&htm, 0, Budget { explicit: 3, ..Budget::default() });
    worker.agent.never_wait();
    worker.run(&HeldByOther(&lock), |access| increment(access, &word)).expect("increments are not refused");
    let statistics = worker.statistics();
    assert_eq!((statistics.begun_while_locked, statistics.aborted.explicit, statistics.fallback), (3, 3, 1));
}

/// Runs `body` in an emulated region, expecting its panic; the locks must be free and regions must work afterwards.
fn panics(abort_one_in: u32, mut body: impl FnMut(&mut dyn Words)) -> String {
    let (htm, lock, word) = (emulated(SEED, abort_one_in), SpinLock::new(), AtomicU64::new(0));
    let mut worker = Worker::new(&htm, 0, Budget::default());
    let result = catch_unwind(AssertUnwindSafe(|| {
        worker.run(&lock, |access| {
            body(access);
            increment(access, &word)
        })
    }));
    assert!(lock.wait_until_free(), "the lock was given back");
    assert_eq!(word.load(Ordering::Relaxed), 0, "nothing was stored");
    assert_outside();
    worker.run(&lock, |access| increment(access, &word)).expect("increments are not refused");
    assert_eq!(word.load(Ordering::Relaxed), 1);
    let payload = result.expect_err("the panic surfaces");
    panic_text(&*payload).unwrap()
}

#[test]
fn trap_5_a_panic_surfaces_from_regions_and_from_fallbacks() {
    assert_eq!(panics(0, |_| panic!("injected")), "injected");
    let in_fallback = |access: &mut dyn Words| assert!(access.region(), "injected");
    assert_eq!(panics(1, in_fallback), "injected");
}

#[test]
fn trap_5_a_panic_surfaces_from_every_back_end() {
    for htm in all() {
        let lock = SpinLock::new();
        let mut worker = Worker::new(&htm, 0, Budget::default());
        let body = |_: &mut dyn Words| -> Result<(), BodyError> { resume_unwind(Box::new("injected")) };
        let payload = catch_unwind(AssertUnwindSafe(|| worker.run(&lock, body))).expect_err("the panic surfaces");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"injected"), "{htm:?}");
        assert!(lock.wait_until_free(), "{htm:?}: the lock was given back");
    }
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "needs debug assertions")]
fn trap_5_allocators_locks_and_doors_speak_up_inside_a_region() {
    assert!(panics(0, |_| assert_outside()).contains("inside a region"));
    assert!(panics(0, |_| assert_eq!(size_of_val(&Outside::claim()), 0)).contains("inside a region"));
}

#[test]
fn trap_5_read_modify_writes_and_regions_do_not_nest() {
    let htm = emulated(SEED, 0);
    assert!(panics(0, |_| htm.outside(|| ())).contains("Access::lock"));
    let mut inner = Worker::new(&htm, 1, Budget::default());
    let nested = |_: &mut dyn Words| inner.run(&NoLocks, |_| Ok(())).expect("not refused");
    assert!(panics(0, nested).contains("inside a region"));
}

/// Readers outside look at two words that are equal between bodies, guarded by a version word whose lowest
/// bit is a lock. Whether one accepted values that differ.
fn readers_torn(
    writer: impl Fn(&mut dyn Words, &[AtomicU64; 3]) -> Result<(), BodyError> + Sync,
    abort_one_in: u32,
) -> bool {
    let regions = if cfg!(miri) { 20 } else { 3_000 };
    let (htm, words, done) = (emulated(SEED, abort_one_in), [const { AtomicU64::new(0) }; 3], AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let [version, a, b] = &words;
            while !done.load(Ordering::Relaxed) {
                let before = version.load(Ordering::Acquire);
                let values = (a.load(Ordering::Acquire), b.load(Ordering::Acquire));
                if before & 1 == 0 && version.load(Ordering::Acquire) == before && values.0 != values.1 {
                    return true;
                }
            }
            false
        });
        let mut worker = Worker::new(&htm, 0, Budget::ONE);
        for _ in 0..regions {
            if reader.is_finished() {
                break;
            }
            worker.run(&NoLocks, |access| writer(access, &words)).expect("writes are not refused");
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader does not panic")
    })
}

fn lock_first(access: &mut dyn Words, [version, a, b]: &[AtomicU64; 3]) -> Result<(), BodyError> {
    let before = access.load(version);
    if before & 1 == 1 || !access.lock(version, before, before + 1) {
        return Err(BodyError::Busy);
    }
    increment(access, a)?;
    increment(access, b)?;
    access.store(version, before + 2);
    Ok(())
}

fn bump_only(access: &mut dyn Words, [version, a, b]: &[AtomicU64; 3]) -> Result<(), BodyError> {
    increment(access, a)?;
    increment(access, b)?;
    let before = access.load(version);
    access.store(version, before + 2);
    Ok(())
}

#[test]
fn trap_23_readers_accept_no_torn_state_of_a_body_that_locks_first() {
    assert!(!readers_torn(lock_first, 0), "regions");
    assert!(!readers_torn(lock_first, 1), "fallbacks");
    assert!(!readers_torn(lock_first, 2), "both");
}

#[test]
#[cfg_attr(miri, ignore = "needs many schedules")]
fn trap_23_canary_that_counts_on_atomic_commits_is_caught() {
    let mut tries = Backoff::new();
    while !readers_torn(bump_only, 0) {
        assert!(tries.wait(), "the canary is alive");
    }
}
