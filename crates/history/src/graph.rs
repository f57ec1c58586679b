//! The direct serialization graph, and its strongly connected components.
//!
//! Nodes are transactions and, where real-time order is promised, points in time. Only neighbours in version
//! order are linked; the rest follows by transitivity. Time costs `O(n)` edges: sort transactions by their
//! ends, cut that sequence where some transaction begins, and chain the cuts. A transaction points to the
//! first cut after its end; the last cut before a transaction's begin points to it.
//!
//! If other groups see a transaction later, there are three kinds of such chains. They go from the instants at which
//! all see a transaction to the begins of transactions with groups. They go from the ends to the begins of transactions
//! without a group, and from the ends in each group to the begins in it. Targets take 4 bytes an edge; reasons are
//! derived again when needed.

use crate::index::{Index, NONE};
use crate::{Promises, Transaction};
use std::collections::{BTreeMap, HashMap};

/// Why an edge is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// ww; the state is what the later transaction wrote.
    Write,
    /// wr; the state is what the earlier one wrote and the later one read.
    Read,
    /// rw; the state is what the earlier one read; the later one wrote the next.
    Anti,
    /// wr of an absence: the state is the delete whose effect the later one saw.
    Gone,
    /// rw of an absence: the state is the insert that the earlier one did not see.
    Unseen,
    /// Order within a session, from a transaction to a later one or to a point in time.
    Session,
    /// Real time, from a transaction to a point in time.
    Ended,
    /// Real time, from a point in time to a later one or to a transaction.
    Later,
}

/// Why an edge is there, with the state that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reason {
    pub(crate) kind: Kind,
    /// [`NONE`] for promised orders.
    pub(crate) state: u32,
    /// Whether the reader found it through a scan.
    pub(crate) scanned: bool,
}

/// An edge: `from` comes before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Edge {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) reason: Reason,
}

/// The edges that follow from the history alone.
#[derive(Debug)]
pub(crate) struct Edges<'a, 'h> {
    index: &'a Index<'h>,
    /// Between transactions, and through points in time; nodes from `transactions` on are the cuts.
    sessions: Vec<(u32, u32)>,
    /// Through points in time.
    times: Vec<(u32, u32)>,
    nodes: u32,
}

impl<'a, 'h> Edges<'a, 'h> {
    pub(crate) fn new(index: &'a Index<'h>, promises: &Promises) -> Edges<'a, 'h> {
        let mut nodes = index.transactions();
        let times = times(index, promises, &mut nodes);
        let sessions = if promises.sessions { sessions(index, &mut nodes) } else { Vec::new() };
        Edges { index, sessions, times, nodes }
    }

    /// Nodes: transactions, then points in time.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Calls `visit` with each edge, always in the same order.
    pub(crate) fn each(&self, mut visit: impl FnMut(u32, u32, Reason)) {
        let index = self.index;
        let states = &index.states;
        let follows = |kind, state, scanned| Reason { kind, state, scanned };
        for t in 0..index.transactions() {
            for &state in index.writes.of(t) {
                if let Some(next) = index.next(state) {
                    let to = states[next as usize].writer;
                    if to != t {
                        visit(t, to, follows(Kind::Write, next, false));
                    }
                }
            }
            for claim in index.reads.of(t) {
                let state = claim.number();
                let writer = states[state as usize].writer;
                if writer != NONE {
                    visit(writer, t, follows(Kind::Read, state, claim.scanned()));
                }
                if let Some(next) = index.next(state) {
                    let to = states[next as usize].writer;
                    if to != t {
                        visit(t, to, follows(Kind::Anti, state, claim.scanned()));
                    }
                }
            }
        }
        for (edges, kind) in [(&self.sessions, Kind::Session), (&self.times, Kind::Ended)] {
            for &(from, to) in edges {
                let kind = if from < index.transactions() { kind } else { Kind::Later };
                visit(from, to, follows(kind, NONE, false));
            }
        }
    }
}

/// Edges from each transaction to the next one of its session. A snapshot may be older than earlier
/// transactions of its session.
fn sessions(index: &Index<'_>, nodes: &mut u32) -> Vec<(u32, u32)> {
    let transactions = &index.history.transactions;
    let of = |t: u32| &transactions[t as usize];
    let mut sequence: Vec<u32> = (0..index.transactions()).collect();
    sequence.sort_by_key(|&t| (of(t).session, of(t).began, of(t).ended));
    let mut edges = Vec::new();
    for session in sequence.chunk_by(|&a, &b| of(a).session == of(b).session) {
        if session.iter().any(|&t| of(t).shown() > of(t).ended) {
            // Of two transactions at one instant, the earlier in the sequence comes first.
            let places: HashMap<u32, usize> = session.iter().copied().zip(0..).collect();
            let ordinary = |t: u32| of(t).snapshot.is_none().then(|| (of(t).began, places[&t]));
            chains(transactions, session, |t, ended| (ended, places[&t]), ordinary, &mut edges, nodes);
            continue;
        }
        // All transactions since the last one that is not on a snapshot, that one included.
        let mut before: Vec<u32> = Vec::new();
        for &t in session {
            if of(t).snapshot.is_none() {
                edges.extend(before.iter().filter(|&&b| of(b).ended <= of(t).began).map(|&b| (b, t)));
                before.clear();
            }
            before.push(t);
        }
    }
    edges
}

/// A transaction must see every transaction that ended before this instant, if that was promised.
pub(crate) fn fresh_from(index: &Index<'_>, promises: &Promises, t: u32) -> Option<u64> {
    let transaction = &index.history.transactions[t as usize];
    match transaction.snapshot {
        None => promises.real_time.then_some(transaction.began),
        // A snapshot cannot promise to show transactions that ended after it began.
        Some(instant) => promises.snapshots.then_some(instant.min(transaction.began)),
    }
}

/// Whether a transaction must come before another because of when it ended.
pub(crate) fn is_before(index: &Index<'_>, promises: &Promises, earlier: u32, later: u32) -> bool {
    let [own, other] = [earlier, later].map(|t| &index.history.transactions[t as usize]);
    fresh_from(index, promises, later).is_some_and(|fresh| own.shown_to(other) < fresh)
}

/// Real-time edges.
fn times(index: &Index<'_>, promises: &Promises, nodes: &mut u32) -> Vec<(u32, u32)> {
    let mut edges = Vec::new();
    if promises.real_time || promises.snapshots {
        let all: Vec<u32> = (0..index.transactions()).collect();
        let begin = |t| fresh_from(index, promises, t);
        chains(&index.history.transactions, &all, |_, ended| ended, begin, &mut edges, nodes);
    }
    edges
}

/// Adds edges from each of `members` to every one whose `begin` lies behind the instant from which it must see
/// the former.
fn chains<K: Ord>(
    transactions: &[Transaction],
    members: &[u32],
    end: impl Fn(u32, u64) -> K,
    begin: impl Fn(u32) -> Option<K>,
    edges: &mut Vec<(u32, u32)>,
    nodes: &mut u32,
) {
    let of = |t: u32| &transactions[t as usize];
    let mut lead = |from: &[u32], instant: fn(&Transaction) -> u64, to: &[u32]| {
        let ends = from.iter().map(|&t| (end(t, instant(of(t))), t)).collect();
        chain(ends, to.iter().filter_map(|&t| begin(t).map(|begin| (begin, t))).collect(), edges, nodes);
    };
    if members.iter().all(|&t| of(t).shown() == of(t).ended) {
        return lead(members, |t| t.ended, members);
    }
    let (grouped, others): (Vec<u32>, Vec<u32>) = members.iter().partition(|t| of(**t).group.is_some());
    lead(members, Transaction::shown, &grouped);
    lead(members, |t| t.ended, &others);
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (number, t) in grouped.iter().filter_map(|&t| of(t).group.map(|group| (group.number, t))) {
        groups.entry(number).or_default().push(t);
    }
    for group in groups.values().filter(|group| group.iter().any(|&t| of(t).shown() > of(t).ended)) {
        lead(group, |t| t.ended, group);
    }
}

/// Adds edges from each of `ends` to the later ones of `begins`, through cuts.
fn chain<K: Ord>(mut ends: Vec<(K, u32)>, mut begins: Vec<(K, u32)>, edges: &mut Vec<(u32, u32)>, nodes: &mut u32) {
    ends.sort_unstable();
    begins.sort_unstable();
    let (mut ends, mut last) = (ends.iter().peekable(), None);
    for (begin, t) in &begins {
        let mut cut = None;
        while let Some((_, ended)) = ends.next_if(|(end, _)| end < begin) {
            edges.push((*ended, *cut.get_or_insert(*nodes)));
        }
        if let Some(cut) = cut {
            edges.extend(last.map(|last| (last, cut)));
            (last, *nodes) = (Some(cut), *nodes + 1);
        }
        edges.extend(last.map(|last| (last, *t)));
    }
}

/// Adjacency, with room for edges that are added and taken back.
#[derive(Debug)]
pub(crate) struct Graph {
    first: Vec<u32>,
    targets: Vec<u32>,
    /// Added edges by source. A vector sorted by use would also do; there are few edges.
    added: HashMap<u32, Vec<u32>>,
}

impl Graph {
    /// A graph of `nodes` nodes. `each` calls its argument once an edge, in the same order both times.
    pub(crate) fn new(nodes: u32, each: impl Fn(&mut dyn FnMut(u32, u32))) -> Graph {
        let mut first = vec![0u32; nodes as usize + 2];
        let mut count = 0u64;
        each(&mut |from, _| {
            first[from as usize + 2] += 1;
            count += 1;
        });
        assert!(count < 1 << 32, "a history has less than 2^32 dependencies");
        for i in 2..first.len() {
            first[i] += first[i - 1];
        }
        let mut targets = vec![0; count as usize];
        each(&mut |from, to| {
            let next = &mut first[from as usize + 1];
            targets[*next as usize] = to;
            *next += 1;
        });
        first.pop();
        Graph { first, targets, added: HashMap::new() }
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// Edges not counting added ones.
    pub(crate) fn edges(&self) -> u64 {
        self.targets.len() as u64
    }

    pub(crate) fn add(&mut self, from: u32, to: u32) {
        self.added.entry(from).or_default().push(to);
    }

    /// Takes back an edge that was added.
    pub(crate) fn remove(&mut self, from: u32, to: u32) {
        let targets = self.added.get_mut(&from).expect("only added edges are removed");
        let at = targets.iter().rposition(|&t| t == to).expect("only added edges are removed");
        targets.remove(at);
        if targets.is_empty() {
            self.added.remove(&from);
        }
    }

    /// The `i`-th successor of a node; `None` past the last.
    #[inline]
    fn successor(&self, node: u32, i: u32) -> Option<u32> {
        let (low, high) = (self.first[node as usize], self.first[node as usize + 1]);
        if i < high - low {
            return Some(self.targets[(low + i) as usize]);
        }
        if self.added.is_empty() {
            return None;
        }
        self.added.get(&node)?.get((i - (high - low)) as usize).copied()
    }

    /// The successors of a node.
    pub(crate) fn successors(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let (low, high) = (self.first[node as usize], self.first[node as usize + 1]);
        let added: &[u32] =
            if self.added.is_empty() { &[] } else { self.added.get(&node).map_or(&[][..], Vec::as_slice) };
        self.targets[low as usize..high as usize].iter().chain(added).copied()
    }

    /// All nodes with every node after its successors, or the smallest strongly connected component of more
    /// than one node. (Tarjan, SIAM J. Comput. 1972, with an explicit stack.)
    pub(crate) fn successors_first(&self) -> Result<Vec<u32>, Vec<u32>> {
        const DONE: u32 = u32::MAX;
        let n = self.nodes() as usize;
        // 0: not visited. DONE: in a finished component. Otherwise the number of the visit, lowered to that of
        // the earliest reachable node on the stack.
        let mut low = vec![0u32; n];
        let mut visits = 0;
        let mut stack: Vec<u32> = Vec::new();
        let mut calls: Vec<(u32, u32, u32)> = Vec::new(); // (node, its visit, next successor)
        let mut finished: Vec<u32> = Vec::with_capacity(n);
        let mut smallest: Option<(usize, usize)> = None; // (nodes, where it ends in `finished`)
        for root in 0..n as u32 {
            if low[root as usize] != 0 {
                continue;
            }
            visits += 1;
            low[root as usize] = visits;
            stack.push(root);
            calls.push((root, visits, 0));
            while let Some((node, visit, next)) = calls.last_mut() {
                let node = *node;
                if let Some(to) = self.successor(node, *next) {
                    *next += 1;
                    if low[to as usize] == 0 {
                        visits += 1;
                        low[to as usize] = visits;
                        stack.push(to);
                        calls.push((to, visits, 0));
                    } else if low[to as usize] != DONE {
                        low[node as usize] = low[node as usize].min(low[to as usize]);
                    }
                    continue;
                }
                let visit = *visit;
                calls.pop();
                if low[node as usize] == visit {
                    let before = finished.len();
                    while let Some(member) = stack.pop() {
                        low[member as usize] = DONE;
                        finished.push(member);
                        if member == node {
                            break;
                        }
                    }
                    let size = finished.len() - before;
                    if size > 1 && smallest.is_none_or(|(least, _)| size < least) {
                        smallest = Some((size, finished.len()));
                    }
                } else if let Some((parent, _, _)) = calls.last() {
                    low[*parent as usize] = low[*parent as usize].min(low[node as usize]);
                }
            }
        }
        match smallest {
            None => Ok(finished),
            Some((size, end)) => Err(finished[end - size..end].to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_base::Rng;

    /// The components agree with reachability on small random graphs.
    #[test]
    fn components_are_mutual_reachability() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let n = rng.range(1, 8) as u32;
            let edges: Vec<(u32, u32)> = (0..rng.below(14))
                .map(|_| (rng.below(n.into()) as u32, rng.below(n.into()) as u32))
                .filter(|(a, b)| a != b)
                .collect();
            let (built, late) = edges.split_at(edges.len() / 2);
            let mut graph = Graph::new(n, |visit| built.iter().for_each(|&(a, b)| visit(a, b)));
            late.iter().for_each(|&(a, b)| graph.add(a, b));
            let mut reach = vec![vec![false; n as usize]; n as usize];
            for _ in 0..n {
                for &(a, b) in &edges {
                    for row in &mut reach {
                        row[b as usize] |= row[a as usize];
                    }
                    reach[a as usize][b as usize] = true;
                }
            }
            let cyclic = (0..n as usize).any(|i| reach[i][i]);
            match graph.successors_first() {
                Ok(sequence) => {
                    assert!(!cyclic, "seed {seed}");
                    let place = |node| sequence.iter().position(|&other| other == node).unwrap();
                    assert!(edges.iter().all(|&(a, b)| place(a) > place(b)), "seed {seed}");
                }
                Err(component) => {
                    assert!(cyclic && component.len() > 1, "seed {seed}");
                    for &a in &component {
                        let mutual = |b: u32| reach[a as usize][b as usize] && reach[b as usize][a as usize];
                        assert!((0..n).all(|b| mutual(b) == component.contains(&b)), "seed {seed}");
                    }
                }
            }
            late.iter().for_each(|&(a, b)| graph.remove(a, b));
            assert!(graph.added.is_empty());
        }
    }
}
