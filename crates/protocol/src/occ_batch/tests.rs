//! Transactions that the order of a batch permits do commit: readers before writers, and blind writes of one row.

use seriatim_catalog::{ColumnId, ColumnSet, ColumnUse, Key};
use seriatim_htm::HtmMode;
use seriatim_store::Direction;
use seriatim_txn::{Inserted, NoRedo, OnExists, Ordered, Prepared, Priority, Scan, Worker as _};

use super::*;
use crate::common::Bench;

const X: u64 = 0;
const Y: u64 = 1;
const ABSENT: u64 = 9;

struct Held(Worker<State>);

impl Held {
    fn begin(bench: &Bench<OccBatch>) -> Held {
        let mut worker = bench.worker();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        worker.detach().expect("it holds").hold();
        Held(worker)
    }

    fn read(mut self, bench: &Bench<OccBatch>, key: u64) -> Held {
        let _ = bench.read(&mut self.0, key).expect("nothing is locked");
        self
    }

    fn scan(mut self, bench: &Bench<OccBatch>) -> Held {
        let (mut scan, all) = (Scan::default(), std::ops::Bound::Unbounded);
        bench.cells.index.scan(all, all, Direction::Forward, &mut scan.cursor).expect("ordered");
        while self.0.scan_next(&bench.cells, &mut scan, ColumnSet::ALL).expect("nothing is locked").is_some() {}
        self
    }

    fn change(mut self, bench: &Bench<OccBatch>, key: u64) -> Held {
        bench.change(&mut self.0, key, |value| value + 1).expect("nothing is locked");
        self
    }

    fn set(mut self, bench: &Bench<OccBatch>, key: u64, value: i64) -> Held {
        let columns = ColumnUse::setting([ColumnId(1)]);
        let rows = self.0.update(&bench.cells, Key::Word8(key), columns).expect("nothing is locked");
        bench.set(rows.expect("it is there").after, value);
        self
    }

    fn insert(mut self, bench: &Bench<OccBatch>, key: u64) -> Held {
        let staged = self.0.stage(&bench.cells).expect("memory");
        bench.set(staged.row, 1);
        assert_eq!(self.0.insert(&bench.cells, Key::Word8(key), staged, OnExists::Refuse), Ok(Inserted::New));
        self
    }

    fn prepare(&mut self) -> Prepared {
        self.0.detach().expect("it holds").prepare().expect("nothing has changed")
    }
}

fn bench() -> Bench<OccBatch> {
    Bench::open(HtmMode::Absent, &[10, 20])
}

fn orders(options: &Options) -> Orders {
    let (batching, settings) = (validator::batching(options), validator::settings(options));
    Orders { batching, reorders: true, settings, faults: Faults::default() }
}

/// Decides a batch as the validator orders it: which commit, and which are left out.
fn decide(mut batch: Vec<Held>) -> (Vec<usize>, Vec<usize>) {
    let prepared: Vec<Prepared> = batch.iter_mut().map(Held::prepare).collect();
    let Ordered { order, left_out, .. } = orders(&Options::default()).order(&prepared);
    for &at in &order {
        let outcome = batch[at].0.commit(&mut NoRedo);
        assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{at} of {order:?}: {outcome:?}");
    }
    left_out.iter().for_each(|&at| batch[at].0.abort());
    (order, left_out)
}

#[test]
fn a_batch_commits_a_reader_and_a_writer() {
    let bench = bench();
    let writer = Held::begin(&bench).change(&bench, X);
    let reader = Held::begin(&bench).read(&bench, X).change(&bench, Y);
    assert_eq!(decide(vec![writer, reader]), (vec![1, 0], vec![]));
    assert_eq!(bench.state(&[X, Y]), [11, 21]);
}

#[test]
fn a_batch_commits_a_scan_and_an_insertion_into_its_range() {
    let bench = bench();
    let inserter = Held::begin(&bench).insert(&bench, ABSENT);
    let reader = Held::begin(&bench).scan(&bench).change(&bench, Y);
    assert_eq!(decide(vec![inserter, reader]), (vec![1, 0], vec![]));
    assert_eq!(bench.state(&[Y, ABSENT]), [21, 1]);
}

#[test]
fn a_reader_of_an_absent_key_and_its_inserter_both_commit() {
    let bench = bench();
    let inserter = Held::begin(&bench).insert(&bench, ABSENT);
    let reader = Held::begin(&bench).read(&bench, ABSENT).change(&bench, Y);
    assert_eq!(decide(vec![inserter, reader]), (vec![1, 0], vec![]));
    assert_eq!(bench.state(&[Y, ABSENT]), [21, 1]);
}

#[test]
fn one_of_two_transactions_that_read_each_others_writes_is_left_out() {
    let bench = bench();
    let one = Held::begin(&bench).read(&bench, X).change(&bench, Y);
    let other = Held::begin(&bench).read(&bench, Y).change(&bench, X);
    let (order, left_out) = decide(vec![one, other]);
    assert_eq!((order.len(), left_out.len()), (1, 1));
}

/// The last in the order is the final state, and a transaction that read the row came before all of them.
#[test]
fn blind_writes_of_one_row_all_commit() {
    let bench = bench();
    let reader = Held::begin(&bench).read(&bench, X).change(&bench, Y);
    let writers = [7, 8, 9].map(|value| Held::begin(&bench).set(&bench, X, value));
    assert_eq!(decide(writers.into_iter().chain([reader]).collect()), (vec![3, 0, 1, 2], vec![]));
    assert_eq!(bench.state(&[X, Y]), [9, 21]);
}

/// A blind write of a row that others have written since it was executed is as good as before; one that read it is not.
#[test]
fn a_blind_write_outlives_other_batches() {
    let bench = bench();
    let mut blind = Held::begin(&bench).set(&bench, X, 7);
    let mut reads = Held::begin(&bench).change(&bench, X);
    for held in [&mut blind, &mut reads] {
        let _ = held.prepare();
    }
    assert_eq!(decide(vec![Held::begin(&bench).change(&bench, X)]).0, [0]);
    assert!(reads.0.detach().expect("it holds").recheck().is_err(), "what it built on has changed");
    reads.0.abort();
    let again = blind.0.detach().expect("it holds").recheck();
    assert!(matches!(again, Ok(Some(prepared)) if prepared.reads.is_empty() && prepared.writes.len() == 1));
    assert_eq!(blind.0.detach().expect("it holds").recheck(), Ok(None), "nothing has changed since");
    assert!(matches!(blind.0.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    assert_eq!(bench.state(&[X]), [7]);
}

/// The row has another column, so that updates are noted whatever they use.
#[test]
fn two_updates_that_read_are_in_each_others_way() {
    let fixed = seriatim_catalog::ColumnDef::new("fixed", seriatim_catalog::ColumnType::U64).immutable();
    let other = seriatim_catalog::ColumnDef::new("other", seriatim_catalog::ColumnType::I64);
    let bench = Bench::<OccBatch>::of(HtmMode::Absent, &["id"], [other, fixed]).with_rows(&[10]);
    let add = |mut held: Held| {
        let used = ColumnUse::from(ColumnSet::of(ColumnId(1)));
        let rows = held.0.update(&bench.cells, Key::Word8(X), used).expect("nothing is locked");
        bench.set(rows.expect("it is there").after, 11);
        held
    };
    let (order, left_out) = decide(vec![add(Held::begin(&bench)), add(Held::begin(&bench))]);
    assert_eq!((order.len(), left_out.len()), (1, 1));
}

/// A bench whose rows have two columns that change, and one that identifies them.
fn wide() -> Bench<OccBatch> {
    let other = seriatim_catalog::ColumnDef::new("other", seriatim_catalog::ColumnType::I64);
    let fixed = seriatim_catalog::ColumnDef::new("fixed", seriatim_catalog::ColumnType::U64).immutable();
    Bench::<OccBatch>::of(HtmMode::Absent, &["id"], [other, fixed]).with_rows(&[10, 20, 30, 40, 50])
}

const VALUE: ColumnId = ColumnId(1);
const OTHER: ColumnId = ColumnId(2);
const FIXED: ColumnId = ColumnId(3);

impl Held {
    /// Reads these columns of a row.
    fn using(mut self, bench: &Bench<OccBatch>, key: u64, columns: ColumnSet) -> Held {
        assert!(self.0.read(&bench.cells, Key::Word8(key), columns).expect("nothing is locked").is_some());
        self
    }

    /// Changes these columns of a row. (It writes the value's alone, which an update may leave as it is.)
    fn changing(mut self, bench: &Bench<OccBatch>, key: u64, columns: ColumnUse) -> Held {
        assert!(self.0.update(&bench.cells, Key::Word8(key), columns).expect("nothing is locked").is_some());
        self
    }

    /// Adds one to the value of a row, and looks at what never changes.
    fn adding(mut self, bench: &Bench<OccBatch>, key: u64) -> Held {
        let columns = ColumnUse::adding([VALUE]).union(ColumnSet::of(FIXED).into());
        let rows = self.0.update(&bench.cells, Key::Word8(key), columns).expect("nothing is locked");
        let rows = rows.expect("it is there");
        let value = bench.get(rows.before);
        bench.set(rows.after, value + 1);
        self
    }
}

/// As Payments of one warehouse, which add to its sum and read its name.
#[test]
fn additions_to_a_row_with_reads_of_immutable_columns_do_not_conflict() {
    let bench = wide();
    let batch = (0..8).map(|_| Held::begin(&bench).adding(&bench, X)).collect();
    assert_eq!(decide(batch), ((0..8).collect(), vec![]));
    assert_eq!(bench.state(&[X]), [18]);
}

/// Each reads a column of the row of which the other changes another.
#[test]
fn a_reader_of_unchanged_columns_does_not_conflict() {
    let bench = wide();
    let one = |reads, writes| {
        let held = Held::begin(&bench).using(&bench, reads, ColumnSet::of(OTHER));
        held.changing(&bench, writes, ColumnSet::of(VALUE).into())
    };
    assert_eq!(decide(vec![one(X, Y), one(Y, X)]), (vec![0, 1], vec![]));
}

/// Two change one column each, and two read one each: each reader comes before its writer.
#[test]
fn a_reader_of_a_column_comes_before_its_writer_while_others_change_other_columns() {
    let bench = wide();
    let write = |column| Held::begin(&bench).changing(&bench, X, ColumnSet::of(column).into());
    let read = |column: ColumnId| {
        let held = Held::begin(&bench).using(&bench, X, ColumnSet::of(column));
        held.adding(&bench, 1 + u64::from(column.0))
    };
    let batch = vec![write(VALUE), write(OTHER), read(OTHER), read(VALUE)];
    assert_eq!(decide(batch), (vec![2, 1, 3, 0], vec![]));
    // A transaction that uses the whole row comes before all of them.
    let whole = Held::begin(&bench).using(&bench, X, ColumnSet::ALL).adding(&bench, 4);
    assert_eq!(decide(vec![write(VALUE), write(OTHER), whole]), (vec![2, 0, 1], vec![]));
}

/// It may have set the column to what was there, or not at all.
#[test]
fn a_blind_write_that_changed_nothing_is_refuted_by_another() {
    let bench = bench();
    let mut same = Held::begin(&bench).set(&bench, X, 10);
    let _ = same.prepare();
    assert_eq!(decide(vec![Held::begin(&bench).set(&bench, X, 7)]).0, [0]);
    assert!(same.0.detach().expect("it holds").recheck().is_err());
    same.0.abort();
    assert_eq!(bench.state(&[X]), [7]);
}

/// A bench with storage batching.
fn batching(mut bench: Bench<OccBatch>) -> Bench<OccBatch> {
    bench.protocol.storage_batching = true;
    bench
}

/// One whose reads may wait.
fn begin_waiting(bench: &Bench<OccBatch>) -> Held {
    let mut held = Held::begin(bench);
    held.0.detach().expect("it holds").may_wait();
    held
}

/// One that is going to write X, and has been executed.
fn begin_marking(bench: &Bench<OccBatch>) -> Held {
    let mut held = Held::begin(bench).change(bench, X);
    let _ = held.prepare();
    held
}

/// The mark of a row's record.
fn mark(bench: &Bench<OccBatch>, key: u64) -> u64 {
    let mut held = Held::begin(bench).read(bench, key);
    let record = held.0.seen().record.expect("it is there");
    let mark = record_header::own::<0>(&bench.cells.record_layout, record).load(std::sync::atomic::Ordering::Relaxed);
    held.0.abort();
    mark
}

/// However a transaction ends that was held, and it does not have to be told again.
#[test]
fn a_mark_is_taken_off_with_the_decision() {
    let bench = batching(bench());
    let ends: [fn(&mut Held); 3] = [
        |held| drop(held.0.commit(&mut NoRedo).expect("nothing has changed")),
        |held| held.0.abort(),
        |held| {
            held.0.detach().expect("it holds").refuse();
            held.0.abort();
        },
    ];
    for (at, end) in ends.into_iter().enumerate() {
        let mut writer = Held::begin(&bench).change(&bench, X).change(&bench, Y);
        assert_eq!([X, Y].map(|key| mark(&bench, key)), [0, 0], "it has not been executed");
        (0..2).for_each(|_| drop(writer.prepare()));
        let marked = [X, Y].map(|key| mark(&bench, key));
        assert!(marked[0] != 0 && marked[0] == marked[1], "end {at}: {marked:?}");
        let mut other = Held::begin(&bench).change(&bench, Y);
        let _ = other.prepare();
        assert!(mark(&bench, Y) > marked[1], "two are going to write it");
        end(&mut writer);
        assert_eq!([X, Y].map(|key| mark(&bench, key) != 0), [false, true], "end {at}");
        other.0.abort();
        assert_eq!(mark(&bench, Y), 0, "end {at}");
    }
}

/// A refused one conflicts with none before its thread comes to abort it.
#[test]
fn a_mark_is_taken_off_when_its_transaction_is_refused() {
    let bench = batching(bench());
    let mut writer = begin_marking(&bench);
    writer.0.detach().expect("it holds").refuse();
    assert_eq!(mark(&bench, X), 0);
    writer.0.abort();
}

#[test]
fn a_reader_that_has_waited_its_bound_reads_the_current_version_and_commits_before_the_writer() {
    let bench = batching(bench());
    let mut writer = begin_marking(&bench);
    let mut reader = begin_waiting(&bench);
    assert_eq!(bench.read(&mut reader.0, X), Ok(Some(10)));
    let mut reader = reader.change(&bench, Y);
    assert!(reader.prepare().waited);
    assert!(!writer.prepare().waited);
    assert_eq!(decide(vec![writer, reader]), (vec![1, 0], vec![]));
    assert_eq!(bench.state(&[X, Y]), [11, 21]);
}

/// Reads of columns that will not change, reads whose thread may be needed, and transactions that are not
/// held: none of them wait.
#[test]
fn others_do_not_wait() {
    type Does = fn(Held, &Bench<OccBatch>) -> Held;
    let bench = batching(wide());
    let mut writer = Held::begin(&bench).changing(&bench, X, ColumnSet::of(VALUE).into());
    let _ = writer.prepare();
    let waits: [(&str, bool, Does); 7] = [
        ("reads it", true, |held, bench| held.using(bench, X, ColumnSet::of(VALUE))),
        ("reads all", true, |held, bench| held.using(bench, X, ColumnSet::ALL)),
        ("scans it", true, |held, bench| held.scan(bench)),
        ("changes it", true, |held, bench| held.changing(bench, X, ColumnSet::of(VALUE).into())),
        ("reads another column", false, |held, bench| held.using(bench, X, ColumnSet::of(OTHER))),
        ("reads another row", false, |held, bench| held.using(bench, Y, ColumnSet::of(VALUE))),
        ("adds to it", false, |held, bench| held.adding(bench, X)),
    ];
    for (what, waits, does) in waits {
        let mut may = does(begin_waiting(&bench), &bench).adding(&bench, 4);
        assert_eq!(may.prepare().waited, waits, "who {what}");
        may.0.abort();
        let mut may_not = does(Held::begin(&bench), &bench).adding(&bench, 4);
        assert!(!may_not.prepare().waited, "who {what} and has held ones itself");
        may_not.0.abort();
    }
    writer.0.abort();
}

/// A worker that waited, or could have, does not wait in its next transaction unless that may.
#[test]
fn permission_to_wait_does_not_pass_to_the_next_transaction() {
    let bench = batching(bench());
    let mut writer = begin_marking(&bench);
    let mut held = begin_waiting(&bench);
    let ends: [fn(&mut Held); 2] = [|held| drop(held.0.commit(&mut NoRedo)), |held| held.0.abort()];
    for ends in ends {
        held.0.detach().expect("it holds").may_wait();
        held = held.change(&bench, Y);
        ends(&mut held);
        held.0.begin(Mode::ReadWrite, Priority::NONE);
        held.0.detach().expect("it holds").hold();
        held = held.read(&bench, X);
        assert!(!held.prepare().waited);
        held.0.abort();
        held.0.begin(Mode::ReadWrite, Priority::NONE);
        held.0.detach().expect("it holds").hold();
    }
    held.0.abort();
    writer.0.abort();
}

#[test]
fn without_storage_batching_nothing_is_marked_and_no_reader_waits() {
    let mut bench = bench();
    bench.protocol.storage_batching = false;
    let writer = begin_marking(&bench);
    assert_eq!(mark(&bench, X), 0);
    let mut reader = begin_waiting(&bench).read(&bench, X);
    assert!(!reader.prepare().waited);
    [writer, reader].iter_mut().for_each(|held| held.0.abort());
}

/// Transactions that find a mark and wait until it is removed see the new version, and commit after it.
#[cfg(feature = "steps")]
#[test]
fn a_reader_that_waited_reads_the_new_version() {
    let mut met = 0;
    for seed in 0..200 {
        let bench = batching(bench());
        let writer = Held::begin(&bench).change(&bench, X);
        let reader = begin_waiting(&bench);
        let (mut writer, mut reader) = (writer.0, reader.0);
        let _ = writer.detach().expect("it holds").prepare().expect("it runs alone");
        let bench = &bench;
        let writes: Box<dyn FnOnce() -> (bool, i64) + Send> = Box::new(move || {
            assert!(matches!(writer.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
            (false, 11)
        });
        let reads: Box<dyn FnOnce() -> (bool, i64) + Send> = Box::new(move || {
            let value = bench.read(&mut reader, X).expect("nothing stays locked").expect("it is there");
            bench.change(&mut reader, Y, |value| value + 1).expect("nothing stays locked");
            let prepared = reader.detach().expect("it holds").prepare();
            let waited = prepared.is_ok_and(|prepared| prepared.waited);
            reader.abort();
            (waited, value)
        });
        let ended = seriatim_base::thread::take_turns(seed, 3, vec![writes, reads]);
        let ended: Vec<_> = ended.into_iter().map(|ended| ended.expect("no panic")).collect();
        let (waited, value) = ended[1];
        met += u32::from(waited);
        assert!(!waited || value == 11, "seed {seed}: it read {value}");
    }
    assert!(met > 20, "of 200 readers {met} met the writer");
}

/// The order is known for conflicting transactions only: the others can be decided at the same time.
#[test]
fn edges_lead_from_readers_to_writers() {
    let bench = wide();
    let writer = Held::begin(&bench).changing(&bench, X, ColumnSet::of(VALUE).into());
    let reader = |own| Held::begin(&bench).using(&bench, X, ColumnSet::of(VALUE)).adding(&bench, own);
    let mut batch = [writer, reader(1), reader(2), Held::begin(&bench).adding(&bench, 3)];
    let prepared: Vec<Prepared> = batch.iter_mut().map(Held::prepare).collect();
    let edges = orders(&Options::default()).order(&prepared).edges.map(|mut edges| {
        edges.sort_unstable();
        edges
    });
    assert_eq!(edges, Some(vec![(1, 0), (2, 0)]));
    batch.iter_mut().for_each(|held| held.0.abort());
}

/// Those that restarted most come first in the graph, and so have other places there.
#[test]
fn an_order_names_transactions_by_their_position_in_the_batch() {
    let of = |reads: &[usize], writes: &[usize], restarts| Prepared {
        reads: reads.iter().map(|&record| (record, seriatim_base::Tid::ZERO)).collect(),
        writes: writes.to_vec(),
        restarts,
        ..Prepared::default()
    };
    // The first two before the third; and a cycle.
    let batch = [of(&[64], &[], 0), of(&[64], &[], 9), of(&[], &[64], 0), of(&[128], &[192], 0), of(&[192], &[128], 7)];
    let Ordered { order, edges, left_out, .. } = orders(&Options::default()).order(&batch);
    assert_eq!((order, edges, left_out), (vec![1, 4, 0, 2], Some(vec![(1, 2), (0, 2)]), vec![3]));
}

/// One transaction checks whether it is stale before another changes a column that it does not use, and one after. An
/// older version says nothing about the used columns.
#[test]
fn a_transaction_that_saw_an_older_version_is_not_stale_for_that() {
    let bench = wide();
    let reads = || Held::begin(&bench).using(&bench, X, ColumnSet::of(OTHER)).adding(&bench, Y);
    let (mut before, mut behind) = (reads(), reads());
    let mut writes = Held::begin(&bench).changing(&bench, X, ColumnSet::of(OTHER).into());
    let mut prepared = [&mut before, &mut behind].map(Held::prepare);
    assert_eq!(before.0.detach().expect("it holds").recheck(), Ok(None));
    assert_eq!(decide(vec![Held::begin(&bench).adding(&bench, X)]).0, [0]);
    prepared[1] = behind.0.detach().expect("it holds").recheck().expect("not stale").expect("it has gone on");
    assert!(prepared[0].reads[0] < prepared[1].reads[0]);
    assert!(writes.0.detach().expect("it holds").recheck().is_ok());
    let [first, second] = prepared;
    let batch = [writes.prepare(), first, second];
    assert_eq!(orders(&Options::default()).order(&batch).order, [1, 2, 0]);
    for held in [&mut before, &mut behind, &mut writes] {
        assert!(matches!(held.0.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    }
}
