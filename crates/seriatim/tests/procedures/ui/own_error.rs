//! The error of a procedure is one of its values.

use seriatim::{Abort, Tx, procedure};

#[derive(Debug)]
enum Refused {
    TooMuch,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too much")
    }
}

impl std::error::Error for Refused {}

#[procedure]
fn refuse(tx: &Tx, amount: u32) -> Result<u32, Abort> {
    if amount > 7 {
        return Err(tx.abort(Refused::TooMuch));
    }
    Ok(amount)
}

fn main() {}
