//! Keeps chains of pieces and transactions outside the analysed set apart.
//!
//! A chopping says nothing about transactions that are not in its set: one that ran between two pieces could see, or undo, half
//! a chain. So either chains are open or such transactions, never both; each side may have many. Registering is on the other
//! side too, since it changes the set. Who waits for the other side's end waits at most [`WAIT_MAX`]; new chains let a
//! waiting other side go first.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::TransactError;

/// How long one side waits for the other.
const WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    chains: u32,
    others: u32,
    others_waiting: u32,
}

/// A chain that is open; it ends when this is dropped.
pub(crate) struct Chain<'g>(&'g Gate);

/// Something on the other side; it ends when this is dropped.
pub(crate) struct Other<'g>(&'g Gate);

impl Drop for Other<'_> {
    fn drop(&mut self) {
        self.0.leave_other();
    }
}

impl Gate {
    /// Opens a chain.
    ///
    /// # Errors
    /// Transactions outside the set stayed open.
    pub(crate) fn chain(&self) -> Result<Chain<'_>, TransactError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let blocked = |state: &mut State| state.others + state.others_waiting > 0;
        let waited = self.changed.wait_timeout_while(state, WAIT_MAX, blocked);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.others + state.others_waiting > 0 {
            return Err(TransactError::Excluded { by: "transactions that are not procedures" });
        }
        state.chains += 1;
        Ok(Chain(self))
    }

    /// Opens a transaction outside the set; [`Gate::leave_other`] follows.
    ///
    /// # Errors
    /// Chains stayed open.
    pub(crate) fn enter_other(&self) -> Result<(), TransactError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.others_waiting += 1;
        let waited = self.changed.wait_timeout_while(state, WAIT_MAX, |state| state.chains > 0);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.others_waiting -= 1;
        if state.chains > 0 {
            self.changed.notify_all();
            return Err(TransactError::Excluded { by: "procedures that run in pieces" });
        }
        state.others += 1;
        Ok(())
    }

    /// As [`Gate::enter_other`]; it ends when what is returned is dropped.
    ///
    /// # Errors
    /// Chains stayed open.
    pub(crate) fn other(&self) -> Result<Other<'_>, TransactError> {
        self.enter_other().map(|()| Other(self))
    }

    pub(crate) fn leave_other(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.others -= 1;
        self.changed.notify_all();
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.chains -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_of_one_side_or_many_of_the_other() {
        let gate = Gate::default();
        let (first, second) = (gate.chain().expect("nobody is about"), gate.chain().expect("chains share"));
        assert!(matches!(gate.enter_other(), Err(TransactError::Excluded { .. })));
        drop((first, second));
        gate.enter_other().expect("the chains ended");
        gate.enter_other().expect("others share");
        assert!(matches!(gate.chain(), Err(TransactError::Excluded { .. })));
        gate.leave_other();
        gate.leave_other();
        gate.chain().map(drop).expect("the others ended");
    }
}
