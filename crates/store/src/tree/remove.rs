//! Removal, and the unlinking of leaves that it empties.
//!
//! The last record of a leaf is removed with the leaf, and with every ancestor that has no other child. All of them are
//! latched, from the lowest ancestor that keeps another child downwards. That ancestor drops the branch, and the branch
//! is marked dead. The keys of the leaf now belong to a neighbour, whose word does not change. It has lost nothing, and
//! a reader that looked for a key of the dead leaf holds the dead leaf's word.
//!
//! The less round of the separators beside the leaf is dropped, so that prefixes begin where leaves begin. The one on
//! the right of a last child is further up: all nodes from there on are latched, and change. First the separator on the
//! left is made as round as the keys of the left neighbour admit. So the head of a queue gets a leaf of its own. The
//! left neighbour loses keys by that, and its word changes.
//!
//! Where memory is scarce, a half-empty leaf is merged with a neighbour below the same parent, if one leaf can hold
//! their records. Parent and both leaves are latched. The left leaf takes the records, and its word changes. The right
//! one is then unlinked like an empty leaf: its gap must not be held, and is closed. The gap of the left one may be
//! held: its holders keep out insertions of more keys than before. Nothing else is merged.
//!
//! A merge fails transactions that have seen an absence in either leaf, and the next insertion splits a full leaf. So
//! merges only pay if the nodes of new keys would find no memory. A worker unlinks some records before each merge, so
//! that insertions and deletions in turn do not merge and split a leaf each time.

use super::cell::Cell;
use super::descend::{self, Bounds, LeafTarget, Path};
use super::kind::{NodeKind, Separator};
use super::load::{BodyLoads, Load, Patience};
use super::node::{Interior, Leaf, Meta, Range, out_of_line_bytes_at};
use super::{LeafHint, Tree};
use crate::index::StoreCx;
use crate::node_version::State;
use crate::observer::{GAP_CLOSED, Observer};
use crate::rare::{RarePath, note};
use crate::record::RecordPtr;
use seriatim_htm::{Access, Body, BodyError, NoLocks};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Unlinks exactly `record`, beginning with the hinted leaves.
    pub(crate) fn remove_near<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
        observer: &mut O,
    ) -> bool {
        self.remove_with(cx, probe, leaf_hint, record, observer, |cx, body| {
            cx.agent.run(cx.outside, &NoLocks, body).ok()
        })
    }

    /// As [`Tree::remove_near`], without a hint.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn remove<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        record: RecordPtr,
        observer: &mut O,
    ) -> bool {
        self.remove_near(cx, probe, &mut LeafHint::default(), record, observer)
    }

    /// As [`Tree::remove`] in a way of the test's choice.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn remove_through<A: Access>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        record: RecordPtr,
        access: &mut A,
    ) -> bool {
        let leaf_hint = &mut LeafHint::default();
        self.remove_with(cx, probe, leaf_hint, record, &mut crate::Unobserved, |_, body| body.run(access).ok())
    }

    #[inline(always)]
    fn remove_with<'a, 'k, O: Observer>(
        &'a self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'k>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
        observer: &mut O,
        mut run: impl FnMut(&mut StoreCx<'_>, &mut Remove<'a, 'k, K, LEAF, FAN>) -> Option<Step<'a, K, LEAF>>,
    ) -> bool {
        // The memory that bodies reach stays allocated while the worker is online (rule 2); this asserts that it is.
        let _ = cx.local.pinned();
        let unlinked = self.unlinked();
        let start = self.hinted(probe, leaf_hint).map(|(leaf, _)| leaf);
        let mut body = Remove { tree: self, probe, record, start, branch: None, empties: O::EMPTIES };
        let mut patience = Patience::default();
        loop {
            match run(cx, &mut body) {
                Some(Step::Absent | Step::Held) => return false,
                Some(Step::Removed { leaf, before, left }) => {
                    leaf_hint.read(self.id, unlinked, leaf.address());
                    note(RarePath::RecordUnlinked);
                    observer.changed(&leaf.word, before.0, before.changed().0);
                    cx.local.unlinked = cx.local.unlinked.saturating_add(1);
                    if left <= LEAF / 2 && cx.local.is_scarce() && cx.local.unlinked as usize >= LEAF / 4 {
                        self.merge(cx, probe);
                    }
                    return true;
                }
                Some(Step::Unlinked { leaf, branch, out_of_line }) => {
                    note(RarePath::RecordUnlinked);
                    note(RarePath::LeafUnlinked);
                    let path = body.branch.take().expect("an unlinking body leaves its path");
                    self.retire(cx, leaf, &path, branch, out_of_line);
                    return true;
                }
                None => patience.wait(),
            }
        }
    }

    /// Merges the leaf of this key with its neighbour, if that is possible now.
    #[cold]
    fn merge(&self, cx: &mut StoreCx<'_>, probe: K::Probe<'_>) {
        let mut body = Merge { tree: self, probe, path: None };
        // Another thread that changes one of the nodes meanwhile may merge them in its turn.
        if let Ok(Some((leaf, out_of_line))) = cx.agent.run(cx.outside, &NoLocks, &mut body) {
            let path = body.path.take().expect("a merging body leaves its path");
            note(RarePath::LeafMerged);
            cx.local.unlinked = 0;
            self.retire(cx, leaf, &path, path.len(), out_of_line);
        }
    }

    /// Retires a dead leaf, the dead steps of `path` from `branch` on, and the out-of-line value of the separator that
    /// went with them.
    #[cold]
    fn retire(
        &self,
        cx: &mut StoreCx<'_>,
        leaf: &Leaf<K, LEAF>,
        path: &Path<'_, K, FAN>,
        branch: usize,
        out_of_line: u64,
    ) {
        // ORDERING: before the retirement, and pairs with the acquire in `unlinked`.
        self.unlinked.fetch_add(1, Ordering::AcqRel);
        let mut retire = |address: usize, bytes: usize| {
            let memory = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("nodes are somewhere");
            // SAFETY: allocated with these sizes when linked, and unlinked by the body just run, once.
            unsafe { cx.local.retire(memory, bytes) };
        };
        retire(leaf.address(), Leaf::<K, LEAF>::BYTES);
        for step in branch..path.len() {
            retire(path.step(step).node.address(), Interior::<K, FAN>::BYTES);
        }
        if out_of_line != 0 {
            // SAFETY: not retired yet.
            retire(out_of_line as usize, unsafe { out_of_line_bytes_at(out_of_line) });
        }
    }
}

/// Bits of the shortest column of a key.
const COLUMN_BITS: u32 = 8;

/// The result of a run of the body.
enum Step<'a, K: NodeKind, const LEAF: usize> {
    /// The key does not have this record.
    Absent,
    /// It is the last record of its leaf, whose gap is held, and no leaf may be left empty.
    Held,
    /// Unlinked. The leaf's word was `before`, and so many records are left there.
    Removed { leaf: &'a Leaf<K, LEAF>, before: State, left: usize },
    /// Unlinked with its leaf and the steps of [`Remove::branch`] from `branch` on.
    Unlinked { leaf: &'a Leaf<K, LEAF>, branch: usize, out_of_line: u64 },
}

struct Remove<'a, 'k, K: NodeKind, const LEAF: usize, const FAN: usize> {
    tree: &'a Tree<K, LEAF, FAN>,
    probe: K::Probe<'k>,
    record: RecordPtr,
    /// The hinted leaf.
    start: Option<&'a Leaf<K, LEAF>>,
    branch: Option<Path<'a, K, FAN>>,
    empties: bool,
}

// SAFETY: nodes are reached while the worker is online, which it is until `run` has returned (rule 2).
unsafe impl<'a, K: NodeKind, const LEAF: usize, const FAN: usize> Body for Remove<'a, '_, K, LEAF, FAN> {
    type Output = Step<'a, K, LEAF>;

    #[inline(always)]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<Step<'a, K, LEAF>, BodyError> {
        let load = &mut BodyLoads(&mut *access);
        let mut bounds = Bounds::NONE;
        let hinted = self.start.and_then(|leaf| leaf.covers(load, self.probe).map(|state| (leaf, state)));
        let (leaf, state) = match hinted {
            Some(hinted) => hinted,
            None => self.tree.descend(load, &LeafTarget::Key(self.probe), &mut bounds)?,
        };
        let count = leaf.meta(load).count;
        let (place, found) = leaf.find(load, count, self.probe);
        if found != Some(self.record) {
            return if load.unchanged(&leaf.word, state.0) { Ok(Step::Absent) } else { Err(BodyError::Busy) };
        }
        if count == 1 {
            return self.empty(access);
        }
        if !access.lock(&leaf.word, state.0, state.latched().0) {
            return Err(BodyError::Busy);
        }
        leaf.remove(access, count, place);
        if hinted.is_none() {
            leaf.extend_to(access, bounds.range());
        }
        access.store(&leaf.word, state.changed().0);
        Ok(Step::Removed { leaf, before: state, left: count - 1 })
    }

    fn weight(&self) -> u32 {
        self.tree.height()
    }
}

impl<'a, K: NodeKind, const LEAF: usize, const FAN: usize> Remove<'a, '_, K, LEAF, FAN> {
    /// Takes the only record out of its leaf.
    #[cold]
    #[inline(never)]
    fn empty<A: Access>(&mut self, access: &mut A) -> Result<Step<'a, K, LEAF>, BodyError> {
        let mut path = Path::new();
        let load = &mut BodyLoads(&mut *access);
        let (leaf, state) = self.tree.descend(load, &LeafTarget::Key(self.probe), &mut path)?;
        let count = leaf.meta(load).count;
        let (_, found) = leaf.find(load, count, self.probe);
        if count != 1 || found != Some(self.record) {
            return Err(BodyError::Busy);
        }
        let lowest =
            |wanted: fn(&descend::Step<'a, K, FAN>) -> bool| (0..path.len()).rev().find(|&i| wanted(&path.step(i)));
        let fork = lowest(|step| step.count > 0);
        // The ancestor with the separator on the right: the fork, or one above it whose last leaf this is.
        let edge = lowest(|step| step.index < step.count);
        // Without a fork this is the last leaf of the tree, which stays.
        let first = edge.or(fork).unwrap_or(path.len());
        for i in first..path.len() {
            let step = path.step(i);
            if !access.lock(&step.node.word, step.state.0, step.state.latched().0) {
                unlatch(access, &path, first..i);
                return Err(BodyError::Busy);
            }
        }
        if !access.lock(&leaf.word, state.0, state.latched().0) {
            unlatch(access, &path, first..path.len());
            return Err(BodyError::Busy);
        }
        let is_last = fork.is_none();
        let Some(fork) = fork.filter(|_| access.lock(&leaf.gap, 0, GAP_CLOSED)) else {
            if !self.empties && !is_last {
                access.store(&leaf.word, state.0);
                unlatch(access, &path, first..path.len());
                return Ok(Step::Held);
            }
            leaf.remove(access, 1, 0);
            access.store(&leaf.word, state.changed().0);
            unlatch(access, &path, first..path.len());
            return Ok(Step::Removed { leaf, before: state, left: 0 });
        };
        let out_of_line = Self::unlink(access, &path, edge, fork);
        for i in first..fork {
            access.store(&path.step(i).node.word, path.step(i).state.changed().0);
        }
        for i in fork + 1..path.len() {
            access.store(&path.step(i).node.word, path.step(i).state.dead().0);
        }
        access.store(&leaf.word, state.dead().0);
        access.store(&path.step(fork).node.word, path.step(fork).state.changed().0);
        self.branch = Some(path);
        Ok(Step::Unlinked { leaf, branch: fork + 1, out_of_line })
    }

    /// Takes the branch below step `fork` out, with the less round separator beside it. That is the one on its left, or
    /// the one on its right, which is at step `edge`. If they are equal, the left one. All steps from the higher of the
    /// two on are latched. Gives the out-of-line value of the separator.
    fn unlink<A: Access>(access: &mut A, path: &Path<'a, K, FAN>, edge: Option<usize>, fork: usize) -> u64 {
        let step = path.step(fork);
        let Some(left) = step.index.checked_sub(1) else { return step.node.remove(access, step.count, 0, 0) };
        let Some(edge) = edge else { return step.node.remove(access, step.count, step.index, left) };
        if fork + 1 == path.len() {
            Self::round_left(access, step);
        }
        let (above, load) = (path.step(edge), &mut BodyLoads(&mut *access));
        let (kept, dropped) = (step.node.separator(load, left), above.node.separator(load, above.index));
        if K::Cell::zeros(kept.short) <= K::Cell::zeros(dropped.short) {
            return step.node.remove(access, step.count, step.index, left);
        }
        if edge == fork {
            return step.node.remove(access, step.count, step.index, step.index);
        }
        // The nodes from the edge to the fork end where the branch began.
        above.node.set_separator(access, above.index, kept);
        step.node.remove(access, step.count, step.index, left);
        dropped.out_of_line
    }

    /// Lowers the separator on the left of a leaf that is removed. A separator behind the last key on its left must be
    /// rounder by a byte, as only then a prefix can begin there. The left neighbour has no record between the two, but
    /// loses these keys: its word changes. It keeps them if its gap is held, for they are held with it. The parent is
    /// latched.
    fn round_left<A: Access>(access: &mut A, parent: descend::Step<'a, K, FAN>) {
        let (node, at) = (parent.node, parent.index - 1);
        let load = &mut BodyLoads(&mut *access);
        let separator = node.separator(load, at);
        // SAFETY: rule 2: a child of a node that was read while online, at level 0.
        let left = unsafe { Leaf::<K, LEAF>::at(node.child(load, at)) };
        let state = State(load.follow(&left.word));
        let count = left.meta(load).count;
        if separator.out_of_line != 0 || count == 0 || !state.is_usable() {
            return;
        }
        let last = left.key(load, count - 1);
        // Keys that tie have no value between them; another thread may be changing the leaf.
        if last >= separator.short {
            return;
        }
        let round = K::Cell::roundest(last, separator.short);
        let is_rounder = K::Cell::zeros(round) >= K::Cell::zeros(separator.short) + COLUMN_BITS;
        if !is_rounder || !access.lock(&left.word, state.0, state.latched().0) {
            return;
        }
        // A thread that holds the gap from now on sees the latch, and that what it read is out of date.
        if !access.lock(&left.gap, 0, 0) {
            access.store(&left.word, state.0);
            return;
        }
        let range = left.range(&mut BodyLoads(&mut *access));
        left.set_range(access, Range { last: K::Cell::before(round).unwrap_or(range.last), ..range });
        node.set_separator(access, at, Separator { short: round, out_of_line: 0 });
        access.store(&left.word, state.changed().0);
    }
}

/// The merge of the leaf of a key with its neighbour.
struct Merge<'a, 'k, K: NodeKind, const LEAF: usize, const FAN: usize> {
    tree: &'a Tree<K, LEAF, FAN>,
    probe: K::Probe<'k>,
    /// The way to the leaf, once it was merged.
    path: Option<Path<'a, K, FAN>>,
}

// SAFETY: as of `Remove`.
unsafe impl<'a, K: NodeKind, const LEAF: usize, const FAN: usize> Body for Merge<'a, '_, K, LEAF, FAN> {
    /// The dead leaf, and the out-of-line value of the separator that went with it; `None` if nothing changed.
    type Output = Option<(&'a Leaf<K, LEAF>, u64)>;

    #[inline(always)]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<Self::Output, BodyError> {
        let mut path = Path::new();
        let load = &mut BodyLoads(&mut *access);
        self.tree.descend(load, &LeafTarget::Key(self.probe), &mut path)?;
        let Some(parent) = path.len().checked_sub(1).map(|last| path.step(last)) else { return Ok(None) };
        let mut child = |index| {
            // SAFETY: rule 2: a child of a node that was read while online, at level 0.
            let leaf = unsafe { Leaf::<K, LEAF>::at(parent.node.child(load, index)) };
            let state = State(load.follow(&leaf.word));
            (leaf, state, leaf.meta(load).count)
        };
        // With the neighbour on the left, or else with that on the right.
        let lefts = [parent.index.checked_sub(1), (parent.index < parent.count).then_some(parent.index)];
        let pairs = lefts.into_iter().flatten().map(|left| (left + 1, child(left), child(left + 1)));
        let fits = |pair: &(usize, (_, State, usize), (_, State, usize))| {
            let (_, left, right) = pair;
            left.1.is_usable() && right.1.is_usable() && left.2 + right.2 <= LEAF
        };
        let Some((index, (left, left_state, there), (right, right_state, count))) = pairs.into_iter().find(fits) else {
            return Ok(None);
        };
        let nodes = [(&parent.node.word, parent.state), (&left.word, left_state), (&right.word, right_state)];
        for (at, (word, state)) in nodes.iter().enumerate() {
            if !access.lock(word, state.0, state.latched().0) {
                nodes[..at].iter().for_each(|(word, state)| access.store(word, state.0));
                return Err(BodyError::Busy);
            }
        }
        if !access.lock(&right.gap, 0, GAP_CLOSED) {
            nodes.iter().for_each(|(word, state)| access.store(word, state.0));
            return Ok(None);
        }
        (0..count).for_each(|i| right.copy(access, i, left, there + i));
        left.set_meta(access, Meta { count: there + count, inserted: None });
        let out_of_line = parent.node.remove(access, parent.count, index, index - 1);
        access.store(&left.word, left_state.changed().0);
        access.store(&right.word, right_state.dead().0);
        access.store(&parent.node.word, parent.state.changed().0);
        self.path = Some(path);
        Ok(Some((right, out_of_line)))
    }

    fn weight(&self) -> u32 {
        self.tree.height() + 1
    }
}

/// Unlatches steps that did not change.
fn unlatch<K: NodeKind, A: Access, const FAN: usize>(
    access: &mut A,
    path: &Path<'_, K, FAN>,
    steps: std::ops::Range<usize>,
) {
    for i in steps {
        access.store(&path.step(i).node.word, path.step(i).state.0);
    }
}
