//! Ranges of encoded keys.

use std::ops::Bound;

use crate::{Key, KeyBuf, KeyClass, KeyFormat, KeyParts, KeyWriter};

/// A range of encoded keys of one table. It may be empty: then `low` is not below `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub low: Bound<KeyBuf>,
    /// The upper end.
    pub high: Bound<KeyBuf>,
}

impl KeyRange {
    /// Every key that begins with these columns, among keys of `format`.
    ///
    /// # Panics
    /// If the columns are longer than a key, or vary where keys of `format` do not: they are of another table.
    #[inline]
    pub fn of_parts<P: KeyParts>(prefix: &P, format: KeyFormat) -> KeyRange {
        match format.class {
            KeyClass::Bytes => {
                let mut key = KeyWriter::new();
                prefix.write_parts(&mut key);
                KeyRange::of_bytes(key.as_slice())
            }
            _ => {
                assert!(!P::WIDTH.1, "the prefix is of another table: its width varies, the keys' does not");
                KeyRange::of_bits(prefix.parts_bits(), P::WIDTH.0, format)
            }
        }
    }

    /// Every key that begins with `prefix`, the bytes of its first columns, among keys of `format`.
    ///
    /// # Panics
    /// If the prefix is longer than a key of `format`.
    pub fn of_prefix(prefix: &[u8], format: KeyFormat) -> KeyRange {
        match format.class {
            KeyClass::Bytes => KeyRange::of_bytes(prefix),
            _ => {
                let bits = prefix.iter().fold(0u128, |bits, &byte| bits << 8 | u128::from(byte));
                KeyRange::of_bits(bits, prefix.len() as u32, format)
            }
        }
    }

    /// Integers whose highest `bytes` of the used bytes are `bits`: the others are all zeros to all ones.
    #[inline]
    fn of_bits(bits: u128, bytes: u32, format: KeyFormat) -> KeyRange {
        assert!(bytes <= format.bytes, "the prefix is of another table: it is longer than the keys");
        let rest = 8 * (format.bytes - bytes);
        let low = bits.unbounded_shl(rest);
        let high = low | 1u128.unbounded_shl(rest).wrapping_sub(1);
        let key = |bits: u128| match format.class {
            KeyClass::Word8 => Key::Word8(bits as u64).to_buf(),
            _ => Key::Word16(bits).to_buf(),
        };
        KeyRange { low: Bound::Included(key(low)), high: Bound::Included(key(high)) }
    }

    fn of_bytes(prefix: &[u8]) -> KeyRange {
        if prefix.is_empty() {
            return KeyRange { low: Bound::Unbounded, high: Bound::Unbounded };
        }
        let high = KeyBuf::after_all(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        KeyRange { low: Bound::Included(Key::Bytes(prefix).to_buf()), high }
    }

    /// The keys from `low` to `high`, bounds on the first columns, among keys of `format`. An included bound
    /// takes in every key that begins with it, an excluded one none.
    ///
    /// # Panics
    /// As [`KeyRange::of_parts`].
    pub fn between<P: KeyParts>(low: Bound<&P>, high: Bound<&P>, format: KeyFormat) -> KeyRange {
        let of = |prefix: &P| KeyRange::of_parts(prefix, format);
        KeyRange::joined(low.map(of), high.map(of))
    }

    /// The keys from `low` to `high`: with those of an included range, without those of an excluded one.
    pub(crate) fn joined(low: Bound<KeyRange>, high: Bound<KeyRange>) -> KeyRange {
        let high = match high {
            Bound::Included(range) => range.high,
            Bound::Excluded(range) => flip(range.low),
            Bound::Unbounded => Bound::Unbounded,
        };
        let low = match low {
            Bound::Included(range) => range.low,
            Bound::Excluded(range) => match range {
                // Nothing lies after the keys that begin with 0xFF only, or after all keys.
                KeyRange { low: Bound::Included(key) | Bound::Excluded(key), high: Bound::Unbounded } => {
                    return KeyRange { low: Bound::Excluded(key.clone()), high: Bound::Excluded(key) };
                }
                KeyRange { low: Bound::Unbounded, high: Bound::Unbounded } => {
                    let key = Key::Bytes(&[]).to_buf();
                    return KeyRange { low: Bound::Excluded(key.clone()), high: Bound::Excluded(key) };
                }
                KeyRange { high, .. } => flip(high),
            },
            Bound::Unbounded => Bound::Unbounded,
        };
        KeyRange { low, high }
    }

    /// Whether a key lies in the range.
    pub fn contains(&self, key: Key<'_>) -> bool {
        let above = match &self.low {
            Bound::Included(low) => low.as_key() <= key,
            Bound::Excluded(low) => low.as_key() < key,
            Bound::Unbounded => true,
        };
        let below = match &self.high {
            Bound::Included(high) => key <= high.as_key(),
            Bound::Excluded(high) => key < high.as_key(),
            Bound::Unbounded => true,
        };
        above && below
    }
}

/// The bound on the same key from its other side.
fn flip(bound: Bound<KeyBuf>) -> Bound<KeyBuf> {
    match bound {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TableKey, Text};

    #[test]
    fn prefixes_of_words_fill_the_rest_with_zeros_and_ones() {
        let range = KeyRange::of_prefix(&[1, 2], KeyFormat::new(4, false));
        assert_eq!(range.low, Bound::Included(Key::Word8(0x0102_0000).to_buf()));
        assert_eq!(range.high, Bound::Included(Key::Word8(0x0102_FFFF).to_buf()));
        assert_eq!(KeyRange::of_parts(&0x0102u16, KeyFormat::new(4, false)), range);
        let all = KeyRange::of_parts(&(), KeyFormat::new(16, false));
        assert_eq!(all.low, Bound::Included(Key::Word16(0).to_buf()));
        assert_eq!(all.high, Bound::Included(Key::Word16(u128::MAX).to_buf()));
    }

    #[test]
    fn the_end_of_a_byte_prefix_is_its_successor() {
        let range = KeyRange::of_prefix(&[7, 0xFF], KeyFormat::new(0, true));
        assert_eq!(range.high, Bound::Excluded(Key::Bytes(&[8]).to_buf()));
        assert_eq!(KeyRange::of_prefix(&[0xFF], KeyFormat::new(0, true)).high, Bound::Unbounded);
        let all = KeyRange::of_prefix(&[], KeyFormat::new(0, true));
        assert_eq!(all, KeyRange { low: Bound::Unbounded, high: Bound::Unbounded });
    }

    #[test]
    fn nothing_lies_after_the_last_prefix() {
        let format = <(u8, Text<4>)>::FORMAT;
        let key = (255u8, Text::<4>::literal("a")).to_buf();
        assert!(KeyRange::of_parts(&255u8, format).contains(key.as_key()));
        assert!(!KeyRange::between(Bound::Excluded(&255u8), Bound::Unbounded, format).contains(key.as_key()));
        assert!(KeyRange::between(Bound::Excluded(&254u8), Bound::Unbounded, format).contains(key.as_key()));
        assert!(!KeyRange::between(Bound::Unbounded, Bound::Excluded(&255u8), format).contains(key.as_key()));
    }

    #[test]
    #[should_panic(expected = "of another table")]
    fn a_prefix_longer_than_the_key_is_refused() {
        let _ = KeyRange::of_parts(&(1u32, 2u32), KeyFormat::new(4, false));
    }
}
