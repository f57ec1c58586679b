//! Silo: optimistic execution, commit under sorted record locks, epoch stamps, witnesses of leaves and buckets.
//!
//! Source: Tu et al., Speedy Transactions in Multicore In-Memory Databases, SOSP 2013, §4; `README.md` beside this file gives
//! the algorithm, the departures and the argument. Software only.

mod commit;

use seriatim_base::Stamp;
use seriatim_catalog::Key;
use seriatim_memory::{CountedVec, OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Change, Core, Environment, Freshness, Gives, Mode, Near, Needs, Outcome, Peeked, Protocol, ProtocolInfo, Recover,
    Redo, Restored, Stop, Table,
};

use crate::shared::head;
use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::restore::{self, Versions};
use crate::shared::worker::{Variant, Worker};

/// Silo.
#[derive(Debug)]
pub struct Silo;

/// Silo has no knobs: the epoch's length belongs to the database.
#[derive(Clone, Debug, Default)]
pub struct Options {}

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
    };
    /// Header word (the paper's TID word), image word.
    const HEAD_BYTES: usize = 16;
    const IMAGE_HEADER_BYTES: usize = 0;
    type Options = Options;
    type Worker = Worker<State>;

    fn open(_: Options, _: &Environment) -> Silo {
        Silo
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let (order, replaced) = (core.local.counted(64), core.local.counted(64));
        Worker::new(core, State { last: Stamp::ZERO, order, replaced })
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
