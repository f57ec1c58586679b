//! The transactions: twelve keys read and updated, in one round or in two.

use std::error::Error;
use std::fmt;

use super::input::{KEYS, KeysInput};
use super::schema::Cell;
use crate::wrapping::wrapping_sum;
use seriatim::procedure::Procedures;
use seriatim::{Abort, Data, Tx, procedure, procedures};

/// Both, to be registered as one set.
pub fn procedures() -> Procedures {
    procedures![one_round, two_rounds]
}

/// The transaction was chosen to abort: a rollback that the workload asks for.
#[derive(Clone, Copy, Debug, Data)]
pub struct GivenUp;

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the transaction was chosen to abort")
    }
}

impl Error for GivenUp {}

/// The result of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct KeysOutput {
    /// The values before the update, in the order of the input's keys.
    pub values: [u64; KEYS],
}

/// Updates each key by its old value: the work at one partition needs nothing of another. Aborts with
/// [`GivenUp`] where the input says so.
#[procedure]
pub fn one_round(tx: &Tx, input: &KeysInput) -> Result<KeysOutput, Abort> {
    let mut values = [0u64; KEYS];
    for (at, key) in input.keys.iter().enumerate() {
        if input.aborts_at == Some(key.partition) {
            return Err(tx.abort(GivenUp));
        }
        let value = tx.update::<Cell>((key.partition, key.client, key.number), |cell| {
            let value = cell.value;
            cell.value += 1;
            value
        })?;
        values[at] = value;
    }
    Ok(KeysOutput { values })
}

/// Reads every key, then updates each by the values read there and everywhere. Aborts with [`GivenUp`] where
/// the input says so.
#[procedure]
pub fn two_rounds(tx: &Tx, input: &KeysInput) -> Result<KeysOutput, Abort> {
    let mut values = [0u64; KEYS];
    let mut sum = 0u64;
    for (at, key) in input.keys.iter().enumerate() {
        if input.aborts_at == Some(key.partition) {
            return Err(tx.abort(GivenUp));
        }
        let cell = tx.require::<Cell>((key.partition, key.client, key.number))?;
        values[at] = cell.value;
        sum = wrapping_sum(sum, cell.value);
    }
    for (at, key) in input.keys.iter().enumerate() {
        let value = values[at] + 1;
        tx.update::<Cell>((key.partition, key.client, key.number), |cell| {
            cell.value = value;
            cell.sum = sum;
        })?;
    }
    Ok(KeysOutput { values })
}
