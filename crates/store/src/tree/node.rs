//! Nodes: their layout, and the operations on one of them.
//!
//! ```text
//! leaf      word | gap | count, last insertion | low, last | keys[LEAF] | records[LEAF]
//! interior  word | count, level | keys[FAN] | out_of_line[FAN] | children[FAN]
//!           (keys and out-of-line values: the last slot is unused)
//! ```
//! With the sizes of `size`, a leaf takes 512 bytes for one-word keys and 768 for two-word keys. An interior node takes
//! 512 for one-word keys, 768 for two-word keys, and 1024 for byte strings.
//!
//! Which thread may touch what (rule 3: always as atomics):
//! 1. All fields but `word` and `gap` change only while the word is latched; `level` never changes.
//! 2. While a node is latched, its slots are filled before `count` includes them. So a reader that follows `count`
//!    finds a record, child or out-of-line value in each slot below it. It was linked when the reader read the node's
//!    word, or later. It is safe to access, but only valid once the word proves unchanged.
//! 3. `low..=last` are short forms that belong to the leaf. They may be fewer than those that do: neighbours unlinked
//!    leave their keys to the leaf without touching it. A leaf never loses keys without its word changing.
//! 4. `gap` belongs to the protocol; see [`Observer`](crate::Observer).

use super::cell::{Cell, OutOfLineCell};
use super::kind::{NodeKind, Separator, Short};
use super::load::{BodyLoads, Load};
use super::search::partition;
use crate::node_version::State;
use crate::record::{RecordPtr, out_of_line};
use seriatim_base::word::AtomicU64;
use seriatim_htm::Access;
use std::cmp::Ordering;
use std::ptr::NonNull;

/// A leaf of at most `LEAF` records.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Leaf<K: NodeKind, const LEAF: usize> {
    pub(crate) word: AtomicU64,
    pub(crate) gap: AtomicU64,
    meta: AtomicU64,
    low: K::Cell,
    last: K::Cell,
    keys: [K::Cell; LEAF],
    records: [AtomicU64; LEAF],
}

/// An interior node of at most `FAN` children.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Interior<K: NodeKind, const FAN: usize> {
    pub(crate) word: AtomicU64,
    meta: AtomicU64,
    keys: [K::Cell; FAN],
    out_of_line_values: [K::OutOfLine; FAN],
    children: [AtomicU64; FAN],
}

/// How many records a leaf has, and where the last one was put: `count 32 | place + 1`, 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) count: usize,
    pub(crate) inserted: Option<u32>,
}

impl Meta {
    #[inline(always)]
    fn pack(self) -> u64 {
        (self.count as u64) << 32 | u64::from(self.inserted.map_or(0, |place| place + 1))
    }

    #[inline(always)]
    fn unpack(bits: u64) -> Meta {
        Meta { count: (bits >> 32) as usize, inserted: (bits as u32).checked_sub(1) }
    }

    /// Whether an insertion at `place` continues an ascending run.
    #[inline(always)]
    pub(crate) fn ascends(self, place: usize) -> bool {
        self.inserted.is_some_and(|last| last as usize + 1 == place)
    }
}

/// Short forms that belong to a leaf: `low..=last`, none if `low > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range<V> {
    pub(crate) low: V,
    pub(crate) last: V,
}

/// Item `index` of `items`.
///
/// # Safety
/// `index` is in bounds: counts never exceed a node's capacity (rule 1 above).
#[inline(always)]
unsafe fn item<T>(items: &[T], index: usize) -> &T {
    debug_assert!(index < items.len());
    // SAFETY: the caller's promise.
    unsafe { items.get_unchecked(index) }
}

/// # Safety
/// `bits` was loaded from a place that is in use.
#[inline(always)]
unsafe fn record_of(bits: u64) -> RecordPtr {
    // SAFETY: the caller's promise: places in use hold bits of records.
    unsafe { RecordPtr::from_bits(bits).unwrap_unchecked() }
}

impl<K: NodeKind, const LEAF: usize> Leaf<K, LEAF> {
    /// Bytes of a leaf: a multiple of the line size.
    pub(crate) const BYTES: usize = size_of::<Self>();

    /// The leaf at `address`.
    ///
    /// # Safety
    /// There is one, allocated for `'t` (rule 2).
    #[inline(always)]
    pub(crate) unsafe fn at<'t>(address: usize) -> &'t Self {
        // SAFETY: the caller's promise.
        unsafe { &*std::ptr::with_exposed_provenance::<Self>(address) }
    }

    /// The form that node words store.
    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }

    /// Makes a leaf of private memory, empty, with the whole range.
    ///
    /// # Safety
    /// `memory` is private and has [`Leaf::BYTES`] bytes aligned to 64.
    pub(crate) unsafe fn create<'t, A: Access>(access: &mut A, memory: NonNull<u8>) -> &'t Self {
        // SAFETY: the caller's promise; atomics may hold anything.
        let leaf = unsafe { memory.cast::<Self>().as_ref() };
        access.store(&leaf.word, State::NEW.0);
        access.store(&leaf.gap, 0);
        leaf.set_range(access, Range { low: K::Cell::MIN, last: K::Cell::MAX });
        leaf.set_meta(access, Meta { count: 0, inserted: None });
        leaf
    }

    #[inline(always)]
    pub(crate) fn meta<L: Load>(&self, load: &mut L) -> Meta {
        let meta = Meta::unpack(load.follow(&self.meta));
        debug_assert!(meta.count <= LEAF);
        meta
    }

    #[inline(always)]
    pub(crate) fn set_meta<A: Access>(&self, access: &mut A, meta: Meta) {
        access.store(&self.meta, meta.pack());
    }

    #[inline(always)]
    pub(crate) fn range<L: Load>(&self, load: &mut L) -> Range<Short<K>> {
        Range { low: self.low.load(load), last: self.last.load(load) }
    }

    #[inline(always)]
    pub(crate) fn set_range<A: Access>(&self, access: &mut A, range: Range<Short<K>>) {
        self.low.store(access, range.low);
        self.last.store(access, range.last);
    }

    /// Makes `range` its own, which a descent has found. It may have inherited keys of unlinked neighbours, which its
    /// own range does not include yet. The leaf is latched.
    #[inline(always)]
    pub(crate) fn extend_to<A: Access>(&self, access: &mut A, range: Range<Short<K>>) {
        if self.range(&mut BodyLoads(&mut *access)) != range {
            self.set_range(access, range);
        }
    }

    /// The short form at `index`, below the count.
    #[inline(always)]
    pub(crate) fn key<L: Load>(&self, load: &mut L, index: usize) -> Short<K> {
        // SAFETY: in bounds, for counts are.
        unsafe { item(&self.keys, index) }.load(load)
    }

    /// The record at `index`, below a count that was followed.
    #[inline(always)]
    pub(crate) fn record<L: Load>(&self, load: &mut L, index: usize) -> RecordPtr {
        // SAFETY: in bounds, for counts are; a place in use holds a record.
        unsafe { record_of(load.follow(item(&self.records, index))) }
    }

    /// The first slot whose key is not below `probe`, and the record there if it has that key.
    #[inline(always)]
    pub(crate) fn find<L: Load>(&self, load: &mut L, count: usize, probe: K::Probe<'_>) -> (usize, Option<RecordPtr>) {
        self.find_from(load, 0, count, probe)
    }

    /// As [`Leaf::find`], among the slots from `first` to `count`.
    #[inline(always)]
    pub(crate) fn find_from<L: Load>(
        &self,
        load: &mut L,
        first: usize,
        count: usize,
        probe: K::Probe<'_>,
    ) -> (usize, Option<RecordPtr>) {
        let short = K::short(probe);
        let place = first + partition(count - first, |i| K::Cell::less(self.key(load, first + i), short));
        if place == count || self.key(load, place) != short {
            (place, None)
        } else if K::EXACT {
            (place, Some(self.record(load, place)))
        } else {
            self.find_tied(load, place, count, probe)
        }
    }

    /// Whether the leaf, by its own range, is the one `probe` belongs to: its word if so. True if that does not change.
    #[inline(always)]
    pub(crate) fn covers<L: Load>(&self, load: &mut L, probe: K::Probe<'_>) -> Option<State> {
        let state = State(load.follow(&self.word));
        let range = self.range(load);
        (state.is_usable() && (range.low..=range.last).contains(&K::short(probe))).then_some(state)
    }

    /// As [`Leaf::covers`], if the leaf has room: also its meta word.
    #[inline(always)]
    pub(crate) fn takes<L: Load>(&self, load: &mut L, probe: K::Probe<'_>) -> Option<(State, Meta)> {
        let (state, meta) = (self.covers(load, probe)?, self.meta(load));
        (meta.count < LEAF).then_some((state, meta))
    }

    /// As [`Leaf::find`], for an insertion: an ascending run is found without a search.
    #[inline(always)]
    pub(crate) fn find_to_insert<L: Load>(
        &self,
        load: &mut L,
        meta: Meta,
        probe: K::Probe<'_>,
    ) -> (usize, Option<RecordPtr>) {
        if let Some(last) = meta.inserted {
            let (last, next, short) = (last as usize, last as usize + 1, K::short(probe));
            // Both in one word: the place was in use when the count was written.
            debug_assert!(next <= meta.count);
            if K::Cell::less(self.key(load, last), short)
                && (next == meta.count || K::Cell::less(short, self.key(load, next)))
            {
                return (next, None);
            }
        }
        self.find(load, meta.count, probe)
    }

    /// As [`Leaf::find`], given that `first` is the first of the keys that tie with `probe`.
    fn find_tied<L: Load>(
        &self,
        load: &mut L,
        first: usize,
        count: usize,
        probe: K::Probe<'_>,
    ) -> (usize, Option<RecordPtr>) {
        let short = K::short(probe);
        let tied = partition(count - first, |i| self.key(load, first + i) <= short);
        // SAFETY: rule 2: whatever the places hold is linked or was when this thread read the node's word.
        let key = |record| unsafe { K::of(record) };
        let below = partition(tied, |i| K::compare(key(self.record(load, first + i)), probe).is_lt());
        let record = (below < tied).then(|| self.record(load, first + below));
        (first + below, record.filter(|&record| K::compare(key(record), probe).is_eq()))
    }

    /// Puts a record at `place`; the leaf is latched and not full.
    #[inline(always)]
    pub(crate) fn insert<A: Access>(
        &self,
        access: &mut A,
        count: usize,
        place: usize,
        short: Short<K>,
        record: RecordPtr,
    ) {
        debug_assert!(place <= count && count < LEAF);
        for i in (place..count).rev() {
            self.copy(access, i, self, i + 1);
        }
        self.set(access, place, short, record);
        self.set_meta(access, Meta { count: count + 1, inserted: Some(place as u32) });
    }

    /// Takes the record at `place` out; the leaf is latched.
    #[inline(always)]
    pub(crate) fn remove<A: Access>(&self, access: &mut A, count: usize, place: usize) {
        debug_assert!(place < count);
        for i in place + 1..count {
            self.copy(access, i, self, i - 1);
        }
        self.set_meta(access, Meta { count: count - 1, inserted: None });
    }

    #[inline(always)]
    pub(crate) fn set<A: Access>(&self, access: &mut A, place: usize, short: Short<K>, record: RecordPtr) {
        // SAFETY: in bounds, for the caller's place is.
        unsafe {
            item(&self.keys, place).store(access, short);
            access.store(item(&self.records, place), record.bits());
        }
    }

    #[inline(always)]
    pub(crate) fn copy<A: Access>(&self, access: &mut A, from: usize, to: &Self, place: usize) {
        let short = self.key(&mut BodyLoads(access), from);
        let record = self.record(&mut BodyLoads(access), from);
        to.set(access, place, short, record);
    }
}

impl<K: NodeKind, const FAN: usize> Interior<K, FAN> {
    /// Bytes of an interior node: a multiple of the line size.
    pub(crate) const BYTES: usize = size_of::<Self>();
    /// Separators of a full node.
    pub(crate) const FULL: usize = FAN - 1;

    /// The node at `address`.
    ///
    /// # Safety
    /// There is one, allocated for `'t` (rule 2).
    #[inline(always)]
    pub(crate) unsafe fn at<'t>(address: usize) -> &'t Self {
        // SAFETY: the caller's promise.
        unsafe { &*std::ptr::with_exposed_provenance::<Self>(address) }
    }

    /// The form that node words store.
    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }

    /// Makes a node of private memory, with one child.
    ///
    /// # Safety
    /// `memory` is private and has [`Interior::BYTES`] bytes aligned to 64.
    pub(crate) unsafe fn create<'t, A: Access>(
        access: &mut A,
        memory: NonNull<u8>,
        level: usize,
        child: usize,
    ) -> &'t Self {
        // SAFETY: the caller's promise; atomics may hold anything.
        let node = unsafe { memory.cast::<Self>().as_ref() };
        access.store(&node.word, State::NEW.0);
        access.store(&node.children[0], child as u64);
        access.store(&node.meta, (level as u64) << 32);
        node
    }

    /// Separators in use: one fewer than children.
    #[inline(always)]
    pub(crate) fn count<L: Load>(&self, load: &mut L) -> usize {
        let count = load.follow(&self.meta) as u32 as usize;
        debug_assert!(count < FAN);
        count
    }

    /// Levels between this node and its leaves, which are at level 0.
    pub(crate) fn level<L: Load>(&self, load: &mut L) -> usize {
        (load.follow(&self.meta) >> 32) as usize
    }

    fn set_count<A: Access>(&self, access: &mut A, count: usize) {
        let level = self.level(&mut BodyLoads(access));
        access.store(&self.meta, (level as u64) << 32 | count as u64);
    }

    /// The child at `index`, at most a count that was followed.
    #[inline(always)]
    pub(crate) fn child<L: Load>(&self, load: &mut L, index: usize) -> usize {
        // SAFETY: in bounds, for counts are.
        load.follow(unsafe { item(&self.children, index) }) as usize
    }

    /// The separator at `index`, below a count that was followed.
    #[inline(always)]
    pub(crate) fn separator<L: Load>(&self, load: &mut L, index: usize) -> Separator<K> {
        // SAFETY: in bounds, for counts are.
        let (short, out_of_line) = unsafe { (item(&self.keys, index), item(&self.out_of_line_values, index)) };
        Separator { short: short.load(load), out_of_line: out_of_line.follow(load) }
    }

    /// The short form of the separator at `index`, below a count that was followed.
    #[inline(always)]
    fn key<L: Load>(&self, load: &mut L, index: usize) -> Short<K> {
        // SAFETY: in bounds, for counts are.
        unsafe { item(&self.keys, index) }.load(load)
    }

    /// The child that `probe` belongs to.
    #[inline(always)]
    pub(crate) fn find<L: Load>(&self, load: &mut L, count: usize, probe: K::Probe<'_>) -> usize {
        let short = K::short(probe);
        if K::EXACT {
            return partition(count, |i| !K::Cell::less(short, self.key(load, i)));
        }
        self.find_or(load, count, probe, Ordering::is_le)
    }

    /// The child that the greatest keys below `probe` belong to.
    #[inline(always)]
    pub(crate) fn find_below<L: Load>(&self, load: &mut L, count: usize, probe: K::Probe<'_>) -> usize {
        self.find_or(load, count, probe, Ordering::is_lt)
    }

    /// The child behind all separators below `probe`, and behind those that tie with it for which `passed` holds.
    #[inline(always)]
    fn find_or<L: Load>(
        &self,
        load: &mut L,
        count: usize,
        probe: K::Probe<'_>,
        passed: impl Fn(Ordering) -> bool,
    ) -> usize {
        let short = K::short(probe);
        let first = partition(count, |i| K::Cell::less(self.key(load, i), short));
        if first == count || self.key(load, first) != short {
            return first;
        }
        let tied = if K::EXACT { 1 } else { partition(count - first, |i| self.key(load, first + i) <= short) };
        // SAFETY: rule 2: out-of-line values are linked or were when this thread read the node's word.
        first + partition(tied, |i| passed(unsafe { self.separator(load, first + i).compare(probe) }))
    }

    pub(crate) fn set_separator<A: Access>(&self, access: &mut A, index: usize, separator: Separator<K>) {
        self.keys[index].store(access, separator.short);
        self.out_of_line_values[index].store(access, separator.out_of_line);
    }

    /// Puts `separator` and the child at or above it behind the child at `index`; the node is latched and not full.
    pub(crate) fn insert<A: Access>(
        &self,
        access: &mut A,
        count: usize,
        index: usize,
        separator: Separator<K>,
        child: usize,
    ) {
        debug_assert!(index <= count && count < Self::FULL);
        for i in (index..count).rev() {
            let moved = self.separator(&mut BodyLoads(access), i);
            self.set_separator(access, i + 1, moved);
            let moved = self.child(&mut BodyLoads(access), i + 1);
            access.store(&self.children[i + 2], moved as u64);
        }
        self.set_separator(access, index, separator);
        access.store(&self.children[index + 1], child as u64);
        self.set_count(access, count + 1);
    }

    /// Takes the child at `index` out, and a separator beside it. The neighbour on the other side of the separator gets
    /// the child's keys. Gives the separator's out-of-line value; the node is latched and has another child.
    pub(crate) fn remove<A: Access>(&self, access: &mut A, count: usize, index: usize, separator: usize) -> u64 {
        debug_assert!(index <= count && separator < count && (separator == index || separator + 1 == index));
        let out_of_line = self.separator(&mut BodyLoads(access), separator).out_of_line;
        for i in separator + 1..count {
            let moved = self.separator(&mut BodyLoads(access), i);
            self.set_separator(access, i - 1, moved);
        }
        for i in index + 1..=count {
            let moved = self.child(&mut BodyLoads(access), i);
            access.store(&self.children[i - 1], moved as u64);
        }
        self.set_count(access, count - 1);
        out_of_line
    }

    /// Moves the children behind that at `last` to a new node made of `memory`. Gives it with the separator
    /// between the two; this node is latched and has children behind `last`.
    ///
    /// # Safety
    /// As [`Interior::create`].
    pub(crate) unsafe fn split<'t, A: Access>(
        &self,
        access: &mut A,
        count: usize,
        last: usize,
        memory: NonNull<u8>,
    ) -> (&'t Self, Separator<K>) {
        debug_assert!(last < count);
        let level = self.level(&mut BodyLoads(access));
        let first = self.child(&mut BodyLoads(access), last + 1);
        // SAFETY: the caller's promise.
        let right = unsafe { Self::create(access, memory, level, first) };
        for i in last + 1..count {
            let moved = self.separator(&mut BodyLoads(access), i);
            right.set_separator(access, i - last - 1, moved);
            let moved = self.child(&mut BodyLoads(access), i + 1);
            access.store(&right.children[i - last], moved as u64);
        }
        right.set_count(access, count - last - 1);
        let between = self.separator(&mut BodyLoads(access), last);
        self.set_count(access, last);
        (right, between)
    }
}

/// Bytes of the out-of-line block at `address`.
///
/// # Safety
/// The block is allocated (rule 2).
pub(crate) unsafe fn out_of_line_bytes_at(address: u64) -> usize {
    // SAFETY: the caller's promise.
    crate::record::out_of_line_block_bytes(unsafe { out_of_line::read(address) }.len())
}
