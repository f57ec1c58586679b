//! Seriatim: a serializable in-memory OLTP database that runs inside your process.
//!
//! Declare tables as structs, open a database, run closures as transactions. Every transaction is serializable: the
//! result is as if transactions had run one after another. A closure may run several times; conflicts are retried,
//! within bounds.
//!
//! ```
//! use seriatim::{Abort, Database, Decimal, Table};
//!
//! #[derive(Table)]
//! #[table(name = "account", key(id))]
//! struct Account {
//!     id: u64,
//!     balance: Decimal<2>,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::in_memory()?;
//! let accounts = db.create::<Account>()?;
//! let mut session = db.session();
//! session.transact(|tx| tx.insert(&accounts, &Account { id: 1, balance: Decimal::from_units(10_00) }))?;
//! let balance = session.transact(|tx| {
//!     tx.update(&accounts, &1, |account| -> Result<_, Abort> {
//!         account.set_balance((account.balance() + Decimal::from_units(5_00))?);
//!         Ok(account.balance())
//!     })?
//! })?;
//! assert_eq!(*balance, Decimal::from_units(15_00));
//! # Ok(())
//! # }
//! ```
//!
//! Where to read on:
//! - [`Database`] and [`Builder`] open a database, and [`Session`] runs transactions.
//! - [`Tx`] has the operations of a transaction that may write, [`ReadTx`] those that read, and [`TransactError`] the
//!   errors.
//! - [`mod@dump`] writes rows as text and reads them again.
//! - [`mod@procedure`] is about transactions declared beforehand, and [`catalog`] about columns and keys.
//!
//! Invariant of this crate: one declaration runs under every protocol, and no code here names a protocol. Code that
//! knows no row type is in `seriatim-engine`.

// Generated code names this crate by its name, also in the crate's own tests.
#[cfg(test)]
extern crate self as seriatim;

mod access;
mod builder;
mod calls;
mod database;
pub mod dump;
mod executor;
mod handle;
mod migration;
pub mod procedure;
mod runtime;
mod scan;
mod sequence;
mod session;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod test_support;
mod transaction;
mod tx;

pub use seriatim_catalog as catalog;
pub use seriatim_history as history;
pub use seriatim_htm as htm;

pub use builder::Builder;
pub use catalog::{
    Bytes, Date, DateTime, Decimal, Interval, Numeric, Overflow, PartitionValue, RowId, Text, Time, Timestamp, Uuid,
    Value,
};
pub use database::Database;
pub use executor::{Executor, Reserved};
pub use handle::{Handle, IndexHandle};
pub use migration::Migration;
pub use procedure::Data;
pub use scan::Scan;
pub use sequence::Sequence;
pub use seriatim_base::{Epoch, Rng, Tid, clock, rng, thread};
pub use seriatim_engine::{
    Abort, Batch, BatchPlacement, BatchStatistics, Canceller, Checkpoint, CloseError, Committed, Conflict, Contended,
    Contender, Contention, Durability, DynHandle, DynRow, DynScan, HotRow, IfLocked, LockStrength, LogStatistics,
    MemoryHeld, OpenError, Pending, QUEUE_STAGES, QueueFull, QueueStatistics, Receipt, Recovery, RecoveryPhase,
    RecoveryProgress, Refusal, RetryPolicy, RowLock, RowWait, Running, Savepoint, SchemaError, SnapshotAges,
    Statistics, StorageError, TableChecked, TableStatistics, TransactError, TransactionOptions, ViolatingRow, WaitEnd,
    WaitHandle, available_protocols, backup, protocols,
};
pub use seriatim_macros::{Column, Table};
pub use seriatim_procedure_macros::{Data, procedure, pure};
pub use seriatim_txn::{
    Capabilities, CapabilityChange, Cause, Freshness, Knob, OptionEffect, OptionError, Phase, ProtocolInfo, Reason,
    Requirements,
};
pub use session::{AtPartition, Session};
pub use transaction::{OwnedTransaction, SnapshotTransaction, Transaction};
pub use tx::{Constraints, MissingRow, ReadTx, Tx};

#[doc(no_inline)]
pub use catalog::{Column, Table};

#[cfg(feature = "canary")]
#[doc(hidden)]
pub use seriatim_engine::LogFault;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use seriatim_txn::Fault;

/// The README's example is compiled but not run, as it would leave a directory behind. That of [`Database::open`]
/// runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the chapter on procedures run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/procedures.md")]
struct ProceduresChapter;

/// The example of the page on partitions runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/partitions.md")]
struct PartitionsPage;

/// The example of the page on types of columns runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/schema.md")]
struct SchemaPage;
