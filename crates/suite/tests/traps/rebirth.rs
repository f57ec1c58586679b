//! A key is deleted, its record unlinked, and the key inserted again. Its versions rise for ever, and no transaction
//! that saw it before commits as if nothing had happened.

use std::time::Duration;

use seriatim::history::{History, Saw};
use seriatim::rng::seed;
use seriatim::{Database, Rng, Table, Tid, Tx, thread};
use seriatim_suite::explore::{BucketCell, Cell, Cells};
use seriatim_suite::{Setting, audit, matrix};

use crate::{assert_serializable, committed, stepped, try_once, unless_conflict};

/// The value that the only read of the newest recorded transaction found.
fn saw(history: &History) -> Saw {
    let last = history.transactions.iter().max_by_key(|transaction| transaction.ended).expect("a transaction");
    last.reads[0].saw
}

fn versions_rise<C: Cells<Key = u32>>(setting: &Setting, rng: &mut Rng) {
    let db = stepped(setting);
    let cells = db.create::<C>().expect("a table");
    let mut sessions = [db.session(), db.session(), db.session()];
    let (mut newest, mut there) = ([Tid::ZERO; 3], [false; 3]);
    for _ in 0..300 {
        let session = &mut sessions[rng.below(3) as usize];
        let at = rng.below(3) as usize;
        let id = at as u32;
        let what = rng.below(4);
        let done = session.transact(|tx| {
            Ok(match what {
                0 => tx.delete_if(&cells, &id)?.is_ok(),
                1 => tx.try_insert(&cells, &C::new(id, 1))?,
                2 => tx.put(&cells, &C::new(id, 1)).map(|()| true)?,
                _ => tx.update_if(&cells, &id, |cell| C::add(cell, 0))?.is_ok(),
            })
        });
        let done = done.expect("alone");
        assert_eq!(*done, [there[at], !there[at], true, there[at]][what as usize], "{setting}");
        there[at] = if *done { what != 0 } else { there[at] };
        if *done {
            let tid = done.receipt.tid;
            assert!(tid > newest[at], "{setting}: key {id} went from version {} to {tid}", newest[at]);
            newest[at] = tid;
        }
        (0..rng.below(4)).for_each(|_| db.step());
    }
    let history = assert_serializable(setting, &db);
    audit::versions_rise(&history).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    audit::epochs_follow_dependencies(&history, setting.orders_epochs())
        .unwrap_or_else(|fault| panic!("{setting}: {fault}"));
}

#[test]
fn versions_of_a_key_rise_for_ever() {
    let seed = seed("versions rise");
    for setting in matrix(seed) {
        let mut rng = Rng::from_seed(seed);
        versions_rise::<Cell>(&setting, &mut rng);
        versions_rise::<BucketCell>(&setting, &mut rng);
    }
}

#[test]
fn versions_rise_under_threads_that_delete_and_reinsert() {
    let seed = seed("versions rise under threads");
    for setting in matrix(seed) {
        let builder = setting.builder().record_history(true).workers(4).epoch_interval(Duration::from_millis(1));
        let db = builder.retry(setting.patience()).open().expect("a database");
        let (cells, buckets) = (db.create::<Cell>().expect("a table"), db.create::<BucketCell>().expect("a table"));
        thread::scope(|scope| {
            for at in 0..3 {
                let (db, cells, buckets) = (&db, &cells, &buckets);
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(seed ^ at << 32);
                    let mut session = db.session();
                    for _ in 0..400 {
                        let draws = rng.next_u64();
                        let body = |tx: &Tx| {
                            let mut rng = Rng::from_seed(draws);
                            for _ in 0..2 {
                                let id = rng.below(3) as u32;
                                match rng.below(6) {
                                    0 => drop(tx.delete_if(cells, &id)?),
                                    1 => drop(tx.delete_if(buckets, &id)?),
                                    2 => drop(tx.try_insert(cells, &Cell { id, value: 1 })?),
                                    3 => drop(tx.try_insert(buckets, &BucketCell { id, value: 1 })?),
                                    4 => drop(tx.get(cells, &id)?),
                                    _ => drop(tx.get(buckets, &id)?),
                                }
                            }
                            Ok(())
                        };
                        session.transact(body).expect("attempts enough");
                        if rng.below(40) == 0 {
                            thread::sleep(Duration::from_micros(700));
                        }
                    }
                });
            }
        });
        let history = assert_serializable(&setting, &db);
        audit::versions_rise(&history).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
        audit::epochs_follow_dependencies(&history, setting.orders_epochs())
            .unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    }
}

/// How the record that the reader saw stood when it committed.
#[derive(Debug, Default)]
struct Outcomes {
    /// It read a tombstone that was unlinked before the key came back.
    unlinked: usize,
    /// It read a tombstone that the key came back to.
    linked: usize,
    refused: usize,
}

/// A reader finds a tombstone. The record is unlinked and the key comes back with a new one, together with a cell that
/// the reader sees. So there is no order in which the key was absent.
fn tombstone<C: Cells<Key = u32>>(setting: &Setting, [before, after]: [u32; 2], delayed: bool, met: &mut Outcomes) {
    let db = stepped(setting);
    let cells = db.create::<C>().expect("a table");
    let put = |tx: &Tx, id, value| tx.put(&cells, &C::new(id, value));
    let mut session = db.session();
    session.transact(|tx| put(tx, 1, 7).and_then(|()| put(tx, 2, 0))).expect("loading");
    let mut sessions = [db.session(), db.session(), db.session()];
    let [reading, looking, delaying] = &mut sessions;
    // A transaction that was open at the delete delays the unlink until the reader has met the tombstone.
    let delay = delayed.then(|| delaying.begin().expect("a worker"));
    session.transact(|tx| tx.delete(&cells, &1)).expect("alone");
    (0..before).for_each(|_| db.step());
    db.take_history();
    let reader = reading.begin().expect("a worker");
    assert!(reader.get(&cells, &1).expect("alone").is_none());
    drop(delay);
    let look = |session: &mut seriatim::Session| {
        let tx = session.begin().expect("a worker");
        unless_conflict(tx.get(&cells, &1).map(drop))?;
        committed(tx.commit())?;
        Some(saw(&db.take_history().expect("the database records")))
    };
    let found = look(looking);
    (0..after).for_each(|_| db.step());
    let left = look(looking);
    let reborn = try_once(&db, |tx| put(tx, 1, 8).and_then(|()| put(tx, 2, 1)));
    (0..after).for_each(|_| db.step());
    let sees = unless_conflict(reader.get(&cells, &2)).map(|row| row.map(|row| C::value(&row)));
    let wrote = sees.and_then(|_| unless_conflict(put(&reader, 3, 1)));
    let reader = wrote.and_then(|()| committed(reader.commit()));
    // A reader of the past comes before the rebirth, and sees nothing of it.
    let is_before = setting.reads_the_past() && sees == Some(Some(0));
    assert!(
        is_before || reader.is_none() || reborn.is_none(),
        "{setting}, {before} + {after} steps: an absence outlived a rebirth"
    );
    assert!(reader.is_some() || reborn.is_some(), "{setting}, {before} + {after} steps: nobody got through");
    match (found, left, reborn.is_some()) {
        (_, _, false) => met.refused += 1,
        (Some(Saw::AbsentAt(_)), Some(Saw::Absent), true) => met.unlinked += 1,
        (Some(Saw::AbsentAt(_)), Some(Saw::AbsentAt(_)), true) => met.linked += 1,
        _ => {}
    }
    assert!(db.check_structure().is_ok());
}

#[test]
fn a_tombstone_reader_does_not_survive_the_rebirth_of_its_key() {
    for setting in matrix(seed("tombstone, unlink, reinsert")) {
        let mut met = Outcomes::default();
        for before in 0..4 {
            for after in 0..4 {
                for delayed in [false, true] {
                    tombstone::<Cell>(&setting, [before, after], delayed, &mut met);
                    tombstone::<BucketCell>(&setting, [before, after], delayed, &mut met);
                }
            }
        }
        eprintln!("{setting}: {met:?}");
        // A locking reader keeps the tombstone; with any other the schedule of the trap must have come up.
        assert!(
            met.unlinked > 0 || met.refused > 0 || setting.reads_the_past(),
            "{setting}: no tombstone was unlinked under its reader"
        );
        assert!(met.linked > 0 || met.refused > 0, "{setting}: no key came back to its tombstone");
    }
}

/// A reader of a row across its delete, unlink and rebirth with the same value.
fn same_again<C: Cells<Key = u32>>(setting: &Setting, steps: u32, scanned: bool) {
    let db = stepped(setting);
    let cells = db.create::<C>().expect("a table");
    let mut session = db.session();
    session.transact(|tx| (1..4).try_for_each(|id| tx.put(&cells, &C::new(id, 7)))).expect("loading");
    let mut other = db.session();
    let reader = other.begin().expect("a worker");
    match scanned {
        true => assert_eq!(C::scan(&reader, &cells, 1..=1, false).try_count(), Ok(1)),
        false => assert!(reader.get(&cells, &1).expect("alone").is_some()),
    }
    let gone = try_once(&db, |tx| tx.delete_if(&cells, &1).and_then(|_| tx.put(&cells, &C::new(2, 8))));
    (0..steps).for_each(|_| db.step());
    let back = gone.and_then(|_| try_once(&db, |tx| tx.insert(&cells, &C::new(1, 7))));
    (0..steps).for_each(|_| db.step());
    let sees = unless_conflict(reader.get(&cells, &2)).map(|row| row.map(|row| C::value(&row)));
    let wrote = sees.and_then(|_| unless_conflict(reader.put(&cells, &C::new(3, 1))));
    let reader = wrote.and_then(|()| committed(reader.commit()));
    // A reader of the past comes before, and sees the old row.
    let is_before = setting.reads_the_past() && sees == Some(Some(7));
    assert!(
        is_before || reader.is_none() || gone.is_none(),
        "{setting}, {steps} steps: the reader missed that the key had gone"
    );
    assert!(gone.is_none() || back.is_some(), "{setting}: nothing stands in the way of the rebirth");
    assert_serializable(setting, &db);
}

#[test]
fn a_reader_notices_a_rebirth_with_the_same_value() {
    for setting in matrix(seed("the same again")) {
        for steps in 0..4 {
            same_again::<Cell>(&setting, steps, false);
            same_again::<Cell>(&setting, steps, true);
            same_again::<BucketCell>(&setting, steps, false);
        }
    }
}

/// Placeholders of rolled-back inserts come and go under a reader of the absence: it may stay, nothing was ever there.
#[test]
fn a_rolled_back_insert_leaves_no_trace_in_versions() {
    #[derive(Table, Clone, Debug)]
    #[table(name = "note", key(id))]
    struct Note {
        id: u32,
        text: String,
    }
    for setting in matrix(seed("rolled-back insert")) {
        let db: Database = stepped(&setting);
        let notes = db.create::<Note>().expect("a table");
        let note = |text: &str| Note { id: 1, text: text.to_owned() };
        let mut newest = Tid::ZERO;
        for round in 0..20 {
            {
                let mut session = db.session();
                let tx = session.begin().expect("a worker");
                tx.insert(&notes, &note("never there")).expect("alone");
                let savepoint = tx.savepoint().expect("open");
                tx.put(&notes, &note("nor there")).expect("alone");
                tx.rollback_to(savepoint).expect("open");
                tx.rollback();
            }
            (0..round % 3).for_each(|_| db.step());
            assert!(*db.session().transact(|tx| Ok(tx.get(&notes, &1)?.is_none())).expect("alone"), "{setting}");
            let put = db.session().transact(|tx| tx.insert(&notes, &note("there"))).expect("alone");
            let gone = db.session().transact(|tx| tx.delete(&notes, &1)).expect("alone");
            assert!(newest < put.receipt.tid && put.receipt.tid < gone.receipt.tid, "{setting}, round {round}");
            newest = gone.receipt.tid;
            (0..round % 4).for_each(|_| db.step());
        }
        assert_serializable(&setting, &db);
    }
}
