//! The transaction: five reads, then five writes.

use super::input::ReadWriteInput;
use super::schema::Object;
use crate::wrapping::wrapping_sum;
use seriatim::procedure::Procedures;
use seriatim::{Abort, Tx, procedure, procedures};

/// The one, to be registered.
pub fn procedures() -> Procedures {
    procedures![read_write]
}

/// Reads five objects and writes five, one of them by what it read there; the sum of the values read, modulo 2^64.
#[procedure]
pub fn read_write(tx: &Tx, input: &ReadWriteInput) -> Result<u64, Abort> {
    let both = tx.require::<Object>(input.both)?;
    let mut sum = both.value;
    for id in &input.reads {
        let object = tx.require::<Object>(*id)?;
        sum = wrapping_sum(sum, object.value);
    }
    let steps = both.steps + 1;
    tx.update::<Object>(input.both, |object| {
        object.steps = steps;
        object.value = input.value;
    })?;
    for id in &input.writes {
        tx.update::<Object>(*id, |object| object.value = input.value)?;
    }
    Ok(sum)
}
