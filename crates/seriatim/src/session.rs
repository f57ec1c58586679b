//! Sessions run transactions and retry them.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use seriatim_engine::{Committed, Origin, Pending, Receipt, Runner};
use seriatim_txn::{Mode, PartitionSet, Partitions};

use crate::procedure::call::Called;
use crate::procedure::registry::Registry;
use crate::transaction::{SnapshotTransaction, Transaction};
use crate::{Abort, Canceller, ReadTx, TransactError, TransactionOptions, Tx};

/// Runs transactions, one at a time. A database can have many sessions. They are cheap and may move between threads.
pub struct Session {
    pub(crate) runner: Runner,
    pub(crate) called: Called,
    /// The procedures registered in the database.
    pub(crate) procedures: Arc<RwLock<Registry>>,
    /// The calls made, if they are recorded.
    #[cfg(feature = "test-support")]
    pub(crate) recorded_calls: Option<Vec<crate::test_support::Call>>,
}

impl Session {
    pub(crate) fn new(runner: Runner, procedures: Arc<RwLock<Registry>>) -> Session {
        Session {
            runner,
            called: Called::default(),
            procedures,
            #[cfg(feature = "test-support")]
            recorded_calls: None,
        }
    }

    /// Runs `body` as one serializable transaction and commits. The body may run several times, so it must not have
    /// effects outside the transaction that a repetition would spoil. [`ReadTx::attempt`] returns the number of the
    /// run.
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
    /// assert_eq!((*n, n.attempts), (42, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The body's own abort, a duplicate key, or a conflict that outlasted the retries.
    ///
    /// # Panics
    /// If the body panics on a consistent state. A panic on an inconsistent state is retried as a conflict.
    pub fn transact<R>(
        &mut self,
        mut body: impl FnMut(&Tx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.runner.transact(|core| body(Tx::of(core)))
    }

    /// As [`Session::transact`], without waiting until the result is durable: the next transaction can begin
    /// meanwhile. If the body panics, the call waits before the panic continues.
    pub fn submit<R>(&mut self, mut body: impl FnMut(&Tx) -> Result<R, Abort>) -> Pending<R> {
        self.runner.submit(|core| body(Tx::of(core)))
    }

    /// Runs `body` as a read-only transaction. Where the protocol gives snapshots ([`crate::protocols`]) it reads a
    /// snapshot and never aborts; otherwise it is validated and retried.
    ///
    /// A snapshot shows everything that has committed, unless snapshots of the protocol may be older
    /// ([`Freshness::is_bounded`](crate::Freshness::is_bounded)). An older snapshot shows everything that had
    /// committed when it was made, or that is older than all running transactions. It also shows earlier commits of
    /// this session ([`TransactionOptions::own_commits`]) and commits named by [`Session::read_after`]. Under
    /// `cicada`, the session's first snapshot, and one that must show more than exists yet, is validated and retried
    /// instead.
    ///
    /// When the log has stopped ([`LogStatistics::stopped`](crate::LogStatistics::stopped)), a snapshot shows the
    /// durable epoch. It also does while the disk is full or has not flushed for 100 ms, so that it need not wait. It
    /// then shows acknowledged commits, and no submitted commits that are not durable. A snapshot that is running at
    /// that moment may run again.
    ///
    /// # Errors
    /// As [`Session::transact`], without conflicts where the protocol gives snapshots.
    ///
    /// # Panics
    /// As [`Session::transact`].
    pub fn snapshot<R>(
        &mut self,
        mut body: impl FnMut(&ReadTx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.runner.snapshot(|core| body(Tx::of(core)))
    }

    /// Makes later snapshots of this session show the commit of `receipt` and everything that it depends on. The
    /// receipt may come from any session of this database. The call does not wait. Where snapshots always show the
    /// present it has no effect.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().protocol("dbx-tc").open()?;
    /// let counters = db.create::<Counter>()?;
    /// let (mut writer, mut reader) = (db.session(), db.session());
    /// reader.read_after(writer.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?.receipt)?;
    /// assert!(*reader.snapshot(|tx| Ok(tx.get(&counters, &7)?.is_some()))?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactError::ForeignReceipt`], [`TransactError::FutureReceipt`].
    pub fn read_after(&mut self, receipt: Receipt) -> Result<(), TransactError> {
        self.runner.read_after(receipt)
    }

    /// Returns this session restricted to one partition, counted from 0. Its closures run alone there, without
    /// concurrency control, and can access no other partition. For databases with partitions
    /// ([`Builder::partitions`](crate::Builder::partitions)).
    ///
    /// ```
    /// # use seriatim::{Database, Table, TransactError};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().partitions(4).open()?;
    /// let counters = db.create::<Counter>()?;
    /// let mut session = db.session();
    /// session.at(3).transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
    /// let elsewhere = session.at(0).transact(|tx| Ok(tx.get(&counters, &7)?.is_some()));
    /// assert!(matches!(elsewhere, Err(TransactError::OtherPartition { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn at(&mut self, partition: usize) -> AtPartition<'_> {
        AtPartition { session: self, partition }
    }

    /// Limits how long calls of this session wait until their results are durable, unless a call has its own limit
    /// ([`TransactionOptions::wait_max`]). Initially [`Builder::wait_max`](crate::Builder::wait_max). `None`: no
    /// limit.
    pub fn set_wait_max(&mut self, wait: Option<Duration>) {
        self.set_options(self.options().wait_max(wait.unwrap_or(Duration::MAX)));
    }

    /// Sets the bounds of this session's transactions and procedures that have none of their own. Initially those of
    /// the database.
    pub fn set_options(&mut self, options: TransactionOptions) {
        self.runner.set_options(options);
    }

    /// Returns the bounds of this session's transactions that have none of their own.
    pub fn options(&self) -> TransactionOptions {
        self.runner.options()
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

    /// Returns this session with other bounds, until the result is dropped.
    pub(crate) fn with(&mut self, options: &TransactionOptions) -> WithOptions<'_> {
        self.runner.bound(options);
        WithOptions(self)
    }

    /// Earlier cancellations do not concern an [`OwnedTransaction`](crate::OwnedTransaction) that is resumed from now
    /// on.
    pub fn forget_cancellation(&self) {
        self.runner.forget_cancellation();
    }

    /// Returns the number of this session among those of the database, by which a deadlock names it.
    pub fn number(&self) -> usize {
        self.runner.tx.session_number()
    }

    /// Returns a handle that cancels this session's transactions, from any thread.
    ///
    /// ```
    /// # use seriatim::{Database, Table, TransactError};
    /// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let counters = db.create::<Counter>()?;
    /// let mut session = db.session();
    /// let canceller = session.canceller();
    /// let result = session.transact(|tx| {
    ///     tx.insert(&counters, &Counter { id: 7, n: 41 })?;
    ///     std::thread::scope(|scope| scope.spawn(|| canceller.cancel()).join()).expect("no panic");
    ///     tx.get(&counters, &7).map(|row| row.is_some())
    /// });
    /// assert!(matches!(result, Err(TransactError::Cancelled)));
    /// assert_eq!(*session.transact(|tx| Ok(tx.get(&counters, &7)?.is_some()))?, false);
    /// # Ok(())
    /// # }
    /// ```
    pub fn canceller(&self) -> Canceller {
        self.runner.tx.canceller()
    }

    /// Sets whether procedures called through this session prefetch the rows that their arguments name. Initially as
    /// [`Builder::prefetch`](crate::Builder::prefetch). For measurements: results are the same.
    pub fn set_prefetch(&mut self, wanted: bool) {
        self.runner.tx.set_prefetching(wanted);
    }

    /// Opens a transaction that is committed explicitly. Dropping it rolls it back. Its reads before its commit are not
    /// durable: a power cut may undo the commits from which it read. Its rows are copies, which count against the
    /// memory limit until it is dropped. A closure reads many rows at less cost.
    ///
    /// # Errors
    /// Every worker is busy.
    pub fn begin(&mut self) -> Result<Transaction<'_>, TransactError> {
        self.begin_with(&TransactionOptions::default())
    }

    /// As [`Session::begin`], with bounds of its own.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub fn begin_with(&mut self, options: &TransactionOptions) -> Result<Transaction<'_>, TransactError> {
        self.with(options).0.runner.begin(Mode::ReadWrite)?;
        Ok(Transaction::new(&mut self.runner, Arc::clone(&self.procedures)))
    }

    /// Opens a read-only transaction, as [`Session::snapshot`] does. Dropping it ends it.
    ///
    /// # Errors
    /// Every worker is busy.
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
        self.with(options).0.runner.begin(Mode::ReadOnly)?;
        Ok(SnapshotTransaction::new(&mut self.runner))
    }
}

/// A session whose closures run in one partition: [`Session::at`].
#[derive(Debug)]
pub struct AtPartition<'s> {
    session: &'s mut Session,
    partition: usize,
}

impl AtPartition<'_> {
    /// As [`Session::transact`], in the partition. Other transactions that need the partition wait until this
    /// returns. A body that exceeds its age limit is refused its next operation.
    ///
    /// # Errors
    /// As [`Session::transact`]. [`TransactError::UnknownPartition`]. [`TransactError::OtherPartition`] for a key of
    /// another partition, for a range of keys that may be in others, and for a write to a replicated table.
    ///
    /// # Panics
    /// As [`Session::transact`], after the partition has been released.
    pub fn transact<R>(&mut self, body: impl FnMut(&Tx) -> Result<R, Abort>) -> Result<Committed<R>, TransactError> {
        self.reach()?;
        self.session.transact(body)
    }

    /// As [`Session::submit`], in the partition. The partition is released before the result is durable.
    ///
    /// # Errors
    /// [`TransactError::UnknownPartition`].
    pub fn submit<R>(&mut self, body: impl FnMut(&Tx) -> Result<R, Abort>) -> Result<Pending<R>, TransactError> {
        self.reach()?;
        Ok(self.session.submit(body))
    }

    /// As [`AtPartition::transact`], but the result may not be durable yet.
    pub(crate) fn run<R>(
        &mut self,
        mut body: impl FnMut(&Tx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.reach()?;
        self.session.runner.run(Mode::ReadWrite, Origin::Closure, |core| body(Tx::of(core)))
    }

    fn reach(&mut self) -> Result<(), TransactError> {
        let (partition, runner) = (self.partition, &mut self.session.runner);
        let partitions = runner.partitions().map_or(0, Partitions::count);
        if partition >= partitions {
            return Err(TransactError::UnknownPartition { partition, partitions });
        }
        runner.reach(PartitionSet::one(partition));
        Ok(())
    }
}

/// A session whose next transactions have other bounds. Dropping it restores the session's own, also when a body
/// panics.
pub(crate) struct WithOptions<'s>(pub(crate) &'s mut Session);

impl Drop for WithOptions<'_> {
    fn drop(&mut self) {
        self.0.runner.bound(&TransactionOptions::default());
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
