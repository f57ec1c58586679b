//! Rust types of values in procedures: every type of a column, and what is built of them.

use std::fmt;
use std::sync::Arc;

use seriatim_catalog::expression::EvaluationError as ExpressionFailure;
use seriatim_catalog::{Bytes, Column, Decimal, IntegerType, ScalarType, Text, Timestamp, Value};

use crate::Pack;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvaluationError {
    /// A number left the range of its type, or a division by zero.
    Overflow,
    /// An expression of SQL has no value.
    Expression(ExpressionFailure),
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
    pub fn expected(wanted: impl fmt::Display, found: &Value) -> EvaluationError {
        EvaluationError::Type(format!("expected {wanted}, found {}", found.kind()))
    }
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvaluationError::Overflow => f.write_str("a number leaves the range of its type"),
            EvaluationError::Expression(error) => error.fmt(f),
            EvaluationError::Type(problem) => f.write_str(problem),
            EvaluationError::OutOfBounds { index, length } => {
                write!(f, "element {index} of a list of {length}")
            }
        }
    }
}

impl std::error::Error for EvaluationError {}

/// The field of this name, as [`Value::field`].
///
/// # Errors
/// [`EvaluationError::Type`] if there is none.
pub fn field<'v>(value: &'v Value, name: &str) -> Result<&'v Value, EvaluationError> {
    value.field(name).ok_or_else(|| EvaluationError::Type(format!("{} has no field `{name}`", value.kind())))
}

/// A type that arguments, results and values in a procedure can have. Derive it for structs and enums.
///
/// `from_value(&x.to_value())` equals `x`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of values in procedures",
    label = "not `Data`",
    note = "a struct or enum can `#[derive(Data)]`; \
            scalars of columns, Option, Vec, arrays and tuples of them are `Data`"
)]
pub trait Data: Pack {
    /// The value, of a type known at run time only.
    fn to_value(&self) -> Value;

    /// The value of this type.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] with the given and the required type; [`EvaluationError::Overflow`] for an
    /// integer without a type that leaves the range of this one.
    fn from_value(value: &Value) -> Result<Self, EvaluationError>;

    /// The part at this path of field names, each inside the previous one, as for [`Value::field`]; `None` if
    /// there is none.
    fn part(&self, path: &[Arc<str>]) -> Option<Value> {
        path.iter().try_fold(self.to_value(), |value, name| value.field(name).cloned())
    }
}

impl Data for Value {
    fn to_value(&self) -> Value {
        self.clone()
    }

    fn from_value(value: &Value) -> Result<Value, EvaluationError> {
        Ok(value.clone())
    }
}

macro_rules! integer {
    ($($type:ty => $integer:ident;)+) => {$(
        impl Data for $type {
            fn to_value(&self) -> Value {
                (*self).into()
            }

            fn from_value(value: &Value) -> Result<$type, EvaluationError> {
                match *value {
                    Value::Integer(number, None | Some(IntegerType::$integer)) => {
                        <$type>::try_from(number).map_err(|_| EvaluationError::Overflow)
                    }
                    _ => Err(EvaluationError::expected(IntegerType::$integer, value)),
                }
            }
        }
    )+};
}

integer! {
    i8 => I8;
    i16 => I16;
    i32 => I32;
    i64 => I64;
    u8 => U8;
    u16 => U16;
    u32 => U32;
    u64 => U64;
    usize => Usize;
}

impl Data for bool {
    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }

    fn from_value(value: &Value) -> Result<bool, EvaluationError> {
        match *value {
            Value::Bool(value) => Ok(value),
            _ => Err(EvaluationError::expected("bool", value)),
        }
    }
}

impl Data for f64 {
    fn to_value(&self) -> Value {
        Value::Float(*self)
    }

    fn from_value(value: &Value) -> Result<f64, EvaluationError> {
        match *value {
            Value::Float(value) => Ok(value),
            _ => Err(EvaluationError::expected("f64", value)),
        }
    }
}

impl<const S: u32> Data for Decimal<S> {
    fn to_value(&self) -> Value {
        Value::Decimal { units: self.units(), scale: S as u8 }
    }

    fn from_value(value: &Value) -> Result<Decimal<S>, EvaluationError> {
        match *value {
            Value::Decimal { units, scale } if u32::from(scale) == S => Ok(Decimal::from_units(units)),
            _ => Err(EvaluationError::expected(format_args!("Decimal<{S}>"), value)),
        }
    }
}

impl Data for Timestamp {
    fn to_value(&self) -> Value {
        Value::Timestamp(self.microseconds())
    }

    fn from_value(value: &Value) -> Result<Timestamp, EvaluationError> {
        match *value {
            Value::Timestamp(microseconds) => Ok(Timestamp::from_microseconds(microseconds)),
            _ => Err(EvaluationError::expected("Timestamp", value)),
        }
    }
}

macro_rules! scalars {
    ($($type:ty)+) => {$(
        impl Data for $type {
            fn to_value(&self) -> Value {
                Value::Scalar(self.to_scalar())
            }

            fn from_value(value: &Value) -> Result<$type, EvaluationError> {
                let scalar = if let Value::Scalar(scalar) = value { <$type>::of_scalar(scalar) } else { None };
                scalar.ok_or_else(|| EvaluationError::expected(<$type as Column>::TYPE, value))
            }
        }
    )+};
}

seriatim_catalog::for_scalars!(scalars);

impl Data for String {
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }

    fn from_value(value: &Value) -> Result<String, EvaluationError> {
        match value {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(EvaluationError::expected("text", value)),
        }
    }
}

impl<const N: usize> Data for Text<N> {
    fn to_value(&self) -> Value {
        Value::Text(self.as_str().to_owned())
    }

    fn from_value(value: &Value) -> Result<Text<N>, EvaluationError> {
        match value {
            Value::Text(text) => Text::new(text).map_err(|error| EvaluationError::Type(error.to_string())),
            _ => Err(EvaluationError::expected("text", value)),
        }
    }
}

impl<const N: usize> Data for Bytes<N> {
    fn to_value(&self) -> Value {
        Value::Bytes(self.to_vec())
    }

    fn from_value(value: &Value) -> Result<Bytes<N>, EvaluationError> {
        match value {
            Value::Bytes(bytes) => Bytes::new(bytes).map_err(|error| EvaluationError::Type(error.to_string())),
            _ => Err(EvaluationError::expected("bytes", value)),
        }
    }
}

impl<T: Data> Data for Option<T> {
    fn to_value(&self) -> Value {
        Value::Option(self.as_ref().map(|value| Box::new(value.to_value())))
    }

    fn from_value(value: &Value) -> Result<Option<T>, EvaluationError> {
        match value {
            Value::Option(value) => value.as_deref().map(T::from_value).transpose(),
            _ => Err(EvaluationError::expected("an Option", value)),
        }
    }
}

impl<T: Data> Data for Box<T> {
    fn to_value(&self) -> Value {
        (**self).to_value()
    }

    fn part(&self, path: &[Arc<str>]) -> Option<Value> {
        (**self).part(path)
    }

    fn from_value(value: &Value) -> Result<Box<T>, EvaluationError> {
        T::from_value(value).map(Box::new)
    }
}

/// The elements of a list.
fn elements(value: &Value) -> Result<&[Value], EvaluationError> {
    match value {
        Value::List(elements) => Ok(elements),
        _ => Err(EvaluationError::expected("a list", value)),
    }
}

impl<T: Data> Data for Vec<T> {
    fn to_value(&self) -> Value {
        Value::List(self.iter().map(T::to_value).collect())
    }

    /// Also bytes, as columns have them.
    fn from_value(value: &Value) -> Result<Vec<T>, EvaluationError> {
        match value {
            Value::Bytes(bytes) => bytes.iter().map(|byte| T::from_value(&byte.to_value())).collect(),
            _ => elements(value)?.iter().map(T::from_value).collect(),
        }
    }
}

impl<T: Data, const N: usize> Data for [T; N] {
    fn to_value(&self) -> Value {
        Value::List(self.iter().map(T::to_value).collect())
    }

    fn from_value(value: &Value) -> Result<[T; N], EvaluationError> {
        let array = <[T; N]>::try_from(Vec::from_value(value)?);
        array.map_err(|_| EvaluationError::expected(format_args!("a list of {N}"), value))
    }
}

macro_rules! tuple {
    ($($count:literal: $($name:ident $at:tt)*;)+) => {$(
        impl<$($name: Data),*> Data for ($($name,)*) {
            fn to_value(&self) -> Value {
                Value::Tuple(vec![$(self.$at.to_value()),*])
            }

            fn part(&self, path: &[Arc<str>]) -> Option<Value> {
                let Some((name, _rest)) = path.split_first() else { return Some(self.to_value()) };
                match &**name {
                    $(stringify!($at) => self.$at.part(_rest),)*
                    _ => None,
                }
            }

            fn from_value(value: &Value) -> Result<Self, EvaluationError> {
                match value {
                    Value::Tuple(_values) if _values.len() == $count => Ok(($($name::from_value(&_values[$at])?,)*)),
                    _ => Err(EvaluationError::expected(concat!("a tuple of ", $count), value)),
                }
            }
        }
    )+};
}

tuple! {
    0: ;
    1: A 0;
    2: A 0 B 1;
    3: A 0 B 1 C 2;
    4: A 0 B 1 C 2 D 3;
    5: A 0 B 1 C 2 D 3 E 4;
    6: A 0 B 1 C 2 D 3 E 4 F 5;
    7: A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    8: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
    9: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8;
    10: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9;
    11: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10;
    12: A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn returns<T: Data + PartialEq + Debug>(value: T) {
        assert_eq!(T::from_value(&value.to_value()), Ok(value));
    }

    #[test]
    fn values_survive_the_way_to_a_value_and_back() {
        returns(true);
        returns((i8::MIN, i16::MIN, i32::MIN, i64::MIN, u8::MAX, u16::MAX, u32::MAX, u64::MAX, usize::MAX));
        returns(-1.5f64);
        returns(Decimal::<2>::from_units(-5));
        returns(Timestamp::from_microseconds(7));
        returns(Text::<4>::literal("aé"));
        returns(Bytes::<3>::new(&[0, 255]).unwrap());
        returns("text".to_owned());
        returns((Some(1u8), None::<u8>, Some(None::<u8>)));
        returns(vec![[1u16, 2], [3, 4]]);
        returns(());
        returns((Box::new(1u8),));
        returns((1u8, 2u8, 3u8, 4u8, 5u8, 6u8, 7u8, 8u8, 9u8, 10u8, 11u8, 12u8));
    }

    #[test]
    fn a_part_is_that_of_the_value() {
        let value = (Box::new((1u8, "text".to_owned())), vec![2u16]);
        let part = |path: &[&str]| value.part(&path.iter().map(|name| Arc::from(*name)).collect::<Vec<_>>());
        assert_eq!(part(&[]), Some(value.to_value()));
        assert_eq!([part(&["0", "0"]), part(&["0", "1"])], [Some(1u8.to_value()), Some(Value::Text("text".into()))]);
        assert_eq!(part(&["1"]), Some(vec![2u16].to_value()));
        assert_eq!([part(&["2"]), part(&["0", "2"]), part(&["1", "0"]), part(&["0", "0", "0"])], [const { None }; 4]);
    }

    #[test]
    fn integers_are_of_their_type_or_of_none() {
        assert_eq!(u8::from_value(&Value::Integer(255, None)), Ok(255));
        assert_eq!(u8::from_value(&Value::Integer(256, None)), Err(EvaluationError::Overflow));
        assert_eq!(u8::from_value(&1u16.to_value()).unwrap_err().to_string(), "expected u8, found a u16");
        assert_eq!(usize::from_value(&1u64.to_value()).unwrap_err().to_string(), "expected usize, found a u64");
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_the_expected_type() {
        let says = |error: EvaluationError| error.to_string();
        assert_eq!(
            says(Decimal::<2>::from_value(&Decimal::<4>::ONE.to_value()).unwrap_err()),
            "expected Decimal<2>, found a Decimal<4>"
        );
        assert_eq!(
            says(Text::<2>::from_value(&Value::Text("abc".into())).unwrap_err()),
            "the value has 3 bytes; the column has room for 2"
        );
        assert_eq!(
            says(<[u8; 2]>::from_value(&vec![1u8].to_value()).unwrap_err()),
            "expected a list of 2, found a list of 1"
        );
        assert_eq!(says(<(u8,)>::from_value(&Value::UNIT).unwrap_err()), "expected a tuple of 1, found ()");
        assert_eq!(says(Option::<u8>::from_value(&1u8.to_value()).unwrap_err()), "expected an Option, found a u8");
        assert_eq!(says(field(&Value::UNIT, "0").unwrap_err()), "() has no field `0`");
    }

    #[test]
    fn data_show_as_in_source() {
        let shown = |value: Value| value.to_string();
        assert_eq!(shown((1u8, -1i64).to_value()), "(1u8, -1i64)");
        assert_eq!(shown((Some(1u8),).to_value()), "(Some(1u8),)");
        assert_eq!(shown(Decimal::<2>::from_units(-5).to_value()), "-0.05");
        assert_eq!(shown(Decimal::<0>::from_units(5).to_value()), "5");
        assert_eq!(shown(Value::Decimal { units: i64::MIN, scale: 255 }).len(), 258);
        assert_eq!(shown(Value::List(vec![Value::Text("a\"".into()), Value::Bytes(vec![0])])), r#"["a\"", b"\x00"]"#);
        assert_eq!(shown(Value::record("P", [("x", 1u8.to_value()), ("y", Value::NONE)])), "P { x: 1u8, y: None }");
        assert_eq!(shown(Value::record("Unit", [])), "Unit");
    }
}
