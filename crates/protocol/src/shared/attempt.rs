//! What every attempt has: its worker's core, its private writes, and what it must tell.

use std::sync::atomic::Ordering;

use seriatim_base::Stamp;
use seriatim_catalog::{Key, KeyBuf};
use seriatim_memory::OutOfMemory;
use seriatim_store::{Finger, RecordPtr, Witness, read_key};
use seriatim_txn::{Cause, Core, Incident, Phase, Reason, Redo, Seen, Stop, Table};

use super::head::{self, HeaderWord};
use super::origin::Origin;
use super::prefetch::Prefetched;
use super::record;
use super::sweep::{self, Claim};
use super::writes::{Part, Write, WriteSet};

/// The leaf last used of each ordered table: the node buffer of DBX §6.2.
#[derive(Debug, Default)]
pub(crate) struct Fingers {
    by_table: Vec<Finger>,
}

impl Fingers {
    #[cold]
    fn add(&mut self, at: usize) {
        self.by_table.resize_with(at + 1, Finger::default);
    }

    #[inline]
    pub(crate) fn of(&mut self, table: &Table) -> &mut Finger {
        let at = table.id.index();
        if at >= self.by_table.len() {
            self.add(at);
        }
        &mut self.by_table[at]
    }
}

/// State of one attempt, whatever its protocol.
pub(crate) struct Attempt<O = ()> {
    pub(crate) core: Core,
    pub(crate) fingers: Fingers,
    prefetched: Prefetched,
    pub(crate) writes: WriteSet<O>,
    /// What is noted from now on belongs to it.
    pub(crate) by: O,
    /// The newest stamp read or to be overwritten; of absences, the newest that may have caused one.
    pub(crate) newest: Stamp,
    pub(crate) seen: Seen,
    pub(crate) incident: Option<Incident>,
    /// Deleted records that this attempt queued.
    queued: usize,
}

impl<O: Origin> Attempt<O> {
    pub(crate) fn new(core: Core) -> Attempt<O> {
        let (writes, newest, seen) = (WriteSet::new(&core.local), Stamp::ZERO, Seen::default());
        let (fingers, prefetched) = (Fingers::default(), Prefetched::default());
        Attempt { core, fingers, prefetched, writes, by: O::default(), newest, seen, incident: None, queued: 0 }
    }

    #[inline]
    pub(crate) fn begin(&mut self) {
        self.core.enter();
        self.prefetched.clear();
        self.by = O::default();
        self.newest = Stamp::ZERO;
        self.incident = None;
        self.queued = 0;
    }

    /// A version was seen: the attempt comes after it. Stamp zero is that of a placeholder: what its key had before is unlinked.
    #[inline]
    pub(crate) fn note_stamp(&mut self, table: &Table, stamp: Stamp) {
        if stamp == Stamp::ZERO {
            self.note_unlinked(table);
        }
        self.newest = self.newest.max(stamp);
    }

    /// A key of the table was found absent, or is given its first record: the attempt comes after whatever deleted it.
    #[inline]
    pub(crate) fn note_unlinked(&mut self, table: &Table) {
        self.newest = self.newest.max(table.unlinked.newest());
    }

    /// Notes where the attempt stopped (promise f).
    #[cold]
    pub(crate) fn stop_at(&mut self, cause: Cause, table: &Table, record: RecordPtr) -> Stop {
        // SAFETY: key words of a linked record never change; we are online.
        let key = unsafe { read_key(record, table.class) };
        self.incident = Some(Incident { cause, table: Some(table.id), key: Some(KeyBuf::from(key)) });
        Stop::Abort(cause)
    }

    #[inline]
    pub(crate) fn note_own(&mut self, write: &Write<O>) {
        self.seen =
            Seen { record: Some(write.record), stamp: write.expected.stamp(), absent: write.image == 0, own: true };
    }

    pub(crate) fn tail(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        let tail = record::tail(&mut self.core, bytes)?;
        if tail != 0 {
            self.writes.parts.push(Part { address: tail as usize, bytes: record::tail_bytes(tail as usize) });
        }
        Ok(tail)
    }

    /// Begins to fetch the row at `key`.
    #[inline]
    pub(crate) fn prefetch(&mut self, table: &Table, key: Key<'_>) {
        let Attempt { core, fingers, prefetched, .. } = self;
        prefetched.begin(table, key, fingers, core.local.pinned());
    }

    /// The next wave of what was prefetched.
    #[inline]
    pub(crate) fn advance_prefetch(&mut self) {
        self.prefetched.advance(self.core.local.pinned());
    }

    /// The linked record at `key`, or the witness of its absence.
    #[inline(always)]
    pub(crate) fn find(&mut self, table: &Table, key: Key<'_>) -> Result<RecordPtr, Witness> {
        let Attempt { core, fingers, prefetched, .. } = self;
        let pin = core.local.pinned();
        let expected = prefetched.find(table, key, pin).filter(|&record| {
            // Unlinked since: its key may live in another record.
            !HeaderWord(head::header(&table.shape, record).load(Ordering::Relaxed)).is_removed()
        });
        match expected {
            Some(record) => Ok(record),
            None => table.index.get_near(key, fingers.of(table), pin),
        }
    }

    /// The stop of an attempt that met a lock for longer than the bound.
    #[cold]
    pub(crate) fn blame_lock(&mut self) -> Stop {
        let cause = Cause { phase: Phase::Lock, reason: Reason::RecordLocked };
        let locked = |write: &&Write<O>| {
            HeaderWord(head::header(&write.table().shape, write.record).load(Ordering::Acquire)).is_locked()
        };
        let entries = self.writes.entries();
        match entries.iter().find(locked).or(entries.first()).copied() {
            Some(write) => self.stop_at(cause, write.table(), write.record),
            None => Stop::Abort(cause),
        }
    }

    /// Promise (a): redo entries are in the buffer before the answer. `before` as in [`Attempt::settle`], before it or after it:
    /// images that were replaced stay readable until the worker leaves.
    #[inline]
    pub(crate) fn report(&self, stamp: Stamp, redo: &mut dyn Redo, before: impl Fn(usize) -> usize) {
        if redo.listens() {
            self.writes.report(stamp, redo, before);
        }
    }

    /// After a commit: retires what was overwritten, queues tombstones, frees what was private. The worker leaves.
    pub(crate) fn finish(&mut self, claim: &impl Claim) {
        record::free_private(&mut self.core, &mut self.writes, true);
        self.unlink_orphans(claim);
        self.leave();
    }

    /// After an abort: frees everything private and unlinks our placeholders (promise b). The worker leaves.
    pub(crate) fn abandon(&mut self, claim: &impl Claim) {
        record::free_private(&mut self.core, &mut self.writes, false);
        for entry in 0..self.writes.entries().len() {
            let write = self.writes.entries()[entry];
            if write.linked {
                self.unlink_placeholder(&write, claim);
            }
        }
        self.unlink_orphans(claim);
        self.leave();
    }

    fn unlink_orphans(&mut self, claim: &impl Claim) {
        for entry in 0..self.writes.undone.len() {
            let write = self.writes.undone[entry];
            if write.linked {
                self.unlink_placeholder(&write, claim);
            }
        }
    }

    /// Takes the look that this attempt owes a record it linked.
    pub(crate) fn unlink_placeholder(&mut self, write: &Write<O>, claim: &impl Claim) {
        unlink_placeholder(&mut self.core, write, claim);
    }

    /// The header word after a commit of `write`. Whoever linked the record and fills it owes it nothing any more; a deleted one
    /// is owed a look, by us unless somebody owes it already.
    #[inline]
    pub(crate) fn after(write: &Write<O>, stamp: Stamp) -> HeaderWord {
        let deleted = write.image == 0;
        let owed = !write.linked && (deleted || write.expected.is_queued());
        if write.is_nothing() { write.expected } else { HeaderWord::committed(stamp, deleted, owed) }
    }

    /// After a commit, when nothing is locked any more: retires what the writes replaced, queues what they deleted, unlinks what came to nothing.
    /// `before` names the image that the write of this index replaced; zero for none.
    #[inline]
    pub(crate) fn settle(&mut self, stamp: Stamp, claim: &impl Claim, before: impl Fn(usize) -> usize) {
        let Attempt { core, writes, queued, .. } = self;
        for (entry, write) in writes.entries().iter().enumerate() {
            if write.is_nothing() {
                if write.linked {
                    unlink_placeholder(core, write, claim);
                }
                continue;
            }
            let before = before(entry);
            record::count(core, write, if write.expected.is_absent() { 0 } else { before });
            match before {
                0 => {}
                // A deletion as a version: an image header without a row.
                marker if write.expected.is_absent() => {
                    record::retire(core, marker, write.table().shape.image_header, stamp.epoch());
                }
                image => {
                    record::retire_version(core, write.table(), write.record, image, write.image, stamp.epoch());
                }
            }
            if write.image == 0 {
                *queued += queue_deleted(core, write, stamp);
            }
        }
    }

    /// How many queued records to look at after the attempt: `most`, and twice what it queued itself, so that the queue shrinks
    /// whatever the transactions delete.
    pub(crate) fn due(&self, most: usize) -> usize {
        most.saturating_add(2 * self.queued)
    }

    #[inline]
    fn leave(&mut self) {
        self.writes.clear();
        self.core.local.leave();
    }
}

/// See [`Attempt::unlink_placeholder`].
#[inline(never)]
fn unlink_placeholder<O: Origin>(core: &mut Core, write: &Write<O>, claim: &impl Claim) {
    sweep::look(core, write.table(), write.record, HeaderWord::PLACEHOLDER, claim);
}

/// Queues a record that `write` deleted, unless somebody owes it a look already; how many are queued.
#[inline(never)]
fn queue_deleted<O: Origin>(core: &mut Core, write: &Write<O>, stamp: Stamp) -> usize {
    if write.expected.is_queued() {
        return 0;
    }
    sweep::later(core, write.table(), write.record, Attempt::after(write, stamp));
    1
}
