//! Conflicts that cannot occur: rows of a key that one transaction has claimed for itself.
//!
//! Delivery takes the oldest order out of the queue NEW-ORDER and then works on rows of that order. By table,
//! these operations conflict with other deliveries and with the procedure that enters orders; DBX-TC (§3.2,
//! Figure 3) puts them outside of the conflicting piece. The proof that this is right needs more than tables;
//! this file gives it, or leaves the conflicts as they are.
//!
//! Let *token* be a table from which a procedure deletes key k, the row being required, and *record* a table
//! with the same keys:
//!
//! 1. no procedure deletes from the record;
//! 2. a procedure that inserts k into the token has inserted k into the record, or does so in the same execution;
//! 3. every key of the token is in the record when the set is registered. The engine ensures this, and also
//!    that nothing outside of the set inserts into the token or deletes from the record.
//!
//! Inserts are in decisive pieces, since each conflicts with itself in another instance; so both inserts take
//! effect at once. By (1) to (3), a key in the token is in the record for ever. It is inserted into the token
//! only while it is not in the record. So it is in the token during one period, and **is deleted at most
//! once**. Without inserts into the token no record is needed.
//!
//! An operation is *claimed* by a required delete of k, if all rows that it can touch have keys that begin with k. The
//! delete must always have run before it (in the same iteration). It is ordered after the delete, which is in the
//! decisive piece. Then
//!
//! - two claimed operations of two instances touch no common row: both would have deleted k;
//! - a procedure may insert into another table, under a key that begins with k, together with its insert of k into the
//!   token. That insert is in the procedure's decisive piece. So it comes before the decisive piece with the delete,
//!   and so before the claimed operation. The order of the two is that of the decisive pieces, and adds nothing to the
//!   graph.
//!
//! So these C-edges are removed. Edges on indexes, and with all other operations, stay. A required row of the
//! record with key k itself exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::plan::{Claim, Conflict, End, Kind, Operation, Plan};

/// Finds claimed operations, removes their edges, and orders them after the claiming deletes.
pub(super) fn claims(
    plans: &[&Plan],
    absent: impl Fn(usize) -> bool,
    conflicts: &mut Vec<Conflict>,
    orders: &mut [BTreeSet<(usize, usize)>],
) -> Vec<Claim> {
    let set = Set { plans };
    let mut found: Vec<Claim> = Vec::new();
    for (at, plan) in plans.iter().enumerate().filter(|(at, _)| !absent(*at)) {
        for (by, delete) in plan.operations.iter().enumerate() {
            if delete.kind != Kind::Delete || !delete.required || delete.key.is_empty() {
                continue;
            }
            let token = set.table(End { procedure: at, operation: by });
            let Some(record) = set.record(token) else { continue };
            for (operation, claimed) in plan.operations.iter().enumerate() {
                let end = End { procedure: at, operation };
                if set.table(end) != token
                    && claimed.kind != Kind::Insert
                    && claimed.index.is_none()
                    && delete.precedes(claimed)
                    && claimed.key.starts_with(&delete.key)
                    && !found.iter().any(|claim| claim.operation == end)
                {
                    let exists = record.as_ref() == Some(set.table(end)) && claimed.key == delete.key;
                    found.push(Claim {
                        operation: end,
                        by,
                        token: token.clone(),
                        record: record.clone(),
                        exists,
                        against: BTreeSet::new(),
                    });
                }
            }
        }
    }
    let claimed = found.clone();
    let is_covered = |claim: &Claim, other: End| {
        claimed.iter().any(|claim_of_other| claim_of_other.operation == other && claim_of_other.token == claim.token)
            || set.is_made_with(other, &claim.token)
    };
    for claim in &mut found {
        let table = set.table(claim.operation);
        for conflict in conflicts.iter_mut() {
            let other = match (conflict.left == claim.operation, conflict.right == claim.operation) {
                (true, _) => conflict.right,
                (false, true) => conflict.left,
                (false, false) => continue,
            };
            if is_covered(claim, other) {
                conflict.grounds.retain(|ground| ground.index.is_some() || ground.table != *table);
                claim.against.insert(other);
            }
        }
    }
    conflicts.retain(|conflict| !conflict.grounds.is_empty());
    // The first of two claimed operations has emptied an edge between them.
    let pairs: Vec<(End, End)> =
        found.iter().flat_map(|claim| claim.against.iter().map(move |other| (*other, claim.operation))).collect();
    for claim in &mut found {
        claim.against.extend(pairs.iter().filter(|(other, _)| *other == claim.operation).map(|(_, mine)| *mine));
    }
    found.retain(|claim| !claim.against.is_empty());
    for claim in &found {
        orders[claim.operation.procedure].insert((claim.by, claim.operation.operation));
    }
    found
}

struct Set<'a> {
    plans: &'a [&'a Plan],
}

impl Set<'_> {
    fn ends(&self) -> impl Iterator<Item = End> {
        self.plans
            .iter()
            .enumerate()
            .flat_map(|(procedure, plan)| (0..plan.operations.len()).map(move |operation| End { procedure, operation }))
    }

    fn operation(&self, end: End) -> &Operation {
        &self.plans[end.procedure].operations[end.operation]
    }

    fn table(&self, end: End) -> &Arc<str> {
        let plan = self.plans[end.procedure];
        &plan.tables[plan.operations[end.operation].table].name
    }

    /// Operations of a kind on a table.
    fn on(&self, kind: Kind, table: &str) -> impl Iterator<Item = End> {
        self.ends().filter(move |end| self.operation(*end).kind == kind && **self.table(*end) == *table)
    }

    /// The record of a token: `Some(None)` if it needs none, `None` if there is none.
    fn record(&self, token: &str) -> Option<Option<Arc<str>>> {
        let inserts: Vec<End> = self.on(Kind::Insert, token).collect();
        let Some(first) = inserts.first() else { return Some(None) };
        let candidates: BTreeSet<&Arc<str>> = (0..self.plans[first.procedure].operations.len())
            .map(|operation| self.table(End { procedure: first.procedure, operation }))
            .collect();
        let is_record = |table: &str| {
            table != token
                && self.on(Kind::Delete, table).next().is_none()
                && inserts.iter().all(|insert| {
                    let made = self.operation(*insert);
                    self.on(Kind::Insert, table).any(|other| {
                        let kept = self.operation(other);
                        other.procedure == insert.procedure
                            && kept.key == made.key
                            && kept.loops == made.loops
                            && kept.accompanies(made)
                    })
                })
        };
        candidates.into_iter().find(|table| is_record(table)).map(|table| Some(table.clone()))
    }

    /// Whether an operation inserts under a key that its procedure also inserts into the token, whenever this
    /// operation runs.
    fn is_made_with(&self, end: End, token: &str) -> bool {
        let insert = self.operation(end);
        insert.kind == Kind::Insert
            && self.on(Kind::Insert, token).any(|other| {
                let made = self.operation(other);
                other.procedure == end.procedure && insert.key.starts_with(&made.key) && made.accompanies(insert)
            })
    }
}
