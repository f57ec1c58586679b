//! The update does what it says; every protocol keeps the sums; the check notices a lost update, a torn record and a lost row.

use super::*;
use crate::trial;
use seriatim::{Abort, TransactError, Tx, protocols};

const SEED: u64 = 10_001;

fn hot() -> MultiKey {
    MultiKey::new(Options { records: 40, theta: 0.8 })
}

#[test]
fn an_update_adds_to_each_of_its_records_and_to_no_other() {
    let workload = hot();
    let db = trial::loaded("auto", &workload);
    let (tables, mut session) = (Tables::open(&db).expect("loaded"), db.session());
    let keys = [0, 2, 4, 6, 8, 10, 12, 14, 16, 39];
    let mut sums = Vec::new();
    for amount in [5, u64::MAX] {
        let input = UpdateInput { keys, amount };
        sums.push(session.call(update, &input).expect("it commits").into_value());
    }
    assert_eq!(sums, [50, 40], "amounts wrap");
    session
        .snapshot(|tx| {
            for key in 0..40 {
                let record = tx.get(&tables.record, &key)?.expect("every record").to_owned();
                let expected = if keys.contains(&key) { (2, 4) } else { (0, 0) };
                assert_eq!((record.updates, record.value), expected, "record {key}");
            }
            Ok(())
        })
        .expect("the records can be read");
}

#[test]
fn an_update_of_a_record_that_is_not_there_fails_and_leaves_nothing() {
    let workload = hot();
    let db = trial::loaded("auto", &workload);
    let mut session = db.session();
    let input = UpdateInput { keys: [0, 1, 2, 3, 4, 5, 6, 7, 8, 40], amount: 1 };
    let error = session.call(update, &input).expect_err("there is no record 40");
    assert!(matches!(&error, TransactError::MissingRow { table, .. } if table == "record"), "{error}");
    trial::assert_consistent(&db, &workload);
}

#[test]
fn inputs_draw_ten_records_by_the_law() {
    for (theta, hottest) in [(0.0, 2..30), (0.8, 400..660)] {
        let mut inputs = Inputs::new(Rng::from_seed(SEED), &Options { records: 1000, theta });
        let mut seen = [0u32; 1000];
        for _ in 0..1000 {
            let mut keys = inputs.update().keys.map(|key| key as usize);
            keys.iter().for_each(|key| seen[*key] += 1);
            keys.sort_unstable();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "the records differ: {keys:?}");
        }
        // A single draw takes rank 0 with probability 1/zeta: 0.001, or 0.065 at theta 0.8. Ten that differ, a little less than
        // ten times as often.
        assert!(hottest.contains(&seen[0]), "theta {theta}: {}", seen[0]);
    }
}

#[test]
fn every_protocol_keeps_the_sums_under_contention() {
    for protocol in protocols() {
        let workload = hot();
        let db = trial::loaded(protocol.name, &workload);
        let tallies = trial::run(&db, &workload, 3, 400, SEED);
        assert_eq!(tallies[0].committed, 1200);
        trial::assert_consistent(&db, &workload);
    }
}

#[test]
fn the_check_notices_a_lost_update_a_torn_record_and_a_lost_row() {
    let canary = |clauses: &[&str], corrupt: fn(&Tx, &Tables) -> Result<Option<()>, Abort>| {
        let workload = hot();
        let db = trial::loaded("auto", &workload);
        trial::run(&db, &workload, 1, 50, SEED);
        let tables = Tables::open(&db).expect("loaded");
        trial::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
    };
    canary(&["updates"], |tx, tables| tx.update(&tables.record, &0, |record| record.set_updates(record.updates() - 1)));
    canary(&["values"], |tx, tables| tx.update(&tables.record, &0, |record| record.set_value(record.value() ^ 1)));
    canary(&["updates", "values", "rows"], |tx, tables| Ok(tx.delete(&tables.record, &0)?.then_some(())));
}

#[test]
fn knobs_out_of_range_are_refused_with_what_would_be_right() {
    assert_eq!(trial::open(&ENTRY, &[("records", "10"), ("theta", "0.8")]), Ok(()));
    for (knob, wants) in
        [(("records", "9"), "from 10"), (("theta", "1"), "from 0 to 0.999"), (("theta", "x"), "number")]
    {
        let misuse = trial::open(&ENTRY, &[knob]).expect_err("this cannot be");
        assert!(misuse.contains(wants), "{misuse}");
    }
}
