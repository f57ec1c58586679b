//! When additions are published, and what becomes of those that cannot be.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use seriatim_base::{Epoch, Tid, thread};
use seriatim_catalog::{ColumnDef, ColumnId, ColumnSet, ColumnType, ColumnUse, Key};
use seriatim_store::Direction;
use seriatim_txn::{
    Added, Addition, Before, Inserted, Mode, NoRedo, OnExists, Outcome, Priority, Protocol, Redo, RowPtr, Scan, Table,
    Worker as _,
};

use super::DbxTc;
use crate::common::{Bench, modes};
use crate::shared::{record_header, snapshot_numbered, versions};

type Worker = <DbxTc as Protocol>::Worker;

const SUM: ColumnId = ColumnId(1);
const OTHER: ColumnId = ColumnId(2);

/// Cells of these sums, of which procedures change `other` and add to the sums.
fn benches(values: &[i64]) -> impl Iterator<Item = Bench<DbxTc>> {
    benches_with(values, [("snapshot_wanted_min", 0), ("late_period", 0)])
}

/// As [`benches`]; snapshots are offered while so many readers want them.
fn benches_wanting(values: &[i64], wanted: u64) -> impl Iterator<Item = Bench<DbxTc>> {
    benches_with(values, [("snapshot_wanted_min", wanted), ("late_period", 0)])
}

fn benches_with(values: &[i64], options: [(&str, u64); 2]) -> impl Iterator<Item = Bench<DbxTc>> {
    modes().into_iter().map(move |mode| {
        let further = [ColumnDef::new("other", ColumnType::I64), ColumnDef::new("fixed", ColumnType::U64).immutable()];
        let bench = Bench::<DbxTc>::with_options(mode, &["id"], further, options).with_rows(values);
        bench.cells.commuting.set(
            ColumnSet::of(SUM),
            [SUM, OTHER].into_iter().collect::<ColumnSet>().complement(),
            ColumnSet::EMPTY,
        );
        bench
    })
}

/// A transaction of a procedure.
fn procedure(bench: &Bench<DbxTc>) -> Worker {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker.pieces().expect("it has them").follow();
    worker
}

/// The same, with updates that can continue from newer versions.
fn procedure_with_notes(bench: &Bench<DbxTc>) -> Worker {
    let mut worker = bench.worker();
    worker.attempt().bases.encourage();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker.pieces().expect("it has them").follow();
    worker
}

fn try_to_add(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64, units: i64) -> Added {
    // SAFETY: the column's type.
    let addition = unsafe { Addition::new(SUM, ColumnType::I64, units.into()) };
    worker.add(&bench.cells, Key::Word8(id), addition).expect("it runs alone")
}

fn add(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64, units: i64) {
    assert_eq!(try_to_add(bench, worker, id, units), Added::Done);
}

/// Uses a column that others change.
fn touch(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64) {
    let updating = worker.update(&bench.cells, Key::Word8(id), ColumnUse::from(ColumnSet::of(OTHER)));
    assert!(updating.expect("it runs alone").is_some());
}

/// The key and TID of each write.
#[derive(Default)]
struct Written(Vec<(u64, Tid)>);

impl Redo for Written {
    fn write(&mut self, _: &Table, key: Key<'_>, tid: Tid, _: Option<Before>, _: Option<RowPtr>) {
        let Key::Word8(key) = key else { panic!("a key of one word") };
        self.0.push((key, tid));
    }
}

/// The TIDs of the writes, by key; the last is the transaction's.
fn commit(worker: &mut Worker) -> Vec<Tid> {
    let mut written = Written::default();
    let Ok(Outcome::Committed(tid)) = worker.commit(&mut written) else { panic!("no conflict") };
    assert_eq!(written.0.iter().map(|(_, tid)| *tid).max(), Some(tid));
    written.0.sort_unstable();
    written.0.into_iter().map(|(_, tid)| tid).collect()
}

#[test]
fn additions_of_procedures_are_published_after_the_rest_in_its_epoch() {
    for bench in benches(&[0, 0, 0]) {
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, 5);
        add(&bench, &mut worker, 2, 7);
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        assert!(tids[0] < tids[1] && tids[0] < tids[2] && tids[1] != tids[2], "{tids:?}");
        assert!(tids.iter().all(|tid| tid.epoch() == tids[0].epoch()));
        assert_eq!(bench.state(&[0, 1, 2]), [0, 5, 7]);
        // Transactions that are no procedures publish at once.
        worker.begin(Mode::ReadWrite, Priority::NONE);
        add(&bench, &mut worker, 1, 5);
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        assert!(tids.iter().all(|tid| *tid == tids[0]), "{tids:?}");
        assert_eq!(bench.state(&[0, 1, 2]), [0, 10, 7]);
    }
}

/// The one word may have been read while a chain was under way, and what it began with seen by others before.
#[test]
fn a_transaction_outside_procedures_that_read_one_row_validates_it() {
    for bench in benches(&[0]) {
        let (mut worker, mut chain) = (bench.worker(), procedure(&bench));
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert!(worker.read(&bench.cells, Key::Word8(0), ColumnSet::of(SUM)).is_ok_and(|row| row.is_some()));
        add(&bench, &mut chain, 0, 5);
        commit(&mut chain);
        assert!(worker.commit(&mut Written::default()).is_err(), "the sum is another");
        worker.abort();
    }
}

/// A thread that waits for the end of a window waits for few of them.
#[test]
fn many_additions_are_published_with_the_rest() {
    let rows = super::LATE_MAX.default + 1;
    for (adds, late) in [(rows - 1, true), (rows, false)] {
        for bench in benches(&vec![0; rows as usize + 1]) {
            let mut worker = procedure(&bench);
            (0..adds).for_each(|id| add(&bench, &mut worker, id, 5));
            touch(&bench, &mut worker, rows);
            let tids = commit(&mut worker);
            assert_eq!(tids.iter().any(|tid| *tid != tids[0]), late, "{adds}");
            assert!((0..adds).all(|id| bench.state(&[id]) == [5]));
        }
    }
}

#[test]
fn a_procedure_that_only_adds_publishes_its_last_addition_with_nothing() {
    for bench in benches(&[1]) {
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 0, 5);
        assert_eq!(commit(&mut worker).len(), 1);
        assert_eq!(bench.state(&[0]), [6]);
    }
}

#[test]
fn sums_that_others_added_to_meanwhile_are_added_to() {
    for bench in benches(&[0, 0, 0]) {
        let (mut worker, mut other) = (procedure(&bench), procedure(&bench));
        [1, 2].into_iter().for_each(|id| add(&bench, &mut worker, id, 5));
        touch(&bench, &mut worker, 0);
        add(&bench, &mut other, 1, 100);
        commit(&mut other);
        let tids = commit(&mut worker);
        assert!(tids[0] < tids[1] && tids[0] < tids[2], "{tids:?}");
        assert_eq!(bench.state(&[0, 1, 2]), [0, 105, 5]);
    }
}

/// Continues after its report of this key when a message says so.
struct Held {
    key: u64,
    reached: mpsc::Sender<()>,
    released: mpsc::Receiver<()>,
}

impl Redo for Held {
    fn write(&mut self, _: &Table, key: Key<'_>, _: Tid, _: Option<Before>, _: Option<RowPtr>) {
        if key == Key::Word8(self.key) {
            self.reached.send(()).expect("the test waits for it");
            self.released.recv().expect("the test goes on");
        }
    }
}

/// Commits `worker`, which publishes `key` and is held there; has `meanwhile` run meanwhile: what that answers, and
/// whether it had to wait. The commit continues only after `meanwhile` has reported its reads.
fn amid<T: Send>(worker: &mut Worker, key: u64, meanwhile: impl FnOnce(&dyn Fn()) -> T + Send) -> (T, bool) {
    let ((reached, is_reached), (release, released)) = (mpsc::channel(), mpsc::channel());
    let (says, has_seen) = mpsc::channel();
    thread::scope(|scope| {
        let commits = scope
            .spawn(move || matches!(worker.commit(&mut Held { key, reached, released }), Ok(Outcome::Committed(_))));
        is_reached.recv().expect("it publishes the key");
        let other = scope.spawn(move || meanwhile(&|| says.send(()).expect("the test waits for it")));
        has_seen.recv().expect("it says so");
        // A caller that need not wait has finished by then.
        for _ in 0..50 {
            if !other.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let waits = !other.is_finished();
        release.send(()).expect("it is held");
        assert!(commits.join().expect("no panic"), "no conflict");
        (other.join().expect("no panic"), waits)
    })
}

/// Adds to a sum of row 1. It is half published when row 0 is one more.
fn chain(bench: &Bench<DbxTc>) -> Worker {
    let mut worker = procedure(bench);
    add(bench, &mut worker, 1, 5);
    bench.change(&mut worker, 0, |value| value + 1).expect("it runs alone");
    worker
}

/// Reads both rows of a chain.
fn both(bench: &Bench<DbxTc>, worker: &mut Worker) -> [i64; 2] {
    [0, 1].map(|id| bench.read(worker, id).expect("it runs alone").expect("it is there"))
}

fn shows_all_of_it(bench: &Bench<DbxTc>, has_seen: &dyn Fn()) -> bool {
    has_seen();
    let mut reader = bench.worker();
    reader.begin(Mode::ReadOnly, Priority::NONE);
    both(bench, &mut reader) == [1, 5]
}

/// Whether a transaction that is none of the set, and has read half of the chain, is refused.
fn is_refused(bench: &Bench<DbxTc>, has_seen: &dyn Fn(), end: impl FnOnce(&mut Worker) -> bool) -> bool {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(both(bench, &mut worker), [1, 0]);
    has_seen();
    let is_refused = !end(&mut worker);
    worker.abort();
    is_refused
}

#[test]
fn a_transaction_that_must_not_see_half_of_a_chain_waits_for_its_end() {
    type Options = [(&'static str, u64); 2];
    type Meanwhile = fn(&Bench<DbxTc>, &dyn Fn()) -> bool;
    const OFFERED: Options = [("snapshot_wanted_min", 0), ("late_period", 0)];
    const WANTED: Options = [("snapshot_wanted_min", 2), ("late_period", 0)];
    const PRESENT: Options = [("snapshot_interval_ms", 0), ("late_period", 0)];
    const DURABLE: Options = [("durable_snapshots", 1), ("late_period", 0)];
    let closers: [(&str, Options, Meanwhile); 11] = [
        ("a validation", OFFERED, |bench, seen| is_refused(bench, seen, |worker| worker.validate().is_ok())),
        ("a commit that reads", OFFERED, |bench, seen| {
            is_refused(bench, seen, |worker| worker.commit(&mut NoRedo).is_ok())
        }),
        ("a commit that writes", OFFERED, |bench, seen| {
            is_refused(bench, seen, |worker| {
                touch(bench, worker, 2);
                worker.commit(&mut NoRedo).is_ok()
            })
        }),
        ("an addition that finds no room", OFFERED, |bench, seen| {
            seen();
            let mut worker = procedure_with_notes(bench);
            add(bench, &mut worker, 1, i64::MAX / 4);
            commit(&mut worker);
            bench.state(&[1]) == [5 + i64::MAX / 4]
        }),
        ("the end of an epoch", OFFERED, |bench, seen| {
            seen();
            bench.environment.epochs.advance(&bench.environment.htm) == Epoch(2)
        }),
        ("the end of an epoch that makes a snapshot", DURABLE, |bench, seen| {
            seen();
            bench.environment.epochs.advance(&bench.environment.htm);
            both(bench, &mut reader(bench)) == [1, 5]
        }),
        ("a snapshot that ends an epoch", DURABLE, shows_all_of_it),
        ("a snapshot of the present", PRESENT, shows_all_of_it),
        ("a snapshot where none is offered", WANTED, shows_all_of_it),
        ("a snapshot that has more than is offered", OFFERED, shows_all_of_it),
        ("the next snapshot", OFFERED, |bench, seen| {
            seen();
            bench.environment.advance_snapshot();
            both(bench, &mut reader(bench)) == [1, 5]
        }),
    ];
    for (who, options, meanwhile) in closers {
        for bench in benches_with(&[0, 0, 0], options) {
            let (is_right, waits) = amid(&mut chain(&bench), 0, |has_seen| meanwhile(&bench, has_seen));
            assert!(waits, "{who} did not wait");
            assert!(is_right, "{who} met half of it");
        }
    }
}

/// The value is at the very end of where there is room, and the amount the largest.
#[test]
fn each_worker_may_add_its_share_at_a_time_to_a_sum_that_has_room() {
    const WORKERS: i64 = 16;
    const QUARTER: i64 = i64::MAX / 2;
    const SHARE: i64 = QUARTER / WORKERS;
    let is_late = |value, amount| {
        let Some(bench) = benches(&[0, value]).next() else { return false };
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, amount);
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        tids[0] != tids[1]
    };
    let (high, low) = (i64::MAX - QUARTER, i64::MIN + QUARTER);
    assert!(is_late(high, SHARE) && !is_late(high + 1, SHARE) && !is_late(high, SHARE + 1));
    assert!(is_late(low, -SHARE) && !is_late(low - 1, -SHARE) && !is_late(low, -SHARE - 1));
    /// Has others find the same room, one in the other, before it adds.
    struct Nested<'b>(&'b Bench<DbxTc>, i64);
    impl Redo for Nested<'_> {
        fn write(&mut self, _: &Table, key: Key<'_>, _: Tid, _: Option<Before>, _: Option<RowPtr>) {
            let Nested(bench, others) = *self;
            if key == Key::Word8(0) && others > 0 {
                let mut worker = procedure(bench);
                add(bench, &mut worker, 1, SHARE);
                touch(bench, &mut worker, 0);
                assert!(matches!(worker.commit(&mut Nested(bench, others - 1)), Ok(Outcome::Committed(_))));
            }
        }
    }
    for bench in benches(&[0, high]) {
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, SHARE);
        touch(&bench, &mut worker, 0);
        assert!(matches!(worker.commit(&mut Nested(&bench, WORKERS - 1)), Ok(Outcome::Committed(_))));
        drop(worker);
        assert_eq!(bench.state(&[1]), [high + WORKERS * SHARE]);
    }
}

/// Near the end of the range an addition of each worker might not fit.
#[test]
fn sums_without_room_are_published_with_the_rest() {
    for bench in benches(&[0, i64::MAX - 10, 0]) {
        let mut worker = procedure(&bench);
        [1, 2].into_iter().for_each(|id| add(&bench, &mut worker, id, 5));
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        assert!(tids.iter().all(|tid| *tid == tids[0]), "{tids:?}");
        // Downwards there is room.
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, -5);
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        assert!(tids[0] < tids[1], "{tids:?}");
        let mut worker = procedure(&bench);
        assert_eq!(try_to_add(&bench, &mut worker, 1, 11), Added::Overflow);
        worker.abort();
        // Others could add as much at a time.
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 2, i64::MAX / 4);
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        assert_eq!(tids[0], tids[1], "more than its share");
        assert_eq!(bench.state(&[0, 1, 2]), [0, i64::MAX - 10, 5 + i64::MAX / 4]);
    }
}

#[test]
fn rows_that_are_added_to_twice_are_published_with_the_rest() {
    for bench in benches(&[0, 0]) {
        let mut worker = procedure(&bench);
        [5, 6].into_iter().for_each(|units| add(&bench, &mut worker, 1, units));
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        assert_eq!(tids[0], tids[1]);
        assert_eq!(bench.state(&[0, 1]), [0, 11]);
    }
}

/// That it would have left its range depends on the sum.
#[test]
fn a_procedure_that_met_an_overflow_publishes_at_once() {
    for bench in benches(&[0, 5]) {
        let mut worker = procedure(&bench);
        assert_eq!(try_to_add(&bench, &mut worker, 1, i64::MAX), Added::Overflow);
        touch(&bench, &mut worker, 0);
        let tids = commit(&mut worker);
        assert_eq!(tids[0], tids[1]);
        assert_eq!(bench.state(&[1]), [5]);
    }
}

#[test]
fn rolled_back_writes_are_not_published() {
    for bench in benches(&[0, 0, 0]) {
        let mut worker = procedure(&bench);
        touch(&bench, &mut worker, 0);
        let savepoint = worker.savepoint();
        add(&bench, &mut worker, 1, 5);
        worker.rollback_to(savepoint);
        add(&bench, &mut worker, 2, 5);
        assert_eq!(commit(&mut worker).len(), 2);
        assert_eq!(bench.state(&[0, 1, 2]), [0, 0, 5]);
    }
}

/// Rows are deleted by what is no procedure of the set.
#[test]
fn an_addition_to_a_row_that_was_deleted_meanwhile_refutes_all_of_it() {
    for bench in benches(&[0, 0]) {
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, 5);
        bench.change(&mut worker, 0, |value| value + 1).expect("it runs alone");
        let mut other = bench.worker();
        other.begin(Mode::ReadWrite, Priority::NONE);
        assert!(other.delete(&bench.cells, Key::Word8(1)).expect("it runs alone").is_some());
        assert!(matches!(other.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert!(worker.commit(&mut NoRedo).is_err(), "its row is gone");
        worker.abort();
        assert_eq!(bench.state(&[0]), [0], "nothing of it was visible");
    }
}

#[test]
fn sums_that_procedures_no_longer_agree_on_are_published_with_the_rest() {
    for bench in benches(&[0, 0]) {
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, 5);
        touch(&bench, &mut worker, 0);
        bench.cells.commuting.set(ColumnSet::EMPTY, ColumnSet::EMPTY, ColumnSet::EMPTY);
        let tids = commit(&mut worker);
        assert_eq!(tids[0], tids[1]);
    }
}

/// Of a row that it adds to a procedure looks at what others change.
#[test]
fn reads_of_a_row_that_is_added_to_are_validated() {
    for bench in benches(&[0, 0]) {
        let (mut worker, mut other) = (procedure(&bench), procedure(&bench));
        add(&bench, &mut worker, 1, 5);
        assert!(worker.read(&bench.cells, Key::Word8(1), ColumnSet::of(OTHER)).is_ok_and(|row| row.is_some()));
        touch(&bench, &mut worker, 0);
        touch(&bench, &mut other, 1);
        commit(&mut other);
        assert!(worker.commit(&mut NoRedo).is_err(), "it was changed");
        worker.abort();
    }
}

/// A conflict of the first piece leaves nothing behind, and the worker as it was.
#[test]
fn a_chain_whose_first_piece_is_refuted_leaves_nothing() {
    for bench in benches(&[0, 0]) {
        let (mut worker, mut other) = (procedure(&bench), procedure(&bench));
        add(&bench, &mut worker, 1, 5);
        bench.change(&mut worker, 0, |value| value + 1).expect("it runs alone");
        bench.change(&mut other, 0, |value| value + 10).expect("it runs alone");
        commit(&mut other);
        assert!(worker.commit(&mut NoRedo).is_err(), "what it changed was changed");
        worker.abort();
        assert_eq!(bench.state(&[0, 1]), [10, 0]);
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, 5);
        touch(&bench, &mut worker, 0);
        commit(&mut worker);
        assert_eq!(bench.state(&[0, 1]), [10, 5]);
    }
}

/// A snapshot that begins after a chain shows all of it, and one that began before shows nothing.
#[test]
fn snapshots_show_all_of_a_chain_or_nothing() {
    for bench in benches(&[0, 0]) {
        let mut before = bench.worker();
        before.begin(Mode::ReadOnly, Priority::NONE);
        let mut worker = procedure(&bench);
        add(&bench, &mut worker, 1, 5);
        bench.change(&mut worker, 0, |value| value + 1).expect("it runs alone");
        commit(&mut worker);
        let mut after = bench.worker();
        after.begin(Mode::ReadOnly, Priority::NONE);
        for (reader, shown) in [(&mut before, [0, 0]), (&mut after, [1, 5])] {
            let seen = [0, 1].map(|id| bench.read(reader, id).expect("a snapshot").expect("it is there"));
            assert_eq!(seen, shown);
            assert!(matches!(reader.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        }
    }
}

/// Only an epoch ends: no snapshot is made.
fn end_epoch(bench: &Bench<DbxTc>) {
    let environment = &bench.environment;
    environment.memory.advance_horizon(environment.epochs.advance(&environment.htm));
}

/// A reader of the newest snapshot that was made.
fn reader(bench: &Bench<DbxTc>) -> Worker {
    let mut reader = bench.worker();
    reader.core().includes = Epoch(0);
    reader.begin(Mode::ReadOnly, Priority::NONE);
    reader
}

fn delete(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64) {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    assert!(worker.delete(&bench.cells, Key::Word8(id)).is_ok_and(|row| row.is_some()));
    commit(worker);
}

fn insert(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64, value: i64) {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    let staged = worker.stage(&bench.cells).expect("memory");
    bench.set(staged.row, value);
    assert_eq!(worker.insert(&bench.cells, Key::Word8(id), staged, OnExists::Refuse), Ok(Inserted::New));
    commit(worker);
}

fn change(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64, value: i64) {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    bench.change(worker, id, |_| value).expect("it runs alone");
    commit(worker);
}

/// The rows below `ids` that it shows by their keys, and the sum of those that a scan shows.
fn shown(bench: &Bench<DbxTc>, reader: &mut Worker, ids: u64) -> (Vec<Option<i64>>, Vec<i64>) {
    let by_key = (0..ids).map(|id| bench.read(reader, id).expect("a snapshot does not fail")).collect();
    let (mut scan, mut scanned) = (Scan::default(), Vec::new());
    let (low, high) = (Bound::Included(Key::Word8(0)), Bound::Excluded(Key::Word8(ids)));
    bench.cells.index.scan(low, high, Direction::Forward, &mut scan.cursor).expect("an ordered table");
    while let Some(row) = reader.scan_next(&bench.cells, &mut scan, ColumnSet::ALL).expect("as above") {
        scanned.push(bench.get(row));
    }
    (by_key, scanned)
}

/// Rows are changed, deleted, unlinked and inserted again after a snapshot was made. Later readers see them as they
/// were in it, in any epoch, whatever is collected meanwhile.
#[test]
fn an_eventual_snapshot_shows_what_was_there_when_it_was_made() {
    let values = [10, 11, 12, 13];
    // Also after a time without offers, in which nothing was kept.
    for (bench, wanted) in
        benches(&values).map(|bench| (bench, 0)).chain(benches_wanting(&values, 2).map(|bench| (bench, 2)))
    {
        bench.environment.advance_epoch();
        (0..4).for_each(|_| bench.environment.advance_snapshot());
        (0..wanted).for_each(|_| assert_eq!(bench.read(&mut reader(&bench), 0), Ok(Some(10))));
        bench.environment.advance_snapshot();
        let mut worker = bench.worker();
        for round in 0..20 {
            change(&bench, &mut worker, 0, 100 + round);
            end_epoch(&bench);
        }
        delete(&bench, &mut worker, 1);
        delete(&bench, &mut worker, 2);
        for _ in 0..4 {
            end_epoch(&bench);
            worker.collect_garbage(usize::MAX);
            worker.core().local.collect();
        }
        let pin_of = |worker: &mut Worker| {
            worker.core().local.enter();
            let linked = bench.cells.index.get(Key::Word8(1), worker.core().local.pinned()).is_ok();
            worker.core().local.leave();
            linked
        };
        assert!(!pin_of(&mut worker), "it is unlinked, so that others do not walk over it");
        insert(&bench, &mut worker, 2, 22);
        insert(&bench, &mut worker, 4, 44);
        let before = (vec![Some(10), Some(11), Some(12), Some(13), None], vec![10, 11, 12, 13]);
        let mut early = reader(&bench);
        assert_eq!(shown(&bench, &mut early, 5), before);
        // Made anew, or withdrawn.
        bench.environment.advance_epoch();
        for _ in 0..4 {
            bench.environment.advance_snapshot();
            worker.core().local.collect();
        }
        assert_eq!(shown(&bench, &mut early, 5), before, "it is kept while it is read");
        let now = (vec![Some(119), None, Some(22), Some(13), Some(44)], vec![119, 22, 13, 44]);
        assert_eq!(shown(&bench, &mut reader(&bench), 5), now);
        assert!(matches!(early.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    }
}

/// The report of an absence is no deletion that a later version followed.
#[test]
fn a_key_that_was_deleted_twice_has_no_known_time_of_its_deletion() {
    for bench in benches(&[10, 11]) {
        let mut worker = bench.worker();
        for value in 0..2 {
            delete(&bench, &mut worker, 1);
            for _ in 0..3 {
                worker.core().local.collect();
                worker.collect_garbage(usize::MAX);
            }
            if value == 0 {
                insert(&bench, &mut worker, 1, value);
            }
        }
        bench.environment.epochs.advance_snapshot(&bench.environment.htm, true);
        let mut reader = reader(&bench);
        assert_eq!(bench.read(&mut reader, 1), Ok(None));
        assert_eq!((reader.seen().record, reader.seen().absent), (None, true));
    }
}

/// Its own, after a commit.
#[test]
fn a_reader_that_wants_an_epoch_is_shown_it_and_others_after_it_are_too() {
    for bench in benches(&[0]) {
        let mut worker = bench.worker();
        bench.environment.advance_epoch();
        change(&bench, &mut worker, 0, 7);
        let value = |reader: &mut Worker| bench.read(reader, 0).expect("a snapshot does not fail");
        let mut stale = reader(&bench);
        assert_eq!(value(&mut stale), Some(0));
        let mut own = bench.worker();
        own.core().includes = bench.environment.epochs.current();
        own.begin(Mode::ReadOnly, Priority::NONE);
        assert_eq!(value(&mut own), Some(7));
        assert_eq!(value(&mut reader(&bench)), Some(7), "what one made, others take");
        assert_eq!(value(&mut stale), Some(0));
    }
}

/// Versions that a record has beside the newest.
fn older_versions(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64) -> usize {
    worker.core().local.enter();
    let record = bench.cells.index.get(Key::Word8(id), worker.core().local.pinned()).expect("it is linked");
    let newest = record_header::row_version(&bench.cells.record_layout, record).load(Ordering::Acquire) as usize;
    let mut versions = 0;
    // SAFETY: online, and nothing was let go of since the oldest snapshot that was made: the chain ends at
    // what was there then.
    unsafe {
        versions::find(bench.cells.record_layout.row, newest, |version: &snapshot_numbered::VersionHeader| {
            versions += 1;
            version.kept.snapshot() <= 1
        })
    };
    worker.core().local.leave();
    versions - 1
}

/// Whatever is committed, and in how many epochs, a record has one older version for each snapshot that was
/// made, and memory has no more.
#[test]
fn writers_keep_one_version_of_a_record_for_each_snapshot() {
    for bench in benches(&[0, 0]) {
        let (mut worker, mut bytes) = (bench.worker(), 0);
        for snapshots in 0..4 {
            for round in 0..1_000 {
                change(&bench, &mut worker, 0, round);
                if round % 100 == 0 {
                    end_epoch(&bench);
                }
            }
            (0..4).for_each(|_| worker.core().local.collect());
            assert_eq!(older_versions(&bench, &mut worker, 0), snapshots);
            let now = bench.environment.memory.in_use_bytes();
            assert!(snapshots < 2 || now < bytes + (4 << 10), "{bytes} bytes were in use, and now {now}");
            bytes = now;
            // Older snapshots are not declared as unread.
            bench.environment.epochs.advance_snapshot(&bench.environment.htm, true);
        }
        bench.environment.advance_epoch();
        for _ in 0..4 {
            bench.environment.advance_snapshot();
            worker.core().local.collect();
        }
        assert!(bench.environment.memory.in_use_bytes() <= bytes, "what no snapshot needs is let go of");
    }
}

/// Makes rounds of a hundred changes, and calls `ended` with the number of each. From the fourth on, no round leaves
/// more memory in use than the one before. A reader sees the last.
fn keeps_no_more_each_turn(bench: &Bench<DbxTc>, ended: impl Fn(i64)) {
    let (mut worker, mut bytes) = (bench.worker(), usize::MAX);
    for turn in 0..10 {
        for round in 0..100 {
            change(bench, &mut worker, 0, 100 * turn + round);
            ended(round);
        }
        (0..4).for_each(|_| worker.core().local.collect());
        let now = bench.environment.memory.in_use_bytes();
        assert!(turn < 4 || now <= bytes, "{bytes} bytes were in use, and now {now}");
        bytes = now;
        assert_eq!(bench.read(&mut reader(bench), 0), Ok(Some(100 * turn + 99)));
    }
}

/// Where no reader wants a snapshot none is made, and what was replaced goes after its grace period. The one
/// reader of a turn is not enough for an offer.
#[test]
fn while_no_snapshots_are_wanted_writers_keep_nothing_for_them() {
    for bench in benches_wanting(&[0, 0], 2) {
        keeps_no_more_each_turn(&bench, |round| {
            if round == 99 {
                bench.environment.advance_epoch();
            }
        });
    }
}

/// Each end of an epoch makes a snapshot, for which writers keep a version until there are newer ones.
#[test]
fn versions_that_only_older_durable_snapshots_need_are_released() {
    for bench in benches_with(&[0, 0], [("durable_snapshots", 1), ("late_period", 0)]) {
        keeps_no_more_each_turn(&bench, |_| bench.environment.end_epoch());
    }
}

/// Epochs end meanwhile, also between a commit's read of S and its read of E.
#[test]
fn a_version_has_the_number_of_its_epoch_where_snapshots_are_durable() {
    for bench in benches_with(&[0, 0], [("durable_snapshots", 1), ("late_period", 0)]) {
        let (done, mut worker) = (AtomicBool::new(false), bench.worker());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    bench.environment.end_epoch();
                    (0..100).for_each(|_| _ = bench.environment.epochs.advance(&bench.environment.htm));
                }
            });
            for round in 0..20_000 {
                change(&bench, &mut worker, 0, round);
                worker.core().local.enter();
                let record = bench.cells.index.get(Key::Word8(0), worker.core().local.pinned()).expect("it is linked");
                let newest = record_header::row_version(&bench.cells.record_layout, record).load(Ordering::Acquire);
                // SAFETY: online, and no other thread changes it.
                let version =
                    unsafe { snapshot_numbered::VersionHeader::of(bench.cells.record_layout.row, newest as usize) };
                assert_eq!(version.kept.snapshot(), version.tid.epoch().0, "round {round}");
                worker.core().local.leave();
            }
            done.store(true, Ordering::Relaxed);
        });
        // A snapshot with the number of an epoch shows what was committed in it, and nothing later.
        let epoch = bench.environment.epochs.current();
        change(&bench, &mut worker, 0, -1);
        bench.environment.end_epoch();
        change(&bench, &mut worker, 0, -2);
        let mut reader = reader(&bench);
        assert_eq!(bench.read(&mut reader, 0), Ok(Some(-1)));
        assert_eq!(reader.core().taken.map(|taken| (taken.number, taken.whole)), Some((epoch.0, epoch)));
    }
}

/// Readers of an offer that is renewed before the epoch has ended follow no version that was deleted and freed while
/// nothing was kept.
#[test]
fn versions_freed_between_two_offers_are_not_followed() {
    for bench in benches_wanting(&[10, 11, 12], 2) {
        let mut worker = bench.worker();
        let wanted = || (0..2).for_each(|_| assert_eq!(bench.read(&mut reader(&bench), 0), Ok(Some(10))));
        bench.environment.advance_epoch();
        wanted();
        bench.environment.advance_snapshot();
        delete(&bench, &mut worker, 1);
        for _ in 0..4 {
            worker.core().local.collect();
            worker.collect_garbage(usize::MAX);
        }
        worker.core().local.enter();
        let linked = bench.cells.index.get(Key::Word8(1), worker.core().local.pinned()).is_ok();
        worker.core().local.leave();
        assert!(!linked, "it is noted, and unlinked");
        (0..3).for_each(|_| bench.environment.advance_snapshot());
        (0..4).for_each(|_| worker.core().local.collect());
        wanted();
        bench.environment.advance_snapshot();
        assert_eq!(shown(&bench, &mut reader(&bench), 3), (vec![Some(10), None, Some(12)], vec![10, 12]));
        // It is an offer: what comes now is not in it.
        change(&bench, &mut worker, 0, 100);
        assert_eq!(bench.read(&mut reader(&bench), 0), Ok(Some(10)));
    }
}

/// Offers come and go, and a reader that has taken one continues to read it.
#[test]
fn readers_that_begin_while_a_snapshot_is_on_offer_take_it() {
    for bench in benches_wanting(&[0], 2) {
        let mut worker = bench.worker();
        let value =
            |reader: &mut Worker| bench.read(reader, 0).expect("a snapshot does not fail").expect("it is there");
        bench.environment.advance_epoch();
        let mut kept = Vec::new();
        for round in 1..6 {
            (0..2).for_each(|_| assert_eq!(value(&mut reader(&bench)), 2 * round - 2));
            bench.environment.advance_snapshot();
            change(&bench, &mut worker, 0, 2 * round - 1);
            let mut early = reader(&bench);
            assert_eq!(value(&mut early), 2 * round - 2, "it was offered before");
            kept.push((early, 2 * round - 2));
            (0..2).for_each(|_| bench.environment.advance_epoch());
            change(&bench, &mut worker, 0, 2 * round);
            worker.core().local.collect();
            for (early, shown) in &mut kept {
                assert_eq!(value(early), *shown);
            }
        }
    }
}

/// The actions of another procedure while one runs.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    Nothing,
    Adds,
    /// Adds, and is in conflict with the rest.
    Touches,
}

/// The TIDs say whether a sum was published with the rest.
#[test]
fn sums_are_published_late_for_a_while_after_they_could_not_be_merged() {
    const PERIOD: u64 = 3;
    for bench in benches_with(&[0, 0], [("snapshot_wanted_min", 0), ("late_period", PERIOD)]) {
        let (mut sum, mut worker) = (0, procedure(&bench));
        // `None`: it was refuted.
        let mut is_late = |meets: Other| {
            worker.abort();
            worker.begin(Mode::ReadWrite, Priority::NONE);
            worker.pieces().expect("it has them").follow();
            add(&bench, &mut worker, 1, 5);
            bench.change(&mut worker, 0, |value| value + 1).expect("it runs alone");
            if meets != Other::Nothing {
                let mut other = procedure(&bench);
                add(&bench, &mut other, 1, 100);
                if meets == Other::Touches {
                    bench.change(&mut other, 0, |value| value + 1).expect("it runs alone");
                }
                commit(&mut other);
                sum += 100;
            }
            let mut written = Written::default();
            let is_late = worker.commit(&mut written).ok().map(|_| {
                sum += 5;
                worker.begin(Mode::ReadWrite, Priority::NONE);
                written.0[0].1 != written.0[1].1
            });
            assert_eq!(bench.state(&[1]), [sum]);
            is_late
        };
        assert_eq!(is_late(Other::Nothing), Some(false));
        // Without notes it would be refuted.
        assert_eq!(is_late(Other::Adds), Some(true));
        assert_eq!(is_late(Other::Nothing), Some(false));
        assert_eq!(is_late(Other::Touches), None, "a chain's first piece");
        // From now on it takes notes.
        assert_eq!(is_late(Other::Adds), Some(false), "it was merged");
        assert_eq!(is_late(Other::Touches), None);
        for other in [Other::Nothing, Other::Adds, Other::Nothing] {
            assert_eq!(is_late(other), Some(true));
        }
        assert_eq!(is_late(Other::Adds), Some(false));
    }
}

/// Published with the rest, an addition is one all the same: others that are published later take their
/// places around it.
#[test]
fn a_sum_that_is_published_with_the_rest_is_reported_as_added_to() {
    #[derive(Default)]
    struct Added(Vec<u64>);
    impl Redo for Added {
        fn write(&mut self, _: &Table, _: Key<'_>, _: Tid, _: Option<Before>, _: Option<RowPtr>) {}

        fn add(&mut self, _: &Table, key: Key<'_>, _: Tid, _: Before, _: RowPtr) {
            let Key::Word8(key) = key else { panic!("a key of one word") };
            self.0.push(key);
        }
    }
    for bench in benches_with(&[0, 0, 0], [("snapshot_wanted_min", 0), ("late_period", 3)]) {
        let (mut worker, mut added) = (procedure(&bench), Added::default());
        [1, 2].into_iter().for_each(|id| add(&bench, &mut worker, id, 5));
        touch(&bench, &mut worker, 0);
        assert!(matches!(worker.commit(&mut added), Ok(Outcome::Committed(_))));
        added.0.sort_unstable();
        assert_eq!(added.0, [1, 2]);
    }
}
