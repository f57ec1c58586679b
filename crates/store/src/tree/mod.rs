//! The ordered index: a B+-tree (DBX §4; `README.md` beside this file).
//!
//! Invariants: (a) Every key is in the one leaf that a descent for it reaches; leaves hold their keys in ascending
//! order, without repeats. (b) Every change of a leaf's records, every loss of keys of its range, and its unlinking
//! changes the leaf's word. So a word that has not changed proves what the leaf held and that it is still the leaf to
//! look in. (c) A thread that waits for a latch holds none, and one that holds a latch waits for nothing: no deadlock,
//! and waits end. (d) Nodes have no siblings: scans go from leaf to leaf by descending for the bound that ended the
//! last one. So a split touches the node, its parent and nothing else. An unlink touches nodes on the way to the leaf,
//! and its left neighbour if a rounder separator is between them. (e) A leaf that becomes empty is unlinked with every
//! ancestor that has no other child. It stays if its gap is held, if its last record stays (`Observer::EMPTIES`), or
//! if it is the last leaf. Half-empty leaves are merged where memory is scarce, and nothing else (Sen and Tarjan 2010:
//! deletion without rebalancing is fine).

mod cell;
mod check;
mod descend;
mod insert;
mod kind;
mod leaf_hint;
pub(crate) mod load;
mod node;
mod position;
mod remove;
mod scan;
mod search;
pub(crate) mod size;
mod spare;

#[cfg(all(test, not(loom)))]
mod tests;

pub use leaf_hint::LeafHint;
pub(crate) use position::{Limit, Position};

use crate::index::StoreCx;
use crate::node_version::{NodeVersion, State};
use crate::record::RecordPtr;
use cell::Cell;
use descend::{FoundLeaf, LeafTarget};
use kind::NodeKind;
use load::{Exclusive, Load, Optimistic, Patience};
use node::Leaf;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{CACHE_LINE, CacheAligned, prefetch};
use seriatim_htm::Htm;
use seriatim_memory::{OutOfMemory, Pinned};
use std::marker::PhantomData;

/// Levels above the leaves that a tree can have. A tree of 15-way nodes ends far below, as split nodes have a fan-out
/// of at least 2 and addresses have 48 bits. The root's level also fits beside its address.
const HEIGHT_MAX: usize = 32;
const _: () = assert!(HEIGHT_MAX < CACHE_LINE);

/// The first records of a range, as many as a scan shows at first.
pub(crate) type Head = [Option<RecordPtr>; size::HEAD];

/// A B+-tree over keys of kind `K`, with up to `LEAF` records in a leaf and `FAN` children in an interior node.
#[derive(Debug)]
pub(crate) struct Tree<K: NodeKind, const LEAF: usize, const FAN: usize> {
    /// [`Root`], alone on its line (DBX §4).
    root: CacheAligned<AtomicU64>,
    /// Leaves unlinked so far; see [`LeafHint`].
    unlinked: CacheAligned<AtomicU64>,
    id: u64,
    htm: Htm,
    kind: PhantomData<K>,
}

/// The root's address, aligned to a line, with its level in the bits that leaves free.
#[derive(Clone, Copy, Debug)]
struct Root {
    address: usize,
    level: usize,
}

impl Root {
    const LEVEL: u64 = CACHE_LINE as u64 - 1;

    #[inline(always)]
    fn pack(self) -> u64 {
        debug_assert!(self.level < HEIGHT_MAX && self.address as u64 & Root::LEVEL == 0);
        self.address as u64 | self.level as u64
    }

    #[inline(always)]
    fn unpack(word: u64) -> Root {
        Root { address: (word & !Root::LEVEL) as usize, level: (word & Root::LEVEL) as usize }
    }
}

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    const SIZES: () = assert!(LEAF >= 2 && FAN >= 3, "a split leaves a record, or a child, on each side");

    /// An empty tree.
    pub(crate) fn new(htm: &Htm, cx: &mut StoreCx<'_>) -> Result<Self, OutOfMemory> {
        const { Self::SIZES };
        static IDS: AtomicU64 = AtomicU64::new(1);
        let memory = cx.local.allocate(cx.outside, Leaf::<K, LEAF>::BYTES)?;
        // SAFETY: just allocated, of a multiple of the line size, and so aligned.
        let leaf = unsafe { Leaf::<K, LEAF>::create(&mut Exclusive, memory) };
        Ok(Tree {
            root: CacheAligned(AtomicU64::new(Root { address: leaf.address(), level: 0 }.pack())),
            unlinked: CacheAligned::default(),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            htm: htm.clone(),
            kind: PhantomData,
        })
    }

    /// The record of `probe`, or the node version that proves its absence.
    pub(crate) fn get(&self, probe: K::Probe<'_>, _pin: Pinned<'_>) -> Result<RecordPtr, NodeVersion> {
        self.get_by_descent(probe).0
    }

    /// As [`Tree::get`]; the gap word of the leaf comes with the node version.
    pub(crate) fn get_or_gap<'p>(
        &'p self,
        probe: K::Probe<'_>,
        _pin: Pinned<'p>,
    ) -> Result<RecordPtr, (NodeVersion, &'p AtomicU64)> {
        let (answer, leaf) = self.get_by_descent(probe);
        answer.map_err(|node_version| (node_version, &leaf.gap))
    }

    /// As [`Tree::get`], beginning with the hinted leaves.
    pub(crate) fn get_near(
        &self,
        probe: K::Probe<'_>,
        leaf_hint: &mut LeafHint,
        _pin: Pinned<'_>,
    ) -> Result<RecordPtr, NodeVersion> {
        Self::get_in(probe, || self.leaf_near(probe, leaf_hint)).0
    }

    /// The first records between two keys, both included, as far as the leaf of `low` has them and [`Head`] has room.
    /// The node version of that leaf proves that no others come before them. `None` if the leaf was being changed, or
    /// keys are byte strings, whose short forms may tie.
    #[inline]
    pub(crate) fn head_near(
        &self,
        low: K::Probe<'_>,
        high: K::Probe<'_>,
        leaf_hint: &mut LeafHint,
        _pin: Pinned<'_>,
    ) -> Option<(Head, NodeVersion)> {
        if !K::EXACT {
            return None;
        }
        let load = &mut Optimistic;
        let (leaf, state) = self.leaf_near(low, leaf_hint)?;
        let count = leaf.meta(load).count;
        let (first, _) = leaf.find(load, count, low);
        let mut head = [None; size::HEAD];
        for (place, slot) in (first..count).zip(&mut head) {
            if K::Cell::less(K::short(high), leaf.key(load, place)) {
                break;
            }
            let record = leaf.record(load, place);
            prefetch::line(record.as_ptr());
            *slot = Some(record);
        }
        load.unchanged(&leaf.word, state.0).then(|| (head, NodeVersion::new(&leaf.word, state.0)))
    }

    #[inline(always)]
    fn get_by_descent(&self, probe: K::Probe<'_>) -> (Result<RecordPtr, NodeVersion>, &Leaf<K, LEAF>) {
        Self::get_in(probe, || self.descend(&mut Optimistic, &LeafTarget::Key(probe), &mut ()).ok())
    }

    /// The answer of the leaf that `find` returns, and that leaf: again, while either is disturbed.
    #[inline(always)]
    fn get_in<'t>(
        probe: K::Probe<'_>,
        mut find: impl FnMut() -> Option<FoundLeaf<'t, K, LEAF>>,
    ) -> (Result<RecordPtr, NodeVersion>, &'t Leaf<K, LEAF>) {
        let mut patience = Patience::default();
        loop {
            if let Some((leaf, state)) = find()
                && let Some(answer) = leaf.get(state, probe)
            {
                return (answer, leaf);
            }
            patience.wait();
        }
    }

    /// The leaf that `probe` belongs to: a hinted one, or else by a descent, after which it is hinted. `None`: a node
    /// was latched or changed, begin again.
    #[inline(always)]
    fn leaf_near(&self, probe: K::Probe<'_>, leaf_hint: &mut LeafHint) -> Option<FoundLeaf<'_, K, LEAF>> {
        if let Some(hinted) = self.hinted(probe, leaf_hint) {
            return Some(hinted);
        }
        let unlinked = self.unlinked();
        let found = self.descend(&mut Optimistic, &LeafTarget::Key(probe), &mut ()).ok()?;
        leaf_hint.read(self.id, unlinked, found.0.address());
        Some(found)
    }

    /// The hinted leaf that `probe` belongs to by its own range.
    #[inline(always)]
    fn hinted(&self, probe: K::Probe<'_>, leaf_hint: &LeafHint) -> Option<FoundLeaf<'_, K, LEAF>> {
        let leaves = self.touched(leaf_hint)?.into_iter();
        leaves.filter_map(|leaf| leaf.covers(&mut Optimistic, probe).map(|state| (leaf, state))).next()
    }

    /// Nodes on the way to a leaf, the leaf included: the weight of a body that goes there once.
    #[inline(always)]
    fn height(&self) -> u32 {
        Root::unpack(self.root.load(Ordering::Relaxed)).level as u32 + 1
    }

    /// The count of leaves unlinked, to be read before a hinted leaf is reached.
    #[inline(always)]
    fn unlinked(&self) -> u64 {
        // ORDERING: pairs with the release in `retire`: a thread that comes online after that leaf's grace
        // period sees it counted.
        self.unlinked.load(Ordering::Acquire)
    }

    /// The leaves of a leaf hint, if they are still there: the one that was read, the one that was inserted into.
    #[inline(always)]
    fn touched(&self, leaf_hint: &LeafHint) -> Option<[&Leaf<K, LEAF>; 2]> {
        let kept = leaf_hint.tree == self.id && leaf_hint.unlinked == self.unlinked();
        // SAFETY: rule 2: no leaf of this tree was retired since the leaf hint was set, or only after this
        // thread came online.
        kept.then(|| unsafe { [Leaf::at(leaf_hint.leaf), Leaf::at(leaf_hint.inserted)] })
    }
}

impl<K: NodeKind, const LEAF: usize> Leaf<K, LEAF> {
    /// The answer for `probe`, which belongs to this leaf if the word is still `state`; `None` if it is not.
    #[inline(always)]
    fn get(&self, state: State, probe: K::Probe<'_>) -> Option<Result<RecordPtr, NodeVersion>> {
        let load = &mut Optimistic;
        let count = self.meta(load).count;
        let (_, found) = self.find(load, count, probe);
        load.unchanged(&self.word, state.0).then(|| found.ok_or_else(|| NodeVersion::new(&self.word, state.0)))
    }
}
