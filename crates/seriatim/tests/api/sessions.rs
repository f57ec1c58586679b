//! Sessions and workers: sessions are many and move between threads, workers are few.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seriatim::catalog::Reverse;
use seriatim::clock::Instant;
use seriatim::{
    Committed, Database, Handle, ReadTx, Reason, Session, TransactError, Transaction, TransactionOptions, Tx, clock,
    thread,
};

use crate::common::{each, person};

fn is_send<T: Send>() {}
fn is_shared<T: Send + Sync>() {}

#[test]
fn sessions_and_open_transactions_move_between_threads() {
    is_shared::<Database>();
    is_shared::<Handle<crate::common::Person>>();
    is_send::<Session>();
    is_send::<Transaction<'_>>();
    each(|setting| {
        let (_db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let people = &people;
        let mut session = thread::scope(|scope| {
            let moved = scope.spawn(move || {
                session.transact(|tx| tx.insert(people, &person(1, 2))).expect("a new key");
                session
            });
            moved.join().expect("no panic")
        });
        let open = session.begin().expect("a worker");
        open.insert(people, &person(1, 3)).expect("a new key");
        thread::scope(|scope| {
            let moved = scope.spawn(move || {
                open.update(people, &(1, Reverse(3)), |row| row.set_badge(33)).expect("no conflict");
                open.commit().expect("no conflict");
            });
            moved.join().expect("no panic");
        });
        let badges =
            session.transact(|tx| tx.scan(people, ..).map(|row| Ok(row?.badge())).collect::<Result<Vec<_>, _>>());
        assert_eq!(badges.expect("no conflict").value, [33, 1002, 1001]);
    });
}

#[test]
fn many_sessions_share_few_workers() {
    each(|setting| {
        let db = setting.builder().workers(2).open().expect("valid");
        let people = db.create().expect("valid");
        let mut sessions: Vec<Session> = (0..50).map(|_| db.session()).collect();
        for (number, session) in (0..).zip(&mut sessions) {
            session.transact(|tx| tx.insert(&people, &person(1, number))).expect("a worker");
        }
        thread::scope(|scope| {
            for (part, sessions) in (2..).zip(sessions.chunks_mut(10)) {
                let people = &people;
                scope.spawn(move || {
                    for (number, session) in (0..).zip(sessions) {
                        let mut insert = || session.transact(|tx| tx.insert(people, &person(part, number)));
                        // The transaction that has the worker may get no processor time.
                        let free =
                            iter::repeat_with(&mut insert).find(|it| !matches!(it, Err(TransactError::WorkersBusy)));
                        free.expect("it goes on until it has one").expect("a worker");
                    }
                });
            }
        });
        let count = sessions[0].snapshot(|tx| Ok(tx.scan(&people, ..).count()));
        assert_eq!(*count.expect("a worker"), 100);
    });
}

#[test]
fn a_session_gets_an_error_when_every_worker_stays_busy() {
    // One wait up to the limit is enough: the pool does not depend on protocols or back ends.
    let db = Database::builder().workers(1).open().expect("valid");
    let people = db.create().expect("valid");
    let (mut first, mut second) = (db.session(), db.session());
    let open = first.begin().expect("the worker");
    open.insert(&people, &person(1, 1)).expect("a new key");
    let asked = clock::Instant::now();
    let error = second.transact(|tx| tx.insert(&people, &person(1, 2))).expect_err("the worker is busy");
    assert!(matches!(error, TransactError::WorkersBusy) && error.is_retryable(), "{error:?}");
    assert_eq!(error.to_string(), "every worker has an open transaction; allow more workers or end some transactions");
    assert!(asked.elapsed() >= Duration::from_millis(100), "it waits for a while before it gives up");
    open.commit().expect("no conflict");
    // A waiting session gets the worker that becomes free.
    loop {
        let (open, began) = (first.begin().expect("the worker"), Instant::now());
        let (waited, freed) = thread::scope(|scope| {
            let waiting = scope.spawn(|| second.transact(|tx| tx.insert(&people, &person(1, 2))).map(|_| ()));
            thread::sleep(Duration::from_millis(20));
            open.commit().expect("no conflict");
            let freed = began.elapsed();
            (waiting.join().expect("no panic"), freed)
        });
        match waited {
            Ok(()) => break,
            // This thread got no processor for about as long as the other session waits.
            Err(TransactError::WorkersBusy) if freed > Duration::from_millis(500) => {}
            Err(error) => panic!("{error}, freed after {freed:?}"),
        }
    }
    let count = first.transact(|tx| Ok(tx.scan(&people, ..).count()));
    assert_eq!(*count.expect("a worker"), 2);
}

#[test]
fn a_transaction_that_stays_open_too_long_is_stopped() {
    each(|setting| {
        let builder = setting.builder().step_helpers(true).epoch_interval(Duration::from_millis(10));
        let db = builder.transaction_age_max(Duration::from_millis(50)).open().expect("valid");
        let people = db.create().expect("valid");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let open = session.begin().expect("a worker");
        for _ in 0..5 {
            db.step();
            open.get(&people, &(1, Reverse(1))).expect("still young");
        }
        open.insert(&people, &person(1, 2)).expect("still young");
        db.step();
        let abort = open.get(&people, &(1, Reverse(1))).expect_err("too old");
        let error = open.explain(&abort);
        assert!(matches!(error, TransactError::TooOld) && error.is_retryable(), "{error:?}");
        assert!(open.commit().is_err());
        let count = session.transact(|tx| Ok(tx.scan(&people, ..).count()));
        assert_eq!(*count.expect("the session goes on"), 1);
    });
}

/// A cancelled transaction of any kind can neither make a call, nor commit, nor begin another attempt. The next
/// transaction is not affected.
#[test]
fn a_transaction_is_cancelled_and_the_next_is_not() {
    each(|setting| {
        let db = setting.open();
        let people = db.create().expect("valid");
        let mut session = db.session();
        let canceller = session.canceller();
        let cancelled = |result: Result<(), TransactError>| {
            let error = result.expect_err("it was cancelled");
            assert!(matches!(error, TransactError::Cancelled) && !error.is_retryable(), "{error}");
        };
        cancelled(
            session
                .transact(|tx| {
                    tx.insert(&people, &person(1, 1))?;
                    canceller.cancel();
                    Ok(())
                })
                .map(drop),
        );
        cancelled(
            session
                .transact(|tx| {
                    canceller.cancel();
                    assert!(tx.insert(&people, &person(1, 1)).is_err());
                    Ok(())
                })
                .map(drop),
        );
        cancelled(
            session
                .snapshot(|_| {
                    canceller.cancel();
                    Ok(())
                })
                .map(drop),
        );
        let open = session.begin().expect("a worker");
        canceller.cancel();
        let abort = open.insert(&people, &person(1, 1)).expect_err("it was cancelled");
        assert!(matches!(open.explain(&abort), TransactError::Cancelled));
        cancelled(open.commit().map(drop));
        // Between two transactions there is nothing to cancel.
        canceller.cancel();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("it was not cancelled");
        assert_eq!(*session.transact(|tx| tx.count(&people, ..)).expect("it was not cancelled"), 1);
        let counted = db
            .statistics()
            .aborts
            .iter()
            .filter(|(cause, _)| cause.reason == Reason::Cancelled)
            .map(|(_, count)| count)
            .sum::<u64>();
        assert_eq!(counted, 4);
    });
}

/// A transaction of any kind that is too old can neither make a call nor commit.
#[test]
fn an_attempt_that_is_too_old_does_not_commit() {
    each(|setting| {
        let builder = setting.builder().step_helpers(true).epoch_interval(Duration::from_millis(10));
        let db = builder.transaction_age_max(Duration::from_millis(50)).open().expect("valid");
        let people = db.create().expect("valid");
        let mut session = db.session();
        let wait = |steps: u32| (0..steps).for_each(|_| db.step());
        let too_old = |result: Result<(), TransactError>| assert!(matches!(result, Err(TransactError::TooOld)));
        let insert_and_wait = |tx: &Tx, steps| {
            tx.insert(&people, &person(1, 1))?;
            wait(steps);
            Ok(())
        };
        let linger = |steps| {
            move |_: &ReadTx| {
                wait(steps);
                Ok(())
            }
        };
        // Without a further call the commit fails. With one, both the call and the commit fail, even if the body
        // ignores the error.
        too_old(session.transact(|tx| insert_and_wait(tx, 6)).map(drop));
        too_old(session.submit(|tx| insert_and_wait(tx, 6)).wait().map(drop));
        let swallowed = session.transact(|tx| {
            wait(6);
            assert!(tx.get(&people, &(1, Reverse(1))).is_err());
            Ok(())
        });
        too_old(swallowed.map(drop));
        too_old(session.snapshot(linger(6)).map(drop));
        let open = session.begin().expect("a worker");
        open.insert(&people, &person(1, 1)).expect("young");
        wait(6);
        too_old(open.commit().map(drop));
        let open = session.begin_snapshot().expect("a worker");
        wait(6);
        too_old(open.finish().map(drop));

        // A transaction may have its own age limit, shorter or longer; the next one has that of the session again.
        let [brief, patient] = [20, 1000].map(|age| TransactionOptions::new().age_max(Duration::from_millis(age)));
        too_old(session.transact_with(&brief, |tx| insert_and_wait(tx, 3)).map(drop));
        session.transact_with(&patient, |tx| insert_and_wait(tx, 20)).expect("within its age");
        session.snapshot_with(&patient, linger(20)).expect("within its age");
        too_old(session.snapshot_with(&brief, linger(3)).map(drop));
        too_old(session.snapshot(linger(6)).map(drop));
        let open = session.begin_with(&patient).expect("a worker");
        wait(20);
        open.delete(&people, &(1, Reverse(1))).expect("within its age");
        open.commit().expect("within its age");
        let open = session.begin_snapshot_with(&brief).expect("a worker");
        wait(3);
        too_old(open.finish().map(drop));
        session.set_options(patient);
        assert_eq!(session.options(), patient);
        session.transact(|tx| insert_and_wait(tx, 20)).expect("within the session's age");
        too_old(session.snapshot_with(&brief, linger(3)).map(drop));
        let count = session.transact(|tx| Ok(tx.scan(&people, ..).count()));
        assert_eq!(*count.expect("the session goes on"), 1);
    });
}

/// Ages follow the clock of the background thread, not epochs, which can advance faster.
#[test]
fn an_attempt_ages_with_time() {
    each(|setting| {
        let age = Duration::from_millis(30);
        let db = setting.builder().transaction_age_max(age).open().expect("valid");
        let people = db.create::<crate::common::Person>().expect("valid");
        let mut session = db.session();
        let began = Instant::now();
        let slow: Result<Committed<()>, _> = session.transact(|tx| {
            loop {
                tx.get(&people, &(1, Reverse(1)))?;
            }
        });
        assert!(matches!(slow, Err(TransactError::TooOld)) && began.elapsed() >= age, "{slow:?}");
    });
}

#[test]
fn the_database_lives_as_long_as_its_last_session() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        drop(db);
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let count = session.transact(|tx| Ok(tx.scan(&people, ..).count()));
        assert_eq!(*count.expect("no conflict"), 1);
    });
}

/// Of two transactions, the older waits for the younger one, which does nothing. Returns why the older one gives up.
/// It has this age limit; the other one may be older.
fn reasons_of_a_wait_that_ends(wait: Duration, age: Duration, is_cancelled: bool) -> Vec<Reason> {
    let reason = |asks: usize| {
        let builder = Database::builder().protocol("wait-die").protocol_option("wait_max_us", wait.as_micros() as u64);
        let db = builder.open().expect("valid");
        let people = db.create::<crate::common::Person>().expect("valid");
        let insert = |tx: &Tx| (1..=2).try_for_each(|part| tx.insert(&people, &person(part, 1)));
        db.session().transact(insert).expect("no conflict");
        let mut sessions = [db.session(), db.session()];
        let mut ages = [TransactionOptions::new(); 2];
        ages[asks] = ages[asks].age_max(age);
        let canceller = sessions[asks].canceller();
        let [first, second] = &mut sessions;
        let open = [first.begin_with(&ages[0]).expect("a worker"), second.begin_with(&ages[1]).expect("a worker")];
        open[1 - asks].delete(&people, &(1, Reverse(1))).expect("no other transaction has it");
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Cancels only while it waits; a transaction that does not wait has ended by then.
                let began = Instant::now();
                while is_cancelled && !has_ended.load(Ordering::Acquire) && began.elapsed() < Duration::from_secs(1) {
                    thread::sleep(Duration::from_millis(5));
                }
                if is_cancelled {
                    canceller.cancel();
                }
            });
            let refused = open[asks].get(&people, &(1, Reverse(1))).expect_err("it is locked");
            has_ended.store(true, Ordering::Release);
            refused.cause().expect("no mistake").reason
        })
    };
    // Their workers determine which of them is older; the younger one does not wait.
    [0, 1].map(reason).into_iter().filter(|reason| *reason != Reason::RecordLocked).collect()
}

#[test]
fn a_wait_ends_by_its_bound_by_the_age_or_cancelled_and_says_which() {
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(50));
    assert_eq!(reasons_of_a_wait_that_ends(short, long, false), [Reason::WaitTimeout]);
    assert_eq!(reasons_of_a_wait_that_ends(long, short, false), [Reason::TooOld]);
    assert_eq!(reasons_of_a_wait_that_ends(long, long, true), [Reason::Cancelled]);
}
