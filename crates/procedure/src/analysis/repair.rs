//! Which runs of operations run again in a repair: for each operation, which others follow it and how (HTCC
//! §4.3, Figure 9, by iterations).
//!
//! A repair keeps the results of all other runs, and computes everything between operations anew. When a run
//! is repeated, these runs must be repeated too:
//!
//! - those that need its result, as key, value or control;
//! - those that may have seen its write, or the table without it;
//! - those whose write it would see now, although they come after it.
//!
//! Runs of an operation in a loop are numbered in the order in which the operation is reached. The numbers
//! stay the same as long as no operation that decides about the loop runs again.
//!
//! Two operations in one loop that are reached in each of its iterations have the same numbers. One follows
//! the other by iterations if its inputs come from within the iteration. These are variables that are declared
//! in the loop, or not assigned there. They must not come, through a loop around it, from an earlier run of
//! that loop.
//!
//! Operations on one table follow each other whatever rows they touch, with one exception. If each finds one row by a
//! primary key that depends on no operation's result, they follow only if they touched the same record.

use std::collections::BTreeSet;

use crate::ir::VariableId;
use crate::plan::{Kind, Operation, Plan};

use super::steps::Steps;

/// How the runs of an operation follow repeated runs of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Follow {
    /// Those that touched a record that the repeated run touched.
    Touching,
    /// Those of the same iterations.
    Iteration,
    /// All of them.
    All,
}

impl Steps {
    /// For each operation, those that follow it; itself among them if its runs follow each other. `has_runs`
    /// tells for a table of the plan whether its records hold runs of rows.
    pub fn followers(&self, plan: &Plan, has_runs: impl Fn(usize) -> bool) -> Vec<Vec<(usize, Follow)>> {
        let all = 0..plan.operations.len();
        let of = |first: usize| {
            let by_result = |then: usize| self.by_result(plan, first, then).map(|follow| (then, follow));
            let by_table = |then: usize| by_table(plan, first, then, &has_runs).map(|follow| (then, follow));
            all.clone().flat_map(|then| by_result(then).into_iter().chain(by_table(then))).collect()
        };
        all.clone().map(of).collect()
    }

    /// How one operation follows another whose result it needs.
    fn by_result(&self, plan: &Plan, first: usize, then: usize) -> Option<Follow> {
        let [one, other] = [first, then].map(|id| &plan.operations[id]);
        // All rows of all runs of a scan are one list of results.
        if first == then && one.kind == Kind::Scan {
            return Some(Follow::All);
        }
        if !other.from().contains(&first) {
            return None;
        }
        let is_reached = |operation: &Operation| !operation.conditional && operation.kind != Kind::Scan;
        let together = one.loops == other.loops && is_reached(one) && is_reached(other);
        let by_iteration = first != then && together && !other.control_from.contains(&first);
        let around = other.loops.last().filter(|_| by_iteration);
        let local = around.is_some_and(|around| self.is_local(first, then, plan.loops[*around].step));
        Some(if local { Follow::Iteration } else { Follow::All })
    }

    /// Whether all inputs of an operation are from the current iteration of the loop around it. They must not
    /// be from an earlier iteration, nor from `first` in an earlier run of that loop.
    fn is_local(&self, first: usize, operation: usize, around: usize) -> bool {
        let Some(place) = self.places.iter().find(|place| place.operation == Some(operation)) else { return false };
        let mut used: Vec<VariableId> = place.reads.iter().copied().collect();
        let mut known: BTreeSet<VariableId> = used.iter().copied().collect();
        while let Some(variable) = used.pop() {
            let assigned = || self.places.iter().filter(|place| place.changes.contains(&variable));
            let (inside, outside): (Vec<_>, Vec<_>) =
                assigned().filter(|place| place.step != around).partition(|place| place.loops.contains(&around));
            match (inside.is_empty(), outside.is_empty()) {
                // A result from outside the loop comes through a loop around both.
                (true, _) if outside.iter().any(|place| place.needs.contains(&first)) => return false,
                (true, _) => {}
                (false, false) => return false,
                (false, true) => {
                    let more = inside.iter().flat_map(|place| &place.reads).filter(|read| known.insert(**read));
                    used.extend(more.copied());
                }
            }
        }
        true
    }
}

/// How one operation follows another on the same table, which one of them changes.
fn by_table(plan: &Plan, first: usize, then: usize, has_runs: &impl Fn(usize) -> bool) -> Option<Follow> {
    let [one, other] = [first, then].map(|id| &plan.operations[id]);
    // A scan runs as long as its loop does.
    let heads = |at: &usize| plan.loops[*at].scan == Some(then);
    let in_loop = one.loops.iter().any(|at| other.loops.contains(at) || heads(at));
    if one.table != other.table || !(one.changes() || other.changes()) || !(then > first || in_loop) {
        return None;
    }
    let is_by_record = |operation: &Operation| {
        let is_one = operation.kind != Kind::Scan && operation.index.is_none() && operation.accesses.len() == 1;
        is_one && operation.is_key_invariant() && !has_runs(operation.table)
    };
    Some(if is_by_record(one) && is_by_record(other) { Follow::Touching } else { Follow::All })
}
