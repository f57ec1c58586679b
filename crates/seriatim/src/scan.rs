//! Scans: iterators over rows in key or index order. Decision record 12 explains how long their rows live.

use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};

use seriatim_catalog::{ColumnSet, KeyBuf, KeyRange, RowRef, Table, TableColumns};
use seriatim_engine::{Direction, RawScan, TableSet, Target, TxCore};

use crate::{Abort, ReadTx, Tx};

/// The rows of a scan, in order. Each step may return an abort, after which the transaction cannot commit, even if
/// the body ignores it. [`Iterator::count`] may therefore count an abort as a row; [`Scan::try_count`] does not.
///
/// Rows from the iterator can be kept while the transaction is open. Under a protocol that copies rows, each copy
/// occupies memory as long. [`Scan::for_each_row`] passes rows one at a time and keeps none.
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
        range: (&Bound<KeyBuf>, &Bound<KeyBuf>),
        direction: Direction,
    ) -> Scan<'t, T> {
        Scan { raw: RawScan::new(tx, set, target, range, direction), rows: PhantomData }
    }

    pub(crate) fn of_raw(raw: RawScan<'t>) -> Scan<'t, T> {
        Scan { raw, rows: PhantomData }
    }

    /// The first row, which lives as long as the transaction of the scan.
    pub(crate) fn first_of<'r>(mut self, _transaction: &'r ReadTx) -> Result<Option<T::Row<'r>>, Abort> {
        let Some(row) = self.raw.next().transpose()? else { return Ok(None) };
        // SAFETY: a row of this table, readable while the `ReadTx` is borrowed.
        Ok(Some(T::row(unsafe { RowRef::from_raw(row.as_ptr()) }.only(self.raw.columns()))))
    }

    /// Deletes the remaining rows. Returns their number.
    pub(crate) fn delete(self, tx: &Tx) -> Result<usize, Abort> {
        tx.core.delete_scanned(self.raw)
    }

    pub(crate) fn of_range(tx: &'t TxCore, set: &'t TableSet, index: usize, range: Option<KeyRange>) -> Scan<'t, T> {
        Scan { raw: RawScan::of_range(tx, set, index, range), rows: PhantomData }
    }

    /// Restricts the scan to these columns: the body reads no others. See
    /// [`ReadTx::get_columns`](crate::ReadTx::get_columns).
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

    /// Counts the remaining rows.
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

    /// Calls `visit` with each remaining row, which lives for that call only. A transaction that copies rows, as
    /// explicit ones do, therefore needs room for one row, however many there are. (Under a protocol that copies
    /// rows, a scan of an index needs room for every row; a scan of a table needs room for one.)
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id))] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&stock, &Stock { id, quantity: 2 })))?;
    /// let all = session.transact(|tx| {
    ///     let mut sum = 0;
    ///     tx.scan(&stock, ..).for_each_row(|row| {
    ///         sum += row.quantity();
    ///         Ok(())
    ///     })?;
    ///     Ok(sum)
    /// })?;
    /// assert_eq!(*all, 18);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The row does not outlive the call:
    ///
    /// ```compile_fail,E0521
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id))] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| {
    ///     let mut last = None;
    ///     tx.scan(&stock, ..).for_each_row(|row| {
    ///         last = Some(row);
    ///         Ok(())
    ///     })?;
    ///     Ok(last.map(|row| row.quantity()))
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict; an abort of `visit`, which is then not called again.
    #[inline]
    pub fn for_each_row(self, mut visit: impl FnMut(T::Row<'_>) -> Result<(), Abort>) -> Result<(), Abort> {
        let visited = self.try_for_each_row(|row| visit(row).map(|()| ControlFlow::<()>::Continue(())))?;
        debug_assert!(visited.is_continue());
        Ok(())
    }

    /// As [`Scan::for_each_row`], until `visit` breaks. Returns the value of the break, if there was one.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id))] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&stock, &Stock { id, quantity: 2 * id })))?;
    /// let first = session.transact(|tx| {
    ///     tx.scan(&stock, ..).try_for_each_row(|row| match row.quantity() > 5 {
    ///         true => Ok(ControlFlow::Break(row.id())),
    ///         false => Ok(ControlFlow::Continue(())),
    ///     })
    /// })?;
    /// assert_eq!(*first, ControlFlow::Break(3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Scan::for_each_row`].
    #[inline]
    pub fn try_for_each_row<B>(
        self,
        mut visit: impl FnMut(T::Row<'_>) -> Result<ControlFlow<B>, Abort>,
    ) -> Result<ControlFlow<B>, Abort> {
        let columns = self.raw.columns();
        // SAFETY: a row of this table, readable until `visit` returns, which cannot keep it.
        self.raw.try_for_each(|row| visit(T::row(unsafe { RowRef::from_raw(row.as_ptr()) }.only(columns))))
    }

    pub(crate) fn of_key(tx: &'t TxCore, set: &'t TableSet, index: usize, key: Option<KeyBuf>) -> Scan<'t, T> {
        Scan { raw: RawScan::of_key(tx, set, index, key), rows: PhantomData }
    }
}

/// A scan in generated code. Each row lives until the next step.
#[must_use = "a scan reads nothing until it is stepped"]
pub struct Steps<'t, T, L> {
    raw: RawScan<'t>,
    limit: L,
    rows: PhantomData<fn() -> T>,
}

/// Limits how many rows a scan returns.
pub trait Limit {
    /// Whether the scan may return one more row.
    fn admits(&mut self) -> bool;
}

/// No limit.
impl Limit for () {
    #[inline(always)]
    fn admits(&mut self) -> bool {
        true
    }
}

/// The number of rows that are still allowed.
impl Limit for usize {
    #[inline(always)]
    fn admits(&mut self) -> bool {
        match self.checked_sub(1) {
            Some(left) => {
                *self = left;
                true
            }
            None => false,
        }
    }
}

impl<'t, T: Table, L: Limit> Steps<'t, T, L> {
    #[inline]
    pub(crate) fn new(scan: Scan<'t, T>, columns: ColumnSet, limit: L) -> Steps<'t, T, L> {
        Steps { raw: scan.raw.with_columns(columns).transient(), limit, rows: PhantomData }
    }

    /// Returns the next row. It lives until the next call.
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "an iterator's items outlive the next step")]
    pub fn next(&mut self) -> Result<Option<T::Row<'_>>, Abort> {
        if !self.limit.admits() {
            return Ok(None);
        }
        let Some(row) = self.raw.next().transpose()? else { return Ok(None) };
        // SAFETY: a row of this table, readable until the next step, for which the scan must not be borrowed.
        Ok(Some(T::row(unsafe { RowRef::from_raw(row.as_ptr()) }.only(self.raw.columns()))))
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
