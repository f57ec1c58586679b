//! Handles of tables and indexes, by the types of rows and keys.

use std::marker::PhantomData;
use std::sync::Arc;

use seriatim_catalog::{IndexSpec, Table, TableDef, kind};
use seriatim_engine::{Secondary, TableSet};

/// A table of a database, for rows of type `T`. Cheap to clone, shared between threads.
pub struct Handle<T> {
    pub(crate) set: Arc<TableSet>,
    rows: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        Handle { set: Arc::clone(&self.set), rows: PhantomData }
    }
}

impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.set.definition.name)
    }
}

impl<T: Table> Handle<T> {
    pub(crate) fn new(set: Arc<TableSet>) -> Handle<T> {
        Handle { set, rows: PhantomData }
    }

    /// The index that a constant of the derived table names, such as `Customer::BY_NAME`.
    pub fn index<K, I>(&self, spec: IndexSpec<T, K, I>) -> IndexHandle<T, K, I> {
        let (set, at) = (Arc::clone(&self.set), spec.id().index());
        IndexHandle { secondary: set.index_at(at), set, at, types: PhantomData }
    }

    /// How the table is declared.
    pub fn definition(&self) -> &TableDef {
        &self.set.definition
    }
}

/// A secondary index of a table: rows of type `T`, found by keys of type `K`. `I` says what it can be asked: one of
/// [`catalog::kind`](kind), as it is declared.
pub struct IndexHandle<T, K, I = kind::Ordered> {
    pub(crate) set: Arc<TableSet>,
    pub(crate) at: usize,
    secondary: Arc<Secondary>,
    types: PhantomData<fn(K, I) -> T>,
}

impl<T, K, I> IndexHandle<T, K, I> {
    pub(crate) fn secondary(&self) -> &Secondary {
        &self.secondary
    }
}

impl<T, K, I> Clone for IndexHandle<T, K, I> {
    fn clone(&self) -> IndexHandle<T, K, I> {
        let (set, secondary) = (Arc::clone(&self.set), Arc::clone(&self.secondary));
        IndexHandle { set, at: self.at, secondary, types: PhantomData }
    }
}

impl<T, K, I> std::fmt::Debug for IndexHandle<T, K, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexHandle({})", self.secondary().table.name)
    }
}
