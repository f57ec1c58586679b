//! The types of columns. Each is a file of this folder and a line of the list below.
//!
//! A type's file has the Rust type, and how that is stored ([`Column`](crate::Column)). It also has the type's
//! [`Rules`]: what is known where only the schema is known. Its line says which [`Form`] its values have. Layouts, keys
//! and the log know forms only. So a new type needs no change there, and a program that replays a log needs no Rust
//! type.

mod array;
mod boolean;
pub(crate) mod bytes;
mod character;
pub(crate) mod date;
pub(crate) mod date_time;
pub(crate) mod decimal;
pub(crate) mod enumeration;
mod float;
pub(crate) mod integer;
pub(crate) mod interval;
pub(crate) mod numeric;
pub(crate) mod rules;
pub(crate) mod scalar;
#[cfg(feature = "serde")]
mod serde_text;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod timestamp;
mod uuid;

use std::fmt;

pub use self::rules::ParseError;
pub(crate) use self::rules::{Misfit, Raw, Rules, named, without_room};
use crate::layout::length_bytes;

macro_rules! column_types {
    ($(
        $(#[$about:meta])*
        $name:ident $({ $($(#[$says:meta])* $field:ident: $of:ty),+ })? => $form:expr, $rules:expr;
    )+) => {
        /// The type of a column's values, as laid out in a row and ordered in a key. Manifests have these names: a
        /// new one needs a new format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
        pub enum ColumnType {$(
            $(#[$about])*
            $name $({ $($(#[$says])* $field: $of),+ })?,
        )+}

        impl ColumnType {
            /// How its values lie in rows.
            #[allow(unused_variables, reason = "few forms have a parameter")]
            #[inline(always)]
            pub(crate) const fn form(self) -> Form {
                match self {$(
                    ColumnType::$name $({ $($field),+ })? => $form,
                )+}
            }

            /// Applies its rules.
            #[inline]
            pub(crate) fn rules<R>(self, apply: impl FnOnce(&dyn Rules) -> R) -> R {
                match self {$(
                    ColumnType::$name $({ $($field),+ })? => apply(&$rules),
                )+}
            }
        }
    };
}

column_types! {
    /// A truth value, 1 byte.
    Bool => Form::Unsigned { bytes: 1 }, boolean::Boolean;
    /// A signed integer, 1 byte.
    I8 => Form::Signed { bytes: 1 }, integer::Integer(integer::IntegerType::I8);
    /// A signed integer, 2 bytes.
    I16 => Form::Signed { bytes: 2 }, integer::Integer(integer::IntegerType::I16);
    /// A signed integer, 4 bytes.
    I32 => Form::Signed { bytes: 4 }, integer::Integer(integer::IntegerType::I32);
    /// A signed integer, 8 bytes.
    I64 => Form::Signed { bytes: 8 }, integer::Integer(integer::IntegerType::I64);
    /// An unsigned integer, 1 byte.
    U8 => Form::Unsigned { bytes: 1 }, integer::Integer(integer::IntegerType::U8);
    /// An unsigned integer, 2 bytes.
    U16 => Form::Unsigned { bytes: 2 }, integer::Integer(integer::IntegerType::U16);
    /// An unsigned integer, 4 bytes.
    U32 => Form::Unsigned { bytes: 4 }, integer::Integer(integer::IntegerType::U32);
    /// An unsigned integer, 8 bytes.
    U64 => Form::Unsigned { bytes: 8 }, integer::Integer(integer::IntegerType::U64);
    /// A binary floating-point number, 8 bytes. Keys order it by value, and have one zero and one NaN.
    F64 => Form::Float { bytes: 8 }, float::Double;
    /// A fixed-point number of 8 bytes: an `i64` counting units of 10^-scale.
    Decimal {
        /// Digits after the point, at most 18.
        scale: u8
    } => Form::Signed { bytes: 8 }, decimal::Units { scale };
    /// Microseconds since 1970-01-01 UTC, 8 bytes, signed: what SQL calls a timestamp with time zone.
    Timestamp => Form::Signed { bytes: 8 }, timestamp::Instant;
    /// UTF-8 text in place: its length (1 byte up to a maximum of 255, else 2), then room for `max` bytes.
    Text {
        /// Longest text, in bytes.
        max: u16
    } => Form::InPlace { max, is_utf8: true }, text::Utf8 { max: Some(max) };
    /// UTF-8 text of any length, out of line: the row holds 8 bytes.
    LongText => Form::OutOfLine { is_utf8: true }, text::Utf8 { max: None };
    /// Bytes in place, as [`ColumnType::Text`].
    Bytes {
        /// Most bytes.
        max: u16
    } => Form::InPlace { max, is_utf8: false }, bytes::Octets { max: Some(max) };
    /// Bytes of any number, out of line: the row holds 8 bytes.
    LongBytes => Form::OutOfLine { is_utf8: false }, bytes::Octets { max: None };
    /// Bytes in place, always as many, without a length.
    ByteArray {
        /// How many.
        bytes: u16
    } => Form::Fixed { bytes, key: bytes }, array::Array { bytes };
    /// A signed integer, 16 bytes.
    I128 => Form::Signed { bytes: 16 }, integer::Signed;
    /// An unsigned integer, 16 bytes.
    U128 => Form::Unsigned { bytes: 16 }, integer::Unsigned;
    /// A binary floating-point number, 4 bytes. Keys order it as an [`ColumnType::F64`].
    F32 => Form::Float { bytes: 4 }, float::Single;
    /// A decimal number of 38 digits with its own number of digits after the point, 17 bytes. Keys order it by value.
    Numeric => Form::Fixed { bytes: 17, key: 17 }, numeric::Digits;
    /// A character: a Unicode scalar value, 4 bytes.
    Char => Form::Unsigned { bytes: 4 }, character::Character;
    /// A universally unique identifier, 16 bytes.
    Uuid => Form::Fixed { bytes: 16, key: 16 }, uuid::Identifier;
    /// Days since 1970-01-01, 4 bytes, signed.
    Date => Form::Signed { bytes: 4 }, date::Day;
    /// Microseconds since midnight, 8 bytes.
    Time => Form::Signed { bytes: 8 }, time::TimeOfDay;
    /// Microseconds since 1970-01-01T00:00 in no time zone, 8 bytes, signed: what SQL calls a timestamp without time
    /// zone.
    DateTime => Form::Signed { bytes: 8 }, date_time::DateAndTime;
    /// Months (4 bytes), days (4) and microseconds (8), each with a sign. Keys order it with 30 days in a month.
    Interval => Form::Fixed { bytes: 16, key: 16 }, interval::Span;
    /// A variant of an enum: its discriminant, 2 bytes.
    Enum {
        /// The variants.
        variants: enumeration::Variants
    } => Form::Unsigned { bytes: 2 }, enumeration::Enumeration { variants };
}

/// Applies a macro to the Rust types of the list above whose values are [`Scalar`](crate::Scalar)s. What procedures
/// need of them is implemented for all at once.
#[doc(hidden)]
#[macro_export]
macro_rules! for_scalars {
    ($apply:ident) => {
        $apply! {
            f32 i128 u128 char $crate::Uuid $crate::Numeric $crate::Date $crate::Time $crate::DateTime $crate::Interval
        }
    };
}

/// How the values of a type lie in a row, and what their key bytes are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An integer of 1, 2, 4, 8 or 16 bytes in the machine's order; in keys big-endian.
    Unsigned { bytes: u16 },
    /// The same with a sign; in keys with the sign bit flipped.
    Signed { bytes: u16 },
    /// An IEEE 754 number of 4 or 8 bytes; keys have `order::float_bits` of it.
    Float { bytes: u16 },
    /// So many bytes of any content. Its key bytes, `key` of them, are the type's own business.
    Fixed { bytes: u16, key: u16 },
    /// A length, then room for `max` bytes; in keys escaped.
    InPlace { max: u16, is_utf8: bool },
    /// The address of an out-of-line value; in keys escaped.
    OutOfLine { is_utf8: bool },
}

impl Form {
    /// Whether both are the same.
    pub(crate) const fn is(self, other: Form) -> bool {
        match (self, other) {
            (Form::Unsigned { bytes }, Form::Unsigned { bytes: other })
            | (Form::Signed { bytes }, Form::Signed { bytes: other })
            | (Form::Float { bytes }, Form::Float { bytes: other })
            // Its key bytes are made from the bytes by the type, whatever Rust type they were stored from.
            | (Form::Fixed { bytes, .. }, Form::Fixed { bytes: other, .. }) => bytes == other,
            (Form::InPlace { max, is_utf8 }, Form::InPlace { max: other, is_utf8: utf8 }) => {
                max == other && is_utf8 == utf8
            }
            (Form::OutOfLine { is_utf8 }, Form::OutOfLine { is_utf8: utf8 }) => is_utf8 == utf8,
            _ => false,
        }
    }
}

impl ColumnType {
    /// Bytes of a value in a row.
    pub const fn row_bytes(self) -> u32 {
        match self.form() {
            Form::Unsigned { bytes } | Form::Signed { bytes } | Form::Float { bytes } | Form::Fixed { bytes, .. } => {
                bytes as u32
            }
            Form::InPlace { max, .. } => length_bytes(max as usize) as u32 + max as u32,
            Form::OutOfLine { .. } => 8,
        }
    }

    /// Bytes of a value in a key, without the NULL byte; `None` for text and bytes whose length varies.
    pub const fn key_bytes(self) -> Option<u32> {
        match self.form() {
            Form::Unsigned { bytes } | Form::Signed { bytes } | Form::Float { bytes } => Some(bytes as u32),
            Form::Fixed { key, .. } => Some(key as u32),
            Form::InPlace { .. } | Form::OutOfLine { .. } => None,
        }
    }

    /// Whether values are of any length and lie outside the row.
    pub const fn is_out_of_line(self) -> bool {
        matches!(self.form(), Form::OutOfLine { .. })
    }

    /// Whether different stored values of this type can be the same key, as the two zeros of a float are, and
    /// numbers with more digits.
    pub(crate) const fn has_synonyms(self) -> bool {
        matches!(self.form(), Form::Float { .. }) || matches!(self, ColumnType::Numeric | ColumnType::Interval)
    }

    /// Whether an amount can be added to a column of this type without reading it: of integers of at most 64 bits and
    /// of decimals.
    pub const fn is_sum(self) -> bool {
        matches!(self, ColumnType::Decimal { .. }) || integer::IntegerType::of_column(self).is_some()
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules(|rules| rules.name(f))
    }
}
