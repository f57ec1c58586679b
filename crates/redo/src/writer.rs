//! Writers: a worker's end of the log, and which epochs it may still write into.
//!
//! Invariant: between `begin` and `end` the slot's epoch word holds at most the epoch of the commit that runs, so
//! that no logger closes that epoch before the commit's entries are in the stream. Outside it is idle and holds
//! nobody up. On the way are two stores, a fence and a copy: no lock, and no word that another worker writes.
//!
//! Why a logger never closes too much: it reads the current epoch, fences, and reads the slots; a worker stores
//! its slot, fences, and then reads the epoch of its commit. If the logger finds the slot idle its fence came
//! first, so the worker reads an epoch no smaller than the logger did, which is above what the logger closes. In
//! Silo §4.10 workers publish the id of their last commit instead, so that an idle one has to be woken.

use std::sync::Arc;
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{CacheAligned, Epoch, thread};

use crate::LogError;
use crate::log::Shared;
use crate::stream::Producer;
use crate::sync::{AtomicU64, Ordering, fence};

/// How long a writer that waits for the disk sleeps before it looks again.
const BACKLOG_LOOK: Duration = Duration::from_millis(1);

/// A buffer for commits that is larger is given back after the commit that needed it. One that reaches the size at
/// which groups are cut ([`entry::CUT_BYTES`](crate::entry::CUT_BYTES)) is rare, and making another costs less
/// than filling it did.
const GROUPS_BYTES_KEPT: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// What a writer shares with its logger.
#[derive(Debug)]
pub(crate) struct Slot {
    /// No commit of this writer that is not in its stream is of an earlier epoch; [`Slot::IDLE`] outside of commits.
    epoch: AtomicU64,
    /// Bytes appended. Stored by the writer only.
    appended: AtomicU64,
    /// Bytes flushed. Stored by the logger only.
    flushed: CacheAligned<AtomicU64>,
}

impl Slot {
    const IDLE: u64 = u64::MAX;

    pub(crate) fn new() -> Slot {
        Slot {
            epoch: AtomicU64::new(Slot::IDLE),
            appended: AtomicU64::new(0),
            flushed: CacheAligned(AtomicU64::new(0)),
        }
    }

    /// A commit begins, in `current` or later.
    #[inline]
    fn announce(&self, current: Epoch) {
        // ORDERING: a release, because a logger that reads this instead of the idle word before must see what was
        // published.
        self.epoch.store(current.0, Ordering::Release);
        // ORDERING: pairs with the fence in `closed`; see the module.
        fence(Ordering::SeqCst);
    }

    /// The commit is in the stream.
    #[inline]
    fn leave(&self) {
        // ORDERING: pairs with the acquire in `closed`: a logger that finds the slot idle finds its entries.
        self.epoch.store(Slot::IDLE, Ordering::Release);
    }

    /// The newest epoch of which none of these writers can still append anything, if `current` was read just before.
    /// What they appended up to there is in the streams by now.
    pub(crate) fn closed<'a>(current: Epoch, slots: impl Iterator<Item = &'a Slot>) -> Epoch {
        // ORDERING: pairs with the fence in `announce`; see the module.
        fence(Ordering::SeqCst);
        // ORDERING: pairs with the releases in `announce` and `leave`.
        let earliest = slots.map(|slot| slot.epoch.load(Ordering::Acquire)).fold(current.0, u64::min);
        Epoch(earliest.saturating_sub(1))
    }

    pub(crate) fn set_flushed(&self, bytes: u64) {
        self.flushed.store(bytes, Ordering::Relaxed);
    }

    /// Bytes appended and not flushed.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        let flushed = self.flushed.load(Ordering::Relaxed);
        self.appended.load(Ordering::Relaxed).saturating_sub(flushed)
    }
}

/// Appends what one worker commits. A worker slot's only writer; the slot's lessee uses it.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    slot: usize,
    producer: Producer,
    groups: Vec<u8>,
    begun: bool,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, slot: usize, producer: Producer) -> Writer {
        Writer { shared, slot, producer, groups: Vec::new(), begun: false }
    }

    /// Waits while this writer is too far ahead of the disk, at most [`LogOptions::backlog_wait_max`]: before a
    /// transaction begins, which holds nothing then that others wait for. While it has not begun to commit the backlog
    /// does not grow. Does not wait for what another wait would not help: [`Writer::begin`] says what that is.
    ///
    /// [`LogOptions::backlog_wait_max`]: crate::LogOptions::backlog_wait_max
    #[inline]
    pub fn wait_for_disk(&self) {
        if self.is_ahead() {
            self.wait_while_ahead();
        }
    }

    /// Announces a commit, before it reads its epoch; `current` is the epoch now, or an earlier one. Until
    /// [`Writer::end`] no epoch from `current` on becomes durable. Never waits, since the committing transaction may
    /// hold locks: [`Writer::wait_for_disk`] waits, before.
    ///
    /// # Errors
    /// [`LogError::Stopped`] when the log has failed; [`LogError::Closed`] when it was closed; [`LogError::Full`]
    /// while the disk is full; [`LogError::Backlogged`] when this writer is too far ahead of the disk. Then nothing
    /// was announced.
    #[inline]
    pub fn begin(&mut self, current: Epoch) -> Result<(), LogError> {
        if self.shared.refuses() {
            return Err(self.shared.refusal());
        }
        let slot = &self.shared.slots[self.slot];
        let backlog_bytes = slot.backlog_bytes();
        if backlog_bytes > self.shared.options.backlog_bytes_max {
            return Err(LogError::Backlogged { backlog_bytes });
        }
        slot.announce(current);
        self.begun = true;
        Ok(())
    }

    /// As [`Writer::begin`], whatever the log refuses: for what belongs to commits that it has taken.
    pub fn begin_regardless(&mut self, current: Epoch) {
        self.shared.slots[self.slot].announce(current);
        self.begun = true;
    }

    /// Where the groups of the commit are encoded ([`crate::entry::GroupWriter`]): empty after `begin` and `append`.
    #[inline]
    pub fn groups(&mut self) -> &mut Vec<u8> {
        &mut self.groups
    }

    /// Hands what was encoded to the logger: whole groups, or nothing. Never waits and never fails, since the commit
    /// has happened.
    ///
    /// # Panics
    /// Outside of `begin` and `end`.
    #[inline]
    pub fn append(&mut self) {
        assert!(self.begun, "entries are appended between begin and end");
        if !self.groups.is_empty() {
            self.producer.write(&self.groups);
            self.producer.publish();
            self.shared.slots[self.slot].appended.store(self.producer.written(), Ordering::Relaxed);
            self.discard_groups();
        }
    }

    /// Gives back what a burst has needed: nothing has been written for a while.
    pub fn rest(&mut self) {
        self.producer.rest();
    }

    /// The commit has appended all its entries, or has aborted.
    #[inline]
    pub fn end(&mut self) {
        self.discard_groups();
        self.begun = false;
        self.shared.slots[self.slot].leave();
    }
}

impl Writer {
    #[inline]
    fn discard_groups(&mut self) {
        self.groups.clear();
        if self.groups.capacity() > GROUPS_BYTES_KEPT {
            self.groups.shrink_to(GROUPS_BYTES_KEPT);
        }
    }
}

/// Waiting for the disk.
impl Writer {
    #[cfg(all(test, not(loom)))]
    pub(crate) fn wake_own_logger(&self) {
        self.shared.wake_one(self.slot % self.shared.loggers.len());
    }

    fn is_ahead(&self) -> bool {
        self.shared.slots[self.slot].backlog_bytes() > self.shared.options.backlog_bytes_max
    }

    #[cold]
    fn wait_while_ahead(&self) {
        let began = Instant::now();
        while self.is_ahead() && !self.shared.refuses() && began.elapsed() < self.shared.options.backlog_wait_max {
            self.shared.wake();
            thread::sleep(BACKLOG_LOOK);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.begun {
            // It may have taken effect in memory, and it is not in the log: nothing after it may be called durable.
            self.shared.stop("a commit ended, by a panic, before all it wrote was in the log: open the database again");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;
