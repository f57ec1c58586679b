//! Background threads: one per processor, in addition to all workers, and as few as the operating system grants.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::{Builder, Database, Durability, Handle, RecoveryPhase};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::thread;

use crate::accounts::{Account, account, rows, small};

/// A database with as many background threads as on a machine with eight processors.
fn eight(disk: &FaultyDisk) -> Builder {
    small("auto", disk).workers(8).helper_threads(8)
}

fn insert(db: &Database, accounts: &Handle<Account>, ids: std::ops::Range<u64>) {
    let fill = db.session().transact(|tx| ids.clone().try_for_each(|id| tx.insert(accounts, &account(id))));
    fill.expect("no conflict");
}

#[test]
fn a_database_opens_with_all_workers_and_helpers_while_a_checkpoint_is_due() {
    let disk = FaultyDisk::new(41);
    let db = eight(&disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    insert(&db, &accounts, 0..3000);
    drop((accounts, db));
    // All threads that rebuild indexes occupy their walker and worker before the checkpoint thread can check for
    // work.
    let helpers = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&helpers);
    let all_at_work = move |progress: seriatim::RecoveryProgress| {
        if progress.phase != RecoveryPhase::Indexes {
            return;
        }
        let count = || seen.lock().expect("no panic").len();
        if seen.lock().expect("no panic").insert(std::thread::current().id()) {
            // For ever if there are fewer threads.
            while count() < 8 {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(300));
        }
    };
    let builder = eight(&disk).step_helpers(false).checkpoint_bytes(Some(1)).on_recovery(all_at_work);
    let db = builder.open().expect("it recovers");
    assert_eq!(helpers.lock().expect("no panic").len(), 8);
    let log = || db.statistics().log.expect("it is on disk");
    while log().checkpoints == 0 {
        assert_eq!(log().checkpoint_error, None);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log().checkpoints_failed, 0);
    assert_eq!(rows(&db).len(), 3000);
}

#[test]
fn opening_checkpoints_and_checks_use_the_threads_that_are_granted() {
    let disk = FaultyDisk::new(42);
    let open = || eight(&disk).durability(Durability::Async).open().expect("fewer threads will do");
    let db = open();
    let accounts = db.create::<Account>().expect("the table is created");
    insert(&db, &accounts, 0..300);
    db.checkpoint().expect("the disk works");
    insert(&db, &accounts, 300..400);
    db.flush().expect("the disk works");
    drop((accounts, db));
    // Up to 7 threads for each step of the recovery and for each index.
    for granted in [0, 1, 3, 7, 8, 9, 15, 20, 25, 30, 40] {
        let db = thread::granted(granted, open);
        assert_eq!(rows(&db).len(), 400, "{granted} threads granted");
        let checked = thread::granted(granted, || db.check_indexes()).expect("they agree");
        assert_eq!(checked[0].rows, 400, "{granted} threads granted");
        let checkpoint = thread::granted(granted, || db.checkpoint()).expect("the disk works").expect("it is on disk");
        assert_eq!(checkpoint.rows, 400, "{granted} threads granted");
    }
}

#[test]
fn a_thread_that_is_refused_where_none_can_do_without_is_an_error() {
    let disk = FaultyDisk::new(43);
    let error = thread::granted(0, || eight(&disk).step_helpers(false).open());
    let error = error.expect_err("there is no thread for the log").to_string();
    assert!(error.contains("thread"), "{error}");
    let db = eight(&disk).step_helpers(false).disk(Arc::new(disk.mount())).open().expect("it opens now");
    db.create::<Account>().expect("and goes on");
}
