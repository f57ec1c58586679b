//! Whether an execution in pieces could fail after its first transaction: a check of its own, before anything is cut.
//!
//! Flow analysis finds the operations that decide over each failure, and chopping puts failures first. A fault
//! in either would surface between two pieces, with half of the procedure visible. So this file relies on
//! neither: it knows the representation and which operations run after the first transaction, and it is
//! coarse. *Late* is
//!
//! - a step that runs in a later pass;
//! - a variable that is bound or assigned from a late operation or variable, or where control is late;
//! - control inside a late branch or loop, and after an early exit there. After `return` and abort that is everything,
//!   and every loop around. After `break` and `continue` it is the rest of the loop, and all of it in further
//!   iterations.
//!
//! Nothing late may fail. Late operations only read and require no row, and late expressions have a value for all
//! operands. An operation of the first transaction is not late itself.

use std::collections::BTreeMap;
use std::fmt;

use crate::ir::{
    BinaryOperator, Block, Expression, ExpressionKind, Function, Operation, OperationKind, Procedure, Selector, Span,
    Step, StepId, StepKind, UnaryOperator, VariableId,
};
use crate::visit;

/// A possible failure of an execution after its first transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateFailure {
    /// The position.
    pub span: Span,
    /// A description of the possible failure.
    pub what: &'static str,
    /// An operation of a later transaction that decides over it.
    pub decided_by: usize,
}

impl fmt::Display for LateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LateFailure { span, what, decided_by } = self;
        write!(f, "{span}: {what}, decided by #{decided_by} in a later piece")
    }
}

/// The possible failures of an execution after its first transaction, which is pass 0. `passes` is the pass of
/// each step, as returned by [`Steps::passes`](super::Steps::passes).
pub fn late_failures(procedure: &Procedure, passes: &[u16]) -> Vec<LateFailure> {
    let mut some = None;
    visit::steps(&procedure.body, &mut |step| {
        if let Some(operation) =
            visit::operation(step).filter(|_| passes.get(step.id.index()).is_some_and(|pass| *pass > 0))
        {
            some.get_or_insert(operation.id.index());
        }
    });
    let mut check = Check {
        passes,
        some: some.unwrap_or_default(),
        variables: BTreeMap::new(),
        loops: BTreeMap::new(),
        around: Vec::new(),
        skipped: None,
        ended: None,
        found: Vec::new(),
    };
    loop {
        let before = (check.variables.len(), check.loops.len());
        (check.skipped, check.ended) = (None, None);
        check.block(&procedure.body, None);
        if before == (check.variables.len(), check.loops.len()) {
            return check.found;
        }
        check.found.clear();
    }
}

/// A late operation as the reason, if something is late.
type Late = Option<usize>;

struct Check<'c> {
    passes: &'c [u16],
    /// A late operation, for steps that run late and use nothing late.
    some: usize,
    /// Late variables.
    variables: BTreeMap<VariableId, usize>,
    /// Loops whose body runs under late control.
    loops: BTreeMap<StepId, usize>,
    /// The loops around the current step.
    around: Vec<StepId>,
    /// Whether a late `break` or `continue` of the innermost loop comes before the current step.
    skipped: Late,
    /// Whether a late end of the procedure comes before the current step.
    ended: Late,
    found: Vec<LateFailure>,
}

impl Check<'_> {
    fn block(&mut self, block: &Block, control: Late) {
        for step in &block.0 {
            self.step(step, control);
        }
    }

    fn step(&mut self, step: &Step, control: Late) {
        let control = control.or(self.skipped).or(self.ended);
        let mut late = control.or_else(|| visit::own(step).into_iter().find_map(|part| self.uses(part)));
        let is_late = self.passes.get(step.id.index()).is_some_and(|pass| *pass > 0);
        match visit::operation(step) {
            Some(operation) => late = self.operation(operation, is_late, late),
            None => late = late.or(is_late.then_some(self.some)),
        }
        if let Some(by) = late {
            visit::own(step).into_iter().for_each(|part| self.must_have_a_value(part, by));
            self.define(step, by);
        }
        match (&step.kind, late) {
            (StepKind::Abort(_), Some(by)) => self.fails(&step.span, "an abort", by),
            (StepKind::Assign { operator: Some(_), .. }, Some(by)) => self.fails(&step.span, "arithmetic", by),
            (StepKind::Assign { place, .. }, Some(by))
                if place.path.iter().any(|selector| matches!(selector, Selector::Index(_))) =>
            {
                self.fails(&step.span, "an index", by);
            }
            _ => {}
        }
        match &step.kind {
            StepKind::Break | StepKind::Continue => {
                if let (Some(by), Some(innermost)) = (control, self.around.last()) {
                    self.loops.entry(*innermost).or_insert(by);
                    self.skipped = Some(by);
                }
            }
            StepKind::Return(_) | StepKind::Abort(_) => {
                if let Some(by) = control {
                    for around in &self.around {
                        self.loops.entry(*around).or_insert(by);
                    }
                    self.ended = Some(by);
                }
            }
            StepKind::For { body, .. } | StepKind::ForEach { body, .. } => {
                let skipped = self.skipped.take();
                self.around.push(step.id);
                self.block(body, late.or(self.loops.get(&step.id).copied()));
                self.around.pop();
                self.skipped = skipped;
            }
            // The body of an update is a part of its operation.
            _ => visit::nested(step).into_iter().for_each(|block| self.block(block, late)),
        }
    }

    /// Checks an operation under this control. Returns whether its result is late.
    fn operation(&mut self, operation: &Operation, is_late: bool, control: Late) -> Late {
        let (id, span) = (operation.id.index(), &operation.span);
        let mut parts = visit::key(operation);
        parts.extend(visit::values(operation));
        let mut body = Vec::new();
        if let OperationKind::Update { body: steps, .. } = &operation.kind {
            visit::steps(steps, &mut |step| body.extend(visit::own(step)));
        }
        let by = control.or_else(|| parts.iter().chain(&body).find_map(|part| self.uses(part)));
        match (is_late, by) {
            (false, None) => return None,
            (false, Some(by)) => self.fails(span, "an operation of the first piece", by),
            (true, _) => {}
        }
        let by = by.unwrap_or(id);
        parts.into_iter().for_each(|part| self.must_have_a_value(part, by));
        match operation.kind {
            OperationKind::Get { required: false, .. } | OperationKind::Scan { .. } => {}
            OperationKind::Get { .. } => self.fails(span, "a row that must exist", by),
            _ => self.fails(span, "a write", by),
        }
        Some(id)
    }

    /// The variables that a step binds, assigns or changes are late.
    fn define(&mut self, step: &Step, by: usize) {
        let mut defined = visit::defined(step);
        for part in visit::own(step) {
            visit::expressions(part, &mut |part| {
                defined.extend(visit::changed(part));
                defined.extend(visit::bindings(part).into_iter().flat_map(|(pattern, _)| visit::bound(pattern)));
            });
        }
        for variable in defined {
            self.variables.entry(variable).or_insert(by);
        }
    }

    /// Whether an expression uses something late.
    fn uses(&self, expression: &Expression) -> Late {
        let mut found = None;
        visit::expressions(expression, &mut |part| {
            if let ExpressionKind::Variable(variable) = &*part.kind {
                found = found.or(self.variables.get(variable).copied());
            }
        });
        found
    }

    fn must_have_a_value(&mut self, expression: &Expression, by: usize) {
        visit::expressions(expression, &mut |part| {
            if let Err(what) = has_a_value(&part.kind) {
                self.fails(&part.span, what, by);
            }
        });
    }

    fn fails(&mut self, span: &Span, what: &'static str, by: usize) {
        self.found.push(LateFailure { span: span.clone(), what, decided_by: by });
    }
}

/// Whether an expression has a value for all operands of its type; else its kind. Unlisted expressions may
/// fail.
fn has_a_value(kind: &ExpressionKind) -> Result<(), &'static str> {
    use BinaryOperator::{And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual, Or};
    const METHODS: &[&str] = &[
        "as_str",
        "clone",
        "contains",
        "dedup",
        "enumerate",
        "into",
        "is_empty",
        "is_none",
        "is_some",
        "iter",
        "len",
        "max",
        "min",
        "push",
        "sort",
        "starts_with",
        "to_owned",
        "units",
        "unwrap_or",
        "zip",
    ];
    match kind {
        ExpressionKind::Literal(_)
        | ExpressionKind::Variable(_)
        | ExpressionKind::Field(..)
        | ExpressionKind::Unary(UnaryOperator::Not, _)
        | ExpressionKind::Tuple(_)
        | ExpressionKind::List(_)
        | ExpressionKind::Repeat(..)
        | ExpressionKind::Record(..)
        | ExpressionKind::None
        | ExpressionKind::Some(_)
        | ExpressionKind::If(..)
        | ExpressionKind::Match(..)
        | ExpressionKind::Block(..)
        | ExpressionKind::Range { .. } => Ok(()),
        ExpressionKind::Reference(never, _) | ExpressionKind::Dereference(never, _) => match *never {},
        ExpressionKind::Unary(UnaryOperator::Negate, inner) => match &*inner.kind {
            ExpressionKind::Literal(_) => Ok(()),
            _ => Err("arithmetic"),
        },
        ExpressionKind::Binary(And | Or | Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual, ..) => {
            Ok(())
        }
        ExpressionKind::Binary(..) => Err("arithmetic"),
        ExpressionKind::Element(..) => Err("an index"),
        ExpressionKind::Call(Function::Pure { total: true, .. } | Function::Associated(..), _) => Ok(()),
        ExpressionKind::Call(Function::Pure { .. }, _) => Err("a function that may panic"),
        ExpressionKind::Call(Function::Scalar(scalar), _) if scalar.is_total() => Ok(()),
        ExpressionKind::Call(Function::Scalar(_), _) => Err("an expression of SQL"),
        ExpressionKind::Call(Function::Method(name), _) if METHODS.contains(&&**name) => Ok(()),
        ExpressionKind::Call(Function::Method(_), _) => Err("arithmetic"),
    }
}
