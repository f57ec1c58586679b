//! The commit of Silo (Tu et al., SOSP 2013, §4.4 and Figure 2): lock, read the epoch, validate, assign the
//! TID, install.
//!
//! 1. Lock the records to be written in address order. Ordered locking cannot deadlock, but each wait is bounded all
//!    the same (promise d). A record that changed since it was read ends the attempt at once.
//! 2. Fence, read E, fence: the serialization point.
//! 3. Validate: every record read has its word unchanged and is not locked by another; every node version has
//!    its value.
//! 4. Assign the TID: above every TID read or overwritten, above this worker's last, in E.
//! 5. Install and unlock, record by record.

use seriatim_base::word::{Ordering, fence};
use seriatim_base::{Backoff, Epoch, Tid, abort_on_unwind};
use seriatim_memory::CountedVec;
use seriatim_txn::{Core, Fault, Knob, Mode, OpError, Outcome, Phase, Redo};

use super::access_locks::AccessLocks as _;
use super::gc;
use super::optimistic::{LockBit, Optimistic};
use super::origin::Origin;
use super::record_header::Plain;
use super::worker::Variant;
use super::write_phase::{install, lock, unlock};

/// How long a commit waits for a record of its write set. (The epoch's length belongs to the database.)
pub const LOCK_STEPS: Knob = Knob {
    name: "lock_steps",
    unit: "steps",
    default: Backoff::STEPS as u64,
    min: 0,
    max: 1_000_000,
    about: "how often a commit looks again at a record that another commit has locked, before it gives up",
    source: "ours: a commit holds its locks for about a microsecond; the first 6 steps spin for 63 pauses, later ones \
        yield",
};

/// The own state of a worker that commits so.
#[derive(Debug)]
pub struct State {
    /// How long a commit waits for a record of its write set.
    pub lock_steps: u32,
    /// The worker's newest TID: its own commits are ordered (§4.2).
    last: Tid,
    /// Scratch of a commit: entries in locking order.
    order: CountedVec<u32>,
}

impl State {
    pub fn new(lock_steps: u32, core: &Core) -> State {
        State { lock_steps, last: Tid::ZERO, order: core.local.counted(64) }
    }
}

impl Variant for State {
    type By = ();
    const REBASES: bool = true;
    const COPIES: bool = true;

    fn claim(&self) -> impl gc::Claim {
        LockBit
    }

    #[inline]
    fn begin(&mut self, _: &mut Core, _: Mode) {
        self.order.clear();
    }

    fn commit(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        commit(attempt, self, redo)
    }

    fn rest(&mut self) {
        self.order.rest();
    }
}

pub fn commit<O: Origin>(
    attempt: &mut Optimistic<O>,
    state: &mut State,
    redo: &mut dyn Redo,
) -> Result<Outcome, OpError> {
    if attempt.base.writes.is_empty() {
        return attempt.commit_read_only(&LockBit);
    }
    // A transaction that finds a locked record aborts again and again: a panic that left one locked would
    // never end that.
    let tid = abort_on_unwind("a commit", || {
        loop {
            match decide(attempt, state) {
                Err(_) if attempt.rebase(true) => state.order.clear(),
                decided => break decided,
            }
        }
    })?;
    attempt.locks.withdraw();
    attempt.base.report(tid, redo);
    attempt.base.settle(tid, &LockBit);
    attempt.base.finish(&LockBit);
    Ok(Outcome::Committed(tid))
}

/// Steps 1 to 5: the TID, or the conflict. No record stays locked.
#[inline(always)]
fn decide<O: Origin>(attempt: &mut Optimistic<O>, state: &mut State) -> Result<Tid, OpError> {
    lock(attempt, &mut state.order, state.lock_steps)?;
    // ORDERING: the locks are visible before the epoch is read, and it is read before the read set is validated.
    fence(Ordering::SeqCst);
    let epoch = attempt.base.core.epochs.current();
    fence(Ordering::SeqCst);
    let failure = Optimistic::validation_failure(&mut Plain, &attempt.reads, &attempt.node_set, &attempt.base.writes);
    if let Some(failure) = failure.filter(|_| !attempt.base.core.injects(Fault::SkipValidation)) {
        unlock(attempt.base.writes.entries(), &state.order);
        return Err(attempt.record_conflict(Phase::Validate, failure));
    }
    assert!(!attempt.base.core.injects(Fault::PanicInCommit), "a deliberate panic with locks held");
    let tid = state.last.max(attempt.base.newest).next(Epoch(epoch.0));
    state.last = tid;
    install(attempt, tid, |_| {});
    Ok(tid)
}
