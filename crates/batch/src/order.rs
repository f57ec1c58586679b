//! The order in which transactions commit: a topological order of their graph (Kahn). Among the candidates the
//! one that arrived first goes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::graph::Graph;

/// The transactions that commit, readers before writers. Transactions on cycles, and behind them, are missing.
pub(crate) fn readers_first(graph: &Graph, commits: impl Fn(u32) -> bool) -> Vec<usize> {
    let commits = |vertex: &u32| commits(*vertex);
    let vertices = 0..graph.vertices() as u32;
    let readers = |vertex| graph.before.of(vertex).iter().filter(|reader| commits(reader)).count();
    let mut waits_for: Vec<usize> = vertices.clone().map(readers).collect();
    let is_free = |vertex: &u32| waits_for[*vertex as usize] == 0;
    let mut free: BinaryHeap<_> = vertices.filter(commits).filter(is_free).map(Reverse).collect();
    let mut order = Vec::with_capacity(graph.vertices());
    while let Some(Reverse(vertex)) = free.pop() {
        order.push(vertex as usize);
        for &writer in graph.after.of(vertex).iter().filter(|writer| commits(writer)) {
            waits_for[writer as usize] -= 1;
            if waits_for[writer as usize] == 0 {
                free.push(Reverse(writer));
            }
        }
    }
    order
}
