//! Builds byte keys: on the stack while they are short.

use crate::KeyBuf;

/// Key bytes in the making.
#[derive(Debug, Default)]
pub struct KeyWriter {
    len: usize,
    bytes: Inline,
    /// All bytes, once there are too many for `bytes`.
    spilled: Vec<u8>,
}

#[derive(Debug)]
struct Inline([u8; KeyBuf::INLINE]);

impl Default for Inline {
    fn default() -> Inline {
        Inline([0; KeyBuf::INLINE])
    }
}

impl KeyWriter {
    /// No bytes yet.
    pub fn new() -> KeyWriter {
        KeyWriter::default()
    }

    /// Bytes so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes so far.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.bytes.0[..self.len] } else { &self.spilled }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.spilled.is_empty() { &mut self.bytes.0[..self.len] } else { &mut self.spilled }
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn bytes(&mut self, more: &[u8]) {
        let len = self.len + more.len();
        if !self.spilled.is_empty() {
            self.spilled.extend_from_slice(more);
        } else if let Some(room) = self.bytes.0.get_mut(self.len..len) {
            room.copy_from_slice(more);
        } else {
            self.spilled.reserve(2 * len);
            self.spilled.extend_from_slice(&self.bytes.0[..self.len]);
            self.spilled.extend_from_slice(more);
        }
        self.len = len;
    }

    /// Appends the low `width` bytes of a number, most significant first. `width` is at most 16.
    #[inline]
    pub fn number(&mut self, bits: u128, width: u32) {
        self.bytes(&bits.to_be_bytes()[16 - width as usize..]);
    }

    /// Appends a byte string so that order is kept and its end is marked: 0x00 becomes 0x00 0xFF, the end is 0x00 0x00.
    pub fn escaped(&mut self, more: &[u8]) {
        for run in more.split_inclusive(|&byte| byte == 0) {
            self.bytes(run);
            if run.last() == Some(&0) {
                self.bytes(&[0xFF]);
            }
        }
        self.bytes(&[0, 0]);
    }

    /// Inverts every byte from `from` on: a descending column.
    pub fn invert(&mut self, from: usize) {
        self.as_mut_slice()[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_spill_and_keep_their_bytes() {
        let mut key = KeyWriter::new();
        let all: Vec<u8> = (0..200u8).collect();
        all.chunks(7).for_each(|chunk| key.bytes(chunk));
        assert_eq!((key.as_slice(), key.len()), (&all[..], 200));
    }

    #[test]
    fn escaping_keeps_order_and_no_key_begins_another() {
        let mut texts: Vec<&[u8]> = vec![b"", b"\0", b"\0\0", b"\0a", b"a", b"a\0", b"a\0b", b"a\xff", b"aa", b"b"];
        texts.sort_unstable();
        let keys: Vec<Vec<u8>> = texts
            .iter()
            .map(|text| {
                let mut key = KeyWriter::new();
                key.escaped(text);
                key.as_slice().to_vec()
            })
            .collect();
        assert!(keys.is_sorted());
        for (i, a) in keys.iter().enumerate() {
            assert!(keys.iter().enumerate().all(|(j, b)| i == j || !b.starts_with(a)));
        }
    }
}
