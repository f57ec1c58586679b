//! The reference execution: the interpreter of procedures on a transaction of the database.
//!
//! It reads the declaration, not the generated code, and uses the operations of tables declared at run time. If
//! the two disagree, one of them is wrong.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use seriatim_catalog::{ColumnId, ColumnSet, ColumnUse, KeyBuf, KeyCodec, KeyRange, Organization, RowRef, ValueError};
use seriatim_procedure::interpret::{Changes, Keys, Operate, interpret};
use seriatim_procedure::ir::{Operation, Procedure};
use seriatim_procedure::{EvaluationError, Value, check_column};
use seriatim_store::Direction;
use seriatim_txn::{Mode, Reason, RowPtr};

use crate::engine::Inner;
use crate::error::Abort;
use crate::scan::{RawScan, Target};
use crate::table::TableSet;
use crate::tx::{Origin, TxCore};
use crate::{Committed, Runner, TransactError};

/// The error of a procedure's own abort, as the interpreter reports it: [`TransactError::User`].
#[derive(Clone, Debug, PartialEq)]
pub struct Aborted {
    /// The value given to `tx.abort`.
    pub error: Value,
}

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Aborted {}

/// Why an interpreted procedure ends.
#[derive(Debug)]
pub enum Stopped {
    /// It aborts.
    Abort(Abort),
    /// An expression has no value.
    Evaluation(EvaluationError),
}

impl From<EvaluationError> for Stopped {
    fn from(error: EvaluationError) -> Stopped {
        Stopped::Evaluation(error)
    }
}

impl From<Abort> for Stopped {
    fn from(abort: Abort) -> Stopped {
        Stopped::Abort(abort)
    }
}

impl Stopped {
    fn into_abort(self, tx: &TxCore) -> Abort {
        match self {
            Stopped::Abort(abort) => abort,
            Stopped::Evaluation(EvaluationError::Overflow) => Abort::overflow(None),
            Stopped::Evaluation(error) => tx.abort(error),
        }
    }
}

/// A table as the interpreter sees it.
struct Interpreted {
    name: Arc<str>,
    columns: Vec<Arc<str>>,
    set: Arc<TableSet>,
}

impl Interpreted {
    /// The tables of a procedure that exist.
    fn tables(procedure: &Procedure, database: &Inner) -> Vec<Interpreted> {
        let found = procedure.tables.iter().filter_map(|used| database.find(&used.table));
        let table = |set: Arc<TableSet>| {
            let columns = set.definition.columns.iter().map(|column| Arc::from(&*column.name)).collect();
            Interpreted { name: Arc::from(&*set.definition.name), columns, set }
        };
        found.map(table).collect()
    }

    /// These columns of a row.
    fn row(&self, row: RowRef<'_>, wanted: ColumnSet) -> Value {
        let (columns, places) = (&self.set.definition.columns, &self.set.layout.places);
        let field = |((column, place), name): ((_, _), &Arc<str>)| (Arc::clone(name), Value::read(column, place, row));
        let all = columns.iter().zip(places).zip(&self.columns);
        let named = all.filter(|((_, place), _)| wanted.contains(ColumnId(place.column)));
        Value::Record { name: Arc::clone(&self.name), fields: named.map(field).collect() }
    }

    fn read(&self, row: RowPtr, wanted: ColumnSet) -> Value {
        // SAFETY: a row of this table, readable until the next step of its scan at least, and read before this returns.
        self.row(unsafe { RowRef::from_raw(row.as_ptr()) }.only(wanted), wanted)
    }

    /// The column of this name, which can have this value.
    fn column(&self, name: &str, value: &Value) -> Result<ColumnId, EvaluationError> {
        let Some(column) = self.set.definition.column(name) else {
            return Err(EvaluationError::Type(format!("table {:?} has no column {name:?}", &*self.name)));
        };
        check_column(value, &self.set.definition.columns[column.index()])?;
        Ok(column)
    }

    /// The codec and the target of an operation's keys.
    fn keys_of(&self, operation: &Operation) -> Result<(&KeyCodec, Target), EvaluationError> {
        let Some(name) = &operation.index else { return Ok((&self.set.primary.codec, Target::Rows)) };
        match self.set.definition.index(name) {
            Some(at) => Ok((&self.set.indexes[at.index()].table.codec, Target::Index(at.index()))),
            None => Err(EvaluationError::Type(format!("table {:?} has no index {name:?}", &*self.name))),
        }
    }

    /// Checks that these can be the values of the first columns of a key.
    fn check(&self, target: Target, key: &[Value]) -> Result<(), EvaluationError> {
        let definition = &self.set.definition;
        let parts = match target {
            Target::Rows => &definition.key,
            Target::Index(at) => &definition.indexes[at].parts,
        };
        if key.len() > parts.len() {
            let problem = format!("{} values for a key of {} columns", key.len(), parts.len());
            return Err(EvaluationError::Type(problem));
        }
        let mut parts = parts.iter().zip(key);
        parts.try_for_each(|(part, value)| check_column(value, &definition.columns[part.column.index()]))
    }

    /// The encoded key of a row.
    fn key(&self, key: &[Value]) -> Result<KeyBuf, EvaluationError> {
        self.key_of(&self.set.primary.codec, Target::Rows, key)
    }

    fn key_of(&self, codec: &KeyCodec, target: Target, key: &[Value]) -> Result<KeyBuf, EvaluationError> {
        self.check(target, key)?;
        codec.encode_values(key).map_err(|error| EvaluationError::Type(error.to_string()))
    }
}

/// A transaction as the interpreter sees it.
pub struct Reference<'t> {
    tx: &'t TxCore,
    tables: &'t [Interpreted],
    /// By operation, the columns that it may read and change; without an entry, all.
    columns: &'t [ColumnUse],
}

impl Reference<'_> {
    fn table(&self, name: &str) -> Result<&Interpreted, Stopped> {
        let found = self.tables.iter().find(|table| &*table.name == name);
        found.ok_or_else(|| EvaluationError::Type(format!("there is no table {name:?}")).into())
    }

    fn columns(&self, operation: &Operation) -> ColumnUse {
        self.columns.get(operation.id.index()).copied().unwrap_or(ColumnUse::ALL)
    }
}

impl Operate for Reference<'_> {
    type Error = Stopped;

    fn get(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<Option<Value>, Stopped> {
        let table = self.table(table)?;
        let (codec, target) = table.keys_of(operation)?;
        let key = table.key_of(codec, target, &key)?;
        let wanted = self.columns(operation).used();
        let row = match target {
            Target::Rows => self.tx.read_row(&table.set, key.as_key(), wanted)?,
            Target::Index(at) => self.tx.read_by(&table.set, at, key.as_key(), wanted)?,
        };
        Ok(row.map(|row| table.read(row, wanted)))
    }

    fn update(
        &self,
        operation: &Operation,
        table: &str,
        key: Vec<Value>,
        body: &mut dyn FnMut(Value) -> Result<Changes, Stopped>,
    ) -> Result<bool, Stopped> {
        let table = self.table(table)?;
        let key = table.key(&key)?;
        let (columns, places) = (&table.set.definition.columns, &table.set.layout.places);
        let wanted = self.columns(operation);
        let updated = self.tx.try_update_at(&table.set, key.as_key(), wanted, |writer| {
            let changes = body(table.row(writer.as_row(), wanted.either()))?;
            for (name, value) in &changes {
                let column = table.column(name, value)?;
                let at = column.index();
                if !table.set.definition.is_updatable(column) {
                    return Err(EvaluationError::Type(format!("column {name:?} cannot be updated")).into());
                }
                value.write(&columns[at], &places[at], writer).map_err(|error| match error {
                    ValueError::OutOfMemory(_) => Stopped::Abort(self.tx.out_of_memory()),
                    error => EvaluationError::Type(error.to_string()).into(),
                })?;
            }
            Ok(())
        })?;
        updated.map_or(Ok(false), |result: Result<(), Stopped>| result.map(|()| true))
    }

    fn insert(&self, _: &Operation, table: &str, columns: Changes) -> Result<(), Stopped> {
        let table = self.table(table)?;
        let mut values = vec![None; table.columns.len()];
        for (name, value) in columns {
            let at = table.column(&name, &value)?.index();
            values[at] = Some(value);
        }
        let missing = |at: usize| format!("the row has no value for column {:?}", &*table.columns[at]);
        let given = |at: usize, value: Option<Value>| value.or_else(|| table.set.definition.value_if_unknown(at));
        let whole = values.into_iter().enumerate().map(|(at, value)| given(at, value).ok_or_else(|| missing(at)));
        let values = whole.collect::<Result<Vec<_>, _>>().map_err(EvaluationError::Type)?;
        Ok(self.tx.insert_values(&table.set, &values)?)
    }

    fn delete(&self, _: &Operation, table: &str, key: Vec<Value>) -> Result<bool, Stopped> {
        let table = self.table(table)?;
        Ok(self.tx.delete_at(&table.set, table.key(&key)?.as_key())?)
    }

    fn scan(
        &self,
        operation: &Operation,
        table: &str,
        keys: Keys,
        reverse: bool,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, Stopped>,
    ) -> Result<(), Stopped> {
        let table = self.table(table)?;
        let (codec, target) = table.keys_of(operation)?;
        let range = |key: &[Value]| -> Result<KeyRange, EvaluationError> {
            table.check(target, key)?;
            codec.range_of_values(key).map_err(|error| EvaluationError::Type(error.to_string()))
        };
        let (wanted, direction) =
            (self.columns(operation).used(), if reverse { Direction::Backward } else { Direction::Forward });
        let is_hash = |at: usize| table.set.definition.indexes[at].organization == Organization::Hash;
        let scan = match (target, keys) {
            (Target::Index(at), Keys::Prefix(key)) if is_hash(at) => {
                if reverse {
                    return Err(Abort::stopped(Reason::Unordered).into());
                }
                table.check(target, &key)?;
                RawScan::of_values(self.tx, &table.set, at, &key, direction)
                    .map_err(|error| EvaluationError::Type(error.to_string()))?
            }
            (_, Keys::All) => RawScan::of_table(self.tx, &table.set),
            (_, Keys::Prefix(key)) => {
                let KeyRange { low, high } = range(&key)?;
                RawScan::new(self.tx, &table.set, target, (&low, &high), direction)
            }
            (_, Keys::Between { low, high, inclusive }) => {
                let above = low.map(|low| range(&low)).transpose()?;
                let below = high.map(|high| range(&high)).transpose()?;
                let low = above.as_ref().map_or(Bound::Unbounded, |above| above.low.clone());
                let high = match &below {
                    None => Bound::Unbounded,
                    Some(below) if inclusive => below.high.clone(),
                    // Below the first key that begins with it.
                    Some(below) => match below.low.clone() {
                        Bound::Included(key) => Bound::Excluded(key),
                        other => other,
                    },
                };
                let between = KeyRange { low, high };
                let KeyRange { low, high } = match (&above, &below) {
                    (Some(bound), None) | (None, Some(bound)) => codec.leave_out_nulls(between, &bound.low),
                    _ => between,
                };
                RawScan::new(self.tx, &table.set, target, (&low, &high), direction)
            }
        };
        // A row is read completely before the next step.
        let mut scan = scan.with_columns(wanted).transient();
        while let Some(row) = scan.next() {
            if visit(table.read(row?, wanted))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn missing(&self, operation: &Operation, table: &str, key: &[Value]) -> Stopped {
        let missing = || {
            let table = self.table(table)?;
            let (codec, target) = table.keys_of(operation)?;
            let key = table.key_of(codec, target, key)?;
            let place = match target {
                Target::Rows => &table.set.primary,
                Target::Index(at) => &table.set.indexes[at].table,
            };
            Ok(self.tx.missing_at(place, key.as_key()))
        };
        missing().map_or_else(|stopped| stopped, Stopped::Abort)
    }

    fn abort(&self, error: Value) -> Stopped {
        Stopped::Abort(self.tx.abort(Aborted { error }))
    }
}

impl Runner {
    /// Interprets a procedure as one transaction of this mode; `convert` gets its result. Does not wait until
    /// the result is durable.
    ///
    /// # Errors
    /// The procedure's own abort, as [`TransactError::User`] of an [`Aborted`]; a missing or duplicate row,
    /// overflow; a conflict that outlasted the retries.
    pub fn interpret(
        &mut self,
        mode: Mode,
        declaration: &Procedure,
        columns: &[ColumnUse],
        arguments: &Value,
        convert: &mut dyn FnMut(&Value) -> Result<(), EvaluationError>,
    ) -> Result<Committed<()>, TransactError> {
        let tables = Interpreted::tables(declaration, self.tx.inner());
        let mut result = self.run_dyn(mode, Origin::Procedure, &mut |tx| {
            let value = interpret(declaration, arguments, &Reference { tx, tables: &tables, columns });
            let value = value.and_then(|value| Ok(convert(&value)?));
            value.map_err(|stopped| stopped.into_abort(tx))
        });
        if let Err(error) = &mut result {
            in_procedure(error, &declaration.name);
        }
        result
    }
}

impl Runner {
    /// Calls `run` with a transaction as the interpreter sees it, with complete rows, and rolls back.
    ///
    /// # Errors
    /// As [`Runner::interpret`].
    #[doc(hidden)]
    pub fn interpret_with(
        &mut self,
        mode: Mode,
        declaration: &Procedure,
        run: &mut dyn FnMut(&Reference<'_>) -> Result<(), Stopped>,
    ) -> Result<(), TransactError> {
        let tables = Interpreted::tables(declaration, self.tx.inner());
        let mut done = false;
        let result = self.run_dyn(mode, Origin::Procedure, &mut |tx| {
            done = false;
            run(&Reference { tx, tables: &tables, columns: &[] }).map_err(|stopped| stopped.into_abort(tx))?;
            done = true;
            Err(tx.abort("rolled back after it was interpreted"))
        });
        self.tx.wait_until_durable()?;
        if done { Ok(()) } else { result.map(drop) }
    }
}

/// Names the procedure in errors that mention it.
#[cold]
pub fn in_procedure(error: &mut TransactError, name: &str) {
    if let TransactError::Overflow { procedure, .. } = error {
        name.clone_into(procedure);
    }
}
