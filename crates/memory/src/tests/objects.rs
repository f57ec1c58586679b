//! Shared objects that tell whether they are still what they were: the watch for use after free.
//!
//! An object is a block of words filled from its address and a number of its own. Freed, it is overwritten at
//! least by the free list's link; reused, by another number. All words are read and written atomically, so
//! that a broken domain is caught by what it does and not excused as a data race.

use crate::Local;
use seriatim_base::Rng;
use seriatim_htm::Outside;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A reference to an object, with what it must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    start: NonNull<AtomicU64>,
    number: u64,
    words: usize,
}

/// Sizes of objects, words; none below four.
const WORDS: [usize; 5] = [4, 6, 8, 24, 70];

fn expected(start: NonNull<AtomicU64>, number: u64, at: usize) -> u64 {
    (start.as_ptr().addr() as u64 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at as u64)
}

fn word<'a>(start: NonNull<AtomicU64>, at: usize) -> &'a AtomicU64 {
    // SAFETY: the memory is mapped until the test is over, and `at` is below the words of any object read here. The
    // test watches whether it still holds the object.
    unsafe { start.add(at).as_ref() }
}

impl Held {
    /// Follows a shared reference. The object's first words are its number and its size.
    pub(super) fn load(link: &AtomicPtr<AtomicU64>) -> Option<Held> {
        let start = NonNull::new(link.load(Ordering::Acquire))?;
        let (number, words) = (word(start, 0).load(Ordering::Relaxed), word(start, 1).load(Ordering::Relaxed));
        Some(Held { start, number, words: words as usize })
    }

    /// Whether the object is still what it was.
    pub(super) fn is_intact(&self) -> bool {
        WORDS.contains(&self.words)
            && word(self.start, 0).load(Ordering::Relaxed) == self.number
            && word(self.start, 1).load(Ordering::Relaxed) == self.words as u64
            && (2..self.words)
                .all(|at| word(self.start, at).load(Ordering::Relaxed) == expected(self.start, self.number, at))
    }

    /// Makes an object that no other thread knows yet.
    pub(super) fn new(local: &mut Local, outside: &mut Outside, rng: &mut Rng) -> Held {
        let words = WORDS[rng.below(WORDS.len() as u64) as usize];
        let start = local.allocate(outside, words * 8).expect("a few hundred bytes").cast::<AtomicU64>();
        let number = rng.next_u64();
        word(start, 0).store(number, Ordering::Relaxed);
        word(start, 1).store(words as u64, Ordering::Relaxed);
        (2..words).for_each(|at| word(start, at).store(expected(start, number, at), Ordering::Relaxed));
        Held { start, number, words }
    }

    /// Puts a new object in place of the linked one, and retires that.
    pub(super) fn replace(link: &AtomicPtr<AtomicU64>, local: &mut Local, outside: &mut Outside, rng: &mut Rng) {
        let new = Held::new(local, outside, rng);
        let old = link.swap(new.start.as_ptr(), Ordering::AcqRel);
        if let Some(start) = NonNull::new(old) {
            let words = word(start, 1).load(Ordering::Relaxed) as usize;
            // SAFETY: swapped out just now, by us alone.
            unsafe { local.retire(start.cast(), words * 8) };
        }
    }

    /// Bytes it was allocated with.
    pub(super) fn bytes(&self) -> usize {
        self.words * 8
    }

    /// Where it lies.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start.cast()
    }
}
