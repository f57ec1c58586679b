//! Puts committed versions into a table without transactions, for recovery: [`seriatim_txn::Recover`] of
//! every protocol.
//!
//! There are no readers meanwhile and each key belongs to one thread, so a version is written to its final address.
//! That is the row version inside the record for a row, and the existing row version for a patch. Parts to which a
//! version no longer refers are freed at once. The result is that of a commit with that TID. A tombstone is owed no
//! look (not QUEUED) and has no row version. It exists so that an older version which comes later is known to be older,
//! until [`finish`] unlinks all tombstones.

use std::sync::atomic::Ordering;

use seriatim_base::Tid;
use seriatim_catalog::{Key, OutOfLineStore, RowWriter};
use seriatim_memory::OutOfMemory;
use seriatim_store::{Inserted as Linked, LeafHint, RecordPtr, Unobserved, has_key};
use seriatim_txn::{Change, Core, Near, RecordLayout, Restored, SetColumns, Staged, Table};

use super::gc::{self, Claim};
use super::record;
use super::record_header::{self, TidWord};

/// The data that a protocol keeps for a version beside the header and version word.
pub trait Versions {
    /// Sets the further words of the header of a record that is about to be linked, as those of a record at rest.
    fn rest(&self, _: &Table, _: RecordPtr) {}

    /// Writes the header of a row version whose row is being restored.
    fn describe(&self, _: &RecordLayout, _row_version: usize, _: Tid) {}
}

/// Implements [`seriatim_txn::Recover`] for a protocol that is [`Versions`] and unlinks records by this [`Claim`].
///
/// It also has the protocol's worker compiled with the protocol's crate. Where little is optimized, crates that use it
/// take generic code from there; it would be compiled again in each test program that drives workers.
#[doc(hidden)]
#[macro_export]
macro_rules! recovers {
    ($protocol:ty, $claim:expr) => {
        #[cfg(all(debug_assertions, not(test)))]
        #[used]
        static COMPILED: fn(&$protocol, seriatim_txn::Core) -> Box<dyn seriatim_txn::Worker> =
            |protocol, core| Box::new(seriatim_txn::Protocol::worker(protocol, core));

        impl seriatim_txn::Recover for $protocol {
            unsafe fn restore(
                &self,
                core: &mut seriatim_txn::Core,
                table: &seriatim_txn::Table,
                key: seriatim_catalog::Key<'_>,
                near: seriatim_txn::Near<'_>,
                tid: seriatim_base::Tid,
                change: seriatim_txn::Change<'_>,
            ) -> Result<seriatim_txn::Restored, seriatim_memory::OutOfMemory> {
                // SAFETY: the caller's promise.
                unsafe { $crate::shared::restore::restore(self, core, table, key, near, tid, change) }
            }

            unsafe fn finish_restore(&self, core: &mut seriatim_txn::Core, table: &seriatim_txn::Table) {
                // SAFETY: the caller's promise.
                unsafe { $crate::shared::restore::finish(core, table, &$claim) }
            }
        }
    };
}
pub use crate::recovers;

/// As [`seriatim_txn::Recover::restore`].
///
/// # Safety
/// The conditions of [`seriatim_txn::Recover::restore`].
pub unsafe fn restore(
    versions: &impl Versions,
    core: &mut Core,
    table: &Table,
    key: Key<'_>,
    near: Near<'_>,
    tid: Tid,
    change: Change<'_>,
) -> Result<Restored, OutOfMemory> {
    assert!(tid > Tid::ZERO, "TID zero means never committed");
    let Near { guess, leaf_hint } = near;
    // SAFETY: the caller's promise: a guess is a linked record of the table.
    let found = match guess.filter(|&guess| unsafe { has_key(guess, key) }) {
        Some(found) => Ok(found),
        None => table.index.get_near(key, leaf_hint, core.local.pinned()),
    };
    // Nothing is retired here, so what is allocated and released is what the table has more.
    record::counting(core, table, |core| match found {
        Ok(record) => overwrite(versions, core, table, record, tid, change),
        Err(_) => match change {
            Change::Patch(_) => Ok(Restored::NoBase),
            Change::Row(fill) => create(versions, core, table, key, leaf_hint, tid, Some(fill)),
            Change::Delete => create(versions, core, table, key, leaf_hint, tid, None),
        },
    })
}

/// As [`seriatim_txn::Recover::finish_restore`].
///
/// # Safety
/// The conditions of [`seriatim_txn::Recover::finish_restore`].
pub unsafe fn finish(core: &mut Core, table: &Table, claim: &impl Claim) {
    let mut tombstones = Vec::new();
    // SAFETY: the caller's promise: no other thread uses the table.
    unsafe {
        table.index.for_each(|record| {
            let word = TidWord(record_header::tid_word(&table.record_layout, record).load(Ordering::Relaxed));
            if word.is_absent() && !word.is_queued() {
                tombstones.push(record);
            }
        });
    }
    for record in tombstones {
        let header = record_header::tid_word(&table.record_layout, record);
        let word = TidWord(header.load(Ordering::Relaxed));
        let owed = TidWord::committed(word.tid(), true, true);
        header.store(owed.0, Ordering::Relaxed);
        core.local.enter();
        let unlinked = gc::look(core, table, record, &mut LeafHint::default(), owed, claim);
        core.local.leave();
        assert!(unlinked, "no other thread holds a record that is being restored");
    }
}

/// The first version of a key.
fn create(
    versions: &impl Versions,
    core: &mut Core,
    table: &Table,
    key: Key<'_>,
    leaf_hint: &mut LeafHint,
    tid: Tid,
    fill: Option<&mut SetColumns<'_>>,
) -> Result<Restored, OutOfMemory> {
    let refused = |_| OutOfMemory;
    let staged = record::stage(core, table).map_err(refused)?;
    let record = staged.record;
    if record::set_key(core, table, record, key).is_err() {
        record::discard(core, table, staged);
        return Err(OutOfMemory);
    }
    versions.rest(table, record);
    let filled = match fill {
        Some(fill) => write_row(core, table, staged, fill).map(|()| {
            let row_version = record::row_version_of(staged.row);
            versions.describe(&table.record_layout, row_version, tid);
            row_version
        }),
        None => Ok(0),
    };
    let rows = filled.map_or(0, |row_version| record::rows_in(table, row_version));
    let linked = filled.and_then(|row_version| {
        set(table, record, TidWord::committed(tid, row_version == 0, false), row_version);
        let linked = table.index.insert_near(&mut core.store(), key, leaf_hint, record, &mut Unobserved);
        if linked.is_err() && row_version != 0 {
            record::release_version(core, table, record, row_version);
        }
        linked
    });
    match linked {
        Ok(linked) => {
            assert_eq!(linked, Linked::Linked, "two threads restored the same key");
            if rows != 0 {
                core.counts.add(table.id, rows, 0);
            }
            Ok(Restored::Applied)
        }
        Err(OutOfMemory) => {
            record::clear_key(core, table, record);
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
    tid: Tid,
    change: Change<'_>,
) -> Result<Restored, OutOfMemory> {
    let word = TidWord(record_header::tid_word(&table.record_layout, record).load(Ordering::Relaxed));
    let row_version = record_header::row_version(&table.record_layout, record).load(Ordering::Relaxed) as usize;
    assert!(!word.is_locked() && (!word.is_removed() || word.is_hot()), "a record that is being restored is in use");
    if word.tid() >= tid {
        return Ok(Restored::Older);
    }
    let after = |absent| TidWord::committed(tid, absent, word.is_queued());
    let rows = if word.is_absent() { 0 } else { record::rows_in(table, row_version) };
    match change {
        Change::Patch(_) if word.is_absent() => return Ok(Restored::NoBase),
        Change::Patch(apply) => {
            patch(core, table, row_version, apply)?;
            versions.describe(&table.record_layout, row_version, tid);
            set(table, record, after(false), row_version);
            core.counts.add(table.id, record::rows_in(table, row_version) - rows, 0);
        }
        Change::Row(fill) => {
            clear(core, table, record, word, row_version);
            // SAFETY: there are no readers, and the key is this thread's.
            let staged = unsafe { record::restage(table, record) };
            write_row(core, table, staged, fill)?;
            let row_version = record::row_version_of(staged.row);
            versions.describe(&table.record_layout, row_version, tid);
            set(table, record, after(false), row_version);
            core.counts.add(table.id, record::rows_in(table, row_version) - rows, 0);
        }
        Change::Delete => {
            clear(core, table, record, word, row_version);
            set(table, record, after(true), 0);
            core.counts.add(table.id, -rows, 0);
        }
    }
    Ok(Restored::Applied)
}

/// Takes the row, or what is left of it, from a record.
fn clear(core: &mut Core, table: &Table, record: RecordPtr, word: TidWord, row_version: usize) {
    // A tombstone does not own the version that it names: that was retired when the row was deleted.
    if !word.is_absent() {
        record::release_version(core, table, record, row_version);
    }
    set(table, record, TidWord::committed(word.tid(), true, word.is_queued()), 0);
}

fn set(table: &Table, record: RecordPtr, word: TidWord, row_version: usize) {
    // ORDERING: published by linking the record, or by the end of the thread that restores.
    record_header::row_version(&table.record_layout, record).store(row_version as u64, Ordering::Relaxed);
    record_header::tid_word(&table.record_layout, record).store(word.0, Ordering::Relaxed);
}

/// Where the out-of-line values of a row go while it is restored.
struct OutOfLineValues<'a> {
    core: &'a mut Core,
    made: Vec<usize>,
}

impl OutOfLineStore for OutOfLineValues<'_> {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, seriatim_catalog::OutOfMemory> {
        let out_of_line = record::out_of_line(self.core, bytes).map_err(|_| seriatim_catalog::OutOfMemory)?;
        self.made.extend((out_of_line != 0).then_some(out_of_line as usize));
        Ok(out_of_line)
    }
}

/// Sets the columns of a zeroed row. On failure none of its out-of-line values is left.
fn write_row(core: &mut Core, table: &Table, staged: Staged, fill: &mut SetColumns<'_>) -> Result<(), OutOfMemory> {
    let mut out_of_line_values = OutOfLineValues { core, made: Vec::new() };
    // SAFETY: row and fixed part belong to this thread, are zeroed, and have the table's layout. The caller of
    // `restore` promised that the columns set are the table's.
    let filled = fill(&mut unsafe {
        RowWriter::for_insert(staged.row.as_ptr(), staged.fixed.as_ptr(), &mut out_of_line_values)
    });
    let made = out_of_line_values.made;
    let kept = filled.is_ok().then(|| record::row_version_of(staged.row));
    record::release_out_of_line(core, table, &made, kept);
    filled.map_err(|_| OutOfMemory)
}

/// Sets columns of the row that a record has. On failure the row is whole, and some of the columns are set.
fn patch(core: &mut Core, table: &Table, row_version: usize, apply: &mut SetColumns<'_>) -> Result<(), OutOfMemory> {
    let before = record::out_of_line_of(table, row_version);
    let mut out_of_line_values = OutOfLineValues { core, made: before };
    // SAFETY: as in `write_row`; there are no readers of the row.
    let applied =
        apply(&mut unsafe { RowWriter::for_update(record::row_of(row_version).as_ptr(), &mut out_of_line_values) });
    let had = out_of_line_values.made;
    record::release_out_of_line(core, table, &had, Some(row_version));
    applied.map_err(|_| OutOfMemory)
}
