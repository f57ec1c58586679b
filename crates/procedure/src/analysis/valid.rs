//! Whether a representation that was made at run time is one: ids are dense and in order, and name what is there.
//! Everything else here relies on that.

use std::collections::BTreeSet;

use super::refusal::{Collector, Refusals};
use crate::evaluate::DEPTH_MAX;
use crate::ir::{
    Block, Expression, ExpressionKind, Function, Operation, OperationKind, Pattern, Procedure, Span, Step, StepKind,
    Take, VariableId,
};
use crate::{methods, visit};

/// Checks a procedure that is made at run time.
///
/// # Errors
/// What is wrong, each with its place.
pub fn validate(procedure: &Procedure) -> Result<(), Refusals> {
    let collector = Collector::new(&procedure.name);
    let mut check = Check { procedure, steps: 0, operations: 0, collector };
    if procedure.parameters > procedure.variables.len() || procedure.variables.len() > usize::from(u16::MAX) {
        check.refuse(
            &procedure.span,
            format!("{} parameters of {} variables", procedure.parameters, procedure.variables.len()),
        );
    }
    let parameters = (0..procedure.parameters).map(|at| VariableId(at as u16));
    check.names("parameters", parameters.collect(), &procedure.span);
    check.block(&procedure.body, 0, &procedure.span);
    if (check.steps, check.operations) != (procedure.steps, procedure.operations) {
        let problem = format!("it has {} steps and {} operations", check.steps, check.operations);
        check.refuse(&procedure.span, problem);
    }
    if !ends(&procedure.body) {
        check.refuse(&procedure.span, "its body must end in a return or an abort");
    }
    check.collector.finish(())
}

/// Whether no path runs off the end of a block.
fn ends(block: &Block) -> bool {
    block.0.last().is_some_and(|step| match &step.kind {
        StepKind::Return(_) | StepKind::Abort(_) => true,
        StepKind::If { then, otherwise, .. } => ends(then) && ends(otherwise),
        StepKind::Match { arms, .. } => arms.iter().all(|arm| ends(&arm.body)),
        _ => false,
    })
}

struct Check<'p> {
    procedure: &'p Procedure,
    steps: usize,
    operations: usize,
    collector: Collector,
}

impl Check<'_> {
    fn refuse(&mut self, span: &Span, problem: impl Into<String>) {
        self.collector.refuse(span, problem);
    }

    fn deeper(&mut self, span: &Span, depth: usize) -> bool {
        if depth > DEPTH_MAX {
            self.refuse(span, format!("it nests deeper than {DEPTH_MAX} levels"));
        }
        depth <= DEPTH_MAX
    }

    fn block(&mut self, block: &Block, depth: usize, span: &Span) {
        if self.deeper(span, depth) {
            block.0.iter().for_each(|step| self.step(step, depth));
        }
    }

    fn step(&mut self, step: &Step, depth: usize) {
        if step.id.index() != self.steps {
            self.refuse(&step.span, format!("step {} is counted as {}", self.steps, step.id.0));
        }
        self.steps += 1;
        if let Some(operation) = visit::operation(step) {
            self.operation(step, operation);
        }
        visit::defined(step).into_iter().for_each(|variable| self.variable(variable, &step.span));
        match &step.kind {
            StepKind::Let { pattern, .. } | StepKind::LetElse { pattern, .. } => self.pattern(pattern, &step.span, 0),
            StepKind::For { pattern, .. } => {
                self.pattern(pattern, &step.span, 0);
                self.names("variables of a loop", visit::bound(pattern), &step.span);
            }
            StepKind::Operation { bind: Some(pattern), .. } => self.pattern(pattern, &step.span, 0),
            StepKind::Match { arms, .. } => arms.iter().for_each(|arm| self.pattern(&arm.pattern, &step.span, 0)),
            _ => {}
        }
        visit::all_own(step).into_iter().for_each(|expression| self.expression(expression, depth));
        visit::blocks(step).into_iter().for_each(|block| self.block(block, depth + 1, &step.span));
    }

    fn operation(&mut self, step: &Step, operation: &Operation) {
        let span = &operation.span;
        if operation.id.index() != self.operations {
            self.refuse(span, format!("operation {} is counted as {}", self.operations, operation.id.0));
        }
        self.operations += 1;
        if operation.table >= self.procedure.tables.len() {
            self.refuse(span, format!("it has no table {}", operation.table));
        }
        if let OperationKind::Update { row, .. } = &operation.kind {
            self.variable(*row, span);
        }
        let is_loop = matches!(step.kind, StepKind::ForEach { .. });
        if is_loop != matches!(operation.kind, OperationKind::Scan { take: Take::Each, .. }) {
            self.refuse(span, "a loop runs over a scan that takes each row, and only a loop does");
        }
    }

    fn variable(&mut self, variable: VariableId, span: &Span) {
        if variable.index() >= self.procedure.variables.len() {
            self.refuse(span, format!("it has no variable {}", variable.0));
        }
    }

    /// Symbols tell these variables apart by their names.
    fn names(&mut self, what: &str, variables: Vec<VariableId>, span: &Span) {
        let mut known = BTreeSet::new();
        for name in variables.iter().filter_map(|id| self.procedure.variables.get(id.index())).map(|of| &*of.name) {
            if !known.insert(name) {
                self.refuse(span, format!("two {what} have the name `{name}`"));
            }
        }
    }

    fn pattern(&mut self, pattern: &Pattern, span: &Span, depth: usize) {
        if !self.deeper(span, depth) {
            return;
        }
        match pattern {
            Pattern::Bind(variable) => self.variable(*variable, span),
            Pattern::Some(inner) => self.pattern(inner, span, depth + 1),
            Pattern::Tuple(parts) | Pattern::Either(parts) => {
                parts.iter().for_each(|part| self.pattern(part, span, depth + 1));
            }
            Pattern::Record { fields, .. } => {
                fields.iter().for_each(|(_, part)| self.pattern(part, span, depth + 1));
            }
            Pattern::Any | Pattern::Literal(_) | Pattern::Range { .. } | Pattern::None => {}
        }
    }

    fn expression(&mut self, expression: &Expression, depth: usize) {
        let span = &expression.span;
        if !self.deeper(span, depth) {
            return;
        }
        match &*expression.kind {
            ExpressionKind::Variable(variable) => self.variable(*variable, span),
            ExpressionKind::Call(Function::Method(name), _) if methods::method(name).is_none() => {
                self.refuse(span, format!("there is no method `{name}`"));
            }
            _ => {}
        }
        for (pattern, _) in visit::bindings(expression) {
            self.pattern(pattern, span, depth);
        }
        visit::children(expression).into_iter().for_each(|child| self.expression(child, depth + 1));
    }
}
