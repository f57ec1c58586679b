//! Tests of the test protocol that copies rows. It detects a row that is used after the transaction must release it.

use std::ops::Bound;

use seriatim_catalog::{ColumnDef, ColumnType, RowRef, TableDef, Value};
use seriatim_store::Direction;

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_test_protocols::copying::{CopyingRedo, NAME, POISON};
use seriatim_txn::{
    Before, Inserted, Mode, OnExists, Outcome, Peeked, Priority, Redo, RowBuffer, RowPtr, Scan, Table, Updating, Worker,
};

use crate::index::read_primary;
use crate::{DynHandle, Engine, Settings, TxCore};

/// A number that is read from a row after its copy was overwritten.
const GONE: u64 = u64::from_ne_bytes([POISON; 8]);

/// Cells whose values are ten times their ids, with an index by value; and a worker with an open transaction.
struct Bench {
    engine: Engine,
    cells: DynHandle,
    worker: Box<dyn Worker>,
}

impl Bench {
    fn open() -> Bench {
        let settings = Settings { protocol: NAME.to_owned(), workers: 2, step_helpers: true, ..Settings::default() };
        let engine = settings.open().expect("a protocol of this name");
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
        let table = TableDef::builder("cell").column(column("id")).column(column("value")).key(["id"]);
        let table = table.index("by_value", ["value"]).finish().expect("a table");
        let cells = DynHandle::new(engine.create(table).expect("memory"));
        let insert = |tx: &TxCore| (0..5u64).try_for_each(|id| tx.insert_dyn(&cells, &[id, 10 * id].map(Value::from)));
        engine.runner().transact(insert).expect("no conflict");
        let inner = engine.inner();
        let mut worker = inner.protocol.worker(inner.environment.core().expect("a free slot"));
        worker.begin(Mode::ReadWrite, Priority::NONE);
        Bench { engine, cells, worker }
    }

    fn table(&self) -> &Table {
        &self.cells.set.primary
    }

    /// The value in a row, or in its poisoned copy, whose memory stays until the worker's next transaction
    /// has ended.
    fn value(&self, row: RowPtr) -> u64 {
        // SAFETY: as said above; the column lies in the row version.
        unsafe { RowRef::from_raw(row.as_ptr()) }.get::<u64>(&self.table().layout.places[1])
    }

    fn read(&mut self, id: u64) -> RowPtr {
        let row = self.worker.read(&self.cells.set.primary, Key::Word8(id), ColumnSet::ALL);
        row.expect("no conflict").expect("it is there")
    }

    fn commit(&mut self, redo: &mut dyn Redo) {
        assert!(matches!(self.worker.commit(redo), Ok(Outcome::Committed(_))));
    }
}

/// Begins a scan of a whole table.
fn scan(table: &Table, transient: bool) -> Scan {
    let mut scan = Scan { transient, ..Scan::default() };
    table.index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut scan.cursor).expect("ordered");
    scan
}

#[test]
fn a_row_that_was_read_is_gone_when_the_transaction_has_left() {
    for commits in [true, false] {
        let mut bench = Bench::open();
        let first = bench.read(3);
        let update = bench.worker.update(&bench.cells.set.primary, Key::Word8(3), ColumnUse::ALL);
        let Updating { before, .. } = update.expect("no conflict").expect("it is there");
        let deleted = bench.worker.delete(&bench.cells.set.primary, Key::Word8(2));
        let deleted = deleted.expect("no conflict").expect("it is there");
        let put = |bench: &mut Bench, exists| {
            let staged = bench.worker.stage(&bench.cells.set.primary).expect("memory");
            bench.worker.insert(&bench.cells.set.primary, Key::Word8(1), staged, exists)
        };
        let Ok(Inserted::Exists(existing)) = put(&mut bench, OnExists::Refuse) else { panic!("it is there") };
        let Ok(Inserted::Replaced(replaced)) = put(&mut bench, OnExists::Replace) else { panic!("it is there") };
        let rows = [first, before, deleted, existing, replaced];
        assert_eq!(rows.map(|row| bench.value(row)), [30, 30, 20, 10, 10]);
        if commits {
            bench.commit(&mut seriatim_txn::NoRedo);
        } else {
            bench.worker.abort();
        }
        assert_eq!(rows.map(|row| bench.value(row)), [GONE; 5]);
    }
}

#[test]
fn a_row_of_a_scan_is_gone_with_the_next_step_if_it_was_transient_and_else_with_the_transaction() {
    for transient in [true, false] {
        let mut bench = Bench::open();
        let mut scan = scan(bench.table(), transient);
        let mut last: Option<(RowPtr, u64)> = None;
        for id in 0..=5 {
            let row = bench.worker.scan_next(&bench.cells.set.primary, &mut scan, ColumnSet::ALL);
            if let Some((row, value)) = last {
                assert_eq!(bench.value(row), if transient { GONE } else { value });
            }
            last = row.expect("no conflict").map(|row| (row, bench.value(row)));
            assert_eq!(last.map(|(_, value)| value), (id < 5).then_some(10 * id));
        }
        bench.worker.abort();
    }
}

#[test]
fn an_index_entry_that_is_followed_after_the_next_step_leads_nowhere() {
    let mut bench = Bench::open();
    let Bench { cells, worker, .. } = &mut bench;
    let index = &cells.set.indexes[0].table;
    let mut scan = scan(index, true);
    let mut step = || worker.scan_next(index, &mut scan, ColumnSet::ALL).expect("no conflict");
    let first = step().expect("an entry");
    // SAFETY: an entry of an index of this table; its block stays with the scan or the worker.
    let key = |entry| unsafe { read_primary(entry, cells.set.primary.class) };
    assert_eq!(key(first), Key::Word8(0));
    let second = step().expect("an entry");
    assert_eq!((key(first), key(second)), (Key::Word8(GONE), Key::Word8(1)));
}

#[test]
fn a_peeked_row_is_gone_when_its_buffer_is_reused() {
    let mut bench = Bench::open();
    bench.worker.abort();
    let inner = bench.engine.inner();
    let mut buffer = RowBuffer::default();
    bench.worker.core().local.enter();
    let pin = bench.worker.core().local.pinned();
    let table = &bench.cells.set.primary;
    let mut peek = |id| {
        let record = table.index.get(Key::Word8(id), pin).expect("it is linked");
        // SAFETY: found under this pin.
        match unsafe { inner.protocol.peek_committed(table, record, pin, &mut buffer) } {
            Peeked::Row(_, row) => row,
            other => panic!("{other:?}"),
        }
    };
    // SAFETY: rows of this table; the buffer stays.
    let value = |row: RowPtr| unsafe { RowRef::from_raw(row.as_ptr()) }.get::<u64>(&table.layout.places[1]);
    let first = peek(1);
    assert_eq!(value(first), 10);
    let second = peek(4);
    assert_eq!((value(second), value(first)), (40, 40), "they are one buffer");
    buffer.fill(POISON);
    assert_eq!(value(first), GONE);
    bench.worker.core().local.leave();
}

/// Keeps rows that it must not keep.
#[derive(Default)]
struct RetainingRedo {
    rows: Vec<RowPtr>,
    values: Vec<u64>,
    places: Vec<seriatim_catalog::ColumnLocation>,
}

impl Redo for RetainingRedo {
    fn write(&mut self, _: &Table, _: Key<'_>, _: Tid, before: Option<Before>, after: Option<RowPtr>) {
        let rows = before.map(|before| before.row).into_iter().chain(after);
        for row in rows {
            // SAFETY: a row of the table of cells, readable during the call.
            self.values.push(unsafe { RowRef::from_raw(row.as_ptr()) }.get::<u64>(&self.places[1]));
            self.rows.push(row);
        }
    }
}

#[test]
fn a_reported_row_is_gone_after_the_call() {
    let mut bench = Bench::open();
    let places = bench.table().layout.places.clone();
    let mut gone = Vec::new();
    let mut redo = RetainingRedo { places, ..RetainingRedo::default() };
    let update = bench.worker.update(&bench.cells.set.primary, Key::Word8(3), ColumnUse::ALL);
    let Updating { after, .. } = update.expect("no conflict").expect("it is there");
    assert_eq!(bench.value(after), 30);
    // The copies live as long as the listener that makes them: check before it is gone.
    let mut copies = CopyingRedo { inner: &mut redo, before: RowBuffer::default(), after: RowBuffer::default() };
    let before = Some(Before { tid: Tid::ZERO, row: after });
    let table = bench.table();
    copies.write(table, Key::Word8(3), Tid::ZERO, before, Some(after));
    gone.extend([copies.before.room(table), copies.after.room(table)]);
    assert!(gone.iter().all(|&row| bench.value(row) == GONE));
    drop(copies);
    assert_eq!((redo.values, redo.rows), (vec![30, 30], gone));
    let mut redo = RetainingRedo { places: bench.table().layout.places.clone(), ..RetainingRedo::default() };
    bench.commit(&mut redo);
    assert_eq!(redo.values, [30, 30]);
    assert!(!redo.rows.contains(&after), "reported from copies");
}

#[test]
fn copies_count_against_the_memory_limit_and_are_given_back() {
    let mut bench = Bench::open();
    let noted = |bench: &Bench| bench.engine.inner().environment.memory.noted_bytes();
    let before = noted(&bench);
    for _ in 0..100 {
        bench.read(1);
    }
    let row = size_of::<RowBuffer>() + bench.table().record_layout.row;
    assert!(noted(&bench) >= before + 100 * row, "{} after {before}", noted(&bench));
    let mut scan = scan(bench.table(), true);
    let full = noted(&bench);
    while let Ok(Some(_)) = bench.worker.scan_next(&bench.cells.set.primary, &mut scan, ColumnSet::ALL) {}
    assert_eq!(noted(&bench), full, "of these there is one at a time, in the scan");
    bench.worker.abort();
    assert!(noted(&bench) <= before);
}
