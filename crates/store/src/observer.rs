//! How a transaction observes the membership changes of its own operations, and how a protocol that locks gaps
//! admits changes.

use seriatim_base::word::AtomicU64;

/// The gap word of a leaf that left the tree: no lock on it can be taken any more, its keys belong to another leaf.
pub const GAP_CLOSED: u64 = u64::MAX;

/// Told about the changes of one operation, in the thread that runs it.
///
/// A leaf's or bucket's *gap word* belongs to the protocol, except that 0 means "not held" and [`GAP_CLOSED`] is final.
/// A leaf whose gap word is not 0 is never unlinked.
pub trait Observer {
    /// Whether [`Observer::admit`] must be called. If so, operations latch nodes one by one and never run in a region.
    /// A region could not roll back a change of the gap word by `admit`. Protocols that validate set this to `false`.
    const ADMITS: bool = true;

    /// Whether a removal may leave a leaf without records while its gap is held, so that the leaf cannot be
    /// unlinked with the last record. If not, that record stays, and the removal returns `false`: try again
    /// once the gap is released.
    const EMPTIES: bool = true;

    /// Called with the leaf or bucket latched, before a record is linked. `false`: the operation answers
    /// [`Inserted::Refused`](crate::Inserted::Refused) and changes nothing. May run several times in one operation.
    fn admit(&mut self, gap: &AtomicU64, word: &AtomicU64) -> bool {
        let _ = (gap, word);
        true
    }

    /// The initial gap word of a new leaf, when the leaf of `gap` is split after [`Observer::admit`] was called. It has
    /// the operation's own holds of `gap`, since its key range is divided. Other transactions may count in `gap` for a
    /// moment, until they see that the leaf is latched. They do not know the new leaf and would never release it.
    fn inherit(&mut self, gap: &AtomicU64) -> u64 {
        let _ = gap;
        0
    }

    /// This leaf's or bucket's word went from `before` to `after` by this operation and nothing else: a
    /// transaction that noted `before` may continue with `after`. Not called for a leaf that was unlinked
    /// because it became empty. Its keys belong to another leaf now, and a transaction that noted it must fail.
    fn changed(&mut self, word: &AtomicU64, before: u64, after: u64) {
        let _ = (word, before, after);
    }

    /// A split moved part of the leaf or bucket `from`, whose word was `from_before`, to a new one with the word
    /// `value`. The new gap word was set to the result of [`Observer::inherit`]. A transaction that noted `from` must
    /// note both. [`Observer::changed`] is called for `from` too, before this.
    fn created(&mut self, from: &AtomicU64, from_before: u64, word: &AtomicU64, value: u64, gap: &AtomicU64) {
        let _ = (from, from_before, word, value, gap);
    }
}

/// Ignores all changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    const ADMITS: bool = false;
}

/// Ignores all changes, but lets no leaf become empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tidy;

impl Observer for Tidy {
    const ADMITS: bool = false;
    const EMPTIES: bool = false;
}
