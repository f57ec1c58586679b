//! What is known of a type where only the schema is known: its values as [`Value`]s, as text, and in keys.

use std::fmt;
use std::ops::Deref;

use crate::order::{float_bits, float_of_bits};
use crate::types::Form;
use crate::{ColumnType, IntegerType, KeyWriter, Value};

/// The rules of one type. Stored bytes are those at a value's place in a row, or, where the length varies, the text or
/// bytes alone.
pub(crate) trait Rules {
    /// Writes the type's name, as messages have it.
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Why no column can have the type with these parameters, if so: what such a column "has" or "is".
    fn problem(&self) -> Option<String> {
        None
    }

    /// The value that these stored bytes are.
    fn value(&self, stored: &[u8]) -> Value;

    /// The stored bytes of a value.
    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit>;

    /// The stored bytes of a value of another type that is also one of this.
    fn converted(&self, _value: &Value) -> Option<Raw<'static>> {
        None
    }

    /// A [`Scalar`](crate::Scalar) as text.
    fn show(&self, stored: &[u8]) -> String {
        self.value(stored).to_string()
    }

    /// The value that a text is. [`Value::to_text`] of it is that text, or another spelling of the same value.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn parse(&self, text: &str) -> Result<Value, String>;

    /// Whether some bytes of the right form are no value. Text is checked by its form.
    fn is_checked(&self) -> bool {
        false
    }

    /// Whether bytes of the right form, as a log has them, are a value.
    fn is_valid(&self, _stored: &[u8]) -> bool {
        true
    }

    /// Appends the key bytes of stored bytes of [`Form::Fixed`].
    fn write_key(&self, stored: &[u8], key: &mut KeyWriter) {
        key.bytes(stored);
    }

    /// The stored bytes whose key bytes these are. `None` if no value has them.
    fn of_key(&self, key: &[u8]) -> Option<Vec<u8>> {
        Some(key.to_vec())
    }
}

/// Why a value does not fit a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It is of another type, or out of range.
    Other,
    /// It has so many bytes, for which there is no room.
    TooLong(usize, usize),
}

/// Stored bytes: copied in place, if they are few.
#[derive(Debug)]
pub(crate) enum Raw<'v> {
    Copied([u8; Raw::BYTES_MAX], u8),
    Borrowed(&'v [u8]),
    Owned(Vec<u8>),
}

impl<'v> Raw<'v> {
    /// Most bytes of a copy.
    pub(crate) const BYTES_MAX: usize = 24;

    /// A copy of at most [`Raw::BYTES_MAX`] bytes.
    pub(crate) fn copied(bytes: &[u8]) -> Raw<'static> {
        let mut copy = [0; Raw::BYTES_MAX];
        copy[..bytes.len()].copy_from_slice(bytes);
        Raw::Copied(copy, bytes.len() as u8)
    }

    /// The low bytes of a number, in the machine's order.
    pub(crate) fn number(number: u128, bytes: usize) -> Raw<'static> {
        let all = number.to_ne_bytes();
        Raw::copied(if cfg!(target_endian = "little") { &all[..bytes] } else { &all[16 - bytes..] })
    }

    /// The bytes of a value, also of a list of them: `Vec<u8>` and `[u8; N]` are lists in procedures.
    pub(crate) fn of_bytes(value: &'v Value) -> Result<Raw<'v>, Misfit> {
        let byte = |element: &Value| match *element {
            Value::Integer(number, None | Some(IntegerType::U8)) => u8::try_from(number).ok(),
            _ => None,
        };
        match value {
            Value::Bytes(bytes) => Ok(Raw::Borrowed(bytes)),
            Value::List(list) => list.iter().map(byte).collect::<Option<_>>().map(Raw::Owned).ok_or(Misfit::Other),
            _ => Err(Misfit::Other),
        }
    }

    /// The same text or bytes, if there may be so many.
    pub(crate) fn at_most(self, max: Option<u16>) -> Result<Raw<'v>, Misfit> {
        match max {
            Some(max) if self.len() > usize::from(max) => Err(Misfit::TooLong(self.len(), max.into())),
            _ => Ok(self),
        }
    }
}

impl Deref for Raw<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Raw::Copied(bytes, len) => &bytes[..usize::from(*len)],
            Raw::Borrowed(bytes) => bytes,
            Raw::Owned(bytes) => bytes,
        }
    }
}

/// A stored number without a sign.
pub(crate) fn unsigned(stored: &[u8]) -> u128 {
    let mut all = [0; 16];
    let from = if cfg!(target_endian = "little") { 0 } else { 16 - stored.len() };
    all[from..from + stored.len()].copy_from_slice(stored);
    u128::from_ne_bytes(all)
}

/// A stored number with a sign.
pub(crate) fn signed(stored: &[u8]) -> i128 {
    let unused = 128 - 8 * stored.len() as u32;
    (unsigned(stored) as i128).unbounded_shl(unused) >> unused.min(127)
}

/// The problem of a type whose values have no room.
pub(crate) fn without_room(max: u16) -> Option<String> {
    (max == 0).then(|| "has no room; its maximum must be at least 1".to_owned())
}

/// Rules whose values are shown by what `$shown` writes of them.
macro_rules! named {
    ($name:literal) => {
        fn name(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str($name)
        }
    };
}
pub(crate) use named;

impl ColumnType {
    /// Why no column can have the type with its parameters, if so.
    pub(crate) fn problem(self) -> Option<String> {
        self.rules(|rules| rules.problem())
    }

    /// Appends the key bytes of stored bytes.
    pub(crate) fn write_key(self, stored: &[u8], key: &mut KeyWriter) {
        match self.form() {
            Form::Unsigned { bytes } => key.wide(unsigned(stored), bytes.into()),
            Form::Signed { bytes } => key.wide(unsigned(stored) ^ 1 << (8 * bytes - 1), bytes.into()),
            Form::Float { bytes } => key.number(float_bits(unsigned(stored) as u64, bytes.into()), bytes.into()),
            Form::Fixed { .. } => self.rules(|rules| rules.write_key(stored, key)),
            Form::InPlace { .. } | Form::OutOfLine { .. } => key.escaped(stored),
        }
    }

    /// The value whose key bytes these are, without an escape; `None` if there is none.
    pub(crate) fn of_key(self, key: &[u8]) -> Option<Value> {
        let bits = || key.iter().fold(0, |bits, &byte| bits << 8 | u128::from(byte));
        let stored = match self.form() {
            Form::Unsigned { .. } => Raw::number(bits(), key.len()).to_vec(),
            Form::Signed { bytes } => Raw::number(bits() ^ 1 << (8 * bytes - 1), key.len()).to_vec(),
            Form::Float { bytes } => Raw::number(float_of_bits(bits() as u64, bytes.into()).into(), key.len()).to_vec(),
            Form::Fixed { .. } => self.rules(|rules| rules.of_key(key))?,
            Form::OutOfLine { is_utf8 } | Form::InPlace { is_utf8, .. } => {
                if is_utf8 {
                    std::str::from_utf8(key).ok()?;
                }
                key.to_vec()
            }
        };
        self.rules(|rules| rules.is_valid(&stored).then(|| rules.value(&stored)))
    }

    /// The value of this type that a text is: as [`Value::to_text`] writes it, and in other usual spellings.
    ///
    /// ```
    /// use seriatim_catalog::{ColumnType, Value};
    /// assert_eq!(ColumnType::I32.parse("-7")?, Value::from(-7i32));
    /// assert_eq!(ColumnType::Decimal { scale: 2 }.parse("1.5")?.to_text().as_deref(), Some("1.50"));
    /// let error = ColumnType::U8.parse("300").unwrap_err();
    /// assert_eq!(error.to_string(), "\"300\" is no u8: write an integer from 0 to 255");
    /// # Ok::<(), seriatim_catalog::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// [`ParseError`]: what the text is, and what would be right.
    pub fn parse(self, text: &str) -> Result<Value, ParseError> {
        self.rules(|rules| rules.parse(text)).map_err(|problem| ParseError {
            ty: self,
            text: text[..text.floor_char_boundary(ParseError::TEXT_MAX)].to_owned(),
            problem,
        })
    }
}

/// A text is no value of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The type.
    pub ty: ColumnType,
    /// The text, or its beginning.
    pub text: String,
    /// What would be right.
    pub problem: String,
}

impl ParseError {
    /// Most bytes of the text that are kept.
    const TEXT_MAX: usize = 80;
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no {}: {}", self.text, self.ty, self.problem)
    }
}

impl std::error::Error for ParseError {}
