//! Tables whose declared clustering has changed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use seriatim::{Committed, Database, Durability, Handle, SchemaError, Table, Text, TransactError};
use seriatim_base::disk::{FaultyDisk, Operation, Times};

use crate::accounts::{Account, names, small};

macro_rules! line {
    ($line:ident $(, $cluster:ident($($of:tt)*))?) => {
        #[derive(Table, Clone, Debug, PartialEq)]
        #[table(name = "line", key(group, number) $(, $cluster($($of)*))?)]
        #[table(index(name = "by_tag", columns(tag), unique, hash), index(name = "by_color", columns(color)))]
        struct $line {
            group: u8,
            number: u16,
            tag: u32,
            color: u8,
            #[column(immutable)]
            label: Text<5>,
            amount: Option<i32>,
        }

        impl Lines for $line {
            fn new(group: u8, number: u16, amount: Option<i32>) -> $line {
                let label = Text::new("label").expect("it has room");
                $line { group, number, tag: tag(group, number), color: (number % 3) as u8, label, amount }
            }

            fn set_amount(row: &mut Self::Update<'_>, amount: Option<i32>) {
                row.set_amount(amount);
            }

            /// Reads the rows by a scan, and by both indexes.
            fn try_read(db: &Database, lines: &Handle<$line>) -> Result<Rows, TransactError> {
                let rows = db.session().snapshot(|tx| {
                    let mut rows = Rows::new();
                    for row in tx.scan(lines, ..) {
                        let row = row?;
                        assert_eq!(row.label(), "label");
                        rows.insert((row.group(), row.number()), row.amount());
                    }
                    for &(group, number) in rows.keys() {
                        let found = tx.get_by(&lines.index($line::BY_TAG), &tag(group, number))?;
                        assert!(found.is_some_and(|row| (row.group(), row.number()) == (group, number)));
                    }
                    let mut colored = 0;
                    for color in 0..3 {
                        colored += tx.find_by(&lines.index($line::BY_COLOR), &color).try_count()?;
                    }
                    assert_eq!(colored, rows.len());
                    Ok(rows)
                });
                rows.map(Committed::into_value)
            }
        }
    };
}

type Rows = BTreeMap<(u8, u16), Option<i32>>;

fn tag(group: u8, number: u16) -> u32 {
    u32::from(group) << 16 | u32::from(number)
}

/// Lines, clustered or not.
trait Lines: Table<Key = (u8, u16)> + Sized + 'static {
    fn new(group: u8, number: u16, amount: Option<i32>) -> Self;
    fn set_amount(row: &mut Self::Update<'_>, amount: Option<i32>);
    fn try_read(db: &Database, lines: &Handle<Self>) -> Result<Rows, TransactError>;
    fn read(db: &Database, lines: &Handle<Self>) -> Rows {
        Self::try_read(db, lines).expect("no conflict")
    }
}

line!(Loose);
line!(Clustered, cluster(group));

/// The number of key columns by which the lines are clustered.
fn cluster(db: &Database) -> usize {
    db.open_dyn("line").expect("it is there").definition().cluster
}

/// Inserts some lines, then changes and deletes some of all lines.
fn write<L: Lines>(db: &Database, lines: &Handle<L>, numbers: std::ops::Range<u16>, rows: &mut Rows) {
    let mut session = db.session();
    for number in numbers {
        let (group, amount) = ((number % 3) as u8, Some(i32::from(number)).filter(|amount| amount % 4 > 0));
        rows.insert((group, number), amount);
        let changed = *rows.keys().nth(usize::from(number) % rows.len()).expect("there are some");
        rows.insert(changed, Some(-1));
        let deleted = rows.keys().next_back().copied().filter(|key| number % 5 == 4 && *key != changed);
        if let Some(key) = deleted {
            rows.remove(&key);
        }
        let done = session.transact(|tx| {
            tx.insert(lines, &L::new(group, number, amount))?;
            tx.update(lines, &changed, |row| L::set_amount(row, Some(-1)))?;
            if let Some(key) = deleted {
                tx.delete(lines, &key)?;
            }
            Ok(())
        });
        done.expect("no conflict");
    }
}

/// Opens the lines as `L` declares them, which converts them, and uses them.
fn reopen<L: Lines>(protocol: &str, disk: &FaultyDisk, numbers: std::ops::Range<u16>, rows: &mut Rows) {
    let wanted = L::definition().cluster;
    let db = small(protocol, disk).open().expect("it recovers");
    assert_ne!(cluster(&db), wanted);
    let lines = db.table::<L>().expect("it is converted");
    assert_eq!(cluster(&db), wanted);
    assert_eq!(L::read(&db, &lines), *rows, "{protocol}");
    assert_eq!(db.table_names(), ["line", "account"]);
    let kept = db.statistics().tables.iter().map(|table| table.rows).collect::<Vec<_>>();
    assert_eq!(kept, [rows.len() as u64, 0], "{protocol}");
    // The conversion is durable.
    disk.crash();
    drop((lines, db));
    let db = small(protocol, disk).open().expect("it recovers");
    assert_eq!(cluster(&db), wanted, "it was not declared again");
    let lines = db.table::<L>().expect("it is there");
    assert_eq!(L::read(&db, &lines), *rows, "{protocol}");
    write(&db, &lines, numbers, rows);
    assert_eq!(L::read(&db, &lines), *rows, "{protocol}");
    assert_eq!(db.check_indexes().expect("they agree")[0].rows, rows.len() as u64);
    assert_eq!(db.check_structure(), Ok(()));
}

#[test]
fn a_table_that_is_declared_otherwise_is_converted_either_way() {
    for (protocol, checkpointed) in names().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let (disk, mut rows) = (FaultyDisk::new(41), Rows::new());
        let checkpoint = || {
            let db = small(protocol, &disk).open().expect("it recovers");
            if checkpointed {
                db.checkpoint().expect("the disk works");
            }
        };
        let db = small(protocol, &disk).open().expect("a new database opens");
        let lines = db.create::<Loose>().expect("the table is created");
        db.create::<Account>().expect("the table is created");
        write(&db, &lines, 0..90, &mut rows);
        drop((lines, db));
        checkpoint();
        reopen::<Clustered>(protocol, &disk, 90..150, &mut rows);
        checkpoint();
        reopen::<Loose>(protocol, &disk, 150..170, &mut rows);
        checkpoint();
        reopen::<Clustered>(protocol, &disk, 170..180, &mut rows);
    }
}

#[test]
fn a_table_is_converted_beside_helper_threads() {
    let (disk, mut rows) = (FaultyDisk::new(44), Rows::new());
    let open = || small("auto", &disk).step_helpers(false).epoch_interval(Duration::from_millis(1)).open();
    let db = open().expect("a new database opens");
    let lines = db.create::<Loose>().expect("the table is created");
    write(&db, &lines, 0..60, &mut rows);
    drop((lines, db));
    let db = open().expect("it recovers");
    let lines = db.table::<Clustered>().expect("it is converted");
    assert_eq!((Clustered::read(&db, &lines), cluster(&db)), (rows.clone(), 1));
    write(&db, &lines, 60..70, &mut rows);
    db.close().expect("the disk works");
    drop(lines);
    let db = open().expect("it recovers");
    let lines = db.table::<Clustered>().expect("it is there");
    assert_eq!((Clustered::read(&db, &lines), cluster(&db)), (rows, 1));
}

#[test]
fn a_table_in_use_stays_as_it_is() {
    let (disk, mut rows) = (FaultyDisk::new(42), Rows::new());
    let db = small("auto", &disk).open().expect("a new database opens");
    let lines = db.create::<Loose>().expect("the table is created");
    write(&db, &lines, 0..20, &mut rows);
    // Its immutable column has another place, so it cannot be used without a conversion.
    let refused = || {
        let refused = db.table::<Clustered>().expect_err("it is in use");
        assert_eq!(cluster(&db), 0);
        refused
    };
    assert!(matches!(refused(), SchemaError::Mismatch { .. }));
    let mut session = db.session();
    let open = session.begin().expect("a worker is free");
    open.delete(&lines, &(0, 0)).expect("no conflict");
    drop(lines);
    assert!(matches!(refused(), SchemaError::Busy));
    open.commit().expect("no conflict");
    rows.remove(&(0, 0));
    let lines = db.table::<Clustered>().expect("it is converted");
    assert_eq!(Clustered::read(&db, &lines), rows);
    let other = Database::in_memory().expect("memory");
    drop(other.create::<Loose>().expect("the table is created"));
    drop(other.table::<Clustered>().expect("in memory it is converted too"));
    assert_eq!(cluster(&other), 1);
}

#[test]
#[ignore = "nightly: ten seconds"]
fn a_conversion_for_which_there_is_no_memory_leaves_the_table_as_it_was() {
    for protocol in names() {
        let (disk, mut rows) = (FaultyDisk::new(45), Rows::new());
        let db = small(protocol, &disk).durability(Durability::Async).open().expect("a new database opens");
        let lines = db.create::<Clustered>().expect("the table is created");
        write(&db, &lines, 0..4_000, &mut rows);
        db.close().expect("the disk works");
        drop(lines);
        let db = small(protocol, &disk).open().expect("it recovers");
        let live = db.statistics().memory_bytes;
        drop(db);
        // Room for the rows, and for a second copy of some of them.
        let db = small(protocol, &disk).memory_limit(live + (1 << 19)).open().expect("it recovers");
        for _ in 0..2 {
            let refused = db.table::<Loose>().expect_err("there is no memory for it");
            assert!(matches!(refused, SchemaError::OutOfMemory { .. }), "{protocol}: {refused}");
            assert_eq!(cluster(&db), 1, "{protocol}");
            // The memory of the copies is reclaimed.
            (0..20).for_each(|_| db.step());
            assert!(
                db.statistics().memory_bytes < live + (1 << 18),
                "{protocol}: {} {live}",
                db.statistics().memory_bytes
            );
        }
        let lines = db.table::<Clustered>().expect("it is there");
        assert_eq!(Clustered::read(&db, &lines), rows, "{protocol}");
        drop((lines, db));
        let db = small(protocol, &disk).open().expect("it recovers");
        let lines = db.table::<Loose>().expect("it is converted");
        assert_eq!((Loose::read(&db, &lines), cluster(&db)), (rows, 0), "{protocol}");
    }
}

/// Cuts the power at every other operation of an opening and a conversion, from `first` on. All rows are there, in
/// one form or the other, and a converted table stays converted.
fn cut<A: Lines, B: Lines>(first: u64) {
    let (disk, mut rows) = (FaultyDisk::new(43), Rows::new());
    let db = small("auto", &disk).open().expect("a new database opens");
    let lines = db.create::<A>().expect("the table is created");
    write(&db, &lines, 0..30, &mut rows);
    db.close().expect("the disk works");
    drop(lines);
    let (mut as_before, mut converted) = (0, 0);
    for n in (first..).step_by(2) {
        let disk = disk.fork(n);
        disk.crash_at(n);
        let is_done = match small("auto", &disk).open() {
            Ok(db) => db.table::<B>().is_ok(),
            Err(_) => false,
        };
        let is_cut = !disk.is_powered();
        disk.crash();
        let db = small("auto", &disk).open().unwrap_or_else(|error| panic!("cut {n}: {error}"));
        let is_converted = cluster(&db) == B::definition().cluster;
        assert!(is_converted || !is_done, "cut {n}");
        let found = match is_converted {
            true => B::read(&db, &db.table().expect("it is there")),
            false => A::read(&db, &db.table().expect("it is there")),
        };
        assert_eq!(found, rows, "cut {n}");
        let lines = db.table::<B>().expect("it is converted now");
        assert_eq!((B::read(&db, &lines), cluster(&db)), (rows.clone(), B::definition().cluster), "cut {n}");
        assert_eq!(db.check_indexes().expect("they agree").len(), 1, "cut {n}");
        *if is_converted { &mut converted } else { &mut as_before } += 1;
        if !is_cut {
            break;
        }
    }
    // This includes cuts after rows of the new table were logged, before it replaced the old one.
    assert!(as_before > 10 && converted > 1, "{as_before}, {converted}");
}

#[test]
fn a_power_cut_during_a_conversion_leaves_either_with_all_rows() {
    cut::<Loose, Clustered>(1);
    cut::<Clustered, Loose>(2);
}

#[test]
fn a_disk_that_fails_or_fills_up_during_a_conversion_leaves_all_rows_to_readers() {
    for (protocol, fills_up) in names().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let (disk, mut rows) = (FaultyDisk::new(46), Rows::new());
        let db = small(protocol, &disk).open().expect("a new database opens");
        let lines = db.create::<Loose>().expect("the table is created");
        write(&db, &lines, 0..40, &mut rows);
        db.close().expect("the disk works");
        drop(lines);
        let (mut refused, mut read) = (0, 0);
        for n in 1.. {
            let disk = disk.fork(n);
            let db = small(protocol, &disk).open().expect("it recovers");
            match fills_up {
                // The segment has room for some pages.
                true => disk.fail(Operation::Write, n, Times::ForEver, ErrorKind::StorageFull),
                false => disk.fail(Operation::Sync, n, Times::Once, ErrorKind::Other),
            }
            if db.table::<Clustered>().is_ok() {
                break;
            }
            refused += 1;
            // A protocol without snapshots of the durable epoch may refuse readers.
            let found = match cluster(&db) {
                0 => Loose::try_read(&db, &db.table().expect("it is there")),
                _ => Clustered::try_read(&db, &db.table().expect("it is there")),
            };
            if let Ok(found) = found {
                assert_eq!(found, rows, "{protocol}, operation {n}");
                read += 1;
            }
            disk.heal();
            let mut rows = rows.clone();
            if fills_up {
                // There is space again: what is written then is written into the table that counts.
                (0..4).for_each(|_| db.step());
                match cluster(&db) {
                    0 => write::<Loose>(&db, &db.table().expect("it is there"), 40..50, &mut rows),
                    _ => write::<Clustered>(&db, &db.table().expect("it is there"), 40..50, &mut rows),
                }
            }
            disk.crash();
            drop(db);
            let db = small(protocol, &disk).open().expect("it recovers");
            let lines = db.table::<Clustered>().expect("it is converted");
            assert_eq!(Clustered::read(&db, &lines), rows, "{protocol}, operation {n}");
        }
        assert!(refused > 1 && read > 1, "{protocol}: {refused}, {read}");
    }
}
