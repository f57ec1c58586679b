//! Timestamps of transactions, which of them are active, and the safe timestamp; and the turn of one that runs alone.
//!
//! A transaction draws its timestamp from a counter that all share, as in the paper. Each worker has a word with a
//! timestamp below which it has no active transaction. The *safe timestamp* is one up to which every transaction has
//! ended. A timestamp names its worker, so it is also known whether its own transaction has ended:
//!
//! ```text
//! 63               17 16       1   0
//! |  count           |  worker  | flag of the word that it is in |
//! ```
//! Access rules:
//! 1. A worker first stores the counter in its word, and then draws: the timestamp that it gets is no lower,
//!    whatever comes between. It stores [`IDLE`] when nothing of the transaction is under way any more.
//! 2. A thread that computes the safe timestamp loads the counter first, and then the words. A transaction with a
//!    timestamp below that counter has drawn it before, and the draw released its word. So the thread sees that value,
//!    or a later one.
//!
//! So a safe timestamp does not pass a transaction that is stalled between the store and the draw, and later
//! draws are above it.

use std::sync::atomic::AtomicUsize;

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{Backoff, CacheAligned, WorkerId};
use seriatim_memory::Memory;
use seriatim_txn::Knob;

const WORKER_SHIFT: u32 = 1;
const COUNT_SHIFT: u32 = WORKER_SHIFT + 16;
const _A_WORKER_FITS: () = assert!(size_of::<WorkerId>() == 2);
/// No transaction is under way.
const IDLE: u64 = u64::MAX;
/// No transaction runs alone.
const NOBODY: u64 = 0;

/// After how many failures a transaction runs alone.
pub(super) const ALONE_AFTER: Knob = Knob {
    name: "alone_after",
    unit: "attempts",
    default: 10,
    min: 1,
    max: 1_000_000,
    about: "how many attempts in a row conflict before a worker's next one runs alone",
    source: "Leis, Kemper, Neumann, ICDE 2014: after repeated aborts; the number is ours",
};

/// Whether more than the safe timestamp is looked at.
pub(super) const ENDED: Knob = Knob {
    name: "ended",
    unit: "",
    default: 1,
    min: 0,
    max: 1,
    about: "whether a timestamp above the safe one conflicts no more when its transaction has ended; with 0 it \
        conflicts until it is safe, as in the paper",
    source: "ours: an explicit transaction that is left open holds the safe timestamp back, and with it all that is \
        written meanwhile",
};

/// How long to wait for, or because of, one that runs alone.
pub(super) const ALONE_STEPS: Knob = Knob {
    name: "alone_steps",
    unit: "steps",
    default: 256,
    min: 0,
    max: 1_000_000,
    about: "how often a transaction that is to run alone looks whether the others have ended, or another whether that \
        one has, before it goes on",
    source: "ours: the first 6 steps spin for 63 pauses, later ones yield; far above what a transaction takes",
};

/// The timestamps of one database.
#[derive(Debug)]
pub(super) struct Clock {
    /// The count of the next timestamp.
    next: CacheAligned<AtomicU64>,
    /// The worker that runs alone, if any, by its number and one.
    alone: CacheAligned<AtomicU64>,
    /// By worker: no active transaction has a lower timestamp.
    active: Box<[CacheAligned<AtomicU64>]>,
    /// Workers there have been.
    workers: AtomicUsize,
    pub(super) alone_after: u32,
    alone_steps: u32,
    /// [`ENDED`].
    looks_up: bool,
}

impl Clock {
    pub(super) fn new(memory: &Memory, [alone_after, alone_steps]: [u32; 2], looks_up: bool) -> Clock {
        let active = (0..memory.workers_max()).map(|_| CacheAligned(AtomicU64::new(IDLE))).collect();
        let (next, alone) = (CacheAligned(AtomicU64::new(1)), CacheAligned(AtomicU64::new(NOBODY)));
        Clock { next, alone, active, workers: AtomicUsize::new(0), alone_after, alone_steps, looks_up }
    }

    /// A worker that may draw.
    pub(super) fn add(&self, worker: WorkerId) {
        self.workers.fetch_max(usize::from(worker.0) + 1, Ordering::SeqCst);
    }

    /// Draws a timestamp; the transaction is active until [`Clock::end`]. (Rule 1.)
    pub(super) fn draw(&self, worker: WorkerId) -> u64 {
        let active = self.active(worker, Touch::Store);
        // ORDERING: releases what the worker's last transaction did, as in `end`, whose value this may hide.
        active.store(self.next.load(Ordering::Relaxed) << COUNT_SHIFT, Ordering::Release);
        crate::step(Touch::Exchange, &*self.next);
        // ORDERING: releases the worker's word to `safe`, which acquires the counter. The draws of others continue this
        // release.
        let now = self.next.fetch_add(1, Ordering::AcqRel) << COUNT_SHIFT | u64::from(worker.0) << WORKER_SHIFT;
        let active = self.active(worker, Touch::Store);
        // ORDERING: it only rises; a thread that has not seen it yet takes the transaction for older. A thread
        // that finds the timestamp at a record sees it.
        active.store(now, Ordering::Release);
        now
    }

    /// Nothing of the worker's transaction is under way any more.
    pub(super) fn end(&self, worker: WorkerId) {
        // ORDERING: releases the transaction's accesses to threads that find its timestamp safe.
        self.active(worker, Touch::Store).store(IDLE, Ordering::Release);
    }

    /// A timestamp up to which every transaction has ended, and above which all are that have not begun. (Rule 2.)
    pub(super) fn safe(&self) -> u64 {
        crate::step(Touch::Header, &*self.next);
        // ORDERING: acquires the words of all that have drawn, see `draw`.
        let next = self.next.load(Ordering::Acquire) << COUNT_SHIFT;
        let oldest = self.all_active().map(|(_, active)| active).min();
        next.min(oldest.unwrap_or(IDLE)) - 1
    }

    /// Whether the transaction with this timestamp, which was found at a record, has ended.
    pub(super) fn has_ended(&self, timestamp: u64) -> bool {
        let worker = WorkerId((timestamp >> WORKER_SHIFT) as u16);
        // ORDERING: acquires what it has done.
        self.looks_up && self.active(worker, Touch::Header).load(Ordering::Acquire) != timestamp
    }

    /// Begins a transaction: its timestamp. Waits, within a bound, for one that runs alone to end; and if it
    /// is to run `alone` itself, for all others. This is no lock: correctness does not depend on it.
    pub(super) fn begin(&self, worker: WorkerId, alone: bool) -> u64 {
        if alone && self.turn(worker) {
            let mut backoff = Backoff::bounded(self.alone_steps);
            while self.others(worker) && backoff.wait() {}
            // Above the timestamps of all that have ended.
            return self.draw(worker);
        }
        let mut backoff = Backoff::bounded(self.alone_steps);
        loop {
            let now = self.draw(worker);
            // ORDERING: it is active before it looks; partner of the fence in `turn`.
            fence(Ordering::SeqCst);
            crate::step(Touch::Header, &*self.alone);
            if self.alone.load(Ordering::Relaxed) == NOBODY {
                return now;
            }
            self.end(worker);
            if !backoff.wait() {
                return self.draw(worker);
            }
        }
    }

    /// Takes the turn to run alone, unless another has it.
    fn turn(&self, worker: WorkerId) -> bool {
        let mine = u64::from(worker.0) + 1;
        crate::step(Touch::Exchange, &*self.alone);
        let taken = self.alone.compare_exchange(NOBODY, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // ORDERING: it has the turn before it looks at the others; partner of the fence in `begin`.
        fence(Ordering::SeqCst);
        taken
    }

    /// Whether other workers' transactions are active.
    fn others(&self, worker: WorkerId) -> bool {
        self.all_active().any(|(at, active)| at != usize::from(worker.0) && active != IDLE)
    }

    /// The word of a worker, after its step.
    fn active(&self, worker: WorkerId, touch: Touch) -> &AtomicU64 {
        let active = &*self.active[usize::from(worker.0)];
        crate::step(touch, active);
        active
    }

    /// The words of all workers that there have been, by their numbers.
    fn all_active(&self) -> impl Iterator<Item = (usize, u64)> {
        let workers = &self.active[..self.workers.load(Ordering::SeqCst)];
        workers.iter().enumerate().map(|(at, active)| {
            crate::step(Touch::Header, &**active);
            (at, active.load(Ordering::Acquire))
        })
    }

    /// Gives the turn back, if this worker has it.
    pub(super) fn give_turn_back(&self, worker: WorkerId) {
        if self.alone.load(Ordering::Relaxed) == u64::from(worker.0) + 1 {
            crate::step(Touch::Store, &*self.alone);
            self.alone.store(NOBODY, Ordering::Release);
        }
    }

    /// The transaction that runs alone.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_alone(&self, worker: WorkerId) -> bool {
        self.alone.load(Ordering::Relaxed) == u64::from(worker.0) + 1
    }
}

#[cfg(all(test, loom))]
mod loom_model;
