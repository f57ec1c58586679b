//! Decides when checkpoints are taken, and keeps their results.
//!
//! A helper periodically checks whether the log has grown enough since the last checkpoint. It does not keep
//! the database alive: the users share an [`OpenHandle`]. The thread that drops the last one ends the helper,
//! which gives up its checkpoint, and waits for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::thread::Periodic;

use super::checkpoint::{Checkpoint, take};
use super::persistence::Persistence;
use crate::engine::Inner;
use crate::error::StorageError;

/// The interval of the helper's checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long rows are moved out of earlier layouts at a time.
const CONVERTING: Duration = Duration::from_millis(10);
/// Checks that are skipped after a failed checkpoint; the number doubles with each failure, up to a bound: 1 s
/// to 5 min.
const PAUSE_MIN: u32 = 10;
const PAUSE_MAX: u32 = 3000;

/// The checkpoints of a database since it was opened.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    pub(crate) taken: u64,
    pub(crate) failed: u64,
    /// The duration of the last completed one.
    pub(crate) duration: Duration,
    /// Why the last one failed, if it did.
    pub(crate) error: Option<String>,
    /// Why the last deletion of superfluous files failed, if it did.
    pub(crate) deletion_error: Option<String>,
    /// Bytes of log of earlier incarnations that recovery read.
    recovered_bytes: u64,
    /// Bytes written to the log when the last one began.
    bytes_before: u64,
    /// Checks to skip now, and after the next failure.
    left_out: u32,
    pause: u32,
}

impl Checkpoints {
    pub(crate) fn new(recovered_bytes: u64) -> Checkpoints {
        Checkpoints {
            taken: 0,
            failed: 0,
            duration: Duration::ZERO,
            error: None,
            deletion_error: None,
            recovered_bytes,
            bytes_before: 0,
            left_out: 0,
            pause: PAUSE_MIN,
        }
    }

    /// Notes the result of a checkpoint, and the bytes written to the log when it began.
    pub(super) fn ended(&mut self, taken: &Result<Checkpoint, StorageError>, log_bytes: u64) {
        match taken {
            Ok(checkpoint) => {
                self.taken += 1;
                self.duration = checkpoint.duration;
                self.error = None;
                (self.recovered_bytes, self.bytes_before) = (0, log_bytes);
                (self.left_out, self.pause) = (0, PAUSE_MIN);
            }
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn failed(&mut self, error: String) {
        self.failed += 1;
        self.error = Some(error);
        self.left_out = self.pause;
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }

    /// Whether a checkpoint is due, with this many bytes written to the log.
    fn is_due(&mut self, log_bytes: u64, checkpoint_bytes: u64) -> bool {
        let since = log_bytes.saturating_sub(self.bytes_before).saturating_add(self.recovered_bytes);
        let due = since >= checkpoint_bytes;
        if due && self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        due
    }
}

/// Takes a checkpoint if one is due. Statistics report its result.
pub(crate) fn look(inner: &Inner, persistence: &Persistence) {
    let Some(checkpoint_bytes) = inner.options.checkpoint_bytes else { return };
    let log = persistence.log();
    if log.durable().is_stopped() {
        return;
    }
    let log_bytes = log.statistics().bytes;
    let due =
        || persistence.checkpoints.lock().unwrap_or_else(PoisonError::into_inner).is_due(log_bytes, checkpoint_bytes);
    if due() {
        // A panic must not end the helper unnoticed: the checkpoint counts as failed, and is tried again.
        if catch_unwind(AssertUnwindSafe(|| take(inner, persistence))).is_err() {
            let panicked = "the thread that took a checkpoint panicked".to_owned();
            persistence.checkpoints.lock().unwrap_or_else(PoisonError::into_inner).failed(panicked);
        }
    }
}

/// Keeps a database open. Its handles, sessions and pending results share one.
pub(crate) struct OpenHandle {
    /// Takes checkpoints, if the database has a log and is open for use.
    checkpointer: Mutex<Option<Periodic>>,
    /// Moves rows out of earlier layouts, if there were any.
    converter: Mutex<Option<Periodic>>,
    inner: Arc<Inner>,
}

impl OpenHandle {
    pub(crate) fn new(inner: &Arc<Inner>) -> OpenHandle {
        OpenHandle { checkpointer: Mutex::default(), converter: Mutex::default(), inner: Arc::clone(inner) }
    }

    /// Starts the helper, if the database has a log and checkpoints are enabled. Called once.
    ///
    /// # Errors
    /// The operating system refuses another thread.
    pub(crate) fn start_checkpoints(&self) -> io::Result<()> {
        let options = &self.inner.options;
        if self.inner.persistence.is_none() || options.checkpoint_bytes.is_none() || options.step_helpers {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let step = move || {
            if let Some(persistence) = &inner.persistence {
                look(&inner, persistence);
            }
        };
        let checkpointer = Periodic::spawn("seriatim-checkpoint", LOOK_INTERVAL, step)?;
        *self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner) = Some(checkpointer);
        Ok(())
    }

    /// Starts the helper that moves rows out of earlier layouts, unless it runs. Without a thread, rows are moved when
    /// they are written.
    pub(crate) fn start_converting(&self) {
        let mut converter = self.converter.lock().unwrap_or_else(PoisonError::into_inner);
        if self.inner.options.step_helpers || converter.is_some() {
            return;
        }
        let inner = Arc::clone(&self.inner);
        let step = move || {
            // A panic must not end the helper: the rows of that chunk are moved when they are written.
            let pause = catch_unwind(AssertUnwindSafe(|| inner.convert_rows(CONVERTING)));
            pause.unwrap_or(CONVERTING)
        };
        *converter = Periodic::spawn_paced("seriatim-convert", CONVERTING, step).ok();
    }

    /// Ends the helper, which gives up its current checkpoint. Before that, sequences get back what they reserved.
    pub(crate) fn end_checkpoints(&self) {
        self.inner.close_sequences();
        if let Some(persistence) = &self.inner.persistence {
            persistence.begin_closing();
        }
        let checkpointer = self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let converter = self.converter.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropping them joins the threads.
        drop((checkpointer, converter));
    }
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        if !self.inner.process.is_current() {
            // In a fork the threads, and their locks, belong to the other process: nothing is ended here.
            std::mem::forget(Arc::clone(&self.inner));
            return;
        }
        // Before this owner drops the database.
        self.end_checkpoints();
    }
}
