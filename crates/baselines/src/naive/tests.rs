//! A whole execution and the commits of others exclude each other.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use seriatim_base::thread;
use seriatim_catalog::{ColumnSet, Key};
use seriatim_htm::HtmMode;
use seriatim_store::Direction;
use seriatim_txn::{NoRedo, OnExists, PartitionSet, Priority, Reason, Scan, Worker as _};

use super::*;
use crate::common::{Bench, modes};

const X: u64 = 0;
const Y: u64 = 1;
const ABSENT: u64 = 9;

type Open = Worker<State>;

fn begin(bench: &Bench<Naive>) -> Open {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker
}

fn change(bench: &Bench<Naive>, open: &mut Open, key: u64) -> i64 {
    bench.change(open, key, |value| value + 1).expect("no transaction holds it")
}

fn insert(bench: &Bench<Naive>, open: &mut Open, key: u64) {
    let staged = open.stage(&bench.cells).expect("memory");
    bench.set(staged.row, 1);
    assert!(open.insert(&bench.cells, Key::Word8(key), staged, OnExists::Refuse).is_ok());
}

fn commit(open: &mut Open) -> Result<seriatim_base::Tid, OpError> {
    open.commit(&mut NoRedo).map(|outcome| match outcome {
        Outcome::Committed(tid) => tid,
        Outcome::Repair(_) => unreachable!("it does not repair"),
    })
}

/// Runs `body` whole, and its transaction to the end of its commit.
fn whole(bench: &Bench<Naive>, mut body: impl FnMut(&mut Open)) -> Result<seriatim_base::Tid, OpError> {
    let (mut whole, mut open, mut ended) = (bench.protocol.whole().expect("it has it"), begin(bench), None);
    whole.run(&mut || {
        open.begin_whole(PartitionSet::ALL);
        body(&mut open);
        ended = Some(commit(&mut open));
    });
    ended.expect("it ran to its end")
}

fn all_modes() -> impl Iterator<Item = HtmMode> {
    let rtm = seriatim_htm::detect().probe_commits.then_some(HtmMode::Rtm);
    modes().into_iter().chain(rtm)
}

fn noted(open: &mut Open) -> [usize; 2] {
    [open.attempt().reads.len(), open.attempt().node_set.len()]
}

#[test]
fn a_transaction_that_runs_whole_notes_nothing_until_it_ends() {
    for mode in all_modes() {
        let bench = Bench::<Naive>::open(mode, &[10, 20]);
        let touch = |open: &mut Open| {
            assert!(bench.read(open, X).is_ok() && bench.read(open, ABSENT) == Ok(None));
            let mut scan = Scan::default();
            let (low, high) = (Bound::Unbounded, Bound::Unbounded);
            bench.cells.index.scan(low, high, Direction::Forward, &mut scan.cursor).expect("ordered");
            while open.scan_next(&bench.cells, &mut scan, ColumnSet::ALL).expect("no transaction holds it").is_some() {}
            let savepoint = open.savepoint();
            change(&bench, open, Y);
            open.rollback_to(savepoint);
        };
        let mut open = begin(&bench);
        open.begin_whole(PartitionSet::ALL);
        touch(&mut open);
        assert_eq!(noted(&mut open), [0, 0]);
        assert!(commit(&mut open).is_ok());
        // Whichever way it ended, the next transaction of the worker is another.
        for ends in [Open::abort, |open: &mut Open| assert!(commit(open).is_ok()), |open: &mut Open| open.abort()] {
            open.begin(Mode::ReadWrite, Priority::NONE);
            touch(&mut open);
            assert!(noted(&mut open).iter().all(|&noted| noted > 0), "{:?}", noted(&mut open));
            open.abort();
            open.begin(Mode::ReadWrite, Priority::NONE);
            open.begin_whole(PartitionSet::ALL);
            insert(&bench, &mut open, ABSENT);
            ends(&mut open);
            if bench.read(&mut begin(&bench), ABSENT) == Ok(Some(1)) {
                open.begin(Mode::ReadWrite, Priority::NONE);
                assert!(open.delete(&bench.cells, Key::Word8(ABSENT)).is_ok_and(|row| row.is_some()));
                assert!(commit(&mut open).is_ok());
            }
        }
    }
}

/// It could not find out: it validates nothing.
#[test]
fn no_transaction_commits_a_write_while_another_runs_whole() {
    for mode in all_modes() {
        let bench = Bench::<Naive>::open(mode, &[10, 20]);
        let [begun, committed] = [const { AtomicBool::new(false) }; 2];
        thread::scope(|scope| {
            let (bench, begun, committed) = (&bench, &begun, &committed);
            let mut other = begin(bench);
            scope.spawn(move || {
                while !begun.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                change(bench, &mut other, X);
                while let Err(held) = commit(&mut other) {
                    assert!(matches!(held, OpError::Abort(cause) if cause.reason == Reason::RecordLocked), "{held:?}");
                    other.abort();
                    other.begin(Mode::ReadWrite, Priority::NONE);
                    change(bench, &mut other, X);
                }
                committed.store(true, Ordering::SeqCst);
            });
            let ended = whole(bench, |open| {
                assert_eq!(bench.read(open, X), Ok(Some(10)));
                begun.store(true, Ordering::SeqCst);
                // In a region of the processor that ends it: it runs again under the lock, and tells the other then.
                for _ in 0..20 {
                    thread::sleep(std::time::Duration::from_millis(1));
                    assert!(!committed.load(Ordering::SeqCst), "{mode}");
                }
                assert_eq!(bench.read(open, X), Ok(Some(10)));
                change(bench, open, Y);
            });
            assert!(ended.is_ok());
        });
        assert_eq!(bench.state(&[X, Y]), [11, 21]);
    }
}

/// Write skew, of which the other transaction is refuted.
#[test]
fn readers_validate_against_a_transaction_that_ran_whole() {
    for mode in all_modes() {
        let bench = Bench::<Naive>::open(mode, &[10, 20]);
        let mut other = begin(&bench);
        assert_eq!(bench.read(&mut other, X), Ok(Some(10)));
        assert_eq!(bench.read(&mut other, ABSENT), Ok(None));
        change(&bench, &mut other, Y);
        let ended = whole(&bench, |open| {
            assert_eq!(bench.read(open, Y), Ok(Some(20)));
            change(&bench, open, X);
            insert(&bench, open, ABSENT);
        });
        assert!(ended.is_ok());
        let refuted = commit(&mut other).expect_err("X has changed");
        assert!(matches!(refuted, OpError::Abort(cause) if cause.reason == Reason::RecordChanged), "{refuted:?}");
        other.abort();
        assert_eq!(bench.state(&[X, Y, ABSENT]), [11, 20, 1]);
    }
}

/// That it has changed since is no reason to run it again.
#[test]
fn reads_of_a_rolled_back_procedure_were_consistent() {
    for mode in all_modes() {
        let bench = Bench::<Naive>::open(mode, &[10, 20]);
        let (mut whole, mut open) = (bench.protocol.whole().expect("it has it"), begin(&bench));
        whole.run(&mut || {
            open.begin_whole(PartitionSet::ALL);
            change(&bench, &mut open, X);
        });
        let mut other = begin(&bench);
        change(&bench, &mut other, X);
        assert!(commit(&mut other).is_ok());
        assert_eq!(open.validate(), Ok(()));
        open.abort();
        assert_eq!(bench.state(&[X]), [11]);
    }
}

/// Unnoted reads count for the TID nevertheless: of rows, and of deletions whose records are gone.
#[test]
fn its_tid_is_above_all_that_it_read() {
    for mode in all_modes() {
        let bench = Bench::<Naive>::open(mode, &[10, 20]);
        let mut busy = bench.worker();
        let mut newest = seriatim_base::Tid::ZERO;
        for _ in 0..5 {
            busy.begin(Mode::ReadWrite, Priority::NONE);
            change(&bench, &mut busy, X);
            newest = commit(&mut busy).expect("alone");
        }
        let reads = |open: &mut Open| {
            assert_eq!(bench.read(open, X), Ok(Some(15)));
            change(&bench, open, Y);
        };
        assert!(whole(&bench, reads).expect("alone") > newest);
    }
}
