//! Held transactions. Until they are decided none of their changes moves the version of a leaf or bucket. They see
//! their own rows all the same, and a transaction that read there can be decided first.

use std::ops::Bound;

use seriatim_base::{Rng, rng};
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_protocol::occ_batch::OccBatch;
use seriatim_store::Direction;
use seriatim_txn::{Inserted, Mode, OnExists, OpError, Priority, Protocol, Savepoint, Scan, Worker};

use crate::common::{Bench, modes};
use crate::contract::tids::delete;
use crate::contract::{commit, commits, insert};

const VALUES: [i64; 3] = [1, 10, 100];
const ABSENT: u64 = 9;

/// The worker of the protocol that holds transactions.
type Held = <OccBatch as Protocol>::Worker;

fn begin(bench: &Bench<OccBatch>) -> Held {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker.detach().expect("it holds").hold();
    worker
}

/// Ids and values of the rows from `low` to `high`.
fn scan(
    bench: &Bench<OccBatch>,
    worker: &mut Held,
    (low, high): (u64, u64),
    direction: Direction,
) -> Result<Vec<(u64, i64)>, OpError> {
    let (mut scan, mut rows) = (Scan::default(), Vec::new());
    let (low, high) = (Bound::Included(Key::Word8(low)), Bound::Excluded(Key::Word8(high)));
    bench.cells.index.scan(low, high, direction, &mut scan.cursor).expect("ordered");
    while let Some(row) = worker.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)? {
        let record = worker.seen().record.expect("a row is of a record");
        // SAFETY: it was just seen; the worker is online.
        let key = unsafe { seriatim_store::read_key(record, bench.cells.class) };
        let Key::Word8(id) = key else { unreachable!("the class of this table") };
        rows.push((id, bench.get(row)));
    }
    Ok(rows)
}

/// One transaction holds an insertion, and the other has looked where the row will be. If the reader is decided first,
/// both commit. If it is decided second, it cannot commit.
fn reader_and_inserter(look: impl Fn(&Bench<OccBatch>, &mut Held) -> Result<(), OpError>) {
    for mode in modes() {
        for inserter_is_executed_first in [true, false] {
            for reader_is_decided_first in [true, false] {
                let bench = Bench::<OccBatch>::open(mode, &VALUES);
                let (mut inserter, mut reader) = (begin(&bench), begin(&bench));
                let execute = |worker: &mut Held| {
                    assert_eq!(insert(&bench, worker, ABSENT, 5), Ok(Inserted::New));
                };
                if inserter_is_executed_first {
                    execute(&mut inserter);
                }
                look(&bench, &mut reader).expect("no conflict");
                bench.change(&mut reader, 0, |value| value + 1).expect("no conflict");
                if !inserter_is_executed_first {
                    execute(&mut inserter);
                }
                let prepared = [&mut inserter, &mut reader].map(|worker| worker.detach().expect("it holds").prepare());
                let [inserts, reads] = prepared.map(|prepared| prepared.expect("nobody has committed meanwhile"));
                assert!(inserts.inserts.iter().any(|node| reads.nodes.contains(node)), "a batcher sees the conflict");
                let committed = match reader_is_decided_first {
                    true => [commits(&mut reader, Ok(())), commits(&mut inserter, Ok(()))],
                    false => [commits(&mut inserter, Ok(())), commits(&mut reader, Ok(()))],
                };
                assert_eq!(committed, [true, reader_is_decided_first], "{mode}");
                assert_eq!(bench.state(&[ABSENT, 0]), [5, if reader_is_decided_first { 2 } else { 1 }]);
            }
        }
    }
}

#[test]
fn a_scan_and_an_insertion_into_its_range_both_commit() {
    reader_and_inserter(|bench, worker| {
        assert_eq!(scan(bench, worker, (0, 100), Direction::Forward)?, [(0, 1), (1, 10), (2, 100)]);
        Ok(())
    });
}

#[test]
fn an_absence_and_its_insertion_both_commit() {
    reader_and_inserter(|bench, worker| {
        assert_eq!(bench.read(worker, ABSENT)?, None);
        Ok(())
    });
}

#[test]
fn only_a_decision_moves_node_versions() {
    for mode in modes() {
        let bench = Bench::<OccBatch>::open(mode, &VALUES);
        let (mut inserter, mut watcher) = (begin(&bench), begin(&bench));
        let unmoved = |watcher: &mut Held| {
            let pin = watcher.core().local.pinned();
            bench.cells.index.get(Key::Word8(ABSENT + 1), pin).expect_err("it is absent")
        };
        let before = unmoved(&mut watcher);
        assert_eq!(insert(&bench, &mut inserter, ABSENT, 5), Ok(Inserted::New));
        assert_eq!(unmoved(&mut watcher), before, "an insertion");
        inserter.detach().expect("it holds").prepare().expect("no conflict");
        inserter.abort();
        assert_eq!(unmoved(&mut watcher), before, "an attempt given up");
        // A decision that is lost before it begins.
        let mut stale = begin(&bench);
        bench.read(&mut stale, 0).expect("no conflict");
        assert_eq!(insert(&bench, &mut stale, ABSENT, 5), Ok(Inserted::New));
        let mut other = begin(&bench);
        let changed = bench.change(&mut other, 0, |value| value + 1);
        assert!(commits(&mut other, changed) && !commits(&mut stale, Ok(())));
        assert_eq!(unmoved(&mut watcher), before, "a decision against it");
        let mut deletes = begin(&bench);
        assert_eq!(insert(&bench, &mut deletes, ABSENT, 5), Ok(Inserted::New));
        assert!(deletes.delete(&bench.cells, Key::Word8(ABSENT)).is_ok_and(|row| row.is_some()));
        assert!(commits(&mut deletes, Ok(())));
        assert_eq!(unmoved(&mut watcher), before, "a row inserted and deleted");
        let mut inserter = begin(&bench);
        let inserted = insert(&bench, &mut inserter, ABSENT, 5);
        assert!(commits(&mut inserter, inserted));
        assert_ne!(unmoved(&mut watcher), before);
        watcher.abort();
    }
}

#[test]
fn of_two_that_insert_one_key_the_second_fails() {
    for mode in modes() {
        let bench = Bench::<OccBatch>::open(mode, &VALUES);
        let mut workers = [begin(&bench), begin(&bench)];
        for (worker, value) in workers.iter_mut().zip([5, 6]) {
            assert_eq!(insert(&bench, worker, ABSENT, value), Ok(Inserted::New));
        }
        let [first, second] = &mut workers;
        assert_eq!((first.validate(), second.validate()), (Ok(()), Ok(())));
        assert!(commits(first, Ok(())));
        assert!(second.validate().is_err(), "what it was told, that the key is new, is not true any more");
        assert!(!commits(second, Ok(())));
        assert_eq!(bench.state(&[ABSENT]), [5]);
    }
}

/// The absence that told a savepoint's insertion stays read when that is taken back.
#[test]
fn the_absence_that_was_rolled_back_stays_read() {
    for mode in modes() {
        for taken_before_the_rollback in [true, false] {
            let bench = Bench::<OccBatch>::open(mode, &VALUES);
            let mut held = begin(&bench);
            let savepoint = held.savepoint();
            assert_eq!(insert(&bench, &mut held, ABSENT, 5), Ok(Inserted::New));
            let take = || {
                let mut other = begin(&bench);
                let inserted = insert(&bench, &mut other, ABSENT, 6);
                assert!(commits(&mut other, inserted));
            };
            if taken_before_the_rollback {
                take();
            }
            held.rollback_to(savepoint);
            if !taken_before_the_rollback {
                assert_eq!(held.validate(), Ok(()));
                take();
            }
            let changed = bench.change(&mut held, 0, |value| value + 1);
            assert!(!commits(&mut held, changed), "{mode}");
            assert_eq!(bench.state(&[0, ABSENT]), [1, 6]);
        }
    }
}

/// The answers of a transaction do not depend on whether it is held.
#[test]
fn answers_are_those_of_one_that_is_not_held() {
    let seed = rng::given_seed().unwrap_or(0);
    for mode in modes() {
        for seed in seed..seed + 60 {
            let benches = [(); 2].map(|()| Bench::<OccBatch>::open(mode, &[7; 40]));
            let mut told = benches.each_ref().map(|bench| run(bench, seed, std::ptr::eq(bench, &raw const benches[0])));
            let [held, plain] = &mut told;
            assert_eq!(held, plain, "{mode}, seed {seed}");
        }
    }
}

/// Runs some transactions of random operations; everything they answered.
fn run(bench: &Bench<OccBatch>, seed: u64, held: bool) -> Vec<String> {
    const KEYS: u64 = 120;
    let (mut rng, mut told) = (Rng::from_seed(seed), Vec::new());
    let mut worker = bench.worker();
    for _ in 0..6 {
        worker.begin(Mode::ReadWrite, Priority::NONE);
        if held {
            worker.detach().expect("it holds").hold();
        }
        let mut savepoints: Vec<Savepoint> = Vec::new();
        for _ in 0..rng.below(60) {
            let (id, value) = (rng.below(KEYS), rng.below(1000) as i64);
            let key = Key::Word8(id);
            told.push(match rng.below(12) {
                0..4 => {
                    let staged = worker.stage(&bench.cells).expect("memory");
                    bench.set(staged.row, value);
                    let exists = if rng.below(2) == 0 { OnExists::Refuse } else { OnExists::Replace };
                    let inserted = worker.insert(&bench.cells, key, staged, exists).expect("it runs alone");
                    match inserted {
                        Inserted::New => "new".to_owned(),
                        Inserted::Exists(row) => format!("exists {}", bench.get(row)),
                        Inserted::Replaced(row) => format!("replaced {}", bench.get(row)),
                    }
                }
                4 => format!("{:?}", bench.read(&mut worker, id)),
                5 => {
                    let updating = worker.update(&bench.cells, key, ColumnUse::ALL).expect("it runs alone");
                    updating.map_or("missing".to_owned(), |updating| {
                        bench.set(updating.after, value);
                        format!("updated {}", bench.get(updating.before))
                    })
                }
                6 | 7 => {
                    let row = worker.delete(&bench.cells, key).expect("it runs alone");
                    format!("deleted {:?}", row.map(|row| bench.get(row)))
                }
                8 | 9 => {
                    let direction = [Direction::Forward, Direction::Backward][rng.below(2) as usize];
                    format!("{:?}", scan(bench, &mut worker, (id, id + rng.below(KEYS)), direction))
                }
                10 => {
                    savepoints.push(worker.savepoint());
                    "mark".to_owned()
                }
                _ => {
                    if !savepoints.is_empty() {
                        savepoints.truncate(1 + rng.below(savepoints.len() as u64) as usize);
                        worker.rollback_to(*savepoints.last().expect("not empty"));
                    }
                    "rewound".to_owned()
                }
            });
        }
        assert_eq!(worker.validate(), Ok(()));
        if rng.below(4) == 0 {
            worker.abort()
        } else {
            assert!(commits(&mut worker, Ok(())), "seed {seed}")
        }
        worker.collect_garbage(usize::MAX);
    }
    worker.begin(Mode::ReadWrite, Priority::NONE);
    told.push(format!("{:?}", scan(bench, &mut worker, (0, KEYS), Direction::Forward)));
    worker.abort();
    told
}

#[test]
fn memory_of_what_was_given_up_comes_back() {
    // The keys of the second table lie beside their records.
    for (mode, columns) in modes().into_iter().flat_map(|mode| [(mode, &["id"][..]), (mode, &["a", "b", "c"])]) {
        let bench = Bench::<OccBatch>::empty(mode, columns);
        let mut worker = bench.worker();
        let key = |id: u64, work: &mut dyn FnMut(Key<'_>)| match columns.len() {
            1 => work(Key::Word8(id)),
            _ => work(Key::Bytes(format!("cell number {id:012}").as_bytes())),
        };
        let insert = |worker: &mut Held, key: Key<'_>| {
            let staged = worker.stage(&bench.cells).expect("memory");
            assert_eq!(worker.insert(&bench.cells, key, staged, OnExists::Refuse), Ok(Inserted::New));
        };
        let mut round = || {
            worker.begin(Mode::ReadWrite, Priority::NONE);
            worker.detach().expect("it holds").hold();
            (0..20).for_each(|id| key(id, &mut |key| insert(&mut worker, key)));
            let savepoint = worker.savepoint();
            for id in 100..120 {
                key(id, &mut |key| {
                    insert(&mut worker, key);
                    assert!(worker.update(&bench.cells, key, ColumnUse::ALL).is_ok_and(|row| row.is_some()));
                });
            }
            worker.rollback_to(savepoint);
            worker.abort();
            worker.collect_garbage(usize::MAX);
            worker.core().local.live_bytes()
        };
        let after_one = round();
        (0..10).for_each(|_| assert_eq!(round(), after_one, "{mode}, {columns:?}"));
    }
}

/// A batcher orders by its input: each record that was read, also by writing it, and each that is written.
#[test]
fn a_prepared_transaction_lists_all_its_reads_and_writes() {
    for mode in modes() {
        let bench = Bench::<OccBatch>::open(mode, &VALUES);
        let mut worker = begin(&bench);
        let mut reads = Vec::new();
        let mut saw = |worker: &Held| {
            let seen = worker.seen();
            reads.push((seen.record.expect("it is there").addr(), seen.tid));
        };
        bench.read(&mut worker, 0).expect("alone");
        saw(&worker);
        bench.change(&mut worker, 1, |value| value + 1).expect("alone");
        saw(&worker);
        assert!(worker.delete(&bench.cells, Key::Word8(2)).is_ok_and(|row| row.is_some()));
        saw(&worker);
        assert_eq!(insert(&bench, &mut worker, ABSENT, 5), Ok(Inserted::New));
        let pin = worker.core().local.pinned();
        let node = bench.cells.index.get(Key::Word8(ABSENT), pin).expect_err("it is not linked").address();
        let mut prepared = worker.detach().expect("it holds").prepare().expect("alone");
        for list in [&mut prepared.writes, &mut prepared.nodes, &mut prepared.inserts] {
            list.sort_unstable();
        }
        prepared.reads.sort_unstable();
        let mut writes: Vec<usize> = reads[1..].iter().map(|(record, _)| *record).collect();
        writes.sort_unstable();
        reads.sort_unstable();
        assert_eq!((prepared.reads, prepared.writes), (reads, writes), "{mode}");
        assert_eq!((prepared.nodes, prepared.inserts), (vec![], vec![node as usize]), "{mode}");
        worker.abort();
    }
}

/// A transaction that inserts comes after the deletion that made the key absent, although it looks at the
/// index again only at the decision.
#[test]
fn an_insertion_comes_after_the_deletion_of_its_key() {
    for mode in modes() {
        let bench = Bench::<OccBatch>::open(mode, &VALUES);
        let (mut deleting, mut inserting) = (bench.worker(), bench.worker());
        let deleted = delete(&bench, &mut deleting);
        deleting.collect_garbage(usize::MAX);
        inserting.begin(Mode::ReadWrite, Priority::NONE);
        inserting.detach().expect("it holds").hold();
        let pin = inserting.core().local.pinned();
        assert!(bench.cells.index.get(Key::Word8(1), pin).is_err(), "nothing is left of it");
        assert_eq!(insert(&bench, &mut inserting, 1, 5), Ok(Inserted::New));
        assert!(inserting.newest() >= deleted, "{mode}");
        let inserted = commit(&mut inserting).expect("alone");
        assert!(inserted > deleted, "{mode}: {inserted}, and the delete {deleted}");
    }
}

/// In whatever order rows are inserted, their own transaction finds each, and scans them by key.
#[test]
fn many_rows_in_any_order_are_found() {
    const ROWS: u64 = 300;
    let mut shuffled: Vec<u64> = (0..ROWS).collect();
    Rng::from_seed(1).shuffle(&mut shuffled);
    for ids in [(0..ROWS).collect(), (0..ROWS).rev().collect(), shuffled] {
        let bench = Bench::<OccBatch>::open(modes()[0], &[]);
        let mut worker = begin(&bench);
        for (at, &id) in ids.iter().enumerate() {
            assert_eq!(insert(&bench, &mut worker, id, id as i64), Ok(Inserted::New));
            for earlier in &ids[at.saturating_sub(20)..=at] {
                assert_eq!(bench.read(&mut worker, *earlier), Ok(Some(*earlier as i64)));
            }
            assert!(matches!(insert(&bench, &mut worker, ids[at / 2], 0), Ok(Inserted::Exists(_))));
        }
        let all: Vec<_> = (0..ROWS).map(|id| (id, id as i64)).collect();
        assert_eq!(scan(&bench, &mut worker, (0, ROWS), Direction::Forward).as_ref(), Ok(&all));
        assert!(commits(&mut worker, Ok(())));
        let mut after = begin(&bench);
        assert_eq!(scan(&bench, &mut after, (0, ROWS), Direction::Forward), Ok(all));
        after.abort();
    }
}
