//! Code that names no words, run whole.

use super::{Worker, all, emulated, skip, try_again};
use crate::{Budget, Htm, HtmMode, SpinLock, Whole};
use seriatim_base::clock::Instant;
use seriatim_base::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUDGET: Budget = Budget { capacity: 1, ..Budget::PAPER };

/// Runs `code` whole: what it gives.
fn run<R>(whole: &mut Whole, mut code: impl FnMut() -> R) -> R {
    let mut given = None;
    whole.run(&mut || given = Some(code()));
    given.expect("it runs to its end")
}

#[test]
fn code_that_is_run_whole_is_not_interleaved_with_other_such_code() {
    const TIMES: u64 = 2000;
    for htm in all() {
        let (lock, words) = (Arc::new(SpinLock::new()), [const { AtomicU64::new(0) }; 2]);
        thread::scope(|scope| {
            for _ in 0..2 {
                let (mut whole, words) = (Whole::new(&htm, BUDGET, &lock), &words);
                scope.spawn(move || {
                    for time in 0..TIMES {
                        run(&mut whole, || {
                            let before = words.each_ref().map(|word| word.load(Ordering::Relaxed));
                            assert_eq!(before[0], before[1]);
                            words[0].store(before[0] + 1, Ordering::Relaxed);
                            // In a region, a system call: it is run again under the lock.
                            if time % 100 == 0 {
                                thread::yield_now();
                            }
                            words[1].store(before[1] + 1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(words.map(AtomicU64::into_inner), [2 * TIMES; 2], "{htm:?}");
    }
}

/// Memory, the stack and what the code captured included.
#[test]
fn nothing_is_left_of_a_run_that_a_region_could_not_hold() {
    for htm in all() {
        let lock = Arc::new(SpinLock::new());
        let mut whole = Whole::new(&htm, BUDGET, &lock);
        let (mut runs, mut list) = (0, Vec::new());
        let length = run(&mut whole, || {
            runs += 1;
            list.push(vec![runs; 1000]);
            thread::sleep(std::time::Duration::from_micros(1));
            list.len()
        });
        assert_eq!((runs, length, list[0][999]), (1, 1, 1), "{htm:?}");
        let statistics = whole.statistics();
        assert_eq!(statistics.committed, 0, "{htm:?}");
        assert_eq!(statistics.started, statistics.aborted.total(), "{htm:?}");
        assert_eq!(statistics.fallback, u64::from(htm.backend() != crate::Backend::Absent), "{htm:?}");
    }
}

#[test]
fn a_region_that_refuses_within_the_whole_ends_as_it_would_anywhere() {
    for htm in all() {
        let lock = Arc::new(SpinLock::new());
        let (mut whole, mut worker) = (Whole::new(&htm, BUDGET, &lock), Worker::new(&htm, 1, BUDGET));
        let word = AtomicU64::new(0);
        for code in [7, 0] {
            let ended = run(&mut whole, || {
                worker.run(&crate::NoLocks, |access| {
                    access.store(&word, 1);
                    if code == 7 { Err(crate::BodyError::Refused(code)) } else { Ok(code) }
                })
            });
            let wanted = if code == 7 { Err(crate::Refused { code }) } else { Ok(code) };
            assert_eq!(ended, wanted, "{htm:?}");
        }
        assert_eq!(word.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_panic_surfaces_and_gives_the_lock_back() {
    for htm in all() {
        let lock = Arc::new(SpinLock::new());
        let mut whole = Whole::new(&htm, BUDGET, &lock);
        let ended = catch_unwind(AssertUnwindSafe(|| whole.run(&mut || panic!("deliberately"))));
        assert!(ended.is_err_and(|panic| panic.is::<&str>()), "{htm:?}");
        assert_eq!(run(&mut whole, || 7), 7, "{htm:?}");
    }
}

#[test]
fn a_region_that_exceeds_capacity_is_tried_once() {
    let Ok(htm) = Htm::new(HtmMode::Rtm) else {
        skip("no hardware regions");
        return;
    };
    let lock = Arc::new(SpinLock::new());
    let mut whole = Whole::new(&htm, BUDGET, &lock);
    let mut large = vec![0_u64; 1 << 20];
    for times in 1..=20 {
        run(&mut whole, || large.iter_mut().for_each(|word| *word += 1));
        let statistics = whole.statistics();
        assert_eq!((statistics.committed, statistics.fallback), (0, times), "{statistics:?}");
        assert!(statistics.aborted.capacity <= times, "{statistics:?}");
    }
    assert!(large.iter().all(|word| *word == 20));
    let (mut small, began, mut runs) = (0, Instant::now(), 0);
    while runs < 100 || (whole.statistics().committed == 0 && try_again(began)) {
        runs += 1;
        run(&mut whole, || small += 1);
    }
    assert!(small == runs && whole.statistics().committed > 0, "{:?}", whole.statistics());
}

/// An emulated region cannot take back what its code does: it is not tried.
#[test]
fn on_emulated_regions_it_runs_under_the_lock() {
    let lock = Arc::new(SpinLock::new());
    let mut whole = Whole::new(&emulated(3, 1), BUDGET, &lock);
    let mut runs = 0;
    (0..10).for_each(|_| run(&mut whole, || runs += 1));
    assert_eq!((runs, whole.statistics().started, whole.statistics().fallback), (10, 0, 10));
}
