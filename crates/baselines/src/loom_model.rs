//! loom runs transactions of protocols in every interleaving, and under every reordering that the memory model
//! allows. What runs is what ships: the protocols of this crate and of `seriatim-protocol`, from begin to commit.
//!
//! Two threads that each store a word and then load the other's word need a fence in between, or both may load the old
//! value. Protocols have such pairs: locks and validation, gap locks and latches, snapshots and commits. A model is a
//! question that such a pair answers. A canary omits the fences of a file, and the model fails.
//!
//! A model watches the words that two of its threads touch when they rehearse ([`seriatim_base::word`]). Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p seriatim-baselines --release --lib loom`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use seriatim_base::Tid;
use seriatim_base::word::model;
use seriatim_catalog::Key;
use seriatim_htm::HtmMode;
use seriatim_protocol::dbx::Dbx;
use seriatim_protocol::silo::Silo;
use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Priority, Protocol, Worker};

use crate::cicada::Cicada;
use crate::common::Bench;
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

/// Runs the parts side by side, each by a worker of its own. They rehearse before, one after the other and with other
/// keys.
fn race<P: Protocol, const N: usize>(parts: [Part<P>; N]) -> [Ended; N] {
    let bench = Arc::new(Bench::<P>::open(HtmMode::Absent, &[0, 0, 0]));
    // The TIDs of Y are above those of others.
    let mut loader = bench.worker();
    (0..9)
        .for_each(|_| _ = transact::<P>(&mut loader, Mode::ReadWrite, |worker| change(&bench, worker, Y).map(|()| 0)));
    let mut keys = 100;
    let mut workers = parts.map(|part| (part, bench.worker()));
    let touched = workers.each_mut().map(|(part, worker)| {
        keys += 10;
        model::rehearse(|| _ = part(&bench, worker, keys))
    });
    assert!(model::watch(&touched) > 0, "the parts of a model share words");
    let threads = workers.map(|(part, mut worker)| {
        let bench = Arc::clone(&bench);
        spawn(move || (part(&bench, &mut worker, RACE), worker))
    });
    // Workers leave one at a time: they hand over garbage under a lock that is not loom's.
    threads.map(|thread| thread.join().expect("no panic").0)
}

fn spawn<R: Send + 'static>(part: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(part).expect("a thread of loom")
}

/// A question that must be answered with yes in each execution.
type Model = fn() -> bool;

/// Whether the model holds in each execution, without the fences of these files.
fn holds(model: Model, broken: &'static [&'static str]) -> bool {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
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

/// As [`crossing`], of keys that each finds absent and the other inserts.
fn crossing_absences<P: Protocol>() -> bool {
    let ended = race::<P, 2>([
        |bench, worker, keys| read_and_insert(bench, worker, [keys, keys + 1]),
        |bench, worker, keys| read_and_insert(bench, worker, [keys + 1, keys]),
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
        |bench, worker, keys| read_and_change(bench, worker, keys, Y),
        |bench, worker, keys| transact::<P>(worker, Mode::ReadWrite, |worker| insert(bench, worker, keys).map(|()| 0)),
        next_epoch,
    ]);
    are_ordered(reader, writer, -1, |read, written| written.epoch() >= read.epoch())
}

fn next_epoch<P: Protocol>(_: &Bench<P>, worker: &mut P::Worker, _: u64) -> Ended {
    let core = worker.core();
    core.epochs.advance(&core.htm);
    None
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

/// The models hold; and of each canary the model fails without the fences of the file.
fn check(models: &[Model], canaries: &[(Model, &'static [&'static str])]) {
    for (at, model) in models.iter().enumerate() {
        assert!(holds(*model, &[]), "model {at}");
    }
    for (model, broken) in canaries {
        assert!(!holds(*model, broken), "it holds without the fences of {broken:?}");
    }
}

#[test]
fn loom_silo() {
    check(
        &[crossing::<Silo>, crossing_absences::<Silo>, epochs::<Silo>, epochs_of_absences::<Silo>],
        &[(crossing::<Silo>, &["shared/epoch_commit.rs"]), (epochs::<Silo>, &["shared/epoch_commit.rs"])],
    );
}

#[test]
fn loom_canary_dbx_without_the_fences_of_commits_and_snapshots_is_caught() {
    check(
        &[],
        &[
            (crossing::<Dbx>, &["shared/region.rs"]),
            (snapshots::<Dbx>, &["shared/region.rs"]),
            (snapshots::<Dbx>, &["snapshot_numbered/snapshot.rs"]),
        ],
    );
}

#[test]
fn loom_nowait() {
    check(&[crossing::<NoWait>, crossing_absences::<NoWait>], &[(crossing_absences::<NoWait>, &["locking/gap.rs"])]);
}

#[test]
fn loom_occ_and_tictoc() {
    check(&[crossing::<Occ>, crossing::<TicToc>], &[]);
}

#[test]
fn loom_cicada() {
    check(&[crossing::<Cicada>, crossing_absences::<Cicada>], &[(crossing::<Cicada>, &["cicada/commit.rs"])]);
}
