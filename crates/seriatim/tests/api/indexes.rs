//! Secondary indexes follow every write and every way to undo it.

use seriatim::catalog::kind::{Hash, UniqueHash, UniqueOrdered};
use seriatim::catalog::{ColumnDef, ColumnType, Organization, Reverse, TableDef, Value};
use seriatim::{Abort, Handle, IndexHandle, ReadTx, Table, Text, TransactError};

use crate::common::{Person, each, person, text};

/// Handles of all indexes.
struct Indexes {
    by_name: IndexHandle<Person, (Text<16>, Text<16>)>,
    by_age: IndexHandle<Person, Reverse<Option<i16>>>,
    by_badge: IndexHandle<Person, u32, UniqueOrdered>,
    by_email: IndexHandle<Person, Text<40>, UniqueHash>,
    by_city: IndexHandle<Person, Text<12>, Hash>,
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

    /// Checks that every index finds exactly these rows.
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
        // NULL is the last value, and so the first in descending order.
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

        // Updates of indexed columns, of other columns, and of no column.
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
                tx.update(&people, &key(5), |row| row.set_note("no index knows"))??;
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

        // Puts over an existing row and as a new row; deletes; a delete followed by an insert with other values.
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

        // Two rows exchange values within a transaction.
        session
            .transact(|tx| {
                tx.update(&people, &key(1), |row| row.set_badge(0))?;
                tx.update(&people, &key(2), |row| row.set_badge(1001))?;
                tx.update(&people, &key(1), |row| row.set_badge(1002))
            })
            .expect("no conflict");
        (rows[0].badge, rows[1].badge) = (1002, 1001);
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");

        // A rollback leaves no entry behind.
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
        let cities = session.transact(|tx| tx.find_by(&indexes.by_city, &text("London")).try_count());
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
            // In a descending index a range runs from the larger age to the smaller, with NULL before all.
            assert_eq!(numbers(tx.scan_by(&indexes.by_age, ..))?, [2, 5, 4, 3, 1, 0]);
            assert_eq!(numbers(tx.scan_by(&indexes.by_age, Reverse(Some(2))..=Reverse(Some(-1))))?, [4, 3, 1]);
            assert_eq!(numbers(tx.find_by(&indexes.by_age, &Reverse(None)))?, [2]);
            assert_eq!(numbers(tx.scan_by(&indexes.by_badge, 1001..1003))?, [1, 2]);
            assert_eq!(tx.get_by(&indexes.by_badge, &1004)?.map(|row| row.number()), Some(4));
            assert_eq!(numbers(tx.find_by(&indexes.by_email, &text("1003@example.org")))?, [3]);
            assert_eq!(numbers(tx.find_by(&indexes.by_city, &text("London")))?.len(), 6);
            assert!(numbers(tx.find_by(&indexes.by_city, &text("Paris")))?.is_empty());
            assert_eq!((tx.count(&people, ..)?, tx.count(&people, (1, Reverse(3))..)?), (6, 4));
            assert_eq!((tx.count_by(&indexes.by_badge, 1001..1003)?, tx.count_by(&indexes.by_age, ..)?), (2, 6));
            assert_eq!(tx.find_by(&indexes.by_city, &text("London")).try_count()?, 6);
            assert_eq!(tx.find_by(&indexes.by_email, &text("1003@example.org")).try_count()?, 1);
            assert_eq!(tx.find_by(&indexes.by_email, &text("nobody@example.org")).try_count()?, 0);
            Ok(())
        });
        checked.expect("no conflict");
    });
}

/// A row whose unique columns may be NULL.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "member", key(club, number))]
#[table(index(name = "by_badge", columns(badge), unique))]
#[table(index(name = "by_card", columns(card), unique, hash))]
#[table(index(name = "by_seat", columns(club, seat), unique))]
#[table(index(name = "by_alias", columns(alias), unique, nulls_not_distinct))]
#[table(index(name = "by_code", columns(code), unique, nulls_not_distinct, hash))]
struct Member {
    club: u16,
    number: u32,
    badge: Option<u32>,
    card: Option<Text<8>>,
    seat: Option<u8>,
    alias: Option<Text<8>>,
    code: Option<u64>,
}

fn member(number: u32) -> Member {
    let name = text(&number.to_string());
    let (badge, seat, code) = (Some(number), Some(number as u8), Some(u64::from(number)));
    Member { club: 1, number, badge, card: Some(text(&number.to_string())), seat, alias: Some(name), code }
}

fn nobody(number: u32) -> Member {
    Member { badge: None, card: None, seat: None, ..member(number) }
}

/// As in SQL, NULL equals nothing, so rows with NULL do not violate a unique index, unless the index says otherwise.
#[test]
fn rows_with_a_null_do_not_agree_in_a_unique_index() {
    each(|setting| {
        let db = setting.open();
        let members = db.create::<Member>().expect("valid");
        let (by_badge, by_card) = (members.index(Member::BY_BADGE), members.index(Member::BY_CARD));
        let (by_seat, by_alias) = (members.index(Member::BY_SEAT), members.index(Member::BY_ALIAS));
        let by_code = members.index(Member::BY_CODE);
        let mut session = db.session();
        let mut put = |row: &Member| session.transact(|tx| tx.put(&members, row)).map(drop);
        (1..=2).for_each(|number| put(&member(number)).expect("no key is shared"));
        (3..=5).for_each(|number| put(&nobody(number)).expect("NULL is no key"));
        // Other values stay unique; where NULL equals NULL, NULL is a value too.
        let duplicate = |result: Result<(), TransactError>, index: &str, key: &str| match result {
            Err(TransactError::Duplicate { table, constraint, key: found }) => {
                assert_eq!((&*table, &*constraint, &*found), ("member", index, key));
            }
            other => panic!("{index}: {other:?}"),
        };
        duplicate(put(&Member { badge: Some(1), ..nobody(9) }), "by_badge", "badge 1");
        duplicate(put(&Member { card: Some(text("2")), ..nobody(9) }), "by_card", "card \"2\"");
        duplicate(put(&Member { seat: Some(2), ..nobody(9) }), "by_seat", "club 1, seat 2");
        put(&Member { alias: None, ..member(6) }).expect("the first NULL");
        duplicate(put(&Member { alias: None, ..member(9) }), "by_alias", "alias NULL");
        put(&Member { code: None, ..member(7) }).expect("the first NULL");
        duplicate(put(&Member { code: None, ..member(9) }), "by_code", "code NULL");
        let mut session = db.session();
        let numbers = |scan: seriatim::Scan<'_, Member>| {
            let mut numbers = scan.map(|row| Ok(row?.number())).collect::<Result<Vec<_>, Abort>>()?;
            numbers.sort_unstable();
            Ok::<_, Abort>(numbers)
        };
        let looked = session.transact(|tx| {
            let number = |row: Option<MemberRow<'_>>| row.map(|row| row.number());
            // `get_by` finds one row by a value and none by NULL; `find_by` finds all rows with NULL.
            assert_eq!(number(tx.get_by(&by_badge, &Some(2))?), Some(2));
            assert_eq!(number(tx.get_by(&by_card, &Some(text("1")))?), Some(1));
            assert_eq!(number(tx.get_by(&by_seat, &(1, Some(7)))?), Some(7));
            assert_eq!(number(tx.get_by(&by_badge, &None)?), None);
            assert_eq!(number(tx.get_by(&by_card, &None)?), None);
            assert_eq!(number(tx.get_by(&by_seat, &(1, None))?), None);
            assert_eq!(numbers(tx.find_by(&by_badge, &None))?, [3, 4, 5]);
            assert_eq!(numbers(tx.find_by(&by_card, &None))?, [3, 4, 5]);
            assert_eq!(numbers(tx.find_by(&by_card, &Some(text("2"))))?, [2]);
            assert_eq!(numbers(tx.find_by(&by_seat, &(1, None)))?, [3, 4, 5]);
            assert_eq!(numbers(tx.find_by(&by_seat, &1u16))?, [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(numbers(tx.scan_by(&by_badge, None..=None))?, [3, 4, 5]);
            assert_eq!(numbers(tx.scan_by(&by_badge, ..None))?, [1, 2, 6, 7]);
            assert_eq!(numbers(tx.scan_by(&by_badge, Some(2)..))?, [2, 6, 7]);
            assert_eq!(numbers(tx.scan_by(&by_badge, Some(2)..=None))?, [2, 3, 4, 5, 6, 7]);
            assert_eq!((tx.count_by(&by_badge, ..)?, tx.count_by(&by_seat, ..)?), (7, 7));
            assert_eq!(number(tx.get_by(&by_alias, &None)?), Some(6));
            assert_eq!(numbers(tx.find_by(&by_alias, &None))?, [6]);
            assert_eq!(number(tx.get_by(&by_code, &None)?), Some(7));
            assert_eq!(numbers(tx.find_by(&by_code, &None))?, [7]);
            let missing = tx.require_by(&by_badge, &Some(77)).expect_err("no row has it");
            Err::<(), Abort>(missing)
        });
        let missing = looked.expect_err("the row that must be there").to_string();
        assert_eq!(missing, "there is no row with key badge 77 in member.by_badge");
        db.check_indexes().expect("indexes agree with their rows");

        // A value can be set and removed.
        let (mine, other) = ((1, 3), (1, 4));
        session.transact(|tx| tx.update(&members, &mine, |row| row.set_badge(Some(33)))).expect("free");
        let taken = session.transact(|tx| tx.update(&members, &other, |row| row.set_badge(Some(33))));
        duplicate(taken.map(drop), "by_badge", "badge 33");
        session.transact(|tx| tx.update(&members, &mine, |row| row.set_badge(None))).expect("no key");
        session.transact(|tx| tx.update(&members, &other, |row| row.set_badge(Some(33)))).expect("free again");
        session.transact(|tx| tx.delete(&members, &mine)).expect("there");
        let left = session.transact(|tx| numbers(tx.find_by(&by_badge, &None)));
        assert_eq!(left.expect("no conflict").value, [5]);
        db.check_indexes().expect("indexes agree with their rows");
        assert_eq!(db.check_structure(), Ok(()));
    });
}

/// The same for a table declared at run time.
#[test]
fn null_in_a_unique_index_of_a_declared_table() {
    each(|setting| {
        let db = setting.open();
        let definition = TableDef::builder("entry")
            .column(ColumnDef::new("id", ColumnType::U64))
            .column(ColumnDef::new("loose", ColumnType::I32).nullable())
            .column(ColumnDef::new("strict", ColumnType::I32).nullable())
            .key(["id"])
            .unique_index("by_loose", ["loose"], Organization::Hash)
            .unique_index("by_strict", ["strict"], Organization::Hash)
            .nulls_not_distinct()
            .finish()
            .expect("valid");
        let entries = db.declare(definition).expect("valid");
        let mut session = db.session();
        let mut insert = |id, loose: Value, strict: Value| {
            session
                .transact(|tx| tx.insert_dyn(&entries, &[Value::Integer(id, None), loose.clone(), strict.clone()]))
                .map(drop)
        };
        insert(1, Value::NONE, 1.into()).expect("the first");
        insert(2, Value::NONE, 2.into()).expect("NULL is no key");
        insert(3, 3.into(), Value::NONE).expect("the first NULL");
        let taken = insert(4, Value::NONE, Value::NONE).expect_err("NULL is a key here");
        assert_eq!(taken.to_string(), "duplicate key strict NULL in entry.by_strict");
        let taken = insert(4, 3.into(), 4.into()).expect_err("the key exists");
        assert_eq!(taken.to_string(), "duplicate key loose 3 in entry.by_loose");
        let found = db.session().transact(|tx| {
            let count = |index: &str, value: Value| tx.find_dyn(&entries, index, &[value])?.try_count();
            Ok([count("by_loose", Value::NONE)?, count("by_loose", 3.into())?, count("by_strict", Value::NONE)?])
        });
        assert_eq!(found.expect("no conflict").value, [2, 1, 1]);
        db.check_indexes().expect("indexes agree with their rows");
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

/// Either the violating statement is undone as a whole, or the transaction refuses to commit.
#[test]
fn a_violation_that_was_shrugged_off_leaves_no_half_indexed_row() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let indexes = Indexes::of(&people);
        let rows = [person(1, 1), person(1, 2)];
        session.transact(|tx| rows.iter().try_for_each(|row| tx.insert(&people, row))).expect("new keys");
        // The body ignores the errors.
        let _ = session.transact(|tx| {
            let _ = tx.insert(&people, &Person { email: text("1001@example.org"), ..person(1, 3) });
            let _ = tx.update(&people, &(1, Reverse(2)), |row| row.set_email(&text("1001@example.org")));
            let _ = tx.put(&people, &Person { city: text("Paris"), email: text("1001@example.org"), ..person(1, 2) });
            Ok(())
        });
        session.transact(|tx| indexes.check(tx, &people, &rows)).expect("no conflict");
    });
}
