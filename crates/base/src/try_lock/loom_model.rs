//! Model-checks a session that uses its worker twice, and another that takes the worker meanwhile if it is free. Loom
//! runs every interleaving and every reordering that the memory model allows, and finds unordered accesses.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-base --release --lib loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

/// A worker with its transactions so far.
struct Worker {
    lock: TryLock,
    transactions: UnsafeCell<usize>,
}

// SAFETY: the model checks that accesses are ordered.
unsafe impl Sync for Worker {}

impl Worker {
    /// Runs a transaction if the worker is free: whether it did.
    fn transact(&self, is_broken: bool) -> bool {
        let is_mine = self.lock.try_lock();
        if is_mine {
            // SAFETY: as above.
            self.transactions.with_mut(|count| unsafe { *count += 1 });
            if is_broken { self.lock.unlock_relaxed() } else { self.lock.unlock() }
        }
        is_mine
    }
}

fn check(is_broken: bool) {
    loom::model(move || {
        let worker = Arc::new(Worker { lock: TryLock::default(), transactions: UnsafeCell::new(0) });
        let thief = Arc::clone(&worker);
        let thief = thread::spawn(move || usize::from(thief.transact(is_broken)));
        let own = (0..2).filter(|_| worker.transact(is_broken)).count();
        let stolen = thief.join().expect("no panic");
        assert!(own + stolen > 0, "a session is in the way of the other, not of itself");
        // SAFETY: the other session has ended.
        assert_eq!(worker.transactions.with(|count| unsafe { *count }), own + stolen);
    });
}

#[test]
fn loom_a_worker_is_used_by_one_session_at_a_time() {
    check(false);
}

#[test]
#[should_panic]
fn loom_a_lock_that_is_freed_without_release_is_caught() {
    check(true);
}
