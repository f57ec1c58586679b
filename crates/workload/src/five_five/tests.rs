//! The transaction reads and writes what it says; every protocol keeps the counts and the last writes; the check notices a lost
//! update, a lost blind write and a lost row.

use super::*;
use crate::trial;
use seriatim::{Abort, TransactError, Tx, protocols};

const SEED: u64 = 55_055;

fn hot() -> FiveFive {
    FiveFive::new(Options { objects: 50, theta: 0.9 })
}

#[test]
fn a_transaction_writes_five_objects_and_counts_by_what_it_read() {
    let workload = hot();
    let db = trial::loaded("auto", &workload);
    let (tables, mut session) = (Tables::open(&db).expect("loaded"), db.session());
    let first = ReadWriteInput { both: 7, reads: [0, 1, 2, 3], writes: [10, 11, 12, 13], value: 100 };
    let second = ReadWriteInput { both: 7, reads: [10, 11, 1, 2], writes: [3, 4, 5, 13], value: 1000 };
    let sum =
        |session: &mut seriatim::Session, input| session.call(read_write, input).expect("it commits").into_value();
    assert_eq!(sum(&mut session, &first), 0);
    assert_eq!(sum(&mut session, &second), 300, "what objects 7, 10 and 11 got");
    session
        .snapshot(|tx| {
            for id in 0..50 {
                let object = tx.get(&tables.object, &id)?.expect("every object").to_owned();
                let expected = match id {
                    7 => (2, 1000),
                    10..=12 => (0, 100),
                    3..=5 | 13 => (0, 1000),
                    _ => (0, 0),
                };
                assert_eq!((object.steps, object.value), expected, "object {id}");
            }
            Ok(())
        })
        .expect("the objects can be read");
}

#[test]
fn an_object_that_is_not_there_fails_the_transaction_wherever_it_is_named() {
    let workload = hot();
    let db = trial::loaded("auto", &workload);
    let mut session = db.session();
    let good = ReadWriteInput { both: 7, reads: [0, 1, 2, 3], writes: [10, 11, 12, 13], value: 100 };
    for input in [
        ReadWriteInput { both: 50, ..good },
        ReadWriteInput { reads: [0, 1, 2, 50], ..good },
        ReadWriteInput { writes: [10, 11, 12, 50], ..good },
    ] {
        let error = session.call(read_write, &input).expect_err("there is no object 50");
        assert!(matches!(&error, TransactError::MissingRow { table, .. } if table == "object"), "{error}");
    }
    trial::assert_consistent(&db, &workload);
}

#[test]
fn inputs_draw_nine_objects_by_the_law_and_values_never_twice() {
    let options = Options { objects: 1000, theta: 0.9 };
    let of = |number| Inputs::new(Rng::from_seed(SEED), &options, Values::of_terminal(number));
    let (mut one, mut other) = (of(0), of(1));
    let (mut hottest, mut values) = ([0u32; 3], std::collections::HashSet::new());
    for _ in 0..3000 {
        let input = one.read_write();
        let mut all: Vec<u64> = [input.both].into_iter().chain(input.reads).chain(input.writes).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all[8] < 1000, "the objects differ: {all:?}");
        let roles = [input.both == 0, input.reads.contains(&0), input.writes.contains(&0)];
        hottest.iter_mut().zip(roles).for_each(|(count, is_hottest)| *count += u32::from(is_hottest));
        let values_differ = values.insert(input.value) && values.insert(other.read_write().value);
        assert!(values_differ && input.value != 0);
    }
    let all: u32 = hottest.iter().sum();
    // A draw is object 0 with probability 0.095; nine that differ, a little less than nine times as often.
    assert!((1600..2640).contains(&all), "{hottest:?}");
    assert!(hottest[0] * 6 < all && hottest[1].abs_diff(hottest[2]) * 5 < all, "no role is hotter: {hottest:?}");
}

#[test]
fn every_protocol_keeps_counts_and_last_writes_under_contention() {
    for protocol in protocols() {
        let workload = hot();
        let db = trial::loaded(protocol.name, &workload);
        let tallies = trial::run(&db, &workload, 3, 400, SEED);
        assert_eq!(tallies[0].committed, 1200);
        trial::assert_consistent(&db, &workload);
    }
}

#[test]
fn the_check_notices_a_lost_update_a_lost_blind_write_and_a_lost_row() {
    let canary = |clauses: &[&str], corrupt: fn(&Tx, &Tables) -> Result<Option<()>, Abort>| {
        let workload = hot();
        let db = trial::loaded("auto", &workload);
        trial::run(&db, &workload, 1, 200, SEED);
        let tables = Tables::open(&db).expect("loaded");
        trial::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
    };
    canary(&["steps"], |tx, tables| tx.update(&tables.object, &0, |object| object.set_steps(object.steps() - 1)));
    // An older value of the same terminal, and as if never written.
    canary(&["values"], |tx, tables| tx.update(&tables.object, &0, |object| object.set_value(object.value() - 1)));
    canary(&["values"], |tx, tables| tx.update(&tables.object, &0, |object| object.set_value(0)));
    canary(&["steps", "rows"], |tx, tables| Ok(tx.delete(&tables.object, &0)?.then_some(())));
}

#[test]
fn knobs_out_of_range_are_refused_with_what_would_be_right() {
    assert_eq!(trial::open(&ENTRY, &[("objects", "9"), ("theta", "0")]), Ok(()));
    for (knob, wants) in
        [(("objects", "8"), "from 9"), (("objects", "16777217"), "to 16777216"), (("theta", "1"), "0.999")]
    {
        let misuse = trial::open(&ENTRY, &[knob]).expect_err("this cannot be");
        assert!(misuse.contains(wants), "{misuse}");
    }
}
