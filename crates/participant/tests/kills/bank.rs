//! Accounts, the procedures on them, and their databases.

use std::sync::Arc;

use seriatim::procedure::divided::{BOOKS, Divided};
use seriatim::{Abort, Builder, Data, Database, Durability, SchemaError, Table, Tx, Value, procedure, procedures};
use seriatim_base::disk::FaultyDisk;
use seriatim_participant::Participant;
use seriatim_partition::PartitionId;

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "account", key(id), ordered)]
pub(crate) struct Account {
    pub(crate) id: u32,
    pub(crate) sum: i64,
    pub(crate) seen: i64,
    pub(crate) slot: Option<u32>,
}

/// The mark that a call leaves at each of its accounts.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "mark", key(account, client, number), cluster(account, client))]
pub(crate) struct Mark {
    pub(crate) account: u32,
    pub(crate) client: u32,
    pub(crate) number: u32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "slot", key(account, at), ordered)]
pub(crate) struct Slot {
    pub(crate) account: u32,
    pub(crate) at: u32,
    pub(crate) count: u32,
}

/// The client that last changed the replicated row.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "latest", key(id), replicated, ordered)]
pub(crate) struct Latest {
    pub(crate) id: u32,
    pub(crate) client: u32,
    pub(crate) number: u32,
}

/// Moves an amount, in one round. Whether there was enough, only one of the two partitions knows; both have
/// done their part.
#[procedure]
pub(crate) fn transfer(tx: &Tx, client: u32, number: u32, from: u32, to: u32, amount: i64) -> Result<(), Abort> {
    tx.insert(Mark { account: from, client, number })?;
    if from != to {
        tx.insert(Mark { account: to, client, number })?;
    }
    let left = tx.update::<Account>(from, |account| {
        account.sum -= amount;
        account.sum
    })?;
    tx.update::<Account>(to, |account| account.sum += amount)?;
    if left < 0 {
        return Err(tx.abort("not enough"));
    }
    Ok(())
}

/// Tells one account what another has, in two rounds.
#[procedure]
pub(crate) fn tell(tx: &Tx, client: u32, number: u32, from: u32, to: u32) -> Result<i64, Abort> {
    tx.insert(Mark { account: from, client, number })?;
    let row = tx.require::<Account>(from)?;
    let sum = row.sum;
    tx.update::<Account>(to, |account| account.seen = sum)?;
    if from != to {
        tx.insert(Mark { account: to, client, number })?;
    }
    Ok(sum)
}

/// Tells two accounts what the other has: two rounds, with something to do for each account in both.
#[procedure]
pub(crate) fn swap(tx: &Tx, client: u32, number: u32, from: u32, to: u32) -> Result<(), Abort> {
    tx.insert(Mark { account: from, client, number })?;
    if from != to {
        tx.insert(Mark { account: to, client, number })?;
    }
    let row = tx.require::<Account>(from)?;
    let here = row.sum;
    let other = tx.require::<Account>(to)?;
    let there = other.sum;
    tx.update::<Account>(from, |account| account.seen = there)?;
    tx.update::<Account>(to, |account| account.seen = here)?;
    Ok(())
}

/// Changes what every partition has.
#[procedure]
pub(crate) fn sign(tx: &Tx, client: u32, number: u32, account: u32) -> Result<(), Abort> {
    tx.insert(Mark { account, client, number })?;
    tx.update::<Latest>(0, |latest| {
        latest.client = client;
        latest.number = number;
    })?;
    Ok(())
}

/// Inserts a row where there is none, and deletes it where there is one.
#[procedure]
pub(crate) fn toggle(tx: &Tx, client: u32, number: u32, account: u32, at: u32) -> Result<bool, Abort> {
    tx.insert(Mark { account, client, number })?;
    let gone = tx.delete_if::<Slot>((account, at))?;
    if !gone {
        tx.insert(Slot { account, at, count: number })?;
    }
    tx.update::<Account>(account, |row| row.slot = Some(at))?;
    Ok(gone)
}

/// An account of an audit.
#[derive(Data, Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) id: u32,
}

/// The sum of accounts.
#[procedure]
pub(crate) fn audit(tx: &Tx, accounts: &[Wanted]) -> Result<i64, Abort> {
    let mut total = 0_i64;
    for wanted in accounts {
        let row = tx.require::<Account>(wanted.id)?;
        total += row.sum;
    }
    Ok(total)
}

pub(crate) const PARTITIONS: u32 = 3;
pub(crate) const ACCOUNTS: u32 = 7;
pub(crate) const CLIENTS: u32 = 5;
pub(crate) const SUM: i64 = 60;

fn builder() -> Builder {
    Database::builder().partitions(PARTITIONS as usize).workers(2).step_helpers(true)
}

/// On a disk, whose operations may all fail.
pub(crate) fn on(disk: &FaultyDisk) -> Builder {
    let builder = builder().path("/db").disk(Arc::new(disk.mount())).segment_bytes(16 << 10);
    builder.durability(Durability::Async).log_buffer_bytes(256).checkpoint_bytes(None)
}

fn declare(db: &Database) -> Result<(), SchemaError> {
    db.create_or_open::<Account>()?;
    db.create_or_open::<Mark>()?;
    db.create_or_open::<Slot>()?;
    db.create_or_open::<Latest>()?;
    db.register(procedures![transfer, tell, swap, sign, toggle, audit]).expect("sound procedures");
    Ok(())
}

/// The procedures in a database in memory.
pub(crate) fn divided() -> Divided {
    let db = builder().open().expect("a valid number");
    declare(&db).expect("valid tables");
    db.divide().expect("all can be divided")
}

/// The procedures in a database on disk; none if the disk fails.
pub(crate) fn divided_on(disk: &FaultyDisk) -> Option<Divided> {
    let db = on(disk).open().ok()?;
    declare(&db).ok()?;
    Some(db.divide().expect("all can be divided"))
}

pub(crate) fn loaded() -> Database {
    let db = builder().open().expect("a valid number");
    declare(&db).expect("valid tables");
    let accounts = db.table::<Account>().expect("it is there");
    let account = |id| Account { id, sum: SUM, seen: 0, slot: None };
    let latest = db.table::<Latest>().expect("it is there");
    let load = db.session().transact(|tx| {
        tx.insert(&latest, &Latest { id: 0, client: CLIENTS, number: 0 })?;
        (0..ACCOUNTS).try_for_each(|id| tx.insert(&accounts, &account(id)))
    });
    load.expect("it runs alone");
    db
}

pub(crate) fn partition(whole: &Database, id: u32) -> Participant {
    let divided = divided();
    divided.fill(whole, id as usize).expect("an empty database");
    let digest = divided.digest();
    Participant::new(divided, PartitionId(id), digest, true).expect("its own procedures")
}

pub(crate) fn partitions() -> impl Iterator<Item = PartitionId> {
    (0..PARTITIONS).map(PartitionId)
}

/// All rows that are data.
pub(crate) fn contents(db: &Database) -> Vec<String> {
    let mut all = Vec::new();
    for name in db.table_names().into_iter().filter(|name| !name.starts_with(BOOKS)) {
        let table = db.open_dyn(&name).expect("it is listed");
        let rows = db.session().transact(|tx| {
            let shown = |values: Vec<Value>| values.iter().map(|value| format!(" {value}")).collect::<String>();
            let rows = tx.scan_dyn(&table, &[])?.map(|row| Ok(format!("{name}{}", shown(row?.values()))));
            rows.collect::<Result<Vec<_>, Abort>>()
        });
        all.extend(rows.expect("it runs alone").into_value());
    }
    all
}
