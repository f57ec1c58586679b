//! Counts of the parts of an index, for observation and tests.

/// Counts of one index, taken while others may change it: each is right at some time, not all at one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStatistics {
    /// Records linked.
    pub records: usize,
    /// Levels from root to leaf (trees), longest chain of buckets (hash tables).
    pub height: usize,
    /// Leaves or buckets, with chained ones.
    pub leaves: usize,
    /// Interior nodes of a tree, directory segments of a hash table.
    pub interiors: usize,
    /// Bytes allocated for all of these.
    pub bytes: usize,
}
