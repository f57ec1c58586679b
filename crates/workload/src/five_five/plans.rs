//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect_file;

use super::{FiveFive, Options};
use crate::trial::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&FiveFive::new(Options { objects: 9, theta: 0.0 }))
}

/// Five reads, five writes, all keys known (section 5). One object is read and written; the others written are written
/// blind, so they need nothing that was read. When the object read and written changes, only its write runs again.
#[test]
fn read_write() {
    expect_file!["plans/read_write.txt"].assert_eq(&plans().plan("read_write"));
}

/// Reads and writes of one table meet in every order, so they are one piece.
#[test]
fn the_default_graph() {
    expect_file!["plans/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// No different: it also writes, and adds nothing.
#[test]
fn the_optimized_graph() {
    expect_file!["plans/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    trial::assert_runs_as_planned(&FiveFive::new(Options { objects: 100, theta: 0.5 }));
}
