//! Checkpoints of an open database: all rows are written while transactions run, so that the log before them
//! can be deleted.
//!
//! Checkpoints are fuzzy, in the same way for every protocol: a row is written with the TID that it has when
//! the walk reaches it. Rows that changed since the checkpoint began are left out, as the log has them as a
//! whole ([`WholeBefore`](super::log::WholeBefore)). So rows inserted ahead of the walk cost it nothing.
//! `seriatim_redo::checkpoint` says why the checkpoint and the log from its first epoch on are a consistent
//! state.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{Epoch, thread};
use seriatim_catalog::RowRef;
use seriatim_redo::checkpoint::{CheckpointWriter, PartTotals, PartWriter};
use seriatim_redo::manifest::Checkpoint as Complete;
use seriatim_txn::Wire;

use super::NO_WORKER;
use super::clean::{delete_superfluous, delete_unnamed};
use super::persistence::Persistence;
use super::reserve::is_full;
use super::rows::{Room, Rows, Stuck, Take, WalkedRow, Walker};
use super::throttle::{Limits, Machine, Throttle};
use crate::engine::Inner;
use crate::error::StorageError;

/// A completed checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Rows of tables written; rows that changed since it began are in the log instead.
    pub rows: u64,
    /// Bytes on disk, compressed.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
    /// Log segments and checkpoints that were not needed any more and were deleted.
    /// [`LogStatistics`](crate::LogStatistics) reports what could not be deleted.
    pub deleted: usize,
}

impl From<Stuck> for StorageError {
    fn from(Stuck: Stuck) -> StorageError {
        StorageError::Stopped("a commit did not end while a checkpoint was taken".to_owned())
    }
}

/// Takes a checkpoint; waits while another is being taken.
///
/// # Errors
/// An error of the file system, or a log that has stopped. The previous checkpoint stays valid.
pub(crate) fn take(inner: &Inner, persistence: &Persistence) -> Result<Checkpoint, StorageError> {
    let memory_bytes = inner.environment.memory.in_use_bytes();
    let machine = Machine::new(inner, persistence);
    take_within(inner, persistence, Limits::of(&inner.options, memory_bytes, &machine))
}

/// As [`take`], within other limits.
pub(super) fn take_within(
    inner: &Inner,
    persistence: &Persistence,
    limits: Limits<'_>,
) -> Result<Checkpoint, StorageError> {
    let _one_at_a_time = persistence.without_checkpoint();
    let log_bytes = log_bytes(persistence);
    let taken = take_alone(inner, persistence, limits);
    persistence.checkpoints.lock().unwrap_or_else(PoisonError::into_inner).ended(&taken, log_bytes);
    taken
}

fn log_bytes(persistence: &Persistence) -> u64 {
    persistence.log().statistics().bytes
}

fn take_alone(inner: &Inner, persistence: &Persistence, limits: Limits<'_>) -> Result<Checkpoint, StorageError> {
    let began = Instant::now();
    if let Some(reason) = persistence.log().durable().stop_reason() {
        // Perhaps the manifest could not be synced: then it is unknown which checkpoint is valid.
        return Err(StorageError::Stopped(reason));
    }
    // Otherwise each attempt would write a checkpoint before the failure is noticed.
    if let Some(error) = persistence.home().disk.failed_sync(&persistence.home().directory) {
        return Err(StorageError::io("taking a checkpoint")(error));
    }
    // First, as files of an earlier attempt may take the space that is missing.
    delete_unnamed(persistence);
    let reserve = &persistence.home().reserve;
    let write = || write(inner, persistence, limits).inspect_err(|_| delete_unnamed(persistence));
    let (begin, complete, rows) = loop {
        match write() {
            // A checkpoint frees more space than it takes. The reserve of an opening is used last: an opening after a
            // power cut finds that space in the remains of the checkpoint.
            Err(error) if is_full(&error) && (reserve.give(1) || reserve.give(0)) => {}
            written => break written.inspect_err(|_| reserve.fill())?,
        }
    };
    let name = || persistence.change(|manifest| manifest.checkpoint = Some(complete.clone()));
    let named = match name() {
        Err(error) if is_full(&error) && !persistence.log().durable().is_stopped() && reserve.give(0) => name(),
        named => named,
    };
    if named.is_err() && !persistence.log().durable().is_stopped() {
        delete_unnamed(persistence);
    }
    named?;
    // The checkpoint is valid now: nothing below can make it fail.
    let deleted = delete_superfluous(persistence, begin);
    reserve.fill();
    Ok(Checkpoint { rows, bytes: complete.bytes, duration: began.elapsed(), deleted })
}

/// Writes a checkpoint that the manifest does not name yet. Returns also the epoch in which it begins, and the number
/// of its rows without those of the catalogue.
fn write(inner: &Inner, persistence: &Persistence, limits: Limits<'_>) -> Result<(Epoch, Complete, u64), StorageError> {
    let home = persistence.home();
    if persistence.are_epochs_far() {
        persistence.record()?;
    }
    // When earlier epochs are durable, their commits are in memory; the log has all later ones.
    let whole_rows = persistence.whole_before.begin(|| persistence.advance());
    let begin = whole_rows.begin;
    #[cfg(feature = "canary")]
    let whole_rows = (inner.options.log_fault != seriatim_redo::LogFault::ForgetWhole).then_some(whole_rows);
    persistence.wait_for(Epoch(begin.0 - 1))?;
    let rate = limits.bytes_per_second;
    let database = home.manifest().database;
    let writer = CheckpointWriter::begin(Arc::clone(&home.disk), &home.directory, database, begin, rate)?;
    let parts = write_rows(inner, persistence, &writer, begin, limits)?;
    // Rows of an epoch that a power cut could undo must not count: the checkpoint is valid once its last epoch
    // is durable.
    let end = persistence.record()?;
    drop(whole_rows);
    #[cfg(feature = "canary")]
    if inner.options.log_fault == seriatim_redo::LogFault::DeleteEarly {
        persistence.log().delete_before(begin)?;
    }
    let rows = parts.iter().map(|part| part.rows - part.catalogue_rows).sum();
    Ok((begin, writer.finish(parts, end)?, rows))
}

/// Writes the rows of the catalogue and of all tables; each thread writes a part.
fn write_rows(
    inner: &Inner,
    persistence: &Persistence,
    writer: &CheckpointWriter,
    begin: Epoch,
    limits: Limits<'_>,
) -> Result<Vec<PartTotals>, StorageError> {
    let catalogue = inner.catalogue().ok_or(StorageError::Forked)?;
    let own = [Rows::new(&catalogue.set.primary)];
    let sets = inner.sets();
    let tables: Vec<Rows<'_>> = sets.iter().flat_map(|set| set.row_tables()).map(Rows::new).collect();
    let (log_bytes, late_after) = (log_bytes(persistence), limits.late_after.max(1));
    let work = |number: usize, _| -> Result<PartTotals, StorageError> {
        let core = inner.environment.core().ok_or_else(|| StorageError::Stopped(NO_WORKER.to_owned()))?;
        let mut walker = Walker::new(inner.protocol.as_ref(), core);
        let part = writer.part(number as u32)?;
        let throttle = Throttle::new(limits);
        let mut filling = Filling { part, wire: None, begin, throttle, log_bytes, late_after, persistence };
        if number == 0 {
            filling.part.set_catalogue(true)?;
            filling.take_all(&mut walker, &own)?;
            filling.part.set_catalogue(false)?;
        }
        filling.take_all(&mut walker, &tables)?;
        filling.part.finish()
    };
    thread::crew(inner.options.helpers(), work).into_iter().collect()
}

/// One part, written by one thread.
struct Filling<'c> {
    part: PartWriter,
    /// How rows of the current table are written.
    wire: Option<&'c Wire>,
    /// The epoch in which the checkpoint began.
    begin: Epoch,
    throttle: Throttle<'c>,
    /// Bytes of log when the checkpoint began.
    log_bytes: u64,
    late_after: u64,
    persistence: &'c Persistence,
}

impl<'c> Filling<'c> {
    /// Writes the rows of these tables that no other thread writes.
    fn take_all(&mut self, walker: &mut Walker<'_>, tables: &[Rows<'c>]) -> Result<(), StorageError> {
        for rows in tables {
            self.wire = rows.table().wire.as_deref();
            while walker.chunk_in_pieces(rows, self)? {
                self.rest(Duration::ZERO)?;
                #[cfg(feature = "test-support")]
                crate::test_support::after_chunk();
            }
        }
        Ok(())
    }

    /// Pauses, to leave processors and disk to transactions.
    fn rest(&mut self, ahead: Duration) -> Result<(), StorageError> {
        let haste = || 1 + log_bytes(self.persistence).saturating_sub(self.log_bytes) / self.late_after;
        match self.throttle.rest(ahead, &haste, &|| self.persistence.is_closing()) {
            true => Ok(()),
            false => Err(StorageError::Stopped("the database is being closed".to_owned())),
        }
    }
}

impl Take for Filling<'_> {
    type Error = StorageError;

    fn take(&mut self, found: &WalkedRow<'_>) -> Room {
        let Some(wire) = self.wire else { return Room::Available };
        if found.tid.epoch() >= self.begin {
            // The log has the whole row: see `WholeBefore`.
            return Room::Available;
        }
        // SAFETY: a row of this table, readable during the call.
        let row = unsafe { RowRef::from_raw(found.row.as_ptr()) };
        self.part.row(wire.layout, &wire.rows, found.key, found.tid, row);
        if self.part.is_full() { Room::None } else { Room::Available }
    }

    fn make_room(&mut self) -> Result<(), StorageError> {
        let ahead = self.part.flush()?;
        self.rest(ahead)
    }
}
