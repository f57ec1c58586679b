//! Additions are to columns that are not of the key, of types that can be added to.

use seriatim::{Abort, Handle, Table, Tx};

#[derive(Table)]
#[table(name = "stock", key(id))]
struct Stock {
    id: u32,
    sold: u32,
    price: Option<i64>,
    name: String,
}

fn additions(tx: &Tx, stock: &Handle<Stock>) -> Result<(), Abort> {
    tx.add(stock, &7, StockRow::ID, 1)?;
    tx.add(stock, &7, StockRow::NAME, String::new())?;
    // This is right.
    tx.add(stock, &7, StockRow::SOLD, 1)
}

fn main() {}
