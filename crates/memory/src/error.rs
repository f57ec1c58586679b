//! Errors of opening ([`Error`]) and of an allocation ([`OutOfMemory`]).

use std::fmt;

/// Why a [`Memory`](crate::Memory) could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// `workers_max` is zero or above [`Options::WORKERS_MAX`](crate::Options::WORKERS_MAX).
    Workers(usize),
    /// `prefault_bytes` is above `limit_bytes`.
    PrefaultAboveLimit {
        /// Bytes to touch beforehand.
        prefault: usize,
        /// Bytes that may be taken at all.
        limit: usize,
    },
    /// The operating system refused the memory to touch beforehand.
    OutOfMemory(OutOfMemory),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Workers(workers) => {
                write!(f, "workers_max is {workers}; it must be from 1 to {}", crate::Options::WORKERS_MAX)
            }
            Error::PrefaultAboveLimit { prefault, limit } => {
                write!(f, "cannot prefault {prefault} bytes under a limit of {limit}; raise the limit or prefault less")
            }
            Error::OutOfMemory(error) => write!(f, "cannot prefault: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::OutOfMemory(error) => Some(error),
            _ => None,
        }
    }
}

/// Memory was refused, by the configured limit or by the operating system. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory: the configured limit is reached or the operating system has no more")
    }
}

impl std::error::Error for OutOfMemory {}
