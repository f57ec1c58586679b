//! No number of a sequence is given twice, whatever happens to process, machine and disk, under every protocol and in
//! every mode. The judge has seen every number; it keeps them outside of the database.

use std::collections::HashSet;
use std::io::ErrorKind;

use seriatim::catalog::{SequenceChange, SequenceDef};
use seriatim::{Database, Durability, Rng, RowId, Table, TransactError};
use seriatim_base::disk::{FaultyDisk, Operation, Times};
use seriatim_base::rng::{sample, seed, tries};

use crate::accounts::{names, small};

const MODES: [Durability; 3] = [Durability::Async, Durability::Group, Durability::Sync];

#[derive(Table, Clone, Debug, PartialEq)]
#[table(key(id))]
struct Order {
    #[column(identity)]
    id: u64,
    cents: i64,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(without_key)]
struct Line {
    text: String,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "fixed", key(id))]
struct Fixed {
    #[column(identity(minimum = -5, start = 1))]
    id: i64,
}

/// Every number that anybody has seen.
#[derive(Default)]
struct Judge {
    numbers: HashSet<i64>,
    orders: HashSet<u64>,
    lines: HashSet<u64>,
}

impl Judge {
    fn number(&mut self, number: i64, case: &str) {
        assert!(self.numbers.insert(number), "{case}: {number} is given again");
    }
}

fn prepared(disk: &FaultyDisk, protocol: &str, mode: Durability) -> Database {
    let db = small(protocol, disk).durability(mode).open().expect("a new database opens");
    db.migration().create_sequence(SequenceDef::new("s")).run().expect("the disk works");
    db.create::<Order>().expect("the disk works");
    db.create::<Line>().expect("the disk works");
    db
}

/// Takes numbers in every way, until an error. Numbers count even if their transaction is lost or aborted.
fn take(db: &Database, rng: &mut Rng, judge: &mut Judge, case: &str) -> Result<(), TransactError> {
    let gone = |_| TransactError::Closed;
    let s = db.sequence("s").map_err(gone)?;
    let (orders, lines) = (db.table::<Order>().map_err(gone)?, db.table::<Line>().map_err(gone)?);
    let mut session = db.session();
    for _ in 0..rng.range(1, 60) {
        match rng.below(6) {
            0 => judge.number(s.next()?, case),
            1 => {
                let aborts = rng.percent(50);
                let done = session.transact(|tx| {
                    for _ in 0..3 {
                        judge.number(tx.next(&s)?, case);
                    }
                    if aborts { Err(tx.abort("no")) } else { Ok(()) }
                });
                if !matches!(done, Err(TransactError::User(_))) {
                    done?;
                }
            }
            2 => {
                let tx = session.begin()?;
                judge.number(tx.next(&s)?, case);
                tx.commit()?;
            }
            3 => {
                session.transact(|tx| {
                    tx.insert_new(&orders, |id| {
                        assert!(judge.orders.insert(id), "{case}: order {id} is there again");
                        Order { id, cents: 1 }
                    })
                })?;
            }
            4 => {
                let RowId(id) = session.transact(|tx| tx.append(&lines, &Line { text: "line".into() }))?.into_value();
                assert!(judge.lines.insert(id), "{case}: line {id} is there again");
            }
            _ => db.step(),
        }
    }
    Ok(())
}

/// The machine loses power at any operation of the disk, also between a reservation and the use of its numbers.
#[test]
fn no_number_is_given_again_after_a_power_cut() {
    let seed = seed("no_number_is_given_again_after_a_power_cut");
    let cases = names().flat_map(|protocol| MODES.map(|mode| (protocol, mode)));
    for (protocol, mode) in cases {
        let mut given = [0, 0];
        for turn in 0..tries(2, 20) {
            let mut rng = Rng::from_seed(seed ^ turn);
            let case = format!("{protocol}, {mode}, seed {seed}, turn {turn}");
            let disk = FaultyDisk::new(rng.next_u64());
            drop(prepared(&disk, protocol, mode));
            let mut judge = Judge::default();
            for life in 0..4 {
                match rng.below(3) {
                    0 => disk.kill_at(rng.range(1, 120)),
                    1 => disk.crash_at(rng.range(1, 120)),
                    _ => {}
                }
                if let Ok(db) = small(protocol, &disk).durability(mode).open() {
                    let _ = take(&db, &mut rng, &mut judge, &case);
                    if life == 2 {
                        let _ = db.checkpoint();
                    }
                    if rng.percent(50) {
                        disk.power_off();
                    }
                }
                disk.reboot();
            }
            let db = small(protocol, &disk).durability(mode).open().expect("it recovers");
            take(&db, &mut rng, &mut judge, &case).expect("the disk works");
            given[0] += judge.numbers.len();
            given[1] += judge.orders.len();
            assert_eq!(db.check_indexes().expect("they agree").len(), 2, "{case}");
        }
        assert!(given.iter().all(|given| *given > 0), "{protocol}, {mode}, seed {seed}: {given:?}");
    }
}

/// The disk takes nothing any more, and the numbers of the next block are reserved in memory only.
#[test]
fn a_reservation_that_is_not_durable_gives_no_number() {
    for (protocol, mode) in names().flat_map(|protocol| MODES.map(|mode| (protocol, mode))) {
        let case = format!("{protocol}, {mode}");
        let disk = FaultyDisk::new(71);
        let db = prepared(&disk, protocol, mode);
        let (s, mut judge) = (db.sequence("s").expect("it exists"), Judge::default());
        // More than half of the first block: the next is reserved ahead, and is not durable.
        let mut session = db.session();
        for _ in 0..20 {
            judge.number(session.transact(|tx| tx.next(&s)).expect("a number").into_value(), &case);
        }
        drop(session.submit(|_| Ok(())));
        disk.fail(Operation::Sync, 1, Times::ForEver, ErrorKind::Other);
        let mut refused = 0;
        for _ in 0..200 {
            match s.next() {
                Ok(number) => judge.number(number, &case),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0, "{case}: numbers were given that no disk has");
        assert!(judge.numbers.iter().max().is_some_and(|last| *last <= 32), "{case}: {:?}", judge.numbers.iter().max());
        disk.power_off();
        drop((s, session, db));
        disk.heal();
        disk.reboot();
        let db = small(protocol, &disk).durability(mode).open().expect("it recovers");
        let s = db.sequence("s").expect("it exists");
        (0..100).for_each(|_| judge.number(s.next().expect("a number"), &case));
    }
}

#[test]
fn a_clean_close_leaves_no_gap_and_a_crash_leaves_at_most_a_block() {
    for (protocol, mode) in names().flat_map(|protocol| MODES.map(|mode| (protocol, mode))) {
        let case = format!("{protocol}, {mode}");
        let disk = FaultyDisk::new(72);
        let db = prepared(&disk, protocol, mode);
        let s = db.sequence("s").expect("it exists");
        (1..=5).for_each(|number| assert_eq!(s.next().expect("a number"), number, "{case}"));
        drop((s, db));
        let open = || {
            let db = small(protocol, &disk).durability(mode).open().expect("it recovers");
            (db.sequence("s").expect("it exists"), db)
        };
        let (s, db) = open();
        assert_eq!(s.last(), Some(5), "{case}");
        (6..=60).for_each(|number| assert_eq!(s.next().expect("a number"), number, "{case}"));
        drop(s);
        db.close().expect("the disk works");
        let (s, db) = open();
        assert_eq!(s.next().expect("a number"), 61, "{case}");
        s.set(1000).expect("the disk works");
        disk.power_off();
        drop((s, db));
        disk.reboot();
        let (s, db) = open();
        assert_eq!(s.next().expect("a number"), 1001, "{case}: it was set");
        db.migration().alter_sequence("s", [SequenceChange::Increment(-1)]).run().expect("the disk works");
        disk.power_off();
        drop((s, db));
        disk.reboot();
        let (s, db) = open();
        assert_eq!(s.next().expect("a number"), 1000, "{case}: it was altered");
        db.migration().alter_sequence("s", [SequenceChange::Maximum(Some(1))]).run().expect_err("it has got to 1000");
        db.create::<Fixed>().expect("the disk works");
        let fixed =
            db.session().transact(|tx| tx.insert_new(&db.table::<Fixed>().expect("it exists"), |id| Fixed { id }));
        assert_eq!(*fixed.expect("a number"), 1, "{case}");
        db.load_csv("fixed", &b"id\n-1\n"[..]).expect("a new key");
        drop(s);
        db.close().expect("the disk works");
        let (s, db) = open();
        assert_eq!(s.next().expect("a number"), 999, "{case}: it was not altered");
        let fixed =
            db.session().transact(|tx| tx.insert_new(&db.table::<Fixed>().expect("it exists"), |id| Fixed { id }));
        assert_eq!(*fixed.expect("a number"), 2, "{case}");
    }
}

/// A load in one transaction takes more numbers than any block has.
#[test]
fn a_body_that_takes_very_many_numbers_comes_to_its_end() {
    let disk = FaultyDisk::new(74);
    let db = small("dbx", &disk).operations_max(1 << 20).open().expect("a new database opens");
    db.migration().create_sequence(SequenceDef::new("s")).run().expect("the disk works");
    let s = db.sequence("s").expect("it exists");
    let mut attempts = 0;
    let taken = db.session().transact(|tx| {
        attempts += 1;
        assert!(attempts < 40, "it begins again and again");
        (0..150_000).try_fold(0, |_, _| tx.next(&s))
    });
    let last = taken.expect("numbers are there").into_value();
    assert!((150_000..2_000_000).contains(&last), "{last}");
}

#[test]
fn a_full_disk_gives_no_number_that_it_has_not_reserved_and_goes_on_with_space() {
    let seed = seed("a_full_disk_gives_no_number_that_it_has_not_reserved_and_goes_on_with_space");
    for (protocol, mode) in sample(names().flat_map(|protocol| MODES.map(|mode| (protocol, mode))), 3, seed) {
        let case = format!("{protocol}, {mode}");
        let disk = FaultyDisk::new(73);
        let db = prepared(&disk, protocol, mode);
        let (s, mut judge) = (db.sequence("s").expect("it exists"), Judge::default());
        disk.set_capacity(disk.used_bytes());
        let (mut session, lines) = (db.session(), db.table::<Line>().expect("it exists"));
        let line = Line { text: "x".repeat(4000) };
        let mut fill = || (0..1000).find_map(|_| session.transact(|tx| tx.append(&lines, &line)).err());
        assert!(fill().is_some(), "{case}: the disk is full");
        let mut failed = None;
        for _ in 0..10_000 {
            match session.transact(|tx| tx.next(&s)) {
                Ok(number) => judge.number(number.into_value(), &case),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let error = failed.unwrap_or_else(|| panic!("{case}: the disk is full"));
        assert!(error.is_retryable(), "{case}: {error}");
        let last = s.last();
        (0..50).for_each(|_| assert!(s.next().is_err(), "{case}"));
        assert_eq!(s.last(), last, "{case}");
        disk.set_capacity(u64::MAX);
        let next = (0..50).find_map(|_| {
            db.step();
            s.next().ok()
        });
        let next = next.unwrap_or_else(|| panic!("{case}: there is space"));
        judge.number(next, &case);
        assert_eq!(Some(next), last.map(|last| last + 1), "{case}: failed calls leave no gap");
    }
}

/// Threads take numbers while the loggers run; the machine is then cut off.
#[test]
fn threads_share_a_sequence_of_a_database_on_disk() {
    for (protocol, mode) in sample(names().flat_map(|protocol| MODES.map(|mode| (protocol, mode))), 2, 0) {
        let case = format!("{protocol}, {mode}");
        let disk = FaultyDisk::new(74);
        let open = || small(protocol, &disk).durability(mode).step_helpers(false).open().expect("it opens");
        drop(prepared(&disk, protocol, mode));
        let mut judge = Judge::default();
        for _ in 0..2 {
            let db = open();
            let s = db.sequence("s").expect("it exists");
            let work = || {
                let mut session = db.session();
                let numbers =
                    |_| session.transact(|tx| Ok([tx.next(&s)?, tx.next(&s)?])).expect("a number").into_value();
                (0..100).flat_map(numbers).chain((0..100).map(|_| s.next().expect("a number"))).collect::<Vec<i64>>()
            };
            let (one, two) = seriatim::thread::scope(|scope| {
                let other = scope.spawn(work);
                (work(), other.join().expect("no panic"))
            });
            one.into_iter().chain(two).for_each(|number| judge.number(number, &case));
            disk.power_off();
            drop((s, db));
            disk.reboot();
        }
        assert_eq!(judge.numbers.len(), 1200, "{case}");
    }
}
