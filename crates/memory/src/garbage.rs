//! A worker's garbage: memory and deferred items that wait for a grace period.
//!
//! Retired blocks are collected in the open bag. The bag is sealed (`quiescence`) when it is full, and at the end of
//! every few transactions. If it holds something large, it is sealed at the end of this one. Sealed bags are emptied in
//! order, a bounded number at a time, and only while their worker is offline. That is at the end of a transaction that
//! sealed one, or of every few transactions. If no other worker is online, the bag that was sealed last is among them.
//! The memory is still in the cache when it is reused. With others at work it is usually the one before.
//!
//! Versions that commits replaced may have to wait longer than the grace period, until the epoch that replaced
//! them is durable. Then they stay in their bag, and nothing else does. Blocks that return so late are no
//! longer in the cache. So the blocks of a bag are prefetched before the first of them is released.
//!
//! Versions that wait for an epoch come in waves. All of them are due when the durable point moves, while as many
//! gather for the next move. So the bags of a wave are kept for the next one, but no more than once waited at the same
//! time. Of those that stayed unused between two moves of the point, half are freed, up to [`DUE_MAX`]; when nothing
//! waits any more, all but [`EMPTY_MAX`]. More than these count against the limit.
//!
//! Bound: an idle worker keeps what its last few transactions left, unless it collects before it idles.
//! Nothing bounds the garbage of a worker while another stays online; the engine bounds the age of
//! transactions. Nor does anything here bound the versions of an epoch that does not become durable; the log
//! bounds what commits meanwhile.

use crate::Deferred;
use crate::counted::Charge;
use crate::memory::Shared;
use crate::quiescence::{Awaited, Counts};
use crate::small;
use seriatim_base::size::Size;
use seriatim_base::{Epoch, prefetch};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

/// Items of a kind in a full bag.
pub(crate) const BAG: Size = small(64, 2);
/// Transactions after which a bag is sealed even though it is not full, and sealed bags are looked at.
const AGE_MAX: Size = small(16, 3);
/// An item of more bytes has its bag sealed at the end of the transaction.
const PRESSING: usize = 64 << 10;
/// Bytes of a version fetched before it is released.
const FETCHED_MAX: usize = 192;
/// Bags of versions released at the end of a transaction: an eighth of the waiting ones, between [`EMPTIED_MAX`] and
/// this. Twice those that the transaction filled, if that is more. Of an epoch that has just become durable there are
/// hundreds, and the next transaction should not pay for all.
const DUE_MAX: usize = 64;
/// Bags emptied at the end of a transaction, or twice those it filled if that is more.
const EMPTIED_MAX: usize = 4;
/// Empty bags kept for use, but for those of a wave.
const EMPTY_MAX: usize = 8;
/// Bytes of a bag's lists at most.
const BAG_BYTES: Size = BAG.times(2 * size_of::<Retired>() + size_of::<Deferred>());
/// Bags count against the limit in steps of this many bytes; less than one does not.
const COUNTED_STEP: Size = small(256 << 10, 4 << 10);
/// Capacity that lists of bags and of ready items keep. All four take less than a [`COUNTED_STEP`].
const PLACES_KEPT: Size = small(512, 8);
const _: () = assert!(PLACES_KEPT.times(3 * size_of::<Bag>() + size_of::<Deferred>()).is_within(COUNTED_STEP));

/// Memory to be released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retired {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Bag {
    awaited: Vec<Awaited>,
    retired: Vec<Retired>,
    /// Versions that are kept until this epoch is durable.
    versions: Vec<Retired>,
    until: Epoch,
    deferred: Vec<Deferred>,
}

// SAFETY: rule 1 of `heap`: the contents of a bag are unlinked, and belong to the holder of the bag.
unsafe impl Send for Bag {}

impl Bag {
    fn new() -> Bag {
        Bag {
            awaited: Vec::new(),
            retired: Vec::with_capacity(BAG.get()),
            versions: Vec::new(),
            until: Epoch(0),
            deferred: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.retired.len() + self.versions.len() + self.deferred.len()
    }
}

/// Shrinks a list that uses less than a quarter of its capacity.
fn shrink<T>(list: &mut VecDeque<T>) {
    if list.capacity() > PLACES_KEPT.get() && list.len() < list.capacity() / 4 {
        list.shrink_to(PLACES_KEPT.get().max(2 * list.len()));
    }
}

/// Bags of workers that are gone, for those that remain.
pub(crate) type Orphans = Vec<Bag>;

#[derive(Debug)]
pub(crate) struct Garbage {
    worker: usize,
    open: Bag,
    sealed: VecDeque<Bag>,
    /// Their grace periods have passed; there are versions left in them that are not due.
    kept: VecDeque<Bag>,
    empty: VecDeque<Bag>,
    /// Empty bags that stayed unused since the last move of the point.
    spare: usize,
    point: Epoch,
    /// Items in all bags.
    held: usize,
    /// Transactions since a bag was sealed or sealed bags were looked at.
    age: usize,
    /// Bags sealed since a transaction ended last.
    sealed_now: usize,
    ready: VecDeque<Deferred>,
    /// Whether items became ready since [`Garbage::ready`] last found none.
    has_ready: bool,
    /// The memory of bags and lists, in steps: a large transaction fills thousands.
    charge: Charge,
}

impl Garbage {
    pub(crate) fn new(worker: usize, shared: Arc<Shared>) -> Garbage {
        Garbage {
            charge: Charge::new(shared),
            worker,
            open: Bag::new(),
            sealed: VecDeque::new(),
            kept: VecDeque::new(),
            empty: VecDeque::new(),
            spare: 0,
            point: Epoch(0),
            held: 0,
            age: 0,
            sealed_now: 0,
            ready: VecDeque::new(),
            has_ready: false,
        }
    }

    /// Items that wait.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Takes memory that is unlinked.
    #[inline]
    pub(crate) fn retire(&mut self, counts: &Counts, item: Retired) {
        self.open.retired.push(item);
        self.taken(counts, item);
    }

    /// Takes a version that a commit of this epoch replaced.
    #[inline]
    pub(crate) fn retire_version(&mut self, counts: &Counts, item: Retired, epoch: Epoch) {
        self.open.versions.push(item);
        self.open.until = self.open.until.max(epoch);
        self.taken(counts, item);
    }

    #[inline]
    fn taken(&mut self, counts: &Counts, item: Retired) {
        self.held += 1;
        if item.bytes > PRESSING {
            self.age = AGE_MAX.get();
        }
        if self.open.retired.len() + self.open.versions.len() == BAG.get() {
            self.seal(counts);
        }
    }

    pub(crate) fn defer(&mut self, counts: &Counts, item: Deferred) {
        self.held += 1;
        self.open.deferred.push(item);
        if self.open.deferred.len() == BAG.get() {
            self.seal(counts);
        }
    }

    /// Whether [`Garbage::ready`] may have something to do.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.has_ready
    }

    /// A deferred item whose grace period passed, oldest first.
    #[inline]
    pub(crate) fn ready(&mut self) -> Option<Deferred> {
        let item = self.ready.pop_front();
        if item.is_none() {
            self.has_ready = false;
            if self.ready.capacity() > PLACES_KEPT.get() {
                self.recount();
            }
        }
        item
    }

    /// Seals the open bag.
    #[cold]
    fn seal(&mut self, counts: &Counts) {
        let next = self.empty.pop_back().unwrap_or_else(Bag::new);
        self.spare = self.spare.min(self.empty.len());
        let mut bag = std::mem::replace(&mut self.open, next);
        counts.seal(Some(self.worker), &mut bag.awaited);
        self.sealed.push_back(bag);
        self.sealed_now += 1;
        self.age = 0;
        self.recount();
    }

    /// Lets lists return the memory that a large transaction made them take. Counts bags and lists against the limit:
    /// more as they grow, less when half is gone.
    #[cold]
    fn recount(&mut self) {
        shrink(&mut self.sealed);
        shrink(&mut self.kept);
        shrink(&mut self.ready);
        if self.held == 0 {
            self.empty.truncate(EMPTY_MAX);
            self.spare = self.spare.min(EMPTY_MAX);
        }
        shrink(&mut self.empty);
        let bags = self.sealed.len() + self.kept.len() + self.empty.len().saturating_sub(EMPTY_MAX);
        let places = (self.sealed.capacity() + self.kept.capacity() + self.empty.capacity()) * size_of::<Bag>();
        let bytes = bags * BAG_BYTES.get() + places + self.ready.capacity() * size_of::<Deferred>();
        let (steps, charged) = (bytes / COUNTED_STEP.get() * COUNTED_STEP.get(), self.charge.bytes());
        if steps > charged || steps < charged / 2 {
            self.charge.set(steps);
        }
    }

    /// The end of a transaction: seals the open bag if it is old, and has `release` free what may be freed.
    pub(crate) fn end(&mut self, counts: &Counts, durable: Epoch, mut release: impl FnMut(Retired)) {
        if self.point != durable {
            self.point = durable;
            let gone = (self.spare / 2).min(DUE_MAX);
            self.empty.truncate(EMPTY_MAX.max(self.empty.len() - gone));
            self.spare = self.empty.len();
            self.recount();
        }
        if !self.kept.is_empty() {
            let bags_max = (self.kept.len() / 8).clamp(EMPTIED_MAX, DUE_MAX).max(2 * self.sealed_now);
            self.release_due(durable, bags_max, &mut release);
            // The last ones may be all that waits: then no end of a transaction looks here again.
            if self.charge.bytes() > 0 {
                self.recount();
            }
        }
        self.age += 1;
        if self.age >= AGE_MAX.get() {
            self.age = 0;
            if self.open.len() > 0 {
                self.seal(counts);
            }
        } else if self.sealed_now == 0 {
            // Looking at the counts of busy workers costs both sides a cache miss. A seal has just paid for it.
            return;
        }
        let bags_max = EMPTIED_MAX.max(2 * std::mem::take(&mut self.sealed_now));
        self.empty(counts, durable, bags_max, release);
        if self.charge.bytes() > 0 {
            self.recount();
        }
    }

    /// Seals the open bag whatever its age, and has `release` free everything that may be freed.
    pub(crate) fn collect(&mut self, counts: &Counts, durable: Epoch, mut release: impl FnMut(Retired)) {
        if self.open.len() > 0 {
            self.seal(counts);
        }
        self.release_due(durable, usize::MAX, &mut release);
        self.empty(counts, durable, usize::MAX, release);
        self.recount();
    }

    /// Empties the oldest bags whose grace periods have passed, except for versions that are not due.
    fn empty(&mut self, counts: &Counts, durable: Epoch, bags_max: usize, mut release: impl FnMut(Retired)) {
        for _ in 0..bags_max {
            let Some(mut bag) = self.sealed.pop_front_if(|bag| counts.passed(&mut bag.awaited)) else { return };
            self.held -= bag.retired.len() + bag.deferred.len();
            bag.retired.drain(..).for_each(&mut release);
            self.has_ready |= !bag.deferred.is_empty();
            self.ready.extend(bag.deferred.drain(..));
            match bag.until <= durable {
                true => self.finish(bag, &mut release),
                false => self.kept.push_back(bag),
            }
        }
    }

    /// Releases the versions of the oldest bags that are due.
    fn release_due(&mut self, durable: Epoch, bags_max: usize, release: &mut impl FnMut(Retired)) {
        for _ in 0..bags_max {
            let Some(bag) = self.kept.pop_front_if(|bag| bag.until <= durable) else { return };
            for version in &bag.versions {
                // For the links that are written now, and for the thread that allocates them next.
                prefetch::first_lines::<FETCHED_MAX>(version.start.as_ptr(), version.bytes);
            }
            self.finish(bag, release);
        }
    }

    /// Releases the versions of a bag in which there is nothing else.
    fn finish(&mut self, mut bag: Bag, release: &mut impl FnMut(Retired)) {
        self.held -= bag.versions.len();
        bag.versions.drain(..).for_each(release);
        let is_of_wave = bag.until > Epoch(0);
        bag.until = Epoch(0);
        if is_of_wave || self.empty.len() < EMPTY_MAX {
            self.empty.push_back(bag);
        }
    }

    /// Hands everything over: waiting garbage, and ready items that were not collected.
    pub(crate) fn surrender(&mut self, counts: &Counts, orphans: &mut Orphans) {
        if self.open.len() > 0 {
            self.seal(counts);
        }
        orphans.extend(self.kept.drain(..).chain(self.sealed.drain(..)));
        if !self.ready.is_empty() {
            let mut bag = Bag::new();
            bag.deferred.extend(self.ready.drain(..));
            orphans.push(bag);
        }
        self.held = 0;
    }

    /// Takes over what workers left behind.
    pub(crate) fn adopt(&mut self, orphans: &mut Orphans) {
        for bag in orphans.drain(..) {
            self.held += bag.len();
            self.sealed.push_back(bag);
        }
    }
}
