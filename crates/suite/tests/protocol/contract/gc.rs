//! Work after a transaction is bounded by what its caller allows and by what it deleted itself, and it gets everything
//! done. The memory of a refused commit is returned at once.

use seriatim_catalog::Key;
use seriatim_htm::HtmMode;
use seriatim_txn::{Inserted, Mode, Priority, Protocol, Worker};

use crate::common::{Bench, modes};
use crate::contract::{commit, commits, insert};

const ROWS: u64 = 1000;
/// Records to look at after a transaction that deleted none.
const MOST: usize = 16;

/// Records of deleted cells that are still linked.
fn linked<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker) -> usize {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    let pin = worker.core().local.pinned();
    let linked = (1..ROWS).filter(|&id| bench.cells.index.get(Key::Word8(id), pin).is_ok()).count();
    worker.abort();
    linked
}

fn delete<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, ids: std::ops::Range<u64>) {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    for id in ids {
        assert!(worker.delete(&bench.cells, Key::Word8(id)).is_ok_and(|row| row.is_some()));
    }
    commit(worker).expect("alone");
}

pub(crate) fn large_delete<P: Protocol>() {
    let bench = Bench::<P>::open(HtmMode::Absent, &[1; ROWS as usize]);
    let (mut worker, mut looking) = (bench.worker(), bench.worker());
    delete(&bench, &mut worker, 1..ROWS);
    let mut left = linked(&bench, &mut looking);
    assert_eq!(left as u64, ROWS - 1, "nobody has swept");
    bench.pass_time();
    for _ in 0..2 * ROWS as usize / MOST {
        worker.begin(Mode::ReadWrite, Priority::NONE);
        bench.read(&mut worker, 0).expect("alone");
        commit(&mut worker).expect("alone");
        worker.core().local.collect();
        worker.collect_garbage(MOST);
        let now = linked(&bench, &mut looking);
        assert!(left - now <= MOST, "{}: {} records after one read", P::INFO.name, left - now);
        left = now;
    }
    assert_eq!(left, 0, "{}: not all cleared away", P::INFO.name);
}

pub(crate) fn own_deletes<P: Protocol>() {
    let bench = Bench::<P>::open(HtmMode::Absent, &[1]);
    let (mut worker, mut looking) = (bench.worker(), bench.worker());
    // However little is allowed, a queue that is drained by a hundred at a time leaves no more and more behind.
    for first in (1..ROWS - 100).step_by(100) {
        worker.begin(Mode::ReadWrite, Priority::NONE);
        for id in first..first + 100 {
            assert_eq!(insert(&bench, &mut worker, id, 1), Ok(Inserted::New));
        }
        commit(&mut worker).expect("alone");
        delete(&bench, &mut worker, first..first + 100);
        bench.pass_time();
        worker.core().local.collect();
        worker.collect_garbage(1);
        let left = linked(&bench, &mut looking);
        assert!(left <= 200, "{}: {left} deleted records are linked after {first}", P::INFO.name);
    }
}

/// A deleted record that cannot be unlinked since a transaction holds the gap of its leaf is unlinked when
/// that has ended.
pub(crate) fn the_last_of_a_held_leaf<P: Protocol>() {
    let bench = Bench::<P>::open(HtmMode::Absent, &[1; ROWS as usize]);
    let (mut worker, mut holder, mut looking) = (bench.worker(), bench.worker(), bench.worker());
    delete(&bench, &mut worker, 1..ROWS);
    bench.pass_time();
    worker.core().local.collect();
    holder.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(bench.read(&mut holder, ROWS + 1), Ok(None));
    worker.collect_garbage(usize::MAX);
    let held = linked(&bench, &mut looking);
    // Of one leaf, if its gap is held.
    assert!(held <= 1, "{}: {held} records stay", P::INFO.name);
    holder.abort();
    for _ in 0..3 {
        worker.core().local.collect();
        worker.collect_garbage(usize::MAX);
    }
    assert_eq!(linked(&bench, &mut looking), 0, "{}: {held} stayed before", P::INFO.name);
}

/// The memory of transactions that insert over a deleted row comes back when their commits are refused.
pub(crate) fn refused_insertions_over_a_deleted_row<P: Protocol>() {
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 2]);
        let (mut worker, mut other) = (bench.worker(), bench.worker());
        delete(&bench, &mut other, 1..2);
        let mut round = || {
            worker.begin(Mode::ReadWrite, Priority::NONE);
            assert_eq!(bench.read(&mut worker, 1), Ok(None));
            assert!(worker.seen().record.is_some(), "what is left of the row is linked");
            assert_eq!(insert(&bench, &mut worker, 1, 5), Ok(Inserted::New));
            bench.change(&mut worker, 0, |value| value + 1).expect("no conflict");
            other.begin(Mode::ReadWrite, Priority::NONE);
            let changed = bench.change(&mut other, 0, |value| value + 1);
            match commits(&mut other, changed) {
                true => assert!(!commits(&mut worker, Ok(())), "{} on {mode}: it lost an update", P::INFO.name),
                // A transaction that locks what it accesses is not refused at its commit.
                false => worker.abort(),
            }
            worker.core().local.live_bytes()
        };
        let after_one = round();
        (0..10).for_each(|_| assert_eq!(round(), after_one, "{} on {mode}", P::INFO.name));
    }
}
