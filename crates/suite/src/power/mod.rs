//! Simulated power cuts: a database lives through several, and an oracle says each time what must be there.
//!
//! **A case** is a seed and a setting. The seed draws tables, sessions, loggers, the mode, sizes, a disk
//! ([`FaultyDisk`]) and a workload. For each incarnation it draws when and how it ends. It ends by a power cut, by a
//! kill that loses only the process, or in order. The power is cut between two operations of the disk or at one (while
//! opening, recovering, committing, declaring a table, taking a checkpoint, closing). Everything runs on one thread,
//! which also does the work of helper threads, so a seed repeats exactly.
//!
//! **What must hold** after each recovery, by an oracle (`model`) that is independent of the engine. The
//! tables hold exactly the effects of the commits of epochs up to the durable epoch that the recovery reports,
//! in their order. All commits on which an answered result, of whatever kind, depends are among them. Indexes
//! agree with tables; tables have kept their numbers; epochs only rise. No row refers to one that is not there, and no
//! number of a sequence is given twice (`links`). And while the database is open: every result is the oracle's, and
//! every error is explained by the circumstances.
//!
//! [`FaultyDisk`]: seriatim_base::disk::FaultyDisk

mod campaign;
mod case;
mod crash_run;
pub mod directory;
mod links;
mod logged;
mod model;
mod moved;
mod schema;
mod script;
mod verify;

pub use campaign::{Campaign, Totals, covered};
pub use case::{Case, Plan, Tally, settings};
