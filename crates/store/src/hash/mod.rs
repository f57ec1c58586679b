//! The hash table (DBX §4, "Unordered store"): a record is found by one bucket line and its own line.
//!
//! | file | idea |
//! |---|---|
//! | `hasher` | the hash functions, and the use of each bit of a value |
//! | `bucket` | a cache line of tagged record addresses, chained when full; when a hit or a miss may be believed |
//! | `directory` | linear hashing: where a key's bucket is, now |
//! | `change` | the one way a chain changes: latch at the value planned for, store, unlatch |
//! | `grow` | splits, one bucket at a time |
//! | `walk` | all records, beside everything else |
//! | `scan` | all records, each once, with the node versions that prove it |
//! | `check` | walks by a caller that has the table to itself: statistics and structural invariants |
//!
//! A reader never writes and takes no latch. A hit is final. A miss is final if the bucket's word did not
//! change and the key's home is that bucket, by an extent read after the word. Word and value are then the
//! node version that proves absence: linking the key, in whatever bucket it will belong to, changes that word
//! first.
//!
//! Departures from the paper: overflow is by chained lines of seven slots instead of chained records, so that a chain
//! costs a line per seven. Lookups take no region, since optimistic reading needs none. Growth splits bucket by bucket
//! instead of under a global resize lock. Records lie beside the table, not in the bucket line, which holds five of
//! them by address.

mod bucket;
mod change;
mod check;
mod directory;
mod grow;
mod hasher;
mod scan;
#[cfg(all(test, not(loom)))]
mod tests;
mod walk;

pub(crate) use bucket::Hint;
use hasher::HashValue;
pub(crate) use hasher::Hashed;

use crate::index::{Inserted, StoreCx};
use crate::node_version::{NodeVersion, State};
use crate::observer::Observer;
use crate::rare::{RarePath, note};
use crate::record::RecordPtr;
use bucket::{Bucket, Slot, Spare, load};
use change::{Admitted, Change, Gate, LATE, Latching, Open};
use directory::Directory;
use grow::{Growth, LOAD};
use seriatim_base::CacheAligned;
use seriatim_base::prefetch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_htm::{Agent, Backend, Body, BodyError, Htm, NoLocks, Outside, SpinLock};
use seriatim_memory::{Local, OutOfMemory, Pinned};
use std::marker::PhantomData;
use std::sync::atomic::AtomicI64;
use std::sync::{Mutex, PoisonError};

/// A hash table from keys of one kind to records.
///
/// Its memory comes from the heap of the workers that use it and is given back by [`Hash::dispose`], or with the heap.
#[derive(Debug)]
pub(crate) struct Hash<K> {
    /// Read by all, written by growth.
    directory: CacheAligned<Directory>,
    /// Records linked whose key [is counted](HashValue::is_counted).
    counted: CacheAligned<AtomicI64>,
    /// Fallback of the regions of writers.
    lock: SpinLock,
    growth: Mutex<Growth>,
    htm: Htm,
    kind: PhantomData<K>,
}

/// A validated miss.
#[derive(Clone, Copy)]
struct Vacancy<'a> {
    bucket: &'a Bucket,
    seen: State,
}

impl<K: Hashed> Hash<K> {
    /// A table for about `capacity` records; it grows beyond.
    ///
    /// # Errors
    /// When there is no memory for its buckets.
    pub(crate) fn new(capacity: usize, htm: &Htm, cx: &mut StoreCx<'_>) -> Result<Hash<K>, OutOfMemory> {
        let (directory, blocks) = Directory::new((capacity as u64).div_ceil(LOAD), cx.local, cx.outside)?;
        Ok(Hash {
            directory: CacheAligned(directory),
            counted: CacheAligned(AtomicI64::new(0)),
            lock: SpinLock::new(),
            growth: Mutex::new(Growth::new(blocks)),
            htm: htm.clone(),
            kind: PhantomData,
        })
    }

    /// The record with this key, or the node version that proves that there is none.
    #[inline]
    pub(crate) fn get(&self, key: K::Probe<'_>, _pin: Pinned<'_>) -> Result<RecordPtr, NodeVersion> {
        // SAFETY: pinned.
        unsafe { self.search(K::hash(key), key) }
            .map_err(|vacancy| NodeVersion::new(&vacancy.bucket.word, vacancy.seen.0))
    }

    /// The record with this key, or the node version that proves that there is none and the gap word of its bucket.
    #[inline]
    pub(crate) fn get_or_gap<'p>(
        &'p self,
        key: K::Probe<'_>,
        _pin: Pinned<'p>,
    ) -> Result<RecordPtr, (NodeVersion, &'p AtomicU64)> {
        // SAFETY: pinned.
        unsafe { self.search(K::hash(key), key) }
            .map_err(|Vacancy { bucket, seen }| (NodeVersion::new(&bucket.word, seen.0), &bucket.gap))
    }

    /// Starts to fetch the line of the key's bucket.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, key: K::Probe<'_>) -> Hint {
        let hash = K::hash(key);
        let home = self.home(hash);
        prefetch::line(std::ptr::from_ref(home).cast());
        Hint::new(home, hash)
    }

    /// Links `record`, whose key is `key`, unless that key is linked already (get-with-insert).
    ///
    /// # Errors
    /// When there is no memory for an overflow line; nothing changed.
    ///
    /// # Panics
    /// If the worker is offline.
    pub(crate) fn insert<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        key: K::Probe<'_>,
        record: RecordPtr,
        observer: &mut O,
    ) -> Result<Inserted, OutOfMemory> {
        assert!(cx.local.is_online(), "a writer of an index is online");
        let hash = K::hash(key);
        let slot = Slot::new(hash, record);
        let mut spare = None;
        let outcome = loop {
            // SAFETY: online.
            let vacancy = match unsafe { self.search(hash, key) } {
                Ok(found) => break Ok(Inserted::Exists(found)),
                Err(vacancy) => vacancy,
            };
            // SAFETY: online.
            let store = match unsafe { room(vacancy.bucket) } {
                None => continue,
                Some(Room::Slot(place)) => (place, slot.0),
                Some(Room::Line(next)) => {
                    let line = match spare.take() {
                        Some(line) => line,
                        None => match Spare::new(cx.local, cx.outside) {
                            Ok(line) => line,
                            Err(error) => break Err(error),
                        },
                    };
                    line.fill(&[slot], 0);
                    (next, spare.insert(line).bits())
                }
            };
            let Vacancy { bucket, seen } = vacancy;
            let appended = spare.as_ref().is_some_and(|line| line.bits() == store.1);
            match self.apply(cx, &mut Change { bucket, seen, gate: Admitted(observer), stores: &[store] }) {
                Ok(()) => {
                    if appended {
                        note(RarePath::BucketChained);
                        // The chain owns it now.
                        spare = None;
                    }
                    observer.changed(&bucket.word, seen.0, seen.changed().0);
                    break Ok(Inserted::Linked);
                }
                Err(LATE) => {}
                Err(_) => break Ok(Inserted::Refused),
            }
        };
        if let Some(line) = spare {
            line.release(cx.local);
        }
        if hash.is_counted() && matches!(outcome, Ok(Inserted::Linked)) {
            self.counted.fetch_add(1, Ordering::Relaxed);
            self.grow(cx, observer);
        }
        outcome
    }

    /// Unlinks exactly this record, whose key is `key`; `false` if it is not linked.
    ///
    /// # Panics
    /// If the worker is offline.
    pub(crate) fn remove<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        key: K::Probe<'_>,
        record: RecordPtr,
        observer: &mut O,
    ) -> bool {
        assert!(cx.local.is_online(), "a writer of an index is online");
        let hash = K::hash(key);
        let slot = Slot::new(hash, record);
        loop {
            let vacancy @ Vacancy { bucket, seen } = self.vacancy(hash);
            // SAFETY: online.
            let Some(hole) = (unsafe { hole(bucket, slot) }) else {
                if self.confirms(hash, vacancy) {
                    return false;
                }
                continue;
            };
            // The last record fills the hole, and the last line goes if that emptied it: chains stay compact.
            let fill = (hole.place, hole.last_slot.0);
            let clear = (hole.last, Slot::EMPTY.0);
            let (all, alone) = match hole.cut {
                Some((next, _)) => (&[fill, clear, (next, 0)][..], &[clear, (next, 0)][..]),
                None => (&[fill, clear][..], &[clear][..]),
            };
            let stores = if std::ptr::eq(hole.place, hole.last) { alone } else { all };
            if self.apply(cx, &mut Change { bucket, seen, gate: Open, stores }).is_ok() {
                note(RarePath::RecordUnlinked);
                if let Some((_, line)) = hole.cut {
                    note(RarePath::ChainCut);
                    // SAFETY: the line was the last of the chain, and is no more.
                    unsafe { Spare::from_bits(line) }.retire(cx.local);
                }
                if hash.is_counted() {
                    self.counted.fetch_sub(1, Ordering::Relaxed);
                }
                observer.changed(&bucket.word, seen.0, seen.changed().0);
                return true;
            }
        }
    }

    /// About how many records are linked, without looking at them: from those counted.
    pub(crate) fn len_estimate(&self) -> usize {
        let counted = self.counted.load(Ordering::Relaxed).max(0);
        counted as usize * HashValue::SAMPLING as usize
    }

    /// Gives the table's memory back; the records stay.
    ///
    /// # Safety
    /// No thread uses the table any more, nor a node version from it (rule 5).
    pub(crate) unsafe fn dispose(self, local: &mut Local) {
        let mut chain = Vec::new();
        for index in 0..self.directory.extent().buckets() {
            // SAFETY: below the extent.
            let bucket = unsafe { self.directory.bucket(index) };
            // SAFETY: rule 5: no thread removes lines.
            chain.extend(unsafe { bucket.lines() }.skip(1).map(|line| line.address()));
            // SAFETY: rule 5: no other thread reaches the lines; the walk of this chain has ended.
            chain.drain(..).for_each(|line| unsafe { Spare::from_bits(line) }.release(local));
        }
        let growth = self.growth.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise.
        unsafe { self.directory.release(growth.blocks, local) };
    }

    /// The key's bucket by an extent of now.
    #[inline(always)]
    fn home(&self, hash: HashValue) -> &Bucket {
        let directory = &self.directory;
        let index = directory.extent().home(directory.base(), hash);
        // SAFETY: homes are below the extent, which was loaded before.
        unsafe { directory.bucket(index) }
    }

    /// The key's bucket with its word, before anything else of it is read.
    #[inline(always)]
    fn vacancy(&self, hash: HashValue) -> Vacancy<'_> {
        let bucket = self.home(hash);
        Vacancy { bucket, seen: bucket.seen() }
    }

    /// Whether what was read of `bucket` since its word was `seen` is what the chain that keys of `hash`
    /// belong to held.
    #[inline(always)]
    fn confirms(&self, hash: HashValue, Vacancy { bucket, seen }: Vacancy<'_>) -> bool {
        // The extent is read after the word was (rule (d) of `directory`) and before it is read again.
        std::ptr::eq(self.home(hash), bucket) && bucket.is_still(seen)
    }

    /// The record with this key, or the bucket that would have it.
    ///
    /// # Safety
    /// The thread is online.
    #[inline(always)]
    unsafe fn search(&self, hash: HashValue, key: K::Probe<'_>) -> Result<RecordPtr, Vacancy<'_>> {
        loop {
            let vacancy = self.vacancy(hash);
            // SAFETY: online; records found in slots are linked, or were while we are online (rules 1 and 2).
            if let Some(record) = unsafe { vacancy.bucket.find(hash, |record| K::matches(record, key)) } {
                return Ok(record);
            }
            if self.confirms(hash, vacancy) {
                return Err(vacancy);
            }
        }
    }

    /// Runs a change, in a region where there are any. `Err`: its code; nothing changed.
    #[inline(always)]
    fn apply<G: Gate>(&self, cx: &mut StoreCx<'_>, change: &mut Change<'_, G>) -> Result<(), u8> {
        let (agent, outside): (&mut Agent, &mut Outside) = (cx.agent, cx.outside);
        if agent.backend() == Backend::Absent {
            return agent.run(outside, &NoLocks, change).map_err(|refused| refused.code);
        }
        if G::DIRECT {
            return change.run(&mut Latching(&self.htm)).map_err(|error| match error {
                BodyError::Busy => LATE,
                BodyError::Refused(code) => code,
            });
        }
        agent.run(outside, &self.lock, change).map_err(|refused| if refused.is_busy() { LATE } else { refused.code })
    }
}

/// Where a chain takes one more record.
enum Room<'a> {
    /// This slot is empty.
    Slot(&'a AtomicU64),
    /// All slots are taken; this word takes a line.
    Line(&'a AtomicU64),
}

/// Where `bucket` takes one more record; `None` if it changes meanwhile. (Other changes are noticed by the word.)
///
/// # Safety
/// The thread is online, and does not use the answer after going offline.
#[inline]
unsafe fn room(bucket: &Bucket) -> Option<Room<'_>> {
    let mut last = None;
    // SAFETY: the caller's promise.
    for line in unsafe { bucket.lines() } {
        if let Some(slot) = line.slots.iter().find(|slot| load(slot).is_empty()) {
            return Some(Room::Slot(slot));
        }
        last = Some(line.next);
    }
    last.filter(|next| next.load(Ordering::Relaxed) == 0).map(Room::Line)
}

/// A slot to be emptied, and the slot whose record replaces it.
struct Hole<'a> {
    place: &'a AtomicU64,
    /// The last occupied slot of the chain, and its content.
    last: &'a AtomicU64,
    last_slot: Slot,
    /// The last line of the chain, if it is an overflow line with one record: the word that names it, and its address.
    cut: Option<(&'a AtomicU64, u64)>,
}

/// Where `wanted` is in the chain.
///
/// # Safety
/// As [`room`].
unsafe fn hole(bucket: &Bucket, wanted: Slot) -> Option<Hole<'_>> {
    let (mut place, mut last, mut cut) = (None, None, None);
    let mut named_by: Option<&AtomicU64> = None;
    // SAFETY: the caller's promise.
    for line in unsafe { bucket.lines() } {
        let mut records = 0;
        for slot in line.slots {
            let held = load(slot);
            if held.is_empty() {
                break;
            }
            records += 1;
            last = Some((slot, held));
            if held == wanted {
                place = Some(slot);
            }
        }
        cut = named_by.filter(|_| records == 1).map(|next| (next, line.address()));
        named_by = Some(line.next);
    }
    let (last, last_slot) = last?;
    Some(Hole { place: place?, last, last_slot, cut })
}
