//! DBX-TC: procedures publish piece by piece, in windows; read-only transactions read eventual snapshots;
//! everything else as DBX.
//!
//! Source: HTM with transaction chopping and eventual snapshots, §3 to §5; `README.md` beside this file gives
//! what was built, the departures and why it is right.

mod chain;
mod deferral;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use seriatim_base::{Epoch, Tid};
use seriatim_catalog::ColumnUse;
use seriatim_htm::Budget;
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, CapabilityChange, Core, DatabaseSettings, Environment, Epochs, Fault, Freshness, Knob, Mode, OpError,
    OptionEffect, Options, Outcome, Peeked, Protocol, ProtocolInfo, RecordLayout, Redo, Requirements, RowBuffer,
    RowPtr, SnapshotTerms, Table,
};

use crate::shared::gc;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::rebase::REBASES_MAX;
use crate::shared::record_header;
use crate::shared::region;
use crate::shared::restore::{self, Versions};
use crate::shared::snapshot_numbered::{self, SnapshotNumber, SnapshotNumbered, View};
use crate::shared::versions;
use crate::shared::worker::{Variant, Worker};
use chain::Late;

/// DBX-TC.
#[derive(Debug)]
pub struct DbxTc {
    snapshot: SnapshotNumber,
    /// The budget of its workers' regions, those of the indexes included.
    budget: Budget,
    rebases_max: u32,
    /// Transactions that may publish at a time.
    workers: u32,
    late_period: u32,
    late_max: u32,
    defers: bool,
}

/// The age of snapshots for read-only transactions.
pub const SNAPSHOT_INTERVAL: Knob = Knob {
    name: "snapshot_interval_ms",
    unit: "ms; 0: each read-only transaction makes a snapshot of the present, which costs writers",
    default: 20,
    min: 0,
    max: 10_000,
    about: "how often a snapshot is made, and so the largest age of what a read-only transaction sees, unless its \
        session requires newer commits",
    source: "DBX-TC §4.2: every 20 ms",
};

/// How many readers must use an existing snapshot for snapshots to be made for all.
pub const SNAPSHOT_WANTED: Knob = Knob {
    name: "snapshot_wanted_min",
    unit: "read-only transactions in an interval; 0: snapshots are always made",
    default: 64,
    min: 0,
    max: 1_000_000_000,
    about: "how many readers must accept an existing snapshot, and outnumber those that do not, for one to be made for \
        all readers; otherwise each reader makes its own",
    source: "ours: versions for a snapshot cost writers more than a few readers that make their own \
        (docs/decisions/0022)",
};

/// Whether durability is by snapshot.
pub const DURABLE_SNAPSHOTS: Knob = Knob {
    name: "durable_snapshots",
    unit: "0: no; 1: yes; 2: yes, and each read-only transaction makes one (ROEP), too",
    default: 0,
    min: 0,
    max: 2,
    about: "whether durability is by snapshot: epochs end with snapshots and only then, results are released when \
            their \
        snapshot is durable, and recovery restores a snapshot",
    source: "ours: writers keep a version for each epoch, even without readers (docs/decisions/0022); DBX-TC \
        §5: always; ROEP is §6.3",
};

/// For how long sums are published late.
pub const LATE_PERIOD: Knob = Knob {
    name: "late_period",
    unit: "a worker's procedures that add to sums; 0: all",
    default: 64,
    min: 0,
    max: 1_000_000,
    about: "for how many procedures sums are published after the other writes, once a commit failed because a sum had \
        changed; otherwise sums are published with the other writes",
    source: "ours: if no other transaction adds, a region for each sum costs more than it saves (docs/decisions/0022)",
};

/// The most sums that are published late.
pub const LATE_MAX: Knob = Knob {
    name: "late_max",
    unit: "rows; 0: sums are never published late",
    default: 32,
    min: 0,
    max: 1024,
    about: "the most rows to which a procedure may add for its sums to be published late: a transaction that waits for \
        the end of that waits for as many commits",
    source: "ours: a wait has a bound",
};

/// Whether additions to sums that other procedures use are published later.
pub const DEFER: Knob = Knob {
    name: "defer",
    unit: "0: no; 1: yes",
    default: 0,
    min: 0,
    max: 1,
    about: "deferred execution (publish-subscribe): additions of a procedure to sums that others read or set are \
        published at the end of the epoch, unless another conflict puts them into one piece or procedures run in \
        pieces. A procedure that uses the sums may miss them until then, even if it is called after the answer \
        and in the same session",
    source: "DBX-TC §3.2; off: it helps if hot procedures become shorter, and gives up real-time order \
        (docs/decisions/0022)",
};

const OPTIONS: [Knob; 12] = {
    let [conflict, divided, capacity, system, held] = region::KNOBS;
    let [interval, wanted, durable] = [SNAPSHOT_INTERVAL, SNAPSHOT_WANTED, DURABLE_SNAPSHOTS];
    [conflict, divided, capacity, system, held, REBASES_MAX, interval, wanted, durable, LATE_PERIOD, LATE_MAX, DEFER]
};

const EFFECTS: [OptionEffect; 3] = [
    OptionEffect { option: &DEFER, at_zero: false, change: CapabilityChange::GivesUpRealTime },
    OptionEffect { option: &DEFER, at_zero: false, change: CapabilityChange::Defers },
    OptionEffect { option: &SNAPSHOT_INTERVAL, at_zero: true, change: CapabilityChange::LatestSnapshots },
];

impl Protocol for DbxTc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "dbx-tc",
        summary: "as dbx; publishes sums that procedures only add to after the other rows while commits with these \
            sums fail validation; makes snapshots every 20 ms while there are readers of them",
        source: "HTM with transaction chopping and eventual snapshots for in-memory transactions (DBX-TC)",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            snapshots: Freshness::Eventual,
            strict: true,
            epoch_order: true,
            column_groups: true,
            pieces: true,
            commits_in_regions: true,
            reserves: true,
            ..Capabilities::NONE
        },
        options: &OPTIONS,
        effects: &EFFECTS,
    };
    const HEADER_BYTES: usize = snapshot_numbered::HEADER_BYTES;
    const VERSION_HEADER_BYTES: usize = snapshot_numbered::VERSION_HEADER_BYTES;
    type Worker = Worker<State>;

    fn check(options: &Options, settings: &DatabaseSettings<'_>) -> Result<(), String> {
        let is_durable = options.get(&DURABLE_SNAPSHOTS) > 0;
        let Some(given) = options.given(&SNAPSHOT_INTERVAL).filter(|_| is_durable) else { return Ok(()) };
        let otherwise = settings.epoch_interval.filter(|&interval| interval != Duration::from_millis(given));
        if given > 0 && otherwise.is_none() {
            return Ok(());
        }
        let epochs = otherwise.map_or(String::new(), |interval| format!(", and epochs every {interval:?}"));
        Err(format!(
            "with option {} each snapshot ends an epoch: {} is above 0, and the epoch interval the same or left out; \
             here it is {given} ms{epochs}",
            DURABLE_SNAPSHOTS.name, SNAPSHOT_INTERVAL.name
        ))
    }

    fn open(options: &Options, environment: &Environment) -> DbxTc {
        let workers = environment.memory.workers_max();
        if !environment.injects(Fault::NoWindows) {
            environment.epochs.windows().allow(workers);
        }
        let budget = region::budget(options, environment);
        let durable = options.get(&DURABLE_SNAPSHOTS);
        let snapshot = match durable > 0 && !environment.injects(Fault::EpochWithoutSnapshot) {
            true => SnapshotNumber::Epoch(Arc::clone(&environment.epochs)),
            false => SnapshotNumber::default(),
        };
        let interval = options.get(&SNAPSHOT_INTERVAL);
        if interval > 0 {
            let wanted_min = if durable > 0 { 0 } else { options.get(&SNAPSHOT_WANTED) };
            environment.epochs.snapshots().allow(SnapshotTerms {
                number: snapshot.own(),
                ends_epochs: durable > 0,
                by_readers: durable > 1,
                interval: Duration::from_millis(interval),
                wanted_min,
                workers,
            });
            environment.memory.keep_snapshots();
            if wanted_min > 0 {
                // Nothing is offered yet, and no worker is online.
                (0..2).for_each(|_| environment.memory.pass_snapshot(Epoch(u64::MAX)));
            }
        }
        let [rebases_max, late_period, late_max] =
            [&REBASES_MAX, &LATE_PERIOD, &LATE_MAX].map(|knob| options.get(knob) as u32);
        // A window may take as many TIDs and one more. All workers' windows may be open when an epoch has to end.
        let late_max = late_max.min((Tid::LATE_COUNT / workers as u64).saturating_sub(2) as u32);
        let defers = options.get(&DEFER) > 0 && !environment.injects(Fault::NoWindows);
        if defers {
            environment.epochs.windows().deferrals().allow(&environment.memory);
        }
        DbxTc { snapshot, budget, rebases_max, workers: workers as u32, late_period, late_max, defers }
    }

    fn worker(&self, mut core: Core) -> Worker<State> {
        core.agent.set_budget(self.budget);
        let numbered = SnapshotNumbered::new(&self.snapshot);
        let late = Late::new(&core, self.workers, self.late_period, self.late_max as usize, self.defers);
        let epochs = Arc::clone(&core.epochs);
        Worker::new(core, State { numbered, epochs, follows: false, publishes: false, late }).rebasing(self.rebases_max)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(DbxTc, LockBit);

impl Versions for DbxTc {
    fn describe(&self, layout: &RecordLayout, row_version: usize, tid: Tid) {
        self.snapshot.describe(layout, row_version, tid);
    }
}

/// A DBX-TC worker's own state.
pub struct State {
    numbered: SnapshotNumbered,
    /// Those of the core: the windows are borrowed while the attempt is worked on.
    epochs: Arc<Epochs>,
    /// Whether the transaction runs a registered procedure.
    follows: bool,
    /// Whether it publishes the deferred additions of others, for a thread that has closed the windows.
    publishes: bool,
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
        (self.follows, self.publishes) = (false, false);
        self.late.clear();
        let reading = (mode == Mode::ReadOnly).then(|| match self.epochs.snapshots().eventual() {
            Some(eventual) => View::take_eventual(core, eventual, &self.numbered.snapshot),
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
        if self.late.defers {
            self.late.changes = self.epochs.windows().deferrals().changes();
        }
    }

    fn publish_deferred(&mut self) {
        self.publishes = true;
    }

    #[inline]
    fn looked_at_own(&mut self, attempt: &Optimistic) {
        self.late.looked_at(attempt.base.seen.record);
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
        if self.follows && (self.late.defers || table.commuting.allows(columns)) {
            self.late.note(attempt, table, before, columns)?;
        }
        Ok(())
    }

    fn rolled_back(&mut self) {
        self.late.rolled_back();
    }

    fn validate(&mut self, attempt: &mut Optimistic) -> Result<(), OpError> {
        // The reported values, including an overflow, must not be from half of a chain.
        let _closed = self.epochs.windows().close();
        attempt.validate()
    }

    #[inline]
    fn commit(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        match self.follows {
            true if self.late.defers => self.commit_deferring(attempt, redo),
            true if self.late.is_empty() => self.numbered.commit(attempt, redo),
            true => self.commit_additions(attempt, redo),
            // It is outside of the set: its reads may be from half of a chain, unless this finds them unchanged now.
            false if self.numbered.reading.is_none() && !self.publishes => {
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
        self.late.rest();
    }
}
