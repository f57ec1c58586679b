//! Room for a copy of one row.

use std::ptr::NonNull;

use crate::{RowPtr, Table};

/// Room for a copy of one row version, to be reused: see the rules for rows in the contract. Empty until a protocol
/// copies into it.
#[derive(Debug, Default)]
pub struct RowBuffer {
    /// May move while it is pointed into.
    words: Vec<u64>,
}

impl RowBuffer {
    /// Room for a row version of this table. Its contents last until the next call, or until the buffer is
    /// dropped.
    #[inline]
    pub fn room(&mut self, table: &Table) -> RowPtr {
        let words = table.record_layout.row.div_ceil(8);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        NonNull::from(&mut *self.words).cast()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        8 * self.words.len()
    }

    /// Overwrites every byte, so that tests notice code that still reads what lay in it.
    pub fn fill(&mut self, byte: u8) {
        self.words.fill(u64::from_ne_bytes([byte; 8]));
    }
}
