//! A protocol that gives out copies of rows, as a protocol that updates in place would. It overwrites each
//! copy with poison as soon as the contract allows ("rules for rows"). A caller that keeps a row too long reads poison.
//!
//! - Rows that were read lie in memory of the attempt, which is counted, until the transaction ends. The
//!   poisoned copies stay allocated until the worker's next transaction ends, so that a late reader finds
//!   poison and not a freed block.
//! - Rows of transient steps lie in the scan's buffer until its next step, which uses another block.
//! - Peeked rows lie in the caller's buffer until it is used again.
//! - Rows are reported from copies that are gone when the report returns.
//!
//! Rows that a transaction writes (`Staged`, `Updating::after`), the fixed part of a row and its out-of-line
//! values are not copied.

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::{Charge, Memory, OutOfMemory};
use seriatim_protocol::dbx::Dbx;
use seriatim_txn::{
    Added, Addition, Before, Cause, Core, Inserted, Mode, OnExists, OpError, Outcome, Peeked, Phase, Priority,
    Protocol, ProtocolInfo, Reason, Redo, RowBuffer, RowPtr, Scan, Staged, Table, Updating, Worker,
};

use crate::altered::{Alteration, Altered};
use crate::delegate::delegate;

/// The protocol's name.
pub const NAME: &str = "copying";

/// The protocol.
pub type Copying = Altered<Copies>;

/// What differs from the default protocol.
#[derive(Debug)]
pub struct Copies;

impl Alteration for Copies {
    type Base = Dbx;
    type Worker = Copier;
    const INFO: ProtocolInfo = ProtocolInfo { name: NAME, options: &[], ..Dbx::INFO };

    fn worker(base: &Dbx, core: Core, memory: &Memory) -> Copier {
        let (inner, copies, gone) = (Box::new(base.worker(core)), Vec::new(), Vec::new());
        Copier { inner, copies, gone, spare: RowBuffer::default(), charge: memory.charge() }
    }

    fn peeked(table: &Table, peeked: Peeked, buffer: &mut RowBuffer) -> Peeked {
        match peeked {
            Peeked::Row(tid, row) => Peeked::Row(tid, copy(table, row, buffer)),
            other => {
                buffer.fill(POISON);
                other
            }
        }
    }
}

/// Every byte of a row that is gone: no address of this process, and hardly a value of a test.
pub const POISON: u8 = 0xD9;

/// Copies a row into a buffer whose other bytes are all poison.
fn copy(table: &Table, row: RowPtr, buffer: &mut RowBuffer) -> RowPtr {
    buffer.fill(POISON);
    let copy = buffer.room(table);
    // SAFETY: the inner protocol's row is of this table, and readable until the transaction ends or the worker goes
    // offline. The buffer has room for it.
    unsafe { copy.copy_from_nonoverlapping(row, table.record_layout.row) };
    copy
}

/// The inner protocol's worker, with copies of rows.
pub struct Copier {
    inner: Box<dyn Worker>,
    /// Rows that the open transaction got.
    copies: Vec<RowBuffer>,
    /// Rows of the previous transaction, poisoned.
    gone: Vec<RowBuffer>,
    /// The block of an earlier step of a scan, poisoned.
    spare: RowBuffer,
    charge: Charge,
}

impl Copier {
    /// A copy that lasts until the transaction ends.
    fn keep(&mut self, table: &Table, row: RowPtr) -> Result<RowPtr, OpError> {
        let full = |OutOfMemory| OpError::Abort(Cause { phase: Phase::Execute, reason: Reason::OutOfMemory });
        let mut buffer = RowBuffer::default();
        let copy = copy(table, row, &mut buffer);
        self.charge.try_set(self.charge.bytes() + buffer.bytes() + size_of::<RowBuffer>()).map_err(full)?;
        self.copies.push(buffer);
        Ok(copy)
    }

    fn keep_any(&mut self, table: &Table, row: Option<RowPtr>) -> Result<Option<RowPtr>, OpError> {
        row.map(|row| self.keep(table, row)).transpose()
    }

    /// The transaction has ended.
    fn leave(&mut self) {
        self.copies.iter_mut().for_each(|copy| copy.fill(POISON));
        self.gone = std::mem::take(&mut self.copies);
        self.charge.set(0);
    }
}

/// Reports from copies.
pub struct CopyingRedo<'r> {
    /// Gets the reports.
    pub inner: &'r mut dyn Redo,
    /// The row before.
    pub before: RowBuffer,
    /// The row after.
    pub after: RowBuffer,
}

impl Redo for CopyingRedo<'_> {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        let before = before.map(|before| Before { row: copy(table, before.row, &mut self.before), ..before });
        let after = after.map(|after| copy(table, after, &mut self.after));
        self.inner.write(table, key, tid, before, after);
        self.before.fill(POISON);
        self.after.fill(POISON);
    }

    fn add(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Before, after: RowPtr) {
        let before = Before { row: copy(table, before.row, &mut self.before), ..before };
        let after = copy(table, after, &mut self.after);
        self.inner.add(table, key, tid, before, after);
        self.before.fill(POISON);
        self.after.fill(POISON);
    }

    fn defers(&mut self) -> u64 {
        self.inner.defers()
    }

    fn listens(&self) -> bool {
        self.inner.listens()
    }
}

impl Worker for Copier {
    delegate! {
        fn begin(&mut self, mode: Mode, priority: Priority);
        fn add(&mut self, table: &Table, key: Key<'_>, addition: Addition) -> Result<Added, OpError>;
    }

    fn read(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        let row = self.inner.read(table, key, columns)?;
        self.keep_any(table, row)
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        Ok(match self.inner.insert(table, key, staged, exists)? {
            Inserted::New => Inserted::New,
            Inserted::Exists(row) => Inserted::Exists(self.keep(table, row)?),
            Inserted::Replaced(row) => Inserted::Replaced(self.keep(table, row)?),
        })
    }

    fn update(&mut self, table: &Table, key: Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, OpError> {
        let Some(Updating { before, after }) = self.inner.update(table, key, columns)? else { return Ok(None) };
        Ok(Some(Updating { before: self.keep(table, before)?, after }))
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        let row = self.inner.delete(table, key)?;
        self.keep_any(table, row)
    }

    fn scan_next(&mut self, table: &Table, scan: &mut Scan, columns: ColumnSet) -> Result<Option<RowPtr>, OpError> {
        // The row of the last step is gone in any case.
        scan.buffer.fill(POISON);
        let Some(row) = self.inner.scan_next(table, scan, columns)? else { return Ok(None) };
        if !scan.transient {
            return self.keep(table, row).map(Some);
        }
        std::mem::swap(&mut scan.buffer, &mut self.spare);
        Ok(Some(copy(table, row, &mut scan.buffer)))
    }

    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        let mut redo = CopyingRedo { inner: redo, before: RowBuffer::default(), after: RowBuffer::default() };
        let outcome = self.inner.commit(&mut redo)?;
        if let Outcome::Committed(_) = outcome {
            self.leave();
        }
        Ok(outcome)
    }

    fn abort(&mut self) {
        self.inner.abort();
        self.leave();
    }
}
