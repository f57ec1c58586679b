//! The owner of partitions excludes others from them, and accesses no other partitions. Whole execution is naive's,
//! whose tests cover its notes and TIDs.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use seriatim_base::thread;
use seriatim_catalog::{ColumnSet, Key};
use seriatim_htm::HtmMode;
use seriatim_store::Direction;
use seriatim_txn::{NoRedo, OnExists, Priority, Scan, Worker as _};

use super::*;
use crate::common::Bench;

/// Of two different partitions of four.
const X: u64 = 0;
const Y: u64 = 1;
const ABSENT: u64 = 8;

type Open = Worker<State>;

fn bench() -> Bench<Partitioned> {
    Bench::<Partitioned>::open(HtmMode::Absent, &[10, 20])
}

fn begin(bench: &Bench<Partitioned>) -> Open {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker
}

/// An attempt that runs whole in these partitions, whose locks it does not have.
fn begin_in(bench: &Bench<Partitioned>, partitions: PartitionSet) -> Open {
    let mut open = begin(bench);
    open.begin_whole(partitions);
    open
}

fn change(bench: &Bench<Partitioned>, open: &mut Open, key: u64) -> Result<i64, OpError> {
    bench.change(open, key, |value| value + 1)
}

fn insert(bench: &Bench<Partitioned>, open: &mut Open, key: u64) -> Result<(), OpError> {
    let staged = open.stage(&bench.cells)?;
    bench.set(staged.row, 1);
    open.insert(&bench.cells, Key::Word8(key), staged, OnExists::Refuse).map(drop)
}

fn scan(bench: &Bench<Partitioned>, open: &mut Open, low: u64, high: u64) -> Result<usize, OpError> {
    let mut scan = Scan::default();
    let (low, high) = (Bound::Included(Key::Word8(low)), Bound::Excluded(Key::Word8(high)));
    bench.cells.index.scan(low, high, Direction::Forward, &mut scan.cursor).expect("ordered");
    let mut found = 0;
    while open.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)?.is_some() {
        found += 1;
    }
    Ok(found)
}

fn commit(open: &mut Open) -> Result<(), OpError> {
    open.commit(&mut NoRedo).map(drop)
}

fn reason<R: std::fmt::Debug>(result: Result<R, OpError>) -> Reason {
    match result {
        Err(OpError::Abort(cause)) => cause.reason,
        other => panic!("it goes through: {other:?}"),
    }
}

#[test]
fn a_transaction_that_owns_a_partition_notes_nothing_and_accesses_no_other() {
    let bench = bench();
    let elsewhere: [fn(&Bench<Partitioned>, &mut Open) -> Reason; 6] = [
        |bench, open| reason(bench.read(open, Y)),
        |bench, open| reason(change(bench, open, Y)),
        |bench, open| reason(insert(bench, open, ABSENT + 1)),
        |bench, open| reason(open.delete(&bench.cells, Key::Word8(Y))),
        |bench, open| reason(scan(bench, open, X, Y + 1)),
        |bench, open| reason(scan(bench, open, Y, Y + 1)),
    ];
    for touch in elsewhere {
        let mut open = begin_in(&bench, PartitionSet::one(0));
        assert_eq!(bench.read(&mut open, X), Ok(Some(10)));
        assert_eq!(scan(&bench, &mut open, X, X + 1), Ok(1));
        assert!(change(&bench, &mut open, X).is_ok() && insert(&bench, &mut open, ABSENT).is_ok());
        assert_eq!([open.attempt().reads.len(), open.attempt().node_set.len()], [0, 0]);
        assert_eq!(touch(&bench, &mut open), Reason::OtherPartition);
        let told = open.conflict_info().expect("it is told").clone();
        assert_eq!((told.cause.reason, told.table), (Reason::OtherPartition, Some(bench.cells.id)));
        open.abort();
    }
    assert_eq!(bench.state(&[X, Y]), [10, 20]);
    // Its next attempt is another.
    let mut open = begin_in(&bench, PartitionSet::one(0));
    assert!(commit(&mut open).is_ok());
    open.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(bench.read(&mut open, Y), Ok(Some(20)));
    assert_eq!(open.attempt().reads.len(), 1);
}

#[test]
fn a_transaction_that_owns_several_or_all_partitions_accesses_those() {
    let bench = bench();
    let both = PartitionSet::one(0).union(PartitionSet::one(1));
    let mut open = begin_in(&bench, both);
    assert!(change(&bench, &mut open, X).is_ok() && change(&bench, &mut open, Y).is_ok());
    assert_eq!(reason(insert(&bench, &mut open, ABSENT + 2)), Reason::OtherPartition);
    open.abort();
    let each = (0..4).map(PartitionSet::one).fold(PartitionSet::NONE, PartitionSet::union);
    for all in [PartitionSet::ALL, each] {
        let mut open = begin_in(&bench, all);
        assert!(change(&bench, &mut open, X).is_ok());
        assert_eq!(scan(&bench, &mut open, X, ABSENT), Ok(2));
        open.abort();
    }
}

/// It could not find out: it validates nothing.
#[test]
fn no_transaction_commits_a_write_in_a_partition_that_another_owns() {
    let bench = bench();
    let (partitions, wait) = bench.protocol.partitions().expect("it has them");
    assert_eq!((partitions.count(), wait), (Partitions::DEFAULT, Duration::from_secs(1)));
    let committed = AtomicBool::new(false);
    thread::scope(|scope| {
        let owned = partitions.own(PartitionSet::one(0), wait).expect("nobody has it");
        let mut alone = begin_in(&bench, PartitionSet::one(0));
        assert_eq!(bench.read(&mut alone, X), Ok(Some(10)));
        // Elsewhere others commit, and they read here.
        let mut other = begin(&bench);
        assert!(bench.read(&mut other, X) == Ok(Some(10)) && change(&bench, &mut other, Y).is_ok());
        assert_eq!(commit(&mut other), Ok(()));
        // Here they give up.
        let mut late = begin(&bench);
        assert!(change(&bench, &mut late, X).is_ok());
        assert_eq!(reason(commit(&mut late)), Reason::WaitTimeout);
        late.abort();
        let (bench, committed) = (&bench, &committed);
        scope.spawn(move || {
            loop {
                late.begin(Mode::ReadWrite, Priority::NONE);
                // The row is locked while the owner's commit installs it.
                if change(bench, &mut late, X).is_ok() && commit(&mut late).is_ok() {
                    return committed.store(true, Ordering::SeqCst);
                }
                late.abort();
            }
        });
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(1));
            assert!(!committed.load(Ordering::SeqCst));
        }
        assert_eq!(bench.read(&mut alone, X), Ok(Some(10)));
        assert!(change(bench, &mut alone, X).is_ok() && commit(&mut alone).is_ok());
        drop(owned);
    });
    assert_eq!(bench.state(&[X, Y]), [12, 21]);
}

#[test]
fn a_commit_owns_all_that_it_writes() {
    let bench = bench();
    let (partitions, wait) = bench.protocol.partitions().expect("it has them");
    for owned in [0, 1, 2] {
        let _owned = partitions.own(PartitionSet::one(owned), wait).expect("nobody has it");
        let mut other = begin(&bench);
        assert!(change(&bench, &mut other, X).is_ok() && change(&bench, &mut other, Y).is_ok());
        let committed = commit(&mut other);
        assert_eq!(committed.is_ok(), owned == 2, "while {owned} is owned");
        if committed.is_err() {
            other.abort();
        }
        // A transaction without writes conflicts with no owner.
        let mut reader = begin(&bench);
        assert!(bench.read(&mut reader, X).is_ok() && commit(&mut reader).is_ok());
    }
    assert_eq!(bench.state(&[X, Y]), [11, 21]);
}

/// Write skew, of which the other transaction is refuted.
#[test]
fn readers_validate_against_a_transaction_that_ran_alone() {
    let bench = bench();
    let mut other = begin(&bench);
    assert_eq!((bench.read(&mut other, X), bench.read(&mut other, ABSENT)), (Ok(Some(10)), Ok(None)));
    assert!(change(&bench, &mut other, Y).is_ok());
    let mut alone = begin_in(&bench, PartitionSet::one(0));
    assert!(change(&bench, &mut alone, X).is_ok() && insert(&bench, &mut alone, ABSENT).is_ok());
    assert_eq!(commit(&mut alone), Ok(()));
    assert_eq!(reason(commit(&mut other)), Reason::RecordChanged);
    other.abort();
    assert_eq!(bench.state(&[X, Y, ABSENT]), [11, 20, 1]);
}

/// That it has changed since is no reason to run it again.
#[test]
fn reads_of_a_rolled_back_procedure_were_consistent() {
    let bench = bench();
    let mut alone = begin_in(&bench, PartitionSet::one(0));
    assert!(change(&bench, &mut alone, X).is_ok());
    let mut other = begin(&bench);
    assert!(change(&bench, &mut other, X).is_ok() && commit(&mut other).is_ok());
    assert_eq!(alone.validate(), Ok(()));
    alone.abort();
    assert_eq!(bench.state(&[X]), [11]);
}
