//! Decides which transactions may run at the same time: those that do not conflict.
//!
//! Each row has a queue of the transactions that use it, in the order in which they were added. A reader runs when no
//! transaction before it in any of its queues writes. A writer runs when it is the first. A transaction joins all its
//! queues at once, so there are no cycles: each waits only for transactions that were added before.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::Key;

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    queues: HashMap<Key, VecDeque<Entry>>,
    members: HashMap<u64, Transaction>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    writes: bool,
    is_granted: bool,
}

#[derive(Debug)]
struct Transaction {
    keys: Vec<Key>,
    /// The number of queues in which it waits.
    waits: usize,
}

impl Schedule {
    /// The number of running and waiting transactions.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Adds a transaction behind all others. Returns whether it may run at once.
    pub(crate) fn add(&mut self, id: u64, reads: &[Key], writes: &[Key]) -> bool {
        let mut keys = BTreeMap::new();
        reads.iter().for_each(|key| _ = keys.insert(key, false));
        writes.iter().for_each(|key| _ = keys.insert(key, true));
        let mut waits = 0;
        for (&key, &writes) in &keys {
            let queue = self.queues.entry(key.clone()).or_default();
            queue.push_back(Entry { id, writes, is_granted: false });
            let granted = grant(queue);
            waits += usize::from(!granted.contains(&id));
        }
        self.members.insert(id, Transaction { keys: keys.into_keys().cloned().collect(), waits });
        waits == 0
    }

    /// Removes a transaction that has run or will not run. Returns the transactions that may run now.
    pub(crate) fn finish(&mut self, id: u64) -> Vec<u64> {
        let Some(Transaction { keys, .. }) = self.members.remove(&id) else { return Vec::new() };
        let mut may_run = Vec::new();
        for key in keys {
            let queue = self.queues.get_mut(&key).expect("a member is in the queues of its keys");
            queue.retain(|entry| entry.id != id);
            for granted in grant(queue) {
                let waits =
                    &mut self.members.get_mut(&granted).expect("every transaction in a queue is a member").waits;
                *waits -= 1;
                if *waits == 0 {
                    may_run.push(granted);
                }
            }
            if queue.is_empty() {
                self.queues.remove(&key);
            }
        }
        may_run
    }
}

/// Grants the row to the front of its queue: to the readers before the first writer, or to one writer. Returns
/// the transactions that did not have the row before.
fn grant(queue: &mut VecDeque<Entry>) -> Vec<u64> {
    let mut granted = Vec::new();
    for (at, entry) in queue.iter_mut().enumerate() {
        if entry.writes && at > 0 {
            break;
        }
        if !entry.is_granted {
            entry.is_granted = true;
            granted.push(entry.id);
        }
        if entry.writes {
            break;
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use seriatim_base::Rng;

    use super::*;

    /// Compares with a model of all pairs. Running transactions do not conflict, and all run in the end. Of two that
    /// conflict the earlier one runs first.
    #[test]
    fn conflicting_transactions_run_one_after_another_in_their_order() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let mut below = |most: u64| rng.next_u64() % most;
            let mut schedule = Schedule::default();
            let mut footprints: Vec<(Vec<Key>, Vec<Key>)> = Vec::new();
            let (mut runs, mut finished) = (BTreeSet::new(), Vec::new());
            while finished.len() < 60 {
                if footprints.len() < 60 && below(2) == 0 {
                    let mut keys = |most| (0..below(most)).map(|_| vec![below(6) as u8]).collect::<Vec<_>>();
                    let (reads, writes) = (keys(4), keys(3));
                    let id = footprints.len() as u64;
                    if schedule.add(id, &reads, &writes) {
                        runs.insert(id);
                    }
                    footprints.push((reads, writes));
                } else if let Some(&id) = runs.iter().nth(below(runs.len().max(1) as u64) as usize) {
                    runs.remove(&id);
                    finished.push(id);
                    runs.extend(schedule.finish(id));
                }
                let conflict = |a: u64, b: u64| {
                    let ((reads, writes), (others, written)) = (&footprints[a as usize], &footprints[b as usize]);
                    writes.iter().any(|key| others.contains(key) || written.contains(key))
                        || written.iter().any(|key| reads.contains(key))
                };
                for &a in &runs {
                    for b in (0..footprints.len() as u64).filter(|&b| b != a && conflict(a, b)) {
                        assert!(!runs.contains(&b), "seed {seed}: {a} and {b} run at the same time");
                        assert!(b > a || finished.contains(&b), "seed {seed}: {a} runs before {b}");
                    }
                }
                let is_free = |a: u64| (0..a).all(|b| finished.contains(&b) || !conflict(a, b));
                for id in (0..footprints.len() as u64).filter(|id| !finished.contains(id) && is_free(*id)) {
                    assert!(runs.contains(&id), "seed {seed}: {id} waits for nothing");
                }
            }
            assert!(schedule.queues.is_empty() && schedule.members.is_empty(), "seed {seed}");
        }
    }
}
