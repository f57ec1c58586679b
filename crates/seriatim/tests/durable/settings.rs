//! Combined settings of a database on disk: several logs, directories that change, histories, inspection.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seriatim::catalog::{ColumnDef, ColumnType, TableDef};
use seriatim::{
    Abort, Database, Durability, SchemaError, Tx, available_protocols, backup, history, procedure, procedures,
};
use seriatim_base::disk::{Disk, FaultyDisk, Operation};

use crate::accounts::{Account, account, rows, small};

#[procedure]
fn deposit(tx: &Tx, id: u64, amount: i64) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(id, |account| {
        account.balance += amount;
        account.balance
    })?;
    Ok(balance)
}

fn names(disk: &FaultyDisk, directory: &str) -> Vec<String> {
    let found = disk.list(Path::new(directory)).unwrap_or_default();
    let names = found.into_iter().map(|found| found.name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("log-")).collect()
}

#[test]
fn log_directories_may_be_inside_and_outside_and_change() {
    for protocol in available_protocols() {
        let disk = FaultyDisk::new(41);
        let openings: [&[&str]; 5] =
            [&[], &["one", "/db/two", "/elsewhere/three"], &["/elsewhere/three"], &["/db"], &[]];
        let mut count = 0;
        for (at, directories) in openings.into_iter().enumerate() {
            let options = || small(protocol.name, &disk).log_directories(directories.iter().copied());
            // More loggers than workers, and fewer.
            let db = options().workers(2).open().expect("it opens");
            let accounts = match at {
                0 => db.create::<Account>().expect("the table is created"),
                _ => db.table::<Account>().expect("it is there"),
            };
            assert_eq!(rows(&db).len() as u64, count, "{}", protocol.name);
            let mut sessions: Vec<_> = (0..2).map(|_| db.session()).collect();
            for _ in 0..20 {
                let session = &mut sessions[count as usize % 2];
                session.transact(|tx| tx.insert(&accounts, &account(count))).expect("inserted");
                count += 1;
            }
            if at == 3 {
                db.checkpoint().expect("the disk works");
                // The files in the other directory are no longer needed.
                assert_eq!(names(&disk, "/elsewhere/three"), Vec::<String>::new(), "{}", protocol.name);
            }
            disk.crash();
        }
        let moved: Vec<PathBuf> = vec!["/db/one".into(), "/db/two".into()];
        assert!(moved.iter().all(|directory| disk.find(directory).is_ok_and(|found| found.is_some())));
        let db = small(protocol.name, &disk).open().expect("it opens");
        assert_eq!(rows(&db).len() as u64, count, "{}", protocol.name);
    }
}

#[test]
fn an_empty_path_is_refused_wherever_a_directory_is_named() {
    let disk = FaultyDisk::new(47);
    let db = small("auto", &disk).open().expect("a new database opens");
    let other = || Database::builder().workers(2).disk(Arc::new(disk.mount()));
    for (what, refused) in [
        ("path", other().path("").open().map(drop).map_err(|error| error.to_string())),
        ("inspect", other().inspect("").open().map(drop).map_err(|error| error.to_string())),
        ("log", small("auto", &disk).log_directories([""]).open().map(drop).map_err(|error| error.to_string())),
        ("backup", db.backup("").map(drop).map_err(|error| error.to_string())),
        ("take", backup::take("", "/copy", &|_, _| {}).map(drop).map_err(|error| error.to_string())),
        ("take to", backup::take("/db", "", &|_, _| {}).map(drop).map_err(|error| error.to_string())),
        ("restore", backup::restore("", "/copy", &|_, _| {}).map(drop).map_err(|error| error.to_string())),
        ("restore to", backup::restore("/db", "", &|_, _| {}).map(drop).map_err(|error| error.to_string())),
        ("verify", backup::verify("", &|_, _| {}).map(drop).map_err(|error| error.to_string())),
    ] {
        let error = refused.expect_err(what);
        assert!(error.contains("is empty"), "{what}: {error}");
    }
}

#[test]
fn a_missing_log_directory_is_reported() {
    let disk = FaultyDisk::new(42);
    let db = small("auto", &disk).log_directories(["/mounted"]).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    drop((accounts, db));
    disk.rename(Path::new("/mounted"), Path::new("/gone")).expect("it is there");
    for directory_is_there in [false, true] {
        if directory_is_there {
            disk.create_dir_all(Path::new("/mounted")).expect("nothing is in the way");
        }
        let error = small("auto", &disk).open().expect_err("the log is not there");
        let expected = "/mounted/log-00000001-000-00000001 is damaged at byte 0: it is missing, with everything \
                        that this logger has written; put the directory back, if its disk is not mounted, or restore a \
                        backup";
        assert_eq!(error.to_string(), expected);
    }
    disk.rename(Path::new("/gone"), Path::new("/mounted")).expect("it is there");
    assert_eq!(rows(&small("auto", &disk).open().expect("it is there again")).len(), 1);
}

#[test]
fn an_opening_may_be_cut_off_anywhere_again_and_again() {
    for cut in 1..200 {
        let disk = FaultyDisk::new(cut);
        for _ in 0..3 {
            disk.crash_at(cut % 70);
            drop(small("auto", &disk).log_directories(["one", "/two"]).open().map(|db| db.step()));
            disk.crash();
        }
        let db = small("auto", &disk).log_directories(["one", "/two"]).open().expect("it opens");
        drop(db.create::<Account>().expect("the table is created"));
        drop(db);
        assert_eq!(rows(&small("auto", &disk).open().expect("it opens")).len(), 0);
    }
}

#[test]
fn two_databases_in_one_log_directory_are_reported() {
    let disk = FaultyDisk::new(46);
    let on = |path: &str| Database::builder().workers(2).step_helpers(true).path(path).disk(Arc::new(disk.mount()));
    let first = on("/one").log_directories(["/log"]).open().expect("it opens");
    let error = on("/two").log_directories(["/log"]).open().expect_err("it is the other's");
    assert!(error.to_string().contains("the database in /log is open already"), "{error}");
    first.create::<Account>().expect("nothing of it was harmed");
    drop(first);
    // This holds even if their file names would differ.
    for _ in 0..3 {
        on("/two").open().expect("its own directory");
    }
    let error = on("/two").log_directories(["/log"]).open().expect_err("it is the other's");
    assert!(error.to_string().contains("is of another database; give each its own directories"), "{error}");
    on("/one").open().expect("nothing of it was harmed");
}

#[test]
fn an_inspection_changes_nothing_and_may_call_procedures() {
    for protocol in available_protocols() {
        let disk = FaultyDisk::new(43);
        let db = small(protocol.name, &disk).open().expect("it opens");
        let accounts = db.create::<Account>().expect("the table is created");
        db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
        drop((accounts, db));
        let operations = |disk: &FaultyDisk| {
            use seriatim_base::disk::Operation::{CreateDir, Remove, Rename, Resize, Sync, SyncDir, Write};
            [CreateDir, Remove, Rename, Resize, Sync, SyncDir, Write].map(|operation| disk.count(operation))
        };
        let before = operations(&disk);
        let builder = Database::builder().protocol(protocol.name).workers(2).step_helpers(true);
        let db = builder.inspect("/db").disk(Arc::new(disk.mount())).open().expect("it is read");
        db.register(procedures![deposit]).expect("a sound set");
        let mut session = db.session();
        assert!(session.submit_call(deposit, &(1, 5)).is_ready(), "nothing is waited for");
        assert_eq!(session.call(deposit, &(1, 5)).expect("it is there").value, 110);
        assert!(db.durable_epoch().is_none() && db.checkpoint().expect("nothing to do").is_none());
        db.flush().expect("nothing to do");
        drop((session, db));
        assert_eq!(operations(&disk), before, "{}", protocol.name);
        assert_eq!(rows(&small(protocol.name, &disk).open().expect("it opens"))[0].balance, 100);
    }
}

#[test]
fn histories_are_recorded_beside_the_log() {
    for protocol in available_protocols() {
        let disk = FaultyDisk::new(44);
        let db = small(protocol.name, &disk).record_history(true).open().expect("it opens");
        let accounts = db.create::<Account>().expect("the table is created");
        db.register(procedures![deposit]).expect("a sound set");
        let mut session = db.session();
        for id in 0..10 {
            session.transact(|tx| tx.insert(&accounts, &account(id))).expect("inserted");
            session.call(deposit, &(id, 5)).expect("it is there");
            session.transact(|tx| Ok(tx.get(&accounts, &id)?.is_some())).expect("a read");
        }
        let recorded = db.take_history().expect("it records");
        assert_eq!(recorded.transactions.len(), 30, "{}", protocol.name);
        history::check(&recorded, &history::Promises::default()).expect("serializable");
        let before = rows(&db);
        disk.crash();
        drop((session, accounts, db));
        assert_eq!(rows(&small(protocol.name, &disk).open().expect("it recovers")), before, "{}", protocol.name);
    }
}

#[test]
fn a_mode_may_change_from_one_opening_to_the_next() {
    let disk = FaultyDisk::new(45);
    for (at, mode) in
        [Durability::Async, Durability::Sync, Durability::Group, Durability::Async].into_iter().enumerate()
    {
        let db = small("auto", &disk).durability(mode).open().expect("it opens");
        let accounts = match at {
            0 => db.create::<Account>().expect("the table is created"),
            _ => db.table::<Account>().expect("it is there"),
        };
        db.session().transact(|tx| tx.insert(&accounts, &account(at as u64))).expect("inserted");
        // Closing flushes the log.
        drop((accounts, db));
    }
    assert_eq!(rows(&small("auto", &disk).open().expect("it opens")).len(), 4);
}

/// Files on disk do not depend on the partitions.
#[test]
fn partitions_may_be_others_each_time_and_none() {
    let disk = FaultyDisk::new(43);
    for (at, partitions) in [Some(4), Some(3), None, Some(64)].into_iter().enumerate() {
        let builder = small(if partitions.is_some() { "auto" } else { "silo" }, &disk);
        let builder = partitions.into_iter().fold(builder, |builder, partitions| builder.partitions(partitions));
        let db = builder.open().expect("it opens");
        assert_eq!(db.statistics().partitions, partitions.unwrap_or(0));
        let accounts = match at {
            0 => db.create::<Account>().expect("the table is created"),
            _ => db.table::<Account>().expect("it is there"),
        };
        db.register(procedures![deposit]).expect("a sound set");
        let mut session = db.session();
        if at == 0 {
            let insert = |tx: &Tx| (0..9).try_for_each(|id| tx.insert(&accounts, &account(id)));
            session.transact(insert).expect("inserted");
        }
        for id in 0..9 {
            let balance = session.call(deposit, &(id, 1)).expect("it is there").value;
            assert_eq!(balance, 101 + at as i64, "{partitions:?}");
        }
        drop((session, accounts));
        disk.crash();
    }
}

/// One manifest creates many tables; recovery finds all or none of them.
#[test]
fn many_tables_are_created_by_one_flush() {
    let table = |number: usize| {
        let builder = TableDef::builder(format!("table{number}")).column(ColumnDef::new("id", ColumnType::U64));
        builder.key(["id"]).finish().expect("a valid declaration")
    };
    let disk = FaultyDisk::new(41);
    let db = small("auto", &disk).segment_bytes(1 << 20).open().expect("a new database");
    let before = disk.count(Operation::Sync);
    let tables = db.declare_all((0..400).map(table).collect()).expect("so many are possible");
    let syncs = disk.count(Operation::Sync) - before;
    assert!(syncs <= 2, "{syncs}");
    assert!(tables.iter().enumerate().all(|(at, made)| *made.definition() == table(at)), "in the order of the list");

    let refused = |tables: Vec<usize>| db.declare_all(tables.into_iter().map(table).collect()).expect_err("refused");
    assert!(matches!(refused(vec![400, 7]), SchemaError::Exists(name) if name == "table7"));
    assert!(matches!(refused(vec![400, 401, 400]), SchemaError::Exists(name) if name == "table400"));
    assert!(matches!(refused((400..20_000).collect()), SchemaError::TooMany { most: 16_383 }));
    assert_eq!(disk.count(Operation::Sync) - before, syncs);
    assert_eq!(db.declare_all(Vec::new()).expect("nothing to do").len(), 0);
    drop((tables, db));
    let names = small("auto", &disk).open().expect("it opens").table_names();
    assert_eq!(names, (0..400).map(|number| format!("table{number}")).collect::<Vec<_>>());
}
