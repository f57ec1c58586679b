//! What a plan means for steps: in which pass each runs when a procedure is executed piece by piece, and which run again when
//! results went stale.
//!
//! An operation's piece, or its being stale, is the plan's matter. The steps around operations follow from what they use, which
//! flow analysis knows:
//!
//! - **Passes.** A step runs in the first pass after which all results it uses are there. Passes must not show: steps that assign
//!   a variable keep their order with those that read or assign it, and in a loop around which the variable lives they share
//!   a pass; the body of a loop over a scan shares the scan's. A procedure for which that fails runs in one pass.
//! - **Repair.** What uses a stale result runs again. A variable that is assigned more than once holds its last value, so a step
//!   that runs again and reads or assigns it makes all its assignments run again, in order. An operation that changes a table makes
//!   later ones on the table run again: they may have seen its rows.

use std::collections::BTreeSet;

use crate::plan::{Chopped, Plan};

use super::flow::{Flow, Place, PlaceKind};
use crate::ir::{Procedure, VariableId};

type Variables = BTreeSet<VariableId>;

/// What a procedure's steps use.
#[derive(Debug)]
pub struct Steps {
    /// With the control of each step in what it reads and needs.
    places: Vec<Place>,
    /// Variables that are assigned in more than one place.
    mutable: Variables,
    steps: usize,
}

impl Steps {
    /// The steps of a procedure.
    pub fn of(procedure: &Procedure) -> Steps {
        let flow = Flow::of(&procedure.body, procedure.variables.len(), procedure.parameters);
        Steps::new(flow, procedure.steps)
    }

    /// So many steps between which this flows.
    pub(super) fn new(flow: Flow, steps: usize) -> Steps {
        let mut places = flow.places;
        control(&mut places);
        let (mut once, mut mutable) = (Variables::new(), Variables::new());
        mutable.extend(places.iter().flat_map(|place| &place.assigns).filter(|variable| !once.insert(**variable)));
        Steps { places, mutable, steps }
    }

    /// The pass of each step, by id, when the procedure is executed in these pieces. All that may fail is in the first; all
    /// zero if there can be one pass only.
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

    /// Whether an execution in these passes cannot be told from one in source order.
    fn keeps_order(&self, passes: &[u16], of_operation: impl Fn(usize) -> u16) -> bool {
        let places = || self.places.iter().zip(passes);
        let results_are_there =
            places().all(|(place, pass)| place.needs.iter().all(|operation| of_operation(*operation) <= *pass));
        let scans_are_whole = places().filter(|(place, _)| place.kind == PlaceKind::ScanLoop).all(|(scan, pass)| {
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

    /// What runs again when the result of `operation` is stale: the steps, by id, and the operations among them.
    pub fn repair(&self, plan: &Plan, operation: usize) -> (Vec<bool>, BTreeSet<usize>) {
        let mut again = plan.descendants(operation);
        loop {
            let mut more = again.clone();
            // Through the table: what an operation changed, later ones and those in a loop with it may have seen.
            for changed in again.iter().filter(|id| plan.operations[**id].changes()) {
                let (table, loops) = (plan.operations[*changed].table, &plan.operations[*changed].loops);
                let sees = |id: &usize| {
                    let other = &plan.operations[*id];
                    other.table == table && (*id > *changed || other.loops.iter().any(|at| loops.contains(at)))
                };
                more.extend((0..plan.operations.len()).filter(sees));
            }
            let (_, through_variables) = self.run_again(&more);
            more.extend(through_variables);
            more.extend(more.clone().into_iter().flat_map(|id| plan.descendants(id)));
            if more == again {
                let (steps, _) = self.run_again(&again);
                return (steps, again);
            }
            again = more;
        }
    }

    /// The steps that run again with these operations, and further operations that must.
    fn run_again(&self, operations: &BTreeSet<usize>) -> (Vec<bool>, BTreeSet<usize>) {
        let uses = |at: usize| {
            let own = self.places[at].operation.is_some_and(|operation| operations.contains(&operation));
            own || self.places[at].operation.is_none() && !self.places[at].needs.is_disjoint(operations)
        };
        let mut chosen: BTreeSet<usize> = (0..self.places.len()).filter(|at| uses(*at)).collect();
        loop {
            let touched = |at: &usize| self.places[*at].reads.iter().chain(&self.places[*at].assigns);
            let variables: Variables =
                chosen.iter().flat_map(touched).filter(|variable| self.mutable.contains(variable)).copied().collect();
            let assigning = |at: &usize| !self.places[*at].assigns.is_disjoint(&variables);
            let more: Vec<usize> = (0..self.places.len()).filter(|at| !chosen.contains(at)).filter(assigning).collect();
            if more.is_empty() {
                break;
            }
            chosen.extend(more);
        }
        let mut steps = vec![false; self.steps];
        chosen.iter().for_each(|at| steps[self.places[*at].step] = true);
        (steps, chosen.iter().filter_map(|at| self.places[*at].operation).collect())
    }
}

/// Whether a `break` or `continue` leaves its loop, or an iteration, in each pass. What the else of a `let` decides by further
/// branches is not known in each pass, and then the pass ends there.
fn leaves_loop(exit: &Place, places: &[Place]) -> bool {
    let Some((_, branches)) = exit.around.split_last() else { return true };
    let inside = branches.iter().filter(|step| exit.loops.last().is_none_or(|innermost| *step > innermost));
    !inside.into_iter().any(|step| places.iter().any(|place| place.step == *step && place.kind == PlaceKind::LetElse))
}

/// Control is a use: of the steps around a step, since a step that is passed over is so with its blocks, and of those around the
/// exits before it or in a loop with it; of those that leave a loop only, in that loop.
fn control(places: &mut [Place]) {
    let around = |place: &Place| {
        let around = || places.iter().filter(|other| place.around.contains(&other.step));
        let reads: Variables = around().flat_map(|other| other.reads.clone()).collect();
        let needs: BTreeSet<usize> = around().flat_map(|other| other.needs.clone()).collect();
        (reads, needs)
    };
    let exit = |place: &Place| match place.kind {
        PlaceKind::LoopExit if leaves_loop(place, places) => Some(PlaceKind::LoopExit),
        PlaceKind::LoopExit | PlaceKind::Exit => Some(PlaceKind::Exit),
        _ => None,
    };
    let controls: Vec<_> = places.iter().map(|place| (around(place), exit(place), place.loops.clone())).collect();
    for (at, place) in places.iter_mut().enumerate() {
        for (other, ((reads, needs), exit, loops)) in controls.iter().enumerate() {
            let decides = match exit {
                _ if other == at => true,
                None => false,
                Some(PlaceKind::LoopExit) => loops.last().is_none_or(|innermost| place.loops.contains(innermost)),
                Some(_) => other < at || loops.iter().any(|step| place.loops.contains(step)),
            };
            if decides {
                place.reads.extend(reads);
                place.needs.extend(needs);
            }
        }
    }
}
