//! Optimistic execution with a validator that orders batches. Transactions are executed and held. A batch of
//! them is ordered so that few conflict; those few are left out, and the others are decided in that order.
//!
//! Source: Ding, Kot, Gehrke, "Improving Optimistic Concurrency Control Through Transaction Batching and
//! Operation Reordering", PVLDB 12(2), 2018, §3 and §4. `README.md` beside this file gives the departures and the
//! argument. Software only.

mod marks;
mod validator;

use seriatim_batch::Settings;
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Batching, Capabilities, Core, Environment, Mode, OpError, Options, Outcome, Peeked, Protocol, ProtocolInfo, Redo,
    Requirements, RowBuffer, Table, Validator,
};

use crate::shared::epoch_commit::{self, LOCK_STEPS};
use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::rebase::REBASES_MAX;
use crate::shared::record_header;
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};
use marks::{Entry, Marks};
use validator::{Faults, Orders};

/// Validator batching.
#[derive(Debug)]
pub struct OccBatch {
    lock_steps: u32,
    rebases_max: u32,
    storage_batching: bool,
    batching: Batching,
    reorders: bool,
    settings: Settings,
    faults: Faults,
}

impl Protocol for OccBatch {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "occ-batch",
        summary: "optimistic; a validator orders batches of executed transactions, so that readers commit before \
            writers",
        source: "Ding, Kot, Gehrke, Improving Optimistic Concurrency Control Through Transaction Batching and \
            Operation Reordering, PVLDB 12(2), 2018",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            strict: true,
            epoch_order: true,
            column_groups: true,
            detach: true,
            ..Capabilities::NONE
        },
        options: validator::OPTIONS,
        effects: &[],
    };
    /// TID word, version word, mark.
    const HEADER_BYTES: usize = record_header::bytes(1);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> OccBatch {
        OccBatch {
            lock_steps: options.get(&LOCK_STEPS) as u32,
            rebases_max: options.get(&REBASES_MAX) as u32,
            storage_batching: options.get(&validator::STORAGE_BATCHING) != 0,
            batching: validator::batching(options),
            reorders: options.get(&validator::REORDER) != 0,
            settings: validator::settings(options),
            faults: Faults::of(environment),
        }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let state = State(epoch_commit::State::new(self.lock_steps, &core));
        let marks = Marks::new(self.storage_batching, &core.local);
        Worker::with_locks(core, state, marks).rebasing(self.rebases_max)
    }

    fn validator(&self) -> Option<Box<dyn Validator>> {
        let OccBatch { batching, reorders, settings, faults, .. } = *self;
        Some(Box::new(Orders { batching, reorders, settings, faults }))
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(OccBatch, LockBit);

impl Versions for OccBatch {
    fn rest(&self, table: &Table, record: RecordPtr) {
        marks::rest(table, record);
    }
}

/// The own state of a worker: that of a commit by epochs, which a decision is.
#[derive(Debug)]
pub struct State(epoch_commit::State);

impl Variant for State {
    type By = Entry;
    const REBASES: bool = true;
    /// Which writes are blind is known from the notes.
    const REBASES_ALL: bool = true;

    fn claim(&self) -> impl gc::Claim {
        LockBit
    }

    #[inline]
    fn begin(&mut self, core: &mut Core, mode: Mode) {
        self.0.begin(core, mode);
    }

    fn commit(&mut self, attempt: &mut Optimistic<Entry>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        epoch_commit::commit(attempt, &mut self.0, redo)
    }

    fn rest(&mut self) {
        self.0.rest();
    }
}

#[cfg(test)]
mod tests;
