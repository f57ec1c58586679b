//! Values whose type is known at run time only: of columns, of arguments and results of procedures called by
//! name, and of the interpreter.
//!
//! A column takes a value of its type, or an integer of any type in its range. A nullable column takes such a value
//! alone or in an `Option`. A value read from a column has exactly the column's type, in an `Option` if it is nullable.

use std::fmt;
use std::sync::Arc;

use crate::types::{Misfit, Raw};
use crate::{
    ColumnDef, ColumnLocation, ColumnType, IntegerType, KeyWriter, OutOfMemory, PartitionValue, RowRef, RowWriter,
    Scalar, Timestamp, TooLong,
};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
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
    /// Text, short or long.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A value of one of the other types of columns.
    Scalar(Scalar),
    /// An optional value; `None` in a column is NULL.
    Option(Option<Box<Value>>),
    /// A tuple; the empty one is unit.
    Tuple(Vec<Value>),
    /// Values of one type.
    List(Vec<Value>),
    /// A struct, a variant of an enum (its name; positional fields are named "0", "1", …), or a row (the table's name).
    Record {
        /// Its name.
        name: Arc<str>,
        /// Its fields in order.
        fields: Vec<(Arc<str>, Value)>,
    },
}

/// `From` for values: `Type, |value| Value`.
macro_rules! into_value {
    ($([$($parameters:tt)*] $type:ty, |$value:ident| $made:expr;)+) => {$(
        impl $($parameters)* From<$type> for $crate::Value {
            fn from($value: $type) -> $crate::Value {
                $made
            }
        }
    )+};
}
pub(crate) use into_value;

into_value! {
    [<T: Into<Value>>] Option<T>, |value| Value::Option(value.map(|value| Box::new(value.into())));
}

/// A value does not fit its column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// It is of another type, out of range, or too long.
    Unfit {
        /// The column.
        column: String,
        /// The given value, and what would be valid.
        problem: String,
    },
    /// There are too many or too few.
    Count(String),
    /// Memory for a long text could not be had.
    OutOfMemory(OutOfMemory),
}

impl ValueError {
    /// `given` values where `wanted` are.
    pub fn count(given: usize, wanted: usize) -> ValueError {
        ValueError::Count(format!("{given} values given where there are {wanted} columns"))
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Unfit { column, problem } => write!(f, "column `{column}`: {problem}"),
            ValueError::Count(problem) => f.write_str(problem),
            ValueError::OutOfMemory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ValueError {}

impl From<OutOfMemory> for ValueError {
    fn from(error: OutOfMemory) -> ValueError {
        ValueError::OutOfMemory(error)
    }
}

/// As in Rust's source, except that a decimal shows its digits and a timestamp its date.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Integer(number, ty) => write!(f, "{number}{}", ty.map_or("", IntegerType::name)),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Decimal { units, scale } => {
                let sign = if *units < 0 { "-" } else { "" };
                let scale = usize::from(*scale);
                let digits = format!("{:0width$}", units.unsigned_abs(), width = scale + 1);
                let (whole, fraction) = digits.split_at(digits.len() - scale);
                write!(f, "{sign}{whole}{}{fraction}", if scale == 0 { "" } else { "." })
            }
            Value::Timestamp(microseconds) => write!(f, "{}", Timestamp::from_microseconds(*microseconds)),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            Value::Scalar(scalar) => scalar.fmt(f),
            Value::Option(None) => f.write_str("None"),
            Value::Option(Some(value)) => write!(f, "Some({value})"),
            Value::Tuple(values) => write!(f, "({}{})", separated(values), if values.len() == 1 { "," } else { "" }),
            Value::List(values) => write!(f, "[{}]", separated(values)),
            Value::Record { name, fields } if fields.is_empty() => f.write_str(name),
            Value::Record { name, fields } => {
                let fields = fields.iter().map(|(field, value)| format!("{field}: {value}")).collect::<Vec<_>>();
                write!(f, "{name} {{ {} }}", fields.join(", "))
            }
        }
    }
}

/// The values with commas between them.
fn separated(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

impl Value {
    /// The value of statements without one: the empty tuple.
    pub const UNIT: Value = Value::Tuple(Vec::new());

    /// `None`; in a column, NULL.
    pub const NONE: Value = Value::Option(None);

    /// `Some` of it.
    pub fn some(self) -> Value {
        Value::Option(Some(Box::new(self)))
    }

    /// A record, its fields in order: what `#[derive(Data)]` makes of a struct or a variant of an enum.
    pub fn record(name: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
        let fields = fields.into_iter().map(|(field, value)| (Arc::from(field), value)).collect();
        Value::Record { name: name.into(), fields }
    }

    /// The field of this name of a record (positional fields: "0", "1", …) or the part of a tuple at this position, if
    /// there is one.
    pub fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Record { fields, .. } => fields.iter().find(|(field, _)| **field == *name).map(|(_, value)| value),
            Value::Tuple(values) => name.parse::<usize>().ok().and_then(|at| values.get(at)),
            _ => None,
        }
    }

    /// The kind of value, in words, for messages.
    pub fn kind(&self) -> String {
        match self {
            Value::Bool(_) => "a bool".to_owned(),
            Value::Integer(number, None) => format!("the integer {number}"),
            Value::Integer(_, Some(ty)) if ty.range().0 == 0 => format!("a {ty}"),
            Value::Integer(_, Some(ty)) => format!("an {ty}"),
            Value::Float(_) => "an f64".to_owned(),
            Value::Decimal { scale, .. } => format!("a Decimal<{scale}>"),
            Value::Timestamp(_) => "a Timestamp".to_owned(),
            Value::Text(_) => "a text".to_owned(),
            Value::Bytes(_) => "bytes".to_owned(),
            Value::Scalar(scalar) => format!("the {} {scalar}", scalar.column_type()),
            Value::Option(None) => "None".to_owned(),
            Value::Option(Some(_)) => "Some".to_owned(),
            Value::Tuple(values) if values.is_empty() => "()".to_owned(),
            Value::Tuple(values) => format!("a tuple of {}", values.len()),
            Value::List(values) => format!("a list of {}", values.len()),
            Value::Record { name, .. } => format!("a `{name}`"),
        }
    }

    /// The value by which a row or a call is placed; `None` if it is absent or composed.
    pub fn partition_value(&self) -> Option<PartitionValue> {
        Some(match self {
            Value::Bool(value) => PartitionValue::Integer((*value).into()),
            Value::Integer(number, _) => PartitionValue::Integer(*number),
            Value::Timestamp(number) | Value::Decimal { units: number, .. } => {
                PartitionValue::Integer((*number).into())
            }
            Value::Float(number) => (*number).into(),
            Value::Text(text) => PartitionValue::Bytes(text.clone().into_bytes()),
            Value::Bytes(bytes) => PartitionValue::Bytes(bytes.clone()),
            Value::Scalar(scalar) => PartitionValue::Bytes(scalar.key()),
            // A variant of an enum, as a column of a key has it.
            Value::Record { name, fields } if fields.is_empty() => PartitionValue::Bytes(name.as_bytes().to_vec()),
            Value::Option(value) => return value.as_ref()?.partition_value(),
            // `Vec<u8>` and `[u8; N]` are lists in procedures.
            Value::List(_) => PartitionValue::Bytes(Raw::of_bytes(self).ok()?.to_vec()),
            Value::Tuple(_) | Value::Record { .. } => return None,
        })
    }

    /// The value as text without its type, which [`ColumnType::parse`](crate::ColumnType::parse) reads: text as it is,
    /// bytes as hexadecimal digits. `None` for NULL.
    pub fn to_text(&self) -> Option<String> {
        Some(match self {
            Value::Option(None) => return None,
            Value::Option(Some(value)) => return value.to_text(),
            Value::Text(text) => text.clone(),
            Value::Integer(number, _) => number.to_string(),
            Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            value => value.to_string(),
        })
    }

    /// The value as messages about a column show it: without its type.
    pub(crate) fn in_column(&self) -> String {
        match self {
            Value::Integer(number, _) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Bytes(bytes) => bytes.escape_ascii().to_string(),
            Value::Option(value) => value.as_ref().map_or("NULL".to_owned(), |value| value.in_column()),
            other => other.to_string(),
        }
    }

    fn unfit(&self, column: &ColumnDef) -> ValueError {
        let (value, null) = (self.in_column(), if column.nullable { " or NULL" } else { "" });
        let problem = format!("the value {value} does not fit; it must be a value of type {}{null}", column.ty);
        ValueError::Unfit { column: column.name.to_string(), problem }
    }

    /// The value in a column; `None` for NULL.
    fn present(&self, column: &ColumnDef) -> Result<Option<&Value>, ValueError> {
        match self {
            Value::Option(value) if column.nullable => Ok(value.as_deref()),
            Value::Option(_) => Err(self.unfit(column)),
            value => Ok(Some(value)),
        }
    }

    /// The stored bytes of a value that is not NULL.
    fn stored(&self, column: &ColumnDef) -> Result<Raw<'_>, ValueError> {
        column.ty.rules(|rules| rules.stored(self)).map_err(|misfit| match misfit {
            Misfit::Other => self.unfit(column),
            Misfit::TooLong(bytes, max) => {
                ValueError::Unfit { column: column.name.to_string(), problem: TooLong { bytes, max }.to_string() }
            }
        })
    }
}

impl ColumnType {
    /// Whether a value that is not NULL fits a column of this type.
    pub(crate) fn takes(self, value: &Value) -> bool {
        self.rules(|rules| rules.stored(value).is_ok())
    }
}

/// As part of a column.
impl Value {
    /// Appends the value's key bytes.
    pub(crate) fn write_key(&self, column: &ColumnDef, key: &mut KeyWriter) -> Result<(), ValueError> {
        let value = self.present(column)?;
        if column.nullable {
            key.number(u64::from(value.is_none()), 1);
        }
        match value {
            None => key.zeros(column.ty.key_bytes().unwrap_or(0)),
            Some(value) => column.ty.write_key(&value.stored(column)?, key),
        }
        Ok(())
    }

    /// Sets a column of a row being written; `column` and `place` are of the row's table.
    ///
    /// # Errors
    /// If the value does not fit the column, or at the memory limit.
    pub fn write(&self, column: &ColumnDef, place: &ColumnLocation, row: &mut RowWriter<'_>) -> Result<(), ValueError> {
        match self.present(column)? {
            None => row.set_null(place),
            Some(value) => row.set_raw(place, column.ty.form(), &value.stored(column)?)?,
        }
        Ok(())
    }

    /// The value of a column of a row, in an `Option` if the column is nullable; `column` and `place` are of the row's
    /// table.
    pub fn read(column: &ColumnDef, place: &ColumnLocation, row: RowRef<'_>) -> Value {
        if row.is_null(place) {
            return Value::NONE;
        }
        let value = column.ty.rules(|rules| rules.value(row.get_raw(place, column.ty.form())));
        if column.nullable { value.some() } else { value }
    }
}
