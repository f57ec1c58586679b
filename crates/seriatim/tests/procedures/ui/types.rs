//! Arguments and results are `Data`.

use seriatim::{Abort, Tx, procedure};

struct Point {
    x: u32,
}

#[procedure]
fn moves(tx: &Tx, point: &Point) -> Result<u32, Abort> {
    Ok(point.x)
}

fn main() {}
