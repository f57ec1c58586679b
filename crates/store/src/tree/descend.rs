//! From the root to a leaf, without a latch.
//!
//! Optimistic lock coupling (Leis et al., "The ART of Practical Synchronization", 2016): a child's word is
//! read before the parent's word is checked again. If the latter is unchanged, the child was the right one at
//! the instant its word was read. A node loses keys only when its word changes. So the child is the right one for as
//! long as its own word does not change.

use super::kind::{NodeKind, Separator};
use super::load::Load;
use super::node::{Interior, Leaf};
use super::{HEIGHT_MAX, Root, Tree};
use crate::node_version::State;
use seriatim_base::prefetch;

/// Which leaf is wanted.
pub(crate) enum LeafTarget<'k, K: NodeKind> {
    /// The one the key belongs to.
    Key(K::Probe<'k>),
    /// The one the greatest keys below this belong to.
    Below(K::Probe<'k>),
    /// The first.
    First,
    /// The last.
    Last,
}

/// A node on the way was latched or changed: begin again.
#[derive(Debug)]
pub(crate) struct Disturbed;

/// The data to record on the way down. The record counts only if the descent succeeds.
pub(crate) trait Trace<'t, K: NodeKind, const FAN: usize> {
    fn begin(&mut self);
    fn step<L: Load>(&mut self, load: &mut L, step: Step<'t, K, FAN>);
}

/// An interior node on the way, and which of its `count + 1` children was taken.
pub(crate) struct Step<'t, K: NodeKind, const FAN: usize> {
    pub(crate) node: &'t Interior<K, FAN>,
    pub(crate) state: State,
    pub(crate) count: usize,
    pub(crate) index: usize,
}

impl<K: NodeKind, const FAN: usize> Clone for Step<'_, K, FAN> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: NodeKind, const FAN: usize> Copy for Step<'_, K, FAN> {}

/// Nothing.
impl<'t, K: NodeKind, const FAN: usize> Trace<'t, K, FAN> for () {
    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn step<L: Load>(&mut self, _load: &mut L, _step: Step<'t, K, FAN>) {}
}

/// The separators next to the way: keys at or above `low` and below `high` belong to the leaf.
pub(crate) struct Bounds<K: NodeKind> {
    pub(crate) low: Option<Separator<K>>,
    pub(crate) high: Option<Separator<K>>,
}

impl<K: NodeKind> Bounds<K> {
    pub(crate) const NONE: Self = Bounds { low: None, high: None };
}

impl<'t, K: NodeKind, const FAN: usize> Trace<'t, K, FAN> for Bounds<K> {
    #[inline(always)]
    fn begin(&mut self) {
        *self = Self::NONE;
    }

    #[inline(always)]
    fn step<L: Load>(&mut self, load: &mut L, step: Step<'t, K, FAN>) {
        if step.index > 0 {
            self.low = Some(step.node.separator(load, step.index - 1));
        }
        if step.index < step.count {
            self.high = Some(step.node.separator(load, step.index));
        }
    }
}

/// Every step, and the bounds.
pub(crate) struct Path<'t, K: NodeKind, const FAN: usize> {
    steps: [Option<Step<'t, K, FAN>>; HEIGHT_MAX],
    len: usize,
    pub(crate) bounds: Bounds<K>,
}

impl<'t, K: NodeKind, const FAN: usize> Path<'t, K, FAN> {
    pub(crate) fn new() -> Self {
        Path { steps: [const { None }; HEIGHT_MAX], len: 0, bounds: Bounds::NONE }
    }

    /// How many steps.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Step `index`, counted from the root.
    pub(crate) fn step(&self, index: usize) -> Step<'t, K, FAN> {
        self.steps[..self.len][index].expect("steps below the length are there")
    }
}

impl<'t, K: NodeKind, const FAN: usize> Trace<'t, K, FAN> for Path<'t, K, FAN> {
    fn begin(&mut self) {
        self.len = 0;
        <Bounds<K> as Trace<'t, K, FAN>>::begin(&mut self.bounds);
    }

    fn step<L: Load>(&mut self, load: &mut L, step: Step<'t, K, FAN>) {
        self.steps[self.len] = Some(step);
        self.len += 1;
        self.bounds.step(load, step);
    }
}

/// A leaf and the value of its word when it was the wanted one.
pub(crate) type FoundLeaf<'t, K, const LEAF: usize> = (&'t Leaf<K, LEAF>, State);

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Descends to the leaf that `aim` selects. The caller is online; the leaf stays allocated while it is
    /// (rule 2).
    ///
    /// # Errors
    /// [`Disturbed`]: wait a little and begin again.
    #[inline(always)]
    pub(crate) fn descend<'t, L: Load, T: Trace<'t, K, FAN>>(
        &'t self,
        load: &mut L,
        aim: &LeafTarget<'_, K>,
        trace: &mut T,
    ) -> Result<FoundLeaf<'t, K, LEAF>, Disturbed> {
        trace.begin();
        let root = load.follow(&*self.root);
        let Root { mut address, level } = Root::unpack(root);
        let mut state = self.state_of(load, address, level);
        // The root's word was read, and it was the root then if it still is. An address is never the root's twice while
        // this thread is online.
        if !load.unchanged(&self.root, root) || !state.is_usable() {
            return Err(Disturbed);
        }
        for level in (1..=level).rev() {
            // SAFETY: rule 2: reached while online, at this level.
            let node = unsafe { Interior::<K, FAN>::at(address) };
            let count = node.count(load);
            let index = match aim {
                LeafTarget::Key(probe) => node.find(load, count, *probe),
                LeafTarget::Below(probe) => node.find_below(load, count, *probe),
                LeafTarget::First => 0,
                LeafTarget::Last => count,
            };
            let child = node.child(load, index);
            let bytes = if level == 1 { Leaf::<K, LEAF>::BYTES } else { Interior::<K, FAN>::BYTES };
            prefetch::lines(std::ptr::without_provenance(child), bytes);
            trace.step(load, Step { node, state, count, index });
            let child_state = self.state_of(load, child, level - 1);
            if !load.unchanged(&node.word, state.0) || !child_state.is_usable() {
                return Err(Disturbed);
            }
            (address, state) = (child, child_state);
        }
        // SAFETY: rule 2: reached while online, at level 0.
        Ok((unsafe { Leaf::at(address) }, state))
    }

    #[inline(always)]
    fn state_of<L: Load>(&self, load: &mut L, address: usize, level: usize) -> State {
        // SAFETY: rule 2: reached while online, at this level.
        let word = unsafe {
            if level == 0 { &Leaf::<K, LEAF>::at(address).word } else { &Interior::<K, FAN>::at(address).word }
        };
        State(load.follow(word))
    }
}
