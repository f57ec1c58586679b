//! SELECT and VALUES.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::{Bound, Datum, Expression, ExpressionError, ExpressionErrorKind, Literal, Scope};
use seriatim::{Abort, Value};
use sqlparser::ast::{
    DataType, Distinct as DistinctSyntax, Expr, FunctionArguments, GroupByExpr, Ident, LimitClause, LockClause,
    OrderBy, OrderByExpr, OrderByKind, OrderBySort, Query, Select as SelectSyntax, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFunctionArgs, TableWithJoins, TrimWhereField,
    Value as LiteralSyntax, Values,
};

use crate::aggregate::{BoundCall, State};
use crate::error::{SqlError, SqlState};
use crate::expression::{Call, Context, Nothing, Translator, aggregate_column};
use crate::form;
use crate::from::{From, Parameters, qualified, resolve};
use crate::locking::{Locking, RowKey};
use crate::names::{Names, name, object};
use crate::point::Point;
use crate::rows::{Distinct, Joined, Origin, Owned, Source, SourceColumn, SourceRow, Sources, directed};
use crate::run::Env;
use crate::set::SetOperation;
use crate::subquery::Outer;
use crate::types::{SqlType, of_expressions};

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub ty: SqlType,
    /// The type of the values as they are stored.
    pub(crate) stored: Option<ColumnType>,
}

impl Column {
    /// A column of computed values.
    pub fn computed(name: impl Into<String>, ty: SqlType, stored: ColumnType) -> Column {
        Column { name: name.into(), ty, stored: Some(stored) }
    }

    /// A column of texts.
    pub(crate) fn text_named(name: String) -> Column {
        Column::computed(name, SqlType::Text, ColumnType::LongText)
    }

    /// A value of the column as PostgreSQL sends it in text; `None` for NULL.
    pub fn text<'d>(&self, value: &'d Datum<'_>) -> Option<Cow<'d, str>> {
        match value {
            Datum::Null => None,
            Datum::Bool(truth) => Some(Cow::Borrowed(if *truth { "t" } else { "f" })),
            value => {
                let text = value.to_text(self.stored);
                match self.ty {
                    SqlType::Char(width) if text.len() < width as usize * 4 => {
                        let blanks = (width as usize).saturating_sub(text.chars().count());
                        Some(Cow::Owned(text.into_owned() + &" ".repeat(blanks)))
                    }
                    _ => Some(text),
                }
            }
        }
    }
}

/// A row of a result.
pub type Row = Vec<Owned>;

/// A query that is ready to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Select {
    pub(crate) from: From,
    /// If it has at most one row, and gives its values.
    point: Option<Point>,
    grouping: Option<Grouping>,
    outputs: Vec<Bound>,
    pub(crate) columns: Arc<[Column]>,
    order: Vec<Order>,
    /// Whether rows come in the order that is wanted.
    is_in_order: bool,
    is_distinct: bool,
    /// Of rows that agree in so many values of the order, the first counts.
    distinct_keys: Option<usize>,
    limit: Option<Bound>,
    offset: Option<Bound>,
    /// How its rows are locked, and the one row if its key is known.
    pub(crate) locking: Vec<Locking>,
    /// Whether it notes which rows of its one table it has chosen among others that it skips.
    pub(crate) notes_chosen: bool,
    locked_key: Option<Point>,
}

/// How groups are made, and which of them count.
#[derive(Clone, Debug)]
struct Grouping {
    keys: Vec<Bound>,
    calls: Vec<BoundCall>,
    having: Option<Bound>,
    /// Whether there is a group even without rows.
    is_one: bool,
}

/// An item of ORDER BY.
#[derive(Clone, Debug)]
struct Order {
    by: By,
    descending: bool,
    nulls_first: bool,
}

#[derive(Clone, Debug)]
enum By {
    /// The output at this position.
    Output(usize),
    Other(Bound),
}

/// The columns of a group: its keys and its aggregates.
struct Groups<'g> {
    keys: &'g [(Expression, ColumnType)],
    calls: &'g [BoundCall],
}

impl Scope for Groups<'_> {
    fn column(&self, table: Option<&str>, column: &str) -> Result<(usize, ColumnType), ExpressionError> {
        if let Some(number) = column.strip_prefix("\0key ").and_then(|number| number.parse::<usize>().ok()) {
            return Ok((number, self.keys[number].1));
        }
        for (number, call) in self.calls.iter().enumerate() {
            if column == aggregate_column(number) {
                return Ok((self.keys.len() + number, call.result));
            }
        }
        let table = table.map_or_else(String::new, |table| format!("{table}."));
        let problem = format!(
            "column \"{table}{column}\" must appear in the GROUP BY clause or be used in an aggregate function"
        );
        Err(ExpressionError::new(ExpressionErrorKind::TypeMismatch, column, problem))
    }
}

/// What a query was written with: its outputs with their names.
struct Outputs {
    expressions: Vec<Expression>,
    names: Vec<String>,
}

impl Select {
    /// The query.
    ///
    /// # Errors
    /// It names what there is not, or has what there is not.
    pub(crate) fn bind(
        query: &Query,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Select, SqlError> {
        Select::bind_within(query, names, context, parameters, None)
    }

    /// The query inside others.
    ///
    /// # Errors
    /// As [`Select::bind`].
    pub(crate) fn bind_within(
        query: &Query,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
        outer: Option<&Outer<'_>>,
    ) -> Result<Select, SqlError> {
        // All parts are named: one more of the grammar is an error of the compiler.
        let Query {
            with,
            body,
            order_by,
            limit_clause: _,
            fetch: _,
            locks,
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators,
        } = query
        else {
            return Err(a_clause("query"));
        };
        if !pipe_operators.is_empty() {
            return Err(a_clause("query"));
        }
        let bind = |parameters: &mut Parameters| {
            let mut select = match &**body {
                // What stands in parentheses is limited before what is around it is.
                SetExpr::Query(inner)
                    if query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() =>
                {
                    let inner = Select::bind_within(inner, names, context, parameters, outer)?;
                    Select::over(SetOperation::of_one(inner)?, order_by.as_ref(), context, parameters)?
                }
                body => Select::of_body(body, order_by.as_ref(), names, context, parameters, outer)?,
            };
            let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
            if is_limited {
                (select.limit, select.offset) = limits(query, context, parameters, outer)?;
            }
            let is_plain = select.grouping.is_none() && select.limit.is_none() && select.offset.is_none();
            select.point = if is_plain { Point::of(&select.from) } else { None };
            if let Some(clause) = locks.first() {
                select.check_lockable(clause)?;
                select.locked_key = Point::of(&select.from);
                select.locking =
                    locks.iter().map(|lock| Locking::bind(lock, &select.from)).collect::<Result<_, _>>()?;
                let tables = select.locking.iter().flat_map(|locking| locking.tables(&select.from));
                context.locked.borrow_mut().extend(tables);
            }
            Ok(select)
        };
        match with {
            None => bind(parameters),
            Some(with) => context.with(with, outer, parameters, bind),
        }
    }

    /// The query of this body.
    ///
    /// # Errors
    /// As [`Select::bind`].
    pub(crate) fn of_body(
        body: &SetExpr,
        order_by: Option<&OrderBy>,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
        outer: Option<&Outer<'_>>,
    ) -> Result<Select, SqlError> {
        match body {
            SetExpr::Select(select) => bind_select(select, order_by, names, context, parameters, outer),
            SetExpr::Values(values) => {
                let source = values_source(values, context, parameters, outer)?;
                Select::over(source, order_by, context, parameters)
            }
            SetExpr::SetOperation { .. } => {
                let source = SetOperation::bind(body, names, context, parameters, outer)?;
                Select::over(source, order_by, context, parameters)
            }
            SetExpr::Query(inner) if order_by.is_none() => {
                context.deeper(|| Select::bind_within(inner, names, context, parameters, outer))
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(SqlError::unsupported("a change in a query", "Change rows in a statement of its own."))
            }
            other => {
                let words = other.to_string().chars().take(60).collect::<String>();
                Err(SqlError::unsupported(words, "A query is SELECT, VALUES, or several with UNION and the like."))
            }
        }
    }

    /// All columns of a source, in an order of them.
    fn over(
        source: Source,
        order_by: Option<&OrderBy>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Select, SqlError> {
        let is_set = matches!(source.origin, Origin::Set(_));
        let from = From::of_table(source, None, context, parameters)?;
        let mut translator = Translator::scalar(context, "ORDER BY");
        let names = from.sources.columns().map(|column| column.name.clone()).collect::<Vec<_>>();
        let expressions = names.iter().map(|own| Expression::column(own.clone())).collect();
        let outputs = Outputs { expressions, names };
        let items = order_items(order_by, &outputs, &mut translator)?;
        let mut order = Vec::new();
        for OrderItem { by, descending, nulls_first } in items {
            let by = match by {
                Wanted::Output(at) => By::Output(at),
                Wanted::Other(_) if is_set => {
                    let message = "invalid UNION/INTERSECT/EXCEPT ORDER BY clause";
                    let hint = "Order by names or positions of columns, or put the query into FROM.";
                    return Err(SqlError::unsupported(message, hint));
                }
                Wanted::Other(expression) => By::Other(context.bind(&expression, &from.sources, parameters)?),
            };
            order.push(Order { by, descending, nulls_first });
        }
        let all = (0..outputs.names.len()).map(|at| from.sources.qualified(at));
        let bound = all.map(|column| context.bind(&column, &from.sources, parameters));
        let bound = bound.collect::<Result<_, _>>()?;
        let column =
            |column: &SourceColumn| Column { name: column.name.clone(), ty: column.ty, stored: Some(column.stored) };
        let columns = from.sources.columns().map(column).collect();
        Ok(Select { from, outputs: bound, columns, order, ..Select::default() })
    }

    /// The rows of the result.
    ///
    /// # Errors
    /// A conflict; an expression without a value.
    pub(crate) fn run(&self, env: Env<'_>) -> Result<Vec<Row>, Abort> {
        self.run_some(env, usize::MAX)
    }

    /// The first rows of the result, at most so many.
    ///
    /// # Errors
    /// As [`Select::run`].
    pub(crate) fn run_some(&self, env: Env<'_>, most: usize) -> Result<Vec<Row>, Abort> {
        if let Some(point) = &self.locked_key
            && let Some(key) = point.key(env)?
        {
            for locking in &self.locking {
                if !locking.lock_key(env, point.table(), &key)? {
                    return Ok(Vec::new());
                }
            }
        }
        if let Some(point) = &self.point {
            return Ok(point.with_row(env, |joined| joined.values(&self.outputs))?.into_iter().collect());
        }
        let bound = |bound: &Option<Bound>, what| count(bound.as_ref(), env, what);
        let (limit, offset) = (bound(&self.limit, Limit::Limit)?, bound(&self.offset, Limit::Offset)?.unwrap_or(0));
        let end = limit.unwrap_or(usize::MAX).min(most).saturating_add(offset);
        let is_streamed = self.grouping.is_none() && (self.order.is_empty() || self.is_in_order) && !self.is_distinct;
        let mut found = Vec::<(Vec<Owned>, Row, Vec<RowKey>)>::new();
        // Rows are locked in the order of the result, and no more than are wanted.
        let locks_late = !self.locking.is_empty() && !is_streamed;
        if end == 0 {
            return Ok(Vec::new());
        }
        let keep = |row: &[Owned]| env.run.keep(row).map_err(|error| env.fail(error));
        match &self.grouping {
            None => self.from.each(env, &mut |joined| {
                let (keys, row) = self.output(joined)?;
                keep(&keys).and_then(|()| keep(&row))?;
                let to_lock = if locks_late { crate::locking::keys(&self.from, joined) } else { Vec::new() };
                to_lock.iter().try_for_each(|(_, key)| env.run.keep_stored(key)).map_err(|error| env.fail(error))?;
                if !locks_late && !self.locking.is_empty() {
                    let keys = crate::locking::keys(&self.from, joined);
                    if !self.lock(env, &keys)? {
                        return Ok(true);
                    }
                }
                found.push((keys, row, to_lock));
                Ok(!is_streamed || found.len() < end)
            })?,
            Some(grouping) => {
                for group in grouping.run(&self.from, env)? {
                    let rows = [crate::rows::SourceRow::Computed(group)];
                    let places: Vec<(usize, usize)> =
                        (0..grouping.keys.len() + grouping.calls.len()).map(|column| (0, column)).collect();
                    let joined = Joined { rows: &rows, places: &places, env };
                    if joined.fulfils(grouping.having.as_slice())? {
                        let (keys, row) = self.output(joined)?;
                        keep(&keys).and_then(|()| keep(&row))?;
                        found.push((keys, row, Vec::new()));
                    }
                }
            }
        }
        if self.is_distinct {
            let mut seen = BTreeSet::new();
            found.retain(|(_, row, _)| seen.insert(Distinct(row.clone())));
        }
        if !self.order.is_empty() && !self.is_in_order {
            found.sort_by(|(a, ..), (b, ..)| {
                let items = self.order.iter().zip(a.iter().zip(b));
                let by = |(item, (a, b)): (&Order, (&Owned, &Owned))| directed(a, b, item.descending, item.nulls_first);
                items.map(by).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
            });
        }
        if let Some(keys) = self.distinct_keys {
            // Rows with equal keys are neighbours.
            let of = |keys_of: &[Owned]| Distinct(keys_of[..keys].to_vec());
            found.dedup_by(|(later, ..), (before, ..)| of(later) == of(before));
        }
        let mut rows = Vec::new();
        for (_, row, to_lock) in found {
            if rows.len() == end {
                break;
            }
            if !locks_late || self.lock(env, &to_lock)? {
                rows.push(row);
            }
        }
        rows.drain(..offset.min(rows.len()));
        Ok(rows)
    }

    /// Locks rows that were found. Returns whether they count.
    fn lock(&self, env: Env<'_>, rows: &[RowKey]) -> Result<bool, Abort> {
        for locking in &self.locking {
            if !locking.lock_found(env, &self.from, rows)? {
                return Ok(false);
            }
        }
        if self.notes_chosen {
            env.run.chosen.borrow_mut().extend(rows.iter().map(|(_, key)| key.clone()));
        }
        Ok(true)
    }

    /// Whether its result is the rows of one table, of which it skips those that others have locked.
    pub(crate) fn skips(&self) -> bool {
        let is_table = |source: &Source| matches!(source.origin, Origin::Table(_));
        let is_one = matches!(&*self.from.sources.0, [source] if is_table(source)) && self.from.levels.len() == 1;
        is_one && self.point.is_none() && self.locking.iter().any(Locking::skips)
    }

    /// The result that has these rows of its one table, as far as they still fulfil its conditions.
    ///
    /// # Errors
    /// As [`Select::run`].
    pub(crate) fn of_chosen(&self, env: Env<'_>, keys: &[Vec<Value>]) -> Result<Vec<Row>, Abort> {
        let ([source], [level]) = (&*self.from.sources.0, &*self.from.levels) else { return Ok(Vec::new()) };
        let Origin::Table(table) = &source.origin else { return Ok(Vec::new()) };
        let conditions: Vec<Bound> = level.conditions().cloned().collect();
        let mut rows = Vec::new();
        for key in keys {
            let Some(row) = env.run.tx.get_dyn(table, key)? else { continue };
            let joined = Joined { rows: &[SourceRow::Stored(row)], places: &self.from.places, env };
            if joined.fulfils(&conditions)? {
                rows.push(self.output(joined)?.1);
            }
        }
        // Those before the offset are locked, too.
        let offset = count(self.offset.as_ref(), env, Limit::Offset)?.unwrap_or(0);
        rows.drain(..offset.min(rows.len()));
        Ok(rows)
    }

    /// Refuses to lock rows of a query that gives none of a table.
    fn check_lockable(&self, clause: &LockClause) -> Result<(), SqlError> {
        let what = match &self.grouping {
            Some(grouping) if grouping.is_one => "aggregate functions",
            Some(_) => "GROUP BY clause",
            None if self.is_distinct || self.distinct_keys.is_some() => "DISTINCT clause",
            None if self.from.sources.0.iter().any(|source| matches!(source.origin, Origin::Set(_))) => {
                "UNION/INTERSECT/EXCEPT"
            }
            None => return Ok(()),
        };
        let message = format!("FOR {} is not allowed with {what}", clause.lock_type);
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
    }

    /// The values by which a row is sorted, and the row.
    fn output(&self, joined: Joined<'_, '_>) -> Result<(Vec<Owned>, Row), Abort> {
        let row = joined.values(&self.outputs)?;
        if self.is_in_order {
            return Ok((Vec::new(), row));
        }
        let key = |item: &Order| match &item.by {
            By::Output(at) => Ok(row[*at].clone()),
            By::Other(bound) => joined.value(bound).map(Datum::into_owned),
        };
        let keys = self.order.iter().map(key).collect::<Result<_, _>>()?;
        Ok((keys, row))
    }

    /// The steps of the query in words, the last one first.
    pub(crate) fn explain(&self) -> Vec<String> {
        let is_sorted = !self.order.is_empty() && !self.is_in_order;
        let steps = [
            (self.limit.is_some() || self.offset.is_some(), "Limit"),
            (is_sorted, "Sort"),
            (self.is_distinct || self.distinct_keys.is_some(), "Unique"),
            (self.grouping.is_some(), "Aggregate"),
        ];
        let mut lines: Vec<String> = Vec::new();
        for (_, step) in steps.into_iter().filter(|(is_there, _)| *is_there) {
            lines.push(format!("{}{step}", " ".repeat(2 * lines.len())));
        }
        let indent = 2 * lines.len();
        lines.extend(self.from.explain(indent));
        lines
    }

    /// The types of the outputs' values.
    pub(crate) fn types(&self) -> Vec<Option<ColumnType>> {
        self.outputs.iter().map(Bound::column_type).collect()
    }

    /// The value of an output, if it is the same for all rows.
    pub(crate) fn constant(&self, at: usize) -> Option<Datum<'_>> {
        self.outputs.get(at)?.constant()
    }
}

#[cold]
fn a_clause(of: &str) -> SqlError {
    SqlError::unsupported(format!("a clause of this {of}"), "docs/sql.md says which clauses there are.")
}

impl Grouping {
    /// The groups: keys, and then aggregates.
    fn run(&self, from: &From, env: Env<'_>) -> Result<Vec<Row>, Abort> {
        let fail = |error: SqlError| env.fail(error);
        let mut groups = BTreeMap::<Distinct, Vec<State>>::new();
        let fresh = || vec![State::default(); self.calls.len()];
        if self.is_one {
            groups.insert(Distinct(Vec::new()), fresh());
        }
        from.each(env, &mut |joined| {
            let states = match groups.entry(Distinct(joined.values(&self.keys)?)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let states = size_of::<State>() * self.calls.len();
                    env.run.keep(&new.key().0).and_then(|()| env.run.keep_bytes(states)).map_err(fail)?;
                    new.insert(fresh())
                }
            };
            let mut added = self.calls.iter().zip(states);
            added.try_for_each(|(call, state)| call.add(state, joined))?;
            Ok(true)
        })?;
        let finish = |(Distinct(mut row), states): (Distinct, Vec<State>)| {
            for (call, state) in self.calls.iter().zip(states) {
                row.push(call.finish(state)?);
            }
            Ok(row)
        };
        groups.into_iter().map(finish).collect::<Result<_, _>>().map_err(fail)
    }
}

/// What a count limits.
#[derive(Clone, Copy)]
enum Limit {
    Limit,
    Offset,
}

fn count(bound: Option<&Bound>, env: Env<'_>, what: Limit) -> Result<Option<usize>, Abort> {
    match bound.map(|bound| env.value(bound)).transpose()? {
        None | Some(Datum::Null) => Ok(None),
        Some(Datum::Integer(count)) if count >= 0 => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
        Some(_) => Err(env.fail(match what {
            Limit::Limit => SqlError::new(SqlState::INVALID_ROW_COUNT_IN_LIMIT, "LIMIT must not be negative"),
            Limit::Offset => SqlError::new(SqlState::INVALID_ROW_COUNT_IN_OFFSET, "OFFSET must not be negative"),
        })),
    }
}

fn limits(
    query: &Query,
    context: &Context,
    parameters: &mut Parameters,
    outer: Option<&Outer<'_>>,
) -> Result<(Option<Bound>, Option<Bound>), SqlError> {
    let none = Sources::default();
    let mut bound = |of: Option<&Expr>, place| -> Result<Option<Bound>, SqlError> {
        let Some(of) = of else { return Ok(None) };
        let mut count = Translator::scalar(context, place).within(&none, outer, parameters).translate(of)?;
        resolve(&mut count, &none, outer)?;
        Ok(Some(context.bind(&count.cast(ColumnType::I64), &Nothing, parameters)?))
    };
    let (mut limit, mut offset) = (None, None);
    match &query.limit_clause {
        None => {}
        Some(LimitClause::LimitOffset { limit: most, offset: skipped, limit_by }) if limit_by.is_empty() => {
            limit = bound(most.as_ref(), "LIMIT")?;
            offset = bound(skipped.as_ref().map(|skipped| &skipped.value), "OFFSET")?;
        }
        Some(_) => return Err(SqlError::unsupported("this LIMIT", "Write LIMIT count OFFSET start.")),
    }
    if let Some(fetch) = &query.fetch {
        if fetch.with_ties || fetch.percent || limit.is_some() {
            return Err(SqlError::unsupported("this FETCH", "Write LIMIT count."));
        }
        let one = Expr::value(LiteralSyntax::Number("1".to_owned(), false));
        limit = bound(Some(fetch.quantity.as_ref().unwrap_or(&one)), "FETCH")?;
    }
    Ok((limit, offset))
}

fn bind_select(
    syntax: &SelectSyntax,
    order_by: Option<&OrderBy>,
    names: Names<'_>,
    context: &Context,
    parameters: &mut Parameters,
    outer: Option<&Outer<'_>>,
) -> Result<Select, SqlError> {
    let SelectSyntax {
        select_token: _,
        optimizer_hints,
        distinct,
        select_modifiers: None,
        top: None,
        top_before_distinct: _,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views,
        prewhere: None,
        selection,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window,
        qualify: None,
        window_before_qualify: _,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    } = syntax
    else {
        return Err(a_clause("SELECT"));
    };
    let is_plain = optimizer_hints.is_empty()
        && lateral_views.is_empty()
        && connect_by.is_empty()
        && cluster_by.is_empty()
        && distribute_by.is_empty()
        && sort_by.is_empty()
        && named_window.is_empty();
    if !is_plain {
        return Err(a_clause("SELECT"));
    }
    let is_distinct = matches!(distinct, Some(DistinctSyntax::Distinct));
    // A function that makes rows stands in FROM, and its column takes its place.
    let moved = rows_to_from(projection, from)?;
    let (projection, from) = moved.as_ref().map_or((projection, from), |(projection, from)| (projection, from));
    let mut from = From::bind(from, selection.as_ref(), names, context, parameters, outer)?;
    let mut translator = Translator::aggregating(context).within(&from.sources, outer, parameters);
    let mut outputs = outputs(projection, &from.sources, &from.star, &mut translator)?;
    let mut having = syntax.having.as_ref().map(|having| translator.translate(having)).transpose()?;
    let mut items = order_items(order_by, &outputs, &mut translator)?;
    let distinct_keys = match distinct {
        Some(DistinctSyntax::On(on)) => Some(distinct_keys(on, &mut items, &outputs, &mut translator)?),
        _ => None,
    };
    let is_key = |item: &&OrderItem| matches!(item.by, Wanted::Other(_));
    if outputs.names.len() + items.iter().filter(is_key).count() > OUTPUTS_MAX {
        let message = format!("target lists can have at most {OUTPUTS_MAX} entries");
        return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message));
    }
    let calls = translator.into_aggregates();

    let mut keys = group_keys(group_by, &outputs, (&from.sources, outer), context, parameters)?;
    let is_grouped = !keys.is_empty() || !calls.is_empty() || having.is_some();
    let each = outputs.expressions.iter_mut().chain(&mut having);
    let each = each.chain(items.iter_mut().filter_map(|item| match &mut item.by {
        Wanted::Other(expression) => Some(expression),
        Wanted::Output(_) => None,
    }));
    let mut each: Vec<&mut Expression> = each.collect();
    each.iter_mut().try_for_each(|expression| resolve(expression, &from.sources, outer))?;
    let types = outputs_types(&each[..outputs.names.len()], &from.sources, context);
    let grouping = match is_grouped {
        false => None,
        true => {
            let is_one = keys.is_empty();
            let calls = calls.iter().map(|call| bound_call(call, (&from.sources, outer), context, parameters));
            let calls = calls.collect::<Result<Vec<_>, _>>()?;
            add_dependent_keys(&mut keys, &each, &from.sources);
            each.iter_mut().for_each(|expression| by_group(expression, &keys));
            let bound = keys.iter().map(|key| context.bind(key, &from.sources, parameters));
            Some((bound.collect::<Result<Vec<_>, _>>()?, calls, is_one))
        }
    };
    drop(each);
    let typed_keys: Vec<(Expression, ColumnType)> = match &grouping {
        None => Vec::new(),
        Some((bound, ..)) => {
            let ty = |bound: &Bound| bound.column_type().unwrap_or(ColumnType::LongText);
            keys.into_iter().zip(bound.iter().map(ty)).collect()
        }
    };
    let groups = grouping.as_ref().map(|(_, calls, _)| Groups { keys: &typed_keys, calls });
    let bind = |expression: &Expression, parameters: &mut Parameters| match &groups {
        None => context.bind(expression, &from.sources, parameters),
        Some(groups) => context.bind(expression, groups, parameters),
    };
    let grouped = |error: ExpressionError| {
        let is_ungrouped = error.problem().contains("must appear in the GROUP BY clause");
        let state = if is_ungrouped { SqlState::GROUPING_ERROR } else { SqlState(error.sqlstate()) };
        SqlError::new(state, if is_ungrouped { error.problem().to_owned() } else { error.to_string() })
    };
    let mut bound = Vec::new();
    for expression in &outputs.expressions {
        bound.push(bind(expression, parameters).map_err(grouped)?);
    }
    let mut order = Vec::new();
    for item in &items {
        let by = match &item.by {
            Wanted::Output(at) => By::Output(*at),
            Wanted::Other(expression) => match outputs.expressions.iter().position(|output| output == expression) {
                Some(at) => By::Output(at),
                None if is_distinct => {
                    let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                    return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
                }
                None => By::Other(bind(expression, parameters).map_err(grouped)?),
            },
        };
        order.push(Order { by, descending: item.descending, nulls_first: item.nulls_first });
    }
    let having = match (&having, &groups) {
        (Some(having), Some(groups)) => Some(context.condition(having, groups, parameters).map_err(grouped)?),
        _ => None,
    };
    let columns = columns(&bound, types, &outputs.names);
    let grouping = grouping.map(|(keys, calls, is_one)| Grouping { keys, calls, having, is_one });
    let is_in_order = !order.is_empty() && grouping.is_none() && distinct_keys.is_none() && {
        let wanted = items.iter().map(|item| {
            let by = match &item.by {
                Wanted::Output(at) => &outputs.expressions[*at],
                Wanted::Other(expression) => expression,
            };
            let Expression::Column { table, column } = by else { return None };
            let (column, _) = from.sources.find(table.as_deref(), column).ok()?;
            (item.nulls_first == item.descending).then_some((column, item.descending))
        });
        wanted.collect::<Option<Vec<_>>>().is_some_and(|wanted| from.comes_in_order(&wanted))
    };
    let (limit, offset) = (None, None);
    let outputs = bound;
    Ok(Select {
        from,
        locking: Vec::new(),
        notes_chosen: false,
        locked_key: None,
        point: None,
        grouping,
        outputs,
        columns,
        order,
        is_in_order,
        is_distinct,
        distinct_keys,
        limit,
        offset,
    })
}

fn bound_call(
    call: &Call,
    (sources, outer): (&Sources, Option<&Outer<'_>>),
    context: &Context,
    parameters: &mut Parameters,
) -> Result<BoundCall, SqlError> {
    let mut call = call.clone();
    call.parts_mut().try_for_each(|part| resolve(part, sources, outer))?;
    // PostgreSQL computes such a one over the rows of the query around.
    let given = context.queries.given();
    let (own, around) = call.parts_mut().fold((false, false), |(own, around), part| {
        let is_around = |of: &Expression| matches!(of, Expression::Parameter(number) if usize::from(*number) > given);
        let is_own = |of: &Expression| matches!(of, Expression::Column { .. });
        (own || has(part, &is_own), around || has(part, &is_around))
    });
    if around && !own {
        let what = "an aggregate of columns of a query around this one alone";
        return Err(SqlError::unsupported(what, "Compute it there, in a query of FROM."));
    }
    BoundCall::bind(&call, sources, context, parameters)
}

/// The outputs and the FROM of a SELECT.
type OutputsAndFrom = (Vec<SelectItem>, Vec<TableWithJoins>);

/// The outputs and FROM of a SELECT in which a function makes rows; none if there is no such output.
///
/// # Errors
/// There are several.
fn rows_to_from(projection: &[SelectItem], from: &[TableWithJoins]) -> Result<Option<OutputsAndFrom>, SqlError> {
    const NAMES: [&str; 4] = ["generate_series", "generate_subscripts", "pg_partition_ancestors", "unnest"];
    let of = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Function(function))
        | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. } => {
            let own = crate::names::function(&function.name).ok()?;
            match &function.args {
                FunctionArguments::List(list) if NAMES.contains(&&*own) => {
                    Some((own, list.args.clone(), function.name.clone()))
                }
                _ => None,
            }
        }
        _ => None,
    };
    let mut makers = projection.iter().enumerate().filter_map(|(at, item)| Some((at, of(item)?)));
    let Some((at, (own, args, name))) = makers.next() else { return Ok(None) };
    if makers.next().is_some() {
        return Err(SqlError::unsupported("several functions that make rows", "Put them into FROM."));
    }
    let ident = |value: &str| Ident::with_quote('"', value);
    let alias = TableAlias { explicit: true, name: ident(ROWS), columns: Vec::new(), at: None };
    let relation = form::table(name, Some(alias), Some(TableFunctionArgs { args, settings: None }));
    let column = Expr::CompoundIdentifier(vec![ident(ROWS), ident(ROWS)]);
    let alias = match &projection[at] {
        SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
        _ => ident(&own),
    };
    let mut projection = projection.to_vec();
    projection[at] = SelectItem::ExprWithAlias { expr: column, alias };
    let mut from = from.to_vec();
    from.push(TableWithJoins { relation, joins: Vec::new() });
    Ok(Some((projection, from)))
}

/// The name of the source that makes rows for an output.
const ROWS: &str = "rows of a function";

/// Orders rows by the expressions of DISTINCT ON first. Returns how many there are.
fn distinct_keys(
    on: &[Expr],
    items: &mut Vec<OrderItem>,
    outputs: &Outputs,
    translator: &mut Translator<'_>,
) -> Result<usize, SqlError> {
    let mut wanted = Vec::new();
    for item in on {
        let expression = match output_of(item, outputs, "DISTINCT ON")? {
            Some(at) => outputs.expressions[at].clone(),
            None => translator.translate(item)?,
        };
        if !wanted.contains(&expression) {
            wanted.push(expression);
        }
    }
    let mut first = Vec::new();
    for item in items.iter() {
        let by = match &item.by {
            Wanted::Output(at) => &outputs.expressions[*at],
            Wanted::Other(expression) => expression,
        };
        if !first.contains(&by) {
            first.push(by);
        }
    }
    let known = first.len().min(wanted.len());
    if !first[..known].iter().all(|by| wanted.contains(by)) {
        let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    let rest: Vec<Expression> = wanted.iter().filter(|wanted| !first[..known].contains(wanted)).cloned().collect();
    // An expression may stand in the order twice.
    let is_key = |item: &OrderItem| match &item.by {
        Wanted::Output(at) => wanted.contains(&outputs.expressions[*at]),
        Wanted::Other(expression) => wanted.contains(expression),
    };
    let keys = items.iter().take_while(|item| is_key(item)).count();
    let added = rest.len();
    let rest = rest.into_iter().map(|by| OrderItem { by: Wanted::Other(by), descending: false, nulls_first: false });
    items.splice(keys..keys, rest);
    Ok(keys + added)
}

/// The declared types of outputs that are columns.
fn outputs_types(outputs: &[&mut Expression], sources: &Sources, context: &Context) -> Vec<Option<SqlType>> {
    let ty = |output: &&mut Expression| match &**output {
        Expression::Column { table, column } => {
            let (number, _) = sources.find(table.as_deref(), column).ok()?;
            sources.at(number).map(|column| column.ty)
        }
        other => context.queries.column(other).map(|column| column.ty),
    };
    outputs.iter().map(ty).collect()
}

/// The outputs of a SELECT. `star` has the numbers of the columns that `*` stands for.
fn outputs(
    projection: &[SelectItem],
    sources: &Sources,
    star: &[usize],
    translator: &mut Translator<'_>,
) -> Result<Outputs, SqlError> {
    let mut outputs = Outputs { expressions: Vec::new(), names: Vec::new() };
    let add = |outputs: &mut Outputs, number: usize| {
        outputs.expressions.push(sources.qualified(number));
        outputs.names.push(sources.at(number).map_or_else(String::new, |column| column.name.clone()));
    };
    for item in projection {
        match item {
            SelectItem::UnnamedExpr(expression) => {
                outputs.names.push(output_name(expression));
                outputs.expressions.push(crate::expression::displayed(translator.translate(expression)?));
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                outputs.names.push(name(alias)?);
                outputs.expressions.push(crate::expression::displayed(translator.translate(expr)?));
            }
            SelectItem::Wildcard(options) if options.to_string().is_empty() => {
                if sources.0.iter().all(|source| source.columns.is_empty()) {
                    let message = "SELECT * with no tables specified is not valid";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                star.iter().for_each(|&number| add(&mut outputs, number));
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), options)
                if options.to_string().is_empty() =>
            {
                let of = object(of)?;
                if !sources.has_table(&of) {
                    let message = format!("missing FROM-clause entry for table \"{of}\"");
                    return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
                }
                let is_row_id =
                    |column: &SourceColumn| column.is_hidden && column.name == seriatim::catalog::TableDef::ROW_ID;
                let is_of = |(_, column): &(usize, &SourceColumn)| column.table == of && !is_row_id(column);
                sources.columns().enumerate().filter(is_of).for_each(|(number, _)| add(&mut outputs, number));
            }
            other => return Err(SqlError::unsupported(other, "")),
        }
    }
    Ok(outputs)
}

/// Outputs without aggregates, over these sources.
///
/// # Errors
/// As [`Select::bind`].
pub(crate) fn scalar_outputs(
    items: &[SelectItem],
    sources: &Sources,
    context: &Context,
    parameters: &mut Parameters,
) -> Result<(Vec<Bound>, Arc<[Column]>), SqlError> {
    let star = sources.shown();
    let mut outputs = outputs(items, sources, &star, &mut Translator::scalar(context, "RETURNING"))?;
    if outputs.names.len() > OUTPUTS_MAX {
        let message = format!("target lists can have at most {OUTPUTS_MAX} entries");
        return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message));
    }
    outputs.expressions.iter_mut().try_for_each(|output| qualified(output, sources))?;
    let types = outputs_types(&outputs.expressions.iter_mut().collect::<Vec<_>>(), sources, context);
    let bound = outputs.expressions.iter().map(|output| context.bind(output, sources, parameters));
    let bound = bound.collect::<Result<Vec<_>, _>>()?;
    let columns = columns(&bound, types, &outputs.names);
    Ok((bound, columns))
}

/// The columns of a result.
fn columns(outputs: &[Bound], types: Vec<Option<SqlType>>, names: &[String]) -> Arc<[Column]> {
    let column = |((bound, ty), name): ((&Bound, Option<SqlType>), &String)| {
        let computed = || bound.column_type().map_or(SqlType::Text, SqlType::of_stored);
        Column { name: name.clone(), ty: ty.unwrap_or_else(computed), stored: bound.column_type() }
    };
    outputs.iter().zip(types).zip(names).map(column).collect()
}

/// The name of an output without one, as PostgreSQL gives it.
fn output_name(of: &Expr) -> String {
    name_in(of).unwrap_or_else(|| {
        let own = match of {
            Expr::Case { .. } => "case",
            Expr::Cast { data_type, .. } => return type_name(data_type),
            Expr::TypedString(typed) => return type_name(&typed.data_type),
            Expr::Value(value) if matches!(value.value, LiteralSyntax::Boolean(_)) => "bool",
            Expr::Interval(_) => "interval",
            Expr::Nested(inner) => return output_name(inner),
            _ => NAMELESS,
        };
        own.to_owned()
    })
}

/// The name of a type, as outputs get it.
fn type_name(of: &DataType) -> String {
    let written = of.to_string().to_ascii_lowercase();
    let own = written.strip_prefix("pg_catalog.").unwrap_or(&written);
    let is_own = own == "name" || own == "oid" || own.starts_with("reg");
    SqlType::of(of).ok().filter(|_| !is_own).map_or_else(|| own.replace('"', ""), SqlType::short_name)
}

/// The most outputs of a query, as PostgreSQL has it.
const OUTPUTS_MAX: usize = 1_664;

/// The name of what has none.
const NAMELESS: &str = "?column?";

/// The name of the column or function that gives an expression its name.
fn name_in(of: &Expr) -> Option<String> {
    match of {
        Expr::Identifier(ident) => name(ident).ok(),
        Expr::CompoundIdentifier(idents) => idents.last().and_then(|ident| name(ident).ok()),
        Expr::Nested(inner) => name_in(inner),
        Expr::Function(function) => function.name.0.last().map(|own| own.to_string().to_lowercase()),
        Expr::Cast { expr, .. } => name_in(expr),
        Expr::Case { else_result, .. } => else_result.as_deref().and_then(name_in),
        Expr::Substring { .. } => Some("substring".to_owned()),
        Expr::Trim { trim_where, .. } => Some(
            match trim_where {
                None | Some(TrimWhereField::Both) => "btrim",
                Some(TrimWhereField::Leading) => "ltrim",
                Some(TrimWhereField::Trailing) => "rtrim",
            }
            .to_owned(),
        ),
        Expr::Ceil { .. } => Some("ceil".to_owned()),
        Expr::Floor { .. } => Some("floor".to_owned()),
        _ => None,
    }
}

/// An item of ORDER BY, before it is bound.
struct OrderItem {
    by: Wanted,
    descending: bool,
    nulls_first: bool,
}

enum Wanted {
    Output(usize),
    Other(Expression),
}

fn order_items(
    order_by: Option<&OrderBy>,
    outputs: &Outputs,
    translator: &mut Translator<'_>,
) -> Result<Vec<OrderItem>, SqlError> {
    let expressions = match order_by.map(|order_by| (&order_by.kind, &order_by.interpolate)) {
        None => return Ok(Vec::new()),
        Some((OrderByKind::Expressions(expressions), None)) => expressions,
        Some(_) => return Err(SqlError::unsupported("ORDER BY ALL", "Name the columns.")),
    };
    let item = |item: &OrderByExpr| {
        let descending = match &item.options.sort {
            None | Some(OrderBySort::Asc) => false,
            Some(OrderBySort::Desc) => true,
            Some(other) => return Err(SqlError::unsupported(format!("{other:?} in ORDER BY"), "")),
        };
        let by = match output_of(&item.expr, outputs, "ORDER BY")? {
            Some(at) => Wanted::Output(at),
            None => Wanted::Other(translator.translate(&item.expr)?),
        };
        Ok(OrderItem { by, descending, nulls_first: item.options.nulls_first.unwrap_or(descending) })
    };
    expressions.iter().map(item).collect()
}

/// The output that an item means by its position or its name.
fn output_of(item: &Expr, outputs: &Outputs, clause: &str) -> Result<Option<usize>, SqlError> {
    match item {
        Expr::Value(value) => match &value.value {
            LiteralSyntax::Number(number, _) => {
                let at = number.parse::<usize>().ok().filter(|at| (1..=outputs.names.len()).contains(at));
                let message = format!("{clause} position {number} is not in select list");
                at.map(|at| Some(at - 1)).ok_or_else(|| SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message))
            }
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("non-integer constant in {clause}"))),
        },
        Expr::Identifier(ident) => {
            let own = name(ident)?;
            Ok(outputs.names.iter().position(|output| *output == own))
        }
        _ => Ok(None),
    }
}

/// The expressions of GROUP BY.
fn group_keys(
    group_by: &GroupByExpr,
    outputs: &Outputs,
    (sources, outer): (&Sources, Option<&Outer<'_>>),
    context: &Context,
    parameters: &mut Parameters,
) -> Result<Vec<Expression>, SqlError> {
    let items = match group_by {
        GroupByExpr::Expressions(items, modifiers) if modifiers.is_empty() => items,
        _ => return Err(SqlError::unsupported("this GROUP BY", "Name the columns.")),
    };
    let mut translator = Translator::scalar(context, "GROUP BY").within(sources, outer, parameters);
    let mut keys = Vec::new();
    for item in items {
        // A column of a table comes before an output of the same name.
        let is_column = matches!(item, Expr::Identifier(ident)
            if sources.find(None, &name(ident)?).is_ok());
        let mut key = match output_of(item, outputs, "GROUP BY")?.filter(|_| !is_column) {
            Some(at) => outputs.expressions[at].clone(),
            None => translator.translate(item)?,
        };
        resolve(&mut key, sources, outer)?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Adds the columns of a table to the keys of groups where they depend on them: the whole primary key is there.
fn add_dependent_keys(keys: &mut Vec<Expression>, used: &[&mut Expression], sources: &Sources) {
    let of = |source: &Source, column: &str| Expression::Column {
        table: Some(source.alias.clone().into()),
        column: column.to_owned().into(),
    };
    let mut more = Vec::new();
    for source in &sources.0 {
        let Origin::Table(table) = &source.origin else { continue };
        let definition = table.definition();
        let mut key = definition.key.iter().map(|part| &definition.columns[part.column.index()].name);
        if key.all(|column| keys.contains(&of(source, column))) {
            more.extend(source.columns.iter().map(|column| of(source, &column.name)));
        }
    }
    more.retain(|column| !keys.contains(column) && used.iter().any(|expression| uses(expression, column)));
    keys.extend(more);
}

fn uses(of: &Expression, column: &Expression) -> bool {
    has(of, &|part| part == column)
}

/// Whether an expression is, or has, such a part.
fn has(of: &Expression, is_one: &dyn Fn(&Expression) -> bool) -> bool {
    is_one(of) || of.parts().into_iter().any(|part| has(part, is_one))
}

/// Puts the key of a group in the place of each expression that is one.
fn by_group(of: &mut Expression, keys: &[Expression]) {
    match keys.iter().position(|key| *key == *of) {
        Some(at) => *of = Expression::column(format!("\0key {at}")),
        None => of.parts_mut().into_iter().for_each(|part| by_group(part, keys)),
    }
}

/// VALUES as a source.
fn values_source(
    values: &Values,
    context: &Context,
    parameters: &mut Parameters,
    outer: Option<&Outer<'_>>,
) -> Result<Source, SqlError> {
    let none = Sources::default();
    let mut translator = Translator::scalar(context, "VALUES").within(&none, outer, parameters);
    let mut rows: Vec<Vec<Expression>> = Vec::new();
    for row in &values.rows {
        rows.push(row.content.iter().map(|value| translator.translate(value)).collect::<Result<_, _>>()?);
    }
    rows.iter_mut().flatten().try_for_each(|value| resolve(value, &none, outer))?;
    let width = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != width) {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
    }
    // The type of a column is that of all its values together.
    let mut columns = Vec::new();
    for at in 0..width {
        let all = rows.iter().map(|row| row[at].clone()).collect();
        let ty = context.bind(&Expression::call("coalesce", all), &Nothing, parameters)?.column_type();
        columns.push(ty.unwrap_or(ColumnType::LongText));
    }
    let mut bound = Vec::new();
    for row in rows {
        let values = row.into_iter().zip(&columns).map(|(value, ty)| {
            let is_null = value == Expression::Literal(Literal::Null);
            context.bind(&if is_null { value } else { value.cast(*ty) }, &Nothing, parameters)
        });
        bound.push(values.collect::<Result<Vec<_>, _>>()?);
    }
    let column = |(at, stored): (usize, ColumnType)| SourceColumn {
        name: format!("column{}", at + 1),
        table: String::new(),
        stored: of_expressions(stored),
        ty: SqlType::of_stored(stored),
        is_hidden: false,
    };
    let columns = columns.into_iter().enumerate().map(column).collect();
    Ok(Source { alias: String::new(), columns, origin: Origin::Values(bound) }.named("*VALUES*"))
}
