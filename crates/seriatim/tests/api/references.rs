//! Foreign keys, under every protocol: no row ever refers to one that is not there.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{
    ColumnDef, ColumnType, OnChange, Organization, ReferenceDef, TableBuilder, TableDef, Value, desc,
};
use seriatim::dump::{self, Format};
use seriatim::history::{self, Promises};
use seriatim::procedure::ExecutionMode;
use seriatim::{
    Abort, Constraints, Database, DynHandle, Refusal, Rng, SchemaError, Session, Table, TransactError, Tx, procedure,
    procedures, thread,
};

use crate::common::{Setting, each, sampled};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "customer", key(id), index(name = "by_code", columns(code), unique, hash))]
struct Customer {
    id: u32,
    code: Option<u32>,
    visits: u32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "purchase", key(id), index(name = "by_customer", columns(customer)))]
#[table(references(columns(customer), table = "customer"))]
struct Purchase {
    id: u32,
    customer: Option<u32>,
    amount: i64,
}

/// Goes with its purchase.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "review", key(id), index(name = "by_purchase", columns(purchase)))]
#[table(references(columns(purchase), table = "purchase", on_delete = "cascade"))]
#[table(references(columns(author), table = "customer", on_delete = "set null"))]
struct Review {
    id: u32,
    purchase: u32,
    author: Option<u32>,
}

/// Whether closures run under the protocol.
fn runs_closures(setting: &Setting) -> bool {
    !setting.protocol.requirements.plan
}

fn each_with_closures(test: impl Fn(&Setting)) {
    each(|setting| {
        if runs_closures(setting) {
            test(setting);
        }
    });
}

fn column(name: &'static str) -> ColumnDef {
    ColumnDef::new(name, ColumnType::U32)
}

/// A table of these columns, with the key `id`.
fn table(name: &'static str, columns: &[ColumnDef]) -> TableBuilder {
    let table = TableDef::builder(name).column(column("id"));
    columns.iter().cloned().fold(table, TableBuilder::column).key(["id"])
}

fn declare(db: &Database, table: TableBuilder) -> DynHandle {
    db.declare(table.finish().expect("a valid table")).expect("it is new")
}

/// Numbers as values; `None` is NULL, where the column may be NULL.
fn row(table: &DynHandle, values: &[Option<u32>]) -> Vec<Value> {
    let columns = table.definition().columns.iter().zip(values);
    let value = |(column, value): (&ColumnDef, &Option<u32>)| match value {
        None => Value::NONE,
        Some(value) if column.nullable => Value::from(*value).some(),
        Some(value) => Value::from(*value),
    };
    columns.map(value).collect()
}

fn insert(tx: &Tx, table: &DynHandle, values: &[Option<u32>]) -> Result<(), Abort> {
    tx.insert_dyn(table, &row(table, values))
}

fn key(id: u32) -> [Value; 1] {
    [Value::from(id)]
}

/// All rows as text, in the order of their keys.
fn rows(session: &mut Session, table: &DynHandle) -> String {
    let all = session.transact(|tx| {
        let all = tx.scan_all_dyn(table)?.map(|row| Ok(row?.values())).collect::<Result<Vec<_>, Abort>>()?;
        let text = |value: &Value| value.to_text().unwrap_or_else(|| "-".to_owned());
        Ok::<_, Abort>(all.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>())
    });
    let mut all = all.expect("it runs alone").into_value();
    all.sort();
    all.join(", ")
}

fn tx_error(abort: Abort) -> TransactError {
    abort.into()
}

fn violation(error: &TransactError) -> String {
    assert!(matches!(error, TransactError::ForeignKey { .. }), "{error}");
    assert!(!error.is_retryable());
    error.to_string()
}

#[test]
fn a_row_refers_to_a_row_that_exists() {
    each_with_closures(|setting| {
        let db = setting.open();
        let (customers, purchases) = (db.create::<Customer>().expect("new"), db.create::<Purchase>().expect("new"));
        let mut session = db.session();
        let customer = |id| Customer { id, code: None, visits: 0 };
        let purchase = |id, customer| Purchase { id, customer, amount: 1 };
        session
            .transact(|tx| {
                tx.insert(&customers, &customer(1))?;
                tx.insert(&customers, &customer(2))?;
                tx.insert(&purchases, &purchase(10, Some(1)))?;
                tx.insert(&purchases, &purchase(11, None))
            })
            .expect("each customer is there");
        let missing = "customer 9 of purchase refers to no row of customer (foreign key purchase_customer_fkey)";
        let refused = session.transact(|tx| tx.insert(&purchases, &purchase(12, Some(9))));
        assert_eq!(violation(&refused.unwrap_err()), missing);
        let refused = session.transact(|tx| tx.put(&purchases, &purchase(10, Some(9))).map(drop));
        assert_eq!(violation(&refused.unwrap_err()), missing);
        let refused = session.transact(|tx| tx.update(&purchases, &11, |row| row.set_customer(Some(9))).map(drop));
        assert_eq!(violation(&refused.unwrap_err()), missing);
        let refused = session.transact(|tx| tx.delete(&customers, &1));
        let referred = "rows of purchase still refer to id 1 of customer (foreign key purchase_customer_fkey)";
        assert_eq!(violation(&refused.unwrap_err()), referred);
        // A body that ignores the error: nothing of the operations that failed is left.
        session
            .transact(|tx| {
                assert!(tx.insert(&purchases, &purchase(12, Some(9))).is_err());
                assert!(tx.put(&purchases, &purchase(10, Some(9))).is_err());
                assert!(tx.update(&purchases, &11, |row| row.set_customer(Some(9))).is_err());
                assert!(tx.delete(&customers, &1).is_err());
                assert!(tx.delete_range(&customers, ..).is_err());
                tx.update(&purchases, &10, |row| row.set_amount(5)).map(drop)
            })
            .expect("what is left is sound");
        let found = session.transact(|tx| {
            let by_customer = purchases.index(Purchase::BY_CUSTOMER);
            let by_index = tx.scan_by(&by_customer, ..).map(|row| Ok(row?.id())).collect::<Result<Vec<_>, Abort>>()?;
            let all = tx.scan(&purchases, ..).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, Abort>>()?;
            Ok::<_, Abort>((by_index, all, tx.count(&customers, ..)?))
        });
        let all = vec![Purchase { amount: 5, ..purchase(10, Some(1)) }, purchase(11, None)];
        assert_eq!(found.expect("it runs alone").into_value(), (vec![10, 11], all, 2));
        session
            .transact(|tx| {
                tx.delete(&customers, &2)?;
                tx.delete(&purchases, &10)?;
                tx.delete(&customers, &1)
            })
            .expect("no row refers to them");
        // An explicit transaction.
        let tx = session.begin().expect("a worker is free");
        let refused = tx.insert(&purchases, &purchase(12, Some(1))).unwrap_err();
        assert_eq!(violation(&refused.into()), missing.replace('9', "1"));
        tx.insert(&customers, &customer(1)).expect("it is new");
        tx.insert(&purchases, &purchase(12, Some(1))).expect("it is there now");
        tx.commit().expect("no conflict");
    });
}

/// The rows of two tables after a change of the first, whose rows 1 and 2 each have a row that refers to it.
fn after(setting: &Setting, child: TableBuilder, change: impl Fn(&Tx, &DynHandle) -> Result<(), Abort>) -> [String; 2] {
    let db = setting.open();
    let parent = table("parent", &[column("code").nullable()]).unique_index("by_code", ["code"], Organization::Hash);
    let parent = declare(&db, parent);
    let child = declare(&db, child);
    let mut session = db.session();
    let load = |tx: &Tx| {
        for id in [1, 2, 7] {
            insert(tx, &parent, &[Some(id), Some(10 * id)])?;
        }
        [1, 2].into_iter().try_for_each(|id| insert(tx, &child, &[Some(100 + id), Some(10 * id), Some(id)]))
    };
    session.transact(load).expect("each refers to a row");
    session.transact(|tx| change(tx, &parent)).expect("the reference allows it");
    [rows(&mut session, &parent), rows(&mut session, &child)]
}

#[test]
fn each_action_changes_the_rows_that_refer() {
    each_with_closures(|setting| {
        let code = ColumnDef::new("code", ColumnType::U32).nullable().default("70");
        let id = ColumnDef::new("parent", ColumnType::U32).nullable().default("7");
        let child = |by_code: OnChange, by_id: OnChange, with_indexes: bool| {
            let table = table("child", &[code.clone(), id.clone()]);
            let table = table
                .reference(
                    ReferenceDef::new(["code"], "parent").referenced(["code"]).on_update(by_code).on_delete(by_code),
                )
                .reference(ReferenceDef::new(["parent"], "parent").on_delete(by_id));
            match with_indexes {
                true => table.index("code", [desc("code")]).hash_index("parent", ["parent"]),
                false => table,
            }
        };
        for with_indexes in [true, false] {
            let delete = |tx: &Tx, parent: &DynHandle| tx.delete_dyn(parent, &key(1));
            let update =
                |to: Value| move |tx: &Tx, parent: &DynHandle| tx.update_dyn(parent, &key(1), &[("code", to.clone())]);
            let to_15 = update(Value::from(15u32).some());
            let deleted = |action| after(setting, child(action, action, with_indexes), delete);
            let updated = |action| after(setting, child(action, OnChange::NoAction, with_indexes), &to_15);
            let (left, moved) = ("2 20, 7 70", "1 15, 2 20, 7 70");
            assert_eq!(deleted(OnChange::Cascade), [left, "102 20 2"]);
            assert_eq!(deleted(OnChange::SetNull), [left, "101 - -, 102 20 2"]);
            assert_eq!(deleted(OnChange::SetDefault), [left, "101 70 7, 102 20 2"]);
            assert_eq!(updated(OnChange::Cascade), [moved, "101 15 1, 102 20 2"]);
            assert_eq!(updated(OnChange::SetNull), [moved, "101 - 1, 102 20 2"]);
            assert_eq!(updated(OnChange::SetDefault), [moved, "101 70 1, 102 20 2"]);
            let cascades = child(OnChange::Cascade, OnChange::NoAction, with_indexes);
            assert_eq!(after(setting, cascades, update(Value::NONE)), ["1 -, 2 20, 7 70", "101 - 1, 102 20 2"]);
            // The default is the key that goes.
            let defaults = child(OnChange::SetDefault, OnChange::SetDefault, with_indexes);
            let says = "rows of child still refer to code 70 of parent (foreign key child_code_fkey)";
            let kept = after(setting, defaults, |tx, parent| {
                tx.delete_dyn(parent, &key(1))?;
                let refused = tx.delete_dyn(parent, &key(7)).unwrap_err();
                assert_eq!(violation(&tx_error(refused)), says);
                Ok(())
            });
            assert_eq!(kept, [left, "101 70 7, 102 20 2"]);
            // All at once.
            let all = |tx: &Tx, parent: &DynHandle| tx.delete_range_dyn(parent, &[]).map(drop);
            let cascades = child(OnChange::Cascade, OnChange::Cascade, with_indexes);
            assert_eq!(after(setting, cascades, all), ["", ""]);
        }
    });
}

#[test]
fn a_cascade_runs_through_tables_and_cycles_and_ends() {
    each_with_closures(|setting| {
        let db = setting.open();
        // A node refers to its parent; leaves refer to nodes, and notes to leaves. Hashed and clustered tables too.
        let nodes = table("node", &[column("parent").nullable()]).index("by_parent", ["parent"]);
        let nodes = declare(&db, nodes.reference(ReferenceDef::new(["parent"], "node").on_delete(OnChange::Cascade)));
        let leaves = TableDef::builder("leaf").column(column("node")).column(column("number"));
        let leaves = leaves.key(["node", "number"]).cluster(["node"]);
        let leaves = declare(&db, leaves.reference(ReferenceDef::new(["node"], "node").on_delete(OnChange::Cascade)));
        let notes = table("note", &[column("node").nullable(), column("number").nullable()]).hash();
        let to_leaf = ReferenceDef::new(["number", "node"], "leaf").referenced(["number", "node"]);
        let notes = declare(&db, notes.reference(to_leaf.on_delete(OnChange::SetNull)));
        let mut session = db.session();
        const DEPTH: u32 = 300;
        session
            .transact(|tx| {
                insert(tx, &nodes, &[Some(0), None])?;
                insert(tx, &nodes, &[Some(1000), Some(1000)])?;
                for id in 1..DEPTH {
                    insert(tx, &nodes, &[Some(id), Some(id - 1)])?;
                }
                for (node, number) in [(0, 1), (7, 1), (7, 2), (DEPTH - 1, 1), (1000, 3)] {
                    insert(tx, &leaves, &[Some(node), Some(number)])?;
                    insert(tx, &notes, &[Some(10 * node + number), Some(node), Some(number)])?;
                }
                // One NULL, and it refers to nothing.
                insert(tx, &notes, &[Some(99_999), Some(55), None])
            })
            .expect("each refers to a row");
        let refused = session.transact(|tx| insert(tx, &notes, &[Some(5), Some(7), Some(9)])).unwrap_err();
        let says = "number 9, node 7 of note refers to no row of leaf (foreign key note_number_node_fkey)";
        assert_eq!(violation(&refused), says);
        session.transact(|tx| tx.delete_dyn(&nodes, &key(5))).expect("it cascades");
        assert_eq!(rows(&mut session, &leaves), "0 1, 1000 3");
        let left = format!("1 0 1, 10003 1000 3, {} - -, 71 - -, 72 - -, 99999 55 -", 10 * (DEPTH - 1) + 1);
        let mut left: Vec<&str> = left.split(", ").collect();
        left.sort_unstable();
        assert_eq!(rows(&mut session, &notes), left.join(", "));
        assert_eq!(rows(&mut session, &nodes).split(", ").count(), 6);
        // The root becomes a descendant of its own; and there is a row that refers to itself.
        session
            .transact(|tx| {
                tx.update_dyn(&nodes, &key(0), &[("parent", Value::from(4u32).some())])?;
                tx.delete_dyn(&nodes, &key(3))?;
                tx.delete_dyn(&nodes, &key(1000))
            })
            .expect("it ends");
        assert_eq!(rows(&mut session, &nodes), "");
        assert_eq!(rows(&mut session, &leaves), "");
    });
}

#[test]
fn a_range_is_deleted_if_no_row_is_left_that_refers_to_one_of_it() {
    each_with_closures(|setting| {
        for action in [OnChange::NoAction, OnChange::Restrict] {
            let db = setting.open();
            let chain = table("chain", &[column("next").nullable()]);
            let chain = declare(&db, chain.reference(ReferenceDef::new(["next"], "chain").on_delete(action)));
            let mut session = db.session();
            session
                .transact(|tx| {
                    insert(tx, &chain, &[Some(1), None])?;
                    (2..9).try_for_each(|id| insert(tx, &chain, &[Some(id), Some(id - 1)]))
                })
                .expect("each refers to a row");
            assert!(session.transact(|tx| tx.delete_dyn(&chain, &key(4))).is_err());
            assert_eq!(*session.transact(|tx| tx.delete_range_dyn(&chain, &[])).expect("none is left"), 8);
        }
    });
}

#[test]
fn a_deferred_reference_is_checked_when_the_transaction_commits() {
    each_with_closures(|setting| {
        let db = setting.open();
        let one = table("one", &[column("two")]).reference(ReferenceDef::new(["two"], "two").deferred());
        let two = table("two", &[column("one")]).reference(ReferenceDef::new(["one"], "one").deferrable());
        let both = [one, two].map(|table| table.finish().expect("a valid table"));
        let both = both.into_iter().fold(db.migration(), |migration, table| migration.create(table));
        both.run().expect("they refer to each other");
        let [one, two] = ["one", "two"].map(|name| db.open_dyn(name).expect("it is there"));
        let mut session = db.session();
        session
            .transact(|tx| {
                insert(tx, &one, &[Some(1), Some(2)])?;
                insert(tx, &two, &[Some(2), Some(1)])
            })
            .expect("both are there at the end");
        let missing = "two 3 of one refers to no row of two (foreign key one_two_fkey)";
        let refused = session.transact(|tx| insert(tx, &one, &[Some(4), Some(3)])).unwrap_err();
        assert_eq!(violation(&refused), missing);
        // The other is checked at once, unless the transaction asks for the end.
        assert!(session.transact(|tx| insert(tx, &two, &[Some(3), Some(4)])).is_err());
        session
            .transact(|tx| {
                tx.set_constraints(Constraints::Deferred)?;
                insert(tx, &two, &[Some(3), Some(4)])?;
                insert(tx, &one, &[Some(4), Some(3)])
            })
            .expect("both are there at the end");
        // What is rolled back is not checked; what is repaired in time is found sound.
        session
            .transact(|tx| {
                let savepoint = tx.savepoint()?;
                insert(tx, &one, &[Some(5), Some(6)])?;
                tx.rollback_to(savepoint)?;
                insert(tx, &one, &[Some(7), Some(8)])?;
                tx.update_dyn(&one, &key(7), &[("two", Value::from(2u32))])?;
                tx.set_constraints(Constraints::Immediate)?;
                assert!(insert(tx, &one, &[Some(9), Some(8)]).is_err());
                tx.set_constraints(Constraints::Deferred)?;
                tx.delete_dyn(&two, &key(2))?;
                assert!(tx.set_constraints(Constraints::Immediate).is_err());
                insert(tx, &two, &[Some(2), Some(1)])?;
                tx.set_constraints(Constraints::Immediate)
            })
            .expect("it is sound at the end");
        // An explicit transaction, and the next one of the session starts anew.
        let tx = session.begin().expect("a worker is free");
        insert(&tx, &one, &[Some(10), Some(3)]).expect("it is there");
        insert(&tx, &one, &[Some(11), Some(12)]).expect("it is checked later");
        let error = tx.commit().map(drop).unwrap_err();
        assert_eq!(violation(&error), missing.replace('3', "12"));
        session.transact(|tx| insert(tx, &one, &[Some(10), Some(3)])).expect("it is there");
        assert_eq!(rows(&mut session, &one), "1 2, 10 3, 4 3, 7 2");
        assert_eq!(rows(&mut session, &two), "2 1, 3 4");
    });
}

/// Rows that refer to no row.
fn orphans(db: &Database) -> (usize, usize) {
    let all = |table: &str| {
        let (handle, mut all) = (db.open_dyn(table).expect("it is there"), Vec::new());
        db.each_row_dyn(&handle, |row| all.push(row.values())).expect("no transaction is open");
        all
    };
    let parents: Vec<Value> = all("parent").into_iter().map(|row| row[0].clone()).collect();
    let children = all("child");
    let is_orphan = |row: &&Vec<Value>| match &row[1] {
        Value::Option(None) => false,
        Value::Option(Some(value)) => !parents.contains(value),
        value => !parents.contains(value),
    };
    (children.iter().filter(is_orphan).count(), children.len())
}

/// Threads insert and delete rows of both tables. Each also looks for the row to which a row refers. So an orphan is
/// found even if it is there for a moment only.
#[test]
fn no_orphan_is_made_by_threads_that_insert_and_delete_both() {
    sampled("no_orphan", |setting| {
        if !runs_closures(setting) {
            return;
        }
        for (checks, action) in [(0, OnChange::NoAction), (1, OnChange::Cascade), (2, OnChange::SetNull)] {
            let db = setting.builder().record_history(true).open().expect("a valid setting");
            let parent = declare(&db, table("parent", &[column("visits")]));
            let child = table("child", &[column("parent").nullable()]);
            let child = if checks == 0 { child } else { child.index("by_parent", ["parent"]) };
            let reference = ReferenceDef::new(["parent"], "parent").on_delete(action);
            let child = declare(&db, child.reference(if checks == 2 { reference.deferred() } else { reference }));
            let (made, refused) = (AtomicU64::new(0), AtomicU64::new(0));
            let work = |seed: u64| {
                let (mut session, mut rng) = (db.session(), Rng::from_seed(seed));
                for _ in 0..120 {
                    let (id, of, what) = (rng.below(6) as u32, rng.below(3) as u32, rng.below(6));
                    let done = session.transact(|tx| match what {
                        0 | 1 => tx.put_dyn(&child, &row(&child, &[Some(id), Some(of)])),
                        2 => tx.delete_if_dyn(&child, &key(id)).map(drop),
                        3 => tx.delete_if_dyn(&parent, &key(of)).map(drop),
                        4 => tx.put_dyn(&parent, &row(&parent, &[Some(of), Some(id)])),
                        _ => {
                            let found = tx.get_dyn(&child, &key(id))?.map(|row| row.value(1));
                            let Some(Value::Option(Some(of))) = found else { return Ok(()) };
                            match tx.exists_dyn(&parent, &[*of])? {
                                true => Ok(()),
                                // Reported only if what was read existed together.
                                false => Err(tx.abort("an orphan")),
                            }
                        }
                    });
                    match done {
                        Ok(_) => made.fetch_add(1, Ordering::Relaxed),
                        Err(TransactError::ForeignKey { .. }) => refused.fetch_add(1, Ordering::Relaxed),
                        Err(
                            TransactError::Conflict { .. }
                            | TransactError::WorkersBusy
                            | TransactError::Excluded { .. },
                        ) => 0,
                        Err(error) => panic!("{}: {error}", setting.protocol.name),
                    };
                }
            };
            let seed = seriatim::rng::seed("orphans");
            thread::scope(|scope| {
                let work = &work;
                (0..3).for_each(|at| drop(scope.spawn(move || work(seed + at))));
            });
            let (orphans, _) = orphans(&db);
            assert_eq!(orphans, 0, "{} {action:?}", setting.protocol.name);
            assert!(made.into_inner() > 0);
            // Also by a checker that shares no code with the engine.
            let strict = setting.protocol.capabilities.strict;
            let promises = if strict { Promises::STRICT } else { Promises::SERIALIZABLE };
            let history = db.take_history().expect("it was recorded");
            let summary = history::check(&history, &promises);
            assert!(summary.is_ok(), "{:?}", summary.err());
        }
    });
}

#[procedure]
fn buy(tx: &Tx, id: u32, customer: u32) -> Result<(), Abort> {
    tx.update::<Customer>(customer, |customer| customer.visits += 1)?;
    tx.insert(Purchase { id, customer: Some(customer), amount: 1 })?;
    Ok(())
}

#[procedure]
fn buy_blindly(tx: &Tx, id: u32, customer: u32) -> Result<(), Abort> {
    tx.insert(Purchase { id, customer: Some(customer), amount: 1 })?;
    Ok(())
}

#[procedure]
fn join(tx: &Tx, id: u32) -> Result<(), Abort> {
    tx.insert(Customer { id, code: None, visits: 0 })?;
    Ok(())
}

#[procedure]
fn leave(tx: &Tx, id: u32) -> Result<(), Abort> {
    tx.delete::<Customer>(id)?;
    Ok(())
}

#[procedure]
fn return_goods(tx: &Tx, id: u32) -> Result<(), Abort> {
    tx.delete::<Purchase>(id)?;
    Ok(())
}

#[procedure]
fn review(tx: &Tx, id: u32, purchase: u32, author: u32) -> Result<(), Abort> {
    tx.insert(Review { id, purchase, author: Some(author) })?;
    Ok(())
}

/// Returns how many reviews there are before and after.
#[procedure]
fn return_and_count(tx: &Tx, id: u32) -> Result<(u64, u64), Abort> {
    let before = tx.scan::<Review>(..).count()?;
    let _ = tx.delete_if::<Purchase>(id)?;
    let after = tx.scan::<Review>(..).count()?;
    Ok((before, after))
}

#[test]
fn procedures_see_what_their_references_have_done_in_any_mode() {
    each(|setting| {
        for mode in [ExecutionMode::Whole, ExecutionMode::Pieces] {
            if mode == ExecutionMode::Pieces && !setting.protocol.capabilities.pieces {
                continue;
            }
            let db = setting.builder().execution_mode(mode).check_plans(true).open().expect("a valid setting");
            db.create::<Customer>().expect("new");
            db.create::<Purchase>().expect("new");
            db.create::<Review>().expect("new");
            db.register(procedures![buy, join, leave, review, return_and_count]).expect("a sound set");
            let plan = db.plan("return_and_count").expect("it is registered").to_string();
            assert!(plan.contains("rows perhaps from #1"), "the count follows the deletion: {plan}");
            let mut session = db.session();
            session.call(join, &1).expect("it is new");
            session.call(join, &2).expect("it is new");
            for id in 0..5 {
                session.call(buy, &(id, 1)).expect("the customer is there");
                session.call(review, &(2 * id, id, 1)).expect("all are there");
                session.call(review, &(2 * id + 1, id, 2)).expect("all are there");
            }
            assert!(session.call(review, &(20, 9, 1)).is_err() && session.call(review, &(20, 1, 9)).is_err());
            assert_eq!(*session.call(return_and_count, &3).expect("it cascades"), (10, 8));
            assert_eq!(*session.call(return_and_count, &3).expect("there is none"), (8, 8));
            session.call(leave, &2).expect("reviews lose their author");
            let mut authors = Vec::new();
            db.each_row(&db.table::<Review>().expect("it is there"), |row| authors.push(row.author()))
                .expect("at rest");
            assert_eq!((authors.len(), authors.iter().flatten().count()), (8, 4));
        }
    });
}

#[test]
fn procedures_keep_references_and_their_plans_say_so() {
    each(|setting| {
        let db = setting.open();
        db.create::<Customer>().expect("new");
        db.create::<Purchase>().expect("new");
        db.register(procedures![buy, buy_blindly, join, leave, return_goods]).expect("a sound set");
        let plan = db.plan("buy_blindly").expect("it is registered").to_string();
        assert!(plan.contains("can fail: foreign key"), "{plan}");
        let mut session = db.session();
        session.call(join, &1).expect("it is new");
        session.call(buy, &(10, 1)).expect("the customer is there");
        let refused = session.call(buy_blindly, &(11, 2)).unwrap_err();
        assert!(violation(&refused).starts_with("customer 2 of purchase"), "{refused}");
        let refused = session.call(leave, &1).unwrap_err();
        assert!(violation(&refused).starts_with("rows of purchase still refer to id 1"), "{refused}");
        session.call(return_goods, &10).expect("it is there");
        session.call(leave, &1).expect("no row refers to it");
        let seed = seriatim::rng::seed("calls");
        thread::scope(|scope| {
            for at in 0..2 {
                let db = &db;
                scope.spawn(move || {
                    let (mut session, mut rng) = (db.session(), Rng::from_seed(seed + at));
                    for _ in 0..60 {
                        let (id, of) = (rng.below(4) as u32, rng.below(2) as u32);
                        let called = match rng.below(5) {
                            0 => session.call(join, &of).map(drop),
                            1 => session.call(leave, &of).map(drop),
                            2 => session.call(return_goods, &id).map(drop),
                            3 => session.call(buy, &(id, of)).map(drop),
                            _ => session.call(buy_blindly, &(id, of)).map(drop),
                        };
                        match called {
                            Ok(())
                            | Err(
                                TransactError::ForeignKey { .. }
                                | TransactError::Duplicate { .. }
                                | TransactError::MissingRow { .. }
                                | TransactError::Conflict { .. }
                                | TransactError::Excluded { .. }
                                | TransactError::WorkersBusy,
                            ) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let mut customers = Vec::new();
        db.each_row(&db.table::<Customer>().expect("it is there"), |row| customers.push(row.id())).expect("at rest");
        db.each_row(&db.table::<Purchase>().expect("it is there"), |row| {
            assert!(row.customer().is_none_or(|customer| customers.contains(&customer)), "{row:?}");
        })
        .expect("at rest");
    });
}

/// A body can go on after a statement that fails, panics, or is rolled back to a savepoint within.
#[test]
fn a_statement_leaves_nothing_if_it_fails_and_follows_nothing_that_was_rolled_back() {
    each_with_closures(|setting| {
        let name = setting.protocol.name;
        let db = setting.open();
        let parent = declare(&db, table("parent", &[]));
        let cascades = ReferenceDef::new(["of"], "parent").on_delete(OnChange::Cascade);
        let child = declare(&db, table("child", &[column("of")]).reference(cascades).index("by_of", ["of"]));
        let keeps = declare(&db, table("keeps", &[column("of")]).reference(ReferenceDef::new(["of"], "parent")));
        let mut session = db.session();
        let load = |tx: &Tx| {
            (1..4).try_for_each(|id| insert(tx, &parent, &[Some(id)]))?;
            insert(tx, &child, &[Some(10), Some(1)])?;
            insert(tx, &keeps, &[Some(20), Some(2)])
        };
        session.transact(load).expect("each parent is there");
        let all = |session: &mut Session| [&parent, &child, &keeps].map(|table| rows(session, table));
        let before = all(&mut session);
        session
            .transact(|tx| {
                let missing = tx.statement(|| insert(tx, &child, &[Some(11), Some(9)]));
                assert!(missing.is_err() || tx.exists_dyn(&child, &key(11)).is_err(), "{name}");
                let referred = tx.statement(|| tx.delete_dyn(&parent, &key(2)));
                assert!(referred.is_err(), "{name}");
                let own = tx.statement(|| {
                    tx.delete_dyn(&parent, &key(2))?;
                    Err::<(), _>(tx.abort("no"))
                });
                assert!(own.is_err(), "{name}");
                let panics = std::panic::AssertUnwindSafe(|| {
                    tx.statement(|| {
                        tx.delete_dyn(&parent, &key(2))?;
                        std::panic::resume_unwind(Box::new(()));
                        #[expect(unreachable_code, reason = "the type of the result")]
                        Ok(())
                    })
                });
                assert!(std::panic::catch_unwind(panics).is_err(), "{name}");
                tx.statement(|| {
                    let savepoint = tx.savepoint()?;
                    tx.delete_dyn(&parent, &key(1))?;
                    tx.rollback_to(savepoint)
                })?;
                let outside = tx.delete_dyn(&parent, &key(2));
                assert!(outside.is_err(), "{name}");
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(all(&mut session), before, "{name}");
    });
}

/// May be nobody's once it is more than 0.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "grant", key(id), index(name = "by_holder", columns(holder)))]
#[table(references(columns(holder), table = "customer", on_delete = "set null"))]
#[table(check(name = "held", "holder is not null or amount > 0"))]
struct Grant {
    id: u32,
    holder: Option<u32>,
    amount: i64,
}

/// So a procedure that changes the column is not cut as if these two did not conflict.
#[test]
fn the_plan_of_an_action_reads_what_a_condition_on_its_rows_does() {
    let db = Database::in_memory().expect("memory");
    db.create::<Customer>().expect("new");
    db.create::<Grant>().expect("new");
    db.register(procedures![leave]).expect("a sound set");
    let plan = db.plan("leave").expect("it is registered");
    let deletes = plan.operations.iter().find(|operation| operation.changes()).expect("it deletes a row");
    let own =
        deletes.accesses.iter().find(|access| &*plan.tables[access.table].name == "grant" && access.index.is_none());
    let columns: Vec<usize> = own.expect("it sets a column").reads.iter().map(|column| column.index()).collect();
    assert_eq!(columns, [1, 2]);
}

/// In a piece, or by partition, it would run beside those that it does not know to conflict with.
#[test]
fn procedures_know_of_references_of_tables_that_are_created_later() {
    each(|setting| {
        let db = setting.open();
        db.create::<Customer>().expect("new");
        db.register(procedures![leave]).expect("a sound set");
        db.create::<Grant>().expect("new");
        let plan = db.plan("leave").expect("it is registered").to_string();
        assert!(plan.contains("grant"), "{}: {plan}", setting.protocol.name);
        let own = |name: &'static str| table(name, &[column("of")]).reference(ReferenceDef::new(["of"], "customer"));
        declare(&db, own("other"));
        let plan = db.plan("leave").expect("it is registered").to_string();
        assert!(plan.contains("other"), "{}: {plan}", setting.protocol.name);
    });
}

fn refused_by(result: Result<Vec<String>, SchemaError>) -> String {
    result.expect_err("it must be refused").to_string()
}

#[test]
fn a_reference_is_added_to_rows_that_agree_and_follows_names() {
    each_with_closures(|setting| {
        let db = setting.open();
        let parent = declare(&db, table("parent", &[column("visits")]));
        let child = declare(&db, table("child", &[column("parent").nullable()]));
        let mut session = db.session();
        let load = |tx: &Tx| {
            (0..40).try_for_each(|id| insert(tx, &parent, &[Some(id), Some(0)]))?;
            (0..40).try_for_each(|id| insert(tx, &child, &[Some(id), Some(id)]))?;
            insert(tx, &child, &[Some(40), Some(77)])
        };
        session.transact(load).expect("there is no reference yet");
        let add = || db.migration().change("child", [Change::add_reference(ReferenceDef::new(["parent"], "parent"))]);
        assert_eq!(
            refused_by(add().run()),
            "table \"child\" was not changed: a row of child with parent 77 refers to no row of parent (reference \
             child_parent_fkey)"
        );
        session.transact(|tx| tx.delete_dyn(&parent, &key(3))).expect("nothing was added");
        session
            .transact(|tx| {
                insert(tx, &parent, &[Some(3), Some(0)])?;
                tx.delete_dyn(&child, &key(40))
            })
            .expect("it runs alone");
        let said = add().run().expect("all rows agree");
        assert_eq!(said, ["table `child`: reference `child_parent_fkey` of (parent) to parent is added"]);
        assert!(session.transact(|tx| tx.delete_dyn(&parent, &key(3))).is_err());

        // Names follow, and what is referred to stays.
        let change = |table: &str, change: Change| db.migration().change(table, [change]).run();
        change("parent", Change::rename_column("id", "number")).expect("it follows");
        change("parent", Change::rename_table("root")).expect("it follows");
        change("child", Change::rename_column("parent", "root")).expect("it follows");
        change("child", Change::rename_reference("child_parent_fkey", "to_root")).expect("it exists");
        let reference = db.open_dyn("child").expect("it is there").definition().references[0].clone();
        assert_eq!(reference, ReferenceDef::new(["root"], "root").named("to_root"));
        assert!(session.transact(|tx| tx.delete_dyn(&parent, &key(3))).is_err());
        let uses = "reference `to_root` of table `child` refers to it: drop that first";
        assert_eq!(
            refused_by(db.migration().drop_table("root").run()),
            format!("table \"root\" was not changed: {uses}")
        );
        assert_eq!(
            refused_by(db.migration().truncate("root").run()),
            format!("table \"root\" was not changed: {uses}")
        );
        assert_eq!(
            refused_by(change("child", Change::drop_column("root"))),
            "table `child`: column `root` is part of reference `to_root`: drop that first"
        );
        let refuses = refused_by(change("root", Change::set_type("number", ColumnType::U64)));
        assert!(refuses.contains("give both the same type"), "{refuses}");
        // Rows are written again on both sides; the reference stays.
        change("root", Change::add_column(column("more").default("1"))).expect("it has a value");
        change("child", Change::add_column(column("more").default("1"))).expect("it has a value");
        let (root, child) = (db.open_dyn("root").expect("it is there"), db.open_dyn("child").expect("it is there"));
        let error = session.transact(|tx| tx.delete_dyn(&root, &key(3))).unwrap_err();
        assert_eq!(violation(&error), "rows of child still refer to number 3 of root (foreign key to_root)");
        assert!(session.transact(|tx| insert(tx, &child, &[Some(50), Some(50), Some(1)])).is_err());
        db.migration().truncate("child").run().expect("nothing refers to it");
        session.transact(|tx| tx.delete_dyn(&root, &key(3))).expect("no row refers to it");
        assert!(session.transact(|tx| insert(tx, &child, &[Some(50), Some(3), Some(1)])).is_err());
        // Another of its name: its rows are compared anew.
        let other = || ReferenceDef::new(["id"], "root").named("to_root");
        let both = db.migration().change("child", [Change::drop_reference("to_root"), Change::add_reference(other())]);
        session.transact(|tx| insert(tx, &child, &[Some(50), None, Some(1)])).expect("it refers to nothing");
        assert!(refused_by(both.run()).contains("a row of child with id 50 refers to no row of root"));
        assert!(session.transact(|tx| insert(tx, &child, &[Some(51), Some(3), Some(1)])).is_err(), "the old one stays");
        session.transact(|tx| tx.delete_dyn(&child, &key(50))).expect("it is there");
        change("child", Change::drop_reference("to_root")).expect("it exists");
        session.transact(|tx| insert(tx, &child, &[Some(50), Some(3), Some(1)])).expect("nothing is checked any more");
        db.migration().drop_table("root").run().expect("nothing refers to it");
    });
}

/// What the reference needs is made by the same migration: columns, types, the unique index, the other table.
#[test]
fn a_reference_is_added_together_with_other_changes_of_both_tables() {
    each_with_closures(|setting| {
        let (db, name) = (setting.open(), setting.protocol.name);
        let parent = declare(&db, table("parent", &[column("code")]));
        let child = declare(&db, table("child", &[column("number").nullable()]));
        let mut session = db.session();
        session
            .transact(|tx| (0..9).try_for_each(|id| insert(tx, &parent, &[Some(id), Some(id + 20)])))
            .expect("alone");
        session.transact(|tx| (0..9).try_for_each(|id| insert(tx, &child, &[Some(id), Some(id + 20)]))).expect("alone");
        let by_code = || Change::add_unique_index("by_code", ["code"]);
        let to_code =
            || Change::add_reference(ReferenceDef::new(["number"], "parent").referenced(["code"]).named("to_code"));
        let wide = |name: &'static str| Change::set_type(name, ColumnType::U64);
        // The last row refers to none.
        session.transact(|tx| insert(tx, &child, &[Some(9), Some(50)])).expect("no reference yet");
        let refuses = |changed: Result<Vec<String>, SchemaError>| {
            let SchemaError::Refused { table, reason, .. } = changed.expect_err("a row refers to none") else {
                panic!("{name}")
            };
            assert!(matches!(*reason, Refusal::ForeignKey { .. }) && table == "child", "{name}: {reason:?}");
            assert_eq!(db.open_dyn("child").expect("it is there").definition().references.len(), 0, "{name}");
        };
        refuses(db.migration().change("child", [to_code()]).change("parent", [by_code()]).run());
        refuses(
            db.migration()
                .change("child", [wide("number"), to_code()])
                .change("parent", [wide("code"), by_code()])
                .run(),
        );
        session.transact(|tx| tx.delete_dyn(&child, &key(9))).expect("it is there");
        let both = db.migration().change("child", [to_code(), Change::add_index("by_number", ["number"])]);
        both.change("parent", [by_code()]).run().unwrap_or_else(|error| panic!("{name}: {error}"));
        let error = session.transact(|tx| tx.delete_dyn(&parent, &key(3))).unwrap_err();
        assert_eq!(violation(&error), "rows of child still refer to code 23 of parent (foreign key to_code)");
        assert!(session.transact(|tx| insert(tx, &child, &[Some(9), Some(50)])).is_err(), "{name}");

        // A column that refers from the beginning, by its default; the other table is renamed and copied.
        let added = |default: &'static str| {
            let column = Change::add_column(column("of").default(default));
            let reference = Change::add_reference(ReferenceDef::new(["of"], "base").named("of"));
            let more = Change::add_column(self::column("more").default("1"));
            let migration = db.migration().change("child", [column, reference]);
            migration.change("parent", [Change::rename_table("base"), more]).run()
        };
        let refused = added("70").expect_err("there is no such row").to_string();
        assert!(refused.contains("with of 70 refers to no row of base"), "{name}: {refused}");
        added("4").unwrap_or_else(|error| panic!("{name}: {error}"));
        let base = db.open_dyn("base").expect("it is there");
        session.transact(|tx| tx.delete_dyn(&child, &key(4))).expect("it is there");
        assert!(session.transact(|tx| tx.delete_dyn(&base, &key(4))).is_err(), "{name}: all refer to it");

        // To a table that is new: rows that exist refer to nothing.
        let made = || table("made", &[]).finish().expect("a valid table");
        let to_made = |column: ColumnDef| {
            let name = column.name.clone();
            [Change::add_column(column), Change::add_reference(ReferenceDef::new([name], "made"))]
        };
        let refused = db.migration().create(made()).change("child", to_made(column("a").default("1"))).run();
        assert!(refused.is_err() && db.open_dyn("made").is_err(), "{name}");
        let created = db.migration().create(made()).change("child", to_made(column("a").nullable())).run();
        created.unwrap_or_else(|error| panic!("{name}: {error}"));
        let child = db.open_dyn("child").expect("it is there");
        let row = |made: Option<u64>| {
            [
                Value::from(20u32),
                Value::NONE,
                Value::from(5u32),
                made.map_or(Value::NONE, |id| Value::from(id as u32).some()),
            ]
        };
        assert!(session.transact(|tx| tx.insert_dyn(&child, &row(Some(1)))).is_err(), "{name}");
        session.transact(|tx| tx.insert_dyn(&child, &row(None))).unwrap_or_else(|error| panic!("{name}: {error}"));
        // A table that refers to itself, by a column that is added.
        let own = ReferenceDef::new(["up"], "made");
        let changes = [Change::add_column(column("up").nullable()), Change::add_reference(own)];
        db.migration().change("made", changes).run().unwrap_or_else(|error| panic!("{name}: {error}"));
        db.check_indexes().expect("indexes and rows agree");
        db.check_structure().expect("it is sound");
    });
}

#[test]
fn a_reference_is_added_while_threads_write_both_tables() {
    sampled("added_amid", |setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let parent = declare(&db, table("parent", &[column("visits")]));
        let child = declare(&db, table("child", &[column("parent").nullable()]).index("by_parent", ["parent"]));
        let mut session = db.session();
        session.transact(|tx| (0..9).try_for_each(|id| insert(tx, &parent, &[Some(id), Some(0)]))).expect("alone");
        session.transact(|tx| (0..60).try_for_each(|id| insert(tx, &child, &[Some(id), Some(id % 9)]))).expect("alone");
        let seed = seriatim::rng::seed("added_amid");
        let added = thread::scope(|scope| {
            for at in 0..2 {
                let (db, parent, child) = (&db, &parent, &child);
                scope.spawn(move || {
                    let (mut session, mut rng) = (db.session(), Rng::from_seed(seed + at));
                    for _ in 0..80 {
                        let (id, of, hurts) = (rng.below(60) as u32, rng.below(10) as u32, rng.percent(2));
                        let _ = session.transact(|tx| match hurts {
                            true => tx.delete_if_dyn(parent, &key(of)).map(drop),
                            false if tx.exists_dyn(parent, &key(of))? => {
                                tx.put_dyn(child, &row(child, &[Some(id), Some(of)]))
                            }
                            false => tx.put_dyn(child, &row(child, &[Some(id), None])),
                        });
                    }
                });
            }
            let reference = Change::add_reference(ReferenceDef::new(["parent"], "parent"));
            let copied = || Change::add_column(column("more").default("1"));
            // Rows of both tables are looked up where they are, or in their copies.
            let mut changes = vec![reference];
            changes.extend(seed.is_multiple_of(2).then(copied));
            let migration = db.migration().change("child", changes);
            match (seed / 2).is_multiple_of(2) {
                true => migration.change("parent", [copied()]).run(),
                false => migration.run(),
            }
        });
        match added {
            Ok(_) => assert_eq!(orphans(&db).0, 0, "{}", setting.protocol.name),
            Err(SchemaError::Refused { problem, .. }) => assert!(problem.contains("refers to no row"), "{problem}"),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn references_that_make_no_sense_are_refused_by_name() {
    let db = Database::in_memory().expect("in memory");
    declare(&db, table("parent", &[column("code"), column("other")]).unique_index("c", ["code"], Organization::Hash));
    let refused = |reference: ReferenceDef| {
        let child = table("child", &[column("code"), ColumnDef::new("wide", ColumnType::U64)]).reference(reference);
        let error = child.finish().map_err(SchemaError::Invalid).and_then(|child| db.declare(child).map(drop));
        error.expect_err("it makes no sense").to_string()
    };
    let to = |column: &'static str| ReferenceDef::new([column], "parent");
    for (reference, says) in [
        (to("none"), "names `none`, but the columns are id, code, wide"),
        (
            to("wide"),
            "is of column `wide` of type u64, and column `id` of table `parent` is u32; give both the same type",
        ),
        (
            to("code").referenced(["other"]),
            "refers to (other) of table `parent`, which is neither its primary key nor that of a unique index; add one",
        ),
        (to("code").referenced(["lost"]), "refers to column `lost`, which table `parent` lacks"),
        (ReferenceDef::new(["code"], "lost"), "refers to table `lost`, which there is not"),
        (to("code").on_delete(OnChange::SetNull), "has on delete set null, and column `code` may not be NULL"),
        (to("code").on_delete(OnChange::SetDefault), "has on delete set default, and column `code` has no default"),
        (
            to("id").referenced(["code"]).on_update(OnChange::Cascade),
            "has on update cascade, and column `id` is immutable or part of the primary key",
        ),
        (ReferenceDef::new(["code", "id"], "parent"), "has 2 columns, and the primary key of table `parent` 1"),
    ] {
        let name = format!("child_{}_fkey", reference.columns.join("_"));
        assert_eq!(refused(reference), format!("table `child`: reference `{name}` {says}"));
    }
}

#[test]
fn a_dump_with_references_is_loaded_in_any_order_and_dumped_alike() {
    let db = Database::in_memory().expect("in memory");
    let one = table("a", &[column("b").nullable()]).reference(ReferenceDef::new(["b"], "b").deferred());
    let two = table("b", &[column("a")]).reference(ReferenceDef::new(["a"], "a").on_delete(OnChange::Cascade));
    let both = [one, two].map(|table| table.finish().expect("a valid table"));
    both.into_iter()
        .fold(db.migration(), |migration, table| migration.create(table))
        .run()
        .expect("they refer to each other");
    let [one, two] = ["a", "b"].map(|name| db.open_dyn(name).expect("it is there"));
    let load = |tx: &Tx| {
        (0..20).try_for_each(|id| insert(tx, &one, &[Some(id), Some(19 - id)]))?;
        (0..20).try_for_each(|id| insert(tx, &two, &[Some(id), Some(id)]))
    };
    db.session().transact(load).expect("all are there at the end");
    let dumped = |db: &Database| {
        let mut bytes = Vec::new();
        db.dump(Format::Json, &[], &mut bytes).expect("it is written");
        bytes
    };
    let bytes = dumped(&db);
    let copy = Database::in_memory().expect("in memory");
    copy.load(&bytes[..]).expect("it is whole");
    assert_eq!(dumped(&copy), bytes);
    let one = copy.open_dyn("a").expect("it is there");
    assert!(copy.session().transact(|tx| insert(tx, &one, &[Some(77), Some(77)])).is_err());
    let says = dump::describe(one.definition());
    assert!(says.contains("  reference a_b_fkey (b) to b, deferred\n    no index begins with (b): "), "{says}");
    let mut script = Vec::new();
    db.dump(Format::Sql, &[], &mut script).expect("it is written");
    let script = String::from_utf8(script).expect("it is text");
    let adds = [
        r#"ALTER TABLE "a" ADD CONSTRAINT "a_b_fkey" FOREIGN KEY ("b") REFERENCES "b" ("id")"#,
        " DEFERRABLE INITIALLY DEFERRED;\n",
        r#"ALTER TABLE "b" ADD CONSTRAINT "b_a_fkey" FOREIGN KEY ("a") REFERENCES "a" ("id") ON DELETE CASCADE;"#,
        "\nCOMMIT;\n",
    ];
    assert!(script.ends_with(&adds.concat()), "{script}");
    // A row that refers to none.
    let broken = String::from_utf8(bytes).expect("it is text").replace("{\"id\":3,\"a\":3}", "{\"id\":3,\"a\":33}");
    let error = Database::in_memory().expect("in memory").load(broken.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("a row of b with a 33 refers to no row of a (reference b_a_fkey)"), "{error}");
}

/// A load that ends early leaves each foreign key that its rows allow, and names the others. A load of the other rows
/// adds these.
#[test]
fn a_load_that_ends_early_is_resumed_with_the_foreign_keys_that_are_left() {
    let db = Database::in_memory().expect("in memory");
    let customer = declare(&db, table("customer", &[]));
    let to = |name: &'static str| ReferenceDef::new([name], "customer");
    let orders = table("order", &[column("by"), column("of").nullable()]).reference(to("by")).reference(to("of"));
    let orders = declare(&db, orders);
    let load = |tx: &Tx| {
        (0..4).try_for_each(|id| insert(tx, &customer, &[Some(id)]))?;
        (0..4).try_for_each(|id| insert(tx, &orders, &[Some(id), Some(id), None]))
    };
    db.session().transact(load).expect("each refers to a row");
    let mut bytes = Vec::new();
    db.dump(Format::Json, &[], &mut bytes).expect("it is written");
    let whole = String::from_utf8(bytes).expect("it is text");
    let is_customer = |line: &&str| line.starts_with("{\"table\":\"customer\"") && line.contains("\"row\"");
    let (customers, others): (Vec<&str>, Vec<&str>) = whole.lines().partition(is_customer);
    assert_eq!((customers.len(), others.len()), (4, 8), "{whole}");
    // The orders come first, and the dump is cut off before the customers.
    let (end, others) = others.split_last().expect("it has an end");
    let copy = Database::in_memory().expect("in memory");
    let error = copy.load(others.join("\n").as_bytes()).expect_err("it is cut");
    let says = "loaded are the rows up to line 7: 0 of customer, 4 of order; foreign keys that these rows do not \
                allow are added by a load of the other rows: order_by_fkey of order";
    assert!(error.to_string().ends_with(says), "{error}");
    assert_eq!(error.loaded.tables[1].lacks, ["order_by_fkey"]);
    let names = |db: &Database| -> Vec<String> {
        let table = db.open_dyn("order").expect("it is there");
        table.definition().references.iter().map(|reference| reference.name.to_string()).collect()
    };
    assert_eq!(names(&copy), ["order_of_fkey"], "no order has this");
    // The same declarations, and the other rows.
    let rest: Vec<&str> = others[..3].iter().chain(&customers).copied().collect();
    let end = end.replace("\"rows\":8", "\"rows\":4");
    let loaded = copy.load(format!("{}\n{end}", rest.join("\n")).as_bytes()).expect("it is the rest");
    assert!(loaded.tables.iter().all(|table| !table.is_new && table.lacks.is_empty()), "{loaded:?}");
    let mut names = names(&copy);
    names.sort();
    assert_eq!(names, ["order_by_fkey", "order_of_fkey"]);
    let order = copy.open_dyn("order").expect("it is there");
    assert!(copy.session().transact(|tx| insert(tx, &order, &[Some(9), Some(9), None])).is_err());
    // Another declaration is still refused.
    let other = whole.replace("order_by_fkey", "another");
    assert!(copy.load(other.as_bytes()).is_err());
}

mod first {
    use seriatim::Table;

    #[derive(Table)]
    #[table(name = "visit", key(id))]
    pub(super) struct Visit {
        pub(super) id: u32,
    }
}

#[derive(Table)]
#[table(name = "visit", key(id), evolve, references(columns(customer), table = "customer", on_delete = "set null"))]
struct Visit {
    id: u32,
    customer: Option<u32>,
}

#[test]
fn a_type_that_gets_a_column_with_a_reference_is_opened() {
    let db = Database::in_memory().expect("in memory");
    let customers = db.create::<Customer>().expect("new");
    let visits = db.create::<first::Visit>().expect("new");
    db.session().transact(|tx| tx.insert(&visits, &first::Visit { id: 1 })).expect("it runs alone");
    drop(visits);
    let visits = db.table::<Visit>().expect("it evolves");
    let mut session = db.session();
    assert!(session.transact(|tx| tx.insert(&visits, &Visit { id: 2, customer: Some(7) })).is_err());
    session
        .transact(|tx| {
            tx.insert(&customers, &Customer { id: 7, code: None, visits: 0 })?;
            tx.insert(&visits, &Visit { id: 2, customer: Some(7) })?;
            tx.delete(&customers, &7)?;
            assert_eq!(tx.require(&visits, &2)?.customer(), None);
            Ok::<(), Abort>(())
        })
        .expect("the customer is there");
    // A program that does not know the reference is bound by it.
    drop(visits);
    let old = db.table::<first::Visit>().expect("it has all columns");
    session.transact(|tx| tx.insert(&old, &first::Visit { id: 3 })).expect("it refers to nothing");
}

#[derive(Table)]
#[table(name = "branch", key(id))]
struct Branch {
    id: u16,
    open: bool,
}

#[derive(Table)]
#[table(name = "account", key(branch, id), references(columns(branch), table = "branch"))]
struct Account {
    branch: u16,
    id: u32,
    friend: Option<u16>,
}

/// As [`Account`], and one of another branch.
#[derive(Table)]
#[table(name = "guest", key(branch, id), references(columns(host), table = "branch"))]
struct Guest {
    branch: u16,
    id: u32,
    host: u16,
}

#[procedure]
fn open_account(tx: &Tx, branch: u16, id: u32) -> Result<(), Abort> {
    tx.insert(Account { branch, id, friend: None })?;
    Ok(())
}

#[procedure]
fn invite(tx: &Tx, branch: u16, id: u32, host: u16) -> Result<(), Abort> {
    tx.insert(Guest { branch, id, host })?;
    Ok(())
}

#[procedure]
fn shut(tx: &Tx, branch: u16) -> Result<(), Abort> {
    tx.delete::<Branch>(branch)?;
    Ok(())
}

#[test]
fn a_reference_to_another_partition_needs_all_and_registration_says_so() {
    for protocol in seriatim::protocols().iter().filter(|protocol| protocol.capabilities.partitions) {
        let by = |value: &seriatim::PartitionValue, partitions: usize| match value {
            seriatim::PartitionValue::Integer(number) => *number as usize % partitions,
            seriatim::PartitionValue::Bytes(_) => 0,
        };
        let builder = Database::builder().protocol(protocol.name).partitions(2);
        let db = builder.partition_by(by).open().expect("valid");
        let branches = db.create::<Branch>().expect("new");
        db.create::<Account>().expect("new");
        db.create::<Guest>().expect("new");
        let registered = db.register(procedures![open_account, invite, shut]).expect("a sound set");
        let told = registered.everywhere.iter().map(|told| (&*told.procedure, &*told.reason));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                (
                    "invite",
                    "0 insert guest follows reference guest_host_fkey, whose other rows may be in other partitions"
                ),
                (
                    "shut",
                    "0 delete branch follows reference guest_host_fkey, whose other rows may be in other partitions"
                ),
            ]
        );
        let mut session = db.session();
        session
            .transact(|tx| (1..4).try_for_each(|id| tx.insert(&branches, &Branch { id, open: true })))
            .expect("alone");
        session.call(open_account, &(1, 1)).expect("the branch is there");
        assert!(violation(&session.call(open_account, &(4, 1)).unwrap_err()).starts_with("branch 4 of account"));
        session.call(invite, &(1, 1, 2)).expect("the branch is there");
        assert!(violation(&session.call(invite, &(1, 2, 4)).unwrap_err()).starts_with("host 4 of guest"));
        assert!(violation(&session.call(shut, &2).unwrap_err()).starts_with("rows of guest still refer"));
        assert!(violation(&session.call(shut, &1).unwrap_err()).starts_with("rows of account still refer"));
        session.call(shut, &3).expect("no row refers to it");
    }
}

/// An operation on one of the tables.
#[derive(Clone, Debug)]
enum Random {
    Put(usize, Vec<Option<u32>>),
    Update(usize, u32, usize, Option<u32>),
    Delete(usize, u32),
    DeleteRange(usize),
    Defer(bool),
    /// The operations since the last one are rolled back.
    Back,
}

/// Three tables with references in all directions, each with an action that the seed decides.
fn random_tables(db: &Database, rng: &mut Rng) -> Vec<DynHandle> {
    let actions = [OnChange::NoAction, OnChange::Restrict, OnChange::Cascade, OnChange::SetNull, OnChange::SetDefault];
    let tables = (0..3).map(|at| {
        let columns = ["code", "one", "two"].map(|name| column(name).nullable());
        let columns = columns.map(|column| if rng.percent(50) { column.default("1") } else { column });
        let mut table = table(["a", "b", "c"][at], &columns).unique_index("code", ["code"], Organization::Hash);
        for (name, by_code) in [("one", false), ("two", true)] {
            let to = ["a", "b", "c"][rng.below(3) as usize];
            let mut reference = ReferenceDef::new([name], to);
            reference.on_delete = actions[rng.below(5) as usize];
            reference.on_update = actions[rng.below(5) as usize];
            if by_code {
                reference = reference.referenced(["code"]);
            }
            reference = match rng.below(3) {
                0 => reference,
                1 => reference.deferrable(),
                _ => reference.deferred(),
            };
            // Without a default, the columns become NULL.
            let has_default = columns.iter().any(|column| column.name == name && column.default.is_some());
            let is_set =
                |action| if action == OnChange::SetDefault && !has_default { OnChange::SetNull } else { action };
            (reference.on_delete, reference.on_update) = (is_set(reference.on_delete), is_set(reference.on_update));
            table = table.reference(reference);
            if rng.percent(50) {
                table = table.index(format!("by_{name}"), [name]);
            }
        }
        let table = if at == 2 && rng.percent(50) { table.hash() } else { table };
        table.finish().expect("a valid table")
    });
    let tables: Vec<TableDef> = tables.collect();
    let names: Vec<String> = tables.iter().map(|table| table.name.to_string()).collect();
    let made = tables.into_iter().fold(db.migration(), |migration, table| migration.create(table));
    made.run().expect("they refer to each other");
    names.iter().map(|name| db.open_dyn(name).expect("it is there")).collect()
}

fn random_operation(rng: &mut Rng) -> Random {
    let mut value = || (!rng.percent(25)).then(|| rng.below(4) as u32);
    let (one, two, three) = (value(), value(), value());
    let (at, id) = (rng.below(3) as usize, rng.below(4) as u32);
    match rng.below(12) {
        0..=4 => Random::Put(at, vec![Some(id), one, two, three]),
        5..=7 => Random::Update(at, id, 1 + rng.below(3) as usize, one),
        8 | 9 => Random::Delete(at, id),
        10 => match rng.below(6) {
            0 if at < 2 => Random::DeleteRange(at),
            _ => Random::Defer(rng.percent(50)),
        },
        _ => Random::Back,
    }
}

type Contents = Vec<Vec<Vec<Value>>>;

fn contents(tx: &Tx, tables: &[DynHandle]) -> Result<Contents, Abort> {
    let of = |table: &DynHandle| {
        let mut rows = tx.scan_all_dyn(table)?.map(|row| Ok(row?.values())).collect::<Result<Vec<_>, Abort>>()?;
        rows.sort_by_key(|row| format!("{:?}", row[0]));
        Ok(rows)
    };
    tables.iter().map(of).collect()
}

/// Whether each row refers to rows that exist.
fn is_sound(tables: &[DynHandle], all: &Contents) -> bool {
    tables.iter().zip(all).all(|(table, rows)| {
        table.definition().references.iter().all(|reference| {
            let parent = tables.iter().position(|parent| parent.definition().name == reference.table).expect("one");
            let from = table.definition().column(&reference.columns[0]).expect("it exists").index();
            let to = if reference.referenced.is_empty() { 0 } else { 1 };
            let present = |value: &Value| match value {
                Value::Option(value) => value.as_deref().cloned(),
                value => Some(value.clone()),
            };
            let keys: Vec<Value> = all[parent].iter().filter_map(|row| present(&row[to])).collect();
            rows.iter().filter_map(|row| present(&row[from])).all(|value| keys.contains(&value))
        })
    })
}

/// Random operations: one that fails leaves all tables as they were, and no commit leaves an orphan.
#[test]
fn random_operations_are_whole_and_leave_no_orphan() {
    sampled("random_references", |setting| {
        if !runs_closures(setting) {
            return;
        }
        let mut rng = Rng::from_seed(seriatim::rng::seed("random_references"));
        for _ in 0..3 {
            let db = setting.open();
            let tables = random_tables(&db, &mut rng);
            let mut session = db.session();
            let (mut committed, mut refused) = (0, 0);
            for _ in 0..30 {
                let program: Vec<Random> = (0..rng.range(1, 6)).map(|_| random_operation(&mut rng)).collect();
                let run = |tx: &Tx| {
                    let mut savepoint = tx.savepoint()?;
                    for operation in &program {
                        let before = contents(tx, &tables)?;
                        let done = match operation {
                            Random::Put(at, values) => tx.put_dyn(&tables[*at], &row(&tables[*at], values)),
                            Random::Update(at, id, column, value) => {
                                let name = ["id", "code", "one", "two"][*column];
                                let value = value.map_or(Value::NONE, |value| Value::from(value).some());
                                tx.update_if_dyn(&tables[*at], &key(*id), &[(name, value)]).map(drop)
                            }
                            Random::Delete(at, id) => tx.delete_if_dyn(&tables[*at], &key(*id)).map(drop),
                            Random::DeleteRange(at) => tx.delete_range_dyn(&tables[*at], &[]).map(drop),
                            Random::Defer(true) => tx.set_constraints(Constraints::Deferred),
                            Random::Defer(false) => tx.set_constraints(Constraints::Immediate),
                            Random::Back => {
                                tx.rollback_to(savepoint)?;
                                savepoint = tx.savepoint()?;
                                Ok(())
                            }
                        };
                        if let Err(abort) = done {
                            if abort.is_retryable() {
                                return Err(abort);
                            }
                            assert_eq!(contents(tx, &tables)?, before, "{operation:?} failed: {abort}");
                        }
                    }
                    Ok(())
                };
                match session.transact(run) {
                    Ok(_) => committed += 1,
                    Err(TransactError::ForeignKey { .. }) => refused += 1,
                    Err(error) => panic!("{}: {program:?}: {error}", setting.protocol.name),
                }
                let all = session.transact(|tx| contents(tx, &tables)).expect("it runs alone").into_value();
                let declared: Vec<&TableDef> = tables.iter().map(DynHandle::definition).collect();
                assert!(is_sound(&tables, &all), "{program:?} of {declared:?} left {all:?}");
            }
            db.check_indexes().expect("all agree");
            assert!(committed > refused / 8, "{committed} {refused}");
        }
    });
}

/// Checks that were put off are made before a transaction is held until its batch is decided.
#[test]
fn checks_that_are_put_off_and_numbers_work_on_the_threads_of_an_executor() {
    each_with_closures(|setting| {
        let name = setting.protocol.name;
        let db = setting.open();
        let parent = declare(&db, table("parent", &[]));
        let id = ColumnDef::new("no", ColumnType::U32).identity(seriatim::catalog::Identity::by_default());
        let child = TableDef::builder("child").column(id).column(column("of")).key(["no"]).index("by_of", ["of"]);
        let child = declare(&db, child.reference(ReferenceDef::new(["of"], "parent").deferrable()));
        let executor = db.executor(2).expect("threads");
        let run = |of: u32, too_late: bool| {
            let (parent, child) = (parent.clone(), child.clone());
            executor.run(move |session| {
                session.transact(|tx| {
                    tx.set_constraints(Constraints::Deferred)?;
                    tx.insert_new_dyn(&child, &[Value::NONE, Value::from(of)])?;
                    if too_late { Ok(()) } else { tx.insert_dyn(&parent, &[Value::from(of)]) }
                })
            })
        };
        let running: Vec<_> = (0..30).map(|of| (of, run(of, of % 3 == 0))).collect();
        for (of, running) in running {
            let done = running.wait().expect("the executor runs");
            match of % 3 {
                0 => assert!(matches!(done, Err(TransactError::ForeignKey { .. })), "{name}: {done:?}"),
                _ => assert!(done.is_ok(), "{name}: {done:?}"),
            }
        }
        let count = |table: &DynHandle| db.session().transact(|tx| tx.count_all_dyn(table)).map(|count| *count);
        assert_eq!([count(&parent), count(&child)].map(|count| count.expect("it runs alone")), [20, 20], "{name}");
    });
}

/// A row for a table as it is declared now: these columns, and otherwise the defaults.
fn whole_row(table: &DynHandle, given: &[(&str, Option<u32>)]) -> Vec<Value> {
    let columns = &table.definition().columns;
    let value = |column: &ColumnDef| match given.iter().find(|(name, _)| column.name == *name) {
        Some((_, Some(number))) => {
            let value = column.ty.parse(&number.to_string()).expect("an integer");
            if column.nullable { value.some() } else { value }
        }
        Some((_, None)) => Value::NONE,
        None => column.default_value().expect("it fits").unwrap_or(Value::NONE),
    };
    columns.iter().map(value).collect()
}

/// One write of tables that may change at any time.
fn write_amid(db: &Database, session: &mut Session, rng: &mut Rng) -> Result<(), TransactError> {
    let open = |name: &str| db.open_dyn(name).expect("its name stays");
    let (parent, child, node) = (open("parent"), open("child"), open("node"));
    let (id, of, n) = (rng.below(12) as u32, rng.below(12) as u32, rng.below(4) as u32);
    let link = rng.percent(70).then(|| 100 + rng.below(12) as u32);
    let number = |table: &DynHandle, column: &str, number: u32| {
        let at = table.definition().column(column).expect("it stays").index();
        table.definition().columns[at].ty.parse(&number.to_string()).expect("an integer")
    };
    let work = |tx: &Tx, rng: u64| -> Result<(), Abort> {
        match rng {
            0 | 1 => {
                tx.put_dyn(&parent, &whole_row(&parent, &[("id", Some(id)), ("code", Some(100 + id)), ("x", Some(n))]))
            }
            2 => tx.delete_if_dyn(&parent, &[number(&parent, "id", id)]).map(drop),
            3 => tx
                .update_if_dyn(&parent, &[number(&parent, "id", id)], &[("code", number(&parent, "code", 100 + of))])
                .map(drop),
            4..=6 => tx.put_dyn(
                &child,
                &whole_row(&child, &[("of", Some(of)), ("n", Some(n)), ("link", link), ("x", Some(id))]),
            ),
            7 => tx.delete_if_dyn(&child, &[number(&child, "of", of), number(&child, "n", n)]).map(drop),
            8 | 9 => {
                let up = (id > 0).then_some(id / 2);
                tx.put_dyn(&node, &whole_row(&node, &[("id", Some(id)), ("up", up), ("of", Some(of)), ("x", Some(n))]))
            }
            10 => tx.delete_if_dyn(&node, &[number(&node, "id", id)]).map(drop),
            _ => tx.delete_range_dyn(&child, &[number(&child, "of", of)]).map(drop),
        }
    };
    let ops: Vec<u64> = (0..rng.range(1, 4)).map(|_| rng.below(12)).collect();
    session.transact(|tx| ops.iter().try_for_each(|op| work(tx, *op))).map(drop)
}

#[test]
fn tables_that_refer_to_each_other_change_while_rows_go_along() {
    let seed = seriatim::rng::seed("change_amid");
    sampled("change_amid", |setting| {
        if !runs_closures(setting) {
            return;
        }
        let name = setting.protocol.name;
        let db = setting.open();
        let parent = table("parent", &[column("code"), column("x")]);
        declare(&db, parent.unique_index("by_code", ["code"], Organization::Ordered));
        let child = TableDef::builder("child").column(column("of")).column(column("n")).column(column("x"));
        let child = child.column(column("link").nullable()).key(["of", "n"]).cluster(["of"]);
        let child = child.reference(ReferenceDef::new(["of"], "parent").on_delete(OnChange::Cascade));
        let to_code = || {
            let to_code = ReferenceDef::new(["link"], "parent").named("to_code").referenced(["code"]);
            to_code.on_delete(OnChange::SetNull).on_update(OnChange::Cascade)
        };
        declare(&db, child.reference(to_code()).index("by_link", ["link"]));
        let node = table("node", &[column("up").nullable(), column("of"), column("x")]);
        let node =
            node.reference(ReferenceDef::new(["up"], "node").on_delete(OnChange::Cascade)).index("by_up", ["up"]);
        declare(
            &db,
            node.reference(ReferenceDef::new(["of"], "parent").on_delete(OnChange::Cascade)).index("by_of", ["of"]),
        );
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let mut rng = Rng::from_seed(seed);
        thread::scope(|scope| {
            for at in 0..2 {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    let (mut session, mut rng) = (db.session(), Rng::from_seed(seed + 1 + at));
                    while !is_over.load(Ordering::Relaxed) {
                        match write_amid(db, &mut session, &mut rng) {
                            Ok(())
                            | Err(
                                TransactError::ForeignKey { .. }
                                | TransactError::Duplicate { .. }
                                | TransactError::User(_)
                                | TransactError::TableGone
                                | TransactError::Conflict { .. }
                                | TransactError::Excluded { .. }
                                | TransactError::WorkersBusy,
                            ) => {}
                            Err(error) => {
                                is_over.store(true, Ordering::Relaxed);
                                panic!("{name}: {error}");
                            }
                        }
                    }
                });
            }
            for round in 0..seriatim::rng::tries(6, 30) {
                let table = ["parent", "child", "node"][rng.below(3) as usize];
                let definition = db.open_dyn(table).expect("its name stays").definition().clone();
                let has = |column: &str| definition.column(column).is_some();
                let change = match rng.below(6) {
                    0 if has("more") => Change::drop_column("more"),
                    0 => Change::add_column(ColumnDef::new("more", ColumnType::Text { max: 40 }).default("m")),
                    1 if definition.index("by_x").is_some() => Change::drop_index("by_x"),
                    1 => Change::add_index("by_x", ["x"]),
                    2 => {
                        let is_narrow =
                            definition.columns.iter().any(|column| column.name == "x" && column.ty == ColumnType::U32);
                        Change::set_type("x", if is_narrow { ColumnType::U64 } else { ColumnType::U32 })
                    }
                    3 if table == "child" && definition.reference("to_code").is_some() => {
                        Change::drop_reference("to_code")
                    }
                    3 if table == "child" => Change::add_reference(to_code()),
                    4 if has("first") => Change::drop_column("first"),
                    _ if definition.checks.is_empty() => Change::add_check("sound", "x >= 0"),
                    _ => Change::drop_check("sound"),
                };
                let said = format!("{change:?}");
                let changed = db.migration().change(table, [change]).run();
                match changed {
                    Ok(_) | Err(SchemaError::Refused { .. }) => {}
                    Err(error) => {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{name}, round {round}, {table}, {said}: {error}");
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut session = db.session();
        let tables = ["parent", "child", "node"].map(|table| db.open_dyn(table).expect("its name stays"));
        let all = tables.each_ref().map(|table| {
            let mut all = Vec::new();
            db.each_row_dyn(table, |row| all.push(row.values())).expect("at rest");
            all
        });
        let plain = |value: &Value| {
            if let Value::Option(value) = value { value.as_deref().cloned() } else { Some(value.clone()) }
        };
        for (child, own) in tables.iter().zip(&all) {
            for reference in &child.definition().references {
                let to =
                    tables.iter().position(|table| table.definition().name == reference.table).expect("it is there");
                let at = |table: &DynHandle, name: &str| table.definition().column(name).expect("it has it").index();
                let from = at(child, &reference.columns[0]);
                let key = reference.referenced_in(tables[to].definition());
                let key = at(&tables[to], key[0]);
                let keys: Vec<_> = all[to].iter().filter_map(|row| plain(&row[key])).collect();
                for row in own {
                    let is_kept = plain(&row[from]).is_none_or(|value| keys.contains(&value));
                    assert!(
                        is_kept,
                        "{name}: {row:?} of {} by {}, seed {seed}",
                        child.definition().name,
                        reference.name
                    );
                }
            }
        }
        db.check_indexes().unwrap_or_else(|error| panic!("{name}: {error}"));
        db.check_structure().unwrap_or_else(|error| panic!("{name}: {error}"));
        session.transact(|tx| tx.count_all_dyn(&tables[0])).expect("it is open");
    });
}
