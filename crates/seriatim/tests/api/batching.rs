//! Batches of calls: conflicting calls run one after another on one thread, and nothing else changes.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use seriatim::{
    Abort, Batch, BatchPlacement, BatchStatistics, Builder, Data, Database, Executor, Handle, OpenError, Running,
    Table, TransactError, Tx, procedure, procedures, pure, thread,
};

use crate::common::{Setting, each};

#[derive(Table)]
#[table(name = "item", key(id), hash)]
struct Item {
    id: u32,
    n: u64,
    /// The id of another item.
    next: u32,
}

/// Each run of [`adds`]: the item, its new count, the thread.
static NOTED: Mutex<Vec<(u32, u64, String)>> = Mutex::new(Vec::new());
/// Serializes the tests that call [`adds`] or use [`DISTURBED`].
static ALONE: Mutex<()> = Mutex::new(());

fn noted() -> MutexGuard<'static, Vec<(u32, u64, String)>> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pure(total)]
fn note(id: u32, n: u64) -> u64 {
    noted().push((id, n, format!("{:?}", thread::current().id())));
    n
}

/// Adds one to each item and returns the sum.
#[procedure]
fn adds(tx: &Tx, ids: &[u32]) -> Result<u64, Abort> {
    let mut sum = 0u64;
    for id in ids {
        let n = tx.update::<Item>(*id, |item| {
            item.n += 1;
            item.n
        })?;
        sum += note(*id, n);
    }
    Ok(sum)
}

#[procedure]
fn reads(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let item = tx.require::<Item>(id)?;
    Ok(item.n)
}

/// Adds one to the item that this one refers to, which the arguments do not determine.
#[procedure]
fn adds_to_next(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let item = tx.require::<Item>(id)?;
    let n = tx.update::<Item>(item.next, |item| {
        item.n += 1;
        item.n
    })?;
    Ok(n)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
struct Odd(u64);

impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is odd", self.0)
    }
}

impl std::error::Error for Odd {}

/// A function that is declared total and panics.
#[pure(total)]
fn explodes(wanted: bool) -> u32 {
    assert!(!wanted, "deliberately");
    1
}

/// Adds one, then ends as the arguments say.
#[procedure]
fn adds_or_fails(tx: &Tx, id: u32, fails: bool, panics: bool) -> Result<u64, Abort> {
    let n = tx.update::<Item>(id, |item| {
        item.n += 1;
        item.n
    })?;
    if fails {
        return Err(tx.abort(Odd(n)));
    }
    let other = tx.get::<Item>(explodes(panics))?;
    if other.is_none() {
        return Ok(0);
    }
    Ok(n)
}

/// A key from a function that may panic.
#[pure]
fn half(of: u32) -> u32 {
    100 / of
}

#[procedure]
fn adds_to_half(tx: &Tx, of: u32) -> Result<u64, Abort> {
    let n = tx.update::<Item>(half(of), |item| {
        item.n += 1;
        item.n
    })?;
    Ok(n)
}

/// A database whose item 0 is changed in the middle of calls, and the calls in which that happened.
struct Disturbed {
    db: Database,
    items: Handle<Item>,
    seen: HashSet<u64>,
}

static DISTURBED: Mutex<Option<Disturbed>> = Mutex::new(None);

/// Changes what a call has read, when the call runs for the first time.
#[pure(total)]
fn disturb(call: u64, n: u64) -> u64 {
    let mut disturbed = DISTURBED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Disturbed { db, items, seen }) = &mut *disturbed
        && seen.insert(call)
    {
        let change = db.session().transact(|tx| tx.update(items, &0, |item| item.set_n(item.n() + 1)));
        change.expect("no conflict");
    }
    n
}

/// Adds one to the item, once per call, and reads item 0; or fails.
#[procedure]
fn adds_beside(tx: &Tx, id: u32, call: u64, fails: bool) -> Result<u64, Abort> {
    let read = tx.require::<Item>(0)?;
    let n = disturb(call, read.n);
    tx.update::<Item>(id, |item| item.n += 1)?;
    if fails {
        return Err(tx.abort(Odd(n)));
    }
    Ok(n)
}

const ITEMS: u32 = 500;

fn open(setting: &Setting, batch: Batch) -> (Database, Handle<Item>) {
    create(setting.builder().batch(batch))
}

fn create(builder: Builder) -> (Database, Handle<Item>) {
    let db = builder.open().expect("a valid setting");
    let items = db.create::<Item>().expect("a valid table");
    let insert = |tx: &Tx| (0..ITEMS).try_for_each(|id| tx.insert(&items, &Item { id, n: 0, next: (id + 1) % 2 }));
    db.session().transact(insert).expect("new keys");
    db.register(procedures![adds, reads, adds_to_next, adds_or_fails, adds_to_half, adds_beside]).expect("a sound set");
    (db, items)
}

fn n_of(db: &Database, items: &Handle<Item>, id: u32) -> u64 {
    let n = db.session().snapshot(|tx| Ok(tx.get(items, &id)?.expect("it was inserted").n()));
    n.expect("no conflict").value
}

/// An executor whose threads are all busy until the senders are dropped.
fn held_up(db: &Database, threads: usize) -> (Executor, Vec<mpsc::Sender<()>>) {
    let executor = db.executor(threads).expect("threads");
    let gates = hold_up(&executor, threads);
    (executor, gates)
}

/// Keeps the threads of an executor busy until the senders are dropped.
fn hold_up(executor: &Executor, threads: usize) -> Vec<mpsc::Sender<()>> {
    let (began, begun) = mpsc::channel();
    let gates = (0..threads).map(|_| {
        let (go, gate) = mpsc::channel();
        let began = began.clone();
        drop(executor.run(move |_| {
            began.send(()).expect("it is listened to");
            let _ = gate.recv();
        }));
        go
    });
    let gates = gates.collect();
    (0..threads).for_each(|_| begun.recv().expect("each thread begins"));
    gates
}

#[test]
fn calls_of_a_batch_that_conflict_run_on_one_thread_without_a_retry() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    each(|setting| {
        let (db, _) = open(setting, Batch::Size(16));
        let (executor, gates) = held_up(&db, 2);
        noted().clear();
        // 16 calls: four for each of four items.
        let running: Vec<_> = (0..16).map(|at| executor.call(adds, vec![at % 4])).collect();
        drop(gates);
        let mut sums = HashMap::<u32, Vec<u64>>::new();
        for (at, running) in running.into_iter().enumerate() {
            let committed = running.wait().expect("nothing is in its way");
            assert_eq!(committed.attempts, 1);
            sums.entry(at as u32 % 4).or_default().push(committed.value);
        }
        for (id, mut sums) in sums {
            sums.sort_unstable();
            assert_eq!(sums, [1, 2, 3, 4], "item {id}");
        }
        let threads: HashMap<u32, String> = noted().iter().map(|(id, _, thread)| (*id, thread.clone())).collect();
        assert!(noted().iter().all(|(id, _, thread)| threads[id] == *thread), "{:?}", noted());
        let BatchStatistics { batches, calls, components, overdue, .. } = executor.batch_statistics();
        assert_eq!((batches, calls, components, overdue), (1, 16, 4, 0));
    });
}

#[test]
fn in_equal_shares_each_call_runs_once_and_conflicts_are_the_protocols() {
    each(|setting| {
        let (db, items) = create(setting.builder().batch(Batch::Size(16)).batch_placement(BatchPlacement::Shares));
        let (executor, gates) = held_up(&db, 2);
        let running: Vec<_> = (0..32).map(|at| executor.call(adds_or_fails, (at % 3, at % 8 == 7, false))).collect();
        drop(gates);
        let succeeded = running.into_iter().map(|running| running.wait().is_ok());
        assert_eq!(succeeded.filter(|succeeded| *succeeded).count(), 28);
        assert_eq!([0, 1, 2].map(|id| n_of(&db, &items, id)).iter().sum::<u64>(), 28);
        let BatchStatistics { batches, calls, components, .. } = executor.batch_statistics();
        assert_eq!((batches, calls, components), (2, 32, 4), "two shares of a batch, though 16 conflict");
    });
}

#[test]
fn each_caller_gets_its_own_outcome_and_a_panic_is_its_callers() {
    each(|setting| {
        let (db, items) = open(setting, Batch::Size(8));
        let (executor, gates) = held_up(&db, 2);
        let arguments = |at: u32| (at % 3, at % 5 == 1, at % 5 == 2);
        let running: Vec<Running<_>> = (0..40).map(|at| executor.call(adds_or_fails, arguments(at))).collect();
        drop(gates);
        let mut added = [0; 3];
        for (at, running) in (0..40).zip(running) {
            let (id, fails, panics) = arguments(at);
            match catch_unwind(AssertUnwindSafe(|| running.wait())) {
                Ok(Ok(_)) => {
                    assert!(!fails && !panics, "{at}");
                    added[id as usize] += 1;
                }
                Ok(Err(error)) => assert!(fails && error.user::<Odd>().is_some(), "{at}: {error}"),
                Err(panic) => {
                    assert!(panics, "{at}");
                    assert_eq!(panic.downcast_ref::<&str>(), Some(&"deliberately"));
                }
            }
        }
        assert_eq!([0, 1, 2].map(|id| n_of(&db, &items, id)), added);
        // A call whose prediction panics is not batched.
        let counted = executor.batch_statistics();
        assert_eq!((counted.calls, counted.batches), (32, 4), "{counted:?}");
    });
}

#[test]
fn procedures_that_only_read_or_have_no_key_or_too_many_are_not_batched() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    each(|setting| {
        let (db, items) = open(setting, Batch::Size(8));
        let (executor, gates) = held_up(&db, 2);
        let many: Vec<u32> = (200..500).collect();
        let large = executor.call(adds, many);
        let none = executor.call(adds, Vec::new());
        let panics: Vec<_> = (0..4).map(|_| executor.call(adds_to_half, 0)).collect();
        let closure = executor.transact(move |tx| tx.update(&items, &7, |item| item.set_n(item.n() + 10)));
        drop(gates);
        assert_eq!(large.wait().expect("it is retried").value, 300);
        assert_eq!(none.wait().expect("it does nothing").value, 0);
        for panics in panics {
            catch_unwind(AssertUnwindSafe(|| panics.wait())).expect_err("it divides by zero").downcast::<&str>().ok();
        }
        closure.wait().expect("it is retried");
        assert_eq!(executor.call(reads, 7).wait().expect("it reads").value, 10);
        assert_eq!(executor.batch_statistics(), BatchStatistics::default());
        assert_eq!(executor.call(adds_to_half, 1).wait().expect("it divides by one").value, 1);
        assert_eq!(executor.batch_statistics().calls, 1);
    });
}

#[test]
fn calls_with_conflicts_that_arguments_do_not_show_have_correct_results() {
    each(|setting| {
        let (db, items) = open(setting, Batch::Size(8));
        let (executor, gates) = held_up(&db, 3);
        let running: Vec<_> = (0..120).map(|id| executor.call(adds_to_next, id)).collect();
        drop(gates);
        running.into_iter().for_each(|running| assert!(running.wait().expect("it is retried").value > 0));
        assert_eq!([0, 1].map(|id| n_of(&db, &items, id)), [60, 60]);
        assert_eq!(executor.batch_statistics().calls, 120);
    });
}

#[test]
fn dropping_the_executor_runs_the_batches_that_it_was_given() {
    each(|setting| {
        let (db, items) = open(setting, Batch::Size(4));
        let (executor, gates) = held_up(&db, 2);
        for at in 0..100 {
            drop(executor.call(adds_or_fails, (at % 5, false, false)));
        }
        drop(gates);
        drop(executor);
        let sum: u64 = (0..5).map(|id| n_of(&db, &items, id)).sum();
        assert_eq!(sum, 100);
    });
}

#[test]
fn work_that_runs_by_itself_may_wait_for_calls_before_it() {
    each(|setting| {
        let (db, _) = open(setting, Batch::Size(8));
        let executor = db.executor(2).expect("threads");
        for _ in 0..20 {
            let calls: Vec<_> = (0..12).map(|at| executor.call(adds_or_fails, (at % 2, false, false))).collect();
            let waits = |running: Vec<Running<_>>| {
                move |_: &mut seriatim::Session| {
                    running.into_iter().for_each(
                        |running: Running<Result<seriatim::Committed<u64>, TransactError>>| {
                            running.wait().expect("it is retried");
                        },
                    );
                }
            };
            let mut calls = calls.into_iter();
            let first: Vec<_> = calls.by_ref().take(6).collect();
            // Both threads wait for calls that were queued before.
            let waiting = [executor.run(waits(calls.collect())), executor.run(waits(first))];
            let behind: Vec<_> = (0..3).map(|_| executor.call(adds_or_fails, (0, false, false))).collect();
            waiting.into_iter().for_each(|waits| waits.wait().expect("it is not cancelled"));
            behind.into_iter().for_each(|running| assert!(running.wait().is_ok()));
        }
        assert_eq!(executor.batch_statistics().calls, 20 * 15);
    });
}

#[test]
fn auto_batches_where_calls_are_retried_and_not_elsewhere() {
    const CALLS: u64 = 1200;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (is_disturbed, fails) in [(false, false), (true, false), (true, true)] {
        let (db, items) = create(optimistic());
        let disturbed = || Disturbed { db: db.clone(), items: items.clone(), seen: HashSet::new() };
        *DISTURBED.lock().expect("no panic") = is_disturbed.then(disturbed);
        let executor = db.executor(2).expect("threads");
        for call in 0..CALLS {
            let id = 1 + call as u32 % 100;
            match executor.call(adds_beside, (id, call, fails)).wait() {
                Ok(committed) => assert!(!fails && (committed.attempts > 1) == is_disturbed, "call {call}"),
                Err(error) => assert!(fails && error.user::<Odd>().is_some(), "call {call}: {error}"),
            }
        }
        let counted = executor.batch_statistics();
        assert_eq!((counted.calls, counted.switched), (CALLS, u64::from(is_disturbed)), "{counted:?}");
        assert_eq!(n_of(&db, &items, 7), if fails { 0 } else { CALLS / 100 });
        // No other user of the database is left.
        *DISTURBED.lock().expect("no panic") = None;
    }
}

/// Under an optimistic protocol, a reader does not block a writer.
fn optimistic() -> Builder {
    Database::builder().protocol("silo").batch(Batch::Auto)
}

/// Makes these calls from four callers, each with several calls in flight.
fn call_concurrently(executor: &Executor, calls: std::ops::Range<u64>) {
    const CALLERS: u64 = 4;
    const UNDER_WAY: usize = 8;
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let own: Vec<u64> = calls.clone().filter(|call| call % CALLERS == caller).collect();
            scope.spawn(move || {
                for some in own.chunks(UNDER_WAY) {
                    let call = |&call: &u64| executor.call(adds_beside, (1 + call as u32 % 100, call, false));
                    let running: Vec<_> = some.iter().map(call).collect();
                    assert!(running.into_iter().all(|running| running.wait().is_ok()));
                }
            });
        }
    });
}

/// Queues 64 calls at once, 16 for each of four items. Returns the number of batches in which they ran, and of their
/// components.
fn at_once(executor: &Executor, calls: std::ops::Range<u64>) -> (u64, u64) {
    let gates = hold_up(executor, 2);
    let before = executor.batch_statistics();
    let running: Vec<_> = calls.map(|call| executor.call(adds_beside, (1 + call as u32 % 4, call, false))).collect();
    drop(gates);
    assert!(running.into_iter().all(|running| running.wait().is_ok()));
    let counted = executor.batch_statistics().since(before);
    assert_eq!(counted.calls, 64);
    (counted.batches, counted.components)
}

#[test]
fn auto_batches_calls_of_concurrent_callers_while_they_are_retried() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (db, items) = create(optimistic());
    let executor = db.executor(2).expect("threads");
    let (alone, in_batches) = ((64, 64), (8, 32));
    let disturbed = Disturbed { db: db.clone(), items: items.clone(), seen: HashSet::new() };
    *DISTURBED.lock().expect("no panic") = Some(disturbed);
    call_concurrently(&executor, 0..900);
    assert_eq!(at_once(&executor, 900..964), alone, "a window is not over");
    call_concurrently(&executor, 964..1200);
    *DISTURBED.lock().expect("no panic") = None;
    assert_eq!(at_once(&executor, 1200..1264), in_batches);
    assert_eq!(executor.batch_statistics().switched, 1);
    // The executor measures again, and there are no retries.
    call_concurrently(&executor, 1264..20_000);
    assert_eq!(at_once(&executor, 20_000..20_064), alone);
    assert_eq!(executor.batch_statistics().switched, 1);
    let sum: u64 = (1..=100).map(|id| n_of(&db, &items, id)).sum();
    assert_eq!(sum, 20_064, "each call adds one, once");
}

#[test]
fn a_lone_caller_is_answered_without_company() {
    each(|setting| {
        let (db, _) = open(setting, Batch::Size(64));
        let executor = db.executor(2).expect("threads");
        for n in 1..=10 {
            assert_eq!(executor.call(adds_or_fails, (1, false, false)).wait().expect("it is alone").value, n);
        }
        let counted = executor.batch_statistics();
        assert_eq!((counted.batches, counted.calls, counted.components), (10, 10, 10));
    });
}

#[test]
fn the_size_of_a_batch_has_bounds_and_one_thread_batches_nothing() {
    for (size, is_valid) in [(0, false), (1, true), (4096, true), (4097, false)] {
        let opened = Database::builder().batch(Batch::Size(size)).open();
        let refused =
            matches!(&opened, Err(OpenError::Setting { setting: "batch", permitted, .. }) if permitted == "1 to 4096");
        assert_eq!((opened.is_ok(), refused), (is_valid, !is_valid), "{size}");
    }
    each(|setting| {
        for (batch, threads) in [(Batch::Off, 2), (Batch::Size(1), 2), (Batch::Size(8), 1), (Batch::Auto, 1)] {
            let (db, items) = open(setting, batch);
            let executor = db.executor(threads).expect("threads");
            let running: Vec<_> = (0..20).map(|_| executor.call(adds_or_fails, (1, false, false))).collect();
            running.into_iter().for_each(|running| assert!(running.wait().is_ok()));
            assert_eq!((n_of(&db, &items, 1), executor.batch_statistics()), (20, BatchStatistics::default()));
        }
    });
}
