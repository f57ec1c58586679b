//! G-single: a transaction that reads twice, or reads two cells changed together, must see one state.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Add, Get, Put};

#[test]
fn fuzzy_read() {
    let spec = Spec {
        initial: vec![(1, 5), (2, 5)],
        programs: vec![
            Program::new([Get(1), Get(2), Get(1), Put(3, |seen| seen[0].value() + seen[1].value())]),
            Program::new([Add(1, -3), Add(2, 3)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("fuzzy read", &spec);
}

#[test]
fn skewed_snapshot() {
    let spec = Spec {
        initial: vec![(1, 5), (2, 5)],
        programs: vec![
            Program::read_only([Get(1), Get(2), Get(1)]),
            Program::new([Add(1, -3), Add(2, 3)]),
            Program::new([Add(2, 1)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("skewed snapshot", &spec);
}
