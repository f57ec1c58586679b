//! Where a commit reports what it wrote: the log, and in tests the history recorder.

use seriatim_base::Tid;
use seriatim_catalog::Key;

use crate::{RowPtr, Table};

/// Receives the writes of a commit, each with the TID that orders it among all versions of its key. Called between the
/// serialization point and the answer, once every write is installed, never inside a region.
///
/// The written records may be unlocked before these calls. Dbx and silo unlock each as they install it, nowait and
/// wait-die unlock all of them after the last call. So another transaction may have read a write, and reported its own
/// writes, before the first write is reported. So a log that groups by epoch must count each worker with a commit in
/// progress. It may still report writes of the epoch in which it began.
pub trait Redo {
    /// The row of `key` became `after`, from `before`, the version just below `tid`; `None`: no row. Not both are
    /// `None`. The rows are readable during the call; they may be copies that are gone when it returns.
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>);

    /// As [`Redo::write`], of an update that only added to columns: other additions to them take their places
    /// before and after it whatever the TIDs are. `before` is what it was added to, `after` the sum.
    fn add(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Before, after: RowPtr) {
        self.write(table, key, tid, Some(before), Some(after));
    }

    /// The deferred additions of the commit are published later. They are then reported as those of the
    /// transaction with the number that this returns; 0: of none.
    fn defers(&mut self) -> u64 {
        0
    }

    /// Whether the calls have an effect; protocols skip them otherwise.
    fn listens(&self) -> bool {
        true
    }
}

/// The row that a write replaced.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// The TID of its version.
    pub tid: Tid,
    /// The row.
    pub row: RowPtr,
}

/// A listener that ignores all calls.
#[derive(Debug)]
pub struct NoRedo;

impl Redo for NoRedo {
    fn write(&mut self, _: &Table, _: Key<'_>, _: Tid, _: Option<Before>, _: Option<RowPtr>) {}

    fn listens(&self) -> bool {
        false
    }
}
