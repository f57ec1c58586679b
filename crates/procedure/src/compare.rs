//! Equality and order of data, as the operators of the Rust types they stand for.
//!
//! Both operands have the same type, except that integers without one take the other's. Structs order by their
//! fields as listed, which is the declared order if `#[derive(Data)]` made them. Variants of an enum are equal
//! or not. Two different variants have no order, because a value does not know the order of their declaration.

use std::cmp::Ordering;

use seriatim_catalog::ScalarType;

use crate::arithmetic::meet;
use crate::{EvaluationError, Value, field};

fn incomparable(a: &Value, b: &Value) -> EvaluationError {
    EvaluationError::Type(format!("{} cannot be compared with {}", a.kind(), b.kind()))
}

/// Whether `a == b`.
pub(crate) fn equal(a: &Value, b: &Value) -> Result<bool, EvaluationError> {
    match (a, b) {
        (Value::Option(None), Value::Option(Some(_))) | (Value::Option(Some(_)), Value::Option(None)) => Ok(false),
        (Value::List(x), Value::List(y)) if x.len() != y.len() => Ok(false),
        (Value::Tuple(x), Value::Tuple(y)) if x.len() != y.len() => Err(incomparable(a, b)),
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => all_equal(x.iter().zip(y)),
        (Value::Option(Some(x)), Value::Option(Some(y))) => equal(x, y),
        (Value::Record { name: x, .. }, Value::Record { name: y, .. }) if x != y => Ok(false),
        (Value::Record { fields: x, .. }, Value::Record { fields: y, .. }) => {
            if x.len() != y.len() {
                return Err(incomparable(a, b));
            }
            let pairs = x.iter().map(|(name, value)| Ok((value, field(b, name)?)));
            all_equal(pairs.collect::<Result<Vec<_>, EvaluationError>>()?.into_iter())
        }
        _ => Ok(order(a, b)? == Some(Ordering::Equal)),
    }
}

fn all_equal<'d>(mut pairs: impl Iterator<Item = (&'d Value, &'d Value)>) -> Result<bool, EvaluationError> {
    pairs.try_fold(true, |equal_so_far, (a, b)| Ok(equal_so_far && equal(a, b)?))
}

/// The order of `a` relative to `b`; `None` where a float is not a number.
pub(crate) fn order(a: &Value, b: &Value) -> Result<Option<Ordering>, EvaluationError> {
    Ok(match (a, b) {
        (Value::Bool(x), Value::Bool(y)) => Some(x.cmp(y)),
        (Value::Integer(..), Value::Integer(..)) => {
            let (x, y, _) = meet(a, b)?;
            Some(x.cmp(&y))
        }
        (Value::Float(x), Value::Float(y)) => x.partial_cmp(y),
        (Value::Decimal { units: x, scale }, Value::Decimal { units: y, scale: other }) if scale == other => {
            Some(x.cmp(y))
        }
        (Value::Timestamp(x), Value::Timestamp(y)) => Some(x.cmp(y)),
        (Value::Text(x), Value::Text(y)) => Some(x.cmp(y)),
        (Value::Bytes(x), Value::Bytes(y)) => Some(x.cmp(y)),
        (Value::Scalar(x), Value::Scalar(y)) if x.column_type() == y.column_type() => {
            match (f32::of_scalar(x), f32::of_scalar(y)) {
                (Some(x), Some(y)) => x.partial_cmp(&y),
                _ => x.partial_cmp(y),
            }
        }
        (Value::Option(None), Value::Option(None)) => Some(Ordering::Equal),
        (Value::Option(None), Value::Option(Some(_))) => Some(Ordering::Less),
        (Value::Option(Some(_)), Value::Option(None)) => Some(Ordering::Greater),
        (Value::Option(Some(x)), Value::Option(Some(y))) => order(x, y)?,
        (Value::Tuple(x), Value::Tuple(y)) if x.len() == y.len() => lexicographic(x.iter(), y.iter())?,
        (Value::List(x), Value::List(y)) => lexicographic(x.iter(), y.iter())?,
        (Value::Record { name: x, fields: xs }, Value::Record { name: y, fields: ys })
            if x == y && xs.iter().map(|(name, _)| name).eq(ys.iter().map(|(name, _)| name)) =>
        {
            lexicographic(xs.iter().map(|(_, value)| value), ys.iter().map(|(_, value)| value))?
        }
        _ => return Err(incomparable(a, b)),
    })
}

/// The order of `a` relative to `b`, for types with a total order.
pub(crate) fn total_order(a: &Value, b: &Value) -> Result<Ordering, EvaluationError> {
    if has_float(a) || has_float(b) {
        return Err(EvaluationError::Type("floats have no total order".to_owned()));
    }
    order(a, b)?.ok_or_else(|| incomparable(a, b))
}

fn has_float(value: &Value) -> bool {
    match value {
        Value::Float(_) => true,
        Value::Scalar(scalar) => f32::of_scalar(scalar).is_some(),
        Value::Option(value) => value.as_deref().is_some_and(has_float),
        Value::Tuple(values) | Value::List(values) => values.iter().any(has_float),
        Value::Record { fields, .. } => fields.iter().any(|(_, value)| has_float(value)),
        _ => false,
    }
}

fn lexicographic<'d>(
    a: impl ExactSizeIterator<Item = &'d Value>,
    b: impl ExactSizeIterator<Item = &'d Value>,
) -> Result<Option<Ordering>, EvaluationError> {
    let lengths = a.len().cmp(&b.len());
    for (x, y) in a.zip(b) {
        let ordering = order(x, y)?;
        if ordering != Some(Ordering::Equal) {
            return Ok(ordering);
        }
    }
    Ok(Some(lengths))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Data;

    fn agree<T: Data + PartialOrd>(values: &[T]) {
        for a in values {
            for b in values {
                assert_eq!(order(&a.to_value(), &b.to_value()), Ok(a.partial_cmp(b)));
                assert_eq!(equal(&a.to_value(), &b.to_value()), Ok(a == b));
            }
        }
    }

    #[test]
    fn data_compare_as_the_values_they_stand_for() {
        agree(&[false, true]);
        agree(&[i64::MIN, -1, 0, i64::MAX]);
        agree(&[f64::NEG_INFINITY, -0.0, 0.0, 1.5, f64::NAN]);
        agree(&[None, Some(1u8), Some(2)]);
        agree(&["", "a", "ab", "b", "é"].map(str::to_owned));
        agree(&[vec![], vec![1u8], vec![1, 2], vec![2]]);
        agree(&[(1u8, true), (1, false), (0, true)]);
        agree(&[vec![f64::NAN], vec![], vec![1.0, f64::NAN], vec![1.0, 2.0]]);
    }

    #[test]
    fn literals_compare_by_value_if_they_fit() {
        assert_eq!(equal(&Value::Integer(5, None), &5u8.to_value()), Ok(true));
        assert_eq!(equal(&Value::Integer(300, None), &5u8.to_value()), Err(EvaluationError::Overflow));
        assert_eq!(order(&5u8.to_value(), &Value::Integer(6, None)), Ok(Some(Ordering::Less)));
    }

    #[test]
    fn different_types_do_not_compare() {
        for (a, b) in [
            (1u8.to_value(), 1u16.to_value()),
            (1u8.to_value(), true.to_value()),
            (Value::UNIT, (1u8,).to_value()),
            (Value::Decimal { units: 1, scale: 2 }, Value::Decimal { units: 1, scale: 4 }),
        ] {
            assert!(matches!(equal(&a, &b), Err(EvaluationError::Type(_))), "{a} {b}");
            assert!(matches!(order(&a, &b), Err(EvaluationError::Type(_))), "{a} {b}");
        }
        assert!(total_order(&Some(1.0).to_value(), &Some(2.0).to_value()).is_err());
    }

    #[test]
    fn variants_are_equal_or_not_but_have_no_order() {
        let (a, b) = (Value::record("A", []), Value::record("B", []));
        assert_eq!(equal(&a, &b), Ok(false));
        assert_eq!(equal(&a, &a), Ok(true));
        assert!(order(&a, &b).is_err());
        let point = |x: u8, y: u8| Value::record("P", [("x", x.to_value()), ("y", y.to_value())]);
        let turned = Value::record("P", [("y", 2u8.to_value()), ("x", 1u8.to_value())]);
        assert_eq!(order(&point(1, 2), &point(1, 3)), Ok(Some(Ordering::Less)));
        assert_eq!(equal(&point(1, 2), &turned), Ok(true));
        assert!(order(&point(1, 2), &turned).is_err());
    }
}
