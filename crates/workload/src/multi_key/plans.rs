//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect;

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
    expect![[r#"
        procedure update
          #0 update record(key), must exist, in loop 0
              reads value; writes value; adds to updates
              key known at entry
              partition key
          loop 0 over arguments
          can fail: missing row of #0
          can fail: overflow of a sum of #0
          can fail: out of memory of #0
    "#]]
    .assert_eq(&plans().plan("update"));
}

/// One operation, one piece.
#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        update: 1 piece
          0 decisive, conflicting: 0 update record

        C-edges, between any two instances
          update #0 – update #0: record (value)
    "#]]
    .assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// The value does not commute, so nothing is deferred.
#[test]
fn the_optimized_graph() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        update: 1 piece
          0 decisive, conflicting: 0 update record

        C-edges, between any two instances
          update #0 – update #0: record (value)

        publish–subscribe
          not update #0: it does not only add to columns

        static: record
    "#]]
    .assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    trial::assert_runs_as_planned(&MultiKey::new(Options { records: 100, theta: 0.5 }));
}
