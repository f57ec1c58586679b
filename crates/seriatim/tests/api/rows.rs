//! Rows are written and read: every column type, every way to write, and rows that stay as they were read.

use seriatim::catalog::Reverse;
use seriatim::{Abort, Decimal, Handle, MissingRow, Table, Text, Timestamp, TransactError, Tx};

use crate::common::{Person, each, person, text};

/// One column of every type, found by hash of a byte key.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "wide", key(name, at), hash)]
struct Wide {
    name: Text<20>,
    at: i64,
    b: bool,
    i8: i8,
    i16: i16,
    i32: i32,
    u8: u8,
    u16: u16,
    u64: u64,
    f64: f64,
    money: Decimal<4>,
    when: Timestamp,
    short: Text<3>,
    wide: Text<300>,
    long: String,
    no_bool: Option<bool>,
    no_number: Option<u32>,
    no_money: Option<Decimal<2>>,
    no_text: Option<Text<5>>,
    no_long: Option<String>,
}

fn wide(name: &str, at: i64) -> Wide {
    Wide {
        name: text(name),
        at,
        b: true,
        i8: i8::MIN,
        i16: i16::MIN,
        i32: i32::MAX,
        u8: u8::MAX,
        u16: 7,
        u64: u64::MAX,
        f64: -0.0,
        money: Decimal::from_units(i64::MIN),
        when: Timestamp::from_microseconds(1),
        short: text("äb"),
        wide: text(&"w".repeat(300)),
        long: "l".repeat(70_000),
        no_bool: None,
        no_number: Some(0),
        no_money: None,
        no_text: Some(text("")),
        no_long: Some(String::new()),
    }
}

#[test]
fn every_column_type_comes_back_as_it_went_in() {
    each(|setting| {
        let db = setting.open();
        let table = db.create::<Wide>().expect("valid");
        let mut session = db.session();
        let rows = [wide("a", 1), wide("a", -1), wide("", i64::MIN), wide("twenty bytes of text", i64::MAX)];
        session.transact(|tx| rows.iter().try_for_each(|row| tx.insert(&table, row))).expect("no conflict");
        let found = session.transact(|tx| {
            let found = rows.iter().map(|row| Ok(tx.get(&table, &row.key())?.map(|row| row.to_owned())));
            found.collect::<Result<Vec<_>, Abort>>()
        });
        assert_eq!(found.expect("no conflict").into_value(), rows.clone().map(Some));
        let missing = session.transact(|tx| Ok(tx.get(&table, &(text("a"), 0))?.is_some()));
        assert!(!*missing.expect("no conflict"));

        let updated = session.transact(|tx| {
            tx.update(&table, &rows[0].key(), |row| {
                row.set_no_bool(Some(false));
                row.set_no_number(None);
                row.set_no_money(Some(Decimal::from_units(1)));
                row.set_no_text(None);
                row.set_f64(f64::INFINITY);
                row.set_wide(&text("narrow"));
                (row.set_long("short now"), row.set_no_long(None), row.long().len(), row.i8())
            })
        });
        assert_eq!(*updated.expect("no conflict"), (Ok(()), Ok(()), 9, i8::MIN));
        let wanted = Wide {
            no_bool: Some(false),
            no_number: None,
            no_money: Some(Decimal::from_units(1)),
            no_text: None,
            f64: f64::INFINITY,
            wide: text("narrow"),
            long: "short now".to_owned(),
            no_long: None,
            ..rows[0].clone()
        };
        let row = session.snapshot(|tx| Ok(tx.get(&table, &rows[0].key())?.map(|row| row.to_owned())));
        assert_eq!(row.expect("no conflict").into_value(), Some(wanted));
        assert_eq!(db.check_structure(), Ok(()));
    });
}

fn read(tx: &Tx, people: &Handle<Person>, region: u8, number: u32) -> Result<Option<Person>, Abort> {
    Ok(tx.get(people, &(region, Reverse(number)))?.map(|row| row.to_owned()))
}

#[test]
fn each_way_to_write_does_what_it_says() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let key = |number| (1, Reverse(number));
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let other = Person { note: "another".to_owned(), origin: "elsewhere".to_owned(), ..person(1, 1) };
        let tried =
            session.transact(|tx| Ok((tx.try_insert(&people, &other)?, tx.try_insert(&people, &person(1, 2))?)));
        assert_eq!(*tried.expect("no conflict"), (false, true));
        assert_eq!(session.transact(|tx| read(tx, &people, 1, 1)).expect("no conflict").value, Some(person(1, 1)));

        session
            .transact(|tx| tx.put(&people, &other).and_then(|()| tx.put(&people, &person(1, 3))))
            .expect("no conflict");
        let both = session.transact(|tx| Ok((read(tx, &people, 1, 1)?, read(tx, &people, 1, 3)?)));
        assert_eq!(
            both.expect("no conflict").value,
            (Some(other), Some(person(1, 3))),
            "put replaces immutable columns too"
        );

        let seen = session.transact(|tx| {
            tx.update(&people, &key(2), |row| -> Result<_, Abort> {
                row.set_balance((row.balance() + Decimal::whole(20)?)?);
                row.set_nickname(Some("Countess"))?;
                Ok((row.number(), row.born(), row.origin().to_owned(), row.balance()))
            })?
        });
        let (number, born, origin, balance) = seen.expect("no conflict").value;
        assert_eq!((number, born), (2, Timestamp::from_microseconds(-5)));
        assert_eq!((origin.as_str(), balance.to_string().as_str()), ("born in region 1", "7.66"));
        let missing = session.transact(|tx| tx.update_if(&people, &key(9), |_| ()));
        assert_eq!(*missing.expect("no conflict"), Err(MissingRow));

        let deleted = session.transact(|tx| Ok([tx.delete_if(&people, &key(2))?, tx.delete_if(&people, &key(2))?]));
        assert_eq!(*deleted.expect("no conflict"), [Ok(()), Err(MissingRow)]);
        assert_eq!(session.transact(|tx| read(tx, &people, 1, 2)).expect("no conflict").value, None);
        session.transact(|tx| tx.insert(&people, &person(1, 2))).expect("a key that is free again");
        assert_eq!(session.transact(|tx| read(tx, &people, 1, 2)).expect("no conflict").value, Some(person(1, 2)));
    });
}

#[test]
fn a_transaction_sees_its_own_writes() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let done = session.transact(|tx| {
            let key = (1, Reverse(1));
            tx.update(&people, &key, |row| row.set_badge(7))?;
            assert_eq!(tx.get(&people, &key)?.map(|row| row.badge()), Some(7));
            tx.update(&people, &key, |row| row.set_badge(row.badge() + 1))?;
            assert_eq!(tx.get(&people, &key)?.map(|row| row.badge()), Some(8));
            tx.delete(&people, &key)?;
            assert!(tx.get(&people, &key)?.is_none());
            assert_eq!(tx.delete_if(&people, &key)?, Err(MissingRow));
            assert_eq!(tx.update_if(&people, &key, |_| ())?, Err(MissingRow));
            tx.insert(&people, &Person { badge: 9, ..person(1, 1) })?;
            assert_eq!(tx.get(&people, &key)?.map(|row| row.badge()), Some(9));
            tx.insert(&people, &person(1, 2))?;
            tx.delete(&people, &(1, Reverse(2)))?;
            tx.put(&people, &person(1, 2))?;
            tx.delete(&people, &(1, Reverse(2)))
        });
        done.expect("no conflict");
        let after = session.transact(|tx| Ok((read(tx, &people, 1, 1)?, read(tx, &people, 1, 2)?)));
        assert_eq!(after.expect("no conflict").value, (Some(Person { badge: 9, ..person(1, 1) }), None));
    });
}

#[test]
fn a_duplicate_key_names_table_and_key() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(3, 14))).expect("a new key");
        let error = session.transact(|tx| tx.insert(&people, &person(3, 14))).expect_err("the key exists");
        assert_eq!(error.to_string(), "duplicate key region 3, number 14 in person");
        assert!(!error.is_retryable() && !error.is_maybe_committed());
        // A duplicate of the transaction's own row, with other writes that must be undone.
        let error = session.transact(|tx| {
            tx.insert(&people, &person(4, 1))?;
            tx.insert(&people, &person(4, 1))
        });
        let TransactError::Duplicate { table, constraint, key } = error.expect_err("the key exists") else {
            panic!("a duplicate")
        };
        assert_eq!((&*table, &*constraint, &*key), ("person", "person_pkey", "region 4, number 1"));
        assert_eq!(session.transact(|tx| read(tx, &people, 4, 1)).expect("no conflict").value, None);

        let wide_table = db.create::<Wide>().expect("valid");
        session.transact(|tx| tx.insert(&wide_table, &wide("a b", -7))).expect("a new key");
        let error = session.transact(|tx| tx.insert(&wide_table, &wide("a b", -7))).expect_err("the key exists");
        assert_eq!(error.to_string(), "duplicate key name \"a b\", at -7 in wide");
    });
}

#[test]
fn a_duplicate_that_was_shrugged_off_changes_nothing() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(3, 14))).expect("a new key");
        let other = Person { note: "another".to_owned(), ..person(3, 14) };
        let done = session.transact(|tx| {
            assert!(tx.insert(&people, &other).is_err());
            tx.insert(&people, &person(3, 15))
        });
        done.expect("the body went on");
        let rows = session.transact(|tx| Ok((read(tx, &people, 3, 14)?, read(tx, &people, 3, 15)?)));
        assert_eq!(rows.expect("no conflict").value, (Some(person(3, 14)), Some(person(3, 15))));
    });
}

#[test]
fn rows_stay_as_they_were_read() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session
            .transact(|tx| (1..=40).try_for_each(|number| tx.insert(&people, &person(1, number))))
            .expect("new keys");
        let checked = session.transact(|tx| {
            let key = (1, Reverse(5));
            let first = tx.get(&people, &key)?.expect("there");
            let scanned = tx.scan(&people, ..).collect::<Result<Vec<_>, _>>()?;
            let texts = (first.note(), first.origin());
            tx.update(&people, &key, |row| row.set_note("changed"))?.expect("memory");
            let second = tx.get(&people, &key)?.expect("there");
            tx.update(&people, &key, |row| row.set_note("changed again, to something longer"))?.expect("memory");
            let third = tx.get(&people, &key)?.expect("there");
            tx.put(&people, &Person { note: "put".to_owned(), origin: "put".to_owned(), ..person(1, 5) })?;
            let fourth = tx.get(&people, &key)?.expect("there");
            for number in 1..=40 {
                tx.delete(&people, &(1, Reverse(number)))?;
            }
            tx.insert(&people, &Person { note: "reborn".to_owned(), ..person(1, 5) })?;
            let fifth = tx.get(&people, &key)?.expect("there");
            assert_eq!(first.to_owned(), person(1, 5));
            assert_eq!(texts, (&*person(1, 5).note, &*person(1, 5).origin));
            assert_eq!(second.note(), "changed");
            assert_eq!(third.note(), "changed again, to something longer");
            assert_eq!((fourth.note(), fourth.origin()), ("put", "put"));
            assert_eq!(fifth.note(), "reborn");
            for (row, number) in scanned.iter().zip((1..=40).rev()) {
                assert_eq!(row.to_owned(), person(1, number));
            }
            Ok(scanned.len())
        });
        assert_eq!(*checked.expect("no conflict"), 40);
    });
}

#[test]
fn an_open_transaction_keeps_its_rows_while_others_replace_them() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let key = (1, Reverse(1));
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let mut reader = db.session();
        let open = reader.begin_snapshot().expect("a worker");
        let row = open.get(&people, &key).expect("no conflict").expect("there");
        for round in 0..300 {
            // A lock of the reader may refuse the write; the row then stays anyway.
            let mut writing = session.begin().expect("a worker");
            let _ = writing.update(&people, &key, |row| row.set_note(&format!("round {round}")));
            let _ = writing.commit();
            writing = session.begin().expect("a worker");
            let _ = writing.delete(&people, &key);
            let _ = writing.insert(&people, &Person { note: "reborn".to_owned(), ..person(1, 1) });
            let _ = writing.commit();
            db.step();
        }
        assert_eq!(row.to_owned(), person(1, 1));
    });
}
