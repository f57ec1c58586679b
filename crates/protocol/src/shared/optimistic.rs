//! The read phase that optimistic protocols share: reads are noted with the header word seen, absences and ranges with the
//! witness word of their bucket or leaf, writes are private until commit.
//!
//! A read needs no region: header word, image word and header word again, unchanged, are one version (Algorithm 2 takes a region
//! for that). Whether it still is the newest at commit, validation decides (promise c).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use seriatim_base::{TableId, abort_on_unwind};
use seriatim_catalog::{Key, KeyBuf, KeyClass};
use seriatim_htm::Access;
use seriatim_memory::CountedVec;
use seriatim_store::{Inserted as Linked, Observer, RecordPtr, Witness, read_key};
use seriatim_txn::{
    Cause, Core, Fault, Incident, Inserted, Mark, OnExists, Outcome, Phase, Reason, RowPtr, Scan, Seen, Staged, Stop,
    Table, Updating,
};

use super::attempt::Attempt;
use super::head::{self, HeaderWord};
use super::origin::Origin;
use super::record;
use super::sweep::Claim;
use super::writes::{Write, WriteSet};

/// A record read: its address with the table's id and key class above, and the header word seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<O = ()> {
    record: u64,
    header: u64,
    seen: HeaderWord,
    by: O,
}

// What does not repair pays nothing.
const _ORIGINS_TAKE_NO_ROOM: () = assert!(size_of::<Read>() == 24 && size_of::<Witnessed>() == 24);

const ADDRESS_BITS: u32 = 48;
const CLASS_SHIFT: u32 = 62;
/// Table ids fit between address and class.
const TABLES_MAX: u32 = 1 << (CLASS_SHIFT - ADDRESS_BITS);

impl<O: Origin> Read<O> {
    #[inline]
    fn new(table: &Table, record: RecordPtr, seen: HeaderWord, by: O) -> Read<O> {
        let address = record.addr() as u64;
        debug_assert!(address >> ADDRESS_BITS == 0, "user addresses have 48 bits");
        let header = head::header(&table.shape, record) as *const AtomicU64 as u64;
        debug_assert!(table.id.0 < TABLES_MAX, "a database has fewer tables");
        let class = table.class as u64;
        Read { record: address | u64::from(table.id.0) << ADDRESS_BITS | class << CLASS_SHIFT, header, seen, by }
    }

    #[inline]
    fn record(self) -> RecordPtr {
        let address = self.record & ((1 << ADDRESS_BITS) - 1);
        // SAFETY: it was a record when noted, and the worker has been online since.
        unsafe { RecordPtr::from_raw(NonNull::new_unchecked(address as *mut u8)) }
    }

    #[inline]
    fn table(self) -> TableId {
        TableId((self.record >> ADDRESS_BITS) as u32 & (TABLES_MAX - 1))
    }

    fn key(self) -> KeyBuf {
        let classes = [KeyClass::Word8, KeyClass::Word16, KeyClass::Bytes];
        let class = classes.into_iter().find(|&class| class as u64 == self.record >> CLASS_SHIFT);
        // SAFETY: key words of a linked record never change, and the worker is still online.
        KeyBuf::from(unsafe { read_key(self.record(), class.unwrap_or(KeyClass::Word8)) })
    }

    #[inline]
    fn word<'t>(self) -> &'t AtomicU64 {
        crate::step();
        // SAFETY: as in `record`.
        unsafe { &*(self.header as *const AtomicU64) }
    }
}

/// An absence or a range, witnessed by a word of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witnessed<O = ()> {
    witness: Witness,
    table: TableId,
    by: O,
}

/// What refuted a read set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refuted {
    Read(usize),
    Witness(usize),
    Write(usize),
}

/// State of one optimistic attempt.
pub(crate) struct Optimistic<O = ()> {
    pub(crate) base: Attempt<O>,
    pub(crate) reads: CountedVec<Read<O>>,
    pub(crate) witnesses: CountedVec<Witnessed<O>>,
}

impl<O: Origin> Optimistic<O> {
    pub(crate) fn new(core: Core) -> Optimistic<O> {
        let (reads, witnesses) = (core.local.counted(256), core.local.counted(64));
        Optimistic { base: Attempt::new(core), reads, witnesses }
    }

    #[inline]
    pub(crate) fn begin(&mut self) {
        self.base.begin();
        self.reads.clear();
        self.witnesses.clear();
    }

    /// Gives back what a large transaction made it take: the worker rests.
    pub(crate) fn rest(&mut self) {
        self.reads.rest();
        self.witnesses.rest();
        self.base.writes.rest();
    }

    #[cold]
    fn locked(&mut self, table: &Table, record: RecordPtr) -> Stop {
        self.base.stop_at(Cause { phase: Phase::Execute, reason: Reason::RecordLocked }, table, record)
    }

    #[inline]
    fn note_witness(&mut self, table: &Table, witness: Witness) -> Result<(), Stop> {
        self.base.note_unlinked(table);
        if self.base.core.suffers(Fault::DropWitness) {
            return Ok(());
        }
        let by = self.base.by;
        // A scan that moves on within one leaf, or repeated misses of one bucket, need one entry.
        if self.witnesses.last().is_none_or(|last| last.witness != witness || last.by != by) {
            self.witnesses.try_push(Witnessed { witness, table: table.id, by }).map_err(record::full)?;
        }
        Ok(())
    }

    /// Notes a record with the header word seen.
    #[inline(always)]
    fn note_read(&mut self, table: &Table, record: RecordPtr, word: HeaderWord) -> Result<(), Stop> {
        self.reads.try_push(Read::new(table, record, word, self.base.by)).map_err(record::full)
    }

    /// The linked record at `key`; `None` after noting its absence.
    #[inline(always)]
    fn find(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RecordPtr>, Stop> {
        match self.base.find(table, key) {
            Ok(record) => Ok(Some(record)),
            Err(witness) => self.note_absence(table, witness).map(|()| None),
        }
    }

    #[inline(never)]
    fn note_absence(&mut self, table: &Table, witness: Witness) -> Result<(), Stop> {
        self.base.seen = Seen { absent: true, ..Seen::default() };
        self.note_witness(table, witness)
    }

    #[cold]
    fn removed(&mut self, table: &Table, record: RecordPtr) -> Stop {
        self.base.stop_at(Cause { phase: Phase::Execute, reason: Reason::RecordRemoved }, table, record)
    }

    /// The settled header word of a record with its image, noted as the version seen.
    #[inline(always)]
    fn look(&mut self, table: &Table, record: RecordPtr) -> Result<(HeaderWord, usize), Stop> {
        let Some((word, image)) = head::settled_image(table, record) else {
            return Err(self.locked(table, record));
        };
        if word.is_removed() {
            return Err(self.removed(table, record));
        }
        self.base.note_stamp(table, word.stamp());
        self.base.seen = Seen { record: Some(record), stamp: word.stamp(), absent: word.is_absent(), own: false };
        Ok((word, image))
    }

    #[inline]
    pub(crate) fn read(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, Stop> {
        match self.find(table, key)? {
            Some(record) => self.read_record(table, record),
            None => Ok(None),
        }
    }

    #[inline]
    fn read_record(&mut self, table: &Table, record: RecordPtr) -> Result<Option<RowPtr>, Stop> {
        if let Some(own) = self.base.writes.find(record) {
            let write = self.base.writes.entries()[own];
            self.base.note_own(&write);
            return Ok((write.image != 0).then(|| record::row_of(table, write.image)));
        }
        let (word, image) = self.look(table, record)?;
        self.note_read(table, record, word)?;
        Ok((!word.is_absent()).then(|| record::row_of(table, image)))
    }

    pub(crate) fn insert(
        &mut self,
        table: &Table,
        key: Key<'_>,
        staged: Staged,
        exists: OnExists,
    ) -> Result<Inserted, Stop> {
        let room = self.base.writes.reserve().map_err(record::full);
        if let Err(stop) = room.and_then(|()| record::seal(&mut self.base.core, table, staged.record, key)) {
            record::discard(&mut self.base.core, table, staged);
            return Err(stop);
        }
        let Optimistic { base: Attempt { core, fingers, .. }, witnesses, .. } = self;
        let mut own = OwnChanges { witnesses, table: table.id, witnessed: std::ptr::null() };
        let (finger, record) = (fingers.of(table), staged.record);
        // A panic could leave nodes latched.
        let insert = |core: &mut Core| {
            let cx = &mut core.store();
            abort_on_unwind("an insert", || table.index.insert_near(cx, key, finger, record, &mut own))
        };
        let linked = record::counting(core, table, insert);
        let record = match linked {
            Ok(Linked::Linked) => {
                let image = record::image_of(table, staged.row);
                let expected = HeaderWord::PLACEHOLDER;
                let (record, by) = (staged.record, self.base.by);
                let write = Write { record, table: table.into(), expected, image, linked: true, by };
                self.base.seen = Seen { record: Some(staged.record), absent: true, ..Seen::default() };
                self.base.note_unlinked(table);
                self.base.writes.push(write);
                return Ok(Inserted::New);
            }
            Ok(Linked::Exists(record)) => record,
            refused => {
                record::unseal(&mut self.base.core, table, staged.record);
                record::discard(&mut self.base.core, table, staged);
                return Err(match refused {
                    Err(error) => record::full(error),
                    _ => Stop::execute(Reason::GapLocked),
                });
            }
        };
        record::unseal(&mut self.base.core, table, staged.record);
        self.overwrite(table, record, staged, exists)
    }

    /// An insert that met a linked record: live, deleted, or a placeholder.
    fn overwrite(
        &mut self,
        table: &Table,
        record: RecordPtr,
        staged: Staged,
        exists: OnExists,
    ) -> Result<Inserted, Stop> {
        let own = self.base.writes.find(record);
        let (word, row) = match own {
            Some(own) => {
                let write = self.base.writes.entries()[own];
                self.base.note_own(&write);
                (write.expected, (write.image != 0).then(|| record::row_of(table, write.image)))
            }
            None => {
                let (word, image) = match self.look(table, record) {
                    Ok(seen) => seen,
                    Err(stop) => {
                        record::discard(&mut self.base.core, table, staged);
                        return Err(stop);
                    }
                };
                (word, (!word.is_absent()).then(|| record::row_of(table, image)))
            }
        };
        if let (Some(row), OnExists::Refuse) = (row, exists) {
            record::discard(&mut self.base.core, table, staged);
            if own.is_none() {
                self.note_read(table, record, word)?;
            }
            return Ok(Inserted::Exists(row));
        }
        let image = record::detach(&mut self.base.core, table, staged, &mut self.base.writes.parts)?;
        let by = self.base.by;
        match own {
            Some(own) => self.base.writes.replace(own, image, by),
            None => {
                self.base.writes.push(Write { record, table: table.into(), expected: word, image, linked: false, by });
            }
        }
        Ok(row.map_or(Inserted::New, Inserted::Replaced))
    }

    #[inline]
    pub(crate) fn update(&mut self, table: &Table, key: Key<'_>) -> Result<Option<Updating>, Stop> {
        let Some(record) = self.find(table, key)? else { return Ok(None) };
        if let Some(own) = self.base.writes.find(record) {
            let write = self.base.writes.entries()[own];
            self.base.note_own(&write);
            if write.image == 0 {
                return Ok(None);
            }
            let before = record::row_of(table, write.image);
            let image = record::copy_row(&mut self.base.core, table, before)?;
            self.base.writes.replace(own, image, self.base.by);
            return Ok(Some(Updating { before, after: record::row_of(table, image) }));
        }
        let (word, seen) = self.look(table, record)?;
        if word.is_absent() {
            return self.note_read(table, record, word).map(|()| None);
        }
        self.base.writes.reserve().map_err(record::full)?;
        let before = record::row_of(table, seen);
        let image = record::copy_row(&mut self.base.core, table, before)?;
        let by = self.base.by;
        self.base.writes.push(Write { record, table: table.into(), expected: word, image, linked: false, by });
        Ok(Some(Updating { before, after: record::row_of(table, image) }))
    }

    pub(crate) fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, Stop> {
        let Some(record) = self.find(table, key)? else { return Ok(None) };
        if let Some(own) = self.base.writes.find(record) {
            let write = self.base.writes.entries()[own];
            self.base.note_own(&write);
            if write.image == 0 {
                return Ok(None);
            }
            self.base.writes.replace(own, 0, self.base.by);
            return Ok(Some(record::row_of(table, write.image)));
        }
        let (word, seen) = self.look(table, record)?;
        if word.is_absent() {
            return self.note_read(table, record, word).map(|()| None);
        }
        self.base.writes.reserve().map_err(record::full)?;
        let by = self.base.by;
        self.base.writes.push(Write { record, table: table.into(), expected: word, image: 0, linked: false, by });
        Ok(Some(record::row_of(table, seen)))
    }

    #[inline]
    pub(crate) fn scan_next(&mut self, table: &Table, scan: &mut Scan) -> Result<Option<RowPtr>, Stop> {
        loop {
            while let Some(&record) = scan.cursor.records().get(scan.next) {
                scan.next += 1;
                if let Some(row) = self.read_record(table, record)? {
                    return Ok(Some(row));
                }
            }
            if scan.done {
                return Ok(None);
            }
            scan.next = 0;
            scan.done = !table.index.next_leaf(&mut scan.cursor, self.base.core.local.pinned());
            if scan.done {
                return Ok(None);
            }
            self.note_witness(table, scan.cursor.witness())?;
        }
    }

    /// Takes back everything written since the mark. What was seen on the way stays seen: the words that the writes would have
    /// built on are noted as read, unless an earlier write of the same record builds on them still.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        let writes = &mut self.base.writes;
        let undone = writes.undone.len();
        writes.rewind(mark);
        if self.base.core.suffers(Fault::ForgetRewound) {
            return;
        }
        for write in &writes.undone[undone..] {
            if writes.find(write.record).is_none() {
                self.reads.push(Read::new(write.table(), write.record, write.expected, write.by));
            }
        }
    }

    /// Drops what an operation read and wrote. What it found absent stays linked by its own insertions until the attempt ends.
    pub(crate) fn forget(&mut self, operation: u16) {
        self.reads.retain(|read| !read.by.is_of(operation));
        self.witnesses.retain(|witnessed| !witnessed.by.is_of(operation));
        self.base.writes.forget(|by| by.is_of(operation));
    }

    /// What no longer holds of what was read. Inside a region, or under the locks of the write set, this is the decision
    /// (promise c). Elsewhere it is an answer about the moment the check began: a word that is unchanged when it is checked was
    /// unchanged then, so all held together.
    #[inline]
    pub(crate) fn refuted<A: Access>(
        access: &mut A,
        reads: &[Read<O>],
        witnesses: &[Witnessed<O>],
        writes: &WriteSet<O>,
    ) -> Option<Refuted> {
        for (i, read) in reads.iter().enumerate() {
            let now = HeaderWord(access.load(read.word()));
            if now != read.seen && (now != read.seen.locked() || writes.find(read.record()).is_none()) {
                return Some(Refuted::Read(i));
            }
        }
        for (i, witnessed) in witnesses.iter().enumerate() {
            // SAFETY: the worker has been online since it took the witness.
            let word = unsafe { &*witnessed.witness.address() };
            if access.load(word) != witnessed.witness.value() {
                return Some(Refuted::Witness(i));
            }
        }
        None
    }

    /// Promise (g): validates without committing.
    pub(crate) fn validate(&mut self) -> Result<(), Stop> {
        // ORDERING: every word was loaded before, in an order all processors agree on, so that "unchanged since" is about one
        // instant.
        fence(Ordering::SeqCst);
        match self.refuted_now() {
            None => Ok(()),
            Some(refuted) => Err(self.blame(Phase::Validate, refuted)),
        }
    }

    /// What no longer holds of what was read, or of what writes build on.
    pub(crate) fn refuted_now(&self) -> Option<Refuted> {
        let mut plain = Plain;
        Self::refuted(&mut plain, &self.reads, &self.witnesses, &self.base.writes).or_else(|| {
            let mut stale = |write: &Write<O>| {
                HeaderWord(plain.load(head::header(&write.table().shape, write.record))) != write.expected
            };
            self.base.writes.entries().iter().position(&mut stale).map(Refuted::Write)
        })
    }

    /// What noted that which was refuted.
    #[cfg_attr(not(test), expect(dead_code, reason = "no protocol here repairs yet"))]
    pub(crate) fn origin(&self, refuted: Refuted) -> O {
        match refuted {
            Refuted::Read(i) => self.reads[i].by,
            Refuted::Witness(i) => self.witnesses[i].by,
            Refuted::Write(i) => self.base.writes.first(i).by,
        }
    }

    /// Commits an attempt that wrote nothing: its place is the start of validation, when every word noted was unchanged. One
    /// word alone needs no validation.
    #[inline]
    pub(crate) fn commit_read_only(&mut self) -> Result<Outcome, Stop> {
        if self.reads.len() + self.witnesses.len() > 1 {
            self.validate()?;
        }
        let newest = self.base.newest;
        self.base.finish(&LockBit);
        Ok(Outcome::Committed(newest))
    }

    /// The stop for what was refuted.
    #[cold]
    pub(crate) fn blame(&mut self, phase: Phase, refuted: Refuted) -> Stop {
        let changed = Cause { phase, reason: Reason::RecordChanged };
        match refuted {
            Refuted::Witness(i) => {
                let cause = Cause { phase, reason: Reason::MembershipChanged };
                self.base.incident = Some(Incident { cause, table: Some(self.witnesses[i].table), key: None });
                Stop::Abort(cause)
            }
            Refuted::Write(i) => {
                let Write { record, .. } = self.base.writes.entries()[i];
                let table = self.base.writes.entries()[i].table();
                self.base.stop_at(changed, table, record)
            }
            Refuted::Read(i) => {
                let read = self.reads[i];
                self.base.incident =
                    Some(Incident { cause: changed, table: Some(read.table()), key: Some(read.key()) });
                Stop::Abort(changed)
            }
        }
    }
}

/// Words as they are, outside any region and with no region about.
pub(crate) struct Plain;

impl Access for Plain {
    const REGION: bool = false;

    #[inline]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        crate::step();
        word.load(Ordering::Acquire)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        word.compare_exchange(unlocked, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Keeps the witness set true under the attempt's own inserts: a leaf it witnessed may change through itself.
struct OwnChanges<'a, O> {
    witnesses: &'a mut CountedVec<Witnessed<O>>,
    table: TableId,
    /// The last word that `changed` found witnessed.
    witnessed: *const AtomicU64,
}

impl<O: Origin> Observer for OwnChanges<'_, O> {
    const ADMITS: bool = false;

    #[inline]
    fn changed(&mut self, word: &AtomicU64, before: u64, after: u64) {
        for witnessed in self.witnesses.iter_mut() {
            if std::ptr::eq(witnessed.witness.address(), word) && witnessed.witness.value() == before {
                witnessed.witness = Witness::new(word, after);
                self.witnessed = word;
            }
        }
    }

    fn created(&mut self, from: &AtomicU64, _: u64, word: &AtomicU64, value: u64, _: &AtomicU64) {
        if std::ptr::eq(self.witnessed, from) {
            let (witness, table) = (Witness::new(word, value), self.table);
            if !O::CARRIED {
                self.witnesses.push(Witnessed { witness, table, by: O::default() });
                return;
            }
            // Every operation that saw the old node owes the new one.
            for at in 0..self.witnesses.len() {
                let Witnessed { witness: seen, by, .. } = self.witnesses[at];
                if std::ptr::eq(seen.address(), from) {
                    self.witnesses.push(Witnessed { witness, table, by });
                }
            }
        }
    }
}

/// Unlinking under the lock bit of the header word.
pub(crate) struct LockBit;

impl Claim for LockBit {
    fn take(&self, core: &Core, table: &Table, record: RecordPtr) -> Option<HeaderWord> {
        let word = head::header(&table.shape, record);
        let seen = HeaderWord(word.load(Ordering::Relaxed));
        if seen.is_locked() {
            return None;
        }
        let exchange = || word.compare_exchange(seen.0, seen.locked().0, Ordering::AcqRel, Ordering::Relaxed);
        core.htm.outside(exchange).is_ok().then_some(seen)
    }

    fn give(&self, core: &Core, table: &Table, record: RecordPtr, word: HeaderWord) {
        // ORDERING: pairs with the acquire of whoever finds the record in a leaf it copied before.
        core.htm.outside(|| head::header(&table.shape, record).store(word.0, Ordering::Release));
    }
}
