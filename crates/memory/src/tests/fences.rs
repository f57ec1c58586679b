//! The two fences of a grace period, in the shipped code on this processor. loom models neither the exchange that
//! replaces a fence nor a store buffer.
//!
//! One thread comes online and loads a reference, the other unlinks it and seals. Without either fence,
//! sooner or later both come first: the reader has the reference, and the seal does not await it. Processors
//! show that within thousands of rounds, if both threads really run at once.

use crate::quiescence::Counts;
use seriatim_base::thread;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

const ROUNDS: u64 = 40_000;

/// Waits until the other has come to this round as well.
fn meet(mine: &AtomicU64, others: &AtomicU64, round: u64) {
    mine.store(round, Ordering::Release);
    let mut spins = 0;
    while others.load(Ordering::Acquire) < round {
        spins += 1;
        if spins % 256 == 0 {
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// In how many rounds a reader that is online has a reference and no seal awaits it. Also, in how many it had one at
/// all.
fn lost(enter_and_load: impl Fn(&Counts, &AtomicU64) -> bool + Sync) -> (u64, u64) {
    let counts = Counts::new(2);
    (0..2).for_each(|worker| counts.admit(worker));
    let linked = AtomicU64::new(0);
    let (reader_at, writer_at) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut reached = vec![false; ROUNDS as usize];
    let mut awaits = vec![false; ROUNDS as usize];
    thread::scope(|scope| {
        let (counts, linked, reader_at, writer_at, reached) = (&counts, &linked, &reader_at, &writer_at, &mut reached);
        let enter_and_load = &enter_and_load;
        scope.spawn(move || {
            for round in 0..ROUNDS {
                meet(reader_at, writer_at, 2 * round + 1);
                // A little to and fro, so that neither is always first.
                (0..round % 23).for_each(|_| std::hint::spin_loop());
                reached[round as usize] = enter_and_load(counts, linked);
                meet(reader_at, writer_at, 2 * round + 2);
                let presence = counts.presence(0);
                let _ = presence.leave(presence.resume());
            }
            reader_at.store(u64::MAX, Ordering::Release);
        });
        let mut awaited = Vec::new();
        for round in 0..ROUNDS {
            linked.store(1, Ordering::SeqCst);
            meet(writer_at, reader_at, 2 * round + 1);
            (0..round % 19).for_each(|_| std::hint::spin_loop());
            linked.store(0, Ordering::Relaxed);
            counts.seal(Some(1), &mut awaited);
            awaits[round as usize] = !awaited.is_empty();
            meet(writer_at, reader_at, 2 * round + 2);
            // The reader is gone before it comes again: `meet` of the next round follows its leaving.
        }
    });
    let lost = reached.iter().zip(&awaits).filter(|(reached, awaits)| **reached && !**awaits).count();
    (lost as u64, reached.iter().filter(|reached| **reached).count() as u64)
}

#[test]
fn a_worker_that_comes_online_and_has_a_reference_is_awaited() {
    let (lost, reached) = lost(|counts, linked| {
        let presence = counts.presence(0);
        let _ = presence.enter(presence.resume());
        linked.load(Ordering::Relaxed) == 1
    });
    println!("{reached} of {ROUNDS} rounds reached the reference");
    assert_eq!(lost, 0, "of {reached}");
}

/// The canary: the same with a plain store instead of the exchange. Two processors are needed to show it.
#[test]
fn canary_a_store_without_a_fence_is_caught() {
    if thread::processors() < 2 {
        println!("skipped: one processor has no store buffer that another could miss");
        return;
    }
    // Without a limit: others may have all processors but one for a while.
    for attempt in 0u64.. {
        let (lost, reached) = lost(|counts, linked| {
            counts.presence(0).enter_without_a_fence();
            compiler_fence(Ordering::SeqCst);
            linked.load(Ordering::Relaxed) == 1
        });
        println!("attempt {attempt}: {lost} lost of {reached}");
        if lost > 0 {
            return;
        }
    }
}
