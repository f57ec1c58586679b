//! Walks of the whole tree by its only user: invariants, counts, disposal.

use super::cell::Cell;
use super::descend::Bounds;
use super::kind::{NodeKind, Separator};
use super::load::{Load, Optimistic};
use super::node::{Interior, Leaf, out_of_line_bytes_at};
use super::{Root, Tree};
use crate::node_version::State;
use crate::record::{RecordPtr, out_of_line};
use crate::statistics::IndexStatistics;
use seriatim_base::Rng;
use seriatim_memory::{Local, Pinned};
use std::ptr::NonNull;

/// A node on a walk.
enum Node<'t, K: NodeKind, const LEAF: usize, const FAN: usize> {
    Leaf(&'t Leaf<K, LEAF>),
    /// With its count of separators.
    Interior(&'t Interior<K, FAN>, usize),
}

/// Shown each node with its level and bounds.
type Visit<'v, K, const LEAF: usize, const FAN: usize> =
    dyn FnMut(Node<'_, K, LEAF, FAN>, usize, &Bounds<K>) -> Result<(), String> + 'v;

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Calls `visit` for every node with its level and bounds, children before parents, from left to right.
    ///
    /// # Safety
    /// No other thread changes the tree during the call (rule 5).
    unsafe fn walk(&self, visit: &mut Visit<'_, K, LEAF, FAN>) -> Result<(), String> {
        let root = Root::unpack(Optimistic.follow(&*self.root));
        // SAFETY: the caller's promise.
        unsafe { Self::walk_below(root, &Bounds::NONE, visit) }
    }

    /// # Safety
    /// As [`Tree::walk`].
    unsafe fn walk_below(at: Root, bounds: &Bounds<K>, visit: &mut Visit<'_, K, LEAF, FAN>) -> Result<(), String> {
        if at.level == 0 {
            // SAFETY: the caller's promise: reached, and no thread unlinks it.
            return visit(Node::Leaf(unsafe { Leaf::at(at.address) }), 0, bounds);
        }
        let load = &mut Optimistic;
        // SAFETY: as above.
        let node = unsafe { Interior::<K, FAN>::at(at.address) };
        let count = node.count(load);
        for i in 0..=count {
            let low = i.checked_sub(1).map(|left| node.separator(load, left)).or(bounds.low);
            let high = if i < count { Some(node.separator(load, i)) } else { bounds.high };
            let child = Root { address: node.child(load, i), level: at.level - 1 };
            // SAFETY: the caller's promise.
            unsafe { Self::walk_below(child, &Bounds { low, high }, visit)? };
        }
        visit(Node::Interior(node, count), at.level, bounds)
    }

    /// Calls `f` for every record in key order.
    ///
    /// # Safety
    /// As [`Tree::walk`].
    pub(crate) unsafe fn for_each(&self, f: &mut dyn FnMut(RecordPtr)) {
        let load = &mut Optimistic;
        // SAFETY: the caller's promise.
        let walked = unsafe {
            self.walk(&mut |node, _, _| {
                if let Node::Leaf(leaf) = node {
                    (0..leaf.meta(load).count).for_each(|i| f(leaf.record(load, i)));
                }
                Ok(())
            })
        };
        debug_assert_eq!(walked, Ok(()));
    }

    /// Counts.
    ///
    /// # Safety
    /// As [`Tree::walk`].
    pub(crate) unsafe fn statistics(&self) -> IndexStatistics {
        let mut statistics =
            IndexStatistics { height: Root::unpack(Optimistic.follow(&*self.root)).level + 1, ..Default::default() };
        // SAFETY: the caller's promise.
        let walked = unsafe {
            self.walk(&mut |node, _, _| {
                match node {
                    Node::Leaf(leaf) => {
                        statistics.leaves += 1;
                        statistics.records += leaf.meta(&mut Optimistic).count;
                        statistics.bytes += Leaf::<K, LEAF>::BYTES;
                    }
                    Node::Interior(node, count) => {
                        statistics.interiors += 1;
                        statistics.bytes += Interior::<K, FAN>::BYTES;
                        let out_of_line_values = (0..count).map(|i| node.separator(&mut Optimistic, i).out_of_line);
                        statistics.bytes += out_of_line_values
                            .filter(|&out_of_line| out_of_line != 0)
                            .map(|out_of_line| out_of_line_bytes_at(out_of_line))
                            .sum::<usize>();
                    }
                }
                Ok(())
            })
        };
        debug_assert_eq!(walked, Ok(()));
        statistics
    }

    /// An estimate of the number of records: the mean, over some paths down, of the product of the widths of
    /// their nodes.
    pub(crate) fn len_estimate(&self, _pin: Pinned<'_>) -> usize {
        const WAYS: usize = 16;
        let mut rng = Rng::from_seed(self.id);
        let load = &mut Optimistic;
        let mut sum = 0.0;
        for _ in 0..WAYS {
            let Root { mut address, level } = Root::unpack(load.follow(&*self.root));
            let mut product = 1.0;
            for _ in 0..level {
                // SAFETY: rule 2: reached while online, at this level.
                let node = unsafe { Interior::<K, FAN>::at(address) };
                let count = node.count(load);
                product *= (count + 1) as f64;
                address = node.child(load, rng.below(count as u64 + 1) as usize);
            }
            // SAFETY: rule 2: reached while online, at level 0.
            sum += product * unsafe { Leaf::<K, LEAF>::at(address) }.meta(load).count as f64;
        }
        (sum / WAYS as f64) as usize
    }

    /// Checks the invariants of the module's documentation.
    ///
    /// # Safety
    /// As [`Tree::walk`].
    pub(crate) unsafe fn check(&self) -> Result<(), String> {
        let mut last: Option<RecordPtr> = None;
        let mut leaves = 0;
        let mut empty = 0;
        let load = &mut Optimistic;
        // SAFETY: the caller's promise.
        unsafe {
            self.walk(&mut |node, level, bounds| {
                let word = State(load.follow(match node {
                    Node::Leaf(leaf) => &leaf.word,
                    Node::Interior(node, _) => &node.word,
                }));
                ensure(word.is_usable(), || format!("a linked node at level {level} has the word {word:?}"))?;
                match node {
                    Node::Leaf(leaf) => {
                        let count = leaf.meta(load).count;
                        leaves += 1;
                        empty += usize::from(count == 0 && leaf.gap.load(std::sync::atomic::Ordering::Relaxed) == 0);
                        ensure(count <= LEAF, || format!("a leaf of {LEAF} has {count} records"))?;
                        let range = leaf.range(load);
                        for i in 0..count {
                            let record = leaf.record(load, i);
                            let key = K::of(record);
                            ensure(leaf.key(load, i) == K::short(key), || "a key differs from its record's".into())?;
                            ensure(last.is_none_or(|last| K::compare(K::of(last), key).is_lt()), || {
                                "keys do not ascend".into()
                            })?;
                            ensure(within::<K>(bounds, key), || "a key is outside its leaf's bounds".into())?;
                            last = Some(record);
                        }
                        let (low, high) = (bounds.low.map(|low| low.short), bounds.high.map(|high| high.short));
                        ensure(
                            range.low > range.last
                                || (low.is_none_or(|low| range.low >= low)
                                    && high.is_none_or(|high| K::Cell::before(high).is_some_and(|h| range.last <= h))),
                            || format!("a leaf claims {range:?} within {low:?}..{high:?}"),
                        )
                    }
                    Node::Interior(node, count) => {
                        ensure(node.level(load) == level, || format!("a node at level {level} says otherwise"))?;
                        let separators: Vec<_> = (0..count).map(|i| node.separator(load, i)).collect();
                        let ascending = separators.windows(2).all(|pair| below::<K>(pair[0], pair[1]));
                        ensure(ascending, || "separators do not ascend".into())
                    }
                }
            })?;
        }
        ensure(empty == 0 || leaves == 1, || format!("{empty} of {leaves} leaves are empty though nothing holds them"))
    }

    /// Gives all nodes back.
    ///
    /// # Safety
    /// No thread uses the tree, nor any node version, cursor or leaf hint of it, any more (rule 5).
    pub(crate) unsafe fn dispose(self, local: &mut Local) {
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        // SAFETY: the caller's promise.
        let walked = unsafe {
            self.walk(&mut |node, _, _| {
                match node {
                    Node::Leaf(leaf) => blocks.push((leaf.address(), Leaf::<K, LEAF>::BYTES)),
                    Node::Interior(node, count) => {
                        blocks.push((node.address(), Interior::<K, FAN>::BYTES));
                        let out_of_line_values = (0..count).map(|i| node.separator(&mut Optimistic, i).out_of_line);
                        blocks.extend(
                            out_of_line_values.filter(|&t| t != 0).map(|t| (t as usize, out_of_line_bytes_at(t))),
                        );
                    }
                }
                Ok(())
            })
        };
        debug_assert_eq!(walked, Ok(()));
        for (address, bytes) in blocks {
            let memory = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("nodes are somewhere");
            // SAFETY: allocated with these sizes when linked, and no thread reaches it any more.
            unsafe { local.release(memory, bytes) };
        }
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Whether separator `a` is below separator `b`.
///
/// # Safety
/// Their out-of-line values are allocated (rule 2).
unsafe fn below<K: NodeKind>(a: Separator<K>, b: Separator<K>) -> bool {
    // A separator without an out-of-line value is the least of its short form.
    a.short < b.short
        || a.short == b.short
            && match (a.out_of_line, b.out_of_line) {
                (_, 0) => false,
                (0, _) => true,
                // SAFETY: the caller's promise.
                (a, b) => unsafe { out_of_line::read(a) < out_of_line::read(b) },
            }
}

/// Whether a key lies at or above the low bound and below the high one.
///
/// # Safety
/// The bounds' out-of-line values are allocated (rule 2).
unsafe fn within<K: NodeKind>(bounds: &Bounds<K>, key: K::Probe<'_>) -> bool {
    // SAFETY: the caller's promise.
    let compare = |separator: Separator<K>| unsafe { separator.compare(key) };
    bounds.low.is_none_or(|low| compare(low).is_le()) && bounds.high.is_none_or(|high| compare(high).is_gt())
}
