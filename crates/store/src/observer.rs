//! How a transaction learns about the membership changes that its own operation makes, and how a protocol that
//! locks gaps is asked for leave.

use std::sync::atomic::AtomicU64;

/// The gap word of a leaf that left the tree: no lock on it can be taken any more, its keys belong to another leaf.
pub const GAP_CLOSED: u64 = u64::MAX;

/// Told about the changes of one operation, in the thread that runs it.
///
/// A leaf's or bucket's *gap word* belongs to the protocol, except that 0 means "nobody holds anything here" and
/// [`GAP_CLOSED`] is final: a leaf whose gap word is not 0 is never unlinked.
pub trait Observer {
    /// Whether [`Observer::admit`] must be asked. If so, operations latch nodes one by one and never run in a region, for
    /// what `admit` does to the gap word could not be rolled back. Protocols that validate set this to `false`.
    const ADMITS: bool = true;

    /// Whether a removal may leave a leaf without records where its gap is held, and so the leaf cannot be unlinked with the last of
    /// them. If not, that record stays, and the removal answers `false`: ask again once the gap is let go.
    const EMPTIES: bool = true;

    /// Called with the leaf or bucket latched, before a record is linked. `false`: the operation answers
    /// [`Inserted::Refused`](crate::Inserted::Refused) and changes nothing. May run several times in one operation.
    fn admit(&mut self, gap: &AtomicU64, word: &AtomicU64) -> bool {
        let _ = (gap, word);
        true
    }

    /// What the gap word of a new leaf begins with, when the leaf of `gap` is split after [`Observer::admit`] was asked: as much as
    /// the operation's own transaction holds of `gap`, since its key range is divided. Others may count in `gap` for a moment,
    /// until they see that the leaf is latched; they do not know of the new leaf and would never let go of it.
    fn inherit(&mut self, gap: &AtomicU64) -> u64 {
        let _ = gap;
        0
    }

    /// This leaf's or bucket's word went from `before` to `after` by this operation and nothing else: a transaction that
    /// noted `before` may go on with `after`. Not called for a leaf that was unlinked because it became empty: its
    /// keys belong to another leaf now, and a transaction that noted it must fail.
    fn changed(&mut self, word: &AtomicU64, before: u64, after: u64) {
        let _ = (word, before, after);
    }

    /// A split moved part of the leaf or bucket `from`, whose word was `from_before`, to a new one, whose word is `value` and
    /// whose gap word was set to what [`Observer::inherit`] said: a transaction that noted `from` must note both.
    /// [`Observer::changed`] is called for `from` too, before this.
    fn created(&mut self, from: &AtomicU64, from_before: u64, word: &AtomicU64, value: u64, gap: &AtomicU64) {
        let _ = (from, from_before, word, value, gap);
    }
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    const ADMITS: bool = false;
}

/// Nobody wants to know; but no leaf is to be left empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tidy;

impl Observer for Tidy {
    const ADMITS: bool = false;
    const EMPTIES: bool = false;
}
