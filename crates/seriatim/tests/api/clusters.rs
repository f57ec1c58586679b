//! Clustered tables against unclustered tables with the same rows: every program gets the same answers from both.
//!
//! In these builds a run holds only a handful of rows, so that runs split all the time.

use std::ops::{Bound, ControlFlow};

use seriatim::catalog::{ColumnDef, ColumnType, Reverse, TableDef, Value};
use seriatim::rng::{seed, tries};
use seriatim::{Abort, Database, Handle, MissingRow, ReadTx, Rng, Savepoint, Session, Table, Text, Transaction};

use crate::common::{Setting, each, text};

/// Prefixes, and numbers of each. They are few, so that programs repeat keys, but more than fit in one run.
const PREFIXES: u64 = 3;
const NUMBERS: u64 = 40;
const VALUES: u64 = 60;

/// A table, clustered or not.
macro_rules! row {
    ($row:ident, $name:literal, $group:ty, [$($part:tt)*] $(, $cluster:ident($($of:tt)*))?) => {
        #[derive(Table, Clone, Debug, PartialEq)]
        #[table(name = $name, key($($part)*) $(, $cluster($($of)*))?)]
        #[table(index(name = "by_tag", columns(tag), unique, hash))]
        #[table(index(name = "by_color", columns(color)))]
        pub(crate) struct $row {
            pub(crate) group: $group,
            pub(crate) number: i16,
            pub(crate) tag: u32,
            pub(crate) color: u8,
            #[column(immutable)]
            pub(crate) label: Text<5>,
            pub(crate) amount: Option<i32>,
        }
    };
}

/// Two tables that differ only in clustering.
macro_rules! twins {
    ($module:ident, $group:ty, $key:ident => $make:expr, [$($part:tt)*], [$($cluster:tt)*]) => {
        mod $module {
            use super::*;

            row!(Line, "line", $group, [$($part)*], cluster($($cluster)*));
            row!(Plain, "plain_line", $group, [$($part)*]);

            impl From<Line> for Plain {
                fn from(Line { group, number, tag, color, label, amount }: Line) -> Plain {
                    Plain { group, number, tag, color, label, amount }
                }
            }

            type Key = <Line as Table>::Key;

            fn key(group: u64, number: u64) -> Key {
                let make: fn($group, i16) -> Key = $make;
                make(group as $group, number as i16 - 7)
            }

            struct Twins {
                lines: Handle<Line>,
                plain: Handle<Plain>,
            }

            fn draw(rng: &mut Rng) -> Line {
                Line {
                    group: rng.below(PREFIXES) as $group,
                    number: rng.below(NUMBERS) as i16 - 7,
                    tag: rng.below(VALUES) as u32,
                    color: rng.below(3) as u8,
                    label: text(&"abcde"[..rng.below(6) as usize]),
                    amount: Some(rng.below(100) as i32).filter(|amount| amount % 4 > 0),
                }
            }

            impl Twins {
                /// Checks that both tables hold the same rows and find them in the same ways.
                fn check(&self, tx: &ReadTx, rng: &mut Rng) -> Result<(), Abort> {
                    let Twins { lines, plain } = self;
                    let line = |row: Result<LineRow<'_>, Abort>| Ok::<Plain, Abort>(row?.to_owned().into());
                    let of_plain = |row: Result<PlainRow<'_>, Abort>| Ok::<Plain, Abort>(row?.to_owned());
                    let same = |one: Vec<Result<Plain, Abort>>, other: Vec<Result<Plain, Abort>>| {
                        let all = |rows: Vec<_>| rows.into_iter().collect::<Result<Vec<Plain>, Abort>>();
                        assert_eq!(all(one)?, all(other)?);
                        Ok::<(), Abort>(())
                    };
                    same(tx.scan(lines, ..).map(line).collect(), tx.scan(plain, ..).map(of_plain).collect())?;
                    same(tx.scan_rev(lines, ..).map(line).collect(), tx.scan_rev(plain, ..).map(of_plain).collect())?;
                    assert_eq!(tx.scan(lines, ..).try_count()?, tx.scan(plain, ..).try_count()?);
                    for _ in 0..4 {
                        let mut bound = || {
                            let key = key(rng.below(PREFIXES), rng.below(NUMBERS));
                            match rng.below(4) {
                                0 => Bound::Unbounded,
                                1 => Bound::Excluded(key),
                                _ => Bound::Included(key),
                            }
                        };
                        let range = (bound(), bound());
                        same(
                            tx.scan(lines, range.clone()).map(line).collect(),
                            tx.scan(plain, range.clone()).map(of_plain).collect(),
                        )?;
                        same(
                            tx.scan_rev(lines, range.clone()).map(line).collect(),
                            tx.scan_rev(plain, range.clone()).map(of_plain).collect(),
                        )?;
                        assert_eq!(
                            tx.scan(lines, range.clone()).try_count()?,
                            tx.scan(plain, range.clone()).try_count()?
                        );
                        // A scan that stops early.
                        let (stop, mut seen) = (rng.below(9), 0);
                        let _ = tx.scan(lines, range).try_for_each_row(|_| {
                            seen += 1;
                            Ok(if seen > stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                        })?;
                        let group = rng.below(PREFIXES) as $group;
                        same(
                            tx.prefix(lines, &group).map(line).collect(),
                            tx.prefix(plain, &group).map(of_plain).collect(),
                        )?;
                        let at = key(rng.below(PREFIXES), rng.below(NUMBERS));
                        let found = tx.get(lines, &at)?.map(|row| Plain::from(row.to_owned()));
                        assert_eq!(found, tx.get(plain, &at)?.map(|row| row.to_owned()));
                    }
                    for color in 0..3 {
                        same(
                            tx.find_by(&lines.index(Line::BY_COLOR), &color).map(line).collect(),
                            tx.find_by(&plain.index(Plain::BY_COLOR), &color).map(of_plain).collect(),
                        )?;
                    }
                    for tag in 0..VALUES as u32 {
                        let found = tx.get_by(&lines.index(Line::BY_TAG), &tag)?.map(|row| Plain::from(row.to_owned()));
                        assert_eq!(found, tx.get_by(&plain.index(Plain::BY_TAG), &tag)?.map(|row| row.to_owned()));
                    }
                    Ok(())
                }

                /// The same operation on both tables. Returns whether it was refused, as the unique index may do.
                fn step(&self, tx: &Transaction<'_>, rng: &mut Rng) -> bool {
                    let Twins { lines, plain } = self;
                    let row = draw(rng);
                    let (key, other) = (row.key(), Plain::from(row.clone()));
                    let whole = rng.percent(30);
                    let there = |answer: Result<Result<(), MissingRow>, Abort>| {
                        answer.map(|done| done.is_ok()).map_err(drop)
                    };
                    let answers = match rng.below(8) {
                        0..=2 => [
                            tx.try_insert(lines, &row).map_err(drop),
                            tx.try_insert(plain, &other).map_err(drop),
                        ],
                        3 => [
                            tx.put(lines, &row).map(|()| true).map_err(drop),
                            tx.put(plain, &other).map(|()| true).map_err(drop),
                        ],
                        4 => [there(tx.delete_if(lines, &key)), there(tx.delete_if(plain, &key))],
                        5 => {
                            let color = u8::from(whole);
                            [
                                there(tx.add_if(lines, &key, LineRow::COLOR, color)),
                                there(tx.add_if(plain, &key, PlainRow::COLOR, color)),
                            ]
                        }
                        _ => [
                            there(tx.update_if(lines, &key, |now| {
                                now.set_amount(row.amount);
                                if whole {
                                    now.set_tag(row.tag);
                                    now.set_color(row.color);
                                }
                            })),
                            there(tx.update_if(plain, &key, |now| {
                                now.set_amount(row.amount);
                                if whole {
                                    now.set_tag(row.tag);
                                    now.set_color(row.color);
                                }
                            })),
                        ],
                    };
                    assert_eq!(answers[0], answers[1], "{row:?}");
                    answers[0].is_err()
                }
            }

            pub(super) fn program(setting: &Setting, seed: u64, transactions: usize) {
                // A background thread that unlinks rows would conflict with a transaction.
                let db = setting.builder().step_helpers(true).open().expect("a valid setting");
                let twins = Twins { lines: db.create().expect("a table"), plain: db.create().expect("a table") };
                let (mut session, mut rng) = (db.session(), Rng::from_seed(seed));
                for _ in 0..transactions {
                    let tx = session.begin().expect("a worker");
                    let mut savepoints: Vec<Savepoint> = Vec::new();
                    // Without savepoints, runs are changed in place.
                    let (many, guarded) = (rng.percent(30), rng.percent(50));
                    let kept = tx.get(&twins.lines, &key(0, 9)).expect("alone").map(|row| (row, row.to_owned()));
                    for _ in 0..1 + rng.below(if many { 60 } else { 12 }) {
                        match rng.below(12) {
                            0 => savepoints.push(tx.savepoint().expect("open")),
                            1 if !savepoints.is_empty() => {
                                savepoints.truncate(1 + rng.below(savepoints.len() as u64) as usize);
                                tx.rollback_to(*savepoints.last().expect("one is left")).expect("open");
                            }
                            2 => twins.check(&tx, &mut rng).expect("alone"),
                            _ if guarded => {
                                let guard = tx.savepoint().expect("open");
                                if twins.step(&tx, &mut rng) {
                                    tx.rollback_to(guard).expect("open");
                                }
                            }
                            // A refused operation has no effect.
                            _ => drop(twins.step(&tx, &mut rng)),
                        }
                    }
                    if let Some((row, then)) = kept {
                        assert_eq!(row.to_owned(), then, "a row that was given out changed");
                    }
                    twins.check(&tx, &mut rng).expect("alone");
                    if rng.percent(75) {
                        tx.commit().expect("alone");
                    } else {
                        tx.rollback();
                    }
                    if rng.percent(20) {
                        db.step();
                    }
                    session.snapshot(|tx| twins.check(tx, &mut rng)).expect("alone");
                }
                db.step();
                assert_eq!(db.check_structure(), Ok(()));
                let rows = |name: &str| {
                    let statistics = db.statistics();
                    statistics.tables.iter().find(|table| table.name == name).expect("it is there").rows
                };
                assert_eq!(rows("line"), rows("plain_line"), "rows are counted, not runs");
                empty(&db, &twins, &mut session);
            }

            /// Deletes all rows, in some order: no run is left.
            fn empty(db: &Database, twins: &Twins, session: &mut Session) {
                let deleted = session.transact(|tx| {
                    let keys = tx.scan(&twins.lines, ..).map(|row| Ok(row?.to_owned().key()));
                    let keys = keys.collect::<Result<Vec<Key>, Abort>>()?;
                    let (even, odd): (Vec<_>, Vec<_>) = keys.iter().enumerate().partition(|(at, _)| at % 2 == 0);
                    for (_, key) in even.into_iter().chain(odd) {
                        tx.delete(&twins.lines, key)?;
                    }
                    tx.scan(&twins.lines, ..).try_count()
                });
                assert_eq!(*deleted.expect("alone"), 0);
                db.step();
                assert_eq!(db.check_indexes().expect("they agree")[0].rows, 0);
            }
        }
    };
}

twins!(words, u8, key => |group, number| (group, number), [group, number], [group]);
twins!(pairs, u64, key => |group, number| (group, Reverse(number)), [group, desc(number)], [group]);

#[test]
fn random_programs_on_runs_agree_with_records() {
    let seed = seed("clusters");
    each(|setting| {
        words::program(setting, seed, tries(8, 40) as usize);
        pairs::program(setting, seed, tries(8, 40) as usize);
    });
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "item", key(order, number), cluster(order))]
struct Item {
    order: u32,
    number: u32,
    amount: u64,
    #[column(immutable)]
    label: Text<12>,
}

fn item(order: u32, number: u32) -> Item {
    Item { order, number, amount: u64::from(number), label: text("label") }
}

#[test]
fn rows_that_were_given_out_stay_as_they_were_read() {
    let seed = seed("rows of runs");
    each(|setting| {
        let db = setting.open();
        let items = db.create::<Item>().expect("a table");
        let (mut session, mut rng) = (db.session(), Rng::from_seed(seed));
        for _ in 0..60 {
            let done = session.transact(|tx| {
                let mut given: Vec<(ItemRow<'_>, Item)> = Vec::new();
                // Scans that have begun continue with the rows of their start.
                let mut scans = Vec::new();
                for _ in 0..30 {
                    let (order, number) = (rng.below(2) as u32, rng.below(14) as u32);
                    match rng.below(8) {
                        0 => given.extend(tx.get(&items, &(order, number))?.map(|row| (row, row.to_owned()))),
                        1 => scans.push(tx.prefix(&items, &order)),
                        2 | 3 if !scans.is_empty() => {
                            let at = rng.below(scans.len() as u64) as usize;
                            if let Some(row) = scans[at].next() {
                                let row = row?;
                                given.push((row, row.to_owned()));
                            }
                        }
                        4 => drop(tx.delete_if(&items, &(order, number))?),
                        5 => drop(tx.try_insert(&items, &item(order, number))?),
                        6 => tx.put(&items, &item(order, number))?,
                        _ => drop(tx.update_if(&items, &(order, number), |now| now.set_amount(now.amount() + 1000))?),
                    }
                    for (row, then) in &given {
                        assert_eq!(row.to_owned(), *then);
                    }
                }
                Ok(())
            });
            done.expect("alone");
        }
    });
}

#[test]
fn a_count_of_the_rows_of_a_prefix_conflicts_with_an_insertion() {
    for rows in [30, 0, 1].into_iter().take(tries(2, 3) as usize) {
        each(|setting| {
            let db = setting.open();
            let items = db.create::<Item>().expect("a table");
            let mut session = db.session();
            // Neighbours, so that the prefix is neither the first nor the last.
            for order in [0, 2] {
                session.transact(|tx| tx.insert(&items, &item(order, 1))).expect("alone");
            }
            session.transact(|tx| (0..rows).try_for_each(|at| tx.insert(&items, &item(1, 2 * at)))).expect("alone");
            // Each session inserts where the other saw nothing, unless its row exists already: the second session
            // then saw the first one's row.
            for numbers in [[1, 3], [91, 93], [0, 1]] {
                let (mut one, mut other) = (db.session(), db.session());
                let work = |tx: &Transaction<'_>, number: u32| -> Result<(usize, usize), Abort> {
                    let seen = tx.prefix(&items, &1).try_count()?;
                    let inserted = tx.try_insert(&items, &item(1, number))?;
                    Ok((seen, usize::from(inserted)))
                };
                let (first, second) = (one.begin().expect("a worker"), other.begin().expect("a worker"));
                let worked = [work(&first, numbers[0]), work(&second, numbers[1])];
                let ended = [first.commit().is_ok(), second.commit().is_ok()];
                if let ([Ok((saw, inserted)), Ok((other_saw, other_inserted))], [true, true]) = (&worked, ended) {
                    let has_order = *other_saw == saw + inserted || *saw == other_saw + other_inserted;
                    assert!(has_order, "{numbers:?}: both committed, {worked:?}");
                }
            }
            assert_eq!(db.check_structure(), Ok(()));
        });
    }
}

#[test]
fn a_lookup_that_misses_a_row_conflicts_with_its_insertion() {
    for rows in [30, 0, 1].into_iter().take(tries(2, 3) as usize) {
        each(|setting| {
            let db = setting.open();
            let items = db.create::<Item>().expect("a table");
            let mut session = db.session();
            session.transact(|tx| (0..rows).try_for_each(|at| tx.insert(&items, &item(1, 2 * at)))).expect("alone");
            for [missed, inserted] in [[1, 3], [91, 93], [21, 91]] {
                let (mut one, mut other) = (db.session(), db.session());
                let work = |tx: &Transaction<'_>, missed: u32, inserted: u32| -> Result<bool, Abort> {
                    let is_missing = tx.get(&items, &(1, missed))?.is_none();
                    tx.insert(&items, &item(1, inserted))?;
                    Ok(is_missing)
                };
                let (first, second) = (one.begin().expect("a worker"), other.begin().expect("a worker"));
                let worked = [work(&first, missed, inserted), work(&second, inserted, missed)];
                let ended = [first.commit().is_ok(), second.commit().is_ok()];
                let both = ended == [true, true] && worked.iter().all(|missing| matches!(missing, Ok(true)));
                assert!(!both, "each missed what the other inserted");
                let cleared = session.transact(|tx| {
                    let _ = tx.delete_if(&items, &(1, missed))?;
                    tx.delete_if(&items, &(1, inserted))
                });
                cleared.expect("alone");
            }
        });
    }
}

#[test]
fn a_table_that_cannot_be_clustered_is_refused() {
    let column = |name: &'static str, ty| ColumnDef::new(name, ty);
    let table = || {
        let table = TableDef::builder("line").column(column("a", ColumnType::U32)).column(column("b", ColumnType::U32));
        table.column(column("c", ColumnType::U8)).key(["a", "b"])
    };
    let text = ColumnType::Text { max: 9 };
    let cases = [
        (table().cluster(["a", "b"]), "is clustered by 2 of the 2 columns of its key; leave out at least the last one"),
        (table().cluster(["b"]), "is clustered by (b), which are not the first columns of its key"),
        (
            table().cluster(["a"]).hash(),
            "is clustered and hashed; a clustered table is ordered, so leave out one of them",
        ),
        (
            table().column(column("d", ColumnType::LongText)).cluster(["a"]),
            "is clustered, and column `d` has text or bytes of any length; give it a maximum, or leave out the \
             clustering",
        ),
        (
            table().column(column("d", text)).key(["a", "d"]).cluster(["a"]),
            "is clustered, and its key is not made of numbers of at most 16 bytes together; leave out the clustering",
        ),
    ];
    for (table, problem) in cases {
        let refused = table.finish().expect_err("it makes no sense").to_string();
        assert!(refused.ends_with(problem), "{refused}");
    }
    assert!(table().cluster(["a"]).finish().is_ok());
}

#[test]
fn a_table_that_is_kept_otherwise_is_converted_when_it_is_opened() {
    let db = Database::in_memory().expect("memory");
    let otherwise = |mut definition: TableDef| {
        definition.cluster = if definition.cluster == 0 { 1 } else { 0 };
        db.declare(definition).expect("a table");
    };
    otherwise(Item::definition());
    assert_eq!(db.table::<Item>().expect("it is converted").definition(), &Item::definition());

    /// Tables that another version of a program clustered differently.
    macro_rules! kept {
        ($row:ident, $name:literal $(, $cluster:ident($($of:tt)*))?) => {
            #[derive(Table, Clone, Debug, PartialEq)]
            #[table(name = $name, key(order, number) $(, $cluster($($of)*))?)]
            struct $row {
                order: u32,
                number: u32,
                amount: u64,
            }
        };
    }
    kept!(Clustered, "clustered", cluster(order));
    kept!(Single, "single");
    otherwise(Clustered::definition());
    otherwise(Single::definition());
    let (clustered, single) = (db.table::<Clustered>().expect("alike"), db.table::<Single>().expect("alike"));
    assert_eq!((clustered.definition().cluster, single.definition().cluster), (1, 0));
    let amounts = db.session().transact(|tx| {
        for number in 0..20 {
            tx.insert(&clustered, &Clustered { order: 1, number, amount: 2 })?;
            tx.insert(&single, &Single { order: 1, number, amount: 3 })?;
        }
        let clustered: u64 = tx.scan(&clustered, ..).map(|row| Ok(row?.amount())).sum::<Result<u64, Abort>>()?;
        Ok((clustered, tx.scan(&single, ..).map(|row| Ok(row?.amount())).sum::<Result<u64, Abort>>()?))
    });
    assert_eq!(*amounts.expect("alone"), (40, 60));
}

#[test]
fn run_time_tables_are_clustered_too() {
    each(|setting| {
        let db = setting.open();
        let mut definition = Item::definition();
        definition.name = "again".into();
        let items = db.declare(definition).expect("a table");
        let mut session = db.session();
        let row =
            |order: u32, number: u32| -> Vec<Value> { vec![order.into(), number.into(), 7u64.into(), "label".into()] };
        let key = |order: u32, number: u32| [order, number].map(Value::from);
        let done = session.transact(|tx| {
            for number in 0..20 {
                tx.insert_dyn(&items, &row(1, number * 7 % 20))?;
            }
            tx.update_dyn(&items, &key(1, 4), &[("amount", 8u64.into())])?;
            tx.delete_dyn(&items, &key(1, 5))?;
            let four = tx.get_dyn(&items, &key(1, 4))?.expect("it is there").get("amount");
            assert_eq!(four, Some(8u64.into()));
            tx.scan_dyn(&items, &key(1, 0)[..1])?
                .map(|row| Ok(row?.values()[1].clone()))
                .collect::<Result<Vec<_>, Abort>>()
        });
        let wanted: Vec<Value> = (0..20u32).filter(|number| *number != 5).map(Value::from).collect();
        assert_eq!(*done.expect("alone"), wanted);
    });
}
