//! Tables that were changed, after power cuts and by programs of other versions.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{
    ColumnDef, ColumnType, Identity, OnChange, Organization, ReferenceDef, SequenceChange, SequenceDef, TableDef, Value,
};
use seriatim::dump::Format;
use seriatim::{Abort, Database, Table, Text, TransactError, Transaction, available_protocols};
use seriatim_base::disk::{FaultyDisk, Operation, Times};
use seriatim_base::rng::{seed, tries};

use crate::accounts::{names, small};

mod first {
    use super::*;

    #[derive(Table, Clone, Debug, PartialEq)]
    #[table(name = "order", key(id))]
    pub(super) struct Order {
        pub(super) id: u32,
        pub(super) total: u32,
        pub(super) note: Option<Text<8>>,
    }
}

mod second {
    use super::*;

    #[derive(Table, Clone, Debug, PartialEq)]
    #[table(name = "order", key(id), evolve, index(name = "by_state", columns(state)))]
    #[table(check(name = "payable", "cents < 1000"))]
    pub(super) struct Order {
        pub(super) id: u32,
        #[column(default = 1)]
        pub(super) state: u8,
        #[column(renamed_from = "total")]
        pub(super) cents: u64,
        pub(super) note: Option<Text<8>>,
        pub(super) due: Option<u64>,
    }
}

const ORDERS: u32 = 12;

fn order(id: u32) -> first::Order {
    first::Order { id, total: 10 * id, note: (!id.is_multiple_of(2)).then(|| Text::new("odd").expect("it has room")) }
}

/// The orders of the first version as the second sees them.
fn evolved(id: u32) -> second::Order {
    let first::Order { id, total, note } = order(id);
    second::Order { id, state: 1, cents: total.into(), note, due: None }
}

fn load(db: &Database) {
    let orders = db.create::<first::Order>().expect("the disk works");
    let load = |tx: &seriatim::Tx| (0..ORDERS).try_for_each(|id| tx.insert(&orders, &order(id)));
    db.session().transact(load).expect("it runs alone");
}

fn orders(db: &Database) -> Vec<second::Order> {
    let orders = db.table::<second::Order>().expect("it evolves");
    let read = |tx: &seriatim::Tx| tx.scan(&orders, ..).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, _>>();
    let all = db.session().transact(read);
    assert_eq!(db.check_indexes().expect("they agree")[0].indexes, 1);
    all.expect("it runs alone").into_value()
}

/// Foreign keys are there after power cuts, with their names as they are by then; so are cascades.
#[test]
fn references_are_kept_by_the_directory() {
    for (protocol, checkpointed) in names().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let disk = FaultyDisk::new(52);
        let reopened = || {
            disk.crash();
            let db = small(protocol, &disk).open().expect("it recovers");
            if checkpointed {
                db.checkpoint().expect("the disk works");
            }
            db
        };
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
        let table = |name: &'static str| TableDef::builder(name).column(column("id")).column(column("of")).key(["id"]);
        let db = small(protocol, &disk).open().expect("a new database opens");
        let root = db.declare(table("root").finish().expect("valid")).expect("it is new");
        let to_root = ReferenceDef::new(["of"], "root").on_delete(OnChange::Cascade);
        let leaf = db.declare(table("leaf").reference(to_root).finish().expect("valid")).expect("it is new");
        let row = |id: u32, of: u32| [Value::from(id), Value::from(of)];
        let load = |tx: &seriatim::Tx| {
            (0..4).try_for_each(|id| tx.insert_dyn(&root, &row(id, 0)))?;
            (0..8).try_for_each(|id| tx.insert_dyn(&leaf, &row(id, id % 4)))
        };
        db.session().transact(load).expect("each refers to a row");
        drop((root, leaf, db));
        let db = reopened();
        db.migration().change("root", [Change::rename_table("base")]).run().expect("the disk works");
        drop(db);
        let db = reopened();
        let [base, leaf] = ["base", "leaf"].map(|name| db.open_dyn(name).expect("it is there"));
        assert_eq!(leaf.definition().references[0].table, "base", "{protocol}");
        let mut session = db.session();
        assert!(session.transact(|tx| tx.insert_dyn(&leaf, &row(9, 9))).is_err(), "{protocol}");
        session.transact(|tx| tx.delete_dyn(&base, &[Value::from(1u32)])).expect("it cascades");
        drop((base, leaf, session, db));
        let db = reopened();
        let leaf = db.open_dyn("leaf").expect("it is there");
        assert_eq!(*db.session().transact(|tx| tx.count_all_dyn(&leaf)).expect("it runs alone"), 6, "{protocol}");
        db.migration().change("leaf", [Change::drop_reference("leaf_of_fkey")]).run().expect("the disk works");
        drop((leaf, db));
        let db = reopened();
        let leaf = db.open_dyn("leaf").expect("it is there");
        db.session().transact(|tx| tx.insert_dyn(&leaf, &row(9, 9))).expect("nothing is checked any more");
    }
}

/// What can be deferred is so after power cuts, and rows that agree are found by then.
#[test]
fn unique_constraints_are_deferred_after_a_power_cut() {
    for (protocol, checkpointed) in names().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let disk = FaultyDisk::new(53);
        let reopened = || {
            disk.crash();
            let db = small(protocol, &disk).open().expect("it recovers");
            if checkpointed {
                db.checkpoint().expect("the disk works");
            }
            db
        };
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
        let table = TableDef::builder("task").column(column("id")).column(column("place")).key(["id"]);
        let table = table.unique_index("once", ["place"], Organization::Hash).deferred().finish().expect("valid");
        let db = small(protocol, &disk).open().expect("a new database opens");
        let tasks = db.declare(table).expect("it is new");
        let row = |id: u32, place: u32| [Value::from(id), Value::from(place)];
        let load = |tx: &seriatim::Tx| (0..8).try_for_each(|id| tx.insert_dyn(&tasks, &row(id, id)));
        db.session().transact(load).expect("they differ");
        drop((tasks, db));
        let db = reopened();
        let tasks = db.open_dyn("task").expect("it is there");
        let swap = |tx: &seriatim::Tx, to: u32| {
            tx.put_dyn(&tasks, &row(1, 2))?;
            tx.put_dyn(&tasks, &row(2, to))
        };
        db.session().transact(|tx| swap(tx, 1)).expect("they differ at the end");
        assert!(db.session().transact(|tx| swap(tx, 3)).is_err(), "{protocol}");
        db.migration().change("task", [Change::drop_index("once")]).run().expect("the disk works");
        drop((tasks, db));
        let db = reopened();
        let tasks = db.open_dyn("task").expect("it is there");
        db.session().transact(|tx| tx.insert_dyn(&tasks, &row(9, 3))).expect("nothing is checked any more");
        assert_eq!(db.check_indexes().expect("they agree")[0].rows, 9, "{protocol}");
    }
}

/// The second version opens the directory of the first in one line, and the first opens it afterwards. Under every
/// protocol, with and without a checkpoint between.
#[test]
fn versions_of_a_program_take_turns_at_a_directory() {
    for (protocol, checkpointed) in names().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let disk = FaultyDisk::new(51);
        let reopened = || {
            disk.crash();
            let db = small(protocol, &disk).open().expect("it recovers");
            if checkpointed {
                db.checkpoint().expect("the disk works");
            }
            db
        };
        load(&small(protocol, &disk).open().expect("a new database opens"));
        assert_eq!(orders(&reopened()), (0..ORDERS).map(evolved).collect::<Vec<_>>(), "{protocol}");
        let db = reopened();
        assert_eq!(orders(&db), (0..ORDERS).map(evolved).collect::<Vec<_>>(), "{protocol}: nothing is to be done");
        drop(db);

        // A column that was renamed is found by its former name, but a wider type is none of the first version.
        let db = reopened();
        let refused = db.table::<first::Order>().expect_err("it was widened").to_string();
        assert!(refused.contains("column `cents` is u64, and not all of its values are u32"), "{refused}");
        let narrowed = db.migration().change("order", [Change::set_type("cents", ColumnType::U32)]).run();
        narrowed.expect("each value fits");
        drop(db);
        let db = reopened();
        let old = db.table::<first::Order>().expect("it finds what it knows");
        let id = ORDERS;
        let mut session = db.session();
        session
            .transact(|tx| {
                assert_eq!(tx.require(&old, &3)?.to_owned(), order(3));
                tx.put(&old, &first::Order { note: None, ..order(3) })?;
                tx.insert(&old, &order(id))
            })
            .expect("it runs alone");
        let refused = session.transact(|tx| tx.put(&old, &first::Order { total: 1000, ..order(id) }));
        let wanted =
            "a row of order violates check constraint payable: id 12, cents 1000, note NULL, state 1, due NULL";
        assert_eq!(refused.expect_err("it holds for all programs").to_string(), wanted, "{protocol}");
        drop((session, old, db));
        let mut expected: Vec<_> = (0..=ORDERS).map(evolved).collect();
        expected[3].note = None;
        assert_eq!(orders(&reopened()), expected, "{protocol}");
    }
}

fn column(name: &'static str) -> ColumnDef {
    ColumnDef::new(name, ColumnType::U32)
}

/// What a directory has.
#[derive(Debug, PartialEq)]
struct Contents {
    /// Each table with its declaration and rows.
    tables: BTreeMap<String, (TableDef, Vec<Vec<Value>>)>,
    /// Each sequence with its step, and the table to which it belongs.
    sequences: Vec<(String, i64, Option<String>)>,
}

fn contents(db: &Database) -> Contents {
    let table = |name: String| {
        let table = db.open_dyn(&name).expect("it is listed");
        let mut rows = Vec::new();
        db.each_row_dyn(&table, |row| rows.push(row.values())).expect("no transaction is open");
        rows.sort_by_key(|row| row[0].to_string());
        (name, (TableDef { capacity: 0, ..table.definition().clone() }, rows))
    };
    db.check_indexes().expect("indexes and rows agree");
    db.check_structure().expect("no transaction is open");
    let sequence = |it: seriatim::Sequence| (it.definition().name.to_string(), it.definition().step(), it.table());
    let sequences = db.sequences().into_iter().map(sequence).collect();
    Contents { tables: db.table_names().into_iter().map(table).collect(), sequences }
}

/// Rows with numbers, each of a row of another table, with which it goes.
fn children(of: &'static str) -> TableDef {
    let id = column("id").identity(Identity::by_default());
    let table = TableDef::builder("child").column(id).column(column("of")).key(["id"]).index("by_of", ["of"]);
    table.reference(ReferenceDef::new(["of"], of).on_delete(OnChange::Cascade)).finish().expect("a table")
}

/// Rows that are inserted now have numbers of their own, and refer to rows that exist.
fn check_children(db: &Database, context: &str) {
    let tables = ["child", "held"].map(|name| db.open_dyn(name).expect("it is there"));
    let mut session = db.session();
    let inserted = session.transact(|tx| {
        tx.insert_new_dyn(&tables[0], &[Value::from(0u32), Value::from(7u32)])?;
        tx.insert_new_dyn(&tables[0], &[Value::from(0u32), Value::from(8u32)])
    });
    let last = inserted.unwrap_or_else(|error| panic!("{context}: {error}"));
    let orphan = session.transact(|tx| tx.insert_new_dyn(&tables[0], &[Value::from(0u32), Value::from(70u32)]));
    assert!(matches!(orphan, Err(TransactError::ForeignKey { .. })), "{context}: {orphan:?}");
    let deleted = session.transact(|tx| {
        tx.delete_dyn(&tables[1], &[Value::from(8u32)])?;
        Ok::<_, Abort>(tx.get_dyn(&tables[0], &[Value::from(*last as u32)])?.is_none())
    });
    assert!(deleted.unwrap_or_else(|error| panic!("{context}: {error}")).into_value(), "{context}");
}

/// One migration with a change of every kind.
fn migrate(db: &Database) -> bool {
    let changed = db
        .migration()
        .change("order", [Change::add_column(column("n").default("7")), Change::set_type("total", ColumnType::U64)])
        .change(
            "kept",
            [
                Change::add_unique_index("by_n", ["n"]),
                Change::add_check("few", "n BETWEEN 81 AND 100"),
                Change::rename_table("held"),
            ],
        )
        .create(TableDef::builder("new").column(column("id")).key(["id"]).finish().expect("a table"))
        .create(children("held"))
        .alter_sequence("known", [SequenceChange::Increment(5)])
        .create_sequence(SequenceDef::new("s"))
        .truncate("emptied")
        .drop_table("dropped")
        .run();
    changed.is_ok()
}

/// Cuts the power at each operation of a migration: all of it is made, or nothing, and it can be made afterwards.
#[test]
fn a_power_cut_during_a_migration_leaves_all_of_it_or_nothing() {
    let first = seed("evolved");
    let protocols: Vec<&str> = std::iter::once("auto").chain(names()).collect();
    for (case, protocol) in (0..tries(1, 28)).zip(protocols.iter().cycle()) {
        cut(first.wrapping_add(case), protocol, migrate);
    }
}

/// The same changes in an explicit transaction, with rows before, between and after them, and tables that it drops
/// again.
fn mix(db: &Database) -> bool {
    let change = |tx: &Transaction<'_>| {
        let (order, kept) = (tx.open_dyn("order")?, tx.open_dyn("kept")?);
        let row = |id: u32| [Value::from(id), Value::from(100 - id)];
        tx.delete_dyn(&order, &[Value::from(0u32)])?;
        tx.insert_dyn(&kept, &row(20))?;
        let new = TableDef::builder("new").column(column("id")).column(column("n")).key(["id"]).finish()?;
        let new = tx.declare(new)?;
        let child = tx.declare(children("kept"))?;
        (0..4u32).try_for_each(|of| tx.insert_new_dyn(&child, &[Value::from(0u32), Value::from(of)]).map(drop))?;
        let kept = tx.open_dyn("kept")?;
        tx.delete_dyn(&kept, &[Value::from(3u32)])?;
        tx.migration().create_sequence(SequenceDef::new("s")).run()?;
        tx.next(&tx.sequence("s")?)?;
        (0..20).try_for_each(|id| tx.insert_dyn(&new, &row(id)))?;
        let brief = TableDef::builder("brief").column(column("id")).column(column("n")).key(["id"]).finish()?;
        let brief = tx.declare(brief)?;
        tx.insert_dyn(&brief, &row(1))?;
        tx.migration().drop_table("brief").truncate("emptied").drop_table("dropped").run()?;
        tx.migration()
            .change("order", [Change::add_column(column("n").default("7")), Change::set_type("total", ColumnType::U64)])
            .change(
                "kept",
                [
                    Change::add_unique_index("by_n", ["n"]),
                    Change::add_check("few", "n BETWEEN 79 AND 100"),
                    Change::rename_table("held"),
                ],
            )
            .run()?;
        let (order, held, emptied) = (tx.open_dyn("order")?, tx.open_dyn("held")?, tx.open_dyn("emptied")?);
        tx.update_dyn(&order, &[Value::from(1u32)], &[("n", Value::from(8u32))])?;
        tx.insert_dyn(&held, &row(21))?;
        tx.insert_dyn(&emptied, &row(1))?;
        let steps = tx.migration().change("new", [Change::add_index("by_n", ["n"])]);
        steps.alter_sequence("known", [SequenceChange::Increment(5)]).run()?;
        tx.next(&tx.sequence("known")?)?;
        let new = tx.open_dyn("new")?;
        tx.delete_dyn(&new, &[Value::from(3u32)])?;
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let mut session = db.session();
    session.begin().is_ok_and(|tx| change(&tx).is_ok() && tx.commit().is_ok())
}

/// The protocols that have explicit transactions.
fn explicit() -> Vec<&'static str> {
    let plans = |name: &&str| available_protocols().iter().any(|info| info.name == *name && info.requirements.plan);
    names().filter(|name| !plans(name)).collect()
}

/// Cuts the power at each operation of a transaction that changes tables and rows: all of it is there, or nothing.
#[test]
fn a_power_cut_leaves_tables_and_rows_of_one_transaction_or_neither() {
    let first = seed("mixed");
    let protocols: Vec<&str> = std::iter::once("auto").chain(explicit()).collect();
    for (case, protocol) in (0..tries(2, 28)).zip(protocols.iter().cycle().skip(first as usize % protocols.len())) {
        cut(first.wrapping_add(case), protocol, mix);
    }
}

/// A disk with the tables that are changed, and what it has.
fn prepared(seed: u64, protocol: &str) -> (FaultyDisk, Contents) {
    let disk = FaultyDisk::new(seed);
    let db = small(protocol, &disk).open().expect("a new database opens");
    load(&db);
    db.migration().create_sequence(SequenceDef::new("known")).run().expect("the disk works");
    for name in ["kept", "emptied", "dropped"] {
        let id = if name == "dropped" { column("id").identity(Identity::by_default()) } else { column("id") };
        let table = TableDef::builder(name).column(id).column(column("n")).key(["id"]);
        let table = db.declare(table.finish().expect("a table")).expect("the disk works");
        let row = |id: u32| [Value::from(id), Value::from(100 - id)];
        let load = |tx: &seriatim::Tx| (0..20).try_for_each(|id| tx.insert_dyn(&table, &row(id)));
        db.session().transact(load).expect("it runs alone");
    }
    let before = contents(&db);
    db.close().expect("the disk works");
    (disk, before)
}

/// Makes an explicit transaction of changes while the disk fails at each of its operations in turn, or is full from it
/// on.
#[test]
fn a_disk_that_fails_or_fills_up_leaves_tables_and_rows_of_one_transaction_or_neither() {
    for (protocol, fills_up) in explicit().into_iter().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let (disk, before) = prepared(61, protocol);
        let open = |disk: &FaultyDisk| small(protocol, disk).open().expect("it recovers");
        let after = {
            let db = open(&disk.fork(0));
            assert!(mix(&db));
            contents(&db)
        };
        let (mut made, mut not_made) = (0, 0);
        for n in 1.. {
            let disk = disk.fork(n);
            let db = open(&disk);
            match fills_up {
                true => disk.fail(Operation::Write, n, Times::ForEver, ErrorKind::StorageFull),
                false => disk.fail(Operation::Sync, n, Times::Once, ErrorKind::Other),
            }
            if mix(&db) {
                break;
            }
            disk.heal();
            let context = format!("{protocol}, full: {fills_up}, operation {n}");
            if fills_up {
                // There is space again: who could not be told sees all of it or nothing, and others go on.
                (0..4).for_each(|_| db.step());
                let found = contents(&db);
                assert!(found == before || found == after, "{context}: {found:?}");
                db.declare(TableDef::builder("later").column(column("id")).key(["id"]).finish().expect("a table"))
                    .expect("there is space");
            }
            disk.crash();
            drop(db);
            let mut found = contents(&open(&disk));
            assert_eq!(found.tables.remove("later").is_some(), fills_up, "{context}");
            assert!(found == before || found == after, "{context}: {found:?}");
            *if found == after { &mut made } else { &mut not_made } += 1;
        }
        assert!(made + not_made > 0 && (made > 0 || !fills_up), "{protocol}, {fills_up}: {made}, {not_made}");
    }
}

fn cut(seed: u64, protocol: &str, migrate: fn(&Database) -> bool) {
    let (disk, before) = prepared(seed, protocol);
    let reopen = |disk: &FaultyDisk, n: u64| {
        small(protocol, disk).open().unwrap_or_else(|error| panic!("{protocol}, cut {n}: {error}"))
    };
    let after = {
        let disk = disk.fork(0);
        let db = reopen(&disk, 0);
        assert!(migrate(&db));
        contents(&db)
    };
    assert!(
        after.tables.len() == 5
            && after.tables["held"].0.indexes.len() == 1
            && after.tables["held"].0.checks.len() == 1
            && after.tables["child"].0.references[0].table == "held"
            && after.tables["emptied"].1.len() < 2,
        "{after:?}"
    );
    let sequences: Vec<(&str, i64)> = after.sequences.iter().map(|(name, step, _)| (&**name, *step)).collect();
    assert_eq!(sequences, [("known", 5), ("child_id_seq", 1), ("s", 1)]);
    assert_eq!(after.tables["order"].1[3][3..], [Value::from(7u32)]);
    let (mut made, mut not_made) = (0, 0);
    for n in 1.. {
        let disk = disk.fork(seed ^ n);
        disk.crash_at(n);
        let is_done = small(protocol, &disk).open().is_ok_and(|db| migrate(&db));
        let is_cut = !disk.is_powered();
        disk.crash();
        let db = reopen(&disk, n);
        let found = contents(&db);
        match found == after {
            true => made += 1,
            false => {
                assert!(found == before && !is_done, "cut {n}: {found:?}");
                not_made += 1;
                assert!(migrate(&db), "cut {n}");
                assert_eq!(contents(&db), after, "cut {n}");
            }
        }
        // A checkpoint, and another opening, which forgets the tables that are void.
        db.checkpoint().expect("the disk works");
        db.close().expect("the disk works");
        let db = reopen(&disk, n);
        assert_eq!(contents(&db), after, "cut {n}");
        db.close().expect("the disk works");
        let db = reopen(&disk, n);
        assert_eq!(contents(&db), after, "cut {n}");
        check_children(&db, &format!("{protocol}, cut {n}"));
        drop(db);
        if !is_cut {
            break;
        }
    }
    eprintln!("{protocol}: {} images", made + not_made);
    assert!(made > 1 && not_made > 10, "{made}, {not_made}");
}

/// A table whose defaults and key change, in steps of their own. A key is set in an explicit transaction.
fn default_step(db: &Database, at: usize) -> bool {
    let change = |change| db.migration().change("t", [change]).run().is_ok();
    let key = |parts: &[&'static str]| {
        let mut session = db.session();
        session.begin().is_ok_and(|tx| {
            tx.migration().change("t", [Change::set_key(parts.iter().copied())]).run().is_ok() && tx.commit().is_ok()
        })
    };
    let insert = |values: &[Value]| {
        let table = db.open_dyn("t").expect("it is there");
        db.session().transact(|tx| tx.insert_dyn(&table, values)).is_ok()
    };
    let row = |id: u32| [Value::from(id), Value::from(1000 - id), Value::Timestamp(0)];
    match at {
        0 => change(Change::set_default("n", Some("7".into()))),
        1 => change(Change::compute_default("made", "now()")),
        2 => key(&["n"]),
        3 => insert(&row(500)),
        4 => change(Change::set_default("made", None)),
        5 => key(&["n", "id"]),
        6 => insert(&row(501)),
        7 => change(Change::compute_default("n", "3 + 4")),
        _ => key(&["id"]),
    }
}

const DEFAULT_STEPS: usize = 9;

/// The table comes back from dumps: as JSON by itself, as CSV to a table that is declared. As SQL it is written alike.
fn check_dumps(db: &Database, context: &str) {
    let dumped = |db: &Database, format, tables: &[&str]| {
        let mut bytes = Vec::new();
        db.dump(format, tables, &mut bytes).expect("there is memory");
        String::from_utf8(bytes).expect("it is text")
    };
    let [json, sql] = [Format::Json, Format::Sql].map(|format| dumped(db, format, &[]));
    let csv = dumped(db, Format::Csv, &["t"]);
    let (by_json, by_csv) = (Database::in_memory().expect("memory"), Database::in_memory().expect("memory"));
    by_json.load(json.as_bytes()).unwrap_or_else(|error| panic!("{context}: {error}"));
    by_csv.declare(db.open_dyn("t").expect("it is there").definition().clone()).expect("it is new");
    by_csv.load_csv("t", csv.as_bytes()).unwrap_or_else(|error| panic!("{context}: {error}"));
    for copy in [by_json, by_csv] {
        assert_eq!(contents(&copy), contents(db), "{context}");
        let again =
            [dumped(&copy, Format::Json, &[]), dumped(&copy, Format::Sql, &[]), dumped(&copy, Format::Csv, &["t"])];
        assert_eq!(again, [json.clone(), sql.clone(), csv.clone()], "{context}");
    }
}

/// Cuts the power at each operation of changes of defaults and keys: each is made as a whole or not at all. What was
/// acknowledged is there, before and after a checkpoint. Rows are found by the key that the table then has.
#[test]
fn a_power_cut_during_changes_of_defaults_and_keys_leaves_each_of_them_whole() {
    let first = seed("defaults");
    for (case, protocol) in (0..tries(2, 14)).zip(explicit().into_iter().cycle().skip(first as usize % 7)) {
        let seed = first.wrapping_add(case);
        let disk = FaultyDisk::new(seed);
        let open = |disk: &FaultyDisk| small(protocol, disk).open();
        {
            let db = open(&disk).expect("a new database opens");
            let made = ColumnDef::new("made", ColumnType::Timestamp);
            let table = TableDef::builder("t").column(column("id")).column(column("n")).column(made).key(["id"]);
            let table = db.declare(table.index("by_n", ["n"]).finish().expect("a table")).expect("it is new");
            let row = |id: u32| [Value::from(id), Value::from(100 - id), Value::Timestamp(id.into())];
            let load = |tx: &seriatim::Tx| (0..30).try_for_each(|id| tx.insert_dyn(&table, &row(id)));
            db.session().transact(load).expect("it runs alone");
        }
        let mut states = Vec::new();
        {
            let db = open(&disk.fork(0)).expect("it recovers");
            states.push(contents(&db));
            for at in 0..DEFAULT_STEPS {
                assert!(default_step(&db, at), "{protocol}: {at}");
                states.push(contents(&db));
                check_dumps(&db, &format!("{protocol}: {at}"));
            }
        }
        let table = |state: &Contents| state.tables["t"].0.clone();
        assert_eq!(table(&states[2]).columns[2].computed_default.as_deref(), Some("now()"));
        assert_ne!(table(&states[5]).key, table(&states[6]).key);
        for n in (1..).step_by(1 + (seed % 2) as usize) {
            let context = format!("{protocol}, seed {seed}, cut {n}");
            let disk = disk.fork(seed ^ n);
            disk.crash_at(n);
            let steps = |db: &Database| (0..DEFAULT_STEPS).take_while(|at| default_step(db, *at)).count();
            let acknowledged = open(&disk).map_or(0, |db| steps(&db));
            let is_cut = !disk.is_powered();
            for checkpointed in [false, true] {
                disk.crash();
                let db = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                let found = contents(&db);
                let at = states[acknowledged..].iter().take(2).position(|state| *state == found);
                assert!(at.is_some(), "{context}, {acknowledged} acknowledged, checkpoint {checkpointed}: {found:?}");
                let (handle, (definition, rows)) = (db.open_dyn("t").expect("it is there"), &found.tables["t"]);
                let key_of = |row: &Vec<Value>| -> Vec<Value> {
                    definition.key.iter().map(|part| row[part.column.index()].clone()).collect()
                };
                let all = db.session().transact(|tx| {
                    rows.iter().try_fold(0, |all, row| Ok(all + u32::from(tx.exists_dyn(&handle, &key_of(row))?)))
                });
                assert_eq!(*all.expect("it runs alone") as usize, rows.len(), "{context}");
                let again = db.session().transact(|tx| tx.insert_dyn(&handle, &rows[0]));
                assert!(matches!(again, Err(TransactError::Duplicate { .. })), "{context}: {again:?}");
                db.checkpoint().expect("the disk works");
            }
            if !is_cut {
                assert!(acknowledged == DEFAULT_STEPS && n > 20, "{context}");
                break;
            }
        }
    }
}

/// How many rows of the table have not been converted since its columns changed.
fn earlier(db: &Database) -> u64 {
    db.statistics().tables.iter().map(|table| table.earlier_rows).sum()
}

const ROWS: u32 = 150;

/// A table whose rows have long texts and parts that never change.
fn with_rows(db: &Database) {
    let text = |name: &'static str| ColumnDef::new(name, ColumnType::LongText);
    let table = TableDef::builder("t").column(column("id")).column(column("n")).column(text("label").immutable());
    let table = table.column(text("note").nullable()).key(["id"]).index("by_n", ["n"]).finish().expect("a table");
    let table = db.declare(table).expect("it is new");
    let row = |id: u32| {
        let note = if id.is_multiple_of(3) { Value::NONE } else { Value::from(format!("note {id}").as_str()).some() };
        [Value::from(id), Value::from(id % 7), Value::from(format!("label {id}").as_str()), note]
    };
    let load = |tx: &seriatim::Tx| (0..ROWS).try_for_each(|id| tx.insert_dyn(&table, &row(id)));
    db.session().transact(load).expect("it runs alone");
}

/// A step of the following tests. `false` if the disk has failed.
fn lazy_step(db: &Database, at: usize) -> bool {
    let change = |change| db.migration().change("t", [change]).run().is_ok();
    let write = |write: &dyn Fn(&seriatim::Tx, &seriatim::DynHandle, u32) -> Result<(), seriatim::Abort>, of: u32| {
        let table = db.open_dyn("t").expect("it is there");
        let ids = (0..ROWS).filter(|id| id % 11 == of);
        db.session().transact(|tx| ids.clone().try_for_each(|id| write(tx, &table, id))).is_ok()
    };
    let set = |tx: &seriatim::Tx, table: &seriatim::DynHandle, id: u32, column, value: Value| {
        tx.update_if_dyn(table, &[Value::from(id)], &[(column, value)]).map(drop)
    };
    match at {
        0 => change(Change::add_column(column("c").default("7"))),
        1 => write(&|tx, table, id| set(tx, table, id, "n", Value::from(9u32)), 1),
        2 => write(&|tx, table, id| set(tx, table, id, "c", Value::from(id)), 2),
        3 => change(Change::add_column(ColumnDef::new("d", ColumnType::LongText).default("a text"))),
        4 => write(&|tx, table, id| tx.delete_if_dyn(table, &[Value::from(id)]).map(drop), 3),
        5 => write(&|tx, table, id| set(tx, table, id, "d", Value::from("another")), 2),
        // A value of this column must not come back.
        6 => change(Change::drop_column("c")),
        7 => change(Change::add_column(column("c").nullable())),
        8 => write(&|tx, table, id| set(tx, table, id, "c", Value::from(id).some()), 4),
        9 => write(&|tx, table, id| set(tx, table, id, "note", Value::from("new").some()), 5),
        _ => change(Change::add_index("by_c", ["c"])),
    }
}

const STEPS: usize = 11;

/// Rows are there after power cuts as they were before, whatever of them was converted, logged, and in a checkpoint.
#[test]
fn rows_of_earlier_layouts_survive_power_cuts_and_checkpoints() {
    let mut rng = seriatim::Rng::from_seed(seed("earlier"));
    for protocol in names() {
        let open = |disk: &FaultyDisk| small(protocol, disk).open().expect("it recovers");
        let expected = {
            let db = small(protocol, &FaultyDisk::new(60)).open().expect("a new database opens");
            with_rows(&db);
            (0..STEPS).for_each(|at| assert!(lazy_step(&db, at), "{protocol}: {at}"));
            contents(&db)
        };
        let mut was_mixed = false;
        for _ in 0..tries(2, 20) {
            let disk = FaultyDisk::new(61);
            let mut db = open(&disk);
            with_rows(&db);
            let left = db.statistics().tables_left;
            for at in 0..STEPS {
                assert!(lazy_step(&db, at), "{protocol}: {at}");
                was_mixed |= (1..u64::from(ROWS)).contains(&earlier(&db));
                if rng.percent(40) {
                    (0..rng.below(4)).for_each(|_| db.step());
                }
                if rng.percent(30) {
                    db.checkpoint().expect("the disk works");
                }
                if rng.percent(30) {
                    let before = contents(&db);
                    drop(db);
                    disk.crash();
                    db = open(&disk);
                    assert_eq!(contents(&db), before, "{protocol}: {at}");
                    assert_eq!(earlier(&db), 0, "{protocol}: recovery converts rows");
                }
            }
            assert_eq!(contents(&db), expected, "{protocol}");
            // A checkpoint after all are converted has none of before, and an opening forgets what they were.
            for _ in 0..3 {
                drop(db);
                disk.crash();
                db = open(&disk);
                db.checkpoint().expect("the disk works");
                assert_eq!(contents(&db), expected, "{protocol}");
            }
            assert_eq!(db.statistics().tables_left, left - 1, "{protocol}: an index is new");
        }
        assert!(was_mixed, "{protocol}");
    }
}

/// Cuts the power at each operation of the steps: what was acknowledged is there, and nothing is there by half.
#[test]
fn a_power_cut_while_rows_are_converted_leaves_each_step_whole() {
    let first = seed("lazily");
    let protocols: Vec<&str> = names().collect();
    for (case, protocol) in (0..tries(1, 14)).zip(protocols.iter().cycle()) {
        let seed = first.wrapping_add(case);
        let disk = FaultyDisk::new(seed);
        let open = |disk: &FaultyDisk| small(protocol, disk).open();
        with_rows(&open(&disk).expect("a new database opens"));
        let run = |db: &Database, see: &mut dyn FnMut()| {
            (0..STEPS).all(|at| {
                let is_done = lazy_step(db, at);
                if is_done {
                    see();
                }
                db.step();
                is_done && (at % 4 != 2 || db.checkpoint().is_ok())
            })
        };
        let mut states = Vec::new();
        {
            let disk = disk.fork(0);
            let db = open(&disk).expect("it recovers");
            states.push(contents(&db));
            assert!(run(&db, &mut || states.push(contents(&db))));
        }
        for n in (1..).step_by(1 + (seed % 3) as usize) {
            let disk = disk.fork(seed ^ n);
            disk.crash_at(n);
            let mut acknowledged = 0;
            let is_whole = open(&disk).is_ok_and(|db| run(&db, &mut || acknowledged += 1));
            let is_cut = !disk.is_powered();
            disk.crash();
            let db = open(&disk).unwrap_or_else(|error| panic!("{protocol}, seed {seed}, cut {n}: {error}"));
            let found = contents(&db);
            let at = states[acknowledged..].iter().take(2).any(|state| *state == found);
            assert!(at, "{protocol}, seed {seed}, cut {n}, {acknowledged} acknowledged: {found:?}");
            if !is_cut {
                assert!(is_whole && n > 20, "{protocol}, seed {seed}, cut {n}");
                break;
            }
        }
    }
}

/// A table with rows of an earlier layout is truncated before these are converted. The id of what was truncated is not
/// that of another table while the row of the earlier layout names it.
#[test]
fn an_id_is_not_given_out_again_while_an_earlier_layout_refers_to_it() {
    let table = |name: &'static str, columns: &[&'static str]| {
        let table = TableDef::builder(name).column(ColumnDef::new("id", ColumnType::U32)).key(["id"]);
        let add = |table: seriatim::catalog::TableBuilder, name: &&'static str| {
            table.column(ColumnDef::new(*name, ColumnType::U32))
        };
        columns.iter().fold(table, add).finish().expect("it is sound")
    };
    for protocol in names() {
        let disk = FaultyDisk::new(73);
        let open = || small(protocol, &disk).open().unwrap_or_else(|error| panic!("{protocol}: {error}"));
        let db = open();
        let gone = db.declare(table("gone", &["a"])).expect("it is new");
        let row = |columns: u32| (0..columns).map(Value::from).collect::<Vec<_>>();
        db.session().transact(|tx| tx.insert_dyn(&gone, &row(2))).expect("a new key");
        let more = Change::add_column(ColumnDef::new("more", ColumnType::U32).default("1"));
        db.migration().change("gone", [more]).run().expect("it is new");
        db.migration().truncate("gone").run().expect("nothing refers to it");
        db.checkpoint().expect("the disk works");
        drop((gone, db));
        let db = open();
        for (name, columns) in [("wide", &["a", "b", "c"][..]), ("narrow", &[]), ("like", &["a", "more"])] {
            let new = db.declare(table(name, columns)).expect("it is new");
            db.session().transact(|tx| tx.insert_dyn(&new, &row(columns.len() as u32 + 1))).expect("a new key");
        }
        drop(db);
        let db = open();
        for (name, rows) in [("wide", 1), ("narrow", 1), ("like", 1), ("gone", 0)] {
            let table = db.open_dyn(name).expect("it is there");
            let count = db.session().transact(|tx| Ok(tx.scan_all_dyn(&table)?.count())).expect("it is read");
            assert_eq!(count.into_value(), rows, "{protocol}: {name}");
        }
    }
}
