//! Checkpoints of an open database: all rows, while transactions go on, so that the log before them can go.
//!
//! Fuzzy, for every protocol alike: each row with the stamp it happens to have when the walk comes by. `seriatim_redo::checkpoint`
//! says why that and the log from the pass's first epoch on make a state.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{Epoch, thread};
use seriatim_catalog::RowRef;
use seriatim_redo::checkpoint::{self, CheckpointWriter, PartTotals, PartWriter};

use super::NO_WORKER;
use super::persistence::Persistence;
use super::rows::{Found, Rows, Stuck, Walker};
use crate::database::Inner;
use crate::error::StorageError;
use crate::handle::TableSet;

/// What a checkpoint wrote.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Rows.
    pub rows: u64,
    /// Bytes on disk, compressed.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
    /// Log segments and checkpoints that it made superfluous and that were deleted.
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
/// What the file system says, or that the log has stopped. The checkpoint before still counts.
pub(crate) fn take(inner: &Inner, persistence: &Persistence) -> Result<Checkpoint, StorageError> {
    let _one_at_a_time = persistence.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
    let log_bytes = persistence.log().statistics().bytes;
    let taken = take_alone(inner, persistence);
    persistence.checkpoints.lock().unwrap_or_else(PoisonError::into_inner).ended(&taken, log_bytes);
    taken
}

fn take_alone(inner: &Inner, persistence: &Persistence) -> Result<Checkpoint, StorageError> {
    let began = Instant::now();
    let home = persistence.home();
    // Commits of earlier epochs are in memory when they are durable; from here on the log tells the rest.
    let begin = persistence.current();
    persistence.wait_for(Epoch(begin.0 - 1))?;
    let rate = inner.options.checkpoint_bytes_per_second;
    let database = home.manifest().database;
    let writer = CheckpointWriter::begin(Arc::clone(&home.disk), &home.directory, database, begin, rate)?;
    let written = write_rows(inner, persistence, &writer).and_then(|parts| {
        // A row of an epoch that a power cut takes back must not count: the checkpoint counts when its last epoch is on disk.
        let end = persistence.record()?;
        Ok((parts, end))
    });
    let (parts, end) = match written {
        Ok(written) => written,
        Err(error) => {
            // What is left of it is deleted by the next.
            let _ = writer.abandon();
            return Err(error);
        }
    };
    #[cfg(feature = "canary")]
    if inner.options.log_fault == seriatim_redo::LogFault::DeleteEarly {
        persistence.log().delete_before(begin)?;
    }
    let complete = writer.finish(parts, end)?;
    let (rows, bytes) = (complete.rows, complete.bytes);
    persistence.change(|manifest| manifest.checkpoint = Some(complete))?;
    let manifest = home.manifest().clone();
    let mut deleted = checkpoint::delete_superfluous(home.disk.as_ref(), &home.directory, &manifest)?;
    deleted += persistence.log().delete_before(begin)?;
    if manifest.incarnations.iter().any(|incarnation| !checkpoint::is_needed(&manifest, incarnation)) {
        persistence.change(|manifest| {
            let before = manifest.clone();
            manifest.incarnations.retain(|incarnation| checkpoint::is_needed(&before, incarnation));
        })?;
    }
    Ok(Checkpoint { rows, bytes, duration: began.elapsed(), deleted })
}

/// Writes the rows of all tables, a part a thread.
fn write_rows(
    inner: &Inner,
    persistence: &Persistence,
    writer: &CheckpointWriter,
) -> Result<Vec<PartTotals>, StorageError> {
    let sets = inner.sets();
    let tables: Vec<(&TableSet, Rows<'_>)> = sets.iter().map(|set| (&**set, Rows::new(&set.primary))).collect();
    let work = |part: usize, _| -> Result<PartTotals, StorageError> {
        let core = inner.environment.core().ok_or_else(|| StorageError::Stopped(NO_WORKER.to_owned()))?;
        let mut walker = Walker::new(inner.engine.as_ref(), core);
        let mut part = writer.part(part as u32)?;
        let mut duty = Duty::new(inner);
        for (set, rows) in &tables {
            while walker.chunk(rows, |found| write_chunk(set, found, &mut part))? {
                if persistence.is_closing() {
                    return Err(StorageError::Stopped("the database is being closed".to_owned()));
                }
                duty.rest();
                #[cfg(feature = "trial")]
                crate::trial::after_chunk();
            }
        }
        part.finish()
    };
    thread::crew(inner.options.helpers(), work).into_iter().collect()
}

/// Has a thread work for a share of the time.
struct Duty {
    /// Time to rest for each that was worked.
    rest: f64,
    /// When it last had rested.
    since: Instant,
}

impl Duty {
    fn new(inner: &Inner) -> Duty {
        // Where one thread steps everything, nobody waits for its rests.
        let percent = if inner.options.step_helpers { 100 } else { inner.options.checkpoint_share };
        Duty { rest: rest_for_each(percent), since: Instant::now() }
    }

    /// Rests, if there was work enough for a rest. Nothing is pinned or locked.
    fn rest(&mut self) {
        let rest = rest_after(self.since.elapsed(), self.rest);
        if !rest.is_zero() {
            thread::sleep(rest);
            self.since = Instant::now();
        }
    }
}

/// The time to rest for each that was worked, of a thread that works for `percent` of it.
fn rest_for_each(percent: u32) -> f64 {
    f64::from(100 - percent) / f64::from(percent)
}

fn rest_after(worked: Duration, rest_for_each: f64) -> Duration {
    if worked < WORK_MIN { Duration::ZERO } else { worked.mul_f64(rest_for_each).min(REST_MAX) }
}

/// Less work is not worth a rest: sleeping takes some 0.1 ms longer than it is asked to.
const WORK_MIN: Duration = Duration::from_millis(1);

/// Closing waits for a rest.
const REST_MAX: Duration = Duration::from_millis(100);

fn write_chunk(set: &TableSet, found: &[Found<'_>], part: &mut PartWriter) -> Result<(), StorageError> {
    let Some(wire) = &set.primary.wire else { return Ok(()) };
    found.iter().try_for_each(|found| {
        // SAFETY: a row of this table, readable until the chunk ends.
        let row = unsafe { RowRef::from_raw(found.row.as_ptr()) };
        part.row(wire.layout, &wire.rows, found.key, found.stamp, row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_time_is_worked() {
        let after = |worked_ms, percent| rest_after(Duration::from_millis(worked_ms), rest_for_each(percent));
        assert_eq!(after(2, 100), Duration::ZERO);
        assert_eq!(after(2, 50), Duration::from_millis(2));
        assert_eq!(after(2, 20), Duration::from_millis(8));
        assert_eq!(after(1, 1), Duration::from_millis(99));
        assert_eq!(after(1_000, 1), REST_MAX);
        assert_eq!(rest_after(WORK_MIN / 2, rest_for_each(1)), Duration::ZERO);
    }
}
