//! A worker's own free blocks: one LIFO list a class, so that the block freed last, still in the cache, is used first.
//!
//! Allocating and releasing touch only the worker's own state; no atomics. A list that reaches a batch becomes
//! the class's spare. The spare that it displaces goes to the pool as a whole (the magazines of Bonwick and Adams,
//! USENIX 2001). So blocks are never counted out, and a worker whose list is about full does not visit the pool each
//! time.

use crate::class::{CLASSES, Class};
use crate::heap::{Batch, Block, Heap, LINE, SPAN, Span};
use crate::{OutOfMemory, small};
use seriatim_base::prefetch;
use seriatim_base::size::Size;
use std::ptr::NonNull;

/// Bytes in a full list. A worker keeps at most two full lists a class.
const BATCH_BYTES: Size = small(128 << 10, 1 << 10);
/// Blocks in a full list at least, for classes nearly as large as a batch.
const BATCH_MIN: usize = 2;
/// Bytes cut from the span at a time.
const RUN_BYTES: Size = small(4 << 10, 512);

const _: () = assert!(RUN_BYTES.is_within(BATCH_BYTES), "a run fits into a list");
const _: () = assert!(size_of::<Block>() <= Class::of(1).bytes(), "the smallest block holds the link of a free one");

/// The free blocks of one class; at most `bound` of them.
#[derive(Clone, Copy, Debug)]
struct List {
    head: Option<NonNull<Block>>,
    count: u32,
    bound: u32,
}

#[derive(Debug)]
pub(crate) struct Arena {
    lists: [List; CLASSES],
    spares: [Batch; CLASSES],
    span: Span,
}

/// Blocks in a full list.
pub(crate) fn bound(class: Class) -> u32 {
    (BATCH_BYTES.get() / class.bytes()).max(BATCH_MIN) as u32
}

impl Arena {
    pub(crate) fn new() -> Arena {
        let mut lists = [List { head: None, count: 0, bound: 0 }; CLASSES];
        for class in Class::all() {
            lists[class.index()].bound = bound(class);
        }
        Arena { lists, spares: [Batch::default(); CLASSES], span: Span::EMPTY }
    }

    /// The block of the class that was freed last, if any is at hand.
    #[inline]
    pub(crate) fn pop(&mut self, class: Class) -> Option<NonNull<u8>> {
        let list = &mut self.lists[class.index()];
        let block = list.head?;
        // SAFETY: rule 1 of `heap`: a block on our list is ours and starts with its link.
        list.head = unsafe { block.as_ref().next };
        list.count -= 1;
        Some(block.cast())
    }

    /// Takes a free block in.
    ///
    /// # Safety
    /// `start` is a block of this class that no other thread can reach.
    #[inline]
    pub(crate) unsafe fn push(&mut self, heap: &Heap, class: Class, start: NonNull<u8>) {
        let list = &mut self.lists[class.index()];
        if list.count == list.bound {
            self.rotate(heap, class);
        }
        let list = &mut self.lists[class.index()];
        let block = start.cast::<Block>();
        // SAFETY: as the caller promises; blocks are 16-aligned and hold at least a link.
        unsafe { block.write(Block { next: list.head }) };
        list.head = Some(block);
        list.count += 1;
    }

    /// Makes a full list the spare, and hands the spare before it over.
    #[cold]
    fn rotate(&mut self, heap: &Heap, class: Class) {
        let full = self.take_list(class);
        let before = std::mem::replace(&mut self.spares[class.index()], full);
        heap.hand_over(class, before);
    }

    fn take_list(&mut self, class: Class) -> Batch {
        let list = &mut self.lists[class.index()];
        Batch { head: list.head.take(), count: std::mem::take(&mut list.count) }
    }

    /// A block of a class whose list is empty: from the spare, the pool, or fresh memory.
    #[cold]
    pub(crate) fn refill(&mut self, heap: &Heap, class: Class) -> Result<NonNull<u8>, OutOfMemory> {
        let spare = std::mem::take(&mut self.spares[class.index()]);
        let batch = if spare.head.is_some() { Some(spare) } else { heap.take_batch(class) };
        match batch {
            Some(batch) => self.take_in(class, batch),
            None => match self.carve(heap, class, false) {
                Ok(()) => {}
                Err(OutOfMemory) => self.refill_late(heap, class)?,
            },
        }
        Ok(self.pop(class).expect("a batch and a run hold a block"))
    }

    fn take_in(&mut self, class: Class, batch: Batch) {
        let list = &mut self.lists[class.index()];
        (list.head, list.count) = (batch.head, batch.count);
    }

    /// When there is no fresh memory: free memory of other classes, in whole spans or in larger blocks.
    #[cold]
    fn refill_late(&mut self, heap: &Heap, class: Class) -> Result<(), OutOfMemory> {
        self.surrender(heap);
        heap.reclaim_at_limit();
        match heap.take_batch(class) {
            Some(batch) => {
                self.take_in(class, batch);
                Ok(())
            }
            None => {
                let carved = self.carve(heap, class, false);
                let split = carved.or_else(|OutOfMemory| self.split(heap, class));
                split.or_else(|OutOfMemory| self.carve(heap, class, true))
            }
        }
    }

    /// Cuts blocks of a class from larger ones. They become larger again when all that lies beside them is
    /// free (`reclaim`).
    fn split(&mut self, heap: &Heap, class: Class) -> Result<(), OutOfMemory> {
        let (from, batch) = heap.take_larger(class).ok_or(OutOfMemory)?;
        for block in batch.blocks() {
            let mut at = 0;
            while let Some(piece) = Class::within(from.bytes() - at).map(|rest| rest.min(class)) {
                // SAFETY: rule 1 of `heap`: within a block of ours. `from` is a multiple of lines; so is `at`
                // where `piece` is one.
                unsafe { self.push(heap, piece, block.cast().add(at)) };
                at += piece.bytes();
            }
        }
        Ok(())
    }

    /// Cuts a run of blocks from the span, of which the lowest will be used first.
    fn carve(&mut self, heap: &Heap, class: Class, beyond: bool) -> Result<(), OutOfMemory> {
        let block_bytes = class.bytes();
        let least = block_bytes.next_multiple_of(LINE);
        let mut run_bytes = RUN_BYTES.get().max(least);
        if self.span.bytes < least {
            let span = heap.take(least, SPAN.get().max(least), beyond)?;
            let rest = std::mem::replace(&mut self.span, span);
            self.dice(heap, rest);
        }
        run_bytes = run_bytes.min(self.span.bytes);
        let count = (run_bytes / block_bytes).min(self.lists[class.index()].bound as usize);
        let run = self.span.cut(count * block_bytes);
        // Nothing is lost, or what lies around it could never be given back.
        let tail = run.bytes - count * block_bytes;
        if let Some(class) = Class::within(tail) {
            debug_assert_eq!(class.bytes(), tail, "below 64 bytes every multiple of 16 is a class");
            // SAFETY: inside the run, behind its last block.
            unsafe { self.push(heap, class, run.start.add(count * block_bytes)) };
        }
        // Prefetches the next run of this span: fresh lines that are requested before the first write delay no
        // store. (A locked instruction waits for all stores before it.)
        prefetch::lines(self.span.start.as_ptr(), self.span.bytes.min(RUN_BYTES.get()));
        // SAFETY: rule 1 of `heap`: cut from our span, so ours alone.
        unsafe { self.push_run(heap, class, run, count) };
        Ok(())
    }

    /// # Safety
    /// `run` is ours, line-aligned, and holds `count` blocks of the class.
    unsafe fn push_run(&mut self, heap: &Heap, class: Class, run: Span, count: usize) {
        debug_assert!(count >= 1 && count * class.bytes() <= run.bytes);
        for i in (0..count).rev() {
            // SAFETY: block `i` lies within the run; multiples of the class from a line on are aligned as
            // blocks must be.
            unsafe { self.push(heap, class, run.start.add(i * class.bytes())) };
        }
    }

    /// Cuts the rest of a span into blocks, so that nothing is lost.
    fn dice(&mut self, heap: &Heap, mut rest: Span) {
        while let Some(class) = Class::within(rest.bytes) {
            let cut = rest.cut(class.bytes());
            // SAFETY: as in `carve`.
            unsafe { self.push(heap, class, cut.start) };
        }
    }

    /// Gives everything to the heap.
    pub(crate) fn surrender(&mut self, heap: &Heap) {
        let rest = std::mem::replace(&mut self.span, Span::EMPTY);
        if let Some(scrap) = heap.give_back(rest) {
            self.dice(heap, scrap);
        }
        for class in Class::all() {
            let list = self.take_list(class);
            heap.hand_over(class, list);
            heap.hand_over(class, std::mem::take(&mut self.spares[class.index()]));
        }
    }
}
