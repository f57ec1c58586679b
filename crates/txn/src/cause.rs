//! Why an attempt stops. An abort is an outcome with a cause; it is not an error.

use seriatim_base::TableId;
use seriatim_catalog::KeyBuf;

/// The phase in which an attempt was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Running the body.
    Execute,
    /// Taking the locks of the write set.
    Lock,
    /// Checking the read set.
    Validate,
}

/// The reason of an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// A record read or to be written was committed by another transaction.
    RecordChanged,
    /// A record was locked by another transaction, for which this one may not wait, or for longer than the bound.
    RecordLocked,
    /// The transaction waited for another for as long as the protocol's options allow.
    WaitTimeout,
    /// A record was unlinked from its index.
    RecordRemoved,
    /// A key appeared in, or left, a range or bucket that was read.
    MembershipChanged,
    /// A gap into which a key was to be inserted is locked by a scan, or the reverse.
    GapLocked,
    /// In its batch it was in conflict with others in every order, and they commit.
    LeftOut,
    /// The memory limit is reached.
    OutOfMemory,
    /// The transaction is older than the configured age.
    TooOld,
    /// The snapshot kept more memory from being used again than the settings permit.
    HoldsMemory,
    /// Another thread cancelled the transaction.
    Cancelled,
    /// A write in a read-only transaction.
    ReadOnly,
    /// A scan of a table or index that is not ordered.
    Unordered,
    /// The transaction already stopped and must be rolled back.
    Stopped,
    /// The transaction was used from inside one of its own update closures.
    Reentered,
    /// The log takes no commits: it has failed, or its disk is full.
    LogStopped,
    /// The process was forked from the one that opened the database.
    Forked,
    /// A handle of another database.
    ForeignHandle,
    /// The table is being changed. It can be used again in a moment.
    TableChanging,
    /// The table was dropped, or replaced by one with other columns, after the handle was opened.
    TableGone,
    /// A key of a partition that the transaction does not own, or a write where it has to own all.
    OtherPartition,
    /// The partition function panicked, or named a partition that is not there.
    NoPartition,
    /// A check at the end of the transaction found that rows contradict a constraint.
    ConstraintViolated,
    /// No number of a sequence can be given before more of them are durable. The next attempt waits for that.
    SequenceEmpty,
}

impl Reason {
    /// Every reason, in order of declaration: for counters and reports.
    pub const ALL: [Reason; 24] = [
        Reason::RecordChanged,
        Reason::RecordLocked,
        Reason::WaitTimeout,
        Reason::RecordRemoved,
        Reason::MembershipChanged,
        Reason::GapLocked,
        Reason::LeftOut,
        Reason::OutOfMemory,
        Reason::TooOld,
        Reason::HoldsMemory,
        Reason::Cancelled,
        Reason::ReadOnly,
        Reason::Unordered,
        Reason::Stopped,
        Reason::Reentered,
        Reason::LogStopped,
        Reason::Forked,
        Reason::ForeignHandle,
        Reason::TableChanging,
        Reason::TableGone,
        Reason::OtherPartition,
        Reason::NoPartition,
        Reason::ConstraintViolated,
        Reason::SequenceEmpty,
    ];

    /// Whether running the transaction again can help.
    pub const fn is_conflict(self) -> bool {
        matches!(
            self,
            Reason::RecordChanged
                | Reason::RecordLocked
                | Reason::WaitTimeout
                | Reason::RecordRemoved
                | Reason::MembershipChanged
                | Reason::GapLocked
                | Reason::LeftOut
                | Reason::TableChanging
                | Reason::SequenceEmpty
        )
    }

    /// A name for counters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::RecordChanged => "record_changed",
            Reason::RecordLocked => "record_locked",
            Reason::WaitTimeout => "wait_timeout",
            Reason::RecordRemoved => "record_removed",
            Reason::MembershipChanged => "membership_changed",
            Reason::GapLocked => "gap_locked",
            Reason::LeftOut => "left_out",
            Reason::OutOfMemory => "out_of_memory",
            Reason::TooOld => "too_old",
            Reason::HoldsMemory => "holds_memory",
            Reason::Cancelled => "cancelled",
            Reason::ReadOnly => "read_only",
            Reason::Unordered => "unordered",
            Reason::Stopped => "stopped",
            Reason::Reentered => "reentered",
            Reason::LogStopped => "log_stopped",
            Reason::Forked => "forked",
            Reason::ForeignHandle => "foreign_handle",
            Reason::TableChanging => "table_changing",
            Reason::TableGone => "table_gone",
            Reason::OtherPartition => "other_partition",
            Reason::NoPartition => "no_partition",
            Reason::ConstraintViolated => "constraint_violated",
            Reason::SequenceEmpty => "sequence_empty",
        }
    }
}

/// Phase and reason of an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    /// The phase of the attempt.
    pub phase: Phase,
    /// The reason.
    pub reason: Reason,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = match self.phase {
            Phase::Execute => "while executing",
            Phase::Lock => "while locking the write set",
            Phase::Validate => "while validating the read set",
        };
        let reason = match self.reason {
            Reason::RecordChanged => "a record was changed by another transaction",
            Reason::RecordLocked => "a record stayed locked by another transaction",
            Reason::WaitTimeout => "the wait for another transaction took longer than the configured time",
            Reason::RecordRemoved => "a record was removed by another transaction",
            Reason::MembershipChanged => "a key appeared in, or left, a range that was read",
            Reason::GapLocked => "a range is locked by another transaction",
            Reason::LeftOut => "it conflicts with others of its batch in every order",
            Reason::OutOfMemory => "the memory limit is reached",
            Reason::TooOld => "the transaction is older than the configured age",
            Reason::HoldsMemory => "the transaction keeps more memory from being used again than is permitted",
            Reason::Cancelled => "the transaction was cancelled",
            Reason::ReadOnly => "the transaction is read-only",
            Reason::Unordered => "the table or index is not ordered and cannot be scanned",
            Reason::Stopped => "the transaction already stopped and must be rolled back",
            Reason::Reentered => "the transaction was used inside its own update closure",
            Reason::LogStopped => "the log takes no commits",
            Reason::Forked => "the process was forked from the one that opened the database",
            Reason::ForeignHandle => "the table handle belongs to another database",
            Reason::TableChanging => "the table is being changed",
            Reason::TableGone => "the table was dropped or replaced after the handle was opened",
            Reason::OtherPartition => "the key is in a partition that the transaction does not have",
            Reason::NoPartition => "the partition function panicked, or named a partition that is not there",
            Reason::ConstraintViolated => "rows contradict a constraint that is checked at the end",
            Reason::SequenceEmpty => "more numbers of a sequence had to become durable first",
        };
        write!(f, "{phase}: {reason}")
    }
}

/// Why an operation or a commit did not go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum OpError {
    /// Another transaction holds a lock. The call has changed nothing. The caller repeats it until the holder has
    /// ended, [`super::Worker::wait_max`] is over, or the transaction is too old or cancelled; or it aborts.
    Wait,
    /// The attempt is over; [`super::Worker::abort`] follows.
    Abort(Cause),
}

impl OpError {
    /// An abort in the execute phase.
    pub const fn execute(reason: Reason) -> OpError {
        OpError::Abort(Cause { phase: Phase::Execute, reason })
    }
}

/// The table and key of an abort: for users, and for counters by table.
#[derive(Clone, Debug)]
pub struct ConflictInfo {
    /// Phase and reason.
    pub cause: Cause,
    /// The table, where one is known.
    pub table: Option<TableId>,
    /// The key, where one is known (a range or bucket has none).
    pub key: Option<KeyBuf>,
}
