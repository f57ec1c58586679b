//! Calls that stand for several operations: rows that exist, come first or last, are many, or may be there already.

use seriatim::catalog::Reverse;
use seriatim::{Abort, Freshness, Handle, MissingRow, ReadTx, Session, Table, TransactError, Tx, Value};

use crate::common::{Person, PersonRow, each, person, text};

/// A row of a hash table that soon grows.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "loose", key(id), hash)]
struct Loose {
    id: u32,
    value: i64,
}

/// A row of a clustered table: a run has room for few.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "close", key(group, id), cluster(group), index(name = "by_value", columns(value)))]
struct Close {
    group: u8,
    id: u16,
    value: i64,
}

type PersonKey = (u8, Reverse<u32>);

fn keys<'t>(rows: impl IntoIterator<Item = PersonRow<'t>>) -> Vec<PersonKey> {
    rows.into_iter().map(|row| (row.region(), Reverse(row.number()))).collect()
}

/// Runs a check in a closure, in an explicit transaction and on a snapshot.
fn in_each_way(session: &mut Session, check: impl Fn(&ReadTx) -> Result<(), Abort>) {
    session.transact(|tx| check(tx)).expect("no conflict");
    let open = session.begin().expect("a worker");
    check(&open).expect("no conflict");
    open.commit().expect("no conflict");
    session.snapshot(&check).expect("no conflict");
}

#[test]
fn ends_and_counts_are_those_of_a_scan() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let by_age = people.index(Person::BY_AGE);
        let check = |tx: &ReadTx, wanted: &[Person]| {
            let mut wanted: Vec<_> = wanted.iter().collect();
            let key = |person: &&Person| (person.region, Reverse(person.number));
            wanted.sort_by_key(key);
            let bounds = [0, 1, 2, 3].map(|region| (region, Reverse(5)));
            for (low, high) in bounds.into_iter().flat_map(|low| bounds.map(|high| (low, high))) {
                let within: Vec<_> = wanted.iter().map(key).filter(|key| (low..high).contains(key)).collect();
                assert_eq!(keys(tx.first(&people, low..high)?), within.first().copied().as_slice());
                assert_eq!(keys(tx.last(&people, low..high)?), within.last().copied().as_slice());
                assert_eq!(tx.count(&people, low..high)?, within.len());
            }
            assert_eq!(keys(tx.first(&people, ..)?), wanted.first().map(key).as_slice());
            assert_eq!(keys(tx.last(&people, ..)?), wanted.last().map(key).as_slice());
            assert_eq!(tx.count_all(&people)?, wanted.len());
            assert_eq!(
                keys(tx.scan_all(&people).collect::<Result<Vec<_>, _>>()?),
                Vec::from_iter(wanted.iter().map(key))
            );
            // Ages are in descending order, behind NULL.
            wanted.sort_by_key(|person| (Reverse((person.age.is_none(), person.age)), key(person)));
            let aged = |with_null: bool| wanted.iter().filter(move |person| with_null || person.age.is_some()).map(key);
            assert_eq!(keys(tx.first_by(&by_age, ..)?), aged(true).next().as_slice());
            assert_eq!(keys(tx.last_by(&by_age, ..)?), aged(true).next_back().as_slice());
            let from = Reverse(Some(i16::MAX));
            assert_eq!(keys(tx.first_by(&by_age, from..)?), aged(false).next().as_slice(), "no NULL with one bound");
            for person in &wanted {
                assert!(tx.exists(&people, &key(person))?);
                assert!(!tx.exists(&people, &(person.region + 9, Reverse(person.number)))?);
                assert!(tx.exists_by(&people.index(Person::BY_EMAIL), &person.email)?);
                assert!(tx.exists_by(&people.index(Person::BY_BADGE), &person.badge)?);
            }
            assert!(!tx.exists_by(&people.index(Person::BY_EMAIL), &text("nobody@"))?);
            assert!(!tx.exists_by(&people.index(Person::BY_BADGE), &77)?);
            Ok(())
        };
        in_each_way(&mut session, |tx| check(tx, &[]));
        let person = |region, number, age| Person { age, ..person(region, number) };
        let rows = [person(1, 4, Some(30)), person(1, 7, None), person(2, 5, Some(-3)), person(2, 1, Some(30))];
        session.transact(|tx| rows.iter().try_for_each(|row| tx.insert(&people, row))).expect("new keys");
        in_each_way(&mut session, |tx| check(tx, &rows));
        // Own writes are seen, and are gone after a rollback.
        let own = |tx: &Tx| {
            tx.delete(&people, &(2, Reverse(1)))?;
            tx.delete(&people, &(1, Reverse(7)))?;
            tx.insert(&people, &person(0, 9, None))?;
            tx.insert(&people, &person(3, 9, Some(99)))?;
            tx.insert(&people, &person(3, 10, None))?;
            tx.delete(&people, &(3, Reverse(10)))?;
            check(tx, &[rows[0].clone(), rows[2].clone(), person(0, 9, None), person(3, 9, Some(99))])
        };
        let open = session.begin().expect("a worker");
        own(&open).expect("no conflict");
        open.rollback();
        in_each_way(&mut session, |tx| check(tx, &rows));
        session.transact(own).expect("no conflict");
    });
}

/// Reads of the values and of absent rows of keys, more than are fetched at a time.
fn get_many_of<T: Table>(
    tx: &ReadTx,
    table: &Handle<T>,
    key: impl Fn(u16) -> T::Key,
    value: impl for<'t> Fn(&T::Row<'t>) -> i64,
) -> Result<(), Abort> {
    let wanted = [0, 199, 7, 7, 250, 3, 1000, 64].into_iter().chain(0..230).chain([5]);
    let wanted: Vec<u16> = wanted.collect();
    let rows = tx.get_many(table, wanted.iter().map(|&id| key(id)))?;
    let found: Vec<Option<i64>> = rows.iter().map(|row| row.as_ref().map(&value)).collect();
    let model = |&id: &u16| match id {
        3 => None,
        7 => Some(77),
        250 => Some(1),
        id => (id < 200).then_some(10 * i64::from(id)),
    };
    assert_eq!(found, wanted.iter().map(model).collect::<Vec<_>>());
    assert_eq!(tx.get_many(table, [])?.len(), 0);
    Ok(())
}

#[test]
fn many_rows_are_read_in_the_order_of_their_keys() {
    each(|setting| {
        let db = setting.open();
        let (loose, close) = (db.create::<Loose>().expect("valid"), db.create::<Close>().expect("valid"));
        let mut session = db.session();
        let close_key = |id: u16| ((id % 3) as u8, id);
        let insert = |tx: &Tx, id: u16, value| {
            tx.insert(&loose, &Loose { id: id.into(), value })?;
            tx.insert(&close, &Close { group: close_key(id).0, id, value })
        };
        session.transact(|tx| (0..200).try_for_each(|id| insert(tx, id, 10 * i64::from(id)))).expect("new keys");
        let change = |tx: &Tx| {
            tx.delete(&loose, &3)?;
            tx.delete(&close, &close_key(3))?;
            tx.update(&loose, &7, |row| row.set_value(77))?;
            tx.update(&close, &close_key(7), |row| row.set_value(77))?;
            insert(tx, 250, 1)
        };
        let check = |tx: &ReadTx| {
            get_many_of(tx, &loose, u32::from, |row| row.value())?;
            get_many_of(tx, &close, close_key, |row| row.value())
        };
        let open = session.begin().expect("a worker");
        change(&open).and_then(|()| check(&open)).expect("no conflict");
        open.rollback();
        session.transact(|tx| change(tx).and_then(|()| check(tx))).expect("no conflict");
        in_each_way(&mut session, check);
        let foreign = setting.open().create::<Loose>().expect("valid");
        let refused = session.transact(|tx| Ok(tx.get_many(&foreign, [1, 2])?.len()));
        assert!(matches!(refused, Err(TransactError::ForeignHandle)), "{refused:?}");
        let refused = session.transact(|tx| tx.exists(&foreign, &1));
        assert!(matches!(refused, Err(TransactError::ForeignHandle)), "{refused:?}");
        let refused = session.transact(|tx| tx.count_all(&foreign));
        assert!(matches!(refused, Err(TransactError::ForeignHandle)), "{refused:?}");
    });
}

#[test]
fn an_upsert_inserts_or_changes() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let add = |row: Person| {
            let people = &people;
            move |tx: &Tx| {
                tx.upsert(people, &row, |found| {
                    found.set_age(found.age().map(|age| age + 1));
                    found.number()
                })
            }
        };
        assert_eq!(*session.transact(add(person(1, 4))).expect("a new key"), None);
        assert_eq!(*session.transact(add(person(1, 4))).expect("it is there"), Some(4));
        // Twice in a transaction, and after a deletion.
        let seen = session.transact(|tx| {
            let first = add(person(1, 5))(tx)?;
            let second = add(person(1, 5))(tx)?;
            tx.delete(&people, &(1, Reverse(4)))?;
            Ok((first, second, add(person(1, 4))(tx)?))
        });
        assert_eq!(*seen.expect("no conflict"), (None, Some(5), None));
        let ages = session.transact(|tx| tx.scan(&people, ..).map(|row| Ok(row?.age())).collect::<Result<Vec<_>, _>>());
        assert_eq!(*ages.expect("no conflict"), [Some(37), Some(36)]);
        // A unique index refuses the new row, or the change.
        let twin = Person { badge: person(1, 5).badge, ..person(3, 1) };
        let refused = session.transact(add(twin.clone()));
        assert!(
            matches!(&refused, Err(TransactError::Duplicate { constraint, .. }) if **constraint == *"by_badge"),
            "{refused:?}"
        );
        let refused = session.transact(|tx| tx.upsert(&people, &person(1, 4), |row| row.set_badge(twin.badge)));
        assert!(matches!(refused, Err(TransactError::Duplicate { .. })), "{refused:?}");
        // The change's own error is passed on by a second `?`.
        let failed = session
            .transact(|tx| tx.upsert(&people, &person(1, 4), |_| Err::<(), Abort>(tx.abort("no more")))?.transpose());
        assert!(matches!(&failed, Err(TransactError::User(error)) if error.to_string() == "no more"), "{failed:?}");
        assert_eq!(db.check_structure(), Ok(()));
    });
}

#[test]
fn an_addition_may_answer_the_sum() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let (a, b) = ((1, Reverse(4)), (1, Reverse(5)));
        session
            .transact(|tx| [4, 5].into_iter().try_for_each(|number| tx.insert(&people, &person(1, number))))
            .expect("new keys");
        let sums = session.transact(|tx| {
            let first = tx.add_and_get(&people, &a, PersonRow::BADGE, 5)?;
            // After an addition that reads nothing.
            tx.add(&people, &a, PersonRow::BADGE, 10)?;
            let second = tx.add_and_get(&people, &a, PersonRow::BADGE, 1)?;
            let third = tx.add_and_get(&people, &a, PersonRow::BALANCE, "0.04".parse().expect("a decimal"))?;
            Ok((first, second, third.to_string()))
        });
        assert_eq!(*sums.expect("no conflict"), (1009, 1020, "-12.30".to_owned()));
        let found =
            session.transact(|tx| Ok(tx.get_by(&people.index(Person::BY_BADGE), &1020)?.map(|row| row.number())));
        assert_eq!(*found.expect("no conflict"), Some(4), "the index has followed");
        let line = line!() + 1;
        let overflow = session.transact(|tx| tx.add_and_get(&people, &a, PersonRow::BADGE, u32::MAX));
        match overflow {
            Err(TransactError::Overflow { place, .. }) => {
                assert!(place.contains(&format!("calls.rs:{line}:")), "{place}")
            }
            other => panic!("{other:?}"),
        }
        let missing = session.transact(|tx| tx.add_and_get(&people, &(9, Reverse(9)), PersonRow::BADGE, 1));
        assert!(matches!(missing, Err(TransactError::MissingRow { .. })), "{missing:?}");
        let missing = session.transact(|tx| tx.add_and_get_if(&people, &(9, Reverse(9)), PersonRow::BADGE, 1));
        assert_eq!(*missing.expect("it may be missing"), Err(MissingRow));
        let twin = session.transact(|tx| tx.add_and_get(&people, &b, PersonRow::BADGE, 15));
        assert!(matches!(twin, Err(TransactError::Duplicate { .. })), "{twin:?}");
        let close = db.create::<Close>().expect("valid");
        let sum = session.transact(|tx| {
            tx.insert(&close, &Close { group: 1, id: 2, value: 3 })?;
            tx.add_and_get(&close, &(1, 2), CloseRow::VALUE, -5)
        });
        assert_eq!(*sum.expect("no conflict"), -2);
        assert_eq!(db.check_structure(), Ok(()));
    });
}

#[test]
fn a_range_is_deleted_with_its_index_entries() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let close = db.create::<Close>().expect("valid");
        let by_value = close.index(Close::BY_VALUE);
        session
            .transact(|tx| {
                (0..40).try_for_each(|number| tx.insert(&people, &person(1 + (number % 2) as u8, number)))?;
                let close_rows = (0..4).flat_map(|group| (0..30).map(move |id| Close { group, id, value: 5 }));
                close_rows.into_iter().try_for_each(|row| tx.insert(&close, &row))
            })
            .expect("new keys");
        let delete = |tx: &Tx| {
            tx.insert(&people, &person(1, 90))?;
            tx.insert(&close, &Close { group: 2, id: 90, value: 5 })?;
            let savepoint = tx.savepoint()?;
            assert_eq!(tx.delete_range(&people, ..)?, 41);
            assert_eq!(tx.delete_range(&close, ..)?, 121);
            assert_eq!((tx.count_all(&people)?, tx.count_all(&close)?), (0, 0));
            tx.rollback_to(savepoint)?;
            assert_eq!((tx.count_all(&people)?, tx.count_all(&close)?), (41, 121));
            assert_eq!(tx.delete_range(&people, (1, Reverse(90))..(1, Reverse(20)))?, 9 + 1);
            assert_eq!(tx.delete_range(&people, (1, Reverse(90))..(1, Reverse(20)))?, 0, "they are gone");
            assert_eq!(tx.delete_range(&people, (5, Reverse(0))..(4, Reverse(0)))?, 0, "an empty range");
            assert_eq!(tx.delete_range(&close, (1, 25)..=(3, 3))?, 5 + 31 + 4);
            let by_city = people.index(Person::BY_CITY);
            Ok((tx.find_by(&by_city, &text("London")).try_count()?, tx.count_by(&by_value, ..)?))
        };
        let open = session.begin().expect("a worker");
        assert_eq!(delete(&open).expect("no conflict"), (31, 81));
        open.rollback();
        assert_eq!(*session.transact(delete).expect("no conflict"), (31, 81));
        in_each_way(&mut session, |tx| {
            assert_eq!((tx.count(&people, ..)?, tx.count_all(&people)?), (31, 31));
            assert_eq!((tx.count(&close, ..)?, tx.count_all(&close)?), (81, 81));
            Ok(())
        });
        assert_eq!(db.check_structure(), Ok(()));
    });
}

fn all_ids(tx: &ReadTx, loose: &Handle<Loose>) -> Result<Vec<u32>, Abort> {
    let mut ids = tx.scan_all(loose).map(|row| Ok(row?.id())).collect::<Result<Vec<_>, Abort>>()?;
    ids.sort_unstable();
    Ok(ids)
}

#[test]
fn a_hash_table_is_read_whole_while_it_grows() {
    each(|setting| {
        let db = setting.open();
        let loose = db.create::<Loose>().expect("valid");
        let mut session = db.session();
        in_each_way(&mut session, |tx| {
            assert_eq!((all_ids(tx, &loose)?, tx.count_all(&loose)?), (vec![], 0));
            Ok(())
        });
        let insert = |tx: &Tx, ids: std::ops::Range<u32>| {
            ids.into_iter().try_for_each(|id| tx.insert(&loose, &Loose { id, value: 1 }))
        };
        session.transact(|tx| insert(tx, 0..300)).expect("new keys");
        // Rows that the transaction inserts, and the growth that they cause, do not make it see a row twice.
        let met = session.transact(|tx| {
            let (mut met, mut next) = (Vec::new(), 1000);
            for row in tx.scan_all(&loose) {
                let id = row?.id();
                if id < 1000 {
                    met.push(id);
                    insert(tx, next..next + 5)?;
                    next += 5;
                    tx.update(&loose, &id, |row| row.set_value(row.value() + 1))?;
                }
                if id % 7 == 0 {
                    tx.delete(&loose, &id)?;
                }
            }
            met.sort_unstable();
            assert_eq!(met, (0..300).collect::<Vec<_>>());
            all_ids(tx, &loose)
        });
        let left = (0..300).filter(|id| id % 7 != 0).chain(1000..2500);
        let (met, left) = (met.expect("no conflict").into_value(), left.collect::<Vec<u32>>());
        let certain = |ids: &[u32]| ids.iter().copied().filter(|id| id % 7 != 0).collect::<Vec<_>>();
        assert_eq!(certain(&met), certain(&left));
        in_each_way(&mut session, |tx| {
            assert_eq!((all_ids(tx, &loose)?, tx.count_all(&loose)?), (met.clone(), met.len()));
            let mut few = Vec::new();
            for row in tx.scan_all(&loose).take(9) {
                few.push(row?.value());
            }
            assert_eq!(few.len(), 9, "it can stop early");
            Ok(())
        });
        db.step();
        assert_eq!(db.check_structure(), Ok(()));
    });
}

#[test]
fn a_snapshot_of_a_hash_table_is_of_one_moment_whatever_others_do() {
    each(|setting| {
        if setting.protocol.capabilities.snapshots == Freshness::None {
            return;
        }
        // Helpers would not end epochs while the snapshot is open on this thread.
        let db = setting.builder().step_helpers(true).open().expect("a valid setting");
        let loose = db.create::<Loose>().expect("valid");
        let (mut session, mut other) = (db.session(), db.session());
        let insert =
            |tx: &Tx, mut ids: std::ops::Range<u32>| ids.try_for_each(|id| tx.insert(&loose, &Loose { id, value: 1 }));
        other.transact(|tx| insert(tx, 0..400)).expect("new keys");
        (0..3).for_each(|_| db.step());
        // A session's first snapshot is to show the present: where snapshots are of the past, it validates.
        session.snapshot(|tx| tx.count_all(&loose)).expect("no conflict");
        db.step();
        let snapshot = session.begin_snapshot().expect("a worker");
        assert_eq!(snapshot.count_all(&loose).expect("no conflict"), 400);
        let mut rows = snapshot.scan_all(&loose);
        let mut met: Vec<u32> = Vec::new();
        for step in 0..20 {
            for row in rows.by_ref().take(15) {
                met.push(row.expect("no conflict").id());
            }
            other
                .transact(|tx| {
                    insert(tx, 1000 + 200 * step..1200 + 200 * step)?;
                    (10 * step..10 * step + 10).try_for_each(|id| tx.delete(&loose, &id))
                })
                .expect("no conflict");
            db.step();
        }
        met.extend(rows.map(|row| row.expect("no conflict").id()));
        met.sort_unstable();
        assert_eq!(met, (0..400).collect::<Vec<_>>());
        assert_eq!(snapshot.count_all(&loose).expect("no conflict"), 400);
        snapshot.finish().expect("no conflict");
        let now = other.transact(|tx| Ok((all_ids(tx, &loose)?.len(), tx.count_all(&loose)?)));
        assert_eq!(*now.expect("no conflict"), (4200, 4200));
    });
}

/// Scans collect with `?`, and end after an error.
#[test]
fn scans_are_iterators_of_results() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session.transact(|tx| (0..9).try_for_each(|number| tx.insert(&people, &person(1, number)))).expect("new keys");
        let collected = session.transact(|tx| {
            let rows = tx.scan(&people, ..).collect::<Result<Vec<_>, _>>()?;
            let by_city = people.index(Person::BY_CITY);
            let found = tx
                .find_by(&by_city, &text("London"))
                .map(|row| Ok(row?.number()))
                .collect::<Result<Vec<_>, Abort>>()?;
            let owned: Vec<Person> =
                tx.scan_all(&people).map(|row| row.map(|row| row.to_owned())).collect::<Result<_, _>>()?;
            let sum = tx.prefix(&people, &(1,)).map(|row| row.map(|row| row.number())).sum::<Result<u32, _>>()?;
            // Rows can be kept, and sorted, while the transaction goes on.
            tx.delete(&people, &(1, Reverse(3)))?;
            let mut numbers: Vec<u32> = rows.iter().map(|row| row.number()).collect();
            numbers.sort_unstable();
            Ok((numbers, found.len(), owned.len(), sum))
        });
        assert_eq!(*collected.expect("no conflict"), ((0..9).collect(), 9, 9, 36));
        let foreign = setting.open().create::<Loose>().expect("valid");
        let refused = session.transact(|tx| ids_of(tx, &foreign));
        assert!(matches!(refused, Err(TransactError::ForeignHandle)), "{refused:?}");
    });
}

fn ids_of(tx: &ReadTx, loose: &Handle<Loose>) -> Result<Vec<u32>, Abort> {
    let mut rows = tx.scan_all(loose);
    let first = rows.next().transpose();
    assert!(first.is_err() && rows.next().is_none(), "an error is the last item");
    first?;
    Ok(Vec::new())
}

#[test]
fn the_same_calls_of_tables_declared_at_run_time() {
    each(|setting| {
        let db = setting.open();
        let (_, _) = (db.create::<Loose>().expect("valid"), db.create::<Close>().expect("valid"));
        let loose = db.open_dyn(Loose::NAME).expect("it was created");
        let close = db.open_dyn(Close::NAME).expect("it was created");
        let mut session = db.session();
        let loose_row = |id: u32, value: i64| [Value::from(id), Value::from(value)];
        let close_row = |group: u8, id: u16| [Value::from(group), Value::from(id), Value::from(i64::from(id))];
        session
            .transact(|tx| {
                (0..100).try_for_each(|id| tx.insert_dyn(&loose, &loose_row(id, 1)))?;
                (0..3).try_for_each(|group| (0..20).try_for_each(|id| tx.insert_dyn(&close, &close_row(group, id))))
            })
            .expect("new keys");
        in_each_way(&mut session, |tx| {
            assert!(tx.exists_dyn(&loose, &[Value::from(7u32)])? && !tx.exists_dyn(&loose, &[Value::from(700u32)])?);
            let many = tx.get_many_dyn(&loose, [[Value::from(7u32)], [Value::from(700u32)], [Value::from(8u32)]])?;
            let many: Vec<_> = many.iter().map(|row| row.as_ref().map(|row| row.value(0))).collect();
            assert_eq!(many, [Some(Value::from(7u32)), None, Some(Value::from(8u32))]);
            let id = |row: Option<seriatim::DynRow<'_>>| row.map(|row| (row.value(0), row.value(1)));
            assert_eq!(id(tx.first_dyn(&close, &[])?), Some((Value::from(0u8), Value::from(0u16))));
            assert_eq!(id(tx.last_dyn(&close, &[Value::from(1u8)])?), Some((Value::from(1u8), Value::from(19u16))));
            assert_eq!(id(tx.last_dyn(&close, &[Value::from(9u8)])?), None);
            assert_eq!((tx.count_all_dyn(&loose)?, tx.count_all_dyn(&close)?), (100, 60));
            let mut all = tx.scan_all_dyn(&loose)?.map(|row| Ok(row?.values())).collect::<Result<Vec<_>, Abort>>()?;
            all.sort_by_key(|row| format!("{:?}", row[0]).len());
            assert_eq!(all.len(), 100);
            Ok(())
        });
        let upserted = session.transact(|tx| {
            let add = |id| {
                tx.upsert_dyn(&loose, &loose_row(id, 5), |row| match row.value(1) {
                    Value::Integer(value, _) => Ok(vec![("value", Value::from(value as i64 + 5))]),
                    other => Err(tx.abort(format!("{other:?}"))),
                })
            };
            let inserted = (add(7)?, add(500)?, add(500)?);
            let values = [7u32, 500].map(|id| [Value::from(id)]);
            let values = tx.get_many_dyn(&loose, values)?.into_iter().flatten().map(|row| row.value(1));
            let deleted = (tx.delete_range_dyn(&close, &[Value::from(1u8)])?, tx.delete_range_dyn(&close, &[])?);
            Ok((inserted, values.collect::<Vec<_>>(), deleted))
        });
        let values = vec![Value::from(6i64), Value::from(10i64)];
        assert_eq!(*upserted.expect("no conflict"), ((false, true, false), values, (20, 40)));
        // Bad input is refused with what was wrong.
        let mut refused = |body: &dyn Fn(&Tx) -> Result<(), Abort>, wanted: &str| {
            let error = session.transact(|tx| body(tx)).expect_err("bad input").to_string();
            assert!(error.contains(wanted), "{error}");
        };
        refused(&|tx| tx.exists_dyn(&loose, &[Value::Bool(true)]).map(drop), "of type u32");
        refused(&|tx| tx.get_many_dyn(&loose, [[Value::from(1u32), Value::from(2u32)]]).map(drop), "2");
        refused(&|tx| tx.first_dyn(&loose, &[]).map(drop), "not ordered");
        refused(&|tx| tx.delete_range_dyn(&loose, &[]).map(drop), "not ordered");
        refused(&|tx| tx.upsert_dyn(&loose, &[Value::from(1u32)], |_| Ok(vec![])).map(drop), "1");
        refused(&|tx| tx.upsert_dyn(&loose, &loose_row(8, 1), |_| Ok(vec![("id", Value::from(1u32))])).map(drop), "id");
        assert_eq!(db.check_structure(), Ok(()));
    });
}
