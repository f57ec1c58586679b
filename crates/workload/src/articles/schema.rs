//! The three tables, with H-Store's column names.
//!
//! Articles are read in pages and comments by their article, so both are ordered; users are reached by key alone. An
//! article's texts never change while its count of comments does with every comment, so they are stored apart.

use seriatim::catalog::kind;
use seriatim::{Database, Handle, IndexHandle, SchemaError, Table, Text};

/// A text of H-Store's VARCHAR(100).
pub type Line = Text<100>;

/// ARTICLES.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "articles", key(a_id), ordered)]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct Article {
    #[column(immutable)]
    pub a_id: u32,
    #[column(immutable)]
    pub a_title: Line,
    #[column(immutable)]
    pub a_text: Line,
    pub a_num_comments: u32,
}

/// COMMENTS: numbered from 0 within their article.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "comments", key(c_a_id, c_id), ordered)]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct Comment {
    pub c_a_id: u32,
    pub c_id: u32,
    pub c_u_id: u32,
    pub c_text: Line,
}

/// USERS.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "users", key(u_id), hash)]
#[table(index(name = "by_email", columns(u_email), unique, hash))]
#[allow(missing_docs, reason = "the columns are those of the benchmark")]
pub struct User {
    pub u_id: u32,
    pub u_firstname: Line,
    pub u_lastname: Line,
    pub u_password: Line,
    pub u_email: Line,
    /// Changes of the row since it was inserted.
    pub u_changes: u32,
}

/// U_EMAIL of a user, which no other has.
pub fn email(u_id: u32) -> Line {
    Text::truncated(&format!("user{u_id}@example.org"))
}

/// Handles of all tables and the index.
#[derive(Clone)]
#[allow(missing_docs, reason = "named as the tables")]
pub struct Tables {
    pub articles: Handle<Article>,
    pub comments: Handle<Comment>,
    pub users: Handle<User>,
    /// Users by e-mail address.
    pub users_by_email: IndexHandle<User, Line, kind::UniqueHash>,
}

impl Tables {
    /// Creates all tables.
    ///
    /// # Errors
    /// When one exists with another definition.
    pub fn create(db: &Database) -> Result<Tables, SchemaError> {
        db.create_or_open::<Article>()?;
        db.create_or_open::<Comment>()?;
        db.create_or_open::<User>()?;
        Tables::open(db)
    }

    /// Finds all tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables, SchemaError> {
        let users = db.table::<User>()?;
        Ok(Tables { articles: db.table()?, comments: db.table()?, users_by_email: users.index(User::BY_EMAIL), users })
    }
}
