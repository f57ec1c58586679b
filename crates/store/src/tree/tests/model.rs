//! One thread: every operation answers as the standard library's map does, and all memory comes back.

use super::fixture::{TestKind, Worker, World, bytes_of, key_of, modes, seeded};
use crate::record::{Bytes, RecordPtr, Word8, Word16};
use crate::tree::Tree;
use crate::{Cursor, Direction, Inserted, LeafHint, Unobserved};
use seriatim_base::Rng;
use seriatim_base::rng::tries;
use seriatim_catalog::{Key, KeyBuf};
use seriatim_htm::HtmMode;
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, RecordPtr>;

#[test]
fn small_nodes_word8() {
    run::<Word8, 4, 4>("small_nodes_word8", 6_000, 300);
}

#[test]
fn smallest_nodes_word8() {
    run::<Word8, 2, 3>("smallest_nodes_word8", 4_000, 120);
}

#[test]
fn small_nodes_word16() {
    run::<Word16, 4, 4>("small_nodes_word16", 6_000, 300);
}

#[test]
fn small_nodes_bytes() {
    run::<Bytes, 4, 4>("small_nodes_bytes", 8_000, 300);
}

#[test]
fn odd_nodes_bytes() {
    run::<Bytes, 3, 5>("odd_nodes_bytes", 8_000, 2_000);
}

#[test]
fn real_nodes_word8() {
    run::<Word8, 29, 31>("real_nodes_word8", 30_000, 9_000);
}

#[test]
fn real_nodes_word16() {
    run::<Word16, 29, 31>("real_nodes_word16", 20_000, 9_000);
}

#[test]
fn real_nodes_bytes() {
    run::<Bytes, 29, 31>("real_nodes_bytes", 20_000, 9_000);
}

fn run<K: TestKind, const LEAF: usize, const FAN: usize>(test: &str, operations: usize, universe: u64) {
    let (seed, mut rng) = seeded(test);
    let operations = tries(operations as u64 / 8, operations as u64) as usize;
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let before = world.memory.in_use_bytes();
        let tree = Tree::<K, LEAF, FAN>::new(&world.htm, &mut worker.cx()).expect("memory");
        let mut model = Model::new();
        let (mut leaf_hint, mut other) = (LeafHint::default(), LeafHint::default());
        let mut next = 0;
        for operation in 0..operations {
            if operation == operations / 2 {
                world.make_scarce(&mut worker);
            }
            // Phases of growth and of decline, so that leaves fill and empty.
            let growing = (operation / (operations / 6)).is_multiple_of(2);
            let n = match rng.below(4) {
                0 => {
                    next += 1;
                    next % universe
                }
                _ => rng.below(universe),
            };
            let key = K::key(n);
            match rng.below(10) {
                0..=3 if growing => insert(&tree, &mut worker, &mut model, &key, &mut leaf_hint, &mut rng),
                0..=5 => remove(&tree, &mut worker, &mut model, &key),
                6..=7 => look_up(&tree, &worker, &model, &key, &mut other),
                8 => scan(&tree, &worker, &model, universe, &mut other, &mut rng),
                _ => worker.rest(),
            }
            if operation % 256 == 0 {
                tree.checked();
            }
        }
        tree.checked();
        let regions = worker.agent.statistics();
        assert!(
            mode == HtmMode::Absent || regions.committed > 0 && regions.aborted.total() > 0 && regions.fallback > 0
        );
        let mut all = Vec::new();
        // SAFETY: the only thread.
        unsafe { tree.for_each(&mut |record| all.push(record)) };
        assert_eq!(all, model.values().copied().collect::<Vec<_>>());
        // SAFETY: the only thread.
        assert_eq!(unsafe { tree.statistics() }.records, model.len());
        for record in all {
            // SAFETY: nothing is linked any more when the tree is gone.
            unsafe { worker.retire::<K>(record) };
        }
        // SAFETY: the only thread.
        unsafe { tree.dispose(&mut worker.local) };
        worker.local.leave();
        worker.local.collect();
        assert_eq!(world.memory.in_use_bytes(), before, "memory came back");
    }
}

fn insert<K: TestKind, const LEAF: usize, const FAN: usize>(
    tree: &Tree<K, LEAF, FAN>,
    worker: &mut Worker,
    model: &mut Model,
    key: &KeyBuf,
    leaf_hint: &mut LeafHint,
    rng: &mut Rng,
) {
    let record = worker.record(key.as_key());
    let probe = K::probe(key.as_key());
    let inserted = match rng.below(3) {
        0 => tree.insert(&mut worker.cx(), probe, record, &mut Unobserved),
        1 => tree.insert_near(&mut worker.cx(), probe, leaf_hint, record, &mut Unobserved),
        // SAFETY: the only thread.
        _ => unsafe { tree.insert_exclusive(&mut worker.cx(), probe, leaf_hint, record) },
    };
    let expected = model.get(&bytes_of(key.as_key())).copied();
    assert_eq!(inserted, Ok(expected.map_or(Inserted::Linked, Inserted::Exists)));
    match expected {
        None => {
            model.insert(bytes_of(key.as_key()), record);
        }
        // SAFETY: never linked.
        Some(_) => unsafe { worker.retire::<K>(record) },
    }
}

fn remove<K: TestKind, const LEAF: usize, const FAN: usize>(
    tree: &Tree<K, LEAF, FAN>,
    worker: &mut Worker,
    model: &mut Model,
    key: &KeyBuf,
) {
    let probe = K::probe(key.as_key());
    match model.remove(&bytes_of(key.as_key())) {
        Some(record) => {
            let impostor = worker.record(key.as_key());
            assert!(
                !tree.remove(&mut worker.cx(), probe, impostor, &mut Unobserved),
                "another record of the key stays"
            );
            assert!(tree.remove(&mut worker.cx(), probe, record, &mut Unobserved));
            assert!(!tree.remove(&mut worker.cx(), probe, record, &mut Unobserved));
            // SAFETY: just unlinked, and never linked.
            unsafe {
                worker.retire::<K>(record);
                worker.retire::<K>(impostor);
            }
        }
        None => {
            let absent = worker.record(key.as_key());
            assert!(!tree.remove(&mut worker.cx(), probe, absent, &mut Unobserved));
            // SAFETY: never linked.
            unsafe { worker.retire::<K>(absent) };
        }
    }
}

fn look_up<K: TestKind, const LEAF: usize, const FAN: usize>(
    tree: &Tree<K, LEAF, FAN>,
    worker: &Worker,
    model: &Model,
    key: &KeyBuf,
    leaf_hint: &mut LeafHint,
) {
    let probe = K::probe(key.as_key());
    let expected = model.get(&bytes_of(key.as_key())).copied();
    let pin = worker.local.pinned();
    assert_eq!(tree.get(probe, pin).ok(), expected);
    assert_eq!(tree.get_near(probe, leaf_hint, pin).ok(), expected);
    assert_eq!(tree.get_near(probe, leaf_hint, pin).ok(), expected);
}

fn scan<K: TestKind, const LEAF: usize, const FAN: usize>(
    tree: &Tree<K, LEAF, FAN>,
    worker: &Worker,
    model: &Model,
    universe: u64,
    leaf_hint: &mut LeafHint,
    rng: &mut Rng,
) {
    let (a, b) = (K::key(rng.below(universe)), K::key(rng.below(universe)));
    let (a, b) = if a.as_key() <= b.as_key() { (a, b) } else { (b, a) };
    let bound = |rng: &mut Rng, key| match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    let (low, high) = (bound(rng, a.as_key()), bound(rng, b.as_key()));
    let within = |key: &[u8]| {
        let above = match low {
            Bound::Unbounded => true,
            Bound::Included(low) => key >= &bytes_of(low)[..],
            Bound::Excluded(low) => key > &bytes_of(low)[..],
        };
        let below = match high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= &bytes_of(high)[..],
            Bound::Excluded(high) => key < &bytes_of(high)[..],
        };
        above && below
    };
    let mut expected: Vec<RecordPtr> = model.iter().filter(|(key, _)| within(key)).map(|(_, &record)| record).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        let shown = collect(tree, worker, low, high, direction, leaf_hint);
        assert_eq!(shown, expected, "{low:?} to {high:?}, {direction:?}");
        expected.reverse();
    }
}

fn collect<K: TestKind, const LEAF: usize, const FAN: usize>(
    tree: &Tree<K, LEAF, FAN>,
    worker: &Worker,
    low: Bound<Key<'_>>,
    high: Bound<Key<'_>>,
    direction: Direction,
    leaf_hint: &mut LeafHint,
) -> Vec<RecordPtr> {
    let mut cursor = Cursor::new();
    let mut shown = Vec::new();
    cursor.begin(low, high, direction);
    let mut leaves = 0;
    while tree.next_leaf(&mut cursor, leaf_hint, worker.local.pinned()) {
        leaves += 1;
        assert!(cursor.records().len() <= LEAF);
        shown.extend_from_slice(cursor.records());
    }
    assert!(leaves > 0, "the leaf that proves a range empty is shown");
    assert!(!tree.next_leaf(&mut cursor, leaf_hint, worker.local.pinned()), "the end stays the end");
    assert!(shown.windows(2).all(|pair| {
        let order = key_of::<K>(pair[0]).cmp(&key_of::<K>(pair[1]));
        if direction == Direction::Forward { order.is_lt() } else { order.is_gt() }
    }));
    shown
}
