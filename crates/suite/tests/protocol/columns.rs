//! Transactions at different columns of one row commit side by side where a protocol says so, and so do additions to
//! one column. A transaction that uses a value that another changed is refuted.

use seriatim_base::Tid;
use seriatim_catalog::{ColumnDef, ColumnId, ColumnSet, ColumnType, ColumnUse, Key, RowRef};
use seriatim_protocol::{dbx::Dbx, htcc::Htcc, silo::Silo};
use seriatim_txn::{Added, Addition, Mode, NoRedo, OnExists, OpError, Outcome, Priority, Protocol, Updating, Worker};

use crate::common::{Bench, modes};

const VALUE: ColumnId = ColumnId(1);
const SUM: ColumnId = ColumnId(2);

/// Cells of two columns that change, and of one that does not. A row that is not there has no values.
struct Columns<P: Protocol>(Bench<P>);

type Work<'a, P> = &'a dyn Fn(&Columns<P>, &mut <P as Protocol>::Worker) -> Result<(), OpError>;

fn set(columns: &[ColumnId]) -> ColumnSet {
    columns.iter().copied().collect()
}

impl<P: Protocol> Columns<P> {
    fn open(mode: seriatim_htm::HtmMode) -> Columns<P> {
        let further = [ColumnDef::new("sum", ColumnType::I64), ColumnDef::new("fixed", ColumnType::U64).immutable()];
        Columns(Bench::<P>::of(mode, &["id"], further).with_rows(&[7, 0]))
    }

    fn add(&self, worker: &mut P::Worker, units: i128) -> Result<(), OpError> {
        // SAFETY: the column's type.
        let addition = unsafe { Addition::new(SUM, ColumnType::I64, units) };
        worker.add(&self.0.cells, Key::Word8(0), addition).map(|added| assert_eq!(added, Added::Done))
    }

    /// Changes a column, using these.
    fn change(
        &self,
        worker: &mut P::Worker,
        column: ColumnId,
        columns: impl Into<ColumnUse>,
        by: i64,
    ) -> Result<(), OpError> {
        let updating = worker.update(&self.0.cells, Key::Word8(0), columns.into())?;
        let Updating { before, after } = updating.expect("the row is there");
        let at = self.0.cells.layout.places[column.index()].offset as usize;
        // SAFETY: a row of the table, and a private one; the column is of this type.
        unsafe { after.add(at).cast::<i64>().write_unaligned(before.add(at).cast::<i64>().read_unaligned() + by) };
        Ok(())
    }

    /// A column, when only these are read.
    fn look(&self, worker: &mut P::Worker, column: ColumnId, columns: ColumnSet) -> Result<i64, OpError> {
        let row = worker.read(&self.0.cells, Key::Word8(0), columns)?.expect("the row is there");
        // SAFETY: a row of the table, readable while the transaction is open.
        Ok(unsafe { RowRef::from_raw(row.as_ptr()) }.get::<i64>(&self.0.cells.layout.places[column.index()]))
    }

    /// Makes the transaction write elsewhere, so that it is decided as a writer.
    fn write_elsewhere(&self, worker: &mut P::Worker) -> Result<(), OpError> {
        self.0.change(worker, 1, |value| value + 1).map(drop)
    }

    fn reinsert(&self, worker: &mut P::Worker, value: i64) -> Result<(), OpError> {
        worker.delete(&self.0.cells, Key::Word8(0))?.expect("the row is there");
        let staged = worker.stage(&self.0.cells)?;
        self.0.set(staged.row, value);
        worker.insert(&self.0.cells, Key::Word8(0), staged, OnExists::Refuse).map(drop)
    }

    fn state(&self) -> [i64; 2] {
        let mut worker = self.0.worker();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let state = [VALUE, SUM].map(|column| self.look(&mut worker, column, ColumnSet::ALL).expect("alone"));
        assert!(commits(&mut worker, Ok(())).is_some());
        state
    }
}

/// The TID, if it commits.
fn commits<W: Worker>(worker: &mut W, steps: Result<(), OpError>) -> Option<Tid> {
    match steps.and_then(|()| worker.commit(&mut NoRedo)) {
        Ok(Outcome::Committed(tid)) => Some(tid),
        _ => {
            worker.abort();
            None
        }
    }
}

/// Runs a transaction during which others commit, one after another; whether it commits, and what the row is then.
fn during<P: Protocol>(first: Work<'_, P>, others: &[Work<'_, P>]) -> (bool, [i64; 2]) {
    assert!(P::INFO.capabilities.column_groups);
    let results = modes().map(|mode| {
        [false, true].map(|validates| {
            let columns = Columns::<P>::open(mode);
            let (mut worker, mut other) = (columns.0.worker(), columns.0.worker());
            // A worker takes notes once it was refuted.
            worker.begin(Mode::ReadWrite, Priority::NONE);
            let steps = columns.write_elsewhere(&mut worker);
            other.begin(Mode::ReadWrite, Priority::NONE);
            let steps_of_other = columns.write_elsewhere(&mut other);
            assert!(commits(&mut other, steps_of_other).is_some() && commits(&mut worker, steps).is_none());
            worker.begin(Mode::ReadWrite, Priority::NONE);
            let (mut steps, mut newest) = (first(&columns, &mut worker), Tid::ZERO);
            for work in others {
                other.begin(Mode::ReadWrite, Priority::NONE);
                let steps_of_other = work(&columns, &mut other);
                newest = commits(&mut other, steps_of_other).expect("no conflict");
                // If nothing was written, each continues from the one before.
                if validates && steps.is_ok() && !worker.writes() {
                    steps = worker.validate();
                }
            }
            let (writes, committed) = (worker.writes(), commits(&mut worker, steps));
            assert!(!writes || committed.is_none_or(|tid| tid > newest), "{committed:?} is not above {newest:?}");
            (committed.is_some(), columns.state())
        })
    });
    let [[result, ..], ..] = results;
    assert!(results.iter().flatten().all(|other| *other == result), "{results:?}");
    result
}

fn additions_to_one_column_all_count<P: Protocol>() {
    let add = |units: i128| move |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, units);
    assert_eq!(during::<P>(&add(1), &[&add(10)]), (true, [7, 11]));
    assert_eq!(during::<P>(&add(1), &[&add(10), &add(100), &add(-1000)]), (true, [7, -889]));
    // Two of one transaction, whose first sum could have left the range.
    let twice = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.add(worker, 1)?;
        columns.add(worker, 2)
    };
    assert_eq!(during::<P>(&add(10), &[&twice]), (true, [7, 13]));
    assert_eq!(during::<P>(&twice, &[&add(10)]), (false, [7, 10]));
}

fn an_addition_of_a_sum_out_of_range_is_refuted<P: Protocol>() {
    let half = i128::from(i64::MAX / 2 + 1);
    let add = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, half);
    assert_eq!(during::<P>(&add, &[&add]), (false, [7, half as i64]));
}

/// A column is set whatever was in it, unless it may not have been set, or was also added to.
fn a_column_that_is_set_blindly_conflicts_only_with_additions_to_it<P: Protocol>() {
    let sets = |by: i64| {
        move |columns: &Columns<P>, worker: &mut P::Worker| columns.change(worker, SUM, ColumnUse::setting([SUM]), by)
    };
    let adds = |columns: &Columns<P>, worker: &mut P::Worker| columns.change(worker, SUM, ColumnUse::adding([SUM]), 1);
    let other = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, 10);
    assert_eq!(during::<P>(&sets(5), &[&other]), (true, [7, 5]));
    assert_eq!(during::<P>(&sets(0), &[&other]), (false, [7, 10]));
    for by in [0, 5] {
        let set_first = |columns: &Columns<P>, worker: &mut P::Worker| {
            sets(by)(columns, worker)?;
            adds(columns, worker)
        };
        let add_first = |columns: &Columns<P>, worker: &mut P::Worker| {
            adds(columns, worker)?;
            sets(by)(columns, worker)
        };
        assert_eq!(during::<P>(&set_first, &[&other]), (false, [7, 10]));
        assert_eq!(during::<P>(&add_first, &[&other]), (false, [7, 10]));
        assert_eq!(during::<P>(&set_first, &[]), (true, [7, by + 1]));
    }
}

/// That a sum left its range, or did not on the way, was found by looking at it.
fn the_result_of_an_addition_counts_as_a_read<P: Protocol>() {
    let room = i128::from(i64::MAX) - 5;
    let fill = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, room);
    let overflows = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.add(worker, room)?;
        // SAFETY: the column's type.
        let addition = unsafe { Addition::new(SUM, ColumnType::I64, 6) };
        assert_eq!(worker.add(&columns.0.cells, Key::Word8(0), addition)?, Added::Overflow);
        Ok(())
    };
    let take = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, -100);
    assert_eq!(during::<P>(&overflows, &[]), (true, [7, room as i64]));
    assert_eq!(during::<P>(&overflows, &[&take]), (false, [7, -100]));
    let only_overflows = |columns: &Columns<P>, worker: &mut P::Worker| {
        // SAFETY: the column's type.
        let addition = unsafe { Addition::new(SUM, ColumnType::I64, i128::from(i64::MAX) + 1) };
        assert_eq!(worker.add(&columns.0.cells, Key::Word8(0), addition)?, Added::Overflow);
        columns.write_elsewhere(worker)
    };
    assert_eq!(during::<P>(&only_overflows, &[&take]), (false, [7, -100]));
    let up_and_down = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.add(worker, 20)?;
        columns.add(worker, -20)
    };
    assert_eq!(during::<P>(&up_and_down, &[&fill]), (false, [7, room as i64]));
}

/// A row that the attempt wrote does not change while it may look at it.
fn rows_written_stay_until_commit<P: Protocol>() {
    for mode in modes() {
        let columns = Columns::<P>::open(mode);
        let (mut worker, mut other) = (columns.0.worker(), columns.0.worker());
        for refuted in [true, false] {
            worker.begin(Mode::ReadWrite, Priority::NONE);
            let steps = columns.add(&mut worker, 1);
            other.begin(Mode::ReadWrite, Priority::NONE);
            let steps_of_other = match refuted {
                true => columns.change(&mut other, SUM, ColumnUse::ALL, 1),
                false => columns.add(&mut other, 1),
            };
            assert!(commits(&mut other, steps_of_other).is_some());
            // Whether an error stands is another question than whether the transaction can commit.
            let stands = steps.and_then(|()| worker.validate());
            assert!(stands.is_err(), "{} on {mode}", P::INFO.name);
            worker.abort();
        }
    }
}

fn other_columns_pass<P: Protocol>() {
    let add = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, 5);
    let read = |columns: &Columns<P>, worker: &mut P::Worker| {
        assert_eq!(columns.look(worker, VALUE, set(&[VALUE]))?, 7);
        columns.write_elsewhere(worker)
    };
    assert_eq!(during::<P>(&read, &[&add, &add]), (true, [7, 10]));
    let only_read = |columns: &Columns<P>, worker: &mut P::Worker| columns.look(worker, VALUE, set(&[VALUE])).map(drop);
    assert_eq!(during::<P>(&only_read, &[&add, &add]), (true, [7, 10]));
    let is_there = |columns: &Columns<P>, worker: &mut P::Worker| {
        assert!(worker.read(&columns.0.cells, Key::Word8(0), ColumnSet::EMPTY)?.is_some());
        columns.write_elsewhere(worker)
    };
    let change = |columns: &Columns<P>, worker: &mut P::Worker| columns.change(worker, VALUE, set(&[VALUE]), 1);
    assert_eq!(during::<P>(&is_there, &[&add, &change]), (true, [8, 5]));
    assert_eq!(during::<P>(&change, &[&add, &add]), (true, [8, 10]));
    // Both, of one row, and what was read before it was changed.
    let read_and_change = |columns: &Columns<P>, worker: &mut P::Worker| {
        read(columns, worker)?;
        change(columns, worker)?;
        columns.add(worker, 100)
    };
    assert_eq!(during::<P>(&read_and_change, &[&add]), (true, [8, 105]));
}

fn a_change_of_a_used_column_fails_validation<P: Protocol>() {
    let change = |columns: &Columns<P>, worker: &mut P::Worker| columns.change(worker, VALUE, set(&[VALUE]), 1);
    let add = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, 5);
    let read = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.look(worker, VALUE, set(&[VALUE]))?;
        columns.write_elsewhere(worker)
    };
    assert_eq!(during::<P>(&read, &[&change]), (false, [8, 0]));
    assert_eq!(during::<P>(&change, &[&change]), (false, [8, 0]));
    // The sum is read before or after the addition, by a reader of all columns, or by an addition that reads and sets.
    let looks: [Work<'_, P>; 4] = [
        &|columns, worker| {
            columns.look(worker, SUM, set(&[SUM]))?;
            columns.add(worker, 1)
        },
        &|columns, worker| {
            columns.add(worker, 1)?;
            assert_eq!(columns.look(worker, SUM, set(&[SUM]))?, 1);
            Ok(())
        },
        &|columns, worker| {
            columns.add(worker, 1)?;
            columns.look(worker, SUM, ColumnSet::ALL).map(drop)
        },
        &|columns, worker| {
            columns.add(worker, 1)?;
            columns.change(worker, SUM, set(&[SUM]), 1)
        },
    ];
    for look in looks {
        assert_eq!(during::<P>(look, &[&add]), (false, [7, 5]));
    }
    // An update of which nothing is known uses everything.
    let unknown = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.add(worker, 1)?;
        columns.change(worker, VALUE, ColumnUse::ALL, 1)
    };
    assert_eq!(during::<P>(&unknown, &[&add]), (false, [7, 5]));
}

fn a_row_that_went_away_is_refuted<P: Protocol>() {
    let add = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, 5);
    let reborn = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.0.change(worker, 1, |value| value - 1)?;
        columns.reinsert(worker, 7)
    };
    // Another row of the key, with a fixed part of its own: nothing is added to it.
    let apart = |columns: &Columns<P>, worker: &mut P::Worker| {
        worker.delete(&columns.0.cells, Key::Word8(0))?.expect("the row is there");
        Ok(())
    };
    let back = |columns: &Columns<P>, worker: &mut P::Worker| {
        let staged = worker.stage(&columns.0.cells)?;
        columns.0.set(staged.row, 7);
        worker.insert(&columns.0.cells, Key::Word8(0), staged, OnExists::Refuse).map(drop)
    };
    assert_eq!(during::<P>(&add, &[&apart, &back]), (false, [7, 0]));
    let read = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.look(worker, VALUE, set(&[VALUE]))?;
        columns.write_elsewhere(worker)
    };
    assert_eq!(during::<P>(&read, &[&apart, &back]), (false, [7, 0]));
    assert_eq!(during::<P>(&add, &[&reborn]), (false, [7, 0]));
}

fn a_rolled_back_update_leaves_no_addition<P: Protocol>() {
    let add = |columns: &Columns<P>, worker: &mut P::Worker| columns.add(worker, 5);
    let taken_back = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.add(worker, 1)?;
        let savepoint = worker.savepoint();
        columns.add(worker, 100)?;
        worker.rollback_to(savepoint);
        columns.add(worker, 2)
    };
    assert_eq!(during::<P>(&taken_back, &[]), (true, [7, 3]));
    let (is_committed, state) = during::<P>(&taken_back, &[&add]);
    assert_eq!(state, [7, if is_committed { 8 } else { 5 }]);
    // An update that uses all columns is not noted, and is not taken for the one that was taken back.
    let unnoted = |columns: &Columns<P>, worker: &mut P::Worker| {
        columns.add(worker, 1)?;
        let savepoint = worker.savepoint();
        columns.change(worker, VALUE, set(&[VALUE]), 100)?;
        worker.rollback_to(savepoint);
        columns.change(worker, VALUE, ColumnUse::ALL, 1)
    };
    assert_eq!(during::<P>(&unnoted, &[]), (true, [8, 1]));
    assert_eq!(during::<P>(&unnoted, &[&add]), (false, [7, 5]));
    // Another row has its place in the write set.
    let elsewhere = |columns: &Columns<P>, worker: &mut P::Worker| {
        let savepoint = worker.savepoint();
        columns.add(worker, 100)?;
        worker.rollback_to(savepoint);
        columns.write_elsewhere(worker)
    };
    let other = |columns: &Columns<P>, worker: &mut P::Worker| columns.write_elsewhere(worker);
    assert_eq!(during::<P>(&elsewhere, &[]), (true, [7, 0]));
    assert_eq!(during::<P>(&elsewhere, &[&other]), (false, [7, 0]));
}

macro_rules! under {
    ($($name:ident => $protocol:ty: $($test:ident)*;)*) => {$(
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test::<$protocol>();
                }
            )*
        }
    )*};
}

macro_rules! under_all {
    ($($test:ident)*) => {
        under! {
            dbx => super::Dbx: $($test)*;
            silo => super::Silo: $($test)*;
            htcc => super::Htcc: $($test)*;
        }
    };
}

under_all! {
    additions_to_one_column_all_count
    an_addition_of_a_sum_out_of_range_is_refuted
    the_result_of_an_addition_counts_as_a_read
    a_column_that_is_set_blindly_conflicts_only_with_additions_to_it
    rows_written_stay_until_commit
    other_columns_pass
    a_change_of_a_used_column_fails_validation
    a_row_that_went_away_is_refuted
    a_rolled_back_update_leaves_no_addition
}
