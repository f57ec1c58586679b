//! Read-only transactions that read what their view shows: they never validate and never abort.
//!
//! What such a transaction saw has a bound ([`seriatim_txn::Worker::newest`]) that is no newer than its view: the TIDs of the
//! versions seen, and for a key it does not find the newest TID unlinked from the table. A deleted record is unlinked when all
//! workers that were online at the delete have left, so a transaction that meets its absence began after the delete and is shown
//! it.

use std::sync::atomic::Ordering;

use seriatim_base::Epoch;
use seriatim_catalog::Key;
use seriatim_store::RecordPtr;
use seriatim_txn::{OpError, RowPtr, Scan, Seen, Table};

use super::{View, find};
use crate::shared::optimistic::Optimistic;
use crate::shared::origin::Origin;
use crate::shared::record;
use crate::shared::record_header;

/// What a view shows of a record.
enum Shown {
    Row(RowPtr),
    /// The key had no row then.
    Deleted,
    /// The record is younger.
    Before,
}

pub(crate) fn read<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    key: Key<'_>,
    view: V,
) -> Result<Option<RowPtr>, OpError> {
    match attempt.base.find(table, key) {
        Ok(record) => match shown(attempt, table, record, view) {
            Shown::Row(row) => return Ok(Some(row)),
            Shown::Deleted => return Ok(None),
            Shown::Before => {}
        },
        Err(_) => attempt.base.seen = Seen { absent: true, ..Seen::default() },
    }
    if let Some(epoch) = view.epoch() {
        return Ok(read_undurable_deletions(attempt, table, key, view, epoch));
    }
    // Not linked: deleted before every reader that is still here began, or never committed by one they may see.
    attempt.base.note_unlinked(table);
    Ok(None)
}

/// The row that a key had when the log stopped, if its record was unlinked since.
#[cold]
fn read_undurable_deletions<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    key: Key<'_>,
    view: V,
    epoch: Epoch,
) -> Option<RowPtr> {
    let records = attempt.base.core.undurable_deletions_of(table, key, epoch);
    records.into_iter().find_map(|record| match shown(attempt, table, record, view) {
        Shown::Row(row) => Some(row),
        Shown::Deleted | Shown::Before => None,
    })
}

pub(crate) fn scan_next<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    scan: &mut Scan,
    view: V,
) -> Result<Option<RowPtr>, OpError> {
    loop {
        while let Some(&record) = scan.cursor.records().get(scan.next) {
            scan.next += 1;
            match shown(attempt, table, record, view) {
                Shown::Row(row) => return Ok(Some(row)),
                // What the key had before, if anything, is unlinked: with its leaf that was noted, or it is shown besides.
                Shown::Before | Shown::Deleted => {}
            }
        }
        if scan.done || !next_leaf(attempt, table, scan, view) {
            scan.done = true;
            return Ok(None);
        }
        scan.next = 0;
    }
}

#[inline]
fn next_leaf<O: Origin, V: View>(attempt: &mut Optimistic<O>, table: &Table, scan: &mut Scan, view: V) -> bool {
    let core = &attempt.base.core;
    if let Some(epoch) = view.epoch() {
        // SAFETY: undurable deletions are kept, as it was deleted after the durable epoch; its key is of the table's class.
        return unsafe {
            table.index.next_leaf_with(&mut scan.cursor, core.local.pinned(), || core.undurable_deletions(table, epoch))
        };
    }
    let more = table.index.next_leaf(&mut scan.cursor, core.local.pinned());
    if more {
        attempt.base.note_unlinked(table);
    }
    more
}

/// The version of a record that a view shows.
#[inline(always)]
fn shown<O: Origin, V: View>(attempt: &mut Optimistic<O>, table: &Table, record: RecordPtr, view: V) -> Shown {
    let (word, is_deleted) = view.look(table, record);
    if is_deleted {
        attempt.base.newest = attempt.base.newest.max(word.tid());
        attempt.base.seen = Seen { record: Some(record), tid: word.tid(), absent: true, own: false };
        return Shown::Deleted;
    }
    let newest = record_header::row_version(&table.record_layout, record).load(Ordering::Acquire) as usize;
    // SAFETY: reachable from the record while we are online; what comes before it is so for the reader that is shown it (rule 2).
    let found = unsafe { find(newest, |version| view.shows(version)) };
    if let Some((row_version, version)) = found {
        attempt.base.newest = attempt.base.newest.max(version.tid);
        let absent = V::is_deletion(version);
        attempt.base.seen = Seen { record: Some(record), tid: version.tid, absent, own: false };
        return if absent { Shown::Deleted } else { Shown::Row(record::row_of(table, row_version)) };
    }
    attempt.base.seen = Seen { record: Some(record), absent: true, ..Seen::default() };
    Shown::Before
}
