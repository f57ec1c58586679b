//! Turns a history with column groups into an ordinary one: each group of a row becomes a row of its own.
//!
//! A table with groups stands for several tables. Its own number keeps the keys, which say whether there is a
//! row: insertions and deletions write them, and every read and update reads them. Each group has a further
//! table. It is written by every change of a column of the group, insertions and deletions among them, and
//! read by every use of one. So version order, reads-from and anti-dependencies are those of items (key,
//! group), and scans see only that rows come and go. The verdict of the other modules on this history is the
//! verdict on the original one.
//!
//! An addition is one more item, in a table of its group's additions. A reader of the group found the additions at or
//! below the version that it names, and not the later ones. A writer of the group found those below its version. So
//! additions have no order among themselves, and with everything else the order that their versions say.
//!
//! A read names the version of the row, which may be due to a change of other columns. In each group it saw
//! the newest version at or below that one.

use crate::anomaly::{Anomaly, Violation};
use crate::text::version;
use crate::{Addition, Columns, History, Initial, InitialRow, Key, Read, Saw, Transaction, Write};
use seriatim_base::TableId;
use std::collections::{HashMap, HashSet};

type TableKey<'h> = (TableId, &'h Key);

/// A table whose groups are kept apart.
struct Split {
    /// The columns of each group.
    groups: Vec<Columns>,
    /// The table of the first group. The tables of the other groups follow, and then one for the additions to
    /// each group.
    first: u32,
}

/// The history of a row.
#[derive(Default)]
struct Row {
    /// The row that was there before the history.
    initial: Option<u64>,
    /// Every version, ascending.
    versions: Vec<u64>,
    /// Versions that are insertions or deletions, ascending, and whether there is a row since.
    existence: Vec<(u64, bool)>,
    /// By group, the versions that changed it, ascending.
    groups: Vec<Vec<u64>>,
    /// By group, the additions to it, ascending, each with its transaction ([`by`]).
    added: Vec<Vec<(u64, u64)>>,
}

/// The newest of some ascending versions at or below `at`.
fn newest<T: Copy>(versions: &[T], of: impl Fn(&T) -> u64, at: u64) -> Option<T> {
    versions[..versions.partition_point(|found| of(found) <= at)].last().copied()
}

/// The history of items that a history with column groups stands for.
pub(crate) fn split(history: &History) -> Result<History, Violation> {
    let mut tables = history.tables.clone();
    let splits = splits(history, &mut tables)?;
    let rows = rows(history, &splits);
    let mut initial = Vec::new();
    for (&(table, key), row) in &rows {
        let Some(version) = row.initial else { continue };
        let mut push = |table| initial.push(InitialRow { table, key: key.clone(), version });
        push(table);
        if let Some(split) = splits.get(&table) {
            (0..split.groups.len()).for_each(|group| push(split.table(group)));
        }
    }
    // A row that is listed twice stays listed twice, so that it is refused later.
    if let Initial::Rows(listed) = &history.initial {
        let mut seen: HashSet<TableKey<'_>> = HashSet::new();
        initial.extend(listed.iter().filter(|row| !seen.insert((row.table, &row.key))).cloned());
    }
    initial.sort_unstable_by(|a, b| (a.table, &a.key, a.version).cmp(&(b.table, &b.key, b.version)));
    let maker = Maker { history, splits: &splits, rows: &rows };
    let transactions: Result<_, Violation> = history.transactions.iter().map(|t| maker.transaction(t)).collect();
    Ok(History { tables, groups: Vec::new(), initial: Initial::Rows(initial), transactions: transactions? })
}

impl Split {
    fn table(&self, group: usize) -> TableId {
        TableId(self.first + group as u32)
    }

    fn additions(&self, group: usize) -> TableId {
        self.table(self.groups.len() + group)
    }

    /// The groups that columns are of.
    fn of(&self, columns: Columns) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups.len()).filter(move |&group| self.groups[group].intersects(columns))
    }
}

/// The tables that are split, with names for their groups.
fn splits(history: &History, tables: &mut Vec<String>) -> Result<HashMap<TableId, Split>, Violation> {
    let of_facts = history.transactions.iter().flat_map(|t| {
        let reads = t.reads.iter().map(|r| r.table).chain(t.scans.iter().map(|s| s.table));
        reads.chain(t.writes.iter().map(|w| w.table)).chain(t.additions.iter().map(|a| a.table))
    });
    let of_rows = match &history.initial {
        Initial::Rows(rows) => &rows[..],
        Initial::Empty | Initial::Unknown => &[],
    };
    let highest = of_facts.chain(of_rows.iter().map(|row| row.table)).map(|table| table.0).max().unwrap_or(0);
    let mut first = (tables.len().max(history.groups.len()) as u32).max(highest.saturating_add(1));
    let mut splits = HashMap::new();
    for (number, groups) in history.groups.iter().enumerate().filter(|(_, groups)| !groups.is_empty()) {
        let (table, mut all) = (TableId(number as u32), Columns::NONE);
        let mut columns: Vec<Columns> = Vec::new();
        for &group in groups {
            if group == Columns::NONE || all.intersects(group) {
                let name = history.table_name(table);
                let text = format!("the column groups of {name} overlap, or one is empty: each column is of one group");
                return Err(Violation::of_claim(Anomaly::Malformed, Vec::new(), text));
            }
            all = all.union(group);
            columns.push(group);
        }
        // The columns of no listed group form one more.
        columns.extend(Some(all.others()).filter(|rest| *rest != Columns::NONE));
        let Some(end) = first.checked_add(2 * columns.len() as u32) else {
            let text = format!("table {highest}: too high a number where column groups are tables of their own");
            return Err(Violation::of_claim(Anomaly::Malformed, Vec::new(), text));
        };
        splits.insert(table, Split { groups: columns, first });
        first = end;
    }
    // Only split tables need names here, and their numbers may be far above the others.
    let named: Vec<(TableId, String)> = splits
        .iter()
        .flat_map(|(&table, split)| (0..split.groups.len()).map(move |group| (table, split, group)))
        .flat_map(|(table, split, group)| {
            let listed = history.groups[table.index()].get(group);
            let columns = listed.map_or("others".to_owned(), Columns::to_string);
            let name = format!("{}[{columns}]", history.table_name(table));
            [(split.additions(group), format!("{name}+")), (split.table(group), name)]
        })
        .collect();
    for (table, name) in named.into_iter().filter(|(table, _)| table.index() < 1 << 20) {
        if tables.len() <= table.index() {
            (tables.len()..=table.index()).for_each(|number| tables.push(format!("t{number}")));
        }
        tables[table.index()] = name;
    }
    Ok(splits)
}

/// Every row in the history.
fn rows<'h>(history: &'h History, splits: &HashMap<TableId, Split>) -> HashMap<TableKey<'h>, Row> {
    let mut rows: HashMap<TableKey<'h>, Row> = HashMap::new();
    // By key, whether its first write is an update, which found a row.
    for write in history.transactions.iter().flat_map(|t| &t.writes) {
        let row = rows.entry((write.table, &write.key)).or_default();
        row.versions.push(write.version);
        let Some(split) = splits.get(&write.table) else { continue };
        row.groups.resize_with(split.groups.len(), Vec::new);
        if write.is_whole() {
            row.existence.push((write.version, !write.deleted));
        }
        split.of(write.changed()).for_each(|group| row.groups[group].push(write.version));
    }
    for (t, addition) in history.transactions.iter().flat_map(|t| t.additions.iter().map(move |addition| (t, addition)))
    {
        let row = rows.entry((addition.table, &addition.key)).or_default();
        row.versions.push(addition.version);
        let Some(split) = splits.get(&addition.table) else { continue };
        row.added.resize_with(split.groups.len(), Vec::new);
        split.of(addition.columns).for_each(|group| row.added[group].push((addition.version, by(t, addition))));
    }
    for row in rows.values_mut() {
        row.added.iter_mut().for_each(|versions| versions.sort_unstable());
        row.versions.sort_unstable();
        row.existence.sort_unstable();
        row.groups.iter_mut().for_each(|versions| versions.sort_unstable());
    }
    match &history.initial {
        Initial::Empty => {}
        Initial::Rows(listed) => {
            for initial in listed {
                rows.entry((initial.table, &initial.key)).or_default().initial.get_or_insert(initial.version);
            }
        }
        Initial::Unknown => {
            for t in &history.transactions {
                let reads = t.reads.iter().map(|r| (r.table, &r.key, r.saw));
                let scans = t.scans.iter().flat_map(|s| s.saw.iter().map(|(key, saw)| (s.table, key, *saw)));
                for (table, key, saw) in reads.chain(scans) {
                    let Saw::Row(version) = saw else { continue };
                    let row = rows.entry((table, key)).or_default();
                    if row.versions.first().is_none_or(|&least| version < least) {
                        row.initial.get_or_insert(version);
                    }
                }
            }
            // The initial row that the first update of a key found, where no transaction read it.
            for ((table, _), row) in &mut rows {
                let first = row.versions.first().filter(|_| splits.contains_key(table));
                if first.is_some_and(|first| row.existence.first().is_none_or(|(whole, _)| whole > first)) {
                    row.initial.get_or_insert(0);
                }
            }
        }
    }
    rows
}

struct Maker<'a, 'h> {
    history: &'h History,
    splits: &'a HashMap<TableId, Split>,
    rows: &'a HashMap<TableKey<'h>, Row>,
}

impl Maker<'_, '_> {
    fn transaction(&self, t: &Transaction) -> Result<Transaction, Violation> {
        let (reads, scans, writes, additions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut items = Transaction { reads, scans, writes, additions, ..*t };
        for read in &t.reads {
            let saw = self.existence(read.table, &read.key, read.saw);
            items.reads.push(Read { table: read.table, key: read.key.clone(), columns: Columns::ALL, saw });
            self.read_groups(t, &mut items, (read.table, &read.key), read.columns, read.saw);
        }
        for scan in &t.scans {
            let mut rows = scan.clone();
            for (key, saw) in &mut rows.saw {
                self.read_groups(t, &mut items, (scan.table, key), scan.columns, *saw);
                *saw = self.existence(scan.table, key, *saw);
            }
            // The scan does not claim that a key that its transaction wrote, and that it does not list, is
            // absent.
            if self.splits.contains_key(&scan.table) {
                let updates = t.writes.iter().filter(|w| !w.is_whole()).map(|w| (w.table, &w.key));
                let own = updates.chain(t.additions.iter().map(|a| (a.table, &a.key)));
                for (_, own) in own.filter(|(table, key)| *table == scan.table && scan.contains(key)) {
                    if !rows.saw.iter().any(|(key, _)| key == own) {
                        rows.saw.push((own.clone(), Saw::Hidden));
                    }
                }
            }
            items.scans.push(rows);
        }
        for write in &t.writes {
            self.write(t, &mut items, write)?;
        }
        for addition in &t.additions {
            self.add(t, &mut items, addition)?;
        }
        Ok(items)
    }

    /// Adds the read, or overwriting, of a group at a version. These are the version at which the group was set, and
    /// the additions since then up to the next such version. Additions above the version were not found.
    fn saw_group(&self, items: &mut Transaction, (split, group): (&Split, usize), key: &Key, row: &Row, at: u64) {
        let (groups, added) = (row.groups.get(group), row.added.get(group));
        let set = groups.and_then(|versions| newest(versions, |&version| version, at)).or(row.initial);
        let next = groups.and_then(|versions| versions.get(versions.partition_point(|&version| version <= at)));
        if let Some(version) = set {
            let (table, saw) = (split.table(group), Saw::Row(version));
            items.reads.push(Read { table, key: key.clone(), columns: Columns::ALL, saw });
        }
        let since = |version: u64| set.is_none_or(|set| set < version) && next.is_none_or(|next| version < *next);
        for &(version, id) in added.into_iter().flatten().filter(|(version, _)| since(*version)) {
            let (table, key) = (split.additions(group), addition_key(key, version, id));
            let saw = if version <= at { Saw::Row(version) } else { Saw::AbsentAt(0) };
            items.reads.push(Read { table, key, columns: Columns::ALL, saw });
        }
    }

    /// An addition found a row, and the version at which its group was set last.
    fn add(&self, t: &Transaction, items: &mut Transaction, addition: &Addition) -> Result<(), Violation> {
        let Addition { table, ref key, version: at, columns, .. } = *addition;
        let Some(split) = self.splits.get(&table) else {
            return self.write(
                t,
                items,
                &Write { table, key: key.clone(), version: at, deleted: false, columns: None },
            );
        };
        let reads = t.reads.iter().map(|read| (read.table, &read.key, read.columns, read.saw));
        let scans = t.scans.iter();
        let scans = scans.flat_map(|scan| scan.saw.iter().map(|(key, saw)| (scan.table, key, scan.columns, *saw)));
        for (_, _, used, saw) in reads.chain(scans).filter(|(of, at, ..)| (*of, *at) == (table, key)) {
            if let Saw::Row(seen) = saw
                && seen > at
                && split.of(columns).any(|group| split.of(used).any(|other| other == group))
            {
                let name = format!("{}/{key}", self.history.table_name(table));
                let (v, w) = (version(seen), version(at));
                let text = format!("T{} read {name} at version {v} and then added to it at version {w}", t.id);
                return Err(Violation::of_claim(Anomaly::VersionOrder, vec![t.id], text));
            }
        }
        let row = &self.rows[&(table, key)];
        for group in split.of(columns) {
            let sets = row.groups.get(group);
            if sets.is_some_and(|versions| versions.binary_search(&at).is_ok()) {
                let name = format!("{}/{key}", self.history.table_name(table));
                let text = format!("T{} added to {name} at version {}, at which it was set", t.id, version(at));
                return Err(Violation::of_claim(Anomaly::DuplicateVersion, vec![t.id], text));
            }
            if let Some(set) = sets.and_then(|versions| newest(versions, |&version| version, at)).or(row.initial) {
                let (table, saw) = (split.table(group), Saw::Row(set));
                items.reads.push(Read { table, key: key.clone(), columns: Columns::ALL, saw });
            }
            let (table, key) = (split.additions(group), addition_key(key, at, by(t, addition)));
            items.writes.push(Write { table, key, version: at, deleted: false, columns: None });
        }
        self.found_row(t, items, (table, key), at)
    }

    /// Whether a read saw a row at a key.
    fn existence(&self, table: TableId, key: &Key, saw: Saw) -> Saw {
        let Saw::Row(at) = saw else { return saw };
        let row = self.rows.get(&(table, key)).filter(|_| self.splits.contains_key(&table));
        // A version that is not the row's stays as it is, so that it is refused later.
        let known = row.filter(|row| row.initial == Some(at) || row.versions.binary_search(&at).is_ok());
        known.and_then(|row| row.existence_at(at)).map_or(saw, |(version, _)| Saw::Row(version))
    }

    /// Adds what was seen of the groups of a row.
    fn read_groups(
        &self,
        t: &Transaction,
        items: &mut Transaction,
        (table, key): (TableId, &Key),
        columns: Columns,
        saw: Saw,
    ) {
        let (Some(split), Saw::Row(at)) = (self.splits.get(&table), saw) else { return };
        let Some(row) = self.rows.get(&(table, key)) else { return };
        // A version that the transaction itself wrote says nothing.
        if t.additions.iter().any(|own| (own.table, &own.key, own.version) == (table, key, at)) {
            return;
        }
        split.of(columns).for_each(|group| self.saw_group(items, (split, group), key, row, at));
    }

    fn write(&self, t: &Transaction, items: &mut Transaction, write: &Write) -> Result<(), Violation> {
        let Write { table, ref key, version: at, deleted, .. } = *write;
        let whole = |table| Write { table, key: key.clone(), version: at, deleted, columns: None };
        let Some(split) = self.splits.get(&table) else {
            items.writes.push(whole(table));
            return Ok(());
        };
        let row = &self.rows[&(table, key)];
        for group in split.of(write.changed()) {
            items.writes.push(whole(split.table(group)));
            // A write comes after the additions that it overwrites.
            if row.added.get(group).is_some_and(|added| !added.is_empty()) {
                self.saw_group(items, (split, group), key, row, at - 1);
            }
        }
        if write.is_whole() {
            items.writes.push(whole(table));
            return Ok(());
        }
        self.found_row(t, items, (table, key), at)
    }

    /// An update found a row: the one that was inserted last.
    fn found_row(
        &self,
        t: &Transaction,
        items: &mut Transaction,
        (table, key): (TableId, &Key),
        at: u64,
    ) -> Result<(), Violation> {
        match self.rows[&(table, key)].existence_at(at) {
            Some((found, true)) => {
                items.reads.push(Read { table, key: key.clone(), columns: Columns::ALL, saw: Saw::Row(found) });
                Ok(())
            }
            found => {
                let name = format!("{}/{key}", self.history.table_name(table));
                let why = match found {
                    Some((deleted, _)) => format!("the row was deleted at version {}", version(deleted)),
                    None => "no committed transaction inserted the row".to_owned(),
                };
                let anomaly = if found.is_some() { Anomaly::LostUpdate } else { Anomaly::AbortedRead };
                let text = format!("T{} updated {name} at version {}, but {why}", t.id, version(at));
                Err(Violation::of_claim(anomaly, vec![t.id], text))
            }
        }
    }
}

/// The transaction of a deferred addition, whose version other additions may share; else 0.
fn by(t: &Transaction, addition: &Addition) -> u64 {
    if addition.deferred { t.id } else { 0 }
}

/// The key of an addition in the table of its group's additions. Keys are distinct, since all end with as many
/// bytes.
fn addition_key(key: &Key, version: u64, id: u64) -> Key {
    Key::new(&[key.bytes(), &version.to_be_bytes()[..], &id.to_be_bytes()[..]].concat())
}

impl Row {
    /// The newest insertion or deletion at or below a version, and whether there is a row since.
    fn existence_at(&self, at: u64) -> Option<(u64, bool)> {
        newest(&self.existence, |&(version, _)| version, at).or(self.initial.map(|version| (version, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Promises, check, text};

    const NONE: fn(&mut Transaction) = |_| {};

    /// Canaries: facts of each kind decide some history, which would pass without them.
    #[test]
    fn each_kind_of_fact_that_items_add_is_needed() {
        let updates: fn(&mut Transaction) = |t| t.writes.retain(|w| w.table == TableId(0));
        let columns: fn(&mut Transaction) = |t| t.reads.retain(|r| r.table == TableId(0));
        let rows: fn(&mut Transaction) = |t| t.reads.retain(|r| r.table != TableId(0));
        let deletions: fn(&mut Transaction) = |t| t.writes.retain(|w| w.table != TableId(0) || !w.deleted);
        let hidden: fn(&mut Transaction) = |t| t.scans.iter_mut().for_each(|scan| scan.saw.clear());
        let is_refused = |[first, second]: [&str; 2], left_out: fn(&mut Transaction)| {
            let of = |id, facts| format!("transaction {id} session 0 from 0 to ?\n{facts}\n");
            let start = "history 1\ngroup 0 columns 1\ninitial 0 x 1\ninitial 0 y 1\n";
            let history = text::load(&format!("{start}{}{}", of(1, first), of(2, second))).expect("a history");
            let mut items = split(&history).expect("well formed");
            assert_eq!(check(&history, &Promises::SERIALIZABLE), check(&items, &Promises::SERIALIZABLE));
            items.transactions.iter_mut().for_each(left_out);
            check(&items, &Promises::SERIALIZABLE).is_err()
        };
        let order = ["write 0 x 2 columns 1\nwrite 0 y 3 columns 1", "write 0 x 3 columns 1\nwrite 0 y 2 columns 1"];
        let flow = ["write 0 x 2 columns 1\nread 0 y 2 columns 1", "write 0 y 2 columns 1\nread 0 x 2 columns 1"];
        let skew = ["read 0 x 1 columns 1\nwrite 0 y 2 columns 1", "read 0 y 1 columns 1\nwrite 0 x 2 columns 1"];
        let deletion = ["read 0 x 1 columns none\nwrite 0 y 2 columns 1", "read 0 y 1 columns 1\ndelete 0 x 2"];
        let update = ["delete 0 x 3\nwrite 0 y 2 columns 1", "read 0 y 2 columns 1\nwrite 0 x 2 columns none"];
        let cases = [
            ("version order of columns", order, updates),
            ("reads of columns", flow, columns),
            ("overwritten reads of columns", skew, columns),
            ("reads of whether there is a row", deletion, rows),
            ("deletions", deletion, deletions),
            ("what updates find", update, rows),
        ];
        for (kind, facts, left_out) in cases {
            assert!(is_refused(facts, NONE), "{kind}: refused");
            assert!(!is_refused(facts, left_out), "{kind}: it is these facts that refuse it");
        }
        let scan = ["write 0 x 2 columns 1\nscan 0 [x x]", ""];
        assert!(!is_refused(scan, NONE), "a scan under an update of its own");
        assert!(is_refused(scan, hidden), "is told to be so");
    }
}
