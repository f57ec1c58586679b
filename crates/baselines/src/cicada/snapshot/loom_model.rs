//! Model-checks the clock and the announcements of timestamps with loom, in every interleaving and under every
//! reordering that the memory model allows.
//!
//! The clock stands still in a model, so timestamps that pass raise the floor. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p seriatim-baselines --release --lib loom`.

use seriatim_memory::Options;

use super::*;
use crate::loom_model::{check, side_by_side};

/// Transactions under way, the epoch, and the timestamp of a row's writer.
struct Shared {
    under_way: UnderWay,
    epoch: AtomicU64,
    row: AtomicU64,
}

/// A worker's timestamp, and what it has read.
type Found = (u64, u64);

/// Three threads: a transaction, one that looks, and one that changes what both read.
fn race(parts: [fn(&Shared, u64) -> Found; 3]) -> [Found; 3] {
    let memory = Memory::new(Options { workers_max: 3, huge_pages: false, ..Options::default() }).expect("memory");
    let under_way = UnderWay::new(Arc::new(Clock::new(&memory)), &memory);
    (0..3).for_each(|worker| under_way.add(WorkerId(worker)));
    side_by_side(Shared { under_way, epoch: AtomicU64::new(1), row: AtomicU64::new(0) }, parts)
}

/// A transaction that writes the row.
fn write(Shared { under_way, row, .. }: &Shared, _: u64) -> Found {
    let worker = WorkerId(0);
    under_way.begin(worker);
    let at = under_way.clock.draw(worker, 0);
    under_way.drawn(worker, at);
    under_way.clock.pass(at);
    row.store(at, Ordering::Relaxed);
    under_way.end(worker);
    (at, 0)
}

/// Passes a timestamp of a third worker.
fn pass_time(Shared { under_way, .. }: &Shared, _: u64) -> Found {
    let at = under_way.clock.draw(WorkerId(2), 0);
    under_way.clock.pass(at);
    (at, 0)
}

/// A reader sees a write whose timestamp is not above its own.
fn sees([(written, _), (at, seen), _]: [Found; 3]) -> bool {
    written > at || seen == written
}

fn snapshots() -> bool {
    let read = |shared: &Shared, _: u64| (shared.under_way.read_at(), shared.row.load(Ordering::Relaxed));
    sees(race([write, read, pass_time]))
}

/// As [`snapshots`], at the timestamp that a helper finds for later ones.
fn later_snapshots() -> bool {
    let read = |Shared { under_way, row, .. }: &Shared, _: u64| {
        under_way.since(Epoch(1));
        (under_way.min_rts.load(Ordering::Relaxed), row.load(Ordering::Relaxed))
    };
    sees(race([write, read, pass_time]))
}

/// If a transaction has a higher timestamp than another, its epoch is no earlier than the one that the other read
/// before it drew.
fn epochs() -> bool {
    let [(low, before), (high, epoch), _] = race([
        |Shared { under_way, epoch, .. }, _| {
            let before = epoch.load(Ordering::Acquire);
            (under_way.clock.draw(WorkerId(0), 0), before)
        },
        |Shared { under_way, epoch, .. }, _| {
            let at = under_way.clock.draw(WorkerId(1), 0);
            under_way.clock.pass(at);
            (at, epoch.load(Ordering::Acquire))
        },
        |Shared { epoch, .. }, _| (0, epoch.fetch_add(1, Ordering::AcqRel)),
    ]);
    low > high || epoch >= before
}

#[test]
fn loom_snapshots_see_what_is_below_them() {
    const FENCED: &[&str] = &["cicada/snapshot.rs", "cicada/clock.rs"];
    check(3, &[(snapshots, FENCED), (later_snapshots, FENCED)]);
}

#[test]
fn loom_higher_timestamps_have_no_earlier_epochs() {
    check(3, &[(epochs, &["cicada/clock.rs"])]);
}
