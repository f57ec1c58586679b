//! Naive: a whole procedure in one region, or under one lock of the database.
//!
//! Source: Wang et al., EuroSys 2014, §7.3.2, and DBX-TC, §2.2, which show why it must lose; `README.md`
//! beside this file gives the departures and the argument. The region or the lock keeps out the commits of
//! others, so a procedure notes and validates nothing (`shared/exclusive.rs`). Transactions whose body cannot
//! run whole are Silo's, with the lock around their commits.

#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

use seriatim_htm::{Budget, Htm, SpinLock, Whole};
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Fault, Knob, Mode, OpError, Options, Outcome, Peeked, Protocol, ProtocolInfo,
    Redo, Requirements, RowBuffer, Table,
};

use crate::shared::epoch_commit;
use crate::shared::exclusive;
use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::record_header;
use crate::shared::region;
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};

/// Naive.
#[derive(Debug)]
pub struct Naive {
    htm: Htm,
    /// The budget of whole procedures.
    budget: Budget,
    /// Held by a procedure that does not run in a region, and by the commit of every other transaction.
    lock: Arc<SpinLock>,
    lock_steps: u32,
    /// Deliberately broken: each thread has a lock of its own.
    unshared: bool,
}

/// A region that does not fit is not tried again.
const CAPACITY_MAX: Knob = Knob { default: 1, source: "DBX-TC, §2.2", ..region::KNOBS[2] };

/// How long a commit waits, for a record and for the lock.
const LOCK_STEPS: Knob = Knob {
    about: "how often a commit looks again at a record that is locked, or at the lock of the database, before it \
        gives up",
    source: "ours: a commit holds its locks for about a microsecond; who waits for a long procedure is better run \
        again",
    ..epoch_commit::LOCK_STEPS
};

const OPTIONS: [Knob; 5] = {
    let [conflict, _, _, system, held] = region::KNOBS;
    [LOCK_STEPS, conflict, CAPACITY_MAX, system, held]
};

impl Protocol for Naive {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "naive",
        summary: "runs a whole procedure in one region, or under one lock of the database if that does not commit; \
            other transactions run as under silo and commit under the lock",
        source: "Wang et al., Using Restricted Transactional Memory to Build a Scalable In-Memory Database, EuroSys \
            2014, §7.3.2; DBX-TC, §2.2",
        requirements: Requirements { plan: false, regions: true },
        capabilities: Capabilities { ad_hoc: true, strict: true, epoch_order: true, ..Capabilities::NONE },
        options: &OPTIONS,
        effects: &[],
    };
    /// TID word, version word.
    const HEADER_BYTES: usize = record_header::bytes(0);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> Naive {
        let capacity = options.get(&CAPACITY_MAX) as u32;
        Naive {
            htm: environment.htm.clone(),
            budget: Budget { capacity, ..region::budget(options, environment) },
            lock: Arc::default(),
            lock_steps: options.get(&LOCK_STEPS) as u32,
            unshared: environment.injects(Fault::UnsharedLock),
        }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let commit = epoch_commit::State::new(self.lock_steps, &core);
        let state = State { commit, htm: self.htm.clone(), lock: Arc::clone(&self.lock) };
        Worker::with_locks(core, state, Default::default())
    }

    fn whole(&self) -> Option<Whole> {
        let lock = if self.unshared { Arc::default() } else { Arc::clone(&self.lock) };
        Some(Whole::new(&self.htm, self.budget, &lock))
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(Naive, LockBit);

impl Versions for Naive {}

/// Entries remember nothing.
type Entry = exclusive::Entry<false>;

/// A worker's own state.
#[derive(Debug)]
pub struct State {
    commit: epoch_commit::State,
    htm: Htm,
    lock: Arc<SpinLock>,
}

impl Variant for State {
    type By = Entry;

    fn claim(&self) -> impl gc::Claim {
        LockBit
    }

    #[inline]
    fn begin(&mut self, core: &mut Core, mode: Mode) {
        self.commit.begin(core, mode);
    }

    /// A whole run has seen one instant.
    fn validate(&mut self, attempt: &mut Optimistic<Entry>) -> Result<(), OpError> {
        if attempt.locks.is_whole() { Ok(()) } else { attempt.validate() }
    }

    fn commit(&mut self, attempt: &mut Optimistic<Entry>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        // A whole run is in a region that has seen the lock free, or holds the lock. A transaction without
        // writes conflicts with no whole run.
        let must_exclude = !attempt.locks.is_whole() && !attempt.base.writes.is_empty();
        let held = if must_exclude { self.lock.hold(&self.htm, self.commit.lock_steps) } else { None };
        if must_exclude && held.is_none() {
            return Err(attempt.base.record_lock_conflict());
        }
        let outcome = epoch_commit::commit(attempt, &mut self.commit, redo)?;
        drop(held);
        attempt.locks.end();
        Ok(outcome)
    }

    fn rest(&mut self) {
        self.commit.rest();
    }
}
