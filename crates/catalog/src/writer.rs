//! Rows as they are written: a private row version, its fixed part while it is new, and the out-of-line
//! values of long texts.
//!
//! Rules for a [`RowWriter`]; its maker vouches for them:
//! 1. Its blocks have the layout of a table and are its own while it lives. The blocks of a new row are zeroed except
//!    for the address of the fixed part. The row version of an update is a copy of a row.
//! 2. It goes only to code that uses places and column types of that table, as rule 3 of [`RowRef`] says.

use std::marker::PhantomData;

use crate::layout::{length_bytes, store_length};
use crate::types::Form;
use crate::watch::{Named, touch};
use crate::{Column, ColumnId, ColumnLocation, ColumnSet, OutOfMemory, RowPart, RowRef, Stored};

/// Where long texts go.
pub trait OutOfLineStore {
    /// An out-of-line block with these bytes: its address, or 0 for no bytes. The replaced out-of-line value, if any,
    /// is not freed. The old row still refers to it, and the store knows the values that it allocated.
    ///
    /// # Errors
    /// At the memory limit.
    fn store(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory>;
}

/// A writer of rows of which no long text is set.
#[derive(Debug)]
pub struct NoOutOfLine;

impl OutOfLineStore for NoOutOfLine {
    fn store(&mut self, _: &[u8]) -> Result<u64, OutOfMemory> {
        Err(OutOfMemory)
    }
}

/// Writes the columns of a private row version and notes which.
pub struct RowWriter<'a> {
    row: *mut u8,
    /// Null while a row is updated: its fixed part is shared and stays as it is.
    fixed: *mut u8,
    out_of_line_values: &'a mut dyn OutOfLineStore,
    dirty: ColumnSet,
    named: Named,
    lifetime: PhantomData<&'a mut u8>,
}

impl<'a> RowWriter<'a> {
    /// A writer for a new row. `fixed` may dangle if the table has no immutable columns.
    ///
    /// # Safety
    /// Rules 1 and 2 of this module, for `'a`.
    #[inline]
    pub unsafe fn for_insert(
        row: *mut u8,
        fixed: *mut u8,
        out_of_line_values: &'a mut dyn OutOfLineStore,
    ) -> RowWriter<'a> {
        RowWriter { row, fixed, out_of_line_values, dirty: ColumnSet::EMPTY, named: Named::ALL, lifetime: PhantomData }
    }

    /// A writer for the mutable columns of a copied row.
    ///
    /// # Safety
    /// Rules 1 and 2 of this module, for `'a`.
    #[inline]
    pub unsafe fn for_update(row: *mut u8, out_of_line_values: &'a mut dyn OutOfLineStore) -> RowWriter<'a> {
        let (fixed, dirty) = (std::ptr::null_mut(), ColumnSet::EMPTY);
        RowWriter { row, fixed, out_of_line_values, dirty, named: Named::ALL, lifetime: PhantomData }
    }

    /// The writer, through which these columns are read or set only: as [`RowRef::only`].
    #[must_use]
    #[inline(always)]
    pub fn only(self, columns: ColumnSet) -> RowWriter<'a> {
        RowWriter { named: Named::new(columns), ..self }
    }

    /// The block that a place lies in, about to be written.
    ///
    /// # Panics
    /// If the column is immutable and the row is not new.
    #[inline(always)]
    fn touch(&mut self, place: &ColumnLocation) -> *mut u8 {
        let block = match place.part {
            RowPart::Row => self.row,
            RowPart::Fixed => {
                assert!(!self.fixed.is_null(), "an immutable column is set when its row is inserted and never again");
                self.fixed
            }
        };
        touch(self.row, self.named, place.column, true);
        self.dirty.insert(ColumnId(place.column));
        block
    }

    /// Sets the column at `place` (rule 2).
    ///
    /// # Errors
    /// Long text only: at the memory limit.
    ///
    /// # Panics
    /// If the column is immutable and the row is not new. Derived tables have no such setter. Also if an implementation
    /// of [`Column`] by hand stores what is no value of its type.
    #[inline(always)]
    pub fn set<C: Column>(&mut self, place: &ColumnLocation, value: C::Set<'_>) -> Result<(), OutOfMemory> {
        let block = self.touch(place);
        // SAFETY: rules 1 and 2.
        unsafe { C::Stored::write(C::store(value), block, place, self.out_of_line_values)? };
        if !C::IS_EXACT {
            self.check::<C>(place);
        }
        Ok(())
    }

    /// Refuses a value just set that the column's type does not have: a log with it could not be read.
    fn check<C: Column>(&self, place: &ColumnLocation) {
        // SAFETY: as in `as_row`.
        let row = unsafe { RowRef::from_raw(self.row) };
        let is_value = || C::TYPE.rules(|rules| rules.is_valid(row.raw(place, C::TYPE.form())));
        assert!(
            row.is_null(place) || is_value(),
            "`Column::store` of `{}` gave bytes that are no value of type {}",
            std::any::type_name::<C>(),
            C::TYPE
        );
    }

    /// Sets a nullable column to NULL, whatever its type.
    pub(crate) fn set_null(&mut self, place: &ColumnLocation) {
        let block = self.touch(place);
        // SAFETY: rules 1 and 2; zeros are what `Option` stores under the NULL bit of every type.
        unsafe {
            block.add(place.offset as usize).write_bytes(0, place.bytes as usize);
            place.set_null(block, true);
        }
    }

    /// Sets a column of a number of at most 8 bytes to the low bytes of this one.
    #[inline]
    pub(crate) fn set_number(&mut self, place: &ColumnLocation, number: u64) {
        let block = self.touch(place);
        // SAFETY: rules 1 and 2; the number has the place's size.
        unsafe {
            let at = block.add(place.offset as usize);
            match place.bytes {
                1 => at.write(number as u8),
                2 => at.cast::<u16>().write_unaligned(number as u16),
                4 => at.cast::<u32>().write_unaligned(number as u32),
                bytes => {
                    assert!(bytes == 8, "a number of 1, 2, 4 or 8 bytes");
                    at.cast::<u64>().write_unaligned(number);
                }
            }
            place.set_null(block, false);
        }
    }

    /// Sets a column of this form to stored bytes, a text column to a whole text.
    ///
    /// # Errors
    /// Values out of line only: at the memory limit.
    pub(crate) fn set_raw(&mut self, place: &ColumnLocation, form: Form, bytes: &[u8]) -> Result<(), OutOfMemory> {
        let address;
        let (length, room) = match form {
            Form::InPlace { max, .. } => (length_bytes(max.into()), max.into()),
            _ => (0, place.bytes as usize),
        };
        let bytes = match form {
            Form::OutOfLine { .. } => {
                address = self.out_of_line_values.store(bytes)?.to_ne_bytes();
                &address[..]
            }
            _ => bytes,
        };
        assert!(bytes.len() <= room && length + room == place.bytes as usize, "checked against the column");
        let block = self.touch(place);
        // SAFETY: rules 1 and 2; length and room lie within the place, as just asserted.
        unsafe {
            let at = block.add(place.offset as usize);
            if length > 0 {
                store_length(at, room, bytes.len() as u16);
            }
            let start = at.add(length);
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            start.add(bytes.len()).write_bytes(0, room - bytes.len());
            place.set_null(block, false);
        }
        Ok(())
    }

    /// Has the row refer to an out-of-line value of these bytes.
    pub(crate) fn set_out_of_line(&mut self, place: &ColumnLocation, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.set_raw(place, Form::OutOfLine { is_utf8: false }, bytes)
    }

    /// The current value of the column at `place` (rule 2).
    #[inline(always)]
    pub fn get<C: Column>(&self, place: &ColumnLocation) -> C::Ref<'_> {
        self.as_row().get::<C>(place)
    }

    /// Whether the column at `place` (rule 2) is NULL now.
    pub fn is_null(&self, place: &ColumnLocation) -> bool {
        self.as_row().is_null(place)
    }

    /// The row as it is now, while nothing is set.
    #[inline(always)]
    pub fn as_row(&self) -> RowRef<'_> {
        // SAFETY: rules 1 and 2; the borrow of `self` keeps `set` away while the reference lives. Zeros are a
        // value of every type, so columns not set yet can be read too.
        unsafe { RowRef::from_raw(self.row) }.named(self.named)
    }

    /// The columns set so far.
    #[inline]
    pub fn dirty(&self) -> ColumnSet {
        self.dirty
    }
}

impl std::fmt::Debug for RowWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter").field("dirty", &self.dirty).finish_non_exhaustive()
    }
}
