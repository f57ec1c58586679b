//! Disks that fail, fill up, or fall behind, under every protocol. Acknowledgement ends or pauses, and nothing
//! acknowledged is lost.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seriatim::catalog::{ColumnDef, ColumnType, TableDef};
use seriatim::{Builder, Database, Durability, Handle, SchemaError, Session, TransactError, available_protocols};
use seriatim_base::disk::{Disk, FaultyDisk, Operation, Times};

use crate::accounts::{Account, account, rows, small};

const MODES: [Durability; 3] = [Durability::Async, Durability::Group, Durability::Sync];

fn ids(db: &Database) -> Vec<u64> {
    rows(db).iter().map(|row| row.id).collect()
}

fn insert(session: &mut Session, accounts: &Handle<Account>, id: u64) -> Result<(), TransactError> {
    session.transact(|tx| tx.insert(accounts, &account(id))).map(drop)
}

/// Whether the account exists, by a transaction of each kind.
fn read(session: &mut Session, accounts: &Handle<Account>, id: u64) -> [Result<bool, TransactError>; 3] {
    let explicit = session.begin().and_then(|tx| {
        let found = tx.get(accounts, &id).map(|row| row.is_some());
        let found = found.map_err(|abort| tx.explain(&abort));
        tx.commit()?;
        found
    });
    [
        session.snapshot(|tx| Ok(tx.get(accounts, &id)?.is_some())).map(|found| found.value),
        session.transact(|tx| Ok(tx.get(accounts, &id)?.is_some())).map(|found| found.value),
        explicit,
    ]
}

/// Rows 0 to 4 are durable; row 5 is committed and not durable.
fn loaded(protocol: &str, mode: Durability, disk: &FaultyDisk) -> (Database, Handle<Account>, Session) {
    let db = small(protocol, disk).durability(mode).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    for id in 0..5 {
        insert(&mut session, &accounts, id).expect("inserted");
    }
    db.flush().expect("the disk works");
    (db, accounts, session)
}

#[test]
fn a_failed_flush_or_write_ends_acknowledgement_for_good() {
    for (protocol, mode) in available_protocols().iter().flat_map(|protocol| MODES.map(|mode| (protocol.name, mode))) {
        for (operation, kind) in [
            (Operation::Sync, ErrorKind::Other),
            (Operation::Write, ErrorKind::Other),
            (Operation::Sync, ErrorKind::StorageFull),
        ] {
            let case = format!("{protocol}, {mode}, {operation:?}, {kind:?}");
            let disk = FaultyDisk::new(11);
            let (db, accounts, mut session) = loaded(protocol, mode, &disk);
            let pending = session.submit(|tx| tx.insert(&accounts, &account(5)));
            let other = db.session().submit(|tx| tx.insert(&accounts, &account(6)));
            assert_eq!(pending.is_ready(), mode == Durability::Async, "{case}");
            // The fault occurs once: the sync must not be tried again, as it would succeed without the bytes.
            disk.fail(operation, 1, Times::Once, kind);
            db.step();
            if mode != Durability::Async {
                for pending in [pending, other] {
                    let error = pending.wait().expect_err("it may not be durable");
                    assert!(
                        matches!(error, TransactError::NotDurable { .. }) && error.is_maybe_committed(),
                        "{case}: {error}"
                    );
                }
            }
            db.step();
            let error = insert(&mut session, &accounts, 7).expect_err("the log has stopped");
            assert!(matches!(error, TransactError::LogStopped { .. }), "{case}: {error}");
            assert!(!error.is_maybe_committed() && !error.is_retryable(), "{case}");
            for found in read(&mut session, &accounts, 1) {
                assert!(found.expect("it was durable before"), "{case}");
            }
            for id in [5, 7] {
                for found in read(&mut session, &accounts, id) {
                    // A snapshot is older than the row; a transaction that sees the row is refused.
                    match found {
                        Ok(found) => assert!(!found, "{case}: row {id}"),
                        Err(error) => {
                            assert!(id == 5 && matches!(error, TransactError::NotDurable { .. }), "{case}: {error}")
                        }
                    }
                }
            }
            let duplicate = session.transact(|tx| tx.insert(&accounts, &account(5))).expect_err("it is there");
            assert!(
                matches!(duplicate, TransactError::NotDurable { .. }),
                "{case}: a duplicate tells of it: {duplicate}"
            );
            assert!(matches!(db.flush(), Err(TransactError::NotDurable { .. })), "{case}");
            assert!(db.checkpoint().is_err(), "{case}");
            let log = db.statistics().log.expect("it is on disk");
            assert!(log.refusal.is_some_and(|refusal| refusal.contains("the log has stopped")), "{case}");
            drop((session, accounts, db));
            // Rows found in the page cache are on disk before a caller sees them.
            let db = small(protocol, &disk).open().expect("it recovers");
            let found = ids(&db);
            assert!(found.starts_with(&[0, 1, 2, 3, 4]) && found.iter().all(|id| *id < 7), "{case}: {found:?}");
            disk.crash();
            drop(db);
            let db = small(protocol, &disk).open().expect("it recovers again");
            assert_eq!(ids(&db), found, "{case}");
        }
    }
}

#[test]
fn bytes_of_a_failed_flush_in_the_page_cache_are_durable_once_recovered() {
    let mut recovered = 0;
    for seed in 0..50 {
        let disk = FaultyDisk::new(seed);
        let (db, accounts, mut session) = loaded("auto", Durability::Group, &disk);
        for id in 5..30 {
            drop(session.submit(|tx| tx.insert(&accounts, &account(id))));
        }
        disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
        db.step();
        drop((session, accounts, db));
        let db = small("auto", &disk).open().expect("it recovers");
        let found = ids(&db);
        recovered += usize::from(found.len() == 30);
        disk.crash();
        drop(db);
        let db = small("auto", &disk).open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(ids(&db), found, "seed {seed}");
    }
    assert!(recovered > 0, "nothing was left in the page cache");
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    for (protocol, mode) in available_protocols().iter().flat_map(|protocol| MODES.map(|mode| (protocol.name, mode))) {
        let disk = FaultyDisk::new(12);
        let (db, accounts, mut session) = loaded(protocol, mode, &disk);
        disk.set_capacity(disk.used_bytes());
        // The existing segment has room for some more.
        let mut acknowledged = 5;
        let refused = loop {
            match insert(&mut session, &accounts, acknowledged) {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
            db.step();
            assert!(acknowledged < 10_000, "{protocol}, {mode}: the disk is full");
        };
        let maybe = refused.is_maybe_committed();
        assert_eq!(maybe, mode != Durability::Async, "{protocol}, {mode}: {refused}");
        let refused = insert(&mut session, &accounts, 20_000).expect_err("the disk is full");
        assert_eq!(
            refused.to_string(),
            "nothing was written: the disk of /db is full; make space, and writes continue"
        );
        assert!(matches!(refused, TransactError::DiskFull { .. }) && refused.is_retryable());
        for found in read(&mut session, &accounts, 1) {
            assert!(found.expect("it is durable"), "{protocol}, {mode}");
        }
        assert!(
            matches!(db.flush(), Err(TransactError::NotDurable { reason }) if reason.contains("is full")),
            "{protocol}"
        );
        let waiting = session.submit(|tx| Ok(tx.get(&accounts, &acknowledged)?.is_some()));
        assert_eq!(waiting.is_ready(), mode == Durability::Async, "{protocol}, {mode}");
        let waiting = waiting.wait_timeout(Duration::from_secs(3600));
        disk.set_capacity(u64::MAX);
        db.step();
        db.step();
        match waiting {
            Ok(answered) => assert_eq!(answered.expect("it was answered at once").value, mode != Durability::Async),
            // Under some protocols the snapshot does not show the row, under others it does.
            Err(waiting) => assert!(waiting.wait().expect("there is space").value, "{protocol}, {mode}"),
        }
        insert(&mut session, &accounts, 20_000).expect("there is space");
        db.flush().expect("there is space");
        let before = ids(&db);
        disk.crash();
        drop((session, accounts, db));
        let db = small(protocol, &disk).open().expect("it recovers");
        assert_eq!(ids(&db), before, "{protocol}, {mode}");
        assert_eq!(before.len() as u64, acknowledged + 1 + u64::from(maybe), "{protocol}, {mode}");
    }
}

#[test]
fn a_waiting_result_gets_through_when_there_is_space_again_with_threads_too() {
    let disk = FaultyDisk::new(13);
    let db =
        small("auto", &disk).step_helpers(false).epoch_interval(Duration::from_millis(1)).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    disk.set_capacity(disk.used_bytes());
    let mut outstanding = Vec::new();
    for id in 0.. {
        // The texts soon fill the segment.
        let pending = session.submit(|tx| tx.insert(&accounts, &Account { note: "x".repeat(5000), ..account(id) }));
        match pending.poll() {
            Ok(Err(TransactError::DiskFull { directory })) => {
                assert_eq!(directory.to_str(), Some("/db"));
                break;
            }
            // A logger that gets no processor is behind.
            Ok(Err(TransactError::DiskBehind { .. })) => std::thread::yield_now(),
            Ok(other) => drop(other.expect("there is no other fault")),
            Err(pending) => outstanding.push(pending),
        }
    }
    assert!(db.flush().is_err());
    disk.set_capacity(u64::MAX);
    assert!(!outstanding.is_empty());
    for pending in outstanding {
        pending.wait().expect("there is space again");
    }
    insert(&mut session, &accounts, 1_000_000).expect("there is space again");
}

#[test]
fn a_disk_that_is_behind_refuses_writes_until_it_has_caught_up() {
    let disk = FaultyDisk::new(14);
    let db = small("auto", &disk).durability(Durability::Async).log_backlog_bytes(10_000).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    let refused = (0..).find_map(|id| insert(&mut session, &accounts, id).err());
    let refused = refused.expect("nothing is flushed");
    assert!(matches!(refused, TransactError::DiskBehind { backlog_bytes } if backlog_bytes > 10_000), "{refused}");
    assert!(refused.is_retryable() && !refused.is_maybe_committed());
    assert!(db.statistics().log.is_some_and(|log| log.backlog_bytes > 10_000));
    db.step();
    insert(&mut session, &accounts, 1_000_000).expect("the disk has caught up");
}

#[test]
fn a_table_is_there_or_not_whatever_fails_while_it_is_created() {
    let kinds = [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
    for (operation, kind) in [Operation::Write, Operation::Sync].into_iter().flat_map(|of| kinds.map(|kind| (of, kind)))
    {
        for times in [Times::Once, Times::ForEver] {
            let case = format!("{operation:?}, {kind:?}, {times:?}");
            let disk = FaultyDisk::new(15);
            let db = small("auto", &disk).open().expect("a new database opens");
            disk.fail(operation, 1, times, kind);
            let created = db.create::<Account>();
            // A batch that found no space is written again.
            let is_final = operation == Operation::Sync || kind == ErrorKind::Other;
            assert_eq!(created.is_ok(), !is_final && times == Times::Once, "{case}");
            if created.is_err() {
                assert!(matches!(db.declare(other()), Err(SchemaError::Storage(_))), "{case}");
            }
            drop(created);
            disk.heal();
            assert_eq!(db.table_names().is_empty(), is_final, "{case}");
            if !is_final {
                db.step();
                insert(&mut db.session(), &db.table().expect("it is there"), 1).expect("all is well");
            }
            disk.crash();
            drop(db);
            let db = small("auto", &disk).open().expect("it recovers");
            match db.table::<Account>() {
                Ok(_) => assert_eq!(ids(&db), if is_final { vec![] } else { vec![1] }, "{case}"),
                Err(_) => assert!(is_final, "{case}"),
            }
            assert!(db.declare(other()).is_ok(), "{case}");
        }
    }
}

/// The declaration of another table.
fn other() -> TableDef {
    let column = ColumnDef::new("id", ColumnType::U32);
    TableDef::builder("other").column(column).key(["id"]).finish().expect("a valid table")
}

#[test]
fn a_power_cut_at_any_operation_leaves_a_table_or_none_and_rows_in_it_only() {
    for cut in 1.. {
        let disk = FaultyDisk::new(cut);
        let db = small("auto", &disk).open().expect("a new database opens");
        disk.crash_at(cut);
        let created = db.create::<Account>();
        let inserted = created.as_ref().is_ok_and(|accounts| insert(&mut db.session(), accounts, 1).is_ok());
        let is_over = disk.is_powered();
        if is_over {
            disk.power_off();
        }
        let was_created = created.is_ok();
        drop((created, db));
        disk.reboot();
        let db = small("auto", &disk).open().expect("it recovers");
        match db.table::<Account>() {
            Ok(_) => assert!(!inserted || ids(&db) == [1], "cut {cut}"),
            Err(error) => assert!(!was_created && matches!(error, SchemaError::Unknown(_)), "cut {cut}: {error}"),
        }
        if is_over {
            assert!(inserted, "nothing was in the way");
            return;
        }
    }
}

#[test]
fn a_failed_sync_of_a_table_ends_acknowledgement() {
    let disk = FaultyDisk::new(16);
    let (db, accounts, mut session) = loaded("auto", Durability::Group, &disk);
    let pending = session.submit(|tx| tx.insert(&accounts, &account(5)));
    disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
    assert!(matches!(db.declare(other()), Err(SchemaError::Storage(_))));
    assert!(matches!(pending.wait(), Err(TransactError::NotDurable { .. })));
    assert!(matches!(insert(&mut session, &accounts, 6), Err(TransactError::LogStopped { .. })));
}

/// The next segment of the log is being made, without its name yet, when a checkpoint's sync of their directory
/// fails.
#[test]
fn a_checkpoints_failed_sync_of_the_directory_takes_no_segment_of_the_log_with_it() {
    let mut stopped = 0;
    for seed in 0..6 {
        let disk = FaultyDisk::new(seed);
        let builder = small("auto", &disk).durability(Durability::Async).segment_bytes(4 << 20);
        let db = builder.open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        let mut insert = |id: u64| {
            let note = format!("{id}").repeat(5000);
            session.transact(|tx| tx.insert(&accounts, &Account { note: note.clone(), ..account(id) }))
        };
        // More than half of the first segment, in batches during each of which a part of the next segment is made.
        for id in 0..120 {
            insert(id).expect("inserted");
            db.flush().expect("the disk works");
        }
        // The first sync is that of the checkpoint's directory, the second that of the database's.
        disk.fail(Operation::SyncDir, 2, Times::Once, ErrorKind::Other);
        assert!(db.checkpoint().is_err(), "seed {seed}");
        let mut durable = 120;
        for id in 120..600 {
            if insert(id).is_err() || db.flush().is_err() {
                stopped += 1;
                break;
            }
            durable = id + 1;
        }
        disk.crash();
        drop((session, accounts, db));
        let db = small("auto", &disk).open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(ids(&db).len() as u64 >= durable, "seed {seed}: {} of {durable} are there", ids(&db).len());
    }
    assert_eq!(stopped, 6, "a sync that may lie was believed");
}

/// The sync of the first opening's manifest fails. The second opening reads that manifest, and its log survives a
/// power cut.
#[test]
fn an_opening_whose_syncs_failed_leaves_a_directory_that_opens() {
    for (failing, cut) in (1..=4).flat_map(|failing| (1..60).map(move |cut| (failing, cut))) {
        let disk = FaultyDisk::new(failing * 100 + cut);
        disk.fail(Operation::SyncDir, failing, Times::Once, ErrorKind::Other);
        drop(small("auto", &disk).open());
        disk.heal();
        disk.crash_at(cut);
        drop(small("auto", &disk).open());
        disk.crash();
        small("auto", &disk).open().unwrap_or_else(|error| panic!("sync {failing}, operation {cut}: {error}"));
    }
}

/// A small database in this directory of the simulated disk.
fn at(directory: &str, disk: &FaultyDisk) -> Builder {
    // A path is on the real disk until a disk is given.
    small("auto", disk).path(directory).disk(Arc::new(disk.mount()))
}

/// Killed processes leave directories whose names are not durable: the database's own, and those above it.
#[test]
fn no_directory_is_lost_whose_maker_was_killed_before_it_was_durable() {
    for (first, second) in (1..24).flat_map(|first| (1..8).map(move |second| (first, second))) {
        let disk = FaultyDisk::new(first * 100 + second);
        let open = || at("/above/next/db", &disk).log_directories(["/logs/db"]).open();
        for operation in [first, second] {
            disk.kill_at(operation);
            drop(open());
        }
        disk.kill_at(u64::MAX);
        let db = open().unwrap_or_else(|error| panic!("operations {first} and {second}: {error}"));
        let accounts = db.create::<Account>().expect("the table is created");
        insert(&mut db.session(), &accounts, 1).expect("inserted");
        disk.crash();
        drop((accounts, db));
        let db = open().unwrap_or_else(|error| panic!("operations {first} and {second}, then a cut: {error}"));
        assert_eq!(ids(&db), [1], "operations {first} and {second}");
    }
}

#[test]
fn a_directory_of_others_need_not_be_one_that_can_be_synced() {
    use ErrorKind::{InvalidInput, Other, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    for kind in [InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported, Other] {
        for (is_there, failing) in [(true, 1), (false, 1), (false, 2)] {
            let case = format!("{kind:?}, sync {failing}, {}", if is_there { "it is there" } else { "it is new" });
            let disk = FaultyDisk::new(17);
            let directory = if is_there { "/all/of/others/db" } else { "/all/of/others" };
            disk.create_dir_all(directory.as_ref()).expect("no faults yet");
            for above in ["/", "/all", "/all/of", "/all/of/others"] {
                disk.sync_dir(above.as_ref()).expect("no faults yet");
            }
            disk.fail(Operation::SyncDir, failing, Times::Once, kind);
            let opened = at("/all/of/others/db", &disk).open();
            // The first sync is of the parent of a directory that existed, the second of the parent of a new one.
            assert_eq!(opened.is_ok(), kind != Other && failing == 1, "{case}");
            if let Ok(db) = opened {
                drop(db.create::<Account>().expect("the table is created"));
                disk.crash();
                drop(db);
                let db = at("/all/of/others/db", &disk).open().expect("it recovers");
                assert!(ids(&db).is_empty(), "{case}");
            }
        }
    }
}

#[test]
fn opening_syncs_no_more_directories_where_there_are_more_above() {
    let syncs = |directory: &str| {
        let disk = FaultyDisk::new(18);
        let above = Path::new(directory).parent().expect("it is not the root");
        disk.create_dir_all(above).expect("no faults");
        drop(at(directory, &disk).open().expect("a new database opens"));
        disk.count(Operation::SyncDir)
    };
    assert_eq!(syncs("/one/db"), syncs("/one/two/three/four/five/db"));
}

#[test]
fn a_directory_that_goes_away_stops_the_log_when_it_is_needed() {
    let directory = std::env::temp_dir().join(format!("seriatim-gone-{}", std::process::id()));
    let builder = Database::builder().path(&directory).workers(2).segment_bytes(64 << 10).step_helpers(true);
    let db = builder.open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    insert(&mut session, &accounts, 0).expect("inserted");
    std::fs::remove_dir_all(&directory).expect("it is there");
    let stopped =
        (1..10_000).find_map(|id| insert(&mut session, &accounts, id).err()).expect("there is no next segment");
    assert!(stopped.to_string().contains("seriatim-gone"), "{stopped}");
    assert!(matches!(insert(&mut session, &accounts, 20_000), Err(TransactError::LogStopped { .. })));
    assert!(read(&mut session, &accounts, 0).into_iter().all(|found| found.is_ok_and(|found| found)));
}

#[test]
fn closing_while_the_disk_fails_or_is_full_does_not_hang() {
    for full in [false, true] {
        let disk = FaultyDisk::new(17);
        let db = small("auto", &disk).step_helpers(false).durability(Durability::Async).open().expect("it opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        if full {
            disk.set_capacity(disk.used_bytes());
        } else {
            disk.fail(Operation::Sync, 1, Times::ForEver, ErrorKind::Other);
        }
        for id in 0..100 {
            let _ = session.transact(|tx| tx.insert(&accounts, &Account { note: "x".repeat(5000), ..account(id) }));
        }
        drop((session, accounts, db));
        disk.heal();
        disk.set_capacity(u64::MAX);
        let db = Arc::new(small("auto", &disk).open().expect("it was closed"));
        let found = ids(&db);
        assert!(found.iter().copied().eq(0..found.len() as u64), "a prefix: {found:?}");
    }
}
