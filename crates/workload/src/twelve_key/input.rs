//! Inputs of the transactions as plain data, and their generator.

use super::options::Options;
use seriatim::{Data, Rng};

/// Keys of a transaction; also those of a client on one partition.
pub const KEYS: usize = 12;

/// The key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct KeyLocation {
    /// The partition of the key.
    pub partition: u16,
    /// The client that owns the key.
    pub client: u16,
    /// Which of that client's keys there.
    pub number: u8,
}

impl KeyLocation {
    /// Whether other clients write this key too, where there are conflicts: the first key of the client that
    /// keeps to its partition.
    pub fn is_hot(&self) -> bool {
        self.client == self.partition && self.number == 0
    }
}

/// Input of either transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct KeysInput {
    /// The keys; all differ. On two partitions, the first half is on one and the second on the other.
    pub keys: [KeyLocation; KEYS],
    /// The partition that aborts, before it does anything.
    pub aborts_at: Option<u16>,
}

impl KeysInput {
    /// Whether the keys are on two partitions.
    pub fn is_multi(&self) -> bool {
        self.keys[0].partition != self.keys[KEYS - 1].partition
    }
}

/// Generates the inputs of one client.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    options: Options,
    client: u16,
}

impl Inputs {
    /// Inputs of this client that `rng` determines.
    pub fn new(rng: Rng, options: Options, client: u16) -> Inputs {
        Inputs { rng, options, client }
    }

    /// The next input.
    pub fn keys(&mut self) -> KeysInput {
        let Options { partitions, multi, conflict, abort, .. } = self.options;
        let (client, keeps_to_one) = (self.client, conflict > 0 && self.client < partitions);
        let one = if keeps_to_one { client } else { self.below(partitions) };
        let other = if self.rng.percent(multi.into()) { self.other_than(one) } else { one };
        let mut keys = std::array::from_fn(|at| {
            let partition = if at < KEYS / 2 { one } else { other };
            let number = if one == other { at } else { at % (KEYS / 2) };
            KeyLocation { partition, client, number: number as u8 }
        });
        if !keeps_to_one && self.rng.percent(conflict.into()) {
            let key = &mut keys[if self.rng.percent(50) { 0 } else { KEYS / 2 }];
            *key = KeyLocation { partition: key.partition, client: key.partition, number: 0 };
        }
        let aborting = if self.rng.percent(50) { one } else { other };
        let aborts_at = self.rng.percent(abort.into()).then_some(aborting);
        KeysInput { keys, aborts_at }
    }

    fn below(&mut self, bound: u16) -> u16 {
        self.rng.below(bound.into()) as u16
    }

    /// Another partition, any of them.
    fn other_than(&mut self, one: u16) -> u16 {
        let other = self.below(self.options.partitions - 1);
        if other < one { other } else { other + 1 }
    }
}
