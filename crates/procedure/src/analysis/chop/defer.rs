//! Deferred execution of commutative updates: publish–subscribe (DBX-TC §3.2).
//!
//! An update that only adds to columns can be published at the end of an epoch. Then it does not conflict with
//! readers of the columns: they run before it in its epoch and after it from the next epoch on. So within an
//! epoch every subscriber precedes every publisher in the serial order, and no other dependency may contradict
//! that. Call procedures that C-edges connect, without those of deferred updates, a *group*: inside a group
//! any order can arise. A set of deferrals is legal if the relation "a subscriber of a publisher in the other
//! group is in this one" has no cycle. This contains the paper's premise, that no other path connects
//! publisher and subscriber (one group would precede itself). It also excludes two groups that publish to each
//! other, which the paper does not mention.
//!
//! Every transaction belongs to the epoch in which its decisive piece commits. The deferred updates of an epoch are
//! published when all transactions that had begun before the epoch changed have ended. A subscriber begins before the
//! change or after the publication. It restarts if its decisive piece finds another epoch than its beginning. Then
//! (epoch, groups with subscribers first, decisive piece) is a serial order. Inside a group, epochs follow decisive
//! pieces, and a subscriber sees exactly the publications of earlier epochs. The paper's text can be read so that a
//! publisher belongs to the epoch in which it begins. Then of two that conflict the first to commit could belong to the
//! later epoch, and a subscriber in between would see the second alone. Random runs in the tests show all of this.
//!
//! All candidates are deferred first, since one may be legal only together with another. While the relation
//! has a cycle, the last deferral on one is undone; then the undone ones are tried once more. The result is
//! legal, and no single update can be added to it.

use std::collections::BTreeSet;

use crate::plan::{Conflict, Deferral, End, Existence, Failure, Options, Plan, Refused};

use super::{order, tolerated};

/// Chooses the deferred updates and removes them from the conflicts.
pub(super) fn defer(
    plans: &[&Plan],
    orders: &[BTreeSet<(usize, usize)>],
    options: Options,
    conflicts: &mut Vec<Conflict>,
) -> (Vec<Deferral>, Vec<Refused>) {
    let (mut chosen, mut refused) = (BTreeSet::new(), Vec::new());
    let ends: BTreeSet<End> = conflicts.iter().flat_map(|conflict| [conflict.left, conflict.right]).collect();
    for end in ends {
        match is_candidate(plans[end.procedure], end, &orders[end.procedure], options, conflicts) {
            None => {}
            Some(Ok(())) => {
                chosen.insert(end);
            }
            Some(Err(reason)) => refused.push(Refused { publisher: end, reason }),
        }
    }
    refused.extend(take_back_illegal(plans, conflicts, &mut chosen));
    refused.sort_by_key(|refused| refused.publisher);
    let deferrals = deferrals(conflicts, &chosen);
    conflicts.retain(|conflict| !chosen.contains(&conflict.left) && !chosen.contains(&conflict.right));
    (deferrals, refused)
}

/// Undoes illegal deferrals, as few as possible. Returns them, with reasons.
pub(in crate::analysis) fn take_back_illegal(
    plans: &[&Plan],
    conflicts: &[Conflict],
    chosen: &mut BTreeSet<End>,
) -> Vec<Refused> {
    let (mut taken_back, mut refused) = (Vec::new(), Vec::new());
    while let Some(end) = illegal(plans.len(), conflicts, chosen) {
        chosen.remove(&end);
        taken_back.push(end);
    }
    taken_back.sort();
    for end in taken_back {
        chosen.insert(end);
        if illegal(plans.len(), conflicts, chosen).is_some() {
            let reason = why(plans, conflicts, chosen, end);
            chosen.remove(&end);
            refused.push(Refused { publisher: end, reason });
        }
    }
    refused
}

/// The conflicts that these updates would have.
pub(in crate::analysis) fn deferrals(conflicts: &[Conflict], chosen: &BTreeSet<End>) -> Vec<Deferral> {
    let deferral = |end: &End| {
        let edges: Vec<&Conflict> = conflicts.iter().filter(|conflict| other(conflict, *end).is_some()).collect();
        let mut grounds: Vec<_> = edges.iter().flat_map(|conflict| conflict.grounds.clone()).collect();
        grounds.sort();
        grounds.dedup();
        let subscribers = edges.iter().filter_map(|conflict| other(conflict, *end)).collect();
        Deferral { publisher: *end, subscribers, grounds }
    };
    chosen.iter().map(deferral).collect()
}

/// The other end of an edge.
fn other(conflict: &Conflict, end: End) -> Option<End> {
    match (conflict.left == end, conflict.right == end) {
        (true, _) => Some(conflict.right),
        (false, true) => Some(conflict.left),
        (false, false) => None,
    }
}

/// Whether an update could be published later, as far as it and its procedure are concerned. `None`: it does
/// not add to columns.
fn is_candidate(
    plan: &Plan,
    end: End,
    order: &BTreeSet<(usize, usize)>,
    options: Options,
    conflicts: &[Conflict],
) -> Option<Result<(), String>> {
    let operation = &plan.operations[end.operation];
    let access = operation.accesses.first()?;
    if access.commutes.is_empty() {
        return None;
    }
    let keys = operation.accesses.iter().any(|access| access.existence == Existence::Writes);
    if !access.writes.is_empty() || keys {
        return Some(Err("it does not only add to columns".into()));
    }
    let columns = &plan.tables[access.table].columns;
    let added: BTreeSet<_> = access.commutes.iter().filter_map(|column| columns.get(column.index())).collect();
    for conflict in conflicts.iter().filter(|conflict| other(conflict, end).is_some()) {
        let foreign = conflict
            .grounds
            .iter()
            .find(|ground| ground.existence || !ground.columns.iter().all(|column| added.contains(column)));
        if let Some(ground) = foreign {
            return Some(Err(format!("it also conflicts on {ground}")));
        }
    }
    if operation.used {
        return Some(Err("its result is used".into()));
    }
    if let Some((_, later)) = order.iter().find(|(earlier, _)| *earlier == end.operation) {
        return Some(Err(format!("#{later} comes after it")));
    }
    let fails = |failure: &&Failure| failure.decided_by.contains(&end.operation) && !tolerated(failure.kind, options);
    if let Some(failure) = plan.failures.iter().find(fails) {
        return Some(Err(format!("it can fail when it is published: {} ({})", failure.kind, failure.place)));
    }
    Some(Ok(()))
}

/// The groups that C-edges make, by procedure, with these updates deferred.
pub(in crate::analysis) fn groups(procedures: usize, conflicts: &[Conflict], deferred: &BTreeSet<End>) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..procedures).collect();
    for conflict in conflicts {
        if deferred.contains(&conflict.left) || deferred.contains(&conflict.right) {
            continue;
        }
        let (left, right) = (groups[conflict.left.procedure], groups[conflict.right.procedure]);
        let (low, high) = (left.min(right), left.max(right));
        groups.iter_mut().filter(|group| **group == high).for_each(|group| *group = low);
    }
    groups
}

/// The last deferral on a cycle of the relation between groups.
fn illegal(procedures: usize, conflicts: &[Conflict], deferred: &BTreeSet<End>) -> Option<End> {
    let groups = groups(procedures, conflicts, deferred);
    let mut before = vec![vec![false; procedures]; procedures];
    let arcs: Vec<(End, usize, usize)> = deferred
        .iter()
        .flat_map(|end| {
            let groups = &groups;
            let subscribers = conflicts.iter().filter_map(|conflict| other(conflict, *end));
            subscribers.map(move |subscriber| (*end, groups[subscriber.procedure], groups[end.procedure]))
        })
        .collect();
    for (_, subscriber, publisher) in &arcs {
        before[*subscriber][*publisher] = true;
    }
    order::close(&mut before);
    arcs.iter().filter(|(_, subscriber, publisher)| before[*publisher][*subscriber]).map(|(end, ..)| *end).max()
}

/// Why a deferral is not legal, in words.
fn why(plans: &[&Plan], conflicts: &[Conflict], deferred: &BTreeSet<End>, end: End) -> String {
    let groups = groups(plans.len(), conflicts, deferred);
    let publisher = &plans[end.procedure].procedure;
    let joined = conflicts
        .iter()
        .filter_map(|conflict| other(conflict, end))
        .find(|subscriber| groups[subscriber.procedure] == groups[end.procedure]);
    match joined {
        Some(subscriber) if subscriber.procedure == end.procedure => {
            format!("{publisher} itself uses what it adds to")
        }
        Some(subscriber) => {
            let subscriber = &plans[subscriber.procedure].procedure;
            format!("other conflicts join {publisher} and {subscriber}, so that {subscriber} could see it half-done")
        }
        None => format!("what subscribes to {publisher} publishes to it in turn"),
    }
}
