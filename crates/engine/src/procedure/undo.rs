//! What a transaction replaced, and how it is put back: for those that speculate (Speculation §3.2).
//!
//! The rows of its tables are noted as it writes, write by write, and put back in the opposite order by an ordinary transaction, which
//! brings indexes and runs along. So whatever undoes may do nothing but what a body could: nobody sees half of it.
//!
//! What has run since must have been undone before: see promise (c) of `seriatim_partition::Partition`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use seriatim_base::panic_text;
use seriatim_catalog::{ColumnId, ColumnSet, Key, KeyBuf, Value};
use seriatim_txn::{Mode, PartitionSet, Placement, RowPtr, Worker};

use crate::error::Abort;
use crate::runtime::DynRow;
use crate::table::TableSet;
use crate::tx::{Origin, TxCore};
use crate::{Engine, Runner, TransactError};

/// One write.
#[derive(Debug)]
struct Write {
    /// The table, by its name.
    table: Arc<str>,
    key: KeyBuf,
    before: Before,
}

/// What was there before.
#[derive(Debug)]
enum Before {
    /// No row.
    Nothing,
    /// A row with these values in the columns that changed.
    Changed(Vec<(usize, Value)>),
    /// A row, which was deleted.
    Row(Vec<Value>),
}

/// The writes of a transaction, in their order.
#[derive(Debug, Default)]
pub struct Undo {
    writes: Vec<Write>,
}

impl Undo {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there is nothing to put back.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn note(&mut self, set: &TableSet, key: Key<'_>, before: Before) {
        self.writes.push(Write { table: (&*set.definition.name).into(), key: key.to_buf(), before });
    }

    pub(crate) fn inserted(&mut self, set: &TableSet, key: Key<'_>) {
        self.note(set, key, Before::Nothing);
    }

    pub(crate) fn deleted(&mut self, set: &TableSet, key: Key<'_>, row: RowPtr) {
        self.note(set, key, Before::Row(DynRow::new(set, row).values()));
    }

    pub(crate) fn updated(&mut self, set: &TableSet, key: Key<'_>, row: RowPtr, changed: ColumnSet) {
        let (row, columns) = (DynRow::new(set, row), 0..set.definition.columns.len());
        let changed = columns.filter(|at| changed.contains(ColumnId(*at as u16)));
        self.note(set, key, Before::Changed(changed.map(|at| (at, row.value(at))).collect()));
    }
}

impl<W: Worker + ?Sized> TxCore<W> {
    /// The attempts that follow note what they replace, each anew.
    pub(crate) fn keep_undo(&self, wanted: bool) {
        self.undo.replace(wanted.then(Undo::default));
        self.watching.set(wanted);
    }
}

impl TxCore {
    fn put_back(&self, set: &TableSet, write: &Write) -> Result<(), Abort> {
        let key = write.key.as_key();
        let is_there = match &write.before {
            Before::Nothing => self.delete_at(set, key)?,
            Before::Row(values) => {
                self.insert_values(set, values)?;
                true
            }
            Before::Changed(columns) => {
                let named: ColumnSet = columns.iter().map(|(at, _)| ColumnId(*at as u16)).collect();
                let written = self.update_at(set, key, named.into(), |mut writer| {
                    let (defs, places) = (&set.definition.columns, &set.layout.places);
                    let write = |(at, value): &(usize, Value)| value.write(&defs[*at], &places[*at], &mut writer);
                    let result = columns.iter().try_for_each(write);
                    (result, writer.dirty())
                })?;
                matches!(written, Some(Ok(())))
            }
        };
        if is_there { Ok(()) } else { Err(self.missing_at(&set.primary, key)) }
    }
}

impl Runner {
    /// As [`Runner::run_dyn`], alone in these partitions; what it replaced, if that is noted. `procedure` is for errors.
    ///
    /// # Errors
    /// As [`Runner::run`]. A panic of the body is an abort of its own.
    ///
    /// # Panics
    /// If the commit does: nobody knows what the database is then.
    pub fn run_alone(
        &mut self,
        procedure: &str,
        partitions: PartitionSet,
        noting: bool,
        body: &mut dyn FnMut(&mut TxCore) -> Result<(), Abort>,
    ) -> Result<Undo, TransactError> {
        self.reach(partitions);
        let run = || {
            self.run_mut(Mode::ReadWrite, Origin::Procedure, |tx| {
                tx.keep_undo(noting);
                catch_unwind(AssertUnwindSafe(|| body(tx))).unwrap_or_else(|panic| {
                    let text = panic_text(&*panic).unwrap_or_default();
                    Err(tx.abort(format!("procedure {procedure} panicked: {text}")))
                })
            })
        };
        // Nothing is noted after it, also if the commit panics.
        let ran = catch_unwind(AssertUnwindSafe(run));
        let undo = self.tx.undo.take().unwrap_or_default();
        self.tx.keep_undo(false);
        ran.unwrap_or_else(|panic| resume_unwind(panic)).map(|_| undo)
    }

    /// Puts back what a transaction of these partitions replaced.
    ///
    /// # Errors
    /// A row is not as that transaction left it, or there is no memory.
    pub fn undo(&mut self, engine: &Engine, partitions: PartitionSet, undo: &Undo) -> Result<(), TransactError> {
        // Who changed what every partition has owned all.
        let is_everywhere = |write: &Write| {
            let set = engine.find(&write.table);
            set.is_some_and(|set| matches!(set.primary.placement, Placement::Everywhere))
        };
        self.reach(if undo.writes.iter().any(is_everywhere) { PartitionSet::ALL } else { partitions });
        let mut body = |tx: &TxCore| {
            undo.writes.iter().rev().try_for_each(|write| {
                let Some(set) = engine.find(&write.table) else { return Err(tx.abort("a table is gone")) };
                tx.put_back(&set, write)
            })
        };
        self.run_dyn(Mode::ReadWrite, Origin::Procedure, &mut body).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn a_body_that_panics_has_failed_and_a_commit_that_panics_unwinds() {
        let engine =
            Settings { step_helpers: true, record_history: true, ..Settings::default() }.open().expect("memory");
        let mut runner = engine.runner();
        let failed = runner.run_alone("odd", PartitionSet::NONE, true, &mut |_| panic!("users' code"));
        assert_eq!(
            failed.expect_err("it panics").to_string(),
            "aborted by its body: procedure odd panicked: users' code"
        );
        assert!(runner.tx.undo.borrow().is_none() && !runner.tx.watching.get(), "nothing is noted after it");
        // The commit finds its recorder in use.
        let mut body = |tx: &mut TxCore| {
            std::mem::forget(tx.log.as_ref().map(|log| log.borrow_mut()));
            Ok(())
        };
        let mut commit = || runner.run_alone("odd", PartitionSet::NONE, true, &mut body).map(drop);
        assert!(catch_unwind(AssertUnwindSafe(&mut commit)).is_err());
        assert!(runner.tx.undo.borrow().is_none() && !runner.tx.watching.get(), "nothing is noted after it");
    }
}
