//! Errors of declarations, and the one error of writing a row.

use std::fmt;

/// Memory for a row's long text could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory: the database's memory limit is reached")
    }
}

impl std::error::Error for OutOfMemory {}

/// Why a declaration is invalid. Every message names the table and says what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// A declaration contradicts itself or leaves something out.
    Invalid {
        /// The table; empty if the table itself is missing.
        table: String,
        /// The error, and what would be right.
        problem: String,
    },
    /// The declaration of a sequence makes no sense.
    Sequence {
        /// The sequence.
        sequence: String,
        /// The error, and what would be right.
        problem: String,
    },
}

impl SchemaError {
    pub(crate) fn invalid(table: &str, problem: impl Into<String>) -> SchemaError {
        SchemaError::Invalid { table: table.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Invalid { table, problem } => write!(f, "table `{table}`: {problem}"),
            SchemaError::Sequence { sequence, problem } => write!(f, "sequence `{sequence}` {problem}"),
        }
    }
}

impl std::error::Error for SchemaError {}
