//! Timestamps lie above those of all transactions that read the overwritten version, found the inserted key absent, or
//! saw the unlinked record.

use std::sync::atomic::Ordering;

use seriatim_base::Tid;
use seriatim_catalog::Key;
use seriatim_htm::HtmMode;
use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, Outcome, Priority, Worker as _};

use super::*;
use crate::common::Bench;
use crate::shared::record_header::TidWord;

/// A cell that is changed until its timestamps are far ahead of those of the others.
const HOT: u64 = 0;
const X: u64 = 1;
const Y: u64 = 2;
const ABSENT: u64 = 9;

fn bench() -> Bench<Occ> {
    let bench = Bench::open(HtmMode::Absent, &[10, 10, 10]);
    for _ in 0..20 {
        let mut open = begin(&bench);
        change(&bench, &mut open, HOT);
        let _ = commit(open);
    }
    bench
}

/// A transaction of a worker that has not committed before.
fn begin(bench: &Bench<Occ>) -> Worker<State> {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker
}

fn read(bench: &Bench<Occ>, open: &mut Worker<State>, key: u64) -> Option<i64> {
    bench.read(open, key).expect("nothing is locked")
}

fn change(bench: &Bench<Occ>, open: &mut Worker<State>, key: u64) {
    bench.change(open, key, |value| value + 1).expect("nothing is locked");
}

fn insert(bench: &Bench<Occ>, open: &mut Worker<State>, key: u64) {
    let staged = open.stage(&bench.cells).expect("memory");
    bench.set(staged.row, 1);
    assert_eq!(open.insert(&bench.cells, Key::Word8(key), staged, OnExists::Refuse), Ok(Inserted::New));
}

fn delete(bench: &Bench<Occ>, open: &mut Worker<State>, key: u64) {
    assert!(open.delete(&bench.cells, Key::Word8(key)).expect("nothing is locked").is_some());
}

fn commit(mut open: Worker<State>) -> (Tid, Worker<State>) {
    match open.commit(&mut NoRedo) {
        Ok(Outcome::Committed(tid)) => (tid, open),
        other => panic!("no conflict: {other:?}"),
    }
}

/// Ends a transaction far ahead: by a write, or as one that wrote nothing.
fn far_ahead(bench: &Bench<Occ>, mut open: Worker<State>, writes: bool) -> Tid {
    assert!(read(bench, &mut open, HOT).is_some());
    if writes {
        change(bench, &mut open, HOT);
    }
    commit(open).0
}

#[test]
fn a_transaction_that_overwrites_comes_after_all_readers() {
    for writes in [false, true] {
        let bench = bench();
        let mut reader = begin(&bench);
        assert_eq!(read(&bench, &mut reader, X), Some(10));
        let read_at = far_ahead(&bench, reader, writes);
        let mut writer = begin(&bench);
        change(&bench, &mut writer, X);
        assert!(commit(writer).0 > read_at, "the reader writes: {writes}");
    }
}

/// A node version proves the absence.
#[test]
fn an_insertion_comes_after_all_that_found_the_key_absent() {
    for writes in [false, true] {
        let bench = bench();
        let mut reader = begin(&bench);
        assert_eq!(read(&bench, &mut reader, ABSENT), None);
        let read_at = far_ahead(&bench, reader, writes);
        let mut inserts = begin(&bench);
        insert(&bench, &mut inserts, ABSENT);
        assert!(commit(inserts).0 > read_at, "the reader writes: {writes}");
    }
}

/// The key was found absent before another linked a placeholder, which the insertion fills.
#[test]
fn an_insertion_into_a_foreign_placeholder_comes_after_all_that_found_the_key_absent() {
    let bench = bench();
    let mut reader = begin(&bench);
    assert_eq!(read(&bench, &mut reader, ABSENT), None);
    let read_at = far_ahead(&bench, reader, true);
    let mut gives_up = begin(&bench);
    insert(&bench, &mut gives_up, ABSENT);
    let mut inserts = begin(&bench);
    insert(&bench, &mut inserts, ABSENT);
    assert!(commit(inserts).0 > read_at);
    gives_up.abort();
}

/// The absence was read in a record: a tombstone that is unlinked, or the placeholder of an insertion that is
/// taken back.
#[test]
fn an_insertion_comes_after_all_readers_of_a_record_that_was_unlinked() {
    for deleted in [false, true] {
        let bench = bench();
        let key = if deleted { Y } else { ABSENT };
        let mut leaves = begin(&bench);
        if deleted {
            delete(&bench, &mut leaves, key);
            leaves = commit(leaves).1;
            leaves.core().local.collect();
        } else {
            insert(&bench, &mut leaves, key);
        }
        let mut reader = begin(&bench);
        assert_eq!(read(&bench, &mut reader, key), None);
        assert!(reader.seen().record.is_some(), "the record is linked");
        let read_at = far_ahead(&bench, reader, true);
        if deleted {
            leaves.collect_garbage(usize::MAX);
        } else {
            leaves.abort();
        }
        let mut inserts = begin(&bench);
        let pin = inserts.core().local.pinned();
        assert!(bench.cells.index.get(Key::Word8(key), pin).is_err(), "the record is unlinked");
        insert(&bench, &mut inserts, key);
        assert!(commit(inserts).0 > read_at, "deleted: {deleted}");
    }
}

/// A row that a transaction inserted and deleted again leaves no version: the transaction only found the key absent.
#[test]
fn an_insertion_comes_after_an_insertion_that_was_undone() {
    let bench = bench();
    let mut nothing = begin(&bench);
    insert(&bench, &mut nothing, ABSENT);
    delete(&bench, &mut nothing, ABSENT);
    let read_at = far_ahead(&bench, nothing, true);
    let mut inserts = begin(&bench);
    insert(&bench, &mut inserts, ABSENT);
    assert!(commit(inserts).0 > read_at);
}

/// One absence alone is read at the newest deletion that was unlinked, which may be above what an insertion has seen.
#[test]
fn an_insertion_comes_after_a_transaction_that_read_only_its_placeholder() {
    let bench = bench();
    let mut inserts = begin(&bench);
    insert(&bench, &mut inserts, ABSENT);
    let mut deletes = begin(&bench);
    assert!(read(&bench, &mut deletes, HOT).is_some());
    delete(&bench, &mut deletes, X);
    let (deleted, mut sweeper) = commit(deletes);
    sweeper.core().local.collect();
    sweeper.collect_garbage(usize::MAX);
    // Which it cannot be, as the insertion is still online: it is said to be.
    bench.cells.unlinked.announce(deleted);
    let mut reader = begin(&bench);
    assert_eq!(read(&bench, &mut reader, ABSENT), None);
    let (read_at, _) = commit(reader);
    assert_eq!(read_at, deleted);
    assert!(commit(inserts).0 > read_at);
}

/// A reader that comes between the lock and the new version finds the lock.
#[test]
fn a_locked_record_is_not_read_at_any_timestamp() {
    let bench = bench();
    let mut reader = begin(&bench);
    assert_eq!(read(&bench, &mut reader, X), Some(10));
    change(&bench, &mut reader, Y);
    let x = reader.seen().record.map(|_| reader.attempt().reads[0].record()).expect("a row is of a record");
    let header = record_header::tid_word(&bench.cells.record_layout, x);
    let free = TidWord(header.load(Ordering::Relaxed));
    header.store(free.locked().0, Ordering::Relaxed);
    assert!(reader.commit(&mut NoRedo).is_err());
    reader.abort();
    header.store(free.0, Ordering::Relaxed);
}
