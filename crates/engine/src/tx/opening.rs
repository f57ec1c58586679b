//! Attempts that begin: a worker is leased, and given back at the end.

use std::hint::cold_path;
use std::sync::Arc;

use seriatim_base::clock::Instant;
use seriatim_base::{Epoch, Hold};
use seriatim_htm::RegionStatistics;
use seriatim_txn::{Fault, Mode, PartitionSet, Priority, Runs, Worker};

use crate::contention::AD_HOC;
use crate::durability::refused;
use crate::error::TransactError;
use crate::freshness::{ALL, Measure, SessionFreshness};
use crate::parking::Parking;
use crate::pool::Lease;
use crate::procedure::gate::Gate;
use crate::procedure::repair::Met;

use super::{Origin, SAVEPOINTS_KEPT, TxCore};

impl TxCore {
    /// Opens an attempt. `origin` says who asks.
    ///
    /// # Errors
    /// When every worker is busy; of a snapshot, that the disk is behind or full.
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
        if mode == Mode::ReadOnly {
            self.wait_until_near()?;
        }
        let lease = self.lease(origin, wait)?;
        self.begin(lease, mode, attempt, origin, wait);
        Ok(())
    }
}

impl TxCore {
    /// Before a snapshot begins that would end an epoch: waits while epochs are far.
    ///
    /// # Errors
    /// The disk is behind, or full, and what is to be shown is in no snapshot that was made.
    #[inline]
    fn wait_until_near(&self) -> Result<(), TransactError> {
        let (Some(freshness), Some(persistence)) = (&self.freshness, &self.inner.persistence) else { return Ok(()) };
        let epochs = &self.inner.environment.epochs;
        if !freshness.is_durable() || !epochs.are_far() {
            return Ok(());
        }
        cold_path();
        let lacks = || freshness.wanted(self.bounds.get().own_commits) >= epochs.current().0;
        let makes = epochs.snapshots().are_made_by_readers() || lacks();
        match if makes { persistence.wait_until_near() } else { Ok(()) } {
            Err(error) if lacks() => Err(refused(error)),
            _ => Ok(()),
        }
    }
}

impl<W: Worker + ?Sized> TxCore<W> {
    /// A worker of the pool, through the gate. One that is compiled for its protocol takes it from behind `dyn`.
    #[inline(always)]
    pub(super) fn lease(&self, origin: Origin, wait: bool) -> Result<Lease, TransactError> {
        let inner = &self.inner;
        if !inner.process.is_current() {
            cold_path();
            return Err(TransactError::Forked);
        }
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
    pub(super) fn begin(&self, lease: Lease<W>, mode: Mode, attempt: u32, origin: Origin, waits: bool) {
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
        let bounds = self.bounds.get();
        let age = if mode == Mode::ReadOnly { bounds.snapshot_age } else { bounds.age };
        let last = self.clock.now().saturating_add(age).saturating_add(inner.clock_resolution);
        self.deadline.set(last, attempt == 1);
        if mode == Mode::ReadOnly {
            inner.pool.reads(lease.slot, &self.deadline);
        }
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
            // Later than that: whoever finds this set's group has its windows closed at the commit if it was told of another.
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
            let taken = worker.core().taken.take();
            freshness.took(taken);
            let made = taken.map(|taken| taken.made);
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
        let (deadline, snapshot) = (self.deadline.clone(), self.mode.get() == Mode::ReadOnly);
        let parking = Parking::new(deadline, snapshot, self.gated.get(), self.hold.take(), reaped_in_calls);
        self.explicit.set(true);
        self.inner.pool.park(slot, Arc::clone(&parking));
        parking.leave();
        *self.parking.borrow_mut() = Some(parking);
    }

    /// An explicit transaction, if it is one, is in its last call: nobody else ends it.
    #[inline]
    pub(super) fn unpark(&self, slot: usize) {
        if let Some(parking) = self.parking.take() {
            cold_path();
            self.inner.pool.unpark(slot);
            parking.release();
        }
    }

    pub(super) fn close(&self) {
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
}
