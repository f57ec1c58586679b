//! How long roles wait: for a disk that takes no writes, and before they try again to begin.

use std::time::Duration;

use seriatim_base::clock::Instant;

/// How long a role with held outputs sleeps before it checks them again; longer the longer it has waited.
const LOOK: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_millis(10);

/// How long a role that could not begin waits before it tries again; twice as long each time.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long a role has held outputs for its disk, without any having left.
#[derive(Default)]
pub(crate) struct Holding {
    since: Option<Instant>,
    /// When others were last told.
    told: Option<Instant>,
}

impl Holding {
    /// An output has left.
    pub(crate) fn left(&mut self) {
        *self = Holding::default();
    }

    /// Outputs are held, or (`false`) none.
    pub(crate) fn note(&mut self, holds: bool) {
        if !holds {
            self.left();
        } else if self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    /// When to check again; never, if nothing is held.
    pub(crate) fn look(&self) -> Option<Instant> {
        self.since.map(|since| Instant::now().after((since.elapsed() / 8).clamp(LOOK, LOOK_MAX)))
    }

    /// Whether others have been told that nothing leaves.
    pub(crate) fn is_late(&self) -> bool {
        self.told.is_some()
    }

    /// Whether the others must be told now: nothing has left for `max`, and they have not been told for `max`.
    pub(crate) fn becomes_late(&mut self, max: Duration) -> bool {
        let is_late = self.told.or(self.since).is_some_and(|since| since.elapsed() >= max);
        if is_late {
            self.told = Some(Instant::now());
        }
        is_late
    }
}

/// Attempts of a role to begin, after one that failed.
#[derive(Default)]
pub(crate) struct Attempts {
    /// When the next attempt is due, if there is one.
    pub(crate) due: Option<Instant>,
    pause: Duration,
}

impl Attempts {
    /// Schedules another attempt.
    pub(crate) fn again(&mut self) {
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
        self.due = Some(Instant::now().after(self.pause));
    }

    /// Whether an attempt is due; the caller makes it now.
    pub(crate) fn take(&mut self) -> bool {
        self.due.take_if(|due| *due <= Instant::now()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_late_once_in_each_interval_until_it_sends_something() {
        let mut holding = Holding::default();
        assert!(!holding.becomes_late(Duration::ZERO) && holding.look().is_none(), "nothing is held");
        holding.note(true);
        assert!(!holding.becomes_late(Duration::from_secs(3600)) && !holding.is_late() && holding.look().is_some());
        assert!(holding.becomes_late(Duration::ZERO) && holding.is_late());
        assert!(!holding.becomes_late(Duration::from_secs(3600)) && holding.is_late(), "it was told just now");
        holding.left();
        holding.note(true);
        assert!(!holding.is_late());
    }

    #[test]
    fn pauses_grow_up_to_a_second() {
        let mut attempts = Attempts::default();
        assert!(!attempts.take());
        let began = Instant::now();
        (0..20).for_each(|_| attempts.again());
        assert_eq!(attempts.pause, PAUSE_MAX);
        assert!(attempts.due.is_some());
        // On a slow machine the pause may have passed already.
        assert!(!attempts.take() || began.elapsed() >= PAUSE_MAX);
    }
}
