//! The worker of an optimistic protocol: the parts that do not depend on its commit.
//!
//! A protocol supplies its [`Variant`]: commit with its scratch space, and the view of read-only transactions
//! where it has snapshots. The worker is generic over it, so each protocol has a compiled one of its own.

use std::convert::Infallible;

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::OutOfMemory;
use seriatim_txn::{
    Added, Addition, ConflictInfo, Core, Detach, Inserted, Mode, OnExists, OpError, Outcome, PartitionSet, Pieces,
    Prepared, Priority, Redo, Repair, RowPtr, Runs, Savepoint, Scan, Seen, Staged, Table, Updating,
};

use super::access_locks::AccessLocks;
use super::attempt::Attempt;
use super::gc::{self, Claim};
use super::optimistic::Optimistic;
use super::origin::Origin;
use super::rebase;
use super::record;
use super::versions::{View, read};

/// The parts in which optimistic protocols differ.
pub trait Variant: Send {
    /// The origin of entries: `()`, unless the protocol repairs or orders by timestamps.
    type By: Origin;
    /// Whether its attempts note which columns they use, to be rebased.
    const REBASES: bool = false;
    /// Whether a commit copies a row version to the place in the record that was free when its row was updated. Then
    /// the version itself is not published.
    const COPIES: bool = false;
    /// Whether its attempts can reserve the rows that they access.
    const RESERVES: bool = Self::REBASES;
    /// Whether attempts take notes for rebasing from the first one on, and also of blind updates of any table. Such an
    /// update needs any row. Otherwise only after an attempt was refuted recently, for tables whose rows are
    /// distinguishable.
    const REBASES_ALL: bool = false;

    /// How records are claimed that are to be unlinked.
    fn claim(&self) -> impl Claim;

    /// Whether it publishes piece by piece.
    const PIECES: bool = false;

    /// The transaction that has begun runs a registered procedure.
    fn follow(&mut self) {}

    /// A row, which was as `before`, is being updated.
    ///
    /// # Errors
    /// The memory limit.
    fn updated(&mut self, _: &Optimistic<Self::By>, _: &Table, _before: RowPtr, _: ColumnUse) -> Result<(), OpError> {
        Ok(())
    }

    /// The transaction that has begun publishes the additions that others have deferred.
    fn publish_deferred(&mut self) {}

    /// A row that the attempt wrote is looked at.
    fn looked_at_own(&mut self, _: &Optimistic<Self::By>) {}

    /// Writes were undone, reported, or merged into newer row versions before the commit.
    fn rolled_back(&mut self) {}

    /// A transaction has begun; the worker is online.
    #[inline]
    fn begin(&mut self, _: &mut Core, _: Mode) {}

    /// As [`seriatim_txn::Worker::come_after`].
    fn come_after(&mut self, _place: u64) {}

    /// As [`seriatim_txn::Worker::place`].
    fn place(&self, _: &Optimistic<Self::By>) -> u64 {
        0
    }

    /// The view of the transaction, which then writes nothing; `None`: it reads the newest versions,
    /// validates, and may write.
    #[inline(always)]
    fn view(&self) -> Option<impl View> {
        None::<Infallible>
    }

    /// As [`seriatim_txn::Worker::validate`].
    fn validate(&mut self, attempt: &mut Optimistic<Self::By>) -> Result<(), OpError> {
        attempt.validate()
    }

    /// As [`seriatim_txn::Worker::commit`].
    fn commit(&mut self, attempt: &mut Optimistic<Self::By>, redo: &mut dyn Redo) -> Result<Outcome, OpError>;

    /// Periodic work between two transactions.
    #[inline(always)]
    fn between(&mut self, _: &mut Core) {}

    /// Gives back memory that a large transaction took as scratch.
    fn rest(&mut self) {}
}

type Locks<V> = <<V as Variant>::By as Origin>::Locks;

/// A worker that reads optimistically and commits as `V` does.
pub struct Worker<V: Variant> {
    attempt: Optimistic<V::By>,
    variant: V,
}

impl<V: Variant> Worker<V> {
    pub fn new(core: Core, variant: V) -> Worker<V>
    where
        V::By: Origin<Locks = ()>,
    {
        Worker::with_locks(core, variant, ())
    }

    /// A worker that takes locks when it accesses records.
    pub fn with_locks(core: Core, variant: V, locks: <V::By as Origin>::Locks) -> Worker<V> {
        Worker { attempt: Optimistic::new(core, locks), variant }
    }

    /// The same, with attempts that may be rebased this often.
    pub fn rebasing(mut self, rebases_max: u32) -> Worker<V> {
        self.attempt.bases.allow(rebases_max);
        self
    }
}

impl<V: Variant> Worker<V> {
    /// Whether the transaction may write. The session sees to it that others do not.
    #[inline(always)]
    fn may_write(&self) -> bool {
        self.variant.view().is_none()
    }

    /// The open attempt, for tests of protocols.
    pub fn attempt(&mut self) -> &mut Optimistic<V::By> {
        &mut self.attempt
    }

    /// Whether the open attempt takes notes, or reserves the rows that it accesses.
    #[inline(always)]
    fn is_attentive(&self) -> bool {
        (V::REBASES || V::RESERVES) && self.attempt.bases.are_noted()
    }

    /// In an attentive attempt: reserves the row at `key` if the attempt reserves what it accesses.
    fn reserve(&mut self, table: &Table, key: &Key<'_>) -> Result<(), OpError> {
        if V::RESERVES && self.attempt.bases.reserves && self.may_write() {
            return self.attempt.reserve_at(table, key.anew());
        }
        Ok(())
    }

    #[inline(always)]
    fn read_row(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        let row = match self.variant.view() {
            None => self.attempt.read(table, key),
            Some(view) => read::read(&mut self.attempt, table, key, view),
        }?;
        self.looked_at();
        Ok(row)
    }

    /// As `read`, in an attentive attempt.
    #[inline(never)]
    fn read_attentively(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        self.reserve(table, &key)?;
        self.attempt.locks.use_next(|| rebase::of_read(table, columns));
        let row = self.read_row(table, key)?;
        self.note_used(table, row, columns)
    }

    #[inline(always)]
    fn scan_row(&mut self, table: &Table, scan: &mut Scan) -> Result<Option<RowPtr>, OpError> {
        let row = match self.variant.view() {
            None => self.attempt.scan_next(table, scan),
            Some(view) => read::scan_next(&mut self.attempt, table, scan, view),
        }?;
        self.looked_at();
        Ok(row)
    }

    /// As `scan_next`, in an attentive attempt.
    #[inline(never)]
    fn scan_attentively(
        &mut self,
        table: &Table,
        scan: &mut Scan,
        columns: ColumnSet,
    ) -> Result<Option<RowPtr>, OpError> {
        loop {
            self.attempt.locks.use_next(|| rebase::of_read(table, columns));
            let mut row = self.scan_row(table, scan)?;
            if V::RESERVES
                && self.attempt.bases.reserves
                && let Some(seen) = row
                && self.may_write()
            {
                row = self.attempt.reserve_seen(table, seen)?;
                if row.is_none() {
                    continue;
                }
            }
            return self.note_used(table, row, columns);
        }
    }

    #[inline(always)]
    fn update_row(&mut self, table: &Table, key: Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, OpError> {
        let rows = self.attempt.update(table, key, V::COPIES)?;
        if V::PIECES
            && let Some(Updating { before, .. }) = rows
        {
            self.variant.updated(&self.attempt, table, before, columns)?;
        }
        Ok(rows)
    }

    /// As `update`, in an attentive attempt.
    #[inline(never)]
    fn update_attentively(
        &mut self,
        table: &Table,
        key: Key<'_>,
        columns: ColumnUse,
    ) -> Result<Option<Updating>, OpError> {
        self.reserve(table, &key)?;
        self.attempt.locks.use_next(|| rebase::of_row(table, columns.read()));
        let rows = self.update_row(table, key, columns)?;
        if V::REBASES
            && let Some(Updating { before, .. }) = rows
            && (!table.updatable.is_subset(columns.read()) || V::REBASES_ALL && columns.read().is_empty())
        {
            self.attempt.note_update(table, before, columns)?;
        }
        Ok(rows)
    }

    #[inline(always)]
    fn looked_at(&mut self) {
        if V::PIECES && self.attempt.base.seen.own {
            self.variant.looked_at_own(&self.attempt);
        }
    }

    /// A row was read: notes the columns used, if updates change others, or if it is the transaction's own.
    fn note_used(&mut self, table: &Table, row: Option<RowPtr>, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        if V::REBASES
            && let Some(row) = row
            && (!table.updatable.is_subset(columns) || self.attempt.base.seen.own)
            && self.may_write()
        {
            self.attempt.note_used(table, row, columns)?;
        }
        Ok(row)
    }
}

impl<V: Variant> seriatim_txn::Worker for Worker<V> {
    fn begin(&mut self, mode: Mode, _: Priority) {
        if V::REBASES_ALL {
            self.attempt.bases.encourage();
        }
        self.attempt.begin();
        self.variant.begin(&mut self.attempt.base.core, mode);
    }

    fn come_after(&mut self, place: u64) {
        self.variant.come_after(place);
    }

    fn reserve_next(&mut self) {
        // A held transaction would keep its rows locked until its decision, and others are decided before.
        if V::RESERVES && !Locks::<V>::HOLDS {
            self.attempt.bases.reserve_next();
        }
    }

    fn place(&self) -> u64 {
        self.variant.place(&self.attempt)
    }

    fn begin_whole(&mut self, partitions: PartitionSet) {
        self.attempt.locks.begin_whole(partitions);
    }

    // Procedures are compiled for workers: reading, updating and prefetching are one function there.
    #[inline(always)]
    fn prefetch(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) {
        self.attempt.base.prefetch(table, key, columns);
    }

    #[inline]
    fn advance_prefetch(&mut self) {
        self.attempt.base.advance_prefetch();
    }

    #[inline(always)]
    fn read_prefetched(&mut self, table: &Table, key: Key<'_>) -> Option<RowPtr> {
        if self.is_attentive() {
            return None;
        }
        let Attempt { core, prefetched, .. } = &self.attempt.base;
        let record = prefetched.next(table, key, core.local.pinned())?;
        let row = match self.variant.view() {
            None => self.attempt.read_plain(table, record),
            Some(view) => read::read_newest(&mut self.attempt, table, record, view),
        }?;
        self.attempt.base.prefetched.pass_next();
        Some(row)
    }

    #[inline(always)]
    fn read(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        if self.is_attentive() {
            return self.read_attentively(table, key.anew(), columns);
        }
        self.attempt.locks.use_next(|| ColumnSet::ALL);
        self.read_row(table, key)
    }

    fn stage(&mut self, table: &Table) -> Result<Staged, OpError> {
        record::stage(&mut self.attempt.base.core, table)
    }

    fn discard(&mut self, table: &Table, staged: Staged) {
        record::discard(&mut self.attempt.base.core, table, staged);
    }

    fn out_of_line(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        self.attempt.base.out_of_line(bytes)
    }

    fn out_of_line_room(&mut self, bytes: usize) -> Result<u64, OutOfMemory> {
        self.attempt.base.out_of_line_room(bytes)
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        debug_assert!(self.may_write());
        if self.is_attentive()
            && let Err(error) = self.reserve(table, &key)
        {
            self.discard(table, staged);
            return Err(error);
        }
        self.attempt.locks.use_next(|| ColumnSet::ALL);
        self.attempt.insert(table, key, staged, exists)
    }

    #[inline(always)]
    fn update(&mut self, table: &Table, key: Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, OpError> {
        debug_assert!(self.may_write());
        if self.is_attentive() {
            return self.update_attentively(table, key.anew(), columns);
        }
        self.attempt.locks.use_next(|| ColumnSet::ALL);
        self.update_row(table, key, columns)
    }

    fn add(&mut self, table: &Table, key: Key<'_>, addition: Addition) -> Result<Added, OpError> {
        let columns = addition.columns();
        let Some(rows) = self.update(table, key, columns)? else { return Ok(Added::Missing) };
        // SAFETY: a private row version of the table's layout, until this returns.
        let added = unsafe { addition.apply(table, rows.after) };
        if added == Added::Overflow {
            // The old sum is reported.
            self.variant.rolled_back();
            if self.attempt.bases.are_noted() {
                self.attempt.note_used_own(table, columns.either())?;
            }
        }
        Ok(added)
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        debug_assert!(self.may_write());
        if self.is_attentive() {
            self.reserve(table, &key)?;
        }
        self.attempt.locks.use_next(|| ColumnSet::ALL);
        self.attempt.delete(table, key)
    }

    #[inline]
    fn scan_next(&mut self, table: &Table, scan: &mut Scan, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        if self.is_attentive() {
            return self.scan_attentively(table, scan, columns);
        }
        self.attempt.locks.use_next(|| ColumnSet::ALL);
        self.scan_row(table, scan)
    }

    #[inline]
    fn first(&mut self, table: &Table, range: (Key<'_>, Key<'_>)) -> Result<Option<RowPtr>, OpError> {
        // A snapshot has no node versions, and an attentive attempt takes notes.
        if self.is_attentive() || !self.may_write() {
            return Ok(None);
        }
        self.attempt.locks.use_next(|| ColumnSet::ALL);
        let row = self.attempt.first(table, range)?;
        self.looked_at();
        Ok(row)
    }

    fn seen(&self) -> Seen {
        self.attempt.base.seen
    }

    fn newest(&self) -> Tid {
        self.attempt.base.newest
    }

    #[inline]
    fn writes(&self) -> bool {
        !self.attempt.base.writes.is_empty()
    }

    fn savepoint(&self) -> Savepoint {
        self.attempt.base.writes.savepoint()
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        self.attempt.rollback_to(savepoint);
        self.variant.rolled_back();
    }

    fn validate(&mut self) -> Result<(), OpError> {
        // A snapshot always holds: nothing was noted.
        self.variant.validate(&mut self.attempt)
    }

    #[inline]
    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        if Locks::<V>::HOLDS && !self.attempt.base.writes.deferred.is_empty() {
            self.attempt.link_deferred()?;
        }
        self.variant.commit(&mut self.attempt, redo)
    }

    fn abort(&mut self) {
        self.attempt.abandon(&self.variant.claim());
    }

    fn conflict_info(&self) -> Option<&ConflictInfo> {
        self.attempt.base.conflict_info.as_ref()
    }

    fn collect_garbage(&mut self, most: usize) {
        gc::collect(&mut self.attempt.base, &self.variant.claim(), most);
        self.variant.between(&mut self.attempt.base.core);
    }

    fn rest(&mut self) {
        self.attempt.rest();
        self.variant.rest();
    }

    fn core(&mut self) -> &mut Core {
        &mut self.attempt.base.core
    }

    fn detach(&mut self) -> Option<&mut dyn Detach> {
        if Locks::<V>::HOLDS { Some(self) } else { None }
    }

    fn repair(&mut self) -> Option<&mut dyn Repair> {
        if V::By::CARRIED { Some(self) } else { None }
    }

    fn pieces(&mut self) -> Option<&mut dyn Pieces> {
        if V::PIECES { Some(self) } else { None }
    }
}

impl<V: Variant> Pieces for Worker<V> {
    fn follow(&mut self) {
        self.variant.follow();
    }

    fn publish_deferred(&mut self) {
        // The publisher has closed the windows, which the attempt that has reserved a row may wait for.
        self.attempt.passes_reserved = true;
        self.variant.publish_deferred();
    }
}

impl<V: Variant> Detach for Worker<V> {
    fn hold(&mut self) {
        self.attempt.base.defers = true;
    }

    fn prepare(&mut self) -> Result<Prepared, OpError> {
        self.attempt.validate_executed()?;
        let prepared = self.attempt.prepared();
        self.attempt.announce(&prepared);
        Ok(prepared)
    }

    fn recheck(&mut self) -> Result<Option<Prepared>, OpError> {
        Ok(self.attempt.validate_executed()?.then(|| self.attempt.prepared()))
    }

    fn may_wait(&mut self) {
        self.attempt.locks.may_wait();
    }

    fn refuse(&mut self) {
        self.attempt.locks.withdraw();
    }
}

impl<V: Variant> Repair for Worker<V> {
    fn operation(&mut self, index: u16, iteration: u32) {
        self.attempt.base.by = V::By::of(index, iteration);
    }

    fn forget(&mut self, runs: Runs, again: bool) {
        self.attempt.forget(runs, again);
    }

    fn touched(&self, operation: u16, visit: &mut dyn FnMut(u32, Option<usize>)) {
        self.attempt.touched(operation, visit);
    }

    fn lookups_saved(&mut self) -> u64 {
        std::mem::take(&mut self.attempt.workset.saved)
    }
}
