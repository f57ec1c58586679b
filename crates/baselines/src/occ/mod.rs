//! OCC: optimistic execution, and backward validation under write locks. Commit timestamps are above those of
//! all readers of overwritten versions, so that their order is the serial order.
//!
//! Source: Kung and Robinson, On Optimistic Methods for Concurrency Control, TODS 1981. It is validated record by
//! record, with timestamps without a shared counter as in Tu et al., SOSP 2013, and with anti-dependencies. `README.md`
//! beside this file gives the algorithm, the departures and the argument. Software only.

mod commit;
mod timestamps;

use std::sync::Arc;

use seriatim_base::{Backoff, Tid};
use seriatim_memory::{CountedVec, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Knob, Mode, OpError, Options, Outcome, Peeked, Protocol, ProtocolInfo, Redo,
    Requirements, RowBuffer, Table,
};

use crate::shared::absences::Absences;
use crate::shared::gc;
use crate::shared::optimistic::Optimistic;
use crate::shared::record_header;
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};
use timestamps::{Claim, Timestamped};

/// Classic OCC.
#[derive(Debug)]
pub struct Occ {
    lock_steps: u32,
    absences: Arc<Absences>,
}

/// How long a commit waits for a record of its write set. (The epoch's length belongs to the database.)
const LOCK_STEPS: Knob = Knob {
    name: "lock_steps",
    unit: "steps",
    default: Backoff::STEPS as u64,
    min: 0,
    max: 1_000_000,
    about: "how often a commit looks again at a record that another commit has locked, before it gives up",
    source: "ours: as silo's, so that the two differ by the tracking of readers alone",
};

impl Protocol for Occ {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "occ",
        summary: "optimistic; validates under the locks of its write set; a commit's timestamp lies above those \
            of all readers of the rows that it overwrites",
        source: "Kung and Robinson, On Optimistic Methods for Concurrency Control, TODS 1981; the baseline of Wu and \
            Tan, HTCC, USENIX ATC 2016",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            strict: true,
            epoch_order: true,
            tid_order: true,
            reserves: true,
            ..Capabilities::NONE
        },
        options: &[LOCK_STEPS],
        effects: &[],
    };
    /// TID word, version word, read timestamp.
    const HEADER_BYTES: usize = record_header::bytes(1);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> Occ {
        let absences = Arc::new(Absences::new(&environment.memory));
        Occ { lock_steps: options.get(&LOCK_STEPS) as u32, absences }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let state = State::new(self, &core);
        Worker::new(core, state)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(Occ, Claim);

impl Versions for Occ {
    fn rest(&self, table: &Table, record: RecordPtr) {
        timestamps::rest(table, record);
    }
}

/// An OCC worker's own state.
#[derive(Debug)]
pub struct State {
    lock_steps: u32,
    absences: Arc<Absences>,
    /// The worker's newest TID: its own commits are ordered.
    last: Tid,
    /// Scratch of a commit: entries in locking order.
    order: CountedVec<u32>,
}

impl State {
    fn new(occ: &Occ, core: &Core) -> State {
        let order = core.local.counted(64);
        let Occ { lock_steps, absences } = occ;
        absences.add(core.local.worker());
        State { lock_steps: *lock_steps, absences: Arc::clone(absences), last: Tid::ZERO, order }
    }
}

impl Variant for State {
    type By = Timestamped;
    const RESERVES: bool = true;

    fn claim(&self) -> impl gc::Claim {
        Claim
    }

    #[inline]
    fn begin(&mut self, _: &mut Core, _: Mode) {
        self.order.clear();
    }

    fn commit(&mut self, attempt: &mut Optimistic<Timestamped>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        commit::commit(attempt, self, redo)
    }

    fn rest(&mut self) {
        self.order.rest();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
