//! The plans of the procedures and the pieces of the set, reviewed against what the description demands.

use expect_test::expect_file;

use super::{KINDS, Options, Tatp};
use crate::test_support::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&Tatp::new(Options::new(2, 1)))
}

/// All columns of one subscriber (section 3.1 of the description): one read, on a snapshot.
#[test]
fn get_subscriber_data() {
    expect_file!["plans/get_subscriber_data.txt"].assert_eq(&plans().plan("get_subscriber_data"));
}

/// A special facility, and the forwardings that begin at or before a time if it is active. Neither need exist: three
/// rollbacks, all of a transaction that only reads.
#[test]
fn get_new_destination() {
    expect_file!["plans/get_new_destination.txt"].assert_eq(&plans().plan("get_new_destination"));
}

/// One row of access information, which need not exist.
#[test]
fn get_access_data() {
    expect_file!["plans/get_access_data.txt"].assert_eq(&plans().plan("get_access_data"));
}

/// Two writes that need nothing of each other; the second row need not exist, and then the first is undone.
#[test]
fn update_subscriber_data() {
    expect_file!["plans/update_subscriber_data.txt"].assert_eq(&plans().plan("update_subscriber_data"));
}

/// The subscriber is found by number and changed by key.
#[test]
fn update_location() {
    expect_file!["plans/update_location.txt"].assert_eq(&plans().plan("update_location"));
}

/// The subscriber by number, its special facilities, and a row inserted that must be new. Where the description relies
/// on a violated key, the procedure checks before, so that the end is a rollback and not a failure.
#[test]
fn insert_call_forwarding() {
    expect_file!["plans/insert_call_forwarding.txt"].assert_eq(&plans().plan("insert_call_forwarding"));
}

/// The subscriber by number, and a row deleted that need not be there.
#[test]
fn delete_call_forwarding() {
    expect_file!["plans/delete_call_forwarding.txt"].assert_eq(&plans().plan("delete_call_forwarding"));
}

/// Numbers lead to the same subscribers for ever and special facilities are never added or removed, so those
/// look-ups stand before the rest. Rollbacks are safe. UPDATE_SUBSCRIBER_DATA writes twice and may fail after either,
/// so both are in the piece that decides. All others roll back before they write or in the piece that writes.
#[test]
fn the_default_graph() {
    expect_file!["plans/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// The three that only read leave the graph; no transaction adds to a column, so nothing is deferred.
#[test]
fn the_optimized_graph() {
    expect_file!["plans/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    let mix = [1; KINDS.len()];
    test_support::assert_runs_as_planned(&Tatp::new(Options { mix, ..Options::new(40, 1) }));
}
