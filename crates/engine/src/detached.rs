//! Transactions whose thread does not wait for their decisions, so that a thread can have many of them.
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

/// A transaction between its steps. The caller passes the same body to each step.
pub struct Detached<R> {
    origin: Origin,
    attempts: u32,
    /// The value of the attempt that is to be decided.
    value: Option<R>,
    /// The waits of the decision so far.
    waiting: Waiting,
    /// The pause before the next attempt, if the last one was refused.
    pause: Option<Duration>,
}

/// The outcome of a step.
#[derive(Debug)]
pub enum Step<R> {
    /// The transaction has been executed: its decision is to be queued, by [`Runner::queue`].
    Decide(Prepared),
    /// No worker was free, or a refused transaction must pause, and the step was not to wait. Step again.
    Stalled,
    /// It has ended. The result may not be durable yet.
    Done(Result<Committed<R>, TransactError>),
}

/// The outcome of a queued decision.
#[derive(Debug)]
pub struct Decided(thread::Result<Result<Outcome, OpError>>);

impl<R> Detached<R> {
    /// A transaction that has not begun; `origin` says whether a closure or a procedure opens it.
    pub fn new(origin: Origin) -> Detached<R> {
        Detached { origin, attempts: 1, value: None, waiting: Waiting::default(), pause: None }
    }

    /// Runs `body` until the transaction can be decided, or until no attempt is left. With a decision it
    /// continues, and runs `body` again after a conflict. Without `wait` it does not wait for a worker: this
    /// thread may hold transactions on which the worker's owner waits. It does not sleep between attempts
    /// either, as others may wait for those transactions. It stalls instead. If it has the turn
    /// ([`RetryPolicy::lock_after`](crate::RetryPolicy::lock_after)), it makes the next attempt at once. The turn
    /// belongs to the session, and the call may continue in another.
    ///
    /// # Panics
    /// If the body panics and its reads were consistent; or if the decision panicked.
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
                let sleeps = pause >= thread::AWAKE;
                if sleeps && !wait && !runner.tx.has_turn() {
                    return Step::Stalled;
                }
                self.pause = None;
                retry::make(if sleeps && !wait { Duration::ZERO } else { pause });
            }
            match runner.tx.open_or_wait(Mode::ReadWrite, self.attempts, self.origin, wait) {
                Ok(()) => {}
                Err(TransactError::WorkersBusy) if !wait => return Step::Stalled,
                Err(error) => return Step::Done(Err(error)),
            }
            let exclusive = runner.tx.decide_exclusively();
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
            drop(exclusive);
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
            // As for any closure: its attempts cannot be repaired.
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

    /// Prepares the executed transaction for its decision, or commits it if its decisions are not queued.
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
        runner.tx.end_turn();
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
    /// Queues the decision of a transaction that was executed in the runner of `holder` ([`Step::Decide`]).
    /// After the decision, `then` gets the holder back, on this thread or another. `then` does not panic.
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

/// An executed transaction whose thread does not wait.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Handle;
    use crate::{RetryPolicy, Settings, protocols};

    #[derive(seriatim_macros::Table, Clone, Debug)]
    #[table(name = "hot", key(id), crate = "seriatim_catalog")]
    struct Hot {
        id: u32,
        count: u32,
    }

    /// Another transaction changes the row during each attempt. The turn lets this one through, although its thread
    /// must not sleep for the pause before the next attempt.
    #[test]
    fn a_step_that_must_not_sleep_keeps_its_turn() {
        let pause = Duration::from_millis(1);
        let retry =
            RetryPolicy { immediate: 0, pause_first: pause, pause_max: pause, lock_after: 1, ..RetryPolicy::default() };
        for info in protocols().iter().filter(|info| info.capabilities.reserves) {
            let settings = Settings { protocol: info.name.to_owned(), retry, workers: 2, ..Settings::default() };
            let engine = settings.open().expect("a protocol of this name");
            let hot: Handle<Hot> = engine.make().expect("a valid table");
            let (mut slow, mut other) = (engine.runner(), engine.runner());
            slow.transact(|tx| tx.insert(&hot, &Hot { id: 1, count: 0 })).expect("no conflict");
            let add = |tx: &TxCore| tx.update(&hot, &1, |row| row.set_count(row.count() + 1)).map(drop);
            let body = |tx: &TxCore| {
                add(tx)?;
                other.begin(Mode::ReadWrite).expect("a worker is free");
                let _is_refused = add(&other.tx).is_err() || other.commit_explicit().is_err();
                other.end_explicit();
                Ok(())
            };
            match Detached::new(Origin::Closure).step(&mut slow, None, false, body) {
                Step::Done(Ok(committed)) => assert_eq!(committed.attempts, 2, "{}", info.name),
                step => panic!("{}: {step:?}", info.name),
            }
        }
    }
}
