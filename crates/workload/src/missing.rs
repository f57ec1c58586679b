//! A row that loading made and no transaction deletes is not there.

use std::error::Error;
use std::fmt;

/// A row that the workload's population guarantees is not there. The transaction fails.
#[derive(Debug)]
pub struct Missing(
    /// The table.
    pub &'static str,
);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} lacks a row that this database must have: was it loaded with other options?", self.0)
    }
}

impl Error for Missing {}
