//! Pure functions, and calls of others.

use seriatim::{Abort, Data, Tx, procedure, pure};

fn not_pure(x: u32) -> u32 {
    x
}

#[procedure]
fn calls(tx: &Tx, x: u32) -> Result<u32, Abort> {
    let y = not_pure(x);
    Ok(y)
}

fn main() {}
