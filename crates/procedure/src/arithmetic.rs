//! Arithmetic on data, with the results of [`crate::checked`] on the types they stand for.
//!
//! An integer without a type takes the type of the other operand. If neither has a type, neither has the
//! result, which must fit the first type that it is combined with. Generated code, where inference gives a
//! type from the start, may find the overflow earlier.

use crate::ir::{BinaryOperator, UnaryOperator};
use crate::{EvaluationError, IntegerType, Value, compare};

/// Two integers and the type they have in common.
pub(crate) fn meet(a: &Value, b: &Value) -> Result<(i128, i128, Option<IntegerType>), EvaluationError> {
    let (&Value::Integer(x, of_x), &Value::Integer(y, of_y)) = (a, b) else {
        return Err(mixed(a, b));
    };
    if of_x.is_some() && of_y.is_some() && of_x != of_y {
        return Err(mixed(a, b));
    }
    let ty = of_x.or(of_y);
    let fits = |number: i128| ty.is_none_or(|ty| ty.has(number));
    if fits(x) && fits(y) { Ok((x, y, ty)) } else { Err(EvaluationError::Overflow) }
}

fn mixed(a: &Value, b: &Value) -> EvaluationError {
    EvaluationError::Type(format!("{} and {} are not numbers of one type", a.kind(), b.kind()))
}

/// The number, if the type has it.
pub(crate) fn integer(number: Option<i128>, ty: Option<IntegerType>) -> Result<Value, EvaluationError> {
    match number {
        Some(number) if ty.is_none_or(|ty| ty.has(number)) => Ok(Value::Integer(number, ty)),
        _ => Err(EvaluationError::Overflow),
    }
}

/// An infix operator on two values. `&&` and `||` are lazy only where their operands are expressions.
pub(crate) fn binary(operator: BinaryOperator, a: &Value, b: &Value) -> Result<Value, EvaluationError> {
    let ordered = |wanted: fn(std::cmp::Ordering) -> bool| Ok(Value::Bool(compare::order(a, b)?.is_some_and(wanted)));
    match operator {
        BinaryOperator::Equal => compare::equal(a, b).map(Value::Bool),
        BinaryOperator::NotEqual => compare::equal(a, b).map(|equal| Value::Bool(!equal)),
        BinaryOperator::Less => ordered(std::cmp::Ordering::is_lt),
        BinaryOperator::LessOrEqual => ordered(std::cmp::Ordering::is_le),
        BinaryOperator::Greater => ordered(std::cmp::Ordering::is_gt),
        BinaryOperator::GreaterOrEqual => ordered(std::cmp::Ordering::is_ge),
        BinaryOperator::And => Ok(Value::Bool(truth(a)? && truth(b)?)),
        BinaryOperator::Or => Ok(Value::Bool(truth(a)? || truth(b)?)),
        BinaryOperator::Add
        | BinaryOperator::Subtract
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::Remainder => arithmetic(operator, a, b),
    }
}

fn arithmetic(operator: BinaryOperator, a: &Value, b: &Value) -> Result<Value, EvaluationError> {
    match (a, b) {
        (Value::Integer(..), Value::Integer(..)) => {
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
        (Value::Float(x), Value::Float(y)) => Ok(Value::Float(match operator {
            BinaryOperator::Add => x + y,
            BinaryOperator::Subtract => x - y,
            BinaryOperator::Multiply => x * y,
            BinaryOperator::Divide => x / y,
            BinaryOperator::Remainder => x % y,
            _ => return Err(mixed(a, b)),
        })),
        (&Value::Decimal { units: x, scale }, &Value::Decimal { units: y, scale: other }) if scale == other => {
            let units = match operator {
                BinaryOperator::Add => x.checked_add(y),
                BinaryOperator::Subtract => x.checked_sub(y),
                _ => return Err(EvaluationError::Type("decimals have + and - only, and * with an i64".to_owned())),
            };
            Ok(Value::Decimal { units: units.ok_or(EvaluationError::Overflow)?, scale })
        }
        (&Value::Decimal { units, scale }, &Value::Integer(factor, None | Some(IntegerType::I64)))
            if operator == BinaryOperator::Multiply =>
        {
            let factor = i64::try_from(factor).map_err(|_| EvaluationError::Overflow)?;
            Ok(Value::Decimal { units: units.checked_mul(factor).ok_or(EvaluationError::Overflow)?, scale })
        }
        _ => Err(mixed(a, b)),
    }
}

/// A prefix operator on a value.
pub(crate) fn unary(operator: UnaryOperator, value: &Value) -> Result<Value, EvaluationError> {
    match (operator, value) {
        (UnaryOperator::Not, value) => Ok(Value::Bool(!truth(value)?)),
        (UnaryOperator::Negate, &Value::Integer(_, Some(ty))) if ty.range().0 == 0 => {
            Err(EvaluationError::Type(format!("{ty} has no negative numbers")))
        }
        // The literal of `-128i8` is 128, which no i8 is: only the result must fit.
        (UnaryOperator::Negate, &Value::Integer(number, ty)) => integer(number.checked_neg(), ty),
        (UnaryOperator::Negate, &Value::Float(number)) => Ok(Value::Float(-number)),
        (UnaryOperator::Negate, &Value::Decimal { units, scale }) => {
            Ok(Value::Decimal { units: units.checked_neg().ok_or(EvaluationError::Overflow)?, scale })
        }
        (UnaryOperator::Negate, value) => Err(EvaluationError::expected("a number", value)),
    }
}

/// A truth value.
pub(crate) fn truth(value: &Value) -> Result<bool, EvaluationError> {
    match value {
        Value::Bool(value) => Ok(*value),
        _ => Err(EvaluationError::expected("bool", value)),
    }
}
