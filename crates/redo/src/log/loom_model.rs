//! Model-checks the progress of loggers with loom, in every interleaving and under every reordering that the memory
//! model allows.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-redo --release --lib loom`.

use loom::sync::Arc;
use loom::thread;
use seriatim_base::word::model;

use super::*;

/// Two loggers have flushed an epoch at the same time: one of them moves the durable point there.
fn flush() {
    let loggers = || [(); 2].map(|()| CacheAligned(Progress::new(Epoch(4))));
    let shared = Arc::new((loggers(), NewestLogged::default()));
    let flushed = |(loggers, newest_logged): &([CacheAligned<Progress>; 2], NewestLogged), index| {
        newest_logged.note(Epoch(5));
        Progress::advance(loggers, index, [Epoch(5); 2], newest_logged)
    };
    let other = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || flushed(&shared, 1))
    };
    let durable = flushed(&shared, 0).max(other.join().expect("no panic"));
    assert_eq!(durable, Epoch(5), "both have flushed it");
}

/// A caller requests that an epoch is recorded, and reads the current one then. A logger that closes the latter finds
/// the request.
fn request() {
    let shared = Arc::new((Slot::new(), NewestLogged::default(), AtomicU64::new(5)));
    let [ticker, logger] = [Arc::clone(&shared), Arc::clone(&shared)];
    let ticker = thread::spawn(move || ticker.2.fetch_add(1, Ordering::AcqRel));
    let logger = thread::spawn(move || {
        let (slot, newest_logged, epoch) = &*logger;
        let closed = Slot::closed(Epoch(epoch.load(Ordering::Acquire)), std::iter::once(slot));
        (closed, newest_logged.get())
    });
    shared.1.ask(Epoch(4));
    let current = Epoch(shared.2.load(Ordering::Acquire));
    let (closed, found) = logger.join().expect("the logger");
    ticker.join().expect("the ticker");
    assert!(closed < current || found == Epoch(4), "{closed:?} was closed, {current:?} read, {found:?} found");
}

/// Whether the model holds without the fences of these files.
fn holds(step: fn(), broken: &'static [&'static str]) -> bool {
    model::begin(broken);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    std::panic::catch_unwind(|| builder.check(step)).is_ok()
}

#[test]
fn loom_one_of_two_loggers_moves_the_durable_point() {
    assert!(holds(flush, &[]));
}

#[test]
fn loom_a_requested_epoch_is_recorded() {
    assert!(holds(request, &[]));
}

#[test]
fn loom_loggers_without_fences_are_caught() {
    assert!(!holds(flush, &["redo/src/log.rs"]));
    assert!(!holds(request, &["redo/src/log.rs"]));
    assert!(!holds(request, &["redo/src/writer.rs"]));
}
