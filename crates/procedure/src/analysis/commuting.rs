//! Sums to which a set of procedures only adds. Additions to them may be published apart from the rest of
//! their execution (DBX-TC §3.1), since they have no C-edge and no failure of their own.
//!
//! No operation of the set reads or replaces such a column, and all operations that add to it are *lone
//! additions*. A lone addition changes a row's own columns, in a table whose keys never change, and moves no
//! index entry. It uses nothing else that the set changes, and adds to each sum once. The engine ensures that
//! the row exists and that the sum stays in range.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::{Access, Columns, Existence, Failure, FailureKind, Plan};

/// The columns of a table that a set of procedures treats as sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Columns that operations only add to, each by lone additions.
    pub sums: Columns,
    /// Columns that some operation replaces or adds to.
    pub changed: Columns,
}

/// The agreement for each table to which the set adds, by the table's name. Procedures that run on snapshots
/// are not among `plans`.
pub fn agreements<'p>(plans: impl IntoIterator<Item = &'p Plan>) -> BTreeMap<Arc<str>, Agreement> {
    let plans: Vec<&Plan> = plans.into_iter().collect();
    let changes = changes(&plans);
    let agreement = |of: &Changes| {
        let used = |column: &_| !of.used.contains(*column);
        Agreement { sums: of.added.iter().filter(used).collect(), changed: of.changed.clone() }
    };
    let mut found: BTreeMap<Arc<str>, Agreement> =
        changes.iter().map(|(table, of)| (table.clone(), agreement(of))).collect();
    // An operation that is no lone addition disqualifies its other sums too.
    loop {
        let mut out = Vec::new();
        for (plan, at) in operations(&plans) {
            let Some(own) = addition(plan, at) else { continue };
            let table = &plan.tables[own.table].name;
            let sums = &found[table].sums;
            let is_lone = own.commutes.iter().all(|column| sums.contains(column));
            if !is_lone || changes[table].unlike_a_lone_addition(plan, at).is_some() {
                out.extend(own.commutes.intersection(sums).iter().map(|column| (table.clone(), column)));
            }
        }
        if out.is_empty() {
            break;
        }
        for (table, column) in out {
            found.get_mut(&table).map(|agreement| agreement.sums.remove(column));
        }
    }
    found.retain(|_, agreement| !agreement.sums.is_empty());
    found
}

/// The effects of a set on a table, without its indexes.
#[derive(Default)]
pub(super) struct Changes {
    /// Columns that operations add to.
    added: Columns,
    /// Columns that they read or replace.
    used: Columns,
    /// Columns that they replace or add to.
    pub(super) changed: Columns,
    /// Whether rows are inserted or deleted.
    keys: bool,
}

/// The effects of a set, by the table's name.
pub(super) fn changes(plans: &[&Plan]) -> BTreeMap<Arc<str>, Changes> {
    let mut found: BTreeMap<Arc<str>, Changes> = BTreeMap::new();
    for (plan, at) in operations(plans) {
        for access in &plan.operations[at].accesses {
            if access.index.is_some() {
                continue;
            }
            let of = found.entry(plan.tables[access.table].name.clone()).or_default();
            of.added.extend(&access.commutes);
            of.used.extend(&access.reads);
            of.used.extend(&access.writes);
            of.changed.extend(&access.commutes);
            of.changed.extend(&access.writes);
            of.keys |= access.existence == Existence::Writes;
        }
    }
    found
}

impl Changes {
    /// Why an operation that adds to columns of the table is no lone addition, regardless of other uses of its
    /// sums.
    pub(super) fn unlike_a_lone_addition(&self, plan: &Plan, operation: usize) -> Option<&'static str> {
        let accesses = &plan.operations[operation].accesses;
        let own = accesses.first()?;
        if !own.writes.is_empty() {
            return Some("it does not only add to columns");
        }
        if accesses.len() > 1 {
            return Some("its row moves in an index, or is found by one");
        }
        if self.keys {
            return Some("keys of its table change");
        }
        if !own.reads.intersection(&self.changed).is_empty() {
            return Some("it uses what others change");
        }
        (!adds_once(plan, operation)).then_some("it adds to a sum more than once")
    }
}

fn operations<'p>(plans: &[&'p Plan]) -> impl Iterator<Item = (&'p Plan, usize)> {
    plans.iter().flat_map(|plan| (0..plan.operations.len()).map(move |at| (*plan, at)))
}

/// The effect of an operation on its table, if it adds to columns.
pub(super) fn addition(plan: &Plan, operation: usize) -> Option<&Access> {
    plan.operations[operation].accesses.first().filter(|own| !own.commutes.is_empty())
}

/// Whether an operation adds to each of its sums once: each of several additions has to keep the sum in range,
/// not just the last.
pub fn adds_once(plan: &Plan, operation: usize) -> bool {
    let of = &plan.operations[operation];
    let adds =
        |failure: &&Failure| failure.operation == Some(operation) && failure.kind == FailureKind::CommutativeOverflow;
    let additions: Vec<&Failure> = plan.failures.iter().filter(adds).collect();
    let sums = of.accesses.first().map_or(0, |own| own.commutes.iter().count());
    additions.len() == sums && additions.iter().all(|failure| failure.loops == of.loops)
}
