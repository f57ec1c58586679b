//! What is kept of owners and coordinators, and when.
//!
//! An owner's or coordinator's output is a sequence. A [`Kept::Forced`] record must be durable before anything after it in the sequence leaves; a
//! [`Kept::Later`] record only before the records after it. So a log that keeps records in order and flushes them in groups will do.
//!
//! | record | by | kept | before |
//! |---|---|---|---|
//! | [`OwnerRecord::Executed`] | owner | forced | the reply of a single-partition transaction, and votes of those that ran on top of it |
//! | [`OwnerRecord::Prepared`] | owner | forced | the vote to commit |
//! | [`OwnerRecord::Decided`], commit | owner | forced | the acknowledgement |
//! | [`OwnerRecord::Decided`], abort | owner | later | |
//! | [`CoordinatorRecord::Committed`] | coordinator | forced | the decision, and the client's answer |
//! | [`CoordinatorRecord::Ended`] | coordinator | later | |
//!
//! An abort is presumed: nothing is kept of it by the coordinator, which answers "aborted" for what it does not know.

use crate::{CoordinatorId, PartitionId, TransactionId};

/// When a record must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Before anything that follows it leaves.
    Forced,
    /// Before the records that follow it.
    Later,
}

/// What is kept of an owner. Records say what ran, in the order in which it ran, and recovery runs it again (§3.2 of the paper sends
/// the same to backups).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerRecord<W> {
    /// A single-partition transaction ran, and did not fail.
    Executed {
        /// Which.
        transaction: TransactionId,
        /// What it did.
        work: W,
        /// It ran on top of this transaction, which was not decided, and is void if that one aborts.
        after: Option<TransactionId>,
    },
    /// All of a transaction's fragments here have run. Takes the place of an earlier record of the same transaction.
    Prepared {
        /// Which.
        transaction: TransactionId,
        /// Who decides.
        coordinator: CoordinatorId,
        /// What they did, by rounds.
        works: Vec<W>,
        /// As of [`OwnerRecord::Executed`].
        after: Option<TransactionId>,
    },
    /// A prepared transaction ended.
    Decided {
        /// Which.
        transaction: TransactionId,
        /// Whether it committed.
        commit: bool,
    },
}

/// What is kept of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorRecord {
    /// A transaction committed.
    Committed {
        /// Which.
        transaction: TransactionId,
        /// The partitions that must learn of it.
        participants: Vec<PartitionId>,
    },
    /// All of them have.
    Ended {
        /// Which.
        transaction: TransactionId,
    },
}
