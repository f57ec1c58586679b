//! The transaction: ten updates.

use super::input::UpdateInput;
use super::schema::Record;
use crate::wrapping::wrapping_sum;
use seriatim::procedure::Procedures;
use seriatim::{Abort, Tx, procedure, procedures};

/// The one, to be registered.
pub fn procedures() -> Procedures {
    procedures![update]
}

/// Adds the input's amount to each of its records; the sum of what they hold then, modulo 2^64.
#[procedure]
pub fn update(tx: &Tx, input: &UpdateInput) -> Result<u64, Abort> {
    let mut sum = 0u64;
    for key in &input.keys {
        let value = tx.update::<Record>(*key, |record| {
            record.value = wrapping_sum(record.value, input.amount);
            record.updates += 1;
            record.value
        })?;
        sum = wrapping_sum(sum, value);
    }
    Ok(sum)
}
