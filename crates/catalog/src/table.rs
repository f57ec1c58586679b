//! Tables as Rust types: what `#[derive(Table)]` implements.

use std::marker::PhantomData;

use crate::{ColumnSet, IndexId, OutOfMemory, Place, RowRef, RowWriter, TableDef, TableKey};

/// A row type, by `#[derive(Table)]`.
///
/// # Safety
/// `definition` is the same at every call, and `PLACES` are the places that [`Layout::new`](crate::Layout::new) gives its columns.
/// Every [`RowRef`] and [`RowWriter`] that is given to the functions here is read and written by these places as the columns'
/// types only, and is handed on to no code that might do otherwise (rule 3 of [`RowRef`], rule 2 of [`RowWriter`]). The derive
/// keeps all this; there is no reason to implement the trait by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a table",
    label = "not a row type",
    note = "put #[derive(Table)] and #[table(key(...))] on the struct"
)]
pub unsafe trait Table: Sized {
    /// The table's name.
    const NAME: &'static str;
    /// Where the columns lie, in order of declaration.
    const PLACES: &'static [Place];
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

/// An index of a derived table: rows of type `T` found by keys of type `K`.
pub struct IndexSpec<T, K> {
    id: IndexId,
    types: PhantomData<fn(K) -> T>,
}

impl<T, K> IndexSpec<T, K> {
    /// The index declared at this position. Derived constants call it; others are for nobody's use.
    pub const fn new(id: IndexId) -> IndexSpec<T, K> {
        IndexSpec { id, types: PhantomData }
    }

    /// Its position in the declaration.
    pub const fn id(&self) -> IndexId {
        self.id
    }
}

/// The type of the keys of a derived table's index, by its position: generated code names it where it knows the constant only.
pub trait IndexedBy<const AT: u16>: Table {
    /// The indexed columns: what the index's [`IndexSpec`] is of.
    type Key: TableKey;
}

impl<T, K> Clone for IndexSpec<T, K> {
    fn clone(&self) -> IndexSpec<T, K> {
        *self
    }
}

impl<T, K> Copy for IndexSpec<T, K> {}

impl<T, K> std::fmt::Debug for IndexSpec<T, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexSpec({})", self.id)
    }
}
