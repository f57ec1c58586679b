//! Inputs of the transaction as plain data, and their generator.

use super::options::Options;
use crate::random::Zipfian;
use seriatim::{Data, Rng};

/// Objects that are only read, and as many that are only written.
pub const BLIND: usize = 4;

/// Input of the transaction. All objects differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct ReadWriteInput {
    /// The object read and written.
    pub both: u64,
    /// Objects read.
    pub reads: [u64; BLIND],
    /// Objects written.
    pub writes: [u64; BLIND],
    /// What is written; unlike that of any other input, and not zero.
    pub value: u64,
}

/// Values that one terminal writes: its number, counting from 1, in the upper bits; in the lower ones 1, 2, 3, ….
#[derive(Clone, Copy, Debug)]
pub struct Values {
    last: u64,
}

impl Values {
    const SEQUENCE_BITS: u32 = 44;

    /// The values of the `number`-th terminal, counting from 0.
    pub fn of_terminal(number: usize) -> Values {
        Values { last: (number as u64 + 1) << Self::SEQUENCE_BITS }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    objects: Zipfian,
    values: Values,
}

impl Inputs {
    /// Inputs that `rng` determines, with these values.
    ///
    /// # Panics
    /// If there are no objects, or theta is outside `[0, 1)`.
    pub fn new(rng: Rng, options: &Options, values: Values) -> Inputs {
        Inputs { rng, objects: Zipfian::new(options.objects, options.theta), values }
    }

    /// The next input.
    pub fn read_write(&mut self) -> ReadWriteInput {
        // Which draws are the reads and which the writes must not depend on the order: later ones are colder, since they
        // differ from the earlier.
        let mut drawn = self.objects.draw_distinct::<{ 1 + 2 * BLIND }>(&mut self.rng);
        self.rng.shuffle(&mut drawn);
        ReadWriteInput {
            both: drawn[0],
            reads: std::array::from_fn(|at| drawn[1 + at]),
            writes: std::array::from_fn(|at| drawn[1 + BLIND + at]),
            value: self.values.next(),
        }
    }
}
