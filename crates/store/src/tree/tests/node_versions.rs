//! Every change of a leaf's membership changes its word. A node version that still holds proves that the leaf has the
//! same records, and that absent keys are still absent. And an operation disturbs no more leaves than it must.

use super::fixture::{TestKind, World, bytes_of, holds, modes, seeded};
use crate::node_version::NodeVersion;
use crate::observer::GAP_CLOSED;
use crate::record::{Bytes, RecordPtr, Word8, Word16};
use crate::tree::Tree;
use crate::{Direction, Inserted, LeafHint, Observer, Tidy, Unobserved};
use seriatim_base::rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn word8() {
    run::<Word8, 4, 4>("node_versions::word8", 200);
}

#[test]
fn word16() {
    run::<Word16, 4, 4>("node_versions::word16", 200);
}

#[test]
fn bytes() {
    run::<Bytes, 4, 4>("node_versions::bytes", 200);
}

fn run<K: TestKind, const LEAF: usize, const FAN: usize>(test: &str, universe: u64) {
    let (seed, mut rng) = seeded(test);
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let tree = Tree::<K, LEAF, FAN>::new(&world.htm, &mut worker.cx()).expect("memory");
        let mut model: BTreeMap<Vec<u8>, RecordPtr> = BTreeMap::new();
        let mut earlier: Vec<(NodeVersion, Vec<RecordPtr>)> = Vec::new();
        let phase = rng::tries(120, 300);
        for operation in 0..rng::tries(240, 1_500) {
            let growing = (operation / phase).is_multiple_of(2);
            let key = K::key(rng.below(universe));
            let (probe, bytes) = (K::probe(key.as_key()), bytes_of(key.as_key()));
            let leaves = tree.leaves(&worker, Direction::Forward);
            earlier.extend(leaves.iter().cloned());
            let absent = tree.get(probe, worker.local.pinned()).err();
            assert!(absent.is_none_or(|absent| leaves.iter().any(|leaf| leaf.0 == absent)), "absence is a leaf's word");
            let linked = model.get(&bytes).copied();
            let change = match linked {
                None if growing || rng.below(4) == 0 => {
                    let record = worker.record(key.as_key());
                    let inserted = tree.insert(&mut worker.cx(), probe, record, &mut Unobserved);
                    assert_eq!(inserted, Ok(Inserted::Linked));
                    model.insert(bytes, record);
                    true
                }
                Some(record) if !growing || rng.below(4) == 0 => {
                    assert!(tree.remove(&mut worker.cx(), probe, record, &mut Unobserved));
                    model.remove(&bytes);
                    true
                }
                Some(record) => {
                    let again = tree.insert(&mut worker.cx(), probe, record, &mut Unobserved);
                    assert_eq!(again, Ok(Inserted::Exists(record)));
                    false
                }
                None => false,
            };
            if let Some(absent) = absent {
                assert_eq!(holds(absent), !change, "a node version of absence ends when the key is linked, not before");
            }
            let of_key = leaves.iter().position(|leaf| match linked {
                Some(record) => leaf.1.contains(&record),
                None => absent == Some(leaf.0),
            });
            let of_key = of_key.filter(|_| change);
            let mut disturbed: Vec<usize> = (0..leaves.len()).filter(|&at| !holds(leaves[at].0)).collect();
            // A leaf that goes may take keys from its left neighbour with it.
            if let Some(at) = of_key.filter(|&at| linked.is_some() && leaves[at].1.len() == 1) {
                disturbed.retain(|&other| other + 1 != at);
            }
            assert_eq!(disturbed, Vec::from_iter(of_key), "the leaf of the key changes, and no other");
            let now = tree.leaves(&worker, Direction::Backward);
            for (node_version, records) in earlier.iter().filter(|leaf| holds(leaf.0)) {
                let same =
                    now.iter().find(|leaf| leaf.0 == *node_version).expect("a leaf whose word holds is in the tree");
                assert!(records.iter().eq(same.1.iter().rev()), "a leaf whose word holds has the same records");
            }
            earlier.retain(|leaf| holds(leaf.0));
        }
        tree.checked();
    }
}

/// Admits, or not.
struct Gate {
    open: bool,
    seen: Vec<(u64, *const AtomicU64)>,
}

impl Observer for Gate {
    fn inherit(&mut self, gap: &AtomicU64) -> u64 {
        gap.load(Ordering::Relaxed)
    }

    fn admit(&mut self, gap: &AtomicU64, word: &AtomicU64) -> bool {
        assert_eq!(word.load(Ordering::Relaxed) & 1, 1, "asked with the leaf latched");
        self.seen.push((gap.load(Ordering::Relaxed), std::ptr::from_ref(word)));
        self.open
    }
}

#[test]
fn an_insertion_not_admitted_changes_nothing() {
    let (seed, _) = seeded("an_insertion_not_admitted_changes_nothing");
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
        for n in 0..100 {
            let record = worker.record(Word8::key(n).as_key());
            let before = tree.leaves(&worker, Direction::Forward);
            let mut gate = Gate { open: false, seen: Vec::new() };
            assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut gate), Ok(Inserted::Refused));
            assert_eq!(tree.leaves(&worker, Direction::Forward), before);
            assert!(before.iter().any(|leaf| Some(leaf.0.address()) == gate.seen.last().map(|seen| seen.1)));
            gate.open = true;
            assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut gate), Ok(Inserted::Linked));
        }
        tree.checked();
    }
}

#[test]
fn a_held_gap_keeps_its_leaf_and_is_copied_by_splits() {
    let (seed, _) = seeded("a_held_gap_keeps_its_leaf_and_is_copied_by_splits");
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
        let gaps = |worker: &super::fixture::Worker| {
            let mut cursor = crate::Cursor::new();
            let mut gaps = Vec::new();
            cursor.begin(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, Direction::Forward);
            cursor.show_whole_leaves();
            while tree.next_leaf(&mut cursor, &mut LeafHint::default(), worker.local.pinned()) {
                // SAFETY: the worker stays online until the test ends.
                let gap: *const AtomicU64 = unsafe { cursor.gap(worker.local.pinned()) };
                gaps.push(gap);
            }
            gaps
        };
        // SAFETY: the worker stays online until the test ends.
        let at = |gap: *const AtomicU64| unsafe { &*gap };
        at(gaps(&worker)[0]).store(7, Ordering::Relaxed);
        let mut records = Vec::new();
        for n in 0..40 {
            let record = worker.record(Word8::key(n).as_key());
            let mut gate = Gate { open: true, seen: Vec::new() };
            // Splits of observers that admit hand the gap on in another way than those of observers that do not.
            let inserted = match n < 20 {
                true => tree.insert(&mut worker.cx(), n, record, &mut gate),
                false => tree.insert(&mut worker.cx(), n, record, &mut Unobserved),
            };
            assert_eq!(inserted, Ok(Inserted::Linked));
            assert!(gate.seen.iter().all(|seen| seen.0 == 7));
            records.push(record);
        }
        let held = gaps(&worker);
        assert!(held.len() >= 10 && held.iter().all(|&gap| at(gap).load(Ordering::Relaxed) == 7));
        for (n, &record) in (0..).zip(&records[..20]) {
            assert!(tree.remove(&mut worker.cx(), n, record, &mut Unobserved));
        }
        assert_eq!(gaps(&worker), held, "empty leaves stay while their gaps are held");
        held.iter().for_each(|&gap| at(gap).store(0, Ordering::Relaxed));
        for (n, &record) in (20..).zip(&records[20..]) {
            assert!(tree.remove(&mut worker.cx(), n, record, &mut Unobserved));
        }
        let left = gaps(&worker);
        let closed = held.iter().filter(|&&gap| at(gap).load(Ordering::Relaxed) == GAP_CLOSED).count();
        assert!(closed > 0 && left.len() + closed == held.len(), "a leaf's gap is closed when it is unlinked");
    }
}

#[test]
fn where_no_leaf_may_be_empty_its_last_record_stays_until_the_gap_is_released() {
    let (seed, _) = seeded("where_no_leaf_may_be_empty_its_last_record_stays_until_the_gap_is_released");
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
        let mut records = Vec::new();
        for n in 0..40 {
            let record = worker.record(Word8::key(n).as_key());
            assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
            records.push((n, record));
        }
        let hold = |worker: &super::fixture::Worker, value: u64| {
            let (mut cursor, mut leaves) = (crate::Cursor::new(), 0);
            cursor.begin(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, Direction::Forward);
            cursor.show_whole_leaves();
            while tree.next_leaf(&mut cursor, &mut LeafHint::default(), worker.local.pinned()) {
                // SAFETY: the worker stays online until the test ends.
                unsafe { cursor.gap(worker.local.pinned()) }.store(value, Ordering::Relaxed);
                leaves += 1;
            }
            leaves
        };
        let leaves = hold(&worker, 7);
        records.retain(|&(n, record)| !tree.remove(&mut worker.cx(), n, record, &mut Tidy));
        assert_eq!(records.len(), leaves, "one record stays in each leaf");
        assert!(records.iter().all(|&(n, record)| tree.get(n, worker.local.pinned()) == Ok(record)));
        assert_eq!(hold(&worker, 0), leaves);
        records.retain(|&(n, record)| !tree.remove(&mut worker.cx(), n, record, &mut Tidy));
        assert!(records.is_empty());
        // SAFETY: no other thread uses the tree.
        assert_eq!(unsafe { tree.check() }, Ok(()));
    }
}

/// A transaction that has seen an absence in either leaf looks again. A held gap keeps its leaf from being unlinked.
#[test]
fn a_merge_changes_both_leaves_unless_the_gap_of_the_one_that_goes_is_held() {
    let (seed, _) = seeded("a_merge_changes_both_leaves_unless_the_gap_of_the_one_that_goes_is_held");
    for (mode, first) in modes(seed).into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        for held in [false, true] {
            let world = World::new(mode);
            let mut worker = world.worker();
            let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
            let records: Vec<_> = (0..8).map(|n| worker.record(Word8::key(n * 10).as_key())).collect();
            for (n, &record) in (0..).zip(&records) {
                assert_eq!(tree.insert(&mut worker.cx(), n * 10, record, &mut Unobserved), Ok(Inserted::Linked));
            }
            world.make_scarce(&mut worker);
            let remove = |worker: &mut super::fixture::Worker, n: usize| {
                assert!(tree.remove(&mut worker.cx(), n as u64 * 10, records[n], &mut Unobserved));
            };
            // Two records stay in the leaf that is not emptied further, so that those of both fit into one.
            let (kept, emptied) = if first { ([4, 5], [0, 1, 2]) } else { ([0, 1], [4, 5, 6]) };
            let place = emptied[0] as u64 * 10 + 5;
            kept.iter().for_each(|&n| remove(&mut worker, n));
            remove(&mut worker, emptied[0]);
            let absent = |n: u64| {
                let (version, gap) = tree.get_or_gap(n, worker.local.pinned()).expect_err("there is no such key");
                (version, std::ptr::from_ref(gap))
            };
            let (in_kept, in_emptied) = (absent(kept[0] as u64 * 10 + 5), absent(place));
            assert!(in_kept.1 != in_emptied.1, "two leaves");
            // SAFETY: the worker stays online.
            let gap = |leaf: *const std::sync::atomic::AtomicU64| unsafe { &*leaf };
            // The right one goes.
            let (left, right) = if first { (in_emptied, in_kept) } else { (in_kept, in_emptied) };
            let right_key = kept[0].max(emptied[0]) as u64 * 10 + 5;
            gap(right.1).store(if held { 7 } else { 0 }, Ordering::Relaxed);
            // An emulated region may abort as often as a merge tries.
            for _ in 0..100 {
                remove(&mut worker, emptied[1]);
                if held || !holds(in_kept.0) {
                    break;
                }
                let (n, record) = (emptied[1] as u64 * 10, records[emptied[1]]);
                assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
            }
            assert_eq!((holds(in_kept.0), holds(in_emptied.0)), (held, false));
            let now = tree.get_or_gap(right_key, worker.local.pinned()).expect_err("there is no such key").1;
            assert_eq!(std::ptr::from_ref(now) == left.1, !held, "the left leaf has the keys");
            assert_eq!(gap(right.1).load(Ordering::Relaxed), if held { 7 } else { GAP_CLOSED });
            gap(right.1).store(if held { 0 } else { GAP_CLOSED }, Ordering::Relaxed);
            tree.checked();
        }
    }
}
