//! The contract of a concurrency-control protocol, and the environment in which a protocol runs.
//!
//! Invariant: this crate defines the contract and implements no protocol. It knows tables, records, row
//! versions, TIDs and causes; it never looks inside a record's header, which belongs to the protocol.
//!
//! Start at [`Protocol`] and [`Worker`]; the promises (a) to (g) are there. Decision record 1 walks eight
//! engines through it.

mod addition;
mod cause;
mod contract;
mod counts;
mod deferrals;
mod environment;
mod epochs;
mod fault;
mod options;
mod partitions;
mod priority;
mod recover;
mod redo;
mod row_buffer;
mod snapshots;
mod sync;
mod table;
mod undurable_deletions;
mod windows;

pub use addition::{Added, Addition};
pub use cause::{Cause, ConflictInfo, OpError, Phase, Reason};
pub use contract::{
    Batching, Capabilities, CapabilityChange, DatabaseSettings, Detach, Freshness, HotRecord, Inserted, Mode, OnExists,
    OptionEffect, Ordered, Outcome, Peeked, Pieces, Prepared, Protocol, ProtocolInfo, Repair, Requirements, RowPtr,
    Runs, Savepoint, Scan, Seen, Staged, Updating, Validator, Worker,
};
pub use counts::{Census, Counts, TableCount};
pub use deferrals::{Apply, Deferrals, Pending, PendingRow, PendingSum};
pub use environment::{Core, Environment};
pub use epochs::{Epochs, RecordEpoch, UNSAID_MAX};
pub use fault::Fault;
pub use options::{Knob, OptionError, Options, REPAIR_ALL, REPAIR_FROM, REPAIR_SHARE_MAX, VALIDATE};
pub use partitions::{Owned, PartitionFunction, PartitionSet, Partitions, Placement, fnv1a};
pub use priority::Priority;
pub use recover::{Change, Near, Recover, Restored, SetColumns};
pub use redo::{Before, NoRedo, Redo};
pub use row_buffer::RowBuffer;
pub use snapshots::{Eventual, SnapshotTerms, Snapshots, TakenSnapshot};
pub use table::{Commuting, ROW_IN_PLACE_MAX, RecordLayout, Table, Unlinked, Wire};
pub use undurable_deletions::UndurableDeletions;
pub use windows::{Closed, Window, Windows};
