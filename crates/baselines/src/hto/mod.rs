//! HTO: timestamp ordering, in which each access to a record is one small region that looks at its timestamps
//! and leaves the transaction's own.
//!
//! Source: Leis, Kemper, Neumann, Exploiting Hardware Transactional Memory in Main-Memory Databases, ICDE
//! 2014; `README.md` beside this file gives the algorithm, the departures and the argument. Where regions are
//! absent, an access locks the record for its length.

mod access;
mod clock;
mod commit;

use std::sync::Arc;

use seriatim_htm::Budget;
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Knob, OpError, Options, Outcome, Peeked, Protocol, ProtocolInfo, Redo,
    Requirements, RowBuffer, Table,
};

use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::record_header;
use crate::shared::region;
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};
use access::{Entry, Timestamps, Unlinking};
use clock::{ALONE_AFTER, ALONE_STEPS, Clock, ENDED};

/// HTO.
#[derive(Debug)]
pub struct Hto {
    clock: Arc<Clock>,
    /// The budget of its workers' regions, those of the indexes included.
    budget: Budget,
}

const OPTIONS: [Knob; 7] = {
    let [conflict, _, capacity, system, held] = region::KNOBS;
    [ENDED, ALONE_AFTER, ALONE_STEPS, conflict, capacity, system, held]
};

impl Protocol for Hto {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "hto",
        summary: "timestamp ordering; each access is one small region, or locks the record while it lasts; aborts if a \
            record has a later timestamp, or one whose transaction may still be running",
        source: "Leis, Kemper, Neumann, Exploiting Hardware Transactional Memory in Main-Memory Databases, ICDE 2014",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            strict: true,
            epoch_order: true,
            commits_in_regions: true,
            ..Capabilities::NONE
        },
        options: &OPTIONS,
        effects: &[],
    };
    /// TID word, version word, timestamps of the last writer and reader.
    const HEADER_BYTES: usize = record_header::bytes(2);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> Hto {
        let alone = [&ALONE_AFTER, &ALONE_STEPS].map(|knob| options.get(knob) as u32);
        let clock = Arc::new(Clock::new(&environment.memory, alone, options.get(&ENDED) != 0));
        Hto { clock, budget: region::budget(options, environment) }
    }

    fn worker(&self, mut core: Core) -> Worker<State> {
        core.agent.set_budget(self.budget);
        let timestamps = Timestamps::new(Arc::clone(&self.clock), core.local.worker());
        let state = State { clock: Arc::clone(&self.clock) };
        Worker::with_locks(core, state, timestamps)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

// No other thread is active.
restore::recovers!(Hto, LockBit);

impl Versions for Hto {
    fn rest(&self, table: &Table, record: RecordPtr) {
        access::rest(table, record, 0);
    }
}

/// An HTO worker's own state.
#[derive(Debug)]
pub struct State {
    clock: Arc<Clock>,
}

impl Variant for State {
    type By = Entry;

    fn claim(&self) -> impl gc::Claim {
        Unlinking(&self.clock)
    }

    fn commit(&mut self, attempt: &mut Optimistic<Entry>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        let outcome = commit::commit(attempt, self, redo);
        if outcome.is_err() {
            attempt.locks.conflicted();
        }
        outcome
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
