//! Threads that run transactions for callers with better things to do than to wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use seriatim_engine::{
    ExecutorBody, ExecutorSession, Footprint, Origin, Permit, PredictedAccess, QueueFull, Runner, Step,
};
use seriatim_txn::PartitionSet;

use crate::procedure::call::InPartitions;
use crate::procedure::registry::{Entry, Registry};
use crate::procedure::{Access, Declared, Keys, Touch};
use crate::{
    Abort, BatchStatistics, Committed, Database, OpenError, Running, Session, TransactError, TransactionOptions, Tx,
};

/// Threads that run what they are given, first come, first served: one caller can have many transactions under way.
///
/// Under a protocol that orders batches of decisions (`occ-batch`), a thread does not wait for the decisions of what
/// it was given by [`Executor::transact`] and [`Executor::call`]. It executes further transactions meanwhile, up to
/// as many as a batch has and its share of the [`workers`](crate::Builder::workers) allows, and their decisions come
/// together in one batch. Where procedures run in pieces it executes one at a time. What it was given by
/// [`Executor::run`] it runs by itself, when its others have ended.
///
/// A transaction that has been executed does not wait for the body of the next: when its thread runs that for more
/// than some 1 ms, another thread of the executor that has nothing to do, or comes between two bodies, decides it
/// and tells its result. Only where all threads run bodies that take long does it wait for the first of them.
///
/// **The queue is bounded**: [`Builder::executor_queue_max`](crate::Builder::executor_queue_max) calls wait to
/// begin, at most. Beyond that the methods that give it work wait for room, which slows down a caller that is
/// faster than the threads. A caller that must not wait asks with [`Executor::try_reserve`]. What a body gives its
/// own executor is taken beyond the bound: waiting, it could wait for itself.
///
/// A transaction that its caller no longer wants is ended by [`Running::cancel`]. When the database is
/// [closed](Database::close), what has not begun is not run, and told so: [`TransactError::Closed`].
///
/// What is given to [`Executor::run`] may wait for work that was given before it. Any other work that waits for
/// work of the same executor can wait for ever: for what is behind it while all threads wait; and within a
/// transaction, for one that its own thread is to decide.
///
/// Where calls are batched ([`Builder::batch`](crate::Builder::batch)), those of which one writes what another
/// reads or writes are run one after another on one thread, and not in the order in which they came; a call is
/// overtaken by those of its own batch and of at most 4 later ones. A thread that runs batched calls waits for
/// each decision before the next of them.
///
/// Under a protocol with partitions, each thread owns some: of `n` threads, partition `p` belongs to thread `p mod
/// n`. A call whose arguments tell its partitions is run by the owner of the first of them, and so is what is
/// given to [`Executor::transact_at`]; all else by any thread. Neither overtakes the other: no thread begins a
/// call while other work waits that came before it, and no other work while it has such a call. A call that runs
/// for long holds up others of its own partitions only: what waits behind it in others is begun by threads that
/// have nothing to do some 2 ms later, and by those that have after 128 of theirs. Who runs a call is a matter of
/// caches, and never of what is right: partitions have locks. Batches are not formed of calls where threads own
/// partitions, and threads own none where calls are batched.
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

/// Room for one call in the queue of an executor: [`Executor::try_reserve`]. Its methods are those of
/// [`Executor`], and do not wait. Dropping it gives the room back.
#[must_use = "room that is not used is given back"]
pub struct Reserved<'e> {
    executor: &'e Executor,
    permit: Permit,
}

impl std::fmt::Debug for Reserved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reserved").finish_non_exhaustive()
    }
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

    /// One whose threads are the caller's, as simulated cores are: each runs one of these bodies, until the executor
    /// is dropped.
    pub fn apart(database: &Database, threads: usize) -> Result<(Executor, Vec<ExecutorBody>), OpenError> {
        let (sessions, engine) = (database.clone(), database.engine());
        let (inner, bodies) = seriatim_engine::Executor::apart(engine, threads, move || sessions.session())?;
        Ok((Executor { inner, procedures: database.shared_procedures() }, bodies))
    }

    /// Room in the queue, if there is some now: the way in for callers that must not wait, such as those of an event
    /// loop.
    ///
    /// # Errors
    /// [`QueueFull`]: there is none. What waits for an answer may be cancelled, or the call refused.
    ///
    /// ```
    /// # use seriatim::{Abort, Database, QueueFull};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().executor_queue_max(1).open()?;
    /// let executor = db.executor(1)?;
    /// let room = executor.try_reserve()?;
    /// assert!(matches!(executor.try_reserve(), Err(QueueFull { most: 1, .. })));
    /// let answer = room.transact(|_| Ok(7));
    /// assert_eq!(*answer.wait()?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_reserve(&self) -> Result<Reserved<'_>, QueueFull> {
        self.inner.try_reserve().map(|permit| Reserved { executor: self, permit })
    }

    fn reserve(&self) -> Reserved<'_> {
        Reserved { executor: self, permit: self.inner.reserve() }
    }

    /// How many calls wait to begin now, with the room that is reserved.
    pub fn queued(&self) -> usize {
        self.inner.queued()
    }

    /// Has one of the threads run `work` by itself, with a session as [`Database::session`] gives it.
    pub fn run<R: Send + 'static>(&self, work: impl FnOnce(&mut Session) -> R + Send + 'static) -> Running<R> {
        self.reserve().run(work)
    }

    /// Has one of the threads run `body` as [`Session::transact`] does.
    pub fn transact<R: Send + 'static>(
        &self,
        body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.reserve().transact(body)
    }

    /// Has one of the threads run `body` as [`Session::transact_with`] does. The age that it may have counts its
    /// waiting to be decided.
    pub fn transact_with<R: Send + 'static>(
        &self,
        options: TransactionOptions,
        body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.reserve().transact_with(options, body)
    }

    /// Has the thread that owns the partition run `body` as [`AtPartition::transact`](crate::AtPartition::transact)
    /// does.
    pub fn transact_at<R: Send + 'static>(
        &self,
        partition: usize,
        body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.reserve().transact_at(partition, body)
    }

    /// Has one of the threads run a registered procedure as [`Session::call`] does. Only one that changes something
    /// and is run from top to bottom leaves its thread to others until it is decided: neither one under a protocol
    /// that repairs, nor one whose accesses are checked.
    pub fn call<P: Declared>(
        &self,
        procedure: P,
        arguments: P::Arguments,
    ) -> Running<Result<Committed<P::Output>, TransactError>> {
        self.reserve().call(procedure, arguments)
    }

    /// What batching has done since the executor was made. All zero where calls are not batched.
    pub fn batch_statistics(&self) -> BatchStatistics {
        self.inner.batch_statistics()
    }

    /// What decides where a call runs, as far as its arguments tell. What goes wrong here goes wrong again where it
    /// runs, and is told there.
    fn predicted<P: Declared>(&self, arguments: &P::Arguments) -> (PredictedAccess, Option<InPartitions>) {
        let partitions = self.inner.partitions();
        if partitions.is_none() && !self.inner.batches() {
            return (PredictedAccess::Unknown, None);
        }
        let registry = self.procedures.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = registry.find::<P>().cloned() else { return (PredictedAccess::Unknown, None) };
        drop(registry);
        let Some(partitions) = partitions else {
            return (footprint::<P>(&entry, arguments).map_or(PredictedAccess::Unknown, PredictedAccess::Rows), None);
        };
        match entry.owned::<P>(arguments, partitions) {
            Some(Ok(owned)) => (PredictedAccess::Partitions(owned), Some(InPartitions { entry, owned })),
            Some(Err(_)) | None => (PredictedAccess::Unknown, None),
        }
    }
}

impl Reserved<'_> {
    /// As [`Executor::run`].
    pub fn run<R: Send + 'static>(self, work: impl FnOnce(&mut Session) -> R + Send + 'static) -> Running<R> {
        self.executor.inner.run(self.permit, work)
    }

    /// As [`Executor::transact`].
    pub fn transact<R: Send + 'static>(
        self,
        mut body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.executor.inner.start(
            self.permit,
            Origin::Closure,
            PredictedAccess::Unknown,
            move |detached, session, decided, wait| {
                detached.step(&mut session.runner, decided, wait, |core| body(Tx::of(core)))
            },
        )
    }

    /// As [`Executor::transact_with`].
    pub fn transact_with<R: Send + 'static>(
        self,
        options: TransactionOptions,
        mut body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.executor.inner.start(
            self.permit,
            Origin::Closure,
            PredictedAccess::Unknown,
            move |detached, session, decided, wait| {
                detached.step(&mut session.with(&options).0.runner, decided, wait, |core| body(Tx::of(core)))
            },
        )
    }

    /// As [`Executor::transact_at`].
    pub fn transact_at<R: Send + 'static>(
        self,
        partition: usize,
        mut body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        let has = self.executor.inner.partitions().is_some_and(|partitions| partition < partitions.count());
        let predicted =
            if has { PredictedAccess::Partitions(PartitionSet::one(partition)) } else { PredictedAccess::Unknown };
        self.executor.inner.start(self.permit, Origin::Closure, predicted, move |_, session, _, wait| {
            if wait { Step::Done(session.at(partition).run(&mut body)) } else { Step::Stalled }
        })
    }

    /// As [`Executor::call`].
    pub fn call<P: Declared>(
        self,
        procedure: P,
        arguments: P::Arguments,
    ) -> Running<Result<Committed<P::Output>, TransactError>> {
        let (predicted, known) = self.executor.predicted::<P>(&arguments);
        self.executor.inner.start(self.permit, Origin::Procedure, predicted, move |detached, session, decided, wait| {
            session.step_declared(procedure, &arguments, known.as_ref(), detached, decided, wait)
        })
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
