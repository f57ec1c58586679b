//! DBX: optimistic execution, the whole commit in one region, snapshots that never abort.
//!
//! Source: Wang et al., EuroSys 2014, §5; `README.md` beside this file says what was built, what departs and why it is right.

mod commit;
mod snapshot;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::{CacheAligned, Tid};
use seriatim_catalog::{ColumnSet, Key};
use seriatim_htm::Budget;
use seriatim_memory::{CountedVec, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Freshness, Knob, Mode, OpError, Options, Outcome, Peeked, Protocol, ProtocolInfo,
    Redo, Requirements, RowBuffer, RowPtr, Scan, Table,
};

use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::rebase::{self, REBASES_MAX};
use crate::shared::record_header;
use crate::shared::region;
use crate::shared::restore::{self, Versions};
use crate::shared::versions::read;
use crate::shared::worker::{Variant, Worker};
use snapshot::{VersionHeader, View};

/// The global snapshot number S (§5.4): advanced by each read-only transaction, read once by each commit.
pub(crate) type SnapshotNumber = Arc<CacheAligned<AtomicU64>>;

/// DBX.
#[derive(Debug)]
pub struct Dbx {
    snapshot: SnapshotNumber,
    /// Of the regions of its workers, those of the indexes included.
    budget: Budget,
    rebases_max: u32,
}

const OPTIONS: [Knob; 5] = {
    let [conflict, capacity, system, held] = region::KNOBS;
    [conflict, capacity, system, held, REBASES_MAX]
};

impl Protocol for Dbx {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "dbx",
        summary: "optimistic; validates and installs in one hardware region, or under record locks without one",
        source: "Wang et al., Using Restricted Transactional Memory to Build a Scalable In-Memory Database, EuroSys 2014",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            snapshots: Freshness::Latest,
            strict: true,
            epoch_order: true,
            tid_order: false,
            column_groups: true,
            pieces: false,
            detach: true,
            repair: false,
        },
        options: &OPTIONS,
    };
    /// TID word, version word, the snapshot number of the deletion (`snapshot::deletion`).
    const HEADER_BYTES: usize = record_header::bytes(1);
    /// Local snapshot number and previous version (§5.1; beside the row version instead of the record, see README).
    const VERSION_HEADER_BYTES: usize = VersionHeader::BYTES;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> Dbx {
        let budget = region::budget(options, environment);
        // Snapshot 0 is before every version.
        Dbx {
            snapshot: Arc::new(CacheAligned(AtomicU64::new(1))),
            budget,
            rebases_max: options.get(&REBASES_MAX) as u32,
        }
    }

    fn worker(&self, mut core: Core) -> Worker<State> {
        core.agent.set_budget(self.budget);
        let state = State { snapshot: Arc::clone(&self.snapshot), reading: None, installs: core.local.counted(64) };
        Worker::rebasing(core, state, self.rebases_max)
    }

    fn column_groups(&self, table: &Table) -> Vec<ColumnSet> {
        rebase::column_groups(table)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(Dbx, LockBit);

impl Versions for Dbx {
    fn describe(&self, row_version: usize, tid: Tid) {
        let header = VersionHeader::new(tid, self.snapshot.load(Ordering::Acquire), false, 0);
        // SAFETY: a row that is being restored is nobody else's.
        unsafe { header.write(row_version) };
    }
}

/// A DBX worker's own state.
pub struct State {
    snapshot: SnapshotNumber,
    /// The snapshot a read-only transaction reads.
    reading: Option<View>,
    /// Scratch of a commit.
    installs: CountedVec<commit::Install>,
}

impl Variant for State {
    type By = ();
    const REBASES: bool = true;

    fn claim(&self) -> impl gc::Claim {
        LockBit
    }

    #[inline]
    fn begin(&mut self, core: &Core, mode: Mode) {
        self.installs.clear();
        self.reading = (mode == Mode::ReadOnly).then(|| View::take(core, &self.snapshot));
    }

    fn may_write(&self) -> bool {
        self.reading.is_none()
    }

    #[inline(always)]
    fn read(&mut self, attempt: &mut Optimistic, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        match self.reading {
            None => attempt.read(table, key),
            Some(view) => read::read(attempt, table, key, view),
        }
    }

    #[inline]
    fn scan_next(
        &mut self,
        attempt: &mut Optimistic,
        table: &Table,
        scan: &mut Scan,
    ) -> Result<Option<RowPtr>, OpError> {
        match self.reading {
            None => attempt.scan_next(table, scan),
            Some(view) => read::scan_next(attempt, table, scan, view),
        }
    }

    #[inline]
    fn commit(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        commit::commit(attempt, &mut self.installs, &self.snapshot, redo)
    }

    fn rest(&mut self) {
        self.installs.rest();
    }
}
