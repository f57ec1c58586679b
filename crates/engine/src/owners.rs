//! Calls on the threads that own their partitions: a queue for each thread of an executor.
//!
//! Partition `p` belongs to thread `p mod n`; a call in several goes to the thread of its lowest. That is where its rows are in the cache,
//! and nothing more: who may touch a partition is decided by its lock, on whatever thread a call runs. This module executes nothing.
//!
//! 1. *Calls and shared work take turns by age.* No thread begins a call while work that came before it waits in the shared queue, and none
//!    takes shared work while it has a call that came before. So neither is overtaken by the other, and what runs by itself can wait for what
//!    came before it.
//! 2. *Callers and owner meet once for many calls.* Callers add to the inbox; the owner, when it has nothing, takes all that is there.
//! 3. *Nobody is woken who is awake.* Who goes to sleep looks into its inbox, and says under the inbox's lock that it sleeps.
//! 4. *An owner that is held up does not hold up other partitions.* Where a thread has begun nothing for [`STALL`], others begin what waits there, one
//!    call at a time, except calls in partitions of the one that holds it up: they would wait for its lock as well. Threads that are idle look after
//!    that time; one of them, the watcher, sleeps no longer, while calls wait for a thread that is awake. Threads that are busy look each [`LOOK`]
//!    calls. Nobody takes a call away from a thread that goes on: its partitions' lines would move.
//!
//! Locks are taken in the order: the owner's calls, its inbox. Nothing is waited for under them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::CacheAligned;
use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Thread};
use seriatim_txn::PartitionSet;

/// What a thread has begun nothing for to be held up: a hundred calls, or twenty times what it takes to wake a thread.
pub(crate) const STALL: Duration = Duration::from_millis(1);

/// Calls that a busy thread begins between two looks at the others: at most half a millisecond of such as are measured here.
pub(crate) const LOOK: u32 = 64;

/// There is no shared work, there is no watcher.
const NONE: u64 = u64::MAX;

/// A call that waits.
struct Call<W> {
    work: W,
    partitions: PartitionSet,
    /// Shared work that came before it.
    after: u64,
}

struct Inbox<W> {
    calls: VecDeque<Call<W>>,
    /// The owner, if it sleeps.
    asleep: Option<Thread>,
}

/// A thread with partitions.
struct Owner<W> {
    inbox: CacheAligned<Mutex<Inbox<W>>>,
    /// What it has taken from there, and not begun.
    calls: CacheAligned<Mutex<VecDeque<Call<W>>>>,
    /// Works that it has begun. Written by itself.
    begun: CacheAligned<AtomicU64>,
    /// The partitions of that which it began last. Written by itself.
    runs: AtomicU64,
}

/// What a thread begins next.
pub(crate) enum Next<W> {
    /// One of its own calls.
    Call(W),
    /// The shared work with this number, if it is still there.
    Shared(u64),
    Nothing,
}

/// What a thread has seen of the others: how many works each had begun, and when that was new.
pub(crate) struct Seen {
    of: Vec<(u64, Instant)>,
    until_look: u32,
}

pub(crate) struct Owners<W> {
    owners: Box<[Owner<W>]>,
    /// The number of the first shared work that waits, and of the last that came. Written under the lock of the shared queue.
    first: CacheAligned<AtomicU64>,
    last: AtomicU64,
    /// Threads that sleep.
    sleepers: CacheAligned<AtomicUsize>,
    /// The thread that looks for owners that are held up while it is idle, or is being woken for it.
    watcher: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W> Owners<W> {
    pub(crate) fn new(threads: usize) -> Owners<W> {
        let owner = |_| Owner {
            inbox: CacheAligned(Mutex::new(Inbox { calls: VecDeque::new(), asleep: None })),
            calls: CacheAligned(Mutex::default()),
            begun: CacheAligned::default(),
            runs: AtomicU64::new(0),
        };
        Owners {
            owners: (0..threads).map(owner).collect(),
            first: CacheAligned(AtomicU64::new(NONE)),
            last: AtomicU64::new(0),
            sleepers: CacheAligned::default(),
            watcher: AtomicU64::new(NONE),
        }
    }

    /// A thread's own, when it begins.
    pub(crate) fn seen(&self) -> Seen {
        let now = Instant::now();
        Seen { of: self.owners.iter().map(|_| (NONE, now)).collect(), until_look: LOOK }
    }

    /// The thread that calls in these partitions go to; none if they are in none, or in all because nobody knows better.
    pub(crate) fn thread_of(&self, partitions: PartitionSet) -> Option<usize> {
        if partitions.is_all() {
            return None;
        }
        partitions.first().map(|partition| partition % self.owners.len())
    }

    /// Says what waits in the shared queue: the number of the first, if there is one, and of the last that came. Under its lock.
    pub(crate) fn shared(&self, first: Option<u64>, last: u64) {
        self.first.store(first.unwrap_or(NONE), Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `push`: who sees this one's number, and whoever takes that one's call, sees that it waits.
        self.last.store(last, Ordering::Release);
    }

    /// Whether shared work waits while threads sleep.
    pub(crate) fn neglects_shared(&self) -> bool {
        self.first.load(Ordering::Relaxed) != NONE && self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Gives a call to a thread. Whether somebody has to be woken to watch: [`Owners::appoint`].
    pub(crate) fn push(&self, thread: usize, work: W, partitions: PartitionSet) -> bool {
        // ORDERING: pairs with the release in `shared`.
        let after = self.last.load(Ordering::Acquire);
        let mut inbox = lock(&self.owners[thread].inbox);
        inbox.calls.push_back(Call { work, partitions, after });
        let asleep = inbox.asleep.take();
        drop(inbox);
        match asleep {
            Some(owner) => {
                owner.unpark();
                false
            }
            None => self.lacks_watcher(),
        }
    }

    /// Whether threads sleep, and none of them watches.
    // ORDERING: who goes to sleep counts itself before it looks into the inboxes, under their locks. So it finds what this thread has
    // put there, or this thread finds it.
    fn lacks_watcher(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0 && self.watcher.load(Ordering::Relaxed) == NONE
    }

    /// Makes this thread, which sleeps and is to be woken, the watcher. `false`: there is one.
    pub(crate) fn appoint(&self, thread: usize) -> bool {
        self.watcher.compare_exchange(NONE, thread as u64, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// What the thread begins next. A call has begun with this.
    pub(crate) fn next(&self, at: usize) -> Next<W> {
        // ORDERING: before the own calls are looked at: one that came before this work is there. Its number came to `push`, and from
        // there here, by the locks.
        let first = self.first.load(Ordering::Acquire);
        let owner = &self.owners[at];
        let mut calls = lock(&owner.calls);
        if calls.is_empty() {
            std::mem::swap(&mut *calls, &mut lock(&owner.inbox).calls);
        }
        match calls.pop_front_if(|call| call.after < first) {
            Some(call) => {
                drop(calls);
                self.began(at, call.partitions);
                Next::Call(call.work)
            }
            None if first != NONE => Next::Shared(first),
            None => Next::Nothing,
        }
    }

    /// The thread begins something in these partitions, as far as is known.
    pub(crate) fn began(&self, at: usize, partitions: PartitionSet) {
        let owner = &self.owners[at];
        owner.runs.store(partitions.bits(), Ordering::Relaxed);
        owner.begun.store(owner.begun.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Rule 4, for a busy thread: whether it is time to look at the others.
    pub(crate) fn looks(&self, seen: &mut Seen) -> bool {
        seen.until_look -= 1;
        if seen.until_look == 0 {
            seen.until_look = LOOK;
        }
        seen.until_look == LOOK && self.owners.len() > 1
    }

    /// Rule 4: takes over a call of a thread that is held up.
    pub(crate) fn take_over(&self, at: usize, seen: &mut Seen) -> Option<W> {
        let now = Instant::now();
        for other in (1..self.owners.len()).map(|after| (at + after) % self.owners.len()) {
            let owner = &self.owners[other];
            let begun = owner.begun.load(Ordering::Relaxed);
            let (before, since) = &mut seen.of[other];
            if *before != begun {
                (*before, *since) = (begun, now);
            } else if now.since(*since) >= STALL
                && let Some(call) = self.free_call(owner)
            {
                self.began(at, call.partitions);
                return Some(call.work);
            }
        }
        None
    }

    /// A call that waits for this owner and does not need what that runs in.
    fn free_call(&self, owner: &Owner<W>) -> Option<Call<W>> {
        let first = self.first.load(Ordering::Acquire);
        let runs = PartitionSet::from_bits(owner.runs.load(Ordering::Relaxed));
        let is_free = |call: &Call<W>| call.after < first && !call.partitions.meets(runs);
        let (mut calls, mut inbox) = (lock(&owner.calls), lock(&owner.inbox));
        let queues = [&mut *calls, &mut inbox.calls];
        queues.into_iter().find_map(|queue| queue.remove(queue.iter().position(is_free)?))
    }

    /// Whether calls wait for this thread.
    pub(crate) fn has(&self, at: usize) -> bool {
        let owner = &self.owners[at];
        let calls = lock(&owner.calls);
        !calls.is_empty() || !lock(&owner.inbox).calls.is_empty()
    }

    /// The thread goes to sleep: for how long at most. `None`: it has calls.
    pub(crate) fn lie_down(&self, at: usize) -> Option<Option<Duration>> {
        let owner = &self.owners[at];
        let calls = lock(&owner.calls);
        let mut inbox = lock(&owner.inbox);
        if !calls.is_empty() || !inbox.calls.is_empty() {
            return None;
        }
        inbox.asleep = Some(thread::current());
        drop((calls, inbox));
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let _ = self.resign(at);
        let watches = self.watcher.load(Ordering::Relaxed) == NONE
            && (0..self.owners.len()).any(|other| other != at && self.has(other))
            && self.appoint(at);
        Some(watches.then_some(STALL))
    }

    /// The thread has slept.
    pub(crate) fn get_up(&self, at: usize) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        lock(&self.owners[at].inbox).asleep = None;
    }

    /// The thread has something to do: it watches no longer. Whether another that sleeps should.
    pub(crate) fn resign(&self, at: usize) -> bool {
        if self.watcher.load(Ordering::Relaxed) != at as u64 {
            return false;
        }
        self.watcher.store(NONE, Ordering::Relaxed);
        self.sleepers.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests;
