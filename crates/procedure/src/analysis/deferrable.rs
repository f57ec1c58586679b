//! Sums that a set of procedures reads or replaces, and to which additions may be published later all the same (DBX-TC §3.2).
//!
//! An operation is a candidate if it is shaped like a lone addition ([`agreements`](super::agreements)), whoever else uses its sums. Which
//! candidates are deferred together is decided as for pieces ([`chop::defer`](super::chop)). But a column is deferrable only if every operation
//! that adds to it is: an update is known by its columns when it runs. Whether there is a row is looked at when the operation runs, since nobody
//! changes the table's keys; and room in the sum is for the engine to see to. So neither stands in the way, as it does where operations themselves run later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use seriatim_catalog::ColumnUse;

use crate::plan::{Access, Columns, Deferrable, End, Existence, Plan, Refused};

use super::chop::{conflicts, defer};
use super::commuting::{adds_once, agreements};

/// What may be published later of a set of procedures, of which `absent` ones run on snapshots; rows of `clustered` tables are no records of
/// their own.
pub fn deferrable(plans: &[&Plan], absent: impl Fn(usize) -> bool, clustered: impl Fn(&str) -> bool) -> Deferrable {
    let conflicts = conflicts::all(plans, true, &absent);
    let present = (0..plans.len()).filter(|procedure| !absent(*procedure));
    let lone = agreements(present.clone().map(|procedure| plans[procedure]));
    let ends = present.flat_map(|procedure| {
        (0..plans[procedure].operations.len()).map(move |operation| End { procedure, operation })
    });
    let set = Set { plans, ends: ends.collect() };
    let is_lone = |end: End, own: &Access| {
        let agreed = lone.get(set.table(end, own));
        agreed.is_some_and(|agreed| own.commutes.iter().all(|sum| agreed.sums.contains(sum)))
    };
    let (mut chosen, mut refused) = (BTreeSet::new(), Vec::new());
    // What nobody uses is published apart from the rest anyway.
    for (end, own) in set.additions().filter(|(end, own)| !is_lone(*end, own)) {
        let table = set.table(end, own);
        match set.unlike_a_lone_addition(end, own).or_else(|| clustered(table).then_some("its table is clustered")) {
            None => _ = chosen.insert(end),
            Some(reason) => refused.push(Refused { publisher: end, reason: reason.into() }),
        }
    }
    loop {
        refused.extend(defer::take_back_illegal(plans, &conflicts, &mut chosen));
        let kept = |(end, own): &(End, &Access)| chosen.contains(end) || is_lone(*end, own);
        let direct: Vec<(End, &Access)> = set.additions().filter(|addition| !kept(addition)).collect();
        let out: Vec<(End, End)> = set
            .additions()
            .filter(|(end, _)| chosen.contains(end))
            .filter_map(|(end, own)| {
                let shares = |(other, theirs): &&(End, &Access)| {
                    set.table(*other, theirs) == set.table(end, own)
                        && !theirs.commutes.intersection(&own.commutes).is_empty()
                };
                direct.iter().find(shares).map(|(other, _)| (end, *other))
            })
            .collect();
        if out.is_empty() {
            break;
        }
        for (end, other) in out {
            chosen.remove(&end);
            let other = format!("{} #{}", plans[other.procedure].procedure, other.operation);
            refused.push(Refused { publisher: end, reason: format!("{other} adds to the same sum, and may not") });
        }
    }
    refused.sort_by_key(|refused| refused.publisher);
    let (mut columns, mut changed) = (BTreeMap::<Arc<str>, Columns>::new(), BTreeMap::<Arc<str>, Columns>::new());
    for (end, own) in set.additions().filter(|(end, _)| chosen.contains(end)) {
        let table = &plans[end.procedure].tables[own.table].name;
        columns.entry(table.clone()).or_default().extend(&own.commutes);
        let changed = changed.entry(table.clone()).or_default();
        for access in set.all_of(table) {
            changed.extend(&access.writes);
            changed.extend(&access.commutes);
        }
    }
    let (deferrals, groups) = (defer::deferrals(&conflicts, &chosen), defer::groups(plans.len(), &conflicts, &chosen));
    Deferrable { deferrals, refused, columns, changed, groups }
}

/// Procedures, and the operations of those that are no snapshots.
struct Set<'p> {
    plans: &'p [&'p Plan],
    ends: Vec<End>,
}

impl<'p> Set<'p> {
    fn accesses(&self, end: End) -> &'p [Access] {
        &self.plans[end.procedure].operations[end.operation].accesses
    }

    /// Operations that add to columns, and what they do to their table.
    fn additions(&self) -> impl Iterator<Item = (End, &'p Access)> + '_ {
        let own = |end: &End| self.accesses(*end).first().filter(|own| !own.commutes.is_empty()).map(|own| (*end, own));
        self.ends.iter().filter_map(own)
    }

    fn table(&self, end: End, access: &Access) -> &'p str {
        &self.plans[end.procedure].tables[access.table].name
    }

    /// What everybody does to a table, its indexes apart.
    fn all_of(&self, table: &'p str) -> impl Iterator<Item = &'p Access> + '_ {
        let accesses = self.ends.iter().flat_map(|end| self.accesses(*end).iter().map(|access| (*end, access)));
        let own = accesses.filter(move |(end, access)| access.index.is_none() && self.table(*end, access) == table);
        own.map(|(_, access)| access)
    }

    /// Why an operation that adds is no lone addition, whoever uses its sums.
    fn unlike_a_lone_addition(&self, end: End, own: &Access) -> Option<&'static str> {
        let table = self.table(end, own);
        let is_changed = |column| {
            self.all_of(table).any(|access| access.writes.contains(column) || access.commutes.contains(column))
        };
        if !own.writes.is_empty() {
            return Some("it does not only add to columns");
        }
        if self.accesses(end).len() > 1 {
            return Some("its row moves in an index, or is found by one");
        }
        if self.all_of(table).any(|access| access.existence == Existence::Writes) {
            return Some("keys of its table change");
        }
        if own.reads.iter().any(is_changed) {
            return Some("it uses what others change");
        }
        if !adds_once(self.plans[end.procedure], end.operation) {
            return Some("it adds to a sum more than once");
        }
        // Where an update is known by its columns, those behind the 63rd are one.
        let is_known = ColumnUse::adding(own.commutes.iter()).used.is_empty();
        (!is_known).then_some("it adds to a column behind the 63rd")
    }
}
