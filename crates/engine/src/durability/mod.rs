//! When the result of a transaction leaves: how it is told from a result that a power cut could take back.
//!
//! Invariant: a result is returned only when the epochs of everything it saw and wrote are durable ([`Durability::Group`],
//! [`Durability::Sync`]; once the log has stopped, in every mode). Epochs are consistent cuts of the serial order (decision record 4), so what recovery keeps, every epoch up
//! to the durable one, contains all that any such result was computed from.
//!
//! The path of a commit: [`persistence::Persistence`] lends the worker's slot its end of the log, [`log::CommitLog`] turns the writes
//! that the protocol reports into entries, and [`pending::Pending`] withholds the result until [`Durability`] says that
//! it may be returned.

mod checkpoint;
mod checkpointer;
mod clean;
mod convert;
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

pub use checkpoint::Checkpoint;
pub(crate) use checkpoint::take as take_checkpoint;
pub(crate) use checkpointer::{OpenHandle, look as look_for_checkpoint};
pub(crate) use convert::convert;
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
pub(crate) use rebuild::rebuild;
pub use recover::Recovery;

/// Why a helper could not begin, which would be a mistake in `Builder::open`: workers are set aside there for all of them.
const NO_WORKER: &str = "no worker was left for a helper; this is a bug of seriatim";

/// When a transaction is answered: a property of the database (`Builder::durability`).
///
/// `docs/durability.md` says exactly what each promises, and what it takes for granted of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing is logged. The only choice for a database in memory.
    Off,
    /// At once. A power cut takes back the last transactions: those of about an epoch and a flush. What remains is a state that
    /// was there, without gaps.
    Async,
    /// When its epoch is durable, together with all others of that time. Waiting callers are flushed as soon as the disk is free; what is
    /// submitted and not waited for, after about an epoch. The default for a database on disk.
    Group,
    /// As [`Durability::Group`], but what is submitted is flushed as soon as the disk is free, too, though nobody waits for it yet.
    Sync,
}

impl Durability {
    /// All of them, in order of strength.
    pub const ALL: [Durability; 4] = [Durability::Off, Durability::Async, Durability::Group, Durability::Sync];

    /// The name users select it by.
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
