//! FROM and WHERE: the sources of a query, how their rows are found, and what they must fulfil.
//!
//! Sources are joined by nested loops, in the order of the text. A condition is checked as soon as all rows that it
//! names are there. Conditions `column = value`, whose value earlier sources give, decide how a source is searched.

use seriatim::catalog::expression::{Binary, Bound, Datum, Expression, Literal};
use seriatim::catalog::{ColumnType, Organization};
use seriatim::{Abort, ReadTx};
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, TableAlias, TableFactor, TableWithJoins,
};

use crate::error::{SqlError, SqlState};
use crate::expression::{Context, Translator};
use crate::names::{Names, name, object};
use crate::rows::{
    Access, Equality, Joined, Limit, Origin, Source, SourceColumn, SourceRow, Sources, choose, each, is_findable,
};
use crate::types::SqlType;

/// The types of a statement's parameters, as far as they are known.
pub(crate) type Parameters = Vec<Option<ColumnType>>;

/// How the rows of one source take part.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) access: Access,
    /// What a row must fulfil to be a partner.
    on: Vec<Bound>,
    /// Whether the rows before count without a partner, too.
    is_outer: bool,
    /// What must hold of all rows up to this one.
    filter: Vec<Bound>,
}

impl Level {
    /// All that a row must fulfil, if the source is the first.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Bound> {
        self.on.iter().chain(&self.filter)
    }
}

/// The sources of a query, joined.
#[derive(Clone, Debug)]
pub(crate) struct From {
    pub(crate) sources: Sources,
    pub(crate) places: Vec<(usize, usize)>,
    pub(crate) levels: Vec<Level>,
}

/// A source as it was written.
struct Written {
    on: Vec<Expression>,
    is_outer: bool,
}

/// The column that is meant, with the name of its source. What a `char` column is compared with has no blanks at its
/// end, as the column's values.
///
/// # Errors
/// There is none, or there are several.
pub(crate) fn qualified(of: &mut Expression, sources: &Sources) -> Result<(), SqlError> {
    if let Expression::Column { table, column } = of {
        if column.starts_with('\0') {
            return Ok(());
        }
        let (number, _) = sources.find(table.as_deref(), column)?;
        let (source, _) = sources.places()[number];
        *table = Some(sources.0[source].alias.clone().into());
        return Ok(());
    }
    of.parts_mut().into_iter().try_for_each(|part| qualified(part, sources))?;
    let is_padded = |of: &Expression| match of {
        Expression::Column { table, column } => sources
            .find(table.as_deref(), column)
            .is_ok_and(|(number, _)| matches!(sources.at(number), Some(SourceColumn { ty: SqlType::Char(_), .. }))),
        _ => false,
    };
    match of {
        Expression::Binary(operator, a, b)
            if *operator == Binary::Distinct || turned(*operator).is_some() || *operator == Binary::NotEqual =>
        {
            match (is_padded(a), is_padded(b)) {
                (true, false) => without_blanks(b),
                (false, true) => without_blanks(a),
                _ => {}
            }
        }
        Expression::In { of, list } if is_padded(of) => list.iter_mut().for_each(without_blanks),
        _ => {}
    }
    Ok(())
}

/// Leaves out the blanks at the end of an untyped text.
fn without_blanks(of: &mut Expression) {
    match of {
        Expression::Literal(Literal::Text(text)) => *text = text.trim_end_matches(' ').to_owned().into(),
        Expression::Parameter(_) => {
            let parameter = std::mem::replace(of, Expression::Literal(Literal::Null));
            *of = Expression::call("rtrim", vec![parameter]);
        }
        _ => {}
    }
}

impl From {
    /// The sources of a FROM, and the conditions of a WHERE.
    ///
    /// # Errors
    /// They name what there is not, or need what there is not.
    pub(crate) fn bind(
        from: &[TableWithJoins],
        condition: Option<&Expr>,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<From, SqlError> {
        let (mut sources, mut written) = (Sources::default(), Vec::new());
        for tables in from {
            sources.add(source(&tables.relation, names, context, parameters)?)?;
            written.push(Written { on: Vec::new(), is_outer: false });
            for join in &tables.joins {
                sources.add(source(&join.relation, names, context, parameters)?)?;
                written.push(joined(join, &sources, context)?);
            }
        }
        let conditions = match condition {
            Some(condition) => Translator::scalar(context, "WHERE").translate(condition).map(conjuncts)?,
            None => Vec::new(),
        };
        From::of(sources, written, conditions, parameters)
    }

    /// One table, and the conditions of a WHERE.
    ///
    /// # Errors
    /// As [`From::bind`].
    pub(crate) fn of_table(
        source: Source,
        condition: Option<&Expr>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<From, SqlError> {
        let conditions = match condition {
            Some(condition) => Translator::scalar(context, "WHERE").translate(condition).map(conjuncts)?,
            None => Vec::new(),
        };
        let written = vec![Written { on: Vec::new(), is_outer: false }];
        From::of(Sources(vec![source]), written, conditions, parameters)
    }

    fn of(
        sources: Sources,
        written: Vec<Written>,
        mut conditions: Vec<Expression>,
        parameters: &mut Parameters,
    ) -> Result<From, SqlError> {
        conditions.iter_mut().try_for_each(|condition| qualified(condition, &sources))?;
        let places = sources.places();
        let level_of = |bound: &Bound| bound.columns().iter().map(|&column| places[column].0).max().unwrap_or(0);
        let mut filters: Vec<Vec<(Expression, Bound)>> = sources.0.iter().map(|_| Vec::new()).collect();
        for condition in conditions {
            let bound = Bound::condition(&condition, &sources, parameters)?;
            match filters.get_mut(level_of(&bound)) {
                Some(filter) => filter.push((condition, bound)),
                // Without a source, there is one row.
                None => filters.push(vec![(condition, bound)]),
            }
        }
        let mut levels = Vec::new();
        for (at, mut written) in written.into_iter().enumerate() {
            let mut on = Vec::new();
            for condition in &mut written.on {
                qualified(condition, &sources)?;
                on.push(Bound::condition(condition, &sources, parameters)?);
            }
            let filter = std::mem::take(&mut filters[at]);
            // A row without a partner must not be found by what only WHERE says of the partner.
            let said =
                written.on.iter().chain(filter.iter().map(|(condition, _)| condition).filter(|_| !written.is_outer));
            let (access, implied) = access(&sources, at, said, parameters)?;
            let first = written.on.len();
            let is_open = |(position, _): &(usize, _)| !implied.contains(&(first + position));
            let filter = filter.into_iter().enumerate().filter(is_open).map(|(_, (_, bound))| bound).collect();
            levels.push(Level { access, on, is_outer: written.is_outer, filter });
        }
        if sources.0.is_empty()
            && let Some(filter) = filters.pop()
        {
            // The one row of a query without FROM.
            let source = Source { alias: String::new(), columns: Vec::new(), origin: Origin::Values(vec![Vec::new()]) };
            let filter = filter.into_iter().map(|(_, bound)| bound).collect();
            let level = Level { access: Access::Computed, on: Vec::new(), is_outer: false, filter };
            return Ok(From { sources: Sources(vec![source]), places, levels: vec![level] });
        }
        Ok(From { sources, places, levels })
    }

    /// How the rows of each source are found, in the order of the loops.
    pub(crate) fn explain(&self, indent: usize) -> Vec<String> {
        let line = |(at, (level, source)): (usize, (&Level, &Source))| {
            let indent = " ".repeat(indent + 2 * at);
            let (arrow, join) = match (at, level.is_outer) {
                (0, _) => ("", ""),
                (_, false) => ("-> ", "for each row: "),
                (_, true) => ("-> ", "for each row, or none: "),
            };
            format!("{indent}{arrow}{join}{}", level.access.explain(source))
        };
        self.levels.iter().zip(&self.sources.0).enumerate().map(line).collect()
    }

    /// Calls `visit` with each combination of rows that fulfils all conditions, until it says `false`.
    ///
    /// # Errors
    /// A conflict; an expression without a value; errors of `visit`.
    pub(crate) fn each<'t>(
        &'t self,
        tx: &'t ReadTx,
        parameters: &[Datum<'_>],
        visit: &mut dyn FnMut(Joined<'_, 't>) -> Result<bool, Abort>,
    ) -> Result<(), Abort> {
        self.descend(tx, parameters, &mut Vec::new(), visit).map(drop)
    }

    fn descend<'t>(
        &'t self,
        tx: &'t ReadTx,
        parameters: &[Datum<'_>],
        rows: &mut Vec<SourceRow<'t>>,
        visit: &mut dyn FnMut(Joined<'_, 't>) -> Result<bool, Abort>,
    ) -> Result<bool, Abort> {
        let at = rows.len();
        let Some(level) = self.levels.get(at) else {
            return visit(Joined { rows, places: &self.places });
        };
        let (mut has_partner, mut goes_on) = (false, true);
        let outer = rows.clone();
        let outer = Joined { rows: &outer, places: &self.places };
        each(tx, &self.sources.0[at], &level.access, outer, parameters, &mut |row| {
            rows.push(row);
            let joined = Joined { rows, places: &self.places };
            if holds(tx, &level.on, joined, parameters)? {
                has_partner = true;
                if holds(tx, &level.filter, joined, parameters)? {
                    goes_on = self.descend(tx, parameters, rows, visit)?;
                }
            }
            rows.truncate(at);
            Ok(goes_on)
        })?;
        if level.is_outer && !has_partner && goes_on {
            rows.push(SourceRow::Missing);
            if holds(tx, &level.filter, Joined { rows, places: &self.places }, parameters)? {
                goes_on = self.descend(tx, parameters, rows, visit)?;
            }
            rows.truncate(at);
        }
        Ok(goes_on)
    }

    /// Whether the rows come in this order: of columns, each descending or not, with NULL as the greatest value. If the
    /// access leaves a choice, it is made so that they do.
    pub(crate) fn comes_in_order(&mut self, wanted: &[(usize, bool)]) -> bool {
        let Some((level, source)) = self.levels.first_mut().zip(self.sources.0.first()) else { return false };
        let Origin::Table(table) = &source.origin else { return false };
        let definition = table.definition();
        if wanted.iter().any(|&(column, _)| column >= source.columns.len()) {
            return false;
        }
        // The direction in which these columns of a key are in the order that is wanted, behind fixed ones.
        let direction = |parts: &[seriatim::catalog::KeyPart], fixed: usize| {
            let is_fixed = |column: usize| parts[..fixed].iter().any(|part| part.column.index() == column);
            let wanted = wanted.iter().filter(|(column, _)| !is_fixed(*column));
            let mut backward = None;
            for (number, &(column, descending)) in wanted.enumerate() {
                let part = parts.get(fixed + number)?;
                let turned = part.descending != descending;
                if part.column.index() != column || *backward.get_or_insert(turned) != turned {
                    return None;
                }
            }
            Some(backward.unwrap_or(false))
        };
        let is_ordered = definition.organization == Organization::Ordered;
        match &mut level.access {
            Access::Key(_) => true,
            Access::Prefix { index, values, backward, .. } => {
                let parts = index.map_or(&definition.key, |at| &definition.indexes[at].parts);
                let found = direction(parts, values.len());
                *backward = found.unwrap_or(false);
                found.is_some()
            }
            Access::All { backward } if is_ordered && direction(&definition.key, 0).is_some() => {
                *backward = direction(&definition.key, 0).unwrap_or(false);
                true
            }
            Access::All { .. } => {
                let by_index = definition.indexes.iter().enumerate().find_map(|(at, index)| {
                    let is_ordered = index.organization == Organization::Ordered;
                    direction(&index.parts, 0).filter(|_| is_ordered).map(|backward| (at, backward))
                });
                let Some((at, backward)) = by_index else { return false };
                let values = Vec::new();
                level.access = Access::Prefix { index: Some(at), values, low: None, high: None, backward };
                true
            }
            Access::Computed => false,
        }
    }
}

/// Whether all conditions are true.
fn holds(tx: &ReadTx, conditions: &[Bound], joined: Joined<'_, '_>, parameters: &[Datum<'_>]) -> Result<bool, Abort> {
    for condition in conditions {
        let value = condition.evaluate(joined, parameters).map_err(|error| tx.abort(SqlError::from(error)))?;
        if !matches!(value, Datum::Bool(true)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The most sources of a query. Each takes a part of the stack.
const SOURCES_MAX: usize = 64;

impl Sources {
    fn add(&mut self, source: Source) -> Result<(), SqlError> {
        if self.0.iter().any(|known| known.alias == source.alias) {
            let message = format!("table name \"{}\" specified more than once", source.alias);
            return Err(SqlError::new(SqlState("42712"), message));
        }
        if self.0.len() == SOURCES_MAX {
            let message = format!("a query has at most {SOURCES_MAX} tables");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        self.0.push(source);
        Ok(())
    }
}

/// The conditions of a conjunction.
fn conjuncts(condition: Expression) -> Vec<Expression> {
    match condition {
        Expression::All(parts) => parts.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// How a source is searched, by what is said of its columns. Also the positions of the conditions that hold of the rows
/// that are found.
fn access<'e>(
    sources: &Sources,
    at: usize,
    conditions: impl Iterator<Item = &'e Expression>,
    parameters: &mut Parameters,
) -> Result<(Access, Vec<usize>), SqlError> {
    let source = &sources.0[at];
    let Origin::Table(table) = &source.origin else { return Ok((Access::Computed, Vec::new())) };
    let places = sources.places();
    let (mut equalities, mut limits) = (Vec::<Equality>::new(), Vec::<(Binary, Equality)>::new());
    for (position, condition) in conditions.enumerate() {
        let Expression::Binary(operator, a, b) = condition else { continue };
        for (operator, column, value) in [(Some(*operator), a, b), (turned(*operator), b, a)] {
            let (Some(operator), Expression::Column { table: Some(of), column }) = (operator, &**column) else {
                continue;
            };
            let Some(column) = source.columns.iter().position(|known| *of == *source.alias && known.name == **column)
            else {
                continue;
            };
            let bound = Bound::new(value, sources, parameters)?;
            let is_earlier = bound.columns().iter().all(|&column| places[column].0 < at);
            let stored = source.columns[column].stored;
            // An untyped value is read as one of the column.
            let is_untyped = matches!(**value, Expression::Literal(Literal::Text(_) | Literal::Null));
            let value = match bound.column_type().filter(|_| !is_untyped) {
                Some(ty) if is_findable(stored, Some(ty)) => (**value).clone(),
                Some(_) => continue,
                None => (**value).clone().cast(crate::types::of_expressions(stored)),
            };
            match operator {
                _ if !is_earlier => {}
                Binary::Equal => equalities.push(Equality { column, value, condition: position }),
                _ => limits.push((operator, Equality { column, value, condition: position })),
            }
        }
    }
    let fixes = |column: usize| equalities.iter().any(|equality| equality.column == column);
    let bounds = |column: usize| limits.iter().any(|(_, limit)| limit.column == column);
    let definition = table.definition();
    let Some((index, found)) = choose(definition, &fixes, &bounds) else {
        return Ok((Access::All { backward: false }, Vec::new()));
    };
    let parts = index.map_or(&definition.key, |at| &definition.indexes[at].parts);
    let (mut values, mut implied) = (Vec::new(), Vec::new());
    for part in &parts[..found] {
        let equality = equalities.iter().find(|equality| equality.column == part.column.index());
        let Some(equality) = equality else { return Ok((Access::All { backward: false }, Vec::new())) };
        values.push(Bound::new(&equality.value, sources, parameters)?);
        implied.push(equality.condition);
    }
    if index.is_none() && found == definition.key.len() {
        return Ok((Access::Key(values), implied));
    }
    let next = parts.get(found).map(|part| part.column.index());
    let mut limit = |operators: [Binary; 2]| {
        let is_one =
            |(operator, limit): &&(Binary, Equality)| Some(limit.column) == next && operators.contains(operator);
        let Some((operator, limit)) = limits.iter().find(is_one) else { return Ok::<_, SqlError>(None) };
        let is_included = *operator == operators[1];
        Ok(Some(Box::new(Limit { value: Bound::new(&limit.value, sources, parameters)?, is_included })))
    };
    let low = limit([Binary::Greater, Binary::GreaterOrEqual])?;
    let high = limit([Binary::Less, Binary::LessOrEqual])?;
    Ok((Access::Prefix { index, values, low, high, backward: false }, Vec::new()))
}

/// The operator with its operands the other way round, if it compares.
fn turned(operator: Binary) -> Option<Binary> {
    Some(match operator {
        Binary::Equal => Binary::Equal,
        Binary::Less => Binary::Greater,
        Binary::LessOrEqual => Binary::GreaterOrEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterOrEqual => Binary::LessOrEqual,
        _ => return None,
    })
}

fn source(
    factor: &TableFactor,
    names: Names<'_>,
    context: &Context,
    parameters: &mut Parameters,
) -> Result<Source, SqlError> {
    match factor {
        TableFactor::Table { name: of, alias, args: Some(arguments), .. } if is_plain(factor) => {
            series(&object(of)?, &arguments.args, alias.as_ref(), context, parameters)
        }
        TableFactor::Derived { .. } => Err(SqlError::unsupported("a query in FROM", "Tables can be joined.")),
        _ => table(factor, names),
    }
}

/// Whether a table has an alias and arguments at most.
fn is_plain(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table {
        name: _,
        alias: _,
        args: _,
        with_hints,
        version: None,
        with_ordinality: false,
        partitions,
        json_path: None,
        sample: None,
        index_directives,
        inheritance: None,
    } if with_hints.is_empty() && partitions.is_empty() && index_directives.is_empty())
}

/// A table, with an alias perhaps.
///
/// # Errors
/// There is no such table, or it is something else.
pub(crate) fn table(factor: &TableFactor, names: Names<'_>) -> Result<Source, SqlError> {
    let TableFactor::Table { name: of, alias, args: None, .. } = factor else {
        return Err(SqlError::unsupported(factor, "Tables can be named, and FROM takes joins and generate_series."));
    };
    if !is_plain(factor) {
        return Err(SqlError::unsupported(format!("a clause after the table: {factor}"), "An alias is."));
    }
    let own = object(of)?;
    let alias = match alias {
        Some(alias) if alias.columns.is_empty() && alias.at.is_none() => name(&alias.name)?,
        Some(_) => return Err(SqlError::unsupported("a list of names for the columns of a table", "")),
        None => own.clone(),
    };
    Ok(Source::table(names.table(&own)?, alias))
}

/// `generate_series(from, to)`, with a step perhaps.
fn series(
    function: &str,
    arguments: &[FunctionArg],
    alias: Option<&TableAlias>,
    context: &Context,
    parameters: &mut Parameters,
) -> Result<Source, SqlError> {
    if function != "generate_series" || !(2..=3).contains(&arguments.len()) {
        return Err(SqlError::unsupported(format!("{function} in FROM"), "generate_series(from, to, step) is there."));
    }
    let mut translator = Translator::scalar(context, "functions in FROM");
    let (mut bounds, mut stored) = (Vec::new(), None);
    for argument in arguments {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
            return Err(SqlError::unsupported(format!("{argument} as an argument"), ""));
        };
        let bound = translator.translate(argument)?;
        // The numbers have the widest type of the arguments.
        let ty = Bound::new(&bound, &crate::expression::Nothing, &mut parameters.clone())?.column_type();
        stored = match ty {
            None => stored,
            Some(ColumnType::I16 | ColumnType::I32) => stored.or(Some(ColumnType::I32)),
            Some(ColumnType::I64) => Some(ColumnType::I64),
            Some(ty) => {
                let ty = SqlType::of_stored(ty);
                return Err(SqlError::unsupported(format!("generate_series of {ty}"), "Integers have series."));
            }
        };
        bounds.push(bound);
    }
    let stored = stored.unwrap_or(ColumnType::I32);
    bounds = bounds.into_iter().map(|bound| bound.cast(stored)).collect();
    if bounds.len() == 2 {
        bounds.push(Expression::Literal(Literal::Number("1".into())));
    }
    let bounds = bounds.iter().map(|bound| Bound::new(bound, &crate::expression::Nothing, parameters));
    let bounds: Box<[Bound]> = bounds.collect::<Result<_, _>>()?;
    let (alias, column) = match alias {
        None => (function.to_owned(), function.to_owned()),
        Some(alias) => match &*alias.columns {
            [] => (name(&alias.name)?, name(&alias.name)?),
            [column] => (name(&alias.name)?, name(&column.name)?),
            _ => return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, "generate_series has one column")),
        },
    };
    let columns = vec![SourceColumn { name: column, stored, ty: SqlType::of_stored(stored) }];
    Ok(Source { alias, columns, origin: Origin::Series(bounds) })
}

/// A join in words, for messages.
fn words(join: &Join) -> String {
    join.to_string().split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

fn joined(join: &Join, sources: &Sources, context: &Context) -> Result<Written, SqlError> {
    let unsupported = || Err(SqlError::unsupported(words(join), "JOIN, LEFT JOIN and CROSS JOIN are."));
    let (constraint, is_outer) = match &join.join_operator {
        _ if join.global => return unsupported(),
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, false),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true),
        JoinOperator::CrossJoin(constraint @ JoinConstraint::None) => (constraint, false),
        _ => return unsupported(),
    };
    let mut on = match constraint {
        JoinConstraint::None => Vec::new(),
        JoinConstraint::On(condition) => {
            conjuncts(Translator::scalar(context, "JOIN conditions").translate(condition)?)
        }
        _ => return Err(SqlError::unsupported("USING and NATURAL", "Write the condition: ON a.x = b.x.")),
    };
    on.iter_mut().try_for_each(|condition| qualified(condition, sources))?;
    Ok(Written { on, is_outer })
}
