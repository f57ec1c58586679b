//! The write set: private row versions until commit, with savepoints.
//!
//! An entry's row version is never changed in place once it was handed out. Every further update of the same row works
//! on a new copy. So rows that a transaction holds stay as they were read until a commit. The commit may merge them
//! into newer row versions, even if it requests a repair. A savepoint is a length of each list of entries.
//! Where a protocol repairs, each row version has the run of an operation that made it, and those of an operation can
//! be undone.

use seriatim_base::{Epoch, Tid};
use seriatim_catalog::Key;
use seriatim_memory::{CountedVec, Local, OutOfMemory};
use seriatim_store::{RecordPtr, read_key};
use seriatim_txn::{Before, Redo, Savepoint, Table};

use super::origin::Origin;
use super::own::OwnIndex;
use super::record;
use super::record_header::TidWord;
use super::table_ref::TableRef;

/// How the record of a write came into its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It was there, or another entry answers for it.
    There,
    /// This attempt linked it, and unlinks it unless it fills it.
    Own,
    /// It is in no index: it is linked when the transaction is decided.
    Deferred,
    /// Not a write: this attempt has reserved the record, whose word was `expected` before.
    Reserved,
}

/// One record this attempt writes.
#[derive(Clone, Copy, Debug)]
pub struct Write<O = ()> {
    pub record: RecordPtr,
    pub table: TableRef,
    /// The TID word the write builds on; commit fails if it changed.
    pub expected: TidWord,
    /// Address of the private row version with its header; zero: the row is to be absent.
    pub row_version: usize,
    /// The row version that the commit replaces: that of `expected`, as long as the record has that TID word. For a row
    /// inserted over a deletion, a version of that deletion, if the protocol keeps one; else zero.
    pub before: usize,
    /// Offset of the place in the record to which the commit copies the row version; zero: it stays where it is.
    place: u32,
    /// How the record came into its index.
    pub link: Link,
    /// The origin of the row version.
    pub by: O,
}

// A protocol that does not repair pays nothing.
const _ORIGINS_TAKE_NO_ROOM: () = assert!(size_of::<Write>() == 48);

// SAFETY: the record is followed while online only.
unsafe impl<O: Origin> Send for Write<O> {}

impl<O: Origin> Write<O> {
    /// A write of a linked record, which was found with this TID word and version word. It has no row version yet.
    #[inline(always)]
    pub fn there(
        table: &Table,
        record: RecordPtr,
        (expected, current): (TidWord, usize),
        by: O,
        horizon: Epoch,
    ) -> Write<O> {
        let (before, place) = match expected.is_absent() {
            true => (0, 0),
            false => (current, record::free_place(table, record, current, expected.tid().epoch(), horizon)),
        };
        Write { record, table: table.into(), expected, row_version: 0, before, place, link: Link::There, by }
    }

    /// A write that fills this record, which is linked with it.
    #[inline(always)]
    pub fn new(table: &Table, record: RecordPtr, row_version: usize, link: Link, by: O) -> Write<O> {
        let (table, expected) = (table.into(), TidWord::PLACEHOLDER);
        Write { record, table, expected, row_version, before: 0, place: 0, link, by }
    }

    /// A record that was reserved.
    pub fn reserved(table: &Table, record: RecordPtr, expected: TidWord, by: O) -> Write<O> {
        Write { expected, ..Write::new(table, record, 0, Link::Reserved, by) }
    }

    /// The place in the record to which the commit copies the row version, if there is one.
    #[inline(always)]
    pub fn place(&self) -> Option<usize> {
        (self.place != 0).then(|| self.record.addr() + self.place as usize)
    }

    #[inline]
    pub fn table<'t>(&self) -> &'t Table {
        self.table.get()
    }

    /// There is no row before or after this transaction: nothing to install.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        self.row_version == 0 && self.expected.is_absent()
    }
}

/// A row that was inserted and is not linked.
#[derive(Clone, Copy, Debug)]
pub struct Deferred {
    pub table: TableRef,
    /// Its key is set.
    pub record: RecordPtr,
}

// SAFETY: as of `Write`.
unsafe impl Send for Deferred {}

impl Deferred {
    pub fn table<'t>(&self) -> &'t Table {
        self.table.get()
    }

    pub fn key<'t>(&self) -> Key<'t> {
        // SAFETY: the key of a deferred record is set, and does not change until the attempt ends.
        unsafe { read_key(self.record, self.table().class) }
    }

    /// How it compares with a place in the order of tables and keys.
    fn compare(&self, table: &Table, key: Key<'_>) -> std::cmp::Ordering {
        self.table().id.cmp(&table.id).then_with(|| self.key().cmp(&key))
    }
}

#[derive(Debug)]
struct Replaced<O> {
    entry: u32,
    before: Write<O>,
}

/// Memory that belongs to a row version of this attempt but lies outside it: out-of-line values and fixed parts.
#[derive(Clone, Copy, Debug)]
pub struct RowPart {
    pub address: usize,
    pub bytes: usize,
}

/// Words of the private row versions of an attempt that will be copied to a place in their records.
pub(super) const ROOM_WORDS: usize = 1024;

/// Memory for such row versions. It belongs to the worker and never moves; a version takes no allocation.
#[derive(Debug)]
pub struct RowRoom {
    words: Box<[u64; ROOM_WORDS]>,
    used: usize,
}

impl RowRoom {
    fn new() -> RowRoom {
        RowRoom { words: Box::new([0; ROOM_WORDS]), used: 0 }
    }

    /// Another attempt begins: nothing is kept.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.used = 0;
    }

    /// Room for a row version of this many bytes, if there is some.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let (at, words) = (self.used, bytes / 8);
        if at + words > ROOM_WORDS {
            return None;
        }
        self.used = at + words;
        Some(self.words.as_mut_ptr().wrapping_add(at).expose_provenance())
    }

    /// Whether the row version is here.
    #[inline(always)]
    pub fn has(&self, row_version: usize) -> bool {
        row_version.wrapping_sub(self.words.as_ptr().addr()) < ROOM_WORDS * 8
    }
}

#[derive(Debug)]
pub struct WriteSet<O = ()> {
    pub(super) entries: CountedVec<Write<O>>,
    own: OwnIndex,
    replaced: CountedVec<Replaced<O>>,
    /// Entries undone by a rollback to a savepoint or a repair: their row versions are freed and their records
    /// unlinked at the end. Also the records that the attempt has reserved, until the end.
    pub undone: CountedVec<Write<O>>,
    /// Inserted rows whose records are to be linked at the decision: `merged` by table and key. Behind them are the
    /// latest, by table and key too. There are at most as many of the latest as the square root of all. So an insertion
    /// in any order moves few, and only merging moves all.
    pub deferred: CountedVec<Deferred>,
    merged: usize,
    /// Where row versions are that will not be published themselves.
    pub room: RowRoom,
    /// Tails and fixed parts made by this attempt.
    pub parts: CountedVec<RowPart>,
    /// Used by `record::free_private`: the parts to which committed row versions refer.
    pub(super) kept: CountedVec<usize>,
    /// Whether a list that most transactions leave empty is large.
    is_large: bool,
    /// Whether a write builds on a record without a row that this attempt has not linked.
    builds_on_absence: bool,
}

impl<O: Origin> WriteSet<O> {
    pub fn new(local: &Local) -> WriteSet<O> {
        WriteSet {
            entries: local.counted(64),
            own: OwnIndex::new(local),
            replaced: local.counted(0),
            undone: local.counted(0),
            deferred: local.counted(0),
            merged: 0,
            room: RowRoom::new(),
            parts: local.counted(0),
            kept: local.counted(0),
            is_large: false,
            builds_on_absence: false,
        }
    }

    /// Makes room for one write more. Before anything is linked or allocated for it: then [`WriteSet::push`]
    /// cannot fail.
    #[inline(always)]
    pub fn reserve(&mut self) -> Result<(), OutOfMemory> {
        self.entries.reserve_one()
    }

    #[inline]
    pub fn entries(&self) -> &[Write<O>] {
        &self.entries
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there may be a write of this record.
    #[inline(always)]
    pub fn may_have(&self, record: RecordPtr) -> bool {
        self.own.may_have(record.addr())
    }

    #[inline]
    pub fn find(&self, record: RecordPtr) -> Option<usize> {
        self.own.find(record.addr(), |e| self.entries[e].record.addr())
    }

    #[inline]
    pub fn push(&mut self, write: Write<O>) {
        let entries = &self.entries;
        self.own.push(write.record.addr(), |e| entries[e].record.addr());
        self.builds_on_absence |= write.link == Link::There && write.expected.is_absent();
        self.entries.push(write);
    }

    /// Whether a write may build on a record without a row that this attempt has not linked.
    #[inline(always)]
    pub fn builds_on_absence(&self) -> bool {
        self.builds_on_absence
    }

    /// The record of a row that this attempt has inserted at `key` and not linked.
    pub fn find_deferred(&self, table: &Table, key: Key<'_>) -> Option<RecordPtr> {
        let (merged, latest) = self.deferred.split_at(self.merged);
        let find = |run: &[Deferred]| {
            run.binary_search_by(|deferred| deferred.compare(table, key)).ok().map(|at| run[at].record)
        };
        find(merged).or_else(|| find(latest))
    }

    /// Makes room for one deferred record more: then [`WriteSet::defer`] cannot fail.
    pub fn reserve_deferred(&mut self) -> Result<(), OutOfMemory> {
        self.deferred.reserve_one()
    }

    /// Notes a record that is to be linked at the decision. Its key is set; no deferred record has the same.
    pub fn defer(&mut self, table: &Table, record: RecordPtr) {
        let deferred = Deferred { table: table.into(), record };
        let latest = &self.deferred[self.merged..];
        let at = self.merged + latest.partition_point(|other| other.compare(table, deferred.key()).is_lt());
        self.deferred.push(deferred);
        self.deferred[at..].rotate_right(1);
        if (self.deferred.len() - self.merged).pow(2) >= self.deferred.len() {
            self.merge_deferred();
        }
    }

    /// Moves the latest to their places. The sort merges the two runs that it finds.
    fn merge_deferred(&mut self) {
        self.deferred.sort_by(|one, other| one.compare(other.table(), other.key()));
        self.merged = self.deferred.len();
    }

    /// The records of a table that are not linked, by key.
    pub fn deferred_of(&self, table: &Table) -> Vec<RecordPtr> {
        let mut of_table: Vec<Deferred> = self.deferred.to_vec();
        of_table.retain(|deferred| deferred.table().id == table.id);
        // Two runs.
        of_table.sort_by(|one, other| one.compare(table, other.key()));
        of_table.into_iter().map(|deferred| deferred.record).collect()
    }

    /// Entries were undone: their insertions will not be linked.
    fn forget_deferred(&mut self) {
        self.merge_deferred();
        let WriteSet { deferred, own, entries, .. } = self;
        deferred.retain(|deferred| own.find(deferred.record.addr(), |e| entries[e].record.addr()).is_some());
        self.merged = deferred.len();
    }

    /// All of them are linked, or were undone.
    pub fn clear_deferred(&mut self) {
        self.deferred.clear();
        self.merged = 0;
    }

    /// The record of this entry has been linked.
    pub fn linked(&mut self, entry: usize) {
        self.entries[entry].link = Link::Own;
    }

    /// The row version of an entry was copied to this address.
    #[inline]
    pub fn moved(&mut self, entry: usize, row_version: usize) {
        self.entries[entry].row_version = row_version;
    }

    /// Gives an entry a new row version; the old one stays readable until the end.
    #[inline]
    pub fn replace(&mut self, entry: usize, row_version: usize, by: O) {
        self.replaced.push(Replaced { entry: entry as u32, before: self.entries[entry] });
        self.entries[entry].row_version = row_version;
        self.entries[entry].by = by;
    }

    /// The row versions that the attempt made for an entry.
    pub fn row_versions(&self, entry: usize) -> usize {
        1 + self.replaced.iter().filter(|replaced| replaced.entry as usize == entry).count()
    }

    /// The same of each entry.
    pub fn row_versions_of_each(&self) -> Vec<usize> {
        let mut row_versions = vec![1; self.entries.len()];
        self.replaced.iter().for_each(|replaced| row_versions[replaced.entry as usize] += 1);
        row_versions
    }

    /// An entry builds on this row version, with this TID word, now. Its own is not in the worker's own memory.
    pub fn rebased(&mut self, entry: usize, word: TidWord, newer: usize, horizon: Epoch) {
        let Write { record, row_version, link, by, .. } = self.entries[entry];
        let write = Write::there(self.entries[entry].table(), record, (word, newer), by, horizon);
        self.entries[entry] = Write { row_version, link, ..write };
        self.builds_on_absence |= word.is_absent();
    }

    /// An entry as it was first: by it that which it builds on was seen.
    pub fn first(&self, entry: usize) -> Write<O> {
        let earliest = self.replaced.iter().find(|replaced| replaced.entry as usize == entry);
        earliest.map_or(self.entries[entry], |replaced| replaced.before)
    }

    #[inline]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { writes: self.entries.len() as u32, replaced: self.replaced.len() as u32 }
    }

    /// Takes back everything since the savepoint, which stays valid; later savepoints do not.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        while self.replaced.len() > savepoint.replaced as usize {
            if let Some(Replaced { entry, before }) = self.replaced.pop() {
                let undone = std::mem::replace(&mut self.entries[entry as usize], before);
                // The record stays linked through the entry that remains, or through that entry's own undoing.
                self.undone.push(Write { link: Link::There, ..undone });
            }
        }
        while self.entries.len() > savepoint.writes as usize {
            if let Some(undone) = self.entries.pop() {
                self.own.pop(undone.record.addr());
                self.undone.push(undone);
            }
        }
        self.forget_deferred();
    }

    /// Undoes the writes of these runs of operations; the writes of others to the same records stay. Earlier
    /// savepoints become invalid. `lost` is called with each entry that lost a row version. If that was its
    /// only one, it is also called with the entry that has its index now, by that index.
    pub fn forget(&mut self, of: impl Fn(O) -> bool, mut lost: impl FnMut(usize, Option<usize>)) {
        let WriteSet { replaced, undone, .. } = self;
        replaced.retain(|Replaced { before, entry }| {
            let stays = !of(before.by);
            if !stays {
                lost(*entry as usize, None);
                // The record stays linked through its entry.
                undone.push(Write { link: Link::There, ..*before });
            }
            stays
        });
        for at in (0..self.entries.len()).rev() {
            let write = self.entries[at];
            if !of(write.by) {
                continue;
            }
            match self.replaced.iter().rposition(|replaced| replaced.entry as usize == at) {
                Some(latest) => {
                    self.entries[at] = self.replaced[latest].before;
                    self.undone.push(Write { link: Link::There, ..write });
                    lost(at, None);
                    let mut position = 0..;
                    self.replaced.retain(|_| position.next() != Some(latest));
                }
                None => {
                    lost(at, Some(self.entries.len() - 1));
                    self.remove(at);
                    self.undone.push(write);
                }
            }
        }
    }

    /// Takes an entry out, with the one row version that the attempt made for it; the last one takes its place.
    pub fn take(&mut self, at: usize) -> Write<O> {
        let write = self.entries[at];
        self.remove(at);
        write
    }

    fn remove(&mut self, at: usize) {
        let last = self.entries.len() - 1;
        self.own.remove(at, self.entries[at].record.addr(), self.entries[last].record.addr());
        self.entries.swap(at, last);
        self.entries.pop();
        let moved = self.replaced.iter_mut().filter(|replaced| replaced.entry as usize == last);
        moved.for_each(|replaced| replaced.entry = at as u32);
    }

    /// Images that will not be installed although the transaction commits.
    pub fn superseded(&self) -> impl Iterator<Item = Write<O>> {
        self.replaced.iter().map(|r| r.before).chain(self.undone.iter().copied())
    }

    /// Promise (a): every write with its TID.
    #[inline(never)]
    pub fn report(&self, tid: Tid, redo: &mut dyn Redo) {
        for write in self.entries.iter().filter(|write| !write.is_nothing()) {
            let table = write.table();
            // SAFETY: key words of a linked record never change; we are online.
            let key = unsafe { read_key(write.record, table.class) };
            // The row that an absent record names is no longer its own.
            let before = (!write.expected.is_absent())
                .then(|| Before { tid: write.expected.tid(), row: record::row_of(write.before) });
            let after = (write.row_version != 0).then(|| record::row_of(write.row_version));
            redo.write(table, key, tid, before, after);
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.own.clear();
        self.builds_on_absence = false;
        if self.has_more() || self.is_large {
            self.clear_more();
        }
    }

    /// Whether a list has entries that most transactions leave empty.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        let WriteSet { replaced, undone, deferred, parts, .. } = self;
        replaced.len() | undone.len() | deferred.len() | parts.len() != 0
    }

    /// Clears the lists that most transactions leave empty.
    #[inline(never)]
    fn clear_more(&mut self) {
        self.replaced.clear();
        self.undone.clear();
        self.clear_deferred();
        self.parts.clear();
        self.kept.clear();
        let WriteSet { replaced, undone, deferred, parts, kept, .. } = self;
        let is_large = replaced.is_large() || undone.is_large();
        self.is_large = is_large || deferred.is_large() || parts.is_large() || kept.is_large();
    }

    /// Gives back what a large transaction made it take: the worker rests.
    pub fn rest(&mut self) {
        self.entries.rest();
        self.own.rest();
        self.replaced.rest();
        self.undone.rest();
        self.deferred.rest();
        self.parts.rest();
        self.kept.rest();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ptr::NonNull;

    use seriatim_base::Rng;
    use seriatim_memory::{Memory, Options};
    use seriatim_txn::Runs;

    use super::*;
    use crate::shared::origin::Run;

    fn record(number: u64) -> RecordPtr {
        let address = std::ptr::without_provenance_mut(0x1000 + number as usize * 64);
        // SAFETY: compared by its address only.
        unsafe { RecordPtr::from_raw(NonNull::new(address).expect("not null")) }
    }

    /// A write of a table that nobody looks at.
    fn unread(record: RecordPtr, row_version: usize, link: Link, by: Run) -> Write<Run> {
        let (table, expected) = (TableRef::dangling(), TidWord::PLACEHOLDER);
        Write { record, table, expected, row_version, before: 0, place: 0, link, by }
    }

    /// Every row version of a record, oldest first, with the operation that made it.
    type Model = BTreeMap<u64, Vec<(u16, usize)>>;

    fn check(writes: &WriteSet<Run>, model: &Model, linked: &[u64], made: usize, seed: u64) {
        assert_eq!(writes.entries().len(), model.len(), "seed {seed}");
        for (number, row_versions) in model {
            let at = writes.find(record(*number)).expect("an entry");
            let write = writes.entries()[at];
            let (by, row_version) = *row_versions.last().expect("a row version");
            assert_eq!(
                (write.row_version, write.record, write.by.is_of(Runs::all(by))),
                (row_version, record(*number), true),
                "seed {seed}"
            );
            let before = writes.replaced.iter().filter(|replaced| replaced.entry as usize == at);
            let before: Vec<usize> = before.map(|replaced| replaced.before.row_version).collect();
            let wanted: Vec<usize> =
                row_versions[..row_versions.len() - 1].iter().map(|(_, row_version)| *row_version).collect();
            assert_eq!(before, wanted, "seed {seed}");
        }
        // No row version is lost, and each record that was linked is owed one look.
        let mut row_versions: Vec<usize> =
            writes.entries().iter().copied().chain(writes.superseded()).map(|write| write.row_version).collect();
        row_versions.sort_unstable();
        assert_eq!(row_versions, (1..=made).collect::<Vec<_>>(), "seed {seed}");
        let owed = writes.entries().iter().chain(writes.undone.iter()).filter(|write| write.link == Link::Own);
        let mut owed: Vec<usize> = owed.map(|write| write.record.addr()).collect();
        owed.sort_unstable();
        let mut wanted: Vec<usize> = linked.iter().map(|number| record(*number).addr()).collect();
        wanted.sort_unstable();
        assert_eq!(owed, wanted, "seed {seed}");
    }

    #[test]
    fn writes_of_chosen_operations_are_undone_and_the_rest_stays() {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() }).expect("memory");
        let local = memory.register().expect("a free slot");
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let (mut writes, mut model) = (WriteSet::<Run>::new(&local), Model::new());
            let (mut made, mut linked) = (0, Vec::new());
            for step in 0..60 {
                let by = rng.below(6) as u16;
                if rng.below(5) > 0 {
                    made += 1;
                    let (number, run) = (rng.below(12), Run::of(by, step));
                    match writes.find(record(number)) {
                        Some(at) => writes.replace(at, made, run),
                        None => {
                            // A record is linked once.
                            let links = rng.below(2) == 0 && !linked.contains(&number);
                            linked.extend(links.then_some(number));
                            let link = if links { Link::Own } else { Link::There };
                            writes.push(unread(record(number), made, link, run));
                        }
                    }
                    model.entry(number).or_default().push((by, made));
                } else {
                    writes.forget(|run| run.is_of(Runs::all(by)), |_, _| ());
                    model.values_mut().for_each(|row_versions| row_versions.retain(|(of, _)| *of != by));
                    model.retain(|_, row_versions| !row_versions.is_empty());
                }
                check(&writes, &model, &linked, made, seed);
            }
        }
    }

    #[test]
    fn one_iteration_is_undone() {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() }).expect("memory");
        let mut writes = WriteSet::<Run>::new(&memory.register().expect("a free slot"));
        for iteration in 0..3 {
            let (row_version, by) = (1 + iteration as usize, Run::of(4, iteration));
            writes.push(unread(record(u64::from(iteration)), row_version, Link::There, by));
        }
        writes.forget(|run| run.is_of(Runs::one(4, 1)), |_, _| ());
        let left: Vec<usize> = writes.entries().iter().map(|write| write.row_version).collect();
        assert_eq!(left, [1, 3]);
        assert!(writes.find(record(1)).is_none() && writes.find(record(2)) == Some(1));
    }
}
