//! The retry loop: runs bodies on encoded keys as transactions, one at a time.

use std::any::Any;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::{Epoch, Rng, Tid};
use seriatim_htm::{RegionStatistics, Whole};
use seriatim_txn::{Cause, Fault, Mode, Owned, PartitionSet, Partitions, Phase, Reason};

use crate::durability::{self, OpenHandle, Pending, Persistence};
use crate::engine::Inner;
use crate::error::{Abort, SchemaError};
use crate::evolution::{self, TableChange};
use crate::retry::{self, pause_before};
use crate::table::TableSet;
use crate::tx::{CommittedChanges, Origin, TxCore};
use crate::{Engine, TransactError, TransactionOptions};

/// The pause before the next attempt of a transaction on a table that is being changed.
const TABLE_CHANGING_PAUSE: Duration = Duration::from_millis(1);

/// Runs transactions, one at a time, and retries them after conflicts.
pub struct Runner {
    /// The transaction, open or not.
    pub tx: TxCore,
    /// For the jitter of retries.
    pub rng: Rng,
    /// The bounds of transactions without bounds of their own.
    options: TransactionOptions,
    /// The database, for pending results.
    waiting: Arc<durability::Shared>,
    /// Runs procedures whole, if the protocol wants that; and its region counts when they were last noted.
    whole: Option<(Whole, RegionStatistics)>,
    /// The partitions of the database, if its protocol has any, and how long an attempt waits for one.
    partitions: Option<(Arc<Partitions>, Duration)>,
    /// The partitions of the next call, if they were named. Otherwise procedures take all.
    reach: Option<PartitionSet>,
    /// Attempts after the first, of all transactions.
    pub(crate) retries: u64,
}

/// Failed attempts of a transaction that locks what it accesses, after which it runs exclusively. They fail where
/// others insert into ranges that it reads, and under protocols that cannot lock so.
pub(crate) const LOCKING_ATTEMPTS: u32 = 40;

/// How an attempt failed.
pub enum Failure {
    /// A conflict, or another cause for which the attempt cannot continue.
    Conflict(Cause),
    /// The body returned an abort.
    Abort(Abort),
    /// The body panicked.
    Panic(Box<dyn Any + Send>),
}

/// Proof of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Orders the transaction among those that it conflicts with. If it wrote nothing: the newest TID that it read.
    pub tid: Tid,
    /// The number of the opened database.
    pub(crate) database: u64,
    pub(crate) snapshot: Option<NonZeroU64>,
}

impl Receipt {
    /// The epoch with which the transaction, or what it read, becomes durable: `Database::is_durable`.
    pub fn epoch(&self) -> Epoch {
        self.tid.epoch()
    }

    /// A snapshot's number, if durability is by snapshot. For a read-only transaction it is the snapshot that it
    /// read. Otherwise it is the first snapshot that shows the transaction and everything that it read.
    ///
    /// The next recovery keeps the transaction if its snapshot
    /// ([`Recovery::durable_snapshot`](crate::Recovery::durable_snapshot)) is not below this one. Later snapshots have
    /// greater numbers, whatever was lost. `None` elsewhere, and for a read-write transaction that read nothing.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot.map(NonZeroU64::get)
    }
}

/// The result of a committed transaction.
#[derive(Clone, Copy, Debug)]
pub struct Committed<R> {
    /// The body's value.
    pub value: R,
    /// Proof of the commit.
    pub receipt: Receipt,
    /// Attempts that it took; 1 without conflicts.
    pub attempts: u32,
}

impl<R> Committed<R> {
    /// A commit in partitions with databases of their own. Its receipt is valid for no open database.
    pub fn elsewhere(value: R) -> Committed<R> {
        Committed { value, receipt: Receipt { tid: Tid::ZERO, database: u64::MAX, snapshot: None }, attempts: 1 }
    }

    /// The body's value.
    pub fn into_value(self) -> R {
        self.value
    }
}

impl<R> std::ops::Deref for Committed<R> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.value
    }
}

/// Adds the value of a body that left it with its caller.
///
/// # Panics
/// If there is no value.
pub fn with_value<R>(committed: Committed<()>, value: Option<R>) -> Committed<R> {
    let Committed { receipt, attempts, .. } = committed;
    Committed { value: value.expect("a body that succeeds leaves its value"), receipt, attempts }
}

/// One attempt that has begun: the body and the commit.
#[inline(always)]
fn attempt(tx: &mut TxCore, body: &mut impl FnMut(&mut TxCore) -> Result<(), Abort>) -> Result<Tid, Failure> {
    match catch_unwind(AssertUnwindSafe(|| body(tx))) {
        Ok(Ok(())) => tx.commit().map_err(Failure::Conflict),
        Ok(Err(abort)) => Err(Failure::Abort(abort)),
        Err(panic) => Err(Failure::Panic(panic)),
    }
}

/// As [`attempt`], isolated from all other attempts that run so.
#[cold]
#[inline(never)]
fn attempt_whole(
    (whole, noted): &mut (Whole, RegionStatistics),
    tx: &mut TxCore,
    mut body: &mut dyn FnMut(&mut TxCore) -> Result<(), Abort>,
) -> Result<Tid, Failure> {
    // The counts of the previous attempt: only a worker can add them, and after this attempt the transaction
    // has no worker.
    let counted = whole.statistics();
    tx.begin_whole(counted.since(noted));
    *noted = counted;
    let mut ended = None;
    whole.run(&mut || ended = Some(attempt(tx, &mut body)));
    ended.expect("what is run whole runs to its end")
}

/// Takes the partitions of an attempt that has begun; an error if other attempts hold them for too long.
#[inline(never)]
fn own<'p>(
    partitions: &'p Partitions,
    wait: Duration,
    reach: PartitionSet,
    tx: &TxCore,
) -> Result<Option<Owned<'p>>, Cause> {
    let is_short = tx.worker().core().injects(Fault::FewPartitions);
    let owned = partitions.own(if is_short { reach.lowest() } else { reach }, wait);
    let owned = owned.ok_or(Cause { phase: Phase::Lock, reason: Reason::WaitTimeout })?;
    tx.begin_in(if is_short { PartitionSet::ALL } else { reach }, reach.len_of(partitions.count()));
    Ok(Some(owned))
}

impl Runner {
    pub(crate) fn new(inner: Arc<Inner>, open: Arc<OpenHandle>, number: usize) -> Runner {
        let rng = Rng::from_seed(inner.options.seed ^ (number as u64) << 32);
        let waiting = Arc::new(durability::Shared::new(open, Arc::clone(&inner)));
        let whole = inner.protocol.whole().map(|whole| (whole, RegionStatistics::default()));
        let partitions = inner.protocol.partitions();
        let options = TransactionOptions::default();
        Runner { tx: TxCore::new(inner, number), rng, options, waiting, whole, partitions, reach: None, retries: 0 }
    }

    /// A runner for work that is no application's: an application's bounds for transactions do not apply to it.
    pub(crate) fn internal(inner: &Arc<Inner>, open: &Arc<OpenHandle>, number: usize) -> Runner {
        let mut runner = Runner::new(Arc::clone(inner), Arc::clone(open), number);
        runner.set_options(TransactionOptions::new().age_max(Duration::MAX));
        runner
    }

    /// Whether procedures run whole, so that their attempts cannot end in parts.
    pub fn runs_whole(&self) -> bool {
        self.whole.is_some() || self.partitions.is_some()
    }

    /// The partitions of the database, if it has any.
    #[inline]
    pub fn partitions(&self) -> Option<&Partitions> {
        self.partitions.as_ref().map(|(partitions, _)| &**partitions)
    }

    /// The next transaction runs alone in these partitions, and accesses no others. An empty set: it runs as if
    /// there were no partitions.
    #[inline]
    pub fn reach(&mut self, partitions: PartitionSet) {
        self.reach = Some(partitions);
    }

    /// Refuses what needs the threads of the process that opened the database.
    ///
    /// # Errors
    /// [`TransactError::Forked`].
    #[inline]
    pub fn check_process(&self) -> Result<(), TransactError> {
        self.tx.inner().check_process().map_err(|_| TransactError::Forked)
    }

    /// Whether the database was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.tx.inner().is_closed()
    }

    /// Whether the protocol admits a transaction without a plan.
    #[inline]
    pub(crate) fn admit(&self, mode: Mode) -> Result<(), TransactError> {
        match self.tx.takes_unplanned(mode) {
            true => Ok(()),
            false => Err(TransactError::NeedsPlan { protocol: self.tx.inner().protocol.info().name }),
        }
    }

    /// Runs `body` as one serializable transaction, commits, and waits until the result may be returned.
    ///
    /// # Errors
    /// The body's own abort, a duplicate key, or a conflict that outlasted the retries.
    ///
    /// # Panics
    /// If the body panics and its reads were consistent.
    #[inline]
    pub fn transact<R>(
        &mut self,
        body: impl FnMut(&TxCore) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.admit(Mode::ReadWrite)?;
        let mut result = self.run(Mode::ReadWrite, Origin::Closure, body);
        self.answer(&mut result);
        result
    }

    /// As [`Runner::transact`], without waiting until the result is durable.
    #[inline]
    pub fn submit<R>(&mut self, body: impl FnMut(&TxCore) -> Result<R, Abort>) -> Pending<R> {
        self.tx.renew();
        let admitted = self.admit(Mode::ReadWrite);
        let result = admitted.and_then(|()| self.run(Mode::ReadWrite, Origin::Closure, body));
        self.pending(result)
    }

    /// Runs `body` as a read-only transaction: on a snapshot if the protocol has them, else validated and retried.
    ///
    /// # Errors
    /// As [`Runner::transact`]; no conflicts if the protocol has snapshots.
    ///
    /// # Panics
    /// As [`Runner::transact`].
    #[inline]
    pub fn snapshot<R>(
        &mut self,
        mut body: impl FnMut(&TxCore) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.admit(Mode::ReadOnly)?;
        let mut result = self.run(Mode::ReadOnly, Origin::Closure, &mut body);
        if self.tx.is_overtaken() {
            result = self.run(Mode::ReadOnly, Origin::Closure, &mut body);
        }
        self.answer(&mut result);
        result
    }

    /// Opens an explicit transaction. [`Runner::commit_explicit`] or [`Runner::submit_explicit`] commits it,
    /// [`Runner::end_explicit`] rolls it back.
    ///
    /// # Errors
    /// Every worker is busy.
    pub fn begin(&mut self, mode: Mode) -> Result<(), TransactError> {
        self.admit(mode)?;
        self.tx.open(mode, 1, Origin::Explicit)
    }

    /// As [`Runner::begin`], for one of several attempts: a cancellation since [`Runner::forget_cancellation`] ends it.
    ///
    /// # Errors
    /// Every worker is busy.
    pub fn resume(&mut self, mode: Mode) -> Result<(), TransactError> {
        self.admit(mode)?;
        self.tx.open_again(mode)
    }

    /// Earlier cancellations do not concern what is begun from now on.
    pub fn forget_cancellation(&self) {
        self.tx.forget_cancellation();
    }

    /// Commits the explicit transaction.
    ///
    /// # Errors
    /// A conflict; or the log stopped before the result was durable.
    pub fn commit_explicit(&mut self) -> Result<Receipt, TransactError> {
        let result = self.tx.commit_explicit();
        self.tx.wait_until_durable()?;
        result
    }

    /// As [`Runner::commit_explicit`], without waiting until the result is durable.
    pub fn submit_explicit(&mut self) -> Pending<()> {
        let result = self.tx.commit_explicit();
        self.pending(result.map(|receipt| Committed { value: (), receipt, attempts: 1 }))
    }

    /// Takes the right to change tables, until the explicit transaction ends. Others can neither change them nor
    /// register procedures meanwhile.
    ///
    /// # Errors
    /// It is no explicit transaction that may write, or has stopped. Others change tables for longer than 10 s.
    pub fn begin_changes(&self) -> Result<(), SchemaError> {
        self.tx.begin_changes(&self.waiting.open)
    }

    /// Changes tables in the explicit transaction, after [`Runner::begin_changes`]: all of them or none. Returns those
    /// that the transaction sees, without dropped ones.
    ///
    /// # Errors
    /// A change that makes no sense, or that rows contradict. [`SchemaError::Busy`] if a transaction stays open that
    /// may use a table. A conflict, and whatever else stops the transaction. Nothing is changed then.
    pub fn change_tables(&self, changes: Vec<TableChange>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        self.tx.change_tables(changes)
    }

    /// Commits the explicit transaction with its changes of tables, and waits until they are durable. `published` is
    /// called when others see them, before anybody else may change tables.
    ///
    /// # Errors
    /// As [`Runner::commit_explicit`].
    pub fn commit_changes(&mut self, published: impl FnOnce()) -> Result<Receipt, TransactError> {
        let engine = self.engine();
        // A checkpoint has the tables and rows of before the commit, and the log from then on those of after it.
        let _no_checkpoint = engine.inner.persistence.as_ref().map(Persistence::without_checkpoint);
        let CommittedChanges { receipt, steps, sequences, mut left, claim, is_gated } = self.tx.commit_changes()?;
        let _alone = engine.inner.gate.as_ref().filter(|_| is_gated).map(|gate| gate.entered());
        let Ok(undurable) = self.tx.wait_for_change(receipt.epoch()) else {
            claim.undo();
            self.tx.wait_until_durable()?;
            return Ok(receipt);
        };
        let settling = engine.inner.settling(undurable);
        sequences.apply(&engine.inner, receipt.epoch());
        let (_, gone) = evolution::publish(&engine.inner, &steps, steps.len(), Some(&settling));
        left.extend(gone);
        claim.publish(&engine.inner, || {
            published();
            evolution::delete(&engine, left);
        });
        self.tx.end_changes();
        self.tx.wait_until_durable()?;
        Ok(receipt)
    }

    /// The database.
    pub fn engine(&self) -> Engine {
        Engine { open: Arc::clone(&self.waiting.open), inner: Arc::clone(self.tx.inner()) }
    }

    /// Drops the explicit transaction: rolls it back if it is open, and frees the rows that it gave out.
    pub fn end_explicit(&mut self) {
        let stopped = self.tx.stopped();
        self.tx.roll_back(stopped);
        self.tx.drop_kept();
        self.tx.unlock_rows();
    }

    /// Ends the attempt of the explicit transaction, which keeps its row locks. [`Runner::begin`] begins it anew; until
    /// then it holds no worker, and its memory can be reused.
    pub fn suspend_explicit(&mut self) {
        self.tx.suspend();
    }

    /// From now on, snapshots of this session show the receipt's transaction and all that it depends on.
    ///
    /// # Errors
    /// The receipt belongs to another database, or to no commit of this one.
    pub fn read_after(&mut self, receipt: Receipt) -> Result<(), TransactError> {
        let inner = self.tx.inner();
        if receipt.database != inner.number {
            return Err(TransactError::ForeignReceipt);
        }
        let now = inner.environment.epochs.current();
        if receipt.epoch() > now {
            return Err(TransactError::FutureReceipt { epoch: receipt.epoch(), now });
        }
        if let Some(freshness) = &self.tx.freshness {
            freshness.read_after(receipt.epoch());
        }
        Ok(())
    }

    /// For another caller, which may know of any commit: snapshots show all commits before they begin.
    pub(crate) fn change_hands(&mut self) {
        if let Some(freshness) = &self.tx.freshness {
            freshness.change_hands();
        }
    }

    /// The bounds of transactions without bounds of their own.
    pub fn options(&self) -> TransactionOptions {
        self.options
    }

    /// Sets the bounds of transactions without bounds of their own.
    pub fn set_options(&mut self, options: TransactionOptions) {
        self.options = options;
        self.bound(&TransactionOptions::default());
    }

    /// Sets the bounds of the transactions that are opened from now on; the session's bounds fill what these
    /// leave open.
    pub fn bound(&self, options: &TransactionOptions) {
        self.tx.set_bounds(options.or(&self.options).bounds(self.tx.inner()));
    }

    /// Waits until the result may be returned. If it may not, replaces it by the reason.
    // In place: results can be large.
    #[inline(always)]
    pub fn answer<R>(&self, result: &mut Result<Committed<R>, TransactError>) {
        if let Err(error) = self.tx.wait_until_durable() {
            *result = Err(error);
        }
    }

    /// The result, withheld until it may be returned.
    #[inline]
    pub fn pending<R>(&self, result: Result<Committed<R>, TransactError>) -> Pending<R> {
        Pending::new(result, self.tx.dependency(), self.tx.wait_max(), &self.waiting)
    }

    /// Runs `body` until it commits, or until no attempt is left. The result may not be durable yet.
    ///
    /// # Errors
    /// As [`Runner::transact`].
    ///
    /// # Panics
    /// As [`Runner::transact`].
    #[inline]
    pub fn run<R>(
        &mut self,
        mode: Mode,
        origin: Origin,
        mut body: impl FnMut(&TxCore) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.run_mut(mode, origin, |tx| body(tx))
    }

    /// As [`Runner::run`], for a body that may need the transaction exclusively. The body leaves it open.
    #[inline]
    pub(crate) fn run_mut<R>(
        &mut self,
        mode: Mode,
        origin: Origin,
        mut body: impl FnMut(&mut TxCore) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        let mut attempts = 1;
        self.tx.renew();
        let reach = self.take_reach(origin);
        // The body's value is left here: it can be large, and would be moved through each function on the way.
        let mut value = None;
        let mut body = |tx: &mut TxCore| {
            value = Some(body(tx)?);
            Ok(())
        };
        let (receipt, attempts) = loop {
            self.tx.open(mode, attempts, origin)?;
            let exclusive = self.tx.decide_exclusively();
            // Kept until the attempt has committed or failed: a reported failure was true in these partitions.
            let owned = match &self.partitions {
                Some((partitions, wait)) if !reach.is_empty() => own(partitions, *wait, reach, &self.tx),
                _ => Ok(None),
            };
            let ended = match (&mut self.whole, &owned) {
                (_, Err(cause)) => Err(Failure::Conflict(*cause)),
                (Some(whole), _) if origin == Origin::Procedure => attempt_whole(whole, &mut self.tx, &mut body),
                _ => attempt(&mut self.tx, &mut body),
            };
            drop((owned, exclusive));
            match ended {
                Ok(tid) => {
                    if attempts > 1 {
                        self.tx.end_turn();
                    }
                    break (self.tx.receipt(tid), attempts);
                }
                Err(failure) => self.failed(failure, &mut attempts)?,
            }
        };
        let value = value.expect("a body that succeeds leaves its value");
        Ok(Committed { value, receipt, attempts })
    }

    /// The partitions in which the next transaction runs alone.
    #[inline]
    fn take_reach(&mut self, origin: Origin) -> PartitionSet {
        if self.partitions.is_none() {
            return PartitionSet::NONE;
        }
        let unless_told = if origin == Origin::Procedure { PartitionSet::ALL } else { PartitionSet::NONE };
        self.reach.take().unwrap_or(unless_told)
    }

    /// As [`Runner::run`], compiled once, for callers that can afford a call through a pointer. The body leaves
    /// its value with the caller.
    pub fn run_dyn(
        &mut self,
        mode: Mode,
        origin: Origin,
        body: &mut dyn FnMut(&TxCore) -> Result<(), Abort>,
    ) -> Result<Committed<()>, TransactError> {
        self.run(mode, origin, body)
    }

    /// After a failed attempt: pauses before the next, or returns the error if there is none.
    #[cold]
    #[inline(never)]
    pub fn failed(&mut self, failure: Failure, attempts: &mut u32) -> Result<(), TransactError> {
        if let Some(pause) = self.next_pause(failure, attempts)? {
            retry::make(pause);
        }
        Ok(())
    }

    /// After a failed attempt: the pause before the next, if any, or the error if there is no next attempt.
    pub(crate) fn next_pause(
        &mut self,
        failure: Failure,
        attempts: &mut u32,
    ) -> Result<Option<Duration>, TransactError> {
        let cause = match failure {
            Failure::Conflict(cause) => Ok(cause),
            Failure::Abort(abort) => self.aborted(abort).map_or_else(Ok, Err),
            Failure::Panic(panic) => self.panicked(panic),
        };
        let next = cause.and_then(|cause| self.conflicted(cause, attempts));
        if next.is_err() {
            self.tx.end_turn();
        }
        next
    }

    /// The body panicked. By promise (g) the panic is the body's own only if its reads were consistent; otherwise the
    /// conflict is reported. A panic is a result: it is returned when the data that it may reveal is durable.
    fn panicked(&mut self, panic: Box<dyn Any + Send>) -> Result<Cause, TransactError> {
        match self.tx.validate() {
            Ok(()) => {
                self.tx.roll_back_user();
                self.tx.wait_until_durable()?;
                self.tx.end_turn();
                resume_unwind(panic)
            }
            Err(cause) => Ok(cause),
        }
    }

    /// The body returned an abort: the error to report, or the conflict that makes it void (promise g).
    fn aborted(&mut self, abort: Abort) -> Result<TransactError, Cause> {
        if let Some(cause) = self.tx.cause_of(&abort) {
            return Err(cause);
        }
        self.tx.validate_reads().map_err(|conflict| self.tx.stopped().unwrap_or(conflict))?;
        self.tx.roll_back_user();
        Ok(abort.into())
    }

    /// Ends an attempt that failed validation.
    fn conflicted(&mut self, cause: Cause, attempts: &mut u32) -> Result<Option<Duration>, TransactError> {
        let refusals = self.tx.refusals(cause, *attempts);
        if cause.reason == Reason::TableChanging {
            self.tx.roll_back(Some(cause));
            *attempts += 1;
            // The change itself is a transaction, which would wait for the turn to end.
            self.tx.end_turn();
            return match self.tx.is_refused_for_long() {
                true => Err(TransactError::Excluded { by: "changes of its tables" }),
                false => Ok(Some(TABLE_CHANGING_PAUSE)),
            };
        }
        let conflicts = *attempts - refusals;
        if cause.reason == Reason::ConstraintViolated {
            // It tells what was read, as an abort of the body does.
            let violation = self.tx.found_violation();
            self.tx.roll_back_user();
            return Err(violation);
        }
        if cause.reason == Reason::SequenceEmpty {
            self.tx.roll_back(Some(cause));
            self.tx.end_turn();
            *attempts += 1;
            self.retries += 1;
            return self.tx.refill_awaited(*attempts - 1).map(|()| None);
        }
        let policy = self.tx.inner().options.retry;
        let attempts_max = policy.attempts_max.saturating_add(self.tx.more_attempts());
        let is_last = conflicts >= attempts_max || !cause.reason.is_conflict();
        // Formatting table and key is too expensive for every attempt.
        let last = is_last.then(|| self.tx.conflict(cause));
        self.tx.roll_back(Some(cause));
        if let Some(last) = last {
            return Err(match cause.reason {
                Reason::OutOfMemory => self.tx.no_room(),
                Reason::TooOld => TransactError::TooOld,
                Reason::HoldsMemory => TransactError::HoldsMemory,
                Reason::Cancelled => TransactError::Cancelled,
                Reason::Forked => TransactError::Forked,
                Reason::ForeignHandle => TransactError::ForeignHandle,
                Reason::TableGone => TransactError::TableGone,
                Reason::LogStopped => self.tx.log_refused(),
                Reason::OtherPartition | Reason::NoPartition => TransactError::partition(last),
                reason if !reason.is_conflict() => TransactError::Unsupported(cause),
                _ => TransactError::Conflict { last, attempts: *attempts },
            });
        }
        if conflicts >= policy.lock_after {
            self.tx.take_turn(conflicts);
        }
        *attempts += 1;
        self.retries += 1;
        if cause.reason == Reason::LeftOut {
            // The conflicting transaction has been decided: there is nothing to wait for.
            return Ok(None);
        }
        Ok(Some(match &self.tx.inner().regulation {
            Some(regulation) => regulation.pause(&mut self.rng),
            None => pause_before(&policy, conflicts + 1, &mut self.rng),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::Bound;
    use std::sync::atomic::Ordering;

    use seriatim_htm::{Emulation, HtmMode};
    use seriatim_store::Direction;

    use super::*;
    use crate::engine::Attention;
    use crate::scan::{RawScan, Target};
    use crate::testing::Handle;
    use crate::{RetryPolicy, Settings, protocols};

    #[derive(seriatim_macros::Table, Clone, Debug)]
    #[table(name = "hot", key(id), crate = "seriatim_catalog")]
    struct Hot {
        id: u32,
        count: u32,
    }

    const ROWS: u32 = 3;

    /// Replaces a row by a deletion and an insertion.
    fn replace(tx: &TxCore, hot: &Handle<Hot>, id: u32) -> Result<(), Abort> {
        let count = tx.get(hot, &id)?.map_or(0, |row| row.count);
        tx.delete(hot, &id)?;
        tx.insert(hot, &Hot { id, count: count + 1 })
    }

    fn add(tx: &TxCore, hot: &Handle<Hot>, id: u32) -> Result<(), Abort> {
        tx.update(hot, &id, |row| row.set_count(row.count() + 1)).map(drop)
    }

    /// Between any two of its steps others change the rows that it uses, and other rows. It gets through by locks of
    /// its rows; the others go on elsewhere all the time. If nothing is locked, the bound does not hold.
    #[test]
    fn a_slow_transaction_over_rows_that_others_change_commits_while_others_use_other_rows() {
        let retry = RetryPolicy { pause_max: Duration::ZERO, pause_first: Duration::ZERO, ..RetryPolicy::default() };
        let rounds = retry.lock_after + 1;
        for info in protocols().iter().filter(|info| info.capabilities.reserves) {
            let protocol = info.name;
            for (deletes, fault) in [(false, Fault::None), (true, Fault::None), (false, Fault::ReserveNothing)] {
                let settings =
                    Settings { protocol: protocol.to_owned(), retry, workers: 3, fault, ..Settings::default() };
                let engine = settings.open().expect("a protocol of this name");
                let hot = engine.make::<Hot>().expect("a valid table");
                let (mut slow, mut rival, mut elsewhere) = (engine.runner(), engine.runner(), engine.runner());
                slow.transact(|tx| (0..=ROWS).try_for_each(|id| tx.insert(&hot, &Hot { id, count: 0 })))
                    .expect("nobody is about");
                let (won, lost, at_once) = (Cell::new(0), Cell::new(0), Cell::new(0));
                let mut change = || {
                    match rival.begin(Mode::ReadWrite) {
                        Ok(()) => {}
                        Err(TransactError::Excluded { .. }) if fault == Fault::ReserveNothing => return,
                        Err(error) => panic!("{protocol}: {error}"),
                    }
                    let done = (0..ROWS).try_for_each(|id| match deletes {
                        true => replace(&rival.tx, &hot, id),
                        false => add(&rival.tx, &hot, id),
                    });
                    match done.is_ok() && rival.commit_explicit().is_ok() {
                        true => won.set(won.get() + 1),
                        false => lost.set(lost.get() + 1),
                    }
                    rival.end_explicit();
                    let committed = elsewhere.transact(|tx| add(tx, &hot, ROWS)).expect("nothing is exclusive");
                    at_once.set(at_once.get() + u32::from(committed.attempts == 1));
                };
                let committed = slow.transact(|tx| {
                    (0..ROWS).try_for_each(|id| {
                        let count = tx.get(&hot, &id)?.map_or(0, |row| row.count);
                        change();
                        tx.update(&hot, &id, |row| row.set_count(count + 1)).map(drop)
                    })?;
                    change();
                    Ok(())
                });
                let committed = committed.unwrap_or_else(|error| panic!("{protocol}: {error}"));
                if fault == Fault::ReserveNothing {
                    assert!(committed.attempts > rounds, "{protocol}: nothing is locked");
                    continue;
                }
                assert_eq!(committed.attempts, rounds, "{protocol}");
                assert!(won.get() >= rounds - 1 && lost.get() >= ROWS, "{protocol}: {won:?} won, {lost:?} lost");
                assert_eq!(at_once.get(), won.get() + lost.get(), "{protocol}: others go on elsewhere");
                change();
                assert!(!engine.inner().is_turn_taken.load(Ordering::Relaxed), "{protocol}");
                let after = won.get();
                change();
                assert_eq!(won.get(), after + 1, "{protocol}: nothing stays locked");
            }
        }
    }

    /// Between any two of its steps another transaction changes all rows. It also inserts one where this one looked for
    /// rows, which locks of rows do not prevent.
    #[test]
    fn a_slow_transaction_over_a_range_that_others_insert_into_all_the_time_runs_exclusively() {
        let exclusive_after = RetryPolicy::default().lock_after + LOCKING_ATTEMPTS;
        let mut exclusive = Vec::new();
        for info in protocols().iter().filter(|info| info.opens_on(HtmMode::Auto) && !info.requirements.plan) {
            let retry =
                RetryPolicy { pause_max: Duration::ZERO, pause_first: Duration::ZERO, ..RetryPolicy::default() };
            let settings = Settings { protocol: info.name.to_owned(), retry, workers: 2, ..Settings::default() };
            let engine = settings.open().expect("a protocol of this name");
            // Its queue waits for this thread.
            if engine.inner().queue.is_some() {
                continue;
            }
            let hot = engine.make::<Hot>().expect("a valid table");
            let (mut slow, mut other, mut next) = (engine.runner(), engine.runner(), ROWS);
            let load = |tx: &TxCore| (0..ROWS).try_for_each(|id| tx.insert(&hot, &Hot { id, count: 0 }));
            slow.transact(load).expect("nobody is about");
            let (tried, excluded) = (Cell::new(0), Cell::new(0));
            let mut change = || {
                for inserts in [true, false] {
                    match other.begin(Mode::ReadWrite) {
                        Ok(()) => {}
                        Err(TransactError::Excluded { .. }) => return excluded.set(excluded.get() + 1),
                        Err(error) => panic!("{}: {error}", info.name),
                    }
                    let done = match inserts {
                        true => other.tx.insert(&hot, &Hot { id: next, count: 0 }),
                        false => (0..ROWS).try_for_each(|id| add(&other.tx, &hot, id)),
                    };
                    let _is_refused = done.is_err() || other.commit_explicit().is_err();
                    other.end_explicit();
                }
                next += 1;
                tried.set(tried.get() + 1);
            };
            let committed = slow.transact(|tx| {
                let all = (Bound::Unbounded, Bound::Unbounded);
                let count = RawScan::new(tx, &hot.set, Target::Rows, (&all.0, &all.1), Direction::Forward).count()?;
                (0..ROWS).try_for_each(|id| {
                    change();
                    add(tx, &hot, id)
                })?;
                change();
                Ok(count)
            });
            let attempts = committed.unwrap_or_else(|error| panic!("{}: {error}", info.name)).attempts;
            assert!(attempts <= exclusive_after + 1, "{}: {attempts} attempts", info.name);
            assert_eq!(attempts > exclusive_after, excluded.get() > 0, "{}: {attempts} attempts", info.name);
            if excluded.get() > 0 {
                assert!(tried.get() >= exclusive_after, "{}: {tried:?} changes", info.name);
                exclusive.push(info.name);
            }
            change();
            assert!(!engine.inner().attention.is(Attention::EXCLUSIVE), "{}: others begin again", info.name);
        }
        for info in protocols().iter().filter(|info| info.capabilities.reserves) {
            assert!(exclusive.contains(&info.name), "{} is not among {exclusive:?}", info.name);
        }
        assert!(exclusive.len() > 6, "{exclusive:?}");
    }

    #[test]
    fn procedures_run_whole_where_the_protocol_wants_that_and_nothing_else_does() {
        for info in protocols() {
            let htm = HtmMode::Emulated(Emulation::default());
            // Region counts are not added while a helper has the worker.
            let step_helpers = true;
            let settings =
                Settings { protocol: info.name.to_owned(), htm, workers: 1, step_helpers, ..Settings::default() };
            let engine = settings.open().expect("a protocol of this name");
            let mut runner = engine.runner();
            // Emulated regions run under the fallback lock.
            let fallbacks = || engine.statistics().regions.fallback;
            (0..3).for_each(|_| runner.transact(|_| Ok(())).map(Committed::into_value).expect("no conflict"));
            assert_eq!(fallbacks(), 0, "{}", info.name);
            let call = |runner: &mut Runner, result: fn() -> Result<u8, Abort>| {
                runner.run(Mode::ReadWrite, Origin::Procedure, |_| result()).map(Committed::into_value)
            };
            assert!(matches!(call(&mut runner, || Ok(7)), Ok(7)));
            assert!(call(&mut runner, || Err(Abort::overflow(None))).is_err());
            let panic = catch_unwind(AssertUnwindSafe(|| call(&mut runner, || panic!("deliberately"))));
            assert!(panic.is_err());
            assert!(matches!(call(&mut runner, || Ok(8)), Ok(8)), "the lock was given back");
            // The counts of the last attempt are added with the next.
            assert_eq!(fallbacks(), if runner.whole.is_some() { 3 } else { 0 }, "{}", info.name);
            assert_eq!(runner.whole.is_some(), info.name == "naive");
            assert_eq!(runner.runs_whole(), info.name == "naive" || info.capabilities.partitions);
        }
    }
}
