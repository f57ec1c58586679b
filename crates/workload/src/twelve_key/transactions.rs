//! The transactions: twelve keys read and updated, in one round or in two.

use std::error::Error;
use std::fmt;

use super::input::{KEYS, KeysInput};
use super::schema::Tables;
use crate::Missing;
use seriatim::{Abort, Tx};

/// The transaction was chosen to abort: a rollback that the workload asks for.
#[derive(Clone, Copy, Debug)]
pub struct GivenUp;

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the transaction was chosen to abort")
    }
}

impl Error for GivenUp {}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeysOutput {
    /// The values before the update, in the order of the input's keys.
    pub values: [u64; KEYS],
}

/// Updates each key by what it held: what is done at one partition needs nothing of another.
///
/// # Errors
/// A conflict, [`GivenUp`] where the input says so, or a row missing.
pub fn one_round(tx: &Tx, tables: &Tables, input: &KeysInput) -> Result<KeysOutput, Abort> {
    let mut output = KeysOutput::default();
    for (at, key) in input.keys.iter().enumerate() {
        if input.aborts_at == Some(key.partition) {
            return Err(tx.abort(GivenUp));
        }
        let value = tx.update(&tables.cell, &(key.partition, key.client, key.number), |cell| {
            let value = cell.value();
            cell.set_value(value + 1);
            value
        })?;
        match value {
            Some(value) => output.values[at] = value,
            None => return Err(tx.abort(Missing("cell"))),
        }
    }
    Ok(output)
}

/// Reads every key, then updates each by what was read there and everywhere.
///
/// # Errors
/// A conflict, [`GivenUp`] where the input says so, or a row missing.
pub fn two_rounds(tx: &Tx, tables: &Tables, input: &KeysInput) -> Result<KeysOutput, Abort> {
    let mut output = KeysOutput::default();
    let mut sum = 0u64;
    for (at, key) in input.keys.iter().enumerate() {
        if input.aborts_at == Some(key.partition) {
            return Err(tx.abort(GivenUp));
        }
        match tx.get(&tables.cell, &(key.partition, key.client, key.number))? {
            Some(cell) => {
                output.values[at] = cell.value();
                sum = sum.wrapping_add(cell.value());
            }
            None => return Err(tx.abort(Missing("cell"))),
        }
    }
    for (at, key) in input.keys.iter().enumerate() {
        let value = output.values[at] + 1;
        let written = tx.update(&tables.cell, &(key.partition, key.client, key.number), |cell| {
            cell.set_value(value);
            cell.set_sum(sum);
        })?;
        if written.is_none() {
            return Err(tx.abort(Missing("cell")));
        }
    }
    Ok(output)
}
