//! Operations: how they are written and where they stand.

use seriatim::{Abort, Table, Tx, procedure};

#[derive(Table)]
#[table(name = "item", key(id))]
struct Item {
    id: u32,
    price: u32,
}

#[procedure]
fn inside_an_expression(tx: &Tx) -> Result<u32, Abort> {
    let price = tx.require::<Item>(1)?.price;
    let more = 1 + tx.scan::<Item>(..).count()?;
    Ok(price)
}

#[procedure]
fn without_question_mark(tx: &Tx) -> Result<(), Abort> {
    let item = tx.get::<Item>(1);
    tx.insert(Item { id: 1, price: 1 })
}

#[procedure]
fn without_table(tx: &Tx) -> Result<(), Abort> {
    tx.delete(1)?;
    Ok(())
}

#[procedure]
fn without_key(tx: &Tx) -> Result<(), Abort> {
    tx.delete::<Item>()?;
    Ok(())
}

#[procedure]
fn whether_there_was_a_row_is_dropped(tx: &Tx) -> Result<(), Abort> {
    tx.update_if::<Item>(1, |item| item.price += 1)?;
    if true {
        tx.delete_if::<Item>(1)?;
    }
    let _ = tx.delete_if::<Item>(1)?;
    Ok(())
}

#[procedure]
fn unknown(tx: &Tx) -> Result<(), Abort> {
    tx.fetch(Item { id: 1, price: 1 })?;
    Ok(())
}

#[procedure]
fn operations_of_closures(tx: &Tx) -> Result<(), Abort> {
    tx.upsert(Item { id: 1, price: 1 }, |item| item.price += 1)?;
    tx.put(Item { id: 1, price: 1 })?;
    let is_new = tx.try_insert(Item { id: 1, price: 1 })?;
    tx.add::<Item>(1, Item::PRICE, 1)?;
    let price = tx.add_and_get::<Item>(1, Item::PRICE, 1)?;
    let count = tx.delete_range::<Item>(1..3)?;
    let items = tx.get_many::<Item>([1, 2])?;
    Ok(())
}

#[procedure]
fn answers_that_are_not_used(tx: &Tx) -> Result<(), Abort> {
    tx.exists::<Item>(1)?;
    let there = tx.exists::<Item>(1);
    let both = tx.exists::<Item>(1)? && tx.exists::<Item>(2)?;
    if tx.exists::<Item>()? {}
    Ok(())
}

#[procedure]
fn whole_tables(tx: &Tx) -> Result<(), Abort> {
    let rows = tx.scan_all::<Item>()?;
    let rows = tx.scan_all::<Item>().rev().all()?;
    let rows = tx.scan_all::<Item>(..).all()?;
    for row in tx.count_all::<Item>()? {}
    let first = tx.first::<Item>(3)?;
    let last = tx.last_by::<Item>(..)?;
    Ok(())
}

#[procedure]
fn row_from_elsewhere(tx: &Tx) -> Result<(), Abort> {
    let item = Item { id: 1, price: 1 };
    tx.insert(item)?;
    tx.insert(&Item { id: 1, price: 1 })?;
    Ok(())
}

#[procedure]
fn scans(tx: &Tx) -> Result<(), Abort> {
    let rows = tx.scan::<Item>(..)?;
    let rows = tx.scan::<Item>(3).all()?;
    for row in tx.scan::<Item>(..).all()? {}
    for row in tx.get::<Item>(1)? {}
    let rows = tx.scan::<Item>(..).limit(3).rev().all()?;
    let rows = tx.scan::<Item>(..).map(price).all()?;
    let first = tx.scan::<Item>(..).first().price?;
    Ok(())
}

#[procedure]
fn abort_as_a_statement(tx: &Tx) -> Result<(), Abort> {
    tx.abort("no");
    Ok(())
}

#[procedure]
fn abort_without_transaction(tx: &Tx) -> Result<(), Abort> {
    return Err("no");
}

#[procedure]
fn passed_on(tx: &Tx) -> Result<(), Abort> {
    help(tx, 3);
    let found = help(tx, 3);
    Ok(())
}

fn main() {}
