//! How a database is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::disk::Disk;
use seriatim_catalog::PartitionValue;
use seriatim_engine::{Batch, BatchPlacement, Listener, PartitionBy, Place, Settings};
use seriatim_htm::{Budget, HtmMode};

use crate::procedure::ExecutionMode;
use crate::{Database, Durability, OpenError, RecoveryProgress, RetryPolicy};

/// Options of a database; every one has a default.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Settings,
    /// Of tests.
    disk: Option<Arc<dyn Disk>>,
}

impl Builder {
    /// The protocol by name, or `auto`. [`crate::protocols`] lists them. Default `auto`.
    pub fn protocol(mut self, name: &str) -> Builder {
        name.clone_into(&mut self.settings.protocol);
        self
    }

    /// Sets an option of the protocol; what there is to set, with unit, default and range, is in [`ProtocolInfo::options`]. May be
    /// called several times; of several values for one option the last counts. Opening fails with [`OpenError::Option`] if the
    /// protocol has no such option, or the value is out of its range.
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

    /// Rows of these tables are hot from their first commit on, and no others ever, under a protocol that locks hot rows when they are accessed
    /// (`htcc`); in place of its option `hot`. Default: none, the protocol finds out. Opening fails under other protocols; a name that no table
    /// gets does nothing, and is told by [`Statistics::hot_tables_missing`](crate::Statistics::hot_tables_missing).
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

    /// So many partitions, 1 to 64, under the protocol `partitioned`, which `auto` then stands for; opening fails under another. A call of a
    /// registered procedure whose arguments tell which partitions it needs runs in them without concurrency control, while nobody else
    /// commits there; `docs/partitions.md` says when that pays. Default, under that protocol: 4.
    ///
    /// A row is in the partition of one column of its key: the first, or that of `#[table(partition(column))]`; a table that is
    /// `#[table(replicated)]` is in all of them.
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

    /// Which partition a value belongs to, of so many: the value of the column that partitions a table, of all tables. Default: integers
    /// modulo the number of partitions, all else hashed. A function that panics, or names a partition that is not there, fails the
    /// transaction with [`TransactError::NoPartition`](crate::TransactError::NoPartition). It is asked for each access, and must answer the
    /// same each time.
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

    /// Leaves out validation: results are wrong. For `seriatim bench --without-validation`, which measures what it costs.
    #[cfg(feature = "without-validation")]
    #[doc(hidden)]
    pub fn without_validation(mut self) -> Builder {
        self.settings.without_validation = true;
        self
    }

    /// How regions run. Default [`HtmMode::Auto`]: in hardware where it works.
    pub fn htm(mut self, mode: HtmMode) -> Builder {
        self.settings.htm = mode;
        self
    }

    /// Retries of a region, per cause, before its fallback, where the protocol's options do not say otherwise. Default as in the
    /// DBX paper, §6.1.
    pub fn region_budget(mut self, budget: Budget) -> Builder {
        self.settings.budget = budget;
        self
    }

    /// Transactions that can be open at the same time, 1 to 4096. Default 64.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.settings.workers = workers;
        self
    }

    /// Bytes to map and touch now, so that no transaction waits for fresh pages; at most [`Builder::memory_limit`].
    /// Default 0.
    pub fn prefault(mut self, bytes: usize) -> Builder {
        self.settings.prefault_bytes = bytes;
        self
    }

    /// Whether to ask the kernel for large pages. Default yes.
    pub fn huge_pages(mut self, wanted: bool) -> Builder {
        self.settings.huge_pages = wanted;
        self
    }

    /// Bytes of rows and indexes beyond which writes are refused, for good, with [`TransactError::OutOfMemory`] (a new table with
    /// [`SchemaError::OutOfMemory`]). `usize::MAX` is no limit. Default: 80 % of the memory that the machine has, or that the control
    /// group of the process is limited to (versions 1 and 2); none where that is not known, which is outside of Linux. Several
    /// databases of one process each have a limit of their own.
    ///
    /// What counts is the memory that workers have taken for records, row versions, long texts and keys, nodes and buckets of
    /// indexes; in steps of 64 KiB for each worker, and more for what is larger. What transactions note of their reads and writes
    /// counts too, as far as it is more than a few kilobytes each; it leaves less for rows. What does not count: sessions, procedures,
    /// what waits for the log ([`Builder::log_backlog_bytes`]), and the few megabytes that are mapped ahead of use.
    ///
    /// At the limit inserts, updates that make a new version, and new tables are refused; the transaction has no effect. Reads,
    /// scans, snapshots, deletes and roll-backs allocate nothing but what they note, and for that they may go above the limit by an
    /// eighth of it, or by 16 MiB if that is more: some 600,000 reads or 100,000 deletes of one transaction. Updates go on as far as the versions that earlier ones replaced are given back.
    ///
    /// What was deleted can be used again when the transactions that were open at the time have ended, and the worker that
    /// deleted it has looked after it: after its own next transactions, or when it rests; and, under
    /// `dbx` with a log, when the deletion is durable. It serves what has about the same size
    /// (in steps of an eighth); memory from 32 KiB on serves anything. Where all that lay in a piece of 64 KiB is deleted, the piece
    /// serves anything too after a second or two, and goes back to the system when more than 64 MiB, and more than an eighth of
    /// what is in use, is free. Give the limit room for one open transaction's new
    /// versions, and for 256 KiB of free blocks of each size that a busy worker keeps at hand.
    ///
    /// Opening a database is not held to the limit: what was acknowledged comes back, also where recovery needs more for it than the
    /// database had in use, say for rows that the log inserts and deletes again. The limit counts from then on, with what recovery took:
    /// if that is above it, what is free of it is used, and nothing more is taken; what transactions note has its room
    /// above that. A fifth of the memory is left for that, for checkpoints and for all else by the default.
    ///
    /// [`TransactError::OutOfMemory`]: crate::TransactError::OutOfMemory
    /// [`SchemaError::OutOfMemory`]: crate::SchemaError::OutOfMemory
    pub fn memory_limit(mut self, bytes: usize) -> Builder {
        self.settings.memory_limit = Some(bytes);
        self
    }

    /// Whether to record what every committed transaction read and wrote, for [`crate::history::check`]. Default no.
    pub fn record_history(mut self, wanted: bool) -> Builder {
        self.settings.record_history = wanted;
        self
    }

    /// Whether to count conflicts by row, cause and the procedures that were in each other's way, for
    /// [`Database::contention`](crate::Database::contention). A transaction then takes about a fifth more instructions. Default no.
    pub fn track_contention(mut self, wanted: bool) -> Builder {
        self.settings.track_contention = wanted;
        self
    }

    /// Whether the longest pause after a conflict is found by hill climbing over the throughput, between none and
    /// [`RetryPolicy::pause_max`], and each pause is anything up to it; else they double, as [`RetryPolicy`] says. The number is one for the
    /// database, and moves with each epoch in which there are conflicts. Default: where the protocol wants it
    /// ([`Capabilities::regulated`](crate::Capabilities::regulated)).
    pub fn regulate_pauses(mut self, wanted: bool) -> Builder {
        self.settings.regulate_pauses = Some(wanted);
        self
    }

    /// How conflicts are retried.
    pub fn retry(mut self, policy: RetryPolicy) -> Builder {
        self.settings.retry = policy;
        self
    }

    /// How long an attempt of a transaction may be open. One that is older fails at its next call, or when it is to commit, with
    /// [`TransactError::TooOld`], whether it is a closure, a procedure, a snapshot or an explicit transaction. The time is told
    /// once in each [`Builder::epoch_interval`]: an attempt may get older by five of them, and never fails before its age. Default
    /// 60 s; a session, and each transaction, can have its own ([`TransactionOptions`](crate::TransactionOptions)). An explicit
    /// transaction that is older is ended between two calls, so that it holds neither locks nor memory; those that cannot be ended
    /// are counted in [`Statistics::overdue`](crate::Statistics::overdue).
    ///
    /// [`TransactError::TooOld`]: crate::TransactError::TooOld
    pub fn transaction_age_max(mut self, age: Duration) -> Builder {
        self.settings.transaction_age_max = age;
        self
    }

    /// How long a read-only transaction may be open, where that is less than [`Builder::transaction_age_max`] or than
    /// the transaction's own [`TransactionOptions::age_max`](crate::TransactionOptions::age_max): as long as it is
    /// open, rows that are replaced or deleted meanwhile keep their memory, which counts against
    /// [`Builder::memory_limit`]. One that is older is ended as described there: its holder gets
    /// [`TransactError::TooOld`] at its next call. Default: [`Duration::MAX`], the age of any transaction.
    ///
    /// [`TransactError::TooOld`]: crate::TransactError::TooOld
    pub fn snapshot_age_max(mut self, age: Duration) -> Builder {
        self.settings.snapshot_age_max = age;
        self
    }

    /// Bytes that one read-only transaction may keep from being used again: rows that are replaced or deleted while
    /// it is open keep their memory. One that keeps more is ended, and its holder gets
    /// [`TransactError::HoldsMemory`] at its next call. It is measured every few epochs, as the growth of the memory
    /// that is in use and is no part of a table; what open transactions have written counts too. Default: half of what
    /// was free under [`Builder::memory_limit`] when the transaction began, but at least a 64th of the limit.
    ///
    /// [`TransactError::HoldsMemory`]: crate::TransactError::HoldsMemory
    pub fn snapshot_bytes_max(mut self, bytes: usize) -> Builder {
        self.settings.snapshot_bytes_max = Some(bytes);
        self
    }

    /// How often the epoch advances, at most once a day and not less often than [`Builder::transaction_age_max`] says.
    /// Default 10 ms; where durability is by snapshot (option `durable_snapshots` of `dbx-tc`), how often a snapshot is
    /// made, as each ends an epoch: then it may not be said otherwise by `snapshot_interval_ms`.
    pub fn epoch_interval(mut self, interval: Duration) -> Builder {
        self.settings.epoch_interval = Some(interval);
        self
    }

    /// No helper threads: [`Database::step`] does their work when called. For deterministic tests. Default no.
    pub fn step_helpers(mut self, wanted: bool) -> Builder {
        self.settings.step_helpers = wanted;
        self
    }

    /// Operations of one attempt after which its read set is validated, and again after as many more; so that a body that
    /// loops over values that never existed together ends. At least 1. Default 65,536.
    pub fn operations_max(mut self, operations: u32) -> Builder {
        self.settings.operations_max = operations;
        self
    }

    /// Seeds the jitter of retries. Default 0.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.settings.seed = seed;
        self
    }

    /// Whether procedures fetch what their arguments name into the processor's cache before they need it. Default yes; a
    /// session can change it for itself.
    pub fn prefetch(mut self, wanted: bool) -> Builder {
        self.settings.prefetch = wanted;
        self
    }

    /// Whether registered procedures that only read do so from snapshots, where the protocol gives them; without, they are validated as
    /// others are. For measurements: results are as serializable. Default yes.
    pub fn procedure_snapshots(mut self, wanted: bool) -> Builder {
        self.settings.snapshots = wanted;
        self
    }

    /// Whether an [`Executor`](crate::Executor) of several threads batches the calls of procedures that it is given: of those queued,
    /// it runs one after another on one thread those of which one writes what another reads or writes. What a call will touch is what
    /// its arguments tell; procedures that only read, or whose arguments tell no key, and closures are not batched and not delayed. It
    /// changes which call begins where and when, and nothing else. A batch is what is queued when a thread comes for work: nobody waits for
    /// more. Pure functions that compute keys run once more, beforehand; should one panic, the hook is told, and the call is not batched.
    /// Default [`Batch::Off`].
    pub fn batch(mut self, batch: Batch) -> Builder {
        self.settings.batch = batch;
        self
    }

    /// What each thread gets of a batch of calls: by default whole components of calls that conflict.
    pub fn batch_placement(mut self, placement: BatchPlacement) -> Builder {
        self.settings.batch_placement = placement;
        self
    }

    /// How many calls may wait to begin in an [`Executor`](crate::Executor), at least 1. Beyond that its methods wait, and
    /// [`Executor::try_reserve`](crate::Executor::try_reserve) answers [`QueueFull`](crate::QueueFull). Default 65,536.
    pub fn executor_queue_max(mut self, calls: usize) -> Builder {
        self.settings.executor_queue_max = calls;
        self
    }

    /// How registered procedures are run. Default [`ExecutionMode::Whole`].
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

    /// Whether every access that a procedure makes is checked against its plan; one outside it panics. In pieces and repairs each
    /// pass is checked against the operations that run in it. Slow, for tests. Columns read are checked in builds with debug
    /// assertions only. Default no.
    pub fn check_plans(mut self, wanted: bool) -> Builder {
        self.settings.check_plans = wanted;
        self
    }

    /// Keeps the database in this directory: opening creates it if there is none, else recovers what was acknowledged. One process
    /// at a time has it open. Default: nowhere, in memory only.
    pub fn path(self, directory: impl Into<PathBuf>) -> Builder {
        self.at(directory.into(), false)
    }

    /// Loads the database of this directory to look at it: nothing in the directory changes, no right to write is needed, and what is
    /// written stays in memory.
    pub fn inspect(self, directory: impl Into<PathBuf>) -> Builder {
        self.at(directory.into(), true)
    }

    fn at(mut self, directory: PathBuf, inspect: bool) -> Builder {
        self.settings.place = Some(Place { directory, inspect, disk: self.disk.clone() });
        self
    }

    /// Whether opening creates the database if there is none; else that is an error. Default yes.
    pub fn create(mut self, wanted: bool) -> Builder {
        self.settings.create = wanted;
        self
    }

    /// Another disk under the path, whichever is given first, for tests that break it.
    #[doc(hidden)]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Builder {
        if let Some(place) = &mut self.settings.place {
            place.disk = Some(Arc::clone(&disk));
        }
        self.disk = Some(disk);
        self
    }

    /// When transactions are answered. Default [`Durability::Group`] where there is a path, else [`Durability::Off`].
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.settings.durability = Some(durability);
        self
    }

    /// How long a call waits for the disk until its result is durable; beyond that it fails with
    /// [`TransactError::NotDurableYet`](crate::TransactError::NotDurableYet), which says whether it may be committed. `None`: for as long
    /// as it takes, also while the disk is full. For sessions of their own: [`Session::set_wait_max`](crate::Session::set_wait_max). Other
    /// waits, for a worker or a backlog, end after a second. Default 30 s.
    pub fn wait_max(mut self, wait: Option<Duration>) -> Builder {
        self.settings.wait_max = wait;
        self
    }

    /// Directories for the log, one logger thread each; on disks of their own they flush at the same time. Made if they are not there;
    /// relative ones are inside the database's, where a name like `checkpoint-0000000042` is refused. Default: one, the database's own directory. They may differ from one opening to the
    /// next; those of before must still be there, until a checkpoint has made what is in them superfluous.
    pub fn log_directories(mut self, directories: impl IntoIterator<Item = impl Into<PathBuf>>) -> Builder {
        self.settings.log.directories = directories.into_iter().map(Into::into).collect();
        self
    }

    /// Bytes of a log segment, a file that is written with zeros beforehand; 1 to 8 GiB, rounded up to whole pages.
    /// Default 64 MiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Builder {
        self.settings.log.segment_bytes = bytes;
        self
    }

    /// Bytes of a worker's log buffer, 1 to 64 MiB, of which it takes as many as it needs. Default 64 KiB.
    pub fn log_buffer_bytes(mut self, bytes: usize) -> Builder {
        self.settings.log.buffer_bytes = bytes;
        self
    }

    /// Bytes of log that wait to be written beyond which transactions wait before they begin, and commits are refused if that does not
    /// help. Default 64 MiB for each worker that writes.
    pub fn log_backlog_bytes(mut self, bytes: usize) -> Builder {
        self.settings.log.backlog_bytes = bytes;
        self
    }

    /// Bytes of log after which a checkpoint is taken and the log before it deleted; `None`: only when asked for
    /// ([`Database::checkpoint`]). Default 1 GiB.
    pub fn checkpoint_bytes(mut self, bytes: Option<u64>) -> Builder {
        self.settings.checkpoint_bytes = bytes;
        self
    }

    /// Bytes a second that a checkpoint writes at most, at least 1, so that it leaves some of the disk to the log.
    /// Default: no bound. Under [`Builder::step_helpers`] neither this nor [`Builder::checkpoint_share`] counts: nobody
    /// waits.
    pub fn checkpoint_rate(mut self, bytes_per_second: Option<u64>) -> Builder {
        self.settings.checkpoint_bytes_per_second = bytes_per_second;
        self
    }

    /// Percent of the time, 1 to 100, for which each thread of a checkpoint works beside transactions: the rest it leaves to them, and
    /// the checkpoint takes as much longer. Processors that transactions leave idle it uses besides. When the log has grown by [`Builder::checkpoint_bytes`] since it began, or by as much as is in
    /// memory if that is more, it works for twice as long, then for three times, and so on. Default 10.
    pub fn checkpoint_share(mut self, percent: u32) -> Builder {
        self.settings.checkpoint_share = percent;
        self
    }

    /// Is told how far the recovery is, now and then and from any thread, while the database is being opened. Default: nobody is.
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

    /// Breaks the protocol deliberately, for tests that must notice.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn canary(mut self, fault: seriatim_txn::Fault) -> Builder {
        self.settings.fault = fault;
        self
    }

    /// Breaks the log deliberately, for tests that must notice.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn log_canary(mut self, fault: seriatim_engine::LogFault) -> Builder {
        self.settings.log_fault = fault;
        self
    }

    /// So many threads, at most 8, recover, take a checkpoint and go through indexes, however many processors there are; for tests.
    #[doc(hidden)]
    pub fn helper_threads(mut self, threads: usize) -> Builder {
        self.settings.helper_threads = Some(threads);
        self
    }

    /// Opens the database.
    ///
    /// # Errors
    /// An unknown protocol or option, a back end that does not work here, no memory; a setting that is out of its range
    /// ([`OpenError::Setting`]), or settings that contradict each other ([`OpenError::Invalid`]).
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
