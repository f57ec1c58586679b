//! Rows that are prefetched before they are read, in waves: each wave follows the addresses that the previous
//! one has fetched.
//!
//! | wave | of a hash table | of an ordered one |
//! |---|---|---|
//! | begin | the bucket | looks the record up, then the record (interior nodes and leaves tend to be cached) |
//! | 1st advance | the record, by the tag in the bucket | the newest row version, if it lies outside the record |
//! | 2nd advance | the newest row version | |
//!
//! The fixed part of a record is requested only if its columns are read.
//!
//! If a record's tag is not in the line of its hash bucket, the lines behind it are searched, a wave later.
//!
//! Each row has a slot, in the order of the requests. A procedure's operations read the rows in this order, so a lookup
//! tries the next slot first. Keys are compared, so a wrong guess costs a comparison and a right one saves hashing and
//! probing. Where the order differs, as with rows prefetched table by table, the table's next slot is searched among
//! those ahead. A hit is as valid as the index's own: the record was linked while the worker was online.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use seriatim_base::prefetch;
use seriatim_catalog::Key;
use seriatim_memory::{Local, Pinned};
use seriatim_store::{HashHint, RecordPtr, has_key};
use seriatim_txn::Table;

use super::attempt::LeafHints;
use super::table_ref::TableRef;
use super::{record, record_header};

/// The most bytes of a record or row version that a prefetch requests: beyond, the processor's own prefetcher
/// continues.
const BYTES_MAX: usize = 384;
/// Most rows that wait for a wave; more are not fetched. Their lines must not drive each other out of the cache.
const ROWS_MAX: usize = 512;
/// The number of slots that are searched for the table's next one.
const AHEAD_MAX: usize = 32;
/// The most rows of its table with other keys that a lookup compares.
const OTHERS_MAX: u32 = 4;
/// How many lookups may skip the next slot.
const PASSED_MAX: u32 = 8;

/// A row that is being prefetched.
#[derive(Clone, Copy, Debug)]
struct Slot {
    table: TableRef,
    stage: Stage,
}

// Every row prefetched writes one.
const _SLOTS_ARE_SMALL: () = assert!(size_of::<Slot>() == 16);

/// The state of a row's prefetch, in one word, which is one of these:
/// - a hint of its bucket, with bit 63, and with bit 0 if the whole record is wanted;
/// - the address of its record, with bit 62 once its newest row version was requested;
/// - one of the two constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage(u64);

impl Stage {
    /// Nothing to be had.
    const NOTHING: Stage = Stage(0);
    /// An operation has taken it, or gone past it.
    const TAKEN: Stage = Stage(1);
    const FETCHED: u64 = 1 << 62;
    /// Buckets begin with a cache line, so their hints leave this bit clear.
    const WHOLE: u64 = 1;

    /// Its record was requested.
    #[inline(always)]
    fn record(record: RecordPtr) -> Stage {
        Stage(record.as_ptr().expose_provenance() as u64)
    }

    #[inline(always)]
    fn of_record(self) -> Option<RecordPtr> {
        if self.0 <= Stage::TAKEN.0 || self.0 >> 63 == 1 {
            return None;
        }
        let address = std::ptr::with_exposed_provenance_mut((self.0 & !Stage::FETCHED) as usize);
        // SAFETY: nothing else has such a value: it is the address of a record.
        Some(unsafe { RecordPtr::from_raw(NonNull::new_unchecked(address)) })
    }

    /// The hint of the bucket that was requested, or the line behind it.
    #[inline(always)]
    fn of_bucket(self) -> Option<HashHint> {
        HashHint::from_bits(self.0 & !Stage::WHOLE)
    }

    /// Whether the whole record is wanted.
    #[inline(always)]
    fn wants_whole(self) -> bool {
        self.0 & Stage::WHOLE != 0
    }

    /// The record whose newest row version was not requested yet.
    #[inline(always)]
    fn unfetched(self) -> Option<RecordPtr> {
        if self.0 & Stage::FETCHED == 0 { self.of_record() } else { None }
    }

    #[inline(always)]
    fn fetched(self) -> Stage {
        Stage(self.0 | Stage::FETCHED)
    }
}

/// The rows that one attempt has requested.
#[derive(Debug)]
pub struct Prefetched {
    slots: Box<[Slot; ROWS_MAX]>,
    /// Slots in use.
    len: usize,
    /// Lookups have used the slots before this index.
    next: usize,
    /// Slots before this index have completed every wave.
    complete: usize,
    /// Slots before this index have completed the first advance.
    advanced: usize,
    /// The tables with slots, by id modulo 64.
    tables: u64,
    /// The next slot for lookups, and how many lookups have skipped it.
    passed: (usize, u32),
}

// SAFETY: records are followed while online only.
unsafe impl Send for Prefetched {}

impl Default for Prefetched {
    fn default() -> Prefetched {
        let slots = Box::new([Slot { table: TableRef::dangling(), stage: Stage::NOTHING }; ROWS_MAX]);
        Prefetched { slots, len: 0, next: 0, complete: 0, advanced: 0, tables: 0, passed: (0, 0) }
    }
}

#[inline(always)]
fn bit(table: &Table) -> u64 {
    1 << (table.id.index() % 64)
}

impl Prefetched {
    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        if self.len > 0 {
            (self.len, self.next, self.complete, self.advanced, self.tables, self.passed) = (0, 0, 0, 0, 0, (0, 0));
        }
    }

    /// The first wave for one row; `whole`: with its fixed part.
    #[inline(always)]
    pub fn begin(&mut self, table: &Table, key: Key<'_>, whole: bool, leaf_hints: &mut LeafHints, local: &Local) {
        if self.len == ROWS_MAX {
            if self.advanced < self.len {
                return;
            }
            // All are on their way, so they are forgotten.
            self.clear();
        }
        match (table.index.prefetch_bucket(key), key) {
            (Some(hint), _) => self.add(table, Stage(hint.bits() | u64::from(whole))),
            // By register: a key in memory would be there in the other case too.
            (None, Key::Word8(word)) => self.look_up_word(table, word, whole, leaf_hints, local.pinned()),
            (None, key) => self.look_up(table, key, whole, leaf_hints, local.pinned()),
        }
    }

    #[inline(always)]
    fn add(&mut self, table: &Table, stage: Stage) {
        self.slots[self.len] = Slot { table: table.into(), stage };
        self.tables |= bit(table);
        self.len += 1;
    }

    #[inline(never)]
    fn look_up_word(&mut self, table: &Table, key: u64, whole: bool, leaf_hints: &mut LeafHints, pin: Pinned<'_>) {
        self.look_up(table, Key::Word8(key), whole, leaf_hints, pin);
    }

    /// As [`Prefetched::begin`], in an index without buckets.
    #[inline(never)]
    fn look_up(&mut self, table: &Table, key: Key<'_>, whole: bool, leaf_hints: &mut LeafHints, pin: Pinned<'_>) {
        let found = table.index.get_near(key.anew(), leaf_hints.of(table, &key), pin);
        self.add(table, found.map_or(Stage::NOTHING, |found| fetch_record(table, found, whole)));
    }

    /// The next wave for all rows.
    #[inline]
    pub fn advance(&mut self, pin: Pinned<'_>) {
        let Prefetched { complete, advanced, len, .. } = *self;
        for slot in &mut self.slots[complete..advanced] {
            let table = slot.table.get();
            if let Some(found) = slot.stage.unfetched() {
                fetch_version(table, found);
            } else if let Some(hint) = slot.stage.of_bucket() {
                // SAFETY: the table's index gave the hint.
                let found = unsafe { hint.guess_behind(pin) };
                slot.stage = found.map_or(Stage::NOTHING, |found| fetch_record(table, found, slot.stage.wants_whole()));
            }
        }
        for slot in &mut self.slots[advanced..len] {
            let table = slot.table.get();
            if let Some(hint) = slot.stage.of_bucket() {
                // SAFETY: as above.
                if let Some(found) = unsafe { hint.guess(pin) } {
                    slot.stage = fetch_record(table, found, slot.stage.wants_whole());
                }
            } else if let Some(found) = slot.stage.of_record() {
                fetch_version(table, found);
                slot.stage = slot.stage.fetched();
            }
        }
        (self.complete, self.advanced) = (advanced, len);
    }

    /// The record with this key, if it is that of the next slot, or of one of the table's next few.
    #[inline(always)]
    pub fn find(&mut self, table: &Table, key: Key<'_>, pin: Pinned<'_>) -> Option<RecordPtr> {
        if let found @ Some(_) = self.next(table, key, pin) {
            self.pass_next();
            return found;
        }
        if self.tables & bit(table) == 0 {
            return None;
        }
        self.find_ahead(table, key.anew(), pin)
    }

    /// The record with this key, if it is that of the next slot.
    #[inline(always)]
    pub fn next(&self, table: &Table, key: Key<'_>, _: Pinned<'_>) -> Option<RecordPtr> {
        if self.next >= self.len {
            return None;
        }
        let Slot { table: of, stage } = self.slots[self.next % ROWS_MAX];
        if of != table.into() {
            return None;
        }
        // SAFETY: found in the table's index since the worker came online.
        stage.of_record().filter(|&found| unsafe { has_key(found, key) })
    }

    /// A lookup has used the next slot.
    #[inline(always)]
    pub fn pass_next(&mut self) {
        self.next += 1;
    }

    /// As [`Prefetched::find`], if the key is not in the next slot. Drops the slots of its table before the one that is
    /// found.
    #[inline(never)]
    fn find_ahead(&mut self, table: &Table, key: Key<'_>, _: Pinned<'_>) -> Option<RecordPtr> {
        let Slot { table: of, stage } = *self.slots[..self.len].get(self.next)?;
        if of == table.into() && stage != Stage::TAKEN && stage.of_record().is_none() {
            // This slot probably belongs to the key: its wave has not run yet, or there is no record.
            self.pass_next();
            return None;
        }
        let of_table = |slot: &&mut Slot| slot.table == table.into();
        let ahead = self.len.min(self.next + AHEAD_MAX);
        let ahead = &mut self.slots[self.next..ahead];
        let (mut found, mut vague, mut others) = (None, None, 0);
        for (at, slot) in ahead.iter().enumerate().filter(|(_, slot)| slot.table == table.into()) {
            match slot.stage.of_record() {
                // SAFETY: found in the table's index since the worker came online.
                Some(record) if unsafe { has_key(record, key) } => {
                    found = Some((at, record));
                    break;
                }
                Some(_) => others += 1,
                None if slot.stage == Stage::TAKEN => {}
                None => vague = vague.or(Some(at)),
            }
            if others == OTHERS_MAX {
                break;
            }
        }
        match (found, vague) {
            (Some((at, _)), _) => {
                ahead[..=at].iter_mut().filter(of_table).for_each(|slot| slot.stage = Stage::TAKEN);
            }
            // As above.
            (None, Some(at)) => ahead[at].stage = Stage::TAKEN,
            (None, None) => {}
        }
        let passed = if self.passed.0 == self.next { self.passed.1 + 1 } else { 1 };
        if passed > PASSED_MAX {
            self.next += 1;
        }
        self.passed = (self.next, passed % (PASSED_MAX + 1));
        let taken = self.slots[self.next..self.len].iter().take_while(|slot| slot.stage == Stage::TAKEN);
        self.next += taken.count();
        found.map(|(_, record)| record)
    }
}

#[cfg(test)]
impl Prefetched {
    /// How many slots are taken, of how many.
    pub(super) fn slots(&self) -> (usize, usize) {
        (self.next, self.len)
    }
}

#[inline(always)]
fn fetch_record(table: &Table, found: RecordPtr, whole: bool) -> Stage {
    let record_layout = &table.record_layout;
    let bytes = if whole { record_layout.record } else { record_layout.fixed };
    prefetch::first_lines::<BYTES_MAX>(found.as_ptr(), bytes);
    Stage::record(found)
}

#[inline]
fn fetch_version(table: &Table, found: RecordPtr) {
    #[cfg(test)]
    tests::version_asked_for();
    let row_version = record_header::row_version(&table.record_layout, found).load(Ordering::Relaxed) as usize;
    // Without a row version, address zero is requested, to no effect.
    if !record::is_inline(table, found, row_version) {
        prefetch::first_lines::<BYTES_MAX>(row_version as *const u8, table.record_layout.row_version_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use seriatim_base::{TableId, Tid};
    use seriatim_catalog::{ColumnDef, ColumnSet, ColumnType, ColumnUse, Organization, TableDef};
    use seriatim_htm::{Budget, Htm, HtmMode};
    use seriatim_memory::{Memory, Options};
    use seriatim_txn::{Environment, Inserted, Mode, NoRedo, OnExists, Outcome, Priority, Protocol, Worker};

    use super::*;
    use crate::shared::attempt::Attempt;
    use crate::silo::Silo;

    thread_local! {
        static ROW_VERSIONS: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn version_asked_for() {
        ROW_VERSIONS.set(ROW_VERSIONS.get() + 1);
    }

    const ROWS: u64 = 40;

    /// Two tables with rows 0 to [`ROWS`], and their environment.
    fn tables(organization: Organization) -> (Environment, [Box<Table>; 2]) {
        let memory = Memory::new(Options { workers_max: 2, ..Options::default() }).expect("memory");
        let htm = Htm::new(HtmMode::Absent).expect("it is always available");
        let environment = Environment::new(htm, memory, Budget::default());
        let mut core = environment.core().expect("a free slot");
        let definition = TableDef::builder("cell").column(ColumnDef::new("id", ColumnType::U64)).key(["id"]);
        let definition = if organization == Organization::Hash { definition.hash() } else { definition };
        let definition = definition.capacity(ROWS as usize).finish().expect("a valid table");
        core.local.enter();
        let tables = [0, 1].map(|id| {
            let (header, version_header) = (Silo::HEADER_BYTES, Silo::VERSION_HEADER_BYTES);
            let table = Table::new(TableId(id), &definition, None, header, version_header, &mut core);
            Box::new(table.expect("memory"))
        });
        core.local.leave();
        let mut worker = Silo::open(&Default::default(), &environment).worker(core);
        worker.begin(Mode::ReadWrite, Priority::NONE);
        for (table, key) in tables.iter().flat_map(|table| (0..ROWS).map(move |key| (table, key))) {
            let staged = worker.stage(table).expect("memory");
            assert_eq!(worker.insert(table, Key::Word8(key), staged, OnExists::Refuse), Ok(Inserted::New));
        }
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        drop(worker);
        (environment, tables)
    }

    /// Whether each of the lookups finds what was prefetched before it, in this order and with two waves after it.
    fn found(organization: Organization, prefetch: &[(usize, u64)], lookups: &[(usize, u64)]) -> Vec<bool> {
        let (environment, tables) = tables(organization);
        let mut attempt = Attempt::<()>::new(environment.core().expect("a free slot"));
        attempt.begin();
        for &(table, key) in prefetch {
            attempt.prefetch(&tables[table], Key::Word8(key), ColumnSet::ALL);
        }
        (0..2).for_each(|_| attempt.advance_prefetch());
        let found = lookups.iter().map(|&(table, key)| attempt.finds_prefetched(&tables[table], Key::Word8(key)));
        let found = found.collect();
        attempt.core.local.leave();
        found
    }

    const BOTH: [Organization; 2] = [Organization::Hash, Organization::Ordered];

    #[test]
    fn each_version_is_requested_once() {
        let versions = |organization| {
            let (environment, tables) = tables(organization);
            let mut attempt = Attempt::<()>::new(environment.core().expect("a free slot"));
            attempt.begin();
            // In a bucket's own line.
            (0..5).for_each(|key| attempt.prefetch(&tables[0], Key::Word8(key), ColumnSet::ALL));
            let versions = [(); 3].map(|()| {
                ROW_VERSIONS.set(0);
                attempt.advance_prefetch();
                ROW_VERSIONS.get()
            });
            attempt.core.local.leave();
            versions
        };
        assert_eq!(versions(Organization::Hash), [0, 5, 0]);
        assert_eq!(versions(Organization::Ordered), [5, 0, 0]);
    }

    #[test]
    fn rows_are_found_in_their_order_and_table_by_table() {
        let interleaved: Vec<_> = (0..ROWS / 2).flat_map(|key| [(0, key), (1, key)]).collect();
        let by_table: Vec<_> =
            [0, 1].into_iter().flat_map(|table| (0..ROWS / 2).map(move |key| (table, key))).collect();
        for organization in BOTH {
            for (prefetched, lookups) in
                [(&interleaved, &interleaved), (&by_table, &by_table), (&by_table, &interleaved)]
            {
                let found = found(organization, prefetched, lookups);
                assert!(found.iter().all(|&found| found), "{prefetched:?} {lookups:?} {found:?}");
            }
        }
    }

    /// Also those in the lines behind a bucket.
    #[test]
    fn every_record_of_a_full_table_is_found() {
        let all: Vec<_> = (0..ROWS).map(|key| (0, key)).collect();
        for organization in BOTH {
            assert!(found(organization, &all, &all).iter().all(|&found| found));
        }
    }

    #[test]
    fn a_prefetched_row_that_is_never_read_does_not_delay_the_others_for_long() {
        let mut prefetched: Vec<_> = (0..ROWS).map(|key| (0, key)).collect();
        // Of another table, of this one, and without a row.
        prefetched.splice(5..5, [(1, 0), (1, 1)]);
        prefetched.splice(9..9, [(0, 0), (0, ROWS)]);
        let lookups: Vec<_> = (0..ROWS).map(|key| (0, key)).collect();
        for organization in BOTH {
            let found = found(organization, &prefetched, &lookups);
            let missed = found.iter().filter(|&&found| !found).count();
            assert!(missed <= 2, "{found:?}");
            // A row that was not prefetched is not found, however often it is looked up.
            assert_eq!(self::found(organization, &[(0, 0), (1, 1)], &[(0, 9); 40]), [false; 40]);
        }
    }

    #[test]
    fn a_prefetched_row_is_read_at_once_unless_it_is_locked_or_the_transactions_own() {
        let (environment, tables) = tables(Organization::Hash);
        let core = environment.core().expect("a free slot");
        let (mut worker, table, key) =
            (Silo::open(&Default::default(), &environment).worker(core), &tables[0], Key::Word8);
        worker.begin(Mode::ReadWrite, Priority::NONE);
        (0..4).for_each(|at| worker.prefetch(table, key(at / 2), ColumnSet::ALL));
        assert_eq!(worker.read_prefetched(table, key(0)), None, "its wave has not run");
        (0..2).for_each(|_| worker.advance_prefetch());
        assert_eq!(worker.read_prefetched(table, key(1)), None, "it is not the next one");
        assert_eq!(worker.read_prefetched(&tables[1], key(0)), None, "it was not prefetched");
        let row = worker.read_prefetched(table, key(0));
        let record = worker.seen().record.expect("the row is there");
        assert!(row.is_some() && worker.newest() == worker.seen().tid && worker.newest() > Tid::ZERO);
        // Locked, absent and removed.
        for bit in [1, 2, 4] {
            record_header::tid_word(&table.record_layout, record).fetch_xor(bit, Ordering::Relaxed);
            assert_eq!(worker.read_prefetched(table, key(0)), None);
            record_header::tid_word(&table.record_layout, record).fetch_xor(bit, Ordering::Relaxed);
        }
        assert_eq!(worker.read_prefetched(table, key(0)), row);
        let updated = worker.update(table, key(1), ColumnUse::ALL).expect("no conflict").expect("a row");
        assert_eq!(worker.read_prefetched(table, key(1)), None);
        assert_eq!(worker.read(table, key(1), ColumnSet::ALL), Ok(Some(updated.after)));
        let attempt = worker.attempt();
        assert_eq!((attempt.reads.len(), attempt.base.prefetched_slots()), (2, (4, 4)));
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    }

    #[test]
    fn a_row_read_before_its_wave_does_not_delay_the_others() {
        let (environment, tables) = tables(Organization::Hash);
        let mut attempt = Attempt::<()>::new(environment.core().expect("a free slot"));
        attempt.begin();
        (0..9).for_each(|key| attempt.prefetch(&tables[0], Key::Word8(key), ColumnSet::ALL));
        assert!(!attempt.finds_prefetched(&tables[0], Key::Word8(0)));
        (0..2).for_each(|_| attempt.advance_prefetch());
        let (taken, _) = attempt.prefetched_slots();
        assert_eq!(taken, 1);
        for key in 1..9 {
            assert!(attempt.finds_prefetched(&tables[0], Key::Word8(key)), "{key}");
        }
        assert_eq!(attempt.prefetched_slots(), (9, 9), "each from the next slot");
        attempt.core.local.leave();
    }
}
