//! DBX: optimistic execution, the whole commit in one region, snapshots that never abort.
//!
//! Source: Wang et al., EuroSys 2014, §5; `README.md` beside this file says what was built, what departs and why it is right.

mod commit;
mod snapshot;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use seriatim_base::{CacheAligned, Stamp};
use seriatim_catalog::{ColumnSet, Key};
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Core, Environment, Freshness, Gives, Incident, Inserted, Mark, Mode, Needs, OnExists, Outcome, Peeked, Protocol,
    ProtocolInfo, Redo, RowPtr, Scan, Seen, Staged, Stop, Table, Updating,
};

use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::{head, record, sweep};

/// The global snapshot number S (§5.4): advanced by each read-only transaction, read once by each commit.
pub(crate) type SnapshotNumber = Arc<CacheAligned<AtomicU64>>;

/// DBX.
#[derive(Debug)]
pub struct Dbx {
    snapshot: SnapshotNumber,
}

/// DBX has no knobs of its own: region budgets belong to the database.
#[derive(Clone, Debug, Default)]
pub struct Options {}

impl Protocol for Dbx {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "dbx",
        summary: "optimistic; validates and installs in one hardware region, or under record locks without one",
        source: "Wang et al., Using Restricted Transactional Memory to Build a Scalable In-Memory Database, EuroSys 2014",
        needs: Needs { plan: false, regions: false },
        gives: Gives {
            ad_hoc: true,
            snapshots: Freshness::Latest,
            strict: true,
            pieces: false,
            detach: false,
            repair: false,
        },
    };
    /// Header word, image word.
    const HEAD_BYTES: usize = 16;
    /// Local snapshot number and previous version (§5.1; beside the image instead of the record, see README).
    const IMAGE_HEADER_BYTES: usize = snapshot::HEADER_BYTES;
    type Options = Options;
    type Worker = Worker;

    fn open(_: Options, _: &Environment) -> Dbx {
        // Snapshot 0 is before every version.
        Dbx { snapshot: Arc::new(CacheAligned(AtomicU64::new(1))) }
    }

    fn worker(&self, core: Core) -> Worker {
        Worker {
            attempt: Optimistic::new(core),
            snapshot: Arc::clone(&self.snapshot),
            reading: None,
            installs: Vec::new(),
        }
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>) -> Peeked {
        head::peek(table, record)
    }
}

/// A DBX worker.
pub struct Worker {
    attempt: Optimistic,
    snapshot: SnapshotNumber,
    /// The snapshot a read-only transaction reads.
    reading: Option<u64>,
    /// Scratch of a commit.
    installs: Vec<commit::Install>,
}

impl seriatim_txn::Worker for Worker {
    fn begin(&mut self, mode: Mode, _: Stamp) {
        self.attempt.begin();
        self.reading = (mode == Mode::ReadOnly).then(|| snapshot::take(&self.attempt.base.core, &self.snapshot));
    }

    #[inline]
    fn read(&mut self, table: &Table, key: Key<'_>, _: ColumnSet) -> Result<Option<RowPtr>, Stop> {
        match self.reading {
            None => self.attempt.read(table, key),
            Some(snapshot) => snapshot::read(&mut self.attempt, table, key, snapshot),
        }
    }

    #[inline]
    fn prefetch(&mut self, table: &Table, key: Key<'_>) {
        self.attempt.base.prefetch(table, key);
    }

    #[inline]
    fn advance_prefetch(&mut self) {
        self.attempt.base.advance_prefetch();
    }

    fn stage(&mut self, table: &Table) -> Result<Staged, Stop> {
        record::stage(&mut self.attempt.base.core, table)
    }

    fn discard(&mut self, table: &Table, staged: Staged) {
        record::discard(&mut self.attempt.base.core, table, staged);
    }

    fn tail(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        self.attempt.base.tail(bytes)
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, Stop> {
        debug_assert!(self.reading.is_none(), "the session refuses writes in read-only transactions");
        self.attempt.insert(table, key, staged, exists)
    }

    #[inline]
    fn update(&mut self, table: &Table, key: Key<'_>, _: ColumnSet) -> Result<Option<Updating>, Stop> {
        debug_assert!(self.reading.is_none(), "the session refuses writes in read-only transactions");
        self.attempt.update(table, key)
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, Stop> {
        debug_assert!(self.reading.is_none(), "the session refuses writes in read-only transactions");
        self.attempt.delete(table, key)
    }

    #[inline]
    fn scan_next(&mut self, table: &Table, scan: &mut Scan, _: ColumnSet) -> Result<Option<RowPtr>, Stop> {
        match self.reading {
            None => self.attempt.scan_next(table, scan),
            Some(snapshot) => snapshot::scan_next(&mut self.attempt, table, scan, snapshot),
        }
    }

    fn seen(&self) -> Seen {
        self.attempt.base.seen
    }

    fn mark(&mut self) -> Mark {
        self.attempt.base.writes.mark()
    }

    fn rewind(&mut self, mark: Mark) {
        self.attempt.base.writes.rewind(mark);
    }

    fn validate(&mut self) -> Result<(), Stop> {
        // A snapshot always holds: nothing was noted.
        self.attempt.validate()
    }

    #[inline]
    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, Stop> {
        commit::commit(&mut self.attempt, &mut self.installs, &self.snapshot, redo)
    }

    fn abort(&mut self) {
        self.attempt.base.abandon(&LockBit);
    }

    fn incident(&self) -> Option<&Incident> {
        self.attempt.base.incident.as_ref()
    }

    fn housekeep(&mut self) {
        sweep::sweep(&mut self.attempt.base.core, &LockBit);
    }

    fn core(&mut self) -> &mut Core {
        &mut self.attempt.base.core
    }
}
