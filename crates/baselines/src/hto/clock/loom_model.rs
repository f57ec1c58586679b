//! Model-checks the clock with loom, in every interleaving and under every reordering that the memory model allows.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-baselines --release --lib loom`.

use seriatim_memory::Options;

use super::*;
use crate::loom_model::{check, holds, side_by_side};

const ONE: WorkerId = WorkerId(0);

/// A clock, and what its transactions leave.
struct Shared {
    clock: Clock,
    /// The timestamp of the last transaction.
    left: AtomicU64,
}

/// Two threads that share a clock.
type Parts = [fn(&Shared, u64) -> [u64; 2]; 2];

fn race(parts: Parts) -> [[u64; 2]; 2] {
    let options = Options { workers_max: 2, huge_pages: false, ..Options::default() };
    let clock = Clock::new(&Memory::new(options).expect("memory"), [1, 0], true);
    clock.add(ONE);
    side_by_side(Shared { clock, left: AtomicU64::new(0) }, parts)
}

/// Ends a transaction that drew this timestamp.
fn leave(Shared { clock, left, .. }: &Shared, now: u64) -> [u64; 2] {
    left.store(now, Ordering::Relaxed);
    clock.end(ONE);
    [now, 0]
}

fn look(Shared { clock, left, .. }: &Shared, _: u64) -> [u64; 2] {
    [clock.safe(), left.load(Ordering::Relaxed)]
}

/// What a transaction with a safe timestamp has left is seen.
fn is_seen([[now, _], [safe, left]]: [[u64; 2]; 2]) -> bool {
    now > safe || left == now
}

fn safe_timestamps() -> bool {
    is_seen(race([|shared, _| leave(shared, shared.clock.draw(ONE)), look]))
}

/// A canary: the worker stores nothing before it draws.
fn stalled_draws() -> bool {
    is_seen(race([
        |shared, _| {
            let now = shared.clock.next.fetch_add(1, Ordering::AcqRel) << COUNT_SHIFT;
            shared.clock.active(ONE, Touch::Store).store(now, Ordering::Release);
            leave(shared, now)
        },
        look,
    ]))
}

#[test]
fn loom_effects_of_safe_transactions_are_seen() {
    check(3, &[(safe_timestamps, &[])]);
    assert!(!holds(stalled_draws, 3, &[]), "a worker that stores nothing is passed");
}
