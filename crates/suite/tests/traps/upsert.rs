//! A write changes the version even where it does not change the value.

use seriatim::rng::seed;
use seriatim::{Abort, Handle, Tid, Tx};
use seriatim_suite::explore::{BucketCell, Cell, Cells};
use seriatim_suite::{Setting, matrix};

use crate::{assert_serializable, committed, stepped, try_once, unless_conflict};

/// Ways to write the value that is there already.
#[derive(Clone, Copy, Debug)]
enum Same {
    Put,
    Update,
    DeleteAndInsert,
    PutTwice,
}

fn again<C: Cells<Key = u32>>(tx: &Tx, cells: &Handle<C>, how: Same) -> Result<(), Abort> {
    match how {
        Same::Put => tx.put(cells, &C::new(1, 7)),
        Same::Update => tx.update_if(cells, &1, |cell| C::add(cell, 0)).map(drop),
        Same::DeleteAndInsert => tx.delete_if(cells, &1).and_then(|_| tx.insert(cells, &C::new(1, 7))),
        Same::PutTwice => tx.put(cells, &C::new(1, 8)).and_then(|()| tx.put(cells, &C::new(1, 7))),
    }
}

/// A reader between two writes of one value, the second of which comes with a cell that the reader sees too.
fn between<C: Cells<Key = u32>>(setting: &Setting, how: Same, steps: u32) {
    let db = stepped(setting);
    let cells = db.create::<C>().expect("a table");
    let mut session = db.session();
    let load = |tx: &Tx| (1..4).try_for_each(|id| tx.insert(&cells, &C::new(id, 7)));
    session.transact(load).expect("loading");
    let first = session.transact(|tx| again(tx, &cells, how)).expect("alone").receipt;
    let mut reading = db.session();
    let reader = reading.begin().expect("a worker");
    assert_eq!(reader.get(&cells, &1).expect("alone").map(|row| C::value(&row)), Some(7));
    (0..steps).for_each(|_| db.step());
    let second = try_once(&db, |tx| again(tx, &cells, how).and_then(|()| tx.put(&cells, &C::new(2, 8))));
    let sees = unless_conflict(reader.get(&cells, &2)).map(drop);
    let wrote = sees.and_then(|()| unless_conflict(reader.put(&cells, &C::new(3, 1))));
    let reader = wrote.and_then(|()| committed(reader.commit()));
    // One that reads the past sees neither of the two cells change.
    let unnoticed = reader.is_some() && second.is_some() && !setting.reads_the_past();
    assert!(!unnoticed, "{setting}, {how:?}: a write of the same value went unnoticed");
    assert!(reader.is_some() || second.is_some(), "{setting}, {how:?}: nobody got through");
    if let Some(second) = second {
        assert!(Tid::ZERO < first.tid && first.tid < second.tid, "{setting}, {how:?}: the version stood still");
    }
    assert_serializable(setting, &db);
}

#[test]
fn a_write_of_the_same_value_is_a_new_version() {
    for setting in matrix(seed("upsert of the same value")) {
        for how in [Same::Put, Same::Update, Same::DeleteAndInsert, Same::PutTwice] {
            for steps in [0, 2] {
                between::<Cell>(&setting, how, steps);
                between::<BucketCell>(&setting, how, steps);
            }
        }
    }
}
