//! What is built from the rows of a table while transactions run: an index, or a copy with other columns.
//!
//! Each write of a row also writes it here, in the same transaction. A walk over the rows brings those that no
//! transaction writes. Both are ordinary operations of the protocol, so none is lost and none is seen half. A write
//! that does not fit here is nevertheless valid: then what is built is given up, and the write stands.

use std::sync::{Arc, OnceLock};

use seriatim_catalog::evolution::Evolution;
use seriatim_catalog::{ColumnSet, Key, KeyBuf, RowRef, Value};
use seriatim_txn::{Cause, OnExists, Phase, Reason, RowPtr};

use crate::error::{Abort, AbortKind};
use crate::operations::{operate, read};
use crate::runtime::DynRow;
use crate::table::{Secondary, TableSet};
use crate::tx::TxCore;

/// What is built from the rows of a table.
pub(crate) struct Follower {
    pub(crate) build: Build,
    /// Why the rows do not allow it, if so.
    refused: OnceLock<String>,
}

/// What can be built.
pub(crate) enum Build {
    /// The rows, converted.
    Copy { set: Arc<TableSet>, evolution: Box<Evolution> },
    /// An index.
    Index(Arc<Secondary>),
}

/// The effect of a write on what is built.
enum Effect {
    /// Of a copy: this row is written.
    Put(Vec<Value>),
    /// Of a copy: the row with the key in this row is deleted.
    Delete(Vec<Value>),
    /// Of an index: one entry is removed, and another added.
    Entry { remove: Option<KeyBuf>, add: Option<KeyBuf> },
}

impl Follower {
    pub(crate) fn new(build: Build) -> Arc<Follower> {
        Arc::new(Follower { build, refused: OnceLock::new() })
    }

    /// Why the rows do not allow it, if so.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }

    fn refuse(&self, problem: String) {
        let _ = self.refused.set(problem);
    }

    /// The effect of a write, computed while both rows are readable.
    fn effect(&self, set: &TableSet, before: Option<RowPtr>, after: Option<RowPtr>) -> Option<Effect> {
        match &self.build {
            Build::Copy { evolution, .. } => {
                let values = |row| evolution.convert(&DynRow::new(set, row).values());
                let converted = match (before, after) {
                    (_, Some(after)) => values(after).map(Effect::Put),
                    (Some(before), None) => values(before).map(Effect::Delete),
                    (None, None) => return None,
                };
                converted.map_err(|problem| self.refuse(problem)).ok()
            }
            Build::Index(index) => {
                // SAFETY: a row of the index's table, readable during the call.
                let row = |row: RowPtr| unsafe { RowRef::from_raw(row.as_ptr()) };
                let key = |of: RowPtr| index.table.codec.encode_row(row(of), |key| key.to_buf());
                let (remove, add) = (before.map(key), after.map(key));
                (remove != add).then_some(Effect::Entry { remove, add })
            }
        }
    }

    /// Has an effect. The row's own key is `primary`.
    fn apply(&self, tx: &TxCore, primary: Key<'_>, effect: Effect) -> Result<(), Abort> {
        match (&self.build, effect) {
            (Build::Copy { set, .. }, Effect::Put(values)) => {
                self.unless_duplicate(tx.write_values(set, &values, OnExists::Replace).map(drop))
            }
            (Build::Copy { set, .. }, Effect::Delete(values)) => {
                let key = tx.key_in(set, &values)?;
                tx.delete_at(set, key.as_key()).map(drop)
            }
            (Build::Index(index), Effect::Entry { remove, add }) => {
                if let Some(key) = remove {
                    operate(tx, |worker| worker.delete(&index.table, key.as_key()))?;
                    tx.note(&index.table, key.as_key(), ColumnSet::ALL);
                    tx.wrote(&index.table, key.as_key());
                }
                add.map_or(Ok(()), |key| self.enter(tx, index, key.as_key(), primary))
            }
            _ => Ok(()),
        }
    }

    /// Enters a row into the index, unless the walk or a write has done it.
    fn enter(&self, tx: &TxCore, index: &Secondary, key: Key<'_>, primary: Key<'_>) -> Result<(), Abort> {
        match read(tx, &index.table, key, ColumnSet::ALL)? {
            None => tx.link_entry(&index.table, key, primary),
            // SAFETY: an entry of an index of a table with keys of this class, readable until the transaction ends.
            Some(entry) if unsafe { crate::index::read_primary(entry, primary.class()) } == primary => Ok(()),
            Some(_) => {
                self.refuse(format!("two rows have {}", index.table.codec.describe(key)));
                Ok(())
            }
        }
    }

    /// A row that contradicts a unique index of the copy ends the copy, not the transaction.
    fn unless_duplicate(&self, written: Result<(), Abort>) -> Result<(), Abort> {
        match written {
            Err(abort) if abort.kind() == AbortKind::Duplicate => {
                self.refuse(crate::TransactError::from(abort).to_string());
                Ok(())
            }
            written => written,
        }
    }

    /// Brings a row that may not be there yet; `set` is its table.
    pub(crate) fn bring(&self, tx: &TxCore, set: &TableSet, key: Key<'_>) -> Result<(), Abort> {
        let Some(row) = tx.read_row(set, key, ColumnSet::ALL)? else { return Ok(()) };
        let Some(effect) = self.effect(set, None, Some(row)) else { return Ok(()) };
        match (&self.build, effect) {
            (Build::Copy { set: copy, .. }, Effect::Put(values)) => {
                let key = tx.key_in(copy, &values)?;
                // A write has brought it already, or the walk shows it twice.
                if tx.read_row(copy, key.as_key(), ColumnSet::EMPTY)?.is_some() {
                    return Ok(());
                }
                self.unless_duplicate(tx.insert_values(copy, &values))
            }
            (_, effect) => self.apply(tx, key, effect),
        }
    }
}

impl TxCore {
    /// Has what is built from a table follow the write of a row.
    #[cold]
    pub(crate) fn follow_row(
        &self,
        set: &TableSet,
        primary: Key<'_>,
        before: Option<RowPtr>,
        after: Option<RowPtr>,
    ) -> Result<(), Abort> {
        let live = set.followers.iter().filter(|follower| follower.refusal().is_none());
        // All before the first write: rows may lie where the next operation writes.
        let effects: Vec<_> =
            live.filter_map(|follower| Some((follower, follower.effect(set, before, after)?))).collect();
        // The writes are not those of the body.
        let (watching, undo) = (self.watching.replace(false), self.undo.take());
        let followed = effects.into_iter().try_for_each(|(follower, effect)| {
            follower.apply(self, primary, effect).map_err(|abort| self.without(follower, abort))
        });
        self.watching.set(watching);
        *self.undo.borrow_mut() = undo;
        followed
    }

    /// If there is no memory for what is built, it is given up, and the transaction begins again.
    fn without(&self, follower: &Follower, abort: Abort) -> Abort {
        if abort.cause().is_none_or(|cause| cause.reason != Reason::OutOfMemory) {
            return abort;
        }
        follower.refuse(self.no_room().to_string());
        self.too_large.take();
        self.stop_instead(Cause { phase: Phase::Execute, reason: Reason::TableChanging })
    }
}
