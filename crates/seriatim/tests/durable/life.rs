//! A database that is closed, cut off and opened again.

use std::sync::Arc;

use seriatim::{Builder, Database, Durability, Table, protocols};
use seriatim_base::disk::FaultyDisk;

#[derive(Table, Clone, Debug, PartialEq)]
#[table(
    name = "account",
    key(id),
    hash,
    index(name = "by_owner", columns(owner)),
    index(name = "by_branch", columns(branch), hash)
)]
pub(crate) struct Account {
    pub(crate) id: u64,
    pub(crate) owner: u32,
    #[column(immutable)]
    pub(crate) branch: u16,
    pub(crate) balance: i64,
    pub(crate) note: String,
}

pub(crate) fn account(id: u64) -> Account {
    Account { id, owner: id as u32 % 7, branch: id as u16 % 3, balance: 100, note: format!("account {id}") }
}

/// Options for a small database on `disk`, stepped by its owner.
pub(crate) fn small(protocol: &str, disk: &FaultyDisk) -> Builder {
    let builder = Database::builder().protocol(protocol).workers(4).step_helpers(true);
    builder
        .path("/db")
        .disk(Arc::new(disk.mount()))
        .segment_bytes(64 << 10)
        .log_buffer_bytes(256)
        .checkpoint_bytes(None)
}

/// All rows, in order of their ids.
pub(crate) fn rows(db: &Database) -> Vec<Account> {
    let accounts = db.table::<Account>().expect("the table is there");
    let mut session = db.session();
    let by_owner = accounts.index(Account::BY_OWNER);
    let read = session.snapshot(|tx| {
        let mut rows = Vec::new();
        for owner in 0..8u32 {
            for row in tx.find_by(&by_owner, &owner) {
                rows.push(row?.to_owned());
            }
        }
        Ok(rows)
    });
    let mut rows = read.expect("a snapshot is read").value;
    rows.sort_by_key(|row| row.id);
    rows
}

#[test]
fn what_was_acknowledged_is_there_again() {
    for protocol in protocols() {
        for checkpointed in [false, true] {
            let disk = FaultyDisk::new(7);
            let db = small(protocol.name, &disk).open().expect("a new database opens");
            let accounts = db.create::<Account>().expect("the table is created");
            let mut session = db.session();
            for id in 0..100 {
                session.transact(|tx| tx.insert(&accounts, &account(id))).expect("inserted");
            }
            for id in 0..50 {
                let add = |tx: &seriatim::Tx| {
                    tx.update(&accounts, &id, |row| {
                        row.set_balance(row.balance() + id as i64);
                        row.set_owner(row.owner() + 1);
                        row.set_note("changed")
                    })
                };
                session.transact(add).expect("updated");
            }
            if checkpointed {
                db.checkpoint().expect("a checkpoint is taken");
            }
            for id in 90..100 {
                session.transact(|tx| tx.delete(&accounts, &id)).expect("deleted");
            }
            let before = rows(&db);
            assert_eq!(before.len(), 90);
            disk.crash();
            drop((session, accounts, db));
            let db = small(protocol.name, &disk).open().expect("it recovers");
            let recovery = db.recovery().expect("there was a database");
            assert_eq!(recovery.checkpoint_rows, if checkpointed { 100 } else { 0 });
            assert_eq!(rows(&db), before, "{}", protocol.name);
            db.check_structure().expect("indexes are sound");
            // And goes on.
            let accounts = db.table::<Account>().expect("the table is there");
            db.session().transact(|tx| tx.insert(&accounts, &account(1000))).expect("inserted");
            disk.crash();
            drop((accounts, db));
            let db = small(protocol.name, &disk).open().expect("it recovers");
            assert_eq!(rows(&db).len(), 91);
        }
    }
}

#[test]
fn a_result_is_sealed_until_it_is_durable() {
    let disk = FaultyDisk::new(7);
    let db = small("auto", &disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    let pending = session.submit(|tx| tx.insert(&accounts, &account(1)));
    assert!(!pending.is_ready());
    let pending = pending.poll().expect_err("nothing was flushed");
    db.step();
    db.step();
    assert!(pending.is_ready());
    pending.wait().expect("it is durable");
}

#[test]
fn two_cannot_open_it() {
    let disk = FaultyDisk::new(7);
    let db = small("auto", &disk).open().expect("a new database opens");
    let error = small("auto", &disk).open().expect_err("it is open");
    assert_eq!(error.to_string(), "the database in /db is open already, perhaps in another process");
    drop(db);
    small("auto", &disk).durability(Durability::Async).open().expect("it is closed");
}

#[test]
fn what_a_recovery_found_survives_a_power_cut_although_its_flush_was_never_answered() {
    // A process is killed between the write of a batch and its flush. The next one reads the batch out of the system's cache, takes
    // it for durable and says so; then the power fails.
    for n in 1..40 {
        let disk = FaultyDisk::new(n);
        let db = small("auto", &disk).durability(Durability::Async).open().expect("a new database opens");
        let accounts = db.create::<Account>().expect("the table is created");
        db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
        disk.kill_at(n);
        db.step();
        db.step();
        disk.kill();
        drop((accounts, db));
        let db = small("auto", &disk).open().expect("it recovers");
        let before = rows(&db);
        disk.crash();
        drop(db);
        let db = small("auto", &disk).open().expect("it recovers again");
        assert_eq!(rows(&db), before, "operation {n}");
    }
}

#[test]
fn a_directory_whose_maker_was_killed_is_durable_all_the_same() {
    for n in 1..10 {
        let disk = FaultyDisk::new(n);
        disk.kill_at(n);
        drop(small("auto", &disk).open());
        disk.kill();
        let db = small("auto", &disk).open().expect("it opens");
        let accounts = db.create::<Account>().expect("the table is created");
        db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
        disk.crash();
        drop((accounts, db));
        let db = small("auto", &disk).open().expect("it recovers");
        assert_eq!(rows(&db).len(), 1, "operation {n}");
    }
}

#[test]
fn a_recovery_does_not_count_the_epochs_of_an_incarnation_that_wrote_nothing() {
    let disk = FaultyDisk::new(7);
    let db = small("auto", &disk).log_directories([".", "."]).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    session.transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    let durable = session.transact(|tx| tx.insert(&accounts, &account(2))).expect("inserted").receipt.stamp.epoch().0;
    disk.crash();
    drop((session, accounts, db));
    for _ in 0..3 {
        let db = small("auto", &disk).open().expect("it recovers");
        assert_eq!(db.recovery().expect("there was a database").durable_epoch, durable);
        disk.crash();
    }
}
