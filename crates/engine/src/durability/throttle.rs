//! How much of the time a thread of a checkpoint works, and how fast it writes.
//!
//! Invariant: for each time it worked, it rests for as long as its share says, or until its writes keep to the rate, whichever is
//! longer: what it waits for the rate is rest, and no work. Nothing is pinned or locked meanwhile. However long a rest is, it ends
//! soon after the database is closed.
//!
//! The share is what it works beside transactions. Processors that transactions leave idle it uses besides: its share is never below
//! its part of them. How many that are is estimated from how often workers are found busy, and from the time that the log flushes.
//!
//! Rows that are inserted faster than they are passed would keep a checkpoint from its end, and the log from being cut: so one that
//! is late works for twice its share, then for three times, and at last only waits for the rate.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

use super::persistence::Persistence;
use crate::engine::Inner;
use crate::settings::{CHECKPOINT_BYTES, Settings};

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

impl<'w> Limits<'w> {
    /// Of a database that takes so many bytes of memory. The log may grow by what is between two checkpoints, or as large as what is in memory:
    /// recovery then takes no more than twice as long as for the checkpoint alone.
    pub(super) fn of(options: &Settings, memory_bytes: usize, watch: &'w dyn Watch) -> Limits<'w> {
        // Where one thread steps everything, nobody waits for its rests.
        let (share, bytes_per_second) = match options.step_helpers {
            true => (100, None),
            false => (options.checkpoint_share, options.checkpoint_bytes_per_second),
        };
        let late_after = options.checkpoint_bytes.unwrap_or(CHECKPOINT_BYTES).max(memory_bytes as u64);
        Limits { share, bytes_per_second, late_after, watch }
    }
}

/// Tells the time and what transactions leave idle, and passes the time.
pub(super) trait Watch: Sync {
    /// The time since some moment.
    fn time(&self) -> Duration;

    /// Sleeps.
    fn sleep(&self, time: Duration);

    /// The part of its time, in percent, that each thread may work without taking it from transactions.
    fn idle(&self) -> f64;
}

/// The machine's, beside the transactions of a database.
pub(super) struct Machine<'i> {
    inner: &'i Inner,
    persistence: &'i Persistence,
    /// Threads that share what is idle.
    threads: f64,
    load: Mutex<Load>,
}

/// What transactions and log take, in processors, on average over about [`LOAD_TIME`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    average: f64,
    /// When it was last looked at, and how long the log had flushed by then.
    at: Duration,
    flushed: Duration,
}

/// The time after which a change of the load is seen for the most part.
const LOAD_TIME: Duration = Duration::from_millis(30);

/// Looks that are closer together tell nothing of the log.
const LOAD_LOOK: Duration = Duration::from_millis(1);

/// For each processor that runs transactions, another is taken for what their clients do between them.
const LOAD_OF_WORKERS: f64 = 2.0;

impl Load {
    /// At first, with so many workers busy.
    pub(super) fn new(busy: usize, at: Duration, flushed: Duration) -> Load {
        Load { average: LOAD_OF_WORKERS * busy as f64, at, flushed }
    }

    /// Another look. What it comes to now.
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

/// Has one thread work for its share of the time.
pub(super) struct Throttle<'w> {
    /// Percent.
    share: f64,
    /// When it last had rested.
    since: Duration,
    watch: &'w dyn Watch,
}

impl<'w> Throttle<'w> {
    pub(super) fn new(limits: Limits<'w>) -> Throttle<'w> {
        Throttle { share: f64::from(limits.share), since: limits.watch.time(), watch: limits.watch }
    }

    /// Rests if there was work enough for a rest, and for `ahead` at least; `haste` tells how many times its share it works by now. Whether
    /// the database is still open.
    #[must_use]
    pub(super) fn rest(&mut self, ahead: Duration, haste: &dyn Fn() -> u64, is_closing: &dyn Fn() -> bool) -> bool {
        let worked = self.watch.time().saturating_sub(self.since);
        if worked < WORK_MIN && ahead.is_zero() {
            return !is_closing();
        }
        let share = self.share * haste() as f64;
        let mut rested = Duration::ZERO;
        while !is_closing() {
            // What is idle may change while it rests.
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
