//! Values whose type is known at run time only: arguments and results of procedures called by name, and what the interpreter
//! computes with.

use std::fmt;
use std::sync::Arc;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// A truth value.
    Bool(bool),
    /// An integer. Without a type: a literal, which takes the type of what it meets.
    Integer(i128, Option<IntegerType>),
    /// A float.
    Float(f64),
    /// A fixed-point number: `units` / 10^`scale`.
    Decimal {
        /// The number without its point.
        units: i64,
        /// Digits after the point.
        scale: u8,
    },
    /// Microseconds since 1970.
    Timestamp(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Perhaps a value.
    Option(Option<Box<Datum>>),
    /// A tuple; the empty one is unit.
    Tuple(Vec<Datum>),
    /// Values of one type.
    List(Vec<Datum>),
    /// A struct, a variant of an enum (its name; positional fields are named "0", "1", …), or a row (the table's name).
    Record {
        /// Its name.
        name: Arc<str>,
        /// Its fields in order.
        fields: Vec<(Arc<str>, Datum)>,
    },
}

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IntegerType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Usize,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvaluationError {
    /// A number left the range of its type, or a division by zero.
    Overflow,
    /// A value is not of the type needed: a mistake in the procedure or the arguments.
    Type(String),
    /// An element beyond the end of a list.
    OutOfBounds {
        /// The index.
        index: usize,
        /// Elements there are.
        length: usize,
    },
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvaluationError::Overflow => f.write_str("a number leaves the range of its type"),
            EvaluationError::Type(problem) => f.write_str(problem),
            EvaluationError::OutOfBounds { index, length } => {
                write!(f, "element {index} of a list of {length}")
            }
        }
    }
}

impl std::error::Error for EvaluationError {}

/// A type that arguments, results and values in a procedure can have. Derive it for structs and enums.
pub trait Data: Sized {
    /// The value as a datum.
    fn to_datum(&self) -> Datum;

    /// The datum as a value.
    ///
    /// # Errors
    /// [`EvaluationError::Type`], saying what was given and what would be right.
    fn from_datum(datum: &Datum) -> Result<Self, EvaluationError>;
}
