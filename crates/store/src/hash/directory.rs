//! Where buckets are: linear hashing over a directory of sections (Litwin, "Linear Hashing", VLDB 1980, with
//! the segment directory of Larson, "Dynamic Hash Tables", CACM 1988).
//!
//! A table begins with `base` buckets, enough for its expected rows. It grows one bucket at a time: the buckets `base
//! << level ..` appear in order, each one splitting the bucket `base << level` before it. The pair (level, buckets) is
//! one word, the [`Extent`]. A table starts from `base` and not from a power of two. So a table within its hint has
//! evenly filled buckets and uses no more memory than requested.
//!
//! Access rules: (a) Only the holder of the table's growth lock changes the extent and the directory. (b) A section is
//! in the directory, and the directory is published, before the extent reaches its buckets. Readers load the extent
//! first, then the directory. (c) Sections never move, and live as long as the table. So do replaced directories, which
//! have at most the size of one in total. Finding a bucket needs no grace period. (d) Bucket `b` is split only while
//! its word is latched, and the extent advances meanwhile. So a thread that reads an unlatched word and *then* the
//! extent sees every split of that bucket up to that value of the word.

use super::bucket::{Bucket, LINE_BYTES};
use super::hasher::HashValue;
use crate::small;
use seriatim_base::size::Size;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_htm::Outside;
use seriatim_memory::{Local, OutOfMemory};
use std::hint::select_unpredictable;
use std::ptr::NonNull;

/// Buckets of a section: 32 KiB of them, the largest size class of `memory`. Small in tests, so that
/// directories grow too.
const SECTION: Size = small(512, 4);
/// Sections allocated at once at most: 2 MiB, a huge page.
const SECTIONS_MAX: u64 = 64;
/// Sections allocated at once are this fraction of those there are.
const SECTIONS_FRACTION: u64 = 8;
/// First capacity of a directory, sections.
const DIRECTORY_MIN: Size = small(64, 2);

const SECTION_BYTES: Size = SECTION.times(LINE_BYTES);

/// Buckets of a section.
#[inline(always)]
fn section_buckets() -> u64 {
    SECTION.get() as u64
}

/// `buckets 39 | mask 25`: how many there are, and the level bits that choose one: one more than the table has doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent(u64);

impl Extent {
    const MASK: u64 = (1 << HashValue::LEVELS) - 1;

    /// The extent of a table that was never split.
    pub(super) fn new(base: u64) -> Extent {
        Extent(base << HashValue::LEVELS | 1)
    }

    #[inline(always)]
    fn mask(self) -> u64 {
        self.0 & Extent::MASK
    }

    /// How often the table has doubled.
    pub(super) fn level(self) -> u32 {
        self.mask().trailing_ones() - 1
    }

    /// Buckets there are; the number of the next one.
    #[inline(always)]
    pub(super) fn buckets(self) -> u64 {
        self.0 >> HashValue::LEVELS
    }

    /// The home of a key.
    #[inline(always)]
    pub(super) fn home(self, base: u64, hash: HashValue) -> u64 {
        let (first, buckets) = (hash.spread(base), self.buckets());
        if buckets == base {
            return first;
        }
        let bucket = |mask| first + base * (hash.levels() & mask);
        let (finer, coarser) = (bucket(self.mask()), bucket(self.mask() >> 1));
        // A bucket that is not there yet has its records in the one it will split off. No branch: it would go either
        // way with equal chance.
        select_unpredictable(finer < buckets, finer, coarser)
    }

    /// The bucket that splits next. Its keys with level bit [`Extent::level`] set move to bucket [`Extent::buckets`].
    pub(super) fn victim(self, base: u64) -> u64 {
        self.buckets() - (base << self.level())
    }

    /// The extent after the next split; `None` if there are no level bits left, or too many buckets.
    #[must_use]
    pub(super) fn grown(self, base: u64) -> Option<Extent> {
        let (mask, buckets) = (self.mask(), self.buckets() + 1);
        let mask = if buckets == base * (mask + 1) { mask << 1 | 1 } else { mask };
        let fits = mask <= Extent::MASK && buckets >> (u64::BITS - HashValue::LEVELS) == 0;
        fits.then_some(Extent(buckets << HashValue::LEVELS | mask))
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }
}

/// The part of a table that every operation reads and only growth writes. One line.
#[derive(Debug)]
pub(super) struct Directory {
    /// See [`Extent`].
    pub(super) extent: AtomicU64,
    /// Address of the array of section addresses.
    sections: AtomicU64,
    base: u64,
}

/// Fields that only the holder of the growth lock uses.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Sections in the directory.
    sections: u64,
    /// Sections the directory has room for.
    capacity: u64,
    /// Allocations that hold them, and directories that were replaced.
    blocks: Vec<(NonNull<u8>, usize)>,
}

// SAFETY: addresses and sizes of memory that the table owns.
unsafe impl Send for Blocks {}

fn directory_bytes(capacity: u64) -> usize {
    capacity as usize * size_of::<AtomicU64>()
}

/// Room for `capacity` section addresses, all 0.
fn array(capacity: u64, local: &mut Local, outside: &mut Outside) -> Result<NonNull<AtomicU64>, OutOfMemory> {
    let array = local.allocate(outside, directory_bytes(capacity))?.cast::<AtomicU64>();
    for i in 0..capacity as usize {
        // SAFETY: within the allocation, which is private.
        unsafe { array.add(i).write(AtomicU64::new(0)) };
    }
    Ok(array)
}

impl Directory {
    /// At least `buckets` empty buckets.
    pub(super) fn new(
        buckets: u64,
        local: &mut Local,
        outside: &mut Outside,
    ) -> Result<(Directory, Blocks), OutOfMemory> {
        let sections = buckets.max(1).div_ceil(section_buckets());
        let base = sections * section_buckets();
        assert!(base < 1 << 32, "a table begins with less than 2^32 buckets");
        let capacity = sections.max(DIRECTORY_MIN.get() as u64).next_power_of_two();
        let array = array(capacity, local, outside)?;
        let extent = AtomicU64::new(Extent::new(base).bits());
        let directory = Directory { extent, sections: AtomicU64::new(array.as_ptr().expose_provenance() as u64), base };
        let mut blocks = Blocks { sections: 0, capacity, blocks: Vec::new() };
        if let Err(error) = directory.append(&mut blocks, sections, local, outside) {
            // SAFETY: allocated above with this size; private.
            unsafe { local.release(array.cast(), directory_bytes(capacity)) };
            return Err(error);
        }
        for bucket in 0..base {
            // SAFETY: the table is private, and the bucket lies within the sections just appended.
            unsafe { Bucket::write(directory.place(bucket)) };
        }
        Ok((directory, blocks))
    }

    /// The number of first buckets.
    #[inline(always)]
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The extent now.
    #[inline(always)]
    pub(super) fn extent(&self) -> Extent {
        crate::step(&self.extent);
        // ORDERING: pairs with the release of the extent by a split: the directory is at least as new (b).
        Extent(self.extent.load(Ordering::Acquire))
    }

    /// # Safety
    /// `bucket` lies in a section of the directory.
    #[inline(always)]
    unsafe fn place(&self, bucket: u64) -> *mut Bucket {
        // ORDERING: pairs with the release in `append`.
        let array = self.sections.load(Ordering::Acquire);
        let array = std::ptr::with_exposed_provenance::<AtomicU64>(array as usize);
        // SAFETY: the caller's promise; the directory lives as long as the table (c).
        // ORDERING: Relaxed: written before the directory or the extent that led here was released.
        let section = unsafe { &*array.add((bucket / section_buckets()) as usize) }.load(Ordering::Relaxed);
        std::ptr::with_exposed_provenance_mut::<Bucket>(section as usize)
            .wrapping_add((bucket % section_buckets()) as usize)
    }

    /// A bucket.
    ///
    /// # Safety
    /// `bucket` is below the number of buckets of an extent that was loaded before.
    #[inline(always)]
    pub(super) unsafe fn bucket(&self, bucket: u64) -> &Bucket {
        // SAFETY: (b): buckets below a published extent are in the directory and initialised; (c): as long as
        // the table.
        unsafe { &*self.place(bucket) }
    }

    /// Puts an empty bucket behind the last one, not yet part of the table.
    ///
    /// # Errors
    /// When there is no memory for a section.
    pub(super) fn prepare(
        &self,
        blocks: &mut Blocks,
        local: &mut Local,
        outside: &mut Outside,
    ) -> Result<&Bucket, OutOfMemory> {
        let bucket = self.extent().buckets();
        if bucket / section_buckets() >= blocks.sections {
            let more = (blocks.sections / SECTIONS_FRACTION).clamp(1, SECTIONS_MAX);
            self.append(blocks, more, local, outside)?;
        }
        // SAFETY: in the directory now; private, as the extent does not reach it, and growth is locked (a).
        unsafe {
            let place = self.place(bucket);
            Bucket::write(place);
            Ok(&*place)
        }
    }

    /// Adds sections, in one allocation.
    fn append(
        &self,
        blocks: &mut Blocks,
        more: u64,
        local: &mut Local,
        outside: &mut Outside,
    ) -> Result<(), OutOfMemory> {
        let needed = blocks.sections + more;
        if needed > blocks.capacity {
            self.widen(blocks, needed, local, outside)?;
        }
        let bytes = more as usize * SECTION_BYTES.get();
        let block = local.allocate(outside, bytes)?;
        assert!(block.cast::<Bucket>().is_aligned(), "allocations of whole lines are aligned to lines");
        blocks.blocks.push((block, bytes));
        let array = std::ptr::with_exposed_provenance::<AtomicU64>(self.sections.load(Ordering::Relaxed) as usize);
        for i in 0..more {
            let section = block.as_ptr().wrapping_add(i as usize * SECTION_BYTES.get()).expose_provenance();
            // SAFETY: within the capacity; entries are only accessed as atomics.
            // ORDERING: Relaxed: the extent that reaches this section is released later (b).
            unsafe { &*array.add((blocks.sections + i) as usize) }.store(section as u64, Ordering::Relaxed);
        }
        blocks.sections = needed;
        Ok(())
    }

    /// Replaces the directory by one of at least twice the capacity.
    fn widen(
        &self,
        blocks: &mut Blocks,
        needed: u64,
        local: &mut Local,
        outside: &mut Outside,
    ) -> Result<(), OutOfMemory> {
        let capacity = needed.next_power_of_two();
        let new = array(capacity, local, outside)?;
        let old = std::ptr::with_exposed_provenance_mut::<AtomicU64>(self.sections.load(Ordering::Relaxed) as usize);
        for i in 0..blocks.sections as usize {
            // SAFETY: both have room for `blocks.sections` entries.
            // ORDERING: Relaxed: growth is locked (a), and the new directory is released below.
            unsafe { new.add(i).as_ref().store((*old.add(i)).load(Ordering::Relaxed), Ordering::Relaxed) };
        }
        // ORDERING: pairs with the acquire in `place`.
        self.sections.store(new.as_ptr().expose_provenance() as u64, Ordering::Release);
        let bytes = directory_bytes(std::mem::replace(&mut blocks.capacity, capacity));
        blocks.blocks.extend(NonNull::new(old.cast()).map(|old| (old, bytes)));
        Ok(())
    }

    /// Sections and bytes, of the blocks and the directory.
    pub(super) fn footprint(&self, blocks: &Blocks) -> (usize, usize) {
        let bytes: usize = blocks.blocks.iter().map(|block| block.1).sum();
        (blocks.sections as usize, bytes + directory_bytes(blocks.capacity))
    }

    /// Gives all memory back.
    ///
    /// # Safety
    /// No thread uses the table any more (rule 5), nor this directory after this call.
    pub(super) unsafe fn release(&self, blocks: Blocks, local: &mut Local) {
        for (block, bytes) in blocks.blocks {
            // SAFETY: allocated with this size; the caller's promise.
            unsafe { local.release(block, bytes) };
        }
        let array = std::ptr::with_exposed_provenance_mut(self.sections.load(Ordering::Relaxed) as usize);
        if let Some(array) = NonNull::new(array) {
            // SAFETY: as above.
            unsafe { local.release(array, directory_bytes(blocks.capacity)) };
        }
    }
}
