//! The pass of each step when a procedure is executed piece by piece.
//!
//! The plan decides about the pieces of operations. The pass of the steps around operations follows from their uses,
//! which flow analysis knows. A step runs in the first pass after which all results that it uses are known. Passes must
//! have no visible effect. Steps that assign a variable keep their order with those that read or assign it. Inside a
//! loop that the variable outlives they share a pass. The body of a loop over a scan shares the scan's pass. A
//! procedure for which this is impossible runs in one pass.

use std::collections::BTreeSet;

use crate::plan::Chopped;

use super::flow::{Flow, StepFlow, StepFlowKind};
use crate::ir::{Procedure, VariableId};

type Variables = BTreeSet<VariableId>;

/// The uses of a procedure's steps.
#[derive(Debug)]
pub struct Steps {
    /// With the control of each step among what it reads and needs.
    pub(super) places: Vec<StepFlow>,
    /// Variables that are assigned at more than one position.
    mutable: Variables,
    steps: usize,
}

impl Steps {
    /// The steps of a procedure.
    pub fn of(procedure: &Procedure) -> Steps {
        let flow = Flow::of(&procedure.body, procedure.variables.len(), procedure.parameters);
        Steps::new(flow, procedure.steps)
    }

    /// This many steps with this flow.
    pub(super) fn new(flow: Flow, steps: usize) -> Steps {
        let mut places = flow.places;
        control(&mut places);
        let (mut once, mut mutable) = (Variables::new(), Variables::new());
        mutable.extend(places.iter().flat_map(|place| &place.assigns).filter(|variable| !once.insert(**variable)));
        Steps { places, mutable, steps }
    }

    /// The pass of each step, by id, when the procedure is executed in these pieces. All possible failures are
    /// in the first. All passes are zero if there can be one pass only.
    pub fn passes(&self, chopped: &Chopped) -> Vec<u16> {
        let first = chopped.decisive.unwrap_or(0);
        let of_operation = |operation: usize| {
            let piece = chopped.piece_of(operation).unwrap_or(0);
            u16::try_from(piece.saturating_sub(first)).unwrap_or(u16::MAX)
        };
        let passes = self.places.iter().map(|place| match place.operation {
            Some(operation) => of_operation(operation),
            None => place.needs.iter().map(|operation| of_operation(*operation)).max().unwrap_or(0),
        });
        let passes: Vec<u16> = passes.collect();
        let mut of_step = vec![0; self.steps];
        if self.keeps_order(&passes, of_operation) {
            for (place, pass) in self.places.iter().zip(&passes) {
                of_step[place.step] = *pass;
            }
        }
        of_step
    }

    /// Whether an execution in these passes has the same results as one in source order.
    fn keeps_order(&self, passes: &[u16], of_operation: impl Fn(usize) -> u16) -> bool {
        let places = || self.places.iter().zip(passes);
        let results_are_there =
            places().all(|(place, pass)| place.needs.iter().all(|operation| of_operation(*operation) <= *pass));
        let scans_are_whole = places().filter(|(place, _)| place.kind == StepFlowKind::ScanLoop).all(|(scan, pass)| {
            let mut inside = places().filter(|(place, _)| place.around.contains(&scan.step));
            inside.all(|(_, inner)| inner == pass)
        });
        results_are_there && scans_are_whole && self.mutable.iter().all(|variable| self.in_order(*variable, passes))
    }

    /// Whether the steps that touch a variable run in source order.
    fn in_order(&self, variable: VariableId, passes: &[u16]) -> bool {
        let touches: Vec<usize> = (0..self.places.len())
            .filter(|at| self.places[*at].reads.contains(&variable) || self.places[*at].assigns.contains(&variable))
            .collect();
        let Some(&declared) = touches.iter().find(|at| self.places[**at].assigns.contains(&variable)) else {
            return true;
        };
        let assigns = |at: usize| self.places[at].assigns.contains(&variable);
        touches.iter().enumerate().all(|(i, &earlier)| {
            touches[i + 1..].iter().filter(|later| assigns(earlier) || assigns(**later)).all(|&later| {
                let shared = self.places[earlier].loops.iter().filter(|at| self.places[later].loops.contains(at));
                let around = |at: &usize| !self.places[declared].loops.contains(at);
                match shared.copied().any(|at| around(&at)) {
                    true => passes[earlier] == passes[later],
                    false => passes[earlier] <= passes[later],
                }
            })
        })
    }
}

/// Whether a `break` or `continue` leaves its loop, or an iteration, in each pass. If the else of a `let`
/// decides by further branches, the exit is not known in each pass, and then the pass ends there.
fn leaves_loop(exit: &StepFlow, places: &[StepFlow]) -> bool {
    let Some((_, branches)) = exit.around.split_last() else { return true };
    let inside = branches.iter().filter(|step| exit.loops.last().is_none_or(|innermost| *step > innermost));
    !inside
        .into_iter()
        .any(|step| places.iter().any(|place| place.step == *step && place.kind == StepFlowKind::LetElse))
}

/// Adds control to the uses of each step. These are the steps around it, since a skipped step is skipped with its
/// blocks. They are also the exits before it or in a loop with it. Exits that only leave a loop count inside that loop
/// only.
fn control(places: &mut [StepFlow]) {
    let around = |place: &StepFlow| {
        let around = || places.iter().filter(|other| place.around.contains(&other.step));
        let reads: Variables = around().flat_map(|other| other.reads.clone()).collect();
        let needs: BTreeSet<usize> = around().flat_map(|other| other.needs.clone()).collect();
        (reads, needs)
    };
    let exit = |place: &StepFlow| match place.kind {
        StepFlowKind::LoopExit if leaves_loop(place, places) => Some(StepFlowKind::LoopExit),
        StepFlowKind::LoopExit | StepFlowKind::Exit => Some(StepFlowKind::Exit),
        _ => None,
    };
    let controls: Vec<_> = places.iter().map(|place| (around(place), exit(place), place.loops.clone())).collect();
    for (at, place) in places.iter_mut().enumerate() {
        for (other, ((reads, needs), exit, loops)) in controls.iter().enumerate() {
            let decides = match exit {
                _ if other == at => true,
                None => false,
                Some(StepFlowKind::LoopExit) => loops.last().is_none_or(|innermost| place.loops.contains(innermost)),
                Some(_) => other < at || loops.iter().any(|step| place.loops.contains(step)),
            };
            if decides {
                place.reads.extend(reads);
                place.needs.extend(needs);
            }
        }
    }
}
