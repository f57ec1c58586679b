//! The outcomes of the regions that an agent started.

use std::ops::{Add, AddAssign};

/// Counts of one agent, or sums over several. `started == committed + aborted.total()`. All zero where the
/// back end is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionStatistics {
    /// Regions begun, retries included.
    pub started: u64,
    /// Regions that committed.
    pub committed: u64,
    /// Regions that did not, by cause.
    pub aborted: Aborted,
    /// Bodies run under the fallback locks instead.
    pub fallback: u64,
    /// Regions begun although the last look had not found the fallback locks free. Must stay zero.
    pub begun_while_locked: u64,
}

/// Aborted regions by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aborted {
    /// Another thread touched a line of the region.
    pub conflict: u64,
    /// The region outgrew the processor's buffers.
    pub capacity: u64,
    /// The region ended itself: a lock was held, or the body refused.
    pub explicit: u64,
    /// Everything else: page fault, interrupt, system call, an instruction regions cannot hold.
    pub system: u64,
}

impl Aborted {
    /// Aborts of any cause.
    pub fn total(&self) -> u64 {
        self.conflict + self.capacity + self.explicit + self.system
    }
}

impl RegionStatistics {
    /// The counts since `earlier`, which is of the same agents. Zero where `earlier` is ahead.
    pub fn since(self, earlier: &RegionStatistics) -> RegionStatistics {
        RegionStatistics {
            started: self.started.saturating_sub(earlier.started),
            committed: self.committed.saturating_sub(earlier.committed),
            aborted: Aborted {
                conflict: self.aborted.conflict.saturating_sub(earlier.aborted.conflict),
                capacity: self.aborted.capacity.saturating_sub(earlier.aborted.capacity),
                explicit: self.aborted.explicit.saturating_sub(earlier.aborted.explicit),
                system: self.aborted.system.saturating_sub(earlier.aborted.system),
            },
            fallback: self.fallback.saturating_sub(earlier.fallback),
            begun_while_locked: self.begun_while_locked.saturating_sub(earlier.begun_while_locked),
        }
    }
}

impl Add for RegionStatistics {
    type Output = RegionStatistics;

    fn add(self, other: RegionStatistics) -> RegionStatistics {
        RegionStatistics {
            started: self.started + other.started,
            committed: self.committed + other.committed,
            aborted: Aborted {
                conflict: self.aborted.conflict + other.aborted.conflict,
                capacity: self.aborted.capacity + other.aborted.capacity,
                explicit: self.aborted.explicit + other.aborted.explicit,
                system: self.aborted.system + other.aborted.system,
            },
            fallback: self.fallback + other.fallback,
            begun_while_locked: self.begun_while_locked + other.begun_while_locked,
        }
    }
}

impl AddAssign for RegionStatistics {
    fn add_assign(&mut self, other: RegionStatistics) {
        *self = *self + other;
    }
}
