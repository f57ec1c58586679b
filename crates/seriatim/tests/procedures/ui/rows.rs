//! Rows are used column by column.

use seriatim::{Abort, Table, Tx, procedure};

#[derive(Table)]
#[table(name = "item", key(id))]
struct Item {
    id: u32,
    price: u32,
}

#[procedure]
fn moved(tx: &Tx) -> Result<u32, Abort> {
    let item = tx.require::<Item>(1)?;
    let cost = price(item);
    Ok(item)
}

#[procedure]
fn perhaps_missing(tx: &Tx) -> Result<u32, Abort> {
    let item = tx.get::<Item>(1)?;
    Ok(item.price)
}

#[procedure]
fn many(tx: &Tx) -> Result<u32, Abort> {
    let items = tx.scan::<Item>(..).all()?;
    Ok(items.price)
}

#[procedure]
fn assigned_outside(tx: &Tx) -> Result<(), Abort> {
    let mut item = tx.require::<Item>(1)?;
    let other = tx.require::<Item>(2)?;
    other.price = 3;
    Ok(())
}

#[procedure]
fn changes(tx: &Tx) -> Result<(), Abort> {
    let mut sum = 0;
    tx.update::<Item>(1, |item| sum += item.price)?;
    tx.update::<Item>(1, |item| {
        let other = tx.require::<Item>(2)?;
        item.price = 1;
    })?;
    tx.update::<Item>(1, |item| return 3)?;
    tx.update::<Item>(1, |item| item)?;
    tx.update::<Item>(1, |item: &mut Item| item.price = 3)?;
    tx.update::<Item>(1, move |item| item.price = 3)?;
    tx.update::<Item>(1, change)?;
    tx.update::<Item>(1, |item| item.price.part = 3)?;
    Ok(())
}

fn main() {}
