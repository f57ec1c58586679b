//! Sequences, identity columns and tables without a key, under every protocol.

use std::collections::HashSet;
use std::sync::Mutex;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, Identity, SequenceChange, SequenceDef, TableDef, Value};
use seriatim::dump::{Format, describe};
use seriatim::procedure::{Data, ExecutionMode};
use seriatim::{
    Abort, Column, Database, Refusal, RowId, SchemaError, Table, TransactError, Tx, procedure, procedures, thread,
};

use crate::common::{Setting, each};

#[derive(Column, Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OrderId(u32);

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "order", key(id), index(name = "by_customer", columns(customer)))]
struct Order {
    #[column(identity)]
    id: OrderId,
    customer: u16,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(key(id), hash)]
struct Ticket {
    #[column(identity(always, start = 1000, increment = -5, minimum = -5, maximum = 32767, cycle, cache = 3))]
    id: i16,
    holder: String,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(without_key, index(name = "by_level", columns(level)))]
struct Line {
    level: u8,
    text: String,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "plain", key(id))]
struct Plain {
    id: u32,
    text: String,
}

fn runs_closures(setting: &Setting) -> bool {
    !setting.protocol.requirements.plan
}

fn with(db: &Database, sequence: SequenceDef) -> seriatim::Sequence {
    let name = sequence.name.to_string();
    db.migration().create_sequence(sequence).run().expect("it makes sense");
    db.sequence(&name).expect("it exists")
}

fn column(name: &'static str) -> ColumnDef {
    ColumnDef::new(name, ColumnType::U32)
}

/// All numbers until it is exhausted, but no more than so many.
fn numbers(sequence: &seriatim::Sequence, most: usize) -> Vec<i64> {
    let mut numbers = Vec::new();
    while numbers.len() < most {
        match sequence.next() {
            Ok(number) => numbers.push(number),
            Err(error) => {
                let is_exhausted =
                    matches!(&error, TransactError::SequenceExhausted { sequence, .. } if sequence == "s");
                assert!(is_exhausted, "{error}");
                break;
            }
        }
    }
    numbers
}

#[test]
fn a_sequence_ends_or_cycles_at_each_edge() {
    let db = Database::in_memory().expect("memory");
    let s = || SequenceDef::new("s");
    for (sequence, most, expected) in [
        (s().maximum(3), 9, vec![1, 2, 3]),
        (s().maximum(3).cycle(), 7, vec![1, 2, 3, 1, 2, 3, 1]),
        (s().minimum(1).maximum(10).increment(3).start(5).cycle(), 8, vec![5, 8, 1, 4, 7, 10, 1, 4]),
        (s().increment(-2).minimum(-5), 9, vec![-1, -3, -5]),
        (s().increment(-2).minimum(-5).maximum(4).start(0).cycle(), 6, vec![0, -2, -4, 4, 2, 0]),
        (s().start(i64::MAX - 1), 9, vec![i64::MAX - 1, i64::MAX]),
        (s().start(i64::MAX - 1).cycle(), 4, vec![i64::MAX - 1, i64::MAX, 1, 2]),
        (s().increment(-1).start(i64::MIN + 1), 9, vec![i64::MIN + 1, i64::MIN]),
        (s().increment(-1).start(i64::MIN).cycle(), 3, vec![i64::MIN, -1, -2]),
        (s().minimum(i64::MIN).start(i64::MIN).increment(i64::MAX), 9, vec![i64::MIN, -1, i64::MAX - 1]),
        (s().minimum(i64::MIN).start(i64::MAX).cycle(), 3, vec![i64::MAX, i64::MIN, i64::MIN + 1]),
        (s().increment(i64::MIN).minimum(i64::MIN).maximum(i64::MAX), 9, vec![i64::MAX, -1]),
        (s().ty(ColumnType::I16).start(i16::MAX.into()), 9, vec![i16::MAX.into()]),
        (s().ty(ColumnType::U32).start(u32::MAX.into()), 9, vec![u32::MAX.into()]),
    ] {
        let described = format!("{sequence:?}");
        let sequence = with(&db, sequence);
        assert_eq!(sequence.last(), None, "{described}");
        assert_eq!(numbers(&sequence, most), expected, "{described}");
        assert_eq!(sequence.last(), expected.last().copied(), "{described}");
        db.migration().drop_sequence("s").run().expect("nothing owns it");
        let gone = sequence.next().expect_err("it was dropped");
        assert!(matches!(gone, TransactError::SequenceGone { .. }), "{gone}");
    }
}

#[test]
fn sequences_are_changed_all_or_none() {
    let db = Database::in_memory().expect("memory");
    let s = with(&db, SequenceDef::new("s"));
    assert_eq!((s.next().expect("a number"), s.next().expect("a number")), (1, 2));
    let refused = |changes: Vec<SequenceChange>, says: &str| {
        let error = db.migration().alter_sequence("s", changes).run().expect_err("it makes no sense").to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(vec![SequenceChange::Increment(0)], "increment 0");
    refused(vec![SequenceChange::Maximum(Some(1))], "has got to 2, which is not from 1 to 1");
    refused(vec![SequenceChange::Restart(Some(0))], "restarts with 0");
    let again = db.migration().create_sequence(SequenceDef::new("s")).run();
    assert!(matches!(again, Err(SchemaError::SequenceExists(name)) if name == "s"));
    let unknown = db.migration().create_sequence(SequenceDef::new("t")).drop_sequence("u").run();
    assert!(matches!(unknown, Err(SchemaError::UnknownSequence(name)) if name == "u"));
    assert!(db.sequence("t").is_err(), "all or none");
    let rename = [SequenceChange::Increment(-3), SequenceChange::Rename("r".into()), SequenceChange::Minimum(Some(-9))];
    let said = db.migration().alter_sequence("s", rename).create_sequence(SequenceDef::new("s")).run();
    assert_eq!(said.expect("the name is free"), ["sequence `s` changes", "sequence `s` is created"]);
    assert_eq!(s.definition().name, "r");
    assert_eq!(s.next().expect("a number"), -1, "behind 2");
    let s = db.sequence("s").expect("another one");
    s.set(41).expect("it has that number");
    assert_eq!((s.last(), s.next().expect("a number")), (Some(41), 42));
    let outside = s.set(0).expect_err("numbers begin with 1");
    assert!(matches!(outside, TransactError::SequenceRange { low: 1, .. }), "{outside}");
    let other = Database::in_memory().expect("memory");
    let foreign = other.session().transact(|tx| tx.next(&s));
    assert!(matches!(foreign, Err(TransactError::ForeignHandle)));
}

/// Numbers are given once, to threads, closures that abort, explicit transactions and callers without a transaction.
#[test]
fn no_number_is_given_twice() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.builder().workers(8).open().expect("a valid setting");
        let s = with(&db, SequenceDef::new("s"));
        let orders = db.create::<Order>().expect("a valid table");
        let work = |client: u16| {
            let (mut session, mut seen) = (db.session(), Vec::new());
            let mut ids = Vec::new();
            for round in 0..60 {
                match round % 4 {
                    0 => seen.push(s.next().expect("a number")),
                    1 => {
                        let aborted = session.transact(|tx| {
                            seen.push(tx.next(&s)?);
                            Err::<(), _>(tx.abort("no"))
                        });
                        assert!(matches!(aborted, Err(TransactError::User(_))));
                    }
                    2 => loop {
                        let tx = session.begin().expect("a worker");
                        if let Ok(number) = tx.next(&s) {
                            seen.push(number);
                            break;
                        }
                    },
                    _ => {
                        let id = session.transact(|tx| {
                            seen.push(tx.next(&s)?);
                            tx.insert_new(&orders, |id| Order { id, customer: client })
                        });
                        ids.push(id.expect("keys are new").into_value());
                    }
                }
            }
            (seen, ids)
        };
        let (first, second) = thread::scope(|scope| {
            let other = scope.spawn(|| work(1));
            (work(0), other.join().expect("no panic"))
        });
        let all: Vec<i64> = first.0.iter().chain(&second.0).copied().collect();
        let distinct: HashSet<i64> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "{}", setting.protocol.name);
        let ids: HashSet<OrderId> = first.1.iter().chain(&second.1).copied().collect();
        assert_eq!(ids.len(), 30, "{}", setting.protocol.name);
        assert_eq!(s.last(), distinct.iter().max().copied());
    });
}

#[test]
fn identity_columns_number_rows_that_have_no_number() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let (orders, tickets) = (db.create::<Order>().expect("valid"), db.create::<Ticket>().expect("valid"));
        let mut session = db.session();
        let ids = session.transact(|tx| {
            let one = tx.insert_new(&orders, |id| Order { id, customer: 7 })?;
            // Given by the caller, so the sequence does not know of it.
            tx.insert(&orders, &Order { id: OrderId(9), customer: 7 })?;
            let two = tx.insert_new(&orders, |id| Order { id, customer: 8 })?;
            let holder = || "ann".to_owned();
            let tickets = [
                tx.insert_new(&tickets, |id| Ticket { id, holder: holder() })?,
                tx.insert_new(&tickets, |id| Ticket { id, holder: holder() })?,
            ];
            Ok((one, two, tickets))
        });
        assert_eq!(*ids.expect("new keys"), (OrderId(1), OrderId(2), [1000, 995]), "{}", setting.protocol.name);
        let orders = db.open_dyn("order").expect("it exists");
        let dynamic = db.open_dyn("ticket").expect("it exists");
        let row = |id: Value| [id, Value::from("bob")];
        session
            .transact(|tx| {
                tx.insert_dyn(&orders, &[Value::NONE, Value::from(1u16)])?;
                tx.insert_dyn(&orders, &[Value::from(20u32), Value::from(1u16)])?;
                assert_eq!(tx.insert_new_dyn(&orders, &[Value::NONE, Value::from(1u16)])?, 4);
                assert_eq!(tx.insert_new_dyn(&dynamic, &row(Value::NONE))?, 990);
                tx.insert_overriding_dyn(&dynamic, &row(Value::from(-4i16)))
            })
            .expect("new keys");
        let given = session.transact(|tx| tx.insert_dyn(&dynamic, &row(Value::from(1i16)))).expect_err("it is given");
        assert!(given.to_string().contains("column \"id\" of table \"ticket\" is given by its sequence"), "{given}");
        let sequence = db.identity_of(&dynamic).expect("it has one");
        assert_eq!((&*sequence.definition().name, sequence.table().as_deref()), ("ticket_id_seq", Some("ticket")));
        let owned = db.migration().drop_sequence("ticket_id_seq").run();
        assert!(matches!(owned, Err(SchemaError::SequenceOwned { table, .. }) if table == "ticket"));
        sequence.set(-5).expect("it has that number");
        let around = session.transact(|tx| tx.insert_new_dyn(&dynamic, &row(Value::NONE)));
        assert_eq!(*around.expect("a new key"), i64::from(i16::MAX), "it cycles");
        db.migration().drop_table("ticket").run().expect("nothing uses it");
        assert!(matches!(sequence.next(), Err(TransactError::SequenceGone { .. })));
        db.create::<Ticket>().expect("the names are free");
        assert_eq!(db.sequences().len(), 2);
    });
}

#[test]
fn identities_are_declared_and_changed() {
    let db = Database::in_memory().expect("memory");
    let table = |id: ColumnDef| TableDef::builder("t").column(id).column(column("a")).key(["id"]);
    for (wrong, says) in [
        (table(column("id").identity(Identity::always()).default("1")), "not nullable, without a default"),
        (table(ColumnDef::new("id", ColumnType::Uuid).identity(Identity::always())), "an integer of 16 to 64 bits"),
        (
            table(column("id").identity(Identity::always().increment(0))),
            "the sequence of column `id` has the increment 0",
        ),
        (
            table(column("id")).column(column("b").identity(Identity::always())).without_key(),
            "has two identity columns, `b` and `row_id`",
        ),
        (TableDef::builder("t").without_key().key(["row_id"]).hash().column(column("row_id")), "declared twice"),
        (TableDef::builder("t").column(column("a")).without_key().key(["a"]), "then `row_id` u64 is the key"),
    ] {
        let error = wrong.finish().expect_err("it makes no sense").to_string();
        assert!(error.contains(says), "{error}");
    }
    let handle = db.declare(table(column("id")).finish().expect("valid")).expect("it is new");
    let mut session = db.session();
    session.transact(|tx| tx.insert_dyn(&handle, &[Value::from(6u32), Value::from(0u32)])).expect("a new key");
    let change = |change: Change| db.migration().change("t", [change]).run();
    let few = Change::add_column(column("few").identity(Identity::always().start(i64::from(u32::MAX))));
    session.transact(|tx| tx.insert_dyn(&handle, &[Value::from(5u32), Value::from(0u32)])).expect("a new key");
    let added = change(few).expect_err("it has two rows");
    let SchemaError::Refused { problem, reason, .. } = &added else { panic!("{added}") };
    assert!(matches!(**reason, Refusal::Value { .. }), "{reason:?}");
    assert!(problem.contains("fewer numbers than the table has rows") && db.sequences().is_empty(), "{problem}");
    session.transact(|tx| tx.delete_dyn(&handle, &[Value::from(5u32)])).expect("it is there");
    change(Change::set_identity("id", Some(Identity::by_default().start(7)))).expect("it is an integer");
    assert_eq!(*session.transact(|tx| tx.insert_new_dyn(&handle, &[Value::NONE, Value::from(0u32)])).expect("new"), 7);
    change(Change::add_column(column("b").default("1"))).expect("it has a default");
    db.migration().change("t", [Change::rename_table("u"), Change::rename_column("id", "number")]).run().expect("free");
    let values = [Value::NONE, Value::from(0u32), Value::from(0u32)];
    assert_eq!(*session.transact(|tx| tx.insert_new_dyn(&handle, &values)).expect("new"), 8);
    assert!(matches!(db.migration().drop_sequence("t_id_seq").run(), Err(SchemaError::SequenceOwned { .. })));
    db.migration().change("u", [Change::set_identity("number", None)]).run().expect("it has one");
    assert!(db.sequences().is_empty());
    let gone = session.transact(|tx| tx.insert_new_dyn(&handle, &values)).expect_err("it has none any more");
    assert!(matches!(gone, TransactError::TableGone), "{gone}");
    let handle = db.open_dyn("u").expect("it exists");
    let none = session.transact(|tx| tx.insert_new_dyn(&handle, &values)).expect_err("it has none any more");
    assert!(none.to_string().contains("no identity column"), "{none}");
}

/// A program that does not know the column goes on: its rows are numbered, and keep their numbers.
#[test]
fn a_column_that_is_added_as_an_identity_numbers_the_rows() {
    const ROWS: u32 = 40;
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let name = setting.protocol.name;
        let line = |id: u32| Plain { id, text: format!("line {id}") };
        let numbers = |db: &Database| {
            let table = db.open_dyn("plain").expect("it is there");
            let number = |row: seriatim::DynRow<'_>| match row.get("number") {
                Some(Value::Integer(number, _)) => number,
                other => panic!("{name}: {other:?}"),
            };
            let all = db.session().transact(|tx| {
                let all = tx.scan_dyn(&table, &[])?.map(|row| Ok(number(row?)));
                all.collect::<Result<Vec<i128>, Abort>>()
            });
            let all = all.expect("it runs alone").into_value();
            let distinct: HashSet<i128> = all.iter().copied().collect();
            assert_eq!(distinct.len(), all.len(), "{name}: {all:?}");
            assert!(all.iter().all(|number| *number >= 100), "{name}: {all:?}");
            all
        };
        let added = || {
            let number = ColumnDef::new("number", ColumnType::U64).identity(Identity::always().start(100));
            [Change::add_column(number), Change::add_unique_index("by_number", ["number"])]
        };
        for in_transaction in [false, true] {
            let db = setting.open();
            let plain = db.create::<Plain>().expect("valid");
            let mut session = db.session();
            session.transact(|tx| (0..ROWS).try_for_each(|id| tx.insert(&plain, &line(id)))).expect("it runs alone");
            if in_transaction {
                let tx = session.begin().expect("a worker is free");
                tx.migration().change("plain", added()).run().unwrap_or_else(|error| panic!("{name}: {error}"));
                let own = tx.open_dyn("plain").expect("it is there");
                let row = [Value::from(900u32), Value::from("new"), Value::NONE];
                assert_eq!(tx.insert_new_dyn(&own, &row).expect("a new key"), i64::from(100 + ROWS), "{name}");
                tx.rollback();
                assert_eq!(db.open_dyn("plain").expect("it is there").definition().columns.len(), 2, "{name}");
                let tx = session.begin().expect("a worker is free");
                tx.migration().change("plain", added()).run().unwrap_or_else(|error| panic!("{name}: {error}"));
                tx.commit().unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(numbers(&db), (100..100 + i128::from(ROWS)).collect::<Vec<_>>(), "{name}");
            } else {
                thread::scope(|scope| {
                    let (db, plain) = (&db, &plain);
                    scope.spawn(move || {
                        let mut session = db.session();
                        for round in 0..20 {
                            let id = round % ROWS;
                            // Conflicts and the closed table are no matter.
                            let _ = session.transact(|tx| tx.put(plain, &Plain { text: "again".into(), ..line(id) }));
                            let _ = session.transact(|tx| tx.insert(plain, &line(ROWS + round)));
                        }
                    });
                    db.migration().change("plain", added()).run().unwrap_or_else(|error| panic!("{name}: {error}"));
                });
            }
            let before = numbers(&db);
            session
                .transact(|tx| {
                    tx.put(&plain, &Plain { text: "put".into(), ..line(3) })?;
                    tx.update(&plain, &4, |line| line.set_text("updated"))?.map_err(Into::into)
                })
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(numbers(&db), before, "{name}");
            session.transact(|tx| tx.insert(&plain, &line(800))).unwrap_or_else(|error| panic!("{name}: {error}"));
            let after = numbers(&db);
            assert!(after.len() == before.len() + 1 && after.starts_with(&before), "{name}: {after:?}");
            drop((session, plain));
            db.table::<Plain>().unwrap_or_else(|error| panic!("{name}: {error}"));
            db.check_indexes().expect("indexes and rows agree");
        }
    });
}

#[test]
fn rows_of_a_table_without_a_key_are_found_by_their_number() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let lines = db.create::<Line>().expect("valid");
        let mut session = db.session();
        let line = |level: u8| Line { level, text: format!("level {level}") };
        let ids =
            session.transact(|tx| (0..6).map(|at| tx.append(&lines, &line(at % 2))).collect::<Result<Vec<_>, _>>());
        let ids = ids.expect("it runs alone").into_value();
        assert_eq!(ids, (1..=6).map(RowId).collect::<Vec<_>>());
        session
            .transact(|tx| {
                tx.update(&lines, &ids[1], |line| line.set_level(9))?;
                tx.delete(&lines, &ids[2])
            })
            .expect("they are there");
        let by_level = lines.index(Line::BY_LEVEL);
        let found = session.transact(|tx| {
            let numbered = |line: Result<LineRow<'_>, Abort>| line.map(|line| (line.row_id(), line.level()));
            let all = tx.scan(&lines, ..).map(numbered).collect::<Result<Vec<_>, _>>()?;
            let nine = tx.find_by(&by_level, &9).next().transpose()?.map(|line| line.row_id());
            Ok((all, nine))
        });
        let expected = vec![(RowId(1), 0), (RowId(2), 9), (RowId(4), 1), (RowId(5), 0), (RowId(6), 1)];
        assert_eq!(*found.expect("it runs alone"), (expected, Some(ids[1])), "{}", setting.protocol.name);
        let handle = db.open_dyn("line").expect("it exists");
        let values = [Value::from(3u8), Value::from("dynamic"), Value::NONE];
        assert_eq!(*session.transact(|tx| tx.insert_new_dyn(&handle, &values)).expect("a new row"), 7);
        let refused = session
            .transact(|tx| tx.insert_dyn(&handle, &[Value::from(3u8), Value::from("dynamic"), Value::from(70u64)]));
        assert!(refused.expect_err("its number is given").to_string().contains("row_id"));
        assert_eq!(db.check_indexes().expect("they agree")[0].rows, 6);
    });
}

fn dump(db: &Database, format: Format) -> String {
    let mut out = Vec::new();
    db.dump(format, &[], &mut out).expect("memory has room");
    String::from_utf8(out).expect("text")
}

#[test]
fn a_dump_has_sequences_and_where_they_are() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let (orders, tickets) = (db.create::<Order>().expect("valid"), db.create::<Ticket>().expect("valid"));
        let lines = db.create::<Line>().expect("valid");
        let s = with(&db, SequenceDef::new("s").start(i64::MAX - 7));
        with(&db, SequenceDef::new("unused").ty(ColumnType::I16).increment(-2).cycle());
        s.next().expect("a number");
        let mut session = db.session();
        session
            .transact(|tx| {
                tx.insert(&orders, &Order { id: OrderId(40), customer: 1 })?;
                tx.insert_new(&orders, |id| Order { id, customer: 2 })?;
                tx.insert_new(&tickets, |id| Ticket { id, holder: "ann".to_owned() })?;
                let gone = tx.append(&lines, &Line { level: 1, text: "gone".to_owned() })?;
                tx.append(&lines, &Line { level: 1, text: "stays".to_owned() })?;
                tx.delete(&lines, &gone)
            })
            .expect("it runs alone");
        let first = dump(&db, Format::Json);
        let copy = setting.open();
        assert_eq!(copy.load(first.as_bytes()).expect("it is a dump").tables.len(), 3);
        assert_eq!(dump(&copy, Format::Json), first, "{}", setting.protocol.name);
        assert_eq!(dump(&copy, Format::Sql), dump(&db, Format::Sql));
        assert_eq!(copy.sequence("s").expect("loaded").next().expect("a number"), i64::MAX - 6);
        assert_eq!(copy.sequence("unused").expect("loaded").next().expect("a number"), -1);
        let (orders, lines) = (copy.table::<Order>().expect("loaded"), copy.table::<Line>().expect("loaded"));
        let ids = copy.session().transact(|tx| {
            let id = tx.insert_new(&orders, |id| Order { id, customer: 3 })?;
            Ok((id, tx.append(&lines, &Line { level: 1, text: String::new() })?))
        });
        assert_eq!(*ids.expect("new keys"), (OrderId(2), RowId(3)), "{}", setting.protocol.name);

        // Rows without a sequence of their own: it continues behind them.
        copy.load_csv("order", &b"customer\n7\n"[..]).expect("a number is given");
        copy.load_csv("order", &b"id,customer\n90,7\n"[..]).expect("a number is accepted");
        let id = copy.session().transact(|tx| tx.insert_new(&orders, |id| Order { id, customer: 3 }));
        assert_eq!(*id.expect("a new key"), OrderId(91), "{}", setting.protocol.name);
        let again = copy.load(first.as_bytes()).expect_err("its rows are there").to_string();
        assert!(again.contains("duplicate key"), "{again}");
    });
}

/// Its lock is taken once.
#[test]
fn a_sequence_that_is_changed_twice_keeps_nobody_waiting() {
    let faster = || [SequenceChange::Increment(2)];
    for case in 0..5 {
        let db = Database::in_memory().expect("memory");
        db.create::<Order>().expect("valid");
        let s = with(&db, SequenceDef::new("s"));
        let begin = || db.migration().alter_sequence("order_id_seq", faster()).alter_sequence("s", faster());
        let twice = match case {
            0 => begin().drop_sequence("s"),
            1 => begin().drop_table("order"),
            2 => begin().change("order", [Change::set_identity("id", None)]),
            3 => begin().change("order", [Change::set_type("id", ColumnType::I64)]),
            _ => db.migration().create_sequence(SequenceDef::new("t")).drop_sequence("t"),
        };
        let changed = twice.run();
        assert!(
            changed.as_ref().err().is_none_or(|error| error.to_string().contains("is changed twice")),
            "{changed:?}"
        );
        let number = s.next();
        assert!(number.is_ok() || case == 0 && changed.is_ok(), "{number:?}");
        db.create::<Ticket>().expect("nobody changes tables");
    }
}

/// So that the column is not of a type for which the sequence ends too early, or late.
#[test]
fn a_sequence_follows_the_type_of_its_column() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let id = ColumnDef::new("id", ColumnType::I16).identity(Identity::by_default());
        let table = TableDef::builder("t").column(column("n")).column(id).key(["n"]).finish().expect("a valid table");
        db.declare(table).expect("a new name");
        let insert = |n: u32| {
            let t = db.open_dyn("t").expect("it exists");
            db.session().transact(|tx| tx.insert_new_dyn(&t, &[Value::from(n), Value::NONE]))
        };
        db.sequence("t_id_seq").expect("it exists").set(i16::MAX.into()).expect("the last one");
        assert!(matches!(insert(1), Err(TransactError::SequenceExhausted { .. })));
        let change = |ty: ColumnType| db.migration().change("t", [Change::set_type("id", ty)]).run();
        change(ColumnType::I64).expect("each is one");
        assert_eq!(*insert(1).expect("a number"), 1 << 15, "{}", setting.protocol.name);
        let copy = setting.open();
        copy.load(dump(&db, Format::Json).as_bytes()).expect("it is a dump");
        let narrowed = change(ColumnType::I16).expect_err("it has a greater number").to_string();
        assert!(narrowed.contains("32768"), "{narrowed}");
        change(ColumnType::I32).expect("each is one");
        let sequence = db.sequence("t_id_seq").expect("it exists");
        assert_eq!(sequence.definition().range(), (1, i32::MAX.into()));
        assert_eq!(*insert(2).expect("a number"), (1 << 15) + 1, "{}", setting.protocol.name);
    });
}

/// The name of an identity column's sequence can be that which another one gets in a new database.
#[test]
fn a_dump_is_loaded_whatever_its_sequences_are_called() {
    let db = Database::in_memory().expect("memory");
    with(&db, SequenceDef::new("order_id_seq"));
    let table = |name: &'static str| {
        let id = ColumnDef::new("id", ColumnType::U32).identity(Identity::by_default());
        TableDef::builder(name).column(id).key(["id"]).finish().expect("a valid table")
    };
    for (first, then) in [("order", "past"), ("b", "c"), ("a", "b"), ("order", "d")] {
        db.declare(table(first)).expect("a new name");
        db.migration().change(first, [Change::rename_table(then)]).run().expect("a new name");
    }
    db.declare(table("a")).expect("a new name");
    for (at, name) in ["past", "c", "b", "d", "a"].into_iter().enumerate() {
        let handle = db.open_dyn(name).expect("it exists");
        let insert =
            |tx: &seriatim::Tx| (0..=at).try_for_each(|_| tx.insert_new_dyn(&handle, &[Value::NONE]).map(drop));
        db.session().transact(insert).expect("new keys");
    }
    let first = dump(&db, Format::Json);
    let copy = Database::in_memory().expect("memory");
    copy.load(first.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{first}"));
    let sorted = |dump: &str| {
        let mut lines: Vec<String> = dump.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&dump(&copy, Format::Json)), sorted(&first));
}

#[test]
fn a_load_that_ends_early_gives_no_number_again() {
    let db = Database::in_memory().expect("memory");
    let orders = db.create::<Order>().expect("valid");
    let error = db.load_csv("order", &b"id,customer\n1,7\n2,7\n3,-1\n"[..]).expect_err("the last row is wrong");
    assert_eq!(error.loaded.tables[0].rows, 2, "{error}");
    let id = db.session().transact(|tx| tx.insert_new(&orders, |id| Order { id, customer: 3 }));
    assert_eq!(*id.expect("a new key"), OrderId(3));
}

#[test]
fn declarations_show_identities() {
    let db = Database::in_memory().expect("memory");
    db.create::<Ticket>().expect("valid");
    db.create::<Line>().expect("valid");
    let described = |name: &str| describe(db.open_dyn(name).expect("it exists").definition());
    assert_eq!(described("ticket"), "table ticket, hashed\n  id      i16   key, identity, always\n  holder  text\n");
    let line =
        "table line, ordered\n  level   u8\n  text    text\n  row_id  u64   key, row id\n  index by_level (level)\n";
    assert_eq!(described("line"), line);
    db.session()
        .transact(|tx| tx.insert_new_dyn(&db.open_dyn("ticket").expect("it exists"), &[Value::NONE, Value::from("a")]))
        .expect("a new key");
    let sql = dump(&db, Format::Sql);
    for part in [
        "\"id\" smallint NOT NULL GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME \"ticket_id_seq\" INCREMENT BY -5 \
         MINVALUE -5 MAXVALUE 32767 START WITH 1000 CYCLE),\n",
        "\"row_id\" bigint NOT NULL GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME \"line_row_id_seq\" INCREMENT BY 1 \
         MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1) CHECK (\"row_id\" BETWEEN 0 AND 9223372036854775807),\n",
        "INSERT INTO \"ticket\" (\"id\", \"holder\") OVERRIDING SYSTEM VALUE VALUES\n(1000, 'a');\n",
        "SELECT pg_catalog.setval('\"ticket_id_seq\"', 1000, true);\n",
        "SELECT pg_catalog.setval('\"line_row_id_seq\"', 1, false);\n",
    ] {
        assert!(sql.contains(part), "{part} is not in {sql}");
    }
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "seat", key(number))]
struct Seat {
    number: i64,
    holder: u32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "receipt", key(id))]
struct Receipt {
    #[column(identity(always))]
    id: u64,
    holder: u32,
}

/// What all calls change.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "sold", key(id), hash)]
struct Sold {
    id: u32,
    seats: u64,
}

#[procedure]
fn sell(tx: &Tx, holder: u32) -> Result<(i64, u64), Abort> {
    let number = tx.next("seat_number")?;
    let before = tx.require::<Sold>(0)?;
    tx.insert(Seat { number, holder })?;
    let receipt = tx.insert_new(|id| Receipt { id, holder })?;
    tx.update::<Sold>(0, |sold| sold.seats = before.seats + 1)?;
    Ok((number, receipt))
}

#[procedure]
fn sell_two(tx: &Tx) -> Result<(i64, i64), Abort> {
    let (one, two) = (tx.next("seat_number")?, tx.next("seat_number")?);
    tx.insert(Seat { number: one, holder: 0 })?;
    tx.insert(Seat { number: two, holder: 0 })?;
    Ok((one, two))
}

#[procedure]
fn give_back(tx: &Tx, number: i64) -> Result<bool, Abort> {
    if number < 0 {
        let spare = tx.next("seat_number")?;
        tx.insert(Seat { number: spare, holder: 7 })?;
        return Err(tx.abort("no seat has such a number"));
    }
    let was = tx.delete_if::<Seat>(number)?;
    Ok(was)
}

/// No number is in two rows, or was returned twice, however calls are executed.
#[test]
fn procedures_take_numbers_and_none_is_taken_twice() {
    each(|setting| {
        for mode in [ExecutionMode::Whole, ExecutionMode::Pieces] {
            if mode == ExecutionMode::Pieces && !setting.protocol.capabilities.pieces {
                continue;
            }
            for checked in [false, true] {
                let db = setting.builder().execution_mode(mode).check_plans(checked).open().expect("a valid setting");
                db.migration().create_sequence(SequenceDef::new("seat_number").start(50)).run().expect("it is new");
                db.create::<Seat>().expect("new");
                db.create::<Receipt>().expect("new");
                let sold = db.create::<Sold>().expect("new");
                db.register(procedures![sell, sell_two, give_back, open_sales]).expect("a sound set");
                let mut session = db.session();
                session.call(open_sales, &()).expect("it is the first");
                assert_eq!(*session.call(sell, &1).expect("it runs alone"), (50, 1));
                assert_eq!(*session.call(sell_two, &()).expect("it runs alone"), (51, 52));
                // A branch that is not taken takes its number, too.
                assert!(*session.call(give_back, &51).expect("it runs alone"));
                assert!(session.call(give_back, &-1).is_err());
                assert_eq!(*session.interpret(sell_two, &()).expect("it runs alone"), (55, 56));
                let by_name = session.call_by_name("sell", &2u32.to_value()).expect("it runs alone").into_value();
                assert_eq!(by_name, (57i64, 2u64).to_value());
                let taken = Mutex::new(vec![50, 51, 52, 55, 56, 57]);
                thread::scope(|scope| {
                    for at in 0..3u32 {
                        let (db, taken) = (&db, &taken);
                        scope.spawn(move || {
                            let mut session = db.session();
                            for _ in 0..20 {
                                match session.call(sell, &at) {
                                    Ok(numbers) => taken.lock().expect("no panic").push(numbers.0),
                                    Err(TransactError::Conflict { .. } | TransactError::Excluded { .. }) => {}
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        });
                    }
                });
                let mut taken = taken.into_inner().expect("no panic");
                taken.sort_unstable();
                let count = taken.len();
                taken.dedup();
                assert_eq!(taken.len(), count, "{}: a number was taken twice", setting.protocol.name);
                let mut seats = Vec::new();
                db.each_row(&db.table::<Seat>().expect("it is there"), |seat| seats.push(seat.number()))
                    .expect("at rest");
                seats.sort_unstable();
                taken.retain(|number| *number != 51);
                assert_eq!(seats, taken, "{}", setting.protocol.name);
                let mut receipts = 0;
                db.each_row(&db.table::<Receipt>().expect("it is there"), |_| receipts += 1).expect("at rest");
                let mut count = 0;
                db.each_row(&sold, |sold| count = sold.seats()).expect("at rest");
                assert_eq!(receipts, count, "{}", setting.protocol.name);
            }
        }
    });
}

#[procedure]
fn open_sales(tx: &Tx) -> Result<(), Abort> {
    tx.insert(Sold { id: 0, seats: 0 })?;
    Ok(())
}

#[test]
fn calls_on_the_threads_of_an_executor_take_numbers() {
    each(|setting| {
        let db = setting.open();
        db.migration().create_sequence(SequenceDef::new("seat_number")).run().expect("it is new");
        db.create::<Seat>().expect("new");
        db.register(procedures![sell_two]).expect("a sound set");
        let executor = db.executor(2).expect("there are threads");
        let calls: Vec<_> = (0..40).map(|_| executor.call(sell_two, ())).collect();
        let mut taken = Vec::new();
        for call in calls {
            let (one, two) = call.wait().expect("it was not dropped").into_value();
            taken.extend([one, two]);
        }
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 80, "{}", setting.protocol.name);
    });
}

#[test]
fn a_procedure_whose_sequence_there_is_not_is_refused_by_name() {
    let db = Database::in_memory().expect("in memory");
    db.create::<Seat>().expect("new");
    let error = db.register(procedures![sell_two]).map(drop).unwrap_err().to_string();
    assert!(error.contains("procedure `sell_two`") && error.contains("seat_number"), "{error}");
}

/// Its sequence alone gives the values of such a column, also after the row was inserted.
#[test]
fn an_update_sets_no_column_that_only_its_sequence_gives() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::I64);
        let number = column("number").identity(Identity::always());
        let table = TableDef::builder("t").column(column("id")).column(number).column(column("n")).key(["id"]);
        let table = db.declare(table.finish().expect("valid")).expect("it is new");
        let (mut session, one) = (db.session(), || [Value::from(1i64)]);
        let row = [Value::from(1i64), Value::NONE, Value::from(0i64)];
        session.transact(|tx| tx.insert_dyn(&table, &row)).expect("a new key");
        let changes = [("n", Value::from(5i64)), ("number", Value::from(7i64))];
        let says = "column \"number\" of table \"t\" is given by its sequence: leave it as it is";
        let refused = [
            session.transact(|tx| tx.update_dyn(&table, &one(), &changes)).map(drop),
            session.transact(|tx| tx.update_if_dyn(&table, &one(), &changes).map(drop)).map(drop),
            session.transact(|tx| tx.upsert_dyn(&table, &row, |_| Ok(changes.to_vec()))).map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.expect_err("it is given").to_string(), says, "{}", setting.protocol.name);
        }
        session.transact(|tx| tx.update_dyn(&table, &one(), &changes[..1])).expect("the other column is free");
        let read = session.transact(|tx| Ok(tx.get_dyn(&table, &one())?.expect("it is there").values()));
        assert_eq!(read.expect("it runs alone")[1..], [Value::from(1i64), Value::from(5i64)]);
    });
}
