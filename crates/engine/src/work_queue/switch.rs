//! Decides whether calls are batched, by the cost of conflicts ([`Batch::Auto`](crate::Batch::Auto)).
//!
//! It measures the retries of calls while they could be batched and are not. With batches there are hardly any
//! retries, which does not show how many there would be without. So now and then batching stops for a window,
//! and retries are measured again. The decision depends only on these counts, and on no clock.

/// Calls of a window: enough that a burst of some dozen retries does not decide.
const WINDOW_CALLS: u64 = 1024;

/// Calls in batches until the next window without. So while batches pay, at most one of 17 calls runs without
/// them.
const BATCHED_CALLS: u64 = 16 * WINDOW_CALLS;

/// Additional retries of 100 calls that start batching, for each doubling of the batch size. Batches of 8 (two
/// threads) start at 100 retries, those of 128 (32 threads) at 300. A retry runs a call once more. Calls took
/// at most 2.4 times as long in batches of 32 as without, on 8 cores, and 3.5 times in batches of 128 on 32
/// cores (docs/batching.md). The larger a batch, the more of it is one component, on one thread.
const DOUBLING_PERCENT: u64 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    /// Retries of 100 calls that start batching. It stops below half of that, so that a rate near either bound
    /// does not switch back and forth.
    on_percent: u64,
    is_on: bool,
    /// Whether calls were batched before this window.
    was_on: bool,
    /// Calls of this window, and their retries.
    calls: u64,
    retries: u64,
}

impl Switch {
    /// A switch for batches of at most `size` calls.
    pub(super) fn new(size: usize) -> Switch {
        let doublings = u64::from(size.max(2).ilog2());
        let on_percent = DOUBLING_PERCENT * doublings.saturating_sub(1).max(1);
        Switch { on_percent, is_on: false, was_on: false, calls: 0, retries: 0 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Counts ended calls and their retries. Returns whether this switched batching on.
    pub(super) fn ended(&mut self, calls: u64, retries: u64) -> bool {
        self.calls += calls;
        self.retries += retries;
        let window = if self.is_on { BATCHED_CALLS } else { WINDOW_CALLS };
        if self.calls < window {
            return false;
        }
        let threshold = if self.was_on { self.on_percent / 2 } else { self.on_percent };
        let pays = !self.is_on && self.retries * 100 >= self.calls * threshold;
        let is_new = pays && !self.was_on;
        *self = Switch { is_on: pays, was_on: self.is_on || pays, calls: 0, retries: 0, ..*self };
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of a switch for batches of this size, after each window or run of batches, with these retries
    /// of 100 calls.
    fn of_size(size: usize, percents: &[u64]) -> Vec<bool> {
        let mut switch = Switch::new(size);
        let mut step = |percent: &u64| {
            let calls = if switch.is_on() { BATCHED_CALLS } else { WINDOW_CALLS };
            for at in 0..calls {
                switch.ended(1, (at + 1) * percent / 100 - at * percent / 100);
            }
            switch.is_on()
        };
        percents.iter().map(&mut step).collect()
    }

    /// For batches of 8.
    fn says(percents: &[u64]) -> Vec<bool> {
        of_size(8, percents)
    }

    #[test]
    fn it_is_off_until_a_window_has_a_retry_for_each_call() {
        assert_eq!(says(&[0, 30, 99, 100]), [false, false, false, true]);
    }

    #[test]
    fn larger_batches_begin_at_more_retries() {
        for (size, on) in [(4, 50), (8, 100), (16, 150), (32, 200), (128, 300), (4096, 550)] {
            let rates = [on - 1, on, 0, on / 2, 0, on / 2 - 1];
            assert_eq!(of_size(size, &rates), [false, true, false, true, false, false], "{size}");
        }
    }

    #[test]
    fn measurements_in_batches_are_discarded_and_repeated_without_batches() {
        assert_eq!(says(&[200, 0, 200, 0, 200]), [true, false, true, false, true]);
        assert_eq!(says(&[200, 900, 0, 0]), [true, false, false, false], "they do not pay any more");
    }

    #[test]
    fn it_stays_on_down_to_half_of_what_switched_it_on() {
        assert_eq!(says(&[100, 0, 50, 0, 70, 0, 49, 70]), [true, false, true, false, true, false, false, false]);
    }

    #[test]
    fn it_reports_when_it_is_switched_on_and_not_when_it_continues() {
        let mut switch = Switch::new(8);
        assert!(!switch.ended(WINDOW_CALLS - 1, 5000) && !switch.is_on());
        assert!(switch.ended(1, 0) && switch.is_on());
        assert!(!switch.ended(BATCHED_CALLS, 0) && !switch.is_on(), "a window to measure");
        assert!(!switch.ended(WINDOW_CALLS, WINDOW_CALLS) && switch.is_on(), "it goes on");
        assert!(!switch.ended(BATCHED_CALLS, 0) && !switch.ended(WINDOW_CALLS, 0) && !switch.is_on());
        assert!(switch.ended(WINDOW_CALLS, WINDOW_CALLS));
    }
}
