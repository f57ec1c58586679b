//! Which accesses are in each other's way, and for how long; step by step.

use std::ops::Bound;

use seriatim_catalog::{ColumnSet, Key};
use seriatim_htm::HtmMode;
use seriatim_store::Direction;
use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, Outcome, Priority, Scan, Worker as _};

use super::*;
use crate::common::{Bench, modes};

const X: u64 = 0;
const Y: u64 = 1;
const ABSENT: u64 = 9;

type Open = Worker<State>;

fn begin(bench: &Bench<Hto>) -> Open {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker
}

/// A transaction that has drawn its timestamp.
fn begin_and_draw(bench: &Bench<Hto>, key: u64) -> Open {
    let mut open = begin(bench);
    assert!(bench.read(&mut open, key).is_ok());
    open
}

fn change(bench: &Bench<Hto>, open: &mut Open, key: u64) -> Result<i64, OpError> {
    bench.change(open, key, |value| value + 1)
}

fn insert(bench: &Bench<Hto>, open: &mut Open, key: u64) -> Result<Inserted, OpError> {
    let staged = open.stage(&bench.cells).expect("memory");
    bench.set(staged.row, 1);
    open.insert(&bench.cells, Key::Word8(key), staged, OnExists::Refuse)
}

fn commit(open: &mut Open) {
    assert!(matches!(open.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
}

/// Ends the transaction, and begins another one.
fn retry(open: &mut Open) {
    open.abort();
    open.begin(Mode::ReadWrite, Priority::NONE);
}

#[test]
fn a_write_is_refused_while_a_reader_is_under_way_and_below_its_timestamp_also_afterwards() {
    for mode in modes() {
        for reader_is_older in [false, true] {
            let bench = Bench::open(mode, &[10, 20, 30]);
            let (mut writer, mut reader);
            if reader_is_older {
                reader = begin_and_draw(&bench, X);
                writer = begin_and_draw(&bench, Y);
            } else {
                writer = begin_and_draw(&bench, Y);
                reader = begin_and_draw(&bench, X);
            }
            assert!(change(&bench, &mut writer, X).is_err(), "the reader is under way");
            retry(&mut writer);
            if !reader_is_older {
                // It is the younger now.
                assert!(bench.read(&mut writer, Y).is_ok());
                commit(&mut reader);
                assert_eq!(change(&bench, &mut writer, X), Ok(11), "the reader has ended");
                commit(&mut writer);
                continue;
            }
            let mut older = begin_and_draw(&bench, 2);
            let mut younger = begin_and_draw(&bench, X);
            commit(&mut reader);
            commit(&mut younger);
            assert!(change(&bench, &mut older, X).is_err(), "it was read later than this began");
            retry(&mut older);
            assert_eq!(change(&bench, &mut older, X), Ok(11));
            commit(&mut older);
            writer.abort();
        }
    }
}

/// One that is left open holds the safe timestamp back.
#[test]
fn an_ended_transaction_does_not_conflict_with_an_older_one_unless_configured() {
    for looks_up in [false, true] {
        let mut bench = Bench::<Hto>::empty(HtmMode::Absent, &["id"]);
        let clock = Clock::new(&bench.environment.memory, [10, 10], looks_up);
        bench.protocol = Hto { clock: Arc::new(clock), budget: bench.protocol.budget };
        let bench = bench.with_rows(&[10, 20, 30]);
        let mut older = begin_and_draw(&bench, Y);
        let mut other = begin(&bench);
        assert_eq!(change(&bench, &mut other, X), Ok(11));
        commit(&mut other);
        other.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(bench.read(&mut other, 2), Ok(Some(30)));
        commit(&mut other);
        other.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(change(&bench, &mut other, X).is_ok(), looks_up, "the older is under way still");
        assert_eq!(change(&bench, &mut other, 2).is_ok(), looks_up);
        other.abort();
        assert_eq!(bench.read(&mut older, X).is_ok(), looks_up);
        older.abort();
    }
}

/// Its own timestamp hides those of other readers: it must not take the record for its own. Here T2 finds a
/// key absent that T1 inserts, and overwrites what T1 has read.
#[test]
fn a_reader_among_others_does_not_become_a_writer() {
    for first_is_younger in [false, true] {
        let bench = Bench::open(HtmMode::Absent, &[10, 20, 30]);
        let (mut first, mut second) = (begin(&bench), begin(&bench));
        let order = if first_is_younger { [&mut second, &mut first] } else { [&mut first, &mut second] };
        order.into_iter().for_each(|open| assert_eq!(bench.read(open, Y), Ok(Some(20))));
        assert_eq!(bench.read(&mut first, X), Ok(Some(10)));
        assert_eq!(bench.read(&mut second, X), Ok(Some(10)));
        assert_eq!(bench.read(&mut second, ABSENT), Ok(None));
        assert!(change(&bench, &mut second, X).is_err(), "another reads it");
        assert!(change(&bench, &mut first, X).is_err(), "another has read it");
        retry(&mut second);
        first.abort();
        assert_eq!(bench.read(&mut second, X), Ok(Some(10)));
        assert_eq!(change(&bench, &mut second, X), Ok(11), "the others have ended");
        commit(&mut second);
    }
}

#[test]
fn writes_are_not_seen_by_reads_and_scans_before_their_commit() {
    for mode in modes() {
        let bench = Bench::open(mode, &[10, 20]);
        let mut writer = begin(&bench);
        assert_eq!(change(&bench, &mut writer, Y), Ok(21));
        let mut reader = begin(&bench);
        assert!(bench.read(&mut reader, Y).is_err());
        retry(&mut reader);
        let mut scan = Scan::default();
        bench
            .cells
            .index
            .scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut scan.cursor)
            .expect("ordered");
        assert!(reader.scan_next(&bench.cells, &mut scan, ColumnSet::ALL).expect("X is at rest").is_some());
        assert!(reader.scan_next(&bench.cells, &mut scan, ColumnSet::ALL).is_err());
        writer.abort();
        retry(&mut reader);
        assert_eq!(bench.read(&mut reader, Y), Ok(Some(20)), "nothing has to be undone");
        commit(&mut reader);
    }
}

#[test]
fn a_row_under_way_is_in_the_way_whether_its_record_is_new_or_a_tombstone() {
    for reborn in [false, true] {
        let bench = Bench::open(HtmMode::Absent, &[10, 20]);
        let key = if reborn { Y } else { ABSENT };
        if reborn {
            let mut deletes = begin(&bench);
            assert!(deletes.delete(&bench.cells, Key::Word8(Y)).expect("at rest").is_some());
            commit(&mut deletes);
        }
        let mut inserts = begin(&bench);
        assert_eq!(insert(&bench, &mut inserts, key), Ok(Inserted::New));
        let mut reader = begin(&bench);
        assert!(bench.read(&mut reader, key).is_err());
        retry(&mut reader);
        commit(&mut inserts);
        assert_eq!(bench.read(&mut reader, key), Ok(Some(1)));
        commit(&mut reader);
    }
}

#[test]
fn a_tombstone_that_was_read_is_neither_filled_nor_unlinked_before_its_reader_has_ended() {
    let bench = Bench::open(HtmMode::Absent, &[10, 20]);
    let mut deletes = begin(&bench);
    assert!(deletes.delete(&bench.cells, Key::Word8(Y)).expect("at rest").is_some());
    commit(&mut deletes);
    deletes.core().local.collect();
    let mut reader = begin(&bench);
    assert_eq!(bench.read(&mut reader, Y), Ok(None));
    let mut inserts = begin(&bench);
    assert!(insert(&bench, &mut inserts, Y).is_err());
    inserts.abort();
    deletes.collect_garbage(usize::MAX);
    let linked = |open: &mut Open| bench.cells.index.get(Key::Word8(Y), open.core().local.pinned()).is_ok();
    assert!(linked(&mut reader));
    commit(&mut reader);
    deletes.core().local.collect();
    deletes.collect_garbage(usize::MAX);
    let mut after = begin(&bench);
    assert!(!linked(&mut after));
    after.abort();
}

#[test]
fn the_safe_timestamp_is_below_all_that_are_under_way() {
    let bench = Bench::<Hto>::open(HtmMode::Absent, &[]);
    let clock = &bench.protocol.clock;
    let mut workers: Vec<Open> = (0..3).map(|_| bench.worker()).collect();
    let [first, second, third] = [0, 1, 2].map(|at: usize| id(&mut workers[at]));
    let oldest = clock.draw(first);
    let younger = clock.draw(second);
    clock.end(second);
    assert!(younger > oldest && clock.safe() < oldest, "the oldest is under way");
    let youngest = clock.draw(third);
    clock.end(first);
    assert!((younger..youngest).contains(&clock.safe()));
    clock.end(third);
    assert!(clock.safe() >= youngest && clock.safe() < clock.draw(first), "what is drawn is above what was safe");
    clock.end(first);
}

fn id(open: &mut Open) -> seriatim_base::WorkerId {
    open.core().local.worker()
}

/// Cut at every step, by transactions that end.
#[test]
fn the_safe_timestamp_does_not_pass_one_that_is_stalled_before_it_draws() {
    use seriatim_base::thread::interrupt;

    let bench = Bench::<Hto>::open(HtmMode::Absent, &[]);
    let clock = &bench.protocol.clock;
    let mut workers: Vec<Open> = (0..2).map(|_| bench.worker()).collect();
    let [stalled, other] = [0, 1].map(|at: usize| id(&mut workers[at]));
    let safe = std::cell::Cell::new(0);
    let mut steps = 0;
    loop {
        safe.set(0);
        let (now, was_cut) = interrupt(
            steps,
            || {
                for _ in 0..3 {
                    clock.draw(other);
                    clock.end(other);
                }
                safe.set(clock.safe());
            },
            || clock.draw(stalled),
        );
        assert!(safe.get() < now, "step {steps}: {} is safe, and {now} has begun", safe.get());
        clock.end(stalled);
        if !was_cut {
            break;
        }
        steps += 1;
    }
    assert!(steps > 0);
}

#[test]
fn after_repeated_phantoms_a_transaction_runs_alone() {
    for writes in [false, true] {
        let bench = Bench::<Hto>::open(HtmMode::Absent, &[10, 20]);
        let (mut fails, mut inserts) = (begin(&bench), begin(&bench));
        let id = id(&mut fails);
        for at in 0..ALONE_AFTER.default {
            // Two absences, and a record, so that it has a timestamp.
            let keys = [ABSENT + 2 * at, ABSENT + 2 * at + 1];
            assert_eq!(keys.map(|key| bench.read(&mut fails, key)), [Ok(None); 2]);
            assert!(if writes { change(&bench, &mut fails, X).is_ok() } else { bench.read(&mut fails, X).is_ok() });
            assert!(!bench.protocol.clock.is_alone(id));
            assert_eq!(insert(&bench, &mut inserts, keys[1]), Ok(Inserted::New));
            commit(&mut inserts);
            inserts.begin(Mode::ReadWrite, Priority::NONE);
            assert!(fails.commit(&mut NoRedo).is_err());
            retry(&mut fails);
        }
        assert!(bench.read(&mut fails, X).is_ok());
        assert!(bench.protocol.clock.is_alone(id));
        fails.abort();
        inserts.abort();
    }
}

#[test]
fn after_repeated_aborts_a_transaction_runs_alone() {
    let bench = Bench::<Hto>::open(HtmMode::Absent, &[10, 20]);
    let clock = &bench.protocol.clock;
    let (mut fails, mut holder) = (begin(&bench), begin(&bench));
    let id = id(&mut fails);
    assert_eq!(change(&bench, &mut holder, X), Ok(11));
    for _ in 0..ALONE_AFTER.default {
        assert!(!clock.is_alone(id));
        assert!(bench.read(&mut fails, X).is_err());
        retry(&mut fails);
    }
    // It waits for the other within a bound, and conflicts as before.
    assert!(bench.read(&mut fails, X).is_err());
    assert!(clock.is_alone(id));
    retry(&mut fails);
    commit(&mut holder);
    assert_eq!(change(&bench, &mut fails, X), Ok(12));
    assert!(clock.is_alone(id));
    // A transaction that begins meanwhile waits within a bound, and then continues.
    let mut late = begin_and_draw(&bench, Y);
    late.abort();
    commit(&mut fails);
    assert!(!clock.is_alone(id), "the turn is over");
    fails.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(change(&bench, &mut fails, X), Ok(13));
    assert!(!clock.is_alone(id), "it has committed since");
    commit(&mut fails);
}
