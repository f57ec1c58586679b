//! Counters of a database: each worker counts for itself, and readers add the counts up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_htm::RegionStatistics;
use seriatim_txn::{Cause, Phase, Reason};

use crate::snapshot_ages::{AgeCounters, SnapshotAges};

const PHASES: [Phase; 3] = [Phase::Execute, Phase::Lock, Phase::Validate];

/// Counts since the database was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Transactions committed, read-only ones included.
    pub committed: u64,
    /// Transactions ended by their body, or by a duplicate key.
    pub user_aborted: u64,
    /// Attempts ended by a conflict; each was retried or gave up.
    pub conflict_aborted: u64,
    /// The current maximum of pauses after conflicts, if pauses are regulated.
    pub pause_max: Option<Duration>,
    /// `conflict_aborted` by phase and reason, without zeros.
    pub aborts: Vec<(Cause, u64)>,
    /// Repairs of attempts whose reads went stale, under a protocol that repairs. Each replaced a retry.
    pub repairs: u64,
    /// Executions of operations that repairs repeated.
    pub runs_repaired: u64,
    /// Index lookups that repairs did not need, as their keys had not changed.
    pub lookups_saved: u64,
    /// Partitions of the database; zero if the protocol has none.
    pub partitions: usize,
    /// Attempts that owned one partition.
    pub owned_one: u64,
    /// Attempts that owned several, or all.
    pub owned_several: u64,
    /// Regions of all workers. The counts of a worker inside a transaction may be up to 1024 transactions old.
    pub regions: RegionStatistics,
    /// Bytes in use: records, row versions, index nodes, and lists of transactions. They count against the
    /// limit; so do free blocks, which are not included here.
    pub memory_bytes: usize,
    /// Of these, bytes by which the lists of transactions have grown: what they read, write, lock and retire.
    /// They shrink when the transactions after a large one are small, or when there are none.
    pub transaction_bytes: usize,
    /// Bytes mapped.
    pub reserved_bytes: usize,
    /// Bytes beyond which allocations are refused (`Builder::memory_limit`); `None` without a limit.
    pub memory_limit: Option<usize>,
    /// The contents of each table, in order of creation. Exact while no transaction is in its commit.
    pub tables: Vec<TableStatistics>,
    /// Tables and indexes that can still be created. Those that conversions have replaced count until the database is
    /// opened after the next checkpoint.
    pub tables_left: usize,
    /// A warning with advice, if that is less than an eighth of 16,383.
    pub tables_warning: Option<String>,
    /// Names given to `Builder::hot_tables` of which no table or index exists yet.
    pub hot_tables_missing: Vec<String>,
    /// Transactions that are open for longer than `Builder::transaction_age_max` and cannot be ended. Each is a
    /// closure that does not return, or a call of an explicit transaction. Rows that others delete and replace
    /// meanwhile are kept for them and count in `memory_bytes`.
    pub overdue: usize,
    /// Ages of snapshots when they were taken, if snapshots are made periodically. A snapshot made for its
    /// reader has age zero.
    pub snapshot_ages: Option<SnapshotAges>,
    /// The log, of a database on disk.
    pub log: Option<LogStatistics>,
    /// The queue of decisions, if decisions are queued.
    pub queue: Option<QueueStatistics>,
}

/// Counts of a queue of decisions since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatistics {
    /// Transactions decided.
    pub decisions: u64,
    /// Batches in which they were decided.
    pub batches: u64,
    /// Batches whose ordering panicked, so that they were decided in order of arrival.
    pub orders_failed: u64,
    /// Decisions of the largest batch since the database was opened.
    pub largest: u64,
    /// Transactions that a validator left out, as they conflicted with others of their batch in every order.
    /// Each was executed again, or gave up.
    pub left_out: u64,
    /// Transactions that were stale before their batch was ordered. Each was executed again, or gave up.
    pub stale: u64,
    /// Decided transactions in which a read waited for another transaction that was going to overwrite the row.
    pub waited: u64,
    /// Executions of transactions while nothing else was decided, as they had been refused too often. These
    /// decisions are not in batches.
    pub alone: u64,
    /// Time in which validators ordered batches, over all threads.
    pub order_time: Duration,
    /// Time of transactions in each of [`QUEUE_STAGES`], summed over transactions. Each transaction of a batch
    /// counts the time of the batch.
    pub stages: [Duration; QUEUE_STAGES.len()],
}

/// The stages of executed transactions. Each ends when their batch is taken out; checked for stale transactions;
/// ordered; the next to be decided; decided and installed.
pub const QUEUE_STAGES: [&str; 5] = ["gather", "recheck", "order", "turn", "decide"];

/// The contents of a table: the newest version of each row. Older versions, kept for readers or for the log,
/// count in [`Statistics::memory_bytes`] only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStatistics {
    /// The table's name.
    pub name: String,
    /// The number of rows.
    pub rows: u64,
    /// Bytes of rows, keys, long texts, and of the table's own index, as allocated.
    pub bytes: u64,
    /// Bytes of its secondary indexes.
    pub index_bytes: u64,
    /// Those of its rows that are still as they were before its columns changed. Readers see them converted. The next
    /// write converts a row, or a pass in the background.
    pub earlier_rows: u64,
}

/// Counts of the log and the checkpoints since the database was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStatistics {
    /// Writes of the log, with one flush each.
    pub flushes: u64,
    /// Commits that they contain, except those that changed nothing. A commit of more than 1 MiB counts several
    /// times.
    pub commits: u64,
    /// Bytes written, with headers and padding.
    pub bytes: u64,
    /// Bytes of commits among them.
    pub payload_bytes: u64,
    /// Time spent in flushes, over all loggers.
    pub flush_time: Duration,
    /// The longest flush since the database was opened.
    pub flush_time_max: Duration,
    /// Committed bytes that wait for the disk now.
    pub backlog_bytes: u64,
    /// The current epoch.
    pub epoch: u64,
    /// Epochs that are left. A database uses each epoch once; its log stops after the last one.
    pub epochs_left: u64,
    /// How long they last at the rate at which epochs ended since the database was opened; `None` in its first second.
    /// The ticker ends an epoch in each `epoch_interval`, and each flush that a caller awaits ends one.
    pub epochs_lasting: Option<Duration>,
    /// A warning with advice, if that is less than a year.
    pub epochs_warning: Option<String>,
    /// The newest durable epoch.
    pub durable_epoch: u64,
    /// The number of the newest durable snapshot, if durability is by snapshot.
    pub durable_snapshot: Option<u64>,
    /// Why commits are refused now, if they are: the log has stopped, or its disk is full.
    pub refusal: Option<String>,
    /// Whether the log has stopped for good: `durable_epoch` no longer changes, and snapshots show that epoch.
    pub stopped: bool,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints that failed. A retry follows after a pause that grows with each failure.
    pub checkpoints_failed: u64,
    /// The duration of the last completed checkpoint.
    pub checkpoint_duration: Duration,
    /// Why the last checkpoint failed, if it did.
    pub checkpoint_error: Option<String>,
    /// Why a log segment or checkpoint that is no longer needed could not be deleted, if so. The next
    /// checkpoint tries again. Only space is lost.
    pub deletion_error: Option<String>,
}

impl LogStatistics {
    /// The counts since `earlier`; the other values as of now.
    fn since(&self, earlier: &LogStatistics) -> LogStatistics {
        LogStatistics {
            flushes: self.flushes - earlier.flushes,
            commits: self.commits - earlier.commits,
            bytes: self.bytes - earlier.bytes,
            payload_bytes: self.payload_bytes - earlier.payload_bytes,
            flush_time: self.flush_time - earlier.flush_time,
            checkpoints: self.checkpoints - earlier.checkpoints,
            checkpoints_failed: self.checkpoints_failed - earlier.checkpoints_failed,
            ..self.clone()
        }
    }
}

impl QueueStatistics {
    /// The counts since `earlier`.
    fn since(self, earlier: QueueStatistics) -> QueueStatistics {
        QueueStatistics {
            decisions: self.decisions - earlier.decisions,
            batches: self.batches - earlier.batches,
            orders_failed: self.orders_failed - earlier.orders_failed,
            largest: self.largest,
            left_out: self.left_out - earlier.left_out,
            stale: self.stale - earlier.stale,
            waited: self.waited - earlier.waited,
            alone: self.alone - earlier.alone,
            order_time: self.order_time - earlier.order_time,
            stages: std::array::from_fn(|stage| self.stages[stage] - earlier.stages[stage]),
        }
    }
}

impl Statistics {
    /// The counts since `earlier`; memory and tables as of now.
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        let before = |cause: Cause| earlier.aborts.iter().find(|(other, _)| *other == cause).map_or(0, |(_, n)| *n);
        let aborts = self.aborts.iter().map(|&(cause, count)| (cause, count - before(cause)));
        Statistics {
            committed: self.committed - earlier.committed,
            user_aborted: self.user_aborted - earlier.user_aborted,
            conflict_aborted: self.conflict_aborted - earlier.conflict_aborted,
            pause_max: self.pause_max,
            aborts: aborts.filter(|&(_, count)| count > 0).collect(),
            repairs: self.repairs - earlier.repairs,
            runs_repaired: self.runs_repaired - earlier.runs_repaired,
            lookups_saved: self.lookups_saved - earlier.lookups_saved,
            partitions: self.partitions,
            owned_one: self.owned_one - earlier.owned_one,
            owned_several: self.owned_several - earlier.owned_several,
            regions: self.regions.since(&earlier.regions),
            memory_bytes: self.memory_bytes,
            transaction_bytes: self.transaction_bytes,
            memory_limit: self.memory_limit,
            tables: self.tables.clone(),
            tables_left: self.tables_left,
            tables_warning: self.tables_warning.clone(),
            hot_tables_missing: self.hot_tables_missing.clone(),
            reserved_bytes: self.reserved_bytes,
            overdue: self.overdue,
            snapshot_ages: self.snapshot_ages.as_ref().map(|ages| ages.since(earlier.snapshot_ages.as_ref())),
            log: self.log.as_ref().map(|log| log.since(&earlier.log.clone().unwrap_or_default())),
            queue: self.queue.map(|queue| queue.since(earlier.queue.unwrap_or_default())),
        }
    }
}

/// One worker's counters. Only the current lessee of the worker writes them; any thread reads them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    committed: AtomicU64,
    user_aborted: AtomicU64,
    conflict_aborted: AtomicU64,
    repairs: AtomicU64,
    runs_repaired: AtomicU64,
    lookups_saved: AtomicU64,
    owned_one: AtomicU64,
    owned_several: AtomicU64,
    pub(crate) snapshot_ages: AgeCounters,
    causes: [[AtomicU64; Reason::ALL.len()]; PHASES.len()],
}

/// Adds one without a locked instruction: there is one writer at a time, and leases order them.
#[inline]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Counters {
    #[inline]
    pub(crate) fn committed(&self) {
        bump(&self.committed);
    }

    pub(crate) fn user_aborted(&self) {
        bump(&self.user_aborted);
    }

    /// A repair has repeated `runs` executions of operations and saved `saved` lookups.
    pub(crate) fn repaired(&self, runs: u64, saved: u64) {
        bump(&self.repairs);
        self.lookups_saved.store(self.lookups_saved.load(Ordering::Relaxed) + saved, Ordering::Relaxed);
        self.runs_repaired.store(self.runs_repaired.load(Ordering::Relaxed) + runs, Ordering::Relaxed);
    }

    /// An attempt owns this many partitions.
    #[inline]
    pub(crate) fn owned(&self, partitions: usize) {
        bump(if partitions == 1 { &self.owned_one } else { &self.owned_several });
    }

    pub(crate) fn conflict_aborted(&self, cause: Cause) {
        bump(&self.conflict_aborted);
        bump(&self.causes[cause.phase as usize][cause.reason as usize]);
    }

    /// Commits and conflicts.
    pub(crate) fn decided(&self) -> (u64, u64) {
        (self.committed.load(Ordering::Relaxed), self.conflict_aborted.load(Ordering::Relaxed))
    }

    pub(crate) fn add_to(&self, statistics: &mut Statistics) {
        statistics.committed += self.committed.load(Ordering::Relaxed);
        statistics.user_aborted += self.user_aborted.load(Ordering::Relaxed);
        statistics.conflict_aborted += self.conflict_aborted.load(Ordering::Relaxed);
        statistics.repairs += self.repairs.load(Ordering::Relaxed);
        statistics.runs_repaired += self.runs_repaired.load(Ordering::Relaxed);
        statistics.lookups_saved += self.lookups_saved.load(Ordering::Relaxed);
        statistics.owned_one += self.owned_one.load(Ordering::Relaxed);
        statistics.owned_several += self.owned_several.load(Ordering::Relaxed);
        if let Some(ages) = &mut statistics.snapshot_ages {
            self.snapshot_ages.add_to(ages);
        }
        for phase in PHASES {
            for reason in Reason::ALL {
                let count = self.causes[phase as usize][reason as usize].load(Ordering::Relaxed);
                let cause = Cause { phase, reason };
                match statistics.aborts.iter_mut().find(|(other, _)| *other == cause) {
                    Some((_, total)) => *total += count,
                    None if count > 0 => statistics.aborts.push((cause, count)),
                    None => {}
                }
            }
        }
    }
}
