//! Options with which a database is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::disk::Disk;
use seriatim_catalog::PartitionValue;
use seriatim_engine::{Batch, BatchPlacement, DatabaseLocation, Listener, PartitionBy, Settings};
use seriatim_htm::{Budget, HtmMode};

use crate::procedure::ExecutionMode;
use crate::{Database, Durability, OpenError, RecoveryProgress, RetryPolicy};

/// The options of a database. Every option has a default.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Settings,
    /// Set by tests only.
    disk: Option<Arc<dyn Disk>>,
}

impl Builder {
    /// Sets the concurrency control protocol by name, or `auto`. [`crate::protocols`] lists the names. Default
    /// `auto`.
    pub fn protocol(mut self, name: &str) -> Builder {
        name.clone_into(&mut self.settings.protocol);
        self
    }

    /// Sets an option of the protocol. [`ProtocolInfo::options`] lists each option with its unit, default and range.
    /// If an option is set several times, the last value counts. Opening fails with [`OpenError::Option`] if the
    /// protocol has no such option, or if the value is out of its range.
    ///
    /// ```
    /// use seriatim::Database;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().protocol("silo").protocol_option("lock_steps", 200).open()?;
    /// assert!(db.protocol_options().any(|(knob, value)| knob.name == "lock_steps" && value == 200));
    /// let misspelt = Database::builder().protocol("silo").protocol_option("lock_step", 200).open();
    /// assert!(misspelt.is_err_and(|error| error.to_string().contains("lock_steps")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`ProtocolInfo::options`]: crate::ProtocolInfo::options
    pub fn protocol_option(mut self, name: &str, value: u64) -> Builder {
        self.settings.protocol_options.push((name.to_owned(), value));
        self
    }

    /// Declares these tables hot, and all others cold, under a protocol that locks hot rows on access (`htcc`). This
    /// replaces its option `hot`. Default: none; the protocol detects hot rows.
    ///
    /// Opening fails under other protocols. A name that no table has is ignored and listed in
    /// [`Statistics::hot_tables_missing`](crate::Statistics::hot_tables_missing).
    ///
    /// ```
    /// use seriatim::Database;
    /// let open = |protocol| Database::builder().protocol(protocol).hot_tables(["warehouse", "district"]).open();
    /// assert!(open("htcc").is_ok() && open("dbx").is_err_and(|error| error.to_string().contains("hot tables")));
    /// ```
    pub fn hot_tables(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        self.settings.hot_tables = names.into_iter().map(Into::into).collect();
        self
    }

    /// Divides the tables into 1 to 64 partitions, under the protocol `partitioned`, which is then what `auto` means.
    /// Opening fails under other protocols. Default, under that protocol: 4.
    ///
    /// A call of a registered procedure runs without concurrency control if its arguments determine the partitions
    /// that it needs. No other transaction commits in those partitions meanwhile. `docs/partitions.md` says when this
    /// pays.
    ///
    /// One column of the key determines a row's partition: the first, or the one named in
    /// `#[table(partition(column))]`.
    /// A row of a table with `#[table(replicated)]` is in all partitions.
    ///
    /// ```
    /// use seriatim::Database;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().partitions(8).open()?;
    /// assert_eq!(db.protocol().name, "partitioned");
    /// assert!(Database::builder().partitions(0).open().is_err());
    /// assert!(Database::builder().protocol("silo").partitions(8).open().is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn partitions(mut self, partitions: usize) -> Builder {
        self.settings.partitions = Some(partitions);
        self
    }

    /// Sets the function that maps a value of the partitioning column to one of the given number of partitions. It
    /// applies to all tables. Default: integers modulo the number of partitions; other values are hashed.
    ///
    /// The function is called at each access and must always give the same result for the same value. If it panics,
    /// or returns a partition that does not exist, the transaction fails with
    /// [`TransactError::NoPartition`](crate::TransactError::NoPartition).
    ///
    /// ```
    /// use seriatim::{Database, PartitionValue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // A hundred neighbours each.
    /// let by_range = |value: &PartitionValue, partitions: usize| match value {
    ///     PartitionValue::Integer(id) => (*id / 100) as usize % partitions,
    ///     PartitionValue::Bytes(_) => 0,
    /// };
    /// let db = Database::builder().partitions(4).partition_by(by_range).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn partition_by(
        mut self,
        function: impl Fn(&PartitionValue, usize) -> usize + Send + Sync + 'static,
    ) -> Builder {
        self.settings.partition_by = PartitionBy(Some(Arc::new(function)));
        self
    }

    /// Skips validation, so results are wrong. `seriatim bench --without-validation` measures with it what validation
    /// costs.
    #[cfg(feature = "without-validation")]
    #[doc(hidden)]
    pub fn without_validation(mut self) -> Builder {
        self.settings.without_validation = true;
        self
    }

    /// Sets how regions run. Default [`HtmMode::Auto`]: in hardware where it works.
    pub fn htm(mut self, mode: HtmMode) -> Builder {
        self.settings.htm = mode;
        self
    }

    /// Sets how often a region is retried, per cause of its abort, before it takes its fallback. Options of the
    /// protocol take precedence. Default as in the DBX paper, §6.1.
    pub fn region_budget(mut self, budget: Budget) -> Builder {
        self.settings.budget = budget;
        self
    }

    /// Sets how many transactions can be open at the same time, 1 to 4096. Default 64.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.settings.workers = workers;
        self
    }

    /// Maps and touches this many bytes while opening, so that no transaction waits for fresh pages. At most
    /// [`Builder::memory_limit`]. Default 0.
    pub fn prefault(mut self, bytes: usize) -> Builder {
        self.settings.prefault_bytes = bytes;
        self
    }

    /// Sets whether to ask the kernel for large pages. Default yes.
    pub fn huge_pages(mut self, wanted: bool) -> Builder {
        self.settings.huge_pages = wanted;
        self
    }

    /// Limits the memory of rows and indexes, in bytes. `usize::MAX` is no limit. Default: 80 % of the memory of the
    /// machine, or of the limit of the process's control group (versions 1 and 2). Outside of Linux the default is no
    /// limit. Each database of a process has its own limit.
    ///
    /// **What counts**: memory that workers have allocated for records, row versions, long texts and keys, and for
    /// nodes and buckets of indexes. A worker allocates in steps of 64 KiB, or more for larger objects. Read and
    /// write sets count too where they exceed a few kilobytes per transaction; they leave less for rows. Sessions,
    /// procedures, log that is not yet written ([`Builder::log_backlog_bytes`]), and the few megabytes mapped ahead
    /// of use do not count.
    ///
    /// **At the limit**, inserts, updates that create a version, and new tables fail with
    /// [`TransactError::OutOfMemory`] or [`SchemaError::OutOfMemory`]. The transaction has no effect and is not
    /// retried. Reads, scans, snapshots, deletes and rollbacks need memory only for their read and write sets. These
    /// may exceed the limit by an eighth of it, or by 16 MiB if that is more. This suffices for some 600,000 reads or
    /// 100,000 deletes in one transaction. Updates succeed as far as the memory of replaced versions has been
    /// reclaimed.
    ///
    /// **Deleted rows** can be reclaimed once all transactions that were open at the deletion have ended. The worker
    /// that deleted them reclaims them after its own next transactions, or when it is idle. Under `dbx` with a log,
    /// the deletion must also be durable. Reclaimed memory is reused for objects of about the same size, in steps of
    /// an eighth. Blocks of 32 KiB and more are reused for any size. A piece of 64 KiB in which everything was deleted
    /// is also reused for any size, after a second or two. Free memory returns to the system when it exceeds both 64
    /// MiB and an eighth of the memory in use. Leave room below the limit for the new versions of one open transaction.
    /// A busy worker also keeps 256 KiB of free blocks of each size. If at least a sixteenth of the limit is free and
    /// unusable for other sizes, nodes of indexes may take a sixteenth more. If that is not enough, the error says how
    /// much is free.
    ///
    /// **Opening** a database ignores the limit: every acknowledged row is recovered. Recovery may need more memory
    /// than the database had used, for example for rows that the log inserts and deletes again. Afterwards the limit
    /// applies, and memory used by recovery counts. If that exceeds the limit, free memory is reused and no more is
    /// allocated; read and write sets may still grow by their allowance. The default leaves a fifth of the memory for
    /// this, for checkpoints and for everything else.
    ///
    /// [`TransactError::OutOfMemory`]: crate::TransactError::OutOfMemory
    /// [`SchemaError::OutOfMemory`]: crate::SchemaError::OutOfMemory
    pub fn memory_limit(mut self, bytes: usize) -> Builder {
        self.settings.memory_limit = Some(bytes);
        self
    }

    /// Sets whether to record the reads and writes of every committed transaction, for [`crate::history::check`].
    /// Default no.
    pub fn record_history(mut self, wanted: bool) -> Builder {
        self.settings.record_history = wanted;
        self
    }

    /// Sets whether to count conflicts by row, cause and the two procedures involved, for
    /// [`Database::contention`](crate::Database::contention). Transactions then execute about a fifth more
    /// instructions. Default no.
    pub fn track_contention(mut self, wanted: bool) -> Builder {
        self.settings.track_contention = wanted;
        self
    }

    /// Sets whether the longest pause after a conflict is found by hill climbing over the throughput, between none
    /// and [`RetryPolicy::pause_max`]. Each pause is then a random time up to that length. Otherwise pauses double,
    /// as [`RetryPolicy`] says. The database has one such length; it is adjusted in each epoch that has conflicts.
    /// Default: as the protocol prefers ([`Capabilities::regulated`](crate::Capabilities::regulated)).
    pub fn regulate_pauses(mut self, wanted: bool) -> Builder {
        self.settings.regulate_pauses = Some(wanted);
        self
    }

    /// Sets how conflicts are retried.
    pub fn retry(mut self, policy: RetryPolicy) -> Builder {
        self.settings.retry = policy;
        self
    }

    /// Limits how long an attempt of a transaction may be open: a closure, a procedure, a snapshot or an explicit
    /// transaction. An older attempt fails with [`TransactError::TooOld`] at its next call or at its commit. Default
    /// 60 s. A session and a transaction can have their own limits
    /// ([`TransactionOptions`](crate::TransactionOptions)).
    ///
    /// Ages are counted once per [`Builder::epoch_interval`]. An attempt may exceed the limit by up to five
    /// intervals, and never fails before it. A background thread ends an explicit transaction that is too old between
    /// two calls and releases its locks and memory. Transactions that cannot be ended so are counted in
    /// [`Statistics::overdue`](crate::Statistics::overdue).
    ///
    /// [`TransactError::TooOld`]: crate::TransactError::TooOld
    pub fn transaction_age_max(mut self, age: Duration) -> Builder {
        self.settings.transaction_age_max = age;
        self
    }

    /// Limits how long a read-only transaction may be open. The smallest of this limit,
    /// [`Builder::transaction_age_max`] and the transaction's own
    /// [`TransactionOptions::age_max`](crate::TransactionOptions::age_max) applies. While the transaction is open,
    /// rows that are replaced or deleted keep their memory, which counts against [`Builder::memory_limit`].
    ///
    /// An older transaction is ended as [`Builder::transaction_age_max`] describes; its next call fails with
    /// [`TransactError::TooOld`]. Default: [`Duration::MAX`], so that only the other limits apply.
    ///
    /// [`TransactError::TooOld`]: crate::TransactError::TooOld
    pub fn snapshot_age_max(mut self, age: Duration) -> Builder {
        self.settings.snapshot_age_max = age;
        self
    }

    /// Limits the bytes that one read-only transaction, or one explicit transaction, may keep from being reclaimed.
    /// Rows that are replaced or deleted while it is open keep their memory. A transaction above the limit is ended:
    /// an explicit one between two calls. Its next call fails with [`TransactError::HoldsMemory`].
    ///
    /// The bytes are measured every few epochs, as the growth of the memory that is in use outside of tables. The
    /// writes of open closures and procedures therefore count too. Default: half of what was free under
    /// [`Builder::memory_limit`] when the transaction began, but at least a 64th of the limit.
    ///
    /// [`TransactError::HoldsMemory`]: crate::TransactError::HoldsMemory
    pub fn snapshot_bytes_max(mut self, bytes: usize) -> Builder {
        self.settings.snapshot_bytes_max = Some(bytes);
        self
    }

    /// Sets the interval of epochs, at most one day and at most [`Builder::transaction_age_max`]. Default 10 ms. With
    /// durability by snapshot (option `durable_snapshots` of `dbx-tc`) each snapshot ends an epoch, so this also sets
    /// how often snapshots are made. The option `snapshot_interval_ms` must then not say otherwise.
    pub fn epoch_interval(mut self, interval: Duration) -> Builder {
        self.settings.epoch_interval = Some(interval);
        self
    }

    /// Starts no background threads; [`Database::step`] does their work when called. For deterministic tests. Default
    /// no.
    pub fn step_helpers(mut self, wanted: bool) -> Builder {
        self.settings.step_helpers = wanted;
        self
    }

    /// Sets after how many operations of one attempt its read set is validated, and again after as many more. At
    /// least 1. A loop over an inconsistent state therefore ends. Default 65,536.
    pub fn operations_max(mut self, operations: u32) -> Builder {
        self.settings.operations_max = operations;
        self
    }

    /// Seeds the jitter of retries. Default 0.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.settings.seed = seed;
        self
    }

    /// Sets whether procedures prefetch the rows that their arguments name into the processor's cache. Default yes.
    /// [`Session::set_prefetch`](crate::Session::set_prefetch) changes this for one session.
    pub fn prefetch(mut self, wanted: bool) -> Builder {
        self.settings.prefetch = wanted;
        self
    }

    /// Sets whether registered read-only procedures read from snapshots, where the protocol gives them. Otherwise
    /// they are validated like other transactions. Results are equally serializable; this exists for measurements.
    /// Default yes.
    pub fn procedure_snapshots(mut self, wanted: bool) -> Builder {
        self.settings.snapshots = wanted;
        self
    }

    /// Sets whether an [`Executor`](crate::Executor) of several threads batches calls of procedures. Among queued
    /// calls, those that conflict (one writes a row that another reads or writes) run one after another on one
    /// thread.
    ///
    /// The rows of a call are predicted from its arguments. Closures, read-only procedures, and calls whose arguments
    /// determine no key are neither batched nor delayed. Batching changes only where and when a call begins. A batch
    /// consists of the calls that are queued when a thread asks for work; no thread waits for more.
    ///
    /// Pure functions that compute keys run one extra time for the prediction. If one panics, the panic hook runs and
    /// the call is not batched. Default [`Batch::Off`].
    pub fn batch(mut self, batch: Batch) -> Builder {
        self.settings.batch = batch;
        self
    }

    /// Sets how a batch of calls is divided among threads. Default: whole components of calls that conflict.
    pub fn batch_placement(mut self, placement: BatchPlacement) -> Builder {
        self.settings.batch_placement = placement;
        self
    }

    /// Limits how many calls may wait to begin in an [`Executor`](crate::Executor), at least 1. Beyond the limit its
    /// methods wait, and [`Executor::try_reserve`](crate::Executor::try_reserve) returns
    /// [`QueueFull`](crate::QueueFull). Default 65,536.
    pub fn executor_queue_max(mut self, calls: usize) -> Builder {
        self.settings.executor_queue_max = calls;
        self
    }

    /// Sets how registered procedures are run. Default [`ExecutionMode::Whole`].
    ///
    /// ```
    /// use seriatim::{Database, procedure::ExecutionMode};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().execution_mode(ExecutionMode::Pieces).check_plans(true).prefetch(false).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn execution_mode(mut self, execution_mode: ExecutionMode) -> Builder {
        self.settings.execution_mode = execution_mode;
        self
    }

    /// Sets whether every access of a procedure is checked against its plan; an access outside the plan panics. In
    /// pieces and repairs each pass is checked against the operations that run in it. Slow, for tests. The columns
    /// that are read are checked only in builds with debug assertions. Default no.
    pub fn check_plans(mut self, wanted: bool) -> Builder {
        self.settings.check_plans = wanted;
        self
    }

    /// Keeps the database in this directory. Opening creates the database if there is none; otherwise it recovers all
    /// acknowledged transactions. One process at a time can open it. Default: no directory, in memory only.
    pub fn path(self, directory: impl Into<PathBuf>) -> Builder {
        self.at(directory.into(), false)
    }

    /// Loads the database of this directory for inspection. Nothing in the directory changes, and no right to write
    /// is needed. Writes stay in memory.
    pub fn inspect(self, directory: impl Into<PathBuf>) -> Builder {
        self.at(directory.into(), true)
    }

    fn at(mut self, directory: PathBuf, inspect: bool) -> Builder {
        self.settings.location = Some(DatabaseLocation { directory, inspect, disk: self.disk.clone() });
        self
    }

    /// Sets whether opening creates the database if there is none; otherwise a missing database is an error. Default
    /// yes.
    pub fn create(mut self, wanted: bool) -> Builder {
        self.settings.create = wanted;
        self
    }

    /// Replaces the disk under the path, for tests that inject faults. The order of the two calls does not matter.
    #[doc(hidden)]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Builder {
        if let Some(location) = &mut self.settings.location {
            location.disk = Some(Arc::clone(&disk));
        }
        self.disk = Some(disk);
        self
    }

    /// Sets when transactions are acknowledged. Default [`Durability::Group`] where there is a path, otherwise
    /// [`Durability::Off`].
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.settings.durability = Some(durability);
        self
    }

    /// Limits how long a call waits until its result is durable. Beyond the limit the call fails with
    /// [`TransactError::NotDurableYet`](crate::TransactError::NotDurableYet), which says whether the transaction may
    /// have committed. `None`: no limit, even while the disk is full. Default 30 s.
    ///
    /// A session can have its own limit: [`Session::set_wait_max`](crate::Session::set_wait_max). Other waits, for a
    /// worker or for the log backlog, end after a second.
    pub fn wait_max(mut self, wait: Option<Duration>) -> Builder {
        self.settings.wait_max = wait;
        self
    }

    /// Sets the directories of the log, one logger thread each. Directories on separate disks are flushed in
    /// parallel. Missing directories are created. Relative paths are inside the database's directory; a name like
    /// `checkpoint-0000000042` is refused. Default: the database's own directory only.
    ///
    /// The directories may differ from one opening to the next. Former ones must remain until a checkpoint has made
    /// their logs obsolete.
    pub fn log_directories(mut self, directories: impl IntoIterator<Item = impl Into<PathBuf>>) -> Builder {
        self.settings.log.directories = directories.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the bytes of a log segment, a file that is filled with zeros beforehand. 1 byte to 8 GiB,
    /// rounded up to whole pages. Default 64 MiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Builder {
        self.settings.log.segment_bytes = bytes;
        self
    }

    /// Sets the bytes of a worker's log buffer, 1 byte to 64 MiB, of which it uses as many as it needs. Default 64 KiB.
    pub fn log_buffer_bytes(mut self, bytes: usize) -> Builder {
        self.settings.log.buffer_bytes = bytes;
        self
    }

    /// Limits the bytes of log that wait to be written. Beyond the limit transactions wait before they begin; if that
    /// does not help, commits are refused. Default 64 MiB for each worker that writes.
    pub fn log_backlog_bytes(mut self, bytes: usize) -> Builder {
        self.settings.log.backlog_bytes = bytes;
        self
    }

    /// Sets after how many bytes of log a checkpoint is taken and the older log is deleted. `None`: only by
    /// [`Database::checkpoint`]. Default 1 GiB.
    pub fn checkpoint_bytes(mut self, bytes: Option<u64>) -> Builder {
        self.settings.checkpoint_bytes = bytes;
        self
    }

    /// Limits the bytes per second that a checkpoint writes, at least 1, to leave disk bandwidth to the log. Default:
    /// no limit. Under [`Builder::step_helpers`] neither this nor [`Builder::checkpoint_share`] applies.
    pub fn checkpoint_rate(mut self, bytes_per_second: Option<u64>) -> Builder {
        self.settings.checkpoint_bytes_per_second = bytes_per_second;
        self
    }

    /// Sets the percentage of time, 1 to 100, for which each thread of a checkpoint works while transactions run. The
    /// checkpoint takes correspondingly longer. It also uses processors that transactions leave idle. Default 10.
    ///
    /// The share grows with the log: each time the log has grown by a certain number of bytes since the checkpoint
    /// began. The number is [`Builder::checkpoint_bytes`], or the bytes in memory if these are more. The checkpoint
    /// then works for twice the share, then three times, and so on.
    pub fn checkpoint_share(mut self, percent: u32) -> Builder {
        self.settings.checkpoint_share = percent;
        self
    }

    /// Sets a callback that reports the progress of recovery while the database is being opened, from any thread.
    /// Default: none.
    ///
    /// ```no_run
    /// # use seriatim::Database;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Database::builder().path("accounts.db");
    /// let db = builder.on_recovery(|at| eprintln!("{}: {} of {:?}", at.phase.name(), at.done, at.total)).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_recovery(mut self, told: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> Builder {
        self.settings.on_recovery = Listener(Some(Arc::new(told)));
        self
    }

    /// Breaks the protocol deliberately, for tests that must detect it.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn canary(mut self, fault: seriatim_txn::Fault) -> Builder {
        self.settings.fault = fault;
        self
    }

    /// Breaks the log deliberately, for tests that must detect it.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn log_canary(mut self, fault: seriatim_engine::LogFault) -> Builder {
        self.settings.log_fault = fault;
        self
    }

    /// Sets the number of threads, at most 8, for recovery, checkpoints and passes over indexes, whatever the number
    /// of processors. For tests.
    #[doc(hidden)]
    pub fn helper_threads(mut self, threads: usize) -> Builder {
        self.settings.helper_threads = Some(threads);
        self
    }

    /// Opens the database.
    ///
    /// # Errors
    /// An unknown protocol or option; a back end that does not work on this machine; no memory. A setting that is out
    /// of its range ([`OpenError::Setting`]), or settings that contradict each other ([`OpenError::Invalid`]).
    pub fn open(self) -> Result<Database, OpenError> {
        self.settings.open().map(Database::of)
    }
}

#[cfg(test)]
mod tests {
    use seriatim_base::disk::FaultyDisk;

    use super::*;

    #[test]
    fn a_tests_disk_may_be_given_before_the_path() {
        let disk = FaultyDisk::new(5);
        let given = Database::builder().workers(2).step_helpers(true).disk(Arc::new(disk.mount())).path("/db");
        drop(given.open().expect("a new database opens"));
        assert!(Database::builder().workers(2).path("/db").disk(Arc::new(disk.mount())).create(false).open().is_ok());
    }
}
