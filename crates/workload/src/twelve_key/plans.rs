//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect;

use super::{Options, Rounds, TwelveKey};
use crate::trial::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&TwelveKey::new(Options::default()))
}

/// Twelve updates by keys that the arguments give, each of which needs its own row alone (section 5.1): nothing passes from
/// one partition to another. Whether it aborts depends on the arguments.
#[test]
fn one_round() {
    expect![[r#"
        procedure one_round
          #0 update cell(key.partition, key.client, key.number), must exist, in loop 0
              reads value; writes value
              key known at entry
              partition key.partition
          loop 0 over arguments
          can fail: missing row of #0
          can fail: overflow of #0
          can fail: out of memory of #0
          can fail: user abort of arguments
          can fail: out of bounds after #0
    "#]]
    .assert_eq(&plans().plan("one_round"));
}

/// Twelve reads, then twelve updates that need all of them (section 5.4): a second round at both partitions.
#[test]
fn two_rounds() {
    expect![[r#"
        procedure two_rounds
          #0 get cell(key.partition, key.client, key.number), must exist, in loop 0
              reads value
              key known at entry
              partition key.partition
              when it changes, run again #1
          #1 update cell(key.partition, key.client, key.number), must exist, in loop 1
              writes value, sum
              values from #0
              rows perhaps from #0
              key known at entry
              partition key.partition
          loop 0 over arguments
          loop 1 over arguments
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: out of memory of #1
          can fail: user abort of arguments
          can fail: overflow after #0
          can fail: out of bounds after #0
          can fail: out of bounds after #0
    "#]]
    .assert_eq(&plans().plan("two_rounds"));
}

/// All keys are of one table, so what reads and what writes them is one piece. Aborts are decided by the arguments or in
/// that piece, so they are safe.
#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        one_round: 1 piece
          0 decisive, conflicting: 0 update cell

        two_rounds: 1 piece
          0 decisive, conflicting: 0 get cell | 1 update cell
          merged #0 and #1: SC-cycle two_rounds #0 –C cell (value)– one_round #0 –C cell (value)– #1 –S–

        C-edges, between any two instances
          one_round #0 – one_round #0: cell (value)
          one_round #0 – two_rounds #0: cell (value)
          one_round #0 – two_rounds #1: cell (value)
          two_rounds #0 – two_rounds #1: cell (value)
          two_rounds #1 – two_rounds #1: cell (value, sum)
    "#]]
    .assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// No different: both write, and what they write was read.
#[test]
fn the_optimized_graph() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        one_round: 1 piece
          0 decisive, conflicting: 0 update cell

        two_rounds: 1 piece
          0 decisive, conflicting: 0 get cell | 1 update cell
          merged #0 and #1: SC-cycle two_rounds #0 –C cell (value)– one_round #0 –C cell (value)– #1 –S–

        C-edges, between any two instances
          one_round #0 – one_round #0: cell (value)
          one_round #0 – two_rounds #0: cell (value)
          one_round #0 – two_rounds #1: cell (value)
          two_rounds #0 – two_rounds #1: cell (value)
          two_rounds #1 – two_rounds #1: cell (value, sum)

        static: cell
    "#]]
    .assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    for rounds in [Rounds::One, Rounds::Two] {
        let options = Options { clients: 4, multi: 50, conflict: 50, abort: 10, rounds, ..Options::default() };
        trial::assert_runs_as_planned(&TwelveKey::new(options));
    }
}
