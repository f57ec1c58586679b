//! Read-only transactions that read what their view shows: they never validate, and never abort unless a wait is given
//! up.
//!
//! The versions that such a transaction saw have a bound ([`seriatim_txn::Worker::newest`]) that is no newer than its
//! view. It is the newest of these versions' TIDs and, for a key that was not found, the newest TID unlinked from the
//! table. A deleted record is unlinked when all workers that were online at the delete have left. So a transaction that
//! finds it gone began after the delete and has the delete in its view. (Under an eventual snapshot it may see the row
//! from before; then that bound is newer than necessary.)

use std::sync::atomic::Ordering;

use seriatim_base::Epoch;
use seriatim_catalog::Key;
use seriatim_store::{NodeVersion, RecordPtr};
use seriatim_txn::{OpError, RowPtr, Scan, Seen, Table};

use super::{View, find};
use crate::shared::attempt::Attempt;
use crate::shared::optimistic::Optimistic;
use crate::shared::origin::Origin;
use crate::shared::record;
use crate::shared::record_header;

/// A record as the view shows it.
enum Shown {
    Row(RowPtr),
    /// The key had no row then.
    Deleted,
    /// The record is younger.
    Before,
}

#[inline(always)]
pub fn read<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    key: Key<'_>,
    view: V,
) -> Result<Option<RowPtr>, OpError> {
    let found = attempt.base.find(table, key.anew());
    if let Ok(record) = found
        && let row @ Some(_) = read_newest(attempt, table, record, view)
    {
        return Ok(row);
    }
    read_found(attempt, table, key, view, found)
}

/// The newest row of a record, if the view shows it and nothing is unusual about the record. Otherwise nothing changes.
#[inline(always)]
pub fn read_newest<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    record: RecordPtr,
    view: V,
) -> Option<RowPtr> {
    let (row_version, tid) = view.shows_newest(table, record)?;
    attempt.base.note_seen(record, tid, false);
    Some(record::row_of(row_version))
}

/// As [`read`], of the record that a lookup found.
#[inline(never)]
fn read_found<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    key: Key<'_>,
    view: V,
    found: Result<RecordPtr, NodeVersion>,
) -> Result<Option<RowPtr>, OpError> {
    match found {
        Ok(record) => match shown(attempt, table, record, view)? {
            Shown::Row(row) => return Ok(Some(row)),
            Shown::Deleted => return Ok(None),
            Shown::Before => {}
        },
        Err(_) => attempt.base.seen = Seen { absent: true, ..Seen::default() },
    }
    if let Some(epoch) = view.epoch() {
        return read_undurable_deletions(attempt, table, key, view, epoch);
    }
    if let Some(whole) = unlinked_since(table, view) {
        let records = attempt.base.core.later_deletions(table, Some(key), whole);
        if let Some(row) = shown_of(attempt, table, records, view)? {
            return Ok(Some(row));
        }
    }
    // Not linked: it was deleted before every current reader began, or was never committed in their views. Or
    // it is not shown because it was deleted: then the deletion is no newer than the noted bound.
    attempt.base.note_unlinked(table);
    Ok(None)
}

/// The epoch after which records were unlinked that the view may show, if it was so before the caller looked.
#[inline]
fn unlinked_since<V: View>(table: &Table, view: V) -> Option<Epoch> {
    // Deletions of later epochs are noted before they are unlinked, and announced before that.
    view.whole().filter(|&whole| table.unlinked.newest().epoch() > whole)
}

/// The result of the view for records that had the same key, one after the other. At most one of them has a row in the
/// view.
fn shown_of<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    records: Vec<RecordPtr>,
    view: V,
) -> Result<Option<RowPtr>, OpError> {
    for record in records {
        if let Shown::Row(row) = shown(attempt, table, record, view)? {
            return Ok(Some(row));
        }
    }
    // The deletion that was looked at last need not be the last there was.
    attempt.base.seen = Seen { absent: true, ..Seen::default() };
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
) -> Result<Option<RowPtr>, OpError> {
    // Where snapshots are eventual, rows that were deleted after that are wanted too.
    let epoch = view.whole().map_or(epoch, |whole| whole.min(epoch));
    let records = attempt.base.core.undurable_deletions_of(table, key, epoch);
    shown_of(attempt, table, records, view)
}

pub fn scan_next<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    scan: &mut Scan,
    view: V,
) -> Result<Option<RowPtr>, OpError> {
    loop {
        while let Some(&record) = scan.cursor.records().get(scan.next) {
            let shown = shown(attempt, table, record, view)?;
            scan.next += 1;
            match shown {
                Shown::Row(row) => return Ok(Some(row)),
                // Earlier rows of the key, if any, are unlinked: that was noted with the leaf, or they are merged in.
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
    let Attempt { core, leaf_hints, .. } = &mut attempt.base;
    let (leaf_hint, pin) = (leaf_hints.of(table, &scan.cursor.near_key(table.class)), core.local.pinned());
    if let Some(epoch) = view.epoch() {
        let epoch = view.whole().map_or(epoch, |whole| whole.min(epoch));
        // SAFETY: undurable deletions are kept, as it was deleted after the durable epoch; its key is of the
        // table's class.
        return unsafe {
            let deletions = || core.undurable_deletions(table, epoch);
            table.index.next_leaf_with(&mut scan.cursor, leaf_hint, pin, deletions)
        };
    }
    let more = if view.whole().is_some() {
        // Called when the leaf has been read: records that are no longer in it are announced by then.
        let later = || match unlinked_since(table, view) {
            Some(whole) => core.later_deletions(table, None, whole),
            None => Vec::new(),
        };
        // SAFETY: rows that were deleted later than the view are kept; their keys are of the table's class.
        unsafe { table.index.next_leaf_with(&mut scan.cursor, leaf_hint, pin, later) }
    } else {
        table.index.next_leaf(&mut scan.cursor, leaf_hint, pin)
    };
    if more {
        attempt.base.note_unlinked(table);
    }
    more
}

/// The version of a record that a view shows.
#[inline(always)]
fn shown<O: Origin, V: View>(
    attempt: &mut Optimistic<O>,
    table: &Table,
    record: RecordPtr,
    view: V,
) -> Result<Shown, OpError> {
    let (word, is_deleted) = view.look(table, record)?;
    if is_deleted {
        attempt.base.note_seen(record, word.tid(), true);
        return Ok(Shown::Deleted);
    }
    let newest = record_header::row_version(&table.record_layout, record).load(Ordering::Acquire) as usize;
    // SAFETY: reachable from the record while we are online; earlier versions are reachable for a reader whose
    // view includes them (rule 2).
    let found = unsafe { find(table.record_layout.row, newest, |version| view.shows(version)) };
    if let Some((row_version, version)) = found {
        let absent = V::is_deletion(version);
        attempt.base.note_seen(record, version.tid, absent);
        return Ok(if absent { Shown::Deleted } else { Shown::Row(record::row_of(row_version)) });
    }
    attempt.base.seen = Seen { record: Some(record), absent: true, ..Seen::default() };
    Ok(Shown::Before)
}
