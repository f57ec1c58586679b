//! Puts committed versions into a table without transactions, for recovery: [`seriatim_txn::Recover`] of every protocol.
//!
//! Nobody reads meanwhile and a key is one thread's, so a version is written where it stays: a row into the image inside its
//! record, a patch into the image that is there, and what a version no longer refers to is freed at once. What is left is what a
//! commit with that stamp leaves. A tombstone is nobody's to look at (not QUEUED) and has no image; it is there so that an older
//! version which comes later is known to be older, until [`finish`] unlinks all of them.

use std::sync::atomic::Ordering;

use seriatim_base::Stamp;
use seriatim_catalog::{Key, RowWriter, TailStore};
use seriatim_memory::OutOfMemory;
use seriatim_store::{Finger, Inserted as Linked, RecordPtr, Unobserved, has_key};
use seriatim_txn::{Change, Core, Near, Restored, SetColumns, Staged, Table};

use super::head::{self, HeaderWord};
use super::record;
use super::sweep::{self, Claim};

/// What a protocol keeps of a version beside the header and image word.
pub(crate) trait Versions {
    /// Sets the further words of the head of a record that is about to be linked, as those of a record at rest.
    fn rest(&self, _: &Table, _: RecordPtr) {}

    /// Writes the header of an image whose row is being restored.
    fn describe(&self, _image: usize, _: Stamp) {}
}

/// As [`seriatim_txn::Recover::restore`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn restore(
    versions: &impl Versions,
    core: &mut Core,
    table: &Table,
    key: Key<'_>,
    near: Near<'_>,
    stamp: Stamp,
    change: Change<'_>,
) -> Result<Restored, OutOfMemory> {
    assert!(stamp > Stamp::ZERO, "stamp zero means never committed");
    let Near { guess, finger } = near;
    // SAFETY: the caller's promise: a guess is a linked record of the table.
    let found = match guess.filter(|&guess| unsafe { has_key(guess, key) }) {
        Some(found) => Ok(found),
        None => table.index.get_near(key, finger, core.local.pinned()),
    };
    // Nothing is retired here, so what is allocated and released is what the table has more.
    record::counting(core, table, |core| match found {
        Ok(record) => overwrite(versions, core, table, record, stamp, change),
        Err(_) => match change {
            Change::Patch(_) => Ok(Restored::NoBase),
            Change::Row(fill) => create(versions, core, table, key, finger, stamp, Some(fill)),
            Change::Delete => create(versions, core, table, key, finger, stamp, None),
        },
    })
}

/// As [`seriatim_txn::Recover::finish_restore`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn finish(core: &mut Core, table: &Table, claim: &impl Claim) {
    let mut tombstones = Vec::new();
    // SAFETY: the caller's promise: nobody else uses the table.
    unsafe {
        table.index.for_each(|record| {
            let word = HeaderWord(head::header(&table.shape, record).load(Ordering::Relaxed));
            if word.is_absent() && !word.is_queued() {
                tombstones.push(record);
            }
        });
    }
    for record in tombstones {
        let header = head::header(&table.shape, record);
        let word = HeaderWord(header.load(Ordering::Relaxed));
        let owed = HeaderWord::committed(word.stamp(), true, true);
        header.store(owed.0, Ordering::Relaxed);
        core.local.enter();
        let unlinked = sweep::look(core, table, record, owed, claim);
        core.local.leave();
        assert!(unlinked, "nobody else holds a record that is being restored");
    }
}

/// The first version of a key.
fn create(
    versions: &impl Versions,
    core: &mut Core,
    table: &Table,
    key: Key<'_>,
    finger: &mut Finger,
    stamp: Stamp,
    fill: Option<&mut SetColumns<'_>>,
) -> Result<Restored, OutOfMemory> {
    let (refused, is_row) = (|_| OutOfMemory, fill.is_some());
    let staged = record::stage(core, table).map_err(refused)?;
    let record = staged.record;
    if record::seal(core, table, record, key).is_err() {
        record::discard(core, table, staged);
        return Err(OutOfMemory);
    }
    versions.rest(table, record);
    let filled = match fill {
        Some(fill) => write_row(core, table, staged, fill).map(|()| {
            let image = record::image_of(table, staged.row);
            versions.describe(image, stamp);
            image
        }),
        None => Ok(0),
    };
    let linked = filled.and_then(|image| {
        set(table, record, HeaderWord::committed(stamp, image == 0, false), image);
        let linked = table.index.insert_near(&mut core.store(), key, finger, record, &mut Unobserved);
        if linked.is_err() && image != 0 {
            record::release_version(core, table, record, image);
        }
        linked
    });
    match linked {
        Ok(linked) => {
            assert_eq!(linked, Linked::Linked, "two threads restored the same key");
            if is_row {
                core.counts.add(table.id, 1, 0);
            }
            Ok(Restored::Applied)
        }
        Err(OutOfMemory) => {
            record::unseal(core, table, record);
            record::discard(core, table, staged);
            Err(OutOfMemory)
        }
    }
}

/// A version of a key that has a record.
fn overwrite(
    versions: &impl Versions,
    core: &mut Core,
    table: &Table,
    record: RecordPtr,
    stamp: Stamp,
    change: Change<'_>,
) -> Result<Restored, OutOfMemory> {
    let word = HeaderWord(head::header(&table.shape, record).load(Ordering::Relaxed));
    let image = head::image(&table.shape, record).load(Ordering::Relaxed) as usize;
    assert!(!word.is_locked() && !word.is_removed(), "a record that is being restored is in use");
    if word.stamp() >= stamp {
        return Ok(Restored::Older);
    }
    let after = |absent| HeaderWord::committed(stamp, absent, word.is_queued());
    match change {
        Change::Patch(_) if word.is_absent() => return Ok(Restored::NoBase),
        Change::Patch(apply) => {
            patch(core, table, image, apply)?;
            versions.describe(image, stamp);
            set(table, record, after(false), image);
        }
        Change::Row(fill) => {
            clear(core, table, record, word, image);
            // SAFETY: nobody reads, and the key is this thread's.
            let staged = unsafe { record::restage(table, record) };
            write_row(core, table, staged, fill)?;
            let image = record::image_of(table, staged.row);
            versions.describe(image, stamp);
            set(table, record, after(false), image);
            core.counts.add(table.id, i64::from(word.is_absent()), 0);
        }
        Change::Delete => {
            clear(core, table, record, word, image);
            set(table, record, after(true), 0);
            core.counts.add(table.id, -i64::from(!word.is_absent()), 0);
        }
    }
    Ok(Restored::Applied)
}

/// Takes the row, or what is left of it, from a record.
fn clear(core: &mut Core, table: &Table, record: RecordPtr, word: HeaderWord, image: usize) {
    // What a tombstone names is not its own: it was retired when the row was deleted.
    if !word.is_absent() {
        record::release_version(core, table, record, image);
    }
    set(table, record, HeaderWord::committed(word.stamp(), true, word.is_queued()), 0);
}

fn set(table: &Table, record: RecordPtr, word: HeaderWord, image: usize) {
    // ORDERING: published by linking the record, or by the end of the thread that restores.
    head::image(&table.shape, record).store(image as u64, Ordering::Relaxed);
    head::header(&table.shape, record).store(word.0, Ordering::Relaxed);
}

/// Where the tails of a row go while it is restored.
struct Tails<'a> {
    core: &'a mut Core,
    made: Vec<usize>,
}

impl TailStore for Tails<'_> {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, seriatim_catalog::OutOfMemory> {
        let tail = record::tail(self.core, bytes).map_err(|_| seriatim_catalog::OutOfMemory)?;
        self.made.extend((tail != 0).then_some(tail as usize));
        Ok(tail)
    }
}

/// Sets the columns of a zeroed row. On failure none of its tails is left.
fn write_row(core: &mut Core, table: &Table, staged: Staged, fill: &mut SetColumns<'_>) -> Result<(), OutOfMemory> {
    let mut tails = Tails { core, made: Vec::new() };
    // SAFETY: row and fixed part are this thread's, zeroed, and laid out as the table says; the caller of `restore` promised that
    // the columns set are the table's.
    let filled = fill(&mut unsafe { RowWriter::for_insert(staged.row.as_ptr(), staged.fixed.as_ptr(), &mut tails) });
    let made = tails.made;
    let kept = filled.is_ok().then(|| record::image_of(table, staged.row));
    record::release_tails(core, table, &made, kept);
    filled.map_err(|_| OutOfMemory)
}

/// Sets columns of the row that a record has. On failure the row is whole, and some of the columns are set.
fn patch(core: &mut Core, table: &Table, image: usize, apply: &mut SetColumns<'_>) -> Result<(), OutOfMemory> {
    let before = record::tails_of(table, image);
    let mut tails = Tails { core, made: before };
    // SAFETY: as in `write_row`; nobody reads the row.
    let applied = apply(&mut unsafe { RowWriter::for_update(record::row_of(table, image).as_ptr(), &mut tails) });
    let had = tails.made;
    record::release_tails(core, table, &had, Some(image));
    applied.map_err(|_| OutOfMemory)
}
