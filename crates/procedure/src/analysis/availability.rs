//! What a step needs to have a value, and what has none where the step is passed over: for executions that have the results of some
//! operations only, as a fragment has.
//!
//! Who executes so keeps, for each variable, whether it has its value. A step whose variables have theirs runs as ever. One that lacks a
//! value is passed over with its blocks, and then all that it and they would have assigned has no value either; if they could have left the
//! loop or the procedure, it is not known whether what follows is reached ([`Exit`]), and it is passed over as well. So what runs has the values that an execution from
//! top to bottom gives it, whatever is missing; and this is found out step by step, without trust in what flows where.

use crate::ir::{Block, OperationKind, Procedure, Step, StepId, StepKind, VariableId};
use crate::visit;

/// From where on it is not known again whether steps are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// The next iteration of this loop.
    Iteration(StepId),
    /// The end of this loop.
    Loop(StepId),
    /// Nowhere.
    Procedure,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Variables that it reads itself, and the body of an update that it is.
    pub reads: Vec<VariableId>,
    /// Those that have their values once it runs: bound by it, for its blocks or what follows, or assigned.
    pub gives: Vec<VariableId>,
    /// Those that have none if it is passed over: also what its blocks assign.
    pub takes: Vec<VariableId>,
    /// The widest exit in its blocks that leaves it.
    pub exit: Option<Exit>,
    /// The last step in its blocks, or itself.
    pub last: StepId,
}

/// All steps of a procedure, by id.
#[derive(Clone, Debug)]
pub struct Availability {
    steps: Vec<Needs>,
    /// For each operation: the loops around it, outermost first; of a scan whose rows a loop goes over, that one last.
    loops: Vec<Vec<StepId>>,
}

impl Availability {
    /// Of a procedure.
    pub fn of(procedure: &Procedure) -> Availability {
        let nothing = Needs { reads: Vec::new(), gives: Vec::new(), takes: Vec::new(), exit: None, last: StepId(0) };
        let mut all =
            Availability { steps: vec![nothing; procedure.steps], loops: vec![Vec::new(); procedure.operations] };
        all.block(&procedure.body, &mut Vec::new());
        all
    }

    /// What a step needs and gives.
    #[inline]
    pub fn step(&self, step: StepId) -> &Needs {
        &self.steps[step.index()]
    }

    /// The loops around an operation, outermost first; of a scan whose rows a loop goes over, that one last.
    #[inline]
    pub fn loops(&self, operation: usize) -> &[StepId] {
        &self.loops[operation]
    }

    /// Whether a step is in a loop, or in what is left by this exit.
    #[inline]
    pub fn is_inside(&self, step: StepId, exit: Exit) -> bool {
        match exit {
            Exit::Procedure => true,
            Exit::Loop(of) | Exit::Iteration(of) => of < step && step <= self.step(of).last,
        }
    }

    /// What the steps of a block assign, and how they leave it; `around` are the loops.
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
        // What ends a loop that is passed over ends nothing else.
        let leaves = |exit: &Exit| !is_loop || !matches!(exit, Exit::Loop(of) | Exit::Iteration(of) if *of == step.id);
        let exit = exit.filter(leaves).max(own);
        takes.sort();
        takes.dedup();
        let needs = Needs { reads: reads(step), gives, takes: takes.clone(), exit, last };
        self.steps[step.id.index()] = needs;
        (takes, exit)
    }
}

/// The variables that a step reads from outside of its own expressions.
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
