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
use crate::rows::{Distinct, Joined, Owned, Sources, directed, order};
use crate::run::heap_bytes;
use crate::types::SqlType;

/// An aggregate whose argument and types are known.
#[derive(Clone, Debug)]
pub(crate) struct BoundCall {
    function: Aggregate,
    argument: Option<Bound>,
    is_distinct: bool,
    filter: Option<Bound>,
    separator: Option<Bound>,
    order: Vec<(Bound, bool, bool)>,
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
    /// The values that are put together: what they are ordered by, what stands before each, and each.
    parts: Vec<(Vec<Owned>, Owned, Owned)>,
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
            (Aggregate::StringAgg, Some(ColumnType::LongText)) | (Aggregate::ArrayAgg, Some(_)) => {
                (ColumnType::LongText, None)
            }
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
        let separator =
            call.separator.as_ref().map(|between| context.bind(between, sources, parameters)).transpose()?;
        let order = call.order.iter().map(|(by, descending, nulls_first)| {
            Ok::<_, SqlError>((context.bind(by, sources, parameters)?, *descending, *nulls_first))
        });
        let order = order.collect::<Result<_, _>>()?;
        let (function, is_distinct) = (call.function, call.is_distinct);
        Ok(BoundCall { function, argument, is_distinct, filter, separator, order, result, add, divide })
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
                Datum::Null if self.function != Aggregate::ArrayAgg => return Ok(()),
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
        if matches!(self.function, Aggregate::StringAgg | Aggregate::ArrayAgg) {
            let keys = self.order.iter().map(|(by, ..)| Ok(joined.value(by)?.into_owned()));
            let keys = keys.collect::<Result<Vec<Owned>, Abort>>()?;
            let before = self.separator.as_ref().map(|between| joined.value(between)).transpose()?;
            let part = (keys, before.map_or(Datum::Null, Datum::into_owned), value.unwrap_or(Datum::Null));
            let both = [std::slice::from_ref(&part.1), std::slice::from_ref(&part.2)];
            // The texts are kept once more when they are put together.
            let kept = both.iter().chain(&both).chain([&&*part.0]).try_for_each(|values| env.run.keep(values));
            kept.map_err(|error| env.fail(error))?;
            state.parts.push(part);
            return Ok(());
        }
        let Some(value) = value else { return Ok(()) };
        let before = state.value.take();
        let had = before.as_ref().map_or(0, heap_bytes);
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
        let has = state.value.as_ref().map_or(0, heap_bytes);
        if has != had {
            env.run.keep_instead(had, has).map_err(|error| env.fail(error))?;
        }
        Ok(())
    }

    /// The values as one text, or one array.
    fn together(&self, mut parts: Vec<(Vec<Owned>, Owned, Owned)>) -> Owned {
        if parts.is_empty() {
            return Datum::Null;
        }
        if self.is_distinct && self.order.is_empty() {
            parts.sort_by(|(.., a), (.., b)| order(a, b));
        }
        parts.sort_by(|(a, ..), (b, ..)| {
            let items = self.order.iter().zip(a.iter().zip(b));
            let by = |((_, descending, nulls_first), (a, b)): (&(Bound, bool, bool), (&Owned, &Owned))| {
                directed(a, b, *descending, *nulls_first)
            };
            items.map(by).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
        let ty = self.argument.as_ref().and_then(Bound::column_type);
        let shown = |value: &Owned| value.to_text(ty).into_owned();
        if self.function == Aggregate::ArrayAgg {
            let element = |(.., value): &(Vec<Owned>, Owned, Owned)| (!value.is_null()).then(|| shown(value));
            return Datum::Text(crate::array::to_text(parts.iter().map(element)).into());
        }
        let mut all = String::new();
        for (at, (_, before, value)) in parts.iter().enumerate() {
            if at > 0 {
                all.push_str(&before.to_text(None));
            }
            all.push_str(&shown(value));
        }
        Datum::Text(all.into())
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
        if matches!(self.function, Aggregate::StringAgg | Aggregate::ArrayAgg) {
            return Ok(self.together(state.parts));
        }
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
