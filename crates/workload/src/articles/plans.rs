//! The plans of the procedures and the pieces of the set, reviewed against what the benchmark's definition demands.

use expect_test::expect;

use super::{Articles, Options};
use crate::trial::{self, Plans};
use seriatim::procedure::plan;

fn plans() -> Plans {
    Plans::of(&Articles::new(Options::new(2, 1)))
}

/// An article, and its newest comments: which they are follows from the article's count, so the scan begins at a key that is
/// known after the article, within the article's partition.
#[test]
fn get_article() {
    expect![[r#"
        procedure get_article (read only)
          #0 get articles(input.a_id), must exist
              reads a_title, a_text, a_num_comments
              key known at entry
              partition input.a_id
              when it changes, run again #1
          #1 scan comments(input.a_id)
              reads c_id, c_u_id, c_text
              key from #0
              key known after #0
              partition input.a_id
          loop 0 over the rows of #1
          can fail: missing row of #0
          can fail: overflow after #0 #1
          can fail: out of bounds after #0 #1
    "#]]
    .assert_eq(&plans().plan("get_article"));
}

/// A page of articles: nothing of it is at one place.
#[test]
fn get_articles() {
    expect![[r#"
        procedure get_articles (read only)
          #0 scan articles()
              reads a_id, a_title, a_num_comments
              key known at entry
              partition unknown or any
          loop 0 over the rows of #0
          can fail: overflow after #0
          can fail: out of bounds after #0
    "#]]
    .assert_eq(&plans().plan("get_articles"));
}

/// The user must exist and nothing of it is used; the article's count is the comment's number, so it is read and does not
/// commute, and the comment's key is known after it. A number taken twice would be a duplicate key.
#[test]
fn add_comment() {
    expect![[r#"
        procedure add_comment
          #0 get users(input.u_id), must exist
              reads keys
              key known at entry
              partition input.u_id
          #1 update articles(input.a_id), must exist
              reads a_num_comments; writes a_num_comments
              key known at entry
              partition input.a_id
              when it changes, run again #2
          #2 insert comments(input.a_id, #1)
              changes keys
              key from #1
              key known after #1
              partition input.a_id
          can fail: missing row of #0
          can fail: missing row of #1
          can fail: overflow of #1
          can fail: out of memory of #1
          can fail: duplicate key of #2
          can fail: out of memory of #2
    "#]]
    .assert_eq(&plans().plan("add_comment"));
}

/// One user: the name is set, the count of changes only added to.
#[test]
fn update_user_info() {
    expect![[r#"
        procedure update_user_info
          #0 update users(input.u_id), must exist
              writes u_lastname; adds to u_changes
              key known at entry
              partition input.u_id
          can fail: missing row of #0
          can fail: overflow of a sum of #0
          can fail: out of memory of #0
    "#]]
    .assert_eq(&plans().plan("update_user_info"));
}

/// Users are looked up apart, since no transaction adds or removes any. An article's count and its comments change together
/// and are read together, each pair in one piece. No transaction rolls back.
#[test]
fn the_default_graph() {
    expect![[r#"
        chopped with reordering, commutativity, headroom, reserved memory

        add_comment: 2 pieces
          0 buffered: 0 get users
          1 decisive, conflicting: 1 update articles | 2 insert comments
          merged #1 and #2: SC-cycle add_comment #1 –C articles (a_num_comments)– add_comment #1 –S– #2 –C comments (keys)– #2 –S–

        get_article: 1 piece
          0 decisive, conflicting: 0 get articles | 1 scan comments
          merged #0 and #1: SC-cycle get_article #0 –C articles (a_num_comments)– add_comment #1 –S– #2 –C comments (keys)– #1 –S–

        get_articles: 1 piece
          0 decisive, conflicting: 0 scan articles

        update_user_info: 1 piece
          0 decisive, conflicting: 0 update users

        C-edges, between any two instances
          add_comment #1 – add_comment #1: articles (a_num_comments)
          add_comment #1 – get_article #0: articles (a_num_comments)
          add_comment #1 – get_articles #0: articles (a_num_comments)
          add_comment #2 – add_comment #2: comments (keys)
          add_comment #2 – get_article #1: comments (keys)
          update_user_info #0 – update_user_info #0: users (u_lastname)

        the engine sees to it that
          memory for all writes is reserved when an execution begins
    "#]].assert_eq(&plans().chopping(plan::Options::DEFAULT));
}

/// Reads leave the graph. The change of a user also sets the name, so it is not deferred.
#[test]
fn the_optimized_graph() {
    expect![[r#"
        chopped with snapshots, reordering, commutativity, deferral, static tables, claims, headroom, reserved memory

        add_comment: 2 pieces
          0 buffered: 0 get users
          1 decisive, conflicting: 1 update articles | 2 insert comments
          merged #1 and #2: SC-cycle add_comment #1 –C articles (a_num_comments)– add_comment #1 –S– #2 –C comments (keys)– #2 –S–

        get_article: read only, on a snapshot

        get_articles: read only, on a snapshot

        update_user_info: 1 piece
          0 decisive, conflicting: 0 update users

        C-edges, between any two instances
          add_comment #1 – add_comment #1: articles (a_num_comments)
          add_comment #2 – add_comment #2: comments (keys)
          update_user_info #0 – update_user_info #0: users (u_lastname)

        publish–subscribe
          not update_user_info #0: it does not only add to columns

        static: articles, users

        the engine sees to it that
          memory for all writes is reserved when an execution begins
    "#]].assert_eq(&plans().chopping(plan::Options::OPTIMIZED));
}

#[test]
fn executions_keep_to_the_plans() {
    trial::assert_runs_as_planned(&Articles::new(Options::new(40, 1)));
}
