//! Nothing is added to an immutable column.

use seriatim::{Abort, Handle, Table, Tx};

#[derive(Table)]
#[table(name = "stock", key(id))]
struct Stock {
    id: u32,
    #[column(immutable)]
    weight: u32,
    sold: u32,
}

fn additions(tx: &Tx, stock: &Handle<Stock>) -> Result<(), Abort> {
    tx.add(stock, &7, StockRow::WEIGHT, 1)?;
    // This is right.
    tx.add(stock, &7, StockRow::SOLD, 1)
}

fn main() {}
