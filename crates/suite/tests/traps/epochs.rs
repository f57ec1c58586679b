//! Traps 6 and 9, the half that memory has: the epoch of a commit is that of its commit, not of its begin, so that the
//! transactions of all epochs up to one are a prefix of a serial order; and what was published is readable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim::{Abort, Database, Receipt, Rng, Stamp, Tx, thread};
use seriatim_suite::explore::{BucketCell, Cell};
use seriatim_suite::{audit, matrix, seed};

use crate::{assert_serializable, committed, stepped};

fn epoch(receipt: Receipt) -> u64 {
    receipt.stamp.epoch().0
}

/// The epoch now, from a commit.
fn now(db: &Database, cells: &seriatim::Handle<Cell>) -> u64 {
    epoch(db.session().transact(|tx| tx.put(cells, &Cell { id: 0, value: 0 })).expect("alone").receipt)
}

#[test]
fn a_commit_belongs_to_the_epoch_in_which_it_commits() {
    type Write = fn(&Tx, &seriatim::Handle<Cell>, &seriatim::Handle<BucketCell>) -> Result<(), Abort>;
    let writes: [Write; 6] = [
        |tx, cells, _| tx.update(cells, &1, |cell| cell.set_value(2)).map(drop),
        |tx, cells, _| tx.insert(cells, &Cell { id: 9, value: 0 }),
        |tx, cells, _| tx.delete(cells, &2).map(drop),
        |tx, _, buckets| tx.update(buckets, &1, |cell| cell.set_value(2)).map(drop),
        |tx, _, buckets| tx.insert(buckets, &BucketCell { id: 9, value: 0 }),
        |tx, cells, buckets| tx.get(cells, &3).and_then(|_| tx.delete(buckets, &2)).map(drop),
    ];
    for setting in matrix(seed("epoch of the commit")) {
        let db = stepped(&setting);
        let (cells, buckets) = (db.create::<Cell>().expect("a table"), db.create::<BucketCell>().expect("a table"));
        let load = |tx: &Tx| {
            (1..5).try_for_each(|id| {
                tx.insert(&cells, &Cell { id, value: 1 })?;
                tx.insert(&buckets, &BucketCell { id, value: 1 })
            })
        };
        db.session().transact(load).expect("loading");
        let mut session = db.session();
        for (at, write) in writes.into_iter().enumerate() {
            for (before, between) in [(0, 2), (2, 0), (1, 1), (0, 0)] {
                let begun = now(&db, &cells);
                let tx = session.begin().expect("a worker");
                (0..before).for_each(|_| db.step());
                write(&tx, &cells, &buckets).expect("alone");
                (0..between).for_each(|_| db.step());
                // Even a stall across two epochs: nothing ends meanwhile that the stamp could be below.
                let current = now(&db, &cells);
                assert_eq!(current, begun + before + between, "{setting}: a step is an epoch");
                let receipt = if between == 0 && before == 0 {
                    // A rollback is no commit: it leaves no stamp.
                    tx.rollback();
                    continue;
                } else {
                    committed(tx.commit())
                };
                let stamped = epoch(receipt.expect("alone"));
                assert_eq!(stamped, current, "{setting}, write {at}: begun in {begun}, committed in {current}");
                let undo = |tx: &Tx| {
                    tx.put(&cells, &Cell { id: 2, value: 1 })?;
                    tx.put(&buckets, &BucketCell { id: 2, value: 1 })?;
                    tx.delete(&cells, &9).and_then(|_| tx.delete(&buckets, &9)).map(drop)
                };
                db.session().transact(undo).expect("alone");
            }
        }
        audit::epochs_follow_dependencies(&assert_serializable(&setting, &db)).expect("epochs in order");
    }
}

/// Threads that stall between begin and commit while epochs pass.
#[test]
fn epochs_up_to_any_one_are_a_prefix() {
    let seed = seed("prefix of epochs");
    for setting in matrix(seed) {
        let builder = setting.builder().record_history(true).workers(5).epoch_interval(Duration::from_micros(500));
        let db = builder.open().expect("a database");
        let (cells, buckets) = (db.create::<Cell>().expect("a table"), db.create::<BucketCell>().expect("a table"));
        let load = |tx: &Tx| {
            (0..8).try_for_each(|id| {
                tx.insert(&cells, &Cell { id, value: 0 })?;
                tx.insert(&buckets, &BucketCell { id, value: 0 })
            })
        };
        db.session().transact(load).expect("loading");
        // The newest epoch that any finished commit had: one that begins to validate later is not of an earlier one.
        let floor = AtomicU64::new(0);
        thread::scope(|scope| {
            for at in 0..3 {
                let (db, cells, buckets, floor, setting) = (&db, &cells, &buckets, &floor, &setting);
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(seed ^ at << 32);
                    let mut session = db.session();
                    for _ in 0..300 {
                        let tx = session.begin().expect("a worker");
                        let (read, written) = (rng.below(8) as u32, rng.below(8) as u32);
                        // Whether it wrote: the stamp of one that did not is that of what it read.
                        let done: Result<bool, Abort> = match rng.below(4) {
                            0 => tx
                                .get(cells, &read)
                                .and_then(|_| tx.put(buckets, &BucketCell { id: written, value: 1 }))
                                .map(|()| true),
                            1 => tx
                                .get(buckets, &read)
                                .and_then(|_| tx.put(cells, &Cell { id: written, value: 1 }))
                                .map(|()| true),
                            2 => tx.scan(cells, read..read + 2).try_for_each(|row| row.map(drop)).and_then(|()| {
                                let update = tx.update(buckets, &written, |cell| cell.set_value(cell.value() + 1));
                                update.map(|updated| updated.is_some())
                            }),
                            _ => tx.delete(cells, &written).and_then(|gone| Ok(tx.delete(buckets, &read)? || gone)),
                        };
                        match rng.below(12) {
                            0 => thread::sleep(Duration::from_micros(1200)),
                            1..4 => thread::yield_now(),
                            _ => {}
                        }
                        let Ok(wrote) = done else { continue };
                        let begins = floor.load(Ordering::SeqCst);
                        let Some(receipt) = committed(tx.commit()) else { continue };
                        if wrote {
                            let stamped = epoch(receipt);
                            assert!(stamped >= begins, "{setting}: epoch {stamped}, but {begins} had come before");
                            floor.fetch_max(stamped, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        let history = assert_serializable(&setting, &db);
        let checked = audit::epochs_follow_dependencies(&history).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
        audit::versions_rise(&history).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
        let epochs: std::collections::BTreeSet<u64> = history
            .transactions
            .iter()
            .flat_map(|t| &t.writes)
            .map(|write| Stamp::from_bits(write.version).epoch().0)
            .collect();
        assert!(checked > 200 && epochs.len() > 3, "{setting}: {checked} dependencies, {} epochs", epochs.len());
    }
}
