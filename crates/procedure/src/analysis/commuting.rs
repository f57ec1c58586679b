//! Sums that a set of procedures only adds to: what an operation adds to them may be published apart from the rest of its execution
//! (DBX-TC §3.1), since it has no C-edge and no failure of its own.
//!
//! Such a column is read and replaced by no operation of the set, and all operations that add to it are *lone additions*: of a row's own
//! columns, in a table whose keys nobody changes, with no index to follow, and using nothing else that the set changes, and each once. Whether there
//! is a row and whether the sum stays in range is for the engine to see to.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::{Access, Columns, Existence, Failure, FailureKind, Plan};

/// What a set of procedures leaves alone in a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Columns that operations only add to, each by lone additions.
    pub sums: Columns,
    /// Columns that some operation replaces or adds to.
    pub changed: Columns,
}

/// What the set leaves alone, by the table's name, of tables that it adds to. Those that run on snapshots are not among `plans`.
pub fn agreements<'p>(plans: impl IntoIterator<Item = &'p Plan>) -> BTreeMap<Arc<str>, Agreement> {
    let plans: Vec<&Plan> = plans.into_iter().collect();
    let operations = || plans.iter().flat_map(|plan| (0..plan.operations.len()).map(move |at| (*plan, at)));
    let mut found: BTreeMap<Arc<str>, Agreement> = BTreeMap::new();
    let (mut used, mut grown) = (BTreeMap::<Arc<str>, Columns>::new(), Vec::new());
    let accesses = |(plan, at): (&'p Plan, usize)| plan.operations[at].accesses.iter().map(move |of| (plan, of));
    for (plan, access) in operations().flat_map(accesses) {
        let table = &plan.tables[access.table].name;
        if access.index.is_some() {
            continue;
        }
        if access.existence == Existence::Writes {
            grown.push(table.clone());
        }
        let agreement = found.entry(table.clone()).or_default();
        agreement.sums.extend(&access.commutes);
        agreement.changed.extend(&access.commutes);
        agreement.changed.extend(&access.writes);
        let used = used.entry(table.clone()).or_default();
        used.extend(&access.reads);
        used.extend(&access.writes);
    }
    for (table, agreement) in &mut found {
        let out = match grown.contains(table) {
            true => agreement.sums.clone(),
            false => used.get(table).map_or_else(Columns::new, |used| agreement.sums.intersection(used)),
        };
        out.iter().for_each(|column| _ = agreement.sums.remove(column));
    }
    // An operation that is no lone addition takes its other sums with it.
    loop {
        let mut out = Vec::new();
        for (plan, at) in operations() {
            let operation = &plan.operations[at];
            let Some(own) = operation.accesses.first().filter(|own| !own.commutes.is_empty()) else { continue };
            let table = &plan.tables[own.table].name;
            let Some(agreement) = found.get(table) else { continue };
            if operation.accesses.len() > 1 || !is_lone(own, agreement) || !adds_once(plan, at) {
                out.extend(own.commutes.intersection(&agreement.sums).iter().map(|column| (table.clone(), column)));
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

/// Whether an operation adds to each of its sums once: of several additions each has to leave the sum in its range, not just the last.
pub fn adds_once(plan: &Plan, operation: usize) -> bool {
    let of = &plan.operations[operation];
    let adds =
        |failure: &&Failure| failure.operation == Some(operation) && failure.kind == FailureKind::CommutativeOverflow;
    let additions: Vec<&Failure> = plan.failures.iter().filter(adds).collect();
    let sums = of.accesses.first().map_or(0, |own| own.commutes.iter().count());
    additions.len() == sums && additions.iter().all(|failure| failure.loops == of.loops)
}

fn is_lone(own: &Access, agreement: &Agreement) -> bool {
    own.existence == Existence::Reads
        && own.writes.is_empty()
        && own.commutes.iter().all(|column| agreement.sums.contains(column))
        && own.reads.intersection(&agreement.changed).is_empty()
}
