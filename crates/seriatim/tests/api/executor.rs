//! Transactions that run on the threads of an executor.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use seriatim::clock::Instant;
use seriatim::history::{self, Promises};
use seriatim::procedure::ExecutionMode;
use seriatim::{
    Abort, Database, Executor, Handle, OpenError, Running, Table, TransactError, TransactionOptions, Tx, procedure,
    procedures, thread,
};

use crate::common::{Setting, each, in_batches};

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
    tx.update(counters, &1, |counter| counter.set_n(counter.n() + 1))
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
        running.into_iter().for_each(|running| ran(running).expect("it is retried"));
        assert_eq!(counted(&db, &counters), TIMES);
        if let Some(queue) = db.statistics().queue {
            assert!(queue.decisions > TIMES && queue.batches <= queue.decisions, "{queue:?}");
        }
    });
}

#[test]
fn a_panic_reaches_its_caller_and_the_executor_continues() {
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(1).expect("a thread");
        let failing =
            executor.run(|session| session.transact(|_| -> Result<(), Abort> { panic!("deliberately") }).map(drop));
        catch_unwind(AssertUnwindSafe(|| failing.wait()))
            .expect_err("it panicked")
            .downcast::<&str>()
            .expect("what it said");
        let next = executor.run(move |session| session.transact(|tx| count(tx, &counters)).is_ok());
        assert!(ran(next));
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
        let refused = db.executor(0).expect_err("no thread would run a call");
        assert!(matches!(&refused, OpenError::Setting { setting: "executor threads", .. }), "{refused}");
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
fn as_a_future_it_wakes_the_task_that_polled_it() {
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
        assert!(running.as_mut().poll(&mut context).is_pending());
        go.send(()).expect("it waits for that");
        while woken.0.load(Ordering::Acquire) == 0 {
            thread::park();
        }
        assert!(matches!(running.poll(&mut context), Poll::Ready(Ok(true))));
    });
}

/// A time that no test waits for, unless it fails or the machine stands still: the longest wait of a batch.
const LONG: Duration = Duration::from_secs(30);

/// Waits for the value of a closure that is run.
fn ran<R>(running: Running<Result<R, TransactError>>) -> R {
    wait_for(running).expect("it is not cancelled")
}

/// Waits until a result is said to be there, and takes it.
fn wait_for<R>(running: Running<R>) -> R {
    while !running.is_done() {
        thread::sleep(Duration::from_millis(1));
    }
    running.wait()
}

/// Runs a test in databases whose decisions are queued in batches of 8, which wait until they are full.
fn each_in_batches(test: impl Fn(Database, Handle<Counter>)) {
    for builder in in_batches(8, LONG) {
        let db = builder.open().expect("valid options");
        let counters = db.create::<Counter>().expect("a valid table");
        // Enough to fill batches: a transaction alone would wait for others.
        let executor = db.executor(1).expect("a thread");
        let inserted: Vec<_> = (0..64)
            .map(|id| {
                let counters = counters.clone();
                executor.transact(move |tx| tx.insert(&counters, &Counter { id, n: 0 }))
            })
            .collect();
        inserted.into_iter().for_each(|inserted| assert_eq!(inserted.wait().expect("a new key").attempts, 1));
        test(db, counters);
    }
}

#[procedure]
fn add(tx: &Tx, id: u32, amount: u64) -> Result<u64, Abort> {
    let n = tx.update::<Counter>(id, |counter| {
        counter.n += amount;
        counter.n
    })?;
    Ok(n)
}

#[procedure]
fn look(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let counter = tx.require::<Counter>(id)?;
    Ok(counter.n)
}

#[test]
fn one_thread_executes_many_transactions_that_are_decided_in_one_batch() {
    each_in_batches(|db, counters| {
        db.register(procedures![add]).expect("a sound set");
        // Whether the round was shorter than the wait of a batch. Only then its batches are known to be full, and none
        // has waited.
        let is_prompt = |threads: usize| {
            let before = db.statistics();
            let executor = db.executor(threads).expect("threads");
            let began = Instant::now();
            // No transaction begins before all are queued: otherwise a partial batch would be decided, since no other
            // transaction is open. The transactions that ensure this are decided as well.
            let queued = Arc::new([Barrier::new(threads + 1), Barrier::new(threads + 1)]);
            let held: Vec<_> = (0..threads)
                .map(|_| {
                    let queued = Arc::clone(&queued);
                    executor.transact(move |_| {
                        for barrier in queued.iter() {
                            barrier.wait();
                        }
                        Ok(())
                    })
                })
                .collect();
            queued[0].wait();
            let closures = (threads as u32..32).map(|id| {
                let counters = counters.clone();
                executor.transact(move |tx| tx.update(&counters, &id, |counter| counter.set_n(1)).map(drop))
            });
            let closures: Vec<_> = closures.collect();
            let calls: Vec<_> = (32..64).map(|id| executor.call(add, (id, 1))).collect();
            queued[1].wait();
            held.into_iter().for_each(|held| assert_eq!(held.wait().expect("it does nothing").attempts, 1));
            closures.into_iter().for_each(|running| assert_eq!(running.wait().expect("its own row").attempts, 1));
            calls.into_iter().for_each(|running| assert_eq!(running.wait().expect("its own row").attempts, 1));
            let queue = db.statistics().since(&before).queue.expect("it is queued");
            // With two threads, one may be between two bodies when the other checks whether another transaction is
            // open.
            let batches = if threads == 1 { 8..=8 } else { 8..=32 };
            let is_prompt = began.elapsed() < LONG;
            let is_full = queue.decisions == 64 && batches.contains(&queue.batches);
            assert!(is_full || !is_prompt, "{queue:?}");
            is_prompt
        };
        for threads in 1..=2 {
            while !is_prompt(threads) {}
        }
    });
}

#[test]
fn transactions_of_one_thread_that_are_in_each_others_way_are_run_again() {
    const TIMES: u64 = 200;
    each(|setting| {
        let (db, counters) = counter(setting);
        db.register(procedures![add, look]).expect("a sound set");
        for threads in [1, 3] {
            let before = counted(&db, &counters);
            let executor = db.executor(threads).expect("threads");
            let mut running: Vec<_> = (0..TIMES)
                .map(|n| {
                    let counters = counters.clone();
                    match n % 4 {
                        0 => executor.run(move |session| session.transact(|tx| count(tx, &counters)).map(drop)),
                        _ => executor.run(|_| Ok(())),
                    }
                })
                .collect();
            let transactions: Vec<_> = (0..TIMES)
                .map(|_| {
                    let counters = counters.clone();
                    executor.transact(move |tx| count(tx, &counters))
                })
                .collect();
            let calls: Vec<_> = (0..TIMES).map(|_| (executor.call(add, (1, 1)), executor.call(look, 1))).collect();
            running.drain(..).for_each(|running| ran(running).expect("it is retried"));
            let mut attempts = 0;
            for running in transactions {
                attempts += wait_for(running).expect("it is retried").attempts;
            }
            assert!(u64::from(attempts) >= TIMES);
            let mut values: Vec<u64> = Vec::new();
            for (added, looked) in calls {
                values.push(wait_for(added).expect("it is retried").value);
                assert!(wait_for(looked).expect("it is retried").value >= before);
            }
            values.sort_unstable();
            values.dedup();
            assert_eq!(values.len() as u64, TIMES, "each saw the one before");
            assert_eq!(counted(&db, &counters), before + TIMES / 4 + 2 * TIMES);
        }
    });
}

/// Two threads of transactions that each read two rows and change one of them.
#[test]
fn transactions_of_an_executor_are_serializable() {
    each(|setting| {
        let db = setting.builder().record_history(true).open().expect("a valid setting");
        let counters = db.create::<Counter>().expect("a valid table");
        let executor = db.executor(2).expect("threads");
        let load = {
            let counters = counters.clone();
            executor.transact(move |tx| (0..8).try_for_each(|id| tx.insert(&counters, &Counter { id, n: 0 })))
        };
        load.wait().expect("new keys");
        let running: Vec<_> = (0..400u32)
            .map(|n| {
                let counters = counters.clone();
                executor.transact(move |tx| {
                    let (one, other) = (n % 8, n * 5 % 7);
                    let seen = tx.get(&counters, &other)?.expect("it was inserted").n();
                    if n % 50 == 0 {
                        tx.insert(&counters, &Counter { id: 1000 + n, n: 0 })?;
                    }
                    tx.update(&counters, &one, |counter| counter.set_n(counter.n() + seen % 3 + 1))?;
                    let rows =
                        if n % 10 == 0 { tx.scan(&counters, ..).collect::<Result<Vec<_>, _>>()?.len() } else { 8 };
                    assert!(rows >= 8);
                    Ok(())
                })
            })
            .collect();
        running.into_iter().for_each(|running| assert!(wait_for(running).is_ok()));
        drop(executor);
        let history = db.take_history().expect("it was recorded");
        let strict = setting.protocol.capabilities.strict;
        let promises = if strict { Promises::STRICT } else { Promises::SERIALIZABLE };
        let summary = history::check(&history, &promises);
        assert!(summary.is_ok(), "{:?}", summary.err());
    });
}

/// Another transaction occupies one of the two workers. The executor's thread must not wait for a worker while it
/// occupies the other.
#[test]
fn a_thread_that_finds_no_worker_decides_what_it_has_executed() {
    each(|setting| {
        let db = setting.builder().workers(2).open().expect("a valid setting");
        let counters = db.create::<Counter>().expect("a valid table");
        let mut session = db.session();
        let open = session.begin().expect("a worker");
        let executor = db.executor(1).expect("a thread");
        // If any transaction waited for a worker, every second one would wait for a second, in each round.
        let is_prompt = |round: u32| {
            let began = Instant::now();
            let running: Vec<_> = (0..40)
                .map(|id| {
                    let (counters, id) = (counters.clone(), 40 * round + id);
                    executor.transact(move |tx| tx.insert(&counters, &Counter { id, n: 0 }))
                })
                .collect();
            running.into_iter().for_each(|running| assert!(wait_for(running).is_ok()));
            began.elapsed() < Duration::from_secs(20)
        };
        assert!((0..).any(is_prompt));
        drop(open);
    });
}

#[test]
fn errors_and_panics_of_transactions_are_their_callers() {
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(1).expect("a thread");
        let duplicate = {
            let counters = counters.clone();
            executor.transact(move |tx| tx.insert(&counters, &Counter { id: 1, n: 0 }))
        };
        let own = executor.transact(|tx| -> Result<(), Abort> { Err(tx.abort("deliberately")) });
        let panicking = executor.transact(|_| -> Result<(), Abort> { panic!("deliberately") });
        let counting = {
            let counters = counters.clone();
            executor.transact(move |tx| count(tx, &counters))
        };
        let unknown = executor.call(look, 1);
        assert!(matches!(wait_for(duplicate), Err(TransactError::Duplicate { .. })));
        assert!(matches!(wait_for(own), Err(TransactError::User(error)) if error.to_string() == "deliberately"));
        let panic = catch_unwind(AssertUnwindSafe(|| wait_for(panicking))).expect_err("it panicked");
        assert_eq!(*panic.downcast::<&str>().expect("what it said"), "deliberately");
        assert!(wait_for(counting).is_ok());
        assert!(matches!(wait_for(unknown), Err(TransactError::UnknownProcedure { .. })));
        assert_eq!(counted(&db, &counters), 1);
        assert_eq!(db.statistics().overdue, 0);
    });
}

/// The thread first has everything queued before decided and acknowledged.
#[test]
fn a_function_that_an_executor_runs_may_wait_for_earlier_transactions() {
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(1).expect("a thread");
        for _ in 0..20 {
            let transactions: Vec<_> = (0..3)
                .map(|_| {
                    let counters = counters.clone();
                    executor.transact(move |tx| count(tx, &counters))
                })
                .collect();
            let waiting = executor.run(move |_| transactions.into_iter().all(|running| running.wait().is_ok()));
            assert!(ran(waiting));
        }
        assert_eq!(counted(&db, &counters), 60);
    });
}

#[test]
fn where_procedures_run_in_pieces_or_are_checked_calls_are_whole() {
    for builder in in_batches(4, Duration::ZERO) {
        for pieces in [false, true] {
            let execution_mode = if pieces { ExecutionMode::Pieces } else { ExecutionMode::Whole };
            let builder = builder.clone().execution_mode(execution_mode);
            let db = builder.check_plans(!pieces).open().expect("a valid setting");
            let counters = db.create::<Counter>().expect("a valid table");
            db.session().transact(|tx| tx.insert(&counters, &Counter { id: 1, n: 0 })).expect("a new key");
            db.register(procedures![add]).expect("a sound set");
            let executor = db.executor(2).expect("threads");
            let running: Vec<_> = (0..60)
                .map(|_| {
                    let counters = counters.clone();
                    (executor.call(add, (1, 1)), executor.transact(move |tx| count(tx, &counters)))
                })
                .collect();
            for (added, counted) in running {
                wait_for(added).expect("it is retried");
                wait_for(counted).expect("it is retried");
            }
            assert_eq!(counted(&db, &counters), 120);
        }
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            std::panic::panic_any(Shrapnel);
        }
    }
}

/// The panic payload of a bomb, which panics when it is dropped too.
struct Shrapnel;

impl Drop for Shrapnel {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("deliberately");
        }
    }
}

impl Wake for Bomb {
    fn wake(self: Arc<Bomb>) {
        panic!("deliberately");
    }
}

/// An executor with one thread, which is busy until the sender is used.
fn held_up(db: &Database) -> (Executor, mpsc::Sender<()>) {
    let executor = db.executor(1).expect("a thread");
    let (go, gate) = mpsc::channel();
    drop(executor.run(move |_| gate.recv().expect("it is let go")));
    (executor, go)
}

#[test]
fn an_executor_outlives_panics_of_dropped_answers_and_of_wakers() {
    each(|setting| {
        let db = setting.open();
        let (executor, go) = held_up(&db);
        drop(executor.run(|_| Bomb));
        drop(executor.transact(|_| Ok(Bomb)));
        let bomb = Bomb;
        let bombed = executor.transact(move |_| {
            let _ = &bomb;
            Ok(())
        });
        let mut polled = pin!(executor.run(|_| 7));
        let waker = Waker::from(Arc::new(Bomb));
        assert!(polled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        go.send(()).expect("it waits for that");
        assert_eq!(ran(executor.run(|_| 8)), 8);
        let panic = catch_unwind(AssertUnwindSafe(|| wait_for(bombed))).expect_err("what it captured panicked");
        std::mem::forget(panic);
        assert!(matches!(polled.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(7))));
        std::mem::forget(waker);
    });
}

#[test]
fn a_session_is_as_at_first_for_each_work() {
    each(|setting| {
        let (db, counters) = counter(setting);
        let executor = db.executor(1).expect("a thread");
        let brief = TransactionOptions::new().age_max(Duration::ZERO).wait_max(Duration::ZERO);
        ran(executor.run(move |session| session.set_options(brief)));
        assert_eq!(ran(executor.run(|session| session.options())), TransactionOptions::new());
        executor.transact(move |tx| count(tx, &counters)).wait().expect("it is not too old");
    });
}

#[test]
fn an_answer_is_taken_once() {
    let db = Database::in_memory().expect("memory");
    let (executor, go) = held_up(&db);
    let mut running = executor.run(|_| 7);
    let mut context = Context::from_waker(Waker::noop());
    assert!(!running.is_done());
    assert!(pin!(&mut running).poll(&mut context).is_pending());
    assert!(!running.is_done());
    go.send(()).expect("it waits for that");
    while !running.is_done() {
        thread::yield_now();
    }
    assert!(matches!(pin!(&mut running).poll(&mut context), Poll::Ready(Ok(7))));
    assert!(running.is_done());
    let said = |panicked: Result<_, Box<dyn std::any::Any + Send>>| {
        let said = panicked.map(|_| ()).expect_err("it was taken");
        assert_eq!(*said.downcast::<&str>().expect("a text"), "`Running` polled or waited for after completion");
    };
    said(catch_unwind(AssertUnwindSafe(|| pin!(&mut running).poll(&mut context))));
    // In a separate thread: if it waits, it waits for ever.
    let (tell, told) = mpsc::channel();
    let waiting = move || tell.send(catch_unwind(AssertUnwindSafe(|| running.wait()))).expect("it is listened to");
    let waiting = thread::spawn("waiting", waiting).expect("a thread");
    said(told.recv().expect("it does not wait").map(|_| Poll::Pending));
    waiting.join().expect("no panic");
}

#[test]
fn an_executor_that_its_own_work_drops_runs_what_it_was_given() {
    each(|setting| {
        let (db, counters) = counter(setting);
        for threads in 1..=2 {
            let before = counted(&db, &counters);
            let executor = db.executor(threads).expect("threads");
            let (give, given) = mpsc::channel::<Executor>();
            let dropped = executor.run(move |_| drop(given.recv().expect("it is given")));
            let behind: Vec<_> = (0..10)
                .map(|_| {
                    let counters = counters.clone();
                    executor.transact(move |tx| count(tx, &counters))
                })
                .collect();
            give.send(executor).expect("it waits for that");
            ran(dropped);
            behind.into_iter().for_each(|running| assert!(wait_for(running).is_ok()));
            assert_eq!(counted(&db, &counters), before + 10);
        }
    });
}

/// A transaction in a waiting batch becomes too old and is not committed.
#[test]
fn a_transaction_that_became_too_old_in_the_queue_is_not_committed() {
    for builder in in_batches(8, LONG) {
        // Time passes only in steps, by the same amount in each.
        let open = |interval: Duration| {
            let builder = builder.clone().step_helpers(true).epoch_interval(interval).transaction_age_max(2 * LONG);
            let db = builder.open().expect("valid options");
            let counters = db.create::<Counter>().expect("a valid table");
            (db, counters)
        };
        let (db, counters) = open(Duration::from_millis(10));
        let brief = TransactionOptions::new().age_max(Duration::from_millis(50));
        let insert = |tx: &Tx| tx.insert(&counters, &Counter { id: 1, n: 0 });
        // A batch waits while another transaction is open.
        let mut other = db.session();
        let company = other.begin().expect("a worker");
        let (executed, is_executed) = mpsc::channel();
        let waited = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                db.session().transact_with(&brief, |tx| {
                    insert(tx)?;
                    executed.send(()).expect("it is listened to");
                    Ok(())
                })
            });
            is_executed.recv().expect("it is executed");
            // Mostly it is in the queue after this pause. Otherwise it is too old before, and the outcome is the same.
            thread::sleep(Duration::from_millis(50));
            (0..8).for_each(|_| db.step());
            drop(company);
            waiting.join().expect("no panic")
        });
        assert!(matches!(waited, Err(TransactError::TooOld)), "{waited:?}");
        db.session().transact(insert).expect("the key is free");
        let (db, counters) = open(LONG);
        // The thread executes the first transaction, then is busy with the second for longer than their age limit.
        let (executor, go) = held_up(&db);
        let running = [0, 4].map(|steps| {
            let (db, counters) = (db.clone(), counters.clone());
            executor.transact(move |tx| {
                (0..steps).for_each(|_| db.step());
                tx.insert(&counters, &Counter { id: 1, n: 0 })
            })
        });
        go.send(()).expect("it waits for that");
        for running in running {
            let waited = wait_for(running);
            assert!(matches!(waited, Err(TransactError::TooOld)), "{waited:?}");
        }
    }
}

#[test]
fn a_batch_that_waits_for_as_long_as_a_transaction_may_be_open_is_refused() {
    let age = Duration::from_millis(250);
    let open = |wait| in_batches(8, wait).map(|builder| builder.transaction_age_max(age).open().map(drop));
    open(age - Duration::from_millis(1)).for_each(|opened| opened.expect("it is below"));
    for wait in [age, Duration::from_millis(750)] {
        for refused in open(wait) {
            let said = refused.expect_err("nothing would be committed").to_string();
            assert!(said.contains(&format!("{wait:?}")) && said.contains("250ms"), "{said}");
        }
    }
}

/// An executor whose threads are all busy, until they are released one by one.
fn plugged(db: &Database, threads: usize) -> (Executor, Vec<mpsc::Sender<()>>) {
    let executor = db.executor(threads).expect("threads");
    let (begins, begun) = mpsc::channel();
    let plugs = (0..threads).map(|_| {
        let (go, gate) = mpsc::channel::<()>();
        let begins = begins.clone();
        drop(executor.run(move |_| {
            begins.send(()).expect("the receiver exists");
            gate.recv().is_ok()
        }));
        go
    });
    let plugs: Vec<_> = plugs.collect();
    (0..threads).for_each(|_| begun.recv().expect("each thread has one"));
    assert_eq!(executor.queued(), 0);
    (executor, plugs)
}

/// One of two threads executes a transaction, then begins a body that ends when the transaction is answered. The
/// other thread is busy until that body begins. From then on it is idle or runs short calls.
fn answered_beside_a_long_body(db: &Database, counters: &Handle<Counter>, is_busy: bool) {
    let (executor, mut plugs) = plugged(db, 2);
    let first = {
        let counters = counters.clone();
        executor.transact(move |tx| tx.insert(&counters, &Counter { id: 101, n: 0 }))
    };
    let (begins, begun) = mpsc::channel();
    let (tells, told) = mpsc::channel::<()>();
    let second = {
        let (counters, mut is_told) = (counters.clone(), false);
        executor.transact(move |tx| {
            if !is_told {
                begins.send(()).expect("the receiver exists");
                is_told = told.recv().is_ok();
            }
            tx.insert(&counters, &Counter { id: 102, n: 0 }).map(|()| is_told)
        })
    };
    // One thread executes both.
    drop(plugs.pop());
    begun.recv().expect("it comes to the second");
    plugs.clear();
    while is_busy && !first.is_done() {
        wait_for(executor.transact(|_| Ok(()))).expect("nothing is in its way");
    }
    wait_for(first).expect("a new key");
    tells.send(()).expect("it waits for that");
    assert!(wait_for(second).expect("a new key").into_value());
}

#[test]
fn an_executed_transaction_is_decided_and_answered_while_its_thread_runs_another_body() {
    for builder in in_batches(8, Duration::ZERO) {
        for is_busy in [false, true] {
            println!("busy: {is_busy}");
            let db = builder.clone().open().expect("valid options");
            let counters = db.create::<Counter>().expect("a valid table");
            answered_beside_a_long_body(&db, &counters, is_busy);
        }
    }
}

#[test]
fn a_call_that_waits_for_the_disk_is_answered_while_its_thread_runs_another_body() {
    let directory = std::env::temp_dir().join(format!("seriatim-executor-{}", std::process::id()));
    for is_busy in [false, true] {
        let _ = std::fs::remove_dir_all(&directory);
        let db = Database::builder().path(&directory).durability(seriatim::Durability::Group);
        let db = db.epoch_interval(Duration::from_millis(20)).open().expect("a new directory");
        let counters = db.create::<Counter>().expect("a valid table");
        answered_beside_a_long_body(&db, &counters, is_busy);
        drop((db, counters));
    }
    std::fs::remove_dir_all(&directory).expect("it is closed");
}

/// An executor with one thread, which is busy, and with room for two calls.
fn with_room_for_two() -> (Database, Handle<Counter>, Executor, mpsc::Sender<()>) {
    let db = Database::builder().executor_queue_max(2).open().expect("valid settings");
    let counters = db.create::<Counter>().expect("a valid table");
    let (executor, mut plugs) = plugged(&db, 1);
    let plug = plugs.pop().expect("of one thread");
    (db, counters, executor, plug)
}

#[test]
fn a_full_queue_makes_callers_wait_or_says_so() {
    let (_db, counters, executor, plug) = with_room_for_two();
    let insert = |id| {
        let counters = counters.clone();
        move |tx: &Tx| tx.insert(&counters, &Counter { id, n: 0 })
    };
    let first = executor.try_reserve().expect("room for two").transact(insert(1));
    let room = executor.try_reserve().expect("room for two");
    let full = executor.try_reserve().expect_err("room for two");
    assert_eq!((full.most, executor.queued()), (2, 2));
    assert!(full.to_string().contains("2 calls wait to begin"), "{full}");
    drop(room);
    let second = executor.transact(insert(2));
    assert!(executor.try_reserve().is_err());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| executor.transact(insert(3)).wait());
        drop(plug);
        waits.join().expect("no panic").expect("a new key");
    });
    for running in [first, second] {
        wait_for(running).expect("a new key");
    }
    assert_eq!(executor.queued(), 0);
}

#[test]
fn a_body_gives_its_own_executor_work_although_the_queue_is_full() {
    let (_db, _, executor, plug) = with_room_for_two();
    let executor = Arc::new(executor);
    let own = Arc::clone(&executor);
    let from_within = executor.run(move |_| (0..5).map(|n| own.run(move |_| n)).collect::<Vec<_>>());
    drop(plug);
    let inner = ran(from_within).into_iter().map(ran);
    assert!(inner.eq(0..5));
}

#[test]
fn a_queue_without_room_is_refused_and_one_without_bound_works() {
    let refused = Database::builder().executor_queue_max(0).open().expect_err("nothing would run");
    assert!(refused.to_string().contains("executor_queue_max is 0; it can be 1 to"), "{refused}");
    let db = Database::builder().executor_queue_max(usize::MAX).open().expect("valid settings");
    let executor = db.executor(1).expect("a thread");
    assert_eq!(ran(executor.run(|_| 7)), 7);
}

#[test]
fn a_call_cancelled_before_it_begins_is_not_run_and_makes_room_at_once() {
    let (db, counters, executor, plug) = with_room_for_two();
    let ran = Arc::new(AtomicU32::new(0));
    let [cancelled, kept] = std::array::from_fn(|id| {
        let (counters, ran) = (counters.clone(), Arc::clone(&ran));
        executor.transact(move |tx| {
            ran.fetch_add(1, Ordering::Relaxed);
            tx.insert(&counters, &Counter { id: id as u32, n: 0 })
        })
    });
    assert!(cancelled.cancel() && cancelled.cancel(), "it has not begun");
    assert_eq!(executor.queued(), 1);
    // The result arrives while the only thread is busy.
    let error = cancelled.wait().expect_err("it was cancelled");
    assert!(matches!(error, TransactError::Cancelled), "{error}");
    drop(plug);
    wait_for(kept).expect("a new key");
    drop(executor);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    let found = db.session().snapshot(|tx| Ok(tx.get(&counters, &0)?.is_some()));
    assert!(!found.expect("no conflict").value);
}

fn cancel<R>(running: Running<Result<R, TransactError>>) {
    assert!(running.cancel() && running.is_done(), "it has not begun");
    assert!(matches!(running.wait(), Err(TransactError::Cancelled)));
}

#[test]
fn work_by_itself_that_is_cancelled_before_it_begins_is_not_run() {
    let (_db, _, executor, plug) = with_room_for_two();
    let times = Arc::new(AtomicU32::new(0));
    let [cancelled, kept] = [3, 4].map(|value| {
        let times = Arc::clone(&times);
        executor.run(move |_| (times.fetch_add(1, Ordering::Relaxed), value).1)
    });
    cancel(cancelled);
    assert_eq!(executor.queued(), 1);
    drop(plug);
    assert_eq!(ran(kept), 4);
    drop(executor);
    assert_eq!(times.load(Ordering::Relaxed), 1);
}

#[test]
fn cancelled_calls_do_not_stay_in_the_queue() {
    let of_partitions = Database::builder().executor_queue_max(2).partitions(2).open().expect("valid settings");
    let (_plain, _, executor, plug) = with_room_for_two();
    let (owned, plugs) = plugged(&of_partitions, 1);
    let tokens = [(&executor, None), (&owned, Some(1))].map(|(executor, partition)| {
        let token = Arc::new(());
        for at in 0..200 {
            let held = Arc::clone(&token);
            // The closure owns the token; its body is never run.
            let body = move |_: &Tx| Ok(Arc::strong_count(&held));
            let held = Arc::clone(&token);
            match (at % 2, partition) {
                (0, _) => cancel(executor.run(move |_| Arc::strong_count(&held))),
                (_, None) => cancel(executor.transact(body)),
                (_, Some(partition)) => cancel(executor.transact_at(partition, body)),
            }
            assert!(Arc::strong_count(&token) <= 1 + 17, "{} closures after {at} calls", Arc::strong_count(&token));
        }
        assert_eq!(executor.queued(), 0);
        let last = executor.transact(|_| Ok(7));
        assert!(!last.is_done());
        token
    });
    drop((plug, plugs, executor, owned));
    assert!(tokens.iter().all(|token| Arc::strong_count(token) == 1));
}

#[test]
fn work_by_itself_that_is_cancelled_runs_no_further_transaction() {
    let db = Database::builder().open().expect("in memory");
    let counters = db.create::<Counter>().expect("a valid table");
    let executor = db.executor(1).expect("a thread");
    let (begins, begun) = mpsc::channel();
    let (tells, told) = mpsc::channel::<()>();
    let running = executor.run(move |session| {
        session.transact(|tx| tx.insert(&counters, &Counter { id: 1, n: 0 })).expect("a new key");
        begins.send(()).expect("somebody listens");
        told.recv().expect("it is told");
        let first = session.transact(|_| Ok(()));
        assert!(matches!(first, Err(TransactError::Cancelled)));
        session.snapshot(|_| Ok(()))
    });
    begun.recv().expect("it begins");
    assert!(!running.cancel(), "it has begun");
    tells.send(()).expect("it waits for that");
    assert!(matches!(ran(running), Err(TransactError::Cancelled)));
    assert_eq!(ran(executor.run(|session| session.transact(|_| Ok(7)))).expect("it is not cancelled").value, 7);
}

#[test]
fn a_call_cancelled_while_it_runs_ends_and_the_next_of_its_session_does_not() {
    let db = Database::builder().open().expect("in memory");
    let counters = db.create::<Counter>().expect("a valid table");
    let executor = db.executor(1).expect("a thread");
    let (begins, begun) = mpsc::channel();
    let (tells, told) = mpsc::channel::<()>();
    let running = {
        let counters = counters.clone();
        executor.transact(move |tx| {
            begins.send(()).expect("the receiver exists");
            told.recv().expect("it is told");
            tx.insert(&counters, &Counter { id: 1, n: 0 })
        })
    };
    begun.recv().expect("it begins");
    assert!(!running.cancel(), "it has begun");
    tells.send(()).expect("it waits for that");
    while !running.is_done() {
        thread::yield_now();
    }
    // The cancelled handle does not end later work of the same session.
    let next = {
        let counters = counters.clone();
        executor.transact(move |tx| {
            assert!(!running.cancel(), "it has ended");
            tx.insert(&counters, &Counter { id: 2, n: 0 })
        })
    };
    wait_for(next).expect("a new key");
    let found = db.session().snapshot(|tx| Ok([1, 2].map(|id| tx.get(&counters, &id).map(|row| row.is_some()))));
    let found = found.expect("no conflict").value.map(|found| found.expect("it was read"));
    assert_eq!(found, [false, true]);
}

#[test]
fn calls_that_have_not_begun_when_the_database_is_closed_fail_as_closed() {
    let directory = std::env::temp_dir().join(format!("seriatim-executor-closed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let db = Database::open(&directory).expect("a new directory");
    let counters = db.create::<Counter>().expect("a valid table");
    let (executor, plugs) = plugged(&db, 1);
    let ran = Arc::new(AtomicU32::new(0));
    let queued: Vec<_> = (0..82)
        .map(|id| {
            let (counters, ran) = (counters.clone(), Arc::clone(&ran));
            executor.transact(move |tx| {
                ran.fetch_add(1, Ordering::Relaxed);
                tx.insert(&counters, &Counter { id, n: 0 })
            })
        })
        .collect();
    let by_itself = Arc::clone(&ran);
    let by_itself = executor.run(move |_| by_itself.fetch_add(1, Ordering::Relaxed));
    let mut session = db.session();
    db.close().expect("all of it is durable");
    drop(plugs);
    assert!(matches!(wait_for(by_itself), Err(TransactError::Closed)));
    for running in queued {
        let error = wait_for(running).expect_err("it was closed");
        assert!(matches!(error, TransactError::Closed), "{error}");
        assert!(error.to_string().contains("was closed") && !error.is_maybe_committed());
    }
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    let error = session.transact(|tx| tx.insert(&counters, &Counter { id: 1, n: 0 })).expect_err("it was closed");
    assert!(matches!(error, TransactError::Closed), "{error}");
    drop((executor, session, counters));
    std::fs::remove_dir_all(&directory).expect("it is closed");
}
