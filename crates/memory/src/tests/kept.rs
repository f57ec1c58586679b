//! Versions are kept until what replaced them is durable, whichever worker retired them; nothing else waits for that.

use super::*;
use crate::garbage::BAG;
use seriatim_base::{DurablePoint, Epoch};
use seriatim_htm::Outside;
use std::ptr::NonNull;
use std::sync::Arc;

const BYTES: usize = 128;

/// Memory with a log that is durable up to epoch 4.
fn with_log() -> (Memory, Arc<DurablePoint>) {
    let (memory, point) = (memory(2), Arc::new(DurablePoint::new(Epoch(4))));
    memory.keep_versions(Arc::clone(&point));
    (memory, point)
}

/// One transaction, of `epoch`, that replaces versions.
fn replace(local: &mut Local, outside: &mut Outside, versions: usize, epoch: u64) -> Vec<NonNull<u8>> {
    local.enter();
    let replaced: Vec<_> = (0..versions).map(|_| local.allocate(outside, BYTES).expect("a few kilobytes")).collect();
    for &version in &replaced {
        // SAFETY: ours alone.
        unsafe {
            version.write_bytes(0x5A, BYTES);
            local.retire_version(version, BYTES, Epoch(epoch));
        }
    }
    local.leave();
    replaced
}

fn are_intact(versions: &[NonNull<u8>]) -> bool {
    // SAFETY: mapped until the memory is dropped; whether they still hold what was written is the question.
    versions.iter().all(|version| unsafe { std::slice::from_raw_parts(version.as_ptr(), BYTES) } == [0x5A; BYTES])
}

#[test]
fn a_version_comes_back_when_its_successor_is_durable_and_not_before() {
    let (memory, point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    // A bag that is full, one that is not, and one of an epoch that is durable already.
    let kept = replace(&mut local, &mut outside, BAG.get() + 1, 6);
    local.collect();
    replace(&mut local, &mut outside, 1, 4);
    local.collect();
    assert_eq!(memory.in_use_bytes(), (BAG.get() + 1) * BYTES, "what is durable waits for nothing");
    assert!(are_intact(&kept));
    assert!(point.advance(Epoch(5)));
    local.collect();
    assert!(are_intact(&kept) && local.waiting() == BAG.get() + 1);
    assert!(point.advance(Epoch(6)));
    local.collect();
    assert_eq!((memory.in_use_bytes(), local.waiting()), (0, 0));
}

#[test]
fn a_version_is_kept_for_a_holder_of_an_epoch_before_its_successors() {
    let (memory, point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let hold = point.hold();
    let kept = replace(&mut local, &mut outside, BAG.get() + 1, 6);
    assert!(point.advance(Epoch(6)));
    local.collect();
    assert!(are_intact(&kept) && local.waiting() == BAG.get() + 1);
    drop(hold);
    local.collect();
    assert_eq!((memory.in_use_bytes(), local.waiting()), (0, 0));
}

#[test]
fn a_retired_block_that_replaced_nothing_waits_only_for_its_grace_period() {
    let (memory, _point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    local.enter();
    // Of one bag: a version that is kept, and memory of epoch 0.
    for epoch in [6, 0] {
        let block = local.allocate(&mut outside, BYTES).expect("a few bytes");
        // SAFETY: ours alone.
        unsafe { local.retire_version(block, BYTES, Epoch(epoch)) };
    }
    local.leave();
    local.collect();
    assert_eq!((memory.in_use_bytes(), local.waiting()), (BYTES, 1));
}

#[test]
fn nothing_else_waits_for_the_durable_point() {
    let (memory, _point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let kept = replace(&mut local, &mut outside, 1, 9);
    local.enter();
    local.defer([1, 2, 3]);
    local.leave();
    local.collect();
    assert_eq!(local.ready(), Some([1, 2, 3]));
    // Neither what is no version, nor one that replaced nothing, in the same bag as a version and behind it.
    for times in [1, 3 * BAG.get()] {
        local.enter();
        for _ in 0..times {
            let [block, never_there] = [0; 2].map(|_| local.allocate(&mut outside, BYTES).expect("a block"));
            // SAFETY: ours alone.
            unsafe {
                local.retire(block, BYTES);
                local.retire_version(never_there, BYTES, Epoch(0));
            }
        }
        local.leave();
        local.collect();
        assert_eq!((memory.in_use_bytes(), local.waiting()), (BYTES, 1));
    }
    assert!(are_intact(&kept));
}

#[test]
fn a_busy_worker_gives_back_versions_that_a_large_commit_replaced() {
    let (memory, point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    replace(&mut local, &mut outside, 1000 * BAG.get(), 5);
    local.collect();
    assert_eq!(local.waiting(), 1000 * BAG.get());
    assert!(point.advance(Epoch(5)));
    for transactions in 1.. {
        local.enter();
        local.leave();
        if local.waiting() == 0 {
            assert!(transactions < 60, "{transactions} transactions later");
            break;
        }
    }
    assert_eq!(memory.in_use_bytes(), 0);
}

#[test]
fn large_commits_one_after_the_other_leave_no_more_than_a_few_of_them_wait() {
    let (memory, point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    for epoch in 5..100 {
        replace(&mut local, &mut outside, 200 * BAG.get(), epoch);
        assert!(point.advance(Epoch(epoch)));
        assert!(local.waiting() <= 3 * 200 * BAG.get(), "{} wait in epoch {epoch}", local.waiting());
    }
}

#[test]
fn without_a_log_the_grace_period_is_all() {
    let memory = memory(1);
    let mut local = register(&memory);
    replace(&mut local, &mut Outside::claim(), 3, 9);
    local.collect();
    assert_eq!(memory.in_use_bytes(), 0);
}

#[test]
fn a_worker_that_inherits_garbage_keeps_it_as_long() {
    let (memory, point) = with_log();
    let (mut heir, mut outside) = (register(&memory), Outside::claim());
    let mut leaving = register(&memory);
    let kept = replace(&mut leaving, &mut outside, 2 * BAG.get(), 7);
    drop(leaving);
    heir.collect();
    assert!(are_intact(&kept) && heir.waiting() == 2 * BAG.get());
    assert!(point.advance(Epoch(7)));
    heir.collect();
    assert_eq!(memory.in_use_bytes(), 0);
}

#[test]
fn once_the_log_has_stopped_they_are_kept_for_good() {
    let (memory, point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let kept = replace(&mut local, &mut outside, 3, 5);
    point.finish();
    assert!(!point.advance(Epoch(8)));
    local.collect();
    assert!(are_intact(&kept));
}

/// Bags of a wave are there for the next one, and go when none follows although something always waits.
#[test]
fn waves_of_one_size_take_no_more_than_the_first_and_what_they_took_comes_back() {
    let (memory, point) = with_log();
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let transactions = |local: &mut Local, epoch| {
        assert!(point.advance(Epoch(epoch)));
        for _ in 0..60 {
            local.enter();
            local.leave();
        }
        memory.in_use_bytes()
    };
    let mut taken = Vec::new();
    for epoch in 5..30 {
        replace(&mut local, &mut outside, 1000 * BAG.get(), epoch);
        replace(&mut local, &mut outside, 1, epoch + 1);
        taken.push(transactions(&mut local, epoch));
    }
    assert!(taken[0] > 1000 * size_of::<usize>() && taken.iter().all(|&bytes| bytes <= taken[0]), "{taken:?}");
    replace(&mut local, &mut outside, 1, 1000);
    let left = (30..80).map(|epoch| transactions(&mut local, epoch)).last();
    assert!(left < Some(taken[0] / 10) && local.waiting() == 1, "{taken:?} left {left:?}");
}
