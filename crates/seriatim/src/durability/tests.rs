//! What only this crate can bring about: a commit that panics, epochs that run out, texts that are too large.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use seriatim_base::Epoch;
use seriatim_base::disk::FaultyDisk;

use super::persistence::EPOCH_LIMIT;
use crate::engine::repairing::{self, MEANWHILE, SCRIPT};
use crate::{Builder, Database, OpenError, Table, TransactError};

#[derive(seriatim_macros::Table, Clone, Debug, PartialEq)]
#[table(name = "note", key(id), hash)]
struct Note {
    id: u32,
    text: String,
    other: Option<String>,
}

fn note(id: u32, bytes: usize) -> Note {
    Note { id, text: "x".repeat(bytes), other: None }
}

fn on(disk: &FaultyDisk) -> Builder {
    Database::builder().protocol(repairing::NAME).workers(2).step_helpers(true).path("/db").disk(Arc::new(disk.mount()))
}

#[test]
fn a_panic_in_the_middle_of_a_commit_stops_the_log() {
    let disk = FaultyDisk::new(1);
    let db = on(&disk).open().expect("a new database opens");
    let notes = db.create::<Note>().expect("the table is created");
    let (mut session, mut other) = (db.session(), db.session());
    session.transact(|tx| tx.insert(&notes, &note(1, 1))).expect("inserted");
    let pending = other.submit(|tx| tx.insert(&notes, &note(2, 1)));
    SCRIPT.with_borrow_mut(|script| script.push_back(Vec::new()));
    MEANWHILE.with_borrow_mut(|meanwhile| meanwhile.push_back(Box::new(|| panic!("in a commit"))));
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(session.submit(|tx| tx.insert(&notes, &note(3, 1))))));
    assert!(panicked.is_err());
    // At once, although the session has not been used since: who waits must not wait for it.
    let error = pending.wait().expect_err("nothing more becomes durable");
    assert!(matches!(&error, TransactError::NotDurable { reason } if reason.contains("panicked")), "{error}");
    let error = other.transact(|tx| tx.insert(&notes, &note(4, 1))).expect_err("it has stopped");
    assert!(matches!(error, TransactError::LogStopped { .. }), "{error}");
    let found = other.transact(|tx| Ok(tx.get(&notes, &1)?.is_some()));
    assert!(found.expect("it was durable").value);
    drop((session, other, notes, db));
    let db = on(&disk).open().expect("it recovers");
    let notes = db.table::<Note>().expect("it is there");
    let found = |id: u32| db.session().transact(|tx| Ok(tx.get(&notes, &id)?.is_some())).expect("no conflict").value;
    assert_eq!([1, 3, 4].map(found), [true, false, false]);
}

#[test]
fn a_log_whose_epochs_are_used_up_stops_and_says_so() {
    let disk = FaultyDisk::new(2);
    let db = on(&disk).open().expect("a new database opens");
    let notes = db.create::<Note>().expect("the table is created");
    db.inner().environment.epochs.skip_to(Epoch(EPOCH_LIMIT - 3));
    let mut session = db.session();
    session.transact(|tx| tx.insert(&notes, &note(1, 1))).expect("there are some left");
    (0..3).for_each(|_| db.step());
    let error = session.transact(|tx| tx.insert(&notes, &note(2, 1))).expect_err("there are none left");
    assert!(matches!(&error, TransactError::LogStopped { reason } if reason.contains("epochs")), "{error}");
    drop((session, notes, db));
    // Closing did not use any, or it did: then nobody can write to it any more, and everybody can look.
    match on(&disk).open() {
        Ok(db) => (0..4).for_each(|_| db.step()),
        Err(error) => assert!(matches!(error, OpenError::Invalid(_)), "{error}"),
    }
    let db = Database::builder().workers(2).inspect("/db").disk(Arc::new(disk.mount())).open().expect("it is read");
    let notes = db.table::<Note>().expect("it is there");
    assert!(db.session().snapshot(|tx| Ok(tx.get(&notes, &1)?.is_some())).expect("a snapshot").value);
}

#[test]
fn a_checkpoint_and_a_check_have_helpers_at_the_same_time_beside_all_workers() {
    let disk = FaultyDisk::new(4);
    for helpers in [1, 8, 64] {
        let db = on(&disk).helper_threads(helpers).open().expect("it opens");
        let notes = db.create_or_open::<Note>().expect("the table is there");
        let (mut one, mut other) = (db.session(), db.session());
        one.transact(|tx| tx.put(&notes, &note(1, helpers))).expect("a worker is free");
        // Both workers are registered from now on.
        let begun = (one.begin().expect("a worker is free"), other.begin().expect("another is free"));
        drop(begun);
        let environment = &db.inner().environment;
        let helpers = helpers.min(8);
        {
            // As the other of the two holds them while it is at work.
            let held: Vec<_> = (0..helpers).map(|_| environment.core().expect("it is set aside")).collect();
            assert_eq!(db.check_indexes().expect("nothing is wrong")[0].rows, 1);
            assert_eq!(db.checkpoint().expect("the disk works").expect("it is on disk").rows, 1);
            drop(held);
        }
        // Nobody holds as many; if somebody did it would be told.
        let held: Vec<_> = std::iter::from_fn(|| environment.core()).collect();
        assert_eq!(held.len(), 16, "two sets, however many are wanted now");
        let error = db.checkpoint().expect_err("no worker is left").to_string();
        assert!(error.contains("no worker was left"), "{error}");
        let error = db.check_indexes().expect_err("no worker is left");
        assert!(error.contains("no worker was left"), "{error}");
        assert_eq!(db.statistics().log.expect("it is on disk").checkpoints_failed, 1);
    }
}

#[test]
fn a_share_that_is_none_is_refused() {
    for percent in [0, 101] {
        let error = Database::builder().checkpoint_share(percent).open().expect_err("it is no share");
        assert!(matches!(&error, OpenError::Invalid(what) if what.contains("1 to 100 percent")), "{error}");
    }
}

#[test]
fn a_text_that_fits_no_log_entry_is_refused_with_its_size() {
    let disk = FaultyDisk::new(3);
    let db = on(&disk).open().expect("a new database opens");
    let notes = db.create::<Note>().expect("the table is created");
    let most = notes.set.text_bytes_max;
    assert_eq!(most, 1 << 16);
    let mut session = db.session();
    session.transact(|tx| tx.insert(&notes, &note(1, most))).expect("it fits");
    let check = |error: TransactError| {
        let expected =
            format!("a text of {} bytes for table {}, whose texts have at most {most}", most + 1, Note::NAME);
        assert!(matches!(error, TransactError::TooLarge { .. }) && error.to_string() == expected, "{error}");
        assert!(!error.is_retryable() && !error.is_maybe_committed());
    };
    check(session.transact(|tx| tx.insert(&notes, &note(2, most + 1))).expect_err("it does not fit"));
    check(session.transact(|tx| tx.put(&notes, &note(1, most + 1))).expect_err("it does not fit"));
    let update = session.transact(|tx| {
        let text = "x".repeat(most + 1);
        Ok(tx.update(&notes, &1, |row| row.set_text(&text))?.transpose()?.is_some())
    });
    check(update.expect_err("it does not fit"));
    let tx = session.begin().expect("a worker is free");
    let abort = tx.insert(&notes, &note(3, most + 1)).expect_err("it does not fit");
    check(tx.explain(&abort));
    drop(tx);
    session.transact(|tx| tx.insert(&notes, &note(2, 1))).expect("the next one is as any other");
}
