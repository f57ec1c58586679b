//! Records become hot or cold before any access of a transaction. The transaction reads, adds, inserts, deletes,
//! puts, scans and uses an index. Its result and its effects are those of a run after all other commits.

use std::cell::Cell;
use std::rc::Rc;

use seriatim::htm::{Emulation, HtmMode};
use seriatim::{Abort, Builder, Database, Session, Table, Tx, procedure, procedures};
use seriatim_engine::test_support::protocols::disturbing::{NAME, before_accesses};

#[derive(Table)]
#[table(name = "cell", key(id))]
struct Cells {
    id: u32,
    n: u64,
}

#[derive(Table)]
#[table(name = "entry", key(id), hash, index(name = "by_n", columns(n), ordered))]
struct Entry {
    id: u32,
    n: u64,
}

/// The numbers of cells and entries at first.
const CELLS: u32 = 8;
const ENTRIES: u32 = 4;

/// Adds up the rows that it finds, and stores the sum.
#[procedure]
fn gather(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let mut sum = 0u64;
    let first = tx.get::<Cells>(id)?;
    if let Some(cell) = first {
        sum += cell.n;
    }
    let second = tx.update::<Cells>(1, |cell| {
        let n = cell.n;
        cell.n = 0;
        n
    })?;
    sum += second;
    tx.insert(Cells { id: 20, n: second })?;
    let gone = tx.delete_if::<Cells>(2)?;
    if gone {
        sum += 1;
        tx.insert(Cells { id: 2, n: sum })?;
    }
    for cell in tx.scan::<Cells>(3..6)? {
        sum += cell.n;
    }
    let taken = tx.update::<Entry>(0, |entry| {
        let n = entry.n;
        entry.n = n + 50;
        n
    })?;
    sum += taken;
    for entry in tx.scan_by::<Entry>(Entry::BY_N, 0..60)? {
        sum += entry.n;
    }
    tx.insert(Entry { id: 20, n: 55 })?;
    let gone = tx.delete_if::<Entry>(1)?;
    if gone {
        sum += 1;
    }
    tx.update::<Cells>(7, |cell| cell.n = sum)?;
    Ok(sum)
}

/// As [`gather`], with rows that are put unconditionally, and with parts that are rolled back.
fn put_together(db: &Database, session: &mut Session) -> u64 {
    let cells = db.table::<Cells>().expect("it is there");
    let entries = db.table::<Entry>().expect("it is there");
    let by_n = entries.index(Entry::BY_N);
    let committed = session.transact(|tx| {
        let mut sum = tx.get(&cells, &0)?.map_or(0, |cell| cell.n());
        let savepoint = tx.savepoint()?;
        tx.update(&cells, &1, |cell| cell.set_n(500))?;
        tx.put(&cells, &Cells { id: 6, n: 500 })?;
        tx.insert(&cells, &Cells { id: 21, n: 500 })?;
        tx.delete(&entries, &2)?;
        tx.put(&entries, &Entry { id: 3, n: 500 })?;
        sum += tx.get(&cells, &1)?.map_or(0, |cell| cell.n());
        tx.rollback_to(savepoint)?;
        tx.put(&cells, &Cells { id: 2, n: sum })?;
        tx.put(&cells, &Cells { id: 20, n: sum })?;
        tx.delete(&cells, &3)?;
        for cell in tx.scan(&cells, 3..6) {
            sum += cell?.n();
        }
        tx.put(&entries, &Entry { id: 0, n: 57 })?;
        tx.update(&entries, &1, |entry| entry.set_n(entry.n() + 5))?;
        for entry in tx.scan_by(&by_n, 0..60) {
            sum += entry?.n();
        }
        tx.update(&cells, &7, |cell| cell.set_n(sum))?;
        Ok(sum)
    });
    committed.expect("it commits in the end").into_value()
}

fn open(builder: Builder) -> (Database, Session) {
    let db = builder.workers(4).step_helpers(true).open().expect("a valid setting");
    db.create::<Cells>().expect("a valid table");
    db.create::<Entry>().expect("a valid table");
    db.register(procedures![gather]).expect("a sound procedure");
    let session = db.session();
    (db, session)
}

/// Restores the first state of the rows.
fn reset(db: &Database) {
    let cells = db.table::<Cells>().expect("it is there");
    let entries = db.table::<Entry>().expect("it is there");
    let load = db.session().transact(|tx| {
        for id in [20, 21] {
            let _ = tx.delete_if(&cells, &id)?;
            let _ = tx.delete_if(&entries, &id)?;
        }
        (0..CELLS).try_for_each(|id| tx.put(&cells, &Cells { id, n: 10 + u64::from(id) }))?;
        (0..ENTRIES).try_for_each(|id| tx.put(&entries, &Entry { id, n: u64::from(id) }))
    });
    load.expect("no conflict");
}

/// All rows.
fn contents(db: &Database) -> Vec<(bool, u32, u64)> {
    let cells = db.table::<Cells>().expect("it is there");
    let entries = db.table::<Entry>().expect("it is there");
    let read = db.session().transact(|tx| {
        let mut all = Vec::new();
        for row in tx.scan(&cells, ..) {
            let row = row?;
            all.push((false, row.id(), row.n()));
        }
        for row in tx.scan_by(&entries.index(Entry::BY_N), ..) {
            let row = row?;
            all.push((true, row.id(), row.n()));
        }
        Ok(all)
    });
    read.expect("no conflict").into_value()
}

/// A row: of the entries if true, otherwise of the cells.
type RowPosition = (bool, u32);

/// Adds one to a row, unless it is missing or locked. Returns whether it did.
fn add(db: &Database, place: RowPosition) -> bool {
    let cells = db.table::<Cells>().expect("it is there");
    let entries = db.table::<Entry>().expect("it is there");
    let added = db.session().transact(|tx| {
        if tx.attempt() > 1 {
            return Err(tx.abort("a lock is held"));
        }
        let (is_entry, id) = place;
        match is_entry {
            false => tx.update_if(&cells, &id, |cell| cell.set_n(cell.n() + 1)),
            true => tx.update_if(&entries, &id, |entry| entry.set_n(entry.n() + 1)),
        }
    });
    added.is_ok_and(|added| added.into_value().is_ok())
}

/// Makes a transaction fail at a row, to which another transaction adds one. Returns whether that one did.
fn fail(db: &Database, place: RowPosition) -> bool {
    let cells = db.table::<Cells>().expect("it is there");
    let entries = db.table::<Entry>().expect("it is there");
    let added = Cell::new(false);
    let failed = db.session().transact(|tx| {
        if tx.attempt() > 1 {
            return Err(tx.abort("it has failed"));
        }
        let (is_entry, id) = place;
        match is_entry {
            false => drop(tx.update(&cells, &id, |cell| cell.set_n(cell.n() * 2))?),
            true => drop(tx.update(&entries, &id, |entry| entry.set_n(entry.n()))?),
        }
        added.set(add(db, place));
        if added.get() { Ok(()) } else { Err(tx.abort("no conflict")) }
    });
    assert!(failed.is_err(), "it did not see what the other added");
    added.get()
}

/// Whether any row is hot.
fn is_any_hot(db: &Database) -> bool {
    db.contention().and_then(|contention| contention.hot).is_some_and(|rows| !rows.is_empty())
}

type Body = fn(&Database, &mut Session) -> u64;

const BODIES: [Body; 2] =
    [|_, session| session.call(gather, &0).expect("it commits in the end").into_value(), put_together];

/// Counts of events in all cases.
#[derive(Default, Debug)]
struct EventCounts {
    heated: u32,
    cooled: u32,
    /// Concurrent changes that were committed.
    added: u32,
    /// Attempts that failed validation.
    refuted: u64,
    repaired: u64,
}

/// Runs a body. Before its access of this number the row becomes hot, or cold, and other transactions add to it.
/// Returns `false` if the body has fewer accesses.
fn flip(
    of: (&mut (Database, Session), &mut (Database, Session)),
    body: Body,
    (hot, place): (bool, RowPosition),
    at: u32,
    met: &mut EventCounts,
) -> bool {
    let ((db, session), (serial, other)) = of;
    // Two epochs without a failure: all rows are cold.
    (0..3).for_each(|_| db.step());
    reset(db);
    if hot {
        assert!(fail(db, place));
        db.step();
        reset(db);
    }
    assert_eq!(is_any_hot(db), hot, "{place:?}");
    let (added, was_hot) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
    let (flipped, adds, mut accesses) = (db.clone(), Rc::clone(&added), 0..);
    let is_hot = Rc::clone(&was_hot);
    let others = move || {
        if accesses.next() != Some(at) {
            return;
        }
        let before = !hot && fail(&flipped, place);
        flipped.step();
        if hot {
            flipped.step();
        }
        is_hot.set(is_any_hot(&flipped));
        adds.set(Some(u32::from(before) + u32::from(add(&flipped, place))));
    };
    let before = db.statistics();
    let got = before_accesses(others, || body(db, session));
    let Some(added) = added.take() else { return false };
    met.added += added;
    met.heated += u32::from(!hot && was_hot.get());
    met.cooled += u32::from(hot && !was_hot.get());
    let since = db.statistics().since(&before);
    (met.refuted, met.repaired) = (met.refuted + since.conflict_aborted, met.repaired + since.repairs);
    reset(serial);
    (0..added).for_each(|_| assert!(add(serial, place)));
    let what = format!("{place:?} was hot: {hot}, flipped before {at}, {added} times added to");
    assert_eq!(got, body(serial, other), "{what}");
    assert_eq!(contents(db), contents(serial), "{what}");
    true
}

#[test]
#[ignore = "nightly: seconds"]
fn flips_before_any_access_change_nothing() {
    let seed = 3;
    for mode in [HtmMode::Absent, HtmMode::Emulated(Emulation { seed, abort_one_in: 5, yields: false })] {
        for (body, repairs) in BODIES.into_iter().zip([true, false]) {
            let soon = [("hot_period", 1), ("hot_failures", 1), ("repair_share_max", 100), ("repair_from", 0)];
            let builder = Database::builder().protocol(NAME).htm(mode).track_contention(true);
            let builder = soon.iter().fold(builder, |builder, &(name, value)| builder.protocol_option(name, value));
            let (mut flipped, mut serial) = (open(builder), open(Database::builder()));
            let places = (0..CELLS).map(|id| (false, id)).chain((0..ENTRIES).map(|id| (true, id)));
            let mut met = EventCounts::default();
            for case in [false, true].into_iter().flat_map(|hot| places.clone().map(move |place| (hot, place))) {
                let accesses = (0..).take_while(|&at| flip((&mut flipped, &mut serial), body, case, at, &mut met));
                assert!(accesses.count() > 15, "each access of an attempt");
            }
            let EventCounts { heated, cooled, added, refuted, repaired } = met;
            assert!(heated > 100 && cooled > 100 && added > 300 && refuted > 0, "{met:?}");
            assert_eq!(repaired > 20, repairs, "{met:?}");
        }
    }
}
