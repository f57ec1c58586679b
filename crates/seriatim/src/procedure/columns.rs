//! Tests of the columns that are requested from workers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim_catalog::{ColumnId, ColumnSet, ColumnUse, TableColumns};
use seriatim_procedure::plan::Kind;

use crate::procedure::registry::CallStrategy;
use crate::{Abort, Database, Handle, Session, Tx};
use seriatim_engine::test_support::protocols::repairing::{Asked, NAME, PLAIN, asked};

#[derive(seriatim_macros::Table)]
#[table(name = "part", key(id), crate = "seriatim_catalog")]
#[table(index(name = "by_shelf", columns(shelf, weight)), index(name = "by_serial", columns(serial), unique, hash))]
struct Part {
    id: u32,
    shelf: u32,
    weight: u32,
    serial: u32,
    stock: i64,
    price: i64,
}

const SHELF: u16 = 1;
const WEIGHT: u16 = 2;
const STOCK: u16 = 4;
const PRICE: u16 = 5;

#[crate::procedure]
fn look(tx: &Tx, id: u32, serial: u32, shelf: u32) -> Result<(i64, u64), Abort> {
    let part = tx.require::<Part>(id)?;
    let mut sum = part.stock;
    let other = tx.get_by::<Part>(Part::BY_SERIAL, serial)?;
    if let Some(other) = other {
        sum += other.price;
    }
    let count = tx.find_by::<Part>(Part::BY_SHELF, (shelf,)).count()?;
    for next in tx.scan::<Part>(..)? {
        sum += next.stock;
    }
    tx.update::<Part>(id, |part| part.stock += 1)?;
    let price = tx.update::<Part>(id, |part| {
        part.price += part.stock;
        part.price
    })?;
    tx.update::<Part>(id, |part| part.shelf = shelf)?;
    tx.update::<Part>(id, |part| part.stock = i64::from(part.weight))?;
    Ok((sum + price, count))
}

fn set(columns: &[u16]) -> ColumnUse {
    columns.iter().map(|column| ColumnId(*column)).collect::<ColumnSet>().into()
}

fn reading(columns: &[u16]) -> ColumnUse {
    ColumnUse::reading(columns.iter().map(|column| ColumnId(*column)).collect())
}

fn adding(columns: &[u16]) -> ColumnUse {
    ColumnUse::adding(columns.iter().map(|column| ColumnId(*column)))
}

fn open(protocol: &str) -> (Database, Handle<Part>, Session) {
    let db = Database::builder().protocol(protocol).workers(2).open().expect("a valid protocol");
    let parts = db.create::<Part>().expect("a valid table");
    db.register(crate::procedures![look]).expect("a sound procedure");
    let mut session = db.session();
    let part = |id| Part { id, shelf: id % 2, weight: id, serial: 10 + id, stock: 1, price: 2 };
    session.transact(|tx| (0..3).try_for_each(|id| tx.insert(&parts, &part(id)))).expect("an empty table");
    (db, parts, session)
}

/// The requests for rows of the table, without entries of indexes. Equal consecutive requests count once.
fn rows(asked: Vec<Asked>) -> Vec<(Kind, ColumnUse)> {
    let rows = asked.into_iter().filter(|asked| asked.table == "part");
    let mut rows: Vec<_> = rows.map(|asked| (asked.kind, asked.columns)).collect();
    rows.dedup();
    rows
}

#[test]
fn closures_ask_for_all_columns_unless_they_name_some() {
    let (_db, parts, mut session) = open(PLAIN);
    let by_shelf = parts.index(Part::BY_SHELF);
    let mut run = |work: &mut dyn FnMut(&Tx) -> Result<(), Abort>| {
        rows(asked(|| session.transact(&mut *work).map(drop).expect("no conflict")))
    };
    let all = run(&mut |tx| {
        tx.require(&parts, &1)?;
        tx.update(&parts, &1, |part| part.set_stock(part.stock() + 1))?;
        tx.scan(&parts, ..).try_for_each(|part| part.map(drop))
    });
    assert_eq!(all, [Kind::Get, Kind::Update, Kind::Scan].map(|kind| (kind, ColumnUse::ALL)));
    let some = run(&mut |tx| {
        let part = tx.get_columns(&parts, &1, PartRow::STOCK | PartRow::PRICE)?.expect("it is there");
        assert_eq!(part.stock() + part.price(), 4);
        assert!(tx.get_columns(&parts, &2, TableColumns::EMPTY)?.is_some());
        tx.update_columns(&parts, &1, PartRow::STOCK, |part| part.set_stock(part.stock() + 1))?;
        tx.scan(&parts, ..).columns(PartRow::PRICE).try_for_each(|part| part.map(|part| assert_eq!(part.price(), 2)))
    });
    let wanted = [(Kind::Get, set(&[STOCK, PRICE])), (Kind::Get, set(&[])), (Kind::Update, set(&[STOCK]))];
    assert_eq!(some, [&wanted[..], &[(Kind::Scan, set(&[PRICE]))]].concat());
    assert_eq!(run(&mut |tx| tx.add(&parts, &1, PartRow::PRICE, 0).map(drop)), [(Kind::Update, adding(&[PRICE]))]);
    let by_index = run(&mut |tx| {
        let found = tx.find_by(&by_shelf, &(1,)).columns(PartRow::STOCK).map(|part| Ok(part?.stock()));
        found.sum::<Result<i64, Abort>>().map(drop)
    });
    assert_eq!(by_index, [(Kind::Get, set(&[STOCK]))]);
    assert_eq!(run(&mut |tx| tx.count(&parts, ..).map(drop)), [(Kind::Scan, set(&[]))]);
}

#[test]
fn an_update_of_an_indexed_column_asks_for_the_others_of_its_index() {
    let (_db, parts, mut session) = open(PLAIN);
    let asked = asked(|| {
        let update = session.transact(|tx| tx.update_columns(&parts, &1, PartRow::SHELF, |part| part.set_shelf(7)));
        update.expect("no conflict");
    });
    assert_eq!(rows(asked), [(Kind::Update, set(&[SHELF, WEIGHT]))]);
    let moved = session.transact(|tx| tx.find_by(&parts.index(Part::BY_SHELF), &(7,)).try_count());
    assert_eq!(*moved.expect("no conflict"), 1);
}

#[test]
fn procedures_ask_for_the_columns_of_their_plan() {
    let wanted = [
        (Kind::Get, set(&[STOCK])),
        (Kind::Get, set(&[PRICE])),
        // A count only needs to know whether the rows exist.
        (Kind::Get, set(&[])),
        (Kind::Scan, set(&[STOCK])),
        (Kind::Update, adding(&[STOCK])),
        (Kind::Update, reading(&[STOCK, PRICE]).union(ColumnUse::setting([ColumnId(PRICE)]))),
        (Kind::Update, set(&[SHELF, WEIGHT])),
        // An indexed column is read, and the index stays.
        (Kind::Update, reading(&[WEIGHT]).union(ColumnUse::setting([ColumnId(STOCK)]))),
    ];
    let arguments = (1, 12, 1);
    let mut results = Vec::new();
    for (protocol, strategy) in [(PLAIN, CallStrategy::Straight), (NAME, CallStrategy::Repaired)] {
        let (db, _, mut session) = open(protocol);
        assert_eq!(db.procedures().read().expect("no panic").entries[0].strategy, strategy);
        let called = asked(|| results.push(session.call(look, &arguments).expect("no conflict").value));
        assert_eq!(rows(called), wanted, "{protocol}");
    }
    let (_db, _, mut session) = open(PLAIN);
    let interpreted = asked(|| results.push(session.interpret(look, &arguments).expect("no conflict").value));
    assert_eq!(rows(interpreted), wanted);
    assert_eq!(results, [results[0]; 3]);
}

/// The message of the panic of `work`.
fn panic_of(work: impl FnOnce(&Handle<Part>, &mut Session)) -> String {
    let (_db, parts, mut session) = open(PLAIN);
    let panic = catch_unwind(AssertUnwindSafe(|| work(&parts, &mut session))).expect_err("it is caught");
    panic.downcast_ref::<String>().expect("a message").clone()
}

#[test]
#[cfg(debug_assertions)]
fn a_column_that_was_not_named_is_neither_read_nor_set() {
    let read = panic_of(|parts, session| {
        let _ = session.transact(|tx| Ok(tx.get_columns(parts, &1, PartRow::STOCK)?.map(|part| part.price())));
    });
    assert!(read.contains("is read, and the row was asked for with columns {4} only"), "{read}");
    let scanned = panic_of(|parts, session| {
        let _ = session.transact(|tx| {
            tx.scan(parts, ..).columns(PartRow::STOCK).map(|part| Ok(part?.price())).sum::<Result<i64, Abort>>()
        });
    });
    assert!(scanned.contains("is read"), "{scanned}");
    let set = panic_of(|parts, session| {
        let _ = session.transact(|tx| tx.update_columns(parts, &1, PartRow::STOCK, |part| part.set_price(1)));
    });
    assert!(set.contains("is set"), "{set}");
}
