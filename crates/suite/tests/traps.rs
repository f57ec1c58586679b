//! The traps that other engines fell into, one file each, in every setting. `docs` of each test: what must hold.

#[path = "traps/epochs.rs"]
mod epochs;
#[path = "traps/idle.rs"]
mod idle;
#[path = "traps/invariants.rs"]
mod invariants;
#[path = "traps/membership.rs"]
mod membership;
#[path = "traps/rebirth.rs"]
mod rebirth;
#[path = "traps/regions.rs"]
mod regions;
#[path = "traps/reports.rs"]
mod reports;
#[path = "traps/snapshots.rs"]
mod snapshots;
#[path = "traps/tables.rs"]
mod tables;
#[path = "traps/upsert.rs"]
mod upsert;

use seriatim::history::{self, Promises};
use seriatim::{Abort, Database, Receipt, TransactError};
use seriatim_suite::Setting;

/// A database in the setting that a test steps by hand, and whose history it records.
fn stepped(setting: &Setting) -> Database {
    let builder = setting.builder().step_helpers(true).record_history(true).workers(4);
    builder.open().unwrap_or_else(|error| panic!("{setting}: {error}"))
}

/// The result of an operation; `None` if a conflict ended the attempt. Anything else is a fault of the test.
#[track_caller]
fn unless_conflict<R>(result: Result<R, Abort>) -> Option<R> {
    match result {
        Ok(value) => Some(value),
        Err(abort) if abort.is_retryable() => None,
        Err(abort) => panic!("{abort}"),
    }
}

/// The receipt of a commit; `None` if a conflict refused it.
#[track_caller]
fn committed(result: Result<Receipt, TransactError>) -> Option<Receipt> {
    match result {
        Ok(receipt) => Some(receipt),
        Err(TransactError::Conflict { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The recorded history is one of a serializable database, strict where the protocol promises it.
#[track_caller]
fn assert_serializable(setting: &Setting, db: &Database) -> history::History {
    let history = db.take_history().expect("the database records");
    let promises = if setting.strict { Promises::STRICT } else { Promises::SERIALIZABLE };
    history::check(&history, &promises).unwrap_or_else(|violation| panic!("{setting}: {violation}"));
    history
}

/// Runs `body` in an explicit transaction of a session of its own; whether it committed.
fn try_once(db: &Database, body: impl FnOnce(&seriatim::Tx) -> Result<(), Abort>) -> Option<Receipt> {
    let mut session = db.session();
    let transaction = session.begin().expect("a worker is free");
    unless_conflict(body(&transaction))?;
    committed(transaction.commit())
}
