//! How full and how large trees become: sequential loads leave full leaves, and queues do not grow.

use super::fixture::{TestKind, World, seeded};
use crate::rare::taken;
use crate::record::{Bytes, RecordPtr, Word8, Word16};
use crate::tree::Tree;
use crate::tree::node::{Interior, Leaf};
use crate::{Inserted, LeafHint, RarePath, Unobserved};
use seriatim_htm::HtmMode;
use std::collections::VecDeque;

#[test]
fn nodes_have_the_sizes_they_are_drawn_with() {
    assert_eq!(Leaf::<Word8, 29>::BYTES, 512);
    assert_eq!(Leaf::<Word16, 29>::BYTES, 768);
    assert_eq!(Leaf::<Bytes, 29>::BYTES, 768);
    assert_eq!(Interior::<Word8, 15>::BYTES, 256, "DBX §4");
    assert_eq!(Interior::<Word8, 31>::BYTES, 512);
    assert_eq!(Interior::<Word16, 31>::BYTES, 768);
    assert_eq!(Interior::<Bytes, 31>::BYTES, 1024);
}

#[test]
fn sequential_loads_leave_full_leaves() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    const N: u64 = 5_000;
    for descending in [false, true] {
        let tree = Tree::<Word8, 29, 31>::new(&world.htm, &mut worker.cx()).expect("memory");
        for i in 0..N {
            let n = if descending { N - i } else { i };
            let record = worker.record(Word8::key(n).as_key());
            assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
        }
        tree.checked();
        // SAFETY: the only thread.
        let statistics = unsafe { tree.statistics() };
        assert!(statistics.leaves as u64 <= N.div_ceil(29) + 2, "{statistics:?}");
    }
}

/// The nodes of new keys find memory then, for which free blocks of records are too small.
#[test]
fn half_empty_leaves_are_merged_where_memory_is_scarce() {
    const N: u64 = 5_000;
    for (step, is_scarce) in [(2, false), (2, true), (5, true), (29, true)] {
        for backward in [false, true] {
            let world = World::new(HtmMode::Absent);
            let mut worker = world.worker();
            let tree = Tree::<Word8, 29, 31>::new(&world.htm, &mut worker.cx()).expect("memory");
            let records: Vec<RecordPtr> = (0..N).map(|n| worker.record(Word8::key(n).as_key())).collect();
            for (n, &record) in (0..).zip(&records) {
                assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
            }
            // SAFETY: the only thread.
            let before = unsafe { tree.statistics() };
            if is_scarce {
                world.make_scarce(&mut worker);
            }
            let merged = taken(RarePath::LeafMerged);
            for n in (0..N).map(|n| if backward { N - 1 - n } else { n }).filter(|n| n % step != 0) {
                assert!(tree.remove(&mut worker.cx(), n, records[n as usize], &mut Unobserved));
            }
            tree.checked();
            let mut left = Vec::new();
            // SAFETY: the only thread.
            let after = unsafe {
                tree.for_each(&mut |record| left.push(record));
                tree.statistics()
            };
            assert_eq!(left, records.iter().copied().step_by(step as usize).collect::<Vec<_>>());
            assert_eq!((taken(RarePath::LeafMerged) - merged) as usize, before.leaves - after.leaves);
            if is_scarce {
                assert!(after.leaves <= left.len() / 29 * 6 / 5 + 10, "step {step}, {backward}: {after:?}");
            } else {
                assert_eq!(after.leaves, before.leaves, "transactions are not disturbed where memory is not scarce");
            }
        }
    }
}

#[test]
fn interleaved_runs_leave_leaves_nearly_full() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    const RUNS: u64 = 10;
    const LENGTH: u64 = 1_000;
    let tree = Tree::<Word8, 29, 31>::new(&world.htm, &mut worker.cx()).expect("memory");
    for i in 0..LENGTH / 10 {
        for run in 0..RUNS {
            for j in 0..10 {
                let n = run << 32 | (i * 10 + j);
                let record = worker.record(Word8::key(n).as_key());
                assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
            }
        }
    }
    tree.checked();
    // SAFETY: the only thread.
    let statistics = unsafe { tree.statistics() };
    assert!((statistics.leaves as u64) < RUNS * LENGTH / 29 * 11 / 10, "{statistics:?}");
}

#[test]
fn a_queue_does_not_grow() {
    let (_, mut rng) = seeded("a_queue_does_not_grow");
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
    let mut queue = VecDeque::new();
    let mut next = 0;
    let mut leaf_hint = LeafHint::default();
    let (mut leaves_max, mut bytes_max) = (0, [0, 0]);
    for round in 0..2_000 {
        while queue.len() < 50 || rng.below(3) == 0 {
            let record = worker.record(Word8::key(next).as_key());
            let inserted = tree.insert_near(&mut worker.cx(), next, &mut leaf_hint, record, &mut Unobserved);
            assert_eq!(inserted, Ok(Inserted::Linked));
            queue.push_back((next, record));
            next += 1;
        }
        while queue.len() > 50 || rng.below(3) == 0 {
            let Some((n, record)) = queue.pop_front() else { break };
            assert!(tree.remove(&mut worker.cx(), n, record, &mut Unobserved));
            // SAFETY: just unlinked.
            unsafe { worker.retire::<Word8>(record) };
        }
        worker.rest();
        // SAFETY: the only thread.
        leaves_max = leaves_max.max(unsafe { tree.statistics() }.leaves);
        let half: &mut usize = &mut bytes_max[usize::from(round >= 1_000)];
        *half = (*half).max(world.memory.in_use_bytes());
    }
    tree.checked();
    assert!(leaves_max < 40, "{leaves_max} leaves for 50 records");
    assert!(bytes_max[1] < bytes_max[0] * 2, "{bytes_max:?}");
    // SAFETY: the only thread.
    assert!(unsafe { tree.statistics() }.height <= 5);
}

#[test]
fn the_estimate_of_the_size_is_of_the_right_order() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    let tree = Tree::<Word8, 29, 31>::new(&world.htm, &mut worker.cx()).expect("memory");
    assert_eq!(tree.len_estimate(worker.local.pinned()), 0);
    for n in 0..20_000 {
        let record = worker.record(Word8::key(n * 7919 % 20_000).as_key());
        let key = n * 7919 % 20_000;
        assert_eq!(tree.insert(&mut worker.cx(), key, record, &mut Unobserved), Ok(Inserted::Linked));
    }
    assert!((10_000..40_000).contains(&tree.len_estimate(worker.local.pinned())));
}
