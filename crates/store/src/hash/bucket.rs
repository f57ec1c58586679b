//! Buckets: one cache line each, chained when full.
//!
//! ```text
//! Bucket   +0 word   +8 gap   +16 slots: 5   +56 next          a key's home; never moves, lives as long as the table
//! Overflow +0 slots: 7                       +56 next          comes and goes; retired when emptied
//! slot:    0 empty, else  1 | tag 15 | address of the record 48
//! ```
//! Access rules (with those of the crate): (a) `slots` and `next` of a whole chain change only under the latch of its
//! bucket. The word of the bucket is latched, or a region latches it. (b) *Compact*: only the last line of a chain has
//! empty slots, behind its occupied ones; no overflow line is empty. (c) *Linked means linked*: whatever slot a reader
//! finds, at the time of its load that record was linked. A moving record is stored in its new slot before or while its
//! old bucket is latched. A record's slot is overwritten before its removal returns, and an overflow line is cleared
//! before it is cut off. So a hit needs no validation. (d) A miss needs validation by the word: the record may have
//! moved from behind the reader's back to before it.

use super::hasher::HashValue;
use crate::node_version::{self, State};
use crate::record::RecordPtr;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Backoff, CACHE_LINE, prefetch};
use seriatim_htm::word;
use std::ptr::NonNull;

/// Slots of a bucket.
pub(super) const BUCKET_SLOTS: usize = 5;
/// Slots of an overflow line.
pub(super) const OVERFLOW_SLOTS: usize = 7;
/// Bytes of either.
pub(super) const LINE_BYTES: usize = CACHE_LINE;

const _: () = assert!(size_of::<Bucket>() == LINE_BYTES && size_of::<Overflow>() == LINE_BYTES);
// Protocols find the gap word behind the word of a node version, in leaves and buckets alike.
const _: () = assert!(std::mem::offset_of!(Bucket, gap) == std::mem::offset_of!(Bucket, word) + 8);

/// The home of keys.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// Node version and latch of the whole chain.
    pub(super) word: AtomicU64,
    /// The protocol's. Splits only look whether it is 0.
    pub(super) gap: AtomicU64,
    slots: [AtomicU64; BUCKET_SLOTS],
    next: AtomicU64,
}

/// More slots of a bucket.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Overflow {
    slots: [AtomicU64; OVERFLOW_SLOTS],
    next: AtomicU64,
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    pub(super) const EMPTY: Slot = Slot(0);
    const ADDRESS_BITS: u32 = 48;
    const OCCUPIED: u64 = 1 << 63;

    /// The slot of a record whose key has this hash value.
    #[inline(always)]
    pub(super) fn new(hash: HashValue, record: RecordPtr) -> Slot {
        let address = record.bits();
        assert!(address >> Slot::ADDRESS_BITS == 0, "record addresses are below 2^48");
        Slot(Slot::head(hash) << Slot::ADDRESS_BITS | address)
    }

    /// The bits above the address in the slots of keys with this hash value.
    #[inline(always)]
    pub(super) fn head(hash: HashValue) -> u64 {
        hash.tag() | Slot::OCCUPIED >> Slot::ADDRESS_BITS
    }

    #[inline(always)]
    fn has(self, head: u64) -> bool {
        self.0 >> Slot::ADDRESS_BITS == head
    }

    #[inline(always)]
    pub(super) fn is_empty(self) -> bool {
        self.0 & Slot::OCCUPIED == 0
    }

    /// The tag's bits.
    pub(super) fn tag(self) -> u64 {
        (self.0 & !Slot::OCCUPIED) >> Slot::ADDRESS_BITS
    }

    /// The record; `None` if empty.
    ///
    /// # Safety
    /// The slot was loaded from a line (its address bits came from [`Slot::new`]).
    #[inline(always)]
    pub(super) unsafe fn record(self) -> Option<RecordPtr> {
        // SAFETY: the caller's promise.
        unsafe { RecordPtr::from_bits(self.0 & ((1 << Slot::ADDRESS_BITS) - 1)) }
    }
}

/// One line of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) slots: &'a [AtomicU64],
    pub(super) next: &'a AtomicU64,
}

impl Line<'_> {
    /// The value of the word that names this line; meaningless for a bucket's own line.
    pub(super) fn address(&self) -> u64 {
        self.slots.as_ptr().expose_provenance() as u64
    }
}

/// A hint for the lookup of a hashed key. It is its bucket at that time, and in the upper bits the head of its slot, as
/// in a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hint(u64);

impl Hint {
    #[inline(always)]
    pub(super) fn new(bucket: &Bucket, hash: HashValue) -> Hint {
        let address = std::ptr::from_ref(bucket).expose_provenance() as u64;
        debug_assert!(address >> Slot::ADDRESS_BITS == 0, "user addresses have 48 bits");
        Hint(Slot::head(hash) << Slot::ADDRESS_BITS | address)
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The hint of these bits; `None` if they are of none.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Option<Hint> {
        (!Slot(bits).is_empty()).then_some(Hint(bits))
    }

    /// # Safety
    /// The table that gave the hint still exists: buckets live as long.
    #[inline(always)]
    unsafe fn bucket<'t>(self) -> &'t Bucket {
        let address = self.0 & ((1 << Slot::ADDRESS_BITS) - 1);
        // SAFETY: `new` took the address of a bucket, which still exists.
        unsafe { &*std::ptr::with_exposed_provenance::<Bucket>(address as usize) }
    }

    /// The record that probably has the key, found by its tag; worthwhile once the bucket is cached. If there
    /// is none, the next line is prefetched.
    ///
    /// # Safety
    /// The table that gave the hint still exists.
    #[inline(always)]
    pub(crate) unsafe fn guess(self) -> Option<RecordPtr> {
        // SAFETY: the caller's promise.
        let bucket = unsafe { self.bucket() };
        let found = guess(&bucket.slots, self.0 >> Slot::ADDRESS_BITS);
        if found.is_none() {
            // Nothing is prefetched if there is no next line.
            prefetch::line(std::ptr::without_provenance(bucket.next.load(Ordering::Relaxed) as usize));
        }
        found
    }

    /// As [`Hint::guess`], from the lines behind the bucket.
    ///
    /// # Safety
    /// The table that gave the hint still exists, and the thread is online (rule 2).
    pub(crate) unsafe fn guess_behind(self) -> Option<RecordPtr> {
        // SAFETY: the caller's promises.
        unsafe {
            let mut next = overflow(&self.bucket().next);
            while let Some(line) = next {
                if let found @ Some(_) = guess(&line.slots, self.0 >> Slot::ADDRESS_BITS) {
                    return found;
                }
                next = overflow(&line.next);
            }
        }
        None
    }
}

/// Loads a slot.
#[inline(always)]
pub(super) fn load(slot: &AtomicU64) -> Slot {
    crate::step(slot);
    // ORDERING: the record's key words were written before the slot.
    Slot(word::load(slot))
}

/// Fills a private line. Publishing it releases these stores.
fn fill(places: &[AtomicU64], link: &AtomicU64, slots: &[Slot], next: u64) {
    assert!(slots.len() <= places.len(), "a line is not filled beyond its slots");
    let slots = slots.iter().copied().chain(std::iter::repeat(Slot::EMPTY));
    places.iter().zip(slots).for_each(|(place, slot)| place.store(slot.0, Ordering::Relaxed));
    link.store(next, Ordering::Relaxed);
}

/// The first record among `slots` whose slot has this head and for which `matches` holds.
#[inline(always)]
fn find<const N: usize>(
    slots: &[AtomicU64; N],
    head: u64,
    mut matches: impl FnMut(RecordPtr) -> bool,
) -> Option<RecordPtr> {
    // All tags first, then a branch that goes the same way for most hits: where in the line it lies is not predictable.
    let mut candidates = 0u32;
    for (i, slot) in slots.iter().enumerate() {
        candidates |= u32::from(load(slot).has(head)) << i;
    }
    while candidates != 0 {
        // Loaded again: if it changed, the word did or will, and a miss fails its validation.
        let slot = load(&slots[candidates.trailing_zeros() as usize % N]);
        // SAFETY: loaded from a line.
        let record = unsafe { slot.record() };
        if let Some(record) = record.filter(|&record| slot.has(head) && matches(record)) {
            return Some(record);
        }
        candidates &= candidates - 1;
    }
    None
}

/// The record of a slot with this head: a guess, to prefetch.
#[inline(always)]
fn guess<const N: usize>(slots: &[AtomicU64; N], head: u64) -> Option<RecordPtr> {
    // No branch depends on a slot's position: the one that differs least from the head has it, if any has.
    let differs = |slot| load(slot).0 ^ head << Slot::ADDRESS_BITS;
    let least = slots.iter().map(differs).fold(u64::MAX, u64::min);
    // SAFETY: the address of a slot that was loaded from a line.
    if Slot(least).has(0) { unsafe { RecordPtr::from_bits(least) } } else { None }
}

/// A latch is held for a few stores, unless its holder lost the processor; then yield to it. Bounded by the
/// holder's progress.
#[cold]
#[inline(never)]
fn wait_until_free(word: &AtomicU64) -> State {
    let mut backoff = Backoff::new();
    loop {
        // ORDERING: as in `Bucket::seen`.
        let state = State(word::load(word));
        if state.is_free() {
            return state;
        }
        if !backoff.wait() {
            backoff = Backoff::new();
        }
    }
}

impl Bucket {
    /// Puts an empty bucket at `place`.
    ///
    /// # Safety
    /// `place` is a private line.
    pub(super) unsafe fn write(place: *mut Bucket) {
        let (word, zero) = (AtomicU64::new(State::NEW.0), || AtomicU64::new(0));
        let slots = std::array::from_fn(|_| zero());
        // SAFETY: the caller's promise.
        unsafe { place.write(Bucket { word, gap: zero(), slots, next: zero() }) }
    }

    /// Fills a private bucket. Slots beyond those given become empty.
    pub(super) fn fill(&self, slots: &[Slot], next: u64) {
        // ORDERING: the extent that reaches the bucket is released later.
        fill(&self.slots, &self.next, slots, next);
    }

    /// The word once it is not latched.
    #[inline(always)]
    pub(super) fn seen(&self) -> State {
        crate::step(&self.word);
        // ORDERING: pairs with the release that unlatched it: slots and extent are at least as new.
        let state = State(word::load(&self.word));
        if state.is_free() { state } else { wait_until_free(&self.word) }
    }

    /// Whether the word still is `seen`, after whatever was read in between.
    #[inline(always)]
    pub(super) fn is_still(&self, seen: State) -> bool {
        crate::step(&self.word);
        node_version::is_still(&self.word, seen.0)
    }

    /// The first record in the chain whose key has `hash` and for which `matches` holds.
    ///
    /// # Safety
    /// The thread is online (rule 2).
    #[inline(always)]
    pub(super) unsafe fn find(&self, hash: HashValue, mut matches: impl FnMut(RecordPtr) -> bool) -> Option<RecordPtr> {
        let head = Slot::head(hash);
        if let found @ Some(_) = find(&self.slots, head, &mut matches) {
            return found;
        }
        // SAFETY: rule 2: online.
        let mut next = unsafe { overflow(&self.next) };
        while let Some(line) = next {
            if let found @ Some(_) = find(&line.slots, head, &mut matches) {
                return found;
            }
            // SAFETY: rule 2: online.
            next = unsafe { overflow(&line.next) };
        }
        None
    }

    /// The lines of the chain.
    ///
    /// # Safety
    /// The thread is online, and does not use a line after going offline (rule 2).
    #[inline]
    pub(super) unsafe fn lines(&self) -> Lines<'_> {
        Lines { next: Some(Line { slots: &self.slots, next: &self.next }) }
    }
}

/// The line that `next` names.
///
/// # Safety
/// `next` is the word of a line; the thread is online, and does not use the line after going offline (rule 2).
#[inline(always)]
unsafe fn overflow(next: &AtomicU64) -> Option<&Overflow> {
    crate::step(next);
    // ORDERING: pairs with the release that linked the line after filling it.
    let address = word::load(next);
    // SAFETY: 0 or the address of a line that was linked; rule 2 keeps it allocated.
    unsafe { std::ptr::with_exposed_provenance::<Overflow>(address as usize).as_ref() }
}

/// Iterates over the lines of a chain.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    next: Option<Line<'a>>,
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    #[inline]
    fn next(&mut self) -> Option<Line<'a>> {
        let line = self.next?;
        // SAFETY: the promise of `Bucket::lines`.
        self.next = unsafe { overflow(line.next) }.map(|line| Line { slots: &line.slots, next: &line.next });
        Some(line)
    }
}

/// Memory for an overflow line that no other thread can reach yet.
#[derive(Debug)]
pub(super) struct Spare(NonNull<u8>);

// SAFETY: a private line; its holder owns it.
unsafe impl Send for Spare {}

impl Spare {
    /// An empty line.
    pub(super) fn new(
        local: &mut seriatim_memory::Local,
        outside: &mut seriatim_htm::Outside,
    ) -> Result<Spare, seriatim_memory::OutOfMemory> {
        let memory = local.allocate(outside, LINE_BYTES)?;
        assert!(memory.cast::<Overflow>().is_aligned(), "allocations of whole lines are aligned to lines");
        let zero = |_| AtomicU64::new(0);
        // SAFETY: the memory is a private line.
        unsafe { memory.cast().write(Overflow { slots: std::array::from_fn(zero), next: AtomicU64::new(0) }) };
        Ok(Spare(memory))
    }

    /// The overflow line at `bits`, for its last owner.
    ///
    /// # Safety
    /// `bits` names an overflow line that the caller has cut off, so that no other thread returns it.
    pub(super) unsafe fn from_bits(bits: u64) -> Spare {
        let memory = std::ptr::with_exposed_provenance_mut(bits as usize);
        Spare(NonNull::new(memory).expect("a line has an address"))
    }

    /// Gives the memory back once no reader can be in it.
    pub(super) fn retire(self, local: &mut seriatim_memory::Local) {
        // SAFETY: allocated with this size; cut off.
        unsafe { local.retire(self.0, LINE_BYTES) }
    }

    /// Fills slots and the link to a further line. Slots beyond those given become empty.
    pub(super) fn fill(&self, slots: &[Slot], next: u64) {
        // SAFETY: the line is initialised and private.
        let line = unsafe { self.0.cast::<Overflow>().as_ref() };
        // ORDERING: linking the line releases it.
        fill(&line.slots, &line.next, slots, next);
    }

    /// The value of a line's `next` word once this one is linked behind it.
    pub(super) fn bits(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Gives the memory back.
    pub(super) fn release(self, local: &mut seriatim_memory::Local) {
        // SAFETY: allocated with this size; private.
        unsafe { local.release(self.0, LINE_BYTES) }
    }
}
