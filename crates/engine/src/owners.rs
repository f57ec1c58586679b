//! Calls on the threads that own their partitions: a queue for each thread of an executor.
//!
//! Partition `p` belongs to thread `p mod n`. A call in several partitions goes to the thread of the lowest. The
//! rows are in the cache there, which is the only reason: each partition has a lock, and a call may run on any
//! thread. This module runs no call.
//!
//! 1. *Calls and shared work take turns by age.* A thread begins no call while older work waits in the shared
//!    queue, and takes no shared work while it has an older call. So neither is overtaken by the other, and work
//!    that runs by itself can wait for older calls.
//! 2. *Callers and owner meet once for many calls.* Callers add to the inbox. An owner without calls takes all
//!    that the inbox has.
//! 3. *No thread is woken that is awake.* A thread that goes to sleep looks into its inbox, and notes under the
//!    inbox's lock that it sleeps.
//! 4. *An owner that is held up does not hold up other partitions.* When a thread has begun nothing for [`STALL`],
//!    others begin the calls that wait for it, one at a time. Calls in partitions of the call that runs there
//!    stay: they would wait for its lock as well. Idle threads look after that time. The watcher among them
//!    ([`Sleepers`]) sleeps no longer than that while calls wait for a thread that is awake. Busy threads look
//!    each [`LOOK`] calls. A thread that makes progress keeps its calls, and the lines of its partitions.
//!
//! Locks are taken in the order: the shared queue of the executor, the owner's calls, its inbox, the stage of a call.
//! No thread waits for anything else while it holds one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Thread};
use seriatim_base::{CacheAligned, Sleepers};
use seriatim_txn::PartitionSet;

use crate::work_queue;

/// A thread that has begun nothing for so long is held up: the time of a hundred calls, or twenty times what it
/// takes to wake a thread.
pub(crate) const STALL: Duration = Duration::from_millis(1);

/// Calls that a busy thread begins between two looks at the others: half a millisecond of the shortest calls that
/// were measured.
pub(crate) const LOOK: u32 = 64;

/// There is no shared work.
const NONE: u64 = u64::MAX;

/// A call that waits.
struct Call<W> {
    work: W,
    partitions: PartitionSet,
    /// The number of the last shared work that came before it.
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
    /// Calls that it has taken from the inbox and not begun.
    calls: CacheAligned<Mutex<VecDeque<Call<W>>>>,
    /// The count of calls and works that it has begun. Written by the owner.
    begun: CacheAligned<AtomicU64>,
    /// The partitions of the one that it began last. Written by the owner.
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

/// What a thread has seen of each other: how many works it had begun, and when that number was new.
pub(crate) struct Seen {
    of: Vec<(u64, Instant)>,
    until_look: u32,
}

pub(crate) struct Owners<W> {
    owners: Box<[Owner<W>]>,
    /// The number of the first shared work that waits, and of the last that came. Written under the lock of the shared
    /// queue.
    first: CacheAligned<AtomicU64>,
    last: AtomicU64,
    sleepers: Sleepers,
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
            sleepers: Sleepers::default(),
        }
    }

    /// What a thread that starts has seen of the others.
    pub(crate) fn seen(&self) -> Seen {
        let now = Instant::now();
        Seen { of: self.owners.iter().map(|_| (NONE, now)).collect(), until_look: LOOK }
    }

    /// The thread that runs calls in these partitions. `None`: no partitions, or all because they are not known.
    pub(crate) fn thread_of(&self, partitions: PartitionSet) -> Option<usize> {
        if partitions.is_all() {
            return None;
        }
        partitions.first().map(|partition| partition % self.owners.len())
    }

    /// Notes what waits in the shared queue: the number of the first, if there is one, and of the last that came.
    /// Called under its lock.
    pub(crate) fn shared(&self, first: Option<u64>, last: u64) {
        self.first.store(first.unwrap_or(NONE), Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `push`: a caller that reads this number, and the thread that takes its
        // call, see `first`.
        self.last.store(last, Ordering::Release);
    }

    /// Whether shared work waits while threads sleep.
    // ORDERING: a thread that was woken for the shared work reads what its waker had seen under the lock of the
    // shared queue: the work, and all sleepers that the waker could have woken, as they are counted under that lock.
    pub(crate) fn neglects_shared(&self) -> bool {
        self.first.load(Ordering::Relaxed) != NONE && self.sleepers.are_any()
    }

    /// Gives a call to a thread. Whether the caller has to wake a thread to watch: [`Owners::appoint`].
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
            None => self.sleepers.lack_watcher(),
        }
    }

    /// Makes a thread that sleeps, and that the caller wakes, the watcher. `false`: there is one.
    pub(crate) fn appoint(&self, thread: usize) -> bool {
        self.sleepers.appoint(thread)
    }

    /// What the thread begins next. A call counts as begun.
    pub(crate) fn next(&self, at: usize) -> Next<W> {
        // ORDERING: read before the own calls: a call that is older than this work is found there. `push` read the
        // number of the work, and the locks order `push` before this thread.
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

    /// The thread begins a call or work in these partitions, as far as they are known.
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

    /// A call that waits for this owner and is in none of the partitions in which the owner runs one.
    fn free_call(&self, owner: &Owner<W>) -> Option<Call<W>> {
        let first = self.first.load(Ordering::Acquire);
        let runs = PartitionSet::from_bits(owner.runs.load(Ordering::Relaxed));
        let is_free = |call: &Call<W>| call.after < first && !call.partitions.meets(runs);
        let (mut calls, mut inbox) = (lock(&owner.calls), lock(&owner.inbox));
        let queues = [&mut *calls, &mut inbox.calls];
        queues.into_iter().find_map(|queue| queue.remove(queue.iter().position(is_free)?))
    }

    /// Removes the calls that `is_wanted` picks.
    pub(crate) fn remove(&self, is_wanted: impl Fn(&W) -> bool) -> Vec<W> {
        let mut removed = Vec::new();
        for owner in &self.owners {
            let (mut calls, mut inbox) = (lock(&owner.calls), lock(&owner.inbox));
            for queue in [&mut *calls, &mut inbox.calls] {
                removed
                    .extend(work_queue::remove(queue, |call| is_wanted(&call.work)).into_iter().map(|call| call.work));
            }
        }
        removed
    }

    /// Whether calls wait for this thread.
    pub(crate) fn has(&self, at: usize) -> bool {
        let owner = &self.owners[at];
        let calls = lock(&owner.calls);
        !calls.is_empty() || !lock(&owner.inbox).calls.is_empty()
    }

    /// The thread goes to sleep, for at most the time in the answer if there is one. `None`: it has calls, and does
    /// not sleep. Called under the lock of the shared queue, where the thread is listed as idle: one that is listed is
    /// counted.
    pub(crate) fn lie_down(&self, at: usize) -> Option<Option<Duration>> {
        let owner = &self.owners[at];
        let calls = lock(&owner.calls);
        let mut inbox = lock(&owner.inbox);
        if !calls.is_empty() || !inbox.calls.is_empty() {
            return None;
        }
        inbox.asleep = Some(thread::current());
        drop((calls, inbox));
        let watches = self.sleepers.lie_down(at)
            && (0..self.owners.len()).any(|other| other != at && self.has(other))
            && self.appoint(at);
        Some(watches.then_some(STALL))
    }

    /// The thread has slept.
    pub(crate) fn get_up(&self, at: usize) {
        self.sleepers.get_up();
        lock(&self.owners[at].inbox).asleep = None;
    }

    /// The thread, which is awake, has found work: it does not watch any more. Whether the caller has to appoint
    /// another.
    pub(crate) fn resign(&self, at: usize) -> bool {
        self.sleepers.resign(at)
    }
}

#[cfg(test)]
mod tests;
