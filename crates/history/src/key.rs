//! An encoded key: bytes whose lexicographic order is the key order. Short ones are stored inline, because a
//! history of ten million operations must not be ten million allocations.

use std::fmt;

/// Bytes stored without an allocation.
const INLINE: usize = 22;

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<Key>() == 24, "a key takes three words");

/// An encoded key, compared as bytes.
#[derive(Clone)]
pub struct Key(Repr);

impl Key {
    /// A key of these bytes.
    pub fn new(bytes: &[u8]) -> Key {
        if bytes.len() <= INLINE {
            let mut inline = [0; INLINE];
            inline[..bytes.len()].copy_from_slice(bytes);
            Key(Repr::Inline { len: bytes.len() as u8, bytes: inline })
        } else {
            Key(Repr::Heap(bytes.into()))
        }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key::new(bytes)
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key::new(text.as_bytes())
    }
}

impl From<u64> for Key {
    /// Eight bytes, big-endian: the order of the integers.
    fn from(word: u64) -> Key {
        Key::new(&word.to_be_bytes())
    }
}

impl From<u128> for Key {
    /// Sixteen bytes, big-endian: the order of the integers.
    fn from(word: u128) -> Key {
        Key::new(&word.to_be_bytes())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl fmt::Display for Key {
    /// As in the text format: the bytes themselves if they are a plain word, else `0x` and hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        match std::str::from_utf8(bytes) {
            Ok(word) if !bytes.is_empty() && bytes.iter().all(plain) && !word.starts_with("0x") => f.write_str(word),
            _ => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let wrong = || format!("`{text}` is not a key: write a plain word, or 0x and pairs of hexadecimal digits");
        let Some(digits) = text.strip_prefix("0x") else {
            let key = Key::from(text);
            return if key.to_string() == text { Ok(key) } else { Err(wrong()) };
        };
        let digits = digits.as_bytes();
        if digits.len() % 2 != 0 {
            return Err(wrong());
        }
        let nibble = |b: u8| char::from(b).to_digit(16).map(|d| d as u8).ok_or_else(wrong);
        let bytes: Result<Vec<u8>, String> =
            digits.chunks_exact(2).map(|pair| Ok(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect();
        Ok(Key::new(&bytes?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_order_is_of_bytes() {
        for bytes in [&b""[..], b"abc", b"0xab", b"a b", &[0, 255], &[7; 23], b"a-long-but-plain-word-of-more-than-22"]
        {
            let key = Key::new(bytes);
            assert_eq!(key.bytes(), bytes);
            assert_eq!(key.to_string().parse::<Key>().unwrap(), key, "{key}");
        }
        assert!(Key::from(2u64) < Key::from(256u64) && Key::from("a") < Key::from("aa"));
        assert!("0x1".parse::<Key>().is_err() && "0xzz".parse::<Key>().is_err() && "a/b".parse::<Key>().is_err());
    }
}
