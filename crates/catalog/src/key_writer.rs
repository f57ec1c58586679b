//! Builds byte keys: on the stack while they are short.

use crate::KeyBuf;

/// Key bytes in the making.
///
/// Invariant: while `spilled` is empty, the key is the first `len` bytes of `inline`. Otherwise it is all of `spilled`,
/// and `len` is its length.
pub struct KeyWriter {
    len: usize,
    inline: [u8; KeyBuf::INLINE],
    spilled: Vec<u8>,
}

impl Default for KeyWriter {
    fn default() -> KeyWriter {
        KeyWriter::new()
    }
}

impl KeyWriter {
    /// No bytes yet.
    #[inline]
    pub const fn new() -> KeyWriter {
        KeyWriter { len: 0, inline: [0; KeyBuf::INLINE], spilled: Vec::new() }
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
        if self.spilled.is_empty() { &self.inline[..self.len] } else { &self.spilled }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.spilled.is_empty() { &mut self.inline[..self.len] } else { &mut self.spilled }
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn bytes(&mut self, more: &[u8]) {
        let len = self.len + more.len();
        match self.inline.get_mut(self.len..len) {
            Some(room) if self.spilled.is_empty() => room.copy_from_slice(more),
            _ => self.spill(more),
        }
        self.len = len;
    }

    #[cold]
    fn spill(&mut self, more: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.reserve(2 * (self.len + more.len()));
            self.spilled.extend_from_slice(&self.inline[..self.len]);
        }
        self.spilled.extend_from_slice(more);
    }

    /// Appends the low `width` bytes of a number, most significant first.
    ///
    /// # Panics
    /// If `width` is above 8.
    #[inline]
    pub fn number(&mut self, bits: u64, width: u32) {
        assert!(width <= 8, "a number has at most 8 bytes");
        // One store of constant size; the bytes beyond `width` are overwritten later, or are not part of the
        // key.
        let high = bits.unbounded_shl(64 - 8 * width).to_be_bytes();
        match self.inline.get_mut(self.len..self.len + 8) {
            Some(room) if self.spilled.is_empty() => {
                room.copy_from_slice(&high);
                self.len += width as usize;
            }
            _ => self.bytes(&high[..width as usize]),
        }
    }

    /// Appends the low `width` bytes of a number, most significant first; at most 16.
    #[inline(always)]
    pub fn wide(&mut self, bits: u128, width: u32) {
        if width > 8 {
            self.number((bits >> 64) as u64, width - 8);
        }
        self.number(bits as u64, width.min(8));
    }

    /// Appends so many zeros.
    #[inline]
    pub fn zeros(&mut self, mut count: u32) {
        while count > 8 {
            self.number(0, 8);
            count -= 8;
        }
        self.number(0, count);
    }

    /// Appends a byte string so that order is kept and its end is marked. 0x00 becomes 0x01 0x01, 0x01 becomes 0x01
    /// 0x02, and the end is 0x00.
    #[inline]
    pub fn escaped(&mut self, more: &[u8]) {
        if more.iter().fold(true, |plain, &byte| plain & (byte > 1)) {
            self.bytes(more);
        } else {
            self.escape(more);
        }
        self.bytes(&[0]);
    }

    #[cold]
    fn escape(&mut self, more: &[u8]) {
        for &byte in more {
            match byte {
                0 | 1 => self.bytes(&[1, byte + 1]),
                _ => self.bytes(&[byte]),
            }
        }
    }

    /// Inverts every byte from `from` on: a descending column.
    #[inline]
    pub fn invert(&mut self, from: usize) {
        self.as_mut_slice()[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

impl std::fmt::Debug for KeyWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.as_slice().escape_ascii())
    }
}

/// The byte string that [`KeyWriter::escaped`] wrote at the start of `key`, and how many bytes it takes
/// there. `None` if the end is missing, or an escape is none that it writes. Then the bytes are no key, and not another
/// spelling of one.
pub(crate) fn unescape(key: impl Iterator<Item = u8>) -> Option<(Vec<u8>, usize)> {
    let (mut text, mut taken, mut key) = (Vec::new(), 0, key);
    loop {
        taken += 1;
        match key.next()? {
            0 => return Some((text, taken)),
            1 => {
                text.push(key.next().filter(|escaped| matches!(escaped, 1 | 2))? - 1);
                taken += 1;
            }
            byte => text.push(byte),
        }
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
        key.invert(198);
        assert_eq!(key.as_slice()[197..], [197, !198, !199]);
    }

    #[test]
    fn numbers_have_their_width_wherever_the_inline_room_ends() {
        for before in 0..80 {
            for width in 0..=8 {
                let mut key = KeyWriter::new();
                key.bytes(&vec![9; before]);
                key.number(0x0102_0304_0506_0708, width);
                key.number(0xFF, 1);
                let mut wanted = vec![9; before];
                wanted.extend_from_slice(&0x0102_0304_0506_0708u64.to_be_bytes()[8 - width as usize..]);
                wanted.push(0xFF);
                assert_eq!(key.as_slice(), wanted);
                assert_eq!(key.len(), wanted.len());
            }
        }
    }

    #[test]
    fn escaping_keeps_order_and_no_key_begins_another() {
        let bytes = [0u8, 1, 2, 0xFF];
        let mut texts: Vec<Vec<u8>> = vec![vec![]];
        for round in 0..4 {
            let longer: Vec<_> = texts.iter().filter(|text| text.len() == round).cloned().collect();
            texts.extend(longer.iter().flat_map(|text| bytes.map(|byte| [&text[..], &[byte]].concat())));
        }
        texts.sort();
        let keys: Vec<Vec<u8>> = texts
            .iter()
            .map(|text| {
                let mut key = KeyWriter::new();
                key.escaped(text);
                assert_eq!(unescape(key.as_slice().iter().copied()), Some((text.clone(), key.len())));
                key.as_slice().to_vec()
            })
            .collect();
        assert!(keys.is_sorted());
        for other in [&[b'a', 1, 0xC3, 0][..], &[1, 0, 0], &[1, 3, 0], &[b'a', 1]] {
            assert_eq!(unescape(other.iter().copied()), None, "{other:?}");
        }
        // Sorted, so a key that begins another is right before one that it begins.
        assert!(keys.windows(2).all(|pair| !pair[1].starts_with(&pair[0])));
    }
}
