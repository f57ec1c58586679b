//! C-edges: what two operations conflict on (DBX-TC §3.1).
//!
//! Two accesses to one table, or to one index, conflict if one changes the set of keys. Every access reads that set,
//! also a miss and a scan. They also conflict if one changes a column that the other uses or changes. Two additions to
//! a column commute. Keys are not compared: the rows of an operation are not known before it runs.

use crate::plan::{Access, Columns, Conflict, End, Existence, Ground, Plan};

/// The conflicts of two operations; none if they may run in any order.
pub(super) fn grounds(left: (&Plan, usize), right: (&Plan, usize), commute: bool) -> Vec<Ground> {
    let mut found = Vec::new();
    for mine in &left.0.operations[left.1].accesses {
        for theirs in &right.0.operations[right.1].accesses {
            if name(left.0, mine) == name(right.0, theirs)
                && let Some(ground) = ground(left.0, mine, theirs, commute)
                && !found.contains(&ground)
            {
                found.push(ground);
            }
        }
    }
    found.sort();
    found
}

/// Table and index of an access.
fn name<'p>(plan: &'p Plan, access: &Access) -> (&'p str, Option<&'p str>) {
    let table = &plan.tables[access.table];
    (&table.name, access.index.map(|index| &*table.indexes[index]))
}

fn ground(plan: &Plan, mine: &Access, theirs: &Access, commute: bool) -> Option<Ground> {
    let existence = mine.existence == Existence::Writes || theirs.existence == Existence::Writes;
    let shared = columns(mine, theirs, commute);
    let table = &plan.tables[mine.table];
    (existence || !shared.is_empty()).then(|| Ground {
        table: table.name.clone(),
        index: mine.index.map(|index| table.indexes[index].clone()),
        existence,
        columns: shared.iter().filter_map(|column| table.columns.get(column.index()).cloned()).collect(),
    })
}

/// Columns that one operation changes and the other uses or changes, if their order matters.
fn columns(mine: &Access, theirs: &Access, commute: bool) -> Columns {
    let mut found = Columns::new();
    for (left, right) in [(mine, theirs), (theirs, mine)] {
        for used in [&right.reads, &right.writes] {
            found.extend(&left.writes.intersection(used));
            found.extend(&left.commutes.intersection(used));
        }
    }
    if !commute {
        found.extend(&mine.commutes.intersection(&theirs.commutes));
    }
    found
}

/// Every C-edge between two instances of the plans, of one or of two procedures, except those left out.
pub(in crate::analysis) fn all(plans: &[&Plan], commute: bool, absent: impl Fn(usize) -> bool) -> Vec<Conflict> {
    let ends: Vec<End> = (0..plans.len())
        .filter(|procedure| !absent(*procedure))
        .flat_map(|procedure| (0..plans[procedure].operations.len()).map(move |operation| End { procedure, operation }))
        .collect();
    let mut found = Vec::new();
    for (at, left) in ends.iter().enumerate() {
        for right in &ends[at..] {
            let side = |end: &End| (plans[end.procedure], end.operation);
            let grounds = grounds(side(left), side(right), commute);
            if !grounds.is_empty() {
                found.push(Conflict { left: *left, right: *right, grounds });
            }
        }
    }
    found
}
