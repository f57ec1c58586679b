//! The row with a primary key, of which a statement says all columns: it is found without the steps of joins and scans.

use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::Bound;
use seriatim::{Abort, DynHandle, Value};

use crate::from::From;
use crate::rows::{Access, Joined, Origin, SourceRow, key_values};
use crate::run::Env;

/// How the one row is found.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    table: DynHandle,
    key: Vec<Bound>,
    types: Vec<ColumnType>,
    places: Vec<(usize, usize)>,
    /// What the row must fulfil beside its key.
    conditions: Vec<Bound>,
}

impl Point {
    /// For a source that is one table. `None` if its rows are found in another way.
    pub(crate) fn of(from: &From) -> Option<Point> {
        let ([level], [source]) = (&*from.levels, &*from.sources.0) else { return None };
        let (Access::Key { values, .. }, Origin::Table(table)) = (&level.access, &source.origin) else { return None };
        let definition = table.definition();
        let types = definition.key.iter().map(|part| definition.columns[part.column.index()].ty).collect();
        let (key, places, conditions) = (values.clone(), from.places.clone(), level.conditions().cloned().collect());
        Some(Point { table: table.clone(), key, types, places, conditions })
    }

    /// Whether the row needs to have its key only.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.conditions.is_empty()
    }

    pub(crate) fn table(&self) -> &DynHandle {
        &self.table
    }

    /// The values of the key; `None` if no row has them.
    ///
    /// # Errors
    /// An expression without a value.
    pub(crate) fn key(&self, env: Env<'_>) -> Result<Option<Vec<Value>>, Abort> {
        key_values(&self.key, &self.types, &[], Joined { rows: &[], places: &[], env })
    }

    /// Calls `visit` with the row, if it is there and fulfils all conditions.
    ///
    /// # Errors
    /// A conflict; an expression without a value; those of `visit`.
    pub(crate) fn with_row<R>(
        &self,
        env: Env<'_>,
        visit: impl FnOnce(Joined<'_, '_>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort> {
        let Some(key) = self.key(env)? else { return Ok(None) };
        let Some(row) = env.run.tx.get_dyn(&self.table, &key)? else { return Ok(None) };
        let joined = Joined { rows: &[SourceRow::Stored(row)], places: &self.places, env };
        if joined.fulfils(&self.conditions)? { visit(joined).map(Some) } else { Ok(None) }
    }
}
