//! The state that workers share: mapped memory, batches of free blocks on their way from one worker to
//! another, and the limit.
//!
//! Memory is mapped in growing steps, handed to workers in spans, and cut by them into blocks of one class
//! each. A block keeps its class until all memory of its window is free too (`reclaim`). At the limit smaller ones may
//! be cut from it before (`arena`). A worker that frees more than it allocates hands its surplus over in whole batches.
//! A worker takes such a batch before it takes fresh memory. So memory is bounded where one worker allocates what
//! another frees. The bound is the blocks in use, two batches for each class and worker, and the pending garbage.
//!
//! Access rules:
//! 1. A block on a free list, in a batch or in a span belongs to the holder of that list, batch or span.
//! 2. Maps live as long as the heap. Memory that workers were given may be used until then.
//!
//! The limit counts the memory that was taken, spans and large maps, and the notes of transactions
//! (`counted`). Free blocks can be reused at the limit. If much is free in blocks that are too small for a request,
//! a little more is taken ([`BEYOND_PART`]). There is no reserve below it: operations that must
//! continue at the limit (reads, deletes, roll-backs) allocate nothing. Once a request was refused memory is
//! *scarce*: workers at rest give their free blocks to running ones.

use crate::class::{CLASSES, Class};
use crate::system::{self, HUGE, Map};
use crate::{Options, OutOfMemory, small};
use seriatim_base::Process;
use seriatim_base::size::Size;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a span, and of memory that is touched at a time.
pub(crate) const SPAN: Size = small(64 << 10, 4 << 10);
/// Spans are multiples of a line.
pub(crate) const LINE: usize = seriatim_base::CACHE_LINE;
/// Bytes mapped in one step at most.
const STEP_MAX: usize = 64 << 20;
/// The memory that lists of transactions may take above the limit, or above the rows' memory if that is more. An eighth
/// of the limit, if that is more than this. So reads and deletes continue when no row fits any more: 16 MiB are some
/// 600,000 reads, or 100,000 deletes, of one transaction.
const NOTES_MIN: usize = 16 << 20;
/// The part of the limit by which it may be exceeded for blocks of sizes that no free block serves. At least as much
/// must be free. Without it, after every second row was deleted, nodes of indexes find no room, and no row at a new key
/// is inserted. They take some 4 bytes for 100 of rows.
const BEYOND_PART: usize = 16;
/// The rest of a span returns to the heap if it has at least this many bytes; smaller rests become blocks.
const LEFTOVER_MIN: usize = 1 << 10;

/// A free block: its first word links it to the next.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) next: Option<NonNull<Block>>,
}

/// Free blocks of one class, linked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) head: Option<NonNull<Block>>,
    pub(crate) count: u32,
}

// SAFETY: rule 1; no other thread holds the blocks.
unsafe impl Send for Batch {}

impl Batch {
    /// Its blocks; each may be used as soon as the iterator has returned it.
    pub(crate) fn blocks(self) -> impl Iterator<Item = NonNull<Block>> {
        // SAFETY: rule 1: the batch is ours, and each of its blocks begins with its link, which is read
        // before the block is handed on.
        std::iter::successors(self.head, |block| unsafe { block.as_ref().next })
    }
}

/// Memory that is not cut into blocks yet; line-aligned, a multiple of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: usize,
    pub(crate) touched: bool,
    /// Its pages were given back, and do not count as mapped.
    pub(crate) returned: bool,
}

// SAFETY: rule 1.
unsafe impl Send for Span {}

impl Span {
    /// A span of nothing.
    pub(crate) const EMPTY: Span = Span { start: NonNull::dangling(), bytes: 0, touched: true, returned: false };

    /// Cuts off the first `bytes`, rounded up to lines.
    pub(crate) fn cut(&mut self, bytes: usize) -> Span {
        let bytes = bytes.next_multiple_of(LINE);
        assert!(bytes <= self.bytes, "cut beyond the end of a span");
        let cut = Span { bytes, ..*self };
        // SAFETY: inside the span, or one past its end.
        self.start = unsafe { self.start.add(bytes) };
        self.bytes -= bytes;
        cut
    }
}

#[derive(Debug)]
pub(crate) struct Heap {
    huge_pages: bool,
    process: Process,
    /// Bytes that may be taken. Read where memory is taken, set when the memory is opened.
    limit: AtomicUsize,
    /// Whether the limit ever refused a request.
    scarce: AtomicBool,
    /// Whether the limit refused a request and lists have not shrunk since.
    tight: AtomicBool,
    /// Bytes mapped; written under the lock of `state`, read by anyone.
    pub(crate) mapped: AtomicUsize,
    pub(crate) state: Mutex<State>,
    pub(crate) pools: [Mutex<Vec<Batch>>; CLASSES],
    /// Held while free blocks are taken out to give memory back.
    pub(crate) reclaiming: Mutex<()>,
    /// Whether workers at rest hand over what they keep at hand.
    pub(crate) wants_blocks: AtomicBool,
    /// Bytes of free blocks that the last reclamation left.
    pub(crate) left_free: AtomicUsize,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) maps: Vec<Map>,
    /// Free spans that were written before, and those that were not.
    pub(crate) touched: Vec<Span>,
    pub(crate) untouched: Vec<Span>,
    /// Large allocations by address.
    large: BTreeMap<usize, Map>,
    /// Bytes in spans and large maps that are out with workers.
    pub(crate) taken: usize,
    /// Bytes of lists that grow with transactions (`counted`), which lie elsewhere.
    noted: usize,
}

impl Heap {
    pub(crate) fn new(options: &Options) -> Heap {
        Heap {
            process: Process::current(),
            huge_pages: options.huge_pages,
            limit: AtomicUsize::new(options.limit_bytes.unwrap_or(usize::MAX)),
            scarce: AtomicBool::new(false),
            tight: AtomicBool::new(false),
            mapped: AtomicUsize::new(0),
            state: Mutex::default(),
            pools: [const { Mutex::new(Vec::new()) }; CLASSES],
            reclaiming: Mutex::new(()),
            wants_blocks: AtomicBool::new(false),
            left_free: AtomicUsize::new(0),
        }
    }

    pub(crate) fn set_limit(&self, bytes: Option<usize>) {
        self.limit.store(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Whether workers at rest should hand over what they keep at hand.
    pub(crate) fn wants_blocks(&self) -> bool {
        self.is_scarce() || self.wants_blocks.load(Ordering::Relaxed)
    }

    /// Bytes mapped, but for those given back.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped.load(Ordering::Relaxed)
    }

    /// Whether the limit was ever reached: then free blocks are worth sharing.
    pub(crate) fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed)
    }

    /// Bytes that may still be taken, if `bytes` may.
    fn room(&self, state: &State, bytes: usize) -> Result<usize, OutOfMemory> {
        let room = self.limit.load(Ordering::Relaxed).saturating_sub(state.taken.saturating_add(state.noted));
        if bytes > room {
            return Err(self.refuse(state));
        }
        Ok(room)
    }

    /// As [`Heap::room`], after all that is free was tried.
    fn room_beyond(&self, state: &State, bytes: usize) -> Result<usize, OutOfMemory> {
        let limit = self.limit.load(Ordering::Relaxed);
        let beyond = limit / BEYOND_PART;
        let room = limit.saturating_add(beyond).saturating_sub(state.taken.saturating_add(state.noted));
        // No thread takes the lock of the state while it has that of a pool.
        if bytes > room || self.pooled_bytes() < beyond {
            return Err(self.refuse(state));
        }
        Ok(room)
    }

    #[cold]
    fn refuse(&self, state: &State) -> OutOfMemory {
        self.scarce.store(true, Ordering::Relaxed);
        self.tight.store(state.noted > 0, Ordering::Relaxed);
        OutOfMemory
    }

    /// Whether lists of transactions should give back what they do not need.
    pub(crate) fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Bytes of lists change from `before` to `after`. In a fork, where they are dropped, another thread may have the
    /// lock for ever: there nothing is noted.
    pub(crate) fn note(&self, before: usize, after: usize) {
        if before != after && self.process.is_current() {
            let mut state = lock(&self.state);
            state.noted = state.noted + after - before;
            if after < before && self.room(&state, 0).is_ok_and(|room| room > state.noted) {
                self.tight.store(false, Ordering::Relaxed);
            }
        }
    }

    /// As [`Heap::note`], if the bound for lists allows it.
    pub(crate) fn try_note(&self, before: usize, after: usize) -> Result<(), OutOfMemory> {
        let limit = self.limit.load(Ordering::Relaxed);
        let mut state = lock(&self.state);
        // More than the limit is taken only where the limit came later, as after a recovery: lists have the same room
        // above it.
        let bound = limit.max(state.taken).saturating_add((limit / 8).max(NOTES_MIN));
        let noted = state.noted + after - before;
        if after > before && state.taken.saturating_add(noted) > bound {
            return Err(self.refuse(&state));
        }
        state.noted = noted;
        Ok(())
    }

    /// Bytes of lists that grow with transactions.
    pub(crate) fn noted(&self) -> usize {
        lock(&self.state).noted
    }

    /// Maps and touches `bytes` more, to be handed out before other memory.
    pub(crate) fn prefault(&self, bytes: usize) -> Result<(), OutOfMemory> {
        if bytes == 0 {
            return Ok(());
        }
        if self.mapped().saturating_add(bytes) > self.limit.load(Ordering::Relaxed) {
            return Err(OutOfMemory);
        }
        let map =
            Map::new(bytes.checked_next_multiple_of(HUGE).ok_or(OutOfMemory)?, self.huge_pages).ok_or(OutOfMemory)?;
        // SAFETY: a fresh map of our own. The lock is not held: this takes seconds for gigabytes.
        unsafe { system::touch(map.start(), map.bytes()) };
        self.add(&mut lock(&self.state), map, true);
        Ok(())
    }

    fn add(&self, state: &mut State, map: Map, touched: bool) {
        self.mapped.fetch_add(map.bytes(), Ordering::Relaxed);
        let span = Span { start: map.start(), bytes: map.bytes(), touched, returned: false };
        state.list(touched).push(span);
        state.maps.push(map);
    }

    /// A touched span of at least `least` and at most `most` bytes (multiples of [`LINE`]). `beyond` the limit if all
    /// that is free was tried.
    pub(crate) fn take(&self, least: usize, most: usize, beyond: bool) -> Result<Span, OutOfMemory> {
        debug_assert!(least.is_multiple_of(LINE) && most.is_multiple_of(LINE) && least <= most);
        let span = {
            let mut state = lock(&self.state);
            let room = if beyond { self.room_beyond(&state, least)? } else { self.room(&state, least)? };
            let (touched, at) = match state.find(least) {
                Some(found) => found,
                None => {
                    // An eighth of the mapped memory, but not far above what may still be taken.
                    let step = (self.mapped() / 8).clamp(HUGE, STEP_MAX).min(room).max(least).next_multiple_of(HUGE);
                    let map = Map::new(step, self.huge_pages).ok_or(OutOfMemory)?;
                    self.add(&mut state, map, false);
                    (false, state.untouched.len() - 1)
                }
            };
            let room = room - room % LINE;
            let spans = state.list(touched);
            let bytes = most.min(room).min(spans[at].bytes);
            let span = spans[at].cut(bytes);
            if spans[at].bytes == 0 {
                spans.swap_remove(at);
            }
            state.taken += span.bytes;
            if span.returned {
                self.mapped.fetch_add(span.bytes, Ordering::Relaxed);
            }
            span
        };
        if !span.touched {
            // SAFETY: rule 1.
            unsafe { system::touch(span.start, span.bytes) };
        }
        Ok(Span { touched: true, returned: false, ..span })
    }

    /// Takes back the rest of a span, unless it is too small to keep.
    #[must_use]
    pub(crate) fn give_back(&self, span: Span) -> Option<Span> {
        if span.bytes < LEFTOVER_MIN {
            return Some(span);
        }
        let mut state = lock(&self.state);
        state.taken -= span.bytes;
        state.touched.push(span);
        None
    }

    /// A touched map of its own, page-aligned, and its size in bytes.
    pub(crate) fn take_large(&self, bytes: usize) -> Result<(NonNull<u8>, usize), OutOfMemory> {
        let rounded = Map::rounded(bytes).ok_or(OutOfMemory)?;
        {
            let mut state = lock(&self.state);
            self.room(&state, rounded)?;
            state.taken += rounded;
        }
        // Mapped and touched without the lock, which others need.
        let Some(map) = Map::new(bytes, self.huge_pages) else {
            lock(&self.state).taken -= rounded;
            return Err(OutOfMemory);
        };
        debug_assert_eq!(map.bytes(), rounded);
        let start = map.start();
        // SAFETY: a fresh map of our own.
        unsafe { system::touch(start, rounded) };
        self.mapped.fetch_add(rounded, Ordering::Relaxed);
        lock(&self.state).large.insert(start.as_ptr().addr(), map);
        Ok((start, rounded))
    }

    /// Unmaps a large allocation. Returns its size in bytes.
    ///
    /// # Panics
    /// If `start` is not one: it was released twice, or with the bytes of another.
    pub(crate) fn release_large(&self, start: NonNull<u8>, bytes: usize) -> usize {
        let map = {
            let mut state = lock(&self.state);
            let map = state.large.remove(&start.as_ptr().addr()).expect("released a large block that is not allocated");
            state.taken -= map.bytes();
            map
        };
        assert_eq!(Some(map.bytes()), Map::rounded(bytes), "released a large block with other bytes than it has");
        self.mapped.fetch_sub(map.bytes(), Ordering::Relaxed);
        map.bytes()
    }

    /// Hands a batch of free blocks to the next thread that needs them.
    pub(crate) fn hand_over(&self, class: Class, batch: Batch) {
        if batch.head.is_some() {
            lock(&self.pools[class.index()]).push(batch);
        }
    }

    /// The batch handed over last.
    pub(crate) fn take_batch(&self, class: Class) -> Option<Batch> {
        lock(&self.pools[class.index()]).pop()
    }

    /// A batch of larger blocks, of the class of which most bytes are free. Only of classes that are multiples of
    /// lines. Blocks that are cut from these at a multiple of lines are aligned to lines, as such classes require.
    pub(crate) fn take_larger(&self, class: Class) -> Option<(Class, Batch)> {
        let larger = Class::all().filter(|other| *other > class && other.bytes().is_multiple_of(LINE));
        let most = larger.max_by_key(|other| self.free_bytes(*other))?;
        Some((most, self.take_batch(most)?))
    }

    /// Bytes of free blocks of a class between workers.
    pub(crate) fn free_bytes(&self, class: Class) -> usize {
        let batches = lock(&self.pools[class.index()]);
        batches.iter().map(|batch| batch.count as usize).sum::<usize>() * class.bytes()
    }
}

impl State {
    fn list(&mut self, touched: bool) -> &mut Vec<Span> {
        if touched { &mut self.touched } else { &mut self.untouched }
    }

    /// A span of at least `bytes`, touched if there is one: whether it is, and its place in that list.
    fn find(&self, bytes: usize) -> Option<(bool, usize)> {
        let fits = |spans: &[Span]| spans.iter().rposition(|span| span.bytes >= bytes);
        let touched = fits(&self.touched).map(|at| (true, at));
        touched.or_else(|| fits(&self.untouched).map(|at| (false, at)))
    }
}

/// A panic while one of our locks was held left nothing half done: each is held for a few plain steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    seriatim_htm::assert_outside();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
