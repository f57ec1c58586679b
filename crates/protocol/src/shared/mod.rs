//! The code that several protocols share. Protocol folders import this, never each other.

pub mod absences;
pub mod access_locks;
pub mod attempt;
pub mod epoch_commit;
pub mod exclusive;
pub mod gc;
pub mod locking;
pub mod optimistic;
pub mod origin;
pub mod own;
pub mod prefetch;
pub mod ranges;
pub mod rebase;
pub mod record;
pub mod record_header;
pub mod region;
pub mod repair;
pub mod reserve;
pub mod restore;
pub mod snapshot_numbered;
pub mod table_ref;
pub mod versions;
pub mod worker;
pub mod workset;
pub mod write_phase;
pub mod writes;
