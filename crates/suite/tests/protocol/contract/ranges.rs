//! Rows that appear in a range while a scan is in it. Scans read few rows of a leaf first and the rest of it later.
//! They may begin in a leaf that has no row of the range. Wherever the row appears: either the scan shows it, or not
//! both transactions commit.

use std::ops::Bound;

use seriatim_catalog::{ColumnSet, Key};
use seriatim_htm::HtmMode;
use seriatim_store::{Direction, read_key};
use seriatim_txn::{Mode, OpError, Priority, Protocol, Scan, Worker};

use crate::common::{Bench, modes};
use crate::contract::{commits, insert};

/// The range. Other rows lie below and above; parts of their leaves belong to it.
const RANGE: (u64, u64) = (33, 299);

/// The rows of the range: as many as are read first, one fewer, one more, and as many as split a leaf.
fn rows(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| 110 + 10 * n)
}

/// The ids that the next steps of a scan show, at most this many.
fn go_on<P: Protocol>(
    bench: &Bench<P>,
    worker: &mut P::Worker,
    scan: &mut Scan,
    most: usize,
) -> Result<Vec<u64>, OpError> {
    let mut shown = Vec::new();
    while shown.len() < most && worker.scan_next(&bench.cells, scan, ColumnSet::ALL)?.is_some() {
        shown.push(seen(bench, worker));
    }
    Ok(shown)
}

/// The id of the row that was just read.
fn seen<P: Protocol>(bench: &Bench<P>, worker: &P::Worker) -> u64 {
    let record = worker.seen().record.expect("a row is of a record");
    // SAFETY: it was just seen; the worker is online.
    let Key::Word8(id) = (unsafe { read_key(record, bench.cells.class) }) else { unreachable!("keys of one word") };
    id
}

/// A bench on which the range has so many rows.
fn loaded<P: Protocol>(mode: HtmMode, count: u64) -> (Bench<P>, P::Worker) {
    let bench = Bench::<P>::open(mode, &[1]);
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    let others = (10..18).chain(300..308);
    let loaded = others.chain(rows(count)).try_for_each(|id| insert(&bench, &mut worker, id, 1).map(drop));
    assert!(commits(&mut worker, loaded));
    (bench, worker)
}

/// A transaction shows some rows of the range, another inserts a row and commits, the first shows the others and
/// commits. Each reads what the other writes.
fn appears<P: Protocol>(direction: Direction, count: u64, taken: usize, inserted: u64) {
    let mode = modes()[(count + inserted) as usize % 2];
    let (bench, mut inserter) = loaded::<P>(mode, count);
    let mut reader = bench.worker();
    reader.begin(Mode::ReadWrite, Priority::NONE);
    let mut scan = Scan::default();
    let (low, high) = (Bound::Included(Key::Word8(RANGE.0)), Bound::Included(Key::Word8(RANGE.1)));
    bench.cells.index.scan(low, high, direction, &mut scan.cursor).expect("an ordered table");
    let first = go_on(&bench, &mut reader, &mut scan, taken);
    inserter.begin(Mode::ReadWrite, Priority::NONE);
    let counted = bench.read(&mut inserter, 0);
    let linked = counted.and_then(|counted| insert(&bench, &mut inserter, inserted, counted.unwrap_or(0)));
    let has_inserted = commits(&mut inserter, linked);
    let shown = first.and_then(|mut shown| {
        shown.extend(go_on(&bench, &mut reader, &mut scan, usize::MAX)?);
        bench.change(&mut reader, 0, |_| shown.len() as i64)?;
        Ok(shown)
    });
    let is_shown = shown.as_ref().is_ok_and(|shown| shown.contains(&inserted));
    let (shown_rows, has_read) = (shown.clone().unwrap_or_default(), commits(&mut reader, shown));
    let case = format!("{} on {mode}: {direction:?}, {taken} of {count}, {inserted}", P::INFO.name);
    if has_read {
        let mut expected: Vec<u64> = rows(count).chain(is_shown.then_some(inserted)).collect();
        expected.sort_unstable();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(shown_rows, expected, "{case}");
        assert!(is_shown || !has_inserted, "{case}: a phantom");
    }
    assert!(has_read || has_inserted, "{case}: one of the two need not fail");
}

/// As [`appears`], where the transaction reads the first row that is not deleted, without a scan. Returns whether it
/// found one.
fn precedes<P: Protocol>(count: u64, deleted: u64, inserted: u64) -> bool {
    let mode = modes()[(count + inserted) as usize % 2];
    let (bench, mut inserter) = loaded::<P>(mode, count);
    let (mut reader, mut deleted_rows) = (bench.worker(), rows(count).take(deleted as usize));
    inserter.begin(Mode::ReadWrite, Priority::NONE);
    let deleted_all = deleted_rows.try_for_each(|id| inserter.delete(&bench.cells, Key::Word8(id)).map(drop));
    assert!(commits(&mut inserter, deleted_all));

    reader.begin(Mode::ReadWrite, Priority::NONE);
    let first = reader.first(&bench.cells, (Key::Word8(RANGE.0), Key::Word8(RANGE.1)));
    let first = first.map(|row| row.map(|_| seen(&bench, &reader)));
    inserter.begin(Mode::ReadWrite, Priority::NONE);
    let counted = bench.read(&mut inserter, 0);
    let linked = counted.and_then(|counted| insert(&bench, &mut inserter, inserted, counted.unwrap_or(0)));
    let has_inserted = commits(&mut inserter, linked);
    let shown = first.and_then(|first| bench.change(&mut reader, 0, |_| first.unwrap_or(0) as i64).map(|_| first));
    let (first, has_read) = (shown.unwrap_or_default(), commits(&mut reader, shown));
    let case = format!("{} on {mode}: {deleted} of {count}, {inserted}", P::INFO.name);
    if let Some(first) = first.filter(|_| has_read) {
        assert_eq!(Some(first), rows(count).nth(deleted as usize), "{case}");
        assert!(inserted > first || !has_inserted, "{case}: a phantom");
    }
    assert!(has_read || has_inserted, "{case}: one of the two need not fail");
    first.is_some()
}

pub(crate) fn a_row_appears<P: Protocol>() {
    for (count, deleted) in [(0, 0), (1, 0), (1, 1), (3, 0), (3, 1), (5, 0), (5, 2), (5, 4)] {
        for inserted in [40, 280].into_iter().chain((0..=count).map(|n| 105 + 10 * n)) {
            let is_found = precedes::<P>(count, deleted, inserted);
            assert!(!is_found || count > deleted);
            // Leaves have few records in tests.
            assert!(is_found || deleted > 1 || count == deleted || !["dbx", "silo"].contains(&P::INFO.name));
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        for (count, taken) in [(0, 1), (1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (5, 2), (5, 4)] {
            // In the leaf before the first row, in each gap, and in the leaf behind the last row.
            for inserted in [40, 280].into_iter().chain((0..=count).map(|n| 105 + 10 * n)) {
                appears::<P>(direction, count, taken, inserted);
            }
        }
    }
}
