//! Recorded histories of random transactions, in every setting, pass the independent checker.

use seriatim::Table;
use seriatim::history::{Columns, Promises, Saw, check};
use seriatim::htm::{Emulation, HtmMode};
use seriatim::rng::{is_nightly, seed, tries};
use seriatim::test_support::GROUPED;
use seriatim_store::RarePath;
use seriatim_suite::explore::Cell;
use seriatim_suite::stress::{Load, stress, stress_while_scarce};
use seriatim_suite::{Setting, matrix};

/// A row with columns that are not of its key.
#[derive(Table)]
#[table(name = "pair", key(id))]
struct Pair {
    id: u32,
    left: u32,
    right: u32,
}

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
    let is_all = |taken: &[u64; RarePath::COUNT]| taken.iter().all(|&taken| taken > 0);
    let mut taken_anywhere = [0; RarePath::COUNT];
    for setting in matrix(seed) {
        let load = Load { threads: 2, transactions: 600, keys: 400, operations: 20 };
        let mut taken = [0; RarePath::COUNT];
        // Deleted rows leave when epochs have passed, and epochs may not pass while no thread runs that ends
        // them. With each change it is enough that every path is taken in some setting.
        for round in 0..tries(2, 20) {
            let stress = if round % 2 == 1 { stress_while_scarce } else { stress };
            let stressed = stress(&setting, &load, seed ^ round).unwrap_or_else(|fault| panic!("{fault}"));
            eprintln!("{setting}: {stressed:?}");
            taken.iter_mut().zip(stressed.taken).for_each(|(sum, taken)| *sum += taken);
            if is_all(&taken) {
                break;
            }
        }
        assert!(!is_nightly() || is_all(&taken), "{setting}: a path was never taken: {taken:?}");
        taken_anywhere.iter_mut().zip(taken).for_each(|(sum, taken)| *sum += taken);
    }
    assert!(is_all(&taken_anywhere), "a path was never taken: {taken_anywhere:?}");
}

/// A protocol that claims to keep all columns apart, over one that keeps rows apart.
fn grouped(htm: HtmMode) -> Setting {
    Setting {
        protocol: GROUPED,
        htm,
        strict: true,
        hot: false,
        snapshots: 0,
        adapts: false,
        durable_snapshots: false,
        defers: false,
        locks: false,
    }
}

/// Properties by rows also hold by columns, and so they do in the recorded histories.
#[test]
fn histories_judged_by_columns_pass_where_rows_are_kept_apart() {
    let seed = seed("by columns");
    for htm in [HtmMode::Absent, HtmMode::Emulated(Emulation { seed, abort_one_in: 8, yields: true })] {
        let load = Load { threads: 3, transactions: 400, keys: 8, operations: 6 };
        let stressed = stress(&grouped(htm), &load, seed).unwrap_or_else(|fault| panic!("{fault}"));
        eprintln!("{}: {stressed:?}", grouped(htm));
    }
}

/// Reads and writes are recorded with their columns, and what is refuted of a column is refuted of no other.
#[test]
fn recorded_reads_and_writes_name_their_columns() {
    let db = grouped(HtmMode::Absent).builder().record_history(true).open().expect("a database");
    let cells = db.create::<Pair>().expect("a table");
    let mut session = db.session();
    let mut run = |body: &dyn Fn(&seriatim::Tx) -> Result<(), seriatim::Abort>| {
        session.transact(|tx| body(tx)).expect("it runs alone");
    };
    run(&|tx| tx.insert(&cells, &Pair { id: 1, left: 0, right: 0 }));
    run(&|tx| tx.update_columns(&cells, &1, PairRow::LEFT, |pair| pair.set_left(5)).map(drop));
    run(&|tx| tx.get_columns(&cells, &1, PairRow::LEFT).map(drop));
    run(&|tx| tx.get_columns(&cells, &1, PairRow::RIGHT).map(drop));
    run(&|tx| tx.scan(&cells, ..).columns(PairRow::RIGHT).next().transpose().map(drop));
    // Nothing changed, of all that may have.
    run(&|tx| tx.update_if(&cells, &1, |pair| pair.set_left(5)).map(drop));
    run(&|tx| tx.delete_if(&cells, &1).map(drop));
    let history = db.take_history().expect("it records");
    let column = |number| Columns::of(&[number]);
    assert_eq!(history.groups, [[column(1), column(2)]]);
    let [insert, update, left, right, scan, nothing, delete] = &history.transactions[..] else { panic!("seven") };
    assert_eq!((insert.writes[0].columns, update.writes[0].columns), (None, Some(column(1))));
    assert_eq!((nothing.writes[0].columns, delete.writes[0].columns), (Some(Columns::NONE), None));
    assert_eq!([update, left, right].map(|t| t.reads[0].columns), [1, 1, 2].map(column));
    assert_eq!((scan.scans[0].columns, delete.reads[0].columns), (column(2), Columns::NONE));
    check(&history, &Promises::STRICT).unwrap_or_else(|violation| panic!("{violation}"));
    // Of what was before the update, only the column that it changed is stale.
    let before = Saw::Row(insert.writes[0].version);
    for (at, is_stale) in [(2, true), (3, false)] {
        let mut history = history.clone();
        history.transactions[at].reads[0].saw = before;
        assert_eq!(check(&history, &Promises::STRICT).is_err(), is_stale, "read {at}");
        history.groups.clear();
        check(&history, &Promises::STRICT).expect_err("the row is stale");
    }
}

/// A row with a part of its own for what never changes.
#[derive(Table)]
#[table(name = "parted", key(id), index(name = "by_left", columns(left)))]
struct Parted {
    id: u32,
    #[column(immutable)]
    born: u32,
    left: u32,
    right: u32,
}

/// Rows side by side in one record.
#[derive(Table)]
#[table(name = "side", key(id, place), cluster(id))]
struct Side {
    id: u32,
    place: u32,
    left: u32,
}

/// How rows are stored makes no difference to what a history is judged by, but where one record has many of them.
#[test]
fn histories_have_the_columns_that_updates_may_change() {
    for protocol in ["dbx-tc", "dbx", "silo", "htcc"] {
        let db = seriatim::Database::builder().protocol(protocol).record_history(true).open().expect("a database");
        db.create::<Pair>().expect("a table");
        db.create::<Parted>().expect("a table");
        db.create::<Side>().expect("a table");
        let history = db.take_history().expect("it records");
        let of = |columns: [u32; 2]| columns.map(|column| Columns::of(&[column])).to_vec();
        assert_eq!(history.tables, ["pair", "parted", "parted.by_left", "side"], "{protocol}");
        assert_eq!(history.groups, [of([1, 2]), of([2, 3]), vec![], vec![]], "{protocol}");
    }
}

/// A row that a scan did not list because of its transaction's own write, which was undone later, existed nevertheless.
/// A row that it did not list after that did not exist.
#[test]
fn scans_between_undone_writes_are_recorded_as_they_were() {
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
            // Undone during a scan.
            let mut rows = tx.scan(&cells, ..);
            rows.next().transpose()?;
            tx.delete(&cells, &3)?;
            let seen = rows.by_ref().map(|row| row.map(|row| row.id())).collect::<Result<Vec<_>, _>>()?;
            tx.rollback_to(savepoint)?;
            drop(rows);
            Ok([during, seen, ids(tx)?])
        });
        assert_eq!(*scanned.expect("it runs alone"), [vec![0, 2, 3, 7], vec![1, 2], vec![0, 1, 2, 3]], "{setting}");
        let mut history = db.take_history().expect("it records");
        check(&history, &Promises::STRICT).unwrap_or_else(|violation| panic!("{setting}: {violation}"));
        let [during, seen, after] = &history.transactions[1].scans[..] else { panic!("three scans") };
        let hidden = |saw: &[(_, Saw)]| saw.iter().filter(|(_, saw)| *saw == Saw::Hidden).count();
        assert_eq!([during, seen, after].map(|scan| (scan.saw.len(), hidden(&scan.saw))), [(5, 3), (4, 1), (4, 0)]);
        // The last claim counts: without a row it is refuted.
        history.transactions[1].scans[2].saw.pop();
        check(&history, &Promises::SERIALIZABLE).expect_err("a row that was there is not listed");
    }
}
