//! Only its sequence gives the values of a column, or the number of a row.

use seriatim::{Abort, Handle, Table, Tx};

#[derive(Table)]
#[table(name = "ticket", key(id))]
struct Ticket {
    #[column(identity(always))]
    id: u32,
    price: u32,
}

#[derive(Table)]
#[table(name = "line", without_key)]
struct Line {
    text: u32,
}

fn insert(tx: &Tx, tickets: &Handle<Ticket>, lines: &Handle<Line>) -> Result<(), Abort> {
    tx.insert(tickets, &Ticket { id: 7, price: 1 })?;
    tx.insert(lines, &Line { text: 1 })?;
    // This is right.
    tx.insert_new(tickets, |id| Ticket { id, price: 1 })?;
    tx.insert_overriding(tickets, &Ticket { id: 7, price: 1 })?;
    tx.append(lines, &Line { text: 1 }).map(drop)
}

fn main() {
    let _: fn(&Tx, &Handle<Ticket>, &Handle<Line>) -> Result<(), Abort> = insert;
}
