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
//! 5. `holding`: what was put out and waits until it may leave, where partitions and coordinators keep their own state.
//! 6. [`model`]: which scheme to take.
//!
//! # What is promised
//!
//! Transactions are strictly serializable under every scheme: the order agrees with real time between those that do not overlap.
//! Aborted ones too have seen a state that some prefix of the order made; so a user abort is never one of a state that was taken back.
//!
//! # Crashes
//!
//! Owners and coordinators may die between any two outputs; what they have put out after a record that was not kept is
//! lost with them. [`Owner::recover`] and [`Coordinator::recover`] go on from the records, [`Owner::resume`] from what a partition has kept itself
//! ([`Partition::left`]). Then what was answered is there, and each
//! transaction is there at all of its partitions or at none.
//!
//! Each restart is a new life, which whoever carries messages numbers. It tells coordinators which life of a partition has
//! ended ([`ToCoordinator::PartitionDown`]): transactions over it that are not decided abort, and the others go on. It tells owners
//! which life of a coordinator has ended ([`ToOwner::CoordinatorDown`]): what has not voted is undone at once. What has voted stays where it is
//! until the coordinator has recovered; two-phase commit has no way around that. A late notice does no harm. A false one does: who is said
//! to be down has been ended, and nothing is delivered to or from that life any more.
//!
//! A coordinator that has recovered knows nothing of who is down. It keeps what it is called for until it has heard of each partition, from it or that it is down;
//! whoever carries messages says so of one that does not answer.
//!
//! # Known limits
//!
//! - **No limits on queues.** What waits at an owner or is speculated there, and what is pending at a coordinator, grows with what is sent; a chain of
//!   aborts takes quadratic time, and when a response becomes void the coordinator's stack grows with the chain that rests on it. Whoever carries
//!   messages has to bound what is under way; `transport` does.
//! - **Logs do not get shorter** where they are lists of records. There is no checkpoint of an owner that has something undecided, and none of a coordinator; a
//!   partition that keeps its own state, and a [`Journal`], see to theirs.
//! - **Nothing can be cancelled from outside.** A procedure may have endless rounds, and a client that is gone is not noticed.
//! - **A notice is all that there is.** Without [`ToOwner::CoordinatorDown`] what a dead coordinator has begun stays until it has recovered. An owner that was
//!   down itself when the notice came has to be told again. A coordinator that never recovers holds what has voted for ever; one that
//!   lives with a client (`locking`) needs a log that others can recover.
//! - **Numbers are remembered as far as records go.** After a restart a call that had left no record, because it had failed or was never reached, may
//!   run when it comes again. Under `locking` a single-partition transaction and one over several by the same number refuse each other while
//!   both are active; under the other schemes both run.
//! - **Panics in a partition** end its owner; the implementation of [`Partition`] has to catch those of users' code.
//! - **Locking on hot keys**: to look for circles takes time quadratic in those that wait for one key. A victim that tries again does not age.
//! - **Several coordinators** under the schemes that need one are not refused. Transactions of two that meet in different orders at two partitions wait
//!   for ever.
//! - **The simulation** has no owner that stalls with a full inbox, no queue longer than its twelve clients, and two deaths only at random.

mod coordinator;
mod fault;
mod holding;
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

#[cfg(feature = "canary")]
pub use fault::inject;
#[doc(hidden)]
pub use fault::{Fault, is_injected};

pub use coordinator::{Coordinator, CoordinatorOutput, MessageOf, OutputOf as CoordinatorOutputOf};
pub use holding::{HoldingCoordinator, HoldingOwner, Journal};
pub use message::{
    Call, ClientId, Conflict, CoordinatorId, Decision, Fragment, FromCoordinator, FromOwner, Misuse, Outcome,
    PartitionId, Refusal, Response, ToCoordinator, ToOwner, TransactionId,
};
pub use owner::{Left, Options, OutputOf as OwnerOutputOf, Owner, OwnerOutput, Unfinished};
pub use partition::{LockMode, Partition};
pub use procedure::{Next, Part, Procedure};
pub use record::{CoordinatorRecord, Kept, OwnerRecord};
pub use scheme::Scheme;
