//! G2 over a predicate: rows that appear in, leave, or move within a scanned range.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{Delete, Insert, Put, Scan, ScanDown};

#[test]
fn mutual_insert_into_a_scanned_range() {
    let spec = Spec {
        initial: vec![(1, 1), (5, 1)],
        programs: vec![Program::new([Scan(1, 9), Insert(3, 1)]), Program::new([ScanDown(1, 9), Insert(4, 1)])],
        tables: Tables::Ordered,
    };
    super::forbid("phantom by insert", &spec);
}

#[test]
fn scan_of_an_empty_range() {
    let spec = Spec {
        initial: vec![],
        programs: vec![
            Program::new([Scan(2, 4), Put(9, |seen| seen[0].value() + 1)]),
            Program::new([Scan(8, 9), Put(3, |seen| seen[0].value() + 1)]),
        ],
        tables: Tables::Ordered,
    };
    super::forbid("phantom in an empty range", &spec);
}

#[test]
fn delete_from_a_scanned_range() {
    let spec = Spec {
        initial: vec![(1, 1), (2, 1)],
        programs: vec![Program::new([Scan(1, 9), Delete(1)]), Program::new([Scan(1, 9), Delete(2)])],
        tables: Tables::Ordered,
    };
    super::forbid("phantom by delete", &spec);
}

#[test]
fn own_inserts_do_not_hide_those_of_others() {
    let spec = Spec {
        initial: vec![(1, 1)],
        programs: vec![Program::new([Scan(1, 9), Insert(4, 1), Scan(1, 9)]), Program::new([Insert(6, 1), Delete(1)])],
        tables: Tables::Ordered,
    };
    super::forbid("phantom beside an own insert", &spec);
}
