//! Eventual snapshots (DBX-TC §4.2–4.3): a helper makes one every so often, and read-only transactions take the newest.
//!
//! Each commit reads the snapshot number S, in its region or when it holds its last lock, and gives it to its
//! versions. To make a snapshot is to add one to S while no window is open ([`Windows`](crate::Windows)). From
//! then on nothing commits under the previous number, and all commits with that number have installed their
//! versions or have their records locked. So S - 1 is *whole*, whatever S is. A reader of the newest snapshot
//! loads S, and writes nothing that others see.
//!
//! Each snapshot has an epoch up to which it is complete: the one before the current epoch when S was
//! advanced. A commit reads S before it reads the epoch E. A commit that reads the advanced S reads an E that
//! is no earlier than the one seen when S was advanced. So the versions of earlier epochs have numbers that
//! are whole.
//!
//! A reader loads the epoch before S, and the time before both; a thread that makes a snapshot stores them in
//! the opposite order. So a reader's epoch and time may belong to an earlier snapshot than its S, which
//! promises less, and never to a later one. Several threads may make snapshots at the same time: each adds one
//! to S, and each S - 1 is whole.
//!
//! **Snapshots are offered while they are wanted.** For later readers, writers keep a version of each record for each
//! snapshot. Its memory is cold when it is reused. This is their most expensive work. So each worker counts two classes
//! of readers. One could read the helper's snapshot. The other makes its own because its session needs a newer one. The
//! helper *withdraws* the offer unless, since its last turn, there were enough of the first class and more than of the
//! second. Then S stands still, each reader makes a snapshot for itself, and replaced versions are kept for a grace
//! period. The word of the offered epoch then says that there is none. A reader checks that word when it is online. So
//! memory that seals its counts after the withdrawal waits for all readers that took the offer. Memory keeps what an
//! offer needs before S is advanced for it ([`Memory::resume_snapshots`](seriatim_memory::Memory::resume_snapshots)).
//!
//! **Durable snapshots** (§5). Where durability is by snapshot, S is E, one word ([`SnapshotTerms::ends_epochs`]). So
//! each end of an epoch makes a snapshot, whichever thread ends it, and each snapshot ends an epoch. Snapshot n has
//! exactly the commits of epochs up to n. The durable state is then a snapshot, the one with the number of the durable
//! epoch; a recovery finds the same. These snapshots are always made and offered.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{CacheAligned, Epoch, WorkerId};
use seriatim_htm::Htm;

/// The eventual snapshots of a database; none, until a protocol that has them [allows](Snapshots::allow) it.
#[derive(Debug, Default)]
pub struct Snapshots(OnceLock<Eventual>);

/// Snapshots that are made every so often.
#[derive(Debug)]
pub struct Eventual {
    terms: SnapshotTerms,
    newest: CacheAligned<Newest>,
    readers: Box<[CacheAligned<Readers>]>,
    /// Readers counted at the last turn, for the thread that makes or withdraws an offer.
    turn: Mutex<Counted>,
}

/// How snapshots are made.
#[derive(Debug)]
pub struct SnapshotTerms {
    /// S; none: E.
    pub number: Option<Arc<CacheAligned<AtomicU64>>>,
    /// Whether each ends an epoch, and each end of an epoch makes one: S is E. (With a number of its own that
    /// is a deliberate fault: epochs end without a snapshot.)
    pub ends_epochs: bool,
    /// Whether each reader makes one, too.
    pub by_readers: bool,
    /// How often one is made.
    pub interval: Duration,
    /// How many readers have to be content with an offer; 0: there always is one, as there is where epochs
    /// are snapshots.
    pub wanted_min: u64,
    /// Ids of workers, which may read, are below this.
    pub workers: usize,
}

/// The newest offer.
#[derive(Debug)]
struct Newest {
    /// One more than the epoch up to which it has everything; zero: none is offered.
    whole: AtomicU64,
    made: AtomicU64,
    /// The epoch up to which one would have everything that had been made when the helper came last.
    would_have: AtomicU64,
}

/// Readers of a worker, which alone writes this.
#[derive(Debug, Default)]
struct Readers {
    content: AtomicU64,
    others: AtomicU64,
}

/// Readers of all workers.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    content: u64,
    others: u64,
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
    /// Snapshots are made from now on, on these terms.
    pub fn allow(&self, terms: SnapshotTerms) {
        self.0.get_or_init(|| {
            let (made, would_have) = (AtomicU64::new(Instant::now().nanoseconds()), AtomicU64::new(0));
            let whole = AtomicU64::new(u64::from(terms.wanted_min == 0));
            let readers = (0..terms.workers).map(|_| CacheAligned::default()).collect();
            let newest = CacheAligned(Newest { whole, made, would_have });
            Eventual { terms, newest, readers, turn: Mutex::default() }
        });
    }

    /// Whether durability is by snapshot: each ends an epoch, and has its number.
    #[inline]
    pub fn end_epochs(&self) -> bool {
        self.eventual().is_some_and(|eventual| eventual.terms.ends_epochs)
    }

    /// The number of the snapshot that the end of this epoch made, where durability is by snapshot.
    pub fn made_by_end_of(&self, epoch: Epoch) -> Option<u64> {
        self.end_epochs().then_some(epoch.0)
    }

    /// Whether each reader makes one.
    pub fn are_made_by_readers(&self) -> bool {
        self.eventual().is_some_and(Eventual::is_made_by_readers)
    }

    /// Those that are made, if they are.
    #[inline]
    pub fn eventual(&self) -> Option<&Eventual> {
        self.0.get()
    }
}

impl Eventual {
    /// How often one is made.
    pub fn interval(&self) -> Duration {
        self.terms.interval
    }

    /// Whether S is E.
    #[inline]
    pub(crate) fn is_epoch(&self) -> bool {
        self.terms.ends_epochs && self.terms.number.is_none()
    }

    #[inline]
    pub(crate) fn is_made_by_readers(&self) -> bool {
        self.terms.by_readers
    }

    /// The newest that is offered, if one is; `epoch` is the word of E. The caller is online.
    #[inline]
    pub(crate) fn newest(&self, epoch: &AtomicU64) -> Option<TakenSnapshot> {
        // ORDERING: each pairs with the release in `offer`, in the order that the module comment names. The
        // caller has come online with a fence: either it finds a withdrawal, or the withdrawing thread finds
        // it online.
        let made = self.newest.made.load(Ordering::Acquire);
        let whole = Epoch(self.newest.whole.load(Ordering::Acquire).checked_sub(1)?);
        let number = self.terms.number.as_ref().map_or(epoch, |number| number).load(Ordering::SeqCst) - 1;
        let whole = match (self.terms.ends_epochs, &self.terms.number) {
            (false, _) => whole,
            (true, None) => Epoch(number),
            (true, Some(_)) => Epoch(epoch.load(Ordering::SeqCst) - 1),
        };
        // ORDERING: partner of the fence between a commit's last lock and its load of S. A commit that has our
        // number, or a lower one, read S before it was advanced to the number that we loaded. So we see its
        // records locked, or the versions that it installed.
        fence(Ordering::SeqCst);
        Some(TakenSnapshot { number, whole, made })
    }

    /// Returns the newest snapshot on offer, or `None`. Counts a reader of this worker that needs all commits of the
    /// epochs up to `includes`.
    #[inline]
    pub(crate) fn look(&self, epoch: &AtomicU64, worker: WorkerId, includes: Epoch) -> Option<TakenSnapshot> {
        let newest = self.newest(epoch);
        if self.terms.wanted_min > 0 {
            let whole = newest.map_or_else(|| self.newest.would_have.load(Ordering::Relaxed), |newest| newest.whole.0);
            let readers = &self.readers[usize::from(worker.0)];
            let count = if includes.0 <= whole { &readers.content } else { &readers.others };
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        newest
    }

    /// Makes a snapshot while no window is open. Its reader must be online here, or take the snapshot from
    /// [an offer](Eventual::offer).
    pub(crate) fn make(&self, htm: &Htm, epoch: &AtomicU64) -> TakenSnapshot {
        let made = Instant::now().nanoseconds();
        let whole = match self.terms.ends_epochs {
            true => htm.outside(|| epoch.fetch_add(1, Ordering::SeqCst)),
            false => epoch.load(Ordering::Acquire).saturating_sub(1),
        };
        // ORDERING: release, so that a commit that reads the advanced S reads an epoch no earlier than ours.
        // Outside regions that have read it.
        let advance = |number: &Arc<CacheAligned<AtomicU64>>| htm.outside(|| number.fetch_add(1, Ordering::SeqCst));
        let (number, whole) = (self.terms.number.as_ref().map_or(whole, advance), Epoch(whole));
        // ORDERING: as in `newest`.
        fence(Ordering::SeqCst);
        TakenSnapshot { number, whole, made }
    }

    /// Later readers may take this snapshot, or a later one. `always`: also if none is offered.
    pub(crate) fn offer(&self, snapshot: TakenSnapshot, always: bool) {
        // Of several that are made at the same time, the latest is kept.
        let later = |whole| (always || whole > 0).then_some(snapshot.whole.0.saturating_add(1).max(whole));
        if self.newest.whole.try_update(Ordering::Release, Ordering::Relaxed, later).is_ok() {
            self.newest.made.fetch_max(snapshot.made, Ordering::Release);
        }
    }

    /// Withdraws the offer: a reader that comes online from now on does not take it. `would_have` is the epoch
    /// of a snapshot made now.
    pub(crate) fn withdraw(&self, would_have: Epoch) {
        self.newest.would_have.store(would_have.0, Ordering::Relaxed);
        // ORDERING: sequentially consistent, before the seal of readers that may have found an offer.
        self.newest.whole.store(0, Ordering::SeqCst);
    }

    /// Whether one is offered.
    pub(crate) fn is_offered(&self) -> bool {
        self.newest.whole.load(Ordering::Relaxed) > 0
    }

    /// The turn of a thread that makes or withdraws an offer, one at a time; and whether readers have wanted
    /// one since the last turn.
    pub(crate) fn turn(&self) -> (impl Sized + '_, bool) {
        let mut turn: MutexGuard<'_, Counted> = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = Counted::default();
        for readers in &self.readers {
            now.content = now.content.wrapping_add(readers.content.load(Ordering::Relaxed));
            now.others = now.others.wrapping_add(readers.others.load(Ordering::Relaxed));
        }
        let last = std::mem::replace(&mut *turn, now);
        let (content, others) = (now.content.wrapping_sub(last.content), now.others.wrapping_sub(last.others));
        let wanted_min = self.terms.wanted_min;
        (turn, wanted_min == 0 || content >= wanted_min && content > others)
    }
}

#[cfg(all(test, loom))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests {
    use seriatim_htm::HtmMode;

    use super::*;
    use crate::Epochs;

    const WORKER: WorkerId = WorkerId(1);

    fn terms() -> SnapshotTerms {
        let interval = Duration::from_millis(20);
        SnapshotTerms { number: None, ends_epochs: false, by_readers: false, interval, wanted_min: 0, workers: 2 }
    }

    fn epochs(wanted_min: u64) -> (Epochs, Arc<CacheAligned<AtomicU64>>, Htm) {
        let (epochs, number) = (Epochs::default(), Arc::new(CacheAligned(AtomicU64::new(1))));
        epochs.snapshots().allow(SnapshotTerms { number: Some(Arc::clone(&number)), wanted_min, ..terms() });
        (epochs, number, Htm::new(HtmMode::Absent).expect("it is everywhere"))
    }

    #[test]
    fn where_none_are_allowed_none_are_made() {
        let htm = Htm::new(HtmMode::Absent).expect("it is everywhere");
        assert_eq!(Epochs::default().advance_snapshot(&htm, true), None);
    }

    #[test]
    fn the_newest_is_taken_unless_it_lacks_an_epoch() {
        let (epochs, number, htm) = epochs(0);
        let eventual = epochs.snapshots().eventual().expect("allowed");
        let take = |includes| {
            let taken = epochs.take_snapshot(eventual, &htm, (WORKER, Epoch(includes)), true).expect("one is offered");
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
        let (epochs, _, htm) = epochs(0);
        let before = Instant::now().nanoseconds();
        epochs.advance_snapshot(&htm, true);
        let made = epochs.newest_snapshot().expect("offered").made;
        assert!((before..=Instant::now().nanoseconds()).contains(&made));
    }

    /// Those that want more than there is do not count for an offer, and no offer outlives a turn without readers.
    #[test]
    fn an_offer_is_made_when_enough_readers_are_content_with_one() {
        let (epochs, _, htm) = epochs(3);
        let eventual = epochs.snapshots().eventual().expect("allowed");
        let is_wanted = |content: u32, others: u32| {
            let wants = |includes| epochs.take_snapshot(eventual, &htm, (WORKER, includes), true).is_some();
            let taken =
                (0..content).filter(|_| wants(Epoch(0))).count() + (0..others).filter(|_| wants(Epoch(9))).count();
            assert_eq!(taken > 0, eventual.is_offered() && content + others > 0);
            eventual.turn().1
        };
        assert!(!eventual.is_offered() && !is_wanted(2, 0) && !is_wanted(0, 9) && !is_wanted(4, 4) && is_wanted(4, 3));
        epochs.advance_snapshot(&htm, true);
        assert!(is_wanted(3, 0) && !is_wanted(0, 0) && !is_wanted(3, 5));
        eventual.withdraw(Epoch(9));
        assert!(!eventual.is_offered() && is_wanted(0, 3), "what is made now would have that epoch");
    }

    /// As when a table has been converted, in the middle of an interval.
    #[test]
    fn a_snapshot_is_renewed_without_a_turn() {
        let (epochs, _, htm) = epochs(3);
        let eventual = epochs.snapshots().eventual().expect("allowed");
        let read = || (0..3).for_each(|_| _ = epochs.take_snapshot(eventual, &htm, (WORKER, Epoch(0)), true));
        read();
        epochs.renew_snapshot(&htm);
        assert_eq!(epochs.newest_snapshot(), None, "nothing is offered");
        assert!(eventual.turn().1, "three readers have wanted an offer");
        epochs.advance_snapshot(&htm, true);
        read();
        let before = epochs.newest_snapshot().expect("offered").number;
        epochs.renew_snapshot(&htm);
        assert_eq!(epochs.newest_snapshot().expect("offered").number, before + 1);
        assert!(eventual.turn().1, "they have wanted it since");
    }

    /// A reader that makes its own snapshot after a withdrawal does not renew the offer.
    #[test]
    fn a_withdrawn_offer_is_renewed_by_its_helper_alone() {
        let (epochs, _, htm) = epochs(0);
        let eventual = epochs.snapshots().eventual().expect("allowed");
        eventual.withdraw(Epoch(0));
        eventual.offer(eventual.make(&htm, epochs.word()), false);
        assert_eq!(epochs.newest_snapshot(), None);
        epochs.advance_snapshot(&htm, true);
        assert!(epochs.newest_snapshot().is_some_and(|newest| newest.number == 2));
    }

    fn durable(by_readers: bool) -> (Epochs, Htm) {
        let epochs = Epochs::default();
        epochs.snapshots().allow(SnapshotTerms { ends_epochs: true, by_readers, ..terms() });
        (epochs, Htm::new(HtmMode::Absent).expect("it is everywhere"))
    }

    /// Either thread.
    #[test]
    fn a_durable_snapshot_ends_an_epoch_and_the_end_of_an_epoch_makes_one() {
        let (epochs, htm) = durable(false);
        let eventual = epochs.snapshots().eventual().expect("allowed");
        let take = |includes| epochs.take_snapshot(eventual, &htm, (WORKER, Epoch(includes)), true).expect("offered");
        let before = Instant::now().nanoseconds();
        let steps: [(&str, &dyn Fn()); 4] = [
            ("the end of an epoch", &|| assert_eq!(epochs.advance(&htm).0, epochs.current().0)),
            ("the next snapshot", &|| {
                assert_eq!(epochs.advance_snapshot(&htm, true), Some(Epoch(epochs.current().0 - 1)))
            }),
            ("a renewed snapshot", &|| epochs.renew_snapshot(&htm)),
            ("a reader that wants the current epoch", &|| {
                assert_eq!(take(epochs.current().0).number, epochs.current().0 - 1)
            }),
        ];
        for (who, step) in steps {
            let current = epochs.current();
            step();
            assert_eq!(epochs.current(), Epoch(current.0 + 1), "{who}");
            let newest = epochs.newest_snapshot().expect("one is always offered");
            assert_eq!((newest.number, newest.whole), (current.0, current), "{who}");
            assert!(newest.made >= before, "{who}");
            assert_eq!(
                (take(current.0), epochs.current().0),
                (newest, current.0 + 1),
                "{who}: who has enough makes none"
            );
        }
        epochs.skip_to(Epoch(100));
        assert_eq!(take(0).number, 99, "numbers go on where epochs do");
    }

    #[test]
    fn where_readers_make_theirs_each_ends_an_epoch() {
        let (epochs, htm) = durable(true);
        let eventual = epochs.snapshots().eventual().expect("allowed");
        for number in 1..4 {
            let taken = epochs.take_snapshot(eventual, &htm, (WORKER, Epoch(0)), true).expect("offered");
            assert_eq!((taken.number, epochs.current()), (number, Epoch(number + 1)));
        }
    }
}
