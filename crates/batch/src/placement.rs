//! Placement on threads: which thread runs which transactions of a batch, and in which order (§4.2, the thread-aware policy).
//!
//! Invariant: two transactions of which one writes what the other reads or writes are in one component, and a component is on one
//! thread, in one order. So what runs on two threads at the same time does not conflict, as far as the batch was told.
//!
//! Nothing is dropped: on one thread, transactions see what those before them wrote. Those that [`Batch::reorder`] would have aborted
//! come after those that it orders.
//!
//! Source: the paper gives each thread the same number of transactions, picked greedily by what they have in common with those that
//! the thread has. Ours are the connected components, whole, the largest first and each to the thread that has the least: threads
//! can get less than others, and conflicts between threads do not happen.

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hash};

use crate::fault::{self, Fault};
use crate::{Batch, Settings};

/// A component of a batch, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The thread, as an index into the loads.
    pub thread: usize,
    /// Its transactions, named by their places in the batch, in the order in which they run.
    pub members: Vec<usize>,
}

impl<R: Hash + Eq, V: Copy + Ord, S: BuildHasher> Batch<R, V, S> {
    /// Places each transaction on a thread. `loads` has, for each thread, how many transactions it has to run already. The largest
    /// components come first; of equal ones, the one whose first member came first.
    ///
    /// O(R + W) beside what [`Batch::reorder`] takes, and O(T) for each component.
    ///
    /// # Panics
    /// If there is no thread.
    pub fn place(&self, settings: &Settings, loads: &[usize]) -> Vec<Placed> {
        assert!(!loads.is_empty(), "transactions run on at least one thread");
        let decided = self.reorder(settings);
        let mut components = Components::new(self.len());
        self.connect(&mut components);
        // Of the component that a transaction represents, its place among the placed.
        let mut place_of = vec![usize::MAX; self.len()];
        let mut placed: Vec<Placed> = Vec::new();
        for member in decided.order.into_iter().chain(decided.aborted).chain(decided.stale) {
            let place = &mut place_of[components.find(member)];
            if *place == usize::MAX {
                *place = placed.len();
                placed.push(Placed { thread: 0, members: Vec::new() });
            }
            placed[*place].members.push(member);
        }
        placed.sort_by_key(|placed| (Reverse(placed.members.len()), placed.members.iter().min().copied()));
        let mut loads = loads.to_vec();
        for placed in &mut placed {
            let least = (0..loads.len()).min_by_key(|&thread| loads[thread]);
            placed.thread = least.expect("there is a thread");
            loads[placed.thread] += placed.members.len();
        }
        placed
    }

    /// Joins those that have a resource in common that one of them writes.
    fn connect(&self, components: &mut Components) {
        let mut is_written = vec![false; self.newest.len()];
        self.writes.iter().for_each(|&(_, resource)| is_written[resource as usize] = true);
        let mut first = vec![None; self.newest.len()];
        let reads = self.reads.iter().map(|&(reader, resource, _)| (reader, resource));
        for (member, resource) in reads.chain(self.writes.iter().copied()) {
            if !is_written[resource as usize] || fault::is_injected(Fault::ConflictsMissed) && member % 3 == 0 {
                continue;
            }
            match first[resource as usize] {
                None => first[resource as usize] = Some(member),
                Some(other) => components.join(other as usize, member as usize),
            }
        }
    }
}

/// Disjoint sets of numbers (Galler and Fischer, CACM 1964, with path halving).
struct Components(Vec<usize>);

impl Components {
    fn new(numbers: usize) -> Components {
        Components((0..numbers).collect())
    }

    /// The number that represents the set of this one.
    fn find(&mut self, mut number: usize) -> usize {
        let Components(parents) = self;
        while parents[number] != number {
            parents[number] = parents[parents[number]];
            number = parents[number];
        }
        number
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.find(one), self.find(other));
        self.0[one.max(other)] = one.min(other);
    }
}
