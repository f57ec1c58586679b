//! Read-only transactions (§3.1, §3.4 of the paper). Each reads at a timestamp below that of every active
//! transaction that may write. It records and validates nothing and writes no shared word. It waits only for a
//! pending version that is inserted over a deletion.
//!
//! A worker *announces* a lower bound of its transaction's timestamp before it draws, and withdraws it when all
//! writes are installed. An idle worker announces nothing. A helper advances `min_rts`: no transaction will
//! commit at or below it again. The helper also reports since which epoch versions are needed for it
//! ([`PastReads`]). A snapshot determines a fresher timestamp itself. It reads just below the oldest active
//! transaction, or just below the present if there is none.
//!
//! Access rules:
//! 1. Only the worker writes its word. It stores a bound that its timestamp will exceed, fences, and draws. Then it
//!    stores the timestamp, and zero at the end. Drawing again raises the timestamp and leaves the word.
//! 2. A thread that looks for the oldest transaction reads the clock, fences, and then reads the words. If it
//!    does not find a worker's announcement, it sees everything that has ended. Transactions that begin later
//!    draw timestamps above the clock that it read.
//! 3. `min_rts` rises. A transaction whose timestamp is at or below it, or is below a look's result, has ended
//!    for ever.
//! 4. A snapshot's worker comes online, fences, loads `min_rts`, and reads at that or above. A thread that
//!    finds a version unneeded has found a higher `min_rts` before, and then checks which workers are online
//!    (`seriatim_memory::horizon`).

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, TryLockError};

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering, fence};
use seriatim_base::{Backoff, CacheAligned, Epoch, Tid, WorkerId};
use seriatim_memory::{Memory, PastReads};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, RecordLayout, Table};

use super::clock::Clock;
use super::versions::{self, VersionHeader, Written};
use crate::shared::record_header::{self, TidWord};
use crate::shared::versions as chains;

/// The transactions that may still write, and the timestamps that are settled.
#[derive(Debug)]
pub(super) struct UnderWay {
    clock: Arc<Clock>,
    by_worker: Box<[CacheAligned<AtomicU64>]>,
    /// The number of workers so far.
    workers: AtomicUsize,
    min_rts: CacheAligned<AtomicU64>,
    /// The epoch since which versions are needed for `min_rts`. Written under `next`.
    since: AtomicU64,
    next: Mutex<Next>,
}

/// The next value of `min_rts`.
#[derive(Debug, Default)]
struct Next {
    /// A timestamp that was of the present, with the epoch before. Transactions above it commit in that epoch or later.
    candidate: Option<(u64, Epoch)>,
}

impl UnderWay {
    pub(super) fn new(clock: Arc<Clock>, memory: &Memory) -> UnderWay {
        UnderWay {
            clock,
            by_worker: (0..memory.workers_max()).map(|_| CacheAligned::default()).collect(),
            workers: AtomicUsize::new(0),
            min_rts: CacheAligned::default(),
            since: AtomicU64::new(0),
            next: Mutex::default(),
        }
    }

    /// Registers a worker that may write.
    pub(super) fn add(&self, worker: WorkerId) {
        self.workers.fetch_max(usize::from(worker.0) + 1, Ordering::SeqCst);
    }

    fn announce(&self, worker: WorkerId, from: u64) {
        let own = &*self.by_worker[usize::from(worker.0)];
        crate::step(Touch::Store, own);
        // ORDERING: releases the installed writes of the worker's earlier transactions.
        own.store(from, Ordering::Release);
    }

    /// Announces that the worker will draw. The caller must fence afterwards.
    pub(super) fn begin(&self, worker: WorkerId) {
        crate::step(Touch::Header, &*self.min_rts);
        self.announce(worker, self.min_rts.load(Ordering::Acquire) + 1);
    }

    /// Announces the drawn timestamp.
    pub(super) fn drawn(&self, worker: WorkerId, at: u64) {
        self.announce(worker, at);
    }

    /// Ends the announcement. All writes of the transaction are installed.
    pub(super) fn end(&self, worker: WorkerId) {
        self.announce(worker, 0);
    }

    /// A timestamp at or below which all transactions have ended, at most `present`. `present` was read from
    /// the clock before a fence.
    fn settled(&self, present: u64) -> u64 {
        let workers = &self.by_worker[..self.workers.load(Ordering::SeqCst)];
        let announced = workers.iter().map(|own| {
            crate::step(Touch::Header, &**own);
            // ORDERING: pairs with the release in `announce`.
            own.load(Ordering::Acquire)
        });
        announced.filter(|&from| from > 0).map(|from| from - 1).fold(present, u64::min)
    }

    /// A timestamp at which an online worker can read (rules 2 to 4).
    pub(super) fn read_at(&self) -> u64 {
        // ORDERING: the worker came online with a fence.
        let min_rts = self.min_rts.load(Ordering::Acquire);
        let present = self.clock.passed();
        // ORDERING: partner of the fence in `Clock::draw`.
        fence(Ordering::SeqCst);
        self.settled(present).max(min_rts)
    }
}

impl PastReads for UnderWay {
    /// A candidate becomes `min_rts` when all transactions at or below it have ended. If another thread is at
    /// it, this one leaves the work to that thread, since it takes several steps.
    fn since(&self, now: Epoch) -> Epoch {
        let next = match self.next.try_lock() {
            Ok(next) => Some(next),
            Err(TryLockError::Poisoned(next)) => Some(next.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut next) = next {
            // A transaction above the candidate passes its timestamp after the clock is read here, and reads
            // its epoch later.
            let (candidate, epoch) = *next.candidate.get_or_insert_with(|| (self.clock.passed(), now));
            // ORDERING: as in `read_at`.
            fence(Ordering::SeqCst);
            if self.settled(candidate) == candidate {
                crate::step(Touch::Store, &*self.min_rts);
                // ORDERING: a seal follows, which begins with a fence: rule 4.
                self.min_rts.store(candidate, Ordering::Release);
                next.candidate = None;
                // ORDERING: pairs with the load below: a thread that reads it sees this `min_rts`.
                self.since.store(epoch.0, Ordering::Release);
            }
        }
        Epoch(self.since.load(Ordering::Acquire))
    }
}

/// The view of a read-only transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Versions with a higher wts are later.
    pub(super) at: u64,
    /// If the log has stopped, or the disk is behind: versions of later epochs are not shown, since they are
    /// not durable.
    durable: Option<Epoch>,
}

impl View {
    pub(super) fn new(core: &Core, at: u64) -> View {
        View { at, durable: core.shown_epoch() }
    }

    #[inline]
    fn shows(self, wts: u64, tid: Tid) -> bool {
        wts <= self.at && self.durable.is_none_or(|durable| tid.epoch() <= durable)
    }
}

impl chains::View for View {
    type Kept = Written;

    #[inline]
    fn shows(self, version: &VersionHeader) -> bool {
        View::shows(self, version.kept.wts(), version.tid)
    }

    #[inline]
    fn is_deletion(version: &VersionHeader) -> bool {
        version.kept.is_deletion()
    }

    /// All visible versions are installed, so there is only one wait. While a row is being inserted over a
    /// deletion, the record does not store the time of the deletion. Promise (d): each look has the steps of a
    /// [`Backoff`], and the caller bounds the looks ([`Worker::wait_max`](seriatim_txn::Worker::wait_max)).
    #[inline]
    fn look(self, table: &Table, record: RecordPtr) -> Result<(TidWord, bool), OpError> {
        let record_layout: &RecordLayout = &table.record_layout;
        let header = record_header::tid_word(record_layout, record);
        let mut backoff = Backoff::new();
        loop {
            // ORDERING: as in `Words::sight`.
            let word = TidWord(header.load(Ordering::Acquire));
            if !word.is_absent() || word.tid() == Tid::ZERO {
                return Ok((word, false));
            }
            // If the record is locked without a pending version, this is the time of the deletion. Otherwise a
            // row was just installed, which is too late for this view; the chain from the version word then
            // begins with that row.
            let deleted = versions::wts_unless_pending(record_layout, record);
            crate::step(Touch::Header, header);
            if let Some(deleted) = deleted
                && header.load(Ordering::Relaxed) == word.0
            {
                return Ok((word, View::shows(self, deleted, word.tid())));
            }
            if !backoff.wait() {
                return Err(OpError::Wait);
            }
        }
    }

    fn epoch(self) -> Option<Epoch> {
        self.durable
    }
}

#[cfg(all(test, loom))]
mod loom_model;
