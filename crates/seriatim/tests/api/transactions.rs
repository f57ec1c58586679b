//! Whole transactions: commit, rollback, conflicts and their errors, retries, statistics.

use std::collections::HashSet;
use std::time::Duration;

use seriatim::catalog::Reverse;
use seriatim::{Abort, Decimal, Handle, MissingRow, ReadTx, RetryPolicy, Table, TransactError, Transaction, Tx};

use crate::common::{Person, each, person};

/// A counter.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "counter", key(id), hash)]
struct Counter {
    id: u32,
    n: u64,
}

/// Reads with `tx`, writes with `other`, writes with `tx`, commits. Under every protocol, one of the two must fail.
/// Returns its error.
fn collide(tx: Transaction<'_>, other: Transaction<'_>, counters: &Handle<Counter>) -> TransactError {
    let add = |tx: &Transaction<'_>| tx.update(counters, &7, |row| row.set_n(row.n() + 1));
    assert_eq!(tx.get(counters, &7).expect("no conflict yet").map(|row| row.n()), Some(0));
    if let Err(abort) = add(&other) {
        assert!(abort.is_retryable());
        let error = other.explain(&abort);
        // After a conflict, all operations and the commit fail.
        assert_eq!(other.get(counters, &8).expect_err("stopped").cause(), abort.cause());
        assert_eq!(add(&other).expect_err("stopped").cause(), abort.cause());
        assert_eq!(other.savepoint().expect_err("stopped").cause(), abort.cause());
        assert!(other.try_insert(counters, &Counter { id: 9, n: 0 }).is_err());
        assert!(other.commit().is_err_and(|error| error.is_retryable()));
        add(&tx).expect("no conflict any more");
        tx.commit().expect("no conflict");
        return error;
    }
    other.commit().expect("no conflict");
    match add(&tx) {
        Err(abort) => tx.explain(&abort),
        Ok(_) => tx.commit().expect_err("what it read was overwritten"),
    }
}

/// A call inside the closure of an update may find that the transaction has overwritten a stale read. (What it only
/// read may be valid at an earlier place in the order.)
#[test]
fn a_conflict_found_inside_an_update_stops_the_transaction() {
    each(|setting| {
        // All attempts fail, so a few are enough.
        let few = RetryPolicy { attempts_max: 10, ..RetryPolicy::default() };
        let db = setting.builder().retry(few).open().expect("a valid setting");
        let counters = db.create::<Counter>().expect("declared once");
        let (mut session, mut other) = (db.session(), db.session());
        for id in 7..9 {
            session.transact(|tx| tx.insert(&counters, &Counter { id, n: 0 })).expect("no conflict");
        }
        let tx = session.begin().expect("a worker");
        tx.update(&counters, &7, |row| row.set_n(row.n() + 2)).expect("no conflict yet");
        let add = |tx: &Tx| tx.update(&counters, &7, |row| row.set_n(row.n() + 1)).map(drop);
        if other.transact(add).is_err() {
            // `other` waits for the transaction that has written the row.
            return;
        }
        let mut found = None;
        let _ = tx.update(&counters, &8, |row| {
            row.set_n(1);
            found = Some(tx.missing(&counters, &9));
        });
        assert!(found.is_some_and(|abort| abort.is_retryable()));
        assert!(tx.get(&counters, &8).expect_err("stopped").is_retryable());
        assert!(tx.commit().expect_err("stopped").is_retryable());
    });
}

/// A conflict may be found when the memory of the row to insert is allocated and belongs to no table yet.
#[test]
fn a_transaction_that_stops_in_the_middle_of_an_insertion_leaves_no_memory_behind() {
    each(|setting| {
        for operations_max in 1..8 {
            let once = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
            let db = setting.builder().operations_max(operations_max).retry(once).open().expect("a valid setting");
            let people = db.create::<Person>().expect("declared once");
            let (mut session, mut other) = (db.session(), db.session());
            session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("no conflict");
            let mut settle = |rounds: u32| {
                for _ in 0..rounds {
                    let tx = session.begin().expect("a worker");
                    let next = |balance: Decimal<2>| Decimal::from_units(balance.units() + 1);
                    let own = tx.update(&people, &(1, Reverse(1)), |row| row.set_balance(next(row.balance())));
                    if own.is_err() {
                        continue;
                    }
                    // Where `other` waits for the first writer, there is no conflict to find.
                    let change =
                        |tx: &Tx| tx.update(&people, &(1, Reverse(1)), |row| row.set_balance(next(row.balance())));
                    if other.transact(change).is_ok() {
                        let inserted = (2..10).try_for_each(|number| tx.insert(&people, &person(1, number)));
                        // In an order that is not strict, the overwritten value may be valid at an earlier place.
                        let strict = setting.protocol.capabilities.strict;
                        assert!(inserted.map_or_else(|abort| abort.is_retryable(), |()| !strict));
                    }
                }
                (0..20).for_each(|_| drop(session.transact(|tx| tx.get(&people, &(1, Reverse(1))).map(drop))));
                db.statistics().memory_bytes
            };
            let before = settle(50);
            let mut after = settle(200);
            // Memory that old snapshots may need is kept until a background thread finds that none does.
            for _ in 0..12_000 {
                if after <= before + before / 20 {
                    break;
                }
                seriatim::thread::sleep(Duration::from_millis(5));
                after = settle(0);
            }
            assert!(after <= before + before / 20, "{operations_max}: {before} bytes grew to {after}");
        }
    });
}

#[test]
fn an_explicit_transaction_commits_on_request_and_rolls_back_otherwise() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        let mut other = db.session();
        let numbers = |tx: &ReadTx| -> Result<Vec<u32>, Abort> {
            tx.scan_rev(&people, ..).map(|row| row.map(|row| row.number())).collect()
        };
        let open = session.begin().expect("a worker");
        open.insert(&people, &person(1, 1)).expect("a new key");
        assert_eq!(numbers(&open).expect("no conflict"), [1]);
        let receipt = open.commit().expect("no conflict");
        assert_eq!(other.transact(|tx| numbers(tx)).expect("no conflict").value, [1]);

        let open = session.begin().expect("a worker");
        open.insert(&people, &person(1, 2)).expect("a new key");
        open.rollback();
        {
            let dropped = session.begin().expect("a worker");
            dropped.insert(&people, &person(1, 3)).expect("a new key");
            dropped.delete(&people, &(1, Reverse(1))).expect("no conflict");
        }
        assert_eq!(other.transact(|tx| numbers(tx)).expect("no conflict").value, [1]);
        let later = other.transact(|tx| tx.update(&people, &(1, Reverse(1)), |row| row.set_note("x").is_ok()));
        assert!(later.expect("no conflict").receipt.tid > receipt.tid, "a later write of a row has a later TID");

        let reading = session.begin_snapshot().expect("a worker");
        assert_eq!(numbers(&reading).expect("no conflict"), [1]);
        reading.finish().expect("no conflict");
    });
}

#[test]
fn a_leaked_transaction_ends_with_the_next_one() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let open = session.begin().expect("a worker");
        open.insert(&people, &person(1, 1)).expect("a new key");
        std::mem::forget(open);
        let count = session.transact(|tx| Ok(tx.scan(&people, ..).count()));
        assert_eq!(*count.expect("no conflict"), 0);
    });
}

#[test]
fn a_conflict_says_in_words_where_it_was() {
    each(|setting| {
        let db = setting.open();
        let counters = db.create::<Counter>().expect("valid");
        let (mut first, mut second) = (db.session(), db.session());
        first.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 0 })).expect("a new key");
        let error = collide(first.begin().expect("a worker"), second.begin().expect("a worker"), &counters);
        assert!(error.is_retryable() && !error.is_maybe_committed());
        let words = error.to_string();
        assert!(words.contains("(table counter, key id 7)") && words.contains("by another transaction"), "{words}");
        let TransactError::Conflict { last, attempts: 1 } = error else { panic!("a conflict: {error:?}") };
        assert_eq!((last.table.as_deref(), last.key.as_deref()), (Some("counter"), Some("id 7")));
        let n = first.transact(|tx| Ok(tx.get(&counters, &7)?.map(|row| row.n())));
        assert_eq!(*n.expect("no conflict"), Some(1), "exactly one of the two counted");
    });
}

#[test]
fn a_phantom_is_a_conflict_too() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let mut inserting = db.session();
        let open = session.begin().expect("a worker");
        assert_eq!(open.prefix(&people, &(1,)).count(), 1);
        let inserting = inserting.begin().expect("a worker");
        let inserted = inserting.insert(&people, &person(1, 2)).map(|()| inserting.commit());
        let written = open.update(&people, &(1, Reverse(1)), |row| row.set_badge(5)).map(|_| open.commit());
        let failed = |result: Result<Result<_, TransactError>, Abort>| !matches!(result, Ok(Ok(_)));
        assert!(failed(inserted) ^ failed(written), "one of the two, and one only");
    });
}

#[test]
fn statistics_count_endings_and_causes() {
    each(|setting| {
        let db = setting.open();
        let counters = db.create::<Counter>().expect("valid");
        let (mut first, mut second) = (db.session(), db.session());
        first.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 0 })).expect("a new key");
        let before = db.statistics();
        let error = collide(first.begin().expect("a worker"), second.begin().expect("a worker"), &counters);
        let TransactError::Conflict { last, .. } = error else { panic!("a conflict: {error:?}") };
        first.snapshot(|tx| Ok(tx.get(&counters, &7)?.is_some())).expect("no conflict");
        first.transact(|tx| Err::<(), _>(tx.abort("not today"))).expect_err("the body's own abort");
        first.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 0 })).expect_err("the key exists");
        drop(first.begin().expect("a worker"));
        let all = db.statistics();
        let since = all.since(&before);
        assert_eq!((since.committed, since.user_aborted, since.conflict_aborted), (2, 3, 1));
        assert_eq!(since.aborts, [(last.cause, 1)]);
        assert_eq!(all.committed, before.committed + 2);
        assert!(all.memory_bytes > 0 && all.reserved_bytes >= all.memory_bytes);
    });
}

#[test]
#[ignore = "nightly: seconds"]
fn the_retry_policy_bounds_attempts_and_the_body_sees_them() {
    each(|setting| {
        let retry = RetryPolicy {
            attempts_max: 5,
            immediate: 1,
            pause_first: Duration::from_micros(1),
            pause_max: Duration::from_micros(3),
            ..RetryPolicy::default()
        };
        let db = setting.builder().retry(retry).open().expect("valid");
        let counters = db.create::<Counter>().expect("valid");
        let (mut session, mut hostile) = (db.session(), db.session());
        session.transact(|tx| (7..9).try_for_each(|id| tx.insert(&counters, &Counter { id, n: 0 }))).expect("new keys");
        // The transaction finds a lock, or reads a value that is overwritten before it commits.
        let mut spoilt = |tx: &Tx| {
            let open = hostile.begin().expect("a worker");
            open.update(&counters, &7, |row| row.set_n(row.n() + 1)).expect("no conflict");
            let n = tx.get(&counters, &7)?.map(|row| row.n());
            open.commit().expect("no conflict");
            Ok::<_, Abort>(n)
        };
        let mut attempts = Vec::new();
        let error = session.transact(|tx| {
            attempts.push(tx.attempt());
            spoilt(tx)?;
            tx.update(&counters, &8, |row| row.set_n(1))
        });
        let error = error.expect_err("every attempt was spoilt");
        assert_eq!(attempts, [1, 2, 3, 4, 5]);
        let TransactError::Conflict { last, attempts: 5 } = &error else { panic!("after five attempts: {error:?}") };
        assert_eq!(last.table.as_deref(), Some("counter"));
        assert!(error.to_string().starts_with("gave up after 5 attempts; the last stopped while "), "{error}");
        assert_eq!(db.statistics().aborts, [(last.cause, 5)]);

        let counted = session.transact(|tx| {
            if tx.attempt() < 3 {
                // A body that hides the conflict does not commit either.
                let _ = spoilt(tx);
            }
            tx.update(&counters, &8, |row| row.set_n(row.n() + 1))
        });
        assert_eq!(counted.expect("the conflict went away").attempts, 3);
        let n = session.transact(|tx| Ok(tx.get(&counters, &8)?.map(|row| row.n())));
        assert_eq!(*n.expect("no conflict"), Some(1), "failed attempts left nothing");
    });
}

#[test]
fn threads_that_count_lose_no_update() {
    each(|setting| {
        let db = setting.open();
        let counters = db.create::<Counter>().expect("valid");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&counters, &Counter { id: 1, n: 0 })).expect("a new key");
        const THREADS: u64 = 3;
        const ROUNDS: u64 = 200;
        seriatim::thread::scope(|scope| {
            for _ in 0..THREADS {
                let (mut session, counters) = (db.session(), counters.clone());
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        session.transact(|tx| tx.update(&counters, &1, |row| row.set_n(row.n() + 1))).expect("retried");
                    }
                });
            }
        });
        let n = session.snapshot(|tx| Ok(tx.get(&counters, &1)?.map(|row| row.n())));
        assert_eq!(*n.expect("no conflict"), Some(THREADS * ROUNDS));
        assert_eq!(db.statistics().committed, 2 + THREADS * ROUNDS);
    });
}

#[test]
fn a_snapshot_shows_one_moment() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        session
            .transact(|tx| {
                (0..20).try_for_each(|number| tx.insert(&people, &Person { badge: number, ..person(1, number) }))
            })
            .expect("new keys");
        seriatim::thread::scope(|scope| {
            let (mut writing, rows) = (db.session(), people.clone());
            scope.spawn(move || {
                for round in 1..=30 {
                    writing
                        .transact(|tx| {
                            // Badges are unique: move each to a free value.
                            (0..20).try_for_each(|number| {
                                let badge = round * 100 + number;
                                tx.update(&rows, &(1, Reverse(number)), |row| row.set_badge(badge)).map(|_| ())
                            })
                        })
                        .expect("retried");
                }
            });
            for _ in 0..30 {
                let rounds = session.snapshot(|tx| {
                    tx.scan(&people, ..).map(|row| Ok(row?.badge() / 100)).collect::<Result<HashSet<u32>, Abort>>()
                });
                assert_eq!(rounds.expect("retried").len(), 1, "all rows of one round");
            }
        });
    });
}

/// Read-only transactions have no writing methods. If they had, these would shadow those of this trait, and this
/// would not compile.
trait NoWriting {
    fn insert(&self) {}
    fn try_insert(&self) {}
    fn put(&self) {}
    fn update(&self) {}
    fn delete(&self) {}
    fn insert_dyn(&self) {}
    fn put_dyn(&self) {}
    fn update_dyn(&self) {}
    fn delete_dyn(&self) {}
    fn savepoint(&self) {}
}

impl NoWriting for ReadTx {}

#[test]
fn a_read_only_transaction_cannot_write_by_its_type() {
    each(|setting| {
        let db = setting.open();
        let mut session = db.session();
        let nothing = |tx: &ReadTx| {
            tx.insert();
            tx.try_insert();
            tx.put();
            tx.update();
            tx.delete();
            tx.insert_dyn();
            tx.put_dyn();
            tx.update_dyn();
            tx.delete_dyn();
            tx.savepoint();
            Ok(())
        };
        session.snapshot(nothing).expect("no conflict");
        nothing(&session.begin_snapshot().expect("a worker")).expect("nothing fails");
    });
}

/// The error that `?` returns from a function with an explicit transaction.
#[test]
fn an_abort_of_an_explicit_transaction_names_table_and_key() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let by_badge = people.index(Person::BY_BADGE);
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let mut boxed = |body: &dyn Fn(&Tx) -> Result<(), Abort>| -> Result<(), Box<dyn std::error::Error>> {
            let tx = session.begin()?;
            body(&tx)?;
            tx.commit()?;
            Ok(())
        };
        let told = |result: Result<(), Box<dyn std::error::Error>>| result.expect_err("it is refused").to_string();
        assert_eq!(told(boxed(&|tx| tx.insert(&people, &person(1, 1)))), "duplicate key region 1, number 1 in person");
        let badge = Person { badge: 1001, ..person(1, 2) };
        assert_eq!(told(boxed(&|tx| tx.insert(&people, &badge))), "duplicate key badge 1001 in person.by_badge");
        let missing = told(boxed(&|tx| tx.require_by(&by_badge, &7).map(drop)));
        assert_eq!(missing, "there is no row with key badge 7 in person.by_badge");
        let own = boxed(&|tx| Err(tx.abort(std::fmt::Error))).expect_err("its own");
        assert_eq!(own.to_string(), format!("{}", std::fmt::Error));
        assert!(own.source().is_none(), "the body's own error stands for itself, and has none behind it");

        let mut typed = |body: &dyn Fn(&Tx) -> Result<(), Abort>| -> Result<(), TransactError> {
            let tx = session.begin()?;
            body(&tx)?;
            tx.commit()?;
            Ok(())
        };
        let error = typed(&|tx| tx.require(&people, &(3, Reverse(4))).map(drop)).expect_err("it is not there");
        let TransactError::MissingRow { table, key } = &error else { panic!("{error}") };
        assert_eq!((table.as_str(), key.as_str()), ("person", "region 3, number 4"));
        let error = typed(&|tx| Err(tx.abort(std::fmt::Error))).expect_err("its own");
        assert_eq!(error.user(), Some(&std::fmt::Error));
        // Two aborts of one transaction; the older one is explained last.
        let tx = session.begin().expect("a worker");
        let older = tx.insert(&people, &person(1, 1)).expect_err("the key exists");
        let newer = tx.require(&people, &(9, Reverse(9))).expect_err("it is not there");
        assert_eq!(newer.to_string(), "there is no row with key region 9, number 9 in person");
        assert_eq!(TransactError::from(older.clone()).to_string(), "duplicate key region 1, number 1 in person");
        assert_eq!(tx.explain(&older).to_string(), older.to_string());
    });
}

/// Columns that are added to.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "sum", key(id))]
#[table(index(name = "by_level", columns(level), unique))]
struct Sum {
    id: u32,
    small: i8,
    large: u64,
    money: Decimal<2>,
    level: u32,
}

#[test]
fn additions_add_and_say_whether_there_is_a_row() {
    each(|setting| {
        let db = setting.open();
        let sums = db.create::<Sum>().expect("declared once");
        let by_level = sums.index(Sum::BY_LEVEL);
        let mut session = db.session();
        let sum = |id, level| Sum { id, small: 100, large: u64::MAX - 5, money: Decimal::from_units(250), level };
        session.transact(|tx| (0..2).try_for_each(|id| tx.insert(&sums, &sum(id, id)))).expect("an empty table");
        let added = session.transact(|tx| {
            tx.update(&sums, &0, |row| row.set_small(row.small() + 1))?;
            let added = [tx.add_if(&sums, &0, SumRow::SMALL, 26)?, tx.add_if(&sums, &9, SumRow::SMALL, 1)?];
            tx.add(&sums, &0, SumRow::SMALL, -128)?;
            tx.add(&sums, &0, SumRow::LARGE, 5)?;
            tx.add(&sums, &0, SumRow::MONEY, Decimal::from_units(-300))?;
            let row = tx.require(&sums, &0)?;
            assert_eq!((row.small(), row.large(), row.money()), (-1, u64::MAX, Decimal::from_units(-50)));
            Ok(added)
        });
        assert_eq!(added.expect("no conflict").value, [Ok(()), Err(MissingRow)]);
        // An index follows an addition; a duplicate in it is reported and has no effect.
        session.transact(|tx| tx.add(&sums, &1, SumRow::LEVEL, 6)).expect("no conflict");
        let found = session.transact(|tx| Ok(tx.require_by(&by_level, &7)?.id()));
        assert_eq!(found.expect("no conflict").value, 1);
        let duplicate = session.transact(|tx| tx.add(&sums, &0, SumRow::LEVEL, 7));
        assert!(matches!(duplicate, Err(TransactError::Duplicate { .. })), "{duplicate:?}");
        for overflows in [
            |tx: &Tx, sums: &Handle<Sum>| tx.add(sums, &1, SumRow::SMALL, 28),
            |tx: &Tx, sums: &Handle<Sum>| tx.add(sums, &1, SumRow::LARGE, 6),
            |tx: &Tx, sums: &Handle<Sum>| tx.add(sums, &1, SumRow::MONEY, Decimal::from_units(i64::MAX)),
            |tx: &Tx, sums: &Handle<Sum>| tx.add(sums, &1, SumRow::LEVEL, u32::MAX),
        ] {
            match session.transact(|tx| overflows(tx, &sums)) {
                Err(TransactError::Overflow { place, .. }) => assert!(place.contains("transactions.rs"), "{place}"),
                other => panic!("{other:?}"),
            }
            // If the body ignores the error, the row is unchanged.
            let ignored = session.transact(|tx| Ok(overflows(tx, &sums).is_err()));
            assert!(ignored.expect("no conflict").value);
        }
        let left = session.transact(|tx| Ok([tx.require(&sums, &0)?.to_owned(), tx.require(&sums, &1)?.to_owned()]));
        let first = Sum { small: -1, large: u64::MAX, money: Decimal::from_units(-50), ..sum(0, 0) };
        assert_eq!(left.expect("no conflict").value, [first, sum(1, 7)]);
    });
}
