//! Making, copying and freeing records and their parts.
//!
//! Ownership: a record owns its inline image and fixed part. Any other image, fixed part or tail is owned by the version that
//! points to it, and passes to the next version where an update left it as it was.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use seriatim_base::{Epoch, Stamp};
use seriatim_catalog::{Key, KeyClass};
use seriatim_memory::{CountedVec, OutOfMemory, allocated_bytes};
use seriatim_store::{RecordPtr, tail_of, write_key};
use seriatim_txn::{Core, Reason, RowPtr, Staged, Stop, Table};

use super::head::{self, HeaderWord};
use super::origin::Origin;
use super::writes::{Part, Write, WriteSet};

/// Bytes before a tail's text: its length.
const TAIL_HEADER: usize = 8;

/// The memory limit as a stop.
pub(crate) fn full(_: OutOfMemory) -> Stop {
    Stop::execute(Reason::OutOfMemory)
}

/// The row of an image.
#[inline]
pub(crate) fn row_of(table: &Table, image: usize) -> RowPtr {
    let row = (image + table.shape.image_header) as *mut u8;
    // SAFETY: an image address is never zero where a row is asked for; callers checked.
    unsafe { NonNull::new_unchecked(row) }
}

/// The image of a row.
#[inline]
pub(crate) fn image_of(table: &Table, row: RowPtr) -> usize {
    row.as_ptr() as usize - table.shape.image_header
}

#[inline]
fn inline_image(table: &Table, record: RecordPtr) -> usize {
    record.addr() + table.shape.image
}

/// The address of a row's fixed part; zero where the table has none.
#[inline]
fn fixed_of(table: &Table, image: usize) -> usize {
    if table.has_fixed() {
        // SAFETY: the first word of a row with a fixed part is that part's address (rule of catalog's layout).
        unsafe { row_of(table, image).cast::<u64>().read() as usize }
    } else {
        0
    }
}

/// A record for a new row, not linked anywhere.
pub(crate) fn stage(core: &mut Core, table: &Table) -> Result<Staged, Stop> {
    let shape = &table.shape;
    let memory = core.local.allocate(&mut core.outside, shape.record).map_err(full)?;
    // SAFETY: the allocation is `shape.record` bytes; nobody else has it.
    Ok(unsafe { restage(table, RecordPtr::from_raw(memory)) })
}

/// Zeroes the row and fixed part inside a record, for a new row.
///
/// # Safety
/// Nobody else uses them.
pub(crate) unsafe fn restage(table: &Table, record: RecordPtr) -> Staged {
    let shape = &table.shape;
    // SAFETY: a record is `shape.record` bytes, which contain row and fixed part.
    unsafe {
        let memory = NonNull::new_unchecked(record.as_ptr());
        let row = memory.add(shape.image + shape.image_header);
        let fixed = memory.add(shape.fixed);
        row.write_bytes(0, shape.row + shape.fixed_bytes);
        if table.has_fixed() {
            row.cast::<u64>().write(fixed.as_ptr() as u64);
        }
        Staged { record, row, fixed }
    }
}

/// Gives a staged record back. Its tails are parts of the attempt and freed with it.
pub(crate) fn discard(core: &mut Core, table: &Table, staged: Staged) {
    release(core, staged.record.addr(), table.shape.record);
}

/// Frees memory nobody else can reach.
pub(crate) fn release(core: &mut Core, address: usize, bytes: usize) {
    if let Some(memory) = NonNull::new(address as *mut u8).filter(|_| !core.leaks()) {
        // SAFETY: the caller owns the memory and says how much it is.
        unsafe { core.local.release(memory, bytes) }
    }
}

/// Frees memory that readers may still hold, a grace period from now (promise e): what a commit of `epoch` replaced or deleted.
pub(crate) fn retire(core: &mut Core, address: usize, bytes: usize, epoch: Epoch) {
    if let Some(memory) = NonNull::new(address as *mut u8).filter(|_| !core.leaks()) {
        // SAFETY: the caller unlinked the memory and says how much it is.
        unsafe { core.local.retire_version(memory, bytes, epoch) }
    }
}

/// Writes key words and head of a staged record, so that it can be linked. Further head words are the protocol's.
#[inline]
pub(crate) fn seal(core: &mut Core, table: &Table, record: RecordPtr, key: Key<'_>) -> Result<(), Stop> {
    let tail = match tail_of(key) {
        0 => None,
        bytes => Some(core.local.allocate(&mut core.outside, bytes).map_err(full)?),
    };
    // SAFETY: the record is staged: large enough and nobody else's; so is the tail.
    unsafe { write_key(record, key, tail) };
    // ORDERING: linking publishes the record with release.
    head::header(&table.shape, record).store(HeaderWord::PLACEHOLDER.0, Ordering::Relaxed);
    head::image(&table.shape, record).store(0, Ordering::Relaxed);
    Ok(())
}

/// The address and size of the tail block that holds the record's key; zeros for keys of fixed width.
fn key_tail(table: &Table, record: RecordPtr) -> (usize, usize) {
    if table.class != KeyClass::Bytes {
        return (0, 0);
    }
    // SAFETY: key words of a sealed record never change; the second of a Bytes key is its tail.
    let tail = unsafe { record.as_ptr().add(8).cast::<u64>().read() as usize };
    (tail, tail_bytes(tail))
}

/// A tail block for `bytes`; zero for none.
pub(crate) fn tail(core: &mut Core, bytes: &[u8]) -> Result<u64, OutOfMemory> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let memory = core.local.allocate(&mut core.outside, TAIL_HEADER + bytes.len())?;
    // SAFETY: the allocation holds the length and the bytes.
    unsafe {
        memory.cast::<u64>().write(bytes.len() as u64);
        memory.add(TAIL_HEADER).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
    }
    Ok(memory.as_ptr() as u64)
}

/// Bytes of a tail block; zero for none.
pub(crate) fn tail_bytes(tail: usize) -> usize {
    if tail == 0 {
        return 0;
    }
    // SAFETY: a tail's first word is its length.
    TAIL_HEADER + unsafe { (tail as *const u64).read() as usize }
}

/// A private copy of a row, in an image of its own.
#[inline]
pub(crate) fn copy_row(core: &mut Core, table: &Table, row: RowPtr) -> Result<usize, Stop> {
    let shape = &table.shape;
    let image = core.local.allocate(&mut core.outside, shape.image_bytes()).map_err(full)?;
    // SAFETY: both are `shape.row` bytes; the source is a row, immutable while we are online.
    unsafe { image.add(shape.image_header).copy_from_nonoverlapping(row, shape.row) };
    Ok(image.as_ptr() as usize)
}

/// Moves a staged row out of its record, into an image and fixed part of their own, and gives the record back.
pub(crate) fn detach(
    core: &mut Core,
    table: &Table,
    staged: Staged,
    parts: &mut CountedVec<Part>,
) -> Result<usize, Stop> {
    let copied = copy_row(core, table, staged.row).and_then(|image| {
        if table.has_fixed() {
            let bytes = table.shape.fixed_bytes;
            let fixed = match core.local.allocate(&mut core.outside, bytes) {
                Ok(fixed) => fixed,
                Err(error) => {
                    release(core, image, table.shape.image_bytes());
                    return Err(full(error));
                }
            };
            // SAFETY: both are `bytes` long; the first word of the row is the fixed part's address.
            unsafe {
                fixed.copy_from_nonoverlapping(staged.fixed, bytes);
                row_of(table, image).cast::<u64>().write(fixed.as_ptr() as u64);
            }
            parts.push(Part { address: fixed.as_ptr() as usize, bytes });
        }
        Ok(image)
    });
    discard(core, table, staged);
    copied
}

/// Bytes that a record takes with its key, as memory counts them; versions apart.
pub(crate) fn record_bytes(table: &Table, record: RecordPtr) -> i64 {
    let tail = match key_tail(table, record) {
        (0, _) => 0,
        (_, bytes) => allocated_bytes(bytes),
    };
    (allocated_bytes(table.shape.record) + tail) as i64
}

/// Bytes that the version `image` (a row) takes beside the record, as memory counts them.
#[inline]
fn version_bytes(table: &Table, record: RecordPtr, image: usize) -> i64 {
    let own = if is_inline(table, record, image) { 0 } else { allocated_bytes(table.shape.image_bytes()) as i64 };
    if table.has_tails() || table.has_fixed() { own + parts_bytes(table, record, image) } else { own }
}

/// As [`version_bytes`], of what lies outside the image.
#[inline(never)]
fn parts_bytes(table: &Table, record: RecordPtr, image: usize) -> i64 {
    let texts: usize =
        if table.has_tails() { tails(table, image).map(|tail| allocated_bytes(tail_bytes(tail))).sum() } else { 0 };
    let has_own_fixed = table.has_fixed() && fixed_of(table, image) != record.addr() + table.shape.fixed;
    (texts + if has_own_fixed { allocated_bytes(table.shape.fixed_bytes) } else { 0 }) as i64
}

/// Counts what a commit of `write` changes in its table, before anything is retired. `before`: the row it replaced; zero for none.
#[inline]
pub(crate) fn count<O: Origin>(core: &mut Core, write: &Write<O>, before: usize) {
    let (table, record, after) = (write.table(), write.record, write.image);
    let mut bytes = 0;
    if after != 0 {
        bytes += version_bytes(table, record, after);
    }
    if before != 0 {
        bytes -= version_bytes(table, record, before);
    }
    if write.expected.stamp() == Stamp::ZERO {
        bytes += record_bytes(table, record);
    }
    let rows = i64::from(after != 0) - i64::from(before != 0);
    if (rows, bytes) != (0, 0) {
        core.counts.add(table.id, rows, bytes);
    }
}

/// Runs a change of the structure of a table's index, and counts the bytes that it takes or gives back.
#[inline(always)]
pub(crate) fn counting<R>(core: &mut Core, table: &Table, change: impl FnOnce(&mut Core) -> R) -> R {
    let before = core.local.live_bytes();
    let result = change(core);
    let bytes = core.local.live_bytes() - before;
    if bytes != 0 {
        core.counts.add(table.id, 0, bytes);
    }
    result
}

/// Whether `image` is the one inside the record.
#[inline]
pub(crate) fn is_inline(table: &Table, record: RecordPtr, image: usize) -> bool {
    image == inline_image(table, record)
}

/// Tail addresses that the row and its fixed part hold.
fn tails(table: &Table, image: usize) -> impl Iterator<Item = usize> {
    let row = row_of(table, image).as_ptr() as usize;
    tails_in(row, &table.layout.row_tails).chain(tails_in(fixed_of(table, image), &table.layout.fixed_tails))
}

/// Tail addresses at these offsets of the row or fixed part at `base`.
fn tails_in(base: usize, offsets: &[u32]) -> impl Iterator<Item = usize> {
    // SAFETY: layout offsets name words of the part that hold tail addresses.
    let tail = move |&at: &u32| unsafe { ((base + at as usize) as *const u64).read_unaligned() as usize };
    offsets.iter().map(tail).filter(|&tail| tail != 0)
}

/// Retires what the version `old` (a row) owned and its successor `new` (zero: none), of `epoch`, does not.
#[inline]
pub(crate) fn retire_version(core: &mut Core, table: &Table, record: RecordPtr, old: usize, new: usize, epoch: Epoch) {
    if table.has_tails() || table.has_fixed() {
        retire_parts(core, table, record, old, new, epoch);
    }
    if !is_inline(table, record, old) {
        retire(core, old, table.shape.image_bytes(), epoch);
    }
}

/// As [`retire_version`], what lies outside the image.
#[inline(never)]
fn retire_parts(core: &mut Core, table: &Table, record: RecordPtr, old: usize, new: usize, epoch: Epoch) {
    let old_fixed = fixed_of(table, old);
    if table.has_tails() {
        let kept = |tail: usize| new != 0 && tails(table, new).any(|kept| kept == tail);
        for tail in tails(table, old).filter(|&tail| !kept(tail)) {
            retire(core, tail, tail_bytes(tail), epoch);
        }
    }
    if table.has_fixed() && old_fixed != record.addr() + table.shape.fixed {
        let new_fixed = if new == 0 { 0 } else { fixed_of(table, new) };
        if old_fixed != new_fixed {
            retire(core, old_fixed, table.shape.fixed_bytes, epoch);
        }
    }
}

/// Frees at once what the version `image` (a row) owns beside the record, for who has the record alone.
pub(crate) fn release_version(core: &mut Core, table: &Table, record: RecordPtr, image: usize) {
    if table.has_tails() {
        for tail in tails(table, image) {
            release(core, tail, tail_bytes(tail));
        }
    }
    if table.has_fixed() && fixed_of(table, image) != record.addr() + table.shape.fixed {
        release(core, fixed_of(table, image), table.shape.fixed_bytes);
    }
    if !is_inline(table, record, image) {
        release(core, image, table.shape.image_bytes());
    }
}

/// The tails that an image's row refers to.
pub(crate) fn tails_of(table: &Table, image: usize) -> Vec<usize> {
    if table.has_tails() { tails(table, image).collect() } else { Vec::new() }
}

/// Frees those of `candidates` that the row of `image`, if there is one, does not refer to, for who has them alone.
pub(crate) fn release_tails(core: &mut Core, table: &Table, candidates: &[usize], image: Option<usize>) {
    for &tail in candidates {
        if !image.is_some_and(|image| tails(table, image).any(|kept| kept == tail)) {
            release(core, tail, tail_bytes(tail));
        }
    }
}

/// Frees the private images of an attempt that are not installed, and the parts no installed image refers to.
/// `installed`: the transaction committed and the images of `writes.entries()` belong to their records now.
pub(crate) fn free_private<O: Origin>(core: &mut Core, writes: &mut WriteSet<O>, installed: bool) {
    let free = |core: &mut Core, write: Write<O>| {
        let table = write.table();
        if write.image != 0 && !is_inline(table, write.record, write.image) {
            release(core, write.image, table.shape.image_bytes());
        }
    };
    if !writes.parts.is_empty() {
        let WriteSet { entries, parts, kept, .. } = writes;
        if installed {
            for write in entries.iter().filter(|write| write.image != 0) {
                kept.push(fixed_of(write.table(), write.image));
                if write.table().has_tails() {
                    tails(write.table(), write.image).for_each(|tail| kept.push(tail));
                }
            }
            kept.sort_unstable();
            parts.retain(|part| kept.binary_search(&part.address).is_err());
            kept.clear();
        }
        for part in parts.iter() {
            release(core, part.address, part.bytes);
        }
        parts.truncate(0);
    }
    if !installed {
        for entry in 0..writes.entries().len() {
            free(core, writes.entries()[entry]);
        }
    }
    for write in writes.superseded() {
        free(core, write);
    }
}

/// Retires a record that was unlinked, with its key tail. `epoch` deleted its row.
pub(crate) fn retire_record(core: &mut Core, table: &Table, record: RecordPtr, epoch: Epoch) {
    let (tail, bytes) = key_tail(table, record);
    retire(core, tail, bytes, epoch);
    retire(core, record.addr(), table.shape.record, epoch);
}

/// Frees a sealed record that was never linked.
pub(crate) fn unseal(core: &mut Core, table: &Table, record: RecordPtr) {
    let (tail, bytes) = key_tail(table, record);
    if tail != 0 {
        release(core, tail, bytes);
    }
}
