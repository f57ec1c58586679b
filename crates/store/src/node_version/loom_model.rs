//! loom runs the latch and version word in every interleaving, and under every reordering that the memory model allows.
//! The models are a leaf with two slots, and a parent with two leaves.
//!
//! Words are read, latched, stored and looked at again by the functions that ship. These are [`Optimistic`] for readers
//! of trees, `word` and [`is_still`] for readers of hash tables, and `word` for writers in direct mode. The leaves are
//! the model's own. Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-store --release --lib loom`.

use super::{State, is_still};
use crate::tree::load::{Load, Optimistic};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use seriatim_htm::word;

const READERS: [Reader; 2] = [Reader::OfTree, Reader::OfHash];

/// The defect of a broken tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// Writers unlatch to the value there was before.
    ForgetsToCount,
    /// Writers find the word unlatched and go ahead.
    DoesNotLatch,
    /// Stores below the latch may be seen before it.
    StoresRelaxed,
    /// Readers look at the word again without a fence.
    NoFence,
    /// Readers follow a child without looking at the parent again.
    NoCoupling,
}

/// The reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Relaxed loads, and a fence before the word is looked at again.
    OfTree,
    /// Acquire loads.
    OfHash,
}

/// A word with two places and how many of them are used.
struct Node {
    word: AtomicU64,
    count: AtomicU64,
    places: [AtomicU64; 2],
}

impl Node {
    fn new(places: [u64; 2], count: u64) -> Node {
        let [a, b] = places;
        Node {
            word: AtomicU64::new(State::NEW.0),
            count: AtomicU64::new(count),
            places: [AtomicU64::new(a), AtomicU64::new(b)],
        }
    }

    fn latch(&self, state: State, broken: Broken) -> bool {
        match broken {
            Broken::DoesNotLatch => word::load(&self.word) == state.0,
            _ => word::lock(&self.word, state.0, state.latched().0),
        }
    }

    fn unlatch(&self, state: State, broken: Broken) {
        let after = if broken == Broken::ForgetsToCount { state } else { state.changed() };
        word::store(&self.word, after.0);
    }

    fn state(&self) -> State {
        State(word::load(&self.word))
    }

    fn count(&self) -> u64 {
        Optimistic.follow(&self.count)
    }

    fn place(&self, index: usize, reader: Reader) -> u64 {
        match reader {
            Reader::OfTree => Optimistic.load(&self.places[index]),
            Reader::OfHash => word::load(&self.places[index]),
        }
    }

    fn unchanged(&self, state: State, reader: Reader, broken: Broken) -> bool {
        match (broken, reader) {
            (Broken::NoFence, _) => Optimistic.load(&self.word) == state.0,
            (_, Reader::OfTree) => Optimistic.unchanged(&self.word, state.0),
            (_, Reader::OfHash) => is_still(&self.word, state.0),
        }
    }
}

fn store(word: &AtomicU64, value: u64, broken: Broken) {
    match broken {
        Broken::StoresRelaxed => word.store(value, Ordering::Relaxed),
        _ => word::store(word, value),
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    seriatim_base::word::model::begin(&[]);
    builder.check(model);
}

/// Whether the model finds a violation.
fn caught(model: impl Fn() + Sync + Send + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(3, model))).is_err()
}

/// Two writers each put their number at the front of a leaf, once, if they find it free. A reader that
/// validates sees as many numbers as the word says there were changes, the latest first.
fn leaf(reader: Reader, broken: Broken) -> impl Fn() + Sync + Send + 'static {
    move || {
        let leaf = Arc::new(Node::new([0, 0], 0));
        let writers: Vec<_> = (1..=2)
            .map(|number| {
                let leaf = Arc::clone(&leaf);
                thread::spawn(move || {
                    let state = leaf.state();
                    if !state.is_usable() {
                        return 0;
                    }
                    if !leaf.latch(state, broken) {
                        return 0;
                    }
                    let count = (state.0 - State::NEW.0) / 4;
                    if count == 1 {
                        // The other's number moves up. (Loom finds less when a thread loads a word before it
                        // stores it.)
                        store(&leaf.places[1], 3 - number, broken);
                    }
                    store(&leaf.places[0], number, broken);
                    store(&leaf.count, count + 1, broken);
                    leaf.unlatch(state, broken);
                    1
                })
            })
            .collect();
        // The validated answers, the earliest first.
        let mut seen = Vec::new();
        let state = leaf.state();
        if state.is_usable() {
            let count = leaf.count();
            let places = [leaf.place(0, reader), leaf.place(1, reader)];
            if leaf.unchanged(state, reader, broken) {
                assert_eq!(count, (state.0 - State::NEW.0) / 4, "the word counts the changes");
                let used = &places[..count as usize];
                assert!(places[count as usize..].iter().all(|&place| place == 0), "nothing is seen before its time");
                seen.extend(used.iter().rev());
            }
        }
        let linked: u64 = writers.into_iter().map(|writer| writer.join().expect("a writer")).sum();
        assert_eq!(leaf.count.load(Ordering::Relaxed), linked, "no change is lost");
        let last = leaf.places[..linked as usize].iter().rev().map(|place| place.load(Ordering::Relaxed));
        assert!(last.take(seen.len()).eq(seen), "what was seen is what was there");
    }
}

/// A leaf with keys 1 and 2 splits: key 2 moves to a new leaf, which is linked into the parent. A reader that
/// looks up key 2 and validates finds it.
fn split(reader: Reader, broken: Broken) -> impl Fn() + Sync + Send + 'static {
    const LEFT: u64 = 0;
    const RIGHT: u64 = 1;
    move || {
        let parent = Arc::new(Node::new([LEFT, RIGHT], 1));
        let leaves = Arc::new([Node::new([1, 2], 2), Node::new([0, 0], 0)]);
        let splitter = {
            let (parent, leaves) = (Arc::clone(&parent), Arc::clone(&leaves));
            thread::spawn(move || {
                let [left, right] = &*leaves;
                assert!(parent.latch(State::NEW, broken) && left.latch(State::NEW, broken));
                store(&right.places[0], 2, broken);
                store(&right.count, 1, broken);
                store(&left.count, 1, broken);
                store(&parent.count, 2, broken);
                left.unlatch(State::NEW, broken);
                parent.unlatch(State::NEW, broken);
            })
        };
        let above = parent.state();
        if above.is_usable() {
            let last = parent.count() - 1;
            let leaf = &leaves[last as usize];
            let state = leaf.state();
            if (broken == Broken::NoCoupling || parent.unchanged(above, reader, broken)) && state.is_usable() {
                let count = leaf.count();
                let found = (0..count as usize).any(|i| leaf.place(i, reader) == 2);
                assert!(!leaf.unchanged(state, reader, broken) || found, "a key that stays is found");
            }
        }
        splitter.join().expect("the splitter");
    }
}

#[test]
fn loom_validated_reads_of_a_leaf_hold_together() {
    for reader in READERS {
        check(3, leaf(reader, Broken::Nothing));
    }
}

#[test]
fn loom_a_split_hides_no_key() {
    for reader in READERS {
        check(4, split(reader, Broken::Nothing));
    }
}

#[test]
fn loom_broken_leaves_are_caught() {
    for broken in [Broken::ForgetsToCount, Broken::DoesNotLatch, Broken::StoresRelaxed, Broken::NoFence] {
        assert!(caught(leaf(Reader::OfTree, broken)), "{broken:?}");
    }
}

#[test]
fn loom_broken_descents_are_caught() {
    assert!(caught(split(Reader::OfTree, Broken::NoCoupling)));
    assert!(caught(split(Reader::OfTree, Broken::ForgetsToCount)));
}
