//! Ledgers of committed transactions, with which a check compares the data.
//!
//! Invariant: a terminal adds to its ledger exactly when its transaction has committed. So the sums are those
//! of the committed transactions, even if the engine lost writes.
//!
//! Access rule: only its terminal writes a ledger, and it is read while the terminals are idle. So counts need
//! neither read-modify-write instructions nor an ordering. Each ledger has its own cache lines.

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

    /// Adds a number that may be negative, modulo 2^64. The count is then read in two's complement.
    #[inline]
    pub(crate) fn add_signed(&self, by: i64) {
        self.add(by.cast_unsigned());
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

    /// The sum of a count whose additions were signed.
    pub(crate) fn sum_signed(&self, count: impl Fn(&L) -> u64) -> i64 {
        self.sum(count).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_over_all_terminals_also_those_that_are_gone_and_may_be_negative() {
        let ledgers = Ledgers::<(usize, Count)>::default();
        assert_eq!(ledgers.sum(|ledger| ledger.1.get()), 0);
        let (first, second) = (ledgers.open(|at| (at, Count::default())), ledgers.open(|at| (at, Count::default())));
        assert_eq!((first.0, second.0), (0, 1));
        first.1.add(5);
        second.1.add_signed(6);
        drop(second);
        assert_eq!(ledgers.sum(|ledger| ledger.1.get()), 11);
        first.1.add_signed(-20);
        assert_eq!(ledgers.sum_signed(|ledger| ledger.1.get()), -9);
    }
}
