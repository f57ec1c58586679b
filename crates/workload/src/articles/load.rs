//! The population: users with short names, then articles of full length with comments, each by a random user,
//! their number uniform up to the option's.

use std::sync::atomic::Ordering;

use super::Shared;
use super::options::Options;
use super::schema::{Article, Comment, Tables, User, email};
use crate::random::a_text;
use crate::{LoadError, Loading, parallel};
use seriatim::{Database, Rng};

/// Characters of titles and texts of articles.
pub(super) const LINE: usize = 100;
/// Characters of names and passwords.
const NAME: usize = 3;
/// Characters of comments at the start.
const COMMENT: usize = 5;

/// Fills the three tables, which are declared, and notes how many comments were loaded.
pub(super) fn load(db: &Database, options: &Options, shared: &Shared, loading: &Loading<'_>) -> Result<(), LoadError> {
    let tables = Tables::open(db)?;
    let users = u64::from(options.users);
    let make_user = |rng: &mut Rng, u_id| User {
        u_id: u_id as u32,
        u_firstname: a_text(rng, NAME, NAME),
        u_lastname: a_text(rng, NAME, NAME),
        u_password: a_text(rng, NAME, NAME),
        u_email: email(u_id as u32),
        u_changes: 0,
    };
    parallel::populate(db, loading, (users, users), !options.seed, make_user, |tx, user| {
        tx.insert(&tables.users, user)?;
        Ok(1)
    })?;
    let articles = u64::from(options.articles);
    let rows = articles + articles * u64::from(options.comments) / 2;
    let make_article = |rng: &mut Rng, number| {
        let (a_id, count) = (number as u32, rng.range(0, options.comments.into()) as u32);
        shared.comments.fetch_add(count.into(), Ordering::Relaxed);
        let comments: Vec<Comment> = (0..count)
            .map(|c_id| Comment {
                c_a_id: a_id,
                c_id,
                c_u_id: rng.below(users) as u32,
                c_text: a_text(rng, COMMENT, COMMENT),
            })
            .collect();
        let (a_title, a_text) = (a_text(rng, LINE, LINE), a_text(rng, LINE, LINE));
        (Article { a_id, a_title, a_text, a_num_comments: count }, comments)
    };
    parallel::populate(db, loading, (articles, rows), options.seed, make_article, |tx, (article, comments)| {
        tx.insert(&tables.articles, article)?;
        comments.iter().try_for_each(|comment| tx.insert(&tables.comments, comment))?;
        Ok(1 + comments.len() as u64)
    })
}
