//! Windows in every interleaving and under every reordering that the memory model allows, by loom: opened and closed by the code that
//! ships.
//!
//! What a worker writes in a window is a loom cell, which reports every access that is not ordered with that of who has closed them.
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-txn --release --lib loom`.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Shared {
    windows: Windows,
    published: UnsafeCell<u32>,
}

// SAFETY: what the model checks.
unsafe impl Sync for Shared {}
// SAFETY: it has no thread of its own.
unsafe impl Send for Shared {}

/// A worker opens one window, and others each close them once. Two of each are too many to try all interleavings in a minute.
fn model(closers: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(move || {
        let shared = Arc::new(Shared { windows: Windows::default(), published: UnsafeCell::new(0) });
        shared.windows.allow(1);
        let opener = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let _window = shared.windows.open(WorkerId(0));
                // SAFETY: what the model checks.
                shared.published.with_mut(|steps| unsafe { *steps += 1 });
            })
        };
        let mut threads = vec![opener];
        let close = |shared: &Shared| {
            let _closed = shared.windows.close();
            // SAFETY: what the model checks.
            shared.published.with(|steps| assert!(unsafe { *steps } <= 1));
        };
        threads.extend((1..closers).map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || close(&shared))
        }));
        close(&shared);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn loom_who_closes_windows_meets_none_that_is_open() {
    model(1);
}

#[test]
fn loom_several_who_close_windows_let_one_that_waits_be_opened() {
    model(2);
}
