//! The latch and version word in every interleaving and under every reordering that the memory model allows, by loom: the
//! orderings of `tree::load` and of direct mode, on a leaf of two places and on a parent with two leaves.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-store --release --lib loom`.

use super::State;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

/// What a broken tree does otherwise.
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
            Broken::DoesNotLatch => self.word.load(Ordering::Acquire) == state.0,
            _ => {
                let (from, to) = (state.0, state.latched().0);
                self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
            }
        }
    }

    fn unlatch(&self, state: State, broken: Broken) {
        let after = if broken == Broken::ForgetsToCount { state } else { state.changed() };
        self.word.store(after.0, Ordering::Release);
    }

    fn state(&self) -> State {
        State(self.word.load(Ordering::Acquire))
    }

    fn unchanged(&self, state: State, broken: Broken) -> bool {
        if broken != Broken::NoFence {
            fence(Ordering::Acquire);
        }
        self.word.load(Ordering::Relaxed) == state.0
    }
}

fn stores(broken: Broken) -> Ordering {
    if broken == Broken::StoresRelaxed { Ordering::Relaxed } else { Ordering::Release }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Whether the model finds a violation.
fn caught(model: impl Fn() + Sync + Send + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(3, model))).is_err()
}

/// Two writers each put their number at the front of a leaf, once, if they find it free. A reader that validates sees as many
/// numbers as the word says there were changes, the latest first.
fn leaf(broken: Broken) -> impl Fn() + Sync + Send + 'static {
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
                        // The other's number moves up. (Loom finds less when a thread loads a word before it stores it.)
                        leaf.places[1].store(3 - number, stores(broken));
                    }
                    leaf.places[0].store(number, stores(broken));
                    leaf.count.store(count + 1, stores(broken));
                    leaf.unlatch(state, broken);
                    1
                })
            })
            .collect();
        // What was validated, the earliest first.
        let mut seen = Vec::new();
        let state = leaf.state();
        if state.is_usable() {
            let count = leaf.count.load(Ordering::Acquire);
            let places = [leaf.places[0].load(Ordering::Relaxed), leaf.places[1].load(Ordering::Relaxed)];
            if leaf.unchanged(state, broken) {
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

/// A leaf with keys 1 and 2 splits: key 2 moves to a new leaf, which the parent learns of. A reader that looks for key 2 and
/// validates finds it.
fn split(broken: Broken) -> impl Fn() + Sync + Send + 'static {
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
                right.places[0].store(2, stores(broken));
                right.count.store(1, stores(broken));
                left.count.store(1, stores(broken));
                parent.count.store(2, stores(broken));
                left.unlatch(State::NEW, broken);
                parent.unlatch(State::NEW, broken);
            })
        };
        let above = parent.state();
        if above.is_usable() {
            let last = parent.count.load(Ordering::Acquire) - 1;
            let leaf = &leaves[last as usize];
            let state = leaf.state();
            if (broken == Broken::NoCoupling || parent.unchanged(above, broken)) && state.is_usable() {
                let count = leaf.count.load(Ordering::Acquire);
                let found = (0..count as usize).any(|i| leaf.places[i].load(Ordering::Relaxed) == 2);
                assert!(!leaf.unchanged(state, broken) || found, "a key that stays is found");
            }
        }
        splitter.join().expect("the splitter");
    }
}

#[test]
fn loom_validated_reads_of_a_leaf_hold_together() {
    check(3, leaf(Broken::Nothing));
}

#[test]
fn loom_a_split_hides_no_key() {
    check(4, split(Broken::Nothing));
}

#[test]
fn loom_broken_leaves_are_caught() {
    for broken in [Broken::ForgetsToCount, Broken::DoesNotLatch, Broken::StoresRelaxed, Broken::NoFence] {
        assert!(caught(leaf(broken)), "{broken:?}");
    }
}

#[test]
fn loom_broken_descents_are_caught() {
    assert!(caught(split(Broken::NoCoupling)));
    assert!(caught(split(Broken::ForgetsToCount)));
}
