//! Values whose type is known at run time only: arguments and results of procedures called by name, and the
//! values of the interpreter.

use std::fmt;
use std::sync::Arc;

use seriatim_catalog::Timestamp;

use crate::Pack;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// A truth value.
    Bool(bool),
    /// An integer. Without a type: a literal, which takes the type of the value with which it is combined.
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
    /// An optional value.
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

impl IntegerType {
    /// All of them.
    pub const ALL: [IntegerType; 9] = [
        IntegerType::I8,
        IntegerType::I16,
        IntegerType::I32,
        IntegerType::I64,
        IntegerType::U8,
        IntegerType::U16,
        IntegerType::U32,
        IntegerType::U64,
        IntegerType::Usize,
    ];

    /// Its name in Rust.
    pub const fn name(self) -> &'static str {
        match self {
            IntegerType::I8 => "i8",
            IntegerType::I16 => "i16",
            IntegerType::I32 => "i32",
            IntegerType::I64 => "i64",
            IntegerType::U8 => "u8",
            IntegerType::U16 => "u16",
            IntegerType::U32 => "u32",
            IntegerType::U64 => "u64",
            IntegerType::Usize => "usize",
        }
    }

    /// The type of this name in Rust.
    pub fn by_name(name: &str) -> Option<IntegerType> {
        IntegerType::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// Smallest and largest value.
    pub const fn range(self) -> (i128, i128) {
        match self {
            IntegerType::I8 => (i8::MIN as i128, i8::MAX as i128),
            IntegerType::I16 => (i16::MIN as i128, i16::MAX as i128),
            IntegerType::I32 => (i32::MIN as i128, i32::MAX as i128),
            IntegerType::I64 => (i64::MIN as i128, i64::MAX as i128),
            IntegerType::U8 => (0, u8::MAX as i128),
            IntegerType::U16 => (0, u16::MAX as i128),
            IntegerType::U32 => (0, u32::MAX as i128),
            IntegerType::U64 => (0, u64::MAX as i128),
            IntegerType::Usize => (0, usize::MAX as i128),
        }
    }

    /// Whether it has this value.
    pub const fn has(self, number: i128) -> bool {
        let (least, greatest) = self.range();
        least <= number && number <= greatest
    }
}

impl fmt::Display for IntegerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Datum {
    /// The value of statements without one: the empty tuple.
    pub const UNIT: Datum = Datum::Tuple(Vec::new());

    /// `None`.
    pub const NONE: Datum = Datum::Option(None);

    /// `Some` of it.
    pub fn some(self) -> Datum {
        Datum::Option(Some(Box::new(self)))
    }

    /// The kind of value, in words, for messages.
    pub fn kind(&self) -> String {
        match self {
            Datum::Bool(_) => "a bool".to_owned(),
            Datum::Integer(number, None) => format!("the integer {number}"),
            Datum::Integer(_, Some(ty)) if ty.range().0 == 0 => format!("a {ty}"),
            Datum::Integer(_, Some(ty)) => format!("an {ty}"),
            Datum::Float(_) => "an f64".to_owned(),
            Datum::Decimal { scale, .. } => format!("a Decimal<{scale}>"),
            Datum::Timestamp(_) => "a Timestamp".to_owned(),
            Datum::Text(_) => "a text".to_owned(),
            Datum::Bytes(_) => "bytes".to_owned(),
            Datum::Option(None) => "None".to_owned(),
            Datum::Option(Some(_)) => "Some".to_owned(),
            Datum::Tuple(values) if values.is_empty() => "()".to_owned(),
            Datum::Tuple(values) => format!("a tuple of {}", values.len()),
            Datum::List(values) => format!("a list of {}", values.len()),
            Datum::Record { name, .. } => format!("a `{name}`"),
        }
    }
}

/// As in Rust's source, except that a decimal shows its digits and a timestamp its date.
impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Bool(value) => write!(f, "{value}"),
            Datum::Integer(number, ty) => write!(f, "{number}{}", ty.map_or("", IntegerType::name)),
            Datum::Float(value) => write!(f, "{value:?}"),
            Datum::Decimal { units, scale } => {
                let sign = if *units < 0 { "-" } else { "" };
                let scale = usize::from(*scale);
                let digits = format!("{:0width$}", units.unsigned_abs(), width = scale + 1);
                let (whole, fraction) = digits.split_at(digits.len() - scale);
                write!(f, "{sign}{whole}{}{fraction}", if scale == 0 { "" } else { "." })
            }
            Datum::Timestamp(microseconds) => write!(f, "{}", Timestamp::from_microseconds(*microseconds)),
            Datum::Text(text) => write!(f, "{text:?}"),
            Datum::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            Datum::Option(None) => f.write_str("None"),
            Datum::Option(Some(value)) => write!(f, "Some({value})"),
            Datum::Tuple(values) => {
                f.write_str("(")?;
                separated(f, values)?;
                f.write_str(if values.len() == 1 { ",)" } else { ")" })
            }
            Datum::List(values) => {
                f.write_str("[")?;
                separated(f, values)?;
                f.write_str("]")
            }
            Datum::Record { name, fields } if fields.is_empty() => f.write_str(name),
            Datum::Record { name, fields } => {
                write!(f, "{name} {{ ")?;
                for (i, (field, value)) in fields.iter().enumerate() {
                    write!(f, "{}{field}: {value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// The items with commas between them.
pub(crate) fn separated<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
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

impl EvaluationError {
    /// The error for a value of another type than `wanted`.
    pub fn expected(wanted: impl fmt::Display, found: &Datum) -> EvaluationError {
        EvaluationError::Type(format!("expected {wanted}, found {}", found.kind()))
    }
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
///
/// `from_datum(&x.to_datum())` equals `x`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of values in procedures",
    label = "not `Data`",
    note = "a struct or enum can `#[derive(Data)]`; \
            scalars of columns, Option, Vec, arrays and tuples of them are `Data`"
)]
pub trait Data: Pack {
    /// The value as a datum.
    fn to_datum(&self) -> Datum;

    /// The datum as a value.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] with the given and the required type; [`EvaluationError::Overflow`] for an
    /// integer without a type that leaves the range of this one.
    fn from_datum(datum: &Datum) -> Result<Self, EvaluationError>;

    /// The part at this path of field names, each inside the previous one, as for [`Datum::field`]; `None` if
    /// there is none.
    fn part(&self, path: &[Arc<str>]) -> Option<Datum> {
        path.iter().try_fold(self.to_datum(), |datum, name| datum.field(name).ok().cloned())
    }
}
