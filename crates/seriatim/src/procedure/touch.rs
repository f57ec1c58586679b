//! Accesses of an execution that are known before it runs.

use std::ops::{Bound, RangeBounds};

use seriatim_catalog::{Key, KeyBuf, KeyPrefix, Table, TableKey};
use seriatim_engine::procedure::reach;
use seriatim_procedure::ir::OperationId;

use crate::tx::encode_bounds;
use crate::{Handle, IndexHandle};

/// Whether an access reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// A read.
    Read,
    /// An insert, update or delete.
    Write,
}

/// The encoded keys of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys<'k> {
    /// One key.
    One(Key<'k>),
    /// All keys between two bounds.
    Range(Bound<Key<'k>>, Bound<Key<'k>>),
}

/// One access whose keys are known before the procedure runs.
#[derive(Clone, Copy, Debug)]
pub struct Touch<'k> {
    /// The operation that will make it.
    pub operation: OperationId,
    /// The table or index (`table.index`) whose keys these are.
    pub table: &'k str,
    /// Whether the access reads or writes.
    pub access: Access,
    /// The keys of the rows or entries.
    pub keys: Keys<'k>,
}

type Visit<'v> = &'v mut dyn FnMut(Touch<'_>);

/// The functions from which generated footprints are made: each encodes a key or range and visits it.
impl Touch<'_> {
    /// Visits the keys as two bounds; one key is both.
    pub(crate) fn bounds(&self, visit: &mut reach::Visit<'_>) {
        let operation = self.operation.index();
        match self.keys {
            Keys::One(key) => visit(operation, Bound::Included(key), Bound::Included(key)),
            Keys::Range(low, high) => visit(operation, low, high),
        }
    }

    /// Visits one key of a table.
    pub fn key<T: Table>(operation: OperationId, access: Access, table: &Handle<T>, key: &T::Key, visit: Visit<'_>) {
        key.encode(|key| {
            visit(Touch { operation, table: &table.set.primary.name, access, keys: Keys::One(key) });
        });
    }

    /// Visits one key of a unique index.
    pub fn index_key<T: Table, K: TableKey, I>(
        operation: OperationId,
        access: Access,
        index: &IndexHandle<T, K, I>,
        key: &K,
        visit: Visit<'_>,
    ) {
        let seriatim_txn::Table { name: table, codec, .. } = &index.secondary().table;
        let touch = |key: Key<'_>| visit(Touch { operation, table, access, keys: Keys::One(key) });
        key.encode(|key| codec.entry_key(key, touch));
    }

    /// Visits the keys of a table that begin with `prefix`.
    pub fn prefix<T: Table, P: KeyPrefix<T::Key>>(
        operation: OperationId,
        table: &Handle<T>,
        prefix: &P,
        visit: Visit<'_>,
    ) {
        let range = table.set.primary.codec.range_of_prefix(prefix);
        ranged(operation, &table.set.primary.name, &range.low, &range.high, visit);
    }

    /// Visits the keys of an index that begin with `prefix`.
    pub fn index_prefix<T: Table, K: TableKey, P: KeyPrefix<K>, I>(
        operation: OperationId,
        index: &IndexHandle<T, K, I>,
        prefix: &P,
        visit: Visit<'_>,
    ) {
        let table = &index.secondary().table;
        if table.organization == seriatim_catalog::Organization::Hash {
            let (key, access) = (table.codec.key_of(prefix), Access::Read);
            return visit(Touch { operation, table: &table.name, access, keys: Keys::One(key.as_key()) });
        }
        let range = table.codec.range_of_prefix(prefix);
        ranged(operation, &table.name, &range.low, &range.high, visit);
    }

    /// Visits the keys of a table between two bounds.
    pub fn range<T: Table>(
        operation: OperationId,
        table: &Handle<T>,
        range: impl RangeBounds<T::Key>,
        visit: Visit<'_>,
    ) {
        let (low, high) = encode_bounds(&range);
        ranged(operation, &table.set.primary.name, &low, &high, visit);
    }

    /// Visits the keys of an index between two bounds.
    pub fn index_range<T: Table, K: TableKey, I>(
        operation: OperationId,
        index: &IndexHandle<T, K, I>,
        range: impl RangeBounds<K>,
        visit: Visit<'_>,
    ) {
        let table = &index.secondary().table;
        let range = table.codec.range_between(range.start_bound(), range.end_bound());
        ranged(operation, &table.name, &range.low, &range.high, visit);
    }
}

fn ranged(operation: OperationId, table: &str, low: &Bound<KeyBuf>, high: &Bound<KeyBuf>, visit: Visit<'_>) {
    let keys = Keys::Range(low.as_ref().map(KeyBuf::as_key), high.as_ref().map(KeyBuf::as_key));
    visit(Touch { operation, table, access: Access::Read, keys });
}
