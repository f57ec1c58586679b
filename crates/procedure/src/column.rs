//! Which values of procedures a column takes.

use seriatim_catalog::{ColumnDef, ColumnType, IntegerType, Value};

use crate::EvaluationError;

/// Whether a column can have this value: of a nullable column an `Option`. A value of another type is refused and not
/// converted, as by the compiler. Lengths are checked when the value is written.
///
/// # Errors
/// [`EvaluationError::Type`] if it is of another type; [`EvaluationError::Overflow`] if it is an integer without a type
/// that leaves the range of the column's.
pub fn check_column(value: &Value, column: &ColumnDef) -> Result<(), EvaluationError> {
    let inner = match (value, column.nullable) {
        (Value::Option(None), true) => return Ok(()),
        (Value::Option(Some(inner)), true) => Some(&**inner),
        (value, false) => Some(value),
        _ => None,
    };
    let fits = inner.is_some_and(|inner| match (inner, column.ty) {
        (Value::Bool(_), ColumnType::Bool)
        | (Value::Float(_), ColumnType::F64)
        | (Value::Timestamp(_), ColumnType::Timestamp)
        | (Value::Text(_), ColumnType::Text { .. } | ColumnType::LongText)
        | (Value::Bytes(_) | Value::List(_), ColumnType::LongBytes | ColumnType::ByteArray { .. })
        | (Value::Bytes(_), ColumnType::Bytes { .. }) => true,
        (Value::Scalar(scalar), ty) => scalar.column_type() == ty,
        (Value::Record { name, fields }, ColumnType::Enum { variants }) => {
            fields.is_empty() && variants.discriminant(name).is_some()
        }
        (Value::Decimal { scale, .. }, ColumnType::Decimal { scale: wanted }) => *scale == wanted,
        (Value::Integer(_, None), ty) => IntegerType::of_column(ty).is_some(),
        (Value::Integer(_, ty), column) => *ty == IntegerType::of_column(column),
        _ => false,
    });
    match inner {
        Some(Value::Integer(number, _))
            if fits && !IntegerType::of_column(column.ty).is_some_and(|ty| ty.has(*number)) =>
        {
            Err(EvaluationError::Overflow)
        }
        _ if fits => Ok(()),
        _ => {
            let (name, ty, option) = (&column.name, column.ty, if column.nullable { ", in an Option" } else { "" });
            Err(EvaluationError::expected(format_args!("a value for column `{name}` of type {ty}{option}"), value))
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_catalog::{Date, Variant, Variants};

    use super::*;
    use crate::Data;

    fn column(ty: ColumnType) -> ColumnDef {
        ColumnDef::new("c", ty)
    }

    #[test]
    fn a_column_takes_values_of_its_own_type_only() {
        let values = [
            (true.to_value(), ColumnType::Bool),
            ((-5i8).to_value(), ColumnType::I8),
            (5i16.to_value(), ColumnType::I16),
            (i64::MIN.to_value(), ColumnType::I64),
            (u64::MAX.to_value(), ColumnType::U64),
            (1.5.to_value(), ColumnType::F64),
            (Value::Decimal { units: -5, scale: 2 }, ColumnType::Decimal { scale: 2 }),
            (Value::Decimal { units: -5, scale: 3 }, ColumnType::Decimal { scale: 3 }),
            (Value::Timestamp(9), ColumnType::Timestamp),
            (Value::Text("é".into()), ColumnType::Text { max: 2 }),
            (Value::Bytes(vec![0, 1]), ColumnType::Bytes { max: 2 }),
        ];
        for (at, (value, _)) in values.iter().enumerate() {
            for (of, (_, ty)) in values.iter().enumerate() {
                let (plain, nullable) = (column(*ty), column(*ty).nullable());
                let is_refused = |result| matches!(result, Err(EvaluationError::Type(_)));
                assert_eq!(check_column(value, &plain).is_ok(), at == of, "{value} for {ty}");
                assert_eq!(check_column(&value.clone().some(), &nullable).is_ok(), at == of, "Some({value}) for {ty}");
                assert!(is_refused(check_column(value, &nullable)) && is_refused(check_column(&Value::NONE, &plain)));
                assert_eq!(check_column(&Value::NONE, &nullable), Ok(()));
            }
        }
        assert_eq!(check_column(&"long".to_owned().to_value(), &column(ColumnType::LongText)), Ok(()));
        assert_eq!(check_column(&vec![1u8].to_value(), &column(ColumnType::LongBytes)), Ok(()));
        assert_eq!(check_column(&[1u8, 2].to_value(), &column(ColumnType::ByteArray { bytes: 2 })), Ok(()));
        assert_eq!(check_column(&Date::MAX.to_value(), &column(ColumnType::Date)), Ok(()));
        assert!(check_column(&Date::MAX.to_value(), &column(ColumnType::Time)).is_err());
        let variants = Variants::declared(const { &[Variant::new(0, "On")] });
        let check = |name| check_column(&Value::record(name, []), &column(ColumnType::Enum { variants }));
        assert!(check("On") == Ok(()) && check("Off").is_err());
    }

    #[test]
    fn integers_without_a_type_take_the_columns() {
        let check = |number| check_column(&Value::Integer(number, None), &column(ColumnType::U8));
        assert_eq!((check(255), check(256)), (Ok(()), Err(EvaluationError::Overflow)));
        assert!(check_column(&Value::Integer(1, None), &column(ColumnType::Bool)).is_err());
    }

    #[test]
    fn a_refusal_names_the_column_and_what_it_takes() {
        let says = |value: Value, ty| check_column(&value, &column(ty)).unwrap_err().to_string();
        assert_eq!(says(1u8.to_value(), ColumnType::U16), "expected a value for column `c` of type u16, found a u8");
        assert_eq!(
            says(Value::Decimal { units: 1, scale: 4 }, ColumnType::Decimal { scale: 2 }),
            "expected a value for column `c` of type decimal(2), found a Decimal<4>"
        );
    }
}
