//! Work of a batch that the threads do which wait for it: each checks once more whether its own transaction is
//! stale, and makes its own decision, at the same time as others.
//!
//! Edges say which decision comes before which. They run forward in the order, so the first that is not made can
//! always be. Each caller is told to join, and makes its own decision when those before it have been made. The
//! leader makes its own, those of threads that submitted, which have other work, and those whose callers do not
//! come: one that sleeps is not waited for. A recheck has nothing before it.
//!
//! ```text
//!            the last one before it is made           claim
//!   waits for n ────────────────────────▶ free (0) ─────────▶ TAKEN
//! ```
//! Access rule: a piece of work is done by the thread that has claimed it, which happens once. Only its caller and
//! the leader of its batch claim it, the caller when it has been told to join. From then on the leader touches the
//! frame of a caller only between a claim of its own and the end of that work; and when all rechecks of the batch
//! are done, until it tells the callers again.
//!
//! Source: Ding, Kot, Gehrke, PVLDB 12(2), 2018, §4.3: "transactions within a batch can be validated in parallel".

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use seriatim_base::Backoff;
use seriatim_base::thread::{self, Thread, Touch};

use super::{AWAKE_STEPS, settle};

/// In place of the count of those that are waited for.
const TAKEN: u32 = u32::MAX;

/// For how many steps of [`Backoff`] the leader waits for callers that may come, before it does their work: 63
/// pauses, in which one that is awake has come, and one that sleeps has not.
const COMING_STEPS: u32 = Backoff::SPINS;

/// Pieces of work of one kind, one of each transaction of a batch.
#[derive(Debug)]
pub(super) struct Round {
    pieces: Box<[Piece]>,
    /// Those that have not been done.
    undone: AtomicUsize,
    leader: Thread,
}

#[derive(Debug)]
struct Piece {
    /// How many pieces that come before it have not been done, or [`TAKEN`].
    before: AtomicU32,
    /// Those that come after it.
    after: Vec<u32>,
    /// The caller whose piece it is, if that waits for it.
    caller: Option<Thread>,
}

/// What came of an attempt to claim a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Claim {
    /// It is the claimer's to do.
    Own,
    /// Others have to be done before it, or it is another's to take.
    Early,
    /// A thread does it, or has done it.
    Taken,
}

impl Round {
    /// The pieces of these callers, led by this thread. Of an edge the first is to be done before the second; what
    /// does not run forward is passed over.
    pub(super) fn new(
        callers: impl Iterator<Item = Option<Thread>>,
        edges: impl IntoIterator<Item = (usize, usize)>,
    ) -> Round {
        let piece = |caller| Piece { before: AtomicU32::new(0), after: Vec::new(), caller };
        let mut pieces: Box<[Piece]> = callers.map(piece).collect();
        for (first, second) in edges {
            if first < second && second < pieces.len() {
                pieces[first].after.push(second as u32);
                *pieces[second].before.get_mut() += 1;
            }
        }
        Round { undone: AtomicUsize::new(pieces.len()), pieces, leader: thread::current() }
    }

    /// Takes a piece, if it is free.
    pub(super) fn claim(&self, at: usize) -> Claim {
        let before = &self.pieces[at].before;
        step(Touch::Header, before);
        // ORDERING: the exchange below says what is seen.
        match before.load(Ordering::Relaxed) {
            0 => {}
            TAKEN => return Claim::Taken,
            _ => return Claim::Early,
        }
        step(Touch::Exchange, before);
        // ORDERING: pairs with the release in `done`, of all that come before it: what they installed is seen.
        match before.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Claim::Own,
            Err(_) => Claim::Taken,
        }
    }

    /// Whether a piece that is left to its caller is taken.
    fn look(&self, at: usize) -> Claim {
        let before = &self.pieces[at].before;
        step(Touch::Header, before);
        // ORDERING: nothing is concluded from it but what is left to do.
        if before.load(Ordering::Relaxed) == TAKEN { Claim::Taken } else { Claim::Early }
    }

    /// A piece that was claimed has been done.
    pub(super) fn done(&self, at: usize) {
        let mut frees = false;
        for &next in &self.pieces[at].after {
            let next = &self.pieces[next as usize];
            step(Touch::Exchange, &next.before);
            // ORDERING: pairs with the acquire in `claim`. It cannot be claimed while it waits for this one.
            if next.before.fetch_sub(1, Ordering::Release) == 1 {
                frees = true;
                if let Some(caller) = &next.caller {
                    caller.unpark();
                }
            }
        }
        step(Touch::Exchange, &self.undone);
        // ORDERING: pairs with the acquire in `lead`.
        if self.undone.fetch_sub(1, Ordering::Release) == 1 || frees {
            self.leader.unpark();
        }
    }

    /// For the leader: has all pieces done, itself by `work`. Which callers were told to come is said by place.
    pub(super) fn lead(&self, comes: &[bool], mut work: impl FnMut(usize)) {
        let mut left: Vec<usize> = (0..self.pieces.len()).collect();
        let (mut coming, mut awake) = (Backoff::bounded(COMING_STEPS), Backoff::bounded(AWAKE_STEPS));
        let mut are_late = false;
        while !left.is_empty() {
            let mut has_worked = false;
            left.retain(|&at| {
                // One piece at a time of callers that did not come: others may have come meanwhile.
                let is_others = comes[at] && (!are_late || has_worked);
                let claim = if is_others { self.look(at) } else { self.claim(at) };
                if claim == Claim::Own {
                    work(at);
                    self.done(at);
                    has_worked = true;
                }
                claim == Claim::Early
            });
            if has_worked || left.is_empty() {
                continue;
            }
            match are_late {
                true => settle(&mut awake),
                false => are_late = !coming.wait(),
            }
        }
        let mut awake = Backoff::bounded(AWAKE_STEPS);
        // ORDERING: pairs with the release in `done`.
        while self.undone.load(Ordering::Acquire) > 0 {
            settle(&mut awake);
        }
    }
}

/// A place where another thread may interrupt this one.
#[inline(always)]
fn step<T>(touch: Touch, word: &T) {
    #[cfg(feature = "steps")]
    thread::step(touch, std::ptr::from_ref(word).cast());
    let _ = (touch, word);
}
