//! Rows that refer to each other, with numbers of sequences, beside a thread that creates and drops such tables.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use seriatim::catalog::{ColumnDef, ColumnType, Identity, ReferenceDef, SequenceDef, TableDef};
use seriatim::{Abort, Database, Durability, OpenError, SchemaError, TransactError, Tx, thread};

use super::{Canary, IDENTITIES, NUMBERS, OUTSTANDING, Oracle, THREADS, builder};
use crate::linked::{
    self, AMOUNT_END, CASCADED, CHILDREN, CHOSEN, CLEARED, DEFERRED, Given, Judge, RESTRICTED, Rows, Tables,
};
use crate::said;

/// The owners of each thread that are kept. Rows whose owner is NULL are kept as long again.
const KEPT: u64 = 10;

/// Every so many transactions of a thread, it tries what must be refused.
const REFUSED_EVERY: u64 = 8;

/// Tables that come and go.
const BRIEF: [&str; 2] = ["brief_owner", "brief"];

/// A sequence that comes and goes with them.
const BRIEF_NUMBERS: &str = "brief_numbers";

/// The key of a thread's transaction.
fn key(thread: u32, number: u64) -> u64 {
    u64::from(thread) << 32 | number
}

/// Creates the tables, if they are not there, and plants a fault.
pub(super) fn prepare(db: &Database, canary: Canary) -> Result<(), String> {
    if Tables::open(db)?.is_none() {
        linked::create(db).map_err(said)?;
    }
    if let Canary::Planted(planted) = canary {
        planted.plant(db)?;
    }
    Ok(())
}

/// What a thread does until it is over.
pub(super) fn work(
    db: &Database,
    (mode, canary): (Durability, Canary),
    thread: u32,
    tell: &dyn Fn(u32, u64),
    stops: &dyn Fn() -> bool,
) -> Result<(), String> {
    if thread == THREADS {
        return create_and_drop(db, stops);
    }
    let tables = Tables::open(db)?.ok_or("the tables are not there")?;
    let mut session = db.session();
    let rows = session.snapshot(|tx| tables.rows(tx)).map_err(said)?.into_value();
    let mut number = numbers(&rows).get(&thread).copied().unwrap_or(0);
    let mut outstanding = VecDeque::new();
    let refuses = canary == Canary::None;
    while !stops() {
        number += 1;
        let mut given = Vec::new();
        let pending = session.submit(|tx| turn(tx, &tables, thread, number, &mut given));
        for given in given {
            match given {
                Given::Number(number) => tell(NUMBERS, number as u64),
                Given::Identity(id) => tell(IDENTITIES, id as u64),
            }
        }
        outstanding.push_back((number, pending));
        if mode == Durability::Sync || outstanding.len() > OUTSTANDING {
            let Some((number, pending)) = outstanding.pop_front() else { continue };
            pending.wait().map_err(said)?;
            tell(thread, number);
        }
        if refuses && number.is_multiple_of(REFUSED_EVERY) {
            let absent = session.transact(|tx| tables.refer(tx, RESTRICTED, key(thread, 0), -1));
            let held = session.transact(|tx| {
                let owner = tables.owner(tx, RESTRICTED, key(thread, number))?.unwrap_or(0);
                tables.release(tx, owner)
            });
            let broken = session.transact(|tx| tables.own(tx, None, key(thread, 0), AMOUNT_END));
            let is_refused = matches!(absent, Err(TransactError::ForeignKey { .. }))
                && matches!(held, Err(TransactError::ForeignKey { .. }))
                && matches!(broken, Err(TransactError::Check { .. }));
            if !is_refused {
                return Err(format!("not each is refused: {absent:?}, {held:?}, {broken:?}"));
            }
        }
    }
    Ok(())
}

/// A transaction: an owner comes with rows, and one that came [`KEPT`] transactions before goes.
fn turn(tx: &Tx, tables: &Tables, thread: u32, number: u64, given: &mut Vec<Given>) -> Result<(), Abort> {
    let (key, next) = (|number| key(thread, number), tx.next(&tables.numbers)?);
    given.push(Given::Number(next));
    let owner = match number % 2 {
        0 => {
            let id = tables.own(tx, None, key(number), 0)?;
            given.push(Given::Identity(id));
            tables.refer(tx, DEFERRED, key(number), id)?;
            id
        }
        _ => {
            tables.refer(tx, DEFERRED, key(number), CHOSEN + next)?;
            tables.own(tx, Some(CHOSEN + next), key(number), 0)?
        }
    };
    for child in [RESTRICTED, CASCADED, CLEARED] {
        tables.refer(tx, child, key(number), owner)?;
    }
    if let Some(old) = number.checked_sub(KEPT).map(key)
        && let Some(owner) = tables.owner(tx, CLEARED, old)?
    {
        tables.remove(tx, RESTRICTED, old)?;
        tables.release(tx, owner)?;
        tables.remove(tx, DEFERRED, old)?;
    }
    number.checked_sub(2 * KEPT).map_or(Ok(()), |old| tables.remove(tx, CLEARED, key(old)))
}

/// Creates tables of which one refers to the other, with a sequence, and drops them.
fn create_and_drop(db: &Database, stops: &dyn Fn() -> bool) -> Result<(), String> {
    let column = |name: &'static str| ColumnDef::new(name, ColumnType::I64);
    while !stops() {
        let id = column("id").identity(Identity::always());
        let owner = TableDef::builder(BRIEF[0]).column(id).key(["id"]).finish().map_err(said)?;
        let table = TableDef::builder(BRIEF[1]).column(column("id")).column(column("owner")).key(["id"]);
        let table = table.reference(ReferenceDef::new(["owner"], BRIEF[0])).finish().map_err(said)?;
        let steps = match db.open_dyn(BRIEF[0]) {
            Ok(_) => db.migration().drop_table(BRIEF[1]).drop_table(BRIEF[0]).drop_sequence(BRIEF_NUMBERS),
            Err(_) => db.migration().create_sequence(SequenceDef::new(BRIEF_NUMBERS)).create(owner).create(table),
        };
        match steps.run() {
            Ok(_) => thread::sleep(Duration::from_millis(2)),
            Err(SchemaError::Busy | SchemaError::WorkersBusy) => {}
            Err(SchemaError::Transact(error)) if error.is_retryable() => {}
            Err(error) => return Err(said(error)),
        }
    }
    Ok(())
}

/// The last transaction of each thread.
fn numbers(rows: &Rows) -> BTreeMap<u32, u64> {
    let mut last = BTreeMap::new();
    for (key, _) in rows.owners.values() {
        let last = last.entry((key >> 32) as u32).or_default();
        *last = (key & 0xFFFF_FFFF).max(*last);
    }
    last
}

/// Knows what must be there.
#[derive(Default)]
pub(super) struct Links {
    acknowledged: BTreeMap<u32, u64>,
    judge: Judge,
    fault: Option<String>,
}

impl Links {
    fn give(&mut self, given: Given) {
        let fault = self.judge.give(given).err();
        self.fault = self.fault.take().or(fault);
    }
}

impl Oracle for Links {
    fn told(&mut self, thread: u32, number: u64) {
        match thread {
            NUMBERS => self.give(Given::Number(number as i64)),
            IDENTITIES => self.give(Given::Identity(number as i64)),
            _ => {
                let known = self.acknowledged.entry(thread).or_default();
                *known = number.max(*known);
            }
        }
    }

    fn verify(&mut self, directory: &Path, protocol: &str) -> Result<u64, String> {
        let db = match builder(protocol).path(directory).open() {
            Ok(db) => db,
            Err(OpenError::NoDatabase { .. }) if self.acknowledged.is_empty() => return Ok(0),
            Err(error) => return Err(format!("it does not open: {error}")),
        };
        let Some(tables) = Tables::open(&db)? else {
            return if self.acknowledged.is_empty() { Ok(0) } else { Err("the tables are lost".to_owned()) };
        };
        let rows = db.session().snapshot(|tx| tables.rows(tx)).map_err(said)?.into_value();
        rows.check()?;
        let there = numbers(&rows);
        for (thread, acknowledged) in &self.acknowledged {
            let there = there.get(thread).copied().unwrap_or(0);
            if there < *acknowledged {
                return Err(format!(
                    "{acknowledged} transactions of thread {thread} were acknowledged: {there} are there"
                ));
            }
        }
        compare(&rows, &there)?;
        let brief = BRIEF.map(|name| db.open_dyn(name).is_ok());
        if brief[0] != brief[1] || brief[0] != db.sequence(BRIEF_NUMBERS).is_ok() {
            return Err(format!("tables of one migration: {brief:?}"));
        }
        db.check_structure()?;
        db.check_indexes()?;
        self.judge.check(&tables)?;
        self.give(Given::Number(tables.numbers.next().map_err(said)?));
        self.give(Given::Identity(tables.ids.next().map_err(said)?));
        let count = there.values().sum();
        // The reported numbers stay.
        self.acknowledged = there;
        self.fault.take().map_or(Ok(count), Err)
    }
}

/// Whether the rows are those that the transactions up to these leave.
fn compare(rows: &Rows, there: &BTreeMap<u32, u64>) -> Result<(), String> {
    let last = |kept: u64| {
        let last = move |(thread, last): (&u32, &u64)| {
            let (thread, first) = (*thread, last.saturating_sub(kept) + 1);
            (first..=*last).map(move |number| key(thread, number))
        };
        there.iter().flat_map(last)
    };
    let owners: BTreeMap<u64, i64> = rows.owners.iter().map(|(id, (key, _))| (*key, *id)).collect();
    let is_whole = rows.owners.len() == owners.len() && owners.keys().copied().eq(last(KEPT));
    let cleared: BTreeMap<u64, Option<i64>> = last(2 * KEPT).map(|key| (key, owners.get(&key).copied())).collect();
    let held: BTreeMap<u64, Option<i64>> = owners.iter().map(|(key, id)| (*key, Some(*id))).collect();
    for (child, found) in rows.children.iter().enumerate() {
        let wanted = if child == CLEARED { &cleared } else { &held };
        if !is_whole || found != wanted {
            let name = CHILDREN[child];
            return Err(format!("of the transactions up to {there:?}, rows of {name} are {found:?}, not {wanted:?}"));
        }
    }
    Ok(())
}
