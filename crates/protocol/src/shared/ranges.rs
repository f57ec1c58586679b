//! Ranges that are looked at again: a leaf that has changed refutes a scan only if the part of the range in
//! it has changed.
//!
//! A node version belongs to a leaf, which also holds keys outside of the scanned range, and behind the last row that
//! was requested. So a worker that takes notes ([`super::rebase`]) notes each leaf that a scan reads. A note has the
//! part of the range in the leaf and its records. When the leaf has changed, that part is scanned again, as far as the
//! transaction looked. If it holds the same records, the entry of the node set takes the new node version. The commit
//! is tried again, and decides as usual. The read set covers the contents of the records.
//!
//! Leaves that come into a part when it is scanned again are entries without notes.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use seriatim_base::thread::Touch;
use seriatim_catalog::{Key, KeyBuf, KeyClass};
use seriatim_store::{Cursor, Direction, RecordPtr, read_key};
use seriatim_txn::{OpError, Scan, Table};

use super::optimistic::{NodeSetEntry, Optimistic};
use super::origin::Origin;
use super::rebase::Renumbering;
use super::table_ref::TableRef;
use super::writes::{Link, WriteSet};

/// Leaves of an attempt that are noted. (Those that a long scan reads later refute it as soon as they change.)
const PARTS_MAX: usize = 64;

/// The part of a range that one leaf held.
#[derive(Debug)]
struct ScannedPart {
    table: TableRef,
    /// The index of its node-set entry.
    entry: usize,
    direction: Direction,
    low: Bound<KeyBuf>,
    high: Bound<KeyBuf>,
    /// Where its records begin and end.
    records: (usize, usize),
    /// How many of them the transaction looked at; `None`: at all, and that there are no more.
    looked: Option<usize>,
}

/// The notes of an attempt, by entry of the node set.
#[derive(Debug, Default)]
pub struct Ranges {
    parts: Vec<ScannedPart>,
    records: Vec<RecordPtr>,
    /// For looking again.
    cursor: Cursor,
    again: Vec<RecordPtr>,
}

impl Ranges {
    pub fn clear(&mut self) {
        self.parts.clear();
        self.records.clear();
    }

    /// Removes entries of the node set. Scans do not continue.
    pub(super) fn retain(&mut self, stays: impl Fn(usize) -> bool) {
        let mut numbers = Renumbering::new(stays);
        self.parts.retain_mut(|part| numbers.of(part.entry).map(|entry| part.entry = entry).is_some());
    }

    fn part(&mut self, note: u32) -> Option<&mut ScannedPart> {
        self.parts.get_mut((note as usize).wrapping_sub(1))
    }

    /// The transaction uses this many of the records of the scan's current leaf.
    #[inline]
    pub fn look(&mut self, scan: &Scan) {
        if scan.note != 0
            && let Some(ScannedPart { looked: Some(looked), .. }) = self.part(scan.note)
        {
            *looked = scan.next.max(*looked);
        }
    }

    /// The transaction requests more than the scan's current leaf has.
    #[inline]
    pub fn exhaust(&mut self, scan: &Scan) {
        if scan.note != 0
            && let Some(part) = self.part(scan.note)
        {
            part.looked = None;
        }
    }
}

impl<O: Origin> Optimistic<O> {
    /// As [`Optimistic::next_leaf`], and notes the part of the range in the leaf.
    #[inline(never)]
    pub(super) fn next_leaf_noted(&mut self, table: &Table, scan: &mut Scan) -> Result<bool, OpError> {
        let class = table.class;
        let part = |cursor: &Cursor| cursor.ahead(class).map(|(low, high)| (owned(low), owned(high)));
        let before = part(&scan.cursor).filter(|_| self.base.writes.deferred.is_empty());
        scan.note = 0;
        // One note for each leaf.
        scan.cursor.show_whole_leaves();
        if !self.next_leaf(table, scan) {
            return Ok(false);
        }
        let entry = self.node_set.len();
        self.note_node_version(table, scan.cursor.node_version())?;
        let ranges = &mut self.bases.ranges;
        let Some((mut low, mut high)) = before else { return Ok(true) };
        if self.node_set.len() == entry || ranges.parts.len() == PARTS_MAX {
            return Ok(true);
        }
        let direction = scan.cursor.direction();
        if let Some((next_low, next_high)) = part(&scan.cursor) {
            match direction {
                Direction::Forward => high = up_to(next_low),
                Direction::Backward => low = up_to(next_high),
            }
        }
        let first = ranges.records.len();
        ranges.records.extend_from_slice(scan.cursor.records());
        let records = (first, ranges.records.len());
        ranges.parts.push(ScannedPart { table: table.into(), entry, direction, low, high, records, looked: Some(0) });
        scan.note = ranges.parts.len() as u32;
        Ok(true)
    }

    /// Moves an entry of the node set to the newest node version of its leaf. It does so if it `may`, and if the leaf
    /// has changed only outside of the used part. Returns whether there was a newer one; `None` if that part has
    /// changed, or was not noted. While the attempt does not commit yet, its scans may continue in the records that
    /// they hold of a leaf. Then all of these count as used.
    pub(super) fn rebase_range(&mut self, entry: usize, may: bool, commits: bool) -> Option<bool> {
        // SAFETY: as in `node_set_failure`.
        let word = unsafe { &*self.node_set[entry].node_version.address() };
        crate::step(Touch::Node, word);
        if word.load(Ordering::Acquire) == self.node_set[entry].node_version.value() {
            return Some(false);
        }
        let part = self.bases.ranges.parts.binary_search_by_key(&entry, |part| part.entry).ok()?;
        (may && self.is_unchanged(part, commits)).then_some(true)
    }

    /// Looks at a part again, as far as the transaction did or whole. If its records are the same, the node
    /// set has the node versions that say so.
    fn is_unchanged(&mut self, part: usize, commits: bool) -> bool {
        let Optimistic { base, node_set, bases, .. } = self;
        let Ranges { parts, records, cursor, again } = &mut bases.ranges;
        let ScannedPart { table, entry, direction, low, high, records: (first, last), looked } = &parts[part];
        let looked = looked.filter(|_| commits);
        let (table, pin) = (table.get(), base.core.local.pinned());
        let seen = &records[*first..looked.map_or(*last, |looked| first + looked)];
        let (mut low, mut high) = (low.as_ref().map(KeyBuf::as_key), high.as_ref().map(KeyBuf::as_key));
        if let (Some(_), Some(&record)) = (looked, seen.last()) {
            let last = Bound::Included(key_of(record, table.class));
            match direction {
                Direction::Forward => high = last,
                Direction::Backward => low = last,
            }
        }
        if table.index.scan(low, high, *direction, cursor).is_err() {
            return false;
        }
        cursor.show_whole_leaves();
        again.clear();
        let (before, len) = (node_set[*entry], node_set.len());
        let NodeSetEntry { table: id, by, .. } = before;
        let mut leaves = 0;
        let leaf_hint = base.leaf_hints.of(table, &cursor.near_key(table.class));
        while table.index.next_leaf(cursor, leaf_hint, pin) {
            again.extend_from_slice(cursor.records());
            let found = NodeSetEntry { node_version: cursor.node_version(), table: id, by };
            match leaves {
                0 => node_set[*entry] = found,
                _ => node_set.push(found),
            }
            leaves += 1;
        }
        let others =
            |records: &[RecordPtr]| records.iter().copied().filter(|record| !is_own(&base.writes, *record)).collect();
        let (seen, again): (Vec<_>, Vec<_>) = (others(seen), others(again));
        let is_same = leaves > 0 && seen == again;
        if !is_same {
            node_set[*entry] = before;
            node_set.truncate(len);
        }
        is_same
    }
}

/// Whether the attempt has linked the record.
fn is_own<O: Origin>(writes: &WriteSet<O>, record: RecordPtr) -> bool {
    writes.find(record).is_some_and(|at| writes.entries()[at].link == Link::Own)
}

fn owned(bound: Bound<Key<'_>>) -> Bound<KeyBuf> {
    bound.map(KeyBuf::from)
}

/// The end of a range behind which one begins at `next`.
fn up_to(next: Bound<KeyBuf>) -> Bound<KeyBuf> {
    match next {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn key_of<'t>(record: RecordPtr, class: KeyClass) -> Key<'t> {
    // SAFETY: it was linked when the leaf was read, and the worker has been online since. Key words of a record that
    // was linked never change.
    unsafe { read_key(record, class) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use seriatim_base::{Rng, rng};
    use seriatim_catalog::ColumnSet;
    use seriatim_htm::HtmMode;
    use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, Outcome, Priority, Protocol, Worker as _};

    use super::*;
    use crate::common::Bench;
    use crate::silo::Silo;

    type Worker = <Silo as Protocol>::Worker;

    /// The key that each attempt changes, so that it is one that writes: above all others.
    const OWN: u64 = 1_000_000;

    /// Rows at 0, 10, 20, ...: several leaves of them.
    fn bench() -> Bench<Silo> {
        let bench = Bench::<Silo>::empty(HtmMode::Absent, &["id"]);
        transact(&bench, |worker| (0..ROWS).map(|row| row * 10).chain([OWN]).for_each(|id| insert(&bench, worker, id)));
        bench
    }

    const ROWS: u64 = 64;

    fn insert(bench: &Bench<Silo>, worker: &mut Worker, id: u64) {
        let staged = worker.stage(&bench.cells).expect("memory");
        bench.set(staged.row, id as i64);
        assert_eq!(worker.insert(&bench.cells, Key::Word8(id), staged, OnExists::Refuse), Ok(Inserted::New));
    }

    fn transact(bench: &Bench<Silo>, work: impl FnOnce(&mut Worker)) {
        let mut worker = bench.worker();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        work(&mut worker);
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    }

    /// The rows between two keys, the latter excluded; at most this many.
    fn rows(
        bench: &Bench<Silo>,
        worker: &mut Worker,
        range: (u64, u64),
        direction: Direction,
        most: usize,
    ) -> Vec<i64> {
        let mut scan = Scan::default();
        begin(bench, &mut scan, range, direction);
        go_on(bench, worker, &mut scan, most)
    }

    fn begin(bench: &Bench<Silo>, scan: &mut Scan, range: (u64, u64), direction: Direction) {
        scan.restart();
        let (low, high) = (Bound::Included(Key::Word8(range.0)), Bound::Excluded(Key::Word8(range.1)));
        bench.cells.index.scan(low, high, direction, &mut scan.cursor).expect("ordered");
    }

    /// The next rows of a scan, at most this many.
    fn go_on(bench: &Bench<Silo>, worker: &mut Worker, scan: &mut Scan, most: usize) -> Vec<i64> {
        let mut next = || worker.scan_next(&bench.cells, scan, ColumnSet::ALL).expect("no conflict");
        std::iter::from_fn(|| next().map(|row| bench.get(row))).take(most).collect()
    }

    /// Whether an attempt that takes notes, and scans, commits when others have done this after it has scanned.
    fn commits(
        bench: &Bench<Silo>,
        scan: impl FnOnce(&mut Worker),
        others: impl FnOnce(&mut Worker),
        then: impl FnOnce(&mut Worker),
    ) -> bool {
        let mut worker = bench.worker();
        worker.attempt().bases.encourage();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        scan(&mut worker);
        bench.change(&mut worker, OWN, |value| value + 1).expect("no conflict");
        transact(bench, others);
        then(&mut worker);
        let committed = worker.commit(&mut NoRedo).is_ok();
        if !committed {
            worker.abort();
        }
        committed
    }

    #[test]
    fn changes_beside_a_range_or_behind_the_requested_rows_do_not_conflict() {
        use Direction::{Backward, Forward};
        for (direction, most, inserted, commits_then) in [
            (Forward, usize::MAX, 99, true),
            (Forward, usize::MAX, 101, false),
            (Forward, usize::MAX, 199, false),
            (Forward, usize::MAX, 201, true),
            (Forward, 1, 99, true),
            (Forward, 1, 101, true),
            (Forward, 2, 101, false),
            (Forward, 2, 111, true),
            (Backward, usize::MAX, 201, true),
            (Backward, usize::MAX, 199, false),
            (Backward, 1, 199, false),
            (Backward, 1, 189, true),
            (Backward, 2, 181, false),
            (Backward, 2, 179, true),
        ] {
            let bench = bench();
            let scan = |worker: &mut Worker| drop(rows(&bench, worker, (100, 200), direction, most));
            let committed = commits(&bench, scan, |other| insert(&bench, other, inserted), |_| ());
            assert_eq!(committed, commits_then, "{direction:?} {most} {inserted}");
        }
    }

    #[test]
    fn leaves_may_split_and_own_insertions_are_passed_by() {
        let bench = bench();
        let scan =
            |worker: &mut Worker| assert_eq!(rows(&bench, worker, (100, 120), Direction::Forward, 9), [100, 110]);
        let beside = |other: &mut Worker| (121..160).filter(|id| id % 10 != 0).for_each(|id| insert(&bench, other, id));
        let own = |worker: &mut Worker| insert(&bench, worker, 105);
        assert!(commits(&bench, scan, beside, own), "nothing of it is in the range but what is its own");
        let scan = |worker: &mut Worker| assert_eq!(rows(&bench, worker, (100, 120), Direction::Forward, 9).len(), 3);
        let within = |other: &mut Worker| insert(&bench, other, 107);
        assert!(!commits(&bench, scan, within, |worker| insert(&bench, worker, 106)));
    }

    #[test]
    fn changes_after_a_leaf_was_checked_again_conflict_in_every_leaf_of_the_range() {
        for (beside, inserted) in (1..8).flat_map(|beside| [101, 104, 107].map(|id| (beside, id))) {
            let bench = bench();
            transact(&bench, |other| [103, 106].into_iter().for_each(|id| insert(&bench, other, id)));
            let scan = |worker: &mut Worker| {
                assert_eq!(rows(&bench, worker, (100, 109), Direction::Forward, 9), [100, 103, 106]);
            };
            // Some of these split a leaf within the range.
            let split = |other: &mut Worker| {
                [115, 109, 112, 118, 111, 117, 113].into_iter().take(beside).for_each(|id| insert(&bench, other, id))
            };
            let then = |worker: &mut Worker| {
                assert_eq!(worker.validate(), Ok(()));
                transact(&bench, |other| insert(&bench, other, inserted));
            };
            assert!(!commits(&bench, scan, split, then), "{beside} {inserted}");
        }
    }

    #[test]
    fn buffered_records_of_a_scan_are_checked_when_the_attempt_validates_before_the_scan_continues() {
        let mut refuted = 0;
        for inserted in [99, 101, 105, 111, 121, 131, 155, 199, 201] {
            for count in [1, 8] {
                let (bench, mut scan) = (bench(), Scan::default());
                // Eight split the leaf.
                let keys = || (0..200).map(|n| inserted + n).filter(|key| key % 10 != 0).take(count);
                let (mut seen, mut valid) = (Vec::new(), Ok(()));
                let both = |worker: &mut Worker| {
                    begin(&bench, &mut scan, (100, 200), Direction::Forward);
                    seen = go_on(&bench, worker, &mut scan, 1);
                    transact(&bench, |other| keys().for_each(|key| insert(&bench, other, key)));
                    valid = worker.validate();
                    // Of the leaf the rows that the scan holds, of others their current rows.
                    seen.extend(go_on(&bench, worker, &mut scan, usize::MAX));
                };
                let committed = commits(&bench, both, |_| (), |_| ());
                let mut now = Vec::new();
                transact(&bench, |worker| now = rows(&bench, worker, (100, 200), Direction::Forward, usize::MAX));
                assert_eq!(committed, seen == now, "{inserted} {count}");
                assert!(!committed || valid.is_ok(), "{inserted} {count}");
                refuted += u32::from(!committed);
            }
        }
        assert!(refuted >= 2, "{refuted}");
    }

    #[test]
    fn changes_ahead_of_a_scan_after_its_attempt_has_validated_conflict() {
        for (beside, inserted) in (0..9).flat_map(|beside| [105, 145, 185].map(|id| (beside, id))) {
            let (bench, mut scan) = (bench(), Scan::default());
            let both = |worker: &mut Worker| {
                begin(&bench, &mut scan, (100, 200), Direction::Forward);
                assert_eq!(go_on(&bench, worker, &mut scan, 1), [100]);
                transact(&bench, |other| (0..beside).for_each(|n| insert(&bench, other, 99 - n)));
                assert_eq!(worker.validate(), Ok(()));
                assert_eq!(go_on(&bench, worker, &mut scan, usize::MAX).len(), 9);
            };
            assert!(!commits(&bench, both, |other| insert(&bench, other, inserted), |_| ()), "{beside} {inserted}");
        }
    }

    #[test]
    fn a_scan_that_is_begun_with_the_state_of_another_leaves_its_notes_alone() {
        let (bench, mut scan) = (bench(), Scan::default());
        let both = |worker: &mut Worker| {
            for from in [100, 300] {
                begin(&bench, &mut scan, (from, from + 100), Direction::Forward);
                assert_eq!(go_on(&bench, worker, &mut scan, 1), [from as i64]);
            }
        };
        assert!(commits(&bench, both, |other| insert(&bench, other, 101), |_| ()), "behind the only row asked for");
    }

    /// A transaction that commits has seen what a scan finds now.
    #[test]
    fn a_transaction_that_commits_has_seen_the_current_rows() {
        let seed = rng::seed("a_transaction_that_commits_has_seen_the_current_rows");
        let mut random = Rng::from_seed(seed);
        let mut outcomes = [0, 0];
        for _ in 0..300 {
            let bench = bench();
            let low = random.below(300);
            let range = (low, low + 1 + random.below(300));
            let direction = if random.below(2) == 0 { Direction::Forward } else { Direction::Backward };
            let most = if random.below(2) == 0 { usize::MAX } else { 1 + random.below(5) as usize };
            let mut seen = Vec::new();
            let changes: BTreeSet<u64> = (0..1 + random.below(3)).map(|_| random.below(600)).collect();
            let other = |other: &mut Worker| {
                for &id in &changes {
                    let there = bench.read(other, id).expect("alone").is_some();
                    match there {
                        true => drop(other.delete(&bench.cells, Key::Word8(id)).expect("alone")),
                        false => insert(&bench, other, id),
                    }
                }
            };
            let scan = |worker: &mut Worker| seen = rows(&bench, worker, range, direction, most);
            let committed = commits(&bench, scan, other, |_| ());
            let mut now = Vec::new();
            transact(&bench, |worker| now = rows(&bench, worker, range, direction, most));
            assert_eq!(committed, seen == now, "{range:?} {direction:?} {most}: {changes:?}");
            outcomes[usize::from(committed)] += 1;
        }
        assert!(outcomes.iter().all(|&count| count > 10), "{outcomes:?}");
    }
}
