//! Results are returned when they are durable and not before, however a transaction ends.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use seriatim::procedure::{Data, ExecutionMode};
use seriatim::{
    Abort, Database, Durability, Handle, Pending, Table, TransactError, Tx, available_protocols, procedure, procedures,
};
use seriatim_base::disk::{FaultyDisk, Operation, Times};
use seriatim_check::check_dependencies;

use crate::accounts::{Account, account, small};

/// Wakes the waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[derive(Debug)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

/// Takes from an account; overflows if the account holds too little.
#[procedure]
fn take(tx: &Tx, id: u64, amount: i64) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(id, |account| {
        account.balance -= amount;
        account.balance
    })?;
    Ok(balance)
}

/// A database whose row 1 is committed and not durable.
fn committed(protocol: &str, disk: &FaultyDisk) -> (Database, Handle<Account>) {
    let db = small(protocol, disk).open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    drop(db.session().submit(|tx| tx.insert(&accounts, &account(1))));
    (db, accounts)
}

/// Whether a result was withheld, and the result, which is durable by then.
fn was_withheld<R: std::fmt::Debug>(db: &Database, pending: Pending<R>) -> (bool, Result<R, TransactError>) {
    let withheld = !pending.is_ready();
    db.step();
    db.step();
    assert!(pending.is_ready());
    (withheld, pending.wait().map(|committed| committed.value))
}

#[test]
fn every_end_of_a_transaction_that_saw_something_waits_for_it() {
    for protocol in available_protocols() {
        let on = |test: &dyn Fn(&Database, &Handle<Account>)| {
            let disk = FaultyDisk::new(21);
            let (db, accounts) = committed(protocol.name, &disk);
            db.register(procedures![take]).expect("a sound set");
            test(&db, &accounts);
        };
        let name = protocol.name;
        on(&|db, accounts| {
            let (withheld, read) = was_withheld(db, db.session().submit(|tx| Ok(tx.get(accounts, &1)?.is_some())));
            assert!(withheld && read.expect("it is there"), "{name}: a read");
        });
        on(&|db, accounts| {
            let aborted = db.session().submit(|tx| {
                tx.get(accounts, &1)?;
                Err::<(), _>(tx.abort(Refused))
            });
            let (withheld, result) = was_withheld(db, aborted);
            assert!(withheld && result.is_err_and(|error| error.user::<Refused>().is_some()), "{name}: an abort");
        });
        on(&|db, accounts| {
            let (withheld, result) = was_withheld(db, db.session().submit(|tx| tx.insert(accounts, &account(1))));
            assert!(withheld && matches!(result, Err(TransactError::Duplicate { .. })), "{name}: a duplicate");
        });
        on(&|db, accounts| {
            db.session().submit(|tx| tx.delete(accounts, &1)).is_ready();
            let (withheld, result) = was_withheld(db, db.session().submit(|tx| Ok(tx.require(accounts, &1)?.id())));
            assert!(withheld && matches!(result, Err(TransactError::MissingRow { .. })), "{name}: a missing row");
        });
        on(&|db, _| {
            let (withheld, result) = was_withheld(db, db.session().submit_call(take, &(1, i64::MIN)));
            assert!(withheld && matches!(result, Err(TransactError::Overflow { .. })), "{name}: overflow");
        });
        on(&|db, _| {
            let (withheld, result) = was_withheld(db, db.session().submit_call(take, &(1, 30)));
            assert!(withheld && result.expect("it is called") == 70, "{name}: a call");
        });
        on(&|db, _| {
            let (withheld, result) = was_withheld(db, db.session().submit_by_name("take", &(1u64, 30i64).to_value()));
            assert!(withheld && result.expect("it is called") == 70i64.to_value(), "{name}: a call by name");
        });
        on(&|db, _| {
            let before = db.durable_epoch();
            assert_eq!(db.session().interpret(take, &(1, 30)).expect("interpreted").value, 70);
            assert!(db.durable_epoch() > before, "{name}: interpreted");
            assert_eq!(check_dependencies(&mut db.session(), take, &(1, 30), 1).expect("interpreted"), Ok(()));
        });
        on(&|db, accounts| {
            let mut session = db.session();
            let tx = session.begin().expect("a worker is free");
            tx.insert(accounts, &account(2)).expect("it is new");
            let (withheld, result) = was_withheld(db, tx.submit());
            assert!(withheld && result.is_ok(), "{name}: an explicit transaction");
        });
        on(&|db, accounts| {
            db.step();
            drop(db.session().submit(|tx| tx.insert(accounts, &account(3))));
            let mut session = db.session();
            let tx = session.begin_snapshot().expect("a worker is free");
            let seen = tx.get(accounts, &3).expect("no conflict").is_some();
            let (withheld, result) = was_withheld(db, tx.submit());
            assert!(withheld >= seen && result.is_ok(), "{name}: a snapshot");
        });
        on(&|db, accounts| {
            let mut session = db.session();
            // The reads of the previous transaction do not delay a call that never began.
            let earlier = session.submit(|tx| Ok(tx.get(accounts, &1)?.is_some()));
            assert!(!earlier.is_ready());
            let unknown = session.submit_by_name("give", &1u64.to_value());
            assert!(unknown.is_ready() && matches!(unknown.wait(), Err(TransactError::UnknownProcedure { .. })));
        });
    }
}

#[test]
fn a_panic_waits_until_the_state_that_it_reveals_is_durable() {
    for protocol in available_protocols() {
        let disk = FaultyDisk::new(22);
        let (db, accounts) = committed(protocol.name, &disk);
        let mut session = db.session();
        let panics = |tx: &Tx| -> Result<(), Abort> {
            let found = tx.get(&accounts, &1)?.is_some();
            panic!("found {found}")
        };
        let before = db.durable_epoch();
        let panic = catch_unwind(AssertUnwindSafe(|| drop(session.submit(panics)))).expect_err("it panics");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("found true"));
        assert!(db.durable_epoch() > before, "{}", protocol.name);
        drop(session.submit(|tx| tx.delete(&accounts, &1)));
        disk.fail(Operation::Sync, 1, Times::Once, std::io::ErrorKind::Other);
        let panics = |tx: &Tx| -> Result<(), Abort> {
            let found = tx.get(&accounts, &1)?.is_some();
            panic!("found {found}")
        };
        // The panic would reveal that the row is gone, so the call must not panic.
        let result = catch_unwind(AssertUnwindSafe(|| session.transact(panics)));
        let result = result.unwrap_or_else(|_| panic!("{}: the panic left", protocol.name));
        assert!(matches!(result, Err(TransactError::NotDurable { .. })), "{}", protocol.name);
    }
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "label", key(id), hash)]
struct Label {
    id: i64,
    text: u32,
}

/// Takes, then reads the label of the new balance: a piece that may follow.
#[procedure]
fn take_and_label(tx: &Tx, id: u64) -> Result<Option<u32>, Abort> {
    let left = tx.update::<Account>(id, |account| {
        account.balance -= 1;
        account.balance
    })?;
    let Some(label) = tx.get::<Label>(left)? else { return Ok(None) };
    Ok(Some(label.text))
}

#[test]
fn a_chain_of_pieces_waits_for_all_of_them_and_survives() {
    for protocol in available_protocols() {
        let disk = FaultyDisk::new(23);
        let open = || small(protocol.name, &disk).execution_mode(ExecutionMode::Pieces).open().expect("it opens");
        let db = open();
        let accounts = db.create::<Account>().expect("the table is created");
        let labels = db.create::<Label>().expect("the table is created");
        let mut session = db.session();
        let load = session.transact(|tx| {
            tx.insert(&accounts, &account(1))?;
            tx.insert(&labels, &Label { id: 99, text: 7 })
        });
        load.expect("new tables");
        db.register(procedures![take_and_label]).expect("a sound set");
        let pending = session.submit_call(take_and_label, &1);
        assert!(!pending.is_ready(), "{}", protocol.name);
        assert_eq!(pending.wait().expect("it is durable").value, Some(7));
        disk.crash();
        drop((session, accounts, labels, db));
        let db = open();
        let accounts = db.table::<Account>().expect("it is there");
        let balance = db.session().transact(|tx| Ok(tx.require(&accounts, &1)?.balance()));
        assert_eq!(balance.expect("it is there").value, 99, "{}", protocol.name);
    }
}

#[test]
fn a_call_that_waits_for_nothing_is_answered_at_once() {
    let disk = FaultyDisk::new(24);
    let (db, accounts) = committed("auto", &disk);
    db.flush().expect("the disk works");
    let read = db.session().submit(|tx| Ok(tx.get(&accounts, &1)?.is_some()));
    assert!(read.is_ready(), "it read durable data only");
    let log = || db.statistics().log.expect("it is on disk");
    let before = log();
    for _ in 0..10 {
        db.session().transact(|tx| Ok(tx.get(&accounts, &1)?.is_some())).expect("a read");
        db.step();
    }
    assert_eq!(
        (log().commits, log().flushes),
        (before.commits, before.flushes),
        "what wrote nothing costs the log nothing"
    );
}

#[test]
fn many_results_wait_as_futures_and_outlive_session_and_database() {
    let disk = FaultyDisk::new(25);
    let db =
        small("auto", &disk).step_helpers(false).epoch_interval(Duration::from_millis(1)).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    let mut outstanding: Vec<_> = (0..500).map(|id| session.submit(|tx| tx.insert(&accounts, &account(id)))).collect();
    // Dropping a pending result has no other effect.
    outstanding.truncate(300);
    drop((session, accounts, db));
    for pending in outstanding {
        let committed = block_on(pending).expect("it is durable");
        assert_eq!(committed.attempts, 1);
    }
    let db = small("auto", &disk).open().expect("it was closed with its last result");
    let accounts = db.table::<Account>().expect("it is there");
    let count = db
        .session()
        .snapshot(|tx| (0..500).try_fold(0, |sum, id| Ok(sum + i32::from(tx.get(&accounts, &id)?.is_some()))));
    assert_eq!(count.expect("a snapshot").value, 500);
}

/// A database whose epochs end after an hour, unless a caller asks for it.
fn without_ticks(disk: &FaultyDisk, durability: Durability) -> Database {
    let hour = Duration::from_secs(3600);
    let builder = small("auto", disk).step_helpers(false).epoch_interval(hour).transaction_age_max(hour);
    builder.durability(durability).open().expect("it opens")
}

#[test]
fn a_waiting_caller_waits_for_the_disk_and_not_for_a_timer() {
    for durability in [Durability::Group, Durability::Sync] {
        let db = without_ticks(&FaultyDisk::new(29), durability);
        let accounts = db.create::<Account>().expect("the table is created");
        let mut session = db.session();
        for id in 0..20 {
            // Waits without a limit, with a limit, and as a future.
            let pending = session.submit(|tx| tx.insert(&accounts, &account(id)));
            let answered = match id % 3 {
                0 => pending.wait(),
                1 => pending.wait_timeout(Duration::from_secs(3000)).expect("within an hour"),
                _ => block_on(pending),
            };
            answered.expect("it is durable");
        }
    }
}

#[test]
fn waiting_ends_epochs_no_faster_than_the_disk_flushes_them() {
    let db = without_ticks(&FaultyDisk::new(30), Durability::Group);
    let accounts = db.create::<Account>().expect("the table is created");
    let before = db.statistics().log.expect("it is on disk");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (db, accounts) = (&db, &accounts);
            scope.spawn(move || {
                let mut session = db.session();
                for id in 0..50 {
                    session.transact(|tx| tx.insert(accounts, &account(100 * thread + id))).expect("inserted");
                }
            });
        }
    });
    let after = db.statistics().log.expect("it is on disk");
    let (epochs, flushes) = (after.epoch - before.epoch, after.flushes - before.flushes);
    // An epoch without commits may have ended: the caller that asked for it was answered meanwhile.
    assert!(epochs <= 2 * flushes + 2, "{epochs} epochs, {flushes} flushes");
    assert!(flushes <= 2 * 400, "of each commit, and of the end of its epoch where that came later: {flushes}");
}

fn epoch_of(db: &Database) -> u64 {
    db.statistics().log.expect("it is on disk").epoch
}

#[test]
fn a_transaction_ages_by_time_and_not_by_the_epochs_that_others_end() {
    let disk = FaultyDisk::new(32);
    let (interval, age) = (Duration::from_millis(10), Duration::from_millis(100));
    let db = small("auto", &disk).epoch_interval(interval).transaction_age_max(age).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let (mut session, mut other) = (db.session(), db.session());
    let tx = session.begin().expect("a worker is free");
    let epoch = epoch_of(&db);
    for id in 0..50 {
        other.transact(|tx| tx.insert(&accounts, &account(id))).expect("inserted");
    }
    assert!(epoch_of(&db) >= epoch + 50, "each was waited for");
    tx.get(&accounts, &99).expect("no time has passed");
    (0..11).for_each(|_| db.step());
    let _ = tx.get(&accounts, &99).expect_err("it is too old");
}

/// A value that the waker drops, on the thread that wakes.
struct DropsAll(Mutex<Option<Pending<()>>>);

impl Wake for DropsAll {
    fn wake(self: Arc<DropsAll>) {
        drop(self.0.lock().expect("no panic").take());
    }
}

#[test]
fn the_last_that_keeps_a_database_may_be_dropped_by_its_own_logger() {
    let disk = FaultyDisk::new(26);
    let db = small("auto", &disk).step_helpers(false).checkpoint_bytes(Some(1)).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let drops = Arc::new(DropsAll(Mutex::new(None)));
    let mut pending = db.session().submit(|tx| tx.insert(&accounts, &account(1)));
    let waker = Waker::from(Arc::clone(&drops));
    let mut slot = drops.0.lock().expect("no panic");
    let is_waiting = std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending();
    drop((accounts, db));
    *slot = Some(pending);
    drop(slot);
    if !is_waiting {
        drop(drops.0.lock().expect("no panic").take());
    }
    // The database is closed by then, or soon.
    let mut opened = None;
    for _ in 0..12_000 {
        opened = small("auto", &disk).open().ok();
        if opened.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let db = opened.expect("it was closed");
    let accounts = db.table::<Account>().expect("it is there");
    assert!(db.session().snapshot(|tx| Ok(tx.get(&accounts, &1)?.is_some())).expect("a snapshot").value);
}

#[test]
fn a_receipt_shows_when_an_asynchronous_result_is_durable() {
    let disk = FaultyDisk::new(27);
    let db = small("auto", &disk).durability(Durability::Async).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let done = db.session().transact(|tx| tx.insert(&accounts, &account(1))).expect("inserted");
    assert!(!db.is_durable(&done.receipt));
    let wanted = done.receipt.epoch();
    while db.durable_epoch().expect("it is on disk") < wanted {
        db.step();
    }
    assert!(db.is_durable(&done.receipt));
    let memory = Database::in_memory().expect("memory");
    assert!(memory.durable_epoch().is_none() && !memory.is_durable(&done.receipt));
    memory.flush().expect("at once");
    assert!(memory.checkpoint().expect("at once").is_none() && memory.statistics().log.is_none());
}

#[test]
fn a_database_handle_may_go_in_the_middle_of_a_transaction() {
    let disk = FaultyDisk::new(28);
    let db = small("auto", &disk).step_helpers(false).open().expect("it opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    let mut db = Some(db);
    let inserted = session.transact(|tx| {
        tx.insert(&accounts, &account(1))?;
        drop(db.take());
        Ok(())
    });
    inserted.expect("the session keeps it open");
    drop((session, accounts));
    let db = small("auto", &disk).open().expect("it was closed");
    let accounts = db.table::<Account>().expect("it is there");
    assert!(db.session().snapshot(|tx| Ok(tx.get(&accounts, &1)?.is_some())).expect("a snapshot").value);
}
