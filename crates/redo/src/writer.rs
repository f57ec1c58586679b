//! Writers: the log's interface for a worker, and the epochs in which a worker may still write.
//!
//! Invariant: between `begin` and `end` the epoch word of the slot is at most the epoch of the running commit. So no
//! logger closes that epoch before the commit's entries are in the stream. Otherwise the slot is idle and delays no
//! logger. A commit costs two stores, a fence and a copy here: no lock, and no word that another worker writes.
//!
//! Why a logger never closes too much: a logger reads the current epoch, fences, and reads the slots. A worker stores
//! its slot, fences, and then reads the epoch of its commit. If the logger finds the slot idle, its fence came first.
//! So the worker reads an epoch no smaller than the one that the logger read, and the logger closes only smaller ones.
//! In Silo (§4.10) workers publish the id of their last commit instead, so that idle workers must be woken.

use std::sync::Arc;
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{CacheAligned, Epoch, thread};

use crate::LogError;
use crate::log::Shared;
use crate::stream::Producer;
use crate::sync::{AtomicU64, Ordering, fence};

/// How long a writer that waits for the disk sleeps between two checks.
const BACKLOG_LOOK: Duration = Duration::from_millis(1);

/// A larger buffer for the groups of a commit is freed after the commit. Few commits reach this size, at which
/// groups are cut ([`entry::CUT_BYTES`](crate::entry::CUT_BYTES)). Another buffer costs less than filling it.
const GROUPS_BYTES_KEPT: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// The state that a writer shares with its logger.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Every commit of an earlier epoch is in the stream. [`Slot::IDLE`] outside of commits.
    epoch: AtomicU64,
    /// Bytes appended. Only the writer stores it.
    appended: AtomicU64,
    /// Bytes flushed. Only the logger stores it.
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

    /// Announces a commit in epoch `current` or a later one.
    #[inline]
    fn announce(&self, current: Epoch) {
        // ORDERING: a release, since a logger may read this value in place of the idle word that preceded it.
        // The logger must see what was published before.
        self.epoch.store(current.0, Ordering::Release);
        // ORDERING: pairs with the fence in `closed`; see the module comment.
        fence(Ordering::SeqCst);
    }

    /// Ends a commit whose entries are in the stream.
    #[inline]
    fn leave(&self) {
        // ORDERING: pairs with the acquire in `closed`: a logger that finds the slot idle sees its entries.
        self.epoch.store(Slot::IDLE, Ordering::Release);
    }

    /// The newest epoch in which none of these writers can still append. `current` was read just before. All
    /// entries up to the returned epoch are in the streams.
    pub(crate) fn closed<'a>(current: Epoch, slots: impl Iterator<Item = &'a Slot>) -> Epoch {
        // ORDERING: pairs with the fence in `announce`; see the module comment.
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

/// Appends the commits of one worker. A worker slot has one writer, which the slot's lessee uses.
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

    /// Waits while the writer is too far ahead of the disk, at most [`LogOptions::backlog_wait_max`]. Called before a
    /// transaction begins, when it holds nothing that other transactions wait for. The backlog does not grow before the
    /// transaction commits. Does not wait if waiting cannot help; [`Writer::begin`] then returns the reason.
    ///
    /// [`LogOptions::backlog_wait_max`]: crate::LogOptions::backlog_wait_max
    #[inline]
    pub fn wait_for_disk(&self) {
        if self.is_ahead() {
            self.wait_while_ahead();
        }
    }

    /// Announces a commit before it reads its epoch. `current` is the current epoch or an earlier one. No epoch
    /// from `current` on becomes durable before [`Writer::end`]. Never waits, since the committing transaction
    /// may hold locks; [`Writer::wait_for_disk`] waits beforehand.
    ///
    /// # Errors
    /// Nothing was announced on an error. [`LogError::Stopped`] after a failure of the log,
    /// [`LogError::Closed`] after closing, and [`LogError::Full`] while the disk is full. [`LogError::Backlogged`] when
    /// this writer is too far ahead of the disk.
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

    /// As [`Writer::begin`], but never refuses: for entries that belong to an accepted commit.
    pub fn begin_regardless(&mut self, current: Epoch) {
        self.shared.slots[self.slot].announce(current);
        self.begun = true;
    }

    /// The buffer into which the groups of the commit are encoded ([`crate::entry::GroupWriter`]). It is empty
    /// after `begin` and `append`.
    #[inline]
    pub fn groups(&mut self) -> &mut Vec<u8> {
        &mut self.groups
    }

    /// Hands the encoded groups to the logger. Never waits and never fails, since the commit has happened.
    ///
    /// # Panics
    /// If called outside of `begin` and `end`.
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

    /// Frees memory that a burst needed. Called after a time without writes.
    pub fn rest(&mut self) {
        self.producer.rest();
    }

    /// Ends the commit, which has appended all its entries or has aborted.
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
            // The commit may have taken effect in memory without being in the log. No later commit may become durable.
            self.shared.stop("a commit panicked before its writes were in the log: open the database again");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model;
