//! How a database is opened: the options that a builder collects.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim_base::disk::Disk;
use seriatim_base::{machine, thread};
use seriatim_batch::Placement;
use seriatim_htm::{Budget, Htm, HtmMode};
use seriatim_memory::{Memory, Options};
use seriatim_redo::backup::Damaged;
use seriatim_redo::checkpoint::is_reserved;
use seriatim_redo::segment::SEGMENT_BYTES_MAX;
use seriatim_txn::{Environment, Eventual, PartitionFunction, Partitions, Priority, ProtocolInfo, Snapshots};

use crate::durability::Listener;
use crate::procedure::ExecutionMode;
use crate::protocol;
use crate::{Durability, Engine, OpenError, RetryPolicy, protocols};

/// The options of a database. The builder's methods document each.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The protocol by name, or `auto`.
    pub protocol: String,
    /// Options of the protocol.
    pub protocol_options: Vec<(String, u64)>,
    /// Tables whose rows are hot from the start, by name.
    pub hot_tables: Vec<String>,
    /// How many partitions the database has; `None` for the default.
    pub partitions: Option<usize>,
    /// The function that assigns a value to a partition.
    pub partition_by: PartitionBy,
    /// Whether commits skip the validation of reads.
    pub without_validation: bool,
    /// How regions run.
    pub htm: HtmMode,
    /// Retries of a region.
    pub budget: Budget,
    /// Transactions that can be open at the same time.
    pub workers: usize,
    /// Bytes to map and touch when the database is opened.
    pub prefault_bytes: usize,
    /// Whether the kernel is asked for large pages.
    pub huge_pages: bool,
    /// Bytes of rows and indexes; `usize::MAX` is no limit, `None` the default.
    pub memory_limit: Option<usize>,
    /// Whether histories are recorded.
    pub record_history: bool,
    /// Whether conflicts are counted by row and by the procedures that conflict.
    pub track_contention: bool,
    /// How conflicts are retried.
    pub retry: RetryPolicy,
    /// How long an attempt may be open.
    pub transaction_age_max: Duration,
    /// How long a read-only attempt may be open, if that is less.
    pub snapshot_age_max: Duration,
    /// Bytes that a snapshot, or a parked transaction, may keep from being reused; `None` for the default.
    pub snapshot_bytes_max: Option<usize>,
    /// How often the epoch advances; `None` for the default.
    pub epoch_interval: Option<Duration>,
    /// No helper threads.
    pub step_helpers: bool,
    /// Helper threads; `None` for as many as there are processors.
    pub helper_threads: Option<usize>,
    /// Operations of an attempt between two validations.
    pub operations_max: u32,
    /// Whether pauses after conflicts are found by hill climbing, up to the maximum of `RetryPolicy`, instead
    /// of doubled. `None`: if the protocol wants it.
    pub regulate_pauses: Option<bool>,
    /// For the jitter of retries.
    pub seed: u64,
    /// Whether procedures fetch ahead.
    pub prefetch: bool,
    /// Whether read-only procedures read from snapshots, if the protocol has them.
    pub snapshots: bool,
    /// How executors batch calls.
    pub batch: Batch,
    /// How a batch is distributed over the threads of an executor.
    pub batch_placement: Placement,
    /// The most calls that wait in an executor's queue.
    pub executor_queue_max: usize,
    /// How procedures are run.
    pub execution_mode: ExecutionMode,
    /// Whether accesses are checked against plans.
    pub check_plans: bool,
    /// Where the database is stored; `None`: in memory only.
    pub location: Option<DatabaseLocation>,
    /// For an inspection that leaves out what is damaged of the checkpoint: gets what that is.
    pub(crate) salvage: Option<Arc<Mutex<MissingRows>>>,
    /// Whether a database is created if the directory has none.
    pub create: bool,
    /// When results are returned.
    pub durability: Option<Durability>,
    /// How long a call waits for the disk.
    pub wait_max: Option<Duration>,
    /// How the log is written.
    pub log: LogSettings,
    /// Bytes of log between checkpoints.
    pub checkpoint_bytes: Option<u64>,
    /// Most bytes a second that a checkpoint writes.
    pub checkpoint_bytes_per_second: Option<u64>,
    /// Percent of the time in which a checkpoint works.
    pub checkpoint_share: u32,
    /// The listener for the progress of a recovery.
    pub on_recovery: Listener,
    /// A fault of the protocol, for tests.
    #[cfg(feature = "canary")]
    pub fault: seriatim_txn::Fault,
    /// A fault of the log, for tests.
    #[cfg(feature = "canary")]
    pub log_fault: seriatim_redo::LogFault,
}

/// A partition function of the application.
#[derive(Clone, Default)]
pub struct PartitionBy(pub Option<PartitionFunction>);

impl fmt::Debug for PartitionBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "by a function" } else { "by default" })
    }
}

/// Percent of the available memory that rows may take by default.
const MEMORY_PERCENT: u64 = 80;

/// How long an attempt may be open by default.
const TRANSACTION_AGE_MAX: Duration = Duration::from_secs(60);

/// How often the epoch advances by default.
const EPOCH_INTERVAL: Duration = Duration::from_millis(10);

/// The longest interval between two epochs: memory of deleted rows can be reused only as epochs pass.
const EPOCH_INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest buffer of a worker's log: each worker has one.
const BUFFER_BYTES_MAX: usize = 64 << 20;

/// Most bytes that are mapped beforehand if no limit is known: more than any machine has.
const PREFAULT_BYTES_MAX: usize = 1 << 47;

/// An error that names the setting, unless its value is in the range.
pub(crate) fn within<T: PartialOrd + fmt::Debug>(
    setting: &'static str,
    value: T,
    permitted: RangeInclusive<T>,
) -> Result<(), OpenError> {
    if permitted.contains(&value) {
        return Ok(());
    }
    let permitted = format!("{:?} to {:?}", permitted.start(), permitted.end());
    Err(OpenError::Setting { setting, value: format!("{value:?}"), permitted })
}

/// Most threads that recover, take a checkpoint, or build or check indexes.
const HELPERS_MAX: usize = 8;

/// Sets of helpers that can work at the same time: one for a checkpoint, one for indexes. Each helper has a worker
/// of its own. The helpers of a recovery end before either set starts.
const HELPER_SETS: usize = 2;

/// The default bound of calls in an executor's queue. That is some 10 MB of small calls, and a tenth of a second or
/// more of work for its threads.
const EXECUTOR_QUEUE_MAX: usize = 1 << 16;

/// Where a database is stored.
#[derive(Clone, Debug)]
pub struct DatabaseLocation {
    /// The directory.
    pub directory: PathBuf,
    /// Opened for inspection only.
    pub inspect: bool,
    /// The disk of the directory; `None`: this machine's.
    pub disk: Option<Arc<dyn Disk>>,
}

/// What a damaged checkpoint lacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct MissingRows {
    /// The damage.
    pub(crate) damage: Vec<Damaged>,
    /// Rows that cannot be read.
    pub(crate) rows: u64,
    /// How many of them the log changes.
    pub(crate) changed: u64,
}

/// Bytes of log between checkpoints by default.
pub(crate) const CHECKPOINT_BYTES: u64 = 1 << 30;

/// How an executor batches the calls of procedures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batch {
    /// Not at all: calls begin in the order of their arrival.
    #[default]
    Off,
    /// In batches of 4 calls for each thread while conflicts cost more than batches do. With two threads,
    /// batches start at one retry of a call on average. Each doubling of the threads adds half a retry. They
    /// stop below half of that. Retries are measured now and then without batches, over 1024 calls.
    Auto,
    /// In batches of at most this many calls, 1 to 4096; 4 for each thread is a good size (Ding, Kot, Gehrke,
    /// §5.5).
    Size(usize),
}

impl Batch {
    /// Most calls of a batch in an executor with this many threads.
    pub(crate) fn size(self, threads: usize) -> usize {
        match self {
            Batch::Off => 0,
            Batch::Auto => threads.saturating_mul(CALLS_EACH).min(BATCH_CALLS_MAX),
            Batch::Size(calls) => calls,
        }
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Batch::Off => f.write_str("off"),
            Batch::Auto => f.write_str("auto"),
            Batch::Size(calls) => calls.fmt(f),
        }
    }
}

/// From `off`, `auto` or a number of calls.
impl FromStr for Batch {
    type Err = String;

    fn from_str(text: &str) -> Result<Batch, String> {
        match text {
            "off" => return Ok(Batch::Off),
            "auto" => return Ok(Batch::Auto),
            _ => {}
        }
        let calls = text.parse().ok().filter(|calls| (1..=BATCH_CALLS_MAX).contains(calls));
        calls.map(Batch::Size).ok_or_else(|| format!("it is off, auto or calls of a batch, 1 to {BATCH_CALLS_MAX}"))
    }
}

/// Calls of a batch for each thread (Ding, Kot, Gehrke, §5.5).
const CALLS_EACH: usize = 4;

/// Most calls of a batch: 4 for each of 1024 threads. Placing a batch takes time that grows with the square of
/// its size.
const BATCH_CALLS_MAX: usize = 4096;

/// How the log is written.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Directories of the log; empty for the database's own.
    pub directories: Vec<PathBuf>,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of a worker's buffer.
    pub buffer_bytes: usize,
    /// Bytes of each writing worker that may wait to be written; beyond this, commits are refused.
    pub backlog_bytes: usize,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            directories: Vec::new(),
            segment_bytes: 64 << 20,
            buffer_bytes: 64 << 10,
            backlog_bytes: 64 << 20,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            protocol: "auto".to_owned(),
            protocol_options: Vec::new(),
            hot_tables: Vec::new(),
            partitions: None,
            partition_by: PartitionBy::default(),
            without_validation: false,
            htm: HtmMode::Auto,
            budget: Budget::default(),
            workers: 64,
            prefault_bytes: 0,
            huge_pages: true,
            memory_limit: None,
            record_history: false,
            track_contention: false,
            retry: RetryPolicy::default(),
            regulate_pauses: None,
            transaction_age_max: TRANSACTION_AGE_MAX,
            snapshot_age_max: Duration::MAX,
            snapshot_bytes_max: None,
            epoch_interval: None,
            step_helpers: false,
            helper_threads: None,
            operations_max: 1 << 16,
            seed: 0,
            prefetch: true,
            snapshots: true,
            batch: Batch::Off,
            batch_placement: Placement::default(),
            executor_queue_max: EXECUTOR_QUEUE_MAX,
            execution_mode: ExecutionMode::Whole,
            check_plans: false,
            location: None,
            salvage: None,
            create: true,
            durability: None,
            wait_max: Some(Duration::from_secs(30)),
            log: LogSettings::default(),
            checkpoint_bytes: Some(CHECKPOINT_BYTES),
            checkpoint_bytes_per_second: None,
            checkpoint_share: 10,
            on_recovery: Listener::default(),
            #[cfg(feature = "canary")]
            fault: seriatim_txn::Fault::None,
            #[cfg(feature = "canary")]
            log_fault: seriatim_redo::LogFault::None,
        }
    }
}

impl Settings {
    /// The memory limit, by default a share of the available memory.
    pub(crate) fn limit_bytes(&self) -> Option<usize> {
        match self.memory_limit {
            Some(usize::MAX) => None,
            Some(bytes) => Some(bytes),
            None => usize::try_from(machine::memory_granted()? / 100 * MEMORY_PERCENT).ok(),
        }
    }

    /// Threads that recover, or take a checkpoint.
    pub(crate) fn helpers(&self) -> usize {
        let threads = if self.step_helpers { 1 } else { thread::processors() };
        self.helper_threads.unwrap_or(threads).clamp(1, HELPERS_MAX)
    }

    /// Threads that build or check indexes: each also needs one of the sessions' workers.
    pub(crate) fn index_helpers(&self) -> usize {
        self.helpers().min(self.workers)
    }

    /// A log directory inside the database's directory whose name would be taken for a checkpoint's.
    fn log_named_as_a_checkpoint(&self) -> Option<&Path> {
        let home = std::path::absolute(&self.location.as_ref()?.directory).ok()?;
        self.log.directories.iter().map(PathBuf::as_path).find(|log| {
            let inside = log.strip_prefix(&home).unwrap_or(log);
            inside.is_relative() && inside.iter().any(is_reserved)
        })
    }

    /// The protocol's name. If partitions are requested, `auto` is a protocol that has them.
    fn protocol_name(&self) -> String {
        let partitions = self.partitions.is_some() || self.partition_by.0.is_some();
        let has = |info: &&ProtocolInfo| info.capabilities.partitions;
        let wanted = protocols().iter().find(has).filter(|_| partitions && self.protocol == "auto");
        wanted.map_or_else(|| self.protocol.clone(), |info| info.name.to_owned())
    }

    /// Checks that the protocol of this name has partitions, if they are requested.
    fn check_partitions(&self, protocol: &str) -> Result<(), OpenError> {
        let is_for = |info: &ProtocolInfo| info.name == protocol && !info.capabilities.partitions;
        match protocols().iter().find(|info| is_for(info)) {
            Some(info) if self.partitions.is_some() || self.partition_by.0.is_some() => {
                let has = protocols().iter().filter(|info| info.capabilities.partitions);
                let has: Vec<&str> = has.map(|info| info.name).collect();
                Err(OpenError::Invalid(format!(
                    "protocol {} has no partitions: choose {}, or leave out the settings of partitions",
                    info.name,
                    has.join(" or ")
                )))
            }
            _ => Ok(()),
        }
    }

    /// How often the epoch advances.
    pub(crate) fn epoch_interval(&self) -> Duration {
        self.epoch_interval.unwrap_or(EPOCH_INTERVAL)
    }

    /// Unless it was set, the epoch interval is that of the snapshots, if each snapshot ends an epoch.
    ///
    /// # Errors
    /// The interval is out of range, or longer than a transaction may be open.
    pub(crate) fn settle_epoch_interval(&mut self, snapshots: &Snapshots) -> Result<(), OpenError> {
        let of_snapshots = snapshots.eventual().filter(|_| snapshots.end_epochs()).map(Eventual::interval);
        let is_given = self.epoch_interval.is_some();
        self.epoch_interval = self.epoch_interval.or(of_snapshots);
        // The error names the setting that the caller gave.
        let is_young = self.transaction_age_max < TRANSACTION_AGE_MAX && !is_given;
        if is_young || self.transaction_age_max.is_zero() {
            let least = self.epoch_interval().clamp(Duration::from_nanos(1), EPOCH_INTERVAL_MAX);
            within("transaction_age_max", self.transaction_age_max, least..=Duration::MAX)?;
        }
        let most = self.transaction_age_max.min(EPOCH_INTERVAL_MAX);
        within("epoch_interval", self.epoch_interval(), Duration::from_nanos(1)..=most)
    }

    /// Checks each setting by itself.
    fn check_ranges(&self) -> Result<(), OpenError> {
        let RetryPolicy { attempts_max, pause_first, pause_max, .. } = self.retry;
        within("workers", self.workers, 1..=Priority::WORKERS_MAX)?;
        within("partitions", self.partitions.unwrap_or(1), 1..=Partitions::MAX)?;
        within("retry.attempts_max", attempts_max, 1..=u32::MAX)?;
        within("retry.pause_first", pause_first, Duration::ZERO..=RetryPolicy::PAUSE_MAX)?;
        within("retry.pause_max", pause_max, Duration::ZERO..=RetryPolicy::PAUSE_MAX)?;
        within("operations_max", self.operations_max, 1..=u32::MAX)?;
        within("executor_queue_max", self.executor_queue_max, 1..=usize::MAX)?;
        if let Batch::Size(calls) = self.batch {
            within("batch", calls, 1..=BATCH_CALLS_MAX)?;
        }
        within("checkpoint_share", self.checkpoint_share, 1..=100)?;
        within("checkpoint_rate", self.checkpoint_bytes_per_second.unwrap_or(1), 1..=u64::MAX)?;
        within("segment_bytes", self.log.segment_bytes, 1..=SEGMENT_BYTES_MAX)?;
        within("log_buffer_bytes", self.log.buffer_bytes, 1..=BUFFER_BYTES_MAX)?;
        within("prefault", self.prefault_bytes, 0..=self.limit_bytes().unwrap_or(PREFAULT_BYTES_MAX))
    }

    /// Opens a database with these options.
    ///
    /// # Errors
    /// An unknown protocol or option, a back end that does not work here, limits out of range, no memory.
    pub fn open(mut self) -> Result<Engine, OpenError> {
        self.check_ranges()?;
        self.protocol = self.protocol_name();
        self.check_partitions(&self.protocol)?;
        let invalid = |what: &str| Err(OpenError::Invalid(what.to_owned()));
        let home = self.location.iter().map(|location| &location.directory);
        if home.chain(&self.log.directories).any(|path| path.as_os_str().is_empty()) {
            return invalid("the path of a directory is empty: name one, `.` for the one that the process is in");
        }
        if let Some(log) = self.log_named_as_a_checkpoint() {
            return Err(OpenError::Invalid(format!(
                "the log directory {} has the name of a checkpoint, and would be deleted as one: choose another",
                log.display()
            )));
        }
        match (&self.location, self.durability) {
            (None, Some(durability)) if durability != Durability::Off => {
                return invalid("a database in memory has durability off; give it a path, or leave the durability out");
            }
            (Some(_), Some(Durability::Off)) => {
                return invalid(
                    "a database with durability off keeps nothing on disk; leave out the path, or choose async",
                );
            }
            _ => {}
        }
        if self.without_validation && self.location.is_some() {
            return invalid(
                "without validation transactions are not serializable and not kept on disk: leave out the path",
            );
        }
        let defers = protocol::capabilities(&self).is_some_and(|capabilities| capabilities.defers);
        let options = Options {
            // One more for the publisher of deferred additions.
            workers_max: self.workers + HELPER_SETS * HELPERS_MAX + usize::from(defers),
            huge_pages: self.huge_pages,
            prefault_bytes: self.prefault_bytes,
            limit_bytes: self.limit_bytes(),
        };
        let htm = Htm::new(self.htm).map_err(OpenError::Htm)?;
        let memory = Memory::new(options).map_err(|error| OpenError::Memory(error.to_string()))?;
        let hot_tables = self.hot_tables.clone().into();
        let partitions = self.partitions.unwrap_or(Partitions::DEFAULT);
        let partitions = Arc::new(Partitions::new(partitions, self.partition_by.0.clone()));
        let environment = Environment { hot_tables, partitions, ..Environment::new(htm, memory, self.budget) };
        #[cfg(feature = "canary")]
        let environment = Environment { fault: self.fault, ..environment };
        Engine::start(self, environment)
    }
}
