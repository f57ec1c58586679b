//! What a plan means for steps: in which pass each runs when a procedure is executed piece by piece, and which run again when
//! results went stale.
//!
//! An operation's piece, or its being stale, is the plan's matter. The steps around operations follow from what they use:
//!
//! - **Passes.** A step runs in the first pass after which all results it uses are there. Passes must not show: steps that assign
//!   a variable keep their order with those that read or assign it, and in a loop around which the variable lives they share
//!   a pass; the body of a loop over a scan shares the scan's. A procedure for which that fails runs in one pass.
//! - **Repair.** What uses a stale result runs again. A variable that is assigned more than once holds its last value, so whoever
//!   runs again and reads or assigns it makes all its assignments run again, in order. An operation that changes a table makes
//!   later ones on the table run again: they may have seen its rows.

use std::collections::BTreeSet;

use crate::plan::{Chopped, Plan};

use super::visit;
use crate::ir::{Block, OperationKind, Procedure, Step, StepKind, VariableId};

type Variables = BTreeSet<VariableId>;

/// One step, as far as this module cares.
#[derive(Debug)]
struct Place {
    /// Its id.
    step: usize,
    operation: Option<usize>,
    reads: Variables,
    assigns: Variables,
    /// Steps around it, outermost first.
    around: Vec<usize>,
    /// Loops among them.
    loops: Vec<usize>,
    exit: Option<Exit>,
    is_scan_loop: bool,
    is_let_else: bool,
}

/// What an exit leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// An iteration of the innermost loop, or that loop.
    Loop,
    /// The procedure, or a pass: what the else of a `let` decides by further branches is not known in each pass, and then the
    /// pass ends there.
    Procedure,
}

/// What a procedure's steps use.
#[derive(Debug)]
pub struct Steps {
    /// In source order, which is that of ids; those in bodies of updates are part of the update.
    places: Vec<Place>,
    /// Operations that each place needs the results of.
    needs: Vec<BTreeSet<usize>>,
    /// Variables that are assigned in more than one place.
    mutable: Variables,
    steps: usize,
}

impl Steps {
    /// The steps of a procedure.
    pub fn of(procedure: &Procedure) -> Steps {
        let mut places = Vec::new();
        collect(&procedure.body, &mut Vec::new(), &mut Vec::new(), &mut places);
        let needs = control(&mut places);
        let mut steps = Steps { needs, mutable: Variables::new(), places, steps: procedure.steps };
        steps.mutable = steps.assigned_twice();
        steps.solve();
        steps
    }

    fn assigned_twice(&self) -> Variables {
        let (mut once, mut twice) = (Variables::new(), Variables::new());
        for variable in self.places.iter().flat_map(|place| &place.assigns) {
            if !once.insert(*variable) {
                twice.insert(*variable);
            }
        }
        twice
    }

    /// What reaches each place: the results of operations, through variables.
    fn solve(&mut self) {
        let mut of_variable = std::collections::BTreeMap::<VariableId, BTreeSet<usize>>::new();
        loop {
            let mut grown = false;
            for (at, place) in self.places.iter().enumerate() {
                for variable in &place.reads {
                    let from = of_variable.get(variable).cloned().unwrap_or_default();
                    grown |= !from.is_subset(&self.needs[at]);
                    self.needs[at].extend(from);
                }
                for variable in &place.assigns {
                    let known = of_variable.entry(*variable).or_default();
                    let gives = self.needs[at].iter().copied().chain(place.operation);
                    for operation in gives {
                        grown |= known.insert(operation);
                    }
                }
            }
            if !grown {
                return;
            }
        }
    }

    /// The pass of each step, by id, when the procedure is executed in these pieces. All that may fail is in the first; all
    /// zero if there can be one pass only.
    pub fn passes(&self, chopped: &Chopped) -> Vec<u16> {
        let first = chopped.decisive.unwrap_or(0);
        let of_operation = |operation: usize| {
            let piece = chopped.piece_of(operation).unwrap_or(0);
            u16::try_from(piece.saturating_sub(first)).unwrap_or(u16::MAX)
        };
        let passes: Vec<u16> = (self.places.iter().zip(&self.needs))
            .map(|(place, needs)| match place.operation {
                Some(operation) => of_operation(operation),
                None => needs.iter().map(|operation| of_operation(*operation)).max().unwrap_or(0),
            })
            .collect();
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
        let results_are_there = (self.places.iter().enumerate())
            .all(|(at, _)| self.needs[at].iter().all(|operation| of_operation(*operation) <= passes[at]));
        let scans_are_whole =
            (self.places.iter().zip(passes)).filter(|(place, _)| place.is_scan_loop).all(|(scan, pass)| {
                let inside = self.places.iter().zip(passes).filter(|(place, _)| place.around.contains(&scan.step));
                inside.into_iter().all(|(_, inner)| inner == pass)
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
            own || self.places[at].operation.is_none() && !self.needs[at].is_disjoint(operations)
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

/// Steps in source order.
fn collect(block: &Block, around: &mut Vec<usize>, loops: &mut Vec<usize>, places: &mut Vec<Place>) {
    for step in &block.0 {
        let is_scan_loop = matches!(step.kind, StepKind::ForEach { .. });
        let is_loop = is_scan_loop || matches!(step.kind, StepKind::For { .. });
        let (reads, assigns) = used(step);
        places.push(Place {
            step: step.id.index(),
            operation: visit::operation(step).map(|operation| operation.id.index()),
            reads,
            assigns,
            around: around.clone(),
            loops: loops.clone(),
            exit: match step.kind {
                StepKind::Return(_) | StepKind::Abort(_) => Some(Exit::Procedure),
                StepKind::Break | StepKind::Continue => Some(leaves(around, loops, places)),
                _ => None,
            },
            is_scan_loop,
            is_let_else: matches!(step.kind, StepKind::LetElse { .. }),
        });
        around.push(step.id.index());
        if is_loop {
            loops.push(step.id.index());
        }
        for inner in nested(step) {
            collect(inner, around, loops, places);
        }
        around.pop();
        if is_loop {
            loops.pop();
        }
    }
}

/// What a `break` or `continue` leaves that has these steps and loops around it.
fn leaves(around: &[usize], loops: &[usize], places: &[Place]) -> Exit {
    let Some((_, branches)) = around.split_last() else { return Exit::Loop };
    let inside = branches.iter().filter(|step| loops.last().is_none_or(|innermost| *step > innermost));
    match inside.into_iter().any(|step| places.iter().any(|place| place.step == *step && place.is_let_else)) {
        true => Exit::Procedure,
        false => Exit::Loop,
    }
}

/// The blocks of a step without the body of an update, which is part of its operation.
fn nested(step: &Step) -> Vec<&Block> {
    let mut blocks = visit::blocks(step);
    if updated(step).is_some() {
        blocks.pop();
    }
    blocks
}

/// The row and the body of an update.
fn updated(step: &Step) -> Option<(VariableId, &Block)> {
    match visit::operation(step)?.kind {
        OperationKind::Update { row, ref body, .. } => Some((row, body)),
        _ => None,
    }
}

/// Variables a step reads and assigns itself. What it changes in part it also reads.
fn used(step: &Step) -> (Variables, Variables) {
    let (mut reads, mut assigns) = (Variables::new(), Variables::new());
    own(step, &mut reads, &mut assigns);
    if let Some((row, body)) = updated(step) {
        let mut local = Variables::new();
        visit::steps(body, &mut |inner| own(inner, &mut reads, &mut local));
        local.insert(row);
        reads.retain(|variable| !local.contains(variable));
    }
    (reads, assigns)
}

fn own(step: &Step, reads: &mut Variables, assigns: &mut Variables) {
    let mut expressions = visit::own(step);
    if let Some(operation) = visit::operation(step) {
        expressions.extend(visit::key(operation));
        expressions.extend(visit::values(operation));
    }
    for expression in expressions {
        visit::expressions(expression, &mut |inner| {
            if let Some(variable) = visit::root(inner) {
                reads.insert(variable);
            }
        });
    }
    match &step.kind {
        StepKind::Declare(variable) => {
            assigns.insert(*variable);
        }
        StepKind::Let { pattern, .. } | StepKind::LetElse { pattern, .. } | StepKind::For { pattern, .. } => {
            assigns.extend(visit::bound(pattern));
        }
        StepKind::Operation { bind: Some(pattern), .. } => assigns.extend(visit::bound(pattern)),
        StepKind::Match { arms, .. } => assigns.extend(arms.iter().flat_map(|arm| visit::bound(&arm.pattern))),
        StepKind::ForEach { row, .. } => {
            assigns.insert(*row);
        }
        StepKind::Assign { place, .. } => {
            reads.insert(place.variable);
            assigns.insert(place.variable);
        }
        _ => {}
    }
}

/// Control is a use: of the steps around a step, and of those around the exits before it or in a loop with it; of those that leave
/// a loop only, in that loop. Variables join what a place reads; scans, whose rows say how often the body of their loop runs, are
/// what it gives back.
fn control(places: &mut [Place]) -> Vec<BTreeSet<usize>> {
    let controls: Vec<(Variables, BTreeSet<usize>)> = places
        .iter()
        .map(|place| {
            let around = || places.iter().filter(|other| place.around.contains(&other.step));
            let scans = around().filter(|other| other.is_scan_loop).filter_map(|scan| scan.operation);
            (around().flat_map(|other| other.reads.clone()).collect(), scans.collect())
        })
        .collect();
    let mut needs = vec![BTreeSet::new(); places.len()];
    for at in 0..places.len() {
        let exits = (0..places.len()).filter(|exit| {
            let (loops, around) = (&places[*exit].loops, &places[at].loops);
            match places[*exit].exit {
                None => false,
                Some(Exit::Loop) => loops.last().is_none_or(|innermost| around.contains(innermost)),
                Some(Exit::Procedure) => *exit < at || loops.iter().any(|step| around.contains(step)),
            }
        });
        for which in exits.chain([at]).collect::<Vec<_>>() {
            places[at].reads.extend(&controls[which].0);
            needs[at].extend(&controls[which].1);
        }
    }
    needs
}
