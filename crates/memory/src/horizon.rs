//! The horizon: an epoch such that no worker reads versions that commits of earlier epochs replaced.
//!
//! [`garbage`](crate::garbage) determines when one piece of memory may be reused. A commit that would overwrite the
//! version before the last, inside its record, has the reverse question. It knows in which epoch that version was
//! replaced, and must know whether that was long enough ago. One number for the database answers this without a list.
//!
//! A helper moves it, in rounds. A round begins when the workers that were online at the beginning of the previous
//! round have gone offline. It notes the epoch, and seals the counts (`quiescence`). Why it is safe. Take a commit of
//! an epoch before that which round n notes.
//! - It read its epoch while its worker was online, and before the epoch advanced to the one that the round
//!   noted. So the worker is online at the seal of round n, or has installed its versions. When round n has
//!   passed, the version is replaced.
//! - A worker that holds the version found it before that. So it is online at the seal of round n + 1, or no longer
//!   holds the version. When that round has passed, no worker holds it. So then the horizon is the epoch that round n
//!   noted.
//!
//! Readers of the past ([`PastReads`](crate::PastReads)) come online later, and read versions that were replaced
//! before. Then a round notes, before its seal, the epoch that they return instead of the current one. Consider a
//! reader of the past that may read a version that a commit of an earlier epoch replaced. It checked the kept versions
//! before they returned that epoch, and after it came online, both with a fence between. So it is online at the seal of
//! round n.

use crate::heap::lock;
use crate::quiescence::{Awaited, Counts};
use crate::sync::{AtomicU64, Ordering};
use seriatim_base::{CacheAligned, Epoch};
use std::sync::Mutex;

#[derive(Debug)]
pub(crate) struct Horizon {
    epoch: CacheAligned<AtomicU64>,
    rounds: Mutex<Rounds>,
    /// A canary: leaves the second round out.
    #[cfg(test)]
    hasty: bool,
}

#[derive(Debug, Default)]
struct Rounds {
    /// The workers that were online when the current round began.
    awaited: Vec<Awaited>,
    /// The epoch that this round noted.
    noted: Epoch,
    /// The epoch that the previous round noted.
    passed: Epoch,
}

impl Horizon {
    pub(crate) fn new() -> Horizon {
        Horizon {
            epoch: CacheAligned(AtomicU64::new(0)),
            rounds: Mutex::default(),
            #[cfg(test)]
            hasty: false,
        }
    }

    /// The horizon: versions that commits of earlier epochs replaced may be overwritten.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`: the accesses of workers that held the version are
        // over.
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Ends the round and begins the next, if the workers that it awaits have gone offline. `now`: the epoch,
    /// read before the call.
    pub(crate) fn advance(&self, counts: &Counts, now: Epoch) {
        let mut rounds = lock(&self.rounds);
        let Rounds { awaited, noted, passed } = &mut *rounds;
        if !counts.passed(awaited) {
            return;
        }
        #[cfg(test)]
        if self.hasty {
            *passed = *noted;
        }
        // Callers may come with epochs in another order than they read them.
        self.epoch.store(passed.0.max(self.epoch.load(Ordering::Relaxed)), Ordering::Release);
        (*passed, *noted) = (*noted, now);
        counts.seal(None, awaited);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::{memory, register};
    use seriatim_base::{DurablePoint, Epoch};
    use std::sync::Arc;

    #[test]
    fn it_follows_the_epoch_by_two_rounds() {
        let memory = memory(1);
        let local = register(&memory);
        let followed: Vec<u64> = (1..8)
            .map(|now| {
                memory.advance_horizon(Epoch(now));
                local.horizon().0
            })
            .collect();
        assert_eq!(followed, [0, 0, 1, 2, 3, 4, 5]);
    }

    /// A worker that comes online during a round delays the end of the next one.
    #[test]
    fn it_waits_for_online_workers() {
        let memory = memory(3);
        let (mut early, mut late, local) = (register(&memory), register(&memory), register(&memory));
        let advance = |epochs: std::ops::RangeInclusive<u64>| {
            epochs.for_each(|now| memory.advance_horizon(Epoch(now)));
            local.horizon().0
        };
        assert_eq!(advance(1..=3), 1);
        early.enter();
        // Two rounds began before.
        assert_eq!(advance(4..=10), 2);
        late.enter();
        early.leave();
        assert_eq!(advance(11..=20), 3);
        late.leave();
        assert_eq!(advance(21..=23), 21);
    }

    #[test]
    fn it_does_not_pass_what_is_not_durable() {
        let (memory, point) = (memory(1), Arc::new(DurablePoint::new(Epoch(2))));
        memory.keep_versions(Arc::clone(&point));
        let local = register(&memory);
        (1..10).for_each(|now| memory.advance_horizon(Epoch(now)));
        assert_eq!(local.horizon(), Epoch(3), "what epoch 2 replaced is not needed any more");
        assert!(point.advance(Epoch(5)));
        assert_eq!(local.horizon(), Epoch(6));
        let hold = point.hold();
        assert!(point.advance(Epoch(9)));
        assert_eq!(local.horizon(), Epoch(6), "somebody may read what epoch 6 replaced");
        drop(hold);
        assert_eq!(local.horizon(), Epoch(7));
    }
}

/// Every interleaving of a commit, a reader, and a helper, after whose rounds a second commit overwrites the
/// version that the first replaced.
#[cfg(all(test, loom))]
mod loom_model {
    use super::*;
    use crate::sync::AtomicUsize;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const COMMITTER: usize = 1;
    const READER: usize = 2;
    const ROUNDS: u64 = 3;

    struct Shared {
        counts: Counts,
        horizon: Horizon,
        epoch: AtomicU64,
        /// Which place is the current one.
        current: AtomicUsize,
        /// The epoch of the commit that made it.
        made: AtomicU64,
        places: [UnsafeCell<u32>; 2],
    }

    fn online(shared: &Shared, worker: usize, work: impl FnOnce()) {
        let presence = shared.counts.presence(worker);
        let count = presence.enter(presence.resume());
        work();
        let _ = presence.leave(count);
    }

    fn commit(shared: &Shared) {
        online(shared, COMMITTER, || {
            let epoch = shared.epoch.load(Ordering::Acquire);
            // SAFETY: the model checks that accesses are ordered.
            shared.places[1].with_mut(|place| unsafe { *place += 1 });
            shared.current.store(1, Ordering::Release);
            shared.made.store(epoch, Ordering::Release);
        });
    }

    fn read(shared: &Shared) {
        online(shared, READER, || {
            let at = shared.current.load(Ordering::Acquire);
            // SAFETY: the model checks that accesses are ordered.
            shared.places[at].with(|place| unsafe { *place });
        });
    }

    fn model(hasty: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let counts = Counts::new(3);
            (0..3).for_each(|worker| counts.admit(worker));
            let (epoch, current, made) = (AtomicU64::new(1), AtomicUsize::new(0), AtomicU64::new(0));
            let places = [UnsafeCell::new(0), UnsafeCell::new(0)];
            let horizon = Horizon { hasty, ..Horizon::new() };
            let shared = Arc::new(Shared { counts, horizon, epoch, current, made, places });
            let threads = [commit, read].map(|work| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || work(&shared))
            });
            for now in 2..2 + ROUNDS {
                shared.epoch.swap(now, Ordering::AcqRel);
                shared.horizon.advance(&shared.counts, Epoch(now));
            }
            let made = shared.made.load(Ordering::Acquire);
            if made > 0 && Epoch(made) < shared.horizon.epoch() {
                // SAFETY: the model checks that accesses are ordered.
                shared.places[0].with_mut(|place| unsafe { *place += 1 });
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }

    #[test]
    fn loom_a_version_that_is_overwritten_has_no_reader() {
        model(false);
    }

    #[test]
    #[should_panic]
    fn loom_canary_a_horizon_that_leaves_the_second_round_out_is_caught() {
        model(true);
    }
}
