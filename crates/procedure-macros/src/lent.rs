//! Which values may hold references to what a pass computed: they end with the pass, so they are not kept for later ones.
//!
//! What an operation reads is kept column by column, owned. The value of an update's closure is kept as it is; if it may hold
//! such a reference, the procedure runs whole only. References into arguments are no matter: arguments outlive all passes.
//!
//! Types are not known here, so this errs on the side of a reference: a column of a row may be text, a `#[pure]` function
//! may give back what it was lent. Columns of the row that an update changes are never lent beyond it.

use std::collections::BTreeSet;

use crate::lists;
use crate::tree::{Expression, ExpressionKind, OperationKind, Passing, Pattern, Procedure, StepKind, VariableId};
use crate::walk;

/// The first update whose value may not be kept: its number.
pub(crate) fn update(procedure: &Procedure) -> Option<usize> {
    let lent = Lent::of(procedure);
    let mut found = None;
    walk::steps(&procedure.body, &mut |step| {
        let StepKind::Operation { operation, bind: Some(_) } = &step.kind else { return };
        let OperationKind::Update { body, .. } = &operation.kind else { return };
        if let Some(StepKind::Yield(value)) = body.0.last().map(|last| &last.kind)
            && lent.may_be(value)
        {
            found.get_or_insert(operation.id);
        }
    });
    found
}

#[derive(Default)]
struct Lent {
    /// Variables that may hold a reference to what a pass computed.
    variables: BTreeSet<VariableId>,
    /// Parameters that are references.
    arguments: BTreeSet<VariableId>,
    /// Rows that updates change.
    changed: BTreeSet<VariableId>,
}

impl Lent {
    fn of(procedure: &Procedure) -> Lent {
        let by_reference = procedure.parameters.iter().filter(|at| !matches!(at.passing, Passing::Value(_)));
        let mut lent = Lent { arguments: by_reference.map(|at| at.variable).collect(), ..Lent::default() };
        walk::steps(&procedure.body, &mut |step| {
            if let Some(OperationKind::Update { row, .. }) = walk::operation(step).map(|operation| &operation.kind) {
                lent.changed.insert(*row);
            }
        });
        loop {
            let before = lent.variables.len();
            walk::steps(&procedure.body, &mut |step| match &step.kind {
                StepKind::Let { pattern, value, .. }
                | StepKind::LetElse { pattern, value, .. }
                | StepKind::For { pattern, over: value, .. } => lent.bind(pattern, value),
                StepKind::Match { value, arms } => arms.iter().for_each(|arm| lent.bind(&arm.pattern, value)),
                StepKind::Assign { place, value, .. } if lent.may_be(value) => {
                    lent.variables.insert(place.variable);
                }
                StepKind::Change { place, arguments, .. } if arguments.iter().any(|value| lent.may_be(value)) => {
                    lent.variables.insert(place.variable);
                }
                _ => {}
            });
            walk::all_expressions(&procedure.body, &mut |expression| match &*expression.kind {
                ExpressionKind::Match(value, arms) => {
                    arms.iter().for_each(|(pattern, ..)| lent.bind(pattern, value));
                }
                ExpressionKind::Block(bindings, _) => {
                    bindings.iter().for_each(|(pattern, _, value)| lent.bind(pattern, value));
                }
                _ => {}
            });
            if lent.variables.len() == before {
                return lent;
            }
        }
    }

    fn bind(&mut self, pattern: &Pattern, value: &Expression) {
        if self.may_be(value) {
            pattern.binds(&mut |variable| {
                self.variables.insert(variable);
            });
        }
    }

    /// Whether a value may hold a reference to what a pass computed.
    fn may_be(&self, value: &Expression) -> bool {
        let any = |values: &[Expression]| values.iter().any(|value| self.may_be(value));
        match &*value.kind {
            ExpressionKind::Variable(variable, _) => self.variables.contains(variable),
            ExpressionKind::Reference(inner) => self.is_local(inner) || self.may_be(inner),
            ExpressionKind::Column(row, _) => {
                !matches!(&*row.kind, ExpressionKind::Variable(row, _) if self.changed.contains(row))
            }
            ExpressionKind::Field(inner, _) | ExpressionKind::Element(inner, _) | ExpressionKind::Some(inner) => {
                self.may_be(inner)
            }
            ExpressionKind::Repeat { element, .. } => self.may_be(element),
            ExpressionKind::Pure(_, values)
            | ExpressionKind::Tuple(values)
            | ExpressionKind::List { elements: values, .. } => any(values),
            ExpressionKind::Record { fields, .. } => fields.iter().any(|(_, value)| self.may_be(value)),
            ExpressionKind::Method { receiver, method, arguments } => match crate::name_of(method).as_str() {
                "is_some" | "is_none" | "is_empty" | "len" | "contains" | "starts_with" | "units" | "abs"
                | "to_owned" => false,
                "clone" => self.may_be(receiver),
                name => {
                    let lends = lists::method(name).is_some_and(|method| method.lends);
                    lends && self.is_local(receiver) || self.may_be(receiver) || any(arguments)
                }
            },
            ExpressionKind::If(_, then, otherwise) => self.may_be(then) || self.may_be(otherwise),
            ExpressionKind::Match(_, arms) => arms.iter().any(|(.., value)| self.may_be(value)),
            ExpressionKind::Block(_, value) => self.may_be(value),
            // Values of their own; what is behind a reference is taken only if it is copied.
            ExpressionKind::Literal { .. }
            | ExpressionKind::Constant(_)
            | ExpressionKind::None
            | ExpressionKind::Not(_)
            | ExpressionKind::Negate(_)
            | ExpressionKind::Binary(..)
            | ExpressionKind::Range { .. }
            | ExpressionKind::Dereference(_)
            | ExpressionKind::Associated { .. } => false,
        }
    }

    /// Whether a reference to this is one to what a pass computed.
    fn is_local(&self, place: &Expression) -> bool {
        match &*place.kind {
            ExpressionKind::Variable(variable, _) => !self.arguments.contains(variable),
            ExpressionKind::Field(base, _) | ExpressionKind::Element(base, _) | ExpressionKind::Dereference(base) => {
                self.is_local(base)
            }
            ExpressionKind::Method { receiver, .. } => self.is_local(receiver),
            ExpressionKind::Constant(_) | ExpressionKind::Literal { .. } => false,
            _ => true,
        }
    }
}
