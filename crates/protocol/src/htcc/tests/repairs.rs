//! Repairs step by step: which runs are asked for, what stays of those that were dropped, and which locks are
//! given back.

use seriatim_txn::{Repair, Runs};

use super::*;

/// Later accesses belong to this run.
pub(super) fn run(worker: &mut Of, operation: u16, iteration: u32) {
    repair(worker).operation(operation, iteration);
}

pub(super) fn repair(worker: &mut Of) -> &mut dyn Repair {
    worker.repair().expect("it repairs")
}

/// Another transaction gives a cell a value.
fn meanwhile(cells: &Cells, id: u64, value: i64) {
    let mut other = begin(cells);
    assert!(put(cells, &mut other, id, value).is_ok());
    assert!(commit(&mut other).is_ok());
}

/// Ends with a repair of these runs.
pub(super) fn asks(worker: &mut Of, runs: &[Runs]) {
    assert_eq!(worker.commit(&mut NoRedo), Ok(Outcome::Repair(runs.to_vec())));
}

#[test]
fn stale_runs_are_requested_once_each() {
    for mode in modes() {
        let cells = Cells::open(mode, &VALUES);
        let mut worker = begin(&cells);
        run(&mut worker, 0, 0);
        assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
        for iteration in 0..3 {
            run(&mut worker, 1, iteration);
            assert!(add(&cells, &mut worker, 1 + u64::from(iteration)).is_ok());
            assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
        }
        run(&mut worker, 2, 0);
        assert_eq!(cells.read(&mut worker, ABSENT), Ok(None));
        meanwhile(&cells, 2, 50);
        asks(&mut worker, &[Runs::one(1, 1)]);
        repair(&mut worker).forget(Runs::one(1, 1), true);
        run(&mut worker, 1, 1);
        assert!(add(&cells, &mut worker, 2).is_ok());
        meanwhile(&cells, 0, 2);
        meanwhile(&cells, ABSENT, 7);
        // The second iteration has not read it again.
        let stale = [Runs::one(0, 0), Runs::one(1, 0), Runs::one(1, 2), Runs::one(2, 0)];
        asks(&mut worker, &stale);
        for (runs, id, value) in
            stale.into_iter().zip([0, 1, 3, ABSENT]).zip([2, 11, 1001, 7]).map(|((a, b), c)| (a, b, c))
        {
            repair(&mut worker).forget(runs, true);
            run(&mut worker, runs.operation, runs.iteration.expect("one"));
            if runs.operation == 1 {
                assert_eq!(add(&cells, &mut worker, id), Ok(value));
            } else {
                assert_eq!(cells.read(&mut worker, id), Ok(Some(value)));
            }
        }
        assert!(commit(&mut worker).is_ok());
        assert_eq!(cells.state(&KEYS), [2, 11, 51, 1001]);
    }
}

#[test]
fn all_runs_are_requested_if_configured() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    let options = Options::new(&Htcc::INFO, &[("repair_all".to_owned(), 1)]).expect("in range");
    let protocol = Htcc::open(&options, &cells.environment);
    let mut worker = protocol.worker(cells.environment.core().expect("a free slot"));
    worker.begin(Mode::ReadWrite, Priority::NONE);
    run(&mut worker, 0, 0);
    assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
    run(&mut worker, 1, 0);
    assert_eq!(cells.read(&mut worker, ABSENT), Ok(None));
    for iteration in 0..2 {
        run(&mut worker, 3, iteration);
        assert!(add(&cells, &mut worker, 1 + u64::from(iteration)).is_ok());
    }
    meanwhile(&cells, 0, 2);
    asks(&mut worker, &[Runs::all(0), Runs::all(1), Runs::all(3)]);
    worker.abort();
}

#[test]
fn a_flip_is_repaired_under_the_lock() {
    for mode in modes() {
        let cells = Cells::open(mode, &VALUES);
        let mut worker = begin(&cells);
        run(&mut worker, 0, 0);
        assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
        run(&mut worker, 1, 0);
        assert!(add(&cells, &mut worker, 1).is_ok());
        assert!(flip(&cells, 0, true) && flip(&cells, 1, true));
        asks(&mut worker, &[Runs::one(0, 0), Runs::one(1, 0)]);
        nothing_is_held(&cells);
        for operation in 0..2 {
            repair(&mut worker).forget(Runs::all(operation), true);
            run(&mut worker, operation, 0);
            assert!(add(&cells, &mut worker, operation.into()).is_ok());
            assert!(held(&cells, operation.into()));
        }
        assert!(commit(&mut worker).is_ok());
        nothing_is_held(&cells);
        assert_eq!(cells.state(&KEYS), [2, 11, 100, 1000]);
    }
}

#[test]
fn locks_of_runs_that_do_not_run_again_are_given_back() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    assert!((0..3).all(|id| flip(&cells, id, true)));
    let mut worker = begin(&cells);
    run(&mut worker, 0, 0);
    assert_eq!(cells.read(&mut worker, 3), Ok(Some(1000)));
    // Two runs hold the first, one of them to write it; the second and the third belong to one each.
    run(&mut worker, 1, 0);
    assert!(add(&cells, &mut worker, 0).is_ok() && add(&cells, &mut worker, 1).is_ok());
    run(&mut worker, 2, 0);
    assert_eq!(cells.read(&mut worker, 0), Ok(Some(2)));
    assert_eq!(cells.read(&mut worker, 2), Ok(Some(100)));
    meanwhile(&cells, 3, 5);
    asks(&mut worker, &[Runs::one(0, 0)]);
    repair(&mut worker).forget(Runs::one(0, 0), true);
    repair(&mut worker).forget(Runs::all(1), false);
    assert_eq!([0, 1, 2].map(|id| held(&cells, id)), [true, false, true]);
    repair(&mut worker).forget(Runs::all(2), false);
    nothing_is_held(&cells);
    meanwhile(&cells, 1, 20);
    run(&mut worker, 0, 0);
    assert_eq!(cells.read(&mut worker, 3), Ok(Some(5)));
    run(&mut worker, 1, 0);
    assert!(add(&cells, &mut worker, 2).is_ok());
    assert!(commit(&mut worker).is_ok());
    nothing_is_held(&cells);
    assert_eq!(cells.state(&KEYS), [1, 20, 101, 5], "nothing is left of what was written first");
}

/// A run whose key is another now holds the lock of the record that it left up to the next commit.
#[test]
fn locks_of_records_that_runs_left_are_given_back() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    assert!((1..3).all(|id| flip(&cells, id, true)));
    let mut worker = begin(&cells);
    run(&mut worker, 0, 0);
    assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
    run(&mut worker, 1, 0);
    assert!(add(&cells, &mut worker, 1).is_ok());
    for (place, left) in [(2, 1), (1, 2)] {
        meanwhile(&cells, 0, place);
        asks(&mut worker, &[Runs::one(0, 0)]);
        repair(&mut worker).forget(Runs::one(0, 0), true);
        repair(&mut worker).forget(Runs::one(1, 0), true);
        run(&mut worker, 0, 0);
        assert_eq!(cells.read(&mut worker, 0), Ok(Some(place)));
        run(&mut worker, 1, 0);
        assert!(add(&cells, &mut worker, place as u64).is_ok());
        assert!(held(&cells, left) && held(&cells, place as u64));
        meanwhile(&cells, 0, 9);
        asks(&mut worker, &[Runs::one(0, 0)]);
        assert!(!held(&cells, left) && held(&cells, place as u64));
        repair(&mut worker).forget(Runs::one(0, 0), true);
        run(&mut worker, 0, 0);
        assert_eq!(cells.read(&mut worker, 0), Ok(Some(9)));
    }
    assert!(commit(&mut worker).is_ok());
    assert_eq!(cells.state(&KEYS), [9, 11, 100, 1000]);
}

/// The insertion of a dropped run stays linked, and another run can fill it without a change of its node version.
#[test]
fn an_absence_conflicts_with_an_insertion_into_a_record_that_a_dropped_run_linked() {
    for mode in modes() {
        for fills in [false, true] {
            let cells = Cells::open(mode, &VALUES);
            let mut worker = begin(&cells);
            run(&mut worker, 0, 0);
            assert_eq!(cells.read(&mut worker, ABSENT), Ok(None));
            run(&mut worker, 1, 0);
            assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
            assert!(put(&cells, &mut worker, ABSENT, 7).is_ok());
            meanwhile(&cells, 0, 2);
            asks(&mut worker, &[Runs::one(1, 0)]);
            repair(&mut worker).forget(Runs::one(1, 0), true);
            run(&mut worker, 1, 0);
            assert_eq!(cells.read(&mut worker, 0), Ok(Some(2)));
            assert!(add(&cells, &mut worker, 1).is_ok());
            if fills {
                meanwhile(&cells, ABSENT, 8);
                asks(&mut worker, &[Runs::one(0, 0)]);
                repair(&mut worker).forget(Runs::one(0, 0), true);
                run(&mut worker, 0, 0);
                assert_eq!(cells.read(&mut worker, ABSENT), Ok(Some(8)));
            }
            assert!(commit(&mut worker).is_ok());
            assert_eq!(cells.state(&KEYS), [2, 11, 100, 1000]);
            let mut after = begin(&cells);
            assert_eq!(cells.read(&mut after, ABSENT), Ok(fills.then_some(8)), "it was taken back");
            assert!(commit(&mut after).is_ok());
        }
    }
}

#[test]
fn runs_name_the_records_that_they_accessed() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    let mut worker = begin(&cells);
    for (iteration, id) in [(0, 0), (1, 1), (2, 0), (3, ABSENT)] {
        run(&mut worker, 4, iteration);
        assert!(cells.read(&mut worker, id).is_ok());
    }
    run(&mut worker, 5, 0);
    assert!(add(&cells, &mut worker, 1).is_ok());
    assert!(put(&cells, &mut worker, ABSENT, 1).is_ok());
    run(&mut worker, 6, 0);
    assert_eq!(cells.read(&mut worker, ABSENT), Ok(Some(1)));
    let of = |worker: &mut Of, operation: u16| {
        let mut all = Vec::new();
        repair(worker).touched(operation, &mut |iteration, record| all.push((iteration, record)));
        all
    };
    let reads = of(&mut worker, 4);
    let at = |iteration: u32| reads.iter().find(|touched| touched.0 == iteration).expect("it ran").1;
    assert_eq!((reads.iter().filter(|touched| touched.1.is_some()).count(), at(0), at(3)), (3, at(2), None));
    assert!(at(0).is_some() && at(0) != at(1));
    let written = of(&mut worker, 5);
    assert_eq!((written.len(), written[0]), (2, (0, at(1))));
    assert_eq!(of(&mut worker, 6), [written[1]], "its own row");
    repair(&mut worker).forget(Runs::all(5), true);
    assert_eq!(of(&mut worker, 5), []);
    // It unlinks the insertions of its earlier pass itself.
    run(&mut worker, 5, 0);
    assert!(put(&cells, &mut worker, ABSENT, 2).is_ok());
    assert_eq!(of(&mut worker, 5), [written[1]]);
    worker.abort();
    // One without a row may leave its index at any time, and one that has left it is not the key's.
    let mut other = begin(&cells);
    assert!(other.delete(&cells.cells, Key::Word8(3)).is_ok_and(|row| row.is_some()) && commit(&mut other).is_ok());
    other.core().local.collect();
    let mut worker = begin(&cells);
    run(&mut worker, 4, 0);
    assert_eq!(cells.read(&mut worker, 3), Ok(None));
    run(&mut worker, 5, 0);
    assert_eq!(put(&cells, &mut worker, 3, 7), Ok(Inserted::New));
    assert_eq!(of(&mut worker, 4), [(0, None)]);
    assert_eq!(of(&mut worker, 5), [(0, None)], "that it is to be filled keeps it nowhere");
    for _ in 0..4 {
        other.core().local.collect();
        other.collect_garbage(100);
    }
    assert_eq!(word(&cells, 3), None);
    // The key has another record now.
    run(&mut worker, 6, 0);
    assert_eq!(put(&cells, &mut worker, 3, 8), Ok(Inserted::New));
    assert_eq!([4, 5].map(|operation| of(&mut worker, operation)), [[(0, None)], [(0, None)]]);
    assert!(matches!(of(&mut worker, 6)[..], [(0, Some(_))]));
    worker.abort();
}

/// Has the run made again, which reads this cell: what it finds, and how many lookups it did not need.
fn again(cells: &Cells, worker: &mut Of, operation: u16, id: u64) -> (Option<i64>, u64) {
    repair(worker).forget(Runs::one(operation, 0), true);
    run(worker, operation, 0);
    let found = cells.read(worker, id).expect("no conflict");
    (found, repair(worker).lookups_saved())
}

#[test]
fn records_that_were_found_are_not_looked_up_again() {
    for mode in modes() {
        let cells = Cells::open(mode, &VALUES);
        let mut worker = begin(&cells);
        for (operation, id) in [(0, 0), (1, 1), (2, ABSENT)] {
            run(&mut worker, operation, 0);
            assert!(cells.read(&mut worker, id).is_ok());
        }
        meanwhile(&cells, 0, 5);
        meanwhile(&cells, ABSENT, 7);
        asks(&mut worker, &[Runs::one(0, 0), Runs::one(2, 0)]);
        assert_eq!(again(&cells, &mut worker, 0, 0), (Some(5), 1));
        assert_eq!(again(&cells, &mut worker, 2, ABSENT), (Some(7), 0), "there was none");
        for (round, value) in [(1, 6), (2, 7)] {
            meanwhile(&cells, 0, value);
            asks(&mut worker, &[Runs::one(0, 0)]);
            assert_eq!(again(&cells, &mut worker, 0, 0), (Some(value), 1), "round {round}");
        }
        // With another key it has another record, and what other runs found is theirs.
        meanwhile(&cells, 0, 8);
        asks(&mut worker, &[Runs::one(0, 0)]);
        assert_eq!(again(&cells, &mut worker, 0, 1), (Some(10), 0));
        assert!(commit(&mut worker).is_ok());
        // The next transaction has nothing of this one.
        worker.begin(Mode::ReadWrite, Priority::NONE);
        run(&mut worker, 0, 0);
        assert_eq!((cells.read(&mut worker, 0), repair(&mut worker).lookups_saved()), (Ok(Some(8)), 0));
        worker.abort();
    }
}

#[test]
fn a_record_that_was_unlinked_and_inserted_again_is_looked_up() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    let mut other = begin(&cells);
    assert!(other.delete(&cells.cells, Key::Word8(3)).is_ok_and(|row| row.is_some()) && commit(&mut other).is_ok());
    other.core().local.collect();
    let mut worker = begin(&cells);
    run(&mut worker, 0, 0);
    assert_eq!(cells.read(&mut worker, 3), Ok(None), "its record is there still");
    run(&mut worker, 1, 0);
    assert!(add(&cells, &mut worker, 0).is_ok());
    for _ in 0..4 {
        other.core().local.collect();
        other.collect_garbage(100);
    }
    assert_eq!(word(&cells, 3), None);
    meanwhile(&cells, 3, 77);
    asks(&mut worker, &[Runs::one(0, 0)]);
    assert_eq!(again(&cells, &mut worker, 0, 3), (Some(77), 0));
    assert!(commit(&mut worker).is_ok());
}

#[test]
fn a_read_that_belongs_to_no_run_is_not_repaired() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    let mut worker = begin(&cells);
    assert!(cells.read(&mut worker, 0).is_ok() && add(&cells, &mut worker, 1).is_ok());
    meanwhile(&cells, 0, 3);
    assert!(commit(&mut worker).is_err());
}
