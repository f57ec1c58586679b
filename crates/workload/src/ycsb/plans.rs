//! The plans of the transaction, hashed and ordered, and the pieces of the latter, reviewed against what YCSB demands.

use expect_test::expect;

use super::{Core, Options, Ycsb};
use crate::trial::{self, Plans};
use seriatim::procedure::plan;

fn plans(is_ordered: bool) -> Plans {
    Plans::of(&Ycsb::new(Options { value_bytes: 100, is_ordered, ..Options::core(Core::A, 1, 1) }))
}

/// One operation after another, each of a kind and on a key that the arguments give: none needs another's result, and each
/// runs again alone. A row that was loaded must exist, a newer one need not. An update sets one field and needs nothing of the
/// row; its count of writes commutes. Scans run from a key on, however far.
#[test]
fn operations_ordered() {
    expect![[r#"
        procedure operations
          #0 get usertable(operation.key), must exist, in loop 0, perhaps
              reads field0
              rows perhaps from #3 #4 #5
              key known at entry
              partition operation.key
              when it changes, run again #1 #2 #3 #4 #5 #6
          #1 get usertable(operation.key), in loop 0, perhaps
              reads field0
              rows perhaps from #3 #4 #5
              key known at entry
              partition operation.key
              when it changes, run again #0 #2 #3 #4 #5 #6
          #2 get usertable(operation.key), in loop 0, perhaps
              reads field0
              rows perhaps from #3 #4 #5
              key known at entry
              partition operation.key
              when it changes, run again #0 #1 #3 #4 #5 #6
          #3 update usertable(operation.key), must exist, in loop 0, perhaps
              writes field0; adds to writes
              rows perhaps from #0 #1 #2 #4 #5 #6
              key known at entry
              partition operation.key
              when it changes, run again #0 #1 #2 #4 #5 #6
          #4 update usertable(operation.key), must exist, in loop 0, perhaps
              writes field0; adds to writes
              rows perhaps from #0 #1 #2 #3 #5 #6
              key known at entry
              partition operation.key
              when it changes, run again #0 #1 #2 #3 #5 #6
          #5 insert usertable(operation.key), in loop 0, perhaps
              changes keys
              rows perhaps from #0 #1 #2 #3 #4 #6
              key known at entry
              partition operation.key
              when it changes, run again #0 #1 #2 #3 #4 #6
          #6 scan usertable(), in loop 0, perhaps
              reads field0
              rows perhaps from #3 #4 #5
              key known at entry
              partition unknown or any
              when it changes, run again #0 #1 #2 #3 #4 #5
          loop 0 over arguments
          loop 1 in loop 0 over the rows of #6
          can fail: missing row of #0
          can fail: missing row of #3
          can fail: overflow of a sum of #3
          can fail: out of memory of #3
          can fail: missing row of #4
          can fail: overflow of a sum of #4
          can fail: out of memory of #4
          can fail: duplicate key of #5
          can fail: out of memory of #5
          can fail: user abort of arguments
    "#]]
    .assert_eq(&plans(true).plan("operations"));
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

/// Operations on one table in a loop may meet in any order, so they are one piece. What aborts is decided by the arguments.
#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        operations: 1 piece
          0 decisive, conflicting: 0 get usertable | 1 get usertable | 2 get usertable | 3 update usertable | 4 update usertable | 5 insert usertable | 6 scan usertable
          merged #0 and #1: a loop carries the order of #0 and #1, which meet in one table, into the next iteration
          merged #0 and #2: a loop carries the order of #0 and #2, which meet in one table, into the next iteration
          merged #0 and #3: a loop carries the order of #0 and #3, which meet in one table, into the next iteration
          merged #0 and #4: a loop carries the order of #0 and #4, which meet in one table, into the next iteration
          merged #0 and #5: a loop carries the order of #0 and #5, which meet in one table, into the next iteration
          merged #0 and #6: a loop carries the order of #0 and #6, which meet in one table, into the next iteration

        C-edges, between any two instances
          operations #0 – operations #3: usertable (field0)
          operations #0 – operations #4: usertable (field0)
          operations #0 – operations #5: usertable (keys)
          operations #1 – operations #3: usertable (field0)
          operations #1 – operations #4: usertable (field0)
          operations #1 – operations #5: usertable (keys)
          operations #2 – operations #3: usertable (field0)
          operations #2 – operations #4: usertable (field0)
          operations #2 – operations #5: usertable (keys)
          operations #3 – operations #3: usertable (field0)
          operations #3 – operations #4: usertable (field0)
          operations #3 – operations #5: usertable (keys)
          operations #3 – operations #6: usertable (field0)
          operations #4 – operations #4: usertable (field0)
          operations #4 – operations #5: usertable (keys)
          operations #4 – operations #6: usertable (field0)
          operations #5 – operations #5: usertable (keys)
          operations #5 – operations #6: usertable (keys)
    "#]].assert_eq(&plans(true).chopping(plan::Options::DEFAULT));
}

/// No different: the text of the procedure can write, so it does not run on a snapshot, even where a mix only reads.
#[test]
fn the_optimized_graph() {
    let pieces = |options| plans(true).chopping(options).split_once('\n').expect("a heading").1.to_owned();
    let (default, optimized) = (pieces(plan::Options::DEFAULT), pieces(plan::Options::OPTIMIZED));
    let more = optimized.strip_prefix(&default).expect("the same pieces and edges");
    expect![[r#"

        publish–subscribe
          not operations #3: it does not only add to columns
          not operations #4: it does not only add to columns
    "#]]
    .assert_eq(more);
}

#[test]
fn executions_keep_to_the_plans() {
    for core in [Core::A, Core::D, Core::E, Core::F] {
        trial::assert_runs_as_planned(&Ycsb::new(Options { ops: 3, ..Options::core(core, 100, 1) }));
    }
}
