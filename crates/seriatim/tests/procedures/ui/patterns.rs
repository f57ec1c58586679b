//! Patterns that procedures do not have.

use seriatim::{Abort, Tx, procedure};

#[procedure]
fn all(tx: &Tx, x: Option<(u32, u32)>, list: &[u32], y: u32) -> Result<u32, Abort> {
    let z = matches!(x, whole @ Some(_));
    let z = matches!(x, Some((first, ..)));
    let z = matches!(x, Some((ref first, second)));
    let z = matches!(x, Ok(value));
    let z = matches!(list, [first, second]);
    let z = matches!(y, 5..);
    let z = matches!(y, 1.5);
    let z = matches!(y, 'c');
    let z = matches!(y, a | b);
    let (a, ..) = (1, 2);
    Ok(1)
}

fn main() {}
