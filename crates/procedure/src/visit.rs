//! Visitors of the syntax tree of procedures, for any type of leaf. They return the parts of steps, operations,
//! patterns and expressions in source order.

use crate::ir::{
    BinaryOperator, Block, Callee, Decoded, Expression, ExpressionKind, KeyRange, Notation, Operation, OperationKind,
    Pattern, Selector, Step, StepKind, Target, VariableId,
};

/// Methods that change their receiver.
pub const CHANGING: &[&str] = &["push", "sort", "dedup"];

/// The operation of a step.
pub fn operation<N: Notation>(step: &Step<N>) -> Option<&Operation<N>> {
    match &step.kind {
        StepKind::Operation { operation, .. } | StepKind::ForEach { operation, .. } => Some(operation),
        _ => None,
    }
}

/// The blocks of a step, the body of an update last.
pub fn blocks<N: Notation>(step: &Step<N>) -> Vec<&Block<N>> {
    nested(step).into_iter().chain(change(step).map(|(_, body)| body)).collect()
}

/// The blocks of a step, without the body of an update, which is a part of its operation.
pub fn nested<N: Notation>(step: &Step<N>) -> Vec<&Block<N>> {
    match &step.kind {
        StepKind::LetElse { otherwise, .. } => vec![otherwise],
        StepKind::If { then, otherwise, .. } => vec![then, otherwise],
        StepKind::Match { arms, .. } => arms.iter().map(|arm| &arm.body).collect(),
        StepKind::For { body, .. } | StepKind::ForEach { body, .. } | StepKind::Scope(_, body) => vec![body],
        _ => Vec::new(),
    }
}

/// The row and the body of an update that a step is.
pub fn change<N: Notation>(step: &Step<N>) -> Option<(VariableId, &Block<N>)> {
    match &operation(step)?.kind {
        OperationKind::Update { row, body, .. } => Some((*row, body)),
        _ => None,
    }
}

/// Every step of a block, outer before inner.
pub fn steps<'a, N: Notation>(block: &'a Block<N>, visit: &mut dyn FnMut(&'a Step<N>)) {
    for step in &block.0 {
        visit(step);
        for inner in blocks(step) {
            steps(inner, visit);
        }
    }
}

/// The expressions of a key range.
pub fn range<N: Notation>(range: &KeyRange<N>) -> Vec<&Expression<N>> {
    match range {
        KeyRange::Prefix(prefix) => N::key(prefix).iter().collect(),
        KeyRange::Between { low, high, .. } => low.iter().chain(high).flat_map(N::key).collect(),
        KeyRange::All => Vec::new(),
    }
}

/// The expressions in the key of an operation. An insert's are among its columns.
pub fn key<N: Notation>(operation: &Operation<N>) -> Vec<&Expression<N>> {
    match &operation.kind {
        OperationKind::Get { key, .. } | OperationKind::Update { key, .. } | OperationKind::Delete { key, .. } => {
            N::key(key).iter().collect()
        }
        OperationKind::Insert { .. } => Vec::new(),
        OperationKind::Scan { range: keys, .. } => range(keys),
    }
}

/// The expressions of an operation that are neither in its key nor in an update's body.
pub fn values<N: Notation>(operation: &Operation<N>) -> Vec<&Expression<N>> {
    match &operation.kind {
        OperationKind::Insert { columns } => columns.iter().map(|(_, value)| value).collect(),
        OperationKind::Scan { limit, .. } => limit.iter().collect(),
        _ => Vec::new(),
    }
}

/// The expressions of a step itself, not those of its blocks or its operation.
pub fn own<N: Notation>(step: &Step<N>) -> Vec<&Expression<N>> {
    match &step.kind {
        StepKind::Let { value, .. } | StepKind::LetElse { value, .. } | StepKind::Return(value) => vec![value],
        StepKind::Assign { place, value, .. } => selectors(place).into_iter().chain([value]).collect(),
        StepKind::Abort(value) | StepKind::Yield(value) => vec![value],
        StepKind::If { condition, .. } => vec![condition],
        StepKind::Match { value, arms } => {
            [value].into_iter().chain(arms.iter().filter_map(|arm| arm.guard.as_ref())).collect()
        }
        StepKind::For { over, .. } => vec![over],
        StepKind::Declare(_) | StepKind::Operation { .. } | StepKind::ForEach { .. } => Vec::new(),
        StepKind::Break | StepKind::Continue | StepKind::Scope(..) => Vec::new(),
    }
}

/// The expressions of a step and of its operation, not those of its blocks.
pub fn all_own<N: Notation>(step: &Step<N>) -> Vec<&Expression<N>> {
    let operation =
        operation(step).into_iter().flat_map(|operation| key(operation).into_iter().chain(values(operation)));
    own(step).into_iter().chain(operation).collect()
}

/// The expressions in the target of an assignment.
pub fn selectors<'p, N: Notation>(place: &'p Target<N>) -> Vec<&'p Expression<N>> {
    let index = |selector: &'p Selector<N>| match selector {
        Selector::Index(index) => Some(index),
        Selector::Field(_) => None,
    };
    place.path.iter().filter_map(index).collect()
}

/// The variables that a pattern binds.
pub fn bound<N: Notation>(pattern: &Pattern<N>) -> Vec<VariableId> {
    match pattern {
        Pattern::Bind(variable) => vec![*variable],
        Pattern::Some(inner) => bound(inner),
        Pattern::Tuple(parts) => parts.iter().flat_map(bound).collect(),
        Pattern::Record { fields, .. } => fields.iter().flat_map(|(_, part)| bound(part)).collect(),
        Pattern::Either(alternatives) => {
            let mut all: Vec<VariableId> = alternatives.iter().flat_map(bound).collect();
            all.sort();
            all.dedup();
            all
        }
        Pattern::Any | Pattern::Literal(_) | Pattern::Range { .. } | Pattern::None => Vec::new(),
    }
}

/// Whether there are values that a pattern does not match.
pub fn is_refutable<N: Notation>(pattern: &Pattern<N>) -> bool {
    match pattern {
        Pattern::Any | Pattern::Bind(_) => false,
        Pattern::Tuple(parts) => parts.iter().any(is_refutable),
        _ => true,
    }
}

/// The variables that a step itself declares, binds or assigns, with repetition; not those bound inside its
/// expressions.
pub fn defined<N: Notation>(step: &Step<N>) -> Vec<VariableId> {
    match &step.kind {
        StepKind::Declare(variable) | StepKind::ForEach { row: variable, .. } => vec![*variable],
        StepKind::Let { pattern, .. } | StepKind::LetElse { pattern, .. } | StepKind::For { pattern, .. } => {
            bound(N::pattern(pattern))
        }
        StepKind::Operation { bind, .. } => bind.iter().flat_map(|pattern| bound(N::pattern(pattern))).collect(),
        StepKind::Match { arms, .. } => arms.iter().flat_map(|arm| bound(N::pattern(&arm.pattern))).collect(),
        StepKind::Assign { place, .. } => vec![place.variable],
        _ => Vec::new(),
    }
}

/// The expressions directly in an expression.
pub fn children<N: Notation>(expression: &Expression<N>) -> Vec<&Expression<N>> {
    match &*expression.kind {
        ExpressionKind::Literal(_) | ExpressionKind::Variable(_) | ExpressionKind::None => Vec::new(),
        ExpressionKind::Field(base, _) => vec![base],
        ExpressionKind::Unary(_, inner) | ExpressionKind::Some(inner) | ExpressionKind::Repeat(inner, _) => vec![inner],
        ExpressionKind::Reference(_, inner) | ExpressionKind::Dereference(_, inner) => vec![inner],
        ExpressionKind::Element(left, right) | ExpressionKind::Binary(_, left, right) => vec![left, right],
        ExpressionKind::Call(_, parts) | ExpressionKind::Tuple(parts) | ExpressionKind::List(parts) => {
            parts.iter().collect()
        }
        ExpressionKind::Record(_, fields) => fields.iter().map(|(_, value)| value).collect(),
        ExpressionKind::If(condition, then, otherwise) => vec![condition, then, otherwise],
        ExpressionKind::Match(value, arms) => {
            let arms = arms.iter().flat_map(|(_, guard, result)| guard.iter().chain([result]));
            [value].into_iter().chain(arms).collect()
        }
        ExpressionKind::Block(bindings, result) => bindings.iter().map(|(_, value)| value).chain([result]).collect(),
        ExpressionKind::Range { low, high, .. } => vec![low, high],
    }
}

/// Patterns in an expression with the values that they match.
pub fn bindings<N: Notation>(expression: &Expression<N>) -> Vec<(&Pattern<N>, &Expression<N>)> {
    match &*expression.kind {
        ExpressionKind::Match(value, arms) => arms.iter().map(|(pattern, ..)| (N::pattern(pattern), value)).collect(),
        ExpressionKind::Block(bindings, _) => {
            bindings.iter().map(|(pattern, value)| (N::pattern(pattern), value)).collect()
        }
        _ => Vec::new(),
    }
}

/// Every expression in an expression, itself first.
pub fn expressions<'a, N: Notation>(expression: &'a Expression<N>, visit: &mut dyn FnMut(&'a Expression<N>)) {
    visit(expression);
    for child in children(expression) {
        expressions(child, visit);
    }
}

/// The variable that a method changes.
pub fn changed<N: Notation>(expression: &Expression<N>) -> Option<VariableId> {
    match &*expression.kind {
        ExpressionKind::Call(function, parts) => match N::callee(function) {
            Callee::Method(name) if CHANGING.contains(&name) => root(parts.first()?),
            _ => None,
        },
        _ => None,
    }
}

/// The variable that an expression is a part of.
pub fn root<N: Notation>(expression: &Expression<N>) -> Option<VariableId> {
    match &*expression.kind {
        ExpressionKind::Variable(variable) => Some(*variable),
        ExpressionKind::Field(base, _) | ExpressionKind::Element(base, _) => root(base),
        _ => None,
    }
}

/// `row.column += by`, `row.column -= by`, or the same written out.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a, N: Notation = Decoded> {
    /// The amount.
    pub by: &'a Expression<N>,
    /// Whether the amount is subtracted.
    pub negative: bool,
}

/// The addition in an assignment of a column. `column = column + by` is one if `by` does not use the column.
pub fn delta<'a, N: Notation>(place: &Target<N>, step: &'a Step<N>) -> Option<Delta<'a, N>> {
    let StepKind::Assign { operator, value, .. } = &step.kind else { return None };
    let [Selector::Field(column)] = &place.path[..] else { return None };
    let own = |part: &Expression<N>| match &*part.kind {
        ExpressionKind::Field(base, name) => {
            name == column && matches!(&*base.kind, ExpressionKind::Variable(variable) if *variable == place.variable)
        }
        _ => false,
    };
    match operator {
        Some(BinaryOperator::Add) => Some(Delta { by: value, negative: false }),
        Some(BinaryOperator::Subtract) => Some(Delta { by: value, negative: true }),
        Some(_) => None,
        None => match &*value.kind {
            ExpressionKind::Binary(BinaryOperator::Add, left, right) if own(left) => {
                Some(Delta { by: right, negative: false })
            }
            ExpressionKind::Binary(BinaryOperator::Add, left, right) if own(right) => {
                Some(Delta { by: left, negative: false })
            }
            ExpressionKind::Binary(BinaryOperator::Subtract, left, right) if own(left) => {
                Some(Delta { by: right, negative: true })
            }
            _ => None,
        },
    }
}
