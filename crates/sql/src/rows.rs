//! Rows of tables and of other sources, and how a query finds them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use seriatim::catalog::expression::{
    Bound, Columns, Datum, EvaluationError, Expression, ExpressionError, ExpressionErrorKind, Scope,
};
use seriatim::catalog::{ColumnDef, ColumnType, IdentityKind, KeyPart, Organization, TableDef};
use seriatim::{Abort, DynHandle, DynRow, ReadTx, Value};

use sqlparser::ast::TableAlias;

use crate::array::elements;
use crate::error::{SqlError, SqlState};
use crate::from::From;
use crate::names::name;
use crate::run::Env;
use crate::set::SetOperation;
use crate::system;
use crate::types::SqlType;

/// The value of an expression, which may outlive the rows that it was computed from.
pub(crate) type Owned = Datum<'static>;

/// A column of a source.
#[derive(Clone, Debug)]
pub(crate) struct SourceColumn {
    pub(crate) name: String,
    /// The name of its table.
    pub(crate) table: String,
    pub(crate) stored: ColumnType,
    pub(crate) ty: SqlType,
    /// Whether only its table's name finds it. Another column has its values, or it numbers the rows of a table without
    /// a key.
    pub(crate) is_hidden: bool,
}

/// Whether a column has the numbers of the rows of a table without a key.
pub(crate) fn is_row_id(column: &ColumnDef) -> bool {
    column.identity.is_some_and(|identity| identity.kind == IdentityKind::RowId)
}

/// What rows come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Table(DynHandle),
    /// `generate_series(from, to, by)`.
    Series(Box<[Bound]>),
    /// The elements of an array, or their numbers.
    Elements(Box<Bound>, system::Elements),
    /// `VALUES` with the rows' expressions.
    Values(Vec<Vec<Bound>>),
    /// A query of the statement, with its arguments.
    Query {
        number: usize,
        arguments: Vec<Bound>,
    },
    /// The last rows of a recursive query.
    Working(usize),
    /// Other sources, joined: some columns are computed, and stand before theirs.
    Joined {
        from: Box<From>,
        computed: Vec<Bound>,
        order: Vec<usize>,
    },
    /// Two queries, as one.
    Set(Box<SetOperation>),
    /// A table of the system catalogue.
    System(&'static system::Table),
}

/// A part of FROM.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) alias: String,
    pub(crate) columns: Vec<SourceColumn>,
    pub(crate) origin: Origin,
}

impl Source {
    /// A table under this name.
    pub(crate) fn table(table: DynHandle, alias: String) -> Source {
        let column = |column: &ColumnDef| SourceColumn {
            name: column.name.to_string(),
            table: alias.clone(),
            stored: column.ty,
            ty: SqlType::of_column(column),
            is_hidden: is_row_id(column),
        };
        let columns = table.definition().columns.iter().map(column).collect();
        Source { alias, columns, origin: Origin::Table(table) }
    }

    /// The same source under another name.
    #[must_use]
    pub(crate) fn named(mut self, alias: impl Into<String>) -> Source {
        self.alias = alias.into();
        self.columns.iter_mut().for_each(|column| column.table.clone_from(&self.alias));
        self
    }

    /// The same source under the names of an alias.
    ///
    /// # Errors
    /// It has more columns than the source.
    pub(crate) fn under(mut self, alias: &TableAlias) -> Result<Source, SqlError> {
        let own = name(&alias.name)?;
        if alias.at.is_some() {
            return Err(SqlError::unsupported("AT in FROM", ""));
        }
        if alias.columns.len() > self.columns.len() {
            let message = format!(
                "table \"{own}\" has {} columns available but {} columns specified",
                self.columns.len(),
                alias.columns.len()
            );
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        for (column, given) in self.columns.iter_mut().zip(&alias.columns) {
            if given.data_type.is_some() {
                return Err(SqlError::unsupported("a type in an alias", ""));
            }
            column.name = name(&given.name)?;
        }
        Ok(self.named(own))
    }

    /// Whether it is, or has, a table of this name.
    fn has_table(&self, table: &str) -> bool {
        self.alias == table || self.columns.iter().any(|column| column.table == table)
    }
}

/// The name of a column before its number: nobody can write it.
const NUMBERED: &str = "\0column ";

/// The columns of several sources, numbered one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(pub(crate) Vec<Source>);

impl Sources {
    /// Source and position of each column.
    pub(crate) fn places(&self) -> Vec<(usize, usize)> {
        let of = |(at, source): (usize, &Source)| (0..source.columns.len()).map(move |column| (at, column));
        self.0.iter().enumerate().flat_map(of).collect()
    }

    /// All columns, in their order.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &SourceColumn> {
        self.0.iter().flat_map(|source| &source.columns)
    }

    /// The column of this number.
    pub(crate) fn at(&self, number: usize) -> Option<&SourceColumn> {
        self.columns().nth(number)
    }

    /// The column of this number, with the name of its table.
    pub(crate) fn qualified(&self, number: usize) -> Expression {
        let (table, column) = self.at(number).map_or(("", ""), |column| (&*column.table, &*column.name));
        if self.find(Some(table), column).is_err() {
            // Several have this name.
            return Expression::column(format!("{NUMBERED}{number}"));
        }
        Expression::Column { table: Some(table.to_owned().into()), column: column.to_owned().into() }
    }

    /// Whether a source has this name.
    pub(crate) fn has_table(&self, table: &str) -> bool {
        self.0.iter().any(|source| source.has_table(table))
    }

    /// The numbers of the columns for which `*` stands.
    pub(crate) fn shown(&self) -> Vec<usize> {
        self.columns().enumerate().filter(|(_, column)| !column.is_hidden).map(|(number, _)| number).collect()
    }

    /// The number and the type of the column of this name.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(crate) fn find(&self, table: Option<&str>, column: &str) -> Result<(usize, ColumnType), SqlError> {
        if let Some(number) = column.strip_prefix(NUMBERED).and_then(|number| number.parse().ok())
            && let Some(known) = self.at(number)
        {
            return Ok((number, known.stored));
        }
        let mut found = None;
        for (number, known) in self.columns().enumerate() {
            let is_meant = match table {
                None => !known.is_hidden,
                Some(table) => table == known.table,
            };
            if is_meant && known.name == column && found.replace((number, known.stored)).is_some() {
                let message = format!("column reference \"{column}\" is ambiguous");
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message).column(column));
            }
        }
        found.ok_or_else(|| match table {
            Some(table) if !self.has_table(table) => {
                let message = format!("missing FROM-clause entry for table \"{table}\"");
                SqlError::new(SqlState::UNDEFINED_TABLE, message)
            }
            _ => {
                let table = table.map_or_else(String::new, |table| format!("{table}."));
                let message = format!("column \"{table}{column}\" does not exist");
                SqlError::new(SqlState::UNDEFINED_COLUMN, message).column(column)
            }
        })
    }
}

/// For names that are known to be there.
impl Scope for Sources {
    fn column(&self, table: Option<&str>, column: &str) -> Result<(usize, ColumnType), ExpressionError> {
        self.find(table, column)
            .map_err(|error| ExpressionError::new(ExpressionErrorKind::UndefinedColumn, column, &*error.message))
    }
}

/// A row of a source; none of the outer side of a join without a partner.
#[derive(Clone, Debug)]
pub(crate) enum SourceRow<'t> {
    Stored(DynRow<'t>),
    Computed(Vec<Owned>),
    Missing,
}

impl SourceRow<'_> {
    pub(crate) fn get(&self, column: usize) -> Owned {
        match self {
            SourceRow::Stored(row) => Columns::get(row, column).into_owned(),
            SourceRow::Computed(values) => values.get(column).cloned().unwrap_or(Datum::Null),
            SourceRow::Missing => Datum::Null,
        }
    }
}

/// One row of each source so far, as the source of an expression's columns.
#[derive(Clone, Copy)]
pub(crate) struct Joined<'r, 't> {
    pub(crate) rows: &'r [SourceRow<'t>],
    pub(crate) places: &'r [(usize, usize)],
    pub(crate) env: Env<'r>,
}

impl<'r> Joined<'r, '_> {
    /// The value of an expression.
    pub(crate) fn value<'v>(self, bound: &'v Bound) -> Result<Datum<'v>, Abort>
    where
        'r: 'v,
    {
        bound.evaluate(self, self.env.parameters).map_err(|error| self.env.fail(error.into()))
    }

    /// The values of expressions, to be kept.
    pub(crate) fn values(self, all: &[Bound]) -> Result<Vec<Owned>, Abort> {
        all.iter().map(|bound| Ok(self.value(bound)?.into_owned())).collect()
    }

    /// Whether all conditions are true.
    pub(crate) fn fulfils(self, conditions: &[Bound]) -> Result<bool, Abort> {
        for condition in conditions {
            if !matches!(self.value(condition)?, Datum::Bool(true)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'v> Columns<'v> for Joined<'_, '_> {
    fn get(&self, column: usize) -> Datum<'v> {
        let Some(&(source, position)) = self.places.get(column) else { return Datum::Null };
        self.rows.get(source).map_or(Datum::Null, |row| row.get(position))
    }

    fn call(&self, number: usize, arguments: &[Datum<'_>]) -> Result<Datum<'v>, EvaluationError> {
        self.env.call(number, arguments)
    }
}

/// How the rows of a source are found.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// All of them, in an order if the table has one.
    All { backward: bool },
    /// The row with this primary key.
    Key {
        values: Vec<Bound>,
        /// The positions of the conditions that hold of it, since it has the key.
        implied: Vec<usize>,
    },
    /// Those whose keys begin so: of the primary key, or of the index at this position. The next column of the key may
    /// have bounds.
    Prefix {
        index: Option<usize>,
        values: Vec<Bound>,
        low: Option<Box<Limit>>,
        high: Option<Box<Limit>>,
        backward: bool,
    },
    /// Those that the access finds for each of some values, which stand at this position of its values.
    Each { access: Box<Access>, at: usize, choice: Choice },
    /// All rows of a source that is no table.
    Computed,
    /// All rows are read once. Those whose columns have these values are found among them.
    Kept { columns: Vec<usize>, values: Vec<Bound> },
}

/// The values that a condition allows a column.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    List(Vec<Bound>),
    /// The elements of an array, as values of a type.
    Array(Bound, ColumnType),
}

impl Choice {
    /// Its values in ascending order, each once. NULL is none of them.
    fn values(&self, joined: Joined<'_, '_>) -> Result<BTreeSet<Distinct>, Abort> {
        let all = match self {
            Choice::List(list) => joined.values(list)?,
            Choice::Array(array, ty) => match joined.value(array)? {
                Datum::Text(text) => {
                    let fail = |error: SqlError| joined.env.fail(error);
                    let value = |element: &_| Datum::of_text(element, *ty).map_err(|error| fail(error.into()));
                    elements(&text)
                        .map_err(fail)?
                        .iter()
                        .flatten()
                        .map(|element| value(element))
                        .collect::<Result<_, _>>()?
                }
                _ => Vec::new(),
            },
        };
        Ok(all.into_iter().filter(|value| !value.is_null()).map(|value| Distinct(vec![value])).collect())
    }
}

impl Access {
    /// The positions of the conditions that hold of all rows that it finds.
    pub(crate) fn implied(&self) -> &[usize] {
        match self {
            Access::Key { implied, .. } => implied,
            Access::Each { access, .. } => access.implied(),
            _ => &[],
        }
    }

    /// The access in words.
    pub(crate) fn explain(&self, source: &Source) -> String {
        let by = |columns: &[usize]| {
            let names: Vec<&str> = columns.iter().map(|&column| &*source.columns[column].name).collect();
            if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) }
        };
        let Origin::Table(table) = &source.origin else {
            let of = match &source.origin {
                Origin::Query { number, .. } => format!("Rows of query {number} as {}", source.alias),
                Origin::Joined { .. } => "Rows of the join".to_owned(),
                Origin::Set(set) => set.words().to_owned(),
                _ => format!("Rows of {}", source.alias),
            };
            return match self {
                Access::Kept { columns, .. } if !columns.is_empty() => format!("{of}, kept{}", by(columns)),
                _ => of,
            };
        };
        let (definition, alias) = (table.definition(), &source.alias);
        let of = match *alias == *definition.name {
            true => alias.clone(),
            false => format!("{} {alias}", definition.name),
        };
        let names = |parts: &[KeyPart]| {
            let name = |part: &KeyPart| &*definition.columns[part.column.index()].name;
            parts.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        match self {
            Access::Each { access, .. } => format!("{}, for each value of a list", access.explain(source)),
            Access::Key { .. } => format!("Lookup in {of} by its primary key ({})", names(&definition.key)),
            Access::All { backward: false } => format!("Scan of {of}"),
            Access::All { backward: true } => format!("Scan of {of}, backward"),
            Access::Computed => format!("Rows of {of}"),
            Access::Kept { columns, .. } => format!("Scan of {of}, kept{}", by(columns)),
            Access::Prefix { index, values, low, high, backward } => {
                let parts = index.map_or(&definition.key, |at| &definition.indexes[at].parts);
                let by = match index {
                    None => "its primary key".to_owned(),
                    Some(at) => format!("index {}", definition.indexes[*at].name),
                };
                let fixed = names(&parts[..values.len()]);
                let range = match low.is_some() || high.is_some() {
                    true => format!("range of {}", names(&parts[values.len()..=values.len()])),
                    false => String::new(),
                };
                let what: Vec<String> = [fixed, range].into_iter().filter(|part| !part.is_empty()).collect();
                let what = if what.is_empty() { String::new() } else { format!(" ({})", what.join(", ")) };
                let backward = if *backward { ", backward" } else { "" };
                format!("Scan of {of} by {by}{what}{backward}")
            }
        }
    }
}

/// A bound of a column's values.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) value: Bound,
    pub(crate) is_included: bool,
}

/// A condition `column = value`, in which the value does not depend on the source.
pub(crate) struct Equality {
    /// The position of the column in its source.
    pub(crate) column: usize,
    pub(crate) value: Expression,
    /// The position of the condition among all.
    pub(crate) condition: usize,
}

/// Whether values of one type are found by values of another in a key: they are of one family.
pub(crate) fn is_findable(column: ColumnType, value: Option<ColumnType>) -> bool {
    let family = |ty: ColumnType| match ty {
        ColumnType::I8
        | ColumnType::I16
        | ColumnType::I32
        | ColumnType::I64
        | ColumnType::I128
        | ColumnType::U8
        | ColumnType::U16
        | ColumnType::U32
        | ColumnType::U64 => 1,
        ColumnType::Text { .. } | ColumnType::LongText => 2,
        ColumnType::Bytes { .. } | ColumnType::LongBytes | ColumnType::ByteArray { .. } => 3,
        ColumnType::Decimal { .. } | ColumnType::Numeric => 4,
        _ => 0,
    };
    value.is_none_or(|value| column == value || family(column) != 0 && family(column) == family(value))
}

/// The columns of a key that equalities fix, from the first one on.
fn fixed(parts: &[KeyPart], fixes: &dyn Fn(usize) -> bool) -> usize {
    parts.iter().take_while(|part| fixes(part.column.index())).count()
}

/// The best access to a table, if equalities fix some columns and limits bound others. It is an index, or `None` for
/// the primary key, and how many of its columns are fixed.
pub(crate) fn choose(
    table: &TableDef,
    fixes: &dyn Fn(usize) -> bool,
    bounds: &dyn Fn(usize) -> bool,
) -> Option<(Option<usize>, usize)> {
    let primary = fixed(&table.key, fixes);
    if primary == table.key.len() {
        return Some((None, primary));
    }
    let next = |parts: &[KeyPart], found: usize| parts.get(found).is_some_and(|part| bounds(part.column.index()));
    // Of a key that is found whole by a unique index there is one row. Of the others, more columns find fewer.
    let mut best = ((false, 0, false), None);
    if table.organization == Organization::Ordered {
        best.0 = (false, primary, next(&table.key, primary));
    }
    for (at, index) in table.indexes.iter().enumerate() {
        let found = fixed(&index.parts, fixes);
        let is_whole = found == index.parts.len();
        if index.organization == Organization::Hash && !is_whole {
            continue;
        }
        let worth = (index.unique && is_whole, found, next(&index.parts, found));
        if worth > best.0 {
            best = (worth, Some(at));
        }
    }
    let ((_, found, is_bounded), index) = best;
    (found > 0 || is_bounded).then_some((index, found))
}

/// A value that is chosen for the one at this position of a key.
pub(crate) type Chosen<'c> = (usize, &'c Owned);

/// The values of a key; none if a value is NULL, or no value of its column: then no row has it.
pub(crate) fn key_values(
    values: &[Bound],
    columns: &[ColumnType],
    chosen: &[Chosen<'_>],
    joined: Joined<'_, '_>,
) -> Result<Option<Vec<Value>>, Abort> {
    let mut key = Vec::with_capacity(values.len());
    for (at, (value, ty)) in values.iter().zip(columns).enumerate() {
        let value = match chosen.iter().find(|(position, _)| *position == at) {
            Some((_, value)) => value.borrowed(),
            None => joined.value(value)?,
        };
        match value.to_value(*ty).filter(|_| !value.is_null()) {
            Some(value) => key.push(value),
            None => return Ok(None),
        }
    }
    Ok(Some(key))
}

/// Visits a row, and says whether it wants more.
pub(crate) type Visit<'v, 't> = &'v mut dyn FnMut(SourceRow<'t>) -> Result<bool, Abort>;

/// Calls `visit` with each row of a source that is no table, until it says `false`.
fn each_computed<'t>(
    env: Env<'t>,
    origin: &'t Origin,
    joined: Joined<'_, 't>,
    visit: Visit<'_, 't>,
) -> Result<(), Abort> {
    let fail = |error: SqlError| env.fail(error);
    let all = |rows: &[Vec<Owned>], visit: Visit<'_, 't>| {
        for row in rows {
            // No operation of the transaction looks at its bounds.
            env.run.tx.check_bounds()?;
            if !visit(SourceRow::Computed(row.clone()))? {
                break;
            }
        }
        Ok(())
    };
    match origin {
        Origin::Table(_) => Ok(()),
        Origin::Series(bounds) => {
            let mut numbers = [0; 3];
            for (number, bound) in numbers.iter_mut().zip(bounds) {
                match joined.value(bound)? {
                    Datum::Integer(value) => *number = value,
                    // A NULL gives no row.
                    _ => return Ok(()),
                }
            }
            series(numbers).map_err(fail)?.try_for_each_row(env.run.tx, visit)
        }
        Origin::Elements(array, wanted) => {
            let array = joined.value(array)?.into_owned();
            all(&wanted.rows(&array).map_err(fail)?, visit)
        }
        Origin::Values(rows) => {
            for row in rows {
                if !visit(SourceRow::Computed(joined.values(row)?))? {
                    break;
                }
            }
            Ok(())
        }
        Origin::Query { number, arguments } => {
            let arguments = joined.values(arguments)?;
            all(&env.rows(*number, &arguments)?, visit)
        }
        Origin::Working(number) => {
            let rows = env.run.working.borrow().get(number).cloned().unwrap_or_default();
            all(&rows, visit)
        }
        Origin::Joined { from, computed, order } => from.each(env, &mut |joined| {
            let mut row = joined.values(computed)?;
            row.extend(order.iter().map(|&column| Columns::<'static>::get(&joined, column)));
            visit(SourceRow::Computed(row))
        }),
        Origin::Set(set) => all(&set.run(env)?, visit),
        Origin::System(table) => all(&env.run.schema().rows(table), visit),
    }
}

/// Calls `visit` with each row of a source that the access finds, until it says `false`.
pub(crate) fn each<'t>(
    env: Env<'t>,
    source: &'t Source,
    access: &Access,
    joined: Joined<'_, 't>,
    visit: Visit<'_, 't>,
) -> Result<(), Abort> {
    let Origin::Table(table) = &source.origin else { return each_computed(env, &source.origin, joined, visit) };
    each_stored(env, table, access, &[], joined, visit)
}

/// As [`each`], of a table.
fn each_stored<'t>(
    env: Env<'t>,
    table: &'t DynHandle,
    access: &Access,
    chosen: &[Chosen<'_>],
    joined: Joined<'_, 't>,
    visit: Visit<'_, 't>,
) -> Result<(), Abort> {
    let tx = env.run.tx;
    let definition = table.definition();
    let types =
        |parts: &[KeyPart]| parts.iter().map(|part| definition.columns[part.column.index()].ty).collect::<Vec<_>>();
    let mut rows = match access {
        Access::Each { access, at, choice } => {
            let mut goes_on = true;
            for value in choice.values(joined)?.iter().flat_map(|value| &value.0) {
                let chosen = [chosen, &[(*at, value)]].concat();
                let mut visit = |row: SourceRow<'t>| {
                    goes_on = visit(row)?;
                    Ok(goes_on)
                };
                each_stored(env, table, access, &chosen, joined, &mut visit)?;
                if !goes_on {
                    break;
                }
            }
            return Ok(());
        }
        Access::Key { values, .. } => {
            let key = key_values(values, &types(&definition.key), chosen, joined)?;
            let Some(key) = key else { return Ok(()) };
            if let Some(row) = tx.get_dyn(table, &key)? {
                visit(SourceRow::Stored(row))?;
            }
            return Ok(());
        }
        Access::Prefix { index, values, low, high, backward } => {
            let parts = index.map_or(&definition.key, |at| &definition.indexes[at].parts);
            let types = types(parts);
            let Some(prefix) = key_values(values, &types, chosen, joined)? else { return Ok(()) };
            let index = index.map(|at| &*definition.indexes[at].name);
            if low.is_none() && high.is_none() {
                match (index, backward) {
                    (None, false) => tx.scan_dyn(table, &prefix)?,
                    (None, true) => tx.scan_rev_dyn(table, &prefix)?,
                    (Some(index), false) => tx.find_dyn(table, index, &prefix)?,
                    (Some(index), true) => tx.find_rev_dyn(table, index, &prefix)?,
                }
            } else {
                let mut ends = Vec::with_capacity(2);
                for limit in [low, high] {
                    let open = || Some((prefix.clone(), true)).filter(|_| !prefix.is_empty());
                    let Some(limit) = limit else {
                        ends.push(open());
                        continue;
                    };
                    let value = joined.value(&limit.value)?;
                    if value.is_null() {
                        return Ok(());
                    }
                    // What is no value of the column bounds nothing; the condition is checked with each row.
                    ends.push(match value.to_value(types[prefix.len()]) {
                        Some(value) => Some(([&prefix[..], &[value]].concat(), limit.is_included)),
                        None => open(),
                    });
                }
                if parts[prefix.len()].descending {
                    ends.reverse();
                }
                let end = |end: &'_ Option<(Vec<Value>, bool)>| match end {
                    None => std::ops::Bound::Unbounded,
                    Some((values, true)) => std::ops::Bound::Included(values.clone()),
                    Some((values, false)) => std::ops::Bound::Excluded(values.clone()),
                };
                let (low, high) = (end(&ends[0]), end(&ends[1]));
                let bounds = (low.as_ref().map(|low| &low[..]), high.as_ref().map(|high| &high[..]));
                match backward {
                    false => tx.range_dyn(table, index, bounds)?,
                    true => tx.range_rev_dyn(table, index, bounds)?,
                }
            }
        }
        Access::All { backward: true } => tx.scan_rev_dyn(table, &[])?,
        Access::All { backward: false } | Access::Computed | Access::Kept { .. } => tx.scan_all_dyn(table)?,
    };
    while let Some(row) = rows.next().transpose()? {
        if !visit(SourceRow::Stored(row))? {
            break;
        }
    }
    Ok(())
}

/// The numbers from the first to the second, in steps of the third.
struct Series([i128; 3]);

fn series(numbers: [i128; 3]) -> Result<Series, SqlError> {
    match numbers[2] {
        0 => {
            let state = SqlState::INVALID_PARAMETER_VALUE;
            Err(SqlError::new(state, "step size cannot equal zero"))
        }
        _ => Ok(Series(numbers)),
    }
}

impl Series {
    fn try_for_each_row<'t>(self, tx: &ReadTx, visit: Visit<'_, 't>) -> Result<(), Abort> {
        let [mut number, last, step] = self.0;
        while if step > 0 { number <= last } else { number >= last } {
            if !visit(SourceRow::Computed(vec![Datum::Integer(number)]))? {
                break;
            }
            number += step;
            // No operation of the transaction looks at its bounds.
            tx.check_bounds()?;
        }
        Ok(())
    }
}

/// The order of two values as ORDER BY has it: NULL is the greatest.
pub(crate) fn order(a: &Datum<'_>, b: &Datum<'_>) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) => a.compare(b),
        (a, b) => a.cmp(&b),
    }
}

/// The order of two values as an item of ORDER BY has it.
pub(crate) fn directed(a: &Datum<'_>, b: &Datum<'_>, descending: bool, nulls_first: bool) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) if descending => b.compare(a),
        (false, false) => a.compare(b),
        (a, b) if nulls_first => b.cmp(&a),
        (a, b) => a.cmp(&b),
    }
}

/// Values that are compared as a whole: keys of groups and of distinct rows.
#[derive(Clone, Debug)]
pub(crate) struct Distinct(pub(crate) Vec<Owned>);

impl PartialEq for Distinct {
    fn eq(&self, other: &Distinct) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Distinct {}

impl PartialOrd for Distinct {
    fn partial_cmp(&self, other: &Distinct) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Distinct {
    fn cmp(&self, other: &Distinct) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        pairs.map(|(a, b)| order(a, b)).find(|order| order.is_ne()).unwrap_or(self.0.len().cmp(&other.0.len()))
    }
}
