//! The code that several protocols share. Protocol folders import this, never each other.

pub(crate) mod absences;
pub(crate) mod access_locks;
pub(crate) mod attempt;
pub(crate) mod epoch_commit;
pub(crate) mod exclusive;
pub(crate) mod gc;
pub(crate) mod locking;
pub(crate) mod optimistic;
pub(crate) mod origin;
pub(crate) mod own;
pub(crate) mod prefetch;
pub(crate) mod ranges;
pub(crate) mod rebase;
pub(crate) mod record;
pub(crate) mod record_header;
pub(crate) mod region;
pub(crate) mod repair;
pub(crate) mod reserve;
pub(crate) mod restore;
pub(crate) mod snapshot_numbered;
pub(crate) mod table_ref;
pub(crate) mod versions;
pub(crate) mod worker;
pub(crate) mod workset;
pub(crate) mod write_phase;
pub(crate) mod writes;
