//! How much of the time a thread of a checkpoint works, and how fast it writes.
//!
//! Invariant: for each time it worked, it rests for as long as its share says, or until its writes keep to the rate, whichever is
//! longer: what it waits for the rate is rest, and no work. Nothing is pinned or locked meanwhile. However long a rest is, it ends
//! soon after the database is closed.
//!
//! Rows that are inserted faster than they are passed would keep a checkpoint from its end, and the log from being cut: so one that
//! is late works for twice its share, then for three times, and at last only waits for the rate.

use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

use crate::builder::{Builder, CHECKPOINT_BYTES};

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
    /// Bytes by which the log may grow before the checkpoint is late.
    pub(super) late_after: u64,
    pub(super) watch: &'w dyn Watch,
}

impl Limits<'static> {
    /// Of a database that takes so many bytes of memory. The log may grow by what is between two checkpoints, or as large as what is in memory:
    /// recovery then takes no more than twice as long as for the checkpoint alone.
    pub(super) fn of(options: &Builder, memory_bytes: usize) -> Limits<'static> {
        // Where one thread steps everything, nobody waits for its rests.
        let (share, bytes_per_second) = match options.step_helpers {
            true => (100, None),
            false => (options.checkpoint_share, options.checkpoint_bytes_per_second),
        };
        let late_after = options.checkpoint_bytes.unwrap_or(CHECKPOINT_BYTES).max(memory_bytes as u64);
        Limits { share, bytes_per_second, late_after, watch: &WristWatch }
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
    /// Percent.
    share: f64,
    /// When it last had rested.
    since: Duration,
    watch: &'w dyn Watch,
}

impl<'w> Duty<'w> {
    pub(super) fn new(limits: Limits<'w>) -> Duty<'w> {
        Duty { share: f64::from(limits.share), since: limits.watch.time(), watch: limits.watch }
    }

    /// Rests if there was work enough for a rest, and for `ahead` at least; `haste` tells how many times its share it works by now. Whether
    /// the database is still open.
    #[must_use]
    pub(super) fn rest(&mut self, ahead: Duration, haste: &dyn Fn() -> u64, is_closing: &dyn Fn() -> bool) -> bool {
        let worked = self.watch.time().saturating_sub(self.since);
        if worked < WORK_MIN && ahead.is_zero() {
            return !is_closing();
        }
        let share = (self.share * haste() as f64).min(100.0);
        let mut left = worked.mul_f64((100.0 - share) / share).max(ahead);
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
