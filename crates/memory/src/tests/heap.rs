//! Blocks: alignment, no overlap, the limit, prefaulting, misuse.

use super::*;
use crate::class::SMALL_MAX;
use crate::heap::SPAN;
use crate::{Error, OutOfMemory};
use seriatim_htm::Outside;
use std::collections::BTreeMap;
use std::ptr::NonNull;

#[test]
fn blocks_are_aligned_writable_and_never_overlap() {
    let mut rng = seeded("blocks_are_aligned_writable_and_never_overlap");
    let memory = memory(2);
    let (mut locals, mut outside) = ([register(&memory), register(&memory)], Outside::claim());
    let mut live: BTreeMap<usize, (NonNull<u8>, usize, u8)> = BTreeMap::new();
    for step in 0..if cfg!(miri) { 300 } else { 20_000 } {
        let local = &mut locals[rng.below(2) as usize];
        if live.len() < 200 && rng.percent(60) {
            let bytes = match rng.below(10) {
                0 => rng.range(SMALL_MAX as u64 + 1, 200_000),
                1..4 => rng.range(0, SMALL_MAX as u64),
                _ => rng.range(0, 600),
            } as usize;
            let p = local.allocate(&mut outside, bytes).expect("a few megabytes");
            let start = p.as_ptr().addr();
            assert!(start.is_multiple_of(16) && (bytes == 0 || !bytes.is_multiple_of(64) || start.is_multiple_of(64)));
            let before = live.range(..start + bytes.max(1)).next_back();
            assert!(before.is_none_or(|(&other, &(_, bytes, _))| other + bytes.max(1) <= start), "blocks overlap");
            let fill = step as u8;
            // SAFETY: our block.
            unsafe { p.write_bytes(fill, bytes) };
            live.insert(start, (p, bytes, fill));
        } else if let Some(&start) = live.keys().nth(rng.below(live.len().max(1) as u64) as usize) {
            let (p, bytes, fill) = live.remove(&start).expect("listed");
            // SAFETY: our block, written when allocated.
            let contents = unsafe { std::slice::from_raw_parts(p.as_ptr(), bytes) };
            assert!(contents.iter().all(|&byte| byte == fill), "somebody wrote to a live block");
            // SAFETY: ours alone.
            unsafe { local.release(p, bytes) };
        }
    }
}

#[test]
fn an_absurd_size_is_out_of_memory() {
    let (mut local, mut outside) = (register(&memory(1)), Outside::claim());
    assert_eq!(local.allocate(&mut outside, usize::MAX), Err(OutOfMemory));
    assert_eq!(local.allocate(&mut outside, 1 << 60), Err(OutOfMemory));
}

fn limited(limit_bytes: usize) -> Memory {
    Memory::new(Options { workers_max: 2, limit_bytes: Some(limit_bytes), huge_pages: false, prefault_bytes: 0 })
        .expect("sane options")
}

#[test]
fn the_limit_holds_and_freed_memory_serves_again() {
    const LIMIT: usize = 1 << 20;
    let memory = limited(LIMIT);
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let mut blocks: Vec<_> = std::iter::from_fn(|| local.allocate(&mut outside, 256).ok()).collect();
    let used = memory.in_use_bytes();
    assert!((LIMIT * 9 / 10..=LIMIT).contains(&used), "{used} of {LIMIT} bytes");
    assert_eq!(local.allocate(&mut outside, 100_000), Err(OutOfMemory));
    for p in blocks.drain(..100) {
        // SAFETY: ours alone.
        unsafe { local.release(p, 256) };
    }
    let again = std::iter::from_fn(|| local.allocate(&mut outside, 256).ok()).count();
    assert_eq!(again, 100);
}

/// Every second of small blocks is free, so no piece of any size is: there is a little room for others all the same.
#[test]
fn blocks_of_another_size_find_room_where_much_is_free() {
    const LIMIT: usize = 4 << 20;
    let memory = limited(LIMIT);
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    let blocks: Vec<_> = std::iter::from_fn(|| local.allocate(&mut outside, 256).ok()).collect();
    assert!(local.allocate(&mut outside, 1024).is_err(), "nothing is free");
    for &block in blocks.iter().step_by(2) {
        // SAFETY: allocated above, with this size.
        unsafe { local.release(block, 256) };
    }
    let larger = std::iter::from_fn(|| local.allocate(&mut outside, 1024).ok()).count() * 1024;
    assert!((LIMIT / 32..=LIMIT / 16).contains(&larger), "{larger} bytes beyond the limit of {LIMIT}");
    let again = std::iter::from_fn(|| local.allocate(&mut outside, 256).ok()).count();
    assert!(again + SPAN.get() / 256 >= blocks.len() / 2, "{again} of {} free blocks", blocks.len() / 2);
    assert!(local.allocate(&mut outside, 1024).is_err(), "nothing is free any more");
    assert!(memory.in_use_bytes() <= LIMIT / 16 * 17, "{} bytes", memory.in_use_bytes());
}

#[test]
fn a_limit_below_what_was_taken_leaves_the_free_blocks() {
    let memory = limited(1 << 20);
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    memory.set_limit(None);
    let blocks: Vec<_> = (0..20_000).map(|_| local.allocate(&mut outside, 256).expect("no limit")).collect();
    assert!(memory.in_use_bytes() > 4 << 20);
    memory.set_limit(Some(1 << 20));
    // The rest of its span.
    let rest = std::iter::from_fn(|| local.allocate(&mut outside, 256).ok()).count();
    assert!(rest < SPAN.get() / 256, "{rest} more");
    assert_eq!(local.allocate(&mut outside, 100_000), Err(OutOfMemory));
    for &p in &blocks {
        // SAFETY: ours alone.
        unsafe { local.release(p, 256) };
    }
    let again = std::iter::from_fn(|| local.allocate(&mut outside, 256).ok()).count();
    assert_eq!(again, blocks.len());
}

#[test]
fn where_memory_is_scarce_a_worker_at_rest_leaves_its_free_blocks_to_others() {
    let memory = limited(1 << 20);
    let (mut first, mut second, mut outside) = (register(&memory), register(&memory), Outside::claim());
    let blocks: Vec<_> = std::iter::from_fn(|| first.allocate(&mut outside, 256).ok()).collect();
    for &p in &blocks {
        // SAFETY: ours alone.
        unsafe { first.release(p, 256) };
    }
    first.collect();
    let again = std::iter::from_fn(|| second.allocate(&mut outside, 256).ok()).count();
    assert_eq!(again, blocks.len());
}

#[test]
fn a_large_block_counts_against_the_limit_until_it_is_released() {
    let memory = limited(4 << 20);
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    for _ in 0..10 {
        let p = local.allocate(&mut outside, 3 << 20).expect("below the limit");
        assert_eq!(local.allocate(&mut outside, (1 << 20) + 1), Err(OutOfMemory));
        // SAFETY: ours alone.
        unsafe { local.release(p, 3 << 20) };
        assert_eq!((memory.in_use_bytes(), memory.reserved_bytes()), (0, 0));
    }
}

#[test]
fn memory_of_a_dropped_worker_is_used_before_more_is_mapped() {
    let memory = memory(1);
    let mut outside = Outside::claim();
    let mut mapped = None;
    for _ in 0..50 {
        let mut local = register(&memory);
        let blocks: Vec<_> = (0..3_000).map(|i| (local.allocate(&mut outside, 16 + i % 1000), 16 + i % 1000)).collect();
        for (p, bytes) in blocks {
            // SAFETY: ours alone.
            unsafe { local.release(p.expect("a few megabytes"), bytes) };
        }
        drop(local);
        let now = memory.reserved_bytes();
        assert_eq!(*mapped.get_or_insert(now), now);
    }
}

#[test]
fn prefaulted_memory_is_mapped_once_and_handed_out_first() {
    let options = Options { workers_max: 1, prefault_bytes: 5 << 20, ..Options::default() };
    let memory = Memory::new(options).expect("a few megabytes");
    let mapped = memory.reserved_bytes();
    assert!((5 << 20..=6 << 20).contains(&mapped));
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    while memory.in_use_bytes() < 4 << 20 {
        local.allocate(&mut outside, 1000).expect("prefaulted");
    }
    assert_eq!(memory.reserved_bytes(), mapped, "nothing was mapped while there was prefaulted memory");
    memory.prefault(1 << 20).expect("a megabyte");
    assert!(memory.reserved_bytes() >= mapped + (1 << 20));
}

#[test]
fn contradictory_options_are_refused_with_a_reason() {
    let refused = |options| Memory::new(options).expect_err("refused");
    assert_eq!(refused(Options { workers_max: 0, ..Options::default() }), Error::Workers(0));
    let error = refused(Options { prefault_bytes: 2, limit_bytes: Some(1), ..Options::default() });
    assert_eq!(error.to_string(), "cannot prefault 2 bytes under a limit of 1; raise the limit or prefault less");
}

#[test]
#[cfg(all(debug_assertions, not(miri)))]
#[should_panic(expected = "a block was released twice")]
fn a_block_released_twice_is_noticed() {
    let (mut local, mut outside) = (register(&memory(1)), Outside::claim());
    let p = local.allocate(&mut outside, 64).expect("64 bytes");
    // SAFETY: the second one is not, which debug builds notice before harm is done.
    unsafe {
        local.release(p, 64);
        local.release(p, 64);
    }
}

#[test]
#[cfg(debug_assertions)]
fn an_allocation_inside_an_emulated_region_panics() {
    use seriatim_base::WorkerId;
    use seriatim_htm::{Access, Body, BodyError, Budget, Emulation, Htm, HtmMode, NoLocks};
    struct Allocates(Local);
    // SAFETY: it stores nothing; breaking the rule that it does not allocate is the point.
    unsafe impl Body for Allocates {
        type Output = ();
        fn run<A: Access>(&mut self, _: &mut A) -> Result<(), BodyError> {
            // Claiming a second witness here is what a body must not do; the assertion tells.
            let _ = self.0.allocate(&mut Outside::claim(), 16);
            Ok(())
        }
    }
    let htm = Htm::new(HtmMode::Emulated(Emulation::default())).expect("always there");
    let mut agent = htm.agent(WorkerId(0), Budget::default());
    let mut body = Allocates(register(&memory(1)));
    let mut outside = Outside::claim();
    let run = std::panic::AssertUnwindSafe(|| agent.run(&mut outside, &NoLocks, &mut body).is_ok());
    std::panic::catch_unwind(run).expect_err("the injected allocation surfaces (trap 5)");
}
