//! A procedure of the simulated workload: what protocols that publish procedures in steps do in several.

use seriatim::{Abort, Table, Tx, procedure};

use super::script::{Change, Op};

/// The tables it is of, as they are numbered in [`KINDS`](super::schema::KINDS).
pub(crate) const TABLES: [usize; 2] = [0, 1];

#[derive(Table)]
#[table(name = "ledger", key(id), index(name = "groups", columns(desc(group))))]
#[table(index(name = "tag_hash", columns(tag), hash, unique))]
struct Ledger {
    id: u64,
    group: u16,
    tag: u32,
    #[column(immutable)]
    born: u32,
    amount: i64,
    note: Option<String>,
}

#[derive(Table)]
#[table(name = "till", key(id), hash, index(name = "group_lists", columns(group), hash))]
struct Till {
    id: u64,
    group: u16,
    tag: u32,
    #[column(immutable)]
    born: u32,
    amount: i64,
    note: Option<String>,
}

/// Takes an amount from a row, which changes its group, and adds it to a row of the other table, as far as there are such rows. To the latter it only adds.
#[procedure]
pub(crate) fn move_amount(tx: &Tx, from: u64, group: u16, to: u64, amount: i64) -> Result<(), Abort> {
    tx.update_if::<Ledger>(from, |row| {
        row.amount -= amount;
        row.group = group;
    })?;
    tx.update_if::<Till>(to, |row| row.amount += amount)?;
    Ok(())
}

/// The same as a program.
pub(crate) fn program(from: u32, group: u16, to: u32, amount: i64) -> Vec<Op> {
    let takes = Change { add: -amount, group: Some(group), ..Change::default() };
    vec![Op::Update(TABLES[0], from, takes), Op::Update(TABLES[1], to, Change { add: amount, ..Change::default() })]
}
