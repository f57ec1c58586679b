//! Why bytes are no row.

use std::fmt;

use crate::OutOfMemory;

/// Bytes that were not encoded from a row, key or change of this table. Columns are numbered in order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// They end within a value.
    CutShort,
    /// There are bytes after the last value.
    Trailing,
    /// A number has more bytes than it needs, or more than 64 bits.
    Varint,
    /// Unused bits of a bitmap are set.
    Padding,
    /// A patch that changes nothing.
    Empty,
    /// A number does not fit its column.
    Number {
        /// The column.
        column: u16,
    },
    /// Text or bytes are longer than their column has room for.
    TooLong {
        /// The column.
        column: u16,
        /// Their length, in bytes.
        bytes: u64,
        /// The room, in bytes.
        max: u16,
    },
    /// Text is not UTF-8.
    NotUtf8 {
        /// The column.
        column: u16,
    },
    /// An amount for a column that is no sum.
    NotASum {
        /// The column in the bytes.
        column: u64,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::CutShort => f.write_str("the bytes end within a value"),
            Malformed::Trailing => f.write_str("there are bytes after the last value"),
            Malformed::Varint => f.write_str("a number is not in its shortest form or has more than 64 bits"),
            Malformed::Padding => f.write_str("unused bits of a bitmap are set"),
            Malformed::Empty => f.write_str("a patch changes no column"),
            Malformed::Number { column } => write!(f, "the number in column {column} does not fit its type"),
            Malformed::TooLong { column, bytes, max } => {
                write!(f, "the value in column {column} has {bytes} bytes; the column has room for {max}")
            }
            Malformed::NotUtf8 { column } => write!(f, "the text in column {column} is not UTF-8"),
            Malformed::NotASum { column } => write!(f, "an amount is added to column {column}, which is not for sums"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Why bytes did not become a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They differ from the expected bytes.
    Malformed(Malformed),
    /// Memory for a long text could not be had.
    OutOfMemory(OutOfMemory),
    /// The sum of a column and the amount added to it does not fit the column.
    Overflow {
        /// The column.
        column: u16,
    },
}

impl From<Malformed> for DecodeError {
    fn from(error: Malformed) -> DecodeError {
        DecodeError::Malformed(error)
    }
}

impl From<OutOfMemory> for DecodeError {
    fn from(error: OutOfMemory) -> DecodeError {
        DecodeError::OutOfMemory(error)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Malformed(error) => error.fmt(f),
            DecodeError::OutOfMemory(error) => error.fmt(f),
            DecodeError::Overflow { column } => write!(f, "what is added to column {column} takes it out of its range"),
        }
    }
}

impl std::error::Error for DecodeError {}
