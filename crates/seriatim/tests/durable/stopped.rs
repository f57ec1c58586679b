//! After the log has stopped, snapshots show the durable epoch, whatever was written since, where the protocol has
//! snapshots.

use std::io::ErrorKind;
use std::time::Duration;

use seriatim::rng::seed;
use seriatim::{Abort, Database, Durability, Freshness, Handle, Scan, Session, Table, TransactError, Tx, protocols};
use seriatim_base::disk::{FaultyDisk, Operation, Times};
use seriatim_base::{Rng, thread};

use crate::accounts::{Account, account, rows, small};

const MODES: [Durability; 3] = [Durability::Async, Durability::Group, Durability::Sync];

/// The protocols that have snapshots.
fn with_snapshots() -> impl Iterator<Item = &'static str> {
    protocols()
        .iter()
        .filter(|protocol| protocol.capabilities.snapshots != Freshness::None)
        .map(|protocol| protocol.name)
}

/// A queue, so that rows at its head are deleted and inserted again.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "job", key(queue, number))]
struct Job {
    queue: u8,
    number: u64,
    text: String,
}

fn job(number: u64) -> Job {
    Job { queue: 1, number, text: format!("job {number}, and what there is to do about it") }
}

fn jobs(session: &mut Session, queue: &Handle<Job>) -> [Vec<Job>; 2] {
    let read = session.snapshot(|tx| {
        let forward: Result<Vec<Job>, _> = tx.scan(queue, ..).map(|job| job.map(|job| job.to_owned())).collect();
        let backward: Result<Vec<Job>, _> = tx.scan_rev(queue, ..).map(|job| job.map(|job| job.to_owned())).collect();
        Ok([forward?, backward?])
    });
    read.expect("the durable epoch can be read").value
}

/// Stops the log of a database with stepped background work.
fn stop(db: &Database, disk: &FaultyDisk) {
    disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
    db.step();
    assert!(db.statistics().log.expect("it is on disk").stopped);
}

#[test]
fn snapshots_show_what_was_durable_whatever_came_after() {
    for (protocol, mode) in with_snapshots().flat_map(|protocol| MODES.map(|mode| (protocol, mode))) {
        let case = format!("{protocol}, {mode}");
        let disk = FaultyDisk::new(31);
        let db = small(protocol, &disk).durability(mode).open().expect("a new database opens");
        let (accounts, queue) = (db.create::<Account>().expect("new"), db.create::<Job>().expect("new"));
        let (mut session, mut other) = (db.session(), db.session());
        let filled = session.transact(|tx| {
            (0..10).try_for_each(|id| tx.insert(&accounts, &account(id)))?;
            (0..200).try_for_each(|number| tx.insert(&queue, &job(number)))
        });
        filled.expect("no conflict");
        db.flush().expect("the disk works");
        let (before, queued) = (rows(&db), jobs(&mut session, &queue));
        // The first snapshot of a session may be validated instead.
        other.snapshot(|tx| tx.get(&accounts, &0).map(|row| assert!(row.is_some()))).expect("no conflict");
        // While it is open no row is unlinked, so it is open only in some cases.
        let under_way = (mode == Durability::Group).then(|| other.begin_snapshot().expect("a worker is free"));

        // Each row is changed more than once, with and without snapshots in between.
        for round in 0..4 {
            let mut write = |write: &dyn Fn(&Tx) -> Result<(), Abort>| {
                drop(session.submit(|tx| write(tx)));
            };
            write(&|tx| {
                for id in 0..5 {
                    tx.update(&accounts, &id, |row| row.set_balance(row.balance() + 1))?;
                }
                Ok(())
            });
            write(&|tx| {
                // A new owner is a deletion and an insertion in the index.
                tx.update(&accounts, &5, |row| row.set_owner(round % 7))?;
                tx.update(&accounts, &6, |row| row.set_note(&"long ".repeat(100 + round as usize)))??;
                tx.delete(&accounts, &7).map(drop)
            });
            write(&|tx| tx.insert(&accounts, &account(7)));
            write(&|tx| tx.insert(&accounts, &account(20 + u64::from(round))));
            for number in 0..150 {
                write(&|tx| tx.delete(&queue, &(1, number)).map(drop));
            }
            for number in 0..20 {
                write(&|tx| tx.insert(&queue, &Job { text: format!("another, in round {round}"), ..job(number) }));
            }
            write(&|tx| tx.insert(&queue, &job(1000 + u64::from(round))));
            if round % 2 == 1 {
                assert!(db.session().begin_snapshot().is_ok());
            }
        }
        stop(&db, &disk);
        let mut session = db.session();
        for _ in 0..2 {
            assert_eq!(rows(&db), before, "{case}");
            assert_eq!(jobs(&mut session, &queue), queued, "{case}");
            for id in 0..30 {
                let found = session.snapshot(|tx| Ok(tx.get(&accounts, &id)?.map(|row| row.to_owned())));
                let expected = before.iter().find(|row| row.id == id).cloned();
                assert_eq!(found.expect("the durable epoch can be read").value, expected, "{case}: account {id}");
            }
            for number in [0, 149, 150, 1000] {
                let found = session.snapshot(|tx| Ok(tx.get(&queue, &(1, number))?.is_some()));
                assert_eq!(found.expect("it can be read").value, number < 200, "{case}: job {number}");
            }
        }
        // A part of a queue, and one end of it.
        let part = session.snapshot(|tx| {
            let numbers = |jobs: Scan<'_, Job>| -> Result<Vec<u64>, Abort> {
                jobs.map(|job| job.map(|job| job.number())).collect()
            };
            let first = tx.scan(&queue, ..).next().transpose()?.map(|job| job.number());
            Ok((numbers(tx.scan(&queue, (1, 10)..(1, 160)))?, numbers(tx.scan_rev(&queue, (1, 10)..(1, 160)))?, first))
        });
        let (forward, backward, first) = part.expect("the durable epoch can be read").value;
        assert_eq!((forward, first), ((10..160).collect::<Vec<_>>(), Some(0)), "{case}");
        assert_eq!(backward, (10..160).rev().collect::<Vec<_>>(), "{case}");

        // Other transactions are refused as before, and nothing is written.
        let newest = session.transact(|tx| Ok(tx.require(&accounts, &0)?.balance()));
        assert!(matches!(newest, Err(TransactError::NotDurable { .. })), "{case}: {newest:?}");
        let written = session.transact(|tx| tx.insert(&accounts, &account(99)));
        assert!(matches!(written, Err(TransactError::LogStopped { .. })), "{case}: {written:?}");
        if let Some(under_way) = under_way {
            assert!(under_way.get(&accounts, &0).is_ok_and(|row| row.is_some()));
            under_way.finish().expect("it saw what was durable");
        }
    }
}

#[test]
fn a_snapshot_under_way_when_the_log_stops_is_refused_if_it_saw_more() {
    for protocol in with_snapshots() {
        let disk = FaultyDisk::new(32);
        let db = small(protocol, &disk).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("new");
        let (mut session, mut other) = (db.session(), db.session());
        drop(session.submit(|tx| tx.insert(&accounts, &account(1))));
        let under_way = other.begin_snapshot().expect("a worker is free");
        assert!(under_way.get(&accounts, &1).is_ok_and(|row| row.is_some()), "{protocol}: the newest");
        stop(&db, &disk);
        assert!(matches!(under_way.finish(), Err(TransactError::NotDurable { .. })), "{protocol}");
        let found = other.snapshot(|tx| Ok(tx.get(&accounts, &1)?.is_some()));
        assert!(!found.expect("the durable epoch").value, "{protocol}");
    }
}

/// The log has no entries for indexes that recovery rebuilt, but the durable epoch has them.
#[test]
fn indexes_made_again_are_seen_when_the_log_stops_before_anything_else_is_durable() {
    for protocol in with_snapshots() {
        let disk = FaultyDisk::new(33);
        let db = small(protocol, &disk).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("new");
        for id in 0..50 {
            db.session().transact(|tx| tx.insert(&accounts, &account(id))).expect("no conflict");
        }
        let before = rows(&db);
        drop((accounts, db));
        let db = small(protocol, &disk).open().expect("it opens again");
        let accounts = db.table::<Account>().expect("it is there");
        drop(db.session().submit(|tx| tx.delete(&accounts, &3).map(drop)));
        stop(&db, &disk);
        assert_eq!(before.len(), 50);
        assert_eq!(rows(&db), before, "{protocol}: by index");
    }
}

#[test]
fn indexes_are_checked_as_they_are_now() {
    let disk = FaultyDisk::new(34);
    let db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("new");
    db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("no conflict");
    drop(db.session().submit(|tx| tx.insert(&accounts, &account(2))));
    stop(&db, &disk);
    assert_eq!(db.check_indexes().expect("they agree with their table")[0].rows, 2);
}

/// Adds up all accounts by two scans and by keys; the three sums agree within a snapshot.
fn sum(session: &mut Session, accounts: &Handle<Account>) -> Result<(u64, i64), TransactError> {
    let read = session.snapshot(|tx| {
        let (by_owner, by_branch) = (accounts.index(Account::BY_OWNER), accounts.index(Account::BY_BRANCH));
        let mut sums = [(0, 0); 3];
        for owner in 0..7u32 {
            for row in tx.find_by(&by_owner, &owner) {
                sums[0] = (sums[0].0 + 1, sums[0].1 + row?.balance());
            }
        }
        for branch in 0..3u16 {
            for row in tx.find_by(&by_branch, &branch) {
                sums[1] = (sums[1].0 + 1, sums[1].1 + row?.balance());
            }
        }
        for id in 0..ACCOUNTS {
            if let Some(row) = tx.get(accounts, &id)? {
                sums[2] = (sums[2].0 + 1, sums[2].1 + row.balance());
            }
        }
        assert!(sums[0] == sums[1] && sums[1] == sums[2], "{sums:?}");
        Ok(sums[0])
    });
    Ok(read?.value)
}

const ACCOUNTS: u64 = 40;

/// A snapshot that begins while the log stops is consistent or is refused.
#[test]
fn snapshots_that_begin_while_the_log_stops_are_whole() {
    let seed = seed("snapshots_that_begin_while_the_log_stops_are_whole");
    for (round, protocol) in (0..60u64).flat_map(|round| with_snapshots().map(move |protocol| (round, protocol))) {
        let disk = FaultyDisk::new(seed.wrapping_add(round));
        let mode = [Durability::Async, Durability::Group, Durability::Sync][round as usize % 3];
        let db = small(protocol, &disk).step_helpers(false).epoch_interval(Duration::from_millis(1)).workers(6);
        let db = db.durability(mode).log_directories(["one", "two", "three"]).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("new");
        let filled = db.session().transact(|tx| (0..ACCOUNTS).try_for_each(|id| tx.insert(&accounts, &account(id))));
        filled.expect("no conflict");
        db.flush().expect("the disk works");
        let whole = (ACCOUNTS, 100 * ACCOUNTS as i64);
        let write = |number: u64| {
            let (mut session, mut rng) = (db.session(), Rng::from_seed(seed ^ round << 8 ^ number));
            loop {
                let (from, to, reborn) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.percent(40));
                let pending = session.submit(|tx| {
                    if from == to {
                        return Ok(());
                    }
                    let taken = tx.require(&accounts, &from)?.to_owned();
                    if reborn {
                        tx.delete(&accounts, &from)?;
                        let owner = (taken.owner + 1) % 7;
                        tx.insert(&accounts, &Account { owner, balance: taken.balance - 5, ..taken })?;
                    } else {
                        let note = "n".repeat((from + to) as usize * 7 % 300);
                        tx.update(&accounts, &from, |row| {
                            row.set_balance(row.balance() - 5);
                            row.set_note(&note)
                        })??;
                    }
                    tx.update(&accounts, &to, |row| row.set_balance(row.balance() + 5)).map(drop)
                });
                if let Ok(Err(TransactError::LogStopped { .. })) = pending.poll() {
                    return;
                }
            }
        };
        let stopped = || db.statistics().log.is_some_and(|log| log.stopped);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2).map(|number| scope.spawn(move || write(number))).collect();
            let reader = scope.spawn(|| {
                let mut session = db.session();
                while !stopped() {
                    match sum(&mut session, &accounts) {
                        Ok(sum) => assert_eq!(sum, whole),
                        Err(TransactError::NotDurable { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            thread::sleep(Duration::from_millis(5));
            disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
            writers.into_iter().for_each(|thread| thread.join().expect("no panic"));
            reader.join().expect("no panic");
        });
        let mut session = db.session();
        for _ in 0..3 {
            assert_eq!(sum(&mut session, &accounts).expect("the durable epoch"), whole, "{protocol}, {mode}");
        }
    }
}
