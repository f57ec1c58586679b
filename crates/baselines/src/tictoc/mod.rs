//! TicToc: optimistic execution; each version is valid up to a read timestamp. A transaction commits at a
//! timestamp at which all its reads are valid, even if later timestamps have been used.
//!
//! Source: Yu et al., TicToc: Time Traveling Optimistic Concurrency Control, SIGMOD 2016; `README.md` beside
//! this file gives the algorithm, the departures and the argument. Software only. Serializable, not strict.

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
use timestamps::{Claim, ValidUpTo};

/// TicToc.
#[derive(Debug)]
pub struct TicToc {
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
    about: "how often a commit looks again at a record that another commit has locked, before it gives up; 0 is the \
        paper's no-wait",
    source: "ours: as silo's, so that the two differ by their timestamps alone",
};

impl Protocol for TicToc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "tictoc",
        summary: "optimistic; commits at a timestamp at which all its reads are valid, and extends read timestamps for \
            that; not in real-time order",
        source: "Yu et al., TicToc: Time Traveling Optimistic Concurrency Control, SIGMOD 2016",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
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

    fn open(options: &Options, environment: &Environment) -> TicToc {
        let absences = Arc::new(Absences::new(&environment.memory));
        TicToc { lock_steps: options.get(&LOCK_STEPS) as u32, absences }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let state = State::new(self, &core);
        Worker::new(core, state)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(TicToc, Claim);

impl Versions for TicToc {
    fn rest(&self, table: &Table, record: RecordPtr) {
        timestamps::rest(table, record);
    }
}

/// A TicToc worker's own state.
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
    fn new(tictoc: &TicToc, core: &Core) -> State {
        let order = core.local.counted(64);
        let TicToc { lock_steps, absences } = tictoc;
        absences.add(core.local.worker());
        State { lock_steps: *lock_steps, absences: Arc::clone(absences), last: Tid::ZERO, order }
    }
}

impl Variant for State {
    type By = ValidUpTo;
    const RESERVES: bool = true;

    fn claim(&self) -> impl gc::Claim {
        Claim
    }

    #[inline]
    fn begin(&mut self, _: &mut Core, _: Mode) {
        self.order.clear();
    }

    fn validate(&mut self, attempt: &mut Optimistic<ValidUpTo>) -> Result<(), OpError> {
        commit::validate(attempt, self)
    }

    fn commit(&mut self, attempt: &mut Optimistic<ValidUpTo>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        commit::commit(attempt, self, redo)
    }

    fn rest(&mut self) {
        self.order.rest();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
