//! How recovery puts committed versions back, without transactions.
//!
//! Order of use, for each table: any number of [`Recover::restore`], by several threads; then
//! [`Recover::finish_restore`]; then transactions. Rows and deletions of a key may come in any order of their
//! TIDs, and more than once: the newest stays. A patch says nothing of the columns that it does not set, so
//! it must come after the version it changed, and before the next.

use seriatim_base::Tid;
use seriatim_catalog::{Key, RowWriter};
use seriatim_memory::OutOfMemory;
use seriatim_store::{LeafHint, RecordPtr};

use crate::{Core, Protocol, Table};

/// Sets columns of a row that is being restored.
pub type SetColumns<'a> = dyn FnMut(&mut RowWriter<'_>) -> Result<(), seriatim_catalog::OutOfMemory> + 'a;

/// One version of a key, as far as recovery knows it.
pub enum Change<'a> {
    /// The whole row: sets every column of a zeroed new row.
    Row(&'a mut SetColumns<'a>),
    /// Sets some columns of the existing row; mutable ones only.
    Patch(&'a mut SetColumns<'a>),
    /// No row.
    Delete,
}

/// Where a key probably is. A wrong hint only takes longer.
pub struct Near<'a> {
    /// Its record, tried before the index.
    pub guess: Option<RecordPtr>,
    /// The leaf that the same thread last used in the table's index.
    pub leaf_hint: &'a mut LeafHint,
}

/// The outcome of a [`Change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Restored {
    /// It is the newest version now.
    Applied,
    /// The key has a version with this TID or a newer one: nothing changed.
    Older,
    /// A patch found no row: nothing changed.
    NoBase,
}

/// A protocol whose tables can be recovered. Every registered protocol is one.
pub trait Recover: Protocol {
    /// Makes a version of `key` the committed one, if its TID, which is not zero, is above the current one. A
    /// deletion leaves a tombstone with its TID. `core` is online.
    ///
    /// # Safety
    /// No two threads restore the same key at a time. There is no transaction on the table, nor any other
    /// reader of its rows, between the first call and [`Recover::finish_restore`]. A guess is a record that
    /// the table's index named in between. The change sets columns by places and types of this table.
    ///
    /// # Errors
    /// When memory is refused. The key may have lost its row, so recovery cannot continue.
    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        near: Near<'_>,
        tid: Tid,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory>;

    /// Unlinks the tombstones that [`Recover::restore`] left in a table. `core` is offline before and after.
    ///
    /// # Safety
    /// No other thread uses the table during the call, and all its versions have been restored.
    unsafe fn finish_restore(&self, core: &mut Core, table: &Table);
}
