//! Partitioned: a procedure owns the partitions that its arguments name, and runs in them without concurrency control.
//!
//! Source: Jones, Abadi, Madden, SIGMOD 2010, §2 and §3. `README.md` beside this file gives the departures and the
//! argument. Most departures follow from one process having one memory. The locks of its partitions keep out the
//! commits of others there, so a procedure notes and validates nothing (`shared/exclusive.rs`). All other transactions
//! are Silo's, and commit under the locks of the partitions that they write.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use seriatim_memory::Pinned;
use seriatim_store::{RecordPtr, read_key};
use seriatim_txn::{
    Capabilities, Cause, Core, Environment, Fault, Knob, Mode, OpError, Options, Outcome, PartitionSet, Partitions,
    Peeked, Phase, Placement, Protocol, ProtocolInfo, Reason, Redo, Requirements, RowBuffer, Table,
};

use crate::shared::epoch_commit;
use crate::shared::exclusive::{self, Exclusive};
use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::record_header;
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};

/// Partitioned.
#[derive(Debug)]
pub struct Partitioned {
    partitions: Arc<Partitions>,
    own_wait: Duration,
    commit_wait: Duration,
    lock_steps: u32,
    /// Deliberately broken: each thread has locks of its own.
    unshared: bool,
}

/// How long an attempt of a procedure waits for a partition.
const OWN_WAIT: Knob = Knob {
    name: "own_wait_us",
    unit: "us",
    default: 1_000_000,
    min: 0,
    max: 60_000_000,
    about: "how long a procedure waits for a partition that others own before its attempt ends",
    source: "ours: they are served in turn, so that this is for procedures that do not come to an end",
};

/// How long the commit of another transaction waits for a partition.
const COMMIT_WAIT: Knob = Knob {
    name: "commit_wait_us",
    unit: "us",
    default: 1000,
    min: 0,
    max: 1_000_000,
    about: "how long the commit of a transaction that is no procedure waits for a partition before it gives up",
    source: "ours: a tenth of an epoch, which the log does not close meanwhile",
};

const OPTIONS: [Knob; 3] = [epoch_commit::LOCK_STEPS, OWN_WAIT, COMMIT_WAIT];

impl Protocol for Partitioned {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "partitioned",
        summary: "a procedure owns the partitions that its arguments name, and runs alone there; other transactions \
            run as under silo, and commit as owners of the partitions that they write",
        source: "Jones, Abadi, Madden, Low Overhead Concurrency Control for Partitioned Main Memory Databases, SIGMOD \
            2010, §2 and §3",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            strict: true,
            epoch_order: true,
            partitions: true,
            ..Capabilities::NONE
        },
        options: &OPTIONS,
        effects: &[],
    };
    /// TID word, version word.
    const HEADER_BYTES: usize = record_header::bytes(0);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> Partitioned {
        Partitioned {
            partitions: Arc::clone(&environment.partitions),
            own_wait: Duration::from_micros(options.get(&OWN_WAIT)),
            commit_wait: Duration::from_micros(options.get(&COMMIT_WAIT)),
            lock_steps: options.get(&epoch_commit::LOCK_STEPS) as u32,
            unshared: environment.injects(Fault::UnsharedLock),
        }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let commit = epoch_commit::State::new(self.lock_steps, &core);
        let state = State { commit, partitions: Arc::clone(&self.partitions), wait: self.commit_wait };
        Worker::with_locks(core, state, Exclusive::among(Arc::clone(&self.partitions)))
    }

    fn partitions(&self) -> Option<(Arc<Partitions>, Duration)> {
        let partitions =
            if self.unshared { Arc::new(self.partitions.unshared()) } else { Arc::clone(&self.partitions) };
        Some((partitions, self.own_wait))
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(Partitioned, LockBit);

impl Versions for Partitioned {}

/// Entries remember nothing.
type Entry = exclusive::Entry<true>;

/// A worker's own state.
#[derive(Debug)]
pub struct State {
    commit: epoch_commit::State,
    partitions: Arc<Partitions>,
    wait: Duration,
}

impl State {
    /// The partitions that an attempt is going to write.
    fn written(&self, attempt: &mut Optimistic<Entry>) -> Result<PartitionSet, OpError> {
        let mut written = PartitionSet::NONE;
        for at in 0..attempt.base.writes.entries().len() {
            let write = attempt.base.writes.entries()[at];
            let table = write.table();
            let Placement::Value(place) = &table.placement else { return Ok(PartitionSet::ALL) };
            // SAFETY: key words of a linked record never change, and the worker is online.
            let key = unsafe { read_key(write.record, table.class) };
            match self.partitions.of_key(place, key) {
                Ok(partition) => written = written.union(PartitionSet::one(partition)),
                Err(OpError::Abort(cause)) => return Err(attempt.base.conflict_at(cause, table, write.record)),
                Err(wait) => return Err(wait),
            }
        }
        Ok(written)
    }
}

impl Variant for State {
    type By = Entry;
    const COPIES: bool = true;

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
        // A whole run owns the partitions that it writes already. A transaction without writes conflicts with no owner.
        let is_covered = attempt.locks.is_whole() || attempt.base.writes.is_empty();
        let owned = if is_covered || attempt.base.core.injects(Fault::CommitUnowned) {
            None
        } else {
            let owned = self.partitions.own(self.written(attempt)?, self.wait);
            Some(owned.ok_or(OpError::Abort(Cause { phase: Phase::Lock, reason: Reason::WaitTimeout }))?)
        };
        let outcome = epoch_commit::commit(attempt, &mut self.commit, redo)?;
        drop(owned);
        attempt.locks.end();
        Ok(outcome)
    }

    fn rest(&mut self) {
        self.commit.rest();
    }
}
