//! Ends attempts: commits, decisions by other threads, and roll-backs.

use std::hint::cold_path;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::Tid;
use seriatim_redo::Writer;
use seriatim_txn::{Cause, Fault, Mode, NoRedo, OpError, Outcome, Phase, Prepared, Priority, Reason, Redo};

use crate::cancel::Canceller;
use crate::durability::{CommitDependency, CommitLog, Persistence};
use crate::engine::Inner;
use crate::error::{Abort, AbortKind, TransactError};
use crate::parking::FORKED;
use crate::queue::{Queue, Turn};
use crate::runner::Receipt;

use super::{TxCore, Waiting, ends};

/// While this exists, no other transaction is decided.
pub(crate) struct ExclusiveDecision {
    inner: Arc<Inner>,
    turn: u64,
}

impl Drop for ExclusiveDecision {
    fn drop(&mut self) {
        // In a fork another thread may have the queue's lock for ever.
        if let Some(queue) = self.inner.queue.as_ref().filter(|_| self.inner.process.is_current()) {
            queue.release(self.turn);
        }
    }
}

impl TxCore {
    /// Commits; the cause if it cannot. A transaction that stopped cannot commit.
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

    /// As [`TxCore::commit`]; or the runs to repair, with the transaction still open.
    ///
    /// # Errors
    /// The cause.
    #[inline]
    pub fn commit_or_repair(&mut self) -> Result<Outcome, Cause> {
        match self.end()? {
            // Since it was called, a reference was added to its tables.
            Outcome::Repair(_) if self.ends.get() & ends::LINKED != 0 => {
                Err(Cause { phase: Phase::Validate, reason: Reason::RecordChanged })
            }
            outcome => Ok(outcome),
        }
    }

    /// Whether the attempt can be decided.
    #[inline]
    fn executed(&self) -> Result<(), Cause> {
        if let Some(cause) = self.stopped.get() {
            return Err(cause);
        }
        if !self.inner.process.is_current() {
            cold_path();
            return Err(FORKED);
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
        let mut waiting = None;
        loop {
            self.ending.set(true);
            let outcome = if self.ends.get() == 0 { self.decide() } else { self.decide_otherwise() };
            match self.decided(outcome) {
                Ok(outcome) => return Ok(outcome),
                Err(OpError::Wait) => self.wait(waiting.get_or_insert_with(Waiting::default), Phase::Lock)?,
                Err(OpError::Abort(cause)) => return Err(cause),
            }
        }
    }

    /// As [`TxCore::decide`], after the checks that were put off, or in a queue.
    #[cold]
    fn decide_otherwise(&self) -> Result<Outcome, OpError> {
        if self.ends.get() & ends::CHECKED != 0 {
            // Until they are made, it goes on as any transaction.
            self.ending.set(false);
            self.check_deferred().map_err(OpError::Abort)?;
            self.ending.set(true);
        }
        if self.ends.get() & ends::UNLOGGED != 0 {
            return self.decide_unlogged();
        }
        if self.is_queued() { self.decide_queued() } else { self.decide() }
    }

    /// Later snapshots of the session show what the transaction did, and what it read and may reveal.
    #[inline]
    fn note_done(&self) {
        if let Some(freshness) = &self.freshness {
            let moved = freshness.did(self.mode.get(), self.dependency.get().epoch(), || self.worker().place());
            if let Some(log) = self.log.as_ref().filter(|_| moved) {
                log.borrow_mut().was_shown();
            }
        }
    }

    /// Called after the decision: closes the transaction if it commits.
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
            if let Some(lease) = self.open_lease() {
                self.inner.pool.counters(lease).committed();
                self.close(lease);
            }
            self.inner.environment.epochs.end_if_late(&self.inner.environment.htm, tid);
        }
        outcome
    }

    /// Later transactions are not held, and their decisions are not queued.
    pub(crate) fn ignore_queue(&self) {
        self.ends.set(self.ends.get() & !ends::QUEUED);
    }

    /// The open transaction is not logged: a recovery restores the same rows without it.
    pub(crate) fn ignore_log(&self) {
        self.is_untidy.set(true);
        self.ends.set(self.ends.get() | ends::UNLOGGED);
    }

    /// Later transactions are in no recorded history.
    pub(crate) fn ignore_history(&mut self) {
        self.log = None;
    }

    /// Whether the open attempt is held, and its decision queued.
    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        self.ends.get() & ends::QUEUED != 0 && !self.has_lost_patience()
    }

    #[cold]
    fn has_lost_patience(&self) -> bool {
        let restarts = self.attempt.get().saturating_sub(1);
        self.inner.queue.as_ref().is_some_and(|queue| queue.has_lost_patience(restarts))
    }

    /// Called when the attempt has begun and has read nothing. If it was refused too often, no other
    /// transaction is decided until the result is dropped.
    #[inline]
    pub(crate) fn decide_exclusively(&self) -> Option<ExclusiveDecision> {
        // A read-only transaction is not queued; it validates, and others may change what it has read in any case.
        if self.ends.get() & ends::QUEUED == 0 || !self.has_lost_patience() {
            return None;
        }
        let turn = self.inner.queue.as_ref()?.hold();
        Some(ExclusiveDecision { inner: Arc::clone(&self.inner), turn })
    }

    /// The input of the queue for the executed transaction; `None` if its decision is not queued.
    ///
    /// # Errors
    /// A conflict that is already certain.
    pub(crate) fn prepare(&self) -> Result<Option<(&Queue, Prepared)>, OpError> {
        self.executed().map_err(OpError::Abort)?;
        let Some(queue) = self.inner.queue.as_ref().filter(|_| self.is_queued()) else { return Ok(None) };
        if self.ends.get() & ends::CHECKED != 0 {
            self.check_deferred().map_err(OpError::Abort)?;
        }
        let Some(held) = self.worker().detach().filter(|_| self.mode.get() == Mode::ReadWrite) else { return Ok(None) };
        Ok(Some((queue, self.with_known(held.prepare()?))))
    }

    /// Completes the input with values that the worker does not know.
    fn with_known(&self, prepared: Prepared) -> Prepared {
        Prepared { restarts: self.attempt.get().saturating_sub(1), weight: self.opened.get().weight, ..prepared }
    }

    /// As [`TxCore::decide`], when its place in the queue has come: by this thread, or by another while this one waits.
    #[cold]
    fn decide_queued(&self) -> Result<Outcome, OpError> {
        let Some((queue, prepared)) = self.prepare()? else { return self.decide() };
        queue.decide(prepared, Waits(self))
    }

    /// Whether the executed transaction can still commit, and the new input of the queue if it has changed.
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

    /// The transaction will be aborted.
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
            // Its thread may do other work before it aborts.
            self.refuse();
        }
        if self.worker().core().injects(Fault::DecideTwice) { self.decide() } else { decided }
    }

    /// Lets the protocol decide, with the log open for its writes.
    #[inline]
    fn decide(&self) -> Result<Outcome, OpError> {
        if self.is_plain { self.worker().commit(&mut NoRedo) } else { self.decide_any() }
    }

    #[inline(never)]
    fn decide_any(&self) -> Result<Outcome, OpError> {
        if let Some(log) = self.log.as_ref().filter(|_| self.inner.defers()) {
            cold_path();
            log.borrow_mut().decides();
        }
        // A transaction without writes costs the log nothing, and commits even if the log takes no commits.
        let writer =
            self.open_lease().and_then(|lease| self.inner.pool.writer(lease)).filter(|_| self.worker().writes());
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

    /// As [`TxCore::decide`], of a transaction that the log need not know.
    fn decide_unlogged(&self) -> Result<Outcome, OpError> {
        match &self.log {
            None => self.commit_to(&mut NoRedo),
            Some(log) => self.commit_to(&mut *log.borrow_mut()),
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
        // Before the protocol reads the epoch: the log then knows that the epoch of the commit is open.
        if let Err(refusal) = writer.begin(self.inner.environment.epochs.current()) {
            self.refusal.set(Some(refusal));
            return Err(OpError::Abort(Cause { phase: Phase::Lock, reason: Reason::LogStopped }));
        }
        let guard = StopsLog(&self.inner);
        let mut redo = CommitLog::new(writer.groups(), &persistence.whole_before, self.log.as_ref());
        if self.changes_tables() {
            redo = redo.mixed();
        }
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

    /// The next attempts are a new transaction: without a priority, and with nothing to wait for.
    #[inline]
    pub fn renew(&self) {
        self.priority.set(Priority::NONE);
        self.dependency.set(CommitDependency::default());
        // A panic of a commit leaves it.
        if self.turn.get() != super::Turn::None {
            cold_path();
            self.end_turn();
        }
    }

    /// Proof of a commit of this session.
    #[inline]
    pub fn receipt(&self, tid: Tid) -> Receipt {
        let of_epoch = || NonZeroU64::new(tid.epoch().0);
        let snapshot = match (&self.freshness, self.mode.get()) {
            (Some(freshness), Mode::ReadOnly) => freshness.taken(),
            (Some(freshness), Mode::ReadWrite) if freshness.is_durable() => of_epoch(),
            _ => None,
        };
        Receipt { tid, database: self.inner.number, snapshot }
    }

    /// Later attempts of procedures belong to this one.
    #[inline]
    pub fn name_procedure(&self, name: &'static str) {
        if let Some(tracker) = &self.inner.contention
            && self.inner.process.is_current()
        {
            cold_path();
            self.procedure.set(tracker.number_of(name));
        }
        if let Some(log) = &self.log {
            cold_path();
            log.borrow_mut().name_procedure(name);
        }
    }

    /// Cancels transactions of this session, from any thread.
    pub fn canceller(&self) -> Canceller {
        self.deadline.canceller()
    }

    /// The session runs a call of an executor from now on. A cancellation by the call's answer lasts until
    /// [`TxCore::end_call`].
    pub(crate) fn begin_call(&self) -> Canceller {
        // Earlier cancellations do not concern the call.
        self.deadline.set(u64::MAX, true);
        self.in_call.set(true);
        self.deadline.canceller()
    }

    /// An attempt that is not open ignores earlier cancellations.
    pub(crate) fn forget_cancellation(&self) {
        if !self.is_open() {
            self.deadline.set(u64::MAX, true);
        }
    }

    /// The next transaction ignores earlier cancellations.
    pub fn end_call(&self) {
        self.in_call.set(false);
    }

    /// The epoch that must be durable before the result is returned.
    #[inline]
    pub(crate) fn dependency(&self) -> CommitDependency {
        self.dependency.get()
    }

    /// Waits until the result may be returned.
    ///
    /// # Errors
    /// The log stopped, or the wait took too long.
    #[inline]
    pub fn wait_until_durable(&self) -> Result<(), TransactError> {
        self.inner.wait_until_durable(self.dependency.get(), self.wait_max())
    }

    /// Whether it was a snapshot whose result would have to wait for a slow disk. A new snapshot shows the
    /// durable epoch instead.
    #[inline]
    pub fn is_overtaken(&self) -> bool {
        self.mode.get() == Mode::ReadOnly && self.inner.is_overtaken(self.dependency.get(), self.wait_max())
    }

    /// How long a result waits until it is durable, by the bounds under which the attempt was opened.
    #[inline]
    pub(crate) fn wait_max(&self) -> Option<Duration> {
        self.opened.get().wait
    }

    /// Commits an explicit transaction; its result is withheld.
    pub(crate) fn commit_explicit(&mut self) -> Result<Receipt, TransactError> {
        let tx: &TxCore = self;
        tx.renew();
        let _call = tx.call().map_err(|abort| tx.error_of(&abort))?;
        tx.end_or_abandon()
    }

    /// Commits in a call, or rolls back.
    pub(super) fn end_or_abandon(&self) -> Result<Receipt, TransactError> {
        match self.end_whole() {
            Ok(tid) => Ok(self.receipt(tid)),
            Err(cause) => {
                let error = self.error_of(&Abort::new(AbortKind::Stopped(cause)));
                self.abandon(Some(cause).filter(|cause| cause.reason != Reason::ConstraintViolated));
                Err(error)
            }
        }
    }

    /// Rolls back the attempt, if it is open, and counts the cause.
    pub fn roll_back(&mut self, cause: Option<Cause>) {
        self.abandon(cause);
    }

    fn abandon(&self, cause: Option<Cause>) {
        if !self.is_open() {
            return;
        }
        if !self.inner.process.is_current() {
            // Its locks may belong to threads that a fork does not have.
            cold_path();
            self.worker.set(None);
            return;
        }
        // A transaction that was ended while it was parked is not open either.
        let Ok(_call) = self.call() else { return };
        let Some(lease) = self.open_lease() else { return };
        if self.ending.get() {
            // The worker panicked while it ended the attempt: it is not used again.
            self.inner.stop_log(PANICKED);
            self.worker.set(None);
            self.is_untidy.set(true);
            self.unpark(lease);
            self.calling.set(false);
            self.leave_gate();
            return;
        }
        let counters = self.inner.pool.counters(lease);
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
                // The body may reveal what it read.
                self.dependency.set(self.dependency.get().with(self.worker().newest()));
                self.note_done();
            }
        }
        self.ending.set(true);
        self.worker().abort();
        self.ending.set(false);
        self.close(lease);
    }

    /// As [`TxCore::roll_back`], for reasons of the body.
    pub fn roll_back_user(&mut self) {
        self.roll_back(None);
    }
}

const PANICKED: &str = "a worker panicked during a commit, whose writes may be incomplete in memory or in the log: \
                        open the database again, and report what it printed";

/// A transaction that waits for its decision, which another thread may make.
struct Waits<'t>(&'t TxCore);

// SAFETY: access rule 1: the owning thread waits, so one thread at a time uses the transaction. The transaction may
// move to another thread (see above).
unsafe impl Send for Waits<'_> {}

impl Turn for Waits<'_> {
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

/// Stops the log when a commit unwinds: memory and log may then differ.
struct StopsLog<'d>(&'d Inner);

impl Drop for StopsLog<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.stop_log(PANICKED);
    }
}

impl Drop for TxCore {
    fn drop(&mut self) {
        // The session may be dropped while a panic unwinds through its open transaction.
        self.roll_back(self.stopped.get());
        self.unlock_rows();
        self.end_turn();
    }
}
