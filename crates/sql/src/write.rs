//! INSERT, UPDATE and DELETE.
//!
//! Invariant: the rows that a statement changes are found completely before it changes the first. So it never meets
//! its own changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use seriatim::catalog::expression::{Bound, Columns, Datum, assigned};
use seriatim::catalog::{ColumnDef, ColumnId, ColumnSet, KeyPart, OnChange, TableDef};
use seriatim::{Abort, DynHandle, DynRow, ReadTx, Tx, Value};
use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, Expr, FromTable, Insert, OnConflictAction, OnInsert,
    SelectItem, SetExpr, TableObject, TableWithJoins, Update,
};

use crate::error::{SqlError, SqlState};
use crate::expression::{Context, Translator};
use crate::form;
use crate::from::{From, Parameters, qualified};
use crate::names::{Names, name, object};
use crate::point::Point;
use crate::rows::{Distinct, Joined, Kept, Origin, Owned, Source, SourceRow, Sources};
use crate::select::{Column, Row, Select};
use crate::types::fit;

/// What RETURNING gives.
#[derive(Clone, Debug)]
pub(crate) struct Returning {
    places: Vec<(usize, usize)>,
    outputs: Vec<Bound>,
    pub(crate) columns: Arc<[Column]>,
}

impl Returning {
    fn bind(
        items: Option<&Vec<SelectItem>>,
        source: &Source,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Option<Returning>, SqlError> {
        let Some(items) = items else { return Ok(None) };
        let sources = Sources(vec![source.clone()]);
        let (outputs, columns) = crate::select::scalar_outputs(items, &sources, context, parameters)?;
        Ok(Some(Returning { places: sources.places(), outputs, columns }))
    }

    fn row(&self, values: &[Value], table: &TableDef, parameters: &[Datum<'_>]) -> Result<Row, SqlError> {
        let rows = [SourceRow::Computed(datums(values, table))];
        let joined = Joined { rows: &rows, places: &self.places };
        self.outputs.iter().map(|output| Ok(output.evaluate(joined, parameters)?.into_owned())).collect()
    }
}

/// The values of a row, for expressions.
fn datums(values: &[Value], table: &TableDef) -> Vec<Owned> {
    let datum = |(value, column): (&Value, &ColumnDef)| {
        Datum::of_value(value, column.ty).map_or(Datum::Null, Datum::into_owned)
    };
    values.iter().zip(&table.columns).map(datum).collect()
}

/// What a statement did.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) count: usize,
    pub(crate) rows: Vec<Row>,
}

/// A value for a column.
#[derive(Clone, Debug)]
enum Given {
    Default,
    Of(Bound),
}

impl Given {
    fn bind(
        of: &Expr,
        column: &ColumnDef,
        scope: &Sources,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Given, SqlError> {
        if let Expr::Identifier(ident) = of
            && ident.quote_style.is_none()
            && ident.value.eq_ignore_ascii_case("default")
        {
            return Ok(Given::Default);
        }
        let mut expression = Translator::scalar(context, "a value").translate(of)?;
        qualified(&mut expression, scope)?;
        let bound = Bound::assigning(&expression, scope, parameters, column.ty).map_err(|error| {
            let state = SqlState(error.sqlstate());
            match state {
                SqlState::DATATYPE_MISMATCH => {
                    let message = format!("column \"{}\": {error}", column.name);
                    SqlError::new(state, message).hint("You will need to rewrite or cast the expression.")
                }
                _ => error.into(),
            }
        })?;
        Ok(Given::Of(bound))
    }

    fn value<'c>(
        &'c self,
        column: &ColumnDef,
        table: &TableDef,
        before: impl Columns<'c>,
        parameters: &'c [Datum<'c>],
    ) -> Result<Value, SqlError> {
        match self {
            Given::Default => default_of(column, table),
            Given::Of(bound) => stored(bound.evaluate(before, parameters)?, bound.column_type(), column, table),
        }
    }
}

/// A value as a column stores it.
fn stored(
    value: Datum<'_>,
    ty: Option<seriatim::catalog::ColumnType>,
    column: &ColumnDef,
    table: &TableDef,
) -> Result<Value, SqlError> {
    if value.is_null() && !column.nullable {
        return Err(not_null(column, table));
    }
    let value = assigned(value, ty, column).map_err(|error| SqlError::from(error).column(column.name.to_string()))?;
    fit(value, column)
}

fn default_of(column: &ColumnDef, table: &TableDef) -> Result<Value, SqlError> {
    match column.default_value() {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(not_null(column, table)),
        Err(error) => Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, error.to_string())),
    }
}

fn not_null(column: &ColumnDef, table: &TableDef) -> SqlError {
    let message =
        format!("null value in column \"{}\" of relation \"{}\" violates not-null constraint", column.name, table.name);
    SqlError::new(SqlState::NOT_NULL_VIOLATION, message).table(table.name.to_string()).column(column.name.to_string())
}

/// Rows of a stream, for a table.
#[derive(Debug)]
pub(crate) struct Filling {
    table: DynHandle,
    columns: Vec<usize>,
}

impl Filling {
    /// For these columns of a table, or all.
    ///
    /// # Errors
    /// There is no such table or column.
    pub(crate) fn bind(table: &str, columns: &[String], names: Names<'_>) -> Result<Filling, SqlError> {
        let table = names.table(table)?;
        let definition = table.definition();
        let columns = match columns {
            [] => (0..definition.columns.len()).collect(),
            given => given.iter().map(|column| column_at(definition, column)).collect::<Result<_, _>>()?,
        };
        Ok(Filling { table, columns })
    }

    /// How many fields a row has.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Inserts the row of these fields.
    ///
    /// # Errors
    /// A conflict; fields that are no values of their columns.
    pub(crate) fn insert(&self, tx: &Tx, fields: &[Option<String>]) -> Result<(), Abort> {
        let row = self.row(fields).map_err(|error| tx.abort(error))?;
        tx.insert_dyn(&self.table, &row)
    }

    fn row(&self, fields: &[Option<String>]) -> Result<Vec<Value>, SqlError> {
        let definition = self.table.definition();
        let state = SqlState("22P04");
        match fields.len().cmp(&self.columns.len()) {
            std::cmp::Ordering::Less => {
                let missing = &definition.columns[self.columns[fields.len()]].name;
                return Err(SqlError::new(state, format!("missing data for column \"{missing}\"")));
            }
            std::cmp::Ordering::Greater => {
                return Err(SqlError::new(state, "extra data after last expected column"));
            }
            std::cmp::Ordering::Equal => {}
        }
        let value = |(at, column): (usize, &ColumnDef)| {
            let Some(position) = self.columns.iter().position(|known| *known == at) else {
                return default_of(column, definition);
            };
            let ty = crate::types::of_expressions(column.ty);
            let value = match &fields[position] {
                None => Datum::Null,
                Some(text) => Datum::of_text(text, ty)?,
            };
            stored(value, Some(ty), column, definition)
        };
        definition.columns.iter().enumerate().map(value).collect()
    }
}

/// The key of a row.
fn key_of(table: &TableDef, values: &dyn Fn(usize) -> Value) -> Vec<Value> {
    table.key.iter().map(|part| values(part.column.index())).collect()
}

/// A key, to be looked for among others.
fn distinct_key(key: &[Value], table: &TableDef) -> Distinct {
    let datum = |(value, part): (&Value, &KeyPart)| {
        Datum::of_value(value, table.columns[part.column.index()].ty).map_or(Datum::Null, Datum::into_owned)
    };
    Distinct(key.iter().zip(&table.key).map(datum).collect())
}

/// An INSERT that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Inserting {
    table: DynHandle,
    /// The columns that get values, by their positions.
    columns: Vec<usize>,
    rows: Rows,
    conflict: Option<Conflict>,
    pub(crate) returning: Option<Returning>,
}

#[derive(Clone, Debug)]
enum Rows {
    Given(Vec<Vec<Given>>),
    Of(Box<Select>),
    Default,
}

/// What becomes of a row whose key exists.
#[derive(Clone, Debug)]
struct Conflict {
    /// Which keys count: those of these unique indexes, and the primary key.
    primary: bool,
    indexes: Vec<usize>,
    /// None to leave the row that exists as it is.
    update: Option<Change>,
}

/// The changes of a row.
#[derive(Clone, Debug)]
struct Change {
    places: Vec<(usize, usize)>,
    changes: Vec<(usize, Given)>,
    condition: Option<Bound>,
}

impl Inserting {
    pub(crate) fn bind(
        insert: &Insert,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Inserting, SqlError> {
        let used = Insert {
            into: insert.into,
            table: insert.table.clone(),
            table_alias: insert.table_alias.clone(),
            columns: insert.columns.clone(),
            source: insert.source.clone(),
            on: insert.on.clone(),
            returning: insert.returning.clone(),
            ..form::insert()
        };
        form::only(insert, &used, "INSERT", "VALUES, SELECT, ON CONFLICT and RETURNING are.")?;
        let TableObject::TableName(of) = &insert.table else {
            return Err(SqlError::unsupported("INSERT into what is no table", ""));
        };
        let own = object(of)?;
        let table = names.table(&own)?;
        let definition = table.definition();
        let columns = match &*insert.columns {
            [] => (0..definition.columns.len()).collect(),
            given => {
                let mut columns = Vec::new();
                for column in given {
                    let at = column_at(definition, &object(column)?)?;
                    if columns.contains(&at) {
                        let message = format!("column \"{}\" specified more than once", definition.columns[at].name);
                        return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
                    }
                    columns.push(at);
                }
                columns
            }
        };
        let fits = |count: usize| match count.cmp(&columns.len()) {
            std::cmp::Ordering::Greater => {
                let message = "INSERT has more expressions than target columns";
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
            std::cmp::Ordering::Less if !insert.columns.is_empty() => {
                let message = "INSERT has more target columns than expressions";
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
            _ => Ok(()),
        };
        let rows = match insert.source.as_deref() {
            None => Rows::Default,
            Some(query) => match (&*query.body, query.order_by.is_none() && query.limit_clause.is_none()) {
                (SetExpr::Values(values), true) => {
                    let mut rows = Vec::new();
                    for row in &values.rows {
                        fits(row.content.len())?;
                        let given = row.content.iter().zip(&columns);
                        let given = given.map(|(value, &at)| {
                            let column = &definition.columns[at];
                            Given::bind(value, column, &Sources::default(), context, parameters)
                        });
                        rows.push(given.collect::<Result<Vec<_>, _>>()?);
                    }
                    if rows.iter().any(|row| row.len() != rows[0].len()) {
                        let message = "VALUES lists must all be the same length";
                        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                    }
                    Rows::Given(rows)
                }
                _ => {
                    let select = Select::bind(query, names, context, parameters)?;
                    fits(select.columns.len())?;
                    Rows::Of(Box::new(select))
                }
            },
        };
        let alias = insert.table_alias.as_ref().map(|alias| name(&alias.alias)).transpose()?;
        let source = Source::table(table.clone(), alias.unwrap_or(own));
        let conflict = match &insert.on {
            None => None,
            Some(OnInsert::OnConflict(conflict)) => {
                Some(Conflict::bind(conflict, (&table, &source), names, context, parameters)?)
            }
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY", "ON CONFLICT is there.")),
        };
        let returning = Returning::bind(insert.returning.as_ref(), &source, context, parameters)?;
        Ok(Inserting { table, columns, rows, conflict, returning })
    }

    /// The steps in words.
    pub(crate) fn explain(&self) -> Vec<String> {
        let mut lines = vec![format!("Insert into {}", self.table.definition().name)];
        if let Rows::Of(select) = &self.rows {
            lines.extend(select.explain().into_iter().map(|line| format!("  {line}")));
        }
        lines
    }

    pub(crate) fn run(&self, tx: &Tx, parameters: &[Datum<'_>]) -> Result<Written, Abort> {
        let definition = self.table.definition();
        let fail = |error: SqlError| tx.abort(error);
        let nothing = Joined { rows: &[], places: &[] };
        let defaults = |given: &[usize]| -> Result<Vec<Option<Value>>, SqlError> {
            let default = |(at, column): (usize, &ColumnDef)| match given.contains(&at) {
                true => Ok(None),
                false => default_of(column, definition).map(Some),
            };
            definition.columns.iter().enumerate().map(default).collect()
        };
        // All rows before the first is written.
        let mut rows: Vec<Vec<Value>> = Vec::new();
        let whole = |given: &[usize], values: Vec<Value>| {
            let mut row = defaults(given)?;
            given.iter().zip(values).for_each(|(&at, value)| row[at] = Some(value));
            Ok::<_, SqlError>(row.into_iter().flatten().collect::<Vec<Value>>())
        };
        match &self.rows {
            Rows::Default => rows.push(whole(&[], Vec::new()).map_err(fail)?),
            Rows::Given(given) => {
                for row in given {
                    let columns = &self.columns[..row.len()];
                    let values = row
                        .iter()
                        .zip(columns)
                        .map(|(given, &at)| given.value(&definition.columns[at], definition, nothing, parameters));
                    let values = values.collect::<Result<Vec<_>, _>>().map_err(fail)?;
                    rows.push(whole(columns, values).map_err(fail)?);
                }
            }
            Rows::Of(select) => {
                let types = select.types();
                for row in select.run(tx, parameters)? {
                    let columns = &self.columns[..row.len()];
                    let values = row
                        .into_iter()
                        .zip(&types)
                        .zip(columns)
                        .map(|((value, ty), &at)| stored(value, *ty, &definition.columns[at], definition));
                    let values = values.collect::<Result<Vec<_>, _>>().map_err(fail)?;
                    rows.push(whole(columns, values).map_err(fail)?);
                }
            }
        }
        let mut written = Written::default();
        // The rows that the statement has written, where it could write them again.
        let mut touched = BTreeSet::new();
        let updates = self.conflict.as_ref().is_some_and(|conflict| conflict.update.is_some());
        let mut kept = Kept::default();
        for row in rows {
            let existing = match &self.conflict {
                None => None,
                Some(conflict) => conflict.existing(tx, &self.table, &row)?,
            };
            let after = match (existing, &self.conflict) {
                (Some(key), Some(conflict)) => match &conflict.update {
                    None => None,
                    Some(update) => {
                        if touched.contains(&distinct_key(&key, definition)) {
                            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                            let error = SqlError::new(SqlState::CARDINALITY_VIOLATION, message);
                            return Err(fail(error.hint(
                                "Ensure that no rows proposed for insertion within the same command have duplicate \
                                 constrained values.",
                            )));
                        }
                        update.apply(tx, &self.table, &key, &row, parameters)?
                    }
                },
                _ => {
                    tx.insert_dyn(&self.table, &row)?;
                    Some(row)
                }
            };
            let Some(after) = after else { continue };
            if updates {
                touched.insert(distinct_key(&key_of(definition, &|at| after[at].clone()), definition));
            }
            written.count += 1;
            if let Some(returning) = &self.returning {
                let row = returning.row(&after, definition, parameters).map_err(fail)?;
                kept.add(&row).map_err(fail)?;
                written.rows.push(row);
            }
        }
        Ok(written)
    }
}

impl Conflict {
    fn bind(
        conflict: &sqlparser::ast::OnConflict,
        (table, source): (&DynHandle, &Source),
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Conflict, SqlError> {
        let definition = table.definition();
        let unique = definition.indexes.iter().enumerate().filter(|(_, index)| index.unique);
        let (primary, indexes) = match &conflict.conflict_target {
            None => (true, unique.map(|(at, _)| at).collect()),
            Some(ConflictTarget::Columns { columns, predicate: None }) => {
                let mut wanted = columns
                    .iter()
                    .map(|column| column_at(definition, &name(column)?))
                    .collect::<Result<Vec<_>, _>>()?;
                wanted.sort_unstable();
                let is_of = |parts: &[KeyPart]| {
                    let mut columns: Vec<usize> = parts.iter().map(|part| part.column.index()).collect();
                    columns.sort_unstable();
                    columns == wanted
                };
                (is_of(&definition.key), unique.filter(|(_, index)| is_of(&index.parts)).map(|(at, _)| at).collect())
            }
            Some(ConflictTarget::OnConstraint(of)) => {
                let own = object(of)?;
                let primary = own == format!("{}_pkey", definition.name);
                (primary, unique.filter(|(_, index)| index.name == own).map(|(at, _)| at).collect::<Vec<_>>())
            }
            Some(_) => return Err(SqlError::unsupported("a condition of ON CONFLICT", "Name columns.")),
        };
        if !primary && indexes.is_empty() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        let update = match &conflict.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(_) if conflict.conflict_target.is_none() => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            OnConflictAction::DoUpdate(update) => {
                let excluded = Source { alias: "excluded".to_owned(), ..source.clone() };
                let sources = Sources(vec![source.clone(), excluded]);
                let condition = update.selection.as_ref().map(|condition| {
                    let mut condition = Translator::scalar(context, "ON CONFLICT").translate(condition)?;
                    qualified(&mut condition, &sources)?;
                    Ok::<_, SqlError>(Bound::condition(&condition, &sources, parameters)?)
                });
                let condition = condition.transpose()?;
                let changes = changes(&update.assignments, definition, &sources, context, parameters)?;
                check_keys(&changes, definition, names)?;
                Some(Change { places: sources.places(), changes, condition })
            }
        };
        Ok(Conflict { primary, indexes, update })
    }

    /// The key of the row that has a key of the new row.
    fn existing(&self, tx: &ReadTx, table: &DynHandle, row: &[Value]) -> Result<Option<Vec<Value>>, Abort> {
        let definition = table.definition();
        let key = key_of(definition, &|at| row[at].clone());
        if self.primary && tx.exists_dyn(table, &key)? {
            return Ok(Some(key));
        }
        for &at in &self.indexes {
            let index = &definition.indexes[at];
            let values: Vec<Value> = index.parts.iter().map(|part| row[part.column.index()].clone()).collect();
            if definition.has_distinct_nulls(index) && values.contains(&Value::NONE) {
                continue;
            }
            if let Some(found) = tx.find_dyn(table, &index.name, &values)?.next().transpose()? {
                return Ok(Some(key_of(definition, &|at| found.value(at))));
            }
        }
        Ok(None)
    }
}

impl Change {
    /// Changes the row with a key; `None` if the condition does not hold.
    fn apply(
        &self,
        tx: &Tx,
        table: &DynHandle,
        key: &[Value],
        excluded: &[Value],
        parameters: &[Datum<'_>],
    ) -> Result<Option<Vec<Value>>, Abort> {
        let definition = table.definition();
        let fail = |error: SqlError| tx.abort(error);
        let Some(before) = tx.get_dyn(table, key)? else { return Ok(None) };
        let rows = [SourceRow::Stored(before), SourceRow::Computed(datums(excluded, definition))];
        let joined = Joined { rows: &rows, places: &self.places };
        if let Some(condition) = &self.condition {
            let holds = condition.evaluate(joined, parameters).map_err(|error| fail(error.into()))?;
            if !matches!(holds, Datum::Bool(true)) {
                return Ok(None);
            }
        }
        let before = before.values();
        let after = changed(&self.changes, &before, definition, joined, parameters).map_err(fail)?;
        write(tx, table, &before, &after)?;
        Ok(Some(after))
    }
}

/// The changes of a SET clause: columns and their new values.
fn changes(
    assignments: &[Assignment],
    table: &TableDef,
    sources: &Sources,
    context: &Context,
    parameters: &mut Parameters,
) -> Result<Vec<(usize, Given)>, SqlError> {
    let mut changes: Vec<(usize, Given)> = Vec::new();
    for assignment in assignments {
        let AssignmentTarget::ColumnName(column) = &assignment.target else {
            return Err(SqlError::unsupported("SET of several columns at once", "Write SET a = x, b = y."));
        };
        let at = column_at(table, &object(column)?)?;
        if changes.iter().any(|(known, _)| *known == at) {
            let message = format!("multiple assignments to same column \"{}\"", table.columns[at].name);
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        changes.push((at, Given::bind(&assignment.value, &table.columns[at], sources, context, parameters)?));
    }
    Ok(changes)
}

/// A row after changes that are computed from it.
fn changed(
    changes: &[(usize, Given)],
    before: &[Value],
    table: &TableDef,
    joined: Joined<'_, '_>,
    parameters: &[Datum<'_>],
) -> Result<Vec<Value>, SqlError> {
    let mut after = before.to_vec();
    for (at, given) in changes {
        after[*at] = given.value(&table.columns[*at], table, joined, parameters)?;
    }
    Ok(after)
}

/// Writes a changed row. One with another key, or with other values where they are fixed, takes the place of the old.
fn write(tx: &Tx, table: &DynHandle, before: &[Value], after: &[Value]) -> Result<(), Abort> {
    let definition = table.definition();
    let key = key_of(definition, &|at| before[at].clone());
    let differs = |at: &usize| before[*at] != after[*at];
    let changed: Vec<usize> = (0..after.len()).filter(differs).collect();
    let is_updatable = |at: &usize| definition.is_updatable(column_id(*at));
    if changed.iter().all(is_updatable) {
        let changes: Vec<(&str, Value)> =
            changed.iter().map(|&at| (&*definition.columns[at].name, after[at].clone())).collect();
        return tx.update_dyn(table, &key, &changes);
    }
    tx.delete_dyn(table, &key)?;
    tx.insert_dyn(table, after)
}

fn column_id(at: usize) -> seriatim::catalog::ColumnId {
    seriatim::catalog::ColumnId(at as u16)
}

fn column_at(table: &TableDef, column: &str) -> Result<usize, SqlError> {
    table.columns.iter().position(|known| known.name == column).ok_or_else(|| {
        let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message).table(table.name.to_string()).column(column)
    })
}

/// The one table of an UPDATE or DELETE.
fn target(tables: &[TableWithJoins], names: Names<'_>) -> Result<(DynHandle, Source), SqlError> {
    let [TableWithJoins { relation, joins }] = tables else {
        return Err(SqlError::unsupported("a change of several tables", "Name one table."));
    };
    if !joins.is_empty() {
        return Err(SqlError::unsupported("a change of joined tables", "Name one table."));
    }
    let source = crate::from::table(relation, names)?;
    match &source.origin {
        Origin::Table(table) => Ok((table.clone(), source)),
        _ => Err(SqlError::unsupported("a change of what is no table", "Name one table.")),
    }
}

/// Refuses a change of key columns that foreign keys follow: it is a deletion and an insertion here, and they would
/// follow the deletion.
fn check_keys(changes: &[(usize, Given)], table: &TableDef, names: Names<'_>) -> Result<(), SqlError> {
    let Some((at, _)) = changes.iter().find(|(at, _)| !table.is_updatable(column_id(*at))) else { return Ok(()) };
    for other in names.database.table_names() {
        let Ok(other) = names.database.open_dyn(&other) else { continue };
        let acts = |action: OnChange| !matches!(action, OnChange::NoAction | OnChange::Restrict);
        let references = &other.definition().references;
        let is_followed = |reference: &&seriatim::catalog::ReferenceDef| {
            reference.table == table.name && (acts(reference.on_delete) || acts(reference.on_update))
        };
        if let Some(reference) = references.iter().find(is_followed) {
            let what = format!("an update of the key column \"{}\"", table.columns[*at].name);
            let instead = format!("The foreign key {} of {} follows changes.", reference.name, other.definition().name);
            return Err(SqlError::unsupported(what, &instead));
        }
    }
    Ok(())
}

/// An UPDATE that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Updating {
    table: DynHandle,
    from: From,
    /// If at most one row changes, and stays where it is.
    point: Option<PointChange>,
    changes: Vec<(usize, Given)>,
    pub(crate) returning: Option<Returning>,
}

/// The row that changes, the columns that are read, and those that are set.
#[derive(Clone, Debug)]
struct PointChange {
    point: Point,
    reads: ColumnSet,
    sets: Vec<ColumnId>,
}

impl PointChange {
    /// `None` if the rows are found in another way, or may move.
    fn of(from: &From, changes: &[(usize, Given)], table: &TableDef) -> Option<PointChange> {
        let point = Point::of(from).filter(Point::is_unconditional)?;
        let sets: Vec<ColumnId> = changes.iter().map(|(at, _)| column_id(*at)).collect();
        let read = |(_, given): &(usize, Given)| match given {
            Given::Default => Vec::new(),
            Given::Of(bound) => bound.columns().to_vec(),
        };
        let reads = changes.iter().flat_map(read).map(column_id).collect();
        sets.iter().all(|column| table.is_updatable(*column)).then_some(PointChange { point, reads, sets })
    }
}

impl Updating {
    pub(crate) fn bind(
        update: &Update,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Updating, SqlError> {
        let used = Update {
            table: update.table.clone(),
            assignments: update.assignments.clone(),
            selection: update.selection.clone(),
            returning: update.returning.clone(),
            ..form::update()
        };
        form::only(update, &used, "UPDATE", "SET, WHERE and RETURNING are.")?;
        let (table, source) = target(std::slice::from_ref(&update.table), names)?;
        let returning = Returning::bind(update.returning.as_ref(), &source, context, parameters)?;
        let sources = Sources(vec![source.clone()]);
        let changes = changes(&update.assignments, table.definition(), &sources, context, parameters)?;
        check_keys(&changes, table.definition(), names)?;
        let from = From::of_table(source, update.selection.as_ref(), context, parameters)?;
        let point = PointChange::of(&from, &changes, table.definition()).filter(|_| returning.is_none());
        Ok(Updating { table, from, point, changes, returning })
    }

    /// The steps in words.
    pub(crate) fn explain(&self) -> Vec<String> {
        let mut lines = vec![format!("Update of {}", self.table.definition().name)];
        lines.extend(self.from.explain(2));
        lines
    }

    pub(crate) fn run(&self, tx: &Tx, parameters: &[Datum<'_>]) -> Result<Written, Abort> {
        let definition = self.table.definition();
        let fail = |error: SqlError| tx.abort(error);
        if let Some(PointChange { point, reads, sets }) = &self.point {
            let Some(key) = point.key(tx, parameters)? else { return Ok(Written::default()) };
            let is_there = tx.update_by_dyn(&self.table, &key, (*reads, sets), |before| {
                let changes = self.changes.iter();
                let values = changes
                    .map(|(at, given)| given.value(&definition.columns[*at], definition, before, parameters));
                values.collect::<Result<Vec<_>, _>>().map_err(fail)
            })?;
            return Ok(Written { count: is_there.into(), rows: Vec::new() });
        }
        let (mut found, mut kept) = (Vec::<(Vec<Value>, Vec<Value>)>::new(), Kept::default());
        self.from.each(tx, parameters, &mut |joined| {
            let Some(row) = stored_row(joined) else { return Ok(true) };
            let before = row.values();
            let after = changed(&self.changes, &before, definition, joined, parameters).map_err(fail)?;
            kept.add_stored(&before).and_then(|()| kept.add_stored(&after)).map_err(fail)?;
            found.push((before, after));
            Ok(true)
        })?;
        let mut written = Written::default();
        // A key that one row leaves may be that of another: all leave before the first arrives.
        let is_updatable = |at: &usize| definition.is_updatable(column_id(*at));
        let moves = |(before, after): &&(Vec<Value>, Vec<Value>)| {
            (0..after.len()).filter(|at| before[*at] != after[*at]).any(|at| !is_updatable(&at))
        };
        for (before, _) in found.iter().filter(moves) {
            tx.delete_dyn(&self.table, &key_of(definition, &|at| before[at].clone()))?;
        }
        for pair in &found {
            match moves(&pair) {
                true => tx.insert_dyn(&self.table, &pair.1)?,
                false => write(tx, &self.table, &pair.0, &pair.1)?,
            }
            written.count += 1;
            if let Some(returning) = &self.returning {
                written.rows.push(returning.row(&pair.1, definition, parameters).map_err(fail)?);
            }
        }
        Ok(written)
    }
}

/// The row of the one table of a statement.
fn stored_row<'t>(joined: Joined<'_, 't>) -> Option<DynRow<'t>> {
    match joined.rows.first() {
        Some(SourceRow::Stored(row)) => Some(*row),
        _ => None,
    }
}

/// A DELETE that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Deleting {
    table: DynHandle,
    from: From,
    /// If there is at most one row, of which nothing but its key is looked at.
    point: Option<Point>,
    pub(crate) returning: Option<Returning>,
}

impl Deleting {
    pub(crate) fn bind(
        delete: &Delete,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Deleting, SqlError> {
        let used = Delete {
            from: delete.from.clone(),
            selection: delete.selection.clone(),
            returning: delete.returning.clone(),
            ..form::delete()
        };
        form::only(delete, &used, "DELETE", "FROM, WHERE and RETURNING are.")?;
        let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
        let (table, source) = target(tables, names)?;
        let returning = Returning::bind(delete.returning.as_ref(), &source, context, parameters)?;
        let from = From::of_table(source, delete.selection.as_ref(), context, parameters)?;
        let point = Point::of(&from).filter(|point| point.is_unconditional() && returning.is_none());
        Ok(Deleting { table, from, point, returning })
    }

    /// The steps in words.
    pub(crate) fn explain(&self) -> Vec<String> {
        let mut lines = vec![format!("Delete from {}", self.table.definition().name)];
        lines.extend(self.from.explain(2));
        lines
    }

    pub(crate) fn run(&self, tx: &Tx, parameters: &[Datum<'_>]) -> Result<Written, Abort> {
        let definition = self.table.definition();
        if let Some(point) = &self.point {
            let Some(key) = point.key(tx, parameters)? else { return Ok(Written::default()) };
            let is_there = tx.delete_if_dyn(&self.table, &key)?.is_ok();
            return Ok(Written { count: is_there.into(), rows: Vec::new() });
        }
        let (mut found, mut kept) = (Vec::<Vec<Value>>::new(), Kept::default());
        self.from.each(tx, parameters, &mut |joined| {
            let Some(row) = stored_row(joined).map(|row| row.values()) else { return Ok(true) };
            kept.add_stored(&row).map_err(|error| tx.abort(error))?;
            found.push(row);
            Ok(true)
        })?;
        let mut written = Written::default();
        for before in found {
            tx.delete_dyn(&self.table, &key_of(definition, &|at| before[at].clone()))?;
            written.count += 1;
            if let Some(returning) = &self.returning {
                let row = returning.row(&before, definition, parameters);
                written.rows.push(row.map_err(|error| tx.abort(error))?);
            }
        }
        Ok(written)
    }
}
