//! What recovery hands to the keeper of the rows.

use seriatim_base::{LayoutId, TableId, Tid};
use seriatim_catalog::Key;
use seriatim_catalog::wire::RowWire;

use crate::LogError;
use crate::entry::Change;

/// Takes versions of rows, from several threads. All versions of a key come from one thread.
pub trait Apply: Sync {
    /// Makes a version the newest of its key, if its TID is above the TID of the one that is there, which is
    /// then the one just below it; otherwise applies nothing of it, as no amount may be added twice. `thread`
    /// is below the number of threads and names the one that calls.
    ///
    /// # Errors
    /// Whatever ends the recovery.
    fn apply(&self, thread: usize, version: &Version<'_>) -> Result<Outcome, LogError>;

    /// As [`Apply::apply`] for each of some versions, in this order: `outcomes`, which is empty, becomes what
    /// became of each. An implementation that keeps the rows in memory can wait for all of them at once.
    ///
    /// # Errors
    /// As there.
    fn apply_all(&self, thread: usize, versions: &[Version<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), LogError> {
        for version in versions {
            outcomes.push(self.apply(thread, version)?);
        }
        Ok(())
    }
}

/// What one commit made of one row.
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
    /// What the commit did to the row, in its order, all under the one TID: one [`Change::Delete`]; or a
    /// [`Change::Row`], any number of patches and deltas behind it; or patches and deltas alone, which need a
    /// row that is there. All of them are one version: if they were applied one by one, the second would be
    /// taken for a repetition of the first.
    pub changes: &'a [Change<'a>],
}

/// What became of a [`Version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// It is the newest now.
    Applied,
    /// There is one with this TID or a newer one: nothing changed.
    Older,
    /// Patches or deltas found no row, or a deleted one: nothing changed.
    NoBase,
}
