//! Replaying a serial order, and moving transactions until every absence holds in it.
//!
//! A reader that did not find a key cannot stand, in any serial order, between an insert of the key and the
//! next delete. So a replay in which the reader finds the key yields a clause that every serial order
//! satisfies. It is: *the reader comes before that insert, or after that delete*. If every order that satisfies the
//! clauses fails, no serial order exists. If a replay finds no such key, its order explains the history. Clauses come
//! from replays only, so dead keys cost nothing.
//!
//! A clause is forced if the graph rules out one of its sides. Otherwise the side that moves the reader less
//! is tried first. When a later clause has no side left, the search forgets the decisions on which the clause
//! does not depend. It then reverses the last decision on which the clause depends (backjumping). The work is
//! bounded. Beyond the bound there is no verdict, which is an error like a violation; it states how many
//! absences the last replay did not explain.

use crate::Promises;
use crate::anomaly::{Anomaly, Violation};
use crate::bits::Bits;
use crate::graph::{Edge, Graph, Kind, Reason, is_before};
use crate::index::{Index, NONE};
use crate::order::{Added, Order};
use crate::text::version;
use std::collections::HashMap;

/// A bound on the work of [`explain`] of some tens of seconds.
pub(crate) const WORK_MAX: u64 = 1 << 30;
/// Nodes visited to find out whether a clause is forced. Giving up early costs a superfluous decision, nothing
/// else.
const PROBE_MAX: u64 = 10_000;
/// Clauses taken from one replay.
const CLAUSES_PER_REPLAY: usize = 1 << 20;

/// A replay in which a reader finds a row that it had not found.
#[derive(Clone, Copy, Debug)]
struct Mismatch {
    reader: u32,
    /// The live state in the replay.
    state: u32,
    scanned: bool,
}

/// One side of a clause that was taken.
#[derive(Clone, Copy, Debug)]
struct Choice {
    clause: Mismatch,
    edge: Edge,
    /// The side to try next; `None` if the choice was forced, by the graph or because the other side led nowhere.
    other: Option<Edge>,
    /// Whether the other side led nowhere.
    turned: bool,
}

/// The order, and the work that it took.
#[derive(Debug)]
pub(crate) struct Explained {
    /// Clauses that were needed.
    pub(crate) clauses: u64,
    /// How many of the satisfied clauses either side could have satisfied.
    pub(crate) ambiguous: u64,
}

/// Why there is no order.
#[derive(Debug)]
pub(crate) enum Contradiction {
    /// These edges and the graph's close a cycle. `searched`: other choices closed cycles too.
    Cycle { added: Vec<Edge>, searched: bool },
    /// A claim is wrong by itself, or the bound on work was reached before an order was found.
    WrongClaim(Violation),
}

/// Moves transactions until a replay of `order` explains every absence, or the work (nodes visited and
/// operations replayed) exceeds `work_max`.
pub(crate) fn explain(
    index: &Index<'_>,
    promises: &Promises,
    graph: &mut Graph,
    order: &mut Order,
    work_max: u64,
) -> Result<Explained, Contradiction> {
    let operations = index.states.len() as u64 + u64::from(index.transactions());
    let mut search =
        Search { index, promises, graph, order, trail: Vec::new(), pending: Vec::new(), lifetimes: HashMap::new() };
    let mut mismatches = replay(index, search.order.sequence(), Depth::Reads);
    let (mut clauses, mut replayed) = (0, operations);
    while !mismatches.is_empty() && replayed + search.order.visited() <= work_max {
        // Clauses hold in every serial order, so the clauses of reversed decisions join the others.
        search.pending = mismatches;
        while let Some(clause) = search.pending.pop().filter(|_| replayed + search.order.visited() <= work_max) {
            clauses += 1;
            search.satisfy(clause)?;
        }
        mismatches = replay(index, search.order.sequence(), Depth::Absences);
        replayed += operations;
    }
    if clauses > 0 {
        replay(index, search.order.sequence(), Depth::Reads);
    }
    let ambiguous = search.trail.iter().filter(|choice| choice.other.is_some()).count() as u64;
    match mismatches.first() {
        None => Ok(Explained { clauses, ambiguous }),
        Some(first) => Err(Contradiction::WrongClaim(undecided(index, first, mismatches.len(), clauses))),
    }
}

/// The violation for absences that the bound on work left open.
fn undecided(index: &Index<'_>, first: &Mismatch, unexplained: usize, clauses: u64) -> Violation {
    let (id, name) = (index.id(first.reader), index.name(index.states[first.state as usize].key()));
    let text = format!(
        "{unexplained} absences are neither explained nor refuted within the bound on work ({clauses} clauses), \
         the first of them that T{id} did not find {name}"
    );
    Violation::of_claim(Anomaly::Undecided, vec![id], text)
}

struct Search<'a, 'h> {
    index: &'a Index<'h>,
    promises: &'a Promises,
    graph: &'a mut Graph,
    order: &'a mut Order,
    trail: Vec<Choice>,
    /// Clauses to be satisfied.
    pending: Vec<Mismatch>,
    /// By key, the first and last state of the lifetime that was looked up last.
    lifetimes: HashMap<u32, (u32, u32)>,
}

impl Search<'_, '_> {
    /// Adds an edge that satisfies a clause; a later clause may reverse it.
    fn satisfy(&mut self, mismatch: Mismatch) -> Result<(), Contradiction> {
        let reader = mismatch.reader;
        let (insert, delete) = self.lifetime(mismatch.state);
        let states = &self.index.states;
        let side = |kind, state: u32| {
            let writer = states[state as usize].writer;
            let (from, to) = if kind == Kind::Unseen { (reader, writer) } else { (writer, reader) };
            let reason = Reason { kind, state, scanned: mismatch.scanned };
            (writer != reader).then_some(Edge { from, to, reason })
        };
        let before = insert.and_then(|state| side(Kind::Unseen, state));
        let after = delete.and_then(|state| side(Kind::Gone, state));
        let distance = |edge: Edge| self.order.position(edge.from).abs_diff(self.order.position(edge.to));
        let (first, second) = match (before, after) {
            (Some(before), Some(after)) if distance(after) < distance(before) => (after, Some(before)),
            (Some(before), after) => (before, after),
            (None, Some(after)) => (after, None),
            (None, None) => return Err(Contradiction::WrongClaim(self.always_there(mismatch))),
        };
        // Satisfied meanwhile, by a clause of the same replay.
        let holds = |edge: Edge| self.order.position(edge.from) < self.order.position(edge.to);
        if holds(first) || second.is_some_and(holds) {
            return Ok(());
        }
        // Checked before the first side is taken, because that edge may itself rule out the second side.
        let other = second.filter(|&other| !self.ruled_out(other));
        if self.order.add(self.graph, first.from, first.to) == Added::Yes {
            self.trail.push(Choice { clause: mismatch, edge: first, other, turned: false });
            return Ok(());
        }
        if let Some(second) = other
            && self.order.add(self.graph, second.from, second.to) == Added::Yes
        {
            self.trail.push(Choice { clause: mismatch, edge: second, other: None, turned: false });
            return Ok(());
        }
        self.undo(mismatch, before, after)
    }

    /// Both sides of a clause would close a cycle: undoes decisions down to one on which the cycles depend,
    /// and reverses that one.
    fn undo(&mut self, clause: Mismatch, before: Option<Edge>, after: Option<Edge>) -> Result<(), Contradiction> {
        self.pending.push(clause);
        // Either side would do as the reason; the side that did not see an insert reads better.
        let mut failed = before.or(after).expect("a clause without sides is refuted earlier");
        let mut led_nowhere = false;
        while let Some(at) = self.trail.iter().rposition(|choice| choice.other.is_some()) {
            let removed = self.trail.split_off(at);
            for choice in &removed {
                self.graph.remove(choice.edge.from, choice.edge.to);
                self.pending.push(choice.clause);
            }
            let mut sides = before.into_iter().chain(after);
            if !led_nowhere && sides.all(|side| self.order.closes_cycle(self.graph, side.from, side.to, u64::MAX)) {
                continue;
            }
            let Choice { clause, other: Some(other), .. } = removed[0] else { unreachable!("found as a decision") };
            if self.order.add(self.graph, other.from, other.to) == Added::Yes {
                self.trail.push(Choice { clause, edge: other, other: None, turned: true });
                return Ok(());
            }
            (failed, led_nowhere) = (other, true);
        }
        let searched = led_nowhere || self.trail.iter().any(|choice| choice.turned);
        Err(Contradiction::Cycle {
            added: self.trail.iter().map(|choice| choice.edge).chain([failed]).collect(),
            searched,
        })
    }

    /// The insert that began the lifetime of a live state, and the delete that ended it.
    fn lifetime(&mut self, state: u32) -> (Option<u32>, Option<u32>) {
        let index = self.index;
        let live = |state: u32| index.states[state as usize].live();
        let written = |state: u32| index.states[state as usize].writer != NONE;
        // A row that many readers miss may have been updated a million times: walk its versions once.
        let key = index.states[state as usize].key();
        let known = self.lifetimes.get(&key).copied().filter(|&(first, last)| first <= state && state <= last);
        let (first, last) = known.unwrap_or_else(|| {
            let (mut first, mut last) = (state, state);
            while written(first) && live(first - 1) {
                first -= 1;
            }
            while let Some(next) = index.next(last).filter(|&next| live(next)) {
                last = next;
            }
            (first, last)
        });
        self.lifetimes.insert(key, (first, last));
        (written(first).then_some(first), index.next(last))
    }

    /// Whether an edge is known to close a cycle.
    fn ruled_out(&mut self, edge: Edge) -> bool {
        is_before(self.index, self.promises, edge.to, edge.from)
            || self.order.closes_cycle(self.graph, edge.from, edge.to, PROBE_MAX)
    }

    fn always_there(&self, mismatch: Mismatch) -> Violation {
        let index = self.index;
        let state = index.states[mismatch.state as usize];
        let (id, name, v) = (index.id(mismatch.reader), index.name(state.key()), version(state.tid));
        let text =
            format!("T{id} did not find {name}, which was there from before the history (version {v}) to its end");
        Violation::of_claim(Anomaly::MissingRow, vec![id], text)
    }
}

/// Which claims a replay checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Absences and ranges.
    Absences,
    /// Also reads of known versions: they hold by construction, and that is asserted.
    Reads,
}

/// Runs the transactions one after another and compares what they found with the state of the replay. Nodes
/// that are no transactions are skipped.
///
/// # Panics
/// If a read of a known version does not hold. The edges of the graph imply it, so this is a fault of the
/// checker.
fn replay(index: &Index<'_>, sequence: &[u32], depth: Depth) -> Vec<Mismatch> {
    let states = &index.states;
    let mut current: Vec<u32> = index.first[..index.keys.len()].to_vec();
    let mut live = Bits::new(index.keys.len());
    for &state in current.iter().filter(|&&state| states[state as usize].live()) {
        live.insert(states[state as usize].key());
    }
    let mut mismatches = Vec::new();
    for &t in sequence.iter().filter(|&&node| node < index.transactions()) {
        for claim in index.reads.of(t).iter().filter(|_| depth == Depth::Reads) {
            let key = states[claim.number() as usize].key();
            assert_eq!(current[key as usize], claim.number(), "the order explains what T{} read", index.id(t));
        }
        for claim in index.absent.of(t) {
            let state = current[claim.number() as usize];
            if states[state as usize].live() {
                mismatches.push(Mismatch { reader: t, state, scanned: claim.scanned() });
            }
        }
        for range in index.ranges.of(t) {
            let mut from = range.low;
            while let Some(key) = live.next(from).filter(|&key| key < range.high) {
                if !index.lists(range, key) && index.own(t, key).is_none() {
                    mismatches.push(Mismatch { reader: t, state: current[key as usize], scanned: true });
                    if mismatches.len() >= CLAUSES_PER_REPLAY {
                        return mismatches;
                    }
                }
                from = key + 1;
            }
        }
        for &state in index.writes.of(t) {
            let key = states[state as usize].key();
            current[key as usize] = state;
            if states[state as usize].live() {
                live.insert(key);
            } else {
                live.remove(key);
            }
        }
        if mismatches.len() >= CLAUSES_PER_REPLAY {
            break;
        }
    }
    mismatches
}
