//! The durable point as one word: the newest epoch that survives a power cut, and whether the point will still move.
//!
//! The log moves the point; code that keeps or shows versions by it only reads it. It never moves back, and not
//! at all once it is final.
//!
//! A reader of the current durable state takes a [`Hold`]. Versions that are replaced later are then kept
//! although the point moves on. Invariant: [`DurablePoint::released`] is above neither the point nor the epoch
//! of any hold, and never moves back. A hold is taken at the point, under the lock under which the point moves,
//! so none of its versions were released before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::process::Process;
use crate::{CacheAligned, Epoch};

/// Set when the log has stopped. Epochs have far fewer bits.
const FINAL: u64 = 1 << 63;

/// The newest epoch whose commits are on disk, with all commits of earlier epochs.
#[derive(Debug)]
pub struct DurablePoint {
    word: CacheAligned<AtomicU64>,
    released: CacheAligned<AtomicU64>,
    /// The number of holds of each epoch.
    holds: Mutex<BTreeMap<Epoch, usize>>,
}

/// Keeps versions that are replaced after an epoch, until it is dropped: [`DurablePoint::hold`].
#[derive(Debug)]
#[must_use = "a dropped hold keeps no versions"]
pub struct Hold {
    point: Arc<DurablePoint>,
    epoch: Epoch,
    process: Process,
}

impl Hold {
    /// The durable epoch when the hold was taken.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // In a fork another thread may have the lock for ever.
        if !self.process.is_current() {
            return;
        }
        let mut holds = self.point.holds();
        if let Some(count) = holds.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                holds.remove(&self.epoch);
            }
        }
        self.point.release(&holds);
    }
}

impl DurablePoint {
    /// A point at `epoch`.
    pub fn new(epoch: Epoch) -> DurablePoint {
        DurablePoint {
            word: CacheAligned(AtomicU64::new(epoch.0)),
            released: CacheAligned(AtomicU64::new(epoch.0)),
            holds: Mutex::default(),
        }
    }

    /// The durable epoch.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        Epoch(self.word.load(Ordering::Acquire) & !FINAL)
    }

    /// The final durable epoch, once the log has stopped.
    #[inline]
    pub fn final_epoch(&self) -> Option<Epoch> {
        // ORDERING: pairs with the release in `finish`.
        let word = self.word.load(Ordering::Acquire);
        (word & FINAL != 0).then_some(Epoch(word & !FINAL))
    }

    /// No reader by the point needs versions any more that were replaced in epochs up to this one.
    #[inline]
    pub fn released(&self) -> Epoch {
        // ORDERING: pairs with the release in `release`.
        Epoch(self.released.load(Ordering::Acquire))
    }

    /// Keeps the versions of the current durable epoch, so that they can be read although the point moves on.
    pub fn hold(self: &Arc<DurablePoint>) -> Hold {
        let mut holds = self.holds();
        let epoch = self.epoch();
        *holds.entry(epoch).or_default() += 1;
        Hold { point: Arc::clone(self), epoch, process: Process::current() }
    }

    fn holds(&self) -> MutexGuard<'_, BTreeMap<Epoch, usize>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates `released` after the point or the holds have changed.
    fn release(&self, holds: &BTreeMap<Epoch, usize>) {
        let held = holds.first_key_value().map(|(epoch, _)| *epoch);
        let released = held.map_or(self.epoch(), |held| held.min(self.epoch()));
        // ORDERING: pairs with the acquire in `released`.
        self.released.store(released.0, Ordering::Release);
    }

    /// Moves the point to `epoch`, unless it is there already or is final. Returns whether `epoch` is durable.
    pub fn advance(&self, epoch: Epoch) -> bool {
        let holds = self.holds();
        let is_durable = self.move_to(epoch);
        self.release(&holds);
        is_durable
    }

    fn move_to(&self, epoch: Epoch) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        while now < epoch.0 {
            match self.word.compare_exchange_weak(now, epoch.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        now & !FINAL >= epoch.0
    }

    /// Moves the point to `epoch` even if it is final, because earlier epochs will not be logged. Called before
    /// any reader uses the point.
    pub fn skip_to(&self, epoch: Epoch) {
        let holds = self.holds();
        let mut now = self.word.load(Ordering::Relaxed);
        while now & !FINAL < epoch.0 {
            match self.word.compare_exchange_weak(now, now & FINAL | epoch.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(changed) => now = changed,
            }
        }
        self.release(&holds);
    }

    /// Makes the point final.
    pub fn finish(&self) {
        self.word.fetch_or(FINAL, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_point_moves_forward_until_it_is_final() {
        let point = DurablePoint::new(Epoch(5));
        assert!(point.advance(Epoch(7)) && point.advance(Epoch(6)));
        assert_eq!((point.epoch(), point.final_epoch()), (Epoch(7), None));
        point.finish();
        assert!(point.advance(Epoch(7)) && !point.advance(Epoch(8)));
        assert_eq!((point.epoch(), point.final_epoch()), (Epoch(7), Some(Epoch(7))));
        point.skip_to(Epoch(6));
        assert_eq!(point.final_epoch(), Some(Epoch(7)));
        point.skip_to(Epoch(9));
        assert_eq!(point.final_epoch(), Some(Epoch(9)));
    }

    #[test]
    fn a_fork_drops_a_hold_although_another_thread_had_the_lock() {
        let point = Arc::new(DurablePoint::new(Epoch(5)));
        let mut hold = Some(point.hold());
        let held = point.holds();
        crate::process::in_fork(|| drop(hold.take()));
        drop(held);
        assert_eq!(point.released(), Epoch(5));
    }

    #[test]
    fn versions_are_released_when_the_last_hold_is_dropped() {
        let point = Arc::new(DurablePoint::new(Epoch(5)));
        assert_eq!(point.released(), Epoch(5));
        let (first, second) = (point.hold(), point.hold());
        assert!(point.advance(Epoch(7)));
        let third = point.hold();
        assert!(point.advance(Epoch(8)));
        assert_eq!((first.epoch(), third.epoch(), point.epoch()), (Epoch(5), Epoch(7), Epoch(8)));
        drop(first);
        assert_eq!(point.released(), Epoch(5));
        drop(second);
        assert_eq!(point.released(), Epoch(7));
        drop(third);
        assert_eq!(point.released(), Epoch(8));
        point.skip_to(Epoch(9));
        assert_eq!(point.released(), Epoch(9));
    }
}
