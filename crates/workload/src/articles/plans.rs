//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect_file;

use super::{Articles, Options};
use crate::test_support::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&Articles::new(Options::new(2, 1)))
}

/// An article and its newest comments. The article's count determines the comments, so the scan begins at a key that is
/// known after the article, within the article's partition.
#[test]
fn get_article() {
    expect_file!["plans/get_article.txt"].assert_eq(&plans().plan("get_article"));
}

/// A page of articles spans partitions: no access is at one place.
#[test]
fn get_articles() {
    expect_file!["plans/get_articles.txt"].assert_eq(&plans().plan("get_articles"));
}

/// The user must exist, and its row is not used. The article's count becomes the comment's number. So it is
/// read and does not commute, and the comment's key is known only afterwards. A number that was taken twice
/// would give a duplicate key.
#[test]
fn add_comment() {
    expect_file!["plans/add_comment.txt"].assert_eq(&plans().plan("add_comment"));
}

/// One user: the name is set, the count of changes only added to.
#[test]
fn update_user_info() {
    expect_file!["plans/update_user_info.txt"].assert_eq(&plans().plan("update_user_info"));
}

/// Users are looked up apart, since no transaction adds or removes any. An article's count and its comments
/// change together and are read together, each pair in one piece. No transaction rolls back.
#[test]
fn the_default_graph() {
    expect_file!["plans/the_default_graph.txt"].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// Reads leave the graph. The change of a user also sets the name, so it is not deferred.
#[test]
fn the_optimized_graph() {
    expect_file!["plans/the_optimized_graph.txt"].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    test_support::assert_runs_as_planned(&Articles::new(Options::new(40, 1)));
}
