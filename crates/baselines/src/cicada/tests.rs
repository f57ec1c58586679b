//! Which version a timestamp sees, and which transactions are too late. The transactions run step by step, and
//! the history checker checks them.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use seriatim_catalog::{ColumnSet, Key};
use seriatim_history::{Promises, check};
use seriatim_htm::HtmMode;
use seriatim_store::Direction;
use seriatim_txn::{Inserted, NoRedo, OnExists, Phase, Priority, Reason, Scan, Worker as _};

use super::versions::{Visible, Words};
use super::*;
use crate::common::Bench;
use crate::shared::record_header::TidWord;
use crate::stage;

const X: u64 = 0;
const Y: u64 = 1;
const Z: u64 = 2;
const ABSENT: u64 = 9;

type Stage = stage::Stage<Cicada>;
type Open = stage::Open<Worker<State>>;

impl Stage {
    /// A transaction that has drawn its timestamp.
    fn begin(&self) -> Open {
        let mut open = self.open();
        let attempt = open.worker.attempt();
        attempt.locks.draw(&attempt.base.core);
        open
    }

    /// Keeps the worker, so that the commit and not the worker's end passes the timestamp.
    fn commit(&mut self, open: Open) {
        let (ended, worker) = self.end(open);
        assert!(ended.is_ok(), "{ended:?}");
        self.kept = Some(worker);
        assert!(check(&self.history, &Promises::STRICT).is_ok());
    }

    fn refuse(&mut self, open: Open) -> Reason {
        reason(self.end(open).0.expect_err("it comes too late"))
    }

    /// A separate transaction that changes a cell.
    fn overwrite(&mut self, key: u64) {
        let mut open = self.begin();
        self.change(&mut open, key);
        self.commit(open);
    }

    /// A separate transaction that reads a cell and changes another.
    fn look_and_change(&mut self, key: u64, other: u64) -> Option<i64> {
        let mut open = self.begin();
        let value = self.read(&mut open, key);
        self.change(&mut open, other);
        self.commit(open);
        value
    }

    /// A separate transaction that reads a cell.
    fn look(&mut self, key: u64) -> Option<i64> {
        let mut open = self.begin();
        let value = self.read(&mut open, key);
        self.commit(open);
        value
    }
}

impl Stage {
    /// A read-only transaction.
    fn snapshot(&self) -> Open {
        self.open_with(self.bench.worker(), Mode::ReadOnly)
    }

    /// A read-only transaction that reads a cell.
    fn look_past(&mut self, key: u64) -> Option<i64> {
        let mut open = self.snapshot();
        let value = self.read(&mut open, key);
        self.commit(open);
        value
    }

    /// In each of `epochs` epochs, a transaction that changes a cell.
    fn overwrite_by_epochs(&mut self, key: u64, epochs: u32) {
        for _ in 0..epochs {
            self.bench.environment.advance_epoch();
            self.overwrite(key);
        }
    }

    /// The values that a scan of all cells sees.
    fn scan(&self, open: &mut Open) -> Vec<i64> {
        let mut scan = Scan::default();
        let scanned =
            self.bench.cells.index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut scan.cursor);
        scanned.expect("an ordered table");
        let mut values = Vec::new();
        while let Some(row) = open.worker.scan_next(&self.bench.cells, &mut scan, ColumnSet::ALL).expect("as above") {
            values.push(self.bench.get(row));
        }
        values
    }
}

fn reason(error: OpError) -> Reason {
    let OpError::Abort(cause) = error else { panic!("{error:?}") };
    cause.reason
}

fn abort(mut open: Open) {
    open.worker.abort();
}

/// However often the row is overwritten, and even if its slot in the record could be reused.
#[test]
fn a_reader_sees_the_versions_of_its_timestamp_and_commits_below_later_writers() {
    for writes in [false, true] {
        let mut stage = Stage::new();
        let mut reader = stage.begin();
        assert_eq!(stage.read(&mut reader, X), Some(10));
        for _ in 0..5 {
            (X..=Y).for_each(|key| stage.overwrite(key));
        }
        assert_eq!((stage.read(&mut reader, X), stage.read(&mut reader, Y)), (Some(10), Some(10)));
        if writes {
            stage.change(&mut reader, Z);
        }
        stage.commit(reader);
        assert_eq!((stage.look(X), stage.look(Y)), (Some(15), Some(15)));
    }
}

/// At the access and at the commit.
#[test]
fn a_write_below_a_later_version_is_refused() {
    for early in [true, false] {
        let mut stage = Stage::new();
        let mut writer = stage.begin();
        if !early {
            stage.change(&mut writer, X);
        }
        stage.overwrite(X);
        let reason = match early {
            true => {
                let error = stage.try_change(&mut writer, X).expect_err("it comes too late");
                abort(writer);
                reason(error)
            }
            false => stage.refuse(writer),
        };
        assert_eq!(reason, Reason::RecordChanged);
        stage.overwrite(X);
    }
}

/// After a refused commit, until as many commits have succeeded as the option says.
#[test]
fn commits_validate_early_after_a_refused_one() {
    let mut stage = Stage::new();
    let mut worker = stage.bench.worker();
    let refused_in = |stage: &mut Stage, worker: Worker<State>| {
        let mut open = stage.open_with(worker, Mode::ReadWrite);
        stage.change(&mut open, X);
        stage.overwrite(X);
        let (ended, worker) = stage.end(open);
        let Err(OpError::Abort(cause)) = ended else { panic!("the commit is too late: {ended:?}") };
        assert_eq!(cause.reason, Reason::RecordChanged);
        (cause.phase, worker)
    };
    for _ in 0..2 {
        for phase in [Phase::Lock, Phase::Validate, Phase::Validate] {
            let refused = refused_in(&mut stage, worker);
            assert_eq!(refused.0, phase);
            worker = refused.1;
        }
        for _ in 0..EARLY_CHECKS.default {
            let mut open = stage.open_with(worker, Mode::ReadWrite);
            stage.change(&mut open, Y);
            let (ended, kept) = stage.end(open);
            assert!(ended.is_ok(), "{ended:?}");
            worker = kept;
        }
    }
}

/// A lock may be released, so it refuses no commit early.
#[test]
fn early_validation_does_not_refuse_locked_records() {
    let mut stage = Stage::new();
    let mut open = stage.begin();
    stage.read(&mut open, Y);
    stage.change(&mut open, X);
    let attempt = open.worker.attempt();
    let (at, since) = attempt.locks.draw(&attempt.base.core);
    assert!(commit::early_failure(attempt, at, since).is_none());
    let words: Vec<_> = [attempt.reads[0].record(), attempt.base.writes.entries()[0].record]
        .map(|record| record_header::tid_word(&stage.bench.cells.record_layout, record))
        .into();
    words.iter().for_each(|word| word.store(TidWord(word.load(Ordering::Relaxed)).locked().0, Ordering::Release));
    assert!(commit::early_failure(attempt, at, since).is_none());
    words.iter().for_each(|word| word.store(TidWord(word.load(Ordering::Relaxed)).unlocked().0, Ordering::Release));
    stage.overwrite(Y);
    let attempt = open.worker.attempt();
    assert!(commit::early_failure(attempt, at, since).is_none(), "the read is valid at its timestamp");
    stage.commit(open);
}

/// It commits above all readers of the version that it overwrites, if its own reads are still valid there.
#[test]
fn a_write_commits_above_later_readers_or_is_refused() {
    for reads in [false, true] {
        let mut stage = Stage::new();
        let mut writer = stage.begin();
        let drawn = writer.worker.attempt().locks.timestamp();
        stage.read(&mut writer, Z);
        if reads {
            stage.read(&mut writer, Y);
        }
        stage.change(&mut writer, X);
        let x = writer.worker.seen().record.expect("a row is of a record");
        assert_eq!(stage.look_and_change(X, Y), Some(10));
        if reads {
            assert_eq!(stage.refuse(writer), Reason::RecordChanged, "write skew");
        } else {
            stage.commit(writer);
            let written = versions::written(&stage.bench.cells.record_layout, x).load(Ordering::Relaxed);
            assert!(written > drawn, "the writer drew another timestamp");
        }
        stage.overwrite(X);
    }
}

/// The version that was read is still the newest, and the pending write below it was not seen. But it is below the
/// reader. written below the reader.
#[test]
fn a_read_is_validated() {
    for gives_up in [false, true] {
        let mut stage = Stage::new();
        let mut writer = stage.begin();
        stage.change(&mut writer, X);
        let mut reader = stage.begin();
        assert_eq!(stage.read(&mut reader, X), Some(10));
        stage.commit(writer);
        match gives_up {
            true => {
                assert_eq!(reader.worker.validate().map_err(reason), Err(Reason::RecordChanged));
                abort(reader);
            }
            false => assert_eq!(stage.refuse(reader), Reason::RecordChanged),
        }
    }
}

/// A closure that gave up may report what it saw if that was valid at its timestamp, whatever came later.
#[test]
fn a_read_that_was_overwritten_later_may_be_reported() {
    let mut stage = Stage::new();
    let mut reader = stage.begin();
    assert_eq!(stage.read(&mut reader, X), Some(10));
    (X..=Y).for_each(|key| stage.overwrite(key));
    assert_eq!(stage.read(&mut reader, Y), Some(10));
    assert_eq!(reader.worker.validate(), Ok(()));
    abort(reader);
}

/// How a transaction that gives up accesses a row that an earlier one writes.
const USES: [fn(&Stage, &mut Open, u64); 4] = [
    |stage, open, key| {
        stage.read(open, key);
    },
    |stage, open, key| match stage.read(open, key) {
        Some(_) => stage.delete(open, key),
        None => stage.insert(open, key),
    },
    |stage, open, key| match key {
        ABSENT => stage.insert(open, key),
        _ => {
            stage.change(open, key);
        }
    },
    |stage, open, key| match key {
        ABSENT => assert_eq!(stage.scan(open).len(), 3),
        _ => assert_eq!(stage.scan(open)[key as usize], 10),
    },
];

/// A closure that gives up saw that X was overwritten, and saw Y or an absence unchanged. It reports a state of
/// the serial order. A writer that read X before must not install Y or the absent row below that state. Its own
/// timestamp would permit that.
#[test]
fn a_reported_state_stays_valid() {
    for key in [Y, ABSENT] {
        for (uses, writes_first) in USES.into_iter().flat_map(|uses| [(uses, true), (uses, false)]) {
            let mut stage = Stage::new();
            let mut writer = stage.begin();
            stage.read(&mut writer, X);
            let write = |stage: &Stage, writer: &mut Open| match key {
                ABSENT => stage.insert(writer, key),
                _ => {
                    stage.change(writer, key);
                }
            };
            if writes_first {
                write(&stage, &mut writer);
            }
            stage.overwrite(X);
            let mut gives_up = stage.begin();
            assert_eq!(stage.read(&mut gives_up, X), Some(11));
            uses(&stage, &mut gives_up, key);
            assert_eq!(gives_up.worker.validate(), Ok(()), "the state may be reported");
            abort(gives_up);
            if !writes_first {
                write(&stage, &mut writer);
            }
            assert_eq!(stage.refuse(writer), Reason::RecordChanged, "key {key}, writes first: {writes_first}");
        }
    }
}

/// A row that is pending below the timestamp may be installed there.
#[test]
fn a_report_with_a_locked_row_in_the_write_set_is_refused() {
    let stage = Stage::new();
    let mut gives_up = stage.begin();
    stage.change(&mut gives_up, Y);
    assert_eq!(gives_up.worker.validate(), Ok(()));
    let record = gives_up.worker.seen().record.expect("a row is of a record");
    let word = record_header::tid_word(&stage.bench.cells.record_layout, record);
    let unlocked = word.load(Ordering::Relaxed);
    word.store(TidWord(unlocked).locked().0, Ordering::Relaxed);
    assert_eq!(gives_up.worker.validate().map_err(reason), Err(Reason::RecordChanged));
    word.store(unlocked, Ordering::Relaxed);
    abort(gives_up);
}

#[test]
fn later_transactions_wait_for_a_pending_version_and_earlier_ones_ignore_it() {
    let stage = Stage::new();
    let mut early = stage.begin();
    let mut writer = stage.begin();
    let mut late = stage.begin();
    stage.read(&mut writer, X);
    let x = writer.worker.seen().record.expect("a row is of a record");
    let at = writer.worker.attempt().locks.timestamp();
    let layout = &stage.bench.cells.record_layout;
    let tid_word = record_header::tid_word(layout, x);
    let free = TidWord(tid_word.load(Ordering::Relaxed));
    tid_word.store(free.locked().0, Ordering::Release);
    // Between the two steps the writer's timestamp is unknown.
    assert_eq!(stage.try_read(&mut early, X).map_err(reason), Err(Reason::RecordLocked));
    let before = versions::pend(layout, x, at);
    assert_eq!(stage.try_read(&mut late, X).map_err(reason), Err(Reason::RecordLocked));
    assert_eq!(stage.read(&mut early, X), Some(10));
    versions::unpend(layout, x, before);
    tid_word.store(free.0, Ordering::Release);
    assert_eq!(stage.read(&mut late, X), Some(10));
    [early, writer, late].into_iter().for_each(abort);
}

/// Only a transaction that has seen the deletion can continue.
#[test]
fn a_deletion_that_was_seen_stays_visible_while_a_later_insertion_is_pending() {
    let mut stage = Stage::new();
    let keeps = stage.begin();
    let mut deletes = stage.begin();
    stage.delete(&mut deletes, X);
    stage.commit(deletes);
    let [mut sees, mut blind] = [(); 2].map(|()| stage.begin());
    assert_eq!(stage.read(&mut sees, X), None);
    let x = sees.worker.seen().record.expect("it is linked still");
    stage.change(&mut sees, Y);
    let mut later = stage.begin();
    let (at, layout) = (later.worker.attempt().locks.timestamp(), &stage.bench.cells.record_layout);
    let tid_word = record_header::tid_word(layout, x);
    let free = TidWord(tid_word.load(Ordering::Relaxed));
    tid_word.store(free.locked().0, Ordering::Release);
    let before = versions::pend(layout, x, at);
    assert_eq!(stage.try_read(&mut blind, X).map_err(reason), Err(Reason::RecordLocked));
    let ended = stage.end(sees).0;
    assert!(ended.is_ok(), "{ended:?}");
    let layout = &stage.bench.cells.record_layout;
    versions::unpend(layout, x, before);
    record_header::tid_word(layout, x).store(free.0, Ordering::Release);
    [keeps, blind, later].into_iter().for_each(abort);
}

/// Each of two transactions has read what the other writes, and a third has seen both. Both draw again, and one
/// waits for the other.
#[test]
fn one_of_two_transactions_that_draw_again_commits() {
    use seriatim_base::thread::take_turns;

    for seed in 0..300 {
        let mut stage = Stage::new();
        let [mut one, mut other] = [(); 2].map(|()| stage.begin());
        stage.read(&mut one, X);
        stage.change(&mut one, Y);
        stage.read(&mut other, Y);
        stage.change(&mut other, X);
        let mut third = stage.begin();
        stage.read(&mut third, X);
        stage.read(&mut third, Y);
        stage.change(&mut third, Z);
        stage.commit(third);
        let commits = |open: Open| -> Box<dyn FnOnce() -> bool + Send> {
            let mut worker = open.worker;
            Box::new(move || {
                let committed = worker.commit(&mut seriatim_txn::NoRedo).is_ok();
                if !committed {
                    worker.abort();
                }
                committed
            })
        };
        let ended = take_turns(seed, 3, vec![commits(one), commits(other)]);
        let committed: Vec<bool> = ended.into_iter().map(|ended| ended.expect("no panic")).collect();
        assert!(committed[0] != committed[1], "seed {seed}: {committed:?}");
    }
}

/// A pending version that is undone meanwhile is not taken for a committed one.
#[test]
fn an_unlocked_record_has_nothing_pending() {
    let stage = Stage::new();
    let mut open = stage.begin();
    stage.read(&mut open, X);
    let x = open.worker.seen().record.expect("a row is of a record");
    let (at, layout) = (open.worker.attempt().locks.timestamp(), &stage.bench.cells.record_layout);
    let words = Words::of(layout, x);
    let Visible::Newest(word, version) = words.sight(at, Tid::ZERO.epoch()) else { panic!("nothing is pending") };
    versions::pend(layout, x, at);
    assert_eq!(words.sight(at + 1, Tid::ZERO.epoch()), Visible::Held, "the reader looks again, with a bound");
    versions::unpend(layout, x, 0);
    assert_eq!(words.sight(at + 1, Tid::ZERO.epoch()), Visible::Newest(word, version));
    abort(open);
}

#[test]
fn a_reader_sees_a_key_before_its_deletion_even_after_a_new_insertion() {
    let mut stage = Stage::new();
    let [mut early, mut later, mut last] = [(); 3].map(|()| stage.begin());
    let mut deletes = stage.begin();
    stage.delete(&mut deletes, X);
    stage.commit(deletes);
    assert_eq!(stage.read(&mut early, X), Some(10));
    stage.change(&mut early, Y);
    stage.commit(early);
    let error = stage.try_change(&mut later, X).expect_err("the key is deleted in the future");
    assert_eq!(reason(error), Reason::RecordChanged);
    abort(later);
    let [mut between, mut blind] = [(); 2].map(|()| stage.begin());
    assert_eq!(stage.read(&mut between, X), None);
    for _ in 0..2 {
        let mut inserts = stage.begin();
        stage.insert(&mut inserts, X);
        stage.commit(inserts);
        let mut deletes = stage.begin();
        stage.delete(&mut deletes, X);
        stage.commit(deletes);
    }
    let mut inserts = stage.begin();
    stage.insert(&mut inserts, X);
    stage.commit(inserts);
    assert_eq!((stage.read(&mut last, X), stage.read(&mut blind, X)), (Some(10), None));
    stage.change(&mut between, Y);
    stage.change(&mut last, Z);
    [between, last, blind].into_iter().for_each(|open| stage.commit(open));
    assert_eq!(stage.look(X), Some(1));
}

#[test]
fn a_key_is_absent_before_its_first_row() {
    let mut stage = Stage::new();
    let mut early = stage.begin();
    let mut inserts = stage.begin();
    stage.insert(&mut inserts, ABSENT);
    stage.commit(inserts);
    stage.overwrite(ABSENT);
    assert_eq!(stage.read(&mut early, ABSENT), None);
    stage.change(&mut early, X);
    stage.commit(early);
}

/// With a record of another's insertion, or without one. Refused if the inserter has read a version that was
/// overwritten.
#[test]
fn an_insertion_commits_above_readers_of_the_absence_or_is_refused() {
    for (placeholder, reads) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut stage = Stage::new();
        let mut inserts = stage.begin();
        if reads {
            stage.read(&mut inserts, X);
        }
        let mut gives_up = stage.begin();
        if placeholder {
            stage.insert(&mut gives_up, ABSENT);
        }
        assert_eq!(stage.look_and_change(ABSENT, X), None);
        abort(gives_up);
        stage.insert(&mut inserts, ABSENT);
        if reads {
            assert_eq!(stage.refuse(inserts), Reason::RecordChanged);
        } else {
            stage.commit(inserts);
        }
    }
}

/// A transaction whose insertion was undone relied on the absence: with its own placeholder, and with another's.
#[test]
fn an_insertion_commits_above_an_undone_one_or_is_refused() {
    for own in [false, true] {
        let mut stage = Stage::new();
        let mut inserts = stage.begin();
        stage.read(&mut inserts, X);
        let mut nothing = stage.begin();
        if !own {
            stage.insert(&mut inserts, ABSENT);
        }
        stage.insert(&mut nothing, ABSENT);
        nothing.writes.clear();
        assert!(nothing.worker.delete(&stage.bench.cells, Key::Word8(ABSENT)).is_ok_and(|row| row.is_some()));
        stage.change(&mut nothing, X);
        stage.commit(nothing);
        if own {
            stage.insert(&mut inserts, ABSENT);
        }
        assert_eq!(stage.refuse(inserts), Reason::RecordChanged);
    }
}

#[test]
fn an_insertion_below_a_reader_of_the_unlinked_record_is_refused() {
    let mut stage = Stage::new();
    let mut deletes = stage.begin();
    stage.delete(&mut deletes, Y);
    let (deleted, mut sweeper) = stage.end(deletes);
    assert!(deleted.is_ok());
    stage.bench.pass_time();
    sweeper.core().local.collect();
    let mut inserts = stage.begin();
    stage.read(&mut inserts, X);
    assert_eq!(stage.look_and_change(Y, X), None);
    sweeper.collect_garbage(usize::MAX);
    let pin = inserts.worker.core().local.pinned();
    assert!(stage.bench.cells.index.get(Key::Word8(Y), pin).is_err(), "the record is unlinked");
    stage.insert(&mut inserts, Y);
    assert_eq!(stage.refuse(inserts), Reason::RecordChanged);
}

/// Its own row becomes invisible once the transaction that linked the record takes it back (promise g).
#[test]
fn a_write_to_an_unlinked_record_fails_validation() {
    let stage = Stage::new();
    let mut gives_up = stage.begin();
    stage.insert(&mut gives_up, ABSENT);
    let mut fills = stage.begin();
    stage.insert(&mut fills, ABSENT);
    assert_eq!(fills.worker.validate(), Ok(()), "the placeholder is there");
    abort(gives_up);
    assert_eq!(stage.read(&mut fills, ABSENT), None, "its own row is invisible");
    stage.insert(&mut fills, ABSENT);
    assert!(fills.worker.validate().is_err(), "the transaction has two rows with one key");
    abort(fills);
}

/// A transaction may commit in a later epoch than the one that overwrote its reads. It would be earlier in the serial
/// order and later in the log.
#[test]
fn no_reader_commits_in_a_later_epoch_than_the_overwriter() {
    for (before, after, writes, commits) in
        [(false, false, true, true), (true, false, true, true), (false, true, true, false), (false, true, false, true)]
    {
        let mut stage = Stage::new();
        let mut reader = stage.begin();
        assert_eq!(stage.read(&mut reader, X), Some(10));
        let advance = |now: bool| {
            if now {
                stage.bench.environment.advance_epoch()
            }
        };
        advance(before);
        let mut writer = stage.begin();
        stage.change(&mut writer, X);
        let writer = stage.end(writer).0.expect("nothing conflicts");
        if after {
            stage.bench.environment.advance_epoch();
        }
        if writes {
            stage.change(&mut reader, Y);
        }
        let ended = stage.end(reader).0;
        assert_eq!(ended.is_ok(), commits, "{before} {after} {writes}");
        assert!(ended.is_err() || ended.is_ok_and(|tid| tid.epoch() <= writer.epoch()));
    }
}

/// Although no commit passed the timestamp that it drew.
#[test]
fn a_worker_draws_above_the_former_worker_with_its_number() {
    let stage = Stage::new();
    stage.bench.protocol.clock.told.store(1 << 40, Ordering::SeqCst);
    let mut first = stage.begin();
    let last = (0..3).map(|_| first.worker.attempt().locks.redraw(0)).max().expect("three");
    let worker = first.worker.core().local.worker();
    abort(first);
    let mut next = stage.begin();
    assert_eq!(next.worker.core().local.worker(), worker);
    assert!(next.worker.attempt().locks.timestamp() > last);
    abort(next);
}

#[test]
fn timestamps_rise_with_time_also_while_the_clock_stands_still_and_when_it_goes_back() {
    let mut stage = Stage::new();
    let clock = Arc::clone(&stage.bench.protocol.clock);
    // Hours ahead.
    let ahead = 1 << 40;
    for now in [ahead, ahead, ahead, ahead - 1, ahead - 1] {
        clock.told.store(now, Ordering::SeqCst);
        let before = stage.look(X).expect("it is there");
        // By one worker after another.
        stage.overwrite(X);
        assert_eq!(stage.look(X), Some(before + 1));
    }
    // No real clock does that: the timestamp was passed. Another transaction is open, so nothing is freed yet.
    let idle = stage.begin();
    clock.told.store(ahead + 1000, Ordering::SeqCst);
    let mut open = stage.begin();
    stage.change(&mut open, X);
    clock.told.store(ahead + 2000, Ordering::SeqCst);
    stage.commit(open);
    clock.told.store(ahead, Ordering::SeqCst);
    stage.bench.environment.advance_epoch();
    let mut behind = stage.begin();
    let error = stage.try_read(&mut behind, X).expect_err("the old version may be freed");
    assert_eq!(reason(error), Reason::RecordChanged);
    abort(behind);
    abort(idle);
}

/// A later snapshot sees a commit if no older transaction may still write. Idle workers and read-only
/// transactions do not matter.
#[test]
fn a_snapshot_sees_the_state_below_the_oldest_transaction_that_may_write() {
    let mut stage = Stage::new();
    let idle = stage.bench.worker();
    for round in 0..3 {
        let mut oldest = stage.begin();
        let before = [X, Y, Z].map(|key| stage.look(key));
        stage.overwrite(X);
        let mut deletes = stage.begin();
        stage.delete(&mut deletes, Y);
        stage.commit(deletes);
        let mut inserts = stage.begin();
        stage.insert(&mut inserts, ABSENT + round);
        stage.commit(inserts);
        let (mut older, long) = (stage.snapshot(), stage.snapshot());
        assert_eq!([X, Y, Z].map(|key| stage.read(&mut older, key)), before);
        assert_eq!(stage.read(&mut older, ABSENT + round), None);
        assert_eq!(stage.scan(&mut older).len(), 3 + round as usize);
        stage.change(&mut oldest, Z);
        stage.commit(oldest);
        assert_eq!(stage.read(&mut older, Z), before[2], "it was under way");
        stage.commit(older);
        let mut newer = stage.snapshot();
        let now = [X, Y, Z].map(|key| stage.read(&mut newer, key));
        assert_eq!(now, [before[0].map(|x| x + 1), None, before[2].map(|z| z + 1)]);
        assert_eq!(stage.scan(&mut newer).len(), 3 + round as usize);
        stage.commit(newer);
        let mut inserts = stage.begin();
        stage.insert(&mut inserts, Y);
        stage.commit(inserts);
        abort(long);
    }
    drop(idle);
}

/// The row was replaced, deleted, or deleted and inserted again before the snapshot began. The older transaction that
/// caused the early timestamp ends at once, and helpers and collectors do everything permitted.
#[test]
fn versions_replaced_before_a_snapshot_began_stay_until_it_ends() {
    for reborn in [false, true] {
        let mut stage = Stage::new();
        let oldest = stage.begin();
        for _ in 0..3 {
            stage.overwrite(X);
        }
        let mut deletes = stage.begin();
        stage.delete(&mut deletes, Y);
        let (deleted, mut sweeper) = stage.end(deletes);
        assert!(deleted.is_ok());
        if reborn {
            let mut inserts = stage.begin();
            stage.insert(&mut inserts, Y);
            stage.commit(inserts);
        }
        // Only the oldest transaction delays the grace period of the deletion.
        sweeper.core().local.collect();
        let mut old = stage.snapshot();
        abort(oldest);
        for _ in 0..40 {
            stage.bench.environment.advance_epoch();
            stage.overwrite(X);
            sweeper.core().local.collect();
            sweeper.collect_garbage(usize::MAX);
            let Some(kept) = &mut stage.kept else { unreachable!("it committed") };
            kept.core().local.collect();
        }
        assert_eq!((stage.read(&mut old, X), stage.read(&mut old, Y)), (Some(10), Some(10)));
        assert_eq!(stage.scan(&mut old), [10, 10, 10]);
        stage.commit(old);
        // Then the version is freed.
        stage.bench.pass_time();
        sweeper.core().local.collect();
        sweeper.collect_garbage(usize::MAX);
        let mut probe = stage.bench.worker();
        probe.core().local.enter();
        assert_eq!(stage.bench.cells.index.get(Key::Word8(Y), probe.core().local.pinned()).is_ok(), reborn);
        probe.core().local.leave();
    }
}

/// Versions that a later reader may need are kept, even without a present reader.
#[test]
fn a_snapshot_finds_versions_replaced_without_a_reader() {
    let mut stage = Stage::new();
    let oldest = stage.begin();
    stage.overwrite_by_epochs(X, 40);
    assert_eq!(stage.look_past(X), Some(10));
    abort(oldest);
    stage.bench.pass_time();
    assert_eq!(stage.look_past(X), Some(50));
}

/// A worker that is about to draw came online after the current round of the horizon began. Snapshots read
/// below all timestamps that it may draw.
#[test]
fn a_snapshot_beside_a_drawing_worker_finds_versions_replaced_since() {
    let mut stage = Stage::new();
    stage.bench.pass_time();
    let mut worker = stage.bench.worker();
    let drawing = worker.core().local.worker();
    stage.bench.protocol.under_way.begin(drawing);
    stage.overwrite_by_epochs(X, 40);
    assert_eq!(stage.look_past(X), Some(10));
    stage.bench.protocol.under_way.end(drawing);
}

/// The helper has run since the writer drew. The timestamp that it permits is below the writer's.
#[test]
fn no_snapshot_is_at_or_above_a_possible_writer() {
    let mut stage = Stage::new();
    let mut writer = stage.begin();
    for key in X..=Y {
        stage.change(&mut writer, key);
    }
    stage.overwrite(Z);
    stage.bench.pass_time();
    let mut old = stage.snapshot();
    assert_eq!(stage.read(&mut old, X), Some(10));
    stage.commit(writer);
    assert_eq!((stage.read(&mut old, Y), stage.read(&mut old, Z)), (Some(10), Some(10)));
    stage.commit(old);
}

/// At every step of a transaction, including its first access, a snapshot reads one of the two rows that it
/// changes, and afterwards both.
#[test]
fn a_snapshot_that_begins_during_a_transaction_sees_all_of_it_or_nothing() {
    use seriatim_base::thread::interrupt;
    use seriatim_txn::{NoRedo, Priority};

    let mut steps = 0;
    loop {
        let stage = Stage::new();
        let (mut writer, mut old) = (stage.bench.worker(), None);
        let begin = || {
            stage.bench.environment.advance_epoch();
            let mut open = stage.snapshot();
            let seen = stage.read(&mut open, X);
            old = Some((open, seen));
        };
        let transfer = || {
            writer.begin(Mode::ReadWrite, Priority::NONE);
            for key in X..=Y {
                assert!(stage.bench.change(&mut writer, key, |value| value + 1).is_ok());
            }
            assert!(writer.commit(&mut NoRedo).is_ok(), "a snapshot conflicts with no transaction");
        };
        let ((), interrupted) = interrupt(steps, begin, transfer);
        let Some((mut open, seen)) = old.filter(|_| interrupted) else { break };
        let both = (stage.read(&mut open, X), stage.read(&mut open, Y));
        assert!(both.0 == seen && both.0 == both.1, "step {steps}: {seen:?}, then {both:?}");
        abort(open);
        steps += 1;
    }
    assert!(steps > 10, "{steps}");
}

/// Although an older transaction is open: the snapshot waits, and then reads the present and validates.
#[test]
fn a_session_sees_its_own_commits() {
    for sees in [true, false] {
        let mut stage = Stage::new();
        let mut oldest = stage.begin();
        let mut open = stage.begin();
        stage.change(&mut open, X);
        let (committed, mut worker) = stage.end(open);
        assert!(committed.is_ok());
        if sees {
            let place = worker.place();
            worker.come_after(place);
        }
        let mut reads = stage.open_with(worker, Mode::ReadOnly);
        assert_eq!(stage.read(&mut reads, X), Some(if sees { 11 } else { 10 }));
        stage.change(&mut oldest, Y);
        stage.commit(oldest);
        // The reader of the present is overtaken, like any other.
        assert_eq!(stage.try_read(&mut reads, Y), Ok(Some(if sees { 11 } else { 10 })));
        let (ended, mut worker) = stage.end(reads);
        assert!(ended.is_ok());
        // No older transaction is open any more.
        let place = worker.place();
        worker.come_after(place);
        let mut reads = stage.open_with(worker, Mode::ReadOnly);
        stage.overwrite(X);
        assert_eq!((stage.read(&mut reads, X), stage.read(&mut reads, Y)), (Some(11), Some(11)));
        stage.commit(reads);
    }
}

/// While a row is inserted over a deletion, the record does not store the time of the deletion. A snapshot
/// waits for that long, and no longer.
#[test]
fn a_deletion_stays_visible_while_a_row_is_inserted_over_it() {
    let mut stage = Stage::new();
    let mut deletes = stage.begin();
    stage.delete(&mut deletes, X);
    let x = deletes.worker.seen().record.expect("a row is of a record");
    stage.commit(deletes);
    let mut snapshot = stage.snapshot();
    let mut inserts = stage.begin();
    let (at, layout) = (inserts.worker.attempt().locks.timestamp(), &stage.bench.cells.record_layout);
    let tid_word = record_header::tid_word(layout, x);
    let free = TidWord(tid_word.load(Ordering::Relaxed));
    tid_word.store(free.locked().0, Ordering::Release);
    assert_eq!(stage.read(&mut snapshot, X), None, "the record is locked, and no version is pending");
    let before = versions::pend(layout, x, at);
    let read = |snapshot: &mut Open| stage.bench.read(&mut snapshot.worker, X);
    assert_eq!(read(&mut snapshot), Err(OpError::Wait), "the snapshot looks again, with a bound");
    let mut scan = Scan::default();
    let scanned =
        stage.bench.cells.index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut scan.cursor);
    scanned.expect("an ordered table");
    let mut next = || snapshot.worker.scan_next(&stage.bench.cells, &mut scan, ColumnSet::ALL);
    assert_eq!(next(), Err(OpError::Wait));
    versions::unpend(layout, x, before);
    let row = next().expect("the deletion is known again").expect("another row");
    assert_eq!(stage.bench.get(row), 10);
    assert!(
        next().is_ok_and(|row| row.is_some()) && next() == Ok(None),
        "the record was looked at again, and passed once"
    );
    assert_eq!(read(&mut snapshot), Ok(None));
    tid_word.store(free.0, Ordering::Release);
    [snapshot, inserts].into_iter().for_each(abort);
}

/// Repeated replacement beside an idle worker and changing snapshots takes no more memory.
#[test]
fn memory_is_bounded_beside_snapshots() {
    let mut stage = Stage::new();
    let idle = stage.bench.worker();
    let mut sizes = Vec::new();
    for round in 0..600 {
        stage.bench.environment.advance_epoch();
        let mut snapshot = stage.snapshot();
        stage.overwrite(X);
        let mut deletes = stage.begin();
        stage.delete(&mut deletes, Y);
        stage.commit(deletes);
        let mut inserts = stage.begin();
        stage.insert(&mut inserts, Y);
        stage.commit(inserts);
        assert!(stage.read(&mut snapshot, Y).is_some());
        abort(snapshot);
        stage.history.transactions.clear();
        if let Some(kept) = &mut stage.kept {
            kept.core().local.collect();
            kept.collect_garbage(usize::MAX);
        }
        if round % 100 == 99 {
            sizes.push(stage.bench.environment.memory.in_use_bytes());
        }
    }
    assert!(sizes[5] <= sizes[1] * 2, "{sizes:?}");
    drop(idle);
}

/// An insertion that was undone is noted as read. The record may get versions, whose headers are behind their rows.
#[test]
fn an_insertion_that_was_undone_takes_no_row_for_a_header() {
    let bench = Bench::<Cicada>::open(HtmMode::Absent, &[1]);
    let begin = || {
        let mut worker = bench.worker();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let attempt = worker.attempt();
        attempt.locks.draw(&attempt.base.core);
        worker
    };
    let insert = |worker: &mut Worker<State>, value| {
        let staged = worker.stage(&bench.cells).expect("memory");
        bench.set(staged.row, value);
        assert_eq!(worker.insert(&bench.cells, Key::Word8(ABSENT), staged, OnExists::Refuse), Ok(Inserted::New));
    };
    let (mut early, mut late) = (begin(), begin());
    let savepoint = early.savepoint();
    insert(&mut early, 1);
    early.rollback_to(savepoint);
    bench.change(&mut early, X, |value| value + 1).expect("no conflict");
    // As a timestamp it would be later than all.
    insert(&mut late, -1);
    assert!(matches!(late.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    assert!(matches!(early.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    assert_eq!(bench.state(&[X, ABSENT]), [2, -1]);
}
