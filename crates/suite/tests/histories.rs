//! Recorded histories of random transactions, in every setting, pass the independent checker.

use seriatim::history::{Promises, Saw, check};
use seriatim_suite::explore::Cell;
use seriatim_suite::stress::{Load, stress};
use seriatim_suite::{matrix, seed};

#[test]
fn few_keys_many_conflicts() {
    let seed = seed("few keys");
    for setting in matrix(seed) {
        let load = Load { threads: 3, transactions: 400, keys: 8, operations: 6 };
        let stressed = stress(&setting, &load, seed).unwrap_or_else(|fault| panic!("{fault}"));
        eprintln!("{setting}: {stressed:?}");
    }
}

#[test]
fn many_keys_splits_and_unlinks() {
    let seed = seed("many keys");
    for setting in matrix(seed) {
        let load = Load { threads: 2, transactions: 600, keys: 400, operations: 20 };
        let stressed = stress(&setting, &load, seed).unwrap_or_else(|fault| panic!("{fault}"));
        eprintln!("{setting}: {stressed:?}");
        assert!(stressed.taken.iter().all(|&taken| taken > 0), "{setting}: a path was never taken: {stressed:?}");
    }
}

/// What a scan did not list because a write of its own lay over it, later taken back, was there all the same; what it did not list
/// after that was not.
#[test]
fn scans_between_writes_that_are_taken_back_say_what_they_saw() {
    for setting in matrix(seed("scans between writes")) {
        let db = setting.builder().record_history(true).open().expect("a database");
        let cells = db.create::<Cell>().expect("a table");
        let mut session = db.session();
        session.transact(|tx| (0..4).try_for_each(|id| tx.insert(&cells, &Cell { id, value: 0 }))).expect("it loads");
        let ids = |tx: &seriatim::ReadTx| {
            tx.scan(&cells, ..).map(|row| row.map(|row| row.id())).collect::<Result<Vec<u32>, seriatim::Abort>>()
        };
        let scanned = session.transact(|tx| {
            let savepoint = tx.savepoint()?;
            tx.delete(&cells, &1)?;
            tx.insert(&cells, &Cell { id: 7, value: 0 })?;
            tx.update(&cells, &2, |cell| cell.set_value(9))?;
            let during = ids(tx)?;
            tx.rollback_to(savepoint)?;
            // Taken back while a scan goes on.
            let mut rows = tx.scan(&cells, ..);
            rows.next().transpose()?;
            tx.delete(&cells, &3)?;
            let seen = rows.by_ref().map(|row| row.map(|row| row.id())).collect::<Result<Vec<_>, _>>()?;
            tx.rollback_to(savepoint)?;
            drop(rows);
            Ok([during, seen, ids(tx)?])
        });
        assert_eq!(*scanned.expect("nobody is about"), [vec![0, 2, 3, 7], vec![1, 2], vec![0, 1, 2, 3]], "{setting}");
        let mut history = db.take_history().expect("it records");
        check(&history, &Promises::STRICT).unwrap_or_else(|violation| panic!("{setting}: {violation}"));
        let [during, seen, after] = &history.transactions[1].scans[..] else { panic!("three scans") };
        let hidden = |saw: &[(_, Saw)]| saw.iter().filter(|(_, saw)| *saw == Saw::Hidden).count();
        assert_eq!([during, seen, after].map(|scan| (scan.saw.len(), hidden(&scan.saw))), [(5, 3), (4, 1), (4, 0)]);
        // What the last one claims is claimed: without a row it is refuted.
        history.transactions[1].scans[2].saw.pop();
        check(&history, &Promises::SERIALIZABLE).expect_err("a row that was there is not listed");
    }
}
