//! Values whose type is known at run time only: of columns, of arguments and results of procedures called by
//! name, and of the interpreter.
//!
//! A column takes a value of its type, or an integer of any type in its range. A nullable column takes such a value
//! alone or in an `Option`. A value read from a column has exactly the column's type, in an `Option` if it is nullable.

use std::fmt;
use std::sync::Arc;

use crate::column::load_bytes;
use crate::{
    Bytes, ColumnDef, ColumnLocation, ColumnType, Decimal, KeyColumn, KeyWriter, OutOfMemory, PartitionValue, RowRef,
    RowWriter, Text, Timestamp,
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

macro_rules! integers {
    ($($variant:ident $type:ident)+) => {
        /// A type of integers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum IntegerType {
            $($variant,)+
        }

        impl IntegerType {
            /// All of them.
            pub const ALL: [IntegerType; 9] = [$(IntegerType::$variant,)+];

            /// Its name in Rust.
            pub const fn name(self) -> &'static str {
                match self {
                    $(IntegerType::$variant => stringify!($type),)+
                }
            }

            /// Smallest and largest value.
            pub const fn range(self) -> (i128, i128) {
                match self {
                    $(IntegerType::$variant => ($type::MIN as i128, $type::MAX as i128),)+
                }
            }
        }

        from! { $([] $type, |value| Value::Integer(value as i128, Some(IntegerType::$variant));)+ }
    };
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

integers! { I8 i8 I16 i16 I32 i32 I64 i64 U8 u8 U16 u16 U32 u32 U64 u64 Usize usize }

from! {
    [] bool, |value| Value::Bool(value);
    [] f64, |value| Value::Float(value);
    [] &str, |value| Value::Text(value.to_owned());
    [] String, |value| Value::Text(value);
    [] &[u8], |value| Value::Bytes(value.to_vec());
    [] Vec<u8>, |value| Value::Bytes(value);
    [] Timestamp, |value| Value::Timestamp(value.microseconds());
    [<const S: u32>] Decimal<S>, |value| Value::Decimal { units: value.units(), scale: Decimal::<S>::SCALE };
    [<const N: usize>] Text<N>, |value| Value::Text(value.into());
    [<const N: usize>] Bytes<N>, |value| Value::Bytes(value.to_vec());
    [<T: Into<Value>>] Option<T>, |value| Value::Option(value.map(|value| Box::new(value.into())));
}

impl IntegerType {
    /// The type of this name in Rust.
    pub fn by_name(name: &str) -> Option<IntegerType> {
        IntegerType::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// The type of the integers in columns of this type.
    pub fn of_column(ty: ColumnType) -> Option<IntegerType> {
        Some(match ty {
            ColumnType::I8 => IntegerType::I8,
            ColumnType::I16 => IntegerType::I16,
            ColumnType::I32 => IntegerType::I32,
            ColumnType::I64 => IntegerType::I64,
            ColumnType::U8 => IntegerType::U8,
            ColumnType::U16 => IntegerType::U16,
            ColumnType::U32 => IntegerType::U32,
            ColumnType::U64 => IntegerType::U64,
            _ => return None,
        })
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
            Value::Option(value) => return value.as_ref()?.partition_value(),
            Value::Tuple(_) | Value::List(_) | Value::Record { .. } => return None,
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

    fn truth(&self, column: &ColumnDef) -> Result<bool, ValueError> {
        if let Value::Bool(value) = self { Ok(*value) } else { Err(self.unfit(column)) }
    }

    fn float(&self, column: &ColumnDef) -> Result<f64, ValueError> {
        if let Value::Float(value) = self { Ok(*value) } else { Err(self.unfit(column)) }
    }

    /// An integer in the range of `N`.
    fn integer<N: TryFrom<i128>>(&self, column: &ColumnDef) -> Result<N, ValueError> {
        let number = if let Value::Integer(number, _) = *self { N::try_from(number).ok() } else { None };
        number.ok_or_else(|| self.unfit(column))
    }

    /// The 64-bit integer that a decimal or timestamp column stores. Decimals and whole numbers of another
    /// scale fit if they need no rounding.
    fn units(&self, column: &ColumnDef) -> Result<i64, ValueError> {
        let units = match (self, column.ty) {
            (Value::Timestamp(units), ColumnType::Timestamp) => Some(*units),
            (Value::Decimal { units, scale }, ColumnType::Decimal { scale: wanted }) => rescale(*units, *scale, wanted),
            (Value::Integer(number, _), ColumnType::Decimal { scale }) => {
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
}

/// `units` / 10^`scale` in units of 10^-`wanted`, if that is exact and fits.
fn rescale(units: i64, scale: u8, wanted: u8) -> Option<i64> {
    let power = 10i64.checked_pow(scale.abs_diff(wanted).into())?;
    if wanted >= scale { units.checked_mul(power) } else { (units % power == 0).then_some(units / power) }
}

/// `$fixed!(type, value)` for a column of fixed width, else `$bytes`.
macro_rules! by_type {
    ($value:ident, $column:ident, $fixed:ident, $bytes:expr) => {
        match $column.ty {
            ColumnType::Bool => $fixed!(bool, $value.truth($column)?),
            ColumnType::I8 => $fixed!(i8, $value.integer($column)?),
            ColumnType::I16 => $fixed!(i16, $value.integer($column)?),
            ColumnType::I32 => $fixed!(i32, $value.integer($column)?),
            ColumnType::I64 => $fixed!(i64, $value.integer($column)?),
            ColumnType::U8 => $fixed!(u8, $value.integer($column)?),
            ColumnType::U16 => $fixed!(u16, $value.integer($column)?),
            ColumnType::U32 => $fixed!(u32, $value.integer($column)?),
            ColumnType::U64 => $fixed!(u64, $value.integer($column)?),
            ColumnType::F64 => $fixed!(f64, $value.float($column)?),
            ColumnType::Decimal { .. } | ColumnType::Timestamp => $fixed!(i64, $value.units($column)?),
            ColumnType::Text { .. } | ColumnType::LongText | ColumnType::Bytes { .. } => $bytes,
        }
    };
}

/// As part of a column.
impl Value {
    /// Appends the value's key bytes.
    pub(crate) fn write_key(&self, column: &ColumnDef, key: &mut KeyWriter) -> Result<(), ValueError> {
        let value = self.present(column)?;
        if column.nullable {
            key.number(u64::from(value.is_none()), 1);
        }
        let Some(value) = value else {
            key.number(0, column.ty.key_bytes().unwrap_or(0));
            return Ok(());
        };
        macro_rules! write {
            ($type:ty, $value:expr) => {
                <$type as KeyColumn>::write(&$value, key)
            };
        }
        by_type!(value, column, write, key.escaped(value.bytes(column)?));
        Ok(())
    }

    /// Sets a column of a row being written; `column` and `place` are of the row's table.
    ///
    /// # Errors
    /// If the value does not fit the column, or at the memory limit.
    pub fn write(&self, column: &ColumnDef, place: &ColumnLocation, row: &mut RowWriter<'_>) -> Result<(), ValueError> {
        let Some(value) = self.present(column)? else {
            row.set_null(place);
            return Ok(());
        };
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
        by_type!(value, column, set, {
            let bytes = value.bytes(column)?;
            match (value, column.ty) {
                (Value::Text(text), ColumnType::LongText) => return set!(String, text),
                (_, ColumnType::Text { max } | ColumnType::Bytes { max }) => row.set_bytes(place, max, bytes),
                _ => return Err(value.unfit(column)),
            }
            Ok(())
        })
    }

    /// The value of a column of a row, in an `Option` if the column is nullable; `column` and `place` are of the row's
    /// table.
    pub fn read(column: &ColumnDef, place: &ColumnLocation, row: RowRef<'_>) -> Value {
        if row.is_null(place) {
            return Value::NONE;
        }
        let value = match column.ty {
            ColumnType::Bool => row.get::<bool>(place).into(),
            ColumnType::I8 => row.get::<i8>(place).into(),
            ColumnType::I16 => row.get::<i16>(place).into(),
            ColumnType::I32 => row.get::<i32>(place).into(),
            ColumnType::I64 => row.get::<i64>(place).into(),
            ColumnType::U8 => row.get::<u8>(place).into(),
            ColumnType::U16 => row.get::<u16>(place).into(),
            ColumnType::U32 => row.get::<u32>(place).into(),
            ColumnType::U64 => row.get::<u64>(place).into(),
            ColumnType::F64 => row.get::<f64>(place).into(),
            ColumnType::Decimal { scale } => Value::Decimal { units: row.get::<i64>(place), scale },
            ColumnType::Timestamp => Value::Timestamp(row.get::<i64>(place)),
            ColumnType::LongText => row.get::<String>(place).into(),
            ColumnType::Text { max } => {
                // SAFETY: rules 1 to 3 of `RowRef`: a whole text lies at the place.
                let text =
                    unsafe { std::str::from_utf8_unchecked(load_bytes(row.block(place.part), place, max.into())) };
                text.into()
            }
            ColumnType::Bytes { max } => {
                // SAFETY: rules 1 to 3 of `RowRef`.
                unsafe { load_bytes(row.block(place.part), place, max.into()) }.into()
            }
        };
        if column.nullable { value.some() } else { value }
    }
}
