//! Reads all rows of a table as values, for any organization, while no transaction changes it: to divide a
//! database, or to merge one.

use std::sync::{Arc, MutexGuard};

use seriatim_catalog::{Key, Value};
use seriatim_txn::RowPtr;

use super::rebuild::Failed;
use super::rows::{Rows, Walker};
use crate::TransactError;
use crate::earlier::EarlierRows;
use crate::engine::Inner;
use crate::runtime::DynRow;
use crate::table::TableSet;

/// Gives all rows of a table to `see`, some dozens at a time. Between two calls of `see` no worker is online.
///
/// # Errors
/// Errors of `see`; no worker; a record of the table stays locked by a commit.
pub(crate) fn rows(
    inner: &Arc<Inner>,
    set: &TableSet,
    see: &mut dyn FnMut(Vec<Vec<Value>>) -> Result<(), TransactError>,
) -> Result<(), TransactError> {
    let helping = inner.helping();
    for part in parts(set) {
        let mut walking = Walking::begin(inner, set, part, &helping)?;
        let mut more = true;
        while more {
            let mut shown = Vec::new();
            more = walking.chunk(&mut |row| shown.push(DynRow::new(set, row).values()))?;
            see(shown)?;
        }
    }
    Ok(())
}

/// Shows all rows of a table, each for the time of the call. Returns their number. `helping` is [`Inner::helping`].
///
/// # Errors
/// As [`rows`], without those of `see`.
pub(crate) fn each(
    inner: &Arc<Inner>,
    set: &TableSet,
    helping: &MutexGuard<'_, ()>,
    see: &mut dyn FnMut(RowPtr),
) -> Result<usize, TransactError> {
    let mut count = 0;
    let mut show = |row| {
        count += 1;
        see(row);
    };
    for part in parts(set) {
        let mut walking = Walking::begin(inner, set, part, helping)?;
        while walking.chunk(&mut show)? {}
    }
    Ok(count)
}

/// The rows of a table that have one layout; `None`: its own.
type Part<'w> = Option<&'w EarlierRows>;

/// The parts of a table, in the order in which rows move from one to the other.
fn parts(set: &TableSet) -> impl Iterator<Item = Part<'_>> {
    set.earlier.layouts.iter().map(Some).chain([None])
}

/// A walk over the rows of a part of a table, by one thread.
struct Walking<'w> {
    set: &'w TableSet,
    part: Part<'w>,
    walker: Walker<'w>,
    rows: Rows<'w>,
    _one_at_a_time: &'w MutexGuard<'w, ()>,
}

impl<'w> Walking<'w> {
    fn begin(
        inner: &'w Inner,
        set: &'w TableSet,
        part: Part<'w>,
        _one_at_a_time: &'w MutexGuard<'w, ()>,
    ) -> Result<Walking<'w>, TransactError> {
        let core = inner.environment.core().ok_or(TransactError::WorkersBusy)?;
        let walker = Walker::new(inner.protocol.as_ref(), core);
        let rows = Rows::new(part.map_or(&set.primary, |earlier| &earlier.set.primary));
        Ok(Walking { set, part, walker, rows, _one_at_a_time })
    }

    /// Shows the rows of the next chunk; `false` if there was none left.
    fn chunk(&mut self, see: &mut dyn FnMut(RowPtr)) -> Result<bool, TransactError> {
        let (Walking { set, part, walker, rows, .. }, mut image) = (self, Vec::new());
        let mut show = |_: Key<'_>, row: RowPtr| -> Result<(), Failed> {
            match part {
                None => see(row),
                Some(earlier) => earlier.show(row, &mut image, &mut *see),
            }
            Ok(())
        };
        let more = walker
            .chunk(rows, |found| found.iter().try_for_each(|found| set.each_row(found.key, found.row, &mut show)));
        more.map_err(|failed| match failed {
            Failed::Transact(error) => error,
            Failed::Stuck => TransactError::Excluded { by: "commits that do not end" },
        })
    }
}
