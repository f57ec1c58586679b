//! G0: two transactions write the same two cells; the cells must not end up with one write of each.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::Put;

#[test]
fn dirty_write() {
    let spec = Spec {
        initial: vec![(1, 0), (2, 0)],
        programs: vec![Program::new([Put(1, |_| 10), Put(2, |_| 10)]), Program::new([Put(1, |_| 20), Put(2, |_| 20)])],
        tables: Tables::Any,
    };
    super::forbid("dirty write", &spec);
}
