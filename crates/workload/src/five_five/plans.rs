//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect;

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
    expect![[r#"
        procedure read_write
          #0 get object(input.both), must exist
              reads steps, value
              key known at entry
              partition input.both
              when it changes, run again #2 #3
          #1 get object(id), must exist, in loop 0
              reads value
              key known at entry
              partition id
              when it changes, run again #2 #3
          #2 update object(input.both), must exist
              writes steps, value
              values from #0
              rows perhaps from #0 #1
              key known at entry
              partition input.both
              when it changes, run again #3
          #3 update object(id), must exist, in loop 1
              writes value
              rows perhaps from #0 #1 #2
              key known at entry
              partition id
          loop 0 over arguments
          loop 1 over arguments
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: missing row of #2
          can fail: out of memory of #2
          can fail: missing row of #3
          can fail: out of memory of #3
          can fail: overflow after #0
    "#]]
    .assert_eq(&plans().plan("read_write"));
}

/// Reads and writes of one table meet in every order, so they are one piece.
#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        read_write: 1 piece
          0 decisive, conflicting: 0 get object | 1 get object | 2 update object | 3 update object
          merged #0 and #1: SC-cycle read_write #0 –C object (steps, value)– read_write #2 –C object (value)– #1 –S–
          merged #0 and #2: SC-cycle read_write #0 –C object (steps, value)– read_write #2 –C object (steps, value)– #2 –S–
          merged #0 and #3: SC-cycle read_write #0 –C object (steps, value)– read_write #2 –C object (value)– #3 –S–

        C-edges, between any two instances
          read_write #0 – read_write #2: object (steps, value)
          read_write #0 – read_write #3: object (value)
          read_write #1 – read_write #2: object (value)
          read_write #1 – read_write #3: object (value)
          read_write #2 – read_write #2: object (steps, value)
          read_write #2 – read_write #3: object (value)
          read_write #3 – read_write #3: object (value)
    "#]].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// No different: it also writes, and adds nothing.
#[test]
fn the_optimized_graph() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        read_write: 1 piece
          0 decisive, conflicting: 0 get object | 1 get object | 2 update object | 3 update object
          merged #0 and #1: SC-cycle read_write #0 –C object (steps, value)– read_write #2 –C object (value)– #1 –S–
          merged #0 and #2: SC-cycle read_write #0 –C object (steps, value)– read_write #2 –C object (steps, value)– #2 –S–
          merged #0 and #3: SC-cycle read_write #0 –C object (steps, value)– read_write #2 –C object (value)– #3 –S–

        C-edges, between any two instances
          read_write #0 – read_write #2: object (steps, value)
          read_write #0 – read_write #3: object (value)
          read_write #1 – read_write #2: object (value)
          read_write #1 – read_write #3: object (value)
          read_write #2 – read_write #2: object (steps, value)
          read_write #2 – read_write #3: object (value)
          read_write #3 – read_write #3: object (value)

        static: object
    "#]].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    trial::assert_runs_as_planned(&FiveFive::new(Options { objects: 100, theta: 0.5 }));
}
