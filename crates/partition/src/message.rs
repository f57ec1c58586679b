//! What clients, owners and coordinators tell each other: plain data that could cross a network.
//!
//! What carries messages must do so **in order** from one sender to one receiver, across restarts of either too, and **at most once**: none
//! is sent twice. A message to one that is down may be lost; one to a receiver that stays up must not be.
//!
//! Who is called does not rely on the latter half. A call or first fragment whose number is not above all that came from its client before is
//! not run ([`Outcome::Repeated`]), and neither is a fragment of a round that has run. So a client that does not hear how a
//! transaction ended cannot ask again under its number; under a new number the transaction may be applied twice, unless what it does
//! tells it (a row that says that it is done).

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
    /// Who makes calls.
    ClientId
}

/// One attempt of a transaction. A client's numbers grow from call to call, across its restarts too, and it makes the calls that go to
/// several partitions through one coordinator. Numbers that do not grow are refused ([`Outcome::Repeated`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// Whose it is.
    pub client: ClientId,
    /// Which of that client's.
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
    /// Its name.
    pub transaction: TransactionId,
    /// What it is to do.
    pub work: W,
    /// Whether it can fail by its own will. One that cannot needs no undo where nothing undecided is before it. It is a hint: one that
    /// fails all the same is answered [`Outcome::UserAborted`], and has had no effect.
    pub may_abort: bool,
}

/// What an owner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToOwner<W> {
    /// By a client.
    Call(Call<W>),
    /// By a coordinator.
    Coordinator(FromCoordinator<W>),
    /// By whoever carries messages: this life of a coordinator has ended. What it has not been given a vote for is undone, and no more fragments
    /// of that life run. May be late, or come twice; not without the coordinator having ended.
    CoordinatorDown {
        /// Who.
        coordinator: CoordinatorId,
        /// Which of its lives.
        life: u64,
    },
    /// By whoever has a clock, at equal intervals while [`crate::Owner::wants_ticks`]: time passes.
    Tick,
}

/// What a coordinator tells an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromCoordinator<W> {
    /// To run a fragment.
    Fragment(Fragment<W>),
    /// How a transaction ended.
    Decision(Decision),
    /// That the coordinator has restarted. Of its transactions that the owner has not heard the end of, `committed` have committed,
    /// and all others are aborted.
    Recovered {
        /// Who.
        coordinator: CoordinatorId,
        /// The life that begins.
        life: u64,
        /// Transactions with this partition that committed and may not have been acknowledged.
        committed: Vec<TransactionId>,
    },
}

/// A fragment of a transaction over several partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment<W> {
    /// Whose it is.
    pub transaction: TransactionId,
    /// Who is to be answered, and decides.
    pub coordinator: CoordinatorId,
    /// In which of its lives it sends this.
    pub life: u64,
    /// The round, from 0.
    pub round: u32,
    /// What it is to do, if anything.
    pub work: Option<W>,
    /// Whether the transaction ends here with it. Then the answer is a vote, and the owner must be able to commit (two-phase
    /// commit's request to prepare).
    pub last: bool,
}

/// How a transaction over several partitions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Which.
    pub transaction: TransactionId,
    /// Who decided.
    pub coordinator: CoordinatorId,
    /// Whether it committed.
    pub commit: bool,
}

/// What an owner tells a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromOwner<R, A> {
    /// How a fragment went.
    Response(Response<R, A>),
    /// That a commit will not be forgotten here.
    Ack {
        /// Which transaction.
        transaction: TransactionId,
        /// By whom.
        partition: PartitionId,
    },
    /// That the coordinator commits what this owner has not voted for. The owner has not done it: the transaction is where it was.
    NotVoted {
        /// Which transaction.
        transaction: TransactionId,
        /// Who was told so.
        partition: PartitionId,
    },
    /// That the owner is there: the answer to a coordinator that has restarted.
    Alive {
        /// Who.
        partition: PartitionId,
        /// The life that goes on.
        life: u64,
    },
    /// That the owner has restarted. Transactions over it that are not decided are aborted.
    Recovered {
        /// Who.
        partition: PartitionId,
        /// The life that begins.
        life: u64,
        /// This coordinator's transactions that were prepared here, and of which the owner has not heard the end.
        in_doubt: Vec<TransactionId>,
    },
}

impl<R, A> FromOwner<R, A> {
    /// Who says it.
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

/// How a fragment went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<R, A> {
    /// Whose it is.
    pub transaction: TransactionId,
    /// Where it ran.
    pub partition: PartitionId,
    /// The round, from 0.
    pub round: u32,
    /// The reply, if there was work. To a last fragment this is the vote to commit, and a refusal always one to abort.
    pub result: Result<Option<R>, Refusal<A>>,
    /// The fragment ran on top of this transaction, of the same coordinator, which was not decided here. If that one aborts, or runs
    /// again, this response is void and there will be another.
    pub after: Option<TransactionId>,
}

/// Why a fragment did not run. The transaction has no effect at the partition any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<A> {
    /// It failed by its own will.
    UserAbort(A),
    /// It was in others' way.
    Conflict(Conflict),
    /// Its number is in use here, or was: by a single-partition transaction, or through another coordinator. This one did not run.
    Repeated,
}

/// What a coordinator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCoordinator<C, R, A> {
    /// By a client: to run this procedure.
    Call {
        /// Its name.
        transaction: TransactionId,
        /// What it is to do.
        procedure: C,
    },
    /// By an owner.
    Owner(FromOwner<R, A>),
    /// By whoever carries messages: this life of an owner has ended. Transactions over it abort, until it has said that it has recovered. May
    /// be late, or come twice; not without the owner having ended.
    PartitionDown {
        /// Who.
        partition: PartitionId,
        /// Which of its lives.
        life: u64,
    },
    /// By whoever carries messages: what this owner has to say has been held up for long. Transactions over it that are not decided abort; it lives, and
    /// what it says later counts. May be false.
    PartitionLate {
        /// Who.
        partition: PartitionId,
    },
}

/// How a transaction ended, for its client. Without an outcome (the owner or coordinator that was called has died) it may have
/// committed or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<R, A> {
    /// It committed, durably.
    Committed(R),
    /// It failed by its own will, in a state that others committed.
    UserAborted(A),
    /// It was in others' way and had no effect: another attempt may succeed.
    Conflict(Conflict),
    /// A partition that it needs is down or late, or went down before the decision. It had no effect: another attempt may succeed later.
    Unavailable(PartitionId),
    /// Its procedure broke a rule of [`crate::Procedure`]. It had no effect.
    Misuse(Misuse),
    /// Its number is not above those of its client's earlier calls. This call did not run. Of an earlier one by the same number it says
    /// nothing: that one has an outcome of its own.
    Repeated,
}

/// Why a transaction was in others' way. Only `locking` has conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It waited in a circle at this partition.
    Deadlock(PartitionId),
    /// It waited too long at this partition, perhaps in a circle over several.
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
    /// Done, and this partition has not had its last fragment.
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
