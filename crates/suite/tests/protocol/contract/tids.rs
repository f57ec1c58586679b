//! A commit's TID lies above that of every delete whose effect it saw, also where nothing is left of the
//! deleted record. Before an attempt commits, `newest` is a bound for all rows and absences that it saw.

use std::ops::Bound;

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, Key};
use seriatim_store::Direction;
use seriatim_txn::{Freshness, Inserted, Mode, OpError, Priority, Protocol, Scan, Worker};

use crate::common::{Bench, modes};
use crate::contract::{commit, insert};

/// Deletes cell 1 after a few changes of it, whose TIDs no other row has. Returns the TID of the delete. Its record can
/// be unlinked.
pub(crate) fn delete<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker) -> Tid {
    for _ in 0..10 {
        worker.begin(Mode::ReadWrite, Priority::NONE);
        bench.change(worker, 1, |value| value + 1).expect("alone");
        commit(worker).expect("alone");
    }
    worker.begin(Mode::ReadWrite, Priority::NONE);
    assert!(worker.delete(&bench.cells, Key::Word8(1)).is_ok_and(|row| row.is_some()));
    let deleted = commit(worker).expect("alone");
    bench.pass_time();
    worker.core().local.collect();
    deleted
}

pub(crate) fn scan_past_an_unlinked_record<P: Protocol>() {
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 1]);
        let (mut deleting, mut scanning) = (bench.worker(), bench.worker());
        let deleted = delete(&bench, &mut deleting);
        scanning.begin(Mode::ReadWrite, Priority::NONE);
        let mut scan = Scan::default();
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        bench.cells.index.scan(low, high, Direction::Forward, &mut scan.cursor).expect("an ordered table");
        let mut steps = || -> Result<Tid, OpError> {
            let first = scanning.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)?;
            assert!(first.is_some(), "cell 0 is there");
            // The scan holds the leaf as it was, with the record.
            deleting.collect_garbage(usize::MAX);
            let next = scanning.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)?;
            assert!(next.is_none(), "cell 1 is deleted");
            bench.change(&mut scanning, 0, |value| value + 1)?;
            commit(&mut scanning)
        };
        match steps() {
            Ok(tid) => {
                assert!(tid > deleted, "{} on {mode}: {tid}, and the delete {deleted}", P::INFO.name);
            }
            Err(_) => scanning.abort(),
        }
    }
}

pub(crate) fn reader_of_an_absence<P: Protocol>() {
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 1]);
        let (mut deleting, mut reading) = (bench.worker(), bench.worker());
        let deleted = delete(&bench, &mut deleting);
        deleting.collect_garbage(usize::MAX);
        reading.begin(Mode::ReadOnly, Priority::NONE);
        let pin = reading.core().local.pinned();
        assert!(bench.cells.index.get(Key::Word8(1), pin).is_err(), "nothing is left of it");
        assert_eq!(bench.read(&mut reading, 1), Ok(None));
        let read = commit(&mut reading).expect("alone");
        assert!(read >= deleted, "{} on {mode}: it read with {read} what {deleted} deleted", P::INFO.name);
        reading.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(bench.read(&mut reading, 1), Ok(None));
        bench.change(&mut reading, 0, |value| value + 1).expect("alone");
        let written = commit(&mut reading).expect("alone");
        assert!(written > deleted, "{} on {mode}: {written}, and the delete {deleted}", P::INFO.name);
    }
}

/// The state of cell 1 before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellState {
    Row,
    Tombstone,
    Nothing,
}

/// Whether anything is found in cell 1, by lookup or by scan of all cells.
fn look<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, scans: bool) -> Result<bool, OpError> {
    if !scans {
        return Ok(bench.read(worker, 1)?.is_some());
    }
    let mut scan = Scan::default();
    let all = (Bound::Unbounded, Bound::Unbounded);
    bench.cells.index.scan(all.0, all.1, Direction::Forward, &mut scan.cursor).expect("an ordered table");
    let mut rows = 0;
    while worker.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)?.is_some() {
        rows += 1;
    }
    Ok(rows == 2)
}

pub(crate) fn bound_of_what_was_seen<P: Protocol>() {
    for mode in modes() {
        for left in [CellState::Row, CellState::Tombstone, CellState::Nothing] {
            for (scans, reads_only) in [(false, false), (false, true), (true, false), (true, true)] {
                let bench = Bench::<P>::open(mode, &[1, 1]);
                let (mut writing, mut reading) = (bench.worker(), bench.worker());
                let mut written = Tid::ZERO;
                if left == CellState::Row {
                    for _ in 0..10 {
                        writing.begin(Mode::ReadWrite, Priority::NONE);
                        bench.change(&mut writing, 1, |value| value + 1).expect("alone");
                        written = commit(&mut writing).expect("alone");
                    }
                } else {
                    written = delete(&bench, &mut writing);
                }
                if left == CellState::Nothing {
                    writing.collect_garbage(usize::MAX);
                }
                reading.begin(if reads_only { Mode::ReadOnly } else { Mode::ReadWrite }, Priority::NONE);
                let pin = reading.core().local.pinned();
                assert_eq!(bench.cells.index.get(Key::Word8(1), pin).is_ok(), left != CellState::Nothing);
                assert_eq!(reading.newest(), Tid::ZERO, "nothing was seen");
                assert_eq!(look(&bench, &mut reading, scans), Ok(left == CellState::Row));
                let case = format!("{} on {mode}: {left:?}, scans {scans}, only {reads_only}", P::INFO.name);
                let newest = reading.newest();
                assert!(newest >= written, "{case}: {newest}, and the write {written}");
                assert_eq!(commit(&mut reading), Ok(newest), "{case}");
            }
        }
    }
}

pub(crate) fn bound_of_an_absence_before_an_insert<P: Protocol>() {
    for mode in modes() {
        for (scans, commits) in [(false, false), (false, true), (true, false), (true, true)] {
            let bench = Bench::<P>::open(mode, &[1, 1]);
            let (mut writing, mut reading) = (bench.worker(), bench.worker());
            let deleted = delete(&bench, &mut writing);
            writing.collect_garbage(usize::MAX);
            reading.begin(Mode::ReadOnly, Priority::NONE);
            // The key has a record again that the snapshot, where there is one, does not see.
            writing.begin(Mode::ReadWrite, Priority::NONE);
            assert_eq!(insert(&bench, &mut writing, 1, 5), Ok(Inserted::New));
            let inserted = commits.then(|| commit(&mut writing).expect("alone"));
            match look(&bench, &mut reading, scans) {
                Ok(true) => assert!(inserted.is_some_and(|inserted| reading.newest() >= inserted)),
                Ok(false) => assert!(reading.newest() >= deleted, "{} on {mode}: {commits}", P::INFO.name),
                Err(_) => assert_eq!(P::INFO.capabilities.snapshots, Freshness::None),
            }
            reading.abort();
            if !commits {
                writing.abort();
            }
        }
    }
}

pub(crate) fn epoch_of_the_decision<P: Protocol>() {
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1]);
        let mut worker = bench.worker();
        for _ in 0..3 {
            worker.begin(Mode::ReadWrite, Priority::NONE);
            bench.change(&mut worker, 0, |value| value + 1).expect("alone");
            bench.environment.advance_epoch();
            let committed = commit(&mut worker).expect("alone");
            assert_eq!(committed.epoch(), bench.environment.epochs.current(), "{} on {mode}", P::INFO.name);
        }
    }
}

pub(crate) fn snapshot_of_what_was_inserted_over<P: Protocol>() {
    if P::INFO.capabilities.snapshots == Freshness::None {
        return;
    }
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 7]);
        let (mut writing, mut before, mut between) = (bench.worker(), bench.worker(), bench.worker());
        for (row, taken_between) in [(7, false), (8, true)] {
            before.begin(Mode::ReadOnly, Priority::NONE);
            writing.begin(Mode::ReadWrite, Priority::NONE);
            assert!(writing.delete(&bench.cells, Key::Word8(1)).is_ok_and(|row| row.is_some()));
            commit(&mut writing).expect("snapshots are in nobody's way");
            if taken_between {
                between.begin(Mode::ReadOnly, Priority::NONE);
            }
            writing.begin(Mode::ReadWrite, Priority::NONE);
            assert_eq!(insert(&bench, &mut writing, 1, row + 1), Ok(Inserted::New));
            commit(&mut writing).expect("as above");
            assert_eq!(bench.read(&mut before, 1), Ok(Some(row)), "{} on {mode}: {taken_between}", P::INFO.name);
            commit(&mut before).expect("snapshots do not fail");
            if taken_between {
                assert_eq!(bench.read(&mut between, 1), Ok(None), "{} on {mode}", P::INFO.name);
                commit(&mut between).expect("as above");
            }
        }
    }
}

pub(crate) fn bound_of_a_snapshot<P: Protocol>() {
    if P::INFO.capabilities.snapshots == Freshness::None {
        return;
    }
    for mode in modes() {
        for scans in [false, true] {
            let bench = Bench::<P>::open(mode, &[1, 1]);
            let (mut writing, mut reading) = (bench.worker(), bench.worker());
            reading.begin(Mode::ReadOnly, Priority::NONE);
            let deleted = delete(&bench, &mut writing);
            writing.collect_garbage(usize::MAX);
            assert_eq!(look(&bench, &mut reading, scans), Ok(true));
            assert!(reading.newest() < deleted, "{} on {mode}: {deleted}, scans {scans}", P::INFO.name);
            assert_eq!(commit(&mut reading), Ok(reading.newest()));
        }
    }
}
