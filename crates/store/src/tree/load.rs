//! How words of nodes are read: optimistically by readers, through the access of their body by writers.

use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{Backoff, thread};
use seriatim_htm::word::{self, Word};
use seriatim_htm::{Access, Htm};

/// Reads words of nodes that another thread may be changing.
pub(crate) trait Load<W = AtomicU64> {
    /// The word's value; it counts once [`Load::unchanged`] answers `true`.
    fn load(&mut self, word: &W) -> u64;

    /// As `load`, for a word that names memory, or gives the used part of a node. Everything that was written there
    /// before the word was stored is visible.
    fn follow(&mut self, word: &W) -> u64;

    /// Whether `word` still has `value`. If so, all that was loaded since it was [followed](Load::follow)
    /// held together.
    #[inline(always)]
    fn unchanged(&mut self, word: &W, value: u64) -> bool {
        // ORDERING: a load above that saw a release store of a writer makes the load below see that writer's latch.
        fence(Ordering::Acquire);
        self.load(word) == value
    }
}

/// A reader's way: no store, no read-modify-write.
#[derive(Debug)]
pub(crate) struct Optimistic;

impl<W: Word> Load<W> for Optimistic {
    #[inline(always)]
    fn load(&mut self, word: &W) -> u64 {
        crate::step(word);
        word.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn follow(&mut self, word: &W) -> u64 {
        crate::step(word);
        word::load(word)
    }
}

/// A body's way.
pub(crate) struct BodyLoads<'a, A>(pub(crate) &'a mut A);

impl<A: Access> Load for BodyLoads<'_, A> {
    #[inline(always)]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        self.0.load(word)
    }

    #[inline(always)]
    fn follow(&mut self, word: &AtomicU64) -> u64 {
        // In direct mode loads are acquires; in a region everything committed before is seen.
        self.0.load(word)
    }
}

/// Direct mode for bodies that must not run in a region: as the agent's, without an agent.
pub(crate) struct Latching<'a> {
    htm: &'a Htm,
    stepped: bool,
}

impl Latching<'_> {
    pub(crate) fn new(htm: &Htm) -> Latching<'_> {
        Latching { htm, stepped: htm.backend() == seriatim_htm::Backend::Emulated }
    }
}

impl Access for Latching<'_> {
    const REGION: bool = false;

    #[inline(always)]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        word::load(word)
    }

    #[inline(always)]
    fn store(&mut self, word: &AtomicU64, value: u64) {
        word::store(word, value);
        if self.stepped {
            thread::yield_now();
        }
    }

    #[inline(always)]
    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        self.htm.outside(|| word::lock(word, unlocked, locked))
    }
}

/// Direct mode of the only thread: nothing is latched, words still change as they do otherwise (rule 5).
#[derive(Debug)]
pub(crate) struct Exclusive;

impl Access for Exclusive {
    const REGION: bool = false;

    #[inline(always)]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        word.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&mut self, word: &AtomicU64, value: u64) {
        word::store(word, value);
    }

    #[inline(always)]
    fn lock(&mut self, word: &AtomicU64, unlocked: u64, _locked: u64) -> bool {
        word.load(Ordering::Relaxed) == unlocked
    }
}

/// Waits for writers in progress, which finish without waiting for others: pauses first, then yields.
#[derive(Debug, Default)]
pub(crate) struct Patience(Backoff);

impl Patience {
    #[cold]
    pub(crate) fn wait(&mut self) {
        if !self.0.wait() {
            thread::yield_now();
        }
    }
}
