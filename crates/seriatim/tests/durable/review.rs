//! Scenarios from an adversarial review of durability: none may lose or contradict what was acknowledged.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use seriatim::procedure::ExecutionMode;
use seriatim::{
    Abort, Database, Handle, RetryPolicy, Table, TransactError, Tx, available_protocols, procedure, procedures,
};
use seriatim_base::Rng;
use seriatim_base::disk::{Around, Disk, DiskFile, FaultyDisk, Opening, Operation, Times};

use crate::accounts::{Account, small};

fn account(id: u64) -> Account {
    Account { id, owner: id as u32 % 7, branch: 0, balance: 100, note: String::new() }
}

fn has(db: &Database, id: u64) -> bool {
    let accounts = db.table::<Account>().expect("the table is there");
    db.session().snapshot(|tx| Ok(tx.get(&accounts, &id)?.is_some())).expect("it is durable").value
}

#[test]
fn recovered_data_survives_the_next_power_cut() {
    for seed in 0..40 {
        println!("seed {seed}");
        let disk = FaultyDisk::new(seed);
        let db = small("auto", &disk).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
        let pending = session.submit(|tx| tx.insert(&accounts, &account(2)));
        // The batch is written, but not flushed.
        disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
        db.step();
        db.step();
        pending.wait().expect_err("the log has stopped");
        drop((session, accounts, db));
        // The process ends, the machine does not: the page cache still has the batch.
        let db = small("auto", &disk).open().expect("it recovers");
        let kept = has(&db, 2);
        drop(db);
        disk.crash();
        let db = small("auto", &disk).open().expect("it recovers again");
        assert!(has(&db, 1));
        assert_eq!(has(&db, 2), kept, "it was read, as durable");
    }
}

#[test]
fn a_log_whose_disk_is_not_mounted_is_not_an_empty_log() {
    let disk = FaultyDisk::new(7);
    disk.create_dir_all("/log".as_ref()).expect("no faults");
    disk.sync_dir("/".as_ref()).expect("no faults");
    let open = || small("auto", &disk).log_directories(["/log"]).open();
    let db = open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    drop((accounts, db));
    // The mount point exists, but is empty.
    disk.remove_dir_all("/log".as_ref()).expect("no faults");
    disk.create_dir_all("/log".as_ref()).expect("no faults");
    disk.sync_dir("/".as_ref()).expect("no faults");
    if let Ok(db) = open() {
        assert!(has(&db, 1), "an acknowledged row is gone, without a word, and void for ever");
    }
}

#[test]
fn tids_of_commits_that_logged_nothing_are_not_used_again() {
    for protocol in available_protocols() {
        let disk = FaultyDisk::new(7);
        let db = small(protocol.name, &disk).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
        for _ in 0..100 {
            db.step();
        }
        let same = session.transact(|tx| tx.update(&accounts, &1, |row| row.set_balance(100))).expect("updated");
        disk.crash();
        drop((session, accounts, db));
        let db = small(protocol.name, &disk).open().expect("it recovers");
        let accounts = db.table::<Account>().expect("the table is there");
        let next = db.session().transact(|tx| tx.update(&accounts, &1, |row| row.set_balance(7))).expect("updated");
        assert!(
            next.receipt.tid > same.receipt.tid,
            "{}: {} after {}",
            protocol.name,
            next.receipt.tid,
            same.receipt.tid
        );
    }
}

/// The segment in which something was logged, and the offset of its last byte that is not zero.
fn end_of_log(disk: &FaultyDisk, directory: &Path) -> (PathBuf, u64) {
    let found = disk.list(directory).expect("no faults");
    let segments = found.into_iter().filter(|found| found.name.to_string_lossy().starts_with("log-"));
    let ends = segments.map(|found| {
        let path = directory.join(found.name);
        let mut bytes = vec![0; found.bytes as usize];
        disk.open(&path, Opening::Read).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("no faults");
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0);
        (path, end as u64)
    });
    ends.max_by_key(|(_, end)| *end).expect("there is a log")
}

#[test]
fn damage_at_the_end_of_a_log_that_was_closed_is_not_a_torn_write() {
    for loggers in [1, 2] {
        let disk = FaultyDisk::new(7);
        let open = || small("auto", &disk).log_directories(vec!["/db"; loggers]).open();
        let db = open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
        session.transact(|tx| tx.insert(&accounts, &account(2))).expect("inserted");
        drop((session, accounts, db));
        disk.crash();
        let sound = disk.fork(1);
        assert!(has(&small("auto", &sound).open().expect("all is there"), 2));
        let (path, end) = end_of_log(&disk, Path::new("/db"));
        disk.zero(&path, end / 4096 * 4096, 4096).expect("a page");
        let error = open().expect_err("what was acknowledged is damaged");
        let name = path.file_name().expect("a segment's name").to_string_lossy();
        assert!(error.to_string().contains(&*name), "{error}");
    }
}

/// A disk that calls `meddle` when a file is opened.
struct Meddling<F> {
    disk: FaultyDisk,
    meddle: Mutex<F>,
}

impl<F> fmt::Debug for Meddling<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddling")
    }
}

impl<F: FnMut(&Path) + Send> Around for Meddling<F> {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        (self.meddle.lock().unwrap_or_else(PoisonError::into_inner))(path);
        self.disk.open(path, how)
    }
}

#[test]
fn a_reader_of_a_database_in_use_sees_a_state_without_gaps() {
    let mut restarts = 0;
    for at in 1..40 {
        let disk = FaultyDisk::new(7);
        for directory in ["/one", "/two"] {
            disk.create_dir_all(directory.as_ref()).expect("no faults");
        }
        let builder = small("auto", &disk).segment_bytes(12 << 10).log_directories(["/one", "/two"]);
        let db = builder.open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut sessions = [db.session(), db.session()];
        let mut next = 0;
        let mut insert = move |rows: u64| {
            for _ in 0..rows {
                let new = Account { note: "x".repeat(900), ..account(next) };
                // Both sessions insert: they use different logs.
                let session = &mut sessions[(next % 2) as usize];
                session.transact(|tx| tx.insert(&accounts, &new)).expect("inserted");
                next += 1;
            }
        };
        insert(20);
        // From here on the oldest segments may be deleted.
        db.checkpoint().expect("no faults");
        insert(20);
        let mut opened = 0;
        let counted = Arc::new(AtomicU64::new(0));
        let meddle = {
            let counted = Arc::clone(&counted);
            move |_: &Path| {
                counted.fetch_add(1, Ordering::Relaxed);
                opened += 1;
                if opened == at {
                    insert(10);
                    db.checkpoint().expect("no faults");
                    insert(2);
                } else if opened > at && opened < at + 8 {
                    insert(1);
                }
            }
        };
        let meddling = Meddling { disk: disk.mount(), meddle: Mutex::new(meddle) };
        let seen = Database::builder().workers(4).step_helpers(true).inspect("/db").disk(Arc::new(meddling)).open();
        let seen = seen.unwrap_or_else(|error| panic!("looked at the {at}th file: {error}"));
        let rows = (0..100).map(|id| has(&seen, id)).collect::<Vec<_>>();
        let gap = rows.iter().position(|there| !there).expect("there are fewer");
        assert!(gap >= 40 && !rows[gap..].contains(&true), "looked at the {at}th file: {rows:?}");
        restarts += u64::from(gap >= 50 && counted.load(Ordering::Relaxed) > at);
    }
    assert!(restarts > 5, "a checkpoint came in between {restarts} times only");
}

#[test]
fn a_checkpoint_that_panics_counts_as_failed_and_is_tried_again() {
    let disk = FaultyDisk::new(7);
    let mut panics = 0;
    let meddle = move |path: &Path| {
        if panics < 2 && path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("checkpoint-")) {
            panics += 1;
            panic!("deliberately");
        }
    };
    let meddling = Meddling { disk: disk.mount(), meddle: Mutex::new(meddle) };
    let db = small("auto", &disk).disk(Arc::new(meddling)).checkpoint_bytes(Some(1)).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    let log = || db.statistics().log.expect("it is on disk");
    while log().checkpoints == 0 {
        db.step();
        assert_ne!(log().checkpoint_error.is_some(), log().checkpoints > 0);
        assert!(log().checkpoint_error.is_none_or(|error| error.contains("panicked")));
    }
    assert_eq!((log().checkpoints_failed, log().checkpoints), (2, 1));
}

#[test]
#[ignore = "nightly: ten seconds"]
fn indexes_are_rebuilt_whatever_the_retry_policy() {
    for protocol in available_protocols() {
        for seed in 0..2 {
            let disk = FaultyDisk::new(seed);
            let open = || {
                let builder = Database::builder().protocol(protocol.name).workers(4).retry(RetryPolicy::never());
                builder.path("/db").disk(Arc::new(disk.mount())).open()
            };
            let db = open().expect("a new database opens");
            let accounts = db.create::<Account>().expect("the table is created");
            let mut session = db.session();
            let fill = session.transact(|tx| (0..3000).try_for_each(|id| tx.insert(&accounts, &account(id))));
            fill.expect("no conflict");
            drop((session, accounts, db));
            open().unwrap_or_else(|error| panic!("{} does not open: {error}", protocol.name));
        }
    }
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "counter", key(id), hash)]
struct Counter {
    id: u32,
    count: u32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "label", key(id), hash)]
struct Label {
    id: u32,
    text: u32,
}

/// A piece that writes, and one that reads.
#[procedure]
fn count_and_label(tx: &Tx, id: u32) -> Result<Option<u32>, Abort> {
    let counted = tx.update::<Counter>(id, |counter| {
        counter.count += 1;
        counter.count
    })?;
    let Some(label) = tx.get::<Label>(counted)? else { return Ok(None) };
    Ok(Some(label.text))
}

#[test]
fn a_piece_that_only_reads_does_not_need_the_log() {
    let disk = FaultyDisk::new(7);
    let db = small("auto", &disk)
        .execution_mode(ExecutionMode::Pieces)
        .log_backlog_bytes(8)
        .open()
        .expect("a new database opens");
    let counters = db.create::<Counter>().expect("the table is created");
    let labels = db.create::<Label>().expect("the table is created");
    db.register(procedures![count_and_label]).expect("a sound set");
    let mut session = db.session();
    let load = session.transact(|tx| {
        tx.insert(&counters, &Counter { id: 0, count: 0 })?;
        tx.insert(&labels, &Label { id: 1, text: 10 })
    });
    load.expect("empty tables");
    db.flush().expect("the disk works");
    assert_eq!(session.call(count_and_label, &0).expect("the first piece is committed").value, Some(10));
}

#[test]
fn reads_succeed_while_the_disk_is_full() {
    let disk = FaultyDisk::new(7);
    let db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    session.transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    disk.set_capacity(disk.used_bytes());
    let mut id = 2;
    let refused = loop {
        let pending = session.submit(|tx| tx.insert(&accounts, &Account { note: "x".repeat(900), ..account(id) }));
        db.step();
        if let Ok(Err(error)) = pending.poll() {
            break error;
        }
        id += 1;
        assert!(id < 1000, "the disk is never full");
    };
    assert!(matches!(refused, TransactError::DiskFull { .. }), "{refused}");
    let read = session.transact(|tx| Ok(tx.require(&accounts, &1)?.balance()));
    assert_eq!(read.expect("a transaction that writes nothing needs no space").value, 100);
}

/// The states that a run may leave, with or without a power cut.
struct Oracle {
    /// The state after each commit, from that of the last recovery on.
    states: Vec<BTreeMap<u64, Account>>,
    acknowledged: usize,
}

fn all(db: &Database) -> BTreeMap<u64, Account> {
    let accounts = db.table::<Account>().expect("the table is there");
    let by_owner = accounts.index(Account::BY_OWNER);
    let by_branch = accounts.index(Account::BY_BRANCH);
    let read = db.session().transact(|tx| {
        let mut rows = BTreeMap::new();
        for owner in 0..8u32 {
            for row in tx.find_by(&by_owner, &owner) {
                let row = row?.to_owned();
                assert_eq!(row.owner, owner);
                assert!(rows.insert(row.id, row).is_none(), "an index has a row twice");
            }
        }
        let mut others = 0;
        for branch in 0..4u16 {
            for row in tx.find_by(&by_branch, &branch) {
                let row = row?.to_owned();
                assert_eq!(rows.get(&row.id), Some(&row));
                others += 1;
            }
        }
        assert_eq!(others, rows.len());
        for id in 0..KEYS {
            assert_eq!(tx.get(&accounts, &id)?.map(|row| row.to_owned()), rows.get(&id).cloned());
        }
        Ok(rows)
    });
    read.expect("what was recovered is durable").value
}

const KEYS: u64 = 12;

fn random(rng: &mut Rng, id: u64) -> Account {
    let note = "n".repeat([0, 3, 40, 700][rng.below(4) as usize]) + &rng.below(3).to_string();
    Account { id, owner: rng.below(8) as u32, branch: rng.below(4) as u16, balance: rng.below(3) as i64, note }
}

fn change(
    tx: &Tx,
    accounts: &Handle<Account>,
    rng: &mut Rng,
    state: &mut BTreeMap<u64, Account>,
    deep: u32,
) -> Result<(), Abort> {
    for _ in 0..rng.range(1, 5) {
        let id = rng.below(KEYS);
        match rng.below(7) {
            0 | 1 => {
                let new = random(rng, id);
                if tx.try_insert(accounts, &new)? {
                    assert!(state.insert(id, new).is_none());
                }
            }
            2 => {
                let new = random(rng, id);
                tx.put(accounts, &new)?;
                state.insert(id, new);
            }
            3 | 4 => {
                let new = random(rng, id);
                let what = rng.below(4);
                let done = tx.update_if(accounts, &id, |row| -> Result<(), Abort> {
                    match what {
                        0 => row.set_balance(new.balance),
                        1 => row.set_note(&new.note)?,
                        2 => row.set_owner(new.owner),
                        _ => {}
                    }
                    Ok(())
                })?;
                if let (Ok(done), Some(row)) = (done, state.get_mut(&id)) {
                    done?;
                    match what {
                        0 => row.balance = new.balance,
                        1 => row.note = new.note,
                        2 => row.owner = new.owner,
                        _ => {}
                    }
                }
            }
            5 => assert_eq!(tx.delete_if(accounts, &id)?.is_ok(), state.remove(&id).is_some()),
            _ if deep > 0 => {
                let savepoint = tx.savepoint()?;
                let mut inner = state.clone();
                change(tx, accounts, rng, &mut inner, deep - 1)?;
                if rng.below(2) == 0 { tx.rollback_to(savepoint)? } else { *state = inner }
            }
            _ => {}
        }
    }
    Ok(())
}

fn run(db: &Database, rng: &mut Rng, oracle: &mut Oracle) {
    let accounts = db.table::<Account>().or_else(|_| db.create::<Account>());
    let Ok(accounts) = accounts else { return };
    let mut session = db.session();
    let mut outstanding = Vec::new();
    for _ in 0..rng.range(1, 40) {
        match rng.below(12) {
            0..8 => {
                let mut state = BTreeMap::new();
                let pending = session.submit(|tx| {
                    state = oracle.states.last().expect("one").clone();
                    change(tx, &accounts, rng, &mut state, 2)
                });
                // A transaction that wrote nothing only shows that its reads are durable.
                let wrote = Some(&state) != oracle.states.last();
                match pending.poll() {
                    Ok(Ok(_)) if wrote => {
                        oracle.states.push(state);
                        oracle.acknowledged = oracle.states.len() - 1;
                    }
                    Ok(Ok(_)) => {}
                    Err(_) if !wrote => {}
                    Ok(Err(TransactError::NotDurable { .. })) => oracle.states.push(state),
                    Ok(Err(_)) => {}
                    Err(pending) => {
                        oracle.states.push(state);
                        outstanding.push((oracle.states.len() - 1, pending));
                    }
                }
            }
            8..11 => db.step(),
            _ => drop(db.checkpoint()),
        }
        outstanding = outstanding
            .into_iter()
            .filter_map(|(at, pending)| match pending.poll() {
                Ok(Ok(_)) => {
                    oracle.acknowledged = oracle.acknowledged.max(at);
                    None
                }
                Ok(Err(_)) => None,
                Err(pending) => Some((at, pending)),
            })
            .collect();
    }
}

#[test]
fn any_run_leaves_a_state_that_was_there_with_all_that_was_acknowledged() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, seeds) = (number("SERIATIM_FIRST_SEED").unwrap_or(0), number("SERIATIM_SEEDS").unwrap_or(60));
    for seed in first..first + seeds {
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        let disk = FaultyDisk::new(seed);
        for directory in ["/one", "/two"] {
            disk.create_dir_all(directory.as_ref()).expect("no faults");
        }
        disk.sync_dir("/".as_ref()).expect("no faults");
        let names: Vec<_> = available_protocols().iter().map(|protocol| protocol.name).collect();
        let protocol = names[rng.below(names.len() as u64) as usize];
        let mut oracle = Oracle { states: vec![BTreeMap::new()], acknowledged: 0 };
        let mut created = false;
        for life in 0..8 {
            println!("life {life}");
            let mut open = || {
                let builder = small(protocol, &disk).segment_bytes(12 << 10);
                let builder = match rng.below(3) {
                    0 => builder,
                    1 => builder.log_directories(["/one"]),
                    _ => builder.log_directories(["/one", "/two"]),
                };
                builder.open()
            };
            // Recoveries that are cut off.
            for n in 0..3 {
                disk.crash_at(5 + 17 * n + seed % 13 + life);
                if let Ok(db) = open() {
                    drop(db);
                }
                if !disk.is_powered() {
                    disk.reboot();
                } else {
                    disk.crash();
                }
            }
            let db = open().expect("it recovers");
            if db.table::<Account>().is_ok() {
                created = true;
                let found = all(&db);
                db.check_structure().expect("indexes are sound");
                let at = oracle.states.iter().rposition(|state| *state == found);
                let at = at.unwrap_or_else(|| panic!("{found:?} was never there"));
                assert!(at >= oracle.acknowledged, "{at} was found, {} was acknowledged", oracle.acknowledged);
                oracle = Oracle { states: vec![found], acknowledged: 0 };
            } else {
                assert!(!created && oracle.acknowledged == 0, "the table is gone");
            }
            match rng.below(4) {
                0 => {}
                1 => disk.fail(Operation::Sync, rng.range(1, 20), Times::Once, ErrorKind::Other),
                2 => disk.fail(Operation::Write, rng.range(1, 30), Times::Once, ErrorKind::StorageFull),
                _ => disk.crash_at(rng.range(1, 150)),
            }
            run(&db, &mut rng, &mut oracle);
            // One process ends in order, one ends with a power cut, and one is killed.
            if rng.below(3) == 0 && disk.is_powered() {
                disk.crash();
            }
            drop(db);
            disk.heal();
            if !disk.is_powered() {
                disk.reboot();
            }
        }
    }
}
