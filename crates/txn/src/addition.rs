//! Additions to a column that do not read it.

use seriatim_catalog::{ColumnId, ColumnSet, ColumnType, ColumnUse, Layout, NoOutOfLine, RowWriter};

use crate::{RowPtr, Table};

/// An amount to be added to one column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    column: ColumnId,
    ty: ColumnType,
    units: i128,
}

/// The outcome of an [`Addition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Added {
    /// It was added.
    Done,
    /// There is no such row.
    Missing,
    /// The sum leaves the range of the column, which is as it was; the row counts as written.
    Overflow,
}

impl Addition {
    /// So many units to a column of this type (see [`seriatim_catalog::Addend`]).
    ///
    /// # Safety
    /// The column is of this type, may be updated and is not nullable, in each table that this is used for.
    pub const unsafe fn new(column: ColumnId, ty: ColumnType, units: i128) -> Addition {
        Addition { column, ty, units }
    }

    /// The column added to.
    pub fn column(&self) -> ColumnId {
        self.column
    }

    /// The column added to, as an update's.
    pub fn columns(&self) -> ColumnUse {
        ColumnUse::adding([self.column])
    }

    /// Adds it to a row.
    ///
    /// # Safety
    /// `row` is a row version of the table, private to the caller.
    pub unsafe fn apply(self, table: &Table, row: RowPtr) -> Added {
        let mut out_of_line_values = NoOutOfLine;
        // SAFETY: the caller's promise.
        let writer = unsafe { RowWriter::for_update(row.as_ptr(), &mut out_of_line_values) };
        self.write(&table.layout, &mut writer.only(ColumnSet::of(self.column)))
    }

    /// Adds it to a row of this layout that is being updated.
    pub fn write(self, layout: &Layout, row: &mut RowWriter<'_>) -> Added {
        let place = &layout.places[self.column.index()];
        if row.add(self.ty, place, self.units) { Added::Done } else { Added::Overflow }
    }
}
