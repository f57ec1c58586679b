//! Walks over a whole table, for a caller that has it alone (rule 5): statistics, records, structural invariants.

use super::Hash;
use super::bucket::{LINE_BYTES, Slot, load};
use super::directory::Extent;
use super::hasher::{HashValue, Hashed};
use crate::node_version::State;
use crate::record::RecordPtr;
use crate::statistics::IndexStatistics;
use std::cmp::Ordering as Order;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl<K: Hashed> Hash<K> {
    /// Counts of the table's parts.
    pub(crate) fn statistics(&self) -> IndexStatistics {
        let growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let (sections, bytes) = self.directory.footprint(&growth.blocks);
        let mut statistics = IndexStatistics { interiors: sections, bytes, ..IndexStatistics::default() };
        for index in 0..self.directory.extent().buckets() {
            // SAFETY: below the extent; rule 5: no line goes away.
            let lines = unsafe { self.directory.bucket(index).lines() };
            let (mut length, mut records) = (0, 0);
            for line in lines {
                length += 1;
                records += line.slots.iter().filter(|slot| !load(slot).is_empty()).count();
            }
            statistics.records += records;
            statistics.height = statistics.height.max(length);
            statistics.leaves += length;
            statistics.bytes += (length - 1) * LINE_BYTES;
        }
        statistics
    }

    /// Calls `f` with every record, in no order.
    pub(crate) fn for_each(&self, mut f: impl FnMut(RecordPtr)) {
        for index in 0..self.directory.extent().buckets() {
            // SAFETY: below the extent; rule 5: no line goes away.
            let lines = unsafe { self.directory.bucket(index).lines() };
            // SAFETY: loaded from lines.
            lines.flat_map(|line| line.slots).filter_map(|slot| unsafe { load(slot).record() }).for_each(&mut f);
        }
    }

    /// Checks: buckets unlatched, chains compact, slots where and as
    /// their keys' hashes say, no key twice, and the count of counted keys.
    ///
    /// # Errors
    /// A description of the violated property.
    pub(crate) fn check(&self) -> Result<(), String> {
        let extent = self.directory.extent();
        let mut counted = 0;
        for index in 0..extent.buckets() {
            counted += self.check_bucket(extent, index).map_err(|what| format!("bucket {index}: {what}"))?;
        }
        let count = self.counted.load(Ordering::Relaxed);
        if count == counted { Ok(()) } else { Err(format!("{counted} records are to be counted, and {count} are")) }
    }

    fn check_bucket(&self, extent: Extent, index: u64) -> Result<i64, String> {
        // SAFETY: below the extent.
        let bucket = unsafe { self.directory.bucket(index) };
        // ORDERING: Relaxed: the table does not change.
        let state = State(bucket.word.load(Ordering::Relaxed));
        if !state.is_usable() {
            return Err(format!("its word is {state:?}"));
        }
        let mut keys: Vec<K::Probe<'_>> = Vec::new();
        let (mut ended, mut counted) = (false, 0);
        // SAFETY: rule 5: no line goes away.
        for (number, line) in unsafe { bucket.lines() }.enumerate() {
            if number > 0 && load(&line.slots[0]).is_empty() {
                return Err(format!("overflow line {number} is empty"));
            }
            for slot in line.slots.iter().map(load) {
                // SAFETY: loaded from a line.
                let Some(record) = (unsafe { slot.record() }) else {
                    ended = true;
                    continue;
                };
                if ended {
                    return Err(format!("line {number} has a record behind an empty slot"));
                }
                // SAFETY: linked, and stays so (rules 1 and 5).
                let key = unsafe { K::of(record) };
                let hash = K::hash(key);
                if extent.home(self.directory.base(), hash) != index {
                    return Err(format!("a record of line {number} belongs elsewhere"));
                }
                if slot != Slot::new(hash, record) {
                    return Err(format!("a slot of line {number} has the wrong tag"));
                }
                if keys.iter().any(|&other| K::compare(other, key) == Order::Equal) {
                    return Err(format!("a key of line {number} is there twice"));
                }
                keys.push(key);
                counted += i64::from(HashValue::is_counted(hash));
            }
        }
        Ok(counted)
    }
}

#[cfg(all(test, not(loom)))]
impl<K: Hashed> Hash<K> {
    /// Holds something on the gap of the bucket that is split next; how many buckets there are.
    pub(crate) fn hold_the_next_gap(&self) -> u64 {
        let extent = self.directory.extent();
        // SAFETY: below the extent.
        unsafe { self.directory.bucket(extent.victim(self.directory.base())) }.gap.store(1, Ordering::SeqCst);
        extent.buckets()
    }

    /// How many buckets there are.
    pub(crate) fn buckets(&self) -> u64 {
        self.directory.extent().buckets()
    }
}
