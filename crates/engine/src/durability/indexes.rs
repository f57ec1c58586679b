//! Compares secondary indexes with their tables, both ways: every row has its entries, and every entry belongs
//! to a row. Also, every row refers to rows that exist, and no two rows agree in a unique constraint.
//!
//! Rows and entries come from a walk over all records; the matching entry or row is read by an ordinary lookup.
//! So the check finds records that a search misses, as well as superfluous entries.

use std::sync::Arc;

use seriatim_base::thread;
use seriatim_catalog::{ColumnSet, Key, RowRef};
use seriatim_txn::{Mode, RowPtr};

use super::NO_WORKER;
use super::checkpointer::OpenHandle;
use super::rows::{Rows, Stuck, WalkedRow, Walker};
use crate::Runner;
use crate::engine::Inner;
use crate::error::{Abort, AbortKind, TransactError};
use crate::index::read_primary;
use crate::operations::read;
use crate::table::{Secondary, TableSet};
use crate::tx::{Origin, TxCore};

/// A table whose indexes agree with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableChecked {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its secondary indexes.
    pub indexes: usize,
}

/// Why a check ends.
enum Failed {
    Stuck,
    NoWorker,
    /// The fault found, in words.
    Fault(String),
    Transact(TransactError),
}

impl From<Stuck> for Failed {
    fn from(Stuck: Stuck) -> Failed {
        Failed::Stuck
    }
}

/// Compares the indexes of all tables with their rows. No transaction may write meanwhile. Waits while another
/// check runs.
///
/// # Errors
/// The first fault found, in words.
pub(crate) fn check(inner: &Arc<Inner>, open: &Arc<OpenHandle>) -> Result<Vec<TableChecked>, String> {
    let _one_at_a_time = inner.helping();
    let check_table = |set: &Arc<TableSet>| {
        let own = walk(inner, open, set, &Rows::new(&set.primary), &|tx, found| rows_have_entries(tx, set, found))?;
        let earlier = set.earlier.layouts.iter().map(|layout| {
            let ask = |tx: &TxCore, found: &WalkedRow<'_>| {
                layout.show(found.row, &mut Vec::new(), |row| row_has_entries(tx, set, found.key, row))
            };
            walk(inner, open, set, &Rows::new(&layout.set.primary), &ask)
        });
        let rows = own + earlier.sum::<Result<u64, String>>()?;
        for index in set.indexes.iter() {
            walk(inner, open, set, &Rows::new(&index.table), &|tx, found| entry_has_row(tx, set, index, found))?;
        }
        Ok(TableChecked { name: set.definition.name.to_string(), rows, indexes: set.indexes.len() })
    };
    inner.sets().iter().map(check_table).collect()
}

/// A check of one record: the fault found, if any.
type Ask<'a> = dyn Fn(&TxCore, &WalkedRow<'_>) -> Result<Option<String>, Abort> + Sync + 'a;

/// Checks all records of a table, with all threads; returns the number of records.
fn walk(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    set: &TableSet,
    rows: &Rows<'_>,
    ask: &Ask<'_>,
) -> Result<u64, String> {
    let work = |number, _| work(inner, open, rows, ask, number);
    let done: Result<u64, Failed> = thread::crew(inner.options.index_helpers(), work).into_iter().sum();
    let name = &set.definition.name;
    done.map_err(|failed| match failed {
        Failed::Fault(fault) => fault,
        Failed::Stuck => format!("table {name}: a commit did not end while it was checked"),
        Failed::NoWorker => format!("table {name} was not checked: {NO_WORKER}"),
        Failed::Transact(error) => format!("table {name} could not be read: {error}"),
    })
}

fn work(
    inner: &Arc<Inner>,
    open: &Arc<OpenHandle>,
    rows: &Rows<'_>,
    ask: &Ask<'_>,
    number: usize,
) -> Result<u64, Failed> {
    let core = inner.environment.core().ok_or(Failed::NoWorker)?;
    let mut walker = Walker::new(inner.protocol.as_ref(), core);
    let mut runner = Runner::internal(inner, open, number);
    runner.tx.ignore_queue();
    let mut count = 0;
    let mut more = true;
    while more {
        more = walker.chunk(rows, |found| {
            count += found.iter().map(|found| rows.rows_in(found) as u64).sum::<u64>();
            let asked = runner.run(Mode::ReadWrite, Origin::Closure, |tx| {
                for found in found {
                    if let Some(fault) = ask(tx, found)? {
                        return Ok(Some(fault));
                    }
                }
                Ok(None)
            });
            match asked.map_err(Failed::Transact)?.value {
                None => Ok(()),
                Some(fault) => Err(Failed::Fault(fault)),
            }
        })?;
    }
    Ok(count)
}

/// Checks that the entries in each index of a record's rows lead back to them.
fn rows_have_entries(tx: &TxCore, set: &TableSet, found: &WalkedRow<'_>) -> Result<Option<String>, Abort> {
    let mut fault = None;
    set.each_row(found.key, found.row, |key, row| {
        if fault.is_none() {
            fault = row_has_entries(tx, set, key, row)?;
        }
        Ok::<(), Abort>(())
    })?;
    Ok(fault)
}

/// Checks that a row's entry in each index leads back to it.
fn row_has_entries(tx: &TxCore, set: &TableSet, key: Key<'_>, found: RowPtr) -> Result<Option<String>, Abort> {
    // SAFETY: a row of this table, readable until the chunk ends.
    let row = unsafe { RowRef::from_raw(found.as_ptr()) };
    for index in set.indexes.iter() {
        let entry = index.table.codec.encode_row(row, |key| read(tx, &index.table, key, ColumnSet::ALL))?;
        // SAFETY: an entry of an index of this table, readable until the transaction ends.
        let leads_back = entry.is_some_and(|entry| unsafe { read_primary(entry, set.primary.class) } == key);
        if !leads_back {
            let key = set.primary.codec.describe(key);
            return Ok(Some(format!("index {} has no entry of the row {key}", index.table.name)));
        }
    }
    for distinct in &set.links.distinct {
        match tx.prove_distinct(distinct, set, found) {
            Err(abort) if abort.kind() == AbortKind::Duplicate => {
                let (table, key) = (&set.definition.name, set.primary.codec.describe(key));
                let name = &distinct.name;
                return Ok(Some(format!(
                    "another row agrees with the row {key} of {table} (unique constraint {name})"
                )));
            }
            proved => proved?,
        }
    }
    for link in &set.links.own {
        if !tx.is_reference_kept(link, set, found)? {
            let (table, key) = (&set.definition.name, set.primary.codec.describe(key));
            return Ok(Some(format!("the row {key} of {table} refers to no row (foreign key {})", link.name)));
        }
    }
    Ok(None)
}

/// Checks that the row of an entry exists and has the entry's key.
fn entry_has_row(
    tx: &TxCore,
    set: &TableSet,
    index: &Secondary,
    found: &WalkedRow<'_>,
) -> Result<Option<String>, Abort> {
    // SAFETY: an entry of an index of this table, readable until the chunk ends.
    let primary = unsafe { read_primary(found.row, set.primary.class) };
    let fault = match tx.read_row(set, primary, ColumnSet::ALL)? {
        None => "is not there",
        Some(row) => {
            // SAFETY: a row of this table, readable until the transaction ends.
            let row = unsafe { RowRef::from_raw(row.as_ptr()) };
            if index.table.codec.encode_row(row, |key| key == found.key) {
                return Ok(None);
            }
            "has another key"
        }
    };
    let (entry, row) = (index.table.codec.describe(found.key), set.primary.codec.describe(primary));
    Ok(Some(format!("the entry {entry} of index {} leads to the row {row}, which {fault}", index.table.name)))
}

#[cfg(test)]
mod tests {
    use seriatim_catalog::Key;

    use super::*;
    use crate::Settings;

    #[derive(seriatim_macros::Table)]
    #[table(
        name = "item",
        key(id),
        hash,
        index(name = "by_tag", columns(tag), unique, hash),
        index(name = "by_group", columns(group), ordered),
        index(name = "by_shelf", columns(shelf), hash),
        crate = "seriatim_catalog"
    )]
    struct Item {
        id: u64,
        tag: u64,
        group: u32,
        shelf: u32,
    }

    /// The fault found after `corrupt` changed index `at` of a table with some rows.
    fn fault(at: usize, corrupt: impl Fn(&TxCore, &Secondary, Key<'_>) -> Result<(), Abort>) -> String {
        let db = Settings { step_helpers: true, ..Settings::default() }.open().expect("memory");
        let items = db.make::<Item>().expect("it is declared once");
        let mut runner = db.runner();
        for id in 0..20 {
            let item = Item { id, tag: 100 + id, group: id as u32 % 3, shelf: id as u32 % 4 };
            runner.transact(|tx| tx.insert(&items, &item)).expect("no conflict");
        }
        assert_eq!(db.check_indexes().expect("nothing is wrong yet")[0].rows, 20);
        let set = db.inner().find("item").expect("it is there");
        let index = &set.indexes[at];
        let corrupted = runner.transact(|tx| {
            let row = read(tx, &set.primary, Key::Word8(7), ColumnSet::ALL)?.expect("it was inserted");
            // SAFETY: a row of this table, readable until the transaction ends.
            let row = unsafe { RowRef::from_raw(row.as_ptr()) };
            index.table.codec.encode_row(row, |entry| corrupt(tx, index, entry))
        });
        corrupted.expect("no conflict");
        db.check_indexes().expect_err("something is wrong now")
    }

    #[test]
    fn a_row_that_refers_to_none_is_found() {
        use seriatim_catalog::{ColumnDef, ColumnType, ReferenceDef, TableDef, Value};
        let db = Settings { step_helpers: true, ..Settings::default() }.open().expect("memory");
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
        let parent = TableDef::builder("parent").column(column("id")).key(["id"]).finish().expect("valid");
        let child = TableDef::builder("child").column(column("id")).column(column("of")).key(["id"]);
        let child = child.reference(ReferenceDef::new(["of"], "parent")).finish().expect("valid");
        let tables = db.declare_all(vec![child, parent]).expect("memory");
        let [child, parent] = [&tables[0], &tables[1]];
        let mut runner = db.runner();
        let load = |tx: &TxCore| {
            tx.insert_dyn(parent, &[Value::from(7u32)])?;
            tx.insert_dyn(child, &[Value::from(1u32), Value::from(7u32)])
        };
        runner.transact(load).expect("no conflict");
        assert_eq!(db.check_indexes().expect("nothing is wrong yet").len(), 2);
        // Without its links.
        let apart = parent.set.apart(db.inner());
        let key = apart.primary.codec.encode_values(&[Value::from(7u32)]).expect("it fits");
        assert!(*runner.transact(|tx| tx.delete_at(&apart, key.as_key())).expect("no conflict"));
        let fault = db.check_indexes().expect_err("something is wrong now");
        assert_eq!(fault, "the row id 1 of child refers to no row (foreign key child_of_fkey)");
    }

    #[test]
    fn entries_that_are_gone_too_many_or_elsewhere_are_found() {
        for at in 0..3 {
            let gone = fault(at, |tx, index, entry| tx.unlink_entry(&index.table, entry));
            assert!(gone.contains("has no entry of the row"), "{gone}");
        }
        let link = |tx: &TxCore, index: &Secondary, entry: Key<'_>, primary: u64| {
            tx.link_entry(&index.table, entry, Key::Word8(primary))
        };
        // No row has tag 900, and there is no row 900; row 8 exists, and has tag 108.
        let dangling = fault(0, |tx, index, _| link(tx, index, Key::Word8(900), 900));
        assert!(dangling.contains("900") && dangling.contains("is not there"), "{dangling}");
        let foreign = fault(0, |tx, index, _| link(tx, index, Key::Word8(900), 8));
        assert!(foreign.contains("900") && foreign.contains("has another key"), "{foreign}");
    }
}
