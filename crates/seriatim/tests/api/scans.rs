//! Scans: order, bounds, prefixes, direction, own writes, early stops.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use seriatim::catalog::Reverse;
use seriatim::{Abort, Cause, Database, Handle, Reason, Scan, Table, Text, TransactError, Tx};

use crate::common::{Person, each, person, text};

/// A three-column key in two words, the second column descending.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "event", key(day, desc(hour), id))]
struct Event {
    day: i32,
    hour: u8,
    id: u64,
    seen: u32,
}

/// A byte key.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "word", key(text, count))]
struct Word {
    text: Text<24>,
    count: u16,
}

/// A hash table, which cannot be scanned.
#[derive(Table, Clone, Debug)]
#[table(name = "unsorted", key(id), hash)]
struct Unsorted {
    id: u32,
}

/// The key columns of events.
fn keys(scan: Scan<'_, Event>) -> Result<Vec<(i32, u8, u64)>, Abort> {
    scan.map(|row| row.map(|row| (row.day(), row.hour(), row.id()))).collect()
}

fn fill(tx: &Tx, events: &Handle<Event>) -> Result<(), Abort> {
    for day in [3, -2, 0, 7] {
        for hour in [9, 0, 23] {
            for id in [0, 5, u64::MAX] {
                tx.insert(events, &Event { day, hour, id, seen: 0 })?;
            }
        }
    }
    Ok(())
}

/// The rows of [`fill`], in key order.
fn all() -> Vec<(i32, u8, u64)> {
    let hours = |day| [23, 9, 0].into_iter().map(move |hour| (day, hour));
    let ids = |(day, hour)| [0, 5, u64::MAX].into_iter().map(move |id| (day, hour, id));
    [-2, 0, 3, 7].into_iter().flat_map(hours).flat_map(ids).collect()
}

#[test]
fn scans_follow_key_order_within_their_bounds() {
    each(|setting| {
        let db = setting.open();
        let events = db.create::<Event>().expect("valid");
        let mut session = db.session();
        session.transact(|tx| fill(tx, &events)).expect("new keys");
        let all = all();
        let reversed = |range: &[(i32, u8, u64)]| range.iter().rev().copied().collect::<Vec<_>>();
        let check = |tx: &seriatim::ReadTx| {
            assert_eq!(keys(tx.scan(&events, ..))?, all);
            assert_eq!(keys(tx.scan_rev(&events, ..))?, reversed(&all));
            let (low, high) = ((0, Reverse(9), 5), (3, Reverse(9), 0));
            for (bounds, wanted) in [
                ((Bound::Included(low), Bound::Included(high)), 13..22),
                ((Bound::Included(low), Bound::Excluded(high)), 13..21),
                ((Bound::Excluded(low), Bound::Included(high)), 14..22),
                ((Bound::Excluded(low), Bound::Excluded(high)), 14..21),
                ((Bound::Unbounded, Bound::Excluded(low)), 0..13),
                ((Bound::Excluded(high), Bound::Unbounded), 22..36),
                ((Bound::Included(low), Bound::Included(low)), 13..14),
            ] {
                assert_eq!(keys(tx.scan(&events, bounds))?, all[wanted.clone()], "{bounds:?}");
                assert_eq!(keys(tx.scan_rev(&events, bounds))?, reversed(&all[wanted]), "{bounds:?}");
            }
            // Bounds that are not keys of rows.
            assert_eq!(keys(tx.scan(&events, (1, Reverse(0), 0)..(3, Reverse(12), 0)))?, all[18..21]);
            Ok(())
        };
        session.transact(|tx| check(tx)).expect("no conflict");
        session.snapshot(check).expect("no conflict");
    });
}

#[test]
fn empty_and_inverted_ranges_yield_nothing() {
    each(|setting| {
        let db = setting.open();
        let events = db.create::<Event>().expect("valid");
        let mut session = db.session();
        let nothing = |tx: &Tx, low, high| {
            for bounds in [
                (Bound::Excluded(low), Bound::Excluded(high)),
                (Bound::Included(low), Bound::Excluded(high)),
                (Bound::Excluded(low), Bound::Included(high)),
            ] {
                assert_eq!(keys(tx.scan(&events, bounds))?, [], "{bounds:?}");
                assert_eq!(keys(tx.scan_rev(&events, bounds))?, [], "{bounds:?}");
            }
            Ok::<_, Abort>(())
        };
        session.transact(|tx| Ok(keys(tx.scan(&events, ..))?.len())).expect("an empty table");
        session.transact(|tx| fill(tx, &events)).expect("new keys");
        session
            .transact(|tx| {
                let (low, high) = ((0, Reverse(9), 5), (3, Reverse(9), 0));
                nothing(tx, high, low)?;
                nothing(tx, low, low)?;
                assert_eq!(keys(tx.scan(&events, high..=low))?, []);
                assert_eq!(keys(tx.scan(&events, (4, Reverse(0), 0)..=(6, Reverse(0), 0)))?, []);
                assert_eq!(keys(tx.prefix(&events, &(5,)))?, []);
                assert_eq!(keys(tx.scan(&events, (8, Reverse(0), 0)..))?, []);
                assert_eq!(keys(tx.scan(&events, ..(-9, Reverse(0), 0)))?, []);
                Ok(())
            })
            .expect("no conflict");
    });
}

#[test]
fn a_prefix_finds_the_rows_that_begin_with_it() {
    each(|setting| {
        let db = setting.open();
        let (events, words) = (db.create::<Event>().expect("valid"), db.create::<Word>().expect("valid"));
        let mut session = db.session();
        session.transact(|tx| fill(tx, &events)).expect("new keys");
        let texts = ["", "a", "ab", "ab\0", "ab\0c", "abc", "ac", "\u{ff}"];
        session
            .transact(|tx| {
                texts.iter().try_for_each(|value| {
                    (0..3).try_for_each(|count| tx.insert(&words, &Word { text: text(value), count }))
                })
            })
            .expect("new keys");
        let all = all();
        session
            .transact(|tx| {
                assert_eq!(keys(tx.prefix(&events, &(0,)))?, all[9..18]);
                assert_eq!(keys(tx.prefix(&events, &(0, Reverse(9))))?, all[12..15]);
                assert_eq!(keys(tx.prefix(&events, &(0, Reverse(9), 5)))?, all[13..14]);
                assert_eq!(keys(tx.prefix(&events, &()))?, all);
                let backwards: Vec<_> = all[9..18].iter().rev().copied().collect();
                assert_eq!(keys(tx.prefix_rev(&events, &(0,)))?, backwards);
                for value in texts {
                    let found: Result<Vec<Word>, Abort> =
                        tx.prefix(&words, &(text(value),)).map(|row| row.map(|row| row.to_owned())).collect();
                    let wanted: Vec<Word> = (0..3).map(|count| Word { text: text(value), count }).collect();
                    assert_eq!(found?, wanted, "the column {value:?}, not texts that begin with it");
                }
                let order: Result<Vec<String>, Abort> =
                    tx.scan(&words, ..).step_by(3).map(|row| row.map(|row| row.text().to_owned())).collect();
                assert_eq!(order?, texts, "byte order, a text before those that continue it");
                Ok(())
            })
            .expect("no conflict");
    });
}

#[test]
fn a_scan_can_stop_early_and_others_can_run_inside_it() {
    each(|setting| {
        let db = setting.open();
        let events = db.create::<Event>().expect("valid");
        let mut session = db.session();
        session.transact(|tx| fill(tx, &events)).expect("new keys");
        let all = all();
        session
            .transact(|tx| {
                assert_eq!(keys_of(tx.scan(&events, ..).take(3))?, all[..3]);
                assert_eq!(tx.scan_rev(&events, ..).next().transpose()?.map(|row| row.id()), Some(u64::MAX));
                let mut pairs = 0;
                for outer in tx.prefix(&events, &(0,)) {
                    let outer = outer?;
                    for inner in tx.prefix(&events, &(0, Reverse(outer.hour()))).take(2) {
                        assert_eq!(inner?.hour(), outer.hour());
                        pairs += 1;
                    }
                }
                assert_eq!(pairs, 18);
                let _never_moved = tx.scan(&events, ..);
                let mut ended = tx.prefix(&events, &(5,));
                assert!(ended.next().is_none() && ended.next().is_none(), "an ended scan stays ended");
                Ok(())
            })
            .expect("no conflict");
    });
}

fn keys_of<'t>(
    rows: impl Iterator<Item = Result<<Event as Table>::Row<'t>, Abort>>,
) -> Result<Vec<(i32, u8, u64)>, Abort> {
    rows.map(|row| row.map(|row| (row.day(), row.hour(), row.id()))).collect()
}

#[test]
fn a_scan_sees_the_transactions_own_writes() {
    each(|setting| {
        let db = setting.open();
        let events = db.create::<Event>().expect("valid");
        let mut session = db.session();
        session.transact(|tx| fill(tx, &events)).expect("new keys");
        let own = |tx: &Tx| {
            tx.delete(&events, &(0, Reverse(23), 0))?;
            tx.insert(&events, &Event { day: 0, hour: 12, id: 1, seen: 9 })?;
            tx.insert(&events, &Event { day: 0, hour: 12, id: 2, seen: 9 })?;
            tx.delete(&events, &(0, Reverse(12), 2))?;
            tx.update(&events, &(0, Reverse(9), 5), |row| row.set_seen(9))?;
            let found = tx.prefix(&events, &(0,)).map(|row| row.map(|row| (row.hour(), row.id(), row.seen())));
            found.collect::<Result<Vec<_>, Abort>>()
        };
        let wanted = [
            (23, 5, 0),
            (23, u64::MAX, 0),
            (12, 1, 9),
            (9, 0, 0),
            (9, 5, 9),
            (9, u64::MAX, 0),
            (0, 0, 0),
            (0, 5, 0),
            (0, u64::MAX, 0),
        ];
        let open = session.begin().expect("a worker");
        assert_eq!(own(&open).expect("no conflict"), wanted);
        open.rollback();
        let untouched = session.transact(|tx| keys(tx.prefix(&events, &(0,))));
        assert_eq!(untouched.expect("no conflict").value, all()[9..18]);
        assert_eq!(session.transact(own).expect("no conflict").value, wanted);
    });
}

#[test]
fn a_scan_that_updates_sees_each_row_once() {
    each(|setting| {
        let db = setting.open();
        let events = db.create::<Event>().expect("valid");
        let mut session = db.session();
        session
            .transact(|tx| {
                (0..500).try_for_each(|id| tx.insert(&events, &Event { day: 1, hour: 0, id: id * 2, seen: 0 }))
            })
            .expect("new keys");
        let visits = session.transact(|tx| {
            let mut visits = 0;
            for row in tx.scan(&events, ..) {
                let key = row?.id();
                tx.update(&events, &(1, Reverse(0), key), |row| row.set_seen(row.seen() + 1))?;
                visits += 1;
            }
            for row in tx.scan_rev(&events, ..) {
                let key = row?.id();
                tx.update(&events, &(1, Reverse(0), key), |row| row.set_seen(row.seen() + 1))?;
                visits += 1;
            }
            Ok(visits)
        });
        assert_eq!(*visits.expect("no conflict"), 1000);
        let seen =
            session.transact(|tx| tx.scan(&events, ..).map(|row| Ok(row?.seen())).collect::<Result<Vec<_>, Abort>>());
        assert!(seen.expect("no conflict").iter().all(|&seen| seen == 2));

        // A scan returns rows deleted ahead of it, and rows inserted behind it, at most once. It returns rows that
        // stay exactly once.
        let met = session.transact(|tx| {
            let mut met = Vec::new();
            for row in tx.scan(&events, ..) {
                let id = row?.id();
                met.push(id);
                tx.delete(&events, &(1, Reverse(0), id))?;
                if id > 0 {
                    tx.insert(&events, &Event { day: 1, hour: 0, id: id - 1, seen: 0 })?;
                }
            }
            Ok(met)
        });
        assert_eq!(met.expect("no conflict").value, (0..500).map(|id| id * 2).collect::<Vec<u64>>());
        let left = session.transact(|tx| Ok(keys(tx.scan(&events, ..))?.len()));
        assert_eq!(*left.expect("no conflict"), 499);
        assert_eq!(db.check_structure(), Ok(()));
    });
}

#[test]
fn a_hash_table_cannot_be_scanned() {
    each(|setting| {
        let db = setting.open();
        let table = db.create::<Unsorted>().expect("valid");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&table, &Unsorted { id: 1 })).expect("a new key");
        // With a derived handle, the scan does not compile. At run time the call is refused, so that its error is not
        // counted as a row.
        let unsorted = db.open_dyn(Unsorted::NAME).expect("it was created");
        let error = session.transact(|tx| Ok(tx.scan_dyn(&unsorted, &[])?.count())).expect_err("not ordered");
        assert!(matches!(&error, TransactError::Unsupported(cause) if cause.reason == Reason::Unordered), "{error:?}");
        assert!(error.to_string().contains("not ordered") && !error.is_retryable(), "{error}");
        let people = db.create::<Person>().expect("valid");
        let declared = db.open_dyn(Person::NAME).expect("it was created");
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        for index in ["by_email", "by_city"] {
            let error = session.transact(|tx| Ok(tx.find_dyn(&declared, index, &[])?.count())).expect_err("a range");
            assert!(
                matches!(&error, TransactError::Unsupported(cause) if cause.reason == Reason::Unordered),
                "{error:?}"
            );
        }
        session.transact(|tx| tx.insert(&table, &Unsorted { id: 2 })).expect("the session goes on");
    });
}

/// A caller that counts the items of a scan counts its error too: such a transaction must not commit.
#[test]
fn an_error_that_is_an_item_of_a_scan_ends_the_transaction() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let other = setting.open();
        let foreign = other.create::<Person>().expect("valid");
        let by_city = foreign.index(Person::BY_CITY);
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let counted = session.transact(|tx| Ok(tx.scan(&foreign, ..).count()));
        assert!(matches!(counted, Err(TransactError::ForeignHandle)), "{counted:?}");
        let counted = session.transact(|tx| Ok(tx.find_by(&by_city, &person(1, 1).city).flatten().count()));
        assert!(matches!(counted, Err(TransactError::ForeignHandle)), "{counted:?}");
        let inside = session.transact(|tx| {
            let key = (1, Reverse(1));
            tx.update(&people, &key, |row| row.set_age(Some(tx.scan(&people, ..).count() as i16))).map(drop)
        });
        let reentered = |cause: &Cause| cause.reason == Reason::Reentered;
        assert!(matches!(&inside, Err(TransactError::Unsupported(cause)) if reentered(cause)), "{inside:?}");
        let row = session.transact(|tx| Ok(tx.get(&people, &(1, Reverse(1)))?.map(|row| row.to_owned())));
        assert_eq!(row.expect("no conflict").value, Some(person(1, 1)));
        assert_eq!(db.check_structure(), Ok(()));
    });
}

/// The state of a finished scan is reused. A scan of an empty range must not return what the previous one left in it.
#[test]
fn an_empty_range_after_another_scan_finds_nothing() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session
            .transact(|tx| (0..5).try_for_each(|number| tx.insert(&people, &person(1, number))))
            .expect("an empty table");
        for snapshot in [false, true] {
            let mut look = |tx: &seriatim::ReadTx| {
                for _ in 0..2 {
                    assert_eq!(tx.prefix(&people, &(1u8,)).count(), 5);
                    assert_eq!(tx.scan(&people, (2, Reverse(0))..(1, Reverse(0))).count(), 0);
                    assert_eq!(tx.scan_rev(&people, (1, Reverse(3))..(1, Reverse(3))).count(), 0);
                }
                Ok(())
            };
            match snapshot {
                false => session.transact(|tx| look(tx)),
                true => session.snapshot(&mut look),
            }
            .expect("no conflict");
        }
    });
}

/// Rows of a hashed table are listed, each once, as they are at one moment.
#[test]
fn rows_of_a_hashed_table_are_listed_as_they_are_at_one_moment() {
    each(|setting| {
        let db = setting.open();
        let table = db.create::<Unsorted>().expect("valid");
        assert_eq!(db.each_row(&table, |_| unreachable!("it is empty")).expect("nothing is open"), 0);
        let mut session = db.session();
        let insert = |tx: &Tx| (0..700).try_for_each(|id| tx.insert(&table, &Unsorted { id }));
        session.transact(insert).expect("alone");
        session.transact(|tx| (0..700).step_by(3).try_for_each(|id| tx.delete(&table, &id))).expect("alone");
        let mut found = Vec::new();
        let count = db.each_row(&table, |row| found.push(row.id())).expect("nothing is open");
        found.sort_unstable();
        assert_eq!(found, (0..700).filter(|id| id % 3 != 0).collect::<Vec<_>>());
        assert_eq!(count, found.len());
        let by_values = db.each_row_dyn(&db.open_dyn("unsorted").expect("it is there"), |row| {
            assert_eq!(row.values().len(), 1);
        });
        assert_eq!(by_values.expect("nothing is open"), count);

        let other_db = setting.open();
        let foreign = other_db.each_row(&table, |_| ()).expect_err("it is of another database");
        assert!(matches!(foreign, TransactError::ForeignHandle), "{foreign}");
    });
}

/// Open transactions neither delay a list of committed rows, nor show in it, and others commit while it goes on.
#[test]
fn committed_rows_are_listed_while_transactions_are_open() {
    each(|setting| {
        let db = setting.open();
        let table = db.create::<Unsorted>().expect("valid");
        let [mut session, mut other] = [db.session(), db.session()];
        session.transact(|tx| (0..300).try_for_each(|id| tx.insert(&table, &Unsorted { id }))).expect("alone");
        let open = other.begin().ok();
        if let Some(open) = &open {
            open.insert(&table, &Unsorted { id: 1000 }).expect("alone");
            open.delete(&table, &0).expect("alone");
        }
        let mut found = Vec::new();
        let count = db.each_committed_row(&table, |row| found.push(row.id())).expect("no commit is in the way");
        found.sort_unstable();
        assert_eq!((count, found), (300, (0..300).collect::<Vec<_>>()), "what is not committed is not shown");
        drop(open);
        let dynamic = db.open_dyn("unsorted").expect("it is there");
        let by_values = db.each_committed_row_dyn(&dynamic, |row| assert_eq!(row.values().len(), 1));
        assert_eq!(by_values.expect("nothing is open"), 300);
        let foreign = setting.open().each_committed_row(&table, |_| ()).expect_err("it is of another database");
        assert!(matches!(foreign, TransactError::ForeignHandle), "{foreign}");
    });
}

/// Each transaction moves a row to another key, so there are always as many.
#[test]
fn rows_are_listed_beside_transactions_that_move_them() {
    let db = Database::builder().workers(4).open().expect("valid");
    let table = db.create::<Unsorted>().expect("valid");
    db.session().transact(|tx| (0..50).try_for_each(|id| tx.insert(&table, &Unsorted { id }))).expect("alone");
    let (moved, is_done, mut lists) = (AtomicU32::new(0), AtomicBool::new(false), Vec::new());
    // Assertions wait until both threads have ended: one that fails must not leave the other in its loop.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut session, mut id) = (db.session(), 0);
            while !is_done.load(Ordering::Relaxed) {
                let result = session.transact(|tx| {
                    tx.delete(&table, &id)?;
                    tx.insert(&table, &Unsorted { id: id + 50 })
                });
                // A list may keep the transaction from beginning.
                id += u32::from(result.is_ok());
                moved.store(id, Ordering::Release);
            }
        });
        while lists.len() < 20 || moved.load(Ordering::Relaxed) == 0 {
            let (before, mut found) = (moved.load(Ordering::Acquire), Vec::new());
            let listed = db.each_row(&table, |row| found.push(row.id()));
            lists.push((before, listed, found));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    for (before, listed, mut found) in lists {
        match listed {
            Ok(count) => assert_eq!(count, 50),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        found.sort_unstable();
        if let Some(&first) = found.first() {
            assert!(first >= before, "what was moved before is moved");
            assert_eq!(found, (first..first + 50).collect::<Vec<_>>(), "all of one moment");
        }
    }
    let mut session = db.session();
    let open = session.begin_snapshot().expect("a worker");
    let error = db.each_row(&table, |_| ()).expect_err("a transaction is open");
    assert!(matches!(error, TransactError::Excluded { .. }) && error.is_retryable(), "{error}");
    drop(open);
    assert_eq!(db.each_row(&table, |_| ()).expect("it has ended"), 50);
}
