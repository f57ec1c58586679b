//! The ages of snapshots when transactions took them.
//!
//! This is a histogram of its own, as its counters are read while their worker counts. Those of hdrhistogram
//! are not atomic, or go through a queue; here counting is one store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a power of two.
const STEPS: u64 = 8;
/// Ages are counted in units of 2^10 ns, up to 2^36 of them.
const UNIT_BITS: u32 = 10;
const BUCKETS: usize = 34 * STEPS as usize;

/// The bucket of an age in units: exact below [`STEPS`], then within an eighth.
fn bucket(units: u64) -> usize {
    let dropped = u64::from((units | STEPS).ilog2() - STEPS.ilog2());
    ((dropped * STEPS + (units >> dropped)) as usize).min(BUCKETS - 1)
}

/// Units of the largest age in a bucket.
fn largest(bucket: usize) -> u64 {
    let dropped = (bucket as u64 / STEPS).saturating_sub(1);
    ((bucket as u64 - dropped * STEPS + 1) << dropped) - 1
}

/// Ages of the snapshots that one worker has taken. Only its current lessee writes them; any thread reads them.
#[derive(Debug, Default)]
pub(crate) struct AgeCounters(OnceLock<Box<[AtomicU64; BUCKETS]>>);

impl AgeCounters {
    /// Counts a snapshot that was this old when it was taken.
    pub(crate) fn note(&self, nanoseconds: u64) {
        let buckets = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; BUCKETS]));
        let counter = &buckets[bucket(nanoseconds >> UNIT_BITS)];
        // There is one writer at a time.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, ages: &mut SnapshotAges) {
        for (sum, counter) in ages.counts.iter_mut().zip(self.0.get().into_iter().flat_map(|buckets| buckets.iter())) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
}

/// Ages of snapshots when transactions took them: the time since which they lack other commits. Within an
/// eighth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotAges {
    counts: Vec<u64>,
}

impl Default for SnapshotAges {
    fn default() -> SnapshotAges {
        SnapshotAges { counts: vec![0; BUCKETS] }
    }
}

impl SnapshotAges {
    /// Snapshots taken.
    pub fn taken(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The age that this part of the snapshots, from 0 to 1, did not exceed; zero if none was taken.
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = ((self.taken() as f64 * part).ceil() as u64).max(1);
        let mut passed = 0;
        let found = self.counts.iter().position(|count| {
            passed += count;
            passed >= rank
        });
        found.map_or(Duration::ZERO, |bucket| Duration::from_nanos((largest(bucket) + 1) << UNIT_BITS))
    }

    /// The counts since `earlier`.
    pub(crate) fn since(&self, earlier: Option<&SnapshotAges>) -> SnapshotAges {
        let before = |at: usize| earlier.map_or(0, |earlier| earlier.counts[at]);
        SnapshotAges { counts: self.counts.iter().enumerate().map(|(at, count)| count - before(at)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_age_is_in_a_bucket_that_is_wider_by_an_eighth_at_most() {
        let ages = (0..10_000).chain((0..36).map(|power| (1u64 << power) + 1)).chain([u64::MAX >> UNIT_BITS]);
        for units in ages {
            let most = largest(bucket(units));
            if bucket(units) < BUCKETS - 1 {
                assert!(units <= most && most <= units + units / STEPS, "{units} is counted as {most}");
                assert_eq!(bucket(most), bucket(units));
                assert_eq!(bucket(most + 1), bucket(units) + 1);
            }
        }
    }

    #[test]
    fn quantiles_are_of_what_was_counted_since() {
        let (counters, none) = (AgeCounters::default(), SnapshotAges::default());
        let ages = |counters: &AgeCounters| {
            let mut ages = SnapshotAges::default();
            counters.add_to(&mut ages);
            ages
        };
        assert_eq!((none.taken(), none.quantile(0.5)), (0, Duration::ZERO));
        (0..99).for_each(|_| counters.note(1_000_000));
        counters.note(20_000_000);
        let before = ages(&counters);
        assert_eq!(before.taken(), 100);
        let is_near = |age: Duration, wanted: u64| (wanted..=wanted + wanted / 8).contains(&(age.as_nanos() as u64));
        assert!(is_near(before.quantile(0.5), 1_000_000) && is_near(before.quantile(0.99), 1_000_000));
        assert!(is_near(before.quantile(1.0), 20_000_000));
        counters.note(3_000_000);
        let since = ages(&counters).since(Some(&before));
        assert_eq!(since.taken(), 1);
        assert!(is_near(since.quantile(0.5), 3_000_000) && is_near(since.quantile(1.0), 3_000_000));
    }
}
