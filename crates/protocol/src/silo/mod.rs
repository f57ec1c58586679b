//! Silo: optimistic execution, commit under sorted record locks, epoch stamps, witnesses of leaves and buckets.
//!
//! Source: Tu et al., Speedy Transactions in Multicore In-Memory Databases, SOSP 2013, §4; `README.md` beside this file gives
//! the algorithm, the departures and the argument. Software only.

mod commit;

use seriatim_base::Stamp;
use seriatim_catalog::{ColumnSet, Key};
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Core, Environment, Freshness, Gives, Incident, Inserted, Mark, Mode, Needs, OnExists, Outcome, Peeked, Protocol,
    ProtocolInfo, Redo, RowPtr, Scan, Seen, Staged, Stop, Table, Updating,
};

use crate::shared::optimistic::{LockBit, Optimistic};
use crate::shared::{head, record, sweep};

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
    type Worker = Worker;

    fn open(_: Options, _: &Environment) -> Silo {
        Silo
    }

    fn worker(&self, core: Core) -> Worker {
        Worker { attempt: Optimistic::new(core), last: Stamp::ZERO, order: Vec::new(), retired: Vec::new() }
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>) -> Peeked {
        head::peek(table, record)
    }
}

/// A Silo worker.
pub struct Worker {
    attempt: Optimistic,
    /// The worker's newest stamp: its own commits are ordered (§4.2).
    last: Stamp,
    /// Scratch of a commit: entries in locking order.
    order: Vec<u32>,
    /// Scratch of a commit: what each entry replaced.
    retired: Vec<usize>,
}

impl seriatim_txn::Worker for Worker {
    fn begin(&mut self, _: Mode, _: Stamp) {
        self.attempt.begin();
    }

    #[inline]
    fn read(&mut self, table: &Table, key: Key<'_>, _: ColumnSet) -> Result<Option<RowPtr>, Stop> {
        self.attempt.read(table, key)
    }

    #[inline]
    fn prefetch(&mut self, table: &Table, key: Key<'_>) {
        self.attempt.base.prefetch(table, key);
    }

    #[inline]
    fn advance_prefetch(&mut self) {
        self.attempt.base.advance_prefetch();
    }

    fn stage(&mut self, table: &Table) -> Result<Staged, Stop> {
        record::stage(&mut self.attempt.base.core, table)
    }

    fn discard(&mut self, table: &Table, staged: Staged) {
        record::discard(&mut self.attempt.base.core, table, staged);
    }

    fn tail(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        self.attempt.base.tail(bytes)
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, Stop> {
        self.attempt.insert(table, key, staged, exists)
    }

    #[inline]
    fn update(&mut self, table: &Table, key: Key<'_>, _: ColumnSet) -> Result<Option<Updating>, Stop> {
        self.attempt.update(table, key)
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, Stop> {
        self.attempt.delete(table, key)
    }

    #[inline]
    fn scan_next(&mut self, table: &Table, scan: &mut Scan, _: ColumnSet) -> Result<Option<RowPtr>, Stop> {
        self.attempt.scan_next(table, scan)
    }

    fn seen(&self) -> Seen {
        self.attempt.base.seen
    }

    fn mark(&mut self) -> Mark {
        self.attempt.base.writes.mark()
    }

    fn rewind(&mut self, mark: Mark) {
        self.attempt.base.writes.rewind(mark);
    }

    fn validate(&mut self) -> Result<(), Stop> {
        self.attempt.validate()
    }

    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, Stop> {
        commit::commit(self, redo)
    }

    fn abort(&mut self) {
        self.attempt.base.abandon(&LockBit);
    }

    fn incident(&self) -> Option<&Incident> {
        self.attempt.base.incident.as_ref()
    }

    fn housekeep(&mut self) {
        sweep::sweep(&mut self.attempt.base.core, &LockBit);
    }

    fn core(&mut self) -> &mut Core {
        &mut self.attempt.base.core
    }
}
