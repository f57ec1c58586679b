//! The lock table of `locking`: shared and exclusive locks, granted in the order of the requests.
//!
//! Invariants:
//!
//! (a) A key has one holder, or all holders hold it shared.
//! (b) A request waits while it conflicts with a holder or with an earlier request. An upgrade from shared to
//!     exclusive goes before all waiting requests.
//! (c) A key without holders and requests is not in the table.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{LockMode, TransactionId};

/// The holders and the waiting requests of each key.
#[derive(Debug)]
pub(super) struct Locks<K> {
    keys: BTreeMap<K, Lock>,
}

#[derive(Debug, Default)]
struct Lock {
    holders: Vec<(TransactionId, LockMode)>,
    waiters: VecDeque<(TransactionId, LockMode)>,
}

impl Lock {
    /// Whether a request can be granted, as far as the holders are concerned.
    fn is_free_for(&self, transaction: TransactionId, mode: LockMode) -> bool {
        let allows = |&(holder, held): &(TransactionId, LockMode)| holder == transaction || !conflict(held, mode);
        self.holders.iter().all(allows)
    }

    fn grant(&mut self, transaction: TransactionId, mode: LockMode) {
        match self.holders.iter_mut().find(|(holder, _)| *holder == transaction) {
            Some((_, held)) => *held = (*held).max(mode),
            None => self.holders.push((transaction, mode)),
        }
    }
}

fn conflict(a: LockMode, b: LockMode) -> bool {
    a == LockMode::Exclusive || b == LockMode::Exclusive
}

impl<K: Clone + Ord> Locks<K> {
    pub(super) fn new() -> Locks<K> {
        Locks { keys: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Requests a lock. Returns whether it is held now; otherwise the transaction waits for it.
    #[must_use]
    pub(super) fn ask(&mut self, transaction: TransactionId, key: &K, mode: LockMode) -> bool {
        let lock = self.keys.entry(key.clone()).or_default();
        let held = lock.holders.iter().find(|(holder, _)| *holder == transaction).map(|&(_, held)| held);
        if held.is_some_and(|held| held >= mode) {
            return true;
        }
        if lock.is_free_for(transaction, mode) && (held.is_some() || lock.waiters.is_empty()) {
            lock.grant(transaction, mode);
            return true;
        }
        match held {
            Some(_) => lock.waiters.push_front((transaction, mode)),
            None => lock.waiters.push_back((transaction, mode)),
        }
        false
    }

    /// Releases all locks of a transaction and withdraws its request. Returns the transactions whose requests
    /// were granted.
    pub(super) fn release(
        &mut self,
        transaction: TransactionId,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<TransactionId> {
        let mut granted = Vec::new();
        for key in keys {
            let Some(lock) = self.keys.get_mut(&key) else { continue };
            lock.holders.retain(|(holder, _)| *holder != transaction);
            lock.waiters.retain(|(waiter, _)| *waiter != transaction);
            while let Some(&(waiter, mode)) = lock.waiters.front() {
                if !lock.is_free_for(waiter, mode) {
                    break;
                }
                lock.waiters.pop_front();
                lock.grant(waiter, mode);
                granted.push(waiter);
            }
            if lock.holders.is_empty() && lock.waiters.is_empty() {
                self.keys.remove(&key);
            }
        }
        granted
    }

    /// The transactions for which a transaction waits at a key: earlier conflicting ones, back to the
    /// nearest that wants the key exclusively. That one waits for all before it, so a search that continues
    /// from there finds them, and the list is short.
    fn awaited(&self, transaction: TransactionId, key: &K) -> Vec<TransactionId> {
        let Some(lock) = self.keys.get(key) else { return Vec::new() };
        let Some(at) = lock.waiters.iter().position(|(waiter, _)| *waiter == transaction) else { return Vec::new() };
        let wanted = lock.waiters[at].1;
        let mut awaited = Vec::new();
        for &(other, mode) in lock.waiters.range(..at).rev().filter(|(_, mode)| conflict(*mode, wanted)) {
            awaited.push(other);
            if mode == LockMode::Exclusive {
                return awaited;
            }
        }
        let holders = lock.holders.iter().filter(|&&(other, mode)| other != transaction && conflict(mode, wanted));
        awaited.extend(holders.map(|&(other, _)| other));
        awaited
    }

    /// Whether a transaction waits for one of these keys.
    pub(super) fn are_awaited<'a>(&self, mut keys: impl Iterator<Item = &'a K>) -> bool
    where
        K: 'a,
    {
        keys.any(|key| self.keys.get(key).is_some_and(|lock| !lock.waiters.is_empty()))
    }

    /// A deadlock that contains this transaction: a cycle of transactions that wait for each other. `waits_at`
    /// returns the key for which a transaction waits.
    pub(super) fn circle<'a>(
        &self,
        transaction: TransactionId,
        waits_at: impl Fn(TransactionId) -> Option<&'a K>,
    ) -> Option<Vec<TransactionId>>
    where
        K: 'a,
    {
        let next = |one| waits_at(one).map_or(Vec::new(), |key| self.awaited(one, key));
        let mut seen = BTreeSet::from([transaction]);
        // Depth first: each transaction on the path, and those for which it waits that have not been visited.
        let mut path = vec![(transaction, next(transaction))];
        while let Some((_, ahead)) = path.last_mut() {
            match ahead.pop() {
                None => drop(path.pop()),
                Some(other) if other == transaction => return Some(path.into_iter().map(|(one, _)| one).collect()),
                Some(other) => {
                    if seen.insert(other) {
                        path.push((other, next(other)));
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use seriatim_base::Rng;

    use super::*;
    use crate::ClientId;
    use LockMode::{Exclusive, Shared};

    fn id(number: u64) -> TransactionId {
        TransactionId { client: ClientId(0), number }
    }

    #[test]
    fn readers_share_and_none_overtakes_a_waiting_writer() {
        let mut locks = Locks::new();
        assert!(locks.ask(id(1), &"x", Shared) && locks.ask(id(2), &"x", Shared));
        assert!(!locks.ask(id(3), &"x", Exclusive));
        assert!(!locks.ask(id(4), &"x", Shared), "a reader does not overtake a writer");
        assert!(locks.ask(id(1), &"x", Shared), "what is held is held");
        assert_eq!(locks.release(id(1), ["x"]), []);
        assert_eq!(locks.release(id(2), ["x"]), [id(3)]);
        assert_eq!(locks.release(id(3), ["x"]), [id(4)]);
        assert_eq!(locks.release(id(4), ["x"]), []);
        assert!(locks.is_empty());
    }

    #[test]
    fn an_upgrade_goes_before_those_that_wait_and_two_upgrades_are_a_circle() {
        let mut locks = Locks::new();
        assert!(locks.ask(id(1), &"x", Shared) && locks.ask(id(2), &"x", Shared));
        assert!(!locks.ask(id(3), &"x", Exclusive) && !locks.ask(id(1), &"x", Exclusive));
        let at = |_| Some(&"x");
        assert_eq!(locks.circle(id(1), at), None);
        assert!(!locks.ask(id(2), &"x", Exclusive));
        let mut circle = locks.circle(id(2), at).expect("each waits for the other");
        circle.sort();
        assert_eq!(circle, [id(1), id(2)]);
        assert_eq!(locks.release(id(2), ["x"]), [id(1)]);
        assert_eq!(locks.release(id(1), ["x"]), [id(3)]);
    }

    #[test]
    fn one_that_gives_up_waiting_lets_those_behind_it_pass() {
        let mut locks = Locks::new();
        assert!(locks.ask(id(1), &"x", Shared));
        assert!(!locks.ask(id(2), &"x", Exclusive) && !locks.ask(id(3), &"x", Shared));
        assert_eq!(locks.release(id(2), ["x"]), [id(3)]);
    }

    /// All transactions for which a transaction waits at a key, by invariant (b).
    fn awaited_in_full(locks: &Locks<u64>, transaction: TransactionId, key: u64) -> Vec<TransactionId> {
        let Some(lock) = locks.keys.get(&key) else { return Vec::new() };
        let Some(at) = lock.waiters.iter().position(|(waiter, _)| *waiter == transaction) else { return Vec::new() };
        let (_, wanted) = lock.waiters[at];
        let before = lock.holders.iter().chain(lock.waiters.iter().take(at));
        let conflicting = before.filter(|&&(other, mode)| other != transaction && conflict(mode, wanted));
        conflicting.map(|&(other, _)| other).collect()
    }

    /// Whether a transaction waits for itself, through any number of others.
    fn waits_for_itself(
        locks: &Locks<u64>,
        waits_at: &BTreeMap<TransactionId, u64>,
        transaction: TransactionId,
    ) -> bool {
        let (mut seen, mut ahead) = (BTreeSet::new(), vec![transaction]);
        while let Some(one) = ahead.pop() {
            for other in waits_at.get(&one).map_or(Vec::new(), |&key| awaited_in_full(locks, one, key)) {
                if other == transaction {
                    return true;
                }
                if seen.insert(other) {
                    ahead.push(other);
                }
            }
        }
        false
    }

    #[test]
    fn a_circle_is_found_if_there_is_one() {
        let (mut circles, mut none) = (0, 0);
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let (mut locks, mut waits_at) = (Locks::new(), BTreeMap::new());
            for _ in 0..60 {
                let (transaction, key) = (id(rng.below(12)), rng.below(5));
                let mode = if rng.below(2) == 0 { Shared } else { Exclusive };
                if waits_at.contains_key(&transaction) || locks.ask(transaction, &key, mode) {
                    continue;
                }
                waits_at.insert(transaction, key);
                let found = locks.circle(transaction, |one| waits_at.get(&one));
                let expected = waits_for_itself(&locks, &waits_at, transaction);
                assert_eq!(found.is_some(), expected, "seed {seed}: {transaction:?} waits at {key}: {locks:?}");
                let Some(circle) = found else {
                    none += 1;
                    continue;
                };
                circles += 1;
                for (at, &one) in circle.iter().enumerate() {
                    let next = circle[(at + 1) % circle.len()];
                    assert!(awaited_in_full(&locks, one, waits_at[&one]).contains(&next), "seed {seed}: {circle:?}");
                }
                let keys: Vec<u64> = (0..5).collect();
                for granted in locks.release(transaction, keys) {
                    waits_at.remove(&granted);
                }
                waits_at.remove(&transaction);
            }
        }
        assert!(circles > 1_000 && none > 1_000, "{circles} circles, {none} waits without");
    }

    #[test]
    fn of_many_that_wait_each_waits_for_the_one_before_it() {
        let mut locks = Locks::new();
        assert!(locks.ask(id(0), &"x", Exclusive));
        for number in 1..100 {
            assert!(!locks.ask(id(number), &"x", Exclusive));
            assert_eq!(locks.awaited(id(number), &"x"), [id(number - 1)]);
        }
        assert!(!locks.ask(id(100), &"x", Shared) && !locks.ask(id(101), &"x", Shared));
        assert_eq!(locks.awaited(id(101), &"x"), [id(99)], "those that share do not wait for each other");
        assert!(!locks.ask(id(102), &"x", Exclusive));
        assert_eq!(locks.awaited(id(102), &"x"), [id(101), id(100), id(99)]);
    }
}
