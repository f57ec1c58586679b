//! Changes of tables in explicit transactions, under every protocol that has these.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{
    ColumnDef, ColumnType, Identity, OnChange, Organization, ReferenceDef, SequenceChange, SequenceDef, TableDef, Value,
};
use seriatim::{
    Abort, Constraints, Database, Freshness, Migration, Refusal, SchemaError, Session, Table, TransactError,
    Transaction, TransactionOptions, Tx, procedure, procedures, thread,
};

use crate::common::{Setting, each, sampled};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "item", key(id), index(name = "by_tag", columns(tag)))]
struct Item {
    id: u32,
    tag: u16,
    amount: i32,
    note: Option<String>,
}

fn item(id: u32) -> Item {
    Item { id, tag: (id % 3) as u16, amount: 100, note: id.is_multiple_of(2).then(|| format!("note {id}")) }
}

const IDS: u32 = 12;

/// Runs a test where explicit transactions can be opened, with items.
fn each_explicit(test: impl Fn(&Setting, &Database)) {
    each(|setting| {
        if !setting.protocol.requirements.plan {
            test(setting, &items(setting.open()));
        }
    });
}

/// Whether a transaction's place in the serial order is at its commit.
fn is_ordered_at_commit(setting: &Setting) -> bool {
    let capabilities = setting.protocol.capabilities;
    capabilities.strict && capabilities.snapshots != Freshness::Past
}

fn items(db: Database) -> Database {
    let items = db.create::<Item>().expect("a valid table");
    let load = |tx: &Tx| (0..IDS).try_for_each(|id| tx.insert(&items, &item(id)));
    db.session().transact(load).expect("it runs alone");
    db
}

fn declared(name: &'static str) -> TableDef {
    let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
    TableDef::builder(name).column(column("id")).column(column("of")).key(["id"]).finish().expect("a valid table")
}

/// The declarations and rows of all tables that others see.
fn everything(db: &Database) -> Vec<(TableDef, Vec<Vec<Value>>)> {
    db.check_indexes().expect("indexes and rows agree");
    let names = db.table_names();
    let all = names.iter().map(|name| {
        let (table, mut rows) = (db.open_dyn(name).expect("it exists"), Vec::new());
        db.each_row_dyn(&table, |row| rows.push(row.values())).expect("no transaction is open");
        rows.sort_by_key(|row| format!("{row:?}"));
        (table.definition().clone(), rows)
    });
    all.collect()
}

/// Writes rows of a table, of which the transaction knows the columns as it has changed them: deletes one, and updates
/// one.
fn write(tx: &Transaction<'_>, table: &str, round: u32) {
    let table = tx.open_dyn(table).expect("it exists");
    tx.delete_dyn(&table, &[Value::from(round)]).expect("no conflict");
    let (key, tag) = ([Value::from(IDS - 1 - round)], [("tag", Value::from(9u16))]);
    tx.update_dyn(&table, &key, &tag).expect("no conflict");
    assert_eq!(
        tx.get_dyn(&table, &key).expect("no conflict").expect("it is there").get("tag"),
        Some(Value::from(9u16))
    );
    assert!(tx.get_dyn(&table, &[Value::from(round)]).expect("no conflict").is_none());
}

type Steps = for<'m> fn(Migration<'m>) -> Migration<'m>;

/// Each kind of step: its name, the step, and the name of the table of items afterwards.
const KINDS: [(&str, Steps, &str); 19] = [
    ("create", |to| to.create(declared("other")), "item"),
    (
        "add column",
        |to| to.change("item", [Change::add_column(ColumnDef::new("n", ColumnType::U8).default("7"))]),
        "item",
    ),
    ("drop column", |to| to.change("item", [Change::drop_column("note")]), "item"),
    ("rename column", |to| to.change("item", [Change::rename_column("note", "text")]), "item"),
    ("widen", |to| to.change("item", [Change::set_type("amount", ColumnType::I64)]), "item"),
    ("nullable", |to| to.change("item", [Change::set_nullable("amount", true)]), "item"),
    ("default", |to| to.change("item", [Change::set_default("amount", Some("3".into()))]), "item"),
    ("index", |to| to.change("item", [Change::add_index("by_amount", ["amount", "tag"])]), "item"),
    ("unique", |to| to.change("item", [Change::add_unique_index("by_all", ["tag", "id"])]), "item"),
    ("condition", |to| to.change("item", [Change::add_check("positive", "amount >= 0")]), "item"),
    ("drop index", |to| to.change("item", [Change::drop_index("by_tag")]), "item"),
    ("rename index", |to| to.change("item", [Change::rename_index("by_tag", "by_sort")]), "item"),
    ("hash", |to| to.change("item", [Change::set_organization(Organization::Hash)]), "item"),
    ("rename", |to| to.change("item", [Change::rename_table("thing")]), "thing"),
    ("truncate", |to| to.truncate("item"), ""),
    ("drop", |to| to.drop_table("item"), ""),
    ("drop and create", |to| to.drop_table("item").create(declared("item2")), ""),
    ("both", |to| to.change("item", [Change::add_index("by_n", ["note"]), Change::rename_table("thing")]), "thing"),
    (
        "several",
        |to| {
            let column = ColumnDef::new("n", ColumnType::U8).nullable();
            to.change("item", [Change::add_column(column), Change::add_index("by_n", ["n"])]).create(declared("other"))
        },
        "item",
    ),
];

/// A commit leaves what a migration by itself leaves, with the same writes before and after it. A roll-back leaves what
/// was there.
#[test]
fn a_step_is_committed_and_rolled_back_with_the_rows_written_before_and_after_it() {
    each_explicit(|setting, db| {
        let before = everything(db);
        for (kind, steps, name) in KINDS {
            let context = format!("{kind}, under {}", setting.protocol.name);
            let mut session = db.session();
            let change = |session: &mut Session, commits: bool| {
                let tx = session.begin().expect("a worker is free");
                write(&tx, "item", 0);
                steps(tx.migration()).run().unwrap_or_else(|error| panic!("{context}: {error}"));
                if !name.is_empty() {
                    write(&tx, name, 1);
                }
                match commits {
                    true => drop(tx.commit().unwrap_or_else(|error| panic!("{context}: {error}"))),
                    false => tx.rollback(),
                }
            };
            change(&mut session, false);
            assert_eq!(everything(db), before, "{context}: it was rolled back");

            let (apart, model) = (items(setting.open()), items(setting.open()));
            change(&mut apart.session(), true);
            let mut writes = model.session();
            let tx = writes.begin().expect("a worker is free");
            write(&tx, "item", 0);
            tx.commit().expect("it runs alone");
            steps(model.migration()).run().expect("the rows allow it");
            if !name.is_empty() {
                let tx = writes.begin().expect("a worker is free");
                write(&tx, name, 1);
                tx.commit().expect("it runs alone");
            }
            assert_eq!(everything(&apart), everything(&model), "{context}: it was committed");
            apart.check_structure().expect("it is sound");
        }
    });
}

/// As the migration tools of frameworks write them, one statement after the other, with rows between.
#[test]
fn many_steps_and_rows_are_one_transaction() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let (mut session, old) = (db.session(), db.table::<Item>().expect("it exists"));
        let tx = session.begin().expect("a worker is free");
        let other = tx.declare(declared("other")).expect("the name is free");
        (0..5u32).try_for_each(|id| tx.insert_dyn(&other, &[Value::from(id), Value::from(id + 1)])).expect("alone");
        tx.migration().change("other", [Change::add_index("by_of", ["of"])]).run().expect("it exists");
        let brief = TransactionOptions::new().age_max(Duration::from_millis(20));
        // Elsewhere no other transaction may run before the next step.
        if is_ordered_at_commit(setting) {
            let refused = db.session().transact_with(&brief, |tx| tx.count_all_dyn(&other));
            assert!(matches!(refused, Err(TransactError::Excluded { .. })), "{name}: {refused:?}");
        }
        let other = tx.open_dyn("other").expect("it exists");
        tx.insert_dyn(&other, &[Value::from(9u32), Value::from(3u32)]).expect("no conflict");
        let found = tx.find_dyn(&other, "by_of", &[Value::from(3u32)]).expect("it exists");
        assert_eq!(found.try_count().expect("no conflict"), 2, "{name}");
        tx.migration()
            .change("item", [Change::add_column(ColumnDef::new("n", ColumnType::U8).default("7"))])
            .run()
            .expect("the rows allow it");
        tx.migration().change("item", [Change::add_index("by_n", ["n"])]).run().expect("the rows allow it");
        write(&tx, "item", 2);
        tx.migration().change("item", [Change::drop_column("amount")]).run().expect("it exists");
        tx.migration().create(declared("brief")).run().expect("the name is free");
        let brief = tx.open_dyn("brief").expect("it exists");
        tx.insert_dyn(&brief, &[Value::from(1u32), Value::from(1u32)]).expect("no conflict");
        tx.migration().drop_table("brief").run().expect("it exists");
        let swapped = [("item", "other"), ("other", "item")];
        let swap =
            swapped.iter().fold(tx.migration(), |to, (from, into)| to.change(from, [Change::rename_table(*into)]));
        swap.run().expect("each has its own name");
        assert_eq!(tx.table_names(), ["other", "item"], "{name}");
        assert_eq!(db.table_names(), ["item"], "{name}");
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));

        let all = everything(db);
        let [(items, rows), (others, other_rows)] = &all[..] else { panic!("{name}: {all:?}") };
        assert_eq!((&*items.name, &*others.name), ("other", "item"), "{name}");
        let columns: Vec<&str> = items.columns.iter().map(|column| &*column.name).collect();
        assert_eq!(columns, ["id", "tag", "note", "n"], "{name}");
        assert_eq!(rows.len(), IDS as usize - 1, "{name}");
        assert!(rows.iter().all(|row| row[3] == Value::from(7u8)), "{name}: {rows:?}");
        assert_eq!(other_rows.len(), 6, "{name}");
        let gone = db.session().transact(|tx| tx.get(&old, &1).map(drop));
        assert!(matches!(gone, Err(TransactError::TableGone)), "{name}: {gone:?}");
        db.check_structure().expect("it is sound");
    });
}

/// Transactions that run beside it see all of a change or nothing.
#[test]
fn others_see_the_tables_and_rows_of_before_and_then_those_of_after() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let items = db.table::<Item>().expect("it exists");
        let (is_over, seen) = (AtomicBool::new(false), AtomicU32::new(0));
        // All rows have one amount, which rises with each change.
        let read = |snapshot: bool| {
            let (mut session, mut last) = (db.session(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let amounts = |tx: &seriatim::ReadTx| {
                    let all = tx.scan(&items, ..).map(|row| row.map(|row| row.amount()));
                    all.collect::<Result<Vec<_>, Abort>>()
                };
                let amounts = match snapshot {
                    true => session.snapshot(amounts),
                    false => session.transact(|tx| amounts(tx)),
                };
                match amounts {
                    Ok(amounts) => {
                        let first = amounts[0];
                        assert!(
                            amounts.len() == IDS as usize && amounts.iter().all(|it| *it == first),
                            "{name}: {amounts:?}"
                        );
                        assert!(first >= last, "{name}: {first} after {last}");
                        last = first;
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if error.is_retryable() => {}
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        };
        thread::scope(|scope| {
            for snapshot in [false, true] {
                let read = &read;
                scope.spawn(move || read(snapshot));
            }
            struct Over<'o>(&'o AtomicBool);
            impl Drop for Over<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _over = Over(&is_over);
            let mut session = db.session();
            for round in 0..8u32 {
                let wanted = seen.load(Ordering::Relaxed) + 3;
                while seen.load(Ordering::Relaxed) < wanted {
                    thread::sleep(Duration::from_millis(1));
                }
                let commits = round % 4 != 3;
                let index = format!("by_{round}");
                let changed = loop {
                    let tx = session.begin().expect("a worker is free");
                    let step = match round % 2 {
                        0 => Change::add_column(ColumnDef::new(format!("c{round}"), ColumnType::U8).nullable()),
                        _ => Change::add_index(index.clone(), ["amount"]),
                    };
                    let made = tx.migration().change("item", [step]).run();
                    let write = |tx: &Transaction<'_>| {
                        let table = tx.open_dyn("item")?;
                        for id in 0..IDS {
                            let amount = tx.get_dyn(&table, &[Value::from(id)])?.expect("it is there").get("amount");
                            let Some(Value::Integer(amount, _)) = amount else { panic!("{amount:?}") };
                            let amount = Value::from(amount as i32 + 1);
                            tx.update_dyn(&table, &[Value::from(id)], &[("amount", amount)])?;
                        }
                        Ok::<_, Box<dyn std::error::Error>>(())
                    };
                    match made {
                        Ok(_) => write(&tx).unwrap_or_else(|error| panic!("{name}: {error}")),
                        Err(SchemaError::Transact(error)) if error.is_retryable() => continue,
                        Err(error) => panic!("{name}: {error}"),
                    }
                    if !commits {
                        break false;
                    }
                    match tx.commit() {
                        Ok(_) => break true,
                        Err(error) => assert!(error.is_retryable(), "{name}: {error}"),
                    }
                };
                assert_eq!(changed, commits, "{name}");
            }
        });
        let all = everything(db);
        assert!(all[0].1.iter().all(|row| row[2] == Value::from(106i32)), "{name}: {all:?}");
    });
}

#[test]
fn a_rollback_to_a_savepoint_undoes_the_changes_since() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let mut session = db.session();
        let tx = session.begin().expect("a worker is free");
        let first = tx.savepoint().expect("it is open");
        write(&tx, "item", 0);
        tx.migration().change("item", [Change::rename_column("note", "text")]).run().expect("it exists");
        let second = tx.savepoint().expect("it is open");
        tx.declare(declared("other")).expect("the name is free");
        tx.migration()
            .change("item", [Change::add_column(ColumnDef::new("n", ColumnType::U8).default("7"))])
            .run()
            .expect("the rows allow it");
        write(&tx, "item", 1);
        tx.rollback_to(second).expect("it is valid");
        assert_eq!(tx.table_names(), ["item"], "{name}");
        let item = tx.open_dyn("item").expect("it exists");
        assert_eq!(item.definition().columns.len(), 4, "{name}");
        assert_eq!(&*item.definition().columns[3].name, "text", "{name}");
        assert!(tx.get_dyn(&item, &[Value::from(1u32)]).expect("no conflict").is_some(), "{name}");
        tx.migration().drop_table("item").create(declared("item")).run().expect("the name is free");
        tx.rollback_to(second).expect("it is valid");
        write(&tx, "item", 2);
        tx.rollback_to(first).expect("it is valid");
        write(&tx, "item", 3);
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        let all = everything(db);
        assert_eq!((all.len(), &*all[0].0.columns[3].name, all[0].1.len()), (1, "note", IDS as usize - 1), "{name}");
        assert!(!all[0].1.iter().any(|row| row[0] == Value::from(3u32)), "{name}");
        assert!(all[0].1.iter().any(|row| row[0] == Value::from(2u32)), "{name}");
    });
}

/// A step that fails leaves the transaction as it was. The error has the same reason as that of a migration by itself.
#[test]
fn a_step_that_rows_contradict_is_undone_alone() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let mut session = db.session();
        let own = |name: &str| name.to_owned();
        let short = ColumnType::Text { max: 1 };
        let to_other = ReferenceDef::new(["id"], "first").named("to_first");
        let cases = [
            (Change::add_unique_index("by_amount", ["amount"]), Refusal::Duplicate { constraint: own("by_amount") }),
            (Change::add_check("none", "amount < 0"), Refusal::Check { constraint: own("none") }),
            (Change::set_nullable("note", false), Refusal::Null { column: own("note") }),
            (Change::set_type("id", short), Refusal::Value { column: own("id"), ty: short }),
            (
                Change::add_reference(to_other),
                Refusal::ForeignKey { constraint: own("to_first"), referenced: own("first") },
            ),
        ];
        // With rows that are written again.
        let column = || Change::add_column(ColumnDef::new("n", ColumnType::U8).default("7"));
        let unique = Refusal::Duplicate { constraint: own("by_n") };
        let refused = |steps: Migration<'_>, reason: &Refusal| {
            let refused = steps.run().expect_err("the rows do not allow it");
            let SchemaError::Refused { table, reason: found, .. } = refused else { panic!("{name}: {refused}") };
            assert_eq!((&*table, &*found), ("item", reason), "{name}");
        };
        db.declare(declared("first")).expect("a valid table");
        for (step, reason) in &cases {
            refused(db.migration().change("item", [step.clone()]), reason);
            refused(db.migration().change("item", [step.clone(), column()]), reason);
        }
        refused(db.migration().change("item", [column(), Change::add_unique_index("by_n", ["n"])]), &unique);
        let tx = session.begin().expect("a worker is free");
        write(&tx, "item", 0);
        for (step, reason) in &cases {
            refused(tx.migration().create(declared("other")).change("item", [step.clone()]), reason);
            refused(tx.migration().change("item", [column(), step.clone()]), reason);
        }
        refused(tx.migration().change("item", [column(), Change::add_unique_index("by_n", ["n"])]), &unique);
        tx.migration().drop_table("first").run().expect("nothing refers to it");
        assert_eq!(tx.table_names(), ["item"], "{name}");
        let unknown = tx.migration().change("nothing", [Change::drop_column("a")]).run();
        assert!(matches!(unknown, Err(SchemaError::Unknown(_))), "{name}: {unknown:?}");
        let twin = tx.declare(declared("item"));
        assert!(matches!(twin, Err(SchemaError::Exists(_))), "{name}: {twin:?}");
        write(&tx, "item", 1);
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        let all = everything(db);
        assert_eq!((all.len(), all[0].1.len()), (1, IDS as usize - 2), "{name}");
    });
}

/// A table that two transactions create is that of the first. The second waits for it.
#[test]
fn the_second_of_two_transactions_that_create_a_table_fails_or_creates_it() {
    each_explicit(|setting, db| {
        for commits in [true, false] {
            let name = if commits { "kept" } else { "lost" };
            let (mut session, mut other) = (db.session(), db.session());
            let tx = session.begin().expect("a worker is free");
            tx.declare(declared(name)).expect("the name is free");
            let begins = AtomicBool::new(false);
            let second = thread::scope(|scope| {
                let second = scope.spawn(|| {
                    let tx = other.begin().expect("a worker is free");
                    begins.store(true, Ordering::Relaxed);
                    tx.declare(declared(name))?;
                    tx.commit().map_err(|error| SchemaError::Transact(Box::new(error)))
                });
                while !begins.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                match commits {
                    true => drop(tx.commit().expect("it was first")),
                    false => tx.rollback(),
                }
                second.join().expect("no panic")
            });
            match (commits, second) {
                (true, Err(SchemaError::Exists(_))) | (false, Ok(_)) => {}
                (_, second) => panic!("{}: {second:?}", setting.protocol.name),
            }
        }
        assert_eq!(db.table_names(), ["item", "kept", "lost"]);
    });
}

/// Each of two transactions keeps the other from its change: neither waits for ever.
#[test]
fn a_change_waits_for_other_transactions_up_to_a_bound() {
    let mut is_first = true;
    sampled("changes that wait", |setting| {
        if setting.protocol.requirements.plan {
            return;
        }
        let (db, name) = (&items(setting.open()), setting.protocol.name);
        let items = db.table::<Item>().expect("it exists");
        let (mut session, mut other) = (db.session(), db.session());
        let reader = other.begin().expect("a worker is free");
        reader.get(&items, &1).expect("no conflict");
        let tx = session.begin().expect("a worker is free");
        tx.declare(declared("other")).expect("a table of its own waits for nobody");
        let busy = tx.migration().truncate("item").run();
        assert!(matches!(busy, Err(SchemaError::Busy)), "{name}: {busy:?}");
        // Not each time, as each takes a second.
        if std::mem::take(&mut is_first) {
            let busy = db.create::<Second>();
            assert!(matches!(busy, Err(SchemaError::Busy)), "{name}: {busy:?}");
            let busy = reader.declare(declared("third"));
            assert!(matches!(busy, Err(SchemaError::Busy)), "{name}: {busy:?}");
        }
        reader.get(&items, &1).expect("the table is open again");
        drop(reader);
        let truncated = tx.migration().truncate("item").run();
        if is_ordered_at_commit(setting) {
            truncated.unwrap_or_else(|error| panic!("{name}: {error}"));
        } else {
            // The reader may have to be later than it.
            assert!(matches!(truncated, Err(SchemaError::Refused { .. })), "{name}: {truncated:?}");
            tx.rollback();
            let tx = session.begin().expect("a worker is free");
            tx.migration().truncate("item").run().unwrap_or_else(|error| panic!("{name}: {error}"));
            tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
            return;
        }
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        db.create::<Second>().expect("nobody changes tables");
        assert_eq!(everything(db)[0].1.len(), 0, "{name}");
    });
}

#[derive(Table)]
#[table(name = "second", key(id))]
struct Second {
    id: u32,
    amount: u32,
}

/// Nobody has to end a transaction whose session is lost, or that became too old.
#[test]
fn a_transaction_that_ends_by_itself_leaves_the_tables_as_they_were() {
    each(|setting| {
        if setting.protocol.requirements.plan {
            return;
        }
        let db = setting.builder().step_helpers(true).transaction_age_max(Duration::from_secs(1)).open();
        let db = items(db.expect("a valid setting"));
        let before = everything(&db);
        let change = |tx: &Transaction<'_>| {
            tx.declare(declared("other")).expect("the name is free");
            tx.migration().change("item", [Change::drop_column("note")]).run().expect("it exists");
            write(tx, "item", 0);
        };
        let mut session = db.session();
        change(&session.begin().expect("a worker is free"));
        assert_eq!(everything(&db), before, "{}: it was dropped", setting.protocol.name);

        let tx = session.begin().expect("a worker is free");
        change(&tx);
        // The reaper ends it between its calls.
        (0..1000).for_each(|_| db.step());
        assert_eq!(everything(&db), before, "{}: it was too old", setting.protocol.name);
        let late = tx.declare(declared("third")).expect_err("it is over");
        let cause = |error: &SchemaError| match error {
            SchemaError::Transact(error) => matches!(**error, TransactError::TooOld),
            _ => false,
        };
        assert!(cause(&late), "{}: {late}", setting.protocol.name);
        let refused = tx.commit();
        assert!(matches!(refused, Err(TransactError::TooOld)), "{}: {refused:?}", setting.protocol.name);
        let tx = session.begin().expect("a worker is free");
        change(&tx);
        tx.commit().expect("it runs alone");
        assert_eq!(db.table_names(), ["item", "other"]);

        let tx = session.begin_with(&TransactionOptions::new()).expect("a worker is free");
        tx.declare(declared("fourth")).expect("the name is free");
        drop(tx);
        drop(session);
        db.create::<Second>().expect("nobody changes tables");
    });
}

#[test]
fn handles_of_tables_follow_the_transaction_that_changes_them() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let old = db.table::<Item>().expect("it exists");
        let (mut session, mut other) = (db.session(), db.session());
        let tx = session.begin().expect("a worker is free");
        let second = tx.create::<Second>().expect("the name is free");
        tx.insert(&second, &Second { id: 1, amount: 7 }).expect("no conflict");
        tx.migration().change("item", [Change::add_index("by_amount", ["amount"])]).run().expect("it exists");
        let now = tx.table::<Item>().expect("it has what the type declares");
        tx.update(&now, &3, |item| item.set_amount(5)).expect("no conflict");
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        let read = other.transact(|tx| Ok((tx.require(&old, &3)?.amount(), tx.require(&second, &1)?.amount())));
        assert_eq!(*read.expect("handles are valid"), (5, 7), "{name}");
        let gone = other.transact(|tx| tx.get(&now, &3).map(drop));
        assert!(matches!(gone, Err(TransactError::TableGone)), "{name}: {gone:?}");

        let tx = session.begin().expect("a worker is free");
        let created = tx.declare(declared("other")).expect("the name is free");
        tx.migration().change("item", [Change::drop_index("by_amount")]).run().expect("it exists");
        let gone = tx.get(&old, &3).map(drop).map_err(TransactError::from);
        assert!(matches!(gone, Err(TransactError::TableGone)), "{name}: {gone:?}");
        tx.rollback();
        let gone = other.transact(|tx| tx.count_all_dyn(&created));
        assert!(matches!(gone, Err(TransactError::TableGone)), "{name}: {gone:?}");
        assert_eq!(*other.transact(|tx| Ok(tx.require(&old, &3)?.amount())).expect("it is open"), 5, "{name}");
    });
}

/// Adds to an item.
#[procedure]
fn pay(tx: &Tx, id: u32, amount: i32) -> Result<i32, Abort> {
    let left = tx.update::<Item>(id, |item| {
        item.amount += amount;
        item.amount
    })?;
    Ok(left)
}

#[test]
fn procedures_object_to_a_change_and_go_on_after_one_that_they_allow() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        db.register(procedures![pay]).expect("a sound set");
        let (mut session, mut other) = (db.session(), db.session());
        let tx = session.begin().expect("a worker is free");
        for step in [Change::drop_column("amount"), Change::rename_table("thing")] {
            let refused = tx.migration().change("item", [step]).run();
            let is_of =
                |error: &SchemaError| matches!(error, SchemaError::InUse { procedure, .. } if procedure == "pay");
            assert!(refused.as_ref().is_err_and(is_of), "{name}: {refused:?}");
        }
        let column = ColumnDef::new("n", ColumnType::U8).default("7");
        tx.migration()
            .change("item", [Change::add_column(column), Change::add_index("by_amount", ["amount"])])
            .run()
            .expect("it allows it");
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(other.call(pay, &(3, 5)).expect("it exists").value, 105, "{name}");
        let all = everything(db);
        assert!(all[0].1.iter().all(|row| row[4] == Value::from(7u8)), "{name}: {all:?}");
    });
}

/// A procedure has the tables that there are when it is registered, not those that a change replaces meanwhile.
#[test]
fn a_procedure_is_registered_before_a_change_of_its_tables_or_after_it() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let (mut session, is_over) = (db.session(), AtomicBool::new(false));
        let tx = session.begin().expect("a worker is free");
        tx.migration().change("item", [Change::drop_column("note")]).run().expect("it exists");
        let back = ColumnDef::new("note", ColumnType::LongText).nullable();
        tx.migration().change("item", [Change::add_column(back)]).run().expect("the name is free");
        thread::scope(|scope| {
            let registered = scope.spawn(|| {
                let registered = db.register(procedures![pay]);
                assert!(is_over.load(Ordering::Relaxed), "{name}: the tables were being changed");
                registered.map(drop)
            });
            thread::sleep(Duration::from_millis(5));
            is_over.store(true, Ordering::Relaxed);
            tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
            registered.join().expect("no panic").unwrap_or_else(|error| panic!("{name}: {error}"));
        });
        assert_eq!(session.call(pay, &(3, 5)).expect("its table is there").value, 105, "{name}");
    });
}

/// Snapshots may be as old as the oldest open transaction, which comes before the change here.
#[test]
fn a_transaction_that_comes_before_a_change_does_not_see_the_changed_table_without_its_rows() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let elsewhere = db.create::<Second>().expect("a valid table");
        let items = db.table::<Item>().expect("it exists");
        db.session().transact(|tx| tx.insert(&elsewhere, &Second { id: 1, amount: 1 })).expect("it runs alone");
        let (mut session, mut other, mut third, mut fourth) = (db.session(), db.session(), db.session(), db.session());
        let tx = session.begin().expect("a worker is free");
        tx.migration()
            .change(
                "item",
                [
                    Change::set_organization(Organization::Ordered),
                    Change::add_column(ColumnDef::new("n", ColumnType::U8).nullable()),
                ],
            )
            .run()
            .expect("the rows allow it");
        let before = other.begin().expect("a worker is free");
        before.get(&elsewhere, &1).expect("no conflict");
        let deletes = fourth.begin().expect("a worker is free");
        deletes.get(&elsewhere, &1).expect("no conflict");
        let old = third.begin_snapshot().expect("a worker is free");
        old.get(&elsewhere, &1).expect("no conflict");
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        let count = |found: Result<usize, Abort>| match found.map_err(TransactError::from) {
            Ok(count) => assert_eq!(count, IDS as usize, "{name}"),
            Err(error) => assert!(error.is_retryable(), "{name}: {error}"),
        };
        count(old.count(&items, ..));
        drop(old);
        for _ in 0..3 {
            let counted = db.session().snapshot(|tx| tx.count(&items, ..));
            assert_eq!(*counted.unwrap_or_else(|error| panic!("{name}: {error}")), IDS as usize, "{name}");
        }
        count(before.count(&items, ..));
        let is_admitted = before.get(&items, &3).is_ok();
        drop(before);
        assert_eq!(deletes.delete_if(&items, &3).is_ok(), is_admitted, "{name}");
        drop(deletes);
        for _ in 0..3 {
            assert_eq!(*third.snapshot(|tx| tx.count(&items, ..)).expect("nothing is open"), IDS as usize, "{name}");
        }
    });
}

#[test]
fn what_was_rolled_back_takes_neither_ids_nor_memory() {
    each_explicit(|setting, db| {
        let left = || db.statistics().tables_left;
        let (mut session, before) = (db.session(), left());
        for _ in 0..3 {
            let tx = session.begin().expect("a worker is free");
            tx.declare(declared("other")).expect("the name is free");
            tx.migration().truncate("item").run().expect("it exists");
            assert!(left() < before);
            tx.rollback();
            assert_eq!(left(), before, "{}", setting.protocol.name);
        }
        let refused = db.declare_all(vec![declared("fine"), declared("item")]);
        assert!(refused.is_err() && left() == before);
        let refused =
            db.migration().create(declared("fine")).change("item", [Change::set_nullable("note", false)]).run();
        assert!(matches!(refused, Err(SchemaError::Refused { .. })), "{refused:?}");
    });
}

#[test]
fn a_copy_for_which_there_is_no_memory_ends_with_its_transaction() {
    sampled("changes without memory", |setting| {
        if setting.protocol.requirements.plan {
            return;
        }
        let db = items(setting.builder().memory_limit(24 << 20).open().expect("a valid setting"));
        let (table, name) = (db.table::<Item>().expect("it exists"), setting.protocol.name);
        let mut session = db.session();
        let mut count = IDS;
        while db.statistics().memory_bytes < 16 << 20 {
            let note = Some("n".repeat(900));
            let load = |tx: &Tx| {
                (count..count + 50).try_for_each(|id| tx.insert(&table, &Item { note: note.clone(), ..item(id) }))
            };
            session.transact(load).expect("there is room");
            count += 50;
        }
        let tx = session.begin().expect("a worker is free");
        let refused = tx.migration().change("item", [Change::drop_column("tag")]).run();
        let refused = refused.expect_err("an index needs it");
        assert!(matches!(refused, SchemaError::Invalid(_)), "{name}: {refused}");
        let column = ColumnDef::new("n", ColumnType::U64).default("1");
        let refused = tx.migration().change("item", [Change::add_column(column)]).run();
        let refused = refused.expect_err("there is no room for a copy").to_string();
        assert!(refused.contains("memory"), "{name}: {refused}");
        drop(tx);
        assert_eq!(db.open_dyn("item").expect("it exists").definition().columns.len(), 4);
        (0..50).for_each(|_| db.step());
        let updated = session.transact(|tx| tx.update(&table, &1, |item| item.set_amount(5)).map(drop));
        updated.unwrap_or_else(|error| panic!("{name}: {error}"));
    });
}

#[test]
fn the_first_error_of_a_migration_is_reported_and_an_empty_one_changes_nothing() {
    mod differs {
        /// Its key is another.
        #[derive(seriatim::Table)]
        #[table(name = "item", key(tag))]
        pub(super) struct Item {
            pub(super) id: u32,
            pub(super) tag: u16,
        }
    }
    let db = items(Database::in_memory().expect("in memory"));
    let refused = db.migration().truncate("item").change("nothing", []).declare::<differs::Item>().run();
    assert!(matches!(&refused, Err(SchemaError::Unknown(name)) if name == "nothing"), "{refused:?}");
    assert_eq!(db.migration().run().expect("nothing is to be done"), Vec::<String>::new());
    assert_eq!(everything(&db)[0].1.len(), IDS as usize);
}

/// The migration would wait for a moment without transactions, and the transaction for the migration.
#[test]
fn a_transaction_does_not_wait_for_a_migration_that_waits_for_it() {
    let db = items(Database::in_memory().expect("memory"));
    let mut session = db.session();
    let tx = session.begin().expect("a worker is free");
    let migrated = thread::scope(|scope| {
        let add = || db.migration().change("item", [Change::add_index("by_amount", ["amount"])]).run();
        let migration = scope.spawn(add);
        thread::sleep(Duration::from_millis(50));
        // It has the right, unless the machine is slow.
        let created = tx.migration().create(declared("other")).run();
        assert!(matches!(created, Ok(_) | Err(SchemaError::Busy)), "{created:?}");
        drop(tx);
        migration.join().expect("no panic")
    });
    migrated.expect("the transaction ended");
}

/// What may go wrong beside changes of tables, none of which is a wrong result.
fn is_expected(error: &TransactError) -> bool {
    let is_gone =
        matches!(error, TransactError::TableGone | TransactError::WorkersBusy | TransactError::Excluded { .. });
    is_gone || error.is_retryable()
}

/// Rows move amounts, while two threads change the table and others count.
#[test]
fn no_reader_finds_an_amount_or_a_row_missing_beside_two_who_change_the_table() {
    let seed = seriatim::rng::seed("amounts");
    sampled("amounts", |setting| {
        if setting.protocol.requirements.plan {
            return;
        }
        let (name, db) = (setting.protocol.name, &items(setting.open()));
        let is_over = AtomicBool::new(false);
        let brief = TransactionOptions::new().age_max(Duration::from_millis(200));
        let transfer = |tx: &Tx, rng: &mut seriatim::Rng| -> Result<(), Abort> {
            let items = db.open_dyn("item").expect("its name stays");
            let [from, to] = [0, 1].map(|_| [Value::from(rng.below(IDS.into()) as u32)]);
            if from == to {
                return Ok(());
            }
            let amount = |key: &[Value]| -> Result<Value, Abort> {
                let row = tx.get_dyn(&items, key)?.ok_or_else(|| tx.abort("a row is missing"))?;
                row.get("amount").ok_or_else(|| tx.abort("no column"))
            };
            let plus = |value: Value, by: i128| match value {
                Value::Integer(number, ty) => Value::Integer(number + by, ty),
                other => other,
            };
            let (less, more) = (plus(amount(&from)?, -1), plus(amount(&to)?, 1));
            if rng.percent(30) {
                let all: Vec<Value> = tx.get_dyn(&items, &from)?.map(|row| row.values()).unwrap_or_default();
                tx.delete_dyn(&items, &from)?;
                tx.insert_dyn(&items, &all)?;
            }
            tx.update_dyn(&items, &from, &[("amount", less)])?;
            tx.update_dyn(&items, &to, &[("amount", more)]).map(drop)
        };
        let seen = |tx: &seriatim::ReadTx| {
            let items = db.open_dyn("item").expect("its name stays");
            let (mut count, mut sum) = (0, 0);
            for row in tx.scan_all_dyn(&items)? {
                count += 1;
                sum += match row?.get("amount") {
                    Some(Value::Integer(amount, _)) => amount,
                    _ => 0,
                };
            }
            Ok((count, sum))
        };
        let check = |found: Result<(u32, i128), TransactError>| match found {
            Ok(found) => assert_eq!(found, (IDS, 100 * i128::from(IDS)), "{name}, seed {seed}"),
            Err(error) => assert!(is_expected(&error), "{name}, seed {seed}: {error}"),
        };
        let step = |definition: &TableDef, rng: &mut seriatim::Rng| match rng.below(4) {
            0 if definition.column("n").is_some() => Change::drop_column("n"),
            0 => Change::add_column(ColumnDef::new("n", ColumnType::Text { max: 20 }).default("7")),
            1 if definition.index("by_amount").is_some() => Change::drop_index("by_amount"),
            1 => Change::add_index("by_amount", ["amount"]),
            2 if definition.checks.is_empty() => Change::add_check("sound", "id >= 0"),
            2 => Change::drop_check("sound"),
            _ if definition.columns.iter().any(|column| column.name == "amount" && column.ty == ColumnType::I32) => {
                Change::set_type("amount", ColumnType::I64)
            }
            _ => Change::set_type("amount", ColumnType::I32),
        };
        let end = |failed: &dyn Fn()| {
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(failed));
            is_over.store(true, Ordering::Relaxed);
            ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        };
        thread::scope(|scope| {
            let (is_over, end, transfer, seen, check, step, brief) =
                (&is_over, &end, &transfer, &seen, &check, &step, &brief);
            for at in 0..2 {
                scope.spawn(move || {
                    let (mut session, mut rng) = (db.session(), seriatim::Rng::from_seed(seed + at));
                    while !is_over.load(Ordering::Relaxed) {
                        let moved = session.transact_with(brief, |tx| transfer(tx, &mut rng));
                        let is_fine = moved.as_ref().err().is_none_or(|error| match error {
                            TransactError::User(error) => !error.to_string().contains("missing"),
                            error => is_expected(error),
                        });
                        if !is_fine {
                            end(&|| panic!("{name}, seed {seed}: {moved:?}"));
                        }
                        if rng.percent(30) {
                            end_if_wrong(end, &|| match at {
                                0 => check(db.session().snapshot(seen).map(|found| *found)),
                                _ => check(db.session().transact(|tx| seen(tx)).map(|found| *found)),
                            });
                        }
                    }
                });
            }
            scope.spawn(move || {
                let mut rng = seriatim::Rng::from_seed(seed + 2);
                while !is_over.load(Ordering::Relaxed) {
                    let definition = db.open_dyn("item").expect("its name stays").definition().clone();
                    let _ = db.migration().change("item", [step(&definition, &mut rng)]).run();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            end(&|| {
                let (mut session, mut rng) = (db.session(), seriatim::Rng::from_seed(seed + 3));
                for _ in 0..seriatim::rng::tries(3, 60) {
                    let Ok(tx) = session.begin() else { continue };
                    for _ in 0..2 {
                        let definition = tx.open_dyn("item").expect("its name stays").definition().clone();
                        if tx.migration().change("item", [step(&definition, &mut rng)]).run().is_err() {
                            break;
                        }
                    }
                    if rng.percent(70) {
                        let _ = tx.commit();
                    }
                }
            });
        });
        check(db.session().transact(|tx| seen(tx)).map(|found| *found));
        db.check_indexes().unwrap_or_else(|error| panic!("{name}: {error}"));
    });
}

/// Runs a check, which ends the others if it fails.
fn end_if_wrong(end: &dyn Fn(&dyn Fn()), check: &dyn Fn()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err() {
        end(check);
    }
}

fn number(name: &'static str) -> ColumnDef {
    ColumnDef::new(name, ColumnType::U32)
}

/// A table whose rows are numbered, and refer to rows of another one.
fn numbered(name: &'static str, to: &'static str) -> TableDef {
    let column = number("id").identity(Identity::by_default());
    let table = TableDef::builder(name).column(column).column(number("of").nullable()).key(["id"]);
    let to = ReferenceDef::new(["of"], to).on_delete(OnChange::Cascade);
    table.index("by_of", ["of"]).reference(to).finish().expect("a valid table")
}

fn of(of: u32) -> [Value; 2] {
    [Value::from(0u32), Value::from(of).some()]
}

/// All sequences with the tables to which they belong and the numbers that come next. Takes these.
fn sequences(db: &Database) -> Vec<(String, Option<String>, i64)> {
    let all = db.sequences().into_iter();
    all.map(|it| (it.definition().name.to_string(), it.table(), it.next().expect("it has more"))).collect()
}

fn has_no_row(error: impl Into<TransactError>) {
    let error = error.into();
    assert!(matches!(error, TransactError::ForeignKey { .. }), "{error}");
}

/// Tables that refer to each other, numbered rows and sequences, as the migration tools of frameworks write them.
#[test]
fn linked_and_numbered_tables_are_created_changed_and_dropped_with_their_rows() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let before = everything(db);
        let mut session = db.session();
        for commits in [false, true] {
            let tx = session.begin().expect("a worker is free");
            // First, since some protocols change tables of others only then.
            tx.declare(numbered("tag", "item")).unwrap_or_else(|error| panic!("{name}: {error}"));
            let tag = tx.open_dyn("tag").expect("it was created");
            assert_eq!(tx.insert_new_dyn(&tag, &of(3)).expect("item 3 exists"), 1, "{name}");
            has_no_row(tx.insert_new_dyn(&tag, &of(77)).expect_err("there is no item 77"));
            // A handle of a table to which others refer now stays valid.
            let items = db.table::<Item>().expect("it exists");
            let (part, sum) = (numbered("part", "tag"), SequenceDef::new("sum").start(50));
            tx.migration().create(part).create_sequence(sum).run().unwrap_or_else(|error| panic!("{name}: {error}"));
            let part = tx.open_dyn("part").expect("it was created");
            tx.insert_new_dyn(&part, &of(1)).expect("tag 1 exists");
            assert_eq!(tx.next(&tx.sequence("sum").expect("it was created")).expect("it has more"), 50, "{name}");
            assert_eq!(tx.sequence("tag_id_seq").expect("it is of the table").definition().first(), 1, "{name}");

            let savepoint = tx.savepoint().expect("it is open");
            let log = TableDef::builder("log").column(number("n")).without_key().finish().expect("a valid table");
            let steps = tx.migration().create(log).change("tag", [Change::add_column(number("n").default("4"))]);
            let steps = steps
                .change("item", [Change::rename_column("id", "number")])
                .change("part", [Change::drop_reference("part_of_fkey"), Change::set_identity("id", None)]);
            let steps =
                steps.alter_sequence("sum", [SequenceChange::Increment(7), SequenceChange::Rename("total".into())]);
            steps.run().unwrap_or_else(|error| panic!("{name}: {error}"));
            let (tag, log) = (tx.open_dyn("tag").expect("it exists"), tx.open_dyn("log").expect("it exists"));
            assert_eq!(tx.insert_new_dyn(&log, &[Value::from(1u32), Value::from(0u64)]).expect("no conflict"), 1);
            assert_eq!(tx.next(&tx.sequence("total").expect("it was renamed")).expect("it has more"), 57, "{name}");
            assert!(tx.sequence("sum").is_err() && tx.sequence("part_id_seq").is_err(), "{name}");
            let row = [Value::from(0u32), Value::from(4u32).some(), Value::from(1u32)];
            let taken = tx.insert_new_dyn(&tag, &row).expect("item 4 exists");
            assert_eq!(taken, 3, "{name}: 2 was taken by a row that was not inserted");
            let renamed = tx.open_dyn("item").expect("it exists");
            // Rows that refer to it go with it.
            tx.delete_dyn(&renamed, &[Value::from(3u32)]).expect("no conflict");
            assert_eq!(tx.count_all_dyn(&tag).expect("no conflict"), 1, "{name}");
            tx.rollback_to(savepoint).expect("it is valid");

            assert!(tx.open_dyn("log").is_err() && tx.sequence("total").is_err(), "{name}");
            let (tag, part) = (tx.open_dyn("tag").expect("it exists"), tx.open_dyn("part").expect("it exists"));
            assert_eq!(tx.next(&tx.sequence("sum").expect("it exists")).expect("it has more"), 51, "{name}");
            assert_eq!(tx.insert_new_dyn(&tag, &of(5)).expect("item 5 exists"), 4, "{name}");
            assert_eq!(tx.insert_new_dyn(&part, &of(4)).expect("tag 4 exists"), 2, "{name}");
            has_no_row(tx.insert_new_dyn(&part, &of(3)).expect_err("it was rolled back"));
            // Deletes tag 1 and part 1, too.
            tx.delete(&items, &3).unwrap_or_else(|error| panic!("{name}: {error}"));
            let gone = tx.migration().drop_table("tag").run().expect_err("part refers to it");
            let SchemaError::Refused { reason, .. } = gone else { panic!("{name}: {gone}") };
            let by = Refusal::Referenced { constraint: "part_of_fkey".to_owned(), by: "part".to_owned() };
            assert_eq!(*reason, by, "{name}");
            tx.migration().create(numbered("brief", "part")).run().expect("the name is free");
            tx.migration().drop_table("brief").run().expect("nobody refers to it");
            assert!(tx.sequence("brief_id_seq").is_err(), "{name}");
            if !commits {
                drop(tx);
                assert_eq!((everything(db), sequences(db)), (before.clone(), Vec::new()), "{name}");
                let (mut other, table) = (db.session(), db.table::<Item>().expect("it exists"));
                let tx = other.begin().expect("a worker is free");
                tx.delete(&table, &3).unwrap_or_else(|error| panic!("{name}: {error}"));
                continue;
            }
            tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let all = everything(db);
        let names: Vec<&str> = all.iter().map(|(table, _)| &*table.name).collect();
        assert_eq!(names, ["item", "tag", "part"], "{name}");
        let row = |id: u32, of: u32| vec![Value::from(id), Value::from(of).some()];
        assert_eq!((&all[1].1, &all[2].1), (&vec![row(4, 5)], &vec![row(2, 4)]), "{name}");
        let owned = |name: &str, table: &str, number| (name.to_owned(), Some(table.to_owned()), number);
        let known = [owned("tag_id_seq", "tag", 5), owned("part_id_seq", "part", 4), ("sum".to_owned(), None, 52)];
        let taken = sequences(db);
        assert!(known.iter().all(|it| taken.contains(it)) && taken.len() == 3, "{name}: {taken:?}");
        let (items, tag) = (db.table::<Item>().expect("it exists"), db.open_dyn("tag").expect("it exists"));
        has_no_row(session.transact(|tx| tx.insert_new_dyn(&tag, &of(3))).expect_err("it was deleted"));
        session.transact(|tx| tx.delete(&items, &5)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rows = everything(db);
        assert!(rows[1].1.is_empty() && rows[2].1.is_empty(), "{name}: {rows:?}");

        let tx = session.begin().expect("a worker is free");
        let steps = tx.migration().drop_table("part").drop_table("tag").drop_sequence("sum");
        steps.run().unwrap_or_else(|error| panic!("{name}: {error}"));
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((db.table_names().len(), sequences(db)), (1, Vec::new()), "{name}");
        session.transact(|tx| tx.delete(&items, &7)).unwrap_or_else(|error| panic!("{name}: {error}"));
        db.check_structure().expect("it is sound");
    });
}

/// A new reference holds for rows that exist, and from the step on for others, who wait.
#[test]
fn a_reference_that_a_transaction_adds_is_one_of_all_rows() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        let part = db.declare(declared("part")).expect("a valid table");
        let row = |id: u32, of: u32| [Value::from(id), Value::from(of)];
        let wide = |id: u32, of: u32| [Value::from(id), Value::from(of), Value::from(1u32)];
        let mut session = db.session();
        session.transact(|tx| tx.insert_dyn(&part, &row(1, 3))).expect("it runs alone");
        session.transact(|tx| tx.insert_dyn(&part, &row(2, 99))).expect("it runs alone");
        let add = || Change::add_reference(ReferenceDef::new(["of"], "item").deferrable());
        let tx = session.begin().expect("a worker is free");
        let refused = tx.migration().change("part", [add()]).run();
        let refused = refused.expect_err("there is no item 99").to_string();
        assert!(refused.contains("a row of part with of 99 refers to no row of item"), "{name}: {refused}");
        let own = tx.open_dyn("part").expect("it exists");
        tx.delete_dyn(&own, &[Value::from(2u32)]).expect("no conflict");
        // With another change of it.
        let steps = tx.migration().change("part", [add(), Change::add_column(number("n").default("1"))]);
        steps.run().unwrap_or_else(|error| panic!("{name}: {error}"));
        let own = tx.open_dyn("part").expect("it exists");
        tx.set_constraints(Constraints::Deferred).expect("none is violated");
        tx.insert_dyn(&own, &wide(5, 40)).expect("no conflict");
        let refused = tx.migration().change("part", [Change::drop_column("n")]).run();
        let refused = refused.expect_err("a check is put off").to_string();
        assert!(refused.contains("put off"), "{name}: {refused}");
        has_no_row(tx.set_constraints(Constraints::Immediate).expect_err("there is no item 40"));
        let savepoint = tx.savepoint().expect("it is open");
        tx.delete_dyn(&own, &[Value::from(5u32)]).expect("no conflict");
        tx.set_constraints(Constraints::Immediate).expect("the row has gone");
        tx.set_constraints(Constraints::Deferred).expect("none is violated");
        tx.migration().change("part", [Change::drop_column("n")]).run().expect("nothing is put off");
        let own = tx.open_dyn("part").expect("it exists");
        tx.insert_dyn(&own, &row(7, 41)).expect("no conflict");
        tx.rollback_to(savepoint).expect("it is valid");
        let own = tx.open_dyn("part").expect("it exists");
        tx.delete_dyn(&own, &[Value::from(5u32)]).expect("no conflict");
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        let items = db.table::<Item>().expect("it exists");
        has_no_row(session.transact(|tx| tx.delete(&items, &3)).expect_err("part 1 refers to it"));
        session.transact(|tx| tx.delete(&items, &4)).unwrap_or_else(|error| panic!("{name}: {error}"));
        has_no_row(session.transact(|tx| tx.insert_dyn(&part, &wide(8, 42))).expect_err("there is no item 42"));
    });
}

/// Sequences are no rows: numbers that others take do not wait for a transaction that does not change the sequence.
#[test]
fn a_sequence_that_a_transaction_alters_gives_others_no_number_until_it_ends() {
    each_explicit(|setting, db| {
        let name = setting.protocol.name;
        db.migration().create_sequence(SequenceDef::new("s")).run().expect("it makes sense");
        let (s, mut session) = (db.sequence("s").expect("it exists"), db.session());
        assert_eq!(s.next().expect("it has more"), 1, "{name}");
        let brief = TransactionOptions::new().age_max(Duration::from_millis(20));
        for commits in [false, true] {
            let tx = session.begin().expect("a worker is free");
            tx.migration().create_sequence(SequenceDef::new("t")).run().expect("the name is free");
            let first = s.next().expect("it has more");
            tx.migration().alter_sequence("s", [SequenceChange::Increment(10)]).run().expect("it makes sense");
            assert_eq!(tx.next(&s).expect("it has more"), first + 10, "{name}");
            let refused = db.session().transact_with(&brief, |tx| tx.next(&s));
            assert!(matches!(refused, Err(TransactError::Excluded { .. })), "{name}: {refused:?}");
            assert!(matches!(s.set(3), Err(TransactError::Excluded { .. })), "{name}");
            let savepoint = tx.savepoint().expect("it is open");
            let restart = [SequenceChange::Restart(Some(500)), SequenceChange::Increment(3)];
            tx.migration().alter_sequence("s", restart).run().expect("it makes sense");
            assert_eq!((tx.next(&s).expect("more"), tx.next(&s).expect("more")), (500, 503), "{name}");
            tx.rollback_to(savepoint).expect("it is valid");
            assert_eq!(tx.next(&s).expect("it has more"), first + 20, "{name}");
            let twice = tx.migration().create_sequence(SequenceDef::new("s")).run();
            assert!(matches!(twice, Err(SchemaError::SequenceExists(_))), "{name}: {twice:?}");
            match commits {
                true => drop(tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"))),
                false => tx.rollback(),
            }
            assert_eq!(s.next().expect("it has more"), if commits { first + 30 } else { first + 1 }, "{name}");
        }
        thread::scope(|scope| {
            let tx = session.begin().expect("a worker is free");
            tx.migration().alter_sequence("s", [SequenceChange::Restart(Some(7))]).run().expect("it makes sense");
            let waits = scope.spawn(|| s.next().expect("the other transaction ends"));
            thread::sleep(Duration::from_millis(5));
            tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(waits.join().expect("no panic"), 7, "{name}");
        });
        let tx = session.begin().expect("a worker is free");
        tx.migration().drop_sequence("s").run().expect("nobody owns it");
        tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(matches!(s.next(), Err(TransactError::SequenceGone { .. })), "{name}");
    });
}
