//! Commits in one region whose row versions have snapshot numbers, for read-only transactions that never abort
//! (Wang et al., EuroSys 2014, §5.4).

mod commit;
mod snapshot;

use std::sync::Arc;

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{CacheAligned, Tid};
use seriatim_txn::{Epochs, OpError, Outcome, RecordLayout, Redo};

use super::optimistic::{LockBit, Optimistic};
use super::record_header;
pub use snapshot::{VersionHeader, View};

/// TID word, version word, the snapshot number of the deletion (`snapshot::deletion`).
pub const HEADER_BYTES: usize = record_header::bytes(1);

/// Local snapshot number and previous version.
pub const VERSION_HEADER_BYTES: usize = VersionHeader::BYTES;

/// The global snapshot number S (§5.4): advanced by read-only transactions, read once by each commit.
#[derive(Clone, Debug)]
pub enum SnapshotNumber {
    Own(Arc<CacheAligned<AtomicU64>>),
    /// It is the epoch.
    Epoch(Arc<Epochs>),
}

impl Default for SnapshotNumber {
    /// Snapshot 0 is before every version.
    fn default() -> SnapshotNumber {
        SnapshotNumber::Own(Arc::new(CacheAligned(AtomicU64::new(1))))
    }
}

impl SnapshotNumber {
    #[inline(always)]
    fn word(&self) -> &AtomicU64 {
        match self {
            SnapshotNumber::Own(number) => number,
            SnapshotNumber::Epoch(epochs) => epochs.word(),
        }
    }

    /// The number, if a helper advances it at intervals; `None`: each end of an epoch does.
    pub fn own(&self) -> Option<Arc<CacheAligned<AtomicU64>>> {
        match self {
            SnapshotNumber::Own(number) => Some(Arc::clone(number)),
            SnapshotNumber::Epoch(_) => None,
        }
    }

    /// Describes the version of a row that is being restored.
    pub fn describe(&self, layout: &RecordLayout, row_version: usize, tid: Tid) {
        let header = VersionHeader::new(tid, self.word().load(Ordering::Acquire), false, 0);
        // SAFETY: a row that is being restored is private.
        unsafe { header.write(layout.row, row_version) };
    }
}

/// A worker's state for these commits.
pub struct SnapshotNumbered {
    pub snapshot: SnapshotNumber,
    /// The snapshot a read-only transaction reads.
    pub reading: Option<View>,
}

impl SnapshotNumbered {
    pub fn new(snapshot: &SnapshotNumber) -> SnapshotNumbered {
        SnapshotNumbered { snapshot: snapshot.clone(), reading: None }
    }

    /// A transaction has begun: one that only reads shows `reading`.
    #[inline]
    pub fn begin(&mut self, reading: Option<View>) {
        self.reading = reading;
    }

    /// Decides the attempt. Read-only attempts just validate: their serialization point is the start of
    /// validation, when every word noted was unchanged; one word alone needs no validation.
    #[inline]
    pub fn commit(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        if attempt.base.writes.is_empty() {
            return attempt.commit_read_only(&LockBit);
        }
        let tid = self.publish(attempt, redo)?;
        attempt.base.finish(&LockBit);
        Ok(Outcome::Committed(tid))
    }

    /// Validates and installs what is in the sets, and reports it. The attempt is still to be ended.
    ///
    /// # Errors
    /// A conflict.
    #[inline(always)]
    pub fn publish(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Tid, OpError> {
        commit::publish(attempt, self.snapshot.word(), redo)
    }
}
