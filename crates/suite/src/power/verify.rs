//! Compares the state after a recovery with the required one.

use std::collections::BTreeMap;

use seriatim::catalog::TableDef;
use seriatim::{Abort, Database, DynHandle, DynScan, ReadTx};

use super::case::Tally;
use super::model::Model;
use super::schema::{KINDS, LINES, Row, definition};
use super::script::Domain;
use crate::linked::{Judge, Rows as Linked, Tables};

/// The oracle's knowledge of a database other than its rows.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The possible keys and indexed values.
    pub(super) domain: Domain,
    /// The newest commit that an answered result depends on.
    pub(super) acknowledged: u64,
    /// The newest commit of which the manifest counts the batches: there was a checkpoint or an orderly close after it.
    pub(super) recorded: u64,
    /// The durable epoch that the last recovery reported.
    pub(super) durable: u64,
    /// The declaration of each table.
    pub(super) tables: [Declared; KINDS.len()],
    /// The epoch that was durable when each table had been declared.
    pub(super) declared_in: [u64; KINDS.len()],
    /// Where durability is by snapshot: the rows that readers saw in each, by its number.
    shown: BTreeMap<u64, Rows>,
    /// The newest snapshot that had been read, or recovered, when the database was opened.
    shown_before: u64,
    /// The newest snapshot that an answer of this life is of.
    pub(super) answered: u64,
    /// The numbers that sequences gave since these were created.
    pub(super) judge: Judge,
    /// The migrations since the last recovery of the tables that refer to each other.
    pub(super) migrations: Vec<Migration>,
}

/// A migration: what there was before it and is after it.
#[derive(Clone, Debug)]
pub(super) struct Migration {
    pub(super) before: Option<Linked>,
    pub(super) after: Option<Linked>,
    /// The epoch that was durable when it had been made. `None`: it failed, and may have been made.
    pub(super) durable: Option<u64>,
}

/// All rows of all tables, by table and key.
pub(super) type Rows = BTreeMap<(usize, u32), Row>;

impl Known {
    /// For a database that was never opened.
    pub(super) fn nothing(domain: Domain) -> Known {
        let (shown, tables) = Default::default();
        let declared_in = [0; KINDS.len()];
        Known {
            domain,
            acknowledged: 0,
            recorded: 0,
            durable: 0,
            tables,
            declared_in,
            shown,
            shown_before: 0,
            answered: 0,
            judge: Judge::default(),
            migrations: Vec::new(),
        }
    }

    /// A reader saw these in the snapshot with this number.
    pub(super) fn show(&mut self, number: u64, rows: Rows) -> Result<(), String> {
        if number <= self.shown_before && self.durable < number {
            return Err(format!("the number of snapshot {number} is used again: {} had been read", self.shown_before));
        }
        match self.shown.insert(number, rows) {
            Some(before) if before != self.shown[&number] => {
                Err(format!("snapshot {number} {OTHERS}: {}", difference(&before, &self.shown[&number])))
            }
            _ => Ok(()),
        }
    }

    /// A recovery found this snapshot, with these rows. Whether a reader had seen it.
    fn recover_snapshot(&mut self, number: u64, rows: &Rows) -> Result<bool, String> {
        let answered = std::mem::take(&mut self.answered);
        if number < answered {
            return Err(format!("an answer {EARLY} of snapshot {answered}, and {number} is recovered"));
        }
        self.shown_before = self.shown_before.max(number).max(self.shown.last_key_value().map_or(0, |last| *last.0));
        // Some of the others may no longer be recoverable; this one was recovered, so it counts.
        let shown = self.shown.split_off(&number).remove(&number);
        self.shown.clear();
        match &shown {
            Some(shown) if shown != rows => Err(format!("snapshot {number} {OTHERS}: {}", difference(shown, rows))),
            _ => Ok(shown.is_some()),
        }
    }
}

/// Where two readers of a snapshot differ first, by table and key.
fn difference(before: &Rows, after: &Rows) -> String {
    let mut keys = before.keys().chain(after.keys());
    let differs = keys.find(|&key| before.get(key) != after.get(key));
    differs.map_or_else(String::new, |at| format!("{at:?}: {:?}, then {:?}", before.get(at), after.get(at)))
}

/// A snapshot has other rows than were found in it before.
const OTHERS: &str = "had other rows for an earlier reader";

/// A snapshot was answered for before it was durable.
const EARLY: &str = "was given that is";

impl Known {
    /// A table was declared, and has this number.
    pub(super) fn declare(&mut self, table: usize, number: u32, db: &Database) {
        self.tables[table] = Declared::Yes(number);
        self.declared_in[table] = db.durable_epoch().map_or(0, |epoch| epoch.0);
    }

    /// Whether a table was declared later than in this epoch. Such a table may be there or not.
    pub(super) fn forget_tables_after(&mut self, epoch: u64) -> bool {
        let mut is_any = false;
        for (declared, declared_in) in self.tables.iter_mut().zip(self.declared_in) {
            if declared_in > epoch && *declared != Declared::No {
                *declared = Declared::Perhaps;
                is_any = true;
            }
        }
        is_any
    }

    /// The existing tables.
    pub(super) fn declared(&self) -> Vec<usize> {
        let is_there = |declared: &Declared| matches!(declared, Declared::Yes(_) | Declared::Either(_));
        let declared = self.tables.iter().enumerate().filter(|(_, declared)| is_there(declared));
        declared.map(|(table, _)| table).collect()
    }
}

/// How far the declaration of a table got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Declared {
    #[default]
    No,
    /// It was refused, or the power went: it may be there.
    Perhaps,
    /// With this number.
    Yes(u32),
    /// With this number, or with another if its conversion got so far.
    Either(u32),
}

impl Declared {
    /// The table's number, if it is known.
    pub(super) fn number(self) -> Option<u32> {
        if let Declared::Yes(number) = self { Some(number) } else { None }
    }
}

/// Checks a database that was just opened against the oracle, and settles the oracle on what survived.
pub(super) fn recovered(db: &Database, model: &mut Model, known: &mut Known, tally: &mut Tally) -> Result<(), String> {
    let durable = db.recovery().map_or(0, |recovery| recovery.durable_epoch);
    tally.note(durable);
    if let Some(number) = db.recovery().and_then(|recovery| recovery.durable_snapshot) {
        let handles: Vec<_> = (0..KINDS.len()).map(|table| db.open_dyn(KINDS[table].name).ok()).collect();
        let handles = handles.iter().enumerate().filter_map(|(table, handle)| Some((table, handle.as_ref()?)));
        let read = db.session().snapshot(|tx| rows_by_key(tx, handles.clone(), known.domain));
        let rows = read.map_err(|error| format!("{UNREADABLE}: {error}"))?.into_value()?;
        tally.snapshots += u64::from(known.recover_snapshot(number, &rows)?);
    }
    if durable < known.durable {
        return Err(format!("the durable epoch went back from {} to {durable}", known.durable));
    }
    tally.taken_back += model.settle(durable, known.acknowledged).map_err(|epoch| {
        format!("a result that was answered depends on a commit of epoch {epoch}, and {durable} is the durable one")
    })?;
    known.durable = durable;
    (known.acknowledged, known.recorded) = (0, 0);
    let now = db.epoch_now();
    if now <= durable {
        return Err(format!("epoch {now} begins again; {durable} is durable"));
    }
    tables(db, known)?;
    linked(db, model, known, durable)?;
    db.check_structure().map_err(|fault| format!("a structure is damaged: {fault}"))?;
    contents(db, model, known)
}

/// All rows of these tables.
pub(super) fn rows_by_key<'h>(
    tx: &ReadTx,
    tables: impl Iterator<Item = (usize, &'h DynHandle)>,
    domain: Domain,
) -> Result<Result<Rows, String>, Abort> {
    let mut rows = Rows::new();
    for (table, handle) in tables {
        for key in 0..domain.keys {
            if let Some(row) = tx.get_dyn(handle, &KINDS[table].key_values(key))? {
                match Row::of(&KINDS[table], &row.values()) {
                    Some(row) => rows.insert((table, key), row),
                    None => return Ok(Err(format!("a row that nobody wrote: {row:?}"))),
                };
            }
        }
    }
    Ok(Ok(rows))
}

fn tables(db: &Database, known: &mut Known) -> Result<(), String> {
    let names = db.table_names();
    for (kind, declared) in KINDS.iter().zip(&mut known.tables) {
        let there = names.iter().any(|name| name == kind.name);
        match *declared {
            Declared::No if there => return Err(format!("table {} was never declared, and is there", kind.name)),
            Declared::Perhaps if !there => *declared = Declared::No,
            Declared::Yes(_) | Declared::Either(_) if !there => return Err(format!("table {} is lost", kind.name)),
            Declared::Perhaps | Declared::Either(_) => *declared = Declared::Yes(number(db, kind.name)?),
            Declared::Yes(was) => {
                let is = number(db, kind.name)?;
                if is != was {
                    return Err(format!("table {} was number {was} and is now {is}", kind.name));
                }
            }
            Declared::No => {}
        }
    }
    Ok(())
}

/// Reads the tables that refer to each other.
fn read_linked(db: &Database) -> Result<Option<Linked>, String> {
    let Some(tables) = Tables::open(db)? else { return Ok(None) };
    let rows = db.session().snapshot(|tx| tables.rows(tx)).map_err(|error| format!("{UNREADABLE}: {error}"))?;
    rows.check()?;
    Ok(Some(rows.into_value()))
}

/// Settles which of the last migrations have been made. In doubt are those that failed. A damaged log may also have
/// lost those that became durable after the durable epoch.
fn linked(db: &Database, model: &mut Model, known: &mut Known, durable: u64) -> Result<(), String> {
    let found = read_linked(db)?;
    let mut possible = vec![model.linked().cloned()];
    for Migration { before, after, durable: made } in std::mem::take(&mut known.migrations).into_iter().rev() {
        match made {
            None if possible.contains(&before) => possible.push(after),
            Some(made) if made > durable && possible.contains(&after) => possible.push(before),
            _ => {}
        }
    }
    if possible.contains(&found) {
        model.set_linked(found);
    }
    match Tables::open(db)? {
        Some(tables) => known.judge.check(&tables),
        None => {
            known.judge = Judge::default();
            Ok(())
        }
    }
}

fn compare_linked(found: &Option<Linked>, expected: &Option<Linked>) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("rows that refer to each other: {found:?} where {expected:?} are right")),
    }
}

pub(super) fn number(db: &Database, name: &str) -> Result<u32, String> {
    db.open_dyn(name).map(|table| table.number_in_log()).map_err(|error| error.to_string())
}

/// A transaction that reads was refused.
pub(super) const UNREADABLE: &str = "the tables cannot be read";

/// Compares every table and index with the oracle.
pub(super) fn contents(db: &Database, model: &Model, known: &Known) -> Result<(), String> {
    let mut session = db.session();
    if known.migrations.iter().all(|migration| migration.durable.is_some()) {
        compare_linked(&read_linked(db)?, &model.linked().cloned())?;
    }
    let mut handles = Vec::new();
    for table in known.declared() {
        let handle = db.open_dyn(KINDS[table].name).map_err(|error| error.to_string())?;
        let wanted = match table {
            // It may have been converted.
            LINES => TableDef { cluster: handle.definition().cluster, ..definition(table).clone() },
            _ => definition(table).clone(),
        };
        if let Some(difference) = wanted.difference(handle.definition()) {
            return Err(format!("table {} changed: {difference}", KINDS[table].name));
        }
        handles.push((table, handle));
    }
    let compare = |tx: &ReadTx| -> Result<Result<(), String>, Abort> {
        for (table, handle) in &handles {
            if let Err(problem) = compare(tx, *table, handle, model.rows(*table), known.domain)? {
                return Ok(Err(format!("table {}: {problem}", KINDS[*table].name)));
            }
        }
        Ok(Ok(()))
    };
    session.snapshot(compare).map_err(|error| format!("{UNREADABLE}: {error}"))?.into_value()
}

/// Compares one table, and its indexes in both directions.
fn compare(
    tx: &ReadTx,
    table: usize,
    handle: &DynHandle,
    expected: &BTreeMap<u32, Row>,
    domain: Domain,
) -> Result<Result<(), String>, Abort> {
    let kind = &KINDS[table];
    let rows = |found: DynScan<'_>| -> Result<Result<Vec<Row>, String>, Abort> {
        let mut rows = Vec::new();
        for row in found {
            let values = row?.values();
            match Row::of(kind, &values) {
                Some(row) => rows.push(row),
                None => return Ok(Err(format!("a row that nobody wrote: {values:?}"))),
            }
        }
        Ok(Ok(rows))
    };
    let wrong = |what: &str, found: &[Row], expected: &[&Row]| {
        let missing = expected.iter().find(|row| !found.contains(row));
        let extra = found.iter().find(|row| !expected.contains(row));
        Ok(Err(format!(
            "{what}: {} rows where {} are right; missing {missing:?}, found {extra:?}",
            found.len(),
            expected.len()
        )))
    };
    // The whole domain of keys, so that what should not be there is seen too.
    let mut found = Vec::new();
    for key in 0..domain.keys {
        if let Some(row) = tx.get_dyn(handle, &kind.key_values(key))? {
            match Row::of(kind, &row.values()) {
                Some(row) => found.push(row),
                None => return Ok(Err(format!("a row that nobody wrote: {row:?}"))),
            }
        }
    }
    let all: Vec<&Row> = expected.values().collect();
    if !found.iter().eq(all.iter().copied()) {
        return wrong("rows by key", &found, &all);
    }
    if kind.is_ordered {
        match rows(tx.scan_dyn(handle, &[])?)? {
            Ok(found) if found.iter().eq(all.iter().copied()) => {}
            Ok(found) => return wrong("a scan", &found, &all),
            Err(problem) => return Ok(Err(problem)),
        }
    }
    for index in kind.indexes {
        let column = |row: &Row| if index.is_unique { row.tag } else { u32::from(row.group) };
        for value in 0..if index.is_unique { domain.tags } else { domain.groups.into() } {
            let wanted: Vec<&Row> = expected.values().filter(|row| column(row) == value).collect();
            match rows(tx.find_dyn(handle, index.name, &[value.into()])?)? {
                Ok(mut found) => {
                    found.sort_unstable_by_key(|row| row.key);
                    if !found.iter().eq(wanted.iter().copied()) {
                        return wrong(&format!("index {} at {value}", index.name), &found, &wanted);
                    }
                }
                Err(problem) => return Ok(Err(problem)),
            }
        }
        if index.is_ordered {
            // All of its entries: none too many.
            match rows(tx.find_dyn(handle, index.name, &[])?)? {
                Ok(mut found) => {
                    found.sort_unstable_by_key(|row| row.key);
                    if !found.iter().eq(all.iter().copied()) {
                        return wrong(&format!("index {}", index.name), &found, &all);
                    }
                }
                Err(problem) => return Ok(Err(problem)),
            }
        }
    }
    Ok(Ok(()))
}
