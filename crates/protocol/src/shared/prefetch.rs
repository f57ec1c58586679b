//! Rows fetched before they are asked for, in waves: what one wave asks the processor for, the next one follows.
//!
//! | wave | of a hash table | of an ordered one |
//! |---|---|---|
//! | begin | the bucket | looks the record up, then the record (interior nodes and leaves tend to be cached) |
//! | 1st advance | the record, by the tag in the bucket | the newest row version, if it lies outside the record |
//! | 2nd advance | the newest row version | |
//!
//! Records found this way wait in the order they were asked for, and the next lookup of their table tries the next of them, and
//! the one after it, first: keys are compared, so a wrong guess costs a comparison and a right one saves hashing and probing. A
//! hit is as good as the index's own: the record was linked while the worker was online.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use seriatim_base::prefetch;
use seriatim_catalog::Key;
use seriatim_memory::Pinned;
use seriatim_store::{HashHint, RecordPtr, has_key};
use seriatim_txn::Table;

use super::attempt::LeafHints;
use super::{record, record_header};

/// Most bytes of a record or row version that a prefetch asks for: beyond, the processor's own prefetcher has caught on.
const BYTES_MAX: usize = 384;
/// Most rows that wait for a wave; more are not fetched. Their lines must not drive each other out of the cache.
const ROWS_MAX: usize = 512;

/// A row on its way.
#[derive(Clone, Copy, Debug)]
struct Entry {
    table: NonNull<Table>,
    stage: Stage,
    /// The next one of this table; [`NONE`] if there is none.
    next: u32,
}

const NONE: u32 = u32::MAX;

// Every row prefetched writes one.
const _ENTRIES_ARE_SMALL: () = assert!(size_of::<Entry>() <= 40);

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Its bucket was asked for.
    Bucket(HashHint),
    /// Its record was.
    Record(RecordPtr),
    /// The newest row version was, a wave early: the index itself was asked, not a bucket.
    RowVersion(RecordPtr),
    /// Nothing to be had.
    Nothing,
}

/// The rows of one table.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// The entry to be tried next; [`NONE`] if there is none.
    next: u32,
    /// The entry asked for last; only of use while `next` is some.
    last: u32,
}

const EMPTY: Queue = Queue { next: NONE, last: NONE };

/// The rows that one attempt asked for.
#[derive(Debug, Default)]
pub(crate) struct Prefetched {
    entries: Vec<Entry>,
    /// Entries before this had every wave.
    complete: usize,
    /// Entries before this had the first advance.
    advanced: usize,
    /// By table id.
    queues: Vec<Queue>,
}

// SAFETY: tables are shared by all workers and live as long as the database; records are followed while online only.
unsafe impl Send for Prefetched {}

impl Prefetched {
    /// Forgets everything.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.queues.fill(EMPTY);
            (self.complete, self.advanced) = (0, 0);
        }
    }

    /// The first wave for one row.
    #[inline(always)]
    pub(crate) fn begin(&mut self, table: &Table, key: Key<'_>, leaf_hints: &mut LeafHints, pin: Pinned<'_>) {
        if self.entries.len() >= ROWS_MAX && !self.make_room() {
            return;
        }
        let stage = match table.index.prefetch_bucket(key) {
            Some(hint) => Stage::Bucket(hint),
            None => match table.index.get_near(key, leaf_hints.of(table), pin) {
                Ok(found) => {
                    fetch_record(table, found);
                    Stage::Record(found)
                }
                Err(_) => Stage::Nothing,
            },
        };
        let (id, at) = (table.id.index(), self.entries.len() as u32);
        self.entries.push(Entry { table: table.into(), stage, next: NONE });
        if id >= self.queues.len() {
            self.add_queues(id);
        }
        let queue = &mut self.queues[id];
        match queue.next {
            NONE => queue.next = at,
            _ => self.entries[queue.last as usize].next = at,
        }
        queue.last = at;
    }

    /// Whether there is room, if need be by forgetting rows that are all on their way.
    #[cold]
    fn make_room(&mut self) -> bool {
        let complete = self.advanced >= ROWS_MAX;
        if complete {
            self.clear();
        }
        complete
    }

    #[cold]
    fn add_queues(&mut self, id: usize) {
        self.queues.resize(id + 1, EMPTY);
    }

    /// The next wave for all rows.
    #[inline]
    pub(crate) fn advance(&mut self, pin: Pinned<'_>) {
        for entry in &self.entries[self.complete..self.advanced] {
            if let Stage::Record(found) = entry.stage {
                // SAFETY: tables live as long as the database.
                fetch_version(unsafe { entry.table.as_ref() }, found);
            }
        }
        self.complete = self.advanced;
        for entry in &mut self.entries[self.advanced..] {
            // SAFETY: as above.
            let table = unsafe { entry.table.as_ref() };
            match entry.stage {
                Stage::Bucket(hint) => {
                    entry.stage = Stage::Nothing;
                    // SAFETY: as above: the table's index gave the hint.
                    if let Some(found) = unsafe { hint.guess(pin) } {
                        fetch_record(table, found);
                        entry.stage = Stage::Record(found);
                    }
                }
                Stage::Record(found) => {
                    fetch_version(table, found);
                    entry.stage = Stage::RowVersion(found);
                }
                Stage::RowVersion(_) | Stage::Nothing => {}
            }
        }
        self.advanced = self.entries.len();
    }

    /// The record with this key, if it is one of the two expected next of its table. If neither is, the first is given up: one
    /// that is never asked for holds up the others once.
    #[inline(always)]
    pub(crate) fn find(&mut self, table: &Table, key: Key<'_>, pin: Pinned<'_>) -> Option<RecordPtr> {
        let queue = self.queues.get_mut(table.id.index())?;
        let entry = self.entries.get(queue.next as usize)?;
        match entry.stage {
            // SAFETY: found in the index since the worker came online.
            Stage::Record(found) if unsafe { has_key(found, key) } => {
                queue.next = entry.next;
                Some(found)
            }
            _ => self.find_behind(table, key, pin),
        }
    }

    /// As [`Prefetched::find`], if it is not the first.
    #[inline(never)]
    fn find_behind(&mut self, table: &Table, key: Key<'_>, _: Pinned<'_>) -> Option<RecordPtr> {
        let queue = self.queues.get_mut(table.id.index())?;
        let (mut at, mut others) = (queue.next, 0);
        while let Some(entry) = self.entries.get(at as usize) {
            match entry.stage {
                Stage::Bucket(_) => return None,
                Stage::Nothing if others == 0 => queue.next = entry.next,
                Stage::Nothing => {}
                // SAFETY: found in the index since the worker came online.
                Stage::Record(found) | Stage::RowVersion(found) if unsafe { has_key(found, key) } => {
                    queue.next = entry.next;
                    return Some(found);
                }
                Stage::Record(_) | Stage::RowVersion(_) if others == 1 => {
                    queue.next = self.entries[queue.next as usize].next;
                    return None;
                }
                Stage::Record(_) | Stage::RowVersion(_) => others += 1,
            }
            at = entry.next;
        }
        None
    }
}

#[inline]
fn fetch_record(table: &Table, found: RecordPtr) {
    prefetch::lines(found.as_ptr(), table.record_layout.record.min(BYTES_MAX));
}

#[inline]
fn fetch_version(table: &Table, found: RecordPtr) {
    #[cfg(test)]
    tests::version_asked_for();
    let row_version = record_header::row_version(&table.record_layout, found).load(Ordering::Relaxed) as usize;
    if row_version != 0 && !record::is_inline(table, found, row_version) {
        prefetch::lines(row_version as *const u8, table.record_layout.row_version_bytes().min(BYTES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use seriatim_base::TableId;
    use seriatim_catalog::{ColumnDef, ColumnType, Organization, TableDef};
    use seriatim_htm::{Budget, Htm, HtmMode};
    use seriatim_memory::{Memory, Options};
    use seriatim_txn::{Environment, Inserted, Mode, NoRedo, OnExists, Outcome, Priority, Protocol, Worker};

    use super::*;
    use crate::silo::Silo;

    thread_local! {
        static ROW_VERSIONS: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn version_asked_for() {
        ROW_VERSIONS.set(ROW_VERSIONS.get() + 1);
    }

    const ROWS: u64 = 5;

    /// How many row versions each of three advances asks for, with [`ROWS`] rows of a table on their way.
    fn versions_of_advances(organization: Organization) -> [u32; 3] {
        let memory = Memory::new(Options { workers_max: 2, ..Options::default() }).expect("memory");
        let htm = Htm::new(HtmMode::Absent).expect("it is always available");
        let environment = Environment::new(htm, memory, Budget::default());
        let mut core = environment.core().expect("a free slot");
        let definition = TableDef::builder("cell").column(ColumnDef::new("id", ColumnType::U64)).key(["id"]);
        let definition = if organization == Organization::Hash { definition.hash() } else { definition };
        let definition = definition.capacity(64).finish().expect("a valid table");
        core.local.enter();
        let table =
            Table::new(TableId(0), &definition, None, Silo::HEADER_BYTES, Silo::VERSION_HEADER_BYTES, &mut core);
        core.local.leave();
        let table = Box::new(table.expect("memory"));
        let mut worker = Silo::open(&Default::default(), &environment).worker(core);
        worker.begin(Mode::ReadWrite, Priority::NONE);
        for key in 0..ROWS {
            let staged = worker.stage(&table).expect("memory");
            assert_eq!(worker.insert(&table, Key::Word8(key), staged, OnExists::Refuse), Ok(Inserted::New));
        }
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        worker.begin(Mode::ReadWrite, Priority::NONE);
        (0..ROWS).for_each(|key| worker.prefetch(&table, Key::Word8(key)));
        let row_versions = [(); 3].map(|()| {
            ROW_VERSIONS.set(0);
            worker.advance_prefetch();
            ROW_VERSIONS.get()
        });
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        row_versions
    }

    #[test]
    fn each_version_is_asked_for_once() {
        assert_eq!(versions_of_advances(Organization::Hash), [0, ROWS as u32, 0]);
        assert_eq!(versions_of_advances(Organization::Ordered), [ROWS as u32, 0, 0]);
    }
}
