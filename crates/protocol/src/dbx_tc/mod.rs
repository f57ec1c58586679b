//! DBX-TC: procedures publish piece by piece, in windows; read-only transactions read eventual snapshots; what else DBX does.
//!
//! Source: HTM with transaction chopping and eventual snapshots, §3 to §5; `README.md` beside this file says what was built, what
//! departs and why it is right.

mod chain;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse};
use seriatim_htm::Budget;
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Epochs, Fault, Freshness, Knob, Mode, OpError, Options, Outcome, Peeked, Protocol,
    ProtocolInfo, Redo, Requirements, RowBuffer, RowPtr, Table,
};

use crate::shared::gc;
use crate::shared::numbered::{self, Numbered, SnapshotNumber, View};
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::rebase::{self, REBASES_MAX};
use crate::shared::record_header;
use crate::shared::region;
use crate::shared::restore::{self, Versions};
use crate::shared::versions;
use crate::shared::worker::{Variant, Worker};
use chain::Late;

/// DBX-TC.
#[derive(Debug)]
pub struct DbxTc {
    snapshot: SnapshotNumber,
    /// Of the regions of its workers, those of the indexes included.
    budget: Budget,
    rebases_max: u32,
    /// Transactions that may publish at a time.
    workers: u32,
}

/// How often a snapshot is made for read-only transactions.
pub const SNAPSHOT_INTERVAL: Knob = Knob {
    name: "snapshot_interval_ms",
    unit: "ms; 0: each read-only transaction makes a snapshot of the present, at a cost to those that write",
    default: 20,
    min: 0,
    max: 10_000,
    about: "how old what a read-only transaction shows of other sessions may be, but for what its session has asked for",
    source: "DBX-TC §4.2: every 20 ms",
};

const OPTIONS: [Knob; 6] = {
    let [conflict, capacity, system, held] = region::KNOBS;
    [conflict, capacity, system, held, REBASES_MAX, SNAPSHOT_INTERVAL]
};

impl Protocol for DbxTc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "dbx-tc",
        summary: "as dbx; sums that procedures only add to are published after the rest, each by itself; snapshots made every 20 ms",
        source: "HTM with transaction chopping and eventual snapshots for in-memory transactions (DBX-TC)",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            snapshots: Freshness::Eventual,
            strict: true,
            epoch_order: true,
            tid_order: false,
            column_groups: true,
            pieces: true,
            detach: true,
            repair: false,
            partitions: false,
            regulated: false,
        },
        options: &OPTIONS,
    };
    const HEADER_BYTES: usize = numbered::HEADER_BYTES;
    const VERSION_HEADER_BYTES: usize = numbered::VERSION_HEADER_BYTES;
    type Worker = Worker<State>;

    fn open(options: &Options, environment: &Environment) -> DbxTc {
        let workers = environment.memory.workers_max();
        if !environment.injects(Fault::NoWindows) {
            environment.epochs.windows().allow(workers);
        }
        let budget = region::budget(options, environment);
        let (snapshot, workers) = (SnapshotNumber::default(), workers as u32);
        match options.get(&SNAPSHOT_INTERVAL) {
            0 => environment.epochs.snapshots().make_when_taken(),
            interval => {
                environment.epochs.snapshots().allow(snapshot.word(), Duration::from_millis(interval));
                environment.memory.keep_snapshots();
            }
        }
        DbxTc { snapshot, budget, rebases_max: options.get(&REBASES_MAX) as u32, workers }
    }

    fn worker(&self, mut core: Core) -> Worker<State> {
        core.agent.set_budget(self.budget);
        let numbered = Numbered::new(&core, &self.snapshot);
        let (late, epochs) = (Late::new(&core, self.workers), Arc::clone(&core.epochs));
        Worker::new(core, State { numbered, epochs, follows: false, late }).rebasing(self.rebases_max)
    }

    fn column_groups(&self, table: &Table) -> Vec<ColumnSet> {
        rebase::column_groups(table)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(DbxTc, LockBit);

impl Versions for DbxTc {
    fn describe(&self, row_version: usize, tid: Tid) {
        self.snapshot.describe(row_version, tid);
    }
}

/// A DBX-TC worker's own state.
pub struct State {
    numbered: Numbered,
    /// Those of the core: the windows are borrowed while the attempt is worked on.
    epochs: Arc<Epochs>,
    /// Whether the transaction runs a registered procedure.
    follows: bool,
    late: Late,
}

impl Variant for State {
    type By = ();
    const REBASES: bool = true;
    const PIECES: bool = true;

    fn claim(&self) -> impl gc::Claim {
        LockBit
    }

    #[inline]
    fn begin(&mut self, core: &mut Core, mode: Mode) {
        self.follows = false;
        self.late.clear();
        let reading = (mode == Mode::ReadOnly).then(|| match self.epochs.snapshots().eventual() {
            Some(eventual) => View::take_eventual(core, eventual),
            None => {
                let _closed = self.epochs.windows().close();
                View::take(core, &self.numbered.snapshot)
            }
        });
        self.numbered.begin(reading);
    }

    #[inline]
    fn follow(&mut self) {
        self.follows = true;
    }

    #[inline(always)]
    fn view(&self) -> Option<impl versions::View> {
        self.numbered.reading
    }

    #[inline]
    fn updated(
        &mut self,
        attempt: &Optimistic,
        table: &Table,
        before: RowPtr,
        columns: ColumnUse,
    ) -> Result<(), OpError> {
        if self.follows && table.commuting.allows(columns) {
            self.late.note(attempt, table, before, columns)?;
        }
        Ok(())
    }

    fn rolled_back(&mut self) {
        self.late.rolled_back();
    }

    fn validate(&mut self, attempt: &mut Optimistic) -> Result<(), OpError> {
        // What is told of, an overflow among it, is judged on no half of a chain.
        let _closed = self.epochs.windows().close();
        attempt.validate()
    }

    #[inline]
    fn commit(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        match self.follows {
            true if self.late.is_empty() => self.numbered.commit(attempt, redo),
            true => self.commit_chain(attempt, redo),
            // It is none of the set: what it read may be half of a chain, unless this finds it unchanged now.
            false if self.numbered.reading.is_none() => {
                let _closed = self.epochs.windows().close();
                if attempt.base.writes.is_empty() {
                    // One word alone too: it may have been read in a window.
                    attempt.validate()?;
                    return Ok(attempt.end_read_only(&LockBit));
                }
                self.numbered.commit(attempt, redo)
            }
            false => self.numbered.commit(attempt, redo),
        }
    }

    fn rest(&mut self) {
        self.numbered.rest();
        self.late.rest();
    }
}
