//! Timestamps, drawn from the clock when a transaction first accesses a record.
//!
//! ```text
//! 63                                                            1      0
//! |  ticks of 16 ns since the process began  |  number of the worker  | a flag of the word that holds it |
//! ```
//! Rules:
//! 1. A timestamp is drawn once: its worker's number is in it, and a worker draws upwards. Zero is none, and below all.
//! 2. *Passed*: before a transaction commits, or is answered, the clock has gone past its ticks, or the floor is raised to them. What is
//!    drawn later, by whatever worker, is above. With a clock of this resolution it has gone past by itself, and the floor stays where it
//!    is: a word that is read by all and written by hardly anyone.
//!
//! So if a timestamp is above that of an attempt, its transaction had not committed when the attempt drew. The order of timestamps agrees
//! with real time, and whatever an attempt may still need of old versions was replaced after its worker came online (`README.md`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use seriatim_base::clock::Instant;
use seriatim_base::thread::Touch;
use seriatim_base::{CacheAligned, WorkerId};
use seriatim_memory::Memory;

/// One below the resolution of processors' clocks as they are read; a transaction takes longer.
const TICK_NANOSECONDS: u64 = 16;

#[cfg(test)]
const NOT_TOLD: u64 = u64::MAX;

/// The timestamps of one database.
#[derive(Debug)]
pub(super) struct Clock {
    /// Ticks that have been passed whatever the clock says.
    floor: CacheAligned<AtomicU64>,
    ticks_shift: u32,
    /// In tests what the clock is told to say, if anything.
    #[cfg(test)]
    pub(super) told: AtomicU64,
}

impl Clock {
    pub(super) fn new(memory: &Memory) -> Clock {
        let worker_bits = usize::BITS - memory.workers_max().leading_zeros();
        Clock {
            floor: CacheAligned::default(),
            ticks_shift: worker_bits + 1,
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
        Instant::now().nanoseconds() / TICK_NANOSECONDS
    }

    /// Draws a timestamp for a worker whose last one was `last`. The worker is online.
    pub(super) fn draw(&self, worker: WorkerId, last: u64) -> u64 {
        // ORDERING: the worker is online, and has read what is to be older, before the clock is read; partner of the fence in `pass`.
        fence(Ordering::SeqCst);
        crate::step(Touch::Header, &*self.floor);
        let floor = self.floor.load(Ordering::SeqCst);
        let ticks = self.ticks().max(floor + 1).max((last >> self.ticks_shift) + 1);
        assert!(ticks.leading_zeros() >= self.ticks_shift, "timestamps are exhausted: restart the database");
        ticks << self.ticks_shift | u64::from(worker.0) << 1
    }

    /// Sees to it that what is drawn from now on is above this timestamp. (Rule 2.)
    pub(super) fn pass(&self, timestamp: u64) {
        let ticks = timestamp >> self.ticks_shift;
        if self.ticks() <= ticks {
            crate::step(Touch::Exchange, &*self.floor);
            self.floor.fetch_max(ticks, Ordering::SeqCst);
        }
        // ORDERING: whatever makes the transaction visible comes after it.
        fence(Ordering::SeqCst);
    }
}
