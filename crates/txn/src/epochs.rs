//! The epoch of the database: which commits become durable together.
//!
//! A ticker advances it, and so does the log where a caller waits for the end of an epoch. A worker advances it if its
//! commit used up much of the TIDs of the epoch ([`Epochs::end_if_late`]). Every commit reads it once, after its last
//! lock is held or inside its region. So epochs are no measure of time.
//!
//! Where snapshots are durable, their numbers are never reused, also by a later opening. That one begins [`UNSAID_MAX`]
//! above the newest epoch that the disk has recorded. So epochs must not be further ahead of that record. A thread that
//! ends an epoch half as far ahead has the disk record it ([`Epochs::bound_by`]). At three quarters of the way epochs
//! are *far*. Until the disk has recorded them, the ticker and the log end none, and no caller begins work that would.
//! The callers that began before are fewer than the last quarter.

use std::sync::OnceLock;

use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{CacheAligned, Epoch, Tid, WorkerId};
use seriatim_htm::Htm;

use crate::{Eventual, Snapshots, TakenSnapshot, Windows};

/// The current epoch E.
#[derive(Debug)]
pub struct Epochs {
    current: CacheAligned<AtomicU64>,
    windows: Windows,
    snapshots: Snapshots,
    bound: Bound,
}

/// How far epochs may be ahead of the disk's record.
pub const UNSAID_MAX: u64 = 1 << 16;

/// After this many more epochs the disk records the epoch again.
const ASK_AGAIN: u64 = UNSAID_MAX / 64;

/// Takes the current epoch. Returns the newest recorded one, and has the disk record more if that is
/// [`half`](UNSAID_MAX) as far behind as allowed.
pub type RecordEpoch = Box<dyn Fn(Epoch) -> Epoch + Send + Sync>;

/// The epoch at which the distance is checked next, and the first epoch that is far.
struct Bound {
    look: AtomicU64,
    far: AtomicU64,
    said: OnceLock<RecordEpoch>,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("look", &self.look).field("far", &self.far).finish_non_exhaustive()
    }
}

impl Bound {
    fn none() -> Bound {
        Bound { look: AtomicU64::new(u64::MAX), far: AtomicU64::new(u64::MAX), said: OnceLock::new() }
    }

    #[cold]
    fn look(&self, current: Epoch) {
        let Some(said) = self.said.get() else { return };
        let said = said(current).0;
        // ORDERING: the recorded epoch only grows; a bound that is too low only causes another check.
        self.look.store((said + UNSAID_MAX / 2).max(current.0 + ASK_AGAIN), Ordering::Relaxed);
        self.far.store(said + UNSAID_MAX / 4 * 3, Ordering::Relaxed);
    }

    /// Whether the epoch that `current` returns is that far ahead.
    #[inline]
    fn is_passed(&self, current: impl Fn() -> Epoch, more: u64) -> bool {
        let is_passed = || current().0 >= self.far.load(Ordering::Relaxed).saturating_add(more);
        is_passed() && {
            self.look(current());
            is_passed()
        }
    }
}

impl Default for Epochs {
    fn default() -> Epochs {
        // Epoch 0 holds only TID zero, "never committed".
        Epochs {
            current: CacheAligned(AtomicU64::new(1)),
            windows: Windows::default(),
            snapshots: Snapshots::default(),
            bound: Bound::none(),
        }
    }
}

impl Epochs {
    /// The epoch now.
    #[inline]
    pub fn current(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        Epoch(self.current.load(Ordering::Acquire))
    }

    /// Begins the next epoch, which it answers, while no window is open. A thread that reads that epoch or a
    /// later one sees what was written before the call. Called by the ticker, and by callers that do not wait
    /// for it. Where snapshots are durable this makes one.
    pub fn advance(&self, htm: &Htm) -> Epoch {
        self.close_and_end(htm, |_| true)
    }

    /// Closes the windows, and ends the current epoch if it is still `to_end`. Returns the current epoch.
    fn close_and_end(&self, htm: &Htm, to_end: impl Fn(Epoch) -> bool) -> Epoch {
        let closed = self.windows.close();
        let current = self.current();
        let current = if to_end(current) { self.end(htm) } else { current };
        drop(closed);
        self.ended();
        current
    }

    /// Begins the next epoch. No window is open.
    fn end(&self, htm: &Htm) -> Epoch {
        match self.snapshots.eventual().filter(|eventual| eventual.is_epoch()) {
            Some(eventual) => Epoch(self.make(eventual, htm, true).whole.0 + 1),
            None => htm.outside(|| Epoch(self.current.fetch_add(1, Ordering::AcqRel) + 1)),
        }
    }

    /// Ends the epoch of this TID if that is current and the TID is [late](Tid::is_late) in it. Called by each thread
    /// that has given a TID to others, by a commit or a refused one, before its next one. The thread has no window
    /// open.
    ///
    /// The epoch ends even if epochs are far. A writer whose log takes nothing makes too few commits for many epochs.
    #[inline]
    pub fn end_if_late(&self, htm: &Htm, commit: Tid) {
        if commit.is_late() {
            self.end_this(htm, commit.epoch());
        }
    }

    #[cold]
    fn end_this(&self, htm: &Htm, late: Epoch) {
        // Another thread may end it before the windows are closed.
        if self.current() == late {
            self.close_and_end(htm, |current| current == late);
        }
    }

    /// As [`Epochs::advance`], unless epochs are far: then the current one continues.
    pub fn advance_unless_far(&self, htm: &Htm) -> Epoch {
        if self.are_far() { self.current() } else { self.advance(htm) }
    }

    /// From now on the disk's record bounds the epochs.
    pub fn bound_by(&self, said: RecordEpoch) {
        let is_first = self.bound.said.set(said).is_ok();
        assert!(is_first, "only one disk records epochs");
        self.bound.look(self.current());
    }

    /// Whether epochs are so far ahead of the disk's record that none may be ended: see the module comment.
    #[inline]
    pub fn are_far(&self) -> bool {
        self.bound.is_passed(|| self.current(), 0)
    }

    /// Called after an epoch may have ended.
    #[inline]
    fn ended(&self) {
        if self.current.load(Ordering::Relaxed) >= self.bound.look.load(Ordering::Relaxed) {
            self.bound.look(self.current());
        }
    }

    /// Makes a snapshot while no window is open. Offers it if `always`, or if another snapshot is on offer.
    fn make(&self, eventual: &Eventual, htm: &Htm, always: bool) -> TakenSnapshot {
        let made = eventual.make(htm, &self.current);
        eventual.offer(made, always);
        made
    }

    /// Makes a snapshot of all commits and offers it to readers of eventual snapshots, if there are any. No window is
    /// open meanwhile (unless it `closes` none, which is an injected fault). Returns the epoch up to which it is
    /// complete. Memory keeps the versions that it needs.
    pub fn advance_snapshot(&self, htm: &Htm, closes: bool) -> Option<Epoch> {
        let eventual = self.snapshots.eventual()?;
        let _closed = closes.then(|| self.windows.close());
        Some(self.make(eventual, htm, true).whole)
    }

    /// Takes an eventual snapshot that is complete for the epochs up to `includes`: the newest on offer, or one
    /// that is made now. The latter is offered too, where all readers make their own. `None` where none is
    /// offered: then the caller makes one for itself. Where epochs are far, an offer that includes the requested
    /// epoch is taken. Nearer to the limit any offer is taken: every caller that found epochs not to be far has
    /// had its snapshot.
    #[inline]
    pub fn take_snapshot(
        &self,
        eventual: &Eventual,
        htm: &Htm,
        (worker, includes): (WorkerId, Epoch),
        closes: bool,
    ) -> Option<TakenSnapshot> {
        let asked = includes;
        let includes = if eventual.is_made_by_readers() { Epoch(u64::MAX) } else { asked };
        let newest = eventual.look(&self.current, worker, includes)?;
        let will_do = newest.whole >= includes
            || newest.whole >= asked && self.are_far()
            || self.bound.is_passed(|| self.current(), UNSAID_MAX / 8);
        Some(if will_do { newest } else { self.make_snapshot(eventual, htm, includes, closes) })
    }

    /// Has all that has ended shown by the snapshots that are taken from now on. It is no turn of the helper:
    /// whether snapshots are offered stays as it is, and memory keeps what it kept.
    pub fn renew_snapshot(&self, htm: &Htm) {
        if let Some(eventual) = self.snapshots.eventual() {
            self.make_snapshot(eventual, htm, Epoch(u64::MAX), true);
        }
    }

    #[cold]
    fn make_snapshot(&self, eventual: &Eventual, htm: &Htm, includes: Epoch, closes: bool) -> TakenSnapshot {
        let closed = closes.then(|| self.windows.close());
        // Another may have made one while we waited for windows.
        let taken = match eventual.newest(&self.current).filter(|newest| newest.whole >= includes) {
            Some(newest) => newest,
            None => self.make(eventual, htm, false),
        };
        drop(closed);
        self.ended();
        taken
    }

    /// The newest eventual snapshot that is offered, if one is. The caller is online.
    pub fn newest_snapshot(&self) -> Option<TakenSnapshot> {
        self.snapshots.eventual()?.newest(&self.current)
    }

    /// Snapshots of the past.
    #[inline]
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// The windows in which transactions publish in several steps.
    #[inline]
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Goes on at `epoch`, if that is later: a database that was recovered begins above all it was before.
    pub fn skip_to(&self, epoch: Epoch) {
        self.current.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Becomes what `current` is.
    #[cfg(feature = "canary")]
    pub(crate) fn follow(&self, current: &Epochs) {
        self.current.store(current.current().0, Ordering::Release);
    }

    /// The word, for a commit that reads it inside a region.
    #[inline]
    pub fn word(&self) -> &AtomicU64 {
        &self.current
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use seriatim_htm::HtmMode;

    use super::*;
    use crate::SnapshotTerms;

    /// Epochs whose disk records what the test tells it, and the newest epoch that it was asked to record.
    fn bound() -> (Epochs, Htm, Arc<[AtomicU64; 2]>) {
        let (epochs, disk) = (Epochs::default(), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let interval = Duration::from_secs(1);
        let terms =
            SnapshotTerms { number: None, ends_epochs: true, by_readers: true, interval, wanted_min: 0, workers: 2 };
        epochs.snapshots().allow(terms);
        let told = Arc::clone(&disk);
        epochs.bound_by(Box::new(move |current| {
            told[1].store(current.0, Ordering::Relaxed);
            Epoch(told[0].load(Ordering::Relaxed))
        }));
        (epochs, Htm::new(HtmMode::Absent).expect("it is everywhere"), disk)
    }

    #[test]
    fn epochs_are_not_far_ahead_of_the_disks_record() {
        let (epochs, htm, disk) = bound();
        let far = UNSAID_MAX / 4 * 3;
        for said in [0, 100_000] {
            disk[0].store(said, Ordering::Relaxed);
            assert!(!epochs.are_far());
            while epochs.current().0 < said + UNSAID_MAX / 2 {
                epochs.advance_unless_far(&htm);
            }
            let asked = disk[1].load(Ordering::Relaxed);
            assert!(asked + ASK_AGAIN >= said + UNSAID_MAX / 2, "asked in epoch {asked}, when it had said {said}");
            (0..UNSAID_MAX).for_each(|_| _ = epochs.advance_unless_far(&htm));
            assert_eq!(epochs.current().0, said + far, "said {said}");
            assert!(disk[1].load(Ordering::Relaxed) + ASK_AGAIN >= said + far, "it is asked again and again");
        }
        // A checkpoint, or the closing of the database.
        assert_eq!(epochs.advance(&htm), Epoch(100_000 + far + 1));
    }

    /// Those of readers that began when epochs were not far.
    #[test]
    fn readers_take_the_newest_where_their_own_would_be_too_far() {
        let (epochs, htm, disk) = bound();
        let eventual = epochs.snapshots().eventual().expect("allowed");
        let take = |asked| epochs.take_snapshot(eventual, &htm, (WorkerId(1), asked), true).expect("offered").number;
        let last = |asked| (0..2 * UNSAID_MAX).map(|_| take(asked)).max();
        let far = UNSAID_MAX / 4 * 3;
        assert_eq!(last(Epoch(0)), Some(far - 1), "the newest has what is asked for");
        let last = last(Epoch(u64::MAX));
        assert_eq!(last, Some(far + UNSAID_MAX / 8 - 1), "it has not");
        disk[0].store(UNSAID_MAX / 2, Ordering::Relaxed);
        assert_eq!(Some(take(Epoch(0))), last.map(|last| last + 1));
    }
}
