//! Which steps of a procedure run when: the loop between generated code and the protocol.
//!
//! Generated code runs in passes. A pass goes through the body in source order and executes the steps for which
//! [`Schedule::runs`] says so and whose control conditions hold; it works on a copy of the frame (every variable a slot). Then
//! [`Schedule::next`] decides: keep the frame and go on, throw the copy away and make the same pass again, or end.
//!
//! ```text
//! let mut frame = Frame::default();
//! loop {
//!     let mut copy = frame.clone();
//!     let pass = run(tx, &mut copy, schedule);          // Err: an abort
//!     match schedule.next(tx, pass)? {
//!         Next::Keep => frame = copy,
//!         Next::Repeat => {}
//!         Next::Done => return Ok(copy.output),
//!     }
//! }
//! ```
//!
//! The transaction may end between two passes, so a frame owns its rows: it borrows nothing of the [`Tx`].

use seriatim_base::Stamp;
use seriatim_procedure::ir::{OperationId, StepId};

use crate::{Abort, Tx};

/// What follows a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// What the pass computed stands; make the next pass.
    Keep,
    /// The pass had no effect; make it again from the frame it began with.
    Repeat,
    /// The pass was the last, and all is committed.
    Done,
}

/// The steps to run, pass by pass.
pub struct Schedule<'p> {
    /// Steps of the current pass; `None` for all.
    steps: Option<&'p [bool]>,
    committed: Option<Stamp>,
}

impl Schedule<'_> {
    /// One pass of all steps, then commit.
    pub(crate) fn once() -> Schedule<'static> {
        Schedule { steps: None, committed: None }
    }

    /// Whether this step runs in this pass.
    #[inline]
    pub fn runs(&self, step: StepId) -> bool {
        self.steps.is_none_or(|steps| steps.get(step.index()).copied().unwrap_or(true))
    }

    /// The calls that follow belong to this operation.
    #[inline]
    pub fn operation(&mut self, _tx: &Tx, _operation: OperationId) {}

    /// Ends a pass: commits or rolls back as the shape of the execution asks, and says how to go on.
    ///
    /// # Errors
    /// What ends the execution: the body's own abort, or a conflict that this schedule does not retry.
    pub fn next(&mut self, tx: &mut Tx, pass: Result<(), Abort>) -> Result<Next, Abort> {
        pass?;
        self.committed = Some(tx.commit().map_err(|cause| tx.stop(cause))?);
        Ok(Next::Done)
    }

    /// Where the execution took its place in the order, once it is done.
    pub(crate) fn committed(&self) -> Option<Stamp> {
        self.committed
    }

    /// Runs a body that does not follow steps: each pass is all of it.
    pub(crate) fn whole<R>(&mut self, tx: &mut Tx, body: impl Fn(&Tx) -> Result<R, Abort>) -> Result<R, Abort> {
        loop {
            let (value, pass) = match body(tx) {
                Ok(value) => (Some(value), Ok(())),
                Err(abort) => (None, Err(abort)),
            };
            if let (Next::Done, Some(value)) = (self.next(tx, pass)?, value) {
                return Ok(value);
            }
        }
    }
}

impl std::fmt::Debug for Schedule<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("committed", &self.committed).finish_non_exhaustive()
    }
}
