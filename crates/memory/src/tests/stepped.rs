//! Workers stepped on one thread, so that every interleaving of whole calls can be written down or drawn from a seed.

use super::objects::Held;
use super::*;
use crate::garbage::BAG;
use seriatim_htm::Outside;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64};

type Link = AtomicPtr<AtomicU64>;

/// A transaction that replaces the object behind `link`.
fn churn(local: &mut Local, outside: &mut Outside, link: &Link, rng: &mut Rng) {
    local.enter();
    Held::replace(link, local, outside, rng);
    local.leave();
}

/// Any schedule of four workers that come online, take references, replace objects, go offline, are dropped
/// and come anew. `Err` when a reference held by an online worker went bad.
fn any_schedule(memory: &Memory, rng: &mut Rng, steps: usize) -> Result<(), String> {
    const WORKERS: usize = 4;
    let mut outside = Outside::claim();
    let links: Vec<Link> = (0..4).map(|_| Link::default()).collect();
    let mut locals: Vec<(Local, Vec<Held>)> = (0..WORKERS).map(|_| (register(memory), Vec::new())).collect();
    for step in 0..steps {
        let at = rng.below(WORKERS as u64) as usize;
        let link = &links[rng.below(links.len() as u64) as usize];
        let (local, held) = &mut locals[at];
        match (local.is_online(), rng.below(16)) {
            (false, 0) => local.collect(),
            (_, 1) if rng.percent(20) => {
                held.clear();
                *local = register(memory);
            }
            (false, _) => local.enter(),
            (true, 2..6) => held.extend(Held::load(link)),
            (true, 6..14) => Held::replace(link, local, &mut outside, rng),
            (true, _) => {
                held.clear();
                local.leave();
            }
        }
        for (worker, (_, held)) in locals.iter().enumerate() {
            if let Some(bad) = held.iter().find(|held| !held.is_intact()) {
                return Err(format!("step {step}: worker {worker} holds {bad:?}, which was freed"));
            }
        }
    }
    Ok(())
}

#[test]
fn no_schedule_frees_what_an_online_worker_holds() {
    let mut rng = seeded("no_schedule_frees_what_an_online_worker_holds");
    for _ in 0..20 {
        // One slot more: a worker is registered anew before the old one is dropped.
        any_schedule(&memory(5), &mut rng, 4_000).expect("no use after free");
    }
}

#[test]
fn canary_a_domain_blind_to_online_workers_is_caught() {
    let mut rng = seeded("canary_a_domain_blind_to_online_workers_is_caught");
    let memory = Memory::blind(Options { workers_max: 5, ..Options::default() });
    any_schedule(&memory, &mut rng, 4_000).expect_err("a blind domain frees what is held");
}

/// An idle worker stalls nothing.
#[test]
fn an_idle_worker_stalls_nothing() {
    let mut rng = seeded("an_idle_worker_stalls_nothing");
    let memory = memory(2);
    let (mut idle, mut busy) = (register(&memory), register(&memory));
    let (mut outside, link) = (Outside::claim(), Link::default());
    churn(&mut idle, &mut outside, &link, &mut rng);
    let mut most = 0;
    for _ in 0..10_000 {
        churn(&mut busy, &mut outside, &link, &mut rng);
        most = most.max(busy.waiting());
    }
    assert!(most <= 4 * BAG.get(), "{most} items of garbage while the other worker idles");
    assert!(memory.in_use_bytes() < 16 << 10, "{} bytes in use for one object", memory.in_use_bytes());
}

/// An online worker that stands still keeps what it may hold, and no longer than until it leaves.
#[test]
fn a_parked_online_worker_keeps_its_references_and_nothing_after_it_leaves() {
    let mut rng = seeded("a_parked_online_worker_keeps_its_references_and_nothing_after_it_leaves");
    let memory = memory(2);
    let (mut parked, mut busy) = (register(&memory), register(&memory));
    let (mut outside, link) = (Outside::claim(), Link::default());
    churn(&mut busy, &mut outside, &link, &mut rng);
    parked.enter();
    let held = Held::load(&link).expect("an object");
    for _ in 0..1_000 {
        churn(&mut busy, &mut outside, &link, &mut rng);
        assert!(held.is_intact());
    }
    assert!(busy.waiting() > 1_000 - 2 * BAG.get(), "nothing is freed while the parked worker could hold it");
    parked.leave();
    let mut transactions = 0;
    while busy.waiting() > 4 * BAG.get() {
        churn(&mut busy, &mut outside, &link, &mut rng);
        transactions += 1;
    }
    assert!((10..=1_000).contains(&transactions), "the backlog goes away in bounded steps: {transactions}");
    busy.collect();
    assert_eq!(busy.waiting(), 0);
}

#[test]
fn a_lone_worker_gets_its_memory_back_at_once() {
    let mut rng = seeded("a_lone_worker_gets_its_memory_back_at_once");
    let memory = memory(1);
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let mut seen = HashSet::new();
    let mut ring: [Option<(NonNull<u8>, usize)>; 8] = [None; 8];
    for i in 0..10_000 {
        local.enter();
        let p = local.allocate(&mut outside, 200).expect("200 bytes");
        seen.insert(p);
        if let Some((old, bytes)) = ring[i % 8].replace((p, 200)) {
            // SAFETY: known to the ring only.
            unsafe { local.retire(old, bytes) };
        }
        if rng.percent(50) {
            local.leave();
            local.enter();
        }
        local.leave();
    }
    assert!(seen.len() <= 64, "{} different blocks for 8 live ones", seen.len());
}

#[test]
fn a_deferred_item_comes_back_once_after_its_grace_period_in_order() {
    let memory = memory(2);
    let (mut other, mut local) = (register(&memory), register(&memory));
    other.enter();
    local.enter();
    for i in 0..100 {
        local.defer([i, 2, 3]);
        assert_eq!(local.ready(), None, "while it is online itself");
    }
    local.leave();
    for _ in 0..100 {
        local.enter();
        local.leave();
        assert_eq!(local.ready(), None, "while a worker that was online is online");
    }
    other.leave();
    other.enter();
    let mut next = 0;
    for _ in 0..200 {
        local.enter();
        local.leave();
        while let Some(item) = local.ready() {
            assert_eq!(item, [next, 2, 3]);
            next += 1;
        }
    }
    assert_eq!(next, 100);
    assert_eq!(local.waiting(), 0);
}

#[test]
fn tasks_that_were_ready_when_their_worker_left_are_done_by_another() {
    let memory = memory(2);
    let (mut leaving, mut heir) = (register(&memory), register(&memory));
    leaving.enter();
    leaving.defer([7; 3]);
    leaving.leave();
    // Ready from here on, and not yet requested.
    leaving.collect();
    drop(leaving);
    heir.collect();
    assert_eq!(heir.ready(), Some([7; 3]));
}

#[test]
fn garbage_and_tasks_of_a_dropped_worker_are_handled_by_the_remaining_workers() {
    let mut rng = seeded("garbage_and_tasks_of_a_dropped_worker_are_handled_by_the_remaining_workers");
    let memory = memory(3);
    let (mut reader, mut heir) = (register(&memory), register(&memory));
    let (mut outside, link) = (Outside::claim(), Link::default());
    churn(&mut heir, &mut outside, &link, &mut rng);
    reader.enter();
    let held = Held::load(&link).expect("an object");
    let mut leaving = register(&memory);
    leaving.enter();
    Held::replace(&link, &mut leaving, &mut outside, &mut rng);
    leaving.defer([7; 3]);
    drop(leaving);
    let mut successor = register(&memory);
    assert_eq!(successor.worker().index(), 2, "the slot is free again");
    for _ in 0..100 {
        churn(&mut heir, &mut outside, &link, &mut rng);
        churn(&mut successor, &mut outside, &link, &mut rng);
        assert!(held.is_intact());
        assert_eq!((heir.ready(), successor.ready()), (None, None));
    }
    reader.leave();
    heir.collect();
    successor.collect();
    assert_eq!((heir.waiting(), successor.waiting()), (0, 0));
    let items: Vec<_> = [heir.ready(), successor.ready()].into_iter().flatten().collect();
    assert_eq!(items, [[7; 3]]);
}

#[test]
fn a_large_block_is_not_kept_until_the_bag_is_full() {
    let memory = memory(1);
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let before = memory.in_use_bytes();
    local.enter();
    let p = local.allocate(&mut outside, 1 << 20).expect("a megabyte");
    // SAFETY: ours alone.
    unsafe { local.retire(p, 1 << 20) };
    assert_eq!(memory.in_use_bytes(), before + (1 << 20));
    local.leave();
    assert_eq!(memory.in_use_bytes(), before);
}

#[test]
fn slots_are_given_once_each() {
    let memory = memory(3);
    let mut locals: Vec<_> = (0..3).map(|_| register(&memory)).collect();
    assert!(memory.register().is_none());
    assert_eq!(locals.iter().map(|local| local.worker().index()).collect::<HashSet<_>>().len(), 3);
    let gone = locals.remove(1).worker();
    assert_eq!(register(&memory).worker(), gone);
}

#[test]
#[should_panic(expected = "enter() of a worker that is online")]
fn entering_twice_is_refused() {
    let mut local = register(&memory(1));
    local.enter();
    local.enter();
}

#[test]
#[should_panic(expected = "leave() of a worker that is offline")]
fn leaving_twice_is_refused() {
    register(&memory(1)).leave();
}

#[test]
#[should_panic(expected = "pinned() of a worker that is offline")]
fn an_offline_worker_has_no_proof_of_being_online() {
    register(&memory(1)).pinned();
}
