//! DBX: optimistic execution, the whole commit in one region, snapshots that never abort.
//!
//! Source: Wang et al., EuroSys 2014, §5; `README.md` beside this file gives what was built, the departures
//! and why it is right.

use seriatim_base::Tid;
use seriatim_htm::Budget;
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Freshness, Knob, Mode, OpError, Options, Outcome, Peeked, Protocol, ProtocolInfo,
    RecordLayout, Redo, Requirements, RowBuffer, Table,
};

use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::rebase::REBASES_MAX;
use crate::shared::record_header;
use crate::shared::region;
use crate::shared::restore::{self, Versions};
use crate::shared::snapshot_numbered::{self, SnapshotNumber, SnapshotNumbered, View};
use crate::shared::versions;
use crate::shared::worker::{Variant, Worker};

/// DBX.
#[derive(Debug)]
pub struct Dbx {
    snapshot: SnapshotNumber,
    /// The budget of its workers' regions, those of the indexes included.
    budget: Budget,
    rebases_max: u32,
}

const OPTIONS: [Knob; 6] = {
    let [conflict, divided, capacity, system, held] = region::KNOBS;
    [conflict, divided, capacity, system, held, REBASES_MAX]
};

impl Protocol for Dbx {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "dbx",
        summary: "optimistic; validates and installs in one hardware region, or under record locks without one",
        source: "Wang et al., Using Restricted Transactional Memory to Build a Scalable In-Memory Database, EuroSys \
            2014",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            snapshots: Freshness::Latest,
            strict: true,
            epoch_order: true,
            column_groups: true,
            commits_in_regions: true,
            reserves: true,
            ..Capabilities::NONE
        },
        options: &OPTIONS,
        effects: &[],
    };
    const HEADER_BYTES: usize = snapshot_numbered::HEADER_BYTES;
    /// As §5.1 has it; beside the row version instead of the record, see README.
    const VERSION_HEADER_BYTES: usize = snapshot_numbered::VERSION_HEADER_BYTES;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> Dbx {
        let budget = region::budget(options, environment);
        Dbx { snapshot: SnapshotNumber::default(), budget, rebases_max: options.get(&REBASES_MAX) as u32 }
    }

    fn worker(&self, mut core: Core) -> Worker<State> {
        core.agent.set_budget(self.budget);
        let state = State(SnapshotNumbered::new(&self.snapshot));
        Worker::new(core, state).rebasing(self.rebases_max)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(Dbx, LockBit);

impl Versions for Dbx {
    fn describe(&self, layout: &RecordLayout, row_version: usize, tid: Tid) {
        self.snapshot.describe(layout, row_version, tid);
    }
}

/// A DBX worker's own state.
pub struct State(SnapshotNumbered);

impl Variant for State {
    type By = ();
    const REBASES: bool = true;
    const COPIES: bool = true;

    fn claim(&self) -> impl gc::Claim {
        LockBit
    }

    #[inline]
    fn begin(&mut self, core: &mut Core, mode: Mode) {
        let reading = (mode == Mode::ReadOnly).then(|| View::take(core, &self.0.snapshot));
        self.0.begin(reading);
    }

    #[inline(always)]
    fn view(&self) -> Option<impl versions::View> {
        self.0.reading
    }

    #[inline]
    fn commit(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        self.0.commit(attempt, redo)
    }
}
