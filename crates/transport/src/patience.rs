//! How long roles wait: for a disk that takes nothing, and before they try again to begin.

use std::time::Duration;

use seriatim_base::clock::Instant;

/// How long a role that holds something back sleeps until it looks whether that may leave; longer the longer it has waited.
const LOOK: Duration = Duration::from_micros(100);
const LOOK_MAX: Duration = Duration::from_millis(10);

/// How long a role that could not begin waits before it tries again; twice as long each time.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// For how long a role has held back what waits for its disk, without anything having left.
#[derive(Default)]
pub(crate) struct Holding {
    since: Option<Instant>,
    /// When others were last told.
    told: Option<Instant>,
}

impl Holding {
    /// Something has left.
    pub(crate) fn left(&mut self) {
        *self = Holding::default();
    }

    /// Something is held, or (`false`) nothing.
    pub(crate) fn note(&mut self, holds: bool) {
        if !holds {
            self.left();
        } else if self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    /// When to look again; never, if nothing is held.
    pub(crate) fn look(&self) -> Option<Instant> {
        self.since.map(|since| Instant::now().after((since.elapsed() / 8).clamp(LOOK, LOOK_MAX)))
    }

    /// Whether others have been told that nothing leaves.
    pub(crate) fn is_late(&self) -> bool {
        self.told.is_some()
    }

    /// Whether others are to be told so now, who have not been told for `max`.
    pub(crate) fn becomes_late(&mut self, max: Duration) -> bool {
        let is_late = self.told.or(self.since).is_some_and(|since| since.elapsed() >= max);
        if is_late {
            self.told = Some(Instant::now());
        }
        is_late
    }
}

/// Attempts to begin, of a role that could not.
#[derive(Default)]
pub(crate) struct Attempts {
    /// When the next is due, if there is to be one.
    pub(crate) due: Option<Instant>,
    pause: Duration,
}

impl Attempts {
    /// There is to be another.
    pub(crate) fn again(&mut self) {
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
        self.due = Some(Instant::now().after(self.pause));
    }

    /// Whether one is due: it is made now.
    pub(crate) fn take(&mut self) -> bool {
        self.due.take_if(|due| *due <= Instant::now()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_is_late_once_in_each_while_and_no_more_when_something_leaves() {
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
        // A slow machine may have taken as long until here.
        assert!(!attempts.take() || began.elapsed() >= PAUSE_MAX);
    }
}
