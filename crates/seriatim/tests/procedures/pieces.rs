//! Transactions that may run beside procedures in pieces.

use seriatim::procedure::{ExecutionMode, RegisterError};
use seriatim::{Abort, Database, Handle, Session, Table, TransactError, Tx, procedure, procedures};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "counter", key(id), hash)]
struct Counter {
    id: u32,
    count: u32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "label", key(id), hash)]
struct Label {
    id: u32,
    text: u32,
}

/// Increments a counter.
#[procedure]
fn count(tx: &Tx, id: u32) -> Result<u32, Abort> {
    let counted = tx.update::<Counter>(id, |counter| {
        counter.count += 1;
        counter.count
    })?;
    Ok(counted)
}

/// Increments a counter, and then reads the label of its value: a piece that may follow.
#[procedure]
fn count_and_label(tx: &Tx, id: u32) -> Result<Option<u32>, Abort> {
    let counted = tx.update::<Counter>(id, |counter| {
        counter.count += 1;
        counter.count
    })?;
    let Some(label) = tx.get::<Label>(counted)? else { return Ok(None) };
    Ok(Some(label.text))
}

/// Increments a counter, then finds the last label before the first missing one. The reads after the write determine
/// an abort.
#[procedure]
fn count_until(tx: &Tx, ids: &[u32]) -> Result<u32, Abort> {
    tx.update::<Counter>(0, |counter| counter.count += 1)?;
    let mut last = 0u32;
    for id in ids {
        let label = tx.get::<Label>(*id)?;
        if label.is_none() {
            break;
        }
        last = *id;
    }
    if last == 0 {
        return Err(tx.abort("no label"));
    }
    Ok(last)
}

#[test]
fn an_abort_that_a_break_decides_leaves_nothing_behind() {
    let (db, counters, mut session) = open();
    db.register(procedures![count_until]).expect("a sound set");
    assert_eq!(session.call(count_until, &vec![3, 4, 99, 5]).expect("no conflict").value, 4);
    let aborted = session.call(count_until, &vec![99, 3]).expect_err("there is no such label");
    assert!(aborted.to_string().contains("no label"), "{aborted}");
    let counted = session.transact(|tx| Ok(tx.require(&counters, &0)?.count()));
    assert_eq!(counted.expect("no conflict").value, 1, "the abort took its write along");
}

fn open() -> (Database, Handle<Counter>, Session) {
    let db = Database::builder().execution_mode(ExecutionMode::Pieces).workers(4).open().expect("a valid setting");
    let counters = db.create::<Counter>().expect("a valid table");
    let labels = db.create::<Label>().expect("a valid table");
    let mut session = db.session();
    let load = session.transact(|tx| {
        tx.insert(&counters, &Counter { id: 0, count: 0 })?;
        (1..9).try_for_each(|id| tx.insert(&labels, &Label { id, text: id * 10 }))
    });
    load.expect("empty tables");
    (db, counters, session)
}

#[test]
fn procedures_in_one_pass_and_other_transactions_do_not_exclude_each_other() {
    let (db, counters, mut session) = open();
    db.register(procedures![count]).expect("a sound set");
    let mut other = db.session();
    let open = other.begin().expect("a worker is free");
    assert_eq!(session.call(count, &0).expect("it is one transaction").value, 1);
    drop(open);
    let read = other.transact(|tx| Ok(tx.require(&counters, &0)?.count()));
    assert_eq!(read.expect("no conflict").value, 1);
}

#[test]
fn chains_and_other_transactions_exclude_each_other_from_registration_on() {
    let (db, _, mut session) = open();
    let mut other = db.session();
    let open = other.begin().expect("a worker is free");
    // The open transaction would not be detected between two pieces.
    let refused = db.register(procedures![count, count_and_label]).expect_err("a transaction is open");
    assert!(matches!(refused, RegisterError::Busy) && db.procedure_names().is_empty(), "{refused}");
    drop(open);
    db.register(procedures![count, count_and_label]).expect("no transaction is open");
    assert_eq!(session.call(count_and_label, &0).expect("no conflict").value, Some(10));

    let open = other.begin().expect("no chain is open");
    let excluded = session.call(count_and_label, &0).expect_err("it runs in pieces");
    assert!(matches!(excluded, TransactError::Excluded { .. }), "{excluded}");
    assert_eq!(session.call(count, &0).expect("it runs in one").value, 2);
    drop(open);
    assert_eq!(session.call(count_and_label, &0).expect("no conflict").value, Some(30));
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "sum", key(id), hash)]
struct Sum {
    id: u32,
    total: i64,
    last: i64,
}

/// Increments a counter, adds to a sum that [`reset`] replaces, and then reads a label: a piece that may follow.
#[procedure]
fn count_and_add(tx: &Tx, id: u32, amount: i64) -> Result<Option<u32>, Abort> {
    let counted = tx.update::<Counter>(id, |counter| {
        counter.count += 1;
        counter.count
    })?;
    tx.update::<Sum>(id, |sum| sum.total += amount)?;
    let Some(label) = tx.get::<Label>(counted)? else { return Ok(None) };
    Ok(Some(label.text))
}

/// Resets the sum and returns its old value.
#[procedure]
fn reset(tx: &Tx, id: u32) -> Result<i64, Abort> {
    let last = tx.update::<Sum>(id, |sum| {
        sum.last = sum.total;
        sum.total = 0i64;
        sum.last
    })?;
    Ok(last)
}

/// Where procedures run whole, the addition may be published later, and transactions of the same epoch miss it.
#[test]
fn nothing_of_a_chain_is_published_later() {
    for (mode, seen) in [(ExecutionMode::Whole, [0, 5]), (ExecutionMode::Pieces, [5, 0])] {
        let builder = Database::builder().protocol("dbx-tc").protocol_option("defer", 1).step_helpers(true);
        let db = builder.execution_mode(mode).open().expect("a database");
        let (counters, sums) = (db.create::<Counter>().expect("a table"), db.create::<Sum>().expect("a table"));
        db.create::<Label>().expect("a table");
        let mut session = db.session();
        let fill = |tx: &Tx| {
            tx.insert(&counters, &Counter { id: 0, count: 0 })?;
            tx.insert(&sums, &Sum { id: 0, total: 0, last: 0 })
        };
        session.transact(fill).expect("no conflict");
        db.register(procedures![count_and_add, reset]).expect("a sound set");
        session.call(count_and_add, &(0, 5)).expect("no conflict");
        let first = session.call(reset, &0).expect("no conflict").value;
        db.step();
        let second = session.call(reset, &0).expect("no conflict").value;
        assert_eq!([first, second], seen, "{mode:?}");
    }
}
