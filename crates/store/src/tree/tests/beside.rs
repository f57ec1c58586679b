//! A scan shows records that are in no leaf in their places, each once, whatever its bounds and direction.

use super::fixture::{TestKind, World, bytes_of, seeded};
use crate::record::{Bytes, RecordPtr, Word8, Word16, read_key};
use crate::{Cursor, Direction, Index, Inserted, LeafHint, Unobserved};
use seriatim_base::Rng;
use seriatim_catalog::{KeyBuf, Organization};
use seriatim_htm::HtmMode;
use std::ops::Bound;

/// Enough for some leaves of any kind.
const KEYS: u64 = 400;

#[test]
fn records_beside_the_index_are_shown_once_in_order() {
    let (_, mut rng) = seeded("records_beside_the_index_are_shown_once_in_order");
    of_kind::<Word8>(&mut rng);
    of_kind::<Word16>(&mut rng);
    of_kind::<Bytes>(&mut rng);
}

fn of_kind<K: TestKind>(rng: &mut Rng) {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    let index = Index::new(Organization::Ordered, K::CLASS, 0, &world.htm, &mut worker.cx()).expect("memory");
    let (mut linked, mut others): (Vec<RecordPtr>, Vec<RecordPtr>) = (Vec::new(), Vec::new());
    for n in 0..KEYS {
        let key = K::key(n);
        // Linked, beside, both, or two of one key beside it.
        if rng.percent(40) {
            let record = worker.record(key.as_key());
            let inserted = index.insert(&mut worker.cx(), key.as_key(), record, &mut Unobserved);
            assert_eq!(inserted, Ok(Inserted::Linked));
            linked.push(record);
        }
        let beside = u64::from(rng.percent(20)) + u64::from(rng.percent(5));
        others.extend((0..beside).map(|_| worker.record(key.as_key())));
    }
    // Noted and not unlinked yet.
    others.extend(linked.iter().filter(|_| rng.percent(10)).copied().collect::<Vec<_>>());
    // SAFETY: all records of this test live as long as it.
    let key = |record: &RecordPtr| bytes_of(unsafe { read_key(*record, K::CLASS) });
    let (mut cursor, mut leaf_hint) = (Cursor::new(), LeafHint::default());
    for round in 0..300 {
        let direction = if rng.percent(50) { Direction::Forward } else { Direction::Backward };
        let ends = [K::key(rng.below(KEYS)), K::key(rng.below(KEYS))];
        let [low, high] = ends.each_ref().map(|end: &KeyBuf| match rng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(end.as_key()),
            _ => Bound::Excluded(end.as_key()),
        });
        let (lowest, highest) = (low.map(bytes_of), high.map(bytes_of));
        let lies_in = |record: &&RecordPtr| {
            let key = key(record);
            (match &lowest {
                Bound::Included(low) => *low <= key,
                Bound::Excluded(low) => *low < key,
                Bound::Unbounded => true,
            }) && match &highest {
                Bound::Included(high) => key <= *high,
                Bound::Excluded(high) => key < *high,
                Bound::Unbounded => true,
            }
        };
        let mut expected: Vec<RecordPtr> = linked.iter().chain(&others).filter(lies_in).copied().collect();
        expected.sort_by(|a, b| key(a).cmp(&key(b)).then(a.cmp(b)));
        expected.dedup();
        if direction == Direction::Backward {
            expected.sort_by(|a, b| key(b).cmp(&key(a)).then(a.cmp(b)));
        }
        index.scan(low, high, direction, &mut cursor).expect("a tree can be scanned");
        let mut shown = Vec::new();
        let beside = || others.clone();
        // SAFETY: as above.
        while unsafe { index.next_leaf_with(&mut cursor, &mut leaf_hint, worker.local.pinned(), beside) } {
            shown.extend_from_slice(cursor.records());
        }
        assert_eq!(shown, expected, "round {round}, {direction:?} from {lowest:?} to {highest:?}");
    }
}
