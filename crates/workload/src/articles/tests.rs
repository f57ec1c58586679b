//! Every transaction follows the benchmark's definition, counts agree under every protocol, and every rule of
//! the check detects a violation.

use super::*;
use crate::test_support::{self, assert_consistent};
use seriatim::{Abort, Text, TransactError, Tx, available_protocols};

const SEED: u64 = 20_131_105;

fn loaded(protocol: &str, options: Options) -> (Database, Articles, Tables) {
    let workload = Articles::new(options);
    let db = test_support::loaded(protocol, &workload);
    let tables = Tables::open(&db).expect("loading made the tables");
    (db, workload, tables)
}

fn small() -> Options {
    Options { users: 20, comments: 6, ..Options::new(50, SEED) }
}

#[test]
fn comments_are_added_counted_and_shown_newest_last() {
    let (db, workload, _) = loaded("auto", small());
    let mut session = db.session();
    let read = GetArticleInput { a_id: 7 };
    let before = session.call(get_article, &read).expect("an article").into_value();
    assert!(before.a_num_comments <= 6 && u32::from(before.shown) == before.a_num_comments);
    assert_eq!((before.a_title.len(), before.a_text.len()), (100, 100));
    for n in 0..30 {
        let input = AddCommentInput { a_id: 7, u_id: n % 20, text: Text::truncated(&format!("comment {n}")) };
        let number = session.call(add_comment, &input).expect("a comment").into_value();
        assert_eq!(number, before.a_num_comments + n);
    }
    let after = session.call(get_article, &read).expect("an article").into_value();
    assert_eq!((after.a_num_comments, usize::from(after.shown)), (before.a_num_comments + 30, COMMENTS_SHOWN));
    for (n, comment) in (10..).zip(&after.comments) {
        assert_eq!((comment.c_id, comment.c_u_id), (before.a_num_comments + n, n % 20));
        assert_eq!(comment.c_text.as_str(), format!("comment {n}"));
    }
    let report = workload.consistency(&db).expect("the check runs");
    assert!(report.is_violated("comments"), "no terminal has recorded these comments: {report}");
    assert!(["counts", "numbers", "authors"].iter().all(|clause| !report.is_violated(clause)), "{report}");
}

#[test]
fn pages_hold_the_articles_from_one_on() {
    let (db, ..) = loaded("auto", small());
    let page = |first| {
        let read = GetArticlesInput { first };
        let page = db.session().call(get_articles, &read).expect("a page").into_value();
        page.articles[..usize::from(page.shown)].iter().map(|title| title.a_id).collect::<Vec<u32>>()
    };
    assert_eq!(page(4), (4..24).collect::<Vec<_>>());
    assert_eq!(page(45), [45, 46, 47, 48, 49]);
    assert!(page(50).is_empty());
}

#[test]
fn users_change_their_names() {
    let (db, _, tables) = loaded("auto", small());
    let mut session = db.session();
    let input = UpdateUserInfoInput { u_id: 3, lastname: Text::literal("Lovelace") };
    session.call(update_user_info, &input).expect("a change");
    let user = session.snapshot(|tx| Ok(tx.get(&tables.users, &3)?.map(|user| user.to_owned())));
    let user = user.expect("a read").into_value().expect("every user");
    assert_eq!((user.u_lastname.as_str(), user.u_changes), ("Lovelace", 1));
}

#[test]
fn unknown_articles_and_users_fail_without_a_trace() {
    let (db, workload, _) = loaded("auto", small());
    let mut session = db.session();
    let text = Text::literal("?");
    for (a_id, u_id) in [(50, 0), (0, 20)] {
        let input = AddCommentInput { a_id, u_id, text };
        let error = session.call(add_comment, &input).expect_err("no such row");
        assert!(matches!(error, TransactError::MissingRow { .. }), "{error}");
    }
    let input = UpdateUserInfoInput { u_id: 20, lastname: text };
    session.call(update_user_info, &input).expect_err("no such user");
    session.call(get_article, &GetArticleInput { a_id: 50 }).expect_err("no such article");
    assert_consistent(&db, &workload);
}

#[test]
fn counts_agree_under_every_protocol() {
    for protocol in available_protocols() {
        let (db, workload, _) = loaded(protocol.name, small());
        let tallies = test_support::run(&db, &workload, 3, 600, SEED);
        let committed = |committed| test_support::Tally { committed, rolled_back: 0 };
        assert_eq!(tallies, [720, 360, 540, 180].map(committed), "six full decks a terminal");
        assert_consistent(&db, &workload);
        test_support::run(&db, &workload, 2, 300, SEED + 1);
        assert_consistent(&db, &workload);
    }
}

/// Corrupts a small site after a run and asks that exactly `clauses` are violated.
#[track_caller]
fn canary(clauses: &[&str], corrupt: impl Fn(&Tx, &Tables) -> Result<(), Abort>) {
    let (db, workload, tables) = loaded("auto", small());
    test_support::run(&db, &workload, 1, 200, SEED);
    test_support::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
}

fn comment(c_a_id: u32, c_id: u32, c_u_id: u32) -> Comment {
    Comment { c_a_id, c_id, c_u_id, c_text: Text::literal("!") }
}

#[test]
fn a_count_that_is_off_by_one_is_noticed() {
    canary(&["counts"], |tx, tables| {
        tx.update(&tables.articles, &7, |row| row.set_a_num_comments(row.a_num_comments() + 1))
    });
}

#[test]
fn lost_and_misplaced_comments_are_noticed() {
    canary(&["counts", "numbers", "comments"], |tx, tables| tx.delete(&tables.comments, &(0, 0)));
    canary(&["numbers"], |tx, tables| {
        tx.delete(&tables.comments, &(0, 0))?;
        tx.insert(&tables.comments, &comment(0, 1_000_000, 0))
    });
    canary(&["parents", "comments"], |tx, tables| tx.insert(&tables.comments, &comment(4711, 0, 0)));
}

#[test]
fn a_comment_without_a_user_is_noticed() {
    canary(&["authors"], |tx, tables| tx.update(&tables.comments, &(0, 0), |row| row.set_c_u_id(20)));
}

#[test]
fn lost_rows_are_noticed() {
    canary(&["rows", "authors", "changes"], |tx, tables| tx.delete(&tables.users, &0));
    canary(&["rows"], |tx, tables| {
        let row = tx.get(&tables.users, &7)?.expect("every user").to_owned();
        tx.insert(&tables.users, &User { u_id: 20, u_email: email(20), u_changes: 0, ..row })
    });
    canary(&["rows", "parents"], |tx, tables| tx.delete(&tables.articles, &0));
}

#[test]
fn an_address_that_does_not_lead_to_its_user_is_noticed() {
    canary(&["index"], |tx, tables| tx.update(&tables.users, &7, |row| row.set_u_email(&email(99))));
}

#[test]
fn a_lost_change_is_noticed() {
    canary(&["changes"], |tx, tables| tx.update(&tables.users, &0, |row| row.set_u_changes(row.u_changes() - 1)));
}
