//! Errors of database directories. Every message names the file and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why the log, a checkpoint or the manifest could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused an operation. The source names the operation and the path.
    Io {
        /// The action of the log, such as "writing the manifest".
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file does not hold the bytes that were written to it.
    Corrupt {
        /// The file, or the directory where a file is missing.
        file: PathBuf,
        /// Bytes from the start of the file to the damage.
        offset: u64,
        /// The fault at that position.
        problem: String,
        /// The remedy.
        advice: String,
    },
    /// This program does not know the format of a file.
    Format {
        /// The file.
        file: PathBuf,
        /// The format of the file.
        found: u64,
        /// The newest format that this program knows.
        newest: u64,
    },
    /// A directory holds no database.
    NotADatabase {
        /// The directory.
        directory: PathBuf,
        /// The missing or conflicting object.
        problem: String,
    },
    /// A directory or a segment was removed while its database was open.
    Removed {
        /// Its path.
        path: PathBuf,
    },
    /// A directory was moved while its database was open, and something else is at its path.
    Replaced {
        /// Its path.
        directory: PathBuf,
    },
    /// The process is a fork of the one that opened the database.
    Forked,
    /// The recovered rows do not fit into memory.
    OutOfMemory {
        /// The table whose rows were being recovered.
        table: String,
    },
    /// The log has stopped for good. No acknowledged commit is lost.
    Stopped(String),
    /// The log was closed. No acknowledged commit is lost.
    Closed,
    /// The disk is full. Commits are refused until there is space again, and nothing is lost.
    Full {
        /// The directory that needs space.
        directory: PathBuf,
    },
    /// The disk is slower than the commits. This commit was refused and may be retried.
    Backlogged {
        /// Bytes that this writer has appended and that are not flushed yet.
        backlog_bytes: u64,
    },
}

impl LogError {
    /// Makes an [`LogError::Io`] of an error of the operating system, for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> LogError {
        let what = what.into();
        move |source| LogError::Io { what, source }
    }

    /// File and offset of damage; empty for other errors.
    pub(crate) fn place(&self) -> (PathBuf, u64) {
        match self {
            LogError::Corrupt { file, offset, .. } => (file.clone(), *offset),
            _ => Default::default(),
        }
    }

    /// A [`LogError::Corrupt`].
    pub fn corrupt(file: &Path, offset: u64, problem: impl Into<String>, advice: impl Into<String>) -> LogError {
        // Names that a file has may have line breaks, and a message is one line.
        let problem = problem.into().replace(char::is_control, "\u{FFFD}");
        LogError::Corrupt { file: file.to_owned(), offset, problem, advice: advice.into() }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io { what, source } => write!(f, "{what}: {source}"),
            LogError::Corrupt { file, offset, problem, advice } => {
                write!(f, "{} is damaged at byte {offset}: {problem}; {advice}", file.display())
            }
            LogError::Format { file, found, newest } => write!(
                f,
                "{} has format {found}; this program knows formats up to {newest}: open the database with a newer one",
                file.display()
            ),
            LogError::NotADatabase { directory, problem } => {
                write!(f, "cannot use {}: {problem}", directory.display())
            }
            LogError::Removed { path } => write!(
                f,
                "{} was removed while the database was open, and with it what was acknowledged: copy what the database \
                 still holds, close it, and restore a backup",
                path.display()
            ),
            LogError::Replaced { directory } => write!(
                f,
                "{} was moved while the database was open, and something else is there now: the database is in the \
                 directory that was moved; close it, and open the one that is meant",
                directory.display()
            ),
            LogError::Forked => f.write_str(seriatim_base::process::FORKED),
            LogError::OutOfMemory { table } => {
                write!(f, "the rows of table {table:?} do not fit into memory; raise the memory limit")
            }
            LogError::Stopped(reason) => write!(f, "the log has stopped: {reason}"),
            LogError::Closed => f.write_str("the database was closed: open it again"),
            LogError::Full { directory } => write!(
                f,
                "the disk of {} is full: commits are refused until there is space again; nothing is lost",
                directory.display()
            ),
            LogError::Backlogged { backlog_bytes } => {
                write!(f, "the disk is behind: {backlog_bytes} bytes of this writer's log wait for it; try again")
            }
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LogError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
