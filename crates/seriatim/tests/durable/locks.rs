//! Locks of directories that are open, and directories without a right to write.

use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use seriatim::{Database, OpenError, backup};
use seriatim_base::disk::{Around, Disk, DiskFile, DiskLock, FaultyDisk, Locking, Opening};

use crate::accounts::{Account, account, rows, small};

fn locked(opened: Result<Database, OpenError>) -> PathBuf {
    match opened {
        Err(OpenError::Locked { directory }) => directory,
        other => panic!("it is open already: {other:?}"),
    }
}

#[test]
fn a_database_whose_lock_file_is_deleted_is_not_opened_twice() {
    let disk = FaultyDisk::new(1);
    let db = small("auto", &disk).open().expect("a new database opens");
    disk.remove_file(Path::new("/db/LOCK")).expect("it is there");
    assert_eq!(locked(small("auto", &disk).open()), Path::new("/db"));
    drop(db);
    small("auto", &disk).open().expect("it was closed");
}

#[test]
fn directories_of_logs_are_one_databases_at_a_time_too() {
    let disk = FaultyDisk::new(2);
    let open = |directory: &str, logs: [&str; 2]| {
        let builder = small("auto", &disk).log_directories(logs);
        builder.path(directory).disk(Arc::new(disk.mount())).open()
    };
    let db = open("/db", ["/log", "/db/./inner"]).expect("a new database opens, each directory locked once");
    assert_eq!(locked(open("/other", ["/elsewhere", "/log"])), Path::new("/log"));
    assert_eq!(locked(open("/other", ["/db/inner", "/elsewhere"])), Path::new("/db/inner"));
    drop(db);
    // Directories of earlier openings are read until a checkpoint, so they are locked too.
    let db = open("/db", [".", "."]).expect("it opens");
    drop(db);
    open("/db", ["/log", "/log"]).expect("one directory may be that of two loggers");
}

/// A file system without locks of directories, such as NFS.
#[derive(Debug)]
struct WithoutDirectoryLocks(FaultyDisk);

impl Around for WithoutDirectoryLocks {
    fn inner(&self) -> &dyn Disk {
        &self.0
    }

    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>> {
        match self.0.find(path)?.is_some_and(|found| found.is_dir) {
            true => Err(ErrorKind::Unsupported.into()),
            false => Disk::lock(&self.0, path, how),
        }
    }
}

#[test]
fn where_directories_cannot_be_locked_the_file_is() {
    let disk = FaultyDisk::new(3);
    let open = || small("auto", &disk).disk(Arc::new(WithoutDirectoryLocks(disk.mount()))).open();
    let db = open().expect("it opens without");
    locked(open());
    drop(db);
    open().expect("it was closed");
}

/// The variable that passes the directory to the process below.
const DIRECTORY: &str = "SERIATIM_TEST_LOCKED_DIRECTORY";

/// Not a test of its own: another process that opens a database, prints the result, and keeps it open.
#[test]
fn a_process_that_opens_a_directory() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let logs = std::env::var_os("SERIATIM_TEST_LOG_DIRECTORY");
    match Database::builder().path(directory).workers(1).log_directories(logs).segment_bytes(1 << 16).open() {
        Ok(_db) => {
            println!("\nanswer: opened");
            loop {
                std::thread::park();
            }
        }
        Err(error) => println!("\nanswer: {error}"),
    }
}

/// Starts that process; returns it with its answer.
fn open_elsewhere(directory: &Path, log: Option<&Path>) -> (Child, String) {
    let mut command = Command::new(std::env::current_exe().expect("the tests are a program"));
    command.args(["--exact", "locks::a_process_that_opens_a_directory", "--nocapture"]).env(DIRECTORY, directory);
    if let Some(log) = log {
        command.env("SERIATIM_TEST_LOG_DIRECTORY", log);
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let answer = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("answer: ").map(str::to_owned));
    (child, answer.expect("it answers"))
}

fn end(mut child: Child) {
    child.kill().expect("it runs, or has ended");
    child.wait().expect("it has ended");
}

/// A directory of this machine that is removed on drop.
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn new(name: &str) -> Home {
        let path = std::env::temp_dir().join(format!("seriatim-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory");
        Home(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_second_process_is_kept_out_whatever_becomes_of_the_lock_file() {
    let home = Home::new("locked");
    let (directory, log) = (home.0.join("db"), home.0.join("log"));
    let (first, answer) = open_elsewhere(&directory, Some(&log));
    assert_eq!(answer, "opened");
    for _ in 0..2 {
        let (second, answer) = open_elsewhere(&directory, None);
        assert!(answer.contains("is open already"), "{answer}");
        end(second);
        // Another database with the same log directory.
        let (second, answer) = open_elsewhere(&home.0.join("other"), Some(&log));
        assert!(answer.contains("is open already"), "{answer}");
        end(second);
        assert!(backup::verify(&directory, &|_, _| {}).expect_err("it is open").to_string().contains("is open"));
        let _ = std::fs::remove_file(directory.join("LOCK"));
    }
    end(first);
    let (third, answer) = open_elsewhere(&directory, None);
    assert_eq!(answer, "opened");
    end(third);
}

/// A read-only disk.
#[derive(Debug)]
struct ReadOnly(FaultyDisk);

fn refused<T>() -> io::Result<T> {
    Err(ErrorKind::ReadOnlyFilesystem.into())
}

impl Around for ReadOnly {
    fn inner(&self) -> &dyn Disk {
        &self.0
    }

    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        if how == Opening::Read { Disk::open(&self.0, path, how) } else { refused() }
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>> {
        if how == Locking::Shared { Disk::lock(&self.0, path, how) } else { refused() }
    }
}

/// A process that is killed after a commit that no checkpoint contains.
fn killed(disk: &FaultyDisk) {
    let db = small("auto", disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    db.checkpoint().expect("the disk works");
    db.session().transact(|tx| tx.insert(&accounts, &account(2))).expect("inserted");
    drop(accounts);
    disk.kill();
}

#[test]
fn a_database_is_verified_and_looked_at_on_a_disk_that_takes_no_writes() {
    for has_lock in [true, false] {
        let disk = FaultyDisk::new(4);
        killed(&disk);
        if !has_lock {
            disk.remove_file(Path::new("/db/LOCK")).expect("it is there");
        }
        let read_only: Arc<dyn Disk> = Arc::new(ReadOnly(disk.mount()));
        let verified = backup::verify_on(read_only.as_ref(), Path::new("/db"), &|_, _| {}).expect("it is sound");
        assert_eq!((verified.checkpoint_rows, verified.entries), (1, 1));
        let db = Database::builder().workers(2).inspect("/db").disk(Arc::clone(&read_only)).open();
        assert_eq!(rows(&db.expect("it is read")).len(), 2);
        let writing = small("auto", &disk).disk(read_only).open();
        let error = writing.expect_err("nothing can be written").to_string();
        assert!(error.contains("read-only"), "{error}");
        assert_eq!(disk.find(Path::new("/db/LOCK")).expect("no faults").is_some(), has_lock);
    }
}

#[test]
fn an_inspection_beside_a_writer_needs_no_lock_and_does_not_delay_the_writer() {
    let disk = FaultyDisk::new(5);
    let db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    let look =
        || Database::builder().workers(2).inspect("/db").disk(Arc::new(disk.mount())).open().expect("it is read");
    let seen = look();
    assert_eq!(rows(&seen).len(), 1);
    let error = backup::verify_on(&disk, Path::new("/db"), &|_, _| {}).expect_err("it is open").to_string();
    assert!(error.contains("is open: close it"), "{error}");
    drop((accounts, db));
    let seen_closed = look();
    drop(small("auto", &disk).open().expect("an inspection that has ended holds nothing"));
    drop((seen, seen_closed));
}
