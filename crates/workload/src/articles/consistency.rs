//! Consistency of Articles' tables: counts of comments, their numbers and their authors, compared with the
//! terminals' ledgers.
//!
//! A lost update of an article's count would let two comments take one number. A lost insert leaves a count without its
//! comment. A lost change of a user leaves a sum that differs from the terminals' books.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Shared;
use super::options::Options;
use super::schema::{Tables, email};
use crate::{LoadError, Report, Rule};
use seriatim::{Abort, Database, ReadTx};

static ROWS: Rule = Rule { clause: "rows", says: "articles and users = those loaded" };
static COUNTS: Rule = Rule { clause: "counts", says: "A_NUM_COMMENTS = count(COMMENTS) of the article" };
static NUMBERS: Rule = Rule { clause: "numbers", says: "comments of an article are numbered from 0 without a gap" };
static AUTHORS: Rule = Rule { clause: "authors", says: "the user of every comment exists" };
static PARENTS: Rule = Rule { clause: "parents", says: "the article of every comment exists" };
static BOOKED: Rule = Rule { clause: "comments", says: "comments = loaded + added by what committed" };
static CHANGED: Rule = Rule { clause: "changes", says: "sum of the users' changes = changes committed" };
static INDEX: Rule = Rule { clause: "index", says: "the user found by a user's address = the user" };

/// Articles or users looked at in one transaction.
const PART: u32 = 1 << 12;

/// An article as the check read it.
struct FoundArticle {
    a_id: u32,
    num_comments: u32,
    comments: u32,
    /// Whether they are numbered from 0 without a gap.
    is_dense: bool,
    /// Comments by users there are not.
    unknown: u32,
}

/// Checks the tables; with `shared`, also against the loaded rows and the committed transactions of this
/// workload's terminals.
pub(super) fn check(db: &Database, options: &Options, shared: Option<&Shared>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report = Report::new(&[&ROWS, &COUNTS, &NUMBERS, &AUTHORS, &PARENTS, &BOOKED, &CHANGED, &INDEX]);
    let (mut exists, mut changes) = (vec![false; options.users as usize + 1], 0);
    // One beyond the last user: there must be none.
    for ids in parts(options.users + 1) {
        let found = session.snapshot(|tx| collect_users(tx, &tables, ids.clone()))?.into_value();
        for (u_id, user_changes, found_by_email) in found {
            exists[u_id as usize] = true;
            changes += u64::from(user_changes);
            report.equal(&INDEX, format_args!("user {u_id}"), found_by_email, i64::from(u_id));
        }
    }
    report.equal(&ROWS, "users", exists.iter().filter(|&&exists| exists).count(), options.users as usize);
    report.equal(&ROWS, "users beyond the last", exists[options.users as usize], false);
    if let Some(shared) = shared {
        report.equal(&CHANGED, "all users", changes, shared.ledgers.sum(|ledger| ledger.changes.get()));
    }

    let (mut articles, mut comments) = (0, 0);
    let last = parts(options.articles).last().map_or(0, |ids| ids.start);
    for ids in parts(options.articles) {
        // Rows of articles beyond the last one are collected with the last.
        let end = if ids.start == last { u32::MAX } else { ids.end - 1 };
        let (found, strays) = session.snapshot(|tx| collect(tx, &tables, &exists, ids.start, end))?.into_value();
        for article in found {
            let at = format_args!("article {}", article.a_id);
            (articles, comments) = (articles + 1, comments + u64::from(article.comments));
            report.equal(&COUNTS, at, article.num_comments, article.comments);
            report.equal(&NUMBERS, at, article.is_dense, true);
            report.equal(&AUTHORS, at, article.unknown, 0);
        }
        report.equal(&PARENTS, format_args!("articles {} to {end}", ids.start), strays, 0);
        comments += strays;
    }
    report.equal(&ROWS, "articles", articles, options.articles);
    if let Some(shared) = shared {
        let booked = shared.comments.load(Ordering::Relaxed) + shared.ledgers.sum(|ledger| ledger.comments.get());
        report.equal(&BOOKED, "all articles", comments, booked);
    }
    Ok(report)
}

/// `0..end` in parts.
fn parts(end: u32) -> impl Iterator<Item = Range<u32>> {
    (0..end).step_by(PART as usize).map(move |from| from..end.min(from.saturating_add(PART)))
}

/// The users of these numbers: number, changes, and the user at its address, -1 if there is none.
fn collect_users(tx: &ReadTx, tables: &Tables, ids: Range<u32>) -> Result<Vec<(u32, u32, i64)>, Abort> {
    let mut found = Vec::new();
    for u_id in ids {
        let Some(user) = tx.get(&tables.users, &u_id)? else { continue };
        let by_email = tx.get_by(&tables.users_by_email, &email(u_id))?;
        let other = by_email.map_or(-1, |other| i64::from(other.u_id()));
        found.push((u_id, user.u_changes(), other));
    }
    Ok(found)
}

/// The articles from `first` to `last`, and the number of comments without an article. `exists` says for each
/// number whether a user has it.
fn collect(
    tx: &ReadTx,
    tables: &Tables,
    exists: &[bool],
    first: u32,
    last: u32,
) -> Result<(Vec<FoundArticle>, u64), Abort> {
    let (mut found, mut strays) = (Vec::new(), 0);
    for article in tx.scan(&tables.articles, first..=last) {
        let article = article?;
        let (a_id, num_comments) = (article.a_id(), article.a_num_comments());
        found.push(FoundArticle { a_id, num_comments, comments: 0, is_dense: true, unknown: 0 });
    }
    let mut at = 0;
    for comment in tx.scan(&tables.comments, (first, 0)..=(last, u32::MAX)) {
        let comment = comment?;
        while found.get(at).is_some_and(|article| article.a_id < comment.c_a_id()) {
            at += 1;
        }
        match found.get_mut(at).filter(|article| article.a_id == comment.c_a_id()) {
            Some(article) => {
                article.is_dense &= comment.c_id() == article.comments;
                article.comments += 1;
                let has_author = exists.get(comment.c_u_id() as usize).is_some_and(|&exists| exists);
                article.unknown += u32::from(!has_author);
            }
            None => strays += 1,
        }
    }
    Ok((found, strays))
}
