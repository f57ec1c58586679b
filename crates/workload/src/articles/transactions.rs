//! The four transactions: procedures of their input.
//!
//! No transaction rolls back. A missing article or user means a database that was loaded with other options,
//! and is a failure.

use super::input::{AddCommentInput, GetArticleInput, GetArticlesInput, UpdateUserInfoInput};
use super::schema::{Article, Comment, Line, User};
use seriatim::procedure::Procedures;
use seriatim::{Abort, Data, Text, Tx, procedure, procedures, pure};

/// The four, to be registered as one set.
pub fn procedures() -> Procedures {
    procedures![get_article, get_articles, add_comment, update_user_info]
}

/// Comments that GetArticle shows, the newest.
pub const COMMENTS_SHOWN: usize = 20;
/// Articles that GetArticles shows.
pub const PAGE: usize = 20;

/// A comment as GetArticle shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct ShownComment {
    /// Its number within the article.
    pub c_id: u32,
    /// Its author.
    pub c_u_id: u32,
    /// The comment.
    pub c_text: Line,
}

/// The result of GetArticle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
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
#[procedure]
pub fn get_article(tx: &Tx, input: &GetArticleInput) -> Result<ArticleOutput, Abort> {
    let article = tx.require::<Article>(input.a_id)?;
    let mut output = ArticleOutput {
        a_title: Text::truncated(article.a_title),
        a_text: Text::truncated(article.a_text),
        a_num_comments: article.a_num_comments,
        shown: 0,
        comments: [ShownComment { c_id: 0, c_u_id: 0, c_text: Line::EMPTY }; COMMENTS_SHOWN],
    };
    let first = first_shown(article.a_num_comments);
    for comment in tx.scan::<Comment>((input.a_id, first)..=(input.a_id, u32::MAX)).limit(COMMENTS_SHOWN)? {
        output.comments[usize::from(output.shown)] =
            ShownComment { c_id: comment.c_id, c_u_id: comment.c_u_id, c_text: Text::truncated(comment.c_text) };
        output.shown += 1;
    }
    Ok(output)
}

/// The first comment shown, of this many.
#[pure(total)]
fn first_shown(comments: u32) -> u32 {
    comments.saturating_sub(COMMENTS_SHOWN as u32)
}

/// A line of the page that GetArticles shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct Title {
    /// The article.
    pub a_id: u32,
    /// Its title.
    pub a_title: Line,
    /// How many comments it has.
    pub a_num_comments: u32,
}

/// The result of GetArticles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct ArticlesOutput {
    /// Lines in use.
    pub shown: u8,
    /// The articles; those beyond `shown` are empty.
    pub articles: [Title; PAGE],
}

/// Shows a page of articles.
#[procedure]
pub fn get_articles(tx: &Tx, input: &GetArticlesInput) -> Result<ArticlesOutput, Abort> {
    let mut output =
        ArticlesOutput { shown: 0, articles: [Title { a_id: 0, a_title: Line::EMPTY, a_num_comments: 0 }; PAGE] };
    for article in tx.scan::<Article>(input.first..).limit(PAGE)? {
        output.articles[usize::from(output.shown)] = Title {
            a_id: article.a_id,
            a_title: Text::truncated(article.a_title),
            a_num_comments: article.a_num_comments,
        };
        output.shown += 1;
    }
    Ok(output)
}

/// Adds a comment of a user to an article, and counts it there; the comment's number.
#[procedure]
pub fn add_comment(tx: &Tx, input: &AddCommentInput) -> Result<u32, Abort> {
    tx.require::<User>(input.u_id)?;
    let c_id = tx.update::<Article>(input.a_id, |article| {
        let number = article.a_num_comments;
        article.a_num_comments += 1;
        number
    })?;
    tx.insert(Comment { c_a_id: input.a_id, c_id, c_u_id: input.u_id, c_text: input.text })?;
    Ok(c_id)
}

/// Changes a user's last name.
#[procedure]
pub fn update_user_info(tx: &Tx, input: &UpdateUserInfoInput) -> Result<(), Abort> {
    tx.update::<User>(input.u_id, |user| {
        user.u_lastname = input.lastname;
        user.u_changes += 1;
    })?;
    Ok(())
}
