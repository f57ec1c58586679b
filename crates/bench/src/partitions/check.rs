//! What must hold of a run, by what clients were told and what partitions hold.

use seriatim_base::TableId;
use seriatim_history::{History, Initial, InitialRow, Promises, Saw, Transaction, check as judge};
use seriatim_partition::Scheme;
use seriatim_transport::{CoordinatorEnd, OwnerEnd};

use super::client::Told;
use super::store::INITIAL;
use super::{KEYS, Plan, TwelveKeys};

/// Checks a run; how many transactions have an order, if they were recorded.
pub(super) fn check(
    plan: &Plan,
    owners: &[OwnerEnd<TwelveKeys>],
    coordinator: Option<&CoordinatorEnd>,
    told: &[Told],
) -> Result<Option<u64>, String> {
    if let Some(wrong) = told.iter().flat_map(|told| &told.wrong).next() {
        return Err(wrong.clone());
    }
    if plan.transport.scheme != Scheme::Locking && told.iter().any(|told| told.conflict_aborted > 0) {
        return Err("there are conflicts, and no locks".to_owned());
    }
    let panics = owners.iter().flat_map(|end| &end.panics).chain(coordinator.iter().flat_map(|end| &end.panics));
    if let Some(panic) = panics.clone().next() {
        return Err(format!("a role panicked: {panic}"));
    }
    if let Some((transaction, at)) = coordinator.iter().flat_map(|end| &end.broken).next() {
        return Err(format!("{transaction} has committed, and is not done at partition {at}"));
    }
    for end in owners {
        let Some(owner) = &end.owner else { return Err(format!("partition {} is gone", end.id)) };
        if !owner.is_idle() {
            return Err(format!("something is under way at partition {} at the end", end.id));
        }
        let written: u64 = told.iter().map(|told| told.written[end.id.0 as usize]).sum();
        let grown = owner.partition().grown();
        if grown != written {
            let id = end.id;
            return Err(format!("the values of partition {id} have grown by {grown}, and {written} keys were written"));
        }
    }
    if !plan.records {
        return Ok(None);
    }
    let history = history(plan, told);
    let promises = Promises { real_time: true, ..Promises::SERIALIZABLE };
    judge(&history, &promises).map(|summary| Some(summary.transactions)).map_err(|violation| violation.to_string())
}

/// Each value grows by one with each write, so what was read says which version it was, and which was written.
fn history(plan: &Plan, told: &[Told]) -> History {
    let keys = plan.clients * KEYS as u32;
    let initial = (0..plan.transport.partitions).flat_map(|table| {
        (0..keys).map(move |key| InitialRow {
            table: TableId(table),
            key: u64::from(key).into(),
            version: u64::from(INITIAL),
        })
    });
    let mut history = History { initial: Initial::Rows(initial.collect()), ..History::default() };
    for (number, recorded) in (0..).zip(told.iter().flat_map(|told| &told.record)) {
        let mut transaction = Transaction::new(number).during(recorded.began, recorded.ended);
        transaction.session = recorded.client;
        for (at, keys, seen) in &recorded.parts {
            for (&key, &value) in keys.items().iter().zip(seen.items()) {
                transaction = transaction.read(at.0, u64::from(key), Saw::Row(value.into()));
                transaction = transaction.write(at.0, u64::from(key), u64::from(value) + 1);
            }
        }
        history.transactions.push(transaction);
    }
    history
}
