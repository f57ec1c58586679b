//! Timestamps, which a transaction draws from the clock at its first access to a record.
//!
//! ```text
//! 63                                                            1      0
//! |   ticks since the clock was first asked   |  number of the worker  | a flag of the word that holds it |
//! ```
//! A tick is 16 ns, or more if there may be more than 2048 workers. So timestamps last for at least 2^56 ns,
//! which is 2.2 years of the process. With 64 sessions they last 36 years.
//!
//! Rules:
//! 1. A timestamp is drawn once. It contains the worker's number, and each worker's timestamps rise. The last
//!    one is passed before another worker gets the number. Zero is below all timestamps, and means none.
//! 2. *Passing* a timestamp: before a transaction commits or gets an answer, the clock has advanced beyond its
//!    ticks, or the floor is raised to them. So every later timestamp of any worker is higher. A clock of this
//!    resolution has nearly always advanced by itself, so all workers read the floor and hardly any writes it.
//!    That holds on x86-64, whose fences also order reading the clock. Elsewhere each commit raises the floor.
//! 3. A database has one clock for its life, which does not go back. (Simulated cores have virtual clocks;
//!    accesses before and after the run happen at virtual times.)
//!
//! So if a transaction has a higher timestamp than an attempt, it had not committed when the attempt drew. The
//! order of timestamps agrees with real time. Old versions that an attempt may need were replaced after its
//! worker came online (`README.md`).

use seriatim_base::clock::Instant;
use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{CacheAligned, WorkerId};
use seriatim_memory::Memory;

/// A tick of 16 ns is longer than the resolution of processors' clocks, and shorter than a transaction.
const TICK_SHIFT: u32 = 4;

/// The bits of worker numbers at that length of a tick. Each further bit doubles it.
const WORKER_BITS: u32 = 11;

/// Whether a fence orders reading the clock among memory accesses. On x86-64 it does: `mfence`, with the `lfence`
/// before `rdtsc` of the platform's clock. Elsewhere the floor, which is a word in memory, has to order them.
const FENCES_ORDER_THE_CLOCK: bool = cfg!(target_arch = "x86_64");

#[cfg(test)]
const NOT_TOLD: u64 = u64::MAX;

/// For this many workers: the bits of nanoseconds in a tick, and the bits below the ticks.
fn shifts(workers_max: usize) -> (u32, u32) {
    let worker_bits = usize::BITS - (workers_max - 1).leading_zeros();
    (TICK_SHIFT + worker_bits.saturating_sub(WORKER_BITS), worker_bits + 1)
}

/// The timestamps of one database.
#[derive(Debug)]
pub(super) struct Clock {
    /// Ticks that have been passed, whatever the clock shows.
    floor: CacheAligned<AtomicU64>,
    /// The bits of nanoseconds in a tick.
    tick_shift: u32,
    /// The bits below the ticks in a timestamp.
    ticks_shift: u32,
    /// The time that a test sets, if any.
    #[cfg(test)]
    pub(super) told: AtomicU64,
}

impl Clock {
    pub(super) fn new(memory: &Memory) -> Clock {
        let (tick_shift, ticks_shift) = shifts(memory.workers_max());
        Clock {
            floor: CacheAligned::default(),
            tick_shift,
            ticks_shift,
            #[cfg(test)]
            told: AtomicU64::new(NOT_TOLD),
        }
    }

    fn ticks(&self) -> u64 {
        #[cfg(test)]
        let told = self.told.load(Ordering::SeqCst);
        #[cfg(test)]
        if told != NOT_TOLD {
            return told;
        }
        Instant::now().nanoseconds() >> self.tick_shift
    }

    /// Draws a timestamp for an online worker whose last one was `last`.
    pub(super) fn draw(&self, worker: WorkerId, last: u64) -> u64 {
        // ORDERING: the worker came online, and has read what must be older, before it reads the floor and, if
        // fences order it, the clock. Pairs with the fence in `pass`.
        fence(Ordering::SeqCst);
        crate::step(Touch::Header, &*self.floor);
        let floor = self.floor.load(Ordering::SeqCst);
        let ticks = self.ticks().max(floor + 1).max((last >> self.ticks_shift) + 1);
        assert!(ticks.leading_zeros() >= self.ticks_shift, "timestamps are exhausted: restart the database");
        ticks << self.ticks_shift | u64::from(worker.0) << 1
    }

    /// A recent timestamp below all that will be drawn from now on. The caller must fence afterwards. It is not
    /// below any timestamp that was passed before.
    pub(super) fn passed(&self) -> u64 {
        crate::step(Touch::Header, &*self.floor);
        let floor = self.floor.load(Ordering::SeqCst);
        let ticks = if FENCES_ORDER_THE_CLOCK { floor.max(self.ticks().saturating_sub(1)) } else { floor };
        (ticks << self.ticks_shift) | ((1 << self.ticks_shift) - 1)
    }

    /// Ensures that every timestamp drawn from now on is above this one (rule 2).
    pub(super) fn pass(&self, timestamp: u64) {
        let ticks = timestamp >> self.ticks_shift;
        if !FENCES_ORDER_THE_CLOCK || self.ticks() <= ticks {
            crate::step(Touch::Exchange, &*self.floor);
            self.floor.fetch_max(ticks, Ordering::SeqCst);
        }
        // ORDERING: the transaction becomes visible only after this fence.
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::shifts;

    #[test]
    fn timestamps_last_two_years_at_least_and_hold_each_number() {
        for workers in [1, 2, 80, 128, 129, 2048, 2049, 4096, 4112, usize::from(u16::MAX) + 1] {
            let (tick, ticks) = shifts(workers);
            assert!((workers - 1) << 1 < 1 << ticks, "{workers}");
            assert!(64 - ticks + tick >= 56 && tick >= 4, "{workers}");
        }
        assert_eq!((shifts(80), shifts(4112)), ((4, 8), (6, 14)));
    }
}
