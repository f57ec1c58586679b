//! A transaction that reports an error has seen a state between two transactions of the serial order, as one that
//! commits has. Here one that
//! commits later must not come before what was reported, or not have read what came before that.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{self, Add, Change, Delete, Get, Insert, Put};

/// A writer reads cell 1 and does something to cell 2, another changes cell 1, and one reads cell 1, uses cell 2 and
/// reports.
fn forbid(name: &str, cell: Option<i64>, write: Op, uses: Op) {
    let spec = Spec {
        initial: [(1, 0)].into_iter().chain(cell.map(|value| (2, value))).collect(),
        programs: vec![Program::new([Get(1), write]), Program::new([Add(1, 1)]), Program::reporting([Get(1), uses])],
        tables: Tables::Any,
    };
    super::forbid(name, &spec);
}

#[test]
fn about_a_row_that_was_read() {
    forbid("error about a row read", Some(0), Put(2, |seen| 100 + seen[0].value()), Get(2));
}

#[test]
fn about_a_row_that_was_to_be_written() {
    forbid("error about a row to be written", Some(0), Delete(2), Change(2, |_, value| value + 1));
}

#[test]
fn about_a_row_that_was_missing() {
    forbid("error about a missing row", None, Insert(2, 7), Get(2));
}

#[test]
fn about_a_row_that_was_to_be_inserted() {
    forbid("error about a row to be inserted", None, Put(2, |seen| 100 + seen[0].value()), Insert(2, 7));
}
