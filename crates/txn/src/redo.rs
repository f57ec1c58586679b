//! Where a commit reports what it wrote: the log, and in tests the history recorder.

use seriatim_base::Tid;
use seriatim_catalog::Key;

use crate::{RowPtr, Table};

/// Receives the writes of a commit, each with the TID that orders it among all versions of its key. Called between the
/// serialization point and the answer, once every write is installed, never inside a region.
///
/// The records written may be unlocked before the calls come: dbx and silo unlock each as they install it, nowait and wait-die all of
/// them after the last call. So others may have read a write, and have reported what they made of it, before it is reported itself.
/// A log that groups by epoch must therefore count each worker with a commit in progress as one that may still report writes of the
/// epoch in which that commit began.
pub trait Redo {
    /// The row of `key` became `after`, from `before`, the version just below `tid`; `None`: no row. Not both are
    /// `None`. The rows are readable during the call; they may be copies that are gone when it returns.
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>);

    /// As [`Redo::write`], of an update that only added to columns: other additions to them take their places before and after it whatever
    /// the TIDs are. `before` is what it was added to, `after` the sum.
    fn add(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Before, after: RowPtr) {
        self.write(table, key, tid, Some(before), Some(after));
    }

    /// What the commit has deferred is published later, and told of then as of the transaction with the number that this gives; 0: as of nobody.
    fn defers(&mut self) -> u64 {
        0
    }

    /// Whether anybody listens; protocols skip the calls where not.
    fn listens(&self) -> bool {
        true
    }
}

/// The row that a write replaced.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Of its version.
    pub tid: Tid,
    /// The row.
    pub row: RowPtr,
}

/// Nobody listens.
#[derive(Debug)]
pub struct NoRedo;

impl Redo for NoRedo {
    fn write(&mut self, _: &Table, _: Key<'_>, _: Tid, _: Option<Before>, _: Option<RowPtr>) {}

    fn listens(&self) -> bool {
        false
    }
}
