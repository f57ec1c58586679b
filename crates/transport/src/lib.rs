//! Carries owners and coordinators of partitions: each on a thread of its own, with clients that have several calls under way.
//!
//! The crate `partition` has the state machines, which take one message in and put out records, messages and answers. Here are the
//! threads, the channels between them, the clock, and what happens when one of them panics. The same code runs on threads
//! ([`Deployment::start`]) and, role by role, on simulated cores, where a machine of two processors can be three machines.
//!
//! | module | one idea |
//! |---|---|
//! | `channel` | an inbox with many senders: in order, after a delay, asleep while there is nothing |
//! | `options` | schemes, delays, batches, bounds, and what a message costs simulated cores |
//! | `outbox` | what a role has to send, kept until its batch of messages is handled |
//! | `owner`, `coordinator` | the roles, and their lives |
//! | `patience` | how long they wait for their disks |
//! | `port` | a client's end |
//! | `deployment` | all of them, connected |
//!
//! # What is promised
//!
//! (a) **Messages of one sender to one receiver arrive in the order in which they were sent, and once.** All to one receiver take the same time, so
//!     they do across its lives as well.
//! (b) **Nobody spins.** A role that has nothing to do sleeps until a message arrives, or is due.
//! (c) **What is under way is bounded**: a [`Port`] has at most [`Options::outstanding_max`] calls that are not answered, and everything else that is
//!     queued anywhere is of one of these, a constant number of messages for each round of each.
//! (d) **Every call is answered**, if need be with [`Ended::Lost`]: its owner or coordinator died, or is late, and it may have committed or not.
//!
//! # When something panics
//!
//! A panic in a partition ends a life of its owner. Clients and coordinators are told; what was sent in one batch with the message that panicked and had
//! not been handled is lost with it, but for notices that a coordinator has ended or begun again. With [`Options::records`] a new life begins at once from the records, which are run again: others wait for
//! this owner for as long as that takes, and nobody waits for anything else. Without records, or if it panics again in running them or at the same notice,
//! the partition's data is gone: every transaction over it is answered `Unavailable`, the others go on.
//!
//! A panic in the coordinator (code of users that is dropped, since procedures themselves are caught) ends its life. Owners undo what has not voted. The
//! new life begins at once, also without records: the outputs of a message leave together or not at all and reach owners that
//! live, so what the dead one had decided all have heard.
//!
//! A coordinator or partition that cannot begin is gone. Of a coordinator clients are answered [`Ended::Lost`]; what it has let partitions vote for waits there.
//! Under `locking` its panics are in [`Port::panics`], and none gets out of a [`Port`]. Those that keep their own state try again, after pauses that grow
//! to a second, for as long as the process lives: whoever mends what kept them heals them.
//!
//! # When a disk takes nothing
//!
//! A role whose outputs wait for its disk sleeps meanwhile, and looks whether they may leave. If none has for [`Options::hold_max`] it is late, and says so: calls
//! that wait for it are answered [`Ended::Lost`], transactions over a late partition that are not decided abort (`Unavailable`), and new calls of it alone are refused
//! at once (`Unavailable`; `Lost`, if it is a coordinator). New calls over several partitions wait as long again. It lives, and when the disk takes what it holds it goes on.
//! At the end nobody waits for who is late: what it has not said, its next life says.
//!
//! A client that goes away, in a panic or not, leaves calls that end without it; under `locking`, where it coordinates them itself, they are aborted.
//!
//! # Known limits
//!
//! - Records are kept in memory: they outlive a role, not the process.
//! - Under `locking` a client's transactions go on while it is in [`Port::receive`] only.
//! - A partition that panics when it takes something back dies of the decision that says so, in each life in which its coordinator repeats it.
//! - A call that never returns in a partition holds up its owner, and what needs it. It is not noticed.
//! - On threads a message that is due after a delay is late by what the system takes to wake a thread at a time, some 50 µs.

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

/// What partitions hold, and what runs over several.
pub trait Application {
    /// A partition.
    type Partition: Partition;
    /// A transaction over several.
    type Procedure: Procedure<Work = WorkOf<Self>, Reply = ReplyOf<Self>, Abort = AbortOf<Self>>;
}

/// What a fragment is to do.
pub type WorkOf<A> = <<A as Application>::Partition as Partition>::Work;
/// What a fragment answers.
pub type ReplyOf<A> = <<A as Application>::Partition as Partition>::Reply;
/// Why a fragment failed.
pub type AbortOf<A> = <<A as Application>::Partition as Partition>::Abort;
/// What a transaction over several partitions answers.
pub type OutputOf<A> = <<A as Application>::Procedure as Procedure>::Output;

type ToOwnerOf<A> = ToOwner<WorkOf<A>>;

/// What comes to the role of a coordinator.
enum ToCoordinator<A: Application> {
    /// For the coordinator.
    Message(MessageOf<A::Procedure>),
    /// A client has gone.
    Left,
    /// A partition could not begin again. Perhaps it will.
    Gone(PartitionId),
}

/// What comes to a client.
enum ToPort<A: Application> {
    Single(TransactionId, Outcome<ReplyOf<A>, AbortOf<A>>),
    Multi(TransactionId, Outcome<OutputOf<A>, AbortOf<A>>),
    /// For the coordinator that lives with it.
    Owner(FromOwner<ReplyOf<A>, AbortOf<A>>),
    PartitionDown {
        partition: PartitionId,
        life: u64,
    },
    /// It holds back what it has to say.
    PartitionLate(PartitionId),
    /// It has died, or holds back what it has to say.
    CoordinatorDown,
}
