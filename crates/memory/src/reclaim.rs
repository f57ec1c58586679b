//! Giving memory back to the system.
//!
//! Blocks keep their class, and free ones are in lists wherever they were freed. So memory is examined in *windows*,
//! aligned pieces of the size of a span. A window whose bytes are all free, in batches between workers or as the rest
//! of a span, is removed from the lists. It becomes a span again, for blocks of any class, and is returned. The map
//! stays, and its pages are released (`madvise`). They come back zeroed when they are touched.
//!
//! Two kinds of memory stay: windows with memory in use, and blocks that workers keep at hand, which they hand
//! over when they rest ([`Heap::wants_blocks`]).
//!
//! This walks over all free blocks between workers, which is too slow for a transaction. A helper does it,
//! when enough more is free than the last time. A thread about to be refused at the limit does it too
//! ([`Heap::reclaim_at_limit`]).

use crate::class::{CLASSES, Class};
use crate::heap::{Batch, Heap, SPAN, Span, lock};
use crate::{arena, small, system};
use seriatim_base::size::Size;
use std::ptr::NonNull;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;

/// The least number of free bytes up to which nothing is returned; an eighth of the taken memory if that is
/// more.
const RESERVE_MIN: Size = small(64 << 20, 64 << 10);

/// The windows of all maps.
struct Windows {
    /// Start, bytes, and number of the first window of each map, by address.
    maps: Vec<(usize, usize, usize)>,
    /// The map that was found last.
    last: usize,
    /// Free bytes of each window.
    free: Vec<u32>,
    /// Those of them in blocks.
    in_blocks: Vec<u32>,
}

impl Windows {
    fn new(mut maps: Vec<(usize, usize)>) -> Windows {
        maps.sort_unstable();
        let mut first = 0;
        let numbered = maps.into_iter().map(|(start, bytes)| {
            let map = (start, bytes, first);
            first += bytes.div_ceil(SPAN.get());
            map
        });
        let maps: Vec<_> = numbered.collect();
        Windows { maps, last: 0, free: vec![0; first], in_blocks: vec![0; first] }
    }

    /// The windows that these bytes lie in, the first and the last; `None` if they lie in no map that was known.
    fn of(&mut self, start: usize, bytes: usize) -> Option<(usize, usize)> {
        let within = |&(map, length, _): &(usize, usize, usize)| start.wrapping_sub(map) < length;
        if !self.maps.get(self.last).is_some_and(within) {
            let after = self.maps.partition_point(|&(map, ..)| map <= start);
            self.last = after.checked_sub(1).filter(|&at| within(&self.maps[at]))?;
        }
        let (map, _, first) = self.maps[self.last];
        let window = |address: usize| first + (address - map) / SPAN.get();
        Some((window(start), window(start + bytes - 1)))
    }

    /// Adds free bytes.
    fn add(&mut self, start: usize, bytes: usize, is_block: bool) {
        let Some((first, last)) = self.of(start, bytes) else { return };
        let mut add = |window: usize, bytes: usize| {
            self.free[window] += bytes as u32;
            if is_block {
                self.in_blocks[window] += bytes as u32;
            }
        };
        if first == last {
            return add(first, bytes);
        }
        let (map, _, base) = self.maps[self.last];
        for window in first..=last {
            let (begin, end) = (map + (window - base) * SPAN.get(), map + (window - base + 1) * SPAN.get());
            add(window, end.min(start + bytes) - begin.max(start));
        }
    }

    fn is_whole(&self, window: usize) -> bool {
        self.free[window] as usize == SPAN.get() && self.in_blocks[window] > 0
    }

    /// Whether all that these bytes touch goes.
    fn goes(&mut self, start: usize, bytes: usize) -> bool {
        let Some((first, last)) = self.of(start, bytes) else { return false };
        (first..=last).all(|window| self.is_whole(window))
    }

    /// Windows that share a free piece with one that is not whole are not whole either.
    fn keep_straddled(&mut self, straddling: &[(usize, usize)]) {
        loop {
            let mut changed = false;
            for &(first, last) in straddling {
                if !(first..=last).all(|window| self.is_whole(window)) {
                    for window in first..=last {
                        changed |= self.is_whole(window);
                        self.free[window] = 0;
                    }
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Runs of whole windows: start, bytes, and bytes in blocks.
    fn runs(&self) -> Vec<(usize, usize, usize)> {
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for &(map, bytes, first) in &self.maps {
            for at in (0..bytes.div_ceil(SPAN.get())).filter(|at| self.is_whole(first + at)) {
                let (start, in_blocks) = (map + at * SPAN.get(), self.in_blocks[first + at] as usize);
                match runs.last_mut() {
                    Some((begin, bytes, sum)) if *begin + *bytes == start && at > 0 => {
                        *bytes += SPAN.get();
                        *sum += in_blocks;
                    }
                    _ => runs.push((start, SPAN.get(), in_blocks)),
                }
            }
        }
        runs
    }
}

impl Heap {
    /// Bytes of free blocks between workers.
    pub(crate) fn pooled_bytes(&self) -> usize {
        Class::all().map(|class| self.free_bytes(class)).sum()
    }

    /// Free bytes up to which nothing is given back.
    fn reserve(&self) -> usize {
        RESERVE_MIN.get().max(lock(&self.state).taken / 8)
    }

    /// Bytes of free blocks between workers, and of these what has come since the last reclamation.
    fn freed(&self) -> (usize, usize) {
        let free = self.pooled_bytes();
        let left = self.left_free.load(Ordering::Relaxed).min(free);
        self.left_free.store(left, Ordering::Relaxed);
        (free, free - left)
    }

    /// Returns wholly free memory to the system, if more than the reserve is free and enough more than was
    /// left the last time. Returns its size in bytes.
    pub(crate) fn give_back_pages(&self) -> usize {
        let ((free, freed), reserve) = (self.freed(), self.reserve());
        let much = free > reserve && freed > reserve / 2;
        // Workers at rest hand over what they keep at hand: windows that it lies in become whole.
        if much && !self.wants_blocks.swap(true, Ordering::Relaxed) {
            return 0;
        }
        self.wants_blocks.store(false, Ordering::Relaxed);
        match much.then(|| self.reclaiming.try_lock()) {
            None | Some(Err(TryLockError::WouldBlock)) => 0,
            Some(_alone) => self.reclaim(),
        }
    }

    /// For a request that is about to be refused: waits for a reclamation that has taken the free blocks out.
    /// If a sixty-fourth of the taken memory has been freed since the last time, it makes spans of the wholly
    /// free windows.
    #[cold]
    pub(crate) fn reclaim_at_limit(&self) {
        let _alone = lock(&self.reclaiming);
        let taken = lock(&self.state).taken;
        if self.freed().1 > SPAN.get().max(taken / 64) {
            self.reclaim();
        }
    }

    /// Makes spans of whole windows, and gives them back; the caller holds `reclaiming`.
    fn reclaim(&self) -> usize {
        let bytes = self.reclaim_alone();
        self.left_free.store(self.pooled_bytes(), Ordering::Relaxed);
        bytes
    }

    fn reclaim_alone(&self) -> usize {
        let (mut windows, scraps) = {
            let mut state = lock(&self.state);
            let scraps: Vec<Span> = state.touched.extract_if(.., |span| span.bytes < SPAN.get()).collect();
            let maps = state.maps.iter().map(|map| (map.start().as_ptr().addr(), map.bytes()));
            (Windows::new(maps.collect()), scraps)
        };
        let mut pools: [Vec<Batch>; CLASSES] = [const { Vec::new() }; CLASSES];
        let mut straddling = Vec::new();
        let mut count = |windows: &mut Windows, start: usize, bytes: usize, is_block: bool| {
            windows.add(start, bytes, is_block);
            if let Some((first, last)) = windows.of(start, bytes).filter(|(first, last)| first != last) {
                straddling.push((first, last));
            }
        };
        for scrap in &scraps {
            count(&mut windows, scrap.start.as_ptr().addr(), scrap.bytes, false);
        }
        for class in Class::all() {
            pools[class.index()] = std::mem::take(&mut *lock(&self.pools[class.index()]));
            for block in pools[class.index()].iter().copied().flat_map(Batch::blocks) {
                count(&mut windows, block.as_ptr().addr(), class.bytes(), true);
            }
        }
        windows.keep_straddled(&straddling);
        for class in Class::all() {
            let batches = std::mem::take(&mut pools[class.index()]);
            let kept = self.without_whole(class, batches, &mut windows);
            lock(&self.pools[class.index()]).extend(kept);
        }
        let scraps = scraps.into_iter().filter(|scrap| !windows.goes(scrap.start.as_ptr().addr(), scrap.bytes));
        let scraps: Vec<Span> = scraps.collect();
        self.return_runs(&windows.runs(), scraps)
    }

    /// The batches without the blocks of whole windows.
    fn without_whole(&self, class: Class, batches: Vec<Batch>, windows: &mut Windows) -> Vec<Batch> {
        let bound = arena::bound(class);
        let (mut kept, mut open) = (Vec::new(), Batch::default());
        for mut block in batches.into_iter().flat_map(Batch::blocks) {
            if windows.goes(block.as_ptr().addr(), class.bytes()) {
                continue;
            }
            // SAFETY: rule 1 of `heap`; the iterator has read its link.
            unsafe { block.as_mut().next = open.head };
            open = Batch { head: Some(block), count: open.count + 1 };
            if open.count == bound {
                kept.push(std::mem::take(&mut open));
            }
        }
        kept.extend((open.count > 0).then_some(open));
        kept
    }

    /// Makes spans of runs of whole windows and gives them back. (Kept as they are they would pile up unseen,
    /// a reserve each time.)
    fn return_runs(&self, runs: &[(usize, usize, usize)], scraps: Vec<Span>) -> usize {
        let (mut touched, mut untouched) = (scraps, Vec::new());
        let (mut returned, mut freed) = (0, 0);
        for &(start, bytes, in_blocks) in runs {
            let start = NonNull::new(start as *mut u8).expect("a map is not at zero");
            // SAFETY: rule 1 of `heap`: all its blocks and scraps were in the lists, and were taken out.
            unsafe { system::give_back(start, bytes) };
            (freed, returned) = (freed + in_blocks, returned + bytes);
            untouched.push(Span { start, bytes, touched: false, returned: true });
        }
        let mut state = lock(&self.state);
        state.taken -= freed;
        self.mapped.fetch_sub(returned, Ordering::Relaxed);
        state.touched.append(&mut touched);
        state.untouched.append(&mut untouched);
        returned
    }
}
