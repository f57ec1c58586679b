//! Keys that appear in, or leave, the ranges that a transaction scanned or missed, at every fill level of the nodes
//! around them. The transaction's own splits must neither abort it nor hide other changes from it.

use seriatim::rng::seed;
use seriatim::{Abort, Handle, ReadTx, Table, Tx};
use seriatim_suite::explore::{BucketCell, Cell};
use seriatim_suite::{Setting, matrix};

use seriatim_store::{RarePath, taken};

use crate::{assert_serializable, committed, stepped, try_once, unless_conflict};

/// Rows beyond which a tree of one-word keys has split twice, whatever the order of insertion.
const ROWS_MAX: u32 = 66;
/// Where what a transaction concludes from its scan goes.
const RESULTS: u32 = 1000;

#[derive(Clone, Copy, Debug)]
enum ScanDirection {
    Up,
    Down,
}

fn ids(tx: &ReadTx, cells: &Handle<Cell>, direction: ScanDirection) -> Result<Vec<u32>, Abort> {
    match direction {
        ScanDirection::Up => tx.scan(cells, ..RESULTS).map(|row| row.map(|row| row.id())).collect(),
        ScanDirection::Down => {
            let mut ids: Vec<u32> =
                tx.scan_rev(cells, ..RESULTS).map(|row| row.map(|row| row.id())).collect::<Result<_, _>>()?;
            ids.reverse();
            Ok(ids)
        }
    }
}

fn cell(id: u32) -> Cell {
    Cell { id, value: 0 }
}

/// A database with the even ids 2, 4, … 2n, inserted in an order that `order` picks, so that nodes split differently.
fn even(setting: &Setting, n: u32, order: u32) -> (seriatim::Database, Handle<Cell>) {
    let db = stepped(setting);
    let cells = db.create::<Cell>().expect("a table");
    let place = |i: u32| match order % 3 {
        0 => 2 * (i + 1),
        1 => 2 * (n - i),
        _ => 2 * (i * 7 % n + 1),
    };
    // With stride 7 every id is met once unless 7 divides n; `try_insert` and the garbage collector behind it
    // make up for that.
    let insert = |tx: &Tx| {
        (0..n).try_for_each(|i| tx.try_insert(&cells, &cell(place(i))).map(drop))?;
        (1..=n).try_for_each(|i| tx.try_insert(&cells, &cell(2 * i)).map(drop))
    };
    db.session().transact(insert).expect("loading");
    (db, cells)
}

/// Odd ids, absent at the start: below the first row, about the middle, behind the last.
fn gaps(n: u32) -> [u32; 3] {
    [1, 2 * (n / 2) + 1, 2 * n + 1]
}

#[test]
fn an_insert_into_a_scanned_range_refutes_the_scan_at_every_fill_level() {
    for setting in matrix(seed("insert into a scanned range")) {
        let (mut split, mut unsplit) = (0, 0);
        for n in 0..=ROWS_MAX {
            for (at, gap) in gaps(n).into_iter().enumerate() {
                let direction =
                    if (n as usize + at).is_multiple_of(2) { ScanDirection::Up } else { ScanDirection::Down };
                let (db, cells) = even(&setting, n, n / 3);
                let mut session = db.session();
                let reader = session.begin().expect("a worker");
                assert_eq!(ids(&reader, &cells, direction).map(|ids| ids.len() as u32), Ok(n));
                let (other, [splits]) =
                    counting([RarePath::LeafSplit], || try_once(&db, |tx| tx.insert(&cells, &cell(gap))));
                *if splits > 0 { &mut split } else { &mut unsplit } += 1;
                let wrote = unless_conflict(reader.insert(&cells, &Cell { id: RESULTS, value: i64::from(n) }));
                let reader = wrote.and_then(|()| committed(reader.commit()));
                assert!(other.is_some() || reader.is_some(), "{setting}, {n} rows, id {gap}: somebody gets through");
                if reader.is_some() && other.is_some() {
                    panic!("{setting}, {n} rows, {direction:?}: the reader committed over the insert of {gap}");
                }
                assert_serializable(&setting, &db);
            }
        }
        // A locked gap is found by the insert, before it splits anything.
        assert!(
            unsplit > 0 && (split > 0 || ["nowait", "wait-die"].contains(&setting.protocol)),
            "{setting}: {split} of {unsplit} split a leaf"
        );
    }
}

#[test]
fn a_delete_from_a_scanned_range_refutes_the_scan_and_is_unlinked_when_that_has_ended() {
    for setting in matrix(seed("delete from a scanned range")) {
        let reads_the_past = setting.reads_the_past();
        for n in (1..=ROWS_MAX).step_by(5) {
            for steps in 0..3 {
                let (db, cells) = even(&setting, n, n);
                let mut session = db.session();
                let reader = session.begin().expect("a worker");
                assert_eq!(ids(&reader, &cells, ScanDirection::Up).map(|ids| ids.len() as u32), Ok(n));
                let gone = try_once(&db, |tx| tx.delete(&cells, &(2 * (n / 2 + 1).min(n))));
                let (_, [unlinked]) = counting([RarePath::RecordUnlinked], || (0..steps).for_each(|_| db.step()));
                assert_eq!(unlinked, 0, "{setting}, {n} rows: a record is unlinked that a transaction may hold");
                let wrote = unless_conflict(reader.insert(&cells, &cell(RESULTS)));
                let reader = wrote.and_then(|()| committed(reader.commit()));
                // No transaction commits in a later epoch than one that overwrote its reads.
                match reads_the_past && steps == 0 {
                    true => {
                        assert!(gone.is_some() && reader.is_some(), "{setting}, {n} rows, {steps} steps: both commit")
                    }
                    false => assert!(
                        gone.is_none() != reader.is_none(),
                        "{setting}, {n} rows, {steps} steps: exactly one commits"
                    ),
                }
                let (_, [unlinked]) = counting([RarePath::RecordUnlinked], || (0..3).for_each(|_| db.step()));
                assert_eq!(unlinked, u64::from(gone.is_some()), "{setting}, {n} rows: a deleted record is unlinked");
                assert_serializable(&setting, &db);
            }
        }
    }
}

/// Inserts odd ids until nodes split: at once or, where transactions are held, with the decision.
fn split(setting: &Setting, tx: &Tx, cells: &Handle<Cell>, odd: &[u32]) -> Result<(), Abort> {
    let (inserted, [leaves, interiors]) = counting([RarePath::LeafSplit, RarePath::InteriorSplit], || {
        odd.iter().try_for_each(|&id| tx.insert(cells, &cell(id)))
    });
    let at_once = !setting.holds();
    assert_eq!(
        [leaves > 0, interiors > 0],
        [at_once; 2],
        "{setting}: {leaves} leaves and {interiors} interior nodes split"
    );
    inserted
}

#[test]
fn own_splits_neither_abort_nor_hide() {
    for setting in matrix(seed("own splits")) {
        for n in (0..=ROWS_MAX).step_by(2) {
            for direction in [ScanDirection::Up, ScanDirection::Down] {
                let (db, cells) = even(&setting, n, n / 2);
                let odd: Vec<u32> = (0..=n.max(40)).map(|i| 2 * i + 1).collect();
                let mut session = db.session();
                let tx = session.begin().expect("a worker");
                let before = ids(&tx, &cells, direction).expect("alone");
                assert_eq!(before, (1..=n).map(|i| 2 * i).collect::<Vec<_>>());
                split(&setting, &tx, &cells, &odd).expect("alone");
                let mut both: Vec<u32> = before.iter().chain(&odd).copied().collect();
                both.sort_unstable();
                assert_eq!(ids(&tx, &cells, direction).expect("alone"), both, "{setting}, {n} rows: own rows are seen");
                assert!(committed(tx.commit()).is_some(), "{setting}, {n} rows, {direction:?}: own splits aborted it");
                assert_eq!(ids(&db.session().begin().expect("a worker"), &cells, direction).expect("alone"), both);
                assert_serializable(&setting, &db);
            }
        }
    }
}

/// Inserting beside each row while scanning: every row that was there is met once, and nothing aborts.
#[test]
fn a_scan_survives_own_splits_under_its_feet() {
    for setting in matrix(seed("splits during a scan")) {
        for n in (1..=ROWS_MAX).step_by(3) {
            for direction in [ScanDirection::Up, ScanDirection::Down] {
                for behind in [false, true] {
                    let (db, cells) = even(&setting, n, n);
                    let mut session = db.session();
                    let tx = session.begin().expect("a worker");
                    let (mut met, splits) = (Vec::new(), taken(RarePath::LeafSplit));
                    let scan: Box<dyn Iterator<Item = _>> = match direction {
                        ScanDirection::Up => Box::new(tx.scan(&cells, ..RESULTS)),
                        ScanDirection::Down => Box::new(tx.scan_rev(&cells, ..RESULTS)),
                    };
                    for row in scan {
                        let id = row.expect("alone").id();
                        if id % 2 == 0 {
                            met.push(id);
                            tx.insert(&cells, &cell(if behind { id - 1 } else { id + 1 })).expect("alone");
                        }
                    }
                    let split = taken(RarePath::LeafSplit) > splits;
                    assert!(n < 5 || split != setting.holds(), "{setting}, {n} rows: a leaf was split: {split}");
                    met.sort_unstable();
                    let wanted: Vec<u32> = (1..=n).map(|i| 2 * i).collect();
                    assert_eq!(met, wanted, "{setting}, {n} rows, {direction:?}, behind {behind}");
                    assert!(
                        committed(tx.commit()).is_some(),
                        "{setting}, {n} rows, {direction:?}: own splits aborted it"
                    );
                    assert_serializable(&setting, &db);
                }
            }
        }
    }
}

/// After own splits the new nodes are in the node set too: an insert of another into either half is noticed.
#[test]
fn own_splits_do_not_blind_the_scan_to_others() {
    for setting in matrix(seed("blind after own splits")) {
        for n in (20..=ROWS_MAX).step_by(3) {
            for other in [1, 2 * (n / 4) + 1, 2 * (n / 2) + 1, 2 * (3 * n / 4) + 1, 2 * n + 1] {
                let (db, cells) = even(&setting, n, 0);
                let mut session = db.session();
                let tx = session.begin().expect("a worker");
                ids(&tx, &cells, ScanDirection::Up).expect("alone");
                let odd: Vec<u32> = (0..n + 30).map(|i| 2 * i + 1).filter(|&id| id != other).collect();
                split(&setting, &tx, &cells, &odd).expect("alone");
                let other_committed = try_once(&db, |tx| tx.insert(&cells, &cell(other)));
                let own = committed(tx.commit());
                assert!(own.is_none() || other_committed.is_none(), "{setting}, {n} rows: {other} went unnoticed");
                assert!(own.is_some() || other_committed.is_some(), "{setting}, {n} rows: nobody got through");
                assert_serializable(&setting, &db);
            }
        }
    }
}

/// As before for a point read that missed: the absence moves with its half of the node.
#[test]
fn own_splits_do_not_blind_an_absent_read() {
    for setting in matrix(seed("absent read and own splits")) {
        for n in (1..=ROWS_MAX).step_by(5) {
            for missed in gaps(n) {
                for theirs in [false, true] {
                    let (db, cells) = even(&setting, n, 2);
                    let mut session = db.session();
                    let tx = session.begin().expect("a worker");
                    assert!(tx.get(&cells, &missed).expect("alone").is_none());
                    let odd: Vec<u32> = (0..n + 30).map(|i| 2 * i + 1).filter(|&id| id != missed).collect();
                    split(&setting, &tx, &cells, &odd).expect("alone");
                    let inserted = theirs && try_once(&db, |tx| tx.insert(&cells, &cell(missed))).is_some();
                    let own = committed(tx.commit()).is_some();
                    assert!(own != inserted, "{setting}, {n} rows, {missed} missed: own {own}, other's {inserted}");
                    assert_serializable(&setting, &db);
                }
            }
        }
    }
}

/// What `body` gives, and how often it took these paths on this thread.
fn counting<R, const N: usize>(paths: [RarePath; N], body: impl FnOnce() -> R) -> (R, [u64; N]) {
    let before = paths.map(taken);
    let result = body();
    let mut after = paths.map(taken);
    after.iter_mut().zip(before).for_each(|(after, before)| *after -= before);
    (result, after)
}

/// Absent reads of a hash table, whose buckets split and overflow under own inserts and those of others.
#[test]
fn an_absent_read_of_a_hash_table_holds_while_it_grows() {
    const GROWTH: [RarePath; 2] = [RarePath::BucketSplit, RarePath::BucketChained];
    for setting in matrix(seed("absent reads while a hash table grows")) {
        // Of own inserts and of others'.
        let mut grown = [[0; 2]; 2];
        for own in [0, 5, 40, 200] {
            for theirs in [0, 5, 200] {
                for late in [false, true] {
                    let db = stepped(&setting);
                    let cells = db.create::<BucketCell>().expect("a table");
                    let insert = |tx: &Tx, ids: std::ops::Range<u32>| {
                        ids.into_iter().try_for_each(|id| tx.insert(&cells, &BucketCell { id, value: 0 }))
                    };
                    let mut session = db.session();
                    let tx = session.begin().expect("a worker");
                    assert!(tx.get(&cells, &7).expect("alone").is_none());
                    let (inserted, by_own) = counting(GROWTH, || insert(&tx, 1000..1000 + own));
                    inserted.expect("alone");
                    // Others make the table grow; whether that aborts us is theirs to decide, but not whether
                    // we see key 7. Where the absence is a lock, those that meet it are refused: one row each.
                    let others = || {
                        for id in 5000..5000 + theirs {
                            let _ = try_once(&db, |tx| insert(tx, id..id + 1));
                        }
                    };
                    let ((), by_others) = counting(GROWTH, others);
                    for (sum, taken) in grown.iter_mut().flatten().zip([by_own, by_others].into_iter().flatten()) {
                        *sum += taken;
                    }
                    let inserted = late && try_once(&db, |tx| insert(tx, 7..8)).is_some();
                    let wrote = unless_conflict(insert(&tx, 3000..3001));
                    let committed = wrote.and_then(|()| committed(tx.commit())).is_some();
                    assert!(!(committed && inserted), "{setting}, own {own}, others' {theirs}: key 7 went unnoticed");
                    assert!(committed || inserted || theirs > 0, "{setting}, own {own}: aborted for nothing");
                    assert_serializable(&setting, &db);
                }
            }
        }
        // Where the absence is a lock on a bucket's gap, growth is put off until it is let go.
        let [own, [splits, chained]] = grown;
        let grew = splits > 0 || ["nowait", "wait-die"].contains(&setting.protocol);
        assert!(
            own.iter().all(|&taken| (taken > 0) != setting.holds()) && chained > 0 && grew,
            "{setting}: buckets split and overflow: {grown:?}"
        );
    }
}

/// Two transactions scan the same range and each inserts into it.
#[test]
fn mutual_insert_skew_at_every_fill_level() {
    for setting in matrix(seed("mutual insert skew")) {
        let splits = taken(RarePath::LeafSplit);
        for n in 0..=ROWS_MAX {
            let (db, cells) = even(&setting, n, 1);
            let [low, middle, high] = gaps(n);
            let (mine, yours) = [(low, high), (high, low), (middle, high)][n as usize % 3];
            let mut sessions = [db.session(), db.session()];
            let [first, second] = &mut sessions;
            let (first, second) = (first.begin().expect("a worker"), second.begin().expect("a worker"));
            ids(&first, &cells, ScanDirection::Up).expect("nobody wrote");
            ids(&second, &cells, ScanDirection::Down).expect("nobody wrote");
            let wrote = unless_conflict(first.insert(&cells, &cell(mine)));
            let wrote_too = unless_conflict(second.insert(&cells, &cell(if yours == mine { 999 } else { yours })));
            let first = wrote.and_then(|()| committed(first.commit())).is_some();
            let second = wrote_too.and_then(|()| committed(second.commit())).is_some();
            assert!(!(first && second), "{setting}, {n} rows: both inserted into what the other scanned");
            assert_serializable(&setting, &db);
        }
        assert!(taken(RarePath::LeafSplit) > splits, "{setting}: no leaf was split");
    }
}

/// Rows that a secondary index leads to appear under an index key that was searched.
#[test]
fn an_entry_that_appears_in_an_index_refutes_the_search() {
    #[derive(Table, Clone, Debug)]
    #[table(name = "thing", key(id))]
    #[table(index(name = "by_color", columns(color), ordered))]
    #[table(index(name = "by_tag", columns(tag), hash, unique))]
    struct Thing {
        id: u32,
        color: u16,
        tag: u32,
    }
    for setting in matrix(seed("appears in an index")) {
        for n in (0..=ROWS_MAX).step_by(3) {
            for by_update in [false, true] {
                let db = stepped(&setting);
                let things = db.create::<Thing>().expect("a table");
                let (by_color, by_tag) = (things.index(Thing::BY_COLOR), things.index(Thing::BY_TAG));
                let load = |tx: &Tx| {
                    tx.insert(&things, &Thing { id: 900, color: 9, tag: 900 })?;
                    (0..n).try_for_each(|id| tx.insert(&things, &Thing { id, color: (id % 3) as u16, tag: id }))
                };
                db.session().transact(load).expect("loading");
                let mut session = db.session();
                let reader = session.begin().expect("a worker");
                let found = reader.find_by(&by_color, &1u16).count();
                assert_eq!(found as u32, (n + 1) / 3);
                assert!(reader.get_by(&by_tag, &777).expect("alone").is_none());
                let other = try_once(&db, |tx| match by_update {
                    true => tx.update_if(&things, &900, |thing| thing.set_color(1)).map(drop),
                    false => tx.insert(&things, &Thing { id: 901, color: 4, tag: 777 }),
                });
                let wrote = unless_conflict(reader.insert(&things, &Thing { id: 950, color: 7, tag: 950 }));
                let reader = wrote.and_then(|()| committed(reader.commit()));
                assert!(reader.is_none() || other.is_none(), "{setting}, {n} rows, by update {by_update}: unnoticed");
                assert!(reader.is_some() || other.is_some(), "{setting}, {n} rows: nobody got through");
                assert_serializable(&setting, &db);
            }
        }
    }
}
