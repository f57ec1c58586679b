//! UNION, INTERSECT and EXCEPT.

use std::collections::{BTreeMap, BTreeSet};

use seriatim::Abort;
use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::{Bound, Datum, Expression};
use sqlparser::ast::{SetExpr, SetOperator, SetQuantifier};

use crate::error::{SqlError, SqlState};
use crate::expression::{Context, Nothing};
use crate::from::Parameters;
use crate::names::Names;
use crate::rows::{Distinct, Origin, Source, SourceColumn};
use crate::run::Env;
use crate::select::{Row, Select};
use crate::subquery::Outer;
use crate::types::{SqlType, of_expressions};

/// Queries whose rows become those of one, from the left to the right.
#[derive(Clone, Debug)]
pub(crate) struct SetOperation {
    operator: SetOperator,
    is_all: bool,
    sides: Vec<Side>,
}

/// A query, and what makes the common columns of its own.
#[derive(Clone, Debug)]
struct Side {
    select: Select,
    conversion: Vec<Bound>,
}

impl SetOperation {
    /// The operation as a source.
    ///
    /// # Errors
    /// As [`Select::bind`]; the columns do not match.
    pub(crate) fn bind(
        body: &SetExpr,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
        outer: Option<&Outer<'_>>,
    ) -> Result<Source, SqlError> {
        let (mut bodies, mut rest, mut kind) = (Vec::new(), body, None);
        while let SetExpr::SetOperation { left, op, set_quantifier, right } = rest {
            let is_all = match set_quantifier {
                SetQuantifier::All => true,
                SetQuantifier::None | SetQuantifier::Distinct => false,
                other => return Err(SqlError::unsupported(format!("{op} {other}"), "")),
            };
            let operator = if *op == SetOperator::Minus { SetOperator::Except } else { *op };
            if *kind.get_or_insert((operator, is_all)) != (operator, is_all) {
                break;
            }
            bodies.push(&**right);
            rest = left;
        }
        bodies.push(rest);
        let (operator, is_all) = kind.unwrap_or((SetOperator::Union, true));
        let mut selects = Vec::new();
        for body in bodies.into_iter().rev() {
            selects.push(context.deeper(|| Select::of_body(body, None, names, context, parameters, outer))?);
        }
        SetOperation::of(selects, operator, is_all)
    }

    /// The rows of one query, as a source.
    ///
    /// # Errors
    /// None of its own.
    pub(crate) fn of_one(select: Select) -> Result<Source, SqlError> {
        SetOperation::of(vec![select], SetOperator::Union, true)
    }

    fn of(selects: Vec<Select>, operator: SetOperator, is_all: bool) -> Result<Source, SqlError> {
        let width = selects.first().map_or(0, |select| select.columns.len());
        if selects.iter().any(|select| select.columns.len() != width) {
            let message = format!("each {operator} query must have the same number of columns");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut columns = Vec::new();
        for at in 0..width {
            columns.push(common(&selects, at, operator)?);
        }
        let mut sides = Vec::new();
        for select in selects {
            let mut types = select.types();
            let mut conversion = Vec::new();
            for (at, column) in columns.iter().enumerate() {
                let value = match untyped(&select, at) {
                    // A text without a type is read as one of the column.
                    Some(text) => crate::expression::text_literal(&text),
                    None => Expression::Parameter(at as u16 + 1),
                };
                conversion.push(Bound::new(&value.cast(column.stored), &Nothing, &mut types)?);
            }
            sides.push(Side { select, conversion });
        }
        let origin = Origin::Set(Box::new(SetOperation { operator, is_all, sides }));
        Ok(Source { alias: String::new(), columns, origin })
    }

    /// The operation in words.
    pub(crate) fn words(&self) -> &'static str {
        match (self.operator, self.sides.len()) {
            (_, 1) => "Rows of the query",
            (SetOperator::Intersect, _) => "Rows of all of",
            (SetOperator::Except | SetOperator::Minus, _) => "Rows of the first of",
            (SetOperator::Union, _) => "Rows of each of",
        }
    }

    /// Its queries in words.
    pub(crate) fn explain(&self, indent: usize) -> Vec<String> {
        let lines = self.sides.iter().flat_map(|side| side.select.explain());
        lines.map(|line| format!("{}{line}", " ".repeat(indent))).collect()
    }

    /// Its rows.
    ///
    /// # Errors
    /// As [`Select::run_some`].
    pub(crate) fn run(&self, env: Env<'_>) -> Result<Vec<Row>, Abort> {
        let mut sides = self.sides.iter().map(|side| side.run(env));
        let first = sides.next().transpose()?.unwrap_or_default();
        Ok(match (self.operator, self.is_all) {
            (SetOperator::Union, true) => {
                let mut all = first;
                for side in sides {
                    all.extend(side?);
                }
                all
            }
            (SetOperator::Union, false) => {
                let mut all = distinct(first);
                let mut seen: BTreeSet<Distinct> = all.iter().cloned().map(Distinct).collect();
                for side in sides {
                    all.extend(side?.into_iter().filter(|row| seen.insert(Distinct(row.clone()))));
                }
                all
            }
            (operator, is_all) => {
                let keeps_common = operator == SetOperator::Intersect;
                let mut all = if is_all { first } else { distinct(first) };
                for side in sides {
                    let mut counts = BTreeMap::<Distinct, usize>::new();
                    for row in side? {
                        let count = counts.entry(Distinct(row)).or_default();
                        *count = if is_all { *count + 1 } else { 1 };
                    }
                    all.retain(|row| {
                        let found = match counts.get_mut(&Distinct(row.clone())) {
                            Some(count) if *count > 0 => {
                                *count -= usize::from(is_all);
                                true
                            }
                            _ => false,
                        };
                        found == keeps_common
                    });
                }
                all
            }
        })
    }
}

impl Side {
    fn run(&self, env: Env<'_>) -> Result<Vec<Row>, Abort> {
        let none: &[Datum<'_>] = &[];
        let convert = |row: Row| {
            let convert = |bound: &Bound| Ok(bound.evaluate(none, &row)?.into_owned());
            self.conversion.iter().map(convert).collect::<Result<Row, SqlError>>()
        };
        let rows = self.select.run_some(env, usize::MAX)?;
        let rows: Result<Vec<Row>, SqlError> = rows.into_iter().map(convert).collect();
        rows.map_err(|error| env.fail(error))
    }
}

fn distinct(mut rows: Vec<Row>) -> Vec<Row> {
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(Distinct(row.clone())));
    rows
}

/// The text of an output without a type.
fn untyped(select: &Select, at: usize) -> Option<String> {
    match select.constant(at)? {
        Datum::Text(text) => Some(text.into_owned()),
        _ => None,
    }
}

/// The column of several queries at a position.
fn common(selects: &[Select], at: usize, operator: SetOperator) -> Result<SourceColumn, SqlError> {
    let typed = |select: &&Select| untyped(select, at).is_none();
    let mut stored: Option<ColumnType> = None;
    for ty in selects.iter().filter(typed).filter_map(|select| select.types()[at]) {
        let Some(before) = stored.replace(ty) else { continue };
        let both = Expression::call("coalesce", [1, 2].map(Expression::Parameter).to_vec());
        let both = Bound::new(&both, &Nothing, &mut [Some(before), Some(ty)]).map_err(|_| {
            let [a, b] = [before, ty].map(SqlType::of_stored);
            let message = format!("{operator} types {a} and {b} cannot be matched");
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
        })?;
        stored = both.column_type();
    }
    let stored = of_expressions(stored.unwrap_or(ColumnType::LongText));
    let columns = || selects.iter().map(|select| &select.columns[at]);
    let first = columns().next();
    let is_same = columns().all(|column| Some(column.ty) == first.map(|first| first.ty) && column.stored.is_some());
    let ty = first.filter(|_| is_same).map_or(SqlType::of_stored(stored), |first| first.ty);
    let name = first.map_or_else(String::new, |first| first.name.clone());
    Ok(SourceColumn { name, table: String::new(), stored, ty, is_hidden: false })
}
