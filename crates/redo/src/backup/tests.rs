//! Copies are consistent and complete, whatever happens to the database meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Mutex;

use seriatim_base::disk::{Around, DiskFile, FaultyDisk, Operation, Times};

use super::*;
use crate::replay::Replay;
use crate::synthetic::{Account, Database, Keeper, Write, tid};

/// A disk that runs a callback when a file is opened, to simulate a database in use.
struct Meddling<'m> {
    disk: FaultyDisk,
    opened: Mutex<Meddler<'m>>,
}

type Meddler<'m> = Box<dyn FnMut() + Send + 'm>;

impl fmt::Debug for Meddling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddling")
    }
}

impl Around for Meddling<'_> {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        (self.opened.lock().unwrap())();
        self.disk.open(path, how)
    }
}

/// The rows a directory recovers to, and the durable epoch.
fn recovered(disk: &dyn Disk, directory: &Path) -> (BTreeMap<u32, Account>, Epoch) {
    let manifest = Manifest::read(disk, directory).unwrap();
    let keeper = Keeper::new();
    let tables = crate::Tables::new(manifest.inherited.as_ref().unwrap());
    crate::checkpoint::load(disk, directory, &manifest, &tables, 1, &keeper, &|_| {}).unwrap();
    let replay = Replay::open(disk, directory, &manifest).unwrap();
    replay.run(disk, 1, &keeper, &|_| {}).unwrap();
    (keeper.rows(), replay.durable())
}

/// Writes one more epoch of two loggers. Each inserts the row of the epoch, and states that the epoch before is
/// durable.
fn write_epoch(database: &mut Database, epoch: u64, logger: u32) {
    let commits = [(tid(epoch, 1), vec![Write::Row(2 * epoch as u32 + logger, (1, 1))])];
    database.batch((1, logger), epoch, epoch - 1, &commits);
}

fn with_epochs(epochs: std::ops::RangeInclusive<u64>) -> Database {
    let mut database = Database::new(1, 2);
    for epoch in epochs {
        write_epoch(&mut database, epoch, 0);
        write_epoch(&mut database, epoch, 1);
    }
    database
}

/// The rows of all epochs up to `durable`.
fn up_to(durable: Epoch) -> BTreeMap<u32, Account> {
    (20..2 * durable.0 as u32 + 2).map(|id| (id, (1, 1))).collect()
}

const TO: &str = "/backups/monday";

#[test]
fn a_closed_directory_is_copied_whole_and_restored_elsewhere() {
    let database = with_epochs(10..=20);
    let told = Mutex::new(Vec::new());
    let progress = |done, total| told.lock().unwrap().push((done, total));
    let copied = backup(&database.disk, &database.directory, Path::new(TO), &progress).unwrap();
    assert_eq!((copied.attempts, copied.durable), (1, Epoch(20)));
    let told = told.into_inner().unwrap();
    assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0) && told.last() == Some(&(copied.bytes, copied.bytes)));
    database.disk.crash();
    let verified = verify(&database.disk, Path::new(TO), &|_, _| {}).unwrap();
    assert_eq!((verified.batches, verified.entries, verified.durable), (22, 22, Epoch(20)));
    restore(&database.disk, Path::new(TO), Path::new("/elsewhere"), &|_, _| {}).unwrap();
    assert_eq!(recovered(&database.disk, Path::new("/elsewhere")), (up_to(Epoch(20)), Epoch(20)));
}

#[test]
fn a_logger_that_wrote_nothing_is_copied_as_one() {
    let mut database = with_epochs(10..=12);
    database.manifest.incarnations[0].durable_epoch = Some(Epoch(12));
    database.incarnation(2, 20, 2);
    backup(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap();
    assert_eq!(recovered(&database.disk, Path::new(TO)).0, up_to(Epoch(12)));
}

#[test]
fn a_backup_of_a_database_in_use_holds_what_was_durable_before_and_a_prefix_of_the_rest() {
    for (every, burst) in (1..8).flat_map(|every| [(every, 1), (every, 6)]) {
        let database = Mutex::new(with_epochs(10..=15));
        let (disk, directory) = {
            let database = database.lock().unwrap();
            (database.disk.clone(), database.directory.clone())
        };
        let mut opened = 0;
        let writes = || {
            opened += 1;
            if opened % every == 0 && opened / every < 60 {
                for half in (opened / every - 1) * burst..opened / every * burst {
                    write_epoch(&mut database.lock().unwrap(), 16 + half / 2, (half % 2) as u32);
                }
            }
        };
        let meddling = Meddling { disk: disk.clone(), opened: Mutex::new(Box::new(writes)) };
        let copied = backup(&meddling, &directory, Path::new(TO), &|_, _| {}).unwrap();
        assert!(copied.durable >= Epoch(15), "the copy has what was durable before");
        assert_eq!(recovered(&disk, Path::new(TO)), (up_to(copied.durable), copied.durable), "{burst} every {every}");
    }
}

#[test]
fn a_backup_starts_over_when_a_checkpoint_takes_the_log_away() {
    for moment in 1..12 {
        let database = Mutex::new(with_epochs(10..=15));
        let (disk, directory) = {
            let mut database = database.lock().unwrap();
            database.roll(1, 0);
            write_epoch(&mut database, 16, 0);
            write_epoch(&mut database, 16, 1);
            (database.disk.clone(), database.directory.clone())
        };
        let mut opened = 0;
        let switches = || {
            opened += 1;
            if opened == moment {
                let mut database = database.lock().unwrap();
                let rows: Vec<_> = (20..32).map(|id| (id, u64::from(id) / 2, (1, 1))).collect();
                let checkpoint = crate::checkpoint::tests::write(&database, 16, 16, &rows);
                database.manifest.checkpoint = Some(checkpoint);
                database.manifest.write(&database.disk, &database.directory).unwrap();
                let superfluous = database.segment(1, 0, 1);
                database.disk.remove_file(&superfluous).unwrap();
            }
        };
        let meddling = Meddling { disk: disk.clone(), opened: Mutex::new(Box::new(switches)) };
        let copied = backup(&meddling, &directory, Path::new(TO), &|_, _| {}).unwrap();
        assert_eq!(copied.attempts, if moment == 1 { 1 } else { 2 }, "at {moment}");
        assert_eq!(recovered(&disk, Path::new(TO)), (up_to(Epoch(16)), Epoch(16)));
    }
}

#[test]
fn damage_is_not_backed_up() {
    let mut database = with_epochs(10..=15);
    let (path, offset) = database.batch((1, 1), 16, 15, &[]);
    database.batch((1, 0), 17, 16, &[]);
    database.disk.zero(&path, offset, 4096).unwrap();
    let result = backup(&database.disk, &database.directory, Path::new(TO), &|_, _| {});
    let Err(LogError::Corrupt { file, .. }) = result else { panic!("{result:?}") };
    assert_eq!(file, path);
    assert!(matches!(verify(&database.disk, &database.directory, &|_, _| {}), Err(LogError::Corrupt { .. })));
    assert_eq!(database.disk.find(Path::new("/backups")).unwrap(), None, "what was copied is gone");
    for (name, copy) in &copying()[..2] {
        copy(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).expect_err(name);
        assert_eq!(database.disk.find(Path::new("/backups")).unwrap(), None, "{name}");
    }
    // A directory that was there stays.
    database.disk.create_dir_all(Path::new(TO)).unwrap();
    backup(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap_err();
    assert_eq!(database.disk.list(Path::new(TO)).unwrap(), []);
    // A file that cannot be removed is named.
    database.disk.fail(Operation::Remove, 1, Times::ForEver, ErrorKind::PermissionDenied);
    let error = backup(&database.disk, &database.directory, Path::new("/new"), &|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("what is left of the copy in /new could not be removed"), "{error}");
}

/// The second attempt would find the directory, and not know that its name may be lost.
#[test]
fn a_directory_whose_name_is_not_durable_is_not_left_for_the_next_attempt() {
    for failing in 1..=2 {
        let database = with_epochs(10..=12);
        database.disk.fail(Operation::SyncDir, failing, Times::Once, ErrorKind::PermissionDenied);
        let error = backup(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap_err();
        assert!(error.to_string().contains("sync"), "{error}");
        assert_eq!(database.disk.find(Path::new("/backups")).unwrap(), None);
        backup(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap();
        assert_eq!(recovered(&database.disk, Path::new(TO)).0, up_to(Epoch(12)));
    }
}

#[test]
fn a_directory_that_holds_something_is_refused() {
    let database = with_epochs(10..=10);
    let elsewhere = Path::new("/elsewhere");
    database.disk.create_dir_all(&elsewhere.join("something")).unwrap();
    let refused = restore(&database.disk, &database.directory, elsewhere, &|_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    let refused = backup(&database.disk, Path::new("/nowhere"), Path::new(TO), &|_, _| {}).unwrap_err();
    assert!(matches!(refused, LogError::NotADatabase { .. }));
}

#[test]
fn a_copy_that_was_cut_short_is_no_database() {
    let database = with_epochs(10..=12);
    let operations = {
        let disk = database.disk.fork(1);
        let before = disk.operations();
        backup(&disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap();
        disk.operations() - before
    };
    for cut in 1..=operations {
        let disk = database.disk.fork(cut);
        disk.crash_at(cut);
        let copied = backup(&disk.mount(), &database.directory, Path::new(TO), &|_, _| {});
        disk.crash();
        match Manifest::find(&disk, Path::new(TO)) {
            Ok(Some(_)) => assert_eq!(recovered(&disk, Path::new(TO)), (up_to(Epoch(12)), Epoch(12)), "at {cut}"),
            Ok(None) | Err(LogError::Corrupt { .. }) => assert!(copied.is_err(), "at {cut}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Another program puts a file into the directory of the copy, which then fails.
#[test]
fn a_failed_copy_leaves_files_that_it_did_not_make() {
    let database = with_epochs(10..=12);
    let (disk, theirs) = (database.disk.clone(), Path::new(TO).join("notes"));
    let add = || {
        if disk.find(Path::new(TO)).unwrap().is_some() && disk.find(&theirs).unwrap().is_none() {
            disk.open(&theirs, Opening::Create).unwrap();
            disk.fail(Operation::Write, 1, Times::ForEver, ErrorKind::PermissionDenied);
        }
    };
    let meddling = Meddling { disk: disk.mount(), opened: Mutex::new(Box::new(add)) };
    backup(&meddling, Path::new("/db"), Path::new(TO), &|_, _| {}).unwrap_err();
    let names: Vec<_> = disk.list(Path::new(TO)).unwrap().into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["notes"]);
}

type Copying = fn(&dyn Disk, &Path, &Path, &Progress<'_>) -> Result<Copied, LogError>;

/// The functions that copy. All must refuse the same targets.
fn copying() -> [(&'static str, Copying); 3] {
    let open: Copying = |disk, from, to, progress| {
        // The manifest of an open database is known to its process.
        let manifest = Manifest::read(disk, Path::new("/db"))?;
        backup_open(disk, from, &manifest, to, progress)
    };
    [("backup", backup), ("restore", restore), ("backup of an open database", open)]
}

#[test]
fn a_copy_into_the_database_itself_is_refused_and_nothing_is_made() {
    for (name, copy) in copying() {
        let database = with_epochs(10..=11);
        let (disk, db) = (&database.disk, database.directory.as_path());
        assert_eq!(db, Path::new("/db"));
        let before = disk.list(db).unwrap();
        for to in ["/db", "/db/sub", "/db/sub/sub", "/db/./sub"] {
            let refused = copy(disk, db, Path::new(to), &|_, _| {}).unwrap_err().to_string();
            assert!(refused.contains("in the database's own directory"), "{name} {to}: {refused}");
        }
        assert_eq!(disk.list(db).unwrap(), before, "{name}");
        // A sibling whose name has the same prefix is allowed.
        copy(disk, db, Path::new("/db-copy"), &|_, _| {}).unwrap();
    }
}

#[test]
fn an_empty_path_is_refused() {
    let database = with_epochs(10..=11);
    let disk = &database.disk;
    let refused = |result: Result<(), LogError>| {
        let refused = result.unwrap_err();
        assert!(
            matches!(refused, LogError::NotADatabase { .. }) && refused.to_string().contains("is empty"),
            "{refused}"
        );
    };
    for (_, copy) in copying() {
        refused(copy(disk, Path::new("/db"), Path::new(""), &|_, _| {}).map(drop));
        refused(copy(disk, Path::new(""), Path::new(TO), &|_, _| {}).map(drop));
    }
    refused(verify(disk, Path::new(""), &|_, _| {}).map(drop));
}

#[test]
fn a_directory_into_which_a_copy_is_being_made_takes_no_other() {
    let database = with_epochs(10..=12);
    let disk = database.disk.clone();
    let second = Mutex::new(Vec::new());
    let copy_too = || {
        let result = backup(&disk.mount(), Path::new("/db"), Path::new(TO), &|_, _| {});
        second.lock().unwrap().push(result.map(drop).map_err(|error| error.to_string()));
    };
    let meddling = Meddling { disk: disk.mount(), opened: Mutex::new(Box::new(copy_too)) };
    backup(&meddling, Path::new("/db"), Path::new(TO), &|_, _| {}).unwrap();
    // The first file is opened before the directory of the copy is created.
    let second = second.lock().unwrap();
    assert!(
        second.iter().any(|result| result.as_ref().is_err_and(|error| error.contains("another copy"))),
        "{second:?}"
    );
    assert_eq!(recovered(&disk, Path::new(TO)), (up_to(Epoch(12)), Epoch(12)));
}

#[test]
fn a_copy_goes_where_its_directory_goes() {
    let database = with_epochs(10..=12);
    let disk = database.disk.clone();
    let mut opened = 0;
    let move_away = || {
        opened += 1;
        if opened == 6 {
            disk.rename(Path::new("/backups"), Path::new("/moved")).unwrap();
            disk.create_dir_all(Path::new(TO)).unwrap();
        }
    };
    let meddling = Meddling { disk: disk.mount(), opened: Mutex::new(Box::new(move_away)) };
    backup(&meddling, Path::new("/db"), Path::new(TO), &|_, _| {}).unwrap();
    assert_eq!(disk.list(Path::new(TO)).unwrap(), []);
    assert_eq!(recovered(&disk, Path::new("/moved/monday")), (up_to(Epoch(12)), Epoch(12)));
}

#[test]
fn a_database_that_changes_all_the_time_is_busy_and_not_damaged() {
    let database = with_epochs(10..=15);
    database.manifest.write(&database.disk, &database.directory).unwrap();
    let (disk, directory) = (database.disk.clone(), database.directory.clone());
    let database = Mutex::new(database);
    let mut rows = 0;
    let checkpoint_always = || {
        let mut database = database.lock().unwrap();
        let kept: Vec<_> = (20..32).map(|id| (id, u64::from(id) / 2, (1, 1))).collect();
        rows += 1;
        let checkpoint = crate::checkpoint::tests::write(&database, 15, 15, &kept[..1 + rows % 12]);
        database.manifest.checkpoint = Some(checkpoint);
        database.manifest.write(&database.disk, &database.directory).unwrap();
    };
    let meddling = Meddling { disk: disk.mount(), opened: Mutex::new(Box::new(checkpoint_always)) };
    let busy = backup(&meddling, &directory, Path::new(TO), &|_, _| {}).unwrap_err();
    assert!(matches!(&busy, LogError::Io { source, .. } if source.kind() == ErrorKind::ResourceBusy), "{busy}");
    assert!(busy.to_string().contains("try again"), "{busy}");
    assert_eq!(disk.find(Path::new(TO)).unwrap(), None, "what was copied is gone");
}

#[test]
fn damage_that_is_not_found_again_is_none() {
    let mut begun_again = 0;
    for moment in 2..40 {
        let mut database = with_epochs(10..=15);
        let (path, offset) = database.batch((1, 0), 16, 15, &[]);
        database.batch((1, 1), 16, 15, &[]);
        let disk = database.disk.clone();
        let flip = || disk.flip_bit(&path, offset - 4096 + HEADER_BYTES as u64, 1).unwrap();
        flip();
        let mut opened = 0;
        let mend = || {
            opened += 1;
            if opened == moment {
                flip();
            }
        };
        let meddling = Meddling { disk: disk.mount(), opened: Mutex::new(Box::new(mend)) };
        match backup(&meddling, &database.directory, Path::new(TO), &|_, _| {}) {
            Ok(copied) => begun_again += usize::from(copied.attempts == 2),
            Err(LogError::Corrupt { file, .. }) => assert_eq!(file, path, "the damage was found twice"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(begun_again > 0);
}

#[test]
fn damage_that_no_recovery_needs_is_reported_and_copied() {
    let mut database = Database::new(1, 1);
    let commit = |epoch: u64| [(tid(epoch, 1), vec![Write::Row(2 * epoch as u32, (1, 1))])];
    let (path, offset) = database.batch((1, 0), 10, 9, &commit(10));
    database.batch((1, 0), 11, 10, &commit(11));
    database.batch((1, 0), 12, 11, &commit(12));
    let kept = [(20, 10, (1, 1)), (22, 11, (1, 1))];
    database.manifest.checkpoint = Some(crate::checkpoint::tests::write(&database, 12, 12, &kept));
    database.manifest.write(&database.disk, &database.directory).unwrap();
    let sound = recovered(&database.disk, &database.directory);
    database.disk.flip_bit(&path, offset + HEADER_BYTES as u64, 3).unwrap();
    assert_eq!(recovered(&database.disk, &database.directory), sound, "a recovery does not read the damaged batch");
    let verified = verify(&database.disk, &database.directory, &|_, _| {}).unwrap();
    assert_eq!((verified.batches, verified.entries, verified.notices.len()), (3, 1, 1));
    assert!(verified.notices[0].contains("no recovery needs it"), "{:?}", verified.notices);
    for (name, copy) in copying() {
        let to = Path::new("/backups").join(name);
        copy(&database.disk, &database.directory, &to, &|_, _| {}).unwrap();
        assert_eq!(recovered(&database.disk, &to), sound, "{name}");
    }
}

/// All files of the database.
fn files(database: &Database) -> Vec<(PathBuf, Vec<u8>)> {
    let names = database.disk.list(&database.directory).unwrap().into_iter().map(|found| found.name);
    let mut files: Vec<(PathBuf, Vec<u8>)> = names
        .map(|name| {
            let file = database.disk.open(&database.directory.join(&name), Opening::Read).unwrap();
            let mut bytes = vec![0; file.bytes().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            (PathBuf::from(name), bytes)
        })
        .collect();
    files.sort();
    files
}

/// Two incarnations of two loggers, each with a second segment. Epochs 10 to 90 and 91 to 170 have a row of each
/// logger.
fn two_incarnations() -> Database {
    let mut database = with_epochs(10..=90);
    database.manifest.incarnations[0].durable_epoch = Some(Epoch(90));
    database.incarnation(2, 91, 2);
    for (epoch, logger) in (91..=170).flat_map(|epoch| [(epoch, 0), (epoch, 1)]) {
        let commits = [(tid(epoch, 1), vec![Write::Row(2 * epoch as u32 + logger, (1, 1))])];
        database.batch((2, logger), epoch, epoch - 1, &commits);
    }
    database
}

/// Where the batch of an epoch is.
fn place(database: &Database, epoch: u64, logger: u32) -> (PathBuf, u64) {
    let (incarnation, at) = if epoch > 90 { (2, epoch - 91) } else { (1, epoch - 10) };
    (database.segment(incarnation, logger, 1 + at / 62), (1 + at % 62) * PAGE as u64)
}

#[test]
fn a_copy_up_to_damage_has_everything_before_it_and_says_what_it_lacks() {
    for (epoch, logger) in (10..=170).step_by(7).flat_map(|epoch| [(epoch, 0), (epoch, 1)]) {
        for into in [40, HEADER_BYTES as u64 + 2] {
            let database = two_incarnations();
            let (path, offset) = place(&database, epoch, logger);
            database.disk.open(&path, Opening::Write).unwrap().write_all_at(&[0xa5; 7], offset + into).unwrap();
            let before = files(&database);
            let is_torn = epoch == 170;
            assert_eq!(verify(&database.disk, &database.directory, &|_, _| {}).is_err(), !is_torn);
            let salvaged = salvage(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap();
            assert_eq!(files(&database), before, "nothing is changed");
            database.disk.crash();
            let durable = Epoch(epoch - 1);
            let found = recovered(&database.disk, Path::new(TO));
            assert_eq!(found, (up_to(durable), salvaged.copied.durable), "{epoch} of {logger}");
            assert_eq!(found.1, if epoch > 10 { durable } else { Epoch(0) });
            assert!(verify(&database.disk, Path::new(TO), &|_, _| {}).unwrap().notices.is_empty());
            if is_torn {
                assert!(salvaged.damage.is_empty() && salvaged.lost.is_empty(), "{salvaged:?}");
                continue;
            }
            let Damaged { file, offset: at, .. } = &salvaged.damage[0];
            assert_eq!((salvaged.damage.len(), file, *at), (1, &path, offset), "{salvaged:?}");
            assert!((Epoch(169)..=Epoch(170)).contains(&salvaged.known), "{salvaged:?}");
            // Every later transaction is in a batch that is counted, unless its header or one before it is damaged.
            let lost: u64 = salvaged.lost.iter().map(|lost| lost.transactions).sum();
            let unknown: u64 = salvaged.lost.iter().map(|lost| lost.unknown_bytes).sum();
            let all = 2 * (170 - durable.0);
            match into {
                40 => assert!(unknown > 0 && lost < all && lost + unknown / PAGE as u64 + 4 >= all, "{salvaged:?}"),
                _ => assert_eq!((lost, unknown), (all, 0), "{salvaged:?}"),
            }
            assert!(salvaged.lost.iter().all(|lost| lost.bytes >= lost.unknown_bytes));
        }
    }
}

#[test]
fn segments_that_are_missing_or_cut_off_are_damage_too() {
    for (incarnation, logger, sequence, durable) in [(1, 0, 1, 9), (1, 1, 2, 71), (2, 0, 1, 90), (2, 1, 2, 152)] {
        for cut in [None, Some(0), Some(1), Some(PAGE as u64 + 3)] {
            let database = two_incarnations();
            let path = database.segment(incarnation, logger, sequence);
            match cut {
                None => database.disk.remove_file(&path).unwrap(),
                Some(bytes) => database.disk.open(&path, Opening::Write).unwrap().set_bytes(bytes).unwrap(),
            }
            let salvaged = salvage(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap();
            let durable = Epoch(durable);
            assert_eq!(recovered(&database.disk, Path::new(TO)).0, up_to(durable), "{path:?} {cut:?}");
            assert!(salvaged.damage[0].file == path || salvaged.damage[0].problem.contains("missing"), "{salvaged:?}");
            let lost = |path: &PathBuf| salvaged.lost.iter().any(|lost| lost.file == *path && lost.bytes > 0);
            let others = [1, 2].map(|other| database.segment(incarnation, 1 - logger, other));
            assert!(others.iter().any(lost), "{salvaged:?}");
            let second = database.segment(incarnation, logger, 2);
            assert!(sequence == 2 || lost(&second), "{salvaged:?}");
        }
    }
    let database = two_incarnations();
    let whole = salvage(&database.disk, &database.directory, Path::new(TO), &|_, _| {}).unwrap();
    assert!(whole.damage.is_empty() && whole.lost.is_empty() && whole.copied.durable == Epoch(170), "{whole:?}");
    assert_eq!(recovered(&database.disk, Path::new(TO)).0, up_to(Epoch(170)));
}
