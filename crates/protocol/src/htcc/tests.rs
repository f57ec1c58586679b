//! Hot records step by step. The tests show which transactions are kept out or refuted when a record changes its class.
//! They show which locks are released, and what makes records hot.

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, Key, KeyBuf};
use seriatim_htm::{Emulation, HtmMode};
use seriatim_txn::{Inserted, NoRedo, OnExists, OpError, Outcome, Priority, Worker as _};

use super::heat::{cool, heat};
use super::locks::is_held;
use std::cell::Cell;
use std::sync::atomic::Ordering;

use seriatim_txn::Scan;

use super::*;
use crate::common::Bench;
use crate::shared::record_header::TidWord;

mod columns;
mod repairs;

type Cells = Bench<Htcc>;
type Of = Worker<State>;

const KEYS: [u64; 4] = [0, 1, 2, 3];
const VALUES: [i64; 4] = [1, 10, 100, 1000];
const ABSENT: u64 = 9;

fn modes() -> [HtmMode; 2] {
    [HtmMode::Absent, HtmMode::Emulated(Emulation { seed: 7, abort_one_in: 4, yields: false })]
}

fn begin(cells: &Cells) -> Of {
    let mut worker = cells.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker
}

fn commit(worker: &mut Of) -> Result<Tid, OpError> {
    match worker.commit(&mut NoRedo) {
        Ok(Outcome::Committed(tid)) => Ok(tid),
        Ok(Outcome::Repair(_)) => unreachable!("what belongs to no run is not repaired"),
        Err(error) => {
            worker.abort();
            Err(error)
        }
    }
}

fn put(cells: &Cells, worker: &mut Of, id: u64, value: i64) -> Result<Inserted, OpError> {
    let staged = worker.stage(&cells.cells)?;
    cells.set(staged.row, value);
    worker.insert(&cells.cells, Key::Word8(id), staged, OnExists::Replace)
}

fn add(cells: &Cells, worker: &mut Of, id: u64) -> Result<i64, OpError> {
    cells.change(worker, id, |value| value + 1)
}

/// Looks at a record from outside of all transactions.
fn at<R>(cells: &Cells, id: u64, look: impl FnOnce(RecordPtr) -> R) -> Option<R> {
    let mut core = cells.environment.core().expect("a free slot");
    core.local.enter();
    let found = cells.cells.index.get(Key::Word8(id), core.local.pinned()).ok().map(look);
    core.local.leave();
    found
}

/// Makes a record hot, or cold; whether it is so now.
fn flip(cells: &Cells, id: u64, hot: bool) -> bool {
    let (htm, table) = (&cells.environment.htm, &cells.cells);
    at(cells, id, |record| if hot { heat(htm, table, record) } else { cool(htm, table, record) }).expect("it is linked")
}

fn word(cells: &Cells, id: u64) -> Option<TidWord> {
    let table = &cells.cells;
    at(cells, id, |record| TidWord(record_header::tid_word(&table.record_layout, record).load(Ordering::Acquire)))
}

fn held(cells: &Cells, id: u64) -> bool {
    at(cells, id, |record| is_held(&cells.cells, record)).expect("it is linked")
}

fn nothing_is_held(cells: &Cells) {
    for id in KEYS {
        assert!(!held(cells, id), "{id} is held");
        assert!(!word(cells, id).expect("it is linked").is_locked(), "{id} is locked");
    }
}

#[test]
fn a_change_between_hot_and_cold_conflicts_with_readers_and_writers() {
    for mode in modes() {
        for hot in [true, false] {
            type Step = fn(&Cells, &mut Of) -> Result<(), OpError>;
            let reads: Step = |cells, worker| cells.read(worker, 0).map(drop);
            let updates: Step = |cells, worker| add(cells, worker, 0).map(drop);
            let overwrites: Step = |cells, worker| put(cells, worker, 0, 5).map(drop);
            let deletes: Step = |cells, worker| worker.delete(&cells.cells, Key::Word8(0)).map(drop);
            for step in [reads, updates, overwrites, deletes] {
                let cells = Cells::open(mode, &VALUES);
                assert!(hot || flip(&cells, 0, true));
                let mut worker = begin(&cells);
                assert_eq!(step(&cells, &mut worker), Ok(()));
                assert_eq!(put(&cells, &mut worker, 1, 6).map(drop), Ok(()));
                // A transaction that has locked the record is not affected by a change of its class.
                assert_eq!(flip(&cells, 0, hot), hot);
                assert_eq!(word(&cells, 0).map(TidWord::is_hot), Some(true));
                assert_eq!(commit(&mut worker).is_ok(), !hot, "{mode:?}");
                nothing_is_held(&cells);
                if hot {
                    assert_eq!(cells.state(&KEYS), VALUES, "{mode:?}");
                }
            }
        }
    }
}

/// A transaction in whose middle a record becomes hot, or cold, and is changed by another, if that one can.
#[test]
fn a_flip_before_any_access_loses_nothing() {
    let mut committed = [0; 2];
    for mode in modes() {
        for (hot_before, id) in [false, true].into_iter().flat_map(|hot| KEYS.map(|id| (hot, id))) {
            for flipped_before in 0..=4 {
                let cells = Cells::open(mode, &VALUES);
                assert!(!hot_before || flip(&cells, id, true));
                let (mut worker, mut changed) = (begin(&cells), false);
                let mut disturb = |access: u64| {
                    if access != flipped_before {
                        return;
                    }
                    flip(&cells, id, !hot_before);
                    let mut other = begin(&cells);
                    changed =
                        add(&cells, &mut other, id).map_err(|_| other.abort()).is_ok() && commit(&mut other).is_ok();
                };
                // It moves what is in the first two cells to the last.
                let moved = (|| {
                    disturb(0);
                    let one = cells.read(&mut worker, 0)?.expect("a row");
                    disturb(1);
                    let two = Cell::new(0);
                    cells.change(&mut worker, 1, |value| {
                        two.set(value);
                        0
                    })?;
                    disturb(2);
                    cells.read(&mut worker, 2)?;
                    disturb(3);
                    cells.change(&mut worker, 3, |value| value + one + two.get())?;
                    disturb(4);
                    Ok(())
                })();
                let ended: Result<Tid, OpError> = match moved {
                    Ok(()) => commit(&mut worker),
                    Err(error) => {
                        worker.abort();
                        Err(error)
                    }
                };
                let what = format!("{mode:?}, {id} was hot: {hot_before}, flipped before {flipped_before}");
                committed[usize::from(ended.is_ok())] += 1;
                nothing_is_held(&cells);
                let mut before = VALUES;
                before[id as usize] += i64::from(changed);
                let wanted = match ended {
                    // The change came before the end, so it is moved as well.
                    Ok(_) => [before[0], 0, before[2], before[3] + before[0] + before[1]],
                    Err(_) => before,
                };
                assert_eq!(cells.state(&KEYS), wanted, "{what}");
            }
        }
    }
    assert!(committed.iter().all(|&times| times > 0), "some are refuted, and some are not: {committed:?}");
}

#[test]
fn a_reader_of_a_hot_record_excludes_writers_and_a_writer_excludes_all() {
    for mode in modes() {
        let cells = Cells::open(mode, &VALUES);
        assert!(flip(&cells, 0, true));
        let locked = OpError::execute(seriatim_txn::Reason::RecordLocked);
        let (mut one, mut two) = (begin(&cells), begin(&cells));
        assert_eq!(cells.read(&mut one, 0), Ok(Some(1)));
        assert_eq!(cells.read(&mut two, 0), Ok(Some(1)), "readers share it");
        assert_eq!(add(&cells, &mut two, 0), Err(locked), "another reads it");
        two.abort();
        assert_eq!(add(&cells, &mut one, 0), Ok(2), "alone it may write");
        assert_eq!(cells.read(&mut one, 0), Ok(Some(2)));
        let mut three = begin(&cells);
        assert_eq!(cells.read(&mut three, 0), Err(locked));
        let info = three.conflict_info().expect("it says where");
        assert_eq!(info.key.as_ref().map(|key| key.as_key()), Some(Key::Word8(0)));
        three.abort();
        assert!(commit(&mut one).is_ok());
        assert_eq!(word(&cells, 0).map(TidWord::is_hot), Some(true), "it stays hot");
        nothing_is_held(&cells);
        assert_eq!(cells.state(&KEYS), [2, 10, 100, 1000]);
    }
}

#[test]
fn locks_are_released_whatever_the_end() {
    for mode in modes() {
        let cells = Cells::open(mode, &VALUES);
        assert!(flip(&cells, 0, true) && flip(&cells, 1, true));
        let both = |worker: &mut Of| {
            assert_eq!(cells.read(worker, 0), Ok(Some(1)));
            assert!(cells.change(worker, 1, |_| 11).is_ok());
            assert!(held(&cells, 0) && held(&cells, 1));
        };
        // Given up.
        let mut worker = begin(&cells);
        both(&mut worker);
        worker.abort();
        nothing_is_held(&cells);
        // Without a write.
        let mut worker = begin(&cells);
        assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
        assert!(commit(&mut worker).is_ok());
        nothing_is_held(&cells);
        // Refuted by what is cold.
        let (mut worker, mut other) = (begin(&cells), begin(&cells));
        both(&mut worker);
        assert_eq!(cells.read(&mut worker, 2), Ok(Some(100)));
        assert!(add(&cells, &mut other, 2).is_ok() && commit(&mut other).is_ok());
        assert!(worker.commit(&mut NoRedo).is_err());
        assert!(held(&cells, 1), "until the attempt ends");
        worker.abort();
        nothing_is_held(&cells);
        assert_eq!(cells.state(&KEYS), [1, 10, 101, 1000]);
        // A rollback to a savepoint gives nothing back: what was read stays read.
        let mut worker = begin(&cells);
        let savepoint = worker.savepoint();
        both(&mut worker);
        worker.rollback_to(savepoint);
        assert!(held(&cells, 0) && held(&cells, 1));
        assert!(commit(&mut worker).is_ok());
        nothing_is_held(&cells);
        assert_eq!(cells.state(&KEYS), [1, 10, 101, 1000]);
        let mut worker = begin(&cells);
        both(&mut worker);
        assert!(commit(&mut worker).is_ok());
        nothing_is_held(&cells);
        assert_eq!(cells.state(&KEYS), [1, 11, 101, 1000]);
    }
}

/// A cold record that is read before a lock is taken may have changed by then: one entry alone is validated as well.
#[test]
fn a_transaction_that_writes_nothing_is_of_one_state() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    assert!(flip(&cells, 0, true));
    let mut worker = begin(&cells);
    assert_eq!(cells.read(&mut worker, 1), Ok(Some(10)));
    let mut other = begin(&cells);
    assert!(add(&cells, &mut other, 0).is_ok() && add(&cells, &mut other, 1).is_ok());
    assert!(commit(&mut other).is_ok());
    assert_eq!(cells.read(&mut worker, 0), Ok(Some(2)));
    assert!(commit(&mut worker).is_err());
}

#[test]
fn a_tid_is_above_those_of_hot_records_read_and_overwritten() {
    for mode in modes() {
        for overwrites in [false, true] {
            let cells = Cells::open(mode, &VALUES);
            assert!(flip(&cells, 0, true));
            let mut newest = Tid::ZERO;
            for _ in 0..5 {
                let mut worker = begin(&cells);
                assert!(add(&cells, &mut worker, 0).is_ok());
                let tid = commit(&mut worker).expect("alone");
                assert!(tid > newest);
                newest = tid;
            }
            let mut worker = begin(&cells);
            match overwrites {
                true => assert!(add(&cells, &mut worker, 0).is_ok()),
                false => assert!(cells.read(&mut worker, 0).is_ok()),
            }
            assert_eq!(worker.newest(), newest);
            assert!(add(&cells, &mut worker, 1).is_ok());
            assert!(commit(&mut worker).expect("alone") > newest);
        }
    }
}

#[test]
fn a_deleted_record_is_cold_and_is_unlinked() {
    for mode in modes() {
        let cells = Cells::open(mode, &VALUES);
        let mut worker = cells.worker();
        let clear = |worker: &mut Of| {
            for _ in 0..4 {
                worker.core().local.collect();
                worker.collect_garbage(100);
            }
        };
        for reborn in [true, false] {
            assert!(flip(&cells, 0, true));
            worker.begin(Mode::ReadWrite, Priority::NONE);
            assert!(worker.delete(&cells.cells, Key::Word8(0)).is_ok_and(|row| row.is_some()));
            assert!(commit(&mut worker).is_ok());
            let tombstone = word(&cells, 0).expect("not yet unlinked");
            assert!(tombstone.is_absent() && !tombstone.is_hot());
            assert!(!flip(&cells, 0, true), "there is no row");
            if reborn {
                // Born again and hot, it is looked at under its lock.
                worker.begin(Mode::ReadWrite, Priority::NONE);
                assert_eq!(put(&cells, &mut worker, 0, 7), Ok(Inserted::New));
                assert!(commit(&mut worker).is_ok());
                assert!(flip(&cells, 0, true));
                let mut reader = begin(&cells);
                assert_eq!(cells.read(&mut reader, 0), Ok(Some(7)));
                clear(&mut worker);
                assert!(word(&cells, 0).is_some_and(TidWord::is_queued), "others hold it");
                assert!(commit(&mut reader).is_ok());
                clear(&mut worker);
                let looked_at = word(&cells, 0).expect("it lives");
                assert!(looked_at.is_hot() && !looked_at.is_queued() && !looked_at.is_locked());
                nothing_is_held(&cells);
                assert!(flip(&cells, 0, false));
            }
        }
        clear(&mut worker);
        assert_eq!(word(&cells, 0), None);
    }
}

/// Lets a transaction fail at a record.
fn fail(cells: &Cells, workers: &mut [Of; 2], id: u64) {
    let [one, two] = workers;
    one.begin(Mode::ReadWrite, Priority::NONE);
    two.begin(Mode::ReadWrite, Priority::NONE);
    assert!(add(cells, one, id).is_ok());
    let overtaken = add(cells, two, id).is_ok();
    assert!(commit(one).is_ok());
    match overtaken {
        true => assert!(commit(two).is_err()),
        false => two.abort(),
    }
}

/// The hot records and their failures, as reports have them.
fn listed(cells: &Cells) -> Vec<(KeyBuf, u64)> {
    let records = cells.protocol.hot_records().expect("they are found out");
    assert!(records.iter().all(|record| record.table == cells.cells.id));
    records.into_iter().map(|record| (record.key, record.failures)).collect()
}

#[test]
fn records_with_many_failures_in_a_period_become_hot_and_with_few_cold() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    let mut workers = [cells.worker(), cells.worker()];
    let failures = heat::FAILURES.default;
    let next_period = |workers: &mut [Of; 2]| {
        (0..heat::PERIOD.default).for_each(|_| cells.environment.advance_epoch());
        workers[0].collect_garbage(0);
    };
    let hot = || KEYS.into_iter().filter(|&id| word(&cells, id).is_some_and(TidWord::is_hot)).collect::<Vec<_>>();
    next_period(&mut workers);
    // Failures of two periods are not added up.
    for _ in 0..2 {
        (0..failures - 1).for_each(|_| fail(&cells, &mut workers, 0));
        next_period(&mut workers);
    }
    assert_eq!(hot(), [0; 0]);
    (0..failures).for_each(|_| fail(&cells, &mut workers, 1));
    (0..3).for_each(|_| fail(&cells, &mut workers, 2));
    workers[0].collect_garbage(0);
    assert_eq!(hot(), [0; 0], "once in a period");
    next_period(&mut workers);
    assert_eq!(hot(), [1]);
    assert_eq!(listed(&cells), [(Key::Word8(1).into(), failures)]);
    // Failures that were counted while it was cold count in the period after.
    next_period(&mut workers);
    for _ in 0..3 {
        assert!(!hot().contains(&2));
        (0..heat::FAILURES_KEPT.default).for_each(|_| fail(&cells, &mut workers, 3));
        assert!(hot().iter().all(|&id| id == 1));
        next_period(&mut workers);
    }
    assert_eq!(hot(), [0; 0], "there were none");
    assert_eq!(listed(&cells), []);
    // Hot, it stays so with few failures, and while it is held.
    (0..failures).for_each(|_| fail(&cells, &mut workers, 1));
    next_period(&mut workers);
    for _ in 0..3 {
        (0..heat::FAILURES_KEPT.default).for_each(|_| fail(&cells, &mut workers, 1));
        next_period(&mut workers);
        assert_eq!(hot(), [1]);
        assert_eq!(listed(&cells), [(Key::Word8(1).into(), heat::FAILURES_KEPT.default)]);
    }
    let mut holder = begin(&cells);
    assert!(cells.read(&mut holder, 1).is_ok());
    (0..3).for_each(|_| next_period(&mut workers));
    assert_eq!(hot(), [1]);
    holder.abort();
    next_period(&mut workers);
    assert_eq!(hot(), [0; 0]);
}

/// The first failure of a period takes the place of those that were counted in the one before.
#[test]
fn a_record_with_a_failure_before_the_helpers_next_pass_stays_hot() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    let mut workers = [cells.worker(), cells.worker()];
    let next_period = || (0..heat::PERIOD.default).for_each(|_| cells.environment.advance_epoch());
    let is_hot = || word(&cells, 1).is_some_and(TidWord::is_hot);
    (0..heat::FAILURES.default).for_each(|_| fail(&cells, &mut workers, 1));
    next_period();
    workers[0].collect_garbage(0);
    for _ in 0..3 {
        assert!(is_hot());
        (0..heat::FAILURES_KEPT.default).for_each(|_| fail(&cells, &mut workers, 1));
        next_period();
        fail(&cells, &mut workers, 1);
        workers[0].collect_garbage(0);
    }
    assert!(is_hot());
    next_period();
    workers[0].collect_garbage(0);
    assert!(!is_hot(), "once in a period");
}

/// A key whose record was deleted is taken off the lists.
#[test]
fn deleted_keys_are_not_hot() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    let mut workers = [cells.worker(), cells.worker()];
    (0..heat::FAILURES.default).for_each(|_| fail(&cells, &mut workers, 1));
    (0..heat::PERIOD.default).for_each(|_| cells.environment.advance_epoch());
    workers[0].collect_garbage(0);
    assert_eq!(listed(&cells), [(Key::Word8(1).into(), heat::FAILURES.default)]);
    let mut worker = begin(&cells);
    assert!(worker.delete(&cells.cells, Key::Word8(1)).is_ok());
    assert!(commit(&mut worker).is_ok());
    (0..2 * heat::PERIOD.default).for_each(|_| cells.environment.advance_epoch());
    workers[0].collect_garbage(0);
    assert_eq!(listed(&cells), []);
}

#[test]
fn options_say_which_records_are_hot() {
    let of = |hot: u64| {
        let options = Options::new(&Htcc::INFO, &[("hot".to_owned(), hot)]).expect("in range");
        let cells = Cells::open(HtmMode::Absent, &[]);
        let protocol = Htcc::open(&options, &cells.environment);
        let worker = || protocol.worker(cells.environment.core().expect("a free slot"));
        let mut workers = [worker(), worker()];
        workers[0].begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(put(&cells, &mut workers[0], 0, 1), Ok(Inserted::New));
        assert_eq!(word(&cells, 0).map(TidWord::is_hot), Some(false), "a placeholder is not");
        assert!(commit(&mut workers[0]).is_ok());
        let first = word(&cells, 0).is_some_and(TidWord::is_hot);
        (0..heat::FAILURES.default).for_each(|_| fail(&cells, &mut workers, 0));
        (0..heat::PERIOD.default).for_each(|_| cells.environment.advance_epoch());
        workers[0].collect_garbage(0);
        (first, word(&cells, 0).is_some_and(TidWord::is_hot))
    };
    assert_eq!([0, 1, 2].map(of), [(false, false), (false, true), (true, true)]);
    assert!(Options::new(&Htcc::INFO, &[("hot".to_owned(), 3)]).is_err());
}

#[test]
fn records_of_named_tables_are_hot_and_no_others() {
    for (named, is_hot) in [("cells", false), ("", true)] {
        let cells = Cells::open(HtmMode::Absent, &[]);
        let name = if is_hot { cells.cells.name.clone() } else { format!("other {named}") };
        let environment = Environment { hot_tables: Arc::new([name]), ..cells.environment.clone() };
        let protocol = Htcc::open(&Options::default(), &environment);
        let worker = || protocol.worker(cells.environment.core().expect("a free slot"));
        let mut workers = [worker(), worker()];
        workers[0].begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(put(&cells, &mut workers[0], 0, 1), Ok(Inserted::New));
        assert!(commit(&mut workers[0]).is_ok());
        assert_eq!(word(&cells, 0).map(TidWord::is_hot), Some(is_hot));
        // Nothing is counted, and nothing found out.
        (0..heat::FAILURES.default).for_each(|_| fail(&cells, &mut workers, 0));
        (0..heat::PERIOD.default).for_each(|_| cells.environment.advance_epoch());
        workers[0].collect_garbage(0);
        assert_eq!(word(&cells, 0).map(TidWord::is_hot), Some(is_hot));
        assert!(protocol.hot_records().is_none());
    }
}

#[test]
fn without_validation_reads_are_not_checked_and_no_update_is_lost() {
    for mode in modes() {
        let cells = Cells::open(mode, &VALUES);
        let options = Options::default().without_validation(&Htcc::INFO).expect("it can do without");
        let protocol = Htcc::open(&options, &cells.environment);
        let mut worker = protocol.worker(cells.environment.core().expect("a free slot"));
        let meanwhile = |id: u64, value: i64| {
            let mut other = begin(&cells);
            assert!(put(&cells, &mut other, id, value).is_ok() && commit(&mut other).is_ok());
        };
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(cells.read(&mut worker, 1), Ok(Some(10)));
        assert_eq!(cells.read(&mut worker, ABSENT), Ok(None));
        assert_eq!(add(&cells, &mut worker, 2), Ok(101));
        meanwhile(1, 60);
        meanwhile(ABSENT, 70);
        assert!(commit(&mut worker).is_ok());
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(cells.read(&mut worker, 0), Ok(Some(1)));
        assert_eq!(cells.read(&mut worker, 1), Ok(Some(60)));
        meanwhile(0, 5);
        assert!(commit(&mut worker).is_ok(), "who only reads is not refuted either");
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(add(&cells, &mut worker, 0), Ok(6));
        meanwhile(0, 50);
        assert!(commit(&mut worker).is_err());
        nothing_is_held(&cells);
        assert_eq!(cells.state(&[0, 1, 2, ABSENT]), [50, 60, 101, 70]);
    }
}

/// The set of columns has no say.
#[test]
fn a_scan_locks_the_hot_records_that_it_reads() {
    let cells = Cells::open(HtmMode::Absent, &VALUES);
    assert!(flip(&cells, 1, true));
    let mut worker = begin(&cells);
    let mut scan = Scan::default();
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let index = &cells.cells.index;
    index.scan(all.0, all.1, seriatim_store::Direction::Forward, &mut scan.cursor).expect("ordered");
    let mut sum = 0;
    while let Some(row) = worker.scan_next(&cells.cells, &mut scan, ColumnSet::ALL).expect("it runs alone") {
        sum += cells.get(row);
    }
    assert_eq!((sum, KEYS.map(|id| held(&cells, id))), (1111, [false, true, false, false]));
    let mut other = begin(&cells);
    assert_eq!(cells.read(&mut other, ABSENT), Ok(None));
    assert!(add(&cells, &mut other, 1).is_err());
    other.abort();
    assert!(commit(&mut worker).is_ok());
    nothing_is_held(&cells);
}

/// Transfers of threads that take turns at every access to a header, while records become hot and cold at any moment.
#[cfg(feature = "steps")]
#[test]
fn flips_at_any_moment_lose_nothing() {
    use seriatim_base::Rng;
    use seriatim_base::thread::{Touch, step, take_turns};

    let (mut flips, mut committed) = (0, 0);
    for seed in 0..150 {
        let cells = Cells::open(HtmMode::Absent, &VALUES);
        let counts = std::sync::Mutex::new([0; 2]);
        let transfers = |thread: u64| -> Box<dyn FnOnce() + Send + '_> {
            let (cells, counts) = (&cells, &counts);
            Box::new(move || {
                let (mut rng, mut worker) = (Rng::from_seed(seed ^ thread << 32), cells.worker());
                for _ in 0..6 {
                    let (from, to, amount) = (rng.below(4), rng.below(4), rng.below(9) as i64);
                    worker.begin(Mode::ReadWrite, Priority::NONE);
                    let done = if rng.percent(30) {
                        let sum = KEYS.into_iter().try_fold(0, |sum, id| {
                            Ok::<i64, OpError>(sum + cells.read(&mut worker, id)?.expect("a row"))
                        });
                        sum.and_then(|sum| commit_or_end(&mut worker).map(|()| assert_eq!(sum, 1111, "seed {seed}")))
                    } else {
                        let change = |worker: &mut Of| {
                            cells.change(worker, from, |value| value - amount)?;
                            cells.change(worker, to, |value| value + amount)
                        };
                        change(&mut worker).and_then(|_| commit_or_end(&mut worker))
                    };
                    if done.is_err() {
                        worker.abort();
                    }
                    counts.lock().expect("no panic")[0] += i32::from(done.is_ok());
                    worker.collect_garbage(4);
                }
            })
        };
        let flipping: Box<dyn FnOnce() + Send + '_> = Box::new(|| {
            let mut rng = Rng::from_seed(!seed);
            for _ in 0..24 {
                step(Touch::Header, std::ptr::null());
                let flipped = flip(&cells, rng.below(4), rng.percent(50));
                counts.lock().expect("no panic")[1] += i32::from(flipped);
            }
        });
        let ended = take_turns(seed, 3, vec![transfers(1), transfers(2), flipping]);
        assert!(ended.iter().all(Result::is_ok), "seed {seed}");
        nothing_is_held(&cells);
        assert_eq!(cells.state(&KEYS).iter().sum::<i64>(), 1111, "seed {seed}");
        let [done, flipped] = counts.into_inner().expect("no panic");
        (committed, flips) = (committed + done, flips + flipped);
    }
    assert!(committed > 300 && flips > 300, "{committed} committed, {flips} flips");
}

#[cfg(feature = "steps")]
fn commit_or_end(worker: &mut Of) -> Result<(), OpError> {
    worker.commit(&mut NoRedo).map(drop)
}
