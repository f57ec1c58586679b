//! What terminals committed, so that a check can compare it with the data.
//!
//! Access rule: a ledger is written by its terminal alone and read while the terminals rest; so no count needs a
//! read-modify-write instruction, nor an ordering. Ledgers are aligned to cache lines of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds, modulo 2^64.
    #[inline]
    pub(crate) fn add(&self, by: u64) {
        self.set(self.get().wrapping_add(by));
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The ledgers of a workload's terminals, in the order in which they were opened.
#[derive(Debug)]
pub(crate) struct Ledgers<L>(Mutex<Vec<Arc<L>>>);

impl<L> Default for Ledgers<L> {
    fn default() -> Self {
        Ledgers(Mutex::default())
    }
}

impl<L> Ledgers<L> {
    /// Opens the ledger that `make` makes of its number, counting from 0.
    pub(crate) fn open(&self, make: impl FnOnce(usize) -> L) -> Arc<L> {
        let mut all = self.all();
        let ledger = Arc::new(make(all.len()));
        all.push(Arc::clone(&ledger));
        ledger
    }

    /// All of them.
    pub(crate) fn all(&self) -> MutexGuard<'_, Vec<Arc<L>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of a count over all of them, modulo 2^64.
    pub(crate) fn sum(&self, count: impl Fn(&L) -> u64) -> u64 {
        self.all().iter().fold(0, |sum, ledger| sum.wrapping_add(count(ledger)))
    }
}
