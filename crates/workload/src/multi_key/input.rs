//! Inputs of the transaction as plain data, and their generator.

use super::options::Options;
use crate::random::Zipfian;
use seriatim::{Data, Rng};

/// Records that a transaction updates (figure 1).
pub const KEYS: usize = 10;

/// Input of the update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct UpdateInput {
    /// The records; all differ.
    pub keys: [u64; KEYS],
    /// What is added to each.
    pub amount: u64,
}

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    keys: Zipfian,
}

impl Inputs {
    /// Inputs that `rng` determines.
    ///
    /// # Panics
    /// If there are no records, or theta is outside `[0, 1)`.
    pub fn new(rng: Rng, options: &Options) -> Inputs {
        Inputs { rng, keys: Zipfian::new(options.records, options.theta) }
    }

    /// The next input.
    pub fn update(&mut self) -> UpdateInput {
        UpdateInput { keys: self.keys.draw_distinct(&mut self.rng), amount: self.rng.next_u64() }
    }
}
