//! Timestamps, drawn from the clock when a transaction first accesses a record.
//!
//! ```text
//! 63                                                            1      0
//! |   ticks since the clock was first asked   |  number of the worker  | a flag of the word that holds it |
//! ```
//! A tick is 16 ns, or more where there may be more than 2048 workers, so that timestamps last for 2^56 ns, 2.2
//! years of the process, at least. With 64 sessions it is 36 years.
//!
//! Rules:
//! 1. A timestamp is drawn once: its worker's number is in it, and a worker draws upwards; the last is passed
//!    when its number becomes another worker's. Zero is none, and below all.
//! 2. *Passed*: before a transaction commits, or is answered, the clock has gone past its ticks, or the floor
//!    is raised to them. What is drawn later, by whatever worker, is above. With a clock of this resolution it
//!    has gone past by itself, and the floor stays where it is: a word that is read by all and written by
//!    hardly anyone. That holds on x86-64, whose fences order reading the clock too. Elsewhere each commit
//!    raises the floor.
//! 3. A database has one clock for its life, which does not go back. (Of simulated cores: their virtual clocks,
//!    and what comes before and after the run is at a time of theirs.)
//!
//! So if a timestamp is above that of an attempt, its transaction had not committed when the attempt drew. The
//! order of timestamps agrees with real time, and whatever an attempt may still need of old versions was
//! replaced after its worker came online (`README.md`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use seriatim_base::clock::Instant;
use seriatim_base::thread::Touch;
use seriatim_base::{CacheAligned, WorkerId};
use seriatim_memory::Memory;

/// A tick of 16 ns is above the resolution of processors' clocks as they are read; a transaction takes longer.
const TICK_SHIFT: u32 = 4;

/// Bits of numbers of workers with ticks of that length; for each further one they are twice as long.
const WORKER_BITS: u32 = 11;

/// Whether a fence orders reading the clock among accesses to memory: on x86-64 `mfence`, and `lfence` before
/// `rdtsc`, which the platform's clock has. Elsewhere the floor, a word in memory, does.
const FENCES_ORDER_THE_CLOCK: bool = cfg!(target_arch = "x86_64");

#[cfg(test)]
const NOT_TOLD: u64 = u64::MAX;

/// Of this many workers: the bits of nanoseconds in a tick, and those below the ticks.
fn shifts(workers_max: usize) -> (u32, u32) {
    let worker_bits = usize::BITS - (workers_max - 1).leading_zeros();
    (TICK_SHIFT + worker_bits.saturating_sub(WORKER_BITS), worker_bits + 1)
}

/// The timestamps of one database.
#[derive(Debug)]
pub(super) struct Clock {
    /// Ticks that have been passed whatever the clock says.
    floor: CacheAligned<AtomicU64>,
    /// Of nanoseconds in a tick.
    tick_shift: u32,
    /// Of ticks in a timestamp.
    ticks_shift: u32,
    /// In tests what the clock is told to say, if anything.
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

    /// Draws a timestamp for a worker whose last one was `last`. The worker is online.
    pub(super) fn draw(&self, worker: WorkerId, last: u64) -> u64 {
        // ORDERING: the worker is online, and has read what is to be older, before the floor and, where fences
        // order it, the clock are read; partner of the fence in `pass`.
        fence(Ordering::SeqCst);
        crate::step(Touch::Header, &*self.floor);
        let floor = self.floor.load(Ordering::SeqCst);
        let ticks = self.ticks().max(floor + 1).max((last >> self.ticks_shift) + 1);
        assert!(ticks.leading_zeros() >= self.ticks_shift, "timestamps are exhausted: restart the database");
        ticks << self.ticks_shift | u64::from(worker.0) << 1
    }

    /// The newest timestamp that there can be below all that are drawn from now on, as far as is known; a fence
    /// follows. What was passed before is not above it.
    pub(super) fn passed(&self) -> u64 {
        crate::step(Touch::Header, &*self.floor);
        let floor = self.floor.load(Ordering::SeqCst);
        let ticks = if FENCES_ORDER_THE_CLOCK { floor.max(self.ticks().saturating_sub(1)) } else { floor };
        (ticks << self.ticks_shift) | ((1 << self.ticks_shift) - 1)
    }

    /// Sees to it that what is drawn from now on is above this timestamp. (Rule 2.)
    pub(super) fn pass(&self, timestamp: u64) {
        let ticks = timestamp >> self.ticks_shift;
        if !FENCES_ORDER_THE_CLOCK || self.ticks() <= ticks {
            crate::step(Touch::Exchange, &*self.floor);
            self.floor.fetch_max(ticks, Ordering::SeqCst);
        }
        // ORDERING: whatever makes the transaction visible comes after it.
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
