//! Threads that run transactions for callers with better things to do than to wait.

use seriatim_engine::{ExecutorSession, Origin, Runner};

use crate::procedure::Declared;
use crate::{Abort, Committed, Database, OpenError, Running, Session, TransactError, TransactionOptions, Tx};

/// Threads that run what they are given, first come, first served: one caller can have many transactions under way.
///
/// Where decisions are queued ([`Builder::queue_decisions`](crate::Builder::queue_decisions)), a thread does not wait for the decisions
/// of what it was given by [`Executor::transact`] and [`Executor::call`]: it executes further transactions meanwhile, up to as many as
/// a batch has and its share of the [`workers`](crate::Builder::workers) allows, and their decisions come together in one batch; but one
/// at a time where procedures run in pieces. What it was given by [`Executor::run`] it runs by itself, when its other transactions have
/// ended.
///
/// What is given to [`Executor::run`] may wait for work that was given before it. Any other work that waits for work of the same executor
/// can wait for ever: for what is behind it while all threads wait; and within a transaction, for one that its own thread is to decide.
///
/// Dropping it waits until all that it was given has been run; but not if its own work drops it.
///
/// ```
/// # use seriatim::{Database, Table};
/// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::in_memory()?;
/// # let counters = db.create::<Counter>()?;
/// let executor = db.executor(2)?;
/// let running: Vec<_> = (0..8)
///     .map(|id| {
///         let counters = counters.clone();
///         executor.transact(move |tx| tx.insert(&counters, &Counter { id, n: 0 }))
///     })
///     .collect();
/// for insertion in running {
///     insertion.wait()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Executor {
    inner: seriatim_engine::Executor<Session>,
}

impl ExecutorSession for Session {
    fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    fn reset(&mut self) {
        self.set_options(TransactionOptions::default());
        self.set_prefetch(self.runner.tx.settings().prefetch);
    }
}

impl Executor {
    pub(crate) fn new(database: &Database, threads: usize) -> Result<Executor, OpenError> {
        let sessions = database.clone();
        let inner = seriatim_engine::Executor::new(database.engine(), threads, move || sessions.session())?;
        Ok(Executor { inner })
    }

    /// Has one of the threads run `work` by itself, with a session as [`Database::session`] gives it.
    pub fn run<R: Send + 'static>(&self, work: impl FnOnce(&mut Session) -> R + Send + 'static) -> Running<R> {
        self.inner.run(work)
    }

    /// Has one of the threads run `body` as [`Session::transact`] does.
    pub fn transact<R: Send + 'static>(
        &self,
        mut body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.inner.start(Origin::Closure, move |detached, session, decided, wait| {
            detached.step(&mut session.runner, decided, wait, |core| body(Tx::of(core)))
        })
    }

    /// Has one of the threads run a registered procedure as [`Session::call`] does. Only one that changes something and is run from top
    /// to bottom leaves its thread to others until it is decided: neither one under a protocol that repairs, nor one whose accesses are
    /// checked.
    pub fn call<P: Declared>(
        &self,
        procedure: P,
        arguments: P::Arguments,
    ) -> Running<Result<Committed<P::Output>, TransactError>> {
        self.inner.start(Origin::Procedure, move |detached, session, decided, wait| {
            session.step_declared(procedure, &arguments, detached, decided, wait)
        })
    }
}
