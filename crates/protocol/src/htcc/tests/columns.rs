//! Records that change in other columns, and ranges that change elsewhere: which attempts pass. Also what a change
//! between hot and cold does then, and whether notes hold after a repair.

use std::ops::Bound;

use seriatim_base::Tid;
use seriatim_catalog::{ColumnDef, ColumnId, ColumnType, ColumnUse, RowRef};
use seriatim_store::Direction;
use seriatim_txn::{Added, Addition, Before, Reason, Redo, RowPtr, Runs, Updating};

use super::repairs::{asks, repair, run};
use super::*;

const VALUE: ColumnId = ColumnId(1);
const SUM: ColumnId = ColumnId(2);

/// Cells of two columns that change, and of one that does not.
fn cells(mode: HtmMode) -> Cells {
    let further = [ColumnDef::new("sum", ColumnType::I64), ColumnDef::new("fixed", ColumnType::U64).immutable()];
    Cells::of(mode, &["id"], further).with_rows(&VALUES)
}

/// A worker that takes notes, with an open transaction.
fn noting(cells: &Cells) -> Of {
    let mut worker = cells.worker();
    worker.attempt().bases.encourage();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker
}

/// Adds to the sum of a cell.
fn count(cells: &Cells, worker: &mut Of, id: u64, units: i128) -> Result<(), OpError> {
    // SAFETY: the column's type.
    let addition = unsafe { Addition::new(SUM, ColumnType::I64, units) };
    worker.add(&cells.cells, Key::Word8(id), addition).map(|added| assert_eq!(added, Added::Done))
}

/// Adds one to the value of a cell, which uses these columns.
fn change(cells: &Cells, worker: &mut Of, id: u64, columns: impl Into<ColumnUse>) -> Result<(), OpError> {
    let updating = worker.update(&cells.cells, Key::Word8(id), columns.into())?;
    let Updating { before, after } = updating.expect("the row is there");
    cells.set(after, cells.get(before) + 1);
    Ok(())
}

/// A column of a cell, where nothing else of it is used.
fn look(cells: &Cells, worker: &mut Of, id: u64, column: ColumnId) -> Result<i64, OpError> {
    let row = worker.read(&cells.cells, Key::Word8(id), ColumnSet::of(column))?.expect("the row is there");
    // SAFETY: a row of the table, readable while the transaction is open.
    Ok(unsafe { RowRef::from_raw(row.as_ptr()) }.get::<i64>(&cells.cells.layout.places[column.index()]))
}

/// Another transaction does this.
fn meanwhile(cells: &Cells, work: impl FnOnce(&mut Of)) {
    let mut other = begin(cells);
    work(&mut other);
    assert!(commit(&mut other).is_ok());
}

fn counted(cells: &Cells, id: u64, units: i128) {
    meanwhile(cells, |other| assert_eq!(count(cells, other, id, units), Ok(())));
}

fn changed(cells: &Cells, id: u64) {
    meanwhile(cells, |other| assert!(add(cells, other, id).is_ok()));
}

/// Value and sum of a cell.
fn both(cells: &Cells, id: u64) -> [i64; 2] {
    let mut worker = begin(cells);
    let both = [VALUE, SUM].map(|column| look(cells, &mut worker, id, column).expect("it runs alone"));
    assert!(commit(&mut worker).is_ok());
    both
}

type Step = fn(&Cells, &mut Of) -> Result<(), OpError>;

/// Reads the value of the first cell; adds to its sum.
const STEPS: [Step; 2] =
    [|cells, worker| look(cells, worker, 0, VALUE).map(drop), |cells, worker| count(cells, worker, 0, 1)];

#[test]
fn that_a_record_became_hot_is_no_change_of_other_columns() {
    for mode in modes() {
        for (step, adds) in STEPS.into_iter().zip([0, 1]) {
            for changes in [false, true] {
                let cells = cells(mode);
                let mut worker = noting(&cells);
                assert_eq!(step(&cells, &mut worker), Ok(()));
                assert!(add(&cells, &mut worker, 1).is_ok());
                assert!(flip(&cells, 0, true));
                if changes {
                    counted(&cells, 0, 10);
                }
                assert!(commit(&mut worker).is_err(), "{mode:?}: it has not locked the record");
                nothing_is_held(&cells);
                assert_eq!(both(&cells, 0), [1, if changes { 10 } else { 0 }]);
                // Cold again, it is as any that others have changed.
                let mut worker = noting(&cells);
                assert!(flip(&cells, 0, false));
                assert_eq!(step(&cells, &mut worker), Ok(()));
                assert!(add(&cells, &mut worker, 1).is_ok());
                assert!(flip(&cells, 0, true));
                counted(&cells, 0, 100);
                assert!(flip(&cells, 0, false));
                assert!(commit(&mut worker).is_ok(), "{mode:?}");
                assert_eq!(both(&cells, 0), [1, if changes { 110 } else { 100 } + adds]);
                nothing_is_held(&cells);
            }
        }
    }
}

/// The sum of the row that a commit replaced.
#[derive(Default)]
struct Replaced(Vec<i64>);

impl Redo for Replaced {
    fn write(&mut self, table: &Table, _: Key<'_>, _: Tid, before: Option<Before>, _: Option<RowPtr>) {
        let row = before.expect("the row was there").row;
        // SAFETY: a row of the table, readable during the call.
        self.0.push(unsafe { RowRef::from_raw(row.as_ptr()) }.get::<i64>(&table.layout.places[SUM.index()]));
    }
}

#[test]
fn a_commit_that_goes_on_from_a_newer_version_replaces_that_one() {
    for mode in modes() {
        let cells = cells(mode);
        let mut worker = noting(&cells);
        assert_eq!(count(&cells, &mut worker, 0, 1), Ok(()));
        counted(&cells, 0, 10);
        let mut replaced = Replaced::default();
        assert!(matches!(worker.commit(&mut replaced), Ok(Outcome::Committed(_))), "{mode:?}");
        assert_eq!(replaced.0, [10], "{mode:?}: the row to which one was added");
        assert_eq!(both(&cells, 0), [1, 11]);
    }
}

/// A transaction that overwrites a hot record has locked it. While it is written by its holder, one that saw it cold
/// adds to it.
#[test]
fn a_transaction_without_the_lock_of_a_hot_record_does_not_write_it() {
    for mode in modes() {
        let cells = cells(mode);
        let (mut worker, mut holder) = (noting(&cells), begin(&cells));
        assert_eq!(count(&cells, &mut worker, 0, 1), Ok(()));
        assert!(flip(&cells, 0, true));
        assert_eq!(look(&cells, &mut holder, 0, SUM), Ok(0));
        assert!(commit(&mut worker).is_err());
        assert_eq!(count(&cells, &mut holder, 0, 10), Ok(()));
        assert_eq!(look(&cells, &mut holder, 0, SUM), Ok(10), "it stood still");
        assert!(commit(&mut holder).is_ok());
        assert_eq!(both(&cells, 0), [1, 10]);
    }
}

#[test]
fn locked_records_need_no_notes_and_others_have_theirs() {
    for mode in modes() {
        let cells = cells(mode);
        assert!(flip(&cells, 0, true) && flip(&cells, 3, true));
        for (disturb, passes) in [(counted as fn(&Cells, u64, i128), true), (|cells, id, _| changed(cells, id), false)]
        {
            let mut worker = noting(&cells);
            // The read set is empty at first, and another's is the last entry then.
            assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
            let seen = look(&cells, &mut worker, 1, VALUE);
            assert!(seen.is_ok());
            assert!(look(&cells, &mut worker, 0, SUM).is_ok());
            assert_eq!(count(&cells, &mut worker, 3, 1), Ok(()));
            assert_eq!(count(&cells, &mut worker, 2, 1), Ok(()));
            counted(&cells, 2, 10);
            disturb(&cells, 1, 5);
            assert_eq!(commit(&mut worker).is_ok(), passes);
            nothing_is_held(&cells);
        }
        assert_eq!([2, 3].map(|id| both(&cells, id)), [[100, 21], [1000, 1]]);
    }
}

/// A change from which a commit can continue is no failure. If such a record were locked at access, it would block all
/// transactions.
#[test]
fn a_commit_that_continues_makes_no_record_hot() {
    let cells = cells(HtmMode::Absent);
    let mut worker = cells.worker();
    for _ in 0..2 * heat::FAILURES.default {
        worker.attempt().bases.encourage();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(count(&cells, &mut worker, 0, 1), Ok(()));
        counted(&cells, 0, 1);
        assert!(commit(&mut worker).is_ok());
    }
    // Nor does what might have passed, of workers that took no notes yet.
    for _ in 0..2 * heat::FAILURES.default {
        let mut refuted = begin(&cells);
        assert_eq!(count(&cells, &mut refuted, 0, 1), Ok(()));
        counted(&cells, 0, 1);
        assert!(commit(&mut refuted).is_err());
    }
    (0..heat::PERIOD.default).for_each(|_| cells.environment.advance_epoch());
    worker.collect_garbage(0);
    assert_eq!(listed(&cells), []);
    assert_eq!(both(&cells, 0), [1, 6 * heat::FAILURES.default as i64]);
}

/// The transaction that blocks a commit has changed nothing yet. There is nothing to repair, and the locks of hot
/// records are released.
#[test]
fn records_that_others_hold_are_not_taken_for_changed() {
    for mode in modes() {
        let cells = cells(mode);
        assert!(flip(&cells, 1, true));
        let mut worker = noting(&cells);
        run(&mut worker, 0, 0);
        assert!(add(&cells, &mut worker, 1).is_ok());
        assert_eq!(count(&cells, &mut worker, 0, 1), Ok(()));
        let set = |with: fn(TidWord) -> TidWord| {
            at(&cells, 0, |record| {
                let word = record_header::tid_word(&cells.cells.record_layout, record);
                word.store(with(TidWord(word.load(Ordering::Acquire))).0, Ordering::Release);
            })
        };
        assert!(set(TidWord::locked).is_some());
        let refused = worker.commit(&mut NoRedo);
        assert!(
            matches!(&refused, Err(OpError::Abort(cause)) if cause.reason == Reason::RecordLocked),
            "{mode:?}: {refused:?}"
        );
        worker.abort();
        assert!(set(TidWord::unlocked).is_some());
        nothing_is_held(&cells);
        assert_eq!(both(&cells, 0), [1, 0]);
    }
}

#[test]
fn runs_that_cannot_continue_are_requested_and_notes_of_the_others_outlive_a_repair() {
    for mode in modes() {
        let cells = cells(mode);
        let mut worker = noting(&cells);
        run(&mut worker, 0, 0);
        assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
        assert_eq!(change(&cells, &mut worker, 3, ColumnSet::of(VALUE)), Ok(()));
        for (operation, id) in [(1, 1), (2, 2)] {
            run(&mut worker, operation, 0);
            assert_eq!(count(&cells, &mut worker, id, 1), Ok(()));
            run(&mut worker, operation + 2, 0);
            assert_eq!(look(&cells, &mut worker, id % 2 + 1, VALUE), Ok(VALUES[(id % 2 + 1) as usize]));
        }
        for round in 0..3 {
            counted(&cells, 1, 10);
            counted(&cells, 2, 100);
            changed(&cells, 0);
            asks(&mut worker, &[Runs::one(0, 0)]);
            repair(&mut worker).forget(Runs::one(0, 0), true);
            run(&mut worker, 0, 0);
            assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(2 + round));
            assert_eq!(change(&cells, &mut worker, 3, ColumnSet::of(VALUE)), Ok(()));
        }
        counted(&cells, 1, 10);
        counted(&cells, 3, 7);
        assert!(commit(&mut worker).is_ok());
        assert_eq!([1, 2, 3].map(|id| both(&cells, id)), [[10, 41], [100, 301], [1001, 7]]);
    }
}

/// Reads of an attempt's own rows are noted with their entries, wherever these are after a repair.
#[test]
fn looks_at_own_rows_follow_their_entries() {
    for mode in modes() {
        let cells = cells(mode);
        let mut worker = noting(&cells);
        let first = |worker: &mut Of, seen: i64| {
            run(worker, 0, 0);
            assert_eq!(look(&cells, worker, 0, VALUE), Ok(seen));
            assert_eq!(change(&cells, worker, 1, ColumnSet::of(VALUE)), Ok(()));
        };
        let then = |worker: &mut Of, sum: i64| {
            run(worker, 1, 0);
            assert_eq!(count(&cells, worker, 2, 1), Ok(()));
            run(worker, 2, 0);
            assert_eq!(look(&cells, worker, 2, SUM), Ok(sum));
        };
        first(&mut worker, 1);
        then(&mut worker, 1);
        changed(&cells, 0);
        asks(&mut worker, &[Runs::one(0, 0)]);
        // The entry of the sum takes the place of the one that leaves.
        repair(&mut worker).forget(Runs::one(0, 0), true);
        first(&mut worker, 2);
        counted(&cells, 2, 10);
        asks(&mut worker, &[Runs::one(1, 0)]);
        (1..3).for_each(|operation| repair(&mut worker).forget(Runs::one(operation, 0), true));
        then(&mut worker, 11);
        assert!(commit(&mut worker).is_ok());
        assert_eq!([1, 2].map(|id| both(&cells, id)), [[11, 0], [100, 11]]);
    }
}

/// An update that was merged is the only one of its row no longer, when a run of the next pass updates it as well.
#[test]
fn a_merged_update_is_repaired_where_another_builds_on_it() {
    for mode in modes() {
        let cells = cells(mode);
        let mut worker = noting(&cells);
        run(&mut worker, 0, 0);
        assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
        run(&mut worker, 1, 0);
        assert_eq!(count(&cells, &mut worker, 1, 1), Ok(()));
        counted(&cells, 1, 10);
        changed(&cells, 0);
        asks(&mut worker, &[Runs::one(0, 0)]);
        repair(&mut worker).forget(Runs::one(0, 0), true);
        run(&mut worker, 0, 0);
        assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(2));
        run(&mut worker, 2, 0);
        assert_eq!(count(&cells, &mut worker, 1, 2), Ok(()));
        counted(&cells, 1, 100);
        asks(&mut worker, &[Runs::one(1, 0)]);
        (1..3).for_each(|operation| repair(&mut worker).forget(Runs::one(operation, 0), true));
        for (operation, units) in [(1, 1), (2, 2)] {
            run(&mut worker, operation, 0);
            assert_eq!(count(&cells, &mut worker, 1, units), Ok(()));
        }
        assert!(commit(&mut worker).is_ok());
        assert_eq!(both(&cells, 1), [10, 113]);
    }
}

/// An attempt that was rebased as often as permitted is repaired where it could otherwise continue.
#[test]
fn a_read_that_was_rebased_too_often_is_repaired() {
    let cells = cells(HtmMode::Absent);
    let options = Options::new(&Htcc::INFO, &[("rebases_max".to_owned(), 2)]).expect("in range");
    let protocol = Htcc::open(&options, &cells.environment);
    let mut worker = protocol.worker(cells.environment.core().expect("a free slot"));
    worker.attempt().bases.encourage();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    run(&mut worker, 0, 0);
    assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
    run(&mut worker, 1, 0);
    assert_eq!(count(&cells, &mut worker, 1, 1), Ok(()));
    for round in 0..3 {
        counted(&cells, 1, 10);
        changed(&cells, 0);
        let stale = [Runs::one(0, 0), Runs::one(1, 0)];
        let stale = if round < 2 { &stale[..1] } else { &stale };
        asks(&mut worker, stale);
        stale.iter().for_each(|&runs| repair(&mut worker).forget(runs, true));
        run(&mut worker, 0, 0);
        assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(2 + round));
    }
    run(&mut worker, 1, 0);
    assert_eq!(count(&cells, &mut worker, 1, 1), Ok(()));
    assert!(commit(&mut worker).is_ok());
    assert_eq!(both(&cells, 1), [10, 31]);
}

/// A repair undoes the later of two updates of a row. The remaining row has the changes of other transactions, or they
/// are requested as well.
#[test]
fn changes_of_others_are_not_lost_with_an_update_that_is_undone() {
    for mode in modes() {
        let cells = cells(mode);
        let mut worker = noting(&cells);
        let first = |worker: &mut Of| change(&cells, worker, 1, ColumnSet::of(VALUE));
        let second = |worker: &mut Of| count(&cells, worker, 1, 1);
        let third = |worker: &mut Of| look(&cells, worker, 0, VALUE).map(drop);
        let make = |worker: &mut Of, operation: u16| {
            run(worker, operation, 0);
            let made = match operation {
                0 => first(worker),
                1 => second(worker),
                _ => third(worker),
            };
            assert_eq!(made, Ok(()));
        };
        (0..3).for_each(|operation| make(&mut worker, operation));
        counted(&cells, 1, 10);
        changed(&cells, 0);
        let Ok(Outcome::Repair(stale)) = worker.commit(&mut NoRedo) else { panic!("the first cell has changed") };
        let again: Vec<u16> =
            (0..3).filter(|operation| *operation == 1 || stale.contains(&Runs::one(*operation, 0))).collect();
        assert!(again.contains(&2), "{stale:?}");
        again.iter().for_each(|operation| repair(&mut worker).forget(Runs::one(*operation, 0), true));
        again.iter().for_each(|operation| make(&mut worker, *operation));
        assert!(commit(&mut worker).is_ok());
        assert_eq!(both(&cells, 1), [11, 11]);
    }
}

/// The note of an update that is taken back is not taken for that of another, which uses more.
#[test]
fn a_remaining_update_is_not_taken_for_one_that_was_undone() {
    for mode in modes() {
        let cells = cells(mode);
        let mut worker = noting(&cells);
        run(&mut worker, 0, 0);
        assert_eq!(change(&cells, &mut worker, 1, ColumnUse::ALL), Ok(()));
        run(&mut worker, 1, 0);
        assert_eq!(count(&cells, &mut worker, 1, 1), Ok(()));
        run(&mut worker, 2, 0);
        assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
        changed(&cells, 0);
        asks(&mut worker, &[Runs::one(2, 0)]);
        repair(&mut worker).forget(Runs::one(1, 0), false);
        repair(&mut worker).forget(Runs::one(2, 0), true);
        run(&mut worker, 2, 0);
        assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(2));
        changed(&cells, 1);
        asks(&mut worker, &[Runs::one(0, 0)]);
        repair(&mut worker).forget(Runs::one(0, 0), true);
        run(&mut worker, 0, 0);
        assert_eq!(change(&cells, &mut worker, 1, ColumnUse::ALL), Ok(()));
        assert!(commit(&mut worker).is_ok());
        assert_eq!(both(&cells, 1), [12, 0]);
    }
}

/// The first rows from a key on, so many at most.
fn scan(cells: &Cells, worker: &mut Of, (low, high): (u64, u64), most: usize) -> usize {
    let mut scan = Scan::default();
    let (low, high) = (Bound::Included(Key::Word8(low)), Bound::Excluded(Key::Word8(high)));
    cells.cells.index.scan(low, high, Direction::Forward, &mut scan.cursor).expect("ordered");
    let next = || worker.scan_next(&cells.cells, &mut scan, ColumnSet::EMPTY).expect("no conflict");
    std::iter::from_fn(next).take(most).count()
}

fn inserted(cells: &Cells, id: u64) {
    meanwhile(cells, |other| assert_eq!(put(cells, other, id, 1), Ok(Inserted::New)));
}

#[test]
fn ranges_are_looked_at_again_before_and_after_a_repair() {
    for mode in modes() {
        for (most, within, beside) in [(usize::MAX, 15, [9, 20]), (1, 10, [12, 30])] {
            for repairs in 0..3 {
                let cells = cells(mode);
                inserted(&cells, 11);
                inserted(&cells, 14);
                let mut worker = noting(&cells);
                run(&mut worker, 0, 0);
                assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
                assert_eq!(scan(&cells, &mut worker, (0, 3), usize::MAX), 3);
                run(&mut worker, 1, 0);
                assert_eq!(scan(&cells, &mut worker, (10, 20), most), most.min(2));
                run(&mut worker, 2, 0);
                assert_eq!(count(&cells, &mut worker, 3, 1), Ok(()));
                for round in 0..repairs {
                    changed(&cells, 0);
                    inserted(&cells, beside[0] + 100 * round);
                    asks(&mut worker, &[Runs::one(0, 0)]);
                    repair(&mut worker).forget(Runs::one(0, 0), true);
                    run(&mut worker, 0, 0);
                    assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(2 + round as i64));
                    assert_eq!(scan(&cells, &mut worker, (0, 3), usize::MAX), 3);
                }
                inserted(&cells, beside[1]);
                if repairs != 1 {
                    inserted(&cells, within);
                    asks(&mut worker, &[Runs::one(1, 0)]);
                    repair(&mut worker).forget(Runs::one(1, 0), true);
                    run(&mut worker, 1, 0);
                    assert!(scan(&cells, &mut worker, (10, 20), most) >= most.min(3));
                }
                assert!(commit(&mut worker).is_ok(), "{mode:?} {most} {repairs}");
            }
        }
    }
}

/// A run that is dropped leaves the record that it linked in a range that another has scanned.
#[test]
fn a_range_conflicts_with_an_insertion_into_a_record_that_a_dropped_run_linked() {
    for mode in modes() {
        for (fills, beside) in [(false, false), (false, true), (true, false), (true, true)] {
            let cells = cells(mode);
            let mut worker = noting(&cells);
            run(&mut worker, 0, 0);
            assert_eq!(scan(&cells, &mut worker, (4, 20), usize::MAX), 0);
            run(&mut worker, 1, 0);
            assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
            assert!(put(&cells, &mut worker, ABSENT, 7).is_ok());
            changed(&cells, 0);
            asks(&mut worker, &[Runs::one(1, 0)]);
            repair(&mut worker).forget(Runs::one(1, 0), true);
            run(&mut worker, 1, 0);
            assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(2));
            assert_eq!(count(&cells, &mut worker, 1, 1), Ok(()));
            if beside {
                inserted(&cells, 500);
            }
            if fills {
                inserted(&cells, ABSENT);
            }
            let mut seen = 0;
            while let Ok(Outcome::Repair(stale)) = worker.commit(&mut NoRedo) {
                assert_eq!(stale, [Runs::one(0, 0)]);
                repair(&mut worker).forget(Runs::one(0, 0), true);
                run(&mut worker, 0, 0);
                seen = scan(&cells, &mut worker, (4, 20), usize::MAX);
            }
            assert_eq!(seen, usize::from(fills), "{mode:?} {beside}");
            assert_eq!(both(&cells, 1), [10, 1]);
        }
    }
}

/// A transaction that writes nothing has also ended: its scan does not continue.
#[test]
fn a_read_only_transaction_is_validated_as_far_as_it_scanned() {
    for mode in modes() {
        for (most, passes) in [(1, true), (usize::MAX, false)] {
            let cells = cells(mode);
            inserted(&cells, 11);
            inserted(&cells, 14);
            let mut worker = noting(&cells);
            assert_eq!(look(&cells, &mut worker, 0, VALUE), Ok(1));
            assert_eq!(scan(&cells, &mut worker, (10, 20), most), most.min(2));
            inserted(&cells, 12);
            assert_eq!(commit(&mut worker).is_ok(), passes, "{mode:?}");
        }
    }
}
