//! Model-checks a thread that locks a gap beside one that splits its bucket, with loom. Either the split is refused, or
//! the other thread finds that the bucket has changed.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-store --release --lib loom`.

use std::sync::Arc;

use loom::thread;
use seriatim_base::word::model;
use seriatim_htm::HtmMode;

use super::*;
use crate::node_version::NodeVersion;

/// Whether the gap of an absent key was locked, as protocols do that lock gaps.
fn lock(bucket: &Bucket, seen: State) -> bool {
    let node_version = NodeVersion::new(&bucket.word, seen.0);
    let locked = bucket.gap.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // SAFETY: the bucket lives as long as the model.
    locked && unsafe { node_version.still_valid() }
}

/// Whether the bucket was split.
fn split(bucket: &Bucket, seen: State, htm: &Htm) -> bool {
    Change { bucket, seen, gate: Unheld, stores: &[] }.run(&mut Latching(htm)).is_ok()
}

fn step() {
    let htm = Htm::new(HtmMode::Absent).expect("it is everywhere");
    let bucket = Arc::new(Bucket::default());
    let begin = |at: State| {
        bucket.word.store(at.0, Ordering::Relaxed);
        bucket.gap.store(0, Ordering::Relaxed);
        at
    };
    let rehearsed = begin(State::NEW);
    let touched = [model::rehearse(|| _ = lock(&bucket, rehearsed)), {
        begin(rehearsed);
        model::rehearse(|| _ = split(&bucket, rehearsed, &htm))
    }];
    let seen = begin(rehearsed.changed());
    assert_eq!(model::watch(&touched), 2, "the word and the gap");
    let locking = {
        let bucket = Arc::clone(&bucket);
        thread::spawn(move || lock(&bucket, seen))
    };
    let was_split = split(&bucket, seen, &htm);
    let was_locked = locking.join().expect("no panic");
    assert!(!(was_locked && was_split), "the key moved to a bucket whose gap is not locked");
}

/// Whether the model holds without the fences of these files.
fn holds(broken: &'static [&'static str]) -> bool {
    std::panic::catch_unwind(|| {
        loom::model::Builder::new().check(move || {
            model::begin(broken);
            step();
        });
    })
    .is_ok()
}

#[test]
fn loom_a_bucket_is_not_split_beside_a_lock_of_its_gap() {
    assert!(holds(&[]));
}

#[test]
fn loom_gaps_and_splits_without_fences_are_caught() {
    assert!(!holds(&["hash/change.rs"]));
    assert!(!holds(&["node_version.rs"]));
}
