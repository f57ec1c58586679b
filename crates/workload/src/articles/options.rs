//! Options of Articles and their command-line spelling.

use super::{Articles, KINDS};
use crate::registry::{Misuse, Values};
use crate::{Workload, mix};

/// Options of Articles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Articles, at least 1.
    pub articles: u32,
    /// Users, at least 1.
    pub users: u32,
    /// Most comments of an article at the start.
    pub comments: u32,
    /// Skew of articles and users, in `[0, 1)`.
    pub theta: f64,
    /// Cards of each kind of transaction in a deck, in the order of [`KINDS`].
    pub mix: [u32; KINDS.len()],
    /// Determines the population.
    pub seed: u64,
}

impl Options {
    /// H-Store's mix.
    pub const STANDARD: [u32; KINDS.len()] = [40, 20, 30, 10];

    /// The standard mix over this many articles, 200 users and up to 20 comments an article.
    pub const fn new(articles: u32, seed: u64) -> Options {
        Options { articles, users: 200, comments: 20, theta: 0.99, mix: Options::STANDARD, seed }
    }
}

/// Articles from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let articles = values.number("articles", 1, 100_000_000)?;
    let users = values.number("users", 1, 100_000_000)?;
    let comments = values.number("comments", 0, 100_000)?;
    let mix = mix::cards(values, &KINDS, &[("standard", Options::STANDARD)])?;
    let theta: f64 = values.number("theta", 0.0, 1.0)?;
    if theta >= 1.0 {
        return Err(Misuse::new("theta", values.text("theta")?, "at least 0 and below 1"));
    }
    Ok(Box::new(Articles::new(Options { articles, users, comments, theta, mix, seed: values.seed() })))
}

#[cfg(test)]
mod tests {
    use crate::articles::ENTRY;
    use crate::test_support;

    #[test]
    fn invalid_values_are_refused_with_the_valid_ones() {
        let open = |name: &str, value: &str| test_support::open(&ENTRY, &[(name, value)]);
        assert_eq!(open("mix", "add-comment"), Ok(()));
        assert_eq!(open("comments", "0"), Ok(()));
        for (name, value, wants) in [
            ("articles", "0", "from 1"),
            ("users", "x", "from 1"),
            ("theta", "1", "below 1"),
            ("mix", "1:2", "4 counts"),
        ] {
            let misuse = open(name, value).expect_err("this cannot be");
            assert!(misuse.contains(wants), "{misuse}");
        }
    }
}
