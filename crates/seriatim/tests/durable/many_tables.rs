//! Databases with many tables that are created one by one: the file that lists all is not written for each of them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use seriatim::Database;
use seriatim::catalog::{ColumnDef, ColumnType, TableDef, Value};
use seriatim_base::disk::{Disk, FaultyDisk, Opening};
use seriatim_base::rng::is_nightly;
use seriatim_redo::manifest::MANIFEST;
use seriatim_redo::manifest::additions::ADDITIONS;

use crate::accounts::small;

/// A table with this many columns. The manifest has about 130 bytes for each.
fn table(name: impl Into<Cow<'static, str>>, columns: usize) -> TableDef {
    let column = |number| ColumnDef::new(format!("column_{number:04}"), ColumnType::U64);
    let table = (0..columns).fold(TableDef::builder(name), |table, number| table.column(column(number)));
    table.key(["column_0000"]).finish().expect("a sound declaration")
}

/// How the tables are created: one by one. The list begins, is folded into the manifest, and begins again.
const CREATED: [(&str, usize); 8] =
    [("a", 1), ("b", 2), ("c", 900), ("d", 900), ("e", 900), ("f", 3), ("g", 1), ("h", 2)];

fn open(disk: &FaultyDisk) -> Database {
    small("dbx", disk).open().expect("it opens")
}

fn bytes(disk: &FaultyDisk, name: &str) -> u64 {
    disk.find(&Path::new("/db").join(name)).expect("the disk works").map_or(0, |found| found.bytes)
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
    let (whole, db) = (bytes(&before, MANIFEST), open(&before));
    assert_eq!(create(&db), (CREATED.len(), CREATED.len()));
    assert!(bytes(&before, MANIFEST) > 2 * whole, "the manifest was written when the list had become long");
    assert!(bytes(&before, ADDITIONS) > 0, "the last tables are in a list of their own");
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
    let mut written = 0;
    for number in 0..600 {
        let before = [MANIFEST, ADDITIONS].map(|name| bytes(&disk, name));
        db.declare(table(format!("t{number}"), 2)).expect("created");
        let after = [MANIFEST, ADDITIONS].map(|name| bytes(&disk, name));
        written += if after[0] == before[0] { after[1] - before[1] } else { after[0] };
    }
    let shown = bytes(&disk, MANIFEST) + bytes(&disk, ADDITIONS);
    // Up to 64 KiB the manifest is written for each table.
    assert!(written < 8 * shown + (8 << 20), "{written} bytes written for {shown}");
    drop(db);
    assert_eq!(open(&disk).table_names().len(), 600);
}

#[test]
fn a_manifest_that_finds_no_room_leaves_the_list_beside_the_last_one() {
    let disk = FaultyDisk::new(1);
    let db = open(&disk);
    db.declare(table("wide", 700)).expect("created");
    let kept = db.declare(table("kept", 1)).expect("created");
    db.session().transact(|tx| tx.insert_dyn(&kept, &[Value::from(7u64)])).expect("inserted");
    assert!(bytes(&disk, ADDITIONS) > 0, "it is in a list");
    db.declare(table("filler", 900)).expect("created");

    disk.set_capacity(disk.used_bytes() + 4_000);
    db.declare(table("too_wide", 900)).expect_err("there is no room in the list");
    db.declare(table("first", 1)).expect_err("there is no room for a manifest");
    let second = db.declare(table("second", 1)).is_ok();
    disk.set_capacity(u64::MAX);
    db.declare(table("third", 1)).expect("there is room");
    disk.kill();
    drop(db);

    let db = open(&disk);
    let names = db.table_names();
    for (name, is_there) in [("wide", true), ("kept", true), ("filler", true), ("second", second), ("third", true)] {
        assert!(!is_there || names.iter().any(|found| *found == name), "`{name}` is not among {names:?}");
    }
    let kept = db.open_dyn("kept").expect("it is there");
    let row = db.session().transact(|tx| Ok(tx.get_dyn(&kept, &[Value::from(7u64)])?.is_some()));
    assert!(row.expect("no conflict").value);
}

/// The table was acknowledged and has a row in the log. So a database without it would have lost the row.
#[test]
fn a_list_that_is_damaged_in_its_last_record_is_refused_by_name() {
    let disk = FaultyDisk::new(1);
    let db = open(&disk);
    db.declare(table("wide", 700)).expect("created");
    let kept = db.declare(table("kept", 1)).expect("created");
    db.session().transact(|tx| tx.insert_dyn(&kept, &[Value::from(7u64)])).expect("inserted");
    disk.kill();
    drop(db);
    // A header of 32 bytes, the record's of 24 with the length at its byte 16, and JSON.
    let (path, mut head) = (Path::new("/db").join(ADDITIONS), [0; 56]);
    disk.open(&path, Opening::Read).and_then(|file| file.read_exact_at(&mut head, 0)).expect("it is there");
    let record = 32..56 + u64::from(u32::from_le_bytes(std::array::from_fn(|i| head[48 + i])));
    let refused = |damage: &dyn Fn(&FaultyDisk)| {
        let disk = disk.fork(1);
        damage(&disk);
        let error = small("dbx", &disk).open().expect_err("it is damaged").to_string();
        assert!(error.contains(ADDITIONS) && error.contains("damaged"), "{error}");
    };
    for at in record.clone() {
        refused(&|disk| disk.flip_bit(&path, at, at as u8).expect("it is there"));
    }
    // It looks as if it had never been written, and the log knows its table.
    refused(&|disk| disk.zero(&path, record.start, record.end - record.start).expect("it is there"));
    assert!(open(&disk.fork(1)).open_dyn("kept").is_ok(), "without damage it opens");
}
