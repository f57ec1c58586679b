//! Values whose type is known at run time only.

use std::fmt;

use crate::column::load_bytes;
use crate::{
    Bytes, ColumnDef, ColumnType, Decimal, KeyColumn, KeyWriter, OutOfMemory, Place, RowRef, RowWriter, Text,
    Timestamp, decimal,
};

/// A value of some column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer of any width.
    Int(i64),
    /// An unsigned integer of any width.
    UInt(u64),
    /// A float.
    Float(f64),
    /// A fixed-point number: `units` / 10^`scale`.
    Decimal {
        /// The number without its point.
        units: i64,
        /// Digits after the point.
        scale: u8,
    },
    /// Text, short or long.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Microseconds since 1970.
    Timestamp(i64),
}

/// A value does not fit its column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// It is of another type, out of range, or too long.
    Unfit {
        /// The column.
        column: String,
        /// The given value, and what would be right.
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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Bool(value) => value.fmt(f),
            Value::Int(value) => value.fmt(f),
            Value::Timestamp(value) => Timestamp::from_microseconds(*value).fmt(f),
            Value::UInt(value) => value.fmt(f),
            Value::Float(value) => value.fmt(f),
            Value::Decimal { units, scale } => decimal::display(*units, u32::from(*scale), f),
            Value::Text(value) => value.fmt(f),
            Value::Bytes(value) => value.escape_ascii().fmt(f),
        }
    }
}

/// `units` / 10^`scale` in units of 10^-`wanted`, if that is exact and fits.
fn rescale(units: i64, scale: u8, wanted: u8) -> Option<i64> {
    let power = 10i64.checked_pow(scale.abs_diff(wanted).into())?;
    if wanted >= scale { units.checked_mul(power) } else { (units % power == 0).then_some(units / power) }
}

macro_rules! from {
    ($([$($parameters:tt)*] $type:ty, |$value:ident| $made:expr;)+) => {$(
        impl $($parameters)* From<$type> for Value {
            fn from($value: $type) -> Value {
                $made
            }
        }
    )+};
}

from! {
    [] bool, |value| Value::Bool(value);
    [] i8, |value| Value::Int(value.into());
    [] i16, |value| Value::Int(value.into());
    [] i32, |value| Value::Int(value.into());
    [] i64, |value| Value::Int(value);
    [] u8, |value| Value::UInt(value.into());
    [] u16, |value| Value::UInt(value.into());
    [] u32, |value| Value::UInt(value.into());
    [] u64, |value| Value::UInt(value);
    [] f64, |value| Value::Float(value);
    [] &str, |value| Value::Text(value.to_owned());
    [] String, |value| Value::Text(value);
    [] &[u8], |value| Value::Bytes(value.to_vec());
    [] Vec<u8>, |value| Value::Bytes(value);
    [] Timestamp, |value| Value::Timestamp(value.microseconds());
    [<const S: u32>] Decimal<S>, |value| Value::Decimal { units: value.units(), scale: Decimal::<S>::SCALE };
    [<const N: usize>] Text<N>, |value| Value::Text(value.into());
    [<const N: usize>] Bytes<N>, |value| Value::Bytes(value.to_vec());
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl Value {
    fn unfit(&self, column: &ColumnDef) -> ValueError {
        let null = if column.nullable { " or NULL" } else { "" };
        let problem = format!("the value {self} does not fit; it must be a value of type {}{null}", column.ty);
        ValueError::Unfit { column: column.name.to_string(), problem }
    }

    /// An integer in the range of `N`.
    fn integer<N: TryFrom<i64> + TryFrom<u64>>(&self, column: &ColumnDef) -> Result<N, ValueError> {
        let number = match *self {
            Value::Int(number) => N::try_from(number).ok(),
            Value::UInt(number) => N::try_from(number).ok(),
            _ => None,
        };
        number.ok_or_else(|| self.unfit(column))
    }

    /// The 64-bit integer that a decimal or timestamp column stores. Decimals and whole numbers of another
    /// scale fit if they need no rounding.
    fn units(&self, column: &ColumnDef) -> Result<i64, ValueError> {
        let units = match (self, column.ty) {
            (Value::Timestamp(units), ColumnType::Timestamp) => Some(*units),
            (Value::Decimal { units, scale }, ColumnType::Decimal { scale: wanted }) => rescale(*units, *scale, wanted),
            (Value::Int(number), ColumnType::Decimal { scale }) => rescale(*number, 0, scale),
            (Value::UInt(number), ColumnType::Decimal { scale }) => {
                i64::try_from(*number).ok().and_then(|number| rescale(number, 0, scale))
            }
            _ => None,
        };
        units.ok_or_else(|| self.unfit(column))
    }

    fn bytes(&self, column: &ColumnDef) -> Result<&[u8], ValueError> {
        let (bytes, max) = match (self, column.ty) {
            (Value::Text(text), ColumnType::Text { max }) => (text.as_bytes(), usize::from(max)),
            (Value::Text(text), ColumnType::LongText) => (text.as_bytes(), usize::MAX),
            (Value::Bytes(bytes), ColumnType::Bytes { max }) => (&bytes[..], usize::from(max)),
            _ => return Err(self.unfit(column)),
        };
        if bytes.len() > max {
            let problem = format!("the value has {} bytes; the column has room for {max}", bytes.len());
            return Err(ValueError::Unfit { column: column.name.to_string(), problem });
        }
        Ok(bytes)
    }

    /// Appends the value's key bytes.
    pub(crate) fn write_key(&self, column: &ColumnDef, key: &mut KeyWriter) -> Result<(), ValueError> {
        if column.nullable {
            key.number(u64::from(*self == Value::Null), 1);
            if *self == Value::Null {
                key.number(0, column.ty.key_bytes().unwrap_or(0));
                return Ok(());
            }
        }
        match column.ty {
            ColumnType::Bool => match self {
                Value::Bool(value) => KeyColumn::write(value, key),
                _ => return Err(self.unfit(column)),
            },
            ColumnType::I8 => self.integer::<i8>(column)?.write(key),
            ColumnType::I16 => self.integer::<i16>(column)?.write(key),
            ColumnType::I32 => self.integer::<i32>(column)?.write(key),
            ColumnType::I64 => self.integer::<i64>(column)?.write(key),
            ColumnType::U8 => self.integer::<u8>(column)?.write(key),
            ColumnType::U16 => self.integer::<u16>(column)?.write(key),
            ColumnType::U32 => self.integer::<u32>(column)?.write(key),
            ColumnType::U64 => self.integer::<u64>(column)?.write(key),
            ColumnType::F64 => match self {
                Value::Float(value) => value.write(key),
                _ => return Err(self.unfit(column)),
            },
            ColumnType::Decimal { .. } | ColumnType::Timestamp => self.units(column)?.write(key),
            ColumnType::Text { .. } | ColumnType::LongText | ColumnType::Bytes { .. } => {
                key.escaped(self.bytes(column)?);
            }
        }
        Ok(())
    }

    /// Sets a column of a row being written; `column` and `place` are of the row's table.
    ///
    /// # Errors
    /// If the value does not fit the column, or at the memory limit.
    pub fn write(&self, column: &ColumnDef, place: &Place, row: &mut RowWriter<'_>) -> Result<(), ValueError> {
        macro_rules! set {
            ($type:ty, $value:expr) => {{
                let value = $value;
                let set = match column.nullable {
                    true => row.set::<Option<$type>>(place, Some(value)),
                    false => row.set::<$type>(place, value),
                };
                set.map_err(ValueError::OutOfMemory)
            }};
        }
        if *self == Value::Null {
            if !column.nullable {
                return Err(self.unfit(column));
            }
            row.set_null(place);
            return Ok(());
        }
        match column.ty {
            ColumnType::Bool => match self {
                Value::Bool(value) => set!(bool, *value),
                _ => Err(self.unfit(column)),
            },
            ColumnType::I8 => set!(i8, self.integer(column)?),
            ColumnType::I16 => set!(i16, self.integer(column)?),
            ColumnType::I32 => set!(i32, self.integer(column)?),
            ColumnType::I64 => set!(i64, self.integer(column)?),
            ColumnType::U8 => set!(u8, self.integer(column)?),
            ColumnType::U16 => set!(u16, self.integer(column)?),
            ColumnType::U32 => set!(u32, self.integer(column)?),
            ColumnType::U64 => set!(u64, self.integer(column)?),
            ColumnType::F64 => match self {
                Value::Float(value) => set!(f64, *value),
                _ => Err(self.unfit(column)),
            },
            ColumnType::Decimal { .. } | ColumnType::Timestamp => set!(i64, self.units(column)?),
            ColumnType::LongText => match self {
                Value::Text(text) => set!(String, text),
                _ => Err(self.unfit(column)),
            },
            ColumnType::Text { max } | ColumnType::Bytes { max } => {
                row.set_bytes(place, max, self.bytes(column)?);
                Ok(())
            }
        }
    }

    /// The value of a column of a row; `column` and `place` are of the row's table.
    pub fn read(column: &ColumnDef, place: &Place, row: RowRef<'_>) -> Value {
        if row.is_null(place) {
            return Value::Null;
        }
        match column.ty {
            ColumnType::Bool => Value::Bool(row.get::<bool>(place)),
            ColumnType::I8 => Value::Int(row.get::<i8>(place).into()),
            ColumnType::I16 => Value::Int(row.get::<i16>(place).into()),
            ColumnType::I32 => Value::Int(row.get::<i32>(place).into()),
            ColumnType::I64 => Value::Int(row.get::<i64>(place)),
            ColumnType::U8 => Value::UInt(row.get::<u8>(place).into()),
            ColumnType::U16 => Value::UInt(row.get::<u16>(place).into()),
            ColumnType::U32 => Value::UInt(row.get::<u32>(place).into()),
            ColumnType::U64 => Value::UInt(row.get::<u64>(place)),
            ColumnType::F64 => Value::Float(row.get::<f64>(place)),
            ColumnType::Decimal { scale } => Value::Decimal { units: row.get::<i64>(place), scale },
            ColumnType::Timestamp => Value::Timestamp(row.get::<i64>(place)),
            ColumnType::LongText => Value::Text(row.get::<String>(place).to_owned()),
            ColumnType::Text { max } => {
                // SAFETY: rules 1 to 3 of `RowRef`: a whole text lies at the place.
                let text =
                    unsafe { std::str::from_utf8_unchecked(load_bytes(row.block(place.part), place, max.into())) };
                Value::Text(text.to_owned())
            }
            ColumnType::Bytes { max } => {
                // SAFETY: rules 1 to 3 of `RowRef`.
                Value::Bytes(unsafe { load_bytes(row.block(place.part), place, max.into()) }.to_vec())
            }
        }
    }
}
