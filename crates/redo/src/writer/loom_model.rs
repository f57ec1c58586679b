//! Model-checks the slot's word against ticker and logger with loom, in every interleaving and under every
//! reordering that the memory model allows. No writer writes into an epoch that a logger has closed.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-redo --release --lib loom`.

use super::*;
use loom::sync::Arc;
use loom::thread;
use seriatim_base::word::model;

/// The fault of a broken writer or logger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The slot's store may be reordered after the load of the epoch, and the logger's loads of both as well.
    NoFence,
    /// The logger reads the streams before the slots.
    StreamsFirst,
    /// The commit keeps the epoch that it announced, and does not read the epoch again.
    EpochAtBegin,
}

/// A writer commits twice while a ticker advances the epoch, and a logger steps once. The stream is the newest
/// committed epoch. Commits that the logger does not find there must be in epochs above the one that it closes.
fn step(broken: Broken) -> impl Fn() + Sync + Send + 'static {
    move || {
        let slot = Arc::new(Slot::new());
        let epoch = Arc::new(AtomicU64::new(5));
        // The number of commits in the stream.
        let stream = Arc::new(AtomicU64::new(0));
        let writer = {
            let (slot, epoch, stream) = (Arc::clone(&slot), Arc::clone(&epoch), Arc::clone(&stream));
            thread::spawn(move || {
                [1, 2].map(|number| {
                    let current = epoch.load(Ordering::Acquire);
                    slot.announce(Epoch(current));
                    let read = if broken == Broken::EpochAtBegin { current } else { epoch.load(Ordering::Acquire) };
                    stream.store(number, Ordering::Release);
                    slot.leave();
                    read
                })
            })
        };
        let ticker = {
            let epoch = Arc::clone(&epoch);
            thread::spawn(move || {
                epoch.fetch_add(1, Ordering::AcqRel);
            })
        };
        let early = stream.load(Ordering::Acquire);
        let current = Epoch(epoch.load(Ordering::Acquire));
        let closed = Slot::closed(current, std::iter::once(&*slot));
        let found = if broken == Broken::StreamsFirst { early } else { stream.load(Ordering::Acquire) };
        let epochs = writer.join().expect("the writer");
        ticker.join().expect("the ticker");
        for missed in &epochs[found as usize..] {
            assert!(*missed > closed.0, "{missed} was closed by {closed:?}");
        }
    }
}

fn check(broken: Broken) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    model::begin(if broken == Broken::NoFence { &["writer.rs"] } else { &[] });
    builder.check(step(broken));
}

#[test]
fn loom_a_closed_epoch_is_not_written_into() {
    check(Broken::Nothing);
}

#[test]
fn loom_broken_slots_are_caught() {
    for broken in [Broken::NoFence, Broken::StreamsFirst, Broken::EpochAtBegin] {
        let caught = std::panic::catch_unwind(|| check(broken)).is_err();
        assert!(caught, "{broken:?}");
    }
}
