//! Patterns that procedures do not have.

use seriatim::{Abort, Tx, procedure};

#[procedure]
fn all(tx: &Tx, x: Option<(u32, u32)>, list: &[u32], y: u32) -> Result<u32, Abort> {
    match x {
        whole @ Some(_) => {}
        Some((first, ..)) => {}
        Some((ref first, second)) => {}
        Ok(value) => {}
        None => {}
    }
    match list {
        [first, second] => {}
        _ => {}
    }
    match y {
        5.. => {}
        1.5 => {}
        'c' => {}
        a | b => {}
        _ => {}
    }
    Ok(1)
}

fn main() {}
