//! Cases that only this crate can cause: a commit that panics, epochs that run out, texts that are too large.

use std::future::Future;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use seriatim_base::disk::{FaultyDisk, Operation, Times};
use seriatim_base::process::in_fork;
use seriatim_base::rng::{sample, seed};
use seriatim_base::{Epoch, Rng, Tid};
use seriatim_catalog::evolution::Evolution;
use seriatim_catalog::{ColumnDef, ColumnSet, ColumnType, Key, Table as _, TableBuilder, TableDef};
use seriatim_txn::{Mode, OnExists};

use super::checkpoint::take_within;
use super::epochs_left::EPOCH_LIMIT;
use super::persistence::Behind;
use super::throttle::{Limits, Load, SLICE, Watch};
use crate::operations::Operations as _;
use crate::table_ids::TABLES_MAX;
use crate::testing::{Handle, on};
use crate::{
    Checkpoint, DatabaseLocation, Durability, Engine, OpenError, SchemaError, Settings, StorageError, TableChange,
    TransactError, TxCore, available_protocols,
};
use seriatim_test_protocols::repairing::{self, MEANWHILE, SCRIPT};

#[derive(seriatim_macros::Table, Clone, Debug, PartialEq)]
#[table(name = "note", key(id), hash, crate = "seriatim_catalog")]
struct Note {
    id: u32,
    text: String,
    other: Option<String>,
}

fn note(id: u32, bytes: usize) -> Note {
    Note { id, text: "x".repeat(bytes), other: None }
}

/// A database on this disk, under the protocol that repairs.
fn repairing_on(disk: &FaultyDisk) -> Settings {
    Settings { protocol: repairing::NAME.to_owned(), ..on(disk) }
}

#[test]
fn a_panic_in_the_middle_of_a_commit_stops_the_log() {
    let disk = FaultyDisk::new(1);
    let db = repairing_on(&disk).open().expect("a new database opens");
    let notes = db.make::<Note>().expect("the table is created");
    let (mut session, mut other) = (db.runner(), db.runner());
    session.transact(|tx| tx.insert(&notes, &note(1, 1))).expect("inserted");
    let pending = other.submit(|tx| tx.insert(&notes, &note(2, 1)));
    SCRIPT.with_borrow_mut(|script| script.push_back(Vec::new()));
    MEANWHILE.with_borrow_mut(|meanwhile| meanwhile.push_back(Box::new(|| panic!("in a commit"))));
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(session.submit(|tx| tx.insert(&notes, &note(3, 1))))));
    assert!(panicked.is_err());
    // At once, although the session has not been used since: the wait must not depend on it.
    let error = pending.wait().expect_err("nothing more becomes durable");
    assert!(matches!(&error, TransactError::NotDurable { reason } if reason.contains("panicked")), "{error}");
    let error = other.transact(|tx| tx.insert(&notes, &note(4, 1))).expect_err("it has stopped");
    assert!(matches!(error, TransactError::LogStopped { .. }), "{error}");
    let found = other.transact(|tx| Ok(tx.get(&notes, &1)?.is_some()));
    assert!(found.expect("it was durable").value);
    drop((session, other, notes, db));
    let db = repairing_on(&disk).open().expect("it recovers");
    let notes = db.table::<Note>();
    let found = |id: u32| db.runner().transact(|tx| Ok(tx.get(&notes, &id)?.is_some())).expect("no conflict").value;
    assert_eq!([1, 3, 4].map(found), [true, false, false]);
}

/// Statistics and an opening tell that few ids of tables are left.
#[test]
fn a_database_that_has_few_ids_of_tables_left_tells_so_before_they_are_used_up() {
    let disk = FaultyDisk::new(4);
    let db = repairing_on(&disk).open().expect("a new database opens");
    let statistics = db.statistics();
    assert_eq!((statistics.tables_left, statistics.tables_warning), (TABLES_MAX, None));
    db.inner().tables_mut().ids.skip_to(TABLES_MAX as u32 - 100);
    let column = || ColumnDef::new("id", ColumnType::U8);
    let wide = (0..99).fold(TableDef::builder("wide").column(column()).key(["id"]), |table, number| {
        table.index(format!("index{number}"), ["id"])
    });
    db.declare(wide.finish().expect("a valid table")).expect("100 ids are left");
    assert_eq!(db.statistics().tables_left, 0);
    let refused = db.make::<Note>().map(drop).expect_err("none is left");
    assert!(matches!(refused, SchemaError::TooMany { most: TABLES_MAX }), "{refused}");
    drop(db);
    let db = repairing_on(&disk).open().expect("it is recovered");
    let left = TABLES_MAX - 100;
    assert_eq!(db.statistics().tables_left, left, "those that no table has are free");
    db.inner().tables_mut().ids.skip_to(TABLES_MAX as u32 - 7);
    let told = db.statistics().tables_warning.expect("few are left");
    assert!(told.starts_with("7 of 16383 tables and indexes"), "{told}");
}

/// Commits late in the range of epochs survive a power cut like others, and an opening tells that few are left.
#[test]
fn a_database_near_the_last_epoch_recovers_and_reports_how_many_are_left() {
    let disk = FaultyDisk::new(3);
    let mut first = EPOCH_LIMIT - 2_000;
    for id in 1..=4 {
        let db = repairing_on(&disk).open().expect("there are epochs left");
        let notes = if id == 1 { db.make::<Note>().expect("the table is created") } else { db.table::<Note>() };
        let notices = db.recovery().map_or(Vec::new(), |recovery| recovery.notices.clone());
        let is_told = notices.iter().any(|notice| notice.contains("epochs are left"));
        assert_eq!(is_told, id > 1, "{notices:?}");
        if id == 1 {
            assert!(db.statistics().log.expect("it is on disk").epochs_left > EPOCH_LIMIT - 1_000);
            db.inner().environment.epochs.skip_to(Epoch(first));
        }
        let epoch = db.statistics().log.expect("it is on disk").epoch;
        assert!(epoch >= first, "epochs do not go back: {epoch} after {first}");
        let mut session = db.runner();
        session.transact(|tx| tx.insert(&notes, &note(id, 1))).expect("there are epochs left");
        if id == 2 {
            db.checkpoint().expect("the disk works");
        }
        let log = db.statistics().log.expect("it is on disk");
        assert_eq!(log.epochs_left, EPOCH_LIMIT - log.epoch);
        first = log.epoch;
        let found =
            session.snapshot(|tx| (1..=id).map(|id| Ok(tx.get(&notes, &id)?.is_some())).collect::<Result<Vec<_>, _>>());
        assert_eq!(found.expect("a snapshot").value, vec![true; id as usize]);
        disk.crash();
    }
}

#[test]
fn a_log_whose_epochs_are_used_up_stops_and_says_so() {
    let disk = FaultyDisk::new(2);
    let db = repairing_on(&disk).open().expect("a new database opens");
    let notes = db.make::<Note>().expect("the table is created");
    db.inner().environment.epochs.skip_to(Epoch(EPOCH_LIMIT - 3));
    let mut session = db.runner();
    session.transact(|tx| tx.insert(&notes, &note(1, 1))).expect("there are some left");
    (0..3).for_each(|_| db.step());
    let error = session.transact(|tx| tx.insert(&notes, &note(2, 1))).expect_err("there are none left");
    assert!(matches!(&error, TransactError::LogStopped { reason } if reason.contains("epochs")), "{error}");
    drop((session, notes, db));
    // If closing used the last epoch, the database can no longer be written, but still be inspected.
    match repairing_on(&disk).open() {
        Ok(db) => (0..4).for_each(|_| db.step()),
        Err(error) => assert!(matches!(error, OpenError::Invalid(_)), "{error}"),
    }
    let location = DatabaseLocation { directory: "/db".into(), inspect: true, disk: Some(Arc::new(disk.mount())) };
    let db = Settings { workers: 2, location: Some(location), ..Settings::default() }.open().expect("it is read");
    let notes = db.table::<Note>();
    assert!(db.runner().snapshot(|tx| Ok(tx.get(&notes, &1)?.is_some())).expect("a snapshot").value);
}

/// Without a ticker no epoch ends by itself. A counter that ran over would put commits into an epoch that has not
/// begun.
#[test]
fn commits_that_depend_on_each_other_end_their_epoch_before_its_tids_run_out() {
    for protocol in ["dbx", "nowait", "cicada"] {
        let options = Settings { protocol: protocol.to_owned(), workers: 2, step_helpers: true, ..Settings::default() };
        let db = options.open().expect("a database in memory opens");
        let notes = db.make::<Note>().expect("the table is created");
        let (mut session, mut late, mut first) = (db.runner(), 0, None);
        session.transact(|tx| tx.insert(&notes, &note(1, 1))).expect("inserted");
        for _ in 0..(1 << (Tid::COUNTER_BITS - 1)) + 16 {
            let committed = session.transact(|tx| tx.put(&notes, &note(1, 1))).expect("no conflict");
            let epoch = committed.receipt.epoch();
            first.get_or_insert(epoch);
            late += u32::from(db.inner().environment.epochs.current() > epoch);
        }
        let current = db.inner().environment.epochs.current();
        assert_eq!(late, 2, "{protocol}: each half of the commits ended an epoch");
        assert_eq!(first.map(|first| first.0 + 2), Some(current.0), "{protocol}");
    }
}

#[test]
fn a_checkpoint_and_a_check_have_helpers_at_the_same_time_beside_all_workers() {
    let disk = FaultyDisk::new(4);
    for helpers in [1, 8, 64] {
        let db = Settings { helper_threads: Some(helpers), ..repairing_on(&disk) }.open().expect("it opens");
        let notes = if helpers == 1 { db.make::<Note>().expect("the table is created") } else { db.table::<Note>() };
        let (mut one, mut other) = (db.runner(), db.runner());
        one.transact(|tx| tx.put(&notes, &note(1, helpers))).expect("a worker is free");
        // Both workers are registered from now on.
        one.begin(Mode::ReadWrite).expect("a worker is free");
        other.begin(Mode::ReadWrite).expect("another is free");
        one.end_explicit();
        other.end_explicit();
        let environment = &db.inner().environment;
        let helpers = helpers.min(8);
        {
            // As the other of the two holds them while it is at work.
            let held: Vec<_> = (0..helpers).map(|_| environment.core().expect("it is set aside")).collect();
            assert_eq!(db.check_indexes().expect("nothing is wrong")[0].rows, 1);
            assert_eq!(db.checkpoint().expect("the disk works").expect("it is on disk").rows, 1);
            drop(held);
        }
        // No helper holds them; otherwise the error would be reported.
        let held: Vec<_> = std::iter::from_fn(|| environment.core()).collect();
        assert_eq!(held.len(), 16, "two sets, however many are wanted now");
        let error = db.checkpoint().expect_err("no worker is left").to_string();
        assert!(error.contains("no worker was left"), "{error}");
        let error = db.check_indexes().expect_err("no worker is left");
        assert!(error.contains("no worker was left"), "{error}");
        assert_eq!(db.statistics().log.expect("it is on disk").checkpoints_failed, 1);
    }
}

#[test]
fn a_logger_ends_an_epoch_only_if_a_caller_waits_for_it() {
    for durability in [Durability::Group, Durability::Sync] {
        let disk = FaultyDisk::new(31);
        let db = Settings { durability: Some(durability), ..repairing_on(&disk) }.open().expect("it opens");
        let notes = db.make::<Note>().expect("the table is created");
        let (epoch, step) = (
            || db.statistics().log.expect("it is on disk").epoch,
            || db.inner().persistence.as_ref().expect("it is on disk").step(),
        );
        let (mut session, begun) = (db.runner(), epoch());
        let mut pending = session.submit(|tx| tx.insert(&notes, &note(1, 1)));
        step();
        if durability == Durability::Group {
            assert!(!pending.is_ready() && epoch() == begun, "nobody waits for the end of its epoch");
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut pending).poll(&mut context).is_pending());
            step();
        }
        assert!(pending.is_ready() && epoch() == begun + 1);
        step();
        assert_eq!(epoch(), begun + 1, "the waiting caller was answered");
    }
}

#[test]
fn a_disk_is_behind_while_the_durable_point_has_stood_still_for_long() {
    let behind = Arc::new(Behind::default());
    let mut look = Arc::clone(&behind).watch(Duration::from_millis(10));
    // The durable epoch is always a few epochs behind.
    for epoch in 1..100 {
        look(Epoch(epoch + 4), Epoch(epoch));
        assert!(!behind.is_so());
    }
    let stuck: Vec<bool> = (100..150)
        .map(|epoch| {
            look(Epoch(epoch), Epoch(99));
            behind.is_so()
        })
        .collect();
    let first = stuck.iter().position(|is_behind| *is_behind).expect("it stands still");
    assert!((5..20).contains(&first) && stuck[first..].iter().all(|is_behind| *is_behind), "{stuck:?}");
    look(Epoch(150), Epoch(149));
    assert!(!behind.is_so());
    // Flushes may end epochs faster than the ticker.
    for epoch in (1000..100_000).step_by(1000) {
        look(Epoch(epoch), Epoch(epoch - 1));
        assert!(!behind.is_so());
    }
}

#[test]
fn a_share_that_is_none_is_refused() {
    for percent in [0, 101] {
        let error = Settings { checkpoint_share: percent, ..Settings::default() }.open().expect_err("it is no share");
        assert!(
            matches!(
                &error,
                OpenError::Setting { setting: "checkpoint_share", permitted, .. } if permitted == "1 to 100"
            ),
            "{error}"
        );
    }
}

#[test]
fn a_text_that_fits_no_log_entry_is_refused_with_its_size() {
    let disk = FaultyDisk::new(3);
    let db = repairing_on(&disk).open().expect("a new database opens");
    let notes = db.make::<Note>().expect("the table is created");
    let most = notes.set.text_bytes_max();
    assert_eq!(most, 1 << 16);
    let mut session = db.runner();
    session.transact(|tx| tx.insert(&notes, &note(1, most))).expect("it fits");
    let check = |error: TransactError| {
        let expected =
            format!("a text of {} bytes for table {}, whose texts have at most {most}", most + 1, Note::NAME);
        assert!(matches!(error, TransactError::TooLarge { .. }) && error.to_string() == expected, "{error}");
        assert!(!error.is_retryable() && !error.is_maybe_committed());
    };
    check(session.transact(|tx| tx.insert(&notes, &note(2, most + 1))).expect_err("it does not fit"));
    check(session.transact(|tx| tx.put(&notes, &note(1, most + 1))).expect_err("it does not fit"));
    let update = session.transact(|tx| {
        let text = "x".repeat(most + 1);
        Ok(tx.update(&notes, &1, |row| row.set_text(&text))?.transpose()?.is_some())
    });
    check(update.expect_err("it does not fit"));
    session.begin(Mode::ReadWrite).expect("a worker is free");
    let abort = session.tx.insert(&notes, &note(3, most + 1)).expect_err("it does not fit");
    check(session.tx.explain(&abort));
    session.end_explicit();
    session.transact(|tx| tx.insert(&notes, &note(2, 1))).expect("the next one is as any other");
}

/// A watch by which all work takes the same time, and which calls a function in each sleep.
struct Fake<'f> {
    work: Duration,
    /// Percent of its time that a thread may work beyond its share.
    idle: f64,
    passed: Mutex<Passed<'f>>,
}

struct Passed<'f> {
    time: Duration,
    readings: u32,
    sleeps: Vec<Duration>,
    meanwhile: Box<dyn FnMut() + Send + 'f>,
}

impl<'f> Fake<'f> {
    fn new(work: Duration, meanwhile: impl FnMut() + Send + 'f) -> Fake<'f> {
        let meanwhile = Box::new(meanwhile);
        Fake {
            work,
            idle: 0.0,
            passed: Mutex::new(Passed { time: Duration::ZERO, readings: 0, sleeps: Vec::new(), meanwhile }),
        }
    }

    fn passed(self) -> Passed<'f> {
        self.passed.into_inner().expect("nothing panicked")
    }
}

impl Watch for Fake<'_> {
    fn time(&self) -> Duration {
        let mut passed = self.passed.lock().expect("nothing panicked");
        // Every other reading is the end of work.
        let work = if passed.readings.is_multiple_of(2) { Duration::ZERO } else { self.work };
        passed.time += work;
        passed.readings += 1;
        passed.time
    }

    fn sleep(&self, time: Duration) {
        let mut passed = self.passed.lock().expect("nothing panicked");
        passed.time += time;
        passed.sleeps.push(time);
        (passed.meanwhile)();
    }

    fn idle(&self) -> f64 {
        self.idle
    }
}

fn take(db: &Engine, share: u32, bytes_per_second: Option<u64>, watch: &Fake<'_>) -> Result<Checkpoint, StorageError> {
    let persistence = db.inner().persistence.as_ref().expect("it is on disk");
    take_within(db.inner(), persistence, Limits { share, bytes_per_second, late_after: u64::MAX, watch })
}

/// A text that cannot be compressed.
fn noise(rng: &mut Rng, bytes: usize) -> String {
    let eight = |_| rng.next_u64().to_le_bytes().map(|byte| (0x20 + byte % 0x5e) as char);
    (0..bytes.div_ceil(8)).flat_map(eight).take(bytes).collect()
}

fn with_notes(settings: Settings, rng: &mut Rng, count: u32, bytes: usize) -> (Engine, Handle<Note>) {
    let settings = Settings { durability: Some(Durability::Async), checkpoint_bytes: None, ..settings };
    let db = settings.open().expect("it opens");
    let notes = db.make::<Note>().expect("the table is created");
    for id in 0..count {
        let wide = Note { text: noise(rng, bytes), ..note(id, 0) };
        db.runner().transact(|tx| tx.insert(&notes, &wide)).expect("inserted");
        db.step();
    }
    (db, notes)
}

/// The notes with these ids, if they exist.
fn read_notes(db: &Engine, ids: impl Iterator<Item = u32> + Clone) -> Vec<Option<Note>> {
    let notes = db.table::<Note>();
    let get = |tx: &TxCore, id| tx.get(&notes, &id);
    let read = db.runner().snapshot(|tx| ids.clone().map(|id| get(tx, id)).collect::<Result<Vec<_>, _>>());
    read.expect("a snapshot").value
}

#[test]
fn a_checkpoint_works_for_its_share_of_the_time_however_long_its_work_takes() {
    let mut rng = Rng::from_seed(4);
    for (work, share) in [(2, 20), (40, 20), (1000, 20), (50, 1), (50, 100)] {
        let disk = FaultyDisk::new(4);
        let (db, _notes) = with_notes(repairing_on(&disk), &mut rng, 300, 10);
        let watch = Fake::new(Duration::from_millis(work), || ());
        take(&db, share, None, &watch).expect("the disk works");
        let passed = watch.passed();
        // One at the beginning, then one before each rest and one after it.
        let rests = (passed.readings - 1) / 2;
        assert!(rests >= 3, "{rests} chunks");
        let slept: Duration = passed.sleeps.iter().sum();
        assert_eq!(slept * share, rests * Duration::from_millis(work) * (100 - share), "{work} ms, {share} %");
        assert!(passed.sleeps.iter().all(|sleep| *sleep <= SLICE), "closing would wait");
    }
}

#[test]
fn a_checkpoint_works_as_long_as_processors_are_idle() {
    let mut rng = Rng::from_seed(9);
    for (idle, share) in [(-150.0, 10), (5.0, 10), (25.0, 25), (80.0, 80), (100.0, 100), (400.0, 100)] {
        let disk = FaultyDisk::new(9);
        let (db, _notes) = with_notes(repairing_on(&disk), &mut rng, 300, 10);
        let watch = Fake { idle, ..Fake::new(Duration::from_millis(40), || ()) };
        take(&db, 10, None, &watch).expect("the disk works");
        let passed = watch.passed();
        let rests = (passed.readings - 1) / 2;
        let slept: Duration = passed.sleeps.iter().sum();
        assert_eq!(slept * share, rests * Duration::from_millis(40) * (100 - share), "{idle} % idle");
    }
}

#[test]
fn the_load_is_what_workers_and_the_log_take_on_average() {
    let at = Duration::from_millis;
    let mut load = Load::new(0, at(0), at(0));
    let mut look = |busy, time, flushed| load.look(|| busy, at(time), || at(flushed));
    assert_eq!(look(0, 100, 0), 0.0, "nobody is there");
    // A busy worker and its client take two processors; a log that flushes all the time takes one.
    let soon = look(1, 110, 0);
    assert!(soon > 0.0 && soon < 2.0, "{soon}");
    assert_eq!(look(1, 200, 0), 2.0);
    assert_eq!(look(2, 200, 0), 2.0, "no time has passed");
    assert_eq!(look(0, 300, 100), 1.0);
    assert_eq!(look(0, 400, 100), 0.0);
}

/// Rows that are inserted ahead of the walk, or change before it reaches them, are in the log as whole rows,
/// followed by patches.
#[test]
fn a_checkpoint_leaves_out_what_has_changed_since_it_began() {
    const ROWS: u32 = 300;
    const TEXT: u64 = 200;
    let mut rng = Rng::from_seed(8);
    for protocol in sample(available_protocols(), 3, seed("a_checkpoint_leaves_out_what_has_changed_since_it_began")) {
        let disk = FaultyDisk::new(8);
        let settings = || Settings { protocol: protocol.name.to_owned(), workers: 3, ..on(&disk) };
        let (db, notes) = with_notes(settings(), &mut rng, ROWS, TEXT as usize);
        // The bytes that it logs.
        let logged = |db: &Engine, notes: &Handle<Note>, ids: std::ops::Range<u32>, mark: &str| {
            db.flush().expect("the disk works");
            let bytes = || db.statistics().log.expect("it is on disk").payload_bytes;
            let before = bytes();
            let written = db.runner().transact(|tx| {
                ids.clone().try_for_each(|id| tx.update(notes, &id, |row| row.set_other(Some(mark))).map(drop))
            });
            written.expect("no conflict");
            db.flush().expect("the disk works");
            bytes() - before
        };
        let mut rests = 0;
        let watch = Fake::new(Duration::from_millis(4), || {
            rests += 1;
            // The first is after the catalogue.
            if rests == 2 {
                let first = logged(&db, &notes, 0..ROWS, "a");
                assert!(first > u64::from(ROWS) * TEXT, "{}: rows, not {first} bytes of patches", protocol.name);
                let second = logged(&db, &notes, 0..ROWS, "b");
                assert!(second < first / 4, "{}: patches, not {second} bytes of rows", protocol.name);
                let inserted = |tx: &TxCore| (1000..1200).try_for_each(|id| tx.insert(&notes, &note(id, 10)));
                db.runner().transact(inserted).expect("no conflict");
            }
        });
        let checkpoint = take(&db, 50, None, &watch).expect("the disk works");
        // The rows that were passed before the first rest.
        assert!((1..100).contains(&checkpoint.rows), "{}: {} rows", protocol.name, checkpoint.rows);
        let patch = logged(&db, &notes, 0..1, "c");
        assert!(patch < TEXT, "{}: nothing is being taken any more: {patch} bytes", protocol.name);
        let all = |db: &Engine| read_notes(db, (0..ROWS).chain(1000..1200));
        let before = all(&db);
        assert!(before.iter().all(Option::is_some));
        drop(watch);
        drop((notes, db));
        disk.crash();
        let db = settings().open().expect("it recovers");
        assert_eq!(db.recovery().expect("it was there").checkpoint_rows, checkpoint.rows);
        assert_eq!(all(&db), before, "{}", protocol.name);
    }
}

#[test]
fn a_checkpoint_that_is_late_rests_no_more() {
    let mut rng = Rng::from_seed(6);
    let disk = FaultyDisk::new(6);
    let (db, notes) = with_notes(repairing_on(&disk), &mut rng, 300, 10);
    let persistence = db.inner().persistence.as_ref().expect("it is on disk");
    let write = |id| {
        db.runner().transact(|tx| tx.put(&notes, &note(id, 1))).expect("written");
        db.step();
    };
    let mut rests = 0;
    // The writes during its first rest make it late many times over.
    let watch = Fake::new(Duration::from_millis(4), || {
        rests += 1;
        write(rests);
    });
    take_within(db.inner(), persistence, Limits { share: 50, bytes_per_second: None, late_after: 1, watch: &watch })
        .expect("the disk works");
    let passed = watch.passed();
    assert_eq!(passed.sleeps.len(), 1);
    assert!(passed.readings > 6, "there were chunks to rest after");
}

#[test]
#[ignore = "nightly: seconds"]
fn a_checkpoint_that_waits_holds_no_memory_back_and_sees_what_is_there_all_the_time() {
    let seed = seed("a_checkpoint_that_waits_holds_no_memory_back_and_sees_what_is_there_all_the_time");
    let mut rng = Rng::from_seed(seed);
    for protocol in sample(available_protocols(), 3, seed) {
        let disk = FaultyDisk::new(5);
        let settings = || Settings { protocol: protocol.name.to_owned(), workers: 3, ..on(&disk) };
        // Several of them make a block.
        let (db, notes) = with_notes(settings(), &mut rng, 60, 50_000);
        let mut probe = db.inner().environment.core().expect("a worker is free").local;
        let (mut waits, mut choice) = (0, rng.clone());
        let watch = Fake::new(Duration::ZERO, || {
            waits += 1;
            probe.enter();
            probe.defer([waits, 0, 0]);
            probe.leave();
            probe.collect();
            assert_eq!(probe.ready(), Some([waits, 0, 0]), "{}: somebody is online", protocol.name);
            let (id, text) = (choice.below(60) as u32, noise(&mut choice, 10));
            let changed = db.runner().transact(|tx| match waits % 3 {
                0 => tx.delete(&notes, &id).map(drop),
                1 => tx.put(&notes, &Note { text: text.clone(), ..note(id, 0) }).map(drop),
                _ => tx.put(&notes, &Note { text: text.clone(), ..note(id + 60, 0) }).map(drop),
            });
            changed.expect("no conflict");
            db.step();
        });
        let checkpoint = take(&db, 100, Some(1 << 20), &watch).expect("the disk works");
        assert!(watch.passed().sleeps.len() > 20, "there were waits");
        assert!(waits > 20 && checkpoint.bytes > 1 << 19);
        let all = |db: &Engine| read_notes(db, 0..120);
        db.flush().expect("the disk works");
        let before = all(&db);
        drop((probe, notes, db));
        disk.crash();
        let db = settings().open().expect("it recovers");
        assert!(db.recovery().is_some_and(|recovery| recovery.checkpoint_rows > 0));
        assert_eq!(all(&db), before, "{}", protocol.name);
    }
}

#[test]
fn closing_ends_the_rest_of_a_checkpoint_and_its_wait_for_the_rate() {
    let mut rng = Rng::from_seed(6);
    for (share, rate) in [(1, None), (100, Some(1000))] {
        let disk = FaultyDisk::new(6);
        let (db, _notes) = with_notes(repairing_on(&disk), &mut rng, 20, 50_000);
        let mut sleeps = 0;
        let watch = Fake::new(Duration::from_secs(1), || {
            sleeps += 1;
            if sleeps == 3 {
                db.inner().persistence.as_ref().expect("it is on disk").begin_closing();
            }
        });
        let error = take(&db, share, rate, &watch).expect_err("it is given up");
        assert!(error.to_string().contains("is being closed"), "{error}");
        assert_eq!(watch.passed().sleeps.len(), 3);
    }
}

/// The lock of the loggers is held, and a snapshot would have to be made beyond what the disk has said.
#[test]
fn a_fork_waits_for_no_lock_of_the_log() {
    let disk = FaultyDisk::new(seed("forked"));
    let protocol_options = vec![("durable_snapshots".to_owned(), 1)];
    let db = Settings { protocol: "dbx-tc".to_owned(), protocol_options, ..on(&disk) }.open();
    let db = db.expect("a new database opens");
    let epochs = &db.inner().environment.epochs;
    while !epochs.are_far() {
        epochs.advance(&db.inner().environment.htm);
    }
    let inner = Arc::clone(db.inner());
    let loggers = inner.persistence.as_ref().expect("it is on a disk").loggers();
    let mut all = Some(db.clone());
    in_fork(|| {
        let begun = db.runner().begin(Mode::ReadOnly);
        assert!(matches!(begun, Err(TransactError::Forked)), "{begun:?}");
        db.step();
        assert!(db.clone().close().is_ok());
        drop(all.take());
    });
    drop(loggers);
}

#[derive(seriatim_macros::Table, Clone, Debug, PartialEq)]
#[table(name = "rated", key(rate), crate = "seriatim_catalog")]
struct Rated {
    rate: f64,
}

/// Earlier revisions encoded keys by the total order of IEEE 754.
#[test]
fn a_row_at_a_key_that_no_lookup_finds_is_refused_when_the_database_is_opened() {
    for rate in [-0.0, f64::from_bits(f64::NAN.to_bits() | 1), -f64::NAN, 0.0, f64::NAN, -1.0] {
        let disk = FaultyDisk::new(seed("floats"));
        let db = on(&disk).open().expect("a new database opens");
        let table = db.make::<Rated>().expect("the table is created");
        let bits = rate.to_bits();
        let before = Key::Word8(if bits >> 63 == 0 { bits | 1 << 63 } else { !bits });
        let insert = |tx: &TxCore| tx.insert_at(&table.set, before, |row| Rated { rate }.encode(row), OnExists::Refuse);
        assert!(*db.runner().transact(insert).expect("it runs alone"));
        drop(table);
        db.close().expect("the disk works");
        let opened = on(&disk).open();
        let is_one_key = rate == -1.0 || [0.0, f64::NAN].iter().any(|one| one.to_bits() == bits);
        match opened {
            Ok(_) => assert!(is_one_key, "{rate:?}"),
            Err(error) => {
                assert!(!is_one_key, "{error}");
                assert!(error.to_string().contains("\"rated\" has a row at key rate "), "{error}");
            }
        }
    }
}

fn table(name: &'static str) -> TableBuilder {
    let column = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
    TableDef::builder(name).column(column("group")).column(column("number")).key(["group", "number"])
}

#[test]
fn tables_that_are_not_created_give_their_memory_back() {
    let disk = FaultyDisk::new(41);
    let db = Settings { memory_limit: Some(64 << 20), ..on(&disk) }.open().expect("a new database opens");
    let finished = |table: TableBuilder| table.finish().expect("a table");
    let lines = db.create(finished(table("line"))).expect("the disk works");
    let absent = db.runner().transact(|tx| Ok(tx.get_at(&lines, Key::Word16(0), ColumnSet::ALL)?.is_none()));
    assert!(*absent.expect("it runs alone"));
    drop(lines);
    let inner = db.inner();
    let kept = || (inner.environment.memory.in_use_bytes(), inner.environment.census.bytes());
    let (hashed, indexed) = (|| table("hashed").hash(), || table("indexed").index("by_number", ["number"]));
    let clustered = finished(table("line").cluster(["group"]));
    let before = kept();
    for _ in 0..3 {
        let refused = db.declare_all(vec![finished(indexed()), finished(hashed().capacity(100_000_000))]);
        assert!(matches!(refused, Err(SchemaError::OutOfMemory { .. })), "{refused:?}");
        assert_eq!(kept(), before, "there is no room for the second");
    }
    db.declare_all(vec![finished(hashed()), finished(indexed())]).expect("the disk works");
    assert!(kept() > before);
    let towards = |wanted: &TableDef| {
        let set = db.find("line").expect("it exists");
        let evolution = Evolution::towards(&set.definition, wanted, &[]).expect("only the clustering differs");
        db.change_tables(&db.changing().expect("nobody changes tables"), vec![TableChange::Evolve(Box::new(evolution))])
    };
    assert_eq!(*towards(&clustered).expect("the disk works")[0].definition, clustered);

    let (before, _) = kept();
    disk.fail(Operation::Write, 1, Times::Once, ErrorKind::Other);
    for number in 0..3 {
        let large = || TableBuilder::capacity(table("large").hash(), 100_000);
        let refused = db.declare_all(vec![finished(table("small")), finished(large())]);
        assert!(matches!(refused, Err(SchemaError::Storage(_))), "{refused:?}");
        let refused = towards(&finished(table("line"))).map(drop);
        assert!(matches!(refused, Err(SchemaError::Storage(_))), "{refused:?}");
        let grown = kept().0 - before;
        assert!(grown < 64 << 10, "{number}: rows of the catalogue, which cannot become durable: {grown} bytes");
    }
}
