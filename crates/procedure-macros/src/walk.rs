//! Walking the tree: steps and expressions, each in source order.

use crate::tree::{Block, Expression, ExpressionKind, KeyRange, Operation, OperationKind, Selector, Step, StepKind};

/// The operation that a step is.
pub(crate) fn operation(step: &Step) -> Option<&Operation> {
    match &step.kind {
        StepKind::Operation { operation, .. } | StepKind::ForEach { operation, .. } => Some(operation),
        _ => None,
    }
}

/// The blocks of a step. That of an update is a part of its operation and is not among them.
pub(crate) fn blocks(step: &Step) -> Vec<&Block> {
    match &step.kind {
        StepKind::LetElse { otherwise, .. } => vec![otherwise],
        StepKind::If { then, otherwise, .. } => vec![then, otherwise],
        StepKind::Match { arms, .. } => arms.iter().map(|arm| &arm.body).collect(),
        StepKind::For { body, .. } | StepKind::ForEach { body, .. } | StepKind::Scope(body) => vec![body],
        _ => Vec::new(),
    }
}

/// The body of a step's update.
pub(crate) fn change(step: &Step) -> Option<&Block> {
    match &operation(step)?.kind {
        OperationKind::Update { body, .. } => Some(body),
        _ => None,
    }
}

/// Every step of a block, outer before inner, also those of updates.
pub(crate) fn steps<'t>(block: &'t Block, visit: &mut dyn FnMut(&'t Step)) {
    for step in &block.0 {
        visit(step);
        blocks(step).into_iter().chain(change(step)).for_each(|inner| steps(inner, visit));
    }
}

/// The expressions of a step itself and of its operation, without those in its blocks.
pub(crate) fn own(step: &Step) -> Vec<&Expression> {
    match &step.kind {
        StepKind::Let { value, .. } | StepKind::LetElse { value, .. } => vec![value],
        StepKind::Return(value) | StepKind::Abort(value) | StepKind::Yield(value) => vec![value],
        StepKind::Assign { place, value, .. } => indexes(&place.path).chain([value]).collect(),
        StepKind::Change { place, arguments, .. } => indexes(&place.path).chain(arguments).collect(),
        StepKind::If { condition, .. } => vec![condition],
        StepKind::Match { value, arms } => [value].into_iter().chain(arms.iter().flat_map(|arm| &arm.guard)).collect(),
        StepKind::For { over, .. } => vec![over],
        StepKind::Operation { operation, .. } | StepKind::ForEach { operation, .. } => match &operation.kind {
            OperationKind::Get { key, .. } | OperationKind::Update { key, .. } | OperationKind::Delete { key, .. } => {
                vec![key]
            }
            OperationKind::Insert { columns } => columns.iter().map(|(_, value)| value).collect(),
            OperationKind::Scan { range, limit, .. } => match range {
                KeyRange::Prefix(prefix) => [prefix].into_iter().chain(limit).collect(),
                KeyRange::Between { low, high, .. } => low.iter().chain(high).chain(limit).collect(),
            },
        },
        StepKind::Declare(..) | StepKind::Scope(_) | StepKind::Break | StepKind::Continue => Vec::new(),
    }
}

fn indexes(path: &[Selector]) -> impl Iterator<Item = &Expression> {
    path.iter().filter_map(|selector| match selector {
        Selector::Index(index) => Some(index),
        Selector::Field(_) | Selector::Column(_) => None,
    })
}

/// The expressions directly in an expression.
fn children(expression: &Expression) -> Vec<&Expression> {
    match &*expression.kind {
        ExpressionKind::Literal { .. }
        | ExpressionKind::Constant(_)
        | ExpressionKind::Variable(..)
        | ExpressionKind::None => Vec::new(),
        ExpressionKind::Field(inner, _)
        | ExpressionKind::Column(inner, _)
        | ExpressionKind::Not(inner)
        | ExpressionKind::Negate(inner)
        | ExpressionKind::Reference(inner)
        | ExpressionKind::Dereference(inner)
        | ExpressionKind::Some(inner)
        | ExpressionKind::Repeat { element: inner, .. } => vec![inner],
        ExpressionKind::Element(left, right)
        | ExpressionKind::Binary(_, left, right)
        | ExpressionKind::Range { low: left, high: right, .. } => vec![left, right],
        ExpressionKind::Pure(_, inner)
        | ExpressionKind::Associated { arguments: inner, .. }
        | ExpressionKind::Tuple(inner)
        | ExpressionKind::List { elements: inner, .. } => inner.iter().collect(),
        ExpressionKind::Method { receiver, arguments, .. } => [receiver].into_iter().chain(arguments).collect(),
        ExpressionKind::Record { fields, .. } => fields.iter().map(|(_, value)| value).collect(),
        ExpressionKind::If(condition, then, otherwise) => vec![condition, then, otherwise],
        ExpressionKind::Match(value, arms) => {
            let arms = arms.iter().flat_map(|(_, guard, value)| guard.iter().chain([value]));
            [value].into_iter().chain(arms).collect()
        }
        ExpressionKind::Block(bindings, value) => bindings.iter().map(|(.., value)| value).chain([value]).collect(),
    }
}

/// Every expression in an expression, itself first.
pub(crate) fn expressions<'t>(expression: &'t Expression, visit: &mut dyn FnMut(&'t Expression)) {
    visit(expression);
    children(expression).into_iter().for_each(|inner| expressions(inner, visit));
}

/// Every expression of a block.
pub(crate) fn all_expressions<'t>(block: &'t Block, visit: &mut dyn FnMut(&'t Expression)) {
    steps(block, &mut |step| own(step).into_iter().for_each(|own| expressions(own, visit)));
}
