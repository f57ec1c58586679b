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

#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Turns that were taken or waited for.
    drawn: u64,
    /// The current turn.
    serves: u64,
    /// When the current turn was taken and how long it may last, if it is held.
    held: Option<(Instant, Duration)>,
    /// Threads that wait, and must check again.
    waiting: Vec<Thread>,
}

impl State {
    /// Passes to the next turn.
    fn pass(&mut self) {
        self.serves += 1;
        self.held = None;
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

    /// Waits for a turn, which lasts until [`Turns::end`]; while other threads wait, at most as long as it may be held.
    #[must_use]
    pub(super) fn take(&self, hold_max: Option<Duration>) -> u64 {
        let mut state = self.state();
        let turn = state.drawn;
        state.drawn += 1;
        loop {
            if state.serves == turn {
                if let Some(hold_max) = hold_max {
                    state.held = Some((Instant::now(), hold_max));
                    // Other threads may sleep without a timeout.
                    state.wake();
                }
                return turn;
            }
            let left = state.held.map(|(since, most)| most.saturating_sub(since.elapsed()));
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
    fn turns_are_taken_one_at_a_time_in_the_order_of_their_requests() {
        const THREADS: usize = 4;
        // No thread loses a turn that it holds, however long it gets no processor.
        let held = Duration::from_secs(600);
        let turns = Turns::default();
        let (inside, order) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..200 {
                        let turn = turns.take((round % 7 == 0).then_some(held));
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        order.lock().expect("no panic").push(turn);
                        inside.fetch_sub(1, SeqCst);
                        turns.end(turn);
                    }
                });
            }
        });
        assert!(order.into_inner().expect("no panic").into_iter().eq(0..THREADS as u64 * 200));
    }

    #[test]
    fn a_thread_that_holds_a_turn_for_too_long_has_lost_it() {
        let (turns, came) = (Turns::default(), AtomicBool::new(false));
        let began = Instant::now();
        let held = turns.take(Some(HOLD_MAX));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let turn = turns.take(None);
                came.store(true, SeqCst);
                turns.end(turn);
            });
            thread::sleep(HOLD_MAX / 4);
            // A slow machine may have taken longer for a quarter than for the whole.
            assert!(!came.load(SeqCst) || began.elapsed() >= HOLD_MAX, "it is held");
            other.join().expect("it comes");
        });
        assert!(came.into_inner() && began.elapsed() >= HOLD_MAX);
        let next = turns.take(None);
        turns.end(held);
        assert_eq!(turns.state().serves, next, "what is over is not ended again");
        turns.end(next);
    }
}
