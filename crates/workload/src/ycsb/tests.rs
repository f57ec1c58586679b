//! Every mix keeps its counters and values whole; the check notices a lost write, a lost row and a torn value.

use super::chooser::Distribution;
use super::table::{HashOne, OrderedOne, OrderedTen};
use super::*;
use crate::test_support::{self, assert_consistent};
use seriatim::rng::tries;
use seriatim::{Abort, Handle, Text, Tx, available_protocols};

const SEED: u64 = 31_337;

fn small(options: Options) -> Options {
    Options { records: 300, ..options }
}

fn run(protocol: &str, options: Options, terminals: u16, transactions: u32) -> (Database, Ycsb, Vec<u32>) {
    let workload = Ycsb::new(options);
    let db = test_support::loaded(protocol, &workload);
    let tallies = test_support::run(&db, &workload, terminals, transactions, SEED);
    assert!(tallies.iter().all(|kind| kind.rolled_back == 0));
    (db, workload, tallies.iter().map(|kind| kind.committed).collect())
}

#[test]
#[ignore = "nightly: seconds"]
fn core_workloads_run_their_mixes_and_stay_whole() {
    for (core, expected) in [
        (Core::A, [50, 50, 0, 0, 0]),
        (Core::B, [95, 5, 0, 0, 0]),
        (Core::C, [100, 0, 0, 0, 0]),
        (Core::D, [95, 0, 5, 0, 0]),
        (Core::E, [0, 0, 5, 95, 0]),
        (Core::F, [50, 0, 0, 0, 50]),
    ] {
        for protocol in available_protocols() {
            let count = tries(400, 1000) as u32;
            let (db, workload, kinds) = run(protocol.name, small(Options::core(core, 300, SEED)), 2, count);
            for (kind, percent) in kinds.iter().zip(expected) {
                let share = f64::from(*kind) * 50.0 / f64::from(count);
                assert!((share - f64::from(percent)).abs() < 4.0, "core {core:?}: {kinds:?}");
            }
            assert_consistent(&db, &workload);
        }
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn transactions_of_many_operations_stay_whole_under_contention_in_every_shape() {
    let shares = Shares { read: 40, read_modify_write: 30, ..Shares::default() };
    let free = Options { ops: 8, shares, distribution: Distribution::Zipfian, ..Options::core(Core::A, 50, SEED) };
    for (value_bytes, is_ordered) in [(100, false), (100, true), (1000, false), (1000, true)] {
        for protocol in available_protocols() {
            let count = tries(100, 300) as u32;
            let (db, workload, kinds) = run(protocol.name, Options { value_bytes, is_ordered, ..free }, 3, count);
            assert_eq!(kinds.len(), 2);
            assert_eq!(kinds.iter().sum::<u32>(), 3 * count);
            assert_consistent(&db, &workload);
        }
    }
}

/// The mixes of the papers, by their knobs: 80/20 reads and read-modify-writes; sixteen requests a
/// transaction, half of them read-modify-writes (the reordering paper, section 5.5).
#[test]
fn the_papers_mixes_are_knobs_away() {
    for (knobs, expected) in [
        (&[("reads", "80"), ("rmw", "20")][..], (1, [80.0, 0.0, 20.0])),
        (&[("reads", "50"), ("rmw", "50"), ("ops", "16"), ("theta", "0.9")], (16, [50.0, 0.0, 50.0])),
    ] {
        let mut values = ENTRY.values(SEED);
        knobs.iter().for_each(|(name, value)| values.set(name, value).expect("a knob of this workload"));
        values.set("records", "100").expect("a knob of this workload");
        let options = options::parse(&values).expect("these knobs agree");
        let shared = Arc::clone(&Ycsb::new(options).shared);
        let mut inputs = Inputs::new(options, Rng::from_seed(SEED), shared);
        let mut seen = [0u32; KINDS_OF_ONE.len()];
        for _ in 0..2000 {
            let input = inputs.operations(1);
            assert_eq!((input.operations.len(), input.records, input.value_bytes), (expected.0, 100, 100));
            input.operations.iter().for_each(|operation| seen[usize::from(operation.kind)] += 1);
        }
        let share = |kind: u8| f64::from(seen[usize::from(kind)]) * 100.0 / (2000 * expected.0) as f64;
        for (kind, percent) in [READ, UPDATE, READ_MODIFY_WRITE].into_iter().zip(expected.1) {
            assert!((share(kind) - percent).abs() < 4.0, "{knobs:?}: {seen:?}");
        }
        for protocol in available_protocols() {
            let (db, workload, kinds) = run(protocol.name, options, 2, 300);
            assert_eq!(kinds.iter().sum::<u32>(), 600);
            assert_consistent(&db, &workload);
        }
    }
}

#[test]
fn operations_run_in_order_and_do_what_they_say() {
    let options = Options { value_bytes: 1000, is_ordered: true, ..small(Options::core(Core::A, 300, SEED)) };
    let workload = Ycsb::new(options);
    let db = test_support::loaded("auto", &workload);
    let (tables, mut session) = (Tables::<OrderedTen>::open(&db).expect("loaded"), db.session());
    let operation = |kind, key, field, letter, rows| Operation { kind, key, field, letter, rows };
    let input =
        |operations: &[Operation]| OperationsInput { operations: operations.to_vec(), records: 300, value_bytes: 1000 };
    let mut run = |operations: &[Operation]| {
        let input = input(operations);
        session.call(OrderedTen::OPERATIONS, &input).map(|sum| sum.into_value())
    };
    // Both ends of ten fields of a row that is all one letter.
    let whole = |letter: u8| 20 * u64::from(b'a' + letter);
    run(&[operation(INSERT, 300, 0, 3, 0), operation(INSERT, 301, 0, 4, 0)]).expect("new keys");
    assert_eq!(run(&[operation(READ, 300, 0, 0, 0)]).ok(), Some(whole(3)));
    assert_eq!(run(&[operation(SCAN, 300, 0, 0, 5)]).ok(), Some(whole(3) + whole(4)), "to the end of the table");
    assert_eq!(run(&[operation(SCAN, 300, 0, 0, 1)]).ok(), Some(whole(3)));
    assert_eq!(run(&[operation(READ, 302, 0, 0, 0)]).ok(), Some(0), "a newer key may not be there yet");
    let sum = run(&[
        operation(READ_MODIFY_WRITE, 301, 9, 5, 0),
        operation(UPDATE, 301, 0, 5, 0),
        operation(READ, 301, 0, 0, 0),
    ]);
    assert_eq!(sum.ok(), Some(whole(4) + whole(4) + 4), "two of ten fields are a letter later");
    for wrong in
        [operation(INSERT, 7, 0, 0, 0), operation(UPDATE, 302, 0, 0, 0), operation(READ_MODIFY_WRITE, 302, 0, 0, 0)]
    {
        assert!(run(&[operation(UPDATE, 8, 0, 1, 0), wrong]).is_err());
    }
    let writes = |session: &mut seriatim::Session, key: u64| {
        let read = session.snapshot(|tx| Ok(tx.get(&tables.usertable, &key)?.map(|row| row.writes())));
        read.expect("the row can be read").into_value()
    };
    assert_eq!([301, 300, 8].map(|key| writes(&mut session, key)), [Some(2), Some(0), Some(0)]);
}

#[test]
fn operations_that_a_table_does_not_have_abort() {
    let run = |is_ordered, kind| {
        let options = Options { value_bytes: 100, is_ordered, ..small(Options::core(Core::A, 300, SEED)) };
        let db = test_support::loaded("auto", &Ycsb::new(options));
        let operations = vec![Operation { kind, key: 7, field: 0, letter: 0, rows: 2 }];
        let input = OperationsInput { operations, records: 300, value_bytes: 100 };
        let result = match is_ordered {
            true => db.session().call(OrderedOne::OPERATIONS, &input),
            false => db.session().call(HashOne::OPERATIONS, &input),
        };
        result.map(|sum| sum.into_value()).map_err(|error| error.user::<NoSuchOperation>().map(|no| no.0))
    };
    assert!(run(true, SCAN).is_ok());
    assert_eq!(run(false, SCAN), Err(Some(SCAN)));
    assert_eq!(run(true, 5), Err(Some(5)));
}

#[test]
fn the_check_notices_a_lost_write_a_lost_row_and_a_torn_value() {
    let options = Options { value_bytes: 100, ..small(Options::core(Core::A, 300, SEED)) };
    let canary = |options, clause, corrupt: fn(&Tx, &Handle<HashOne>) -> Result<(), Abort>| {
        let (db, workload, _) = run("auto", options, 1, 50);
        let table = db.table::<HashOne>().expect("the table is there");
        test_support::canary(&db, &workload, &[clause], |tx| corrupt(tx, &table));
    };
    canary(options, "writes", |tx, table| tx.update(table, &17, |row| row.set_writes(row.writes() + 1)));
    canary(options, "values", |tx, table| {
        let torn = Text::truncated(&format!("{}{}", "a".repeat(50), "b".repeat(50)));
        tx.update(table, &17, |row| row.set_field0(&torn))
    });
    let reads = Options { shares: Core::C.shares(), ..options };
    canary(reads, "rows", |tx, table| tx.delete(table, &17));
}

#[test]
fn knobs_that_contradict_each_other_are_refused_with_the_reason() {
    let open = |knobs: &[(&str, &str)]| test_support::open(&ENTRY, knobs);
    assert_eq!(open(&[("core", "e")]), Ok(()));
    assert_eq!(open(&[("reads", "80"), ("rmw", "20"), ("theta", "0"), ("keys", "zipfian")]), Ok(()));
    for (knobs, wants) in [
        (&[("core", "G")][..], "A to F"),
        (&[("core", "A"), ("reads", "80")], "left out with --core"),
        (&[("core", "E"), ("index", "hash")], "ordered"),
        (&[("reads", "80"), ("rmw", "30")], "from 0 to 20"),
        (&[("theta", "1")], "below 1"),
        (&[("value-bytes", "1001")], "1000"),
        (&[("ops", "0")], "from 1"),
    ] {
        let misuse = open(knobs).expect_err("these cannot be");
        assert!(misuse.contains(wants), "{misuse}");
    }
}
