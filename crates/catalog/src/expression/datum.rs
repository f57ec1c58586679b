//! Values while they are computed: those of [`Value`], borrowed from rows where they can be.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{EvaluationError, cast, types};
use crate::types::rules::{signed, unsigned};
use crate::{
    ColumnDef, ColumnLocation, ColumnType, Date, DateTime, IntegerType, Interval, Layout, Numeric, RowRef, Scalar,
    ScalarType, TableDef, Time, Timestamp, Uuid, Value,
};

/// A value, without its type: that of the expression, or of the column.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Datum<'v> {
    Null,
    Bool(bool),
    /// Of any integer type.
    Integer(i128),
    /// A `u128` beyond the greatest `i128`.
    Wide(u128),
    Numeric(Numeric),
    Single(f32),
    Float(f64),
    Text(Cow<'v, str>),
    Bytes(Cow<'v, [u8]>),
    Char(char),
    Uuid(Uuid),
    Date(Date),
    Time(Time),
    DateTime(DateTime),
    Timestamp(Timestamp),
    Interval(Interval),
    /// The discriminant of a variant.
    Enum(u16),
}

impl<'v> Datum<'v> {
    /// A `u128`.
    fn wide(number: u128) -> Datum<'v> {
        i128::try_from(number).map_or(Datum::Wide(number), Datum::Integer)
    }

    /// The value of this type that a text is, as PostgreSQL reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn of_text(text: &str, ty: ColumnType) -> Result<Datum<'static>, super::EvaluationError> {
        cast::parse(text, types::of_column(ty))
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    /// The same value, borrowed from this one.
    pub fn borrowed(&self) -> Datum<'_> {
        match self {
            Datum::Text(text) => Datum::Text(Cow::Borrowed(text)),
            Datum::Bytes(bytes) => Datum::Bytes(Cow::Borrowed(bytes)),
            other => other.clone(),
        }
    }

    /// The same value, with a copy of what it borrows.
    pub fn into_owned(self) -> Datum<'static> {
        match self {
            Datum::Text(text) => Datum::Text(Cow::Owned(text.into_owned())),
            Datum::Bytes(bytes) => Datum::Bytes(Cow::Owned(bytes.into_owned())),
            Datum::Null => Datum::Null,
            Datum::Bool(value) => Datum::Bool(value),
            Datum::Integer(value) => Datum::Integer(value),
            Datum::Wide(value) => Datum::Wide(value),
            Datum::Numeric(value) => Datum::Numeric(value),
            Datum::Single(value) => Datum::Single(value),
            Datum::Float(value) => Datum::Float(value),
            Datum::Char(value) => Datum::Char(value),
            Datum::Uuid(value) => Datum::Uuid(value),
            Datum::Date(value) => Datum::Date(value),
            Datum::Time(value) => Datum::Time(value),
            Datum::DateTime(value) => Datum::DateTime(value),
            Datum::Timestamp(value) => Datum::Timestamp(value),
            Datum::Interval(value) => Datum::Interval(value),
            Datum::Enum(value) => Datum::Enum(value),
        }
    }

    /// The value of the column of this type at `place`; both are of the row's table.
    pub fn read(ty: ColumnType, place: &ColumnLocation, row: RowRef<'v>) -> Datum<'v> {
        if row.is_null(place) {
            return Datum::Null;
        }
        let stored = row.get_raw(place, ty.form());
        match ty {
            ColumnType::Bool => Datum::Bool(stored != [0]),
            ColumnType::I8 | ColumnType::I16 | ColumnType::I32 | ColumnType::I64 | ColumnType::I128 => {
                Datum::Integer(signed(stored))
            }
            ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => {
                Datum::Integer(unsigned(stored) as i128)
            }
            ColumnType::F64 => Datum::Float(f64::from_bits(unsigned(stored) as u64)),
            ColumnType::F32 => Datum::Single(f32::from_bits(unsigned(stored) as u32)),
            ColumnType::Decimal { scale } => {
                // The units of an `i64` have no more digits than a `Numeric`.
                Datum::Numeric(Numeric::new(signed(stored), scale).unwrap_or_default())
            }
            ColumnType::Timestamp => Datum::Timestamp(Timestamp::from_microseconds(signed(stored) as i64)),
            // Only whole texts are stored.
            ColumnType::Text { .. } | ColumnType::LongText => Datum::Text(String::from_utf8_lossy(stored)),
            ColumnType::Bytes { .. } | ColumnType::LongBytes | ColumnType::ByteArray { .. } => {
                Datum::Bytes(Cow::Borrowed(stored))
            }
            ColumnType::U128 => Datum::wide(unsigned(stored)),
            ColumnType::Enum { .. } => Datum::Enum(unsigned(stored) as u16),
            ColumnType::Numeric
            | ColumnType::Char
            | ColumnType::Uuid
            | ColumnType::Date
            | ColumnType::Time
            | ColumnType::DateTime
            | ColumnType::Interval => {
                Scalar::of_stored(ty, stored).and_then(|scalar| Datum::of_scalar(&scalar)).unwrap_or(Datum::Null)
            }
        }
    }

    fn of_scalar(scalar: &Scalar) -> Option<Datum<'static>> {
        fn one<T: ScalarType>(scalar: &Scalar, make: impl Fn(T) -> Datum<'static>) -> Option<Datum<'static>> {
            T::of_scalar(scalar).map(make)
        }
        match scalar.column_type() {
            ColumnType::Numeric => one(scalar, Datum::Numeric),
            ColumnType::I128 => one(scalar, Datum::Integer),
            ColumnType::U128 => one(scalar, Datum::wide),
            ColumnType::F32 => one(scalar, Datum::Single),
            ColumnType::Char => one(scalar, Datum::Char),
            ColumnType::Uuid => one(scalar, Datum::Uuid),
            ColumnType::Date => one(scalar, Datum::Date),
            ColumnType::Time => one(scalar, Datum::Time),
            ColumnType::DateTime => one(scalar, Datum::DateTime),
            ColumnType::Interval => one(scalar, Datum::Interval),
            _ => None,
        }
    }

    /// A value of a column of this type; `None` if it has another type.
    pub fn of_value(value: &'v Value, ty: ColumnType) -> Option<Datum<'v>> {
        Some(match (value, ty) {
            (Value::Option(None), _) => Datum::Null,
            (Value::Option(Some(value)), _) => Datum::of_value(value, ty)?,
            (Value::Bool(value), ColumnType::Bool) => Datum::Bool(*value),
            (Value::Integer(value, _), ColumnType::Numeric | ColumnType::Decimal { .. }) => {
                Datum::Numeric(Numeric::new(*value, 0).ok()?)
            }
            (Value::Integer(value, _), ty) if types::range(ty).is_some_and(|(l, h)| l <= *value && *value <= h) => {
                Datum::Integer(*value)
            }
            (Value::Float(value), ColumnType::F64) => Datum::Float(*value),
            (Value::Decimal { units, scale }, ColumnType::Decimal { .. } | ColumnType::Numeric) => {
                Datum::Numeric(Numeric::new((*units).into(), *scale).ok()?)
            }
            (Value::Timestamp(value), ColumnType::Timestamp) => Datum::Timestamp(Timestamp::from_microseconds(*value)),
            (Value::Text(value), ColumnType::Text { .. } | ColumnType::LongText) => Datum::Text(value.into()),
            (Value::Bytes(value), ColumnType::Bytes { .. } | ColumnType::LongBytes | ColumnType::ByteArray { .. }) => {
                Datum::Bytes(value.into())
            }
            (Value::Record { name, .. }, ColumnType::Enum { variants }) => Datum::Enum(variants.discriminant(name)?),
            (Value::Text(name), ColumnType::Enum { variants }) => Datum::Enum(variants.discriminant(name)?),
            (Value::Scalar(scalar), ty) if scalar.column_type() == ty => Datum::of_scalar(scalar)?,
            _ => return None,
        })
    }

    /// The value as one of a column of this type, of which it is. `None` if it is none; [`assigned`](super::assigned)
    /// makes it one.
    pub fn to_value(&self, ty: ColumnType) -> Option<Value> {
        Some(match (self, ty) {
            (Datum::Null, _) => Value::NONE,
            (Datum::Bool(value), ColumnType::Bool) => (*value).into(),
            (Datum::Integer(value), ColumnType::I128) => (*value).into(),
            (Datum::Integer(value), ColumnType::U128) => u128::try_from(*value).ok()?.into(),
            (Datum::Wide(value), ColumnType::U128) => (*value).into(),
            (Datum::Integer(value), ty) => {
                let integer = IntegerType::of_column(ty).filter(|integer| integer.has(*value))?;
                Value::Integer(*value, Some(integer))
            }
            (Datum::Numeric(value), ColumnType::Numeric) => (*value).into(),
            (Datum::Numeric(value), ColumnType::Decimal { scale }) => {
                let rounded = value.round(scale).ok().filter(|rounded| rounded == value)?;
                Value::Decimal { units: i64::try_from(rounded.coefficient()).ok()?, scale }
            }
            (Datum::Single(value), ColumnType::F32) => (*value).into(),
            (Datum::Float(value), ColumnType::F64) => (*value).into(),
            (Datum::Text(value), ColumnType::LongText) => (**value).into(),
            (Datum::Text(value), ColumnType::Text { max }) if value.len() <= max.into() => (**value).into(),
            (Datum::Bytes(value), ColumnType::LongBytes) => Value::Bytes(value.to_vec()),
            (Datum::Bytes(value), ColumnType::Bytes { max }) if value.len() <= max.into() => {
                Value::Bytes(value.to_vec())
            }
            (Datum::Bytes(value), ColumnType::ByteArray { bytes }) if value.len() == usize::from(bytes) => {
                Value::Bytes(value.to_vec())
            }
            (Datum::Char(value), ColumnType::Char) => (*value).into(),
            (Datum::Uuid(value), ColumnType::Uuid) => (*value).into(),
            (Datum::Date(value), ColumnType::Date) => (*value).into(),
            (Datum::Time(value), ColumnType::Time) => (*value).into(),
            (Datum::DateTime(value), ColumnType::DateTime) => (*value).into(),
            (Datum::Timestamp(value), ColumnType::Timestamp) => (*value).into(),
            (Datum::Interval(value), ColumnType::Interval) => (*value).into(),
            (Datum::Enum(value), ColumnType::Enum { variants }) => Value::record(variants.name(*value)?, []),
            _ => return None,
        })
    }

    /// The value as PostgreSQL writes it; empty for NULL. `ty` says the names of an enum.
    pub fn to_text(&self, ty: Option<ColumnType>) -> Cow<'_, str> {
        cast::to_text(self, ty)
    }

    /// The order of two values of one type, neither of them NULL. Values of different types are equal.
    pub fn compare(&self, other: &Datum<'_>) -> Ordering {
        match (self, other) {
            (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
            (Datum::Integer(a), Datum::Integer(b)) => a.cmp(b),
            (Datum::Wide(a), Datum::Wide(b)) => a.cmp(b),
            (Datum::Integer(_), Datum::Wide(_)) => Ordering::Less,
            (Datum::Wide(_), Datum::Integer(_)) => Ordering::Greater,
            (Datum::Numeric(a), Datum::Numeric(b)) => a.cmp(b),
            (Datum::Single(a), Datum::Single(b)) => floats((*a).into(), (*b).into()),
            (Datum::Float(a), Datum::Float(b)) => floats(*a, *b),
            (Datum::Text(a), Datum::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Datum::Bytes(a), Datum::Bytes(b)) => a.cmp(b),
            (Datum::Char(a), Datum::Char(b)) => a.cmp(b),
            (Datum::Uuid(a), Datum::Uuid(b)) => a.cmp(b),
            (Datum::Date(a), Datum::Date(b)) => a.cmp(b),
            (Datum::Time(a), Datum::Time(b)) => a.cmp(b),
            (Datum::DateTime(a), Datum::DateTime(b)) => a.cmp(b),
            (Datum::Timestamp(a), Datum::Timestamp(b)) => a.cmp(b),
            (Datum::Interval(a), Datum::Interval(b)) => a.cmp(b),
            (Datum::Enum(a), Datum::Enum(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

/// One zero, and one NaN above all.
fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Where the values of columns come from, by the numbers that a [`Scope`](super::Scope) gave.
pub trait Columns<'r> {
    /// The value of a column.
    fn get(&self, column: usize) -> Datum<'r>;

    /// The value of a function of the scope, for these arguments.
    ///
    /// # Errors
    /// It has none.
    fn call(&self, number: usize, arguments: &[Datum<'_>]) -> Result<Datum<'r>, EvaluationError> {
        let _ = arguments;
        Err(EvaluationError::of_scope(format!("there is no function {number} here")))
    }
}

/// NULL for columns beyond them.
impl<'r> Columns<'r> for &'r [Datum<'_>] {
    fn get(&self, column: usize) -> Datum<'r> {
        <[Datum<'_>]>::get(self, column).map_or(Datum::Null, Datum::borrowed)
    }
}

/// Types and places of the columns of a table, of which rows are a source of values.
#[derive(Clone, Debug, Default)]
pub struct RowColumns(Box<[(ColumnType, ColumnLocation)]>);

impl RowColumns {
    /// Those of this table.
    pub fn of(table: &TableDef) -> RowColumns {
        let pair = |(column, place): (&ColumnDef, ColumnLocation)| (column.ty, place);
        RowColumns(table.columns.iter().zip(Layout::of(table).places).map(pair).collect())
    }

    /// The values of this row of the table.
    pub fn row<'r>(&'r self, row: RowRef<'r>) -> impl Columns<'r> {
        Row { columns: self, row }
    }
}

struct Row<'r> {
    columns: &'r RowColumns,
    row: RowRef<'r>,
}

impl<'r> Columns<'r> for Row<'r> {
    fn get(&self, column: usize) -> Datum<'r> {
        self.columns.0.get(column).map_or(Datum::Null, |(ty, place)| Datum::read(*ty, place, self.row))
    }
}
