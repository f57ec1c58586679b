//! The records of owners and coordinators, and when they must be durable.
//!
//! The output of an owner or coordinator is a sequence. A [`Kept::Forced`] record must be durable before any
//! later output leaves; a [`Kept::Later`] record only before later records. So a log that keeps records in
//! order and flushes them in groups is enough.
//!
//! | record | of | durable | before |
//! |---|---|---|---|
//! | [`OwnerRecord::Executed`] | owner | forced | the reply of a single-partition transaction, and votes on top of it |
//! | [`OwnerRecord::Prepared`] | owner | forced | the vote to commit |
//! | [`OwnerRecord::Decided`], commit | owner | forced | the acknowledgement |
//! | [`OwnerRecord::Decided`], abort | owner | later | |
//! | [`CoordinatorRecord::Committed`] | coordinator | forced | the decision, and the client's answer |
//! | [`CoordinatorRecord::Ended`] | coordinator | later | |
//!
//! Aborts are presumed: the coordinator keeps no record of them, and answers "aborted" for transactions that
//! it does not know.

use crate::{CoordinatorId, PartitionId, TransactionId};

/// When a record must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Before anything that follows it leaves.
    Forced,
    /// Before the records that follow it.
    Later,
}

/// A record of an owner. Records list the executed work in execution order, and recovery runs it again (§3.2
/// of the paper sends the same to backups).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerRecord<W> {
    /// A single-partition transaction ran, and did not fail.
    Executed {
        /// The transaction.
        transaction: TransactionId,
        /// Its work.
        work: W,
        /// The undecided transaction on top of which it ran; if that one aborts, this record is void.
        after: Option<TransactionId>,
    },
    /// All of a transaction's fragments here have run. Takes the place of an earlier record of the same transaction.
    Prepared {
        /// The transaction.
        transaction: TransactionId,
        /// Its coordinator, which decides.
        coordinator: CoordinatorId,
        /// The work of its fragments, by rounds.
        works: Vec<W>,
        /// As in [`OwnerRecord::Executed`].
        after: Option<TransactionId>,
    },
    /// A prepared transaction ended.
    Decided {
        /// The transaction.
        transaction: TransactionId,
        /// Whether it committed.
        commit: bool,
    },
}

/// A record of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorRecord {
    /// A transaction committed.
    Committed {
        /// The transaction.
        transaction: TransactionId,
        /// The partitions that must learn of it.
        participants: Vec<PartitionId>,
    },
    /// All participants know that it committed.
    Ended {
        /// The transaction.
        transaction: TransactionId,
    },
}
