//! Explicit transactions between their calls. Such a transaction is *parked*: another call may come or not. The ticker
//! ends a parked transaction that is too old, was cancelled, or holds back too much memory.
//!
//! ```text
//! CALLING ──leave──▶ PARKED ──seize──▶ ENDING ──▶ ENDED
//!    ▲                 │   (reaper)        (reaper)
//!    └─────enter───────┘
//! ```
//! Access rules:
//! 1. While the word is `CALLING`, the caller owns worker, slot and gate, as in any transaction.
//! 2. The thread that turns `PARKED` into `ENDING` owns them until it sets `ENDED`; then they belong to the
//!    pool.
//! 3. A call that finds `ENDING` waits for `ENDED`, which takes as long as a roll-back. After `ENDED` the
//!    caller uses none of them.
//!
//! So a transaction in a call is never ended, even in the closure of an update that never returns.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_base::{Hold, thread};
use seriatim_txn::{Cause, Phase, Reason};

use crate::cancel::Deadline;
use crate::changing::Claim;
use crate::held_back::Holder;
use crate::row_locks::Owner;

/// Why a transaction that is too old ends.
pub(crate) const TOO_OLD: Cause = Cause { phase: Phase::Execute, reason: Reason::TooOld };

/// The process was forked while a transaction was open.
pub(crate) const FORKED: Cause = Cause { phase: Phase::Execute, reason: Reason::Forked };

const CALLING: u32 = 0;
const PARKED: u32 = 1;
const ENDING: u32 = 2;
const ENDED: u32 = 3;

/// The state of one explicit transaction, in a call at first.
pub(crate) struct Parking {
    state: AtomicU32,
    /// When the transaction is over. The session sets it again only after this transaction.
    deadline: Deadline,
    /// Whether it is a snapshot.
    pub(crate) snapshot: bool,
    /// Whether it excludes chains of pieces.
    pub(crate) gated: bool,
    /// The live bytes of its worker at its begin, and their growth until its last call: what it wrote.
    live_before: i64,
    grown: AtomicI64,
    /// For a canary: the reaper also ends transactions in calls.
    reaped_in_calls: bool,
    /// For a snapshot that shows the durable epoch while the disk is behind.
    hold: Mutex<Option<Hold>>,
    /// The right to change tables, if the transaction has it.
    claim: Mutex<Option<Arc<Claim>>>,
    /// Its locks of rows.
    locks: Mutex<Option<Arc<Owner>>>,
}

impl Parking {
    pub(crate) fn new(
        deadline: Deadline,
        snapshot: bool,
        gated: bool,
        hold: Option<Hold>,
        live_before: i64,
        reaped_in_calls: bool,
    ) -> Arc<Parking> {
        let (state, grown, hold) = (AtomicU32::new(CALLING), AtomicI64::new(0), Mutex::new(hold));
        let (claim, locks) = (Mutex::default(), Mutex::default());
        Arc::new(Parking { state, deadline, snapshot, gated, live_before, grown, reaped_in_calls, hold, claim, locks })
    }

    /// The worker is offline and reads nothing more: releases the hold and the locks, and undoes changes of tables.
    pub(crate) fn release(&self) {
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(hold);
        if let Some(claim) = self.take_claim() {
            claim.undo();
        }
        if let Some(locks) = self.take_locks() {
            locks.release();
        }
    }

    /// The end of the transaction releases these locks, unless they were taken back.
    pub(crate) fn hold_locks(&self, locks: Arc<Owner>) {
        *self.locks.lock().unwrap_or_else(PoisonError::into_inner) = Some(locks);
    }

    /// Takes the locks back.
    pub(crate) fn take_locks(&self) -> Option<Arc<Owner>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The transaction changes tables: its end undoes that, unless the claim was taken back.
    pub(crate) fn claim(&self, claim: Arc<Claim>) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
    }

    /// Takes the claim back.
    pub(crate) fn take_claim(&self) -> Option<Arc<Claim>> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Begins a call; `false` if the transaction has been ended.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        // The loop ends: the thread that has seized the transaction rolls it back without waiting, and sets
        // ENDED even if that panics.
        loop {
            // ORDERING: acquire pairs with the release in `leave`, and with that of `Ending` where it fails.
            match self.state.compare_exchange(PARKED, CALLING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return true,
                Err(ENDED) => return false,
                Err(state) => assert_eq!(state, ENDING, "calls do not nest: the owner is one thread"),
            }
            thread::yield_now();
        }
    }

    /// Ends a call, after which the worker has this many live bytes.
    ///
    /// # Panics
    /// If the transaction was ended meanwhile: the call has then used a worker of another transaction.
    pub(crate) fn leave(&self, live_bytes: i64) {
        self.grown.store(live_bytes - self.live_before, Ordering::Relaxed);
        // ORDERING: release pairs with the acquire in `enter` and `seize`.
        let before = self.state.swap(PARKED, Ordering::Release);
        assert_eq!(before, CALLING, "a transaction was ended in the middle of a call");
    }

    /// Why the transaction ends, once it is over.
    pub(crate) fn cause(&self) -> Cause {
        self.deadline.cause()
    }

    /// What it may hold back, if it is no snapshot. It is ended only between its calls.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let wrote = usize::try_from(self.grown.load(Ordering::Relaxed)).unwrap_or(0);
        let ends = self.state.load(Ordering::Relaxed) == PARKED;
        (!self.snapshot).then(|| Holder { deadline: self.deadline.clone(), wrote, ends })
    }

    /// Seizes the transaction if it is parked and over. The calling thread must then end it.
    #[must_use]
    pub(crate) fn seize(&self, now: u64) -> Option<Ending<'_>> {
        let is_parked = || {
            // ORDERING: acquire pairs with the release in `leave`.
            let seized = self.state.compare_exchange(PARKED, ENDING, Ordering::Acquire, Ordering::Relaxed);
            seized.is_ok() || self.reaped_in_calls
        };
        (self.deadline.is_over(now) && is_parked()).then(|| Ending(self))
    }
}

/// A seized transaction. Dropping it sets `ENDED`, also when the roll-back panicked.
pub(crate) struct Ending<'p>(&'p Parking);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `enter`.
        self.0.state.store(ENDED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parking(last: u64) -> Arc<Parking> {
        let deadline = Deadline::default();
        deadline.set(last, true);
        Parking::new(deadline, false, false, None, 0, false)
    }

    #[test]
    fn only_a_parked_transaction_that_is_too_old_is_ended() {
        let parking = parking(50);
        assert!(parking.seize(51).is_none(), "it is in a call");
        parking.leave(0);
        assert!(parking.seize(50).is_none(), "it is not too old");
        assert!(parking.enter() && parking.seize(51).is_none(), "it is in a call");
        parking.leave(0);
        let ending = parking.seize(51).expect("it is parked and too old");
        assert!(parking.seize(51).is_none(), "somebody ends it");
        drop(ending);
        assert!(!parking.enter() && parking.seize(51).is_none());
    }

    #[test]
    fn a_call_that_meets_the_reaper_waits_for_it() {
        for _ in 0..200 {
            let parking = parking(50);
            parking.leave(0);
            let (entered, seized) = std::thread::scope(|scope| {
                let reaper = scope.spawn(|| parking.seize(51).is_some());
                let entered = parking.enter();
                if entered {
                    // The reaper came too late, and must not seize it now.
                    assert_eq!(parking.state.load(Ordering::Relaxed), CALLING);
                }
                (entered, reaper.join().expect("no panic"))
            });
            assert_ne!(entered, seized, "one of them has it");
        }
    }
}
