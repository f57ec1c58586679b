//! Begins attempts: a worker is leased, and returned at the end.

use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{Epoch, Hold, thread};
use seriatim_htm::RegionStatistics;
use seriatim_txn::{Fault, Mode, PartitionSet, Priority, Runs};

use crate::contention::AD_HOC;
use crate::durability::refused;
use crate::engine::Attention;
use crate::error::TransactError;
use crate::freshness::{ALL, Measure, SessionFreshness};
use crate::options::Bounds;
use crate::parking::Parking;
use crate::pool::Lease;
use crate::procedure::gate::Gate;
use crate::procedure::repair::ConflictSeen;
use crate::runner::LOCKING_ATTEMPTS;

use super::{Origin, SAVEPOINTS_KEPT, Turn, TxCore, WAIT_PAUSE_MAX, ends};

/// How long a transaction waits to begin while another runs exclusively.
const EXCLUSIVE_WAIT_MAX: Duration = if cfg!(test) { Duration::from_millis(5) } else { Duration::from_secs(1) };

impl TxCore {
    /// Opens an attempt. `origin` says what kind of caller opens it.
    ///
    /// # Errors
    /// Every worker is busy; for a snapshot, the disk is behind or full.
    pub fn open(&mut self, mode: Mode, attempt: u32, origin: Origin) -> Result<(), TransactError> {
        self.open_or_wait(mode, attempt, origin, true)
    }

    /// As [`TxCore::open`], for an explicit transaction that a cancellation has perhaps ended already.
    ///
    /// # Errors
    /// As [`TxCore::open`].
    pub(crate) fn open_again(&mut self, mode: Mode) -> Result<(), TransactError> {
        let before = self.in_call.replace(true);
        let opened = self.open(mode, 1, Origin::Explicit);
        self.in_call.set(before);
        opened
    }

    /// As [`TxCore::open`]. Without `wait` it returns an error at once if no worker is free, and the attempt
    /// does not wait for held transactions.
    #[inline(always)]
    pub(crate) fn open_or_wait(
        &mut self,
        mode: Mode,
        attempt: u32,
        origin: Origin,
        wait: bool,
    ) -> Result<(), TransactError> {
        // A transaction that was leaked instead of dropped is still open: a session has one at a time.
        if self.is_open() {
            cold_path();
            self.roll_back(None);
        }
        self.explicit.set(false);
        match self.enter(mode, origin, wait) {
            Ok(lease) => {
                self.begin(lease, mode, attempt, origin, wait);
                Ok(())
            }
            Err(error) => {
                cold_path();
                self.end_turn();
                Err(error)
            }
        }
    }

    #[inline(always)]
    fn enter(&self, mode: Mode, origin: Origin, wait: bool) -> Result<Lease, TransactError> {
        if mode == Mode::ReadOnly {
            self.wait_until_near()?;
        }
        if self.inner.attention.is_asked() {
            self.attend(mode, wait)?;
        }
        self.lease(origin, wait)
    }

    /// Waits while a transaction of another session runs exclusively, and while somebody waits until no transaction is
    /// open. Then reserves numbers of sequences that run low.
    ///
    /// # Errors
    /// Another transaction runs exclusively for longer than [`EXCLUSIVE_WAIT_MAX`]. Or at once, if this is not to
    /// `wait`.
    #[cold]
    fn attend(&self, mode: Mode, wait: bool) -> Result<(), TransactError> {
        let inner = &self.inner;
        inner.check_process().map_err(|_| TransactError::Forked)?;
        let began = Instant::now();
        loop {
            let other = mode == Mode::ReadWrite && self.turn.get() != Turn::Exclusive;
            let is_excluded = other && inner.attention.is(Attention::EXCLUSIVE);
            if !is_excluded && !inner.attention.wants_quiet() {
                break;
            }
            if !wait {
                return Err(TransactError::WorkersBusy);
            }
            if began.elapsed() >= EXCLUSIVE_WAIT_MAX {
                if is_excluded {
                    return Err(TransactError::Excluded { by: "transactions that were refused many times" });
                }
                break;
            }
            thread::sleep(WAIT_PAUSE_MAX);
        }
        if inner.attention.end(Attention::SEQUENCES) {
            inner.sequences.reserve_ahead(inner);
        }
        Ok(())
    }
}

impl TxCore {
    /// Before a snapshot that would end an epoch: waits while epochs are far.
    ///
    /// # Errors
    /// The disk is behind, or full, and no existing snapshot shows what this one must show.
    #[inline]
    fn wait_until_near(&self) -> Result<(), TransactError> {
        let (Some(freshness), Some(persistence)) = (&self.freshness, &self.inner.persistence) else { return Ok(()) };
        let epochs = &self.inner.environment.epochs;
        if !freshness.is_durable() || !epochs.are_far() {
            return Ok(());
        }
        cold_path();
        self.inner.check_process().map_err(|_| TransactError::Forked)?;
        let lacks = || freshness.wanted(self.bounds.get().own_commits) >= epochs.current().0;
        let makes = epochs.snapshots().are_made_by_readers() || lacks();
        match if makes { persistence.wait_until_near() } else { Ok(()) } {
            Err(error) if lacks() => Err(refused(error)),
            _ => Ok(()),
        }
    }
}

impl TxCore {
    /// The transaction was refuted in `attempts` attempts. It takes the turn, unless another transaction has it: later
    /// attempts lock what they access ([`Worker::reserve_next`]). After [`LOCKING_ATTEMPTS`] of these it runs
    /// exclusively: no transaction that may write begins meanwhile. Each open transaction ends at most once,
    /// so this one then fails at most as often as there are workers. Chains of pieces, which must continue, have a gate
    /// of their own.
    #[cold]
    pub(crate) fn take_turn(&self, attempts: u32) {
        match self.turn.get() {
            Turn::None if self.inner.gate.is_none() && !self.inner.is_turn_taken.swap(true, Ordering::Acquire) => {
                self.turn.set(Turn::Locking { since: attempts });
            }
            Turn::Locking { since } if attempts - since >= LOCKING_ATTEMPTS => {
                self.inner.attention.ask(Attention::EXCLUSIVE);
                self.turn.set(Turn::Exclusive);
            }
            _ => {}
        }
    }

    /// Whether the transaction has the turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.turn.get() != Turn::None
    }

    /// Ends the turn, if the transaction has it.
    #[cold]
    pub fn end_turn(&self) {
        match self.turn.replace(Turn::None) {
            Turn::None => return,
            Turn::Locking { .. } => {}
            Turn::Exclusive => drop(self.inner.attention.end(Attention::EXCLUSIVE)),
        }
        // ORDERING: the next transaction with the turn finds no lock of this one.
        self.inner.is_turn_taken.store(false, Ordering::Release);
    }

    /// The number of attempts that the transaction has beyond the retry policy.
    pub(crate) fn more_attempts(&self) -> u32 {
        let workers = u32::try_from(self.inner.options.workers).unwrap_or(u32::MAX);
        if self.turn.get() == Turn::Exclusive { workers } else { 0 }
    }

    /// A worker of the pool, through the gate. A type compiled for its protocol takes it from behind `dyn`.
    #[inline(always)]
    pub(super) fn lease(&self, origin: Origin, wait: bool) -> Result<Lease, TransactError> {
        let inner = &self.inner;
        if !inner.process.is_current() {
            cold_path();
            return Err(TransactError::Forked);
        }
        let Some(gate) = &inner.gate else { return self.lease_worker(wait) };
        cold_path();
        loop {
            // The gate comes first: a transaction that waits for chains to end must not hold a worker that they need.
            if self.must_enter(origin) {
                gate.enter_other()?;
                self.gated.set(true);
            }
            let lease = self.lease_worker(wait).inspect_err(|_| self.leave_gate())?;
            // The gate may have been armed since: once, before any session could lease this worker.
            if !self.must_enter(origin) {
                return Ok(lease);
            }
            inner.pool.give_back(lease);
        }
    }

    /// The worker of the last attempt if it is free, or another.
    #[inline(always)]
    fn lease_worker(&self, wait: bool) -> Result<Lease, TransactError> {
        let last = self.lease.get();
        match last {
            Some(last) if self.inner.pool.lease_again(last) => Ok(last),
            _ => self.lease_other(last, wait),
        }
    }

    #[cold]
    fn lease_other(&self, last: Option<Lease>, wait: bool) -> Result<Lease, TransactError> {
        let inner = &self.inner;
        let first = last.map_or(self.first_slot, |last| inner.pool.number(last));
        let lease = inner.pool.lease(first, inner.protocol.as_ref(), &inner.environment, wait);
        self.lease.set(lease.or(last));
        lease.ok_or(TransactError::WorkersBusy)
    }

    /// Opens an attempt with this worker.
    #[inline(always)]
    pub(super) fn begin(&self, lease: Lease, mode: Mode, attempt: u32, origin: Origin, waits: bool) {
        let is_plain = self.is_plain && mode == Mode::ReadWrite && origin != Origin::Explicit;
        if is_plain && self.turn.get() == Turn::None {
            self.set_up(lease, mode, attempt, origin);
            self.worker().begin(mode, Priority::NONE);
        } else {
            self.begin_any(lease, mode, attempt, origin, waits);
        }
    }

    /// The part of [`TxCore::begin`] that every attempt needs.
    #[inline(always)]
    fn set_up(&self, lease: Lease, mode: Mode, attempt: u32, origin: Origin) {
        self.worker.set(Some(self.inner.pool.worker(lease)));
        self.mode.set(mode);
        self.attempt.set(attempt);
        if self.is_untidy.get() {
            self.tidy();
        }
        self.open_run.forget();
        let Bounds { age, snapshot_age, .. } = self.bounds.get();
        let age = if mode == Mode::ReadOnly { snapshot_age } else { age };
        self.deadline.set(self.clock.now().saturating_add(age), attempt == 1 && !self.in_call.get());
        let stride = self.strides[usize::from(origin != Origin::Procedure)];
        self.stride.set(stride);
        self.left.set(stride);
    }

    /// As [`TxCore::begin`], for attempts that may need more than others.
    #[inline(never)]
    fn begin_any(&self, lease: Lease, mode: Mode, attempt: u32, origin: Origin, waits: bool) {
        let inner = &self.inner;
        let explicit = origin == Origin::Explicit;
        if mode == Mode::ReadWrite
            && let Some(writer) = inner.pool.writer(lease)
        {
            // Nothing is locked yet. If the wait does not help, the commit reports it, if it has writes.
            // SAFETY: the pool's access rule: the writer is of the leased slot; it is used in this call only.
            unsafe { writer.as_ref() }.wait_for_disk();
        }
        self.set_up(lease, mode, attempt, origin);
        if self.priorities && (explicit || self.priority.get() == Priority::NONE) {
            self.priority.set(inner.pool.draw_priority(lease, self.clock.now()));
        }
        if self.turn.get() != Turn::None && !explicit {
            cold_path();
            self.worker().reserve_next();
        }
        if inner.contention.is_some() && origin != Origin::Procedure {
            cold_path();
            self.procedure.set(AD_HOC);
        }
        if mode == Mode::ReadOnly {
            inner.pool.reads(lease, &self.deadline);
        }
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
            Some(freshness) if mode == Mode::ReadOnly => self.begin_bounded(freshness, lease),
            _ => self.worker().begin(mode, self.priority.get()),
        }
        if self.pieces
            && origin == Origin::Procedure
            && let Some(pieces) = self.worker().pieces()
        {
            pieces.follow();
            // After `follow`: a transaction that finds this set's group, but whose worker follows an older set,
            // commits with the windows closed.
            if let Some(log) = &self.log {
                log.borrow_mut().follow(&inner.groups);
            }
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
            if !self.is_ordered_at_commit() {
                *self.begun.borrow_mut() = inner.pool.leases(lease);
            }
            self.park(inner.pool.number(lease));
        }
    }

    /// Removes everything that an attempt left, and takes over bounds that were set since.
    #[cold]
    fn tidy(&self) {
        self.is_untidy.set(false);
        self.opened.set(self.bounds.get());
        self.operations.set(0);
        self.numbers.set(0);
        self.ending.set(false);
        self.stopped.set(None);
        self.too_large.take();
        self.changes.take();
        self.pending.clear();
        self.converted.borrow_mut().clear();
        self.ends.set(self.ends.get() & ends::QUEUED);
        let mut savepoints = self.savepoints.borrow_mut();
        savepoints.clear();
        savepoints.shrink_to(SAVEPOINTS_KEPT);
    }

    /// Begins with a snapshot that is as fresh as the session requires.
    fn begin_bounded(&self, freshness: &SessionFreshness, lease: Lease) {
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
            let taken = worker.core().taken.take();
            freshness.took(taken);
            let made = taken.map(|taken| taken.made);
            // A snapshot without a time was made for this transaction.
            let age = made.map_or(0, |made| Instant::now().nanoseconds().saturating_sub(made));
            self.inner.pool.counters(lease).snapshot_ages.note(age);
            if let (Some(made), Some(log)) = (made, &self.log) {
                log.borrow_mut().shows_from(made);
            }
        }
    }

    /// Parks an explicit transaction until its first call.
    fn park(&self, slot: usize) {
        self.drop_kept();
        let core = self.worker().core();
        let (live, reaped_in_calls) = (core.local.live_bytes(), core.injects(Fault::ReapInCall));
        let (deadline, snapshot) = (self.deadline.clone(), self.mode.get() == Mode::ReadOnly);
        let parking = Parking::new(deadline, snapshot, self.gated.get(), self.hold.take(), live, reaped_in_calls);
        self.explicit.set(true);
        if let Some(locks) = self.locks_kept() {
            parking.hold_locks(locks);
        }
        self.inner.pool.park(slot, Arc::clone(&parking));
        parking.leave(live);
        *self.parking.borrow_mut() = Some(parking);
    }

    /// Unparks an explicit transaction for its last call: no other thread ends it from now on.
    #[inline]
    pub(super) fn unpark(&self, lease: Lease) {
        if self.explicit.get()
            && let Some(parking) = self.parking.take()
        {
            cold_path();
            self.inner.pool.unpark(self.inner.pool.number(lease));
            parking.release();
        }
    }

    /// Gives the worker of the open attempt back.
    #[inline]
    pub(super) fn close(&self, lease: Lease) {
        self.worker.set(None);
        self.unpark(lease);
        self.inner.pool.give_back(lease);
        if self.mode.get() == Mode::ReadOnly {
            // The worker is offline by now, and reads nothing more.
            drop(self.hold.take());
        }
        self.leave_gate();
    }

    /// Whether transactions of this origin must enter the gate, and this one has not.
    #[inline]
    fn must_enter(&self, origin: Origin) -> bool {
        let armed = self.inner.gate.as_deref().is_some_and(Gate::is_armed);
        armed && origin != Origin::Procedure && !self.gated.get()
    }

    #[inline]
    pub(super) fn leave_gate(&self) {
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

    /// The following accesses belong to this operation of a procedure, for protocols that repair.
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

    /// The worker drops what these runs read and wrote; `again` says whether they will be repeated.
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

    /// The attempt that has begun runs whole. `regions` are counts of an earlier whole attempt, which the
    /// worker adds to its own.
    pub(crate) fn begin_whole(&self, regions: RegionStatistics) {
        if let Ok(_call) = self.call() {
            self.worker().begin_whole(PartitionSet::ALL);
            self.worker().core().agent.count(regions);
        }
    }

    /// The attempt that has begun runs whole in these partitions, `count` in number, which this thread owns.
    pub(crate) fn begin_in(&self, partitions: PartitionSet, count: usize) {
        self.worker().begin_whole(partitions);
        if let Some(lease) = self.open_lease() {
            self.inner.pool.counters(lease).owned(count);
        }
    }

    /// A repair has repeated this many runs of operations.
    pub fn note_repair(&self, runs: u64) {
        let saved = match self.call() {
            Ok(_call) => self.worker().repair().map_or(0, |repair| repair.lookups_saved()),
            Err(_) => 0,
        };
        if let Some(lease) = self.open_lease() {
            self.inner.pool.counters(lease).repaired(runs, saved);
        }
        self.conflict_seen.set(ConflictSeen::Conflict);
    }

    /// Notes that a repair was not made, as it would repeat too much.
    pub(crate) fn refuse_repair(&self) {
        self.conflict_seen.set(ConflictSeen::Refused);
    }

    /// The outcome of the last repair that a commit requested, since the last call.
    #[inline]
    pub fn take_conflict_seen(&self) -> ConflictSeen {
        self.conflict_seen.take()
    }

    /// The records that the runs of an operation accessed: [`seriatim_txn::Repair::touched`].
    pub fn touched(&self, operation: u16, visit: &mut dyn FnMut(u32, Option<usize>)) {
        if let Ok(_call) = self.call()
            && let Some(repair) = self.worker().repair()
        {
            repair.touched(operation, visit);
        }
    }

    /// Whether an attempt is open.
    pub fn is_open(&self) -> bool {
        self.worker.get().is_some()
    }

    /// The lease of the open attempt.
    #[inline]
    pub(super) fn open_lease(&self) -> Option<Lease> {
        self.lease.get().filter(|_| self.is_open())
    }
}
