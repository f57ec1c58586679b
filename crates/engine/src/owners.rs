//! Calls on the threads that own their partitions: a queue for each thread of an executor.
//!
//! Partition `p` belongs to thread `p mod n`. A call in several partitions goes to the thread of the lowest. The
//! rows are in the cache there, which is the only reason: each partition has a lock, and a call may run on any
//! thread. This module runs no call.
//!
//! 1. *Calls and shared work begin by age.* A thread begins no call while older work waits in the shared queue. It
//!    takes no shared work while it has an older call. So neither overtakes the other, and a closure can wait for older
//!    calls.
//! 2. *Callers and owner share a lock once for many calls.* Callers add to the inbox. An owner without calls takes all
//!    calls of the inbox.
//! 3. *Only sleeping threads are woken.* Before it sleeps, a thread checks its inbox, and notes under the inbox's lock
//!    that it sleeps.
//! 4. *An owner that is held up does not hold up other partitions.* When a thread has begun nothing for [`STALL`],
//!    other threads begin its waiting calls, one at a time. Calls in partitions of its running call stay, as they would
//!    wait for the same lock. Idle threads check after [`STALL`]: the watcher among them ([`Sleepers`]) sleeps no
//!    longer while calls wait for a thread that is awake. Busy threads check each [`LOOK`] calls. A thread that makes
//!    progress keeps its calls, and the cache lines of its partitions.
//! 5. *A call that was taken over does not hold up its owner.* The owner begins no call in its partitions until it has
//!    ended, and is woken then. So it does not wait for their locks while it has other calls.
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

/// A thread that has begun nothing for this long is held up. It is the time of a hundred calls, or of twenty wake-ups.
pub(crate) const STALL: Duration = Duration::from_millis(1);

/// Calls that a busy thread begins between two checks of the others: half a millisecond of the shortest measured calls.
pub(crate) const LOOK: u32 = 64;

/// There is no shared work.
const NONE: u64 = u64::MAX;

/// A call that waits.
struct Call<W> {
    work: W,
    partitions: PartitionSet,
    /// The number of the last shared work that arrived before it.
    after: u64,
}

struct Inbox<W> {
    calls: VecDeque<Call<W>>,
    /// The owner, if it sleeps.
    asleep: Option<Thread>,
}

/// The calls that an owner took from its inbox and has not begun.
struct Taken<W> {
    calls: VecDeque<Call<W>>,
    /// The partitions of its calls that other threads run.
    lent: PartitionSet,
}

impl<W> Taken<W> {
    /// The first call, older than this shared work, in partitions that are not lent.
    fn pop(&mut self, inbox: &Mutex<Inbox<W>>, first: u64) -> Option<Call<W>> {
        if self.lent.is_empty() {
            if self.calls.is_empty() {
                std::mem::swap(&mut self.calls, &mut lock(inbox).calls);
            }
            return self.calls.pop_front_if(|call| call.after < first);
        }
        self.calls.append(&mut lock(inbox).calls);
        let found = self.calls.iter().position(|call| call.after < first && !call.partitions.meets(self.lent))?;
        self.calls.remove(found)
    }

    /// Whether one of the calls, or of these, is in partitions that are not lent.
    fn has_free(&self, inbox: &Inbox<W>) -> bool {
        self.calls.iter().chain(&inbox.calls).any(|call| !call.partitions.meets(self.lent))
    }
}

/// A thread with partitions.
struct Owner<W> {
    inbox: CacheAligned<Mutex<Inbox<W>>>,
    taken: CacheAligned<Mutex<Taken<W>>>,
    /// The number of calls and shared work begun. Written by the owner.
    begun: CacheAligned<AtomicU64>,
    /// The partitions of the call that it began last. Written by the owner.
    runs: AtomicU64,
}

/// The next action of a thread.
pub(crate) enum Next<W> {
    /// One of its own calls.
    Call(W),
    /// The shared work with this number, if it is still there.
    Shared(u64),
    Nothing,
}

/// What a thread knows of the others.
pub(crate) struct Seen {
    /// Of each other thread: its `begun`, and when that number was new.
    of: Vec<(u64, Instant)>,
    until_look: u32,
    /// The owner of the call that this thread has taken over and runs, and the call's partitions.
    helps: Option<(usize, PartitionSet)>,
}

pub(crate) struct Owners<W> {
    owners: Box<[Owner<W>]>,
    /// The number of the first waiting shared work, and of the last that arrived. Written under the lock of the shared
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
            taken: CacheAligned(Mutex::new(Taken { calls: VecDeque::new(), lent: PartitionSet::NONE })),
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

    /// The initial view that a thread has of the others.
    pub(crate) fn seen(&self) -> Seen {
        let now = Instant::now();
        Seen { of: self.owners.iter().map(|_| (NONE, now)).collect(), until_look: LOOK, helps: None }
    }

    /// The thread that runs calls in these partitions. `None`: no partitions, or all because they are not known.
    pub(crate) fn thread_of(&self, partitions: PartitionSet) -> Option<usize> {
        if partitions.is_all() {
            return None;
        }
        partitions.first().map(|partition| partition % self.owners.len())
    }

    /// Notes the number of the first waiting shared work, if there is any, and of the last that arrived. Called under
    /// the lock of the shared queue.
    pub(crate) fn shared(&self, first: Option<u64>, last: u64) {
        self.first.store(first.unwrap_or(NONE), Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `push`: a caller that reads this number, and the thread that takes its
        // call, see `first`.
        self.last.store(last, Ordering::Release);
    }

    /// Whether shared work waits while threads sleep.
    // ORDERING: a thread that was woken for shared work sees what its waker saw under the lock of the shared queue.
    // That is the work, and all sleepers that the waker could have woken. Sleepers are counted under that lock.
    pub(crate) fn neglects_shared(&self) -> bool {
        self.first.load(Ordering::Relaxed) != NONE && self.sleepers.are_any()
    }

    /// Gives a call to a thread. Returns whether the caller must wake a thread to watch ([`Owners::appoint`]).
    pub(crate) fn push(&self, thread: usize, work: W, partitions: PartitionSet) -> bool {
        // ORDERING: pairs with the release in `shared`.
        let after = self.last.load(Ordering::Acquire);
        let mut inbox = lock(&self.owners[thread].inbox);
        inbox.calls.push_back(Call { work, partitions, after });
        let asleep = inbox.asleep.take();
        drop(inbox);
        match asleep {
            Some(sleeper) => {
                sleeper.unpark();
                false
            }
            None => self.sleepers.lack_watcher(),
        }
    }

    /// Makes a sleeping thread, which the caller then wakes, the watcher. Returns `false` if there is one.
    pub(crate) fn appoint(&self, thread: usize) -> bool {
        self.sleepers.appoint(thread)
    }

    /// The next action of the thread. A returned call counts as begun.
    pub(crate) fn next(&self, at: usize) -> Next<W> {
        // ORDERING: read before the own calls, so that a call older than this work is found there. `push` read the
        // number of the work, and the locks order `push` before this thread.
        let first = self.first.load(Ordering::Acquire);
        let owner = &self.owners[at];
        let call = lock(&owner.taken).pop(&owner.inbox, first);
        match call {
            Some(call) => {
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

    /// Rule 4, for a busy thread: whether it must check the others now.
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
                seen.helps = Some((other, call.partitions));
                self.began(at, call.partitions);
                return Some(call.work);
            }
        }
        None
    }

    /// A waiting call of this owner that shares no partition with its running calls. Its partitions are lent.
    fn free_call(&self, owner: &Owner<W>) -> Option<Call<W>> {
        let first = self.first.load(Ordering::Acquire);
        let (mut taken, mut inbox) = (lock(&owner.taken), lock(&owner.inbox));
        let busy = PartitionSet::from_bits(owner.runs.load(Ordering::Relaxed)).union(taken.lent);
        let is_free = |call: &Call<W>| call.after < first && !call.partitions.meets(busy);
        let queues = [&mut taken.calls, &mut inbox.calls];
        let call = queues.into_iter().find_map(|queue| queue.remove(queue.iter().position(is_free)?))?;
        taken.lent = taken.lent.union(call.partitions);
        Some(call)
    }

    /// Rule 5: the call of this thread has ended. If it was taken over, its owner may begin others in its partitions.
    pub(crate) fn ended(&self, seen: &mut Seen) {
        let Some((other, partitions)) = seen.helps.take() else { return };
        let owner = &self.owners[other];
        let mut taken = lock(&owner.taken);
        taken.lent = taken.lent.without(partitions);
        let mut inbox = lock(&owner.inbox);
        let asleep = taken.has_free(&inbox).then(|| inbox.asleep.take()).flatten();
        drop((inbox, taken));
        if let Some(owner) = asleep {
            owner.unpark();
        }
    }

    /// Removes the calls that `is_wanted` picks.
    pub(crate) fn remove(&self, is_wanted: impl Fn(&W) -> bool) -> Vec<W> {
        let mut removed = Vec::new();
        for owner in &self.owners {
            let (mut taken, mut inbox) = (lock(&owner.taken), lock(&owner.inbox));
            for queue in [&mut taken.calls, &mut inbox.calls] {
                removed
                    .extend(work_queue::remove(queue, |call| is_wanted(&call.work)).into_iter().map(|call| call.work));
            }
        }
        removed
    }

    /// Whether calls wait for this thread.
    pub(crate) fn has(&self, at: usize) -> bool {
        let owner = &self.owners[at];
        let taken = lock(&owner.taken);
        !taken.calls.is_empty() || !lock(&owner.inbox).calls.is_empty()
    }

    /// Prepares the thread to sleep, for at most the returned time if there is one. Returns `None` if it has calls to
    /// begin and must not sleep. Called under the lock of the shared queue, so that each thread listed as idle is
    /// counted.
    pub(crate) fn prepare_to_park(&self, at: usize) -> Option<Option<Duration>> {
        let owner = &self.owners[at];
        let taken = lock(&owner.taken);
        let mut inbox = lock(&owner.inbox);
        if taken.has_free(&inbox) {
            return None;
        }
        inbox.asleep = Some(thread::current());
        drop((inbox, taken));
        let watches = self.sleepers.prepare_to_park(at)
            && (0..self.owners.len()).any(|other| other != at && self.has(other))
            && self.appoint(at);
        Some(watches.then_some(STALL))
    }

    /// Called after the sleep.
    pub(crate) fn unparked(&self, at: usize) {
        self.sleepers.unparked();
        lock(&self.owners[at].inbox).asleep = None;
    }

    /// The thread has found work and no longer watches. Returns whether the caller must appoint another.
    pub(crate) fn resign(&self, at: usize) -> bool {
        self.sleepers.resign(at)
    }
}

#[cfg(test)]
mod tests;
