//! Loading in parallel: parts are handed out one by one to threads with a session each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{LoadError, Loading};
use seriatim::thread;
use seriatim::{Abort, Database, Pending, Rng, Session, Tx};

/// Counts rows as they are inserted and passes the count on.
struct Progress<'a> {
    done: AtomicU64,
    total: u64,
    report: &'a (dyn Fn(u64, u64) + Sync),
}

impl Progress<'_> {
    /// `rows` more are in.
    fn add(&self, rows: u64) {
        let done = self.done.fetch_add(rows, Ordering::Relaxed) + rows;
        (self.report)(done, self.total);
    }
}

/// A loading thread's session. Does not wait for each transaction to be durable.
pub struct Loader<'a> {
    session: Session,
    outstanding: VecDeque<Pending<u64>>,
    progress: &'a Progress<'a>,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Most transactions of a thread that wait until they are durable.
const OUTSTANDING_MAX: usize = 1000;

impl Loader<'_> {
    /// Runs a transaction, which may be retried. `insert` returns the number of rows that it inserted.
    ///
    /// # Errors
    /// The error of this or an earlier transaction; [`LoadError::Stopped`].
    pub fn transact(&mut self, insert: impl FnMut(&Tx) -> Result<u64, Abort>) -> Result<(), LoadError> {
        if (self.is_stopped)() {
            return Err(LoadError::Stopped);
        }
        self.outstanding.push_back(self.session.submit(insert));
        self.take_down_to(OUTSTANDING_MAX)
    }

    /// Takes the results that are ready, and waits until at most `most` are outstanding.
    fn take_down_to(&mut self, most: usize) -> Result<(), LoadError> {
        while self.outstanding.front().is_some_and(|first| self.outstanding.len() > most || first.is_ready()) {
            let Some(first) = self.outstanding.pop_front() else { break };
            self.progress.add(first.wait()?.into_value());
        }
        Ok(())
    }
}

/// Runs `load(loader, part)` for every part in `0..parts` on the threads of `loading`. `rows` is the number of
/// rows of all parts. When this returns, all rows are durable, if the database has durability. After the first
/// error no further part is started.
///
/// # Errors
/// The first error of a part.
pub fn load(
    db: &Database,
    loading: &Loading<'_>,
    parts: u64,
    rows: u64,
    load: impl Fn(&mut Loader<'_>, u64) -> Result<(), LoadError> + Sync,
) -> Result<(), LoadError> {
    let progress = Progress { done: AtomicU64::new(0), total: rows, report: loading.progress };
    let (next, stopped, failure) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(None));
    let parts_of_a_thread = || -> Result<(), LoadError> {
        let (session, is_stopped) = (db.session(), loading.is_stopped);
        let mut loader = Loader { session, outstanding: VecDeque::new(), progress: &progress, is_stopped };
        while !stopped.load(Ordering::Relaxed) {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                break;
            }
            load(&mut loader, part)?;
        }
        loader.take_down_to(0)
    };
    let work = || {
        if let Err(error) = parts_of_a_thread() {
            stopped.store(true, Ordering::Relaxed);
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    thread::scope(|scope| {
        (1..loading.threads.max(1)).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The number of items that one thread makes and inserts at a time. An item depends only on its part, so the
/// population is the same for any number of threads.
const PART: u64 = if cfg!(test) { 16 } else { 10_000 };
/// Things inserted by one transaction.
const BATCH: u64 = if cfg!(test) { 3 } else { 100 };

/// Loads `count` items, such as rows with their children. `make(rng, number)` makes each item once, with its
/// number from 0. `insert` inserts it, returns the number of its rows, and may be retried. `rows` is the number
/// of rows of all items. `seed` determines the draws of `make`.
///
/// # Errors
/// The first error of a transaction. The first that a transaction ended with.
pub fn populate<T: Send>(
    db: &Database,
    loading: &Loading<'_>,
    (count, rows): (u64, u64),
    seed: u64,
    make: impl Fn(&mut Rng, u64) -> T + Sync,
    insert: impl Fn(&Tx, &T) -> Result<u64, Abort> + Sync,
) -> Result<(), LoadError> {
    load(db, loading, count.div_ceil(PART), rows, |loader, part| {
        // Seeds of parts are apart by an odd constant, and the generator mixes them.
        let mut rng = Rng::from_seed(seed.wrapping_add((part + 1).wrapping_mul(0xD1B5_4A32_D192_ED03)));
        let end = count.min((part + 1) * PART);
        let mut batch = Vec::with_capacity(BATCH as usize);
        for from in (part * PART..end).step_by(BATCH as usize) {
            batch.clear();
            batch.extend((from..end.min(from + BATCH)).map(|number| make(&mut rng, number)));
            loader.transact(|tx| batch.iter().try_fold(0, |rows, thing| Ok(rows + insert(tx, thing)?)))?;
        }
        Ok(())
    })
}
