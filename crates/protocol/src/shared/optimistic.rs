//! The read phase that optimistic protocols share. Reads are noted with the TID word seen, absences and ranges with the
//! node version of their bucket or leaf. Writes are private until commit.
//!
//! A read needs no region: TID word, version word and TID word again, unchanged, are one version (Algorithm 2
//! takes a region for that). Validation checks at commit that the version is still the newest (promise c).

use std::ops::Bound;
use std::ptr::NonNull;

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{TableId, abort_on_unwind};
use seriatim_catalog::{Key, KeyBuf, KeyClass};
use seriatim_htm::Access;
use seriatim_memory::{CountedVec, OutOfMemory};
use seriatim_store::{Inserted as Linked, NodeVersion, Observer, RecordPtr, has_key, read_key};
use seriatim_txn::{
    Cause, ConflictInfo, Core, Fault, Inserted, OnExists, OpError, Outcome, Phase, Prepared, Reason, RowPtr, Savepoint,
    Scan, Seen, Staged, Table, Updating,
};

use super::access_locks::{AccessLocks, AccessPurpose};
use super::attempt::Attempt;
use super::gc::Claim;
use super::origin::Origin;
use super::rebase::Bases;
use super::record;
use super::record_header::{self, Plain, TidWord};
use super::repair;
use super::workset::Workset;
use super::writes::{Deferred, Link, Write, WriteSet};

/// A record read: its address with the table's id and key class above, and the TID word seen.
#[derive(Clone, Copy, Debug)]
pub struct Read<O = ()> {
    record: u64,
    header: u64,
    pub seen: TidWord,
    pub by: O,
}

// A protocol that does not repair pays nothing.
const _ORIGINS_TAKE_NO_ROOM: () = assert!(size_of::<Read>() == 24 && size_of::<NodeSetEntry>() == 24);

const ADDRESS_BITS: u32 = 48;
const CLASS_SHIFT: u32 = 62;
/// Table ids fit between address and class.
const TABLES_MAX: u32 = 1 << (CLASS_SHIFT - ADDRESS_BITS);

impl<O: Origin> Read<O> {
    #[inline]
    pub(super) fn new(table: &Table, record: RecordPtr, seen: TidWord, by: O) -> Read<O> {
        let address = record.addr() as u64;
        debug_assert!(address >> ADDRESS_BITS == 0, "user addresses have 48 bits");
        let header = record_header::tid_word(&table.record_layout, record) as *const AtomicU64 as u64;
        debug_assert!(table.id.0 < TABLES_MAX, "a database has fewer tables");
        let class = table.class as u64;
        let record = address | u64::from(table.id.0) << ADDRESS_BITS | class << CLASS_SHIFT;
        Read { record, header, seen, by: by.of_read(table) }
    }

    #[inline]
    pub fn record(self) -> RecordPtr {
        let address = self.record & ((1 << ADDRESS_BITS) - 1);
        // SAFETY: it was a record when noted, and the worker has been online since.
        unsafe { RecordPtr::from_raw(NonNull::new_unchecked(address as *mut u8)) }
    }

    #[inline]
    pub fn table(self) -> TableId {
        TableId((self.record >> ADDRESS_BITS) as u32 & (TABLES_MAX - 1))
    }

    pub fn key(self) -> KeyBuf {
        let classes = [KeyClass::Word8, KeyClass::Word16, KeyClass::Bytes];
        let class = classes.into_iter().find(|&class| class as u64 == self.record >> CLASS_SHIFT);
        // SAFETY: key words of a linked record never change, and the worker is still online.
        KeyBuf::from(unsafe { read_key(self.record(), class.unwrap_or(KeyClass::Word8)) })
    }

    /// The TID word of the record.
    #[inline]
    pub fn word<'t>(self) -> &'t AtomicU64 {
        crate::step(Touch::Header, self.header as *const AtomicU64);
        // SAFETY: as in `record`.
        unsafe { &*(self.header as *const AtomicU64) }
    }

    /// The version word of the record.
    #[inline]
    pub fn version_word<'t>(self) -> &'t AtomicU64 {
        let word = (self.header + record_header::VERSION_WORD as u64) as *const AtomicU64;
        crate::step(Touch::Header, word);
        // SAFETY: as in `record`; the version word is the second of every header.
        unsafe { &*word }
    }

    /// The `AT`-th word of the protocol's own in the header of the record.
    #[inline]
    pub fn own<'t, const AT: usize>(self) -> &'t AtomicU64 {
        let word = (self.header + record_header::bytes(AT) as u64) as *const AtomicU64;
        crate::step(Touch::Header, word);
        // SAFETY: as in `record`; the protocol's headers have this word.
        unsafe { &*word }
    }
}

/// An absence or a range, covered by a word of the store.
#[derive(Clone, Copy, Debug)]
pub struct NodeSetEntry<O = ()> {
    pub(super) node_version: NodeVersion,
    pub table: TableId,
    pub(super) by: O,
}

/// Which entry of a read, node or write set failed validation.
#[derive(Clone, Copy, Debug)]
pub enum ValidationFailure {
    Read(usize),
    Node(usize),
    Write(usize),
}

/// State of one optimistic attempt.
pub struct Optimistic<O: Origin = ()> {
    /// Locks taken when records were accessed. Dropped before the worker's number is given back with `base`.
    pub locks: O::Locks,
    pub base: Attempt<O>,
    pub reads: CountedVec<Read<O>>,
    pub node_set: CountedVec<NodeSetEntry<O>>,
    pub bases: Bases,
    /// The records that runs of operations touched, where runs are named.
    pub(super) touches: CountedVec<repair::Touch<O>>,
    /// The records that repeated runs found before.
    pub workset: Workset<O>,
    /// The worker writes rows that others have reserved: its transactions must not wait.
    pub(super) passes_reserved: bool,
}

impl<O: Origin> Optimistic<O> {
    pub fn new(core: Core, locks: O::Locks) -> Optimistic<O> {
        let (reads, node_set, bases) = (core.local.counted(256), core.local.counted(64), Bases::new(&core.local));
        let (touches, workset) = (core.local.counted(0), Workset::new(&core.local));
        let base = Attempt::new(core);
        Optimistic { base, reads, node_set, bases, locks, touches, workset, passes_reserved: false }
    }

    #[inline(always)]
    pub fn begin(&mut self) {
        self.base.begin();
        self.reads.clear();
        self.node_set.clear();
        self.bases.begin();
        if O::CARRIED {
            self.touches.clear();
            self.workset.clear();
        }
    }

    /// The published entries are done with, and the next piece of the transaction begins.
    pub fn next_piece(&mut self, claim: &impl Claim) {
        self.base.next_piece(claim);
        self.reads.clear();
        self.node_set.clear();
    }

    /// Gives back memory that a large transaction took, as the worker is idle.
    pub fn rest(&mut self) {
        self.reads.rest();
        self.node_set.rest();
        self.touches.rest();
        self.workset.rest();
        self.bases.rest();
        self.base.writes.rest();
        self.locks.rest();
    }

    #[cold]
    pub(super) fn refused(&mut self, table: &Table, record: RecordPtr, reason: Reason) -> OpError {
        self.locks.failed(&self.base.core, table.id, record, false);
        self.base.conflict_at(Cause { phase: Phase::Execute, reason }, table, record)
    }

    #[inline(always)]
    fn note_own(&mut self, write: &Write<O>) {
        self.base.note_own(write);
        self.touch(write.table(), write.record);
    }

    #[inline]
    pub(super) fn note_node_version(&mut self, table: &Table, node_version: NodeVersion) -> Result<(), OpError> {
        self.base.note_unlinked(table);
        if self.base.core.injects(Fault::DropNodeVersion) || !self.locks.notes() {
            return Ok(());
        }
        let by = self.base.by;
        // A scan that moves on within one leaf, or repeated misses of one bucket, need one entry, unless
        // there are notes of each.
        let is_last = |last: &NodeSetEntry<O>| last.node_version == node_version && last.by == by;
        if self.bases.are_noted() || !self.node_set.last().is_some_and(is_last) {
            self.node_set.try_push(NodeSetEntry { node_version, table: table.id, by }).map_err(record::full)?;
        }
        Ok(())
    }

    /// Notes a record with the TID word seen, if it can change.
    #[inline(always)]
    fn note_read(&mut self, table: &Table, record: RecordPtr, word: TidWord, by: O) -> Result<(), OpError> {
        if O::Locks::is_locked_at_access(word) || !self.locks.notes() {
            return Ok(());
        }
        self.reads.try_push(Read::new(table, record, word, by)).map_err(record::full)
    }

    /// The record at `key`; `None` after noting its absence.
    #[inline(always)]
    fn find(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RecordPtr>, OpError> {
        if O::CARRIED
            && !self.workset.is_empty()
            && let Some(record) = self.workset.find(table, key.anew(), self.base.by)
        {
            return Ok(Some(record));
        }
        match self.base.find(table, key) {
            Ok(record) => Ok(Some(record)),
            Err(node_version) => self.miss(table, key.anew(), node_version),
        }
    }

    /// As [`Optimistic::find`], of a key whose record was probably the last to be read.
    #[inline(always)]
    fn find_again(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RecordPtr>, OpError> {
        match self.reads.last() {
            // SAFETY: key words of a linked record never change, and the worker has been online since it was read.
            Some(read) if read.table() == table.id && unsafe { has_key(read.record(), key.anew()) } && !O::CARRIED => {
                Ok(Some(read.record()))
            }
            _ => self.find(table, key),
        }
    }

    /// None is linked at `key`: the record of a row that this attempt has inserted there and not linked;
    /// `None` after noting the absence.
    #[inline(never)]
    fn miss(&mut self, table: &Table, key: Key<'_>, node_version: NodeVersion) -> Result<Option<RecordPtr>, OpError> {
        if O::Locks::HOLDS
            && let Some(own) = self.base.writes.find_deferred(table, key)
        {
            return Ok(Some(own));
        }
        self.note_absence(table, node_version).map(|()| None)
    }

    fn note_absence(&mut self, table: &Table, node_version: NodeVersion) -> Result<(), OpError> {
        self.base.seen = Seen { absent: true, ..Seen::default() };
        self.note_node_version(table, node_version)
    }

    #[cold]
    pub(super) fn removed(&mut self, table: &Table, record: RecordPtr) -> OpError {
        self.base.conflict_at(Cause { phase: Phase::Execute, reason: Reason::RecordRemoved }, table, record)
    }

    /// The settled TID word of a record with its row version, noted as the version seen, and the origin that
    /// an entry remembers.
    #[inline(always)]
    pub(super) fn look(
        &mut self,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize, O), OpError> {
        let by = self.base.by.at(table, record);
        let (mut word, mut row_version) = match self.locks.look(&mut self.base.core, table, record, access) {
            Ok(found) => found,
            Err(OpError::Abort(cause)) => return Err(self.refused(table, record, cause.reason)),
            Err(full) => return Err(full),
        };
        if O::Locks::is_removed(word) {
            (word, row_version) = self.look_reserved(table, record, access, (word, row_version))?;
        }
        self.base.note_tid(table, word.tid());
        self.base.seen = Seen { record: Some(record), tid: word.tid(), absent: word.is_absent(), own: false };
        self.touch(table, record);
        Ok((word, row_version, by))
    }

    /// Whether the attempt may access this key.
    #[inline(always)]
    fn admit(&mut self, table: &Table, key: Key<'_>, access: AccessPurpose) -> Result<(), OpError> {
        if O::Locks::PARTITIONED
            && let Err(error) = self.locks.admit(table, key.anew(), access)
        {
            return Err(self.kept_out(table, Some(key), error));
        }
        Ok(())
    }

    /// An access was not admitted.
    #[cold]
    fn kept_out(&mut self, table: &Table, key: Option<Key<'_>>, error: OpError) -> OpError {
        if let OpError::Abort(cause) = error {
            let key = key.map(|key| key.to_buf());
            self.base.conflict_info = Some(ConflictInfo { cause, table: Some(table.id), key });
        }
        error
    }

    #[inline(always)]
    pub fn read(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        self.admit(table, key, AccessPurpose::Reading)?;
        match self.find(table, key)? {
            Some(record) => self.read_record(table, record),
            None => Ok(None),
        }
    }

    /// As [`Optimistic::read_record`], of a row that is there, if no one has locked, reserved or written it. Otherwise
    /// `None`, and nothing has changed.
    #[inline(always)]
    pub(super) fn read_plain(&mut self, table: &Table, record: RecordPtr) -> Option<RowPtr> {
        let is_simple = !O::CARRIED && O::Locks::LOCKLESS && self.locks.notes();
        if !is_simple || self.base.writes.may_have(record) {
            return None;
        }
        let by = self.base.by.at(table, record);
        let (word, row_version) = record_header::plain_version(table, record)?;
        self.reads.push_within(Read::new(table, record, word, by))?;
        self.base.note_seen(record, word.tid(), false);
        Some(record::row_of(row_version))
    }

    #[inline(always)]
    fn read_record(&mut self, table: &Table, record: RecordPtr) -> Result<Option<RowPtr>, OpError> {
        if let Some(own) = self.base.writes.find(record) {
            let write = self.base.writes.entries()[own];
            self.note_own(&write);
            return Ok((write.row_version != 0).then(|| record::row_of(write.row_version)));
        }
        let (word, row_version, by) = self.look(table, record, AccessPurpose::Reading)?;
        self.note_read(table, record, word, by)?;
        Ok((!word.is_absent()).then(|| record::row_of(row_version)))
    }

    pub fn insert(
        &mut self,
        table: &Table,
        key: Key<'_>,
        staged: Staged,
        exists: OnExists,
    ) -> Result<Inserted, OpError> {
        let admitted = self.admit(table, key, AccessPurpose::Writing);
        let room = admitted.and_then(|()| self.base.writes.reserve().map_err(record::full));
        if let Err(error) = room.and_then(|()| record::set_key(&mut self.base.core, table, staged.record, key)) {
            record::discard(&mut self.base.core, table, staged);
            return Err(error);
        }
        O::prepare(table, staged.record);
        self.locks.linking(table, staged.record);
        let (link, linked) = match O::Locks::HOLDS && self.base.defers {
            false => (Link::Own, self.link(table, key, staged.record)),
            true => (Link::Deferred, self.defer(table, key, staged.record)),
        };
        let record = match linked {
            Ok(Linked::Linked) => {
                let (record, row_version) = (staged.record, record::row_version_of(staged.row));
                self.base.seen = Seen { record: Some(record), absent: true, ..Seen::default() };
                self.base.note_unlinked(table);
                self.base.writes.push(Write::new(table, record, row_version, link, self.base.by));
                self.touch(table, record);
                return Ok(Inserted::New);
            }
            Ok(Linked::Exists(record)) => record,
            refused => {
                record::clear_key(&mut self.base.core, table, staged.record);
                record::discard(&mut self.base.core, table, staged);
                return Err(match refused {
                    Err(error) => record::full(error),
                    _ => OpError::execute(Reason::GapLocked),
                });
            }
        };
        record::clear_key(&mut self.base.core, table, staged.record);
        self.overwrite(table, record, staged, exists)
    }

    /// Links a record whose key is set.
    #[inline(always)]
    fn link(&mut self, table: &Table, key: Key<'_>, record: RecordPtr) -> Result<Linked, OutOfMemory> {
        let Optimistic { base: Attempt { core, leaf_hints, .. }, node_set, .. } = self;
        let mut own = OwnChanges { node_set, table: table.id, last_changed: std::ptr::null() };
        let leaf_hint = leaf_hints.of(table, &key);
        // A panic could leave nodes latched.
        let insert = |core: &mut Core| {
            let cx = &mut core.store();
            abort_on_unwind("an insert", || table.index.insert_near(cx, key, leaf_hint, record, &mut own))
        };
        record::counting(core, table, insert)
    }

    /// As [`Optimistic::link`], where the record is to be linked at the decision. That its key has no record
    /// needs no node version: linking finds out.
    #[cold]
    fn defer(&mut self, table: &Table, key: Key<'_>, record: RecordPtr) -> Result<Linked, OutOfMemory> {
        let linked = self.base.find(table, key).ok();
        if let Some(record) = linked.or_else(|| self.base.writes.find_deferred(table, key)) {
            return Ok(Linked::Exists(record));
        }
        self.base.writes.reserve_deferred()?;
        self.base.writes.defer(table, record);
        Ok(Linked::Linked)
    }

    /// Links what was deferred: the decision begins. Unless something is refuted already, for then no node
    /// version is to move.
    ///
    /// # Errors
    /// A conflict; `abort` unlinks again.
    #[cold]
    pub fn link_deferred(&mut self) -> Result<(), OpError> {
        self.validate_executed()?;
        for at in 0..self.base.writes.deferred.len() {
            let Deferred { record, .. } = self.base.writes.deferred[at];
            let Some(entry) = self.base.writes.find(record) else { continue };
            let write = self.base.writes.entries()[entry];
            // That the key is absent is all that is left of it.
            if write.is_nothing() {
                self.note_undone(&write);
                continue;
            }
            let (table, key) = (write.table(), self.base.writes.deferred[at].key());
            match self.link(table, key, record).map_err(record::full)? {
                // An earlier row of the key needs no other note than that of the insertion. Its record would not have
                // been unlinked while this worker is online.
                Linked::Linked => self.base.writes.linked(entry),
                Linked::Exists(_) | Linked::Refused => {
                    return Err(self.record_conflict(Phase::Lock, ValidationFailure::Write(entry)));
                }
            }
        }
        self.base.writes.clear_deferred();
        Ok(())
    }

    /// An insert that found a linked record: live, deleted, or a placeholder.
    fn overwrite(
        &mut self,
        table: &Table,
        record: RecordPtr,
        staged: Staged,
        exists: OnExists,
    ) -> Result<Inserted, OpError> {
        let own = self.base.writes.find(record);
        let ((word, current), row, by) = match own {
            Some(own) => {
                let write = self.base.writes.entries()[own];
                self.note_own(&write);
                let row = (write.row_version != 0).then(|| record::row_of(write.row_version));
                ((write.expected, write.before), row, self.base.by)
            }
            None => {
                let access = if exists == OnExists::Replace { AccessPurpose::Writing } else { AccessPurpose::Reading };
                let (word, row_version, by) = match self.look(table, record, access) {
                    Ok(seen) => seen,
                    Err(error) => {
                        record::discard(&mut self.base.core, table, staged);
                        return Err(error);
                    }
                };
                ((word, row_version), (!word.is_absent()).then(|| record::row_of(row_version)), by)
            }
        };
        if let (Some(row), OnExists::Refuse) = (row, exists) {
            record::discard(&mut self.base.core, table, staged);
            if own.is_none() {
                self.note_read(table, record, word, by)?;
            }
            return Ok(Inserted::Exists(row));
        }
        // It was accessed to be read, and is to be written.
        if own.is_none()
            && exists == OnExists::Refuse
            && O::Locks::is_locked_at_access(word)
            && let Err(error) = self.look(table, record, AccessPurpose::Writing)
        {
            record::discard(&mut self.base.core, table, staged);
            return Err(error);
        }
        let row_version = record::detach(&mut self.base.core, table, staged, &mut self.base.writes.parts)?;
        match own {
            Some(own) => self.base.writes.replace(own, row_version, by),
            None => {
                let mut write = self.base.write_to(table, record, (word, current), by);
                write.row_version = row_version;
                self.base.writes.push(write);
            }
        }
        Ok(row.map_or(Inserted::New, Inserted::Replaced))
    }

    /// As [`seriatim_txn::Worker::update`]. `copies`: [`Variant::COPIES`](super::worker::Variant::COPIES).
    #[inline(always)]
    pub fn update(&mut self, table: &Table, key: Key<'_>, copies: bool) -> Result<Option<Updating>, OpError> {
        self.admit(table, key, AccessPurpose::Writing)?;
        // A run is read before it is updated.
        let found = if table.has_runs { self.find_again(table, key)? } else { self.find(table, key)? };
        let Some(record) = found else { return Ok(None) };
        if let Some(own) = self.base.writes.find(record) {
            let write = self.base.writes.entries()[own];
            self.note_own(&write);
            if write.row_version == 0 {
                return Ok(None);
            }
            let before = record::row_of(write.row_version);
            let row_version = record::copy_row(&mut self.base.core, table, before)?;
            self.base.writes.replace(own, row_version, self.base.by);
            return Ok(Some(Updating { before, after: record::row_of(row_version) }));
        }
        let (word, seen, by) = self.look(table, record, AccessPurpose::Writing)?;
        if word.is_absent() {
            return self.note_read(table, record, word, by).map(|()| None);
        }
        self.base.writes.reserve().map_err(record::full)?;
        let before = record::row_of(seen);
        let mut write = self.base.write_to(table, record, (word, seen), by);
        write.row_version = match copies {
            true => self.base.copy_row(&write, before)?,
            false => record::copy_row(&mut self.base.core, table, before)?,
        };
        self.base.writes.push(write);
        Ok(Some(Updating { before, after: record::row_of(write.row_version) }))
    }

    pub fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        self.admit(table, key, AccessPurpose::Writing)?;
        let Some(record) = self.find_again(table, key)? else { return Ok(None) };
        if let Some(own) = self.base.writes.find(record) {
            let write = self.base.writes.entries()[own];
            self.note_own(&write);
            if write.row_version == 0 {
                return Ok(None);
            }
            self.base.writes.replace(own, 0, self.base.by);
            return Ok(Some(record::row_of(write.row_version)));
        }
        let (word, seen, by) = self.look(table, record, AccessPurpose::Writing)?;
        if word.is_absent() {
            return self.note_read(table, record, word, by).map(|()| None);
        }
        self.base.writes.reserve().map_err(record::full)?;
        let write = self.base.write_to(table, record, (word, seen), by);
        self.base.writes.push(write);
        Ok(Some(record::row_of(seen)))
    }

    /// Whether the attempt may access the keys between these bounds.
    #[inline(always)]
    fn admit_range(&mut self, table: &Table, low: Bound<Key<'_>>, high: Bound<Key<'_>>) -> Result<(), OpError> {
        self.locks.admit_range(table, low, high).map_err(|error| self.kept_out(table, None, error))
    }

    /// As [`seriatim_txn::Worker::first`].
    #[inline(always)]
    pub fn first(&mut self, table: &Table, (mut low, high): (Key<'_>, Key<'_>)) -> Result<Option<RowPtr>, OpError> {
        if O::Locks::PARTITIONED {
            self.admit_range(table, Bound::Included(low), Bound::Included(high))?;
        }
        // Deferred records are in no leaf.
        while self.base.writes.deferred.is_empty() {
            let Attempt { core, leaf_hints, .. } = &mut self.base;
            let (leaf_hint, pin) = (leaf_hints.of(table, &low), core.local.pinned());
            let Some((head, node_version)) = table.index.head_near(low, high, leaf_hint, pin) else { break };
            self.note_node_version(table, node_version)?;
            for record in head.into_iter().flatten() {
                let row = self.read_record(table, record)?;
                if row.is_some() {
                    return Ok(row);
                }
            }
            // All are deleted. There may be more behind the last one, if the head is full.
            let [.., Some(last)] = head else { break };
            // SAFETY: key words of a linked record never change; the worker has been online since it was read.
            low = unsafe { read_key(last, table.class) };
        }
        Ok(None)
    }

    #[inline]
    pub fn scan_next(&mut self, table: &Table, scan: &mut Scan) -> Result<Option<RowPtr>, OpError> {
        if O::Locks::PARTITIONED
            && let Some((low, high)) = scan.cursor.range_ahead(table.class)
        {
            self.admit_range(table, low, high)?;
        }
        loop {
            while let Some(&record) = scan.cursor.records().get(scan.next) {
                scan.next += 1;
                self.bases.ranges.look(scan);
                if let Some(row) = self.read_record(table, record)? {
                    return Ok(Some(row));
                }
            }
            if scan.done {
                return Ok(None);
            }
            self.bases.ranges.exhaust(scan);
            scan.next = 0;
            let noted = self.bases.are_noted();
            scan.done = !if noted { self.next_leaf_noted(table, scan)? } else { self.next_leaf(table, scan) };
            if scan.done {
                return Ok(None);
            }
            if !noted {
                scan.note = 0;
                self.note_node_version(table, scan.cursor.node_version())?;
            }
        }
    }

    #[inline]
    pub(super) fn next_leaf(&mut self, table: &Table, scan: &mut Scan) -> bool {
        let Attempt { core, writes, leaf_hints, .. } = &mut self.base;
        let pin = core.local.pinned();
        let leaf_hint = leaf_hints.of(table, &scan.cursor.near_key(table.class));
        if !O::Locks::HOLDS || writes.deferred.is_empty() {
            return table.index.next_leaf(&mut scan.cursor, leaf_hint, pin);
        }
        // SAFETY: the keys of deferred records of the table are set, and the records are this attempt's until it ends.
        unsafe { table.index.next_leaf_with(&mut scan.cursor, leaf_hint, pin, || writes.deferred_of(table)) }
    }

    /// Undoes all writes since the savepoint. Reads in between stay. The words on which the writes would have built are
    /// noted as read, unless an earlier write of the same record still builds on them.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        let writes = &mut self.base.writes;
        let undone = writes.undone.len();
        writes.rollback_to(savepoint);
        self.bases.forget_writes();
        if self.base.core.injects(Fault::ForgetRolledBack) || !self.locks.notes() {
            return;
        }
        for at in undone..writes.undone.len() {
            let write = self.base.writes.undone[at];
            if write.link == Link::Deferred {
                self.note_undone(&write);
            } else if self.base.writes.find(write.record).is_none() && !O::Locks::is_locked_at_access(write.expected) {
                self.reads.push(Read::new(write.table(), write.record, write.expected, write.by));
            }
        }
    }

    /// Notes the absence that the insertion reported: as a placeholder that another transaction has linked
    /// there, or by the node version.
    #[cold]
    fn note_undone(&mut self, write: &Write<O>) {
        let (table, by) = (write.table(), write.by);
        let key = Deferred { table: write.table, record: write.record }.key();
        match self.base.find(table, key) {
            Ok(record) => self.reads.push(Read::new(table, record, TidWord::PLACEHOLDER, by)),
            Err(node_version) => self.node_set.push(NodeSetEntry { node_version, table: table.id, by }),
        }
    }

    /// The first entry of the read set that no longer holds. Inside a region, or under the locks of the write set, this
    /// is the decision (promise c). Otherwise it holds for the moment when the check began. A word that is unchanged
    /// when it is checked was unchanged then, so all values existed together.
    #[inline]
    pub fn validation_failure<A: Access>(
        access: &mut A,
        reads: &[Read<O>],
        node_set: &[NodeSetEntry<O>],
        writes: &WriteSet<O>,
    ) -> Option<ValidationFailure> {
        for (i, read) in reads.iter().enumerate() {
            let now = TidWord(access.load(read.word()));
            if now != read.seen
                && (now != read.seen.locked() || writes.find(read.record()).is_none())
                && !O::Locks::is_same_version(now, read.seen)
            {
                return Some(ValidationFailure::Read(i));
            }
        }
        Self::node_set_failure(access, node_set)
    }

    /// As [`Optimistic::validation_failure`], of absences and ranges.
    #[inline(always)]
    pub fn node_set_failure<A: Access>(access: &mut A, node_set: &[NodeSetEntry<O>]) -> Option<ValidationFailure> {
        let changed = |entry: &NodeSetEntry<O>| {
            // SAFETY: the worker has been online since it took the node version.
            let word = unsafe { &*entry.node_version.address() };
            access.load(word) != entry.node_version.value()
        };
        node_set.iter().position(changed).map(ValidationFailure::Node)
    }

    /// Promise (g): validates without committing.
    pub fn validate(&mut self) -> Result<(), OpError> {
        self.validate_or_rebase(false).map(drop)
    }

    /// As [`Optimistic::validate`], when the body has run: writes may be rebased on newer row versions.
    /// Returns whether the attempt was rebased.
    pub fn validate_executed(&mut self) -> Result<bool, OpError> {
        self.validate_or_rebase(true)
    }

    fn validate_or_rebase(&mut self, commits: bool) -> Result<bool, OpError> {
        let mut rebased = false;
        loop {
            // ORDERING: every word was loaded before, in an order all processors agree on, so that "unchanged
            // since" is about one instant.
            fence(Ordering::SeqCst);
            let Some(failure) = self.validation_failure_now() else { return Ok(rebased) };
            if let Err(by) = self.go_on(commits) {
                return Err(self.record_conflict(Phase::Validate, by.unwrap_or(failure)));
            }
            rebased = true;
        }
    }

    /// The first read, or version on which a write builds, that no longer holds.
    pub fn validation_failure_now(&self) -> Option<ValidationFailure> {
        let mut plain = Plain;
        Self::validation_failure(&mut plain, &self.reads, &self.node_set, &self.base.writes).or_else(|| {
            let mut stale = |write: &Write<O>| {
                TidWord(plain.load(record_header::tid_word(&write.table().record_layout, write.record)))
                    != write.expected
            };
            let stale = self.base.writes.entries().iter().position(&mut stale);
            stale.or_else(|| self.base.taken()).map(ValidationFailure::Write)
        })
    }

    /// Which operation noted the entry that failed validation.
    #[cfg(test)]
    pub fn origin(&self, failure: ValidationFailure) -> O {
        match failure {
            ValidationFailure::Read(i) => self.reads[i].by,
            ValidationFailure::Node(i) => self.node_set[i].by,
            ValidationFailure::Write(i) => self.base.writes.first(i).by,
        }
    }

    /// Its reads and writes, for the caller that orders the decisions of several transactions.
    pub fn prepared(&self) -> Prepared {
        let Optimistic { base: Attempt { core, writes, .. }, reads, node_set, locks, .. } = self;
        let columns = self.columns_written();
        let there = || writes.entries().iter().zip(&columns).filter(|(write, _)| write.link == Link::There);
        // A blind write builds on any version.
        let builds_on = || there().filter(|(_, (used, _))| !used.is_empty());
        let seen = |(write, _): (&Write<O>, _)| (write.record.addr(), write.expected.tid());
        let place = |deferred: &Deferred| deferred.table().index.get(deferred.key(), core.local.pinned()).err();
        let address = |node_version: &NodeVersion| node_version.address() as usize;
        let read = |read: &Read<O>| (read.record().addr(), read.seen.tid());
        let read_columns = self.columns_read().into_iter();
        Prepared {
            reads: reads.iter().map(read).chain(builds_on().map(seen)).collect(),
            read_columns: read_columns.chain(builds_on().map(|(_, (used, _))| *used)).collect(),
            writes: there().map(|(write, _)| write.record.addr()).collect(),
            write_columns: there().map(|(_, (_, changed))| *changed).collect(),
            nodes: node_set.iter().map(|entry| address(&entry.node_version)).collect(),
            waited: locks.has_waited(),
            inserts: writes.deferred.iter().filter_map(place).map(|node_version| address(&node_version)).collect(),
            ..Prepared::default()
        }
    }

    /// Announces the writes of the executed attempt from which this was prepared to other transactions.
    pub fn announce(&mut self, prepared: &Prepared) {
        if self.locks.has_announced() {
            return;
        }
        let there = self.base.writes.entries().iter().filter(|write| write.link == Link::There);
        for (write, &changed) in there.zip(&prepared.write_columns) {
            self.locks.announce(write.table, write.record, changed);
        }
    }

    /// Ends an attempt that failed.
    pub fn abandon(&mut self, claim: &impl Claim) {
        self.locks.release(&self.base.core);
        self.base.abandon(claim);
    }

    /// Whether all notes are of one version and its TID is the newest that was seen: a transaction that overwrites it
    /// has a TID above. (The TID of an absence may be older than deletions that were unlinked since.)
    pub fn saw_one_version(&self) -> bool {
        let one = self.reads.iter().all(|read| read.seen.tid() == self.base.newest);
        one && self.reads.len() <= 1 && self.node_set.is_empty()
    }

    /// Commits an attempt that wrote nothing: its place is the start of validation, when every word noted was
    /// unchanged. One word alone needs no validation.
    #[inline]
    pub fn commit_read_only(&mut self, claim: &impl Claim) -> Result<Outcome, OpError> {
        // Notes from before a lock was taken may have become stale by then.
        let locks = self.locks.holds_any();
        if self.reads.len() + self.node_set.len() > usize::from(!locks) {
            self.validate_executed()?;
        }
        Ok(self.end_read_only(claim))
    }

    /// Ends an attempt that wrote nothing and has been validated.
    #[inline]
    pub fn end_read_only(&mut self, claim: &impl Claim) -> Outcome {
        let newest = self.base.newest;
        self.locks.release(&self.base.core);
        self.base.finish(claim);
        Outcome::Committed(newest)
    }

    /// The error for an entry that failed validation.
    #[cold]
    pub fn record_conflict(&mut self, phase: Phase, failure: ValidationFailure) -> OpError {
        let might_pass = self.bases.refuted();
        let changed = Cause { phase, reason: Reason::RecordChanged };
        match failure {
            ValidationFailure::Node(i) => {
                let cause = Cause { phase, reason: Reason::MembershipChanged };
                self.base.conflict_info = Some(ConflictInfo { cause, table: Some(self.node_set[i].table), key: None });
                OpError::Abort(cause)
            }
            ValidationFailure::Write(i) => {
                let Write { record, .. } = self.base.writes.entries()[i];
                let table = self.base.writes.entries()[i].table();
                self.locks.failed(&self.base.core, table.id, record, might_pass);
                self.base.conflict_at(changed, table, record)
            }
            ValidationFailure::Read(i) => {
                let read = self.reads[i];
                self.locks.failed(&self.base.core, read.table(), read.record(), might_pass);
                self.base.conflict_info =
                    Some(ConflictInfo { cause: changed, table: Some(read.table()), key: Some(read.key()) });
                OpError::Abort(changed)
            }
        }
    }
}

/// Keeps the node set true under the attempt's own inserts: a leaf in it may change through itself.
struct OwnChanges<'a, O> {
    node_set: &'a mut CountedVec<NodeSetEntry<O>>,
    table: TableId,
    /// The last word that `changed` found in the node set.
    last_changed: *const AtomicU64,
}

impl<O: Origin> Observer for OwnChanges<'_, O> {
    const ADMITS: bool = false;

    #[inline]
    fn changed(&mut self, word: &AtomicU64, before: u64, after: u64) {
        for entry in self.node_set.iter_mut() {
            if std::ptr::eq(entry.node_version.address(), word) && entry.node_version.value() == before {
                entry.node_version = NodeVersion::new(word, after);
                self.last_changed = word;
            }
        }
    }

    fn created(&mut self, from: &AtomicU64, _: u64, word: &AtomicU64, value: u64, _: &AtomicU64) {
        if std::ptr::eq(self.last_changed, from) {
            let (node_version, table) = (NodeVersion::new(word, value), self.table);
            if !O::CARRIED {
                self.node_set.push(NodeSetEntry { node_version, table, by: O::default() });
                return;
            }
            // Every operation that saw the old node owes the new one.
            for at in 0..self.node_set.len() {
                let NodeSetEntry { node_version: seen, by, .. } = self.node_set[at];
                if std::ptr::eq(seen.address(), from) {
                    self.node_set.push(NodeSetEntry { node_version, table, by });
                }
            }
        }
    }
}

/// Unlinking under the lock bit of the TID word.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockBit;

impl Claim for LockBit {
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<TidWord> {
        let word = record_header::tid_word(&table.record_layout, record);
        let seen = TidWord(word.load(Ordering::Relaxed));
        if seen.is_locked() || seen.is_reserved() {
            return None;
        }
        let exchange = || word.compare_exchange(seen.0, seen.locked().0, Ordering::AcqRel, Ordering::Relaxed);
        core.htm.outside(exchange).is_ok().then_some(seen)
    }

    fn give(&self, core: &Core, table: &Table, record: RecordPtr, word: TidWord) {
        // ORDERING: pairs with the acquire of a reader that finds the record in a leaf it copied before.
        core.htm.outside(|| record_header::tid_word(&table.record_layout, record).store(word.0, Ordering::Release));
    }
}
