//! Rules that hold for every protocol, whatever another transaction does between any two steps of one. Every access to
//! a record header is such a step, and so is every lock of a gap. So reads, locks, validation and installation are
//! interrupted at each step (`seriatim_base::thread::interrupt`), or by a seed's schedule of several threads
//! (`take_turns`). Direct mode, where nothing is atomic but words.
//!
//! Where a protocol can hold transactions, each case runs with none of them held and with all. It also runs with every
//! second one held, from the first or the second on.

mod histories;
mod snapshots;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;

use crate::common::Bench;
use seriatim_base::thread::{interrupt, take_turns};
use seriatim_base::{Rng, Tid};
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_engine::for_each_protocol;
use seriatim_htm::HtmMode;
use seriatim_store::Direction;
use seriatim_txn::{
    Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Peeked, Priority, Protocol, RowBuffer, Scan, Worker,
};

/// The transactions of a thread that are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    All,
    Odd,
    Even,
}

const HELD: [Held; 4] = [Held::No, Held::All, Held::Odd, Held::Even];

thread_local! {
    /// The held transactions of this thread, and the number that it has begun.
    static BEGUN: Cell<(Held, u32)> = const { Cell::new((Held::No, 0)) };
}

/// From now on this thread holds these.
fn hold(held: Held) {
    BEGUN.set((held, 0));
}

/// Runs a case with none held. If the protocol can hold transactions, it also runs in the other ways.
fn however_held<P: Protocol>(case: impl Fn()) {
    let ways = if P::INFO.capabilities.detach { &HELD[..] } else { &HELD[..1] };
    for &held in ways {
        println!("held: {held:?}");
        hold(held);
        case();
    }
    hold(Held::No);
}

/// Holds the transaction that has just begun, if it is its turn, and returns whether it does. Its reads may wait for
/// other held transactions.
fn begin<W: Worker>(worker: &mut W, mode: Mode) -> bool {
    worker.begin(mode, Priority::NONE);
    let (held, begun) = BEGUN.get();
    BEGUN.set((held, begun + 1));
    let holds = match held {
        Held::No => false,
        Held::All => true,
        Held::Odd => begun % 2 == 0,
        Held::Even => begun % 2 == 1,
    };
    if let (true, Some(detach)) = (holds, worker.detach()) {
        detach.hold();
        detach.may_wait();
    }
    holds
}

/// Runs a transaction once: its TID and result, if it committed.
fn attempt<W: Worker, R>(worker: &mut W, body: impl FnOnce(&mut W) -> Result<R, OpError>) -> Option<(Tid, R)> {
    let held = begin(worker, Mode::ReadWrite);
    let prepare = |worker: &mut W| match worker.detach().filter(|_| held) {
        Some(detach) => detach.prepare().map(drop),
        None => Ok(()),
    };
    let result = body(worker).and_then(|result| prepare(worker).map(|()| result)).and_then(|result| {
        match worker.commit(&mut NoRedo)? {
            Outcome::Committed(tid) => Ok((tid, result)),
            Outcome::Repair(_) => unreachable!("no protocol here repairs"),
        }
    });
    if result.is_err() {
        worker.abort();
    }
    result.ok()
}

/// Repeats the transaction until it commits.
fn commit<W: Worker, R>(worker: &mut W, body: impl Fn(&mut W) -> Result<R, OpError>) -> (Tid, R) {
    (0..100).find_map(|_| attempt(worker, &body)).expect("no conflict for ever")
}

fn put<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, id: u64, value: i64) -> Result<(), OpError> {
    let staged = worker.stage(&bench.cells)?;
    bench.set(staged.row, value);
    worker.insert(&bench.cells, Key::Word8(id), staged, OnExists::Replace).map(drop)
}

fn delete<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, id: u64) -> Result<bool, OpError> {
    Ok(worker.delete(&bench.cells, Key::Word8(id))?.is_some())
}

fn sum<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, low: u64, high: u64) -> Result<i64, OpError> {
    let mut scan = Scan::default();
    let (low, high) = (Bound::Included(Key::Word8(low)), Bound::Included(Key::Word8(high)));
    bench.cells.index.scan(low, high, Direction::Forward, &mut scan.cursor).expect("an ordered table");
    let mut sum = 0;
    while let Some(row) = worker.scan_next(&bench.cells, &mut scan, ColumnSet::ALL)? {
        sum += bench.get(row);
    }
    Ok(sum)
}

/// Unlinks all deleted records: only existing rows remain linked.
fn cleared<P: Protocol>(bench: &Bench<P>, workers: &mut [&mut P::Worker]) {
    for _ in 0..8 {
        // Readers of the past keep what helpers have not passed.
        bench.environment.advance_epoch();
        for worker in workers.iter_mut() {
            attempt(*worker, |worker| bench.read(worker, 0));
            worker.core().local.collect();
            worker.collect_garbage(100);
        }
    }
    let mut reader = bench.worker();
    let rows = (0..40).filter(|&id| commit(&mut reader, |worker| bench.read(worker, id)).1.is_some()).count();
    // SAFETY: no other thread.
    let (linked, sound) = unsafe { (bench.cells.index.statistics().records, bench.cells.index.check()) };
    assert_eq!((linked, sound), (rows, Ok(())), "records are linked for which there is no row, or the reverse");
}

/// Advances the snapshots: none that begins later is of an earlier moment.
fn passed<P: Protocol>(bench: &Bench<P>) {
    (0..2).for_each(|_| bench.environment.advance_epoch());
}

/// Runs a case for each step of its subject until there is none.
fn every_step(case: impl Fn(usize) -> bool) {
    let steps = (0..).take_while(|&at| case(at)).count();
    println!("{steps} steps");
    assert!(steps > 2, "{steps}");
}

/// A read sees a version as it was committed: its value with its TID; and two reads that commit are of one state.
fn reads_across_a_commit<P: Protocol>() {
    for mode in [Mode::ReadWrite, Mode::ReadOnly] {
        every_step(|at| {
            let bench = Bench::<P>::open(HtmMode::Absent, &[5, -5]);
            let (mut reader, mut writer) = (bench.worker(), bench.worker());
            let versions = RefCell::new(BTreeMap::new());
            let look = |worker: &mut P::Worker| {
                let value = bench.read(worker, 0)?.expect("it is there");
                Ok((worker.seen().tid, value))
            };
            let (_, (tid, value)) = commit(&mut writer, look);
            versions.borrow_mut().insert(tid, value);
            let other = || {
                let change = |worker: &mut P::Worker| {
                    bench.change(worker, 0, |value| value + 1)?;
                    bench.change(worker, 1, |value| value - 1)
                };
                if let Some((tid, _)) = attempt(&mut writer, change) {
                    versions.borrow_mut().insert(tid, 6);
                }
            };
            let ((), interrupted) = interrupt(at, other, || {
                begin(&mut reader, mode);
                let seen =
                    look(&mut reader).and_then(|first| Ok((first, bench.read(&mut reader, 1)?.expect("it is there"))));
                let ended = match seen {
                    Ok(_) => reader.commit(&mut NoRedo).map(drop),
                    Err(error) => Err(error),
                };
                if ended.is_err() {
                    reader.abort();
                }
                if let Ok(((tid, first), second)) = seen {
                    assert_eq!(
                        versions.borrow().get(&tid),
                        Some(&first),
                        "before step {at}: a value with another's TID"
                    );
                    assert!(
                        ended.is_err() || first + second == 0,
                        "before step {at}: {first} and {second} were never there at once"
                    );
                }
            });
            cleared(&bench, &mut [&mut reader, &mut writer]);
            interrupted
        });
    }
}

/// A reader that reads while a commit installs sees the old state or the new one, or that the record is locked.
fn looks_amid_a_commit<P: Protocol>() {
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, &[5, -5]);
        let (mut writer, mut reader) = (bench.worker(), bench.worker());
        let before = commit(&mut reader, |worker| {
            bench.read(worker, 0)?;
            Ok(worker.seen().tid)
        });
        let seen = RefCell::new(Vec::new());
        let other = || {
            // Without a transaction, then with one.
            let local = &mut reader.core().local;
            local.enter();
            let record = bench.cells.index.get(Key::Word8(0), local.pinned()).expect("it is linked");
            let mut buffer = RowBuffer::default();
            // SAFETY: online; the table's record.
            match unsafe { bench.protocol.peek_committed(&bench.cells, record, local.pinned(), &mut buffer) } {
                Peeked::Row(tid, row) => seen.borrow_mut().push((tid, bench.get(row))),
                Peeked::Busy => {}
                Peeked::Deleted(_) | Peeked::NeverCommitted => panic!("a row is there all the time"),
            }
            reader.core().local.leave();
            let read = attempt(&mut reader, |worker| {
                let first = bench.read(worker, 0)?.expect("it is there");
                let tid = worker.seen().tid;
                Ok((tid, first, bench.read(worker, 1)?.expect("it is there")))
            });
            if let Some((_, (tid, first, second))) = read {
                assert_eq!(first + second, 0, "before step {at}: half of a commit");
                seen.borrow_mut().push((tid, first));
            }
        };
        let (committed, interrupted) = interrupt(at, other, || {
            attempt(&mut writer, |worker| {
                bench.change(worker, 0, |value| value + 1)?;
                bench.change(worker, 1, |value| value - 1)
            })
        });
        for (tid, value) in seen.into_inner() {
            let came = committed.is_some_and(|(tid_of, _)| (tid, value) == (tid_of, 6));
            assert!(came || (tid, value) == (before.1, 5), "before step {at}: {value} with {tid:?}");
        }
        cleared(&bench, &mut [&mut reader, &mut writer]);
        interrupted
    });
}

/// No update is lost, and both are in the order of their TIDs.
fn updates_of_one_row<P: Protocol>() {
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, &[0, 0]);
        let (mut one, mut two) = (bench.worker(), bench.worker());
        let bump = |worker: &mut P::Worker| {
            bench.change(worker, 0, |value| value + 1)?;
            bench.change(worker, 1, |value| value + 1)
        };
        let other = Cell::new(None);
        let turn = || other.set(attempt(&mut two, bump));
        let (own, interrupted) = interrupt(at, turn, || attempt(&mut one, bump));
        let commits = i64::from(own.is_some()) + i64::from(other.get().is_some());
        assert_eq!(bench.state(&[0, 1]), [commits, commits], "before step {at}");
        if let (Some(own), Some(other)) = (own, other.get()) {
            assert_eq!(own.0 > other.0, own.1 > other.1, "before step {at}: TIDs against the order");
        }
        // An aborted transaction may try again: nothing is left locked.
        commit(&mut one, bump);
        commit(&mut two, bump);
        cleared(&bench, &mut [&mut one, &mut two]);
        interrupted
    });
}

/// An attempt that locks the rows that it accesses commits, whatever others do before any one of its steps. They
/// read its rows meanwhile, and write them before or after it.
fn a_locking_attempt_commits<P: Protocol>() {
    if !P::INFO.capabilities.reserves {
        return;
    }
    for (scans, reborn) in [(false, false), (true, false), (false, true), (true, true)] {
        every_step(|at| {
            let bench = Bench::<P>::open(HtmMode::Absent, &[5, -5, 0, 7]);
            let (mut slow, mut other) = (bench.worker(), bench.worker());
            let (read, wrote) = (Cell::new(None), Cell::new(false));
            let turn = || {
                let both = |worker: &mut P::Worker| Ok((bench.read(worker, 0)?, bench.read(worker, 1)?));
                read.set(attempt(&mut other, both).map(|(_, both)| both));
                let write = |worker: &mut P::Worker| {
                    for (id, more) in [(0, 1), (1, -1)] {
                        let value = bench.read(worker, id)?.expect("it is there");
                        if reborn {
                            delete(&bench, worker, id)?;
                        }
                        put(&bench, worker, id, value + more)?;
                    }
                    Ok(())
                };
                wrote.set(attempt(&mut other, write).is_some());
                commit(&mut other, |worker| bench.change(worker, 2, |value| value + 1));
            };
            slow.reserve_next();
            let (done, interrupted) = interrupt(at, turn, || {
                attempt(&mut slow, |worker| {
                    let seen = match scans {
                        true => sum(&bench, worker, 0, 1)?,
                        false => bench.read(worker, 0)?.expect("there") + bench.read(worker, 1)?.expect("there"),
                    };
                    bench.read(worker, 3)?;
                    bench.change(worker, 0, |value| value + 10)?;
                    bench.change(worker, 1, |value| value - 10)?;
                    Ok(seen)
                })
            });
            let all = bench.state(&[0, 1, 2]);
            assert_eq!(done.map(|(_, seen)| seen), Some(0), "before step {at}: it commits, and saw one state");
            if let Some((a, b)) = read.get() {
                assert_eq!(a.zip(b).map(|(a, b)| a + b), Some(0), "before step {at}");
            }
            let sum = 15 + i64::from(wrote.get());
            assert_eq!(all, [sum, -sum, i64::from(interrupted)], "before step {at}: an update is lost");
            for id in [0, 3] {
                let written = attempt(&mut other, |worker| bench.change(worker, id, |value| value + 1));
                assert!(written.is_some(), "before step {at}: row {id} stays locked");
            }
            cleared(&bench, &mut [&mut slow, &mut other]);
            interrupted
        });
    }
}

/// An attempt that locks the rows that it accesses and fails leaves none locked. Its worker then respects such locks of
/// another.
fn a_locking_attempt_fails<P: Protocol>() {
    if !P::INFO.capabilities.reserves {
        return;
    }
    let bench = Bench::<P>::open(HtmMode::Absent, &[5, -5]);
    let (mut slow, mut other) = (bench.worker(), bench.worker());
    slow.reserve_next();
    let refuted = attempt(&mut slow, |worker| {
        sum(&bench, worker, 0, 9)?;
        commit(&mut other, |worker| put(&bench, worker, 7, 1));
        bench.change(worker, 0, |value| value + 1)
    });
    assert!(refuted.is_none(), "a row came into its range");
    for id in [0, 1] {
        let written = attempt(&mut other, |worker| bench.change(worker, id, |value| value + 1));
        assert!(written.is_some(), "row {id} stays locked");
    }
    other.reserve_next();
    let done = attempt(&mut other, |worker| {
        bench.read(worker, 0)?;
        let written = attempt(&mut slow, |worker| bench.change(worker, 0, |value| value + 1));
        assert!(written.is_none(), "the row is locked");
        Ok(())
    });
    assert!(done.is_some());
    assert!(attempt(&mut slow, |worker| bench.change(worker, 0, |value| value + 1)).is_some());
}

/// A transaction has read a row which another one has locked at access. It reads a second row in the middle of that
/// one's commit. It sees one state or is refuted.
fn readers_of_locked_rows<P: Protocol>() {
    if !P::INFO.capabilities.reserves {
        return;
    }
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, &[5, -5]);
        let (mut slow, reader) = (bench.worker(), RefCell::new(bench.worker()));
        let (first, ended) = (Cell::new(None), Cell::new(None));
        let turn = || {
            if let Some(first) = first.get() {
                let second = bench.read(&mut reader.borrow_mut(), 0);
                let both = second.and_then(|second| reader.borrow_mut().commit(&mut NoRedo).map(|_| (first, second)));
                ended.set(Some(both.ok()));
            }
        };
        slow.reserve_next();
        let (done, interrupted) = interrupt(at, turn, || {
            attempt(&mut slow, |worker| {
                for (id, more) in [(0, 10), (1, -10)] {
                    bench.change(worker, id, |value| value + more)?;
                }
                let mut reader = reader.borrow_mut();
                begin(&mut *reader, Mode::ReadWrite);
                // The row that is unlocked last.
                match bench.read(&mut reader, 1) {
                    Ok(value) => first.set(value),
                    Err(_) => reader.abort(),
                }
                Ok(())
            })
        });
        assert!(done.is_some(), "before step {at}: it commits");
        if let Some(Some((first, second))) = ended.get() {
            assert_eq!(second.map(|second| first + second), Some(0), "before step {at}: never there at once");
        }
        let mut reader = reader.into_inner();
        if first.get().is_some() && !matches!(ended.get(), Some(Some(_))) {
            reader.abort();
        }
        cleared(&bench, &mut [&mut slow, &mut reader]);
        interrupted
    });
}

/// Each of two transactions writes its row only if it has not seen the other's row. Not both may commit.
fn skew<P: Protocol>(
    values: &[i64],
    own: impl Fn(&Bench<P>, &mut P::Worker) -> Result<bool, OpError>,
    others: impl Fn(&Bench<P>, &mut P::Worker) -> Result<bool, OpError>,
    prepare: impl Fn(&Bench<P>, &mut P::Worker),
    clear: impl Fn(&mut P::Worker),
) {
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, values);
        let (mut one, mut two) = (bench.worker(), bench.worker());
        prepare(&bench, &mut two);
        let other = Cell::new(false);
        let turn = || {
            clear(&mut two);
            other.set(attempt(&mut two, |worker| others(&bench, worker)).is_some_and(|done| done.1));
        };
        let (done, interrupted) = interrupt(at, turn, || attempt(&mut one, |worker| own(&bench, worker)));
        let did = done.is_some_and(|done| done.1);
        assert!(!(did && other.get()), "before step {at}: neither saw the other");
        cleared(&bench, &mut [&mut one, &mut two]);
        interrupted
    });
}

fn write_skew<P: Protocol>() {
    let go = |mine: u64, others: u64| {
        move |bench: &Bench<P>, worker: &mut P::Worker| {
            let free = bench.read(worker, others)? == Some(0);
            if free {
                bench.change(worker, mine, |_| 1)?;
            }
            Ok(free)
        }
    };
    skew::<P>(&[0, 0], go(0, 1), go(1, 0), |_, _| (), |_| ());
}

/// Both look for keys that are not there, one by one or by a scan, and insert one if there is none.
fn insert_skew<P: Protocol>() {
    for scans in [false, true] {
        let go = |mine: u64, others: u64| {
            move |bench: &Bench<P>, worker: &mut P::Worker| {
                let free = match scans {
                    true => sum(bench, worker, 10, 30)? == 0,
                    false => bench.read(worker, others)?.is_none(),
                };
                if free {
                    put(bench, worker, mine, 7)?;
                }
                Ok(free)
            }
        };
        skew::<P>(&[0, 0, 0], go(20, 21), go(21, 20), |_, _| (), |_| ());
    }
}

/// One transaction writes because it could insert a row, which it deletes again. The other inserts that row because
/// nothing was written.
fn fleeting_insert_skew<P: Protocol>() {
    for inserts_another in [false, true] {
        let own = |bench: &Bench<P>, worker: &mut P::Worker| {
            let staged = worker.stage(&bench.cells)?;
            let free = worker.insert(&bench.cells, Key::Word8(20), staged, OnExists::Refuse)? == Inserted::New;
            if free {
                delete(bench, worker, 20)?;
                if inserts_another {
                    put(bench, worker, 30, 1)?;
                }
                bench.change(worker, 1, |_| 1)?;
            }
            Ok(free)
        };
        let others = |bench: &Bench<P>, worker: &mut P::Worker| {
            let free = bench.read(worker, 1)? == Some(0);
            if free {
                put(bench, worker, 20, 7)?;
            }
            Ok(free)
        };
        skew::<P>(&[0, 0, 0], own, others, |_, _| (), |_| ());
    }
}

/// One transaction writes because a row is missing. It finds that out in a record that a third has linked for the row
/// and then takes back. The other inserts that row, since nothing was written. A transaction that comes late in the
/// order had read the unwritten row, if the protocol has such.
fn taken_back_insert_skew<P: Protocol>() {
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, &[0, 0, 0]);
        let (mut one, mut two, mut third) = (bench.worker(), bench.worker(), bench.worker());
        for _ in 0..5 {
            commit(&mut two, |worker| bench.change(worker, 2, |value| value + 1));
        }
        commit(&mut two, |worker| bench.read(worker, 1).and_then(|_| bench.change(worker, 2, |value| value + 1)));
        let other = Cell::new(false);
        let turn = || {
            // It is not held: it links.
            third.begin(Mode::ReadWrite, Priority::NONE);
            let _ = put(&bench, &mut third, 20, 1);
            let writes = |worker: &mut P::Worker| {
                let free = bench.read(worker, 20)?.is_none();
                if free {
                    bench.change(worker, 1, |_| 1)?;
                }
                Ok(free)
            };
            other.set(attempt(&mut two, writes).is_some_and(|done| done.1));
            third.abort();
        };
        let inserts = |worker: &mut P::Worker| {
            let free = bench.read(worker, 1)? == Some(0);
            if free {
                put(&bench, worker, 20, 7)?;
            }
            Ok(free)
        };
        let (done, interrupted) = interrupt(at, turn, || attempt(&mut one, inserts));
        let did = done.is_some_and(|done| done.1);
        assert!(!(did && other.get()), "before step {at}: neither saw the other");
        cleared(&bench, &mut [&mut one, &mut two, &mut third]);
        interrupted
    });
}

/// One transaction writes because a row is deleted. The other unlinks the record and inserts the row again, because
/// nothing was written.
fn rebirth_skew<P: Protocol>() {
    let own = |bench: &Bench<P>, worker: &mut P::Worker| {
        let free = bench.read(worker, 0)?.is_none();
        if free {
            bench.change(worker, 1, |_| 1)?;
        }
        Ok(free)
    };
    let others = |bench: &Bench<P>, worker: &mut P::Worker| {
        let free = bench.read(worker, 1)? == Some(0);
        if free {
            put(bench, worker, 0, 7)?;
        }
        Ok(free)
    };
    let prepare = |bench: &Bench<P>, worker: &mut P::Worker| {
        commit(worker, |worker| delete(bench, worker, 0));
        worker.core().local.collect();
    };
    for clears in [false, true] {
        let clear = |worker: &mut P::Worker| {
            if clears {
                worker.collect_garbage(10);
            }
        };
        skew::<P>(&[3, 0, 0], own, others, prepare, clear);
        // The same of an update and a delete that find nothing.
        for deletes in [false, true] {
            let own = |bench: &Bench<P>, worker: &mut P::Worker| {
                let free = match deletes {
                    true => !delete(bench, worker, 0)?,
                    false => worker.update(&bench.cells, Key::Word8(0), ColumnUse::ALL)?.is_none(),
                };
                if free {
                    bench.change(worker, 1, |_| 1)?;
                }
                Ok(free)
            };
            skew::<P>(&[3, 0, 0], own, others, prepare, clear);
        }
    }
}

/// A row that is deleted, inserted and deleted again stays until its readers have ended.
fn deleted_anew<P: Protocol>() {
    let bench = Bench::<P>::open(HtmMode::Absent, &[1, 2, 3]);
    let (mut writer, mut reader) = (bench.worker(), bench.worker());
    commit(&mut writer, |worker| delete(&bench, worker, 1));
    // Its grace period is over; it was not looked at yet.
    writer.core().local.collect();
    commit(&mut writer, |worker| put(&bench, worker, 1, 20));
    begin(&mut reader, Mode::ReadOnly);
    let gone = attempt(&mut writer, |worker| delete(&bench, worker, 1));
    assert_eq!(gone.map(|gone| gone.1), Some(true), "nobody has read it");
    writer.collect_garbage(10);
    let linked = || {
        let mut worker = bench.worker();
        worker.core().local.enter();
        let linked = bench.cells.index.get(Key::Word8(1), worker.core().local.pinned()).is_ok();
        worker.core().local.leave();
        linked
    };
    assert!(linked(), "it was unlinked although a worker that is online may reach it");
    if P::INFO.capabilities.snapshots != seriatim_txn::Freshness::None {
        assert_eq!(bench.read(&mut reader, 1), Ok(Some(20)), "the snapshot was taken before the delete");
    }
    reader.abort();
    cleared(&bench, &mut [&mut reader, &mut writer]);
    assert!(!linked());
}

/// A deleted record is unlinked later if other transactions hold it when its turn comes.
fn looks_that_come_too_early<P: Protocol>() {
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, &[1, 2, 3]);
        let (mut one, mut two) = (bench.worker(), bench.worker());
        commit(&mut two, |worker| delete(&bench, worker, 1));
        two.core().local.collect();
        let turn = || two.collect_garbage(10);
        let (_, interrupted) = interrupt(at, turn, || {
            attempt(&mut one, |worker| {
                sum(&bench, worker, 0, 30)?;
                put(&bench, worker, 1, 9)?;
                bench.change(worker, 2, |value| value + 1)
            })
        });
        cleared(&bench, &mut [&mut one, &mut two]);
        commit(&mut one, |worker| delete(&bench, worker, 1));
        cleared(&bench, &mut [&mut one, &mut two]);
        interrupted
    });
}

/// One transaction fills rows whose keys another has linked, and which the other rolls back. It may miss its own rows
/// then, but does not report it (promise g). A held transaction links no record that others could find.
fn own_rows_that_are_unlinked<P: Protocol>() {
    const ABSENT: [u64; 2] = [8, 9];
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, &[1]);
        let (mut gives_up, mut fills) = (bench.worker(), bench.worker());
        let put = |worker: &mut P::Worker| {
            begin(worker, Mode::ReadWrite);
            ABSENT.iter().try_for_each(|&id| put(&bench, worker, id, 1))
        };
        put(&mut gives_up).expect("it runs alone");
        let filled = put(&mut fills);
        let turn = || {
            if filled.is_ok() && ABSENT.iter().any(|&id| bench.read(&mut fills, id) == Ok(None)) {
                assert!(fills.validate().is_err(), "before step {at}: it has inserted the row, and it is not there");
            }
        };
        let ((), interrupted) = interrupt(at, turn, || gives_up.abort());
        fills.abort();
        cleared(&bench, &mut [&mut gives_up, &mut fills]);
        interrupted
    });
}

/// The commits of one worker have rising TIDs, whatever rows they write.
fn own_order<P: Protocol>() {
    let bench = Bench::<P>::open(HtmMode::Absent, &[1, 2, 3]);
    let (mut one, mut two) = (bench.worker(), bench.worker());
    for _ in 0..5 {
        commit(&mut two, |worker| bench.change(worker, 0, |value| value + 1));
    }
    let (first, _) = commit(&mut one, |worker| bench.change(worker, 0, |value| value + 1));
    let (second, _) = commit(&mut one, |worker| bench.change(worker, 1, |value| value + 1));
    // Other protocols order conflicting transactions only; Silo promises this order (§4.2).
    if P::INFO.name == "silo" {
        assert!(second > first, "{second:?} after {first:?}");
    }
}

/// Threads that take turns move amounts, look at all of them, and delete and insert rows. Nothing is lost, no
/// impossible sum commits.
fn turns_by_seeds<P: Protocol>(seeds: u64) {
    const CELLS: u64 = 4;
    for seed in 0..seeds {
        let held = HELD[seed as usize % HELD.len()];
        let bench = Bench::<P>::open(HtmMode::Absent, &[10; CELLS as usize]);
        passed(&bench);
        let committed = Mutex::new(0);
        let body = |me: u64| {
            let (bench, committed) = (&bench, &committed);
            let body: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
                hold(held);
                let mut rng = Rng::from_seed(seed << 8 | me);
                let mut worker = bench.worker();
                for _ in 0..12 {
                    let (from, to, amount) = (rng.below(CELLS), rng.below(CELLS), rng.range(1, 5) as i64);
                    let done = match rng.below(4) {
                        0 => {
                            begin(&mut worker, Mode::ReadOnly);
                            let sums = sum(bench, &mut worker, 0, CELLS - 1);
                            match sums.and_then(|sum| worker.commit(&mut NoRedo).map(|_| sum)) {
                                Ok(sum) => assert_eq!(sum, 10 * CELLS as i64, "seed {seed}: a state that never was"),
                                Err(_) => worker.abort(),
                            }
                            None
                        }
                        1 => attempt(&mut worker, |worker| {
                            let value =
                                bench.read(worker, from)?.expect("a transaction that deletes it inserts it again");
                            delete(bench, worker, from)?;
                            put(bench, worker, from, value)
                        })
                        .map(drop),
                        // One row moves from one key to another.
                        2 => attempt(&mut worker, |worker| {
                            let (here, there) = (10 + 2 * me, 11 + 2 * me);
                            let (gone, new) = if delete(bench, worker, here)? { (here, there) } else { (there, here) };
                            delete(bench, worker, gone)?;
                            put(bench, worker, new, 1)
                        })
                        .map(drop),
                        _ => attempt(&mut worker, |worker| {
                            bench.change(worker, from, |value| value - amount)?;
                            bench.change(worker, to, |value| value + amount)
                        })
                        .map(drop),
                    };
                    *committed.lock().expect("no panic with it") += i32::from(done.is_some());
                    worker.collect_garbage(4);
                }
            });
            body
        };
        let ended = take_turns(seed, 3, (0..3).map(body).collect());
        assert!(ended.iter().all(Result::is_ok), "{}: seed {seed}", P::INFO.name);
        assert_eq!(bench.state(&[0, 1, 2, 3]).iter().sum::<i64>(), 10 * CELLS as i64, "seed {seed}");
        assert!(committed.into_inner().expect("no panic with it") > 3, "seed {seed}: nothing commits");
        cleared(&bench, &mut [&mut bench.worker()]);
    }
}

macro_rules! under_every_protocol {
    ($($name:ident => $protocol:path,)*) => {
        $(
            mod $name {
                type Protocol = $protocol;

                #[test]
                fn a_read_is_of_one_version_and_all_reads_of_one_state() {
                    crate::turns::however_held::<Protocol>(crate::turns::reads_across_a_commit::<Protocol>);
                }

                #[test]
                fn a_reader_within_a_commit_sees_the_old_or_the_new_state() {
                    crate::turns::however_held::<Protocol>(crate::turns::looks_amid_a_commit::<Protocol>);
                }

                #[test]
                fn a_snapshot_taken_during_a_commit_is_of_one_state() {
                    crate::turns::however_held::<Protocol>(crate::turns::snapshots::taken_amid_a_commit::<Protocol>);
                }

                #[test]
                fn no_update_is_lost() {
                    crate::turns::however_held::<Protocol>(crate::turns::updates_of_one_row::<Protocol>);
                }

                #[test]
                fn an_attempt_that_locks_what_it_accesses_commits() {
                    crate::turns::a_locking_attempt_commits::<Protocol>();
                }

                #[test]
                fn a_locking_attempt_that_fails_leaves_nothing_locked() {
                    crate::turns::a_locking_attempt_fails::<Protocol>();
                }

                #[test]
                fn readers_of_a_locked_row_see_one_state() {
                    crate::turns::readers_of_locked_rows::<Protocol>();
                }

                #[test]
                fn only_one_of_two_transactions_writes_if_each_writes_unless_the_other_did() {
                    crate::turns::however_held::<Protocol>(crate::turns::write_skew::<Protocol>);
                }

                #[test]
                fn only_one_of_two_transactions_inserts_if_each_inserts_unless_the_other_did() {
                    crate::turns::however_held::<Protocol>(crate::turns::insert_skew::<Protocol>);
                }

                #[test]
                fn only_one_of_two_transactions_writes_if_one_inserts_and_deletes_the_row_of_the_other() {
                    crate::turns::however_held::<Protocol>(crate::turns::fleeting_insert_skew::<Protocol>);
                }

                #[test]
                fn only_one_of_two_transactions_writes_if_one_inserts_a_row_that_a_third_took_back() {
                    crate::turns::however_held::<Protocol>(crate::turns::taken_back_insert_skew::<Protocol>);
                }

                #[test]
                fn a_deleted_row_that_comes_back_is_noticed() {
                    crate::turns::however_held::<Protocol>(crate::turns::rebirth_skew::<Protocol>);
                }

                #[test]
                fn a_row_deleted_again_stays_until_its_readers_have_ended() {
                    crate::turns::however_held::<Protocol>(crate::turns::deleted_anew::<Protocol>);
                }

                #[test]
                fn a_record_locked_when_it_should_be_unlinked_is_unlinked_later() {
                    crate::turns::however_held::<Protocol>(crate::turns::looks_that_come_too_early::<Protocol>);
                }

                #[test]
                fn a_transaction_that_misses_its_own_row_does_not_report_it() {
                    crate::turns::own_rows_that_are_unlinked::<Protocol>();
                }

                #[test]
                fn the_tids_of_a_worker_are_in_its_order() {
                    crate::turns::however_held::<Protocol>(crate::turns::own_order::<Protocol>);
                }

                #[test]
                fn threads_that_take_turns_lose_nothing() {
                    crate::turns::turns_by_seeds::<Protocol>(seriatim_base::rng::tries(20, 60));
                }

                #[test]
                fn random_programs_of_threads_that_take_turns_are_serializable() {
                    crate::turns::histories::random_programs::<Protocol>(seriatim_base::rng::tries(30, 100));
                }
            }
        )*
    };
}
for_each_protocol!(under_every_protocol);

/// The same cases, with every record hot.
mod hot {
    under_every_protocol! { htcc => seriatim_test_protocols::all_hot::AllHot, }
}
