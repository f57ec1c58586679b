//! Rows as they are written: a private image, its fixed part while it is new, and the tails of long texts.

use std::marker::PhantomData;

use crate::{Column, ColumnId, ColumnSet, OutOfMemory, Part, Place, RowRef};

/// Where long texts go.
pub trait TailStore {
    /// A tail block with these bytes: its address, or 0 for no bytes. The tail it replaces, if any, is not freed.
    ///
    /// # Errors
    /// At the memory limit.
    fn store(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory>;
}

/// Writes the columns of a private row image and notes which.
pub struct RowWriter<'a> {
    row: *mut u8,
    /// Null while a row is updated: its fixed part is shared and stays as it is.
    fixed: *mut u8,
    tails: &'a mut dyn TailStore,
    dirty: ColumnSet,
    lifetime: PhantomData<&'a mut u8>,
}

impl<'a> RowWriter<'a> {
    /// A writer for a new row.
    ///
    /// # Safety
    /// `row` and `fixed` are writable blocks of the table's layout that nobody else uses for `'a`, zeroed but for the address
    /// of `fixed` in the first word of `row` where the table has a fixed part.
    pub unsafe fn for_insert(row: *mut u8, fixed: *mut u8, tails: &'a mut dyn TailStore) -> RowWriter<'a> {
        RowWriter { row, fixed, tails, dirty: ColumnSet::EMPTY, lifetime: PhantomData }
    }

    /// A writer for the mutable columns of a copied row.
    ///
    /// # Safety
    /// `row` is a writable copy of a row of the table that nobody else uses for `'a`.
    pub unsafe fn for_update(row: *mut u8, tails: &'a mut dyn TailStore) -> RowWriter<'a> {
        RowWriter { row, fixed: std::ptr::null_mut(), tails, dirty: ColumnSet::EMPTY, lifetime: PhantomData }
    }

    /// Sets a column.
    ///
    /// # Errors
    /// Long text only: at the memory limit.
    ///
    /// # Panics
    /// If the column is immutable and the row is not new. Derived tables have no such setter.
    #[inline]
    pub fn set<C: Column>(&mut self, place: &Place, value: C::Set<'_>) -> Result<(), OutOfMemory> {
        let block = match place.part {
            Part::Row => self.row,
            Part::Fixed => self.fixed,
        };
        assert!(!block.is_null(), "an immutable column is set when its row is inserted and never again");
        self.dirty.insert(ColumnId(place.column));
        // SAFETY: the block is private and of the table's layout; `place` and `C` come from the table's declaration.
        unsafe { C::store(value, block, place, self.tails) }
    }

    /// Sets a nullable column to NULL, whatever its type.
    ///
    /// # Errors
    /// None; as [`RowWriter::set`].
    pub(crate) fn set_null(&mut self, place: &Place) -> Result<(), OutOfMemory> {
        // A value of any type: only the place's bytes and its bit are written.
        self.set::<Option<u8>>(place, None)
    }

    /// Sets a text or byte column; `bytes` fit it.
    pub(crate) fn set_bytes(&mut self, place: &Place, bytes: &[u8]) {
        let room = place.bytes as usize;
        let width = if room <= 256 { 1 } else { 2 };
        assert!(bytes.len() + width <= room, "checked against the column's room");
        let block = match place.part {
            Part::Row => self.row,
            Part::Fixed => self.fixed,
        };
        assert!(!block.is_null(), "an immutable column is set when its row is inserted and never again");
        self.dirty.insert(ColumnId(place.column));
        // SAFETY: as in `set`; length and bytes lie within the place.
        unsafe {
            let at = block.add(place.offset as usize);
            at.copy_from_nonoverlapping((bytes.len() as u16).to_le_bytes().as_ptr(), width);
            at.add(width).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            if let Some((byte, mask)) = place.null {
                let nulls = block.add(byte as usize);
                nulls.write(nulls.read() & !mask);
            }
        }
    }

    /// What a column holds now.
    #[inline]
    pub fn get<C: Column>(&self, place: &Place) -> C::Ref<'_> {
        // SAFETY: as in `set`; the borrow of `self` keeps `set` away while the reference lives.
        unsafe { RowRef::<'_>::from_raw(self.row) }.get::<C>(place)
    }

    /// Whether the column at `place` is NULL now.
    pub fn is_null(&self, place: &Place) -> bool {
        // SAFETY: as in `get`.
        unsafe { RowRef::<'_>::from_raw(self.row) }.is_null(place)
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
