//! The plans of the procedures and the pieces of the set, reviewed against what SmallBank's definition demands.

use expect_test::expect;

use super::{Options, SmallBank};
use crate::trial::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&SmallBank::new(Options::new(2, 1)))
}

/// A read of both accounts, found by name (Alomari et al., section 3.1: `Bal`). It only reads, so it runs on a snapshot.
#[test]
fn balance() {
    expect![[r#"
        procedure balance (read only)
          #0 get accounts(input.name), must exist
              reads customer
              key known at entry
              partition input.name
              when it changes, run again #1 #2
          #1 get savings(#0.customer), must exist
              reads balance
              key from #0
              key known after #0
              partition #0.customer
          #2 get checking(#0.customer), must exist
              reads balance
              key from #0
              key known after #0
              partition #0.customer
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: missing row of #2
          can fail: overflow after #1 #2
    "#]]
    .assert_eq(&plans().plan("balance"));
}

/// One addition to the checking account (`DC`), which needs no value of it: it commutes with other deposits.
#[test]
fn deposit_checking() {
    expect![[r#"
        procedure deposit_checking
          #0 get accounts(input.name), must exist
              reads customer
              key known at entry
              partition input.name
              when it changes, run again #1
          #1 update checking(#0.customer), must exist
              adds to balance
              key from #0
              key known after #0
              partition #0.customer
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: overflow of a sum of #1
          can fail: out of memory of #1
    "#]]
    .assert_eq(&plans().plan("deposit_checking"));
}

/// The new balance depends on the old, which decides the rollback (`TS`): read before anything is written.
#[test]
fn transact_savings() {
    expect![[r#"
        procedure transact_savings
          #0 get accounts(input.name), must exist
              reads customer
              key known at entry
              partition input.name
              when it changes, run again #1 #2
          #1 get savings(#0.customer), must exist
              reads balance
              key from #0
              key known after #0
              partition #0.customer
              when it changes, run again #2
          #2 update savings(#0.customer), must exist
              writes balance
              key from #0
              values from #1
              control from #1
              rows perhaps from #1
              key known after #0
              partition #0.customer
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: missing row of #2
          can fail: out of memory of #2
          can fail: user abort after #1
          can fail: overflow after #1
    "#]]
    .assert_eq(&plans().plan("transact_savings"));
}

/// Both balances of the first customer become zero, and the second gets what they were (`Amg`): the sum depends on both.
#[test]
fn amalgamate() {
    expect![[r#"
        procedure amalgamate
          #0 get accounts(input.from), must exist
              reads customer
              key known at entry
              partition input.from
              when it changes, run again #2 #3 #4
          #1 get accounts(input.to), must exist
              reads customer
              key known at entry
              partition input.to
              when it changes, run again #4
          #2 update savings(#0.customer), must exist
              reads balance; writes balance
              key from #0
              key known after #0
              partition #0.customer
              when it changes, run again #4
          #3 update checking(#0.customer), must exist
              reads balance; writes balance
              key from #0
              key known after #0
              partition #0.customer
              when it changes, run again #4
          #4 update checking(#1.customer), must exist
              adds to balance
              key from #1
              values from #2 #3
              rows perhaps from #3
              key known after #1
              partition #1.customer
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: missing row of #2
          can fail: out of memory of #2
          can fail: missing row of #3
          can fail: out of memory of #3
          can fail: missing row of #4
          can fail: overflow of #4
          can fail: overflow of a sum of #4
          can fail: out of memory of #4
    "#]]
    .assert_eq(&plans().plan("amalgamate"));
}

/// The penalty depends on both balances (`WC`), savings are only read: the read that makes SmallBank anomalous under
/// snapshot isolation. Nothing rolls back.
#[test]
fn write_check() {
    expect![[r#"
        procedure write_check
          #0 get accounts(input.name), must exist
              reads customer
              key known at entry
              partition input.name
              when it changes, run again #1 #2 #3
          #1 get savings(#0.customer), must exist
              reads balance
              key from #0
              key known after #0
              partition #0.customer
              when it changes, run again #3
          #2 get checking(#0.customer), must exist
              reads balance
              key from #0
              key known after #0
              partition #0.customer
              when it changes, run again #3
          #3 update checking(#0.customer), must exist
              adds to balance
              key from #0
              values from #1 #2
              rows perhaps from #2
              key known after #0
              partition #0.customer
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: missing row of #2
          can fail: missing row of #3
          can fail: overflow of a sum of #3
          can fail: out of memory of #3
          can fail: overflow after #1 #2
          can fail: overflow after #1 #2
    "#]]
    .assert_eq(&plans().plan("write_check"));
}

/// The payer's balance decides the rollback (H-Store's `SendPayment`), so both additions are under its control, neither
/// needs a value.
#[test]
fn send_payment() {
    expect![[r#"
        procedure send_payment
          #0 get accounts(input.from), must exist
              reads customer
              key known at entry
              partition input.from
              when it changes, run again #2 #3 #4
          #1 get accounts(input.to), must exist
              reads customer
              key known at entry
              partition input.to
              when it changes, run again #4
          #2 get checking(#0.customer), must exist
              reads balance
              key from #0
              key known after #0
              partition #0.customer
              when it changes, run again #3 #4
          #3 update checking(#0.customer), must exist
              adds to balance
              key from #0
              control from #2
              rows perhaps from #2
              key known after #0
              partition #0.customer
              when it changes, run again #4
          #4 update checking(#1.customer), must exist
              adds to balance
              key from #1
              control from #2
              rows perhaps from #2 #3
              key known after #1
              partition #1.customer
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: missing row of #2
          can fail: missing row of #3
          can fail: overflow of a sum of #3
          can fail: out of memory of #3
          can fail: missing row of #4
          can fail: overflow of a sum of #4
          can fail: out of memory of #4
          can fail: user abort after #2
    "#]]
    .assert_eq(&plans().plan("send_payment"));
}

/// Customers' names never change, so their look-up may stand before the rest. All else is one piece wherever both accounts
/// of a customer meet: that is SmallBank's point. Rollbacks are safe: both `InsufficientFunds` are raised in the decisive
/// piece, before which nothing was visible and after which nothing can fail.
#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        amalgamate: 3 pieces
          0 buffered: 0 get accounts
          1 buffered: 1 get accounts
          2 decisive, conflicting: 2 update savings | 3 update checking | 4 update checking
          merged #2 and #3: SC-cycle amalgamate #2 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #3 –S–
          merged #2 and #4: SC-cycle amalgamate #2 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #4 –S–

        balance: 2 pieces
          0 buffered: 0 get accounts
          1 decisive, conflicting: 1 get savings | 2 get checking
          merged #1 and #2: SC-cycle balance #1 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #2 –S–

        deposit_checking: 2 pieces
          0 buffered: 0 get accounts
          1 decisive, conflicting: 1 update checking

        send_payment: 3 pieces
          0 buffered: 0 get accounts
          1 buffered: 1 get accounts
          2 decisive, conflicting: 2 get checking | 3 update checking | 4 update checking
          merged #2 and #3: SC-cycle send_payment #2 –C checking (balance)– amalgamate #3 –C checking (balance)– #3 –S–
          merged #2 and #4: SC-cycle send_payment #2 –C checking (balance)– amalgamate #3 –C checking (balance)– #4 –S–

        transact_savings: 2 pieces
          0 buffered: 0 get accounts
          1 decisive, conflicting: 1 get savings | 2 update savings
          merged #1 and #2: SC-cycle transact_savings #1 –C savings (balance)– amalgamate #2 –C savings (balance)– #2 –S–

        write_check: 2 pieces
          0 buffered: 0 get accounts
          1 decisive, conflicting: 1 get savings | 2 get checking | 3 update checking
          merged #1 and #2: SC-cycle write_check #1 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #2 –S–
          merged #1 and #3: SC-cycle write_check #1 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #3 –S–

        C-edges, between any two instances
          amalgamate #2 – amalgamate #2: savings (balance)
          amalgamate #2 – balance #1: savings (balance)
          amalgamate #2 – transact_savings #1: savings (balance)
          amalgamate #2 – transact_savings #2: savings (balance)
          amalgamate #2 – write_check #1: savings (balance)
          amalgamate #3 – amalgamate #3: checking (balance)
          amalgamate #3 – amalgamate #4: checking (balance)
          amalgamate #3 – balance #2: checking (balance)
          amalgamate #3 – deposit_checking #1: checking (balance)
          amalgamate #3 – send_payment #2: checking (balance)
          amalgamate #3 – send_payment #3: checking (balance)
          amalgamate #3 – send_payment #4: checking (balance)
          amalgamate #3 – write_check #2: checking (balance)
          amalgamate #3 – write_check #3: checking (balance)
          amalgamate #4 – balance #2: checking (balance)
          amalgamate #4 – send_payment #2: checking (balance)
          amalgamate #4 – write_check #2: checking (balance)
          balance #1 – transact_savings #2: savings (balance)
          balance #2 – deposit_checking #1: checking (balance)
          balance #2 – send_payment #3: checking (balance)
          balance #2 – send_payment #4: checking (balance)
          balance #2 – write_check #3: checking (balance)
          deposit_checking #1 – send_payment #2: checking (balance)
          deposit_checking #1 – write_check #2: checking (balance)
          send_payment #2 – send_payment #3: checking (balance)
          send_payment #2 – send_payment #4: checking (balance)
          send_payment #2 – write_check #3: checking (balance)
          send_payment #3 – write_check #2: checking (balance)
          send_payment #4 – write_check #2: checking (balance)
          transact_savings #1 – transact_savings #2: savings (balance)
          transact_savings #2 – transact_savings #2: savings (balance)
          transact_savings #2 – write_check #1: savings (balance)
          write_check #2 – write_check #3: checking (balance)

        the engine sees to it that
          memory for all writes is reserved when an execution begins
          sums keep room: checking.balance
    "#]].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// Balance leaves the graph. No deposit is published later: its row must exist, which is found out when it is written.
#[test]
fn the_optimized_graph() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        amalgamate: 3 pieces
          0 buffered: 0 get accounts
          1 buffered: 1 get accounts
          2 decisive, conflicting: 2 update savings | 3 update checking | 4 update checking
          merged #2 and #3: SC-cycle amalgamate #2 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #3 –S–
          merged #2 and #4: SC-cycle amalgamate #2 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #4 –S–

        balance: read only, on a snapshot

        deposit_checking: 2 pieces
          0 buffered: 0 get accounts
          1 decisive, conflicting: 1 update checking

        send_payment: 3 pieces
          0 buffered: 0 get accounts
          1 buffered: 1 get accounts
          2 decisive, conflicting: 2 get checking | 3 update checking | 4 update checking
          merged #2 and #3: SC-cycle send_payment #2 –C checking (balance)– amalgamate #3 –C checking (balance)– #3 –S–
          merged #2 and #4: SC-cycle send_payment #2 –C checking (balance)– amalgamate #3 –C checking (balance)– #4 –S–

        transact_savings: 2 pieces
          0 buffered: 0 get accounts
          1 decisive, conflicting: 1 get savings | 2 update savings
          merged #1 and #2: SC-cycle transact_savings #1 –C savings (balance)– amalgamate #2 –C savings (balance)– #2 –S–

        write_check: 2 pieces
          0 buffered: 0 get accounts
          1 decisive, conflicting: 1 get savings | 2 get checking | 3 update checking
          merged #1 and #2: SC-cycle write_check #1 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #2 –S–
          merged #1 and #3: SC-cycle write_check #1 –C savings (balance)– amalgamate #2 –S– #3 –C checking (balance)– #3 –S–

        C-edges, between any two instances
          amalgamate #2 – amalgamate #2: savings (balance)
          amalgamate #2 – transact_savings #1: savings (balance)
          amalgamate #2 – transact_savings #2: savings (balance)
          amalgamate #2 – write_check #1: savings (balance)
          amalgamate #3 – amalgamate #3: checking (balance)
          amalgamate #3 – amalgamate #4: checking (balance)
          amalgamate #3 – deposit_checking #1: checking (balance)
          amalgamate #3 – send_payment #2: checking (balance)
          amalgamate #3 – send_payment #3: checking (balance)
          amalgamate #3 – send_payment #4: checking (balance)
          amalgamate #3 – write_check #2: checking (balance)
          amalgamate #3 – write_check #3: checking (balance)
          amalgamate #4 – send_payment #2: checking (balance)
          amalgamate #4 – write_check #2: checking (balance)
          deposit_checking #1 – send_payment #2: checking (balance)
          deposit_checking #1 – write_check #2: checking (balance)
          send_payment #2 – send_payment #3: checking (balance)
          send_payment #2 – send_payment #4: checking (balance)
          send_payment #2 – write_check #3: checking (balance)
          send_payment #3 – write_check #2: checking (balance)
          send_payment #4 – write_check #2: checking (balance)
          transact_savings #1 – transact_savings #2: savings (balance)
          transact_savings #2 – transact_savings #2: savings (balance)
          transact_savings #2 – write_check #1: savings (balance)
          write_check #2 – write_check #3: checking (balance)

        publish–subscribe
          not amalgamate #4: it can fail when it is published: missing row
          not deposit_checking #1: it can fail when it is published: missing row
          not send_payment #3: it can fail when it is published: missing row
          not send_payment #4: it can fail when it is published: missing row
          not write_check #3: it can fail when it is published: missing row

        static: accounts, checking, savings

        the engine sees to it that
          memory for all writes is reserved when an execution begins
          sums keep room: checking.balance
    "#]].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    trial::assert_runs_as_planned(&SmallBank::new(Options::new(40, 1)));
}
