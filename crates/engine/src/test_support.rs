//! Hooks for tests: all rows, results before they may be returned, and actions between two chunks of a
//! checkpoint.

use std::cell::Cell;
use std::collections::BTreeSet;

use seriatim_catalog::{ColumnSet, KeyBuf};
use seriatim_procedure::plan::Plan;
use seriatim_store::read_key;
use seriatim_txn::Runs;

pub use seriatim_test_protocols as protocols;

use crate::operations::read;
use crate::procedure::gate::WAIT_MAX;
use crate::procedure::repair::{Again, Repairs};
use crate::{Abort, Committed, DynHandle, DynRow, Engine, Pending, TransactError};

/// An action between two chunks of a checkpoint.
pub type Between = Box<dyn FnMut()>;

thread_local! {
    static BETWEEN: Cell<Option<Between>> = const { Cell::new(None) };
}

/// Runs `take`, and `between` after each chunk of a checkpoint that this thread takes in it.
pub fn between_chunks<R>(between: Between, take: impl FnOnce() -> R) -> R {
    BETWEEN.set(Some(between));
    let result = take();
    BETWEEN.set(None);
    result
}

/// Called after a chunk of a checkpoint was written.
pub(crate) fn after_chunk() {
    if let Some(mut between) = BETWEEN.take() {
        between();
        BETWEEN.set(Some(between));
    }
}

/// Operations that the repairing protocol for tests can repeat together: stale ones, those that depend on them, and
/// later ones that write, which it drops.
pub fn closed(plan: &Plan, repairs: &Repairs, stale: Vec<usize>) -> Vec<u16> {
    let mut again: Vec<u16> = stale.into_iter().map(|id| id as u16).collect();
    loop {
        let stale: Vec<Runs> = again.iter().map(|id| Runs::all(*id)).collect();
        let made = repairs.after(&stale, &|_, _| {});
        let more = || (0..made.len()).filter(|id| made[*id] != Again::Kept);
        let after = |id: &usize| {
            let loops = &plan.operations[*id].loops;
            let shares = |first: usize| plan.operations[first].loops.iter().any(|at| loops.contains(at));
            more().any(|first| first < *id || shares(first))
        };
        let dropped = (0..made.len()).filter(|id| plan.operations[*id].changes() && after(id));
        let all: BTreeSet<u16> = more().chain(dropped).map(|id| id as u16).collect();
        let all: Vec<u16> = all.into_iter().collect();
        if all == again {
            return again;
        }
        again = all;
    }
}

impl DynHandle {
    /// The table's number in the log; those of its indexes follow.
    pub fn number_in_log(&self) -> u32 {
        self.set.primary.id.0
    }
}

impl<R> Pending<R> {
    /// The result that it will return once durable. Not for a caller that reports what it saw.
    pub fn decided(&self) -> Option<&Result<Committed<R>, TransactError>> {
        self.result()
    }
}

impl Engine {
    /// Makes a snapshot, if snapshots are made periodically.
    pub fn make_snapshot(&self) {
        self.inner().environment.advance_snapshot();
    }

    /// Advances the epoch, and makes a snapshot if snapshots are made periodically.
    pub fn advance_epoch(&self) {
        self.inner().environment.advance_epoch();
    }

    /// Steps the logger with this number, if it exists.
    pub fn step_logger(&self, logger: usize) {
        if let Some(persistence) = &self.inner().persistence {
            persistence.step_logger(logger);
        }
    }

    /// Whether deferred additions are not yet published. No transaction may run meanwhile.
    pub fn has_deferred(&self) -> bool {
        self.inner().environment.epochs.windows().deferrals().are_pending()
    }

    /// The epoch now.
    pub fn epoch_now(&self) -> u64 {
        self.inner().environment.epochs.current().0
    }

    /// Every row of every table in words, sorted. No transaction may run meanwhile.
    ///
    /// # Errors
    /// A transaction is open.
    pub fn contents(&self) -> Result<Vec<String>, TransactError> {
        let mut runner = self.runner();
        let mut rows = Vec::new();
        for name in self.table_names() {
            let Some(set) = self.inner().find(&name) else { continue };
            let table = &set.primary;
            let keys = || {
                let mut keys: Vec<KeyBuf> = Vec::new();
                // SAFETY: no transaction is open, so no worker uses an index, and its records stay.
                unsafe { table.index.for_each(|record| keys.push(read_key(record, table.class).to_buf())) };
                keys
            };
            let keys = self.inner().quietly(WAIT_MAX, keys).ok_or(TransactError::WorkersBusy)?;
            let read = runner.transact(|tx| {
                let mut rows = Vec::new();
                for key in &keys {
                    let Some(row) = read(tx, table, key.as_key(), ColumnSet::ALL)? else { continue };
                    set.each_row(key.as_key(), row, |_, row| {
                        rows.push(format!("{name} {:?}", DynRow::new(&set, row)));
                        Ok::<(), Abort>(())
                    })?;
                }
                Ok(rows)
            })?;
            rows.extend(read.into_value());
        }
        rows.sort_unstable();
        Ok(rows)
    }
}
