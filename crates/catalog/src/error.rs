//! What can be wrong with a declaration, and the one thing that can go wrong while a row is written.

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

/// Why a table cannot be created or found. Every message names the table and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// A declaration contradicts itself or leaves something out.
    Invalid {
        /// The table, or empty if that is what is missing.
        table: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A table of this name exists with another declaration.
    Different {
        /// The table.
        table: String,
        /// The first difference: what exists, what was asked for.
        difference: String,
    },
    /// A table of this name exists already.
    Exists {
        /// The table.
        table: String,
    },
    /// No table has this name.
    Missing {
        /// The name asked for.
        table: String,
    },
    /// Memory for the table's structures could not be had.
    OutOfMemory(OutOfMemory),
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
            SchemaError::Different { table, difference } => {
                write!(f, "table `{table}` exists with another declaration: {difference}")
            }
            SchemaError::Exists { table } => write!(f, "table `{table}` exists already"),
            SchemaError::Missing { table } => write!(f, "there is no table `{table}`; create it first"),
            SchemaError::OutOfMemory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SchemaError {}

impl From<OutOfMemory> for SchemaError {
    fn from(error: OutOfMemory) -> SchemaError {
        SchemaError::OutOfMemory(error)
    }
}
