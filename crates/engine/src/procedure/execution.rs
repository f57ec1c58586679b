//! Execution modes, and what a plan says about each.

use seriatim_procedure::ir::StepId;

use super::repair::Repairs;

/// How registered procedures are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExecutionMode {
    /// Each as one transaction of the protocol. Default.
    #[default]
    Whole,
    /// Each as a chain of transactions, by the chopping of the registered set where it proves that the set stays serializable: one
    /// for all pieces up to the decisive one, and one for each after it. Those pieces only read so far: see
    /// `docs/procedures.md`. Transactions that are not procedures cannot run at the same time, and registering waits for
    /// chains to end.
    Pieces,
}

/// What a schedule goes by.
#[derive(Clone, Copy, Debug)]
pub enum Steps<'p> {
    /// All steps in one pass. With repairs, some of them again where the protocol asks for it.
    Whole(Option<&'p Repairs>),
    /// Piece by piece.
    Pieces(&'p Passes),
}

/// In which pass of a piecewise execution each step runs.
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

    /// Passes in all.
    #[inline]
    pub fn count(&self) -> u16 {
        self.count
    }
}
