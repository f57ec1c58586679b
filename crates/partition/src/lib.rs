//! Partitions with one owner each: transactions on one partition run without concurrency control, transactions over several are
//! coordinated, and a scheme says what an owner does while it waits.
//!
//! Invariant: **this crate has no threads, clocks, files or networks.** An [`Owner`] and a [`Coordinator`] take one message in and put out
//! records to be kept, messages and answers, in order; whoever has threads and channels, or a network, or a test that decides what
//! happens when, carries them. A partition's data is touched by its owner only.
//!
//! The source is Jones, Abadi, Madden, "Low Overhead Concurrency Control for Partitioned Main Memory Databases", SIGMOD 2010.
//!
//! A transaction, in the order of the modules:
//!
//! 1. `partition`, `procedure`: what runs. A single-partition transaction is one fragment, sent to the owner. Others are [`Procedure`]s:
//!    rounds of fragments, where what a round does can depend on the replies to the one before.
//! 2. `message`, `record`: what is told, and what is kept.
//! 3. `coordinator`: sends a round, collects responses, and decides when all partitions have voted and all that the votes depend on
//!    has committed. The request to prepare travels with the last fragment.
//! 4. `owner`: runs fragments as its [`Scheme`] allows. `owner/blocking`, `owner/speculation` and `owner/locking` are the schemes;
//!    each says why it is serializable, and what can wait.
//! 5. [`model`]: which scheme to take.
//!
//! # What is promised
//!
//! Transactions are strictly serializable under every scheme: the order agrees with real time between those that do not overlap.
//! Aborted ones too have seen a state that some prefix of the order made; so a user abort is never one of a state that was taken back.
//!
//! # Crashes
//!
//! Owners and coordinators may die between any two outputs; what they have put out after a record that was not kept is
//! lost with them. [`Owner::recover`] and [`Coordinator::recover`] go on from the records. Then what was answered is there, and each
//! transaction is there at all of its partitions or at none.
//!
//! Each restart is a new life, which whoever carries messages numbers. It tells coordinators which life of a partition has
//! ended ([`ToCoordinator::PartitionDown`]): transactions over it that are not decided abort, and the others go on. It tells owners
//! which life of a coordinator has ended ([`ToOwner::CoordinatorDown`]): what has not voted is undone at once. What has voted stays where it is
//! until the coordinator has recovered; two-phase commit has no way around that. A late notice does no harm. A false one does: who is said
//! to be down has been ended, and nothing is delivered to or from that life any more.
//!
//! A coordinator that has recovered knows nothing of who is down, and answers [`Outcome::Unavailable`] until it has heard from a
//! partition.

mod coordinator;
mod fault;
mod lives;
mod message;
pub mod model;
mod numbers;
mod owner;
mod partition;
mod procedure;
mod record;
mod scheme;
#[cfg(test)]
mod tests;

pub use coordinator::{Coordinator, CoordinatorOutput, MessageOf, OutputOf as CoordinatorOutputOf};
pub use message::{
    Call, ClientId, Conflict, CoordinatorId, Decision, Fragment, FromCoordinator, FromOwner, Misuse, Outcome,
    PartitionId, Refusal, Response, ToCoordinator, ToOwner, TransactionId,
};
pub use owner::{Options, OutputOf as OwnerOutputOf, Owner, OwnerOutput};
pub use partition::{LockMode, Partition};
pub use procedure::{Next, Part, Procedure};
pub use record::{CoordinatorRecord, Kept, OwnerRecord};
pub use scheme::Scheme;
