//! Tables declared at run time, and derived tables accessed by the same methods.

use std::ops::ControlFlow;

use seriatim::catalog::{ColumnDef, ColumnType, Organization, Reverse, TableDef, Value, ValueError, desc};
use seriatim::{Abort, Database, Decimal, DynHandle, DynRow, DynScan, MissingRow, Table, TransactError};

use crate::common::{Person, each, person, text};

fn definition(name: &'static str) -> TableDef {
    TableDef::builder(name)
        .column(ColumnDef::new("shop", ColumnType::U16))
        .column(ColumnDef::new("code", ColumnType::Text { max: 8 }))
        .column(ColumnDef::new("price", ColumnType::Decimal { scale: 2 }))
        .column(ColumnDef::new("stock", ColumnType::I32).nullable())
        .column(ColumnDef::new("maker", ColumnType::LongText).immutable())
        .column(ColumnDef::new("weight", ColumnType::F64).nullable())
        .column(ColumnDef::new("digest", ColumnType::Bytes { max: 4 }))
        .column(ColumnDef::new("sold", ColumnType::Timestamp).nullable())
        .column(ColumnDef::new("live", ColumnType::Bool))
        .key(["shop", "code"])
        .index("by_price", [desc("price")])
        .index("by_stock", ["stock"])
        .unique_index("by_digest", ["digest"], Organization::Hash)
        .finish()
        .expect("valid")
}

/// The table that [`definition`] declares, under another name.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "twin", key(shop, code))]
#[table(index(name = "by_price", columns(desc(price)), ordered))]
struct Twin {
    shop: u16,
    code: Text8,
    price: Decimal<2>,
    stock: Option<i32>,
    #[column(immutable)]
    maker: String,
}

type Text8 = seriatim::Text<8>;

fn money(units: i64) -> Value {
    Value::Decimal { units, scale: 2 }
}

fn item(shop: u16, code: &str, price: i64) -> Vec<Value> {
    vec![
        shop.into(),
        code.into(),
        money(price),
        Some(price as i32 / 10).into(),
        Value::Text(format!("maker of {code}")),
        Value::NONE,
        Value::Bytes(code.bytes().take(4).collect()),
        Value::Timestamp(-1).some(),
        Value::Bool(true),
    ]
}

fn key(shop: u16, code: &str) -> [Value; 2] {
    [shop.into(), code.into()]
}

fn code(row: &DynRow<'_>) -> String {
    let Some(Value::Text(code)) = row.get("code") else { panic!("{:?}", row.values()) };
    code
}

fn codes(scan: DynScan<'_>) -> Result<Vec<String>, Abort> {
    scan.map(|row| Ok(code(&row?))).collect()
}

fn shop(db: &Database) -> DynHandle {
    let items = db.declare(definition("item")).expect("valid");
    let rows = [item(1, "bolt", 250), item(1, "nut", 120), item(2, "axle", 99_900), item(2, "", 120)];
    db.session().transact(|tx| rows.iter().try_for_each(|row| tx.insert_dyn(&items, row))).expect("new keys");
    items
}

#[test]
fn a_declared_table_is_written_and_read_by_values() {
    each(|setting| {
        let db = setting.open();
        let items = shop(&db);
        let mut session = db.session();
        let read = session.transact(|tx| {
            let row = tx.get_dyn(&items, &key(1, "bolt"))?.expect("there");
            assert_eq!(row.values(), item(1, "bolt", 250));
            assert_eq!((row.get("price"), row.get("nothing")), (Some(money(250)), None));
            assert_eq!((row.value(5), row.value(8)), (Value::NONE, Value::Bool(true)));
            assert!(tx.get_dyn(&items, &key(3, "bolt"))?.is_none());
            assert_eq!(codes(tx.scan_dyn(&items, &[])?)?, ["bolt", "nut", "", "axle"]);
            assert_eq!(codes(tx.scan_dyn(&items, &[2u16.into()])?)?, ["", "axle"]);
            assert_eq!(codes(tx.scan_dyn(&items, &key(1, "nut"))?)?, ["nut"]);
            assert_eq!(codes(tx.find_dyn(&items, "by_price", &[])?)?, ["axle", "bolt", "nut", ""]);
            let mut shown = Vec::new();
            let stopped = tx.scan_dyn(&items, &[])?.try_for_each_row(|row| {
                shown.push(code(&row));
                Ok(if shown.len() == 3 { ControlFlow::Break(row.value(0)) } else { ControlFlow::Continue(()) })
            })?;
            assert_eq!(
                (shown, stopped),
                (["bolt", "nut", ""].map(String::from).to_vec(), ControlFlow::Break(2u16.into()))
            );
            assert_eq!(codes(tx.find_dyn(&items, "by_price", &[money(120)])?)?, ["nut", ""]);
            assert_eq!(codes(tx.find_dyn(&items, "by_digest", &[Value::Bytes(b"axle".to_vec())])?)?, ["axle"]);
            assert_eq!(codes(tx.find_dyn(&items, "by_digest", &[Value::Bytes(vec![])])?)?, [""]);
            Ok(())
        });
        read.expect("no conflict");

        let written = session.transact(|tx| {
            let changes = [("stock", Value::NONE), ("weight", Value::Float(0.25)), ("price", money(130))];
            tx.update_dyn(&items, &key(1, "nut"), &changes)?;
            assert_eq!(tx.update_if_dyn(&items, &key(9, "nut"), &changes)?, Err(MissingRow));
            tx.delete_dyn(&items, &key(1, "bolt"))?;
            assert_eq!(tx.delete_if_dyn(&items, &key(1, "bolt"))?, Err(MissingRow));
            tx.put_dyn(&items, &item(2, "axle", 5))?;
            tx.put_dyn(&items, &item(7, "gear", 7))
        });
        written.expect("no conflict");
        let read = session.snapshot(|tx| {
            let row = tx.get_dyn(&items, &key(1, "nut"))?.expect("there");
            assert_eq!((row.get("stock"), row.get("weight")), (Some(Value::NONE), Some(Some(0.25).into())));
            assert_eq!(codes(tx.find_dyn(&items, "by_price", &[])?)?, ["nut", "", "gear", "axle"]);
            assert_eq!(codes(tx.find_dyn(&items, "by_stock", &[Value::NONE])?)?, ["nut"]);
            assert_eq!(codes(tx.find_dyn(&items, "by_digest", &[Value::Bytes(b"bolt".to_vec())])?)?, [""; 0]);
            codes(tx.scan_dyn(&items, &[])?)
        });
        assert_eq!(read.expect("no conflict").value, ["nut", "", "axle", "gear"]);
        let error = session.transact(|tx| tx.insert_dyn(&items, &item(7, "gear", 8))).expect_err("the key exists");
        assert_eq!(error.to_string(), "duplicate key shop 7, code \"gear\" in item");
        let error = session.transact(|tx| tx.insert_dyn(&items, &item(8, "gear", 8))).expect_err("the digest is taken");
        assert_eq!(error.to_string(), "duplicate key digest gear in item.by_digest");
        assert_eq!(db.check_structure(), Ok(()));
    });
}

#[test]
fn a_value_that_does_not_fit_is_named_and_nothing_is_written() {
    each(|setting| {
        let db = setting.open();
        let items = shop(&db);
        let mut session = db.session();
        let with = |column: usize, value: Value| {
            let mut row = item(5, "new", 1);
            row[column] = value;
            row
        };
        let cases = [
            (with(0, 70_000u32.into()), "column `shop`: the value 70000 does not fit; it must be a value of type u16"),
            (with(0, Value::NONE), "column `shop`: the value NULL does not fit; it must be a value of type u16"),
            (with(1, "ninebytes".into()), "column `code`: the value has 9 bytes; the column has room for 8"),
            (
                with(2, Value::Decimal { units: 1, scale: 3 }),
                "column `price`: the value 0.001 does not fit; it must be a value of type decimal(2)",
            ),
            (
                with(3, "many".into()),
                "column `stock`: the value \"many\" does not fit; it must be a value of type i32 or NULL",
            ),
            (with(6, Value::Bytes(vec![0; 5])), "column `digest`: the value has 5 bytes; the column has room for 4"),
            (with(8, 1i32.into()), "column `live`: the value 1 does not fit; it must be a value of type bool"),
            (item(5, "new", 1)[1..].to_vec(), "8 values given where there are 9 columns"),
        ];
        for (row, message) in cases {
            for put in [false, true] {
                let error = session.transact(|tx| match put {
                    false => tx.insert_dyn(&items, &row),
                    true => tx.put_dyn(&items, &row),
                });
                let error = error.expect_err("it does not fit");
                assert_eq!(error.user::<ValueError>().map(ToString::to_string).as_deref(), Some(message));
            }
        }
        let changes = [
            (
                "price",
                Value::Bool(true),
                "column `price`: the value true does not fit; it must be a value of type decimal(2)",
            ),
            ("live", Value::NONE, "column `live`: the value NULL does not fit; it must be a value of type bool"),
            ("maker", "another".into(), "column \"maker\" is part of the key or immutable"),
            ("code", "another".into(), "column \"code\" is part of the key or immutable"),
            ("colour", Value::NONE, "table \"item\" has no column \"colour\""),
        ];
        for (column, value, message) in changes {
            let error = session.transact(|tx| {
                let changes = [("stock", 77.into()), (column, value.clone())];
                tx.update_dyn(&items, &key(1, "bolt"), &changes)
            });
            assert_eq!(error.map(|_| ()).expect_err("it does not fit").to_string(), format!("{message}"));
        }
        let lookups = session.transact(|tx| tx.get_dyn(&items, &[1u16.into()]).map(|_| ()));
        assert!(matches!(lookups, Err(TransactError::User(_))), "{lookups:?}");
        let lookups = session.transact(|tx| tx.scan_dyn(&items, &["bolt".into()]).map(|_| ()));
        assert!(matches!(lookups, Err(TransactError::User(_))), "{lookups:?}");
        let error =
            session.transact(|tx| tx.find_dyn(&items, "by_colour", &[]).map(|_| ())).expect_err("no such index");
        assert_eq!(error.to_string(), "table \"item\" has no index \"by_colour\"");
        let row = session.transact(|tx| Ok(tx.get_dyn(&items, &key(1, "bolt"))?.map(|row| row.values())));
        assert_eq!(row.expect("no conflict").value, Some(item(1, "bolt", 250)));
        let count = session.transact(|tx| Ok(codes(tx.scan_dyn(&items, &[])?)?.len()));
        assert_eq!(*count.expect("no conflict"), 4);
    });
}

#[test]
fn an_update_that_does_not_fit_and_was_shrugged_off_changes_nothing() {
    each(|setting| {
        let db = setting.open();
        let items = shop(&db);
        let mut session = db.session();
        // The body ignores the error: either the transaction refuses to commit, or the whole update was undone.
        let _ = session.transact(|tx| {
            let changes = [("stock", 77.into()), ("live", Value::NONE)];
            assert!(tx.update_dyn(&items, &key(1, "bolt"), &changes).is_err());
            Ok(())
        });
        let row = session.transact(|tx| Ok(tx.get_dyn(&items, &key(1, "bolt"))?.map(|row| row.values())));
        assert_eq!(row.expect("no conflict").value, Some(item(1, "bolt", 250)));
    });
}

#[test]
fn a_text_beyond_the_memory_limit_is_out_of_memory_by_values_too() {
    each(|setting| {
        let db = setting.builder().memory_limit(8 << 20).open().expect("valid");
        let notes = TableDef::builder("note")
            .column(ColumnDef::new("id", ColumnType::U32))
            .column(ColumnDef::new("text", ColumnType::LongText))
            .key(["id"])
            .finish()
            .expect("valid");
        let notes = db.declare(notes).expect("space");
        let mut session = db.session();
        session.transact(|tx| tx.insert_dyn(&notes, &[1u32.into(), "short".into()])).expect("space");
        let huge = Value::Text("x".repeat(16 << 20));
        let inserted = session.transact(|tx| tx.insert_dyn(&notes, &[2u32.into(), huge.clone()]));
        assert!(matches!(inserted, Err(TransactError::OutOfMemory { .. })), "{inserted:?}");
        let updated = session.transact(|tx| tx.update_dyn(&notes, &[1u32.into()], &[("text", huge.clone())]));
        assert!(matches!(updated, Err(TransactError::OutOfMemory { .. })), "{updated:?}");
    });
}

#[test]
fn a_derived_table_shows_the_same_values_by_name() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let ada = Person { nickname: Some("Ada".to_owned()), ..person(1, 7) };
        session.transact(|tx| tx.insert(&people, &ada)).expect("a new key");
        let by_name = db.open_dyn("person").expect("there");
        assert_eq!(by_name.definition(), people.definition());
        let seen = session.transact(|tx| {
            let row = tx.get_dyn(&by_name, &[1u8.into(), 7u32.into()])?.expect("there");
            let found = tx.find_dyn(&by_name, "by_city", &["London".into()])?;
            let found = found.map(|row| Ok(row?.values())).collect::<Result<Vec<_>, Abort>>()?;
            assert_eq!(found, [row.values()]);
            Ok(row.values())
        });
        assert_eq!(
            seen.expect("no conflict").value,
            [
                1u8.into(),
                7u32.into(),
                Value::Timestamp(-5),
                "born in region 1".into(),
                "Ada".into(),
                "Lovelace".into(),
                Some(36i16).into(),
                1007u32.into(),
                "1007@example.org".into(),
                "London".into(),
                money(-12_34),
                Value::Float(0.5),
                Value::Bool(true),
                "a note of some length about number 7 of region 1".into(),
                Some("Ada").into(),
            ]
        );
        // The reverse: written by values, read by type.
        let changed = session.transact(|tx| {
            let changes = [("age", Value::NONE), ("badge", 5u32.into()), ("nickname", Value::NONE)];
            tx.update_dyn(&by_name, &[1u8.into(), 7u32.into()], &changes)?;
            Ok(tx.get_by(&people.index(Person::BY_BADGE), &5)?.map(|row| row.to_owned()))
        });
        let wanted = Person { age: None, badge: 5, nickname: None, ..ada };
        assert_eq!(changed.expect("no conflict").value, Some(wanted));
    });
}

#[test]
fn a_table_declared_as_a_type_declares_it_is_opened_as_that_type() {
    each(|setting| {
        let db = setting.open();
        let by_name = db.declare(Twin::definition()).expect("valid");
        let twins = db.table::<Twin>().expect("the same declaration");
        let mut session = db.session();
        let values = vec![1u16.into(), "bolt".into(), money(5), Value::NONE, "Smith".into()];
        let twin =
            Twin { shop: 2, code: text("nut"), price: Decimal::from_units(6), stock: Some(-1), maker: String::new() };
        let read = session.transact(|tx| {
            tx.insert_dyn(&by_name, &values)?;
            tx.insert(&twins, &twin)?;
            let typed = tx.get(&twins, &(1, text("bolt")))?.map(|row| row.to_owned());
            let dynamic = tx.get_dyn(&by_name, &key(2, "nut"))?.map(|row| row.values());
            let by_price = twins.index(Twin::BY_PRICE);
            let order = tx.scan_by(&by_price, Reverse(Decimal::from_units(6))..);
            let order = order.map(|row| Ok(row?.shop())).collect::<Result<Vec<_>, Abort>>()?;
            Ok((typed, dynamic, order))
        });
        let (typed, dynamic, order) = read.expect("no conflict").into_value();
        let bolt =
            Twin { shop: 1, code: text("bolt"), price: Decimal::from_units(5), stock: None, maker: "Smith".to_owned() };
        assert_eq!(typed, Some(bolt));
        let wanted = vec![2u16.into(), "nut".into(), money(6), Some(-1i32).into(), "".into()];
        assert_eq!((dynamic, order), (Some(wanted), vec![2, 1]));
    });
}
