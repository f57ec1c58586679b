//! Making, copying and freeing records and their parts.
//!
//! A row version is a row and the header of the version behind it. Most accesses use the row alone. Inside a record it
//! begins in the cache line of the record's own header.
//!
//! Ownership: a record owns the row versions and the fixed part inside it. Any other row version, fixed part or
//! out-of-line value belongs to the version that points to it. It passes to the next version if the update did not
//! change it.

use std::cell::Cell;
use std::ptr::NonNull;

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{Epoch, Tid};
use seriatim_catalog::{Key, KeyClass};
use seriatim_htm::Access;
use seriatim_memory::{CountedVec, OutOfMemory, allocated_bytes};
use seriatim_store::{RecordPtr, out_of_line_bytes, write_key};
use seriatim_txn::{Core, OpError, ROW_IN_PLACE_MAX, Reason, RowPtr, Staged, Table};

use super::origin::Origin;
use super::record_header::{self, TidWord};
use super::writes::{Link, RowPart, RowRoom, Write, WriteSet};

/// Bytes before an out-of-line value's text: its length.
const OUT_OF_LINE_HEADER: usize = 8;

/// The memory limit as an error.
pub fn full(_: OutOfMemory) -> OpError {
    OpError::execute(Reason::OutOfMemory)
}

/// The row of a row version.
#[inline]
pub fn row_of(row_version: usize) -> RowPtr {
    // SAFETY: the address of a row version is never zero where a row is requested; callers checked.
    unsafe { NonNull::new_unchecked(row_version as *mut u8) }
}

/// The row version of a row.
#[inline]
pub fn row_version_of(row: RowPtr) -> usize {
    row.as_ptr() as usize
}

/// The address of a row's fixed part; zero where the table has none.
#[inline]
fn fixed_of(table: &Table, row_version: usize) -> usize {
    if table.has_fixed() {
        // SAFETY: the first word of a row with a fixed part is that part's address (rule of catalog's layout).
        unsafe { row_of(row_version).cast::<u64>().read() as usize }
    } else {
        0
    }
}

/// A record for a new row, not linked anywhere.
pub fn stage(core: &mut Core, table: &Table) -> Result<Staged, OpError> {
    let record_layout = &table.record_layout;
    let memory = core.local.allocate(&mut core.outside, record_layout.record).map_err(full)?;
    // SAFETY: the allocation is `record_layout.record` bytes, and private.
    Ok(unsafe { restage(table, RecordPtr::from_raw(memory)) })
}

/// Zeroes the row and fixed part inside a record, for a new row.
///
/// # Safety
/// No other thread uses them.
pub unsafe fn restage(table: &Table, record: RecordPtr) -> Staged {
    let record_layout = &table.record_layout;
    // SAFETY: a record is `record_layout.record` bytes, which contain row and fixed part.
    unsafe {
        let memory = NonNull::new_unchecked(record.as_ptr());
        let row = memory.add(record_layout.row_version);
        let fixed = memory.add(record_layout.fixed);
        row.write_bytes(0, record_layout.fixed - record_layout.row_version + record_layout.fixed_bytes);
        if table.has_fixed() {
            row.cast::<u64>().write(fixed.as_ptr() as u64);
        }
        Staged { record, row, fixed }
    }
}

/// Gives a staged record back. Its out-of-line values are parts of the attempt and freed with it.
pub fn discard(core: &mut Core, table: &Table, staged: Staged) {
    release(core, staged.record.addr(), table.record_layout.record);
}

/// Frees memory that no other thread can reach.
pub fn release(core: &mut Core, address: usize, bytes: usize) {
    if let Some(memory) = NonNull::new(address as *mut u8).filter(|_| !core.leaks()) {
        // SAFETY: the caller owns the memory and says how much it is.
        unsafe { core.local.release(memory, bytes) }
    }
}

/// Frees memory of a version that a commit of `epoch` replaced or deleted, a grace period from now (promise
/// e): readers may still hold it.
pub fn retire(core: &mut Core, address: usize, bytes: usize, epoch: Epoch) {
    if let Some(memory) = NonNull::new(address as *mut u8).filter(|_| !core.leaks()) {
        // SAFETY: the caller unlinked the memory and says how much it is.
        unsafe { core.local.retire_version(memory, bytes, epoch) }
    }
}

/// Writes key words and header of a staged record, so that it can be linked. Further head words are the protocol's.
#[inline]
pub fn set_key(core: &mut Core, table: &Table, record: RecordPtr, key: Key<'_>) -> Result<(), OpError> {
    let out_of_line = match out_of_line_bytes(key) {
        0 => None,
        bytes => Some(core.local.allocate(&mut core.outside, bytes).map_err(full)?),
    };
    // SAFETY: the record is staged: large enough and private; so is the out-of-line value.
    unsafe { write_key(record, key, out_of_line) };
    // ORDERING: linking publishes the record with release.
    record_header::tid_word(&table.record_layout, record).store(TidWord::PLACEHOLDER.0, Ordering::Relaxed);
    record_header::row_version(&table.record_layout, record).store(0, Ordering::Relaxed);
    Ok(())
}

/// The address and size of the out-of-line block that holds the record's key; zeros for keys of fixed width.
fn out_of_line_key(table: &Table, record: RecordPtr) -> (usize, usize) {
    if table.class != KeyClass::Bytes {
        return (0, 0);
    }
    // SAFETY: key words of a record whose key is set never change; the second of a Bytes key is its out-of-line value.
    let out_of_line = unsafe { record.as_ptr().add(8).cast::<u64>().read() as usize };
    (out_of_line, out_of_line_bytes_at(out_of_line))
}

/// An out-of-line block for `bytes`; zero for none.
pub fn out_of_line(core: &mut Core, bytes: &[u8]) -> Result<u64, OutOfMemory> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let out_of_line = out_of_line_room(core, bytes.len())?;
    // SAFETY: the block has room for the bytes after its length.
    unsafe { ((out_of_line as *mut u8).add(OUT_OF_LINE_HEADER)).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(out_of_line)
}

/// An out-of-line block for this many bytes, which are not written yet.
pub fn out_of_line_room(core: &mut Core, bytes: usize) -> Result<u64, OutOfMemory> {
    let memory = core.local.allocate(&mut core.outside, OUT_OF_LINE_HEADER + bytes)?;
    // SAFETY: the allocation holds the length.
    unsafe { memory.cast::<u64>().write(bytes as u64) };
    Ok(memory.expose_provenance().get() as u64)
}

/// Bytes of an out-of-line block; zero for none.
pub fn out_of_line_bytes_at(out_of_line: usize) -> usize {
    if out_of_line == 0 {
        return 0;
    }
    // SAFETY: an out-of-line value's first word is its length.
    OUT_OF_LINE_HEADER + unsafe { (out_of_line as *const u64).read() as usize }
}

/// Copies words, two at a time: what is copied so is too short for a call to pay.
///
/// # Safety
/// Both are `bytes` bytes of whole words. The source does not change; the destination is private.
#[inline(always)]
pub unsafe fn copy_words(from: *const u8, to: *mut u8, bytes: usize) {
    debug_assert!(bytes.is_multiple_of(8));
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at + 16 <= bytes {
            crate::step(Touch::Copy, to.add(at).cast::<AtomicU64>());
            to.add(at).cast::<[u64; 2]>().write_unaligned(from.add(at).cast::<[u64; 2]>().read_unaligned());
            at += 16;
        }
        if at < bytes {
            crate::step(Touch::Copy, to.add(at).cast::<AtomicU64>());
            to.add(at).cast::<u64>().write_unaligned(from.add(at).cast::<u64>().read_unaligned());
        }
    }
}

/// A private copy of a row, in a row version of its own.
#[inline]
pub fn copy_row(core: &mut Core, table: &Table, row: RowPtr) -> Result<usize, OpError> {
    let record_layout = &table.record_layout;
    let row_version = core.local.allocate(&mut core.outside, record_layout.row_version_bytes()).map_err(full)?;
    // SAFETY: both are `record_layout.row` bytes; the source is a row, immutable while we are online.
    unsafe { row_version.copy_from_nonoverlapping(row, record_layout.row) };
    Ok(row_version.as_ptr() as usize)
}

/// Moves a staged row out of its record, into a row version and fixed part of their own, and gives the record back.
pub fn detach(
    core: &mut Core,
    table: &Table,
    staged: Staged,
    parts: &mut CountedVec<RowPart>,
) -> Result<usize, OpError> {
    let copied = copy_row(core, table, staged.row).and_then(|row_version| {
        if table.has_fixed() {
            let bytes = table.record_layout.fixed_bytes;
            let fixed = match core.local.allocate(&mut core.outside, bytes) {
                Ok(fixed) => fixed,
                Err(error) => {
                    release(core, row_version, table.record_layout.row_version_bytes());
                    return Err(full(error));
                }
            };
            // SAFETY: both are `bytes` long; the first word of the row is the fixed part's address.
            unsafe {
                fixed.copy_from_nonoverlapping(staged.fixed, bytes);
                row_of(row_version).cast::<u64>().write(fixed.as_ptr() as u64);
            }
            parts.push(RowPart { address: fixed.as_ptr() as usize, bytes });
        }
        Ok(row_version)
    });
    discard(core, table, staged);
    copied
}

/// Bytes that a record takes with its key, as memory counts them; versions apart.
pub fn record_bytes(table: &Table, record: RecordPtr) -> i64 {
    let out_of_line = match out_of_line_key(table, record) {
        (0, _) => 0,
        (_, bytes) => allocated_bytes(bytes),
    };
    (table.record_layout.record_allocated + out_of_line) as i64
}

/// Bytes that the version `row_version` (a row) takes beside the record, as memory counts them.
#[inline]
fn version_bytes(table: &Table, record: RecordPtr, row_version: usize) -> i64 {
    let own = if is_inline(table, record, row_version) { 0 } else { table.record_layout.row_version_allocated as i64 };
    let has_parts = table.has_out_of_line() || has_own_fixed(table, record, row_version);
    if has_parts { own + parts_bytes(table, record, row_version) } else { own }
}

/// Whether the row has a fixed part that is not the record's.
#[inline]
fn has_own_fixed(table: &Table, record: RecordPtr, row_version: usize) -> bool {
    table.has_fixed() && fixed_of(table, row_version) != record.addr() + table.record_layout.fixed
}

/// Whether two row versions own the same memory beside their rows: the fixed part, as after every update, and
/// the same out-of-line values.
#[inline]
fn share_parts(table: &Table, one: usize, other: usize) -> bool {
    let out_of_line = |row_version, &at: &u32| out_of_line_at(row_of(row_version).as_ptr() as usize, at);
    fixed_of(table, one) == fixed_of(table, other)
        && table.layout.row_out_of_line.iter().all(|at| out_of_line(one, at) == out_of_line(other, at))
}

/// As [`version_bytes`], for the parts outside of the row version.
#[inline(never)]
fn parts_bytes(table: &Table, record: RecordPtr, row_version: usize) -> i64 {
    let texts: usize = if table.has_out_of_line() {
        out_of_line_values(table, row_version)
            .map(|out_of_line| allocated_bytes(out_of_line_bytes_at(out_of_line)))
            .sum()
    } else {
        0
    };
    let has_own_fixed = has_own_fixed(table, record, row_version);
    (texts + if has_own_fixed { allocated_bytes(table.record_layout.fixed_bytes) } else { 0 }) as i64
}

/// Whether a commit of `write` leaves nothing to be counted or retired. The row moved from place to place in its
/// record, and owns nothing else. The row version of `write` is in the worker's own memory.
#[inline(always)]
pub fn is_moved_within<O: Origin>(write: &Write<O>) -> bool {
    let table = write.table();
    // A row version that was copied has the fixed part of the one before.
    !table.has_out_of_line() && is_inline(table, write.record, write.before)
}

/// Counts and retires what a commit of `epoch` replaced by `write`: the row `before`, as of `row_epoch`.
#[inline(always)]
pub fn replace<O: Origin>(core: &mut Core, write: &Write<O>, before: usize, (row_epoch, epoch): (Epoch, Epoch)) {
    let (table, record, after) = (write.table(), write.record, write.row_version);
    if after == 0 || !share_parts(table, before, after) {
        count(core, write, before);
        return retire_version(core, table, record, (before, after), (row_epoch, epoch));
    }
    // Only the row version itself is another.
    let (was_inside, is_inside) = (is_inline(table, record, before), is_inline(table, record, after));
    if was_inside != is_inside {
        let bytes = table.record_layout.row_version_allocated as i64;
        core.counts.add(table.id, 0, if is_inside { -bytes } else { bytes });
    }
    if !was_inside {
        retire(core, before, table.record_layout.row_version_bytes(), row_epoch);
    }
}

/// Counts what a commit of `write` changes in its table, before anything is retired. `before`: the row it
/// replaced; zero for none.
#[inline(always)]
pub fn count<O: Origin>(core: &mut Core, write: &Write<O>, before: usize) {
    let (table, record) = (write.table(), write.record);
    // A row in a record of its own, which owns no memory beside its own.
    if write.link == Link::Own && table.is_compact() && is_inline(table, record, write.row_version) {
        return core.counts.add(table.id, 1, table.record_layout.record_allocated as i64);
    }
    count_parts(core, write, before);
}

/// As [`count`], of any write.
#[inline(never)]
fn count_parts<O: Origin>(core: &mut Core, write: &Write<O>, before: usize) {
    let (table, record, after, expected) = (write.table(), write.record, write.row_version, write.expected);
    let mut bytes = 0;
    if after != 0 {
        bytes += version_bytes(table, record, after);
    }
    if before != 0 {
        bytes -= version_bytes(table, record, before);
    }
    if expected.tid() == Tid::ZERO {
        bytes += record_bytes(table, record);
    }
    let rows = rows_in(table, after) - rows_in(table, before);
    if (rows, bytes) != (0, 0) {
        core.counts.add(table.id, rows, bytes);
    }
}

/// The number of rows in a row version; zero for an address of zero.
#[inline]
pub fn rows_in(table: &Table, row_version: usize) -> i64 {
    // SAFETY: row versions of the caller's hold rows of their table, which do not change.
    if row_version == 0 { 0 } else { unsafe { table.rows_in(row_of(row_version)) as i64 } }
}

/// Runs a change of the structure of a table's index, and counts the bytes that it takes or gives back.
#[inline(always)]
pub fn counting<R>(core: &mut Core, table: &Table, change: impl FnOnce(&mut Core) -> R) -> R {
    let before = core.local.live_bytes();
    let result = change(core);
    let bytes = core.local.live_bytes() - before;
    if bytes != 0 {
        core.counts.add(table.id, 0, bytes);
    }
    result
}

/// Whether `row_version` is inside the record.
#[inline]
pub fn is_inline(table: &Table, record: RecordPtr, row_version: usize) -> bool {
    row_version.wrapping_sub(record.addr()) < table.record_layout.record
}

/// The offset of the place inside the record where a commit may put the version that replaces `current`, a row; zero
/// if there is none.
///
/// Whether the place may be overwritten. The commit that made `current`, or an earlier one, replaced its contents. Or
/// they are the row of an insertion that was too late for that commit, and whose attempt has been online since before
/// it. So it may be overwritten if `made`, the epoch of that commit, is before the horizon
/// ([`Local::horizon`](seriatim_memory::Local::horizon)). This stays true until the record has another TID. Not for a
/// record without a row: there an insertion of this attempt may be in its place, and TID zero is before any horizon.
#[inline]
pub fn free_place(table: &Table, record: RecordPtr, current: usize, made: Epoch, horizon: Epoch) -> u32 {
    let record_layout = &table.record_layout;
    if made >= horizon || record_layout.row > ROW_IN_PLACE_MAX {
        return 0;
    }
    let is_first = record.addr() + record_layout.row_version == current;
    (if is_first { record_layout.second } else { record_layout.row_version }) as u32
}

/// Copies the private row version of a write, with its header, to its place in the record, if it has one. Returns the
/// address to be published. The caller has the record's lock, whatever that is under its protocol, or is in its region.
#[inline(always)]
pub fn put_in_place<A: Access, O: Origin>(access: &mut A, write: &Write<O>) -> usize {
    match write.place() {
        Some(place) if write.row_version != 0 => {
            copy_to_place(access, write.table().record_layout.row_version_bytes(), write.row_version, place);
            place
        }
        _ => write.row_version,
    }
}

#[inline(always)]
fn copy_to_place<A: Access>(access: &mut A, bytes: usize, row_version: usize, place: usize) {
    if !A::REGION {
        // SAFETY: both are this many bytes of whole words. The source is private; no thread reads the destination until
        // it is published.
        return unsafe { copy_words(row_version as *const u8, place as *mut u8, bytes) };
    }
    for at in (0..bytes).step_by(8) {
        // SAFETY: as above.
        let (word, to) = unsafe { (((row_version + at) as *const u64).read(), &*((place + at) as *const AtomicU64)) };
        crate::step(Touch::Copy, to);
        access.store(to, word);
    }
}

/// Out-of-line addresses that the row and its fixed part hold.
fn out_of_line_values(table: &Table, row_version: usize) -> impl Iterator<Item = usize> {
    let row = row_of(row_version).as_ptr() as usize;
    out_of_line_in(row, &table.layout.row_out_of_line)
        .chain(out_of_line_in(fixed_of(table, row_version), &table.layout.fixed_out_of_line))
}

/// Out-of-line addresses at these offsets of the row or fixed part at `base`.
fn out_of_line_in(base: usize, offsets: &[u32]) -> impl Iterator<Item = usize> {
    offsets.iter().map(move |&at| out_of_line_at(base, at)).filter(|&out_of_line| out_of_line != 0)
}

/// The out-of-line address at this offset of the row or fixed part at `base`; zero for none.
#[inline]
fn out_of_line_at(base: usize, at: u32) -> usize {
    // SAFETY: layout offsets name words of the part that hold out-of-line addresses.
    unsafe { ((base + at as usize) as *const u64).read_unaligned() as usize }
}

/// Retires what the version `old` (a row) owned and its successor `new` (zero: none), of `epoch`, does not;
/// the row version itself as of `row_epoch`.
#[inline(never)]
fn retire_version(
    core: &mut Core,
    table: &Table,
    record: RecordPtr,
    (old, new): (usize, usize),
    (row_epoch, epoch): (Epoch, Epoch),
) {
    if table.has_out_of_line() || table.has_fixed() {
        retire_parts(core, table, record, old, new, epoch);
    }
    if !is_inline(table, record, old) {
        retire(core, old, table.record_layout.row_version_bytes(), row_epoch);
    }
}

/// As [`retire_version`], for the parts outside of the row version.
#[inline(never)]
fn retire_parts(core: &mut Core, table: &Table, record: RecordPtr, old: usize, new: usize, epoch: Epoch) {
    let old_fixed = fixed_of(table, old);
    if table.has_out_of_line() {
        let kept = |out_of_line: usize| new != 0 && out_of_line_values(table, new).any(|kept| kept == out_of_line);
        for out_of_line in out_of_line_values(table, old).filter(|&out_of_line| !kept(out_of_line)) {
            retire(core, out_of_line, out_of_line_bytes_at(out_of_line), epoch);
        }
    }
    if has_own_fixed(table, record, old) {
        let new_fixed = if new == 0 { 0 } else { fixed_of(table, new) };
        if old_fixed != new_fixed {
            retire(core, old_fixed, table.record_layout.fixed_bytes, epoch);
        }
    }
}

/// Frees at once what the version `row_version` (a row) owns beside the record, for an owner that has the record alone.
pub fn release_version(core: &mut Core, table: &Table, record: RecordPtr, row_version: usize) {
    if table.has_out_of_line() {
        for out_of_line in out_of_line_values(table, row_version) {
            release(core, out_of_line, out_of_line_bytes_at(out_of_line));
        }
    }
    if has_own_fixed(table, record, row_version) {
        release(core, fixed_of(table, row_version), table.record_layout.fixed_bytes);
    }
    if !is_inline(table, record, row_version) {
        release(core, row_version, table.record_layout.row_version_bytes());
    }
}

/// The out-of-line values that a row version's row refers to.
pub fn out_of_line_of(table: &Table, row_version: usize) -> Vec<usize> {
    if table.has_out_of_line() { out_of_line_values(table, row_version).collect() } else { Vec::new() }
}

/// Frees those of `candidates` that the row of `row_version`, if there is one, does not refer to, for an
/// owner that has them alone.
pub fn release_out_of_line(core: &mut Core, table: &Table, candidates: &[usize], row_version: Option<usize>) {
    for &out_of_line in candidates {
        if !row_version
            .is_some_and(|row_version| out_of_line_values(table, row_version).any(|kept| kept == out_of_line))
        {
            release(core, out_of_line, out_of_line_bytes_at(out_of_line));
        }
    }
}

/// Frees the private row versions of an attempt that are not installed, and the parts no installed row version refers
/// to. `installed`: the transaction committed and the row versions of `writes.entries()` belong to their records now.
#[inline(always)]
pub fn free_private<O: Origin>(core: &mut Core, writes: &mut WriteSet<O>, installed: bool) {
    if !installed || writes.has_more() {
        free_each(core, writes, installed);
    }
}

#[inline(never)]
fn free_each<O: Origin>(core: &mut Core, writes: &mut WriteSet<O>, installed: bool) {
    let free = |core: &mut Core, room: &RowRoom, write: Write<O>| {
        let (table, row_version) = (write.table(), write.row_version);
        if row_version != 0 && !is_inline(table, write.record, row_version) && !room.has(row_version) {
            release(core, row_version, table.record_layout.row_version_bytes());
        }
    };
    if !writes.parts.is_empty() {
        if installed {
            forget_installed_parts(writes);
        }
        for part in writes.parts.iter() {
            release(core, part.address, part.bytes);
        }
        writes.parts.truncate(0);
    }
    if !installed {
        for entry in 0..writes.entries().len() {
            free(core, &writes.room, writes.entries()[entry]);
        }
    }
    for write in writes.superseded() {
        free(core, &writes.room, write);
    }
}

/// Parts in a row that belong to row versions of one write: as many as a run grows in a transaction.
const PARTS_AHEAD: usize = 8;

/// The parts to which installed row versions refer are not the attempt's any more: their addresses become zero. Most
/// are referred to in the order in which they were made.
fn forget_installed_parts<O: Origin>(writes: &mut WriteSet<O>) {
    let WriteSet { entries, parts, kept, .. } = writes;
    let (mut next, left) = (0, Cell::new(parts.len()));
    let mut forget = |address: usize| {
        let ahead = parts[next..].iter_mut().take(PARTS_AHEAD).enumerate();
        match ahead.into_iter().find(|(_, part)| part.address == address) {
            Some((at, part)) => {
                part.address = 0;
                next += at + 1;
                left.set(left.get() - 1);
            }
            None => kept.push(address),
        }
    };
    for write in entries.iter().filter(|write| write.row_version != 0).take_while(|_| left.get() != 0) {
        let table = write.table();
        // One inside the record is no part.
        if has_own_fixed(table, write.record, write.row_version) {
            forget(fixed_of(table, write.row_version));
        }
        if table.has_out_of_line() {
            out_of_line_values(table, write.row_version).for_each(&mut forget);
        }
    }
    if !kept.is_empty() {
        kept.sort_unstable();
        parts.retain(|part| kept.binary_search(&part.address).is_err());
        kept.clear();
    }
}

/// Frees a record that was never linked, with its key. The parts that its row owns beside it belong to the attempt.
pub fn release_unlinked(core: &mut Core, table: &Table, record: RecordPtr) {
    clear_key(core, table, record);
    release(core, record.addr(), table.record_layout.record);
}

/// Retires a record that was unlinked, with its out-of-line key. `epoch` deleted its row.
pub fn retire_record(core: &mut Core, table: &Table, record: RecordPtr, epoch: Epoch) {
    let (out_of_line, bytes) = out_of_line_key(table, record);
    retire(core, out_of_line, bytes, epoch);
    retire(core, record.addr(), table.record_layout.record, epoch);
}

/// Frees a record whose key is set that was never linked.
pub fn clear_key(core: &mut Core, table: &Table, record: RecordPtr) {
    let (out_of_line, bytes) = out_of_line_key(table, record);
    if out_of_line != 0 {
        release(core, out_of_line, bytes);
    }
}
