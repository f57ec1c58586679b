//! What the hot path costs, in nanoseconds an operation: `cargo run --release -p seriatim-memory --example cost`.

use seriatim_base::clock::Instant;
use seriatim_base::thread;
use seriatim_htm::Outside;
use seriatim_memory::{Local, Memory, Options};
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

const OPERATIONS: u64 = 20_000_000;

/// The best of three runs.
fn report(what: &str, operations: u64, mut run: impl FnMut(u64)) {
    let best = (0..3)
        .map(|_| {
            let start = Instant::now();
            run(operations);
            start.elapsed().as_nanos() as f64 / operations as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{best:8.2} ns  {what}");
}

fn transactions(local: &mut Local, outside: &mut Outside, count: u64, retired: usize) {
    let mut ring = [None::<NonNull<u8>>; 64];
    let mut at = 0;
    for _ in 0..count {
        local.enter();
        for _ in 0..retired {
            let new = local.allocate(outside, 200).expect("200 bytes");
            if let Some(old) = ring[at % 64].replace(new) {
                // SAFETY: known to the ring only.
                unsafe { local.retire(old, 200) };
            }
            at += 1;
        }
        local.leave();
    }
    local.enter();
    for block in ring.into_iter().flatten() {
        // SAFETY: known to the ring only.
        unsafe { local.release(block, 200) };
    }
    local.leave();
}

fn main() {
    let memory = Memory::new(Options { prefault_bytes: 64 << 20, ..Options::default() }).expect("64 MiB");
    let mut outside = Outside::claim();
    let mut local = memory.register().expect("a slot");

    report("enter + leave, no garbage", OPERATIONS, |n| transactions(&mut local, &mut outside, n, 0));
    report("allocate + release, 64 bytes", OPERATIONS, |n| {
        for _ in 0..n {
            let block = black_box(local.allocate(&mut outside, 64).expect("64 bytes"));
            // SAFETY: ours alone.
            unsafe { local.release(block, 64) };
        }
    });
    report("allocate + release, 32 blocks of 200 bytes at a time", OPERATIONS, |n| {
        let mut blocks = [None; 32];
        for _ in 0..n / 32 {
            blocks.fill_with(|| local.allocate(&mut outside, 200).ok());
            for block in black_box(blocks).into_iter().flatten() {
                // SAFETY: ours alone.
                unsafe { local.release(block, 200) };
            }
        }
    });
    report("transaction of one replacement, alone", OPERATIONS / 4, |n| transactions(&mut local, &mut outside, n, 1));
    report("transaction of 10 replacements, alone", OPERATIONS / 16, |n| transactions(&mut local, &mut outside, n, 10));
    report("allocation of fresh prefaulted memory, 64 bytes", 300_000, |n| {
        for _ in 0..n {
            black_box(local.allocate(&mut outside, 64).expect("64 bytes"));
        }
    });

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut other, mut outside) = (memory.register().expect("a slot"), Outside::claim());
            while !stop.load(Ordering::Relaxed) {
                transactions(&mut other, &mut outside, 1_000, 10);
            }
        });
        report("enter + leave, beside a busy worker", OPERATIONS, |n| transactions(&mut local, &mut outside, n, 0));
        report("transaction of 10 replacements, beside a busy worker", OPERATIONS / 16, |n| {
            transactions(&mut local, &mut outside, n, 10)
        });
        stop.store(true, Ordering::Relaxed);
    });
    println!("{:8.2} MiB mapped", memory.reserved_bytes() as f64 / f64::from(1 << 20));
}
