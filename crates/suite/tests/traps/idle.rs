//! Neither idle workers nor parked transactions make memory grow without bound.

use std::time::Duration;

use seriatim::rng::seed;
use seriatim::{Abort, Database, Handle, Reason, Session, Table, TransactError, Tx, thread};
use seriatim_suite::explore::{BucketCell, Cell};
use seriatim_suite::{Setting, matrix};

use crate::unless_conflict;

#[derive(Table, Clone, Debug)]
#[table(name = "page", key(id), hash)]
struct Page {
    id: u32,
    text: String,
}

/// A transaction is too old after five steps.
fn aged(builder: seriatim::Builder) -> seriatim::Builder {
    builder.epoch_interval(Duration::from_millis(10)).transaction_age_max(Duration::from_millis(50))
}

struct World {
    db: Database,
    cells: Handle<Cell>,
    pages: Handle<Page>,
}

const ROWS: u32 = 40;

impl World {
    fn new(setting: &Setting, options: impl Fn(seriatim::Builder) -> seriatim::Builder) -> World {
        let db = options(setting.builder().step_helpers(true).workers(6)).open().expect("a database");
        let (cells, pages) = (db.create().expect("a table"), db.create().expect("a table"));
        World { db, cells, pages }
    }

    /// Updates, deletes and reinserts every row.
    fn churn(&self, session: &mut Session, rounds: u32) {
        for round in 0..rounds {
            for id in 0..ROWS {
                let put = |tx: &Tx| {
                    tx.put(&self.cells, &Cell { id, value: i64::from(round) })?;
                    tx.put(&self.pages, &Page { id, text: "p".repeat(100 + (round as usize * 37 + id as usize) % 50) })
                };
                session.transact(put).expect("no conflict");
                if (id + round) % 3 == 0 {
                    let delete =
                        |tx: &Tx| tx.delete_if(&self.cells, &id).and_then(|_| tx.delete_if(&self.pages, &id)).map(drop);
                    session.transact(delete).expect("no conflict");
                }
            }
            if round % 4 == 0 {
                self.db.step();
            }
        }
    }

    fn memory(&self) -> usize {
        self.db.statistics().memory_bytes
    }

    /// Memory after the same churn without other workers.
    fn rest(&self, session: &mut Session) -> usize {
        self.churn(session, 8);
        (0..3).for_each(|_| self.db.step());
        self.memory()
    }
}

#[test]
fn idle_workers_do_not_stall_reclamation() {
    for setting in matrix(seed("idle workers")) {
        let world = World::new(&setting, |builder| builder);
        let mut session = world.db.session();
        // Workers that worked, hold garbage, and then idle; sessions that were opened and never used.
        let mut idle: Vec<Session> = (0..5).map(|_| world.db.session()).collect();
        let mut open: Vec<_> = idle.iter_mut().take(4).map(|session| session.begin().expect("a worker")).collect();
        for (at, tx) in open.iter().enumerate() {
            let id = 1000 + at as u32;
            tx.insert(&world.pages, &Page { id, text: "idle".repeat(20) }).expect("no conflict");
        }
        open.drain(..).for_each(|tx| tx.commit().map(drop).expect("no conflict"));
        let before = world.rest(&mut session);
        world.churn(&mut session, 60);
        let after = world.rest(&mut session);
        assert!(after <= before + before / 20 + 4096, "{setting}: {before} bytes grew to {after}");
    }
}

/// While a transaction is parked, what it might read is kept, but no more than is retired meanwhile; it all
/// goes afterwards.
#[test]
fn a_parked_transaction_holds_memory_only_while_it_is_open() {
    for setting in matrix(seed("parked transaction")) {
        for snapshot in [false, true] {
            let world = World::new(&setting, |builder| builder);
            let mut session = world.db.session();
            let page = Page { id: 7000, text: "parked".to_owned() };
            session.transact(|tx| tx.insert(&world.pages, &page)).expect("alone");
            world.rest(&mut session);
            let before = world.rest(&mut session);
            let mut parked = world.db.session();
            let mut peak = 0;
            let mut churn = || {
                world.churn(&mut session, 20);
                peak = world.memory();
            };
            if snapshot {
                let tx = parked.begin_snapshot().expect("a worker");
                assert!(tx.get(&world.pages, &7000).expect("no conflict").is_some());
                churn();
                drop(tx);
            } else {
                let tx = parked.begin().expect("a worker");
                assert!(tx.get(&world.pages, &7000).expect("no conflict").is_some());
                churn();
                tx.rollback();
            }
            world.rest(&mut session);
            let after = world.rest(&mut session);
            // 20 rounds of 40 rows, each with a row version, a long text and now and then a record and a marker.
            let retired = 20 * ROWS as usize * 1024;
            assert!(peak <= before + retired, "{setting}: {before} bytes grew to {peak} beside a parked transaction");
            assert!(
                after <= before + before / 20 + 4096,
                "{setting}: {before} bytes, {peak} while parked, then {after}"
            );
        }
    }
}

/// A row that a parked transaction read stays as it was, whatever happens to its key and memory meanwhile.
#[test]
fn a_parked_transaction_keeps_its_rows() {
    for setting in matrix(seed("parked rows")) {
        let world = World::new(&setting, |builder| builder);
        let mut session = world.db.session();
        let text = "kept".repeat(50);
        session.transact(|tx| tx.put(&world.pages, &Page { id: 7000, text: text.clone() })).expect("alone");
        let mut parked = world.db.session();
        let tx = parked.begin().expect("a worker");
        let row = tx.get(&world.pages, &7000).expect("no conflict").expect("there");
        let mut other = world.db.session();
        let gone = crate::try_once(&world.db, |tx| tx.delete_if(&world.pages, &7000).map(drop));
        world.churn(&mut other, 12);
        assert_eq!(row.text(), text, "{setting}: a row changed under its reader, deleted {}", gone.is_some());
    }
}

fn too_old(result: Result<impl Sized, Abort>) -> bool {
    result.is_err_and(|abort| abort.cause().is_some_and(|cause| cause.reason == Reason::TooOld))
}

#[test]
fn an_over_age_parked_transaction_ends_as_too_old() {
    for setting in matrix(seed("over-age transaction")) {
        let world = World::new(&setting, aged);
        let (mut parked, mut reading, mut session) = (world.db.session(), world.db.session(), world.db.session());
        world.churn(&mut session, 1);
        {
            let tx = parked.begin().expect("a worker");
            let snapshot = reading.begin_snapshot().expect("a worker");
            assert!(unless_conflict(tx.get(&world.cells, &3000)).is_some());
            tx.insert(&world.cells, &Cell { id: 3000, value: 1 }).expect("no conflict");
            // At its greatest age it still works.
            (0..5).for_each(|_| world.db.step());
            assert!(tx.get(&world.cells, &3000).expect("within its age").is_some(), "{setting}");
            assert!(snapshot.get(&world.pages, &3000).expect("within its age").is_none(), "{setting}");
            world.db.step();
            assert!(too_old(tx.get(&world.cells, &3000)), "{setting}: it outlived its age");
            assert!(too_old(snapshot.get(&world.cells, &1)), "{setting}: a snapshot outlived its age");
            // And stays ended, whatever is tried.
            assert!(too_old(tx.put(&world.cells, &Cell { id: 1, value: 1 })), "{setting}");
            assert!(too_old(tx.delete(&world.cells, &1)), "{setting}");
            assert!(too_old(tx.savepoint()), "{setting}");
            assert!(matches!(tx.commit(), Err(TransactError::TooOld)), "{setting}: it committed");
            assert!(matches!(snapshot.finish(), Err(TransactError::TooOld)), "{setting}: it finished");
        }
        // Nothing of it is left, its locks are gone, and its session can continue.
        let put = |tx: &Tx| {
            Ok((tx.get(&world.cells, &3000)?.is_none(), tx.try_insert(&world.cells, &Cell { id: 3000, value: 2 })?))
        };
        let put = parked.transact(put).expect("no conflict");
        assert_eq!(*put, (true, true), "{setting}");
        reading.read_after(put.receipt).expect("it is of this database");
        assert!(reading.snapshot(|tx| Ok(tx.get(&world.cells, &3000)?.is_some())).expect("no conflict").value);
        // A closure that takes too long gets the same error.
        let db = &world.db;
        let slow = session.transact(|tx| {
            (0..7).for_each(|_| db.step());
            (0..1000).try_for_each(|_| tx.get(&world.cells, &1).map(drop))
        });
        assert!(matches!(slow, Err(TransactError::TooOld)), "{setting}: {slow:?}");
        // Churn continues as before.
        let before = world.rest(&mut session);
        world.churn(&mut session, 20);
        let after = world.rest(&mut session);
        assert!(after <= before + before / 20 + 4096, "{setting}: {before} bytes grew to {after}");
    }
}

/// However long the owner keeps it: what is too old is ended where it is parked, and holds neither memory nor locks.
#[test]
fn memory_beside_a_parked_transaction_is_bounded() {
    for setting in matrix(seed("memory beside a parked transaction")) {
        let world = World::new(&setting, aged);
        let (mut parked, mut reading, mut session) = (world.db.session(), world.db.session(), world.db.session());
        let mut rival = world.db.session();
        let page = Page { id: 7000, text: "parked".repeat(20) };
        session.transact(|tx| tx.insert(&world.pages, &page)).expect("alone");
        world.rest(&mut session);
        let before = world.rest(&mut session);
        let tx = parked.begin().expect("a worker");
        let snapshot = reading.begin_snapshot().expect("a worker");
        let row = unless_conflict(tx.get(&world.pages, &7000)).flatten();
        let seen = unless_conflict(snapshot.get(&world.pages, &7000)).flatten();
        unless_conflict(tx.put(&world.cells, &Cell { id: 7000, value: 1 }));
        let mut scan = snapshot.scan(&world.cells, ..);
        let first = scan.next().is_some();
        // One that has met a conflict is parked like others.
        let rival = rival.begin().expect("a worker");
        unless_conflict(rival.put(&world.cells, &Cell { id: 7000, value: 5 }));
        (0..8).for_each(|_| world.db.step());
        // Its locks are free, and the row that it read can go.
        session.transact(|tx| tx.put(&world.cells, &Cell { id: 7000, value: 2 })).expect("no conflict");
        session.transact(|tx| tx.delete(&world.pages, &7000)).expect("no conflict");
        let mut peak = 0;
        for _ in 0..5 {
            world.churn(&mut session, 20);
            peak = peak.max(world.rest(&mut session));
        }
        assert!(
            peak <= before + before / 20 + 8192,
            "{setting}: {before} bytes grew to {peak} beside a parked transaction"
        );
        assert_eq!(world.db.statistics().overdue, 0, "{setting}");
        assert!(first && scan.take(3).count() <= 1, "{setting}: a scan goes on without its transaction");
        assert!(rival.get(&world.cells, &1).is_err(), "{setting}");
        assert!(rival.commit().is_err(), "{setting}: it committed");
        // Its memory stays with its owner, which gets the error at the next call.
        for row in row.into_iter().chain(seen) {
            assert_eq!((row.id(), row.text()), (7000, &*page.text), "{setting}");
        }
        assert!(too_old(tx.get(&world.cells, &1)) && too_old(tx.delete(&world.cells, &1)), "{setting}");
        assert!(too_old(snapshot.get(&world.cells, &1)), "{setting}");
        assert!(matches!(tx.commit(), Err(TransactError::TooOld)), "{setting}: it committed");
        assert!(matches!(snapshot.finish(), Err(TransactError::TooOld)), "{setting}: it finished");
        let value = session.transact(|tx| Ok(tx.get(&world.cells, &7000)?.map(|row| row.value())));
        assert_eq!(*value.expect("no conflict"), Some(2), "{setting}");
        parked.transact(|tx| tx.put(&world.cells, &Cell { id: 7000, value: 3 })).expect("the session goes on");
    }
}

/// A call cannot be ended: it is counted until it returns, and then reported.
#[test]
fn a_transaction_in_a_call_is_not_ended_but_counted() {
    for setting in matrix(seed("overdue")) {
        let world = World::new(&setting, aged);
        let (mut open, mut session) = (world.db.session(), world.db.session());
        world.churn(&mut session, 1);
        session.transact(|tx| tx.put(&world.cells, &Cell { id: 1, value: 7 })).expect("no conflict");
        let wait = || {
            (0..9).for_each(|_| world.db.step());
            world.db.statistics().overdue
        };
        let tx = open.begin().expect("a worker");
        let overdue = tx.update(&world.cells, &1, |row| {
            let overdue = wait();
            row.set_value(8);
            overdue
        });
        assert_eq!(unless_conflict(overdue), Some(1), "{setting}");
        assert!(too_old(tx.get(&world.cells, &1)), "{setting}");
        drop(tx);
        let mut counted = 0;
        let slow = session.transact(|_| {
            counted = wait();
            Ok(())
        });
        assert!(matches!(slow, Err(TransactError::TooOld)) && counted == 1, "{setting}: {counted}, {slow:?}");
        world.db.step();
        assert_eq!(world.db.statistics().overdue, 0, "{setting}");
        let value = session.transact(|tx| Ok(tx.get(&world.cells, &1)?.map(|row| row.value())));
        assert_eq!(*value.expect("no conflict"), Some(7), "{setting}");
    }
}

/// Hash tables too: a lookup that missed while parked is no lock on reclamation for good.
#[test]
fn leaked_transactions_end_with_the_next_of_their_session() {
    for setting in matrix(seed("leaked transaction")) {
        let world = World::new(&setting, |builder| builder);
        let buckets = world.db.create::<BucketCell>().expect("a table");
        let (mut leaking, mut session) = (world.db.session(), world.db.session());
        let before = {
            world.rest(&mut session);
            world.rest(&mut session)
        };
        let tx = leaking.begin().expect("a worker");
        tx.insert(&buckets, &BucketCell { id: 1, value: 1 }).expect("no conflict");
        std::mem::forget(tx);
        world.churn(&mut session, 10);
        assert!(*leaking.transact(|tx| Ok(tx.get(&buckets, &1)?.is_none())).expect("alone"), "{setting}");
        world.rest(&mut session);
        let after = world.rest(&mut session);
        assert!(after <= before + before / 20 + 4096, "{setting}: {before} bytes grew to {after}");
    }
}

/// Helpers unlink the records that a worker deleted before it went idle, not only its own next transaction.
#[test]
fn records_that_an_idle_worker_deleted_are_unlinked() {
    const MANY: u32 = 3000;
    for setting in matrix(seed("idle after a large delete")) {
        let db = setting.builder().workers(3).epoch_interval(Duration::from_millis(1)).open().expect("a database");
        let pages = db.create::<Page>().expect("a table");
        let (mut idle, mut busy) = (db.session(), db.session());
        let before = db.statistics().memory_bytes;
        let fill = |tx: &Tx| (0..MANY).try_for_each(|id| tx.insert(&pages, &Page { id, text: String::new() }));
        idle.transact(fill).expect("alone");
        let full = db.statistics().memory_bytes - before;
        idle.transact(|tx| (0..MANY).try_for_each(|id| tx.delete_if(&pages, &id).map(drop))).expect("alone");
        // Without a limit, as the machine may be busy.
        for round in 0u32.. {
            busy.transact(|tx| tx.put(&pages, &Page { id: MANY, text: String::new() })).expect("alone");
            if round % 20 == 0 {
                thread::sleep(Duration::from_millis(1));
                let left = db.statistics().memory_bytes - before;
                if left < full / 2 {
                    break;
                }
                if round % 100_000 == 0 && round > 0 {
                    eprintln!("{setting}: {full} bytes were filled, and {left} are left of them");
                }
            }
        }
    }
}
