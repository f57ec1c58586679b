//! Options of the multi-key microbenchmark and their command-line spelling.

use super::{KEYS, MultiKey};
use crate::Workload;
use crate::registry::{Misuse, Values};

/// Options of the multi-key microbenchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Rows, at least [`KEYS`].
    pub records: u64,
    /// Skew of the keys, in `[0, 1)`.
    pub theta: f64,
}

impl Default for Options {
    /// Figure 1a: a million records, no skew.
    fn default() -> Self {
        Options { records: 1_000_000, theta: 0.0 }
    }
}

/// The multi-key microbenchmark from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let records = values.number("records", KEYS as u64, 1 << 40)?;
    let theta = values.number("theta", 0.0, 0.999)?;
    Ok(Box::new(MultiKey::new(Options { records, theta })))
}
