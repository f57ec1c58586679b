//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect_file;

use super::{Options, Rounds, TwelveKey};
use crate::test_support::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&TwelveKey::new(Options::default()))
}

/// Twelve updates by keys that the arguments give, each of which needs its own row alone (section 5.1):
/// nothing passes from one partition to another. Whether it aborts depends on the arguments.
#[test]
fn one_round() {
    expect_file!["plans/one_round.txt"].assert_eq(&plans().plan("one_round"));
}

/// Twelve reads, then twelve updates that need all of them (section 5.4): a second round at both partitions.
#[test]
fn two_rounds() {
    expect_file!["plans/two_rounds.txt"].assert_eq(&plans().plan("two_rounds"));
}

/// All keys are of one table, so what reads and what writes them is one piece. Aborts are decided by the
/// arguments or in that piece, so they are safe.
#[test]
fn the_default_graph() {
    expect_file!["plans/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// No different: both write, and what they write was read.
#[test]
fn the_optimized_graph() {
    expect_file!["plans/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    for rounds in [Rounds::One, Rounds::Two] {
        let options = Options { clients: 4, multi: 50, conflict: 50, abort: 10, rounds, ..Options::default() };
        test_support::assert_runs_as_planned(&TwelveKey::new(options));
    }
}
