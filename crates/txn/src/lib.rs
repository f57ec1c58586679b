//! The contract of a concurrency-control protocol, and what every protocol is given to meet it.
//!
//! Invariant: this crate defines the contract and implements no protocol. It knows tables, records, row images, stamps and
//! causes; it never looks inside a record's head, which belongs to the protocol.
//!
//! Start at [`Protocol`] and [`Worker`]; the promises (a) to (g) stand there. Decision record 1 walks eight engines through it.

mod addition;
mod buried;
mod cause;
mod contract;
mod counts;
mod environment;
mod epochs;
mod fault;
mod options;
mod priority;
mod recover;
mod redo;
mod table;

pub use addition::{Added, Addition};
pub use buried::Buried;
pub use cause::{Cause, Incident, On, Phase, Reason, Stop};
pub use contract::{
    Chain, Detach, Freshness, Gives, Inserted, Mark, Mode, Needs, OnExists, Outcome, Peeked, Pieces, Prepared,
    Protocol, ProtocolInfo, Repair, RowPtr, Scan, Seen, Staged, Updating, Worker,
};
pub use counts::{Census, Counts, TableCount};
pub use environment::{Core, Environment};
pub use epochs::Epochs;
pub use fault::Fault;
pub use options::{Knob, OptionError, Options};
pub use priority::Priority;
pub use recover::{Change, Near, Recover, Restored, SetColumns};
pub use redo::{Before, NoRedo, Redo};
pub use table::{RecordShape, Table, Unlinked, Wire};
