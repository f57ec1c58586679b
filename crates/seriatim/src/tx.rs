//! Operations of a transaction, by the types of rows.
//!
//! A transaction is the engine's [`TxCore`], which takes encoded keys. [`Tx`] and [`ReadTx`] are its public
//! interface. They encode keys by the types of tables, and return rows by their types.
//!
//! Access rule: rows borrow the `ReadTx` that read them. Ending the transaction takes the `ReadTx` mutably or owns
//! it. So no row outlives the time during which the engine keeps it readable and unchanged.

use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};
use std::panic::Location;

use seriatim_catalog::{
    Addend, ColumnSet, Key, KeyBuf, KeyPrefix, OrderedTable, Organization, RowRef, Table, TableColumn, TableColumns,
    TableKey, kind,
};
use seriatim_engine::{Direction, Operations as _, Savepoint, Target, TxCore};
use seriatim_txn::{Addition, OnExists};

use crate::Abort;
use crate::handle::{Handle, IndexHandle};
use crate::procedure::support;
use crate::scan::Scan;

/// When the deferrable constraints of a transaction are checked: [`Tx::set_constraints`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraints {
    /// At the end of each operation.
    Immediate,
    /// When the transaction commits.
    Deferred,
}

/// The reading half of a transaction: everything that a read-only transaction can do.
#[repr(transparent)]
pub struct ReadTx {
    pub(crate) core: TxCore,
}

/// A transaction that may write. [`Deref`]s to [`ReadTx`] for its reading half.
#[repr(transparent)]
pub struct Tx {
    read: ReadTx,
}

const _: () = assert!(size_of::<Tx>() == size_of::<TxCore>() && align_of::<Tx>() == align_of::<TxCore>());

impl Deref for Tx {
    type Target = ReadTx;
    fn deref(&self) -> &ReadTx {
        &self.read
    }
}

impl Tx {
    /// Wraps the engine's transaction.
    #[inline(always)]
    pub(crate) fn of(core: &TxCore) -> &Tx {
        // SAFETY: both layers are transparent, so a `Tx` is a `TxCore`, and neither adds an invariant to it.
        unsafe { &*std::ptr::from_ref(core).cast() }
    }

    /// As [`Tx::of`], for code that may end the transaction.
    #[inline(always)]
    pub(crate) fn of_mut(core: &mut TxCore) -> &mut Tx {
        // SAFETY: as in `of`; both types allow the same writes.
        unsafe { &mut *std::ptr::from_mut(core).cast() }
    }

    /// The engine's transaction, for code that may end it.
    #[inline(always)]
    pub(crate) fn core_mut(&mut self) -> &mut TxCore {
        &mut self.read.core
    }
}

/// Reading.
impl ReadTx {
    /// Reads the row at `key`, if there is one. The row stays as it was read, whatever the transaction writes
    /// afterwards.
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    pub fn get<'t, T: Table>(&'t self, table: &Handle<T>, key: &T::Key) -> Result<Option<T::Row<'t>>, Abort> {
        support::get(&self.core, table, key, ColumnSet::ALL)
    }

    /// As [`ReadTx::get`], for a body that reads only these columns of the row. A protocol may then ignore concurrent
    /// changes of the other columns. Their values are unspecified, and reading them panics in builds with debug
    /// assertions.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32, price: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| tx.insert(&stock, &Stock { id: 7, quantity: 2, price: 3 }))?;
    /// let value = session.transact(|tx| {
    ///     let row = tx.get_columns(&stock, &7, StockRow::QUANTITY | StockRow::PRICE)?;
    ///     Ok(row.map_or(0, |row| row.quantity() * row.price()))
    /// })?;
    /// assert_eq!(*value, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    #[inline]
    pub fn get_columns<'t, T: Table>(
        &'t self,
        table: &Handle<T>,
        key: &T::Key,
        columns: impl Into<TableColumns<T>>,
    ) -> Result<Option<T::Row<'t>>, Abort> {
        support::get(&self.core, table, key, columns.into().set())
    }

    /// Reads the row at `key`, which must exist.
    ///
    /// ```
    /// # use seriatim::{Database, Table, TransactError};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// let missing = session.transact(|tx| Ok(tx.require(&stock, &7)?.quantity()));
    /// assert!(matches!(missing, Err(TransactError::MissingRow { table, key }) if table == "stock" && key == "id 7"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict; or, if there is no such row, an abort that the session reports as
    /// [`TransactError::MissingRow`](crate::TransactError::MissingRow).
    #[inline]
    pub fn require<'t, T: Table>(&'t self, table: &Handle<T>, key: &T::Key) -> Result<T::Row<'t>, Abort> {
        support::require(&self.core, table, key, ColumnSet::ALL)
    }

    /// Reads the row that a unique index finds, which must exist.
    ///
    /// # Errors
    /// As [`ReadTx::require`].
    #[inline]
    pub fn require_by<'t, T: Table, K: TableKey, I: kind::Unique>(
        &'t self,
        index: &IndexHandle<T, K, I>,
        key: &K,
    ) -> Result<T::Row<'t>, Abort> {
        self.require_named_by(index, key, ColumnSet::ALL)
    }

    #[inline]
    pub(crate) fn require_named_by<'t, T: Table, K: TableKey, I: kind::Unique>(
        &'t self,
        index: &IndexHandle<T, K, I>,
        key: &K,
        columns: ColumnSet,
    ) -> Result<T::Row<'t>, Abort> {
        match self.get_named_by(index, key, columns)? {
            Some(row) => Ok(row),
            None => {
                let table = &index.secondary().table;
                Err(key.encode(|key| table.codec.entry_key(key, |key| self.core.missing_at(table, key))))
            }
        }
    }

    /// Returns an abort for a missing row at `key`: `return Err(tx.missing(&table, &key))`. The session reports it as
    /// [`TransactError::MissingRow`](crate::TransactError::MissingRow), once it has verified that the body's reads
    /// were consistent.
    #[cold]
    pub fn missing<T: Table>(&self, table: &Handle<T>, key: &T::Key) -> Abort {
        key.encode(|key| self.core.missing_at(&table.set.primary, key))
    }

    /// Whether procedures prefetch the rows that their arguments name:
    /// [`Builder::prefetch`](crate::Builder::prefetch) and [`Session::set_prefetch`](crate::Session::set_prefetch).
    #[inline]
    pub fn prefetching(&self) -> bool {
        self.core.prefetching()
    }

    /// Starts to fetch the rows with these keys into the processor's cache, all at once. Later reads then do not each
    /// wait for memory. This pays for a handful of keys or more of a large hash table. It is only a hint: it reads
    /// nothing and conflicts with nothing.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&stock, &Stock { id, quantity: 1 })))?;
    /// let wanted = [3, 1, 4, 1, 5];
    /// let sum = session.transact(|tx| {
    ///     tx.prefetch(&stock, wanted.iter().copied());
    ///     let mut sum = 0;
    ///     for id in wanted {
    ///         sum += tx.get(&stock, &id)?.map_or(0, |row| row.quantity());
    ///     }
    ///     Ok(sum)
    /// })?;
    /// assert_eq!(*sum, 5);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn prefetch<T: Table>(&self, table: &Handle<T>, keys: impl IntoIterator<Item = T::Key>) {
        self.begin_prefetch(table, keys);
        self.advance_prefetch();
        self.advance_prefetch();
    }

    /// Starts the first wave of [`ReadTx::prefetch`], for rows of several tables. [`ReadTx::advance_prefetch`] then
    /// continues with all of them. Reads in the order of the requests find their rows faster.
    #[inline]
    pub fn begin_prefetch<T: Table>(&self, table: &Handle<T>, keys: impl IntoIterator<Item = T::Key>) {
        self.core.begin_prefetch(&table.set, keys);
    }

    /// Starts the next wave for everything that [`ReadTx::begin_prefetch`] began in this transaction; there are two.
    /// Other work between the waves hides the wait for memory.
    #[inline]
    pub fn advance_prefetch(&self) {
        self.core.advance_prefetch();
    }

    /// Returns the rows with keys in `range`, in key order. Ordered tables only. Each step returns a row or a
    /// conflict: pass the conflict on with `?`. [`ReadTx::count`] returns the number of rows.
    #[inline]
    pub fn scan<'t, T: OrderedTable>(&'t self, table: &'t Handle<T>, range: impl RangeBounds<T::Key>) -> Scan<'t, T> {
        let (low, high) = encode_bounds(&range);
        Scan::new(&self.core, &table.set, Target::Rows, (&low, &high), Direction::Forward)
    }

    /// As [`ReadTx::scan`], in descending key order.
    #[inline]
    pub fn scan_rev<'t, T: OrderedTable>(
        &'t self,
        table: &'t Handle<T>,
        range: impl RangeBounds<T::Key>,
    ) -> Scan<'t, T> {
        let (low, high) = encode_bounds(&range);
        Scan::new(&self.core, &table.set, Target::Rows, (&low, &high), Direction::Backward)
    }

    /// Returns the rows whose keys begin with `prefix`: the first columns of the key, as a tuple.
    #[inline]
    pub fn prefix<'t, T: OrderedTable, P: KeyPrefix<T::Key>>(
        &'t self,
        table: &'t Handle<T>,
        prefix: &P,
    ) -> Scan<'t, T> {
        let range = table.set.primary.codec.range_of_prefix(prefix);
        Scan::new(&self.core, &table.set, Target::Rows, (&range.low, &range.high), Direction::Forward)
    }

    /// As [`ReadTx::prefix`], in descending key order.
    #[inline]
    pub fn prefix_rev<'t, T: OrderedTable, P: KeyPrefix<T::Key>>(
        &'t self,
        table: &'t Handle<T>,
        prefix: &P,
    ) -> Scan<'t, T> {
        let range = table.set.primary.codec.range_of_prefix(prefix);
        Scan::new(&self.core, &table.set, Target::Rows, (&range.low, &range.high), Direction::Backward)
    }

    /// Counts the rows with keys in `range`. Ordered tables only.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "visit", key(id))] struct Visit { id: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let visits = db.create::<Visit>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| (0..9).try_for_each(|id| tx.insert(&visits, &Visit { id })))?;
    /// let counts = session.transact(|tx| Ok((tx.count(&visits, ..)?, tx.count(&visits, 3..5)?)))?;
    /// assert_eq!(*counts, (9, 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    pub fn count<T: OrderedTable>(&self, table: &Handle<T>, range: impl RangeBounds<T::Key>) -> Result<usize, Abort> {
        self.scan(table, range).try_count()
    }

    /// Counts the rows with index keys in `range`, which does not include NULL: see [`ReadTx::scan_by`]. Ordered
    /// indexes only.
    ///
    /// # Errors
    /// A conflict.
    pub fn count_by<T: Table, K: TableKey, I: kind::Ranged>(
        &self,
        index: &IndexHandle<T, K, I>,
        range: impl RangeBounds<K>,
    ) -> Result<usize, Abort> {
        self.scan_by(index, range).try_count()
    }

    /// Reads the row that a unique index finds. A key with a NULL finds none, as nothing equals NULL, unless the
    /// index says `nulls_not_distinct`. [`ReadTx::find_by`] returns the rows with a NULL.
    ///
    /// # Errors
    /// A conflict.
    pub fn get_by<'t, T: Table, K: TableKey, I: kind::Unique>(
        &'t self,
        index: &IndexHandle<T, K, I>,
        key: &K,
    ) -> Result<Option<T::Row<'t>>, Abort> {
        self.get_named_by(index, key, ColumnSet::ALL)
    }

    pub(crate) fn get_named_by<'t, T: Table, K: TableKey, I: kind::Unique>(
        &'t self,
        index: &IndexHandle<T, K, I>,
        key: &K,
        columns: ColumnSet,
    ) -> Result<Option<T::Row<'t>>, Abort> {
        let find = |key: Key<'_>| self.core.get_by_at(&index.set, index.at, key, columns);
        let row = key.encode(|key| index.secondary().table.codec.entry_key(key, find))?;
        // SAFETY: the access rule.
        Ok(row.map(|row| T::row(unsafe { RowRef::from_raw(row.as_ptr()) }.only(columns))))
    }

    /// Returns the rows whose index keys begin with `prefix` (the first indexed columns, as a tuple), in index order.
    /// A hash index only finds whole keys.
    #[inline]
    pub fn find_by<'t, T: Table, K: TableKey, P: KeyPrefix<K>, I: kind::Finds<K, P>>(
        &'t self,
        index: &'t IndexHandle<T, K, I>,
        prefix: &P,
    ) -> Scan<'t, T> {
        let codec = &index.secondary().table.codec;
        if index.secondary().is_single() && index.secondary().organization == Organization::Hash {
            let key = (P::COUNT == K::COUNT).then(|| codec.key_of(prefix));
            return Scan::of_key(&self.core, &index.set, index.at, key);
        }
        let range = codec.range_of_prefix(prefix);
        if index.secondary().organization == Organization::Hash {
            return Scan::of_range(&self.core, &index.set, index.at, (P::COUNT == K::COUNT).then_some(range));
        }
        Scan::new(&self.core, &index.set, Target::Index(index.at), (&range.low, &range.high), Direction::Forward)
    }

    /// As [`ReadTx::find_by`], in descending index order.
    #[inline]
    pub fn find_by_rev<'t, T: Table, K: TableKey, P: KeyPrefix<K>, I: kind::Ranged>(
        &'t self,
        index: &'t IndexHandle<T, K, I>,
        prefix: &P,
    ) -> Scan<'t, T> {
        let range = index.secondary().table.codec.range_of_prefix(prefix);
        Scan::new(&self.core, &index.set, Target::Index(index.at), (&range.low, &range.high), Direction::Backward)
    }

    /// Returns the rows whose index keys lie in `range`, in index order. Ordered indexes only.
    ///
    /// As in SQL, NULL is neither above nor below a value. A range with one bound, such as `Some(10)..` or
    /// `..Some(10)`, excludes rows whose first indexed column is NULL. `..` returns all rows, and [`ReadTx::find_by`]
    /// those with NULL.
    ///
    /// A bound may be NULL itself: an index orders NULL after all values, so `Some(10)..=None` includes rows with
    /// NULL. Between two bounds, rows with equal first columns are in index order, where NULL in a later column comes
    /// last.
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// #[derive(Table)]
    /// #[table(name = "offer", key(id), ordered)]
    /// #[table(index(name = "by_price", columns(price), ordered))]
    /// struct Offer {
    ///     id: u32,
    ///     price: Option<i64>,
    /// }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let offers = db.create::<Offer>()?;
    /// let by_price = offers.index(Offer::BY_PRICE);
    /// # let mut session = db.session();
    /// session.transact(|tx| {
    ///     let prices = [None, Some(5), Some(10), Some(20)];
    ///     (0..).zip(prices).try_for_each(|(id, price)| tx.insert(&offers, &Offer { id, price }))
    /// })?;
    /// let counts = session.transact(|tx| {
    ///     Ok([tx.count_by(&by_price, Some(10)..)?, tx.count_by(&by_price, ..)?, tx.find_by(&by_price,
    /// &None).try_count()?]) })?;
    /// assert_eq!(*counts, [2, 4, 1]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_by<'t, T: Table, K: TableKey, I: kind::Ranged>(
        &'t self,
        index: &'t IndexHandle<T, K, I>,
        range: impl RangeBounds<K>,
    ) -> Scan<'t, T> {
        let range = index.secondary().table.codec.range_between(range.start_bound(), range.end_bound());
        Scan::new(&self.core, &index.set, Target::Index(index.at), (&range.low, &range.high), Direction::Forward)
    }

    /// As [`ReadTx::scan_by`], in descending index order. The same holds for NULL.
    pub fn scan_by_rev<'t, T: Table, K: TableKey, I: kind::Ranged>(
        &'t self,
        index: &'t IndexHandle<T, K, I>,
        range: impl RangeBounds<K>,
    ) -> Scan<'t, T> {
        let range = index.secondary().table.codec.range_between(range.start_bound(), range.end_bound());
        Scan::new(&self.core, &index.set, Target::Index(index.at), (&range.low, &range.high), Direction::Backward)
    }

    /// Fails if the transaction was cancelled, or is older than its bound. Operations do so by themselves; a body that
    /// computes for long between them calls this now and then.
    ///
    /// # Errors
    /// It was cancelled, or is too old.
    pub fn check_bounds(&self) -> Result<(), Abort> {
        self.core.check_bounds()
    }

    /// The number of runs of the body in this transaction; 1 in the first.
    pub fn attempt(&self) -> u32 {
        self.core.attempt()
    }

    /// Returns an abort that carries the body's own error: `return Err(tx.abort(error))`. The session reports it as
    /// [`TransactError::User`](crate::TransactError::User), once it has verified that the body's reads were
    /// consistent. In a `#[procedure]` the error is one of its values, so its type derives [`Data`](crate::Data).
    pub fn abort(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Abort {
        self.core.abort(error)
    }
}

#[inline]
pub(crate) fn encode_bounds<K: TableKey>(range: &impl RangeBounds<K>) -> (Bound<KeyBuf>, Bound<KeyBuf>) {
    let encode = |key: &K| key.encode(|key| key.to_buf());
    (range.start_bound().map(encode), range.end_bound().map(encode))
}

/// So much to a column.
#[inline]
pub(crate) fn addition<T: Table, C: Addend>(column: TableColumn<T, C>, delta: C) -> Addition {
    // SAFETY: derived constants name columns of this type; columns that cannot be updated have another type.
    unsafe { Addition::new(column.id(), C::TYPE, delta.units()) }
}

/// There is no row to update, add to or delete, in an operation that permits this. The operation had no effect.
/// Unlike [`TransactError::MissingRow`](crate::TransactError::MissingRow), this does not end the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRow;

impl MissingRow {
    /// The result of an operation that reports whether there was a row.
    pub(crate) fn unless(found: bool) -> Result<(), MissingRow> {
        if found { Ok(()) } else { Err(MissingRow) }
    }
}

impl fmt::Display for MissingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no row with this key")
    }
}

impl std::error::Error for MissingRow {}

/// Writing.
impl Tx {
    /// Inserts a row.
    ///
    /// # Errors
    /// A conflict; or, if the key or a unique index's key exists, an abort that the session reports as
    /// [`TransactError::Duplicate`](crate::TransactError::Duplicate).
    pub fn insert<T: Table>(&self, table: &Handle<T>, row: &T) -> Result<(), Abort> {
        support::insert(&self.core, table, row)
    }

    /// Inserts a row unless its key exists; returns whether it did.
    ///
    /// # Errors
    /// A conflict; or, if a unique index's key exists, an abort that is reported as
    /// [`TransactError::Duplicate`](crate::TransactError::Duplicate).
    pub fn try_insert<T: Table>(&self, table: &Handle<T>, row: &T) -> Result<bool, Abort> {
        const { support::is_given::<T>() };
        row.key().encode(|key| self.core.insert_at(&table.set, key, |writer| row.encode(writer), OnExists::Refuse))
    }

    /// Inserts a row, or replaces the whole row with its key, immutable columns included.
    ///
    /// # Errors
    /// As [`Tx::try_insert`].
    pub fn put<T: Table>(&self, table: &Handle<T>, row: &T) -> Result<(), Abort> {
        const { support::is_given::<T>() };
        let insert =
            |key: Key<'_>| self.core.insert_at(&table.set, key, |writer| row.encode(writer), OnExists::Replace);
        row.key().encode(insert).map(|_| ())
    }

    /// Updates the row at `key`, which must exist. `change` reads and sets its columns; its result is returned. The
    /// transaction cannot be used inside `change`. If the row may be missing, use [`Tx::update_if`].
    ///
    /// A `change` that can fail returns a `Result`, which the body passes on with a second `?`. A body that commits
    /// despite such an error keeps the columns that were set before it.
    ///
    /// ```
    /// # use seriatim::{Abort, Database, Decimal, Table, TransactError};
    /// # #[derive(Table)] #[table(name = "account", key(id), hash)] struct Account { id: u32, balance: Decimal<2> }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let accounts = db.create::<Account>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| tx.insert(&accounts, &Account { id: 7, balance: Decimal::ZERO }))?;
    /// let mut credit = |id, amount: Decimal<2>| {
    ///     session.transact(|tx| {
    ///         tx.update(&accounts, &id, |account| -> Result<(), Abort> {
    ///             account.set_balance((account.balance() + amount)?);
    ///             Ok(())
    ///         })?
    ///     })
    /// };
    /// credit(7, Decimal::from_units(i64::MAX))?;
    /// assert!(matches!(credit(7, Decimal::ONE), Err(TransactError::Overflow { .. })));
    /// assert!(matches!(credit(8, Decimal::ONE), Err(TransactError::MissingRow { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict. If there is no such row, an abort that the session reports as
    /// [`TransactError::MissingRow`](crate::TransactError::MissingRow). If the new key of a unique index exists, one
    /// that is reported as [`TransactError::Duplicate`](crate::TransactError::Duplicate).
    #[inline]
    pub fn update<T: Table, R>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        change: impl FnOnce(&mut T::Update<'_>) -> R,
    ) -> Result<R, Abort> {
        self.update_columns(table, key, TableColumns::ALL, change)
    }

    /// As [`Tx::update`], for a row that may be missing: `change` is then not called.
    ///
    /// ```
    /// # use seriatim::{Database, MissingRow, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// let updated = session.transact(|tx| tx.update_if(&stock, &7, |row| row.set_quantity(1)))?;
    /// assert_eq!(*updated, Err(MissingRow));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tx::update`], except for a missing row.
    #[inline]
    pub fn update_if<T: Table, R>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        change: impl FnOnce(&mut T::Update<'_>) -> R,
    ) -> Result<Result<R, MissingRow>, Abort> {
        self.update_columns_if(table, key, TableColumns::ALL, change)
    }

    /// As [`Tx::update`], for a `change` that reads or sets only these columns: see [`ReadTx::get_columns`].
    ///
    /// ```
    /// # use seriatim::{Database, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, quantity: u32, price: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| tx.insert(&stock, &Stock { id: 7, quantity: 2, price: 3 }))?;
    /// session.transact(|tx| {
    ///     tx.update_columns(&stock, &7, StockRow::QUANTITY, |row| row.set_quantity(row.quantity() + 1))
    /// })?;
    /// # assert_eq!(*session.transact(|tx| Ok(tx.require(&stock, &7)?.quantity()))?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tx::update`].
    #[inline]
    pub fn update_columns<T: Table, R>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        columns: impl Into<TableColumns<T>>,
        change: impl FnOnce(&mut T::Update<'_>) -> R,
    ) -> Result<R, Abort> {
        self.update_columns_if(table, key, columns, change)?.map_err(|MissingRow| self.missing(table, key))
    }

    /// As [`Tx::update_columns`], for a row that may be missing: see [`Tx::update_if`].
    ///
    /// # Errors
    /// As [`Tx::update_if`].
    #[inline]
    pub fn update_columns_if<T: Table, R>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        columns: impl Into<TableColumns<T>>,
        change: impl FnOnce(&mut T::Update<'_>) -> R,
    ) -> Result<Result<R, MissingRow>, Abort> {
        let mut value = None;
        support::update(&self.core, table, key, columns.into().set().into(), |update| {
            value = Some(change(update));
            Ok(())
        })?;
        Ok(value.ok_or(MissingRow))
    }

    /// Adds `delta` to a column of the row at `key`, which must exist, without reading the row. Under protocols that
    /// keep column groups apart (see `seriatim protocols`), additions to one column do not conflict.
    ///
    /// ```
    /// # use seriatim::{Database, Table, TransactError};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32, sold: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// # session.transact(|tx| tx.insert(&stock, &Stock { id: 7, sold: 2 }))?;
    /// session.transact(|tx| tx.add(&stock, &7, StockRow::SOLD, 3))?;
    /// assert_eq!(*session.transact(|tx| Ok(tx.require(&stock, &7)?.sold()))?, 5);
    /// let overflow = session.transact(|tx| tx.add(&stock, &7, StockRow::SOLD, u32::MAX));
    /// assert!(matches!(overflow, Err(TransactError::Overflow { .. })));
    /// let missing = session.transact(|tx| tx.add(&stock, &8, StockRow::SOLD, 1));
    /// assert!(matches!(missing, Err(TransactError::MissingRow { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A conflict, or a missing row, as in [`Tx::update`]. If the sum leaves the range of the column,
    /// [`TransactError::Overflow`](crate::TransactError::Overflow) at the place of the call. If a unique index
    /// contains the column and the new key exists, [`TransactError::Duplicate`](crate::TransactError::Duplicate).
    #[track_caller]
    pub fn add<T: Table, C: Addend>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        column: TableColumn<T, C>,
        delta: C,
    ) -> Result<(), Abort> {
        // No closures here: `track_caller` must give the place of the caller.
        match self.add_if(table, key, column, delta)? {
            Ok(()) => Ok(()),
            Err(MissingRow) => Err(self.missing(table, key)),
        }
    }

    /// As [`Tx::add`], to a row that may be missing: nothing is added then.
    ///
    /// # Errors
    /// As [`Tx::add`], except for a missing row.
    #[track_caller]
    pub fn add_if<T: Table, C: Addend>(
        &self,
        table: &Handle<T>,
        key: &T::Key,
        column: TableColumn<T, C>,
        delta: C,
    ) -> Result<Result<(), MissingRow>, Abort> {
        let (place, addition) = (Location::caller(), addition(column, delta));
        key.encode(|key| self.core.add_at(&table.set, key, addition, place)).map(MissingRow::unless)
    }

    /// Deletes the row at `key`, which must exist. If the row may be missing, use [`Tx::delete_if`].
    ///
    /// # Errors
    /// A conflict; or, if there is no such row, an abort that the session reports as
    /// [`TransactError::MissingRow`](crate::TransactError::MissingRow).
    pub fn delete<T: Table>(&self, table: &Handle<T>, key: &T::Key) -> Result<(), Abort> {
        self.delete_if(table, key)?.map_err(|MissingRow| self.missing(table, key))
    }

    /// Deletes the row at `key`, if there is one.
    ///
    /// ```
    /// # use seriatim::{Database, MissingRow, Table};
    /// # #[derive(Table)] #[table(name = "stock", key(id), hash)] struct Stock { id: u32 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// # let stock = db.create::<Stock>()?;
    /// # let mut session = db.session();
    /// session.transact(|tx| {
    ///     let _ = tx.delete_if(&stock, &7)?; // whether it was there or not
    ///     tx.insert(&stock, &Stock { id: 7 })
    /// })?;
    /// assert_eq!(*session.transact(|tx| tx.delete_if(&stock, &7))?, Ok(()));
    /// assert_eq!(*session.transact(|tx| tx.delete_if(&stock, &7))?, Err(MissingRow));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A conflict.
    pub fn delete_if<T: Table>(&self, table: &Handle<T>, key: &T::Key) -> Result<Result<(), MissingRow>, Abort> {
        key.encode(|key| self.core.delete_at(&table.set, key)).map(MissingRow::unless)
    }

    /// Returns a position to roll back to.
    ///
    /// # Errors
    /// The transaction has stopped.
    pub fn savepoint(&self) -> Result<Savepoint, Abort> {
        self.core.savepoint()
    }

    /// Runs several operations as one statement of SQL: foreign keys and deferrable unique constraints are checked when
    /// `act` has ended, and not after each operation. If it fails, nothing of it is left.
    ///
    /// # Errors
    /// Those of `act`; a constraint that is violated.
    pub fn statement<R>(&self, act: impl FnOnce() -> Result<R, Abort>) -> Result<R, Abort> {
        self.core.whole_statement(act)
    }

    /// Says when deferrable foreign keys and unique constraints are checked from now on: when the transaction commits,
    /// or at the end of each operation. Then checks that were put off are made at once. It is SET CONSTRAINTS ALL of
    /// SQL.
    ///
    /// ```
    /// use seriatim::catalog::{ColumnDef, ColumnType, ReferenceDef, TableDef};
    /// use seriatim::{Constraints, Database, TransactError, Value};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
    /// let table = TableDef::builder("node").column(column("id")).column(column("next")).key(["id"]);
    /// let table = table.reference(ReferenceDef::new(["next"], "node").deferrable()).finish()?;
    /// let nodes = db.declare(table)?;
    /// let row = |id: u32, next: u32| [Value::from(id), Value::from(next)];
    /// let mut session = db.session();
    /// session.transact(|tx| {
    ///     tx.set_constraints(Constraints::Deferred)?;
    ///     tx.insert_dyn(&nodes, &row(1, 2))?;
    ///     tx.insert_dyn(&nodes, &row(2, 1))
    /// })?;
    /// let refused = session.transact(|tx| {
    ///     tx.set_constraints(Constraints::Deferred)?;
    ///     tx.insert_dyn(&nodes, &row(3, 4))
    /// });
    /// let error = refused.unwrap_err();
    /// assert!(matches!(error, TransactError::ForeignKey { .. }));
    /// assert_eq!(error.to_string(), "next 4 of node refers to no row of node (foreign key node_next_fkey)");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactError::ForeignKey`](crate::TransactError::ForeignKey) or
    /// [`TransactError::Duplicate`](crate::TransactError::Duplicate) if a check that was put off fails now. A conflict.
    pub fn set_constraints(&self, checked: Constraints) -> Result<(), Abort> {
        self.core.set_constraints(None, checked == Constraints::Deferred)
    }

    /// As [`Tx::set_constraints`], of the constraints with these names only.
    ///
    /// ```
    /// use seriatim::{Constraints, Database, Table};
    ///
    /// #[derive(Table)]
    /// #[table(key(id), index(name = "task_place_key", columns(place), unique, deferrable))]
    /// struct Task {
    ///     id: u32,
    ///     place: u32,
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = Database::in_memory()?;
    /// let tasks = db.create::<Task>()?;
    /// let mut session = db.session();
    /// session.transact(|tx| {
    ///     tx.insert(&tasks, &Task { id: 1, place: 1 })?;
    ///     tx.insert(&tasks, &Task { id: 2, place: 2 })?;
    ///     tx.set_constraints_of(&["task_place_key"], Constraints::Deferred)?;
    ///     tx.update(&tasks, &1, |mut task| task.set_place(2))?;
    ///     tx.update(&tasks, &2, |mut task| task.set_place(1))
    /// })?;
    /// // Without it, each operation is checked at its end.
    /// let error = session.transact(|tx| tx.update(&tasks, &1, |mut task| task.set_place(1))).unwrap_err();
    /// assert_eq!(error.to_string(), "duplicate key place 1 in task.task_place_key");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tx::set_constraints`]. A name that no deferrable constraint has changes nothing.
    pub fn set_constraints_of(&self, names: &[&str], checked: Constraints) -> Result<(), Abort> {
        self.core.set_constraints(Some(names), checked == Constraints::Deferred)
    }

    /// Undoes every write since the savepoint. The savepoint can be used again; later ones become invalid. Reads are
    /// not undone.
    ///
    /// # Errors
    /// The transaction has stopped; or the savepoint is invalid or belongs to another transaction.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<(), Abort> {
        self.core.rollback_to(savepoint)
    }
}
