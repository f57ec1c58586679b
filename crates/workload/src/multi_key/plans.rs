//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect_file;

use super::{MultiKey, Options};
use crate::trial::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&MultiKey::new(Options { records: 10, theta: 0.0 }))
}

/// Ten updates by keys that the arguments give (figure 1): each adds to a sum that wraps, so the value is read; the count is
/// only added to.
#[test]
fn update() {
    expect_file!["plans/update.txt"].assert_eq(&plans().plan("update"));
}

/// One operation, one piece.
#[test]
fn the_default_graph() {
    expect_file!["plans/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// The value does not commute, so nothing is deferred.
#[test]
fn the_optimized_graph() {
    expect_file!["plans/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    trial::assert_runs_as_planned(&MultiKey::new(Options { records: 100, theta: 0.5 }));
}
