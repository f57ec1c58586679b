//! How much of the time a thread of a checkpoint works, and how fast it writes.
//!
//! Invariant: for each time it worked, it rests for as long as its share says, or until its writes keep to the rate, whichever is
//! longer: what it waits for the rate is rest, and no work. Nothing is pinned or locked meanwhile. However long a rest is, it ends
//! soon after the database is closed.

use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

use crate::builder::Builder;

/// Less work is not worth a rest: sleeping takes some 0.1 ms longer than it is asked to.
const WORK_MIN: Duration = Duration::from_millis(1);

/// How long closing waits for a rest.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// What threads of a checkpoint leave to others.
#[derive(Clone, Copy)]
pub(super) struct Limits<'w> {
    /// Percent of the time, 1 to 100, for which each works.
    pub(super) share: u32,
    /// Bytes that they write in a second together.
    pub(super) bytes_per_second: Option<u64>,
    pub(super) watch: &'w dyn Watch,
}

impl Limits<'static> {
    pub(super) fn of(options: &Builder) -> Limits<'static> {
        // Where one thread steps everything, nobody waits for its rests.
        let (share, bytes_per_second) = match options.step_helpers {
            true => (100, None),
            false => (options.checkpoint_share, options.checkpoint_bytes_per_second),
        };
        Limits { share, bytes_per_second, watch: &WristWatch }
    }
}

/// Tells the time, and passes it.
pub(super) trait Watch: Sync {
    /// The time since some moment.
    fn time(&self) -> Duration;

    /// Sleeps.
    fn sleep(&self, time: Duration);
}

/// The machine's.
struct WristWatch;

impl Watch for WristWatch {
    fn time(&self) -> Duration {
        Duration::from_nanos(Instant::now().nanoseconds())
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// Has one thread work for its share of the time.
pub(super) struct Duty<'w> {
    /// Time to rest for each that was worked.
    rest: f64,
    /// When it last had rested.
    since: Duration,
    watch: &'w dyn Watch,
}

impl<'w> Duty<'w> {
    pub(super) fn new(limits: Limits<'w>) -> Duty<'w> {
        let share = f64::from(limits.share);
        Duty { rest: (100.0 - share) / share, since: limits.watch.time(), watch: limits.watch }
    }

    /// Rests if there was work enough for a rest, and for `ahead` at least. Whether the database is still open.
    #[must_use]
    pub(super) fn rest(&mut self, ahead: Duration, is_closing: &dyn Fn() -> bool) -> bool {
        let worked = self.watch.time().saturating_sub(self.since);
        if worked < WORK_MIN && ahead.is_zero() {
            return !is_closing();
        }
        let mut left = worked.mul_f64(self.rest).max(ahead);
        while !is_closing() {
            if left.is_zero() {
                self.since = self.watch.time();
                return true;
            }
            let slice = left.min(SLICE);
            self.watch.sleep(slice);
            left -= slice;
        }
        false
    }
}
