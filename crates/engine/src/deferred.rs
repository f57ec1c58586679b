//! Publishes deferred additions. A thread that has closed the windows runs one ordinary transaction on the
//! publisher's own worker.
//!
//! The transaction commits while no window is open: no transaction that defers, or uses deferred rows,
//! publishes meanwhile, and no epoch ends. So its log entries are of the same epoch as the deferring
//! transactions, and recovery has both or neither.
//!
//! No refusal is permanent. The rows exist, and their sums have room. Memory was reserved when each addition
//! was deferred; if other transactions took it since, the limit is lifted for the publisher. It writes to the
//! log even if that is full: its additions are no larger than what the log has accepted already. An attempt
//! fails only if another transaction has a row locked for a moment, or the system provides no memory. After
//! [`ATTEMPTS_MAX`] failures the process ends, and reports the cause.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{Backoff, Tid, thread};
use seriatim_catalog::{ColumnUse, Key};
use seriatim_history::{Addition, Columns, Recording};
use seriatim_redo::Writer;
use seriatim_txn::{
    Before, Cause, Environment, Mode, OpError, Outcome, PendingRow, Priority, Reason, Redo, RowPtr, Table, Worker,
};

use crate::durability::{CommitLog, WholeBefore};
use crate::engine::Foundation;
use crate::error::OpenError;

/// Deleted records that the worker examines after each publication.
const CHORES_MAX: usize = 64;

/// Most attempts (promise d).
const ATTEMPTS_MAX: u32 = 10_000;

/// The pause between two attempts once the [`Backoff`] is exhausted, so that all attempts take at least ten
/// seconds.
const PAUSE: Duration = Duration::from_millis(1);

/// Deferred additions could not be published. Their transactions have been acknowledged, so the database must
/// stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unpublished {
    /// Why the last attempt failed.
    cause: Cause,
    attempts: u32,
}

impl fmt::Display for Unpublished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unpublished { cause, attempts } = self;
        write!(f, "deferred additions were not published in {attempts} attempts; the last stopped {cause}")
    }
}

/// Makes attempts until one succeeds, at most `attempts_max`.
fn persist(
    attempts_max: u32,
    pause: Duration,
    mut attempt: impl FnMut() -> Result<(), Cause>,
) -> Result<(), Unpublished> {
    let mut backoff = Backoff::new();
    let mut attempts = 1;
    while let Err(cause) = attempt() {
        if attempts == attempts_max {
            return Err(Unpublished { cause, attempts });
        }
        if !backoff.wait() {
            thread::pause(pause);
        }
        attempts += 1;
    }
    Ok(())
}

pub(crate) struct Publisher {
    worker: Box<dyn Worker>,
    /// The publisher's log writer, if the database has a log, and the state that checkpoints need of it.
    log: Option<(Writer, Arc<WholeBefore>)>,
    recording: Option<Recording>,
    environment: Environment,
    memory_limit: Option<usize>,
    /// Rows that a deliberate fault publishes the next time.
    #[cfg(feature = "canary")]
    held_back: Vec<PendingRow>,
}

impl Publisher {
    /// Publishes deferred additions while the returned value exists; `None` if transactions do not defer.
    ///
    /// # Errors
    /// No worker is left.
    pub(crate) fn start(
        foundation: &Foundation,
        log: Option<(Writer, Arc<WholeBefore>)>,
        recording: Option<Recording>,
        memory_limit: Option<usize>,
    ) -> Result<Option<Arc<Mutex<Publisher>>>, OpenError> {
        let Foundation { protocol, environment, .. } = foundation;
        let deferrals = environment.epochs.windows().deferrals();
        if !deferrals.are_allowed() {
            return Ok(None);
        }
        let core = environment.core().ok_or_else(|| OpenError::Memory("no worker is left".to_owned()))?;
        let publisher = Arc::new(Mutex::new(Publisher {
            worker: protocol.worker(core),
            log,
            recording,
            environment: environment.clone(),
            memory_limit,
            #[cfg(feature = "canary")]
            held_back: Vec::new(),
        }));
        // A weak reference: the environment owns this closure, and the publisher holds the environment.
        let weak: Weak<Mutex<Publisher>> = Arc::downgrade(&publisher);
        deferrals.apply_by(Box::new(move |rows| {
            // Without a publisher no reader is left for these rows.
            if let Some(publisher) = weak.upgrade() {
                publisher.lock().unwrap_or_else(PoisonError::into_inner).publish(rows);
            }
        }));
        Ok(Some(publisher))
    }

    fn publish(&mut self, rows: Vec<PendingRow>) {
        let rows = self.disturbed(rows);
        let mut is_lifted = false;
        let published = persist(ATTEMPTS_MAX, PAUSE, || {
            let attempted = self.attempt(&rows);
            if let Err(cause) = attempted {
                self.worker.abort();
                if cause.reason == Reason::OutOfMemory {
                    self.environment.memory.set_limit(None);
                    is_lifted = true;
                }
            }
            attempted
        });
        if let Err(error) = published {
            // The caller aborts the process: nothing else is acknowledged, and recovery has both these
            // additions and their transactions, or neither.
            panic!("{error}");
        }
        if is_lifted {
            self.environment.memory.set_limit(self.memory_limit);
        }
        self.worker.core().local.collect();
        self.worker.collect_garbage(CHORES_MAX);
    }

    fn attempt(&mut self, rows: &[PendingRow]) -> Result<(), Cause> {
        let Publisher { worker, log, recording, environment, .. } = self;
        worker.begin(Mode::ReadWrite, Priority::NONE);
        worker.pieces().expect("a protocol that defers publishes in pieces").publish_deferred();
        for row in rows {
            add(worker.as_mut(), row)?;
        }
        let recording = recording.as_ref();
        let Some((writer, whole_before)) = log else {
            return commit(worker.as_mut(), &mut Published { rows, recording, log: None, ended: 0 });
        };
        writer.begin_regardless(environment.epochs.current());
        let mut entries = CommitLog::new(writer.groups(), whole_before, None);
        let committed = commit(worker.as_mut(), &mut Published { rows, recording, log: Some(&mut entries), ended: 0 });
        entries.finish();
        writer.append();
        writer.end();
        committed
    }

    /// The rows as a deliberate fault changes them.
    fn disturbed(&mut self, rows: Vec<PendingRow>) -> Vec<PendingRow> {
        #[cfg(feature = "canary")]
        {
            use seriatim_txn::Fault;

            let mut rows = rows;
            if self.environment.injects(Fault::PublishDeferredLate) {
                std::mem::swap(&mut rows, &mut self.held_back);
            }
            if self.environment.injects(Fault::ForgetDeferred) {
                rows.pop();
            }
            rows
        }
        #[cfg(not(feature = "canary"))]
        rows
    }
}

/// Applies the additions to one row.
fn add(worker: &mut dyn Worker, row: &PendingRow) -> Result<(), Cause> {
    let table = row.table();
    let columns = ColumnUse::adding(row.sums.iter().map(|sum| sum.column));
    let updating = match worker.update(table, row.key.as_key(), columns) {
        Ok(updating) => updating.expect("deferred additions are published before a transaction deletes rows"),
        Err(OpError::Abort(cause)) => return Err(cause),
        Err(OpError::Wait) => unreachable!("a protocol that defers does not wait for locks"),
    };
    let wire = table.wire.as_ref().expect("rows that procedures change are logged");
    for sum in &row.sums {
        // SAFETY: a private row version of the table, until this returns.
        let has_room = unsafe { wire.rows.add(updating.after.as_ptr(), sum.column, sum.up - sum.down) };
        assert!(has_room, "the deferring transaction found room");
    }
    Ok(())
}

fn commit(worker: &mut dyn Worker, redo: &mut dyn Redo) -> Result<(), Cause> {
    match worker.commit(redo) {
        Ok(Outcome::Committed(_)) => Ok(()),
        Ok(Outcome::Repair(_)) | Err(OpError::Wait) => unreachable!("it neither repairs nor waits"),
        Err(OpError::Abort(cause)) => Err(cause),
    }
}

/// Reports published rows to the log, and to the history as writes of the transactions that deferred them.
struct Published<'p, 'w> {
    rows: &'p [PendingRow],
    recording: Option<&'p Recording>,
    log: Option<&'p mut CommitLog<'w>>,
    /// When all of them were visible; 0 before that is known.
    ended: u64,
}

impl Redo for Published<'_, '_> {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        if let Some(recording) = self.recording {
            if self.ended == 0 {
                self.ended = Instant::now().nanoseconds();
            }
            let is_it = |row: &&PendingRow| row.table().id == table.id && row.key.as_key() == key;
            for row in self.rows.iter().filter(is_it) {
                let columns = ColumnUse::adding(row.sums.iter().map(|sum| sum.column)).added;
                let (key, columns) = (seriatim_history::Key::new(&key.to_bytes()), Columns(columns.bits()));
                let addition = Addition { table: table.id, key, version: tid.bits(), columns, deferred: true };
                recording.deferred(&row.publishers, &addition, self.ended);
            }
        }
        if let Some(log) = &mut self.log {
            log.write(table, key, tid, before, after);
        }
    }

    fn listens(&self) -> bool {
        self.recording.is_some() || self.log.is_some()
    }
}

#[cfg(test)]
mod tests {
    use seriatim_txn::Phase;

    use super::*;

    #[test]
    fn a_publication_that_is_refused_again_and_again_ends_and_says_why() {
        let refused = |reason| Err(Cause { phase: Phase::Lock, reason });
        let mut left = 3;
        let lately = persist(3, Duration::ZERO, || {
            left -= 1;
            if left == 0 { Ok(()) } else { refused(Reason::RecordLocked) }
        });
        assert_eq!((lately, left), (Ok(()), 0));

        let mut made = 0;
        let never = persist(100, Duration::ZERO, || {
            made += 1;
            refused(if made < 100 { Reason::RecordLocked } else { Reason::OutOfMemory })
        });
        let error = never.expect_err("it was never admitted");
        assert_eq!((error.cause.reason, error.attempts, made), (Reason::OutOfMemory, 100, 100));
        assert!(error.to_string().contains("were not published in 100 attempts"), "{error}");
    }
}
