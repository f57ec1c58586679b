//! Databases with many tables that are created one by one. They are rows of the catalogue, and change no other file
//! than the log.

use std::borrow::Cow;
use std::sync::Arc;

use seriatim::Database;
use seriatim::catalog::{ColumnDef, ColumnType, TableDef, Value};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::rng::is_nightly;

use crate::accounts::small;

/// A table with this many columns. The catalogue has a row of about 100 bytes for each.
fn table(name: impl Into<Cow<'static, str>>, columns: usize) -> TableDef {
    let column = |number| ColumnDef::new(format!("column_{number:04}"), ColumnType::U64);
    let table = (0..columns).fold(TableDef::builder(name), |table, number| table.column(column(number)));
    table.key(["column_0000"]).finish().expect("a sound declaration")
}

/// How the tables are created: one by one, some of them with more rows in the catalogue than a batch has at once.
const CREATED: [(&str, usize); 8] =
    [("a", 1), ("b", 2), ("c", 900), ("d", 900), ("e", 900), ("f", 3), ("g", 1), ("h", 2)];

fn open(disk: &FaultyDisk) -> Database {
    small("dbx", disk).open().expect("it opens")
}

/// Creates the tables until the disk fails, each with a row. Returns how many were created, and how many have a row.
fn create(db: &Database) -> (usize, usize) {
    for (at, (name, columns)) in CREATED.into_iter().enumerate() {
        let Ok(table) = db.declare(table(name, columns)) else { return (at, at) };
        let row: Vec<Value> = (0..columns).map(|column| Value::from(column as u64)).collect();
        if db.session().transact(|tx| tx.insert_dyn(&table, &row)).is_err() {
            return (at + 1, at);
        }
    }
    (CREATED.len(), CREATED.len())
}

/// Checks that the database has the tables that were created, with their rows, and can have all.
fn check(disk: &FaultyDisk, (tables, rows): (usize, usize), why: &str) {
    for _ in 0..2 {
        let db = open(disk);
        let names = db.table_names();
        let found = names.iter().filter(|name| name.len() == 1).count();
        assert!((tables..=tables + 1).contains(&found), "{why}: {tables} were created, {names:?} are there");
        for (at, (name, _)) in CREATED.into_iter().enumerate().take(found) {
            let table = db.open_dyn(name).expect("tables are there in order");
            let row = db.session().transact(|tx| Ok(tx.get_dyn(&table, &[Value::from(0u64)])?.is_some()));
            assert!(row.expect("no conflict").value || at >= rows, "{why}: a row of {name}");
        }
    }
}

#[test]
fn tables_that_are_created_one_by_one_survive_a_cut_or_kill_at_each_operation() {
    let prepared = FaultyDisk::new(1);
    let db = open(&prepared);
    db.declare(table("wide", 700)).expect("created");
    drop(db);
    let before = prepared.fork(2);
    let db = open(&before);
    assert_eq!(create(&db), (CREATED.len(), CREATED.len()));
    before.crash();
    check(&before, (CREATED.len(), CREATED.len()), "after all");

    for n in (1..).step_by(if is_nightly() { 1 } else { 9 }) {
        let mut is_done = false;
        for is_kill in [false, true] {
            let disk = prepared.fork(n);
            let process = disk.mount();
            let db = small("dbx", &disk).disk(Arc::new(process.clone())).open().expect("it opens");
            if is_kill {
                disk.kill_at(n)
            } else {
                disk.crash_at(n)
            }
            let created = create(&db);
            is_done = process.is_alive();
            drop(db);
            if is_kill {
                disk.kill()
            } else {
                disk.crash()
            }
            check(&disk, created, &format!("stopped at {n}, kill {is_kill}"));
        }
        if is_done {
            return;
        }
    }
}

/// Each table took its share of all before: 2,000 tables wrote 700 MB.
#[test]
fn the_bytes_of_creating_tables_are_linear_in_their_number() {
    let disk = FaultyDisk::new(1);
    let db = open(&disk);
    let bytes = || db.statistics().log.expect("it is on disk").bytes;
    let mut written = [0; 2];
    for (half, written) in (0..).zip(&mut written) {
        let before = bytes();
        for number in 0..300 {
            db.declare(table(format!("t{half}_{number}"), 2)).expect("created");
        }
        *written = bytes() - before;
    }
    assert_eq!(written[0], written[1], "each is a page of the log");
    drop(db);
    assert_eq!(open(&disk).table_names().len(), 600);
}

#[test]
fn a_table_that_finds_no_room_is_there_whole_or_not_at_all() {
    let disk = FaultyDisk::new(1);
    let db = open(&disk);
    let kept = db.declare(table("kept", 1)).expect("created");
    db.session().transact(|tx| tx.insert_dyn(&kept, &[Value::from(7u64)])).expect("inserted");

    disk.set_capacity(disk.used_bytes());
    let refused = (0..100).map(|number| (number, db.declare(table(format!("filler{number}"), 200)).is_ok()));
    let (first, _) = refused.into_iter().find(|(_, is_there)| !is_there).expect("the disk becomes full");
    db.declare(table("refused", 1)).expect_err("the log takes nothing");
    assert!(!db.table_names().iter().any(|name| name == "refused"), "nothing of it was written");
    disk.set_capacity(u64::MAX);
    db.step();
    db.declare(table("later", 1)).expect("there is room");
    let before = db.table_names();
    // The batch that found no room was kept, and was written when there was some.
    assert!(before.contains(&format!("filler{first}")), "{before:?}");
    disk.kill();
    drop((kept, db));

    let db = open(&disk);
    assert_eq!(db.table_names(), before);
    let kept = db.open_dyn("kept").expect("it is there");
    let row = db.session().transact(|tx| Ok(tx.get_dyn(&kept, &[Value::from(7u64)])?.is_some()));
    assert!(row.expect("no conflict").value);
}
