//! Paths that are rarely taken, counted, so that a test named after one can prove that it took it.
//!
//! Only builds with small nodes count (the feature `small`, or the crate's own tests). Each thread counts separately,
//! so that concurrent tests do not see each other's counts. Otherwise [`note`] is nothing.

/// A path that is rarely taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RarePath {
    /// An insert split a leaf.
    LeafSplit,
    /// An insert split an interior node, or made a new root.
    InteriorSplit,
    /// A record was unlinked.
    RecordUnlinked,
    /// A removal unlinked a leaf that became empty.
    LeafUnlinked,
    /// A bucket of a hash table was split.
    BucketSplit,
    /// A bucket got an overflow line.
    BucketChained,
    /// An overflow line was taken away.
    ChainCut,
}

impl RarePath {
    /// How many there are.
    pub const COUNT: usize = RarePath::ChainCut as usize + 1;
}

#[cfg(any(test, feature = "small"))]
mod counted {
    use super::RarePath;
    use std::cell::Cell;

    thread_local! {
        static TAKEN: Cell<[u64; RarePath::COUNT]> = const { Cell::new([0; RarePath::COUNT]) };
    }

    pub(crate) fn note(path: RarePath) {
        let mut taken = TAKEN.get();
        taken[path as usize] += 1;
        TAKEN.set(taken);
    }

    /// How often this thread took a path so far.
    pub fn taken(path: RarePath) -> u64 {
        TAKEN.get()[path as usize]
    }

    /// How often this thread took each path so far, by their numbers.
    pub fn all_taken() -> [u64; RarePath::COUNT] {
        TAKEN.get()
    }
}

#[cfg(any(test, feature = "small"))]
pub use counted::{all_taken, taken};

/// A path is taken.
#[inline(always)]
pub(crate) fn note(path: RarePath) {
    #[cfg(any(test, feature = "small"))]
    counted::note(path);
    #[cfg(not(any(test, feature = "small")))]
    let _ = path;
}
