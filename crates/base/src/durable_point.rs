//! The durable point as one word: which epoch a power cut does not take back, and whether it will still move.
//!
//! The log moves it; who keeps or shows versions by it only reads. It never moves back, and not at all once it is final.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{CacheAligned, Epoch};

/// Set when the log has stopped. Epochs have far fewer bits.
const FINAL: u64 = 1 << 63;

/// The newest epoch all of whose commits, and those of all before it, are on disk.
#[derive(Debug)]
pub struct DurablePoint(CacheAligned<AtomicU64>);

impl DurablePoint {
    /// A point that stands at `epoch`.
    pub fn new(epoch: Epoch) -> DurablePoint {
        DurablePoint(CacheAligned(AtomicU64::new(epoch.0)))
    }

    /// Where it is.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        Epoch(self.0.load(Ordering::Acquire) & !FINAL)
    }

    /// Where it is for ever, once the log has stopped.
    #[inline]
    pub fn final_epoch(&self) -> Option<Epoch> {
        // ORDERING: pairs with the release in `finish`.
        let word = self.0.load(Ordering::Acquire);
        (word & FINAL != 0).then_some(Epoch(word & !FINAL))
    }

    /// Moves it to `epoch`, unless it is beyond already or final. Whether `epoch` is durable now.
    pub fn advance(&self, epoch: Epoch) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        while now < epoch.0 {
            match self.0.compare_exchange_weak(now, epoch.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        now & !FINAL >= epoch.0
    }

    /// Counts epochs up to this one as durable because nothing of them is to be: before anybody reads versions by it, and even if it
    /// is final.
    pub fn skip_to(&self, epoch: Epoch) {
        let mut now = self.0.load(Ordering::Relaxed);
        while now & !FINAL < epoch.0 {
            match self.0.compare_exchange_weak(now, now & FINAL | epoch.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(changed) => now = changed,
            }
        }
    }

    /// It moves no more.
    pub fn finish(&self) {
        self.0.fetch_or(FINAL, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_moves_forward_until_it_is_final() {
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
}
