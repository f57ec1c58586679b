//! Growth: splits one bucket at a time, while all other operations continue. (This departs from DBX §4, whose
//! operations subscribe to a global resize lock: a resize there stops the table for as long as it takes.)
//!
//! Invariants: (a) One thread grows a table at a time; the others continue without waiting. Latches are held for the
//! stores of one split. (b) Splitting bucket `s` into `s` and a new bucket `n` changes the word of `s`. So every node
//! version of a key that now belongs to `n` fails (or the observer updates it). `n` begins with a fresh word before any
//! thread can reach it. (c) `n` is complete before `s` is latched. Under the latch the moved records first leave `s`,
//! then the extent reaches `n`. So a record can never be removed from one of them and found in the other. A reader that
//! finds neither saw `s` latched or changed, and looks again. (d) A bucket whose gap word is not 0 is not split: a
//! protocol holds keys that would move out of it. Growth is postponed until a later insert; chains get longer
//! meanwhile.

use super::Hash;
use super::bucket::{BUCKET_SLOTS, Bucket, OVERFLOW_SLOTS, Slot, Spare, load};
use super::change::{Change, LATE, Unheld};
use super::directory::{Blocks, Extent};
use super::hasher::{HashValue, Hashed};
use crate::index::StoreCx;
use crate::node_version::State;
use crate::observer::Observer;
use crate::rare::{RarePath, note};
use crate::record::RecordPtr;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_memory::OutOfMemory;
use std::sync::TryLockError;

/// Records per bucket at which the table grows: load 0.6 of the slots of first lines, where 4 % of keys live
/// in overflow lines.
pub(super) const LOAD: u64 = 3;
/// Splits done by one insert at most. One counted insert pays for the 16 / 3 splits of those not counted.
const SPLITS_MAX: usize = 8;
/// Plans for one split until growth is left to a later insert.
const PLANS_MAX: usize = 4;

/// The fields that the growth lock protects.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) blocks: Blocks,
    /// Scratch: slots that stay, slots that move.
    parts: [Vec<Slot>; 2],
}

impl Growth {
    pub(super) fn new(blocks: Blocks) -> Growth {
        Growth { blocks, parts: [Vec::new(), Vec::new()] }
    }
}

/// The outcome of a split.
enum Split {
    Done,
    /// The bucket changed too often, its gap is held, or the hash has no bits left.
    PutOff,
}

impl<K: Hashed> Hash<K> {
    /// Splits buckets while the table is too full, unless another thread does.
    #[cold]
    #[inline(never)]
    pub(super) fn grow<O: Observer>(&self, cx: &mut StoreCx<'_>, observer: &mut O) {
        let mut growth = match self.growth.try_lock() {
            Ok(growth) => growth,
            Err(TryLockError::WouldBlock) => return,
            // The state after a panic is consistent: blocks are recorded as they are allocated.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        for _ in 0..SPLITS_MAX {
            // Out of memory only puts growth off: the insert itself has succeeded.
            if !self.is_full() || !matches!(self.split(cx, observer, &mut growth), Ok(Split::Done)) {
                return;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.len_estimate() as u64 > LOAD * self.directory.extent().buckets()
    }

    fn split<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        observer: &mut O,
        growth: &mut Growth,
    ) -> Result<Split, OutOfMemory> {
        let extent = self.directory.extent();
        let Some(grown) = extent.grown(self.directory.base()) else { return Ok(Split::PutOff) };
        let new = self.directory.prepare(&mut growth.blocks, cx.local, cx.outside)?;
        // SAFETY: below the extent; online, as the insert that grows the table asserted.
        let old = unsafe { self.directory.bucket(extent.victim(self.directory.base())) };
        for _ in 0..PLANS_MAX {
            // ORDERING: Relaxed: a hint; the gate looks again.
            if old.gap.load(Ordering::Relaxed) != 0 {
                return Ok(Split::PutOff);
            }
            let seen = old.seen();
            let [stay, moving] = &mut growth.parts;
            stay.clear();
            moving.clear();
            // SAFETY: online.
            for slot in unsafe { old.lines() }.flat_map(|line| line.slots).map(load).filter(|slot| !slot.is_empty()) {
                // SAFETY: loaded from a line; the record was linked while we are online.
                let moves = unsafe { level_bit::<K>(slot, extent) };
                if moves { moving.push(slot) } else { stay.push(slot) }
            }
            let mut spares = fill(new, moving, cx)?;
            match self.publish(cx, old, seen, stay, grown) {
                Ok(()) => {
                    note(RarePath::BucketSplit);
                    let value = State::NEW.0;
                    observer.changed(&old.word, seen.0, seen.changed().0);
                    observer.created(&old.word, seen.0, &new.word, value, &new.gap);
                    return Ok(Split::Done);
                }
                Err(code) => {
                    spares.drain(..).for_each(|spare| spare.release(cx.local));
                    if code != LATE {
                        return Ok(Split::PutOff);
                    }
                }
            }
        }
        Ok(Split::PutOff)
    }

    /// Rewrites the chain of `old`, read when its word was `seen`, to hold `stay` alone, and moves the extent on.
    fn publish(&self, cx: &mut StoreCx<'_>, old: &Bucket, seen: State, stay: &[Slot], grown: Extent) -> Result<(), u8> {
        let mut stores: Vec<(&AtomicU64, u64)> = Vec::new();
        let mut cut: Vec<u64> = Vec::new();
        let (mut at, mut kept) = (0, None);
        // SAFETY: online.
        for line in unsafe { old.lines() } {
            // A line that gets no record is cut off, except the bucket itself: the chain ends at the last one
            // that does.
            let keeps = at < stay.len() || kept.is_none();
            for slot in line.slots {
                stores.push((slot, stay.get(at).copied().unwrap_or(Slot::EMPTY).0));
                at += 1;
            }
            if keeps {
                kept = Some(line.next);
            } else {
                cut.push(line.address());
            }
        }
        if let (Some(last), false) = (kept, cut.is_empty()) {
            stores.push((last, 0));
        }
        stores.push((&self.directory.extent, grown.bits()));
        self.apply(cx, &mut Change { bucket: old, seen, gate: Unheld, stores: &stores })?;
        for line in cut {
            // SAFETY: the line was in the chain at `seen`, and is no more.
            unsafe { Spare::from_bits(line) }.retire(cx.local);
        }
        Ok(())
    }
}

/// Whether the key of a slot has the level bit set that the next split looks at.
///
/// # Safety
/// The slot was loaded from a line by a thread that has been online since.
unsafe fn level_bit<K: Hashed>(slot: Slot, extent: Extent) -> bool {
    let level = extent.level();
    let hash = match level < HashValue::TAG_LEVELS {
        true => Some(HashValue(slot.tag())),
        // SAFETY: the caller's promise; an occupied slot names a record, whose key words rule 1 keeps.
        false => unsafe { slot.record().map(|record: RecordPtr| K::hash(K::of(record))) },
    };
    hash.is_some_and(|hash| hash.levels() >> level & 1 == 1)
}

/// Fills `bucket`, which is private, with `slots`. The overflow lines that took.
fn fill(bucket: &Bucket, slots: &[Slot], cx: &mut StoreCx<'_>) -> Result<Vec<Spare>, OutOfMemory> {
    let (home, rest) = slots.split_at(slots.len().min(BUCKET_SLOTS));
    let mut spares: Vec<Spare> = Vec::new();
    let mut next = 0;
    // From the last line to the first, so that each knows the one behind it. Only the last may be partly filled.
    let partial = rest.len() % OVERFLOW_SLOTS;
    let (full, last) = rest.split_at(rest.len() - partial);
    for part in std::iter::once(last).filter(|last| !last.is_empty()).chain(full.chunks(OVERFLOW_SLOTS).rev()) {
        match Spare::new(cx.local, cx.outside) {
            Ok(spare) => {
                spare.fill(part, next);
                next = spare.bits();
                spares.push(spare);
            }
            Err(error) => {
                spares.drain(..).for_each(|spare| spare.release(cx.local));
                return Err(error);
            }
        }
    }
    bucket.fill(home, next);
    Ok(spares)
}
