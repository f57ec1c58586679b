//! Read-only transactions (§5.4): each takes and advances S, reads the versions with a number not above its own, never
//! validates and never aborts.
//!
//! Image header, three words: the version's stamp; its local snapshot number with a deletion mark in bit 0; the address of the
//! previous image. All are written before the image is published and never change. The previous image is kept for readers that
//! began before the image was installed; it is retired then, so it lives until they have left. A reader that begins later has a
//! number at least as high as the image's and does not follow the pointer, unless it shows the durable epoch: then it goes on to the
//! versions of that epoch, which live until the image's own epoch is durable and no reader holds an earlier one (README, "Durability").
//!
//! What a snapshot saw has a bound ([`seriatim_txn::Worker::newest`]) that is no newer than the snapshot: the stamps of the
//! versions seen, and for a key it does not find the newest stamp unlinked from the table. A deleted record is unlinked when all
//! who were online at the delete have left, so who meets its absence began after the delete and has it in his snapshot.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use seriatim_base::{Epoch, Stamp};
use seriatim_catalog::Key;
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, RecordShape, RowPtr, Scan, Seen, Stop, Table};

use super::SnapshotNumber;
use crate::shared::head;
use crate::shared::optimistic::Optimistic;
use crate::shared::record;

/// The snapshot number under which a tombstone's row was deleted: the third word of a head. It means something while the header
/// word is ABSENT with a stamp; the image word then still names the row that was deleted, for readers of older snapshots. So a
/// delete needs no image, and no memory. Written as the image word is: under the lock bit, or in the region of the commit.
#[inline]
pub(super) fn deletion<'t>(shape: &RecordShape, record: RecordPtr) -> &'t AtomicU64 {
    crate::step();
    // SAFETY: as the header word of `shared::head`.
    unsafe { shape.head_word(record, 2) }
}

/// Stamp, snapshot number, previous image.
pub(super) const HEADER_BYTES: usize = size_of::<ImageHeader>();

/// The header of an image.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ImageHeader {
    stamp: Stamp,
    tagged: u64,
    pub(super) previous: usize,
}

impl ImageHeader {
    pub(super) const fn new(stamp: Stamp, snapshot: u64, deleted: bool, previous: usize) -> ImageHeader {
        ImageHeader { stamp, tagged: snapshot << 1 | deleted as u64, previous }
    }

    pub(super) const fn stamp(self) -> Stamp {
        self.stamp
    }

    pub(super) const fn snapshot(self) -> u64 {
        self.tagged >> 1
    }

    const fn is_deleted(self) -> bool {
        self.tagged & 1 != 0
    }

    /// # Safety
    /// `image` is an image this worker may read.
    #[inline]
    pub(super) unsafe fn of(image: usize) -> ImageHeader {
        // SAFETY: the header of a published image never changes; that of a private one is only ours.
        unsafe { (image as *const ImageHeader).read() }
    }

    /// # Safety
    /// `image` is private to this worker.
    #[inline]
    pub(super) unsafe fn write(self, image: usize) {
        // SAFETY: the caller says that nobody else can reach it.
        unsafe { (image as *mut ImageHeader).write(self) }
    }
}

/// What a read-only transaction sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Versions of a higher number came later.
    snapshot: u64,
    /// Once the log has stopped, or if the disk is behind: versions of a later epoch are not shown, as they are not durable.
    durable: Option<Epoch>,
}

impl View {
    /// The newest committed versions; once the log has stopped, or if the disk is behind, those of the durable epoch. Reads S and advances it, atomically with
    /// regard to regions that read S.
    pub(super) fn take(core: &Core, number: &SnapshotNumber) -> View {
        // ORDERING: SeqCst, partner of the fence between a commit's last lock and its load of S: either that commit sees the
        // advanced number, or we see its records locked.
        let snapshot = core.htm.outside(|| number.fetch_add(1, Ordering::SeqCst));
        fence(Ordering::SeqCst);
        View { snapshot, durable: core.shown_epoch() }
    }

    #[inline]
    fn shows(self, snapshot: u64, stamp: Stamp) -> bool {
        snapshot <= self.snapshot && self.durable.is_none_or(|durable| stamp.epoch() <= durable)
    }
}

/// What a view shows of a record.
enum Version {
    Row(RowPtr),
    /// The key had no row then.
    Deleted,
    /// The record is younger.
    Before,
}

pub(super) fn read(attempt: &mut Optimistic, table: &Table, key: Key<'_>, view: View) -> Result<Option<RowPtr>, Stop> {
    match attempt.base.find(table, key) {
        Ok(record) => match version(attempt, table, record, view) {
            Version::Row(row) => return Ok(Some(row)),
            Version::Deleted => return Ok(None),
            Version::Before => {}
        },
        Err(_) => attempt.base.seen = Seen { absent: true, ..Seen::default() },
    }
    if let Some(durable) = view.durable {
        return Ok(read_buried(attempt, table, key, view, durable));
    }
    // Not linked: deleted before every reader that is still here began, or never committed by one they may see.
    attempt.base.note_unlinked(table);
    Ok(None)
}

/// The row that a key had when the log stopped, if its record was unlinked since.
#[cold]
fn read_buried(attempt: &mut Optimistic, table: &Table, key: Key<'_>, view: View, durable: Epoch) -> Option<RowPtr> {
    let records = attempt.base.core.buried_under(table, key, durable);
    records.into_iter().find_map(|record| match version(attempt, table, record, view) {
        Version::Row(row) => Some(row),
        Version::Deleted | Version::Before => None,
    })
}

pub(super) fn scan_next(
    attempt: &mut Optimistic,
    table: &Table,
    scan: &mut Scan,
    view: View,
) -> Result<Option<RowPtr>, Stop> {
    loop {
        while let Some(&record) = scan.cursor.records().get(scan.next) {
            scan.next += 1;
            match version(attempt, table, record, view) {
                Version::Row(row) => return Ok(Some(row)),
                // What the key had before, if anything, is unlinked: with its leaf that was noted, or it is shown besides.
                Version::Before | Version::Deleted => {}
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
fn next_leaf(attempt: &mut Optimistic, table: &Table, scan: &mut Scan, view: View) -> bool {
    let core = &attempt.base.core;
    if let Some(durable) = view.durable {
        // SAFETY: what is buried is kept, as it was deleted after the durable epoch; its key is of the table's class.
        return unsafe {
            table.index.next_leaf_with(&mut scan.cursor, core.local.pinned(), || core.buried(table, durable))
        };
    }
    let more = table.index.next_leaf(&mut scan.cursor, core.local.pinned());
    if more {
        attempt.base.note_unlinked(table);
    }
    more
}

/// The version of a record that a view shows.
#[inline]
fn version(attempt: &mut Optimistic, table: &Table, record: RecordPtr, view: View) -> Version {
    // A locked record may be about to get a version of our snapshot: wait for it. The holder is between
    // its last lock and its installs and waits for nobody, so this ends when it does; only a descheduled holder makes it long.
    let word = loop {
        if let Some(word) = head::settled(table, record) {
            break word;
        }
    };
    if word.is_absent() && word.stamp() != Stamp::ZERO {
        // Whatever was committed since we looked has a number above ours. So this number is that of the deletion we saw, or
        // too high for us; then the image word, loaded later, begins with what followed that deletion.
        if view.shows(deletion(&table.shape, record).load(Ordering::Acquire), word.stamp()) {
            attempt.base.newest = attempt.base.newest.max(word.stamp());
            attempt.base.seen = Seen { record: Some(record), stamp: word.stamp(), absent: true, own: false };
            return Version::Deleted;
        }
    }
    let mut image = head::image(&table.shape, record).load(Ordering::Acquire) as usize;
    while image != 0 {
        // SAFETY: reachable from the record while we are online; see the module comment for older images.
        let header = unsafe { ImageHeader::of(image) };
        if view.shows(header.snapshot(), header.stamp) {
            attempt.base.newest = attempt.base.newest.max(header.stamp);
            attempt.base.seen =
                Seen { record: Some(record), stamp: header.stamp, absent: header.is_deleted(), own: false };
            return match header.is_deleted() {
                true => Version::Deleted,
                false => Version::Row(record::row_of(table, image)),
            };
        }
        image = header.previous;
    }
    attempt.base.seen = Seen { record: Some(record), absent: true, ..Seen::default() };
    Version::Before
}
