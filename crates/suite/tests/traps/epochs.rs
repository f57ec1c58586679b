//! The epoch of a commit is that of its commit, not of its begin. So the transactions of all epochs up to one are a
//! prefix of a serial order. A published commit is readable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim::rng::seed;
use seriatim::{Abort, Receipt, Rng, Tid, Tx, thread};
use seriatim_suite::explore::{BucketCell, Cell};
use seriatim_suite::{audit, epochs, matrix};

use crate::{assert_serializable, committed};

fn epoch(receipt: Receipt) -> u64 {
    receipt.tid.epoch().0
}

#[test]
fn a_commit_belongs_to_the_epoch_in_which_it_commits() {
    for setting in matrix(seed("epoch of the commit")) {
        let db = epochs::belong_to_their_commits(&setting, |builder| builder).expect("epochs of commits");
        audit::epochs_follow_dependencies(&assert_serializable(&setting, &db), setting.orders_epochs())
            .expect("epochs in order");
    }
}

#[test]
fn a_transaction_that_overwrites_a_read_version_has_no_earlier_epoch_than_the_reader() {
    for setting in matrix(seed("epoch of the one that overwrites")) {
        let checked = epochs::follow_what_was_read(&setting, |builder| builder);
        assert!(checked.as_ref().is_ok_and(|&checked| checked > 0), "{setting}: {checked:?}");
    }
}

/// More than so many epochs are to pass.
const EPOCHS: u64 = 3;

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
        // The newest epoch that any finished commit had: one that begins to validate later is not of an
        // earlier one. And how often it rose.
        let (floor, risen) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for at in 0..3 {
                let (db, cells, buckets, floor, risen, setting) = (&db, &cells, &buckets, &floor, &risen, &setting);
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(seed ^ at << 32);
                    let mut session = db.session();
                    for number in 0.. {
                        if number >= 300 {
                            // Epochs may not pass for a while if no thread runs that ends them.
                            if risen.load(Ordering::Relaxed) > EPOCHS {
                                break;
                            }
                            thread::sleep(Duration::from_millis(1));
                        }
                        let tx = session.begin().expect("a worker");
                        let (read, written) = (rng.below(8) as u32, rng.below(8) as u32);
                        // Whether it wrote: the TID of one that did not is that of what it read.
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
                                let update = tx.update_if(buckets, &written, |cell| cell.set_value(cell.value() + 1));
                                update.map(|updated| updated.is_ok())
                            }),
                            _ => tx
                                .delete_if(cells, &written)
                                .and_then(|gone| Ok(tx.delete_if(buckets, &read)?.is_ok() || gone.is_ok())),
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
                            let assigned = epoch(receipt);
                            assert!(assigned >= begins, "{setting}: epoch {assigned}, but {begins} had come before");
                            let before = floor.fetch_max(assigned, Ordering::SeqCst);
                            risen.fetch_add(u64::from(before < assigned), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let history = assert_serializable(&setting, &db);
        let checked = audit::epochs_follow_dependencies(&history, setting.orders_epochs())
            .unwrap_or_else(|fault| panic!("{setting}: {fault}"));
        audit::versions_rise(&history).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
        let reached: std::collections::BTreeSet<u64> = history
            .transactions
            .iter()
            .flat_map(|t| &t.writes)
            .map(|write| Tid::from_bits(write.version).epoch().0)
            .collect();
        assert!(
            checked > 200 && reached.len() as u64 > EPOCHS,
            "{setting}: {checked} dependencies, {} epochs",
            reached.len()
        );
    }
}
