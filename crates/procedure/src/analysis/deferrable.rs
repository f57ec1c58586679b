//! Sums that a set of procedures reads or replaces, and to which additions may be published later all the same
//! (DBX-TC §3.2).
//!
//! An operation is a candidate if it has the form of a lone addition ([`agreements`](super::agreements)),
//! regardless of other uses of its sums. Which candidates are deferred together is decided as for pieces
//! ([`chop::defer`](super::chop)). But a column is deferrable only if every operation that adds to it is: an
//! update is recognized by its columns when it runs. Whether the row exists is checked when the operation
//! runs, since the table's keys never change; the engine ensures that the sum has room. So neither prevents a
//! deferral, as it would where operations themselves run later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use seriatim_catalog::ColumnUse;

use crate::plan::{Access, Columns, Deferrable, End, Plan, Refused};

use super::chop::{conflicts, defer};
use super::commuting::{addition, agreements, changes};

/// The additions of a set of procedures that may be published later. `absent` procedures run on snapshots;
/// rows of `clustered` tables are no records of their own.
pub fn deferrable(plans: &[&Plan], absent: impl Fn(usize) -> bool, clustered: impl Fn(&str) -> bool) -> Deferrable {
    let conflicts = conflicts::all(plans, true, &absent);
    let present = || (0..plans.len()).filter(|procedure| !absent(*procedure));
    let changes = changes(&present().map(|procedure| plans[procedure]).collect::<Vec<_>>());
    let lone = agreements(present().map(|procedure| plans[procedure]));
    let ends = present().flat_map(|procedure| {
        (0..plans[procedure].operations.len()).map(move |operation| End { procedure, operation })
    });
    let additions: Vec<(End, &Access)> =
        ends.filter_map(|end| Some((end, addition(plans[end.procedure], end.operation)?))).collect();
    let table = |end: End, own: &Access| &plans[end.procedure].tables[own.table].name;
    let is_lone = |end: End, own: &Access| {
        let agreed = lone.get(table(end, own));
        agreed.is_some_and(|agreed| own.commutes.iter().all(|sum| agreed.sums.contains(sum)))
    };
    // Updates are recognized by their columns, and those behind the 63rd share one bit.
    let is_known = |own: &Access| ColumnUse::adding(own.commutes.iter()).used().is_empty();
    let (mut chosen, mut refused) = (BTreeSet::new(), Vec::new());
    // A column without other uses is published apart from the rest anyway.
    for &(end, own) in additions.iter().filter(|(end, own)| !is_lone(*end, own)) {
        let table = table(end, own);
        let unlike = changes[table].unlike_a_lone_addition(plans[end.procedure], end.operation);
        let unlike = unlike.or_else(|| (!is_known(own)).then_some("it adds to a column behind the 63rd"));
        match unlike.or_else(|| clustered(table).then_some("its table is clustered")) {
            None => _ = chosen.insert(end),
            Some(reason) => refused.push(Refused { publisher: end, reason: reason.into() }),
        }
    }
    loop {
        refused.extend(defer::take_back_illegal(plans, &conflicts, &mut chosen));
        let is_direct = |(end, own): &&(End, &Access)| !chosen.contains(end) && !is_lone(*end, own);
        let direct: Vec<&(End, &Access)> = additions.iter().filter(is_direct).collect();
        let deferred = additions.iter().filter(|(end, _)| chosen.contains(end));
        let out = deferred.filter_map(|(end, own)| {
            let shares = |(other, theirs): &&&(End, &Access)| {
                table(*other, theirs) == table(*end, own) && !theirs.commutes.intersection(&own.commutes).is_empty()
            };
            direct.iter().find(shares).map(|(other, _)| (*end, *other))
        });
        let out: Vec<(End, End)> = out.collect();
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
    for (end, own) in additions.iter().filter(|(end, _)| chosen.contains(end)) {
        let table = table(*end, own);
        columns.entry(table.clone()).or_default().extend(&own.commutes);
        changed.entry(table.clone()).or_insert_with(|| changes[table].changed.clone());
    }
    let (deferrals, groups) = (defer::deferrals(&conflicts, &chosen), defer::groups(plans.len(), &conflicts, &chosen));
    Deferrable { deferrals, refused, columns, changed, groups }
}
