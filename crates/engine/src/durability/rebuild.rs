//! Secondary indexes after a recovery. Ordinary transactions build them again from the rows. They also compare primary
//! keys that contain floats with their rows. Earlier revisions stored rows at the keys -0.0 and NaN with any bits.
//! Lookups no longer search there.
//!
//! The log has no entries of secondary indexes, so they cannot disagree with it. All threads work on one table at a
//! time.

use std::sync::Arc;

use seriatim_base::thread;
use seriatim_catalog::{ColumnSet, Key, RowRef};
use seriatim_txn::RowPtr;

use super::rows::{Rows, Stuck, Walker};
use super::{NO_WORKER, OpenHandle};
use crate::engine::Inner;
use crate::link::Distinct;
use crate::table::TableSet;
use crate::tx::{Origin, TxCore};
use crate::{Abort, OpenError, Runner, TransactError};

/// Fills the indexes of a table from its rows; `done` gets the number of rows entered. No other thread may use
/// the database.
///
/// # Errors
/// No memory; rows that contradict a unique index, or whose keys are not what their columns make them.
pub(crate) fn rebuild(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    set: &Arc<TableSet>,
    done: &(dyn Fn(u64) + Sync),
) -> Result<(), OpenError> {
    if set.indexes.is_empty() && !set.primary.codec.has_synonyms() {
        return Ok(());
    }
    let rows = Rows::new(&set.primary);
    // The links are made later.
    let indexes = set.indexes.iter().enumerate();
    let distinct = indexes.filter_map(|(at, index)| Distinct::of(set, &set.definition, at, index, None));
    let distinct: Vec<Distinct> = distinct.collect();
    let work = |number, _| work(inner, open, (set, &distinct), &rows, number, done);
    thread::crew(inner.options.index_helpers(), work).into_iter().collect()
}

/// Refuses a row at another key than that of its columns.
fn check_key(tx: &TxCore, set: &TableSet, key: Key<'_>, row: RowPtr) -> Result<(), Abort> {
    let codec = &set.primary.codec;
    // SAFETY: a row of the table, readable while the walk shows it.
    let row = unsafe { RowRef::from_raw(row.as_ptr()) };
    if !codec.has_synonyms() || codec.encode_row(row, |own| own == key) {
        return Ok(());
    }
    Err(tx.abort(format!(
        "table {:?} has a row at key {}, which an earlier revision wrote: -0 and 0 are one key now, as are all NaNs; \
         with that revision, delete the row or write it at 0 or at the NaN of `f64::NAN`",
        set.definition.name,
        codec.describe(key)
    )))
}

/// Conflicts of one chunk after which a rebuild is given up. Far more than helpers can cause each other.
const REFUSALS_MAX: u32 = 100_000;

/// Why a walk ended whose rows go into transactions.
pub(crate) enum Failed {
    Stuck,
    Transact(TransactError),
}

impl From<Stuck> for Failed {
    fn from(Stuck: Stuck) -> Failed {
        Failed::Stuck
    }
}

fn work(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    (set, distinct): (&TableSet, &[Distinct]),
    rows: &Rows<'_>,
    number: usize,
    done: &(dyn Fn(u64) + Sync),
) -> Result<(), OpenError> {
    let no_worker = || OpenError::Invalid(NO_WORKER.to_owned());
    let core = inner.environment.core().ok_or_else(no_worker)?;
    let mut walker = Walker::new(inner.protocol.as_ref(), core);
    let mut runner = Runner::internal(inner, open, number);
    runner.tx.ignore_queue();
    loop {
        let more = walker.chunk(rows, |found| {
            let enter = |tx: &TxCore| {
                let enter = |key: Key<'_>, row| {
                    check_key(tx, set, key, row)?;
                    tx.maintain(set, key, None, Some(row), ColumnSet::ALL)?;
                    distinct.iter().try_for_each(|distinct| tx.prove_distinct(distinct, set, row))
                };
                found.iter().try_for_each(|found| set.each_row(found.key, found.row, enter))
            };
            // Nothing of it is logged, so it need not wait. Conflicts with other helpers are short, so the
            // application's retry policy does not apply.
            let mut refusals = 0;
            loop {
                match runner.run(seriatim_txn::Mode::ReadWrite, Origin::Closure, enter) {
                    Ok(_) => break,
                    Err(TransactError::Conflict { .. }) if refusals < REFUSALS_MAX => {
                        refusals += 1;
                        thread::yield_now();
                    }
                    Err(error) => return Err(Failed::Transact(error)),
                }
            }
            done(found.iter().map(|found| rows.rows_in(found) as u64).sum());
            Ok(())
        });
        match more {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(Failed::Transact(TransactError::OutOfMemory { .. })) => {
                return Err(OpenError::Memory(format!("for the indexes of table {:?}", set.definition.name)));
            }
            Err(Failed::Transact(TransactError::User(error))) => return Err(OpenError::Invalid(error.to_string())),
            Err(Failed::Transact(error)) => {
                let table = &set.definition.name;
                return Err(OpenError::Invalid(format!("the indexes of table {table:?} cannot be rebuilt: {error}")));
            }
            Err(Failed::Stuck) => unreachable!("no transaction commits during recovery"),
        }
    }
}
