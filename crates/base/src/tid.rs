//! TIDs order the versions of a key for ever. Epochs group commits for durability.
//!
//! ```text
//! TID, 60 bits:   epoch 34 | counter 26
//! TID word, 64:   TID 60 | flags 4      (what the flags mean belongs to each protocol)
//! ```
//! At one epoch every 10 ms, 34 bits last 5.4 years of uptime. 2^26 dependent commits in one epoch would take over 60
//! ms at a nanosecond each. Both bounds are checked where TIDs are made ([`Tid::next`]).

/// A group of commits that become durable together. Advanced by a ticker, never by a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The position of a committed version among all versions of its key: epoch and counter. Zero: never committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(u64);

impl Tid {
    /// Bits of the counter.
    pub const COUNTER_BITS: u32 = 26;
    /// Bits of a TID; a TID word has `64 - BITS` left for flags.
    pub const BITS: u32 = 60;
    /// The TID of a key that was never committed.
    pub const ZERO: Tid = Tid(0);
    const EPOCH_MAX: u64 = (1 << (Self::BITS - Self::COUNTER_BITS)) - 1;

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

    /// The smallest TID above `self` in `epoch` or a later epoch. If one epoch ever held 2^26 dependent
    /// commits, the counter would carry into the next epoch. The order would be kept, and the assertion in
    /// [`Tid::first_of`] would still bound epochs.
    #[inline]
    pub fn next(self, epoch: Epoch) -> Tid {
        let next = Tid(self.0 + 1).max(Tid::first_of(epoch));
        assert!(next.0 >> Self::BITS == 0, "TIDs are exhausted: restart the database");
        next
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.epoch().0, self.0 & ((1 << Self::COUNTER_BITS) - 1))
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
}
