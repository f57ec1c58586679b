//! Encoded keys: integers of one or two words, or byte strings. Comparing two keys of a table compares their
//! columns in order.
//!
//! ```text
//! Word8    total of the columns' widths is at most 8 bytes: one u64, the first column in the highest of the used bytes
//! Word16   at most 16 bytes: one u128, likewise
//! Bytes    anything longer, and every key with a text or byte column
//! ```
//! Keys of one table always have the same class, so words stay right-aligned and unused high bytes are zero.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// How the keys of a table are represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyClass {
    /// One 64-bit integer.
    Word8,
    /// One 128-bit integer.
    Word16,
    /// A byte string, compared lexicographically.
    Bytes,
}

/// The class of a table's keys and, for integers, how many bytes of them are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyFormat {
    /// How the keys are represented.
    pub class: KeyClass,
    /// Bytes of a key: at most 8 or 16 by class, 0 for [`KeyClass::Bytes`], whose keys vary.
    pub bytes: u32,
}

impl KeyFormat {
    /// The format of a key whose fixed columns take `bytes` bytes; `variable` if it also has text or byte
    /// columns.
    pub const fn new(bytes: u32, variable: bool) -> KeyFormat {
        match bytes {
            _ if variable => KeyFormat { class: KeyClass::Bytes, bytes: 0 },
            0..=8 => KeyFormat { class: KeyClass::Word8, bytes },
            9..=16 => KeyFormat { class: KeyClass::Word16, bytes },
            _ => KeyFormat { class: KeyClass::Bytes, bytes: 0 },
        }
    }
}

/// An encoded key. Keys of one table have one class; across classes the order means nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key<'a> {
    /// At most 8 bytes, right-aligned.
    Word8(u64),
    /// At most 16 bytes, right-aligned.
    Word16(u128),
    /// A byte string, compared lexicographically.
    Bytes(&'a [u8]),
}

impl Key<'_> {
    /// How this key is represented.
    #[inline]
    pub const fn class(&self) -> KeyClass {
        match self {
            Key::Word8(_) => KeyClass::Word8,
            Key::Word16(_) => KeyClass::Word16,
            Key::Bytes(_) => KeyClass::Bytes,
        }
    }

    /// The same key, copied. For rare calls that take the key by its address. The compiler can keep the key in a
    /// register elsewhere only if its address is not passed on.
    #[inline(always)]
    #[must_use]
    pub const fn anew(self) -> Self {
        match self {
            Key::Word8(word) => Key::Word8(word),
            Key::Word16(words) => Key::Word16(words),
            Key::Bytes(bytes) => Key::Bytes(bytes),
        }
    }

    /// A byte string that is ordered as the keys of this class are: integers big-endian, 8 or 16 bytes.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Key::Word8(word) => Cow::Owned(word.to_be_bytes().to_vec()),
            Key::Word16(words) => Cow::Owned(words.to_be_bytes().to_vec()),
            Key::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// A copy that owns its bytes. Allocates only beyond [`KeyBuf::INLINE`] bytes.
    #[inline]
    pub fn to_buf(&self) -> KeyBuf {
        KeyBuf::from(*self)
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Word8(word) => write!(f, "{word:#x}"),
            Key::Word16(words) => write!(f, "{words:#x}"),
            Key::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
        }
    }
}

/// An owned [`Key`]. Byte strings up to [`KeyBuf::INLINE`] bytes are held in place.
#[derive(Clone)]
pub struct KeyBuf(Repr);

#[derive(Clone)]
enum Repr {
    Word8(u64),
    Word16(u128),
    Inline { len: u8, bytes: [u8; KeyBuf::INLINE] },
    Heap(Box<[u8]>),
}

impl KeyBuf {
    /// Longest byte string held without allocating.
    pub const INLINE: usize = 64;

    /// The key it owns.
    #[inline]
    pub fn as_key(&self) -> Key<'_> {
        match &self.0 {
            Repr::Word8(word) => Key::Word8(*word),
            Repr::Word16(words) => Key::Word16(*words),
            Repr::Inline { len, bytes } => Key::Bytes(&bytes[..usize::from(*len)]),
            Repr::Heap(bytes) => Key::Bytes(bytes),
        }
    }

    /// How the key is represented.
    pub fn class(&self) -> KeyClass {
        self.as_key().class()
    }

    /// The least byte string above all that begin with `prefix`: the prefix up to its last byte below 0xFF,
    /// that byte raised by one. `None` if it has no such byte, and nothing lies above.
    pub(crate) fn after_all(prefix: &[u8]) -> Option<KeyBuf> {
        let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
        let mut key = Key::Bytes(&prefix[..=last]).to_buf();
        match &mut key.0 {
            Repr::Inline { bytes, .. } => bytes[last] += 1,
            Repr::Heap(bytes) => bytes[last] += 1,
            Repr::Word8(_) | Repr::Word16(_) => {}
        }
        Some(key)
    }
}

impl From<Key<'_>> for KeyBuf {
    #[inline]
    fn from(key: Key<'_>) -> KeyBuf {
        KeyBuf(match key {
            Key::Word8(word) => Repr::Word8(word),
            Key::Word16(words) => Repr::Word16(words),
            Key::Bytes(from) if from.len() <= Self::INLINE => {
                let mut bytes = [0; Self::INLINE];
                bytes[..from.len()].copy_from_slice(from);
                Repr::Inline { len: from.len() as u8, bytes }
            }
            Key::Bytes(from) => Repr::Heap(from.into()),
        })
    }
}

impl Default for KeyBuf {
    fn default() -> KeyBuf {
        KeyBuf(Repr::Word8(0))
    }
}

impl PartialEq for KeyBuf {
    fn eq(&self, other: &KeyBuf) -> bool {
        self.as_key() == other.as_key()
    }
}

impl Eq for KeyBuf {}

impl PartialOrd for KeyBuf {
    fn partial_cmp(&self, other: &KeyBuf) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBuf {
    fn cmp(&self, other: &KeyBuf) -> Ordering {
        self.as_key().cmp(&other.as_key())
    }
}

impl Hash for KeyBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_key().hash(state);
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_keys_equal_and_order_as_borrowed_ones() {
        let keys = [vec![], vec![0], vec![0, 1], vec![1; 64], vec![1; 65], vec![2; 3], vec![255; 200]];
        for (i, a) in keys.iter().enumerate() {
            assert_eq!(Key::Bytes(a).to_buf().as_key(), Key::Bytes(a));
            for (j, b) in keys.iter().enumerate() {
                assert_eq!(Key::Bytes(a).to_buf().cmp(&Key::Bytes(b).to_buf()), i.cmp(&j));
            }
        }
        assert!(Key::Word8(9).to_buf() < Key::Word8(10).to_buf());
        assert_eq!(*Key::Word8(258).to_bytes(), [0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn a_format_follows_from_the_widths() {
        assert_eq!(KeyFormat::new(8, false), KeyFormat { class: KeyClass::Word8, bytes: 8 });
        assert_eq!(KeyFormat::new(9, false).class, KeyClass::Word16);
        assert_eq!(KeyFormat::new(17, false), KeyFormat { class: KeyClass::Bytes, bytes: 0 });
        assert_eq!(KeyFormat::new(2, true).class, KeyClass::Bytes);
    }
}
