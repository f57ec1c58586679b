//! Articles: a site where articles are read and commented on. It is the benchmark `articles` of H-Store, also the one
//! of section 6.7 of DBX-TC. It has the four transactions and the mix 40:20:30:10 of its first version.
//!
//! Departures: GetArticles shows a page of articles, not all that follow. GetArticle shows the newest comments of an
//! article, not all, so that its cost does not grow with the run. Columns that no transaction and no loader sets are
//! left out, and there are few comments at the start. Skew is Zipf's law with theta below 1, where H-Store has 1.0001.
//! Users count the changes of their information, so that lost updates show.

mod consistency;
mod input;
mod load;
mod options;
#[cfg(test)]
mod plans;
mod schema;
mod terminal;
#[cfg(test)]
mod tests;
mod transactions;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use input::{AddCommentInput, GetArticleInput, GetArticlesInput, Inputs, UpdateUserInfoInput};
pub use options::{Options, open};
pub use schema::{Article, Comment, Line, Tables, User, email};
pub use terminal::ArticlesTerminal;
pub use transactions::{
    ArticleOutput, ArticlesOutput, COMMENTS_SHOWN, PAGE, ShownComment, Title, add_comment, get_article, get_articles,
    procedures, update_user_info,
};

use crate::ledger::{Count, Ledgers};
use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "articles",
    about: "Articles: reading articles and commenting on them",
    knobs: &[
        Knob { name: "articles", value: "N", default: "10000", about: "articles of the site" },
        Knob { name: "users", value: "N", default: "200", about: "users who comment" },
        Knob { name: "comments", value: "N", default: "20", about: "most comments of an article at the start" },
        Knob {
            name: "mix",
            value: "MIX",
            default: "standard",
            about: "standard (40:20:30:10), get-article, get-articles, add-comment, update-user-info, or four counts \
                    in that order",
        },
        Knob { name: "theta", value: "Z", default: "0.99", about: "skew of articles and users: 0 is none, below 1" },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let articles = u32::try_from(rows("articles")).ok().filter(|&articles| articles > 0)?;
    let users = u32::try_from(rows("users")).ok().filter(|&users| users > 0)?;
    Some(Box::new(Articles::new(Options { users, ..Options::new(articles, 0) })))
}

/// The kinds of transaction.
pub const KINDS: [&str; 4] = ["get_article", "get_articles", "add_comment", "update_user_info"];

/// Articles as a [`Workload`]. One database belongs to it, whose terminals' ledgers it keeps.
pub struct Articles {
    options: Options,
    shared: Arc<Shared>,
}

/// The state that loader, terminals and check share.
#[derive(Default)]
struct Shared {
    /// Comments that were loaded.
    comments: AtomicU64,
    ledgers: Ledgers<Ledger>,
}

/// The committed transactions of one terminal.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ledger {
    /// Comments added.
    comments: Count,
    /// Changes of users.
    changes: Count,
}

impl Articles {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there is no article or no user, or theta is outside `[0, 1)`.
    pub fn new(options: Options) -> Articles {
        assert!(options.articles > 0 && options.users > 0 && (0.0..1.0).contains(&options.theta));
        Articles { options, shared: Arc::default() }
    }
}

impl Workload for Articles {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        Tables::create(db)?;
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        load::load(db, &self.options, &self.shared, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        consistency::check(db, &self.options, Some(&self.shared))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(consistency::check(db, &self.options, None)?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        Tables::open(db)?;
        let inputs = Inputs::new(Rng::from_seed(seed ^ u64::from(index) << 48), &self.options);
        let ledger = self.shared.ledgers.open(|_| Ledger::default());
        Ok(Box::new(ArticlesTerminal::new(inputs, self.options.mix, ledger)))
    }
}
