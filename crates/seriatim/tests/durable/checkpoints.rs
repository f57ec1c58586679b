//! Checkpoints that the database takes by itself, and what its statistics tell.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use seriatim::{Database, Durability, Handle, LogStatistics, protocols};
use seriatim_base::disk::{Disk, FaultyDisk, Operation, Times};

use crate::life::{Account, account, rows, small};

fn log(db: &Database) -> LogStatistics {
    db.statistics().log.expect("it is on disk")
}

fn write_some(db: &Database, accounts: &Handle<Account>, ids: std::ops::Range<u64>) {
    let mut session = db.session();
    for id in ids {
        // Unlike what was there: an equal row is no change.
        let balance = db.durable_epoch().expect("it is on disk").0 as i64;
        session.transact(|tx| tx.put(accounts, &Account { balance, ..account(id) })).expect("the disk works");
    }
}

fn segments(disk: &FaultyDisk) -> usize {
    let found = disk.list(Path::new("/db")).expect("a directory");
    found.iter().filter(|found| found.name.to_string_lossy().starts_with("log-")).count()
}

#[test]
fn a_checkpoint_is_taken_after_so_much_log_and_the_log_before_it_goes() {
    for protocol in protocols() {
        let disk = FaultyDisk::new(31);
        let options = || small(protocol.name, &disk).checkpoint_bytes(Some(300_000));
        let db = options().open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut taken = 0;
        for round in 0..40 {
            write_some(&db, &accounts, round..round + 10);
            db.step();
            let now = log(&db).checkpoints;
            assert!(now <= taken + 1, "{}", protocol.name);
            taken = now;
        }
        assert!(taken >= 3, "{}: {taken} of {} bytes", protocol.name, log(&db).bytes);
        assert_eq!((log(&db).checkpoints_failed, log(&db).checkpoint_error), (0, None));
        // 64 KiB each: what is left is what was written since the last began.
        assert!(segments(&disk) <= 8, "{}: {} segments", protocol.name, segments(&disk));
        let before = rows(&db);
        disk.crash();
        drop((accounts, db));
        let db = options().open().expect("it recovers");
        assert!(db.recovery().is_some_and(|recovery| recovery.checkpoint_rows > 0));
        assert_eq!(rows(&db), before, "{}", protocol.name);
    }
}

#[test]
fn the_log_that_recovery_read_counts() {
    let disk = FaultyDisk::new(32);
    let db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    write_some(&db, &accounts, 0..100);
    drop((accounts, db));
    let db = small("auto", &disk).checkpoint_bytes(Some(5_000)).open().expect("it recovers");
    db.step();
    assert_eq!(log(&db).checkpoints, 1);
    db.step();
    assert_eq!(log(&db).checkpoints, 1, "once");
}

#[test]
fn a_failed_checkpoint_is_told_and_tried_again_after_a_growing_pause() {
    let disk = FaultyDisk::new(33);
    let db =
        small("auto", &disk).checkpoint_bytes(Some(10_000)).durability(Durability::Async).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    write_some(&db, &accounts, 0..400);
    db.flush().expect("the disk works");
    let mut failures = Vec::new();
    for step in 0..100 {
        // A checkpoint is the only one that creates directories.
        disk.fail(Operation::CreateDir, 1, Times::Once, ErrorKind::PermissionDenied);
        db.step();
        disk.heal();
        write_some(&db, &accounts, 0..20);
        if log(&db).checkpoints_failed as usize > failures.len() {
            failures.push(step);
        }
    }
    assert!(failures.len() >= 3 && log(&db).checkpoints == 0, "{failures:?}");
    let pauses: Vec<i32> = failures.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] > 1 && pauses.is_sorted() && pauses[0] < pauses[1], "{pauses:?}");
    assert!(log(&db).checkpoint_error.is_some_and(|error| error.contains("checkpoint")));
    // One that is asked for does not wait.
    let checkpoint = db.checkpoint().expect("the disk works").expect("it is on disk");
    assert_eq!(checkpoint.rows, 400);
    assert_eq!((log(&db).checkpoints, log(&db).checkpoint_error), (1, None));
}

#[test]
fn a_helper_takes_checkpoints_and_closing_waits_for_it() {
    let disk = FaultyDisk::new(34);
    for round in 0..5u64 {
        let options = small("auto", &disk).step_helpers(false).epoch_interval(Duration::from_millis(1));
        // So slow that it is closed in the middle of one, if it began.
        let rate = (round % 2 == 1).then_some(100_000);
        let db = options.checkpoint_bytes(Some(1)).checkpoint_rate(rate).open().expect("it was closed");
        let accounts = match round {
            0 => db.create::<Account>().expect("the table is created"),
            _ => db.table::<Account>().expect("it is there"),
        };
        write_some(&db, &accounts, 0..(round + 1) * 100);
        if rate.is_none() {
            while log(&db).checkpoints == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop((accounts, db));
    }
    let db = small("auto", &disk).open().expect("it was closed");
    assert_eq!(rows(&db).len(), 500);
}

#[test]
fn the_statistics_of_a_stretch_are_those_since_its_beginning() {
    let disk = FaultyDisk::new(35);
    let db = small("auto", &disk).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    write_some(&db, &accounts, 0..10);
    let earlier = db.statistics();
    write_some(&db, &accounts, 10..30);
    let since = db.statistics().since(&earlier).log.expect("it is on disk");
    assert_eq!((since.commits, since.flushes, since.bytes), (20, 20, 20 * 4096));
    assert!(since.payload_bytes > 20 * 20 && since.payload_bytes < 20 * 100, "{since:?}");
    assert!(since.flush_time_max <= since.flush_time.max(log(&db).flush_time) && since.backlog_bytes == 0);
    assert_eq!(since.durable_epoch, db.durable_epoch().expect("it is on disk").0);
    assert_eq!(since.refusal, None);
}
