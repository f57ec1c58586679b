//! Shared words in direct mode: the memory orderings of a body's accesses, in one place.
//!
//! The functions take the standard word or that of a model checker (`--cfg loom`), so that what is checked is
//! what ships.

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};

/// A shared word: the standard one, or loom's.
pub trait Word {
    /// As of the standard word.
    fn load(&self, order: Ordering) -> u64;

    /// As of the standard word.
    fn store(&self, value: u64, order: Ordering);

    /// Turns `from` into `to`, and says whether it did; if not, relaxed.
    fn exchange(&self, from: u64, to: u64, order: Ordering) -> bool;
}

macro_rules! word {
    ($atomic:ty) => {
        impl Word for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> u64 {
                <$atomic>::load(self, order)
            }

            #[inline(always)]
            fn store(&self, value: u64, order: Ordering) {
                <$atomic>::store(self, value, order);
            }

            #[inline(always)]
            fn exchange(&self, from: u64, to: u64, order: Ordering) -> bool {
                self.compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
            }
        }
    };
}

word!(AtomicU64);
#[cfg(loom)]
word!(loom::sync::atomic::AtomicU64);

/// Before each access: where tests and simulations let another thread take its turn. The caller may hold a latch.
#[inline(always)]
pub(crate) fn step<W>(touch: Touch, word: &W) {
    #[cfg(feature = "steps")]
    seriatim_base::thread::step_latched(touch, std::ptr::from_ref(word).cast());
    let _ = (touch, word);
}

/// The word's value, and all that was stored before it was.
#[inline(always)]
pub fn load<W: Word>(word: &W) -> u64 {
    step(Touch::Node, word);
    // ORDERING: pairs with the release of `store`, here and in regions.
    word.load(Ordering::Acquire)
}

/// Sets the word.
#[inline(always)]
pub fn store<W: Word>(word: &W, value: u64) {
    step(Touch::Store, word);
    // ORDERING: pairs with the acquire of `load`; a reader that sees this value also sees the lock turned before it.
    word.store(value, Ordering::Release);
}

/// Turns `unlocked` into `locked`; `false`, with nothing changed, if the word holds another value.
#[inline(always)]
#[must_use]
pub fn lock<W: Word>(word: &W, unlocked: u64, locked: u64) -> bool {
    step(Touch::Exchange, word);
    // ORDERING: acquire pairs with the release that unlocked the word. Release, so that a reader of a word that was
    // exchanged for its own value (a gap word, by a split) sees the earlier latch.
    word.exchange(unlocked, locked, Ordering::AcqRel)
}
