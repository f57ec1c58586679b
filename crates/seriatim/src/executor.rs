//! Threads that run transactions for callers with better things to do than to wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use seriatim_engine::{ExecutorBody, ExecutorSession, Footprint, Foreseen, Origin, Runner, Step};
use seriatim_txn::PartitionSet;

use crate::procedure::call::InPartitions;
use crate::procedure::registry::{Entry, Registry};
use crate::procedure::{Access, Declared, Keys, Touch};
use crate::{
    Abort, BatchStatistics, Committed, Database, OpenError, Running, Session, TransactError, TransactionOptions, Tx,
};

/// Threads that run what they are given, first come, first served: one caller can have many transactions under way.
///
/// Where decisions are queued ([`Builder::queue_decisions`](crate::Builder::queue_decisions)), a thread does not wait for the decisions
/// of what it was given by [`Executor::transact`] and [`Executor::call`]: it executes further transactions meanwhile, up to as many as
/// a batch has and its share of the [`workers`](crate::Builder::workers) allows, and their decisions come together in one batch; but one
/// at a time where procedures run in pieces. What it was given by [`Executor::run`] it runs by itself, when its others have ended.
///
/// What is given to [`Executor::run`] may wait for work that was given before it. Any other work that waits for work of the same executor
/// can wait for ever: for what is behind it while all threads wait; and within a transaction, for one that its own thread is to decide.
///
/// Where calls are batched ([`Builder::batch`](crate::Builder::batch)), those of which one writes what another reads or writes are run
/// one after another on one thread, and not in the order in which they came; a call is overtaken by those of its own batch and of at
/// most 4 later ones. A thread that runs batched calls waits for each decision before the next of them.
///
/// Under a protocol with partitions, each thread owns some: of `n` threads, partition `p` belongs to thread `p mod n`. A call whose arguments tell its
/// partitions is run by the owner of the first of them, and so is what is given to [`Executor::transact_at`]; all else by any thread. Neither overtakes
/// the other: no thread begins a call while other work waits that came before it, and no other work while it has such a call. A call that runs for
/// long holds up others of its own partitions only: what waits behind it in others is begun by threads that have nothing to do some 2 ms
/// later, and by those that have after 128 of theirs. Who runs a call is a matter of caches, and never of what is right: partitions have locks.
/// Batches are not formed of calls where threads own partitions, and threads own none where calls are batched.
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
pub struct Executor {
    inner: seriatim_engine::Executor<Session>,
    procedures: Arc<RwLock<Registry>>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Executor").field(&self.inner).finish()
    }
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
        let (executor, bodies) = Executor::apart(database, threads)?;
        Ok(Executor { inner: executor.inner.spawn(bodies)?, ..executor })
    }

    /// One whose threads are the caller's, as simulated cores are: each runs one of these bodies, until the executor is dropped.
    pub fn apart(database: &Database, threads: usize) -> Result<(Executor, Vec<ExecutorBody>), OpenError> {
        let (sessions, engine) = (database.clone(), database.engine());
        let (inner, bodies) = seriatim_engine::Executor::apart(engine, threads, move || sessions.session())?;
        Ok((Executor { inner, procedures: database.shared_procedures() }, bodies))
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
        self.inner.start(Origin::Closure, Foreseen::Nothing, move |detached, session, decided, wait| {
            detached.step(&mut session.runner, decided, wait, |core| body(Tx::of(core)))
        })
    }

    /// Has one of the threads run `body` as [`Session::transact_with`] does. The age that it may have counts its waiting to be decided.
    pub fn transact_with<R: Send + 'static>(
        &self,
        options: TransactionOptions,
        mut body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.inner.start(Origin::Closure, Foreseen::Nothing, move |detached, session, decided, wait| {
            detached.step(&mut session.with(&options).0.runner, decided, wait, |core| body(Tx::of(core)))
        })
    }

    /// Has the thread that owns the partition run `body` as [`AtPartition::transact`](crate::AtPartition::transact) does.
    pub fn transact_at<R: Send + 'static>(
        &self,
        partition: usize,
        mut body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        let has = self.inner.partitions().is_some_and(|partitions| partition < partitions.count());
        let foreseen = if has { Foreseen::Partitions(PartitionSet::one(partition)) } else { Foreseen::Nothing };
        self.inner.start(Origin::Closure, foreseen, move |_, session, _, wait| {
            if wait { Step::Done(session.at(partition).run(&mut body)) } else { Step::Stalled }
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
        let (foreseen, known) = self.foreseen::<P>(&arguments);
        self.inner.start(Origin::Procedure, foreseen, move |detached, session, decided, wait| {
            session.step_declared(procedure, &arguments, known.as_ref(), detached, decided, wait)
        })
    }

    /// What batching has done since the executor was made. All zero where calls are not batched.
    pub fn batch_statistics(&self) -> BatchStatistics {
        self.inner.batch_statistics()
    }

    /// What decides where a call runs, as far as its arguments tell. What goes wrong here goes wrong again where it runs, and is told there.
    fn foreseen<P: Declared>(&self, arguments: &P::Arguments) -> (Foreseen, Option<InPartitions>) {
        let partitions = self.inner.partitions();
        if partitions.is_none() && !self.inner.batches() {
            return (Foreseen::Nothing, None);
        }
        let registry = self.procedures.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = registry.find::<P>().cloned() else { return (Foreseen::Nothing, None) };
        drop(registry);
        let Some(partitions) = partitions else {
            return (footprint::<P>(&entry, arguments).map_or(Foreseen::Nothing, Foreseen::Rows), None);
        };
        match entry.owned::<P>(arguments, partitions) {
            Some(Ok(owned)) => (Foreseen::Partitions(owned), Some(InPartitions { entry, owned })),
            Some(Err(_)) | None => (Foreseen::Nothing, None),
        }
    }
}

/// The rows that a call will touch, if it can be batched by them.
fn footprint<P: Declared>(entry: &Entry, arguments: &P::Arguments) -> Option<Footprint> {
    if !entry.tells_footprint {
        return None;
    }
    let mut footprint = Footprint::default();
    let mut add = |touch: Touch<'_>| {
        // What a range holds is not known.
        if let Keys::One(key) = touch.keys {
            footprint.add(touch.table, key, touch.access == Access::Write);
        }
    };
    // A pure function that panics does so where the procedure runs, if it gets there.
    let told = catch_unwind(AssertUnwindSafe(|| P::footprint(entry.handles::<P>(), arguments, &mut add)));
    told.is_ok().then_some(footprint)
}
