//! Statements that procedures do not have.

use seriatim::{Abort, Tx, procedure};

#[procedure]
fn loops(tx: &Tx, list: &[u32]) -> Result<(), Abort> {
    while true {}
    loop {}
    'outer: for x in list {
        break 'outer;
    }
    break;
    for x in 1.. {}
    Ok(())
}

#[procedure]
fn blocks(tx: &Tx) -> Result<(), Abort> {
    unsafe {}
    {
        let inner = 1;
    }
    fn helper() {}
    println!("done");
    3 + 4;
    Ok(())
}

#[procedure]
fn assignments(tx: &Tx) -> Result<(), Abort> {
    let x = 1;
    x = 2;
    y = 3;
    let mut z = (1, 2);
    let alias = &mut z;
    *alias = 4;
    let w = z = (2, 1);
    Ok(())
}

#[procedure]
fn no_end(tx: &Tx) -> Result<u32, Abort> {
    let x = 1;
}

#[procedure]
fn other_end(tx: &Tx, x: u32) -> Result<u32, Abort> {
    if x > 1 { Ok(1) } else { x }
}

#[procedure]
fn else_goes_on(tx: &Tx, x: Option<u32>) -> Result<u32, Abort> {
    let Some(x) = x else {
        let y = 1;
    };
    Ok(x)
}

#[procedure]
fn chains(tx: &Tx, x: Option<u32>) -> Result<u32, Abort> {
    if let Some(x) = x && x > 2 {}
    Ok(1)
}

fn main() {}
