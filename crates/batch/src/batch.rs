//! A batch: the reads and writes of its transactions, and the decision about them.
//!
//! Resources become dense ids when they are named, by one hash probe each; everything else is arrays.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use crate::algorithms::Search;
use crate::fault::{self, Fault};
use crate::graph::Graph;
use crate::residual::Residual;
use crate::{Settings, order};

/// Transactions that have been executed and are to be decided together. `R` names resources and `V` their
/// versions; if all transactions saw the same state, `V` can be `()`. `S` hashes resources; resources that are
/// hashes already need no other hash.
#[derive(Clone, Debug)]
pub struct Batch<R, V = (), S = BuildHasherDefault<DefaultHasher>> {
    ids: HashMap<R, u32, S>,
    /// By resource, the newest version that a transaction saw.
    pub(crate) newest: Vec<Option<V>>,
    /// Transaction, resource, version seen; in the order of transactions.
    pub(crate) reads: Vec<(u32, u32, V)>,
    /// Transaction, resource.
    pub(crate) writes: Vec<(u32, u32)>,
    members: Vec<Member>,
}

/// The attributes of a transaction that policies use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// How often it was aborted and executed again.
    pub restarts: u32,
    /// The value of its commit to the user.
    pub value: u64,
}

/// The decision about a batch. Transactions are named by their index in it; each is in exactly one of the
/// three lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The transactions that commit, in this order.
    pub order: Vec<usize>,
    /// Pairs of a reader and a writer of what it read, both of which commit: the reader comes first. Two
    /// transactions that no path of these edges connects may commit in either order, or at the same time.
    pub edges: Vec<(usize, usize)>,
    /// The transactions that abort because they conflict with others of the batch; ascending.
    pub aborted: Vec<usize>,
    /// The transactions that abort in any order, because they saw older versions than others of the batch;
    /// ascending.
    pub stale: Vec<usize>,
    /// Vertices and edges of the graph that were visited. The work is proportional to this number and to that
    /// of the accesses.
    pub looked: u64,
}

impl<R: Hash + Eq, V: Copy + Ord> Batch<R, V> {
    /// An empty batch.
    pub fn new() -> Batch<R, V> {
        Batch::default()
    }
}

impl<R: Hash + Eq, V: Copy + Ord, S: BuildHasher> Batch<R, V, S> {
    /// Adds a transaction; its reads and writes are then added to the result.
    pub fn add(&mut self, member: Member) -> Accesses<'_, R, V, S> {
        self.members.push(member);
        Accesses { batch: self }
    }

    /// The number of transactions.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no transactions.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The attributes of the transactions.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Empties it, and keeps its memory for the next one.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.newest.clear();
        self.reads.clear();
        self.writes.clear();
        self.members.clear();
    }

    /// Decides which transactions commit, and in which order.
    pub fn reorder(&self, settings: &Settings) -> Decided {
        let mut fates = vec![Fate::Commits; self.len()];
        for &(reader, resource, version) in &self.reads {
            if self.newest[resource as usize].is_some_and(|newest| version < newest) {
                fates[reader as usize] = Fate::Stale;
            }
        }
        let viable = |transaction: u32| fates[transaction as usize] == Fate::Commits;
        let reads = self.reads.iter().map(|&(reader, resource, _)| (reader, resource));
        let graph = Graph::new(self.len(), self.newest.len(), reads, &self.writes, viable);
        let mut residual = Residual::new(&graph);
        residual.trim();
        for vertex in (settings.algorithm.solve)(&mut residual, &mut Search::new(settings, &self.members)) {
            fates[vertex as usize] = Fate::Aborts;
        }
        let mut order = order::readers_first(&graph, |transaction| fates[transaction as usize] == Fate::Commits);
        let commits = |transaction: &u32| fates[*transaction as usize] == Fate::Commits;
        let mut edges = Vec::new();
        for reader in (0..self.len() as u32).filter(commits) {
            let writers = graph.after.of(reader).iter().copied().filter(commits);
            edges.extend(writers.map(|writer| (reader as usize, writer as usize)));
        }
        graph.look(edges.len());
        let those = |fate| (0..self.len()).filter(|&at| fates[at] == fate).collect::<Vec<_>>();
        let (aborted, stale) = (those(Fate::Aborts), those(Fate::Stale));
        assert_eq!(order.len() + aborted.len() + stale.len(), self.len(), "without those that abort there is no cycle");
        if fault::is_injected(Fault::AbortedKept) {
            order.extend(&aborted);
        }
        Decided { order, edges, aborted, stale, looked: graph.looked() }
    }

    fn id(&mut self, resource: R) -> u32 {
        let next = u32::try_from(self.newest.len()).expect("a batch names less than 2^32 resources");
        let id = *self.ids.entry(resource).or_insert(next);
        if id == next {
            self.newest.push(None);
        }
        id
    }
}

impl<R, V, S: Default> Default for Batch<R, V, S> {
    fn default() -> Batch<R, V, S> {
        let (ids, newest, reads, writes, members) = Default::default();
        Batch { ids, newest, reads, writes, members }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Commits,
    Aborts,
    Stale,
}

/// Adds the reads and writes of one transaction to a batch.
#[derive(Debug)]
pub struct Accesses<'b, R, V, S = BuildHasherDefault<DefaultHasher>> {
    batch: &'b mut Batch<R, V, S>,
}

impl<R: Hash + Eq, V: Copy + Ord, S: BuildHasher> Accesses<'_, R, V, S> {
    /// The transaction saw these versions of resources: it commits before other writers of them. If a write
    /// depends on the old value, that is a read.
    pub fn reads(&mut self, reads: impl IntoIterator<Item = (R, V)>) -> &mut Self {
        let transaction = self.transaction();
        for (resource, version) in reads {
            let id = self.batch.id(resource);
            let newest = &mut self.batch.newest[id as usize];
            *newest = (*newest).max(Some(version));
            self.batch.reads.push((transaction, id, version));
        }
        self
    }

    /// The transaction will write these resources.
    pub fn writes(&mut self, resources: impl IntoIterator<Item = R>) -> &mut Self {
        let transaction = self.transaction();
        for resource in resources {
            let id = self.batch.id(resource);
            self.batch.writes.push((transaction, id));
        }
        self
    }

    fn transaction(&self) -> u32 {
        u32::try_from(self.batch.members.len() - 1).expect("a batch has less than 2^32 transactions")
    }
}
