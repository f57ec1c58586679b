//! Carries owners and coordinators of partitions: each on a thread of its own, with clients that have several
//! calls under way.
//!
//! The crate `partition` has the state machines, which take one message in and put out records, messages and
//! answers. This crate has the threads, the channels between them, the clock, and the handling of panics. The
//! same code runs on threads ([`Deployment::start`]) and, role by role, on simulated cores, where a machine of
//! two processors can simulate three machines.
//!
//! | module | one idea |
//! |---|---|
//! | `channel` | an inbox with many senders: in order, after a delay, asleep while there is nothing |
//! | `options` | schemes, delays, batches, bounds, and what a message costs simulated cores |
//! | `outbox` | what a role has to send, kept until its batch of messages is handled |
//! | `owner`, `coordinator` | the roles, and their incarnations |
//! | `patience` | how long they wait for their disks |
//! | `port` | a client's end of the deployment |
//! | `deployment` | all of them, connected |
//!
//! # Guarantees
//!
//! (a) **Messages of one sender to one receiver arrive once, in the order in which they were sent.** All to
//!     one receiver take the same time, so the order also holds across its incarnations.
//! (b) **No role spins.** A role that has nothing to do sleeps until a message arrives, or is due.
//! (c) **The number of messages is bounded**: a [`Port`] has at most [`Options::outstanding_max`] unanswered
//!     calls. Every other queued message belongs to one of these, a constant number of messages for each round
//!     of each.
//!     (d) **Every call is answered**, if need be with [`Ended::Lost`]. Then its owner or coordinator died, or is late,
//!     and the transaction may have committed or not.
//!
//! # When something panics
//!
//! A panic in a partition ends an incarnation of its owner. Clients and coordinators are notified. The rest of the
//! batch of the message that panicked is lost with it, except notices that a coordinator has ended or begun again. With
//! [`Options::records`] a new incarnation begins at once from the records, which are run again. Transactions at this
//! owner wait for that long; no others do. Without records, the partition's data is gone. The same holds if the owner
//! panics again while it runs the records, or at the same notice. Every transaction over a partition that is gone is
//! answered `Unavailable`; the others continue.
//!
//! A panic in the coordinator ends its incarnation. (Procedures are caught, so it comes from code of users that is
//! dropped.) Owners undo the transactions that have not voted. The new incarnation begins at once, also without
//! records. The outputs of a message leave together or not at all, and reach owners that are alive. So all owners know
//! the decisions of the dead one.
//!
//! An owner that has died asks the coordinators of its transactions in doubt. Coordinators that are gone cannot answer.
//! So the last message of each, also of one that all clients share, decides all its transactions. An owner handles it
//! again in later incarnations, also in one that could not begin for a while.
//!
//! A coordinator or partition that cannot begin is gone. Calls of a coordinator that is gone end as
//! [`Ended::Lost`]; transactions that it let partitions vote for wait there. Under `locking` its panics are in
//! [`Port::panics`], and none leaves a [`Port`]. Roles that keep their own state try again, after pauses that
//! grow to a second, for as long as the process lives. So they recover once the cause of the failure is
//! repaired.
//!
//! # When a disk takes no writes
//!
//! A role whose outputs wait for its disk sleeps meanwhile, and checks at intervals whether they may leave. If
//! none has left for [`Options::hold_max`] it is late, and tells the others. Calls that wait for it are
//! answered [`Ended::Lost`], and undecided transactions over a late partition abort (`Unavailable`). New calls
//! of it alone are refused at once (`Unavailable`; `Lost`, if it is a coordinator). New calls over several
//! partitions wait as long again. The role stays alive, and continues when the disk takes its writes. At the
//! end nothing waits for a late role: its next incarnation sends what it has not sent.
//!
//! A client that goes away, in a panic or not, leaves calls that end without it. Under `locking`, where it coordinates
//! them itself, they are aborted.
//!
//! # Known limits
//!
//! - Records are kept in memory: they outlive a role, not the process.
//! - Under `locking` a client's transactions proceed only while it is in [`Port::receive`]. A client that stays without
//!   calls must go on receiving. Otherwise an owner that has died may wait for a decision of its coordinator.
//! - A partition that panics in an undo dies of the decision that causes it, in each incarnation in which its
//!   coordinator repeats the decision.
//! - A call that never returns in a partition blocks its owner, and all transactions that need it. It is not
//!   noticed.
//! - On threads a message with a delay is late by the time that the system takes to wake a thread, some 50 µs.

mod channel;
mod coordinator;
mod deployment;
mod fault;
mod options;
mod outbox;
mod owner;
mod patience;
mod port;
#[cfg(test)]
mod tests;

use seriatim_partition::{FromOwner, MessageOf, Outcome, Partition, PartitionId, Procedure, ToOwner, TransactionId};

pub use coordinator::{Begin, CoordinatorEnd, CoordinatorRole};
pub use deployment::{Deployment, Ends, Running, deploy, deploy_with};
#[cfg(any(test, feature = "canary"))]
pub use fault::Fault;
pub use options::{Costs, Options};
pub use owner::{Counts, OwnerEnd, OwnerRole};
pub use port::{Answer, Ended, Port, Refused};

/// The types of partitions and procedures.
pub trait Application {
    /// A partition.
    type Partition: Partition;
    /// A transaction over several partitions.
    type Procedure: Procedure<Work = WorkOf<Self>, Reply = ReplyOf<Self>, Abort = AbortOf<Self>>;
}

/// The work of a fragment.
pub type WorkOf<A> = <<A as Application>::Partition as Partition>::Work;
/// The reply of a fragment.
pub type ReplyOf<A> = <<A as Application>::Partition as Partition>::Reply;
/// The reason of a fragment's failure.
pub type AbortOf<A> = <<A as Application>::Partition as Partition>::Abort;
/// The result of a transaction over several partitions.
pub type OutputOf<A> = <<A as Application>::Procedure as Procedure>::Output;

type ToOwnerOf<A> = ToOwner<WorkOf<A>>;

/// A message to the role of a coordinator.
enum ToCoordinator<A: Application> {
    /// For the coordinator.
    Message(MessageOf<A::Procedure>),
    /// A client has gone.
    ClientGone,
    /// A partition could not begin again. It may try later.
    Gone(PartitionId),
}

/// A message to a client.
enum ToPort<A: Application> {
    Single(TransactionId, Outcome<ReplyOf<A>, AbortOf<A>>),
    Multi(TransactionId, Outcome<OutputOf<A>, AbortOf<A>>),
    /// For the coordinator that lives with it.
    Owner(FromOwner<ReplyOf<A>, AbortOf<A>>),
    PartitionDown {
        partition: PartitionId,
        incarnation: u64,
    },
    /// The partition holds its outputs back.
    PartitionLate(PartitionId),
    /// The coordinator has died, or holds its outputs back.
    CoordinatorDown,
}
