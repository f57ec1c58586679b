//! loom runs transactions of protocols in every interleaving, and under every reordering that the memory model
//! allows. What runs is what ships: the protocols of this crate and of `seriatim-protocol`, from begin to commit.
//!
//! Two threads that each store a word and then load the other's word need a fence in between, or both may load the old
//! value. Protocols have such pairs: locks and validation, gap locks and latches, snapshots and commits. A model is a
//! question that such a pair answers. A canary omits the fences of a file, and the model fails.
//!
//! A model watches the words that two of its threads touch when they rehearse ([`seriatim_base::word`]). Models of
//! clocks are beside them (`loom_model.rs`). Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p seriatim-baselines --release --lib loom`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use seriatim_base::word::model;
use seriatim_base::{Epoch, Tid};
use seriatim_catalog::Key;
use seriatim_htm::HtmMode;
use seriatim_protocol::dbx::Dbx;
use seriatim_protocol::dbx_tc::DbxTc;
use seriatim_protocol::silo::Silo;
use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Priority, Protocol, Worker};

use crate::cicada::Cicada;
use crate::common::Bench;
use crate::hto::Hto;
use crate::nowait::NoWait;
use crate::occ::Occ;
use crate::tictoc::TicToc;

/// Of a thread of loom. A transaction needs more than the default.
const STACK_BYTES: usize = 1 << 18;

/// What a transaction found, and its TID; none: it did not commit.
type Ended = Option<(i64, Tid)>;

/// A thread of a model. Keys from this one on are its own in a rehearsal, and from [`RACE`] on all share them.
type Part<P> = fn(&Bench<P>, &mut <P as Protocol>::Worker, u64) -> Ended;

/// The first key of the race after the rehearsals.
const RACE: u64 = 200;

/// Keys from this one on belong to another leaf than the first race's and rehearsals' keys.
const FAR: u64 = 10_000;

/// More records than a leaf holds.
const FILL: u64 = 30;

/// Rows that exist.
const X: u64 = 0;
const Y: u64 = 1;
const Z: u64 = 2;

fn transact<P: Protocol>(
    worker: &mut P::Worker,
    mode: Mode,
    body: impl FnOnce(&mut P::Worker) -> Result<i64, OpError>,
) -> Ended {
    worker.begin(mode, Priority::NONE);
    let found = body(worker).and_then(|found| match worker.commit(&mut NoRedo)? {
        Outcome::Committed(tid) => Ok((found, tid)),
        Outcome::Repair(_) => unreachable!("it does not repair"),
    });
    if found.is_err() {
        worker.abort();
    }
    found.ok()
}

fn change<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, key: u64) -> Result<(), OpError> {
    bench.change(worker, key, |value| value + 1).map(drop)
}

fn insert<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, key: u64) -> Result<(), OpError> {
    let staged = worker.stage(&bench.cells)?;
    bench.set(staged.row, 1);
    let inserted = worker.insert(&bench.cells, Key::Word8(key), staged, OnExists::Refuse)?;
    assert_eq!(inserted, Inserted::New);
    Ok(())
}

/// Reads a key; none: -1.
fn read<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, key: u64) -> Result<i64, OpError> {
    Ok(bench.read(worker, key)?.unwrap_or(-1))
}

/// Runs the parts side by side, each by a worker of its own.
fn race<P: Protocol, const N: usize>(parts: [Part<P>; N]) -> [Ended; N] {
    let bench = Bench::<P>::open(HtmMode::Absent, &[0, 0, 0]);
    let mut loader = bench.worker();
    let filled = transact::<P>(&mut loader, Mode::ReadWrite, |worker| {
        (FAR - FILL..FAR).try_for_each(|key| insert(&bench, worker, key)).map(|()| 0)
    });
    assert!(filled.is_some(), "it runs alone");
    // The TIDs of Y are above those of others.
    (0..9)
        .for_each(|_| _ = transact::<P>(&mut loader, Mode::ReadWrite, |worker| change(&bench, worker, Y).map(|()| 0)));
    let parts = parts.map(|part| {
        let mut worker = bench.worker();
        move |bench: &Bench<P>, key| part(bench, &mut worker, key)
    });
    side_by_side(bench, parts)
}

/// Runs the parts side by side. They rehearse before, one after the other and with other keys.
pub(crate) fn side_by_side<S, F, R, const N: usize>(shared: S, mut parts: [F; N]) -> [R; N]
where
    S: Send + Sync + 'static,
    F: FnMut(&S, u64) -> R + Send + 'static,
    R: Send + 'static,
{
    let shared = Arc::new(shared);
    let mut keys = 100;
    let touched = parts.each_mut().map(|part| {
        keys += 10;
        model::rehearse(|| _ = part(&shared, keys))
    });
    assert!(model::watch(&touched) > 0, "the parts of a model share words");
    let threads = parts.map(|mut part| {
        let shared = Arc::clone(&shared);
        spawn(move || (part(&shared, RACE), part))
    });
    // Workers leave one at a time: they hand over garbage under a lock that is not loom's.
    threads.map(|thread| thread.join().expect("no panic").0)
}

fn spawn<R: Send + 'static>(part: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(part).expect("a thread of loom")
}

/// A question that must be answered with yes in each execution.
pub(crate) type Model = fn() -> bool;

/// Whether the model holds in each execution with so many preemptions, without the fences of these files.
pub(crate) fn holds(model: Model, preemptions: usize, broken: &'static [&'static str]) -> bool {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    let check = move || {
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let run = move || {
                model::begin(broken);
                assert!(model(), "it does not hold");
            };
            spawn(run).join().expect("no panic");
        });
    };
    let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_ok();
    let executions = executions.load(Ordering::Relaxed);
    println!("without the fences of {broken:?}: {held} after {executions} executions");
    held
}

/// A transaction that reads a key, and changes a row.
fn read_and_change<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, key: u64, changed: u64) -> Ended {
    transact::<P>(worker, Mode::ReadWrite, |worker| {
        let found = read(bench, worker, key)?;
        change(bench, worker, changed).map(|()| found)
    })
}

/// A transaction that changes a row.
fn change_one<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, key: u64) -> Ended {
    transact::<P>(worker, Mode::ReadWrite, |worker| change(bench, worker, key).map(|()| 0))
}

/// A transaction that inserts a key.
fn insert_one<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, key: u64) -> Ended {
    transact::<P>(worker, Mode::ReadWrite, |worker| insert(bench, worker, key).map(|()| 0))
}

/// A transaction that finds a key, and inserts another.
fn read_and_insert<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, [key, inserted]: [u64; 2]) -> Ended {
    transact::<P>(worker, Mode::ReadWrite, |worker| {
        let found = read(bench, worker, key)?;
        insert(bench, worker, inserted).map(|()| found)
    })
}

/// Two transactions each read what the other changes. Not both find what was there before and commit.
fn crossing<P: Protocol>() -> bool {
    let ended = race::<P, 2>([
        |bench, worker, _| read_and_change(bench, worker, X, Z),
        |bench, worker, _| read_and_change(bench, worker, Z, X),
    ]);
    !ended.iter().all(|ended| ended.is_some_and(|(found, _)| found == 1))
}

/// As [`crossing`], of keys in different leaves that each finds absent and the other inserts.
fn crossing_absences<P: Protocol>() -> bool {
    let ended = race::<P, 2>([
        |bench, worker, key| read_and_insert(bench, worker, [key, FAR + key]),
        |bench, worker, key| read_and_insert(bench, worker, [FAR + key, key]),
    ]);
    !ended.iter().all(|ended| ended.is_some_and(|(found, _)| found == -1))
}

/// If a transaction changes what another has read, its epoch is no earlier than the reader's, where epochs are ordered.
fn epochs<P: Protocol>() -> bool {
    let [reader, writer, _] = race::<P, 3>([
        |bench, worker, _| read_and_change(bench, worker, X, Y),
        |bench, worker, _| change_one(bench, worker, X),
        next_epoch,
    ]);
    are_ordered(reader, writer, 1, |read, written| written.epoch() >= read.epoch())
}

/// As [`epochs`], of a key that the reader finds absent.
fn epochs_of_absences<P: Protocol>() -> bool {
    let [reader, writer, _] = race::<P, 3>([
        |bench, worker, key| read_and_change(bench, worker, key, Y),
        |bench, worker, key| insert_one(bench, worker, key),
        next_epoch,
    ]);
    are_ordered(reader, writer, -1, |read, written| written.epoch() >= read.epoch())
}

fn next_epoch<P: Protocol>(_: &Bench<P>, worker: &mut P::Worker, _: u64) -> Ended {
    let core = worker.core();
    core.epochs.advance(&core.htm);
    None
}

/// If a transaction changes what another has read, its TID is above the reader's, where TIDs are the serial order. (The
/// writer rehearses first: its own last TID is below the reader's.)
fn tids<P: Protocol>() -> bool {
    let [writer, reader] = race::<P, 2>([
        |bench, worker, _| change_one(bench, worker, X),
        |bench, worker, _| read_and_change(bench, worker, X, Y),
    ]);
    are_ordered(reader, writer, 1, |read, written| written > read)
}

/// As [`tids`], of a key that the reader finds absent.
fn tids_of_absences<P: Protocol>() -> bool {
    let [writer, reader] = race::<P, 2>([
        |bench, worker, key| insert_one(bench, worker, key),
        |bench, worker, key| read_and_change(bench, worker, key, Y),
    ]);
    are_ordered(reader, writer, -1, |read, written| written > read)
}

/// As [`tids_of_absences`], of a key that was deleted. The writer unlinks its record before it inserts the key.
fn tids_of_unlinked<P: Protocol>() -> bool {
    let [writer, reader] = race::<P, 2>([
        |bench, worker, key| {
            if key == RACE {
                collect::<P>(worker);
                return insert_one(bench, worker, key);
            }
            [key, RACE].into_iter().for_each(|key| delete_again(bench, worker, key));
            None
        },
        |bench, worker, _| read_and_change(bench, worker, RACE, Y),
    ]);
    are_ordered(reader, writer, -1, |read, written| written > read)
}

/// Unlinks what was deleted, if that is a grace period ago.
fn collect<P: Protocol>(worker: &mut P::Worker) {
    (0..2).for_each(|_| worker.core().local.collect());
    worker.collect_garbage(2);
}

/// Inserts and deletes a key, after it has unlinked what was deleted before.
fn delete_again<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, key: u64) {
    collect::<P>(worker);
    insert_one(bench, worker, key);
    let delete = |worker: &mut P::Worker| worker.delete(&bench.cells, Key::Word8(key)).map(|_| 0);
    assert!(transact::<P>(worker, Mode::ReadWrite, delete).is_some(), "it runs alone");
}

/// Whether a reader that found this comes before the writer, if both commit.
fn are_ordered(reader: Ended, writer: Ended, before: i64, order: impl Fn(Tid, Tid) -> bool) -> bool {
    match (reader, writer) {
        (Some((found, read)), Some((_, written))) if found == before => order(read, written),
        _ => true,
    }
}

/// A snapshot shows all of a transaction or nothing.
fn snapshots<P: Protocol>() -> bool {
    let [shown, _] = race::<P, 2>([show, change_both]);
    shown.is_none_or(|(difference, _)| difference == 0)
}

/// As [`snapshots`], of one that a third thread makes.
fn snapshots_on_offer<P: Protocol>() -> bool {
    let [shown, ..] = race::<P, 3>([
        |bench, worker, key| {
            worker.core().includes = Epoch(0);
            show(bench, worker, key)
        },
        change_both,
        |_, worker, _| {
            let core = worker.core();
            core.epochs.advance_snapshot(&core.htm, true);
            None
        },
    ]);
    shown.is_none_or(|(difference, _)| difference == 0)
}

fn show<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, _: u64) -> Ended {
    transact::<P>(worker, Mode::ReadOnly, |worker| {
        let [x, z] = [read(bench, worker, X)?, read(bench, worker, Z)?];
        Ok(z - x)
    })
}

fn change_both<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, _: u64) -> Ended {
    transact::<P>(worker, Mode::ReadWrite, |worker| {
        change(bench, worker, X)?;
        change(bench, worker, Z).map(|()| 0)
    })
}

/// Each model holds, with so many preemptions. Without the fences of one of its files it fails.
pub(crate) fn check(preemptions: usize, models: &[(Model, &'static [&'static str])]) {
    let mut wrong = Vec::new();
    for (at, &(model, fenced)) in models.iter().enumerate() {
        if !holds(model, preemptions, &[]) {
            wrong.push(format!("model {at} fails"));
        }
        for file in fenced {
            if holds(model, preemptions, std::slice::from_ref(file)) {
                wrong.push(format!("model {at} holds without the fences of {file}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn loom_silo() {
    check(
        2,
        &[
            (crossing::<Silo>, &["shared/epoch_commit.rs"]),
            (crossing_absences::<Silo>, &["shared/epoch_commit.rs"]),
            (epochs::<Silo>, &["shared/epoch_commit.rs"]),
            (epochs_of_absences::<Silo>, &["shared/epoch_commit.rs"]),
        ],
    );
}

#[test]
fn loom_dbx() {
    check(
        2,
        &[
            (crossing::<Dbx>, &["shared/region.rs"]),
            (crossing_absences::<Dbx>, &["shared/region.rs"]),
            (snapshots::<Dbx>, &["shared/region.rs", "snapshot_numbered/snapshot.rs"]),
        ],
    );
}

#[test]
fn loom_dbx_tc() {
    const FENCED: &[&str] = &["shared/region.rs", "txn/src/snapshots.rs"];
    check(2, &[(snapshots::<DbxTc>, FENCED), (snapshots_on_offer::<DbxTc>, FENCED)]);
}

#[test]
fn loom_nowait() {
    check(
        2,
        &[(crossing::<NoWait>, &[]), (crossing_absences::<NoWait>, &["locking/gap.rs", "store/src/node_version.rs"])],
    );
}

#[test]
fn loom_occ() {
    check(
        2,
        &[
            (crossing::<Occ>, &["occ/commit.rs"]),
            (crossing_absences::<Occ>, &["occ/commit.rs"]),
            (tids::<Occ>, &["occ/commit.rs"]),
            (tids_of_absences::<Occ>, &["occ/commit.rs"]),
            (tids_of_unlinked::<Occ>, &["occ/timestamps.rs"]),
        ],
    );
}

#[test]
fn loom_tictoc() {
    check(
        2,
        &[
            (crossing::<TicToc>, &[]),
            (crossing_absences::<TicToc>, &["tictoc/commit.rs"]),
            (tids_of_absences::<TicToc>, &["tictoc/commit.rs"]),
        ],
    );
}

#[test]
fn loom_hto() {
    check(2, &[(crossing_absences::<Hto>, &["hto/commit.rs"])]);
    check(1, &[(epochs_of_absences::<Hto>, &["hto/commit.rs"])]);
}

#[test]
fn loom_cicada() {
    check(
        2,
        &[
            (crossing::<Cicada>, &["cicada/commit.rs"]),
            (crossing_absences::<Cicada>, &["cicada/commit.rs"]),
            (snapshots::<Cicada>, &[]),
        ],
    );
}
