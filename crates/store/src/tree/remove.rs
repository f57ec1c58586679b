//! Removal, and the unlinking of leaves that it empties.
//!
//! The last record of a leaf is removed with the leaf, and with every ancestor that has no other child. All of them are
//! latched, from the lowest ancestor that keeps another child downwards. That ancestor drops the branch, and the branch
//! is marked dead. The keys of the leaf now belong to a neighbour, whose word does not change. It has lost nothing, and
//! a reader that looked for a key of the dead leaf holds the dead leaf's word.

use super::Tree;
use super::descend::{Aim, Path};
use super::kind::NodeKind;
use super::load::{Load, Patience, Through};
use super::node::{Interior, Leaf, out_of_line_bytes_at};
use crate::index::StoreCx;
use crate::node_version::State;
use crate::observer::{GAP_CLOSED, Observer};
use crate::rare::{RarePath, note};
use crate::record::RecordPtr;
use seriatim_htm::{Access, Body, BodyError, NoLocks};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Unlinks exactly `record`.
    pub(crate) fn remove<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        record: RecordPtr,
        observer: &mut O,
    ) -> bool {
        self.remove_with(cx, probe, record, observer, |cx, body| cx.agent.run(cx.outside, &NoLocks, body).ok())
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
        self.remove_with(cx, probe, record, &mut crate::Unobserved, |_, body| body.run(access).ok())
    }

    #[inline(always)]
    fn remove_with<'a, 'k, O: Observer>(
        &'a self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'k>,
        record: RecordPtr,
        observer: &mut O,
        mut run: impl FnMut(&mut StoreCx<'_>, &mut Remove<'a, 'k, K, LEAF, FAN>) -> Option<Step<'a, K, LEAF>>,
    ) -> bool {
        // The memory that bodies reach stays allocated while the worker is online (rule 2); this asserts that it is.
        let _ = cx.local.pinned();
        let mut body = Remove { tree: self, probe, record, branch: None, empties: O::EMPTIES };
        let mut patience = Patience::default();
        loop {
            match run(cx, &mut body) {
                Some(Step::Absent | Step::Held) => return false,
                Some(Step::Removed { leaf, before }) => {
                    note(RarePath::RecordUnlinked);
                    observer.changed(&leaf.word, before.0, before.changed().0);
                    return true;
                }
                Some(Step::Unlinked { leaf, branch, out_of_line }) => {
                    let path = body.branch.take().expect("an unlinking body leaves its path");
                    self.retire(cx, leaf, &path, branch, out_of_line);
                    return true;
                }
                None => patience.wait(),
            }
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
        note(RarePath::RecordUnlinked);
        note(RarePath::LeafUnlinked);
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

/// The result of a run of the body.
enum Step<'a, K: NodeKind, const LEAF: usize> {
    /// The key does not have this record.
    Absent,
    /// It is the last record of its leaf, whose gap is held, and no leaf may be left empty.
    Held,
    /// Unlinked, and the leaf's word was `before`.
    Removed { leaf: &'a Leaf<K, LEAF>, before: State },
    /// Unlinked with its leaf and the steps of [`Remove::branch`] from `branch` on.
    Unlinked { leaf: &'a Leaf<K, LEAF>, branch: usize, out_of_line: u64 },
}

struct Remove<'a, 'k, K: NodeKind, const LEAF: usize, const FAN: usize> {
    tree: &'a Tree<K, LEAF, FAN>,
    probe: K::Probe<'k>,
    record: RecordPtr,
    branch: Option<Path<'a, K, FAN>>,
    empties: bool,
}

// SAFETY: nodes are reached while the worker is online, which it is until `run` has returned (rule 2).
unsafe impl<'a, K: NodeKind, const LEAF: usize, const FAN: usize> Body for Remove<'a, '_, K, LEAF, FAN> {
    type Output = Step<'a, K, LEAF>;

    #[inline(always)]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<Step<'a, K, LEAF>, BodyError> {
        let load = &mut Through(&mut *access);
        let (leaf, state) = self.tree.descend(load, &Aim::Key(self.probe), &mut ())?;
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
        access.store(&leaf.word, state.changed().0);
        Ok(Step::Removed { leaf, before: state })
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
        let load = &mut Through(&mut *access);
        let (leaf, state) = self.tree.descend(load, &Aim::Key(self.probe), &mut path)?;
        let count = leaf.meta(load).count;
        let (_, found) = leaf.find(load, count, self.probe);
        if count != 1 || found != Some(self.record) {
            return Err(BodyError::Busy);
        }
        let fork = (0..path.len()).rev().find(|&i| path.step(i).count > 0);
        // Without a fork this is the last leaf of the tree, which stays.
        let first = fork.unwrap_or(path.len());
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
            return Ok(Step::Removed { leaf, before: state });
        };
        let step = path.step(fork);
        let out_of_line = step.node.remove(access, step.count, step.index);
        for i in fork + 1..path.len() {
            access.store(&path.step(i).node.word, path.step(i).state.dead().0);
        }
        access.store(&leaf.word, state.dead().0);
        access.store(&step.node.word, step.state.changed().0);
        self.branch = Some(path);
        Ok(Step::Unlinked { leaf, branch: fork + 1, out_of_line })
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
