//! Unique constraints that can be deferred, under every protocol: no two committed rows ever agree.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{Checked, ColumnDef, ColumnType, IndexDef, Organization, ReferenceDef, TableBuilder, TableDef};
use seriatim::dump::{self, Format};
use seriatim::history::{self, Promises};
use seriatim::procedure::ExecutionMode;
use seriatim::{
    Abort, Constraints, Database, DynHandle, Rng, SchemaError, Session, Table, TransactError, Tx, Value, procedure,
    procedures, thread,
};

use crate::common::{Setting, each, sampled};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "task", key(id), index(name = "task_place_key", columns(place), unique, deferred))]
#[table(index(name = "task_tag_key", columns(tag), unique, deferrable, hash))]
struct Task {
    id: u32,
    place: u32,
    tag: Option<u32>,
}

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

/// Rows of an id and a number, which may be NULL and is unique.
fn table(name: &'static str) -> TableBuilder {
    let table = TableDef::builder(name).column(column("id")).column(column("k").nullable()).key(["id"]);
    table.unique_index("once", ["k"], Organization::Ordered)
}

fn declare(db: &Database, table: TableBuilder) -> DynHandle {
    db.declare(table.finish().expect("a valid table")).expect("it is new")
}

fn row(id: u32, k: Option<u32>) -> [Value; 2] {
    [Value::from(id), k.map_or(Value::NONE, |k| Value::from(k).some())]
}

fn insert(tx: &Tx, table: &DynHandle, id: u32, k: u32) -> Result<(), Abort> {
    tx.insert_dyn(table, &row(id, Some(k)))
}

fn set(tx: &Tx, table: &DynHandle, id: u32, k: u32) -> Result<(), Abort> {
    tx.update_dyn(table, &[Value::from(id)], &[("k", Value::from(k).some())]).map(drop)
}

/// The numbers, in the order of the ids.
fn numbers(session: &mut Session, table: &DynHandle) -> String {
    let read = session.transact(|tx| {
        let rows = tx.scan_all_dyn(table)?.map(|row| Ok(row?.value(1))).collect::<Result<Vec<_>, Abort>>()?;
        Ok::<_, Abort>(rows.iter().map(|k| k.to_text().unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>())
    });
    read.expect("it runs alone").join(" ")
}

fn twins(error: &TransactError) -> String {
    assert!(matches!(error, TransactError::Duplicate { .. }), "{error}");
    assert!(!error.is_retryable());
    error.to_string()
}

#[test]
fn rows_may_agree_until_their_constraint_is_checked() {
    each_with_closures(|setting| {
        let db = setting.open();
        let [soon, late] = [declare(&db, table("soon").deferrable()), declare(&db, table("late").deferred())];
        let mut session = db.session();
        for table in [&soon, &late] {
            session.transact(|tx| (1..4).try_for_each(|id| insert(tx, table, id, 10 * id))).expect("they differ");
        }
        // An operation is checked at its end, and so are those of one statement together.
        let refused = session.transact(|tx| set(tx, &soon, 1, 20)).unwrap_err();
        assert_eq!(twins(&refused), "duplicate key k 20 in soon.once");
        let swap = |tx: &Tx, table: &DynHandle| {
            set(tx, table, 1, 20)?;
            set(tx, table, 2, 10)
        };
        session.transact(|tx| tx.statement(|| swap(tx, &soon))).expect("they differ at the end");
        // Other constraints, and other names, are as before.
        let refused = session.transact(|tx| {
            tx.set_constraints_of(&["never"], Constraints::Deferred)?;
            set(tx, &soon, 1, 10)?;
            set(tx, &soon, 2, 20)
        });
        assert!(refused.is_err());
        for defer in [None, Some(&["once"][..])] {
            let swapped = session.transact(|tx| {
                match defer {
                    None => tx.set_constraints(Constraints::Deferred)?,
                    Some(names) => tx.set_constraints_of(names, Constraints::Deferred)?,
                }
                set(tx, &soon, 1, 30)?;
                set(tx, &soon, 3, 20)?;
                set(tx, &soon, 3, 40)?;
                set(tx, &soon, 1, 20)?;
                set(tx, &soon, 3, 30)
            });
            swapped.expect("they differ at the end");
        }
        assert_eq!(numbers(&mut session, &soon), "20 10 30");
        // By itself at the commit.
        session.transact(|tx| swap(tx, &late)).expect("they differ at the end");
        let refused = session.transact(|tx| insert(tx, &late, 4, 30)).unwrap_err();
        assert_eq!(twins(&refused), "duplicate key k 30 in late.once");
        let kept = session.transact(|tx| {
            // What is rolled back is not found; what is repaired in time is sound.
            let savepoint = tx.savepoint()?;
            insert(tx, &late, 4, 30)?;
            tx.rollback_to(savepoint)?;
            insert(tx, &late, 5, 30)?;
            assert!(tx.set_constraints(Constraints::Immediate).is_err());
            tx.delete_dyn(&late, &[Value::from(3u32)])?;
            tx.set_constraints(Constraints::Immediate)?;
            assert!(insert(tx, &late, 6, 30).is_err());
            tx.set_constraints_of(&["once"], Constraints::Deferred)?;
            insert(tx, &late, 6, 30)?;
            tx.delete_dyn(&late, &[Value::from(6u32)])
        });
        kept.expect("they differ at the end");
        let tx = session.begin().expect("a worker is free");
        insert(&tx, &late, 7, 20).expect("it is checked later");
        twins(&tx.commit().map(drop).unwrap_err());
        assert_eq!(numbers(&mut session, &late), "20 10 30");
        // NULL differs from NULL.
        session.transact(|tx| (7..9).try_for_each(|id| tx.insert_dyn(&late, &row(id, None)))).expect("NULL differs");
        assert_eq!(numbers(&mut session, &late), "20 10 30 - -");
        assert_eq!(db.check_indexes().expect("they agree")[1].rows, 5);
    });
}

#[test]
fn null_equals_null_where_the_constraint_says_so() {
    each_with_closures(|setting| {
        let db = setting.open();
        let same = declare(&db, table("same").nulls_not_distinct().deferred());
        let mut session = db.session();
        session.transact(|tx| tx.insert_dyn(&same, &row(1, None))).expect("it is the first");
        let refused = session.transact(|tx| tx.insert_dyn(&same, &row(2, None))).unwrap_err();
        assert_eq!(twins(&refused), "duplicate key k NULL in same.once");
    });
}

/// Each transaction writes rows of its own, and some number that others write too.
#[test]
fn of_transactions_that_write_one_number_one_commits() {
    sampled("of_transactions_that_write_one", |setting| {
        if !runs_closures(setting) {
            return;
        }
        for checked in [Checked::Deferrable, Checked::Deferred] {
            let db = setting.builder().record_history(true).open().expect("a valid setting");
            let builder = table("t");
            let t = declare(&db, if checked == Checked::Deferred { builder.deferred() } else { builder.deferrable() });
            let (made, refused) = (AtomicU64::new(0), AtomicU64::new(0));
            let seed = seriatim::rng::seed("one_number");
            let work = |at: u64| {
                let (mut session, mut rng) = (db.session(), Rng::from_seed(seed + at));
                for turn in 0..60 {
                    let (id, k) = (1000 * at as u32 + turn, rng.below(8) as u32);
                    let done = session.transact(|tx| match rng.below(4) {
                        0 => tx.delete_if_dyn(&t, &[Value::from(id.saturating_sub(1))]).map(drop),
                        1 => {
                            insert(tx, &t, id, k)?;
                            set(tx, &t, id, (k + 1) % 8)
                        }
                        _ => insert(tx, &t, id, k),
                    });
                    match done {
                        Ok(_) => made.fetch_add(1, Ordering::Relaxed),
                        Err(TransactError::Duplicate { .. }) => refused.fetch_add(1, Ordering::Relaxed),
                        Err(TransactError::Conflict { .. } | TransactError::WorkersBusy) => 0,
                        Err(error) => panic!("{error}"),
                    };
                }
            };
            thread::scope(|scope| {
                let work = &work;
                (0..3).for_each(|at| drop(scope.spawn(move || work(at))));
            });
            let mut all = Vec::new();
            db.each_row_dyn(&t, |row| all.push(row.value(1).to_text())).expect("no transaction is open");
            let count = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), count, "{}: two rows agree", setting.protocol.name);
            assert!(made.into_inner() > 0 && refused.into_inner() > 0);
            let strict = setting.protocol.capabilities.strict;
            let promises = if strict { Promises::STRICT } else { Promises::SERIALIZABLE };
            let history = db.take_history().expect("it was recorded");
            let summary = history::check(&history, &promises);
            assert!(summary.is_ok(), "{:?}", summary.err());
        }
    });
}

fn add_once(checked: Checked) -> Change {
    let index = IndexDef {
        name: "once".into(),
        parts: Vec::new(),
        unique: true,
        nulls_not_distinct: false,
        checked,
        organization: Organization::Ordered,
    };
    Change::AddIndex { index, parts: vec!["k".into()] }
}

#[test]
fn a_constraint_is_added_to_rows_that_differ() {
    each_with_closures(|setting| {
        let plain = || TableDef::builder("t").column(column("id")).column(column("k").nullable()).key(["id"]);
        let db = setting.open();
        let t = declare(&db, plain());
        let mut session = db.session();
        session.transact(|tx| (0..9).try_for_each(|id| insert(tx, &t, id, id % 8))).expect("they are new");
        let in_one = |changes: Vec<Change>| db.migration().change("t", changes).run().map(drop);
        for more in [Vec::new(), vec![Change::set_type("id", ColumnType::U64)]] {
            let changes = more.into_iter().chain([add_once(Checked::Deferred)]).collect();
            match in_one(changes).unwrap_err() {
                SchemaError::Refused { problem, .. } => assert!(problem.contains("k 0"), "{problem}"),
                error => panic!("{error}"),
            }
        }
        // In a transaction: rows of its own may not agree either.
        let tx = session.begin().expect("a worker is free");
        assert!(tx.migration().change("t", [add_once(Checked::Deferrable)]).run().is_err());
        drop(tx);
        session.transact(|tx| set(tx, &t, 8, 8)).expect("they differ now");
        in_one(vec![add_once(Checked::Deferred)]).expect("they differ");
        let t = db.open_dyn("t").expect("it is there");
        assert!(session.transact(|tx| set(tx, &t, 8, 7)).is_err());
        session
            .transact(|tx| {
                set(tx, &t, 8, 7)?;
                set(tx, &t, 7, 8)
            })
            .expect("they differ at the end");
        // It is kept by a copy, and gone when it is dropped.
        in_one(vec![Change::set_type("id", ColumnType::U64)]).expect("all fit");
        let t = db.open_dyn("t").expect("it is there");
        let put = |tx: &Tx, k: u32| tx.insert_dyn(&t, &[Value::from(20u64), Value::from(k).some()]);
        twins(&session.transact(|tx| put(tx, 7)).unwrap_err());
        in_one(vec![Change::drop_index("once")]).expect("nothing refers to it");
        let t = db.open_dyn("t").expect("it is there");
        session.transact(|tx| tx.insert_dyn(&t, &[Value::from(20u64), Value::from(7u32).some()])).expect("it is gone");
    });
}

#[test]
fn a_constraint_is_added_while_threads_write() {
    sampled("distinct_amid", |setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let t = declare(&db, TableDef::builder("t").column(column("id")).column(column("k").nullable()).key(["id"]));
        let mut session = db.session();
        session.transact(|tx| (0..60).try_for_each(|id| insert(tx, &t, id, id))).expect("they are new");
        let seed = seriatim::rng::seed("distinct_amid");
        let added = thread::scope(|scope| {
            for at in 0..2 {
                let (db, t) = (&db, &t);
                scope.spawn(move || {
                    let (mut session, mut rng) = (db.session(), Rng::from_seed(seed + at));
                    for _ in 0..80 {
                        let (one, two, hurts) = (rng.below(60) as u32, rng.below(60) as u32, rng.percent(1));
                        let _ = session.transact(|tx| {
                            // They agree for a moment.
                            let k =
                                |id: u32| Ok::<_, Abort>(tx.get_dyn(t, &[Value::from(id)])?.map(|row| row.value(1)));
                            let (Some(first), Some(second)) = (k(one)?, k(two)?) else { return Ok(()) };
                            tx.set_constraints(Constraints::Deferred)?;
                            tx.update_dyn(t, &[Value::from(one)], &[("k", second)])?;
                            if !hurts {
                                tx.update_dyn(t, &[Value::from(two)], &[("k", first)])?;
                            }
                            Ok(())
                        });
                    }
                });
            }
            let mut changes = vec![add_once(Checked::Deferrable)];
            if seed.is_multiple_of(2) {
                changes.insert(0, Change::set_type("id", ColumnType::U64));
            }
            db.migration().change("t", changes).run()
        });
        let t = db.open_dyn("t").expect("it is there");
        match added {
            Ok(_) => {
                let mut all = Vec::new();
                db.each_row_dyn(&t, |row| all.push(row.value(1).to_text())).expect("no transaction is open");
                all.sort();
                all.dedup();
                assert_eq!(all.len(), 60, "{}", setting.protocol.name);
            }
            Err(SchemaError::Refused { problem, .. }) => assert!(problem.contains("two rows have k "), "{problem}"),
            Err(error) => panic!("{error}"),
        }
        db.check_indexes().expect("they agree");
    });
}

#[procedure]
fn add_task(tx: &Tx, id: u32, place: u32) -> Result<(), Abort> {
    tx.insert(Task { id, place, tag: None })?;
    Ok(())
}

#[procedure]
fn swap_tasks(tx: &Tx, one: u32, two: u32) -> Result<(), Abort> {
    let first = tx.require::<Task>(one)?;
    let second = tx.require::<Task>(two)?;
    tx.update::<Task>(one, |task| task.place = second.place)?;
    tx.update::<Task>(two, |task| task.place = first.place)?;
    Ok(())
}

#[procedure]
fn tag_task(tx: &Tx, id: u32, tag: u32) -> Result<(), Abort> {
    tx.update::<Task>(id, |task| task.tag = Some(tag))?;
    Ok(())
}

#[test]
fn procedures_are_checked_when_they_end() {
    each(|setting| {
        for mode in [ExecutionMode::Whole, ExecutionMode::Pieces] {
            if mode == ExecutionMode::Pieces && !setting.protocol.capabilities.pieces {
                continue;
            }
            let db = setting.builder().execution_mode(mode).check_plans(true).open().expect("a valid setting");
            db.create::<Task>().expect("new");
            db.register(procedures![add_task, swap_tasks, tag_task]).expect("a sound set");
            let plan = db.plan("add_task").expect("it is registered").to_string();
            assert!(plan.contains("unique constraint"), "{plan}");
            let mut session = db.session();
            for id in 0..4 {
                session.call(add_task, &(id, 10 + id)).expect("they differ");
            }
            session.call(swap_tasks, &(0, 3)).expect("they differ at the end");
            let refused = session.call(add_task, &(5, 11)).unwrap_err();
            assert_eq!(twins(&refused), "duplicate key place 11 in task.task_place_key");
            session.call(tag_task, &(0, 7)).expect("no other has it");
            let refused = session.call(tag_task, &(1, 7)).unwrap_err();
            assert_eq!(twins(&refused), "duplicate key tag 7 in task.task_tag_key");
            let mut places = Vec::new();
            db.each_row(&db.table::<Task>().expect("it is there"), |task| places.push(task.place())).expect("at rest");
            places.sort_unstable();
            assert_eq!(places, [10, 11, 12, 13]);
        }
    });
}

#[test]
fn a_dump_keeps_when_constraints_are_checked() {
    let db = Database::in_memory().expect("in memory");
    let tasks = db.create::<Task>().expect("new");
    let load = |tx: &Tx| (1..3).try_for_each(|id| tx.insert(&tasks, &Task { id, place: id, tag: None }));
    db.session().transact(load).expect("they differ");
    let dumped = |db: &Database, format: Format| {
        let mut bytes = Vec::new();
        db.dump(format, &[], &mut bytes).expect("it is written");
        String::from_utf8(bytes).expect("it is text")
    };
    let json = dumped(&db, Format::Json);
    let copy = Database::in_memory().expect("in memory");
    copy.load(json.as_bytes()).expect("it is whole");
    assert_eq!(dumped(&copy, Format::Json), json);
    let task = copy.open_dyn("task").expect("it is there");
    assert_eq!(task.definition().indexes[0].checked, Checked::Deferred);
    let says = dump::describe(task.definition());
    assert!(says.contains("  index task_place_key (place), unique, deferred\n"), "{says}");
    let script = dumped(&db, Format::Sql);
    for line in [
        r#"ALTER TABLE "task" ADD CONSTRAINT "task_place_key" UNIQUE ("place") DEFERRABLE INITIALLY DEFERRED;"#,
        r#"ALTER TABLE "task" ADD CONSTRAINT "task_tag_key" UNIQUE ("tag") DEFERRABLE;"#,
    ] {
        assert!(script.contains(line), "{script}");
    }
    let broken = json.replace("\"place\":2", "\"place\":1");
    assert!(broken != json);
    let error = Database::in_memory().expect("in memory").load(broken.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("duplicate key place 1 in task.task_place_key"), "{error}");
}

#[test]
fn no_foreign_key_is_to_columns_that_may_agree_for_a_while() {
    let db = Database::in_memory().expect("in memory");
    declare(&db, table("parent").deferrable());
    let child = TableDef::builder("child").column(column("id")).key(["id"]);
    let child = child.reference(ReferenceDef::new(["id"], "parent").referenced(["k"])).finish().expect("sound alone");
    let error = db.declare(child).map(drop).unwrap_err().to_string();
    let says = "refers to (k) of table `parent`, whose unique index `once` can be deferred; give it one that cannot";
    assert!(error.ends_with(says), "{error}");
}

#[test]
fn a_constraint_over_partitions_needs_all_and_registration_says_so() {
    for protocol in seriatim::protocols().iter().filter(|protocol| protocol.capabilities.partitions) {
        let by = |value: &seriatim::PartitionValue, partitions: usize| match value {
            seriatim::PartitionValue::Integer(number) => *number as usize % partitions,
            seriatim::PartitionValue::Bytes(_) => 0,
        };
        let db = Database::builder().protocol(protocol.name).partitions(2).partition_by(by).open().expect("valid");
        db.create::<Task>().expect("new");
        let registered = db.register(procedures![add_task]).expect("a sound set");
        let told: Vec<_> = registered.everywhere.iter().map(|told| &*told.reason).collect();
        assert_eq!(
            told,
            ["0 insert task follows unique constraint task_place_key, whose other rows may be in other partitions"]
        );
        let mut session = db.session();
        session.call(add_task, &(0, 5)).expect("it is the first");
        twins(&session.call(add_task, &(1, 5)).unwrap_err());
    }
}
