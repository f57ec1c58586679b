//! Secondary indexes follow every write and every way to take it back.

use seriatim::catalog::Reverse;
use seriatim::{Abort, Handle, IndexHandle, ReadTx, Text, TransactError};

use crate::common::{Person, each, person, text};

/// Handles of all indexes.
struct Indexes {
    by_name: IndexHandle<Person, (Text<16>, Text<16>)>,
    by_age: IndexHandle<Person, Reverse<Option<i16>>>,
    by_badge: IndexHandle<Person, u32>,
    by_email: IndexHandle<Person, Text<40>>,
    by_city: IndexHandle<Person, Text<12>>,
}

impl Indexes {
    fn of(people: &Handle<Person>) -> Indexes {
        Indexes {
            by_name: people.index(Person::BY_NAME),
            by_age: people.index(Person::BY_AGE),
            by_badge: people.index(Person::BY_BADGE),
            by_email: people.index(Person::BY_EMAIL),
            by_city: people.index(Person::BY_CITY),
        }
    }

    /// That every index finds exactly these rows.
    fn check(&self, tx: &ReadTx, people: &Handle<Person>, rows: &[Person]) -> Result<(), Abort> {
        let owned = |scan: seriatim::Scan<'_, Person>| -> Result<Vec<Person>, Abort> {
            scan.map(|row| row.map(|row| row.to_owned())).collect()
        };
        let mut wanted = rows.to_vec();
        wanted.sort_by_key(|row| (row.region, Reverse(row.number)));
        assert_eq!(owned(tx.scan(people, ..))?, wanted);
        wanted.sort_by_key(|row| (row.last, row.first, row.region, Reverse(row.number)));
        assert_eq!(owned(tx.scan_by(&self.by_name, ..))?, wanted);
        wanted.reverse();
        assert_eq!(owned(tx.find_by_rev(&self.by_name, &()))?, wanted);
        // NULL is the last value, so the first in descending order.
        wanted.sort_by_key(|row| (Reverse((row.age.is_none(), row.age)), row.region, Reverse(row.number)));
        assert_eq!(owned(tx.find_by(&self.by_age, &()))?, wanted);
        wanted.sort_by_key(|row| row.badge);
        assert_eq!(owned(tx.find_by(&self.by_badge, &()))?, wanted);
        for row in rows {
            let found = tx.get_by(&self.by_badge, &row.badge)?.map(|row| row.to_owned());
            assert_eq!(found.as_ref(), Some(row));
            let found = tx.get_by(&self.by_email, &row.email)?.map(|row| row.to_owned());
            assert_eq!(found.as_ref(), Some(row));
            let mut found = owned(tx.find_by(&self.by_city, &row.city))?;
            found.sort_by_key(|row| row.badge);
            let same: Vec<Person> = wanted.iter().filter(|other| other.city == row.city).cloned().collect();
            assert_eq!(found, same);
        }
        Ok(())
    }
}

#[test]
fn indexes_follow_every_kind_of_write() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let indexes = Indexes::of(&people);
        let key = |number| (1, Reverse(number));
        let mut rows: Vec<Person> = (1..=30).map(|number| person(1, number)).collect();
        session.transact(|tx| rows.iter().try_for_each(|row| tx.insert(&people, row))).expect("new keys");
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");

        // Updates of indexed columns, of others, and of nothing.
        session
            .transact(|tx| {
                tx.update(&people, &key(3), |row| {
                    row.set_last(&text("Byron"));
                    row.set_age(None);
                    row.set_city(&text("Ockham"));
                })?;
                tx.update(&people, &key(4), |row| {
                    row.set_badge(90_000);
                    row.set_email(&text("ada@example.org"));
                })?;
                tx.update(&people, &key(5), |row| row.set_note("no index knows"))?;
                tx.update(&people, &key(6), |row| row.set_badge(row.badge()))
            })
            .expect("no conflict");
        rows[2] = Person { last: text("Byron"), age: None, city: text("Ockham"), ..rows[2].clone() };
        rows[3] = Person { badge: 90_000, email: text("ada@example.org"), ..rows[3].clone() };
        rows[4].note = "no index knows".to_owned();
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");
        let gone = session.transact(|tx| {
            let email = tx.get_by(&indexes.by_email, &text("1004@example.org"))?.is_none();
            Ok(email && tx.get_by(&indexes.by_badge, &1004)?.is_none())
        });
        assert!(*gone.expect("no conflict"), "the old entries are gone");

        // Put over an existing row and as a new one, delete, delete and insert again with other values.
        rows[6] = Person { first: text("Anne"), city: text("Paris"), badge: 77, ..rows[6].clone() };
        rows.push(Person { age: Some(-1), ..person(1, 31) });
        let dropped = rows.remove(9);
        rows[10] = Person { email: text("again@example.org"), last: text("King"), ..rows[10].clone() };
        session
            .transact(|tx| {
                tx.put(&people, &rows[6])?;
                tx.put(&people, rows.last().expect("a row"))?;
                tx.delete(&people, &key(dropped.number))?;
                tx.delete(&people, &key(rows[10].number))?;
                tx.insert(&people, &rows[10])?;
                indexes.check(tx, &people, &rows)
            })
            .expect("no conflict");
        session.snapshot(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");

        // Values that two rows exchange within a transaction.
        session
            .transact(|tx| {
                tx.update(&people, &key(1), |row| row.set_badge(0))?;
                tx.update(&people, &key(2), |row| row.set_badge(1001))?;
                tx.update(&people, &key(1), |row| row.set_badge(1002))
            })
            .expect("no conflict");
        (rows[0].badge, rows[1].badge) = (1002, 1001);
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");

        // Rolled back: nothing of it stays.
        let mut open = session.begin().expect("a worker");
        for row in &rows {
            open.delete(&people, &(row.region, Reverse(row.number))).expect("no conflict");
        }
        open.insert(&people, &person(2, 1)).expect("no conflict");
        indexes.check(&open, &people, &[person(2, 1)]).expect("no conflict");
        open.rollback();
        open = session.begin().expect("a worker");
        indexes.check(&open, &people, &rows).expect("no conflict");
        drop(open);

        session
            .transact(|tx| rows.iter().try_for_each(|row| tx.delete(&people, &(1, Reverse(row.number))).map(|_| ())))
            .expect("no conflict");
        session.transact(|tx| indexes.check(tx, &people, &[])).expect("no conflict");
        let cities = session.transact(|tx| Ok(tx.find_by(&indexes.by_city, &text("London")).count()));
        assert_eq!(*cities.expect("no conflict"), 0);
        db.step();
        assert_eq!(db.check_structure(), Ok(()));
    });
}

#[test]
fn an_index_is_searched_by_prefix_range_and_direction() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let indexes = Indexes::of(&people);
        let names = [("Byron", "Anne"), ("Byron", "Ada"), ("By", "Z"), ("Byrona", "A"), ("King", "Ada"), ("", "")];
        session
            .transact(|tx| {
                (0..).zip(names).try_for_each(|(number, (last, first))| {
                    let age = Some(number as i16 - 2).filter(|&age| age != 0);
                    tx.insert(&people, &Person { last: text(last), first: text(first), age, ..person(1, number) })
                })
            })
            .expect("new keys");
        let numbers = |scan: seriatim::Scan<'_, Person>| -> Result<Vec<u32>, Abort> {
            scan.map(|row| row.map(|row| row.number())).collect()
        };
        let checked = session.transact(|tx| {
            assert_eq!(numbers(tx.find_by(&indexes.by_name, &(text("Byron"),)))?, [1, 0]);
            assert_eq!(numbers(tx.find_by_rev(&indexes.by_name, &(text("Byron"),)))?, [0, 1]);
            assert_eq!(numbers(tx.find_by(&indexes.by_name, &(text("Byron"), text("Ada"))))?, [1]);
            assert!(numbers(tx.find_by(&indexes.by_name, &(text("Nobody"),)))?.is_empty());
            assert_eq!(numbers(tx.find_by(&indexes.by_name, &()))?, [5, 2, 1, 0, 3, 4]);
            let from_to = (text("Byron"), text("Ada"))..(text("King"), text("Ada"));
            assert_eq!(numbers(tx.scan_by(&indexes.by_name, from_to))?, [1, 0, 3]);
            let from_to = (text("Byron"), text("Ada"))..=(text("King"), text("Ada"));
            assert_eq!(numbers(tx.scan_by(&indexes.by_name, from_to))?, [1, 0, 3, 4]);
            // Descending: the range runs from the larger age to the smaller, NULL before all.
            assert_eq!(numbers(tx.scan_by(&indexes.by_age, ..))?, [2, 5, 4, 3, 1, 0]);
            assert_eq!(numbers(tx.scan_by(&indexes.by_age, Reverse(Some(2))..=Reverse(Some(-1))))?, [4, 3, 1]);
            assert_eq!(numbers(tx.find_by(&indexes.by_age, &Reverse(None)))?, [2]);
            assert_eq!(numbers(tx.scan_by(&indexes.by_badge, 1001..1003))?, [1, 2]);
            assert_eq!(tx.get_by(&indexes.by_badge, &1004)?.map(|row| row.number()), Some(4));
            assert_eq!(numbers(tx.find_by(&indexes.by_email, &text("1003@example.org")))?, [3]);
            assert_eq!(numbers(tx.find_by(&indexes.by_city, &text("London")))?.len(), 6);
            assert!(numbers(tx.find_by(&indexes.by_city, &text("Paris")))?.is_empty());
            assert!(tx.get_by(&indexes.by_city, &text("London"))?.is_none(), "not a unique index");
            Ok(())
        });
        checked.expect("no conflict");
        let unordered = session.transact(|tx| numbers(tx.scan_by(&indexes.by_email, ..)));
        assert!(matches!(unordered, Err(TransactError::Unsupported(_))), "{unordered:?}");
        let unordered = session.transact(|tx| numbers(tx.find_by(&indexes.by_city, &())));
        assert!(matches!(unordered, Err(TransactError::Unsupported(_))), "{unordered:?}");
    });
}

#[test]
fn a_unique_index_refuses_a_second_row_by_insert_put_and_update() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let indexes = Indexes::of(&people);
        let rows = [person(1, 1), person(1, 2)];
        session.transact(|tx| rows.iter().try_for_each(|row| tx.insert(&people, row))).expect("new keys");
        let badge_taken = Person { badge: 1001, ..person(1, 3) };
        let email_taken = Person { email: text("1001@example.org"), ..person(1, 3) };
        let errors = [
            session.transact(|tx| tx.insert(&people, &badge_taken)).expect_err("the badge is taken"),
            session.transact(|tx| tx.try_insert(&people, &badge_taken)).map(|_| ()).expect_err("the badge is taken"),
            session.transact(|tx| tx.put(&people, &badge_taken)).expect_err("the badge is taken"),
            session
                .transact(|tx| tx.put(&people, &Person { badge: 1001, ..person(1, 2) }))
                .expect_err("the badge is taken"),
            session
                .transact(|tx| tx.update(&people, &(1, Reverse(2)), |row| row.set_badge(1001)))
                .map(|_| ())
                .expect_err("the badge is taken"),
        ];
        for error in errors {
            assert_eq!(error.to_string(), "duplicate key badge 1001 in person.by_badge");
        }
        let error = session.transact(|tx| tx.insert(&people, &email_taken)).expect_err("the address is taken");
        assert_eq!(error.to_string(), "duplicate key email \"1001@example.org\" in person.by_email");
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");
        // A value that its row gave up in the same transaction is free.
        session
            .transact(|tx| {
                tx.delete(&people, &(1, Reverse(1)))?;
                tx.insert(&people, &badge_taken)
            })
            .expect("the badge is free");
        let rows = [rows[1].clone(), badge_taken];
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");
        assert_eq!(db.check_structure(), Ok(()));
    });
}

/// The statement that violates must be taken back as a whole, or the transaction must refuse to commit.
#[test]
fn a_violation_that_was_shrugged_off_leaves_no_half_indexed_row() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let indexes = Indexes::of(&people);
        let rows = [person(1, 1), person(1, 2)];
        session.transact(|tx| rows.iter().try_for_each(|row| tx.insert(&people, row))).expect("new keys");
        // The body goes on: either the transaction refuses to commit, or the row that violates was taken back as a whole.
        let _ = session.transact(|tx| {
            let _ = tx.insert(&people, &Person { email: text("1001@example.org"), ..person(1, 3) });
            let _ = tx.update(&people, &(1, Reverse(2)), |row| row.set_email(&text("1001@example.org")));
            let _ = tx.put(&people, &Person { city: text("Paris"), email: text("1001@example.org"), ..person(1, 2) });
            Ok(())
        });
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");
    });
}
