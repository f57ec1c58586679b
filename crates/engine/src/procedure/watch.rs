//! Records the accesses of an execution while it runs, to compare them with its plan.

use std::hint::cold_path;
use std::ops::Bound;

use seriatim_catalog::{ColumnSet, Key, KeyBuf};
use seriatim_procedure::plan::Kind;

use crate::scan::Target;
use crate::table::TableSet;
use crate::tx::TxCore;

/// The keys of an access, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum KeysSeen {
    /// One key.
    One(KeyBuf),
    /// All keys between two bounds.
    Range(Bound<KeyBuf>, Bound<KeyBuf>),
}

/// One access.
#[derive(Clone, Debug)]
pub struct Accessed {
    /// The kind of the access.
    pub kind: Kind,
    /// The table, by its name.
    pub table: String,
    /// The index, by its name.
    pub index: Option<String>,
    /// Its keys.
    pub keys: KeysSeen,
    /// Addresses of the row versions that it gave out.
    pub rows: Vec<usize>,
    /// Columns an update set.
    pub set: ColumnSet,
}

impl TxCore {
    /// Records an access, if this transaction is watched; returns its number.
    #[inline]
    pub(crate) fn watch(
        &self,
        kind: Kind,
        set: &TableSet,
        target: Target,
        keys: impl FnOnce() -> KeysSeen,
    ) -> Option<usize> {
        if !self.watching.get() {
            return None;
        }
        cold_path();
        self.note_access(kind, set, target, keys)
    }

    #[cold]
    fn note_access(
        &self,
        kind: Kind,
        set: &TableSet,
        target: Target,
        keys: impl FnOnce() -> KeysSeen,
    ) -> Option<usize> {
        if let Some(undo) = &mut *self.undo.borrow_mut() {
            // Updates and deletions are recorded where the old row is available.
            if kind == Kind::Insert
                && let KeysSeen::One(key) = keys()
            {
                undo.inserted(set, key.as_key());
            }
            return None;
        }
        let keys = keys();
        let index = match target {
            Target::Rows => None,
            Target::Index(at) => Some(set.definition.indexes[at].name.to_string()),
        };
        let table = set.definition.name.to_string();
        let mut accessed = self.accessed.borrow_mut();
        accessed.push(Accessed { kind, table, index, keys, rows: Vec::new(), set: ColumnSet::EMPTY });
        Some(accessed.len() - 1)
    }

    /// Records a row that an access gave out, and the columns that an update set in it.
    #[inline]
    pub(crate) fn watch_row(&self, access: Option<usize>, row: Option<*const u8>, set: ColumnSet) {
        if let (Some(at), Some(row)) = (access, row) {
            self.note_row(at, row, set);
        }
    }

    #[cold]
    fn note_row(&self, at: usize, row: *const u8, set: ColumnSet) {
        if let Some(accessed) = self.accessed.borrow_mut().get_mut(at) {
            accessed.rows.push(row.addr());
            accessed.set = accessed.set.union(set);
        }
    }

    /// Begins to watch this thread's accesses in this transaction.
    pub fn start_watching(&self) {
        self.accessed.borrow_mut().clear();
        self.watching.set(true);
    }

    /// Ends watching; returns the accesses.
    pub fn stop_watching(&self) -> Vec<Accessed> {
        self.watching.set(false);
        self.accessed.take()
    }
}

/// One key.
pub(crate) fn one(key: Key<'_>) -> KeysSeen {
    KeysSeen::One(key.to_buf())
}
