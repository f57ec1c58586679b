//! What a transaction can do, on encoded keys. The caller encodes them as the table's codec does.
//!
//! An attempt, with the field that tells each state:
//!
//! ```text
//!            open                       commit, decide
//! CLOSED ───────────▶ OPEN ────────────────────────────────▶ ENDING ───────▶ CLOSED: committed
//! lease: None         lease: Some ◀── something to repair ── ending: true    (and withheld until durable)
//!    ▲                 │  ▲    │ ◀─────── OpError::Wait ─────── │
//!    │        update   │  │    │ an operation's OpError::Abort   │ OpError::Abort: a cause
//!    │  begins, ends   ▼  │    ▼                                 │
//!    │          UPDATING ─┘   STOPPED: every operation answers   │
//!    │   updating: Some       with the cause; stopped: Some      │
//!    └────────── roll_back ◀───────┴─────────────────────────────┘
//! ```
//! A worker that panics while it is ENDING is not used again. An explicit transaction is also parked between its calls (`parking`).
//!
//! Access rules, which make the shared references of this module sound:
//! 1. `worker` is set while a transaction is open and is used by the session's thread only (`TxCore` is not `Sync`); each use is
//!    one call, and no call runs code of the user's.
//! 2. While the closure of an `update` runs, `updating` refuses every operation, so the row it writes is not read elsewhere.
//! 3. Rows of a closure or procedure borrow the `TxCore`; opening and ending the transaction needs it mutably. So no row
//!    outlives its worker's online time, during which the contract keeps row versions readable and unchanged.
//! 4. An explicit transaction may be ended between its calls (`parking`): whatever reaches its worker is inside a [`Call`], and the
//!    rows it gives out are copies, which the `TxCore` keeps until the transaction is dropped.

use std::cell::{Cell, RefCell};
use std::hint::cold_path;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::clock::{CoarseClock, Instant};
use seriatim_base::{Backoff, Epoch, Hold, Tid, thread};
use seriatim_catalog::{ColumnSet, ColumnUse, KeptRow, Key, KeyBuf, OutOfLineStore, RowRef, RowWriter, TableKey};
use seriatim_htm::RegionStatistics;
use seriatim_memory::{Charge, OutOfMemory};
use seriatim_procedure::plan::Kind;
use seriatim_redo::Writer;
use seriatim_txn::{
    Added, Addition, Cause, ConflictInfo, Fault, Freshness, Inserted, Mode, NoRedo, OnExists, OpError, Outcome,
    PartitionSet, Phase, Prepared, Priority, ProtocolInfo, Reason, Redo, RowPtr, Runs, Savepoint as WorkerSavepoint,
    Staged, Updating, Worker,
};

use crate::TransactionOptions;
use crate::cancel::{Canceller, Deadline};
use crate::cluster::{OpenRun, Scratch};
use crate::contention::AD_HOC;
use crate::durability::{self, CommitDependency, CommitLog, Persistence};
use crate::engine::Inner;
use crate::error::{Abort, AbortKind, Conflict, KeyAt, Shared, StorageError, TransactError};
use crate::freshness::{ALL, Measure, SessionFreshness};
use crate::lean::LeanWorker;
use crate::options::Bounds;
use crate::parking::{Parking, TOO_OLD};
use crate::pool::Lease;
use crate::procedure::gate::Gate;
use crate::procedure::repair::Met;
use crate::procedure::undo::Undo;
use crate::procedure::watch::{self, Accessed};
use crate::queue::{Queue, Turn};
use crate::record::Log;
use crate::runner::Receipt;
use crate::scan::Target;
use crate::settings::Settings;
use crate::table::TableSet;

/// Savepoints for which a session keeps room.
const SAVEPOINTS_KEPT: usize = 64;

/// Operations between two looks at how many there were.
const STRIDE: u32 = 256;

/// The longest pause between two looks at what is waited for. Looks need no list of waiters and no call by the holder that lets
/// go of a lock, and are as fair: a lock that is waited for is reserved.
const WAIT_PAUSE_MAX: Duration = Duration::from_micros(200);

/// A wait for another transaction: some steps that spin and yield the processor, then pauses.
pub(crate) struct Waiting {
    spin: Backoff,
    began: Option<Instant>,
    pause: Duration,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { spin: Backoff::new(), began: None, pause: Duration::from_micros(20) }
    }
}

/// A transaction. Its operations are generic over the worker, and used behind `dyn`.
pub struct TxCore<W: Worker + ?Sized = dyn Worker> {
    inner: Arc<Inner>,
    /// The type of its worker, if procedures run by operations of their own on it.
    pub(crate) lean: Option<LeanWorker>,
    lease: Cell<Option<Lease<W>>>,
    /// What became of repairs since somebody asked.
    met: Cell<Met>,
    /// The worker last used: asked for first.
    preferred: Cell<usize>,
    mode: Cell<Mode>,
    explicit: Cell<bool>,
    /// Of an open explicit transaction.
    parking: RefCell<Option<Arc<Parking>>>,
    /// An explicit transaction is in a call.
    calling: Cell<bool>,
    /// The rows that an explicit transaction gave out.
    kept: RefCell<Kept>,
    /// Keeps chains of pieces away.
    gated: Cell<bool>,
    /// Whether the protocol takes read-write transactions, and read-only ones, without a plan.
    unplanned: [bool; 2],
    /// Whether the protocol publishes procedures piece by piece.
    pieces: bool,
    /// Whether decisions are queued.
    queued: Cell<bool>,
    attempt: Cell<u32>,
    /// Of the transaction, in all its attempts; none before the first.
    priority: Cell<Priority>,
    /// What it is of, in the numbers of the contention tracker.
    procedure: Cell<u32>,
    stopped: Cell<Option<Cause>>,
    /// While the closure of an update runs.
    updating: Cell<Option<Update>>,
    /// The worker is ending the attempt. Should that panic, the worker is not used again.
    ending: Cell<bool>,
    /// Operations until the next check of their bound.
    left: Cell<u32>,
    operations: Cell<u32>,
    /// As the ticker tells it.
    clock: Arc<CoarseClock>,
    /// When the attempt is too old.
    deadline: Deadline,
    bounds: Cell<Bounds>,
    /// The key that an abort for a duplicate or missing row is about.
    failed_key: RefCell<Option<KeyAt>>,
    /// Whether accesses are noted to be checked against a plan, and those noted.
    pub(crate) watching: Cell<bool>,
    pub(crate) accessed: RefCell<Vec<Accessed>>,
    /// What the attempt replaces, if that is noted; then it is also watched.
    pub(crate) undo: RefCell<Option<Undo>>,
    /// Whether procedures fetch ahead.
    prefetching: Cell<bool>,
    user: RefCell<Option<Box<dyn std::error::Error + Send + Sync>>>,
    /// What must be durable before a result of the transaction leaves.
    dependency: Cell<CommitDependency>,
    /// How long a result waits for that: of the bounds under which the attempt was opened.
    wait_max: Cell<Option<Duration>>,
    /// What its commit is worth to the user, likewise.
    weight: Cell<u64>,
    /// Of a snapshot that shows the durable epoch while the disk is behind.
    hold: Cell<Option<Hold>>,
    /// What the session's next snapshot is to show, where that may be older than the present.
    pub(crate) freshness: Option<SessionFreshness>,
    /// The text that did not fit a log entry: its table, its bytes, the most.
    too_large: RefCell<Option<(String, usize, usize)>>,
    /// Why the log did not take the commit.
    refusal: Cell<Option<StorageError>>,
    pub(crate) log: Option<RefCell<Log>>,
    /// The run of a clustered table that was changed last.
    pub(crate) open_run: OpenRun,
    pub(crate) scratch: Scratch,
    /// Savepoints that can be rolled back to.
    savepoints: RefCell<Vec<(u64, Position)>>,
    /// Scans to reuse.
    #[expect(clippy::vec_box, reason = "a scan is large and changes hands: the box moves, not the scan")]
    pub(crate) scans: RefCell<Vec<Box<seriatim_txn::Scan>>>,
}

// SAFETY: between transactions the cells hold no pointer; during one, the worker and what it points to may move with the
// `TxCore`, since workers are `Send` and nobody else uses a leased one (access rule 1).
unsafe impl<W: Worker + ?Sized> Send for TxCore<W> {}

/// Bytes of copied rows that are charged at a time.
const KEPT_STEP: usize = 64 << 10;

/// Copies of rows. They count against the memory limit, beyond the first [`KEPT_STEP`] bytes.
struct Kept {
    rows: Vec<KeptRow>,
    bytes: usize,
    charge: Charge,
}

impl Kept {
    fn new(charge: Charge) -> Kept {
        Kept { rows: Vec::new(), bytes: 0, charge }
    }

    /// Where the row lies from now on.
    fn push(&mut self, row: KeptRow) -> Result<*const u8, OutOfMemory> {
        self.bytes += row.bytes() + size_of::<KeptRow>();
        if self.bytes > self.charge.bytes() + KEPT_STEP {
            self.charge.try_set(self.bytes)?;
        }
        let address = row.as_ptr();
        self.rows.push(row);
        Ok(address)
    }

    fn clear(&mut self) {
        self.rows = Vec::new();
        self.bytes = 0;
        self.charge.set(0);
    }
}

/// What opens a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A closure.
    Closure,
    /// The caller, to end it by hand.
    Explicit,
    /// A registered procedure.
    Procedure,
}

/// Where a transaction is, for the worker and for the log.
#[derive(Clone, Copy)]
struct Position {
    savepoint: WorkerSavepoint,
    logged: usize,
}

/// A position in a transaction to roll back to: see [`TxCore::savepoint`].
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    /// Unlike that of any other savepoint of any transaction.
    serial: u64,
}

/// Why a row was not written.
pub(crate) enum NotEncoded {
    /// No memory for a long text.
    OutOfMemory(seriatim_catalog::OutOfMemory),
    /// A value does not fit its column; the caller knows which.
    Unfit,
}

/// Stores the long texts of rows being written.
pub(crate) struct OutOfLineValues<'t, W: Worker + ?Sized> {
    tx: &'t TxCore<W>,
    /// Whose rows, and bytes that a text may have at most; `None`: what is not logged.
    bound: Option<(&'t TableSet, usize)>,
}

impl<'t, W: Worker + ?Sized> OutOfLineValues<'t, W> {
    pub(crate) fn of(tx: &'t TxCore<W>, set: &'t TableSet) -> OutOfLineValues<'t, W> {
        OutOfLineValues { tx, bound: Some((set, set.text_bytes_max)) }
    }

    /// Of an index.
    pub(crate) fn unlogged(tx: &'t TxCore<W>) -> OutOfLineValues<'t, W> {
        OutOfLineValues { tx, bound: None }
    }
}

impl<W: Worker + ?Sized> OutOfLineStore for OutOfLineValues<'_, W> {
    /// A text that finds no place ends the transaction, whatever the body does with the error: the row that it belongs to may be
    /// half written.
    fn store(&mut self, bytes: &[u8]) -> Result<u64, seriatim_catalog::OutOfMemory> {
        let refuse = || {
            cold_path();
            let _ = self.tx.out_of_memory();
            seriatim_catalog::OutOfMemory
        };
        if let Some((set, most)) = self.bound
            && bytes.len() > most
        {
            *self.tx.too_large.borrow_mut() = Some((set.definition.name.to_string(), bytes.len(), most));
            return Err(refuse());
        }
        self.tx.worker().out_of_line(bytes).map_err(|_| refuse())
    }
}

/// Lifecycle and plumbing.
impl<W: Worker + ?Sized> TxCore<W> {
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The options of the database.
    pub fn settings(&self) -> &Settings {
        &self.inner.options
    }

    /// The table of this name, if there is one.
    pub fn find_table(&self, name: &str) -> Option<Arc<TableSet>> {
        self.inner.find(name)
    }

    /// What keeps chains of pieces and other transactions apart, if procedures run in pieces.
    pub fn gate(&self) -> Option<Arc<Gate>> {
        self.inner.gate.clone()
    }

    /// The leased worker.
    ///
    /// # Panics
    /// Outside a transaction, which no public path reaches.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) fn worker(&self) -> &mut W {
        debug_assert!(!self.explicit.get() || self.calling.get(), "access rule 4");
        let mut lease = self.lease.get().expect("operations run inside a transaction");
        // SAFETY: access rule 1.
        unsafe { lease.worker.as_mut() }
    }

    /// Runs one operation of the worker: refuses it if the transaction has stopped, waits if the protocol says so, notes why it
    /// stopped.
    #[inline]
    pub(crate) fn operate<R>(&self, mut operation: impl FnMut(&mut W) -> Result<R, OpError>) -> Result<R, Abort> {
        self.count_operation()?;
        match operation(self.worker()) {
            Ok(result) => Ok(result),
            Err(stop) => self.retry_or_stop(stop, operation),
        }
    }

    /// An operation begins: refuses it if the transaction has stopped, or is over.
    #[inline(always)]
    pub(crate) fn count_operation(&self) -> Result<(), Abort> {
        let left = self.left.get();
        if left == 0 || self.is_over() {
            return self.check();
        }
        self.left.set(left - 1);
        Ok(())
    }

    #[cold]
    pub(crate) fn retry_or_stop<R>(
        &self,
        mut stop: OpError,
        mut operation: impl FnMut(&mut W) -> Result<R, OpError>,
    ) -> Result<R, Abort> {
        let mut waiting = Waiting::default();
        loop {
            match stop {
                OpError::Abort(cause) => return Err(self.stop(cause)),
                OpError::Wait => {
                    self.wait(&mut waiting, Phase::Execute).map_err(|cause| self.stop(cause))?;
                    match operation(self.worker()) {
                        Ok(result) => return Ok(result),
                        Err(next) => stop = next,
                    }
                }
            }
        }
    }

    /// Waits a little for another transaction; the cause if it is not to be waited for any longer (promise d).
    #[cold]
    pub(crate) fn wait(&self, waiting: &mut Waiting, phase: Phase) -> Result<(), Cause> {
        if waiting.spin.wait() {
            return Ok(());
        }
        let began = *waiting.began.get_or_insert_with(Instant::now);
        if began.elapsed() >= self.worker().wait_max() {
            return Err(Cause { phase, reason: Reason::WaitTimeout });
        }
        if self.is_over() {
            return Err(Cause { phase, reason: self.deadline.reason() });
        }
        thread::sleep(waiting.pause);
        waiting.pause = (waiting.pause * 2).min(WAIT_PAUSE_MAX);
        Ok(())
    }

    /// The transaction cannot go on.
    pub fn stop(&self, cause: Cause) -> Abort {
        self.stopped.set(Some(cause));
        // From now on every operation comes by `check`.
        self.left.set(0);
        self.told(AbortKind::Stopped(cause))
    }

    /// An abort of this kind. Of an explicit transaction it says all: there is no session to ask.
    #[cold]
    fn told(&self, kind: AbortKind) -> Abort {
        let abort = Abort::new(kind);
        if self.explicit.get() { abort.explained(self.error_of(&abort)) } else { abort }
    }

    /// Whether the attempt is older than it may be, as far as the ticker has told, or was cancelled.
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.deadline.is_over(self.clock.now())
    }

    /// An abort that is an item of an iterator: a caller that counts or filters items does not look at it, so the transaction
    /// ends with it.
    #[cold]
    pub(crate) fn end_with(&self, abort: Abort) -> Abort {
        match (self.stopped.get(), abort.cause()) {
            (None, Some(cause)) => self.stop(cause),
            _ => abort,
        }
    }

    /// The slow path of `operate`: a stopped transaction, one inside its own update, an old one, a long one.
    #[cold]
    fn check(&self) -> Result<(), Abort> {
        if let Some(cause) = self.stopped.get() {
            return Err(self.told(AbortKind::Stopped(cause)));
        }
        if self.updating.get().is_some() {
            return Err(Abort::stopped(Reason::Reentered));
        }
        let inner = &self.inner;
        if self.is_over() {
            return Err(self.stop(self.deadline.cause()));
        }
        let stride = self.stride();
        let operations = self.operations.get() + stride + 1;
        self.operations.set(operations);
        if operations >= inner.options.operations_max {
            self.operations.set(0);
            self.validate().map_err(|cause| self.stop(cause))?;
        }
        self.left.set(stride);
        Ok(())
    }

    fn stride(&self) -> u32 {
        STRIDE.min(self.inner.options.operations_max)
    }

    /// The bounds of the attempts that are opened from now on.
    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        self.bounds.set(bounds);
    }

    /// A call begins, which ends when the answer is dropped: within it, an explicit transaction is not ended by others. The calls of
    /// closures and procedures need not say so. Calls nest.
    ///
    /// # Errors
    /// The transaction was ended between its calls.
    #[inline]
    pub(crate) fn call(&self) -> Result<Call<'_, W>, Abort> {
        match self.explicit.get() && !self.calling.get() {
            true => self.call_explicit(),
            false => Ok(Call(None)),
        }
    }

    #[cold]
    fn call_explicit(&self) -> Result<Call<'_, W>, Abort> {
        let parking = self.parking.borrow().clone();
        match parking {
            Some(parking) if parking.enter() => {
                self.calling.set(true);
                Ok(Call(Some(self)))
            }
            _ => {
                // Ended while it was parked: worker and gate are not ours any more.
                self.parking.take();
                self.lease.set(None);
                self.gated.set(false);
                Err(self.stop(self.stopped.get().unwrap_or(TOO_OLD)))
            }
        }
    }

    /// A row for the caller, valid until the transaction ends.
    #[inline]
    pub(crate) fn lend(&self, set: &TableSet, row: RowPtr) -> Result<RowPtr, Abort> {
        if self.explicit.get() { self.keep(set, row) } else { Ok(row) }
    }

    /// A row for the caller, which has it until `shown`, where a copy may lie, is used again.
    #[inline]
    pub(crate) fn show(&self, set: &TableSet, row: RowPtr, shown: &mut Option<KeptRow>) -> Result<RowPtr, Abort> {
        if !self.explicit.get() {
            return Ok(row);
        }
        cold_path();
        let copy = shown.insert(Self::copy(set, row)).as_ptr();
        RowPtr::new(copy.cast_mut()).ok_or_else(|| self.out_of_memory())
    }

    /// Whether [`TxCore::lend`] and [`TxCore::show`] copy.
    #[inline]
    pub(crate) fn keeps_rows(&self) -> bool {
        self.explicit.get()
    }

    fn copy(set: &TableSet, row: RowPtr) -> KeptRow {
        // SAFETY: a row of this table, readable while we are in the call that read it.
        unsafe { KeptRow::new(RowRef::from_raw(row.as_ptr()), &set.layout) }
    }

    #[cold]
    fn keep(&self, set: &TableSet, row: RowPtr) -> Result<RowPtr, Abort> {
        let copy = self.kept.borrow_mut().push(Self::copy(set, row));
        copy.ok().and_then(|copy| RowPtr::new(copy.cast_mut())).ok_or_else(|| self.out_of_memory())
    }

    /// Nobody has rows of an explicit transaction any more.
    pub(crate) fn drop_kept(&self) {
        self.kept.borrow_mut().clear();
    }

    /// The table, if it is of this database.
    ///
    /// # Errors
    /// A handle of another database.
    #[inline]
    pub(crate) fn own<'h>(&self, set: &'h TableSet) -> Result<&'h TableSet, Abort> {
        if set.database == self.inner.number { Ok(set) } else { Err(Abort::stopped(Reason::ForeignHandle)) }
    }

    #[inline(always)]
    pub(crate) fn note(&self, table: &seriatim_txn::Table, key: Key<'_>, columns: ColumnSet) {
        if let Some(log) = &self.log {
            self.record(log, table, &key, columns);
        }
    }

    #[cold]
    fn record(&self, log: &RefCell<Log>, table: &seriatim_txn::Table, key: &Key<'_>, columns: ColumnSet) {
        log.borrow_mut().read(table.id, *key, columns, self.worker().seen());
    }

    /// The row at an encoded key, of which these columns are read, for the body.
    ///
    /// # Errors
    /// A conflict; a handle of another database.
    #[inline(never)]
    pub fn get_at(&self, set: &TableSet, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        let _call = self.call()?;
        let row = self.read_row(self.own(set)?, key, columns)?;
        let access = self.watch(Kind::Get, set, Target::Rows, || watch::one(key));
        self.watch_row(access, row.map(|row| row.as_ptr().cast_const()), ColumnSet::EMPTY);
        row.map(|row| self.lend(set, row)).transpose()
    }

    /// The row at an encoded key, of which these columns are read.
    ///
    /// # Errors
    /// A conflict.
    #[inline(always)]
    pub(crate) fn read_at(
        &self,
        table: &seriatim_txn::Table,
        key: Key<'_>,
        columns: ColumnSet,
    ) -> Result<Option<RowPtr>, Abort> {
        let row = self.operate(|worker| worker.read(table, key, columns))?;
        self.note(table, key, columns);
        Ok(row)
    }

    /// The row at the encoded key of an entry of the unique index at this position.
    #[inline]
    pub(crate) fn read_by(
        &self,
        set: &TableSet,
        at: usize,
        key: Key<'_>,
        columns: ColumnSet,
    ) -> Result<Option<RowPtr>, Abort> {
        let secondary = &set.indexes[at];
        debug_assert!(secondary.is_unique(), "the callers know it: by the type of a handle, or from the plan");
        let Some(entry) = self.read_at(&secondary.table, key, ColumnSet::ALL)? else { return Ok(None) };
        // SAFETY: an entry of an index of this table, readable until the transaction ends.
        let primary = unsafe { crate::index::read_primary(entry, set.primary.class) };
        self.read_row(set, primary, columns)
    }

    /// Whether what was read holds together; what is undecided does not count as held (promise g).
    ///
    /// # Errors
    /// Why not.
    pub fn validate(&self) -> Result<(), Cause> {
        if let Some(cause) = self.stopped.get() {
            return Err(cause);
        }
        let _call = self.call().map_err(|abort| abort.cause().unwrap_or(TOO_OLD))?;
        match self.worker().validate() {
            Ok(()) => Ok(()),
            Err(OpError::Abort(cause)) => Err(cause),
            Err(OpError::Wait) => Err(Cause { phase: Phase::Validate, reason: Reason::RecordLocked }),
        }
    }

    /// Where the transaction stopped, if it did.
    pub fn stopped(&self) -> Option<Cause> {
        self.stopped.get()
    }
}

/// Reading.
impl<W: Worker + ?Sized> TxCore<W> {
    /// The row at the encoded key of an entry of a unique index, for the body.
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    pub fn get_by_at(
        &self,
        set: &TableSet,
        at: usize,
        key: Key<'_>,
        columns: ColumnSet,
    ) -> Result<Option<RowPtr>, Abort> {
        let set = self.own(set)?;
        let _call = self.call()?;
        let row = self.read_by(set, at, key, columns)?;
        let access = self.watch(Kind::Get, set, Target::Index(at), || watch::one(key));
        self.watch_row(access, row.map(|row| row.as_ptr().cast_const()), ColumnSet::EMPTY);
        row.map(|row| self.lend(set, row)).transpose()
    }

    /// Whether procedures fetch what their arguments name before they need it.
    #[inline]
    pub fn prefetching(&self) -> bool {
        self.prefetching.get()
    }

    /// Whether procedures fetch ahead from now on.
    pub fn set_prefetching(&self, wanted: bool) {
        self.prefetching.set(wanted);
    }

    /// The first wave of fetching the rows with these keys into the processor's cache. Only a hint.
    #[inline]
    pub fn begin_prefetch<K: TableKey>(&self, set: &TableSet, keys: impl IntoIterator<Item = K>) {
        if let (Ok(_call), Ok(set)) = (self.call(), self.own(set)) {
            keys.into_iter().for_each(|key| key.encode(|key| self.prefetch_at(set, key)));
        }
    }

    /// As [`TxCore::begin_prefetch`], of one encoded key of a table of this database. Within a call.
    #[inline]
    pub(crate) fn prefetch_at(&self, set: &TableSet, key: Key<'_>) {
        match set.cluster.is_on() {
            true => self.prefetch_run(set, key),
            false => self.worker().prefetch(&set.primary, key),
        }
    }

    /// The next wave of everything that [`TxCore::begin_prefetch`] began in this transaction; there are two. With other work before
    /// each, what the wave before asked for arrives meanwhile.
    #[inline]
    pub fn advance_prefetch(&self) {
        if let Ok(_call) = self.call() {
            self.worker().advance_prefetch();
        }
    }

    /// How many times the body has been run in this transaction; 1 the first time.
    pub fn attempt(&self) -> u32 {
        self.attempt.get()
    }

    /// An abort that carries the body's own error. It is reported as [`TransactError::User`] once it is certain that what the body read
    /// held together.
    pub fn abort(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Abort {
        *self.user.borrow_mut() = Some(error.into());
        self.told(AbortKind::User)
    }
}

/// Writing.
impl<W: Worker + ?Sized> TxCore<W> {
    /// A session's, which has this number.
    pub(crate) fn new(inner: Arc<Inner>, number: usize) -> TxCore<W> {
        let log = inner.recording().map(|recording| RefCell::new(Log::new(recording.recorder(), number as u32)));
        let (workers, wait_max) = (inner.options.workers, inner.options.wait_max);
        let ProtocolInfo { requirements, capabilities, .. } = *inner.protocol.info();
        TxCore {
            // A history tells of every operation.
            lean: LeanWorker::of(inner.protocol.worker_type()).filter(|_| log.is_none()),
            lease: Cell::new(None),
            met: Cell::default(),
            preferred: Cell::new(number % workers),
            mode: Cell::new(Mode::ReadWrite),
            explicit: Cell::new(false),
            parking: RefCell::default(),
            calling: Cell::new(false),
            kept: RefCell::new(Kept::new(inner.environment.memory.charge())),
            gated: Cell::new(false),
            unplanned: [!requirements.plan, !requirements.plan || capabilities.snapshots != Freshness::None],
            pieces: capabilities.pieces,
            queued: Cell::new(inner.queue.is_some()),
            attempt: Cell::new(0),
            priority: Cell::default(),
            procedure: Cell::new(AD_HOC),
            stopped: Cell::new(None),
            updating: Cell::new(None),
            ending: Cell::new(false),
            left: Cell::new(0),
            operations: Cell::new(0),
            clock: Arc::clone(&inner.clock),
            deadline: Deadline::default(),
            bounds: Cell::new(TransactionOptions::default().bounds(&inner.options)),
            failed_key: RefCell::new(None),
            watching: Cell::new(false),
            accessed: RefCell::default(),
            undo: RefCell::default(),
            prefetching: Cell::new(inner.options.prefetch),
            user: RefCell::new(None),
            dependency: Cell::default(),
            wait_max: Cell::new(wait_max),
            weight: Cell::new(1),
            hold: Cell::default(),
            freshness: SessionFreshness::of(&inner),
            too_large: RefCell::default(),
            refusal: Cell::default(),
            log,
            open_run: OpenRun::default(),
            scratch: Scratch::new(),
            savepoints: RefCell::new(Vec::new()),
            scans: RefCell::new(Vec::new()),
            inner,
        }
    }

    /// A position to roll back to.
    ///
    /// # Errors
    /// If the transaction has stopped.
    pub fn savepoint(&self) -> Result<Savepoint, Abort> {
        static SERIALS: AtomicU64 = AtomicU64::new(0);
        let _call = self.call()?;
        let position = self.position()?;
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        self.savepoints.borrow_mut().push((serial, position));
        Ok(Savepoint { serial })
    }

    /// Undoes every write since the savepoint, which can be rolled back to again; later savepoints are gone. What was read
    /// stays read.
    ///
    /// # Errors
    /// If the transaction has stopped; or the savepoint is gone or another transaction's.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        let _call = self.call()?;
        let mut savepoints = self.savepoints.borrow_mut();
        let Some(at) = savepoints.iter().position(|(serial, _)| *serial == savepoint.serial) else {
            return Err(
                self.abort("the savepoint is gone: it was rolled back beyond, or belongs to another transaction")
            );
        };
        let (_, position) = savepoints[at];
        self.rollback_writes(position)?;
        savepoints.truncate(at + 1);
        Ok(())
    }
}

/// Writing, on encoded keys: shared by derived and declared tables.
impl<W: Worker + ?Sized> TxCore<W> {
    fn position(&self) -> Result<Position, Abort> {
        self.open_run.forget();
        let savepoint = self.operate(|worker| Ok(worker.savepoint()))?;
        Ok(Position { savepoint, logged: self.log.as_ref().map_or(0, |log| log.borrow().savepoint()) })
    }

    /// Undoes every write since.
    fn rollback_writes(&self, position: Position) -> Result<(), Abort> {
        self.open_run.forget();
        self.operate(|worker| {
            worker.rollback_to(position.savepoint);
            Ok(())
        })?;
        if let Some(log) = &self.log {
            log.borrow_mut().rollback_to(position.logged);
        }
        Ok(())
    }

    /// Notes that a key was written.
    #[inline]
    pub(crate) fn wrote(&self, table: &seriatim_txn::Table, key: Key<'_>) {
        if let Some(log) = &self.log {
            cold_path();
            log.borrow_mut().wrote(table.id, key);
        }
    }

    /// Runs a write that can fail half-way for a reason the body may choose to ignore: then nothing of it stays.
    pub(crate) fn whole<R>(&self, write: impl FnOnce() -> Result<R, Abort>) -> Result<R, Abort> {
        let _call = self.call()?;
        let position = self.position()?;
        self.keep_or_roll_back(position, write())
    }

    /// The result of writes since the position; they are undone if it is an abort that the body may choose to ignore.
    #[inline]
    fn keep_or_roll_back<R>(&self, position: Position, result: Result<R, Abort>) -> Result<R, Abort> {
        if result.is_err() && self.stopped.get().is_none() {
            self.rollback_writes(position)?;
        }
        result
    }

    fn writable(&self) -> Result<(), Abort> {
        match self.mode.get() {
            Mode::ReadWrite => Ok(()),
            Mode::ReadOnly => Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::ReadOnly })),
        }
    }

    /// Inserts the row that `encode` writes; `false` if the key exists and was to be left.
    ///
    /// # Errors
    /// A conflict, a duplicate key of a unique index, no memory.
    pub fn insert_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), seriatim_catalog::OutOfMemory>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        self.insert_encoded(set, key, |writer| encode(writer).map_err(NotEncoded::OutOfMemory), exists)
    }

    /// As [`TxCore::insert_at`], where `encode` may also find that the row's values do not fit.
    #[inline]
    pub(crate) fn insert_encoded(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        let _call = self.call()?;
        if set.cluster.is_on() {
            return self.insert_into_run(set, key, encode, exists);
        }
        let staged = self.begin_insert(set, key)?;
        let mut out_of_line_values = OutOfLineValues::of(self, set);
        // SAFETY: a staged row is ours, zeroed, and of the table's layout.
        let mut writer =
            unsafe { RowWriter::for_insert(staged.row.as_ptr(), staged.fixed.as_ptr(), &mut out_of_line_values) };
        match encode(&mut writer) {
            Ok(()) => self.end_insert(set, key, staged, exists),
            Err(error) => Err(self.not_encoded(set, staged, error)),
        }
    }

    /// As [`TxCore::insert_encoded`], into a clustered table.
    #[inline]
    fn insert_into_run(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), NotEncoded>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        self.begin_insert_into_run(set, key)?;
        let place = self.append_place(set, key);
        let row = place.unwrap_or_else(|| self.scratch_row(set));
        let mut out_of_line_values = OutOfLineValues::of(self, set);
        // SAFETY: a zeroed row of the table's layout, which is ours until the next operation.
        let mut writer = unsafe { RowWriter::for_insert(row, std::ptr::null_mut(), &mut out_of_line_values) };
        match encode(&mut writer) {
            Ok(()) if place.is_some() => {
                self.end_append(key);
                Ok(true)
            }
            Ok(()) => self.end_insert_into_run(set, key, row, exists),
            Err(NotEncoded::OutOfMemory(_)) => Err(self.out_of_memory()),
            // The caller notes the error.
            Err(NotEncoded::Unfit) => Err(Abort::new(AbortKind::User)),
        }
    }

    #[inline(never)]
    fn begin_insert_into_run(&self, set: &TableSet, key: Key<'_>) -> Result<(), Abort> {
        self.own(set)?;
        self.writable()?;
        self.watch(Kind::Insert, set, Target::Rows, || watch::one(key));
        self.count_operation()
    }

    #[inline(never)]
    fn end_insert_into_run(
        &self,
        set: &TableSet,
        key: Key<'_>,
        row: *const u8,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        if !set.has_unique_index() {
            return self.insert_clustered(set, key, row, exists);
        }
        let position = self.position()?;
        self.keep_or_roll_back(position, self.insert_clustered(set, key, row, exists))
    }

    // What does not depend on the row's type stands apart, here and below: one copy of it stays in the instruction cache.

    /// A place for the row to insert.
    #[inline(never)]
    fn begin_insert(&self, set: &TableSet, key: Key<'_>) -> Result<Staged, Abort> {
        self.own(set)?;
        self.writable()?;
        self.watch(Kind::Insert, set, Target::Rows, || watch::one(key));
        self.operate(|worker| worker.stage(&set.primary))
    }

    /// Gives the place of a row back that was not written.
    #[cold]
    fn not_encoded(&self, set: &TableSet, staged: Staged, error: NotEncoded) -> Abort {
        match error {
            NotEncoded::OutOfMemory(_) => self.discard_row(&set.primary, staged),
            // The caller notes the error.
            NotEncoded::Unfit => {
                self.worker().discard(&set.primary, staged);
                Abort::new(AbortKind::User)
            }
        }
    }

    /// Inserts the row that was staged, and its index entries.
    #[inline(never)]
    fn end_insert(&self, set: &TableSet, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<bool, Abort> {
        if !set.has_unique_index() {
            return self.insert_parts(set, key, staged, exists);
        }
        match self.position() {
            Ok(position) => self.keep_or_roll_back(position, self.insert_parts(set, key, staged, exists)),
            Err(abort) => {
                cold_path();
                self.worker().discard(&set.primary, staged);
                Err(abort)
            }
        }
    }

    /// Inserts a staged row of a table without indexes, in a transaction that is not recorded; `false` if the key exists and was to be
    /// left.
    #[inline(never)]
    pub(crate) fn insert_row(
        &self,
        table: &seriatim_txn::Table,
        key: Key<'_>,
        staged: Staged,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        Ok(!matches!(self.insert_staged(table, key, staged, exists)?, Inserted::Exists(_)))
    }

    /// Gives the place of a row back for whose long text there is no memory.
    #[cold]
    pub(crate) fn discard_row(&self, table: &seriatim_txn::Table, staged: Staged) -> Abort {
        self.worker().discard(table, staged);
        self.out_of_memory()
    }

    /// Hands a staged row to the worker. If the transaction stops before, or while it waits, it is given back.
    #[inline]
    pub(crate) fn insert_staged(
        &self,
        table: &seriatim_txn::Table,
        key: Key<'_>,
        staged: Staged,
        exists: OnExists,
    ) -> Result<Inserted, Abort> {
        let mut is_handed_over = false;
        let inserted = self.operate(|worker| {
            let inserted = worker.insert(table, key, staged, exists);
            is_handed_over = !matches!(inserted, Err(OpError::Wait));
            inserted
        });
        if inserted.is_err() && !is_handed_over {
            cold_path();
            self.worker().discard(table, staged);
        }
        inserted
    }

    /// The row, then its index entries.
    #[inline]
    fn insert_parts(&self, set: &TableSet, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<bool, Abort> {
        let table = &set.primary;
        let inserted = self.insert_staged(table, key, staged, exists)?;
        self.note(table, key, ColumnSet::EMPTY);
        let before = match inserted {
            Inserted::Exists(_) => return Ok(false),
            Inserted::New => None,
            Inserted::Replaced(before) => Some(before),
        };
        self.wrote(table, key);
        if !set.indexes.is_empty() {
            // The row now lies in the transaction's own row version: read it back from there.
            let after = self.operate(|worker| worker.read(table, key, ColumnSet::ALL))?;
            self.maintain(set, key, before, after, ColumnSet::ALL)?;
        }
        Ok(true)
    }

    /// Updates the row at `key` in `change`, which reads and sets these columns only and returns those it set; it is not called if
    /// there is no such row.
    ///
    /// # Errors
    /// A conflict, a duplicate key of a unique index, a handle of another database.
    // What `change` comes to, it leaves where it is wanted: large results are not handed from function to function.
    #[inline]
    pub fn change_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
    ) -> Result<(), Abort> {
        let _call = self.call()?;
        let Some(row) = self.begin_update(set, key, columns)? else { return Ok(()) };
        let mut out_of_line_values = OutOfLineValues::of(self, set);
        // SAFETY: a private row version of the table's layout; access rule 2 keeps others away while it is written.
        let writer = unsafe { RowWriter::for_update(row.as_ptr(), &mut out_of_line_values) }.only(columns.either());
        let undo = UndoUpdate { tx: self, set };
        let dirty = change(writer);
        std::mem::forget(undo);
        self.end_update(set, key, dirty)
    }

    /// The row to be changed, if there is one. Operations are refused until the update ends.
    #[inline(never)]
    fn begin_update(&self, set: &TableSet, key: Key<'_>, columns: ColumnUse) -> Result<Option<RowPtr>, Abort> {
        self.own(set)?;
        self.writable()?;
        let position = if set.has_unique_index() { Some(self.position()?) } else { None };
        let updating = if set.cluster.is_on() {
            self.update_clustered(set, key)?
        } else {
            let table = &set.primary;
            let columns = set.with_indexed(columns);
            let updating = self.operate(|worker| worker.update(table, key, columns))?;
            self.note(table, key, columns.read());
            if updating.is_some() {
                self.wrote(table, key);
            }
            updating
        };
        let Some(rows) = updating else { return Ok(None) };
        self.updating.set(Some(Update { rows, position, left: self.left.replace(0) }));
        Ok(Some(rows.after))
    }

    /// The row was changed.
    #[inline(never)]
    fn end_update(&self, set: &TableSet, key: Key<'_>, dirty: ColumnSet) -> Result<(), Abort> {
        let update = self.admit();
        if let Some(cause) = self.stopped.get() {
            cold_path();
            return Err(self.told(AbortKind::Stopped(cause)));
        }
        match update {
            Some(update) if self.watching.get() || !set.indexes.is_empty() => self.follow(set, key, update, dirty),
            _ => Ok(()),
        }
    }

    /// The row was changed: now its index entries. If they cannot follow it, for a reason that the body may choose to ignore, nothing
    /// of the update stays.
    #[inline(never)]
    fn follow(&self, set: &TableSet, key: Key<'_>, update: Update, dirty: ColumnSet) -> Result<(), Abort> {
        let Update { rows: Updating { before, after }, position, .. } = update;
        if let Some(undo) = &mut *self.undo.borrow_mut() {
            undo.updated(set, key, before, dirty);
        }
        let access = self.watch(Kind::Update, set, Target::Rows, || watch::one(key));
        self.watch_row(access, Some(after.as_ptr()), dirty);
        let maintained = self.maintain(set, key, Some(before), Some(after), dirty);
        match position {
            Some(position) => self.keep_or_roll_back(position, maintained),
            None => maintained,
        }
    }

    /// The closure of an update, which is given, has ended: operations are admitted again, unless it stopped the transaction.
    #[inline]
    fn admit(&self) -> Option<Update> {
        let update = self.updating.take()?;
        if self.stopped.get().is_none() {
            self.left.set(update.left);
        }
        Some(update)
    }

    /// Updates the row at `key` in `change`, which returns its result and the columns it set.
    pub(crate) fn update_at<R>(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> (R, ColumnSet),
    ) -> Result<Option<R>, Abort> {
        let mut value = None;
        self.change_at(set, key, columns, |writer| {
            let (result, dirty) = change(writer);
            value = Some(result);
            dirty
        })?;
        Ok(value)
    }

    /// As [`TxCore::update_at`], where `change` may fail. What it wrote before stays in the transaction, which therefore must
    /// not be committed.
    pub(crate) fn try_update_at<R, E>(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(&mut RowWriter<'_>) -> Result<R, E>,
    ) -> Result<Option<Result<R, E>>, Abort> {
        self.update_at(set, key, columns, |mut writer| {
            let result = change(&mut writer);
            let dirty = unless_failed(&result, writer.dirty());
            (result, dirty)
        })
    }

    /// Adds to a column of the row at `key`, for a caller at this place; whether there is one.
    ///
    /// # Errors
    /// A conflict; overflow; a duplicate key of a unique index; a handle of another database.
    pub fn add_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        addition: Addition,
        place: &'static Location<'static>,
    ) -> Result<bool, Abort> {
        match self.add_unless_overflow(set, key, addition)? {
            Added::Done => Ok(true),
            Added::Missing => Ok(false),
            Added::Overflow => Err(self.told(AbortKind::Overflow(Some(place)))),
        }
    }

    fn add_unless_overflow(&self, set: &TableSet, key: Key<'_>, addition: Addition) -> Result<Added, Abort> {
        let columns = addition.columns();
        let is_update = || set.indexes.iter().any(|index| index.columns.intersects(columns.either()));
        let is_noted = || self.watching.get() && self.undo.borrow().is_some();
        if set.cluster.is_on() || is_noted() || is_update() {
            let mut added = Added::Missing;
            self.change_at(set, key, columns, |mut writer| {
                added = addition.write(&set.layout, &mut writer);
                writer.dirty()
            })?;
            return Ok(added);
        }
        let _call = self.call()?;
        let table = &self.own(set)?.primary;
        self.writable()?;
        let added = self.operate(|worker| worker.add(table, key, addition))?;
        self.note(table, key, columns.read());
        if added != Added::Missing {
            self.wrote(table, key);
        }
        Ok(added)
    }

    /// Deletes the row at `key`.
    ///
    /// # Errors
    /// A conflict.
    pub fn delete_at(&self, set: &TableSet, key: Key<'_>) -> Result<bool, Abort> {
        self.own(set)?;
        let _call = self.call()?;
        self.writable()?;
        let before = if set.cluster.is_on() {
            self.delete_clustered(set, key)?
        } else {
            let table = &set.primary;
            let before = self.operate(|worker| worker.delete(table, key))?;
            self.note(table, key, ColumnSet::EMPTY);
            if before.is_some() {
                self.wrote(table, key);
            }
            before
        };
        self.watch(Kind::Delete, set, Target::Rows, || watch::one(key));
        if self.watching.get()
            && let (Some(before), Some(undo)) = (before, &mut *self.undo.borrow_mut())
        {
            undo.deleted(set, key, before);
        }
        if before.is_some() {
            self.maintain(set, key, before, None, ColumnSet::ALL)?;
        }
        Ok(before.is_some())
    }

    /// Stops the transaction at the memory limit.
    pub fn out_of_memory(&self) -> Abort {
        self.stop(Cause { phase: Phase::Execute, reason: Reason::OutOfMemory })
    }

    /// Deletes an index entry that must be there.
    pub(crate) fn unlink_entry(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Result<(), Abort> {
        self.operate(|worker| worker.delete(table, key))?;
        self.note(table, key, ColumnSet::ALL);
        self.wrote(table, key);
        Ok(())
    }

    /// Inserts an index entry whose row is the primary key; an abort if the entry exists.
    pub(crate) fn link_entry(&self, table: &seriatim_txn::Table, key: Key<'_>, primary: Key<'_>) -> Result<(), Abort> {
        let staged = self.operate(|worker| worker.stage(table))?;
        if crate::index::write_primary(staged.row, primary, &mut OutOfLineValues::unlogged(self)).is_err() {
            cold_path();
            self.worker().discard(table, staged);
            return Err(self.out_of_memory());
        }
        let inserted = self.insert_staged(table, key, staged, OnExists::Refuse)?;
        self.note(table, key, ColumnSet::ALL);
        if inserted != Inserted::New {
            return Err(self.duplicate(table, key));
        }
        self.wrote(table, key);
        Ok(())
    }

    /// An abort that says which key exists already.
    #[cold]
    pub fn duplicate(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Abort {
        self.about(AbortKind::Duplicate, table, key)
    }

    /// An abort that says which row does not exist.
    #[cold]
    pub fn missing_at(&self, table: &seriatim_txn::Table, key: Key<'_>) -> Abort {
        self.about(AbortKind::Missing, table, key)
    }

    /// An abort about one key; a conflict instead if what led to it was not true of one state (promise g).
    fn about(&self, kind: AbortKind, table: &seriatim_txn::Table, key: Key<'_>) -> Abort {
        let _call = match self.call() {
            Ok(call) => call,
            Err(abort) => return abort,
        };
        if let Err(cause) = self.validate() {
            return self.stop(cause);
        }
        *self.failed_key.borrow_mut() = Some(KeyAt { table: table.id, key: key.to_buf() });
        self.told(kind)
    }
}

/// The columns whose indexes are to follow: none if the change failed. A duplicate found there would hide why.
pub fn unless_failed<R, E>(result: &Result<R, E>, dirty: ColumnSet) -> ColumnSet {
    if result.is_ok() { dirty } else { ColumnSet::EMPTY }
}

/// A call of a transaction; `None` where nobody asks.
pub(crate) struct Call<'t, W: Worker + ?Sized>(Option<&'t TxCore<W>>);

impl<W: Worker + ?Sized> Drop for Call<'_, W> {
    #[inline]
    fn drop(&mut self) {
        // A worker that panicked while it ended the transaction is nobody else's to end again.
        if let Some(tx) = self.0.filter(|tx| !tx.ending.get()) {
            cold_path();
            tx.calling.set(false);
            if let Some(parking) = &*tx.parking.borrow() {
                parking.leave();
            }
        }
    }
}

/// An update whose closure runs.
#[derive(Clone, Copy)]
struct Update {
    rows: Updating,
    /// Where to go back to if the row cannot be changed together with its index entries.
    position: Option<Position>,
    /// Operations that were left until the next check.
    left: u32,
}

/// Should the closure of an update panic, the row becomes what it was: its index entries were not brought after it, and the body may
/// catch the panic and commit. To be forgotten once the closure has returned.
struct UndoUpdate<'t, W: Worker + ?Sized> {
    tx: &'t TxCore<W>,
    set: &'t TableSet,
}

impl<W: Worker + ?Sized> Drop for UndoUpdate<'_, W> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        if let Some(Update { rows: Updating { before, after }, .. }) = self.tx.admit() {
            // SAFETY: both are rows of that many bytes; `after` is private, and the writer is gone with the closure.
            unsafe { after.copy_from_nonoverlapping(before, self.set.layout.row_bytes as usize) };
        }
    }
}

/// Opening.
/// Nothing is decided but the transaction that has this.
pub(crate) struct Alone {
    inner: Arc<Inner>,
    turn: u64,
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Some(queue) = &self.inner.queue {
            queue.release(self.turn);
        }
    }
}

impl TxCore {
    /// Opens an attempt. `origin` says who asks.
    ///
    /// # Errors
    /// When every worker is busy.
    pub fn open(&mut self, mode: Mode, attempt: u32, origin: Origin) -> Result<(), TransactError> {
        self.open_or_wait(mode, attempt, origin, true)
    }

    /// As [`TxCore::open`]; if it does not `wait` for a worker, an error says at once that none is free. Nor does it wait for transactions that
    /// are held.
    #[inline(always)]
    pub(crate) fn open_or_wait(
        &mut self,
        mode: Mode,
        attempt: u32,
        origin: Origin,
        wait: bool,
    ) -> Result<(), TransactError> {
        // A transaction that was leaked instead of dropped is still open: a session runs one at a time.
        if self.is_open() {
            cold_path();
            self.roll_back(None);
        }
        self.explicit.set(false);
        let lease = self.lease(origin, wait)?;
        self.begin(lease, mode, attempt, origin, wait);
        Ok(())
    }
}

/// Opening and ending, for sessions.
impl<W: Worker + ?Sized> TxCore<W> {
    /// A worker of the pool, through the gate. One that is compiled for its protocol takes it from behind `dyn`.
    #[inline(always)]
    fn lease(&self, origin: Origin, wait: bool) -> Result<Lease, TransactError> {
        let inner = &self.inner;
        loop {
            // The gate first: a transaction that waits for chains to end must not hold a worker that they need.
            if self.must_enter(origin)
                && let Some(gate) = &inner.gate
            {
                cold_path();
                gate.enter_other()?;
                self.gated.set(true);
            }
            let lease = inner.pool.lease(self.preferred.get(), inner.protocol.as_ref(), &inner.environment, wait);
            let Some(lease) = lease else {
                cold_path();
                self.leave_gate();
                return Err(TransactError::WorkersBusy);
            };
            // It may have been armed since: once, before anybody could lease this worker.
            if !self.must_enter(origin) {
                return Ok(lease);
            }
            cold_path();
            inner.pool.give_back(lease);
        }
    }

    /// Opens an attempt with this worker.
    #[inline(always)]
    fn begin(&self, lease: Lease<W>, mode: Mode, attempt: u32, origin: Origin, waits: bool) {
        let inner = &self.inner;
        let explicit = origin == Origin::Explicit;
        if mode == Mode::ReadWrite
            && let Some(writer) = lease.writer
        {
            // Here nothing is locked yet. If it does not help, the commit says so, should there be anything to commit.
            // SAFETY: the pool's access rule: the writer is of the leased slot; it is used in this call only.
            unsafe { writer.as_ref() }.wait_for_disk();
        }
        self.lease.set(Some(lease));
        self.ending.set(false);
        self.preferred.set(lease.slot);
        self.mode.set(mode);
        self.attempt.set(attempt);
        if explicit || self.priority.get() == Priority::NONE {
            self.priority.set(inner.pool.draw_priority(lease.slot, inner.environment.epochs.current()));
        }
        if inner.contention.is_some() && origin != Origin::Procedure {
            cold_path();
            self.procedure.set(AD_HOC);
        }
        self.stopped.set(None);
        self.too_large.take();
        let mut savepoints = self.savepoints.borrow_mut();
        savepoints.clear();
        savepoints.shrink_to(SAVEPOINTS_KEPT);
        drop(savepoints);
        self.open_run.forget();
        self.operations.set(0);
        self.wait_max.set(self.bounds.get().wait);
        self.weight.set(self.bounds.get().weight);
        let last = self.clock.now().saturating_add(self.bounds.get().age).saturating_add(inner.clock_resolution);
        self.deadline.set(last, attempt == 1);
        self.left.set(self.stride());
        if let Some(log) = &self.log {
            cold_path();
            log.borrow_mut().begin(mode == Mode::ReadOnly);
        }
        if mode == Mode::ReadOnly
            && let Some(persistence) = &inner.persistence
        {
            let hold = persistence.hold();
            self.worker().core().held = hold.as_ref().map(Hold::epoch);
            self.hold.set(hold);
        }
        match &self.freshness {
            Some(freshness) if mode == Mode::ReadOnly => self.begin_bounded(freshness, lease.slot),
            _ => self.worker().begin(mode, self.priority.get()),
        }
        if self.pieces
            && origin == Origin::Procedure
            && let Some(pieces) = self.worker().pieces()
        {
            pieces.follow();
        }
        if self.is_queued()
            && let Some(held) = self.worker().detach()
        {
            cold_path();
            held.hold();
            if waits {
                held.may_wait();
            }
        }
        if explicit {
            cold_path();
            self.park(lease.slot);
        }
    }

    /// The worker begins with a snapshot that is as fresh as the session wants it.
    fn begin_bounded(&self, freshness: &SessionFreshness, slot: usize) {
        let own = self.bounds.get().own_commits;
        let (worker, wanted) = (self.worker(), freshness.wanted(own));
        match freshness.measure() {
            Measure::Epochs => worker.core().includes = Epoch(wanted),
            Measure::Places => {
                worker.come_after(wanted);
                if let Some(log) = self.log.as_ref().filter(|_| wanted < ALL) {
                    log.borrow_mut().shows_past(own);
                }
            }
        }
        worker.begin(Mode::ReadOnly, self.priority.get());
        freshness.had(own);
        if freshness.measure() == Measure::Epochs {
            let made = worker.core().snapshot_made.take();
            // One that is of nobody else is of the present.
            let age = made.map_or(0, |made| Instant::now().nanoseconds().saturating_sub(made));
            self.inner.pool.counters(slot).snapshot_ages.note(age);
            if let (Some(made), Some(log)) = (made, &self.log) {
                log.borrow_mut().shows_from(made);
            }
        }
    }

    /// An explicit transaction is open, and waits for its first call.
    fn park(&self, slot: usize) {
        self.drop_kept();
        let reaped_in_calls = self.worker().core().injects(Fault::ReapInCall);
        let parking = Parking::new(self.deadline.last(), self.gated.get(), self.hold.take(), reaped_in_calls);
        self.explicit.set(true);
        self.inner.pool.park(slot, Arc::clone(&parking));
        parking.leave();
        *self.parking.borrow_mut() = Some(parking);
    }

    /// An explicit transaction, if it is one, is in its last call: nobody else ends it.
    #[inline]
    fn unpark(&self, slot: usize) {
        if let Some(parking) = self.parking.take() {
            cold_path();
            self.inner.pool.unpark(slot);
            parking.release();
        }
    }

    fn close(&self) {
        if let Some(lease) = self.lease.take() {
            self.unpark(lease.slot);
            self.inner.pool.give_back(lease);
        }
        if self.mode.get() == Mode::ReadOnly {
            // Offline by now: it reads nothing more.
            drop(self.hold.take());
        }
        self.leave_gate();
    }

    /// Whether the gate is armed against transactions of this origin, and this one has not gone through it.
    #[inline]
    fn must_enter(&self, origin: Origin) -> bool {
        let armed = self.inner.gate.as_deref().is_some_and(Gate::is_armed);
        armed && origin != Origin::Procedure && !self.gated.get()
    }

    #[inline]
    fn leave_gate(&self) {
        if self.gated.get() {
            self.gated.set(false);
            if let Some(gate) = &self.inner.gate {
                cold_path();
                gate.leave_other();
            }
        }
    }

    /// Whether the protocol takes transactions of this mode without a plan.
    #[inline]
    pub(crate) fn takes_unplanned(&self, mode: Mode) -> bool {
        self.unplanned[usize::from(mode == Mode::ReadOnly)]
    }

    /// The calls that follow belong to this operation of a procedure, for protocols that repair.
    pub fn name_operation(&self, operation: u16, iteration: u32) {
        if let Ok(_call) = self.call()
            && let Some(repair) = self.worker().repair()
        {
            repair.operation(operation, iteration);
            self.open_run.forget();
            if let Some(log) = &self.log {
                cold_path();
                log.borrow_mut().run(operation, iteration);
            }
        }
    }

    /// The worker drops what these runs read and wrote; whether they are to run again.
    pub fn forget_runs(&self, runs: Runs, again: bool) {
        if let Ok(_call) = self.call()
            && let Some(repair) = self.worker().repair()
        {
            repair.forget(runs, again);
            self.open_run.forget();
            if let Some(log) = &self.log {
                log.borrow_mut().forget(runs);
            }
        }
    }

    /// The attempt that has begun runs whole. So did one before, in these regions, which the worker is to count as its own.
    pub(crate) fn begin_whole(&self, regions: RegionStatistics) {
        if let Ok(_call) = self.call() {
            self.worker().begin_whole(PartitionSet::ALL);
            self.worker().core().agent.count(regions);
        }
    }

    /// The attempt that has begun runs whole in these partitions, so many, which this thread owns.
    pub(crate) fn begin_in(&self, partitions: PartitionSet, count: usize) {
        self.worker().begin_whole(partitions);
        if let Some(lease) = self.lease.get() {
            self.inner.pool.counters(lease.slot).owned(count);
        }
    }

    /// A repair has made so many runs of operations again.
    pub fn note_repair(&self, runs: u64) {
        let saved = match self.call() {
            Ok(_call) => self.worker().repair().map_or(0, |repair| repair.lookups_saved()),
            Err(_) => 0,
        };
        if let Some(lease) = self.lease.get() {
            self.inner.pool.counters(lease.slot).repaired(runs, saved);
        }
        self.met.set(Met::Conflict);
    }

    /// A repair that the commit asked for is not made: it would be little less than all.
    pub(crate) fn refuse_repair(&self) {
        self.met.set(Met::Refused);
    }

    /// What became of repairs since this was asked last: of the last that a commit asked for.
    #[inline]
    pub fn take_met(&self) -> Met {
        self.met.take()
    }

    /// Which records the runs of an operation touched: [`seriatim_txn::Repair::touched`].
    pub fn touched(&self, operation: u16, visit: &mut dyn FnMut(u32, Option<usize>)) {
        if let Ok(_call) = self.call()
            && let Some(repair) = self.worker().repair()
        {
            repair.touched(operation, visit);
        }
    }

    /// Whether an attempt is open.
    pub fn is_open(&self) -> bool {
        self.lease.get().is_some()
    }

    /// Commits; the cause if it cannot. A transaction that stopped cannot.
    ///
    /// # Errors
    /// The cause.
    #[inline]
    pub fn commit(&mut self) -> Result<Tid, Cause> {
        self.end_whole()
    }

    #[inline]
    fn end_whole(&self) -> Result<Tid, Cause> {
        match self.end()? {
            Outcome::Committed(tid) => Ok(tid),
            // Repair needs a body that can run in parts.
            Outcome::Repair(_) => Err(Cause { phase: Phase::Validate, reason: Reason::RecordChanged }),
        }
    }

    /// As [`TxCore::commit`]; or what is to be repaired, and then the transaction is still open.
    ///
    /// # Errors
    /// The cause.
    #[inline]
    pub fn commit_or_repair(&mut self) -> Result<Outcome, Cause> {
        self.end()
    }

    /// Whether the attempt can be decided.
    #[inline]
    fn executed(&self) -> Result<(), Cause> {
        if let Some(cause) = self.stopped.get() {
            return Err(cause);
        }
        if self.is_over() {
            cold_path();
            return Err(self.deadline.cause());
        }
        Ok(())
    }

    #[inline]
    fn end(&self) -> Result<Outcome, Cause> {
        self.executed()?;
        let mut waiting = Waiting::default();
        loop {
            self.ending.set(true);
            let outcome = if self.is_queued() { self.decide_queued() } else { self.decide() };
            match self.decided(outcome) {
                Ok(outcome) => return Ok(outcome),
                Err(OpError::Wait) => self.wait(&mut waiting, Phase::Lock)?,
                Err(OpError::Abort(cause)) => return Err(cause),
            }
        }
    }

    /// What the transaction did, and what it saw and may tell, later snapshots of the session show.
    #[inline]
    fn note_done(&self) {
        if let Some(freshness) = &self.freshness {
            let moved = freshness.did(self.mode.get(), self.dependency.get().epoch(), || self.worker().place());
            if let Some(log) = self.log.as_ref().filter(|_| moved) {
                log.borrow_mut().was_shown();
            }
        }
    }

    /// The decision was made: if it is to commit, the transaction is closed.
    #[inline]
    pub(crate) fn decided(&self, outcome: Result<Outcome, OpError>) -> Result<Outcome, OpError> {
        self.ending.set(false);
        if let Ok(Outcome::Committed(tid)) = outcome {
            if let Some(log) = &self.log {
                cold_path();
                log.borrow_mut().commit();
            }
            self.dependency.set(self.dependency.get().with(tid));
            self.note_done();
            if let Some(lease) = self.lease.get() {
                self.inner.pool.counters(lease.slot).committed();
            }
            self.close();
        }
        outcome
    }

    /// Transactions that begin from now on are not held, and their decisions are not queued.
    pub(crate) fn ignore_queue(&self) {
        self.queued.set(false);
    }

    /// Whether the open attempt is held, and its decision queued.
    #[inline]
    fn is_queued(&self) -> bool {
        self.queued.get() && !self.has_lost_patience()
    }

    #[cold]
    fn has_lost_patience(&self) -> bool {
        let restarts = self.attempt.get().saturating_sub(1);
        self.inner.queue.as_ref().is_some_and(|queue| queue.has_lost_patience(restarts))
    }

    /// The attempt has begun, and has read nothing. If it was refused too often, nothing is decided until what this gives is dropped.
    #[inline]
    pub(crate) fn decide_alone(&self) -> Option<Alone> {
        // One that only reads is not queued, but validates, and others change what it has read all the same.
        if !self.queued.get() || !self.has_lost_patience() {
            return None;
        }
        let turn = self.inner.queue.as_ref()?.hold();
        Some(Alone { inner: Arc::clone(&self.inner), turn })
    }

    /// What the queue is to be told of the executed transaction; `None` if its decision is not queued.
    ///
    /// # Errors
    /// A conflict that is already certain.
    pub(crate) fn prepare(&self) -> Result<Option<(&Queue, Prepared)>, OpError> {
        self.executed().map_err(OpError::Abort)?;
        let Some(queue) = self.inner.queue.as_ref().filter(|_| self.is_queued()) else { return Ok(None) };
        let Some(held) = self.worker().detach().filter(|_| self.mode.get() == Mode::ReadWrite) else { return Ok(None) };
        // The validation and the lists are for the choice of an order.
        let prepared = if queue.is_ordered() { held.prepare()? } else { Prepared::default() };
        Ok(Some((queue, self.with_known(prepared))))
    }

    /// What was prepared, with what its worker does not know.
    fn with_known(&self, prepared: Prepared) -> Prepared {
        Prepared { restarts: self.attempt.get().saturating_sub(1), weight: self.weight.get(), ..prepared }
    }

    /// As [`TxCore::decide`], when its place in the queue has come: this thread does it, or another while this one waits.
    #[cold]
    fn decide_queued(&self) -> Result<Outcome, OpError> {
        let Some((queue, prepared)) = self.prepare()? else { return self.decide() };
        queue.decide(prepared, Waits(self))
    }

    /// Whether the executed transaction can still commit: what was prepared, if it is different now.
    pub(crate) fn recheck(&self) -> Result<Option<Prepared>, Cause> {
        let Some(held) = self.worker().detach() else { return Ok(None) };
        match held.recheck() {
            Ok(None) | Err(OpError::Wait) => Ok(None),
            Ok(Some(prepared)) => Ok(Some(self.with_known(prepared))),
            Err(OpError::Abort(cause)) => {
                self.refuse();
                Err(cause)
            }
        }
    }

    /// The decision will be to abort.
    pub(crate) fn refuse(&self) {
        if let Some(held) = self.worker().detach() {
            held.refuse();
        }
    }

    /// As [`TxCore::decide`], after a wait in the queue, unless the order of the batch refused it.
    pub(crate) fn decide_in_turn(&self, refused: Option<Cause>) -> Result<Outcome, OpError> {
        if let Some(cause) = refused {
            return Err(OpError::Abort(cause));
        }
        self.ending.set(true);
        if self.is_over() {
            return Err(OpError::Abort(self.deadline.cause()));
        }
        let decided = self.decide();
        if let Err(OpError::Abort(_)) = decided {
            // Its thread may have other things to do before it aborts.
            self.refuse();
        }
        if self.worker().core().injects(Fault::DecideTwice) { self.decide() } else { decided }
    }

    /// Has the protocol decide, with the log open for what it writes.
    #[inline]
    fn decide(&self) -> Result<Outcome, OpError> {
        // What wrote nothing costs the log nothing, and goes on when the log takes no commits.
        let writer = self.lease.get().and_then(|lease| lease.writer).filter(|_| self.worker().writes());
        match (writer.zip(self.inner.persistence.as_ref()), &self.log) {
            (None, None) => self.commit_to(&mut NoRedo),
            (None, Some(log)) => {
                cold_path();
                self.commit_to(&mut *log.borrow_mut())
            }
            (Some((mut writer, persistence)), _) => {
                // SAFETY: the pool's access rule: the writer is of the leased slot; it is used in this call only.
                self.decide_logged(unsafe { writer.as_mut() }, persistence)
            }
        }
    }

    #[inline]
    fn commit_to(&self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        match &self.inner.contention {
            None => self.worker().commit(redo),
            Some(tracker) => {
                cold_path();
                self.worker().commit(&mut tracker.note_writes(redo, self.procedure.get()))
            }
        }
    }

    fn decide_logged(&self, writer: &mut Writer, persistence: &Persistence) -> Result<Outcome, OpError> {
        // Before the protocol reads the epoch: what it commits from here on is in an epoch that the log knows to be open.
        if let Err(refusal) = writer.begin(self.inner.environment.epochs.current()) {
            self.refusal.set(Some(refusal));
            return Err(OpError::Abort(Cause { phase: Phase::Lock, reason: Reason::LogStopped }));
        }
        let guard = StopsLog(&self.inner);
        let mut redo = CommitLog::new(writer.groups(), &persistence.whole_before, self.log.as_ref());
        let outcome = self.commit_to(&mut redo);
        redo.finish();
        writer.append();
        writer.end();
        std::mem::forget(guard);
        if let Ok(Outcome::Committed(_)) = outcome {
            self.dependency.set(self.dependency.get().of_writer());
        }
        outcome
    }

    /// The attempts that follow are a transaction of their own: it has no priority yet, and nothing is to be waited for.
    #[inline]
    pub fn renew(&self) {
        self.priority.set(Priority::NONE);
        self.dependency.set(CommitDependency::default());
    }

    /// Proof of a commit of this session's.
    #[inline]
    pub fn receipt(&self, tid: Tid) -> Receipt {
        Receipt { tid, database: self.inner.number }
    }

    /// Attempts of procedures that follow are of this one.
    #[inline]
    pub fn name_procedure(&self, name: &'static str) {
        if let Some(tracker) = &self.inner.contention {
            cold_path();
            self.procedure.set(tracker.number_of(name));
        }
    }

    /// Cancels transactions of this session, from any thread.
    pub fn canceller(&self) -> Canceller {
        self.deadline.canceller()
    }

    /// What must be durable before the result leaves.
    #[inline]
    pub(crate) fn dependency(&self) -> CommitDependency {
        self.dependency.get()
    }

    /// Waits until the result may leave.
    ///
    /// # Errors
    /// That the log stopped, or that it took too long.
    #[inline]
    pub fn wait_until_durable(&self) -> Result<(), TransactError> {
        self.inner.wait_until_durable(self.dependency.get(), self.wait_max.get())
    }

    /// Whether it was a snapshot whose result would have to wait for a disk that is behind: one that begins now shows the durable epoch.
    #[inline]
    pub fn is_overtaken(&self) -> bool {
        self.mode.get() == Mode::ReadOnly && self.inner.is_overtaken(self.dependency.get(), self.wait_max.get())
    }

    pub(crate) fn wait_max(&self) -> Option<Duration> {
        self.wait_max.get()
    }

    /// Ends an explicit transaction; its result is withheld.
    pub(crate) fn commit_explicit(&mut self) -> Result<Receipt, TransactError> {
        let tx: &TxCore<W> = self;
        tx.renew();
        let _call = tx.call().map_err(|abort| tx.error_of(&abort))?;
        match tx.end_whole() {
            Ok(tid) => Ok(tx.receipt(tid)),
            Err(cause) => {
                let error = tx.error_of(&Abort::new(AbortKind::Stopped(cause)));
                tx.abandon(Some(cause));
                Err(error)
            }
        }
    }

    /// Ends the attempt without a trace, if it is open, and counts why.
    pub fn roll_back(&mut self, cause: Option<Cause>) {
        self.abandon(cause);
    }

    fn abandon(&self, cause: Option<Cause>) {
        if !self.is_open() {
            return;
        }
        // One that was ended while it was parked is not open either.
        let Ok(_call) = self.call() else { return };
        let Some(lease) = self.lease.get() else { return };
        if self.ending.get() {
            // The worker panicked while it ended the attempt: it is not used again.
            self.inner.stop_log(PANICKED);
            self.lease.set(None);
            self.unpark(lease.slot);
            self.calling.set(false);
            self.leave_gate();
            return;
        }
        let counters = self.inner.pool.counters(lease.slot);
        match cause {
            Some(cause) => {
                counters.conflict_aborted(cause);
                if let Some(tracker) = &self.inner.contention
                    && cause.reason.is_conflict()
                {
                    tracker.count(cause, self.conflict_info(cause), self.procedure.get());
                }
            }
            None => {
                counters.user_aborted();
                // The body may tell what it read.
                self.dependency.set(self.dependency.get().with(self.worker().newest()));
                self.note_done();
            }
        }
        self.ending.set(true);
        self.worker().abort();
        self.ending.set(false);
        self.close();
        self.failed_key.take();
        self.user.take();
    }

    /// As [`TxCore::roll_back`], for the body's own reasons.
    pub fn roll_back_user(&mut self) {
        self.roll_back(None);
    }
}

/// What an abort stands for.
impl<W: Worker + ?Sized> TxCore<W> {
    /// A text found no place: in memory, or in the log.
    #[cold]
    pub(crate) fn no_room(&self) -> TransactError {
        match self.too_large.borrow().clone() {
            Some((table, bytes, most)) => TransactError::TooLarge { table, bytes, most },
            None => TransactError::OutOfMemory,
        }
    }

    /// Why the log did not take the commit.
    #[cold]
    pub(crate) fn log_refused(&self) -> TransactError {
        self.refusal.take().map_or_else(|| self.inner.log_stopped(), durability::refused)
    }

    /// Where an attempt stopped for this cause, if that is known. Within a call.
    fn conflict_info(&self, cause: Cause) -> Option<&ConflictInfo> {
        // A wait that was given up was for what the worker noted.
        let is_of = |info: &&ConflictInfo| info.cause == cause || cause.reason == Reason::WaitTimeout;
        self.worker().conflict_info().filter(is_of)
    }

    /// A conflict with what is known of its place.
    pub(crate) fn conflict(&self, cause: Cause) -> Conflict {
        let call = self.lease.get().and_then(|_| self.call().ok());
        let Some(conflict_info) = call.and_then(|_call| self.conflict_info(cause).cloned()) else {
            return Conflict { cause, table: None, key: None };
        };
        let key = conflict_info.key.as_ref().map(KeyBuf::as_key);
        let (table, key) = conflict_info.table.map_or((None, None), |id| self.inner.describe(id, key));
        Conflict { cause, table, key }
    }

    /// Table and key of an abort that is about one.
    fn failed_key(&self) -> (String, String) {
        let failed_key = self.failed_key.borrow();
        let described = failed_key.as_ref().map(|at| self.inner.describe(at.table, Some(at.key.as_key())));
        let (table, key) = described.unwrap_or_default();
        (table.unwrap_or_default(), key.unwrap_or_default())
    }

    /// The body's own error, which is gone then.
    pub(crate) fn user_error(&self) -> TransactError {
        let error = self.user.borrow_mut().take();
        TransactError::User(error.unwrap_or_else(|| Box::new(Abort::new(AbortKind::User))))
    }

    /// The body's own error, which stays.
    fn shared_user_error(&self) -> TransactError {
        let mut noted = self.user.borrow_mut();
        let Some(error) = noted.take() else { return TransactError::User(Box::new(Abort::new(AbortKind::User))) };
        let shared = Shared::new(error);
        *noted = Some(Box::new(shared.clone()));
        TransactError::User(Box::new(shared))
    }

    /// What an abort stands for, outside the retry loop. It may be asked for again.
    pub fn error_of(&self, abort: &Abort) -> TransactError {
        if let Some(told) = abort.told() {
            return told.again();
        }
        match abort.kind() {
            AbortKind::Duplicate => {
                let (table, key) = self.failed_key();
                TransactError::Duplicate { table, key }
            }
            AbortKind::Missing => {
                let (table, key) = self.failed_key();
                TransactError::MissingRow { table, key }
            }
            AbortKind::User => self.shared_user_error(),
            AbortKind::Stopped(cause) => match cause.reason {
                Reason::OutOfMemory => self.no_room(),
                Reason::LogStopped => self.log_refused(),
                Reason::OtherPartition | Reason::NoPartition => TransactError::partition(self.conflict(cause)),
                reason if reason.is_conflict() => {
                    TransactError::Conflict { last: self.conflict(cause), attempts: self.attempt.get() }
                }
                _ => TransactError::of(abort.kind()),
            },
            AbortKind::Overflow(_) => TransactError::of(abort.kind()),
        }
    }
}

const PANICKED: &str = "a worker panicked in the middle of a commit, so what it wrote may be half in memory and half in the log: \
                        open the database again, and report what it printed";

/// A transaction that does nothing until its decision, which another thread may make, has been made.
struct Waits<'t, W: Worker + ?Sized>(&'t TxCore<W>);

// SAFETY: access rule 1: the thread that has it waits meanwhile, so that one thread at a time uses the transaction; and that may move
// (see above).
unsafe impl<W: Worker + ?Sized> Send for Waits<'_, W> {}

impl<W: Worker + ?Sized> Turn for Waits<'_, W> {
    type Result = Result<Outcome, OpError>;

    fn recheck(&mut self) -> Result<Option<Prepared>, Cause> {
        self.0.recheck()
    }

    fn refuse(&mut self) {
        self.0.refuse();
    }

    fn decide(self, refused: Option<Cause>) -> Result<Outcome, OpError> {
        self.0.decide_in_turn(refused)
    }
}

/// Stops the log when a commit unwinds: what is in memory then is not what is in the log.
struct StopsLog<'d>(&'d Inner);

impl Drop for StopsLog<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.stop_log(PANICKED);
    }
}

impl<W: Worker + ?Sized> Drop for TxCore<W> {
    fn drop(&mut self) {
        // A session dropped while a panic unwinds through its open transaction.
        self.roll_back(self.stopped.get());
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
    use seriatim_htm::{Emulation, HtmMode};
    use seriatim_protocol::for_each_protocol;
    use seriatim_store::Direction;
    use seriatim_txn::Protocol;

    use super::*;
    use crate::{RawScan, protocols};

    /// Writes, reads and scans by a transaction that is compiled for the worker of `P`.
    fn run<P: Protocol>() {
        let htm = match P::INFO.opens_on(HtmMode::Auto) {
            true => HtmMode::Auto,
            false => HtmMode::Emulated(Emulation::default()),
        };
        let protocol = P::INFO.name.to_owned();
        let settings = Settings { protocol, htm, workers: 1, step_helpers: true, ..Settings::default() };
        let engine = settings.open().expect("a protocol of this name");
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
        let table = TableDef::builder("cell").column(column("id")).column(column("value")).key(["id"]);
        let set = engine.create(table.finish().expect("a table")).expect("memory");
        let mut tx = TxCore::<P::Worker>::new(Arc::clone(engine.inner()), 0);
        let open = |tx: &TxCore<P::Worker>| {
            let Lease { slot, worker, writer } = tx.lease(Origin::Closure, true).expect("a worker is free");
            // The workers of this database are of this protocol.
            tx.begin(
                Lease { slot, worker: worker.cast::<P::Worker>(), writer },
                Mode::ReadWrite,
                1,
                Origin::Closure,
                true,
            );
        };
        let places = &set.layout.places;
        open(&tx);
        for id in 0..9u64 {
            let encode = |writer: &mut RowWriter<'_>| {
                writer.set::<u64>(&places[0], id)?;
                writer.set::<u64>(&places[1], 10 * id)
            };
            assert_eq!(tx.insert_at(&set, Key::Word8(id), encode, OnExists::Refuse), Ok(true));
        }
        assert_eq!(tx.delete_at(&set, Key::Word8(3)), Ok(true));
        tx.commit().expect("nobody is in the way");
        open(&tx);
        let row =
            tx.get_at(&set, Key::Word8(4), ColumnSet::ALL).expect("nobody is in the way").expect("it was inserted");
        // SAFETY: a row of this table, readable until the transaction ends.
        assert_eq!(unsafe { RowRef::from_raw(row.as_ptr()) }.get::<u64>(&places[1]), 40);
        let scan = RawScan::new(&tx, &set, Target::Rows, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        assert_eq!(scan.count(), Ok(8));
        tx.roll_back(None);
    }

    #[test]
    fn a_transaction_can_be_compiled_for_the_worker_of_each_protocol() {
        let mut ran = 0;
        macro_rules! each {
            ($($protocol:ident => $type:path,)*) => {
                $({
                    run::<$type>();
                    ran += 1;
                })*
            };
        }
        for_each_protocol!(each);
        assert_eq!(ran, protocols().len());
    }
}
