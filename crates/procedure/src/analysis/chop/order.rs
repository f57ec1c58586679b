//! Which operations of one procedure must stay in which order.
//!
//! An operation comes after those whose results it needs. Conflicting accesses of one procedure keep the order of the
//! text, so that a transaction sees its own writes. In a loop around both, that order goes both ways: the second of one
//! iteration precedes the first of the next. Splitting a loop over pieces (loop fission) is legal where no order goes
//! back, so operations with both orders must be one piece.

use std::collections::BTreeSet;

use crate::plan::{MergeReason, Plan};

use super::conflicts;

/// The order of a procedure's operations: (earlier, later).
pub(super) fn order(plan: &Plan, reorder: bool, commute: bool) -> BTreeSet<(usize, usize)> {
    let mut found = match reorder {
        true => own(plan, |left, right| !conflicts::grounds((plan, left), (plan, right), commute).is_empty()),
        false => own(plan, |_, _| true),
    };
    for (id, operation) in plan.operations.iter().enumerate() {
        found.extend(operation.from().into_iter().filter(|from| *from != id).map(|from| (from, id)));
    }
    found
}

/// The order of operations that conflict with each other in one execution: (earlier, later).
pub(in super::super) fn own_order(plan: &Plan, commute: bool) -> BTreeSet<(usize, usize)> {
    own(plan, |left, right| !conflicts::grounds((plan, left), (plan, right), commute).is_empty())
}

/// The order of the text for the operations to which it applies.
fn own(plan: &Plan, applies: impl Fn(usize, usize) -> bool) -> BTreeSet<(usize, usize)> {
    let mut found = BTreeSet::new();
    for (id, operation) in plan.operations.iter().enumerate() {
        for later in (id + 1..plan.operations.len()).filter(|later| applies(id, *later)) {
            found.insert((id, later));
            if operation.loops.iter().any(|around| plan.operations[later].loops.contains(around)) {
                found.insert((later, id));
            }
        }
    }
    found
}

/// Why each of two operations comes after the other.
pub(super) fn reason(plan: &Plan, left: usize, right: usize, reorder: bool) -> MergeReason {
    if !reorder {
        return MergeReason::Order;
    }
    let needs = |later: usize, earlier: usize| {
        let operation = &plan.operations[later];
        let kinds =
            [("key", &operation.key_from), ("values", &operation.value_from), ("control", &operation.control_from)];
        kinds.into_iter().find(|(_, from)| from.contains(&earlier)).map(|(kind, _)| kind)
    };
    let (first, second) = (left.min(right), left.max(right));
    let back = match needs(first, second) {
        Some(kind) => format!("the {kind} of #{first} from #{second} of the iteration before"),
        None => format!("the order of #{first} and #{second}, which meet in one table, into the next iteration"),
    };
    MergeReason::Loop(back)
}

/// The pieces that must be merged because each comes after the other: a new label for each operation, the
/// smallest of its piece.
pub(super) fn condense(labels: &[usize], order: &BTreeSet<(usize, usize)>) -> Vec<usize> {
    let reach = reach(labels, order);
    (0..labels.len())
        .map(|at| {
            let mine = labels[at];
            let one = |other: usize| other == mine || reach[mine][other] && reach[other][mine];
            labels.iter().copied().filter(|other| one(*other)).min().unwrap_or(mine)
        })
        .collect()
}

/// Whether the piece of the first label must precede that of the second, directly or not.
pub(super) fn reach(labels: &[usize], order: &BTreeSet<(usize, usize)>) -> Vec<Vec<bool>> {
    let count = labels.len();
    let mut reach = vec![vec![false; count]; count];
    for (earlier, later) in order {
        reach[labels[*earlier]][labels[*later]] = true;
    }
    close(&mut reach);
    reach
}

/// Makes a relation transitive.
pub(super) fn close(relation: &mut [Vec<bool>]) {
    for middle in 0..relation.len() {
        let further = relation[middle].clone();
        for row in relation.iter_mut().filter(|row| row[middle]) {
            row.iter_mut().zip(&further).for_each(|(related, more)| *related |= more);
        }
    }
}
