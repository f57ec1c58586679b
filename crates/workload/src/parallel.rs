//! Loading in parallel: parts are handed out one by one to threads with a session each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{LoadError, Loading};
use seriatim::thread;
use seriatim::{Abort, Database, Session, Tx};

/// Counts rows as they are inserted and passes the count on.
pub struct Progress<'a> {
    done: AtomicU64,
    total: u64,
    report: &'a (dyn Fn(u64, u64) + Sync),
}

impl Progress<'_> {
    /// `rows` more are in.
    pub fn add(&self, rows: u64) {
        let done = self.done.fetch_add(rows, Ordering::Relaxed) + rows;
        (self.report)(done, self.total);
    }
}

/// Runs `load(session, part, progress)` for every part in `0..parts` on the threads of `loading`. `rows` is what all parts
/// together insert. The first error stops the handing out and is returned.
///
/// # Errors
/// The first that a part returned.
pub fn load(
    db: &Database,
    loading: &Loading<'_>,
    parts: u64,
    rows: u64,
    load: impl Fn(&mut Session, u64, &Progress<'_>) -> Result<(), LoadError> + Sync,
) -> Result<(), LoadError> {
    let progress = Progress { done: AtomicU64::new(0), total: rows, report: loading.progress };
    let (next, stopped, failure) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(None));
    let work = || {
        let mut session = db.session();
        while !stopped.load(Ordering::Relaxed) {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                break;
            }
            if let Err(error) = load(&mut session, part, &progress) {
                stopped.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        (1..loading.threads.max(1)).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Runs `insert(tx, key)` for every key in `0..keys` on the threads of `loading`, a hundred a transaction.
///
/// # Errors
/// The first that a transaction returned.
pub fn load_keys(
    db: &Database,
    loading: &Loading<'_>,
    keys: u64,
    insert: impl Fn(&Tx, u64) -> Result<(), Abort> + Sync,
) -> Result<(), LoadError> {
    const PART: u64 = 10_000;
    const BATCH: u64 = 100;
    load(db, loading, keys.div_ceil(PART), keys, |session, part, progress| {
        let end = keys.min((part + 1) * PART);
        for from in (part * PART..end).step_by(BATCH as usize) {
            let to = end.min(from + BATCH);
            session.transact(|tx| (from..to).try_for_each(|key| insert(tx, key)))?;
            progress.add(to - from);
        }
        Ok(())
    })
}
