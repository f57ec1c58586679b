//! Histories of the size that a stress run leaves behind. The small size runs with the tests and asserts no
//! times. The large one, a million transactions of ten operations, is `cargo test --release -p
//! seriatim-history --test scale -- --ignored --nocapture`.

use seriatim_base::clock::Instant;
use seriatim_base::{Rng, TableId};
use seriatim_history::{Anomaly, Columns, History, Initial, Key, Promises, Read, Saw, Scan, Transaction, Write, check};
use std::collections::BTreeSet;
use std::ops::Bound;

/// A serial execution with overlapping times: reads and updates over `keys` rows, and a queue. The queue is
/// filled at one end and emptied at the other by scans for its first row. So dead keys pile up below it.
fn history(seed: u64, transactions: u64, keys: u64) -> History {
    let mut rng = Rng::from_seed(seed);
    let (rows, queue) = (TableId(0), TableId(1));
    let mut tids = vec![1u64; keys as usize];
    let mut waiting: BTreeSet<u64> = BTreeSet::new();
    let mut enqueued: u64 = 0;
    let mut all = Vec::with_capacity(transactions as usize);
    for i in 0..transactions {
        let point = 1000 + 10 * i;
        let mut t = Transaction::new(i).during(point - rng.below(60), point + rng.below(60));
        t.session = (i % 8) as u32;
        let version = i + 2;
        let mut own = Vec::with_capacity(5);
        for _ in 0..8 {
            let at = rng.below(keys);
            if own.len() < 4 && rng.percent(50) && !own.contains(&at) {
                t.reads.push(Read {
                    table: rows,
                    key: Key::from(at),
                    columns: Columns::ALL,
                    saw: Saw::Row(tids[at as usize]),
                });
                own.push(at);
            } else if !own.contains(&at) {
                t.reads.push(Read {
                    table: rows,
                    key: Key::from(at),
                    columns: Columns::ALL,
                    saw: Saw::Row(tids[at as usize]),
                });
            }
        }
        for at in own {
            tids[at as usize] = version;
            t.writes.push(Write { table: rows, key: Key::from(at), version, deleted: false, columns: None });
        }
        match waiting.first().copied() {
            Some(first) if rng.percent(50) => {
                let high = Bound::Included(Key::from(first));
                // The row was enqueued by the transaction of its number.
                let saw = vec![(Key::from(first), Saw::Row(first + 2))];
                t.scans.push(Scan { table: queue, low: Bound::Unbounded, high, columns: Columns::ALL, saw });
                t.writes.push(Write { table: queue, key: Key::from(first), version, deleted: true, columns: None });
                waiting.remove(&first);
            }
            first => {
                if first.is_none() {
                    t.scans.push(Scan {
                        table: queue,
                        low: Bound::Unbounded,
                        high: Bound::Unbounded,
                        columns: Columns::ALL,
                        saw: vec![],
                    });
                }
                t.reads.push(Read { table: queue, key: Key::from(i), columns: Columns::ALL, saw: Saw::Absent });
                t.writes.push(Write { table: queue, key: Key::from(i), version, deleted: false, columns: None });
                waiting.insert(i);
                enqueued += 1;
            }
        }
        all.push(t);
    }
    assert!(enqueued > 0);
    // In the order of the logs of eight workers.
    all.sort_by_key(|t| t.session);
    History {
        tables: vec!["rows".into(), "queue".into()],
        initial: Initial::Unknown,
        transactions: all,
        ..History::default()
    }
}

/// Both promises accept, and a stale read planted in the middle is found.
fn both(transactions: u64, keys: u64) {
    let mut history = history(7, transactions, keys);
    for promises in [Promises { sessions: false, ..Promises::STRICT }, Promises::SERIALIZABLE] {
        let start = Instant::now();
        let summary = check(&history, &promises).unwrap_or_else(|violation| panic!("{violation}"));
        println!("{:.2} s, {} clauses: {summary}", start.elapsed().as_secs_f64(), summary.clauses);
    }
    let late = &history.transactions.iter().find(|t| t.id == transactions / 2).expect("ids are dense");
    let (began, update) = (late.ended + 1, late.writes.iter().find(|w| w.table == TableId(0)).expect("an update"));
    let old = late.reads.iter().find(|r| r.key == update.key).expect("it read what it wrote").saw;
    let stale = Transaction::new(u64::MAX).during(began, began + 5).read(0, update.key.clone(), old);
    history.transactions.push(stale);
    let start = Instant::now();
    let promises = Promises { real_time: true, ..Promises::SERIALIZABLE };
    let violation = check(&history, &promises).expect_err("a stale read");
    println!("{:.2} s: {violation}", start.elapsed().as_secs_f64());
    assert_eq!(violation.anomaly, Anomaly::StaleRead);
    assert_eq!(violation.cycle.len(), 2, "{violation}");
}

#[test]
fn small() {
    both(20_000, 1_000);
    both(5_000, 20);
}

#[test]
#[ignore = "a million transactions: run it optimized, see the head of the file"]
fn large() {
    both(1_000_000, 1_000_000);
    both(1_000_000, 100);
}
