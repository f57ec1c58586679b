//! The rules that recorded histories must obey beyond serializability, on which recovery and reclamation rely.
//! The code reads the records alone, and shares no code with the checker.

use std::collections::HashMap;

use seriatim::Tid;
use seriatim::history::{History, Saw, Transaction};

/// A key of a table.
type RowId = (u32, Vec<u8>);

fn epoch(version: u64) -> u64 {
    Tid::from_bits(version).epoch().0
}

/// Every version of every key, in the order of versions, with the place of its writer in the history.
fn versions(history: &History) -> Result<HashMap<RowId, Vec<(u64, usize)>>, String> {
    let mut versions: HashMap<RowId, Vec<(u64, usize)>> = HashMap::new();
    for (at, transaction) in history.transactions.iter().enumerate() {
        for write in &transaction.writes {
            versions.entry((write.table.0, write.key.bytes().to_vec())).or_default().push((write.version, at));
        }
    }
    for (place, written) in &mut versions {
        written.sort_unstable();
        if let Some(pair) = written.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
            return Err(format!("{place:?}: two transactions wrote version {}", Tid::from_bits(pair[0].0)));
        }
    }
    Ok(versions)
}

/// Versions of a key rise for ever, through deletes and reinserts: a transaction that ended before another began wrote
/// the lower one.
///
/// # Errors
/// The first key where they do not, in words.
pub fn versions_rise(history: &History) -> Result<(), String> {
    for (place, written) in versions(history)? {
        let mut latest_begin = 0;
        for (version, at) in written {
            let Transaction { began, ended, .. } = history.transactions[at];
            if ended < latest_begin {
                let version = Tid::from_bits(version);
                return Err(format!("{place:?}: version {version} lies above one of a transaction that began later"));
            }
            latest_begin = latest_begin.max(began);
        }
    }
    Ok(())
}

/// No dependency between transactions that wrote leads to an earlier epoch. Looks at versions overwritten and
/// read. If the protocol `orders_epochs`, it also looks at those overwritten after they were read. Then the
/// transactions of the epochs up to any one are a prefix of a serial order.
///
/// # Errors
/// The first dependency that does, in words.
pub fn epochs_follow_dependencies(history: &History, orders_epochs: bool) -> Result<usize, String> {
    let versions = versions(history)?;
    let mut checked = 0;
    let mut follow = |what: &str, place: &RowId, earlier: u64, later: u64| {
        checked += 1;
        if epoch(earlier) <= epoch(later) {
            return Ok(());
        }
        let (earlier, later) = (Tid::from_bits(earlier), Tid::from_bits(later));
        Err(format!("{place:?}: {what}, but {later} is of an earlier epoch than {earlier}"))
    };
    for (at, transaction) in history.transactions.iter().enumerate() {
        let Some(own) = transaction.writes.iter().map(|write| write.version).max() else { continue };
        let points = transaction.reads.iter().map(|read| (read.table.0, &read.key, read.saw));
        let ranges = transaction.scans.iter();
        let rows = ranges.flat_map(|scan| scan.saw.iter().map(|(key, saw)| (scan.table.0, key, *saw)));
        for (table, key, saw) in points.chain(rows) {
            let (Saw::Row(seen) | Saw::AbsentAt(seen)) = saw else { continue };
            let place = (table, key.bytes().to_vec());
            follow("read before it wrote", &place, seen, own)?;
            let Some(written) = versions.get(&place).filter(|_| orders_epochs) else { continue };
            let next = written.partition_point(|&(version, _)| version <= seen);
            if let Some(&(version, writer)) = written.get(next).filter(|&&(_, writer)| writer != at) {
                let version = history.transactions[writer].writes.iter().map(|w| w.version).max().unwrap_or(version);
                follow("overwrote what another read", &place, own, version)?;
            }
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tid(epoch: u64, counter: u64) -> u64 {
        epoch << Tid::COUNTER_BITS | counter
    }

    fn history(transactions: impl Into<Vec<Transaction>>) -> History {
        History { transactions: transactions.into(), ..History::default() }
    }

    #[test]
    fn an_epoch_read_at_begin_is_noticed() {
        // The reader of the first version takes a TID of a later epoch than the transaction that overwrites it.
        let first = Transaction::new(0).during(0, 1).write(0, "x", tid(1, 1));
        let reader = Transaction::new(1).during(2, 5).read(0, "x", Saw::Row(tid(1, 1))).write(0, "y", tid(3, 0));
        let late = Transaction::new(2).during(2, 6).read(0, "x", Saw::Row(tid(1, 1))).write(0, "x", tid(2, 0));
        let good = Transaction::new(2).during(2, 6).read(0, "x", Saw::Row(tid(1, 1))).write(0, "x", tid(3, 1));
        let wrong = history([first.clone(), reader.clone(), late]);
        assert!(epochs_follow_dependencies(&wrong, true).is_err_and(|fault| fault.contains("earlier epoch")));
        // Where epochs are not in the serial order that is allowed; not so to read what is of a later epoch.
        assert_eq!(epochs_follow_dependencies(&wrong, false), Ok(2));
        let early = Transaction::new(3).during(6, 7).read(0, "y", Saw::Row(tid(3, 0))).write(0, "z", tid(2, 0));
        let worse = history([first.clone(), reader.clone(), early]);
        assert!(epochs_follow_dependencies(&worse, false).is_err_and(|fault| fault.contains("earlier epoch")));
        assert_eq!(epochs_follow_dependencies(&history([first, reader, good]), true), Ok(3));
    }

    #[test]
    fn a_version_that_starts_again_is_noticed() {
        let first = Transaction::new(0).during(0, 1).write(0, "x", tid(2, 1));
        let gone = Transaction::new(1).during(2, 3).delete(0, "x", tid(2, 2));
        let reset = Transaction::new(2).during(4, 5).write(0, "x", tid(1, 0));
        let risen = Transaction::new(2).during(4, 5).write(0, "x", tid(3, 0));
        let again = Transaction::new(2).during(4, 5).write(0, "x", tid(2, 2));
        assert!(versions_rise(&history([first.clone(), gone.clone(), reset])).is_err());
        assert!(versions_rise(&history([first.clone(), gone.clone(), again])).is_err());
        assert_eq!(versions_rise(&history([first, gone, risen])), Ok(()));
    }
}
