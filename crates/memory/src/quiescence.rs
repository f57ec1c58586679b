//! Grace periods from a vector of per-worker counts (DBX §5.5).
//!
//! Each worker has a count: odd while it is *online* (inside a transaction, may hold references), even while
//! it is *offline* (holds none). Coming online and going offline add one. Counts never go back, also not when
//! a slot gets a new worker.
//!
//! Garbage is unlinked first, and then *sealed*: the counts of all other workers are read, and the odd ones
//! are *awaited*. It may be freed once every awaited count has changed, by a worker that is offline itself.
//! Offline workers are not awaited (the paper awaits all workers, so that an idle thread would stall
//! reclamation for ever).
//!
//! Why it is safe. Take a worker that may hold a reference to a sealed item. It loaded the reference while
//! online. Its coming online and the sealing each hold a sequentially consistent fence, and the fences have
//! an order:
//! - (a) the seal first: then the worker's loads, which follow its fence, see the unlinking, which precedes
//!   the seal's. It did not find the item; a contradiction.
//! - (b) the worker first: then the seal reads its odd count, or a later one. A later one means that it went
//!   offline after it loaded the reference; it holds it no more. The odd one is awaited, and changes only
//!   when the worker goes offline.
//!
//! In (b) the freeing happens after the worker's last access because the count is written with release and
//! read with acquire.
//!
//! Access rules:
//! 1. A count is written by the worker of its slot only.
//! 2. `high` is raised before the worker of a new slot first comes online, and never lowered.

use crate::sync::{AtomicU64, AtomicUsize, EXCHANGE_IS_FENCE, Ordering, fence};
use seriatim_base::CacheAligned;

/// The value of a worker's count. Bit 0: online. The rest: transactions begun before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(u64);

impl Count {
    #[inline]
    pub(crate) fn is_online(self) -> bool {
        self.0 & 1 == 1
    }

    /// The count of a worker that comes online or goes offline.
    #[inline]
    #[must_use]
    fn next(self) -> Count {
        Count(self.0 + 1)
    }
}

/// The count that other workers see.
#[derive(Debug)]
pub(crate) struct Presence(CacheAligned<AtomicU64>);

impl Presence {
    fn new() -> Presence {
        Presence(CacheAligned(AtomicU64::new(0)))
    }

    /// The count of a worker that takes the slot. The taking synchronized with the worker that left it.
    pub(crate) fn resume(&self) -> Count {
        Count(self.0.load(Ordering::Acquire))
    }

    /// Comes online. Every reference loaded afterwards is safe until [`Presence::leave`].
    #[inline]
    #[must_use]
    pub(crate) fn enter(&self, count: Count) -> Count {
        self.enter_by::<EXCHANGE_IS_FENCE>(count)
    }

    /// [`Presence::enter`] by an exchange, or by a store and a fence. The model runs both.
    #[inline(always)]
    fn enter_by<const EXCHANGE: bool>(&self, count: Count) -> Count {
        let count = count.next();
        // ORDERING: the fence pairs with the one in `Counts::seal`. Where an exchange is a full fence it is
        // cheaper than a store and a fence. Release, because a seal's owner that sees this count and not the
        // even one before it must see that this worker's last transaction is over.
        if EXCHANGE {
            self.0.swap(count.0, Ordering::SeqCst);
        } else {
            self.0.store(count.0, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        count
    }

    /// A canary: comes online with a plain store.
    #[cfg(test)]
    #[allow(dead_code, reason = "the models have no use for it")]
    pub(crate) fn enter_without_a_fence(&self) {
        self.0.store(self.resume().next().0, Ordering::Release);
    }

    /// Goes offline. No reference is held any more.
    #[inline]
    #[must_use]
    pub(crate) fn leave(&self, count: Count) -> Count {
        let count = count.next();
        // ORDERING: pairs with the acquire loads in `seal` and `passed`: our accesses are over when the count
        // has changed.
        self.0.store(count.0, Ordering::Release);
        count
    }
}

/// A worker that was online at a seal, with its count then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    worker: usize,
    count: Count,
}

/// The counts of all workers.
#[derive(Debug)]
pub(crate) struct Counts {
    presences: Box<[Presence]>,
    /// Slots from here on never had a worker.
    high: AtomicUsize,
    /// A canary: seals as if every worker was offline.
    #[cfg(test)]
    pub(crate) blind: bool,
}

impl Counts {
    pub(crate) fn new(workers_max: usize) -> Counts {
        Counts {
            presences: (0..workers_max).map(|_| Presence::new()).collect(),
            high: AtomicUsize::new(0),
            #[cfg(test)]
            blind: false,
        }
    }

    pub(crate) fn presence(&self, worker: usize) -> &Presence {
        &self.presences[worker]
    }

    /// Has seals look at the slot from now on (rule 2).
    pub(crate) fn admit(&self, worker: usize) {
        // ORDERING: precedes the worker's first fence in `enter`; the load in `seal` follows that of the seal.
        self.high.fetch_max(worker + 1, Ordering::Relaxed);
    }

    /// Notes in `awaited` the workers that must go offline before memory that was unlinked until now may be freed. It
    /// is memory that `worker` unlinked, or any worker if none is given.
    pub(crate) fn seal(&self, worker: Option<usize>, awaited: &mut Vec<Awaited>) {
        awaited.clear();
        #[cfg(test)]
        if self.blind {
            return;
        }
        // ORDERING: pairs with the fence in `enter`, see (a) and (b).
        fence(Ordering::SeqCst);
        let high = self.high.load(Ordering::Relaxed);
        for (other, presence) in self.presences[..high].iter().enumerate() {
            // ORDERING: acquire, as an even count means that the other's accesses are over.
            let count = Count(presence.0.load(Ordering::Acquire));
            if count.is_online() && Some(other) != worker {
                awaited.push(Awaited { worker: other, count });
            }
        }
    }

    /// Whether all awaited workers have gone offline since; forgets those that have.
    pub(crate) fn passed(&self, awaited: &mut Vec<Awaited>) -> bool {
        while let Some(last) = awaited.last() {
            // ORDERING: pairs with the release in `leave` (and in `enter`, if the worker is back).
            if self.presences[last.worker].0.load(Ordering::Acquire) == last.count.0 {
                return false;
            }
            awaited.pop();
        }
        true
    }
}

#[cfg(all(test, loom))]
mod loom_model;
