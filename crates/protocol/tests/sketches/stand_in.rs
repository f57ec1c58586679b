//! What the sketches share in place of `shared/`: records in a real index, a log of private writes, one commit body.
//!
//! A header begins with two words: the version word (TID, HOT, LOCKED) and the address of the newest row version (0: no
//! row). Only fixed-width keys, no fixed parts, no out-of-line values; placeholders and tombstones stay linked for ever.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::{Epoch, Tid};
use seriatim_catalog::Key;
use seriatim_htm::{Access, Body, BodyError, NoLocks};
use seriatim_store::{Inserted as Linked, NodeVersion, RecordPtr, Unobserved, out_of_line_bytes, write_key};
use seriatim_txn::{
    Before, Cause, ConflictInfo, Core, Inserted, OnExists, OpError, Peeked, Phase, Reason, Redo, RowPtr, Savepoint,
    Scan, Seen, Staged, Table, Updating,
};

pub(crate) const LOCKED: u64 = 1;
pub(crate) const HOT: u64 = 2;
const FLAGS: u32 = 2;

/// The version word after a commit.
pub(crate) fn versioned(tid: Tid, flags: u64) -> u64 {
    tid.bits() << FLAGS | flags
}

pub(crate) fn tid_of(word: u64) -> Tid {
    Tid::from_bits(word >> FLAGS)
}

/// A conflict found in this phase.
pub(crate) fn conflict(phase: Phase, reason: Reason) -> OpError {
    OpError::Abort(Cause { phase, reason })
}

/// A record read: the version word seen, and which operation or piece of the procedure read it first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) table: NonNull<Table>,
    pub(crate) record: RecordPtr,
    pub(crate) seen: u64,
    pub(crate) part: u16,
}

/// A private write. The log may hold several of one record: the last one counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) table: NonNull<Table>,
    pub(crate) record: RecordPtr,
    /// The version word it builds on.
    pub(crate) seen: u64,
    /// Zero: a delete.
    pub(crate) row_version: usize,
    pub(crate) part: u16,
}

// SAFETY: tables outlive workers; records are followed while the worker is online.
unsafe impl Send for Read {}
// SAFETY: as above.
unsafe impl Send for Write {}

impl Read {
    pub(crate) fn version(&self) -> &AtomicU64 {
        // SAFETY: tables outlive workers.
        version(unsafe { self.table.as_ref() }, self.record)
    }
}

impl Write {
    pub(crate) fn table<'t>(&self) -> &'t Table {
        // SAFETY: tables outlive workers.
        unsafe { self.table.as_ref() }
    }

    pub(crate) fn version(&self) -> &AtomicU64 {
        version(self.table(), self.record)
    }

    pub(crate) fn newest(&self) -> &AtomicU64 {
        newest(self.table(), self.record)
    }
}

/// The version word of a record.
pub(crate) fn version<'t>(table: &Table, record: RecordPtr) -> &'t AtomicU64 {
    // SAFETY: every sketch's head has two words; the record lives while its finder is online.
    unsafe { table.record_layout.header_word(record, 0) }
}

/// The version word of a record.
pub(crate) fn newest<'t>(table: &Table, record: RecordPtr) -> &'t AtomicU64 {
    // SAFETY: as above.
    unsafe { table.record_layout.header_word(record, 1) }
}

/// The row of a row version, if there is one.
pub(crate) fn row_of(table: &Table, row_version: usize) -> Option<RowPtr> {
    let row = if row_version == 0 { 0 } else { row_version + table.record_layout.version_header };
    NonNull::new(row as *mut u8)
}

/// What `peek_committed` finds where the version word and the row version have been read.
pub(crate) fn peeked(word: u64, row: Option<RowPtr>) -> Peeked {
    match (tid_of(word), row) {
        (Tid::ZERO, _) => Peeked::NeverCommitted,
        (tid, None) => Peeked::Deleted(tid),
        (tid, Some(row)) => Peeked::Row(tid, row),
    }
}

/// The row versions that writes are going to replace: as long as a record has the word its write builds on, it has this
/// row version.
pub(crate) fn replaced(writes: &[Write]) -> Vec<usize> {
    writes.iter().map(|write| write.newest().load(Ordering::Acquire) as usize).collect()
}

/// Reports writes with the row versions they replaced; `row` tells a row version's row, if it has one.
pub(crate) fn report(
    writes: &[Write],
    replaced: &[usize],
    tid: Tid,
    redo: &mut dyn Redo,
    row: impl Fn(&Table, usize) -> Option<RowPtr>,
) {
    for (write, &before) in writes.iter().zip(replaced) {
        // SAFETY: key words of a linked record never change.
        let key = unsafe { seriatim_store::read_key(write.record, write.table().class) };
        let (before, after) = (row(write.table(), before), row(write.table(), write.row_version));
        if before.is_some() || after.is_some() {
            let before = before.map(|row| Before { tid: tid_of(write.seen), row });
            redo.write(write.table(), key, tid, before, after);
        }
    }
}

/// Version word and row version of a record, from one moment. `None`: a commit is at work.
pub(crate) fn look_once(table: &Table, record: RecordPtr) -> Option<(u64, usize)> {
    let word = version(table, record).load(Ordering::Acquire);
    let row_version = newest(table, record).load(Ordering::Acquire) as usize;
    // ORDERING: the row version was loaded with acquire, so this comes after; a new row version implies that the word
    // was locked.
    let settled = word & LOCKED == 0 && version(table, record).load(Ordering::Relaxed) == word;
    settled.then_some((word, row_version))
}

/// One attempt's reads, absences and private writes.
pub(crate) struct Ground {
    pub(crate) core: Core,
    pub(crate) reads: Vec<Read>,
    pub(crate) absences: Vec<NodeVersion>,
    pub(crate) writes: Vec<Write>,
    /// The operation or piece that runs.
    pub(crate) part: u16,
    pub(crate) newest: Tid,
    pub(crate) seen: Seen,
    pub(crate) conflict_info: Option<ConflictInfo>,
}

impl Ground {
    pub(crate) fn new(core: Core) -> Ground {
        let (newest, seen) = (Tid::ZERO, Seen::default());
        let (reads, absences, writes) = (Vec::new(), Vec::new(), Vec::new());
        Ground { core, reads, absences, writes, part: 0, newest, seen, conflict_info: None }
    }

    pub(crate) fn enter(&mut self) {
        self.core.local.enter();
        (self.part, self.newest, self.conflict_info) = (0, Tid::ZERO, None);
    }

    pub(crate) fn leave(&mut self) {
        self.forget_all();
        self.core.local.leave();
    }

    pub(crate) fn forget_all(&mut self) {
        self.reads.clear();
        self.absences.clear();
        self.writes.clear();
    }

    /// Notes why the attempt stops (promise f).
    pub(crate) fn fail(&mut self, phase: Phase, reason: Reason) -> OpError {
        let cause = Cause { phase, reason };
        self.conflict_info = Some(ConflictInfo { cause, table: None, key: None });
        OpError::Abort(cause)
    }

    /// The record at `key`; `None` after noting its absence.
    pub(crate) fn find(&mut self, table: &Table, key: Key<'_>) -> Option<RecordPtr> {
        match table.index.get(key, self.core.local.pinned()) {
            Ok(record) => Some(record),
            Err(node_version) => {
                self.absences.push(node_version);
                self.seen = Seen { absent: true, ..Seen::default() };
                None
            }
        }
    }

    /// The attempt's own newest write of a record.
    pub(crate) fn own(&self, record: RecordPtr) -> Option<Write> {
        self.writes.iter().rev().find(|write| write.record == record).copied()
    }

    /// Version word and row version of a record, from one moment. `None`: locked for longer than the bound.
    pub(crate) fn look(&mut self, table: &Table, record: RecordPtr) -> Option<(u64, usize)> {
        let mut backoff = seriatim_base::Backoff::new();
        loop {
            if let Some((word, row_version)) = look_once(table, record) {
                self.newest = self.newest.max(tid_of(word));
                self.seen = Seen { record: Some(record), tid: tid_of(word), absent: row_version == 0, own: false };
                return Some((word, row_version));
            }
            if !backoff.wait() {
                return None;
            }
        }
    }

    /// An optimistic read: own writes first, then the newest version, noted.
    pub(crate) fn read_record(&mut self, table: &Table, record: RecordPtr) -> Result<Option<RowPtr>, OpError> {
        if let Some(own) = self.own(record) {
            self.seen = Seen { record: Some(record), tid: tid_of(own.seen), absent: own.row_version == 0, own: true };
            return Ok(row_of(table, own.row_version));
        }
        let Some((word, row_version)) = self.look(table, record) else {
            return Err(self.fail(Phase::Execute, Reason::RecordLocked));
        };
        self.reads.push(Read { table: NonNull::from(table), record, seen: word, part: self.part });
        Ok(row_of(table, row_version))
    }

    /// Opens a record for update on the word it builds on.
    pub(crate) fn update_record(
        &mut self,
        table: &Table,
        record: RecordPtr,
        seen: u64,
        before: RowPtr,
    ) -> Result<Updating, OpError> {
        let row_version = self.copy(table, before)?;
        self.writes.push(Write { table: NonNull::from(table), record, seen, row_version, part: self.part });
        Ok(Updating { before, after: row_of(table, row_version).expect("a row version has a row") })
    }

    /// A private row version with this row. What an attempt does not install is left to the arena: sketches are short-lived.
    pub(crate) fn copy(&mut self, table: &Table, row: RowPtr) -> Result<usize, OpError> {
        let record_layout = &table.record_layout;
        let row_version = self.core.local.allocate(&mut self.core.outside, record_layout.row_version_bytes());
        let row_version = row_version.map_err(|_| OpError::execute(Reason::OutOfMemory))?;
        // SAFETY: both are `record_layout.row` bytes; rows do not change while we are online.
        unsafe {
            row_version.write_bytes(0, record_layout.version_header);
            row_version.add(record_layout.version_header).copy_from_nonoverlapping(row, record_layout.row);
        }
        Ok(row_version.as_ptr() as usize)
    }

    pub(crate) fn stage(&mut self, table: &Table) -> Result<Staged, OpError> {
        let record_layout = &table.record_layout;
        let memory = self.core.local.allocate(&mut self.core.outside, record_layout.record);
        let memory = memory.map_err(|_| OpError::execute(Reason::OutOfMemory))?;
        // SAFETY: the allocation is that long and ours.
        unsafe { memory.write_bytes(0, record_layout.record) };
        // SAFETY: as above.
        let (record, row) = unsafe {
            (RecordPtr::from_raw(memory), memory.add(record_layout.row_version + record_layout.version_header))
        };
        Ok(Staged { record, row, fixed: NonNull::dangling() })
    }

    pub(crate) fn discard(&mut self, table: &Table, staged: Staged) {
        let memory = NonNull::new(staged.record.as_ptr()).expect("records are somewhere");
        // SAFETY: staged, so nobody else has it.
        unsafe { self.core.local.release(memory, table.record_layout.record) };
    }

    /// Links a staged record as a placeholder; the one that is there already, if one is.
    pub(crate) fn link(&mut self, table: &Table, key: Key<'_>, staged: Staged) -> Result<Option<RecordPtr>, OpError> {
        assert_eq!(out_of_line_bytes(key), 0, "sketches have keys of fixed width");
        // SAFETY: staged, so nobody else has it; the key needs no out-of-line value.
        unsafe { write_key(staged.record, key, None) };
        match table.index.insert(&mut self.core.store(), key, staged.record, &mut Unobserved) {
            Ok(Linked::Linked) => Ok(None),
            Ok(Linked::Exists(record)) => Ok(Some(record)),
            Ok(Linked::Refused) => Err(self.fail(Phase::Execute, Reason::GapLocked)),
            Err(_) => Err(self.fail(Phase::Execute, Reason::OutOfMemory)),
        }
    }

    /// An insert whose row stays private until commit.
    pub(crate) fn insert(
        &mut self,
        table: &Table,
        key: Key<'_>,
        staged: Staged,
        exists: OnExists,
    ) -> Result<Inserted, OpError> {
        let part = self.part;
        let Some(record) = self.link(table, key, staged)? else {
            let row_version = staged.record.addr() + table.record_layout.row_version;
            self.writes.push(Write { table: NonNull::from(table), record: staged.record, seen: 0, row_version, part });
            return Ok(Inserted::New);
        };
        let row = self.read_record(table, record);
        if let (Ok(Some(row)), OnExists::Refuse) = (row, exists) {
            self.discard(table, staged);
            return Ok(Inserted::Exists(row));
        }
        let seen = match self.own(record) {
            Some(own) => own.seen,
            None => self.reads.last().map_or(0, |read| read.seen),
        };
        let written = row.and_then(|row| self.update_record(table, record, seen, staged.row).map(|_| row));
        self.discard(table, staged);
        written.map(|row| row.map_or(Inserted::New, Inserted::Replaced))
    }

    /// Each leaf's node version is noted, then each of its records is read by `read`.
    pub(crate) fn next_leaf(&mut self, table: &Table, scan: &mut Scan) -> bool {
        scan.next = 0;
        scan.done = !table.index.next_leaf(&mut scan.cursor, self.core.local.pinned());
        if !scan.done {
            self.absences.push(scan.cursor.node_version());
        }
        !scan.done
    }

    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        self.writes.truncate(savepoint.0);
    }

    /// The log with one entry a record: the last.
    pub(crate) fn effective(&self) -> Vec<Write> {
        let last = |i: usize, write: &Write| self.writes[i + 1..].iter().all(|later| later.record != write.record);
        self.writes.iter().enumerate().filter(|(i, write)| last(*i, write)).map(|(_, write)| *write).collect()
    }

    /// Indexes of the reads that no longer hold; `writes` is what the attempt itself would lock.
    pub(crate) fn stale(&self) -> Vec<Read> {
        self.reads.iter().filter(|read| read.version().load(Ordering::Acquire) != read.seen).copied().collect()
    }

    pub(crate) fn validate(&mut self) -> Result<(), OpError> {
        // SAFETY: online since the node versions were taken.
        let absent = self.absences.iter().all(|node_version| unsafe { node_version.still_valid() });
        if absent && self.stale().is_empty() {
            return Ok(());
        }
        Err(self.fail(Phase::Validate, if absent { Reason::RecordChanged } else { Reason::MembershipChanged }))
    }

    /// Validates and installs in one region, or word by word under the lock bits where there is none (DBX, Algorithm 1).
    /// `holds`: a word that must have this value at that instant. `None`: refused, and nothing was stored.
    pub(crate) fn decide(&mut self, writes: &[Write], holds: Option<(&AtomicU64, u64)>) -> Option<Tid> {
        let Ground { core, reads, absences, newest, .. } = self;
        let epoch = core.epochs.word();
        let mut body = Decide { reads, absences, writes, newest: *newest, epoch, holds };
        core.agent.run(&mut core.outside, &NoLocks, &mut body).ok()
    }
}

struct Decide<'a> {
    reads: &'a [Read],
    absences: &'a [NodeVersion],
    writes: &'a [Write],
    newest: Tid,
    epoch: &'a AtomicU64,
    holds: Option<(&'a AtomicU64, u64)>,
}

// SAFETY: the words belong to records and nodes found while the worker was online, which it is until `run` returns.
unsafe impl Body for Decide<'_> {
    type Output = Tid;

    fn run<A: Access>(&mut self, access: &mut A) -> Result<Tid, BodyError> {
        let unlock = |access: &mut A, locked: usize| {
            if !A::REGION {
                self.writes[..locked].iter().for_each(|write| access.store(write.version(), write.seen));
            }
        };
        for (i, write) in self.writes.iter().enumerate() {
            if !access.lock(write.version(), write.seen, write.seen | LOCKED) {
                unlock(access, i);
                return Err(BodyError::Refused(1));
            }
        }
        let tid = self.newest.next(Epoch(access.load(self.epoch)));
        if self.holds.is_some_and(|(word, value)| access.load(word) != value) {
            unlock(access, self.writes.len());
            return Err(BodyError::Refused(3));
        }
        for read in self.reads {
            let now = access.load(read.version());
            let own = || self.writes.iter().any(|write| write.record == read.record);
            if now != read.seen && !(now == read.seen | LOCKED && own()) {
                unlock(access, self.writes.len());
                return Err(BodyError::Refused(2));
            }
        }
        for node_version in self.absences {
            // SAFETY: as above.
            if access.load(unsafe { &*node_version.address() }) != node_version.value() {
                unlock(access, self.writes.len());
                return Err(BodyError::Refused(2));
            }
        }
        for write in self.writes {
            access.store(write.newest(), write.row_version as u64);
            access.store(write.version(), versioned(tid, write.seen & HOT));
        }
        Ok(tid)
    }
}

/// The methods of a worker that are alike in all sketches. They use `self.ground`, `self.find` and `self.read_record`.
macro_rules! common_methods {
    () => {
        fn prefetch(&mut self, table: &Table, key: Key<'_>) {
            table.index.prefetch_bucket(key);
        }
        fn advance_prefetch(&mut self) {}
        fn read(&mut self, table: &Table, key: Key<'_>, _: ColumnSet) -> Result<Option<RowPtr>, OpError> {
            match self.find(table, key) {
                Some(record) => self.read_record(table, record),
                None => Ok(None),
            }
        }
        fn scan_next(&mut self, table: &Table, scan: &mut Scan, _: ColumnSet) -> Result<Option<RowPtr>, OpError> {
            loop {
                while let Some(&record) = scan.cursor.records().get(scan.next) {
                    scan.next += 1;
                    if let Some(row) = self.read_record(table, record)? {
                        return Ok(Some(row));
                    }
                }
                if scan.done || !self.ground.next_leaf(table, scan) {
                    return Ok(None);
                }
            }
        }
        fn stage(&mut self, table: &Table) -> Result<Staged, OpError> {
            self.ground.stage(table)
        }
        fn discard(&mut self, table: &Table, staged: Staged) {
            self.ground.discard(table, staged);
        }
        fn out_of_line(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
            // No long columns: only the empty out-of-line value can be had.
            if bytes.is_empty() { Ok(0) } else { Err(OutOfMemory) }
        }
        fn out_of_line_room(&mut self, _: usize) -> Result<u64, OutOfMemory> {
            Err(OutOfMemory)
        }
        fn seen(&self) -> Seen {
            self.ground.seen
        }
        fn newest(&self) -> Tid {
            // Tombstones stay linked: a key without a record was never there.
            self.ground.newest
        }
        fn conflict_info(&self) -> Option<&ConflictInfo> {
            self.ground.conflict_info.as_ref()
        }
        fn collect_garbage(&mut self, _: usize) {}
        fn core(&mut self) -> &mut Core {
            &mut self.ground.core
        }
    };
}
