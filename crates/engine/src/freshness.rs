//! How fresh the snapshots of a session are to be, where they are made every so often ([`seriatim_txn::Snapshots`]), and how old they were.
//!
//! A session's snapshot shows what the session did before, whatever its read-write transactions committed or read, and what had
//! committed when the session was opened; and what it was told to read after. All of it has ended, so a snapshot that is made now has it,
//! and the newest has it if that is whole up to the epoch. What one snapshot has, all later ones have: then nothing is wanted any more.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::Epoch;
use seriatim_txn::{Freshness, Mode};

use crate::engine::Inner;

/// What the next snapshot of a session is to show.
#[derive(Debug)]
pub(crate) struct SessionFreshness {
    /// Of epochs up to this one, as the session was there or did it; of no epoch: nothing.
    own: Cell<Epoch>,
    /// The same, as the session was told.
    told: Cell<Epoch>,
    /// Always all that has committed: a chain of pieces that is not whole may be older than the snapshot.
    present: bool,
}

/// What the next snapshot of a session comes after, where it reads at a timestamp of the past and nobody makes it
/// ([`seriatim_txn::Worker::come_after`]). Its first one is of the present: it shows what had committed when the session was opened.
#[derive(Debug)]
pub(crate) struct Place {
    /// The place of what the session saw or did; `u64::MAX`: all that has ended.
    pub(crate) own: Cell<u64>,
    /// Whether it was opened, or told of what others did, and no snapshot has come after that yet.
    pub(crate) told: Cell<bool>,
}

impl Default for Place {
    fn default() -> Place {
        Place { own: Cell::new(0), told: Cell::new(true) }
    }
}

impl Place {
    /// A transaction of this mode ended at this place.
    #[inline]
    pub(crate) fn note(&self, place: u64, mode: Mode) {
        // One that accessed nothing has no place of its own.
        if place > self.own.get() {
            self.own.set(place);
            if mode == Mode::ReadOnly {
                self.told.set(false);
            }
        }
    }
}

const NONE: Epoch = Epoch(0);

/// What no snapshot has that was made before.
const ALL: Epoch = Epoch(u64::MAX);

impl SessionFreshness {
    /// Of a session that is being opened; `None` where each snapshot is of the present, or there are none.
    pub(crate) fn of(inner: &Inner) -> Option<SessionFreshness> {
        let epochs = &inner.environment.epochs;
        epochs.snapshots().eventual()?;
        let (own, told) = (Cell::new(epochs.current()), Cell::new(NONE));
        Some(SessionFreshness { own, told, present: inner.gate.is_some() })
    }

    /// It has done something that depends on epochs up to this one.
    #[inline]
    pub(crate) fn did(&self, epoch: Epoch) {
        self.own.set(self.own.get().max(epoch));
    }

    pub(crate) fn read_after(&self, epoch: Epoch) {
        self.told.set(self.told.get().max(epoch));
    }

    /// Another caller has it now, who may have seen anything.
    pub(crate) fn change_hands(&self) {
        self.own.set(ALL);
    }

    /// Up to which epoch a snapshot has to have everything that has ended; `own`: what the session did, too.
    pub(crate) fn wanted(&self, own: bool) -> Epoch {
        let done = if own { self.own.get() } else { NONE };
        if self.present { ALL } else { self.told.get().max(done) }
    }

    /// It has had a snapshot that was asked for so.
    pub(crate) fn had(&self, own: bool) {
        self.told.set(NONE);
        if own {
            self.own.set(NONE);
        }
    }
}

impl Inner {
    /// How fresh snapshots are under these options: as the protocol's line says, or fresher.
    pub(crate) fn freshness(&self) -> Freshness {
        let snapshots = self.environment.epochs.snapshots();
        let of_the_present = snapshots.are_made_when_taken() || snapshots.eventual().is_some() && self.gate.is_some();
        match self.protocol.info().capabilities.snapshots {
            Freshness::Bounded if of_the_present => Freshness::Latest,
            stated => stated,
        }
    }
}

/// A power of two is so many buckets.
const STEPS: u64 = 8;
/// Ages are counted in units of 2^10 ns, and beyond 2^36 of them no more.
const UNIT_BITS: u32 = 10;
const BUCKETS: usize = 34 * STEPS as usize;

/// The bucket of an age in units: exact below [`STEPS`], then within an eighth.
fn bucket(units: u64) -> usize {
    if units < STEPS {
        return units as usize;
    }
    let power = units.ilog2();
    let step = units >> (power - STEPS.ilog2()) & (STEPS - 1);
    ((u64::from(power - STEPS.ilog2() + 1) * STEPS + step) as usize).min(BUCKETS - 1)
}

/// Units of the largest age in a bucket.
fn largest(bucket: usize) -> u64 {
    let (row, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if row == 0 { step } else { ((STEPS + step + 1) << (row - 1)) - 1 }
}

/// Ages of the snapshots that one worker has taken. Written by its current lessee, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct AgeCounters(OnceLock<Box<[AtomicU64; BUCKETS]>>);

impl AgeCounters {
    /// A snapshot was so many nanoseconds old when it was taken.
    pub(crate) fn note(&self, nanoseconds: u64) {
        let buckets = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; BUCKETS]));
        let counter = &buckets[bucket(nanoseconds >> UNIT_BITS)];
        // One writer at a time.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, ages: &mut SnapshotAges) {
        for (sum, counter) in ages.counts.iter_mut().zip(self.0.get().into_iter().flat_map(|buckets| buckets.iter())) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
}

/// How old snapshots were when transactions took them: since when others' commits were not shown. Within an eighth.
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

    /// The age that so large a part of them, from 0 to 1, did not exceed; zero if none was taken.
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = ((self.taken() as f64 * part).ceil() as u64).max(1);
        let mut passed = 0;
        let found = self.counts.iter().position(|count| {
            passed += count;
            passed >= rank
        });
        found.map_or(Duration::ZERO, |bucket| Duration::from_nanos((largest(bucket) + 1) << UNIT_BITS))
    }

    /// What was counted since `earlier`.
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
