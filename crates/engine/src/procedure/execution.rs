//! Execution modes, and the schedule of a plan in each.

use seriatim_procedure::ir::StepId;

use super::repair::Repairs;

/// How registered procedures are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExecutionMode {
    /// Each as one transaction of the protocol. Default.
    #[default]
    Whole,
    /// Each as a chain of transactions, where the chopping of the registered set proves that the set stays
    /// serializable. One transaction has all pieces up to the decisive one, and each later piece has its own.
    /// So far these later pieces only read: see `docs/procedures.md`. Other transactions cannot run at the same
    /// time, and registering a procedure waits for chains to end.
    Pieces,
}

/// The schedule of an execution.
#[derive(Clone, Copy, Debug)]
pub enum Steps<'p> {
    /// All steps in one pass. With repairs, some steps run again if the protocol asks for it.
    Whole(Option<&'p Repairs>),
    /// In pieces.
    Pieces(&'p Passes),
}

/// The pass in which each step of a piecewise execution runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passes {
    of_step: Box<[u16]>,
    count: u16,
}

impl Passes {
    /// From the pass of each step.
    pub fn new(of_step: Box<[u16]>) -> Passes {
        let count = of_step.iter().max().map_or(1, |last| last + 1);
        Passes { of_step, count }
    }

    /// The pass of a step.
    #[inline]
    pub fn of(&self, step: StepId) -> u16 {
        self.of_step[step.index()]
    }

    /// The number of passes.
    #[inline]
    pub fn count(&self) -> u16 {
        self.count
    }
}
