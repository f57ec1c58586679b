//! Reports of which transactions conflicted.

use seriatim::catalog::Reverse;
use seriatim::{Abort, Contender, Database, HotRow, RetryPolicy, Table, Tx, procedure, procedures};

use crate::common::{each, person};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "counter", key(id), hash)]
struct Counter {
    id: u32,
    n: u64,
}

#[procedure]
fn count(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let n = tx.update::<Counter>(id, |counter| {
        counter.n += 1;
        counter.n
    })?;
    Ok(n)
}

/// Protocols differ in which of the two they end. Its attempt is counted once, at the row, with the other
/// transaction.
#[test]
fn a_conflict_is_counted_at_its_row_with_both_transactions() {
    each(|setting| {
        let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
        let db = setting.builder().track_contention(true).retry(retry).open().expect("valid");
        let counters = db.create::<Counter>().expect("valid");
        db.register(procedures![count]).expect("it is declared soundly");
        let (mut session, mut other) = (db.session(), db.session());
        session.call(count, &7).expect_err("there is no row yet");
        session.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 0 })).expect("no conflict");
        session.call(count, &7).expect("no conflict");
        assert_eq!(db.contention().expect("it is tracked").count(), 0, "a missing row is no conflict");

        let result = session.transact(|tx| {
            let n = tx.require(&counters, &7)?.n();
            let _ = other.call(count, &7);
            tx.update(&counters, &7, |counter| counter.set_n(n + 1))?;
            tx.insert(&counters, &Counter { id: 8, n })
        });
        let contention = db.contention().expect("it is tracked");
        assert_eq!(contention.count(), db.statistics().conflict_aborted);
        let [place] = &contention.places[..] else { panic!("one conflict: {contention:?}") };
        assert_eq!((place.table.as_deref(), place.key.as_deref(), place.count), (Some("counter"), Some("id 7"), 1));
        // In either case the procedure committed the last write.
        assert!(place.cause.reason.is_conflict() && place.by == Contender::Procedure("count"), "{place:?}");
        let pairs = contention.by(|place| (place.aborted, place.by));
        assert_eq!(pairs, [((place.aborted, place.by), 1)]);
        assert_eq!(place.aborted, if result.is_err() { Contender::AdHoc } else { Contender::Procedure("count") });
    });
}

/// With these options one conflict makes a row hot, and two epochs without conflicts make it cold again.
#[test]
fn hot_rows_are_reported_where_the_protocol_detects_them() {
    each(|setting| {
        let finds_out = setting.protocol.name == "htcc" && !setting.hot;
        let options = [("hot_period", 1), ("hot_failures", 1)].into_iter().filter(|_| finds_out);
        let builder = options.fold(setting.builder(), |builder, (name, value)| builder.protocol_option(name, value));
        let db = builder.track_contention(true).step_helpers(true).open().expect("valid");
        let counters = db.create::<Counter>().expect("valid");
        db.register(procedures![count]).expect("it is declared soundly");
        let (mut session, mut other) = (db.session(), db.session());
        session.transact(|tx| tx.insert(&counters, &Counter { id: 7, n: 0 })).expect("no conflict");
        let hot = || db.contention().expect("it is tracked").hot;
        assert_eq!(hot(), finds_out.then(Vec::new));
        if !finds_out {
            return;
        }
        let result = session.transact(|tx| {
            let n = tx.require(&counters, &7)?.n();
            if tx.attempt() == 1 {
                other.call(count, &7).expect("it meets no lock");
            }
            tx.insert(&counters, &Counter { id: 8, n })
        });
        result.expect("no conflict in the second attempt");
        assert_eq!(hot(), Some(Vec::new()), "it is found out once in a period");
        let mut next_epoch = || {
            db.step();
            session.transact(|tx| tx.require(&counters, &8).map(drop)).expect("no conflict");
            hot().expect("as above")
        };
        let rows = next_epoch();
        let [HotRow { table: Some(table), key: Some(key), failures: 1, .. }] = &rows[..] else {
            panic!("one hot row: {rows:?}")
        };
        assert_eq!((&table[..], &key[..]), ("counter", "id 7"));
        next_epoch();
        assert_eq!(next_epoch(), []);
    });
}

#[test]
fn names_of_missing_hot_tables_are_reported() {
    let db = Database::builder().protocol("htcc").hot_tables(["counter", "countre"]).open().expect("valid");
    assert_eq!(db.statistics().hot_tables_missing, ["counter", "countre"]);
    db.create::<Counter>().expect("valid");
    assert_eq!(db.statistics().hot_tables_missing, ["countre"]);
}

#[test]
fn nothing_is_tracked_unless_it_is_requested() {
    each(|setting| {
        let (db, people, mut session) = setting.people();
        session.transact(|tx| tx.insert(&people, &person(1, 1))).expect("a new key");
        let _ = session.transact(|tx| Ok(tx.get(&people, &(1, Reverse(1)))?.is_some()));
        assert!(db.contention().is_none());
    });
}
