//! A key that is deleted and inserted again while others hold what they read of it.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Delete, Get, Insert, Put};

#[test]
fn reader_across_delete_and_reinsert() {
    let spec = Spec {
        initial: vec![(1, 7)],
        programs: vec![
            Program::new([Get(1), Get(2), Put(3, |seen| seen[0].value() + seen[1].value())]),
            Program::new([Delete(1), Put(2, |_| 100)]),
            Program::new([Insert(1, 7)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("delete and reinsert", &spec);
}

#[test]
fn reader_of_a_tombstone() {
    let spec = Spec {
        initial: vec![(1, 7)],
        programs: vec![
            Program::new([Delete(1)]),
            Program::new([Get(1), Get(2), Put(3, |seen| seen[0].value() * 100 + seen[1].value())]),
            Program::new([Insert(1, 8), Put(2, |_| 1)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("reader of a tombstone", &spec);
}

#[test]
fn delete_and_reinsert_in_one_transaction() {
    let spec = Spec {
        initial: vec![(1, 7)],
        programs: vec![
            Program::new([Delete(1), Insert(1, 8), Get(1)]),
            Program::new([Get(1), Put(2, |seen| seen[0].value())]),
        ],
        tables: Tables::Any,
    };
    super::forbid("delete and reinsert in one transaction", &spec);
}
