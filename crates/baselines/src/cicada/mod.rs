//! Cicada: optimistic execution on multiple versions, in the order of timestamps. A transaction draws its
//! timestamp from the clock at its first access.
//!
//! Source: Lim, Kaminsky, Andersen, Cicada: Dependably Fast Multi-Core In-Memory Transactions, SIGMOD 2017;
//! `README.md` beside this file gives the algorithm, the departures and the argument. Software only.

mod access;
mod clock;
mod commit;
mod snapshot;
mod versions;

use std::sync::Arc;

use seriatim_base::{Backoff, Tid};
use seriatim_memory::{CountedVec, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Freshness, Knob, Mode, OpError, Options, Outcome, Peeked, Protocol, ProtocolInfo,
    RecordLayout, Redo, Requirements, RowBuffer, Table,
};

use crate::shared::absences::Absences;
use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::record_header;
use crate::shared::restore::{self, Versions};
use crate::shared::versions as chains;
use crate::shared::worker::{Variant, Worker};
use access::{Entry, Timestamp, Unlinking};
use clock::Clock;
use snapshot::{UnderWay, View};
use versions::VersionHeader;

/// Cicada.
#[derive(Debug)]
pub struct Cicada {
    clock: Arc<Clock>,
    under_way: Arc<UnderWay>,
    absences: Arc<Absences>,
    wait_steps: u32,
    early_checks: u32,
}

/// How often an access or a commit looks again at a pending version.
const WAIT_STEPS: Knob = Knob {
    name: "wait_steps",
    unit: "steps",
    default: Backoff::STEPS as u64,
    min: 0,
    max: 1_000_000,
    about: "how often a transaction looks again at a pending version of an earlier transaction before it aborts",
    source: "ours: as silo's lock_steps; the paper waits without a bound, since a pending version is decided soon",
};

/// After a refused commit, how many commits check early whether they can succeed.
const EARLY_CHECKS: Knob = Knob {
    name: "early_checks",
    unit: "commits",
    default: 5,
    min: 0,
    max: 1_000_000,
    about: "how many of a worker's commits, after one was refused, validate their reads and writes before they lock",
    source: "the paper leaves the early consistency check out after 5 commits in a row (§3.5)",
};

impl Protocol for Cicada {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "cicada",
        summary: "optimistic; draws a timestamp from a clock at its first access, reads the versions of that \
                  timestamp, and commits at it",
        source: "Lim, Kaminsky, Andersen, Cicada: Dependably Fast Multi-Core In-Memory Transactions, SIGMOD 2017",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            snapshots: Freshness::Past,
            strict: true,
            epoch_order: true,
            regulated: true,
            ..Capabilities::NONE
        },
        options: &[WAIT_STEPS, EARLY_CHECKS],
        effects: &[],
    };
    /// TID word, version word, wts, rts.
    const HEADER_BYTES: usize = record_header::bytes(2);
    /// TID, wts, previous version.
    const VERSION_HEADER_BYTES: usize = VersionHeader::BYTES;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> Cicada {
        let clock = Arc::new(Clock::new(&environment.memory));
        let under_way = Arc::new(UnderWay::new(Arc::clone(&clock), &environment.memory));
        environment.memory.keep_for(Arc::clone(&under_way) as _);
        Cicada {
            clock,
            under_way,
            absences: Arc::new(Absences::new(&environment.memory)),
            wait_steps: options.get(&WAIT_STEPS) as u32,
            early_checks: options.get(&EARLY_CHECKS) as u32,
        }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let (clock, under_way) = (Arc::clone(&self.clock), Arc::clone(&self.under_way));
        let timestamp = Timestamp::new(clock, Arc::clone(&under_way), core.local.worker(), self.wait_steps);
        self.absences.add(core.local.worker());
        let order = core.local.counted(64);
        let state = State {
            absences: Arc::clone(&self.absences),
            under_way,
            wait_steps: self.wait_steps,
            early_checks: self.early_checks,
            early_left: 0,
            reading: None,
            after: 0,
            order,
        };
        Worker::with_locks(core, state, timestamp)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

// No other thread uses the database during a recovery.
restore::recovers!(Cicada, LockBit);

impl Versions for Cicada {
    fn rest(&self, table: &Table, record: RecordPtr) {
        versions::rest(table, record);
    }

    fn describe(&self, layout: &RecordLayout, row_version: usize, tid: Tid) {
        // SAFETY: no other thread can access a row that is being restored.
        unsafe { versions::header(tid, 0, 0).write(layout.row, row_version) };
    }
}

/// A Cicada worker's own state.
#[derive(Debug)]
pub struct State {
    absences: Arc<Absences>,
    under_way: Arc<UnderWay>,
    /// How often a snapshot checks whether it may see the transactions that it must follow.
    wait_steps: u32,
    early_checks: u32,
    /// How many further commits check early whether they can succeed.
    early_left: u32,
    /// The view of a read-only transaction. `None`: it reads at a present timestamp, and validates.
    reading: Option<View>,
    /// The timestamp that the next snapshot must not be below.
    after: u64,
    /// Scratch of a commit: entries in locking order, with the wts of the version that each replaces.
    order: CountedVec<(u64, u32)>,
}

impl State {
    /// A view for a snapshot. `None` if its timestamp would be below the one that it must follow, and stays
    /// below while it waits.
    fn take_view(&mut self, core: &Core) -> Option<View> {
        let after = std::mem::take(&mut self.after);
        if core.shown_epoch().is_some() {
            // All transactions of a durable epoch have ended, and active ones commit later. So the epoch alone
            // determines the view.
            return Some(View::new(core, u64::MAX));
        }
        if after == u64::MAX {
            return None;
        }
        let mut backoff = Backoff::bounded(self.wait_steps);
        loop {
            let at = self.under_way.read_at();
            if at >= after {
                return Some(View::new(core, at));
            }
            if !backoff.wait() {
                return None;
            }
        }
    }
}

impl Variant for State {
    type By = Entry;

    fn claim(&self) -> impl gc::Claim {
        Unlinking(&self.absences)
    }

    #[inline]
    fn begin(&mut self, core: &mut Core, mode: Mode) {
        self.order.clear();
        self.reading = None;
        if mode == Mode::ReadOnly {
            self.reading = self.take_view(core);
        }
    }

    #[inline(always)]
    fn view(&self) -> Option<impl chains::View> {
        self.reading
    }

    fn come_after(&mut self, place: u64) {
        self.after = place;
    }

    fn place(&self, attempt: &Optimistic<Entry>) -> u64 {
        self.reading.filter(|view| view.at < u64::MAX).map_or(attempt.locks.last(), |view| view.at)
    }

    fn validate(&mut self, attempt: &mut Optimistic<Entry>) -> Result<(), OpError> {
        commit::validate(attempt, self)
    }

    fn commit(&mut self, attempt: &mut Optimistic<Entry>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        commit::commit(attempt, self, redo)
    }

    fn rest(&mut self) {
        self.order.rest();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
