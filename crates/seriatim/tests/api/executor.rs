//! Transactions that are run elsewhere.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use seriatim::{Abort, Database, Handle, OpenError, Table, Tx, thread};

use crate::common::{Setting, each};

#[derive(Table)]
#[table(name = "counter", key(id))]
struct Counter {
    id: u32,
    n: u64,
}

/// A database with a counter at zero.
fn counter(setting: &Setting) -> (Database, Handle<Counter>) {
    let db = setting.open();
    let counters = db.create().expect("a valid table");
    db.session().transact(|tx| tx.insert(&counters, &Counter { id: 1, n: 0 })).expect("a new key");
    (db, counters)
}

fn count(tx: &Tx, counters: &Handle<Counter>) -> Result<(), Abort> {
    let counted = tx.update(counters, &1, |counter| counter.set_n(counter.n() + 1))?;
    assert!(counted.is_some());
    Ok(())
}

fn counted(db: &Database, counters: &Handle<Counter>) -> u64 {
    let counted = db.session().snapshot(|tx| Ok(tx.get(counters, &1)?.expect("it was inserted").n()));
    counted.expect("no conflict").value
}

#[test]
fn one_caller_has_many_transactions_under_way_and_each_runs_once() {
    const TIMES: u64 = 200;
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(3).expect("threads");
        let running: Vec<_> = (0..TIMES)
            .map(|_| {
                let counters = counters.clone();
                executor.run(move |session| session.transact(|tx| count(tx, &counters)).map(drop))
            })
            .collect();
        running.into_iter().for_each(|running| running.wait().expect("it is retried"));
        assert_eq!(counted(&db, &counters), TIMES);
        if let Some(queue) = db.statistics().queue {
            assert!(queue.decisions > TIMES && queue.batches <= queue.decisions, "{queue:?}");
        }
    });
}

#[test]
fn a_panic_is_its_callers_and_the_executor_goes_on() {
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(1).expect("a thread");
        let failing =
            executor.run(|session| session.transact(|_| -> Result<(), Abort> { panic!("deliberately") }).map(drop));
        catch_unwind(AssertUnwindSafe(|| failing.wait()))
            .expect_err("it panicked")
            .downcast::<&str>()
            .expect("what it said");
        let ran = executor.run(move |session| session.transact(|tx| count(tx, &counters)).is_ok());
        assert!(ran.wait());
    });
}

#[test]
fn dropping_it_waits_for_what_it_was_given() {
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(2).expect("threads");
        for _ in 0..20 {
            let counters = counters.clone();
            drop(executor.run(move |session| session.transact(|tx| count(tx, &counters)).map(drop)));
        }
        drop(executor);
        assert_eq!(counted(&db, &counters), 20);
    });
}

#[test]
fn an_executor_without_threads_is_refused() {
    each(|setting| {
        let db = setting.open();
        let refused = db.executor(0).expect_err("nobody would run anything");
        assert!(matches!(&refused, OpenError::Invalid(what) if what.contains("at least 1")), "{refused}");
        let refused = thread::granted(1, || db.executor(2)).expect_err("the system grants one");
        assert!(matches!(refused, OpenError::Thread(_)), "{refused}");
    });
}

struct Woken(AtomicU32, thread::Thread);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.fetch_add(1, Ordering::Release);
        self.1.unpark();
    }
}

#[test]
fn as_a_future_it_wakes_who_polled_it() {
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(1).expect("a thread");
        let (go, gate) = std::sync::mpsc::channel();
        let running = executor.run(move |session| {
            gate.recv().expect("it is let go");
            session.transact(|tx| count(tx, &counters)).is_ok()
        });
        let woken = Arc::new(Woken(AtomicU32::new(0), thread::current()));
        let waker = Waker::from(Arc::clone(&woken));
        let (mut running, mut context) = (pin!(running), Context::from_waker(&waker));
        assert_eq!(running.as_mut().poll(&mut context), Poll::Pending);
        go.send(()).expect("it waits for that");
        while woken.0.load(Ordering::Acquire) == 0 {
            thread::park();
        }
        assert_eq!(running.poll(&mut context), Poll::Ready(true));
    });
}
