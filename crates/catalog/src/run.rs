//! Runs: rows of a clustered table that share the first columns of their keys, side by side in one out-of-line value.
//!
//! ```text
//! record's row         [address of the run: 8]
//! run                  [bytes after this word: 8] [rows: 4] [whether runs follow: 4] [row] [row] ... [room for more]
//! ```
//! The rows are in key order, each as long as the table's layout says, without fixed part and out-of-line
//! values. The record's key is no greater than that of its first row. The first run of a prefix has the
//! smallest key that begins with the prefix, and says whether other runs may follow.
//!
//! Rules for a [`Run`]; the caller of [`Run::at`] vouches for them:
//! 1. It is a run of a table whose rows have the given number of bytes, and lives as long as it is used.
//! 2. No thread writes to the parts of it that are read meanwhile.

use crate::{ColumnLocation, Layout, RowPart};

/// Where the rows begin, from the number of rows on.
const HEADER_BYTES: usize = 8;

/// A run of rows, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    block: *mut u8,
}

impl Run {
    /// The run at the address of an out-of-line value.
    ///
    /// # Safety
    /// Rules 1 and 2 of this module.
    #[inline(always)]
    pub unsafe fn at(address: u64) -> Run {
        Run { block: std::ptr::with_exposed_provenance_mut(address as usize) }
    }

    /// The run of a record's row.
    ///
    /// # Safety
    /// The row is readable, and of a clustered table; rules 1 and 2 of this module.
    #[inline(always)]
    pub unsafe fn of(row: *const u8) -> Run {
        // SAFETY: the caller's promise.
        unsafe { Run::at(row.cast::<u64>().read_unaligned()) }
    }

    /// Its address.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.block.expose_provenance() as u64
    }

    /// Bytes of the out-of-line value that holds this many rows.
    pub const fn bytes(rows: usize, row_bytes: usize) -> usize {
        HEADER_BYTES + rows * row_bytes
    }

    /// How many rows it has.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "a run is empty only while others follow")]
    pub fn len(self) -> usize {
        // SAFETY: rules 1 and 2.
        unsafe { self.block.add(8).cast::<u32>().read() as usize }
    }

    /// Whether runs with the same prefix may follow: the first run of a prefix knows.
    #[inline(always)]
    pub fn is_followed(self) -> bool {
        // SAFETY: rules 1 and 2.
        unsafe { self.block.add(12).cast::<u32>().read() != 0 }
    }

    /// The number of rows of this size for which there is room.
    #[inline(always)]
    pub fn room(self, row_bytes: usize) -> usize {
        // SAFETY: rules 1 and 2.
        (unsafe { self.block.cast::<u64>().read() as usize } - HEADER_BYTES) / row_bytes
    }

    /// The address of a row, for rows of this size.
    #[inline(always)]
    pub fn row(self, at: usize, row_bytes: usize) -> *mut u8 {
        self.block.wrapping_add(8 + HEADER_BYTES + at * row_bytes)
    }

    /// The bytes of its rows.
    ///
    /// # Safety
    /// Rules 1 and 2 of this module, for `'t`.
    pub unsafe fn rows<'t>(self, row_bytes: usize) -> &'t [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.row(0, row_bytes), self.len() * row_bytes) }
    }

    /// Says how many rows it has, and whether runs follow.
    ///
    /// # Safety
    /// The run is private to the caller, and this many rows are written before it is read.
    #[inline(always)]
    pub unsafe fn set(self, rows: usize, is_followed: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            self.block.add(8).cast::<u32>().write(rows as u32);
            self.block.add(12).cast::<u32>().write(is_followed.into());
        }
    }
}

impl Layout {
    /// The layout of the records of a clustered table: the address of a run.
    pub fn of_runs() -> Layout {
        let place = ColumnLocation { part: RowPart::Row, offset: 0, bytes: 8, null: None, column: 0 };
        let (places, row_out_of_line, fixed_out_of_line) = (vec![place], vec![0], Vec::new());
        Layout { row_bytes: 8, fixed_bytes: 0, places, row_out_of_line, fixed_out_of_line }
    }
}
