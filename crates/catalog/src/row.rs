//! Rows as readers see them: a row image, and behind it its fixed part and tails.
//!
//! Rules for a row image handed to [`RowRef::from_raw`], which the accessors rely on:
//! 1. It has the layout of its table and was written through [`RowWriter`](crate::RowWriter) only, so texts are UTF-8 and lengths are within bounds.
//! 2. It, its fixed part and its tails are readable and do not change while the reference lives.

use std::marker::PhantomData;

use crate::{Column, Part, Place};

/// A row. Copied freely; reading a column is one load at a constant offset.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'t> {
    row: *const u8,
    lifetime: PhantomData<&'t u8>,
}

impl<'t> RowRef<'t> {
    /// The row at an address.
    ///
    /// # Safety
    /// Rules 1 and 2 of the module, for `'t`.
    #[inline]
    pub const unsafe fn from_raw(row: *const u8) -> RowRef<'t> {
        RowRef { row, lifetime: PhantomData }
    }

    /// The address of the row image.
    #[inline]
    pub const fn as_ptr(self) -> *const u8 {
        self.row
    }

    /// The block of memory that a part is.
    #[inline]
    pub(crate) fn block(self, part: Part) -> *const u8 {
        match part {
            Part::Row => self.row,
            // SAFETY: a row with a column in the fixed part begins with that part's address (rule 1).
            Part::Fixed => unsafe { self.row.cast::<u64>().read_unaligned() as *const u8 },
        }
    }

    /// The value of a column of type `C` that lies at `place`.
    #[inline]
    pub fn get<C: Column>(self, place: &Place) -> C::Ref<'t> {
        // SAFETY: rules 1 and 2; `place` and `C` come from the table's declaration.
        unsafe { C::load(self.block(place.part), place) }
    }

    /// Whether the column at `place` is NULL.
    #[inline]
    pub fn is_null(self, place: &Place) -> bool {
        match place.null {
            // SAFETY: rules 1 and 2.
            Some((byte, mask)) => unsafe { self.block(place.part).add(byte as usize).read() & mask != 0 },
            None => false,
        }
    }
}

/// The bytes of a tail block; none for address 0.
///
/// # Safety
/// `address` is 0 or names a tail block `[length: u64][bytes]` that is readable and does not change for `'t`.
#[inline]
pub unsafe fn tail<'t>(address: u64) -> &'t [u8] {
    if address == 0 {
        return &[];
    }
    let block = address as *const u8;
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(block.add(8), block.cast::<u64>().read_unaligned() as usize) }
}
