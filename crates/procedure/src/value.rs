//! Data as values of columns, and back.
//!
//! The column's type decides: a datum of another type is refused and not converted, as by the compiler.

use seriatim_catalog::{ColumnDef, ColumnType, Value};

use crate::{Datum, EvaluationError, IntegerType};

/// The type of integers in columns of this type.
fn integer_type(ty: ColumnType) -> Option<IntegerType> {
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

impl Datum {
    /// A column's value: of a nullable column an `Option`.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] if the column cannot have this value, [`EvaluationError::Overflow`] if the
    /// number is out of its type's range.
    pub fn from_value(value: &Value, column: &ColumnDef) -> Result<Datum, EvaluationError> {
        let unfit = || {
            let (name, ty) = (&column.name, column.ty);
            EvaluationError::Type(format!("column `{name}` of type {ty} does not have the value {value}"))
        };
        let datum = match (value, column.ty) {
            (Value::Null, _) if column.nullable => return Ok(Datum::NONE),
            (&Value::Bool(value), ColumnType::Bool) => Datum::Bool(value),
            (Value::Int(_) | Value::UInt(_), ty) => {
                let number = match *value {
                    Value::Int(number) => i128::from(number),
                    Value::UInt(number) => i128::from(number),
                    _ => return Err(unfit()),
                };
                let ty = integer_type(ty).ok_or_else(unfit)?;
                if !ty.has(number) {
                    return Err(EvaluationError::Overflow);
                }
                Datum::Integer(number, Some(ty))
            }
            (&Value::Float(value), ColumnType::F64) => Datum::Float(value),
            (&Value::Decimal { units, scale }, ColumnType::Decimal { scale: wanted }) if scale == wanted => {
                Datum::Decimal { units, scale }
            }
            (&Value::Timestamp(microseconds), ColumnType::Timestamp) => Datum::Timestamp(microseconds),
            (Value::Text(text), ColumnType::Text { .. } | ColumnType::LongText) => Datum::Text(text.clone()),
            (Value::Bytes(bytes), ColumnType::Bytes { .. }) => Datum::Bytes(bytes.clone()),
            _ => return Err(unfit()),
        };
        Ok(if column.nullable { datum.some() } else { datum })
    }

    /// The datum as a column's value: of a nullable column an `Option`, NULL for `None`.
    ///
    /// # Errors
    /// [`EvaluationError::Type`] if it is of another type or longer than the column,
    /// [`EvaluationError::Overflow`] if it is an integer without a type that leaves the range of the
    /// column's.
    pub fn to_value(&self, column: &ColumnDef) -> Result<Value, EvaluationError> {
        let unfit = || {
            let (name, ty) = (&column.name, column.ty);
            let option = if column.nullable { ", in an Option" } else { "" };
            EvaluationError::expected(format_args!("a value for column `{name}` of type {ty}{option}"), self)
        };
        let datum = match (self, column.nullable) {
            (Datum::Option(None), true) => return Ok(Value::Null),
            (Datum::Option(Some(datum)), true) => datum,
            (datum, false) => datum,
            _ => return Err(unfit()),
        };
        let room = |bytes: usize, max: u16| {
            if bytes > usize::from(max) {
                let name = &column.name;
                let problem = format!("column `{name}`: the value has {bytes} bytes; the column has room for {max}");
                return Err(EvaluationError::Type(problem));
            }
            Ok(())
        };
        match (datum, column.ty) {
            (&Datum::Bool(value), ColumnType::Bool) => Ok(Value::Bool(value)),
            (&Datum::Integer(number, ty), _) => {
                let wanted =
                    integer_type(column.ty).filter(|wanted| ty.is_none_or(|ty| ty == *wanted)).ok_or_else(unfit)?;
                if !wanted.has(number) {
                    return Err(EvaluationError::Overflow);
                }
                let signed = i64::try_from(number).ok().filter(|_| wanted.range().0 < 0).map(Value::Int);
                signed.or_else(|| u64::try_from(number).ok().map(Value::UInt)).ok_or(EvaluationError::Overflow)
            }
            (&Datum::Float(value), ColumnType::F64) => Ok(Value::Float(value)),
            (&Datum::Decimal { units, scale }, ColumnType::Decimal { scale: wanted }) if scale == wanted => {
                Ok(Value::Decimal { units, scale })
            }
            (&Datum::Timestamp(microseconds), ColumnType::Timestamp) => Ok(Value::Timestamp(microseconds)),
            (Datum::Text(text), ColumnType::Text { max }) => {
                room(text.len(), max)?;
                Ok(Value::Text(text.clone()))
            }
            (Datum::Text(text), ColumnType::LongText) => Ok(Value::Text(text.clone())),
            (Datum::Bytes(bytes), ColumnType::Bytes { max }) => {
                room(bytes.len(), max)?;
                Ok(Value::Bytes(bytes.clone()))
            }
            _ => Err(unfit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Data;

    fn column(ty: ColumnType) -> ColumnDef {
        ColumnDef::new("c", ty)
    }

    #[test]
    fn values_survive_the_way_through_a_column() {
        for (datum, ty, value) in [
            (true.to_datum(), ColumnType::Bool, Value::Bool(true)),
            ((-5i8).to_datum(), ColumnType::I8, Value::Int(-5)),
            (i64::MIN.to_datum(), ColumnType::I64, Value::Int(i64::MIN)),
            (5i16.to_datum(), ColumnType::I16, Value::Int(5)),
            (u64::MAX.to_datum(), ColumnType::U64, Value::UInt(u64::MAX)),
            (1.5.to_datum(), ColumnType::F64, Value::Float(1.5)),
            (
                Datum::Decimal { units: -5, scale: 2 },
                ColumnType::Decimal { scale: 2 },
                Value::Decimal { units: -5, scale: 2 },
            ),
            (Datum::Timestamp(9), ColumnType::Timestamp, Value::Timestamp(9)),
            (Datum::Text("é".into()), ColumnType::Text { max: 2 }, Value::Text("é".into())),
            (Datum::Text("long".into()), ColumnType::LongText, Value::Text("long".into())),
            (Datum::Bytes(vec![0, 1]), ColumnType::Bytes { max: 2 }, Value::Bytes(vec![0, 1])),
        ] {
            assert_eq!(datum.to_value(&column(ty)), Ok(value.clone()));
            assert_eq!(Datum::from_value(&value, &column(ty)), Ok(datum.clone()));
            let nullable = column(ty).nullable();
            assert_eq!(datum.clone().some().to_value(&nullable), Ok(value.clone()));
            assert_eq!(Datum::from_value(&value, &nullable), Ok(datum.clone().some()));
            assert!(matches!(datum.to_value(&nullable), Err(EvaluationError::Type(_))));
            assert!(matches!(Datum::NONE.to_value(&column(ty)), Err(EvaluationError::Type(_))));
            assert!(matches!(Datum::from_value(&Value::Null, &column(ty)), Err(EvaluationError::Type(_))));
            assert_eq!(Datum::NONE.to_value(&nullable), Ok(Value::Null));
            assert_eq!(Datum::from_value(&Value::Null, &nullable), Ok(Datum::NONE));
        }
    }

    #[test]
    fn integers_without_a_type_take_the_columns() {
        assert_eq!(Datum::Integer(255, None).to_value(&column(ColumnType::U8)), Ok(Value::UInt(255)));
        assert_eq!(Datum::Integer(256, None).to_value(&column(ColumnType::U8)), Err(EvaluationError::Overflow));
        assert_eq!(Datum::from_value(&Value::Int(-1), &column(ColumnType::U8)), Err(EvaluationError::Overflow));
    }

    #[test]
    fn a_refusal_names_the_column_and_what_it_takes() {
        let says = |datum: Datum, ty| datum.to_value(&column(ty)).unwrap_err().to_string();
        assert_eq!(says(1u8.to_datum(), ColumnType::U16), "expected a value for column `c` of type u16, found a u8");
        assert_eq!(
            says(Datum::Text("abc".into()), ColumnType::Text { max: 2 }),
            "column `c`: the value has 3 bytes; the column has room for 2"
        );
        assert_eq!(
            says(Datum::Decimal { units: 1, scale: 4 }, ColumnType::Decimal { scale: 2 }),
            "expected a value for column `c` of type decimal(2), found a Decimal<4>"
        );
    }
}
