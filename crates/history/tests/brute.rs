//! The checker against one that tries all serial orders, in both directions, on tiny histories: serializable
//! ones, and serializable ones with a few facts changed. The other checker shares no code with ours.

mod simulate;

use seriatim_base::{Rng, rng};
use seriatim_history::{
    Columns, Group, History, Initial, Key, Promises, Read, Saw, TableId, Transaction, Write, check, text,
};
use simulate::{Parameters, columns, groups, inside, key, serial};
use std::collections::{BTreeMap, BTreeSet};

type TableKey = (TableId, Key);
/// A read of some columns of a row: what it saw.
type Claim = (TableKey, Columns, Saw);

/// A version of a key, as the history tells it.
#[derive(Clone, Copy, Debug)]
struct Version {
    tid: u64,
    row: bool,
    /// An insertion or deletion; in a table without groups, every write.
    whole: bool,
    columns: Columns,
    writer: Option<usize>,
}

impl Version {
    fn of(history: &History, writer: usize, w: &Write) -> Version {
        let is_split = history.groups.get(w.table.index()).is_some_and(|groups| !groups.is_empty());
        let whole = w.deleted || w.columns.is_none() || !is_split;
        let columns = w.columns.filter(|_| !whole).unwrap_or(Columns::ALL);
        Version { tid: w.version, row: !w.deleted, whole, columns, writer: Some(writer) }
    }
}

/// The state of a key at some point of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowState {
    /// The version of the newest insertion or deletion, and whether there is a row.
    since: (u64, bool),
    /// By group, the version of its newest write.
    groups: Vec<u64>,
}

/// All that the placement of a transaction depends on.
struct Brute<'h> {
    history: &'h History,
    /// Every version by key, initial ones first, then ascending.
    versions: BTreeMap<TableKey, Vec<Version>>,
    initial: BTreeMap<TableKey, RowState>,
    /// Pairs that must be in this order.
    promised: Vec<(usize, usize)>,
}

impl<'h> Brute<'h> {
    fn new(history: &'h History, promises: &Promises) -> Brute<'h> {
        let transactions = &history.transactions;
        let mut versions: BTreeMap<TableKey, Vec<Version>> = BTreeMap::new();
        for (i, t) in transactions.iter().enumerate() {
            for w in &t.writes {
                let version = Version::of(history, i, w);
                versions.entry((w.table, w.key.clone())).or_default().push(version);
            }
        }
        versions.values_mut().for_each(|versions| versions.sort_by_key(|version| version.tid));
        let mut first = BTreeMap::new();
        match &history.initial {
            Initial::Empty => {}
            Initial::Rows(rows) => first.extend(rows.iter().map(|row| ((row.table, row.key.clone()), row.version))),
            Initial::Unknown => {
                for (place, _, saw) in transactions.iter().flat_map(claims) {
                    let least = versions.get(&place).and_then(|versions| versions.first()).map(|version| version.tid);
                    if let Saw::Row(version) = saw
                        && least.is_none_or(|least| version < least)
                    {
                        first.entry(place).or_insert(version);
                    }
                }
                // The row that an update found must have existed.
                for (place, versions) in &versions {
                    let least = versions.first().map_or(0, |version| version.tid);
                    if !versions.iter().any(|version| version.whole && version.tid == least) {
                        first.entry(place.clone()).or_insert(0);
                    }
                }
            }
        }
        let mut initial = BTreeMap::new();
        for (place, tid) in first {
            let groups = groups(history.groups.get(place.0.index()).map_or(&[], Vec::as_slice));
            initial.insert(place.clone(), RowState { since: (tid, true), groups: vec![tid; groups.len()] });
            let version = Version { tid, row: true, whole: true, columns: Columns::ALL, writer: None };
            versions.entry(place).or_default().insert(0, version);
        }
        let mut promised = Vec::new();
        for (i, a) in transactions.iter().enumerate() {
            for (j, b) in transactions.iter().enumerate().filter(|&(j, _)| j != i) {
                let seen = match (a.group, b.group) {
                    (Some(own), Some(other)) if own.number != other.number => own.shown,
                    _ => a.ended,
                };
                let real_time = match b.snapshot {
                    None => promises.real_time && seen < b.began,
                    Some(instant) => promises.snapshots && seen < instant && seen < b.began,
                };
                let in_session = promises.sessions
                    && a.session == b.session
                    && b.snapshot.is_none()
                    && seen <= b.began
                    && (a.began, a.ended, i) < (b.began, b.ended, j);
                if real_time || in_session {
                    promised.push((i, j));
                }
            }
        }
        Brute { history, versions, initial, promised }
    }

    /// A serial order, if there is one.
    fn order(&self) -> Option<Vec<usize>> {
        let well_formed = self.history.transactions.iter().all(|t| {
            t.began <= t.ended && t.scans.iter().all(|scan| scan.saw.iter().all(|(key, _)| inside(scan, key)))
        });
        // No order can explain several initial rows of a key, or one above a written version.
        let initial = self.initial.iter().all(|(place, now)| {
            let says_something = |version: &&Version| version.writer.is_some() && version.columns != Columns::NONE;
            self.versions[place].iter().filter(says_something).all(|version| now.since.0 < version.tid)
        });
        let mut order = Vec::new();
        (well_formed && initial && self.place(&mut order, &self.initial)).then_some(order)
    }

    fn place(&self, order: &mut Vec<usize>, store: &BTreeMap<TableKey, RowState>) -> bool {
        let n = self.history.transactions.len();
        if order.len() == n {
            return true;
        }
        for t in (0..n).filter(|t| !order.contains(t)).collect::<Vec<_>>() {
            if self.promised.iter().all(|&(a, b)| b != t || order.contains(&a))
                && let Some(after) = self.run(t, store)
            {
                order.push(t);
                if self.place(order, &after) {
                    return true;
                }
                order.pop();
            }
        }
        false
    }

    /// The newest version of a key that satisfies `of`, at or below a TID; else the initial one.
    fn newest(&self, place: &TableKey, tid: u64, of: impl Fn(&Version) -> bool) -> Option<Version> {
        let versions = self.versions.get(place)?;
        let newest = versions.iter().rev().find(|version| version.tid <= tid && of(version)).copied();
        newest.or(versions.first().copied().filter(|first| first.writer.is_none()))
    }

    /// The groups of a table.
    fn groups(&self, table: TableId) -> Vec<Columns> {
        groups(self.history.groups.get(table.index()).map_or(&[], Vec::as_slice))
    }

    /// Whether a read of transaction `t` holds in `store`.
    fn holds(&self, t: usize, store: &BTreeMap<TableKey, RowState>, (place, columns, saw): &Claim) -> bool {
        let (now, row) = (store.get(place), |version: &Version| version.whole);
        let at = |found: Version| found.writer == Some(t) || now.is_some_and(|now| now.since == (found.tid, found.row));
        match *saw {
            Saw::Row(tid) => {
                let is_version =
                    self.versions.get(place).is_some_and(|all| all.iter().any(|version| version.tid == tid));
                let there = self.newest(place, tid, row).is_some_and(|found| found.row && at(found));
                let used = self.groups(place.0).into_iter().enumerate().filter(|(_, group)| group.intersects(*columns));
                let mut used = used.map(|(i, group)| {
                    let found = self.newest(place, tid, |version| version.columns.intersects(group));
                    found.is_some_and(|found| {
                        found.writer == Some(t) || now.is_some_and(|now| now.groups[i] == found.tid)
                    })
                });
                is_version && there && used.all(|holds| holds)
            }
            Saw::Hidden => true,
            Saw::Absent => !now.is_some_and(|now| now.since.1),
            Saw::AbsentAt(tid) => match self.newest(place, tid, row) {
                None => now.is_none(),
                Some(found) => !found.row && at(found),
            },
        }
    }

    /// The state after transaction `t`, if all its reads hold in `store` and its versions follow.
    fn run(&self, t: usize, store: &BTreeMap<TableKey, RowState>) -> Option<BTreeMap<TableKey, RowState>> {
        let transaction = &self.history.transactions[t];
        let wrote = |place: &TableKey| transaction.writes.iter().any(|w| (&w.table, &w.key) == (&place.0, &place.1));
        if !claims(transaction).iter().all(|claim| self.holds(t, store, claim)) {
            return None;
        }
        for scan in &transaction.scans {
            for (place, _) in store.iter().filter(|(place, now)| now.since.1 && place.0 == scan.table) {
                let listed = scan.saw.iter().any(|(key, _)| *key == place.1);
                if inside(scan, &place.1) && !listed && !wrote(place) {
                    return None;
                }
            }
        }
        let mut after = store.clone();
        let mut writes: Vec<&Write> = transaction.writes.iter().collect();
        writes.sort_by_key(|w| w.version);
        for w in writes {
            let (place, groups) = ((w.table, w.key.clone()), self.groups(w.table));
            let version = Version::of(self.history, t, w);
            if !version.whole {
                // An update found the row that was there.
                let found = self.newest(&place, w.version, |version| version.whole)?;
                let there = store.get(&place).is_some_and(|now| now.since == (found.tid, true));
                if !(found.row && (found.writer == Some(t) || there)) {
                    return None;
                }
            }
            let none = RowState { since: (0, false), groups: vec![0; groups.len()] };
            let first = !after.contains_key(&place);
            let now = after.entry(place).or_insert(none);
            if version.whole {
                if !first && now.since.0 >= w.version {
                    return None;
                }
                now.since = (w.version, !w.deleted);
            }
            for (i, _) in groups.iter().enumerate().filter(|(_, group)| group.intersects(version.columns)) {
                if !first && now.groups[i] >= w.version {
                    return None;
                }
                now.groups[i] = w.version;
            }
        }
        Some(after)
    }
}

/// All reads of a transaction, point by point.
fn claims(t: &Transaction) -> Vec<Claim> {
    let reads = t.reads.iter().map(|r| ((r.table, r.key.clone()), r.columns, r.saw));
    let scans = t.scans.iter().flat_map(|s| s.saw.iter().map(|(key, saw)| ((s.table, key.clone()), s.columns, *saw)));
    reads.chain(scans).collect()
}

/// Changes one fact. The result may or may not be serializable.
fn mutate(rng: &mut Rng, history: &mut History, keys: u64) {
    let mut versions: Vec<u64> =
        history.transactions.iter().flat_map(|t| t.writes.iter().map(|w| w.version)).chain([1, 2, 3]).collect();
    versions.sort_unstable();
    versions.dedup();
    let version = versions[rng.below(versions.len() as u64) as usize];
    let any_saw = |rng: &mut Rng| match rng.below(6) {
        0 => Saw::Absent,
        1 => Saw::AbsentAt(version),
        2 => Saw::Hidden,
        _ => Saw::Row(version),
    };
    let n = history.transactions.len() as u64;
    let (a, b) = (rng.below(n) as usize, rng.below(n) as usize);
    let t = &mut history.transactions[a];
    let split = history.groups.iter().any(|groups| !groups.is_empty());
    match rng.below(if split { 12 } else { 10 }) {
        10 if !t.reads.is_empty() => {
            let at = rng.below(t.reads.len() as u64) as usize;
            t.reads[at].columns = columns(rng);
        }
        11 if !t.writes.is_empty() => {
            let at = rng.below(t.writes.len() as u64) as usize;
            t.writes[at].columns = rng.percent(80).then(|| columns(rng));
        }
        0 | 1 if !t.reads.is_empty() => {
            let at = rng.below(t.reads.len() as u64) as usize;
            t.reads[at].saw = any_saw(rng);
        }
        2 if !t.scans.is_empty() => {
            let at = rng.below(t.scans.len() as u64) as usize;
            let scan = &mut t.scans[at];
            let place = rng.below(scan.saw.len() as u64 + 1) as usize;
            if place < scan.saw.len() {
                scan.saw.remove(place);
            } else {
                let key = key(rng.below(keys));
                if inside(scan, &key) {
                    scan.saw.push((key, any_saw(rng)));
                }
            }
        }
        3 if !t.scans.is_empty() => {
            let at = rng.below(t.scans.len() as u64) as usize;
            t.scans[at].high = std::ops::Bound::Unbounded;
        }
        4 => t.reads.push(Read {
            table: TableId(0),
            key: key(rng.below(keys)),
            columns: columns(rng),
            saw: any_saw(rng),
        }),
        5 if !t.writes.is_empty() => {
            let at = rng.below(t.writes.len() as u64) as usize;
            t.writes[at].version = version;
        }
        6 if !t.writes.is_empty() => {
            let at = rng.below(t.writes.len() as u64) as usize;
            t.writes[at].deleted ^= true;
        }
        7 => {
            let (deleted, columns) = (rng.percent(30), rng.percent(50).then(|| columns(rng)));
            t.writes.push(Write { table: TableId(0), key: key(rng.below(keys)), version, deleted, columns });
        }
        8 if a != b => {
            let (low, high) = (a.min(b), a.max(b));
            let (left, right) = history.transactions.split_at_mut(high);
            std::mem::swap(&mut left[low].reads, &mut right[0].reads);
        }
        _ if a != b => {
            let (low, high) = (a.min(b), a.max(b));
            let (left, right) = history.transactions.split_at_mut(high);
            std::mem::swap(&mut left[low].began, &mut right[0].began);
            std::mem::swap(&mut left[low].ended, &mut right[0].ended);
        }
        _ => {}
    }
}

/// Partitions of three columns, the columns in no group being one more.
const GROUPS: [&[Columns]; 4] = [
    &[Columns::of(&[1])],
    &[Columns::of(&[0]), Columns::of(&[1, 2])],
    &[Columns::of(&[0]), Columns::of(&[1]), Columns::of(&[2])],
    &[Columns::ALL],
];

/// The outcome of one seed: serializable, or the name of the violation.
fn judge(seed: u64, by_groups: bool) -> Result<(), String> {
    let mut rng = Rng::from_seed(seed);
    let keys = rng.range(1, 4);
    let parameters = Parameters {
        transactions: rng.range(1, 6),
        operations: rng.range(1, 4),
        tables: rng.range(1, 2),
        keys,
        deletes: [0, 30, 70][rng.below(3) as usize],
        scans: [0, 30, 60][rng.below(3) as usize],
        precise: [0, 50, 100][rng.below(3) as usize],
        snapshots: [0, 0, 30][rng.below(3) as usize],
        initial: [0, 50][rng.below(2) as usize],
        spread: [0, 8, 30][rng.below(3) as usize],
        groups: if by_groups { GROUPS[rng.below(4) as usize] } else { &[] },
        by_group: by_groups && rng.percent(50),
    };
    let mut history = serial(&mut rng, parameters);
    let mutations = rng.below(4);
    (0..mutations).for_each(|_| mutate(&mut rng, &mut history, keys));
    if rng.percent(40) {
        // Some transactions promise less.
        for t in history.transactions.iter_mut().filter(|t| t.snapshot.is_none()) {
            let shown = t.ended.saturating_add([0, 0, 15, 100][rng.below(4) as usize]);
            t.group = rng.percent(80).then(|| Group { number: rng.below(3) as u32, shown });
        }
    }
    let unknown = rng.percent(25);
    if unknown {
        history.initial = Initial::Unknown;
    }
    let promises = [
        Promises::SERIALIZABLE,
        Promises::STRICT,
        Promises { real_time: true, ..Promises::SERIALIZABLE },
        Promises { snapshots: true, sessions: true, ..Promises::SERIALIZABLE },
    ][rng.below(4) as usize];
    if promises.sessions && history.transactions.iter().any(|a| overlaps(a, &history)) {
        // A session that runs two transactions at once has no order to promise.
        return Err("overlapping session".to_owned());
    }
    let brute = Brute::new(&history, &promises);
    let expected = brute.order();
    let found = check(&history, &promises);
    let story = || format!("seed {seed}, {promises:?}\n{}", text::dump(&history));
    assert!(expected.is_some() || mutations > 0 || unknown, "the simulation is serializable: {}", story());
    match (&expected, &found) {
        (Some(_), Ok(summary)) => {
            let mut store = brute.initial.clone();
            for (place, &t) in summary.order.iter().enumerate() {
                let after = brute.run(t as usize, &store);
                store = after.unwrap_or_else(|| panic!("the order {:?} explains nothing: {}", summary.order, story()));
                let late = |a: usize| summary.order[place..].contains(&(a as u32));
                let broken = brute.promised.iter().any(|&(a, b)| b == t as usize && late(a));
                assert!(!broken, "the order {:?} breaks a promise: {}", summary.order, story());
            }
            assert_eq!(summary.order.len(), history.transactions.len());
            Ok(())
        }
        (None, Err(violation)) => {
            for (step, next) in violation.cycle.iter().zip(violation.cycle.iter().cycle().skip(1)) {
                assert_eq!(step.to, next.from, "{violation}\n{}", story());
            }
            Err(violation.anomaly.name().to_owned())
        }
        (Some(order), Err(violation)) => panic!("false alarm, {order:?} is an order: {violation}\n{}", story()),
        (None, Ok(summary)) => panic!("missed, {:?} is no order: {}", summary.order, story()),
    }
}

fn overlaps(a: &Transaction, history: &History) -> bool {
    let others = history.transactions.iter().filter(|b| b.session == a.session && b.id != a.id);
    others.clone().any(|b| a.began < b.ended && b.began < a.ended || (a.began, a.ended) == (b.began, b.ended))
}

/// Judges many seeds: how many were accepted, and the others by name.
fn judge_all(by_groups: bool, seeds: u64) -> (u64, BTreeMap<String, u64>) {
    let random = rng::seed("judge_all");
    println!("seeds 0..{seeds} and {random}..+10000");
    let mut accepted = 0;
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    for seed in (0..seeds).chain((0..10_000).map(|i| random.wrapping_add(i))) {
        match judge(seed, by_groups) {
            Ok(()) => accepted += 1,
            Err(name) => *refused.entry(name).or_default() += 1,
        }
    }
    println!("accepted {accepted}, refused {refused:?}");
    (accepted, refused)
}

/// The mix is worth its time only if every outcome is common enough.
fn is_a_mix(refused: &BTreeMap<String, u64>) {
    for name in ["lost update (G-single)", "phantom (G2)", "write skew (G2-item)", "aborted read (G1a)", "missing row"]
    {
        assert!(refused.get(name).is_some_and(|&count| count > rng::tries(15, 50)), "{name}: {refused:?}");
    }
}

#[test]
fn agrees_with_trying_all_orders() {
    let (accepted, refused) = judge_all(false, rng::tries(20_000, 150_000));
    assert!(accepted > rng::tries(5_000, 15_000), "{accepted}");
    is_a_mix(&refused);
}

#[test]
fn agrees_with_trying_all_orders_where_column_groups_are_kept_apart() {
    let (accepted, refused) = judge_all(true, rng::tries(15_000, 100_000));
    assert!(accepted > rng::tries(3_000, 10_000), "{accepted}");
    is_a_mix(&refused);
}

/// Longer simulated histories are accepted under every promise, and dumping and loading them changes nothing.
#[test]
fn serial_executions_are_accepted() {
    let random = rng::seed("serial_executions_are_accepted");
    println!("seeds 0..100 and {random}..+50");
    for seed in (0..100).chain((0..50).map(|i| random.wrapping_add(i))) {
        let mut rng = Rng::from_seed(seed);
        let parameters = Parameters {
            transactions: 300,
            operations: 8,
            tables: 2,
            keys: rng.range(2, 40),
            deletes: [5, 30, 70][rng.below(3) as usize],
            scans: [0, 30, 60][rng.below(3) as usize],
            precise: [0, 50, 100][rng.below(3) as usize],
            snapshots: [0, 20][rng.below(2) as usize],
            initial: 50,
            spread: [0, 15, 100, 900][rng.below(4) as usize],
            groups: if rng.percent(50) { GROUPS[rng.below(4) as usize] } else { &[] },
            by_group: rng.percent(50),
        };
        let mut history = serial(&mut rng, parameters);
        if rng.percent(30) {
            history.initial = Initial::Unknown;
        }
        for promises in [Promises::STRICT, Promises::SERIALIZABLE] {
            let summary = check(&history, &promises).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
            assert_eq!(summary.order.iter().collect::<BTreeSet<_>>().len(), 300);
        }
        assert_eq!(text::load(&text::dump(&history)).expect("a dump can be loaded"), history, "seed {seed}");
    }
}

/// An anomaly planted at the end of a long serializable history is found, and named.
#[test]
fn planted_anomalies_are_found() {
    let random = rng::seed("planted_anomalies_are_found");
    println!("seeds {random}..+50");
    for seed in (0..50).map(|i| random.wrapping_add(i)) {
        let mut rng = Rng::from_seed(seed);
        let parameters = Parameters {
            transactions: 200,
            operations: 6,
            tables: 1,
            keys: 20,
            deletes: 30,
            scans: 20,
            precise: 50,
            snapshots: 10,
            initial: 50,
            spread: 40,
            groups: &[],
            by_group: false,
        };
        let clean = serial(&mut rng, parameters);
        // Over fresh keys, concurrent with one another and with some of the others.
        let t = |id| Transaction::new(id).during(2000, 3000);
        let plants: [(&str, Vec<Transaction>); 7] = [
            (
                "dirty write (G0)",
                vec![t(900).write(9, "x", 1).write(9, "y", 2), t(901).write(9, "x", 2).write(9, "y", 1)],
            ),
            ("aborted read (G1a)", vec![t(900).read(9, "x", Saw::Row(77))]),
            (
                "circular information flow (G1c)",
                vec![
                    t(900).write(9, "x", 1).read(9, "y", Saw::Row(1)),
                    t(901).write(9, "y", 1).read(9, "x", Saw::Row(1)),
                ],
            ),
            (
                "lost update (G-single)",
                vec![
                    t(900).read(9, "x", Saw::Absent).write(9, "x", 1),
                    t(901).read(9, "x", Saw::Absent).write(9, "x", 2),
                ],
            ),
            (
                "write skew (G2-item)",
                vec![
                    t(900).read(9, "x", Saw::Absent).write(9, "y", 1),
                    t(901).read(9, "y", Saw::Absent).write(9, "x", 1),
                ],
            ),
            (
                "phantom (G2)",
                vec![t(900).scan(9, "x", "y", &[]).write(9, "a", 1), t(901).scan(9, "a", "b", &[]).write(9, "x", 1)],
            ),
            (
                "stale read (real-time order)",
                vec![t(900).write(9, "x", 1), Transaction::new(901).during(3001, 3002).read(9, "x", Saw::Absent)],
            ),
        ];
        for (name, planted) in plants {
            let mut history = clean.clone();
            history.transactions.extend(planted);
            rng.shuffle(&mut history.transactions);
            let violation = check(&history, &Promises { sessions: false, ..Promises::STRICT });
            let violation = violation.expect_err("the planted anomaly");
            assert_eq!(violation.anomaly.name(), name, "seed {seed}: {violation}");
            assert!(violation.transactions.iter().all(|&id| id >= 900), "seed {seed}: {violation}");
        }
    }
}
