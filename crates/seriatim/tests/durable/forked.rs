//! In a fork of a process that has a database open, calls return an error. Its copies are dropped without effect, and
//! it does not disturb the parent.

use std::mem::forget;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use seriatim::{Builder, Committed, Database, Durability, Handle, SchemaError, StorageError, Table, TransactError};
use seriatim_base::process::{end_fork, fork, in_fork};

use crate::accounts::{Account, account};
use crate::locks::Home;

#[derive(Table)]
#[table(name = "other", key(id), hash)]
struct Other {
    id: u64,
}

fn insert(db: &Database, accounts: &Handle<Account>, id: u64) -> Result<(), TransactError> {
    db.session().transact(|tx| tx.insert(accounts, &account(id))).map(drop)
}

fn is_forked<T>(result: Result<T, TransactError>) {
    let error = result.err().expect("nothing is done in a fork");
    assert!(matches!(error, TransactError::Forked), "{error:?}");
    assert!(!error.is_retryable() && !error.is_maybe_committed());
    assert!(error.to_string().contains("was forked from the one that opened the database"), "{error}");
}

/// The settings by name, as passed to the processes below.
fn setting(name: &str, home: &Home) -> (Builder, bool) {
    let (mode, stepped) = name.strip_suffix(" stepped").map_or((name, false), |mode| (mode, true));
    let builder = Database::builder().workers(8).step_helpers(stepped).segment_bytes(1 << 16);
    match mode {
        "in memory" => (builder, false),
        mode => {
            let durability: Durability = mode.parse().expect("a durability");
            (builder.path(home.0.join("db")).durability(durability), true)
        }
    }
}

fn forks(name: &str) {
    let home = Home::new(&format!("forked-{}", name.replace(' ', "-")));
    let (builder, is_kept) = setting(name, &home);
    let db = builder.open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    insert(&db, &accounts, 1).expect("the disk works");
    let executor = db.executor(2).expect("threads");
    let mut sessions = [db.session(), db.session(), db.session(), db.session()];
    let [explicit, dropped, snapshot, submitting] = &mut sessions;
    let idle = db.session();
    let dropped = dropped.begin().expect("a worker is free");
    dropped.insert(&accounts, &account(5)).expect("no conflict");
    let open = explicit.begin().expect("a worker is free");
    open.insert(&accounts, &account(2)).expect("no conflict");
    let looking = snapshot.begin_snapshot().expect("a worker is free");
    let pending = submitting.submit(|tx| tx.insert(&accounts, &account(3)));
    let withheld = !pending.is_ready();
    in_fork(|| {
        is_forked(insert(&db, &accounts, 4));
        is_forked(db.session().snapshot(|tx| Ok(tx.get(&accounts, &1)?.is_some())));
        is_forked(db.session().begin().map(drop));
        is_forked(db.session().begin_snapshot().map(drop));
        // Transactions that were open before the fork have no effect.
        let _abort = open.insert(&accounts, &account(4)).expect_err("nothing is done in a fork");
        is_forked(open.commit());
        is_forked(looking.finish());
        match pending.wait() {
            Err(TransactError::NotDurable { reason }) => assert!(withheld && reason.contains("forked"), "{reason}"),
            // The commit was durable at the fork, or need not be.
            other => drop(other.expect("it was committed before")),
        }
        is_forked(
            executor
                .transact({
                    let accounts = accounts.clone();
                    move |tx| tx.insert(&accounts, &account(4))
                })
                .wait(),
        );
        let created = db.create::<Other>().map(drop);
        assert!(
            matches!(&created, Err(SchemaError::Storage(error)) if matches!(**error, StorageError::Forked)),
            "{created:?}"
        );
        assert!(matches!(db.checkpoint(), Err(StorageError::Forked)));
        if is_kept {
            is_forked(db.flush());
            assert!(matches!(db.backup(home.0.join("copy")), Err(StorageError::Forked)));
        }
        db.check_structure().expect_err("nothing is done in a fork");
        db.clone().close().expect("nothing of it is closed here");
        // Dropping ends nothing either: no thread is joined, nothing is written.
        drop((executor, dropped, idle, accounts, db));
        // The fork may open a database of its own.
        let own = Database::in_memory().expect("it opens");
        let accounts = own.create::<Account>().expect("the table is created");
        insert(&own, &accounts, 1).expect("it has threads of its own");
        drop((accounts, own));
        // Only the parent may remove the directory.
        forget(home);
    });
}

/// The parent's side of [`forks`]: the parent continues.
fn goes_on(name: &str) {
    let home = Home::new(&format!("goes-on-{}", name.replace(' ', "-")));
    let (builder, is_kept) = setting(name, &home);
    let db = builder.clone().open().expect("a new database opens");
    let accounts = db.create::<Account>().expect("the table is created");
    let mut session = db.session();
    let open = session.begin().expect("a worker is free");
    open.insert(&accounts, &account(1)).expect("no conflict");
    in_fork(|| is_forked(insert(&db, &accounts, 1)));
    open.commit().expect("the other process does not disturb it");
    // A fork in the middle of a body: its copy of the transaction does not commit.
    let mut other = db.session();
    let forked = other.transact(|tx| {
        tx.insert(&accounts, &account(2))?;
        // The child returns from here, too.
        Ok(fork())
    });
    match forked.map(Committed::into_value) {
        Err(TransactError::Forked) => end_fork(0),
        Ok(Some(child)) => child.wait(),
        _ => end_fork(102),
    }
    insert(&db, &accounts, 3).expect("the other process does not disturb it");
    drop((session, other, accounts));
    db.close().expect("the other process does not disturb it");
    if is_kept {
        let db = builder.open().expect("the other process has ended");
        assert_eq!(crate::accounts::rows(&db).iter().map(|row| row.id).collect::<Vec<_>>(), [1, 2, 3]);
    }
}

/// Calls of an executor that have not ended when the process forks.
fn awaits_in_vain() {
    let db = Database::in_memory().expect("memory");
    let executor = db.executor(1).expect("a thread");
    let (go, gate) = mpsc::channel::<()>();
    let runs = executor.run(move |_| gate.recv().is_ok());
    let mut all = Some((runs, executor.transact(|_| Ok(7)), executor.transact(|_| Ok(8))));
    in_fork(|| {
        let (runs, waited, polled) = all.take().expect("nobody has taken it");
        assert!(waited.is_done() && !waited.cancel(), "nothing goes on here");
        is_forked(runs.wait());
        is_forked(waited.wait());
        match pin!(polled).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => is_forked(answer),
            Poll::Pending => panic!("nobody would wake it"),
        }
        is_forked(executor.run(|_| ()).wait());
    });
    go.send(()).expect("it waits for that");
    let (runs, waited, polled) = all.expect("only the fork took it");
    assert!(runs.wait().expect("it is run"));
    assert_eq!([waited, polled].map(|running| running.wait().expect("it does nothing").value), [7, 8]);
}

/// The variable that passes the setting to the process below.
const SETTING: &str = "SERIATIM_TEST_FORKED";

/// Not a test of its own: a process that forks while no other test runs in it.
#[test]
fn a_process_that_forks() {
    let Some(name) = std::env::var(SETTING).ok() else { return };
    forks(&name);
    goes_on(&name);
    awaits_in_vain();
    println!("\nanswer: sound");
}

fn fork_elsewhere(name: &str) {
    let mut command = Command::new(std::env::current_exe().expect("the tests are a program"));
    command.args(["--exact", "forked::a_process_that_forks", "--nocapture", "--test-threads=1"]).env(SETTING, name);
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("answer: sound"), "{name}: {out}\n{error}");
    assert!(!error.contains("panicked"), "{name}: {error}");
}

#[test]
fn a_fork_of_a_database_in_memory_is_refused_everything() {
    ["in memory", "in memory stepped"].into_iter().for_each(fork_elsewhere);
}

#[test]
fn a_fork_of_a_database_that_answers_at_once_is_refused_everything() {
    ["async", "async stepped"].into_iter().for_each(fork_elsewhere);
}

#[test]
fn a_fork_of_a_database_that_answers_when_an_epoch_is_durable_is_refused_everything() {
    ["group", "group stepped"].into_iter().for_each(fork_elsewhere);
}

#[test]
fn a_fork_of_a_database_that_flushes_at_once_is_refused_everything() {
    ["sync", "sync stepped"].into_iter().for_each(fork_elsewhere);
}
