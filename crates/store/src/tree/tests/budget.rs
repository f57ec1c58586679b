//! Bodies with a longer way to go, up and down a tree, retry less before they fall back.

use super::fixture::{TestKind, Worker, World};
use crate::record::Word8;
use crate::tree::Tree;
use crate::{Inserted, Unobserved};
use seriatim_htm::{Budget, Emulation, HtmMode};

type Small = Tree<Word8, 4, 4>;

/// Only conflicts lead to the fallback, so that their number says how large the budget was.
const BUDGET: Budget = Budget { conflict: 12, divided: true, capacity: u32::MAX, system: u32::MAX, explicit: u32::MAX };

/// A world in which every region aborts, with a worker of this budget and an empty tree.
fn hopeless() -> (World, Worker, Small) {
    let world = World::new(HtmMode::Emulated(Emulation { seed: 5, abort_one_in: 1, yields: false }));
    let mut worker = world.worker();
    worker.agent = world.htm.agent(worker.local.worker(), BUDGET);
    let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
    (world, worker, tree)
}

fn insert(tree: &Small, worker: &mut Worker, n: u64) {
    let record = worker.record(Word8::key(n).as_key());
    assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
}

fn height(tree: &Small) -> usize {
    // SAFETY: the only thread.
    unsafe { tree.statistics() }.height
}

/// Runs `change`: how many conflicts it had, and how many bodies fell back.
fn conflicts(worker: &mut Worker, change: impl FnOnce(&mut Worker)) -> (u64, u64) {
    let before = worker.agent.statistics();
    change(worker);
    let after = worker.agent.statistics();
    assert_eq!(after.committed, 0, "every region aborts");
    (after.aborted.conflict - before.aborted.conflict, after.fallback - before.fallback)
}

#[test]
fn the_budget_is_divided_by_the_levels_on_the_way() {
    for (levels, share) in [(1, 12), (2, 6), (3, 4), (4, 3)] {
        let (_world, mut worker, tree) = hopeless();
        let mut next = 0;
        while height(&tree) < levels || next < 2 {
            insert(&tree, &mut worker, next);
            next += 1;
        }
        assert_eq!(height(&tree), levels);
        let record = tree.get(0, worker.local.pinned()).expect("inserted first");
        let removal = conflicts(&mut worker, |worker| {
            assert!(tree.remove(&mut worker.cx(), 0, record, &mut Unobserved));
        });
        assert_eq!(removal, (share, 1), "a removal at height {levels}");
        // It reaches its leaf before the region begins.
        let insertion = conflicts(&mut worker, |worker| insert(&tree, worker, 0));
        assert_eq!(insertion, (12, 1), "an insertion without a split at height {levels}");
    }
}

#[test]
fn splits_retry_half_as_often_as_insertions() {
    let (_world, mut worker, tree) = hopeless();
    (0..4).for_each(|n| insert(&tree, &mut worker, n));
    // The leaf is full, so the first body has memory for another one. It lacks that of a root, which the second has.
    assert_eq!(conflicts(&mut worker, |worker| insert(&tree, worker, 4)), (6 + 6, 2));
    assert_eq!(height(&tree), 2);
}

#[test]
fn a_budget_is_never_less_than_one_try() {
    let (world, mut worker, tree) = hopeless();
    let tiny = Budget::ONE;
    worker.agent = world.htm.agent(worker.local.worker(), tiny);
    (0..40).for_each(|n| insert(&tree, &mut worker, n));
    assert!(height(&tree) > 2);
    let before = worker.agent.statistics();
    insert(&tree, &mut worker, 100);
    let after = worker.agent.statistics();
    assert_eq!(after.started - before.started, after.fallback - before.fallback);
    assert!(after.started > before.started);
}
