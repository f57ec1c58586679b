//! Changes of tables, under every protocol, while transactions use them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, Organization, TableDef, Value};
use seriatim::{
    Abort, Database, ReadTx, Rng, SchemaError, Table, Text, TransactError, Tx, procedure, procedures, thread,
};

use crate::common::{Setting, each, text};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "item", key(id))]
#[table(index(name = "by_tag", columns(tag)))]
struct Item {
    id: u32,
    tag: u16,
    #[column(immutable)]
    label: Text<6>,
    amount: i32,
    note: Option<String>,
}

fn item(id: u32, amount: i32) -> Item {
    let note = (!id.is_multiple_of(3)).then(|| format!("note {id}"));
    Item { id, tag: (id % 7) as u16, label: text(&"abcdef"[..id as usize % 6]), amount, note }
}

/// Whether closures run under the protocol.
fn runs_closures(setting: &Setting) -> bool {
    !setting.protocol.requirements.plan
}

/// A database with so many items.
fn items(setting: &Setting, count: u32) -> (Database, seriatim::Handle<Item>) {
    let db = setting.open();
    let items = db.create::<Item>().expect("a valid table");
    let load = |tx: &Tx| (0..count).try_for_each(|id| tx.insert(&items, &item(id, 100)));
    db.session().transact(load).expect("it runs alone");
    (db, items)
}

/// All values of a table, in the order of keys.
fn rows(db: &Database, table: &str) -> Vec<Vec<Value>> {
    let table = db.open_dyn(table).expect("it exists");
    let mut rows = Vec::new();
    db.each_row_dyn(&table, |row| rows.push(row.values())).expect("no transaction is open");
    rows.sort_by_key(|row| format!("{:?}", row[0]));
    rows
}

fn change(db: &Database, changes: impl IntoIterator<Item = Change>) -> Result<Vec<String>, SchemaError> {
    db.migration().change("item", changes).run()
}

/// Ends the writers, also if the test fails.
struct Over<'t>(&'t AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const WRITERS: u32 = 2;
const IDS: u32 = 60;

/// Writers move amounts between items, replace items and their notes; nothing of that is lost.
#[test]
fn a_table_is_changed_while_transactions_change_its_rows() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, items) = items(setting, IDS);
        let (is_over, committed) = (AtomicBool::new(false), AtomicU64::new(0));
        let write = |seed: u64| {
            let (mut session, mut rng) = (db.session(), Rng::from_seed(seed));
            while !is_over.load(Ordering::Relaxed) {
                let (from, to) = (rng.below(IDS.into()) as u32, rng.below(IDS.into()) as u32);
                let replaces = rng.percent(20);
                let moved = session.transact(|tx| {
                    if from == to {
                        return Ok(());
                    }
                    if replaces {
                        let old = tx.require(&items, &from)?.to_owned();
                        tx.delete(&items, &from)?;
                        return tx.insert(&items, &Item { note: Some("replaced".to_owned()), ..old });
                    }
                    tx.update(&items, &from, |item| item.set_amount(item.amount() - 1))?;
                    tx.update(&items, &to, |item| {
                        item.set_amount(item.amount() + 1);
                        item.set_tag(item.tag() ^ 1);
                    })?;
                    Ok(())
                });
                match moved {
                    Ok(_) => drop(committed.fetch_add(1, Ordering::Relaxed)),
                    Err(
                        TransactError::Conflict { .. } | TransactError::WorkersBusy | TransactError::Excluded { .. },
                    ) => {}
                    Err(error) => panic!("{}: {error}", setting.protocol.name),
                }
            }
        };
        let progress = |by: u64| {
            let wanted = committed.load(Ordering::Relaxed) + by;
            while committed.load(Ordering::Relaxed) < wanted {
                thread::sleep(Duration::from_millis(1));
            }
        };
        thread::scope(|scope| {
            (0..WRITERS).for_each(|seed| drop(scope.spawn(move || write(seed.into()))));
            let over = Over(&is_over);
            progress(20);
            change(&db, [Change::add_index("by_amount", ["amount"]), Change::add_unique_index("by_id", ["id", "tag"])])
                .expect("the rows allow it");
            progress(20);
            let state = ColumnDef::new("state", ColumnType::Text { max: 4 }).default("new");
            change(
                &db,
                [Change::add_column(state), Change::add_column(ColumnDef::new("n", ColumnType::U8).nullable())],
            )
            .expect("the rows allow it");
            progress(20);
            change(&db, [Change::drop_index("by_id"), Change::rename_index("by_amount", "by_sum")])
                .expect("they exist");
            progress(20);
            drop(over);
        });
        let all = rows(&db, "item");
        assert_eq!(all.len(), IDS as usize, "{}", setting.protocol.name);
        let amount = |row: &Vec<Value>| match row[3] {
            Value::Integer(amount, _) => amount,
            ref other => panic!("{other}"),
        };
        assert_eq!(all.iter().map(amount).sum::<i128>(), 100 * i128::from(IDS), "{}", setting.protocol.name);
        assert!(all.iter().all(|row| row[5..] == [Value::Text("new".to_owned()), Value::NONE]), "{all:?}");
        let checked = db.check_indexes().expect("indexes and rows agree");
        assert_eq!((checked[0].rows, checked[0].indexes), (u64::from(IDS), 2), "{}", setting.protocol.name);
        db.check_structure().expect("no transaction is open");
        let dynamic = db.open_dyn("item").expect("it exists");
        let found = db.session().transact(|tx| tx.find_dyn(&dynamic, "by_sum", &[])?.try_count());
        assert_eq!(*found.expect("it runs alone"), IDS as usize);
    });
}

/// Each change alone, with what becomes of rows and of a handle.
/// Each worker is free only for the moment between two transactions.
#[test]
fn a_table_is_changed_although_a_transaction_follows_the_other_at_once() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, items) = items(setting, IDS);
        let is_over = AtomicBool::new(false);
        let busy = |thread: u32| {
            let mut session = db.session();
            while !is_over.load(Ordering::Relaxed) {
                let work = |tx: &ReadTx| {
                    tx.require(&items, &thread)?;
                    thread::sleep(Duration::from_millis(3));
                    Ok(())
                };
                let done = match thread {
                    0 => session.snapshot(work).map(drop),
                    _ => session.transact(|tx| work(tx)).map(drop),
                };
                if let Err(error) = done {
                    assert!(error.is_retryable(), "{}: {error}", setting.protocol.name);
                }
            }
        };
        thread::scope(|scope| {
            (0..3).for_each(|at| drop(scope.spawn(move || busy(at))));
            let _over = Over(&is_over);
            change(&db, [Change::add_index("by_amount", ["amount"])]).expect("no transaction is long");
        });
    });
}

#[test]
fn each_change_keeps_what_it_does_not_change() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let cases: [(Change, &str, bool); 9] = [
            (Change::rename_column("amount", "sum"), "column `amount` is renamed to `sum`", true),
            (Change::set_type("tag", ColumnType::I64), "column `tag` becomes i64", false),
            (Change::set_type("label", ColumnType::LongText), "column `label` becomes text", false),
            (Change::set_nullable("amount", true), "column `amount` may be NULL", false),
            (Change::set_default("amount", Some("5".into())), "column `amount` gets the default 5", true),
            (Change::set_organization(Organization::Hash), "it becomes hashed", false),
            (Change::drop_column("note"), "column `note` is dropped", false),
            (Change::drop_index("by_tag"), "index `by_tag` is dropped", true),
            (Change::rename_table("thing"), "it is renamed to `thing`", true),
        ];
        for (each, (change, said, keeps)) in cases.into_iter().enumerate() {
            let (db, items) = items(setting, 20);
            let before = rows(&db, "item");
            let changed = db.migration().change("item", [change.clone()]).run().expect("the rows allow it");
            assert_eq!(changed, [format!("table `item`: {said}")]);
            let after = rows(&db, if each == 8 { "thing" } else { "item" });
            let texts = |rows: &[Vec<Value>]| -> Vec<Vec<Option<String>>> {
                rows.iter().map(|row| row[..4].iter().map(Value::to_text).collect()).collect()
            };
            assert_eq!(texts(&after), texts(&before), "{said}");
            assert!(each == 6 || after.iter().zip(&before).all(|(now, was)| now[4] == was[4]), "{said}");
            let used = db.session().transact(|tx| {
                tx.update(&items, &7, |item| item.set_amount(item.amount() + 1))?;
                Ok(tx.require(&items, &7)?.amount())
            });
            match (used, keeps) {
                (Ok(amount), true) => assert_eq!(*amount, 101, "{said}"),
                (Err(TransactError::TableGone), false) => {}
                (used, _) => panic!("{}: {said}: {used:?}", setting.protocol.name),
            }
            db.check_indexes().expect("indexes and rows agree");
            db.check_structure().expect("no transaction is open");
        }
    });
}

/// What is refused is named with what would be right, and nothing is changed.
#[test]
fn a_change_that_rows_or_the_declaration_contradict_changes_nothing() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, items) = items(setting, 20);
        db.declare(
            TableDef::builder("other").column(ColumnDef::new("id", ColumnType::U8)).key(["id"]).finish().unwrap(),
        )
        .expect("a valid table");
        let (before, definition) = (rows(&db, "item"), items.definition().clone());
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U8);
        let cases = [
            (
                Change::add_unique_index("by_sum", ["amount"]),
                "table \"item\" was not changed: two rows have amount 100",
            ),
            (Change::set_type("amount", ColumnType::I8), ""),
            (
                Change::set_type("amount", ColumnType::Decimal { scale: 17 }),
                "table \"item\" was not changed: column `amount`: ",
            ),
            (
                Change::set_nullable("note", false),
                "table \"item\" was not changed: column `note` is NULL, and may not be",
            ),
            (Change::set_type("tag", ColumnType::Uuid), "table `item`: column `tag` of type u16 cannot become uuid: "),
            (Change::rename_table("other"), "table \"other\" exists already"),
            (Change::rename_column("tag", "amount"), "table `item`: column `amount` is declared twice"),
            (Change::drop_column("id"), "table `item`: column `id` is part of the primary key, which a table keeps"),
            (Change::drop_column("tag"), "table `item`: column `tag` is part of index `by_tag`: drop that first"),
            (Change::drop_column("nothing"), "table `item`: there is no column `nothing`; the columns are id, tag, "),
            (Change::drop_index("nothing"), "table `item`: there is no index `nothing`; they are by_tag"),
            (Change::add_index("by_tag", ["amount"]), "table `item`: index `by_tag` is declared twice"),
            (
                Change::add_column(column("new")),
                "table `item`: column `new` is added, and rows that exist have no value",
            ),
            (
                Change::add_column(column("new").default("300")),
                "table `item`: column `new` has a default that is no value",
            ),
        ];
        for (change, problem) in cases {
            let refused = db.migration().change("item", [change.clone()]).run();
            // An amount of 100 fits an i8, so this one is made, and undone.
            if problem.is_empty() {
                refused.expect("the rows allow it");
                db.migration().change("item", [Change::set_type("amount", ColumnType::I32)]).run().expect("it widens");
                continue;
            }
            let refused = refused.expect_err("it makes no sense").to_string();
            assert!(refused.starts_with(problem), "{refused}");
            assert_eq!(rows(&db, "item"), before, "{problem}");
        }
        assert_eq!(*db.open_dyn("item").expect("it exists").definition(), definition);
        let refused = db.migration().truncate("nothing").run().expect_err("there is no such table");
        assert!(matches!(refused, SchemaError::Unknown(_)), "{refused}");
        db.check_indexes().expect("indexes and rows agree");
    });
}

#[test]
fn a_table_is_emptied_and_dropped_at_once() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, items) = items(setting, 50);
        let mut session = db.session();
        db.migration().truncate("item").run().expect("it exists");
        assert_eq!(rows(&db, "item"), Vec::<Vec<Value>>::new());
        session.transact(|tx| tx.insert(&items, &item(3, 7))).expect("the handle is valid");
        assert_eq!(rows(&db, "item").len(), 1);
        db.migration().drop_table("item").run().expect("it exists");
        let gone = session.transact(|tx| tx.get(&items, &3).map(|item| item.is_some()));
        assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        let gone = session.transact(|tx| tx.insert(&items, &item(4, 7)));
        assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        let gone = session.transact(|tx| tx.scan(&items, ..).try_count());
        assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        assert!(matches!(db.open_dyn("item"), Err(SchemaError::Unknown(_))));
        let words = TableDef::builder("word").column(ColumnDef::new("id", ColumnType::U32)).key(["id"]).hash();
        let words = db.declare(words.finish().expect("valid")).expect("the name is free");
        session.transact(|tx| tx.insert_dyn(&words, &[Value::from(1u32)])).expect("it is empty");
        db.migration().drop_table("word").run().expect("it exists");
        for gone in [
            session.transact(|tx| tx.count_all_dyn(&words)),
            session.transact(|tx| Ok(usize::from(tx.exists_dyn(&words, &[Value::from(1u32)])?))),
        ] {
            assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        }
        let again = db.create::<Item>().expect("the name is free");
        session.transact(|tx| tx.insert(&again, &item(3, 7))).expect("it is empty");
        db.migration().change("item", [Change::rename_table("thing")]).run().expect("the name is free");
        let twin = session.transact(|tx| tx.insert(&again, &item(3, 7))).expect_err("it is there").to_string();
        assert!(twin.contains("thing"), "{twin}");
    });
}

#[derive(Table)]
#[table(name = "other", key(id))]
#[allow(dead_code)]
struct Other {
    id: u8,
}

#[test]
fn an_open_transaction_is_waited_for_and_nothing_is_changed_beside_it() {
    let db = Database::builder().protocol("silo").workers(2).open().expect("in memory");
    let items = db.create::<Item>().expect("a valid table");
    db.create::<Other>().expect("a valid table");
    let mut session = db.session();
    let open = session.begin().expect("a worker is free");
    open.insert(&items, &item(1, 1)).expect("nobody is about");
    thread::scope(|scope| {
        let changing = scope.spawn(|| change(&db, [Change::add_index("by_amount", ["amount"])]));
        thread::sleep(Duration::from_millis(30));
        assert!(!changing.is_finished());
        // A migration that changes nothing waits for nothing.
        db.migrate::<Other>().expect("it serves");
        assert_eq!(db.migration().declare::<Other>().run().expect("it serves"), [""; 0]);
        open.commit().expect("nobody is about");
        changing.join().expect("no panic").expect("the rows allow it");
    });
    assert_eq!(db.check_indexes().expect("they agree")[0].indexes, 2);
}

mod second {
    use super::*;

    /// The second version: a column between others, one renamed and widened, one more index.
    #[derive(Table, Clone, Debug, PartialEq)]
    #[table(name = "item", key(id), evolve)]
    #[table(index(name = "by_state", columns(state, id), unique), index(name = "by_tag", columns(tag)))]
    pub(super) struct Item {
        pub(super) id: u32,
        pub(super) tag: u16,
        #[column(default = "new")]
        pub(super) state: Text<9>,
        #[column(immutable)]
        pub(super) label: Text<6>,
        pub(super) amount: i32,
        pub(super) note: Option<String>,
        pub(super) due: Option<u64>,
    }
}

/// Programs of both versions take turns: the first does not see the columns that it does not know, and leaves them
/// alone.
#[test]
fn programs_with_an_older_and_a_newer_declaration_take_turns() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, first) = items(setting, 9);
        let mut session = db.session();
        let refused = db.table::<second::Item>().expect_err("a handle is in use").to_string();
        assert!(
            refused.contains("column `state` text(9) is added, with new in rows that exist; column `due` u64"),
            "{refused}"
        );
        drop(first);
        for turn in 0..3u32 {
            let second = db.table::<second::Item>().expect("it evolves");
            let at = 100 + turn;
            session
                .transact(|tx| {
                    let item = tx.require(&second, &turn)?.to_owned();
                    assert_eq!((item.state.as_str(), item.due), ("new", None), "{turn}");
                    tx.update(&second, &turn, |item| {
                        item.set_state(&text("done"));
                        item.set_due(Some(u64::from(turn)));
                    })?;
                    let rest = item.clone();
                    tx.insert(&second, &second::Item { id: at, state: text("mine"), due: Some(5), ..rest })
                })
                .unwrap_or_else(|error| panic!("{}: {error}", setting.protocol.name));

            let refused = db.table::<Item>().expect_err("a handle is in use").to_string();
            assert!(refused.contains("a handle of it is in use"), "{refused}");
            drop(second);
            let again = db.table::<Item>().expect("what it does not know has defaults");
            session
                .transact(|tx| {
                    assert_eq!(tx.require(&again, &at)?.to_owned(), Item { id: at, ..item(turn, 100) });
                    tx.update(&again, &turn, |item| item.set_amount(7))?;
                    tx.put(&again, &item(at, 8))?;
                    tx.put(&again, &item(200 + turn, 9))
                })
                .unwrap_or_else(|error| panic!("{}: {error}", setting.protocol.name));
            let dynamic = db.open_dyn("item").expect("it exists");
            session
                .transact(|tx| {
                    let of = |id: u32| -> Result<_, Abort> {
                        let row = tx.get_dyn(&dynamic, &[Value::from(id)])?.expect("it was written");
                        Ok(["amount", "state", "due"].map(|column| row.get(column).and_then(|value| value.to_text())))
                    };
                    let texts = |all: [&str; 3]| all.map(|one| (!one.is_empty()).then(|| one.to_owned()));
                    assert_eq!(of(turn)?, texts(["7", "done", &turn.to_string()]), "updated by the first");
                    assert_eq!(of(at)?, texts(["8", "mine", "5"]), "replaced by the first");
                    assert_eq!(of(200 + turn)?, texts(["9", "new", ""]), "inserted by the first");
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("{}: {error}", setting.protocol.name));
            db.check_indexes().expect("indexes and rows agree");
        }
        let first = db.table::<Item>().expect("it serves");
        let second = db.migrate::<second::Item>().expect("an explicit call ends handles");
        let gone = session.transact(|tx| tx.get(&first, &3).map(|item| item.is_some()));
        assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        session.transact(|tx| tx.require(&second, &3).map(drop)).expect("it is valid");
    });
}

#[procedure]
fn pay(tx: &Tx, id: u32, amount: i32) -> Result<i32, Abort> {
    let left = tx.update::<Item>(id, |item| {
        item.amount -= amount;
        item.amount
    })?;
    Ok(left)
}

/// A procedure that is registered runs on, or the change is refused by its name.
#[test]
fn registered_procedures_are_analysed_again_or_named() {
    each(|setting| {
        let db = setting.open();
        let items = db.create::<Item>().expect("a valid table");
        db.register(procedures![pay]).expect("a sound set");
        db.migration().truncate("item").run().expect("it exists");
        let table = db.open_dyn("item").expect("it exists");
        if !runs_closures(setting) {
            return;
        }
        let mut session = db.session();
        session.transact(|tx| tx.insert(&items, &item(1, 100))).expect("nobody is about");
        assert_eq!(session.call(pay, &(1, 30)).expect("it exists").value, 70);
        change(&db, [Change::add_index("by_amount", ["amount"])]).expect("the rows allow it");
        assert_eq!(session.call(pay, &(1, 30)).expect("it exists").value, 40);
        change(&db, [Change::add_column(ColumnDef::new("n", ColumnType::U8).default("3"))]).expect("the rows allow it");
        assert_eq!(session.call(pay, &(1, 30)).expect("it exists").value, 10);
        db.check_indexes().expect("indexes and rows agree");
        let row = session.transact(|tx| Ok(tx.get_dyn(&table, &[Value::from(1u32)])?.map(|row| row.values())));
        let row = row.expect("nobody is about").value.expect("it exists");
        assert_eq!((&row[3], &row[5]), (&Value::from(10i32), &Value::from(3u8)));
        for (refused, why) in [
            (
                change(&db, [Change::drop_column("note")]),
                "would not find what it is compiled for: column `note` is dropped",
            ),
            (change(&db, [Change::rename_column("tag", "mark")]), "column `tag` is renamed to `mark`"),
            (db.migration().drop_table("item").run(), "it would be gone"),
        ] {
            let refused = refused.expect_err("a procedure uses it").to_string();
            assert!(refused.starts_with("table \"item\" was not changed: procedure pay uses it, and "), "{refused}");
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(session.call(pay, &(1, 10)).expect("it exists").value, 0);
    });
}

#[procedure]
fn transfer(tx: &Tx, from: u32, to: u32, amount: i32) -> Result<(), Abort> {
    tx.update::<Item>(from, |item| item.amount -= amount)?;
    tx.update::<Item>(to, |item| item.amount += amount)?;
    Ok(())
}

#[procedure]
fn renew(tx: &Tx, old: u32, new: u32, label: Text<6>) -> Result<(), Abort> {
    let item = tx.get::<Item>(old)?;
    if let Some(item) = item {
        let (tag, amount) = (item.tag, item.amount);
        tx.delete::<Item>(old)?;
        tx.insert(Item { id: new, tag, label, amount, note: None })?;
    }
    Ok(())
}

#[procedure]
fn fill(tx: &Tx, id: u32, amount: i32, label: Text<6>) -> Result<(), Abort> {
    tx.insert(Item { id, tag: 1, label, amount, note: None })?;
    Ok(())
}

/// Compiled bodies keep copies and indexes up to date as closures do.
#[test]
fn procedures_run_while_their_table_changes() {
    each(|setting| {
        let db = setting.open();
        db.create::<Item>().expect("a valid table");
        db.register(procedures![pay, transfer, renew, fill]).expect("a sound set");
        for id in 0..IDS {
            db.session().call(fill, &(id, 100, text("a"))).expect("it runs alone");
        }
        let (is_over, committed) = (AtomicBool::new(false), AtomicU64::new(0));
        let call = |seed: u64| {
            let (mut session, mut rng) = (db.session(), Rng::from_seed(seed));
            while !is_over.load(Ordering::Relaxed) {
                let (one, other) = (rng.below(IDS.into()) as u32, rng.below(IDS.into()) as u32);
                // Each thread renews rows of its own.
                let mine = 1000 * (seed as u32 + 1) + one % 5;
                let called = match rng.percent(70) {
                    true if one == other => continue,
                    true => session.call(transfer, &(one, other, 1)),
                    false => {
                        let back = (mine + 100, mine, text("b"));
                        session.call(renew, &(mine, mine + 100, text("c"))).and_then(|_| session.call(renew, &back))
                    }
                };
                match called {
                    Ok(_) => drop(committed.fetch_add(1, Ordering::Relaxed)),
                    Err(error) if error.is_retryable() => {}
                    Err(TransactError::WorkersBusy | TransactError::Excluded { .. }) => {}
                    Err(error) => panic!("{}: {error}", setting.protocol.name),
                }
            }
        };
        for thread in 0..WRITERS {
            for at in 0..5 {
                db.session().call(fill, &(1000 * (thread + 1) + at, 0, text("b"))).expect("it runs alone");
            }
        }
        let progress = || {
            let wanted = committed.load(Ordering::Relaxed) + 20;
            while committed.load(Ordering::Relaxed) < wanted {
                thread::sleep(Duration::from_millis(1));
            }
        };
        thread::scope(|scope| {
            (0..WRITERS).for_each(|seed| drop(scope.spawn(move || call(seed.into()))));
            let over = Over(&is_over);
            progress();
            change(&db, [Change::add_index("by_amount", ["amount"])]).expect("the rows allow it");
            progress();
            change(&db, [Change::add_column(ColumnDef::new("n", ColumnType::U8).default("4"))]).expect("so do they");
            progress();
            drop(over);
        });
        let all = rows(&db, "item");
        let sum: i128 = all.iter().map(|row| if let Value::Integer(sum, _) = row[3] { sum } else { 0 }).sum();
        assert_eq!(sum, 100 * i128::from(IDS), "{}", setting.protocol.name);
        assert!(all.iter().all(|row| row[5] == Value::from(4u8)), "{}: {all:?}", setting.protocol.name);
        let checked = db.check_indexes().expect("indexes and rows agree");
        assert_eq!((checked[0].rows, checked[0].indexes), (all.len() as u64, 2), "{}", setting.protocol.name);
        db.check_structure().expect("no transaction is open");
    });
}

/// Rows for which there is no memory end the change. Writers that meet the limit for it only begin again.
#[test]
fn a_change_for_which_there_is_no_memory_leaves_the_table_and_its_writers() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.builder().memory_limit(24 << 20).open().expect("a valid setting");
        let items = db.create::<Item>().expect("a valid table");
        let mut session = db.session();
        let mut count = 0;
        while db.statistics().memory_bytes < 16 << 20 {
            let note = Some("n".repeat(900));
            let load = |tx: &Tx| {
                (count..count + 50).try_for_each(|id| tx.insert(&items, &Item { note: note.clone(), ..item(id, 1) }))
            };
            session.transact(load).expect("there is room");
            count += 50;
        }
        let refused = change(&db, [Change::set_type("label", ColumnType::LongText)]);
        let refused = refused.expect_err("there is no room for a copy").to_string();
        assert!(refused.contains("memory"), "{}: {refused}", setting.protocol.name);
        assert_eq!(db.open_dyn("item").expect("it exists").definition().columns.len(), 5);
        (0..50).for_each(|_| db.step());
        let updated = session.transact(|tx| tx.update(&items, &1, |item| item.set_amount(5)).map(drop));
        updated.unwrap_or_else(|error| panic!("{}: {error}", setting.protocol.name));
        // A column that is added needs none.
        change(&db, [Change::add_column(ColumnDef::new("n", ColumnType::U64).default("1"))]).expect("rows stay");
        let ones = session.transact(|tx| {
            let mut ones = 0;
            let dynamic = db.open_dyn("item").expect("it exists");
            let _ = tx.scan_dyn(&dynamic, &[])?.try_for_each_row(|row| {
                ones += u32::from(row.value(5) == Value::from(1u64));
                Ok(std::ops::ControlFlow::<()>::Continue(()))
            })?;
            Ok(ones)
        });
        assert_eq!(*ones.unwrap_or_else(|error| panic!("{}: {error}", setting.protocol.name)), count);
    });
}

mod third {
    use super::*;

    /// A column more at the end, which handles of the first version do not write.
    #[derive(Table, Clone, Debug, PartialEq)]
    #[table(name = "item", key(id), evolve)]
    #[table(index(name = "by_tag", columns(tag)))]
    pub(super) struct Item {
        pub(super) id: u32,
        pub(super) tag: u16,
        #[column(immutable)]
        pub(super) label: Text<6>,
        pub(super) amount: i32,
        pub(super) note: Option<String>,
        #[column(default = "new")]
        pub(super) state: String,
    }
}

/// A column that a declaration has must be written by all that write rows.
#[test]
fn a_handle_that_does_not_know_a_declared_column_does_not_write_beside_one_that_does() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, first) = items(setting, 3);
        let refused = db.table::<third::Item>().expect_err("a handle is in use").to_string();
        assert!(refused.contains("column `state` text is added, with new in rows that exist"), "{refused}");
        let third = db.migrate::<third::Item>().expect("an explicit call ends handles");
        let mut session = db.session();
        let gone = session.transact(|tx| tx.insert(&first, &item(9, 1)));
        assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        let gone = db.each_row(&first, |_| ());
        assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        let state = session.transact(|tx| Ok(tx.require(&third, &2)?.to_owned().state));
        assert_eq!(state.expect("it runs alone").value, "new");
    });
}

/// The place of an index that was dropped is not that of another one for handles that exist.
#[test]
fn a_handle_of_an_index_does_not_find_another_one_in_its_place() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, items) = items(setting, 20);
        let by_tag = items.index(Item::BY_TAG);
        let mut session = db.session();
        change(&db, [Change::drop_index("by_tag")]).expect("it exists");
        let gone = session.transact(|tx| tx.find_by(&by_tag, &3u16).try_count());
        assert!(matches!(gone, Err(TransactError::TableGone)), "{gone:?}");
        session.transact(|tx| tx.require(&items, &3).map(drop)).expect("the table is there");
        change(&db, [Change::add_index("by_tag", ["tag"])]).expect("it makes sense");
        let found = session.transact(|tx| tx.find_by(&by_tag, &3u16).try_count());
        assert_eq!(*found.expect("it is the same index"), 3);
        change(&db, [Change::drop_index("by_tag")]).expect("it exists");
        change(&db, [Change::add_index("by_note", ["note"])]).expect("it makes sense");
        for used in [
            session.transact(|tx| tx.find_by(&by_tag, &3u16).try_count()),
            session.transact(|tx| tx.find_by(&items.index(Item::BY_TAG), &3u16).try_count()),
        ] {
            assert!(matches!(used, Err(TransactError::TableGone)), "{used:?}");
        }
    });
}

/// What a procedure's tables declare beside what it uses does not matter to it.
#[test]
fn procedures_go_on_without_an_index_that_they_do_not_use() {
    each(|setting| {
        let db = setting.open();
        db.create::<Item>().expect("a valid table");
        db.register(procedures![pay, fill]).expect("a sound set");
        let mut session = db.session();
        session.call(fill, &(1, 100, text("a"))).expect("it runs alone");
        change(&db, [Change::drop_index("by_tag")]).expect("no procedure uses it");
        assert_eq!(session.call(pay, &(1, 30)).expect("it exists").value, 70);
        change(&db, [Change::set_default("amount", Some("5".into()))]).expect("no procedure uses it");
        assert_eq!(session.call(pay, &(1, 30)).expect("it exists").value, 40);
        db.check_indexes().expect("indexes and rows agree");
    });
}
