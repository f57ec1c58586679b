//! Types of arguments that are known at run time: those of a procedure that exists only as data.

use std::fmt;

use seriatim_catalog::{ColumnDef, ColumnType};

use crate::{EvaluationError, IntegerType, Value, check_column};

/// The type of an argument. A procedure that is a function has Rust types instead ([`Data`](crate::Data)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataType {
    /// A value of a column. Lengths are checked where the value is written.
    Scalar(ColumnType),
    /// An optional value.
    Option(Box<DataType>),
    /// Values of one type.
    List(Box<DataType>),
    /// Values of several types, in order.
    Tuple(Vec<DataType>),
    /// A value as it is given, such as a struct.
    Any,
}

impl From<ColumnType> for DataType {
    fn from(ty: ColumnType) -> DataType {
        DataType::Scalar(ty)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Scalar(ty) => ty.fmt(f),
            DataType::Option(inner) => write!(f, "Option<{inner}>"),
            DataType::List(inner) => write!(f, "Vec<{inner}>"),
            DataType::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(DataType::to_string).collect();
                write!(f, "({})", parts.join(", "))
            }
            DataType::Any => f.write_str("any type"),
        }
    }
}

impl DataType {
    /// The value with this type: integers without a type take that of their place.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] for a value of another type; [`EvaluationError::Overflow`] for an integer without a
    /// type that leaves the range of this one.
    pub fn value(&self, value: &Value) -> Result<Value, EvaluationError> {
        match (self, value) {
            (DataType::Any, value) => Ok(value.clone()),
            (DataType::Scalar(ty), value) => {
                check_column(value, &ColumnDef::new("", *ty)).map_err(|error| match error {
                    EvaluationError::Type(_) => EvaluationError::expected(self, value),
                    error => error,
                })?;
                Ok(match (value, IntegerType::of_column(*ty)) {
                    (Value::Integer(number, None), Some(ty)) => Value::Integer(*number, Some(ty)),
                    (value, _) => value.clone(),
                })
            }
            (DataType::Option(inner), Value::Option(value)) => {
                let value = value.as_deref().map(|value| inner.value(value)).transpose()?;
                Ok(Value::Option(value.map(Box::new)))
            }
            (DataType::List(inner), Value::List(values)) => {
                values.iter().map(|value| inner.value(value)).collect::<Result<_, _>>().map(Value::List)
            }
            (DataType::Tuple(parts), Value::Tuple(values)) if parts.len() == values.len() => {
                let values = parts.iter().zip(values).map(|(part, value)| part.value(value));
                values.collect::<Result<_, _>>().map(Value::Tuple)
            }
            _ => Err(EvaluationError::expected(self, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Data;

    #[test]
    fn values_take_the_types_of_their_places() {
        let ty = DataType::Tuple(vec![
            ColumnType::U8.into(),
            DataType::Option(Box::new(ColumnType::LongText.into())),
            DataType::List(Box::new(ColumnType::I64.into())),
        ]);
        assert_eq!(ty.to_string(), "(u8, Option<text>, Vec<i64>)");
        let given = (Value::Integer(7, None), Some("a".to_owned()), vec![Value::Integer(-1, None)]).to_value();
        assert_eq!(ty.value(&given), Ok((7u8, Some("a".to_owned()), vec![-1i64]).to_value()));
        let refused = |given: Value| ty.value(&given).expect_err("of another type").to_string();
        assert_eq!(
            refused((7u8, None::<String>).to_value()),
            "expected (u8, Option<text>, Vec<i64>), found a tuple of 2"
        );
        assert_eq!(refused((7u16, None::<String>, vec![1i64]).to_value()), "expected u8, found a u16");
        assert_eq!(refused((7u8, "a".to_owned(), vec![1i64]).to_value()), "expected Option<text>, found a text");
        assert_eq!(refused((7u8, None::<String>, vec![1i8]).to_value()), "expected i64, found an i8");
        let large = (Value::Integer(256, None), None::<String>, Vec::<i64>::new()).to_value();
        assert_eq!(ty.value(&large), Err(EvaluationError::Overflow));
    }
}
