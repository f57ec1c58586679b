//! How often, and after which pause, a transaction is retried.

use std::time::Duration;

use seriatim_base::{Rng, thread};

/// Bounded retry with jittered exponential backoff.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts before [`TransactError::Conflict`](crate::TransactError::Conflict). At least 1. Default 1000.
    pub attempts_max: u32,
    /// Attempts that follow each other without a pause. Default 3.
    pub immediate: u32,
    /// The first pause; it doubles with each further attempt. At most [`RetryPolicy::PAUSE_MAX`]. Default 2 µs.
    pub pause_first: Duration,
    /// The longest pause. At most [`RetryPolicy::PAUSE_MAX`]. Default 1 ms.
    pub pause_max: Duration,
    /// Failed attempts after which a transaction, one at a time, locks each row when it accesses it. Others wait for
    /// these rows, or fail, and commit elsewhere. 0 is as 1. `u32::MAX`: never, and it never runs exclusively, either:
    /// it may fail `attempts_max` times. Default 10.
    pub lock_after: u32,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts_max: 1000,
            immediate: 3,
            pause_first: Duration::from_micros(2),
            pause_max: Duration::from_millis(1),
            lock_after: 10,
        }
    }
}

impl RetryPolicy {
    /// The longest permitted pause. During a pause neither age nor a cancellation ends the transaction.
    pub const PAUSE_MAX: Duration = Duration::from_secs(60);

    /// No retry: the first conflict is reported.
    pub fn never() -> RetryPolicy {
        RetryPolicy { attempts_max: 1, ..RetryPolicy::default() }
    }
}

/// Pauses before attempt `next` (the second is 2).
pub fn pause(policy: &RetryPolicy, next: u32, rng: &mut Rng) {
    make(pause_before(policy, next, rng));
}

/// The pause before attempt `next`: between half and all of the current backoff; zero before the first
/// attempts.
pub(crate) fn pause_before(policy: &RetryPolicy, next: u32, rng: &mut Rng) -> Duration {
    let Some(doublings) = next.checked_sub(policy.immediate.saturating_add(2)) else {
        return Duration::ZERO;
    };
    let pause = policy.pause_first.saturating_mul(1 << doublings.min(16)).min(policy.pause_max);
    let nanoseconds = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(rng.range(nanoseconds / 2, nanoseconds.max(1)))
}

/// Pauses for this long; zero lets another thread run.
pub(crate) fn make(pause: Duration) {
    match pause {
        Duration::ZERO => thread::yield_now(),
        pause => thread::pause(pause),
    }
}
