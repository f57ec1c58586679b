//! G2-item: two transactions read both cells and each writes one.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Get, If, Put};

#[test]
fn write_skew() {
    let spec = Spec {
        initial: vec![(1, 1), (2, 1)],
        programs: vec![
            Program::new([Get(1), Get(2), If(|seen| seen[0].value() + seen[1].value() >= 2, &Put(1, |_| 0))]),
            Program::new([Get(1), Get(2), If(|seen| seen[0].value() + seen[1].value() >= 2, &Put(2, |_| 0))]),
        ],
        tables: Tables::Any,
    };
    super::forbid("write skew", &spec);
}
