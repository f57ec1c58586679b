//! What an execution really accessed, noted while it runs, for [`super::check`].

use std::hint::cold_path;
use std::ops::Bound;

use seriatim_catalog::{ColumnSet, Key, KeyBuf};
use seriatim_plan::Kind;

use super::Keys;
use crate::ReadTx;
use crate::handle::TableSet;
use crate::scan::Target;

/// Keys of an access, owned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeysSeen {
    One(KeyBuf),
    Range(Bound<KeyBuf>, Bound<KeyBuf>),
}

impl From<Keys<'_>> for KeysSeen {
    fn from(keys: Keys<'_>) -> KeysSeen {
        match keys {
            Keys::One(key) => KeysSeen::One(key.to_buf()),
            Keys::Range(low, high) => KeysSeen::Range(low.map(KeyBuf::from), high.map(KeyBuf::from)),
        }
    }
}

/// One access.
#[derive(Clone, Debug)]
pub(crate) struct Accessed {
    pub(crate) kind: Kind,
    pub(crate) table: String,
    /// The index, by its name.
    pub(crate) index: Option<String>,
    pub(crate) keys: KeysSeen,
    /// Addresses of the row images it gave out.
    pub(crate) rows: Vec<usize>,
    /// Columns an update set.
    pub(crate) set: ColumnSet,
}

impl ReadTx {
    /// Notes an access, if this transaction is watched; where.
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
        Some(self.note_access(kind, set, target, keys()))
    }

    #[cold]
    fn note_access(&self, kind: Kind, set: &TableSet, target: Target, keys: KeysSeen) -> usize {
        let index = match target {
            Target::Rows => None,
            Target::Index(at) => Some(set.definition.indexes[at].name.to_string()),
        };
        let table = set.definition.name.to_string();
        let mut accessed = self.accessed.borrow_mut();
        accessed.push(Accessed { kind, table, index, keys, rows: Vec::new(), set: ColumnSet::EMPTY });
        accessed.len() - 1
    }

    /// Notes a row that an access gave out, and what an update set in it.
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
    pub(crate) fn start_watching(&self) {
        self.accessed.borrow_mut().clear();
        self.watching.set(true);
    }

    /// Ends watching; what was accessed.
    pub(crate) fn stop_watching(&self) -> Vec<Accessed> {
        self.watching.set(false);
        self.accessed.take()
    }
}

/// One key.
pub(crate) fn one(key: Key<'_>) -> KeysSeen {
    KeysSeen::One(key.to_buf())
}
