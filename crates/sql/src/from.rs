//! FROM and WHERE: the sources of a query, how their rows are found, and what they must fulfil.
//!
//! Sources are joined by nested loops, in the order of the text. A condition is checked as soon as all rows that it
//! names are there. Conditions `column = value`, whose value earlier sources give, decide how a source is searched.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use seriatim::Abort;
use seriatim::catalog::expression::{Binary, Bound, Datum, Expression, Literal};
use seriatim::catalog::{ColumnType, Organization};
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, TableAlias, TableFactor, TableWithJoins,
};

use crate::error::{SqlError, SqlState};
use crate::expression::{Context, Translator};
use crate::names::{Names, name, object};
use crate::rows::{
    Access, Choice, Distinct, Equality, Joined, Limit, Origin, Owned, Source, SourceColumn, SourceRow, Sources, choose,
    each, is_findable,
};
use crate::run::Env;
use crate::subquery::Outer;
use crate::system::{self, Elements};
use crate::types::{SqlType, of_expressions};

/// The types of a statement's parameters, as far as they are known.
pub(crate) type Parameters = Vec<Option<ColumnType>>;

/// How the rows of one source take part.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    /// The source, by its position.
    pub(crate) source: usize,
    pub(crate) access: Access,
    /// What a row must fulfil to be a partner.
    on: Vec<Bound>,
    /// Whether the rows before count without a partner, too.
    is_outer: bool,
    /// Whether its own rows count without a partner, too. It is the last of two levels then, and its rows are kept.
    is_whole: bool,
    /// What must hold of all rows up to this one.
    filter: Vec<Bound>,
}

impl From {
    /// The position of the source whose rows stand at this place among joined rows.
    pub(crate) fn source_at(&self, level: usize) -> usize {
        self.levels.get(level).map_or(level, |level| level.source)
    }
}

impl Level {
    /// All that a row must fulfil beside what finds it, if the source is the only one.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Bound> {
        self.on.iter().chain(&self.filter)
    }
}

/// The sources of a query, joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct From {
    pub(crate) sources: Sources,
    pub(crate) places: Vec<(usize, usize)>,
    pub(crate) levels: Vec<Level>,
    /// The numbers of the columns that `*` stands for.
    pub(crate) star: Vec<usize>,
}

/// A source as it was written.
#[derive(Default)]
struct Written {
    on: Vec<Expression>,
    is_outer: bool,
    is_whole: bool,
    /// The columns that it takes from sources before it, if it is a query that can.
    needs: Vec<usize>,
}

/// The column that is meant, with the name of its source. What a `char` column is compared with has no blanks at its
/// end, as the column's values.
///
/// # Errors
/// There is none, or there are several.
pub(crate) fn qualified(of: &mut Expression, sources: &Sources) -> Result<(), SqlError> {
    resolve(of, sources, None)
}

/// As [`qualified`], with columns of queries around this one.
///
/// # Errors
/// As [`qualified`].
pub(crate) fn resolve(of: &mut Expression, sources: &Sources, outer: Option<&Outer<'_>>) -> Result<(), SqlError> {
    if let Expression::Column { table, column } = of {
        if column.starts_with('\0') {
            return Ok(());
        }
        let found = match (sources.find(table.as_deref(), column), outer) {
            (Ok((number, _)), _) => sources.qualified(number),
            (Err(error), Some(outer)) if error.state != SqlState::AMBIGUOUS_COLUMN => {
                outer.find(table.as_deref(), column)?.ok_or(error)?
            }
            (Err(error), _) => return Err(error),
        };
        *of = found;
        return Ok(());
    }
    of.parts_mut().into_iter().try_for_each(|part| resolve(part, sources, outer))?;
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

/// What a query takes its columns from: other queries around it, and the statement.
#[derive(Clone, Copy)]
struct Around<'a> {
    outer: Option<&'a Outer<'a>>,
    names: Names<'a>,
    context: &'a Context,
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
        outer: Option<&Outer<'_>>,
    ) -> Result<From, SqlError> {
        let around = Around { outer, names, context };
        let mut tree = Tree::default();
        from.iter().try_for_each(|tables| tree.add_item(tables, around, parameters))?;
        let conditions = match condition {
            Some(condition) => {
                let mut translator = Translator::scalar(context, "WHERE").within(&tree.sources, outer, parameters);
                translator.translate(condition).map(conjuncts)?
            }
            None => Vec::new(),
        };
        From::of(tree, conditions, context, parameters, outer)
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
        let sources = Sources(vec![source]);
        let conditions = match condition {
            Some(condition) => {
                let mut translator = Translator::scalar(context, "WHERE").within(&sources, None, parameters);
                translator.translate(condition).map(conjuncts)?
            }
            None => Vec::new(),
        };
        let star = sources.shown();
        let tree = Tree { sources, written: vec![Written::default()], star };
        From::of(tree, conditions, context, parameters, None)
    }

    fn of(
        tree: Tree,
        mut conditions: Vec<Expression>,
        context: &Context,
        parameters: &mut Parameters,
        outer: Option<&Outer<'_>>,
    ) -> Result<From, SqlError> {
        let Tree { sources, mut written, star } = tree;
        conditions.iter_mut().try_for_each(|condition| resolve(condition, &sources, outer))?;
        let inner = written.iter().all(|written| !written.is_outer && !written.is_whole && written.needs.is_empty());
        if inner {
            // The conditions of inner joins are those of the whole.
            conditions.extend(written.iter_mut().flat_map(|written| written.on.drain(..)));
        }
        let order = match inner && sources.0.len() > 1 {
            true => best_order(&sources, &conditions, context, parameters)?,
            false => (0..sources.0.len()).collect(),
        };
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &source)| position[source] = at);
        let of_source = sources.places();
        let places: Vec<(usize, usize)> = of_source.iter().map(|&(source, at)| (position[source], at)).collect();
        let level_of = |bound: &Bound| bound.columns().iter().map(|&column| places[column].0).max().unwrap_or(0);
        let mut filters: Vec<Vec<(Expression, Bound)>> = sources.0.iter().map(|_| Vec::new()).collect();
        // Those that call queries are checked after the others.
        conditions.sort_by_key(calls_query);
        for condition in conditions {
            let bound = context.condition(&condition, &sources, parameters)?;
            match filters.get_mut(level_of(&bound)) {
                Some(filter) => filter.push((condition, bound)),
                // Without a source, there is one row.
                None => filters.push(vec![(condition, bound)]),
            }
        }
        let mut levels = Vec::new();
        for (at, &source) in order.iter().enumerate() {
            let written = &mut written[source];
            let mut on = Vec::new();
            for condition in &mut written.on {
                resolve(condition, &sources, outer)?;
                on.push(context.condition(condition, &sources, parameters)?);
            }
            let filter = std::mem::take(&mut filters[at]);
            // A row without a partner must not be found by what only WHERE says of the partner.
            let is_inner = !written.is_outer && !written.is_whole;
            let said = written.on.iter().chain(filter.iter().map(|(condition, _)| condition).filter(|_| is_inner));
            let search = Search { sources: &sources, source, places: &places, level: at, context };
            let access = search.access(said, written.is_whole, parameters)?;
            let (first, implied) = (written.on.len(), access.implied());
            let is_open = |(position, _): &(usize, _)| !implied.contains(&(first + position));
            let filter = filter.into_iter().enumerate().filter(is_open).map(|(_, (_, bound))| bound).collect();
            levels.push(Level { source, access, on, is_outer: written.is_outer, is_whole: written.is_whole, filter });
        }
        if sources.0.is_empty()
            && let Some(filter) = filters.pop()
        {
            // The one row of a query without FROM.
            let source = Source { alias: String::new(), columns: Vec::new(), origin: Origin::Values(vec![Vec::new()]) };
            let filter = filter.into_iter().map(|(_, bound)| bound).collect();
            let (on, is_outer, is_whole) = (Vec::new(), false, false);
            let level = Level { source: 0, access: Access::Computed, on, is_outer, is_whole, filter };
            return Ok(From { sources: Sources(vec![source]), places, levels: vec![level], star });
        }
        Ok(From { sources, places, levels, star })
    }

    /// How the rows of each source are found, in the order of the loops.
    pub(crate) fn explain(&self, indent: usize) -> Vec<String> {
        let lines = |(at, level): (usize, &Level)| {
            let source = &self.sources.0[level.source];
            let spaces = " ".repeat(indent + 2 * at);
            let (arrow, join) = match (at, level.is_outer, level.is_whole) {
                (0, ..) => ("", ""),
                (_, false, false) => ("-> ", "for each row: "),
                (_, true, false) => ("-> ", "for each row, or none: "),
                (_, false, true) => ("-> ", "for each row, and those without: "),
                (_, true, true) => ("-> ", "for each row, or none, and those without: "),
            };
            let mut lines = vec![format!("{spaces}{arrow}{join}{}", level.access.explain(source))];
            match &source.origin {
                Origin::Joined { from, .. } => lines.extend(from.explain(indent + 2 * at + 2)),
                Origin::Set(set) => lines.extend(set.explain(indent + 2 * at + 2)),
                _ => {}
            }
            lines
        };
        self.levels.iter().enumerate().flat_map(lines).collect()
    }

    /// Calls `visit` with each combination of rows that fulfils all conditions, until it says `false`.
    ///
    /// # Errors
    /// A conflict; an expression without a value; errors of `visit`.
    pub(crate) fn each<'t>(
        &'t self,
        env: Env<'t>,
        visit: &mut dyn FnMut(Joined<'_, 't>) -> Result<bool, Abort>,
    ) -> Result<(), Abort> {
        let is_kept = |level: &Level| matches!(level.access, Access::Kept { .. });
        let kept: Vec<OnceCell<KeptRows<'t>>> = match self.levels.iter().any(is_kept) {
            true => self.levels.iter().map(|_| OnceCell::new()).collect(),
            false => Vec::new(),
        };
        let mut rows = Vec::with_capacity(self.levels.len());
        let goes_on = self.descend(env, &kept, &mut rows, visit)?;
        // What has met no partner.
        let Some((level, first)) = self.levels.split_last().filter(|(level, _)| level.is_whole && goes_on) else {
            return Ok(());
        };
        let Some(known) = kept.get(first.len()) else { return Ok(()) };
        let known = match known.get() {
            Some(known) => known,
            None => known.get_or_init_with(|| KeptRows::of(env, self, level, first.len()))?,
        };
        for (row, met) in known.rows.iter().zip(known.met.borrow().iter()) {
            if *met {
                continue;
            }
            rows.clear();
            rows.extend(first.iter().map(|_| SourceRow::Missing));
            rows.push(row.clone());
            let joined = Joined { rows: &rows, places: &self.places, env };
            if joined.fulfils(&level.filter)? && !visit(joined)? {
                break;
            }
        }
        Ok(())
    }

    fn descend<'t>(
        &'t self,
        env: Env<'t>,
        kept: &[OnceCell<KeptRows<'t>>],
        rows: &mut Vec<SourceRow<'t>>,
        visit: &mut dyn FnMut(Joined<'_, 't>) -> Result<bool, Abort>,
    ) -> Result<bool, Abort> {
        let at = rows.len();
        let Some(level) = self.levels.get(at) else {
            return visit(Joined { rows, places: &self.places, env });
        };
        let (mut has_partner, mut goes_on) = (false, true);
        let outer = rows.clone();
        let outer = Joined { rows: &outer, places: &self.places, env };
        let mut take = |row: SourceRow<'t>, met: &mut dyn FnMut()| {
            rows.push(row);
            let joined = Joined { rows, places: &self.places, env };
            if joined.fulfils(&level.on)? {
                has_partner = true;
                met();
                if joined.fulfils(&level.filter)? {
                    goes_on = self.descend(env, kept, rows, visit)?;
                }
            }
            rows.truncate(at);
            Ok(goes_on)
        };
        match (&level.access, kept.get(at)) {
            (Access::Kept { values, .. }, Some(known)) => {
                let known = known.get_or_init_with(|| KeptRows::of(env, self, level, at))?;
                for number in known.found(outer.values(values)?) {
                    // Rows are visited without an operation of the transaction.
                    env.run.tx.check_bounds()?;
                    if !take(known.rows[number].clone(), &mut || known.met.borrow_mut()[number] = true)? {
                        break;
                    }
                }
            }
            _ => each(env, &self.sources.0[level.source], &level.access, outer, &mut |row| take(row, &mut || {}))?,
        }
        if level.is_outer && !has_partner && goes_on {
            rows.push(SourceRow::Missing);
            if (Joined { rows, places: &self.places, env }).fulfils(&level.filter)? {
                goes_on = self.descend(env, kept, rows, visit)?;
            }
            rows.truncate(at);
        }
        Ok(goes_on)
    }

    /// Whether the rows come in this order: of columns, each descending or not, with NULL as the greatest value. If the
    /// access leaves a choice, it is made so that they do.
    pub(crate) fn comes_in_order(&mut self, wanted: &[(usize, bool)]) -> bool {
        let Some(level) = self.levels.first_mut() else { return false };
        let source = &self.sources.0[level.source];
        let Origin::Table(table) = &source.origin else { return false };
        let definition = table.definition();
        let of_first = |&(column, descending): &(usize, bool)| match self.places.get(column) {
            Some(&(0, at)) => Some((at, descending)),
            _ => None,
        };
        let Some(wanted) = wanted.iter().map(of_first).collect::<Option<Vec<_>>>() else { return false };
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
            Access::Key { .. } => true,
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
            Access::Each { .. } | Access::Computed | Access::Kept { .. } => false,
        }
    }
}

/// Rows that are read once, and found by values.
struct KeptRows<'t> {
    rows: Vec<SourceRow<'t>>,
    /// Their numbers, by the values of the columns; none if there are no columns.
    by: Option<BTreeMap<Distinct, Vec<usize>>>,
    /// Whether they have met a partner.
    met: RefCell<Vec<bool>>,
}

impl<'t> KeptRows<'t> {
    fn of(env: Env<'t>, from: &'t From, level: &Level, at: usize) -> Result<KeptRows<'t>, Abort> {
        let Access::Kept { columns, .. } = &level.access else {
            return Err(env.fail(SqlError::new(SqlState::INTERNAL_ERROR, "the rows of a source are not kept")));
        };
        let source = &from.sources.0[level.source];
        let mut by = (!columns.is_empty()).then(BTreeMap::<Distinct, Vec<usize>>::new);
        let mut rows: Vec<SourceRow<'t>> = Vec::new();
        let nothing = Joined { rows: &[], places: &from.places, env };
        debug_assert!(at > 0 || level.is_whole, "the first source is read as it comes");
        each(env, source, &level.access, nothing, &mut |row| {
            if let Some(by) = &mut by {
                let key: Vec<Owned> = columns.iter().map(|&column| row.get(column)).collect();
                env.run.keep(&key).map_err(|error| env.fail(error))?;
                match key.iter().any(Datum::is_null) {
                    // It equals nothing, so it is found by nothing.
                    true if !level.is_whole => return Ok(true),
                    true => {}
                    false => by.entry(Distinct(key)).or_default().push(rows.len()),
                }
            }
            env.run.keep_source(&row).map_err(|error| env.fail(error))?;
            rows.push(row);
            Ok(true)
        })?;
        let met = RefCell::new(vec![false; rows.len()]);
        Ok(KeptRows { rows, by, met })
    }

    /// The numbers of the rows that have these values.
    fn found(&self, values: Vec<Owned>) -> Box<dyn Iterator<Item = usize> + '_> {
        match &self.by {
            None => Box::new(0..self.rows.len()),
            Some(by) => Box::new(by.get(&Distinct(values)).into_iter().flatten().copied()),
        }
    }
}

/// `get_or_init` for what may fail.
trait InitWith<T> {
    fn get_or_init_with<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E>;
}

impl<T> InitWith<T> for OnceCell<T> {
    fn get_or_init_with<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(known) = self.get() {
            return Ok(known);
        }
        let made = make()?;
        Ok(self.get_or_init(|| made))
    }
}

/// Whether an expression calls a query of the statement.
fn calls_query(of: &Expression) -> bool {
    let is_call = matches!(of, Expression::Call { function, .. } if function.starts_with('\0'));
    is_call || of.parts().into_iter().any(calls_query)
}

/// The most sources of a query. Each takes a part of the stack.
const SOURCES_MAX: usize = 64;

impl Sources {
    fn add(&mut self, source: Source) -> Result<(), SqlError> {
        if self.has_table(&source.alias) && !source.alias.is_empty() {
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

/// The order in which sources are joined: each is the one that is found best by those before it. Equally good ones keep
/// their order.
fn best_order(
    sources: &Sources,
    conditions: &[Expression],
    context: &Context,
    parameters: &mut Parameters,
) -> Result<Vec<usize>, SqlError> {
    let of_source = sources.places();
    let (mut order, mut rest) = (Vec::new(), (0..sources.0.len()).collect::<Vec<usize>>());
    while !rest.is_empty() {
        let mut best = (0, 0);
        for (at, &source) in rest.iter().enumerate() {
            let mut position = vec![usize::MAX; sources.0.len()];
            order.iter().chain([&source]).enumerate().for_each(|(at, &source): (usize, &usize)| position[source] = at);
            let places: Vec<_> = of_source.iter().map(|&(source, at)| (position[source], at)).collect();
            let search = Search { sources, source, places: &places, level: order.len(), context };
            let access = search.access(conditions.iter(), false, parameters)?;
            let worth = match (&access, &sources.0[source].origin) {
                (Access::Key { .. }, _) => 5,
                (Access::Prefix { values, .. }, _) if !values.is_empty() => 4,
                (Access::Each { .. }, _) => 3,
                (Access::Prefix { .. }, _) => 1,
                (Access::Kept { columns, .. }, _) if !columns.is_empty() => 2,
                _ => 0,
            };
            if at == 0 || worth > best.0 {
                best = (worth, at);
            }
        }
        order.push(rest.remove(best.1));
    }
    Ok(order)
}

/// How a source can be searched when others are known.
struct Search<'s> {
    sources: &'s Sources,
    source: usize,
    /// Level and position of each column.
    places: &'s [(usize, usize)],
    level: usize,
    context: &'s Context,
}

impl Search<'_> {
    /// How the source is searched, by what is said of its columns.
    fn access<'e>(
        &self,
        conditions: impl Iterator<Item = &'e Expression>,
        is_whole: bool,
        parameters: &mut Parameters,
    ) -> Result<Access, SqlError> {
        let Search { sources, places, context, .. } = *self;
        let source = &sources.0[self.source];
        let first = sources.0[..self.source].iter().map(|source| source.columns.len()).sum::<usize>();
        let (mut equalities, mut limits) = (Vec::<Equality>::new(), Vec::<(Binary, Equality)>::new());
        let mut choices = Vec::<(usize, Choice)>::new();
        for (position, condition) in conditions.enumerate() {
            choices.extend(self.choice(condition, parameters)?);
            let Expression::Binary(operator, a, b) = condition else { continue };
            for (operator, column, value) in [(Some(*operator), a, b), (turned(*operator), b, a)] {
                let Some(operator) = operator.filter(|operator| turned(*operator).is_some()) else { continue };
                let Some(column) = self.column(column) else { continue };
                let bound = context.bind(value, sources, parameters)?;
                let is_earlier = bound.columns().iter().all(|&column| places[column].0 < self.level);
                let stored = source.columns[column].stored;
                let value = match given_type(value, &bound) {
                    Some(ty) if is_findable(stored, Some(ty)) => (**value).clone(),
                    Some(_) => continue,
                    None => (**value).clone().cast(of_expressions(stored)),
                };
                debug_assert!(first + column < places.len(), "the column is one of the sources'");
                match operator {
                    _ if !is_earlier => {}
                    Binary::Equal => equalities.push(Equality { column, value, condition: position }),
                    _ => limits.push((operator, Equality { column, value, condition: position })),
                }
            }
        }
        // What is read for each row before is read once, if nothing finds its rows faster.
        let kept = |equalities: Vec<Equality>, parameters: &mut Parameters| {
            let mut columns = Vec::new();
            let mut values = Vec::new();
            for equality in equalities
                .into_iter()
                .filter(|equality| self.level > 0 && is_exact(source.columns[equality.column].stored))
            {
                if !columns.contains(&equality.column) {
                    columns.push(equality.column);
                    values.push(context.bind(&equality.value, sources, parameters)?);
                }
            }
            let is_cheap = match &source.origin {
                Origin::Query { arguments, .. } => !arguments.is_empty(),
                Origin::Elements(..) | Origin::Series(_) | Origin::Working(_) => columns.is_empty(),
                Origin::Table(_) => columns.is_empty(),
                _ => false,
            };
            Ok::<_, SqlError>(match (self.level, &source.origin) {
                _ if is_whole => Access::Kept { columns, values },
                (0, Origin::Table(_)) => Access::All { backward: false },
                (0, _) => Access::Computed,
                (_, Origin::Table(_)) if is_cheap => Access::All { backward: false },
                _ if is_cheap => Access::Computed,
                _ => Access::Kept { columns, values },
            })
        };
        let Origin::Table(table) = &source.origin else { return kept(equalities, parameters) };
        if is_whole {
            return kept(equalities, parameters);
        }
        let chosen = |column: usize| choices.iter().find(|(known, _)| *known == column).map(|(_, choice)| choice);
        let fixes =
            |column: usize| equalities.iter().any(|equality| equality.column == column) || chosen(column).is_some();
        let bounds = |column: usize| limits.iter().any(|(_, limit)| limit.column == column);
        let definition = table.definition();
        let Some((index, found)) = choose(definition, &fixes, &bounds) else {
            return kept(equalities, parameters);
        };
        let parts = index.map_or(&definition.key, |at| &definition.indexes[at].parts);
        let (mut values, mut implied, mut each) = (Vec::new(), Vec::new(), Vec::new());
        for (at, part) in parts[..found].iter().enumerate() {
            let column = part.column.index();
            match equalities.iter().find(|equality| equality.column == column) {
                Some(equality) => {
                    values.push(context.bind(&equality.value, sources, parameters)?);
                    implied.push(equality.condition);
                }
                None => {
                    values.push(context.bind(&Expression::Literal(Literal::Null), sources, parameters)?);
                    each.extend(chosen(column).map(|choice| (at, choice.clone())));
                }
            }
        }
        // A list would be gone through for each row before.
        if self.level > 0 && implied.is_empty() && !each.is_empty() && !equalities.is_empty() {
            return kept(equalities, parameters);
        }
        let for_each = |access: Access| {
            each.into_iter().rev().fold(access, |access, (at, choice)| Access::Each {
                access: access.into(),
                at,
                choice,
            })
        };
        if index.is_none() && found == definition.key.len() {
            return Ok(for_each(Access::Key { values, implied }));
        }
        let next = parts.get(found).map(|part| part.column.index());
        let mut limit = |operators: [Binary; 2]| {
            let is_one =
                |(operator, limit): &&(Binary, Equality)| Some(limit.column) == next && operators.contains(operator);
            let Some((operator, limit)) = limits.iter().find(is_one) else { return Ok::<_, SqlError>(None) };
            let is_included = *operator == operators[1];
            Ok(Some(Box::new(Limit { value: context.bind(&limit.value, sources, parameters)?, is_included })))
        };
        let low = limit([Binary::Greater, Binary::GreaterOrEqual])?;
        let high = limit([Binary::Less, Binary::LessOrEqual])?;
        Ok(for_each(Access::Prefix { index, values, low, high, backward: false }))
    }

    /// The position in the source of the column that an expression is.
    fn column(&self, of: &Expression) -> Option<usize> {
        let Expression::Column { table: Some(table), column } = of else { return None };
        let is_it = |known: &SourceColumn| **table == *known.table && known.name == **column;
        self.sources.0[self.source].columns.iter().position(is_it)
    }

    /// The column for which a condition gives values, and these: `column IN (…)` or `column = ANY (…)`.
    fn choice(&self, condition: &Expression, parameters: &mut Parameters) -> Result<Option<(usize, Choice)>, SqlError> {
        let (of, list) = match condition {
            Expression::In { of, list } => (&**of, &**list),
            Expression::Call { function, arguments } if **function == *"\0any =" && arguments.len() == 2 => {
                (&arguments[0], &arguments[1..])
            }
            _ => return Ok(None),
        };
        let Search { sources, places, context, .. } = *self;
        let Some(column) = self.column(of) else { return Ok(None) };
        let stored = sources.0[self.source].columns[column].stored;
        if !is_exact(stored) {
            return Ok(None);
        }
        let is_earlier = |bound: &Bound| bound.columns().iter().all(|&column| places[column].0 < self.level);
        let ty = of_expressions(stored);
        if let Expression::Call { .. } = condition {
            let array = context.bind(&list[0], sources, parameters)?;
            return Ok(is_earlier(&array).then_some((column, Choice::Array(array, ty))));
        }
        let (mut values, mut has_untyped, mut all_of_type) = (Vec::new(), false, true);
        for value in list {
            let bound = context.bind(value, sources, parameters)?;
            if !is_earlier(&bound) {
                return Ok(None);
            }
            values.push(match given_type(value, &bound) {
                Some(given) if is_findable(stored, Some(given)) => {
                    all_of_type &= given == ty;
                    bound
                }
                Some(_) => return Ok(None),
                None => {
                    has_untyped = true;
                    context.bind(&value.clone().cast(ty), sources, parameters)?
                }
            });
        }
        // Untyped values beside those of another type are of that one.
        Ok((all_of_type || !has_untyped).then_some((column, Choice::List(values))))
    }
}

/// The type of a value that is compared with a column. An untyped one, which has none, is read as one of the column.
fn given_type(value: &Expression, bound: &Bound) -> Option<ColumnType> {
    let is_untyped = matches!(value, Expression::Literal(Literal::Text(_) | Literal::Null));
    bound.column_type().filter(|_| !is_untyped)
}

/// Whether a value that equals a column's is found by comparing both as they are.
fn is_exact(stored: ColumnType) -> bool {
    // The values of an enum are numbers, and what they are compared with are texts.
    !matches!(stored, ColumnType::Enum { .. } | ColumnType::Char)
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

/// Sources in the order of the text, and what was written of each.
#[derive(Default)]
struct Tree {
    sources: Sources,
    written: Vec<Written>,
    star: Vec<usize>,
}

impl Tree {
    /// Adds a table of FROM, with its joins.
    fn add_item(
        &mut self,
        tables: &TableWithJoins,
        around: Around<'_>,
        parameters: &mut Parameters,
    ) -> Result<(), SqlError> {
        let start = self.sources.0.len();
        let (first, before) = (self.sources.columns().count(), self.star.len());
        self.add(&tables.relation, around, parameters)?;
        for join in &tables.joins {
            let join = Operator::of(join)?;
            if join.is_right {
                self.gather(start, first, before, around, parameters)?;
            }
            let behind = self.sources.columns().count();
            self.add(join.relation, around, parameters)?;
            let range = first..behind;
            let mut common = Vec::new();
            for column in self.using(join.constraint, range.clone())? {
                let left = self.one(&column, range.clone(), "left")?;
                let right = self.one(&column, behind..usize::MAX, "right")?;
                common.push((left, right));
            }
            let mut on = match join.constraint {
                JoinConstraint::On(condition) => {
                    let translator = Translator::scalar(around.context, "JOIN conditions");
                    let mut translator = translator.within(&self.sources, around.outer, parameters);
                    conjuncts(translator.translate(condition)?)
                }
                _ => Vec::new(),
            };
            let column = |tree: &Tree, number: usize| tree.sources.qualified(number);
            for &(left, right) in &common {
                on.push(column(self, left).with(Binary::Equal, column(self, right)));
            }
            on.iter_mut().try_for_each(|condition| resolve(condition, &self.sources, around.outer))?;
            if let Some(written) = self.written.last_mut() {
                (written.on, written.is_outer, written.is_whole) = (on, join.is_left, join.is_right);
            }
            let merged: Vec<(String, Expression)> = match join.is_right {
                false => Vec::new(),
                true => common
                    .iter()
                    .map(|&(left, right)| {
                        let both = vec![column(self, left), column(self, right)];
                        let name = self.sources.at(left).map_or_else(String::new, |column| column.name.clone());
                        (name, Expression::call("coalesce", both))
                    })
                    .collect(),
            };
            for &(left, right) in &common {
                self.hide(right);
                if join.is_right {
                    self.hide(left);
                }
            }
            // The common columns come first, and once.
            let mut star: Vec<usize> = common.iter().map(|(left, _)| *left).filter(|_| !join.is_right).collect();
            let rest =
                self.star.drain(before..).filter(|column| !common.iter().any(|(a, b)| a == column || b == column));
            star.extend(rest);
            self.star.extend(star);
            if join.is_right {
                self.gather_with(start, first, before, merged, around, parameters)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, factor: &TableFactor, around: Around<'_>, parameters: &mut Parameters) -> Result<(), SqlError> {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            let mut inner = Tree::default();
            around.context.deeper(|| inner.add_item(table_with_joins, around, parameters))?;
            let source = inner.joined(Vec::new(), around, parameters)?;
            return self.push(source, Written::default());
        }
        let (source, needs) = source(factor, &self.sources, around, parameters)?;
        self.push(source, Written { needs, ..Written::default() })
    }

    fn push(&mut self, source: Source, written: Written) -> Result<(), SqlError> {
        let first = self.sources.columns().count();
        let shown = source.columns.iter().enumerate().filter(|(_, column)| !column.is_hidden);
        self.star.extend(shown.map(|(at, _)| first + at));
        self.sources.add(source)?;
        self.written.push(written);
        Ok(())
    }

    /// Makes one source of those from `start` on.
    fn gather(
        &mut self,
        start: usize,
        first: usize,
        before: usize,
        around: Around<'_>,
        parameters: &mut Parameters,
    ) -> Result<(), SqlError> {
        if self.sources.0.len() == start + 1 {
            return Ok(());
        }
        self.gather_with(start, first, before, Vec::new(), around, parameters)
    }

    fn gather_with(
        &mut self,
        start: usize,
        first: usize,
        before: usize,
        computed: Vec<(String, Expression)>,
        around: Around<'_>,
        parameters: &mut Parameters,
    ) -> Result<(), SqlError> {
        let sources = Sources(self.sources.0.split_off(start));
        let written = self.written.split_off(start);
        let star: Vec<usize> = self.star.split_off(before).into_iter().map(|column| column - first).collect();
        if written.iter().any(|written| written.needs.iter().any(|&column| column < first)) {
            return Err(SqlError::unsupported("LATERAL in a RIGHT or FULL JOIN of other tables", ""));
        }
        let source = Tree { sources, written, star }.joined(computed, around, parameters)?;
        self.push(source, Written::default())
    }

    /// All sources as one, with these columns before theirs.
    fn joined(
        self,
        computed: Vec<(String, Expression)>,
        around: Around<'_>,
        parameters: &mut Parameters,
    ) -> Result<Source, SqlError> {
        let from = From::of(self, Vec::new(), around.context, parameters, around.outer)?;
        let hidden = (0..from.sources.columns().count()).filter(|column| !from.star.contains(column));
        let order: Vec<usize> = from.star.iter().copied().chain(hidden).collect();
        let (mut columns, mut bound) = (Vec::new(), Vec::new());
        for (name, expression) in computed {
            let of = around.context.bind(&expression, &from.sources, parameters)?;
            let stored = of.column_type().unwrap_or(ColumnType::LongText);
            let (table, ty) = (around.context.queries.join_name(), SqlType::of_stored(stored));
            columns.push(SourceColumn { name, table, stored, ty, is_hidden: false });
            bound.push(of);
        }
        columns.extend(order.iter().filter_map(|&column| from.sources.at(column).cloned()));
        let origin = Origin::Joined { from: Box::new(from), computed: bound, order };
        Ok(Source { alias: String::new(), columns, origin })
    }

    /// The names of the columns that a join has in common.
    fn using(&self, constraint: &JoinConstraint, left: std::ops::Range<usize>) -> Result<Vec<String>, SqlError> {
        match constraint {
            JoinConstraint::Using(columns) => columns.iter().map(object).collect(),
            JoinConstraint::Natural => {
                let shown = |columns: &[&SourceColumn]| -> Vec<String> {
                    columns.iter().filter(|column| !column.is_hidden).map(|column| column.name.clone()).collect()
                };
                let all: Vec<&SourceColumn> = self.sources.columns().collect();
                let right = shown(&all[left.end..]);
                let mut common = shown(&all[left]);
                common.retain(|column| right.contains(column));
                Ok(common)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The number of the one column of this name in a part of the sources.
    fn one(&self, name: &str, range: std::ops::Range<usize>, side: &str) -> Result<usize, SqlError> {
        let is_meant = |(number, column): &(usize, &SourceColumn)| {
            range.contains(number) && column.name == name && !column.is_hidden
        };
        let mut found = self.sources.columns().enumerate().filter(is_meant);
        match (found.next(), found.next()) {
            (Some((number, _)), None) => Ok(number),
            (None, _) => {
                let message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).column(name))
            }
            (Some(_), Some(_)) => {
                let message = format!("common column name \"{name}\" appears more than once in {side} table");
                Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).column(name))
            }
        }
    }

    fn hide(&mut self, number: usize) {
        let mut columns = self.sources.0.iter_mut().flat_map(|source| &mut source.columns);
        if let Some(column) = columns.nth(number) {
            column.is_hidden = true;
        }
    }
}

/// A join as it was written.
struct Operator<'j> {
    relation: &'j TableFactor,
    constraint: &'j JoinConstraint,
    /// Whether the rows before count without a partner.
    is_left: bool,
    /// Whether the rows of the relation do.
    is_right: bool,
}

impl Operator<'_> {
    fn of(join: &Join) -> Result<Operator<'_>, SqlError> {
        let unsupported = || {
            let words = join.to_string().split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            Err(SqlError::unsupported(words, "JOIN, LEFT, RIGHT, FULL and CROSS JOIN are."))
        };
        let (constraint, is_left, is_right) = match &join.join_operator {
            _ if join.global => return unsupported(),
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, false, false),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true, false),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (constraint, false, true),
            JoinOperator::FullOuter(constraint) => (constraint, true, true),
            JoinOperator::CrossJoin(constraint @ JoinConstraint::None) => (constraint, false, false),
            _ => return unsupported(),
        };
        if matches!(constraint, JoinConstraint::UsingAlias(..)) {
            return unsupported();
        }
        Ok(Operator { relation: &join.relation, constraint, is_left, is_right })
    }
}

/// A source, and the columns of those before it that it takes.
fn source(
    factor: &TableFactor,
    before: &Sources,
    around: Around<'_>,
    parameters: &mut Parameters,
) -> Result<(Source, Vec<usize>), SqlError> {
    let Around { outer, names, context } = around;
    let columns_of = |bounds: &[Bound]| bounds.iter().flat_map(|bound| bound.columns().to_vec()).collect();
    if let Some((function, arguments, with_ordinality, alias)) = called(factor)? {
        let arguments = Arguments { of: &arguments, before, around };
        let source = match &*function {
            "generate_series" if with_ordinality => {
                return Err(SqlError::unsupported("generate_series WITH ORDINALITY", "unnest has it."));
            }
            "generate_series" => series(&arguments, parameters)?,
            function => elements(function, &arguments, with_ordinality, parameters)?,
        };
        let needs = match &source.origin {
            Origin::Series(bounds) => columns_of(bounds),
            Origin::Elements(bound, _) => columns_of(std::slice::from_ref(bound)),
            _ => Vec::new(),
        };
        let source = match alias {
            None => source.named(function.clone()),
            // The alias of a function with one column names it, too.
            Some(alias) if alias.columns.is_empty() && source.columns.len() == 1 => {
                let mut source = source.under(alias)?;
                source.columns[0].name.clone_from(&source.alias);
                source
            }
            Some(alias) => source.under(alias)?,
        };
        return Ok((source, needs));
    }
    match factor {
        TableFactor::Derived { lateral, subquery, alias, sample: None } => {
            let none = Sources::default();
            let scope = (if *lateral { before } else { &none }, outer);
            let source = context.derived(subquery, alias.as_ref(), scope, parameters)?;
            let needs = match &source.origin {
                Origin::Query { arguments, .. } => columns_of(arguments),
                _ => Vec::new(),
            };
            Ok((source, needs))
        }
        TableFactor::Table { name: of, alias, args: None, .. } if is_plain(factor) => {
            if let [one] = &*of.0
                && let Some(ident) = one.as_ident()
                && let Some(source) = context.with_table(&name(ident)?, alias.as_ref())
            {
                return Ok((source?, Vec::new()));
            }
            if let Some(table) = system::table(of)? {
                let source = table.source();
                let source = match alias {
                    Some(alias) => source.under(alias)?,
                    None => source,
                };
                return Ok((source, Vec::new()));
            }
            table(factor, names).map(|source| (source, Vec::new()))
        }
        _ => table(factor, names).map(|source| (source, Vec::new())),
    }
}

/// A function in FROM: its name, its arguments, whether its rows are numbered, and its alias.
type CalledFunction<'f> = (String, Cow<'f, [FunctionArg]>, bool, Option<&'f TableAlias>);

/// The function that is called in FROM, if one is.
fn called(factor: &TableFactor) -> Result<Option<CalledFunction<'_>>, SqlError> {
    Ok(match factor {
        TableFactor::Table { name, alias, args: Some(arguments), with_ordinality, .. } if is_plain(factor) => {
            let function = crate::names::function(name)?;
            Some((function, Cow::Borrowed(&*arguments.args), *with_ordinality, alias.as_ref()))
        }
        TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
            Some((crate::names::function(name)?, Cow::Borrowed(&**args), *with_ordinality, alias.as_ref()))
        }
        TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_offset_alias: None, with_ordinality } => {
            let argument = |of: &Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(of.clone()));
            let arguments = array_exprs.iter().map(argument).collect();
            Some(("unnest".to_owned(), arguments, *with_ordinality, alias.as_ref()))
        }
        _ => None,
    })
}

/// Whether a table has an alias and arguments at most.
fn is_plain(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table {
        name: _,
        alias: _,
        args: _,
        with_hints,
        version: None,
        with_ordinality: _,
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
    let source = Source::table(names.table(&own)?, own);
    match alias {
        Some(alias) => source.under(alias),
        None => Ok(source),
    }
}

/// The arguments of a function in FROM.
struct Arguments<'a> {
    of: &'a [FunctionArg],
    before: &'a Sources,
    around: Around<'a>,
}

impl Arguments<'_> {
    /// The arguments, and the types of those that are columns.
    fn translated(&self, parameters: &mut Parameters) -> Result<Vec<(Expression, Option<SqlType>)>, SqlError> {
        let Around { outer, context, .. } = self.around;
        let mut arguments = Vec::new();
        for argument in self.of {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
                return Err(SqlError::unsupported(format!("{argument} as an argument"), ""));
            };
            let translator = Translator::scalar(context, "functions in FROM");
            let mut argument = translator.within(self.before, outer, parameters).translate(argument)?;
            let ty = match &argument {
                Expression::Column { table, column } => column_type(self.before, outer, table.as_deref(), column),
                _ => None,
            };
            resolve(&mut argument, self.before, outer)?;
            arguments.push((argument, ty));
        }
        Ok(arguments)
    }
}

/// The type of a column of sources, or of a query around them.
pub(crate) fn column_type(
    sources: &Sources,
    outer: Option<&Outer<'_>>,
    table: Option<&str>,
    column: &str,
) -> Option<SqlType> {
    let found = sources.find(table, column).ok().and_then(|(number, _)| sources.at(number));
    found.map(|column| column.ty).or_else(|| outer?.column_type(table, column))
}

/// `generate_series(from, to)`, with a step perhaps.
fn series(arguments: &Arguments<'_>, parameters: &mut Parameters) -> Result<Source, SqlError> {
    if !(2..=3).contains(&arguments.of.len()) {
        let what = format!("generate_series with {} arguments", arguments.of.len());
        return Err(SqlError::unsupported(what, "generate_series(from, to, step) is there."));
    }
    let (context, before) = (arguments.around.context, arguments.before);
    let bounds = arguments.translated(parameters)?;
    let mut bounds: Vec<Expression> = bounds.into_iter().map(|(bound, _)| bound).collect();
    let mut stored = None;
    for bound in &bounds {
        // The numbers have the widest type of the arguments.
        let ty = context.bind(bound, before, &mut parameters.clone())?.column_type();
        stored = match ty {
            None => stored,
            Some(ColumnType::I16 | ColumnType::I32) => stored.or(Some(ColumnType::I32)),
            Some(ColumnType::I64 | ColumnType::U32) => Some(ColumnType::I64),
            Some(ty) => {
                let ty = SqlType::of_stored(ty);
                return Err(SqlError::unsupported(format!("generate_series of {ty}"), "Integers have series."));
            }
        };
    }
    let stored = stored.unwrap_or(ColumnType::I32);
    bounds = bounds.into_iter().map(|bound| bound.cast(stored)).collect();
    if bounds.len() == 2 {
        bounds.push(Expression::Literal(Literal::Number("1".into())));
    }
    let bounds = bounds.iter().map(|bound| context.bind(bound, before, parameters));
    let bounds: Box<[Bound]> = bounds.collect::<Result<_, _>>()?;
    let columns = vec![SourceColumn {
        name: "generate_series".to_owned(),
        table: String::new(),
        stored,
        ty: SqlType::of_stored(stored),
        is_hidden: false,
    }];
    Ok(Source { alias: String::new(), columns, origin: Origin::Series(bounds) })
}

/// A function that makes rows of the elements of an array.
fn elements(
    function: &str,
    arguments: &Arguments<'_>,
    with_ordinality: bool,
    parameters: &mut Parameters,
) -> Result<Source, SqlError> {
    let mut all = arguments.translated(parameters)?.into_iter();
    let Some((array, ty)) = all.next().filter(|_| function != "unnest" || all.next().is_none()) else {
        let message = format!("{function} takes one array");
        return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
    };
    let are_numbers = ty.is_some_and(SqlType::is_array_of_numbers);
    let Some(wanted) = Elements::named(function, are_numbers, with_ordinality) else {
        let instead = "generate_series, unnest and generate_subscripts are there.";
        return Err(SqlError::unsupported(format!("{function} in FROM"), instead));
    };
    let array = arguments.around.context.bind(&array, arguments.before, parameters)?;
    let origin = Origin::Elements(Box::new(array), wanted);
    Ok(Source { alias: String::new(), columns: wanted.columns(function), origin })
}
