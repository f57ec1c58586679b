//! Model-checks the end of an offer with loom, in every interleaving and under every reordering that the memory model
//! allows. A reader takes the newest snapshot. The helper withdraws the offer, and memory releases what it kept.
//!
//! That a snapshot shows commits as a whole is a model of `seriatim-baselines`. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p seriatim-txn --release --lib loom`.

use loom::thread;
use seriatim_base::word::model;
use seriatim_htm::{Budget, HtmMode};
use seriatim_memory::{Memory, Options};

use super::*;
use crate::{Core, Environment};

/// Of a thread of loom. A database needs more than the default.
const STACK_BYTES: usize = 1 << 18;

fn spawn(part: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(part).expect("a thread of loom")
}

/// A database that keeps versions for readers of snapshots.
fn environment() -> Environment {
    let memory = Memory::new(Options { workers_max: 2, huge_pages: false, ..Options::default() }).expect("memory");
    let environment = Environment::new(Htm::new(HtmMode::Absent).expect("it is everywhere"), memory, Budget::default());
    environment.memory.keep_snapshots();
    environment.epochs.snapshots().allow(SnapshotTerms {
        number: Some(Arc::new(CacheAligned(AtomicU64::new(1)))),
        ends_epochs: false,
        by_readers: false,
        interval: Duration::from_millis(20),
        wanted_min: 1,
        workers: 2,
    });
    environment
}

fn offer(environment: &Environment) {
    environment.memory.resume_snapshots(environment.epochs.current());
    environment.epochs.advance(&environment.htm);
    assert!(environment.epochs.advance_snapshot(&environment.htm, true).is_some(), "snapshots are allowed");
}

/// Memory keeps what a reader needs that has taken an offer.
fn read(core: &mut Core) {
    core.enter();
    if let Some(taken) = core.epochs.newest_snapshot() {
        let released = core.local.released().expect("versions are kept for snapshots");
        assert!(released <= taken.whole, "{taken:?} is read, and {released:?} was released");
    }
    core.local.leave();
}

/// Two turns of the helper. None has read since the last one.
fn turn(environment: &Environment, withdraws_late: bool) {
    if withdraws_late {
        environment.memory.pass_snapshot(Epoch(u64::MAX));
    }
    (0..2).for_each(|_| environment.advance_snapshot());
}

fn end_of_an_offer(withdraws_late: bool) {
    model::begin(&[]);
    let environment = environment();
    let mut core = environment.core().expect("a free slot");
    offer(&environment);
    let touched = [model::rehearse(|| read(&mut core)), model::rehearse(|| turn(&environment, withdraws_late))];
    offer(&environment);
    assert!(model::watch(&touched) > 0, "they share the word of the offer");
    let helper = spawn(move || turn(&environment, withdraws_late));
    read(&mut core);
    helper.join().expect("no panic");
}

/// Whether the model holds.
fn holds(withdraws_late: bool) -> bool {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    let model = move || spawn(move || end_of_an_offer(withdraws_late)).join().expect("no panic");
    std::panic::catch_unwind(|| builder.check(model)).is_ok()
}

#[test]
fn loom_memory_keeps_what_a_reader_of_an_offer_needs() {
    assert!(holds(false));
}

#[test]
fn loom_canary_an_offer_that_is_withdrawn_after_the_seal_is_caught() {
    assert!(!holds(true));
}
