//! The commits that a snapshot shows: those of its session, and those named by `read_after`. Where snapshots are
//! periodic, it shows of other sessions what had committed when it was made.

use std::time::Duration;

use seriatim::history::{Promises, check};
use seriatim::procedure::ExecutionMode;
use seriatim::{
    Abort, Database, Epoch, Handle, Receipt, Session, Table, Tid, TransactError, TransactionOptions, Tx,
    available_protocols, procedure, procedures,
};

#[derive(Table, Clone)]
#[table(name = "counter", key(id), hash)]
struct Counter {
    id: u32,
    n: u64,
}

/// The option for the number of waiting readers for which a snapshot is made for all.
const WANTED: &str = "snapshot_wanted_min";

/// For each protocol, a database with stepped background work, and whether its snapshots are periodic.
fn each(mut test: impl FnMut(&Database, &Handle<Counter>, bool)) {
    for protocol in available_protocols().iter().filter(|protocol| !protocol.requirements.plan) {
        let builder = Database::builder().protocol(protocol.name).step_helpers(true);
        let is_offered = protocol.options.iter().any(|knob| knob.name == WANTED);
        let builder = if is_offered { builder.protocol_option(WANTED, 0) } else { builder };
        let db = builder.open().expect("it opens");
        let counters = db.create::<Counter>().expect("new");
        db.session().transact(|tx| tx.insert(&counters, &Counter { id: 0, n: 0 })).expect("alone");
        // Other snapshots of bounded age are as old as the oldest running transaction, and here there is none.
        test(&db, &counters, db.statistics().snapshot_ages.is_some());
    }
}

fn count(session: &mut Session, counters: &Handle<Counter>, n: u64) -> Receipt {
    session.transact(|tx| tx.update(counters, &0, |row| row.set_n(n))).expect("alone").receipt
}

fn counted(session: &mut Session, counters: &Handle<Counter>) -> u64 {
    *session.snapshot(|tx| Ok(tx.require(counters, &0)?.n())).expect("alone")
}

fn counted_with(session: &mut Session, counters: &Handle<Counter>, options: &TransactionOptions) -> u64 {
    *session.snapshot_with(options, |tx| Ok(tx.require(counters, &0)?.n())).expect("alone")
}

#[test]
fn a_session_sees_what_it_did_and_what_was_there_when_it_was_opened() {
    each(|db, counters, is_eventual| {
        let mut others = db.session();
        count(&mut others, counters, 1);
        let mut session = db.session();
        assert_eq!(counted(&mut session, counters), 1);
        for n in 2..5 {
            count(&mut session, counters, n);
            assert_eq!((counted(&mut session, counters), counted(&mut session, counters)), (n, n));
        }
        count(&mut others, counters, 5);
        assert_eq!(counted(&mut session, counters), if is_eventual { 4 } else { 5 });
        // The snapshot shows what the session has read, too.
        assert_eq!(*session.transact(|tx| Ok(tx.require(counters, &0)?.n())).expect("alone"), 5);
        assert_eq!(counted(&mut session, counters), 5);
        count(&mut others, counters, 6);
        let tx = session.begin().expect("a worker");
        assert_eq!(tx.require(counters, &0).expect("no conflict").n(), 6);
        tx.commit().expect("no conflict");
        let snapshot = session.begin_snapshot().expect("a worker");
        assert_eq!(snapshot.require(counters, &0).expect("a snapshot").n(), 6);
        snapshot.finish().expect("a snapshot");
        count(&mut others, counters, 7);
        db.step();
        assert_eq!(counted(&mut session, counters), 7);
    });
}

#[test]
fn a_session_that_need_not_see_what_it_did_takes_the_newest_snapshot() {
    each(|db, counters, is_eventual| {
        let mut session = db.session();
        db.step();
        count(&mut session, counters, 1);
        let any = TransactionOptions::new().own_commits(false);
        assert_eq!(counted_with(&mut session, counters, &any), if is_eventual { 0 } else { 1 });
        assert_eq!(counted(&mut session, counters), 1, "the next is as always");
        let receipt = count(&mut session, counters, 2);
        session.set_options(any);
        assert_eq!(counted(&mut session, counters), if is_eventual { 1 } else { 2 });
        session.read_after(receipt).expect("its own");
        assert_eq!(counted(&mut session, counters), 2);
    });
}

#[test]
fn a_session_that_reads_after_a_receipt_sees_its_transaction() {
    each(|db, counters, is_eventual| {
        let (mut writer, mut reader) = (db.session(), db.session());
        assert_eq!(counted(&mut reader, counters), 0);
        for n in 1..4 {
            let receipt = count(&mut writer, counters, n);
            if is_eventual {
                assert_eq!(counted(&mut reader, counters), n - 1);
            }
            reader.read_after(receipt).expect("it is of this database");
            assert_eq!((counted(&mut reader, counters), counted(&mut reader, counters)), (n, n));
        }
        db.step();
        db.step();
        let made = db.statistics().snapshot_ages.map(|ages| ages.taken());
        assert_eq!(made.is_some_and(|taken| taken > 3), is_eventual);
    });
}

/// A snapshot that no other reader takes shows the present.
#[test]
fn snapshots_are_counted_whether_they_are_offered_or_made_for_their_reader() {
    for protocol in available_protocols() {
        if !protocol.options.iter().any(|knob| knob.name == WANTED) {
            continue;
        }
        let builder = Database::builder().protocol(protocol.name).protocol_option(WANTED, 1_000_000);
        let db = builder.step_helpers(true).open().expect("it opens");
        let counters = db.create::<Counter>().expect("new");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&counters, &Counter { id: 0, n: 0 })).expect("alone");
        (0..5).for_each(|_| assert_eq!(counted(&mut session, &counters), 0));
        let ages = db.statistics().snapshot_ages.expect("some are offered");
        assert_eq!(ages.taken(), 5);
        assert!(ages.quantile(1.0) <= Duration::from_nanos(1024), "{:?}", ages.quantile(1.0));
    }
}

#[test]
fn a_receipt_of_another_database_or_of_the_future_is_refused() {
    each(|db, counters, _| {
        let mut session = db.session();
        let receipt = count(&mut session, counters, 1);
        let other = Database::in_memory().expect("memory");
        let error = other.session().read_after(receipt).expect_err("it is of another database");
        assert!(matches!(error, TransactError::ForeignReceipt), "{error}");
        assert!(error.to_string().contains("another database"), "{error}");
        let mut future = receipt;
        future.tid = Tid::first_of(Epoch(receipt.epoch().0 + 1000));
        let error = session.read_after(future).expect_err("nothing has it");
        assert!(matches!(error, TransactError::FutureReceipt { epoch, .. } if epoch == future.epoch()), "{error}");
        session.read_after(receipt).expect("its own");
    });
}

/// A chain that has ended is whole in every snapshot, so snapshots show the present where procedures run in pieces.
#[test]
fn beside_chains_a_snapshot_shows_all_that_has_committed() {
    for protocol in available_protocols().iter().filter(|protocol| protocol.capabilities.snapshots.is_bounded()) {
        let builder = Database::builder().protocol(protocol.name).execution_mode(ExecutionMode::Pieces);
        let db = builder.step_helpers(true).open().expect("it opens");
        let counters = db.create::<Counter>().expect("new");
        let (mut writer, mut reader, mut other) = (db.session(), db.session(), db.session());
        writer.transact(|tx| tx.insert(&counters, &Counter { id: 0, n: 0 })).expect("alone");
        assert_eq!(counted(&mut reader, &counters), 0);
        let open = other.begin().expect("a worker");
        assert_eq!(open.require(&counters, &0).expect("alone").n(), 0);
        count(&mut writer, &counters, 1);
        assert_eq!(counted(&mut reader, &counters), 1, "{}", protocol.name);
    }
}

/// Another caller's work may have been acknowledged before: the executor's transactions see it.
#[test]
fn transactions_of_an_executor_see_earlier_commits() {
    each(|db, counters, _| {
        let executor = db.executor(1).expect("a thread");
        let mut session = db.session();
        for n in 1..20 {
            count(&mut session, counters, n);
            let counters = counters.clone();
            let seen = executor.run(move |session| counted(session, &counters)).wait();
            assert_eq!(seen.expect("it is not cancelled"), n);
        }
    });
}

/// A row to which a publisher adds and from which a subscriber takes.
#[derive(Table, Clone)]
#[table(name = "pot", key(id), hash)]
struct Pot {
    id: u32,
    amount: i64,
}

#[procedure]
fn put(tx: &Tx, amount: i64) -> Result<u64, Abort> {
    let n = tx.update::<Counter>(0u32, |counter| {
        counter.n += 1;
        counter.n
    })?;
    tx.update::<Pot>(0u32, |pot| pot.amount += amount)?;
    Ok(n)
}

#[procedure]
fn take(tx: &Tx, amount: i64) -> Result<i64, Abort> {
    let left = tx.update::<Pot>(0u32, |pot| {
        pot.amount -= amount;
        pot.amount
    })?;
    Ok(left)
}

#[procedure]
fn reset(tx: &Tx, n: u64) -> Result<(), Abort> {
    tx.update::<Counter>(0u32, |counter| counter.n = n)?;
    Ok(())
}

/// Other groups do not see a deferred change until it is published. The history records which transactions may miss
/// it, and until when.
#[test]
fn histories_have_the_groups_of_procedures_and_when_others_see_them() {
    let deferring =
        available_protocols().iter().filter(|protocol| protocol.options.iter().any(|of| of.name == "defer"));
    for protocol in deferring {
        let builder = Database::builder().protocol(protocol.name).protocol_option("defer", 1);
        let db = builder.step_helpers(true).record_history(true).open().expect("it opens");
        let (counters, pots) = (db.create::<Counter>().expect("new"), db.create::<Pot>().expect("new"));
        let mut session = db.session();
        let fill = |tx: &Tx| {
            tx.insert(&counters, &Counter { id: 0, n: 0 })?;
            tx.insert(&pots, &Pot { id: 0, amount: 0 })
        };
        session.transact(fill).expect("alone");
        db.register(procedures![put, take]).expect("their tables are there");
        assert_eq!(*session.call(put, &5).expect("alone"), 1);
        assert_eq!(*session.call(take, &1).expect("alone"), -1, "it is deferred");
        assert_eq!(*session.transact(|tx| Ok(tx.require(&pots, &0)?.amount())).expect("alone"), 4);
        assert_eq!(*session.call(take, &1).expect("alone"), 3);
        db.register(procedures![reset]).expect("its table is there");
        session.call(reset, &1).expect("alone");
        let history = db.take_history().expect("it is recorded");
        check(&history, &Promises::STRICT).expect("it is what was promised");
        let [filled, first, early, closure, late, last] = &history.transactions[..] else { panic!("{history:?}") };
        assert!([filled, closure].iter().all(|t| t.group.is_none()), "they are no procedures");
        let [publisher, missed, saw, other] = [first, early, late, last].map(|t| t.group.expect("a procedure"));
        assert_eq!(missed.number, saw.number);
        assert!(publisher.number != missed.number, "their conflict is deferred");
        assert!(![publisher.number, missed.number].contains(&other.number), "of another registration");
        assert!(publisher.shown > early.began && publisher.shown < closure.ended, "the closure has it published");
        assert_eq!(missed.shown, publisher.shown, "it was pending then, too");
        assert_eq!((saw.shown, other.shown), (late.ended, last.ended), "nothing was pending");
    }
}
