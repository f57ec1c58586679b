//! Schedules: which steps of a procedure run in which pass. The loop between generated code and the protocol.
//!
//! Code that follows a schedule runs in passes. A pass goes through the body in source order and asks
//! [`Schedule::enters`] at each operation. If the operation runs, [`Schedule::operation`] precedes it.
//! [`Schedule::pass`] then decides: the next pass follows, the same pass is made again, or that was the last.
//!
//! Only the results of operations live between passes. Generated code keeps them by operation. In each pass it
//! computes everything else anew: the steps that are [due](Schedule::due), from the results of this pass and earlier
//! ones. The same results in the same order give the same values as one execution from top to bottom. Steps that are
//! not due are skipped with their blocks. A return, abort, break or continue that is reached acts in every pass.
//!
//! ```text
//! let mut results = [Results::new(); operations];
//! loop {
//!     results.each(|of| of.begin(schedule.again(of)));         // those that run in this pass begin again
//!     let mut output = None;
//!     match schedule.pass(tx, |tx, schedule| body(tx, schedule, &results, &mut output))? {
//!         Next::Keep | Next::Repeat => {}
//!         Next::Done => return Ok(output),
//!     }
//! }
//! ```
//!
//! Modes:
//! - *Whole*: one pass of all steps, then commit.
//! - *Repair*: a commit answered [`Outcome::Repair`]. The runs of operations that depend on stale reads are made
//!   again, followed by another commit (HTCC §4.2).
//! - *Pieces*: a pass and a commit for each piece of the chopping (DBX-TC §3).
//! - *Fragment*: one pass of the steps that run in one partition in one round, without a commit (Speculation §3.1).
//!   [`Schedule::here`] says whether an operation runs here. Results of other fragments are
//!   [recalled](Schedule::recalled).
//!
//! A chain of pieces does not begin again once its first piece is visible. A later piece that meets a conflict runs
//! again, up to [`REPEATS_MAX`] times. Registration has proved that the procedure itself cannot abort there. Too many
//! conflicts, the age limit or a lack of workers can still end the chain. The transaction is then committed without
//! its result ([`TransactError::Unfinished`](crate::TransactError)): pieces after the first only read.
//!
//! A transaction may end between two passes, so kept results own their rows: `pass` takes the [`Tx`] mutably, and
//! rows borrow it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use seriatim_base::{Rng, Tid};
use seriatim_engine::procedure::execution::{Passes, Steps};
use seriatim_engine::procedure::fragment::FragmentRun;
use seriatim_engine::procedure::repair::{Again, Repairing};
use seriatim_engine::{Committed, Failure, Origin, Runner, TxCore, pause};
use seriatim_procedure::Pack;
use seriatim_procedure::checked::Overflow;
use seriatim_procedure::ir::{OperationId, StepId};
use seriatim_txn::{Cause, Mode, Outcome, Phase, Reason};

use super::check::PlanChecker;
use super::support::Results;
use super::touch::Touch;
use crate::{Abort, RetryPolicy, TransactError, Tx};

/// The action after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// The pass is complete; make the next pass.
    Keep,
    /// The pass had no effect; make it again from the same results.
    Repeat,
    /// The pass was the last, and everything is committed.
    Done,
}

/// The steps to run, pass by pass.
pub struct Schedule<'p> {
    state: ScheduleState<'p>,
    committed: Option<Tid>,
    /// Passes that had no effect.
    repeated: u32,
    /// Compares what each pass accesses with the plan.
    checker: Option<&'p PlanChecker<'p>>,
}

enum ScheduleState<'p> {
    /// All steps; in a repair, some runs of operations.
    Whole(Option<Repairing<'p>>),
    /// The steps of the current piece.
    Pieces { passes: &'p Passes, current: u16, retry: RetryPolicy, rng: &'p mut Rng },
    /// The steps that run in one partition, in one round.
    Fragment(&'p FragmentRun<'p>),
}

/// How often the pieces after the first are run again, in one chain.
const REPEATS_MAX: u32 = if cfg!(test) { 10 } else { 10_000 };

/// How often a piece asks for a worker. Each request waits for up to a second. Transactions that occupy workers have
/// a bounded age (by default 60 s).
const WORKER_WAITS_MAX: u32 = 120;

impl<'p> Schedule<'p> {
    pub(crate) fn new(
        steps: Steps<'p>,
        checker: Option<&'p PlanChecker<'p>>,
        retry: RetryPolicy,
        rng: &'p mut Rng,
    ) -> Schedule<'p> {
        let state = match steps {
            Steps::Whole(repairs) => ScheduleState::Whole(repairs.map(Repairing::new)),
            Steps::Pieces(passes) => ScheduleState::Pieces { passes, current: 0, retry, rng },
        };
        Schedule { state, committed: None, repeated: 0, checker }
    }

    /// The schedule of a fragment.
    pub(crate) fn of_fragment(fragment: &'p FragmentRun<'p>) -> Schedule<'p> {
        Schedule { state: ScheduleState::Fragment(fragment), committed: None, repeated: 0, checker: None }
    }

    /// Whether this is the schedule of a fragment.
    #[inline]
    pub(crate) fn is_fragment(&self) -> bool {
        matches!(self.state, ScheduleState::Fragment(_))
    }

    /// Whether this step runs in this pass. For a repaired operation: whether any of its runs does.
    #[inline]
    pub fn runs(&self, step: StepId) -> bool {
        match &self.state {
            ScheduleState::Whole(repairing) => repairing.as_ref().is_none_or(|repairing| repairing.runs(step)),
            ScheduleState::Pieces { passes, current, .. } => passes.of(step) == *current,
            ScheduleState::Fragment(_) => true,
        }
    }

    /// Whether this step is due: it runs in this pass or ran in an earlier one.
    #[inline]
    pub fn due(&self, step: StepId) -> bool {
        match &self.state {
            ScheduleState::Whole(_) => true,
            ScheduleState::Pieces { passes, current, .. } => passes.of(step) <= *current,
            ScheduleState::Fragment(fragment) => fragment.due(step),
        }
    }

    /// Called at a step that leaves a loop: whether the loop is left.
    #[inline]
    pub fn leaves(&self, step: StepId) -> bool {
        match &self.state {
            ScheduleState::Fragment(fragment) => fragment.due(step),
            _ => true,
        }
    }

    /// Called at an operation that is due: whether its result is available, or will be once it has run. `keys` visits
    /// its keys.
    #[inline]
    pub fn here(
        &self,
        step: StepId,
        operation: OperationId,
        mut keys: impl FnMut(&mut dyn FnMut(Touch<'_>)) -> Result<(), Overflow>,
    ) -> bool {
        let ScheduleState::Fragment(fragment) = &self.state else { return true };
        fragment.here(step, operation, &mut |visit| keys(&mut |touch| touch.bounds(visit)))
    }

    /// Called when an iteration of a loop begins.
    #[inline]
    pub fn iterates(&self, step: StepId) {
        if let ScheduleState::Fragment(fragment) = &self.state {
            fragment.iterates(step);
        }
    }

    /// Called after an operation whose result is not used.
    #[inline]
    pub fn noted(&self, operation: OperationId) {
        self.carries(operation, &());
    }

    /// Passes on the result of an operation that has run, for other fragments.
    #[inline]
    pub fn carries(&self, operation: OperationId, result: &impl Pack) {
        if let ScheduleState::Fragment(fragment) = &self.state {
            fragment.note(operation, result);
        }
    }

    /// Called after an operation whose result cannot be passed to other fragments.
    #[inline]
    pub fn carries_not(&self, operation: OperationId) {
        if let ScheduleState::Fragment(fragment) = &self.state {
            fragment.note_not(operation);
        }
    }

    /// The result of an operation that does not run in this pass.
    ///
    /// # Errors
    /// Another fragment passed bytes that are no such result.
    #[inline]
    pub fn recalled<'r, T: Pack>(
        &self,
        tx: &Tx,
        operation: OperationId,
        results: &'r Results<T>,
    ) -> Result<&'r T, Abort> {
        let ScheduleState::Fragment(fragment) = &self.state else { return Ok(results.again()) };
        let result = fragment.recall(operation).map_err(|error| tx.abort(error))?;
        Ok(results.keep(result))
    }

    /// Called when a pass ends before the end of the body.
    #[cold]
    pub fn unfinished(&self, tx: &Tx) -> Abort {
        match &self.state {
            ScheduleState::Fragment(fragment) => {
                fragment.leave();
                tx.abort("a fragment did not reach the end of its procedure")
            }
            _ => unreachable!("the last pass reaches the end"),
        }
    }

    /// Which runs of an operation are made in this pass.
    #[inline]
    pub fn again(&self, step: StepId, operation: OperationId) -> &Again {
        match &self.state {
            ScheduleState::Whole(Some(repairing)) => repairing.again(operation),
            _ if self.runs(step) => &Again::ALL,
            _ => &Again::KEPT,
        }
    }

    /// Called each time an operation is reached: whether it runs.
    #[inline]
    pub fn enters(&self, step: StepId, operation: OperationId) -> bool {
        match &self.state {
            ScheduleState::Whole(Some(repairing)) => repairing.enters(operation),
            ScheduleState::Fragment(fragment) => fragment.enters(),
            _ => self.runs(step),
        }
    }

    /// Assigns the following calls to the run of this operation that was entered last.
    #[inline]
    pub fn operation(&self, tx: &Tx, operation: OperationId) {
        if let ScheduleState::Whole(Some(repairing)) = &self.state {
            repairing.name(&tx.core, operation);
        }
    }

    /// Makes a pass, then commits or rolls back as the mode requires.
    ///
    /// # Errors
    /// The body's own abort, or a conflict after which the whole attempt is run again.
    pub fn pass(
        &mut self,
        tx: &mut Tx,
        mut body: impl FnMut(&Tx, &Schedule<'_>) -> Result<(), Abort>,
    ) -> Result<Next, Abort> {
        self.pass_dyn(tx, &mut body)
    }

    fn pass_dyn(
        &mut self,
        tx: &mut Tx,
        body: &mut dyn FnMut(&Tx, &Schedule<'_>) -> Result<(), Abort>,
    ) -> Result<Next, Abort> {
        let mut body = |tx: &Tx, schedule: &Schedule<'_>| match schedule.checker {
            None => body(tx, schedule),
            Some(checker) => checker.watch(&tx.core, &|step| schedule.runs(step), &mut || body(tx, schedule)),
        };
        match self.state {
            ScheduleState::Whole(_) => {
                body(tx, self)?;
                self.commit_or_repair(tx.core_mut())
            }
            ScheduleState::Pieces { .. } => self.piece(tx, body),
            // The code that runs the fragment decides whether it commits.
            ScheduleState::Fragment(_) => body(tx, self).map(|()| Next::Done),
        }
    }

    fn commit_or_repair(&mut self, tx: &mut TxCore) -> Result<Next, Abort> {
        let ScheduleState::Whole(repairing) = &mut self.state else { return Ok(Next::Done) };
        if let Some(repairing) = repairing {
            repairing.end_pass(tx);
        }
        match tx.commit_or_repair().map_err(|cause| tx.stop(cause))? {
            Outcome::Committed(tid) => {
                self.committed = Some(tid);
                Ok(Next::Done)
            }
            Outcome::Repair(stale) => match repairing.as_mut().is_some_and(|of| of.begin_repair(&stale, tx)) {
                true => Ok(Next::Keep),
                false => Err(tx.stop(Cause { phase: Phase::Validate, reason: Reason::RecordChanged })),
            },
        }
    }

    fn piece(
        &mut self,
        tx: &mut Tx,
        body: impl FnOnce(&Tx, &Schedule<'_>) -> Result<(), Abort>,
    ) -> Result<Next, Abort> {
        let result = catch_unwind(AssertUnwindSafe(|| body(tx, self)));
        let tx = tx.core_mut();
        let ScheduleState::Pieces { passes, current, retry, rng } = &mut self.state else { return Ok(Next::Done) };
        let is_first = *current == 0;
        let mut own = None;
        let cause = match result {
            Ok(Ok(())) => match tx.commit() {
                Ok(tid) => {
                    self.committed = Some(tid);
                    *current += 1;
                    if *current == passes.count() {
                        return Ok(Next::Done);
                    }
                    open(tx, 1)?;
                    return Ok(Next::Keep);
                }
                Err(cause) => cause,
            },
            Ok(Err(abort)) if is_first => return Err(abort),
            Ok(Err(abort)) => match tx.cause_of(&abort) {
                Some(cause) => {
                    own = Some(abort);
                    cause
                }
                // Promise (g): an abort counts only if it was raised on a consistent state.
                None => match tx.validate() {
                    Err(cause) => cause,
                    Ok(()) => panic!("a piece after the first aborted, which registration excludes: {abort}"),
                },
            },
            Err(panic) => match tx.validate() {
                Err(cause) => cause,
                Ok(()) => resume_unwind(panic),
            },
        };
        if is_first {
            // No piece is visible yet: the chain is retried like any other transaction.
            return Err(tx.stop(cause));
        }
        if cause.reason == Reason::Cancelled {
            // The visible pieces must be completed: the piece ignores the cancellation and runs as in a first
            // attempt.
            tx.roll_back(Some(cause));
            tx.end_call();
            open(tx, 1)?;
            return Ok(Next::Repeat);
        }
        if !cause.reason.is_conflict() || self.repeated == REPEATS_MAX {
            return Err(own.unwrap_or_else(|| tx.stop(cause)));
        }
        tx.roll_back(Some(cause));
        self.repeated += 1;
        pause(retry, self.repeated + 1, rng);
        open(tx, self.repeated + 1)?;
        Ok(Next::Repeat)
    }

    /// The TID of the last commit.
    pub(crate) fn committed(&self) -> Option<Tid> {
        self.committed
    }

    /// The number of passes that had no effect and were made again.
    pub(crate) fn repeated(&self) -> u32 {
        self.repeated
    }

    /// Runs a body that follows no steps: each pass runs all of it.
    pub(crate) fn run_whole<R>(&mut self, tx: &mut Tx, body: impl Fn(&Tx) -> Result<R, Abort>) -> Result<R, Abort> {
        loop {
            let mut value = None;
            let next = self.pass(tx, |tx, _| {
                value = Some(body(tx)?);
                Ok(())
            })?;
            if let (Next::Done, Some(value)) = (next, value) {
                return Ok(value);
            }
        }
    }
}

/// Opens the transaction of a piece after the first. It waits long for a worker, as the chain should complete.
fn open(tx: &mut TxCore, attempt: u32) -> Result<(), Abort> {
    match (0..WORKER_WAITS_MAX).any(|_| tx.open(Mode::ReadWrite, attempt, Origin::Procedure).is_ok()) {
        true => Ok(()),
        false => Err(tx.stop(Cause { phase: Phase::Execute, reason: Reason::TooOld })),
    }
}

/// As [`run_with_checker`], without a checker.
#[cfg(test)]
pub(crate) fn run_scheduled<R>(
    runner: &mut Runner,
    steps: Steps<'_>,
    mut body: impl FnMut(&mut Tx, &mut Schedule<'_>) -> Result<R, Abort>,
) -> Result<Committed<R>, TransactError> {
    let mut value = None;
    let body = &mut |tx: &mut Tx, schedule: &mut Schedule<'_>| {
        value = Some(body(tx, schedule)?);
        Ok(())
    };
    Ok(seriatim_engine::with_value(run_with_checker(runner, steps, None, body)?, value))
}

/// As [`Runner::run_dyn`], but the schedule decides when to commit, and `checker`, if given, checks each pass.
pub(crate) fn run_with_checker(
    runner: &mut Runner,
    steps: Steps<'_>,
    checker: Option<&PlanChecker<'_>>,
    body: &mut dyn FnMut(&mut Tx, &mut Schedule<'_>) -> Result<(), Abort>,
) -> Result<Committed<()>, TransactError> {
    let mut attempts = 1;
    runner.tx.renew();
    loop {
        runner.tx.open(Mode::ReadWrite, attempts, Origin::Procedure)?;
        let mut schedule = Schedule::new(steps, checker, runner.tx.settings().retry, &mut runner.rng);
        let result = catch_unwind(AssertUnwindSafe(|| body(Tx::of_mut(&mut runner.tx), &mut schedule)));
        let (committed, repeated) = (schedule.committed(), schedule.repeated());
        let failure = match (result, committed) {
            (Ok(Ok(value)), Some(tid)) if !runner.tx.is_open() => {
                runner.tx.end_turn();
                return Ok(Committed { value, receipt: runner.tx.receipt(tid), attempts: attempts + repeated });
            }
            (Ok(Ok(())), _) => panic!("a procedure ended before its schedule"),
            (Ok(Err(abort)), None) => Failure::Abort(abort),
            (Ok(Err(abort)), Some(_)) => {
                let Some(cause) = runner.tx.cause_of(&abort) else {
                    panic!("a chain ended without a conflict after its first piece: {abort}")
                };
                runner.tx.roll_back(Some(cause));
                return Err(TransactError::Unfinished { cause });
            }
            (Err(panic), None) if runner.tx.is_open() => Failure::Panic(panic),
            // A piece is committed: the transaction must not begin again.
            (Err(panic), _) => {
                runner.tx.roll_back_user();
                runner.tx.wait_until_durable()?;
                resume_unwind(panic)
            }
        };
        runner.failed(failure, &mut attempts)?;
    }
}

impl std::fmt::Debug for Schedule<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("committed", &self.committed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
