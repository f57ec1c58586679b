//! Tables whose rows refer to each other, with numbers of sequences and a condition, for power cuts and kills.
//!
//! No row refers to an owner that is not there, each row meets its condition, and no number is given twice. The oracles
//! keep the numbers outside of the database.

use std::collections::{BTreeMap, HashSet};

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, Identity, OnChange, ReferenceDef, SequenceDef, TableDef, Value};
use seriatim::{Abort, Database, DynHandle, ReadTx, SchemaError, Sequence, Tx};

use crate::said;

/// The table that others refer to. Its key is an identity column.
const OWNERS: &str = "owner";

/// The sequence of that column.
const IDS: &str = "owner_id_seq";

/// The sequence by itself.
const NUMBERS: &str = "numbers";

/// The tables that refer to owners.
pub(crate) const CHILDREN: [&str; 4] = ["restricted", "cascaded", "cleared", "deferred"];

/// The places of these tables.
pub(crate) const RESTRICTED: usize = 0;
pub(crate) const CASCADED: usize = 1;
pub(crate) const CLEARED: usize = 2;
pub(crate) const DEFERRED: usize = 3;

/// Amounts are below it.
pub(crate) const AMOUNT_END: i64 = 100;

/// Identities that do not come from their sequence are at least this.
pub(crate) const CHOSEN: i64 = 1 << 40;

/// The foreign key of a table.
pub(crate) fn reference(child: usize) -> ReferenceDef {
    let reference = ReferenceDef::new(["owner"], OWNERS).named("to_owner");
    match child {
        RESTRICTED => reference.on_delete(OnChange::Restrict),
        CASCADED => reference.on_delete(OnChange::Cascade),
        CLEARED => reference.on_delete(OnChange::SetNull),
        _ => reference.deferred(),
    }
}

fn owners() -> TableDef {
    let id = ColumnDef::new("id", ColumnType::I64).identity(Identity::by_default());
    let table = TableDef::builder(OWNERS).column(id).column(ColumnDef::new("key", ColumnType::U64));
    let table = table.column(ColumnDef::new("amount", ColumnType::I64)).key(["id"]);
    table.check("small", format!("amount < {AMOUNT_END}")).finish().expect("a sound declaration")
}

fn child(child: usize) -> TableDef {
    let table = TableDef::builder(CHILDREN[child]).column(ColumnDef::new("key", ColumnType::U64)).key(["key"]);
    let table = table.column(ColumnDef::new("owner", ColumnType::I64).nullable()).index("by_owner", ["owner"]);
    table.reference(reference(child)).finish().expect("a sound declaration")
}

/// Creates all of them, in one migration.
pub(crate) fn create(db: &Database) -> Result<(), SchemaError> {
    let steps = db.migration().create_sequence(SequenceDef::new(NUMBERS)).create(owners());
    (0..CHILDREN.len()).fold(steps, |steps, table| steps.create(child(table))).run().map(drop)
}

/// Drops all of them, in one migration.
pub(crate) fn drop_all(db: &Database) -> Result<(), SchemaError> {
    let steps = CHILDREN.into_iter().fold(db.migration(), |steps, table| steps.drop_table(table));
    steps.drop_table(OWNERS).drop_sequence(NUMBERS).run().map(drop)
}

/// Makes the foreign key of the rows that go with their owners, or drops it.
pub(crate) fn link(db: &Database, is_linked: bool) -> Result<(), SchemaError> {
    let change = match is_linked {
        true => Change::add_reference(reference(CASCADED)),
        false => Change::drop_reference("to_owner"),
    };
    db.migration().change(CHILDREN[CASCADED], [change]).run().map(drop)
}

/// What there is.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) owners: DynHandle,
    pub(crate) children: [DynHandle; 4],
    pub(crate) numbers: Sequence,
    pub(crate) ids: Sequence,
}

impl Tables {
    /// Opens them. `None` if none of them is there.
    ///
    /// # Errors
    /// Some of them are there, which are created together.
    pub(crate) fn open(db: &Database) -> Result<Option<Tables>, String> {
        let sequences = [NUMBERS, IDS].map(|name| db.sequence(name));
        let tables = [OWNERS, CHILDREN[0], CHILDREN[1], CHILDREN[2], CHILDREN[3]].map(|name| db.open_dyn(name));
        let there = tables.iter().filter(|table| table.is_ok()).count()
            + sequences.iter().filter(|sequence| sequence.is_ok()).count();
        let ([Ok(numbers), Ok(ids)], [Ok(owners), Ok(a), Ok(b), Ok(c), Ok(d)]) = (sequences, tables) else {
            return if there == 0 { Ok(None) } else { Err(format!("{there} of 7 tables and sequences are there")) };
        };
        Ok(Some(Tables { owners, children: [a, b, c, d], numbers, ids }))
    }

    /// Reads all rows.
    pub(crate) fn rows(&self, tx: &ReadTx) -> Result<Rows, Abort> {
        let is_linked = !self.children[CASCADED].definition().references.is_empty();
        let mut rows = Rows { is_linked, ..Rows::default() };
        for row in tx.scan_dyn(&self.owners, &[])? {
            if let [Value::Integer(id, _), Value::Integer(key, _), Value::Integer(amount, _)] = row?.values()[..] {
                rows.owners.insert(id as i64, (key as u64, amount as i64));
            }
        }
        for (table, rows) in self.children.iter().zip(&mut rows.children) {
            for row in tx.scan_dyn(table, &[])? {
                let row = row?;
                if let (Some(Value::Integer(key, _)), Some(owner)) = (row.get("key"), row.get("owner")) {
                    rows.insert(key as u64, integer(&owner));
                }
            }
        }
        Ok(rows)
    }

    /// Inserts an owner with the next identity, or with this one.
    pub(crate) fn own(&self, tx: &Tx, id: Option<i64>, key: u64, amount: i64) -> Result<i64, Abort> {
        let values = [id.unwrap_or(0).into(), key.into(), amount.into()];
        match id {
            None => tx.insert_new_dyn(&self.owners, &values),
            Some(id) => tx.insert_dyn(&self.owners, &values).map(|()| id),
        }
    }

    /// Inserts a row of an owner.
    pub(crate) fn refer(&self, tx: &Tx, child: usize, key: u64, owner: i64) -> Result<(), Abort> {
        tx.insert_dyn(&self.children[child], &[key.into(), Value::from(owner).some()])
    }

    /// The owner of a row, if both are there.
    pub(crate) fn owner(&self, tx: &Tx, child: usize, key: u64) -> Result<Option<i64>, Abort> {
        Ok(tx.get_dyn(&self.children[child], &[key.into()])?.and_then(|row| integer(&row.get("owner")?)))
    }

    /// Deletes a row, if it is there.
    pub(crate) fn remove(&self, tx: &Tx, child: usize, key: u64) -> Result<(), Abort> {
        tx.delete_if_dyn(&self.children[child], &[key.into()]).map(drop)
    }

    /// Deletes an owner, if it is there.
    pub(crate) fn release(&self, tx: &Tx, id: i64) -> Result<(), Abort> {
        tx.delete_if_dyn(&self.owners, &[id.into()]).map(drop)
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number, _) => i64::try_from(*number).ok(),
        Value::Option(Some(value)) => integer(value),
        _ => None,
    }
}

/// All rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Whether [`CASCADED`] has its foreign key.
    pub(crate) is_linked: bool,
    /// Key and amount by identity.
    pub(crate) owners: BTreeMap<i64, (u64, i64)>,
    /// The owner by key.
    pub(crate) children: [BTreeMap<u64, Option<i64>>; 4],
}

impl Rows {
    /// Whether this table has its foreign key.
    pub(crate) fn has_reference(&self, child: usize) -> bool {
        self.is_linked || child != CASCADED
    }

    /// A row of this table whose owner is not there, and its owner.
    pub(crate) fn orphan(&self, child: usize) -> Option<(u64, i64)> {
        let mut rows = self.children[child].iter().filter_map(|(key, owner)| Some((*key, (*owner)?)));
        rows.find(|(_, owner)| !self.owners.contains_key(owner))
    }

    /// Whether the rows are as foreign keys and the condition promise.
    ///
    /// # Errors
    /// A row that is not.
    pub(crate) fn check(&self) -> Result<(), String> {
        for child in (0..CHILDREN.len()).filter(|&child| self.has_reference(child)) {
            if let Some((key, owner)) = self.orphan(child) {
                return Err(format!("row {key} of {} {ORPHANED} {owner}", CHILDREN[child]));
            }
        }
        match self.owners.iter().find(|(_, (_, amount))| *amount >= AMOUNT_END) {
            Some((id, (_, amount))) => Err(format!("owner {id} {BROKEN}: its amount is {amount}")),
            None => Ok(()),
        }
    }
}

/// A row refers to an owner that is not there.
pub(crate) const ORPHANED: &str = "refers to no owner: there is none with identity";

/// A row does not meet the condition.
pub(crate) const BROKEN: &str = "violates its condition";

/// A number was given before.
pub(crate) const TWICE: &str = "is given twice";

/// Every number that anybody has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judge {
    numbers: HashSet<i64>,
    ids: HashSet<i64>,
}

/// A number that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Number(i64),
    Identity(i64),
}

impl Judge {
    /// This one was given, to a transaction that may come to nothing.
    pub(crate) fn give(&mut self, given: Given) -> Result<(), String> {
        let is_new = match given {
            Given::Number(number) => self.numbers.insert(number),
            Given::Identity(id) => self.ids.insert(id),
        };
        if is_new { Ok(()) } else { Err(format!("{given:?} {TWICE}")) }
    }

    /// Whether the sequences go on behind all numbers that were given.
    pub(crate) fn check(&self, tables: &Tables) -> Result<(), String> {
        for (sequence, given) in [(&tables.numbers, &self.numbers), (&tables.ids, &self.ids)] {
            let (last, most) = (sequence.last(), given.iter().max().copied());
            if last < most {
                return Err(format!("after {most:?}, {last:?} is the last that is reserved: a number {TWICE}"));
            }
        }
        Ok(())
    }
}

/// A fault that only tests plant: an alarm must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A row that refers to nothing.
    Orphan,
    /// A row that does not meet its condition.
    Broken,
    /// A sequence that begins again.
    Twice,
}

impl Planted {
    /// Each of them.
    pub const ALL: [Planted; 3] = [Planted::Orphan, Planted::Broken, Planted::Twice];

    /// What is said of it.
    pub fn alarm(self) -> &'static str {
        match self {
            Planted::Orphan => ORPHANED,
            Planted::Broken => BROKEN,
            Planted::Twice => TWICE,
        }
    }

    /// Plants it.
    pub(crate) fn plant(self, db: &Database) -> Result<(), String> {
        let without = |table: &str, change| db.migration().change(table, [change]).run().map(drop).map_err(said);
        match self {
            Planted::Orphan => without(CHILDREN[RESTRICTED], Change::drop_reference("to_owner"))?,
            Planted::Broken => without(OWNERS, Change::drop_check("small"))?,
            Planted::Twice => {}
        }
        let tables = Tables::open(db)?.ok_or("there are no tables")?;
        let mut session = db.session();
        match self {
            Planted::Orphan => session.transact(|tx| tables.refer(tx, RESTRICTED, u64::MAX, -7)).map(drop),
            Planted::Broken => session.transact(|tx| tables.own(tx, Some(CHOSEN - 1), 0, AMOUNT_END)).map(drop),
            Planted::Twice => tables.numbers.set_next(1),
        }
        .map_err(said)
    }
}
