//! The messages between clients, owners and coordinators: plain data that could cross a network.
//!
//! A carrier must deliver messages **in order** from one sender to one receiver, also across restarts of
//! either, and **at most once**: it duplicates none. A message to a receiver that is down may be lost; one to
//! a receiver that stays up must not be.
//!
//! Receivers do not rely on the latter half. A call or first fragment whose number is not above all earlier ones of its
//! client does not run ([`Outcome::Repeated`]). Neither does a fragment of a round that has run. So a client that does
//! not learn the outcome of a transaction cannot ask again under its number. Under a new number the transaction may be
//! applied twice, unless its data tell (a row that says that it is done).

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
id! {
    /// A partition, and its owner.
    PartitionId
}
id! {
    /// A coordinator. It keeps its number when it restarts.
    CoordinatorId
}
id! {
    /// A client, which makes calls.
    ClientId
}

/// One attempt of a transaction. A client's numbers grow from call to call, also across its restarts. It sends
/// its calls over several partitions through one coordinator. Numbers that do not grow are refused
/// ([`Outcome::Repeated`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The client.
    pub client: ClientId,
    /// The number of the client's call.
    pub number: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client, self.number)
    }
}

/// A single-partition transaction: one fragment, which is all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<W> {
    /// Its id.
    pub transaction: TransactionId,
    /// Its work.
    pub work: W,
    /// Whether the work can fail. If it cannot, no undo is needed unless an undecided transaction is before
    /// it. It is a hint: a call that fails all the same is answered [`Outcome::UserAborted`], and has had no
    /// effect.
    pub may_abort: bool,
}

/// A message to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToOwner<W> {
    /// Of a client.
    Call(Call<W>),
    /// Of a coordinator.
    Coordinator(FromCoordinator<W>),
    /// Of the carrier: this incarnation of a coordinator has ended. Transactions for which it has no vote are
    /// undone, and no more fragments of that incarnation run. The notice may be late or repeated, but the
    /// coordinator must have ended.
    CoordinatorDown {
        /// The coordinator.
        coordinator: CoordinatorId,
        /// The incarnation that ended.
        incarnation: u64,
    },
    /// Of the carrier's clock, at equal intervals while [`crate::Owner::wants_ticks`]: time passes.
    Tick,
}

/// A message of a coordinator to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromCoordinator<W> {
    /// Run a fragment.
    Fragment(Fragment<W>),
    /// The end of a transaction.
    Decision(Decision),
    /// The coordinator has restarted, or leaves. Of its transactions whose end the owner does not know, `committed`
    /// have committed, and all others are aborted.
    Recovered {
        /// The coordinator.
        coordinator: CoordinatorId,
        /// The incarnation that begins or leaves.
        incarnation: u64,
        /// Transactions with this partition that committed and may not have been acknowledged.
        committed: Vec<TransactionId>,
    },
}

/// A fragment of a transaction over several partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment<W> {
    /// The transaction.
    pub transaction: TransactionId,
    /// The coordinator, which gets the response and decides.
    pub coordinator: CoordinatorId,
    /// The coordinator's incarnation that sends this.
    pub incarnation: u64,
    /// The round, from 0.
    pub round: u32,
    /// Its work, if any.
    pub work: Option<W>,
    /// Whether it is the transaction's last fragment at the partition. Then the response is a vote, and the
    /// owner must be able to commit (two-phase commit's request to prepare).
    pub last: bool,
}

/// The end of a transaction over several partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The transaction.
    pub transaction: TransactionId,
    /// The coordinator that decided.
    pub coordinator: CoordinatorId,
    /// Whether it committed.
    pub commit: bool,
}

/// A message of an owner to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromOwner<R, A> {
    /// The result of a fragment.
    Response(Response<R, A>),
    /// The owner will not forget this commit.
    Ack {
        /// The transaction.
        transaction: TransactionId,
        /// The owner's partition.
        partition: PartitionId,
    },
    /// The coordinator commits a transaction for which this owner has not voted. The owner has not committed
    /// it; its state is unchanged.
    NotVoted {
        /// The transaction.
        transaction: TransactionId,
        /// The owner's partition.
        partition: PartitionId,
    },
    /// The owner is alive: the answer to a coordinator that has restarted.
    Alive {
        /// The owner's partition.
        partition: PartitionId,
        /// Its current incarnation.
        incarnation: u64,
    },
    /// The owner has restarted. Undecided transactions over its partition are aborted.
    Recovered {
        /// The owner's partition.
        partition: PartitionId,
        /// The incarnation that begins.
        incarnation: u64,
        /// This coordinator's transactions that were prepared here, and whose end the owner does not know.
        in_doubt: Vec<TransactionId>,
    },
}

impl<R, A> FromOwner<R, A> {
    /// The sender's partition.
    pub fn partition(&self) -> PartitionId {
        match *self {
            FromOwner::Response(Response { partition, .. })
            | FromOwner::Ack { partition, .. }
            | FromOwner::NotVoted { partition, .. }
            | FromOwner::Alive { partition, .. }
            | FromOwner::Recovered { partition, .. } => partition,
        }
    }
}

/// The result of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<R, A> {
    /// The transaction.
    pub transaction: TransactionId,
    /// The partition where it ran.
    pub partition: PartitionId,
    /// The round, from 0.
    pub round: u32,
    /// The reply, if there was work. For a last fragment it is the vote to commit. A refusal is always a vote
    /// to abort.
    pub result: Result<Option<R>, Refusal<A>>,
    /// The undecided transaction of the same coordinator on top of which the fragment ran. If that one aborts,
    /// or runs again, this response is void and there will be another.
    pub after: Option<TransactionId>,
}

/// Why a fragment did not run. The transaction has no effect at the partition any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<A> {
    /// Its work failed.
    UserAbort(A),
    /// It conflicted with other transactions.
    Conflict(Conflict),
    /// Its number is or was in use here: by a single-partition transaction, or through another coordinator.
    /// This fragment did not run.
    Repeated,
}

/// A message to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCoordinator<C, R, A> {
    /// Of a client: run this procedure.
    Call {
        /// The id of the transaction.
        transaction: TransactionId,
        /// Its procedure.
        procedure: C,
    },
    /// Of an owner.
    Owner(FromOwner<R, A>),
    /// Of the carrier: this incarnation of an owner has ended. Transactions over its partition abort until the
    /// owner says that it has recovered. The notice may be late or repeated, but the owner must have ended.
    PartitionDown {
        /// The partition.
        partition: PartitionId,
        /// The incarnation that ended.
        incarnation: u64,
    },
    /// Of the carrier: messages of this owner have been held up for long. Undecided transactions over its
    /// partition abort; it is alive, and its later messages count. May be false.
    PartitionLate {
        /// The partition.
        partition: PartitionId,
    },
}

/// The outcome of a transaction, for its client. If there is none, because the owner or coordinator has died,
/// the transaction may have committed or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<R, A> {
    /// It committed, durably.
    Committed(R),
    /// Its work failed, in a state that others committed.
    UserAborted(A),
    /// It conflicted with other transactions and had no effect: another attempt may succeed.
    Conflict(Conflict),
    /// A partition that it needs is down or late, or went down before the decision. It had no effect: another
    /// attempt may succeed later.
    Unavailable(PartitionId),
    /// Its procedure broke a rule of [`crate::Procedure`]. It had no effect.
    Misuse(Misuse),
    /// Its number is not above those of its client's earlier calls. This call did not run. It says nothing
    /// about an earlier call with the same number, which has an outcome of its own.
    Repeated,
}

/// The conflict of a transaction. Only `locking` has conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It was part of a deadlock at this partition.
    Deadlock(PartitionId),
    /// It waited too long at this partition, perhaps in a deadlock over several partitions.
    Timeout(PartitionId),
}

/// How a procedure broke a rule of [`crate::Procedure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A round without fragments.
    EmptyRound,
    /// Two fragments for one partition in one round.
    TwoFragments(PartitionId),
    /// A fragment for a partition that the first round did not name.
    NotInFirstRound(PartitionId),
    /// A fragment for a partition that had its last one.
    AfterLast(PartitionId),
    /// The procedure was done before this partition had its last fragment.
    NotFinished(PartitionId),
    /// A fragment for a partition that does not exist.
    NoSuchPartition(PartitionId),
    /// It panicked.
    Panicked,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::Deadlock(partition) => write!(f, "deadlock at partition {partition}"),
            Conflict::Timeout(partition) => write!(f, "waited too long for a lock at partition {partition}"),
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::EmptyRound => f.write_str("the procedure has a round without fragments"),
            Misuse::TwoFragments(partition) => {
                write!(f, "the procedure has two fragments for partition {partition} in one round")
            }
            Misuse::NotInFirstRound(partition) => {
                write!(f, "the procedure has a fragment for partition {partition}, which its first round does not name")
            }
            Misuse::AfterLast(partition) => {
                write!(f, "the procedure has a fragment for partition {partition} after its last one there")
            }
            Misuse::NoSuchPartition(partition) => {
                write!(f, "the procedure has a fragment for partition {partition}, which does not exist")
            }
            Misuse::Panicked => f.write_str("the procedure panicked"),
            Misuse::NotFinished(partition) => {
                write!(f, "the procedure is done, but has not said which fragment is its last at partition {partition}")
            }
        }
    }
}
