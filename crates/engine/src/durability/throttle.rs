//! Limits the time that a checkpoint's threads work, and the rate at which they write.
//!
//! Invariant: after work, a thread rests for as long as its share requires, or until its writes keep to the
//! rate, whichever is longer. Waiting for the rate counts as rest. Nothing is pinned or locked meanwhile.
//! However long a rest is, it ends soon after the database is closed.
//!
//! The share is the part of a thread's time beside transactions. The checkpoint also uses idle processors: its
//! share is never below its part of them. Their number is estimated from how often workers are busy, and from
//! the time that the log flushes.
//!
//! If rows are inserted faster than the checkpoint passes them, it never ends, and the log is never cut. So a
//! late checkpoint works for twice its share, then for three times, and at last waits only for the rate.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

use super::persistence::Persistence;
use crate::engine::Inner;
use crate::settings::{CHECKPOINT_BYTES, Settings};

/// The shortest work before a rest: sleeping takes some 0.1 ms longer than requested.
const WORK_MIN: Duration = Duration::from_millis(1);

/// The longest time for which closing waits for a rest.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// The limits of a checkpoint's threads.
#[derive(Clone, Copy)]
pub(super) struct Limits<'w> {
    /// Percent of the time in which each works, 1 to 100.
    pub(super) share: u32,
    /// Bytes a second that all of them write.
    pub(super) bytes_per_second: Option<u64>,
    /// Bytes by which the log may grow before the checkpoint is late.
    pub(super) late_after: u64,
    pub(super) watch: &'w dyn Watch,
}

impl<'w> Limits<'w> {
    /// Limits for a database with this many bytes in memory. The log may grow by the bytes between two
    /// checkpoints, or by those in memory. Recovery then takes at most twice as long as for the checkpoint
    /// alone.
    pub(super) fn of(options: &Settings, memory_bytes: usize, watch: &'w dyn Watch) -> Limits<'w> {
        // If one thread steps all helpers, no other thread gains from its rests.
        let (share, bytes_per_second) = match options.step_helpers {
            true => (100, None),
            false => (options.checkpoint_share, options.checkpoint_bytes_per_second),
        };
        let late_after = options.checkpoint_bytes.unwrap_or(CHECKPOINT_BYTES).max(memory_bytes as u64);
        Limits { share, bytes_per_second, late_after, watch }
    }
}

/// A clock and a sensor for idle processors.
pub(super) trait Watch: Sync {
    /// The time since some fixed moment.
    fn time(&self) -> Duration;

    /// Sleeps.
    fn sleep(&self, time: Duration);

    /// The percentage of its time that each thread may work without taking it from transactions.
    fn idle(&self) -> f64;
}

/// The machine's clock and load, beside the transactions of a database.
pub(super) struct Machine<'i> {
    inner: &'i Inner,
    persistence: &'i Persistence,
    /// Threads that share the idle processors.
    threads: f64,
    load: Mutex<Load>,
}

/// The load of transactions and log, in processors, averaged over about [`LOAD_TIME`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    average: f64,
    /// When the load was measured last, and the flush time of the log up to then.
    at: Duration,
    flushed: Duration,
}

/// The time after which the average has mostly followed a change of the load.
const LOAD_TIME: Duration = Duration::from_millis(30);

/// The shortest interval between two measurements: shorter ones say nothing about the log.
const LOAD_LOOK: Duration = Duration::from_millis(1);

/// For each processor that runs transactions, another is assumed for their clients.
const LOAD_OF_WORKERS: f64 = 2.0;

impl Load {
    /// The initial load, with this many busy workers.
    pub(super) fn new(busy: usize, at: Duration, flushed: Duration) -> Load {
        Load { average: LOAD_OF_WORKERS * busy as f64, at, flushed }
    }

    /// Measures again. Returns the new average.
    pub(super) fn look(
        &mut self,
        busy: impl FnOnce() -> usize,
        at: Duration,
        flushed: impl FnOnce() -> Duration,
    ) -> f64 {
        let passed = at.saturating_sub(self.at);
        if passed >= LOAD_LOOK {
            let flushed = flushed();
            let flushing = flushed.saturating_sub(self.flushed).as_secs_f64() / passed.as_secs_f64();
            let weight = (passed.as_secs_f64() / LOAD_TIME.as_secs_f64()).min(1.0);
            self.average += weight * (LOAD_OF_WORKERS * busy() as f64 + flushing - self.average);
            (self.at, self.flushed) = (at, flushed);
        }
        self.average
    }
}

impl<'i> Machine<'i> {
    pub(super) fn new(inner: &'i Inner, persistence: &'i Persistence) -> Machine<'i> {
        let flushed = persistence.log().statistics().flush_time;
        let load = Load::new(inner.pool.busy(), now(), flushed);
        let threads = inner.options.helpers() as f64;
        Machine { inner, persistence, threads, load: Mutex::new(load) }
    }
}

fn now() -> Duration {
    Duration::from_nanos(Instant::now().nanoseconds())
}

impl Watch for Machine<'_> {
    fn time(&self) -> Duration {
        now()
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }

    fn idle(&self) -> f64 {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        let load = load.look(|| self.inner.pool.busy(), now(), || self.persistence.log().statistics().flush_time);
        100.0 * (thread::processors() as f64 - load) / self.threads
    }
}

/// Makes one thread work for its share of the time.
pub(super) struct Throttle<'w> {
    /// Percent.
    share: f64,
    /// When it ended its last rest.
    since: Duration,
    watch: &'w dyn Watch,
}

impl<'w> Throttle<'w> {
    pub(super) fn new(limits: Limits<'w>) -> Throttle<'w> {
        Throttle { share: f64::from(limits.share), since: limits.watch.time(), watch: limits.watch }
    }

    /// Rests if the work since the last rest is worth it, and for at least `ahead`. `haste` returns the current
    /// multiple of the share. Returns whether the database is still open.
    #[must_use]
    pub(super) fn rest(&mut self, ahead: Duration, haste: &dyn Fn() -> u64, is_closing: &dyn Fn() -> bool) -> bool {
        let worked = self.watch.time().saturating_sub(self.since);
        if worked < WORK_MIN && ahead.is_zero() {
            return !is_closing();
        }
        let share = self.share * haste() as f64;
        let mut rested = Duration::ZERO;
        while !is_closing() {
            // The number of idle processors may change during the rest.
            let share = if share < 100.0 { share.max(self.watch.idle()) } else { share };
            let rest = worked.mul_f64((100.0 / share - 1.0).max(0.0)).max(ahead);
            if rested >= rest {
                self.since = self.watch.time();
                return true;
            }
            let slice = (rest - rested).min(SLICE);
            self.watch.sleep(slice);
            rested += slice;
        }
        false
    }
}
