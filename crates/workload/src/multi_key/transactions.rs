//! The transaction: ten updates.

use super::input::UpdateInput;
use super::schema::Tables;
use crate::Missing;
use seriatim::{Abort, Tx};

/// Adds the input's amount to each of its records; the sum of what they hold then, modulo 2^64.
///
/// # Errors
/// A conflict, or a record missing.
pub fn update(tx: &Tx, tables: &Tables, input: &UpdateInput) -> Result<u64, Abort> {
    let mut sum = 0u64;
    for key in &input.keys {
        let value = tx.update(&tables.record, key, |record| {
            let value = record.value().wrapping_add(input.amount);
            record.set_value(value);
            record.set_updates(record.updates() + 1);
            value
        })?;
        match value {
            Some(value) => sum = sum.wrapping_add(value),
            None => return Err(tx.abort(Missing("record"))),
        }
    }
    Ok(sum)
}
