//! The rest of a graph while a feedback vertex set is being found, divided into parts that no cycle joins.
//!
//! Invariant: an edge is left if its ends are in the same part, and degrees count the edges that are left.

use crate::graph::Graph;

/// The part of removed vertices.
const GONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Residual<'g> {
    graph: &'g Graph,
    /// By vertex, its part, or [`GONE`].
    part: Vec<u32>,
    ins: Vec<u32>,
    outs: Vec<u32>,
    /// Vertices without incoming or without outgoing edges, which are to be trimmed.
    bare: Vec<u32>,
    /// The next part's number.
    parts: u32,
    /// For [`Residual::components`]: by vertex, 0 or the number of its visit, lowered to that of the earliest
    /// vertex on the stack that it reaches.
    low: Vec<u32>,
}

impl<'g> Residual<'g> {
    /// The whole graph, as one part.
    pub(crate) fn new(graph: &'g Graph) -> Residual<'g> {
        let n = graph.vertices();
        let [part, ins, outs, low] = std::array::from_fn(|_| vec![0; n]);
        let mut residual = Residual { graph, part, ins, outs, bare: Vec::new(), parts: 1, low };
        (0..n as u32).for_each(|vertex| residual.count(vertex));
        residual
    }

    /// The graph of these vertices alone, which are one part.
    pub(crate) fn only(&self, vertices: &[u32]) -> Residual<'g> {
        self.graph.look(self.part.len());
        let mut only = self.clone();
        only.part.fill(GONE);
        vertices.iter().for_each(|&vertex| only.part[vertex as usize] = self.part[vertex as usize]);
        only
    }

    /// Counts further visits of vertices and edges.
    pub(crate) fn look(&self, vertices_and_edges: usize) {
        self.graph.look(vertices_and_edges);
    }

    pub(crate) fn is_left(&self, vertex: u32) -> bool {
        self.part[vertex as usize] != GONE
    }

    /// The vertices that are left.
    pub(crate) fn vertices(&self) -> Vec<u32> {
        (0..self.part.len() as u32).filter(|&vertex| self.is_left(vertex)).collect()
    }

    /// The number of edges that end at a vertex, and of those that begin there.
    pub(crate) fn degrees(&self, vertex: u32) -> (u32, u32) {
        (self.ins[vertex as usize], self.outs[vertex as usize])
    }

    /// The writers of what a vertex read, within its part.
    pub(crate) fn after(&self, vertex: u32) -> impl Iterator<Item = u32> {
        self.within(vertex, self.graph.after.of(vertex))
    }

    /// The readers of what a vertex writes, within its part.
    fn before(&self, vertex: u32) -> impl Iterator<Item = u32> {
        self.within(vertex, self.graph.before.of(vertex))
    }

    fn within(&self, vertex: u32, others: &'g [u32]) -> impl Iterator<Item = u32> {
        let part = self.part[vertex as usize];
        others.iter().copied().filter(move |&other| self.part[other as usize] == part)
    }

    /// Removes a vertex.
    pub(crate) fn remove(&mut self, vertex: u32) {
        let part = std::mem::replace(&mut self.part[vertex as usize], GONE);
        self.look_at(vertex);
        let ends = [(&self.graph.after, &mut self.ins), (&self.graph.before, &mut self.outs)];
        for (others, degrees) in ends {
            for &other in others.of(vertex).iter().filter(|&&other| self.part[other as usize] == part) {
                degrees[other as usize] -= 1;
                if degrees[other as usize] == 0 {
                    self.bare.push(other);
                }
            }
        }
    }

    /// Removes vertices without incoming or without outgoing edges until there are none: they are on no cycle.
    /// O(V + E) in all, because a vertex and its edges are removed once (§4).
    pub(crate) fn trim(&mut self) {
        while let Some(vertex) = self.bare.pop() {
            if self.is_left(vertex) {
                self.remove(vertex);
            }
        }
    }

    /// Makes each strongly connected component of these vertices, which are one part, a part of its own.
    /// Components of one vertex are removed: they are on no cycle. O(V + E) of the part.
    pub(crate) fn split(&mut self, vertices: &[u32]) -> Vec<Vec<u32>> {
        let mut components = self.components(vertices);
        for component in &components {
            let part = if component.len() == 1 { GONE } else { self.parts };
            self.parts += 1;
            component.iter().for_each(|&vertex| self.part[vertex as usize] = part);
        }
        components.retain(|component| component.len() > 1);
        components.iter().flatten().for_each(|&vertex| self.count(vertex));
        components
    }

    /// A vertex and its edges are looked at.
    fn look_at(&self, vertex: u32) {
        self.graph.look(1 + self.graph.before.of(vertex).len() + self.graph.after.of(vertex).len());
    }

    fn count(&mut self, vertex: u32) {
        self.look_at(vertex);
        let (ins, outs) = (self.before(vertex).count() as u32, self.after(vertex).count() as u32);
        (self.ins[vertex as usize], self.outs[vertex as usize]) = (ins, outs);
        if ins == 0 || outs == 0 {
            self.bare.push(vertex);
        }
    }

    /// The strongly connected components of some vertices, all of one part (Tarjan, SIAM J. Comput. 1972,
    /// with an explicit stack).
    fn components(&mut self, vertices: &[u32]) -> Vec<Vec<u32>> {
        const DONE: u32 = u32::MAX;
        let (graph, part, low) = (self.graph, &self.part, &mut self.low);
        vertices.iter().for_each(|&vertex| low[vertex as usize] = 0);
        let (mut components, mut stack, mut visits) = (Vec::new(), Vec::new(), 0);
        let mut calls = Vec::new(); // (vertex, its visit, successors to go)
        for &root in vertices {
            let mut enter = Some(root).filter(|&root| low[root as usize] == 0);
            loop {
                if let Some(vertex) = enter.take() {
                    visits += 1;
                    graph.look(1 + graph.after.of(vertex).len());
                    low[vertex as usize] = visits;
                    stack.push(vertex);
                    calls.push((vertex, visits, graph.after.of(vertex).iter()));
                }
                let Some((vertex, visit, successors)) = calls.last_mut() else { break };
                let (vertex, visit) = (*vertex, *visit);
                if let Some(&to) = successors.find(|&&to| part[to as usize] == part[vertex as usize]) {
                    match low[to as usize] {
                        0 => enter = Some(to),
                        DONE => {}
                        reached => low[vertex as usize] = low[vertex as usize].min(reached),
                    }
                    continue;
                }
                calls.pop();
                if low[vertex as usize] == visit {
                    let first = stack.iter().rposition(|&member| member == vertex).expect("it is on the stack");
                    let component = stack.split_off(first);
                    component.iter().for_each(|&member| low[member as usize] = DONE);
                    components.push(component);
                } else if let Some((parent, ..)) = calls.last() {
                    low[*parent as usize] = low[*parent as usize].min(low[vertex as usize]);
                }
            }
        }
        components
    }
}
