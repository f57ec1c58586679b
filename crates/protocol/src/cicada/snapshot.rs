//! Read-only transactions (§3.1, §3.4 of the paper): each reads at a timestamp that everybody has passed who
//! may still write. It notes nothing, validates nothing, writes no word that others read, and waits for no
//! pending version but one that is inserted over a deletion.
//!
//! A worker *announces* from which timestamp on its transaction may commit, from before it draws until all that
//! it wrote is installed; one that is idle announces nothing. A helper moves `min_rts`, a timestamp that will
//! never again be committed at or below, and says since which epoch versions are needed for it ([`PastReads`]).
//! A snapshot looks itself, and is fresher: it reads just below the oldest transaction that is under way, or
//! just below the present if there is none.
//!
//! Access rules:
//! 1. A worker's word is written by itself alone: a bound that its timestamp will be above, then a fence, then
//!    it draws; then the timestamp; zero, when it has ended. A transaction that draws again goes up, and leaves
//!    the word.
//! 2. Who looks for the oldest reads the clock first, then a fence, then the words. So of a worker whose
//!    announcement it does not find, it finds all that has ended, and what begins later draws above the clock
//!    that was read.
//! 3. `min_rts` rises. A timestamp at or below it, or one that a look found to be below all, is of a
//!    transaction that has ended, for ever.
//! 4. A snapshot's worker is online before it loads `min_rts`, with a fence between, and reads at that or
//!    above. Whoever finds a version no more needed found `min_rts` higher before, and looks at who is online
//!    after (`seriatim_memory::horizon`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, TryLockError};

use seriatim_base::thread::Touch;
use seriatim_base::{Backoff, CacheAligned, Epoch, Tid, WorkerId};
use seriatim_memory::{Memory, PastReads};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, RecordLayout, Table};

use super::clock::Clock;
use super::versions::{self, VersionHeader, Written};
use crate::shared::record_header::{self, TidWord};
use crate::shared::versions as chains;

/// Who may still write, and what nobody can write any more.
#[derive(Debug)]
pub(super) struct UnderWay {
    clock: Arc<Clock>,
    by_worker: Box<[CacheAligned<AtomicU64>]>,
    /// Workers there have been.
    workers: AtomicUsize,
    min_rts: CacheAligned<AtomicU64>,
    /// The epoch since which versions are needed for `min_rts`. Written by who has `next`.
    since: AtomicU64,
    next: Mutex<Next>,
}

/// What `min_rts` is to be next.
#[derive(Debug, Default)]
struct Next {
    /// A timestamp that was of the present, with the epoch before: what is above it commits in that or later.
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

    /// A worker that may write.
    pub(super) fn add(&self, worker: WorkerId) {
        self.workers.fetch_max(usize::from(worker.0) + 1, Ordering::SeqCst);
    }

    fn announce(&self, worker: WorkerId, from: u64) {
        let own = &*self.by_worker[usize::from(worker.0)];
        crate::step(Touch::Store, own);
        // ORDERING: releases what the worker's transactions before have installed, whatever it announces.
        own.store(from, Ordering::Release);
    }

    /// The worker is about to draw. A fence follows.
    pub(super) fn begin(&self, worker: WorkerId) {
        crate::step(Touch::Header, &*self.min_rts);
        self.announce(worker, self.min_rts.load(Ordering::Acquire) + 1);
    }

    /// It has drawn.
    pub(super) fn drawn(&self, worker: WorkerId, at: u64) {
        self.announce(worker, at);
    }

    /// Its transaction has ended: all that it wrote is installed.
    pub(super) fn end(&self, worker: WorkerId) {
        self.announce(worker, 0);
    }

    /// The newest timestamp of which all has ended, or a lower one; none above `present`, which was of the
    /// present before a fence.
    fn settled(&self, present: u64) -> u64 {
        let workers = &self.by_worker[..self.workers.load(Ordering::SeqCst)];
        let announced = workers.iter().map(|own| {
            crate::step(Touch::Header, &**own);
            // ORDERING: pairs with the release in `announce`.
            own.load(Ordering::Acquire)
        });
        announced.filter(|&from| from > 0).map(|from| from - 1).fold(present, u64::min)
    }

    /// A timestamp to read at, for a worker that is online (rules 2 to 4).
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
    /// A candidate becomes `min_rts` when all that was under way when it was of the present has ended. Who
    /// finds another at it leaves it to that one: there are steps within.
    fn since(&self, now: Epoch) -> Epoch {
        let next = match self.next.try_lock() {
            Ok(next) => Some(next),
            Err(TryLockError::Poisoned(next)) => Some(next.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut next) = next {
            // Who is above the candidate passes its timestamp after the clock is read here, and reads its epoch
            // after that.
            let (candidate, epoch) = *next.candidate.get_or_insert_with(|| (self.clock.passed(), now));
            // ORDERING: as in `read_at`.
            fence(Ordering::SeqCst);
            if self.settled(candidate) == candidate {
                crate::step(Touch::Store, &*self.min_rts);
                // ORDERING: a seal follows, which begins with a fence: rule 4.
                self.min_rts.store(candidate, Ordering::Release);
                next.candidate = None;
                // ORDERING: partner of the load below: who reads it finds this `min_rts`.
                self.since.store(epoch.0, Ordering::Release);
            }
        }
        Epoch(self.since.load(Ordering::Acquire))
    }
}

/// What a read-only transaction is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Versions with a higher wts came later.
    pub(super) at: u64,
    /// Once the log has stopped, or if the disk is behind: versions of a later epoch are not shown, as they are
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

    /// All that is to be seen is installed, so nothing is waited for, with one exception: while a row is being inserted
    /// over a deletion the record does not say when that was. Promise (d): each look has the steps of a [`Backoff`],
    /// and the caller bounds the looks ([`Worker::wait_max`](seriatim_txn::Worker::wait_max)).
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
            // If the record is locked and nothing pending, this is when it was deleted; or a row was just
            // installed, which has come too late: then the version word begins with that row.
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
