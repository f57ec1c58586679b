//! Scans: iterators over rows in key or index order.

use std::marker::PhantomData;
use std::ops::Bound;

use seriatim_catalog::{ColumnSet, KeyBuf, KeyRange, RowRef, Table, TableColumns};
use seriatim_engine::{Direction, RawScan, TableSet, Target, TxCore};

use crate::Abort;

/// Rows of a scan, in order. Each step may report an abort, after which the transaction cannot commit, whether it was looked at or not.
/// So [`Iterator::count`] may count one; [`Scan::try_count`] does not.
#[must_use = "a scan reads nothing until it is iterated"]
pub struct Scan<'t, T> {
    raw: RawScan<'t>,
    rows: PhantomData<fn() -> T>,
}

impl<'t, T: Table> Scan<'t, T> {
    #[inline]
    pub(crate) fn new(
        tx: &'t TxCore,
        set: &'t TableSet,
        target: Target,
        low: Bound<KeyBuf>,
        high: Bound<KeyBuf>,
        direction: Direction,
    ) -> Scan<'t, T> {
        Scan { raw: RawScan::new(tx, set, target, low, high, direction), rows: PhantomData }
    }

    pub(crate) fn of_range(tx: &'t TxCore, set: &'t TableSet, index: usize, range: Option<KeyRange>) -> Scan<'t, T> {
        Scan { raw: RawScan::of_range(tx, set, index, range), rows: PhantomData }
    }

    /// The scan, for a body that reads these columns of its rows only: see [`ReadTx::get_columns`](crate::ReadTx::get_columns).
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id))] struct Stock { id: u32, quantity: u32, price: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&stock, &Stock { id, quantity: 1, price: 2 })))?;
    /// let all = session.transact(|tx| {
    ///     tx.scan(&stock, ..).columns(StockRow::QUANTITY).map(|row| Ok(row?.quantity())).sum::<Result<u32, _>>()
    /// })?;
    /// assert_eq!(*all, 9);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn columns(self, columns: impl Into<TableColumns<T>>) -> Scan<'t, T> {
        self.named(columns.into().set())
    }

    #[inline]
    pub(crate) fn named(self, columns: ColumnSet) -> Scan<'t, T> {
        Scan { raw: self.raw.with_columns(columns), rows: PhantomData }
    }

    /// How many rows are left.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "visit", key(id), index(name = "by_page", columns(page), hash))]
    /// # struct Visit { id: u32, page: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let visits = db.create::<Visit>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&visits, &Visit { id, page: id / 2 })))?;
    /// let by_page = visits.index(Visit::BY_PAGE);
    /// assert_eq!(*session.transact(|tx| tx.find_by(&by_page, &1).try_count())?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    pub fn try_count(self) -> Result<usize, Abort> {
        self.raw.count()
    }

    pub(crate) fn of_key(tx: &'t TxCore, set: &'t TableSet, index: usize, key: Option<KeyBuf>) -> Scan<'t, T> {
        Scan { raw: RawScan::of_key(tx, set, index, key), rows: PhantomData }
    }
}

impl<'t, T: Table> Iterator for Scan<'t, T> {
    type Item = Result<T::Row<'t>, Abort>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: a row of this table, readable while the `ReadTx` is borrowed.
        Some(self.raw.next()?.map(|row| T::row(unsafe { RowRef::from_raw(row.as_ptr()) }.only(self.raw.columns()))))
    }
}

impl<T> std::fmt::Debug for Scan<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({})", self.raw.table().name)
    }
}
