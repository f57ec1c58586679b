//! UTF-8 text: of bounded length, in place ([`Text`]), or of any length, out of line (`String`).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::bytes::copy;
use super::{Misfit, Raw, Rules, without_room};
use crate::column::by_reference;
use crate::value::into_value;
use crate::{Bytes, TooLong, Value};

/// UTF-8 text of at most `N` bytes, without allocation. A column of this type takes `N` bytes and a length in the row.
/// It dereferences to `str` and compares, hashes and prints as one.
///
/// ```
/// use seriatim_catalog::Text;
/// let name: Text<16> = Text::new("BARBARBAR")?;
/// assert_eq!(name, *"BARBARBAR");
/// assert_eq!(Text::<4>::new("too long").unwrap_err().to_string(), "the value has 8 bytes; the column has room for 4");
/// const GOOD: Text<2> = Text::literal("GC");
/// # Ok::<(), seriatim_catalog::TooLong>(())
/// ```
// Invariant: the bytes up to the length are UTF-8.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<const N: usize>(Bytes<N>);

impl<const N: usize> Text<N> {
    /// The empty text.
    pub const EMPTY: Text<N> = Text(Bytes::EMPTY);

    /// A copy of `text`.
    ///
    /// # Errors
    /// [`TooLong`] beyond `N` bytes.
    #[inline]
    pub const fn new(text: &str) -> Result<Text<N>, TooLong> {
        match Bytes::new(text.as_bytes()) {
            Ok(bytes) => Ok(Text(bytes)),
            Err(error) => Err(error),
        }
    }

    /// A copy of a literal, for constants.
    ///
    /// # Panics
    /// If `text` has more than `N` bytes; in a constant, that is a compile error.
    pub const fn literal(text: &'static str) -> Text<N> {
        match Self::new(text) {
            Ok(text) => text,
            Err(_) => panic!("the literal is longer than the text has room for"),
        }
    }

    /// As much of `text` as there is room for, cut between characters.
    #[inline]
    pub fn truncated(text: &str) -> Text<N> {
        Self::new(text).unwrap_or_else(|_| Self::cut(text))
    }

    #[cold]
    fn cut(text: &str) -> Text<N> {
        let fits = &text[..text.floor_char_boundary(N)];
        // `fits` has at most N bytes.
        Self::new(fits).unwrap_or_default()
    }

    /// The text.
    #[inline]
    pub const fn as_str(&self) -> &str {
        // SAFETY: the type's invariant; every constructor copies a whole `str` and nothing changes it but
        // `append`, which adds one.
        unsafe { std::str::from_utf8_unchecked(self.0.as_slice()) }
    }

    /// Adds `more` at the end, or nothing.
    ///
    /// # Errors
    /// [`TooLong`] if both together have more than `N` bytes.
    pub fn append(&mut self, more: &str) -> Result<(), TooLong> {
        let (len, mut bytes) = (self.0.len(), *self.0.parts().1);
        let total = len + more.len();
        match bytes.get_mut(len..total) {
            // SAFETY: the room has as many bytes, and is in a value of its own.
            Some(room) => unsafe { copy(more.as_ptr(), room.as_mut_ptr(), more.len()) },
            None => return Err(TooLong { bytes: total, max: N }),
        }
        self.0 = Bytes::from_parts(total as u16, bytes);
        Ok(())
    }

    pub(crate) const fn bytes(&self) -> &Bytes<N> {
        &self.0
    }
}

/// Formatting into a text: `write!(text, "{}", n)`. Text that does not fit is an error and leaves what was
/// there before.
impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text).map_err(|_| fmt::Error)
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;
    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> AsRef<str> for Text<N> {
    fn as_ref(&self) -> &str {
        self
    }
}

impl<const N: usize> Borrow<str> for Text<N> {
    fn borrow(&self) -> &str {
        self
    }
}

impl<const N: usize> TryFrom<&str> for Text<N> {
    type Error = TooLong;
    fn try_from(text: &str) -> Result<Text<N>, TooLong> {
        Text::new(text)
    }
}

impl<const N: usize> TryFrom<String> for Text<N> {
    type Error = TooLong;
    fn try_from(text: String) -> Result<Text<N>, TooLong> {
        Text::new(&text)
    }
}

impl<const N: usize> std::str::FromStr for Text<N> {
    type Err = TooLong;
    fn from_str(text: &str) -> Result<Text<N>, TooLong> {
        Text::new(text)
    }
}

impl<const N: usize> From<Text<N>> for String {
    fn from(text: Text<N>) -> String {
        text.as_str().to_owned()
    }
}

impl<const N: usize> PartialEq<str> for Text<N> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<const N: usize> PartialEq<&str> for Text<N> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<const N: usize> PartialOrd<str> for Text<N> {
    fn partial_cmp(&self, other: &str) -> Option<Ordering> {
        Some(self.as_str().cmp(other))
    }
}

impl<const N: usize> Hash for Text<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

by_reference! {
    // A value that was in the row has room.
    [<const N: usize>] Text<N> => str, Text<N>, |value| Text::new(value).unwrap_or_default();
    [] String => str, str, |value| value.to_owned();
}

into_value! {
    [<const N: usize>] Text<N>, |value| Value::Text(value.into());
    [] &str, |value| Value::Text(value.to_owned());
    [] String, |value| Value::Text(value);
}

pub(super) struct Utf8 {
    pub(super) max: Option<u16>,
}

impl Rules for Utf8 {
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max {
            Some(max) => write!(f, "text({max})"),
            None => f.write_str("text"),
        }
    }

    fn problem(&self) -> Option<String> {
        self.max.and_then(without_room)
    }

    fn value(&self, stored: &[u8]) -> Value {
        // Only whole texts are stored.
        Value::Text(String::from_utf8_lossy(stored).into_owned())
    }

    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        let Value::Text(text) = value else { return Err(Misfit::Other) };
        Raw::Borrowed(text.as_bytes()).at_most(self.max)
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        fits(text.as_bytes(), self.max).map(|()| Value::Text(text.to_owned()))
    }
}

/// Whether there is room for these bytes; if not, how much there is.
pub(super) fn fits(bytes: &[u8], max: Option<u16>) -> Result<(), String> {
    match max {
        Some(max) if bytes.len() > usize::from(max) => Err(TooLong { bytes: bytes.len(), max: max.into() }.to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn truncation_keeps_characters_whole() {
        assert_eq!(Text::<4>::truncated("aéé"), *"aé");
        assert_eq!(Text::<5>::truncated("aéé"), *"aéé");
        assert_eq!(Text::<1>::truncated("é"), *"");
    }

    #[test]
    fn appending_is_all_or_nothing() {
        let mut text = Text::<6>::literal("abc");
        assert_eq!(text.append("defg"), Err(TooLong { bytes: 7, max: 6 }));
        assert_eq!(text, *"abc");
        assert!(write!(text, "{}", 12).is_ok());
        assert_eq!(text, *"abc12");
    }
}
