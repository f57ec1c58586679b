//! Conditions of tables: every write meets them, under every protocol, and they change as tables do.

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, TableDef, Value};
use seriatim::dump::{self, Format};
use seriatim::{Abort, Database, Handle, RetryPolicy, SchemaError, Session, Table, Text, TransactError, Tx, thread};

use crate::common::{Setting, each, text};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "purse", key(id), index(name = "by_x", columns(x)))]
#[table(check(name = "covered", "x + y >= 0"), check("length(owner) > 1 OR note IS NULL"))]
struct Purse {
    id: u32,
    x: i64,
    y: i64,
    #[column(immutable)]
    owner: Text<8>,
    note: Option<String>,
}

/// Rows of one record.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "line", key(order, number), cluster(order), check("amount BETWEEN 1 AND 9"))]
struct Line {
    order: u32,
    number: u32,
    amount: i32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "code", key(id), hash, index(name = "by_mark", columns(mark), unique, hash), check("mark > 0"))]
struct Code {
    id: u32,
    mark: i32,
}

fn purse(id: u32, x: i64, y: i64) -> Purse {
    Purse { id, x, y, owner: text("ann"), note: None }
}

fn runs_closures(setting: &Setting) -> bool {
    !setting.protocol.requirements.plan
}

/// The condition that a call violated, and the row.
fn violated<R: std::fmt::Debug>(result: Result<R, Abort>) -> (String, String) {
    match TransactError::from(result.expect_err("it violates a condition")) {
        TransactError::Check { constraint, row, .. } => (constraint.into(), row.values),
        other => panic!("{other}"),
    }
}

type Refused<'t, T> = (&'static str, Box<dyn Fn(&Tx, &Handle<T>) -> Result<(), Abort> + 't>);

/// Each call is refused alone, and after it the transaction goes on as if it had not been made.
fn refuses<T: Table + Clone + PartialEq + std::fmt::Debug>(
    session: &mut Session,
    table: &Handle<T>,
    good: &T,
    rows: &dyn Fn(&Tx) -> Result<Vec<T>, Abort>,
    calls: &[Refused<'_, T>],
) {
    for (wanted, call) in calls {
        let before = session.transact(|tx| rows(tx)).expect("no conflict").into_value();
        let error = session.transact(|tx| call(tx, table)).expect_err("it violates a condition");
        assert_eq!(error.to_string(), *wanted);
        assert_eq!(*session.transact(|tx| rows(tx)).expect("no conflict"), before, "{wanted}");
        let after = session.transact(|tx| {
            let (constraint, row) = violated(call(tx, table));
            assert!(wanted.contains(&format!("{constraint}: {row}")), "{constraint}: {row}");
            assert_eq!(rows(tx)?, before, "{wanted}");
            violated(call(tx, table));
            tx.put(table, good)?;
            rows(tx)
        });
        let after = after.expect("the violation was handled").into_value();
        let others = |all: &[T]| all.iter().filter(|row| *row != good).cloned().collect::<Vec<_>>();
        assert!(others(&after) == others(&before) && after.contains(good), "{wanted}: {after:?}");
    }
}

#[test]
fn every_write_meets_the_conditions_and_leaves_nothing_if_it_does_not() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let (purses, lines) = (db.create::<Purse>().expect("valid"), db.create::<Line>().expect("valid"));
        let codes = db.create::<Code>().expect("valid");
        let names: Vec<String> = Purse::definition().checks.iter().map(|check| check.name.to_string()).collect();
        assert_eq!(names, ["covered", "purse_check"]);
        let mut session = db.session();
        session
            .transact(|tx| {
                (1..=4).try_for_each(|id| tx.insert(&purses, &purse(id, 5, -5)))?;
                (1..=3).try_for_each(|number| tx.insert(&lines, &Line { order: 1, number, amount: 5 }))?;
                tx.insert(&codes, &Code { id: 1, mark: 7 })
            })
            .expect("the rows meet the conditions");

        let all = |tx: &Tx| tx.scan(&purses, ..).map(|row| Ok(row?.to_owned())).collect();
        let dynamic = db.open_dyn("purse").expect("it exists");
        let refused = "a row of purse violates check constraint covered: id 2, x 4, y -5";
        let new = "a row of purse violates check constraint covered: id 9, x 4, y -5, owner ann, note NULL";
        let noted = Purse { owner: text("a"), note: Some("n".into()), ..purse(9, 5, 5) };
        refuses(
            &mut session,
            &purses,
            &purse(8, 1, -1),
            &all,
            &[
                (new, Box::new(|tx, purses| tx.insert(purses, &purse(9, 4, -5)))),
                (
                    "a row of purse violates check constraint purse_check: id 9, x 5, y 5, owner a, note n",
                    Box::new(|tx, purses| tx.insert(purses, &noted)),
                ),
                (
                    "a row of purse violates check constraint covered: id 2, x 4, y -5, owner ann, note NULL",
                    Box::new(|tx, purses| tx.put(purses, &purse(2, 4, -5))),
                ),
                (refused, Box::new(|tx, purses| tx.update(purses, &2, |row| row.set_x(4)))),
                (refused, Box::new(|tx, purses| tx.update_columns(purses, &2, PurseRow::X, |row| row.set_x(4)))),
                (refused, Box::new(|tx, purses| tx.add(purses, &2, PurseRow::X, -1))),
                (refused, Box::new(|tx, purses| tx.add_and_get(purses, &2, PurseRow::X, -1).map(drop))),
                (refused, Box::new(|tx, purses| tx.upsert(purses, &purse(2, 0, 0), |row| row.set_x(4)).map(drop))),
                (new, Box::new(|tx, purses| tx.upsert(purses, &purse(9, 4, -5), |_| ()).map(drop))),
                (refused, Box::new(|tx, _| tx.update_dyn(&dynamic, &[Value::from(2u32)], &[("x", Value::from(4i64))]))),
                (
                    "a row of purse violates check constraint covered: id 2, x 9223372036854775807, y 1; the condition \
                     has no value: bigint out of range",
                    Box::new(|tx, purses| {
                        tx.update(purses, &2, |row| {
                            row.set_x(i64::MAX);
                            row.set_y(1);
                        })
                    }),
                ),
                // The second change of a row in one transaction takes back no more than itself.
                (
                    "a row of purse violates check constraint covered: id 3, x -9, y 8",
                    Box::new(|tx, purses| {
                        let at = tx.savepoint()?;
                        tx.update(purses, &3, |row| row.set_y(8))?;
                        let refused = tx.update(purses, &3, |row| row.set_x(-9));
                        assert_eq!((tx.require(purses, &3)?.x(), tx.require(purses, &3)?.y()), (5, 8));
                        tx.rollback_to(at)?;
                        refused
                    }),
                ),
            ],
        );
        // NULL is not false, columns that the change leaves alone are not looked at, and deletions always pass.
        session
            .transact(|tx| {
                tx.update(&purses, &1, |row| row.set_note(Some("x")).map(drop))?.expect("memory");
                tx.add(&purses, &1, PurseRow::Y, 3)?;
                tx.delete(&purses, &4)
            })
            .expect("the conditions hold");

        let all = |tx: &Tx| tx.scan(&lines, ..).map(|row| Ok(row?.to_owned())).collect();
        let refused = "a row of line violates check constraint line_amount_check: order 1, number 2, amount 10";
        refuses(
            &mut session,
            &lines,
            &Line { order: 1, number: 4, amount: 1 },
            &all,
            &[
                (refused, Box::new(|tx, lines| tx.update(lines, &(1, 2), |row| row.set_amount(10)))),
                (refused, Box::new(|tx, lines| tx.add(lines, &(1, 2), LineRow::AMOUNT, 5))),
                (refused, Box::new(|tx, lines| tx.put(lines, &Line { order: 1, number: 2, amount: 10 }))),
                (
                    "a row of line violates check constraint line_amount_check: order 2, number 1, amount 0",
                    Box::new(|tx, lines| tx.insert(lines, &Line { order: 2, number: 1, amount: 0 })),
                ),
            ],
        );
        let all = |tx: &Tx| {
            let ids = [1, 2, 5];
            let rows = ids.map(|id| tx.get(&codes, &id).map(|row| row.map(|row| row.to_owned())));
            rows.into_iter().filter_map(Result::transpose).collect()
        };
        let refused = "a row of code violates check constraint code_mark_check: id 1, mark -1";
        refuses(
            &mut session,
            &codes,
            &Code { id: 2, mark: 3 },
            &all,
            &[
                (refused, Box::new(|tx, codes| tx.update(codes, &1, |row| row.set_mark(-1)))),
                (refused, Box::new(|tx, codes| tx.put(codes, &Code { id: 1, mark: -1 }))),
            ],
        );
        let checked = db.check_indexes().expect("indexes and rows agree");
        assert_eq!(checked.iter().map(|table| table.rows).collect::<Vec<_>>(), [4, 4, 2], "{}", setting.protocol.name);
    });
}

/// One transaction changes one column of a condition, and another the other: together they would break it.
#[test]
fn two_transactions_do_not_break_a_condition_together_that_neither_breaks() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        // A lock is not waited for until its owner, on this thread, goes on.
        let policy = RetryPolicy { attempts_max: 4, ..RetryPolicy::default() };
        let db = setting.builder().retry(policy).open().expect("a valid setting");
        let purses = db.create::<Purse>().expect("valid");
        let (mut session, mut other) = (db.session(), db.session());
        let mut sums = Vec::new();
        for adds in [false, true] {
            session.transact(|tx| tx.put(&purses, &purse(1, 1, 0))).expect("it meets the condition");
            let open = session.begin().expect("a worker");
            let first = match adds {
                true => open.add(&purses, &1, PurseRow::X, -1),
                false => open.update_columns(&purses, &1, PurseRow::X, |row| row.set_x(0)),
            };
            let second = other.transact(|tx| match adds {
                true => tx.add(&purses, &1, PurseRow::Y, -1),
                false => tx.update_columns(&purses, &1, PurseRow::Y, |row| row.set_y(-1)),
            });
            let committed = match first {
                Ok(()) => open.commit().is_ok(),
                Err(_) => {
                    open.rollback();
                    false
                }
            };
            assert!(!(committed && second.is_ok()), "{}: both commit", setting.protocol.name);
            assert!(committed || second.is_ok(), "{}: none commits", setting.protocol.name);
            let row = session.transact(|tx| Ok(tx.require(&purses, &1)?.to_owned())).expect("no conflict");
            sums.push(row.x + row.y);
        }
        assert_eq!(sums, [0, 0], "{}", setting.protocol.name);
    });
}

#[test]
fn additions_of_many_threads_end_where_the_condition_does() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let purses = db.create::<Purse>().expect("valid");
        db.session().transact(|tx| tx.insert(&purses, &purse(1, 20, 20))).expect("it meets the condition");
        let spend = |column| {
            let mut session = db.session();
            loop {
                match session.transact(|tx| tx.add(&purses, &1, column, -1)) {
                    Ok(_) => {}
                    Err(TransactError::Check { constraint, .. }) => break assert_eq!(&*constraint, "covered"),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| spend(PurseRow::X));
            scope.spawn(|| spend(PurseRow::Y));
        });
        let row = db.session().transact(|tx| Ok(tx.require(&purses, &1)?.to_owned())).expect("no conflict");
        assert_eq!(row.x + row.y, 0, "{}", setting.protocol.name);
    });
}

fn plain() -> TableDef {
    let column = |name: &'static str, ty| ColumnDef::new(name, ty);
    let table = TableDef::builder("purse").column(column("id", ColumnType::U32)).column(column("x", ColumnType::I64));
    let table = table.column(column("y", ColumnType::I64)).key(["id"]);
    table.unique_index("by_x", ["x"], seriatim::catalog::Organization::Ordered).finish().expect("sound")
}

fn change(db: &Database, changes: impl IntoIterator<Item = Change>) -> Result<Vec<String>, SchemaError> {
    db.migration().change("purse", changes).run()
}

#[test]
fn conditions_change_with_their_table() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let purses = db.declare(plain()).expect("valid");
        let mut session = db.session();
        let mut put = |id: u32, x: i64, y: i64| {
            let values = [Value::from(id), Value::from(x), Value::from(y)];
            session.transact(|tx| tx.insert_dyn(&purses, &values)).map(drop)
        };
        put(1, 5, -5).expect("there is no condition yet");
        put(2, -9, 5).expect("there is no condition yet");
        // Rows that exist must meet it. Nothing is changed otherwise.
        let refused = change(&db, [Change::add_check("covered", "x + y >= 0")]).expect_err("a row does not");
        let wanted = "table \"purse\" was not changed: a row violates condition `covered`: id 2, x -9, y 5";
        assert_eq!(refused.to_string(), wanted);
        put(3, -8, 5).expect("there is no condition");
        session.transact(|tx| tx.delete_dyn(&purses, &[Value::from(2u32)])).expect("it exists");
        session.transact(|tx| tx.delete_dyn(&purses, &[Value::from(3u32)])).expect("it exists");
        let said = change(&db, [Change::add_check("covered", "x + y >= 0"), Change::add_unnamed_check("x < 100")]);
        let wanted = ["condition `covered` (x + y >= 0) is added", "condition `purse_x_check` (x < 100) is added"];
        assert_eq!(said.expect("all rows meet it"), wanted.map(|said| format!("table `purse`: {said}")));
        // The handle is as good as before, and knows the condition.
        let mut put = |id: u32, x: i64, y: i64| {
            let values = [Value::from(id), Value::from(x), Value::from(y)];
            session.transact(|tx| tx.insert_dyn(&purses, &values)).map(drop).map_err(|error| error.to_string())
        };
        let violates = |name: &str, row: &str| Err(format!("a row of purse violates check constraint {name}: {row}"));
        assert_eq!(put(4, -6, 5), violates("covered", "id 4, x -6, y 5"));
        assert_eq!(put(4, 100, 5), violates("purse_x_check", "id 4, x 100, y 5"));
        assert_eq!(put(4, 6, 5), Ok(()));

        let refused = |changes: Vec<Change>| change(&db, changes).expect_err("it is refused").to_string();
        let problems = [
            (Change::drop_column("y"), "condition `covered` uses column `y`: drop that first"),
            (Change::add_check("covered", "x > 0"), "two conditions or indexes are called `covered`"),
            (Change::add_check("by_x", "x > 0"), "two conditions or indexes are called `by_x`"),
            (Change::add_check("z", "z > 0"), "condition `z`: in `z`: there is no such column"),
            (Change::add_check("z", "x + y"), "condition `z`: in `x + y`: it must be boolean, and is bigint"),
            (
                Change::add_check("z", "x >"),
                "condition `z`: in `x >`: write a value, a column or a function at the end",
            ),
            (Change::drop_check("z"), "there is no condition `z`; they are covered, purse_x_check"),
            (Change::rename_constraint("z", "w"), "there is no condition `z`"),
            (Change::set_type("y", ColumnType::LongText), "condition `covered`: in `x + y`"),
        ];
        for (change, wanted) in problems {
            let found = refused(vec![change]);
            assert!(found.contains(wanted), "{found}, not {wanted}");
        }
        // A column's name and type are followed, also into a copy of the rows.
        change(
            &db,
            [
                Change::rename_column("y", "other y"),
                Change::rename_constraint("covered", "sum"),
                Change::rename_constraint("by_x", "one_x"),
                Change::drop_check("purse_x_check"),
            ],
        )
        .expect("they exist");
        assert_eq!(put(5, -1, 0), violates("sum", "id 5, x -1, other y 0"));
        assert_eq!(put(5, 6, 0), Err("duplicate key x 6 in purse.one_x".to_owned()));
        change(&db, [Change::set_type("other y", ColumnType::I128)]).expect("each value fits");
        let purses = db.open_dyn("purse").expect("it exists");
        let declared: Vec<(&str, &str)> =
            purses.definition().checks.iter().map(|check| (&*check.name, &*check.expression)).collect();
        assert_eq!(declared, [("sum", "x + \"other y\" >= 0")]);
        let mut session = db.session();
        let key = [Value::from(4u32)];
        let update = |tx: &Tx| tx.update_dyn(&purses, &key, &[("other y", Value::from(-7i128))]);
        let error = session.transact(update).expect_err("it violates the condition").to_string();
        assert_eq!(error, "a row of purse violates check constraint sum: id 4, x 6, other y -7");
        // Rows that are copied for another change are checked by all conditions.
        let more = ColumnDef::new("n", ColumnType::U8).default("3");
        let refused = change(&db, [Change::add_column(more.clone()), Change::add_check("few", "n > 3")]);
        let refused = refused.expect_err("the default violates it").to_string();
        assert!(refused.contains("violates check constraint few"), "{refused}");
        change(&db, [Change::add_column(more), Change::add_check("few", "n > 2")]).expect("the default meets it");
        db.check_indexes().expect("indexes and rows agree");
    });
}

/// The same table, declared without conditions and by another name of the column.
mod before {
    #[derive(seriatim::Table, Clone, Debug, PartialEq)]
    #[table(name = "stock", key(id))]
    pub(super) struct Stock {
        pub(super) id: u32,
        pub(super) left: i64,
    }
}

mod after {
    #[derive(seriatim::Table, Clone, Debug, PartialEq)]
    #[table(name = "stock", key(id), check(name = "enough", "quantity >= 0"))]
    pub(super) struct Stock {
        pub(super) id: u32,
        #[column(renamed_from = "left")]
        pub(super) quantity: i64,
    }
}

mod otherwise {
    #[derive(seriatim::Table, Clone, Debug, PartialEq)]
    #[table(name = "stock", key(id), check(name = "enough", "quantity > 0"))]
    pub(super) struct Stock {
        pub(super) id: u32,
        pub(super) quantity: i64,
    }
}

#[test]
fn programs_with_and_without_a_condition_share_a_table() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let old = db.create::<before::Stock>().expect("valid");
        let put = |id, left| db.session().transact(|tx| tx.put(&old, &before::Stock { id, left })).map(drop);
        put(1, -1).expect("there is no condition");
        let refused = db.table::<after::Stock>().expect_err("it lacks the condition").to_string();
        assert!(refused.contains("condition `enough` (quantity >= 0) is added"), "{refused}");
        let refused = db.migrate::<after::Stock>().expect_err("a row does not meet it").to_string();
        assert!(refused.contains("a row violates condition `enough`: id 1, quantity -1"), "{refused}");
        put(1, 1).expect("there is no condition");
        db.migrate::<after::Stock>().expect("all rows meet it");
        let error = put(2, -1).expect_err("it holds for programs that do not know it").to_string();
        assert_eq!(error, "a row of stock violates check constraint enough: id 2, quantity -1");
        db.table::<before::Stock>().expect("it has what this one declares");
        let refused = db.migrate::<otherwise::Stock>().expect_err("it has another condition").to_string();
        let wanted = "its condition is `enough` (quantity >= 0), not `enough` (quantity > 0): drop the one or rename";
        assert!(refused.contains(wanted), "{refused}");
    });
}

#[test]
fn a_condition_is_added_while_transactions_write() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let stock = db.create::<before::Stock>().expect("valid");
        let put = |tx: &Tx, id, left| tx.put(&stock, &before::Stock { id, left });
        db.session().transact(|tx| (0..50).try_for_each(|id| put(tx, id, 1))).expect("it runs alone");
        let write = |of: u32| {
            let mut session = db.session();
            // The condition is added meanwhile, and then refuses.
            for round in 0.. {
                match session.transact(|tx| put(tx, of, -1).and_then(|()| put(tx, of, 1))) {
                    Ok(_) if round > 100_000 => break,
                    Err(TransactError::Check { .. }) => break,
                    Ok(_) => {}
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| write(3));
            let added = || db.migration().change("stock", [Change::add_check("enough", "\"left\" >= 0")]).run();
            // A write that violates it while it is built ends the change, and not the write.
            while let Err(error) = added() {
                assert!(matches!(error, SchemaError::Refused { .. } | SchemaError::Busy), "{error}");
            }
        });
        let left =
            db.session().transact(|tx| tx.scan(&stock, ..).map(|row| Ok(row?.left())).collect::<Result<Vec<_>, _>>());
        assert!(left.expect("no conflict").iter().all(|left| *left >= 0), "{}", setting.protocol.name);
    });
}

#[test]
fn dumps_have_conditions_and_loads_meet_them() {
    let db = Database::in_memory().expect("memory");
    let purses = db.create::<Purse>().expect("valid");
    db.session().transact(|tx| tx.insert(&purses, &purse(1, 5, -5))).expect("it meets the conditions");
    let definition = Purse::definition();
    let mut json = Vec::new();
    db.dump(Format::Json, &[], &mut json).expect("it is written");
    let json = String::from_utf8(json).expect("text");
    let wanted = r#""checks":[{"name":"covered","expression":"x + y >= 0"},{"name":"purse_check","#;
    assert!(json.contains(wanted), "{json}");
    let copy = Database::in_memory().expect("memory");
    assert_eq!(copy.load(json.as_bytes()).expect("it is loaded").tables[0].rows, 1);
    assert_eq!(copy.open_dyn("purse").expect("it exists").definition().checks, definition.checks);
    let bad = json.replace("\"x\":5", "\"x\":4");
    let empty = Database::in_memory().expect("memory");
    let error = empty.load(bad.as_bytes()).expect_err("the row violates a condition").to_string();
    assert!(error.contains("line 3: a row of purse violates check constraint covered: id 1, x 4, y -5"), "{error}");
    let sql = dump::to_sql(&[&definition]).expect("there are no odd names");
    let wanted = "    CONSTRAINT \"covered\" CHECK (x + y >= 0),\n    CONSTRAINT \"purse_check\" CHECK \
                  (length(owner) > 1 OR note IS NULL),\n    PRIMARY KEY";
    assert!(sql.contains(wanted), "{sql}");
    let shown = dump::describe(&definition);
    assert!(shown.contains("  check covered (x + y >= 0)\n"), "{shown}");
}
