//! How long the epochs of a database last.
//!
//! TIDs have 45 bits for the epoch, and a database never reuses an epoch. The ticker ends one every 10 ms, and each
//! flush that a caller awaits ends one. At 8,000 flushes a second the epochs of a new database last 139 years. When
//! they are used up the log stops, and the database can only be inspected.

use std::time::Duration;

use seriatim_base::{Epoch, Tid};

/// Beyond this epoch the log stops, since a worker in the middle of a commit must not run out of epochs.
pub(super) const EPOCH_LIMIT: u64 = (1 << (Tid::BITS - Tid::COUNTER_BITS)) - (1 << 20);

/// A warning is given this long before the epochs are used up.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Epochs that end in a year if only the ticker ends them, at its default interval.
const YEAR_OF_TICKS: u64 = YEAR.as_secs() * 100;

/// A rate that was observed for less than this is not reported.
const OBSERVED_MIN: Duration = Duration::from_secs(1);

/// Whether the log must stop at this epoch.
pub(crate) fn is_at_limit(epoch: Epoch) -> bool {
    epoch.0 >= EPOCH_LIMIT
}

/// The epochs that are left after this one.
pub(super) fn left(epoch: Epoch) -> u64 {
    EPOCH_LIMIT.saturating_sub(epoch.0)
}

/// How long this many epochs last at the rate of `ended` epochs in the time `during`.
pub(super) fn lasting(left: u64, ended: u64, during: Duration) -> Option<Duration> {
    if ended == 0 || during < OBSERVED_MIN {
        return None;
    }
    Some(Duration::try_from_secs_f64(during.as_secs_f64() * (left as f64 / ended as f64)).unwrap_or(Duration::MAX))
}

/// The warning if the epochs last for less than a year.
pub(super) fn warning(lasting: Option<Duration>) -> Option<String> {
    let days = lasting.filter(|lasting| *lasting < YEAR)?.as_secs() / (24 * 60 * 60);
    Some(format!(
        "at the present rate the epochs of the database are used up in {days} days, and its log stops then: load its \
         rows into a new database before"
    ))
}

/// The notice of a recovery if the ticker alone uses up the remaining epochs within a year.
pub(super) fn notice(newest: Epoch) -> Option<String> {
    let left = left(newest);
    (left < YEAR_OF_TICKS).then(|| {
        format!(
            "{left} of {EPOCH_LIMIT} epochs are left: when they are used up, by the ticker alone in {} days, the log \
             stops; load the rows into a new database before",
            left / (YEAR_OF_TICKS / 365)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_given_a_year_before_the_epochs_are_used_up() {
        let day = Duration::from_secs(24 * 60 * 60);
        // As one thread awaits flushes of a fast disk.
        let lasting_from = |epoch| {
            let lasting = lasting(left(Epoch(epoch)), 8_000 * 3600, Duration::from_secs(3600));
            lasting.expect("a rate is known")
        };
        assert_eq!(lasting_from(0).as_secs() / (365 * day.as_secs()), 139);
        assert_eq!(warning(Some(lasting_from(0))), None);
        let lasting_now = lasting_from(EPOCH_LIMIT - (1 << 34));
        assert_eq!(lasting_now.as_secs() / day.as_secs(), 24);
        assert!(warning(Some(lasting_now)).is_some_and(|warning| warning.contains("in 24 days")));
        assert_eq!(warning(Some(366 * day)), None);
        assert_eq!(warning(None), None);
        assert_eq!(lasting(1 << 30, 0, day), None);
        assert_eq!(lasting(1 << 30, 5, Duration::from_millis(50)), None, "it may be a burst");
        assert_eq!(lasting(u64::MAX, 1, Duration::MAX), Some(Duration::MAX));
        assert_eq!(lasting(0, 9, day), Some(Duration::ZERO));
    }

    #[test]
    fn a_recovery_warns_when_a_year_of_ticks_is_left() {
        assert_eq!(notice(Epoch(EPOCH_LIMIT - YEAR_OF_TICKS)), None);
        let told = notice(Epoch(EPOCH_LIMIT - YEAR_OF_TICKS / 2)).expect("less is left");
        assert!(told.contains("in 182 days"), "{told}");
        assert!(notice(Epoch(EPOCH_LIMIT + 5)).is_some_and(|told| told.starts_with("0 of ")));
    }
}
