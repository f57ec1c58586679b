//! Arithmetic on data, with the results of [`crate::checked`] on the types they stand for.
//!
//! An integer without a type takes the type of the other operand. If neither has a type, neither has the
//! result, which must fit the first type that it is combined with. Generated code, where inference gives a
//! type from the start, may find the overflow earlier.

use crate::ir::{BinaryOperator, UnaryOperator};
use crate::{Datum, EvaluationError, IntegerType, compare};

/// Two integers and the type they have in common.
pub(crate) fn meet(a: &Datum, b: &Datum) -> Result<(i128, i128, Option<IntegerType>), EvaluationError> {
    let (&Datum::Integer(x, of_x), &Datum::Integer(y, of_y)) = (a, b) else {
        return Err(mixed(a, b));
    };
    if of_x.is_some() && of_y.is_some() && of_x != of_y {
        return Err(mixed(a, b));
    }
    let ty = of_x.or(of_y);
    let fits = |number: i128| ty.is_none_or(|ty| ty.has(number));
    if fits(x) && fits(y) { Ok((x, y, ty)) } else { Err(EvaluationError::Overflow) }
}

fn mixed(a: &Datum, b: &Datum) -> EvaluationError {
    EvaluationError::Type(format!("{} and {} are not numbers of one type", a.kind(), b.kind()))
}

/// The number, if the type has it.
pub(crate) fn integer(number: Option<i128>, ty: Option<IntegerType>) -> Result<Datum, EvaluationError> {
    match number {
        Some(number) if ty.is_none_or(|ty| ty.has(number)) => Ok(Datum::Integer(number, ty)),
        _ => Err(EvaluationError::Overflow),
    }
}

/// An infix operator on two values. `&&` and `||` are lazy only where their operands are expressions.
pub(crate) fn binary(operator: BinaryOperator, a: &Datum, b: &Datum) -> Result<Datum, EvaluationError> {
    let ordered = |wanted: fn(std::cmp::Ordering) -> bool| Ok(Datum::Bool(compare::order(a, b)?.is_some_and(wanted)));
    match operator {
        BinaryOperator::Equal => compare::equal(a, b).map(Datum::Bool),
        BinaryOperator::NotEqual => compare::equal(a, b).map(|equal| Datum::Bool(!equal)),
        BinaryOperator::Less => ordered(std::cmp::Ordering::is_lt),
        BinaryOperator::LessOrEqual => ordered(std::cmp::Ordering::is_le),
        BinaryOperator::Greater => ordered(std::cmp::Ordering::is_gt),
        BinaryOperator::GreaterOrEqual => ordered(std::cmp::Ordering::is_ge),
        BinaryOperator::And => Ok(Datum::Bool(truth(a)? && truth(b)?)),
        BinaryOperator::Or => Ok(Datum::Bool(truth(a)? || truth(b)?)),
        BinaryOperator::Add
        | BinaryOperator::Subtract
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::Remainder => arithmetic(operator, a, b),
    }
}

fn arithmetic(operator: BinaryOperator, a: &Datum, b: &Datum) -> Result<Datum, EvaluationError> {
    match (a, b) {
        (Datum::Integer(..), Datum::Integer(..)) => {
            let (x, y, ty) = meet(a, b)?;
            match operator {
                BinaryOperator::Add => integer(x.checked_add(y), ty),
                BinaryOperator::Subtract => integer(x.checked_sub(y), ty),
                BinaryOperator::Multiply => integer(x.checked_mul(y), ty),
                BinaryOperator::Divide => integer(x.checked_div(y), ty),
                // As in Rust, a remainder overflows where the quotient does: `i8::MIN % -1`.
                BinaryOperator::Remainder => {
                    integer(x.checked_div(y), ty)?;
                    integer(x.checked_rem(y), ty)
                }
                _ => Err(mixed(a, b)),
            }
        }
        (Datum::Float(x), Datum::Float(y)) => Ok(Datum::Float(match operator {
            BinaryOperator::Add => x + y,
            BinaryOperator::Subtract => x - y,
            BinaryOperator::Multiply => x * y,
            BinaryOperator::Divide => x / y,
            BinaryOperator::Remainder => x % y,
            _ => return Err(mixed(a, b)),
        })),
        (&Datum::Decimal { units: x, scale }, &Datum::Decimal { units: y, scale: other }) if scale == other => {
            let units = match operator {
                BinaryOperator::Add => x.checked_add(y),
                BinaryOperator::Subtract => x.checked_sub(y),
                _ => return Err(EvaluationError::Type("decimals have + and - only, and * with an i64".to_owned())),
            };
            Ok(Datum::Decimal { units: units.ok_or(EvaluationError::Overflow)?, scale })
        }
        (&Datum::Decimal { units, scale }, &Datum::Integer(factor, None | Some(IntegerType::I64)))
            if operator == BinaryOperator::Multiply =>
        {
            let factor = i64::try_from(factor).map_err(|_| EvaluationError::Overflow)?;
            Ok(Datum::Decimal { units: units.checked_mul(factor).ok_or(EvaluationError::Overflow)?, scale })
        }
        _ => Err(mixed(a, b)),
    }
}

/// A prefix operator on a value.
pub(crate) fn unary(operator: UnaryOperator, value: &Datum) -> Result<Datum, EvaluationError> {
    match (operator, value) {
        (UnaryOperator::Not, value) => Ok(Datum::Bool(!truth(value)?)),
        (UnaryOperator::Negate, &Datum::Integer(_, Some(ty))) if ty.range().0 == 0 => {
            Err(EvaluationError::Type(format!("{ty} has no negative numbers")))
        }
        // The literal of `-128i8` is 128, which no i8 is: only the result must fit.
        (UnaryOperator::Negate, &Datum::Integer(number, ty)) => integer(number.checked_neg(), ty),
        (UnaryOperator::Negate, &Datum::Float(number)) => Ok(Datum::Float(-number)),
        (UnaryOperator::Negate, &Datum::Decimal { units, scale }) => {
            Ok(Datum::Decimal { units: units.checked_neg().ok_or(EvaluationError::Overflow)?, scale })
        }
        (UnaryOperator::Negate, value) => Err(EvaluationError::expected("a number", value)),
    }
}

/// A truth value.
pub(crate) fn truth(value: &Datum) -> Result<bool, EvaluationError> {
    match value {
        Datum::Bool(value) => Ok(*value),
        _ => Err(EvaluationError::expected("bool", value)),
    }
}
