//! A transaction's operations on encoded keys. The caller encodes keys by the table's codec. This file has the
//! transaction's state, its reads and its savepoints. Modules of their own have its beginning, writes, end, and
//! the errors of its aborts.
//!
//! An attempt, and the field that marks each state:
//!
//! ```text
//!            open                       commit, decide
//! CLOSED ───────────▶ OPEN ────────────────────────────────▶ ENDING ───────▶ CLOSED: committed
//! worker: None        worker: Some ◀─ something to repair ── ending: true    (and withheld until durable)
//!    ▲                 │  ▲    │ ◀─────── OpError::Wait ─────── │
//!    │        update   │  │    │ an operation's OpError::Abort   │ OpError::Abort: a cause
//!    │  begins, ends   ▼  │    ▼                                 │
//!    │          UPDATING ─┘   STOPPED: every operation answers   │
//!    │   updating: Some       with the cause; stopped: Some      │
//!    └────────── roll_back ◀───────┴─────────────────────────────┘
//! ```
//! A worker that panics while it is ENDING is not used again. An explicit transaction is also parked between
//! its calls (`parking`).
//!
//! Access rules, which make the shared references of this module sound:
//! 1. `worker` is set while a transaction is open, and only the session's thread uses it (`TxCore` is not
//!    `Sync`). Each use is one call, and no call runs user code.
//! 2. While the closure of an `update` runs, `updating` refuses every operation, so no operation reads the row
//!    that it writes.
//! 3. Rows of a closure or procedure borrow the `TxCore`; opening and ending the transaction needs it mutably.
//!    So no row outlives its worker's online time, during which the contract keeps row versions readable and
//!    unchanged.
//! 4. An explicit transaction may be ended between its calls (`parking`): all uses of its worker are inside a
//!    [`Call`]. The rows that it gives out are copies, which the `TxCore` keeps until the transaction is
//!    dropped.

mod changing;
mod ending;
mod errors;
mod locking;
mod opening;
mod references;
mod writing;

use std::cell::{Cell, RefCell};
use std::hint::cold_path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::clock::{CoarseClock, Instant};
use seriatim_base::{Backoff, Hold, thread};
use seriatim_catalog::{ColumnSet, KeptRow, Key, RowRef, TableKey};
use seriatim_memory::{Charge, OutOfMemory};
use seriatim_procedure::plan::Kind;
use seriatim_txn::{
    Cause, Freshness, Mode, OpError, Phase, Priority, ProtocolInfo, Reason, RowPtr, Savepoint as WorkerSavepoint,
    Worker,
};

use crate::TransactionOptions;
use crate::cancel::Deadline;
use crate::changing::Changes;
use crate::cluster::{OpenRun, Scratch};
use crate::contention::AD_HOC;
use crate::durability::CommitDependency;
use crate::earlier::ConvertedRows;
use crate::engine::Inner;
use crate::error::{Abort, AbortKind, StorageError, TransactError};
use crate::freshness::SessionFreshness;
use crate::operations::{CompiledWorker, Operations as _, count, enter, operate, read};
use crate::options::Bounds;
use crate::parking::{FORKED, Parking, TOO_OLD};
use crate::pool::Lease;
use crate::procedure::gate::Gate;
use crate::procedure::repair::ConflictSeen;
use crate::procedure::undo::Undo;
use crate::procedure::watch::{self, Accessed};
use crate::record::Log;
use crate::row_locks::Owner;
use crate::scan::Target;
use crate::sequences::Sequence;
use crate::settings::Settings;
use crate::table::{Secondary, TableSet};

pub(crate) use changing::CommittedChanges;
pub use writing::unless_failed;
pub(crate) use writing::{NotEncoded, OutOfLineValues, change_followed, change_row, insert, insert_staged};

/// Savepoints for which a session keeps room.
const SAVEPOINTS_KEPT: usize = 64;

/// Operations between two checks of their number.
const STRIDE: u32 = 256;
/// Likewise in a procedure, where the clock is looked at only then.
const STRIDE_WITHOUT_CLOCK: u32 = 32;

/// The longest pause between two checks of a wait. Checks need no list of waiters and no call by the holder that
/// releases a lock. They are as fair: a lock with a waiter is reserved.
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

/// What the end of a transaction does beside the decision.
mod ends {
    /// Decisions are queued.
    pub(super) const QUEUED: u8 = 1;
    /// Checks were put off until then.
    pub(super) const CHECKED: u8 = 2;
    /// It is not repaired: its operations have followed references, which its plan may not know.
    pub(super) const LINKED: u8 = 4;
    /// Its writes are not logged.
    pub(super) const UNLOGGED: u8 = 8;
}

/// A transaction. Its operations are those of [`Operations`](crate::Operations).
pub struct TxCore {
    inner: Arc<Inner>,
    /// The type of its worker, unless its operations are recorded.
    pub(crate) compiled: Option<CompiledWorker>,
    /// The worker of the open attempt.
    worker: Cell<Option<NonNull<dyn Worker>>>,
    /// The lease of the open attempt, or of the last one, whose worker is tried first.
    lease: Cell<Option<Lease>>,
    /// The outcome of repairs since the last [`TxCore::take_conflict_seen`].
    conflict_seen: Cell<ConflictSeen>,
    /// The slot of the worker that the session tries first.
    first_slot: usize,
    mode: Cell<Mode>,
    explicit: Cell<bool>,
    /// The parking of an open explicit transaction.
    parking: RefCell<Option<Arc<Parking>>>,
    /// Whether an explicit transaction is in a call.
    calling: Cell<bool>,
    /// The number of its session.
    session: usize,
    /// The row locks of an explicit transaction, also if its attempt is begun anew.
    row_locks: RefCell<Option<Arc<Owner>>>,
    /// The rows that an explicit transaction gave out.
    kept: RefCell<Kept>,
    /// Whether it excludes chains of pieces.
    gated: Cell<bool>,
    /// The session runs a call of an executor: no transaction clears its cancellation.
    in_call: Cell<bool>,
    turn: Cell<Turn>,
    /// Whether the protocol takes read-write transactions, and read-only ones, without a plan.
    unplanned: [bool; 2],
    /// Whether the protocol publishes procedures piece by piece, and whether it uses priorities.
    pieces: bool,
    priorities: bool,
    /// Whether the database has no log, history, queue, gate or tracker of contention, and its protocol uses neither
    /// pieces, priorities nor older snapshots. Then a read-write transaction only begins, commits and leaves.
    is_plain: bool,
    /// What its end does beside the decision: bits of [`ends`].
    ends: Cell<u8>,
    attempt: Cell<u32>,
    /// The priority of the transaction in all its attempts; none before the first.
    priority: Cell<Priority>,
    /// The procedure's number in the contention tracker.
    procedure: Cell<u32>,
    stopped: Cell<Option<Cause>>,
    /// Whether the attempt left more than every attempt does, for the next to take away: see [`TxCore::tidy`].
    pub(crate) is_untidy: Cell<bool>,
    /// Set while the closure of an update runs: the operations that are left afterwards until the next check.
    updating: Cell<Option<u32>>,
    /// The worker is ending the attempt. If that panics, the worker is not used again.
    ending: Cell<bool>,
    /// Operations between two checks of their bound: in procedures, and in other transactions.
    strides: [u32; 2],
    /// The one of these that holds, and the operations until the next check.
    stride: Cell<u32>,
    left: Cell<u32>,
    operations: Cell<u32>,
    /// The clock that the ticker advances.
    clock: Arc<CoarseClock>,
    /// When the attempt is too old.
    deadline: Deadline,
    /// The bounds of later attempts, and those under which the last one was opened.
    bounds: Cell<Bounds>,
    opened: Cell<Bounds>,
    /// Whether accesses are recorded, to be checked against a plan; and the recorded ones.
    pub(crate) watching: Cell<bool>,
    pub(crate) accessed: RefCell<Vec<Accessed>>,
    /// The rows that the attempt replaced, if they are noted; the transaction is then also watched.
    pub(crate) undo: RefCell<Option<Undo>>,
    /// What is left to do of its references.
    pending: Box<references::Pending>,
    /// Whether procedures prefetch.
    prefetching: Cell<bool>,
    /// The epoch that must be durable before a result of the transaction is returned.
    dependency: Cell<CommitDependency>,
    /// The hold of a snapshot that shows the durable epoch while the disk is behind.
    hold: Cell<Option<Hold>>,
    /// What the session's next snapshot must show, if snapshots may be older than the present.
    pub(crate) freshness: Option<SessionFreshness>,
    /// A text that did not fit a log entry: its table, its bytes, the most permitted.
    pub(crate) too_large: RefCell<Option<(String, usize, usize)>>,
    /// Why the log did not accept the commit.
    refusal: Cell<Option<StorageError>>,
    pub(crate) log: Option<RefCell<Log>>,
    /// The run of a clustered table that was changed last.
    pub(crate) open_run: OpenRun,
    pub(crate) scratch: Scratch,
    /// The rows of earlier layouts that the attempt has read.
    pub(crate) converted: RefCell<ConvertedRows>,
    /// How often the transaction has moved rows out of earlier layouts, or rolled writes back.
    pub(crate) conversions: Cell<u64>,
    /// The sequence for a number of which the attempt stopped.
    awaited: RefCell<Option<Arc<Sequence>>>,
    /// How many numbers of sequences the attempt has taken.
    numbers: Cell<u64>,
    /// Savepoints that can be rolled back to.
    savepoints: RefCell<Vec<(u64, Position)>>,
    /// The changes of tables of an explicit transaction.
    changes: RefCell<Option<Box<Changes>>>,
    /// Of an explicit transaction whose place may be where it begins: how often the other workers were leased then.
    begun: RefCell<Vec<(u32, bool)>>,
    /// When an operation was refused because its table was being changed, and how often since.
    refused: Cell<Option<(Instant, u32)>>,
    /// Scans to reuse.
    #[expect(clippy::vec_box, reason = "a scan is large and changes hands: the box moves, not the scan")]
    pub(crate) scans: RefCell<Vec<Box<seriatim_txn::Scan>>>,
}

// SAFETY: between transactions the cells hold no pointer. During one, the worker and its data may move with the
// `TxCore`: workers are `Send`, and no other thread uses a leased one (access rule 1).
unsafe impl Send for TxCore {}

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

    /// Keeps a row; returns its address.
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

/// The kind of caller that opens a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A closure.
    Closure,
    /// A caller that ends it explicitly.
    Explicit,
    /// A registered procedure.
    Procedure,
}

/// How a transaction runs that was refuted many times. One transaction of a database has the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    None,
    /// Its attempts lock what they access, after this number of failed ones.
    Locking { since: u32 },
    /// No other transaction that may write begins.
    Exclusive,
}

/// A position in a transaction, for the worker and for the log.
#[derive(Clone, Copy)]
struct Position {
    savepoint: WorkerSavepoint,
    logged: usize,
    /// Rows that were locked.
    locked: usize,
}

/// A position in a transaction to roll back to: see [`TxCore::savepoint`].
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    /// Unique among all savepoints of all transactions.
    serial: u64,
}

/// Lifecycle and plumbing.
impl TxCore {
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

    /// The gate that excludes chains of pieces and other transactions from each other, if procedures run in pieces.
    pub fn gate(&self) -> Option<Arc<Gate>> {
        self.inner.gate.clone()
    }

    /// The leased worker.
    ///
    /// # Panics
    /// Outside a transaction, which no public path reaches.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) fn worker(&self) -> &mut (dyn Worker + 'static) {
        debug_assert!(!self.explicit.get() || self.calling.get(), "access rule 4");
        let mut worker = self.worker.get().expect("operations run inside a transaction");
        // SAFETY: access rule 1.
        unsafe { worker.as_mut() }
    }

    /// Called before an operation: refuses it if the transaction has stopped, or is over. Without a look at the clock,
    /// an attempt of a procedure is found to be over within [`STRIDE_WITHOUT_CLOCK`] operations.
    #[inline(always)]
    pub(crate) fn count_operation(&self, looks_at_clock: bool) -> Result<(), Abort> {
        let left = self.left.get();
        if left == 0 || looks_at_clock && self.is_over() {
            return self.check();
        }
        self.left.set(left - 1);
        Ok(())
    }

    /// Runs an operation that may do nothing, and counts it if it does something; not if the count has run out.
    #[inline(always)]
    pub(crate) fn count_if_some<R>(&self, operation: impl FnOnce() -> Option<R>) -> Option<R> {
        if self.left.get() == 0 {
            return None;
        }
        let result = operation()?;
        self.left.set(self.left.get() - 1);
        Some(result)
    }

    /// The result of an operation of a procedure: `None` if it found no row, or was refused. In the latter case the
    /// count has run out, and the next operation is refused alike.
    #[inline(always)]
    pub(crate) fn found<R>(&self, row: Option<R>) -> Result<Option<R>, Abort> {
        if row.is_none() && self.left.get() == 0 {
            self.check()?;
        }
        Ok(row)
    }

    /// The next attempt waits for a number of this sequence.
    #[cold]
    pub(crate) fn awaits(&self, sequence: Arc<Sequence>) {
        self.awaited.replace(Some(sequence));
    }

    /// The attempt has taken a number.
    pub(crate) fn took_number(&self) {
        self.numbers.set(self.numbers.get() + 1);
        self.is_untidy.set(true);
    }

    /// Waits for numbers of the sequence for which the attempt stopped: for more than it took, and for the more, the
    /// more `attempts` there were. Others may take them, too. The attempt has ended.
    ///
    /// # Errors
    /// They could not be reserved.
    pub(crate) fn refill_awaited(&self, attempts: u32) -> Result<(), TransactError> {
        let least = (1 << (attempts - 1).min(16)).max(self.numbers.get() << attempts.min(4));
        let awaited = self.awaited.take();
        awaited.map_or(Ok(()), |sequence| self.inner.refill(&sequence, least))
    }

    #[cold]
    pub(crate) fn retry_or_stop<R>(
        &self,
        mut stop: OpError,
        mut operation: impl FnMut() -> Result<R, OpError>,
    ) -> Result<R, Abort> {
        let mut waiting = Waiting::default();
        loop {
            match stop {
                OpError::Abort(cause) => return Err(self.stop(cause)),
                OpError::Wait => {
                    self.wait(&mut waiting, Phase::Execute).map_err(|cause| self.stop(cause))?;
                    match operation() {
                        Ok(result) => return Ok(result),
                        Err(next) => stop = next,
                    }
                }
            }
        }
    }

    /// Waits for one step for another transaction; the cause if the wait has lasted too long (promise d).
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

    /// Stops the transaction. The first cause counts.
    pub fn stop(&self, cause: Cause) -> Abort {
        let cause = self.stopped.get().unwrap_or(cause);
        self.stopped.set(Some(cause));
        self.is_untidy.set(true);
        // From now on every operation goes through `check`.
        self.left.set(0);
        self.new_abort(AbortKind::Stopped(cause))
    }

    /// As [`TxCore::stop`], for another cause than the one for which it has stopped.
    pub(crate) fn stop_instead(&self, cause: Cause) -> Abort {
        self.stopped.set(None);
        self.stop(cause)
    }

    /// An abort of this kind. For an explicit transaction it carries the complete error: no session can
    /// complete it later.
    #[cold]
    fn new_abort(&self, kind: AbortKind) -> Abort {
        let abort = Abort::new(kind);
        if self.explicit.get() { Abort::explained(kind, self.error_of(&abort)) } else { abort }
    }

    /// Whether the attempt is too old by the ticker's clock, or was cancelled.
    #[inline(always)]
    fn is_over(&self) -> bool {
        self.deadline.is_over(self.clock.now())
    }

    /// An abort that is an item of an iterator. A caller that counts or filters items does not check it, so it
    /// ends the transaction.
    #[cold]
    pub(crate) fn end_with(&self, abort: Abort) -> Abort {
        match (self.stopped.get(), abort.cause()) {
            (None, Some(cause)) => self.stop(cause),
            _ => abort,
        }
    }

    /// The slow path of `operate`, for transactions that are stopped, inside their own update, old or long.
    #[cold]
    fn check(&self) -> Result<(), Abort> {
        if let Some(cause) = self.stopped.get() {
            return Err(self.new_abort(AbortKind::Stopped(cause)));
        }
        if self.updating.get().is_some() {
            return Err(Abort::stopped(Reason::Reentered));
        }
        let inner = &self.inner;
        if self.is_over() {
            return Err(self.stop(self.deadline.cause()));
        }
        let stride = self.stride.get();
        let operations = self.operations.get().saturating_add(stride + 1);
        self.operations.set(operations);
        self.is_untidy.set(true);
        if operations >= inner.options.operations_max {
            self.operations.set(0);
            self.validate().map_err(|cause| self.stop(cause))?;
        }
        self.left.set(stride);
        Ok(())
    }

    /// Sets the bounds of later attempts.
    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        self.bounds.set(bounds);
        self.is_untidy.set(true);
    }

    /// Begins a call; dropping the result ends it. Within a call no other thread ends an explicit transaction.
    /// Closures and procedures need no calls. Calls nest.
    ///
    /// # Errors
    /// The transaction was ended between its calls.
    #[inline]
    pub(crate) fn call(&self) -> Result<Call<'_>, Abort> {
        match self.explicit.get() && !self.calling.get() {
            true => self.call_explicit(),
            false => Ok(Call(None)),
        }
    }

    /// Runs operations of an explicit transaction as one call.
    ///
    /// # Errors
    /// Those of `act`; the transaction was ended between its calls.
    pub fn in_one_call<R>(&self, act: impl FnOnce() -> Result<R, Abort>) -> Result<R, Abort> {
        let _call = self.call()?;
        act()
    }

    #[cold]
    fn call_explicit(&self) -> Result<Call<'_>, Abort> {
        if !self.inner.process.is_current() {
            return Err(self.stop(FORKED));
        }
        let parking = self.parking.borrow().clone();
        match parking {
            Some(parking) if parking.enter() => {
                self.calling.set(true);
                Ok(Call(Some(self)))
            }
            _ => {
                // The transaction was ended while it was parked: worker and gate do not belong to it any more.
                self.parking.take();
                self.worker.set(None);
                self.gated.set(false);
                Err(self.stop(self.stopped.get().unwrap_or_else(|| self.deadline.cause())))
            }
        }
    }

    /// A row for the caller, valid until the transaction ends.
    #[inline]
    pub(crate) fn lend(&self, set: &TableSet, row: RowPtr) -> Result<RowPtr, Abort> {
        if self.explicit.get() { self.keep(set, row) } else { Ok(row) }
    }

    /// A row for the caller, valid until `shown`, which may hold a copy, is used again.
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
        // SAFETY: a row of this table, readable during the call that read it.
        unsafe { KeptRow::new(RowRef::from_raw(row.as_ptr()), &set.layout) }
    }

    #[cold]
    fn keep(&self, set: &TableSet, row: RowPtr) -> Result<RowPtr, Abort> {
        let copy = self.kept.borrow_mut().push(Self::copy(set, row));
        copy.ok().and_then(|copy| RowPtr::new(copy.cast_mut())).ok_or_else(|| self.out_of_memory())
    }

    /// Frees the rows that an explicit transaction gave out.
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

    /// Whether the table admits operations of this transaction.
    ///
    /// # Errors
    /// It is being changed, or is gone.
    #[inline(always)]
    pub(crate) fn admits(&self, set: &TableSet) -> Result<(), Abort> {
        match set.refusal() {
            None => Ok(()),
            Some(reason) => self.admits_now(set, reason),
        }
    }

    /// The index of the table at this position.
    ///
    /// # Errors
    /// It was dropped.
    #[inline(always)]
    pub(crate) fn index<'h>(&self, set: &'h TableSet, at: usize) -> Result<&'h Secondary, Abort> {
        let gone = || self.stop(Cause { phase: Phase::Execute, reason: Reason::TableGone });
        set.indexes.get(at).map(|index| &**index).ok_or_else(gone)
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

    /// The row at the encoded key of an entry of the unique index at this position.
    #[inline]
    pub(crate) fn read_by(
        &self,
        set: &TableSet,
        at: usize,
        key: Key<'_>,
        columns: ColumnSet,
    ) -> Result<Option<RowPtr>, Abort> {
        self.admits(set)?;
        let secondary = self.index(set, at)?;
        debug_assert!(secondary.is_unique(), "the callers know it: by the type of a handle, or from the plan");
        let Some(entry) = read(self, &secondary.table, key, ColumnSet::ALL)? else { return Ok(None) };
        // SAFETY: an entry of an index of this table, readable until the transaction ends.
        let primary = unsafe { crate::index::read_primary(entry, set.primary.class) };
        self.read_row(set, primary, columns)
    }

    /// Whether what was read holds together; what is undecided does not count as held (promise g).
    ///
    /// # Errors
    /// Why not.
    pub fn validate(&self) -> Result<(), Cause> {
        self.stopped.get().map_or_else(|| self.validate_reads(), Err)
    }

    /// As [`TxCore::validate`], also of a transaction that has stopped for another reason than a conflict.
    pub(crate) fn validate_reads(&self) -> Result<(), Cause> {
        let _call = self.call().map_err(|abort| abort.cause().unwrap_or(TOO_OLD))?;
        match self.worker().validate() {
            Ok(()) => Ok(()),
            Err(OpError::Abort(cause)) => Err(cause),
            Err(OpError::Wait) => Err(Cause { phase: Phase::Validate, reason: Reason::RecordLocked }),
        }
    }

    /// Why an attempt ends whose body returned this abort; `None` if by the body's own wish. After a conflict nothing
    /// that the body returned is certain (promise g). Any other abort stands for its own cause.
    pub fn cause_of(&self, abort: &Abort) -> Option<Cause> {
        let is_void = |cause: &Cause| cause.reason.is_conflict() || cause.reason == Reason::Forked;
        self.stopped.get().filter(is_void).or(abort.cause())
    }

    /// Whether the open attempt may not write.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mode.get() == Mode::ReadOnly
    }

    /// Why the transaction stopped, if it did.
    pub(crate) fn stopped(&self) -> Option<Cause> {
        self.stopped.get()
    }
}

/// Reading.
impl TxCore {
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
        let _call = enter(self, set)?;
        let row = self.read_by(set, at, key, columns)?;
        let access = self.watch(Kind::Get, set, Target::Index(at), || watch::one(key));
        self.watch_row(access, row.map(|row| row.as_ptr().cast_const()), ColumnSet::EMPTY);
        row.map(|row| self.lend(set, row)).transpose()
    }

    /// Whether procedures prefetch the rows that their arguments name.
    #[inline]
    pub fn prefetching(&self) -> bool {
        self.prefetching.get()
    }

    /// Sets whether procedures prefetch.
    pub fn set_prefetching(&self, wanted: bool) {
        self.prefetching.set(wanted);
    }

    /// Whether there is a row at an encoded key.
    ///
    /// # Errors
    /// A conflict; a handle of another database.
    pub fn exists_at(&self, set: &TableSet, key: Key<'_>) -> Result<bool, Abort> {
        let _call = enter(self, set)?;
        // Unlike `get_at`, it lends nothing that an explicit transaction would copy.
        Ok(self.read_row(set, key, ColumnSet::EMPTY)?.is_some())
    }

    /// The first wave of a prefetch of the rows with these keys into the processor's cache. Only a hint.
    #[inline]
    pub fn begin_prefetch<K: TableKey>(&self, set: &TableSet, keys: impl IntoIterator<Item = K>) {
        if let Ok(_call) = enter(self, set) {
            keys.into_iter().for_each(|key| key.encode(|key| self.prefetch_at(set, key, ColumnSet::ALL)));
        }
    }

    /// The next of two waves of all prefetches that [`TxCore::begin_prefetch`] began in this transaction. Other
    /// work between the waves hides the latency.
    #[inline]
    pub fn advance_prefetch(&self) {
        if let Ok(_call) = self.call() {
            self.worker().advance_prefetch();
        }
    }

    /// What `get` returns for each of these keys. Before, `begin` gives the encoded key to the prefetch, for many keys
    /// at a time.
    ///
    /// # Errors
    /// Those of `get`.
    pub fn in_waves<K, R>(
        &self,
        set: &TableSet,
        keys: &[K],
        begin: impl Fn(&K, &mut dyn FnMut(Key<'_>)),
        mut get: impl FnMut(&K) -> Result<R, Abort>,
    ) -> Result<Vec<R>, Abort> {
        /// Keys of a wave: enough to hide the latency, and their lines stay in the first cache until they are read.
        const WAVE: usize = 64;
        let mut rows = Vec::with_capacity(keys.len());
        for wave in keys.chunks(WAVE) {
            if let Ok(_call) = enter(self, set) {
                wave.iter().for_each(|key| begin(key, &mut |key| self.prefetch_at(set, key, ColumnSet::ALL)));
            }
            self.advance_prefetch();
            self.advance_prefetch();
            for key in wave {
                rows.push(get(key)?);
            }
        }
        Ok(rows)
    }

    /// Notices a cancellation or an age that is exceeded between operations.
    ///
    /// # Errors
    /// It was cancelled, or is too old.
    pub fn check_bounds(&self) -> Result<(), Abort> {
        let _call = self.call()?;
        self.check()
    }

    /// How often the body was run in this transaction; 1 the first time.
    pub fn attempt(&self) -> u32 {
        self.attempt.get()
    }

    /// An abort that carries the body's own error. It is reported as
    /// [`TransactError::User`](crate::TransactError::User) once the body's reads are known to be consistent; an
    /// explicit transaction validates them now. A transaction that has stopped returns its own reason instead.
    pub fn abort(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Abort {
        let own = || Abort::explained(AbortKind::User, TransactError::User(error.into().into()));
        match self.stopped.get() {
            Some(cause) => self.new_abort(AbortKind::Stopped(cause)),
            None if self.explicit.get() => self.about(own),
            None => own(),
        }
    }
}

/// Writing.
impl TxCore {
    /// The transaction of the session with this number.
    pub(crate) fn new(inner: Arc<Inner>, number: usize) -> TxCore {
        let log = inner.recording().map(|recording| RefCell::new(Log::new(recording.recorder(), number as u32)));
        let ProtocolInfo { requirements, capabilities, .. } = *inner.protocol.info();
        let (freshness, bounds) = (SessionFreshness::of(&inner), TransactionOptions::default().bounds(&inner));
        let is_observed = log.is_some() || inner.persistence.is_some() || inner.contention.is_some();
        let is_ordered = inner.queue.is_some() || inner.gate.is_some() || freshness.is_some();
        let is_plain = !is_observed && !is_ordered && !capabilities.pieces && !capabilities.priorities;
        TxCore {
            // A recorded history needs every operation.
            compiled: log.is_none().then(|| CompiledWorker::of(inner.protocol.worker_type())),
            worker: Cell::new(None),
            lease: Cell::new(None),
            conflict_seen: Cell::default(),
            first_slot: number % inner.options.workers,
            mode: Cell::new(Mode::ReadWrite),
            explicit: Cell::new(false),
            parking: RefCell::default(),
            calling: Cell::new(false),
            session: number,
            row_locks: RefCell::default(),
            kept: RefCell::new(Kept::new(inner.environment.memory.charge())),
            gated: Cell::new(false),
            in_call: Cell::new(false),
            turn: Cell::default(),
            unplanned: [!requirements.plan, !requirements.plan || capabilities.snapshots != Freshness::None],
            pieces: capabilities.pieces,
            priorities: capabilities.priorities,
            is_plain,
            ends: Cell::new(if inner.queue.is_some() { ends::QUEUED } else { 0 }),
            attempt: Cell::new(0),
            priority: Cell::default(),
            procedure: Cell::new(AD_HOC),
            stopped: Cell::new(None),
            is_untidy: Cell::new(true),
            updating: Cell::new(None),
            ending: Cell::new(false),
            strides: [STRIDE_WITHOUT_CLOCK, STRIDE].map(|stride| stride.min(inner.options.operations_max)),
            stride: Cell::new(STRIDE),
            left: Cell::new(0),
            operations: Cell::new(0),
            clock: Arc::clone(&inner.clock),
            deadline: Deadline::default(),
            bounds: Cell::new(bounds),
            opened: Cell::new(bounds),
            watching: Cell::new(false),
            accessed: RefCell::default(),
            undo: RefCell::default(),
            pending: Box::default(),
            prefetching: Cell::new(inner.options.prefetch),
            dependency: Cell::default(),
            hold: Cell::default(),
            freshness,
            too_large: RefCell::default(),
            refusal: Cell::default(),
            log,
            open_run: OpenRun::default(),
            scratch: Scratch::new(),
            converted: RefCell::new(ConvertedRows::new(inner.environment.memory.charge())),
            conversions: Cell::new(0),
            awaited: RefCell::default(),
            numbers: Cell::new(0),
            savepoints: RefCell::new(Vec::new()),
            changes: RefCell::default(),
            begun: RefCell::default(),
            refused: Cell::default(),
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
        count(self)?;
        let position = self.position();
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        self.savepoints.borrow_mut().push((serial, position));
        if let Some(changes) = &mut *self.changes.borrow_mut() {
            changes.save(serial);
        }
        self.is_untidy.set(true);
        Ok(Savepoint { serial })
    }

    /// Undoes every write and every change of tables since the savepoint, which stays valid, and releases the row locks
    /// taken since. Later savepoints become invalid. Reads are not undone.
    ///
    /// # Errors
    /// The transaction has stopped; or the savepoint is invalid, or belongs to another transaction.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        let _call = self.call()?;
        let mut savepoints = self.savepoints.borrow_mut();
        let Some(at) = savepoints.iter().position(|(serial, _)| *serial == savepoint.serial) else {
            return Err(self.abort("the savepoint is gone: it was rolled back, or belongs to another transaction"));
        };
        let (_, position) = savepoints[at];
        self.rollback_writes(position)?;
        self.unlock_rows_from(position.locked);
        savepoints.truncate(at + 1);
        self.restore_changes(savepoint.serial);
        Ok(())
    }

    fn position(&self) -> Position {
        self.open_run.forget();
        let logged = self.log.as_ref().map_or(0, |log| log.borrow().savepoint());
        Position { savepoint: self.worker().savepoint(), logged, locked: self.rows_locked() }
    }

    /// Undoes every write since the position.
    fn rollback_writes(&self, position: Position) -> Result<(), Abort> {
        self.open_run.forget();
        self.conversions.set(self.conversions.get() + 1);
        self.pending.rolled_back();
        operate(self, |worker| {
            worker.rollback_to(position.savepoint);
            Ok(())
        })?;
        if let Some(log) = &self.log {
            log.borrow_mut().rollback_to(position.logged);
        }
        Ok(())
    }
}

/// A call of an explicit transaction; `None` for others.
pub(crate) struct Call<'t>(Option<&'t TxCore>);

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        // A worker that panicked while it ended the transaction is not used, and no other thread may end it.
        if let Some(tx) = self.0.filter(|tx| !tx.ending.get()) {
            cold_path();
            if let Some(parking) = &*tx.parking.borrow() {
                parking.leave(tx.worker().core().local.live_bytes());
            }
            tx.calling.set(false);
        }
    }
}
