//! A scan shows a few records first and the rest of their leaf next, covered by the node versions that it shows. A scan
//! of a prefix begins in the leaf of the prefix's first key.

use super::fixture::{TestKind, World, holds, seeded};
use crate::node_version::NodeVersion;
use crate::record::{RecordPtr, Word8};
use crate::tree::load::Optimistic;
use crate::tree::{Tree, size};
use crate::{Cursor, Direction, Inserted, LeafHint, Unobserved};
use seriatim_base::thread::interrupt;
use seriatim_catalog::Key;
use seriatim_htm::HtmMode;
use std::ops::Bound;

type Real = Tree<Word8, 29, 31>;

/// What a scan showed at a time: the node version and the keys.
type Shown = (NodeVersion, Vec<u64>);

fn key_of(record: &RecordPtr) -> u64 {
    // SAFETY: records of these tests stay allocated.
    unsafe { <Word8 as crate::record::Kind>::of(*record) }
}

/// A tree of some keys.
struct Fixture {
    worker: super::fixture::Worker,
    tree: Real,
}

impl Fixture {
    fn of(keys: impl IntoIterator<Item = u64>) -> Fixture {
        let world = World::new(HtmMode::Absent);
        let mut worker = world.worker();
        let tree = Real::new(&world.htm, &mut worker.cx()).expect("memory");
        let mut fixture = Fixture { worker, tree };
        keys.into_iter().for_each(|key| fixture.insert(key));
        fixture
    }

    fn insert(&mut self, key: u64) {
        let record = self.worker.record(Word8::key(key).as_key());
        let inserted = self.tree.insert(&mut self.worker.cx(), key, record, &mut Unobserved);
        assert_eq!(inserted, Ok(Inserted::Linked));
    }

    fn remove(&mut self, key: u64) {
        let record = self.tree.get(key, self.worker.local.pinned()).expect("it is linked");
        assert!(self.tree.remove(&mut self.worker.cx(), key, record, &mut Unobserved));
    }

    /// The next records of a scan.
    fn next(&self, cursor: &mut Cursor, leaf_hint: &mut LeafHint) -> Option<Shown> {
        let more = self.tree.next_leaf(cursor, leaf_hint, self.worker.local.pinned());
        more.then(|| (cursor.node_version(), cursor.records().iter().map(key_of).collect()))
    }
}

fn between(low: u64, high: u64, direction: Direction) -> Cursor {
    let mut cursor = Cursor::new();
    cursor.begin(Bound::Included(Key::Word8(low)), Bound::Included(Key::Word8(high)), direction);
    cursor
}

const FIRST: u64 = size::FIRST as u64;

#[test]
fn the_first_records_of_a_scan_are_few_and_the_next_are_the_rest_of_their_leaf() {
    for direction in [Direction::Forward, Direction::Backward] {
        for count in [0, 1, FIRST - 1, FIRST, FIRST + 1, 2 * FIRST + 1, 20] {
            // Others lie on both sides in the same leaf.
            for (low, high) in [(100, 199), (0, 199), (100, 300)] {
                let fixture = Fixture::of([3, 5, 7].into_iter().filter(|_| low > 0).chain(100..100 + count));
                let (mut cursor, mut leaf_hint) = (between(low, high, direction), LeafHint::default());
                let mut keys: Vec<u64> = (100..100 + count).collect();
                if direction == Direction::Backward {
                    keys.reverse();
                }
                let (first, rest) = keys.split_at(keys.len().min(FIRST as usize));
                let (version, shown) = fixture.next(&mut cursor, &mut leaf_hint).expect("a leaf");
                assert_eq!(shown, first, "{count} {direction:?}");
                if !rest.is_empty() {
                    let next = fixture.next(&mut cursor, &mut leaf_hint).expect("the rest");
                    assert_eq!(next, (version, rest.to_vec()), "{count} {direction:?}");
                }
                // A leaf whose first records are all of them is shown once more at most, without a record.
                if let Some(next) = fixture.next(&mut cursor, &mut leaf_hint) {
                    assert_eq!(next, (version, Vec::new()), "{count} {direction:?}");
                }
                assert!(fixture.next(&mut cursor, &mut leaf_hint).is_none(), "{count} {direction:?}");
            }
        }
    }
}

/// The leaf may change in any way between the first records and the rest. The rest is as it is then. Either it comes
/// with the node version of the first records, or that version does not hold any more.
#[test]
fn a_leaf_that_changes_before_its_rest_is_shown_has_another_node_version() {
    let linked = || (0..25).map(|n| 100 + 2 * n);
    for direction in [Direction::Forward, Direction::Backward] {
        for change in 98..152 {
            // One insertion, or as many as split the leaf.
            for count in [1, 8] {
                let mut fixture = Fixture::of(linked());
                let (mut cursor, mut leaf_hint) = (between(90, 160, direction), LeafHint::default());
                let (version, mut shown) = fixture.next(&mut cursor, &mut leaf_hint).expect("a leaf");
                assert_eq!(shown.len(), size::FIRST);
                let beyond = |key: u64, last: u64| match direction {
                    Direction::Forward => key > last,
                    Direction::Backward => key < last,
                };
                let last = shown[size::FIRST - 1];
                let mut expected = shown.clone();
                for key in change..change + count {
                    match linked().any(|there| there == key) {
                        true => fixture.remove(key),
                        false => fixture.insert(key),
                    }
                }
                let mut now = fixture.tree.leaves(&fixture.worker, direction);
                let now = now.drain(..).flat_map(|(_, records)| records.iter().map(key_of).collect::<Vec<_>>());
                expected.extend(now.filter(|&key| beyond(key, last)));
                let mut versions = Vec::new();
                while let Some((version, keys)) = fixture.next(&mut cursor, &mut leaf_hint) {
                    shown.extend(keys);
                    versions.push(version);
                }
                assert_eq!(shown, expected, "{change} {count} {direction:?}");
                assert!(!holds(version) && versions.iter().all(|&next| next != version && holds(next)));
            }
        }
    }
}

#[test]
fn a_scan_may_begin_in_the_hinted_leaf_and_shows_the_same() {
    let (_, mut rng) = seeded("a_scan_may_begin_in_the_hinted_leaf_and_shows_the_same");
    let mut fixture = Fixture::of((0..400).map(|n| n * 3));
    let mut leaf_hint = LeafHint::default();
    let mut hinted = 0;
    for round in 0..600 {
        // Some leaves become empty, and their neighbours take their keys.
        let change = rng.below(1200);
        match fixture.tree.get(change, fixture.worker.local.pinned()) {
            Ok(_) => (change..change + 40).for_each(|key| {
                if fixture.tree.get(key, fixture.worker.local.pinned()).is_ok() {
                    fixture.remove(key);
                }
            }),
            Err(_) => fixture.insert(change),
        }
        let direction = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
        let low = rng.below(1200);
        let high = low + rng.below(100);
        let _ = fixture.tree.get_near(rng.below(2) * 9 + low, &mut leaf_hint, fixture.worker.local.pinned());
        let mut shown = [Vec::new(), Vec::new()];
        let before = leaf_hint.leaf;
        for (hint, shown) in [&mut leaf_hint, &mut LeafHint::default()].into_iter().zip(&mut shown) {
            let mut cursor = between(low, high, direction);
            while let Some((version, keys)) = fixture.next(&mut cursor, hint) {
                assert!(holds(version));
                shown.extend(keys);
            }
        }
        hinted += u64::from(leaf_hint.leaf == before && !shown[0].is_empty());
        assert_eq!(shown[0], shown[1], "{low}..={high} {direction:?}");
    }
    fixture.tree.checked();
    assert!(hinted > 50, "{hinted}");
}

#[test]
fn a_prefix_begins_where_a_leaf_is_split_between_prefixes() {
    // The first leaf is full when the second prefix gets its first key.
    let fixture = Fixture::of((0..29).map(|n| 1 << 32 | n).chain([2 << 32 | 7]));
    let mut cursor = between(2 << 32, 3 << 32, Direction::Forward);
    let (_, shown) = fixture.next(&mut cursor, &mut LeafHint::default()).expect("a leaf");
    assert_eq!(shown, [2 << 32 | 7]);
}

/// Nodes above lose keys when their last leaf becomes empty and its keys go to the right: a lookup on its way down must
/// notice. Another removes the head of a queue and inserts a key before it, at each step of a lookup of that key.
#[test]
fn a_lookup_during_a_move_of_keys_to_the_head_of_a_queue_proves_no_absence() {
    type Small = Tree<Word8, 4, 4>;
    const LENGTH: u64 = 40;
    let head = 2 << 32;
    let tail = |n: u64| 1 << 32 | n;
    let mut turns = 0;
    for removed in 1..LENGTH {
        for at in 0.. {
            let world = World::new(HtmMode::Absent);
            let (mut worker, mut other) = (world.worker(), world.worker());
            let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
            let mut records = Vec::new();
            for key in (0..LENGTH).map(tail).chain((1..LENGTH).map(|n| head + n)) {
                let record = worker.record(Word8::key(key).as_key());
                assert_eq!(tree.insert(&mut worker.cx(), key, record, &mut Unobserved), Ok(Inserted::Linked));
                records.push((key, record));
            }
            let mut queue = records.into_iter().filter(|&(key, _)| key > head);
            for (key, record) in queue.by_ref().take(removed as usize - 1) {
                assert!(tree.remove(&mut worker.cx(), key, record, &mut Unobserved));
            }
            let turn = || {
                let (key, record) = queue.next().expect("a head");
                assert!(tree.remove(&mut other.cx(), key, record, &mut Unobserved));
                let record = other.record(Word8::key(head).as_key());
                assert_eq!(tree.insert(&mut other.cx(), head, record, &mut Unobserved), Ok(Inserted::Linked));
            };
            let (found, is_interrupted) = interrupt(at, turn, || tree.get(head, worker.local.pinned()));
            tree.checked();
            if !is_interrupted {
                break;
            }
            assert!(found.is_err_and(|absent| !holds(absent)) || found.is_ok(), "{removed} {at}");
            turns += 1;
        }
    }
    assert!(turns > 300, "{turns}");
}

/// The trap: the scan of a queue's head began in the leaf where the queue before it grows, and so read both.
#[test]
fn a_scan_of_a_prefix_soon_begins_in_the_leaf_of_its_first_key() {
    const QUEUES: u64 = 10;
    let key = |queue: u64, n: u64| queue << 32 | n;
    let mut fixture = Fixture::of((1..=QUEUES).flat_map(|queue| (2000..2090).map(move |n| key(queue, n))));
    let mut elsewhere = [0; 3];
    for round in 0..300 {
        for queue in 1..=QUEUES {
            fixture.insert(key(queue, 2090 + round));
            let (low, high) = (key(queue, 0), key(queue, u32::MAX.into()));
            let mut cursor = between(low, high, Direction::Forward);
            let (_, shown) = fixture.next(&mut cursor, &mut LeafHint::default()).expect("a leaf");
            let is_first = shown.first() == Some(&key(queue, 2000 + round));
            assert!(is_first || shown.is_empty());
            elsewhere[round as usize / 100] += u32::from(!is_first);
            fixture.remove(key(queue, 2000 + round));
        }
    }
    fixture.tree.checked();
    assert_eq!(elsewhere[1..], [0, 0], "scans that began in the leaf of another queue: {elsewhere:?} of 1000 each");
}

/// A queue's keys before its head belong to the leaf of the queue before it, until the head's leaf becomes empty.
#[test]
fn a_leaf_that_loses_keys_to_the_head_of_a_queue_proves_their_absence_no_more_and_none_while_its_gap_is_held() {
    let key = |queue: u64, n: u64| queue << 32 | n;
    for is_held in [false, true] {
        let mut fixture = Fixture::of((0..12).map(|n| key(1, n)).chain((0..80).map(|n| key(2, n))));
        // The first leaf has keys of both queues, of which the second loses its own.
        (0..17).for_each(|n| fixture.remove(key(2, n)));
        let head = key(2, 0);
        let absent = |fixture: &Fixture| {
            let (version, gap) =
                fixture.tree.get_or_gap(head, fixture.worker.local.pinned()).expect_err("it is removed");
            (version, std::ptr::from_ref(gap))
        };
        let (before, gap) = absent(&fixture);
        // SAFETY: the leaf is linked, and the worker stays online.
        let gap = unsafe { &*gap };
        gap.store(7 * u64::from(is_held), std::sync::atomic::Ordering::Relaxed);
        (17..45).for_each(|n| fixture.remove(key(2, n)));
        assert!(holds(before), "no leaf is empty yet");
        (45..50).for_each(|n| fixture.remove(key(2, n)));
        let (after, _) = absent(&fixture);
        assert_eq!(holds(before), is_held);
        assert_eq!(before.address() == after.address(), is_held);
        fixture.insert(head);
        assert!(!holds(after));
        fixture.tree.checked();
    }
}

/// The trap: each scan of a queue descended, for the leaf of its head did not know the keys of the leaves before it.
#[test]
fn a_removal_tells_its_leaf_the_keys_that_it_has_inherited() {
    let key = |queue: u64, n: u64| queue << 32 | n;
    let mut fixture = Fixture::of((0..29).map(|n| key(1, n)).chain((1..200).map(|n| key(2, n))));
    let head = key(2, 0);
    let (mut inherited, mut leaf) = (0, None);
    for n in 1..150 {
        fixture.remove(key(2, n));
        let mut leaf_hint = LeafHint::default();
        assert!(fixture.tree.get_near(head, &mut leaf_hint, fixture.worker.local.pinned()).is_err());
        let [of_head, _] = fixture.tree.touched(&leaf_hint).expect("nothing was unlinked since");
        let range = of_head.range(&mut Optimistic);
        let is_new = leaf.replace(of_head.address()) != Some(of_head.address());
        inherited += u32::from(is_new && n > 1);
        // The leaf that a removal was unlinked with left its keys to this one, which has not changed yet.
        assert_eq!((range.low..=range.last).contains(&head), !is_new || n == 1, "{n}");
        // Its right neighbour takes none of them.
        assert!(!(range.low..=range.last).contains(&key(2, 199)) && range.low > key(1, 28));
        fixture.tree.checked();
    }
    assert!(inherited >= 3, "{inherited}");
}
