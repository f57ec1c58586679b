//! Threads that take turns, for tests: the simulated implementation of threads.
//!
//! Code that other threads may interrupt calls [`step`](crate::thread::step) at critical points, in builds for tests
//! and for simulation. Where it waits, it calls [`yield_now`](crate::thread::yield_now) or
//! [`park`](crate::thread::park). These run the *turn* of the thread, if a test gave it one. With [`interrupt`],
//! another body runs as a whole before one step of a body, so every step can be tried. With [`take_turns`], threads run
//! one at a time, and a seed decides which thread continues after which step. So a schedule that fails will fail again.

use crate::Rng;
use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Why a thread lets other threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// It may be interrupted here.
    Step,
    /// It may be interrupted, but may hold a latch for which others wait without bound. Only threads that take
    /// turns let others run here.
    Latched,
    /// It waits for another thread.
    Wait,
}

type Turn = Box<dyn FnMut(Pause)>;

thread_local! {
    /// The action of this thread where it lets others run. It is removed meanwhile, so turns do not nest.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

fn pause(why: Pause) -> bool {
    // A thread that is ending has no turn.
    let turn = TURN.try_with(|turn| turn.try_borrow_mut().ok().and_then(|mut turn| turn.take())).ok().flatten();
    let Some(mut turn) = turn else { return false };
    turn(why);
    TURN.set(Some(turn));
    true
}

/// A point at which a thread may be interrupted.
#[inline]
pub(crate) fn step() {
    pause(Pause::Step);
}

/// A point at which a thread may be interrupted while it holds a latch.
#[inline]
pub(crate) fn step_latched() {
    pause(Pause::Latched);
}

/// A point at which a thread waits. Returns `false` without a turn: the system decides then.
pub(crate) fn wait() -> bool {
    pause(Pause::Wait)
}

/// Runs `body` with this turn.
fn with_turn<R>(turn: impl FnMut(Pause), body: impl FnOnce() -> R) -> R {
    /// Removes the turn again, even if the body panics.
    struct Taken;
    impl Drop for Taken {
        fn drop(&mut self) {
            drop(TURN.take());
        }
    }
    let turn: Box<dyn FnMut(Pause) + '_> = Box::new(turn);
    // SAFETY: `Taken` drops it before any of its borrows ends.
    let turn = unsafe { std::mem::transmute::<Box<dyn FnMut(Pause) + '_>, Turn>(turn) };
    assert!(TURN.replace(Some(turn)).is_none(), "a thread has one turn at a time");
    let _taken = Taken;
    body()
}

/// Runs `body`, and `other` just before step `at` of it, counted from 0. Also returns whether there was such a step.
pub fn interrupt<R>(at: usize, other: impl FnOnce(), body: impl FnOnce() -> R) -> (R, bool) {
    let mut other = Some(other);
    let mut left = at;
    let turn = |why| match (why, left) {
        (Pause::Step, 0) => other.take().map_or((), |other| other()),
        (Pause::Step, _) => left -= 1,
        (Pause::Latched, _) => {}
        (Pause::Wait, _) => std::thread::yield_now(),
    };
    let result = with_turn(turn, body);
    (result, other.is_none())
}

/// The schedule of threads that take turns.
struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    rng: Rng,
    now: usize,
    /// Threads that have not ended.
    left: Vec<usize>,
}

impl State {
    fn choose(&mut self) {
        let next = self.rng.below(self.left.len() as u64) as usize;
        self.now = self.left[next];
    }
}

impl Schedule {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is `me`'s turn.
    fn wait_for(&self, state: MutexGuard<'_, State>, me: usize) {
        drop(self.changed.wait_while(state, |state| state.now != me).unwrap_or_else(PoisonError::into_inner));
    }

    /// Passes the turn to the thread that the seed chooses, and waits until it comes back.
    fn pass(&self, me: usize) {
        let mut state = self.lock();
        state.choose();
        if state.now != me {
            self.changed.notify_all();
            self.wait_for(state, me);
        }
    }

    fn end(&self, me: usize) {
        let mut state = self.lock();
        state.left.retain(|&other| other != me);
        if !state.left.is_empty() {
            state.choose();
        }
        self.changed.notify_all();
    }
}

/// Runs the bodies on threads, one at a time. After about one in `steps` steps, and whenever it waits, a thread
/// lets another one run that the seed chooses. Returns their results in order, with `Err` for a panic.
///
/// The bodies must wait for each other only by yielding and parking. A body that blocks in the system keeps the
/// turn for ever.
pub fn take_turns<'a, T: Send + 'a>(
    seed: u64,
    steps: u64,
    bodies: Vec<Box<dyn FnOnce() -> T + Send + 'a>>,
) -> Vec<std::thread::Result<T>> {
    let rng = Rng::from_seed(seed);
    let state = Mutex::new(State { rng, now: 0, left: (0..bodies.len()).collect() });
    let schedule = Arc::new(Schedule { state, changed: Condvar::new() });
    std::thread::scope(|scope| {
        let start = |(me, body): (usize, Box<dyn FnOnce() -> T + Send + 'a>)| {
            let schedule = Arc::clone(&schedule);
            scope.spawn(move || {
                /// Gives the turn up for good, even if the body panics.
                struct Ended<'s>(&'s Schedule, usize);
                impl Drop for Ended<'_> {
                    fn drop(&mut self) {
                        self.0.end(self.1);
                    }
                }
                schedule.wait_for(schedule.lock(), me);
                let _ended = Ended(&schedule, me);
                let mut rng = Rng::from_seed(seed ^ (me as u64 + 1) << 32);
                let turn = |why| {
                    if why == Pause::Wait || rng.below(steps) == 0 {
                        schedule.pass(me);
                    }
                };
                with_turn(turn, body)
            })
        };
        let running: Vec<_> = bodies.into_iter().enumerate().map(start).collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;
    use std::cell::Cell;

    fn step() {
        thread::step(thread::Touch::Node, std::ptr::null());
    }

    #[test]
    fn a_turn_comes_before_the_step_it_is_due_at_and_once() {
        let (steps, turns) = (Cell::new(0), Cell::new(Vec::new()));
        let body = || {
            for _ in 0..3 {
                step();
                steps.set(steps.get() + 1);
            }
        };
        for (at, expected) in [(0, Some(0)), (2, Some(2)), (3, None)] {
            steps.set(0);
            let other = || {
                // Its steps have no turn.
                step();
                turns.set(vec![steps.get()]);
            };
            let ((), interrupted) = interrupt(at, other, body);
            assert_eq!((turns.take().first().copied(), interrupted), (expected, expected.is_some()));
        }
        body();
        assert_eq!(turns.take(), []);
    }

    /// The order in which two threads take their steps.
    fn order(seed: u64) -> Vec<usize> {
        let order = Mutex::new(Vec::new());
        let body = |me: usize| {
            let order = &order;
            let body: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
                for _ in 0..20 {
                    order.lock().expect("no panic").push(me);
                    step();
                }
            });
            body
        };
        take_turns(seed, 2, vec![body(0), body(1)]).into_iter().for_each(|ended| ended.expect("no panic"));
        order.into_inner().expect("no panic")
    }

    #[test]
    fn a_seed_decides_which_thread_continues() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert!(order(3).windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_waiting_thread_lets_the_other_run_and_a_panic_is_returned() {
        let done = std::sync::atomic::AtomicBool::new(false);
        let waits: Box<dyn FnOnce() + Send + '_> = Box::new(|| {
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                thread::yield_now();
            }
        });
        let panics: Box<dyn FnOnce() + Send + '_> = Box::new(|| {
            done.store(true, std::sync::atomic::Ordering::Release);
            panic!("on purpose");
        });
        let ended = take_turns(1, 100, vec![waits, panics]);
        assert!(ended[0].is_ok() && ended[1].is_err());
    }
}
