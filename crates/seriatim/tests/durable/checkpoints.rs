//! Checkpoints that the database takes by itself, and their statistics.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use seriatim::catalog::TableDef;
use seriatim::rng::tries;
use seriatim::{Database, Durability, Handle, LogStatistics, OpenError, StorageError, Table, backup};
use seriatim_base::Rng;
use seriatim_base::disk::{Disk, FaultyDisk, Opening, Operation, Times};

use crate::accounts::{Account, account, names, rows, small};

fn log(db: &Database) -> LogStatistics {
    db.statistics().log.expect("it is on disk")
}

fn write_some(db: &Database, accounts: &Handle<Account>, ids: std::ops::Range<u64>) {
    let mut session = db.session();
    for id in ids {
        // The balance differs each time: an equal row is no change.
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
    for protocol in names() {
        let disk = FaultyDisk::new(31);
        let options = || small(protocol, &disk).checkpoint_bytes(Some(300_000));
        let db = options().open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut taken = 0;
        for round in 0..40 {
            write_some(&db, &accounts, round..round + 10);
            db.step();
            let now = log(&db).checkpoints;
            assert!(now <= taken + 1, "{protocol}");
            taken = now;
        }
        assert!(taken >= 3, "{}: {taken} of {} bytes", protocol, log(&db).bytes);
        assert_eq!((log(&db).checkpoints_failed, log(&db).checkpoint_error), (0, None));
        // 64 KiB each: only segments since the beginning of the last checkpoint remain.
        assert!(segments(&disk) <= 8, "{}: {} segments", protocol, segments(&disk));
        let before = rows(&db);
        disk.crash();
        drop((accounts, db));
        let db = options().open().expect("it recovers");
        assert!(db.recovery().is_some_and(|recovery| recovery.checkpoint_rows > 0));
        assert_eq!(rows(&db), before, "{protocol}");
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
fn a_failed_checkpoint_is_reported_and_tried_again_after_a_growing_pause() {
    let disk = FaultyDisk::new(33);
    let db =
        small("auto", &disk).checkpoint_bytes(Some(10_000)).durability(Durability::Async).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    write_some(&db, &accounts, 0..400);
    db.flush().expect("the disk works");
    let mut failures = Vec::new();
    for step in 0..100 {
        // Only checkpoints create directories.
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
    // A requested checkpoint does not wait.
    let checkpoint = db.checkpoint().expect("the disk works").expect("it is on disk");
    assert_eq!(checkpoint.rows, 400);
    assert_eq!((log(&db).checkpoints, log(&db).checkpoint_error), (1, None));
}

#[test]
fn a_helper_takes_checkpoints_and_closing_waits_for_it() {
    let disk = FaultyDisk::new(34);
    for round in 0..5u64 {
        let options = small("auto", &disk).step_helpers(false).epoch_interval(Duration::from_millis(1));
        // A rate so low that the database is closed in the middle of a checkpoint, if one began.
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

/// The directories with names of checkpoints, and the bytes in each.
fn checkpoints(disk: &FaultyDisk) -> Vec<(PathBuf, u64)> {
    let found = disk.list(Path::new("/db")).expect("a directory");
    let found = found.into_iter().filter(|found| found.name.to_string_lossy().starts_with("checkpoint-"));
    let bytes = |path: &Path| disk.list(path).expect("a directory").iter().map(|part| part.bytes).sum();
    found.map(|found| Path::new("/db").join(found.name)).map(|path| (path.clone(), bytes(&path))).collect()
}

#[test]
fn checkpoints_that_were_cut_off_do_not_fill_the_disk() {
    let seed = 36;
    let mut rng = Rng::from_seed(seed);
    let disk = FaultyDisk::new(seed);
    let mut db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    for id in 0..300 {
        // Text that does not compress.
        let note: String = (0..10_000).map(|_| rng.range(0x20, 0x7e) as u8 as char).collect();
        let wide = Account { note, ..account(id) };
        session.transact(|tx| tx.insert(&accounts, &wide)).expect("inserted");
    }
    drop((session, accounts));
    let bytes = db.checkpoint().expect("the disk works").expect("it is on disk").bytes;
    // Room for another checkpoint and some log.
    let capacity = disk.used_bytes() + bytes + (1 << 20);
    disk.set_capacity(capacity);
    let before = disk.operations();
    db.checkpoint().expect("there is space");
    let operations = disk.operations() - before;
    for round in 0..5 {
        disk.kill_at(operations / 2 + round % 3);
        db.checkpoint().expect_err("it was killed");
        disk.kill();
        drop(db);
        let left = checkpoints(&disk).into_iter().find(|(path, _)| path.extension().is_some());
        assert!(left.is_some_and(|(_, left)| left > bytes / 4), "round {round}: it was killed in the middle");
        // Other files take the rest of the disk.
        disk.set_capacity(disk.used_bytes());
        db = small("auto", &disk).open().expect("what it left is space enough");
        assert_eq!(checkpoints(&disk).len(), 1, "round {round}: the one that counts");
        disk.set_capacity(capacity);
    }
    db.checkpoint().expect("there is space");
    assert_eq!(rows(&db).len(), 300);
}

#[test]
fn opening_deletes_checkpoints_that_do_not_count_wherever_one_was_cut_off() {
    let mut left = [0, 0];
    for (cut, killed) in (1..).flat_map(|cut| [(cut, false), (cut, true)]) {
        let disk = FaultyDisk::new(cut);
        let db = small("auto", &disk).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        write_some(&db, &accounts, 0..20);
        db.checkpoint().expect("the disk works");
        write_some(&db, &accounts, 20..40);
        match killed {
            true => disk.kill_at(cut),
            false => disk.crash_at(cut),
        }
        let is_over = db.checkpoint().is_ok();
        disk.kill();
        drop((accounts, db));
        if !killed {
            disk.crash();
        }
        for (path, _) in checkpoints(&disk) {
            left[usize::from(path.extension().is_some())] += 1;
        }
        let db = small("auto", &disk).open().unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        assert_eq!(checkpoints(&disk).len(), 1, "cut {cut}");
        assert_eq!(rows(&db).len(), 40, "cut {cut}");
        if is_over {
            break;
        }
    }
    assert!(left[1] > 5, "some were unfinished: {left:?}");
}

#[test]
fn a_checkpoint_that_the_manifest_never_names_is_deleted() {
    for (operation, number, kind) in [
        // The syncs of the names of the parts, then of the checkpoint's name.
        (Operation::SyncDir, 1, ErrorKind::Other),
        (Operation::SyncDir, 2, ErrorKind::Other),
        (Operation::Rename, 1, ErrorKind::Other),
        // The rename of the manifest.
        (Operation::Rename, 2, ErrorKind::StorageFull),
    ] {
        let case = format!("{operation:?} {number}");
        let disk = FaultyDisk::new(37);
        // The log makes no segment meanwhile.
        let db = small("auto", &disk).segment_bytes(1 << 20).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        write_some(&db, &accounts, 0..5);
        // If space is short, it is tried once more with the reserve.
        let times = if kind == ErrorKind::StorageFull { Times::ForEver } else { Times::Once };
        disk.fail(operation, number, times, kind);
        db.checkpoint().expect_err("it failed");
        disk.heal();
        assert_eq!(checkpoints(&disk), [], "{case}");
        // After a failed sync of names, they are not synced again, so later checkpoints fail too.
        let fails = (operation, number) == (Operation::SyncDir, 2);
        for _ in 0..3 {
            let written = disk.count(Operation::Write);
            assert_eq!(db.checkpoint().is_err(), fails, "{case}");
            assert_eq!(disk.count(Operation::Write) == written, fails, "{case}: it would be written in vain");
            assert_eq!(checkpoints(&disk).len(), usize::from(!fails), "{case}");
        }
        assert_eq!(rows(&db).len(), 5);
    }
}

/// Either the new manifest is in place or the old one.
#[test]
fn both_checkpoints_stay_while_it_is_not_known_which_of_them_counts() {
    let mut counted = [0, 0];
    for seed in 0..20 {
        let disk = FaultyDisk::new(seed);
        let db = small("auto", &disk).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        write_some(&db, &accounts, 0..5);
        db.checkpoint().expect("the disk works");
        write_some(&db, &accounts, 5..10);
        disk.fail(Operation::SyncDir, 3, Times::Once, ErrorKind::Other);
        for _ in 0..2 {
            db.checkpoint().expect_err("it may not be durable");
            assert_eq!(checkpoints(&disk).len(), 2, "seed {seed}");
        }
        disk.crash();
        drop((accounts, db));
        let db = small("auto", &disk).open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(rows(&db).len(), 10, "seed {seed}");
        assert_eq!(checkpoints(&disk).len(), 1, "seed {seed}");
        let newer = db.recovery().is_some_and(|recovery| recovery.checkpoint_rows == 10);
        counted[usize::from(newer)] += 1;
    }
    assert!(counted.iter().all(|count| *count > 0), "{counted:?}");
}

#[test]
fn a_file_that_cannot_be_deleted_fails_no_checkpoint_and_keeps_no_other_file() {
    let disk = FaultyDisk::new(38);
    let db = small("auto", &disk).log_directories(["/old"]).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    write_some(&db, &accounts, 0..100);
    drop((accounts, db));
    let old = |disk: &FaultyDisk| disk.list(Path::new("/old")).expect("a directory").len();
    let db = small("auto", &disk).checkpoint_bytes(Some(1_000_000)).open().expect("it recovers");
    let accounts = db.table::<Account>().expect("it is there");
    for round in 0..2 {
        write_some(&db, &accounts, 0..100);
        let (there, now) = (old(&disk), segments(&disk));
        // The disk of the old log can no longer be written. In the second round its files are gone without an error.
        match round {
            0 => disk.fail(Operation::Remove, 1, Times::Once, ErrorKind::ReadOnlyFilesystem),
            _ => disk.fail(Operation::Remove, 2, Times::Once, ErrorKind::NotFound),
        }
        let checkpoint = db.checkpoint().expect("it is durable").expect("it is on disk");
        assert_eq!(checkpoint.rows, 100);
        let told = log(&db);
        assert_eq!((told.checkpoints, told.checkpoints_failed, told.checkpoint_error), (round + 1, 0, None));
        assert!(segments(&disk) < now && segments(&disk) <= 2, "the log before it is gone: {}", segments(&disk));
        if round == 0 {
            assert_eq!(old(&disk), there);
            assert!(told.deletion_error.is_some_and(|error| error.contains("/old/log-")));
            assert!(
                (0..5).all(|_| {
                    db.step();
                    log(&db).checkpoints == 1
                }),
                "none is due"
            );
        } else {
            assert_eq!(told.deletion_error, None);
        }
    }
    disk.heal();
    let before = rows(&db);
    disk.crash();
    drop((accounts, db));
    assert_eq!(rows(&small("auto", &disk).open().expect("it recovers")), before);
}

#[test]
fn a_database_that_opened_takes_checkpoints_whichever_sync_failed_meanwhile() {
    for failing in 1..20 {
        let disk = FaultyDisk::new(44);
        // An opening deletes the files that a killed process left.
        for _ in 0..2 {
            let db = small("auto", &disk).open().expect("the disk works");
            db.create_or_open::<Account>().expect("the disk works");
            disk.kill();
            drop(db);
        }
        disk.fail(Operation::SyncDir, failing, Times::Once, ErrorKind::Other);
        let opened = small("auto", &disk).open();
        disk.heal();
        let db = opened.or_else(|_| small("auto", &disk).open()).expect("the disk works");
        db.checkpoint().unwrap_or_else(|error| panic!("sync {failing} of an opening failed, and now: {error}"));
    }
}

#[test]
fn only_files_named_exactly_as_a_checkpoint_are_deleted() {
    let disk = FaultyDisk::new(39);
    let options = || small("auto", &disk).log_directories(["checkpoint-log"]);
    let db = options().open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    write_some(&db, &accounts, 0..20);
    let error = db.backup("/other/checkpoint-0000000042").expect_err("it would be deleted");
    assert!(error.to_string().contains("keeps its own checkpoints in directories of such a name"), "{error}");
    let error = db.backup("/db/checkpoint-monday").expect_err("it is inside");
    assert!(error.to_string().contains("in the database's own directory"), "{error}");
    disk.create_dir_all(Path::new("/db/checkpoint-monday")).expect("a name is free");
    db.backup("/other/checkpoint-monday").expect("the disk works");
    for _ in 0..2 {
        db.checkpoint().expect("the disk works");
        write_some(&db, &accounts, 0..20);
    }
    let before = rows(&db);
    drop((accounts, db));
    assert_eq!(rows(&options().open().expect("its log is there")), before);
    assert!(disk.find(Path::new("/db/checkpoint-monday")).expect("no faults").is_some());
    let backup = Database::builder().workers(2).step_helpers(true).path("/other/checkpoint-monday");
    let backup = backup.disk(std::sync::Arc::new(disk.mount())).open().expect("the backup is there");
    assert_eq!(rows(&backup).len(), 20);
    for refused in ["checkpoint-0000000007", "/db/checkpoint-0000000007-2.new/log", "one/../checkpoint-0000000007"] {
        let error = small("auto", &disk).log_directories([refused]).open().expect_err("it would be deleted");
        assert!(matches!(&error, OpenError::Invalid(what) if what.contains(refused)), "{error}");
    }
    small("auto", &disk).log_directories(["/elsewhere/checkpoint-0000000007"]).open().expect("it is elsewhere");
}

/// Has other threads end when the test does, or fails.
struct Ends<'f>(&'f AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A checkpoint makes room on a full disk, also where no more is set aside than an opening needs.
#[test]
fn a_checkpoint_finds_room_on_a_full_disk_in_what_is_left_of_the_reserve() {
    let disk = FaultyDisk::new(45);
    let db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    // One row again and again: the log is much larger than a checkpoint.
    for balance in 0..300 {
        let put = db.session().transact(|tx| tx.put(&accounts, &Account { balance, ..account(1) }));
        put.expect("the disk works");
    }
    // As after some openings on the full disk, each of which ended with a power cut.
    let reserve = || disk.find(Path::new("/db/RESERVE")).expect("no faults").map_or(0, |found| found.bytes);
    let left = reserve() / 8;
    disk.open(Path::new("/db/RESERVE"), Opening::Write).and_then(|file| file.set_bytes(left)).expect("it is there");
    disk.set_capacity(disk.used_bytes());
    db.checkpoint().expect("what is left of the reserve is room for it");
    assert!(reserve() >= left && left > 0, "there is room again");
    assert_eq!(rows(&db).len(), 1);
}

#[test]
fn a_backup_gets_through_beside_checkpoints_and_new_tables() {
    let disk = FaultyDisk::new(44);
    let db = small("auto", &disk).workers(8).step_helpers(false).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let is_done = AtomicBool::new(false);
    // The commits that were acknowledged by then.
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.checkpoint().expect("the disk works");
            }
        });
        scope.spawn(|| {
            for number in (0..1000).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                let name = format!("table{number}");
                db.declare(TableDef { name: name.into(), ..Account::definition() }).expect("the disk works");
            }
        });
        scope.spawn(|| {
            for id in (0..).take_while(|_| !is_done.load(Ordering::Relaxed)) {
                db.session().transact(|tx| tx.insert(&accounts, &account(id))).expect("the disk works");
                acknowledged.store(id + 1, Ordering::Release);
            }
        });
        for at in 0..tries(3, 6) {
            let (before, to) = (acknowledged.load(Ordering::Acquire), format!("/copy{at}"));
            let copied = db.backup(&to).unwrap_or_else(|error| panic!("{error}")).expect("it is on disk");
            assert_eq!(copied.attempts, 1);
            let copy = small("auto", &disk).path(&to).disk(Arc::new(disk.mount())).open().expect("it is a database");
            let found = rows(&copy);
            assert!(found.len() as u64 >= before, "what was acknowledged is in it");
            assert!(found.iter().zip(0..).all(|(row, id)| *row == account(id)), "and what came first of the rest");
        }
    });
}

/// A directory that a process has open changes while it is read. It is not damaged.
#[test]
fn a_restore_from_a_directory_that_is_open_says_busy_and_makes_nothing() {
    let disk = FaultyDisk::new(48);
    let db = small("auto", &disk).workers(4).step_helpers(false).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    db.session().transact(|tx| (0..20).try_for_each(|id| tx.insert(&accounts, &account(id)))).expect("inserted");
    let restore = |from: &str| backup::restore_on(&disk, Path::new(from), Path::new("/restored"), &|_, _| {});
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.checkpoint().expect("the disk works");
            }
        });
        for _ in 0..tries(20, 50) {
            let refused = restore("/db").expect_err("it is open");
            let StorageError::Io { source, .. } = &refused else { panic!("{refused}") };
            assert_eq!(source.kind(), ErrorKind::ResourceBusy, "{refused}");
            assert!(refused.to_string().contains("/db is open: close it, or restore a backup of it"), "{refused}");
            assert_eq!(disk.find(Path::new("/restored")).expect("no faults"), None, "nothing is made");
        }
    });
    db.backup("/copy").expect("the disk works");
    restore("/copy").expect("nobody has it open");
    drop((accounts, db));
    disk.remove_dir_all(Path::new("/restored")).expect("it is there");
    restore("/db").expect("it is closed");
    assert_eq!(rows(&small("auto", &disk).path("/restored").open().expect("it is a database")).len(), 20);
}
