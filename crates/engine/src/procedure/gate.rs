//! Excludes chains of pieces and transactions outside the analysed set from each other.
//!
//! A chopping says nothing about transactions that are not in its set: between two pieces one could see, or
//! undo, half a chain. So either chains are open, or such transactions, never both; each side may have many.
//! Registering a procedure is on the other side too, since it changes the set. A procedure that runs in one
//! pass is one transaction of the set, and does not enter the gate.
//!
//! The gate is *unarmed*, and costs one load, until a procedure is registered that runs in more than one pass.
//! It is armed while no transaction is open, and stays armed: earlier transactions have ended, and later ones
//! see it.
//!
//! The gate is fair by phases. An arrival waits if the other side is open or waiting. When the last member of a
//! side leaves, all that then wait on the other side enter at once. So an arrival waits for at most two phases:
//! the rest of the present one and one of the other side. A phase ends with its longest member, and no thread
//! waits longer than a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::TransactError;

/// How long one side waits for the other.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);

/// The gate of a database whose procedures run in pieces.
#[derive(Default)]
pub struct Gate {
    armed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// The side of a chain or transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Chains,
    Others,
}

impl Side {
    fn opposite(self) -> Side {
        match self {
            Side::Chains => Side::Others,
            Side::Others => Side::Chains,
        }
    }
}

/// By side. One side waits only while the other is open.
#[derive(Default)]
struct State {
    open: [u32; 2],
    waiting: [u32; 2],
    /// How often waiting threads were admitted.
    phase: [u32; 2],
}

impl State {
    /// Admits all threads that wait on a side.
    fn admit(&mut self, side: Side) {
        self.open[side as usize] += std::mem::take(&mut self.waiting[side as usize]);
        self.phase[side as usize] = self.phase[side as usize].wrapping_add(1);
    }
}

/// An open chain; dropping it ends it.
pub struct Chain<'g>(&'g Gate);

/// A transaction or registration on the other side; dropping it ends it.
pub struct Other<'g>(&'g Gate);

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        self.0.leave(Side::Chains);
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        self.0.leave(Side::Others);
    }
}

impl Gate {
    /// Whether there can be chains at all. A transaction outside of them checks again once it has its worker.
    #[inline]
    pub fn is_armed(&self) -> bool {
        // ORDERING: the pool makes the second check reliable: see `arm`.
        self.armed.load(Ordering::Relaxed)
    }

    /// Allows chains from now on. Called while no transaction is open and none can be opened
    /// ([`Pool::quietly`](crate::pool::Pool::quietly)).
    pub(crate) fn arm(&self) {
        // ORDERING: the release that returns the workers pairs with the acquire of any session that leases one
        // later.
        self.armed.store(true, Ordering::Relaxed);
    }

    /// Opens a chain.
    ///
    /// # Errors
    /// Transactions outside the set stayed open.
    pub fn chain(&self) -> Result<Chain<'_>, TransactError> {
        match self.enter(Side::Chains, WAIT_MAX) {
            true => Ok(Chain(self)),
            false => Err(TransactError::Excluded { by: "transactions that are not procedures" }),
        }
    }

    /// Opens a transaction outside the set; [`Gate::leave_other`] closes it.
    ///
    /// # Errors
    /// Chains stayed open.
    pub(crate) fn enter_other(&self) -> Result<(), TransactError> {
        match self.enter(Side::Others, WAIT_MAX) {
            true => Ok(()),
            false => Err(TransactError::Excluded { by: "procedures that run in pieces" }),
        }
    }

    /// Opens a transaction or registration outside the set; dropping the result closes it.
    ///
    /// # Errors
    /// Chains stayed open.
    pub fn other(&self) -> Result<Other<'_>, TransactError> {
        self.enter_other().map(|()| Other(self))
    }

    /// As [`Gate::other`], for who has called [`Gate::enter_other`].
    pub(crate) fn entered(&self) -> Other<'_> {
        Other(self)
    }

    pub(crate) fn leave_other(&self) {
        self.leave(Side::Others);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, side: Side, wait_max: Duration) -> bool {
        let (own, other) = (side as usize, side.opposite() as usize);
        let mut state = self.state();
        if state.open[other] == 0 && state.waiting[other] == 0 {
            state.open[own] += 1;
            return true;
        }
        state.waiting[own] += 1;
        let phase = state.phase[own];
        let waited = self.changed.wait_timeout_while(state, wait_max, |state| state.phase[own] == phase);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.phase[own] != phase {
            return true;
        }
        state.waiting[own] -= 1;
        if state.waiting[own] == 0 {
            // Arrivals on the open side waited only because this thread waited.
            state.admit(side.opposite());
            self.changed.notify_all();
        }
        false
    }

    fn leave(&self, side: Side) {
        let mut state = self.state();
        state.open[side as usize] -= 1;
        if state.open[side as usize] == 0 {
            // A waiter on this side arrived behind one on the other side.
            state.admit(side.opposite());
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_base::thread;

    use super::*;

    #[test]
    fn many_of_one_side_or_many_of_the_other() {
        let gate = Gate::default();
        let (first, second) = (gate.chain().expect("the gate is free"), gate.chain().expect("chains share"));
        assert!(matches!(gate.enter_other(), Err(TransactError::Excluded { .. })));
        drop((first, second));
        gate.enter_other().expect("the chains ended");
        gate.enter_other().expect("others share");
        assert!(matches!(gate.chain(), Err(TransactError::Excluded { .. })));
        gate.leave_other();
        gate.leave_other();
        gate.chain().map(drop).expect("the others ended");
    }

    /// Longer than a test may take.
    const PATIENT: Duration = Duration::from_secs(600);

    /// Waits until this many threads wait on a side.
    fn wait_for(gate: &Gate, side: Side, count: u32) {
        while gate.state().waiting[side as usize] < count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_waiter_enters_before_later_arrivals_of_the_open_side() {
        for side in [Side::Chains, Side::Others] {
            let gate = Gate::default();
            assert!(gate.enter(side, PATIENT), "the gate is free");
            let order = Mutex::new(Vec::new());
            let run = |side: Side| {
                assert!(gate.enter(side, PATIENT), "it waits for one to leave");
                order.lock().expect("no panic").push(side);
                gate.leave(side);
            };
            thread::scope(|scope| {
                scope.spawn(|| run(side.opposite()));
                wait_for(&gate, side.opposite(), 1);
                scope.spawn(|| run(side));
                wait_for(&gate, side, 1);
                gate.leave(side);
            });
            assert_eq!(order.into_inner().expect("no panic"), [side.opposite(), side]);
        }
    }

    #[test]
    fn a_waiter_that_gives_up_holds_no_other_back() {
        let gate = Gate::default();
        let open = gate.chain().expect("the gate is free");
        thread::scope(|scope| {
            let late = scope.spawn(|| gate.enter(Side::Others, WAIT_MAX));
            // It may have given up before it was seen to wait.
            while gate.state().waiting[Side::Others as usize] == 0 && !late.is_finished() {
                thread::yield_now();
            }
            assert!(gate.enter(Side::Chains, PATIENT), "it is let in when the other gave up");
            gate.leave(Side::Chains);
            assert!(!late.join().expect("no panic"), "the chain stayed open");
        });
        drop(open);
        let state = gate.state();
        assert_eq!((state.open, state.waiting), ([0; 2], [0; 2]));
    }
}
