//! Write skew over cells that do not exist: each transaction misses one and inserts the other.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Get, Insert, Put};

#[test]
fn absent_read_skew() {
    let spec = Spec {
        initial: vec![],
        programs: vec![
            Program::new([Get(1), Put(2, |seen| seen[0].value() + 1)]),
            Program::new([Get(2), Put(1, |seen| seen[0].value() + 1)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("absent-read skew", &spec);
}

#[test]
fn two_inserts_of_one_key() {
    let spec = Spec {
        initial: vec![],
        programs: vec![
            Program::new([Insert(1, 10), Put(2, |seen| seen[0].value())]),
            Program::new([Insert(1, 20), Put(3, |seen| seen[0].value())]),
        ],
        tables: Tables::Any,
    };
    super::forbid("two inserts of one key", &spec);
}

#[test]
fn a_rolled_back_insert_leaves_nothing() {
    let spec = Spec {
        initial: vec![],
        programs: vec![Program::rolling_back([Insert(1, 10), Get(1)]), Program::new([Get(1), Insert(1, 20), Get(1)])],
        tables: Tables::Any,
    };
    super::forbid("rolled-back insert", &spec);
}
