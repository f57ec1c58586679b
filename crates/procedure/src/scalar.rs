//! Expressions of SQL as functions of a procedure: those of the catalogue, over arguments `$1`, `$2` and so on.
//!
//! NULL is an absent value ([`Value::Option`]). An error keeps its SQLSTATE ([`EvaluationError::Expression`]). A
//! function sees its arguments alone: one that asks for the time or a sequence is refused, and wants an argument more.

use std::fmt;

use seriatim_catalog::expression::{
    Bound, Datum, Expression, ExpressionError, ExpressionErrorKind, NoColumns, assigned,
};
use seriatim_catalog::{ColumnDef, ColumnType};

use crate::{EvaluationError, Value};

/// An expression of SQL with the types of its arguments.
#[derive(Clone)]
pub struct Scalar {
    text: String,
    bound: Bound,
    parameters: Box<[ColumnType]>,
    result: ScalarResult,
    is_total: bool,
}

/// What an expression gives.
#[derive(Clone)]
enum ScalarResult {
    /// A value of this type, in an `Option`.
    Value(ColumnType),
    /// What this column stores.
    Stored(Box<ColumnDef>),
    /// Whether it is true: a `bool`. NULL is not.
    Truth,
}

impl Scalar {
    /// A value, in an `Option`. `parameters` has the types of the arguments.
    ///
    /// # Errors
    /// The expression has no sense for these types; it has no type itself; it needs more than its arguments.
    pub fn value(expression: &Expression, parameters: &[ColumnType]) -> Result<Scalar, ExpressionError> {
        let bound = Bound::new(expression, &NoColumns, &mut given(parameters))?;
        let Some(ty) = bound.column_type() else {
            let problem = "its type is not known; cast it".to_owned();
            return Err(ExpressionError::new(ExpressionErrorKind::UndefinedParameter, expression, problem));
        };
        Scalar::of(expression, bound, parameters, ScalarResult::Value(ty))
    }

    /// What an assignment to this column stores: an `Option` if the column is nullable.
    ///
    /// # Errors
    /// As [`Scalar::value`]; no value of its type is stored in such a column without a cast.
    pub fn stored(
        expression: &Expression,
        parameters: &[ColumnType],
        column: &ColumnDef,
    ) -> Result<Scalar, ExpressionError> {
        let bound = Bound::assigning(expression, &NoColumns, &mut given(parameters), column.ty)?;
        Scalar::of(expression, bound, parameters, ScalarResult::Stored(Box::new(column.clone())))
    }

    /// Whether a condition is true, as a `bool`.
    ///
    /// # Errors
    /// As [`Scalar::value`]; it is no condition.
    pub fn condition(expression: &Expression, parameters: &[ColumnType]) -> Result<Scalar, ExpressionError> {
        let bound = Bound::condition(expression, &NoColumns, &mut given(parameters))?;
        Scalar::of(expression, bound, parameters, ScalarResult::Truth)
    }

    fn of(
        expression: &Expression,
        bound: Bound,
        parameters: &[ColumnType],
        result: ScalarResult,
    ) -> Result<Scalar, ExpressionError> {
        if !bound.is_pure() {
            let problem = "a procedure computes with its arguments alone; pass this value as one".to_owned();
            return Err(ExpressionError::new(ExpressionErrorKind::UndefinedFunction, expression, problem));
        }
        let fits = match &result {
            ScalarResult::Value(_) | ScalarResult::Truth => true,
            ScalarResult::Stored(column) => column.nullable && bound.column_type() == Some(column.ty),
        };
        let is_total = fits && bound.is_total();
        Ok(Scalar { text: expression.to_string(), bound, parameters: parameters.into(), result, is_total })
    }

    /// Whether it has a value for all arguments.
    pub fn is_total(&self) -> bool {
        self.is_total
    }

    /// Its value for these arguments.
    ///
    /// # Errors
    /// [`EvaluationError::Expression`] if it has none; [`EvaluationError::Type`] for too many or too few arguments, or
    /// one of another type.
    pub fn evaluate(&self, arguments: &[Value]) -> Result<Value, EvaluationError> {
        if arguments.len() != self.parameters.len() {
            let (wanted, given) = (self.parameters.len(), arguments.len());
            return Err(EvaluationError::Type(format!("`{}` has {wanted} arguments, found {given}", self.text)));
        }
        let datum = |(value, ty): (_, &ColumnType)| {
            Datum::of_value(value, *ty).ok_or_else(|| EvaluationError::expected(format_args!("a value of {ty}"), value))
        };
        let given = arguments.iter().zip(&self.parameters).map(datum).collect::<Result<Vec<_>, _>>()?;
        let none: &[Datum<'_>] = &[];
        let value = self.bound.evaluate(none, &given).map_err(EvaluationError::Expression)?;
        match &self.result {
            ScalarResult::Truth => Ok(Value::Bool(value == Datum::Bool(true))),
            ScalarResult::Stored(column) => {
                assigned(value, self.bound.column_type(), column).map_err(EvaluationError::Expression)
            }
            ScalarResult::Value(_) if value.is_null() => Ok(Value::NONE),
            ScalarResult::Value(ty) => {
                let wanted = || EvaluationError::Type(format!("`{}` is no value of {ty}", self.text));
                value.to_value(*ty).map(Value::some).ok_or_else(wanted)
            }
        }
    }
}

/// The types of parameters that are all known.
fn given(parameters: &[ColumnType]) -> Vec<Option<ColumnType>> {
    parameters.iter().copied().map(Some).collect()
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Data;

    fn parsed(text: &str) -> Expression {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn null_is_an_absent_value() {
        let sum = Scalar::value(&parsed("$1 + coalesce($2, 7)"), &[ColumnType::I32, ColumnType::I32]).expect("typed");
        let of = |a: Option<i32>, b: Option<i32>| sum.evaluate(&[a.to_value(), b.to_value()]);
        assert_eq!(of(Some(1), Some(2)), Ok(Some(3i32).to_value()));
        assert_eq!(of(Some(1), None), Ok(Some(8i32).to_value()));
        assert_eq!(of(None, Some(2)), Ok(Value::NONE));
        assert_eq!(
            sum.evaluate(&[1i32.to_value(), Value::NONE]),
            Ok(Some(8i32).to_value()),
            "a value without `Option`"
        );
        let less = Scalar::condition(&parsed("$1 < 3"), &[ColumnType::I32]).expect("a condition");
        let holds = |a: Option<i32>| less.evaluate(&[a.to_value()]);
        assert_eq!([holds(Some(2)), holds(Some(3)), holds(None)], [true, false, false].map(|is| Ok(is.to_value())));
    }

    #[test]
    fn an_error_keeps_its_class() {
        let divided = Scalar::value(&parsed("10 / $1"), &[ColumnType::I32]).expect("typed");
        let class = |scalar: &Scalar, argument: Value| match scalar.evaluate(&[argument]) {
            Err(EvaluationError::Expression(error)) => error.sqlstate(),
            other => panic!("{other:?}"),
        };
        assert_eq!(class(&divided, 0i32.to_value()), "22012");
        let column = ColumnDef::new("c", ColumnType::I16);
        let stored = Scalar::stored(&parsed("$1"), &[ColumnType::I32], &column).expect("assignable");
        assert_eq!(stored.evaluate(&[7i32.to_value()]), Ok(7i16.to_value()));
        assert_eq!(class(&stored, 70_000i32.to_value()), "22003");
        assert_eq!(class(&stored, Value::NONE), "23502");
        let nullable = Scalar::stored(&parsed("$1"), &[ColumnType::I32], &column.nullable()).expect("assignable");
        assert_eq!(nullable.evaluate(&[Value::NONE]), Ok(Value::NONE));
        assert!(matches!(divided.evaluate(&[]), Err(EvaluationError::Type(_))));
        assert!(matches!(divided.evaluate(&[true.to_value()]), Err(EvaluationError::Type(_))));
    }

    #[test]
    fn only_what_cannot_fail_is_total() {
        let two = [ColumnType::I32, ColumnType::LongText];
        let is_total = |text: &str| Scalar::value(&parsed(text), &two).expect("typed").is_total();
        for text in ["$1", "$1 > 3 and $2 = 'a'", "coalesce($1, 4)", "case when $1 is null then $2 else 'b' end"] {
            assert!(is_total(text), "{text}");
        }
        for text in ["$1 + 1", "$2::int", "$2 like 'a%'", "coalesce($1, 1 / $1)"] {
            assert!(!is_total(text), "{text}");
        }
        let column = ColumnDef::new("c", ColumnType::I32);
        let stored = |column: &ColumnDef| Scalar::stored(&parsed("$1"), &two, column).expect("assignable").is_total();
        assert!(!stored(&column) && stored(&column.nullable()), "NULL has no place in the first");
    }

    #[test]
    fn what_is_more_than_its_arguments_is_refused() {
        let refused = |text: &str| Scalar::value(&parsed(text), &[]).map(drop).expect_err("it asks").to_string();
        assert!(refused("now()").contains("pass this value as one"), "{}", refused("now()"));
        assert!(refused("null").contains("type is not known"), "{}", refused("null"));
    }
}
