//! Write skew through reads whose writes were taken back. What an update, an insert or a delete saw stays read. A
//! rollback to a savepoint may have undone it, or a duplicate that the program ignores.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Observed;
use seriatim_suite::model::Op::{Change, Delete, Get, If, Insert, Put, RollbackTo, Savepoint};

#[test]
fn rolled_back_update() {
    let spec = Spec {
        initial: vec![(1, 1), (2, 1)],
        programs: vec![
            Program::new([Savepoint, Change(1, |_, value| value + 10), RollbackTo(0), Put(2, |seen| -seen[1].value())]),
            Program::new([Get(2), Change(1, |seen, _| seen[0].value() - 1)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("rolled back update", &spec);
}

#[test]
fn rolled_back_insert() {
    let spec = Spec {
        initial: vec![(2, 5)],
        programs: vec![
            Program::new([Savepoint, Insert(1, 10), RollbackTo(0), Put(2, |seen| seen[1].value())]),
            Program::new([Get(2), Insert(1, 20)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("rolled back insert", &spec);
}

#[test]
fn rolled_back_delete() {
    const UNTOUCHED: fn(&[Observed]) -> bool = |seen| seen[0].value() == 5;
    let spec = Spec {
        initial: vec![(1, 1), (2, 5)],
        programs: vec![
            Program::new([Savepoint, Delete(1), RollbackTo(0), Put(2, |seen| seen[1].value())]),
            Program::new([Get(2), If(UNTOUCHED, &Delete(1))]),
        ],
        tables: Tables::Any,
    };
    super::forbid("rolled back delete", &spec);
}

#[test]
fn rolled_back_twice() {
    let spec = Spec {
        initial: vec![(1, 1), (2, 5)],
        programs: vec![
            Program::new([
                Savepoint,
                Change(1, |_, value| value + 10),
                Savepoint,
                Delete(1),
                RollbackTo(1),
                RollbackTo(0),
                Put(2, |seen| seen[1].value()),
            ]),
            Program::new([Get(2), Change(1, |seen, _| seen[0].value())]),
        ],
        tables: Tables::Any,
    };
    super::forbid("rolled back twice", &spec);
}

#[test]
fn a_rolled_back_write_is_made_again() {
    let spec = Spec {
        initial: vec![(1, 1)],
        programs: vec![
            Program::new([
                Savepoint,
                Change(1, |_, value| value + 10),
                Insert(2, 2),
                RollbackTo(0),
                Change(1, |seen, _| seen[1].value() + 20),
                Insert(2, 3),
            ]),
            Program::new([Change(1, |_, value| value + 100), Put(2, |seen| seen[0].value())]),
        ],
        tables: Tables::Any,
    };
    super::forbid("rolled back write made again", &spec);
}

#[test]
fn update_that_met_a_duplicate() {
    let spec = Spec {
        initial: vec![(1, 1), (2, 2), (3, 3)],
        programs: vec![
            Program::new([Change(1, |_, _| 3), Put(2, |seen| -seen[0].value())]),
            Program::new([Get(2), Change(1, |seen, _| seen[0].value() + 10)]),
        ],
        tables: Tables::Unique,
    };
    super::forbid("update that met a duplicate", &spec);
}

#[test]
fn insert_that_met_a_duplicate() {
    // The other inserts the key itself: what is dropped is that it was absent.
    let spec = Spec {
        initial: vec![(2, 2), (3, 3)],
        programs: vec![
            Program::new([
                Insert(1, 3),
                Put(2, |seen| if matches!(seen[0], Observed::Duplicate(_)) { 20 } else { 30 }),
            ]),
            Program::new([Get(2), Insert(1, 10)]),
        ],
        tables: Tables::Unique,
    };
    super::forbid("insert that met a duplicate", &spec);
}

#[test]
fn the_duplicate_that_was_met_goes_away() {
    const UNTOUCHED: fn(&[Observed]) -> bool = |seen| seen[0].value() == 2;
    let spec = Spec {
        initial: vec![(2, 2), (3, 3)],
        programs: vec![
            Program::new([
                Insert(1, 3),
                Put(2, |seen| if matches!(seen[0], Observed::Duplicate(_)) { 20 } else { 30 }),
            ]),
            Program::new([Get(2), If(UNTOUCHED, &Delete(3))]),
        ],
        tables: Tables::Unique,
    };
    super::forbid("duplicate that goes away", &spec);
}

#[test]
fn insert_that_met_its_own_key() {
    const UNTOUCHED: fn(&[Observed]) -> bool = |seen| seen[0].value() == 2;
    let spec = Spec {
        initial: vec![(1, 1), (2, 2)],
        programs: vec![
            Program::new([Insert(1, 3), Put(2, |seen| 20 + seen[0].value())]),
            Program::new([Get(2), If(UNTOUCHED, &Delete(1))]),
        ],
        tables: Tables::Any,
    };
    super::forbid("insert that met its own key", &spec);
}
