//! Options of the five-five microbenchmark and their command-line spelling.

use super::FiveFive;
use super::input::BLIND;
use crate::Workload;
use crate::registry::{Misuse, Values};

/// Options of the five-five microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Rows, [`Options::OBJECTS_MIN`] to [`Options::OBJECTS_MAX`].
    pub objects: u64,
    /// Skew of the objects, in `[0, 1)`.
    pub theta: f64,
}

impl Options {
    /// Objects of a transaction.
    pub const OBJECTS_MIN: u64 = 1 + 2 * BLIND as u64;
    /// Most objects: each terminal remembers eight bytes of each.
    pub const OBJECTS_MAX: u64 = 1 << 24;
}

impl Default for Options {
    /// A hundred thousand objects, theta 0.9.
    fn default() -> Self {
        Options { objects: 100_000, theta: 0.9 }
    }
}

/// The five-five microbenchmark from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let objects = values.number("objects", Options::OBJECTS_MIN, Options::OBJECTS_MAX)?;
    let theta = values.number("theta", 0.0, 0.999)?;
    Ok(Box::new(FiveFive::new(Options { objects, theta })))
}
