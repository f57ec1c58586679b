//! Locks that an optimistic attempt takes on some records when it accesses them, for protocols that lock
//! those that are contended. For others it is `()`, which takes no room and no instruction.

use std::ops::Bound;

use seriatim_base::{TableId, Tid};
use seriatim_catalog::{ColumnSet, Key};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, PartitionSet, Reason, Table};

use super::record_header::{self, TidWord};
use super::reserve;
use super::table_ref::TableRef;

/// The purpose of an access: a write excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPurpose {
    Reading,
    Writing,
}

/// The locks that an attempt holds. They are released together, at its end; in a repair, those that no run
/// needs any more. The default methods are for protocols that lock no records at access.
pub trait AccessLocks: Send {
    /// Whether a record with this TID word is read under a lock. While the lock is held the word does not change, and
    /// nothing has to be validated.
    #[inline(always)]
    fn is_locked_at_access(_word: TidWord) -> bool {
        false
    }

    /// Whether a record with this TID word left its index; also of a reserved row, which `look_reserved` tells apart.
    #[inline(always)]
    fn is_removed(word: TidWord) -> bool {
        word.is_removed()
    }

    /// Whether [`AccessLocks::look`] looks at the record's header and at nothing else.
    const LOCKLESS: bool = false;

    /// The settled TID word of a record and its row version, as [`record_header::settled_version`] finds them,
    /// once the record is locked if it has to be.
    ///
    /// # Errors
    /// The memory limit, or another holds the record for longer than the bound.
    fn look(
        &mut self,
        core: &mut Core,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError>;

    /// Whether two different words are of one version: `now` is reserved, and `seen` is not.
    #[inline(always)]
    fn is_same_version(now: TidWord, seen: TidWord) -> bool {
        now.is_reserved() && now.unreserved() == seen
    }

    /// Reserves a row for an attempt that locks what it accesses. Returns the word to be restored at the end, if this
    /// does not restore it by itself.
    ///
    /// # Errors
    /// The memory limit, or others hold the record for longer than the bound.
    fn reserve(&mut self, core: &mut Core, table: &Table, record: RecordPtr) -> Result<Option<TidWord>, OpError> {
        reserve::mark(core, table, record)
    }

    /// Whether attempts that run whole keep to their partitions.
    const PARTITIONED: bool = false;

    /// The attempt that has begun runs whole: as [`seriatim_txn::Worker::begin_whole`].
    #[inline(always)]
    fn begin_whole(&mut self, _: PartitionSet) {}

    /// Whether the attempt may access the keys between two bounds.
    ///
    /// # Errors
    /// They are in other partitions than it has.
    #[inline(always)]
    fn admit_range(&self, _: &Table, _low: Bound<Key<'_>>, _high: Bound<Key<'_>>) -> Result<(), OpError> {
        Ok(())
    }

    /// As [`AccessLocks::admit_range`], of one key.
    #[inline(always)]
    fn admit(&self, _: &Table, _: Key<'_>, _: AccessPurpose) -> Result<(), OpError> {
        Ok(())
    }

    /// Whether what is read, and is not locked, is noted, to be validated.
    #[inline(always)]
    fn notes(&self) -> bool {
        true
    }

    /// The attempt is about to link a record: sets the words of its header that are theirs.
    #[inline(always)]
    fn linking(&mut self, _: &Table, _: RecordPtr) {}

    /// Notes a failed access to a record, or a failed validation. `might_pass`: it might have passed if the
    /// attempt had taken notes, where rows of the table are distinguishable.
    #[inline(always)]
    fn failed(&mut self, _core: &Core, _table: TableId, _record: RecordPtr, _might_pass: bool) {}

    /// The columns of its row that the next access to a record uses: without those whose changes would not
    /// refute the attempt.
    #[inline(always)]
    fn use_next(&mut self, _used: impl FnOnce() -> ColumnSet) {}

    /// Whether transactions can be held until they are decided ([`seriatim_txn::Detach`]). The items below are for such
    /// protocols.
    const HOLDS: bool = false;

    /// As [`seriatim_txn::Detach::may_wait`].
    fn may_wait(&mut self) {}

    /// Whether an access has waited for a held transaction.
    fn has_waited(&self) -> bool {
        false
    }

    /// The attempt has been executed, and these columns of a record are going to be changed.
    fn announce(&mut self, _: TableRef, _: RecordPtr, _changed: ColumnSet) {}

    /// Whether anything is announced.
    fn has_announced(&self) -> bool {
        false
    }

    /// Withdraws the announcement: the write was made, or will not be. The attempt ends.
    fn withdraw(&mut self) {}

    /// The records that are locked, with the TIDs of their versions.
    fn held(&self) -> impl Iterator<Item = (RecordPtr, Tid)> {
        std::iter::empty()
    }

    /// Gives those locks back of which no record is `needed`.
    fn release_unless(&mut self, _needed: impl Fn(RecordPtr) -> bool) {}

    /// Whether any record is locked.
    fn holds_any(&self) -> bool {
        self.held().next().is_some()
    }

    /// Gives all locks back.
    #[inline(always)]
    fn release(&mut self, _core: &Core) {}

    /// Gives back memory that a large transaction took for the lists, as the worker is idle.
    fn rest(&mut self) {}
}

impl AccessLocks for () {
    const LOCKLESS: bool = true;

    #[inline(always)]
    fn look(
        &mut self,
        _: &mut Core,
        table: &Table,
        record: RecordPtr,
        _: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        record_header::settled_version(table, record).ok_or(OpError::execute(Reason::RecordLocked))
    }
}
