//! Memory given back to the system: what is wholly free goes, what is in use stays, and all of it can be used again.

use super::*;
use crate::class::SMALL_MAX;
use seriatim_htm::Outside;
use std::ptr::NonNull;

/// Far above the reserve of tests.
const MUCH: usize = 4 << 20;

/// A block and what it is filled with.
type Filled = (NonNull<u8>, usize, u8);

fn fill(local: &mut Local, outside: &mut Outside, bytes: usize, mark: u8) -> Filled {
    let block = local.allocate(outside, bytes).expect("a few megabytes");
    // SAFETY: our block.
    unsafe { block.write_bytes(mark, bytes) };
    (block, bytes, mark)
}

fn release(local: &mut Local, (block, bytes, mark): Filled) {
    // SAFETY: our block, written when it was allocated; ours alone.
    unsafe {
        let contents = std::slice::from_raw_parts(block.as_ptr(), bytes);
        assert!(contents.iter().all(|&byte| byte == mark), "somebody wrote to a live block");
        local.release(block, bytes);
    }
}

/// The periodic work of a helper, while this worker rests.
fn maintain(memory: &Memory, local: &mut Local) -> usize {
    memory.give_back() + {
        local.collect();
        memory.give_back()
    }
}

#[test]
fn released_memory_goes_back_beyond_the_reserve_and_serves_any_class() {
    let memory = memory(1);
    let (mut local, mut outside) = (register(&memory), Outside::claim());
    for round in 0..3 {
        // Sizes that leave something over in every run, and classes that lie beside each other.
        let sizes = [24, 48, 136, 208, 400, 1000 + 64 * round];
        let blocks: Vec<Filled> = (0..)
            .map(|at| fill(&mut local, &mut outside, sizes[at % sizes.len()], at as u8))
            .take(MUCH / 300)
            .collect();
        let before = memory.reserved_bytes();
        assert!(memory.in_use_bytes() > MUCH * 8 / 10);
        assert_eq!(maintain(&memory, &mut local), 0, "nothing is free");
        blocks.into_iter().for_each(|block| release(&mut local, block));
        let returned = maintain(&memory, &mut local);
        assert!(returned > MUCH * 7 / 10, "round {round}: {returned} bytes went back");
        assert_eq!(memory.reserved_bytes(), before - returned);
        assert_eq!(maintain(&memory, &mut local), 0, "what is left is the reserve");
    }
}

#[test]
fn memory_in_use_stays() {
    let mut rng = seeded("memory_in_use_stays");
    let memory = memory(2);
    let (mut locals, mut outside) = ([register(&memory), register(&memory)], Outside::claim());
    let mut live: Vec<Filled> = Vec::new();
    let mut returned = 0;
    for wave in 0..if cfg!(miri) { 3 } else { 30 } {
        let sizes = [16, 48, 272, 640, 4000, SMALL_MAX - 64, SMALL_MAX + 5000];
        let size = sizes[rng.below(sizes.len() as u64) as usize];
        for _ in 0..(MUCH / 8 / size).min(20_000) {
            let bytes = size + rng.below(48) as usize;
            live.push(fill(&mut locals[rng.below(2) as usize], &mut outside, bytes, wave));
        }
        rng.shuffle(&mut live);
        // Nearly all of it, or single blocks in between.
        let kept = if rng.percent(50) { live.len() / 50 } else { live.len() * 9 / 10 };
        for block in live.drain(kept..) {
            release(&mut locals[rng.below(2) as usize], block);
        }
        let [one, other] = &mut locals;
        other.collect();
        memory.give_back();
        other.collect();
        returned += maintain(&memory, one);
    }
    assert!(returned > 0, "it was tried");
    live.drain(..).for_each(|block| release(&mut locals[0], block));
    assert_eq!(memory.in_use_bytes(), 0);
}

fn at_limit() -> Memory {
    let options = Options { workers_max: 1, huge_pages: false, limit_bytes: Some(MUCH), prefault_bytes: 0 };
    Memory::new(options).expect("sane options")
}

/// Blocks of so many bytes until one is refused.
fn exhaust(local: &mut Local, outside: &mut Outside, bytes: usize) -> Vec<NonNull<u8>> {
    std::iter::from_fn(|| local.allocate(outside, bytes).ok()).collect()
}

/// With a helper, and without one: a worker that is about to be refused looks for what is free.
#[test]
fn at_the_limit_what_was_freed_serves_other_sizes() {
    for helped in [true, false] {
        let memory = at_limit();
        let (mut local, mut outside) = (register(&memory), Outside::claim());
        for bytes in [96, 4000, 250, 16, SMALL_MAX + 1, 640] {
            let blocks = exhaust(&mut local, &mut outside, bytes);
            let used = memory.in_use_bytes();
            assert!(used > MUCH * 8 / 10, "helped {helped}, {bytes}: {used} bytes fit");
            for block in blocks {
                // SAFETY: ours alone.
                unsafe { local.release(block, bytes) };
            }
            if helped {
                maintain(&memory, &mut local);
            }
        }
    }
}

#[test]
fn at_the_limit_single_free_blocks_serve_smaller_sizes() {
    for (large, small) in [(640, 96), (640, 320), (4096, 1000), (1088, 16)] {
        let memory = at_limit();
        let (mut local, mut outside) = (register(&memory), Outside::claim());
        let blocks = exhaust(&mut local, &mut outside, large);
        let released: Vec<_> = blocks.iter().copied().step_by(2).collect();
        for &block in &released {
            // SAFETY: ours alone.
            unsafe { local.release(block, large) };
        }
        let pieces = exhaust(&mut local, &mut outside, small);
        let bytes = pieces.len() * small;
        assert!(bytes > released.len() * large * 8 / 10, "{bytes} of {} bytes", released.len() * large);
        assert!(pieces.iter().all(|piece| small % 64 > 0 || piece.as_ptr().addr().is_multiple_of(64)));
        // Spans that were cut are whole again when all of their blocks are free.
        let rest = blocks.iter().skip(1).step_by(2).map(|&block| (block, large));
        for (block, bytes) in rest.chain(pieces.iter().map(|&piece| (piece, small))) {
            // SAFETY: ours alone.
            unsafe { local.release(block, bytes) };
        }
        assert_eq!(memory.in_use_bytes(), 0);
        maintain(&memory, &mut local);
        let again = exhaust(&mut local, &mut outside, large).len();
        assert!(again > blocks.len() * 9 / 10, "{again} of {} blocks of {large} bytes", blocks.len());
    }
}

#[test]
fn prefaulted_memory_stays() {
    let options = Options { workers_max: 1, huge_pages: false, limit_bytes: None, prefault_bytes: MUCH };
    let memory = Memory::new(options).expect("sane options");
    let mut local = register(&memory);
    assert_eq!(maintain(&memory, &mut local), 0);
    assert!(memory.reserved_bytes() >= MUCH);
}
