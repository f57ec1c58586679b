//! G1: a value that is rolled back, or overwritten by the transaction that wrote it, must not be read by one
//! that commits.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Get, Insert, Put};

#[test]
fn aborted_read() {
    let spec = Spec {
        initial: vec![(1, 0)],
        programs: vec![
            Program::rolling_back([Put(1, |_| 666), Insert(2, 666)]),
            Program::new([Get(1), Get(2), Put(3, |seen| seen[0].value())]),
        ],
        tables: Tables::Any,
    };
    super::forbid("aborted read", &spec);
}

#[test]
fn intermediate_read() {
    let spec = Spec {
        initial: vec![(1, 0)],
        programs: vec![
            Program::new([Put(1, |_| 666), Put(1, |_| 1)]),
            Program::new([Get(1), Put(2, |seen| seen[0].value())]),
        ],
        tables: Tables::Any,
    };
    super::forbid("intermediate read", &spec);
}
