//! Scans of all records, in the order of the hash values: each step shows one bucket, as it was at one time.
//!
//! The order is that of a value's first bucket, then of its level bits from the first to the last. In this order the
//! values that belong to a bucket are an interval. A split cuts the interval of one bucket in two, so the end of an
//! interval stays the end of one, whatever splits come. A scan continues at such an end. So it shows what stays linked
//! exactly once, and its buckets' node versions together prove that there is nothing else.
//!
//! (The walk of [`super::walk`] goes by number of bucket, which is the order in memory. It may show a record twice.)

use super::Hash;
use super::bucket::load;
use super::directory::Extent;
use super::hasher::{HashValue, Hashed};
use crate::cursor::Cursor;
use crate::node_version::NodeVersion;
use crate::record::RecordPtr;
use seriatim_base::prefetch;
use seriatim_memory::Pinned;
use std::ops::Range;
use std::ptr::NonNull;

const LEVELS: u32 = HashValue::LEVELS;

/// A place in the order: `first bucket | level bits, the first one highest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u64);

/// The lowest level bits of `bits` in reverse.
fn reversed(bits: u64) -> u64 {
    (bits << (u64::BITS - LEVELS)).reverse_bits()
}

impl Place {
    fn of(hash: HashValue, base: u64) -> Place {
        Place(hash.spread(base) << LEVELS | reversed(hash.levels()))
    }

    /// The bucket of this place, and the place behind those that belong to it.
    fn bucket(self, extent: Extent, base: u64) -> (u64, Place) {
        let (first, levels) = (self.0 >> LEVELS, reversed(self.0 & ((1 << LEVELS) - 1)));
        let bucket = |bits: u32| first + base * (levels & ((1 << bits) - 1));
        let coarser = extent.level();
        // Split already: the bucket that this split made is there.
        let is_split = bucket(coarser) + (base << coarser) < extent.buckets();
        let bits = coarser + u32::from(is_split);
        let width = LEVELS - bits;
        (bucket(bits), Place(((self.0 >> width) + 1) << width))
    }
}

impl<K: Hashed> Hash<K> {
    /// Shows the records of the next bucket.
    // Not inlined into the steps of scans of trees.
    #[inline(never)]
    pub(crate) fn next_bucket(&self, cursor: &mut Cursor, _pin: Pinned<'_>) -> bool {
        let Cursor { records, leaf, position, .. } = cursor;
        if position.exhausted {
            return false;
        }
        let (directory, base) = (&self.directory, self.directory.base());
        // A cursor that has no bound there has a free word.
        let place = Place(position.near.word as u64);
        let next = loop {
            let (at, _) = place.bucket(directory.extent(), base);
            // SAFETY: below the extent.
            let bucket = unsafe { directory.bucket(at) };
            let seen = bucket.seen();
            // The extent is read after the word was (rule (d) of `directory`) and before it is read again.
            let (home, next) = place.bucket(directory.extent(), base);
            records.clear();
            // SAFETY: pinned.
            let slots = unsafe { bucket.lines() }.flat_map(|line| line.slots).map(load);
            // SAFETY: loaded from a line.
            records.extend(slots.filter_map(|slot| unsafe { slot.record() }));
            if home == at && bucket.is_still(seen) {
                *leaf = Some((NodeVersion::new(&bucket.word, seen.0), NonNull::from(&bucket.gap)));
                break next;
            }
        };
        records.iter().for_each(|record| prefetch::line(record.as_ptr()));
        position.near.word = next.0.into();
        position.exhausted = next >= Place(base << LEVELS);
        if !position.exhausted {
            let (at, _) = next.bucket(directory.extent(), base);
            // SAFETY: below the extent.
            prefetch::line(std::ptr::from_ref(unsafe { directory.bucket(at) }).cast());
        }
        true
    }

    /// Whether a scan that went from one position to another has passed the record.
    ///
    /// # Safety
    /// The key words of the record are written, and its memory is allocated.
    pub(crate) unsafe fn has_passed(&self, range: &Range<u128>, record: RecordPtr) -> bool {
        // SAFETY: the caller's promise.
        let hash = K::hash(unsafe { K::of(record) });
        range.contains(&Place::of(hash, self.directory.base()).0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a table grows, each place belongs to the bucket that is the home of its keys, and each bucket to places
    /// side by side.
    #[test]
    fn the_places_of_a_bucket_are_an_interval_that_splits_cut() {
        for base in [1, 3, 4] {
            let (mut extent, mut ends) = (Extent::new(base), vec![Place(0)]);
            for _ in 0..200 {
                let (mut at, mut now, mut buckets) = (Place(0), vec![Place(0)], Vec::new());
                while at < Place(base << LEVELS) {
                    let (bucket, next) = at.bucket(extent, base);
                    for within in [at, Place(next.0 - 1), Place(at.0 + (next.0 - at.0) / 3)] {
                        // A hash value of that place.
                        let levels = reversed(within.0 & ((1 << LEVELS) - 1));
                        let spread = ((within.0 >> LEVELS) << 32).div_ceil(base);
                        let hash = HashValue(spread << 32 | levels << (32 - LEVELS));
                        assert_eq!(Place::of(hash, base), within);
                        assert_eq!(extent.home(base, hash), bucket, "{extent:?} {within:?}");
                    }
                    buckets.push(bucket);
                    now.push(next);
                    at = next;
                }
                buckets.sort_unstable();
                assert_eq!(buckets, (0..extent.buckets()).collect::<Vec<_>>(), "each once");
                assert!(ends.iter().all(|end| now.contains(end)), "an end stays an end");
                ends = now;
                extent = extent.grown(base).expect("a small table");
            }
        }
    }
}
