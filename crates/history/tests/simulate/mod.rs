//! Histories that are serializable by construction: transactions run one after another against a map, and their times are
//! spread around the points where they ran, so that they seem to have interleaved.

use seriatim_base::Rng;
use seriatim_history::{History, Initial, InitialRow, Key, Read, Saw, Scan, TableId, Transaction, Write};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Transactions.
    pub(crate) transactions: u64,
    /// Operations of one, at most.
    pub(crate) operations: u64,
    /// Tables.
    pub(crate) tables: u64,
    /// Keys of each table.
    pub(crate) keys: u64,
    /// Of the operations that write, how many in a hundred delete.
    pub(crate) deletes: u64,
    /// Of the operations, how many in a hundred scan.
    pub(crate) scans: u64,
    /// Of the absences, how many in a hundred say since when.
    pub(crate) precise: u64,
    /// Of the transactions, how many in a hundred run on a snapshot.
    pub(crate) snapshots: u64,
    /// Of the keys, how many in a hundred have an initial row.
    pub(crate) initial: u64,
    /// Of the times, how far they lie from the point where the transaction ran; points are 10 apart.
    pub(crate) spread: u64,
}

type Place = (TableId, Key);
/// (version, whether it is a row)
type Store = BTreeMap<Place, (u64, bool)>;

/// The key with this number.
pub(crate) fn key(number: u64) -> Key {
    Key::from(format!("k{number:04}").as_str())
}

/// A serializable history that keeps [`seriatim_history::Promises::STRICT`], with its transactions shuffled.
pub(crate) fn serial(rng: &mut Rng, parameters: Parameters) -> History {
    let mut store = Store::new();
    let mut rows = Vec::new();
    for table in 0..parameters.tables {
        for number in 0..parameters.keys {
            if rng.percent(parameters.initial) {
                let version = rng.range(1, 3);
                store.insert((TableId(table as u32), key(number)), (version, true));
                rows.push(InitialRow { table: TableId(table as u32), key: key(number), version });
            }
        }
    }
    let initial = if rows.is_empty() { Initial::Empty } else { Initial::Rows(rows) };
    let mut transactions = Vec::new();
    // The last few states, for snapshots: (point, state).
    let mut past: Vec<(u64, Store)> = vec![(0, store.clone())];
    for i in 0..parameters.transactions {
        let point = 1000 + 10 * i;
        let began = point - rng.below(parameters.spread + 1);
        let mut t = Transaction::new(i + 1).during(began, point + rng.below(parameters.spread + 1));
        if rng.percent(parameters.snapshots) {
            // A state whose point precedes the end of this transaction, and an instant that promises no more than it has.
            let (from, state) = &past[rng.below(past.len() as u64) as usize];
            t.snapshot = Some((*from + 1).min(began));
            for _ in 0..rng.below(parameters.operations + 1) {
                observe(rng, parameters, state, &BTreeMap::new(), &mut t);
            }
            transactions.push(t);
            continue;
        }
        let mut own: BTreeMap<Place, bool> = BTreeMap::new();
        for _ in 0..rng.below(parameters.operations + 1) {
            if rng.percent(50) {
                observe(rng, parameters, &store, &own, &mut t);
                continue;
            }
            let place = place(rng, parameters);
            let there = store.get(&place).is_some_and(|&(_, row)| row);
            if rng.percent(60) && !own.contains_key(&place) {
                let saw = saw(rng, parameters, &store, &place);
                t.reads.push(Read { table: place.0, key: place.1.clone(), saw });
            }
            own.insert(place, !(there && rng.percent(parameters.deletes)));
        }
        // Above every version read or overwritten, as a TID is.
        let floor = own.keys().filter_map(|place| store.get(place)).map(|&(version, _)| version).max().unwrap_or(3);
        let version = floor + rng.range(1, 2);
        for ((table, key), row) in own {
            t.writes.push(Write { table, key: key.clone(), version, deleted: !row });
            store.insert((table, key), (version, row));
        }
        transactions.push(t);
        past.push((point, store.clone()));
        if past.len() > 4 {
            past.remove(0);
        }
    }
    sessions(rng, &mut transactions);
    rng.shuffle(&mut transactions);
    History { tables: Vec::new(), initial, transactions }
}

fn place(rng: &mut Rng, parameters: Parameters) -> Place {
    (TableId(rng.below(parameters.tables) as u32), key(rng.below(parameters.keys)))
}

fn saw(rng: &mut Rng, parameters: Parameters, store: &Store, place: &Place) -> Saw {
    match store.get(place) {
        Some(&(version, true)) => Saw::Row(version),
        Some(&(version, false)) if rng.percent(parameters.precise) => Saw::AbsentAt(version),
        None if rng.percent(parameters.precise) => Saw::AbsentAt(0),
        _ => Saw::Absent,
    }
}

/// A point read or a scan, under the transaction's own writes.
fn observe(rng: &mut Rng, parameters: Parameters, store: &Store, own: &BTreeMap<Place, bool>, t: &mut Transaction) {
    if !rng.percent(parameters.scans) {
        let place = place(rng, parameters);
        let saw = saw(rng, parameters, store, &place);
        t.reads.push(Read { table: place.0, key: place.1, saw });
        return;
    }
    let table = TableId(rng.below(parameters.tables) as u32);
    let (mut low, mut high) = (rng.below(parameters.keys), rng.below(parameters.keys));
    if low > high {
        (low, high) = (high, low);
    }
    let bound = |rng: &mut Rng, number| match rng.below(8) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(number)),
        _ => Bound::Included(key(number)),
    };
    let (low, high) = (bound(rng, low), bound(rng, high));
    let mut scan = Scan { table, low, high, saw: Vec::new() };
    for number in 0..parameters.keys {
        let place = (table, key(number));
        if !inside(&scan, &place.1) {
            continue;
        }
        match store.get(&place) {
            // A scan may list what was under the transaction's own writes, or leave it out.
            Some(_) if own.contains_key(&place) && rng.percent(50) => {}
            Some(&(version, true)) => scan.saw.push((place.1, Saw::Row(version))),
            Some(_) if rng.percent(parameters.precise / 2) => {
                let seen = saw(rng, parameters, store, &place);
                scan.saw.push((place.1, seen));
            }
            _ => {}
        }
    }
    t.scans.push(scan);
}

/// Whether a key lies in the range of a scan.
pub(crate) fn inside(scan: &Scan, key: &Key) -> bool {
    let above = match &scan.low {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
    };
    above
        && match &scan.high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
        }
}

/// Gives transactions to sessions such that no session runs two at once.
fn sessions(rng: &mut Rng, transactions: &mut [Transaction]) {
    let mut ends: Vec<u64> = Vec::new();
    transactions.sort_by_key(|t| (t.began, t.ended));
    for t in transactions {
        let free: Vec<usize> = (0..ends.len()).filter(|&session| ends[session] <= t.began).collect();
        let session = match free.is_empty() || rng.percent(30) {
            true => {
                ends.push(0);
                ends.len() - 1
            }
            false => free[rng.below(free.len() as u64) as usize],
        };
        ends[session] = t.ended;
        t.session = session as u32;
    }
}
