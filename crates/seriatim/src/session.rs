//! Sessions: where transactions are run and retried.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::{Epoch, Rng, Stamp};
use seriatim_txn::{Cause, Mode, Reason};

use crate::database::Inner;
use crate::durability::{self, OpenHandle, Pending};
use crate::error::{Abort, AbortKind};
use crate::procedure::Schedule;
use crate::procedure::call::Called;
use crate::procedure::check::Judge;
use crate::procedure::shape::Steps;
use crate::transaction::{SnapshotTransaction, Transaction};
use crate::tx::Origin;
use crate::{ReadTx, TransactError, TransactionOptions, Tx};

/// Runs transactions, one at a time. Sessions are many, cheap, and may move between threads.
pub struct Session {
    pub(crate) runner: Runner,
    pub(crate) called: Called,
    /// What was called, if it is to be told.
    #[cfg(feature = "trial")]
    pub(crate) told: Option<Vec<crate::trial::Call>>,
}

/// The retry loop.
pub(crate) struct Runner {
    pub(crate) tx: Tx,
    rng: Rng,
    /// Of transactions that have none of their own.
    options: TransactionOptions,
    /// The database, for results that wait.
    waiting: Arc<durability::Shared>,
}

/// How an attempt failed.
enum Failure {
    Conflict(Cause),
    /// The body's.
    Abort(Abort),
    /// The body's.
    Panic(Box<dyn Any + Send>),
}

/// Proof of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Orders the transaction among those it conflicts with; of a transaction that wrote nothing: the newest stamp it read.
    pub stamp: Stamp,
}

impl Receipt {
    /// The epoch with which the transaction, or what it read, becomes durable: [`Database::is_durable`](crate::Database::is_durable).
    pub fn epoch(&self) -> Epoch {
        self.stamp.epoch()
    }
}

/// What a committed transaction returned.
#[derive(Clone, Copy, Debug)]
pub struct Committed<R> {
    /// The body's value.
    pub value: R,
    /// Proof of the commit.
    pub receipt: Receipt,
    /// Attempts it took; 1 if nothing was in the way.
    pub attempts: u32,
}

impl<R> Committed<R> {
    /// The body's value.
    pub fn into_value(self) -> R {
        self.value
    }
}

impl Committed<()> {
    /// With what the body left for its caller.
    pub(crate) fn with<R>(self, value: Option<R>) -> Committed<R> {
        let Committed { receipt, attempts, .. } = self;
        Committed { value: value.expect("a body that succeeds leaves its value"), receipt, attempts }
    }
}

impl<R> std::ops::Deref for Committed<R> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.value
    }
}

impl Session {
    pub(crate) fn new(inner: Arc<Inner>, open: Arc<OpenHandle>, number: usize) -> Session {
        let rng = Rng::from_seed(inner.options.seed ^ (number as u64) << 32);
        let waiting = Arc::new(durability::Shared::new(open, Arc::clone(&inner)));
        Session {
            runner: Runner { tx: Tx::new(inner, number), rng, options: TransactionOptions::default(), waiting },
            called: Called::default(),
            #[cfg(feature = "trial")]
            told: None,
        }
    }

    /// Whether the protocol takes a transaction without a plan.
    #[inline]
    fn admit(&self, mode: Mode) -> Result<(), TransactError> {
        match self.runner.tx.takes_unplanned(mode) {
            true => Ok(()),
            false => Err(TransactError::NeedsPlan { protocol: self.runner.tx.inner().engine.info().name }),
        }
    }

    /// Runs `body` as one serializable transaction and commits. The body may run several times: it must not have effects
    /// outside the transaction that a repetition would spoil. [`ReadTx::attempt`] tells which run it is.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// let mut session = db.session();
    /// session.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// let n = session.transact(|tx| {
    ///     tx.update(&counters, &7, |counter| {
    ///         counter.set_n(counter.n() + 1);
    ///         counter.n()
    ///     })
    /// })?;
    /// assert_eq!((*n, n.attempts), (Some(42), 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The body's own abort, a duplicate key, or a conflict that outlasted the retries.
    ///
    /// # Panics
    /// If the body panics on values that held together; a panic on values that did not is a conflict like any other.
    pub fn transact<R>(&mut self, body: impl FnMut(&Tx) -> Result<R, Abort>) -> Result<Committed<R>, TransactError> {
        self.admit(Mode::ReadWrite)?;
        let mut result = self.runner.run(Mode::ReadWrite, Origin::Closure, body);
        self.runner.answer(&mut result);
        result
    }

    /// As [`Session::transact`], without waiting until the result is durable: the next transaction can begin meanwhile. A panic of
    /// the body does wait.
    pub fn submit<R>(&mut self, body: impl FnMut(&Tx) -> Result<R, Abort>) -> Pending<R> {
        self.runner.tx.renew();
        let admitted = self.admit(Mode::ReadWrite);
        let result = admitted.and_then(|()| self.runner.run(Mode::ReadWrite, Origin::Closure, body));
        self.runner.pending(result)
    }

    /// Runs `body` as a read-only transaction: on a snapshot that never aborts where the protocol gives them
    /// ([`crate::protocols`]), else validated and retried. A snapshot shows all that has committed; once the log has stopped
    /// ([`LogStatistics::stopped`](crate::LogStatistics::stopped)), the durable epoch. So it does while the disk is full or has not
    /// flushed for 100 ms, rather than wait for it: what was answered is there, what was submitted and is not durable is not. One that is
    /// under way then may run again.
    ///
    /// # Errors
    /// As [`Session::transact`]; no conflicts where the protocol gives snapshots.
    ///
    /// # Panics
    /// As [`Session::transact`].
    pub fn snapshot<R>(
        &mut self,
        mut body: impl FnMut(&ReadTx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.admit(Mode::ReadOnly)?;
        let mut result = self.runner.run(Mode::ReadOnly, Origin::Closure, |tx| body(tx));
        if self.runner.tx.is_overtaken() {
            result = self.runner.run(Mode::ReadOnly, Origin::Closure, |tx| body(tx));
        }
        self.runner.answer(&mut result);
        result
    }

    /// How long calls of this session wait until their results are durable, if they are not given their own
    /// ([`TransactionOptions::wait_max`]); at first [`Builder::wait_max`](crate::Builder::wait_max). `None`: for as long as it takes.
    pub fn set_wait_max(&mut self, wait: Option<Duration>) {
        self.set_options(self.options().wait_max(wait.unwrap_or(Duration::MAX)));
    }

    /// The bounds of this session's transactions, procedures included, that are not given their own. At first the database's.
    pub fn set_options(&mut self, options: TransactionOptions) {
        self.runner.options = options;
        self.runner.bound(&options);
    }

    /// The bounds of this session's transactions that are not given their own.
    pub fn options(&self) -> TransactionOptions {
        self.runner.options
    }

    /// As [`Session::transact`], with bounds of its own.
    ///
    /// # Errors
    /// As [`Session::transact`].
    ///
    /// # Panics
    /// As [`Session::transact`].
    pub fn transact_with<R>(
        &mut self,
        options: &TransactionOptions,
        body: impl FnMut(&Tx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.with(options).0.transact(body)
    }

    /// As [`Session::submit`], with bounds of its own.
    pub fn submit_with<R>(
        &mut self,
        options: &TransactionOptions,
        body: impl FnMut(&Tx) -> Result<R, Abort>,
    ) -> Pending<R> {
        self.with(options).0.submit(body)
    }

    /// As [`Session::snapshot`], with bounds of its own.
    ///
    /// # Errors
    /// As [`Session::snapshot`].
    ///
    /// # Panics
    /// As [`Session::snapshot`].
    pub fn snapshot_with<R>(
        &mut self,
        options: &TransactionOptions,
        body: impl FnMut(&ReadTx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.with(options).0.snapshot(body)
    }

    /// This session with other bounds, until that is dropped.
    fn with(&mut self, options: &TransactionOptions) -> WithOptions<'_> {
        self.runner.bound(&options.or(&self.runner.options));
        WithOptions(self)
    }

    /// Whether procedures called through this session fetch what their arguments name before they need it. At first as
    /// [`Builder::prefetch`](crate::Builder::prefetch) says. For measurements: results are the same.
    pub fn set_prefetch(&mut self, wanted: bool) {
        self.runner.tx.set_prefetching(wanted);
    }

    /// Opens a transaction to be committed explicitly; dropping it rolls back. What it shows before it is committed is not
    /// acknowledged: a power cut may take back what it was read from. The rows that it gives out are copies, which count against the
    /// memory limit until it is dropped: a closure reads many rows at less cost.
    ///
    /// # Errors
    /// When every worker is busy.
    pub fn begin(&mut self) -> Result<Transaction<'_>, TransactError> {
        self.begin_with(&TransactionOptions::default())
    }

    /// As [`Session::begin`], with bounds of its own.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub fn begin_with(&mut self, options: &TransactionOptions) -> Result<Transaction<'_>, TransactError> {
        self.admit(Mode::ReadWrite)?;
        self.with(options).0.runner.tx.open(Mode::ReadWrite, 1, Origin::Explicit)?;
        Ok(Transaction::new(&mut self.runner))
    }

    /// Opens a read-only transaction, as [`Session::snapshot`] does; dropping it ends it.
    ///
    /// # Errors
    /// When every worker is busy.
    pub fn begin_snapshot(&mut self) -> Result<SnapshotTransaction<'_>, TransactError> {
        self.begin_snapshot_with(&TransactionOptions::default())
    }

    /// As [`Session::begin_snapshot`], with bounds of its own.
    ///
    /// # Errors
    /// As [`Session::begin_snapshot`].
    pub fn begin_snapshot_with(
        &mut self,
        options: &TransactionOptions,
    ) -> Result<SnapshotTransaction<'_>, TransactError> {
        self.admit(Mode::ReadOnly)?;
        self.with(options).0.runner.tx.open(Mode::ReadOnly, 1, Origin::Explicit)?;
        Ok(SnapshotTransaction::new(&mut self.runner))
    }
}

/// A session whose next transactions have other bounds. Dropped, it has its own again, also when a body panics.
struct WithOptions<'s>(&'s mut Session);

impl Drop for WithOptions<'_> {
    fn drop(&mut self) {
        let runner = &self.0.runner;
        runner.bound(&runner.options);
    }
}

impl Runner {
    /// The transactions opened from now on have these bounds.
    fn bound(&self, options: &TransactionOptions) {
        self.tx.set_bounds(options.bounds(&self.tx.inner().options));
    }

    /// Waits until the result may leave; the reason instead of it if it may not.
    // Where it lies: results can be large.
    #[inline]
    pub(crate) fn answer<R>(&self, result: &mut Result<Committed<R>, TransactError>) {
        if let Err(error) = self.tx.unseal() {
            *result = Err(error);
        }
    }

    /// The result, sealed until it may leave.
    #[inline]
    pub(crate) fn pending<R>(&self, result: Result<Committed<R>, TransactError>) -> Pending<R> {
        Pending::new(result, self.tx.seal(), self.tx.wait_max(), &self.waiting)
    }

    #[inline]
    pub(crate) fn run<R>(
        &mut self,
        mode: Mode,
        origin: Origin,
        mut body: impl FnMut(&Tx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        let mut attempts = 1;
        self.tx.renew();
        loop {
            self.tx.open(mode, attempts, origin)?;
            let failure = match catch_unwind(AssertUnwindSafe(|| body(&self.tx))) {
                Ok(Ok(value)) => match self.tx.commit() {
                    Ok(stamp) => return Ok(Committed { value, receipt: Receipt { stamp }, attempts }),
                    Err(cause) => Failure::Conflict(cause),
                },
                Ok(Err(abort)) => Failure::Abort(abort),
                Err(panic) => Failure::Panic(panic),
            };
            self.failed(failure, &mut attempts)?;
        }
    }

    /// As [`Runner::run`], compiled once: where a call through a pointer does not matter. The body leaves its value with the caller.
    pub(crate) fn run_dyn(
        &mut self,
        mode: Mode,
        origin: Origin,
        body: &mut dyn FnMut(&Tx) -> Result<(), Abort>,
    ) -> Result<Committed<()>, TransactError> {
        self.run(mode, origin, body)
    }

    /// As [`Runner::run_judged`], without a judge.
    #[cfg(test)]
    pub(crate) fn run_scheduled<R>(
        &mut self,
        steps: Steps<'_>,
        mut body: impl FnMut(&mut Tx, &mut Schedule<'_>) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        let mut value = None;
        let body = &mut |tx: &mut Tx, schedule: &mut Schedule<'_>| {
            value = Some(body(tx, schedule)?);
            Ok(())
        };
        Ok(self.run_judged(steps, None, body)?.with(value))
    }

    /// As [`Runner::run_dyn`], where the schedule decides when to commit, and a judge, if there is one, looks at each pass.
    pub(crate) fn run_judged(
        &mut self,
        steps: Steps<'_>,
        judge: Option<&Judge<'_>>,
        body: &mut dyn FnMut(&mut Tx, &mut Schedule<'_>) -> Result<(), Abort>,
    ) -> Result<Committed<()>, TransactError> {
        let mut attempts = 1;
        self.tx.renew();
        loop {
            self.tx.open(Mode::ReadWrite, attempts, Origin::Procedure)?;
            let mut schedule = Schedule::new(steps, judge, self.tx.inner().options.retry, &mut self.rng);
            let result = catch_unwind(AssertUnwindSafe(|| body(&mut self.tx, &mut schedule)));
            let (committed, repeated) = (schedule.committed(), schedule.repeated());
            let failure = match (result, committed) {
                (Ok(Ok(value)), Some(stamp)) if !self.tx.is_open() => {
                    return Ok(Committed { value, receipt: Receipt { stamp }, attempts: attempts + repeated });
                }
                (Ok(Ok(())), _) => panic!("a scheduled procedure ended before its schedule"),
                (Ok(Err(abort)), None) => Failure::Abort(abort),
                (Ok(Err(abort)), Some(_)) => {
                    let Some(cause) = self.tx.stopped().or(abort.cause()) else {
                        panic!("a chain was left after its first piece: {abort}")
                    };
                    self.tx.roll_back(Some(cause));
                    return Err(TransactError::Unfinished { cause });
                }
                (Err(panic), None) if self.tx.is_open() => Failure::Panic(panic),
                // Something of it is committed: it must not begin again.
                (Err(panic), _) => {
                    self.tx.roll_back_user();
                    self.tx.unseal()?;
                    resume_unwind(panic)
                }
            };
            self.failed(failure, &mut attempts)?;
        }
    }

    /// An attempt failed: pauses before the next, or reports that there is none.
    #[cold]
    #[inline(never)]
    fn failed(&mut self, failure: Failure, attempts: &mut u32) -> Result<(), TransactError> {
        let cause = match failure {
            Failure::Conflict(cause) => cause,
            Failure::Abort(abort) => match self.aborted(&abort) {
                Ok(error) => return Err(error),
                Err(cause) => cause,
            },
            Failure::Panic(panic) => self.panicked(panic)?,
        };
        self.conflicted(cause, attempts)
    }

    /// The body panicked. Promise (g): that is its own doing only if what it read held together, else the conflict. A panic is a
    /// result: it leaves when what it may tell of is durable.
    fn panicked(&mut self, panic: Box<dyn Any + Send>) -> Result<Cause, TransactError> {
        match self.tx.validate() {
            Ok(()) => {
                self.tx.roll_back_user();
                self.tx.unseal()?;
                resume_unwind(panic)
            }
            Err(cause) => Ok(cause),
        }
    }

    /// The body returned an abort: the error to report, or the conflict that makes it void (promise g).
    fn aborted(&mut self, abort: &Abort) -> Result<TransactError, Cause> {
        if let Some(cause) = self.tx.stopped().or(abort.cause()) {
            return Err(cause);
        }
        self.tx.validate()?;
        let error = match abort.kind() {
            AbortKind::User | AbortKind::Stopped(_) => self.tx.user_error(),
            _ => self.tx.error_of(abort),
        };
        self.tx.roll_back_user();
        Ok(error)
    }

    /// Ends a refuted attempt and pauses before the next; or reports that there is no next.
    fn conflicted(&mut self, cause: Cause, attempts: &mut u32) -> Result<(), TransactError> {
        let last = self.tx.conflict(cause);
        self.tx.roll_back(Some(cause));
        match cause.reason {
            Reason::OutOfMemory => return Err(self.tx.no_room()),
            Reason::TooOld => return Err(TransactError::TooOld),
            Reason::ForeignHandle => return Err(TransactError::ForeignHandle),
            Reason::LogStopped => return Err(self.tx.log_refused()),
            reason if !reason.is_conflict() => return Err(TransactError::Unsupported(cause)),
            _ => {}
        }
        let policy = self.tx.inner().options.retry;
        if *attempts >= policy.attempts_max {
            return Err(TransactError::Conflict { last, attempts: *attempts });
        }
        *attempts += 1;
        policy.pause(*attempts, &mut self.rng);
        Ok(())
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
