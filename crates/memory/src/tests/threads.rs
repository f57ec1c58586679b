//! Workers on threads of their own.

use super::objects::Held;
use super::*;
use seriatim_base::thread;
use seriatim_htm::Outside;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc;

/// Hammers a few links from some threads: readers hold references while others run, every thread replaces.
/// Stops at the first reference gone bad, and tells whether there was one.
fn hammer(memory: &Memory, rng: &mut Rng, threads: usize, transactions: usize) -> bool {
    let links: Vec<AtomicPtr<AtomicU64>> = (0..8).map(|_| AtomicPtr::default()).collect();
    let caught = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (mut rng, links, caught) = (rng.fork(), &links, &caught);
            scope.spawn(move || {
                let mut outside = Outside::claim();
                let mut local = register(memory);
                let mut held = Vec::new();
                for _ in 0..transactions {
                    if caught.load(Ordering::Relaxed) {
                        return;
                    }
                    if rng.below(500) == 0 {
                        drop(std::mem::replace(&mut local, register(memory)));
                    }
                    local.enter();
                    for _ in 0..rng.below(4) {
                        held.extend(Held::load(&links[rng.below(8) as usize]));
                    }
                    for _ in 0..rng.below(4) {
                        Held::replace(&links[rng.below(8) as usize], &mut local, &mut outside, &mut rng);
                    }
                    if rng.below(16) == 0 {
                        thread::yield_now();
                    }
                    if held.drain(..).any(|held| !held.is_intact()) {
                        caught.store(true, Ordering::Relaxed);
                    }
                    local.leave();
                }
            });
        }
    });
    if !caught.load(Ordering::Relaxed) {
        clear(memory, &links);
    }
    caught.into_inner()
}

/// Releases what is linked; then nothing may be left in use.
fn clear(memory: &Memory, links: &[AtomicPtr<AtomicU64>]) {
    let mut local = register(memory);
    local.enter();
    for held in links.iter().filter_map(Held::load) {
        // SAFETY: the threads are gone; linked objects are live.
        unsafe { local.release(held.start(), held.bytes()) };
    }
    local.leave();
    local.collect();
    assert_eq!((local.waiting(), memory.in_use_bytes()), (0, 0), "everything was released");
}

#[test]
fn hammered_by_threads_nothing_is_freed_that_is_held_and_all_is_freed_in_the_end() {
    const ROUND: usize = if cfg!(miri) { 25 } else { 500 };
    let mut rng = seeded("hammered_by_threads_nothing_is_freed_that_is_held_and_all_is_freed_in_the_end");
    for threads in 2..=4 {
        // Twice the slots: a thread registers anew before it drops.
        let memory = memory(2 * threads);
        for _ in 0..if cfg!(miri) { 2 } else { 60 } {
            // A thread that the system stops while it reads holds back what the others retire: in a round,
            // never more than this.
            assert!(!hammer(&memory, &mut rng, threads, ROUND), "use after free");
        }
        assert!(memory.reserved_bytes() <= 8 << 20, "memory is bounded: {}", memory.reserved_bytes());
    }
}

/// The watch of the hammer works: a domain that ignores online workers does not get through it.
#[test]
#[cfg(not(miri))]
fn canary_a_blind_domain_is_caught_by_the_hammer() {
    let mut rng = seeded("canary_a_blind_domain_is_caught_by_the_hammer");
    let memory = Memory::blind(Options { workers_max: 6, ..Options::default() });
    let caught = (0..100).any(|_| hammer_quietly(&memory, &mut rng));
    assert!(caught, "a blind domain went unnoticed");
}

/// A broken domain may also trip the allocator's own check for double release, in any thread; that is caught as well.
#[cfg(not(miri))]
fn hammer_quietly(memory: &Memory, rng: &mut Rng) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hammer(memory, rng, 3, 10_000))).unwrap_or(true)
}

/// One worker allocates what another releases: lists must not fill on one side while the other maps more and more.
#[test]
fn producer_and_consumer_are_bounded() {
    const BLOCKS: usize = if cfg!(miri) { 2_000 } else { 200_000 };
    const IN_FLIGHT: usize = 64;
    let memory = memory(2);
    let sizes = [48, 64, 200, 704, 4096];
    let (send, receive) = mpsc::sync_channel::<(usize, usize)>(IN_FLIGHT);
    thread::scope(|scope| {
        let (producer, consumer) = (memory.clone(), memory.clone());
        scope.spawn(move || {
            let (mut local, mut outside) = (register(&producer), Outside::claim());
            for i in 0..BLOCKS {
                let bytes = sizes[i % sizes.len()];
                let p = local.allocate(&mut outside, bytes).expect("bounded");
                send.send((p.as_ptr().expose_provenance(), bytes)).expect("the consumer listens");
            }
        });
        scope.spawn(move || {
            let mut local = register(&consumer);
            for (i, (p, bytes)) in receive.into_iter().enumerate() {
                let p = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(p)).expect("a block");
                local.enter();
                // SAFETY: received, so ours alone.
                unsafe { if i % 2 == 0 { local.retire(p, bytes) } else { local.release(p, bytes) } };
                local.leave();
            }
            local.collect();
        });
    });
    assert_eq!(memory.in_use_bytes(), 0);
    assert!(memory.reserved_bytes() <= 4 << 20, "{} bytes mapped for {IN_FLIGHT} blocks", memory.reserved_bytes());
}

/// Counting what is in use takes no part in the work, and is exact once workers stand still.
#[test]
fn use_is_summed_over_workers_that_release_what_others_allocated() {
    let memory = memory(2);
    let (mut a, mut b, mut outside) = (register(&memory), register(&memory), Outside::claim());
    let blocks: Vec<_> = (0..100).map(|_| a.allocate(&mut outside, 100).expect("100 bytes")).collect();
    assert_eq!(memory.in_use_bytes(), 100 * 112);
    // SAFETY: ours alone.
    blocks.into_iter().for_each(|p| unsafe { b.release(p, 100) });
    assert_eq!(memory.in_use_bytes(), 0);
    drop(a);
    drop(b);
    assert_eq!(memory.in_use_bytes(), 0);
}
