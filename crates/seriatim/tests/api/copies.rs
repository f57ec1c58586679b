//! How long rows of scans live: rows from the iterator until the transaction ends, rows passed to a closure for one
//! call.

use std::ops::ControlFlow;

use seriatim::{Abort, Database, Table, Text, TransactError};

use crate::common::{COPYING, each};

/// A row of half a kilobyte.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "wide", key(id), ordered)]
#[table(index(name = "by_group", columns(group), ordered))]
#[table(index(name = "by_label", columns(label), hash))]
struct Wide {
    id: u32,
    group: u32,
    label: u32,
    first: Text<250>,
    second: Text<250>,
}

fn wide(id: u32) -> Wide {
    let text = |name: &str| Text::truncated(&format!("{name} {id}"));
    Wide { id, group: id % 3, label: id % 5, first: text("first"), second: text("second") }
}

fn open(builder: seriatim::Builder, rows: u32) -> (Database, seriatim::Handle<Wide>) {
    let db = builder.open().expect("a valid setting");
    let table = db.create::<Wide>().expect("a valid table");
    for ids in (0..rows).step_by(100) {
        let fill = |tx: &seriatim::Tx| (ids..rows.min(ids + 100)).try_for_each(|id| tx.insert(&table, &wide(id)));
        db.session().transact(fill).expect("there is room");
    }
    (db, table)
}

#[test]
fn rows_of_an_iterator_can_be_kept_until_the_transaction_ends() {
    each(|setting| {
        let (db, table) = open(setting.builder(), 40);
        let by_group = table.index(Wide::BY_GROUP);
        let read = |tx: &seriatim::Tx| {
            let kept = tx.scan(&table, ..).collect::<Result<Vec<_>, Abort>>()?;
            let found = tx.find_by(&by_group, &1).collect::<Result<Vec<_>, Abort>>()?;
            // Scans that keep no rows, and that reuse the state of those above.
            tx.scan(&table, ..).for_each_row(|_| Ok(()))?;
            assert_eq!((tx.count(&table, ..)?, tx.find_by(&by_group, &2).try_count()?), (40, 13));
            tx.update(&table, &3, |row| row.set_first(&Text::truncated("changed")))?;
            assert_eq!(
                kept.iter().map(|row| row.to_owned()).collect::<Vec<_>>(),
                (0..40).map(wide).collect::<Vec<_>>()
            );
            assert!(found.iter().all(|row| row.group() == 1 && row.to_owned() == wide(row.id())));
            Ok(())
        };
        db.session().transact(read).expect("no conflict");
    });
}

#[test]
fn shown_rows_are_those_of_the_iterator() {
    each(|setting| {
        let (db, table) = open(setting.builder(), 40);
        let (by_group, by_label) = (table.index(Wide::BY_GROUP), table.index(Wide::BY_LABEL));
        let scans = |tx: &seriatim::Tx| {
            tx.update(&table, &7, |row| row.set_second(&Text::truncated("own")))?;
            tx.delete(&table, &8)?;
            macro_rules! agree {
                ($($scan:expr => $ids:expr),* $(,)?) => {$({
                    let yielded = $scan.map(|row| Ok(row?.to_owned())).collect::<Result<Vec<Wide>, Abort>>()?;
                    let ids: Vec<u32> = yielded.iter().map(|row| row.id).collect();
                    assert_eq!(ids, $ids.filter(|id| *id != 8).collect::<Vec<u32>>());
                    let mut shown = Vec::new();
                    $scan.for_each_row(|row| {
                        shown.push(row.to_owned());
                        Ok(())
                    })?;
                    assert_eq!(shown, yielded);
                    // The iterator begins the scan, and a closure ends it.
                    let mut scan = $scan;
                    let first = scan.next().transpose()?;
                    let mut rest = Vec::new();
                    scan.for_each_row(|row| {
                        rest.push(row.to_owned());
                        Ok(())
                    })?;
                    rest.splice(0..0, first.map(|row| row.to_owned()));
                    assert_eq!(rest, yielded);
                })*};
            }
            agree!(
                tx.scan(&table, ..) => 0..40,
                tx.scan_rev(&table, 5..=20) => (5..=20).rev(),
                tx.scan(&table, 90..) => 0..0,
                tx.find_by(&by_group, &1) => (0..40).filter(|id| id % 3 == 1),
                tx.find_by_rev(&by_group, &1) => (0..40).rev().filter(|id| id % 3 == 1),
                tx.find_by(&by_label, &2) => (0..40).filter(|id| id % 5 == 2),
            );
            Ok(())
        };
        db.session().transact(scans).expect("no conflict");
        let mut session = db.session();
        let tx = session.begin().expect("a worker is free");
        let mut shown = Vec::new();
        let visit = tx.scan(&table, ..3).for_each_row(|row| {
            shown.push(row.to_owned());
            Ok(())
        });
        assert_eq!((visit, shown.len()), (Ok(()), 3));
    });
}

#[test]
fn a_visit_stops_a_scan() {
    each(|setting| {
        let (db, table) = open(setting.builder(), 40);
        let mut session = db.session();
        let visit = |tx: &seriatim::Tx| {
            let mut visited = 0;
            let found = tx.scan(&table, ..).try_for_each_row(|row| {
                visited += 1;
                Ok(if row.id() == 4 { ControlFlow::Break(row.first().to_owned()) } else { ControlFlow::Continue(()) })
            })?;
            assert_eq!((visited, found), (5, ControlFlow::Break("first 4".to_owned())));
            let all = tx.scan(&table, ..4).try_for_each_row(|_| Ok(ControlFlow::<()>::Continue(())))?;
            assert_eq!(all, ControlFlow::Continue(()));
            Ok(())
        };
        session.transact(visit).expect("no conflict");
        let mut visited = 0;
        let refused = session.transact(|tx| {
            tx.scan(&table, ..).for_each_row(|row| {
                visited += 1;
                if row.id() < 2 { Ok(()) } else { Err(tx.abort("enough")) }
            })
        });
        assert!(matches!(refused, Err(TransactError::User(_))));
        assert_eq!(visited, 3);
    });
}

#[test]
fn under_a_protocol_that_copies_rows_shown_for_a_call_take_no_memory_and_those_kept_are_given_back() {
    const ROWS: u32 = 4_000;
    let builder = Database::builder().protocol(COPYING).workers(2).memory_limit(12 << 20);
    let (db, table) = open(builder, ROWS);
    let mut session = db.session();
    let shown = |tx: &seriatim::Tx| {
        let mut sum = 0;
        for _ in 0..10 {
            tx.scan(&table, ..).for_each_row(|row| {
                sum += row.first().len();
                Ok(())
            })?;
            assert_eq!(tx.count(&table, ..)?, ROWS as usize);
        }
        Ok(sum)
    };
    let kept = |times: usize| {
        let table = &table;
        move |tx: &seriatim::Tx| {
            let mut sum = 0;
            for _ in 0..times {
                for row in tx.scan(table, ..) {
                    sum += row?.first().len();
                }
            }
            Ok(sum)
        }
    };
    for _ in 0..3 {
        let all = session.transact(shown).expect("one row at a time").into_value();
        let refused = session.transact(kept(40));
        assert!(matches!(refused, Err(TransactError::OutOfMemory { .. })), "{refused:?}");
        assert_eq!(10 * session.transact(kept(1)).expect("those of one scan").into_value(), all);
    }
}

#[test]
fn an_explicit_transaction_keeps_one_of_the_rows_that_it_shows_for_a_call() {
    each(|setting| {
        let (db, table) = open(setting.builder(), 400);
        let mut session = db.session();
        let noted = || db.statistics().transaction_bytes;
        let (tx, before) = (session.begin().expect("a worker is free"), noted());
        let (mut shown, mut kept) = (0, 0);
        for _ in 0..10 {
            let visit = tx.scan(&table, ..).for_each_row(|row| {
                shown += row.first().len();
                Ok(())
            });
            assert_eq!(visit, Ok(()));
        }
        assert!(noted() < before + (1 << 20), "{} after {before}", noted());
        for _ in 0..10 {
            tx.scan(&table, ..).for_each(|row| kept += row.expect("no conflict").first().len());
        }
        assert_eq!(shown, kept);
        assert!(noted() > before + (2 << 20), "the alarm can ring: {} after {before}", noted());
    });
}
