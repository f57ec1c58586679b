//! Executors whose threads own partitions: which thread runs a call, which calls wait for others, and that results do
//! not depend on it.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use seriatim::clock::Instant;
use seriatim::history::{self, Promises};
use seriatim::{
    Abort, Committed, Database, Executor, Handle, Rng, Running, Table, TransactError, Tx, procedure, procedures, pure,
    thread,
};

#[derive(Table)]
#[table(name = "purse", key(branch, id))]
struct Purse {
    branch: u16,
    id: u32,
    coins: i64,
}

#[procedure]
fn put(tx: &Tx, branch: u16, id: u32, coins: i64) -> Result<i64, Abort> {
    let held = tx.update::<Purse>((branch, id), |purse| {
        purse.coins += coins;
        purse.coins
    })?;
    Ok(held)
}

#[procedure]
fn pass(tx: &Tx, from: u16, to: u16, id: u32, coins: i64) -> Result<(), Abort> {
    tx.update::<Purse>((from, id), |purse| purse.coins -= coins)?;
    tx.update::<Purse>((to, id), |purse| purse.coins += coins)?;
    Ok(())
}

/// A row determines its second partition.
#[procedure]
fn chase(tx: &Tx, branch: u16, id: u32) -> Result<i64, Abort> {
    let first = tx.require::<Purse>((branch, id))?;
    let second = tx.get::<Purse>((branch, first.id))?;
    let mut coins = 0i64;
    for other in tx.scan::<Purse>(..)? {
        coins += other.coins;
    }
    let Some(_) = second else { return Ok(coins) };
    Ok(coins)
}

#[pure]
fn burst_of(coins: i64) -> i64 {
    assert!(coins < 0, "deliberately");
    coins
}

/// Panics after a write.
#[procedure]
fn burst(tx: &Tx, branch: u16, id: u32) -> Result<(), Abort> {
    let held = tx.update::<Purse>((branch, id), |purse| {
        purse.coins += 1000;
        purse.coins
    })?;
    let coins = burst_of(held);
    tx.update::<Purse>((branch, id), |purse| purse.coins = coins)?;
    Ok(())
}

const BRANCHES: u16 = 8;
const IDS: u32 = 2;
const COINS: i64 = 100;

fn purses(records: bool) -> (Database, Handle<Purse>) {
    let builder = Database::builder().partitions(usize::from(BRANCHES)).workers(16);
    let db = builder.record_history(records).open().expect("a valid setting");
    let purses = db.create::<Purse>().expect("a table");
    db.register(procedures![put, pass, chase, burst]).expect("a sound set");
    for branch in 0..BRANCHES {
        let load = db
            .session()
            .transact(|tx| (0..IDS).try_for_each(|id| tx.insert(&purses, &Purse { branch, id, coins: COINS })));
        load.expect("an empty database");
    }
    (db, purses)
}

fn wait_for<R>(running: Running<R>) -> R {
    while !running.is_done() {
        thread::sleep(Duration::from_micros(200));
    }
    running.wait()
}

/// The thread that runs the calls of this partition. Other threads help an owner that gets no processor for a while,
/// so this is the thread with a clear majority of them.
fn thread_of(executor: &Executor, partition: usize) -> ThreadId {
    const LEAD: usize = 20;
    let mut runs = HashMap::<ThreadId, usize>::new();
    loop {
        let running = executor.transact_at(partition, |_| Ok(thread::current().id()));
        *runs.entry(wait_for(running).expect("it does nothing").into_value()).or_default() += 1;
        let (owner, most) = runs.iter().max_by_key(|(_, runs)| **runs).expect("there is one");
        let next = runs.iter().filter(|(other, _)| *other != owner).map(|(_, runs)| *runs).max();
        if *most >= next.unwrap_or(0) + LEAD {
            return *owner;
        }
    }
}

type Stuck = (Sender<()>, Running<Result<Committed<()>, TransactError>>);

/// Holds up the partition's owner in it, until the sender is used.
fn hold_up(executor: &Executor, partition: usize) -> Stuck {
    let owner = thread_of(executor, partition);
    loop {
        let (go_on, waits) = channel::<()>();
        let (began, has_begun): (Sender<ThreadId>, Receiver<ThreadId>) = channel();
        let waits = Mutex::new(waits);
        let stuck = executor.transact_at(partition, move |_| {
            began.send(thread::current().id()).expect("the test waits");
            let waits = waits.lock().expect("no panic");
            waits.recv().expect("the test goes on");
            Ok(())
        });
        if has_begun.recv().expect("it begins") == owner {
            return (go_on, stuck);
        }
        // Another thread took the call over.
        go_on.send(()).expect("it waits");
        wait_for(stuck).expect("it does nothing");
    }
}

#[test]
fn calls_in_a_partition_run_on_the_thread_that_owns_it() {
    let (db, _) = purses(false);
    for threads in [1, 2, 3] {
        let executor = db.executor(threads).expect("threads");
        let owners: Vec<_> = (0..usize::from(BRANCHES)).map(|partition| thread_of(&executor, partition)).collect();
        for (partition, owner) in owners.iter().enumerate() {
            assert_eq!(*owner, owners[partition % threads], "partition {partition} of {threads} threads");
        }
        assert_eq!(owners.iter().collect::<HashSet<_>>().len(), threads);
    }
    let executor = db.executor(1).expect("a thread");
    let unknown = wait_for(executor.transact_at(8, |_| Ok(()))).expect_err("there are eight");
    assert_eq!(unknown.to_string(), "there is no partition 8: they are numbered from 0 to 7");
}

/// One of two threads is held up in partition 0. The other runs the calls of its other partitions.
#[test]
fn an_owner_that_is_held_up_holds_up_calls_in_its_partition_only() {
    let (db, _) = purses(false);
    let executor = db.executor(2).expect("threads");
    let (go_on, stuck) = hold_up(&executor, 0);
    let same = [executor.call(put, (0, 1, 1)), executor.call(put, (8, 1, 1))];
    let several = executor.call(pass, (0, 1, 1, 1));
    let others: Vec<_> = [2, 4, 6, 2, 1].into_iter().map(|branch| executor.call(put, (branch, 1, 1))).collect();
    let moved = executor.call(pass, (4, 3, 0, 5));
    others.into_iter().for_each(|other| _ = wait_for(other).expect("no conflict"));
    wait_for(moved).expect("no conflict");
    assert!(same.iter().all(|call| !call.is_done()) && !several.is_done() && !stuck.is_done());
    go_on.send(()).expect("it waits");
    wait_for(stuck).expect("it does nothing");
    let [first, other] = same.map(wait_for);
    assert_eq!(first.expect("no conflict").value, COINS + 1);
    assert!(other.is_err(), "there is no branch 8, which is partition 0: {other:?}");
    wait_for(several).expect("no conflict");
}

/// A thread takes over a call of an owner and is held up in it. The owner runs its calls in other partitions, and then
/// those in this one.
#[test]
fn a_call_that_was_taken_over_holds_up_calls_in_its_partition_only() {
    let (db, _) = purses(false);
    let executor = db.executor(2).expect("threads");
    let (go_on, stuck) = hold_up(&executor, 0);
    let (end, waits) = channel::<()>();
    let (began, has_begun) = channel();
    let waits = Mutex::new(waits);
    let taken_over = executor.transact_at(2, move |_| {
        began.send(()).expect("the test waits");
        waits.lock().expect("no panic").recv().expect("the test goes on");
        Ok(())
    });
    has_begun.recv().expect("another thread begins it");
    go_on.send(()).expect("it waits");
    wait_for(stuck).expect("it does nothing");
    let same = [0, 1].map(|id| executor.call(put, (2, id, 1)));
    for branch in [0, 4, 1, 3, 6] {
        wait_for(executor.call(put, (branch, 1, 1))).expect("no conflict");
    }
    assert!(same.iter().all(|call| !call.is_done()) && !taken_over.is_done());
    end.send(()).expect("it waits");
    wait_for(taken_over).expect("it does nothing");
    same.into_iter().for_each(|call| _ = wait_for(call).expect("no conflict"));
}

/// A call panics in a partition. Calls that wait behind it there, and in other partitions of the same thread, run as
/// usual.
#[test]
fn a_panic_in_a_partition_reaches_its_caller_and_the_owner_continues() {
    fn panicked<R>(running: Running<R>) -> bool {
        let panic = catch_unwind(AssertUnwindSafe(|| drop(wait_for(running)))).expect_err("it panics");
        panic.downcast_ref::<&str>().is_some_and(|said| *said == "deliberately")
    }
    let (db, purses) = purses(false);
    for threads in [1, 2] {
        let executor = db.executor(threads).expect("threads");
        let before = db.session().transact(|tx| Ok(tx.get(&purses, &(0, 1))?.map(|purse| purse.coins())));
        let before = before.expect("no conflict").into_value().expect("it is there");
        let (go_on, stuck) = hold_up(&executor, 0);
        let panics = [0, 2].map(|partition| {
            let purses = purses.clone();
            executor.transact_at(partition, move |tx| -> Result<(), Abort> {
                tx.update(&purses, &(partition as u16, 1), |purse| purse.set_coins(0))?;
                panic!("deliberately")
            })
        });
        let bursts = [0, 2].map(|branch| executor.call(burst, (branch, 1)));
        let puts = [0, 2, 4, 1].map(|branch| executor.call(put, (branch, 1, 1)));
        let passed = executor.call(pass, (0, 2, 0, 5));
        let shared = executor.transact(|_| Ok(()));
        go_on.send(()).expect("it waits");
        wait_for(stuck).expect("it does nothing");
        assert!(panics.into_iter().all(panicked) && bursts.into_iter().all(panicked));
        let [first, ..] = puts.map(|call| wait_for(call).expect("no conflict").value);
        assert_eq!(first, before + 1, "nothing of what panicked stays");
        wait_for(passed).expect("no conflict");
        wait_for(shared).expect("it does nothing");
        let owners = [0, 1].map(|partition| thread_of(&executor, partition));
        assert_eq!(owners[0] == owners[1], threads == 1, "as many threads as before");
    }
}

/// A busy thread checks other partitions as well.
#[test]
fn calls_behind_one_that_takes_long_are_begun_by_a_thread_that_is_never_idle() {
    let (db, _) = purses(false);
    let executor = db.executor(2).expect("threads");
    let (go_on, stuck) = hold_up(&executor, 0);
    let behind = executor.call(put, (2, 1, 1));
    let mut queued = std::collections::VecDeque::new();
    while !behind.is_done() {
        queued.push_back(executor.call(put, (1, 0, 0)));
        if queued.len() > 64 {
            queued.pop_front().map(Running::wait).expect("it has many").expect("no conflict");
        }
    }
    go_on.send(()).expect("it waits");
    wait_for(stuck).expect("it does nothing");
}

/// Each call finds its owner asleep, falling asleep or awake.
#[test]
fn no_wake_up_is_lost() {
    let (db, _) = purses(false);
    let executor = db.executor(2).expect("threads");
    let seed = 7;
    println!("seed {seed}");
    let mut rng = Rng::from_seed(seed);
    for _ in 0..1500 {
        let branch = rng.below(u64::from(BRANCHES)) as u16;
        let call = executor.call(put, (branch, 0, 1));
        let shared = rng.percent(20).then(|| executor.transact(|_| Ok(())));
        // For ever if its owner sleeps.
        while !call.is_done() {
            thread::yield_now();
        }
        call.wait().expect("no conflict");
        if let Some(shared) = shared {
            wait_for(shared).expect("it does nothing");
        }
        let pause = rng.below(100);
        let paused = Instant::now();
        while paused.elapsed() < Duration::from_micros(pause) {
            std::hint::spin_loop();
        }
    }
}

/// Work for `run` may wait for earlier work, on whichever thread that runs.
#[test]
fn work_that_waits_for_calls_before_it_does_not_wait_for_ever() {
    let (db, _) = purses(false);
    for threads in [1, 2, 3] {
        let executor = db.executor(threads).expect("threads");
        for _ in 0..20 {
            let calls: Vec<_> = (0..BRANCHES).map(|branch| executor.call(put, (branch, 0, 1))).collect();
            let later = (0..2).map(|_| executor.transact(|_| Ok(()))).collect::<Vec<_>>();
            let waits = executor.run(move |_| {
                calls.into_iter().for_each(|call| _ = call.wait().expect("no conflict"));
                later.into_iter().for_each(|later| _ = later.wait().expect("it does nothing"));
            });
            let after: Vec<_> = (0..BRANCHES).map(|branch| executor.call(put, (branch, 1, 1))).collect();
            wait_for(waits).expect("it is not cancelled");
            after.into_iter().for_each(|call| _ = wait_for(call).expect("no conflict"));
        }
    }
}

#[test]
fn dropping_it_waits_for_calls_on_all_owners() {
    let (db, purses) = purses(false);
    let executor = db.executor(3).expect("threads");
    for at in 0..80 {
        drop(executor.call(put, (at % BRANCHES, 0, 1)));
    }
    drop(executor);
    let coins = db.session().transact(|tx| tx.scan(&purses, ..).try_fold(0, |sum, purse| Ok(sum + purse?.coins())));
    assert_eq!(coins.expect("no conflict").into_value(), COINS * i64::from(BRANCHES) * i64::from(IDS) + 80);
}

/// Two executors assign owners differently, and sessions use any thread: only locks keep them apart.
#[test]
fn correctness_does_not_depend_on_where_a_call_runs() {
    for seed in [1, 2, 3] {
        println!("seed {seed}");
        let (db, purses) = purses(true);
        let executors = Arc::new([db.executor(2).expect("threads"), db.executor(3).expect("threads")]);
        let call = |client: u64| {
            let (mut rng, mut session) = (Rng::from_seed(seed << 8 | client), db.session());
            let mut branch = move || rng.below(u64::from(BRANCHES)) as u16;
            for round in 0..60 {
                let executor = &executors[(round % 2) as usize];
                let (from, to) = (branch(), branch());
                let several = executor.call(pass, (from, to, 0, 3));
                let one = executor.call(put, (branch(), 0, 0));
                session.call(pass, &(to, branch(), 0, 1)).expect("it is retried");
                if round % 16 == client {
                    let sum = wait_for(executor.call(chase, (from, 0))).expect("it is retried").value;
                    assert_eq!(sum, COINS * i64::from(BRANCHES) * i64::from(IDS));
                }
                let closure = executor.transact_at(usize::from(from), {
                    let purses = purses.clone();
                    move |tx| tx.update(&purses, &(from, 1), |purse| purse.set_coins(purse.coins())).map(drop)
                });
                wait_for(several).expect("it is retried");
                wait_for(one).expect("it is retried");
                wait_for(closure).expect("it is retried");
            }
        };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..3).map(|client| scope.spawn(move || call(client))).collect();
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
        });
        let history = db.take_history().expect("it was recorded");
        let summary = history::check(&history, &Promises::STRICT);
        let summary = summary.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert!(summary.transactions > 600, "{summary:?}");
    }
}
