//! The worker of a protocol that locks: strict two-phase locking of records and gaps. A variant decides
//! whether an older transaction waits for younger ones (wait-die), or none waits (no-wait); `lock.rs` defines
//! the effect on a lock.
//!
//! An operation that must wait has changed nothing, and may be repeated. A scan keeps its position, and a staged row
//! still belongs to the caller.

mod gap;
mod lock;

use std::sync::atomic::Ordering;
use std::time::Duration;

use seriatim_base::thread::Touch;
use seriatim_base::{Backoff, Tid, abort_on_unwind};
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::OutOfMemory;
use seriatim_store::{Cursor, Inserted as Linked, NodeVersion, RecordPtr};
use seriatim_txn::{
    Cause, ConflictInfo, Core, Fault, Inserted, Mode, OnExists, OpError, Outcome, Phase, Priority, Reason, Redo,
    RowPtr, Savepoint, Scan, Seen, Staged, Table, Updating,
};

use super::attempt::Attempt;
use super::record_header::{self, Plain, TidWord};
use super::writes::{Link, Write};
use super::{gc, record};
pub use gap::GapClaim;
use gap::Gaps;
use lock::{Locks, Request};
pub use lock::{OWN_WORDS, of as lock_of};

/// Lookups repeated because the record found was unlinked meanwhile; each repeat means another worker made progress.
const LOOKUPS_MAX: u32 = 64;

/// A worker of a protocol that locks.
pub struct Worker<const WAITS: bool> {
    base: Attempt,
    locks: Locks<WAITS>,
    /// How often a refused lock of a record is requested again.
    steps: u32,
    wait_max: Duration,
    /// The priority of the last transaction that came without one.
    drawn: Priority,
}

/// A record under at least a shared lock, or the proof that there is none.
enum Lookup {
    Record(RecordPtr, TidWord),
    /// Its gap is locked.
    Absent,
}

impl<const WAITS: bool> Worker<WAITS> {
    pub fn new(core: Core, steps: u32, wait_max: Duration) -> Worker<WAITS> {
        let locks = Locks::new(core.htm.clone(), &core.local, core.injects(Fault::YoungerWaits));
        Worker { base: Attempt::new(core), locks, steps, wait_max, drawn: Priority::NONE }
    }

    #[cold]
    fn refuse(&mut self, table: &Table, record: RecordPtr) -> OpError {
        self.base.conflict_at(Cause { phase: Phase::Execute, reason: Reason::RecordLocked }, table, record)
    }

    #[cold]
    fn refuse_gap(&mut self, table: &Table, reason: Reason) -> OpError {
        let cause = Cause { phase: Phase::Execute, reason };
        self.base.conflict_info = Some(ConflictInfo { cause, table: Some(table.id), key: None });
        OpError::Abort(cause)
    }

    /// Takes the record in the wanted mode. `None`: it was unlinked before we had it.
    fn take(&mut self, table: &Table, record: RecordPtr, exclusive: bool) -> Result<Option<TidWord>, OpError> {
        self.locks.reserve().map_err(record::full)?;
        let word = lock::of(table, record);
        let mut backoff = Backoff::bounded(self.steps);
        loop {
            match if exclusive { self.locks.exclusive(word) } else { self.locks.shared(word) } {
                Request::Taken => break,
                Request::Refused if backoff.wait() => {}
                Request::Refused => return Err(self.refuse(table, record)),
                Request::Wait => {
                    // Should the wait be given up, this is where.
                    let _ = self.refuse(table, record);
                    return Err(OpError::Wait);
                }
            }
        }
        let header = TidWord(record_header::tid_word(&table.record_layout, record).load(Ordering::Acquire));
        self.base.note_tid(table, header.tid());
        if header.is_removed() {
            return Ok(None);
        }
        self.base.seen = Seen { record: Some(record), tid: header.tid(), absent: header.is_absent(), own: false };
        Ok(Some(header))
    }

    /// The record at `key`, locked; an absence is locked too.
    fn find(&mut self, table: &Table, key: Key<'_>, exclusive: bool) -> Result<Lookup, OpError> {
        for _ in 0..LOOKUPS_MAX {
            match self.base.find(table, key) {
                Ok(record) => {
                    if let Some(header) = self.take(table, record, exclusive)? {
                        return Ok(Lookup::Record(record, header));
                    }
                }
                Err(_) => {
                    self.base.seen = Seen { absent: true, ..Seen::default() };
                    if self.lock_gap(table, key)? {
                        return Ok(Lookup::Absent);
                    }
                }
            }
        }
        Err(self.refuse_gap(table, Reason::MembershipChanged))
    }

    /// Locks the gap of the leaf or bucket where `key` would be. `false`: it appeared meanwhile, look again.
    fn lock_gap(&mut self, table: &Table, key: Key<'_>) -> Result<bool, OpError> {
        let found = table.index.get_or_gap(key, self.base.core.local.pinned());
        let Err((node_version, gap)) = found else { return Ok(false) };
        self.locks.reserve().map_err(record::full)?;
        crate::step(Touch::Header, gap);
        let taken = self.base.core.injects(Fault::DropNodeVersion) || self.locks.shared(gap) == Request::Taken;
        self.note_gap(table, node_version, taken).map(|()| true)
    }

    /// Locks the gap of the cursor's leaf.
    fn note_leaf(&mut self, table: &Table, cursor: &Cursor) -> Result<(), OpError> {
        self.locks.reserve().map_err(record::full)?;
        // SAFETY: online since the cursor moved.
        let gap = unsafe { cursor.gap(self.base.core.local.pinned()) };
        crate::step(Touch::Header, gap);
        let taken = self.base.core.injects(Fault::DropNodeVersion) || self.locks.shared(gap) == Request::Taken;
        self.note_gap(table, cursor.node_version(), taken)
    }

    /// Makes sure that what was read of a leaf or bucket is what the lock on its gap protects, if that was `taken`.
    fn note_gap(&mut self, table: &Table, node_version: NodeVersion, taken: bool) -> Result<(), OpError> {
        if self.base.core.injects(Fault::DropNodeVersion) {
            return Ok(());
        }
        if !taken {
            return Err(self.refuse_gap(table, Reason::GapLocked));
        }
        // SAFETY: online since it was taken.
        if unsafe { node_version.still_valid() } {
            self.base.note_unlinked(table);
            Ok(())
        } else {
            Err(self.refuse_gap(table, Reason::MembershipChanged))
        }
    }

    /// Links a staged record, exclusively locked. Returns the record of the key if there is one already; the
    /// caller then owns `staged`.
    fn link(&mut self, table: &Table, key: Key<'_>, staged: &Staged) -> Result<Option<RecordPtr>, OpError> {
        let record = staged.record;
        let room = self.locks.reserve().and_then(|()| self.base.writes.reserve()).map_err(record::full);
        if let Err(error) = room.and_then(|()| record::set_key(&mut self.base.core, table, record, key)) {
            record::release(&mut self.base.core, record.addr(), table.record_layout.record);
            return Err(error);
        }
        let word = lock::of(table, record);
        // ORDERING: linking publishes the record with release.
        word.store(self.locks.written(), Ordering::Relaxed);
        let Worker { base, locks, .. } = self;
        let leaf_hint = base.leaf_hints.of(table, &key);
        // A panic could leave nodes latched.
        let mut gaps = Gaps::new(locks);
        let insert = |core: &mut Core| {
            let cx = &mut core.store();
            abort_on_unwind("an insert", || table.index.insert_near(cx, key, leaf_hint, record, &mut gaps))
        };
        let linked = record::counting(&mut base.core, table, insert);
        let kept_out = gaps.kept_out;
        match linked {
            Ok(Linked::Linked) => {
                self.locks.note(word, true);
                if WAITS {
                    self.locks.stop_waiting();
                }
                self.base.note_unlinked(table);
                Ok(None)
            }
            Ok(Linked::Exists(other)) => {
                record::clear_key(&mut self.base.core, table, record);
                Ok(Some(other))
            }
            Ok(Linked::Refused) | Err(_) => {
                record::clear_key(&mut self.base.core, table, record);
                // SAFETY: of a leaf or bucket that this attempt found; it is online.
                let gap = kept_out.filter(|_| linked.is_ok()).map(|gap| unsafe { &*gap });
                let request = gap.map_or(Request::Refused, |gap| self.locks.kept_out(gap));
                let refused = self.refuse_gap(table, Reason::GapLocked);
                if request == Request::Wait {
                    return Err(OpError::Wait);
                }
                record::release(&mut self.base.core, record.addr(), table.record_layout.record);
                Err(linked.map_or_else(record::full, |_| refused))
            }
        }
    }

    fn own(&mut self, record: RecordPtr) -> Option<(usize, Write)> {
        let at = self.base.writes.find(record)?;
        let write = self.base.writes.entries()[at];
        self.base.note_own(&write);
        Some((at, write))
    }

    fn row(&mut self, table: &Table, record: RecordPtr, header: TidWord) -> Option<RowPtr> {
        if let Some((_, write)) = self.own(record) {
            return (write.row_version != 0).then(|| record::row_of(write.row_version));
        }
        // Stable: we hold its lock.
        let row_version = record_header::row_version(&table.record_layout, record).load(Ordering::Acquire) as usize;
        (!header.is_absent()).then(|| record::row_of(row_version))
    }
}

impl<const WAITS: bool> seriatim_txn::Worker for Worker<WAITS> {
    fn begin(&mut self, _: Mode, priority: Priority) {
        self.base.begin();
        if WAITS && priority == Priority::NONE {
            // Without a database, which draws priorities.
            let Core { epochs, local, .. } = &self.base.core;
            self.drawn = self.drawn.next(epochs.current().0, local.worker().index());
            self.locks.begin(self.drawn);
        } else {
            self.locks.begin(priority);
        }
    }

    fn wait_max(&self) -> Duration {
        self.wait_max
    }

    fn read(&mut self, table: &Table, key: Key<'_>, _: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        match self.find(table, key, false)? {
            Lookup::Record(record, header) => Ok(self.row(table, record, header)),
            Lookup::Absent => Ok(None),
        }
    }

    #[inline]
    fn prefetch(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) {
        self.base.prefetch(table, key, columns);
    }

    #[inline]
    fn advance_prefetch(&mut self) {
        self.base.advance_prefetch();
    }

    fn stage(&mut self, table: &Table) -> Result<Staged, OpError> {
        record::stage(&mut self.base.core, table)
    }

    fn discard(&mut self, table: &Table, staged: Staged) {
        record::discard(&mut self.base.core, table, staged);
    }

    fn out_of_line(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        self.base.out_of_line(bytes)
    }

    fn out_of_line_room(&mut self, bytes: usize) -> Result<u64, OutOfMemory> {
        self.base.out_of_line_room(bytes)
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        for _ in 0..LOOKUPS_MAX {
            let Some(other) = self.link(table, key, &staged)? else {
                let row_version = record::row_version_of(staged.row);
                self.base.seen = Seen { record: Some(staged.record), absent: true, ..Seen::default() };
                self.base.writes.push(Write::new(table, staged.record, row_version, Link::Own, ()));
                return Ok(Inserted::New);
            };
            let taken = self.take(table, other, false).and_then(|header| match header {
                Some(header) if header.is_absent() || exists == OnExists::Replace => self.take(table, other, true),
                same => Ok(same),
            });
            let header = match taken {
                Ok(Some(header)) => header,
                // Unlinked meanwhile: link again.
                Ok(None) => continue,
                Err(error @ OpError::Wait) => return Err(error),
                Err(error) => {
                    record::discard(&mut self.base.core, table, staged);
                    return Err(error);
                }
            };
            let row = self.row(table, other, header);
            if let (Some(row), OnExists::Refuse) = (row, exists) {
                record::discard(&mut self.base.core, table, staged);
                return Ok(Inserted::Exists(row));
            }
            // Our own delete of a live row has the lock already; so has every other path that gets here.
            let row_version = record::detach(&mut self.base.core, table, staged, &mut self.base.writes.parts)?;
            match self.base.writes.find(other) {
                Some(own) => self.base.writes.replace(own, row_version, ()),
                None => self.note(table, other, (header, row), row_version),
            }
            return Ok(row.map_or(Inserted::New, Inserted::Replaced));
        }
        record::discard(&mut self.base.core, table, staged);
        Err(self.refuse_gap(table, Reason::MembershipChanged))
    }

    fn update(&mut self, table: &Table, key: Key<'_>, _: ColumnUse) -> Result<Option<Updating>, OpError> {
        let Lookup::Record(record, header) = self.find(table, key, true)? else { return Ok(None) };
        let Some(before) = self.row(table, record, header) else { return Ok(None) };
        self.base.writes.reserve().map_err(record::full)?;
        let row_version = record::copy_row(&mut self.base.core, table, before)?;
        match self.base.writes.find(record) {
            Some(own) => self.base.writes.replace(own, row_version, ()),
            None => self.note(table, record, (header, Some(before)), row_version),
        }
        Ok(Some(Updating { before, after: record::row_of(row_version) }))
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        let Lookup::Record(record, header) = self.find(table, key, true)? else { return Ok(None) };
        let Some(before) = self.row(table, record, header) else { return Ok(None) };
        self.base.writes.reserve().map_err(record::full)?;
        match self.base.writes.find(record) {
            Some(own) => self.base.writes.replace(own, 0, ()),
            None => self.note(table, record, (header, Some(before)), 0),
        }
        Ok(Some(before))
    }

    fn scan_next(&mut self, table: &Table, scan: &mut Scan, _: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        loop {
            while let Some(&record) = scan.cursor.records().get(scan.next) {
                scan.next += 1;
                // A record that was removed before this attempt locked it left the leaf, whose gap the attempt
                // holds: it was a tombstone.
                let taken = self.take(table, record, false).inspect_err(|error| {
                    // It is looked at again.
                    scan.next -= usize::from(matches!(error, OpError::Wait));
                });
                let Some(header) = taken? else { continue };
                if let Some(row) = self.row(table, record, header) {
                    return Ok(Some(row));
                }
            }
            if scan.done {
                return Ok(None);
            }
            scan.next = 0;
            let Attempt { core, leaf_hints, .. } = &mut self.base;
            let leaf_hint = leaf_hints.of(table, &scan.cursor.near_key(table.class));
            scan.done = !table.index.next_leaf(&mut scan.cursor, leaf_hint, core.local.pinned());
            if scan.done {
                return Ok(None);
            }
            self.note_leaf(table, &scan.cursor)?;
        }
    }

    fn seen(&self) -> Seen {
        self.base.seen
    }

    fn newest(&self) -> Tid {
        self.base.newest
    }

    fn writes(&self) -> bool {
        // An absence may be held by a placeholder.
        !self.base.writes.entries().iter().all(Write::is_nothing)
    }

    fn savepoint(&self) -> Savepoint {
        self.base.writes.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        // Locks are kept: the read set stays.
        self.base.writes.rollback_to(savepoint);
    }

    fn validate(&mut self) -> Result<(), OpError> {
        // Everything read is locked.
        Ok(())
    }

    /// The serialization point is the read of the epoch: every lock is held, none was released.
    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        let newest = self.base.newest;
        if self.base.writes.entries().iter().all(Write::is_nothing) {
            self.locks.release_all();
            self.drop_placeholders();
            self.base.finish(&GapClaim);
            return Ok(Outcome::Committed(newest));
        }
        // A panic would leave records locked, and some of the writes visible.
        let tid = abort_on_unwind("a commit", || self.install(redo));
        self.base.settle(tid, &GapClaim);
        self.base.finish(&GapClaim);
        Ok(Outcome::Committed(tid))
    }

    fn abort(&mut self) {
        abort_on_unwind("a roll-back", || self.locks.release_all());
        self.base.abandon(&GapClaim);
    }

    fn conflict_info(&self) -> Option<&ConflictInfo> {
        self.base.conflict_info.as_ref()
    }

    fn collect_garbage(&mut self, most: usize) {
        gc::collect(&mut self.base, &GapClaim, most);
    }

    fn rest(&mut self) {
        self.base.writes.rest();
        self.locks.rest();
    }

    fn core(&mut self) -> &mut Core {
        &mut self.base.core
    }
}

impl<const WAITS: bool> Worker<WAITS> {
    /// Notes the first write of a locked record, which has this TID word and row.
    #[inline(always)]
    fn note(&mut self, table: &Table, record: RecordPtr, (word, row): (TidWord, Option<RowPtr>), row_version: usize) {
        let current = row.map_or(0, record::row_version_of);
        let mut write = self.base.write_to(table, record, (word, current), ());
        write.row_version = row_version;
        self.base.writes.push(write);
    }

    /// Makes the writes visible, has them logged and lets go of every lock.
    #[inline(always)]
    fn install(&mut self, redo: &mut dyn Redo) -> Tid {
        let tid = self.base.newest.next(self.base.core.epochs.current());
        for entry in 0..self.base.writes.entries().len() {
            let write = self.base.writes.entries()[entry];
            if write.is_nothing() {
                continue;
            }
            let table = write.table();
            let row_version = record_header::row_version(&table.record_layout, write.record);
            let published = record::put_in_place(&mut Plain, &write);
            let header = record_header::tid_word(&table.record_layout, write.record);
            assert!(!self.base.core.injects(Fault::PanicInCommit), "a deliberate panic with locks held");
            // For readers without a lock. ORDERING: a reader that sees the row version in
            // `record_header::peek` sees this, or what followed.
            header.store(write.expected.locked().0, Ordering::Relaxed);
            // ORDERING: pairs with the acquire of the TID word by the next holder of the lock, and with that
            // of the peek.
            crate::step(Touch::Store, row_version);
            row_version.store(published as u64, Ordering::Release);
            crate::step(Touch::Store, header);
            let after = Attempt::after(&write, tid);
            header.store(after.0, Ordering::Release);
        }
        self.base.report(tid, redo);
        self.locks.release_all();
        tid
    }

    /// After a commit: unlinks the placeholders that no row has filled.
    fn drop_placeholders(&mut self) {
        for at in 0..self.base.writes.entries().len() {
            let write = self.base.writes.entries()[at];
            if write.link == Link::Own && write.is_nothing() {
                self.base.take_back(&write, &GapClaim);
            }
        }
    }
}
