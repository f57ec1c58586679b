//! The state of every attempt: its worker's core, its private writes, and the conflict that it reports.

use std::sync::atomic::Ordering;

use seriatim_base::thread::Touch;
use seriatim_base::{Epoch, Tid};
use seriatim_catalog::{ColumnSet, Key, KeyBuf};
use seriatim_memory::OutOfMemory;
use seriatim_store::{LeafHint, NodeVersion, RecordPtr, read_key};
use seriatim_txn::{Cause, ConflictInfo, Core, OpError, Phase, Reason, Redo, RowPtr, Seen, Table};

use super::access_locks::AccessLocks;
use super::gc::{self, Claim};
use super::origin::Origin;
use super::prefetch::Prefetched;
use super::record;
use super::record_header::{self, TidWord};
use super::reserve;
use super::writes::{Deferred, Link, RowPart, Write, WriteSet};

/// The leaves last used of ordered tables: the node buffer of DBX §6.2. Ascending keys often share all but their last
/// column. So a table has a hint for each of a few values of the bits above a key's lower half. A hint knows its tree,
/// so tables may share one.
#[derive(Debug)]
pub struct LeafHints(Box<[LeafHint; HINTS]>);

const HINTS: usize = 256;
/// Hints of a table.
const HINTS_OF_TABLE: usize = 16;

impl Default for LeafHints {
    fn default() -> LeafHints {
        LeafHints(Box::new(std::array::from_fn(|_| LeafHint::default())))
    }
}

impl LeafHints {
    /// The hint for a key of the table.
    #[inline]
    pub fn of(&mut self, table: &Table, key: &Key<'_>) -> &mut LeafHint {
        let upper = match *key {
            // Also the bits a byte further up: behind a short last column the lowest are the same for all.
            Key::Word8(word) => word >> 32 ^ word >> 40,
            Key::Word16(words) => (words >> 64 ^ words >> 72) as u64,
            Key::Bytes(_) => 0,
        };
        &mut self.0[(table.id.index() * HINTS_OF_TABLE + upper as usize % HINTS_OF_TABLE) % HINTS]
    }
}

/// State of one attempt, whatever its protocol.
pub struct Attempt<O = ()> {
    pub core: Core,
    pub leaf_hints: LeafHints,
    pub prefetched: Prefetched,
    pub writes: WriteSet<O>,
    /// Nothing is linked before the decision.
    pub defers: bool,
    /// The origin of the entries that are noted from now on.
    pub by: O,
    /// The worker's horizon when the attempt began.
    pub horizon: Epoch,
    /// The newest TID read or to be overwritten; of absences, the newest that may have caused one.
    pub newest: Tid,
    pub seen: Seen,
    pub conflict_info: Option<ConflictInfo>,
    /// Deleted records that this attempt queued.
    queued: usize,
}

impl<O: Origin> Attempt<O> {
    pub fn new(core: Core) -> Attempt<O> {
        let (writes, newest, seen) = (WriteSet::new(&core.local), Tid::ZERO, Seen::default());
        let (leaf_hints, prefetched) = (LeafHints::default(), Prefetched::default());
        Attempt {
            core,
            leaf_hints,
            prefetched,
            writes,
            defers: false,
            by: O::default(),
            horizon: Epoch(0),
            newest,
            seen,
            conflict_info: None,
            queued: 0,
        }
    }

    #[inline(always)]
    pub fn begin(&mut self) {
        crate::step(Touch::Begin, std::ptr::null());
        self.core.enter();
        self.horizon = self.core.horizon();
        self.writes.room.begin();
        self.prefetched.clear();
        self.defers = false;
        self.by = O::default();
        self.newest = Tid::ZERO;
        self.conflict_info = None;
        self.queued = 0;
    }

    /// The attempt saw a version, and comes after it. TID zero is a placeholder's: earlier versions of its key
    /// are unlinked.
    #[inline]
    pub fn note_tid(&mut self, table: &Table, tid: Tid) {
        if tid == Tid::ZERO {
            self.note_unlinked(table);
        }
        self.newest = self.newest.max(tid);
    }

    /// The attempt saw a committed version of a record, or its deletion, and comes after it.
    #[inline(always)]
    pub fn note_seen(&mut self, record: RecordPtr, tid: Tid, absent: bool) {
        self.newest = self.newest.max(tid);
        self.seen = Seen { record: Some(record), tid, absent, own: false };
    }

    /// A key of the table was found absent, or is given its first record: the attempt comes after whatever deleted it.
    #[inline]
    pub fn note_unlinked(&mut self, table: &Table) {
        self.newest = self.newest.max(table.unlinked.newest());
    }

    /// Notes where the attempt stopped (promise f).
    #[cold]
    pub fn conflict_at(&mut self, cause: Cause, table: &Table, record: RecordPtr) -> OpError {
        // SAFETY: key words of a linked record never change; we are online.
        let key = unsafe { read_key(record, table.class) };
        self.conflict_info = Some(ConflictInfo { cause, table: Some(table.id), key: Some(KeyBuf::from(key)) });
        OpError::Abort(cause)
    }

    #[inline]
    pub fn note_own(&mut self, write: &Write<O>) {
        self.seen =
            Seen { record: Some(write.record), tid: write.expected.tid(), absent: write.row_version == 0, own: true };
    }

    pub fn out_of_line(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        let out_of_line = record::out_of_line(&mut self.core, bytes)?;
        if out_of_line != 0 {
            self.own_out_of_line(out_of_line);
        }
        Ok(out_of_line)
    }

    pub fn out_of_line_room(&mut self, bytes: usize) -> Result<u64, OutOfMemory> {
        let out_of_line = record::out_of_line_room(&mut self.core, bytes)?;
        self.own_out_of_line(out_of_line);
        Ok(out_of_line)
    }

    fn own_out_of_line(&mut self, out_of_line: u64) {
        let address = out_of_line as usize;
        self.writes.parts.push(RowPart { address, bytes: record::out_of_line_bytes_at(address) });
    }

    /// Begins to fetch these columns of the row at `key`.
    #[inline(always)]
    pub fn prefetch(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) {
        let Attempt { core, leaf_hints, prefetched, .. } = self;
        let whole = table.fixed_columns.intersects(columns);
        prefetched.begin(table, key, whole, leaf_hints, &core.local);
    }

    /// Issues the next wave of prefetches.
    #[inline]
    pub fn advance_prefetch(&mut self) {
        self.prefetched.advance(self.core.local.pinned());
    }

    /// The linked record at `key`, or the node version that proves its absence.
    #[inline(always)]
    pub fn find(&mut self, table: &Table, key: Key<'_>) -> Result<RecordPtr, NodeVersion> {
        let Attempt { core, leaf_hints, prefetched, .. } = self;
        let pin = core.local.pinned();
        let expected = prefetched.find(table, key, pin).filter(|&record| {
            // Unlinked since: its key may live in another record.
            let word = record_header::tid_word(&table.record_layout, record).load(Ordering::Relaxed);
            !O::Locks::is_removed(TidWord(word))
        });
        match expected {
            Some(record) => Ok(record),
            None => table.index.get_near(key.anew(), leaf_hints.of(table, &key), pin),
        }
    }

    /// Replaces the write of a row to be linked at the decision, whose key another transaction has linked since.
    #[inline]
    pub fn taken(&self) -> Option<usize> {
        let pin = self.core.local.pinned();
        let taken = |deferred: &&Deferred| deferred.table().index.get(deferred.key(), pin).is_ok();
        self.writes.deferred.iter().find(taken).and_then(|deferred| self.writes.find(deferred.record))
    }

    /// The end of an attempt that found a lock held for longer than the bound.
    #[cold]
    pub fn record_lock_conflict(&mut self) -> OpError {
        let cause = Cause { phase: Phase::Lock, reason: Reason::RecordLocked };
        let locked = |write: &&Write<O>| {
            TidWord(record_header::tid_word(&write.table().record_layout, write.record).load(Ordering::Acquire))
                .is_locked()
        };
        let entries = self.writes.entries();
        match entries.iter().find(locked).or(entries.first()).copied() {
            Some(write) => self.conflict_at(cause, write.table(), write.record),
            None => OpError::Abort(cause),
        }
    }

    /// A write of a linked record, which was found with this TID word and version word. It has no row version yet.
    #[inline(always)]
    pub fn write_to(&self, table: &Table, record: RecordPtr, found: (TidWord, usize), by: O) -> Write<O> {
        Write::there(table, record, found, by, self.horizon)
    }

    /// A private copy of the row `before` for this write. It is in the worker's own memory if the commit will copy it
    /// to a place in the record.
    #[inline(always)]
    pub fn copy_row(&mut self, write: &Write<O>, before: RowPtr) -> Result<usize, OpError> {
        let table = write.table();
        if write.place().is_some()
            && let Some(row_version) = self.writes.room.take(table.record_layout.row_version_bytes())
        {
            // SAFETY: the room has that many bytes, and is ours; the row is immutable while we are online.
            unsafe {
                let row = record::row_of(row_version);
                record::copy_words(before.as_ptr(), row.as_ptr(), table.record_layout.row);
            }
            return Ok(row_version);
        }
        record::copy_row(&mut self.core, table, before)
    }

    /// Moves the row version of an entry out of the worker's own memory: it may be published itself.
    ///
    /// # Errors
    /// The memory limit.
    #[cold]
    pub fn move_out(&mut self, entry: usize) -> Result<(), OpError> {
        let write = self.writes.entries()[entry];
        if self.writes.room.has(write.row_version) {
            let table = write.table();
            let copy = record::copy_row(&mut self.core, table, record::row_of(write.row_version))?;
            self.writes.moved(entry, copy);
        }
        Ok(())
    }

    /// Allocates, before anything is locked, a version of each deletion over which a row is inserted, whose header the
    /// commit has to fill. A transaction that only deletes allocates nothing.
    ///
    /// # Errors
    /// The memory limit; then all are given back.
    #[inline]
    pub fn make_deletions(&mut self) -> Result<(), OpError> {
        if self.writes.builds_on_absence() { self.make_each_deletion() } else { Ok(()) }
    }

    #[cold]
    fn make_each_deletion(&mut self) -> Result<(), OpError> {
        let Attempt { core, writes, .. } = self;
        for write in writes.entries.iter_mut() {
            if write.expected.is_absent() && write.expected.tid() != Tid::ZERO && write.row_version != 0 {
                let bytes = write.table().record_layout.row_version_bytes();
                match core.local.allocate(&mut core.outside, bytes) {
                    Ok(deletion) => write.before = deletion.as_ptr() as usize,
                    Err(error) => {
                        self.drop_deletions();
                        return Err(record::full(error));
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives them back: the commit has failed.
    #[cold]
    pub fn drop_deletions(&mut self) {
        for write in self.writes.entries.iter_mut().filter(|write| write.expected.is_absent()) {
            let bytes = write.table().record_layout.row_version_bytes();
            record::release(&mut self.core, std::mem::take(&mut write.before), bytes);
        }
    }

    /// Promise (a): redo entries are in the buffer before the answer. Before [`Attempt::settle`] or after it: row
    /// versions that were replaced stay readable until the worker leaves.
    #[inline]
    pub fn report(&self, tid: Tid, redo: &mut dyn Redo) {
        if redo.listens() {
            self.writes.report(tid, redo);
        }
    }

    /// After a commit: retires what was overwritten, queues tombstones, frees what was private. The worker leaves.
    pub fn finish(&mut self, claim: &impl Claim) {
        record::free_private(&mut self.core, &mut self.writes, true);
        self.unlink_orphans(claim);
        self.leave();
    }

    /// As [`Attempt::finish`], but the worker continues: later notes are published separately.
    pub fn next_piece(&mut self, claim: &impl Claim) {
        record::free_private(&mut self.core, &mut self.writes, true);
        self.unlink_orphans(claim);
        self.writes.clear();
    }

    /// After an abort: frees everything private and unlinks our placeholders (promise b). The worker leaves.
    pub fn abandon(&mut self, claim: &impl Claim) {
        record::free_private(&mut self.core, &mut self.writes, false);
        for entry in 0..self.writes.entries().len() {
            let write = self.writes.entries()[entry];
            self.take_back(&write, claim);
        }
        self.unlink_orphans(claim);
        self.leave();
    }

    #[inline(always)]
    fn unlink_orphans(&mut self, claim: &impl Claim) {
        for entry in 0..self.writes.undone.len() {
            self.unlink_orphan(entry, claim);
        }
    }

    #[inline(never)]
    fn unlink_orphan(&mut self, entry: usize, claim: &impl Claim) {
        let write = self.writes.undone[entry];
        self.take_back(&write, claim);
    }

    /// For a write that was undone: removes the record that this attempt made for it.
    pub fn take_back(&mut self, write: &Write<O>, claim: &impl Claim) {
        take_back(&mut self.core, write, claim);
    }

    /// The TID word after a commit of `write`. The attempt that linked the record and fills it no longer owes
    /// it a look. A deleted record is owed a look, by this attempt unless another party owes it already.
    #[inline]
    pub fn after(write: &Write<O>, tid: Tid) -> TidWord {
        let deleted = write.row_version == 0;
        let owed = write.link == Link::There && (deleted || write.expected.is_queued());
        if write.is_nothing() { write.expected } else { TidWord::committed(tid, deleted, owed) }
    }

    /// After a commit, when nothing is locked any more: retires what the writes replaced, queues what they
    /// deleted, unlinks what came to nothing.
    #[inline]
    pub fn settle(&mut self, tid: Tid, claim: &impl Claim) {
        self.settle_rows(tid, claim, |_| tid.epoch());
    }

    /// As [`Attempt::settle`]. `row_epoch` gives the epoch in which the row version that a write replaced was replaced
    /// for later readers: epoch 0 if they cannot reach it. Parts outside of a row version may be shared with other
    /// versions.
    #[inline(always)]
    pub fn settle_rows(&mut self, tid: Tid, claim: &impl Claim, row_epoch: impl Fn(&Write<O>) -> Epoch) {
        let Attempt { core, writes, queued, .. } = self;
        let WriteSet { entries, room, .. } = writes;
        for write in entries.iter_mut() {
            let is_in_room = room.has(write.row_version);
            debug_assert!(write.place().is_some() || !is_in_room, "the place was free at the update, and stays so");
            if is_in_room && record::is_moved_within(write) {
                continue;
            }
            if write.is_nothing() {
                take_back(core, write, claim);
                continue;
            }
            let row_epoch = row_epoch(write);
            if let Some(place) = write.place().filter(|_| write.row_version != 0) {
                if !is_in_room {
                    record::release(core, write.row_version, write.table().record_layout.row_version_bytes());
                }
                write.row_version = place;
            }
            match write.before {
                0 => record::count(core, write, 0),
                // The row of a deletion as a version is not used.
                deletion if write.expected.is_absent() => {
                    record::count(core, write, 0);
                    record::retire(core, deletion, write.table().record_layout.row_version_bytes(), tid.epoch());
                }
                row_version => record::replace(core, write, row_version, (row_epoch, tid.epoch())),
            }
            if write.row_version == 0 {
                *queued += queue_deleted(core, write, tid);
            }
        }
    }

    /// How many queued records to look at after the attempt: `most`, and twice what it queued itself. So the queue
    /// shrinks whatever the transactions delete.
    pub fn due(&self, most: usize) -> usize {
        most.saturating_add(2 * self.queued)
    }

    #[inline(always)]
    fn leave(&mut self) {
        self.writes.clear();
        self.core.local.leave();
    }
}

/// See [`Attempt::take_back`].
#[inline]
fn take_back<O: Origin>(core: &mut Core, write: &Write<O>, claim: &impl Claim) {
    match write.link {
        Link::There => {}
        Link::Own => unlink_placeholder(core, write, claim),
        Link::Deferred => record::release_unlinked(core, write.table(), write.record),
        Link::Reserved => reserve::unmark(core, write.table(), write.record, write.expected),
    }
}

#[inline(never)]
fn unlink_placeholder<O: Origin>(core: &mut Core, write: &Write<O>, claim: &impl Claim) {
    gc::look(core, write.table(), write.record, &mut LeafHint::default(), TidWord::PLACEHOLDER, claim);
}

/// Queues a record that `write` deleted, unless another party owes it a look already. Returns the number of
/// queued records.
#[inline(never)]
fn queue_deleted<O: Origin>(core: &mut Core, write: &Write<O>, tid: Tid) -> usize {
    if write.expected.is_queued() {
        return 0;
    }
    gc::later(core, write.table(), write.record, Attempt::after(write, tid));
    1
}

#[cfg(test)]
impl Attempt {
    /// Whether a lookup finds what was prefetched.
    pub fn finds_prefetched(&mut self, table: &Table, key: Key<'_>) -> bool {
        let Attempt { prefetched, core, .. } = self;
        prefetched.find(table, key, core.local.pinned()).is_some()
    }

    /// How many of the rows that were prefetched are taken, of how many.
    pub fn prefetched_slots(&self) -> (usize, usize) {
        self.prefetched.slots()
    }
}

#[cfg(test)]
mod tests {
    use seriatim_htm::HtmMode;
    use seriatim_txn::{Mode, NoRedo, Outcome, Priority, Protocol, Worker as _};

    use super::*;
    use crate::common::{Bench, modes};
    use crate::dbx::Dbx;
    use crate::shared::worker::{self, Variant};
    use crate::shared::writes::ROOM_WORDS;
    use crate::silo::Silo;

    /// Records may be unlinked, and their memory be others', between two transactions.
    #[test]
    fn prefetched_rows_are_forgotten_with_the_transaction() {
        let bench = Bench::<Silo>::open(HtmMode::Absent, &[1]);
        let mut attempt = Attempt::<()>::new(bench.environment.core().expect("a free slot"));
        // The first transaction does not read the rows that it prefetched.
        for asks in [false, true] {
            attempt.begin();
            assert!(!attempt.finds_prefetched(&bench.cells, Key::Word8(0)));
            attempt.prefetch(&bench.cells, Key::Word8(0), ColumnSet::ALL);
            (0..2).for_each(|_| attempt.advance_prefetch());
            if asks {
                assert!(attempt.finds_prefetched(&bench.cells, Key::Word8(0)));
            }
            attempt.core.local.leave();
        }
    }

    /// Row versions lie in the worker's own memory as long as there is room, and elsewhere behind that.
    fn at_the_end_of_the_room<P: Protocol<Worker = worker::Worker<V>>, V: Variant<By = ()>>() {
        for mode in modes() {
            let probe = Bench::<P>::open_with_fixed(mode, &[]);
            let most = (ROOM_WORDS * 8 / probe.cells.record_layout.row_version_bytes()) as u64;
            for rows in [most - 1, most, most + 1] {
                let bench = Bench::<P>::open_with_fixed(mode, &vec![0; rows as usize + 1]);
                bench.pass_time();
                let mut worker = bench.worker();
                for commits in [false, true, true] {
                    worker.begin(Mode::ReadWrite, Priority::NONE);
                    let change = |worker: &mut P::Worker, id| bench.change(worker, id, |value| value + 1);
                    (0..rows).for_each(|id| assert!(change(&mut worker, id).is_ok()));
                    let writes = &worker.attempt().base.writes;
                    let inside = writes.entries().iter().filter(|write| writes.room.has(write.row_version)).count();
                    assert_eq!(inside as u64, rows.min(most), "each record has a free place");
                    let savepoint = worker.savepoint();
                    (rows / 2..=rows).for_each(|id| assert!(change(&mut worker, id).is_ok()));
                    worker.rollback_to(savepoint);
                    match commits {
                        true => assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_)))),
                        false => worker.abort(),
                    }
                    bench.pass_time();
                }
                let ids: Vec<u64> = (0..=rows).collect();
                let expected: Vec<i64> = ids.iter().map(|&id| if id < rows { 2 } else { 0 }).collect();
                assert_eq!(bench.state(&ids), expected);
            }
        }
    }

    #[test]
    fn more_rows_than_there_is_room_for_are_changed_undone_and_committed() {
        at_the_end_of_the_room::<Silo, _>();
        at_the_end_of_the_room::<Dbx, _>();
    }

    #[test]
    fn an_attempt_does_not_inherit_that_the_last_one_was_held() {
        let bench = Bench::<Silo>::open(HtmMode::Absent, &[]);
        let mut attempt = Attempt::<()>::new(bench.environment.core().expect("a free slot"));
        attempt.begin();
        attempt.defers = true;
        attempt.core.local.leave();
        attempt.begin();
        assert!(!attempt.defers);
        attempt.core.local.leave();
    }
}
