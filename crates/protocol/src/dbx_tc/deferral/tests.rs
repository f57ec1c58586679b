//! Which additions are deferred, which transactions have them published first, and which are published at once instead.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use seriatim_base::{Epoch, WorkerId};
use seriatim_catalog::{ColumnDef, ColumnId, ColumnSet, ColumnType, ColumnUse, Key};
use seriatim_txn::{
    Added, Addition, Before, Mode, NoRedo, Outcome, PendingRow, Priority, Protocol, Redo, RowPtr, Table, Worker as _,
};

use super::super::DbxTc;
use crate::common::{Bench, modes};

type Worker = <DbxTc as Protocol>::Worker;

/// Columns to which procedures defer additions and which others set; columns that they change; and a sum to which they
/// only add.
const SUM: ColumnId = ColumnId(1);
const OTHER: ColumnId = ColumnId(2);
const LONE: ColumnId = ColumnId(3);
const SMALL: ColumnId = ColumnId(4);

/// Of the database: the share of each in a quarter of a range.
const WORKERS: i64 = 16;

fn agree(bench: &Bench<DbxTc>, deferrable: &[ColumnId]) {
    let changed: ColumnSet = [SUM, OTHER, LONE, SMALL].into_iter().collect();
    let deferrable = deferrable.iter().copied().collect();
    bench.cells.commuting.set(ColumnSet::of(LONE), changed.complement(), deferrable);
    bench.environment.epochs.windows().deferrals().note_change();
}

/// Publishes as a database does.
fn publish(bench: &Bench<DbxTc>, worker: &mut Worker, rows: &[PendingRow]) {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker.pieces().expect("it has them").publish_deferred();
    let wire = bench.cells.wire.as_ref().expect("it is logged");
    for row in rows {
        let columns = ColumnUse::adding(row.sums.iter().map(|sum| sum.column));
        let updating = worker.update(row.table(), row.key.as_key(), columns).expect("it runs alone").expect("a row");
        for sum in &row.sums {
            // SAFETY: a private row version of the table.
            assert!(unsafe { wire.rows.add(updating.after.as_ptr(), sum.column, sum.up - sum.down) }, "there is room");
        }
    }
    // Emulated regions abort now and then.
    if !commit(worker) {
        publish(bench, worker, rows);
    }
}

/// Databases of these sums that defer, on each back end; and how often something was published in them.
fn benches(values: &[i64], options: [(&str, u64); 2]) -> Vec<(&'static Bench<DbxTc>, &'static AtomicU32)> {
    let of = |mode| {
        let further = [("other", ColumnType::I64), ("lone", ColumnType::I64), ("small", ColumnType::I8)];
        let further = further.map(|(name, ty)| ColumnDef::new(name, ty));
        let further = further.into_iter().chain([ColumnDef::new("fixed", ColumnType::U64).immutable()]);
        let options = [options[0], options[1], ("defer", 1)];
        let bench = Bench::<DbxTc>::with_options(mode, &["id"], further, options).with_rows(values);
        // Publications in it are a part of it.
        let (bench, published): (&Bench<DbxTc>, &AtomicU32) = (Box::leak(Box::new(bench)), Box::leak(Box::default()));
        agree(bench, &[SUM, SMALL]);
        let worker = Mutex::new(bench.worker());
        bench.environment.epochs.windows().deferrals().apply_by(Box::new(move |rows| {
            published.fetch_add(1, Ordering::Relaxed);
            publish(bench, &mut worker.lock().expect("no panic"), &rows);
        }));
        (bench, published)
    };
    modes().map(of).into()
}

const OFFERED: [(&str, u64); 2] = [("snapshot_wanted_min", 0), ("late_period", 0)];

fn procedure(bench: &Bench<DbxTc>) -> Worker {
    let mut worker = bench.worker();
    begin(&mut worker);
    worker
}

fn begin(worker: &mut Worker) {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker.pieces().expect("it has them").follow();
}

fn add_to(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64, column: ColumnId, units: i64) {
    let ty = if column == SMALL { ColumnType::I8 } else { ColumnType::I64 };
    // SAFETY: the column's type.
    let addition = unsafe { Addition::new(column, ty, units.into()) };
    assert_eq!(worker.add(&bench.cells, Key::Word8(id), addition), Ok(Added::Done));
}

/// Uses a column that others change.
fn touch(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64) {
    let updating = worker.update(&bench.cells, Key::Word8(id), ColumnUse::from(ColumnSet::of(OTHER)));
    assert!(updating.expect("it runs alone").is_some());
}

fn commit(worker: &mut Worker) -> bool {
    let decided = matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_)));
    if !decided {
        worker.abort();
    }
    decided
}

/// Adds to a sum of row `id`, and changes row 0. If what is pending of that row has to be published first, it
/// does so anew.
fn defer(bench: &Bench<DbxTc>, worker: &mut Worker, id: u64, units: i64) {
    let is_done = (0..2).any(|_| {
        begin(worker);
        add_to(bench, worker, id, SUM, units);
        touch(bench, worker, 0);
        commit(worker)
    });
    assert!(is_done);
}

/// The values that a procedure without writes finds.
fn present(bench: &Bench<DbxTc>, id: u64) -> i64 {
    let mut worker = procedure(bench);
    let value = bench.read(&mut worker, id).expect("it runs alone").expect("it is there");
    assert!(commit(&mut worker));
    value
}

fn close(bench: &Bench<DbxTc>) {
    drop(bench.environment.epochs.windows().close());
}

#[test]
fn deferred_additions_are_published_by_the_thread_that_closes_the_windows() {
    type Options = [(&'static str, u64); 2];
    type Closer = fn(&Bench<DbxTc>) -> bool;
    const PRESENT: Options = [("snapshot_interval_ms", 0), ("late_period", 0)];
    let reads = |bench: &Bench<DbxTc>| {
        let mut reader = bench.worker();
        reader.begin(Mode::ReadOnly, Priority::NONE);
        bench.read(&mut reader, 1).expect("it runs alone") == Some(12)
    };
    let closers: [(&str, Options, Closer); 7] = [
        ("the end of an epoch", OFFERED, |bench| bench.environment.epochs.advance(&bench.environment.htm) == Epoch(2)),
        ("a snapshot of the present", PRESENT, reads),
        ("a snapshot that has more than is offered", OFFERED, reads),
        ("the next snapshot", OFFERED, |bench| {
            bench.environment.advance_snapshot();
            true
        }),
        ("a commit that is no procedure's", OFFERED, |bench| {
            let mut other = bench.worker();
            other.begin(Mode::ReadWrite, Priority::NONE);
            touch(bench, &mut other, 2);
            commit(&mut other)
        }),
        ("one that only reads, and met what is published now", OFFERED, |bench| {
            let mut other = bench.worker();
            other.begin(Mode::ReadWrite, Priority::NONE);
            bench.read(&mut other, 1).expect("it runs alone") == Some(7) && !commit(&mut other)
        }),
        ("a validation", OFFERED, |bench| {
            let mut other = bench.worker();
            other.begin(Mode::ReadWrite, Priority::NONE);
            let is_refused = bench.read(&mut other, 1).is_ok() && other.validate().is_err();
            other.abort();
            is_refused
        }),
    ];
    for (who, options, closer) in closers {
        for (bench, published) in benches(&[0, 7, 0], options) {
            // The worker is idle then, or gone.
            defer(bench, &mut bench.worker(), 1, 5);
            assert_eq!((present(bench, 1), published.load(Ordering::Relaxed)), (7, 0), "it is pending");
            assert!(closer(bench), "{who}");
            assert_eq!((present(bench, 1), published.load(Ordering::Relaxed)), (12, 1), "{who}");
            close(bench);
            assert_eq!(published.load(Ordering::Relaxed), 1, "nothing is pending");
        }
    }
}

#[test]
fn all_that_was_deferred_is_published_together() {
    for (bench, published) in benches(&[0, 7, 9], OFFERED) {
        let mut workers = [bench.worker(), bench.worker()];
        for (at, units) in [(0, 5), (1, 30), (0, -100)] {
            defer(bench, &mut workers[at], 1, units);
        }
        defer(bench, &mut workers[1], 2, 1);
        assert_eq!([present(bench, 1), present(bench, 2)], [7, 9]);
        close(bench);
        assert_eq!([present(bench, 1), present(bench, 2), published.load(Ordering::Relaxed).into()], [-58, 10, 1]);
    }
}

/// Sums without other users are published when the transaction commits, and so is the rest of it.
#[test]
fn the_rest_of_a_procedure_is_published_when_it_commits() {
    struct Tids(Vec<(Key<'static>, u64)>);
    impl Redo for Tids {
        fn write(&mut self, _: &Table, key: Key<'_>, tid: seriatim_base::Tid, _: Option<Before>, _: Option<RowPtr>) {
            let Key::Word8(key) = key else { panic!("a key of one word") };
            self.0.push((Key::Word8(key), tid.epoch().0));
        }
    }
    for (bench, published) in benches(&[0, 7, 0], OFFERED) {
        let mut worker = procedure(bench);
        add_to(bench, &mut worker, 1, SUM, 5);
        add_to(bench, &mut worker, 2, LONE, 5);
        touch(bench, &mut worker, 0);
        let mut tids = Tids(Vec::new());
        assert!(matches!(worker.commit(&mut tids), Ok(Outcome::Committed(tid)) if tid.epoch() == Epoch(1)));
        let keys: Vec<_> = tids.0.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [Key::Word8(0), Key::Word8(2)]);
        // One that only adds leaves nothing to be published, and is of this epoch all the same.
        begin(&mut worker);
        add_to(bench, &mut worker, 1, SUM, 5);
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(tid)) if tid.epoch() == Epoch(1)));
        assert_eq!((present(bench, 1), published.load(Ordering::Relaxed)), (7, 0));
        close(bench);
        assert_eq!(present(bench, 1), 17);
    }
}

#[test]
fn a_procedure_that_is_refuted_defers_nothing() {
    for (bench, published) in benches(&[0, 7], OFFERED) {
        let (mut worker, mut other) = (procedure(bench), procedure(bench));
        add_to(bench, &mut worker, 1, SUM, 5);
        bench.change(&mut worker, 0, |value| value + 1).expect("it runs alone");
        bench.change(&mut other, 0, |value| value + 10).expect("it runs alone");
        assert!(commit(&mut other) && !commit(&mut worker));
        close(bench);
        assert_eq!((present(bench, 1), published.load(Ordering::Relaxed)), (7, 0));
    }
}

/// Whether this is deferred of a sum of this value, or published at once.
fn is_deferred(value: i64, act: impl Fn(&Bench<DbxTc>, &mut Worker)) -> bool {
    let bench = benches(&[0, value], OFFERED)[0].0;
    let mut worker = procedure(bench);
    act(bench, &mut worker);
    touch(bench, &mut worker, 0);
    assert!(commit(&mut worker));
    let is_pending = present(bench, 1) == value;
    close(bench);
    is_pending
}

#[test]
fn a_sum_without_room_is_added_to_at_once() {
    const QUARTER: i64 = i64::MAX / 2;
    const SHARE: i64 = QUARTER / WORKERS;
    let adds = |units| move |bench: &Bench<DbxTc>, worker: &mut Worker| add_to(bench, worker, 1, SUM, units);
    let (high, low) = (i64::MAX - QUARTER, i64::MIN + QUARTER);
    for (value, units, deferred) in [
        (high, SHARE, true),
        (high + 1, 1, false),
        (high + 1, -1, true),
        (low, -SHARE, true),
        (low - 1, -1, false),
        (low - 1, 1, true),
        (0, SHARE + 1, false),
        (0, -SHARE - 1, false),
    ] {
        assert_eq!(is_deferred(value, adds(units)), deferred, "{units} on {value}");
    }
    // Amounts that a worker has pending count, in each direction separately.
    for (units, pending) in [([SHARE, 1], 1), ([SHARE, -1], 2), ([SHARE - 1, 1], 2), ([-SHARE, -1], 1)] {
        for (bench, published) in benches(&[0, 0], OFFERED) {
            let mut worker = bench.worker();
            units.iter().for_each(|units| defer(bench, &mut worker, 1, *units));
            let at_once = published.load(Ordering::Relaxed);
            assert_eq!(at_once, u32::from(pending == 1), "{units:?}: the first had to be published for the second");
            close(bench);
            assert_eq!(present(bench, 1), units.iter().sum::<i64>());
        }
    }
}

/// All workers add as much as they may, and one sets the sum meanwhile, to what is nearest to an end.
#[test]
fn pending_amounts_always_fit() {
    for (bench, published) in benches(&[0, i64::MAX - i64::MAX / 2], OFFERED) {
        let share = i64::MAX / 2 / WORKERS;
        let mut workers: Vec<Worker> = (0..WORKERS - 4).map(|_| bench.worker()).collect();
        workers.iter_mut().for_each(|worker| defer(bench, worker, 1, share));
        assert_eq!(published.load(Ordering::Relaxed), 0);
        close(bench);
        assert_eq!(present(bench, 1), i64::MAX - i64::MAX / 2 + (WORKERS - 4) * share);
    }
}

#[test]
fn an_assignment_near_the_end_of_a_range_publishes_pending_amounts_first() {
    let sets = |bench: &Bench<DbxTc>, value: i64| {
        let mut worker = procedure(bench);
        let set = ColumnUse::setting([SUM]);
        let updating = worker.update(&bench.cells, Key::Word8(1), set).expect("it runs alone").expect("a row");
        bench.set(updating.after, value);
        commit(&mut worker)
    };
    for (bench, published) in benches(&[0, 0], OFFERED) {
        let mut worker = bench.worker();
        defer(bench, &mut worker, 1, 5);
        assert!(sets(bench, i64::MAX - i64::MAX / 2));
        assert_eq!(published.load(Ordering::Relaxed), 0, "there is room");
        let _ = sets(bench, i64::MAX);
        assert_eq!(published.load(Ordering::Relaxed), 1, "there is none");
        close(bench);
    }
}

#[test]
fn without_memory_for_what_is_pending_it_is_published_at_once() {
    for (bench, published) in benches(&[0, 7], OFFERED) {
        let memory = &bench.environment.memory;
        let mut worker = procedure(bench);
        add_to(bench, &mut worker, 1, SUM, 5);
        touch(bench, &mut worker, 0);
        memory.set_limit(Some(0));
        let mut all = memory.charge();
        while all.try_set(all.bytes() + 256).is_ok() {}
        assert!(commit(&mut worker));
        memory.set_limit(None);
        assert_eq!((present(bench, 1), published.load(Ordering::Relaxed)), (12, 0));
    }
}

#[test]
fn memory_is_set_aside_for_each_row_that_is_pending_and_not_for_each_addition() {
    for (bench, _) in benches(&[0, 7], OFFERED) {
        let mut worker = bench.worker();
        let mut in_use_after = |additions: u32| {
            (0..additions).for_each(|_| defer(bench, &mut worker, 1, 1));
            worker.core().local.collect();
            bench.environment.memory.in_use_bytes()
        };
        let before = in_use_after(10);
        let after = in_use_after(1_000);
        assert!(after < before + 100_000, "{before} bytes, then {after}");
    }
}

#[test]
fn updates_that_began_before_deferral_was_agreed_are_published_at_once() {
    for (told, deferred) in [(vec![SUM, SMALL], false), (vec![], false)] {
        for (bench, _) in benches(&[0, 7], OFFERED) {
            let mut worker = procedure(bench);
            add_to(bench, &mut worker, 1, SUM, 5);
            touch(bench, &mut worker, 0);
            agree(bench, &told);
            assert!(commit(&mut worker));
            assert_eq!(present(bench, 1) == 7, deferred);
            // New procedures follow the new set.
            defer(bench, &mut worker, 1, 5);
            assert_eq!(present(bench, 1) == 12, told.contains(&SUM));
            close(bench);
            assert_eq!(present(bench, 1), 17);
        }
    }
}

/// Columns that were read are validated with the row, and a second update uses the first one's sum.
#[test]
fn an_addition_of_which_more_is_used_is_published_at_once() {
    assert!(!is_deferred(7, |bench, worker| {
        add_to(bench, worker, 1, SUM, 5);
        assert!(worker.read(&bench.cells, Key::Word8(1), ColumnSet::of(OTHER)).is_ok());
    }));
    assert!(!is_deferred(7, |bench, worker| (0..2).for_each(|_| add_to(bench, worker, 1, SUM, 5))));
    assert!(!is_deferred(7, |bench, worker| {
        let savepoint = worker.savepoint();
        add_to(bench, worker, 0, SUM, 5);
        worker.rollback_to(savepoint);
        add_to(bench, worker, 1, SUM, 5);
    }));
    assert!(is_deferred(7, |bench, worker| add_to(bench, worker, 1, SUM, 5)));
}

/// A thread that closes the windows while another publishes waits for that.
#[test]
fn the_windows_are_closed_only_after_all_additions_are_published() {
    for (bench, published) in benches(&[0, 0], OFFERED) {
        let mut worker = bench.worker();
        for round in 1..50 {
            defer(bench, &mut worker, 1, 1);
            seriatim_base::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        close(bench);
                        assert_eq!(published.load(Ordering::Relaxed), round);
                    });
                }
            });
        }
        assert_eq!(present(bench, 1), 49);
    }
}

#[test]
fn a_transaction_that_does_not_defer_leaves_nothing_pending() {
    let bench = Bench::<DbxTc>::open(modes()[0], &[0]);
    let windows = bench.environment.epochs.windows();
    assert!(!windows.deferrals().are_allowed());
    assert!(windows.open(WorkerId(0)).pending().is_none());
}
