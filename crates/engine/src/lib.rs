//! The engine without row types: an open database, transactions on encoded keys, retries, durability.
//!
//! Derived tables, tables declared at run time and the interpreter of procedures all use one transaction,
//! [`TxCore`]. Its operations take keys in the store's encoding and return rows as bytes of a table's layout.
//! [`Runner`] runs bodies on it and retries them. [`Engine`] is an open database, [`Settings`] are its options.
//!
//! Internal to Seriatim: nothing here is stable. Users depend on the crate `seriatim`, which re-exports what is
//! public.
//!
//! Invariant of this crate: it knows no row type, and knows protocols only by their names in the registry.

mod access;
pub mod backup;
mod cancel;
mod changing;
mod cluster;
mod contention;
mod deferred;
mod detached;
mod durability;
mod earlier;
mod engine;
mod error;
mod evolution;
mod executor;
mod follower;
mod freshness;
mod held_back;
mod index;
mod link;
mod operations;
mod options;
mod owners;
mod parking;
mod permits;
mod pool;
pub mod procedure;
pub mod protocol;
mod queue;
mod record;
#[doc(hidden)]
pub mod registry;
mod regulation;
mod retry;
mod row_locks;
mod runner;
mod runtime;
mod scan;
mod sequences;
mod settings;
mod settling;
mod snapshot_ages;
mod statistics;
mod table;
mod table_ids;
#[cfg(feature = "test-support")]
pub mod test_support;
#[cfg(test)]
mod testing;
mod tx;
mod work_queue;

pub use cancel::Canceller;
pub use changing::Changing;
pub use contention::{Contended, Contender, Contention, HotRow};
pub use detached::{Decided, Detached, Step};
pub use durability::{
    Checkpoint, Durability, Listener, Pending, Recovery, RecoveryPhase, RecoveryProgress, TableChecked,
};
pub use engine::Engine;
pub use error::{
    Abort, CloseError, Conflict, MemoryHeld, OpenError, Refusal, SchemaError, StorageError, TransactError, ViolatingRow,
};
pub use evolution::TableChange;
pub use executor::{Executor, ExecutorBody, ExecutorSession, PredictedAccess, QueueFull, Running};
pub use operations::{Body, Operations};
pub use options::TransactionOptions;
pub use permits::Permit;
pub use protocol::{available_protocols, protocols};
pub use queue::Advance;
pub use retry::{RetryPolicy, pause};
pub use row_locks::{IfLocked, LockStrength, RowLock, RowWait, WaitEnd, WaitHandle};
pub use runner::{Committed, Failure, Receipt, Runner, with_value};
pub use runtime::{DynHandle, DynRow, DynScan};
pub use scan::{RawScan, Target};
pub use sequences::Sequence;
pub use seriatim_batch::Placement as BatchPlacement;
pub use seriatim_redo::catalogue::Reserved;
pub use seriatim_store::Direction;
pub use settings::{Batch, DatabaseLocation, LogSettings, PartitionBy, Settings};
pub use snapshot_ages::SnapshotAges;
pub use statistics::{LogStatistics, QUEUE_STAGES, QueueStatistics, Statistics, TableStatistics};
pub use table::{Secondary, TableSet};
pub use tx::{Origin, Savepoint, TxCore, unless_failed};
pub use work_queue::{BatchStatistics, Footprint, OVERTAKING_BATCHES_MAX};

#[cfg(feature = "canary")]
pub use seriatim_redo::LogFault;
