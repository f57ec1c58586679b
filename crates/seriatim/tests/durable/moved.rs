//! The directory of an open database is moved, removed or replaced. The database writes to no other directory. It
//! acknowledges commits only while an opening by its path would find them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use seriatim::{Builder, Database, Durability, OpenError, TransactError, backup};
use seriatim_base::disk::{Disk, FaultyDisk};

use crate::accounts::{Account, account, rows, small};
use crate::locks::Home;

fn open(disk: &FaultyDisk, directory: &str, logs: &[&str]) -> Database {
    let builder = small("auto", disk).path(directory).disk(Arc::new(disk.mount())).log_directories(logs);
    builder.open().expect("it opens")
}

fn insert(db: &Database, id: u64) -> Result<(), TransactError> {
    let accounts = db.table::<Account>().expect("the table is there");
    db.session().transact(|tx| tx.insert(&accounts, &account(id))).map(drop)
}

/// Adds the account table with one account to a database.
fn with_account(db: Database, id: u64) -> Database {
    db.create::<Account>().expect("the table is created");
    insert(&db, id).expect("the disk works");
    db
}

fn ids(db: &Database) -> Vec<u64> {
    rows(db).into_iter().map(|row| row.id).collect()
}

/// Writes enough for several segments.
fn fill(db: &Database, ids: std::ops::Range<u64>) {
    let accounts = db.table::<Account>().expect("the table is there");
    for id in ids {
        let note = "x".repeat(2000);
        let inserted = db.session().transact(|tx| tx.insert(&accounts, &Account { note: note.clone(), ..account(id) }));
        inserted.expect("the disk works");
    }
}

/// Directories of the log: in the database's directory, or elsewhere too.
const LOGS: [&[&str]; 3] = [&[], &[".", "inner"], &["/log", "inner"]];

#[test]
fn a_database_whose_directory_is_moved_continues_in_it() {
    for logs in LOGS {
        let disk = FaultyDisk::new(11);
        let db = with_account(open(&disk, "/db", logs), 0);
        disk.rename(Path::new("/db"), Path::new("/moved")).expect("it is there");
        fill(&db, 1..80);
        db.checkpoint().expect("the disk works");
        fill(&db, 80..120);
        db.backup("/copy").expect("the disk works");
        drop(db);
        assert_eq!(disk.find(Path::new("/db")).expect("no faults"), None);
        disk.crash();
        assert_eq!(ids(&open(&disk, "/moved", logs)), (0..120).collect::<Vec<_>>(), "{logs:?}");
        assert_eq!(ids(&open(&disk, "/copy", &[])).len(), 120);
    }
}

/// Checks that every call which needs the log reports that it has stopped; returns the reason.
fn stopped(db: &Database, id: u64) -> String {
    let error = insert(db, id).expect_err("no opening would find it");
    let (TransactError::NotDurable { reason } | TransactError::LogStopped { reason }) = error else {
        panic!("{error:?}")
    };
    let again = insert(db, id + 1).expect_err("the log has stopped");
    // Waiting transactions get the error before new ones.
    assert!(matches!(again, TransactError::LogStopped { .. } | TransactError::NotDurable { .. }), "{again:?}");
    for error in [
        db.flush().expect_err("the log has stopped").to_string(),
        db.checkpoint().expect_err("the log has stopped").to_string(),
    ] {
        assert!(error.contains(&reason), "{error}: {reason}");
    }
    reason
}

#[test]
fn a_second_database_at_the_path_of_one_that_was_moved_is_another() {
    for logs in LOGS {
        // The second database has none of the first one's directories.
        let seconds: &[&str] = if logs.is_empty() { &[] } else { &[".", "inner"] };
        let disk = FaultyDisk::new(12);
        let first = with_account(open(&disk, "/db", logs), 1);
        disk.rename(Path::new("/db"), Path::new("/moved")).expect("it is there");
        insert(&first, 2).expect("it goes on");
        let second = with_account(open(&disk, "/db", seconds), 100);
        let reason = stopped(&first, 3);
        assert!(reason.contains("/db was moved while the database was open, and something else is there"), "{reason}");
        fill(&second, 101..180);
        second.checkpoint().expect("the disk works");
        assert!(matches!(
            small("auto", &disk).path("/moved").disk(Arc::new(disk.mount())).open(),
            Err(OpenError::Locked { .. })
        ));
        first.close().expect_err("what was not acknowledged is lost");
        drop(second);
        disk.crash();
        let found = ids(&open(&disk, "/moved", logs));
        // The commit whose flush was refused may be there.
        assert!(found == [1, 2] || found == [1, 2, 3], "{found:?}");
        assert_eq!(ids(&open(&disk, "/db", seconds)), (100..180).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_is_acknowledged_after_the_directory_was_removed() {
    for (logs, removed) in
        [(LOGS[0], "/db"), (LOGS[1], "/db"), (LOGS[1], "/db/inner"), (LOGS[2], "/db"), (LOGS[2], "/log")]
    {
        let disk = FaultyDisk::new(13);
        let db = with_account(open(&disk, "/db", logs), 1);
        disk.remove_dir_all(Path::new(removed)).expect("it is there");
        let error = insert(&db, 2).expect_err("no opening would find it");
        let (TransactError::NotDurable { reason } | TransactError::LogStopped { reason }) = error else {
            panic!("{error:?}")
        };
        // Either directory may be found first.
        assert!(reason.contains(removed) && reason.contains("was removed while the database was open"), "{reason}");
        insert(&db, 20).expect_err("the log has stopped");
        db.flush().expect_err("the log has stopped");
    }
}

#[test]
fn nothing_is_acknowledged_after_a_segment_was_removed() {
    let disk = FaultyDisk::new(14);
    let db = with_account(open(&disk, "/db", &[]), 1);
    let segment = Path::new("/db/log-00000001-000-00000001");
    disk.remove_file(segment).expect("it is there");
    let reason = stopped(&db, 2);
    assert!(reason.contains(&format!("{} was removed", segment.display())), "{reason}");
}

#[test]
fn a_table_is_not_created_in_a_directory_that_is_gone() {
    for replace in [false, true] {
        let disk = FaultyDisk::new(15);
        let db = open(&disk, "/db", &[]);
        match replace {
            false => disk.remove_dir_all(Path::new("/db")).expect("it is there"),
            true => {
                disk.rename(Path::new("/db"), Path::new("/moved")).expect("it is there");
                disk.create_dir_all(Path::new("/db")).expect("its name is free");
            }
        }
        let error = db.create::<Account>().expect_err("no opening would find it").to_string();
        assert!(error.contains("while the database was open"), "{error}");
        let error = db.create::<Account>().expect_err("the log has stopped").to_string();
        assert!(error.contains("the log has stopped"), "{error}");
        assert!(db.table_names().is_empty(), "it can never be durable");
    }
}

#[test]
fn a_copy_is_not_made_inside_a_directory_that_was_moved() {
    let disk = FaultyDisk::new(17);
    let db = with_account(open(&disk, "/db", &[]), 1);
    disk.rename(Path::new("/db"), Path::new("/moved")).expect("it is there");
    for inside in ["/moved", "/moved/copy", "/moved/a/copy"] {
        let error = db.backup(inside).expect_err("it would be in the database").to_string();
        assert!(error.contains("in the database's own directory"), "{error}");
    }
    assert_eq!(disk.find(Path::new("/moved/a")).expect("no faults"), None);
    db.backup("/moved-not/copy").expect("it is elsewhere");
    // The same with the files of this machine.
    let home = Home::new("backup-moved");
    let [at, moved] = ["db", "moved"].map(|name| home.0.join(name));
    let db = with_account(on_this_machine(&at).open().expect("a new database opens"), 1);
    std::fs::rename(&at, &moved).expect("it is there");
    let error = db.backup(moved.join("copy")).expect_err("it would be in the database").to_string();
    assert!(error.contains("in the database's own directory"), "{error}");
    db.backup(home.0.join("copy")).expect("it is elsewhere");
}

#[test]
fn calls_that_are_answered_at_once_are_refused_when_the_loss_is_noticed() {
    let disk = FaultyDisk::new(16);
    let builder = small("auto", &disk).durability(Durability::Async);
    let db = with_account(builder.open().expect("a new database opens"), 1);
    disk.remove_dir_all(Path::new("/db")).expect("it is there");
    insert(&db, 2).expect("nothing was flushed");
    db.step();
    let error = insert(&db, 3).expect_err("the log has stopped");
    assert!(matches!(&error, TransactError::LogStopped { reason } if reason.contains("was removed")), "{error}");
}

#[test]
fn one_builder_opens_a_second_database_at_the_path_of_the_first() {
    let home = Home::new("builder");
    let builder = Database::builder().workers(2).segment_bytes(1 << 16).path(home.0.join("db"));
    let first = with_account(builder.clone().open().expect("a new database opens"), 1);
    std::fs::rename(home.0.join("db"), home.0.join("moved")).expect("it is there");
    let second = with_account(builder.open().expect("its path is free"), 100);
    stopped(&first, 2);
    drop(first);
    insert(&second, 101).expect("it is another");
}

fn on_this_machine(directory: &Path) -> Builder {
    Database::builder().workers(2).segment_bytes(1 << 16).checkpoint_bytes(None).path(directory)
}

#[test]
fn a_copy_restored_at_the_path_of_an_open_database_is_left_alone() {
    let home = Home::new("restored");
    let [db, moved, copy] = ["db", "moved", "copy"].map(|name| home.0.join(name));
    let first = with_account(on_this_machine(&db).open().expect("a new database opens"), 1);
    first.backup(&copy).expect("there is room");
    std::fs::rename(&db, &moved).expect("it is there");
    insert(&first, 2).expect("it goes on where it is");
    backup::restore(&copy, &db, &|_, _| {}).expect("the path is free");
    let reason = stopped(&first, 3);
    assert!(reason.contains("was moved"), "{reason}");
    drop(first);
    backup::verify(&db, &|_, _| {}).expect("it was not changed");
    assert_eq!(ids(&on_this_machine(&db).open().expect("it is a database")), [1]);
    let found = ids(&on_this_machine(&moved).open().expect("it is a database"));
    assert!(found.starts_with(&[1, 2]), "{found:?}");
}

#[test]
fn a_database_opened_by_a_link_is_the_same_when_the_link_is_turned() {
    let home = Home::new("turned");
    let [v1, v2, current] = ["v1", "v2", "current"].map(|name| home.0.join(name));
    drop(with_account(on_this_machine(&v1).open().expect("a new database opens"), 1));
    drop(with_account(on_this_machine(&v2).open().expect("a new database opens"), 100));
    let turn_to = |version: &str| {
        let _ = std::fs::remove_file(&current);
        std::os::unix::fs::symlink(version, &current).expect("its name is free");
    };
    turn_to("v1");
    // The path of the log also goes through the link.
    let logs = [current.join("inner")];
    let db = on_this_machine(&current).log_directories(&logs).open().expect("it is led to");
    turn_to("v2");
    fill(&db, 2..80);
    db.checkpoint().expect("there is room");
    insert(&db, 80).expect("the link does not matter");
    let other = on_this_machine(&current).open().expect("it is not open");
    assert_eq!(ids(&other), [100]);
    insert(&other, 101).expect("it is another");
    db.close().expect("all is durable");
    drop(other);
    assert_eq!(ids(&on_this_machine(&v1).open().expect("it is a database")), (1..=80).collect::<Vec<_>>());
    assert_eq!(ids(&on_this_machine(&v2).open().expect("it is a database")), [100, 101]);
}

#[test]
fn a_log_named_by_a_link_is_found_when_the_link_is_turned() {
    let home = Home::new("turned-log");
    let [at, vol1, vol2, log] = ["db", "vol1", "vol2", "log"].map(|name| home.0.join(name));
    for volume in [&vol1, &vol2] {
        std::fs::create_dir_all(volume).expect("there is room");
    }
    std::os::unix::fs::symlink(&vol1, &log).expect("its name is free");
    let open = || on_this_machine(&at).log_directories(std::slice::from_ref(&log)).open();
    let db = with_account(open().expect("a new database opens"), 1);
    std::fs::remove_file(&log).expect("it is there");
    std::os::unix::fs::symlink(&vol2, &log).expect("its name is free");
    insert(&db, 2).expect("the link does not matter");
    db.close().expect("all is durable");
    assert_eq!(ids(&open().expect("it is a database")), [1, 2]);
}

/// The variable that passes the directory to the process below.
const DIRECTORY: &str = "SERIATIM_TEST_MOVED_DIRECTORY";

/// Not a test of its own: another process with a database, which inserts an account for each line that it reads.
#[test]
fn a_process_that_inserts() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    // If it hangs it is killed, and the test finds no answer.
    // SAFETY: `alarm` only requests a signal, which ends the process.
    unsafe { libc::alarm(600) };
    let db = with_account(on_this_machine(Path::new(&directory)).open().expect("a new database opens"), 0);
    println!("\nanswer: opened");
    for line in std::io::stdin().lines() {
        let id = line.expect("it is a pipe").parse().expect("the id of an account");
        match insert(&db, id) {
            Ok(()) => println!("answer: inserted"),
            Err(error) => println!("answer: {error}"),
        }
    }
}

/// That process, and the pipes to it.
struct Inserting {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Inserting {
    fn begin(directory: &Path) -> Inserting {
        let mut command = Command::new(std::env::current_exe().expect("the tests are a program"));
        command.args(["--exact", "moved::a_process_that_inserts", "--nocapture"]).env(DIRECTORY, directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut inserting = Inserting { child, to, from: BufReader::new(from) };
        assert_eq!(inserting.answer(), "opened");
        inserting
    }

    fn answer(&mut self) -> String {
        let lines = self.from.by_ref().lines().map_while(Result::ok);
        lines.into_iter().find_map(|line| line.strip_prefix("answer: ").map(str::to_owned)).expect("it answers")
    }

    fn insert(&mut self, id: u64) -> String {
        writeln!(self.to, "{id}").expect("it reads");
        self.answer()
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
    }
}

/// Changes the path of a database that another process has open.
fn beside_another_process(name: &str, change: impl FnOnce(&Path, &Path) -> Option<Database>, stops: bool) {
    let home = Home::new(name);
    let [db, moved] = ["db", "moved"].map(|name| home.0.join(name));
    let mut process = Inserting::begin(&db);
    assert_eq!(process.insert(1), "inserted");
    let second: Option<PathBuf> = change(&db, &moved).map(|second| {
        let answer = process.insert(2);
        assert!(!stops || answer.contains("while the database was open"), "{answer}");
        fill(&second, 100..150);
        db.clone()
    });
    let answers: Vec<String> = (3..80).map(|id| process.insert(id)).collect();
    let refused = answers.iter().all(|answer| answer.contains("while the database was open"));
    assert!(if stops { refused } else { answers.iter().all(|answer| answer == "inserted") }, "{answers:?}");
    if moved.exists() {
        let locked = on_this_machine(&moved).open();
        assert!(matches!(locked, Err(OpenError::Locked { .. })), "{locked:?}");
    }
    process.kill();
    if moved.exists() {
        let found = ids(&on_this_machine(&moved).open().expect("it is a database"));
        assert!(found.starts_with(&[0, 1]) && (stops || found.len() == 79), "{found:?}");
    }
    if let Some(second) = second {
        let found = ids(&on_this_machine(&second).open().expect("it is a database"));
        assert_eq!(found, (99..150).collect::<Vec<_>>());
    }
}

#[test]
fn another_process_continues_in_a_directory_that_was_moved() {
    let change = |db: &Path, moved: &Path| {
        std::fs::rename(db, moved).expect("it is there");
        None
    };
    beside_another_process("process-moved", change, false);
}

#[test]
fn another_process_leaves_a_second_database_at_its_path_alone() {
    let change = |db: &Path, moved: &Path| {
        std::fs::rename(db, moved).expect("it is there");
        Some(with_account(on_this_machine(db).open().expect("the path is free"), 99))
    };
    beside_another_process("process-replaced", change, true);
}

#[test]
fn another_process_acknowledges_nothing_in_a_directory_that_was_removed() {
    let change = |db: &Path, _: &Path| {
        std::fs::remove_dir_all(db).expect("it is there");
        Some(with_account(on_this_machine(db).open().expect("the path is free"), 99))
    };
    beside_another_process("process-removed", change, true);
}
