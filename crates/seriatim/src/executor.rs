//! Executors: threads that run transactions for callers that do not wait for each result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use seriatim_engine::{
    ExecutorBody, ExecutorSession, Footprint, Origin, Permit, PredictedAccess, QueueFull, Runner, Step,
};
use seriatim_txn::PartitionSet;

use crate::procedure::call::{InPartitions, Stepping, Straight};
use crate::procedure::registered::CallArguments;
use crate::procedure::registry::{Entry, Registry};
use crate::procedure::{Access, Declared, Keys, Touch, Value};
use crate::{
    Abort, BatchStatistics, Committed, Database, OpenError, Running, Session, TransactError, TransactionOptions, Tx,
};

/// Threads that run transactions in the order of submission. One caller can have many transactions in flight.
///
/// **Batches of decisions.** Some protocols order batches of decisions (`occ-batch`). There a thread does not wait
/// for the decision of a call to [`Executor::transact`] or [`Executor::call`]. It executes further transactions
/// meanwhile, and their decisions form one batch. Their number is limited by the batch size and by the thread's share
/// of the [`workers`](crate::Builder::workers). Where procedures run in pieces, a thread executes one at a time. A
/// thread runs work for [`Executor::run`] alone, after its other transactions have ended.
///
/// An executed transaction does not wait for the next body of its thread. If that body runs for more than about 1 ms,
/// another thread of the executor decides the transaction and returns its result. The other thread must be idle or
/// between two bodies. Only while all threads run long bodies does the transaction wait for the first of them to end.
///
/// **The queue is bounded.** At most [`Builder::executor_queue_max`](crate::Builder::executor_queue_max) calls wait
/// to begin. Beyond the limit, the methods that submit work wait for room; this slows down a caller that is faster
/// than the threads. A caller that must not wait uses [`Executor::try_reserve`]. Work that a body submits to its own
/// executor ignores the limit, as the body could wait for itself.
///
/// **Cancelling and closing.** [`Running::cancel`] ends a call whose result is no longer needed. When the
/// database is [closed](Database::close), calls that have not begun are not run and fail with
/// [`TransactError::Closed`].
///
/// **Waiting inside work.** Work for [`Executor::run`] may wait for work that was submitted before it. Any other work
/// that waits for work of the same executor can wait for ever. All threads may be waiting for work behind them, or a
/// transaction may wait for another that its own thread must decide.
///
/// **Batches of calls.** With [`Builder::batch`](crate::Builder::batch), conflicting calls (one writes a row that
/// another reads or writes) run one after another on one thread. They may run in another order than that of
/// submission. A call can be overtaken by calls of its own batch and of at most 4 later ones. A thread that runs
/// batched calls waits for each decision before the next call.
///
/// **Partitions.** Under a protocol with partitions each thread owns some of them: of `n` threads, partition `p`
/// belongs to thread `p mod n`. A call whose arguments determine its partitions runs on the owner of the first of
/// them. [`Executor::transact_at`] also runs on the owner, all other work on any thread. Calls with an owner and
/// other work do not overtake each other. A thread begins neither while an earlier one of the other kind waits for it.
///
/// A long call only delays other calls of its own partitions. Idle threads take over the calls behind it in other
/// partitions after about 2 ms. Busy threads do so after 128 calls of their own. Owners only improve the use of
/// caches; correctness rests on the locks of partitions. Threads own no partitions if calls are batched.
///
/// Dropping an executor waits until all submitted work has run, unless its own work drops it.
///
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

/// Room for one call in the queue of an executor: [`Executor::try_reserve`]. It has the methods of [`Executor`], which
/// do not wait here. Dropping it releases the room.
#[must_use = "dropping reserved room releases it"]
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

    /// An executor whose threads belong to the caller, such as simulated cores. Each runs one of these bodies until the
    /// executor is dropped.
    pub fn apart(database: &Database, threads: usize) -> Result<(Executor, Vec<ExecutorBody>), OpenError> {
        let (sessions, engine) = (database.clone(), database.engine());
        let (inner, bodies) = seriatim_engine::Executor::apart(engine, threads, move || sessions.session())?;
        Ok((Executor { inner, procedures: database.shared_procedures() }, bodies))
    }

    /// Reserves room in the queue without waiting, for callers that must not wait, such as an event loop.
    ///
    /// # Errors
    /// [`QueueFull`]: there is no room now. The caller may cancel waiting calls or refuse the new one.
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

    /// The number of calls that wait to begin now, reserved room included.
    pub fn queued(&self) -> usize {
        self.inner.queued()
    }

    /// Runs `work` alone on one of the threads, with a session as [`Database::session`] returns it. The answer is what
    /// it returns, or [`TransactError::Cancelled`] or [`TransactError::Closed`] if it is not run.
    pub fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> R + Send + 'static,
    ) -> Running<Result<R, TransactError>> {
        self.reserve().run(work)
    }

    /// Runs `body` on one of the threads as [`Session::transact`] does.
    pub fn transact<R: Send + 'static>(
        &self,
        body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.reserve().transact(body)
    }

    /// Runs `body` on one of the threads as [`Session::transact_with`] does. The wait for a decision counts towards the
    /// age limit.
    pub fn transact_with<R: Send + 'static>(
        &self,
        options: TransactionOptions,
        body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.reserve().transact_with(options, body)
    }

    /// Runs `body` on the thread that owns the partition, as [`AtPartition::transact`](crate::AtPartition::transact)
    /// does.
    pub fn transact_at<R: Send + 'static>(
        &self,
        partition: usize,
        body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.reserve().transact_at(partition, body)
    }

    /// Runs a registered procedure on one of the threads as [`Session::call`] does. While it waits for its decision the
    /// thread runs other calls, if the procedure is not read-only and runs from top to bottom. This excludes protocols
    /// that repair, and procedures whose accesses are checked.
    pub fn call<P: Declared>(
        &self,
        procedure: P,
        arguments: P::Arguments,
    ) -> Running<Result<Committed<P::Output>, TransactError>> {
        self.reserve().call(procedure, arguments)
    }

    /// Runs the registered procedure of this name on one of the threads as [`Session::call_by_name`] does. Otherwise as
    /// [`Executor::call`].
    pub fn call_by_name(&self, name: &str, arguments: Value) -> Running<Result<Committed<Value>, TransactError>> {
        self.reserve().call_by_name(name, arguments)
    }

    /// Counters of batching since the executor was created. All are zero where calls are not batched.
    pub fn batch_statistics(&self) -> BatchStatistics {
        self.inner.batch_statistics()
    }

    /// The accesses that decide where a call runs, as far as its arguments determine them. An error here occurs again
    /// where the call runs, and is reported there.
    fn predicted(
        &self,
        find: impl FnOnce(&Registry) -> Option<Arc<Entry>>,
        told: impl FnOnce(&Entry, &mut dyn FnMut(&dyn CallArguments)),
    ) -> (PredictedAccess, Option<InPartitions>) {
        let (mut predicted, mut known) = (PredictedAccess::Unknown, None);
        let partitions = self.inner.partitions();
        if partitions.is_none() && !self.inner.batches() || !self.inner.is_of_this_process() {
            return (predicted, known);
        }
        let registry = self.procedures.read().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = find(&registry) else { return (predicted, known) };
        drop(registry);
        told(&entry, &mut |call| match partitions {
            None => predicted = footprint(&entry, call).map_or(PredictedAccess::Unknown, PredictedAccess::Rows),
            Some(partitions) => {
                if let Some(Ok(owned)) = entry.owned(&call, partitions) {
                    predicted = PredictedAccess::Partitions(owned);
                    known = Some(InPartitions { entry: Arc::clone(&entry), owned });
                }
            }
        });
        (predicted, known)
    }
}

impl Reserved<'_> {
    /// As [`Executor::run`].
    pub fn run<R: Send + 'static>(
        self,
        work: impl FnOnce(&mut Session) -> R + Send + 'static,
    ) -> Running<Result<R, TransactError>> {
        self.executor.inner.run(self.permit, work)
    }

    /// As [`Executor::transact`].
    pub fn transact<R: Send + 'static>(
        self,
        body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.transact_with(TransactionOptions::default(), body)
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
        _procedure: P,
        arguments: P::Arguments,
    ) -> Running<Result<Committed<P::Output>, TransactError>> {
        // Numbers are taken where the call runs.
        let told = |entry: &Entry, with: &mut dyn FnMut(&dyn CallArguments)| {
            let mut place = None;
            if P::NUMBERS.is_empty()
                && let Ok(arguments) = P::complete(&arguments, &mut |_| Ok(0), &mut place)
            {
                with(&Straight::<P> { handles: entry.handles::<P>(), arguments });
            }
        };
        let (predicted, known) = self.executor.predicted(|registry| registry.find::<P>().cloned(), told);
        let mut place = None;
        self.executor.inner.start(self.permit, Origin::Procedure, predicted, move |detached, session, decided, wait| {
            let stepping = Stepping { known: known.as_ref(), detached, decided, wait };
            session.step_declared::<P, P::Output>((&arguments, &mut place), stepping, |value| value)
        })
    }

    /// As [`Executor::call_by_name`].
    pub fn call_by_name(self, name: &str, arguments: Value) -> Running<Result<Committed<Value>, TransactError>> {
        let told = |entry: &Entry, with: &mut dyn FnMut(&dyn CallArguments)| {
            // Wrong arguments are reported where the call runs, and numbers are taken there.
            if entry.numbers.is_empty()
                && let Ok(call) = entry.registered.arguments(entry, &arguments)
            {
                with(&*call);
            }
        };
        let find = |registry: &Registry| registry.entries.iter().find(|entry| entry.name == name).cloned();
        let (predicted, known) = self.executor.predicted(find, told);
        let name = name.to_owned();
        self.executor.inner.start(self.permit, Origin::Procedure, predicted, move |detached, session, decided, wait| {
            let stepping = Stepping { known: known.as_ref(), detached, decided, wait };
            session.step_named(&name, &arguments, stepping)
        })
    }
}

/// The rows that a call will access, if it can be batched by them.
fn footprint(entry: &Entry, call: &dyn CallArguments) -> Option<Footprint> {
    if !entry.tells_footprint {
        return None;
    }
    let mut footprint = Footprint::default();
    let mut add = |touch: Touch<'_>| {
        // The rows in a range are unknown.
        if let Keys::One(key) = touch.keys {
            footprint.add(touch.table, key, touch.access == Access::Write);
        }
    };
    // A pure function that panics here also panics where the procedure runs, if the procedure calls it.
    let told = catch_unwind(AssertUnwindSafe(|| call.touches(&mut add)));
    told.is_ok().then_some(footprint)
}
