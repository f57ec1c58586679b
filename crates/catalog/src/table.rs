//! Tables as Rust types: the traits that `#[derive(Table)]` implements.

use std::marker::PhantomData;
use std::ops::BitOr;

use crate::{
    ColumnId, ColumnLocation, ColumnSet, IdentityKind, IndexId, KeyPrefix, OutOfMemory, RowRef, RowWriter, TableDef,
    TableKey,
};

/// A row type, by `#[derive(Table)]`.
///
/// # Safety
/// `definition` is the same at every call, and `PLACES` are the places that [`Layout::new`](crate::Layout::new) gives
/// its columns. The functions here read and write each [`RowRef`] and [`RowWriter`] only by these places and as the
/// columns' types. They pass it to no code that might do otherwise (rule 3 of [`RowRef`], rule 2 of [`RowWriter`]). The
/// derive ensures all this; there is no reason to implement the trait by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a table",
    label = "not a row type",
    note = "put #[derive(Table)] and #[table(key(...))] on the struct"
)]
pub unsafe trait Table: Sized {
    /// The table's name.
    const NAME: &'static str;
    /// Whether a table of an earlier declaration is changed to this one when it is opened.
    const EVOLVES: bool = false;
    /// The columns that had other names in earlier declarations: the new name and the old one of each.
    const RENAMED: &'static [(&'static str, &'static str)] = &[];
    /// The kind of the identity column, if there is one.
    const IDENTITY: Option<IdentityKind> = None;
    /// Where the columns lie, in order of declaration.
    const PLACES: &'static [ColumnLocation];
    /// The type of its primary key: a column's, or a tuple of columns'.
    type Key: TableKey;
    /// A row as readers see it: one accessor a column.
    type Row<'t>: Copy;
    /// A row being updated: a getter for each column, a setter for each that may change.
    type Update<'u>;

    /// The table's declaration.
    fn definition() -> TableDef;
    /// The row's primary key.
    fn key(&self) -> Self::Key;
    /// Writes all columns of a new row. `row` is of this table.
    ///
    /// # Errors
    /// At the memory limit, if a column is long text.
    fn encode(&self, row: &mut RowWriter<'_>) -> Result<(), OutOfMemory>;
    /// A row of this table as its readers see it.
    fn row(row: RowRef<'_>) -> Self::Row<'_>;
    /// A row of this table as an owned value.
    fn decode(row: RowRef<'_>) -> Self;
    /// A row of this table being updated.
    fn update(row: RowWriter<'_>) -> Self::Update<'_>;
    /// Ends an update: the columns it set.
    fn finish(update: Self::Update<'_>) -> ColumnSet;
}

/// A derived table that is ordered.
#[diagnostic::on_unimplemented(
    message = "table `{Self}` is not ordered: its rows cannot be scanned",
    label = "a table declared `hash` finds whole keys only",
    note = "declare the table `ordered`, or scan an ordered index of it, or all rows by `scan_all` or `count_all`; \
            of a type parameter, write `T: OrderedTable`"
)]
pub trait OrderedTable: Table {}

/// The queries that an index supports, by its declaration: types that index constants and handles carry.
pub mod kind {
    use super::KeyPrefix;

    /// An ordered index in which rows may share keys.
    #[derive(Clone, Copy, Debug)]
    pub enum Ordered {}

    /// A hash index in which rows may share keys.
    #[derive(Clone, Copy, Debug)]
    pub enum Hash {}

    /// An ordered index that is unique.
    #[derive(Clone, Copy, Debug)]
    pub enum UniqueOrdered {}

    /// A hash index that is unique.
    #[derive(Clone, Copy, Debug)]
    pub enum UniqueHash {}

    /// An index of which a key finds at most one row.
    #[diagnostic::on_unimplemented(
        message = "this index is not declared `unique`: rows may share a key of it, so there is no one row to get",
        label = "not a unique index",
        note = "use `find_by`, which gives all rows with a key, or declare the index `unique`"
    )]
    pub trait Unique {}

    impl Unique for UniqueOrdered {}
    impl Unique for UniqueHash {}

    /// An index with ranges.
    #[diagnostic::on_unimplemented(
        message = "this index is declared `hash`: its rows have no order to scan them in",
        label = "a hash index finds whole keys only",
        note = "use `find_by` with a whole key, or declare the index `ordered`"
    )]
    pub trait Ranged {}

    impl Ranged for Ordered {}
    impl Ranged for UniqueOrdered {}

    /// An index with keys of type `K` that finds rows by a `P`. An ordered index finds them by the first columns of a
    /// key, a hash index by a whole key.
    #[diagnostic::on_unimplemented(
        message = "an index declared `hash` finds rows by a whole key, a `{K}`, not by a `{P}`",
        label = "a hash index finds whole keys only",
        note = "write all columns of the key, or declare the index `ordered`"
    )]
    pub trait Finds<K, P> {}

    impl<K, P: KeyPrefix<K>> Finds<K, P> for Ordered {}
    impl<K, P: KeyPrefix<K>> Finds<K, P> for UniqueOrdered {}
    impl<K> Finds<K, K> for Hash {}
    impl<K> Finds<K, K> for UniqueHash {}
}

/// An index of a derived table: rows of type `T` found by keys of type `K`; `I` is its [`kind`].
pub struct IndexSpec<T, K, I = kind::Ordered> {
    id: IndexId,
    types: PhantomData<fn(K, I) -> T>,
}

impl<T, K, I> IndexSpec<T, K, I> {
    /// The index declared at this position. Only derived constants call it.
    pub const fn new(id: IndexId) -> IndexSpec<T, K, I> {
        IndexSpec { id, types: PhantomData }
    }

    /// Its position in the declaration.
    pub const fn id(&self) -> IndexId {
        self.id
    }
}

/// A column of a derived table: of rows of type `T`, with values of type `C`. Constants of the row's view
/// name them: those of `Account` are `AccountRow::BALANCE` and so on. `|` makes sets of them. Key columns and
/// immutable ones are not `UPDATABLE`.
pub struct TableColumn<T, C, const UPDATABLE: bool = true> {
    id: ColumnId,
    types: PhantomData<fn(C) -> T>,
}

impl<T, C, const U: bool> TableColumn<T, C, U> {
    /// The column declared at this position. Only derived constants call it.
    pub const fn new(id: ColumnId) -> TableColumn<T, C, U> {
        TableColumn { id, types: PhantomData }
    }

    /// Its position in the declaration.
    pub const fn id(&self) -> ColumnId {
        self.id
    }
}

/// Columns of a derived table with rows of type `T`: one [`TableColumn`], or several joined by `|`.
pub struct TableColumns<T> {
    set: ColumnSet,
    rows: PhantomData<fn() -> T>,
}

impl<T> TableColumns<T> {
    /// No column: only the existence of the row is requested.
    pub const EMPTY: TableColumns<T> = TableColumns { set: ColumnSet::EMPTY, rows: PhantomData };

    /// All columns.
    pub const ALL: TableColumns<T> = TableColumns { set: ColumnSet::ALL, rows: PhantomData };

    /// The columns.
    #[inline]
    pub const fn set(self) -> ColumnSet {
        self.set
    }
}

impl<T, C, const U: bool> From<TableColumn<T, C, U>> for TableColumns<T> {
    #[inline]
    fn from(column: TableColumn<T, C, U>) -> TableColumns<T> {
        TableColumns { set: ColumnSet::of(column.id), rows: PhantomData }
    }
}

impl<T, C, const U: bool> BitOr<TableColumn<T, C, U>> for TableColumns<T> {
    type Output = TableColumns<T>;
    #[inline]
    fn bitor(self, column: TableColumn<T, C, U>) -> TableColumns<T> {
        TableColumns { set: self.set.union(ColumnSet::of(column.id)), rows: PhantomData }
    }
}

impl<T, C, D, const U: bool, const V: bool> BitOr<TableColumn<T, D, V>> for TableColumn<T, C, U> {
    type Output = TableColumns<T>;
    #[inline]
    fn bitor(self, column: TableColumn<T, D, V>) -> TableColumns<T> {
        TableColumns::from(self) | column
    }
}

impl<T, C, const U: bool> Clone for TableColumn<T, C, U> {
    fn clone(&self) -> TableColumn<T, C, U> {
        *self
    }
}

impl<T, C, const U: bool> Copy for TableColumn<T, C, U> {}

impl<T> Clone for TableColumns<T> {
    fn clone(&self) -> TableColumns<T> {
        *self
    }
}

impl<T> Copy for TableColumns<T> {}

impl<T, C, const U: bool> std::fmt::Debug for TableColumn<T, C, U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableColumn({})", self.id)
    }
}

impl<T> std::fmt::Debug for TableColumns<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.set.fmt(f)
    }
}

/// The type of the keys of a derived table's index, by its position: generated code names it where it knows
/// the constant only.
pub trait IndexedBy<const AT: u16>: Table {
    /// The indexed columns, as in the index's [`IndexSpec`].
    type Key: TableKey;
    /// The queries that it supports: one of [`kind`].
    type Kind;
}

impl<T, K, I> Clone for IndexSpec<T, K, I> {
    fn clone(&self) -> IndexSpec<T, K, I> {
        *self
    }
}

impl<T, K, I> Copy for IndexSpec<T, K, I> {}

impl<T, K, I> std::fmt::Debug for IndexSpec<T, K, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexSpec({})", self.id)
    }
}
