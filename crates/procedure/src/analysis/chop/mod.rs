//! Transaction chopping of a set of procedures (DBX-TC §3; Shasha et al.).
//!
//! ```text
//! order      which operations of a procedure must stay in order
//! conflicts  C-edges between two instances of all procedures; read-only ones leave if there are snapshots
//! claims     conflicts that cannot occur, because a key is only taken once
//! defer      commutative updates that are published later, so that their C-edges go
//! merge      pieces of each procedure, their order and roles
//! ```
//! The result depends on the set, not on its order: procedures are taken by name, operations by number.

mod claims;
pub(super) mod conflicts;
pub(super) mod defer;
mod merge;
mod order;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::plan::{Chopping, Deferrable, End, Existence, FailureKind, Options, Plan};

use super::commuting::agreements;
use super::deferrable::deferrable;
use merge::Cut;
pub(super) use order::own_order;

/// A set that cannot be chopped because its plans are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChopError {
    /// Two procedures of one name.
    Duplicate(Arc<str>),
    /// A plan contradicts itself.
    Broken(String),
}

impl fmt::Display for ChopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChopError::Duplicate(name) => write!(f, "two procedures are called `{name}`; names are unique in a set"),
            ChopError::Broken(problem) => write!(f, "a plan is broken: {problem}"),
        }
    }
}

impl std::error::Error for ChopError {}

/// Chops a set of procedures.
///
/// # Errors
/// Names that are not unique, plans that contradict themselves.
pub fn chop<'p>(plans: impl IntoIterator<Item = &'p Plan>, options: Options) -> Result<Chopping, ChopError> {
    let mut plans: Vec<&Plan> = plans.into_iter().collect();
    plans.sort_by(|left, right| left.procedure.cmp(&right.procedure));
    if let Some(pair) = plans.windows(2).find(|pair| pair[0].procedure == pair[1].procedure) {
        return Err(ChopError::Duplicate(pair[0].procedure.clone()));
    }
    for plan in &plans {
        plan.check().map_err(ChopError::Broken)?;
    }
    let mut orders: Vec<BTreeSet<(usize, usize)>> =
        plans.iter().map(|plan| order::order(plan, options.reorder, options.commute)).collect();
    let on_snapshot = |procedure: usize| options.snapshots && plans[procedure].takes_snapshot();
    let mut conflicts = conflicts::all(&plans, options.commute, on_snapshot);
    // A cascade deletes rows that no operation names.
    let claims = match options.claims && !plans.iter().any(|plan| plan.follows_references()) {
        true => claims::claims(&plans, on_snapshot, &mut conflicts, &mut orders),
        false => Vec::new(),
    };
    // A protocol that publishes additions later does not know claims.
    let later = match options.defer && options.commute {
        true => deferrable(&plans, on_snapshot, |_| false),
        false => Deferrable::default(),
    };
    let (deferrals, refused) = match options.defer && options.commute {
        true => defer::defer(&plans, &orders, options, &mut conflicts),
        false => (Vec::new(), Vec::new()),
    };
    let deferred: BTreeSet<End> = deferrals.iter().map(|deferral| deferral.publisher).collect();
    let procedures = (0..plans.len()).map(|at| {
        let (order, conflicts, deferred, claims) = (&orders[at], &conflicts, &deferred, &claims);
        let cut = Cut { plans: &plans, at, order, conflicts, deferred, claims, options };
        let mut chopped = cut.chop();
        if on_snapshot(at) {
            (chopped.snapshot, chopped.decisive) = (true, None);
            chopped.pieces.clear();
            chopped.merges.clear();
        }
        chopped
    });
    let mut chopping = Chopping {
        options,
        procedures: procedures.collect(),
        conflicts,
        claims,
        deferrals,
        refused,
        statics: if options.statics { statics(&plans) } else { BTreeSet::new() },
        later,
        sums: if options.commute { sums(&plans, on_snapshot) } else { BTreeSet::new() },
        obligations: Vec::new(),
    };
    chopping.obligations = obligations(&plans, &chopping);
    assert_eq!(chopping.check(), Ok(()), "a chopping is safe");
    Ok(chopping)
}

/// Whether a failure is prevented by other means than the order of pieces.
fn tolerated(kind: FailureKind, options: Options) -> bool {
    match kind {
        FailureKind::OutOfMemory => options.memory,
        FailureKind::CommutativeOverflow => options.headroom && options.commute,
        _ => false,
    }
}

/// Tables, and indexes as `table.index`, whose set of keys no procedure changes.
fn statics(plans: &[&Plan]) -> BTreeSet<Arc<str>> {
    let (mut used, mut changed) = (BTreeSet::new(), BTreeSet::new());
    for plan in plans {
        for access in plan.operations.iter().flat_map(|operation| &operation.accesses) {
            let table = &plan.tables[access.table];
            let name: Arc<str> = match access.index {
                None => table.name.clone(),
                Some(index) => format!("{}.{}", table.name, table.indexes[index]).into(),
            };
            if access.existence == Existence::Writes {
                changed.insert(name.clone());
            }
            used.insert(name);
        }
    }
    &used - &changed
}

/// Columns, as `table.column`, whose sums may be published apart from the rest.
fn sums(plans: &[&Plan], on_snapshot: impl Fn(usize) -> bool) -> BTreeSet<Arc<str>> {
    let present = || plans.iter().enumerate().filter(|(at, _)| !on_snapshot(*at)).map(|(_, plan)| *plan);
    let mut found = BTreeSet::new();
    for (name, agreement) in agreements(present()) {
        let table = present().flat_map(|plan| &plan.tables).find(|table| table.name == name);
        let columns = table.map_or(&[][..], |table| &table.columns);
        let names = agreement.sums.iter().filter_map(|column| columns.get(column.index()));
        found.extend(names.map(|column| Arc::from(format!("{name}.{column}"))));
    }
    found
}

/// The guarantees that the engine must give for this chopping to be safe.
fn obligations(plans: &[&Plan], chopping: &Chopping) -> Vec<String> {
    let mut found = Vec::new();
    let pieces = |at: usize| chopping.procedures[at].pieces.len();
    let chopped: Vec<usize> = (0..plans.len()).filter(|at| pieces(*at) > 1).collect();
    let failures = || chopped.iter().flat_map(|at| &plans[*at].failures);
    if chopping.options.memory && failures().any(|failure| failure.kind == FailureKind::OutOfMemory) {
        found.push("memory for all writes is reserved when an execution begins".to_owned());
    }
    if chopping.options.headroom && chopping.options.commute {
        let mut columns = BTreeSet::new();
        for at in &chopped {
            for access in plans[*at].operations.iter().flat_map(|operation| &operation.accesses) {
                let table = &plans[*at].tables[access.table];
                let names = access.commutes.iter().filter_map(|column| table.columns.get(column.index()));
                columns.extend(names.map(|name| format!("{}.{name}", table.name)));
            }
        }
        if !columns.is_empty() {
            let columns: Vec<String> = columns.into_iter().collect();
            found.push(format!("sums keep room: {}", columns.join(", ")));
        }
    }
    let tables = chopping.claims.iter().map(|claim| (&claim.token, &claim.record));
    for (token, record) in tables.collect::<BTreeSet<_>>() {
        match record {
            Some(record) => {
                found.push(format!("every key of {token} is in {record} when the set is registered"));
                found.push(format!("no transaction outside the set adds to {token} or removes from {record}"));
            }
            None => found.push(format!("no transaction outside the set adds to {token}")),
        }
    }
    for deferral in &chopping.deferrals {
        let publisher = &plans[deferral.publisher.procedure].procedure;
        let subscribers: BTreeSet<&str> =
            deferral.subscribers.iter().map(|end| &*plans[end.procedure].procedure).collect();
        let subscribers: Vec<&str> = subscribers.into_iter().collect();
        found.push(format!(
            "{publisher} #{} is published after the epoch that its decisive piece is in{}; {} waits for what is \
             pending before it begins, and begins again if its decisive piece is in another epoch",
            deferral.publisher.operation,
            if chopping.options.snapshots { ", before any transaction reads its snapshot" } else { "" },
            subscribers.join(", ")
        ));
    }
    found
}
