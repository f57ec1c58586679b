//! Simulated power cuts: a database lives through several, and an oracle says each time what must be there.
//!
//! **A case** is a seed and a setting. The seed draws tables, sessions, loggers, the mode, sizes, a disk ([`FaultyDisk`]), a workload,
//! and for each life when it ends and how: by a power cut at an operation of the disk (while opening, recovering, committing,
//! declaring a table, taking a checkpoint, closing) or between two, by a kill that loses nothing but the process, or in order. All
//! runs on one thread and steps what helper threads would do, so a seed repeats exactly.
//!
//! **What must hold** after each recovery, by an oracle (`model`) that is no engine: the tables hold exactly the effects of the commits
//! of epochs up to the durable epoch that the recovery tells, in their order; everything is among them that an answered result, of
//! whatever kind, was computed from; indexes agree with tables; tables have kept their numbers; epochs only rise. And while it lives:
//! every result is what the oracle says, and every error is one that the circumstances explain.
//!
//! [`FaultyDisk`]: seriatim_base::disk::FaultyDisk

mod campaign;
mod case;
mod crash_run;
pub mod directory;
mod logged;
mod model;
mod moved;
mod schema;
mod script;
mod verify;

pub use campaign::{Campaign, Totals, covered};
pub use case::{Case, Plan, Tally, settings};
