//! A leaf hint leads to the leaf where a descent ends, or nowhere. Changes through a hint are seen as those by a
//! descent.

use super::fixture::{TestKind, Worker, World, holds, modes, seeded};
use crate::node_version::State;
use crate::record::Word8;
use crate::tree::Tree;
use crate::{Cursor, Direction, Inserted, LeafHint, Unobserved};
use seriatim_base::thread::interrupt;
use seriatim_catalog::Key;
use seriatim_htm::{Access, HtmMode};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

type Small = Tree<Word8, 4, 4>;

#[test]
fn an_insertion_by_leaf_hint_ends_an_absence_noted_before() {
    let (seed, _) = seeded("an_insertion_by_leaf_hint_ends_an_absence_noted_before");
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
        let mut leaf_hint = LeafHint::default();
        for n in 0..40 {
            let record = worker.record(Word8::key(n).as_key());
            let absent = tree.get_near(n, &mut leaf_hint, worker.local.pinned()).expect_err("it is not linked");
            let inserted = tree.insert_near(&mut worker.cx(), n, &mut leaf_hint, record, &mut Unobserved);
            assert_eq!(inserted, Ok(Inserted::Linked));
            assert!(!holds(absent), "{n} is linked");
            assert_eq!(tree.get_near(n, &mut leaf_hint, worker.local.pinned()), Ok(record));
        }
    }
}

#[test]
fn a_leaf_hint_of_another_tree_leads_nowhere() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    let mut tree = |key: u64| {
        let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
        let record = worker.record(Word8::key(key).as_key());
        assert_eq!(tree.insert(&mut worker.cx(), key, record, &mut Unobserved), Ok(Inserted::Linked));
        (tree, record)
    };
    let ((one, first), (two, second)) = (tree(1), tree(2));
    let mut leaf_hint = LeafHint::default();
    assert_eq!(one.get_near(1, &mut leaf_hint, worker.local.pinned()), Ok(first));
    let mut of_one = leaf_hint;
    assert_eq!(two.get_near(2, &mut of_one, worker.local.pinned()), Ok(second));
    assert_eq!(of_one.tree, two.id, "it starts afresh");
    let mut of_one = leaf_hint;
    let record = worker.record(Word8::key(3).as_key());
    let inserted = two.insert_near(&mut worker.cx(), 3, &mut of_one, record, &mut Unobserved);
    assert_eq!(inserted, Ok(Inserted::Linked));
    assert_eq!(two.get(3, worker.local.pinned()), Ok(record));
    assert!(one.get(3, worker.local.pinned()).is_err());
}

/// Direct mode in which another takes its turn as soon as the operation has nothing latched any more, before
/// it has ended.
struct AtLast<F> {
    latched: Vec<*const AtomicU64>,
    other: Option<F>,
}

impl<F: FnOnce()> Access for AtLast<F> {
    const REGION: bool = false;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        word.load(Ordering::Acquire)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        let count = self.latched.len();
        self.latched.retain(|&latched| latched != std::ptr::from_ref(word));
        if self.latched.len() < count
            && self.latched.is_empty()
            && let Some(other) = self.other.take()
        {
            other();
        }
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        let turned = word.compare_exchange(unlocked, locked, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Other locks, of a gap, stay.
        if turned && locked == State(unlocked).latched().0 {
            self.latched.push(word);
        }
        turned
    }
}

#[test]
fn a_leaf_hint_on_a_leaf_that_is_dead_and_not_counted_yet_proves_no_absence() {
    let world = World::new(HtmMode::Absent);
    let (mut worker, mut other) = (world.worker(), world.worker());
    let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
    // A full leaf, and one record behind it.
    let records = [10, 20, 30, 40, 50].map(|key| {
        let record = worker.record(Word8::key(key).as_key());
        assert_eq!(tree.insert(&mut worker.cx(), key, record, &mut Unobserved), Ok(Inserted::Linked));
        record
    });
    let mut leaf_hint = LeafHint::default();
    assert_eq!(tree.get_near(50, &mut leaf_hint, other.local.pinned()), Ok(records[4]));
    let hinted = leaf_hint;
    let turn = || {
        assert_eq!(tree.unlinked(), hinted.unlinked, "the leaf is not counted yet");
        let absent = tree.get_near(55, &mut leaf_hint, other.local.pinned()).expect_err("it is not linked");
        let (mut cursor, from) = (Cursor::new(), Bound::Included(Key::Word8(55)));
        cursor.begin(from, Bound::Unbounded, Direction::Forward);
        assert!(tree.next_leaf(&mut cursor, &mut hinted.clone(), other.local.pinned()));
        let record = other.record(Word8::key(55).as_key());
        assert_eq!(tree.insert(&mut other.cx(), 55, record, &mut Unobserved), Ok(Inserted::Linked));
        assert!(!holds(absent) && !holds(cursor.node_version()), "it is linked");
        assert_ne!(leaf_hint.leaf, hinted.leaf, "the leaf is dead");
    };
    let mut access = AtLast { latched: Vec::new(), other: Some(turn) };
    assert!(tree.remove_through(&mut worker.cx(), 50, records[4], &mut access));
    assert!(access.other.is_none(), "the other had its turn");
    tree.checked();
}

#[test]
fn a_removal_by_leaf_hint_ends_what_was_noted_before() {
    let (seed, _) = seeded("a_removal_by_leaf_hint_ends_what_was_noted_before");
    for mode in modes(seed) {
        let world = World::new(mode);
        let mut worker = world.worker();
        let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
        let records: Vec<_> = (0..40)
            .map(|n| {
                let record = worker.record(Word8::key(n).as_key());
                assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
                record
            })
            .collect();
        let mut leaf_hint = LeafHint::default();
        for (n, &record) in (0..).zip(&records) {
            let head = tree.head_near(n, u64::MAX, &mut leaf_hint, worker.local.pinned());
            let (head, noted) = head.expect("no other changes the leaf");
            assert_eq!(head[0], Some(record));
            let other = records[(n as usize + 1) % records.len()];
            assert!(!tree.remove_near(&mut worker.cx(), n, &mut leaf_hint, other, &mut Unobserved), "of another key");
            assert!(tree.remove_near(&mut worker.cx(), n, &mut leaf_hint, record, &mut Unobserved));
            assert!(!holds(noted), "{n} is unlinked");
            assert!(tree.get_near(n, &mut leaf_hint, worker.local.pinned()).is_err());
            assert!(!tree.remove_near(&mut worker.cx(), n, &mut leaf_hint, record, &mut Unobserved), "unlinked");
        }
        tree.checked();
    }
}

#[test]
fn the_head_of_a_range_is_what_a_scan_shows_first() {
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
    let mut link = |n: u64| {
        let record = worker.record(Word8::key(n).as_key());
        assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
    };
    (0..60).filter(|n| n % 7 != 3).for_each(|n| link(10 * n));
    let other = world.worker();
    let (mut leaf_hint, mut found) = (LeafHint::default(), 0);
    for (low, high) in (0..600).flat_map(|low| [0, 1, 9, 10, 25, 600].map(|length| (low, low + length))) {
        let mut cursor = Cursor::new();
        let bounds = [low, high].map(|key| Bound::Included(Key::Word8(key)));
        cursor.begin(bounds[0], bounds[1], Direction::Forward);
        let mut shown = Vec::new();
        while tree.next_leaf(&mut cursor, &mut LeafHint::default(), other.local.pinned()) {
            shown.extend_from_slice(cursor.records());
        }
        let head = tree.head_near(low, high, &mut leaf_hint, other.local.pinned());
        let (head, noted) = head.expect("no other changes the leaf");
        let head: Vec<_> = head.into_iter().flatten().collect();
        assert!(shown.starts_with(&head), "{low}..={high}");
        found += usize::from(!head.is_empty());
        assert!(holds(noted));
    }
    assert!(found > 1_500, "{found}: the head is mostly in the leaf of the low end");
    let (head, noted) = tree.head_near(105, 599, &mut leaf_hint, other.local.pinned()).expect("nothing changes");
    assert!(head[0].is_some());
    link(106);
    assert!(!holds(noted), "a key that precedes the first is linked");
}

#[test]
fn a_head_that_is_read_while_its_leaf_changes_is_what_the_leaf_had_at_one_time() {
    for at in 0.. {
        let world = World::new(HtmMode::Absent);
        let (mut worker, mut other) = (world.worker(), world.worker());
        let tree = Small::new(&world.htm, &mut worker.cx()).expect("memory");
        let link = |worker: &mut Worker, n: u64| {
            let record = worker.record(Word8::key(n).as_key());
            assert_eq!(tree.insert(&mut worker.cx(), n, record, &mut Unobserved), Ok(Inserted::Linked));
            record
        };
        let [_, second, last] = [10, 20, 30].map(|n| link(&mut worker, n));
        let mut leaf_hint = LeafHint::default();
        let turn = || assert_ne!(link(&mut other, 15), last);
        let read = || tree.head_near(16, 99, &mut leaf_hint, worker.local.pinned());
        let (found, is_interrupted) = interrupt(at, turn, read);
        if let Some((head, _)) = found {
            assert_eq!(head[..2], [Some(second), Some(last)], "{at}");
        }
        if !is_interrupted {
            assert!(at > 5, "{at}");
            break;
        }
    }
}
