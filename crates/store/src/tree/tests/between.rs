//! Whatever another thread does to a leaf between two accesses of an insertion, the result is the same. Its key is
//! linked, or was linked already, and nothing else has changed. Every access before its first latch is tried, with
//! every change that a removal and an insertion make. Likewise the removal of a record, most of all of one that is the
//! last of its leaf. And either of them begins again, with nothing left latched, if another holds a latch that it wants
//! next.
//!
//! The trap: a split that read the two keys around its cut from two states of a leaf saw one key twice.

use super::fixture::{TestKind, World, bytes_of, key_of};
use crate::node_version::State;
use crate::record::{Bytes, Word8, Word16};
use crate::tree::Tree;
use crate::{Direction, Inserted, Unobserved};
use seriatim_catalog::KeyBuf;
use seriatim_htm::{Access, HtmMode};
use std::sync::atomic::{AtomicU64, Ordering};

/// Direct mode in which another takes its turn before one of the accesses, unless something is latched by
/// then: the other would wait.
struct Interrupted<F> {
    /// Accesses before that one.
    left: usize,
    other: Option<F>,
    latched: bool,
}

impl<F: FnOnce()> Interrupted<F> {
    fn step(&mut self) {
        if self.latched {
            return;
        }
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => {
                if let Some(other) = self.other.take() {
                    other();
                }
            }
        }
    }
}

impl<F: FnOnce()> Access for Interrupted<F> {
    const REGION: bool = false;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        self.step();
        word.load(Ordering::Acquire)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        self.step();
        let turned = word.compare_exchange(unlocked, locked, Ordering::Acquire, Ordering::Relaxed).is_ok();
        self.latched |= turned;
        turned
    }
}

#[test]
fn word8() {
    every_interruption::<Word8>();
}

#[test]
#[ignore = "nightly: ten seconds; words of one half are tried with each change"]
fn word16() {
    every_interruption::<Word16>();
}

#[test]
#[ignore = "nightly: half a minute"]
fn bytes() {
    every_interruption::<Bytes>();
}

/// Keys of a kind in their order; byte strings that tie in what nodes hold of them.
fn keys<K: TestKind>(count: u64) -> Vec<KeyBuf> {
    let mut keys: Vec<KeyBuf> = (0..count).map(|n| K::key(n * 4 + 1)).collect();
    keys.sort_by_key(|key| bytes_of(key.as_key()));
    keys
}

fn every_interruption<K: TestKind>() {
    // A leaf below a root with room, and leaves below a full one.
    [9, 33].into_iter().for_each(every_interruption_of::<K>);
}

/// Keys at odd places are linked, those at even places are not. The other may remove the key that is
/// inserted, or insert it first.
fn every_interruption_of<K: TestKind>(count: u64) {
    let keys = keys::<K>(count);
    let places = || 0..keys.len();
    let world = World::new(HtmMode::Absent);
    let mut interrupted = 0;
    for inserted in places() {
        let near = |place: &usize| place.abs_diff(inserted) < 5;
        for removed in places().skip(1).step_by(2).filter(near) {
            for instead in places().step_by(2).filter(near) {
                let pair = (removed, instead);
                interrupted += (0..).take_while(|&at| is_interrupted::<K>(&world, &keys, inserted, pair, at)).count();
            }
        }
    }
    println!("{interrupted} interruptions");
    assert!(interrupted > 1000);
}

/// Inserts a key, and lets another replace a key by one before access `at`; whether there was such an access.
fn is_interrupted<K: TestKind>(
    world: &World,
    keys: &[KeyBuf],
    inserted: usize,
    (removed, instead): (usize, usize),
    at: usize,
) -> bool {
    let (mut worker, mut other) = (world.worker(), world.worker());
    let tree = Tree::<K, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
    let probe = |place: usize| K::probe(keys[place].as_key());
    let linked = (1..keys.len()).step_by(2);
    for place in linked.clone() {
        let record = worker.record(keys[place].as_key());
        assert_eq!(tree.insert(&mut worker.cx(), probe(place), record, &mut Unobserved), Ok(Inserted::Linked));
    }
    let victim = tree.get(probe(removed), worker.local.pinned()).expect("it is linked");
    let record = worker.record(keys[inserted].as_key());
    let mut access = Interrupted {
        left: at,
        other: Some(|| {
            assert!(tree.remove(&mut other.cx(), probe(removed), victim, &mut Unobserved));
            let record = other.record(keys[instead].as_key());
            assert_eq!(tree.insert(&mut other.cx(), probe(instead), record, &mut Unobserved), Ok(Inserted::Linked));
        }),
        latched: false,
    };
    let done = tree.insert_through(&mut worker.cx(), probe(inserted), record, &mut access);
    let is_interrupted = access.other.is_none();
    tree.checked();
    let mut expected: Vec<usize> = linked.collect();
    if is_interrupted {
        expected.retain(|&place| place != removed);
        expected.push(instead);
    }
    let answer = if expected.contains(&inserted) {
        Inserted::Exists(tree.get(probe(inserted), worker.local.pinned()).expect("it is linked"))
    } else {
        expected.push(inserted);
        Inserted::Linked
    };
    assert_eq!(done, Ok(answer), "{inserted} inserted, {removed} replaced by {instead} before access {at}");
    expected.sort_unstable();
    let found: Vec<Vec<u8>> =
        tree.leaves(&worker, Direction::Forward).into_iter().flat_map(|leaf| leaf.1).map(key_of::<K>).collect();
    let expected: Vec<Vec<u8>> = expected.into_iter().map(|place| bytes_of(keys[place].as_key())).collect();
    assert_eq!(found, expected, "{inserted} inserted, {removed} replaced by {instead} before access {at}");
    is_interrupted
}

#[test]
fn removals_word8() {
    every_interrupted_removal::<Word8>();
}

#[test]
#[ignore = "nightly: half a minute"]
fn removals_bytes() {
    every_interrupted_removal::<Bytes>();
}

/// The actions of another thread while a record is removed.
#[derive(Clone, Copy, Debug)]
enum Other {
    /// Links a key at this place.
    Links(usize),
    /// Unlinks the key at this place, which is linked.
    Unlinks(usize),
    /// Replaces the record that is being removed by another of its key.
    Replaces,
    /// Unlinks it before us.
    IsFirst,
    /// Links keys at all free places, so that leaves and the nodes above are split.
    Fills,
}

fn every_interrupted_removal<K: TestKind>() {
    let mut interrupted = 0;
    for (count, left) in [(9, 1), (9, 4), (33, 3), (33, 5), (33, 33)] {
        let keys = keys::<K>(count);
        // Of leaves of four, few keep more than one of their records.
        let linked: Vec<usize> = (0..keys.len()).step_by(2 * left.min(16)).collect();
        for &removed in &linked {
            let near = |place: &usize| (1..10).contains(&place.abs_diff(removed));
            let others = [Other::Replaces, Other::IsFirst, Other::Fills].into_iter();
            let others = others.chain((0..keys.len()).filter(near).map(|place| match linked.contains(&place) {
                true => Other::Unlinks(place),
                false => Other::Links(place),
            }));
            for other in others {
                let world = World::new(HtmMode::Absent);
                interrupted += (0..)
                    .take_while(|&at| is_removal_interrupted::<K>(&world, &keys, &linked, removed, other, at))
                    .count();
            }
        }
    }
    println!("{interrupted} interruptions");
    assert!(interrupted > 1000);
}

/// Removes a record, and lets another take its turn before access `at`; whether there was such an access.
fn is_removal_interrupted<K: TestKind>(
    world: &World,
    keys: &[KeyBuf],
    linked: &[usize],
    removed: usize,
    turn: Other,
    at: usize,
) -> bool {
    let (mut worker, mut other) = (world.worker(), world.worker());
    let tree = Tree::<K, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
    let probe = |place: usize| K::probe(keys[place].as_key());
    let link = |worker: &mut super::fixture::Worker, place: usize| {
        let record = worker.record(keys[place].as_key());
        assert_eq!(tree.insert(&mut worker.cx(), probe(place), record, &mut Unobserved), Ok(Inserted::Linked));
        record
    };
    let unlink = |worker: &mut super::fixture::Worker, place: usize| {
        let record = tree.get(probe(place), worker.local.pinned()).expect("it is linked");
        assert!(tree.remove(&mut worker.cx(), probe(place), record, &mut Unobserved));
    };
    // Full leaves first, of which most records go again.
    for place in 0..keys.len() {
        link(&mut worker, place);
    }
    for place in (0..keys.len()).filter(|place| !linked.contains(place)) {
        unlink(&mut worker, place);
    }
    let record = tree.get(probe(removed), worker.local.pinned()).expect("it is linked");
    let mut access = Interrupted {
        left: at,
        other: Some(|| match turn {
            Other::Links(place) => drop(link(&mut other, place)),
            Other::Unlinks(place) => unlink(&mut other, place),
            Other::Replaces => {
                unlink(&mut other, removed);
                link(&mut other, removed);
            }
            Other::IsFirst => unlink(&mut other, removed),
            Other::Fills => {
                for place in (0..keys.len()).filter(|place| !linked.contains(place)) {
                    link(&mut other, place);
                }
            }
        }),
        latched: false,
    };
    let done = tree.remove_through(&mut worker.cx(), probe(removed), record, &mut access);
    let is_interrupted = access.other.is_none();
    tree.checked();
    let (mut expected, mut ours) = (linked.to_vec(), true);
    if is_interrupted {
        match turn {
            Other::Links(place) => expected.push(place),
            Other::Unlinks(place) => expected.retain(|&other| other != place),
            Other::Replaces | Other::IsFirst => ours = false,
            Other::Fills => expected = (0..keys.len()).collect(),
        }
    }
    if ours || matches!(turn, Other::IsFirst) {
        expected.retain(|&place| place != removed);
    }
    assert_eq!(done, ours, "{removed} removed, {turn:?} before access {at}");
    expected.sort_unstable();
    let found: Vec<Vec<u8>> =
        tree.leaves(&worker, Direction::Forward).into_iter().flat_map(|leaf| leaf.1).map(key_of::<K>).collect();
    let expected: Vec<Vec<u8>> = expected.into_iter().map(|place| bytes_of(keys[place].as_key())).collect();
    assert_eq!(found, expected, "{removed} removed, {turn:?} before access {at}");
    is_interrupted
}

/// Direct mode in which another holds the latch that is wanted after `left` others, and lets go of it without a change.
struct Contended {
    left: usize,
    is_over: bool,
    loads: usize,
}

impl Access for Contended {
    const REGION: bool = false;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        self.loads += 1;
        assert!(self.loads < 10_000, "an operation meets a latch of its own");
        word.load(Ordering::Acquire)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        // Other locks, of a gap, are not of this kind.
        if locked == State(unlocked).latched().0 && !self.is_over {
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => {
                    self.is_over = true;
                    return false;
                }
            }
        }
        word.compare_exchange(unlocked, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

#[test]
fn an_operation_that_finds_a_latch_leaves_none_behind() {
    const KEYS: u64 = 60;
    let world = World::new(HtmMode::Absent);
    let mut worker = world.worker();
    let mut met = 0;
    for at in 0..5 {
        let tree = Tree::<Word8, 4, 4>::new(&world.htm, &mut worker.cx()).expect("memory");
        let mut done = |access: Contended| {
            met += usize::from(access.is_over);
            tree.checked();
        };
        let mut records = Vec::new();
        for n in 0..KEYS {
            let record = worker.record(Word8::key(n).as_key());
            let mut access = Contended { left: at, is_over: false, loads: 0 };
            let linked = tree.insert_through(&mut worker.cx(), n, record, &mut access);
            assert_eq!(linked, Ok(Inserted::Linked));
            done(access);
            records.push(record);
        }
        // Leaf after leaf, and node after node, is left with one record and goes with it.
        for (n, &record) in (0..KEYS).zip(&records) {
            let mut access = Contended { left: at, is_over: false, loads: 0 };
            assert!(tree.remove_through(&mut worker.cx(), n, record, &mut access));
            done(access);
        }
        assert_eq!(tree.leaves(&worker, Direction::Forward).iter().map(|leaf| leaf.1.len()).sum::<usize>(), 0);
    }
    println!("{met} latches met");
    assert!(met > 150);
}
