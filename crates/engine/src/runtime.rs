//! Tables declared at run time. Their values have types that are checked at run time.

use std::borrow::{Borrow, Cow};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use seriatim_base::IndexId;
use seriatim_catalog::expression::{Columns, Datum};
use seriatim_catalog::{
    ColumnId, ColumnSet, ColumnUse, IdentityKind, KeyBuf, RowRef, RowWriter, TableDef, Value, ValueError,
};
use seriatim_store::Direction;
use seriatim_txn::{OnExists, RowPtr};

use crate::error::Abort;
use crate::operations::Operations as _;
use crate::scan::{RawScan, Target};
use crate::table::TableSet;
use crate::tx::{NotEncoded, TxCore, insert};

/// A table declared at run time.
#[derive(Clone)]
pub struct DynHandle {
    pub(crate) set: Arc<TableSet>,
}

impl DynHandle {
    pub(crate) fn new(set: Arc<TableSet>) -> DynHandle {
        DynHandle { set }
    }

    /// The declaration of the table.
    pub fn definition(&self) -> &TableDef {
        &self.set.definition
    }

    /// Its number among the tables. It stays when the table changes and when the database is opened again, and no other
    /// table has it meanwhile.
    pub fn number(&self) -> u64 {
        self.set.position
    }
}

impl std::fmt::Debug for DynHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DynHandle({})", self.set.definition.name)
    }
}

/// A row of a table declared at run time.
#[derive(Clone, Copy)]
pub struct DynRow<'t> {
    set: &'t TableSet,
    row: RowRef<'t>,
}

impl<'t> DynRow<'t> {
    pub(crate) fn new(set: &'t TableSet, row: RowPtr) -> DynRow<'t> {
        // SAFETY: a row of this table, readable for `'t`. The caller ties `'t` to the borrow of the `TxCore` or
        // to one step of a scan.
        DynRow { set, row: unsafe { RowRef::from_raw(row.as_ptr()) } }
    }

    /// The value of the column at this position.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn value(&self, column: usize) -> Value {
        Value::read(&self.set.definition.columns[column], &self.set.layout.places[column], self.row)
    }

    /// The value of the column of this name, if there is one.
    pub fn get(&self, column: &str) -> Option<Value> {
        self.set.definition.column(column).map(|at| self.value(at.index()))
    }

    /// All values, in order of declaration.
    pub fn values(&self) -> Vec<Value> {
        (0..self.set.definition.columns.len()).map(|at| self.value(at)).collect()
    }
}

/// The values of its columns, for expressions of the catalogue.
impl<'t> Columns<'t> for DynRow<'t> {
    fn get(&self, column: usize) -> Datum<'t> {
        let columns = self.set.definition.columns.get(column).zip(self.set.layout.places.get(column));
        columns.map_or(Datum::Null, |(column, place)| Datum::read(column.ty, place, self.row))
    }
}

impl std::fmt::Debug for DynRow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// Rows of a scan of a table declared at run time.
#[must_use = "a scan reads nothing until it is iterated"]
pub struct DynScan<'t> {
    raw: RawScan<'t>,
}

impl DynScan<'_> {
    /// The number of remaining rows.
    ///
    /// # Errors
    /// A conflict.
    pub fn try_count(self) -> Result<usize, Abort> {
        self.raw.count()
    }

    /// Calls `visit` for each remaining row until it breaks; returns the value of the break. The row is
    /// readable only during that call.
    ///
    /// # Errors
    /// A conflict; errors of `visit`.
    pub fn try_for_each_row<B>(
        self,
        mut visit: impl FnMut(DynRow<'_>) -> Result<ControlFlow<B>, Abort>,
    ) -> Result<ControlFlow<B>, Abort> {
        let set = self.raw.set();
        self.raw.try_for_each(|row| visit(DynRow::new(set, row)))
    }
}

impl<'t> Iterator for DynScan<'t> {
    type Item = Result<DynRow<'t>, Abort>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.raw.next()?.map(|row| DynRow::new(self.raw.set(), row)))
    }
}

impl TxCore {
    /// The table, if operations on it are admitted. Then its parts fit together until the transaction ends.
    fn admitted<'h>(&self, table: &'h DynHandle) -> Result<&'h TableSet, Abort> {
        let set = self.own(&table.set)?;
        let _call = self.call()?;
        self.admits(set)?;
        Ok(set)
    }

    /// The table and the values of a row to be inserted, with the number of an identity column that has none. Given
    /// numbers are accepted where rows may have them, and others if that is overridden.
    #[inline]
    fn to_insert<'h, 'v>(
        &self,
        table: &'h DynHandle,
        values: &'v [Value],
        overrides: bool,
    ) -> Result<(&'h TableSet, Cow<'v, [Value]>), Abort> {
        let set = self.own(&table.set)?;
        let _call = self.call()?;
        if set.takes_values() {
            return Ok((set, Cow::Borrowed(values)));
        }
        self.admits(set)?;
        self.numbered(set, values, overrides).map(|values| (set, values))
    }

    #[cold]
    fn numbered<'v>(&self, set: &TableSet, values: &'v [Value], overrides: bool) -> Result<Cow<'v, [Value]>, Abort> {
        let Some(at) = set.definition.identity_column().map(|column| column.index()) else {
            return Ok(Cow::Borrowed(values));
        };
        match values.get(at) {
            Some(Value::Option(None)) => {
                let mut values = values.to_vec();
                values[at] = Value::Integer(self.next_identity(set)?.into(), None);
                Ok(Cow::Owned(values))
            }
            Some(_) if !overrides && set.definition.identity_kind() != Some(IdentityKind::ByDefault) => Err(self
                .abort(format!(
                    "column {:?} of table {:?} is given by its sequence: leave it NULL, or call \
                     `insert_overriding_dyn`",
                    set.definition.columns[at].name, set.definition.name
                ))),
            _ => Ok(Cow::Borrowed(values)),
        }
    }

    fn unfit(&self, error: ValueError) -> Abort {
        self.abort(error)
    }

    fn key_of(&self, set: &TableSet, key: &[Value]) -> Result<KeyBuf, Abort> {
        set.primary.codec.encode_values(key).map_err(|error| self.unfit(error))
    }

    /// The row with these key values, if there is one.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn get_dyn<'t>(&'t self, table: &'t DynHandle, key: &[Value]) -> Result<Option<DynRow<'t>>, Abort> {
        let set = self.admitted(table)?;
        let key = self.key_of(set, key)?;
        let _call = self.call()?;
        let row = self.read_row(set, key.as_key(), ColumnSet::ALL)?;
        row.map(|row| Ok(DynRow::new(set, self.lend(set, row)?))).transpose()
    }

    /// Whether there is a row with these key values.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn exists_dyn(&self, table: &DynHandle, key: &[Value]) -> Result<bool, Abort> {
        let set = self.admitted(table)?;
        self.exists_at(set, self.key_of(set, key)?.as_key())
    }

    /// The rows with these keys, in this order, fetched together.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn get_many_dyn<'t, K: AsRef<[Value]>>(
        &'t self,
        table: &'t DynHandle,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<DynRow<'t>>>, Abort> {
        let set = self.admitted(table)?;
        let keys = keys.into_iter().map(|key| self.key_of(set, key.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let get = |key: &KeyBuf| Ok(self.get_at(set, key.as_key(), ColumnSet::ALL)?.map(|row| DynRow::new(set, row)));
        self.in_waves(set, &keys, |key, prefetch| prefetch(key.as_key()), get)
    }

    /// The rows whose keys begin with these values, in key order; without values, all rows.
    ///
    /// # Errors
    /// Values that are not of the key's types; a table that is not ordered. The scan itself reports conflicts.
    pub fn scan_dyn<'t>(&'t self, table: &'t DynHandle, prefix: &[Value]) -> Result<DynScan<'t>, Abort> {
        self.scan_towards_dyn(table, prefix, Direction::Forward)
    }

    /// As [`TxCore::scan_dyn`], in this direction.
    ///
    /// # Errors
    /// As [`TxCore::scan_dyn`].
    pub fn scan_towards_dyn<'t>(
        &'t self,
        table: &'t DynHandle,
        prefix: &[Value],
        direction: Direction,
    ) -> Result<DynScan<'t>, Abort> {
        let set = self.admitted(table)?;
        let range = set.primary.codec.range_of_values(prefix).map_err(|error| self.unfit(error))?;
        let raw = RawScan::new(self, set, Target::Rows, (&range.low, &range.high), direction).begun()?;
        Ok(DynScan { raw })
    }

    /// The rows between two bounds on the first columns of their keys, or of the keys of the index of this name. The
    /// bounds are in the order of the keys: of a descending column, larger values come first. An included bound takes
    /// in every key that begins with it.
    ///
    /// # Errors
    /// No such index; values that are not of its types; a table or an index that is not ordered. The scan itself
    /// reports conflicts.
    pub fn range_dyn<'t>(
        &'t self,
        table: &'t DynHandle,
        index: Option<&str>,
        (low, high): (Bound<&[Value]>, Bound<&[Value]>),
        direction: Direction,
    ) -> Result<DynScan<'t>, Abort> {
        let set = self.admitted(table)?;
        let target = index.map(|index| self.index_of(set, index)).transpose()?;
        let (target, codec) = match target {
            None => (Target::Rows, &set.primary.codec),
            Some(at) => (Target::Index(at), &set.indexes[at].table.codec),
        };
        let range = codec.range_of_bounds(low, high).map_err(|error| self.unfit(error))?;
        let raw = RawScan::new(self, set, target, (&range.low, &range.high), direction).begun()?;
        Ok(DynScan { raw })
    }

    fn index_of(&self, set: &TableSet, index: &str) -> Result<usize, Abort> {
        let at = set.definition.index(index).map(IndexId::index);
        at.ok_or_else(|| self.abort(format!("table {:?} has no index {index:?}", set.definition.name)))
    }

    /// All rows: of an ordered table in key order, of a hash table in no order.
    ///
    /// # Errors
    /// A handle of another database. The scan itself reports conflicts.
    pub fn scan_all_dyn<'t>(&'t self, table: &'t DynHandle) -> Result<DynScan<'t>, Abort> {
        Ok(DynScan { raw: RawScan::of_table(self, &table.set).begun()? })
    }

    /// The rows that the index of this name finds for these values, in index order.
    ///
    /// # Errors
    /// No such index; values that are not of its types; for a hash index, fewer values than it has columns. The
    /// scan itself reports conflicts.
    pub fn find_dyn<'t>(&'t self, table: &'t DynHandle, index: &str, prefix: &[Value]) -> Result<DynScan<'t>, Abort> {
        self.find_towards_dyn(table, index, prefix, Direction::Forward)
    }

    /// As [`TxCore::find_dyn`], in this direction.
    ///
    /// # Errors
    /// As [`TxCore::find_dyn`].
    pub fn find_towards_dyn<'t>(
        &'t self,
        table: &'t DynHandle,
        index: &str,
        prefix: &[Value],
        direction: Direction,
    ) -> Result<DynScan<'t>, Abort> {
        let set = self.admitted(table)?;
        let at = self.index_of(set, index)?;
        let raw = RawScan::of_values(self, set, at, prefix, direction).map_err(|error| self.unfit(error))?;
        Ok(DynScan { raw: raw.begun()? })
    }
}

impl TxCore {
    /// Inserts a row of these values, one for each column; `false` if its key exists and must not be replaced.
    pub(crate) fn write_values(&self, set: &TableSet, values: &[Value], exists: OnExists) -> Result<bool, Abort> {
        let (columns, places) = (&set.definition.columns, &set.layout.places);
        let key = self.key_in(set, values)?;
        let mut unfit = None;
        let encode = |writer: &mut RowWriter<'_>| {
            for ((column, place), value) in columns.iter().zip(places).zip(values) {
                match value.write(column, place, writer) {
                    Ok(()) => {}
                    Err(ValueError::OutOfMemory(error)) => return Err(NotEncoded::OutOfMemory(error)),
                    Err(error) => {
                        unfit = Some(error);
                        return Err(NotEncoded::Unfit);
                    }
                }
            }
            Ok(())
        };
        let inserted = insert(self, set, key.as_key(), encode, exists, true);
        match unfit {
            None => inserted,
            Some(error) => Err(self.unfit(error)),
        }
    }

    /// The key in a row's values.
    pub(crate) fn key_in(&self, set: &TableSet, values: &[Value]) -> Result<KeyBuf, Abort> {
        self.key_of(set, &self.key_values(set, values)?)
    }

    /// The values of the key's columns among those of a row.
    fn key_values(&self, set: &TableSet, values: &[Value]) -> Result<Vec<Value>, Abort> {
        let (given, wanted) = (values.len(), set.definition.columns.len());
        if given != wanted {
            return Err(self.abort(ValueError::count(given, wanted)));
        }
        Ok(set.definition.key.iter().map(|part| values[part.column.index()].clone()).collect())
    }

    /// Inserts a row of these values, one for each column.
    pub(crate) fn insert_values(&self, set: &TableSet, values: &[Value]) -> Result<(), Abort> {
        if self.write_values(set, values, OnExists::Refuse)? {
            return Ok(());
        }
        Err(self.duplicate(&set.primary, self.key_in(set, values)?.as_key()))
    }

    /// Inserts a row of these values, one for each column.
    ///
    /// # Errors
    /// As [`Operations::insert_at`](crate::Operations::insert_at); or values that do not fit.
    pub fn insert_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        let (set, values) = self.to_insert(table, values, false)?;
        self.insert_values(set, &values)
    }

    /// As [`TxCore::insert_dyn`], also with the value of a column that its sequence gives to all rows.
    ///
    /// # Errors
    /// As [`TxCore::insert_dyn`].
    pub fn insert_overriding_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        let (set, values) = self.to_insert(table, values, true)?;
        self.insert_values(set, &values)
    }

    /// Inserts a row of these values with a number in the identity column, which is returned. The value that is given
    /// for it does not count.
    ///
    /// # Errors
    /// As [`TxCore::insert_dyn`]; the table has no identity column; its sequence is exhausted.
    pub fn insert_new_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<i64, Abort> {
        let set = self.admitted(table)?;
        let number = self.next_identity(set)?;
        let mut values = values.to_vec();
        let at = set.definition.identity_column().map(|column| column.index());
        if let Some(value) = at.and_then(|at| values.get_mut(at)) {
            *value = Value::Integer(number.into(), None);
        }
        self.insert_values(set, &values).map(|()| number)
    }

    /// Inserts a row of these values or replaces the one with its key.
    ///
    /// # Errors
    /// As [`TxCore::insert_dyn`].
    pub fn put_dyn(&self, table: &DynHandle, values: &[Value]) -> Result<(), Abort> {
        let (set, values) = self.to_insert(table, values, false)?;
        self.write_values(set, &values, OnExists::Replace).map(|_| ())
    }

    /// Sets columns of the row with these key values. Returns whether there is such a row.
    ///
    /// # Errors
    /// A conflict; a column that does not exist or may not change; values that do not fit.
    pub fn update_dyn(&self, table: &DynHandle, key: &[Value], changes: &[(&str, Value)]) -> Result<bool, Abort> {
        let set = self.admitted(table)?;
        let column = |(name, _): &(&str, Value)| {
            let missing = || self.abort(format!("table {:?} has no column {name:?}", set.definition.name));
            set.definition.column(name).ok_or_else(missing)
        };
        let columns = changes.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        if let Some(at) = set.definition.identity_column().filter(|at| columns.contains(at))
            && set.definition.identity_kind() == Some(IdentityKind::Always)
        {
            let (column, table) = (&set.definition.columns[at.index()].name, &set.definition.name);
            return Err(
                self.abort(format!("column {column:?} of table {table:?} is given by its sequence: leave it as it is"))
            );
        }
        self.update_columns(set, key, (ColumnSet::EMPTY, &columns), |_| Ok(changes.iter().map(|(_, value)| value)))
    }

    /// Sets columns of the row with these key values to those that `change` computes from the row. `uses` has the
    /// columns that it looks at, and those that are set, in the order of their values. Returns whether there is such a
    /// row. It also sets an identity column whose values only its sequence gives.
    ///
    /// # Errors
    /// As [`TxCore::update_dyn`]; those of `change`; another number of values.
    pub fn update_by_dyn(
        &self,
        table: &DynHandle,
        key: &[Value],
        uses: (ColumnSet, &[ColumnId]),
        change: impl FnOnce(DynRow<'_>) -> Result<Vec<Value>, Abort>,
    ) -> Result<bool, Abort> {
        let set = self.admitted(table)?;
        self.update_columns(set, key, uses, |row| change(row).map(Vec::into_iter))
    }

    fn update_columns<V: Borrow<Value>, I: ExactSizeIterator<Item = V>>(
        &self,
        set: &TableSet,
        key: &[Value],
        (reads, columns): (ColumnSet, &[ColumnId]),
        change: impl FnOnce(DynRow<'_>) -> Result<I, Abort>,
    ) -> Result<bool, Abort> {
        if let Some(fixed) = columns.iter().find(|column| !set.definition.is_updatable(**column)) {
            let name = set.definition.columns.get(fixed.index()).map_or("that is not there", |column| &column.name);
            return Err(self.abort(format!("column {name:?} is part of the key or immutable")));
        }
        let key = self.key_of(set, key)?;
        let uses = ColumnUse::reading(reads).union(columns.iter().copied().collect::<ColumnSet>().into());
        // A body may ignore the error of one value: then no value of this update may remain.
        self.whole(|| {
            let updated = self.update_at(set, key.as_key(), uses, |mut writer| {
                let (defs, places) = (&set.definition.columns, &set.layout.places);
                let values = change(DynRow { set, row: writer.as_row() });
                let result = values.map(|values| {
                    if values.len() != columns.len() {
                        return Err(ValueError::count(values.len(), columns.len()));
                    }
                    let mut pairs = columns.iter().map(|column| column.index()).zip(values);
                    pairs.try_for_each(|(at, value)| value.borrow().write(&defs[at], &places[at], &mut writer))
                });
                (result, writer.dirty())
            })?;
            match updated {
                None => Ok(false),
                Some(Ok(Ok(()))) => Ok(true),
                Some(Ok(Err(ValueError::OutOfMemory(_)))) => Err(self.out_of_memory()),
                Some(Ok(Err(error))) => Err(self.unfit(error)),
                Some(Err(abort)) => Err(abort),
            }
        })
    }

    /// An abort for a missing row with these key values, of the types of the table's key.
    ///
    /// # Errors
    /// Values that are not of the key's types; a handle of another database.
    pub fn missing_dyn(&self, table: &DynHandle, key: &[Value]) -> Result<Abort, Abort> {
        let set = self.admitted(table)?;
        Ok(self.missing_at(&set.primary, self.key_of(set, key)?.as_key()))
    }

    /// Deletes the row with these key values. Returns whether there was one.
    ///
    /// # Errors
    /// A conflict, or values that are not of the key's types.
    pub fn delete_dyn(&self, table: &DynHandle, key: &[Value]) -> Result<bool, Abort> {
        let set = self.admitted(table)?;
        let key = self.key_of(set, key)?;
        self.delete_at(set, key.as_key())
    }

    /// Deletes the rows whose keys begin with these values. Returns their number.
    ///
    /// # Errors
    /// A conflict; values that are not of the key's types; a table that is not ordered.
    pub fn delete_range_dyn(&self, table: &DynHandle, prefix: &[Value]) -> Result<usize, Abort> {
        self.delete_scanned(self.scan_dyn(table, prefix)?.raw)
    }

    /// Inserts a row of these values. If its key exists, sets the columns that `changes` returns for that row instead.
    /// Returns whether the row was inserted.
    ///
    /// # Errors
    /// As [`TxCore::insert_dyn`] and [`TxCore::update_dyn`]; those of `changes`.
    pub fn upsert_dyn<'c>(
        &self,
        table: &DynHandle,
        values: &[Value],
        changes: impl FnOnce(DynRow<'_>) -> Result<Vec<(&'c str, Value)>, Abort>,
    ) -> Result<bool, Abort> {
        let (set, values) = self.to_insert(table, values, false)?;
        let key = self.key_values(set, &values)?;
        match self.get_dyn(table, &key)? {
            None => self.insert_values(set, &values).map(|()| true),
            Some(row) => self.update_dyn(table, &key, &changes(row)?).map(|_| false),
        }
    }
}
