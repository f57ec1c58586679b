//! Where a scan is: reusable, so that a scan allocates nothing once its cursor is warm.

use crate::node_version::NodeVersion;
use crate::record::RecordPtr;
use crate::tree::{Limit, Position, size};
use seriatim_base::word::AtomicU64;
use seriatim_catalog::{Key, KeyClass};
use seriatim_memory::Pinned;
use std::ops::Bound;
use std::ptr::NonNull;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the low end to the high end.
    #[default]
    Forward,
    /// From the high end to the low end.
    Backward,
}

/// A scan, leaf by leaf. [`Index::scan`](crate::Index::scan) positions it,
/// [`Index::next_leaf`](crate::Index::next_leaf) moves it; it then shows records that were in one leaf at one
/// time. The first records that it shows are few, and the rest of their leaf comes with the next move.
#[derive(Debug, Default)]
pub struct Cursor {
    pub(crate) records: Vec<RecordPtr>,
    pub(crate) leaf: Option<(NodeVersion, NonNull<AtomicU64>)>,
    pub(crate) position: Position,
    /// Records that the next move shows at most.
    pub(crate) room: usize,
    /// The position before the last leaf, for scans that merge in other records.
    pub(crate) before: Limit,
}

// SAFETY: the gap pointer is followed only by `Cursor::gap`, which is `unsafe` and names rule 2.
unsafe impl Send for Cursor {}
// SAFETY: as above.
unsafe impl Sync for Cursor {}

impl Cursor {
    /// A cursor that shows nothing.
    pub fn new() -> Cursor {
        Cursor::default()
    }

    /// Positions it before the keys between `low` and `high`, in whatever tree
    /// [`Index::next_leaf`](crate::Index::next_leaf) moves it.
    pub(crate) fn begin(&mut self, low: Bound<Key<'_>>, high: Bound<Key<'_>>, direction: Direction) {
        self.records.clear();
        self.records.reserve(size::LEAF);
        self.leaf = None;
        self.room = size::FIRST;
        let position = &mut self.position;
        position.direction = direction;
        position.exhausted = false;
        let (lower, upper) = match direction {
            Direction::Forward => (&mut position.near, &mut position.far),
            Direction::Backward => (&mut position.far, &mut position.near),
        };
        lower.set(low);
        upper.set(high);
    }

    /// From now on each move shows all records of its leaf, even the first.
    pub fn show_whole_leaves(&mut self) {
        self.room = usize::MAX;
    }

    /// The key from which the scan continues, to choose a leaf hint. Any key if the range is open there.
    #[inline(always)]
    pub fn near_key(&self, class: KeyClass) -> Key<'_> {
        self.position.near.key(class)
    }

    /// The records of the leaf within the scan's bounds, in the scan's order; at most a leaf's capacity.
    #[inline(always)]
    pub fn records(&self) -> &[RecordPtr] {
        &self.records
    }

    /// The ends of the range, low and high, of keys of this class, as long as the scan has not begun.
    #[inline]
    pub fn range_ahead(&self, class: KeyClass) -> Option<(Bound<Key<'_>>, Bound<Key<'_>>)> {
        if self.leaf.is_some() { None } else { self.ahead(class) }
    }

    /// The low and high end of the rest of its range, for keys of this class. `None` at the end of the scan.
    #[inline]
    pub fn ahead(&self, class: KeyClass) -> Option<(Bound<Key<'_>>, Bound<Key<'_>>)> {
        let Position { direction, near, far, exhausted } = &self.position;
        let (low, high) = match direction {
            Direction::Forward => (near, far),
            Direction::Backward => (far, near),
        };
        (!exhausted).then(|| (low.bound(class), high.bound(class)))
    }

    /// Which way it goes.
    pub fn direction(&self) -> Direction {
        self.position.direction
    }

    /// The leaf's word and the value it had when [`Cursor::records`] was read.
    ///
    /// # Panics
    /// Before the first leaf.
    #[inline(always)]
    pub fn node_version(&self) -> NodeVersion {
        self.leaf.expect("a node version is of a leaf: call next_leaf first").0
    }

    /// The leaf's gap word.
    ///
    /// # Safety
    /// The worker has been online since `next_leaf`, and is for `'p` (rule 2).
    ///
    /// # Panics
    /// Before the first leaf.
    #[inline(always)]
    pub unsafe fn gap<'p>(&self, _pin: Pinned<'p>) -> &'p AtomicU64 {
        let gap = self.leaf.expect("a gap is of a leaf: call next_leaf first").1;
        // SAFETY: the caller's promise.
        unsafe { gap.as_ref() }
    }
}
