//! Insertion, with the splits it takes.
//!
//! The leaf is a hinted one, or is found by a descent. If it has room, and its own range shows that the key belongs to
//! it, the body is [`InsertPoint`], which touches nothing else. Otherwise the body of [`Insert`] descends without
//! latches and latches the leaf at the value its word had. Success proves that everything read on the way is still
//! valid. A full leaf is split together with its insertion. If its parent is full too, the topmost of the full
//! ancestors right above it is split first, alone, and the insertion begins again. So a body changes at most a node,
//! its parent, and new nodes that no other thread sees.
//!
//! The split point: an ascending run (each insertion right behind the last) splits behind itself, so that sequential
//! loads leave full leaves. A descending run splits before itself, and any other insertion in the middle.
//!
//! The separator is the roundest value between the two keys. Where they differ in a prefix, a scan of the greater
//! prefix then begins in the leaf of its first key. It does not begin in that of the last key before.

use super::Root;
use super::cell::Cell;
use super::descend::{Bounds, Disturbed, LeafTarget, Path};
use super::kind::{NodeKind, Separator, Short};
use super::load::{BodyLoads, Exclusive, Latching, Load, Optimistic, Patience};
use super::node::{Interior, Leaf, Meta, Range};
use super::spare::{Need, Spare};
use super::{LeafHint, Tree};
use crate::index::{Inserted, StoreCx};
use crate::node_version::State;
use crate::observer::{Observer, Unobserved};
use crate::rare::{RarePath, note};
use crate::record::{RecordPtr, out_of_line, out_of_line_block_bytes};
use seriatim_base::word::AtomicU64;
use seriatim_htm::{Access, Body, BodyError, NoLocks};
use seriatim_memory::OutOfMemory;

/// The part of an [`Observer`] that an insertion calls while it changes nodes. It is called through a pointer, so that
/// [`Insert`] is compiled once for all observers.
trait Admission {
    fn admit(&mut self, gap: &AtomicU64, word: &AtomicU64) -> bool;
    fn inherit(&mut self, gap: &AtomicU64) -> u64;
}

impl<O: Observer> Admission for O {
    fn admit(&mut self, gap: &AtomicU64, word: &AtomicU64) -> bool {
        Observer::admit(self, gap, word)
    }

    fn inherit(&mut self, gap: &AtomicU64) -> u64 {
        Observer::inherit(self, gap)
    }
}

impl From<Disturbed> for BodyError {
    fn from(_: Disturbed) -> BodyError {
        BodyError::Busy
    }
}

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Links `record` unless its key has a record.
    #[inline]
    pub(crate) fn insert<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        record: RecordPtr,
        observer: &mut O,
    ) -> Result<Inserted, OutOfMemory> {
        self.insert_near(cx, probe, &mut LeafHint::default(), record, observer)
    }

    /// As [`Tree::insert`], beginning with the hinted leaves.
    #[inline]
    pub(crate) fn insert_near<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
        observer: &mut O,
    ) -> Result<Inserted, OutOfMemory> {
        // As `insert_with` does, for both.
        let _ = cx.local.pinned();
        if !O::ADMITS
            && let Some(leaf) = self.leaf_to_insert(probe, leaf_hint)
            && let Ok(Some(before)) = cx.agent.run(cx.outside, &NoLocks, &mut InsertPoint { leaf, probe, record })
        {
            observer.changed(&leaf.word, before.0, before.changed().0);
            return Ok(Inserted::Linked);
        }
        self.insert_anywhere(cx, probe, leaf_hint, record, observer)
    }

    /// The leaf for a key, if it has room: a hinted one, or else by a descent, after which it is hinted.
    #[inline(always)]
    fn leaf_to_insert(&self, probe: K::Probe<'_>, leaf_hint: &mut LeafHint) -> Option<&Leaf<K, LEAF>> {
        let takes = |leaf: &&Leaf<K, LEAF>| leaf.takes(&mut Optimistic, probe).is_some();
        match self.touched(leaf_hint).and_then(|[read, inserted]| [inserted, read].into_iter().find(takes)) {
            None => self.find_to_insert(probe, leaf_hint).filter(takes),
            hinted => hinted,
        }
    }

    /// The leaf for a key, which is hinted from now on. A descent that meets a change is not repeated.
    #[inline(never)]
    fn find_to_insert(&self, probe: K::Probe<'_>, leaf_hint: &mut LeafHint) -> Option<&Leaf<K, LEAF>> {
        let unlinked = self.unlinked();
        let (leaf, _) = self.descend(&mut Optimistic, &LeafTarget::Key(probe), &mut ()).ok()?;
        leaf_hint.insert(self.id, unlinked, leaf.address());
        Some(leaf)
    }

    /// As [`Tree::insert_near`], in the cases that the fast path does not handle.
    #[inline(never)]
    fn insert_anywhere<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
        observer: &mut O,
    ) -> Result<Inserted, OutOfMemory> {
        self.insert_with(cx, probe, leaf_hint, record, observer, |cx, body| match O::ADMITS {
            true => body.run(&mut Latching::new(&self.htm)).ok(),
            false => cx.agent.run(cx.outside, &NoLocks, body).ok(),
        })
    }

    /// As [`Tree::insert_near`] for the only thread.
    ///
    /// # Safety
    /// No other thread uses the tree during the call (rule 5).
    pub(crate) unsafe fn insert_exclusive(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
    ) -> Result<Inserted, OutOfMemory> {
        self.insert_with(cx, probe, leaf_hint, record, &mut Unobserved, |_, body| body.run(&mut Exclusive).ok())
    }

    /// As [`Tree::insert`] in a way of the test's choice.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn insert_through<A: Access>(
        &self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'_>,
        record: RecordPtr,
        access: &mut A,
    ) -> Result<Inserted, OutOfMemory> {
        let leaf_hint = &mut LeafHint::default();
        self.insert_with(cx, probe, leaf_hint, record, &mut Unobserved, |_, body| body.run(access).ok())
    }

    #[inline(always)]
    fn insert_with<'a, 'k, O: Observer>(
        &'a self,
        cx: &mut StoreCx<'_>,
        probe: K::Probe<'k>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
        observer: &mut O,
        mut run: impl FnMut(&mut StoreCx<'_>, &mut Insert<'_, 'a, 'k, K, LEAF, FAN>) -> Option<()>,
    ) -> Result<Inserted, OutOfMemory> {
        // The memory that bodies reach stays allocated while the worker is online (rule 2); this asserts that it is.
        let _ = cx.local.pinned();
        let is_here = |leaf: &&Leaf<K, LEAF>| {
            let range = leaf.range(&mut Optimistic);
            (range.low..=range.last).contains(&K::short(probe))
        };
        let start = self.touched(leaf_hint).and_then(|[read, inserted]| [inserted, read].into_iter().find(is_here));
        let unlinked = self.unlinked();
        let mut spare = Spare::default();
        let mut patience = Patience::default();
        if start.is_some_and(|leaf| leaf.meta(&mut Optimistic).count == LEAF) {
            // Most likely it will be split. If memory is refused here, the body requests it again, should it
            // need any.
            let _ = spare.provide(cx, Need { node: Leaf::<K, LEAF>::BYTES, root: 0, out_of_line: 0 });
        }
        let (leaf, inserted) = loop {
            let admission: Option<&mut dyn Admission> = if O::ADMITS { Some(&mut *observer) } else { None };
            let mut body = Insert { tree: self, probe, record, start, spare: &spare, admission, step: None };
            let step = match run(cx, &mut body) {
                Some(()) => body.step,
                None => None,
            };
            match step {
                Some(Step::Linked { leaf, before }) => {
                    observer.changed(&leaf.word, before.0, before.changed().0);
                    break (leaf, Inserted::Linked);
                }
                Some(Step::Split { leaf, before, right, into_right }) => {
                    note(RarePath::LeafSplit);
                    spare.used();
                    observer.changed(&leaf.word, before.0, before.changed().0);
                    observer.created(&leaf.word, before.0, &right.word, State::NEW.0, &right.gap);
                    break (if into_right { right } else { leaf }, Inserted::Linked);
                }
                Some(Step::Exists { leaf, record }) => break (leaf, Inserted::Exists(record)),
                Some(Step::Refused { leaf }) => break (leaf, Inserted::Refused),
                Some(Step::Again) => {
                    note(RarePath::InteriorSplit);
                    spare.used();
                }
                Some(Step::Lacks(need)) => {
                    if let Err(refused) = spare.provide(cx, need) {
                        spare.give_back(cx);
                        return Err(refused);
                    }
                }
                None => patience.wait(),
            }
        };
        spare.give_back(cx);
        leaf_hint.insert(self.id, unlinked, leaf.address());
        Ok(inserted)
    }
}

/// The usual insertion: into a leaf that was found before and has room, of a key without a record. Whatever else it
/// finds, it changes nothing and leaves to [`Insert`].
struct InsertPoint<'a, 'k, K: NodeKind, const LEAF: usize> {
    leaf: &'a Leaf<K, LEAF>,
    probe: K::Probe<'k>,
    record: RecordPtr,
}

// SAFETY: the leaf was reached while the worker is online, which it is until `run` has returned (rule 2).
unsafe impl<K: NodeKind, const LEAF: usize> Body for InsertPoint<'_, '_, K, LEAF> {
    /// The leaf's word before the insertion, if there was one.
    type Output = Option<State>;

    #[inline(always)]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<Option<State>, BodyError> {
        let InsertPoint { leaf, probe, record } = *self;
        let load = &mut BodyLoads(&mut *access);
        let Some((state, meta)) = leaf.takes(load, probe) else { return Ok(None) };
        let (place, found) = leaf.find_to_insert(load, meta, probe);
        if found.is_some() || !access.lock(&leaf.word, state.0, state.latched().0) {
            return Ok(None);
        }
        leaf.insert(access, meta.count, place, K::short(probe), record);
        access.store(&leaf.word, state.changed().0);
        Ok(Some(state))
    }
}

/// The result of a run of the body.
enum Step<'a, K: NodeKind, const LEAF: usize> {
    /// Linked, and the leaf's word was `before`.
    Linked { leaf: &'a Leaf<K, LEAF>, before: State },
    /// Linked by a split, into one of the two leaves.
    Split { leaf: &'a Leaf<K, LEAF>, before: State, right: &'a Leaf<K, LEAF>, into_right: bool },
    /// The key has a record.
    Exists { leaf: &'a Leaf<K, LEAF>, record: RecordPtr },
    /// The observer did not admit it.
    Refused { leaf: &'a Leaf<K, LEAF> },
    /// An interior node was split: begin again.
    Again,
    /// Nothing changed: memory lacks.
    Lacks(Need),
}

struct Insert<'b, 'a, 'k, K: NodeKind, const LEAF: usize, const FAN: usize> {
    tree: &'a Tree<K, LEAF, FAN>,
    probe: K::Probe<'k>,
    record: RecordPtr,
    start: Option<&'a Leaf<K, LEAF>>,
    spare: &'b Spare,
    /// The observer, if it must admit the insertion.
    admission: Option<&'b mut dyn Admission>,
    /// The result of a successful run.
    step: Option<Step<'a, K, LEAF>>,
}

// SAFETY: nodes are reached while the worker is online, which it is until `run` has returned (rule 2).
unsafe impl<K: NodeKind, const LEAF: usize, const FAN: usize> Body for Insert<'_, '_, '_, K, LEAF, FAN> {
    // The step stays in `self`: results are moved through several hands.
    type Output = ();

    #[inline(always)]
    fn run<A: Access>(&mut self, access: &mut A) -> Result<(), BodyError> {
        self.step = Some(self.go(access)?);
        Ok(())
    }

    /// Once it has memory to split with, it goes down twice.
    fn weight(&self) -> u32 {
        self.tree.height() * if self.spare.is_empty() { 1 } else { 2 }
    }
}

impl<'a, K: NodeKind, const LEAF: usize, const FAN: usize> Insert<'_, 'a, '_, K, LEAF, FAN> {
    #[inline(always)]
    fn go<A: Access>(&mut self, access: &mut A) -> Result<Step<'a, K, LEAF>, BodyError> {
        if let Some(leaf) = self.start {
            let load = &mut BodyLoads(access);
            let state = State(load.follow(&leaf.word));
            let range = leaf.range(load);
            if state.is_usable() && (range.low..=range.last).contains(&K::short(self.probe)) {
                return match self.place(access, leaf, state, None)? {
                    Some(step) => Ok(step),
                    None => self.split(access),
                };
            }
        }
        let mut bounds = Bounds::NONE;
        let (leaf, state) = self.tree.descend(&mut BodyLoads(access), &LeafTarget::Key(self.probe), &mut bounds)?;
        match self.place(access, leaf, state, Some(bounds.range()))? {
            Some(step) => Ok(step),
            None => self.split(access),
        }
    }

    /// Inserts into the leaf that the key belongs to while its word is `state`; `None` if it is full.
    #[inline(always)]
    fn place<A: Access>(
        &mut self,
        access: &mut A,
        leaf: &'a Leaf<K, LEAF>,
        state: State,
        range: Option<Range<Short<K>>>,
    ) -> Result<Option<Step<'a, K, LEAF>>, BodyError> {
        let load = &mut BodyLoads(&mut *access);
        let meta = leaf.meta(load);
        let count = meta.count;
        let (place, found) = leaf.find_to_insert(load, meta, self.probe);
        if let Some(record) = found {
            let sure = load.unchanged(&leaf.word, state.0);
            return if sure { Ok(Some(Step::Exists { leaf, record })) } else { Err(BodyError::Busy) };
        }
        if count == LEAF {
            return Ok(None);
        }
        if !access.lock(&leaf.word, state.0, state.latched().0) {
            return Err(BodyError::Busy);
        }
        if let Some(admission) = &mut self.admission
            && !admission.admit(&leaf.gap, &leaf.word)
        {
            access.store(&leaf.word, state.0);
            return Ok(Some(Step::Refused { leaf }));
        }
        if let Some(range) = range {
            leaf.extend_to(access, range);
        }
        leaf.insert(access, count, place, K::short(self.probe), self.record);
        access.store(&leaf.word, state.changed().0);
        Ok(Some(Step::Linked { leaf, before: state }))
    }

    /// Splits the full leaf, or what must be split before it.
    #[cold]
    #[inline(never)]
    fn split<A: Access>(&mut self, access: &mut A) -> Result<Step<'a, K, LEAF>, BodyError> {
        let mut path = Path::new();
        let load = &mut BodyLoads(&mut *access);
        let (leaf, state) = self.tree.descend(load, &LeafTarget::Key(self.probe), &mut path)?;
        let meta = leaf.meta(load);
        let (place, found) = leaf.find_to_insert(load, meta, self.probe);
        if found.is_some() || meta.count < LEAF || !load.unchanged(&leaf.word, state.0) {
            return Err(BodyError::Busy);
        }
        let full = (0..path.len()).rev().take_while(|&i| path.step(i).count == Interior::<K, FAN>::FULL).count();
        match full {
            0 => self.split_leaf(access, &path, leaf, state, meta, place),
            full => self.split_interior(access, &path, path.len() - full),
        }
    }

    /// Splits the full leaf at the end of `path`, whose parent is not full, and inserts at `place`.
    fn split_leaf<A: Access>(
        &mut self,
        access: &mut A,
        path: &Path<'a, K, FAN>,
        leaf: &'a Leaf<K, LEAF>,
        state: State,
        meta: Meta,
        place: usize,
    ) -> Result<Step<'a, K, LEAF>, BodyError> {
        // The leaf's keys and the new one, in order: 0..=LEAF. The first `at` of them stay.
        let at = split_point(meta, place);
        let (short, new) = (K::short(self.probe), self.record);
        let entry = |access: &mut A, i: usize| {
            let load = &mut BodyLoads(access);
            match i.cmp(&place) {
                std::cmp::Ordering::Less => (leaf.key(load, i), leaf.record(load, i)),
                std::cmp::Ordering::Equal => (short, new),
                std::cmp::Ordering::Greater => (leaf.key(load, i - 1), leaf.record(load, i - 1)),
            }
        };
        let (below, above) = (entry(access, at - 1), entry(access, at));
        // Without a region another insertion may have moved the keys meanwhile, and one been seen twice.
        if !BodyLoads(&mut *access).unchanged(&leaf.word, state.0) {
            return Err(BodyError::Busy);
        }
        let out_of_line: &[u8] = if below.0 == above.0 {
            // SAFETY: rule 2: both are linked, or the caller's to link.
            unsafe { shortest_between(K::bytes(K::of(below.1)), K::bytes(K::of(above.1))) }
        } else {
            &[]
        };
        let parent = path.len().checked_sub(1).map(|last| path.step(last));
        let need = Need {
            node: Leaf::<K, LEAF>::BYTES,
            root: if parent.is_none() { Interior::<K, FAN>::BYTES } else { 0 },
            out_of_line: if out_of_line.is_empty() { 0 } else { out_of_line_block_bytes(out_of_line.len()) },
        };
        let Some(taken) = self.spare.take(need) else { return Ok(Step::Lacks(need)) };
        let between = if out_of_line.is_empty() { K::Cell::roundest(below.0, above.0) } else { above.0 };
        let mut separator = Separator::<K> { short: between, out_of_line: 0 };
        if !out_of_line.is_empty() {
            // SAFETY: the block is private and of the requested size.
            unsafe { out_of_line::write(taken.out_of_line, out_of_line) };
            separator.out_of_line = taken.out_of_line.as_ptr().expose_provenance() as u64;
        }

        if let Some(parent) = parent
            && !access.lock(&parent.node.word, parent.state.0, parent.state.latched().0)
        {
            return Err(BodyError::Busy);
        }
        let latched = access.lock(&leaf.word, state.0, state.latched().0);
        let admitted = |admission: &mut &mut dyn Admission| admission.admit(&leaf.gap, &leaf.word);
        let admitted = latched && self.admission.as_mut().is_none_or(admitted);
        if !admitted {
            if latched {
                access.store(&leaf.word, state.0);
            }
            if let Some(parent) = parent {
                access.store(&parent.node.word, parent.state.0);
            }
            return if latched { Ok(Step::Refused { leaf }) } else { Err(BodyError::Busy) };
        }

        // SAFETY: the block is private and of the requested size, a multiple of the line size, hence aligned.
        let right = unsafe { Leaf::<K, LEAF>::create(access, taken.node) };
        let gap = match &mut self.admission {
            Some(admission) => {
                // Others may hold the word for a moment, until they see the latch: their holds are not inherited.
                settle(access, leaf);
                admission.inherit(&leaf.gap)
            }
            None => access.load(&leaf.gap),
        };
        access.store(&right.gap, gap);
        for i in at..=LEAF {
            let (short, record) = entry(access, i);
            right.set(access, i - at, short, record);
        }
        let into_right = place >= at;
        let inserted = into_right.then(|| (place - at) as u32);
        right.set_meta(access, Meta { count: LEAF + 1 - at, inserted });
        let Range { low, last } = path.bounds.range();
        let middle = Bounds::<K> { low: Some(separator), high: Some(separator) }.range();
        right.set_range(access, Range { low: middle.low, last });
        leaf.set_range(access, Range { low, last: middle.last });
        if into_right {
            leaf.set_meta(access, Meta { count: at, inserted: None });
        } else {
            leaf.insert(access, at - 1, place, short, new);
        }
        self.link(access, path, path.len(), leaf.address(), separator, right.address(), taken.root);
        access.store(&leaf.word, state.changed().0);
        if let Some(parent) = parent {
            access.store(&parent.node.word, parent.state.changed().0);
        }
        Ok(Step::Split { leaf, before: state, right, into_right })
    }

    /// Splits the full interior node that is step `index` of `path`; the step before it, if any, is not full.
    fn split_interior<A: Access>(
        &mut self,
        access: &mut A,
        path: &Path<'a, K, FAN>,
        index: usize,
    ) -> Result<Step<'a, K, LEAF>, BodyError> {
        let step = path.step(index);
        let parent = index.checked_sub(1).map(|above| path.step(above));
        let bytes = Interior::<K, FAN>::BYTES;
        let need = Need { node: bytes, root: if parent.is_none() { bytes } else { 0 }, out_of_line: 0 };
        let Some(taken) = self.spare.take(need) else { return Ok(Step::Lacks(need)) };
        if let Some(parent) = parent
            && !access.lock(&parent.node.word, parent.state.0, parent.state.latched().0)
        {
            return Err(BodyError::Busy);
        }
        if !access.lock(&step.node.word, step.state.0, step.state.latched().0) {
            if let Some(parent) = parent {
                access.store(&parent.node.word, parent.state.0);
            }
            return Err(BodyError::Busy);
        }
        // At the right edge all but the last child stay.
        let last = if step.index == step.count { step.count - 1 } else { step.count / 2 };
        // SAFETY: the block is private and of the requested size, a multiple of the line size, hence aligned.
        let (right, separator) = unsafe { step.node.split(access, step.count, last, taken.node) };
        self.link(access, path, index, step.node.address(), separator, right.address(), taken.root);
        access.store(&step.node.word, step.state.changed().0);
        if let Some(parent) = parent {
            access.store(&parent.node.word, parent.state.changed().0);
        }
        Ok(Step::Again)
    }

    /// Links `right` behind `left`, which hangs below step `below - 1` of `path`, or is the root if `below`
    /// is 0. Both `left` and that step are latched; a root that is latched cannot cease to be the root.
    #[expect(clippy::too_many_arguments, reason = "two callers, and no two of these belong together")]
    fn link<A: Access>(
        &self,
        access: &mut A,
        path: &Path<'a, K, FAN>,
        below: usize,
        left: usize,
        separator: Separator<K>,
        right: usize,
        root: std::ptr::NonNull<u8>,
    ) {
        if let Some(above) = below.checked_sub(1) {
            let step = path.step(above);
            step.node.insert(access, step.count, step.index, separator, right);
            return;
        }
        let level = path.len() + 1;
        assert!(level < super::HEIGHT_MAX, "a tree of this height would not fit the address space");
        debug_assert_eq!(access.load(&self.tree.root), Root { address: left, level: level - 1 }.pack());
        // SAFETY: the block is private and of the requested size, a multiple of the line size, hence aligned.
        let node = unsafe { Interior::<K, FAN>::create(access, root, level, left) };
        node.insert(access, 0, 0, separator, right);
        access.store(&self.tree.root, Root { address: node.address(), level }.pack());
    }
}

impl<K: NodeKind> Bounds<K> {
    /// The short forms that surely lie within: a separator with an out-of-line value leaves its own on neither side.
    #[inline(always)]
    pub(crate) fn range(&self) -> Range<Short<K>> {
        let low = match self.low {
            None => Some(K::Cell::MIN),
            Some(Separator { short, out_of_line: 0 }) => Some(short),
            Some(Separator { short, .. }) => K::Cell::after(short),
        };
        let last = match self.high {
            None => Some(K::Cell::MAX),
            Some(Separator { short, .. }) => K::Cell::before(short),
        };
        match (low, last) {
            (Some(low), Some(last)) => Range { low, last },
            _ => Range { low: K::Cell::MAX, last: K::Cell::MIN },
        }
    }
}

/// How many of a full leaf's `LEAF + 1` keys, the new one at `place` among them, stay in it.
fn split_point(meta: Meta, place: usize) -> usize {
    let keys = meta.count + 1;
    if meta.ascends(place) {
        // Behind the run; at the end of the leaf the new key begins the new leaf alone.
        if place == meta.count { place } else { place + 1 }
    } else if place == 0 && meta.inserted == Some(0) {
        1
    } else {
        keys / 2
    }
}

/// The shortest prefix of `above` that is above `below`.
fn shortest_between<'t>(below: &[u8], above: &'t [u8]) -> &'t [u8] {
    debug_assert!(below < above);
    let common = below.iter().zip(above).take_while(|(a, b)| a == b).count();
    &above[..=common]
}

/// Ensures that a thread that changes the gap word of a latched leaf from now on sees the latch. A read-modify-write
/// that changes nothing comes before or after theirs.
fn settle<K: NodeKind, A: Access, const LEAF: usize>(access: &mut A, leaf: &Leaf<K, LEAF>) {
    loop {
        let gap = access.load(&leaf.gap);
        if access.lock(&leaf.gap, gap, gap) {
            return;
        }
    }
}
