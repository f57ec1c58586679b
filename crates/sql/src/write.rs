//! INSERT, UPDATE and DELETE.
//!
//! Invariant: the rows that a statement changes are found completely before it changes the first. So it never meets
//! its own changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use seriatim::catalog::expression::{Bound, Datum, assigned};
use seriatim::catalog::{ColumnDef, ColumnId, ColumnSet, IdentityKind, KeyPart, OnChange, SequenceDef, TableDef};
use seriatim::{Abort, DynHandle, DynRow, ReadTx, Sequence, Tx, Value};
use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, Expr, FromTable, Insert, InsertOverriding, ObjectName,
    OnConflictAction, OnInsert, SelectItem, SetExpr, TableObject, TableWithJoins, Update, UpdateTableFromKind,
};

use crate::copy::Fields;
use crate::error::{SqlError, SqlState};
use crate::expression::{Context, Translator, takes_numbers};
use crate::form;
use crate::from::{From, Parameters, qualified};
use crate::locking::CHANGED;
use crate::names::{Names, name, object};
use crate::point::Point;
use crate::rows::{Distinct, Joined, Origin, Owned, Source, SourceRow, Sources, is_row_id};
use crate::run::Env;
use crate::select::{Column, Row, Select};
use crate::surroundings::Around;
use crate::types::{SqlType, fit};

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
        sources: &Sources,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Option<Returning>, SqlError> {
        let Some(items) = items else { return Ok(None) };
        let (outputs, columns) = crate::select::scalar_outputs(items, sources, context, parameters)?;
        Ok(Some(Returning { places: sources.places(), outputs, columns }))
    }

    fn row(&self, values: &[Value], table: &TableDef, env: Env<'_>) -> Result<Row, Abort> {
        let rows = [SourceRow::Computed(datums(values, table))];
        let row = Joined { rows: &rows, places: &self.places, env }.values(&self.outputs)?;
        env.run.keep(&row).map_err(|error| env.fail(error))?;
        Ok(row)
    }

    /// The row of a combination in which the row of this level has other values.
    fn joined(&self, of: Joined<'_, '_>, level: usize, values: &[Value], table: &TableDef) -> Result<Row, Abort> {
        let mut rows = of.rows.to_vec();
        rows[level] = SourceRow::Computed(datums(values, table));
        Joined { rows: &rows, ..of }.values(&self.outputs)
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
        let translator = Translator::scalar(context, "a value");
        let mut expression = translator.within(scope, None, parameters).translate(of)?;
        qualified(&mut expression, scope)?;
        let bound = context.assigning(&expression, scope, parameters, column.ty).map_err(|error| {
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

    fn value(
        &self,
        tx: &Tx,
        (at, defaults): (usize, &Defaults),
        table: &TableDef,
        joined: Joined<'_, '_>,
    ) -> Result<Value, Abort> {
        match self {
            Given::Default => defaults.value(tx, at, table),
            Given::Of(bound) => {
                let stored = stored(joined.value(bound)?, bound.column_type(), &table.columns[at], table);
                stored.map_err(|error| joined.env.fail(error))
            }
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

/// What a column gets that is given no value.
#[derive(Clone, Debug)]
enum Default {
    Value(Value),
    Computed(Bound),
    Number(Sequence),
    /// It must be given one.
    None,
}

/// What the columns of a table get that are given no value.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    each: Vec<Default>,
    /// Those whose default takes a number of a sequence.
    numbered: Vec<usize>,
    around: Arc<Around>,
}

impl Defaults {
    fn of(table: &DynHandle, names: Names<'_>, around: &Arc<Around>) -> Result<Defaults, SqlError> {
        let default = |column: &ColumnDef| {
            if column.identity.is_some() {
                let sequence = names.database.identity_of(table);
                return Ok(sequence.map_or(Default::None, Default::Number));
            }
            if let Some(bound) = column.computed()? {
                return Ok(Default::Computed(bound));
            }
            let value = column.default_value();
            let value = value.map_err(|error| SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, error.to_string()));
            Ok(value?.map_or(Default::None, Default::Value))
        };
        let columns = &table.definition().columns;
        let each = columns.iter().map(default).collect::<Result<_, SqlError>>()?;
        let is_numbered = |column: &ColumnDef| {
            column.identity.is_some() || column.computed_default.as_deref().is_some_and(takes_numbers)
        };
        let numbered = (0..columns.len()).filter(|at| is_numbered(&columns[*at])).collect();
        Ok(Defaults { each, numbered, around: Arc::clone(around) })
    }

    fn value(&self, tx: &Tx, at: usize, table: &TableDef) -> Result<Value, Abort> {
        let column = &table.columns[at];
        match &self.each[at] {
            Default::Value(value) => Ok(value.clone()),
            Default::None => Err(tx.abort(not_null(column, table))),
            Default::Computed(bound) => {
                let value = bound.evaluate(&[][..], &[]).map_err(|error| tx.abort(SqlError::from(error)))?;
                stored(value, bound.column_type(), column, table).map_err(|error| tx.abort(error))
            }
            Default::Number(sequence) => {
                let number = tx.next(sequence)?;
                self.around.note(sequence, number);
                Ok(Value::Integer(number.into(), None))
            }
        }
    }
}

fn not_null(column: &ColumnDef, table: &TableDef) -> SqlError {
    let message =
        format!("null value in column \"{}\" of relation \"{}\" violates not-null constraint", column.name, table.name);
    SqlError::new(SqlState::NOT_NULL_VIOLATION, message).table(table.name.to_string()).column(column.name.to_string())
}

/// Gives all rows the default of a column that was added, another value each, or numbers as its sequence would.
/// Returns the number behind those.
///
/// # Errors
/// A conflict; the default has no value.
pub(crate) fn fill(tx: &Tx, table: &DynHandle, column: &ColumnDef) -> Result<Option<i64>, Abort> {
    let definition = table.definition();
    let fail = |error: SqlError| tx.abort(error);
    let mut keys = Vec::new();
    for row in tx.scan_all_dyn(table)? {
        let row = row?;
        keys.push(key_of(definition, &|at| row.value(at)));
    }
    let bound = column.computed().map_err(|error| fail(error.into()))?;
    let numbers =
        column.identity.map(|identity| SequenceDef::new(String::new()).ty(column.ty).options(identity.options));
    let mut number = numbers.as_ref().map(SequenceDef::first);
    for key in keys {
        let value = match (&bound, &numbers, &mut number) {
            (Some(bound), ..) => {
                let value = bound.evaluate(&[][..], &[]).map_err(|error| fail(error.into()))?;
                stored(value, bound.column_type(), column, definition).map_err(fail)?
            }
            (None, Some(numbers), Some(next)) => {
                let value = Value::Integer((*next).into(), None);
                let (low, high) = numbers.range();
                let behind = next.checked_add(numbers.step()).filter(|next| (low..=high).contains(next));
                let message = format!("the sequence of column \"{}\" has too few numbers", column.name);
                let limit = || fail(SqlError::new(SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED, message));
                *next = behind.ok_or_else(limit)?;
                value
            }
            _ => continue,
        };
        // The column may be NULL until all rows have a value.
        let value = if matches!(value, Value::Option(_)) { value } else { value.some() };
        tx.update_dyn(table, &key, &[(&*column.name, value)])?;
    }
    Ok(number)
}

/// Rows of a stream, for a table.
#[derive(Debug)]
pub(crate) struct Filling {
    table: DynHandle,
    columns: Vec<usize>,
    defaults: Defaults,
}

impl Filling {
    /// For these columns of a table, or all.
    ///
    /// # Errors
    /// There is no such table or column.
    pub(crate) fn bind(
        table: &str,
        columns: &[String],
        names: Names<'_>,
        around: &Arc<Around>,
    ) -> Result<Filling, SqlError> {
        let table = names.table(table)?;
        let definition = table.definition();
        let columns = match columns {
            [] => shown(definition),
            given => given.iter().map(|column| column_at(definition, column)).collect::<Result<_, _>>()?,
        };
        let defaults = Defaults::of(&table, names, around)?;
        Ok(Filling { table, columns, defaults })
    }

    pub(crate) fn table(&self) -> &DynHandle {
        &self.table
    }

    /// How many fields a row has.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Inserts the row of these fields.
    ///
    /// # Errors
    /// A conflict; fields that are no values of their columns.
    pub(crate) fn insert(&self, tx: &Tx, fields: &Fields) -> Result<(), Abort> {
        let definition = self.table.definition();
        self.check_count(fields.len()).map_err(|error| tx.abort(error))?;
        let value = |(at, column): (usize, &ColumnDef)| {
            let Some(position) = self.columns.iter().position(|known| *known == at) else {
                return self.defaults.value(tx, at, definition);
            };
            let ty = crate::types::of_expressions(column.ty);
            let read = fields.value(position, SqlType::of_column(column), ty);
            let stored = read.and_then(|value| stored(value, Some(ty), column, definition));
            stored.map_err(|error| tx.abort(error))
        };
        let row = definition.columns.iter().enumerate().map(value).collect::<Result<Vec<_>, Abort>>()?;
        tx.insert_overriding_dyn(&self.table, &row)
    }

    fn check_count(&self, fields: usize) -> Result<(), SqlError> {
        let state = SqlState("22P04");
        match fields.cmp(&self.columns.len()) {
            std::cmp::Ordering::Less => {
                let missing = &self.table.definition().columns[self.columns[fields]].name;
                Err(SqlError::new(state, format!("missing data for column \"{missing}\"")))
            }
            std::cmp::Ordering::Greater => Err(SqlError::new(state, "extra data after last expected column")),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }
}

/// The key of a row.
pub(crate) fn key_of(table: &TableDef, values: &dyn Fn(usize) -> Value) -> Vec<Value> {
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
    /// Those of them whose values do not count.
    overridden: Vec<usize>,
    defaults: Defaults,
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
    pub(crate) fn table(&self) -> &DynHandle {
        &self.table
    }

    /// Whether it may change rows that exist.
    pub(crate) fn updates(&self) -> bool {
        self.conflict.as_ref().is_some_and(|conflict| conflict.update.is_some())
    }

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
            overriding: insert.overriding,
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
            [] => shown(definition),
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
        let overridden = overridden(insert.overriding.as_ref(), &rows, &columns, definition)?;
        let defaults = Defaults::of(&table, names, &context.around)?;
        let alias = insert.table_alias.as_ref().map(|alias| name(&alias.alias)).transpose()?;
        let source = Source::table(table.clone(), alias.unwrap_or(own));
        let conflict = match &insert.on {
            None => None,
            Some(OnInsert::OnConflict(conflict)) => {
                Some(Conflict::bind(conflict, (&table, &source), context, parameters)?)
            }
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY", "ON CONFLICT is there.")),
        };
        let returning =
            Returning::bind(insert.returning.as_ref(), &Sources(vec![source.clone()]), context, parameters)?;
        Ok(Inserting { table, columns, overridden, defaults, rows, conflict, returning })
    }

    /// Whether it takes numbers of sequences, and more than a transaction has at hand.
    pub(crate) fn takes_numbers(&self) -> bool {
        let is_one = match &self.rows {
            Rows::Given(rows) => rows.len() == 1,
            Rows::Of(_) => false,
            Rows::Default => true,
        };
        let waits = |at: &usize| matches!(self.defaults.each[*at], Default::Computed(_));
        !self.defaults.numbered.is_empty() && !is_one || self.defaults.numbered.iter().any(waits)
    }

    /// The steps in words.
    pub(crate) fn explain(&self) -> Vec<String> {
        let mut lines = vec![format!("Insert into {}", self.table.definition().name)];
        if let Rows::Of(select) = &self.rows {
            lines.extend(select.explain().into_iter().map(|line| format!("  {line}")));
        }
        lines
    }

    pub(crate) fn run(&self, tx: &Tx, env: Env<'_>) -> Result<Written, Abort> {
        let definition = self.table.definition();
        let fail = |error: SqlError| env.fail(error);
        let nothing = Joined { rows: &[], places: &[], env };
        // All rows before the first is written.
        let mut rows: Vec<Vec<Value>> = Vec::new();
        let mut add = |given: &[usize], value: &mut dyn FnMut(usize, usize) -> Result<Value, Abort>| {
            let column = |at: usize| match given.iter().position(|known| *known == at) {
                Some(position) if !self.overridden.contains(&at) => value(position, at),
                _ => self.defaults.value(tx, at, definition),
            };
            // All columns take their numbers before a NULL is refused, as in PostgreSQL.
            let row: Vec<Result<Value, Abort>> = (0..definition.columns.len()).map(column).collect();
            let row = row.into_iter().collect::<Result<Vec<Value>, Abort>>()?;
            env.run.keep_stored(&row).map_err(fail)?;
            rows.push(row);
            Ok::<_, Abort>(())
        };
        match &self.rows {
            Rows::Default => add(&[], &mut |_, at| self.defaults.value(tx, at, definition))?,
            Rows::Given(given) => {
                for row in given {
                    add(&self.columns[..row.len()], &mut |position, at| {
                        row[position].value(tx, (at, &self.defaults), definition, nothing)
                    })?;
                }
            }
            Rows::Of(select) => {
                let types = select.types();
                for mut row in select.run(env)? {
                    add(&self.columns[..row.len()], &mut |position, at| {
                        let value = std::mem::replace(&mut row[position], Datum::Null);
                        let stored = stored(value, types[position], &definition.columns[at], definition);
                        stored.map_err(fail)
                    })?;
                }
            }
        }
        if let Some(update) = self.conflict.as_ref().and_then(|conflict| conflict.update.as_ref()) {
            check_keys(&update.changes, definition, env).map_err(fail)?;
        }
        if let Some(conflict) = &self.conflict {
            // Before the first is written: a statement that waits begins anew.
            rows.iter().try_for_each(|row| conflict.lock(env, &self.table, row))?;
        }
        let mut written = Written::default();
        // The rows that the statement has written, where it could write them again.
        let mut touched = BTreeSet::new();
        let updates = self.conflict.as_ref().is_some_and(|conflict| conflict.update.is_some());
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
                        update.apply(tx, (&self.table, &self.defaults), &key, &row, env)?
                    }
                },
                _ => {
                    tx.insert_overriding_dyn(&self.table, &row)?;
                    Some(row)
                }
            };
            let Some(after) = after else { continue };
            if updates {
                touched.insert(distinct_key(&key_of(definition, &|at| after[at].clone()), definition));
            }
            written.count += 1;
            if let Some(returning) = &self.returning {
                written.rows.push(returning.row(&after, definition, env)?);
            }
        }
        Ok(written)
    }
}

impl Conflict {
    fn bind(
        conflict: &sqlparser::ast::OnConflict,
        (table, source): (&DynHandle, &Source),
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Conflict, SqlError> {
        let definition = table.definition();
        let unique = definition.indexes.iter().enumerate().filter(|(_, index)| index.unique);
        let (primary, indexes): (bool, Vec<usize>) = match &conflict.conflict_target {
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
                let primary = own == definition.key_constraint_name();
                (primary, unique.filter(|(_, index)| index.name == own).map(|(at, _)| at).collect::<Vec<_>>())
            }
            Some(_) => return Err(SqlError::unsupported("a condition of ON CONFLICT", "Name columns.")),
        };
        if !primary && indexes.is_empty() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        if let Some(at) = indexes.iter().find(|at| definition.indexes[**at].is_deferrable()) {
            let message =
                "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
            let mut error = SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            error.constraint = Some(definition.indexes[*at].name.to_string());
            return Err(error.table(definition.name.to_string()));
        }
        let update = match &conflict.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(_) if conflict.conflict_target.is_none() => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            OnConflictAction::DoUpdate(update) => {
                let excluded = source.clone().named("excluded");
                let sources = Sources(vec![source.clone(), excluded]);
                let condition = update.selection.as_ref().map(|condition| {
                    let mut condition = Translator::scalar(context, "ON CONFLICT").translate(condition)?;
                    qualified(&mut condition, &sources)?;
                    Ok::<_, SqlError>(context.condition(&condition, &sources, parameters)?)
                });
                let condition = condition.transpose()?;
                let changes = changes(&update.assignments, definition, &sources, context, parameters)?;
                Some(Change { places: sources.places(), changes, condition })
            }
        };
        Ok(Conflict { primary, indexes, update })
    }

    /// Locks the row that has a key of the new row, or will have it.
    fn lock(&self, env: Env<'_>, table: &DynHandle, row: &[Value]) -> Result<(), Abort> {
        let key = key_of(table.definition(), &|at| row[at].clone());
        if self.primary {
            CHANGED.lock_key(env, table, &key)?;
        }
        if self.update.is_some() && !self.indexes.is_empty() {
            env.run.is_locked_late.set(true);
            if let Some(existing) = self.existing(env.run.tx, table, row)?.filter(|existing| *existing != key) {
                CHANGED.lock_key(env, table, &existing)?;
            }
        }
        Ok(())
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
        (table, defaults): (&DynHandle, &Defaults),
        key: &[Value],
        excluded: &[Value],
        env: Env<'_>,
    ) -> Result<Option<Vec<Value>>, Abort> {
        let definition = table.definition();
        let Some(before) = tx.get_dyn(table, key)? else { return Ok(None) };
        let rows = [SourceRow::Stored(before), SourceRow::Computed(datums(excluded, definition))];
        let joined = Joined { rows: &rows, places: &self.places, env };
        if !joined.fulfils(self.condition.as_slice())? {
            return Ok(None);
        }
        let before = before.values();
        let after = changed(tx, (&self.changes, defaults), &before, definition, joined)?;
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
        let mut add = |column: &ObjectName, value: &Expr| {
            let at = column_at(table, &object(column)?)?;
            let name = &table.columns[at].name;
            if changes.iter().any(|(known, _)| *known == at) {
                let message = format!("multiple assignments to same column \"{name}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            let given = Given::bind(value, &table.columns[at], sources, context, parameters)?;
            if matches!(given, Given::Of(_)) && is_always(&table.columns[at]) {
                let message = format!("column \"{name}\" can only be updated to DEFAULT");
                return Err(always(&table.columns[at], message));
            }
            changes.push((at, given));
            Ok(())
        };
        match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(column), value) => add(column, value)?,
            (AssignmentTarget::Tuple(columns), Expr::Tuple(values)) => {
                if columns.len() != values.len() {
                    let message = "number of columns does not match number of values";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                columns.iter().zip(values).try_for_each(|(column, value)| add(column, value))?;
            }
            (AssignmentTarget::Tuple(columns), value) if columns.len() == 1 => add(&columns[0], value)?,
            _ => return Err(SqlError::unsupported("SET of several columns to a row", "Write SET (a, b) = (x, y).")),
        }
    }
    Ok(changes)
}

/// A row after changes that are computed from it.
fn changed(
    tx: &Tx,
    (changes, defaults): (&[(usize, Given)], &Defaults),
    before: &[Value],
    table: &TableDef,
    joined: Joined<'_, '_>,
) -> Result<Vec<Value>, Abort> {
    let mut after = before.to_vec();
    for (at, given) in changes {
        after[*at] = given.value(tx, (*at, defaults), table, joined)?;
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
        let columns: Vec<ColumnId> = changed.iter().map(|at| column_id(*at)).collect();
        let values = |_: DynRow<'_>| Ok(changed.iter().map(|&at| after[at].clone()).collect());
        return tx.update_by_dyn(table, &key, (ColumnSet::EMPTY, &columns), values).map(drop);
    }
    tx.delete_dyn(table, &key)?;
    tx.insert_overriding_dyn(table, after)
}

fn column_id(at: usize) -> seriatim::catalog::ColumnId {
    seriatim::catalog::ColumnId(at as u16)
}

/// The columns that a statement means which names none.
fn shown(table: &TableDef) -> Vec<usize> {
    (0..table.columns.len()).filter(|at| !is_row_id(&table.columns[*at])).collect()
}

/// The position of a column that can be written.
fn column_at(table: &TableDef, column: &str) -> Result<usize, SqlError> {
    match table.columns.iter().position(|known| known.name == column) {
        Some(at) if is_row_id(&table.columns[at]) => {
            let message = format!("cannot assign to system column \"{column}\"");
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).column(column))
        }
        Some(at) => Ok(at),
        None => {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).table(table.name.to_string()).column(column))
        }
    }
}

fn is_always(column: &ColumnDef) -> bool {
    column.identity.is_some_and(|identity| identity.kind == IdentityKind::Always)
}

fn always(column: &ColumnDef, message: String) -> SqlError {
    let detail = format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name);
    SqlError::new(SqlState::GENERATED_ALWAYS, message).detail(detail).column(column.name.to_string())
}

/// The identity columns whose values do not count, by OVERRIDING USER VALUE.
///
/// # Errors
/// Only its sequence gives the values of one, and a value is given.
fn overridden(
    overriding: Option<&InsertOverriding>,
    rows: &Rows,
    columns: &[usize],
    table: &TableDef,
) -> Result<Vec<usize>, SqlError> {
    let Some(at) = table.identity_column().map(|column| column.index()) else { return Ok(Vec::new()) };
    let Some(position) = columns.iter().position(|known| *known == at) else { return Ok(Vec::new()) };
    let is_given = match rows {
        Rows::Default => false,
        Rows::Of(select) => select.columns.len() > position,
        Rows::Given(rows) => rows.iter().any(|row| matches!(row.get(position), Some(Given::Of(_)))),
    };
    match overriding {
        Some(InsertOverriding::User) => Ok(vec![at]),
        None if is_given && is_always(&table.columns[at]) => {
            let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", table.columns[at].name);
            Err(always(&table.columns[at], message).hint("Use OVERRIDING SYSTEM VALUE to override."))
        }
        _ => Ok(Vec::new()),
    }
}

/// The table of an UPDATE or DELETE, and how its rows are found: they are those of the first source.
fn targeted(
    tables: &[TableWithJoins],
    others: &[TableWithJoins],
    condition: Option<&Expr>,
    (names, context): (Names<'_>, &Context),
    parameters: &mut Parameters,
) -> Result<(DynHandle, From), SqlError> {
    let (table, source) = target(tables, names)?;
    let from = match others {
        [] => From::of_table(source, condition, context, parameters)?,
        others => From::bind(&[tables, others].concat(), condition, names, context, parameters, None)?,
    };
    Ok((table, from))
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
/// follow the deletion. It is checked in the transaction, as a plan may be older than a foreign key of another table.
fn check_keys(changes: &[(usize, Given)], table: &TableDef, env: Env<'_>) -> Result<(), SqlError> {
    let Some((at, _)) = changes.iter().find(|(at, _)| !table.is_updatable(column_id(*at))) else { return Ok(()) };
    for other in env.run.names().into_iter().flat_map(Names::tables) {
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

/// A row that is changed where it is, in one step: what is set, and what that is computed from.
#[derive(Clone, Debug)]
struct PointChange {
    point: Point,
    reads: ColumnSet,
    sets: Vec<ColumnId>,
    values: Vec<Bound>,
}

impl PointChange {
    /// `None` if rows are found in another way, or may move, or need more than their own values.
    fn of(from: &From, changes: &[(usize, Given)], table: &TableDef) -> Option<PointChange> {
        let point = Point::of(from).filter(Point::is_unconditional)?;
        let value = |(_, given): &(usize, Given)| match given {
            Given::Of(bound) if bound.is_pure() => Some(bound.clone()),
            _ => None,
        };
        let values = changes.iter().map(value).collect::<Option<Vec<_>>>()?;
        let sets: Vec<ColumnId> = changes.iter().map(|(at, _)| column_id(*at)).collect();
        let reads = values.iter().flat_map(|bound| bound.columns()).map(|&column| column_id(column)).collect();
        let stays = sets.iter().all(|column| table.is_updatable(*column));
        stays.then_some(PointChange { point, reads, sets, values })
    }

    /// Returns whether there was a row.
    fn run(&self, tx: &Tx, table: &DynHandle, env: Env<'_>) -> Result<bool, Abort> {
        let definition = table.definition();
        let Some(key) = self.point.key(env)? else { return Ok(false) };
        CHANGED.lock_key(env, table, &key)?;
        tx.update_by_dyn(table, &key, (self.reads, &self.sets), |before| {
            let value = |(bound, column): (&Bound, &ColumnId)| {
                let value = bound.evaluate(before, env.parameters)?;
                stored(value, bound.column_type(), &definition.columns[column.index()], definition)
            };
            self.values.iter().zip(&self.sets).map(value).collect::<Result<_, _>>().map_err(|error| env.fail(error))
        })
    }
}

/// An UPDATE that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Updating {
    table: DynHandle,
    from: From,
    /// If at most one row changes, and stays where it is.
    point: Option<PointChange>,
    /// If at most one row changes.
    key: Option<Point>,
    changes: Vec<(usize, Given)>,
    defaults: Defaults,
    pub(crate) returning: Option<Returning>,
}

impl Updating {
    pub(crate) fn table(&self) -> &DynHandle {
        &self.table
    }

    pub(crate) fn bind(
        update: &Update,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Updating, SqlError> {
        let used = Update {
            table: update.table.clone(),
            assignments: update.assignments.clone(),
            from: update.from.clone(),
            selection: update.selection.clone(),
            returning: update.returning.clone(),
            ..form::update()
        };
        form::only(update, &used, "UPDATE", "SET, FROM, WHERE and RETURNING are.")?;
        let others = match &update.from {
            Some(UpdateTableFromKind::AfterSet(others)) => &**others,
            Some(UpdateTableFromKind::BeforeSet(_)) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "FROM stands behind SET"));
            }
            None => &[],
        };
        let (tables, condition) = (std::slice::from_ref(&update.table), update.selection.as_ref());
        let (table, from) = targeted(tables, others, condition, (names, context), parameters)?;
        let returning = Returning::bind(update.returning.as_ref(), &from.sources, context, parameters)?;
        let changes = changes(&update.assignments, table.definition(), &from.sources, context, parameters)?;
        let defaults = Defaults::of(&table, names, &context.around)?;
        let point = PointChange::of(&from, &changes, table.definition()).filter(|_| returning.is_none());
        let key = Point::of(&from);
        Ok(Updating { table, from, point, key, changes, defaults, returning })
    }

    /// Whether it takes numbers of sequences.
    pub(crate) fn takes_numbers(&self) -> bool {
        let is_numbered =
            |(at, given): &(usize, Given)| matches!(given, Given::Default) && self.defaults.numbered.contains(at);
        self.changes.iter().any(is_numbered)
    }

    /// The steps in words.
    pub(crate) fn explain(&self) -> Vec<String> {
        let mut lines = vec![format!("Update of {}", self.table.definition().name)];
        lines.extend(self.from.explain(2));
        lines
    }

    pub(crate) fn run(&self, tx: &Tx, env: Env<'_>) -> Result<Written, Abort> {
        let definition = self.table.definition();
        if let Some(point) = &self.point {
            return Ok(Written { count: point.run(tx, &self.table, env)?.into(), rows: Vec::new() });
        }
        let fail = |error: SqlError| env.fail(error);
        check_keys(&self.changes, definition, env).map_err(fail)?;
        let mut found = Vec::<(Vec<Value>, Vec<Value>)>::new();
        let (mut once, mut written) = (Once::of(&self.from), Written::default());
        lock_first(self.key.as_ref(), env)?;
        self.from.each(env, &mut |joined| {
            let Some(before) = once.row(joined, definition) else { return Ok(true) };
            CHANGED.lock_joined(env, &self.from, joined)?;
            let after = changed(tx, (&self.changes, &self.defaults), &before, definition, joined)?;
            env.run.keep_stored(&before).and_then(|()| env.run.keep_stored(&after)).map_err(fail)?;
            if let Some(returning) = &self.returning {
                let row = returning.joined(joined, once.level, &after, definition)?;
                env.run.keep(&row).map_err(fail)?;
                written.rows.push(row);
            }
            found.push((before, after));
            Ok(true)
        })?;
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
                true => tx.insert_overriding_dyn(&self.table, &pair.1)?,
                false => write(tx, &self.table, &pair.0, &pair.1)?,
            }
            written.count += 1;
        }
        Ok(written)
    }
}

/// Locks the one row of a statement before it is read, if its key is known.
fn lock_first(point: Option<&Point>, env: Env<'_>) -> Result<(), Abort> {
    if let Some(point) = point
        && let Some(key) = point.key(env)?
    {
        CHANGED.lock_key(env, point.table(), &key)?;
    }
    Ok(())
}

/// Finds the rows of the first source of a statement that changes them, each once: of several combinations, the first
/// counts.
struct Once {
    /// The loop in which they are found.
    level: usize,
    /// Their keys, if they may be found again.
    known: Option<BTreeSet<Distinct>>,
}

impl Once {
    fn of(from: &From) -> Once {
        let level = from.levels.iter().position(|level| level.source == 0).unwrap_or(0);
        Once { level, known: (from.levels.len() > 1).then(BTreeSet::new) }
    }

    /// The values of the row in a combination; `None` if there is none, or it was found before.
    fn row(&mut self, joined: Joined<'_, '_>, table: &TableDef) -> Option<Vec<Value>> {
        let Some(SourceRow::Stored(row)) = joined.rows.get(self.level) else { return None };
        let values = row.values();
        let is_new = self.known.as_mut().is_none_or(|known| {
            let key = key_of(table, &|at| values[at].clone());
            known.insert(distinct_key(&key, table))
        });
        is_new.then_some(values)
    }
}

/// A DELETE that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Deleting {
    table: DynHandle,
    from: From,
    /// If there is at most one row, of which nothing but its key is looked at.
    point: Option<Point>,
    /// If there is at most one row.
    key: Option<Point>,
    pub(crate) returning: Option<Returning>,
}

impl Deleting {
    pub(crate) fn table(&self) -> &DynHandle {
        &self.table
    }

    pub(crate) fn bind(
        delete: &Delete,
        names: Names<'_>,
        context: &Context,
        parameters: &mut Parameters,
    ) -> Result<Deleting, SqlError> {
        let used = Delete {
            from: delete.from.clone(),
            using: delete.using.clone(),
            selection: delete.selection.clone(),
            returning: delete.returning.clone(),
            ..form::delete()
        };
        form::only(delete, &used, "DELETE", "FROM, USING, WHERE and RETURNING are.")?;
        let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
        let (others, condition) = (delete.using.as_deref().unwrap_or_default(), delete.selection.as_ref());
        let (table, from) = targeted(tables, others, condition, (names, context), parameters)?;
        let returning = Returning::bind(delete.returning.as_ref(), &from.sources, context, parameters)?;
        let point = Point::of(&from).filter(|point| point.is_unconditional() && returning.is_none());
        let key = Point::of(&from);
        Ok(Deleting { table, from, point, key, returning })
    }

    /// The steps in words.
    pub(crate) fn explain(&self) -> Vec<String> {
        let mut lines = vec![format!("Delete from {}", self.table.definition().name)];
        lines.extend(self.from.explain(2));
        lines
    }

    pub(crate) fn run(&self, tx: &Tx, env: Env<'_>) -> Result<Written, Abort> {
        let definition = self.table.definition();
        if let Some(point) = &self.point {
            let Some(key) = point.key(env)? else { return Ok(Written::default()) };
            CHANGED.lock_key(env, &self.table, &key)?;
            let is_there = tx.delete_if_dyn(&self.table, &key)?.is_ok();
            return Ok(Written { count: is_there.into(), rows: Vec::new() });
        }
        let mut found = Vec::<Vec<Value>>::new();
        let (mut once, mut written) = (Once::of(&self.from), Written::default());
        let fail = |error: SqlError| env.fail(error);
        lock_first(self.key.as_ref(), env)?;
        self.from.each(env, &mut |joined| {
            let Some(row) = once.row(joined, definition) else { return Ok(true) };
            CHANGED.lock_joined(env, &self.from, joined)?;
            env.run.keep_stored(&row).map_err(fail)?;
            if let Some(returning) = &self.returning {
                let row = returning.joined(joined, once.level, &row, definition)?;
                env.run.keep(&row).map_err(fail)?;
                written.rows.push(row);
            }
            found.push(row);
            Ok(true)
        })?;
        for before in found {
            tx.delete_dyn(&self.table, &key_of(definition, &|at| before[at].clone()))?;
            written.count += 1;
        }
        Ok(written)
    }
}
