//! Ranges of encoded keys.

use std::ops::Bound;

use crate::{Key, KeyBuf, KeyClass, KeyShape};

/// A range of encoded keys of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub low: Bound<KeyBuf>,
    /// The upper end.
    pub high: Bound<KeyBuf>,
}

impl KeyRange {
    /// Every key that begins with `prefix`, among keys of `shape`. A prefix longer than a key of fixed width is cut.
    pub fn of_prefix(prefix: &[u8], shape: KeyShape) -> KeyRange {
        let fixed = |bytes: u32| {
            let prefix = &prefix[..prefix.len().min(bytes as usize)];
            let value = prefix.iter().fold(0u128, |value, &byte| value << 8 | u128::from(byte));
            let rest = 8 * (bytes - prefix.len() as u32);
            let (low, last) = match rest {
                128 => (0, u128::MAX),
                _ => (value << rest, (1u128 << rest) - 1),
            };
            (low, low | last)
        };
        let (low, high) = match shape.class {
            KeyClass::Word8 => {
                let (low, high) = fixed(shape.bytes);
                (Key::Word8(low as u64).to_buf(), Key::Word8(high as u64).to_buf())
            }
            KeyClass::Word16 => {
                let (low, high) = fixed(shape.bytes);
                (Key::Word16(low).to_buf(), Key::Word16(high).to_buf())
            }
            KeyClass::Bytes => {
                let low = Bound::Included(Key::Bytes(prefix).to_buf());
                return KeyRange { low, high: after(prefix) };
            }
        };
        KeyRange { low: Bound::Included(low), high: Bound::Included(high) }
    }
}

/// The end of the byte strings that begin with `prefix`: the prefix with its last byte below 0xFF raised by one.
fn after(prefix: &[u8]) -> Bound<KeyBuf> {
    let Some(last) = prefix.iter().rposition(|&byte| byte != 0xFF) else { return Bound::Unbounded };
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Bound::Excluded(Key::Bytes(&next).to_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_words_fill_the_rest_with_zeros_and_ones() {
        let range = KeyRange::of_prefix(&[1, 2], KeyShape::new(4, false));
        assert_eq!(range.low, Bound::Included(Key::Word8(0x0102_0000).to_buf()));
        assert_eq!(range.high, Bound::Included(Key::Word8(0x0102_FFFF).to_buf()));
        let all = KeyRange::of_prefix(&[], KeyShape::new(16, false));
        assert_eq!(all.high, Bound::Included(Key::Word16(u128::MAX).to_buf()));
    }

    #[test]
    fn the_end_of_a_byte_prefix_is_its_successor() {
        let range = KeyRange::of_prefix(&[7, 0xFF], KeyShape::new(0, true));
        assert_eq!(range.high, Bound::Excluded(Key::Bytes(&[8]).to_buf()));
        assert_eq!(KeyRange::of_prefix(&[0xFF], KeyShape::new(0, true)).high, Bound::Unbounded);
    }
}
