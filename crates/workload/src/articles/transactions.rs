//! The four transactions: functions of the database and their input.
//!
//! None asks to be rolled back. An article or a user that is not there means a database loaded with other options, and fails.

use super::input::{AddCommentInput, GetArticleInput, GetArticlesInput, UpdateUserInfoInput};
use super::schema::{Comment, Line, Tables};
use crate::Missing;
use seriatim::{Abort, ReadTx, Text, Tx};

/// Comments that GetArticle shows, the newest.
pub const COMMENTS_SHOWN: usize = 20;
/// Articles that GetArticles shows.
pub const PAGE: usize = 20;

/// A comment as GetArticle shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownComment {
    /// Its number within the article.
    pub c_id: u32,
    /// Who wrote it.
    pub c_u_id: u32,
    /// The comment.
    pub c_text: Line,
}

/// What GetArticle shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArticleOutput {
    /// The title.
    pub a_title: Line,
    /// The text.
    pub a_text: Line,
    /// How many comments there are.
    pub a_num_comments: u32,
    /// Comments in use.
    pub shown: u8,
    /// The newest comments, the oldest of them first; those beyond `shown` are empty.
    pub comments: [ShownComment; COMMENTS_SHOWN],
}

/// Shows an article and its newest comments.
///
/// # Errors
/// A conflict where the protocol has no snapshots, or no such article.
pub fn get_article(tx: &ReadTx, tables: &Tables, input: &GetArticleInput) -> Result<ArticleOutput, Abort> {
    let Some(article) = tx.get(&tables.articles, &input.a_id)? else { return Err(tx.abort(Missing("articles"))) };
    let mut output = ArticleOutput {
        a_title: Text::truncated(article.a_title()),
        a_text: Text::truncated(article.a_text()),
        a_num_comments: article.a_num_comments(),
        shown: 0,
        comments: [ShownComment::default(); COMMENTS_SHOWN],
    };
    let first = article.a_num_comments().saturating_sub(COMMENTS_SHOWN as u32);
    let range = (input.a_id, first)..=(input.a_id, u32::MAX);
    for comment in tx.scan(&tables.comments, range).take(COMMENTS_SHOWN) {
        let comment = comment?;
        output.comments[usize::from(output.shown)] =
            ShownComment { c_id: comment.c_id(), c_u_id: comment.c_u_id(), c_text: Text::truncated(comment.c_text()) };
        output.shown += 1;
    }
    Ok(output)
}

/// A line of the page that GetArticles shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Title {
    /// The article.
    pub a_id: u32,
    /// Its title.
    pub a_title: Line,
    /// How many comments it has.
    pub a_num_comments: u32,
}

/// What GetArticles shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArticlesOutput {
    /// Lines in use.
    pub shown: u8,
    /// The articles; those beyond `shown` are empty.
    pub articles: [Title; PAGE],
}

/// Shows a page of articles.
///
/// # Errors
/// A conflict where the protocol has no snapshots.
pub fn get_articles(tx: &ReadTx, tables: &Tables, input: &GetArticlesInput) -> Result<ArticlesOutput, Abort> {
    let mut output = ArticlesOutput { shown: 0, articles: [Title::default(); PAGE] };
    for article in tx.scan(&tables.articles, input.first..).take(PAGE) {
        let article = article?;
        output.articles[usize::from(output.shown)] = Title {
            a_id: article.a_id(),
            a_title: Text::truncated(article.a_title()),
            a_num_comments: article.a_num_comments(),
        };
        output.shown += 1;
    }
    Ok(output)
}

/// Adds a comment of a user to an article, and counts it there; the comment's number.
///
/// # Errors
/// A conflict, or no such user or article.
pub fn add_comment(tx: &Tx, tables: &Tables, input: &AddCommentInput) -> Result<u32, Abort> {
    if tx.get(&tables.users, &input.u_id)?.is_none() {
        return Err(tx.abort(Missing("users")));
    }
    let number = tx.update(&tables.articles, &input.a_id, |article| {
        let number = article.a_num_comments();
        article.set_a_num_comments(number + 1);
        number
    })?;
    let Some(c_id) = number else { return Err(tx.abort(Missing("articles"))) };
    tx.insert(&tables.comments, &Comment { c_a_id: input.a_id, c_id, c_u_id: input.u_id, c_text: input.text })?;
    Ok(c_id)
}

/// Changes a user's last name.
///
/// # Errors
/// A conflict, or no such user.
pub fn update_user_info(tx: &Tx, tables: &Tables, input: &UpdateUserInfoInput) -> Result<(), Abort> {
    let changed = tx.update(&tables.users, &input.u_id, |user| {
        user.set_u_lastname(&input.lastname);
        user.set_u_changes(user.u_changes() + 1);
    })?;
    if changed.is_none() {
        return Err(tx.abort(Missing("users")));
    }
    Ok(())
}
