//! Work of a batch that its waiting threads do at the same time: each rechecks its own transaction, and makes
//! its own decision.
//!
//! Edges say which decision comes before which. They point forward in the order, so the first decision that is not made
//! can always be made. Each caller is notified to join, and makes its own decision when all decisions before it are
//! made. The leader makes its own decision. It also makes those of threads that submitted, which have other work, and
//! of callers that do not come. It does not wait for a sleeping caller. A recheck has nothing before it.
//!
//! ```text
//!            the last one before it is made           claim
//!   waits for n ────────────────────────▶ free (0) ─────────▶ TAKEN
//! ```
//! Access rule: the thread that has claimed a piece of work does it, and a piece is claimed once. Only its caller and
//! the leader of the batch claim it, the caller after it was notified to join. From then on the leader uses the frame
//! of a caller only between its own claim and the end of that work. It may also do so between the end of all rechecks
//! and the next notification of the callers.
//!
//! Source: Ding, Kot, Gehrke, PVLDB 12(2), 2018, §4.3: "transactions within a batch can be validated in parallel".

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use seriatim_base::Backoff;
use seriatim_base::thread::{self, Thread, Touch};

use super::{AWAKE_STEPS, settle};

/// Replaces the count of pieces before a piece that is claimed.
const TAKEN: u32 = u32::MAX;

/// Steps of [`Backoff`] for which the leader waits for callers before it does their work. They are 63 pauses, in which
/// a caller that is awake arrives, and a sleeping one does not.
const COMING_STEPS: u32 = Backoff::SPINS;

/// Pieces of work of one kind, one for each transaction of a batch.
#[derive(Debug)]
pub(super) struct Round {
    pieces: Box<[Piece]>,
    /// Pieces that are not done.
    undone: AtomicUsize,
    leader: Thread,
}

#[derive(Debug)]
struct Piece {
    /// How many pieces before it are not done, or [`TAKEN`].
    before: AtomicU32,
    /// The pieces that come after it.
    after: Vec<u32>,
    /// The caller that does the piece, if it waits.
    caller: Option<Thread>,
}

/// The outcome of an attempt to claim a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Claim {
    /// The claiming thread does it.
    Own,
    /// Pieces before it are not done, or it is left to its caller.
    Early,
    /// A thread does it, or has done it.
    Taken,
}

impl Round {
    /// A round with a piece for each of these callers, led by this thread. The first piece of an edge comes
    /// before the second; edges that do not point forward are ignored.
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

    /// Claims a piece, if it is free.
    pub(super) fn claim(&self, at: usize) -> Claim {
        let before = &self.pieces[at].before;
        step(Touch::Header, before);
        // ORDERING: the exchange below decides what is visible.
        match before.load(Ordering::Relaxed) {
            0 => {}
            TAKEN => return Claim::Taken,
            _ => return Claim::Early,
        }
        step(Touch::Exchange, before);
        // ORDERING: pairs with the release in `done`, for all pieces before this one: what they installed is
        // visible.
        match before.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Claim::Own,
            Err(_) => Claim::Taken,
        }
    }

    /// Whether a piece that is left to its caller is claimed.
    fn look(&self, at: usize) -> Claim {
        let before = &self.pieces[at].before;
        step(Touch::Header, before);
        // ORDERING: the value decides only which pieces are left.
        if before.load(Ordering::Relaxed) == TAKEN { Claim::Taken } else { Claim::Early }
    }

    /// A claimed piece has been done.
    pub(super) fn done(&self, at: usize) {
        let mut frees = false;
        for &next in &self.pieces[at].after {
            let next = &self.pieces[next as usize];
            step(Touch::Exchange, &next.before);
            // ORDERING: pairs with the acquire in `claim`. The next piece cannot be claimed while it waits for
            // this one.
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

    /// For the leader: returns when all pieces are done, some of them by `work`. `comes` says for each piece whether
    /// its caller was notified to join.
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

/// A point at which another thread may interrupt this one.
#[inline(always)]
fn step<T>(touch: Touch, word: &T) {
    #[cfg(feature = "steps")]
    thread::step(touch, std::ptr::from_ref(word).cast());
    let _ = (touch, word);
}
