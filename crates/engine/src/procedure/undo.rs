//! The rows that a transaction replaced, and how they are restored, for speculative execution (Speculation
//! §3.2).
//!
//! Each write notes the old row of its table. An undo restores the rows in the opposite order, by an ordinary
//! transaction, which maintains indexes and runs. So an undo can do nothing that a body could not, and no
//! transaction sees half of it.
//!
//! Later transactions must have been undone before: see promise (c) of `seriatim_partition::Partition`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use seriatim_base::panic_text;
use seriatim_catalog::{ColumnId, ColumnSet, Key, KeyBuf, Value};
use seriatim_procedure::EvaluationError;
use seriatim_procedure::pack::{Pack, Unpacker, malformed, pack_bytes, pack_count};
use seriatim_txn::{Mode, PartitionSet, Placement, RowPtr};

use crate::error::Abort;
use crate::runtime::DynRow;
use crate::table::TableSet;
use crate::tx::{Origin, TxCore};
use crate::{Engine, Receipt, Runner, TransactError};

/// One write.
#[derive(Debug, PartialEq)]
struct Write {
    /// The table, by its name.
    table: Arc<str>,
    key: KeyBuf,
    before: Before,
}

/// The state before the write.
#[derive(Debug, PartialEq)]
enum Before {
    /// No row.
    Nothing,
    /// A row, with these old values in the changed columns.
    Changed(Vec<(usize, Value)>),
    /// A row, which was deleted.
    Row(Vec<Value>),
}

/// The writes of a transaction, in order. Its bytes outlive the process.
#[derive(Debug, Default, PartialEq)]
pub struct Undo {
    writes: Vec<Write>,
}

impl Undo {
    /// The number of writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there is nothing to restore.
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

impl Pack for Write {
    fn pack(&self, out: &mut Vec<u8>) {
        pack_bytes(self.table.as_bytes(), out);
        match self.key.as_key() {
            Key::Word8(word) => (0_u8, word).pack(out),
            Key::Word16(words) => (1_u8, (words >> 64) as u64, words as u64).pack(out),
            Key::Bytes(bytes) => (out.push(2), pack_bytes(bytes, out)).1,
        }
        match &self.before {
            Before::Nothing => out.push(0),
            Before::Changed(columns) => {
                out.push(1);
                pack_count(columns.len(), out);
                columns.iter().for_each(|(at, value)| ((*at as u16).pack(out), value.pack(out)).1);
            }
            Before::Row(values) => {
                out.push(2);
                values.pack(out);
            }
        }
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Write, EvaluationError> {
        let table = String::unpack(bytes)?.into();
        let key = match u8::unpack(bytes)? {
            0 => Key::Word8(u64::unpack(bytes)?).to_buf(),
            1 => Key::Word16(u128::from(u64::unpack(bytes)?) << 64 | u128::from(u64::unpack(bytes)?)).to_buf(),
            2 => Key::Bytes(bytes.bytes()?).to_buf(),
            _ => return Err(malformed()),
        };
        let before = match u8::unpack(bytes)? {
            0 => Before::Nothing,
            1 => {
                let column = |bytes: &mut Unpacker<'_>| Ok((usize::from(u16::unpack(bytes)?), Value::unpack(bytes)?));
                Before::Changed((0..bytes.count()?).map(|_| column(bytes)).collect::<Result<_, EvaluationError>>()?)
            }
            2 => Before::Row(Vec::unpack(bytes)?),
            _ => return Err(malformed()),
        };
        Ok(Write { table, key, before })
    }
}

impl Pack for Undo {
    fn pack(&self, out: &mut Vec<u8>) {
        self.writes.pack(out);
    }

    fn unpack(bytes: &mut Unpacker<'_>) -> Result<Undo, EvaluationError> {
        Ok(Undo { writes: Vec::unpack(bytes)? })
    }
}

impl TxCore {
    /// Runs `act` without noting its writes, on the undo so far.
    fn beside_undo(&mut self, act: impl FnOnce(&mut Self, &Undo) -> Result<(), Abort>) -> Result<(), Abort> {
        let (undo, watching) = (self.undo.take(), self.watching.replace(false));
        let done = act(self, undo.as_ref().unwrap_or(&Undo::default()));
        self.watching.set(watching);
        self.undo.replace(undo);
        done
    }

    /// The following attempts note the rows that they replace, each from the start.
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
    /// As [`Runner::run_dyn`], alone in these partitions. Returns the undo, if it is noted, and the receipt.
    /// After the body, `then` runs in the same transaction without being noted. `procedure` is for errors.
    ///
    /// # Errors
    /// As [`Runner::run`]. A panic of the body is an abort.
    ///
    /// # Panics
    /// If the commit panics: the state of the database is then unknown.
    pub fn run_alone(
        &mut self,
        procedure: &str,
        partitions: PartitionSet,
        noting: bool,
        body: &mut dyn FnMut(&mut TxCore) -> Result<(), Abort>,
        then: &dyn Fn(&mut TxCore, &Undo) -> Result<(), Abort>,
    ) -> Result<(Undo, Receipt), TransactError> {
        self.reach(partitions);
        let run = || {
            self.run_mut(Mode::ReadWrite, Origin::Procedure, |tx| {
                tx.keep_undo(noting);
                let done = catch_unwind(AssertUnwindSafe(|| body(tx))).unwrap_or_else(|panic| {
                    let text = panic_text(&*panic).unwrap_or_default();
                    Err(tx.abort(format!("procedure {procedure} panicked: {text}")))
                });
                done.and_then(|()| tx.beside_undo(then))
            })
        };
        // No transaction is noted afterwards, also if the commit panics.
        let ran = catch_unwind(AssertUnwindSafe(run));
        let undo = self.tx.undo.take().unwrap_or_default();
        self.tx.keep_undo(false);
        ran.unwrap_or_else(|panic| resume_unwind(panic)).map(|done| (undo, done.receipt))
    }

    /// Restores the rows that a transaction of these partitions replaced, and runs `then` in the same
    /// transaction.
    ///
    /// # Errors
    /// A row differs from what that transaction left, or there is no memory.
    pub fn undo(
        &mut self,
        engine: &Engine,
        partitions: PartitionSet,
        undo: &Undo,
        then: &dyn Fn(&TxCore) -> Result<(), Abort>,
    ) -> Result<Receipt, TransactError> {
        // A transaction that changed replicated tables owned all partitions.
        let is_everywhere = |write: &Write| {
            let set = engine.find(&write.table);
            set.is_some_and(|set| matches!(set.primary.placement, Placement::Everywhere))
        };
        self.reach(if undo.writes.iter().any(is_everywhere) { PartitionSet::ALL } else { partitions });
        let mut body = |tx: &TxCore| {
            undo.writes.iter().rev().try_for_each(|write| {
                let Some(set) = engine.find(&write.table) else { return Err(tx.abort("a table is gone")) };
                tx.put_back(&set, write)
            })?;
            then(tx)
        };
        self.run_dyn(Mode::ReadWrite, Origin::Procedure, &mut body).map(|done| done.receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn undo_as_bytes_is_the_same_undo() {
        let values = vec![Value::NONE, Value::from(u64::MAX).some(), "tëxt".into(), Value::Timestamp(9)];
        let write = |key: Key<'_>, before| Write { table: "t".into(), key: key.to_buf(), before };
        let writes = vec![
            write(Key::Word8(7), Before::Nothing),
            write(Key::Word16(u128::MAX - 5), Before::Changed(values.iter().cloned().enumerate().collect())),
            write(Key::Bytes(b"key"), Before::Row(values)),
        ];
        let undo = Undo { writes };
        let bytes = seriatim_procedure::pack::pack_all(&undo);
        assert_eq!(seriatim_procedure::pack::unpack_all::<Undo>(&bytes), Ok(undo));
        for end in 0..bytes.len() {
            assert!(seriatim_procedure::pack::unpack_all::<Undo>(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_body_that_panics_has_failed_and_a_commit_that_panics_unwinds() {
        let engine =
            Settings { step_helpers: true, record_history: true, ..Settings::default() }.open().expect("memory");
        let mut runner = engine.runner();
        let failed = runner.run_alone("odd", PartitionSet::NONE, true, &mut |_| panic!("users' code"), &|_, _| Ok(()));
        assert_eq!(failed.expect_err("it panics").to_string(), "procedure odd panicked: users' code");
        assert!(runner.tx.undo.borrow().is_none() && !runner.tx.watching.get(), "nothing is noted after it");
        // The commit finds its recorder in use.
        let mut body = |tx: &mut TxCore| {
            std::mem::forget(tx.log.as_ref().map(|log| log.borrow_mut()));
            Ok(())
        };
        let mut commit = || runner.run_alone("odd", PartitionSet::NONE, true, &mut body, &|_, _| Ok(())).map(drop);
        assert!(catch_unwind(AssertUnwindSafe(&mut commit)).is_err());
        assert!(runner.tx.undo.borrow().is_none() && !runner.tx.watching.get(), "nothing is noted after it");
    }
}
