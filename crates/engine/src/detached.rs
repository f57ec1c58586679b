//! Transactions whose thread does not wait for their decisions, so that it can have many of them.
//!
//! ```text
//!          ┌────────── a conflict, after a pause ─────────┐
//!          ▼                                              │
//!   execute: Step::Decide ──▶ Runner::queue ──▶ conclude ─┴▶ Step::Done
//!                                   ▲              │
//!                                   └ it must wait ┘
//! ```
//! Retries, waits and errors are those of [`Runner::run`]. While a decision is queued, the queue has the runner.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::{Tid, thread};
use seriatim_txn::{Cause, Mode, OpError, Outcome, Phase, Prepared, Reason};

use crate::error::Abort;
use crate::queue::Turn;
use crate::retry;
use crate::runner::{Failure, Runner};
use crate::tx::{Origin, TxCore, Waiting};
use crate::{Committed, TransactError};

/// A transaction, between its steps. The body is given to each step, and is the same.
pub struct Detached<R> {
    origin: Origin,
    attempts: u32,
    /// Of the attempt that is to be decided.
    value: Option<R>,
    /// For what the decision has had to wait.
    waiting: Waiting,
    /// Before the next attempt, if the last one was refused.
    pause: Option<Duration>,
}

/// How far a step has come.
#[derive(Debug)]
pub enum Step<R> {
    /// The transaction has been executed: its decision is to be queued, by [`Runner::queue`].
    Decide(Prepared),
    /// No worker was free, or it was refused and is to pause, and it was not to wait: to be executed again.
    Stalled,
    /// It has ended. The result may not be durable yet.
    Done(Result<Committed<R>, TransactError>),
}

/// What came of a queued decision.
#[derive(Debug)]
pub struct Decided(thread::Result<Result<Outcome, OpError>>);

impl<R> Detached<R> {
    /// One that has not begun; `origin` says whether a closure or a procedure opens it.
    pub fn new(origin: Origin) -> Detached<R> {
        Detached { origin, attempts: 1, value: None, waiting: Waiting::default(), pause: None }
    }

    /// Runs `body` until it can be decided, or until there is no next attempt; or goes on after the decision, and runs
    /// it again if others were in the way. A thread that holds other transactions does not `wait` for a worker: it may
    /// have what it waits for. Nor does it sleep between attempts, so that nobody who waits for those has to wait for
    /// that.
    ///
    /// # Panics
    /// If the body panics on values that held together; if the decision did.
    pub fn step(
        &mut self,
        runner: &mut Runner,
        decided: Option<Decided>,
        wait: bool,
        body: impl FnMut(&TxCore) -> Result<R, Abort>,
    ) -> Step<R> {
        match decided {
            None => self.execute(runner, wait, body),
            Some(decided) => self.conclude(runner, decided, wait, body),
        }
    }

    fn execute(
        &mut self,
        runner: &mut Runner,
        wait: bool,
        mut body: impl FnMut(&TxCore) -> Result<R, Abort>,
    ) -> Step<R> {
        if self.attempts == 1 {
            runner.tx.renew();
            if self.origin == Origin::Closure
                && let Err(error) = runner.admit(Mode::ReadWrite)
            {
                return Step::Done(Err(error));
            }
        }
        loop {
            if let Some(pause) = self.pause {
                if !wait && pause >= thread::AWAKE {
                    // It goes on in another session.
                    runner.tx.end_exclusive();
                    return Step::Stalled;
                }
                self.pause = None;
                retry::make(pause);
            }
            match runner.tx.open_or_wait(Mode::ReadWrite, self.attempts, self.origin, wait) {
                Ok(()) => {}
                Err(TransactError::WorkersBusy) if !wait => return Step::Stalled,
                Err(error) => return Step::Done(Err(error)),
            }
            let alone = runner.tx.decide_alone();
            let failure = match catch_unwind(AssertUnwindSafe(|| body(&runner.tx))) {
                Ok(Ok(value)) => {
                    self.value = Some(value);
                    self.waiting = Waiting::default();
                    match self.prepare(runner) {
                        Ok(step) => return step,
                        Err(cause) => Failure::Conflict(cause),
                    }
                }
                Ok(Err(abort)) => Failure::Abort(abort),
                Err(panic) => Failure::Panic(panic),
            };
            drop(alone);
            match runner.next_pause(failure, &mut self.attempts) {
                Ok(pause) => self.pause = pause,
                Err(error) => return Step::Done(Err(error)),
            }
        }
    }

    fn conclude(
        &mut self,
        runner: &mut Runner,
        decided: Decided,
        wait: bool,
        body: impl FnMut(&TxCore) -> Result<R, Abort>,
    ) -> Step<R> {
        let outcome = decided.0.unwrap_or_else(|panic| resume_unwind(panic));
        let cause = match runner.tx.decided(outcome) {
            Ok(Outcome::Committed(tid)) => return self.committed(runner, tid),
            // As of any closure: it cannot run in parts.
            Ok(Outcome::Repair(_)) => Cause { phase: Phase::Validate, reason: Reason::RecordChanged },
            Err(OpError::Abort(cause)) => cause,
            Err(OpError::Wait) => {
                let waited = runner.tx.wait(&mut self.waiting, Phase::Lock);
                match waited.and_then(|()| self.prepare(runner)) {
                    Ok(step) => return step,
                    Err(cause) => cause,
                }
            }
        };
        match runner.next_pause(Failure::Conflict(cause), &mut self.attempts) {
            Ok(pause) => {
                self.pause = pause;
                self.execute(runner, wait, body)
            }
            Err(error) => Step::Done(Err(error)),
        }
    }

    /// The executed transaction waits for its decision; or is committed, if decisions of its kind are not queued.
    fn prepare(&mut self, runner: &mut Runner) -> Result<Step<R>, Cause> {
        let prepared = loop {
            match runner.tx.prepare() {
                Ok(prepared) => break prepared.map(|(_, prepared)| prepared),
                Err(OpError::Abort(cause)) => return Err(cause),
                Err(OpError::Wait) => runner.tx.wait(&mut self.waiting, Phase::Lock)?,
            }
        };
        match prepared {
            Some(prepared) => Ok(Step::Decide(prepared)),
            None => runner.tx.commit().map(|tid| self.committed(runner, tid)),
        }
    }

    fn committed(&mut self, runner: &Runner, tid: Tid) -> Step<R> {
        runner.tx.end_exclusive();
        let receipt = runner.tx.receipt(tid);
        let value = self.value.take().expect("it has been executed");
        Step::Done(Ok(Committed { value, receipt, attempts: self.attempts }))
    }
}

impl<R> std::fmt::Debug for Detached<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Detached").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

impl Runner {
    /// Queues the decision of a transaction that has been executed ([`Step::Decide`]) in the runner of `holder`. When
    /// it has been made, by this thread or another, `then` is given the holder again. `then` does not panic.
    pub fn queue<H: AsMut<Runner> + Send + 'static>(
        mut holder: H,
        prepared: Prepared,
        then: impl FnOnce(H, Decided) + Send + 'static,
    ) {
        let inner = Arc::clone(holder.as_mut().tx.inner());
        let queue = inner.queue.as_ref().expect("a decision is to be queued where there is a queue");
        queue.submit(prepared, Queued { holder, then });
    }
}

/// An executed transaction whose thread goes on.
struct Queued<H, T> {
    holder: H,
    then: T,
}

impl<H: AsMut<Runner> + Send, T: FnOnce(H, Decided) + Send> Turn for Queued<H, T> {
    type Result = ();

    fn recheck(&mut self) -> Result<Option<Prepared>, Cause> {
        self.holder.as_mut().tx.recheck()
    }

    fn refuse(&mut self) {
        self.holder.as_mut().tx.refuse();
    }

    fn decide(mut self, refused: Option<Cause>) {
        let tx = &self.holder.as_mut().tx;
        let decided = catch_unwind(AssertUnwindSafe(|| tx.decide_in_turn(refused)));
        (self.then)(self.holder, Decided(decided));
    }
}
