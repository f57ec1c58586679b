//! Bytes: at most so many, in place ([`Bytes`]), or of any number, out of line (`Vec<u8>`).
//!
//! ```
//! use seriatim_catalog::{Bytes, Table};
//!
//! #[derive(seriatim_macros::Table)]
//! #[table(key(id), crate = "seriatim_catalog")]
//! struct Message {
//!     id: u64,
//!     signature: Bytes<72>,
//!     body: Vec<u8>,
//! }
//!
//! assert_eq!(Message::definition().columns[2].ty.to_string(), "bytes");
//! ```

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::{Misfit, Raw, Rules, without_room};
use crate::Value;
use crate::column::by_reference;
use crate::value::into_value;

/// A value is longer than its column has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Its length, in bytes.
    pub bytes: usize,
    /// The room, in bytes.
    pub max: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value has {} bytes; the column has room for {}", self.bytes, self.max)
    }
}

impl std::error::Error for TooLong {}

/// Copies bytes. Up to 32 are two copies of constant size, which may overlap: a call would take longer.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub(crate) const unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// The first `S` bytes and the last.
    #[inline(always)]
    const unsafe fn ends<const S: usize>(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise, and `S <= len`.
        unsafe {
            let (first, last) = (from.cast::<[u8; S]>().read(), from.add(len - S).cast::<[u8; S]>().read());
            to.cast::<[u8; S]>().write(first);
            to.add(len - S).cast::<[u8; S]>().write(last);
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match len {
            0 => {}
            1 => to.write(from.read()),
            2..4 => ends::<2>(from, to, len),
            4..8 => ends::<4>(from, to, len),
            8..16 => ends::<8>(from, to, len),
            16..=32 => ends::<16>(from, to, len),
            _ => from.copy_to_nonoverlapping(to, len),
        }
    }
}

/// At most `N` bytes, without allocation. A column of this type takes `N` bytes and a length in the row.
///
/// ```
/// use seriatim_catalog::Bytes;
/// let digest = Bytes::<32>::new(&[1, 2, 3])?;
/// assert_eq!(*digest, [1, 2, 3]);
/// # Ok::<(), seriatim_catalog::TooLong>(())
/// ```
// Invariant: bytes beyond `len` are zero, so that a row is a function of its values.
#[derive(Clone, Copy)]
pub struct Bytes<const N: usize> {
    len: u16,
    bytes: [u8; N],
}

impl<const N: usize> Bytes<N> {
    /// Most bytes. Checked when compiled: 1 to 65535.
    pub const MAX: usize = {
        assert!(N >= 1 && N <= u16::MAX as usize, "room for text or bytes is 1 to 65535 bytes");
        N
    };

    /// No bytes.
    pub const EMPTY: Bytes<N> = Bytes { len: 0, bytes: [0; N] };

    /// A copy of `from`.
    ///
    /// # Errors
    /// [`TooLong`] beyond `N` bytes.
    #[inline]
    pub const fn new(from: &[u8]) -> Result<Bytes<N>, TooLong> {
        if from.len() > Self::MAX {
            return Err(TooLong { bytes: from.len(), max: N });
        }
        let mut bytes = [0; N];
        // SAFETY: `bytes` has room, as was just checked, and is another value.
        unsafe { copy(from.as_ptr(), bytes.as_mut_ptr(), from.len()) };
        Ok(Bytes { len: from.len() as u16, bytes })
    }

    /// The bytes.
    #[inline]
    pub const fn as_slice(&self) -> &[u8] {
        self.bytes.split_at(self.len as usize).0
    }

    /// The length and all the room, zero beyond the length.
    #[inline]
    pub(crate) const fn parts(&self) -> (u16, &[u8; N]) {
        (self.len, &self.bytes)
    }

    /// From [`Bytes::parts`]; `bytes` is zero from `len` on, and `len` at most `N`.
    #[inline]
    pub(crate) const fn from_parts(len: u16, bytes: [u8; N]) -> Bytes<N> {
        assert!(len as usize <= N);
        Bytes { len, bytes }
    }
}

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Bytes<N> {
        Bytes::EMPTY
    }
}

impl<const N: usize> Deref for Bytes<N> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl<const N: usize> AsRef<[u8]> for Bytes<N> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> Borrow<[u8]> for Bytes<N> {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> TryFrom<&[u8]> for Bytes<N> {
    type Error = TooLong;
    fn try_from(from: &[u8]) -> Result<Bytes<N>, TooLong> {
        Bytes::new(from)
    }
}

impl<const N: usize> PartialEq for Bytes<N> {
    fn eq(&self, other: &Bytes<N>) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for Bytes<N> {}

impl<const N: usize> PartialEq<[u8]> for Bytes<N> {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialOrd for Bytes<N> {
    fn partial_cmp(&self, other: &Bytes<N>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for Bytes<N> {
    fn cmp(&self, other: &Bytes<N>) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<const N: usize> Hash for Bytes<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<const N: usize> fmt::Debug for Bytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

by_reference! {
    // A value that was in the row has room.
    [<const N: usize>] Bytes<N> => [u8], Bytes<N>, |value| Bytes::new(value).unwrap_or_default();
    [] Vec<u8> => [u8], [u8], |value| value.to_vec();
}

into_value! {
    [<const N: usize>] Bytes<N>, |value| Value::Bytes(value.to_vec());
    [] &[u8], |value| Value::Bytes(value.to_vec());
    [] Vec<u8>, |value| Value::Bytes(value);
}

pub(super) struct Octets {
    pub(super) max: Option<u16>,
}

impl Rules for Octets {
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            Some(max) => write!(f, "bytes({max})"),
            None => f.write_str("bytes"),
        }
    }

    fn problem(&self) -> Option<String> {
        self.max.and_then(without_room)
    }

    fn value(&self, stored: &[u8]) -> Value {
        Value::Bytes(stored.to_vec())
    }

    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        Raw::of_bytes(value)?.at_most(self.max)
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let bytes = of_hexadecimal(text).ok_or("write two hexadecimal digits for each byte")?;
        super::text::fits(&bytes, self.max).map(|()| Value::Bytes(bytes))
    }
}

/// The bytes that these digits are, two for each; PostgreSQL's `\\x` may be before them.
pub(crate) fn of_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x").unwrap_or(text).as_bytes();
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    pairs.iter().map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_are_copied_and_no_others() {
        let from: Vec<u8> = (1..=80).collect();
        for len in 0..=64 {
            let bytes = Bytes::<64>::new(&from[..len]).expect("it has room");
            assert_eq!(*bytes, from[..len]);
            assert!(bytes.bytes[len..].iter().all(|&byte| byte == 0), "{len}");
        }
    }
}
