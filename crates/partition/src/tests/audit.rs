//! Checks of a run, independent of the code that ran.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_base::TableId;
use seriatim_history::{History, Initial, InitialRow, Promises, Saw, Transaction, check};

use super::simulation::{Attempt, KEYS, Ran, VALUE};
use super::store::{Applied, INITIAL, Seen, Store};
use crate::{Outcome, Owner, PartitionId, TransactionId};

/// The effects of each transaction at each partition.
type Done<'a> = BTreeMap<TransactionId, BTreeMap<PartitionId, Vec<&'a Applied>>>;

/// Returns the first violation.
pub(super) fn audit(ran: &Ran) -> Result<(), String> {
    let done = done(ran);
    whole(ran, &done)?;
    conserved(ran, &done)?;
    writers(ran, &done)?;
    recovered(ran)?;
    serializable(ran, &done)
}

fn done(ran: &Ran) -> Done<'_> {
    let mut done = Done::new();
    for (id, owner) in ran.owners.iter().enumerate() {
        for applied in owner.partition().applied() {
            let at = PartitionId(id as u32);
            done.entry(applied.transaction).or_default().entry(at).or_default().push(applied);
        }
    }
    done
}

/// A transaction is at all of its partitions or at none, its answer is true, and its client saw what it read.
fn whole(ran: &Ran, done: &Done<'_>) -> Result<(), String> {
    for (transaction, attempt) in &ran.attempts {
        let at: BTreeSet<PartitionId> =
            done.get(transaction).map(|at| at.keys().copied().collect()).unwrap_or_default();
        let all: BTreeSet<PartitionId> = attempt.asked.participants().into_iter().collect();
        if !at.is_empty() && at != all {
            return Err(format!("{transaction} is at {at:?} of {all:?}"));
        }
        match &attempt.answer {
            Some(Outcome::Committed(seen)) => {
                if at.is_empty() {
                    return Err(format!("{transaction} was acknowledged and is lost"));
                }
                for &partition in &all {
                    let told: Vec<Seen> =
                        seen.iter().filter(|(at, _)| *at == partition).flat_map(|(_, seen)| seen.clone()).collect();
                    let read: Vec<Seen> =
                        done[transaction][&partition].iter().flat_map(|applied| applied.seen.clone()).collect();
                    if told != read {
                        return Err(format!("{transaction} was told {told:?} at {partition} and read {read:?}"));
                    }
                }
            }
            Some(Outcome::Repeated) => return Err(format!("{transaction} was called once")),
            Some(Outcome::Misuse(misuse)) => return Err(format!("{transaction}: {misuse}")),
            Some(_) if !at.is_empty() => return Err(format!("{transaction} was aborted and is at {at:?}")),
            _ => {}
        }
    }
    let stranger = done.keys().find(|transaction| !ran.attempts.contains_key(transaction));
    stranger.map_or(Ok(()), |transaction| Err(format!("no client called {transaction}")))
}

/// The sum of all values grew by the committed amounts.
fn conserved(ran: &Ran, done: &Done<'_>) -> Result<(), String> {
    let sum: i64 = ran.owners.iter().map(|owner| owner.partition().sum()).sum();
    let initial = i64::from(KEYS) * VALUE * ran.owners.len() as i64;
    let grown: i64 = done.keys().map(|transaction| ran.attempts[transaction].asked.grows()).sum();
    if sum == initial + grown { Ok(()) } else { Err(format!("the sum is {sum}, and should be {}", initial + grown)) }
}

/// The writer that a reader names is the one that wrote the version.
fn writers(ran: &Ran, done: &Done<'_>) -> Result<(), String> {
    let mut writers = BTreeMap::new();
    for (transaction, at) in done {
        for (&partition, applied) in at {
            let written = applied.iter().flat_map(|applied| &applied.written);
            writers.extend(written.map(|&(key, version)| ((partition, key, version), *transaction)));
        }
    }
    for (transaction, partition, seen) in ran.attempts.iter().flat_map(seen) {
        if writers.get(&(partition, seen.key, seen.version)).copied() != seen.writer {
            return Err(format!("{transaction} saw {seen:?} at {partition}, of which nothing is there"));
        }
    }
    Ok(())
}

/// All reads that were reported to a client, by commits and by user aborts.
fn seen<'a>((&transaction, attempt): (&'a TransactionId, &'a Attempt)) -> Vec<(TransactionId, PartitionId, &'a Seen)> {
    match &attempt.answer {
        Some(Outcome::Committed(told)) => {
            told.iter().flat_map(|(at, seen)| seen.iter().map(|seen| (transaction, *at, seen))).collect()
        }
        Some(Outcome::UserAborted(failed)) => failed.1.iter().map(|seen| (transaction, failed.0, seen)).collect(),
        _ => Vec::new(),
    }
}

/// The records alone give the same state.
fn recovered(ran: &Ran) -> Result<(), String> {
    for (owner, (id, log)) in ran.owners.iter().zip((0..).map(PartitionId).zip(&ran.logs)) {
        let store = Store::new(id, KEYS, VALUE);
        let again = Owner::recover(id, 1, store, &ran.options, log.clone(), [], &mut Vec::new());
        let (is, was) = (again.partition().contents(), owner.partition().contents());
        if !again.is_idle() || is != was {
            return Err(format!("partition {id} has {was}, and its records say {is}"));
        }
    }
    Ok(())
}

/// There is an order that explains all reads, also of aborted transactions, and that agrees with real time.
fn serializable(ran: &Ran, done: &Done<'_>) -> Result<(), String> {
    let initial = (0..ran.owners.len() as u32).flat_map(|table| {
        (0..KEYS).map(move |key| InitialRow { table: TableId(table), key: u64::from(key).into(), version: INITIAL })
    });
    let mut history = History { initial: Initial::Rows(initial.collect()), ..History::default() };
    for (number, (id, attempt)) in ran.attempts.iter().enumerate() {
        let mut transaction = Transaction::new(number as u64).during(attempt.began, attempt.ended.unwrap_or(u64::MAX));
        transaction.session = number as u32;
        for (_, at, seen) in seen((id, attempt)) {
            transaction = transaction.read(at.0, u64::from(seen.key), Saw::Row(seen.version));
        }
        for (at, applied) in done.get(id).into_iter().flatten() {
            for applied in applied {
                for &(key, version) in &applied.written {
                    transaction = transaction.write(at.0, u64::from(key), version);
                }
                if attempt.answer.is_none() {
                    for seen in &applied.seen {
                        transaction = transaction.read(at.0, u64::from(seen.key), Saw::Row(seen.version));
                    }
                }
            }
        }
        if !transaction.reads.is_empty() || !transaction.writes.is_empty() {
            history.transactions.push(transaction);
        }
    }
    let promises = Promises { real_time: true, ..Promises::SERIALIZABLE };
    check(&history, &promises).map(drop).map_err(|violation| violation.to_string())
}
