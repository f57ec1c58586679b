//! A walk beside everything else: buckets by number, each chain as it was at one time ([`crate::Walk`] has
//! the argument).

use super::Hash;
use super::bucket::load;
use super::hasher::Hashed;
use crate::record::RecordPtr;
use seriatim_base::prefetch;
use seriatim_memory::Pinned;

/// Buckets of one step at most.
const STEP_BUCKETS: u64 = 256;

impl<K: Hashed> Hash<K> {
    /// Appends the records of the buckets from `next` on to `out`, until there are `enough` or the limit of
    /// buckets for a step is reached. `next` is then the bucket from which to continue. `false` at the end.
    pub(crate) fn walk(&self, next: &mut u64, enough: usize, _pin: Pinned<'_>, out: &mut Vec<RecordPtr>) -> bool {
        // Loaded after the buckets before `next` were read: if this is the end, no record went beyond it before.
        if *next >= self.directory.extent().buckets() {
            return false;
        }
        let (first, begin) = (*next, out.len());
        while *next < self.directory.extent().buckets() && *next - first < STEP_BUCKETS && out.len() - begin < enough {
            // SAFETY: below the extent.
            let bucket = unsafe { self.directory.bucket(*next) };
            let start = out.len();
            loop {
                let seen = bucket.seen();
                // SAFETY: pinned.
                let slots = unsafe { bucket.lines() }.flat_map(|line| line.slots).map(load);
                // SAFETY: loaded from a line.
                out.extend(slots.filter_map(|slot| unsafe { slot.record() }));
                if bucket.is_still(seen) {
                    break;
                }
                out.truncate(start);
            }
            out[start..].iter().for_each(|record| prefetch::line(record.as_ptr()));
            *next += 1;
        }
        true
    }
}
