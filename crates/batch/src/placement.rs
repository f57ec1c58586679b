//! Placement on threads: which thread runs which transactions of a batch, and in which order (§4.2, the thread-aware policy).
//!
//! Invariant: two transactions of which one writes what the other reads or writes are in one component, and a component is on one
//! thread, in one order. So what runs on two threads at the same time does not conflict, as far as the batch was told.
//!
//! Nothing is dropped: on one thread, transactions see what those before them wrote. Those that [`Batch::reorder`] would have aborted
//! come after those that it orders.
//!
//! Source: the paper gives each thread the same number of transactions, picked greedily by what they have in common with those that
//! the thread has: [`Placement::Shares`]. There conflicts between threads happen, and the invariant does not hold. Ours are the connected
//! components, whole, the largest first and each to the thread that has the least: threads can get less than others.

use std::cmp::Reverse;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Range;
use std::str::FromStr;

use crate::fault::{self, Fault};
use crate::{Batch, Settings};

/// What threads get of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Whole components of what conflicts, whatever their sizes: of a batch, conflicts are on one thread.
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

/// A component of a batch, or a share, and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The thread, as an index into the loads.
    pub thread: usize,
    /// Its transactions, named by their places in the batch, in the order in which they run.
    pub members: Vec<usize>,
}

impl<R: Hash + Eq, V: Copy + Ord, S: BuildHasher> Batch<R, V, S> {
    /// Places each transaction on a thread. `loads` has, for each thread, how many transactions it has to run already.
    ///
    /// Components: the largest come first; of equal ones, the one whose first member came first. O(R + W) beside what [`Batch::reorder`]
    /// takes, and O(T) for each component. Shares: that of the thread with the least comes first. O(V²), and for each resource the square
    /// of those that read or write it.
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

    /// Thread by thread, each the same number of transactions. The next one of a thread is that which conflicts with the most of those that
    /// it has got; of equal ones, that which has the most accesses in common with them, then that which conflicts with the most that no
    /// thread has got, then that which came first.
    fn place_shares(&self, loads: &[usize]) -> Vec<Placed> {
        let shared = Shared::new(self);
        let mut weights = vec![Weight::default(); self.len()];
        let mut left: Vec<usize> = (0..self.len()).collect();
        // Whom a transaction has met last, to count a pair once.
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

/// What makes a transaction the next one of a thread, the most important first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    /// Those of the thread that it conflicts with.
    own: usize,
    /// Accesses that it has in common with those of the thread.
    accesses: usize,
    /// Those of no thread that it conflicts with.
    rest: usize,
}

/// Which transactions use the same resources.
struct Shared {
    /// Transactions and whether they write, by resource; each once for a resource.
    users: Vec<(usize, bool)>,
    /// Of each transaction, where the users of what it uses are, and whether it writes that.
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

    /// Others that use what this one uses, once for each such resource, and whether they conflict there.
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
