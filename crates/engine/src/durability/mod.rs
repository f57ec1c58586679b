//! When the result of a transaction is returned, and how it is kept back while a power cut could still undo it.
//!
//! Invariant: a result is returned only when the epochs of everything that the transaction saw and wrote are durable.
//! This holds for [`Durability::Group`] and [`Durability::Sync`], and for every mode once the log has stopped. Epochs
//! are consistent cuts of the serial order (decision record 4). So recovery, which keeps every epoch up to the durable
//! one, keeps all that any such result was computed from.
//!
//! The path of a commit: [`persistence::Persistence`] lends the worker's slot its log writer.
//! [`log::CommitLog`] encodes the writes that the protocol reports. [`pending::Pending`] withholds the result
//! until [`Durability`] permits its return.

mod catalogue;
mod checkpoint;
mod checkpointer;
mod clean;
mod copy;
mod epochs_left;
mod indexes;
mod log;
mod open;
mod pending;
mod persistence;
mod progress;
mod rebuild;
mod recover;
mod reserve;
mod restore_prefetch;
mod rows;
#[cfg(test)]
mod tests;
mod throttle;

pub(crate) use catalogue::{
    Rows as CatalogueRows, change as change_catalogue, commit as commit_catalogue, inherit as inherit_catalogue,
    settle as settle_catalogue, try_change as try_change_catalogue,
};
pub use checkpoint::Checkpoint;
pub(crate) use checkpoint::take as take_checkpoint;
pub(crate) use checkpointer::{OpenHandle, look as look_for_checkpoint};
pub(crate) use copy::{each as each_row, rows as copy_rows};
pub(crate) use epochs_left::is_at_limit;
pub use indexes::TableChecked;
pub(crate) use indexes::check as check_indexes;
pub(crate) use log::{CommitLog, WholeBefore};
pub(crate) use open::{Opened, lock_to_read, open};
pub use pending::Pending;
pub(crate) use pending::Shared;
pub(crate) use persistence::{CommitDependency, Persistence, refused, stop_at_limit};
pub use progress::{Listener, RecoveryPhase, RecoveryProgress};
pub(crate) use rebuild::{Failed, rebuild};
pub use recover::Recovery;
pub(crate) use rows::{Rows, Stuck, WalkedRow, Walker};

/// Why a helper could not begin. That would be a fault of `Builder::open`, which reserves workers for all helpers.
const NO_WORKER: &str = "no worker was left for a helper; this is a bug of seriatim";

/// When a transaction's result is returned: a property of the database (`Builder::durability`).
///
/// `docs/durability.md` says exactly what each choice promises, and what it assumes of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing is logged. The only choice for a database in memory.
    Off,
    /// At once. A power cut undoes the last transactions: those of about an epoch and a flush. A state remains
    /// that existed before, without gaps.
    Async,
    /// When its epoch is durable, together with all other transactions of the epoch. If a caller waits, the epoch is
    /// flushed as soon as the disk is free; otherwise after about an epoch. The default for a database on disk.
    Group,
    /// As [`Durability::Group`], but submitted transactions are flushed as soon as the disk is free, even if no
    /// caller waits.
    Sync,
}

impl Durability {
    /// All choices, in order of strength.
    pub const ALL: [Durability; 4] = [Durability::Off, Durability::Async, Durability::Group, Durability::Sync];

    /// The name by which users select it.
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Off => "off",
            Durability::Async => "async",
            Durability::Group => "group",
            Durability::Sync => "sync",
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Durability {
    type Err = String;

    fn from_str(name: &str) -> Result<Durability, String> {
        let found = Durability::ALL.into_iter().find(|durability| durability.name() == name);
        found.ok_or_else(|| format!("there is no durability {name:?}; it is one of off, async, group, sync"))
    }
}
