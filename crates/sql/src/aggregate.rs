//! Aggregates over the rows of a group.
//!
//! Sums and averages are computed by expressions of the catalogue, so overflow, scale and rounding are those of `+` and
//! `/`.

use std::collections::BTreeSet;

use seriatim::Abort;
use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::{Binary, Bound, Datum, Expression};

use crate::error::{SqlError, SqlState};
use crate::expression::{Aggregate, Call, Context, Nothing};
use crate::from::Parameters;
use crate::rows::{Distinct, Joined, Owned, Sources, order};
use crate::types::SqlType;

/// An aggregate whose argument and types are known.
#[derive(Clone, Debug)]
pub(crate) struct BoundCall {
    function: Aggregate,
    argument: Option<Bound>,
    is_distinct: bool,
    filter: Option<Bound>,
    /// The type of the result.
    pub(crate) result: ColumnType,
    /// The sum of `$1`, the sum so far, and `$2`, another argument.
    add: Option<Bound>,
    /// The average of the sum `$1` of `$2` arguments.
    divide: Option<Bound>,
}

/// What is known of a group for one aggregate.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    count: i128,
    /// The sum, or the extreme so far; NULL at first.
    value: Option<Owned>,
    seen: BTreeSet<Distinct>,
}

impl BoundCall {
    /// The call over these sources.
    ///
    /// # Errors
    /// There is no such aggregate for the type of the argument.
    pub(crate) fn bind(
        call: &Call,
        sources: &Sources,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<BoundCall, SqlError> {
        let argument =
            call.argument.as_ref().map(|argument| context.bind(argument, sources, parameters)).transpose()?;
        let filter = call.filter.as_ref().map(|filter| context.condition(filter, sources, parameters)).transpose()?;
        let ty = argument.as_ref().map(|argument| argument.column_type().unwrap_or(ColumnType::LongText));
        let undefined = || {
            let ty = ty.map_or_else(String::new, |ty| SqlType::of_stored(ty).to_string());
            let function = format!("{:?}", call.function).to_lowercase();
            SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {function}({ty}) does not exist"))
        };
        let (result, sum) = match (call.function, ty) {
            (Aggregate::Count, _) => (ColumnType::I64, None),
            (Aggregate::Min | Aggregate::Max, Some(ty)) if ty != ColumnType::Bool => (ty, None),
            (Aggregate::BoolAnd | Aggregate::BoolOr, Some(ColumnType::Bool)) => (ColumnType::Bool, None),
            (Aggregate::Sum, Some(ty)) => {
                let sum = sum_of(ty).ok_or_else(undefined)?;
                (sum, Some(sum))
            }
            (Aggregate::Avg, Some(ty)) => {
                let result = match sum_of(ty).ok_or_else(undefined)? {
                    ColumnType::F32 | ColumnType::F64 => ColumnType::F64,
                    _ => ColumnType::Numeric,
                };
                (result, Some(result))
            }
            _ => return Err(undefined()),
        };
        let of = |operator: Binary, types: [ColumnType; 2], to: ColumnType| {
            let parameter = |number| Expression::Parameter(number).cast(to);
            let expression = parameter(1).with(operator, parameter(2));
            Bound::new(&expression, &Nothing, &mut types.map(Some))
        };
        let add = match (sum, ty) {
            (Some(sum), Some(ty)) => Some(of(Binary::Add, [sum, ty], sum)?),
            _ => None,
        };
        let divide = match call.function {
            Aggregate::Avg => Some(of(Binary::Divide, [result, ColumnType::I64], result)?),
            _ => None,
        };
        let (function, is_distinct) = (call.function, call.is_distinct);
        Ok(BoundCall { function, argument, is_distinct, filter, result, add, divide })
    }

    /// Adds a row to a group.
    ///
    /// # Errors
    /// The argument or the sum has no value, or there are too many distinct ones to keep.
    pub(crate) fn add(&self, state: &mut State, joined: Joined<'_, '_>) -> Result<(), Abort> {
        let env = joined.env;
        if !joined.fulfils(self.filter.as_slice())? {
            return Ok(());
        }
        let value = match &self.argument {
            None => None,
            Some(argument) => match joined.value(argument)?.into_owned() {
                Datum::Null => return Ok(()),
                value => Some(value),
            },
        };
        if self.is_distinct {
            if !state.seen.insert(Distinct(value.iter().cloned().collect())) {
                return Ok(());
            }
            env.run.keep(value.as_slice()).map_err(|error| env.fail(error))?;
        }
        state.count += 1;
        let Some(value) = value else { return Ok(()) };
        let before = state.value.take();
        state.value = match (self.function, before) {
            (Aggregate::Count, _) => None,
            (Aggregate::Min, Some(before)) if order(&before, &value).is_le() => Some(before),
            (Aggregate::Max, Some(before)) if order(&before, &value).is_ge() => Some(before),
            (Aggregate::BoolAnd, Some(before @ Datum::Bool(false))) => Some(before),
            (Aggregate::BoolOr, Some(before @ Datum::Bool(true))) => Some(before),
            (Aggregate::Sum | Aggregate::Avg, before) => {
                // The first value is the sum of it and nothing, of the sum's type.
                let operands = [before.unwrap_or_else(|| self.zero()), value];
                let sum = self.add.as_ref().map(|add| computed(add, &operands)).transpose();
                sum.map_err(|error| env.fail(error))?
            }
            _ => Some(value),
        };
        Ok(())
    }

    fn zero(&self) -> Owned {
        match self.result {
            ColumnType::F32 => Datum::Single(0.0),
            ColumnType::F64 => Datum::Float(0.0),
            ColumnType::Numeric => Datum::Numeric(seriatim::Numeric::default()),
            ColumnType::Interval => Datum::Interval(seriatim::Interval::default()),
            _ => Datum::Integer(0),
        }
    }

    /// The result for a group.
    ///
    /// # Errors
    /// It has no value.
    pub(crate) fn finish(&self, state: State) -> Result<Owned, SqlError> {
        match (self.function, &self.divide, state.value) {
            (Aggregate::Count, ..) => Ok(Datum::Integer(state.count)),
            (_, Some(divide), Some(sum)) => computed(divide, &[sum, Datum::Integer(state.count)]),
            (.., value) => Ok(value.unwrap_or(Datum::Null)),
        }
    }
}

fn computed(bound: &Bound, operands: &[Owned]) -> Result<Owned, SqlError> {
    let none: &[Datum<'_>] = &[];
    Ok(bound.evaluate(none, operands)?.into_owned())
}

/// The type of a sum of values of this type.
fn sum_of(ty: ColumnType) -> Option<ColumnType> {
    Some(match ty {
        ColumnType::I8 | ColumnType::I16 | ColumnType::I32 | ColumnType::U8 | ColumnType::U16 => ColumnType::I64,
        ColumnType::U32
        | ColumnType::U64
        | ColumnType::I64
        | ColumnType::I128
        | ColumnType::U128
        | ColumnType::Numeric => ColumnType::Numeric,
        ColumnType::F32 => ColumnType::F32,
        ColumnType::F64 => ColumnType::F64,
        ColumnType::Interval => ColumnType::Interval,
        _ => return None,
    })
}
