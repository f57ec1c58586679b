//! Which values a step needs, and which variables have no value if the step is skipped. It serves executions
//! that have the results of some operations only, such as fragments.
//!
//! Such an execution keeps, for each variable, whether it has its value. A step whose variables have their
//! values runs as usual. A step that lacks a value is skipped with its blocks, and then every variable that
//! they would have assigned has no value either. If the skipped steps could have left the loop or the
//! procedure, it is unknown whether later steps are reached ([`Exit`]). These are skipped as well. So each step that
//! runs has the values of an execution from top to bottom, whatever is missing. This is found step by step, without
//! relying on data flow analysis.

use crate::ir::{Block, OperationKind, Procedure, Step, StepId, StepKind, VariableId};
use crate::visit;

/// The point from which on it is known again whether steps are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// The next iteration of this loop.
    Iteration(StepId),
    /// The end of this loop.
    Loop(StepId),
    /// No such point.
    Procedure,
}

/// The needs and effects of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Variables that the step itself reads, or that the body of its update reads.
    pub reads: Vec<VariableId>,
    /// Variables that have their values once it has run: bound by it, for its blocks or for later steps, or
    /// assigned.
    pub gives: Vec<VariableId>,
    /// Variables that have no value if it is skipped: also those that its blocks assign.
    pub takes: Vec<VariableId>,
    /// The widest exit in its blocks that leaves the step.
    pub exit: Option<Exit>,
    /// The last step in its blocks, or itself.
    pub last: StepId,
}

/// All steps of a procedure, by id.
#[derive(Clone, Debug)]
pub struct Availability {
    steps: Vec<Needs>,
    /// For each operation: the loops around it, outermost first. For a scan over whose rows a loop runs, that
    /// loop is last.
    loops: Vec<Vec<StepId>>,
}

impl Availability {
    /// Analyses a procedure.
    pub fn of(procedure: &Procedure) -> Availability {
        let nothing = Needs { reads: Vec::new(), gives: Vec::new(), takes: Vec::new(), exit: None, last: StepId(0) };
        let mut all =
            Availability { steps: vec![nothing; procedure.steps], loops: vec![Vec::new(); procedure.operations] };
        all.block(&procedure.body, &mut Vec::new());
        all
    }

    /// The needs and effects of a step.
    #[inline]
    pub fn step(&self, step: StepId) -> &Needs {
        &self.steps[step.index()]
    }

    /// The loops around an operation, outermost first. For a scan over whose rows a loop runs, that loop is
    /// last.
    #[inline]
    pub fn loops(&self, operation: usize) -> &[StepId] {
        &self.loops[operation]
    }

    /// Whether a step is in a loop, or in the part of the procedure that this exit leaves.
    #[inline]
    pub fn is_inside(&self, step: StepId, exit: Exit) -> bool {
        match exit {
            Exit::Procedure => true,
            Exit::Loop(of) | Exit::Iteration(of) => of < step && step <= self.step(of).last,
        }
    }

    /// The variables that the steps of a block assign, and the exits of the block; `around` are the loops.
    fn block(&mut self, block: &Block, around: &mut Vec<StepId>) -> (Vec<VariableId>, Option<Exit>, Option<StepId>) {
        let (mut takes, mut exit, mut last) = (Vec::new(), None, None);
        for step in &block.0 {
            if let StepKind::Scope(never, _) = &step.kind {
                match *never {}
            }
            let (of, to) = self.one(step, around);
            takes.extend(of);
            exit = exit.max(to);
            last = last.max(Some(self.step(step.id).last));
        }
        (takes, exit, last)
    }

    fn one(&mut self, step: &Step, around: &mut Vec<StepId>) -> (Vec<VariableId>, Option<Exit>) {
        let is_loop = matches!(step.kind, StepKind::For { .. } | StepKind::ForEach { .. });
        let innermost = around.last().copied();
        if is_loop {
            around.push(step.id);
        }
        if let Some(operation) = visit::operation(step) {
            self.loops[operation.id.index()].clone_from(around);
        }
        let gives = visit::defined(step);
        let (mut takes, mut exit, mut last) = (gives.clone(), None, step.id);
        for inner in visit::nested(step) {
            let (of, to, end) = self.block(inner, around);
            takes.extend(of);
            exit = exit.max(to);
            last = last.max(end.unwrap_or(last));
        }
        if is_loop {
            around.pop();
        }
        if let Some((_, body)) = visit::change(step) {
            visit::steps(body, &mut |inner| last = last.max(inner.id));
        }
        let own = match &step.kind {
            StepKind::Return(_) | StepKind::Abort(_) => Some(Exit::Procedure),
            StepKind::Break => innermost.map(Exit::Loop),
            StepKind::Continue => innermost.map(Exit::Iteration),
            _ => None,
        };
        // The exit of a skipped loop ends no other loop.
        let leaves = |exit: &Exit| !is_loop || !matches!(exit, Exit::Loop(of) | Exit::Iteration(of) if *of == step.id);
        let exit = exit.filter(leaves).max(own);
        takes.sort();
        takes.dedup();
        let needs = Needs { reads: reads(step), gives, takes: takes.clone(), exit, last };
        self.steps[step.id.index()] = needs;
        (takes, exit)
    }
}

/// The variables of a step's own expressions that are bound outside of them.
fn reads(step: &Step) -> Vec<VariableId> {
    let (mut read, mut inside) = (Vec::new(), Vec::new());
    let mut of = |step: &Step, inside: &mut Vec<VariableId>| {
        for expression in visit::all_own(step) {
            visit::expressions(expression, &mut |inner| {
                if let crate::ir::ExpressionKind::Variable(variable) = &*inner.kind {
                    read.push(*variable);
                }
                inside.extend(visit::bindings(inner).iter().flat_map(|(pattern, _)| visit::bound(pattern)));
            });
        }
        if let StepKind::Assign { place, operator, .. } = &step.kind
            && (operator.is_some() || !place.path.is_empty())
        {
            read.push(place.variable);
        }
    };
    of(step, &mut inside);
    if let StepKind::Match { arms, .. } = &step.kind {
        inside.extend(arms.iter().flat_map(|arm| visit::bound(&arm.pattern)));
    }
    if let Some(operation) = visit::operation(step)
        && let OperationKind::Update { row, body, .. } = &operation.kind
    {
        inside.push(*row);
        visit::steps(body, &mut |change| {
            of(change, &mut inside);
            if !matches!(&change.kind, StepKind::Assign { .. }) {
                inside.extend(visit::defined(change));
            }
        });
    }
    read.retain(|variable| !inside.contains(variable));
    read.sort();
    read.dedup();
    read
}
