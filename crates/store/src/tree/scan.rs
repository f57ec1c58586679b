//! Scans: one leaf at a time, each reached by a descent for the bound that ended the last one, or by a leaf hint.
//!
//! The bounds of a leaf come from the separators on the way down, or are its own range. When its word was read, the
//! leaf held all keys between them, and more if a neighbour was just unlinked. So a scan continues at its bound, or
//! behind the last record that it showed if that is further. The leaf's word covers the keys between.
//!
//! The first records of a scan are few, for many scans end there. The scan then continues behind the last of them, as
//! it would in another leaf. What it shows of the leaf next, it shows with the node version that the leaf has then. If
//! that differs from the first, the first is out of date, and so refutes the transaction that noted both.

use super::cell::Cell;
use super::descend::{Bounds, LeafTarget};
use super::kind::{NodeKind, Separator};
use super::load::{Load, Optimistic, Patience};
use super::node::Leaf;
use super::position::{Limit, Position, Side};
use super::{LeafHint, Tree};
use crate::cursor::{Cursor, Direction};
use crate::node_version::{NodeVersion, State};
use crate::record::{RecordPtr, read_key};
use seriatim_base::prefetch;
use seriatim_memory::Pinned;
use std::cmp::Ordering;
use std::ops::Bound;
use std::ptr::NonNull;

/// A leaf, its word, and separators between which all keys belong to it while its word does not change.
type Bounded<'t, K, const LEAF: usize> = (&'t Leaf<K, LEAF>, State, Bounds<K>);

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Shows the next records of the scan, all of one leaf.
    pub(crate) fn next_leaf(&self, cursor: &mut Cursor, leaf_hint: &mut LeafHint, _pin: Pinned<'_>) -> bool {
        if cursor.position.exhausted {
            return false;
        }
        let mut patience = Patience::default();
        while !self.try_next_leaf(cursor, leaf_hint) {
            patience.wait();
        }
        true
    }

    #[inline(always)]
    fn try_next_leaf(&self, cursor: &mut Cursor, leaf_hint: &mut LeafHint) -> bool {
        let load = &mut Optimistic;
        let Cursor { records, leaf: shown, position, room, .. } = cursor;
        records.clear();
        let forward = position.direction == Direction::Forward;
        let Some((leaf, state, bounds)) = self.leaf_ahead(load, position, leaf_hint) else { return false };
        let (near, far) = (&position.near, &position.far);
        let count = leaf.meta(load).count;
        // Of the records in the range, as many as there is room for: `from..to`. `rest`: records behind them.
        let (from, to, rest);
        if forward {
            from = leaf.end_of(load, 0..count, near, Side::Excluded, 0);
            let end = leaf.end_of(load, from..count, far, Side::Included, count);
            to = end.min(from.saturating_add(*room));
            rest = count - to;
            position.exhausted = to == end && end < count;
        } else {
            to = leaf.end_of(load, 0..count, near, Side::Included, count);
            let end = leaf.end_of(load, 0..to, far, Side::Excluded, 0);
            from = end.max(to.saturating_sub(*room));
            rest = from;
            position.exhausted = from == end && end > 0;
        }
        // Rule 2: the records are safe to fetch; the word decides whether they are the right ones.
        records.extend((from..to).map(|i| {
            let record = leaf.record(load, i);
            prefetch::line(record.as_ptr());
            record
        }));
        if !load.unchanged(&leaf.word, state.0) {
            position.exhausted = false;
            return false;
        }
        if !forward {
            records.reverse();
        }
        *shown = Some((NodeVersion::new(&leaf.word, state.0), NonNull::from(&leaf.gap)));
        let last = records.last().copied();
        if last.is_some() {
            *room = usize::MAX;
        }
        if position.exhausted {
            return true;
        }
        if rest > 0 {
            if let Some(last) = last {
                // SAFETY: it was linked when the leaf was read (rule 2).
                position.near.set(Bound::Excluded(unsafe { read_key(last, K::CLASS) }));
            }
            return true;
        }
        // SAFETY: rule 2: the separators were linked when they were read.
        unsafe {
            if forward {
                position.exhausted = bounds.high.is_none_or(|next| past_high::<K>(next, &position.far));
                if let Some(next) = bounds.high.filter(|_| !position.exhausted) {
                    go_on::<K>(&mut position.near, next, Side::Included, last, Ordering::is_ge);
                }
            } else {
                position.exhausted = bounds.low.is_none_or(|next| past_low::<K>(next, &position.far));
                if let Some(next) = bounds.low.filter(|_| !position.exhausted) {
                    go_on::<K>(&mut position.near, next, Side::Excluded, last, Ordering::is_lt);
                }
            }
        }
        true
    }

    /// The leaf from which the scan continues: the hinted one, or else by a descent, after which it is the hinted one.
    /// `None`: a node was latched or changed, begin again.
    #[inline(always)]
    fn leaf_ahead<'t>(
        &'t self,
        load: &mut Optimistic,
        position: &Position,
        leaf_hint: &mut LeafHint,
    ) -> Option<Bounded<'t, K, LEAF>> {
        let near = &position.near;
        let aim = match (near.side, position.direction) {
            (Side::Unbounded, Direction::Forward) => LeafTarget::First,
            (Side::Unbounded, Direction::Backward) => LeafTarget::Last,
            (Side::Excluded, Direction::Backward) => LeafTarget::Below(K::restore(near)),
            _ => LeafTarget::Key(K::restore(near)),
        };
        if let Some([leaf, _]) = self.touched(leaf_hint) {
            let state = State(load.follow(&leaf.word));
            let range = leaf.range(load);
            let is_here = match &aim {
                LeafTarget::Key(probe) => (range.low..=range.last).contains(&K::short(*probe)),
                // The keys below it belong to the leaf too.
                LeafTarget::Below(probe) => range.low < K::short(*probe) && K::short(*probe) <= range.last,
                LeafTarget::First | LeafTarget::Last => false,
            };
            if is_here && state.is_usable() {
                let low = Some(range.low).filter(|&low| low != K::Cell::MIN);
                let separator = |short| Separator { short, out_of_line: 0 };
                let bounds = Bounds { low: low.map(separator), high: K::Cell::after(range.last).map(separator) };
                return Some((leaf, state, bounds));
            }
        }
        let unlinked = self.unlinked();
        let mut bounds = Bounds::<K>::NONE;
        let (leaf, state) = self.descend(load, &aim, &mut bounds).ok()?;
        leaf_hint.read(self.id, unlinked, leaf.address());
        Some((leaf, state, bounds))
    }
}

impl<K: NodeKind, const LEAF: usize> Leaf<K, LEAF> {
    /// The first of these places behind the end of a range, whose own key is within if its side is `with`. `unbounded`
    /// if there is no end.
    #[inline(always)]
    fn end_of<L: Load>(
        &self,
        load: &mut L,
        places: std::ops::Range<usize>,
        limit: &Limit,
        with: Side,
        unbounded: usize,
    ) -> usize {
        if limit.side == Side::Unbounded {
            return unbounded;
        }
        let probe = K::restore(limit);
        // Most leaves of a scan lie between its ends. (Short forms of byte strings often tie.)
        if K::EXACT {
            if places.is_empty() || K::Cell::less(K::short(probe), self.key(load, places.start)) {
                return places.start;
            }
            if K::Cell::less(self.key(load, places.end - 1), K::short(probe)) {
                return places.end;
            }
        }
        let (place, found) = self.find_from(load, places.start, places.end, probe);
        place + usize::from(found.is_some() && limit.side == with)
    }
}

/// Whether no key at or above `next` is in a range with this high end.
///
/// # Safety
/// As [`Separator::compare`].
#[inline(always)]
unsafe fn past_high<K: NodeKind>(next: Separator<K>, high: &Limit) -> bool {
    if high.side == Side::Unbounded {
        return false;
    }
    // SAFETY: the caller's promise.
    let order = unsafe { next.compare(K::restore(high)) };
    order.is_gt() || order.is_eq() && high.side == Side::Excluded
}

/// Whether no key below `next` is in a range with this low end.
///
/// # Safety
/// As [`Separator::compare`].
#[inline(always)]
unsafe fn past_low<K: NodeKind>(next: Separator<K>, low: &Limit) -> bool {
    // SAFETY: the caller's promise.
    low.side != Side::Unbounded && unsafe { next.compare(K::restore(low)) }.is_le()
}

/// Goes on at `next`, or behind the last record shown if that lies beyond: if `beyond` holds for how it
/// compares with `next`.
///
/// # Safety
/// As [`Separator::compare`]; `last` is linked or was when it was read (rule 2).
#[inline(always)]
unsafe fn go_on<K: NodeKind>(
    near: &mut Limit,
    next: Separator<K>,
    side: Side,
    last: Option<RecordPtr>,
    beyond: impl Fn(Ordering) -> bool,
) {
    // SAFETY: the caller's promise.
    match last.filter(|&last| beyond(unsafe { next.compare(K::of(last)) }.reverse())) {
        // SAFETY: the caller's promise.
        Some(last) => near.set(Bound::Excluded(unsafe { read_key(last, K::CLASS) })),
        None => {
            near.side = side;
            // SAFETY: the caller's promise.
            unsafe { K::save_separator(next, near) };
        }
    }
}
