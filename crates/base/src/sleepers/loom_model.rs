//! Model-checks a watcher that finds work, a thread that goes to sleep and a thread that queues work for a busy one.
//! Loom runs every interleaving and every reordering that the memory model allows. The work must be watched.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-base --release --lib loom`.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::*;

/// The fault of a broken thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The watcher's store that no thread watches may be reordered after its load of the count.
    ResignWithoutFence,
    /// The sleeper's increment may be reordered after its load of the watcher.
    LieDownWithoutFence,
    /// The sleeper looks into the queue before it is counted.
    CountedLate,
}

const WATCHER: usize = 0;
const SLEEPER: usize = 1;

impl Sleepers {
    fn resign_as(&self, broken: Broken) -> bool {
        if broken != Broken::ResignWithoutFence {
            return self.resign(WATCHER);
        }
        self.watcher.store(NONE, Ordering::Relaxed);
        self.are_any()
    }

    fn prepare_to_park_as(&self, broken: Broken) -> bool {
        if broken != Broken::LieDownWithoutFence {
            return self.prepare_to_park(SLEEPER);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.watcher.load(Ordering::Relaxed) == NONE
    }
}

/// Thread 0 watches and finds work. Thread 1 goes to sleep. The main thread queues work for a third thread,
/// which is busy.
fn step(broken: Broken) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (sleepers, queue) = (Arc::new(Sleepers::default()), Arc::new(Mutex::new(false)));
        assert!(sleepers.appoint(WATCHER));
        let watcher = {
            let sleepers = Arc::clone(&sleepers);
            thread::spawn(move || sleepers.resign_as(broken))
        };
        let sleeper = {
            let (sleepers, queue) = (Arc::clone(&sleepers), Arc::clone(&queue));
            thread::spawn(move || {
                let look = || *queue.lock().expect("no panic");
                let early = broken == Broken::CountedLate && look();
                let is_unwatched = sleepers.prepare_to_park_as(broken);
                let found = if broken == Broken::CountedLate { early } else { look() };
                is_unwatched && found && sleepers.appoint(SLEEPER)
            })
        };
        *queue.lock().expect("no panic") = true;
        let is_told = sleepers.lack_watcher();
        let told = [is_told, watcher.join().expect("no panic"), sleeper.join().expect("no panic")];
        assert!(told.contains(&true), "a thread sleeps, work waits, and no thread watches");
    }
}

fn check(broken: Broken) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(step(broken));
}

#[test]
fn loom_work_for_a_busy_thread_is_watched() {
    check(Broken::Nothing);
}

#[test]
fn loom_broken_sleepers_are_caught() {
    for broken in [Broken::ResignWithoutFence, Broken::LieDownWithoutFence, Broken::CountedLate] {
        let caught = std::panic::catch_unwind(|| check(broken)).is_err();
        assert!(caught, "{broken:?}");
    }
}
