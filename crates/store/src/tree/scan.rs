//! Scans: one leaf at a time, each reached by a descent for the bound that ended the last one.
//!
//! The bounds of a leaf come from the separators on the way down. When its word was read, the leaf held all
//! keys between them, and more if a neighbour was just unlinked. So a scan continues at its bound, or behind
//! the last record that it showed if that is further: the leaf's word covers the keys between.

use super::Tree;
use super::descend::{Bounds, LeafTarget};
use super::kind::{NodeKind, Separator};
use super::load::{Load, Optimistic, Patience};
use super::node::Leaf;
use super::position::{Limit, Side};
use crate::cursor::{Cursor, Direction};
use crate::node_version::NodeVersion;
use crate::record::{RecordPtr, read_key};
use seriatim_base::prefetch;
use seriatim_memory::Pinned;
use std::cmp::Ordering;
use std::ops::Bound;
use std::ptr::NonNull;

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Shows the next leaf of the scan.
    pub(crate) fn next_leaf(&self, cursor: &mut Cursor, _pin: Pinned<'_>) -> bool {
        if cursor.position.exhausted {
            return false;
        }
        let mut patience = Patience::default();
        while !self.try_next_leaf(cursor) {
            patience.wait();
        }
        true
    }

    #[inline(always)]
    fn try_next_leaf(&self, cursor: &mut Cursor) -> bool {
        let load = &mut Optimistic;
        let mut bounds = Bounds::<K>::NONE;
        let Cursor { records, leaf: shown, position, .. } = cursor;
        records.clear();
        let forward = position.direction == Direction::Forward;
        let (near, far) = (&position.near, &position.far);
        let aim = match (near.side, position.direction) {
            (Side::Unbounded, Direction::Forward) => LeafTarget::First,
            (Side::Unbounded, Direction::Backward) => LeafTarget::Last,
            (Side::Excluded, Direction::Backward) => LeafTarget::Below(K::restore(near)),
            _ => LeafTarget::Key(K::restore(near)),
        };
        let Ok((leaf, state)) = self.descend(load, &aim, &mut bounds) else { return false };
        let count = leaf.meta(load).count;
        let (low, high) = if forward { (near, far) } else { (far, near) };
        let start = leaf.end_of(load, count, low, Side::Excluded, 0);
        let end = leaf.end_of(load, count, high, Side::Included, count).max(start);
        // Rule 2: the records are safe to fetch; the word decides whether they are the right ones.
        records.extend((start..end).map(|i| {
            let record = leaf.record(load, i);
            prefetch::line(record.as_ptr());
            record
        }));
        if !load.unchanged(&leaf.word, state.0) {
            return false;
        }
        if !forward {
            records.reverse();
        }
        *shown = Some((NodeVersion::new(&leaf.word, state.0), NonNull::from(&leaf.gap)));

        // SAFETY: rule 2: the separators were linked when they were read.
        unsafe {
            if forward {
                position.exhausted = end < count || bounds.high.is_none_or(|next| past_high::<K>(next, far));
                if let Some(next) = bounds.high.filter(|_| !position.exhausted) {
                    go_on::<K>(&mut position.near, next, Side::Included, records.last().copied(), Ordering::is_ge);
                }
            } else {
                position.exhausted = start > 0 || bounds.low.is_none_or(|next| past_low::<K>(next, far));
                if let Some(next) = bounds.low.filter(|_| !position.exhausted) {
                    go_on::<K>(&mut position.near, next, Side::Excluded, records.last().copied(), Ordering::is_lt);
                }
            }
        }
        true
    }
}

impl<K: NodeKind, const LEAF: usize> Leaf<K, LEAF> {
    /// How many of the leaf's keys lie below the end of a range, the end's own key among them if its side is `with`.
    #[inline(always)]
    fn end_of<L: Load>(&self, load: &mut L, count: usize, limit: &Limit, with: Side, unbounded: usize) -> usize {
        if limit.side == Side::Unbounded {
            return unbounded;
        }
        let (place, found) = self.find(load, count, K::restore(limit));
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
