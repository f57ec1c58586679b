//! Batches that a validator orders. Of two transactions that can both commit in one order and not in the
//! other, both do at once, whichever came first. A decision validates whatever the order is, so an edge that
//! is missed shows in no history: it shows here.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

use seriatim::{
    Abort, Builder, Database, Fault, Handle, ReadTx, Reason, RetryPolicy, Running, Statistics, Table,
    TransactionOptions, Tx, clock, thread,
};

#[derive(Table, Clone, Debug)]
#[table(name = "tree", key(id), ordered)]
#[table(index(name = "by_label", columns(label), ordered))]
struct Row {
    id: u32,
    label: u32,
    value: i64,
}

#[derive(Table, Clone, Debug)]
#[table(name = "hash", key(id), hash)]
#[table(index(name = "by_code", columns(code), hash, unique))]
struct Hashed {
    id: u32,
    code: u32,
    value: i64,
}

#[derive(Clone)]
struct Tables {
    rows: Handle<Row>,
    hashed: Handle<Hashed>,
}

type Body = fn(&Tx, &Tables) -> Result<(), Abort>;

/// Rows that no other transaction touches, so that each transaction writes.
const OWN: [u32; 2] = [100, 101];
const ABSENT: u32 = 50;

fn row(id: u32) -> Row {
    Row { id, label: id, value: 0 }
}

fn hashed(id: u32) -> Hashed {
    Hashed { id, code: id, value: 0 }
}

fn add(tx: &Tx, tables: &Tables, id: u32) -> Result<(), Abort> {
    tx.update_if(&tables.rows, &id, |row| row.set_value(row.value() + 1)).map(drop)
}

fn sum(tx: &Tx, tables: &Tables) -> Result<i64, Abort> {
    tx.scan(&tables.rows, 40..60).try_fold(0, |sum, row| Ok(sum + row?.value()))
}

/// A writer and a reader: in this order one of them has to run again.
const PAIRS: [(&str, Fault, Body, Body); 6] = [
    (
        "a row",
        Fault::MissReads,
        |tx, tables| add(tx, tables, 1),
        |tx, tables| tx.get(&tables.rows, &1).and_then(|_| add(tx, tables, OWN[1])),
    ),
    (
        "a range",
        Fault::MissNodes,
        |tx, tables| tx.insert(&tables.rows, &row(ABSENT)),
        |tx, tables| sum(tx, tables).and_then(|_| add(tx, tables, OWN[1])),
    ),
    (
        "an absence in a tree",
        Fault::MissNodes,
        |tx, tables| tx.insert(&tables.rows, &row(ABSENT)),
        |tx, tables| tx.get(&tables.rows, &ABSENT).and_then(|_| add(tx, tables, OWN[1])),
    ),
    (
        "an absence in a hash table",
        Fault::MissNodes,
        |tx, tables| tx.insert(&tables.hashed, &hashed(ABSENT)),
        |tx, tables| tx.get(&tables.hashed, &ABSENT).and_then(|_| add(tx, tables, OWN[1])),
    ),
    (
        "a range of an index",
        Fault::MissNodes,
        |tx, tables| tx.insert(&tables.rows, &Row { id: 1000, label: ABSENT, value: 0 }),
        |tx, tables| {
            let by_label = tables.rows.index(Row::BY_LABEL);
            tx.scan_by(&by_label, 40..60).try_for_each(|row| row.map(drop))?;
            add(tx, tables, OWN[1])
        },
    ),
    (
        "an absence in a unique index",
        Fault::MissNodes,
        |tx, tables| tx.insert(&tables.hashed, &Hashed { id: 1000, code: ABSENT, value: 0 }),
        |tx, tables| {
            let by_code = tables.hashed.index(Hashed::BY_CODE);
            tx.get_by(&by_code, &ABSENT)?;
            add(tx, tables, OWN[1])
        },
    ),
];

const SKEW: [Body; 2] = [
    |tx, tables| tx.get(&tables.rows, &1).and_then(|_| add(tx, tables, 2)),
    |tx, tables| tx.get(&tables.rows, &2).and_then(|_| add(tx, tables, 1)),
];

/// Under each protocol with a validator.
fn builders() -> impl Iterator<Item = Builder> {
    let validating =
        seriatim::protocols().iter().filter(|known| known.options.iter().any(|knob| knob.name == "batch_max"));
    assert!(validating.clone().next().is_some(), "there is a protocol with a validator");
    validating.map(|known| Database::builder().protocol(known.name))
}

fn open(builder: Builder) -> (Database, Tables) {
    let db = builder.open().expect("a database");
    let tables = Tables { rows: db.create().expect("a table"), hashed: db.create().expect("a table") };
    let load = |tx: &Tx| {
        for id in (0..40).chain(60..120) {
            tx.insert(&tables.rows, &row(id))?;
            tx.insert(&tables.hashed, &hashed(id))?;
        }
        Ok(())
    };
    db.session().transact(load).expect("alone");
    (db, tables)
}

/// Runs these in one batch: how many attempts each took, and what was counted.
fn in_one_batch(builder: Builder, bodies: &[Body]) -> (Vec<u32>, Statistics) {
    let (db, tables) = open(builder.protocol_option("batch_max", bodies.len() as u64));
    let before = db.statistics();
    let executor = db.executor(1).expect("a thread");
    let all_came = Arc::new(Barrier::new(2));
    let waits = Arc::clone(&all_came);
    let first = executor.run(move |_| waits.wait().is_leader());
    let running: Vec<_> = bodies
        .iter()
        .map(|&body| {
            let tables = tables.clone();
            executor.transact(move |tx| body(tx, &tables))
        })
        .collect();
    all_came.wait();
    let _ = first.wait();
    let attempts = running.into_iter().map(|running| running.wait().expect("attempts enough").attempts).collect();
    drop(executor);
    (attempts, db.statistics().since(&before))
}

#[test]
fn a_reader_and_a_writer_both_commit_at_once_in_either_order() {
    for builder in builders() {
        for (what, _, writes, reads) in PAIRS {
            for bodies in [[writes, reads], [reads, writes]] {
                let builder = builder.clone().protocol_option("storage_batching", 1);
                let (attempts, counted) = in_one_batch(builder, &bodies);
                assert_eq!(attempts, [1, 1], "{what}: {counted:?}");
                let queue = counted.queue.expect("decisions are queued");
                assert_eq!((queue.decisions, queue.batches, queue.left_out, queue.stale), (2, 1, 0, 0), "{what}");
                assert_eq!(queue.waited, 0, "{what}: the thread waits for what it holds itself");
            }
        }
    }
}

/// Sessions that are not run for longer than a batch waits for them miss it: so often they may try to be in one.
const MEETINGS_MAX: u32 = 60;

/// The same, each by a session of its own, which makes the decision itself.
fn by_two_sessions(builder: &Builder, bodies: [Body; 2]) -> ([u32; 2], Statistics) {
    let mut tried = (0..MEETINGS_MAX).map(|_| by_two_sessions_once(builder, bodies));
    let is_one_batch = |(_, counted): &(_, Statistics)| counted.queue.is_some_and(|queue| queue.largest == 2);
    tried.find(is_one_batch).expect("two sessions are in one batch")
}

fn by_two_sessions_once(builder: &Builder, bodies: [Body; 2]) -> ([u32; 2], Statistics) {
    let builder = builder.clone().protocol_option("batch_max", 2).protocol_option("batch_wait_us", 1_000_000);
    let (db, tables) = open(builder);
    let before = db.statistics();
    let (db, tables, both_are_open) = (&db, &tables, &Barrier::new(2));
    let attempts = thread::scope(|scope| {
        let run = |body: Body| {
            scope.spawn(move || {
                let has_met = Cell::new(false);
                let committed = db.session().transact(|tx| {
                    if !has_met.replace(true) {
                        both_are_open.wait();
                    }
                    body(tx, tables)
                });
                committed.expect("attempts enough").attempts
            })
        };
        bodies.map(run).map(|session| session.join().expect("no panic"))
    });
    (attempts, db.statistics().since(&before))
}

/// Readers before writers, whichever came first.
#[test]
fn sessions_of_one_batch_decide_at_the_same_time_and_in_its_order() {
    for builder in builders() {
        for (what, _, writes, reads) in PAIRS {
            for bodies in [[writes, reads], [reads, writes]] {
                let (attempts, counted) = by_two_sessions(&builder, bodies);
                assert_eq!(attempts, [1, 1], "{what}: {counted:?}");
                let queue = counted.queue.expect("decisions are queued");
                assert_eq!((queue.decisions, queue.batches), (2, 1), "{what}");
            }
        }
    }
}

/// The reader runs again if the writer came first.
#[test]
fn without_reordering_a_batch_is_decided_as_it_came() {
    for builder in builders().map(|builder| builder.protocol_option("reorder", 0)) {
        let (what, _, writes, reads) = PAIRS[0];
        for (bodies, expected) in [([writes, reads], [1, 2]), ([reads, writes], [1, 1])] {
            let (attempts, counted) = in_one_batch(builder.clone(), &bodies);
            let queue = counted.queue.expect("decisions are queued");
            assert_eq!((&attempts[..], queue.left_out), (&expected[..], 0), "{what}: {counted:?}");
        }
    }
}

#[test]
fn of_those_that_are_in_each_others_way_one_is_left_out_and_runs_again() {
    for builder in builders() {
        let (mut attempts, counted) = in_one_batch(builder, &SKEW);
        attempts.sort_unstable();
        assert_eq!(attempts, [1, 2]);
        let queue = counted.queue.expect("decisions are queued");
        assert_eq!((queue.decisions, queue.left_out, queue.stale), (3, 1, 0));
        assert_eq!(
            counted.aborts.iter().map(|(cause, count)| (cause.reason, *count)).collect::<Vec<_>>(),
            [(Reason::LeftOut, 1)]
        );
    }
}

/// Of two that are in each other's way the one of less weight is left out, whichever came first.
#[test]
fn by_weight_the_heavier_one_stays() {
    for builder in builders() {
        let by_weight = builder.protocol_option("policy", 6).protocol_option("batch_max", 2);
        let (db, tables) = open(by_weight);
        let executor = db.executor(1).expect("a thread");
        // That of one that does not say it is 1.
        for (weights, expected) in [
            ([Some(7), Some(3)], [1, 2]),
            ([Some(3), Some(7)], [2, 1]),
            ([None, Some(0)], [1, 2]),
            ([None, Some(2)], [2, 1]),
        ] {
            let running = [0, 1].map(|at| {
                let tables = tables.clone();
                let options = TransactionOptions::new();
                let options = weights[at].map_or(options, |weight| options.weight(weight));
                (options, move |tx: &Tx| SKEW[at](tx, &tables))
            });
            // One that runs by itself keeps the thread until both are there.
            let all_came = Arc::new(Barrier::new(2));
            let waits = Arc::clone(&all_came);
            let first = executor.run(move |_| waits.wait().is_leader());
            let running = running.map(|(options, body)| executor.transact_with(options, body));
            all_came.wait();
            let _ = first.wait();
            let attempts = running.map(|running| running.wait().expect("attempts enough").attempts);
            assert_eq!(attempts, expected, "{weights:?}");
        }
    }
}

#[test]
fn canary_edges_that_are_missed_and_orders_that_are_reversed_are_noticed() {
    for builder in builders() {
        for (what, missed, writes, reads) in PAIRS {
            for fault in [missed, Fault::ReverseOrder] {
                let attempts = [[writes, reads], [reads, writes]]
                    .map(|bodies| in_one_batch(builder.clone().canary(fault), &bodies).0);
                assert!(attempts.iter().any(|attempts| *attempts != [1, 1]), "{what}: {fault:?} is not noticed");
            }
            // Between sessions the edges are reversed, too: a reader is decided after the writer.
            let reversed = builder.clone().canary(Fault::ReverseOrder);
            for bodies in [[writes, reads], [reads, writes]] {
                assert_ne!(by_two_sessions(&reversed, bodies).0, [1, 1], "{what}: edges that are reversed");
            }
        }
    }
}

#[test]
fn canary_those_that_stay_in_an_order_that_left_them_out_are_noticed() {
    for builder in builders() {
        let (_, counted) = in_one_batch(builder.canary(Fault::KeepLeftOut), &SKEW);
        let queue = counted.queue.expect("decisions are queued");
        assert_eq!(queue.left_out, 0);
        assert!(
            counted.aborts.iter().all(|(cause, _)| cause.reason != Reason::LeftOut) && counted.conflict_aborted > 0
        );
    }
}

const BATCH: u64 = 8;

/// Transactions of which each batch can commit one: the restarts of the one that had most, under each policy.
fn worst_restarts(builder: &Builder, patience: u64) -> [u32; 7] {
    [0, 1, 2, 3, 4, 5, 6].map(|policy| {
        let builder = builder.clone().protocol_option("policy", policy).protocol_option("patience", patience);
        let (db, tables) = open(builder.protocol_option("batch_max", BATCH));
        let executor = db.executor(1).expect("a thread");
        // None begins before all have come.
        let all_came = Arc::new(Barrier::new(2));
        let waits = Arc::clone(&all_came);
        let first = executor.run(move |_| waits.wait().is_leader());
        let running: Vec<_> = (0..200)
            .map(|_| {
                let tables = tables.clone();
                executor.transact(move |tx| add(tx, &tables, 1))
            })
            .collect();
        all_came.wait();
        let _ = first.wait();
        let attempts = running.into_iter().map(|running| running.wait().expect("attempts enough").attempts);
        let worst = attempts.max().expect("there are some") - 1;
        let sum = db.session().transact(|tx| Ok(tx.get(&tables.rows, &1)?.expect("it is there").value()));
        assert_eq!(sum.expect("alone").into_value(), 200);
        worst
    })
}

#[test]
fn a_transaction_left_out_often_is_spared_by_the_policies_for_that() {
    /// Of `rct` and `rdeg`, with as many transactions at a time as a batch has: see the README of the protocol.
    const RESTARTS_MAX: u32 = 8 + 6;
    for builder in builders() {
        let worst = worst_restarts(&builder, 0);
        eprintln!("restarts at worst, of random, max-, sum-, prod-degree, rct, rdeg, value: {worst:?}");
        assert!(worst[4..6].iter().all(|&restarts| (1..=RESTARTS_MAX).contains(&restarts)), "{worst:?}");
    }
}

#[test]
fn under_no_policy_does_anybody_restart_more_often_than_its_patience_lasts() {
    const PATIENCE: u32 = 5;
    for builder in builders() {
        let worst = worst_restarts(&builder, PATIENCE.into());
        assert!(worst.iter().all(|&restarts| (1..=PATIENCE).contains(&restarts)), "{worst:?}");
    }
}

/// The attempts of a transaction that reads a row which another changes all the time, so that it is stale at its
/// decision. The row changes during each of the first attempts. It changes during others too, unless nothing is
/// decided.
fn attempts_of_one_that_is_stale(builder: Builder, first: u32, writes: bool) -> (u32, Statistics) {
    let (db, tables) = open(builder);
    let (ends, updates) = (AtomicBool::new(false), AtomicU64::new(0));
    let attempts = thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = db.session();
            while !ends.load(SeqCst) {
                session.transact(|tx| add(tx, &tables, 1)).expect("attempts enough");
                updates.fetch_add(1, SeqCst);
            }
        });
        let attempt = Cell::new(0);
        let reads = |tx: &ReadTx| {
            attempt.set(attempt.get() + 1);
            // Changes end at last, so that it commits.
            if attempt.get() > first + 10 {
                ends.store(true, SeqCst);
            }
            // A transaction that reads one row alone reads it as it was at some time.
            tx.get(&tables.rows, &1)?;
            tx.get(&tables.rows, &2)?;
            let patience = if attempt.get() <= first { Duration::MAX } else { Duration::from_millis(3) };
            // The first of two may have been decided before the row was read.
            let (before, began) = (updates.load(SeqCst), clock::Instant::now());
            while updates.load(SeqCst) < before + 2 && began.elapsed() < patience && !ends.load(SeqCst) {
                thread::yield_now();
            }
            Ok(())
        };
        let mut session = db.session();
        let committed = match writes {
            true => session.transact(|tx| reads(tx).and_then(|()| add(tx, &tables, 2))),
            false => session.snapshot(reads),
        };
        ends.store(true, SeqCst);
        committed.expect("attempts enough").attempts
    });
    let counted = db.statistics();
    (attempts, counted)
}

#[test]
fn a_transaction_that_is_stale_again_and_again_is_executed_while_nothing_else_is_decided() {
    for builder in builders() {
        is_executed_alone(&builder, true);
    }
}

#[test]
fn a_reader_that_is_stale_again_and_again_is_executed_while_nothing_else_is_decided() {
    for builder in builders() {
        is_executed_alone(&builder, false);
    }
}

fn is_executed_alone(builder: &Builder, writes: bool) {
    const PATIENCE: u32 = 3;
    let patient = builder.clone().protocol_option("patience", PATIENCE.into());
    // A thread that is not run for long has lost its turn: on a busy machine again and again, but not each time.
    let mut tried = Vec::new();
    let is_soon_over = (0..20).any(|_| {
        let (attempts, counted) = attempts_of_one_that_is_stale(patient.clone(), PATIENCE, writes);
        let alone = counted.queue.expect("decisions are queued").alone;
        assert_eq!(u64::from(attempts), u64::from(PATIENCE) + alone, "attempts, and those of them alone");
        tried.push(attempts);
        (PATIENCE + 1..PATIENCE + 6).contains(&attempts)
    });
    assert!(is_soon_over, "{tried:?}");
    // Otherwise there is no end to it.
    let impatient = builder.clone().protocol_option("patience", 0);
    let (attempts, counted) = attempts_of_one_that_is_stale(impatient, 20, writes);
    assert!(attempts > 20 && counted.queue.is_some_and(|queue| queue.alone == 0), "{attempts}, {counted:?}");
}

/// No other transaction is open: a batch does not wait for more.
#[test]
fn a_lone_client_does_not_wait_for_company() {
    const WAIT: Duration = Duration::from_secs(1);
    for builder in builders() {
        let (db, tables) = open(builder.protocol_option("batch_wait_us", WAIT.as_micros() as u64));
        let mut session = db.session();
        let mut is_prompt = || {
            let began = clock::Instant::now();
            session.transact(|tx| add(tx, &tables, 1)).expect("alone");
            began.elapsed() < WAIT
        };
        // A batch that waits takes at least that time, on any machine. So this ends only if batches do not wait.
        (0..20).for_each(|_| while !is_prompt() {});
    }
}

/// Otherwise a session with work for its thread would wait until the batch is full.
#[test]
fn a_batch_whose_wait_is_over_is_decided_before_its_thread_takes_other_work() {
    const WAIT: Duration = Duration::from_millis(1);
    for builder in builders() {
        let (db, tables) = open(builder.protocol_option("batch_wait_us", WAIT.as_micros() as u64));
        let executor = db.executor(1).expect("a thread");
        let all_came = Arc::new(Barrier::new(2));
        let waits = Arc::clone(&all_came);
        let first = executor.run(move |_| waits.wait().is_leader());
        let run = |id: u32, pause: Duration| {
            let tables = tables.clone();
            executor.transact(move |tx| {
                thread::sleep(pause);
                let seen = tx.get(&tables.rows, &1)?.map(|row| row.value());
                add(tx, &tables, id).map(|()| seen)
            })
        };
        let running = [run(1, Duration::ZERO), run(2, 2 * WAIT), run(3, Duration::ZERO)];
        all_came.wait();
        let _ = first.wait();
        let seen = running.map(|running| running.wait().expect("no conflict").into_value());
        assert_eq!(seen[2], Some(1), "the first was decided when the wait was over");
    }
}

/// The thread that holds an executed transaction has begun a body that ends only when that transaction has committed.
/// Another thread of the executor, which had work until the body began or was asleep, decides it after its wait, and
/// returns its result.
#[test]
fn a_thread_without_work_decides_the_batch_of_one_that_has_some() {
    const WAIT: Duration = Duration::from_millis(100);
    for builder in builders() {
        for is_asleep in [false, true, true, true] {
            let (db, tables) = open(builder.clone().protocol_option("batch_wait_us", WAIT.as_micros() as u64));
            // So that a batch waits for company.
            let mut company = db.session();
            let company = company.begin().expect("a worker");
            let executor = db.executor(2).expect("two threads");
            let (leaves, told) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
            let (begun, pushed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let awaits = |flag: Arc<AtomicBool>| {
                move || {
                    while !flag.load(SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            };
            let other = (!is_asleep).then(|| {
                let leaves = Arc::clone(&leaves);
                executor.run(move |_| leaves.wait().is_leader())
            });
            let first = {
                let (tables, is_pushed) = (tables.clone(), awaits(Arc::clone(&pushed)));
                executor.transact(move |tx| {
                    is_pushed();
                    add(tx, &tables, 1)
                })
            };
            if is_asleep {
                pushed.store(true, SeqCst);
                // The first has been executed, and its thread waits for company. On a slow machine it has
                // not: then nothing is shown.
                thread::sleep(WAIT / 2);
            }
            let second = {
                let (tables, begun, is_told) = (tables.clone(), Arc::clone(&begun), awaits(Arc::clone(&told)));
                executor.transact(move |tx| {
                    begun.store(true, SeqCst);
                    is_told();
                    add(tx, &tables, 2)
                })
            };
            pushed.store(true, SeqCst);
            awaits(begun)();
            if let Some(other) = other {
                leaves.wait();
                let _ = other.wait();
            }
            assert_eq!(first.wait().expect("no conflict").attempts, 1);
            told.store(true, SeqCst);
            second.wait().expect("no conflict");
            drop(company);
        }
    }
}

/// One is refused when the next has been executed: before it sleeps and is executed again, that one is
/// decided, and its caller told.
#[test]
fn held_transactions_of_a_thread_are_decided_before_it_sleeps() {
    const PAUSE: Duration = Duration::from_millis(1);
    let retry = RetryPolicy { immediate: 0, pause_first: PAUSE, pause_max: PAUSE, ..RetryPolicy::default() };
    for builder in builders() {
        // Decided as they came: each reader is stale.
        let as_they_came = builder.protocol_option("reorder", 0).protocol_option("batch_max", 2).retry(retry);
        let (db, tables) = open(as_they_came);
        let executor = db.executor(1).expect("a thread");
        let all_came = Arc::new(Barrier::new(2));
        let waits = Arc::clone(&all_came);
        let first = executor.run(move |_| waits.wait().is_leader());
        let (_, _, writes, reads) = PAIRS[0];
        let [of_writer, of_reader, of_next] = std::array::from_fn(|_| tables.clone());
        let writer = executor.transact(move |tx| writes(tx, &of_writer));
        let next = Arc::new(OnceLock::<Running<_>>::new());
        let (seen, mut attempts) = (Arc::clone(&next), 0);
        let reader = executor.transact(move |tx| {
            attempts += 1;
            let is_told = seen.get().is_some_and(Running::is_done);
            reads(tx, &of_reader).map(|()| (attempts, is_told))
        });
        assert!(next.set(executor.transact(move |tx| add(tx, &of_next, 3))).is_ok());
        all_came.wait();
        let _ = first.wait();
        assert_eq!(writer.wait().expect("it came first").attempts, 1);
        assert_eq!(reader.wait().expect("attempts enough").into_value(), (2, true));
    }
}

#[test]
fn a_batch_waits_for_further_calls_as_long_as_configured() {
    const WAIT: Duration = Duration::from_millis(200);
    for builder in builders() {
        let (db, tables) = open(builder.protocol_option("batch_wait_us", WAIT.as_micros() as u64));
        let (mut other, mut session) = (db.session(), db.session());
        let open = other.begin().expect("a worker");
        let began = clock::Instant::now();
        session.transact(|tx| add(tx, &tables, 1)).expect("nobody else writes it");
        let waited = began.elapsed();
        assert!(waited >= WAIT, "it waited for {waited:?}");
        drop(open);
        // Transactions that come meanwhile fill the batch.
        let (db, tables) = (&db, &tables);
        let queue = || db.statistics().queue.expect("decisions are queued");
        let meet = || {
            let before = queue();
            let both_are_open = Barrier::new(2);
            thread::scope(|scope| {
                for id in [1, 2] {
                    let both_are_open = &both_are_open;
                    scope.spawn(move || {
                        let body = |tx: &Tx| {
                            both_are_open.wait();
                            add(tx, tables, id)
                        };
                        db.session().transact(body).expect("they write different rows");
                    });
                }
            });
            (queue().decisions - before.decisions, queue().batches - before.batches)
        };
        assert!((0..MEETINGS_MAX).any(|_| meet() == (2, 1)), "nobody fills a batch");
    }
}
