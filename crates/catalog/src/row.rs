//! Rows as readers see them: a row version, and behind it its fixed part and out-of-line values.
//!
//! Rules for a [`RowRef`], which every accessor relies on; the caller of [`RowRef::from_raw`] vouches for them:
//! 1. The row has the layout of its table and was written through [`RowWriter`](crate::RowWriter) only, or copied from
//!    such a row. So texts are UTF-8, lengths within bounds, and out-of-line addresses 0 or those of out-of-line
//!    blocks.
//! 2. The row version, its fixed part and its out-of-line values are readable and do not change while the
//!    reference lives.
//! 3. The reference is passed only to code that reads it by places and column types of that table. This is the code
//!    that the derive generates ([`Table`](crate::Table) is unsafe to implement), and [`KeyCodec`](crate::KeyCodec)s,
//!    [`Value`](crate::Value)s and [`RowWire`](crate::wire::RowWire)s of its declaration.

use std::marker::PhantomData;

use crate::stored::load_bytes;
use crate::types::Form;
use crate::watch::{Named, touch};
use crate::{Column, ColumnLocation, ColumnSet, RowPart, Stored};

/// A row. Copied freely; reading a column is one load at a constant offset.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'t> {
    row: *const u8,
    named: Named,
    lifetime: PhantomData<&'t u8>,
}

impl<'t> RowRef<'t> {
    /// The row at an address.
    ///
    /// # Safety
    /// Rules 1 to 3 of this module, for `'t`.
    #[inline(always)]
    pub const unsafe fn from_raw(row: *const u8) -> RowRef<'t> {
        RowRef { row, named: Named::ALL, lifetime: PhantomData }
    }

    /// The row, of which these columns are read only: of the others it may show what no one transaction may
    /// rely on. Builds with debug assertions panic when another is read.
    #[must_use]
    #[inline(always)]
    pub const fn only(self, columns: ColumnSet) -> RowRef<'t> {
        RowRef { named: Named::new(columns), ..self }
    }

    #[inline(always)]
    pub(crate) const fn named(self, named: Named) -> RowRef<'t> {
        RowRef { named, ..self }
    }

    /// The address of the row version.
    #[inline(always)]
    pub const fn as_ptr(self) -> *const u8 {
        self.row
    }

    /// The block of memory that a part is.
    #[inline(always)]
    pub(crate) fn block(self, part: RowPart) -> *const u8 {
        match part {
            RowPart::Row => self.row,
            RowPart::Fixed => {
                // SAFETY: rules 1 and 3: a row with a column in the fixed part begins with that part's address.
                let address = unsafe { self.row.cast::<u64>().read_unaligned() };
                std::ptr::with_exposed_provenance(address as usize)
            }
        }
    }

    /// The value of a column of type `C` that lies at `place` (rule 3).
    #[inline(always)]
    pub fn get<C: Column>(self, place: &ColumnLocation) -> C::Ref<'t> {
        touch(self.row, self.named, place.column, false);
        // SAFETY: rules 1 to 3.
        C::load(unsafe { C::Stored::read(self.block(place.part), place) })
    }

    /// The stored bytes of the column of this form at `place` (rule 3), as a value that is read.
    pub(crate) fn get_raw(self, place: &ColumnLocation, form: Form) -> &'t [u8] {
        touch(self.row, self.named, place.column, false);
        self.raw(place, form)
    }

    /// The stored bytes of the column of this form at `place` (rule 3).
    #[inline]
    pub(crate) fn raw(self, place: &ColumnLocation, form: Form) -> &'t [u8] {
        let block = self.block(place.part);
        // SAFETY: rules 1 to 3.
        unsafe {
            match form {
                Form::InPlace { max, .. } => load_bytes(block, place, max.into()),
                Form::OutOfLine { .. } => out_of_line(u64::read(block, place)),
                _ => std::slice::from_raw_parts(block.add(place.offset as usize), place.bytes as usize),
            }
        }
    }

    /// Whether the column at `place` (rule 3) is NULL.
    #[inline]
    pub fn is_null(self, place: &ColumnLocation) -> bool {
        // SAFETY: rules 1 to 3.
        unsafe { place.is_null(self.block(place.part)) }
    }
}

/// The bytes of an out-of-line block; none for address 0.
///
/// # Safety
/// `address` is 0 or names an out-of-line block `[length: u64][bytes]` whose provenance was exposed, readable and
/// unchanged for `'t`.
#[inline]
pub unsafe fn out_of_line<'t>(address: u64) -> &'t [u8] {
    if address == 0 {
        return &[];
    }
    let block: *const u8 = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(block.add(8), block.cast::<u64>().read_unaligned() as usize) }
}
