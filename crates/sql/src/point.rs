//! The row with a primary key, of which a statement says all columns: it is found without the steps of joins and scans.

use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::{Bound, Datum};
use seriatim::{Abort, DynHandle, DynRow, ReadTx, Value};

use crate::error::SqlError;
use crate::from::From;
use crate::rows::{Access, Joined, Origin, key_values};

/// How the one row is found.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    table: DynHandle,
    key: Vec<Bound>,
    types: Vec<ColumnType>,
    /// What the row must fulfil beside its key.
    conditions: Vec<Bound>,
}

impl Point {
    /// For a source that is one table. `None` if its rows are found in another way.
    pub(crate) fn of(from: &From) -> Option<Point> {
        let ([level], [source]) = (&*from.levels, &*from.sources.0) else { return None };
        let (Access::Key(key), Origin::Table(table)) = (&level.access, &source.origin) else { return None };
        let definition = table.definition();
        let types = definition.key.iter().map(|part| definition.columns[part.column.index()].ty).collect();
        let conditions = level.conditions().cloned().collect();
        Some(Point { table: table.clone(), key: key.clone(), types, conditions })
    }

    /// Whether the row needs to have its key only.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.conditions.is_empty()
    }

    /// The values of the key; `None` if no row has them.
    ///
    /// # Errors
    /// An expression without a value.
    pub(crate) fn key(&self, tx: &ReadTx, parameters: &[Datum<'_>]) -> Result<Option<Vec<Value>>, Abort> {
        let none = Joined { rows: &[], places: &[] };
        key_values(&self.key, &self.types, none, parameters).map_err(|error| tx.abort(error))
    }

    /// The row, if it is there and fulfils all conditions.
    ///
    /// # Errors
    /// A conflict; an expression without a value.
    pub(crate) fn row<'t>(&'t self, tx: &'t ReadTx, parameters: &[Datum<'_>]) -> Result<Option<DynRow<'t>>, Abort> {
        let Some(key) = self.key(tx, parameters)? else { return Ok(None) };
        let Some(row) = tx.get_dyn(&self.table, &key)? else { return Ok(None) };
        for condition in &self.conditions {
            let holds = condition.evaluate(row, parameters).map_err(|error| tx.abort(SqlError::from(error)))?;
            if !matches!(holds, Datum::Bool(true)) {
                return Ok(None);
            }
        }
        Ok(Some(row))
    }
}
