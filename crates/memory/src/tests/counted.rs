//! Lists that grow with a transaction: counted, refused at their bound, given back.

use super::*;
use crate::OutOfMemory;
use seriatim_base::{DurablePoint, Epoch};
use seriatim_htm::Outside;
use std::sync::Arc;

/// Items that make a list larger than what it keeps.
const MANY: usize = 5000;

fn fill(list: &mut crate::CountedVec<u64>, items: usize) {
    list.clear();
    (0..items as u64).for_each(|item| list.try_push(item).expect("no limit"));
}

#[test]
fn the_growth_of_a_list_counts_until_it_is_dropped() {
    let memory = memory(1);
    let local = register(&memory);
    let mut list = local.counted::<u64>(64);
    fill(&mut list, 64);
    assert_eq!(memory.in_use_bytes(), 0, "what it has from the start does not count");
    fill(&mut list, MANY);
    assert!((MANY - 64) * 8 <= memory.in_use_bytes() && memory.in_use_bytes() <= 2 * MANY * 8);
    assert_eq!(memory.noted_bytes(), memory.in_use_bytes());
    assert!(list.iter().copied().eq(0..MANY as u64));
    drop(list);
    assert_eq!(memory.in_use_bytes(), 0);
}

#[test]
fn a_large_list_is_given_back_after_small_transactions_in_a_row() {
    let memory = memory(1);
    let mut list = register(&memory).counted::<u64>(4);
    fill(&mut list, MANY);
    let large = memory.noted_bytes();
    for round in 0..100 {
        // One large transaction in ten keeps it.
        fill(&mut list, if round % 10 == 0 { MANY } else { 3 });
        assert_eq!(memory.noted_bytes(), large, "round {round}");
    }
    let small = (0..).take_while(|_| {
        fill(&mut list, 3);
        memory.noted_bytes() == large
    });
    assert!((5..20).contains(&small.count()));
    assert!(memory.noted_bytes() <= 1 << 10, "{}", memory.noted_bytes());
    fill(&mut list, MANY);
    assert!(list.iter().copied().eq(0..MANY as u64));
    list.rest();
    assert_eq!((list.len(), memory.noted_bytes()), (0, 0), "at rest all of it goes at once");
}

#[test]
fn a_list_is_refused_above_the_limit_and_leaves_less_for_rows() {
    const LIMIT: usize = 1 << 20;
    let memory = Memory::new(Options { workers_max: 1, limit_bytes: Some(LIMIT), ..Options::default() }).expect("sane");
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let mut list = local.counted::<[u64; 128]>(0);
    let pushed = (0..1 << 20).take_while(|_| list.try_push([0; 128]).is_ok()).count();
    assert!(pushed << 10 > LIMIT && pushed << 10 < LIMIT + (17 << 20), "{pushed} KiB");
    assert_eq!(list.len(), pushed, "a refused item is not there");
    assert_eq!(local.allocate(&mut outside, 64), Err(OutOfMemory), "no room for rows");
    let mut must = local.counted::<u64>(0);
    fill_anyway(&mut must);
    list.rest();
    local.allocate(&mut outside, 64).expect("room for rows");
    list.try_push([0; 128]).expect("room for lists");
}

/// As after a recovery: the memory that it took stays, and reads and deletes continue nevertheless.
#[test]
fn a_list_has_its_room_above_what_was_taken_before_the_limit_came() {
    const LIMIT: usize = 1 << 20;
    let memory = Memory::new(Options { workers_max: 1, limit_bytes: Some(LIMIT), ..Options::default() }).expect("sane");
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    memory.set_limit(None);
    local.allocate(&mut outside, 40 << 20).expect("no limit");
    memory.set_limit(Some(LIMIT));
    assert_eq!(local.allocate(&mut outside, 100_000), Err(OutOfMemory), "rows have no room");
    let mut list = local.counted::<[u64; 128]>(0);
    let pushed = (0..1 << 20).take_while(|_| list.try_push([0; 128]).is_ok()).count();
    assert!((8 << 20..17 << 20).contains(&(pushed << 10)), "{pushed} KiB");
}

fn fill_anyway(list: &mut crate::CountedVec<u64>) {
    (0..MANY as u64).for_each(|item| list.push(item));
    assert_eq!(list.len(), MANY);
}

#[test]
fn memory_retired_by_a_large_transaction_counts_until_it_is_freed() {
    let memory = memory(2);
    let (mut local, mut other, mut outside) = (register(&memory), register(&memory), Outside::claim());
    other.enter();
    local.enter();
    for at in 0..MANY as u64 {
        let block = local.allocate(&mut outside, 64).expect("no limit");
        // SAFETY: no other thread knows it.
        unsafe { local.retire_version(block, 64, Epoch(1)) };
        local.defer([at; 3]);
    }
    local.leave();
    assert!(memory.noted_bytes() > MANY * 16, "{}", memory.noted_bytes());
    other.leave();
    local.collect();
    assert!(memory.noted_bytes() > MANY * 16, "what is ready waits for its owner");
    assert_eq!(std::iter::from_fn(|| local.ready()).count(), MANY);
    local.collect();
    assert_eq!((memory.noted_bytes(), memory.in_use_bytes()), (0, 0));
}

#[test]
fn where_memory_was_refused_a_large_list_is_given_back_by_the_next_transaction() {
    const LIMIT: usize = 1 << 20;
    let memory = Memory::new(Options { workers_max: 1, limit_bytes: Some(LIMIT), ..Options::default() }).expect("sane");
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let mut list = local.counted::<u64>(0);
    fill(&mut list, LIMIT / 8 + 1);
    local.allocate(&mut outside, 64).expect_err("the list has it all");
    list.clear();
    local.allocate(&mut outside, 64).expect("it was given back");
    fill(&mut list, MANY);
    list.clear();
    assert!(memory.noted_bytes() > MANY * 8, "there is room again: it is kept for another large one");
}

#[test]
fn memory_retired_by_a_large_transaction_comes_back_to_its_busy_worker() {
    let (memory, point) = (memory(1), Arc::new(DurablePoint::new(Epoch(4))));
    memory.keep_versions(Arc::clone(&point));
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    for round in 0..3 {
        local.enter();
        for at in 0..MANY as u64 {
            let block = local.allocate(&mut outside, 64).expect("no limit");
            // SAFETY: no other thread knows it.
            unsafe { local.retire_version(block, 64, Epoch(5 + round)) };
            local.defer([at; 3]);
        }
        local.leave();
        assert!(memory.noted_bytes() > MANY * 16, "{}", memory.noted_bytes());
        assert!(point.advance(Epoch(5 + round)));
        // Transactions that do nothing, and a look after each at what is ready.
        for _ in 0..MANY {
            local.enter();
            local.leave();
            let _two = [local.ready(), local.ready()];
        }
        assert_eq!((local.waiting(), memory.noted_bytes(), memory.in_use_bytes()), (0, 0, 0), "round {round}");
    }
}

#[test]
fn a_fork_drops_lists_although_another_thread_had_the_lock() {
    let memory = memory(1);
    let mut charge = memory.charge();
    charge.set(1 << 20);
    let mut charge = Some(charge);
    let held = memory.0.heap.state.lock().expect("no panic");
    seriatim_base::process::in_fork(|| drop(charge.take()));
    drop(held);
}
