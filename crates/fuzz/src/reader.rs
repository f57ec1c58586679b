//! Inputs as fields: numbers and stretches of bytes, taken off the front. Missing bytes are zero.

/// The rest of an input.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `bytes` bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    pub(crate) fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.number(8)
    }

    /// Bytes whose count, of two bytes, comes first.
    pub(crate) fn counted(&mut self) -> &'a [u8] {
        let bytes = usize::from(self.u16());
        self.take(bytes)
    }
}

/// Bytes with their count in front, as [`Reader::counted`] takes them.
pub(crate) fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}
