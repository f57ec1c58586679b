//! Silo: optimistic execution, commit under sorted record locks, epoch stamps, witnesses of leaves and buckets.
//!
//! Source: Tu et al., Speedy Transactions in Multicore In-Memory Databases, SOSP 2013, §4; `README.md` beside this file gives
//! the algorithm, the departures and the argument. Software only.

mod commit;

use seriatim_base::{Backoff, Stamp};
use seriatim_catalog::Key;
use seriatim_memory::{CountedVec, OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Change, Core, Environment, Freshness, Gives, Knob, Mode, Near, Needs, Options, Outcome, Peeked, Protocol,
    ProtocolInfo, Recover, Redo, Restored, Stop, Table,
};

use crate::shared::head;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};

/// Silo.
#[derive(Debug)]
pub struct Silo {
    lock_steps: u32,
}

/// How long a commit waits for a record of its write set. (The epoch's length belongs to the database.)
const LOCK_STEPS: Knob = Knob {
    name: "lock_steps",
    unit: "steps",
    default: Backoff::STEPS as u64,
    min: 0,
    max: 1_000_000,
    about: "how often a commit looks again at a record that another commit has locked, before it gives up",
    source: "ours: a commit holds its locks for about a microsecond; the first 6 steps spin for 63 pauses, later ones yield",
};

impl Protocol for Silo {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "silo",
        summary: "optimistic; locks its write set in address order, validates, stamps within the epoch, installs",
        source: "Tu et al., Speedy Transactions in Multicore In-Memory Databases, SOSP 2013",
        needs: Needs { plan: false, regions: false },
        gives: Gives {
            ad_hoc: true,
            snapshots: Freshness::None,
            strict: true,
            pieces: false,
            detach: false,
            repair: false,
        },
        options: &[LOCK_STEPS],
    };
    /// Header word (the paper's TID word), image word.
    const HEAD_BYTES: usize = 16;
    const IMAGE_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn open(options: &Options, _: &Environment) -> Silo {
        Silo { lock_steps: options.get(&LOCK_STEPS) as u32 }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let (order, replaced) = (core.local.counted(64), core.local.counted(64));
        Worker::new(core, State { lock_steps: self.lock_steps, last: Stamp::ZERO, order, replaced })
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>) -> Peeked {
        head::peek(table, record)
    }
}

impl Recover for Silo {
    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        near: Near<'_>,
        stamp: Stamp,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { restore::restore(self, core, table, key, near, stamp, change) }
    }

    unsafe fn finish_restore(&self, core: &mut Core, table: &Table) {
        // SAFETY: the caller's promise.
        unsafe { restore::finish(core, table, &LockBit) }
    }
}

impl Versions for Silo {}

/// A Silo worker's own state.
#[derive(Debug)]
pub struct State {
    lock_steps: u32,
    /// The worker's newest stamp: its own commits are ordered (§4.2).
    last: Stamp,
    /// Scratch of a commit: entries in locking order.
    order: CountedVec<u32>,
    /// Scratch of a commit: what each entry replaced.
    replaced: CountedVec<usize>,
}

impl Variant for State {
    #[inline]
    fn begin(&mut self, _: &Core, _: Mode) {
        self.order.clear();
        self.replaced.clear();
    }

    fn commit(&mut self, attempt: &mut Optimistic, redo: &mut dyn Redo) -> Result<Outcome, Stop> {
        commit::commit(attempt, self, redo)
    }

    fn rest(&mut self) {
        self.order.rest();
        self.replaced.rest();
    }
}
