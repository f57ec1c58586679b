//! The one way a chain changes: latch the word at the value it had when the change was planned, store, unlatch.
//!
//! A plan is made by optimistic reading, outside. Latching at exactly the value read validates it: nothing of the chain
//! has changed, and no split has moved keys. So a body is a few stores long, in a region or with latches, and allocates
//! nothing. A plan that came too late costs a second lookup. Latching and unlatching are stores in regions too: an
//! emulated region, or a reader beside a fallback, sees one word at a time.

use super::bucket::Bucket;
use crate::node_version::State;
use crate::observer::Observer;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_htm::{Access, Body, BodyError, Htm, word};

/// The plan came too late: make another.
pub(super) const LATE: u8 = 1;
/// The gate stayed shut: do not change this bucket.
pub(super) const SHUT: u8 = 2;

/// Decides whether a change may happen, while the bucket is latched.
pub(super) trait Gate {
    /// The question has effects that no region could roll back: latch directly.
    const DIRECT: bool;

    fn opens<A: Access>(&mut self, access: &mut A, bucket: &Bucket) -> bool;
}

/// A change that is always allowed.
#[derive(Debug)]
pub(super) struct Open;

impl Gate for Open {
    const DIRECT: bool = false;

    #[inline(always)]
    fn opens<A: Access>(&mut self, _: &mut A, _: &Bucket) -> bool {
        true
    }
}

/// A change that an observer admits.
#[derive(Debug)]
pub(super) struct Admitted<'o, O>(pub(super) &'o mut O);

impl<O: Observer> Gate for Admitted<'_, O> {
    const DIRECT: bool = O::ADMITS;

    #[inline(always)]
    fn opens<A: Access>(&mut self, _: &mut A, bucket: &Bucket) -> bool {
        !O::ADMITS || self.0.admit(&bucket.gap, &bucket.word)
    }
}

/// A change that is allowed only while no transaction holds the gap.
#[derive(Debug)]
pub(super) struct Unheld;

impl Gate for Unheld {
    const DIRECT: bool = false;

    #[inline]
    fn opens<A: Access>(&mut self, access: &mut A, bucket: &Bucket) -> bool {
        if !A::REGION {
            // ORDERING: we latched the word, then look at the gap; a holder of a gap turned it (sequentially
            // consistent), then looks at the word. At least one of the two sees the other.
            fence(Ordering::SeqCst);
        }
        access.load(&bucket.gap) == 0
    }
}

/// A planned change of one chain.
#[derive(Debug)]
pub(super) struct Change<'a, G> {
    pub(super) bucket: &'a Bucket,
    /// The word when the plan was made.
    pub(super) seen: State,
    pub(super) gate: G,
    /// The words and their new values, in this order.
    pub(super) stores: &'a [(&'a AtomicU64, u64)],
}

// SAFETY: the words belong to buckets, directory and overflow lines. The first two live as long as the table. The lines
// were reached by a thread that is online until `run` has returned (rule 2 of the crate). `run` retires the lines that
// it cuts off.
unsafe impl<G: Gate> Body for Change<'_, G> {
    type Output = ();

    #[inline(always)]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<(), BodyError> {
        debug_assert!(!(A::REGION && G::DIRECT));
        let word = &self.bucket.word;
        if !access.lock(word, self.seen.0, self.seen.latched().0) {
            return Err(BodyError::Refused(LATE));
        }
        if !self.gate.opens(access, self.bucket) {
            access.store(word, self.seen.0);
            return Err(BodyError::Refused(SHUT));
        }
        for &(word, value) in self.stores {
            access.store(word, value);
        }
        access.store(word, self.seen.changed().0);
        Ok(())
    }
}

/// Direct mode without fallback lock, for gates that cannot pass in a region: the latch alone protects the
/// chain, and regions refuse a latched one.
#[derive(Debug)]
pub(super) struct Latching<'h>(pub(super) &'h Htm);

impl Access for Latching<'_> {
    const REGION: bool = false;

    #[inline(always)]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        word::load(word)
    }

    #[inline(always)]
    fn store(&mut self, word: &AtomicU64, value: u64) {
        word::store(word, value);
    }

    #[inline(always)]
    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        self.0.outside(|| word::lock(word, unlocked, locked))
    }
}

#[cfg(all(test, loom))]
mod loom_model;
