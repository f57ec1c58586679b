//! Where the order of timestamps is not that of time: step by step, judged by the history checker.

use std::sync::atomic::Ordering;

use seriatim_base::Tid;
use seriatim_catalog::Key;
use seriatim_history::{Anomaly, Promises, check};
use seriatim_txn::Worker as _;

use super::*;
use crate::shared::gc::Claim as _;
use crate::shared::record_header::TidWord;
use crate::stage;

/// A cell that is changed until its timestamps are far ahead of those of the others.
const HOT: u64 = 0;
const X: u64 = 1;
const Y: u64 = 2;
const ABSENT: u64 = 9;

type Stage = stage::Stage<TicToc>;
type Open = stage::Open<Worker<State>>;

impl Stage {
    fn begin(&self) -> Open {
        self.open()
    }

    /// Its TID, if it commits; and its worker.
    fn commit(&mut self, open: Open) -> (Option<Tid>, Worker<State>) {
        let (ended, worker) = self.end(open);
        (ended.ok(), worker)
    }

    /// X is read by a transaction whose timestamp is far ahead: it is valid so long.
    fn promise_x(&mut self) -> Tid {
        for _ in 0..20 {
            let mut open = self.begin();
            self.change(&mut open, HOT);
            assert!(self.commit(open).0.is_some());
        }
        let mut open = self.begin();
        self.read(&mut open, X);
        self.change(&mut open, HOT);
        self.commit(open).0.expect("it runs alone")
    }

    fn is_serializable(&self) -> bool {
        check(&self.history, &Promises::SERIALIZABLE).is_ok()
    }
}

/// T3 reads X; T1 overwrites X and ends; T2 begins, reads Y and ends; T3 overwrites Y. The order is T2, T3, T1.
#[test]
fn a_transaction_commits_below_one_that_ended_and_the_judge_of_real_time_notices() {
    let mut stage = Stage::new();
    let promised = stage.promise_x();
    let mut third = stage.begin();
    stage.read(&mut third, X);
    let x = third.worker.seen().record.expect("a row is of a record");
    let mut first = stage.begin();
    stage.change(&mut first, X);
    let first = stage.commit(first).0.expect("nobody has locked X");
    assert!(first > promised, "who overwrites a version commits above its readers");
    assert_eq!(timestamps::of(&stage.bench.cells, x), (first, false), "the new version's");
    let mut second = stage.begin();
    assert_eq!(stage.read(&mut second, Y), Some(10));
    assert!(stage.commit(second).0.is_some());
    stage.change(&mut third, Y);
    let third = stage.commit(third).0.expect("X is valid at its timestamp");
    assert!(third < first, "{third}, and {first}");
    assert!(stage.is_serializable());
    let violation = check(&stage.history, &Promises { real_time: true, ..Promises::SERIALIZABLE });
    let violation = violation.expect_err("the first ended before the second began");
    assert!(matches!(violation.anomaly, Anomaly::StaleRead | Anomaly::RealTimeOrder), "{violation}");
    let capabilities = TicToc::INFO.capabilities;
    assert!(!capabilities.strict && capabilities.epoch_order);
}

#[test]
fn a_version_is_not_extended_past_the_one_that_overwrote_it() {
    for (promised, further) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut stage = Stage::new();
        let mut reader = stage.begin();
        if promised {
            stage.promise_x();
        }
        stage.read(&mut reader, X);
        // Its timestamp is just above the promise, if there is one: that of the writer, up to which the new
        // version is valid.
        stage.read(&mut reader, HOT);
        let mut writer = stage.begin();
        stage.read(&mut writer, Y);
        stage.change(&mut writer, X);
        assert!(stage.commit(writer).0.is_some());
        if further {
            // The new version is valid up to the reader's timestamp.
            let mut another = stage.begin();
            stage.read(&mut another, X);
            stage.insert(&mut another, ABSENT);
            assert!(stage.commit(another).0.is_some());
        }
        stage.change(&mut reader, Y);
        assert_eq!(stage.commit(reader).0, None, "write skew");
        let mut again = stage.begin();
        stage.change(&mut again, Y);
        assert!(stage.commit(again).0.is_some(), "the record is as it was");
        assert!(stage.is_serializable());
    }
}

/// A locked record with an open timestamp may have a new version already, whose TID word is not there yet.
#[test]
fn of_a_locked_record_only_a_closed_timestamp_counts() {
    for closed in [false, true] {
        let mut stage = Stage::new();
        let far = stage.promise_x();
        let mut reader = stage.begin();
        stage.read(&mut reader, Y);
        let y = reader.worker.seen().record.expect("a row is of a record");
        let header = record_header::tid_word(&stage.bench.cells.record_layout, y);
        let free = TidWord(header.load(Ordering::Relaxed));
        stage.change(&mut reader, X);
        header.store(free.locked().0, Ordering::Relaxed);
        timestamps::open(&stage.bench.cells, y, Some(far.next(far.epoch()).next(far.epoch())));
        if closed {
            timestamps::close(&stage.bench.cells, y);
        }
        assert_eq!(stage.commit(reader).0.is_some(), closed);
    }
}

#[test]
fn a_record_that_is_claimed_is_closed_until_it_is_given_back() {
    let stage = Stage::new();
    let mut open = stage.begin();
    stage.read(&mut open, X);
    let x = open.worker.seen().record.expect("a row is of a record");
    let (cells, rts) = (&stage.bench.cells, timestamps::of(&stage.bench.cells, x).0);
    let word = Claim.take(open.worker.core(), cells, x).expect("nobody has locked it");
    assert_eq!(timestamps::of(cells, x), (rts, true));
    assert_eq!(Claim.take(open.worker.core(), cells, x), None);
    Claim.give(open.worker.core(), cells, x, word);
    assert_eq!(timestamps::of(cells, x), (rts, false));
    open.worker.abort();
}

/// A transaction that wrote nothing, and one that gives up (promise g), have seen versions that are valid at
/// one timestamp.
#[test]
fn reads_stay_valid_up_to_the_newest_timestamp_among_them() {
    for gives_up in [false, true] {
        let mut stage = Stage::new();
        stage.promise_x();
        // It comes after the transaction that overwrites Y, which it has read, but not after those that have read HOT.
        let mut late = stage.begin();
        stage.read(&mut late, Y);
        let mut reader = stage.begin();
        stage.read(&mut reader, HOT);
        stage.read(&mut reader, Y);
        let newest = reader.worker.newest();
        if gives_up {
            assert_eq!(reader.worker.validate(), Ok(()));
            reader.worker.abort();
        } else {
            assert_eq!(stage.commit(reader).0, Some(newest));
        }
        stage.change(&mut late, Y);
        assert!(stage.commit(late).0.is_some_and(|tid| tid > newest), "gives up: {gives_up}");
        assert!(stage.is_serializable());
    }
}

/// An absence that a node version proves, and X as it was: T found the key absent and overwrote X. So a transaction
/// that inserts the key comes after T, and cannot have seen X before.
#[test]
fn an_insertion_comes_after_transactions_that_found_its_key_absent() {
    let mut stage = Stage::new();
    stage.promise_x();
    let mut inserts = stage.begin();
    stage.read(&mut inserts, X);
    let mut found = stage.begin();
    assert_eq!(stage.read(&mut found, ABSENT), None);
    stage.change(&mut found, X);
    assert!(stage.commit(found).0.is_some());
    stage.insert(&mut inserts, ABSENT);
    assert_eq!(stage.commit(inserts).0, None, "X is valid below the other's timestamp only");
    assert!(stage.is_serializable());
}

/// The same, where the key was deleted: its record is found by the one, and unlinked before the other.
#[test]
fn an_insertion_comes_after_readers_of_a_record_that_was_unlinked() {
    let mut stage = Stage::new();
    stage.promise_x();
    let mut deletes = stage.begin();
    stage.delete(&mut deletes, Y);
    let (deleted, mut sweeper) = stage.commit(deletes);
    assert!(deleted.is_some());
    sweeper.core().local.collect();
    let mut inserts = stage.begin();
    stage.read(&mut inserts, X);
    let mut found = stage.begin();
    assert_eq!(stage.read(&mut found, Y), None);
    let record = found.worker.seen().record.expect("the record is linked");
    stage.change(&mut found, X);
    assert!(stage.commit(found).0.is_some());
    sweeper.collect_garbage(usize::MAX);
    let pin = inserts.worker.core().local.pinned();
    assert!(stage.bench.cells.index.get(Key::Word8(Y), pin).is_err(), "the record is unlinked");
    assert!(timestamps::of(&stage.bench.cells, record).1, "nobody extends it any more");
    stage.insert(&mut inserts, Y);
    assert_eq!(stage.commit(inserts).0, None, "X is valid below the other's timestamp only");
    assert!(stage.is_serializable());
}

/// The same, where the record is the placeholder of an insertion that is taken back.
#[test]
fn an_insertion_comes_after_readers_of_a_placeholder_that_was_unlinked() {
    let mut stage = Stage::new();
    stage.promise_x();
    let mut inserts = stage.begin();
    stage.read(&mut inserts, X);
    let mut gives_up = stage.begin();
    stage.insert(&mut gives_up, ABSENT);
    let mut found = stage.begin();
    assert_eq!(stage.read(&mut found, ABSENT), None);
    assert!(found.worker.seen().record.is_some(), "the placeholder");
    stage.change(&mut found, X);
    assert!(stage.commit(found).0.is_some());
    gives_up.worker.abort();
    stage.insert(&mut inserts, ABSENT);
    assert_eq!(stage.commit(inserts).0, None, "X is valid below the other's timestamp only");
    assert!(stage.is_serializable());
}

/// The same, where the one finds the key absent before a placeholder is linked, and the other finds the placeholder.
#[test]
fn an_insertion_into_a_foreign_placeholder_comes_after_transactions_that_found_the_key_absent() {
    let mut stage = Stage::new();
    stage.promise_x();
    let mut inserts = stage.begin();
    stage.read(&mut inserts, X);
    let mut found = stage.begin();
    assert_eq!(stage.read(&mut found, ABSENT), None);
    stage.change(&mut found, X);
    assert!(stage.commit(found).0.is_some());
    let mut gives_up = stage.begin();
    stage.insert(&mut gives_up, ABSENT);
    stage.insert(&mut inserts, ABSENT);
    assert_eq!(stage.commit(inserts).0, None, "X is valid below the other's timestamp only");
    gives_up.worker.abort();
    assert!(stage.is_serializable());
}

/// A transaction that fills the placeholder of an undone insertion does not find its own row any more. Its answer is
/// then no result (promise g), although it saw only the timestamp of the beginning.
#[test]
fn a_write_to_an_unlinked_record_fails_validation() {
    let stage = Stage::new();
    let mut gives_up = stage.begin();
    stage.insert(&mut gives_up, ABSENT);
    let mut fills = stage.begin();
    stage.insert(&mut fills, ABSENT);
    assert_eq!(fills.worker.validate(), Ok(()), "the placeholder is there");
    gives_up.worker.abort();
    assert_eq!(stage.read(&mut fills, ABSENT), None, "its own row is out of sight");
    stage.insert(&mut fills, ABSENT);
    assert_eq!(fills.worker.newest(), Tid::ZERO);
    assert!(fills.worker.validate().is_err(), "it has two rows at one key");
    fills.worker.abort();
}
