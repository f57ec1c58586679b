//! Phantoms and skews of the calls that stand for several operations: of whole tables, ends of ranges, and absent rows.

use seriatim_suite::explore::{Program, Spec, Tables};
use seriatim_suite::model::Op::{
    All, Count, Delete, DeleteRange, Exists, First, Get, GetMany, Insert, Last, Put, Scan, Upsert,
};

/// Explores two programs over the cells 1, 2 and 5.
fn forbid(anomaly: &str, tables: Tables, programs: [Program; 2]) {
    let spec = Spec { initial: vec![(1, 1), (2, 1), (5, 1)], programs: programs.into(), tables };
    super::forbid(anomaly, &spec);
}

#[test]
fn inserts_into_a_table_that_was_read_whole() {
    let programs = [Program::new([All, Insert(7, 1)]), Program::new([All, Insert(8, 1), All])];
    forbid("phantom in a whole table", Tables::Any, programs);
}

#[test]
fn inserts_into_an_empty_table() {
    let programs = vec![
        Program::new([All, Put(9, |seen| seen[0].value() + 1)]),
        Program::new([Count, Put(3, |seen| seen[0].value() + 1)]),
    ];
    super::forbid("phantom in an empty table", &Spec { initial: vec![], programs, tables: Tables::Any });
}

#[test]
fn changes_of_a_table_that_was_counted() {
    let programs = [
        Program::new([Count, Put(1, |seen| seen[0].value())]),
        Program::new([Get(1), Delete(2), Upsert(7, 1), Upsert(8, 1)]),
    ];
    forbid("phantom in a count", Tables::Any, programs);
    let programs = [Program::new([Count, Delete(1), Count]), Program::new([Count, Delete(2)])];
    forbid("two counts", Tables::Any, programs);
}

#[test]
fn a_snapshot_of_a_whole_table() {
    let programs = [Program::read_only([All, Count, All]), Program::new([Delete(2), Insert(7, 1), Upsert(1, 4)])];
    forbid("snapshot of a whole table", Tables::Any, programs);
}

#[test]
fn rows_that_did_not_exist() {
    let programs = [Program::new([Exists(7), Insert(8, 1)]), Program::new([Exists(8), Insert(7, 1)])];
    forbid("absent rows", Tables::Any, programs);
    let programs = [Program::new([Exists(1), Exists(2), Delete(1)]), Program::new([Exists(1), Exists(2), Delete(2)])];
    forbid("rows of which one is to stay", Tables::Any, programs);
    let programs = [
        Program::new([GetMany(&[7, 1, 8, 7]), Insert(8, 1), GetMany(&[8, 7])]),
        Program::new([GetMany(&[8, 2]), Insert(7, 1)]),
    ];
    forbid("absent rows among many", Tables::Any, programs);
}

#[test]
fn rows_that_are_inserted_or_changed() {
    let programs = [Program::new([Upsert(7, 1), Upsert(7, 1)]), Program::new([Upsert(7, 2), Get(7)])];
    forbid("two upserts of one key", Tables::Any, programs);
    let programs = [Program::new([Upsert(7, 1), Delete(7)]), Program::new([Upsert(7, 2), Upsert(7, 2)])];
    forbid("an upsert that is undone", Tables::Any, programs);
}

#[test]
fn ends_of_ranges() {
    let programs = [Program::new([First(2, 9), Insert(6, 1)]), Program::new([Last(2, 9), Insert(3, 1), First(3, 9)])];
    forbid("ends of a range", Tables::Ordered, programs);
    let programs = [Program::new([First(3, 4), Insert(8, 1)]), Program::new([Last(6, 9), Insert(4, 1), Last(3, 4)])];
    forbid("ends of an empty range", Tables::Ordered, programs);
    let programs = [Program::new([First(0, 9), Delete(1)]), Program::new([First(0, 9), Delete(1), First(0, 9)])];
    forbid("a queue", Tables::Ordered, programs);
}

#[test]
fn ranges_that_are_deleted() {
    let programs = [Program::new([DeleteRange(1, 4), Scan(0, 9)]), Program::new([Insert(3, 1), Get(2)])];
    forbid("insert into a deleted range", Tables::Ordered, programs);
    let programs =
        [Program::new([DeleteRange(3, 4), Put(8, |seen| seen[0].value())]), Program::new([Last(6, 9), Insert(4, 1)])];
    forbid("a range without rows", Tables::Ordered, programs);
    let programs = [
        Program::new([Insert(3, 1), DeleteRange(2, 4), Insert(2, 9)]),
        Program::new([DeleteRange(0, 9), Upsert(2, 1)]),
    ];
    forbid("two deleted ranges", Tables::Ordered, programs);
}
