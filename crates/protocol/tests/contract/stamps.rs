//! A commit's stamp lies above that of every delete whose effect it saw, also where nothing is left of the deleted record.

use std::ops::Bound;

use seriatim_base::Stamp;
use seriatim_catalog::{ColumnSet, Key};
use seriatim_store::Direction;
use seriatim_txn::{Mode, Protocol, Scan, Stop, Worker};

use crate::commit;
use crate::common::{Bench, modes};

/// Deletes cell 1 after a few changes of it, whose stamps nobody else has: the stamp of the delete. Its record can be unlinked.
fn delete<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker) -> Stamp {
    for _ in 0..10 {
        worker.begin(Mode::ReadWrite, Stamp::ZERO);
        bench.change(worker, 1, |value| value + 1).expect("alone");
        commit(worker).expect("alone");
    }
    worker.begin(Mode::ReadWrite, Stamp::ZERO);
    assert!(worker.delete(&bench.cells, Key::Word8(1)).is_ok_and(|row| row.is_some()));
    let deleted = commit(worker).expect("alone");
    worker.core().local.collect();
    deleted
}

pub(crate) fn scan_past_an_unlinked_record<P: Protocol>() {
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 1]);
        let (mut deleting, mut scanning) = (bench.worker(), bench.worker());
        let deleted = delete(&bench, &mut deleting);
        scanning.begin(Mode::ReadWrite, Stamp::ZERO);
        let mut scan = Scan::default();
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        bench.cells.index.scan(low, high, Direction::Forward, &mut scan.cursor).expect("an ordered table");
        let mut steps = || -> Result<Stamp, Stop> {
            let first = scanning.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)?;
            assert!(first.is_some(), "cell 0 is there");
            // The scan holds the leaf as it was, with the record.
            deleting.housekeep(usize::MAX);
            let next = scanning.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)?;
            assert!(next.is_none(), "cell 1 is deleted");
            bench.change(&mut scanning, 0, |value| value + 1)?;
            commit(&mut scanning)
        };
        match steps() {
            Ok(stamp) => {
                assert!(stamp > deleted, "{} on {mode}: {stamp}, and the delete {deleted}", P::INFO.name);
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
        deleting.housekeep(usize::MAX);
        reading.begin(Mode::ReadOnly, Stamp::ZERO);
        let pin = reading.core().local.pinned();
        assert!(bench.cells.index.get(Key::Word8(1), pin).is_err(), "nothing is left of it");
        assert_eq!(bench.read(&mut reading, 1), Ok(None));
        let read = commit(&mut reading).expect("alone");
        assert!(read >= deleted, "{} on {mode}: it read with {read} what {deleted} deleted", P::INFO.name);
        reading.begin(Mode::ReadWrite, Stamp::ZERO);
        assert_eq!(bench.read(&mut reading, 1), Ok(None));
        bench.change(&mut reading, 0, |value| value + 1).expect("alone");
        let written = commit(&mut reading).expect("alone");
        assert!(written > deleted, "{} on {mode}: {written}, and the delete {deleted}", P::INFO.name);
    }
}
