//! Every protocol logs updates that add to a number as the added amount. Each addition counts once, whatever a
//! checkpoint contains of it, and in however many logs the additions are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seriatim::{Database, Durability, Handle, Session, StorageError, TransactError, Tx};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::thread;
use seriatim_redo::catalogue;
use seriatim_redo::manifest::Manifest;
use seriatim_redo::replay::{Apply, Outcome, Replay, Version};

use crate::accounts::{Account, account, names, rows, small};

/// The number of entries of each kind.
type Kinds = BTreeMap<&'static str, u64>;

/// Counts the entries of tables that a recovery would replay.
#[derive(Default)]
struct Counter(Mutex<Kinds>);

impl Apply for Counter {
    fn apply(&self, _: usize, version: &Version<'_>) -> Result<Outcome, StorageError> {
        if version.table == catalogue::TABLE {
            return Ok(Outcome::Applied);
        }
        let mut kinds = self.0.lock().expect("no panic");
        for change in version.changes {
            *kinds.entry(change.kind()).or_default() += 1;
        }
        Ok(Outcome::Applied)
    }
}

fn logged(disk: &FaultyDisk) -> Kinds {
    let (disk, directory) = (disk.mount(), Path::new("/db"));
    let manifest = Manifest::read(&disk, directory).expect("there is a database");
    let replay = Replay::look(&disk, directory, &manifest).expect("its log is sound");
    let counter = Counter::default();
    replay.run(&disk, 1, &counter, &|_| {}).expect("its log is sound");
    counter.0.into_inner().expect("no panic")
}

fn add(session: &mut Session, accounts: &Handle<Account>, id: u64, amount: i64) {
    let add = |tx: &Tx| tx.update(accounts, &id, |row| row.set_balance(row.balance().wrapping_add(amount)));
    loop {
        match session.transact(add) {
            Ok(_) => return,
            // The transaction conflicts with others.
            Err(TransactError::Conflict { .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn additions_to_a_number_are_logged_and_recovered() {
    for protocol in names() {
        let disk = FaultyDisk::new(61);
        let db = small(protocol, &disk).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        for id in 0..4 {
            session.transact(|tx| tx.insert(&accounts, &account(id))).expect("inserted");
        }
        let mut expected = Kinds::from([("row", 4)]);
        let mut expect = |kind| *expected.entry(kind).or_default() += 1;

        add(&mut session, &accounts, 0, 1);
        expect("delta");
        add(&mut session, &accounts, 0, -30);
        expect("delta");
        let twice = |tx: &Tx| {
            tx.update(&accounts, &1, |row| row.set_balance(row.balance() + 20))?;
            tx.update(&accounts, &1, |row| row.set_balance(row.balance() + 30))
        };
        session.transact(twice).expect("no conflict");
        expect("delta");
        let put = |tx: &Tx| tx.put(&accounts, &Account { balance: 77, ..account(2) });
        session.transact(put).expect("no conflict");
        expect("delta");
        // The difference does not fit 64 bits, in either direction.
        add(&mut session, &accounts, 3, i64::MAX - 100);
        expect("patch");
        session.transact(|tx| tx.update(&accounts, &3, |row| row.set_balance(-9))).expect("no conflict");
        expect("patch");
        add(&mut session, &accounts, 3, i64::MIN + 9);
        expect("patch");
        add(&mut session, &accounts, 3, 1);
        expect("delta");
        // Two columns, and one whose new value is as short as a difference.
        let both = |tx: &Tx| {
            tx.update(&accounts, &1, |row| {
                row.set_balance(row.balance() + 1);
                row.set_note("changed")
            })
        };
        session.transact(both).expect("no conflict");
        expect("patch");
        session.transact(|tx| tx.update(&accounts, &2, |row| row.set_owner(3))).expect("no conflict");
        expect("patch");
        let new = |tx: &Tx| {
            tx.insert(&accounts, &account(9))?;
            tx.update(&accounts, &9, |row| row.set_balance(row.balance() + 1))
        };
        session.transact(new).expect("no conflict");
        expect("row");

        let before = rows(&db);
        for _ in 0..2 {
            assert_eq!(logged(&disk), expected, "{protocol}");
            disk.crash();
        }
        drop((session, accounts, db));
        for _ in 0..2 {
            let db = small(protocol, &disk).open().expect("it recovers");
            assert_eq!(rows(&db), before, "{protocol}");
            assert_eq!(before.iter().map(|row| row.balance).collect::<Vec<_>>(), [71, 151, 77, i64::MIN + 1, 101]);
            disk.crash();
        }
    }
}

#[test]
fn additions_before_and_after_a_checkpoint_count_once() {
    for protocol in names() {
        let disk = FaultyDisk::new(62);
        let options = || small(protocol, &disk).log_directories([".", "."]).durability(Durability::Async);
        let db = options().open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        let mut sessions = [db.session(), db.session()];
        for id in 0..10 {
            sessions[0].transact(|tx| tx.insert(&accounts, &account(id))).expect("inserted");
        }
        db.flush().expect("the disk works");
        for round in 0..6 {
            for id in 0..10 {
                // Both logs have versions of each key.
                add(&mut sessions[(id as usize + round) % 2], &accounts, id, 1 + id as i64);
            }
            match round {
                2 => drop(db.checkpoint().expect("the disk works")),
                4 => db.step(),
                _ => {}
            }
        }
        db.flush().expect("the disk works");
        let before = rows(&db);
        assert!(before.iter().all(|row| row.balance == 100 + 6 * (1 + row.id as i64)), "{before:?}");
        disk.crash();
        drop((sessions, accounts, db));
        let deltas = logged(&disk)["delta"];
        for _ in 0..2 {
            let db = options().open().expect("it recovers");
            let recovery = db.recovery().expect("there was a database");
            assert_eq!(recovery.checkpoint_rows, 10);
            // Earlier additions are in the checkpoint, in one row per key.
            assert_eq!((deltas, recovery.entries), (30, 30), "{}: {recovery:?}", protocol);
            assert_eq!(rows(&db), before, "{protocol}");
            disk.crash();
        }
    }
}

#[test]
fn additions_of_threads_during_checkpoints_count_once() {
    const THREADS: u64 = 3;
    const CHECKPOINTS: usize = 5;
    for protocol in names() {
        let disk = FaultyDisk::new(63);
        let options = || {
            let options = small(protocol, &disk).log_directories([".", "."]).durability(Durability::Async);
            options.workers(THREADS as usize + 2).step_helpers(false).epoch_interval(Duration::from_millis(1))
        };
        let db = options().open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        for id in 0..8 {
            db.session().transact(|tx| tx.insert(&accounts, &account(id))).expect("inserted");
        }
        let is_over = AtomicBool::new(false);
        let write = |first: u64, db: &Database| {
            let (mut session, mut added) = (db.session(), 0);
            for time in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let amount = 1 + (time % 9) as i64;
                add(&mut session, &accounts, (first + time) % 8, amount);
                added += amount;
            }
            added
        };
        let added: i64 = thread::scope(|scope| {
            let (db, write) = (&db, &write);
            let writers: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || write(first, db))).collect();
            for _ in 0..CHECKPOINTS {
                db.checkpoint().expect("the disk works");
            }
            is_over.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().expect("no panic")).sum()
        });
        // At least one addition that only the log has.
        add(&mut db.session(), &accounts, 0, 1);
        db.flush().expect("the disk works");
        let before = rows(&db);
        assert_eq!(before.iter().map(|row| row.balance).sum::<i64>(), 801 + added);
        disk.crash();
        drop((accounts, db));
        assert!(logged(&disk).contains_key("delta"), "{protocol}");
        let db = options().open().expect("it recovers");
        assert_eq!(rows(&db), before, "{protocol}");
    }
}
