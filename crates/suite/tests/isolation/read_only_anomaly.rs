//! Fekete, O'Neil, O'Neil 2004: two writers alone would be serial, but a reader sees a state between them.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Add, Get, Put};

/// Cell 1 is savings, cell 2 checking. A withdrawal that overdraws the sum costs a penalty of 1.
fn programs(reader: Program) -> Vec<Program> {
    vec![
        Program::new([
            Get(1),
            Get(2),
            Put(2, |seen| seen[1].value() - if seen[0].value() + seen[1].value() < 10 { 11 } else { 10 }),
        ]),
        Program::new([Add(1, 20)]),
        reader,
    ]
}

#[test]
fn with_a_snapshot_reader() {
    let reader = Program::read_only([Get(1), Get(2)]);
    let spec = Spec { initial: vec![(1, 0), (2, 0)], programs: programs(reader), tables: Tables::Any };
    super::forbid("read-only anomaly, snapshot", &spec);
}

#[test]
fn with_an_ordinary_reader() {
    let reader = Program::new([Get(1), Get(2)]);
    let spec = Spec { initial: vec![(1, 0), (2, 0)], programs: programs(reader), tables: Tables::Any };
    super::forbid("read-only anomaly, ordinary", &spec);
}
