//! Threads insert, remove, split and unlink. Each thread sees its own keys exactly as it left them. A scan shows every
//! key that stays linked exactly once, in order.

use super::fixture::{TestKind, Worker, World, bytes_of, key_of, modes, seeded};
use crate::record::{Bytes, RecordPtr, Word8, Word16};
use crate::tree::Tree;
use crate::{Cursor, Direction, Inserted, LeafHint, Observer, Unobserved};
use seriatim_base::rng::tries;
use seriatim_base::{Rng, thread};
use seriatim_htm::HtmMode;
use std::collections::HashMap;
use std::ops::Bound;

const THREADS: u64 = 4;

/// Learns nothing, but takes the latching way.
struct Latched;

impl Observer for Latched {}

#[test]
fn small_nodes_word8() {
    run::<Word8, 4, 4>("small_nodes_word8", 240);
}

#[test]
fn smallest_nodes_word8() {
    run::<Word8, 2, 3>("smallest_nodes_word8", 60);
}

#[test]
fn small_nodes_word16() {
    run::<Word16, 4, 4>("small_nodes_word16", 240);
}

#[test]
fn small_nodes_bytes() {
    run::<Bytes, 4, 4>("small_nodes_bytes", 240);
}

#[test]
fn real_nodes_word8() {
    run::<Word8, 29, 31>("real_nodes_word8", 4_000);
}

fn run<K: TestKind, const LEAF: usize, const FAN: usize>(test: &str, universe: u64) {
    let (seed, mut rng) = seeded(test);
    for mode in modes(seed) {
        let operations = if mode == HtmMode::Absent { tries(4_000, 20_000) as usize } else { 600 };
        let world = World::new(mode);
        let mut worker = world.worker();
        let before = world.memory.in_use_bytes();
        let tree = Tree::<K, LEAF, FAN>::new(&world.htm, &mut worker.cx()).expect("memory");
        // Every fifth key stays linked throughout.
        let mut stable = Vec::new();
        for n in (0..universe).filter(|n| n % 5 == 0) {
            let key = K::key(n);
            let record = worker.record(key.as_key());
            let inserted = tree.insert(&mut worker.cx(), K::probe(key.as_key()), record, &mut Unobserved);
            assert_eq!(inserted, Ok(Inserted::Linked));
            stable.push((bytes_of(key.as_key()), record));
        }
        stable.sort();
        worker.local.leave();
        let rngs: Vec<Rng> = (0..THREADS).map(|_| rng.fork()).collect();
        let own: Vec<HashMap<u64, RecordPtr>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .zip(rngs)
                .map(|(id, rng)| {
                    let (tree, world, stable) = (&tree, &world, &stable);
                    scope.spawn(move || churn(tree, (world, world.worker()), stable, id, universe, operations, rng))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread of the hammer")).collect()
        });
        worker.local.enter();
        tree.checked();
        let mut expected: Vec<RecordPtr> = own.iter().flat_map(HashMap::values).copied().collect();
        expected.extend(stable.iter().map(|stable| stable.1));
        expected.sort_by_key(|&record| key_of::<K>(record));
        let mut all = Vec::new();
        // SAFETY: the only thread again.
        unsafe { tree.for_each(&mut |record| all.push(record)) };
        assert_eq!(all, expected);
        for record in all {
            // SAFETY: nothing is linked any more when the tree is gone.
            unsafe { worker.retire::<K>(record) };
        }
        // SAFETY: the only thread again.
        unsafe { tree.dispose(&mut worker.local) };
        worker.local.leave();
        worker.local.collect();
        assert_eq!(world.memory.in_use_bytes(), before, "memory came back");
    }
}

fn churn<K: TestKind, const LEAF: usize, const FAN: usize>(
    tree: &Tree<K, LEAF, FAN>,
    (world, mut worker): (&World, Worker),
    stable: &[(Vec<u8>, RecordPtr)],
    id: u64,
    universe: u64,
    operations: usize,
    mut rng: Rng,
) -> HashMap<u64, RecordPtr> {
    let mut own = HashMap::new();
    let mut leaf_hint = LeafHint::default();
    let mut cursor = Cursor::new();
    for operation in 0..operations {
        if id == 0 && operation == operations / 2 {
            world.make_scarce(&mut worker);
        }
        let n = rng.below(universe / 5) * 5 + id + 1;
        let key = K::key(n);
        let probe = K::probe(key.as_key());
        // Phases in which all threads grow or all decline, as they run about as fast.
        let growing = (operation / (operations / 8)).is_multiple_of(2);
        match (rng.below(8), own.get(&n).copied()) {
            (0..=4, None) if growing => {
                let record = worker.record(key.as_key());
                let inserted = match rng.below(3) {
                    0 => tree.insert(&mut worker.cx(), probe, record, &mut Latched),
                    1 => tree.insert(&mut worker.cx(), probe, record, &mut Unobserved),
                    _ => tree.insert_near(&mut worker.cx(), probe, &mut leaf_hint, record, &mut Unobserved),
                };
                assert_eq!(inserted, Ok(Inserted::Linked));
                own.insert(n, record);
            }
            (0..=4, Some(record)) if !growing => {
                assert!(tree.remove(&mut worker.cx(), probe, record, &mut Unobserved));
                own.remove(&n);
                // SAFETY: just unlinked by this thread.
                unsafe { worker.retire::<K>(record) };
            }
            (0..=6, expected) => {
                let pin = worker.local.pinned();
                assert_eq!(tree.get(probe, pin).ok(), expected);
                assert_eq!(tree.get_near(probe, &mut leaf_hint, pin).ok(), expected);
            }
            _ if rng.below(8) == 0 => {
                let direction = [Direction::Forward, Direction::Backward][rng.below(2) as usize];
                show_stable(tree, &mut worker, stable, direction, &mut cursor);
            }
            _ => worker.rest(),
        }
    }
    own
}

/// Scans everything and compares what stays linked.
fn show_stable<K: TestKind, const LEAF: usize, const FAN: usize>(
    tree: &Tree<K, LEAF, FAN>,
    worker: &mut Worker,
    stable: &[(Vec<u8>, RecordPtr)],
    direction: Direction,
    cursor: &mut Cursor,
) {
    let mut shown = Vec::new();
    cursor.begin(Bound::Unbounded, Bound::Unbounded, direction);
    let mut leaves = 0;
    while tree.next_leaf(cursor, &mut LeafHint::default(), worker.local.pinned()) {
        shown.extend(cursor.records().iter().map(|&record| (key_of::<K>(record), record)));
        leaves += 1;
        if leaves % 3 == 0 {
            // A cursor survives the worker going offline.
            worker.rest();
        }
    }
    if direction == Direction::Backward {
        shown.reverse();
    }
    assert!(shown.windows(2).all(|pair| pair[0].0 < pair[1].0), "a scan repeats nothing and keeps the order");
    shown.retain(|shown| stable.binary_search(shown).is_ok());
    assert_eq!(shown.len(), stable.len(), "a scan misses no key that stays");
}
