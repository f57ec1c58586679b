//! Tables, in lists that outlast a call.

use std::ptr::NonNull;

use seriatim_txn::Table;

/// A table of the open database. It lives as long as the database, and so longer than the workers and their
/// shared state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRef(NonNull<Table>);

// SAFETY: tables are shared by all workers.
unsafe impl Send for TableRef {}

impl From<&Table> for TableRef {
    #[inline(always)]
    fn from(table: &Table) -> TableRef {
        TableRef(table.into())
    }
}

impl TableRef {
    #[inline(always)]
    pub fn get<'t>(self) -> &'t Table {
        // SAFETY: tables live as long as the database, which outlives its workers and their shared state.
        unsafe { self.0.as_ref() }
    }

    /// Of no table: for places that are not in use.
    pub(super) const fn dangling() -> TableRef {
        TableRef(NonNull::dangling())
    }
}
