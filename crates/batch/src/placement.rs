//! Placement on threads: which thread runs which transactions of a batch, and in which order (§4.2, the
//! thread-aware policy).
//!
//! Invariant: if one transaction writes what another reads or writes, both are in one component, and a
//! component runs on one thread, in one order. So transactions that run on two threads at the same time do not
//! conflict, as far as the batch knows their accesses.
//!
//! No transaction is dropped: on one thread, transactions see the writes of those before them. Transactions
//! that [`Batch::reorder`] would have aborted come after those that it orders.
//!
//! Source: the paper gives each thread the same number of transactions. It picks them greedily by the accesses
//! that they share with the thread's transactions: [`Placement::Shares`]. There conflicts between threads
//! happen, and the invariant does not hold. Ours places whole connected components, the largest first, each on
//! the thread with the least load; loads can be uneven.

use std::cmp::Reverse;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Range;
use std::str::FromStr;

use crate::fault::{self, Fault};
use crate::{Batch, Settings};

/// How the transactions of a batch are divided among threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Whole components of conflicting transactions, whatever their sizes: all conflicts of a batch are on one
    /// thread.
    #[default]
    Components,
    /// Equal shares, within one, chosen so that conflicts between threads are few (the paper's §4.2).
    Shares,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Components => "components",
            Placement::Shares => "shares",
        })
    }
}

/// From `components` or `shares`.
impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Placement, String> {
        match text {
            "components" => Ok(Placement::Components),
            "shares" => Ok(Placement::Shares),
            _ => Err("it is components or shares".to_owned()),
        }
    }
}

/// A component of a batch, or a share, and its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The thread, as an index into the loads.
    pub thread: usize,
    /// Its transactions, named by their index in the batch, in the order in which they run.
    pub members: Vec<usize>,
}

impl<R: Hash + Eq, V: Copy + Ord, S: BuildHasher> Batch<R, V, S> {
    /// Places each transaction on a thread. `loads` has, for each thread, how many transactions it has to run already.
    ///
    /// Components: the largest come first; of equal ones, the one whose first member came first. O(R + W)
    /// beside the cost of [`Batch::reorder`], and O(T) for each component. Shares: that of the thread with the
    /// least load comes first. O(V²), and for each resource the square of the number of its readers and
    /// writers.
    ///
    /// # Panics
    /// If there is no thread.
    pub fn place(&self, placement: Placement, settings: &Settings, loads: &[usize]) -> Vec<Placed> {
        assert!(!loads.is_empty(), "transactions run on at least one thread");
        match placement {
            Placement::Components => self.place_components(settings, loads),
            Placement::Shares => self.place_shares(loads),
        }
    }

    fn place_components(&self, settings: &Settings, loads: &[usize]) -> Vec<Placed> {
        let decided = self.reorder(settings);
        let mut components = Components::new(self.len());
        self.connect(&mut components);
        // By the transaction that represents a component, the component's index in `placed`.
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

    /// Fills one thread after another with the same number of transactions. The next transaction of a thread
    /// is the one with the most conflicts with the thread's transactions. Ties are broken by the accesses in
    /// common with them, then by the conflicts with transactions of no thread, then by arrival.
    fn place_shares(&self, loads: &[usize]) -> Vec<Placed> {
        let shared = Shared::new(self);
        let mut weights = vec![Weight::default(); self.len()];
        let mut left: Vec<usize> = (0..self.len()).collect();
        // By transaction, the last one that it was compared with, to count a pair once.
        let mut met = vec![usize::MAX; self.len()];
        for member in 0..self.len() {
            shared.each(member, |other, conflicts| {
                let is_new = conflicts && std::mem::replace(&mut met[other], member) != member;
                weights[other].rest += usize::from(is_new);
            });
        }
        met.fill(usize::MAX);
        let mut threads: Vec<usize> = (0..loads.len()).collect();
        threads.sort_by_key(|&thread| loads[thread]);
        let mut placed = Vec::new();
        for (at, &thread) in threads.iter().enumerate() {
            let size = (self.len() + threads.len() - 1 - at) / threads.len();
            weights.iter_mut().for_each(|weight| (weight.own, weight.accesses) = (0, 0));
            let mut members = Vec::with_capacity(size);
            for _ in 0..size {
                let heaviest = (0..left.len()).max_by_key(|&at| (weights[left[at]], Reverse(left[at])));
                let member = left.swap_remove(heaviest.expect("shares are no more than the batch"));
                members.push(member);
                shared.each(member, |other, conflicts| {
                    let weight = &mut weights[other];
                    weight.accesses += 1;
                    if conflicts && std::mem::replace(&mut met[other], member) != member {
                        (weight.own, weight.rest) = (weight.own + 1, weight.rest - 1);
                    }
                });
            }
            if !members.is_empty() {
                placed.push(Placed { thread, members });
            }
        }
        placed
    }

    /// Joins transactions that share a resource which one of them writes.
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

/// The criteria for the next transaction of a thread, the most important first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    /// The number of the thread's transactions with which it conflicts.
    own: usize,
    /// The number of accesses that it has in common with the thread's transactions.
    accesses: usize,
    /// The number of unplaced transactions with which it conflicts.
    rest: usize,
}

/// Which transactions use the same resources.
struct Shared {
    /// Transactions and whether they write, by resource; each once for a resource.
    users: Vec<(usize, bool)>,
    /// By transaction: for each resource, the range of its users, and whether the transaction writes it.
    uses: Vec<Vec<(Range<usize>, bool)>>,
}

impl Shared {
    fn new<R: Hash + Eq, V: Copy + Ord, S: BuildHasher>(batch: &Batch<R, V, S>) -> Shared {
        let reads = batch.reads.iter().map(|&(member, resource, _)| (resource, member, true));
        let writes = batch.writes.iter().map(|&(member, resource)| (resource, member, false));
        let mut all: Vec<(u32, u32, bool)> = reads.chain(writes).collect();
        all.sort_unstable();
        // The write comes first.
        all.dedup_by_key(|&mut (resource, member, _)| (resource, member));
        let mut uses = vec![Vec::new(); batch.len()];
        let mut start = 0;
        for same in all.chunk_by(|(one, ..), (other, ..)| one == other) {
            let range = start..start + same.len();
            start = range.end;
            if same.len() > 1 {
                same.iter().for_each(|&(_, member, reads)| uses[member as usize].push((range.clone(), !reads)));
            }
        }
        Shared { users: all.into_iter().map(|(_, member, reads)| (member as usize, !reads)).collect(), uses }
    }

    /// Calls `found` with each other user of a resource of this one, once for each resource, and whether they
    /// conflict there.
    fn each(&self, member: usize, mut found: impl FnMut(usize, bool)) {
        for (range, writes) in &self.uses[member] {
            for &(other, also_writes) in self.users[range.clone()].iter().filter(|(other, _)| *other != member) {
                let is_missed = fault::is_injected(Fault::ConflictsMissed) && member.is_multiple_of(3);
                found(other, (*writes || also_writes) && !is_missed);
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

    /// The number that represents the set of `number`.
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
