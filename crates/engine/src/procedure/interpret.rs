//! The reference execution: the interpreter of procedures on a transaction of the database.
//!
//! It reads the declaration, not the generated code, and uses the operations of tables declared at run time. If
//! the two disagree, one of them is wrong. A procedure that exists only as data runs in no other way.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use seriatim_catalog::watch::unwatched;
use seriatim_catalog::{ColumnId, ColumnSet, ColumnUse, KeyBuf, KeyCodec, KeyRange, Organization, RowRef, ValueError};
use seriatim_procedure::footprint::{KnownKeys, footprint};
use seriatim_procedure::interpret::{Changes, Keys, Operate, interpret};
use seriatim_procedure::ir::{Operation, OperationKind, Procedure};
use seriatim_procedure::plan::Plan;
use seriatim_procedure::{EvaluationError, Value, check_column};
use seriatim_store::Direction;
use seriatim_txn::{Mode, Reason, RowPtr};

use crate::Engine;
use crate::engine::Inner;
use crate::error::Abort;
use crate::procedure::watch::KeysSeen;
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
            Stopped::Evaluation(EvaluationError::Expression(error)) => tx.abort(error),
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
    /// These columns of a row. There are no others than the plan permits, so a check of the plan ignores these reads.
    fn row(&self, row: RowRef<'_>, wanted: ColumnSet) -> Value {
        let (columns, places) = (&self.set.definition.columns, &self.set.layout.places);
        let field = |((column, place), name): ((_, _), &Arc<str>)| (Arc::clone(name), Value::read(column, place, row));
        let all = columns.iter().zip(places).zip(&self.columns);
        let named = all.filter(|((_, place), _)| wanted.contains(ColumnId(place.column)));
        unwatched(|| Value::Record { name: Arc::clone(&self.name), fields: named.map(field).collect() })
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
        codec.encode_values(key).map_err(unfit)
    }

    /// The range of keys that begin with these values.
    fn range_of(&self, codec: &KeyCodec, target: Target, key: &[Value]) -> Result<KeyRange, EvaluationError> {
        self.check(target, key)?;
        codec.range_of_values(key).map_err(unfit)
    }

    /// The range of a scan.
    fn range(&self, codec: &KeyCodec, target: Target, keys: &Keys) -> Result<KeyRange, EvaluationError> {
        let (low, high, inclusive) = match keys {
            Keys::All => return Ok(KeyRange { low: Bound::Unbounded, high: Bound::Unbounded }),
            Keys::Prefix(key) => return self.range_of(codec, target, key),
            Keys::Between { low, high, inclusive } => (low, high, *inclusive),
        };
        let bound = |key: &Option<Vec<Value>>| key.as_ref().map(|key| self.range_of(codec, target, key)).transpose();
        let (above, below) = (bound(low)?, bound(high)?);
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
        Ok(match (&above, &below) {
            (Some(bound), None) | (None, Some(bound)) => codec.leave_out_nulls(between, &bound.low),
            _ => between,
        })
    }

    /// The name of the table or index of an operation, and its keys. `None` if these values do not determine them.
    fn keys(&self, operation: &Operation, known: KnownKeys) -> Result<Option<(&str, KeysSeen)>, EvaluationError> {
        let (codec, target) = self.keys_of(operation)?;
        let table = match target {
            Target::Rows => &self.set.primary,
            Target::Index(at) => &self.set.indexes[at].table,
        };
        let one = |key: Vec<Value>| -> Result<KeysSeen, EvaluationError> {
            let key = self.key_of(codec, target, &key)?;
            Ok(KeysSeen::One(codec.entry_key(key.as_key(), |key| key.to_buf())))
        };
        let keys = match known {
            KnownKeys::One(key) => one(key)?,
            KnownKeys::Range(Keys::Prefix(key)) if self.is_single(target) => one(key)?,
            KnownKeys::Range(keys) => {
                let KeyRange { low, high } = self.range(codec, target, &keys)?;
                KeysSeen::Range(low, high)
            }
            KnownKeys::Row(row) => {
                let OperationKind::Insert { columns } = &operation.kind else { return Ok(None) };
                let definition = &self.set.definition;
                let value = |at: usize| {
                    let name = &*definition.columns[at].name;
                    match row.iter().find(|(column, _)| **column == *name) {
                        Some((_, value)) => Some(value.clone()),
                        None if columns.iter().any(|(column, _)| **column == *name) => None,
                        None => definition.value_if_unknown(at),
                    }
                };
                let key: Option<Vec<Value>> = definition.key.iter().map(|part| value(part.column.index())).collect();
                let Some(key) = key else { return Ok(None) };
                one(key)?
            }
        };
        Ok(Some((&table.name, keys)))
    }

    /// Whether it is a hash index that finds at most one row.
    fn is_single(&self, target: Target) -> bool {
        let Target::Index(at) = target else { return false };
        self.is_hash(at) && self.set.indexes[at].is_single()
    }

    fn is_hash(&self, at: usize) -> bool {
        self.set.definition.indexes[at].organization == Organization::Hash
    }
}

fn unfit(error: ValueError) -> EvaluationError {
    EvaluationError::Type(error.to_string())
}

/// The tables of a procedure as the interpreter sees them.
pub struct InterpretedTables(Vec<Interpreted>);

impl InterpretedTables {
    /// Those that exist.
    pub fn of(procedure: &Procedure, engine: &Engine) -> InterpretedTables {
        InterpretedTables::find(procedure, engine.inner())
    }

    fn find(procedure: &Procedure, database: &Inner) -> InterpretedTables {
        let found = procedure.tables.iter().filter_map(|used| database.find(&used.table));
        let table = |set: Arc<TableSet>| {
            let columns = set.definition.columns.iter().map(|column| Arc::from(&*column.name)).collect();
            Interpreted { name: Arc::from(&*set.definition.name), columns, set }
        };
        InterpretedTables(found.map(table).collect())
    }

    fn table(&self, name: &str) -> Result<&Interpreted, EvaluationError> {
        let found = self.0.iter().find(|table| &*table.name == name);
        found.ok_or_else(|| EvaluationError::Type(format!("there is no table {name:?}")))
    }

    /// Interprets a procedure in an open transaction. `columns`: by operation, those that it may read and change.
    ///
    /// # Errors
    /// The procedure's own abort, with an [`Aborted`]; a missing or duplicate row, overflow; a conflict.
    pub fn interpret(
        &self,
        tx: &TxCore,
        procedure: &Procedure,
        columns: &[ColumnUse],
        arguments: &Value,
    ) -> Result<Value, Abort> {
        let value = interpret(procedure, arguments, &Reference { tx, tables: self, columns });
        value.map_err(|stopped| stopped.into_abort(tx))
    }

    /// Calls `visit` for each access whose keys the arguments determine: with the operation, the name of its table or
    /// index, and its keys. Returns whether these are all that the plan gives.
    pub fn footprint(
        &self,
        procedure: &Procedure,
        plan: &Plan,
        arguments: &Value,
        visit: &mut dyn FnMut(&Operation, &str, KeysSeen),
    ) -> bool {
        let touches = plan.footprint().touches;
        footprint(procedure, arguments, &mut |operation, known| {
            let name = procedure.tables.get(operation.table).map_or("", |used| &*used.table);
            let table = self.table(name)?;
            let keys = known.map(|known| table.keys(operation, known)).transpose()?.flatten();
            match keys {
                Some((name, keys)) => visit(operation, name, keys),
                None if touches.get(operation.id.index()).is_some_and(|touch| !touch.known) => {}
                None => return Err(EvaluationError::Type("a key is not known before its time".to_owned())),
            }
            Ok(())
        })
    }
}

/// A transaction as the interpreter sees it.
pub struct Reference<'t> {
    tx: &'t TxCore,
    tables: &'t InterpretedTables,
    /// By operation, the columns that it may read and change; without an entry, all.
    columns: &'t [ColumnUse],
}

impl Reference<'_> {
    fn table(&self, name: &str) -> Result<&Interpreted, Stopped> {
        Ok(self.tables.table(name)?)
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
                unwatched(|| value.write(&columns[at], &places[at], writer)).map_err(|error| match error {
                    ValueError::OutOfMemory(_) => Stopped::Abort(self.tx.out_of_memory()),
                    error => unfit(error).into(),
                })?;
            }
            Ok(())
        })?;
        updated.map_or(Ok(false), |result: Result<(), Stopped>| result.map(|()| true))
    }

    fn insert(&self, _: &Operation, table: &str, columns: Changes) -> Result<(), Stopped> {
        let table = self.table(table)?;
        let mut values = vec![None; table.set.definition.columns.len()];
        for (name, value) in columns {
            let at = table.column(&name, &value)?.index();
            values[at] = Some(value);
        }
        let missing =
            |at: usize| format!("the row has no value for column {:?}", &*table.set.definition.columns[at].name);
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
        let (wanted, direction) =
            (self.columns(operation).used(), if reverse { Direction::Backward } else { Direction::Forward });
        let scan = match (target, keys) {
            (Target::Index(at), Keys::Prefix(key)) if table.is_hash(at) => {
                if reverse {
                    return Err(Abort::stopped(Reason::Unordered).into());
                }
                table.check(target, &key)?;
                RawScan::of_values(self.tx, &table.set, at, &key, direction).map_err(unfit)?
            }
            (_, Keys::All) => RawScan::of_table(self.tx, &table.set),
            (_, keys) => {
                let KeyRange { low, high } = table.range(codec, target, &keys)?;
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
        let tables = InterpretedTables::find(declaration, self.tx.inner());
        let mut result = self.run_dyn(mode, Origin::Procedure, &mut |tx| {
            let value = tables.interpret(tx, declaration, columns, arguments)?;
            convert(&value).map_err(|error| Stopped::Evaluation(error).into_abort(tx))
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
        let tables = InterpretedTables::find(declaration, self.tx.inner());
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
