//! Eventual snapshots (DBX-TC §4.2–4.3): a helper makes one every so often, and read-only transactions take the newest.
//!
//! Each commit reads the snapshot number S, in its region or when it holds its last lock, and gives it to its versions. To make a snapshot
//! is to add one to S while no window is open ([`Windows`](crate::Windows)): from then on nothing is committed under the number before,
//! and all steps of those who have it are done, or their records locked. So S - 1 is *whole*, whatever S is, and a reader of the newest
//! snapshot loads S, and writes nothing that others see.
//!
//! With it comes the epoch up to which it has everything. It is the one before the current when S was advanced: a commit reads S before it
//! reads the epoch E. Who reads the advanced S reads an E that is no earlier than that seen by who advanced it. So what is of an earlier
//! epoch has a number that is whole.
//!
//! A reader loads the epoch before S, and the time before both; who makes a snapshot stores them the other way round. So what a reader has
//! may be of an earlier snapshot than its S, which promises less, and never of a later one. Several may make snapshots at the same time:
//! each adds one to S, and each S - 1 is whole.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{CacheAligned, Epoch};
use seriatim_htm::Htm;

/// The eventual snapshots of a database; none, until a protocol that has them [allows](Snapshots::allow) it.
#[derive(Debug, Default)]
pub struct Snapshots(OnceLock<Option<Eventual>>);

/// Snapshots that are made every so often.
#[derive(Debug)]
pub struct Eventual {
    /// S.
    number: Arc<CacheAligned<AtomicU64>>,
    newest: CacheAligned<Newest>,
    interval: Duration,
}

/// Of the newest.
#[derive(Debug)]
struct Newest {
    whole: AtomicU64,
    made: AtomicU64,
}

/// A snapshot, as its reader has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenSnapshot {
    /// Its number: it shows versions with this number or a lower one.
    pub number: u64,
    /// It has everything that committed in epochs up to this one.
    pub whole: Epoch,
    /// When it was made, in nanoseconds of the clock. It shows what had ended before.
    pub made: u64,
}

impl Snapshots {
    /// Snapshots are made from now on, by advancing `number`, every so often.
    pub fn allow(&self, number: &Arc<CacheAligned<AtomicU64>>, interval: Duration) {
        self.0.get_or_init(|| {
            let made = AtomicU64::new(Instant::now().nanoseconds());
            let newest = CacheAligned(Newest { whole: AtomicU64::new(0), made });
            Some(Eventual { number: Arc::clone(number), newest, interval })
        });
    }

    /// A protocol that has them makes each when it is taken: they are of the present.
    pub fn make_when_taken(&self) {
        self.0.get_or_init(|| None);
    }

    /// Whether a protocol that has eventual snapshots makes each when it is taken.
    pub fn are_made_when_taken(&self) -> bool {
        matches!(self.0.get(), Some(None))
    }

    /// Those that are made, if they are.
    #[inline]
    pub fn eventual(&self) -> Option<&Eventual> {
        self.0.get()?.as_ref()
    }
}

impl Eventual {
    /// How often one is made.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The newest. The caller is online.
    #[inline]
    pub fn newest(&self) -> TakenSnapshot {
        // ORDERING: each pairs with the release in `advance`, in the order that the module comment names.
        let made = self.newest.made.load(Ordering::Acquire);
        let whole = Epoch(self.newest.whole.load(Ordering::Acquire));
        let number = self.number.load(Ordering::SeqCst) - 1;
        // ORDERING: partner of the fence between a commit's last lock and its load of S: a commit that has our number, or a lower one,
        // read S before it was advanced to what we loaded. So we see its records locked, or what it installed.
        fence(Ordering::SeqCst);
        TakenSnapshot { number, whole, made }
    }

    /// Makes one, while no window is open: up to which epoch it has everything.
    pub(crate) fn advance(&self, htm: &Htm, epoch: impl FnOnce() -> Epoch) -> Epoch {
        let made = Instant::now().nanoseconds();
        let whole = Epoch(epoch().0.saturating_sub(1));
        // ORDERING: release, as who reads the advanced S reads an epoch no earlier than ours. Outside regions that have read it.
        htm.outside(|| self.number.fetch_add(1, Ordering::SeqCst));
        // Of several that are made at the same time, those of the latest.
        self.newest.whole.fetch_max(whole.0, Ordering::Release);
        self.newest.made.fetch_max(made, Ordering::Release);
        whole
    }
}

#[cfg(test)]
mod tests {
    use seriatim_htm::HtmMode;

    use super::*;
    use crate::Epochs;

    fn epochs() -> (Epochs, Arc<CacheAligned<AtomicU64>>, Htm) {
        let (epochs, number) = (Epochs::default(), Arc::new(CacheAligned(AtomicU64::new(1))));
        epochs.snapshots().allow(&number, Duration::from_millis(20));
        (epochs, number, Htm::new(HtmMode::Absent).expect("it is everywhere"))
    }

    #[test]
    fn where_none_are_allowed_none_are_made() {
        let htm = Htm::new(HtmMode::Absent).expect("it is everywhere");
        assert_eq!(Epochs::default().advance_snapshot(&htm, true), None);
    }

    #[test]
    fn the_newest_is_taken_unless_it_lacks_an_epoch() {
        let (epochs, number, htm) = epochs();
        let eventual = epochs.snapshots().eventual().expect("allowed");
        let take = |includes| {
            let taken = epochs.take_snapshot(eventual, &htm, Epoch(includes), true);
            (taken.number, taken.whole.0)
        };
        assert_eq!(take(0), (0, 0));
        assert_eq!(epochs.advance(&htm), Epoch(2));
        assert_eq!((take(0), number.load(Ordering::Relaxed)), ((0, 0), 1), "nobody has made one");
        assert_eq!(epochs.advance_snapshot(&htm, true), Some(Epoch(1)));
        assert_eq!((take(0), take(1), number.load(Ordering::Relaxed)), ((1, 1), (1, 1), 2));
        // The current epoch: commits of it may come later.
        assert_eq!((take(2), number.load(Ordering::Relaxed)), ((2, 1), 3));
    }

    #[test]
    fn a_snapshot_is_older_than_what_ends_after_it_was_made() {
        let (epochs, _, htm) = epochs();
        let before = Instant::now().nanoseconds();
        epochs.advance_snapshot(&htm, true);
        let made = epochs.snapshots().eventual().expect("allowed").newest().made;
        assert!((before..=Instant::now().nanoseconds()).contains(&made));
    }
}
