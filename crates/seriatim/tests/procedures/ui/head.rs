//! The head of a procedure.

use seriatim::{Abort, Tx, procedure};

#[procedure]
async fn waits(tx: &Tx) -> Result<(), Abort> {
    Ok(())
}

#[procedure]
fn generic<T>(tx: &Tx, value: T) -> Result<(), Abort> {
    Ok(())
}

#[procedure]
fn without_transaction(id: u32) -> Result<(), Abort> {
    Ok(())
}

#[procedure]
fn with_pattern(tx: &Tx, (a, b): (u32, u32)) -> Result<(), Abort> {
    Ok(())
}

#[procedure]
fn changes_arguments(tx: &Tx, list: &mut Vec<u32>) -> Result<(), Abort> {
    Ok(())
}

#[procedure]
fn without_result(tx: &Tx) {}

#[procedure]
fn with_other_error(tx: &Tx) -> Result<(), String> {
    Ok(())
}

#[procedure]
fn borrows(tx: &Tx) -> Result<&str, Abort> {
    Ok("")
}

#[procedure(quick)]
fn with_option(tx: &Tx) -> Result<(), Abort> {
    Ok(())
}

#[procedure]
#[inline]
fn with_attribute(tx: &Tx) -> Result<(), Abort> {
    Ok(())
}

#[procedure]
fn with_attribute_inside(tx: &Tx) -> Result<(), Abort> {
    #[cfg(test)]
    let x = 1;
    Ok(())
}

#[procedure]
fn with_attribute_of_an_argument(tx: &Tx, #[cfg(test)] x: u32) -> Result<(), Abort> {
    Ok(())
}

#[procedure(prefetch = true, prefetch = false)]
fn with_an_option_twice(tx: &Tx) -> Result<(), Abort> {
    Ok(())
}

fn main() {}
