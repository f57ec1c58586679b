//! The interface through which recovery passes versions to the owner of the rows.

use seriatim_base::{LayoutId, TableId, Tid};
use seriatim_catalog::Key;
use seriatim_catalog::wire::RowWire;

use crate::LogError;
use crate::entry::Change;

/// Takes versions of rows, from several threads. All versions of a key come from one thread.
pub trait Apply: Sync {
    /// Makes a version the newest of its key if its TID is above the TID of the existing row; that row is then
    /// its predecessor. Otherwise it applies nothing, since no amount may be added twice. `thread` identifies
    /// the calling thread, and is below the number of threads.
    ///
    /// # Errors
    /// Any error ends the recovery.
    fn apply(&self, thread: usize, version: &Version<'_>) -> Result<Outcome, LogError>;

    /// Calls [`Apply::apply`] for each version in this order, and pushes the result to `outcomes`, which is
    /// empty. An implementation that keeps rows in memory can prefetch all of them.
    ///
    /// # Errors
    /// As [`Apply::apply`].
    fn apply_all(&self, thread: usize, versions: &[Version<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), LogError> {
        for version in versions {
            outcomes.push(self.apply(thread, version)?);
        }
        Ok(())
    }
}

/// All changes of one row by one commit.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The table.
    pub table: TableId,
    /// The version of the table's columns.
    pub layout: LayoutId,
    /// How the table's rows are encoded.
    pub rows: &'a RowWire,
    /// The row's key.
    pub key: Key<'a>,
    /// The TID of the commit.
    pub tid: Tid,
    /// The changes in the order of the commit, all with one TID. It is one [`Change::Delete`]; or a [`Change::Row`] and
    /// any number of patches and deltas; or only patches and deltas, which need an existing row. They form one version:
    /// if they were applied one by one, the second would be taken for a repetition of the first.
    pub changes: &'a [Change<'a>],
}

/// The result of applying a [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// It is now the newest version.
    Applied,
    /// The row has this TID or a newer one. Nothing changed.
    Older,
    /// Patches or deltas found no row, or a deleted one. Nothing changed.
    NoBase,
}
