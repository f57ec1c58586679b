//! The transaction: five reads, then five writes.

use super::input::ReadWriteInput;
use super::schema::Tables;
use crate::Missing;
use seriatim::{Abort, Tx};

/// Reads five objects and writes five, one of them by what it read there; the sum of the values read, modulo 2^64.
///
/// # Errors
/// A conflict, or an object missing.
pub fn read_write(tx: &Tx, tables: &Tables, input: &ReadWriteInput) -> Result<u64, Abort> {
    let both = match tx.get(&tables.object, &input.both)? {
        Some(both) => both,
        None => return Err(tx.abort(Missing("object"))),
    };
    let steps = both.steps() + 1;
    let mut sum = both.value();
    for id in &input.reads {
        match tx.get(&tables.object, id)? {
            Some(object) => sum = sum.wrapping_add(object.value()),
            None => return Err(tx.abort(Missing("object"))),
        }
    }
    let written = tx.update(&tables.object, &input.both, |object| {
        object.set_steps(steps);
        object.set_value(input.value);
    })?;
    if written.is_none() {
        return Err(tx.abort(Missing("object")));
    }
    for id in &input.writes {
        let written = tx.update(&tables.object, id, |object| object.set_value(input.value))?;
        if written.is_none() {
            return Err(tx.abort(Missing("object")));
        }
    }
    Ok(sum)
}
