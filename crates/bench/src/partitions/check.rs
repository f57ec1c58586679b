//! Checks a run by the results that clients got and the contents of the partitions.

use seriatim_base::TableId;
use seriatim_history::{History, Initial, InitialRow, Promises, Saw, Transaction, check as judge};

use super::client::ClientResults;
use super::roles::Ends;
use super::store::INITIAL;
use super::{KEYS, Plan, TwelveKeys};

/// Checks a run. Returns the number of ordered transactions, if results were recorded.
pub(super) fn check(plan: &Plan, ends: &Ends<TwelveKeys, ClientResults>) -> Result<Option<u64>, String> {
    ends.check(plan.transport.scheme, |results| &results.counted)?;
    for end in &ends.owners {
        let written: u64 = ends.results.iter().map(|results| results.written[end.id.0 as usize]).sum();
        let grown = end.owner.as_ref().map_or(0, |owner| owner.partition().rows.grown());
        if grown != written {
            let id = end.id;
            return Err(format!("the values of partition {id} have grown by {grown}, and {written} keys were written"));
        }
    }
    if !plan.records {
        return Ok(None);
    }
    let history = history(plan, &ends.results);
    let promises = Promises { real_time: true, ..Promises::SERIALIZABLE };
    judge(&history, &promises).map(|summary| Some(summary.transactions)).map_err(|violation| violation.to_string())
}

/// Each write increments a value. So a value that was read tells which version was read and which was written.
fn history(plan: &Plan, results: &[ClientResults]) -> History {
    let keys = plan.clients * KEYS as u32;
    let initial = (0..plan.transport.partitions).flat_map(|table| {
        (0..keys).map(move |key| InitialRow {
            table: TableId(table),
            key: u64::from(key).into(),
            version: u64::from(INITIAL),
        })
    });
    let mut history = History { initial: Initial::Rows(initial.collect()), ..History::default() };
    for (number, recorded) in (0..).zip(results.iter().flat_map(|results| &results.record)) {
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
