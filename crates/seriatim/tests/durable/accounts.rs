//! Databases that are closed, cut off by a power failure, and opened again.

use std::sync::Arc;

use seriatim::{Builder, Database, Durability, Table, available_protocols};
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

/// Every protocol, and one that copies rows and poisons each copy as early as it may.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    available_protocols()
        .iter()
        .map(|protocol| protocol.name)
        .chain([seriatim_engine::test_support::protocols::copying::NAME])
}

/// Options for a small database on `disk` with stepped background work.
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
fn acknowledged_transactions_are_there_again() {
    for protocol in names() {
        for checkpointed in [false, true] {
            let disk = FaultyDisk::new(7);
            let db = small(protocol, &disk).open().expect("a new database opens");
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
            let db = small(protocol, &disk).open().expect("it recovers");
            let recovery = db.recovery().expect("there was a database");
            assert_eq!(recovery.checkpoint_rows, if checkpointed { 100 } else { 0 });
            assert_eq!(rows(&db), before, "{protocol}");
            db.check_structure().expect("indexes are sound");
            // The database can still be written.
            let accounts = db.table::<Account>().expect("the table is there");
            db.session().transact(|tx| tx.insert(&accounts, &account(1000))).expect("inserted");
            disk.crash();
            drop((accounts, db));
            let db = small(protocol, &disk).open().expect("it recovers");
            assert_eq!(rows(&db).len(), 91);
        }
    }
}

#[test]
fn a_result_is_withheld_until_it_is_durable() {
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
fn recovered_data_survives_a_power_cut_although_its_flush_was_never_answered() {
    // A process is killed between the write of a batch and its flush. The next process reads the batch from the page
    // cache and reports it as durable; then the power fails.
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
    let durable = session.transact(|tx| tx.insert(&accounts, &account(2))).expect("inserted").receipt.tid.epoch().0;
    disk.crash();
    drop((session, accounts, db));
    for _ in 0..3 {
        let db = small("auto", &disk).open().expect("it recovers");
        assert_eq!(db.recovery().expect("there was a database").durable_epoch, durable);
        disk.crash();
    }
}

/// A row whose address may be NULL.
mod loose {
    #[derive(seriatim::Table, Clone, Debug, PartialEq)]
    #[table(name = "contact", key(id), index(name = "by_mail", columns(mail), unique, hash))]
    pub(super) struct Contact {
        pub(super) id: u64,
        pub(super) mail: Option<u32>,
    }
}

/// The same row, where at most one address may be NULL.
mod strict {
    #[derive(seriatim::Table, Clone, Debug, PartialEq)]
    #[table(name = "contact", key(id), index(name = "by_mail", columns(mail), unique, nulls_not_distinct, hash))]
    pub(super) struct Contact {
        pub(super) id: u64,
        pub(super) mail: Option<u32>,
    }
}

#[test]
fn the_meaning_of_equal_nulls_is_kept_with_the_table() {
    for protocol in names() {
        let disk = FaultyDisk::new(1);
        let open = || small(protocol, &disk).durability(Durability::Async).open().expect("a database");
        let db = open();
        let contacts = db.create::<loose::Contact>().expect("a new table");
        let insert =
            |id, mail| db.session().transact(|tx| tx.insert(&contacts, &loose::Contact { id, mail })).map(drop);
        for (id, mail) in [(1, None), (2, None), (3, Some(3))] {
            insert(id, mail).expect("NULL is no key");
        }
        db.flush().expect("the disk is sound");
        drop((contacts, db));
        let db = open();
        let checked = db.check_indexes().expect("indexes agree with their rows");
        assert_eq!(checked[0].rows, 3);
        let contacts = db.table::<loose::Contact>().expect("as it was declared");
        let by_mail = contacts.index(loose::Contact::BY_MAIL);
        let unknown = db.session().transact(|tx| tx.find_by(&by_mail, &None).try_count());
        assert_eq!(*unknown.expect("no conflict"), 2);
        let error = db.table::<strict::Contact>().expect_err("another meaning").to_string();
        assert!(error.contains("unique, not `by_mail` on (mail), hashed, unique, nulls_not_distinct"), "{error}");
        drop((contacts, by_mail, db));

        // A manifest that does not mention this option was written before the option existed.
        let disk = FaultyDisk::new(1);
        let open = || small(protocol, &disk).durability(Durability::Async).open().expect("a database");
        drop(open().create::<strict::Contact>().expect("a new table"));
        let db = open();
        let error = db.table::<loose::Contact>().expect_err("another meaning").to_string();
        assert!(error.contains("unique, nulls_not_distinct, not `by_mail` on (mail), hashed, unique"), "{error}");
        let contacts = db.table::<strict::Contact>().expect("as it was declared");
        let insert =
            |id| db.session().transact(|tx| tx.insert(&contacts, &strict::Contact { id, mail: None })).map(drop);
        insert(1).expect("the first");
        assert!(matches!(insert(2), Err(seriatim::TransactError::Duplicate { .. })));
    }
}
