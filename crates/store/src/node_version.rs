//! Proof of the contents of a leaf or bucket: its word and the word's value.
//!
//! Word, 64 bits: `count of changes 62 | dead 1 | latched 1`. Transitions are in [`State`]:
//!
//! ```text
//!   live, unlatched --latched--> latched --changed--> live, unlatched, count + 1
//!                                   |---------------> live, unlatched, same count (nothing was stored)
//!                                   `--dead---------> dead, count + 1, for ever
//! ```
//! Invariant: no value is repeated in the life of a node, and a latched value is never handed out. So an equal word
//! means that nothing was linked or unlinked since. A node's memory is reused only after every thread that may hold a
//! node version of it went offline (rule 2 of the crate).

use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_htm::word::{self, Word};
use seriatim_memory::Pinned;
use std::ptr::NonNull;

/// The word of a leaf or bucket with the value it had when the holder read the leaf or bucket.
///
/// Good while the worker that took it stays online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    word: NonNull<AtomicU64>,
    value: u64,
}

// SAFETY: following the word is `unsafe` and names rule 2; the rest is two numbers.
unsafe impl Send for NodeVersion {}
// SAFETY: as above.
unsafe impl Sync for NodeVersion {}

impl NodeVersion {
    /// The node version that `word` had `value`, an unlatched value.
    #[inline(always)]
    pub fn new(word: &AtomicU64, value: u64) -> NodeVersion {
        debug_assert!(State(value).is_free(), "a latched value proves nothing");
        NodeVersion { word: NonNull::from(word), value }
    }

    /// The word, for regions that load it through their `Access` and protocols that compare addresses.
    ///
    /// # Safety
    /// The worker that took this node version has been online ever since, and is for `'p` (rule 2).
    #[inline(always)]
    pub unsafe fn word<'p>(&self, _pin: Pinned<'p>) -> &'p AtomicU64 {
        // SAFETY: the caller's promise.
        unsafe { self.word.as_ref() }
    }

    /// Where the word is: the identity of the leaf or bucket while the worker is online.
    #[inline(always)]
    pub fn address(&self) -> *const AtomicU64 {
        self.word.as_ptr()
    }

    /// The value the word had.
    #[inline(always)]
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Whether no record was linked or unlinked since, and none is about to be. For a thread that has locked the gap: a
    /// change that is admitted later finds the lock.
    ///
    /// # Safety
    /// The worker that took this node version has been online ever since (rule 2).
    #[inline(always)]
    pub unsafe fn still_valid(&self) -> bool {
        // ORDERING: partner of the fence between the latch of a change and its look at the gap (`change.rs`, and
        // `admit` of protocols that lock gaps). That thread sees the lock, or this one the latch.
        fence(Ordering::SeqCst);
        // SAFETY: the caller's promise.
        is_still(unsafe { self.word.as_ref() }, self.value)
    }
}

/// Whether `word` still has `value`. If so, all values that were [loaded](word::load) in between existed
/// together.
#[inline(always)]
pub(crate) fn is_still<W: Word>(word: &W, value: u64) -> bool {
    // ORDERING: all loads in between are acquires, so this one is not earlier, nor is what the caller reads
    // next. A store that one of them read was a release after the word was latched, so that this load sees
    // the latch.
    word::load(word) == value
}

/// The value of a latch/version word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

impl State {
    const LATCHED: u64 = 1;
    const DEAD: u64 = 2;
    const CHANGE: u64 = 4;

    /// A new node's word.
    pub(crate) const NEW: State = State(State::CHANGE);

    /// Whether the latch is free.
    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        self.0 & State::LATCHED == 0
    }

    /// Whether the node can be read and latched at this value.
    #[inline(always)]
    pub(crate) fn is_usable(self) -> bool {
        self.0 & (State::LATCHED | State::DEAD) == 0
    }

    /// The value while the latch is held.
    #[inline(always)]
    #[must_use]
    pub(crate) fn latched(self) -> State {
        debug_assert!(self.is_usable());
        State(self.0 | State::LATCHED)
    }

    /// The value after a change, given the value before the latch was taken.
    #[inline(always)]
    #[must_use]
    pub(crate) fn changed(self) -> State {
        debug_assert!(self.is_usable());
        State(self.0 + State::CHANGE)
    }

    /// The value of a node that left the structure, given the value before the latch was taken.
    #[inline(always)]
    #[must_use]
    pub(crate) fn dead(self) -> State {
        debug_assert!(self.is_usable());
        State((self.0 + State::CHANGE) | State::DEAD)
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn no_transition_repeats_a_value_or_shows_a_latched_one() {
        let state = State::NEW;
        assert!(state.is_usable() && state.is_free());
        assert!(!state.latched().is_free() && !state.latched().is_usable());
        assert!(state.changed().is_usable() && state.changed().0 > state.latched().0);
        assert!(state.dead().is_free() && !state.dead().is_usable() && state.dead().0 > state.changed().0);
        let word = AtomicU64::new(state.0);
        let node_version = NodeVersion::new(&word, state.0);
        for after in [state.latched(), state.changed(), state.dead()] {
            word.store(after.0, Ordering::Relaxed);
            // SAFETY: the word is on this stack.
            assert!(!unsafe { node_version.still_valid() });
        }
    }
}
