//! Waits for the disk: which calls wait, for how long, and with which error.

use std::io::ErrorKind;
use std::time::Duration;

use seriatim::{
    Abort, CloseError, Database, Durability, Freshness, Handle, Reason, Session, TransactError, TransactionOptions,
    available_protocols, thread,
};
use seriatim_base::disk::{FaultyDisk, Operation, Times};

use crate::accounts::{Account, account, rows, small};

/// A wait that is too short to succeed.
const SHORT: Duration = Duration::from_millis(50);

/// An age limit that steps of a millisecond reach.
const AGE_MAX: Duration = Duration::from_millis(100);

/// A database with accounts 0 to 4 whose disk is full.
fn filled(protocol: &str, stepped: bool) -> (FaultyDisk, Database, Handle<Account>) {
    let disk = FaultyDisk::new(40);
    let builder = small(protocol, &disk).step_helpers(stepped).epoch_interval(Duration::from_millis(1));
    let builder = builder.transaction_age_max(if stepped { AGE_MAX } else { Duration::from_secs(60) });
    let db = builder.wait_max(Some(SHORT)).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    session.set_wait_max(None);
    (0..5).for_each(|id| insert(&mut session, &accounts, id).expect("there is space"));
    disk.fail(Operation::Write, 1, Times::ForEver, ErrorKind::StorageFull);
    (disk, db, accounts)
}

fn insert(session: &mut Session, accounts: &Handle<Account>, id: u64) -> Result<(), TransactError> {
    session.transact(|tx| tx.insert(accounts, &account(id))).map(drop)
}

/// Waits until a logger's thread that has something to write has found that the disk is full.
fn wait_until_full(db: &Database) {
    while db.statistics().log.expect("it is on disk").refusal.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn has_snapshots(protocol: &str) -> bool {
    available_protocols().iter().any(|info| info.name == protocol && info.capabilities.snapshots != Freshness::None)
}

#[test]
fn a_call_on_a_full_disk_ends_within_its_bound_and_says_whether_it_may_be_committed() {
    for protocol in available_protocols() {
        let (disk, db, accounts) = filled(protocol.name, false);
        let (mut session, mut other) = (db.session(), db.session());
        let error = insert(&mut session, &accounts, 5).expect_err("there is no space");
        let TransactError::NotDurableYet { waited: SHORT, wrote: true, .. } = &error else { panic!("{error:?}") };
        assert!(error.is_maybe_committed() && !error.is_retryable());
        assert!(error.to_string().contains("committed, but a power cut may still take it back"), "{error}");
        wait_until_full(&db);
        // The same holds for a submitted result, an explicit transaction, and a transaction that reads the row.
        let error = session.submit(|tx| tx.get(&accounts, &5).map(|row| row.is_some())).wait();
        let error = error.expect_err("what it read is not durable");
        let TransactError::NotDurableYet { wrote: false, reason: Some(reason), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(reason.contains("full"), "{reason}");
        assert!(!error.is_maybe_committed() && error.is_retryable());
        // A call may have its own limit.
        let brief = TransactionOptions::new().wait_max(Duration::from_millis(3));
        let error = session.transact_with(&brief, |tx| tx.get(&accounts, &5).map(|row| row.is_some()));
        let error = error.expect_err("what it read is not durable");
        assert!(matches!(&error, TransactError::NotDurableYet { waited, .. } if Some(*waited) == brief.wait_max));
        other.set_wait_max(None);
        let tx = other.begin_with(&brief).expect("a worker is free");
        assert!(tx.get(&accounts, &5).expect("it is there").is_some());
        assert!(matches!(tx.commit(), Err(TransactError::NotDurableYet { .. })));
        other.set_wait_max(Some(SHORT));
        let tx = other.begin().expect("a worker is free");
        assert!(tx.get(&accounts, &5).expect("it is there").is_some());
        assert!(matches!(tx.commit(), Err(TransactError::NotDurableYet { wrote: false, .. })));
        assert!(db.flush().is_err());
        // Transactions that do not depend on the row do not wait.
        let there = other.transact(|tx| Ok(tx.get(&accounts, &4)?.is_some()));
        assert!(there.expect("it is durable").value);
        disk.heal();
        session.set_wait_max(None);
        let there = session.transact(|tx| Ok(tx.get(&accounts, &5)?.is_some()));
        assert!(there.expect("there is space").value, "what was committed is there");
    }
}

#[test]
fn a_snapshot_does_not_wait_for_a_full_disk() {
    for protocol in available_protocols().iter().filter(|protocol| has_snapshots(protocol.name)) {
        let (disk, db, accounts) = filled(protocol.name, false);
        let mut session = db.session();
        session.set_wait_max(None);
        // The snapshot is open when the disk becomes full, and runs again.
        let mut runs = 0;
        let mut waiting = None;
        let seen = session.snapshot(|tx| {
            runs += 1;
            if runs == 1 {
                waiting = Some(db.session().submit(|tx| tx.insert(&accounts, &account(5))));
                wait_until_full(&db);
            }
            Ok([4, 5].map(|id| tx.get(&accounts, &id).is_ok_and(|row| row.is_some())))
        });
        let seen = seen.expect("it waits for nothing").value;
        assert_eq!((seen, seen[1] || runs <= 2), ([true, false], true), "{}", protocol.name);
        // A snapshot that begins now runs once.
        let ids = || rows(&db).iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(), [0, 1, 2, 3, 4]);
        disk.heal();
        waiting.expect("it was submitted").wait().expect("it is durable");
        assert_eq!(ids(), [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_snapshot_of_the_durable_epoch_does_not_change_when_the_disk_continues() {
    for protocol in available_protocols().iter().filter(|protocol| has_snapshots(protocol.name)) {
        let (disk, db, accounts) = filled(protocol.name, true);
        let (mut writer, mut reader) = (db.session(), db.session());
        let mut change = |round: i64| {
            let changed = writer.submit(|tx| {
                for id in 0..3 {
                    tx.update(&accounts, &id, |row| row.set_balance(1000 + round))?;
                }
                let there = tx.get(&accounts, &3)?.is_some();
                if there { tx.delete(&accounts, &3).map(drop) } else { tx.insert(&accounts, &account(3)) }
            });
            assert!(matches!(changed.poll(), Err(_) | Ok(Ok(_))), "it is committed");
        };
        change(0);
        db.step();
        let snapshot = reader.begin_snapshot().expect("a worker is free");
        let look = || {
            let row = |id| snapshot.get(&accounts, &id).map(|row| row.map(|row| row.balance()));
            let balances: Result<Vec<_>, Abort> = (0..5).map(row).collect();
            let by_owner = accounts.index(Account::BY_OWNER);
            let found = (0..7u32).map(|owner| snapshot.find_by(&by_owner, &owner).count()).sum::<usize>();
            (balances.expect("snapshots do not abort"), found)
        };
        let durable = (vec![Some(100); 5], 5);
        assert_eq!(look(), durable, "{}", protocol.name);
        disk.heal();
        db.step();
        for round in 1..20 {
            change(round);
            (0..3).for_each(|_| db.step());
            assert_eq!(look(), durable, "{}, round {round}", protocol.name);
        }
        snapshot.finish().expect("it saw what is durable");
        // No version is kept for it any more.
        let kept = db.statistics().memory_bytes;
        (0..20).for_each(|_| db.step());
        assert!(db.statistics().memory_bytes < kept, "{}", protocol.name);
        let balance = reader.snapshot(|tx| Ok(tx.get(&accounts, &0)?.map(|row| row.balance())));
        assert_eq!(balance.expect("a snapshot").value, Some(1019));
    }
}

/// A parked snapshot that is too old is ended, however long its owner keeps it, and no version is kept for it any
/// more.
#[test]
fn a_parked_snapshot_holds_the_durable_epoch_no_longer_than_its_age() {
    for protocol in available_protocols().iter().filter(|protocol| has_snapshots(protocol.name)) {
        let (disk, db, accounts) = filled(protocol.name, true);
        let (mut writer, mut reader) = (db.session(), db.session());
        drop(writer.submit(|tx| tx.update(&accounts, &0, |row| row.set_balance(1))));
        db.step();
        let snapshot = reader.begin_snapshot().expect("a worker is free");
        assert_eq!(snapshot.get(&accounts, &0).expect("it is new").map(|row| row.balance()), Some(100));
        disk.heal();
        let mut memory_after = |rounds: usize| {
            for round in 0..rounds {
                let note = format!("{round:500}");
                drop(writer.submit(|tx| tx.update(&accounts, &1, |row| row.set_note(&note))));
                db.step();
            }
            db.statistics().memory_bytes
        };
        // Versions of each epoch since then are kept for it, until it is too old.
        let young = memory_after(10);
        let old = memory_after(80);
        assert!(old > young + 80 * 500, "{}: {old} after {young}: nothing was kept", protocol.name);
        let ended = memory_after(200);
        assert!(ended < old - 40 * 500, "{}: {ended} after {old}", protocol.name);
        let refused = snapshot.get(&accounts, &0).map(drop).expect_err("it is too old");
        assert_eq!(refused.cause().map(|cause| cause.reason), Some(Reason::TooOld), "{}", protocol.name);
    }
}

#[test]
fn closing_says_what_is_not_durable() {
    for stepped in [true, false] {
        let disk = FaultyDisk::new(41);
        let builder = || small("auto", &disk).step_helpers(stepped).durability(Durability::Async);
        let db = builder().open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        insert(&mut session, &accounts, 1).expect("it is answered at once");
        db.clone().close().expect("the disk works");
        db.close().expect("it was closed in order");
        // Remaining sessions write nothing and do not disturb the next opening.
        let error = insert(&mut session, &accounts, 2).expect_err("it was closed");
        assert!(matches!(error, TransactError::Closed), "{error}");
        assert!(session.snapshot(|tx| Ok(tx.get(&accounts, &1)?.is_some())).expect("it is durable").value);
        let db = builder().open().expect("it is not locked");
        let accounts = db.table::<Account>().expect("it is there");
        let mut session = db.session();
        let first = session.transact(|tx| tx.insert(&accounts, &account(2))).expect("it is answered at once");
        db.flush().expect("the disk works");
        disk.fail(Operation::Write, 1, Times::ForEver, ErrorKind::StorageFull);
        let second = session.transact(|tx| tx.insert(&accounts, &account(3))).expect("it is answered at once");
        let again = db.clone();
        let error: CloseError = db.close().expect_err("there is no space");
        assert!(first.receipt.epoch() <= error.durable_epoch && error.durable_epoch < second.receipt.epoch());
        assert!(error.lost_bytes > 0 && error.reason.contains("full"), "{error}");
        assert_eq!(again.close(), Err(error), "the same each time");
        disk.heal();
        let db = builder().open().expect("it recovers");
        // A write that failed may have reached the disk.
        let found: Vec<u64> = rows(&db).iter().map(|row| row.id).collect();
        assert!(found.starts_with(&[1, 2]) && found.len() <= 3, "{found:?}");
        drop(session);
    }
    Database::in_memory().expect("memory").close().expect("nothing is kept");
}
/// Writes until the disk is full.
fn fill_up(session: &mut Session, accounts: &Handle<Account>, bytes: usize) {
    let noted = |id| Account { note: "x".repeat(bytes), ..account(id) };
    let refused = (1000..1_000_000).find_map(|id| {
        let error = session.submit(|tx| tx.insert(accounts, &noted(id))).wait().err()?;
        // If the wait has no reason, the logger got no processor.
        (!matches!(error, TransactError::NotDurableYet { reason: None, .. })).then_some(error)
    });
    assert!(refused.is_some(), "the disk is full");
}

/// Opens, reads and shrinks a database on a full disk.
fn use_while_full(open: &dyn Fn() -> Database) {
    let db = open();
    let accounts = db.table::<Account>().expect("it is there");
    let mut session = db.session();
    let there = session.snapshot(|tx| Ok(tx.get(&accounts, &1)?.is_some()));
    assert!(there.expect("it was durable").value);
    let all: Vec<u64> = rows(&db).iter().map(|row| row.id).filter(|id| *id > 4).collect();
    for ids in all.chunks(200) {
        let deleted = session.transact(|tx| ids.iter().try_for_each(|id| tx.delete(&accounts, id).map(drop)));
        deleted.expect("what is set aside takes some deletions");
    }
    let checkpoint = db.checkpoint().expect("little is left, and it fits").expect("it is on disk");
    assert_eq!(checkpoint.rows, 5);
    // The space that this freed can be used.
    for id in 1000..1010 {
        insert(&mut session, &accounts, id).expect("there is space");
    }
    assert_eq!(rows(&db).len(), 15);
    drop((session, accounts));
    db.close().expect("there is space");
}

#[test]
fn a_database_opens_on_a_full_disk_and_can_be_shrunk_there() {
    for ends in ["closed", "killed", "cut off"] {
        let disk = FaultyDisk::new(42);
        let open = || small("auto", &disk).open().unwrap_or_else(|error| panic!("{ends}: {error}"));
        let db = open();
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        (0..5).for_each(|id| insert(&mut session, &accounts, id).expect("there is space"));
        disk.set_capacity(disk.used_bytes() + (50 << 10));
        fill_up(&mut session, &accounts, 500);
        let end = |db: Database| match ends {
            "closed" => drop(db),
            "killed" => {
                disk.kill();
                drop(db);
            }
            _ => {
                disk.crash();
                drop(db);
            }
        };
        drop((session, accounts));
        end(db);
        // No other file leaves any space.
        disk.set_capacity(disk.used_bytes());
        for _ in 0..2 {
            end(open());
            disk.set_capacity(disk.used_bytes());
        }
        use_while_full(&open);
    }
}

#[test]
fn a_full_disk_is_opened_with_any_size_of_segments() {
    let disk = FaultyDisk::new(43);
    let db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    (0..5).for_each(|id| insert(&mut session, &accounts, id).expect("there is space"));
    disk.set_capacity(disk.used_bytes() + (50 << 10));
    fill_up(&mut session, &accounts, 500);
    let kill = |db: Database| {
        disk.kill();
        drop(db);
        disk.set_capacity(disk.used_bytes());
    };
    drop((session, accounts));
    kill(db);
    // The reserve is enough for four of its own openings, and these take two of them.
    for _ in 0..2 {
        kill(small("auto", &disk).open().expect("it opens"));
    }
    // With the default segment size, as `seriatim recover` opens it.
    let db = small("auto", &disk).segment_bytes(64 << 20).open().expect("it opens with larger segments, too");
    assert!(crate::accounts::rows(&db).len() >= 5);
}

/// Runs a program; returns whether it succeeded.
fn run(program: &str, arguments: &[&str]) -> bool {
    let ran = std::process::Command::new(program).args(arguments).stderr(std::process::Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

#[test]
fn a_database_opens_on_a_file_system_that_is_full() {
    let at = std::env::temp_dir().join(format!("seriatim-full-{:016x}", seriatim_base::rng::entropy()));
    std::fs::create_dir(&at).expect("a temporary directory");
    let path = at.to_str().expect("it is UTF-8").to_owned();
    if !run("mount", &["-t", "tmpfs", "-o", "size=24m", "tmpfs", &path]) {
        eprintln!("skipped: mounting a file system of 24 MiB is not allowed here");
        std::fs::remove_dir(&at).expect("it is empty");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let open = || {
            let builder = Database::builder().workers(4).segment_bytes(4 << 20).path(at.join("db"));
            builder.checkpoint_bytes(None).open().expect("it opens")
        };
        let db = open();
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        (0..5).for_each(|id| insert(&mut session, &accounts, id).expect("there is space"));
        session.set_wait_max(Some(SHORT));
        fill_up(&mut session, &accounts, 20_000);
        drop((session, accounts, db));
        // Other files take the remaining space.
        let mut other = std::fs::File::create(at.join("other")).expect("a name is free");
        while std::io::Write::write(&mut other, &[1; 4096]).is_ok_and(|bytes| bytes > 0) {}
        use_while_full(&open);
    });
    assert!(run("umount", &[&path]), "{path} is still mounted");
    std::fs::remove_dir(&at).expect("it is empty");
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
