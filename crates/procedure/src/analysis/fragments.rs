//! A procedure divided by partition (Speculation §2.1, §3.1, §3.3).
//!
//! Operations whose partition is the same symbol run at one partition. An operation on a replicated table that the
//! procedure only reads runs where its result is needed. An operation on a replicated table that the procedure changes
//! runs everywhere, so no partition needs its result from another. A round ends where an operation needs a result of
//! another partition. So the round of an operation is above that of any operation that it needs from another partition.
//! It is at least that of any other that it needs. The result of an earlier iteration is elsewhere if the value that
//! names the partition varies between iterations. A loop that passes a result from one partition to another in each
//! iteration has as many rounds as iterations.
//!
//! Two values that name partitions may be equal. So operations that may share a row keep their order: none is in a
//! later round than one after it. Fragments of one round with such operations list each other ([`Fragment::meets`]).
//!
//! - *single*: one partition, known from the arguments;
//! - *simple*: several, known from the arguments, one round;
//! - *general*: the rest.

use std::collections::BTreeSet;

use crate::plan::{Failure, FailureKind, Fragment, Fragments, Plan, Symbol, TransactionClass};

use super::{Schema, chop};

/// Divides a procedure.
pub fn fragments(plan: &Plan, schema: &Schema) -> Fragments {
    let count = plan.operations.len();
    let is_replicated = |id: usize| schema.is_replicated(&plan.tables[plan.operations[id].table].name);
    let is_changed = |id: usize| {
        let table = plan.operations[id].table;
        plan.operations.iter().any(|other| other.table == table && other.changes())
    };
    let replicated: Vec<usize> = (0..count).filter(|id| is_replicated(*id) && !is_changed(*id)).collect();
    let everywhere: Vec<bool> = (0..count).map(|id| is_replicated(id) && is_changed(id)).collect();
    let placed: Vec<usize> = (0..count).filter(|id| !replicated.contains(id)).collect();
    let place = |id: usize| plan.operations[id].partition.as_ref();
    // The direct needs of an operation, each with the loop from whose earlier iteration it comes, if any.
    let direct = |id: usize| {
        let (operation, carried) = (&plan.operations[id], plan.operations[id].carried_from.iter());
        let now = operation.from().into_iter().map(|other| (other, None));
        now.chain(carried.map(|(other, around)| (*other, Some(*around)))).collect::<BTreeSet<(usize, Option<usize>)>>()
    };
    // The needed operations that have a partition, also through replicated ones. Of two loops, the outer one
    // counts.
    let needs = |id: usize| {
        let (mut found, mut through) = (direct(id), BTreeSet::new());
        while let Some(next) = found.iter().copied().find(|at| replicated.contains(&at.0) && !through.contains(at)) {
            through.insert(next);
            found.extend(direct(next.0).into_iter().map(|(other, by)| (other, by.into_iter().chain(next.1).min())));
        }
        found.retain(|(other, _)| !replicated.contains(other));
        found
    };
    // Both may be in one partition, unless these are distinct constants.
    let apart = |one: usize, two: usize| match (place(one), place(two)) {
        (Some(Symbol::Literal(one)), Some(Symbol::Literal(two))) => one != two,
        _ => false,
    };
    let is_placed = |id: usize| !replicated.contains(&id);
    let order: Vec<(usize, usize)> = chop::own_order(plan, true)
        .into_iter()
        .filter(|(earlier, later)| is_placed(*earlier) && is_placed(*later) && !apart(*earlier, *later))
        .collect();
    let mut reason = String::new();
    let mut say = |text: String| {
        if reason.is_empty() {
            reason = text;
        }
    };
    let mut rounds = vec![0_usize; count];
    // In a finite order no round is as large as the number of operations, and all are final after as many
    // passes.
    for _ in 0..=count * count {
        let before = rounds.clone();
        for id in &placed {
            for (other, by) in needs(*id) {
                // In another iteration, an operation may itself be elsewhere.
                let varies = |symbol: &Symbol| by.is_some_and(|around| symbol.varies(around));
                let is_another = place(*id) != place(other) || place(*id).is_none_or(varies);
                let elsewhere = is_another && !everywhere[other];
                if elsewhere {
                    let wide = |id: usize| if everywhere[id] { "every partition" } else { "anywhere" }.to_owned();
                    let at = |id: usize| place(id).map_or_else(|| wide(id), Symbol::to_string);
                    let when = if by.is_some() { " of an earlier iteration" } else { "" };
                    say(format!("#{id} at {} needs #{other} at {}{when}", at(*id), at(other)));
                }
                rounds[*id] = rounds[*id].max(rounds[other] + usize::from(elsewhere)).min(count);
            }
        }
        for (earlier, later) in &order {
            rounds[*later] = rounds[*later].max(rounds[*earlier]);
        }
        if before == rounds {
            break;
        }
    }
    let endless = placed.iter().any(|id| rounds[*id] >= count);
    if endless {
        // One after the other, in each iteration of the loop.
        rounds = (0..count).collect();
    }
    for id in &placed {
        match place(*id) {
            None if everywhere[*id] => {}
            None => say(format!("the partition of {} is not one value", plan.label(*id))),
            Some(symbol) if !from_arguments(plan, symbol) => {
                say(format!("the partition of {}, {symbol}, is not known from the arguments", plan.label(*id)));
            }
            Some(_) => {}
        }
    }
    let places: BTreeSet<Option<&Symbol>> = placed.iter().map(|id| place(*id)).collect();
    let is_known = |id: &usize| everywhere[*id] || place(*id).is_some_and(|symbol| from_arguments(plan, symbol));
    let known = placed.iter().all(is_known);
    let one = places.len() <= 1 && places.iter().flatten().all(|symbol| symbol.iteration().is_none());
    let one = one && !everywhere.contains(&true);
    let last = placed.iter().map(|id| rounds[*id]).max().unwrap_or(0);
    let class = match (known, one, last, endless) {
        (_, _, _, true) => TransactionClass::General { rounds: 0 },
        (true, true, 0, _) => TransactionClass::Single,
        (true, false, 0, _) => TransactionClass::Simple,
        // A partition that is looked up costs a round before the one at that partition; `needs` has counted
        // it.
        (_, _, last, _) => TransactionClass::General { rounds: last + 1 },
    };
    if class == TransactionClass::Simple {
        let name = |place: &Option<&Symbol>| place.map_or_else(|| "every partition".to_owned(), Symbol::to_string);
        let names: Vec<String> = places.iter().map(name).collect();
        say(format!("at {}, none needs another", names.join(" and ")));
    }
    let key = |id: &usize| (rounds[*id], place(*id), everywhere[*id]);
    let keys: BTreeSet<(usize, Option<&Symbol>, bool)> = placed.iter().map(key).collect();
    let mut fragments: Vec<Fragment> = keys
        .into_iter()
        .map(|of| Fragment {
            round: of.0,
            partition: of.1.cloned(),
            everywhere: of.2,
            operations: placed.iter().copied().filter(|id| key(id) == of).collect(),
            meets: Vec::new(),
        })
        .collect();
    fragments.sort_by_key(|fragment| (fragment.round, fragment.operations.first().copied()));
    let of = |id: usize| fragments.iter().position(|fragment| fragment.operations.contains(&id));
    let pairs: BTreeSet<(usize, usize)> = (order.iter())
        .filter_map(|(earlier, later)| Some((of(*earlier)?, of(*later)?)))
        .filter(|(one, two)| one != two && fragments[*one].round == fragments[*two].round)
        .flat_map(|(one, two)| [(one, two), (two, one)])
        .collect();
    for (one, two) in pairs {
        fragments[one].meets.push(two);
    }
    let failures = || plan.failures.iter().filter(|failure| failure.kind != FailureKind::OutOfMemory);
    let writes = || (0..count).filter(|id| plan.operations[*id].changes());
    // Whether a write may have happened before a failure is known.
    let precedes = |write: usize, failure: &Failure| {
        let operation = &plan.operations[write];
        let in_text = operation.step < failure.step || operation.loops.iter().any(|at| failure.loops.contains(at));
        match failure.operation {
            Some(fails) if !is_placed(fails) => !one || in_text,
            Some(fails) if place(fails) == place(write) && rounds[fails] == rounds[write] => in_text,
            Some(fails) => rounds[fails] >= rounds[write],
            None if one => in_text,
            None => in_text || failure.decided_by.iter().any(|by| rounds[*by] >= rounds[write]),
        }
    };
    Fragments {
        procedure: plan.procedure.clone(),
        class,
        reason: if class == TransactionClass::Single { String::new() } else { reason },
        fails: failures().next().is_some(),
        undo: failures().any(|failure| writes().any(|write| precedes(write, failure))),
        fragments,
        replicated,
    }
}

/// Whether the arguments determine a value.
fn from_arguments(plan: &Plan, symbol: &Symbol) -> bool {
    match symbol {
        Symbol::Literal(_) | Symbol::Parameter(_) => true,
        Symbol::Element(iteration, _) => {
            plan.loops.get(*iteration).is_some_and(|found| found.scan.is_none() && found.over_from.is_empty())
        }
        Symbol::Field(base, _) => from_arguments(plan, base),
        Symbol::Result(_) | Symbol::Other(..) => false,
    }
}
