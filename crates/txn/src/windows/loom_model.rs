//! Windows in every interleaving and under every reordering that the memory model allows, by loom: opened and
//! closed by the code that ships.
//!
//! A worker in a window writes a loom cell. loom reports every access to it that is not ordered with that of a
//! thread that has closed the windows. The worker also defers an addition, which every closing thread finds
//! published. Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-txn --release --lib loom`.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Shared {
    windows: Windows,
    rows: Arc<Rows>,
}

#[derive(Default)]
struct Rows {
    published: UnsafeCell<u32>,
    pending: UnsafeCell<u32>,
}

// SAFETY: the model checks that accesses are ordered.
unsafe impl Sync for Rows {}
// SAFETY: they have no thread of their own.
unsafe impl Send for Rows {}

impl Rows {
    fn change(of: &UnsafeCell<u32>, by: impl FnOnce(&mut u32)) {
        // SAFETY: the model checks that accesses are ordered.
        of.with_mut(|rows| by(unsafe { &mut *rows }));
    }

    fn read(of: &UnsafeCell<u32>) -> u32 {
        // SAFETY: the model checks that accesses are ordered.
        of.with(|rows| unsafe { *rows })
    }
}

/// A worker opens one window, in which it `defers` or publishes a row, and others each close them once. Two
/// of each are too many to try all interleavings in a minute.
fn model(closers: usize, defers: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(move || {
        let shared = Arc::new(Shared { windows: Windows::default(), rows: Arc::default() });
        shared.windows.allow(1);
        if defers {
            let rows = Arc::clone(&shared.rows);
            shared.windows.deferrals().apply_by(Box::new(move |_| {
                Rows::change(&rows.published, |published| *published += Rows::read(&rows.pending));
                Rows::change(&rows.pending, |pending| *pending = 0);
            }));
        }
        let opener = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let window = shared.windows.open(WorkerId(0));
                match defers {
                    true => {
                        Rows::change(&shared.rows.pending, |pending| *pending += 1);
                        window.defers();
                    }
                    false => Rows::change(&shared.rows.published, |published| *published += 1),
                }
            })
        };
        let mut threads = vec![opener];
        let close = |shared: &Shared| {
            let _closed = shared.windows.close();
            assert!(Rows::read(&shared.rows.published) <= 1);
            assert_eq!(Rows::read(&shared.rows.pending), 0, "something is pending");
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
fn loom_a_thread_that_closed_the_windows_finds_none_open() {
    model(1, false);
}

#[test]
fn loom_several_threads_that_close_windows_let_a_waiting_worker_open_one() {
    model(2, false);
}

#[test]
fn loom_a_thread_that_closes_windows_finds_deferred_additions_published() {
    model(1, true);
}

#[test]
fn loom_several_threads_that_close_windows_find_deferred_additions_published() {
    model(2, true);
}
