//! The promises of the contract, checked under every protocol where the public API does not show them.

mod gc;
mod held;
mod places;
mod prefetch;
mod ranges;
mod redo;
mod savepoints;
mod tids;
mod waiting;

use seriatim_base::Tid;
use seriatim_catalog::Key;
use seriatim_engine::for_each_protocol;
use seriatim_txn::{Inserted, NoRedo, OnExists, OpError, Outcome, Protocol, Worker};

use crate::common::Bench;

fn commit<W: Worker>(worker: &mut W) -> Result<Tid, OpError> {
    match worker.commit(&mut NoRedo)? {
        Outcome::Committed(tid) => Ok(tid),
        Outcome::Repair(_) => unreachable!("no protocol here repairs"),
    }
}

/// Whether the steps and the commit succeeded; if not, the attempt is ended.
fn commits<W: Worker, R>(worker: &mut W, steps: Result<R, OpError>) -> bool {
    let done = steps.and_then(|_| commit(worker)).is_ok();
    if !done {
        worker.abort();
    }
    done
}

fn insert<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, id: u64, value: i64) -> Result<Inserted, OpError> {
    let staged = worker.stage(&bench.cells)?;
    bench.set(staged.row, value);
    worker.insert(&bench.cells, Key::Word8(id), staged, OnExists::Refuse)
}

macro_rules! under_every_protocol {
    ($($name:ident => $protocol:path,)*) => {
        mod under {
            $(
                mod $name {
                    use crate::contract::{gc, places, prefetch, ranges, redo, savepoints, tids, waiting};

                    #[test]
                    fn the_last_record_of_a_held_leaf_is_unlinked_later() {
                        gc::the_last_of_a_held_leaf::<$protocol>();
                    }

                    #[test]
                    fn an_insert_told_to_wait_keeps_its_row() {
                        waiting::an_insert_keeps_its_row::<$protocol>();
                    }

                    #[test]
                    fn an_insert_told_to_wait_for_a_gap_keeps_its_row() {
                        waiting::an_insert_into_a_gap_keeps_its_row_and_the_gap_is_reserved::<$protocol>();
                    }

                    #[test]
                    fn a_released_lock_is_reserved_for_the_waiter() {
                        waiting::a_released_lock_is_reserved_for_the_waiter::<$protocol>();
                    }

                    #[test]
                    fn a_waiter_that_has_left_reserves_nothing() {
                        waiting::a_waiter_that_has_left_reserves_nothing::<$protocol>();
                    }

                    #[test]
                    fn the_oldest_that_asks_is_the_one_that_waits() {
                        waiting::the_oldest_that_asks_is_the_one_that_waits::<$protocol>();
                    }

                    #[test]
                    fn of_two_readers_that_write_the_older_waits() {
                        waiting::of_two_readers_that_write_the_older_waits::<$protocol>();
                    }

                    #[test]
                    fn reads_of_a_rolled_back_update_are_validated() {
                        savepoints::rolled_back_update::<$protocol>();
                    }

                    #[test]
                    fn reads_of_a_rolled_back_delete_are_validated() {
                        savepoints::rolled_back_delete::<$protocol>();
                    }

                    #[test]
                    fn the_absence_that_a_rolled_back_insert_saw_stays_read() {
                        savepoints::rolled_back_insert::<$protocol>();
                    }

                    #[test]
                    fn a_row_that_appears_while_a_scan_is_in_its_range_is_shown_or_refutes_one_of_the_two() {
                        ranges::a_row_appears::<$protocol>();
                    }

                    #[test]
                    fn a_scan_that_passes_by_an_unlinked_record_comes_after_its_delete() {
                        tids::scan_past_an_unlinked_record::<$protocol>();
                    }

                    #[test]
                    fn a_reader_that_finds_a_key_absent_comes_after_its_delete() {
                        tids::reader_of_an_absence::<$protocol>();
                    }

                    #[test]
                    fn the_tids_that_an_attempt_saw_have_a_bound() {
                        tids::bound_of_what_was_seen::<$protocol>();
                    }

                    #[test]
                    fn the_absence_before_an_insert_has_a_bound() {
                        tids::bound_of_an_absence_before_an_insert::<$protocol>();
                    }

                    #[test]
                    fn a_commit_is_of_the_epoch_in_which_it_is_decided() {
                        tids::epoch_of_the_decision::<$protocol>();
                    }

                    #[test]
                    fn a_snapshot_sees_what_was_deleted_and_inserted_over() {
                        tids::snapshot_of_what_was_inserted_over::<$protocol>();
                    }

                    #[test]
                    fn the_bound_of_a_snapshot_is_not_newer_than_it() {
                        tids::bound_of_a_snapshot::<$protocol>();
                    }

                    #[test]
                    fn a_write_is_reported_with_the_version_it_replaced() {
                        redo::chains::<$protocol>(stringify!($name));
                    }

                    #[test]
                    fn a_large_delete_is_cleared_away_in_bounded_amounts() {
                        gc::large_delete::<$protocol>();
                    }

                    #[test]
                    fn a_transaction_clears_away_as_much_as_it_deletes() {
                        gc::own_deletes::<$protocol>();
                    }

                    #[test]
                    fn memory_of_refused_insertions_over_a_deleted_row_comes_back() {
                        gc::refused_insertions_over_a_deleted_row::<$protocol>();
                    }

                    #[test]
                    fn updates_go_to_places_in_the_record() {
                        places::alternate::<$protocol>();
                    }

                    #[test]
                    fn updates_in_places_take_no_memory() {
                        places::take_no_memory::<$protocol>();
                    }

                    #[test]
                    fn an_online_worker_keeps_its_row() {
                        places::an_online_worker_keeps_its_row::<$protocol>();
                    }

                    #[test]
                    fn an_inserter_keeps_its_row() {
                        places::an_inserter_keeps_its_row::<$protocol>();
                    }

                    #[test]
                    fn snapshots_see_what_was_in_places() {
                        places::snapshots_see_what_was::<$protocol>();
                    }

                    #[test]
                    fn versions_in_places_wait_for_the_durable_point() {
                        places::wait_for_the_durable_point::<$protocol>();
                    }

                    #[test]
                    fn a_prefetched_record_that_is_unlinked_since_is_looked_up_again() {
                        prefetch::unlinked_since::<$protocol>();
                    }
                }
            )*
        }
    };
}
for_each_protocol!(under_every_protocol);

/// As the others, with every record hot.
mod hot {
    under_every_protocol! { htcc => seriatim_test_protocols::all_hot::AllHot, }
}
