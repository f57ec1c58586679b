//! Leaf hints: where a worker last was in a tree, so that it need not descend to go there again.

/// The leaves that one worker last used in one index: one for reading, and one for insertion. Old rows are read while
/// new ones are inserted elsewhere. Belongs to a worker; a leaf hint used for another index only starts afresh.
///
/// It survives the worker going offline: a tree counts the leaves it has unlinked, after marking them dead
/// and before retiring them. While the count is the one the leaf hint was set at, its leaves have not been
/// retired.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeafHint {
    /// Which tree: ids start at 1 and are never reused.
    pub(crate) tree: u64,
    /// The tree's count of unlinked leaves, read before the leaves were reached.
    pub(crate) unlinked: u64,
    /// The address of the leaf that was read.
    pub(crate) leaf: usize,
    /// The address of the leaf that a record was inserted into.
    pub(crate) inserted: usize,
}

impl LeafHint {
    /// A leaf of this tree was read, and reached after the tree's count of unlinked leaves had been read.
    #[inline(always)]
    pub(crate) fn read(&mut self, tree: u64, unlinked: u64, leaf: usize) {
        self.start(tree, unlinked, leaf);
        self.leaf = leaf;
    }

    /// As [`LeafHint::read`], of a leaf that a record was inserted into.
    #[inline(always)]
    pub(crate) fn insert(&mut self, tree: u64, unlinked: u64, leaf: usize) {
        self.start(tree, unlinked, leaf);
        self.inserted = leaf;
    }

    #[inline(always)]
    fn start(&mut self, tree: u64, unlinked: u64, leaf: usize) {
        if (self.tree, self.unlinked) != (tree, unlinked) {
            *self = LeafHint { tree, unlinked, leaf, inserted: leaf };
        }
    }
}
