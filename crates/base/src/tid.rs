//! TIDs order the versions of a key for ever. Epochs group commits for durability.
//!
//! ```text
//! TID, 60 bits:   epoch 45 | counter 15
//! TID word, 64:   TID 60 | flags 4      (each protocol defines the flags)
//! ```
//! 45 bits of epochs last 139 years at 8,000 a second, and 11,000 years at one every 10 ms. [`Tid::next`] checks that
//! bound. 15 bits count 32,768 commits that depend on each other. A worker whose commit is [late](Tid::is_late) in its
//! epoch ends the epoch before its next commit. So each worker adds at most one late commit to an epoch, or one
//! transaction in pieces, and the counter does not run over.

/// A group of commits that become durable together. Advanced by a ticker, never by a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The position of a committed version among all versions of its key: epoch and counter. Zero: never committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(u64);

impl Tid {
    /// Bits of the counter.
    pub const COUNTER_BITS: u32 = 15;
    /// Bits of a TID; a TID word has `64 - BITS` left for flags.
    pub const BITS: u32 = 60;
    /// The TID of a key that was never committed.
    pub const ZERO: Tid = Tid(0);
    const EPOCH_MAX: u64 = (1 << (Self::BITS - Self::COUNTER_BITS)) - 1;
    /// The first counter that is late: three quarters of an epoch are left for commits of other workers.
    const LATE: u64 = 1 << (Self::COUNTER_BITS - 2);
    /// The number of counters that are late.
    pub const LATE_COUNT: u64 = 3 * Self::LATE;

    /// The first TID of an epoch.
    pub const fn first_of(epoch: Epoch) -> Tid {
        assert!(epoch.0 <= Self::EPOCH_MAX, "epochs are exhausted: restart the database");
        Tid(epoch.0 << Self::COUNTER_BITS)
    }

    /// A TID from its bits, as [`Tid::bits`] gave them.
    pub const fn from_bits(bits: u64) -> Tid {
        assert!(bits >> Self::BITS == 0);
        Tid(bits)
    }

    /// The bits. They are ordered as TIDs are, and below 2^60.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The epoch this TID was assigned in.
    #[inline]
    pub const fn epoch(self) -> Epoch {
        Epoch(self.0 >> Self::COUNTER_BITS)
    }

    /// Whether a quarter of the epoch's counter is used up, so that the epoch has to end.
    #[inline]
    pub const fn is_late(self) -> bool {
        self.counter() >= Self::LATE
    }

    const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }

    /// The smallest TID above `self` in `epoch` or a later epoch.
    ///
    /// # Panics
    /// If the counter of an epoch ran over. It would carry into the next epoch, and a checkpoint that begins there
    /// could miss the commit.
    #[inline]
    pub fn next(self, epoch: Epoch) -> Tid {
        let first = Tid::first_of(epoch);
        let next = Tid(self.0 + 1).max(first);
        assert!(next.counter() != 0 || next == first, "the TIDs of an epoch ran over: too few epochs were ended");
        next
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.epoch().0, self.counter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_is_strictly_above_and_in_the_epoch() {
        let a = Tid::ZERO.next(Epoch(3));
        assert_eq!(a.epoch(), Epoch(3));
        let b = a.next(Epoch(3));
        assert!(b > a && b.epoch() == Epoch(3));
        assert!(b.next(Epoch(2)) > b, "an old epoch never moves a TID back");
        assert_eq!(b.next(Epoch(9)).epoch(), Epoch(9));
    }
    #[test]
    fn a_tid_is_late_when_a_quarter_of_the_counter_is_used_up() {
        let first = Tid::first_of(Epoch(7));
        let at = |counter| Tid::from_bits(first.bits() + counter);
        assert!(!first.is_late() && !at(Tid::LATE - 1).is_late());
        assert!(at(Tid::LATE).is_late() && at(4 * Tid::LATE - 1).is_late());
        assert!(!at(4 * Tid::LATE).is_late(), "the first of the next epoch");
        let last = Tid::first_of(Epoch(Tid::EPOCH_MAX));
        assert_eq!(last.next(Epoch(1)).epoch(), Epoch(Tid::EPOCH_MAX));
    }

    #[test]
    fn the_last_tid_of_an_epoch_has_one_above_it_in_a_later_epoch() {
        let last = Tid::from_bits(Tid::first_of(Epoch(8)).bits() - 1);
        assert_eq!(last.next(Epoch(8)), Tid::first_of(Epoch(8)));
        assert_eq!(last.next(Epoch(9)), Tid::first_of(Epoch(9)));
    }

    #[test]
    #[should_panic(expected = "ran over")]
    fn canary_a_counter_that_runs_over_is_noticed() {
        let last = Tid::from_bits(Tid::first_of(Epoch(8)).bits() - 1);
        last.next(Epoch(7));
    }
}
