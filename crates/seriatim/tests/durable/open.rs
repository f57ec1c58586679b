//! Opening as users do it: existing tables, progress, backups, and checks of indexes against their tables.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use seriatim::{
    Abort, Batch, Database, RecoveryPhase, SchemaError, StorageError, Table, TransactError, Tx, backup, procedure,
    procedures,
};

use super::accounts::{Account, account};

/// Another definition of the same table.
#[derive(Table)]
#[table(name = "account", key(id), hash)]
struct Narrow {
    id: u64,
    balance: i64,
}

/// A directory of the file system that is removed on drop.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let path = std::env::temp_dir().join(format!("seriatim-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Home(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn insert(db: &Database, ids: std::ops::Range<u64>) {
    let accounts = db.create_or_open::<Account>().expect("the table opens");
    let mut session = db.session();
    let row = |id| Account { id, owner: id as u32 % 7, branch: id as u16 % 3, balance: 100, note: "n".repeat(40) };
    session.transact(|tx| ids.clone().try_for_each(|id| tx.insert(&accounts, &row(id)))).expect("it commits");
}

fn count(directory: &Path) -> u64 {
    let db = Database::builder().inspect(directory).open().expect("the database opens");
    let checked = db.check_indexes().expect("indexes agree with their table");
    assert_eq!((checked.len(), checked[0].name.as_str(), checked[0].indexes), (1, "account", 2));
    checked[0].rows
}

#[test]
fn tables_are_created_or_opened_and_other_definitions_refused() {
    let home = Home::new("create-or-open");
    for round in 0..3 {
        let db = Database::open(home.at("db")).expect("the database opens");
        assert_eq!(db.recovery().is_some(), round > 0);
        insert(&db, round * 10..round * 10 + 10);
        let refused = db.create_or_open::<Narrow>().expect_err("another definition");
        assert!(matches!(&refused, SchemaError::Mismatch { table, .. } if table == "account"), "{refused}");
    }
    assert_eq!(count(&home.at("db")), 30);
}

/// A batch would wait for half a minute.
#[test]
fn neither_indexes_that_are_made_again_nor_their_check_go_through_the_queue_of_decisions() {
    let home = Home::new("unqueued");
    insert(&Database::open(home.at("db")).expect("the database opens"), 0..300);
    for protocol in seriatim::protocols().iter().filter(|protocol| protocol.capabilities.detach) {
        let builder = Database::builder().protocol(protocol.name).path(home.at("db"));
        let builder = builder.protocol_option("batch_max", 64).protocol_option("batch_wait_us", 30_000_000);
        let db = builder.open().expect("it recovers");
        assert_eq!(db.recovery().map(|recovery| recovery.indexed_rows), Some(300));
        assert_eq!(db.check_indexes().expect("indexes agree with their table")[0].rows, 300);
        assert_eq!(db.statistics().queue.map(|queue| queue.decisions), Some(0));
    }
}

/// The executor acknowledges transactions when they are durable, and recovery finds them.
#[test]
fn transactions_of_an_executor_are_durable_when_acknowledged() {
    let home = Home::new("executor");
    for (round, protocol) in ["dbx", "occ-batch"].into_iter().enumerate() {
        let ids = round as u64 * 100..round as u64 * 100 + 100;
        let db = Database::builder().path(home.at("db")).protocol(protocol).open().expect("the database opens");
        let accounts = db.create_or_open::<Account>().expect("the table opens");
        let executor = db.executor(2).expect("threads");
        let running: Vec<_> = ids
            .map(|id| {
                let accounts = accounts.clone();
                executor.transact(move |tx| tx.insert(&accounts, &account(id)))
            })
            .collect();
        for running in running {
            let receipt = running.wait().expect("a new key").receipt;
            assert!(db.is_durable(&receipt));
        }
        drop((executor, accounts, db));
        assert_eq!(count(&home.at("db")), 100 * (round as u64 + 1));
    }
}

#[procedure]
fn deposit(tx: &Tx, id: u64) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(id, |account| {
        account.balance += 1;
        account.balance
    })?;
    Ok(balance)
}

/// The database is closed when a part of a batch has run. Each caller gets the result of its own call, and recovery
/// finds what was acknowledged.
#[test]
fn a_database_that_is_closed_during_a_batch_keeps_the_acknowledged_transactions() {
    let home = Home::new("closed-batch");
    for round in 0..4 {
        let path = home.at(&format!("db{round}"));
        let db = Database::builder().path(&path).batch(Batch::Size(8)).open().expect("the database opens");
        let accounts = db.create::<Account>().expect("a valid table");
        db.session().transact(|tx| (0..4).try_for_each(|id| tx.insert(&accounts, &account(id)))).expect("new keys");
        db.register(procedures![deposit]).expect("a sound set");
        let balances = |db: &Database| {
            let accounts = db.table::<Account>().expect("it is there");
            let sum = db.session().snapshot(|tx| {
                (0..4).try_fold(0, |sum, id| Ok(sum + tx.get(&accounts, &id)?.expect("it was inserted").balance()))
            });
            sum.expect("no conflict").value
        };
        let before = balances(&db);
        let executor = db.executor(2).expect("threads");
        let mut running: Vec<_> = (0..400).map(|at| executor.call(deposit, at % 4)).collect();
        // Some calls have run, some have not.
        running.swap_remove(0).wait().expect("it is retried");
        db.close().expect("all of it is durable");
        // The number of committed calls, and of calls that were on their way to the log when it stopped.
        let mut told = (1, 0);
        for running in running {
            match running.wait() {
                Ok(_) => told.0 += 1,
                Err(TransactError::Closed) => {}
                Err(error @ TransactError::NotDurable { .. }) => {
                    assert!(error.is_maybe_committed());
                    told.1 += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(executor.batch_statistics().calls == 400);
        drop((executor, accounts));
        let after = Database::open(&path).expect("it recovers");
        let recovered = balances(&after) - before;
        assert!((told.0..=told.0 + told.1).contains(&recovered), "{recovered} of {told:?}");
    }
}

#[test]
fn recovery_reports_its_progress_in_order_and_how_many_rows_it_indexed() {
    let home = Home::new("progress");
    {
        let db = Database::open(home.at("db")).expect("the database opens");
        insert(&db, 0..50);
        db.checkpoint().expect("a checkpoint is taken");
        insert(&db, 50..80);
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let builder = Database::builder().path(home.at("db"));
    let db = builder.on_recovery(move |at| listener.lock().expect("no panic").push(at)).open();
    let db = db.expect("it recovers");
    let told = told.lock().expect("no panic");
    let order = [RecoveryPhase::Checkpoint, RecoveryPhase::Log, RecoveryPhase::Indexes];
    let at = |phase| order.iter().position(|other| *other == phase);
    assert!(told.windows(2).all(|two| at(two[0].phase) <= at(two[1].phase)), "{told:?}");
    for phase in order {
        let most = told.iter().filter(|at| at.phase == phase).max_by_key(|at| at.done).expect("every phase tells");
        assert!(most.done > 0 && most.total.is_none_or(|total| most.done == total), "{told:?}");
    }
    let recovery = db.recovery().expect("it recovered");
    assert_eq!((recovery.checkpoint_rows, recovery.indexed_rows), (50, 80));
}

#[test]
fn backups_are_taken_in_use_verified_and_restored_elsewhere() {
    let home = Home::new("backup");
    let db = Database::open(home.at("db")).expect("the database opens");
    insert(&db, 0..20);
    let copied = db.backup(home.at("copy")).expect("it is copied").expect("it has a directory");
    assert!(copied.bytes > 0 && copied.durable_epoch > 0);
    insert(&db, 20..30);
    // A backup from the outside, as another process would take it.
    backup::take(home.at("db"), home.at("later"), &|_, _| {}).expect("it is copied");
    let refused = db.backup(home.at("copy")).expect_err("there is a copy");
    assert!(matches!(refused, StorageError::NotADatabase { .. }), "{refused}");
    drop(db);
    assert!(backup::verify(home.at("copy"), &|_, _| {}).expect("it is whole").entries >= 20);
    let seen = Mutex::new((0, 0));
    let progress = |done, total| *seen.lock().expect("no panic") = (done, total);
    backup::restore(home.at("copy"), home.at("restored"), &progress).expect("it is restored");
    let (done, total) = *seen.lock().expect("no panic");
    assert!(done == total && total > 0);
    let counts = ["db", "copy", "later", "restored"].map(|name| count(&home.at(name)));
    assert_eq!(counts, [30, 20, 30, 20]);
    assert_eq!(Database::in_memory().expect("memory").backup(home.at("none")).expect("no files"), None);
}

#[test]
fn the_log_is_counted() {
    let home = Home::new("counted");
    let db = Database::open(home.at("db")).expect("the database opens");
    insert(&db, 0..20);
    let before = db.statistics();
    (20..25).for_each(|id| insert(&db, id..id + 1));
    db.checkpoint().expect("a checkpoint is taken");
    let log = db.statistics().since(&before).log.expect("it has a log");
    assert_eq!((log.commits, log.checkpoints), (5, 1));
    assert!(log.flushes > 0 && log.bytes > log.payload_bytes && log.payload_bytes > 5 * 40, "{log:?}");
    assert!(log.durable_epoch <= log.epoch);
    assert_eq!(Database::in_memory().expect("memory").statistics().log, None);
}
