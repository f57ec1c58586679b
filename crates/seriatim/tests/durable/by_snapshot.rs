//! Durability by snapshot: settings that are refused, what each mode waits for, and snapshot numbers in receipts.

use std::io::ErrorKind;
use std::time::Duration;

use seriatim::{Builder, Database, Durability, Session, TransactError, TransactionOptions, clock};
use seriatim_base::disk::{FaultyDisk, Operation, Times};

use crate::accounts::{Account, account, small};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Options for a database on this disk with durability by snapshot.
fn by_snapshot(disk: &FaultyDisk) -> Builder {
    small("dbx-tc", disk).protocol_option("durable_snapshots", 1)
}

#[test]
fn snapshots_and_epochs_have_one_interval() {
    let disk = FaultyDisk::new(101);
    let opens = |builder: Builder| builder.open().map(drop).map_err(|error| error.to_string());
    let made = |ms: u64| by_snapshot(&disk).protocol_option("snapshot_interval_ms", ms);
    let refused = opens(made(0)).expect_err("only readers would make snapshots");
    assert!(refused.contains("snapshot_interval_ms is above 0") && refused.ends_with("here it is 0 ms"), "{refused}");
    let refused = opens(made(20).epoch_interval(10 * MILLISECOND)).expect_err("two intervals");
    assert!(refused.ends_with("here it is 20 ms, and epochs every 10ms"), "{refused}");
    let age = |builder: Builder| builder.transaction_age_max(15 * MILLISECOND);
    let refused = opens(age(by_snapshot(&disk))).expect_err("an epoch of 20 ms is longer than that");
    assert!(refused.contains("the setting transaction_age_max is 15ms"), "{refused}");
    for right in [by_snapshot(&disk), made(20), made(20).epoch_interval(20 * MILLISECOND), age(made(15))] {
        assert_eq!(opens(right), Ok(()));
    }
    assert_eq!(opens(age(by_snapshot(&disk).epoch_interval(10 * MILLISECOND))), Ok(()), "one of them says it");
    // Without durability by snapshot the two intervals are independent.
    let apart = small("dbx-tc", &disk).protocol_option("snapshot_interval_ms", 0).epoch_interval(MILLISECOND);
    assert_eq!(opens(apart), Ok(()));
}

#[test]
fn receipts_statistics_and_recoveries_name_snapshots() {
    let disk = FaultyDisk::new(102);
    for mode in [Durability::Async, Durability::Group, Durability::Sync] {
        let db = by_snapshot(&disk).durability(mode).open().expect("it opens");
        let accounts = db.table::<Account>().or_else(|_| db.create()).expect("a table");
        let (mut session, mut other) = (db.session(), db.session());
        let numbers = (0..5).map(|id| {
            let put = session.transact(|tx| tx.put(&accounts, &account(id))).expect("alone").receipt;
            let of_put = put.snapshot().expect("it has one");
            assert_eq!(of_put, put.epoch().0);
            // The snapshot shows the session's own commit, and the commit named by `read_after`.
            let get = |tx: &seriatim::ReadTx| tx.get(&accounts, &id).map(|row| row.is_some());
            other.read_after(put).expect("of this database");
            for reader in [&mut session, &mut other] {
                let read = reader.snapshot(get).expect("a snapshot");
                let of_read = read.receipt.snapshot().expect("it has one");
                assert!(read.value && of_read >= of_put, "{of_read} shows {of_put}");
            }
            let durable = db.statistics().log.expect("it is on disk").durable_snapshot.expect("there is one");
            assert!(mode == Durability::Async || of_put <= durable, "{mode}: {of_put} was answered before {durable}");
            of_put
        });
        let numbers: Vec<u64> = numbers.collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        db.flush().expect("the disk works");
        drop((session, other));
        db.close().expect("all is durable");
        let db = by_snapshot(&disk).open().expect("it opens");
        let recovered = db.recovery().and_then(|recovery| recovery.durable_snapshot).expect("it is said");
        assert!(numbers.last() <= Some(&recovered), "{numbers:?} and {recovered}");
        let first = db.session().snapshot(|_| Ok(())).expect("a snapshot").receipt.snapshot();
        assert!(first > Some(recovered), "numbers go on");
    }
    // In memory snapshots have numbers, and nothing is durable. Without the option there are no numbers.
    for (builder, has) in [(by_snapshot(&disk), true), (small("dbx-tc", &disk), false), (small("dbx", &disk), false)] {
        let db = builder.open().expect("it opens");
        let accounts = db.table::<Account>().expect("it is there");
        let put = db.session().transact(|tx| tx.put(&accounts, &account(9))).expect("alone").receipt;
        let read = db.session().snapshot(|tx| tx.get(&accounts, &9).map(drop)).expect("a snapshot").receipt;
        let log = db.statistics().log.expect("it is on disk");
        let recovered = db.recovery().and_then(|recovery| recovery.durable_snapshot);
        let said = [put.snapshot(), read.snapshot(), log.durable_snapshot, recovered];
        assert_eq!(said.map(|number| number.is_some()), [has; 4]);
    }
}

/// No caller waits for the interval: a caller that wants an acknowledgement ends the epoch, and so makes the
/// snapshot.
#[test]
fn a_caller_that_waits_for_an_acknowledgement_makes_the_snapshot() {
    let hour = Duration::from_secs(3600);
    for mode in [Durability::Group, Durability::Sync] {
        let disk = FaultyDisk::new(103);
        let builder = by_snapshot(&disk).durability(mode).step_helpers(false);
        let db = builder.epoch_interval(hour).transaction_age_max(hour).open().expect("it opens");
        let accounts = db.create::<Account>().expect("a table");
        let (mut session, mut reader) = (db.session(), db.session());
        let shows = |session: &mut seriatim::Session, id: u64| {
            let stale = TransactionOptions::new().own_commits(false);
            let read = session.snapshot_with(&stale, |tx| tx.get(&accounts, &id).map(|row| row.is_some()));
            read.expect("a snapshot").value
        };
        shows(&mut reader, 0);
        let pending = session.submit(|tx| tx.insert(&accounts, &account(1)));
        match mode {
            // The commit is flushed although no caller waits.
            Durability::Sync => {
                let mut pending = Some(pending);
                while let Some(waits) = pending.take() {
                    pending = waits.poll().err();
                    seriatim::thread::yield_now();
                }
            }
            _ => drop(pending.wait().expect("it is durable")),
        }
        assert!(shows(&mut reader, 1), "{mode}: a snapshot was made that has it");
    }
}

/// With this option, each read-only transaction makes a snapshot.
#[test]
fn readers_end_epochs_too_where_they_make_snapshots() {
    let disk = FaultyDisk::new(104);
    let db = small("dbx-tc", &disk).protocol_option("durable_snapshots", 2).open().expect("it opens");
    let mut session = db.session();
    let mut read = || session.snapshot(|_| Ok(())).expect("a snapshot").receipt.snapshot().expect("it has one");
    let numbers: Vec<u64> = (0..4).map(|_| read()).collect();
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
}

/// No number is used twice, even if nothing is logged.
#[test]
fn a_recovery_knows_how_far_snapshots_were() {
    let disk = FaultyDisk::new(105);
    by_snapshot(&disk).open().and_then(|db| db.close().map_err(|_| unreachable!("the disk works"))).expect("it opens");
    let number = |db: &Database| db.session().snapshot(|_| Ok(())).expect("a snapshot").receipt.snapshot();
    let db = by_snapshot(&disk).open().expect("it opens");
    let before = number(&db);
    (0..4).for_each(|_| db.step());
    let last = number(&db);
    disk.power_off();
    drop(db);
    disk.reboot();
    let db = by_snapshot(&disk).open().expect("it opens");
    let recovered = db.recovery().and_then(|recovery| recovery.durable_snapshot);
    assert!(before <= recovered && recovered <= last, "{recovered:?} is from {before:?} to {last:?}");
    assert!(last < number(&db), "{last:?} had been told");
}

/// More numbers than an opening skips.
const MANY: u64 = 70_000;

fn read(session: &mut Session) -> u64 {
    session.snapshot(|_| Ok(())).expect("a snapshot").receipt.snapshot().expect("it has one")
}

/// Within one interval, while nothing is logged, and only readers step the loggers.
#[test]
fn no_number_is_given_twice_however_many_readers_make_snapshots() {
    for mode in [Durability::Async, Durability::Group] {
        let disk = FaultyDisk::new(106);
        let open = || by_snapshot(&disk).protocol_option("durable_snapshots", 2).durability(mode).open();
        let db = open().expect("it opens");
        let mut session = db.session();
        let numbers: Vec<u64> = (0..MANY).map(|_| read(&mut session)).collect();
        assert!(numbers.windows(2).all(|two| two[1] > two[0]), "each is another");
        disk.power_off();
        drop((session, db));
        disk.reboot();
        let (db, last) = (open().expect("it opens"), numbers.last().copied());
        let first = read(&mut db.session());
        assert!(Some(first) > last, "{mode}: {last:?} had been read, and {first} is");
    }
}

/// A reader that needs a commit which no snapshot shows gets an error with the reason; other commits can be read.
#[test]
fn while_the_disk_takes_nothing_snapshots_do_not_get_far() {
    let disk = FaultyDisk::new(107);
    let db = by_snapshot(&disk).durability(Durability::Async).open().expect("it opens");
    let accounts = db.create::<Account>().expect("a table");
    let (mut session, mut other) = (db.session(), db.session());
    let before = read(&mut other);
    disk.fail(Operation::Write, 1, Times::ForEver, ErrorKind::StorageFull);
    let put = |session: &mut Session, balance: u64| {
        let row = Account { balance: balance as i64, ..account(1) };
        session.transact(|tx| tx.put(&accounts, &row)).expect("nothing is known of the disk");
    };
    let shows = |tx: &seriatim::ReadTx| tx.get(&accounts, &1).map(|row| row.map(|row| row.balance() as u64));
    // Each reader that must show its own commit makes a snapshot.
    let refused = (0..MANY).find_map(|number| {
        put(&mut session, number);
        session.snapshot(shows).err().map(|refused| (number, refused))
    });
    let (number, refused) = refused.expect("they are far");
    assert!(matches!(refused, TransactError::DiskFull { .. }), "{refused}");
    let newest = other.snapshot(shows).expect("the newest");
    assert_eq!(newest.value, Some(number - 1), "it is of the past");
    let last = newest.receipt.snapshot().expect("it has one");
    assert!(last > before && last < before + (1 << 16), "from {before} to {last}");
    let epoch = || db.statistics().log.expect("it is on disk").epoch;
    let far = epoch();
    assert!(db.checkpoint().is_err());
    assert_eq!(epoch(), far, "a checkpoint ends none either");
    disk.heal();
    assert_eq!(session.snapshot(shows).expect("there is space").value, Some(number), "its own commit");
    assert!(read(&mut other) > last, "they go on");
}

/// The log records the snapshot numbers before readers have to wait.
#[test]
fn the_disk_records_how_far_snapshots_are() {
    let hour = Duration::from_secs(3600);
    let disk = FaultyDisk::new(108);
    let builder = by_snapshot(&disk).protocol_option("durable_snapshots", 2).step_helpers(false);
    let db = builder.epoch_interval(hour).transaction_age_max(hour).open().expect("it opens");
    let flushes = || db.statistics().log.expect("it is on disk").flushes;
    let (mut session, before) = (db.session(), flushes());
    (0..40_000).for_each(|_| _ = read(&mut session));
    while flushes() == before {
        seriatim::thread::yield_now();
    }
}

/// The loggers are asked for more than they can do, while no epoch ends.
#[test]
fn a_full_disk_is_not_tried_all_the_time() {
    let (hour, disk) = (Duration::from_secs(3600), FaultyDisk::new(109));
    let builder = by_snapshot(&disk).protocol_option("durable_snapshots", 2).step_helpers(false);
    let builder = builder.durability(Durability::Async).transaction_age_max(hour);
    let db = builder.epoch_interval(Duration::from_millis(20)).open().expect("it opens");
    let mut session = db.session();
    disk.fail(Operation::Write, 1, Times::ForEver, ErrorKind::StorageFull);
    (0..MANY).for_each(|_| _ = read(&mut session));
    assert!(db.flush().is_err(), "it is full");
    let tried = || disk.count(Operation::Write);
    // The limit grows with the time that passes, so a slow machine has more.
    let (before, began) = (tried(), clock::Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    let (times, passed) = (tried() - before, began.elapsed());
    assert!(u128::from(times) < passed.as_millis(), "{times} times in {passed:?}, of which each tick has 20 ms");
    disk.heal();
    db.flush().expect("there is space");
}
