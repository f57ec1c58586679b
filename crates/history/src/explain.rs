//! From a strongly connected component to a short cycle, its name and its explanation.
//!
//! The worst class is looked for first, because it says most about the bug. The classes are, in this order, a cycle of
//! writes alone (G0), one of writes and reads (G1c), and one with one anti-dependency (G-single). Then come a cycle of
//! dependencies (G2), and one that needs a promised order. Within a class the shortest cycle is taken, as far as a
//! bound on the work allows.

use crate::anomaly::{Anomaly, Dependency, Step, Violation};
use crate::graph::{Edge, Edges, Graph, Kind};
use crate::index::Index;
use crate::text::version;
use std::collections::{HashMap, VecDeque};

/// Bound on the edges visited in search of a shorter cycle.
const WORK_MAX: u64 = 20_000_000;

/// Names and describes a cycle of `component`, a strongly connected component of `edges` and `added`.
pub(crate) fn explain(
    index: &Index<'_>,
    edges: &Edges<'_, '_>,
    added: &[Edge],
    component: &[u32],
    searched: bool,
) -> Violation {
    let local: HashMap<u32, u32> = component.iter().enumerate().map(|(i, &node)| (node, i as u32)).collect();
    let mut inside: Vec<Edge> = Vec::new();
    let mut member = vec![false; edges.nodes() as usize];
    component.iter().for_each(|&node| member[node as usize] = true);
    edges.each(|from, to, reason| {
        if member[from as usize] && member[to as usize] {
            inside.push(Edge { from, to, reason });
        }
    });
    inside.extend(added.iter().filter(|edge| member[edge.from as usize] && member[edge.to as usize]));
    let localized =
        inside.iter().map(|edge| Edge { from: local[&edge.from], to: local[&edge.to], reason: edge.reason });
    let cycle = worst(component.len() as u32, &localized.collect::<Vec<Edge>>());
    let global = |node: u32| component[node as usize];
    let cycle: Vec<Edge> =
        cycle.iter().map(|e| Edge { from: global(e.from), to: global(e.to), reason: e.reason }).collect();
    describe(index, &inside, &cycle, searched)
}

/// A cycle of the worst class in the component.
fn worst(nodes: u32, edges: &[Edge]) -> Vec<Edge> {
    use Kind::{Anti, Gone, Read, Unseen, Write};
    let writes = |kind| kind == Write;
    let forward = |kind| matches!(kind, Write | Read | Gone);
    let dependencies = |kind| matches!(kind, Write | Read | Gone | Anti | Unseen);
    let of = |wanted: &dyn Fn(Kind) -> bool| -> Vec<Edge> {
        edges.iter().filter(|edge| wanted(edge.reason.kind)).copied().collect()
    };
    for class in [&writes as &dyn Fn(Kind) -> bool, &forward] {
        let class = of(class);
        if let Some(cycle) = shortest(nodes, &class, &class) {
            return cycle;
        }
    }
    // One anti-dependency, closed by a path without any.
    let anti: Vec<Edge> = of(&|kind| dependencies(kind) && !forward(kind));
    if let Some(cycle) = shortest(nodes, &anti, &of(&forward)) {
        return cycle;
    }
    let all = of(&dependencies);
    shortest(nodes, &all, &all)
        .or_else(|| shortest(nodes, edges, edges))
        .expect("a strongly connected component has a cycle")
}

/// The shortest cycle that starts with one of `starts` and continues along `edges`. Steps from a point in time
/// are free.
fn shortest(nodes: u32, starts: &[Edge], edges: &[Edge]) -> Option<Vec<Edge>> {
    if edges.is_empty() && starts.is_empty() {
        return None;
    }
    let both = || starts.iter().chain(edges);
    let graph = Graph::new(nodes, |visit| both().for_each(|edge| visit(edge.from, edge.to)));
    // There is rarely one: find that out in linear time.
    graph.successors_first().err()?;
    let mut first = vec![0u32; nodes as usize + 1];
    edges.iter().for_each(|edge| first[edge.from as usize + 1] += 1);
    (0..nodes as usize).for_each(|i| first[i + 1] += first[i]);
    let mut sorted: Vec<Edge> = edges.to_vec();
    sorted.sort_by_key(|edge| edge.from);
    let cost = |edge: &Edge| u32::from(edge.reason.kind != Kind::Later);
    let mut best: Option<(u32, Vec<Edge>)> = None;
    let mut work = 0;
    // Breadth first with free steps; `via[node]` is (round, distance, edge taken) and stale in other rounds.
    let mut via: Vec<(u32, u32, Option<Edge>)> = vec![(0, 0, None); nodes as usize];
    for (round, start) in (1..).zip(starts) {
        let mut queue = VecDeque::from([(start.to, cost(start))]);
        via[start.to as usize] = (round, cost(start), None);
        let limit = best.as_ref().map_or(u32::MAX, |(length, _)| *length);
        while let Some((node, distance)) = queue.pop_front() {
            if distance > via[node as usize].1 || distance >= limit {
                continue;
            }
            if node == start.from {
                let mut cycle = Vec::new();
                let mut at = node;
                while let (_, _, Some(edge)) = via[at as usize] {
                    cycle.push(edge);
                    at = edge.from;
                }
                cycle.push(*start);
                cycle.reverse();
                best = Some((distance, cycle));
                break;
            }
            for edge in &sorted[first[node as usize] as usize..first[node as usize + 1] as usize] {
                work += 1;
                let reached = distance + cost(edge);
                let (seen, least, _) = via[edge.to as usize];
                if seen != round || reached < least {
                    via[edge.to as usize] = (round, reached, Some(*edge));
                    if reached == distance {
                        queue.push_front((edge.to, reached));
                    } else {
                        queue.push_back((edge.to, reached));
                    }
                }
            }
        }
        if best.as_ref().is_some_and(|(length, _)| *length <= 2) || (work > WORK_MAX && best.is_some()) {
            break;
        }
    }
    best.map(|(_, cycle)| cycle)
}

/// Describes a cycle in words. `inside` holds all edges between its transactions, from which the best name is
/// chosen.
fn describe(index: &Index<'_>, inside: &[Edge], cycle: &[Edge], searched: bool) -> Violation {
    let n = index.transactions();
    // Start at a transaction, and treat a path through points in time as one step.
    let start = cycle.iter().position(|edge| edge.from < n).expect("time alone has no cycle");
    let mut hops: Vec<Edge> = Vec::new();
    for i in 0..cycle.len() {
        let edge = cycle[(start + i) % cycle.len()];
        match hops.last_mut() {
            Some(last) if last.to >= n => last.to = edge.to,
            _ => hops.push(edge),
        }
    }
    let anomaly = name(index, inside, &hops);
    let mut transactions: Vec<u64> = hops.iter().map(|hop| index.id(hop.from)).collect();
    transactions.sort_unstable();
    transactions.dedup();
    let steps = hops.iter().map(|hop| step(index, hop)).collect();
    let subject = if transactions.len() == 1 { "one transaction has" } else { "these transactions have" };
    let note = if searched { ", wherever absent rows are placed; one of the cycles" } else { "" };
    Violation { anomaly, cycle: steps, transactions, text: format!("{subject} no serial order{note}") }
}

fn name(index: &Index<'_>, inside: &[Edge], hops: &[Edge]) -> Anomaly {
    let kinds = |wanted: &[Kind]| hops.iter().filter(|hop| wanted.contains(&hop.reason.kind)).count();
    let anti = kinds(&[Kind::Anti, Kind::Unseen]);
    if kinds(&[Kind::Ended]) > 0 {
        return if anti > 0 { Anomaly::StaleRead } else { Anomaly::RealTimeOrder };
    }
    if kinds(&[Kind::Session]) > 0 {
        return Anomaly::SessionOrder;
    }
    if anti == 0 {
        return if kinds(&[Kind::Write]) == hops.len() {
            Anomaly::DirtyWrite
        } else {
            Anomaly::CircularInformationFlow
        };
    }
    let live = |hop: &Edge| index.states[hop.reason.state as usize].live();
    // An absence in a range that ended: the scan did not see an insert.
    let predicate = |hop: &&Edge| {
        hop.reason.scanned && (hop.reason.kind == Kind::Unseen || hop.reason.kind == Kind::Anti && !live(hop))
    };
    if hops.iter().any(|hop| predicate(&hop)) {
        return Anomaly::Phantom;
    }
    if anti > 1 {
        let reads_only = |hop: &Edge| index.history.transactions[hop.from as usize].writes.is_empty();
        return if hops.iter().any(reads_only) { Anomaly::ReadOnlyAnomaly } else { Anomaly::WriteSkew };
    }
    // One anti-dependency: on which key, and does the way back lead along the same key?
    let key = |hop: &Edge| index.states[hop.reason.state as usize].key();
    let single = hops.iter().find(|hop| matches!(hop.reason.kind, Kind::Anti | Kind::Unseen));
    let single = single.map(key).expect("counted above");
    let also = |hop: &Edge, kinds: &[Kind]| {
        let parallel = |edge: &&Edge| (edge.from, edge.to) == (hop.from, hop.to) && kinds.contains(&edge.reason.kind);
        inside.iter().filter(parallel).any(|edge| key(edge) == single)
    };
    let back: Vec<&Edge> = hops.iter().filter(|hop| !matches!(hop.reason.kind, Kind::Anti | Kind::Unseen)).collect();
    if back.iter().all(|hop| also(hop, &[Kind::Write])) {
        Anomaly::LostUpdate
    } else if back.iter().all(|hop| also(hop, &[Kind::Write, Kind::Read, Kind::Gone])) {
        Anomaly::FuzzyRead
    } else {
        Anomaly::ReadSkew
    }
}

/// One step of a cycle, in words.
fn step(index: &Index<'_>, hop: &Edge) -> Step {
    let (a, b) = (index.id(hop.from), index.id(hop.to));
    let reason = hop.reason;
    let known = |state: u32| {
        let state = index.states[state as usize];
        (state.live(), index.name(state.key()), version(state.tid))
    };
    let scanned = if reason.scanned { " in a scan" } else { "" };
    let wrote = |live: bool| if live { "wrote" } else { "deleted" };
    let (dependency, text) = match reason.kind {
        Kind::Write => {
            let (_, name, before) = known(reason.state - 1);
            let (live, _, after) = known(reason.state);
            let how = if live { "overwrote" } else { "deleted" };
            (Dependency::Write, format!("T{a} wrote {name} at version {before}, which T{b} {how} at version {after}"))
        }
        Kind::Read => {
            let (live, name, at) = known(reason.state);
            let found = if live { "read" } else { "found gone" };
            let wrote = wrote(live);
            (Dependency::Read, format!("T{a} {wrote} {name} at version {at}, which T{b} {found}{scanned}"))
        }
        Kind::Gone => {
            let (_, name, at) = known(reason.state);
            (Dependency::Read, format!("T{a} deleted {name} at version {at}, and T{b} did not find it{scanned}"))
        }
        Kind::Anti => {
            let (live, name, at) = known(reason.state);
            let (replaced, _, after) = known(reason.state + 1);
            let how = if replaced { "overwrote" } else { "deleted" };
            if live {
                let text = format!("T{a} read {name} at version {at}{scanned}, which T{b} {how} at version {after}");
                (Dependency::Anti, text)
            } else {
                let dependency = if reason.scanned { Dependency::PredicateAnti } else { Dependency::Anti };
                let since = if at == "0" { String::new() } else { format!(" (deleted at version {at})") };
                let wrote = wrote(replaced);
                let text = format!("T{a} did not find {name}{since}{scanned}, which T{b} {wrote} at version {after}");
                (dependency, text)
            }
        }
        Kind::Unseen => {
            let (_, name, at) = known(reason.state);
            let dependency = if reason.scanned { Dependency::PredicateAnti } else { Dependency::Anti };
            (dependency, format!("T{a} did not find {name}{scanned}, which T{b} inserted at version {at}"))
        }
        Kind::Session => (Dependency::Session, format!("T{a} came before T{b} in their session")),
        Kind::Ended | Kind::Later => {
            let [earlier, later] = [hop.from, hop.to].map(|t| &index.history.transactions[t as usize]);
            let shown = earlier.shown_to(later);
            let ended = if shown == earlier.ended { "ended" } else { "was shown to other groups" };
            let text = match later.snapshot {
                Some(instant) => format!("T{a} {ended} (at {shown}) before the snapshot of T{b} (as of {instant})"),
                None => format!("T{a} {ended} (at {shown}) before T{b} began (at {})", later.began),
            };
            (Dependency::RealTime, text)
        }
    };
    let text = format!("{text}, so T{a} is before T{b}");
    Step { from: a, to: b, dependency, text }
}
