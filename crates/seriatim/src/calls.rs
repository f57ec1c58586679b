//! Calls that say in one what several operations of [`tx`](crate::tx) do: rows that exist, come first or last, are
//! many, or may be there already.
//!
//! Invariant: they conflict as the operations that they stand for. A row or range that was found absent, empty or so
//! many is so at the transaction's place in the serial order.

use std::ops::RangeBounds;
use std::panic::Location;

use seriatim_catalog::{Addend, ColumnSet, OrderedTable, Table, TableColumn, TableKey, kind};
use seriatim_engine::RawScan;

use crate::procedure::support;
use crate::tx::addition;
use crate::{Abort, Handle, IndexHandle, MissingRow, ReadTx, Scan, Tx};

/// Reading by calls that stand for several operations.
impl ReadTx {
    /// Returns whether there is a row at `key`. It reads no column, so a protocol may ignore concurrent updates.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| tx.insert(&stock, &Stock { id: 7, quantity: 2 }))?;
    /// let exist = session.transact(|tx| Ok((tx.exists(&stock, &7)?, tx.exists(&stock, &8)?)))?;
    /// assert_eq!(*exist, (true, false));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    pub fn exists<T: Table>(&self, table: &Handle<T>, key: &T::Key) -> Result<bool, Abort> {
        key.encode(|key| self.core.exists_at(&table.set, key))
    }

    /// Returns whether a unique index finds a row: see [`ReadTx::get_by`].
    ///
    /// # Errors
    /// A conflict.
    pub fn exists_by<T: Table, K: TableKey, I: kind::Unique>(
        &self,
        index: &IndexHandle<T, K, I>,
        key: &K,
    ) -> Result<bool, Abort> {
        Ok(self.get_named_by(index, key, ColumnSet::EMPTY)?.is_some())
    }

    /// Reads the rows with these keys, in this order, with `None` for a key without a row. It fetches many of them from
    /// memory at the same time ([`ReadTx::prefetch`]), so that each does not wait for the one before. This pays for a
    /// handful of keys or more of a table that is larger than the processor's caches.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&stock, &Stock { id, quantity: 10 * id })))?;
    /// let quantities = session.transact(|tx| {
    ///     let rows = tx.get_many(&stock, [3, 11, 4])?;
    ///     Ok(rows.iter().map(|row| row.map(|row| row.quantity())).collect::<Vec<_>>())
    /// })?;
    /// assert_eq!(*quantities, [Some(30), None, Some(40)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    pub fn get_many<'t, T: Table>(
        &'t self,
        table: &Handle<T>,
        keys: impl IntoIterator<Item = T::Key>,
    ) -> Result<Vec<Option<T::Row<'t>>>, Abort> {
        let keys: Vec<T::Key> = keys.into_iter().collect();
        let get = |key: &T::Key| support::get(&self.core, table, key, ColumnSet::ALL);
        self.core.in_waves(&table.set, &keys, |key, prefetch| key.encode(prefetch), get)
    }

    /// Reads the first row with a key in `range`, if there is one, and no row behind it. Ordered tables only.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "visit", key(id), index(name = "by_page", columns(page)))]
    /// # struct Visit { id: u32, page: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let visits = db.create::<Visit>()?;
    /// # let by_page = visits.index(Visit::BY_PAGE);
    /// # let mut session = db.session();
    /// session.transact(|tx| (1..9).try_for_each(|id| tx.insert(&visits, &Visit { id, page: 100 - id })))?;
    /// let ends = session.transact(|tx| {
    ///     let (first, last) = (tx.first(&visits, ..)?, tx.last(&visits, ..5)?);
    ///     let by_page = (tx.first_by(&by_page, ..)?, tx.last_by(&by_page, 99..)?);
    ///     Ok([first, last, by_page.0, by_page.1].map(|row| row.map(|row| row.id())))
    /// })?;
    /// assert_eq!(*ends, [Some(1), Some(4), Some(8), Some(1)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    pub fn first<'t, T: OrderedTable>(
        &'t self,
        table: &Handle<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Result<Option<T::Row<'t>>, Abort> {
        self.scan(table, range).first_of(self)
    }

    /// Reads the last row with a key in `range`, if there is one: see [`ReadTx::first`].
    ///
    /// # Errors
    /// A conflict.
    pub fn last<'t, T: OrderedTable>(
        &'t self,
        table: &Handle<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Result<Option<T::Row<'t>>, Abort> {
        self.scan_rev(table, range).first_of(self)
    }

    /// Reads the first row, in index order, with an index key in `range`. The range does not include NULL, as in
    /// [`ReadTx::scan_by`]. Ordered indexes only.
    ///
    /// # Errors
    /// A conflict.
    pub fn first_by<'t, T: Table, K: TableKey, I: kind::Ranged>(
        &'t self,
        index: &IndexHandle<T, K, I>,
        range: impl RangeBounds<K>,
    ) -> Result<Option<T::Row<'t>>, Abort> {
        self.scan_by(index, range).first_of(self)
    }

    /// Reads the last row, in index order, with an index key in `range`: see [`ReadTx::first_by`]. NULL is behind all
    /// values: the last of `..` may have it.
    ///
    /// # Errors
    /// A conflict.
    pub fn last_by<'t, T: Table, K: TableKey, I: kind::Ranged>(
        &'t self,
        index: &IndexHandle<T, K, I>,
        range: impl RangeBounds<K>,
    ) -> Result<Option<T::Row<'t>>, Abort> {
        self.scan_by_rev(index, range).first_of(self)
    }

    /// Returns all rows of a table of any organization: those of an ordered table in key order, those of a hash table
    /// in no order. Inserting or deleting any row of the table conflicts with it, as with a scan.
    ///
    /// In a hash table it visits every bucket, so its cost grows with the capacity that the table was declared with, or
    /// has grown to. On a snapshot ([`Session::snapshot`](crate::Session::snapshot)) it conflicts with nothing.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&stock, &Stock { id, quantity: 3 })))?;
    /// let (count, sum) = session.transact(|tx| {
    ///     let rows = tx.scan_all(&stock).collect::<Result<Vec<_>, _>>()?;
    ///     Ok((tx.count_all(&stock)?, rows.iter().map(|row| row.quantity()).sum::<u32>()))
    /// })?.into_value();
    /// assert_eq!((count, sum), (9, 27));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_all<'t, T: Table>(&'t self, table: &'t Handle<T>) -> Scan<'t, T> {
        Scan::of_raw(RawScan::of_table(&self.core, &table.set))
    }

    /// Counts the rows of a table of any organization: see [`ReadTx::scan_all`]. It reads no column.
    ///
    /// # Errors
    /// A conflict.
    pub fn count_all<T: Table>(&self, table: &Handle<T>) -> Result<usize, Abort> {
        self.scan_all(table).try_count()
    }
}

/// Writing by calls that stand for several operations.
impl Tx {
    /// Inserts `row`, or changes the row that has its key by `change`, whose result is returned. `None` if the row was
    /// inserted. For `change`, see [`Tx::update`].
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "word", key(text), hash)] struct Word { text: String, count: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let words = db.create::<Word>()?;
    /// # let mut session = db.session();
    /// let mut count = |text: &str| {
    ///     let word = Word { text: text.to_owned(), count: 1 };
    ///     session.transact(|tx| {
    ///         tx.upsert(&words, &word, |word| {
    ///             word.set_count(word.count() + 1);
    ///             word.count()
    ///         })
    ///     })
    /// };
    /// assert_eq!(*count("so")?, None);
    /// assert_eq!(*count("so")?, Some(2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict. If the key of a unique index exists in another row, an abort that the session reports as
    /// [`TransactError::Duplicate`](crate::TransactError::Duplicate).
    pub fn upsert<T: Table, R>(
        &self,
        table: &Handle<T>,
        row: &T,
        change: impl FnOnce(&mut T::Update<'_>) -> R,
    ) -> Result<Option<R>, Abort> {
        match self.update_if(table, &row.key(), change)? {
            Ok(result) => Ok(Some(result)),
            Err(MissingRow) => self.insert(table, row).map(|()| None),
        }
    }

    /// As [`Tx::add`], and returns the new value of the column. It reads the column, so two of them conflict under
    /// every protocol.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, sold: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| tx.insert(&stock, &Stock { id: 7, sold: 2 }))?;
    /// assert_eq!(*session.transact(|tx| tx.add_and_get(&stock, &7, StockRow::SOLD, 3))?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tx::add`].
    #[track_caller]
    pub fn add_and_get<T: Table, C: Addend>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        column: TableColumn<T, C>,
        delta: C,
    ) -> Result<C, Abort> {
        // No closures here: `track_caller` must give the place of the caller.
        match self.add_and_get_if(table, key, column, delta)? {
            Ok(sum) => Ok(sum),
            Err(MissingRow) => Err(self.missing(table, key)),
        }
    }

    /// As [`Tx::add_and_get`], for a row that may be missing: nothing is added then.
    ///
    /// # Errors
    /// As [`Tx::add`], except for a missing row.
    #[track_caller]
    pub fn add_and_get_if<T: Table, C: Addend>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        column: TableColumn<T, C>,
        delta: C,
    ) -> Result<Result<C, MissingRow>, Abort> {
        let (place, addition) = (Location::caller(), addition(column, delta));
        let sum = key.encode(|key| self.core.add_and_get_at(&table.set, key, addition, place))?;
        Ok(sum.ok_or(MissingRow))
    }

    /// Deletes the rows with keys in `range`, and returns their number. Ordered tables only.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "visit", key(id))] struct Visit { id: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let visits = db.create::<Visit>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&visits, &Visit { id })))?;
    /// assert_eq!(*session.transact(|tx| tx.delete_range(&visits, 2..5))?, 3);
    /// assert_eq!(*session.transact(|tx| tx.count(&visits, ..))?, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    pub fn delete_range<T: OrderedTable>(
        &self,
        table: &Handle<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Result<usize, Abort> {
        self.scan(table, range).delete(self)
    }
}
