//! Sessions: where transactions are run and retried.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use seriatim_engine::{Committed, Origin, Pending, Receipt, Runner};
use seriatim_txn::{Mode, PartitionSet, Partitions};

use crate::procedure::call::Called;
use crate::procedure::registry::Registry;
use crate::transaction::{SnapshotTransaction, Transaction};
use crate::{Abort, Canceller, ReadTx, TransactError, TransactionOptions, Tx};

/// Runs transactions, one at a time. Sessions are many, cheap, and may move between threads.
pub struct Session {
    pub(crate) runner: Runner,
    pub(crate) called: Called,
    /// Of the database.
    pub(crate) procedures: Arc<RwLock<Registry>>,
    /// What was called, if it is to be told.
    #[cfg(feature = "test-support")]
    pub(crate) told: Option<Vec<crate::test_support::Call>>,
}

impl Session {
    pub(crate) fn new(runner: Runner, procedures: Arc<RwLock<Registry>>) -> Session {
        Session {
            runner,
            called: Called::default(),
            procedures,
            #[cfg(feature = "test-support")]
            told: None,
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
    /// assert_eq!((*n, n.attempts), (42, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The body's own abort, a duplicate key, or a conflict that outlasted the retries.
    ///
    /// # Panics
    /// If the body panics on values that held together; a panic on values that did not is a conflict like any other.
    pub fn transact<R>(
        &mut self,
        mut body: impl FnMut(&Tx) -> Result<R, Abort>,
    ) -> Result<Committed<R>, TransactError> {
        self.runner.transact(|core| body(Tx::of(core)))
    }

    /// As [`Session::transact`], without waiting until the result is durable: the next transaction can begin meanwhile. A panic of
    /// the body does wait.
    pub fn submit<R>(&mut self, mut body: impl FnMut(&Tx) -> Result<R, Abort>) -> Pending<R> {
        self.runner.submit(|core| body(Tx::of(core)))
    }

    /// Runs `body` as a read-only transaction: on a snapshot that never aborts where the protocol gives them
    /// ([`crate::protocols`]), else validated and retried. A snapshot shows all that has committed; where it may be older
    /// ([`Freshness::is_bounded`](crate::Freshness::is_bounded)), all that had when it was made, or that is older than all that is under way; what this
    /// session did before ([`TransactionOptions::own_commits`]), and what it was told to read after ([`Session::read_after`]); under `cicada` one that
    /// is to show more than there is yet, and the first of a session, is validated and retried instead. Once the log has stopped
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
        self.runner.snapshot(|core| body(Tx::of(core)))
    }

    /// The snapshots of this session that begin from now on show what the receipt is of, a commit of any session of this database, and all
    /// that it depends on. Nothing is waited for; where snapshots are of the present they show it anyway.
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

    /// This session at one partition, from 0: its closures run alone there, without concurrency control, and touch no other. In a database
    /// with partitions ([`Builder::partitions`](crate::Builder::partitions)).
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

    /// How long calls of this session wait until their results are durable, if they are not given their own
    /// ([`TransactionOptions::wait_max`]); at first [`Builder::wait_max`](crate::Builder::wait_max). `None`: for as long as it takes.
    pub fn set_wait_max(&mut self, wait: Option<Duration>) {
        self.set_options(self.options().wait_max(wait.unwrap_or(Duration::MAX)));
    }

    /// The bounds of this session's transactions, procedures included, that are not given their own. At first the database's.
    pub fn set_options(&mut self, options: TransactionOptions) {
        self.runner.set_options(options);
    }

    /// The bounds of this session's transactions that are not given their own.
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

    /// This session with other bounds, until that is dropped.
    pub(crate) fn with(&mut self, options: &TransactionOptions) -> WithOptions<'_> {
        self.runner.bound(options);
        WithOptions(self)
    }

    /// What cancels this session's transactions, from any thread.
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
        self.with(options).0.runner.begin(Mode::ReadWrite)?;
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
    /// As [`Session::transact`], in the partition. Others who need it wait meanwhile, until this returns: its age limit refuses its next operation.
    ///
    /// # Errors
    /// As there; [`TransactError::UnknownPartition`]; [`TransactError::OtherPartition`] for a key of another partition, a range of keys
    /// that may be in others, and a write of what is in all of them.
    ///
    /// # Panics
    /// As there, when the partition has been given back.
    pub fn transact<R>(&mut self, body: impl FnMut(&Tx) -> Result<R, Abort>) -> Result<Committed<R>, TransactError> {
        self.reach()?;
        self.session.transact(body)
    }

    /// As [`Session::submit`], in the partition, which is not kept until the result is durable.
    ///
    /// # Errors
    /// [`TransactError::UnknownPartition`].
    pub fn submit<R>(&mut self, body: impl FnMut(&Tx) -> Result<R, Abort>) -> Result<Pending<R>, TransactError> {
        self.reach()?;
        Ok(self.session.submit(body))
    }

    /// As [`AtPartition::transact`], and the result may not be durable yet.
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

/// A session whose next transactions have other bounds. Dropped, it has its own again, also when a body panics.
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
