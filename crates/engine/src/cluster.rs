//! Clustered tables: rows that share the first columns of their keys are stored together in runs. A run is one
//! record of an ordinary table, so protocols, log and recovery see only records. Decision record 13 gives the
//! reasons and says what conflicts.
//!
//! Invariants, at the end of each operation and so in each committed state:
//! - The rows of a run share a prefix and are in key order. Their keys are at least the run's own key, and less
//!   than that of the next run of the prefix. A run that is not the first of its prefix has at least one row.
//! - If a prefix has rows, it has a *first* run, whose key is the smallest that begins with the prefix. If the
//!   prefix has more runs, the first run is marked as followed. So one lookup finds a key, or, in a prefix of
//!   several runs, a search for the greatest run whose key is no greater.
//!
//! A transaction that inserts or deletes rows, or splits a run, writes the run in which other transactions found, or
//! missed, a row. So the only phantoms left are those of prefixes without a run, and these are phantoms of records.
//!
//! A transaction copies a run before its first change, and changes the copy in place while no reader can
//! notice: see [`OpenRun`].

use std::cell::Cell;
use std::hint::cold_path;
use std::ops::{Bound, Sub};

use seriatim_base::size::Size;
use seriatim_catalog::{ColumnSet, ColumnUse, Key, KeyClass, KeyCodec, RowRef, RowWord, Run, TableDef};
use seriatim_store::{Direction, read_key};
use seriatim_txn::{Cause, Inserted, OnExists, Phase, Reason, RowPtr};

use crate::error::Abort;
use crate::operations::{operate, read};
use crate::table::TableSet;
use crate::tx::{TxCore, insert_staged};

/// Most bytes of a run's rows, unless they are fewer than [`ROWS_MIN`] rows.
const BYTES_MAX: Size = Size::new(2048, if cfg!(any(test, feature = "test-support")) { 256 } else { 2048 });
/// Rows for which a run always has room.
const ROWS_MIN: usize = 3;
/// Rows for which a new run has room, unless it is known how many come; a run that grows has room for a multiple.
const ROWS_STEP: usize = 4;

/// How the rows of a table are clustered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    /// Bytes of a row; zero if the table is not clustered.
    row_bytes: u32,
    /// Rows of a run at most.
    rows_max: u16,
    /// A mask of the key bits behind the shared columns: those that rows of one prefix do not share.
    suffix: u128,
    /// The number of shared columns.
    columns: u8,
    class: KeyClass,
    /// Where a row has those bits, if they are those of one number.
    word: Option<RowWord>,
}

/// The bits of a key. Clustered tables have keys of fixed width.
#[inline(always)]
pub(crate) fn bits(key: Key<'_>) -> u128 {
    match key {
        Key::Word8(word) => word.into(),
        Key::Word16(words) => words,
        Key::Bytes(_) => unreachable!("declarations are validated"),
    }
}

impl Cluster {
    /// As the table is declared. Its rows have this many bytes.
    pub(crate) fn new(definition: &TableDef, codec: &KeyCodec, class: KeyClass, row_bytes: u32) -> Cluster {
        if !definition.is_clustered() {
            return Cluster { row_bytes: 0, rows_max: 0, suffix: 0, columns: 0, class, word: None };
        }
        let suffix = &definition.key[definition.cluster..];
        let bytes = |column: usize| definition.columns[column].ty.key_bytes().unwrap_or(0);
        let suffix_bytes: u32 = suffix.iter().map(|part| bytes(part.column.index())).sum();
        let rows_max = (BYTES_MAX.get() / row_bytes as usize).max(ROWS_MIN) as u16;
        let (suffix, columns) = ((1 << (8 * suffix_bytes)) - 1, definition.cluster as u8);
        Cluster { row_bytes, rows_max, suffix, columns, class, word: codec.rest_word(definition.cluster) }
    }

    /// Whether rows lie in runs.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.row_bytes != 0
    }

    #[inline(always)]
    fn row_bytes(&self) -> usize {
        self.row_bytes as usize
    }

    /// The key of the first run of a key's prefix.
    #[inline(always)]
    fn first(&self, bits: u128) -> u128 {
        bits & !self.suffix
    }

    /// The key with these bits.
    #[inline(always)]
    pub(crate) fn key(&self, bits: u128) -> Key<'static> {
        match self.class {
            KeyClass::Word8 => Key::Word8(bits as u64),
            _ => Key::Word16(bits),
        }
    }

    /// The row at a position of a run.
    #[inline(always)]
    fn row(&self, run: Run, at: usize) -> *mut u8 {
        run.row(at, self.row_bytes())
    }
}

impl TableSet {
    /// The key of the row at a position of a run of this table.
    #[inline(always)]
    fn key_at(&self, run: Run, at: usize) -> u128 {
        // SAFETY: a row of this table; the callers' runs are readable and have so many rows.
        let row = unsafe { RowRef::from_raw(self.cluster.row(run, at)) };
        self.primary.codec.encode_row(row, bits)
    }

    /// The bits of that key that rows of one prefix do not share.
    #[inline(always)]
    fn suffix_at(&self, run: Run, at: usize) -> u128 {
        let cluster = &*self.cluster;
        // SAFETY: as in `key_at`.
        let row = unsafe { RowRef::from_raw(cluster.row(run, at)) };
        self.primary.codec.encode_rest(row, cluster.columns.into())
    }

    /// The position of the row with this key in the run of its prefix, or the position where it would be inserted.
    #[inline]
    fn search(&self, run: Run, key: u128) -> Result<usize, usize> {
        let cluster = &*self.cluster;
        let key = key & cluster.suffix;
        match cluster.word {
            // SAFETY: as in `key_at`.
            Some(word) => search(run.len(), key as u64, |at| unsafe { word.load(cluster.row(run, at)) }),
            None => search(run.len(), key, |at| self.suffix_at(run, at)),
        }
    }

    /// Gives each row of a record to `see`, with the row's key.
    pub(crate) fn each_row<E>(
        &self,
        key: Key<'_>,
        row: RowPtr,
        mut see: impl FnMut(Key<'_>, RowPtr) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.is_clustered() {
            return see(key, row);
        }
        // SAFETY: the callers' rows are of the table, and readable during the call.
        let run = unsafe { Run::of(row.as_ptr()) };
        let first = self.cluster.first(bits(key));
        (0..run.len()).try_for_each(|at| {
            let key = self.cluster.key(first | self.suffix_at(run, at));
            RowPtr::new(self.cluster.row(run, at)).map_or(Ok(()), |row| see(key, row))
        })
    }
}

/// The position of a key among `len` ascending keys, or where it would be inserted. Consecutive keys are found
/// in one step.
#[inline(always)]
fn search<K: Ord + Copy + Sub<Output = K> + TryInto<usize>>(
    len: usize,
    key: K,
    key_at: impl Fn(usize) -> K,
) -> Result<usize, usize> {
    let Some(last) = len.checked_sub(1) else { return Err(0) };
    let greatest = key_at(last);
    if key >= greatest {
        return if key == greatest { Ok(last) } else { Err(last + 1) };
    }
    // Its position if the keys from there to the last one are consecutive; it is at no higher position.
    let mut low = 0;
    let mut high = last;
    let mut probe = last.saturating_sub((greatest - key).try_into().unwrap_or(usize::MAX));
    while low < high {
        let there = key_at(probe);
        if there == key {
            return Ok(probe);
        }
        if there < key {
            low = probe + 1;
        } else {
            high = probe;
        }
        probe = low + (high - low) / 2;
    }
    Err(low)
}

/// The run that a transaction changed last: a private copy that it changes in place while that is possible.
///
/// A row that was given out must stay as it was read, and rows that a savepoint keeps must not change. So the
/// copy is
/// - forgotten when a savepoint is taken, when the transaction rolls back to one, and when the attempt begins;
/// - changed in place while none of its rows was given out since it was made; rows can be appended even
///   afterwards;
/// - replaced by a new copy otherwise. The transaction's row version of the record then refers to the new copy.
///   The old one stays readable until the transaction ends.
///
/// Each execution of an operation that may be repaired uses a copy of its own.
#[derive(Debug)]
pub(crate) struct OpenRun {
    /// The table; null if there is none.
    set: Cell<*const TableSet>,
    /// The key of the run.
    key: Cell<u128>,
    /// The address of the copy.
    address: Cell<u64>,
    /// The transaction's row version of the record, if it is known.
    row: Cell<Option<RowPtr>>,
    /// Whether the prefix has no other run.
    is_alone: Cell<bool>,
    /// Whether one of its rows was given out.
    is_lent: Cell<bool>,
    /// Rows for which there is room behind the last one, if the last change appended a row; zero otherwise.
    left: Cell<usize>,
    /// The key of the last row, where `left` is not zero.
    last: Cell<u128>,
    /// The row behind the one that was changed last, and the end of the rows: rows are often changed in their order.
    /// Equal if rows must not be changed in place without a look at the other fields.
    next: Cell<*mut u8>,
    end: Cell<*mut u8>,
    /// The first run that was prefetched last: consecutive rows of one prefix prefetch it once.
    fetched: Cell<(*const TableSet, u128)>,
    /// A table, and how many rows are going to be inserted into it: see [`TxCore::expect_rows`].
    expected: Cell<(*const TableSet, usize)>,
}

impl Default for OpenRun {
    fn default() -> OpenRun {
        OpenRun {
            set: Cell::new(std::ptr::null()),
            key: Cell::new(0),
            address: Cell::new(0),
            row: Cell::new(None),
            is_alone: Cell::new(false),
            is_lent: Cell::new(false),
            left: Cell::new(0),
            last: Cell::new(0),
            next: Cell::new(std::ptr::null_mut()),
            end: Cell::new(std::ptr::null_mut()),
            fetched: Cell::new((std::ptr::null(), 0)),
            expected: Cell::new((std::ptr::null(), 0)),
        }
    }
}

impl OpenRun {
    /// Later writes go to a new copy.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.set.set(std::ptr::null());
        self.fetched.set((std::ptr::null(), 0));
    }

    /// The room for a run of this table that has `rows` rows and gets another: for all that are expected, once.
    fn room_behind(&self, set: &TableSet, rows: usize) -> usize {
        let (of, expected) = self.expected.replace((std::ptr::null(), 0));
        let most = usize::from(set.cluster.rows_max);
        let more = if std::ptr::eq(of, set) { expected.clamp(1, most) } else { 1 };
        (rows + more).next_multiple_of(ROWS_STEP).min(most)
    }

    /// Whether this run is the open one.
    #[inline(always)]
    fn is(&self, run: Run) -> bool {
        !self.set.get().is_null() && self.address.get() == run.address()
    }

    /// The open run, if the row with this key can be in no other run.
    #[inline(always)]
    fn covering(&self, set: &TableSet, key: u128) -> Option<Located> {
        if std::ptr::eq(self.set.get(), set) && self.key.get() == set.cluster.first(key) && self.is_alone.get() {
            // SAFETY: a run of the open transaction, which changes it only inside operations.
            return Some(Located { key: self.key.get(), run: unsafe { Run::at(self.address.get()) } });
        }
        None
    }

    /// Notes that a row of the run is given out.
    #[inline(always)]
    pub(crate) fn lend(&self, run: Run) {
        if self.address.get() == run.address() {
            self.is_lent.set(true);
            self.next.set(self.end.get());
        }
    }

    fn open(&self, set: &TableSet, key: u128, run: Run, row: Option<RowPtr>, is_alone: bool) {
        self.set.set(set);
        self.key.set(key);
        self.address.set(run.address());
        self.row.set(row);
        self.is_alone.set(is_alone);
        self.is_lent.set(false);
        self.left.set(0);
        self.next.set(self.end.get());
    }

    /// The rows from this position on are the next ones to be changed in place.
    #[inline]
    fn go_on(&self, cluster: &Cluster, run: Run, at: usize) {
        self.next.set(cluster.row(run, at));
        self.end.set(cluster.row(run, run.len()));
    }

    /// The next row, if it has this key and can be changed in place.
    #[inline(always)]
    fn next_row(&self, set: &TableSet, key: Key<'_>) -> Option<RowPtr> {
        let cluster = &*set.cluster;
        let (row, word) = (self.next.get(), cluster.word?);
        if !std::ptr::eq(self.set.get(), set) || row == self.end.get() {
            return None;
        }
        // SAFETY: a row of the open run, which is of this table.
        if self.key.get() | u128::from(unsafe { word.load(row) }) != bits(key) {
            return None;
        }
        self.next.set(row.wrapping_add(cluster.row_bytes()));
        RowPtr::new(row)
    }

    /// The run to which the last row was appended, if a row with this key comes behind that one and there is room.
    #[inline(always)]
    fn appending(&self, set: &TableSet, key: u128) -> Option<Run> {
        let is_next = self.left.get() > 0 && key > self.last.get();
        if is_next && let Some(Located { run, .. }) = self.covering(set, key) { Some(run) } else { None }
    }

    /// Notes that a row with this key was appended to the run, if that is the open one.
    #[inline(always)]
    fn appended(&self, cluster: &Cluster, run: Run, key: u128) {
        if self.is(run) {
            self.last.set(key);
            self.left.set(run.room(cluster.row_bytes()) - run.len());
        }
    }
}

/// A run, and the key of its record.
#[derive(Clone, Copy)]
struct Located {
    key: u128,
    run: Run,
}

/// How the rows of a run are going to change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Rows stay where they are; new ones may be appended.
    Append,
    /// Rows are changed or moved.
    Any,
}

/// Memory for the row to be written and for a copy of its old version: see [`TxCore::scratch`].
pub(crate) struct Scratch {
    words: Cell<Vec<u64>>,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { words: Cell::default() }
    }

    /// Two places for rows of this size. They do not move until longer rows are requested.
    fn rows(&self, row_bytes: usize) -> (*mut u8, *mut u8) {
        let words = row_bytes / 8;
        let mut room = self.words.take();
        if room.len() < 2 * words {
            cold_path();
            room.resize(2 * words, 0);
        }
        let row = room.as_mut_ptr();
        self.words.set(room);
        (row.cast(), row.wrapping_add(words).cast())
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scratch")
    }
}

impl TxCore {
    /// The first wave of a prefetch for the row with this key: of the first run of its prefix.
    #[inline(always)]
    pub(crate) fn prefetch_run(&self, set: &TableSet, key: Key<'_>) {
        if !set.is_clustered() {
            return;
        }
        let cluster = &*set.cluster;
        let first = cluster.first(bits(key));
        if self.open_run.fetched.replace((set, first)) != (std::ptr::from_ref(set), first) {
            self.worker().prefetch(&set.primary, cluster.key(first), ColumnSet::ALL);
        }
    }

    /// The body is going to insert about this many rows into a table. The run that has no room for the first of them
    /// gets room for all, and does not grow for each few of them.
    #[inline(always)]
    pub fn expect_rows(&self, set: &TableSet, rows: usize) {
        if set.is_clustered() {
            self.open_run.expected.set((set, rows));
        }
    }

    /// A zeroed place for a row to be inserted into a clustered table.
    pub(crate) fn scratch_row(&self, set: &TableSet) -> *mut u8 {
        let row = self.scratch.rows(set.cluster.row_bytes()).0;
        // SAFETY: the place is ours, and has room for a row.
        unsafe { row.write_bytes(0, set.cluster.row_bytes()) };
        row
    }

    /// The row at an encoded key of the table. The transaction reads these columns of it.
    ///
    /// # Errors
    /// A conflict.
    #[inline(always)]
    pub(crate) fn read_row(&self, set: &TableSet, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        if !set.is_plain() {
            self.admits(set)?;
            // It may be plain by now.
            if set.is_clustered() {
                return self.read_clustered(set, key);
            }
            if set.has_earlier() {
                return self.read_converted(set, key, columns);
            }
        }
        read(self, &set.primary, key, columns)
    }

    #[inline(never)]
    pub(crate) fn read_clustered(&self, set: &TableSet, key: Key<'_>) -> Result<Option<RowPtr>, Abort> {
        let key = bits(key);
        let Some(Located { run, .. }) = self.locate(set, key)? else { return Ok(None) };
        let Ok(at) = set.search(run, key) else { return Ok(None) };
        self.open_run.lend(run);
        Ok(RowPtr::new(set.cluster.row(run, at)))
    }

    /// The run that has the row with this key, or would have it.
    fn locate(&self, set: &TableSet, key: u128) -> Result<Option<Located>, Abort> {
        // A recorded history has a read for each operation.
        if self.log.is_none()
            && let Some(open) = self.open_run.covering(set, key)
        {
            self.count_operation(true)?;
            return Ok(Some(open));
        }
        let first = set.cluster.first(key);
        let Some(row) = read(self, &set.primary, set.cluster.key(first), ColumnSet::ALL)? else { return Ok(None) };
        // SAFETY: a row of the table, readable until the transaction ends; so is its run.
        let run = unsafe { Run::of(row.as_ptr()) };
        let is_here = || run.len() > 0 && key - first <= set.suffix_at(run, run.len() - 1);
        if !run.is_followed() || is_here() {
            return Ok(Some(Located { key: first, run }));
        }
        self.find_run(set, first, key, Direction::Backward)
    }

    /// The first run of a scan of the records with keys from `low` to `high`.
    #[cold]
    fn find_run(&self, set: &TableSet, low: u128, high: u128, direction: Direction) -> Result<Option<Located>, Abort> {
        let table = &*set.primary;
        let mut state = self.scans.borrow_mut().pop().unwrap_or_default();
        state.restart();
        state.transient = true;
        let bounds = (Bound::Included(set.cluster.key(low)), Bound::Included(set.cluster.key(high)));
        if table.index.scan(bounds.0, bounds.1, direction, &mut state.cursor).is_err() {
            return Err(Abort::stopped(Reason::Unordered));
        }
        let row = operate(self, |worker| worker.scan_next(table, &mut state, ColumnSet::ALL));
        // SAFETY: a row of the table, whose run is readable until the transaction ends.
        let run = row.map(|row| row.map(|row| unsafe { Run::of(row.as_ptr()) }));
        self.scans.borrow_mut().push(state);
        let (Some(run), Some(record)) = (run?, self.worker().seen().record) else { return Ok(None) };
        // SAFETY: key words of a linked record never change; the transaction is open.
        let key = unsafe { read_key(record, table.class) };
        self.note(table, key, ColumnSet::ALL);
        Ok(Some(Located { key: bits(key), run }))
    }

    /// The key of the first run that a scan from `low` must visit.
    pub(crate) fn first_run(&self, set: &TableSet, low: u128) -> Result<u128, Abort> {
        let first = set.cluster.first(low);
        if low == first {
            return Ok(first);
        }
        Ok(self.locate(set, low)?.map_or(first, |located| located.key))
    }

    /// The abort for records that were read one after the other and do not belong to one state.
    #[cold]
    fn torn(&self) -> Abort {
        match self.validate() {
            Err(cause) => self.stop(cause),
            Ok(()) => self.stop(Cause { phase: Phase::Execute, reason: Reason::RecordRemoved }),
        }
    }

    /// The transaction's own copy of a located run, with room for `rows` rows, to be changed as `change` says.
    fn own_run(&self, set: &TableSet, located: Located, rows: usize, change: Change) -> Result<Run, Abort> {
        let Located { key, run } = located;
        let (open, cluster) = (&self.open_run, &*set.cluster);
        open.left.set(0);
        open.next.set(open.end.get());
        if open.is(run) {
            let is_free = change == Change::Append || !open.is_lent.get();
            if is_free && run.room(cluster.row_bytes()) >= rows {
                return Ok(run);
            }
            if let Some(row) = open.row.get() {
                let copy = self.copy_run(cluster, run, rows)?;
                // SAFETY: the private row version of the record, which holds the address of its run.
                unsafe { row.cast::<u64>().write_unaligned(copy.address()) };
                open.address.set(copy.address());
                open.is_lent.set(false);
                return Ok(copy);
            }
        }
        #[cfg(feature = "canary")]
        if change == Change::Append
            && run.room(cluster.row_bytes()) >= rows
            && self.worker().core().injects(seriatim_txn::Fault::GrowSharedRuns)
        {
            return Ok(run);
        }
        let (table, encoded) = (&*set.primary, cluster.key(key));
        let updating = operate(self, |worker| worker.update(table, encoded, ColumnUse::ALL))?;
        self.note(table, encoded, ColumnSet::ALL);
        let Some(updating) = updating else { return Err(self.torn()) };
        self.wrote(table, encoded);
        let copy = self.copy_run(cluster, run, rows)?;
        // SAFETY: as above.
        unsafe { updating.after.cast::<u64>().write_unaligned(copy.address()) };
        let is_alone = key == cluster.first(key) && !run.is_followed();
        self.open_run.open(set, key, copy, Some(updating.after), is_alone);
        Ok(copy)
    }

    /// A copy of a run with room for at least `rows` rows, and for all that it has.
    fn copy_run(&self, cluster: &Cluster, run: Run, rows: usize) -> Result<Run, Abort> {
        let row_bytes = cluster.row_bytes();
        let copy = self.new_run(cluster, rows.max(run.len()))?;
        // SAFETY: the copy has room for all rows, and is ours; the run is readable.
        unsafe {
            copy.row(0, row_bytes).copy_from_nonoverlapping(run.row(0, row_bytes), run.len() * row_bytes);
            copy.set(run.len(), run.is_followed());
        }
        Ok(copy)
    }

    /// A run without rows, with room for `rows`.
    fn new_run(&self, cluster: &Cluster, rows: usize) -> Result<Run, Abort> {
        let bytes = Run::bytes(rows, cluster.row_bytes());
        let address = self.worker().out_of_line_room(bytes).map_err(|_| self.out_of_memory())?;
        // SAFETY: the block is ours, and has room for the run.
        unsafe {
            let run = Run::at(address);
            run.set(0, false);
            Ok(run)
        }
    }

    /// Makes room at a position of a private run, and writes a row there.
    ///
    /// # Safety
    /// The run is private and has room for another row, and none of its rows from `at` on was given out.
    unsafe fn write_row_at(cluster: &Cluster, run: Run, at: usize, row: *const u8) -> *mut u8 {
        let (row_bytes, rows) = (cluster.row_bytes(), run.len());
        let place = cluster.row(run, at);
        // SAFETY: the caller's promise.
        unsafe {
            if at < rows {
                place.add(row_bytes).copy_from(place, (rows - at) * row_bytes);
            }
            place.copy_from_nonoverlapping(row, row_bytes);
            run.set(rows + 1, run.is_followed());
        }
        place
    }

    /// Inserts a run as a new record. The record must not exist. Returns the transaction's row version of it, if known.
    fn insert_run(&self, set: &TableSet, key: u128, run: Run) -> Result<Option<RowPtr>, Abort> {
        let (table, encoded) = (&*set.primary, set.cluster.key(key));
        let staged = operate(self, |worker| worker.stage(table))?;
        // SAFETY: the staged row is ours, and holds the address of a run.
        unsafe { staged.row.cast::<u64>().write_unaligned(run.address()) };
        let inserted = insert_staged(self, table, encoded, staged, OnExists::Refuse)?;
        self.note(table, encoded, ColumnSet::ALL);
        if inserted != Inserted::New {
            return Err(self.torn());
        }
        self.wrote(table, encoded);
        Ok((self.worker().seen().record == Some(staged.record)).then_some(staged.row))
    }

    /// The zeroed place for a row that is appended to the open run, if its key is known to belong there. Only
    /// in tables without indexes. The caller writes the row, then calls [`TxCore::end_append`].
    #[inline(always)]
    pub(crate) fn append_place(&self, set: &TableSet, key: Key<'_>) -> Option<*mut u8> {
        if !set.has_runs_alone() {
            return None;
        }
        let run = self.open_run.appending(set, bits(key))?;
        let cluster = &*set.cluster;
        let place = cluster.row(run, run.len());
        // SAFETY: the run is ours and has room for a row more.
        unsafe { place.write_bytes(0, cluster.row_bytes()) };
        Some(place)
    }

    /// Appends the row that was written at [`TxCore::append_place`].
    #[inline(always)]
    pub(crate) fn end_append(&self, key: Key<'_>) {
        let open = &self.open_run;
        // SAFETY: as in `append_place`, where the run was open.
        unsafe {
            let run = Run::at(open.address.get());
            run.set(run.len() + 1, run.is_followed());
        }
        open.last.set(bits(key));
        open.left.set(open.left.get() - 1);
    }

    /// Inserts a row into a clustered table; its index entries follow.
    pub(crate) fn insert_clustered(
        &self,
        set: &TableSet,
        encoded: Key<'_>,
        row: *const u8,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        let (cluster, key) = (&*set.cluster, bits(encoded));
        let row_bytes = cluster.row_bytes();
        let Some(located) = self.locate(set, key)? else {
            let run = self.new_run(cluster, self.open_run.room_behind(set, 0))?;
            // SAFETY: the run is new, and has room.
            let after = unsafe { Self::write_row_at(cluster, run, 0, row) };
            let first = cluster.first(key);
            let row = self.insert_run(set, first, run)?;
            self.open_run.open(set, first, run, row, true);
            self.open_run.appended(cluster, run, key);
            return self.inserted(set, encoded, None, after);
        };
        match set.search(located.run, key) {
            Ok(_) if exists == OnExists::Refuse => Ok(false),
            Ok(at) => {
                let before = cluster.row(located.run, at);
                let before = self.keep_before(set, before);
                let run = self.own_run(set, located, located.run.len(), Change::Any)?;
                let after = cluster.row(run, at);
                // SAFETY: the run is ours, and none of its rows was given out.
                unsafe { after.copy_from_nonoverlapping(row, row_bytes) };
                self.inserted(set, encoded, RowPtr::new(before), after)
            }
            Err(at) => {
                let rows = located.run.len();
                if rows >= usize::from(cluster.rows_max) {
                    let after = self.split(set, located, at, row)?;
                    return self.inserted(set, encoded, None, after);
                }
                let change = if at == rows { Change::Append } else { Change::Any };
                let room = self.open_run.room_behind(set, rows);
                let run = self.own_run(set, located, room, change)?;
                // SAFETY: as above; rows that were given out stay where they are.
                let after = unsafe { Self::write_row_at(cluster, run, at, row) };
                if change == Change::Append {
                    self.open_run.appended(cluster, run, key);
                }
                self.inserted(set, encoded, None, after)
            }
        }
    }

    /// A copy of a row that is about to be changed in place, for callers that need its old version.
    fn keep_before(&self, set: &TableSet, row: *mut u8) -> *mut u8 {
        let row_bytes = set.cluster.row_bytes();
        let (_, copy) = self.scratch.rows(row_bytes);
        // SAFETY: both have room for a row; the one is ours, the other is readable.
        unsafe { copy.copy_from_nonoverlapping(row, row_bytes) };
        copy
    }

    fn inserted(&self, set: &TableSet, key: Key<'_>, before: Option<RowPtr>, after: *mut u8) -> Result<bool, Abort> {
        if set.is_indexed() {
            self.maintain(set, key, before, RowPtr::new(after), ColumnSet::ALL)?;
        }
        Ok(true)
    }

    /// Inserts a row at a position of a full run. A new run follows it. If the row is the last one, the new run
    /// has that row alone, so that ascending keys fill their runs. Otherwise it gets the greater half.
    #[cold]
    fn split(&self, set: &TableSet, located: Located, at: usize, row: *const u8) -> Result<*mut u8, Abort> {
        let (cluster, Located { key, run }) = (&*set.cluster, located);
        let (row_bytes, rows) = (cluster.row_bytes(), run.len());
        let kept = if at == rows { rows } else { rows / 2 };
        let goes_up = at > kept || kept == rows;
        let most = rows - kept + 1;
        let room = most.next_multiple_of(ROWS_STEP).min(most.max(cluster.rows_max.into()));
        let upper = self.new_run(cluster, room)?;
        let mut after = std::ptr::null_mut();
        // SAFETY: the new run is ours and has room for the rows, and one more; the other is readable.
        unsafe {
            cluster.row(upper, 0).copy_from_nonoverlapping(cluster.row(run, kept), (rows - kept) * row_bytes);
            upper.set(rows - kept, false);
            if goes_up {
                after = Self::write_row_at(cluster, upper, at - kept, row);
            }
        }
        let change = if kept == rows { Change::Append } else { Change::Any };
        let lower = self.own_run(set, located, rows, change)?;
        let is_followed = key == cluster.first(key) || lower.is_followed();
        // SAFETY: the run is ours, and rows that were given out stay where they are.
        unsafe {
            lower.set(kept, is_followed);
            if !goes_up {
                after = Self::write_row_at(cluster, lower, at, row);
            }
        }
        let first = cluster.first(key) | set.suffix_at(upper, 0);
        let row = self.insert_run(set, first, upper)?;
        match goes_up {
            true => self.open_run.open(set, first, upper, row, false),
            false => self.open_run.is_alone.set(false),
        }
        Ok(after)
    }

    /// The row of a clustered table that is to be updated: its old version, and the place to change.
    pub(crate) fn update_clustered(
        &self,
        set: &TableSet,
        key: Key<'_>,
    ) -> Result<Option<seriatim_txn::Updating>, Abort> {
        let key = bits(key);
        let Some(located) = self.locate(set, key)? else { return Ok(None) };
        let Ok(at) = set.search(located.run, key) else { return Ok(None) };
        let before = self.keep_before(set, set.cluster.row(located.run, at));
        let run = self.own_run(set, located, located.run.len(), Change::Any)?;
        if set.has_runs_alone() && self.open_run.is_alone.get() {
            self.open_run.go_on(&set.cluster, run, at + 1);
        }
        let rows = RowPtr::new(before).zip(RowPtr::new(set.cluster.row(run, at)));
        Ok(rows.map(|(before, after)| seriatim_txn::Updating { before, after }))
    }

    /// The row at a key of a clustered table without indexes, if it can be changed in place and its old version
    /// is not needed. The run must be the transaction's own copy, and the only one of its prefix.
    #[inline(always)]
    pub(crate) fn own_row(&self, set: &TableSet, key: Key<'_>) -> Option<RowPtr> {
        self.open_run.next_row(set, key.anew()).or_else(|| self.find_own_row(set, key))
    }

    /// As [`TxCore::own_row`], if it is not the next one.
    #[inline(never)]
    fn find_own_row(&self, set: &TableSet, key: Key<'_>) -> Option<RowPtr> {
        if !set.has_runs_alone() || self.open_run.is_lent.get() {
            return None;
        }
        let key = bits(key);
        let Located { run, .. } = self.open_run.covering(set, key)?;
        let at = set.search(run, key).ok()?;
        self.open_run.go_on(&set.cluster, run, at + 1);
        RowPtr::new(set.cluster.row(run, at))
    }

    /// Deletes the row at a key of a clustered table. Returns the deleted row, which is readable until the next
    /// operation.
    pub(crate) fn delete_clustered(&self, set: &TableSet, key: Key<'_>) -> Result<Option<RowPtr>, Abort> {
        let (cluster, key) = (&*set.cluster, bits(key));
        let Some(located) = self.locate(set, key)? else { return Ok(None) };
        let Ok(at) = set.search(located.run, key) else { return Ok(None) };
        let (row_bytes, rows) = (cluster.row_bytes(), located.run.len());
        let before = self.keep_before(set, cluster.row(located.run, at));
        let first = cluster.first(key);
        if rows == 1 && self.may_go(set, located)? {
            self.delete_run(set, located.key)?;
            if located.key != first {
                self.delete_first_if_last(set, first)?;
            }
        } else {
            let run = self.own_run(set, located, rows, Change::Any)?;
            let place = cluster.row(run, at);
            // SAFETY: the run is ours, and none of its rows was given out.
            unsafe {
                place.copy_from(place.add(row_bytes), (rows - at - 1) * row_bytes);
                run.set(rows - 1, run.is_followed());
            }
        }
        Ok(RowPtr::new(before))
    }

    /// Whether a run whose last row is deleted can be deleted: the first run stays while others follow.
    fn may_go(&self, set: &TableSet, located: Located) -> Result<bool, Abort> {
        let first = set.cluster.first(located.key);
        Ok(located.key != first || !located.run.is_followed() || !self.has_later_run(set, first)?)
    }

    /// Whether a run follows the first one of a prefix.
    #[cold]
    fn has_later_run(&self, set: &TableSet, first: u128) -> Result<bool, Abort> {
        let later = self.find_run(set, first + 1, first | set.cluster.suffix, Direction::Forward)?;
        Ok(later.is_some())
    }

    /// Deletes the first run of a prefix after a later run was deleted, if it has no rows and no run follows.
    #[cold]
    fn delete_first_if_last(&self, set: &TableSet, first: u128) -> Result<(), Abort> {
        let row = read(self, &set.primary, set.cluster.key(first), ColumnSet::ALL)?;
        // SAFETY: a row of the table, readable until the transaction ends; so is its run.
        let is_empty = row.is_some_and(|row| unsafe { Run::of(row.as_ptr()) }.len() == 0);
        if is_empty && !self.has_later_run(set, first)? {
            self.delete_run(set, first)?;
        }
        Ok(())
    }

    fn delete_run(&self, set: &TableSet, key: u128) -> Result<(), Abort> {
        let (table, encoded) = (&*set.primary, set.cluster.key(key));
        self.open_run.forget();
        let deleted = operate(self, |worker| worker.delete(table, encoded))?;
        self.note(table, encoded, ColumnSet::EMPTY);
        if deleted.is_none() {
            return Err(self.torn());
        }
        self.wrote(table, encoded);
        Ok(())
    }
}

/// The rows of one run that a scan has still to yield, and the range of the scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunScan {
    /// The next row.
    row: *mut u8,
    /// Rows that are left.
    left: usize,
    /// Bytes from one row to the next.
    step: isize,
    /// The least and the greatest key of the range.
    low: u128,
    high: u128,
    /// Whether the range has either all keys of a prefix or none.
    is_whole: bool,
}

impl RunScan {
    /// A scan of the keys between two bounds; `None` if there can be none.
    pub(crate) fn new(set: &TableSet, low: &Bound<u128>, high: &Bound<u128>, direction: Direction) -> Option<RunScan> {
        let low = match low {
            Bound::Included(low) => *low,
            Bound::Excluded(low) => low.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let high = match high {
            Bound::Included(high) => *high,
            Bound::Excluded(high) => high.checked_sub(1)?,
            Bound::Unbounded => u128::MAX,
        };
        let suffix = set.cluster.suffix;
        let is_whole = low & suffix == 0 && high & suffix == suffix;
        let row_bytes = set.cluster.row_bytes() as isize;
        let step = if direction == Direction::Forward { row_bytes } else { -row_bytes };
        (low <= high).then_some(RunScan { row: std::ptr::null_mut(), left: 0, step, low, high, is_whole })
    }

    /// The least key.
    pub(crate) fn low(&self) -> u128 {
        self.low
    }

    /// Enters the run of this record's row. Its rows are going to be given out; returns how many are in the range.
    #[inline]
    pub(crate) fn enter(&mut self, set: &TableSet, open: &OpenRun, row: RowPtr) -> usize {
        // SAFETY: a row of the table; its run is readable until the transaction ends.
        let run = unsafe { Run::of(row.as_ptr()) };
        let rows = run.len();
        let (mut next, mut end) = (0, rows);
        if !self.is_whole && rows > 0 {
            let first = set.cluster.first(set.key_at(run, 0));
            if first == set.cluster.first(self.low) {
                next = set.search(run, self.low).unwrap_or_else(|at| at);
            }
            if first == set.cluster.first(self.high) {
                end = set.search(run, self.high).map_or_else(|at| at, |at| at + 1);
            }
        }
        open.lend(run);
        self.left = end.saturating_sub(next);
        self.row = set.cluster.row(run, if self.step > 0 { next } else { end.saturating_sub(1) });
        self.left
    }

    /// The next row of the run.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<RowPtr> {
        self.left = self.left.checked_sub(1)?;
        let row = self.row;
        self.row = row.wrapping_offset(self.step);
        RowPtr::new(row)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seriatim_catalog::{ColumnDef, ColumnType, Value};
    use seriatim_txn::Mode;

    use super::*;
    use crate::operations::Operations as _;
    use crate::procedure::gate::WAIT_MAX;
    use crate::tx::Origin;
    use crate::{DynHandle, Engine, Settings};

    /// A table of order lines.
    fn lines() -> (Engine, DynHandle) {
        let engine = Settings { step_helpers: true, ..Settings::default() }.open().expect("memory");
        let column = |name: &'static str, ty| ColumnDef::new(name, ty);
        let table = TableDef::builder("line").column(column("order", ColumnType::U32));
        let table = table.column(column("number", ColumnType::U16)).column(column("amount", ColumnType::U64));
        let table = table.key(["order", "number"]).cluster(["order"]).finish().expect("a table");
        let lines = DynHandle::new(engine.create(table).expect("memory"));
        (engine, lines)
    }

    fn values(order: u64, number: u64, amount: u64) -> Vec<Value> {
        [order, number, amount].map(Value::from).to_vec()
    }

    fn key(order: u64, number: u64) -> [Value; 2] {
        [order, number].map(Value::from)
    }

    /// Adds one to an amount as a typed table does: without a savepoint.
    fn increment(tx: &TxCore, lines: &DynHandle, order: u64, number: u64) -> Result<(), Abort> {
        let (set, place) = (&lines.set, lines.set.layout.places[2]);
        let key = set.primary.codec.encode_values(&key(order, number)).expect("a key");
        tx.change_at(set, key.as_key(), ColumnUse::ALL, |mut writer| {
            let amount = writer.get::<u64>(&place);
            writer.set::<u64>(&place, amount + 1).expect("a number");
            writer.dirty()
        })
    }

    #[test]
    fn rows_of_a_run_are_changed_in_any_order() {
        let orders: [&[u64]; 5] = [&[0, 1, 2, 3], &[3, 2, 1, 0], &[1, 1, 2, 0], &[3, 0, 3, 1], &[2, 3, 2, 3]];
        // Numbers that are consecutive, and such that the next row is not the next number.
        for (numbers, step) in orders.into_iter().flat_map(|numbers| [(numbers, 1), (numbers, 5)]) {
            let (engine, lines) = lines();
            let insert = |tx: &TxCore| (0..4).try_for_each(|n| tx.insert_dyn(&lines, &values(1, n * step, 0)));
            engine.runner().transact(insert).expect("no conflict");
            let codec = &lines.set.primary.codec;
            let encoded = |number| codec.encode_values(&key(1, number)).expect("a key");
            let own = |tx: &TxCore, number| {
                let row = tx.own_row(&lines.set, encoded(number).as_key())?;
                // SAFETY: a row of the table, which the transaction has open.
                Some(codec.encode_row(unsafe { RowRef::from_raw(row.as_ptr()) }, bits))
            };
            let work = |tx: &TxCore| {
                increment(tx, &lines, 1, numbers[0] * step)?;
                let is_found = |tx: &TxCore, n| own(tx, n * step) == Some(bits(encoded(n * step).as_key()));
                assert!(numbers.iter().all(|&n| is_found(tx, n)), "{numbers:?} {step}");
                assert_eq!((own(tx, 2 * step + 100), own(tx, 7)), (None, None), "no such rows");
                // The rows behind it move.
                tx.delete_dyn(&lines, &key(1, numbers[1] * step))?;
                assert!(numbers.iter().all(|&n| is_found(tx, n) == (n != numbers[1])), "{numbers:?} {step}");
                Ok(())
            };
            engine.runner().transact(work).expect("no conflict");
        }
    }

    #[test]
    fn a_run_is_copied_once_a_transaction_and_again_for_rows_that_were_given_out_and_savepoints() {
        let (engine, lines) = lines();
        let insert = |tx: &TxCore| (0..4).try_for_each(|number| tx.insert_dyn(&lines, &values(1, number, 0)));
        engine.runner().transact(insert).expect("no conflict");
        let work = |tx: &TxCore| {
            let copies = || tx.open_run.address.get();
            increment(tx, &lines, 1, 0)?;
            let first = copies();
            for number in 1..4 {
                increment(tx, &lines, 1, number)?;
                assert_eq!(copies(), first, "changed in place");
            }
            let row = tx.get_dyn(&lines, &key(1, 2))?.expect("it is there");
            increment(tx, &lines, 1, 2)?;
            let second = copies();
            assert_ne!(second, first, "a row of the first copy was given out");
            assert_eq!(row.get("amount"), Some(1u64.into()));
            increment(tx, &lines, 1, 2)?;
            assert_eq!(copies(), second, "none of this copy was");
            let savepoint = tx.savepoint()?;
            increment(tx, &lines, 1, 2)?;
            assert_ne!(copies(), second, "the savepoint keeps the second copy");
            tx.rollback_to(savepoint)?;
            assert_eq!(tx.get_dyn(&lines, &key(1, 2))?.expect("it is there").get("amount"), Some(3u64.into()));
            Ok(())
        };
        engine.runner().transact(work).expect("no conflict");
    }

    #[test]
    fn a_run_gets_room_for_the_rows_that_are_expected_and_the_next_run_does_not() {
        let (engine, lines) = lines();
        let most = usize::from(lines.set.cluster.rows_max);
        let two = 2 * ROWS_STEP;
        let three = most.min(3 * ROWS_STEP);
        // The rows that are expected, the room of a new run, and that of a run that was full.
        let steps = [(0, ROWS_STEP, two), (1, ROWS_STEP, two), (ROWS_STEP + 1, two, three), (most, most, most)];
        for (order, (expected, room, grown)) in (1..).zip(steps.into_iter().chain([(usize::MAX, most, most)])) {
            let work = |tx: &TxCore| {
                let insert = |order, number| {
                    tx.insert_dyn(&lines, &values(order, number, 0))?;
                    // SAFETY: the run of the row that was inserted last; the transaction is open.
                    let run = unsafe { Run::at(tx.open_run.address.get()) };
                    Ok::<usize, Abort>(run.room(lines.set.cluster.row_bytes()))
                };
                tx.expect_rows(&lines.set, expected);
                assert_eq!(insert(order, 0)?, room, "{expected} rows in a new run");
                assert_eq!(insert(order + 100, 0)?, ROWS_STEP, "of {expected} rows, none is expected in another run");
                tx.expect_rows(&lines.set, expected);
                let numbers = 1..=ROWS_STEP as u64;
                let rooms: Result<Vec<usize>, Abort> = numbers.map(|number| insert(order + 100, number)).collect();
                assert_eq!(rooms?.last(), Some(&grown), "{expected} rows in a run that was full");
                Ok(())
            };
            engine.runner().transact(work).expect("no conflict");
        }
    }

    #[test]
    fn the_next_row_is_found_where_it_lies_and_only_if_it_may_be_changed() {
        let (engine, lines) = lines();
        let insert = |tx: &TxCore| {
            let numbers = (1..3).flat_map(|order| (0..4).map(move |number| (order, number)));
            numbers.into_iter().try_for_each(|(order, number)| tx.insert_dyn(&lines, &values(order, number, 0)))
        };
        engine.runner().transact(insert).expect("no conflict");
        let codec = &lines.set.primary.codec;
        let own = |tx: &TxCore, order, number| {
            let key = codec.encode_values(&key(order, number)).expect("a key");
            tx.own_row(&lines.set, key.as_key()).map(RowPtr::as_ptr)
        };
        let place = |tx: &TxCore, at| {
            // SAFETY: the run that the transaction has open.
            let run = unsafe { Run::at(tx.open_run.address.get()) };
            Some(lines.set.cluster.row(run, at))
        };
        let work = |tx: &TxCore| {
            increment(tx, &lines, 1, 0)?;
            assert_eq!(own(tx, 2, 1), None, "the row is of another run");
            assert_eq!([1, 2].map(|n| own(tx, 1, n)), [1, 2].map(|at| place(tx, at)));
            tx.get_dyn(&lines, &key(1, 0))?;
            assert_eq!(own(tx, 1, 3), None, "a row was given out");
            increment(tx, &lines, 1, 1)?;
            assert_eq!(own(tx, 1, 2), place(tx, 2), "the copy is new");
            tx.savepoint()?;
            assert_eq!(own(tx, 1, 3), None, "the savepoint keeps the copy");
            increment(tx, &lines, 1, 1)?;
            assert_eq!(own(tx, 1, 2), place(tx, 2));
            tx.delete_dyn(&lines, &key(1, 1))?;
            assert_eq!([3, 2].map(|n| own(tx, 1, n)), [2, 1].map(|at| place(tx, at)), "rows have moved");
            tx.delete_dyn(&lines, &key(1, 3))?;
            assert_eq!(own(tx, 1, 3), None, "it is deleted");
            Ok(())
        };
        engine.runner().transact(work).expect("no conflict");
    }

    #[test]
    fn rows_are_added_behind_those_that_were_given_out() {
        let (engine, lines) = lines();
        let work = |tx: &TxCore| {
            tx.insert_dyn(&lines, &values(1, 1, 0))?;
            let address = tx.open_run.address.get();
            let row = tx.get_dyn(&lines, &key(1, 1))?.expect("it is there");
            tx.insert_dyn(&lines, &values(1, 2, 0))?;
            assert_eq!(tx.open_run.address.get(), address, "nothing moved");
            tx.insert_dyn(&lines, &values(1, 0, 0))?;
            assert_ne!(tx.open_run.address.get(), address, "rows moved");
            assert_eq!(row.get("number"), Some(1u16.into()));
            Ok(())
        };
        engine.runner().transact(work).expect("no conflict");
    }

    /// The number of records of the table.
    fn records(engine: &Engine, lines: &DynHandle) -> usize {
        let mut records = 0;
        let index = &lines.set.primary.index;
        // SAFETY: no transaction is open.
        engine.inner().quietly(WAIT_MAX, || unsafe { index.for_each(|_| records += 1) }).expect("no conflict");
        records
    }

    #[test]
    fn a_prefix_without_rows_has_no_record() {
        let (engine, lines) = lines();
        let most = u64::from(lines.set.cluster.rows_max);
        let mut runner = engine.runner();
        // The rows of the first run are deleted first, so that it stays for the others' sake; or last.
        let orders: [&mut dyn Iterator<Item = u64>; 2] = [&mut (0..3 * most), &mut (0..3 * most).rev()];
        for numbers in orders {
            let insert = |tx: &TxCore| (0..3 * most).try_for_each(|at| tx.insert_dyn(&lines, &values(1, at, 0)));
            runner.transact(insert).expect("no conflict");
            assert_eq!(records(&engine, &lines), 3);
            for number in numbers {
                let deleted = runner.transact(|tx| tx.delete_dyn(&lines, &key(1, number)));
                assert!(*deleted.expect("no conflict"));
            }
            // Deleted records are unlinked a grace period later.
            (0..9).for_each(|_| engine.step());
            assert_eq!(records(&engine, &lines), 0);
        }
    }

    #[test]
    fn ascending_rows_fill_their_runs_and_others_halve_them() {
        let (engine, lines) = lines();
        let most = u64::from(lines.set.cluster.rows_max);
        let insert = |order: u64, numbers: &mut dyn Iterator<Item = u64>| {
            let mut runner = engine.runner();
            for number in numbers {
                runner.transact(|tx| tx.insert_dyn(&lines, &values(order, number, 0))).expect("no conflict");
            }
        };
        insert(1, &mut (0..4 * most));
        assert_eq!(records(&engine, &lines), 4);
        insert(2, &mut (0..4 * most).rev());
        let halved = records(&engine, &lines) - 4;
        assert!((5..=8).contains(&halved), "{halved}");
    }

    #[test]
    fn a_search_finds_every_key_in_runs_with_gaps() {
        let (engine, lines) = lines();
        let set = Arc::clone(&lines.set);
        let work = |tx: &TxCore| {
            for (order, numbers) in [(1, [0u64, 1, 2, 3, 4]), (2, [1, 5, 6, 7, 60_000]), (3, [9, 10, 30, 31, 32])] {
                for number in numbers {
                    tx.insert_dyn(&lines, &values(order, number, 0))?;
                }
                // Also numbers whose lower bytes equal those of others.
                for number in (0..70u64).chain([256, 261, 60_000, 60_001]) {
                    let found = tx.get_dyn(&lines, &key(order, number))?.is_some();
                    assert_eq!(found, numbers.contains(&number), "{order}, {number}");
                }
            }
            assert!(set.is_clustered());
            Ok(())
        };
        engine.runner().run(Mode::ReadWrite, Origin::Closure, work).expect("no conflict");
    }
}
