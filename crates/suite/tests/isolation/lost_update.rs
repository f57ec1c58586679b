//! P4: two increments of one cell must both count.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Add, Get, Put};

#[test]
fn lost_update() {
    let spec = Spec {
        initial: vec![(1, 0)],
        programs: vec![
            Program::new([Get(1), Put(1, |seen| seen[0].value() + 1)]),
            Program::new([Get(1), Put(1, |seen| seen[0].value() + 10)]),
            Program::new([Add(1, 100)]),
        ],
        tables: Tables::Any,
    };
    super::forbid("lost update", &spec);
}
