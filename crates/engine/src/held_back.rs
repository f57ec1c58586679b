//! The memory that a snapshot, or an explicit transaction between its calls, keeps from being reused.
//!
//! Rows that are replaced or deleted while it is open may be read by it, so they stay in memory. Memory
//! that is in use and belongs to no table is *waste*; it grows while the snapshot is open. Earlier waste is
//! freed meanwhile, so the growth counts from the least waste seen. The growth is at least what the snapshot
//! holds back, less its part of that least waste. It also includes what open closures and procedures have written.

use crate::cancel::Deadline;
use crate::settings::Settings;

/// By default at least this part of the memory limit is permitted.
const PART_MIN: usize = 64;

/// How much one transaction may hold back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    bytes: Option<usize>,
    least: usize,
}

impl Bound {
    pub(crate) fn new(settings: &Settings) -> Bound {
        let least = settings.limit_bytes().map_or(usize::MAX, |limit| limit / PART_MIN);
        Bound { bytes: settings.snapshot_bytes_max, least }
    }

    /// A transaction begins, with `waste` bytes of waste and `free` bytes below the limit.
    pub(crate) fn begin(self, waste: usize, free: usize) -> HeldBack {
        HeldBack { waste_least: waste, bytes_max: self.bytes.unwrap_or((free / 2).max(self.least)) }
    }
}

/// An open transaction that may hold memory back: a snapshot, or an explicit transaction.
pub(crate) struct Holder {
    pub(crate) deadline: Deadline,
    /// Bytes that it wrote. They belong to no table yet, and nobody holds them back.
    pub(crate) wrote: usize,
    /// Whether it may be ended now.
    pub(crate) ends: bool,
}

/// How much a transaction holds back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldBack {
    waste_least: usize,
    bytes_max: usize,
}

impl HeldBack {
    /// Whether the transaction holds back more than it may, with this much waste now.
    pub(crate) fn exceeds(&mut self, waste: usize) -> bool {
        self.waste_least = self.waste_least.min(waste);
        waste - self.waste_least > self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_held_back_counts_from_the_least_waste() {
        let mut held = Bound { bytes: Some(100), least: 0 }.begin(1000, 0);
        assert!(!held.exceeds(1100));
        assert!(!held.exceeds(500) && !held.exceeds(600), "others held the waste from before");
        assert!(held.exceeds(601));
    }

    #[test]
    fn half_of_what_is_free_is_permitted_by_default() {
        let bound = |limit| Bound::new(&Settings { memory_limit: Some(limit), ..Settings::default() });
        let mut held = bound(6400).begin(0, 1000);
        assert!(!held.exceeds(500) && held.exceeds(501));
        let mut held = bound(6400).begin(0, 20);
        assert!(!held.exceeds(100) && held.exceeds(101), "a little is always permitted");
        assert!(!bound(usize::MAX).begin(0, usize::MAX).exceeds(usize::MAX / 2));
    }
}
