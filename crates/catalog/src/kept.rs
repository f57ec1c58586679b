//! Rows that outlive the memory they were read from.
//!
//! A copy of a row version, its fixed part and its out-of-line values. Its addresses are those of its own blocks. So it
//! is a row as [`RowRef`] requires (rules 1 and 2 there) for as long as it lives.

use crate::{Layout, RowRef, out_of_line};

/// A row of its own. The blocks are vectors, which may move while they are pointed into.
#[derive(Debug)]
pub struct KeptRow {
    row: Vec<u64>,
    fixed: Vec<u64>,
    out_of_line_values: Vec<Vec<u64>>,
}

/// A block of whole words with these bytes, which begin `at` bytes into it.
///
/// # Safety
/// So many bytes are readable.
unsafe fn block(from: *const u8, bytes: usize, at: usize) -> Vec<u64> {
    let mut block = vec![0u64; (at + bytes).div_ceil(8)];
    // SAFETY: the caller's promise; the block has room.
    unsafe { block.as_mut_ptr().cast::<u8>().add(at).copy_from_nonoverlapping(from, bytes) };
    block
}

impl KeptRow {
    /// A copy of a row of this layout.
    ///
    /// # Safety
    /// The row has the layout (rule 1 of [`RowRef`]).
    pub unsafe fn new(row: RowRef<'_>, layout: &Layout) -> KeptRow {
        let mut out_of_line_values = Vec::new();
        let mut take = |block: &mut [u64], offsets: &[u32]| {
            for &offset in offsets {
                // SAFETY: the layout's offsets lie in the block.
                let at = unsafe { block.as_mut_ptr().cast::<u8>().add(offset as usize).cast::<u64>() };
                // SAFETY: as above; rule 1 of `RowRef`: 0 or the address of an out-of-line block, which is readable.
                let bytes = unsafe { out_of_line(at.read_unaligned()) };
                if bytes.is_empty() {
                    // SAFETY: as above. No bytes need no block.
                    unsafe { at.write_unaligned(0) };
                    continue;
                }
                // SAFETY: a slice is readable.
                let mut copy = unsafe { self::block(bytes.as_ptr(), bytes.len(), 8) };
                copy[0] = bytes.len() as u64;
                // SAFETY: as above.
                unsafe { at.write_unaligned(copy.as_mut_ptr().expose_provenance() as u64) };
                out_of_line_values.push(copy);
            }
        };
        // SAFETY: the caller's promise.
        let mut image = unsafe { block(row.as_ptr(), layout.row_bytes as usize, 0) };
        take(&mut image, &layout.row_out_of_line);
        let mut fixed = Vec::new();
        if layout.fixed_bytes > 0 {
            // SAFETY: the caller's promise.
            fixed = unsafe { block(row.block(crate::RowPart::Fixed), layout.fixed_bytes as usize, 0) };
            take(&mut fixed, &layout.fixed_out_of_line);
            // A row with a fixed part begins with its address.
            image[0] = fixed.as_mut_ptr().expose_provenance() as u64;
        }
        KeptRow { row: image, fixed, out_of_line_values }
    }

    /// Bytes of its blocks.
    pub fn bytes(&self) -> usize {
        let out_of_line_values: usize = self.out_of_line_values.iter().map(Vec::len).sum();
        8 * (self.row.len() + self.fixed.len() + out_of_line_values)
    }

    /// The row: as long as this lives, wherever it is moved.
    pub fn as_ptr(&self) -> *const u8 {
        self.row.as_ptr().cast()
    }
}
