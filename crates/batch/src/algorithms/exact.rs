//! Exact search: the set of the least cost for a strongly connected component.
//!
//! Branch and bound. Some vertex of a shortest cycle must be removed: its vertices are tried one after
//! another, and those tried before are kept. Cycles that share no vertex give a lower bound on the cost: each
//! loses at least its cheapest vertex. The search begins with SCC greedy's set. It ends with the best set so far when
//! its steps are used up, so it is never worse.
//!
//! A component fits into the bits of a word. One step takes O(V³ / 64), and there are 2^V steps at worst. So
//! [`Settings::search_steps_max`](crate::Settings::search_steps_max) bounds them.

use std::collections::HashMap;

use super::{Algorithm, Search, hybrid, scc_greedy};
use crate::EXACT_MAX;
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm =
    Algorithm { name: "exact", about: "of components of at most 64, the smallest set", solve };

fn solve(residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    hybrid::up_to(EXACT_MAX, residual, search)
}

/// The feedback vertex set of the least cost of a component of `residual`, of at most [`EXACT_MAX`] vertices.
pub(super) fn search(residual: &Residual<'_>, search: &mut Search<'_>, component: &[u32]) -> Vec<u32> {
    assert!(component.len() <= EXACT_MAX, "a component fits into a word");
    let mut best = scc_greedy::solve(&mut residual.only(component), search);
    let mut least = best.iter().map(|&vertex| u128::from(search.cost(vertex))).sum();
    let graph = Small::new(residual, search, component);
    let mut open = vec![Partial { left: u64::MAX >> (64 - component.len()), kept: 0, cut: 0, cost: 0 }];
    while search.steps > 0
        && let Some(partial) = open.pop()
    {
        search.steps -= 1;
        residual.look(component.len());
        let left = graph.trimmed(partial.left);
        let Some(cycle) = graph.shortest_cycle(left) else {
            if partial.cost < least {
                least = partial.cost;
                best = bits(partial.cut).map(|i| component[i]).collect();
            }
            continue;
        };
        if partial.cost + graph.bound(left, partial.kept, cycle) < least {
            let first = open.len();
            graph.branch(Partial { left, ..partial }, cycle, &mut open);
            open[first..].reverse();
        }
    }
    best
}

/// A decision about some of the vertices.
#[derive(Clone, Copy)]
struct Partial {
    /// Vertices that are not cut and may be on cycles.
    left: u64,
    /// Vertices that will not be cut.
    kept: u64,
    cut: u64,
    /// The cost of the vertices that are cut.
    cost: u128,
}

/// A component, in words of bits: vertex `i` is bit `i`.
struct Small {
    after: Vec<u64>,
    before: Vec<u64>,
    costs: Vec<u64>,
}

impl Small {
    fn new(residual: &Residual<'_>, search: &Search<'_>, component: &[u32]) -> Small {
        let place: HashMap<u32, usize> = component.iter().enumerate().map(|(i, &vertex)| (vertex, i)).collect();
        let [mut after, mut before] = [(); 2].map(|()| vec![0; component.len()]);
        for (i, &vertex) in component.iter().enumerate() {
            for to in residual.after(vertex) {
                after[i] |= 1 << place[&to];
                before[place[&to]] |= 1 << i;
            }
        }
        Small { after, before, costs: component.iter().map(|&vertex| search.cost(vertex)).collect() }
    }

    /// The vertices of `left` that remain after trimming those without predecessors or successors: if there
    /// are any, there is a cycle.
    fn trimmed(&self, mut left: u64) -> u64 {
        loop {
            let bare = |&i: &usize| self.after[i] & left == 0 || self.before[i] & left == 0;
            let trimmed = bits(left).filter(bare).fold(0, |trimmed, i| trimmed | 1 << i);
            if trimmed == 0 {
                return left;
            }
            left &= !trimmed;
        }
    }

    /// The vertices of a shortest cycle, found breadth-first from each vertex.
    fn shortest_cycle(&self, mut left: u64) -> Option<u64> {
        let both = |i: usize| self.after[i] & self.before[i] & left;
        if let Some(i) = bits(left).find(|&i| both(i) != 0) {
            return Some(1 << i | 1 << both(i).trailing_zeros());
        }
        let mut shortest = None;
        let mut layers = Vec::new();
        for root in bits(left) {
            layers.clear();
            let (mut layer, mut reached) = (1 << root, 0);
            while layer != 0 && shortest.is_none_or(|cycle: u64| layers.len() + 1 < cycle.count_ones() as usize) {
                layers.push(layer);
                let next = bits(layer).fold(0, |next, i| next | self.after[i]) & left;
                if next & 1 << root != 0 {
                    let mut at = root;
                    let steps = layers[1..].iter().rev().map(|layer| {
                        at = (layer & self.before[at]).trailing_zeros() as usize;
                        1 << at
                    });
                    shortest = Some(steps.fold(1 << root, |cycle, step: u64| cycle | step));
                    break;
                }
                layer = next & !reached;
                reached |= next;
            }
            left &= !(1 << root);
        }
        shortest
    }

    /// A lower bound on the further cost of a partial solution: `cycle` loses a vertex, and so do other
    /// disjoint cycles.
    fn bound(&self, mut left: u64, kept: u64, mut cycle: u64) -> u128 {
        let mut bound = 0;
        loop {
            let Some(cheapest) = bits(cycle & !kept).map(|i| self.costs[i]).min() else { return u128::MAX >> 1 };
            bound += u128::from(cheapest);
            left &= !cycle;
            match self.shortest_cycle(left) {
                Some(next) => cycle = next,
                None => return bound,
            }
        }
    }

    /// Cuts each vertex of a cycle that is not kept, and keeps those before it; the most promising first.
    fn branch(&self, partial: Partial, cycle: u64, open: &mut Vec<Partial>) {
        let Partial { left, mut kept, cut, cost } = partial;
        let degrees = |i: usize| (self.after[i] & left).count_ones() * (self.before[i] & left).count_ones();
        let mut choices: Vec<usize> = bits(cycle & !kept).collect();
        choices.sort_by_key(|&i| std::cmp::Reverse(degrees(i)));
        for i in choices {
            let vertex = 1 << i;
            open.push(Partial {
                left: left & !vertex,
                kept,
                cut: cut | vertex,
                cost: cost + u128::from(self.costs[i]),
            });
            kept |= vertex;
            if self.trimmed(kept & left) != 0 {
                break;
            }
        }
    }
}

/// The numbers of the bits that are set, ascending.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        bit
    })
}
