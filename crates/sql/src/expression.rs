//! Expressions of statements as expressions of the catalogue, which has their meaning.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use seriatim::catalog::expression::{
    Binary, Bound, EvaluationError, Expression, ExpressionError, ExpressionErrorKind, Literal, Unary, assigned,
};
use seriatim::catalog::{ColumnDef, ColumnType, Timestamp};
use seriatim::{DynHandle, Value};
use sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, CastKind, CeilFloorKind, DataType, DuplicateTreatment, Expr,
    Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident, InTarget, OrderByExpr,
    OrderBySort, Query, Subscript, TrimWhereField, UnaryOperator, Value as LiteralSyntax,
};

pub(crate) use seriatim::catalog::expression::NoColumns as Nothing;

use crate::error::{SqlError, SqlState};
use crate::from::{Parameters, column_type};
use crate::names::{CATALOG, SCHEMA, name};
use crate::rows::Sources;
use crate::subquery::{Kind, Outer, Queries};
use crate::surroundings::Around;
use crate::system::INFORMATION;
use crate::types::SqlType;

/// What a session knows when it binds a statement.
#[derive(Debug)]
pub(crate) struct Context {
    /// The time at which the transaction began.
    pub(crate) now: Timestamp,
    /// The role as which the session acts, and that which it has.
    pub(crate) user: String,
    pub(crate) session_user: String,
    /// Whether the statement has asked for the time.
    pub(crate) asked_for_time: Cell<bool>,
    /// Whether the statement has asked for a role of the session.
    pub(crate) asked_for_user: Cell<bool>,
    /// Whether it takes numbers of sequences.
    pub(crate) takes_numbers: Cell<bool>,
    /// Whether what is bound calls functions that have another value each time.
    pub(crate) is_volatile: Cell<bool>,
    /// Whether it asks for settings, or changes some.
    pub(crate) asked_for_settings: Cell<bool>,
    /// Parameters that are arrays, and their types.
    pub(crate) arrays: RefCell<Vec<(usize, SqlType)>>,
    /// What its functions ask.
    pub(crate) around: Arc<Around>,
    /// The tables that it names.
    pub(crate) tables: RefCell<Vec<DynHandle>>,
    /// Those of which it locks rows in queries.
    pub(crate) locked: RefCell<Vec<DynHandle>>,
    /// The queries in it.
    pub(crate) queries: Queries,
}

/// The name by which the database is called.
pub(crate) const DATABASE: &str = "postgres";

/// The version of PostgreSQL whose protocol and meaning this is.
pub const VERSION: &str = "15.8";

impl From<EvaluationError> for SqlError {
    fn from(error: EvaluationError) -> SqlError {
        SqlError::new(SqlState(error.sqlstate()), error.to_string())
    }
}

impl From<ExpressionError> for SqlError {
    fn from(error: ExpressionError) -> SqlError {
        let state = SqlState(error.sqlstate());
        match error.kind() {
            // The value says enough.
            ExpressionErrorKind::InvalidConstant => SqlError::new(state, error.problem()),
            _ => SqlError::new(state, error.to_string()),
        }
    }
}

/// A call of an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) function: Aggregate,
    /// Its argument; none of `count(*)`.
    pub(crate) argument: Option<Expression>,
    pub(crate) is_distinct: bool,
    /// Which rows count.
    pub(crate) filter: Option<Expression>,
    /// What stands between texts.
    pub(crate) separator: Option<Expression>,
    /// In which order they are taken: by what, whether descending, and whether NULL is first.
    pub(crate) order: Vec<(Expression, bool, bool)>,
}

/// An aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub(crate) enum Aggregate {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BoolAnd,
    BoolOr,
    StringAgg,
    ArrayAgg,
}

impl Aggregate {
    fn named(name: &str) -> Option<Aggregate> {
        Some(match name {
            "count" => Aggregate::Count,
            "sum" => Aggregate::Sum,
            "avg" => Aggregate::Avg,
            "min" => Aggregate::Min,
            "max" => Aggregate::Max,
            "bool_and" | "every" => Aggregate::BoolAnd,
            "bool_or" => Aggregate::BoolOr,
            "string_agg" => Aggregate::StringAgg,
            "array_agg" => Aggregate::ArrayAgg,
            _ => return None,
        })
    }
}

impl Call {
    /// Its expressions.
    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let order = self.order.iter_mut().map(|(by, ..)| by);
        self.argument.iter_mut().chain(&mut self.filter).chain(&mut self.separator).chain(order)
    }
}

/// The name of the column that stands for an aggregate: nobody can write it.
pub(crate) fn aggregate_column(number: usize) -> String {
    format!("\0aggregate {number}")
}

/// From the syntax of expressions to their meaning.
pub(crate) struct Translator<'c> {
    /// None of an expression that is kept: it asks anew each time.
    context: Option<&'c Context>,
    /// The aggregates so far, where there may be any.
    aggregates: Option<Vec<Call>>,
    /// Why there may be none, otherwise.
    place: &'static str,
    /// The size of all copies so far.
    copied: usize,
    /// The levels above the expression at hand.
    depth: usize,
    /// What queries in the expression can name; none where there may be no query.
    frame: Option<Frame<'c>>,
}

/// What is around a query in an expression.
struct Frame<'c> {
    sources: &'c Sources,
    outer: Option<&'c Outer<'c>>,
    parameters: &'c mut Parameters,
}

impl<'c> Translator<'c> {
    /// For a place where aggregates have no meaning.
    pub(crate) fn scalar(context: &'c Context, place: &'static str) -> Translator<'c> {
        Translator { context: Some(context), ..Translator::kept(place) }
    }

    /// For an expression that is kept.
    fn kept(place: &'static str) -> Translator<'c> {
        Translator { context: None, aggregates: None, place, copied: 0, depth: 0, frame: None }
    }

    /// For a place with aggregates.
    pub(crate) fn aggregating(context: &'c Context) -> Translator<'c> {
        Translator { aggregates: Some(Vec::new()), ..Translator::scalar(context, "an aggregate") }
    }

    /// With queries, which can name the columns of these sources.
    #[must_use]
    pub(crate) fn within(
        mut self,
        sources: &'c Sources,
        outer: Option<&'c Outer<'c>>,
        parameters: &'c mut Parameters,
    ) -> Translator<'c> {
        self.frame = Some(Frame { sources, outer, parameters });
        self
    }

    /// A query in the expression.
    fn query(&mut self, query: &Query, kind: Kind, operands: Vec<Expression>) -> Result<Expression, SqlError> {
        let Some(Frame { sources, outer, parameters }) = &mut self.frame else {
            return Err(SqlError::unsupported(format!("a query in {}", self.place), ""));
        };
        let Some(context) = self.context else {
            return Err(SqlError::unsupported(format!("a query in {}", self.place), ""));
        };
        context.called(query, kind, operands, (sources, *outer), parameters)
    }

    /// The operands of a comparison with rows.
    fn operands(&mut self, of: &Expr) -> Result<Vec<Expression>, SqlError> {
        match of {
            Expr::Nested(inner) => self.operands(inner),
            Expr::Tuple(all) => all.iter().map(|one| self.translate(one)).collect(),
            one => Ok(vec![self.translate(one)?]),
        }
    }

    /// A comparison with any or all elements of an array, or rows of a query.
    fn quantified(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
        is_all: bool,
        whole: &Expr,
    ) -> Result<Expression, SqlError> {
        let mut right = right;
        while let Expr::Nested(inner) = right {
            right = inner;
        }
        let compares = binary(operator).filter(|operator| !matches!(operator, Binary::Distinct));
        if let Expr::Subquery(query) = right {
            let operator = compares.ok_or_else(|| unsupported(whole))?;
            let operands = self.operands(left)?;
            return self.query(query, Kind::Compared { operator, is_all }, operands);
        }
        let inner = match right {
            Expr::Cast { expr, data_type: DataType::Array(_), .. } => expr,
            other => other,
        };
        let list = match inner {
            Expr::Array(array) => {
                Some(array.elem.iter().map(|one| self.translate(one)).collect::<Result<Vec<_>, _>>()?)
            }
            Expr::Value(value) => match &value.value {
                LiteralSyntax::SingleQuotedString(text) => {
                    let elements = crate::array::elements(text)?;
                    let one = |element: Option<std::borrow::Cow<'_, str>>| match element {
                        None => Expression::Literal(Literal::Null),
                        Some(text) => text_literal(&text),
                    };
                    Some(elements.into_iter().map(one).collect())
                }
                _ => None,
            },
            _ => None,
        };
        let of = self.translate(left)?;
        let Some(list) = list else {
            let symbol = match operator {
                BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
                other => other.to_string(),
            };
            let quantifier = if is_all { "all" } else { "any" };
            let element = match (&of, &self.frame) {
                (Expression::Column { table, column }, Some(frame)) => {
                    column_type(frame.sources, frame.outer, table.as_deref(), column)
                }
                _ => None,
            };
            self.note_array(right, element);
            let array = self.translate(right)?;
            return Ok(Expression::call(format!("\0{quantifier} {symbol}"), vec![of, array]));
        };
        if list.is_empty() {
            return Ok(Expression::Literal(Literal::Bool(is_all)));
        }
        if compares == Some(Binary::Equal) && !is_all {
            return Ok(Expression::In { of: of.into(), list });
        }
        let mut parts = Vec::new();
        for one in list {
            let of = self.copy(&of)?;
            parts.push(match (compares, pattern(operator)) {
                (Some(operator), _) => of.with(operator, one),
                (None, Some(pattern)) => pattern.of(of, one),
                (None, None) => return Err(unsupported(whole)),
            });
        }
        Ok(if is_all { Expression::All(parts) } else { Expression::Any(parts) })
    }

    /// Notes that a parameter is an array of elements of this type.
    fn note_array(&self, of: &Expr, element: Option<SqlType>) {
        let (Expr::Value(value), Some(context), Some(array)) = (of, self.context, element.and_then(SqlType::array_of))
        else {
            return;
        };
        if let Ok(Expression::Parameter(number)) = literal(&value.value) {
            context.arrays.borrow_mut().push((usize::from(number) - 1, array));
        }
    }

    /// The aggregates that were met.
    pub(crate) fn into_aggregates(self) -> Vec<Call> {
        self.aggregates.unwrap_or_default()
    }

    fn boxed(&mut self, of: &Expr) -> Result<Box<Expression>, SqlError> {
        Ok(Box::new(self.translate(of)?))
    }

    /// The expression that this is.
    ///
    /// # Errors
    /// It has a part that there is not.
    pub(crate) fn translate(&mut self, of: &Expr) -> Result<Expression, SqlError> {
        let mut of = of;
        while let Expr::Nested(inner) = of {
            of = inner;
        }
        // Chains of operators are deep, so they take little of the stack for each.
        match of {
            Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
                self.junction(left, op, right)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right }
                if let (Expr::Tuple(a), Expr::Tuple(b)) = (&**left, &**right)
                    && a.len() == b.len() =>
            {
                self.deeper(2, |translator| {
                    let pair = |(a, b)| Ok(translator.translate(a)?.with(Binary::Equal, translator.translate(b)?));
                    Ok(Expression::All(a.iter().zip(b).map(pair).collect::<Result<_, SqlError>>()?))
                })
            }
            Expr::BinaryOp { left, op, right } if let Some(pattern) = pattern(op) => self.deeper(2, |translator| {
                let left = translator.translate(left)?;
                Ok(pattern.of(left, translator.translate(right)?))
            }),
            Expr::BinaryOp { left, op, right } => {
                let operator = binary(op).ok_or_else(|| unsupported(of))?;
                self.deeper(1, |translator| {
                    let left = translator.translate(left)?;
                    Ok(left.with(operator, translator.translate(right)?))
                })
            }
            _ => self.deeper(2, |translator| translator.other(of)),
        }
    }

    /// Translates parts of an expression, which are so many levels below it.
    fn deeper(
        &mut self,
        levels: usize,
        translate: impl FnOnce(&mut Self) -> Result<Expression, SqlError>,
    ) -> Result<Expression, SqlError> {
        if self.depth + levels > Expression::DEPTH_MAX {
            let hint =
                format!("Operators can be nested {} deep; AND, OR and lists are one level.", Expression::DEPTH_MAX);
            let message = "the statement is nested too deeply";
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message).hint(hint));
        }
        self.depth += levels;
        let done = translate(self);
        self.depth -= levels;
        done
    }

    /// Expressions with AND or OR between them: those of a chain are one level.
    fn junction(&mut self, left: &Expr, operator: &BinaryOperator, right: &Expr) -> Result<Expression, SqlError> {
        let (mut first, mut others) = (left, vec![right]);
        while let Expr::BinaryOp { left, op, right } = first
            && op == operator
        {
            others.push(right);
            first = left;
        }
        let mut parts = Vec::new();
        for part in std::iter::once(first).chain(others.into_iter().rev()) {
            match (self.deeper(1, |translator| translator.translate(part))?, operator) {
                (Expression::All(more), BinaryOperator::And) => parts.extend(more),
                (Expression::Any(more), BinaryOperator::Or) => parts.extend(more),
                (other, _) => parts.push(other),
            }
        }
        Ok(if *operator == BinaryOperator::And { Expression::All(parts) } else { Expression::Any(parts) })
    }

    fn other(&mut self, of: &Expr) -> Result<Expression, SqlError> {
        Ok(match of {
            Expr::Identifier(ident) => match self.reserved(ident) {
                Some(value) => value,
                None => Expression::Column { table: None, column: name(ident)?.into() },
            },
            Expr::CompoundIdentifier(idents) => match &**idents {
                [table, column] => {
                    Expression::Column { table: Some(name(table)?.into()), column: name(column)?.into() }
                }
                [schema, table, column] if [SCHEMA, CATALOG, INFORMATION].contains(&&*name(schema)?) => {
                    Expression::Column { table: Some(name(table)?.into()), column: name(column)?.into() }
                }
                _ => return Err(unsupported(of)),
            },
            Expr::Value(value) => match literal(&value.value)? {
                Expression::Parameter(number)
                    if self.context.is_none_or(|context| usize::from(number) > context.queries.given()) =>
                {
                    let message = format!("there is no parameter ${number}");
                    return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message));
                }
                value => value,
            },
            Expr::Subquery(query) => self.query(query, Kind::Scalar, Vec::new())?,
            Expr::Exists { subquery, negated } => negate(self.query(subquery, Kind::Exists, Vec::new())?, *negated),
            Expr::In { expr, target: InTarget::Subquery(query), negated, global: false } => {
                let operands = self.operands(expr)?;
                let kind = Kind::Compared { operator: Binary::Equal, is_all: false };
                negate(self.query(query, kind, operands)?, *negated)
            }
            Expr::In { expr, target: InTarget::List(list), negated, global: false }
                if matches!(&**expr, Expr::Tuple(_)) =>
            {
                let one = |one: &Expr| Expr::BinaryOp {
                    left: expr.clone(),
                    op: BinaryOperator::Eq,
                    right: Box::new(one.clone()),
                };
                let parts = list.iter().map(|item| self.translate(&one(item))).collect::<Result<_, _>>()?;
                negate(Expression::Any(parts), *negated)
            }
            Expr::AnyOp { left, compare_op, right, is_some: _ } => {
                self.quantified(left, compare_op, right, false, of)?
            }
            Expr::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true, of)?,
            Expr::Array(array) => {
                let text = |one: &Expr| Ok(displayed(self.translate(one)?).cast(ColumnType::LongText));
                Expression::call("\0array", array.elem.iter().map(text).collect::<Result<_, SqlError>>()?)
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                let Some((AccessExpr::Subscript(Subscript::Index { index }), fields)) = access_chain.split_last()
                else {
                    return Err(unsupported(of));
                };
                let array = match (&**root, fields) {
                    (root, []) => self.translate(root)?,
                    (Expr::Identifier(table), [AccessExpr::Dot(Expr::Identifier(column))]) => {
                        self.translate(&Expr::CompoundIdentifier(vec![table.clone(), column.clone()]))?
                    }
                    _ => return Err(unsupported(of)),
                };
                let ty = match (&array, &self.frame) {
                    (Expression::Column { table, column }, Some(frame)) => {
                        column_type(frame.sources, frame.outer, table.as_deref(), column)
                    }
                    _ => None,
                };
                let element = Expression::call("\0element", vec![array, self.translate(index)?]);
                match ty.is_some_and(SqlType::is_array_of_numbers) {
                    true => element.cast(ColumnType::I64),
                    false => element,
                }
            }
            Expr::Collate { expr, collation } => {
                let own = collation.to_string().replace('"', "").to_lowercase();
                match &*own {
                    "pg_catalog.default" | "default" | "c" | "pg_catalog.c" | "posix" | "ucs_basic" => {
                        self.translate(expr)?
                    }
                    _ => {
                        let message = format!("collation \"{own}\" for encoding \"UTF8\" does not exist");
                        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message)
                            .hint("Texts are compared by their bytes, as with the collation \"C\"."));
                    }
                }
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                let lower = |of: Box<Expression>| Box::new(Expression::call("lower", vec![*of]));
                let (of, pattern) = (lower(self.boxed(expr)?), lower(self.boxed(pattern)?));
                let escape = escape_char.as_deref().map(|escape| self.boxed(escape)).transpose()?;
                negate(Expression::Like { of, pattern, escape }, *negated)
            }
            Expr::Position { expr, r#in } => {
                let text = self.translate(r#in)?;
                Expression::call("strpos", vec![text, self.translate(expr)?])
            }
            Expr::TypedString(typed) => match &typed.value.value {
                LiteralSyntax::SingleQuotedString(text) => cast_to(text_literal(text), &typed.data_type)?,
                _ => return Err(unsupported(of)),
            },
            Expr::Interval(interval) => match (&interval.leading_field, &*interval.value) {
                (None, Expr::Value(value)) => cast(literal(&value.value)?, SqlType::Interval),
                _ => return Err(unsupported(of)),
            },
            Expr::IsNull(of) => self.translate(of)?.apply(Unary::IsNull),
            Expr::IsNotNull(of) => self.translate(of)?.apply(Unary::IsNull).apply(Unary::Not),
            Expr::IsTrue(of) => self.translate(of)?.apply(Unary::IsTrue),
            Expr::IsNotTrue(of) => self.translate(of)?.apply(Unary::IsTrue).apply(Unary::Not),
            Expr::IsFalse(of) => self.translate(of)?.apply(Unary::IsFalse),
            Expr::IsNotFalse(of) => self.translate(of)?.apply(Unary::IsFalse).apply(Unary::Not),
            Expr::IsUnknown(of) => self.translate(of)?.apply(Unary::IsNull),
            Expr::IsNotUnknown(of) => self.translate(of)?.apply(Unary::IsNull).apply(Unary::Not),
            Expr::IsDistinctFrom(a, b) => self.translate(a)?.with(Binary::Distinct, self.translate(b)?),
            Expr::IsNotDistinctFrom(a, b) => {
                self.translate(a)?.with(Binary::Distinct, self.translate(b)?).apply(Unary::Not)
            }
            Expr::In { expr, target: InTarget::List(list), negated, global: false } => {
                let of = self.boxed(expr)?;
                let list = list.iter().map(|item| self.translate(item)).collect::<Result<_, _>>()?;
                negate(Expression::In { of, list }, *negated)
            }
            Expr::Between { expr, negated, low, high } => {
                let of = self.translate(expr)?;
                let low = self.copy(&of)?.with(Binary::GreaterOrEqual, self.translate(low)?);
                let high = of.with(Binary::LessOrEqual, self.translate(high)?);
                negate(Expression::All(vec![low, high]), *negated)
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                let (of, pattern) = (self.boxed(expr)?, self.boxed(pattern)?);
                let escape = escape_char.as_deref().map(|escape| self.boxed(escape)).transpose()?;
                negate(Expression::Like { of, pattern, escape }, *negated)
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match self.translate(expr)? {
                // The least integer has no positive counterpart.
                Expression::Literal(Literal::Number(number)) if !number.starts_with('-') => {
                    Expression::Literal(Literal::Number(format!("-{number}").into()))
                }
                of => of.apply(Unary::Negate),
            },
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => self.translate(expr)?,
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => self.translate(expr)?.apply(Unary::Not),
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
                if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type {
                    self.note_array(expr, SqlType::of_catalogue(&element.to_string()));
                }
                cast_to(self.translate(expr)?, data_type)?
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                let operand = operand.as_deref().map(|operand| self.translate(operand)).transpose()?;
                let mut branches = Vec::new();
                for branch in conditions {
                    let condition = self.translate(&branch.condition)?;
                    let condition = match &operand {
                        Some(operand) => self.copy(operand)?.with(Binary::Equal, condition),
                        None => condition,
                    };
                    branches.push((condition, self.translate(&branch.result)?));
                }
                let otherwise = else_result.as_deref().map(|last| self.boxed(last)).transpose()?;
                Expression::Case { branches, otherwise }
            }
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                let mut arguments = vec![self.translate(expr)?];
                arguments.push(match substring_from {
                    Some(from) => self.translate(from)?,
                    None => Expression::Literal(Literal::Number("1".into())),
                });
                if let Some(length) = substring_for {
                    arguments.push(self.translate(length)?);
                }
                Expression::call("substring", arguments)
            }
            Expr::Trim { expr, trim_where, trim_what, trim_characters: None } => {
                let function = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let mut arguments = vec![self.translate(expr)?];
                if let Some(what) = trim_what {
                    arguments.push(self.translate(what)?);
                }
                Expression::call(function, arguments)
            }
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime) } => {
                Expression::call("ceil", vec![self.translate(expr)?])
            }
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime) } => {
                Expression::call("floor", vec![self.translate(expr)?])
            }
            Expr::Function(function) => self.function(function, of)?,
            _ => return Err(unsupported(of)),
        })
    }

    fn function(&mut self, function: &Function, whole: &Expr) -> Result<Expression, SqlError> {
        let own = crate::names::function(&function.name)?;
        let is_plain = !function.uses_odbc_syntax
            && function.parameters == FunctionArguments::None
            && function.within_group.is_empty()
            && function.null_treatment.is_none()
            && function.over.is_none();
        if !is_plain {
            return Err(unsupported(whole));
        }
        let (arguments, is_distinct, order) = match &function.args {
            FunctionArguments::None => (&[][..], false, &[][..]),
            FunctionArguments::List(list) => {
                let order = match &*list.clauses {
                    [] => &[][..],
                    [FunctionArgumentClause::OrderBy(order)] if Aggregate::named(&own).is_some() => order,
                    _ => return Err(unsupported(whole)),
                };
                (&*list.args, list.duplicate_treatment == Some(DuplicateTreatment::Distinct), order)
            }
            FunctionArguments::Subquery(_) if own == "array" => (&[][..], false, &[][..]),
            _ => return Err(unsupported(whole)),
        };
        if own == "array"
            && let FunctionArguments::Subquery(query) = &function.args
        {
            return self.query(query, Kind::Array, Vec::new());
        }
        if let Some(aggregate) = Aggregate::named(&own) {
            return self.aggregate(aggregate, (arguments, is_distinct, order), function.filter.as_deref(), whole);
        }
        if is_distinct || function.filter.is_some() {
            let message = format!("{own} is no aggregate, so it takes neither DISTINCT nor FILTER");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        if arguments.is_empty()
            && let Some(value) = self.of_session(&own)
        {
            return Ok(value);
        }
        let is_of_sequences = OF_SEQUENCES.contains(&&*own);
        if let (true, Some(context)) = (is_of_sequences, self.context) {
            context.takes_numbers.set(true);
        }
        if let (true, Some(context)) = (is_of_sequences || VOLATILE.contains(&&*own), self.context) {
            context.is_volatile.set(true);
        }
        if let (true, Some(context)) = (OF_SETTINGS.contains(&&*own), self.context) {
            context.asked_for_settings.set(true);
        }
        let argument = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) if is_of_sequences => {
                self.translate(without_regclass(argument))
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => self.translate(argument),
            _ => Err(unsupported(whole)),
        };
        let arguments: Vec<Expression> = arguments.iter().map(argument).collect::<Result<_, _>>()?;
        Ok(Expression::Call { function: own.into(), arguments })
    }

    /// The column that stands for an aggregate.
    fn aggregate(
        &mut self,
        function: Aggregate,
        (arguments, is_distinct, order_by): (&[FunctionArg], bool, &[OrderByExpr]),
        filter: Option<&Expr>,
        whole: &Expr,
    ) -> Result<Expression, SqlError> {
        if self.aggregates.is_none() {
            let message = format!("aggregate functions are not allowed in {}", self.place);
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
        }
        let (copied, depth) = (self.copied, self.depth);
        let (context, frame) = (self.context, self.frame.take());
        let mut inner = Translator { context, copied, depth, frame, ..Translator::kept("an aggregate") };
        let mut separator = None;
        let argument = match arguments {
            [
                FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(between)),
            ] if function == Aggregate::StringAgg => {
                separator = Some(inner.translate(between)?);
                Some(displayed(inner.translate(argument)?))
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if function == Aggregate::Count => None,
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] if function != Aggregate::StringAgg => {
                Some(inner.translate(argument)?)
            }
            _ => {
                let message = format!("{whole} does not exist: an aggregate has one argument");
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
            }
        };
        let filter = filter.map(|filter| inner.translate(filter)).transpose()?;
        let mut order = Vec::new();
        for item in order_by {
            let descending = match &item.options.sort {
                None | Some(OrderBySort::Asc) => false,
                Some(OrderBySort::Desc) => true,
                Some(_) => return Err(unsupported(whole)),
            };
            let nulls_first = item.options.nulls_first.unwrap_or(descending);
            order.push((inner.translate(&item.expr)?, descending, nulls_first));
        }
        self.frame = inner.frame;
        let call = Call { function, argument, is_distinct, filter, separator, order };
        let calls = self.aggregates.get_or_insert_default();
        let number = calls.iter().position(|known| *known == call).unwrap_or_else(|| {
            calls.push(call);
            calls.len() - 1
        });
        Ok(Expression::column(aggregate_column(number)))
    }

    /// The value that a word without parentheses stands for. Other functions are names of columns there.
    fn reserved(&self, ident: &Ident) -> Option<Expression> {
        let own = ident.value.to_ascii_lowercase();
        (ident.quote_style.is_none() && RESERVED.contains(&&*own)).then(|| self.of_session(&own)).flatten()
    }

    /// A copy of an expression that stands for several. Copies of copies are exponentially many, so their size has a
    /// bound.
    fn copy(&mut self, of: &Expression) -> Result<Expression, SqlError> {
        self.copied += of.size();
        match self.copied <= Expression::COPIED_MAX {
            true => Ok(of.clone()),
            false => Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the statement is too complex")
                .hint("BETWEEN and CASE can be nested less deeply.")),
        }
    }

    /// The value of a function without arguments that the session knows.
    fn of_session(&self, function: &str) -> Option<Expression> {
        let text = |text: &str| Expression::Literal(Literal::Text(text.to_owned().into())).cast(ColumnType::LongText);
        let now = || match self.context {
            None => Some(Expression::call("now", Vec::new())),
            Some(context) => {
                context.asked_for_time.set(true);
                Expression::value(&Value::from(context.now), ColumnType::Timestamp)
            }
        };
        Some(match function {
            "now" | "current_timestamp" | "transaction_timestamp" | "statement_timestamp" => now()?,
            "localtimestamp" => now()?.cast(ColumnType::DateTime),
            "current_date" => now()?.cast(ColumnType::DateTime).cast(ColumnType::Date),
            "localtime" => now()?.cast(ColumnType::DateTime).cast(ColumnType::Time),
            "current_user" | "session_user" | "current_role" | "user" => match self.context {
                None => Expression::call("current_user", Vec::new()),
                Some(context) => {
                    // The next execution may be that of another role.
                    context.asked_for_user.set(true);
                    text(if function == "session_user" { &context.session_user } else { &context.user })
                }
            },
            "current_database" | "current_catalog" => text(DATABASE),
            "current_schema" => text(SCHEMA),
            "version" => text(&format!("PostgreSQL {VERSION} (Seriatim {})", env!("CARGO_PKG_VERSION"))),
            _ => return None,
        })
    }
}

/// Functions that take numbers of sequences, or set them.
const OF_SEQUENCES: [&str; 4] = ["nextval", "currval", "lastval", "setval"];

/// Functions of settings.
const OF_SETTINGS: [&str; 2] = ["current_setting", "set_config"];

/// Other functions that have another value each time.
const VOLATILE: [&str; 3] = ["clock_timestamp", "gen_random_uuid", "random"];

/// The name of a sequence that is cast to a number of one.
fn without_regclass(of: &Expr) -> &Expr {
    match of {
        Expr::Cast { expr, data_type, .. } if data_type.to_string().eq_ignore_ascii_case("regclass") => expr,
        other => other,
    }
}

/// An untyped text.
pub(crate) fn text_literal(text: &str) -> Expression {
    Expression::Literal(Literal::Text(text.to_owned().into()))
}
/// A comparison of a text with a pattern.
#[derive(Clone, Copy)]
struct Pattern {
    /// LIKE, or a regular expression.
    is_like: bool,
    ignores_case: bool,
    is_negated: bool,
}

impl Pattern {
    fn of(self, text: Expression, pattern: Expression) -> Expression {
        let lower = |of: Expression| if self.ignores_case { Expression::call("lower", vec![of]) } else { of };
        let matches = match self.is_like {
            true => Expression::Like { of: lower(text).into(), pattern: lower(pattern).into(), escape: None },
            false => {
                let function = if self.ignores_case { "\0matches any case" } else { "\0matches" };
                Expression::call(function, vec![text, pattern])
            }
        };
        negate(matches, self.is_negated)
    }
}

/// The comparison with a pattern that an operator is.
fn pattern(operator: &BinaryOperator) -> Option<Pattern> {
    let symbol = match operator {
        BinaryOperator::PGRegexMatch => "~",
        BinaryOperator::PGRegexIMatch => "~*",
        BinaryOperator::PGRegexNotMatch => "!~",
        BinaryOperator::PGRegexNotIMatch => "!~*",
        BinaryOperator::PGLikeMatch => "~~",
        BinaryOperator::PGILikeMatch => "~~*",
        BinaryOperator::PGNotLikeMatch => "!~~",
        BinaryOperator::PGNotILikeMatch => "!~~*",
        BinaryOperator::PGCustomBinaryOperator(parts) => parts.last()?,
        _ => return None,
    };
    let plain = symbol.trim_start_matches('!').trim_end_matches('*');
    let is_like = match plain {
        "~" => false,
        "~~" => true,
        _ => return None,
    };
    Some(Pattern { is_like, ignores_case: symbol.ends_with('*'), is_negated: symbol.starts_with('!') })
}

/// What the name of an object of the catalogue becomes: its number.
const OID_OF: &str = "\0oid of ";

/// What a number of the catalogue is shown as: the name of its object.
const NAME_OF: &str = "\0name of ";

/// An expression as it is shown: an object of the catalogue by its name.
pub(crate) fn displayed(of: Expression) -> Expression {
    match &of {
        Expression::Call { function, .. } if function.starts_with(OID_OF) => {
            let kind = function[OID_OF.len()..].to_owned();
            Expression::call(format!("{NAME_OF}{kind}"), vec![of])
        }
        _ => of,
    }
}

/// A value as one of the type that a cast names.
fn cast_to(of: Expression, data_type: &DataType) -> Result<Expression, SqlError> {
    let written = data_type.to_string();
    let own = written.strip_prefix("pg_catalog.").unwrap_or(&written).to_ascii_lowercase();
    Ok(match &*own {
        "regclass" | "regtype" | "regproc" | "regprocedure" | "regnamespace" | "regrole" => {
            Expression::call(format!("{OID_OF}{}", &own[3..]), vec![of])
        }
        "oid" => of.cast(ColumnType::U32),
        "name" | "\"char\"" | "int2vector" | "oidvector" | "pg_node_tree" | "aclitem" | "cstring" | "\"any\"" => {
            displayed(of).cast(ColumnType::LongText)
        }
        _ if matches!(data_type, DataType::Array(_)) || own.ends_with("[]") || own.starts_with('_') => {
            displayed(of).cast(ColumnType::LongText)
        }
        _ => {
            let to = SqlType::of(data_type)?;
            let is_text = matches!(to, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_));
            cast(if is_text { displayed(of) } else { of }, to)
        }
    })
}

/// The words that PostgreSQL reserves for functions without parentheses.
const RESERVED: [&str; 10] = [
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_timestamp",
    "current_user",
    "localtime",
    "localtimestamp",
    "session_user",
    "user",
];

fn unsupported(of: &Expr) -> SqlError {
    SqlError::unsupported(of, "")
}

fn negate(of: Expression, is_negated: bool) -> Expression {
    if is_negated { of.apply(Unary::Not) } else { of }
}

fn binary(operator: &BinaryOperator) -> Option<Binary> {
    Some(match operator {
        BinaryOperator::Plus => Binary::Add,
        BinaryOperator::Minus => Binary::Subtract,
        BinaryOperator::Multiply => Binary::Multiply,
        BinaryOperator::Divide => Binary::Divide,
        BinaryOperator::Modulo => Binary::Modulo,
        BinaryOperator::StringConcat => Binary::Concatenate,
        BinaryOperator::Eq => Binary::Equal,
        BinaryOperator::NotEq => Binary::NotEqual,
        BinaryOperator::Lt => Binary::Less,
        BinaryOperator::LtEq => Binary::LessOrEqual,
        BinaryOperator::Gt => Binary::Greater,
        BinaryOperator::GtEq => Binary::GreaterOrEqual,
        // OPERATOR(pg_catalog.=)
        BinaryOperator::PGCustomBinaryOperator(parts) => match &**parts.last()? {
            "=" => Binary::Equal,
            "<>" | "!=" => Binary::NotEqual,
            "<" => Binary::Less,
            "<=" => Binary::LessOrEqual,
            ">" => Binary::Greater,
            ">=" => Binary::GreaterOrEqual,
            "+" => Binary::Add,
            "-" => Binary::Subtract,
            "*" => Binary::Multiply,
            "/" => Binary::Divide,
            "||" => Binary::Concatenate,
            _ => return None,
        },
        _ => return None,
    })
}

fn literal(value: &LiteralSyntax) -> Result<Expression, SqlError> {
    Ok(Expression::Literal(match value {
        LiteralSyntax::Null => Literal::Null,
        LiteralSyntax::Boolean(truth) => Literal::Bool(*truth),
        LiteralSyntax::Number(number, false) => Literal::Number(number.clone().into()),
        LiteralSyntax::SingleQuotedString(text) | LiteralSyntax::EscapedStringLiteral(text) => {
            Literal::Text(text.clone().into())
        }
        LiteralSyntax::DollarQuotedString(text) => Literal::Text(text.value.clone().into()),
        LiteralSyntax::Placeholder(parameter) => {
            let number = parameter.strip_prefix('$').and_then(|number| number.parse::<u16>().ok());
            return match number.filter(|number| *number > 0) {
                Some(number) => Ok(Expression::Parameter(number)),
                None => {
                    let message = format!("there is no parameter {parameter}");
                    Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message)
                        .hint("Parameters are $1, $2 and so on, up to $65535."))
                }
            };
        }
        other => return Err(SqlError::unsupported(format!("the literal {other}"), "")),
    }))
}

/// A value as one of a type. A text that is cast to one with a length is cut off there.
fn cast(of: Expression, to: SqlType) -> Expression {
    let number = |number: u32| Expression::Literal(Literal::Number(number.to_string().into()));
    let cut = |of: Expression, most: u32| Expression::call("substring", vec![of, number(1), number(most)]);
    match to {
        SqlType::Varchar(Some(most)) => cut(of.cast(ColumnType::LongText), most),
        SqlType::Char(most) => Expression::call("rtrim", vec![cut(of.cast(ColumnType::LongText), most)]),
        SqlType::Numeric(Some((digits, scale))) => {
            Expression::call("numeric", vec![of.cast(ColumnType::Numeric), number(digits.into()), number(scale.into())])
        }
        SqlType::Varchar(None) | SqlType::Text => of.cast(ColumnType::LongText),
        other => of.cast(other.column(String::new()).ty),
    }
}

/// The default of a column, as the catalogue keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// NULL.
    None,
    /// This value, as text.
    Constant(String),
    /// The value of this expression.
    Computed(String),
}

impl Default {
    /// The default of a column that this is.
    ///
    /// # Errors
    /// It has a part that there is not, or no values of the column.
    pub(crate) fn of(of: &Expr, column: &ColumnDef) -> Result<Default, SqlError> {
        let mut translator = Translator::kept("DEFAULT expressions");
        if let Some(column) = names_column(of) {
            let message = "cannot use column reference in DEFAULT expression";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).column(column));
        }
        let expression = translator.translate(of)?;
        let bound = Bound::assigning(&expression, &Nothing, &mut [], column.ty).map_err(|error| {
            let state = SqlState(error.sqlstate());
            match state {
                SqlState::DATATYPE_MISMATCH => {
                    let message = format!("column \"{}\": its default: {error}", column.name);
                    SqlError::new(state, message).hint("You will need to rewrite or cast the expression.")
                }
                _ => error.into(),
            }
        })?;
        let Some(value) = bound.constant() else { return Ok(Default::Computed(expression.to_string())) };
        let nullable = ColumnDef { nullable: true, ..column.clone() };
        Ok(match assigned(value, bound.column_type(), &nullable)? {
            Value::Option(Some(value)) => Default::constant(*value, column)?,
            Value::Option(None) => Default::None,
            value => Default::constant(value, column)?,
        })
    }

    pub(crate) fn constant(value: Value, column: &ColumnDef) -> Result<Default, SqlError> {
        Ok(crate::types::fit(value, column)?.to_text().map_or(Default::None, Default::Constant))
    }

    /// Gives the column this default.
    pub(crate) fn give(self, column: &mut ColumnDef) {
        (column.default, column.computed_default) = match self {
            Default::None => (None, None),
            Default::Constant(text) => (Some(text.into()), None),
            Default::Computed(text) => (None, Some(text.into())),
        };
    }
}

/// A column that stands alone.
fn names_column(of: &Expr) -> Option<String> {
    match of {
        Expr::Identifier(ident) if !RESERVED.contains(&&*ident.value.to_ascii_lowercase()) => Some(ident.value.clone()),
        Expr::Nested(inner) => names_column(inner),
        _ => None,
    }
}

/// Whether a default has another value for each row, and not one for a statement.
pub(crate) fn is_volatile(default: &str) -> bool {
    calls(default, |function| VOLATILE.contains(&function) || OF_SEQUENCES.contains(&function))
}

/// Whether a default takes numbers of sequences, or sets them.
pub(crate) fn takes_numbers(default: &str) -> bool {
    calls(default, |function| OF_SEQUENCES.contains(&function))
}

/// Whether an expression calls one of these functions.
fn calls(text: &str, is_one: impl Fn(&str) -> bool + Copy) -> bool {
    fn within(of: &Expression, is_one: impl Fn(&str) -> bool + Copy) -> bool {
        matches!(of, Expression::Call { function, .. } if is_one(function))
            || of.parts().into_iter().any(|part| within(part, is_one))
    }
    text.parse().is_ok_and(|of: Expression| within(&of, is_one))
}

/// The sequence of which a default takes the next number, as it is named there.
pub(crate) fn sequence_of_default(default: &str) -> Option<String> {
    match default.parse().ok()? {
        Expression::Call { function, arguments } if function == "nextval" => match &*arguments {
            [Expression::Literal(Literal::Text(name))] => Some(name.to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// The sequences that a default names, as they are named there.
pub(crate) fn sequences_in(default: &str) -> Vec<String> {
    let found = std::cell::RefCell::new(Vec::new());
    with_sequences(default, &|name| {
        found.borrow_mut().push(name.to_owned());
        None
    });
    found.into_inner()
}

/// A default with other names of sequences.
pub(crate) fn with_sequences(default: &str, other: &dyn Fn(&str) -> Option<String>) -> String {
    fn rename(of: &mut Expression, other: &dyn Fn(&str) -> Option<String>) {
        if let Expression::Call { function, arguments } = of
            && OF_SEQUENCES.contains(&&**function)
            && let Some(Expression::Literal(Literal::Text(name))) = arguments.first_mut()
            && let Some(to) = other(name)
        {
            *name = to.into();
        }
        of.parts_mut().into_iter().for_each(|part| rename(part, other));
    }
    let Ok(mut expression) = default.parse::<Expression>() else { return default.to_owned() };
    rename(&mut expression, other);
    expression.to_string()
}
