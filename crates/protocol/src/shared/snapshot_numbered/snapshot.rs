//! Read-only transactions (§5.4): each takes and advances S, or takes the newest eventual snapshot
//! ([`seriatim_txn::Snapshots`]). It reads the versions with a number not above its own, never validates and
//! never aborts. `shared/versions` has the chains and the reading.
//!
//! Each version has its local snapshot number, with a deletion mark in bit 0; that never changes. When a row version is
//! installed, the previous one is retired, so it lives until all readers that began before have left. A reader that
//! begins later has a number at least as high as the new row version's. It does not follow the pointer, with two
//! exceptions. A reader of the durable epoch continues to the versions of that epoch. They live until the row version's
//! own epoch is durable and no reader holds an earlier one (dbx's README, "Durability"). A reader of an eventual
//! snapshot may begin later and continue to the previous version. That one lives until no snapshot that needs it is
//! read ([`seriatim_memory::Memory::pass_snapshot`]).

use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{Epoch, Tid};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, Eventual, Fault, OpError, RecordLayout, Table, TakenSnapshot};

use crate::shared::record_header::{self, TidWord};
use crate::shared::versions::{self, Version};

/// The snapshot number under which a tombstone's row was deleted: the third word of a header. It is valid while the TID
/// word is ABSENT with a TID. The version word then still names the deleted row, for readers of older snapshots. So a
/// delete needs no row version, and no memory. Written as the version word is: under the lock bit, or in the region of
/// the commit.
#[inline]
pub(super) fn deletion<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(record_layout, record)
}

/// The header of a row version.
pub type VersionHeader = Version<Number>;

/// A snapshot number, with the mark of a deletion in bit 0.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Number(u64);

impl Number {
    pub(super) const fn new(snapshot: u64, deleted: bool) -> Number {
        Number(snapshot << 1 | deleted as u64)
    }

    pub const fn snapshot(self) -> u64 {
        self.0 >> 1
    }

    const fn is_deleted(self) -> bool {
        self.0 & 1 != 0
    }
}

impl Version<Number> {
    pub(super) const fn new(tid: Tid, snapshot: u64, deleted: bool, previous: usize) -> VersionHeader {
        Version { tid, kept: Number::new(snapshot, deleted), previous }
    }
}

/// The snapshot of a read-only transaction.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Versions of a higher number came later.
    snapshot: u64,
    /// Once the log has stopped, or if the disk is behind: versions of a later epoch are not shown, as they
    /// are not durable.
    durable: Option<Epoch>,
    /// Of an eventual snapshot: it shows everything of epochs up to this one; rows that were deleted later may
    /// be shown too.
    whole: Option<Epoch>,
}

impl View {
    /// The newest committed versions; once the log has stopped, or if the disk is behind, those of the
    /// durable epoch. Reads S and advances it, atomically with regard to regions that read S.
    pub fn take(core: &Core, number: &super::SnapshotNumber) -> View {
        // ORDERING: SeqCst, partner of the fence between a commit's last lock and its load of S. Either that commit
        // sees the advanced number, or this reader sees its records locked.
        let snapshot = core.htm.outside(|| number.word().fetch_add(1, Ordering::SeqCst));
        fence(Ordering::SeqCst);
        View { snapshot, durable: core.shown_epoch(), whole: None }
    }

    /// The newest eventual snapshot on offer. If it lacks something that the caller must see, a snapshot that is made
    /// now. If none is offered, a snapshot of the present.
    #[inline]
    pub fn take_eventual(core: &mut Core, eventual: &Eventual, number: &super::SnapshotNumber) -> View {
        let closes = !core.injects(Fault::SnapshotAmidWindows);
        let wanted = (core.local.worker(), core.includes);
        let Some(mut taken) = core.epochs.take_snapshot(eventual, &core.htm, wanted, closes) else {
            core.taken = None;
            let _closed = closes.then(|| core.epochs.windows().close());
            return View::take(core, number);
        };
        if core.injects(Fault::UnwholeSnapshot) {
            taken.number += 1;
        }
        let durable = core.shown_epoch();
        core.taken =
            Some(TakenSnapshot { whole: durable.map_or(taken.whole, |durable| durable.min(taken.whole)), ..taken });
        View { snapshot: taken.number, durable, whole: Some(taken.whole) }
    }

    #[inline]
    fn shows(self, snapshot: u64, tid: Tid) -> bool {
        snapshot <= self.snapshot && self.durable.is_none_or(|durable| tid.epoch() <= durable)
    }
}

impl versions::View for View {
    type Kept = Number;

    #[inline]
    fn shows(self, version: &VersionHeader) -> bool {
        View::shows(self, version.kept.snapshot(), version.tid)
    }

    #[inline(always)]
    fn shows_newest(self, table: &Table, record: RecordPtr) -> Option<(usize, Tid)> {
        // ORDERING: as in `look`: the version word after the TID word. A version that was installed since has a number
        // above ours, and so has a deletion, which leaves the version word.
        let (header, version) = record_header::words(table, record);
        let word = TidWord(header.load(Ordering::Acquire));
        let newest = version.load(Ordering::Acquire) as usize;
        if !word.is_plain() {
            return None;
        }
        // SAFETY: the row is there, so the version word named a row version, which is readable while we are online.
        let version = unsafe { VersionHeader::of(table.record_layout.row, newest) };
        debug_assert!(!version.kept.is_deleted(), "the version of a row that is there");
        View::shows(self, version.kept.snapshot(), version.tid).then_some((newest, version.tid))
    }

    #[inline]
    fn is_deletion(version: &VersionHeader) -> bool {
        version.kept.is_deleted()
    }

    #[inline(always)]
    fn look(self, table: &Table, record: RecordPtr) -> Result<(TidWord, bool), OpError> {
        // A locked record may be about to get a version of our snapshot: wait for it. The wait ends, as the holder is
        // between its first lock and its installs, or unlinks the record. There it waits for no other transaction, runs
        // no code of users, and aborts the process if it panics. Only a holder that is descheduled makes it long.
        let word = loop {
            if let Some(word) = record_header::settled(table, record) {
                break word;
            }
        };
        // Every version that was committed since has a number above ours. So the loaded number is that of the
        // deletion in the TID word, or too high for us. In the latter case the version word, loaded later,
        // begins with versions that followed that deletion.
        let is_deleted = word.is_absent()
            && word.tid() != Tid::ZERO
            && View::shows(self, deletion(&table.record_layout, record).load(Ordering::Acquire), word.tid());
        Ok((word, is_deleted))
    }

    fn epoch(self) -> Option<Epoch> {
        self.durable
    }

    #[inline]
    fn whole(self) -> Option<Epoch> {
        self.whole
    }
}
