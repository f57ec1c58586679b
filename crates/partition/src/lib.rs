//! Partitions with one owner each. Transactions on one partition run without concurrency control, transactions
//! over several are coordinated, and a scheme says what an owner does while it waits.
//!
//! Invariant: **this crate has no threads, clocks, files or networks.** An [`Owner`] and a [`Coordinator`] take one
//! message, and return records to be kept, messages and answers, in order. A carrier transports them: threads and
//! channels, a network, or a test that decides the order of events. A partition's data is touched by its owner only.
//!
//! The source is Jones, Abadi, Madden, "Low Overhead Concurrency Control for Partitioned Main Memory
//! Databases", SIGMOD 2010.
//!
//! A transaction, in the order of the modules:
//!
//! 1. `partition`, `procedure`: the work. A single-partition transaction is one fragment, sent to the owner.
//!    Others are [`Procedure`]s: rounds of fragments, where a round can depend on the replies to the one
//!    before.
//! 2. `message`, `record`: the messages, and the records that are kept.
//! 3. `coordinator`: sends a round, collects responses, and decides when all partitions have voted and all
//!    transactions that the votes depend on have committed. The request to prepare travels with the last
//!    fragment.
//! 4. `owner`: runs fragments as its [`Scheme`] allows. `owner/blocking`, `owner/speculation` and
//!    `owner/locking` are the schemes; each says why it is serializable, and what can wait.
//! 5. `holding`: holds outputs back until they may leave, where partitions and coordinators keep their own
//!    state.
//! 6. [`model`]: which scheme to choose.
//!
//! # Guarantees
//!
//! Transactions are strictly serializable under every scheme: the order agrees with real time between those
//! that do not overlap. Aborted transactions too saw a state that some prefix of the order made. So no user
//! abort is reported that was based on a state that was later undone.
//!
//! # Crashes
//!
//! Owners and coordinators may die between any two outputs. Outputs after a record that was not kept are lost
//! with them. [`Owner::recover`] and [`Coordinator::recover`] continue from the records, [`Owner::resume`]
//! from the state that a partition has kept itself ([`Partition::left`]). Afterwards all transactions that
//! were answered as committed exist, and each transaction is applied at all of its partitions or at none.
//!
//! Each restart begins a new incarnation, which the carrier numbers. It tells coordinators which incarnation
//! of a partition has ended ([`ToCoordinator::PartitionDown`]): undecided transactions over it abort, and the
//! others continue. It tells owners which incarnation of a coordinator has ended
//! ([`ToOwner::CoordinatorDown`]): transactions of that coordinator that have not voted are undone at once.
//! Those that have voted stay prepared until the coordinator has recovered; two-phase commit has no way around
//! that. A late notice does no harm. A false one does: a peer that is reported as down must have ended, and
//! nothing is delivered to or from that incarnation any more.
//!
//! A coordinator that has recovered does not know which partitions are down. It holds calls back until it
//! knows of each partition: by a message from it, or by a notice that it is down. The carrier sends that
//! notice for one that does not answer.
//!
//! # Known limits
//!
//! - **No limits on queues.** The queues of an owner (waiting and speculated transactions) and of a
//!   coordinator (pending ones) grow with the number of messages. A chain of aborts takes quadratic time. When
//!   a response becomes void, the coordinator's stack grows with the chain that depends on it. The carrier has
//!   to bound the number of transactions under way; `transport` does.
//! - **Logs do not get shorter** where they are lists of records. There is no checkpoint of an owner that has
//!   undecided transactions, and none of a coordinator. A partition that keeps its own state, and a
//!   [`Journal`], can shorten theirs.
//! - **Nothing can be cancelled from outside.** A procedure may have endless rounds, and the loss of a client
//!   is not noticed.
//! - **Failures are known by notices only.** Without [`ToOwner::CoordinatorDown`] transactions of a dead
//!   coordinator stay until it has recovered. An owner that was down itself when the notice came has to be
//!   told again. A coordinator that never recovers blocks voted transactions for ever. One that lives with a
//!   client (`locking`) needs a log from which others can recover it.
//! - **Numbers are remembered by records only.** A call that failed, or that never arrived, leaves no record. After a
//!   restart it may run if it comes again. Under `locking` a single-partition transaction and one over several
//!   partitions with the same number refuse each other while both are active. Under the other schemes both run.
//! - **Panics in a partition** end its owner; an implementation of [`Partition`] has to catch those of users'
//!   code.
//! - **Locking on hot keys**: the search for deadlocks takes time quadratic in the number of transactions that
//!   wait for one key. The priority of a victim that tries again does not grow.
//! - **Several coordinators** under the schemes that need one are not refused. If two transactions of
//!   different coordinators meet in different orders at two partitions, both wait for ever.
//! - **The simulation** has no owner that stalls with a full inbox and no queue longer than its twelve
//!   clients. Two deaths at once happen only at random.

mod coordinator;
mod fault;
mod holding;
mod incarnations;
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
pub use owner::{Options, OutputOf as OwnerOutputOf, Owner, OwnerOutput, RecoveredState, Unfinished};
pub use partition::{LockMode, Partition};
pub use procedure::{FragmentRequest, Next, Procedure};
pub use record::{CoordinatorRecord, Kept, OwnerRecord};
pub use scheme::Scheme;
