//! The emulated back end: what a seed decides, what an abort leaves, and what a region can see.

use super::{Words, Worker, all, emulated, increment};
use crate::{BodyError, Budget, FallbackLocks, NoLocks, Refused, RegionStatistics, SpinLock};
use seriatim_base::thread;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs bodies of four accesses; how far each attempt came, and the statistics.
fn attempts(seed: u64, worker: u16, abort_one_in: u32) -> (Vec<u64>, RegionStatistics) {
    let htm = emulated(seed, abort_one_in);
    let mut worker = Worker::new(&htm, worker, Budget::default());
    let (lock, a, b) = (SpinLock::new(), AtomicU64::new(0), AtomicU64::new(0));
    let reached = Cell::new(0);
    let mut lengths = Vec::new();
    for _ in 0..2_000 {
        let body = |access: &mut dyn Words| {
            lengths.push(reached.replace(0));
            for word in [&a, &b] {
                let value = access.load(word);
                reached.set(reached.get() + 1);
                access.store(word, value + 1);
                reached.set(reached.get() + 1);
            }
            Ok(())
        };
        worker.run(&lock, body).expect("increments are not refused");
    }
    assert_eq!((a.into_inner(), b.into_inner()), (2_000, 2_000));
    (lengths, worker.statistics())
}

#[test]
fn a_seed_and_the_worker_decide_everything() {
    let first = attempts(1, 0, 4);
    assert_eq!(first, attempts(1, 0, 4));
    assert_ne!(first, attempts(2, 0, 4));
    assert_ne!(first, attempts(1, 1, 4));
}

#[test]
fn aborts_fall_at_every_access_and_have_every_cause() {
    let (lengths, statistics) = attempts(3, 0, 2);
    for length in 0..=4 {
        assert!(lengths.contains(&length), "no attempt ended after {length} accesses");
    }
    let aborted = statistics.aborted;
    assert!(aborted.conflict > 0 && aborted.capacity > 0 && aborted.system > 0 && statistics.fallback > 0);
    let one_in = statistics.started as f64 / aborted.total() as f64;
    assert!((1.8..2.2).contains(&one_in), "one abort in {one_in}");
    assert_eq!(attempts(3, 0, 0).1, RegionStatistics { started: 2_000, committed: 2_000, ..Default::default() });
}

#[test]
fn a_refusal_undoes_everything_and_is_not_repeated() {
    for htm in all() {
        let mut worker = Worker::new(&htm, 0, Budget::default());
        let (lock, word) = (SpinLock::new(), AtomicU64::new(5));
        for code in 0..BodyError::CODES {
            let mut ends = 0;
            let body = |access: &mut dyn Words| -> Result<(), BodyError> {
                let before = access.load(&word);
                access.store(&word, 6);
                if !access.region() {
                    access.store(&word, before);
                }
                ends += 1;
                Err(BodyError::Refused(code))
            };
            assert_eq!(worker.run(&lock, body), Err(Refused { code }), "{htm:?}");
            assert_eq!(word.load(Ordering::Relaxed), 5, "{htm:?}");
        }
        assert!(lock.0.load(Ordering::Relaxed) == 0, "{htm:?}: the lock was given back");
        assert_eq!(worker.statistics().committed, 0, "{htm:?}");
    }
}

#[test]
fn codes_of_the_region_itself_are_not_for_bodies() {
    for htm in all() {
        let mut worker = Worker::new(&htm, 0, Budget::default());
        let body = |_: &mut dyn Words| -> Result<(), BodyError> { Err(BodyError::Refused(BodyError::CODES)) };
        assert!(catch_unwind(AssertUnwindSafe(|| worker.run(&NoLocks, body))).is_err(), "{htm:?}");
    }
}

#[test]
fn a_held_lock_bit_is_waited_for_within_bounds() {
    for htm in all() {
        let mut worker = Worker::new(&htm, 0, Budget::default());
        let word = AtomicU64::new(1);
        let mut runs = 0;
        // The holder lets go after a while.
        let passing = |access: &mut dyn Words| {
            runs += 1;
            if runs == 20 {
                word.store(0, Ordering::Release);
            }
            if access.lock(&word, 0, 3) { Ok(()) } else { Err(BodyError::Busy) }
        };
        assert_eq!(worker.run(&NoLocks, passing), Ok(()), "{htm:?}");
        assert_eq!(word.load(Ordering::Relaxed), 3);
        let staying = |access: &mut dyn Words| if access.lock(&word, 0, 1) { Ok(()) } else { Err(BodyError::Busy) };
        let refused = worker.run(&NoLocks, staying).expect_err("the lock bit stays held");
        assert!(refused.is_busy(), "{htm:?}");
        assert_eq!(word.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn a_plain_store_outside_aborts_a_region_that_read_the_word() {
    let htm = emulated(1, 0);
    let mut worker = Worker::new(&htm, 0, Budget { conflict: 7, ..Budget::default() });
    let (a, b) = (AtomicU64::new(0), AtomicU64::new(0));
    let read_then_disturbed = |access: &mut dyn Words| {
        let before = access.load(&a);
        a.store(before + 1, Ordering::Release);
        assert!(!access.region() || access.load(&b) == u64::MAX, "the region goes on with a value that is gone");
        Ok(())
    };
    worker.run(&SpinLock::new(), read_then_disturbed).expect("not refused");
    let disturbed_at_the_end = |access: &mut dyn Words| {
        let before = access.load(&a);
        access.store(&b, before);
        a.store(before + 1, Ordering::Release);
        Ok(())
    };
    worker.run(&SpinLock::new(), disturbed_at_the_end).expect("not refused");
    let statistics = worker.statistics();
    assert_eq!((statistics.aborted.conflict, statistics.fallback, statistics.committed), (14, 2, 0));
}

#[test]
fn a_region_reads_its_own_stores() {
    for htm in all() {
        let mut worker = Worker::new(&htm, 0, Budget::default());
        let word = AtomicU64::new(1);
        let body = |access: &mut dyn Words| {
            let before = access.load(&word);
            access.store(&word, before + 1);
            let twice = access.load(&word) + access.load(&word);
            access.store(&word, twice);
            let after = access.load(&word);
            access.store(&word, before);
            Ok(after)
        };
        assert_eq!(worker.run(&SpinLock::new(), body), Ok(4), "{htm:?}");
        assert_eq!(word.into_inner(), 1);
    }
}

/// Bodies that turn lock bits themselves: two words change together, and no body, in a region or not, sees them differ.
#[test]
fn lock_bits_alone_keep_words_together() {
    let times = if cfg!(miri) { 30 } else { 2_000 };
    for htm in all() {
        let words = [const { AtomicU64::new(0) }; 3];
        thread::scope(|scope| {
            for id in 0..2 {
                let (htm, [version, a, b]) = (&htm, &words);
                scope.spawn(move || {
                    let mut worker = Worker::new(htm, id, Budget::ONE);
                    for _ in 0..times {
                        let body = |access: &mut dyn Words| {
                            // Data first, its lock afterwards: the order that needs the region's reads to
                            // hold together.
                            let (x, y) = (access.load(a), access.load(b));
                            let before = access.load(version);
                            if before & 1 == 1 || !access.lock(version, before, before + 1) {
                                return Err(BodyError::Busy);
                            }
                            let (x, y) = if access.region() { (x, y) } else { (access.load(a), access.load(b)) };
                            assert_eq!((x, y), (before / 2, before / 2));
                            access.store(a, x + 1);
                            access.store(b, y + 1);
                            access.store(version, before + 2);
                            Ok(())
                        };
                        while worker.run(&NoLocks, body).is_err() {}
                    }
                });
            }
        });
        assert_eq!(words.map(AtomicU64::into_inner), [4 * times, 2 * times, 2 * times], "{htm:?}");
    }
}

#[test]
fn a_set_of_locks_holds_each_once() {
    let (htm, p, q) = (emulated(1, 0), SpinLock::new(), SpinLock::new());
    let held = || [&p, &q].map(|lock| lock.0.load(Ordering::Relaxed));
    let set = [&q, &p, &q, &p];
    assert!(set.wait_until_free());
    set.acquire(&htm);
    assert_eq!(held(), [1, 1]);
    assert!(!set.wait_until_free());
    set.release(&htm);
    assert_eq!(held(), [0, 0]);
}

#[test]
fn sets_of_locks_are_taken_in_one_order() {
    let times = if cfg!(miri) { 20 } else { 1_000 };
    for htm in all() {
        let (p, q, word) = (SpinLock::new(), SpinLock::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            for id in 0..2 {
                let (htm, p, q, word) = (&htm, &p, &q, &word);
                scope.spawn(move || {
                    let mut worker = Worker::new(htm, id, Budget::ONE);
                    for turn in 0..times {
                        let body = |access: &mut dyn Words| increment(access, word);
                        let result = match (turn + u64::from(id)) % 4 {
                            0 => worker.run(&(p, q), body),
                            1 => worker.run(&[q, p], body),
                            2 => worker.run([q, p, q].as_slice(), body),
                            _ => worker.run(&p, body),
                        };
                        result.expect("increments are not refused");
                    }
                });
            }
        });
        assert_eq!(word.into_inner(), 2 * times, "{htm:?}");
    }
}

/// Runs regions while the thread unwinds, as a dropped transaction does.
struct RunsWhenDropped<'a>(&'a mut Worker, &'a AtomicU64);

impl Drop for RunsWhenDropped<'_> {
    fn drop(&mut self) {
        for _ in 0..100 {
            self.0.run(&SpinLock::new(), |access| increment(access, self.1)).expect("increments are not refused");
        }
    }
}

#[test]
fn regions_run_and_abort_while_a_panic_unwinds() {
    for htm in all() {
        let (mut worker, word) = (Worker::new(&htm, 0, Budget::default()), AtomicU64::new(0));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _runs = RunsWhenDropped(&mut worker, &word);
            panic!("injected");
        }));
        assert!(unwound.is_err());
        assert_eq!(word.into_inner(), 100, "{htm:?}");
    }
}

#[test]
fn read_modify_writes_outside_exclude_regions() {
    let times = if cfg!(miri) { 30 } else { 3_000 };
    for htm in all() {
        let (word, done) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..times {
                    htm.outside(|| word.fetch_add(1, Ordering::AcqRel));
                }
                done.store(true, Ordering::Release);
            });
            let mut worker = Worker::new(&htm, 0, Budget { conflict: u32::MAX, ..Budget::default() });
            for _ in 0..times {
                // Turns the word from one value to the next, as direct mode can only with a compare-and-swap.
                let body = |access: &mut dyn Words| {
                    let value = access.load(&word);
                    if access.lock(&word, value, value + 1) { Ok(()) } else { Err(BodyError::Busy) }
                };
                while worker.run(&NoLocks, body).is_err() {}
            }
        });
        assert_eq!(word.into_inner(), 2 * times, "{htm:?}");
    }
}
