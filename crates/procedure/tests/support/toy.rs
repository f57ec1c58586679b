//! A database for tests: maps in memory, no transactions. Keys are integers; a log tells what was done. A
//! scan sees its table as it is when it begins. The body of a loop over it may change rows ahead, and the scan may see
//! these changes or not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use seriatim_procedure::interpret::{Changes, Keys, Operate};
use seriatim_procedure::ir::Operation;
use seriatim_procedure::{EvaluationError, Value};

type Key = Vec<i128>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToyError {
    Evaluation(EvaluationError),
    Missing(String),
    Duplicate(String),
    User(Value),
}

impl From<EvaluationError> for ToyError {
    fn from(error: EvaluationError) -> ToyError {
        ToyError::Evaluation(error)
    }
}

impl ToyError {
    /// The test's own mistake, or that of an analysis: a variable without a value.
    pub(crate) fn is_mistake(&self) -> bool {
        matches!(self, ToyError::Evaluation(EvaluationError::Type(_)))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    columns: Vec<&'static str>,
    /// So many first columns are the key.
    key: usize,
    /// This column is not negative, though its numbers have no type.
    unsigned: &'static str,
    rows: BTreeMap<Key, Value>,
}

pub(crate) type Tables = BTreeMap<&'static str, Table>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Toy {
    pub(crate) tables: RefCell<Tables>,
    /// The actions: verb, table, key.
    pub(crate) log: RefCell<Vec<String>>,
}

fn problem(text: String) -> ToyError {
    ToyError::Evaluation(EvaluationError::Type(text))
}

fn integers(key: &[Value]) -> Result<Key, ToyError> {
    let integer = |value: &Value| match value {
        Value::Integer(number, _) => Ok(*number),
        other => Err(problem(format!("{other} is no key"))),
    };
    key.iter().map(integer).collect()
}

impl Table {
    fn check(&self, values: &Changes) -> Result<(), ToyError> {
        let is_wrong = |(column, value): &(_, Value)| {
            let column: &std::sync::Arc<str> = column;
            **column == *self.unsigned && matches!(value, Value::Integer(..=-1, _))
        };
        if values.iter().any(is_wrong) { Err(EvaluationError::Overflow.into()) } else { Ok(()) }
    }
}

impl Toy {
    pub(crate) fn with(self, table: &'static str, key: usize, columns: &[&'static str]) -> Toy {
        let empty = Table { columns: columns.to_vec(), key, unsigned: "", rows: BTreeMap::new() };
        self.tables.borrow_mut().insert(table, empty);
        self
    }

    /// Keeps a column of the table from being negative.
    pub(crate) fn unsigned(self, table: &str, column: &'static str) -> Toy {
        self.tables.borrow_mut().get_mut(table).expect("a table").unsigned = column;
        self
    }

    /// Adds a row with these values.
    pub(crate) fn row(self, table: &'static str, values: Vec<Value>) -> Toy {
        let columns = self.tables.borrow()[table].columns.clone();
        let columns = columns.into_iter().map(Into::into).zip(values).collect();
        self.add(table, columns).unwrap();
        self
    }

    /// The rows of a table, in key order.
    pub(crate) fn rows(&self, table: &str) -> Vec<Value> {
        self.tables.borrow()[table].rows.values().cloned().collect()
    }

    fn add(&self, name: &str, mut columns: Changes) -> Result<(), ToyError> {
        let mut tables = self.tables.borrow_mut();
        let table = tables.get_mut(name).ok_or_else(|| problem(format!("no table {name}")))?;
        let place = |column: &str| table.columns.iter().position(|known| *known == column);
        columns.sort_by_key(|(column, _)| place(column));
        if !columns.iter().map(|(column, _)| &**column).eq(table.columns.iter().copied()) {
            return Err(problem(format!("the columns of {name} are {:?}", table.columns)));
        }
        let key: Vec<Value> = columns.iter().take(table.key).map(|(_, value)| value.clone()).collect();
        let key = integers(&key)?;
        if table.rows.contains_key(&key) {
            return Err(ToyError::Duplicate(format!("{name} {key:?}")));
        }
        table.check(&columns)?;
        table.rows.insert(key, Value::Record { name: name.into(), fields: columns });
        Ok(())
    }

    fn note(&self, verb: &str, table: &str, key: &[i128]) {
        self.log.borrow_mut().push(format!("{verb} {table} {key:?}"));
    }

    fn find(&self, name: &str, key: &Key) -> Result<Option<Value>, ToyError> {
        let tables = self.tables.borrow();
        let table = tables.get(name).ok_or_else(|| problem(format!("no table {name}")))?;
        if key.len() != table.key {
            return Err(problem(format!("a key of {name} has {} columns", table.key)));
        }
        Ok(table.rows.get(key).cloned())
    }
}

impl Operate for Toy {
    type Error = ToyError;

    fn get(&self, operation: &Operation, table: &str, key: Vec<Value>) -> Result<Option<Value>, ToyError> {
        if let Some(index) = &operation.index {
            // An index is called by the one column it is on.
            return Ok(self.rows(table).into_iter().find(|row| row.field(index) == key.first()));
        }
        let key = integers(&key)?;
        self.note("get", table, &key);
        self.find(table, &key)
    }

    fn update(
        &self,
        _: &Operation,
        table: &str,
        key: Vec<Value>,
        body: &mut dyn FnMut(Value) -> Result<Changes, ToyError>,
    ) -> Result<bool, ToyError> {
        let key = integers(&key)?;
        self.note("update", table, &key);
        let Some(row) = self.find(table, &key)? else { return Ok(false) };
        let changes = body(row)?;
        let mut tables = self.tables.borrow_mut();
        let table = tables.get_mut(table).expect("a row was found in it");
        table.check(&changes)?;
        if let Some(Value::Record { fields, .. }) = table.rows.get_mut(&key) {
            for (column, value) in changes {
                let at = fields.iter().position(|(name, _)| *name == column);
                fields[at.unwrap()].1 = value;
            }
        }
        Ok(true)
    }

    fn insert(&self, _: &Operation, table: &str, columns: Changes) -> Result<(), ToyError> {
        self.add(table, columns)
    }

    fn delete(&self, _: &Operation, table: &str, key: Vec<Value>) -> Result<bool, ToyError> {
        let key = integers(&key)?;
        self.note("delete", table, &key);
        self.find(table, &key)?;
        Ok(self.tables.borrow_mut().get_mut(table).is_some_and(|table| table.rows.remove(&key).is_some()))
    }

    fn scan(
        &self,
        _: &Operation,
        table: &str,
        keys: Keys,
        reverse: bool,
        visit: &mut dyn FnMut(Value) -> Result<ControlFlow<()>, ToyError>,
    ) -> Result<(), ToyError> {
        let covered: Box<dyn Fn(&Key) -> bool> = match &keys {
            Keys::All => Box::new(|_| true),
            Keys::Prefix(prefix) => {
                let prefix = integers(prefix)?;
                Box::new(move |key| key.starts_with(&prefix))
            }
            Keys::Between { low, high, inclusive } => {
                let low = low.as_deref().map(integers).transpose()?;
                let high = high.as_deref().map(integers).transpose()?;
                let inclusive = *inclusive;
                Box::new(move |key| {
                    low.as_ref().is_none_or(|low| low <= key)
                        && high.as_ref().is_none_or(|high| key < high || inclusive && key == high)
                })
            }
        };
        let rows = self.tables.borrow().get(table).ok_or_else(|| problem(format!("no table {table}")))?.rows.clone();
        let mut found: Vec<(Key, Value)> = rows.into_iter().filter(|(key, _)| covered(key)).collect();
        if reverse {
            found.reverse();
        }
        for (key, row) in found {
            self.note("visit", table, &key);
            if visit(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn missing(&self, _: &Operation, table: &str, key: &[Value]) -> ToyError {
        ToyError::Missing(format!("{table} {}", Value::Tuple(key.to_vec())))
    }

    fn abort(&self, error: Value) -> ToyError {
        ToyError::User(error)
    }
}
