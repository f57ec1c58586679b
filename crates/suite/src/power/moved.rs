//! Procedures of the simulated workload, which protocols that publish procedures in steps run in several, or
//! later.

use seriatim::procedure::Procedures;
use seriatim::{Abort, Table, Tx, procedure, procedures};

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

/// Takes an amount from a row, which changes its group, and adds it to a row of the other table, if these rows
/// exist. To the latter it only adds.
#[procedure]
pub(crate) fn move_amount(tx: &Tx, from: u64, group: u16, to: u64, amount: i64) -> Result<(), Abort> {
    let _ = tx.update_if::<Ledger>(from, |row| {
        row.amount -= amount;
        row.group = group;
    })?;
    let _ = tx.update_if::<Till>(to, |row| row.amount += amount)?;
    Ok(())
}

/// Sets what [`move_amount`] adds to, so that this may be published later.
#[procedure]
pub(crate) fn set_amount(tx: &Tx, to: u64, amount: i64) -> Result<(), Abort> {
    let _ = tx.update_if::<Till>(to, |row| row.amount = amount)?;
    Ok(())
}

/// The procedures: the second only where something is to be deferred, since it has the first published in one
/// step elsewhere.
pub(crate) fn all(defers: bool) -> Procedures {
    if defers { procedures![move_amount, set_amount] } else { procedures![move_amount] }
}

/// The first as a program, of which the last operation may be deferred.
pub(crate) fn program(from: u32, group: u16, to: u32, amount: i64) -> Vec<Op> {
    let takes = Change { add: -amount, group: Some(group), ..Change::default() };
    vec![Op::Update(TABLES[0], from, takes), Op::Update(TABLES[1], to, Change { add: amount, ..Change::default() })]
}

/// The second.
pub(crate) fn setting(to: u32, amount: i64) -> Vec<Op> {
    vec![Op::Update(TABLES[1], to, Change { set: Some(amount), ..Change::default() })]
}
