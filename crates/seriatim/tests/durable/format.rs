//! Files of a database directory over time. They are files of an older format, user data that looks like log batches,
//! and files of processes that ended without closing.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, TableDef};
use seriatim::rng::seed;
use seriatim::{Abort, Builder, Database, Durability, Table};
use seriatim_base::disk::{Around, Disk, DiskFile, FaultyDisk, Opening, Operation, Times};
use seriatim_redo::backup;
use seriatim_redo::batch::{Header, PAGE, Salt};

use crate::accounts::{Account, account, rows, small};

/// A directory that the last version of format 1 wrote, as lines. Each file has its name and length. The manifest has
/// its text. Other files have every 32 bytes that are not all zeros, in hexadecimal, after their offset. The database
/// had two loggers and was opened three times. The first process closed it, the second was killed some commits after
/// a checkpoint, and the third was killed too.
const FORMAT_1: &str = include_str!("format1.txt");

/// The same of format 2.
const FORMAT_2: &str = include_str!("format2.txt");

/// The same of format 3, the last whose manifest lists the tables. Before the checkpoint the table of lines was
/// converted, and the third process created one more table.
const FORMAT_3: &str = include_str!("format3.txt");

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "line", key(group, number), cluster(group), index(name = "by_tag", columns(tag), unique, hash))]
struct Line {
    group: u8,
    number: u16,
    tag: u32,
}

/// The same, declared so that the table is converted.
#[derive(Table)]
#[table(name = "line", key(group, number), index(name = "by_tag", columns(tag), unique, hash))]
struct LooseLine {
    group: u8,
    number: u16,
    tag: u32,
}

/// A disk with the directory of this format as `/db`.
fn of_format(format: u32) -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    let directory = Path::new("/db");
    let mut file: Option<(Box<dyn DiskFile>, u64)> = None;
    let (text, checkpoint) = match format {
        1 => (FORMAT_1, "/db/checkpoint-0000000008"),
        2 => (FORMAT_2, "/db/checkpoint-0000000009"),
        _ => (FORMAT_3, "/db/checkpoint-0000000021"),
    };
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').expect("two words");
        let written = match word {
            "file" => {
                let (name, bytes) = rest.split_once(' ').expect("a name and a length");
                let path = directory.join(name);
                disk.create_dir_all(path.parent().expect("a directory")).expect("no faults");
                let created = disk.open(&path, Opening::Create).expect("no faults");
                let sized = created.set_bytes(bytes.parse().expect("a length"));
                file = Some((created, 0));
                sized
            }
            "|" => {
                let (file, at) = file.as_mut().expect("a file");
                let text = format!("{rest}\n");
                let begin = *at;
                *at += text.len() as u64;
                file.write_all_at(text.as_bytes(), begin)
            }
            offset => {
                let digits = |at: usize| u8::from_str_radix(&rest[at..at + 2], 16).expect("hexadecimal digits");
                let bytes: Vec<u8> = (0..rest.len()).step_by(2).map(digits).collect();
                let (file, _) = file.as_ref().expect("a file");
                file.write_all_at(&bytes, offset.parse().expect("an offset"))
            }
        };
        written.expect("no faults");
        file.as_ref().expect("a file").0.sync_data().expect("no faults");
    }
    for path in ["/", "/db", "/db/second", checkpoint] {
        disk.sync_dir(Path::new(path)).expect("no faults");
    }
    disk
}

fn two_loggers(disk: &FaultyDisk) -> Builder {
    small("auto", disk).segment_bytes(8 << 10).log_directories([".", "second"])
}

/// The rows of either directory.
fn accounts_of_old() -> Vec<Account> {
    let noted = |id, note: String| Account { note, ..account(id) };
    vec![
        Account { balance: 175, ..account(1) },
        Account { balance: 50, note: "changed".to_owned(), ..account(2) },
        noted(4, String::new()),
        noted(5, String::new()),
        noted(6, "x".repeat(3000)),
        noted(7, String::new()),
        noted(8, String::new()),
        account(9),
    ]
}

fn by_id(mut rows: Vec<Account>) -> Vec<Account> {
    rows.sort_by_key(|row| row.id);
    rows
}

fn manifest_of(disk: &FaultyDisk) -> String {
    let file = disk.open(Path::new("/db/MANIFEST"), Opening::Read).expect("it is there");
    let mut bytes = vec![0; file.bytes().expect("it has a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it is read");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_directory_of_an_older_format_is_read_and_upgraded_in_place() {
    (1..=3).for_each(is_read_and_upgraded);
}

fn is_read_and_upgraded(format: u32) {
    let disk = of_format(format);
    let is_untouched = || manifest_of(&disk).contains(&format!("\"format\": {format},"));
    assert!(is_untouched());
    let db = Database::builder().workers(2).inspect("/db").disk(Arc::new(disk.mount())).open().expect("it is read");
    assert_eq!(by_id(rows(&db)), accounts_of_old());
    drop(db);
    assert!(is_untouched(), "it was only looked at");
    let verified = backup::verify(&disk, Path::new("/db"), &|_, _| {}).expect("it is sound");
    backup::backup(&disk, Path::new("/db"), Path::new("/copy"), &|_, _| {}).expect("it is copied");
    let of_copy = backup::verify(&disk, Path::new("/copy"), &|_, _| {}).expect("the copy is sound");
    assert_eq!((of_copy.entries, of_copy.durable), (verified.entries, verified.durable));
    assert!(format == 3 || verified.durable.0 % 2048 == 2047, "the last epoch of those that were one of 34 bits");

    let mut expected = accounts_of_old();
    for id in 10..20 {
        let db = two_loggers(&disk).open().expect("it opens");
        let manifest = manifest_of(&disk);
        assert!(manifest.contains("\"format\": 4,") && !manifest.contains("\"tables\""), "{manifest}");
        assert_eq!(db.table_names(), if format == 3 { &["line", "account", "late"][..] } else { &["account"] });
        assert_eq!(by_id(rows(&db)), expected);
        let accounts = db.table::<Account>().expect("it is there");
        db.session().transact(|tx| tx.insert(&accounts, &account(id))).expect("inserted");
        expected.push(account(id));
        match id {
            10..14 => disk.crash(),
            14..18 => disk.kill(),
            _ => {}
        }
        if id == 18 {
            db.checkpoint().expect("the disk works");
            let old = ["/db", "/db/second"].map(|at| disk.list(Path::new(at)).expect("it is there")).concat();
            let old = old.iter().filter(|found| found.name.to_string_lossy().starts_with("log-0000000"));
            let old: Vec<_> = old.filter(|found| *found.name.to_string_lossy() < *"log-00000004").collect();
            assert!(old.is_empty(), "{old:?}");
        }
    }
    if format == 3 {
        let db = two_loggers(&disk).open().expect("it opens");
        let lines = db.table::<Line>().expect("it is there");
        let found = db.session().snapshot(|tx| {
            let tags = tx.scan(&lines, ..).map(|row| row.map(|row| row.tag()));
            tags.collect::<Result<Vec<u32>, Abort>>()
        });
        assert_eq!(found.expect("no conflict").into_value(), [100, 102, 104, 101, 103]);
        // The table before the conversion had two ids. They are free now that a checkpoint has begun after it.
        let own = db.declare(with_index("again")).expect("a sound declaration");
        assert_eq!(own.number_in_log(), 0);
    }
}

/// A table with an index.
fn with_index(name: &'static str) -> TableDef {
    let column = |name| ColumnDef::new(name, ColumnType::U32);
    let table = TableDef::builder(name).column(column("id")).column(column("tag")).key(["id"]).index("by_tag", ["tag"]);
    table.finish().expect("a sound declaration")
}

#[test]
#[ignore = "nightly: seconds"]
fn an_upgrade_can_be_cut_short_at_each_operation() {
    (1..=3).for_each(is_upgraded_wherever_cut);
}

fn is_upgraded_wherever_cut(format: u32) {
    for n in 1.. {
        let disk = of_format(format);
        disk.crash_at(n);
        let process = disk.mount();
        let opened = two_loggers(&disk).disk(Arc::new(process.clone())).open();
        let is_done = process.is_alive();
        drop(opened);
        disk.crash();
        let db = two_loggers(&disk).open().unwrap_or_else(|error| panic!("cut at {n}: {error}"));
        assert_eq!(by_id(rows(&db)), accounts_of_old(), "cut at {n}");
        if is_done {
            break;
        }
    }
}

/// The tables that the manifest lists are there, below those of the catalogue, until all are in the catalogue. That may
/// take long, and tables are created and converted meanwhile.
#[test]
#[ignore = "nightly: seconds"]
fn an_upgrade_on_a_disk_that_fails_or_is_full_goes_on_with_the_next_opening() {
    let mut left = 0;
    let failures = [(Operation::Write, ErrorKind::StorageFull), (Operation::Rename, ErrorKind::StorageFull)];
    let failures = failures.into_iter().chain([(Operation::Rename, ErrorKind::Other)]);
    for ((operation, kind), n) in failures.flat_map(|failure| (1..40).map(move |n| (failure, n))) {
        let (disk, case) = (of_format(3), format!("{operation:?} {n}, {kind:?}"));
        disk.fail(operation, n, Times::ForEver, kind);
        let opened = two_loggers(&disk).open();
        disk.heal();
        let mut names = vec!["line".to_owned(), "account".to_owned(), "late".to_owned()];
        if let Ok(db) = opened {
            left += u32::from(manifest_of(&disk).contains("\"inherited\""));
            (0..4).for_each(|_| db.step());
            if db.declare(with_index("new")).is_ok() {
                names.push("new".to_owned());
            }
            let _ = db.table::<LooseLine>();
            let _ = db.checkpoint();
            if n % 2 == 0 { disk.crash() } else { disk.kill() }
        }
        for life in 0..4 {
            let db = two_loggers(&disk).open().unwrap_or_else(|error| panic!("{case}, {life}: {error}"));
            assert!(!manifest_of(&disk).contains("\"inherited\""), "{case}, {life}");
            assert_eq!(db.table_names(), names, "{case}, {life}");
            assert_eq!(by_id(rows(&db)), accounts_of_old(), "{case}, {life}");
            let lines = db.table::<Line>().expect("it is converted, if it is not");
            let found = db.session().snapshot(|tx| tx.scan(&lines, ..).try_count()).expect("no conflict");
            assert_eq!(found.into_value(), 5, "{case}, {life}");
            let name = format!("life{life}");
            db.declare(with_index(name.clone().leak())).expect("there is space");
            names.push(name);
            if life % 2 == 0 {
                db.checkpoint().expect("the disk works");
            }
            disk.crash();
        }
    }
    assert!(left > 0, "no opening left the tables in the manifest");
}

/// A part of a table is dropped while the manifest still lists it, and a checkpoint forgets the deletion.
#[test]
fn what_is_dropped_before_an_upgrade_is_complete_stays_dropped() {
    let mut left = 0;
    for n in 2..8 {
        let disk = of_format(3);
        disk.fail(Operation::Rename, n, Times::ForEver, ErrorKind::StorageFull);
        let opened = two_loggers(&disk).open();
        disk.heal();
        let Ok(db) = opened else { continue };
        left += u32::from(manifest_of(&disk).contains("\"inherited\""));
        (0..4).for_each(|_| db.step());
        db.migration().change("account", [Change::drop_index("by_branch")]).run().expect("there is space");
        db.checkpoint().expect("the disk works");
        disk.crash();
        drop(db);
        for life in 0..3 {
            let db = two_loggers(&disk).open().unwrap_or_else(|error| panic!("{n}, {life}: {error}"));
            let accounts = db.open_dyn("account").expect("it is there");
            assert_eq!(accounts.definition().indexes.len(), 1, "{n}, {life}");
            db.checkpoint().expect("the disk works");
            disk.crash();
        }
    }
    assert!(left > 0, "no opening left the tables in the manifest");
}

/// The segment with the newest batch, the offset of that batch, and the bytes of the segment.
fn last_batch(disk: &FaultyDisk) -> (PathBuf, u64, Vec<u8>) {
    let found = disk.list(Path::new("/db")).expect("it is there");
    let segments = found.into_iter().rev().filter(|found| found.name.to_string_lossy().starts_with("log-"));
    let last = segments.map(|found| Path::new("/db").join(found.name)).find_map(|path| {
        let file = disk.open(&path, Opening::Read).expect("it is there");
        let mut bytes = vec![0; file.bytes().expect("it has a length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("it is read");
        let last = (0..bytes.len()).step_by(PAGE).rfind(|&at| bytes[at..].starts_with(b"BTCH"))?;
        Some((path, last as u64, bytes))
    });
    last.expect("a batch")
}

/// A row contains a batch header at the beginning of a page. Users can know every field of it except the nonce. A
/// power cut tears the write of the row.
#[test]
fn a_row_that_looks_like_a_batch_is_not_taken_for_one() {
    let disk = FaultyDisk::new(9);
    let open = || small("auto", &disk).open();
    let db = open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let insert = |id, note: String| {
        db.session()
            .transact(|tx| tx.insert(&accounts, &Account { note: note.clone(), ..account(id) }))
            .expect("inserted");
    };
    // Finds the offset of a text in its batch.
    let begin = "[here".to_owned();
    insert(1, begin.clone() + &"m".repeat(3 * PAGE));
    let (_, batch, bytes) = last_batch(&disk);
    let text = bytes[batch as usize..].windows(begin.len()).position(|bytes| bytes == begin.as_bytes());
    let text = text.expect("the text is in the last batch");
    // The header must be valid text; other numbers give other checksums.
    let crafted = (0..).find_map(|number| {
        let header = Header {
            number: 257 + number % 20,
            incarnation: 1,
            closed: seriatim_base::Epoch(number / 20),
            durable: seriatim_base::Epoch(0),
            newest: seriatim_base::Epoch(0),
            newest_before: seriatim_base::Epoch(0),
            groups: 0,
            has_catalogue: false,
            payload_bytes: 0,
            payload_crc: 0,
        };
        String::from_utf8(header.encode(Salt::NONE).to_vec()).ok()
    });
    let crafted = crafted.expect("some header is text");
    let note = "n".repeat(PAGE - text) + &crafted;
    insert(2, note.clone() + &"n".repeat(begin.len() + 3 * PAGE - note.len()));
    // The apparent last batch is inside the text; the batch with the text began a page before.
    let (path, page, bytes) = last_batch(&disk);
    assert!(bytes[page as usize..].starts_with(crafted.as_bytes()), "it is where a batch could begin");
    let batch = page - PAGE as u64;
    assert!(bytes[batch as usize..].starts_with(b"BTCH"), "the batch with the text");
    disk.kill();
    drop((accounts, db));
    disk.zero(&path, batch, 512).expect("the first sector of the write did not arrive");
    let db = open().unwrap_or_else(|error| panic!("a torn end is none that damages: {error}"));
    let recovery = db.recovery().expect("it was there").clone();
    assert!(recovery.notices.iter().any(|notice| notice.contains("cut short")), "{recovery:?}");
    assert_eq!(rows(&db).iter().map(|row| row.id).collect::<Vec<_>>(), [1]);
}

/// A disk that counts the bytes read.
#[derive(Debug)]
struct Counting {
    disk: FaultyDisk,
    read: Arc<AtomicU64>,
}

impl Around for Counting {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        let file = Disk::open(&self.disk, path, how)?;
        Ok(Box::new(CountingFile { file, read: Arc::clone(&self.read) }))
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Box<dyn DiskFile>,
    read: Arc<AtomicU64>,
}

impl DiskFile for CountingFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, offset)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn is_removed(&self) -> bool {
        self.file.is_removed()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.file.set_bytes(bytes)
    }
}

/// The segments of two loggers.
fn segments(disk: &FaultyDisk) -> Vec<(String, u64)> {
    let found = ["/db", "/db/second"].map(|at| disk.list(Path::new(at)).unwrap_or_default()).concat();
    let named = found.into_iter().map(|found| (found.name.to_string_lossy().into_owned(), found.bytes));
    named.filter(|(name, _)| name.starts_with("log-")).collect()
}

/// The reserve for openings on a full disk. It does not depend on how often the database was opened.
fn set_aside_bytes(disk: &FaultyDisk) -> u64 {
    let found = ["/db", "/db/second"].map(|at| disk.find(&Path::new(at).join("RESERVE")).expect("it is there"));
    let bytes = found.into_iter().flatten().map(|found| found.bytes).sum();
    assert!(bytes <= 8 * (SEGMENT + 2 * 8192), "four times a first segment and two manifests, in each directory");
    bytes
}

const SEGMENT: u64 = 64 << 10;

/// The way in which a process ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    CutOff,
    Closed,
}

/// Opens a database with two loggers, calls `live`, and ends the process. Returns the bytes that opening read.
fn one_incarnation(disk: &FaultyDisk, end: End, live: impl FnOnce(&Database)) -> u64 {
    let read = Arc::new(AtomicU64::new(0));
    let counting = Counting { disk: disk.mount(), read: Arc::clone(&read) };
    let builder = small("auto", disk).segment_bytes(SEGMENT).log_directories([".", "second"]);
    let db = builder.disk(Arc::new(counting)).open().expect("it opens");
    let read = read.load(Ordering::Relaxed);
    live(&db);
    match end {
        End::Killed => disk.kill(),
        End::CutOff => disk.crash(),
        End::Closed => {}
    }
    drop(db);
    read
}

#[test]
fn processes_that_end_without_a_commit_leave_nothing_behind_them() {
    let disk = FaultyDisk::new(seed("processes_that_end_without_a_commit_leave_nothing_behind_them"));
    one_incarnation(&disk, End::Closed, |db| drop(db.create::<Account>().expect("the table is created")));
    // The log of that process has the table.
    let kept: BTreeSet<String> = segments(&disk).into_iter().map(|(name, _)| name).collect();
    let kept_bytes: u64 = segments(&disk).iter().map(|(_, bytes)| bytes).sum();
    assert!(kept_bytes <= 8 * PAGE as u64, "{kept_bytes} bytes");
    let opening_bytes: BTreeSet<u64> = (0..100)
        .map(|life| {
            let end = [End::Killed, End::CutOff, End::Closed][life % 3];
            let read = one_incarnation(&disk, end, |db| {
                // The segments of this opening.
                assert_eq!(segments(&disk).iter().filter(|(name, _)| !kept.contains(name)).count(), 2, "{life}");
                // The manifest also lists the previous incarnation, which the next opening forgets.
                assert!(manifest_of(&disk).matches("\"number\":").count() <= 3, "{life}");
                assert_eq!(db.recovery().expect("it was there").entries, 0);
            });
            let used_bytes = disk.used_bytes() - set_aside_bytes(&disk);
            assert!(used_bytes <= kept_bytes + 2 * SEGMENT + 8192, "{life}: {used_bytes} bytes");
            read
        })
        .collect();
    let most = opening_bytes.last().expect("a hundred");
    // Each log is searched for batches once. The number of an incarnation may have more digits than that of another.
    assert!(*most <= 2 * kept_bytes + 2 * SEGMENT + 4 * PAGE as u64 + 8192, "{opening_bytes:?}");
}

#[test]
fn processes_that_end_after_a_commit_leave_what_they_committed_and_no_more() {
    let disk = FaultyDisk::new(seed("processes_that_end_after_a_commit_leave_what_they_committed_and_no_more"));
    one_incarnation(&disk, End::Closed, |db| drop(db.create::<Account>().expect("the table is created")));
    for life in 0..100_u64 {
        let end = [End::Killed, End::CutOff, End::Closed][life as usize % 3];
        let read = one_incarnation(&disk, end, |db| {
            assert_eq!(rows(db).len() as u64, life);
            let accounts = db.table::<Account>().expect("it is there");
            db.session().transact(|tx| tx.insert(&accounts, &account(life))).expect("inserted");
        });
        // A header and at most a few batches for each log of each earlier process.
        let committed = (life + 1) * 2 * 5 * PAGE as u64;
        assert!(read <= committed * 2 + 2 * SEGMENT + 128 * 1024, "{life}: {read} bytes read");
        let bytes: u64 = segments(&disk).iter().map(|(_, bytes)| bytes).sum();
        // A power cut may undo truncations since the previous power cut.
        assert!(bytes <= committed + 10 * SEGMENT, "{life}: {bytes} bytes");
    }
    // A checkpoint makes all old segments obsolete.
    one_incarnation(&disk, End::Closed, |db| {
        db.checkpoint().expect("the disk works").expect("it is on disk");
    });
    one_incarnation(&disk, End::Killed, |db| {
        assert_eq!(rows(db).len(), 100);
        assert!(segments(&disk).len() <= 4, "{:?}", segments(&disk));
    });
}

/// The variable that passes the directory to the process below.
const DIRECTORY: &str = "SERIATIM_TEST_OPENED_DIRECTORY";

/// Not a test of its own: the process that the next test ends.
#[test]
fn a_process_that_is_ended() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let builder = Database::builder().path(directory).workers(2).segment_bytes(1 << 20).durability(Durability::Group);
    let db = builder.open().expect("it opens");
    println!("\nopened with {:?}", db.recovery().map(|recovery| recovery.notices.clone()));
    loop {
        std::thread::park();
    }
}

#[test]
fn a_real_process_that_is_ended_by_a_signal_leaves_one_segment() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let directory = std::env::temp_dir().join(format!("seriatim-ended-{}", std::process::id()));
    let program = std::env::current_exe().expect("the tests are a program");
    for life in 0..12 {
        let mut child = Command::new(&program)
            .args(["--exact", "format::a_process_that_is_ended", "--nocapture"])
            .env(DIRECTORY, &directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let opened = lines.map_while(Result::ok).find(|line| line.starts_with("opened with"));
        assert!(opened.is_some(), "life {life}: it did not open");
        if life % 2 == 0 {
            child.kill().expect("it runs");
        } else {
            let ended = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
            assert!(ended.success());
        }
        child.wait().expect("it has ended");
        let found = std::fs::read_dir(&directory).expect("it is there").map(|entry| entry.expect("it is read"));
        let segments: Vec<_> = found.filter(|entry| entry.file_name().to_string_lossy().starts_with("log-")).collect();
        assert_eq!(segments.len(), 1, "life {life}: {segments:?}");
        assert!(segments[0].metadata().expect("it is there").len() <= 1 << 20);
    }
    std::fs::remove_dir_all(directory).expect("it is ours");
}

#[test]
fn logs_of_many_short_lives_are_due_for_a_checkpoint_however_short_they_are() {
    let disk = FaultyDisk::new(seed("logs_of_many_short_lives_are_due_for_a_checkpoint_however_short_they_are"));
    one_incarnation(&disk, End::Closed, |db| drop(db.create::<Account>().expect("the table is created")));
    for life in 0..40_u64 {
        one_incarnation(&disk, End::Closed, |db| {
            let accounts = db.table::<Account>().expect("it is there");
            db.session().transact(|tx| tx.insert(&accounts, &account(life))).expect("inserted");
        });
    }
    assert!(segments(&disk).len() >= 80);
    let builder = small("auto", &disk).step_helpers(false).checkpoint_bytes(Some(1 << 30)).helper_threads(1);
    let db = builder.log_directories([".", "second"]).open().expect("it opens");
    let log = || db.statistics().log.expect("it is on disk");
    while log().checkpoints == 0 {
        assert_eq!(log().checkpoint_error, None);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(rows(&db).len(), 40);
    assert!(segments(&disk).len() <= 4, "{:?}", segments(&disk));
}
