//! A serial order that agrees with every edge, and stays one while edges are added.
//!
//! The first order is made from the components' order (each node after its successors). A node's rank is the
//! least hint of its own and of all nodes that it must precede. Nodes are sorted by rank, ties as in the
//! components' order; the result agrees with every edge, because ranks never fall along one. The hint is when
//! a transaction ended, so the order is close to the commit order.
//!
//! Adding an edge `from -> to` against the order moves what `to` reaches, up to `from`, behind `from`. If `to`
//! reaches `from`, that is a cycle. (Marchetti-Spaccamela, Nanni, Rohnert: Maintaining a topological order under edge
//! insertions, IPL 1996.)

use crate::graph::Graph;

/// A sequence of all nodes, each before its successors.
#[derive(Debug)]
pub(crate) struct Order {
    sequence: Vec<u32>,
    position: Vec<u32>,
    /// Nodes visited while adding edges, since the beginning.
    visited: u64,
    /// Scratch: marks of nodes reached, and the stack.
    reached: Vec<bool>,
    stack: Vec<u32>,
}

/// The outcome of adding an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Added {
    /// The graph has the edge and the order agrees.
    Yes,
    /// The edge would close a cycle; nothing changed.
    Cycle,
}

impl Order {
    /// An order of the graph's nodes. `successors_first` has each node after its successors. `hints` are
    /// preferred positions, the smallest first; nodes beyond its end have none.
    pub(crate) fn new(graph: &Graph, successors_first: &[u32], hints: &[u32]) -> Order {
        let n = graph.nodes() as usize;
        let mut rank = vec![u32::MAX; n];
        rank[..hints.len()].copy_from_slice(hints);
        let mut sorted: Vec<(u32, u32)> = Vec::with_capacity(n);
        for (i, &node) in successors_first.iter().enumerate() {
            let least = graph.successors(node).map(|to| rank[to as usize]).min().unwrap_or(u32::MAX);
            rank[node as usize] = rank[node as usize].min(least);
            sorted.push((rank[node as usize], (n - i) as u32));
        }
        sorted.sort_unstable();
        let sequence: Vec<u32> = sorted.iter().map(|&(_, i)| successors_first[n - i as usize]).collect();
        let mut position = vec![0; n];
        sequence.iter().enumerate().for_each(|(i, &node)| position[node as usize] = i as u32);
        Order { sequence, position, visited: 0, reached: vec![false; n], stack: Vec::new() }
    }

    /// The nodes in order.
    pub(crate) fn sequence(&self) -> &[u32] {
        &self.sequence
    }

    /// The position of a node.
    pub(crate) fn position(&self, node: u32) -> u32 {
        self.position[node as usize]
    }

    /// Nodes visited while adding edges: the work done.
    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }

    /// Adds an edge to the graph and makes the order agree.
    pub(crate) fn add(&mut self, graph: &mut Graph, from: u32, to: u32) -> Added {
        debug_assert_ne!(from, to);
        let (high, low) = (self.position(from), self.position(to));
        if low > high {
            graph.add(from, to);
            return Added::Yes;
        }
        let Some(found) = self.reach(graph, to, from, u64::MAX) else { return Added::Cycle };
        // The reached nodes go behind `from`, in the order they had; the others close up.
        let window = low as usize..=high as usize;
        self.visited += window.clone().count() as u64;
        let mut behind: Vec<u32> = Vec::with_capacity(found.len());
        let mut next = low as usize;
        for i in window {
            let node = self.sequence[i];
            if self.reached[node as usize] {
                behind.push(node);
            } else {
                self.sequence[next] = node;
                next += 1;
            }
        }
        self.sequence[next..=high as usize].copy_from_slice(&behind);
        for i in low..=high {
            self.position[self.sequence[i as usize] as usize] = i;
        }
        found.iter().for_each(|&node| self.reached[node as usize] = false);
        graph.add(from, to);
        Added::Yes
    }

    /// Whether an edge `from -> to` is known to close a cycle; looks at no more than `visits` nodes.
    pub(crate) fn closes_cycle(&mut self, graph: &Graph, from: u32, to: u32, visits: u64) -> bool {
        if self.position(to) > self.position(from) {
            return false;
        }
        match self.reach(graph, to, from, visits) {
            None => true,
            Some(found) => {
                found.iter().for_each(|&node| self.reached[node as usize] = false);
                false
            }
        }
    }

    /// The nodes before `goal` that `start` reaches, marked as reached. `None`, without marks, if `start`
    /// reaches `goal`. After `visits` nodes it stops with those found so far.
    fn reach(&mut self, graph: &Graph, start: u32, goal: u32, visits: u64) -> Option<Vec<u32>> {
        let limit = self.position(goal);
        let mut found = vec![start];
        self.reached[start as usize] = true;
        self.stack.clear();
        self.stack.push(start);
        let mut cycle = false;
        'search: while let Some(node) = self.stack.pop() {
            if found.len() as u64 > visits {
                break;
            }
            for to in graph.successors(node) {
                if to == goal {
                    cycle = true;
                    break 'search;
                }
                if self.position[to as usize] < limit && !self.reached[to as usize] {
                    self.reached[to as usize] = true;
                    found.push(to);
                    self.stack.push(to);
                }
            }
        }
        self.visited += found.len() as u64;
        if cycle {
            found.iter().for_each(|&node| self.reached[node as usize] = false);
            return None;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_base::Rng;

    #[test]
    fn the_order_agrees_with_every_edge_added_and_refuses_cycles() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let n = rng.range(2, 12) as u32;
            let mut graph = Graph::new(n, |_| {});
            let first = graph.successors_first().unwrap();
            let hints: Vec<u32> = (0..n).map(|_| rng.below(100) as u32).collect();
            let mut order = Order::new(&graph, &first, &hints);
            assert!(order.sequence().is_sorted_by_key(|&node| hints[node as usize]), "hints are followed, seed {seed}");
            let mut edges = Vec::new();
            for _ in 0..30 {
                let (from, to) = (rng.below(n.into()) as u32, rng.below(n.into()) as u32);
                if from == to {
                    continue;
                }
                let cycle = order.closes_cycle(&graph, from, to, u64::MAX);
                match order.add(&mut graph, from, to) {
                    Added::Yes => edges.push((from, to)),
                    Added::Cycle => {
                        assert!(cycle, "seed {seed}");
                        graph.add(from, to);
                        assert!(graph.successors_first().is_err(), "seed {seed}");
                        graph.remove(from, to);
                    }
                }
                assert!(edges.iter().all(|&(a, b)| order.position(a) < order.position(b)), "seed {seed}");
                assert!((0..n).all(|i| order.sequence()[order.position(i) as usize] == i), "seed {seed}");
            }
            let hints: Vec<u32> = (0..n).rev().collect();
            let order = Order::new(&graph, &graph.successors_first().unwrap(), &hints);
            assert!(edges.iter().all(|&(a, b)| order.position(a) < order.position(b)), "seed {seed}");
        }
    }
}
