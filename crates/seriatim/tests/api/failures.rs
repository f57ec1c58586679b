//! Failures in a body: its own aborts, panics, misuse. They have no effect, and the session can continue.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim::catalog::Reverse;
use seriatim::{Abort, Database, Handle, OpenError, Reason, RetryPolicy, SchemaError, Table, TransactError, Tx};

use crate::common::{Person, each, person};

/// A body's own error.
#[derive(Debug, PartialEq)]
struct Insufficient {
    missing: i64,
}

impl fmt::Display for Insufficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} missing", self.missing)
    }
}

impl Error for Insufficient {}

fn count(tx: &Tx, people: &Handle<Person>) -> Result<usize, Abort> {
    Ok(tx.scan(people, ..).collect::<Result<Vec<_>, _>>()?.len())
}

#[test]
fn a_bodys_own_error_comes_out_with_its_type() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let error = session.transact(|tx| {
            tx.insert(&people, &person(1, 1))?;
            Err::<(), _>(tx.abort(Insufficient { missing: 7 }))
        });
        let error = error.expect_err("aborted");
        assert_eq!(error.user::<Insufficient>(), Some(&Insufficient { missing: 7 }));
        assert_eq!(error.user::<fmt::Error>(), None);
        assert_eq!(error.to_string(), "7 missing");
        assert!(error.source().is_none() && !error.is_retryable() && !error.is_maybe_committed());
        let TransactError::User(error) = error else { panic!("the body's") };
        assert_eq!(error.downcast_ref::<Insufficient>(), Some(&Insufficient { missing: 7 }));
        assert_eq!(*session.transact(|tx| count(tx, &people)).expect("no conflict"), 0);

        let error = session.snapshot(|tx| Err::<(), _>(tx.abort("just words"))).expect_err("aborted");
        assert_eq!(error.to_string(), "just words");
        let open = session.begin().expect("a worker");
        let abort = open.abort(Insufficient { missing: 1 });
        assert_eq!(open.explain(&abort).user(), Some(&Insufficient { missing: 1 }));
    });
}

#[test]
fn an_abort_keeps_its_cause_when_the_transaction_stops_later_and_not_when_it_had_stopped() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let canceller = session.canceller();
        let stop = |tx: &Tx| {
            canceller.cancel();
            let stopped = tx.get(&people, &(1, Reverse(1))).map(drop).expect_err("it was cancelled");
            assert_eq!(stopped.cause().map(|cause| cause.reason), Some(Reason::Cancelled));
        };
        let error = session.transact(|tx| {
            let own = tx.abort(Insufficient { missing: 7 });
            stop(tx);
            Err::<(), _>(own)
        });
        let error = error.expect_err("aborted");
        assert_eq!(error.user(), Some(&Insufficient { missing: 7 }), "{error}");
        let error = session.transact(|tx| {
            let missing = tx.require(&people, &(1, Reverse(1))).map(drop);
            stop(tx);
            missing
        });
        assert!(matches!(error, Err(TransactError::MissingRow { .. })), "{error:?}");
        let error = session.transact(|tx| {
            stop(tx);
            Err::<(), _>(tx.abort(Insufficient { missing: 7 }))
        });
        assert!(matches!(error, Err(TransactError::Cancelled)), "{error:?}");
        let open = session.begin().expect("a worker");
        let own = open.abort(Insufficient { missing: 7 });
        stop(&open);
        assert_eq!(open.explain(&own).user(), Some(&Insufficient { missing: 7 }));
        let late = open.abort(Insufficient { missing: 8 });
        assert!(matches!(open.explain(&late), TransactError::Cancelled));
    });
}

/// An error with a source.
#[derive(Debug)]
struct Because(Insufficient);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("because")
    }
}

impl Error for Because {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn an_abort_can_be_explained_again_and_says_the_same() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let open = session.begin().expect("a worker");
        let duplicate = open.insert(&people, &person(1, 1)).expect_err("it exists");
        let own = open.abort(Because(Insufficient { missing: 3 }));
        for _ in 0..3 {
            let error = open.explain(&duplicate);
            assert_eq!(error.to_string(), "duplicate key region 1, number 1 in person");
            let error = open.explain(&own);
            assert_eq!(error.to_string(), "because");
            assert_eq!(error.user::<Because>().map(|because| because.0.missing), Some(3));
            assert!(error.user::<Insufficient>().is_none() && error.user::<fmt::Error>().is_none());
            let TransactError::User(inner) = &error else { panic!("the body's, not {error:?}") };
            assert_eq!(format!("{inner:?}"), "Because(Insufficient { missing: 3 })");
            let reason = inner.source().and_then(|reason| reason.downcast_ref());
            assert_eq!(reason, Some(&Insufficient { missing: 3 }));
        }
        let newer = open.abort(Insufficient { missing: 4 });
        assert_eq!(open.explain(&newer).user(), Some(&Insufficient { missing: 4 }));
        assert_eq!(open.explain(&newer).to_string(), "4 missing");
        drop(open);
        let open = session.begin().expect("a worker");
        assert_eq!(open.explain(&newer).user(), Some(&Insufficient { missing: 4 }), "an abort keeps its own error");
    });
}

/// Several operations fail, and the body returns the abort of one of them. (Procedures return each abort at once.)
#[test]
fn an_abort_stands_for_its_own_cause_whatever_came_after_it() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let fail = |tx: &Tx| -> [Abort; 5] {
            let (missing, there) = ((9, Reverse(42)), person(1, 1));
            [
                tx.require(&people, &missing).map(drop).expect_err("it is missing"),
                tx.insert(&people, &there).expect_err("it exists"),
                tx.abort(Insufficient { missing: 1 }),
                tx.abort(Insufficient { missing: 2 }),
                tx.missing(&people, &(8, Reverse(8))),
            ]
        };
        let wanted = [
            "there is no row with key region 9, number 42 in person",
            "duplicate key region 1, number 1 in person",
            "1 missing",
            "2 missing",
            "there is no row with key region 8, number 8 in person",
        ];
        for (at, wanted) in wanted.into_iter().enumerate() {
            let kept = RefCell::new(None);
            let error = session.transact(|tx| {
                let aborts = fail(tx);
                assert_eq!(aborts[at].to_string(), wanted);
                *kept.borrow_mut() = Some(aborts.clone());
                Err::<(), _>(aborts.into_iter().nth(at).expect("it is there"))
            });
            assert_eq!(error.expect_err("it fails").to_string(), wanted);
            let explicit = session.begin().expect("a worker");
            let aborts = fail(&explicit);
            assert_eq!(explicit.explain(&aborts[at]).to_string(), wanted);
            let [.., last] = &aborts;
            assert_eq!(explicit.explain(last).to_string(), "there is no row with key region 8, number 8 in person");
            assert_eq!(TransactError::from(aborts[at].clone()).to_string(), wanted);
            assert_eq!(TransactError::from(aborts.into_iter().nth(at).expect("it is there")).to_string(), wanted);
        }
        let own = session.transact(|tx| Err::<(), _>(fail(tx)[2].clone())).expect_err("it fails");
        assert_eq!(own.user(), Some(&Insufficient { missing: 1 }));
    });
}

#[test]
fn a_panic_comes_through_and_leaves_nothing() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let caught = |body: &mut dyn FnMut()| {
            let panic = catch_unwind(AssertUnwindSafe(body)).expect_err("it panics");
            *panic.downcast::<&str>().expect("the panic of the body")
        };
        let mut in_body = || {
            let _ = session.transact(|tx| -> Result<(), Abort> {
                tx.insert(&people, &person(1, 2))?;
                tx.delete(&people, &(1, Reverse(1)))?;
                panic!("in the body")
            });
        };
        assert_eq!(caught(&mut in_body), "in the body");
        let mut in_update = || {
            let _ = session.transact(|tx| {
                tx.update(&people, &(1, Reverse(1)), |row| -> () {
                    row.set_badge(0);
                    panic!("in an update")
                })
            });
        };
        assert_eq!(caught(&mut in_update), "in an update");
        let mut in_open = || {
            let open = session.begin().expect("a worker");
            open.insert(&people, &person(1, 3)).expect("a new key");
            panic!("with a transaction open")
        };
        assert_eq!(caught(&mut in_open), "with a transaction open");
        let mut in_scan = || {
            let _ = session.transact(|tx| -> Result<(), Abort> {
                let _half = tx.scan(&people, ..).next();
                panic!("in a scan")
            });
        };
        assert_eq!(caught(&mut in_scan), "in a scan");
        let row = session
            .transact(|tx| Ok((count(tx, &people)?, tx.get(&people, &(1, Reverse(1)))?.map(|row| row.to_owned()))));
        assert_eq!(row.expect("the session goes on").value, (1, Some(person(1, 1))));
        assert_eq!(db.statistics().user_aborted, 4);
        assert_eq!(db.check_structure(), Ok(()), "no worker was left behind");
    });
}

/// Regression: the row was committed without its index entries.
#[test]
fn a_panic_in_an_update_that_the_body_catches_leaves_the_row_as_it_was() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let (by_badge, by_email) = (people.index(Person::BY_BADGE), people.index(Person::BY_EMAIL));
        let committed = session.transact(|tx| {
            let update = || {
                tx.update(&people, &(1, Reverse(1)), |row| -> () {
                    row.set_badge(7);
                    let _ = row.set_note("a long text of a change that is not made");
                    panic!("in an update")
                })
            };
            assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
            Ok(())
        });
        committed.expect("the body goes on");
        let found = session.transact(|tx| {
            let old = person(1, 1);
            let rows = [
                tx.get(&people, &(1, Reverse(1)))?.map(|row| row.to_owned()),
                tx.get_by(&by_badge, &old.badge)?.map(|row| row.to_owned()),
                tx.get_by(&by_email, &old.email)?.map(|row| row.to_owned()),
            ];
            assert!(tx.get_by(&by_badge, &7)?.is_none());
            Ok(rows)
        });
        assert_eq!(found.expect("no conflict").value, [(); 3].map(|()| Some(person(1, 1))));
        assert_eq!(db.check_structure(), Ok(()));
    });
}

#[test]
fn a_transaction_cannot_be_used_inside_its_own_update() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let key = (1, Reverse(1));
        type Nested<'a> = &'a dyn Fn(&Tx) -> Result<(), Abort>;
        let uses: [Nested<'_>; 7] = [
            &|tx| tx.get(&people, &key).map(|_| ()),
            &|tx| tx.update(&people, &key, |row| row.set_badge(0)).map(|_| ()),
            &|tx| tx.insert(&people, &person(1, 2)),
            &|tx| tx.delete(&people, &key).map(|_| ()),
            &|tx| count(tx, &people).map(|_| ()),
            &|tx| tx.get_by(&people.index(Person::BY_BADGE), &1001).map(|_| ()),
            &|tx| tx.savepoint().and_then(|savepoint| tx.rollback_to(savepoint)),
        ];
        for nested in uses {
            let error = session.transact(|tx| {
                tx.update(&people, &key, |row| {
                    row.set_badge(5);
                    nested(tx)
                })?
            });
            let error = error.expect_err("reentered");
            let TransactError::Unsupported(cause) = &error else { panic!("unsupported, not {error:?}") };
            assert_eq!(cause.reason, Reason::Reentered);
            assert!(error.to_string().contains("inside its own update closure"), "{error}");
        }
        // A transaction of another session inside the update is allowed, and so is the transaction after the update.
        let (_, mut other) = ((), _db.session());
        let done = session.transact(|tx| {
            let inside =
                tx.update(&people, &key, |_| other.transact(|tx| tx.insert(&people, &person(2, 1))).is_ok())?;
            Ok((inside, tx.get(&people, &key)?.map(|row| row.to_owned())))
        });
        assert_eq!(done.expect("no conflict").value, (true, Some(person(1, 1))));
    });
}

#[test]
fn handles_of_another_database_are_refused() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let (other, foreign, _session) = setting.people();
        let foreign_dyn = other.open_dyn("person").expect("there");
        let (by_badge, by_city) = (foreign.index(Person::BY_BADGE), foreign.index(Person::BY_CITY));
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let key = (1, Reverse(1));
        type Use<'a> = &'a dyn Fn(&Tx) -> Result<(), Abort>;
        let uses: [Use<'_>; 13] = [
            &|tx| tx.get(&foreign, &key).map(|_| ()),
            &|tx| tx.scan(&foreign, ..).try_for_each(|row| row.map(|_| ())),
            &|tx| tx.prefix(&foreign, &(1,)).try_for_each(|row| row.map(|_| ())),
            &|tx| tx.get_by(&by_badge, &1001).map(|_| ()),
            &|tx| tx.find_by(&by_badge, &1001).try_for_each(|row| row.map(|_| ())),
            &|tx| tx.find_by(&by_city, &person(1, 1).city).try_for_each(|row| row.map(|_| ())),
            &|tx| tx.insert(&foreign, &person(1, 1)),
            &|tx| tx.put(&foreign, &person(1, 1)),
            &|tx| tx.update(&foreign, &key, |_| ()).map(|_| ()),
            &|tx| tx.delete(&foreign, &key).map(|_| ()),
            &|tx| tx.scan_dyn(&foreign_dyn, &[]).map(|_| ()),
            &|tx| tx.insert_dyn(&foreign_dyn, &[]),
            &|tx| tx.delete_dyn(&foreign_dyn, &[]).map(|_| ()),
        ];
        for (at, used) in uses.into_iter().enumerate() {
            let error = session.transact(used).expect_err("a foreign handle");
            assert!(matches!(error, TransactError::ForeignHandle), "use {at}: {error:?}");
            assert!(!error.is_retryable());
        }
        session
            .transact(|tx| {
                tx.prefetch(&foreign, [key]);
                count(tx, &people)
            })
            .expect("a hint is not an error");
    });
}

/// The table of people with another declaration.
#[derive(Table)]
#[table(name = "person", key(region))]
struct Impostor {
    region: u8,
}

#[test]
fn mistakes_in_opening_and_declaring_say_what_would_be_right() {
    let error = |result: Result<Database, OpenError>| result.map(|_| ()).expect_err("a mistake").to_string();
    let unknown = error(Database::builder().protocol("paxos").open());
    let names: Vec<&str> = seriatim::protocols().iter().map(|protocol| protocol.name).collect();
    assert_eq!(unknown, format!("there is no protocol \"paxos\"; it is one of auto, {}", names.join(", ")));
    assert_eq!(error(Database::builder().workers(0).open()), "the setting workers is 0; it can be 1 to 4096");
    let never = RetryPolicy { attempts_max: 0, ..RetryPolicy::default() };
    assert_eq!(
        error(Database::builder().retry(never).open()),
        "the setting retry.attempts_max is 0; it can be 1 to 4294967295"
    );
    each(|setting| {
        let (db, people, _session) = setting.people();
        assert_eq!(db.protocol().name, setting.protocol.name);
        assert_eq!(db.table_names(), ["person"]);
        assert_eq!(db.table::<Person>().expect("there").definition(), people.definition());
        let exists = db.create::<Person>().expect_err("it exists");
        assert_eq!(exists.to_string(), "table \"person\" exists already; use `table` to open it");
        let error = db.table::<Impostor>().expect_err("another declaration");
        assert!(matches!(error, SchemaError::Mismatch { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "table \"person\" is not the one this type declares: column `number` is not in the declaration, and has no \
             value in rows that are written without one: declare it, give it a default, or let it be NULL"
        );
        let missing = db.open_dyn("persons").expect_err("no such table");
        assert_eq!(missing.to_string(), "there is no table \"persons\"; `create` or `declare` makes it");
    });
}

#[test]
fn an_abort_of_one_attempt_does_not_leak_into_the_next() {
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        let last = RefCell::new(None);
        for number in 0..20 {
            let result = session.transact(|tx| {
                tx.insert(&people, &person(1, number))?;
                match number % 3 {
                    0 => Ok(number),
                    1 => Err(tx.abort(Insufficient { missing: number.into() })),
                    _ => tx.insert(&people, &person(1, number)).map(|()| number),
                }
            });
            let told = match &result {
                Ok(number) => format!("{}", number.value),
                Err(error) => error.to_string(),
            };
            let wanted = match number % 3 {
                0 => format!("{number}"),
                1 => format!("{number} missing"),
                _ => format!("duplicate key region 1, number {number} in person"),
            };
            assert_eq!(told, wanted);
            *last.borrow_mut() = Some(number);
        }
        assert_eq!(*session.transact(|tx| count(tx, &people)).expect("no conflict"), 7);
    });
}

#[test]
fn a_transaction_that_is_ended_by_hand_does_not_give_up() {
    let db = Database::builder().protocol("silo").open().expect("it opens");
    let people = db.create::<Person>().expect("a valid table");
    let (mut session, mut other) = (db.session(), db.session());
    let key = (1, Reverse(1));
    session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
    let open = session.begin().expect("a worker");
    let badge = open.get(&people, &key).expect("no conflict").expect("it is there").badge();
    other.transact(|tx| tx.update(&people, &key, |row| row.set_badge(7))).expect("no conflict");
    open.update(&people, &key, |row| row.set_badge(badge + 1)).expect("it is decided at the end");
    let error = open.commit().expect_err("what it read has changed");
    assert!(error.is_retryable());
    let words = error.to_string();
    assert!(words.starts_with("the transaction stopped while ") && words.ends_with("; run it again"), "{words}");
}
