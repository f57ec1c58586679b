//! Histories that are serializable by construction. Transactions run one after another against a map. Their
//! times are spread around the points where they ran, so that they seem to have interleaved.

use seriatim_base::Rng;
use seriatim_history::{Columns, History, Initial, InitialRow, Key, Read, Saw, Scan, TableId, Transaction, Write};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The simulated system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Transactions.
    pub(crate) transactions: u64,
    /// Operations of a transaction, at most.
    pub(crate) operations: u64,
    /// Tables.
    pub(crate) tables: u64,
    /// Keys of each table.
    pub(crate) keys: u64,
    /// Percentage of the writing operations that delete.
    pub(crate) deletes: u64,
    /// Percentage of the operations that scan.
    pub(crate) scans: u64,
    /// Percentage of the absences that say since when.
    pub(crate) precise: u64,
    /// Percentage of the transactions that run on a snapshot.
    pub(crate) snapshots: u64,
    /// Percentage of the keys that have an initial row.
    pub(crate) initial: u64,
    /// How far times lie from the point where the transaction ran, at most; points are 10 apart.
    pub(crate) spread: u64,
    /// Column groups of each table; rows have three columns.
    pub(crate) groups: &'static [Columns],
    /// Whether each group has versions of its own, instead of one for the row.
    pub(crate) by_group: bool,
}

type TableKey = (TableId, Key);
type Store = BTreeMap<TableKey, Row>;

/// The state of a key.
#[derive(Clone, Debug)]
struct Row {
    /// The highest version.
    version: u64,
    /// The version of its newest insertion or deletion.
    since: u64,
    row: bool,
    /// By group, the version of its newest write.
    groups: Vec<u64>,
}

/// A set of the three columns: all more often than others, sometimes none.
pub(crate) fn columns(rng: &mut Rng) -> Columns {
    if rng.percent(30) { Columns::ALL } else { Columns(rng.below(8)) }
}

/// Every group, and the one of the columns in no listed group.
pub(crate) fn groups(listed: &[Columns]) -> Vec<Columns> {
    let rest = !listed.iter().fold(0, |all, group| all | group.0);
    listed.iter().copied().chain((rest != 0 && !listed.is_empty()).then_some(Columns(rest))).collect()
}

/// The key with this number.
pub(crate) fn key(number: u64) -> Key {
    Key::from(format!("k{number:04}").as_str())
}

/// The effect of a transaction on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Deletion,
    Whole,
    Update(Columns),
}

type Own = BTreeMap<TableKey, Change>;

/// A serializable history that keeps [`seriatim_history::Promises::STRICT`], with its transactions shuffled.
pub(crate) fn serial(rng: &mut Rng, parameters: Parameters) -> History {
    let mut store = Store::new();
    let mut rows = Vec::new();
    for table in 0..parameters.tables {
        for number in 0..parameters.keys {
            if rng.percent(parameters.initial) {
                let version = rng.range(1, 3);
                let groups = vec![version; groups(parameters.groups).len()];
                store.insert((TableId(table as u32), key(number)), Row { version, since: version, row: true, groups });
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
            // A state whose point precedes the end of this transaction, and an instant that promises no more
            // than the state has.
            let (from, state) = &past[rng.below(past.len() as u64) as usize];
            t.snapshot = Some((*from + 1).min(began));
            for _ in 0..rng.below(parameters.operations + 1) {
                observe(rng, parameters, state, &Own::new(), &mut t);
            }
            transactions.push(t);
            continue;
        }
        // The transaction's writes: no row, all of a row, or these columns.
        let mut own: Own = BTreeMap::new();
        for _ in 0..rng.below(parameters.operations + 1) {
            if rng.percent(50) {
                observe(rng, parameters, &store, &own, &mut t);
                continue;
            }
            let place = place(rng, parameters);
            let there = store.get(&place).is_some_and(|row| row.row);
            let change = match (there, rng.percent(parameters.deletes)) {
                (true, true) => Change::Deletion,
                (true, false) if !parameters.groups.is_empty() => Change::Update(columns(rng)),
                _ => Change::Whole,
            };
            if rng.percent(60) && !own.contains_key(&place) {
                read(rng, parameters, &store, &place, &mut t);
            }
            own.insert(place, change);
        }
        // Above every version read or overwritten, as a TID is.
        let all = groups(parameters.groups);
        let touched = |change: Change, group: usize| match change {
            Change::Update(columns) => columns.intersects(all[group]),
            Change::Deletion | Change::Whole => true,
        };
        let floor = own.iter().filter_map(|(place, &change)| {
            let row = store.get(place)?;
            match change {
                Change::Update(_) if parameters.by_group => {
                    let touched = (0..all.len()).filter(|&group| touched(change, group));
                    touched.map(|group| row.groups[group]).chain([row.since]).max()
                }
                _ => Some(row.version),
            }
        });
        let version = floor.max().unwrap_or(0).max(3) + rng.range(1, 2);
        for (place, change) in own {
            let (columns, deleted) = match change {
                Change::Update(columns) => (Some(columns), false),
                Change::Deletion | Change::Whole => (None, change == Change::Deletion),
            };
            t.writes.push(Write { table: place.0, key: place.1.clone(), version, deleted, columns });
            let new = Row { version, since: version, row: !deleted, groups: vec![0; all.len()] };
            let row = store.entry(place).or_insert(new);
            (row.version, row.row) = (row.version.max(version), !deleted);
            row.since = if columns.is_none() { version } else { row.since };
            (0..all.len()).filter(|&group| touched(change, group)).for_each(|group| row.groups[group] = version);
        }
        transactions.push(t);
        past.push((point, store.clone()));
        if past.len() > 4 {
            past.remove(0);
        }
    }
    sessions(rng, &mut transactions);
    rng.shuffle(&mut transactions);
    let groups = if parameters.groups.is_empty() {
        Vec::new()
    } else {
        vec![parameters.groups.to_vec(); parameters.tables as usize]
    };
    History { tables: Vec::new(), groups, initial, transactions }
}

fn place(rng: &mut Rng, parameters: Parameters) -> TableKey {
    (TableId(rng.below(parameters.tables) as u32), key(rng.below(parameters.keys)))
}

fn saw(rng: &mut Rng, parameters: Parameters, store: &Store, place: &TableKey) -> Saw {
    match store.get(place) {
        // Where groups have versions of their own, each is listed apart.
        Some(row) if row.row => Saw::Row(if parameters.by_group { row.since } else { row.version }),
        Some(row) if rng.percent(parameters.precise) => {
            Saw::AbsentAt(if parameters.by_group { row.since } else { row.version })
        }
        None if rng.percent(parameters.precise) => Saw::AbsentAt(0),
        _ => Saw::Absent,
    }
}

/// Reads some columns.
fn read(rng: &mut Rng, parameters: Parameters, store: &Store, place: &TableKey, t: &mut Transaction) {
    let saw = saw(rng, parameters, store, place);
    let all = groups(parameters.groups);
    let used = if all.is_empty() { Columns::ALL } else { columns(rng) };
    let Some(row) = store.get(place).filter(|row| row.row && parameters.by_group) else {
        t.reads.push(Read { table: place.0, key: place.1.clone(), columns: used, saw });
        return;
    };
    for (group, &version) in all.iter().zip(&row.groups) {
        let columns = Columns(group.0 & used.0);
        if columns != Columns::NONE {
            t.reads.push(Read { table: place.0, key: place.1.clone(), columns, saw: Saw::Row(version) });
        }
    }
    if used == Columns::NONE {
        t.reads.push(Read { table: place.0, key: place.1.clone(), columns: used, saw });
    }
}

/// A point read or a scan, under the transaction's own writes.
fn observe(rng: &mut Rng, parameters: Parameters, store: &Store, own: &Own, t: &mut Transaction) {
    if !rng.percent(parameters.scans) {
        let place = place(rng, parameters);
        read(rng, parameters, store, &place, t);
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
    let used = match (parameters.groups.is_empty(), parameters.by_group) {
        (true, _) => Columns::ALL,
        (false, true) => Columns::NONE,
        (false, false) => columns(rng),
    };
    let mut scan = Scan { table, low, high, columns: used, saw: Vec::new() };
    for number in 0..parameters.keys {
        let place = (table, key(number));
        if !inside(&scan, &place.1) {
            continue;
        }
        match store.get(&place) {
            // A scan may list the row below a write of its own transaction, or omit it.
            Some(_) if own.contains_key(&place) && rng.percent(50) => {}
            Some(row) if row.row => {
                let seen = saw(rng, parameters, store, &place);
                scan.saw.push((place.1, seen));
            }
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
