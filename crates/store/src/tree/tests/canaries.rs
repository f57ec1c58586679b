//! Trees broken on purpose: the alarms of the other tests must go off.

use super::fixture::{TestKind, World, holds, seeded};
use crate::record::Word8;
use crate::tree::Tree;
use crate::{Direction, Inserted};
use seriatim_base::thread;
use seriatim_htm::{Access, HtmMode};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

type Small = Tree<Word8, 4, 4>;

/// Changes leaves without changing their words.
struct Forgetful;

impl Access for Forgetful {
    const REGION: bool = false;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        word.load(Ordering::Acquire)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        // Words of nodes are the only ones at the start of a line that change by one step.
        let is_word = std::ptr::from_ref(word).addr().is_multiple_of(64) && value == word.load(Ordering::Relaxed) + 4;
        if !is_word {
            word.store(value, Ordering::Release);
        }
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, _locked: u64) -> bool {
        word.load(Ordering::Acquire) == unlocked
    }
}

#[test]
fn a_word_that_does_not_change_is_noticed() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
    let (node_version, records) = tree.leaves(&worker, Direction::Forward).remove(0);
    let record = worker.record(Word8::key(1).as_key());
    assert_eq!(tree.insert_through(&mut worker.cx(), 1, record, &mut Forgetful), Ok(Inserted::Linked));
    let now = tree.leaves(&worker, Direction::Forward).remove(0);
    assert!(holds(node_version) && now.0 == node_version && now.1 != records, "what `node_versions` forbids");
}

/// Latches nothing and lets others run between stores.
struct Unlatched;

impl Access for Unlatched {
    const REGION: bool = false;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        word.load(Ordering::Acquire)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        thread::yield_now();
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, _locked: u64) -> bool {
        thread::yield_now();
        word.load(Ordering::Acquire) == unlocked
    }
}

#[test]
fn a_tree_without_latches_is_noticed() {
    let (_, mut rng) = seeded("a_tree_without_latches_is_noticed");
    const KEYS: u64 = 400;
    let noticed = (0..20).any(|_| {
        let world = World::new(HtmMode::Absent);
        let tree = {
            let mut worker = world.worker();
            Small::new(&world.htm, &mut worker.cx()).expect("memory")
        };
        let rngs = [rng.fork(), rng.fork()];
        let panicked = thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .zip(rngs)
                .map(|(id, mut rng)| {
                    let (world, tree) = (&world, &tree);
                    scope.spawn(move || {
                        let mut worker = world.worker();
                        let mut keys: Vec<u64> = (0..KEYS).map(|n| n * 2 + id).collect();
                        rng.shuffle(&mut keys);
                        // The tree's assertions may speak; what is in the worker is not used after.
                        catch_unwind(AssertUnwindSafe(|| {
                            for n in keys {
                                let record = worker.record(Word8::key(n).as_key());
                                let _ = tree.insert_through(&mut worker.cx(), n, record, &mut Unlatched);
                            }
                        }))
                        .is_err()
                    })
                })
                .collect();
            threads.into_iter().any(|thread| thread.join().unwrap_or(true))
        });
        // SAFETY: the threads are joined.
        panicked || unsafe { tree.check().is_err() || tree.statistics().records as u64 != KEYS * 2 }
    });
    assert!(noticed, "what `hammer` forbids");
}
