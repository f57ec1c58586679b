//! Walking the intermediate representation: the parts of steps, operations, patterns and expressions, each in source order.

use crate::ir::{
    BinaryOperator, Block, Expression, ExpressionKind, Function, KeyRange, Operation, OperationKind, Pattern, Place,
    Selector, Step, StepKind, VariableId,
};

/// Methods that change their receiver.
pub(super) const CHANGING: &[&str] = &["push", "sort", "dedup"];

/// The operation of a step.
pub(super) fn operation(step: &Step) -> Option<&Operation> {
    match &step.kind {
        StepKind::Operation { operation, .. } | StepKind::ForEach { operation, .. } => Some(operation),
        _ => None,
    }
}

/// The blocks of a step, the body of an update last.
pub(super) fn blocks(step: &Step) -> Vec<&Block> {
    let mut blocks: Vec<&Block> = match &step.kind {
        StepKind::LetElse { otherwise, .. } => vec![otherwise],
        StepKind::If { then, otherwise, .. } => vec![then, otherwise],
        StepKind::Match { arms, .. } => arms.iter().map(|arm| &arm.body).collect(),
        StepKind::For { body, .. } | StepKind::ForEach { body, .. } => vec![body],
        _ => Vec::new(),
    };
    if let Some(Operation { kind: OperationKind::Update { body, .. }, .. }) = operation(step) {
        blocks.push(body);
    }
    blocks
}

/// Every step of a block, outer before inner.
pub(super) fn steps<'a>(block: &'a Block, visit: &mut dyn FnMut(&'a Step)) {
    for step in &block.0 {
        visit(step);
        for inner in blocks(step) {
            steps(inner, visit);
        }
    }
}

/// The expressions of a key range.
pub(super) fn range(range: &KeyRange) -> Vec<&Expression> {
    match range {
        KeyRange::Prefix(prefix) => prefix.iter().collect(),
        KeyRange::Between { low, high, .. } => low.iter().chain(high).flatten().collect(),
    }
}

/// The expressions in the key of an operation. An insert's are among its columns.
pub(super) fn key(operation: &Operation) -> Vec<&Expression> {
    match &operation.kind {
        OperationKind::Get { key, .. } | OperationKind::Update { key, .. } | OperationKind::Delete { key, .. } => {
            key.iter().collect()
        }
        OperationKind::Insert { .. } => Vec::new(),
        OperationKind::Scan { range: keys, .. } => range(keys),
    }
}

/// The expressions of an operation that are neither in its key nor in an update's body.
pub(super) fn values(operation: &Operation) -> Vec<&Expression> {
    match &operation.kind {
        OperationKind::Insert { columns } => columns.iter().map(|(_, value)| value).collect(),
        OperationKind::Scan { limit, .. } => limit.iter().collect(),
        _ => Vec::new(),
    }
}

/// The expressions of a step itself, not those of its blocks or its operation.
pub(super) fn own(step: &Step) -> Vec<&Expression> {
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
        StepKind::Break | StepKind::Continue => Vec::new(),
    }
}

/// The expressions in a place.
pub(super) fn selectors<'p>(place: &'p Place) -> Vec<&'p Expression> {
    let index = |selector: &'p Selector| match selector {
        Selector::Index(index) => Some(index),
        Selector::Field(_) => None,
    };
    place.path.iter().filter_map(index).collect()
}

/// The variables that a pattern binds.
pub(super) fn bound(pattern: &Pattern) -> Vec<VariableId> {
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

/// The variables that a step itself declares, binds or assigns, with repetition; not those bound inside its expressions.
pub(super) fn defined(step: &Step) -> Vec<VariableId> {
    match &step.kind {
        StepKind::Declare(variable) | StepKind::ForEach { row: variable, .. } => vec![*variable],
        StepKind::Let { pattern, .. } | StepKind::LetElse { pattern, .. } | StepKind::For { pattern, .. } => {
            bound(pattern)
        }
        StepKind::Operation { bind, .. } => bind.as_ref().map(bound).unwrap_or_default(),
        StepKind::Match { arms, .. } => arms.iter().flat_map(|arm| bound(&arm.pattern)).collect(),
        StepKind::Assign { place, .. } => vec![place.variable],
        _ => Vec::new(),
    }
}

/// The expressions directly in an expression.
pub(super) fn children(expression: &Expression) -> Vec<&Expression> {
    match &*expression.kind {
        ExpressionKind::Literal(_) | ExpressionKind::Variable(_) | ExpressionKind::None => Vec::new(),
        ExpressionKind::Field(base, _) => vec![base],
        ExpressionKind::Unary(_, inner) | ExpressionKind::Some(inner) | ExpressionKind::Repeat(inner, _) => vec![inner],
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

/// Patterns in an expression with what they are matched with.
pub(super) fn bindings(expression: &Expression) -> Vec<(&Pattern, &Expression)> {
    match &*expression.kind {
        ExpressionKind::Match(value, arms) => arms.iter().map(|(pattern, ..)| (pattern, value)).collect(),
        ExpressionKind::Block(bindings, _) => bindings.iter().map(|(pattern, value)| (pattern, value)).collect(),
        _ => Vec::new(),
    }
}

/// Every expression in an expression, itself first.
pub(super) fn expressions<'a>(expression: &'a Expression, visit: &mut dyn FnMut(&'a Expression)) {
    visit(expression);
    for child in children(expression) {
        expressions(child, visit);
    }
}

/// The variable that a method changes.
pub(super) fn changed(expression: &Expression) -> Option<VariableId> {
    match &*expression.kind {
        ExpressionKind::Call(Function::Method(name), parts) if CHANGING.contains(&&**name) => root(parts.first()?),
        _ => None,
    }
}

/// The variable that an expression is a part of.
pub(super) fn root(expression: &Expression) -> Option<VariableId> {
    match &*expression.kind {
        ExpressionKind::Variable(variable) => Some(*variable),
        ExpressionKind::Field(base, _) | ExpressionKind::Element(base, _) => root(base),
        _ => None,
    }
}

/// `row.column += by`, `row.column -= by`, or the same written out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delta<'a> {
    /// What is added.
    pub(super) by: &'a Expression,
    /// Whether it is subtracted.
    pub(super) negative: bool,
}

/// The addition that an assignment of a column is. `column = column + by` is one if `by` does not use the column.
pub(super) fn delta<'a>(place: &Place, step: &'a Step) -> Option<Delta<'a>> {
    let StepKind::Assign { operator, value, .. } = &step.kind else { return None };
    let [Selector::Field(column)] = &place.path[..] else { return None };
    let own = |part: &Expression| match &*part.kind {
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
