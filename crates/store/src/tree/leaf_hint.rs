//! Leaf hints: where a worker last was in a tree, so that it need not descend to go there again.

/// The leaf that one worker last used in one index. Belongs to a worker; a leaf hint used for another index
/// only starts afresh.
///
/// It survives the worker going offline: a tree counts the leaves it has unlinked, after marking them dead
/// and before retiring them. While the count is the one the leaf hint was set at, its leaf has not been
/// retired.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeafHint {
    /// Which tree: ids start at 1 and are never reused.
    pub(crate) tree: u64,
    /// The tree's count of unlinked leaves, read before the leaf was reached.
    pub(crate) unlinked: u64,
    /// The leaf's address.
    pub(crate) leaf: usize,
}
