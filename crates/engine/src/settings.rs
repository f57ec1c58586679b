//! How a database is opened: the options that a builder collects.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::disk::Disk;
use seriatim_base::{machine, thread};
use seriatim_batch::Placement;
use seriatim_htm::{Budget, Htm, HtmMode};
use seriatim_memory::{Memory, Options};
use seriatim_redo::checkpoint::is_reserved;
use seriatim_redo::segment::SEGMENT_BYTES_MAX;
use seriatim_txn::{Environment, Eventual, PartitionFunction, Partitions, Priority, ProtocolInfo, Snapshots};

use crate::durability::Listener;
use crate::procedure::ExecutionMode;
use crate::protocol;
use crate::{Durability, Engine, OpenError, RetryPolicy, protocols};

/// The options of a database. What each says is told where the builder sets it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The protocol by name, or `auto`.
    pub protocol: String,
    /// Options of the protocol.
    pub protocol_options: Vec<(String, u64)>,
    /// Tables whose rows are hot from the start, by name.
    pub hot_tables: Vec<String>,
    /// How many partitions the database has, if somebody says so.
    pub partitions: Option<usize>,
    /// Which of them a value belongs to.
    pub partition_by: PartitionBy,
    /// Whether commits leave out the validation of what was read.
    pub without_validation: bool,
    /// How regions run.
    pub htm: HtmMode,
    /// Retries of a region.
    pub budget: Budget,
    /// Transactions that can be open at the same time.
    pub workers: usize,
    /// Bytes to map and touch when it is opened.
    pub prefault_bytes: usize,
    /// Whether the kernel is asked for large pages.
    pub huge_pages: bool,
    /// Bytes of rows and indexes; `usize::MAX` is no limit, `None` the default.
    pub memory_limit: Option<usize>,
    /// Whether histories are recorded.
    pub record_history: bool,
    /// Whether conflicts are counted by row and by the procedures that were in each other's way.
    pub track_contention: bool,
    /// How conflicts are retried.
    pub retry: RetryPolicy,
    /// How long an attempt may be open.
    pub transaction_age_max: Duration,
    /// How long an attempt may be open that only reads, if that is less.
    pub snapshot_age_max: Duration,
    /// Bytes that a snapshot may keep from being used again, if that was said.
    pub snapshot_bytes_max: Option<usize>,
    /// How often the epoch advances, if that was said.
    pub epoch_interval: Option<Duration>,
    /// No helper threads.
    pub step_helpers: bool,
    /// In place of as many as there are processors.
    pub helper_threads: Option<usize>,
    /// Operations of an attempt between two validations.
    pub operations_max: u32,
    /// Whether pauses after conflicts are found by hill climbing (`RetryPolicy` says how long they are at most) instead of doubled; none: where
    /// the protocol wants it.
    pub regulate_pauses: Option<bool>,
    /// Of the jitter of retries.
    pub seed: u64,
    /// Whether procedures fetch ahead.
    pub prefetch: bool,
    /// Whether procedures that only read do so from snapshots, where the protocol gives them.
    pub snapshots: bool,
    /// How executors batch calls.
    pub batch: Batch,
    /// What threads of executors get of a batch.
    pub batch_placement: Placement,
    /// Calls that wait to begin in an executor, at most.
    pub executor_queue_max: usize,
    /// How procedures are run.
    pub execution_mode: ExecutionMode,
    /// Whether accesses are checked against plans.
    pub check_plans: bool,
    /// Where it is kept; `None`: in memory only.
    pub place: Option<Place>,
    /// Whether it is created if there is none.
    pub create: bool,
    /// When transactions are answered.
    pub durability: Option<Durability>,
    /// How long a call waits for the disk.
    pub wait_max: Option<Duration>,
    /// How the log is written.
    pub log: LogSettings,
    /// Bytes of log between checkpoints.
    pub checkpoint_bytes: Option<u64>,
    /// Bytes a second that a checkpoint writes at most.
    pub checkpoint_bytes_per_second: Option<u64>,
    /// Percent of the time that a checkpoint works.
    pub checkpoint_share: u32,
    /// The listener that is told how far a recovery is.
    pub on_recovery: Listener,
    /// A fault of the protocol, for tests.
    #[cfg(feature = "canary")]
    pub fault: seriatim_txn::Fault,
    /// A fault of the log, for tests.
    #[cfg(feature = "canary")]
    pub log_fault: seriatim_redo::LogFault,
}

/// A partition function of the user's.
#[derive(Clone, Default)]
pub struct PartitionBy(pub Option<PartitionFunction>);

impl fmt::Debug for PartitionBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "by a function" } else { "by default" })
    }
}

/// Percent of the memory there is that rows may take, if nothing else is said.
const MEMORY_PERCENT: u64 = 80;

/// How often the epoch advances, unless something else is said.
const EPOCH_INTERVAL: Duration = Duration::from_millis(10);

/// The longest interval between two epochs: what is deleted can be used again only as epochs pass.
const EPOCH_INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest buffer of a worker's log: each worker has one.
const BUFFER_BYTES_MAX: usize = 64 << 20;

/// Most bytes that are mapped beforehand where no limit is known: more than any machine has.
const PREFAULT_BYTES_MAX: usize = 1 << 47;

/// An error that names the setting, unless its value is in the range.
fn within<T: PartialOrd + fmt::Debug>(
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

/// Most threads that recover, take a checkpoint, or make or check indexes.
const HELPERS_MAX: usize = 8;

/// Sets of helpers that are at work at the same time, each helper with a worker of its own: those of a checkpoint, and those that go
/// through indexes. Those that recover are gone before either.
const HELPER_SETS: usize = 2;

/// Calls that wait to begin in an executor, unless something else is said: some 10 MB of small calls, and what threads do in a tenth of a
/// second or more.
const EXECUTOR_QUEUE_MAX: usize = 1 << 16;

/// Where a database is kept.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory.
    pub directory: PathBuf,
    /// Only to look at.
    pub inspect: bool,
    /// The disk that it is on; `None`: this machine's.
    pub disk: Option<Arc<dyn Disk>>,
}

/// Bytes of log between checkpoints, if nothing else is said.
pub(crate) const CHECKPOINT_BYTES: u64 = 1 << 30;

/// How an executor batches the calls of procedures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batch {
    /// Not at all: calls begin in the order in which they came.
    #[default]
    Off,
    /// In batches of 4 for each thread while conflicts cost more than batches do: of two threads from one retry of a call on average, and half of
    /// one more for each doubling of the threads, until there is less than half of that. It is measured now and then without batches, over 1024 calls.
    Auto,
    /// In batches of so many calls at most, 1 to 4096; 4 for each thread is a good size (Ding, Kot, Gehrke, §5.5).
    Size(usize),
}

impl Batch {
    /// Calls of a batch at most, of an executor with so many threads.
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

/// Most calls of a batch: what 1024 threads take of 4 each. To place a batch takes time that grows with the square of its size.
const BATCH_CALLS_MAX: usize = 4096;

/// How the log is written.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Empty: the database's own.
    pub directories: Vec<PathBuf>,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of a worker's buffer.
    pub buffer_bytes: usize,
    /// Bytes that wait to be written beyond which commits are refused; of each worker that writes.
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
            transaction_age_max: Duration::from_secs(60),
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
            place: None,
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
    /// The limit, by default a share of what there is.
    pub(crate) fn limit_bytes(&self) -> Option<usize> {
        match self.memory_limit {
            Some(usize::MAX) => None,
            Some(bytes) => Some(bytes),
            None => usize::try_from(machine::memory_granted()? / 100 * MEMORY_PERCENT).ok(),
        }
    }

    /// Threads that recover, and that take a checkpoint.
    pub(crate) fn helpers(&self) -> usize {
        let threads = if self.step_helpers { 1 } else { thread::processors() };
        self.helper_threads.unwrap_or(threads).clamp(1, HELPERS_MAX)
    }

    /// Threads that make or check indexes: each needs one of the workers of sessions besides.
    pub(crate) fn index_helpers(&self) -> usize {
        self.helpers().min(self.workers)
    }

    /// A directory for the log, inside the database's, that would be taken for a checkpoint.
    fn log_named_as_a_checkpoint(&self) -> Option<&Path> {
        let home = std::path::absolute(&self.place.as_ref()?.directory).ok()?;
        self.log.directories.iter().map(PathBuf::as_path).find(|log| {
            let inside = log.strip_prefix(&home).unwrap_or(log);
            inside.is_relative() && inside.iter().any(is_reserved)
        })
    }

    /// The protocol by name. Partitions ask for one that has some.
    fn protocol_name(&self) -> String {
        let partitions = self.partitions.is_some() || self.partition_by.0.is_some();
        let has = |info: &&ProtocolInfo| info.capabilities.partitions;
        let wanted = protocols().iter().find(has).filter(|_| partitions && self.protocol == "auto");
        wanted.map_or_else(|| self.protocol.clone(), |info| info.name.to_owned())
    }

    /// Checks that the partitions can be, under the protocol of this name.
    fn check_partitions(&self, protocol: &str) -> Result<(), OpenError> {
        let is_for = |info: &ProtocolInfo| info.name == protocol && !info.capabilities.partitions;
        match protocols().iter().find(|info| is_for(info)) {
            Some(info) if self.partitions.is_some() || self.partition_by.0.is_some() => {
                let has = protocols().iter().filter(|info| info.capabilities.partitions);
                let has: Vec<&str> = has.map(|info| info.name).collect();
                Err(OpenError::Invalid(format!(
                    "protocol {} has no partitions: choose {}, or leave out what is said of partitions",
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

    /// Unless it was said how often the epoch advances, it does so with each snapshot, where each ends one.
    ///
    /// # Errors
    /// No such interval.
    pub(crate) fn settle_epoch_interval(&mut self, snapshots: &Snapshots) -> Result<(), OpenError> {
        let of_snapshots = snapshots.eventual().filter(|_| snapshots.end_epochs()).map(Eventual::interval);
        self.epoch_interval = self.epoch_interval.or(of_snapshots);
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
        let home = self.place.iter().map(|place| &place.directory);
        if home.chain(&self.log.directories).any(|path| path.as_os_str().is_empty()) {
            return invalid("the path of a directory is empty: name one, `.` for the one that the process is in");
        }
        if let Some(log) = self.log_named_as_a_checkpoint() {
            return Err(OpenError::Invalid(format!(
                "the log directory {} has a name that checkpoints get, and would be deleted as one: choose another",
                log.display()
            )));
        }
        match (&self.place, self.durability) {
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
        if self.without_validation && self.place.is_some() {
            return invalid("without validation transactions are wrong: what they leave is not kept on disk");
        }
        let defers = protocol::capabilities(&self).is_some_and(|capabilities| capabilities.defers);
        let options = Options {
            // And one that publishes what others have deferred.
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
