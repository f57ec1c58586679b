//! Memory is reclaimed, also when versions are kept for the durable epoch, and when the log has stopped.

use std::io::ErrorKind;

use seriatim::rng::{sample, seed};
use seriatim::{Database, Freshness, Handle, Session, TransactError, available_protocols};
use seriatim_base::disk::{FaultyDisk, Operation, Times};

use crate::accounts::{Account, account, small};

fn memory(db: &Database) -> usize {
    (0..4).for_each(|_| db.step());
    db.statistics().memory_bytes
}

/// A database with accounts 0 to 99.
fn with_accounts(protocol: &str, disk: &FaultyDisk) -> (Database, Handle<Account>, Session) {
    let db = small(protocol, disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("new");
    let mut session = db.session();
    for id in 0..100 {
        session.transact(|tx| tx.insert(&accounts, &account(id))).expect("no conflict");
    }
    (db, accounts, session)
}

/// Makes many inserts that are refused, and checks that memory does not grow.
fn refuse(
    db: &Database,
    session: &mut Session,
    accounts: &Handle<Account>,
    is_refusal: impl Fn(&TransactError) -> bool,
) {
    let mut refuse = |times: u64| {
        for id in 0..times {
            let refused = session.transact(|tx| tx.insert(accounts, &account(1000 + id)));
            assert!(refused.as_ref().is_err_and(&is_refusal), "{refused:?}");
        }
        memory(db)
    };
    let before = refuse(1000);
    let after = refuse(10_000);
    assert!(after < before + before / 10 + 4096, "{}: {before} bytes grew to {after}", db.protocol().name);
}

/// Refused transactions release all their memory, including records that they had linked.
#[test]
fn refused_transactions_take_no_memory_once_the_log_has_stopped() {
    for protocol in ["silo", "dbx"] {
        let disk = FaultyDisk::new(71);
        let (db, accounts, mut session) = with_accounts(protocol, &disk);
        // The second update replaces a version outside of the record, which is kept for an epoch that never becomes
        // durable.
        for balance in [7, 8] {
            drop(session.submit(|tx| tx.update(&accounts, &1, |row| row.set_balance(balance))));
        }
        disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
        db.step();
        refuse(&db, &mut session, &accounts, |error| matches!(error, TransactError::LogStopped { .. }));
    }
}

/// The same while the disk is full.
#[test]
fn refused_transactions_take_no_memory_while_the_disk_is_full() {
    for protocol in ["silo", "dbx"] {
        let disk = FaultyDisk::new(72);
        let (db, accounts, mut session) = with_accounts(protocol, &disk);
        disk.set_capacity(disk.used_bytes());
        let mut number = 0;
        while db.statistics().log.expect("it is on disk").refusal.is_none() {
            number += 1;
            assert!(number < 100_000, "the disk gets full");
            drop(session.submit(|tx| tx.update(&accounts, &1, |row| row.set_balance(number as i64))));
            db.step();
        }
        refuse(&db, &mut session, &accounts, |error| matches!(error, TransactError::DiskFull { .. }));
    }
}

/// A worker that is never idle, but does little, reclaims a large deletion once it is durable.
#[test]
#[ignore = "nightly: seconds"]
fn memory_of_a_large_deletion_comes_back_to_its_busy_worker() {
    const ROWS: u64 = 20_000;
    let seed = seed("memory_of_a_large_deletion_comes_back_to_its_busy_worker");
    for info in sample(available_protocols(), 3, seed) {
        let (protocol, disk) = (info.name, FaultyDisk::new(73));
        let builder = small(protocol, &disk).workers(1);
        // Transactions that make periodic snapshots would reclaim memory too.
        let is_eventual = info.capabilities.snapshots == Freshness::Eventual;
        let builder = if is_eventual { builder.protocol_option("snapshot_interval_ms", 0) } else { builder };
        let db = builder.open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("new");
        let mut session = db.session();
        session.transact(|tx| (0..ROWS).try_for_each(|id| tx.insert(&accounts, &account(id)))).expect("alone");
        let full = memory(&db);
        let deleted = session.transact(|tx| (0..ROWS).try_for_each(|id| tx.delete(&accounts, &id).map(drop)));
        deleted.expect("alone");
        db.flush().expect("the disk works");
        if info.capabilities.snapshots == Freshness::Past {
            // Memory that old snapshots may need is kept for this many epochs.
            (0..3).for_each(|_| db.step());
        }
        // No worker is idle, so no background thread reclaims memory: only these transactions do. At one in 50 ms
        // this takes 100 seconds.
        for _ in 0..2000 {
            session.snapshot(|tx| tx.get(&accounts, &0).map(|row| assert!(row.is_none()))).expect("alone");
        }
        let left = db.statistics().memory_bytes;
        assert!(left < full / 4, "{protocol}: {left} of {full} bytes are in use");
    }
}
