//! Options of the twelve-key microbenchmark and their command-line spelling.

use super::TwelveKey;
use crate::Workload;
use crate::registry::{Misuse, Values};

/// Rounds of a transaction on two partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// Each partition reads and writes its keys at once: a simple transaction.
    One,
    /// All reads, then writes that depend on them: a general transaction.
    Two,
}

/// Options of the twelve-key microbenchmark. Shares are in percent of the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Partitions, at least 1.
    pub partitions: u16,
    /// Clients with keys of their own, at least 1.
    pub clients: u16,
    /// On two partitions.
    pub multi: u8,
    /// With a hot key, of clients beyond the first of each partition.
    pub conflict: u8,
    /// Rolled back.
    pub abort: u8,
    /// Rounds of those on two partitions.
    pub rounds: Rounds,
}

impl Default for Options {
    /// Section 5.1: two partitions, forty clients; no transaction on both yet.
    fn default() -> Self {
        Options { partitions: 2, clients: 40, multi: 0, conflict: 0, abort: 0, rounds: Rounds::One }
    }
}

/// The twelve-key microbenchmark from the knobs of its registry entry.
///
/// # Errors
/// The first value that is no such thing, or two that contradict each other.
pub fn open(values: &Values) -> Result<Box<dyn Workload>, Misuse> {
    let partitions = values.number("partitions", 1, u16::MAX)?;
    let clients = values.number("clients", 1, u16::MAX)?;
    let multi = values.number("multi", 0, 100)?;
    if multi > 0 && partitions == 1 {
        return Err(Misuse::new("multi", values.text("multi")?, "0 where there is one partition"));
    }
    let conflict = values.number("conflict", 0, 100)?;
    if conflict > 0 && clients <= partitions {
        return Err(Misuse::new(
            "conflict",
            values.text("conflict")?,
            "0 unless there are more clients than partitions",
        ));
    }
    let rounds = match values.text("rounds")? {
        "1" => Rounds::One,
        "2" => Rounds::Two,
        other => return Err(Misuse::new("rounds", other, "1 or 2")),
    };
    let abort = values.number("abort", 0, 100)?;
    Ok(Box::new(TwelveKey::new(Options { partitions, clients, multi, conflict, abort, rounds })))
}
