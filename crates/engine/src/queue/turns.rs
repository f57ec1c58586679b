//! Turns to make decisions: one thread at a time, first come, first served.
//!
//! A thread can *hold* its turn while it executes a transaction, so that no decision changes what the
//! transaction reads. User code runs then, and may take any time. So other threads wait at most [`HOLD_MAX`].
//! Then the turn passes on, and the holder has none to end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Thread};

/// How long a turn may be held while other threads wait for theirs.
pub(super) const HOLD_MAX: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// [`HOLD_MAX`], except in tests.
    hold_max: Duration,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { state: Mutex::default(), hold_max: HOLD_MAX }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Turns that were taken or waited for.
    drawn: u64,
    /// The current turn.
    serves: u64,
    /// When the holder took the current turn, if it is held.
    held_since: Option<Instant>,
    /// Threads that wait, and must check again.
    waiting: Vec<Thread>,
}

impl State {
    /// Passes to the next turn.
    fn pass(&mut self) {
        self.serves += 1;
        self.held_since = None;
        self.wake();
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(|thread| thread.unpark());
    }
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, which lasts until [`Turns::end`]. With `holds` it lasts at most [`HOLD_MAX`] if others
    /// wait.
    #[must_use]
    pub(super) fn take(&self, holds: bool) -> u64 {
        let mut state = self.state();
        let turn = state.drawn;
        state.drawn += 1;
        loop {
            if state.serves == turn {
                if holds {
                    state.held_since = Some(Instant::now());
                    // Other threads may sleep without a timeout.
                    state.wake();
                }
                return turn;
            }
            let left = state.held_since.map(|since| self.hold_max.saturating_sub(since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                state.pass();
                continue;
            }
            state.waiting.push(thread::current());
            drop(state);
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            state = self.state();
        }
    }

    /// Ends the turn, unless it has passed already.
    pub(super) fn end(&self, turn: u64) {
        let mut state = self.state();
        if state.serves == turn {
            state.pass();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn turns_are_taken_one_at_a_time_in_the_order_in_which_they_were_asked_for() {
        const THREADS: usize = 4;
        // No thread loses a turn that it holds, however long it gets no processor.
        let turns = Turns { hold_max: Duration::from_secs(600), ..Turns::default() };
        let (inside, order) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..200 {
                        let turn = turns.take(round % 7 == 0);
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        order.lock().expect("nobody panics").push(turn);
                        inside.fetch_sub(1, SeqCst);
                        turns.end(turn);
                    }
                });
            }
        });
        assert!(order.into_inner().expect("nobody panics").into_iter().eq(0..THREADS as u64 * 200));
    }

    #[test]
    fn who_holds_a_turn_for_too_long_has_lost_it() {
        let (turns, came) = (Turns::default(), AtomicBool::new(false));
        let began = Instant::now();
        let held = turns.take(true);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let turn = turns.take(false);
                came.store(true, SeqCst);
                turns.end(turn);
            });
            thread::sleep(HOLD_MAX / 4);
            // A slow machine may have taken longer for a quarter than for the whole.
            assert!(!came.load(SeqCst) || began.elapsed() >= HOLD_MAX, "it is held");
            other.join().expect("it comes");
        });
        assert!(came.into_inner() && began.elapsed() >= HOLD_MAX);
        let next = turns.take(false);
        turns.end(held);
        assert_eq!(turns.state().serves, next, "what is over is not ended again");
        turns.end(next);
    }
}
