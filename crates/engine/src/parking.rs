//! Explicit transactions between their calls. Such a transaction is *parked*: another call may come or not. The
//! ticker ends one that is too old, was cancelled, or is a snapshot that holds too much memory.
//!
//! ```text
//! CALLING ──leave──▶ PARKED ──seize──▶ ENDING ──▶ ENDED
//!    ▲                 │   (reaper)        (reaper)
//!    └─────enter───────┘
//! ```
//! Access rules:
//! 1. While the word is `CALLING`, worker, slot and gate are the caller's, as of any transaction.
//! 2. The thread that turns `PARKED` into `ENDING` has them instead, until it says `ENDED`; then they are the
//!    pool's again.
//! 3. A call that finds `ENDING` waits for `ENDED`: it lasts as long as a roll-back. After `ENDED` the caller
//!    touches none of them.
//!
//! So a transaction in a call is never ended, be it in the closure of an update that never returns.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_base::{Hold, thread};
use seriatim_txn::{Cause, Phase, Reason};

use crate::cancel::Deadline;

/// Why a transaction that is too old ends.
pub(crate) const TOO_OLD: Cause = Cause { phase: Phase::Execute, reason: Reason::TooOld };

/// The process was forked while a transaction was open.
pub(crate) const FORKED: Cause = Cause { phase: Phase::Execute, reason: Reason::Forked };

const CALLING: u32 = 0;
const PARKED: u32 = 1;
const ENDING: u32 = 2;
const ENDED: u32 = 3;

/// The state of one explicit transaction, in a call at first.
#[derive(Debug)]
pub(crate) struct Parking {
    state: AtomicU32,
    /// When it is over. The session sets it anew only after this transaction.
    deadline: Deadline,
    /// Whether it is a snapshot.
    pub(crate) snapshot: bool,
    /// Whether it keeps chains of pieces away.
    pub(crate) gated: bool,
    /// A canary: the reaper does not look whether the transaction is in a call.
    reaped_in_calls: bool,
    /// Of a snapshot that shows the durable epoch while the disk is behind.
    hold: Mutex<Option<Hold>>,
}

impl Parking {
    pub(crate) fn new(
        deadline: Deadline,
        snapshot: bool,
        gated: bool,
        hold: Option<Hold>,
        reaped_in_calls: bool,
    ) -> Arc<Parking> {
        let (state, hold) = (AtomicU32::new(CALLING), Mutex::new(hold));
        Arc::new(Parking { state, deadline, snapshot, gated, reaped_in_calls, hold })
    }

    /// The worker is offline and reads nothing more.
    pub(crate) fn release(&self) {
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(hold);
    }

    /// A call begins; `false` if the transaction has been ended.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        // The loop ends: the thread that has seized the transaction rolls it back without waiting, and sets ENDED also
        // if that panics.
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

    /// The call ends.
    ///
    /// # Panics
    /// If the transaction was ended meanwhile: then the call has used a worker that was another transaction's.
    pub(crate) fn leave(&self) {
        // ORDERING: release pairs with the acquire in `enter` and `seize`.
        let before = self.state.swap(PARKED, Ordering::Release);
        assert_eq!(before, CALLING, "a transaction was ended in the middle of a call");
    }

    /// Why the transaction ends, once it is over.
    pub(crate) fn cause(&self) -> Cause {
        self.deadline.cause()
    }

    /// Seizes the transaction if it is parked and over: it is the caller's to end.
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

/// A seized transaction. Dropped, it has ended, also when its roll-back panicked.
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
        Parking::new(deadline, false, false, None, false)
    }

    #[test]
    fn only_a_parked_transaction_that_is_too_old_is_ended() {
        let parking = parking(50);
        assert!(parking.seize(51).is_none(), "it is in a call");
        parking.leave();
        assert!(parking.seize(50).is_none(), "it is not too old");
        assert!(parking.enter() && parking.seize(51).is_none(), "it is in a call");
        parking.leave();
        let ending = parking.seize(51).expect("it is parked and too old");
        assert!(parking.seize(51).is_none(), "somebody ends it");
        drop(ending);
        assert!(!parking.enter() && parking.seize(51).is_none());
    }

    #[test]
    fn a_call_that_meets_the_reaper_waits_for_it() {
        for _ in 0..200 {
            let parking = parking(50);
            parking.leave();
            let (entered, seized) = std::thread::scope(|scope| {
                let reaper = scope.spawn(|| parking.seize(51).is_some());
                let entered = parking.enter();
                if entered {
                    // The reaper came too late, and must not come now.
                    assert_eq!(parking.state.load(Ordering::Relaxed), CALLING);
                }
                (entered, reaper.join().expect("no panic"))
            });
            assert_ne!(entered, seized, "one of them has it");
        }
    }
}
