//! The plans of the procedures and the pieces of the set, reviewed against what SmallBank's definition demands.

use expect_test::expect_file;

use super::{Options, SmallBank};
use crate::test_support::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&SmallBank::new(Options::new(2, 1)))
}

/// A read of both accounts, found by name (Alomari et al., section 3.1: `Bal`). It only reads, so it runs on
/// a snapshot.
#[test]
fn balance() {
    expect_file!["plans/balance.txt"].assert_eq(&plans().plan("balance"));
}

/// One addition to the checking account (`DC`), which needs no value of it: it commutes with other deposits.
#[test]
fn deposit_checking() {
    expect_file!["plans/deposit_checking.txt"].assert_eq(&plans().plan("deposit_checking"));
}

/// The new balance depends on the old, which decides the rollback (`TS`): read before anything is written.
#[test]
fn transact_savings() {
    expect_file!["plans/transact_savings.txt"].assert_eq(&plans().plan("transact_savings"));
}

/// Both balances of the first customer become zero, and the second gets what they were (`Amg`): the sum
/// depends on both.
#[test]
fn amalgamate() {
    expect_file!["plans/amalgamate.txt"].assert_eq(&plans().plan("amalgamate"));
}

/// The penalty depends on both balances (`WC`), savings are only read: the read that makes SmallBank anomalous under
/// snapshot isolation. Nothing rolls back.
#[test]
fn write_check() {
    expect_file!["plans/write_check.txt"].assert_eq(&plans().plan("write_check"));
}

/// The payer's balance decides the rollback (H-Store's `SendPayment`), so both additions are under its control, neither
/// needs a value.
#[test]
fn send_payment() {
    expect_file!["plans/send_payment.txt"].assert_eq(&plans().plan("send_payment"));
}

/// Customers' names never change, so their look-up may stand before the rest. All else is one piece wherever
/// both accounts of a customer conflict: that is SmallBank's point. Rollbacks are safe: both `InsufficientFunds`
/// are raised in the decisive piece, before which nothing was visible and after which nothing can fail.
#[test]
fn the_default_graph() {
    expect_file!["plans/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// Balance leaves the graph. No deposit is published later: its row must exist, which is found out when it is written.
#[test]
fn the_optimized_graph() {
    expect_file!["plans/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    test_support::assert_runs_as_planned(&SmallBank::new(Options::new(40, 1)));
}
