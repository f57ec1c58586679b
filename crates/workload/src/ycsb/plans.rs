//! The plans of the transaction, hashed and ordered, and the pieces of the latter, reviewed against what YCSB demands.

use expect_test::expect_file;

use super::{Core, Options, Ycsb};
use crate::test_support::{self, Plans};
use seriatim::procedure::plan;

fn plans(is_ordered: bool) -> Plans {
    Plans::of(&Ycsb::new(Options { value_bytes: 100, is_ordered, ..Options::core(Core::A, 1, 1) }))
}

/// One operation after another, with kinds and keys from the arguments. None needs another's result, and each
/// can be repaired alone. A loaded row must exist, a newer one may be missing. An update sets one field and
/// uses no other; its count of writes commutes. Scans begin at a key and are unbounded.
#[test]
fn operations_ordered() {
    expect_file!["plans/operations_ordered.txt"].assert_eq(&plans(true).plan("operations"));
}

/// The same without the scan, which is of the operations the last.
#[test]
fn operations_hashed() {
    let is_of_scan = |line: &str| line.starts_with("  #6 ") || line.starts_with("  loop 1 ");
    let (mut expected, mut left_out) = (String::new(), false);
    for line in plans(true).plan("operations").lines() {
        left_out = is_of_scan(line) || left_out && line.starts_with("    ");
        if !left_out {
            expected += &format!("{}\n", line.replace(" #6", ""));
        }
    }
    assert_eq!(plans(false).plan("operations"), expected);
}

/// Operations on one table in a loop may conflict in any order, so they are one piece. Only the arguments
/// decide about aborts.
#[test]
fn the_default_graph() {
    expect_file!["plans/the_default_graph.txt"].assert_eq(&plans(true).chopping(plan::Options::DEFAULT));
}

/// No different: the text of the procedure can write, so it does not run on a snapshot, even where a mix only reads.
#[test]
fn the_optimized_graph() {
    let pieces = |options| plans(true).chopping(options).split_once('\n').expect("a heading").1.to_owned();
    let (default, optimized) = (pieces(plan::Options::DEFAULT), pieces(plan::Options::OPTIMIZED));
    let more = optimized.strip_prefix(&default).expect("the same pieces and edges");
    expect_file!["plans/the_optimized_graph.txt"].assert_eq(more);
}

#[test]
#[ignore = "nightly: seconds"]
fn executions_keep_to_the_plans() {
    for core in [Core::A, Core::D, Core::E, Core::F] {
        test_support::assert_runs_as_planned(&Ycsb::new(Options { ops: 3, ..Options::core(core, 100, 1) }));
    }
}
