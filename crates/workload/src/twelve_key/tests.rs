//! Inputs conflict exactly where the options say. Transactions follow the definition, in one round and in two. Every
//! protocol keeps the counts. The check notices a lost update of a client's key and of a hot one, and a lost row.

use super::*;
use crate::test_support;
use seriatim::{Abort, Handle, Session, TransactError, Tx, available_protocols};

const SEED: u64 = 121_212;

const SMALL: Options = Options { partitions: 2, clients: 4, multi: 0, conflict: 0, abort: 0, rounds: Rounds::One };
/// Half of the clients fight over two keys.
const HOT: Options = Options { multi: 40, conflict: 60, abort: 10, ..SMALL };

fn inputs(options: Options, client: u16) -> Vec<KeysInput> {
    let mut inputs = Inputs::new(Rng::from_seed(SEED + u64::from(client)), options, client);
    (0..2000).map(|_| inputs.keys()).collect()
}

/// Percent of these inputs.
fn percent(inputs: &[KeysInput], is: impl Fn(&KeysInput) -> bool) -> f64 {
    inputs.iter().filter(|input| is(input)).count() as f64 * 100.0 / inputs.len() as f64
}

fn key(partition: u16, client: u16, number: u8) -> KeyLocation {
    KeyLocation { partition, client, number }
}

#[test]
fn without_conflicts_a_client_has_twelve_keys_of_its_own_on_one_partition_or_six_on_each_of_two() {
    let options = Options { partitions: 3, clients: 5, multi: 30, ..SMALL };
    for client in 0..5 {
        let inputs = inputs(options, client);
        for input in &inputs {
            let (one, other) = (input.keys[0].partition, input.keys[11].partition);
            let expected: Vec<KeyLocation> = match one == other {
                true => (0..12).map(|number| key(one, client, number)).collect(),
                false => (0..12).map(|at| key(if at < 6 { one } else { other }, client, at % 6)).collect(),
            };
            assert_eq!(input.keys[..], expected[..]);
            assert!(one < 3 && other < 3 && input.aborts_at.is_none());
        }
        assert!((percent(&inputs, KeysInput::is_multi) - 30.0).abs() < 4.0);
        for partition in 0..3 {
            assert!((percent(&inputs, |input| input.keys[0].partition == partition) - 33.3).abs() < 4.0);
            assert!((percent(&inputs, |input| input.keys[11].partition == partition) - 33.3).abs() < 4.0);
        }
    }
}

#[test]
fn with_conflicts_the_first_clients_keep_to_their_partition_and_others_write_one_hot_key() {
    let options = Options { conflict: 40, multi: 50, ..SMALL };
    for client in 0..2 {
        for input in inputs(options, client) {
            assert_eq!(input.keys[0], key(client, client, 0), "its own partition's hot key, each time");
            assert!(input.keys.iter().all(|key| key.client == client));
        }
    }
    for client in 2..4 {
        let inputs = inputs(options, client);
        let foreign =
            |input: &KeysInput| input.keys.iter().filter(|key| key.client != client).copied().collect::<Vec<_>>();
        for input in &inputs {
            let foreign = foreign(input);
            assert!(foreign.len() <= 1 && foreign.iter().all(KeyLocation::is_hot), "{foreign:?}");
        }
        assert!((percent(&inputs, |input| !foreign(input).is_empty()) - 40.0).abs() < 4.0);
        for partition in 0..2 {
            let hot = key(partition, partition, 0);
            assert!((percent(&inputs, |input| foreign(input) == [hot]) - 20.0).abs() < 4.0, "either partition's");
        }
    }
}

#[test]
fn transactions_chosen_to_abort_do_so_at_one_of_their_partitions() {
    let inputs = inputs(Options { abort: 20, multi: 50, ..SMALL }, 3);
    assert!((percent(&inputs, |input| input.aborts_at.is_some()) - 20.0).abs() < 4.0);
    let multi: Vec<KeysInput> =
        inputs.into_iter().filter(|input| input.is_multi() && input.aborts_at.is_some()).collect();
    assert!((percent(&multi, |input| input.aborts_at == Some(input.keys[0].partition)) - 50.0).abs() < 12.0);
    assert!(multi.iter().all(|input| input.keys.iter().any(|key| Some(key.partition) == input.aborts_at)));
}

type Transaction = fn(&mut Session, &KeysInput) -> Result<KeysOutput, TransactError>;

const BOTH: [Transaction; 2] = [
    |session, input| session.call(one_round, input).map(|output| output.into_value()),
    |session, input| session.call(two_rounds, input).map(|output| output.into_value()),
];

fn both_partitions(client: u16) -> KeysInput {
    let keys = std::array::from_fn(|at| key(at as u16 / 6, client, at as u8 % 6));
    KeysInput { keys, aborts_at: None }
}

fn cell(session: &mut Session, table: &Handle<Cell>, at: (u16, u16, u8)) -> (u64, u64) {
    let read = session.snapshot(|tx| Ok(tx.get(table, &at)?.map(|cell| (cell.value(), cell.sum()))));
    read.expect("the cell can be read").into_value().expect("the cell is there")
}

#[test]
fn a_transaction_counts_each_of_its_keys_once_and_answers_what_they_held() {
    for (run, sum) in BOTH.into_iter().zip([0, 12 + 7]) {
        let workload = TwelveKey::new(SMALL);
        let db = test_support::loaded("auto", &workload);
        let (tables, mut session) = (Tables::open(&db).expect("loaded"), db.session());
        session.transact(|tx| tx.update(&tables.cell, &(1, 3, 5), |cell| cell.set_value(7))).expect("it commits");
        let input = both_partitions(3);
        for before in [0, 1] {
            let output = run(&mut session, &input).expect("it commits");
            let mut expected = [before; KEYS];
            expected[11] += 7;
            assert_eq!(output.values, expected);
        }
        for partition in 0..2 {
            for number in 0..12 {
                let touched = number < 6;
                let value = if !touched { 0 } else { 2 + 7 * u64::from((partition, number) == (1, 5)) };
                let sum = if touched { sum } else { 0 };
                assert_eq!(cell(&mut session, &tables.cell, (partition, 3, number)), (value, sum));
                assert_eq!(cell(&mut session, &tables.cell, (partition, 2, number)), (0, 0));
            }
        }
    }
}

#[test]
fn an_abort_at_either_partition_leaves_nothing_at_both() {
    for run in BOTH {
        let workload = TwelveKey::new(SMALL);
        let db = test_support::loaded("auto", &workload);
        let mut session = db.session();
        for partition in 0..2 {
            let input = KeysInput { aborts_at: Some(partition), ..both_partitions(3) };
            let error = run(&mut session, &input).expect_err("it gives up");
            assert!(error.user::<GivenUp>().is_some(), "{error}");
        }
        let missing = KeysInput { keys: both_partitions(4).keys, aborts_at: None };
        let error = run(&mut session, &missing).expect_err("there is no client 4");
        assert!(error.to_string().contains("cell"), "{error}");
        test_support::assert_consistent(&db, &workload);
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn every_protocol_keeps_the_counts_with_and_without_conflicts_in_one_round_and_two() {
    for protocol in available_protocols() {
        for rounds in [Rounds::One, Rounds::Two] {
            for options in [HOT, Options { conflict: 0, ..HOT }] {
                let workload = TwelveKey::new(Options { rounds, ..options });
                // As many terminals as clients and one more, which shares the keys of the first.
                let db = test_support::loaded(protocol.name, &workload);
                let tallies = test_support::run(&db, &workload, 5, 200, SEED);
                let (committed, rolled_back) =
                    tallies.iter().fold((0, 0), |sum, kind| (sum.0 + kind.committed, sum.1 + kind.rolled_back));
                assert_eq!(committed + rolled_back, 1000);
                assert!(
                    (50..200).contains(&rolled_back) && tallies.iter().all(|kind| kind.committed > 200),
                    "{tallies:?}"
                );
                test_support::assert_consistent(&db, &workload);
            }
        }
    }
}

#[test]
fn the_check_notices_a_lost_update_of_a_clients_key_and_of_a_hot_one_and_a_lost_row() {
    let canary = |transactions, clauses: &[&str], corrupt: fn(&Tx, &Tables) -> Result<(), Abort>| {
        let workload = TwelveKey::new(HOT);
        let db = test_support::loaded("auto", &workload);
        test_support::run(&db, &workload, 4, transactions, SEED);
        let tables = Tables::open(&db).expect("loaded");
        test_support::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
    };
    fn lose(tx: &Tx, tables: &Tables, at: (u16, u16, u8)) -> Result<(), Abort> {
        tx.update(&tables.cell, &at, |cell| cell.set_value(cell.value() - 1))
    }
    canary(50, &["own"], |tx, tables| lose(tx, tables, (0, 3, 1)));
    // The first key of a client elsewhere is its own.
    canary(50, &["own"], |tx, tables| lose(tx, tables, (1, 0, 0)));
    canary(50, &["hot"], |tx, tables| lose(tx, tables, (1, 1, 0)));
    canary(0, &["rows"], |tx, tables| tx.delete(&tables.cell, &(1, 2, 11)));
}

#[test]
fn knobs_that_contradict_each_other_are_refused_with_the_reason() {
    let open = |knobs: &[(&str, &str)]| test_support::open(&ENTRY, knobs);
    assert_eq!(open(&[("multi", "100"), ("conflict", "100"), ("abort", "100"), ("rounds", "2")]), Ok(()));
    assert_eq!(open(&[("partitions", "1"), ("clients", "1")]), Ok(()));
    for (knobs, wants) in [
        (&[("partitions", "1"), ("multi", "1")][..], "0 where there is one partition"),
        (&[("clients", "2"), ("conflict", "1")], "more clients than partitions"),
        (&[("partitions", "0")], "from 1"),
        (&[("clients", "65536")], "to 65535"),
        (&[("abort", "101")], "to 100"),
        (&[("rounds", "3")], "1 or 2"),
    ] {
        let misuse = open(knobs).expect_err("these cannot be");
        assert!(misuse.contains(wants), "{misuse}");
    }
}
