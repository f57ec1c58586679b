//! A transaction notes node versions of leaves, and updates its node set by its own changes. Its own splits do not stop
//! it, at any fill level. Any insertion of another transaction into the ranges that it saw does.

use super::fixture::{TestKind, Worker, World, holds, modes, seeded};
use crate::node_version::NodeVersion;
use crate::record::{Bytes, Word8, Word16};
use crate::tree::Tree;
use crate::{Direction, Inserted, Observer, Unobserved};
use std::sync::atomic::AtomicU64;

/// The node set of a transaction, as protocols keep it.
#[derive(Default)]
struct NodeSet(Vec<NodeVersion>);

impl NodeSet {
    fn see<K: TestKind, const LEAF: usize, const FAN: usize>(&mut self, tree: &Tree<K, LEAF, FAN>, worker: &Worker) {
        self.0.extend(tree.leaves(worker, Direction::Forward).iter().map(|leaf| leaf.0));
    }

    fn validates(&self) -> bool {
        self.0.iter().all(|&node_version| holds(node_version))
    }

    fn covers<K: TestKind, const LEAF: usize, const FAN: usize>(
        &self,
        tree: &Tree<K, LEAF, FAN>,
        worker: &Worker,
    ) -> bool {
        tree.leaves(worker, Direction::Forward).iter().all(|leaf| self.0.contains(&leaf.0))
    }
}

impl Observer for NodeSet {
    const ADMITS: bool = false;

    fn changed(&mut self, word: &AtomicU64, before: u64, after: u64) {
        let own = NodeVersion::new(word, before);
        self.0.iter_mut().filter(|seen| **seen == own).for_each(|seen| *seen = NodeVersion::new(word, after));
    }

    fn created(&mut self, from: &AtomicU64, from_before: u64, word: &AtomicU64, value: u64, _gap: &AtomicU64) {
        // `changed` came first: the leaf split from is known by its later value, if it was in the node set at all.
        if self.0.iter().any(|seen| seen.address() == std::ptr::from_ref(from) && seen.value() > from_before) {
            self.0.push(NodeVersion::new(word, value));
        }
    }
}

#[test]
fn own_splits_pass_and_others_insertions_fail_word8() {
    own_splits::<Word8, 4, 4>("own_splits_word8", 40);
}

#[test]
fn own_splits_pass_and_others_insertions_fail_word16() {
    own_splits::<Word16, 4, 4>("own_splits_word16", 40);
}

#[test]
fn own_splits_pass_and_others_insertions_fail_bytes() {
    own_splits::<Bytes, 4, 4>("own_splits_bytes", 40);
}

#[test]
fn own_splits_pass_and_others_insertions_fail_with_real_nodes() {
    own_splits::<Word8, 29, 31>("own_splits_real", 64);
}

fn own_splits<K: TestKind, const LEAF: usize, const FAN: usize>(test: &str, fill: u64) {
    let (seed, mut rng) = seeded(test);
    for mode in modes(seed) {
        let world = World::new(mode);
        for filled in 0..fill {
            let (mut worker, mut other) = (world.worker(), world.worker());
            let tree = Tree::<K, LEAF, FAN>::new(&world.htm, &mut worker.cx()).expect("memory");
            let mut keys: Vec<u64> = (0..fill * 2).collect();
            rng.shuffle(&mut keys);
            let insert = |worker: &mut Worker, n: u64, nodes: Option<&mut NodeSet>| {
                let key = K::key(n);
                let record = worker.record(key.as_key());
                let probe = K::probe(key.as_key());
                let inserted = match nodes {
                    Some(nodes) => tree.insert(&mut worker.cx(), probe, record, nodes),
                    None => tree.insert(&mut worker.cx(), probe, record, &mut Unobserved),
                };
                assert_eq!(inserted, Ok(Inserted::Linked));
            };
            for &n in &keys[..filled as usize] {
                insert(&mut worker, n, None);
            }
            let mut nodes = NodeSet::default();
            nodes.see(&tree, &worker);
            for &n in &keys[filled as usize..][..fill as usize / 2] {
                insert(&mut worker, n, Some(&mut nodes));
                assert!(nodes.validates(), "a transaction's own insertions do not stop it");
                assert!(nodes.covers(&tree, &worker), "its splits hide nothing from it");
            }
            insert(&mut other, keys[fill as usize * 3 / 2], None);
            assert!(!nodes.validates(), "another's insertion stops it");
        }
    }
}

#[test]
fn each_of_two_that_saw_the_other_absent_is_stopped() {
    let (seed, _) = seeded("each_of_two_that_saw_the_other_absent_is_stopped");
    for mode in modes(seed) {
        let world = World::new(mode);
        let (mut one, mut two) = (world.worker(), world.worker());
        let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut one.cx()).expect("memory");
        let (mut first, mut second) = (NodeSet::default(), NodeSet::default());
        first.0.extend(tree.get(2, one.local.pinned()).err());
        second.0.extend(tree.get(1, two.local.pinned()).err());
        let (a, b) = (one.record(Word8::key(1).as_key()), two.record(Word8::key(2).as_key()));
        assert_eq!(tree.insert(&mut one.cx(), 1, a, &mut first), Ok(Inserted::Linked));
        assert_eq!(tree.insert(&mut two.cx(), 2, b, &mut second), Ok(Inserted::Linked));
        assert!(!first.validates() && !second.validates(), "mutual insertion is write skew on absence");
    }
}

#[test]
fn an_unlinked_leaf_fails_all_transactions_that_read_it() {
    let (seed, _) = seeded("an_unlinked_leaf_fails_all_transactions_that_read_it");
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
        let records: Vec<_> = (0..32)
            .map(|n| {
                let record = worker.record(Word8::key(n).as_key());
                assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
                record
            })
            .collect();
        let mut nodes = NodeSet::default();
        nodes.0.extend(tree.get(1_000, worker.local.pinned()).err());
        assert_eq!(nodes.0.len(), 1);
        // The last leaf, where 1000 would be, empties and goes; even the transaction that removed its records
        // must look again.
        for n in (16..32).rev() {
            assert!(tree.remove(&mut worker.cx(), n, records[n as usize], &mut nodes));
        }
        assert!(!nodes.validates());
    }
}
