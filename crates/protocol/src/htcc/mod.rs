//! HTCC: hot records are locked when they are accessed, cold ones validated and installed in one region at commit.
//!
//! Source: Wu and Tan, Scalable In-Memory Transaction Processing with HTM, USENIX ATC 2016, §3. `README.md` beside this
//! file gives what was built, the departures and why it is right.

mod commit;
mod heat;
mod locks;

use std::sync::Arc;

use seriatim_base::Backoff;
use seriatim_htm::Budget;
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, DatabaseSettings, Environment, HotRecord, Knob, Mode, OpError, Options, Outcome, Peeked,
    Protocol, ProtocolInfo, REPAIR_ALL, REPAIR_FROM, REPAIR_SHARE_MAX, Redo, Requirements, RowBuffer, Table, VALIDATE,
};

use crate::shared::gc;
use crate::shared::optimistic::Optimistic;
use crate::shared::rebase::REBASES_MAX;
use crate::shared::record_header;
use crate::shared::region;
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};
use heat::Heat;
use locks::{Entry, HotClaim, Locks};

/// HTCC.
#[derive(Debug)]
pub struct Htcc {
    heat: Arc<Heat>,
    /// The budget of its workers' regions, those of the indexes included.
    budget: Budget,
    rebases_max: u32,
    repairs_max: u32,
    repair_all: bool,
    validates: bool,
}

/// How long an access waits for a hot record.
const LOCK_STEPS: Knob = Knob {
    name: "lock_steps",
    unit: "steps",
    default: Backoff::SPINS as u64,
    min: 0,
    max: 1_000_000,
    about: "how often an access looks again at a hot record that another transaction has locked before the attempt \
        aborts",
    source: "ours: the paper waits for a certain time range (§3.2); the first 6 steps spin for 63 pauses, later \
        ones yield. A waiting transaction holds locks: with θ 0.99, YCSB on 16 simulated cores commits four times as \
        much with 6 as with 64",
};

/// How often an attempt is repaired.
const REPAIRS_MAX: Knob = Knob {
    name: "repairs_max",
    unit: "repairs",
    default: 16,
    min: 0,
    max: 10_000,
    about: "how often a procedure's attempt is repaired before the whole procedure is retried; 0: never",
    source: "ours: the paper repairs until a hot record's lock cannot be had (Figure 4)",
};

const OPTIONS: [Knob; 17] = {
    let [conflict, divided, capacity, system, held] = region::KNOBS;
    let (hot, period, failures, kept) = (heat::HOT, heat::PERIOD, heat::FAILURES, heat::FAILURES_KEPT);
    let max = heat::RECORDS_MAX;
    let (repairs, all) = (REPAIRS_MAX, REPAIR_ALL);
    [
        hot,
        period,
        failures,
        kept,
        max,
        LOCK_STEPS,
        REBASES_MAX,
        REPAIR_FROM,
        REPAIR_SHARE_MAX,
        repairs,
        all,
        VALIDATE,
        conflict,
        divided,
        capacity,
        system,
        held,
    ]
};

impl Protocol for Htcc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "htcc",
        summary: "locks hot records when they are accessed, validates and installs cold ones in one region, or under \
            record locks without; repairs procedures",
        source: "Wu and Tan, Scalable In-Memory Transaction Processing with HTM, USENIX ATC 2016",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            strict: true,
            epoch_order: true,
            column_groups: true,
            repair: true,
            commits_in_regions: true,
            hot_tables: true,
            reserves: true,
            ..Capabilities::NONE
        },
        options: &OPTIONS,
        effects: &[],
    };
    /// TID word with the hot bit, version word, lock and failures.
    const HEADER_BYTES: usize = record_header::bytes(1);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn check(options: &Options, settings: &DatabaseSettings<'_>) -> Result<(), String> {
        heat::check(options, settings.hot_tables)
    }

    fn open(options: &Options, environment: &Environment) -> Htcc {
        let budget = region::budget(options, environment);
        let repairs_max = options.get(&REPAIRS_MAX) as u32;
        let (repair_all, validates) = (options.get(&REPAIR_ALL) == 1, options.get(&VALIDATE) == 1);
        let heat = Arc::new(Heat::new(options, &environment.hot_tables, &LOCK_STEPS));
        // Without validation nothing is compared again.
        let rebases_max = if validates { options.get(&REBASES_MAX) as u32 } else { 0 };
        Htcc { heat, budget, rebases_max, repairs_max, repair_all, validates }
    }

    fn worker(&self, mut core: Core) -> Worker<State> {
        core.agent.set_budget(self.budget);
        let locks = Locks::new(&core.local, Arc::clone(&self.heat));
        let heat = Arc::clone(&self.heat);
        let Htcc { repairs_max, repair_all, validates, .. } = *self;
        let state = State { heat, repairs: 0, repairs_max, repair_all, validates };
        Worker::with_locks(core, state, locks).rebasing(self.rebases_max)
    }

    fn hot_records(&self) -> Option<Vec<HotRecord>> {
        self.heat.records()
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(Htcc, HotClaim);

impl Versions for Htcc {
    fn rest(&self, table: &Table, record: RecordPtr) {
        locks::rest(table, record);
    }
}

/// An HTCC worker's own state.
#[derive(Debug)]
pub struct State {
    heat: Arc<Heat>,
    /// How often the open attempt was repaired, and may be.
    repairs: u32,
    repairs_max: u32,
    /// Whether repairs make all operations again.
    repair_all: bool,
    /// Whether what was read is validated.
    validates: bool,
}

impl Variant for State {
    type By = Entry;
    const REBASES: bool = true;
    const COPIES: bool = true;

    fn claim(&self) -> impl gc::Claim {
        HotClaim
    }

    #[inline]
    fn begin(&mut self, _: &mut Core, _: Mode) {
        self.repairs = 0;
    }

    #[inline]
    fn commit(&mut self, attempt: &mut Optimistic<Entry>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        commit::commit(attempt, self, redo)
    }

    #[inline]
    fn between(&mut self, core: &mut Core) {
        self.heat.help(core);
    }
}

#[cfg(test)]
mod tests;
