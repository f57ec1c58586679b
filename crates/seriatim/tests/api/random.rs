//! Random programs of one session against a map of the standard library: contents, indexes and results must agree.

use std::collections::BTreeMap;

use seriatim::catalog::Reverse;
use seriatim::rng::seed;
use seriatim::{Abort, Handle, ReadTx, Rng, Savepoint, TransactError, Transaction};

use crate::common::{Person, Setting, each, person, text};

/// Keys and values are few, so that programs repeat them.
const NUMBERS: u64 = 12;
const VALUES: u64 = 20;

type Model = BTreeMap<(u8, u32), Person>;

fn draw(rng: &mut Rng) -> Person {
    let key = (1 + rng.below(2) as u8, rng.below(NUMBERS) as u32);
    let unique = rng.below(VALUES) as u32;
    Person {
        badge: unique,
        email: text(&format!("{}@", rng.below(VALUES))),
        last: text(["", "By", "Byron", "King"][rng.below(4) as usize]),
        city: text(["London", "Paris"][rng.below(2) as usize]),
        age: Some(rng.below(3) as i16).filter(|&age| age > 0),
        note: "n".repeat(rng.below(50) as usize),
        nickname: Some("n".repeat(rng.below(3) as usize)).filter(|name| name.len() != 2),
        ..person(key.0, key.1)
    }
}

/// Whether a row of the model excludes `new`, by a unique index.
fn violates(model: &Model, new: &Person) -> bool {
    let others = model.iter().filter(|(key, _)| **key != (new.region, new.number));
    others.into_iter().any(|(_, row)| row.badge == new.badge || row.email == new.email)
}

/// Checks that the table and each of its indexes hold exactly the model.
fn check(tx: &ReadTx, people: &Handle<Person>, model: &Model) -> Result<(), Abort> {
    let owned =
        |scan: seriatim::Scan<'_, Person>| scan.map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, Abort>>();
    let mut rows: Vec<Person> = model.values().cloned().collect();
    rows.sort_by_key(|row| (row.region, Reverse(row.number)));
    assert_eq!(owned(tx.scan(people, ..))?, rows);
    let by_city = people.index(Person::BY_CITY);
    let mut in_cities = 0;
    for city in ["London", "Paris"] {
        let found = owned(tx.find_by(&by_city, &text(city)))?;
        assert!(found.iter().all(|row| model.get(&(row.region, row.number)) == Some(row) && *row.city == *city));
        in_cities += found.len();
    }
    assert_eq!(in_cities, rows.len());
    for value in 0..VALUES {
        let wanted = rows.iter().find(|row| u64::from(row.badge) == value);
        let found = tx.get_by(&people.index(Person::BY_BADGE), &(value as u32))?.map(|row| row.to_owned());
        assert_eq!(found.as_ref(), wanted);
        let email = text(&format!("{value}@"));
        let wanted = rows.iter().find(|row| row.email == email);
        let found = tx.get_by(&people.index(Person::BY_EMAIL), &email)?.map(|row| row.to_owned());
        assert_eq!(found.as_ref(), wanted);
    }
    rows.sort_by_key(|row| (row.last, row.first, row.region, Reverse(row.number)));
    assert_eq!(owned(tx.find_by(&people.index(Person::BY_NAME), &()))?, rows);
    rows.sort_by_key(|row| (Reverse((row.age.is_none(), row.age)), row.region, Reverse(row.number)));
    assert_eq!(owned(tx.find_by(&people.index(Person::BY_AGE), &()))?, rows);
    Ok(())
}

/// Makes one operation on both. `None` if a unique index refused it and the transaction must end.
fn step(tx: &Transaction<'_>, people: &Handle<Person>, model: &mut Model, rng: &mut Rng) -> Option<()> {
    let row = draw(rng);
    let (plain, key) = ((row.region, row.number), (row.region, Reverse(row.number)));
    let old = model.get(&plain).cloned();
    let refused = |abort: Abort| assert!(matches!(tx.explain(&abort), TransactError::Duplicate { .. }));
    match rng.below(6) {
        0 => assert_eq!(tx.get(people, &key).expect("alone").map(|row| row.to_owned()), old),
        1 => match tx.try_insert(people, &row) {
            Ok(inserted) => {
                assert_eq!(inserted, old.is_none());
                if inserted {
                    assert!(!violates(model, &row));
                    model.insert(plain, row);
                }
            }
            Err(abort) => {
                assert!(old.is_none() && violates(model, &row));
                refused(abort);
                return None;
            }
        },
        2 => match tx.put(people, &row) {
            Ok(()) => {
                assert!(!violates(model, &row));
                model.insert(plain, row);
            }
            Err(abort) => {
                assert!(violates(model, &row));
                refused(abort);
                return None;
            }
        },
        3 | 4 => {
            let only_note = rng.percent(40);
            let updated = tx.update_if(people, &key, |now| {
                now.set_note(&row.note).expect("memory");
                if !only_note {
                    now.set_last(&row.last);
                    now.set_age(row.age);
                    now.set_badge(row.badge);
                    now.set_email(&row.email);
                    now.set_city(&row.city);
                }
            });
            let new = old.map(|old| match only_note {
                true => Person { note: row.note.clone(), ..old },
                false => Person { nickname: old.nickname, origin: old.origin, ..row.clone() },
            });
            match (updated, new) {
                (Ok(updated), None) => assert!(updated.is_err()),
                (Ok(updated), Some(new)) => {
                    assert!(updated.is_ok() && !violates(model, &new));
                    model.insert(plain, new);
                }
                (Err(abort), new) => {
                    assert!(new.is_some_and(|new| violates(model, &new)));
                    refused(abort);
                    return None;
                }
            }
        }
        _ => {
            assert_eq!(tx.delete_if(people, &key).expect("alone").is_ok(), old.is_some());
            model.remove(&plain);
        }
    }
    Some(())
}

fn program(setting: &Setting, seed: u64, transactions: usize) {
    // A background thread that unlinks rows would conflict with a transaction.
    let db = setting.builder().step_helpers(true).open().expect("a valid setting");
    let (people, mut session) = (db.create::<Person>().expect("a valid table"), db.session());
    let mut rng = Rng::from_seed(seed);
    let mut committed = Model::new();
    for _ in 0..transactions {
        let tx = session.begin().expect("a worker");
        let mut model = committed.clone();
        let mut savepoints: Vec<(Savepoint, Model)> = Vec::new();
        for _ in 0..1 + rng.below(12) {
            match rng.below(10) {
                0 => savepoints.push((tx.savepoint().expect("open"), model.clone())),
                1 if !savepoints.is_empty() => {
                    savepoints.truncate(1 + rng.below(savepoints.len() as u64) as usize);
                    let (savepoint, then) = savepoints.last().expect("at least one is left");
                    tx.rollback_to(*savepoint).expect("open");
                    model = then.clone();
                }
                _ => {
                    let guard = tx.savepoint().expect("open");
                    if step(&tx, &people, &mut model, &mut rng).is_none() {
                        tx.rollback_to(guard).expect("open");
                    }
                }
            }
        }
        check(&tx, &people, &model).expect("alone");
        if rng.percent(75) {
            tx.commit().expect("alone");
            committed = model;
        } else {
            tx.rollback();
        }
        if rng.percent(20) {
            db.step();
        }
        if rng.percent(20) {
            session.snapshot(|tx| check(tx, &people, &committed)).expect("alone");
        }
    }
    db.step();
    assert_eq!(db.check_structure(), Ok(()));
}

#[test]
fn random_programs_agree_with_a_map() {
    let seed = seed("random programs");
    each(|setting| program(setting, seed, 150));
}
