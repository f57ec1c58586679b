//! Additions that committed and are published later (DBX-TC §3.2). A transaction's deferred additions are
//! pending from its window on until the windows are closed, for whatever reason.
//!
//! Access rules of pending additions:
//! 1. A worker's list is touched by that worker while its window is open. While no window is open, the thread that
//!    holds the turn may touch it.
//! 2. The turn is taken by one of the threads that have closed the windows. Each of them waits until nothing
//!    is pending, so that [`Windows::close`](crate::Windows::close) returns when everything is published.
//!    Nothing becomes pending before the last of them opens the windows again.
//!
//! The publisher is set once, when the database is opened. The thread that has the turn calls it. It has a bounded
//! number of attempts and ends the process if none succeeds, as what it publishes has been acknowledged. So the wait
//! for the turn ends.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::OnceLock;

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{CacheAligned, abort_on_unwind};
use seriatim_catalog::{ColumnId, KeyBuf};
use seriatim_memory::{Charge, Memory, OutOfMemory};

use crate::Table;
use crate::sync::{AtomicU32, wait_while};

/// The pending additions to one row.
#[derive(Debug)]
pub struct PendingRow {
    table: NonNull<Table>,
    /// Its key. The row exists for as long as this is pending, since a transaction that deletes a row closes
    /// the windows first.
    pub key: KeyBuf,
    /// By column.
    pub sums: Vec<PendingSum>,
    /// The transactions that added, where histories are recorded ([`Redo::defers`](crate::Redo::defers)).
    pub publishers: Vec<u64>,
}

// SAFETY: tables are shared by all threads.
unsafe impl Send for PendingRow {}

impl PendingRow {
    /// Its table, which lives as long as the database.
    pub fn table(&self) -> &Table {
        // SAFETY: tables live as long as the database, and nothing is pending without one.
        unsafe { self.table.as_ref() }
    }
}

/// The pending addition to one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSum {
    /// The column.
    pub column: ColumnId,
    /// The sum of the amounts above zero.
    pub up: i64,
    /// The sum of those below, as a positive number.
    pub down: i64,
}

/// The pending additions of a worker.
#[derive(Debug)]
pub struct Pending {
    /// By the address of the record.
    rows: HashMap<usize, PendingRow>,
    /// The memory of these, with that of the row versions that they become.
    bytes: usize,
    /// At least `bytes`: the reservation of a refuted attempt is returned with the next reservation.
    charge: Charge,
}

/// The memory of a pending row, beside the row version that it becomes.
const ROW_BYTES: usize = size_of::<PendingRow>() + 192;

fn row_bytes(table: &Table) -> usize {
    ROW_BYTES + table.record_layout.row_version_allocated
}

impl Pending {
    /// Whether `amount` more for a column of this record leaves what is pending in that direction within `most`.
    pub fn has_room(&self, record: usize, column: ColumnId, amount: i64, most: i64) -> bool {
        let sums = self.rows.get(&record).map_or(&[][..], |row| &row.sums);
        let (up, down) = sums.iter().find(|sum| sum.column == column).map_or((0, 0), |sum| (sum.up, sum.down));
        let pending = if amount < 0 { down } else { up };
        amount.checked_abs().and_then(|amount| amount.checked_add(pending)).is_some_and(|all| all <= most)
    }

    /// Makes room for rows of these tables, the memory among it that their row versions will take.
    ///
    /// # Errors
    /// The memory limit.
    pub fn reserve<'t>(&mut self, tables: impl Iterator<Item = &'t Table> + Clone) -> Result<(), OutOfMemory> {
        let bytes: usize = tables.clone().map(row_bytes).sum();
        self.charge.try_set(self.bytes + bytes)?;
        self.rows.try_reserve(tables.count()).map_err(|_| OutOfMemory)
    }

    /// Adds to a column of the row of this record, which has this key. There is room for it.
    pub fn add(
        &mut self,
        table: &Table,
        record: usize,
        key: impl FnOnce() -> KeyBuf,
        (column, amount): (ColumnId, i64),
        publisher: u64,
    ) {
        let row = self.rows.entry(record).or_insert_with(|| {
            self.bytes += row_bytes(table);
            PendingRow { table: table.into(), key: key(), sums: Vec::new(), publishers: Vec::new() }
        });
        if publisher != 0 && row.publishers.last() != Some(&publisher) {
            row.publishers.push(publisher);
        }
        let at = row.sums.iter().position(|sum| sum.column == column).unwrap_or_else(|| {
            row.sums.push(PendingSum { column, up: 0, down: 0 });
            row.sums.len() - 1
        });
        let sum = &mut row.sums[at];
        let (side, amount) = if amount < 0 { (&mut sum.down, -amount) } else { (&mut sum.up, amount) };
        *side = side.checked_add(amount).expect("there is room");
    }
}

/// Publishes what is pending, while the windows are closed.
pub type Apply = Box<dyn Fn(Vec<PendingRow>) + Send + Sync>;

/// The pending additions of all workers.
#[derive(Default)]
pub struct Deferrals {
    by_worker: OnceLock<Box<[CacheAligned<UnsafeCell<Pending>>]>>,
    apply: OnceLock<Apply>,
    /// Not zero: something is, or is being published.
    are_pending: CacheAligned<AtomicU32>,
    /// Not zero: a thread holds the turn.
    turn: AtomicU32,
    /// How often the deferrable columns of tables were set.
    changes: AtomicU64,
}

// SAFETY: access rules 1 and 2.
unsafe impl Sync for Deferrals {}

impl Deferrals {
    /// Workers of this memory may defer.
    pub fn allow(&self, memory: &Memory) {
        let pending = || Pending { rows: HashMap::new(), bytes: 0, charge: memory.charge() };
        self.by_worker
            .get_or_init(|| (0..memory.workers_max()).map(|_| CacheAligned(UnsafeCell::new(pending()))).collect());
    }

    /// Whether a worker may defer.
    pub fn are_allowed(&self) -> bool {
        self.by_worker.get().is_some()
    }

    /// Whether anything is pending. The answer is useful only to callers that know that no worker runs.
    pub fn are_pending(&self) -> bool {
        self.are_pending.load(Ordering::Acquire) != 0
    }

    /// From now on `apply` publishes what is pending.
    pub fn apply_by(&self, apply: Apply) {
        let is_first = self.apply.set(apply).is_ok();
        assert!(is_first, "one publishes what all defer");
    }

    /// The deferrable columns of tables have changed, while the windows are closed.
    pub fn note_change(&self) {
        // ORDERING: read in windows, set while none is open.
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The list of a worker, for [`Window::pending`](crate::Window::pending).
    ///
    /// # Safety
    /// The worker's window is open, and this the only reference to its list.
    #[allow(clippy::mut_from_ref, reason = "the window is the witness")]
    pub(crate) unsafe fn list(&self, worker: usize) -> Option<&mut Pending> {
        // SAFETY: access rule 1, the caller's promise.
        Some(unsafe { &mut *self.by_worker.get()?[worker].0.get() })
    }

    /// Something is pending. Called in a window.
    pub(crate) fn note(&self) {
        if self.are_pending.load(Ordering::Relaxed) == 0 {
            // ORDERING: a thread that closes the windows acquires what was released when this window was shut.
            self.are_pending.store(1, Ordering::Relaxed);
        }
    }

    /// Publishes what is pending, or waits until another has. Called when no window is open.
    #[inline]
    pub(crate) fn publish(&self) {
        // ORDERING: pairs with the release below: nothing is pending since that was published.
        if self.are_pending.load(Ordering::Acquire) != 0 {
            self.publish_in_turn();
        }
    }

    #[cold]
    fn publish_in_turn(&self) {
        // ORDERING: pairs with the release below. A failed exchange writes nothing.
        wait_while(|| self.turn.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err());
        if self.are_pending.load(Ordering::Acquire) != 0 {
            let mut rows = Vec::new();
            for list in self.by_worker.get().into_iter().flatten() {
                // SAFETY: access rules 1 and 2: no window is open, and the turn is ours.
                let list = unsafe { &mut *list.0.get() };
                rows.extend(list.rows.drain().map(|(_, row)| row));
                // It is taken for the row versions now.
                list.bytes = 0;
                list.charge.set(0);
            }
            let apply = self.apply.get().expect("deferred additions have a publisher");
            abort_on_unwind("the publication of what was deferred", || apply(rows));
            self.are_pending.store(0, Ordering::Release);
        }
        self.turn.store(0, Ordering::Release);
    }
}

impl std::fmt::Debug for Deferrals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deferrals").field("are_pending", &self.are_pending).finish_non_exhaustive()
    }
}
