//! A worker's part of the memory: its free blocks, its garbage, its presence.
//!
//! Rules for reads of a worker through shared references:
//! 1. Only while online. A reference loaded while online stays good until the worker goes offline.
//! 2. Memory is unlinked before it is retired: a worker that comes online afterwards cannot reach it. A kept
//!    version can be reached by a worker that comes online when the log has stopped before its successor was
//!    durable. Then it is never freed.
//! 3. Memory is retired once, or released once, with the bytes it was allocated with.

use crate::arena::Arena;
use crate::class::{Class, SMALL_MAX};
use crate::garbage::{Garbage, Retired};
use crate::heap::Heap;
use crate::memory::Shared;
use crate::poison;
use crate::quiescence::{Count, Presence};
use crate::system::PAGE_MAX;
use crate::{CountedVec, Deferred, OutOfMemory};
use seriatim_base::{DurablePoint, Epoch, WorkerId};
use seriatim_htm::{Outside, assert_outside};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A worker's part of a [`Memory`](crate::Memory). It can move to another thread, but is used by one at a time.
///
/// Dropping it goes offline and gives slot, free blocks and garbage to the workers that remain. Deferred items
/// are handed over too: they come out of another worker's [`Local::ready`], or of none if this was the last.
#[derive(Debug)]
pub struct Local {
    presence: NonNull<Presence>,
    count: Count,
    account: Account,
    worker: usize,
    shared: Arc<Shared>,
    garbage: Garbage,
    arena: Arena,
    /// Bytes that [`Local::retire`] was given so far.
    retired: i64,
    /// Records that this worker unlinked from trees since it last merged leaves.
    pub unlinked: u32,
}

// SAFETY: `presence` and `account` point into `shared`; free blocks and garbage are owned and tied to no
// thread. Not `Sync`.
unsafe impl Send for Local {}

/// Proof that a worker is online, for as long as the borrow lasts (rule 1).
#[derive(Clone, Copy, Debug)]
pub struct Pinned<'a>(PhantomData<&'a Local>);

impl Local {
    pub(crate) fn new(shared: Arc<Shared>, worker: usize) -> Local {
        shared.counts.admit(worker);
        let presence = shared.counts.presence(worker);
        let count = presence.resume();
        assert!(!count.is_online(), "a free slot is offline");
        Local {
            presence: NonNull::from(presence),
            count,
            account: Account::resume(&shared.slots[worker].in_use),
            worker,
            garbage: Garbage::new(worker, Arc::clone(&shared)),
            arena: Arena::new(),
            retired: 0,
            unlinked: 0,
            shared,
        }
    }

    /// Bytes that this worker has allocated and neither released nor retired, but for versions
    /// ([`Local::retire_version`]). Only differences mean something, between two points of one transaction.
    #[inline]
    pub fn live_bytes(&self) -> i64 {
        self.account.in_use - self.retired
    }

    /// A list for the notes of this worker's transactions. Room for `room_min` items is never returned.
    pub fn counted<T>(&self, room_min: usize) -> CountedVec<T> {
        CountedVec::new(Arc::clone(&self.shared), room_min)
    }

    /// Which worker this is: its slot, which no other worker has at the same time.
    pub fn worker(&self) -> WorkerId {
        WorkerId(self.worker as u16)
    }

    #[inline]
    fn presence(&self) -> &Presence {
        // SAFETY: it lies in a boxed slice of `shared`, which we keep alive and which is never changed.
        unsafe { self.presence.as_ref() }
    }

    /// Goes online: memory that it finds from now on stays allocated until [`Local::leave`].
    ///
    /// # Panics
    /// If it is online.
    #[inline]
    pub fn enter(&mut self) {
        assert_outside();
        assert!(!self.count.is_online(), "enter() of a worker that is online");
        self.count = self.presence().enter(self.count);
    }

    /// Goes offline: it holds no reference any more. Frees garbage whose grace period has passed and versions
    /// that are due, a bounded amount.
    ///
    /// # Panics
    /// If it is offline.
    #[inline]
    pub fn leave(&mut self) {
        assert!(self.count.is_online(), "leave() of a worker that is offline");
        self.count = self.presence().leave(self.count);
        if self.garbage.held() > 0 {
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        assert_outside();
        let Local { shared, garbage, arena, account, .. } = self;
        shared.inherit(|orphans| garbage.adopt(orphans));
        // SAFETY: rules 2 and 3 by the contract of `retire`; the grace period passed.
        garbage.end(&shared.counts, shared.kept_until(), |item| unsafe { release(&shared.heap, arena, account, item) });
    }

    /// Frees everything whose grace period has passed, and all versions that are due: its own, and those of
    /// workers that are gone. If memory is scarce, or much of it free, it leaves its free blocks to other
    /// workers. For a worker that is about to idle, and for maintenance.
    ///
    /// # Panics
    /// If it is online.
    pub fn collect(&mut self) {
        assert_outside();
        assert!(!self.count.is_online(), "collect() of a worker that is online");
        let Local { shared, garbage, arena, account, .. } = self;
        shared.inherit(|orphans| garbage.adopt(orphans));
        // SAFETY: as in `tidy`.
        garbage.collect(&shared.counts, shared.kept_until(), |item| unsafe {
            release(&shared.heap, arena, account, item)
        });
        if shared.heap.wants_blocks() {
            arena.surrender(&shared.heap);
        }
    }

    /// Whether the limit was ever reached: then memory is worth some work.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.shared.heap.is_scarce()
    }

    /// Whether it is between [`Local::enter`] and [`Local::leave`].
    #[inline]
    pub fn is_online(&self) -> bool {
        self.count.is_online()
    }

    /// Proof of being online.
    ///
    /// # Panics
    /// If it is offline.
    #[inline]
    pub fn pinned(&self) -> Pinned<'_> {
        assert!(self.count.is_online(), "pinned() of a worker that is offline");
        Pinned(PhantomData)
    }

    /// Retired and deferred items that wait: for a grace period, or for the durable point.
    pub fn waiting(&self) -> usize {
        self.garbage.held()
    }

    /// Allocates `bytes`: touched, aligned to 16 (to 64 if `bytes` is a multiple of 64), with arbitrary contents.
    ///
    /// # Errors
    /// At the limit, or when the operating system refuses.
    #[inline]
    pub fn allocate(&mut self, outside: &mut Outside, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let _ = outside;
        assert_outside();
        if bytes > SMALL_MAX {
            return self.allocate_large(bytes);
        }
        let class = Class::of(bytes);
        let start = match self.arena.pop(class) {
            Some(start) => start,
            None => self.arena.refill(&self.shared.heap, class)?,
        };
        self.account.add(class.bytes() as i64);
        // SAFETY: a block of the class, ours alone.
        unsafe { poison::allocated(start, class) };
        Ok(start)
    }

    #[cold]
    fn allocate_large(&mut self, bytes: usize) -> Result<NonNull<u8>, OutOfMemory> {
        let heap = &self.shared.heap;
        let (start, taken) = heap.take_large(bytes).or_else(|OutOfMemory| {
            self.arena.surrender(heap);
            heap.reclaim_at_limit();
            heap.take_large(bytes)
        })?;
        self.account.add(taken as i64);
        Ok(start)
    }

    /// Gives memory back at once.
    ///
    /// # Safety
    /// `start` came from an allocation of `bytes` of the same [`Memory`](crate::Memory), by any worker. No
    /// other thread can reach it, and it was not released before (rule 3).
    #[inline]
    pub unsafe fn release(&mut self, start: NonNull<u8>, bytes: usize) {
        assert_outside();
        let Local { shared, arena, account, .. } = self;
        // SAFETY: as the caller promises.
        unsafe { release(&shared.heap, arena, account, Retired { start, bytes }) };
    }

    /// Gives memory back after a grace period. Its own worker may use it until it goes offline.
    ///
    /// # Safety
    /// `start` came from an allocation of `bytes` of the same [`Memory`](crate::Memory), by any worker, and
    /// was not given back before (rule 3). It is unlinked: a worker that comes online from now on cannot
    /// reach it (rule 2).
    #[inline]
    pub unsafe fn retire(&mut self, start: NonNull<u8>, bytes: usize) {
        assert_outside();
        self.retired += allocated_bytes(bytes) as i64;
        self.garbage.retire(&self.shared.counts, Retired { start, bytes });
    }

    /// Retires a version that a commit of `epoch` replaced. It is freed after a grace period. Where versions
    /// are kept ([`Memory::keep_versions`](crate::Memory::keep_versions),
    /// [`Memory::keep_snapshots`](crate::Memory::keep_snapshots)), it is not freed before that epoch is
    /// durable, and before no snapshot that needs it is read. Epoch 0 replaced nothing: as [`Local::retire`].
    ///
    /// # Safety
    /// As [`Local::retire`], with an exception where versions are kept. Workers that come online later may then reach
    /// it in three cases. They found the durable point final and below `epoch`, or they hold it below
    /// ([`DurablePoint::hold`]). Or they read a snapshot for which it is kept.
    #[inline]
    pub unsafe fn retire_version(&mut self, start: NonNull<u8>, bytes: usize, epoch: Epoch) {
        assert_outside();
        let item = Retired { start, bytes };
        match epoch {
            Epoch(0) => self.garbage.retire(&self.shared.counts, item),
            epoch => self.garbage.retire_version(&self.shared.counts, item, epoch),
        }
    }

    /// An epoch such that no worker can reach versions that commits of earlier epochs replaced, now or later.
    /// The exception is that of [`Local::retire_version`]: where versions are kept they also wait for the
    /// durable point.
    #[inline]
    pub fn horizon(&self) -> Epoch {
        let released = self.shared.kept_until();
        self.shared.horizon.epoch().min(Epoch(released.0.saturating_add(1)))
    }

    /// The epoch up to which replaced versions are no longer kept beyond their grace period. `None` where nothing is
    /// kept for the log or for snapshots.
    #[inline]
    pub fn released(&self) -> Option<Epoch> {
        self.shared.released()
    }

    /// Whether a worker may still read a version that a commit of this epoch replaced or deleted, although its grace
    /// period has passed. The worker is online, or comes online later. This is possible only with readers of the past
    /// ([`Memory::keep_for`](crate::Memory::keep_for)).
    #[inline]
    pub fn may_be_read(&self, epoch: Epoch) -> bool {
        self.shared.past_reads.get().is_some() && epoch >= self.shared.horizon.epoch()
    }

    /// The point until which versions are kept for the log.
    #[inline]
    pub fn kept_until(&self) -> Option<&DurablePoint> {
        self.shared.kept_until.get().map(|point| &**point)
    }

    /// Has `item` come out of [`Local::ready`] after a grace period: once every worker that is online now went offline,
    /// including this one.
    pub fn defer(&mut self, item: Deferred) {
        assert_outside();
        self.garbage.defer(&self.shared.counts, item);
    }

    /// Whether [`Local::ready`] may have something to do.
    #[inline(always)]
    pub fn has_ready(&self) -> bool {
        self.garbage.has_ready()
    }

    /// A deferred item whose grace period has passed, if there is one. Items become ready in [`Local::leave`]
    /// and [`Local::collect`].
    #[inline]
    pub fn ready(&mut self) -> Option<Deferred> {
        self.garbage.ready()
    }
}

/// The size of an allocation of this many bytes, as [`Memory::in_use_bytes`](crate::Memory::in_use_bytes)
/// counts it.
#[inline]
pub const fn allocated_bytes(bytes: usize) -> usize {
    if bytes > SMALL_MAX { bytes.next_multiple_of(PAGE_MAX) } else { Class::of(bytes).bytes() }
}

/// The bytes in use by a worker's account: a plain number, mirrored for readers in the worker's slot.
#[derive(Debug)]
struct Account {
    in_use: i64,
    mirror: NonNull<AtomicI64>,
}

impl Account {
    /// Continues where the slot's last worker stopped. The slot must outlive the account.
    fn resume(mirror: &AtomicI64) -> Account {
        Account { in_use: mirror.load(Ordering::Relaxed), mirror: NonNull::from(mirror) }
    }

    #[inline]
    fn add(&mut self, bytes: i64) {
        self.in_use += bytes;
        // SAFETY: as for `Local::presence`. No other thread writes it.
        unsafe { self.mirror.as_ref() }.store(self.in_use, Ordering::Relaxed);
    }
}

/// # Safety
/// As [`Local::release`].
#[inline]
unsafe fn release(heap: &Heap, arena: &mut Arena, account: &mut Account, item: Retired) {
    let Retired { start, bytes } = item;
    if bytes > SMALL_MAX {
        return account.add(-(heap.release_large(start, bytes) as i64));
    }
    let class = Class::of(bytes);
    account.add(-(class.bytes() as i64));
    // SAFETY: a block of the class (rule 3) that no other thread can reach.
    unsafe {
        poison::released(start, class);
        arena.push(heap, class, start);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if self.count.is_online() {
            self.leave();
        }
        self.collect();
        let Local { shared, garbage, arena, worker, .. } = self;
        shared.bequeath(|orphans| garbage.surrender(&shared.counts, orphans));
        arena.surrender(&shared.heap);
        shared.vacate(*worker);
    }
}
