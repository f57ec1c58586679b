//! Timestamps of absences and ranges, for protocols whose order is that of timestamps.
//!
//! That a node version is unchanged says that nothing was linked until now. It does not say that what is linked later belongs later in
//! the order of timestamps. So who relies on a node version announces at which timestamp, in one word for each worker; one for each
//! leaf would move when leaves split, and nobody but insertions reads them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use seriatim_base::thread::Touch;
use seriatim_base::{CacheAligned, Tid, WorkerId};
use seriatim_memory::Memory;

use super::origin::Origin;
use super::writes::Write;

/// Until when absences and ranges are valid that are known by node versions: for each worker, the newest timestamp of a
/// transaction that relied on one. Whoever gives a key its first row commits above all of them.
///
/// Who relies on a node version says so first, and validates it then; who links a record changes the node version first, and looks here
/// then, both with a fence between. So one of the two finds the other.
#[derive(Debug)]
pub(crate) struct Absences {
    by_worker: Box<[CacheAligned<AtomicU64>]>,
    /// Workers there have been.
    workers: AtomicUsize,
}

impl Absences {
    pub(crate) fn new(memory: &Memory) -> Absences {
        let by_worker = (0..memory.workers_max()).map(|_| CacheAligned::default()).collect();
        Absences { by_worker, workers: AtomicUsize::new(0) }
    }

    /// A worker that may rely on absences.
    pub(crate) fn add(&self, worker: WorkerId) {
        self.workers.fetch_max(usize::from(worker.0) + 1, Ordering::SeqCst);
    }

    /// The worker relies on absences at `at`. A fence follows.
    pub(crate) fn rely(&self, worker: WorkerId, at: Tid) {
        let own = &self.by_worker[usize::from(worker.0)];
        if own.load(Ordering::Relaxed) < at.bits() {
            crate::step(Touch::Store, &**own);
            // ORDERING: releases the epoch of `at`.
            own.store(at.bits(), Ordering::Release);
        }
    }

    fn newest(&self) -> Tid {
        let workers = &self.by_worker[..self.workers.load(Ordering::SeqCst)];
        let newest = workers.iter().map(|own| {
            crate::step(Touch::Header, &**own);
            own.load(Ordering::Acquire)
        });
        Tid::from_bits(newest.max().unwrap_or_default())
    }

    /// What a transaction that is about to commit these writes, which are linked and locked, has to be above: if it gives a key its first
    /// row, the timestamps of all who relied on absences, and those of deletions of which nothing is left. (What was noted of held
    /// insertions came before they were linked.) A fence came before.
    pub(crate) fn below_first_rows<O: Origin>(&self, entries: &[Write<O>]) -> Tid {
        let mut first_rows = entries.iter().filter(|write| write.expected.tid() == Tid::ZERO).peekable();
        let mut newest = Tid::ZERO;
        if first_rows.peek().is_some() {
            newest = newest.max(self.newest());
        }
        for write in first_rows {
            newest = newest.max(write.table().unlinked.newest());
        }
        newest
    }
}
