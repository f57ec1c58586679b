//! Checks choppings by enumeration.
//!
//! The graph has a vertex for every piece of every instance. Two pieces of an instance are joined by an
//! S-edge whatever lies between them. Two pieces of different instances are joined by a C-edge if any of their
//! operations conflict. A depth-first search lists simple cycles until one has edges of both kinds.

use std::collections::BTreeSet;

use seriatim_procedure::plan::{Chopping, Options, Role};

use super::sets::{Act, Effect, Op, Set};

/// A set cut into pieces: by procedure, by piece, operations. Procedures on snapshots have none.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) pieces: Vec<Vec<BTreeSet<usize>>>,
    /// Deferred updates, (procedure, operation), which conflict with nothing; judged by [`deferrals`].
    pub(crate) deferred: BTreeSet<(usize, usize)>,
    /// By procedure: the decisive piece.
    pub(crate) decisive: Vec<Option<usize>>,
}

/// The fault of a chopping.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wrong {
    /// An SC-cycle: (procedure, instance, piece).
    Cycle(Vec<(usize, usize, usize)>),
    /// Pieces of this procedure need each other.
    Order(usize),
    /// This procedure can fail after effects were visible.
    Rollback(usize),
    /// A deferral against an order: the instances of a cycle.
    Deferral(Vec<(usize, usize)>),
    /// Roles are not what they say.
    Role(usize),
}

impl Cut {
    pub(crate) fn of(set: &Set, chopping: &Chopping) -> Cut {
        let pieces = (0..set.0.len()).map(|number| {
            let name = format!("procedure_{number}");
            let chopped = chopping.procedure(&name).expect("every procedure is there");
            chopped.pieces.iter().map(|piece| piece.operations.iter().copied().collect()).collect()
        });
        let deferred =
            chopping.deferrals.iter().map(|found| (found.publisher.procedure, found.publisher.operation)).collect();
        let decisive = (0..set.0.len())
            .map(|number| chopping.procedure(&format!("procedure_{number}")).and_then(|chopped| chopped.decisive));
        Cut { pieces: pieces.collect(), deferred, decisive: decisive.collect() }
    }

    /// Whether two operations of different instances conflict.
    fn conflict(&self, set: &Set, one: (usize, usize), two: (usize, usize), commute: bool) -> bool {
        let op = |at: (usize, usize)| &set.0[at.0].operations[at.1];
        !self.deferred.contains(&one) && !self.deferred.contains(&two) && conflict(op(one), op(two), commute)
    }

    /// Every cut with one piece in two.
    pub(crate) fn splits(&self) -> Vec<Cut> {
        let mut found = Vec::new();
        for (at, pieces) in self.pieces.iter().enumerate() {
            for (place, piece) in pieces.iter().enumerate() {
                let operations: Vec<usize> = piece.iter().copied().collect();
                // The first stays; each other goes or stays.
                for mask in 1..1_usize << (operations.len() - 1) {
                    let goes = |index: usize| index > 0 && mask >> (index - 1) & 1 == 1;
                    let part = |going: bool| -> BTreeSet<usize> {
                        let chosen = operations.iter().enumerate().filter(|(index, _)| goes(*index) == going);
                        chosen.map(|(_, operation)| *operation).collect()
                    };
                    let mut cut = self.clone();
                    cut.pieces[at][place] = part(false);
                    cut.pieces[at].insert(place + 1, part(true));
                    found.push(cut);
                }
            }
        }
        found
    }
}

fn meet(left: &BTreeSet<u8>, right: &BTreeSet<u8>) -> bool {
    !left.is_disjoint(right)
}

/// Whether the order of two operations matters.
pub(crate) fn conflict(left: &Op, right: &Op, commute: bool) -> bool {
    left.table == right.table && matters(&left.effect(), &right.effect(), commute)
}

/// Whether the order of two effects on one table matters.
pub(crate) fn matters(one: &Effect, two: &Effect, commute: bool) -> bool {
    let uses = |effect: &Effect| -> BTreeSet<u8> { &effect.reads | &effect.writes };
    let against = |one: &Effect, two: &Effect| meet(&one.writes, &uses(two)) || meet(&one.adds, &uses(two));
    let index = matches!((one.index, two.index), (Some(moves), Some(others)) if moves || others);
    index || one.keys || two.keys || against(one, two) || against(two, one) || !commute && meet(&one.adds, &two.adds)
}

/// Whether `later` must come after `earlier` in one execution.
fn follows(set: &Set, procedure: usize, earlier: usize, later: usize, options: Options) -> bool {
    let procedure = &set.0[procedure];
    let (one, two) = (&procedure.operations[earlier], &procedure.operations[later]);
    let text = earlier < later || one.looped && two.looped;
    let bound = !options.reorder || conflict(one, two, options.commute);
    earlier != later && (procedure.needs(later, earlier) || bound && text)
}

/// Whether the C- and S-edges of a cut have no cycle, its pieces an order, and failures their place.
pub(crate) fn check(set: &Set, cut: &Cut, options: Options, instances: usize) -> Result<(), Wrong> {
    for procedure in 0..set.0.len() {
        if cut.pieces[procedure].is_empty() {
            if !(options.snapshots && set.0[procedure].is_read_only() && !set.0[procedure].latest) {
                return Err(Wrong::Role(procedure));
            }
        } else {
            safe(set, cut, procedure, options)?;
        }
    }
    match sc_cycle(set, cut, options, instances) {
        Some(cycle) => Err(Wrong::Cycle(cycle)),
        None => Ok(()),
    }
}

/// Whether an operation conflicts with one of any instance that is cut.
fn conflicts(set: &Set, cut: &Cut, at: (usize, usize), options: Options) -> bool {
    let others = (0..set.0.len()).filter(|other| !cut.pieces[*other].is_empty());
    others
        .flat_map(|other| (0..set.0[other].operations.len()).map(move |id| (other, id)))
        .any(|other| cut.conflict(set, at, other, options.commute))
}

fn safe(set: &Set, cut: &Cut, procedure: usize, options: Options) -> Result<(), Wrong> {
    let pieces = &cut.pieces[procedure];
    let operations = &set.0[procedure].operations;
    // Which piece is reached from which, by repeated steps.
    let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); pieces.len()];
    for (one, earlier) in pieces.iter().enumerate() {
        for (two, later) in pieces.iter().enumerate() {
            let pairs = earlier.iter().flat_map(|earlier| later.iter().map(move |later| (*earlier, *later)));
            if one != two && pairs.into_iter().any(|(a, b)| follows(set, procedure, a, b, options)) {
                after[one].insert(two);
            }
        }
    }
    for _ in 0..pieces.len() {
        for at in 0..pieces.len() {
            let more: BTreeSet<usize> = after[at].iter().flat_map(|next| after[*next].clone()).collect();
            after[at].extend(more);
        }
    }
    if (0..pieces.len()).any(|at| after[at].contains(&at)) {
        return Err(Wrong::Order(procedure));
    }
    // Failures: what decides them, and whether only where it takes effect.
    let mut failing: BTreeSet<usize> = BTreeSet::new();
    let mut exact: BTreeSet<usize> = BTreeSet::new();
    for (id, op) in operations.iter().enumerate() {
        if op.may_fail(options) {
            failing.insert(id);
        }
        if matches!(op.act, Act::Add(_) | Act::AddAndRead(..)) && !(options.headroom && options.commute) {
            exact.insert(id);
        }
    }
    failing.extend(set.0[procedure].pure_failure.iter().flat_map(|bits| set.0[procedure].of_bits(*bits)));
    let decisive: BTreeSet<usize> = (0..pieces.len())
        .filter(|at| {
            let piece = &pieces[*at];
            piece.iter().any(|id| exact.contains(id) || conflicts(set, cut, (procedure, *id), options))
        })
        .collect();
    let with_conflicts = |at: usize| pieces[at].iter().any(|id| conflicts(set, cut, (procedure, *id), options));
    // Two pieces with conflicts are a cycle's business.
    if decisive.len() > 1 && !decisive.iter().all(|at| with_conflicts(*at)) {
        return Err(Wrong::Rollback(procedure));
    }
    for at in decisive {
        if after[at].iter().any(|later| !pieces[*later].is_disjoint(&failing)) {
            return Err(Wrong::Rollback(procedure));
        }
    }
    Ok(())
}

fn sc_cycle(set: &Set, cut: &Cut, options: Options, instances: usize) -> Option<Vec<(usize, usize, usize)>> {
    let mut vertices = Vec::new();
    for (procedure, pieces) in cut.pieces.iter().enumerate() {
        for instance in 0..instances {
            vertices.extend((0..pieces.len()).map(|piece| (procedure, instance, piece)));
        }
    }
    let count = vertices.len();
    // 0: none, 1: S, 2: C.
    let mut edges = vec![vec![0_u8; count]; count];
    for (one, left) in vertices.iter().enumerate() {
        for (two, right) in vertices.iter().enumerate() {
            if one == two {
                continue;
            }
            let operations = |vertex: &(usize, usize, usize)| {
                cut.pieces[vertex.0][vertex.2].iter().map(|id| (vertex.0, *id)).collect::<Vec<_>>()
            };
            if (left.0, left.1) == (right.0, right.1) {
                edges[one][two] = 1;
            } else if operations(left)
                .iter()
                .any(|mine| operations(right).iter().any(|theirs| cut.conflict(set, *mine, *theirs, options.commute)))
            {
                edges[one][two] = 2;
            }
        }
    }
    let mut path = Vec::new();
    (0..count).find_map(|start| {
        path.clear();
        path.push(start);
        walk(&edges, start, &mut path, (false, false)).then(|| path.iter().map(|at| vertices[*at]).collect())
    })
}

/// Extends a simple path from `start` over later vertices until it closes a cycle with edges of both kinds.
fn walk(edges: &[Vec<u8>], start: usize, path: &mut Vec<usize>, kinds: (bool, bool)) -> bool {
    let last = path[path.len() - 1];
    let with = |kinds: (bool, bool), edge: u8| (kinds.0 || edge == 1, kinds.1 || edge == 2);
    if path.len() > 2 && edges[last][start] != 0 && with(kinds, edges[last][start]) == (true, true) {
        return true;
    }
    for next in start + 1..edges.len() {
        if edges[last][next] != 0 && !path.contains(&next) {
            path.push(next);
            if walk(edges, start, path, with(kinds, edges[last][next])) {
                return true;
            }
            path.pop();
        }
    }
    false
}

/// Whether the order and roles of pieces are those that were promised.
pub(crate) fn roles(set: &Set, chopping: &Chopping) -> Result<(), Wrong> {
    let options = chopping.options;
    let cut = Cut::of(set, chopping);
    for (number, procedure) in set.0.iter().enumerate() {
        let name = format!("procedure_{number}");
        let chopped = chopping.procedure(&name).expect("every procedure is there");
        let wrong = Err(Wrong::Role(number));
        let place = |operation: usize| chopped.pieces.iter().position(|piece| piece.operations.contains(&operation));
        for later in 0..procedure.operations.len() {
            for earlier in 0..procedure.operations.len() {
                if !chopped.snapshot && follows(set, number, earlier, later, options) && place(earlier) > place(later) {
                    return wrong;
                }
            }
        }
        for (at, piece) in chopped.pieces.iter().enumerate() {
            let operations = || piece.operations.iter().map(|id| (*id, &procedure.operations[*id]));
            let conflicting = operations().any(|(id, _)| conflicts(set, &cut, (number, id), options));
            let deferred = operations().any(|(id, _)| cut.deferred.contains(&(number, id)));
            let pure = procedure.pure_failure.unwrap_or(0);
            let fails = operations().any(|(id, op)| op.may_fail(options) || pure >> id & 1 == 1);
            let right = match piece.role {
                Role::Buffered => !conflicting && Some(at) < chopped.decisive,
                Role::Decisive => Some(at) == chopped.decisive,
                Role::Visible => !conflicting && !fails && Some(at) > chopped.decisive,
                Role::Deferred => deferred && !fails && Some(at) > chopped.decisive && piece.operations.len() == 1,
            };
            let right = right && deferred == (piece.role == Role::Deferred);
            if !right || conflicting != piece.conflicting {
                return wrong;
            }
        }
    }
    Ok(())
}

/// Updates that could be deferred if it depends on themselves and their procedure only.
pub(crate) fn deferrable(set: &Set) -> Vec<(usize, usize)> {
    let options = Options::OPTIMIZED;
    let mut found = Vec::new();
    for (number, procedure) in set.0.iter().enumerate() {
        for (id, op) in procedure.operations.iter().enumerate() {
            let effect = op.effect();
            let pure = procedure.pure_failure.unwrap_or(0);
            let fails = op.fails || pure >> id & 1 == 1;
            let last = (0..procedure.operations.len()).all(|later| !follows(set, number, id, later, options));
            // Its conflicts must come from what it adds.
            let rest = Effect { adds: BTreeSet::new(), ..effect.clone() };
            let all = drawn(set);
            let others = || all.iter().flat_map(|other| &set.0[*other].operations);
            let only = !others().any(|other| op.table == other.table && matters(&rest, &other.effect(), true));
            let any = others().any(|other| conflict(op, other, true));
            if !effect.adds.is_empty() && !fails && last && only && any {
                found.push((number, id));
            }
        }
    }
    found
}

/// Procedures in the graph when there are snapshots.
pub(super) fn drawn(set: &Set) -> Vec<usize> {
    (0..set.0.len()).filter(|number| !set.0[*number].is_read_only() || set.0[*number].latest).collect()
}

/// Whether within an epoch every subscriber can precede every publisher. Lists simple cycles of instances until one has
/// an arc from subscriber to publisher. The cycles go over conflicts in any direction and over such arcs.
pub(crate) fn deferrals(set: &Set, deferred: &BTreeSet<(usize, usize)>, options: Options) -> Result<(), Wrong> {
    let drawn = if options.snapshots { drawn(set) } else { (0..set.0.len()).collect() };
    let instances: Vec<(usize, usize)> = drawn.into_iter().flat_map(|number| [(number, 0), (number, 1)]).collect();
    let count = instances.len();
    let mut conflicts = vec![vec![false; count]; count];
    let mut arcs = vec![vec![false; count]; count];
    for (one, left) in instances.iter().enumerate() {
        for (two, right) in instances.iter().enumerate() {
            for (mine, op) in set.0[left.0].operations.iter().enumerate() {
                for (theirs, other) in set.0[right.0].operations.iter().enumerate() {
                    if one == two || !conflict(op, other, true) {
                        continue;
                    }
                    let (publishes, also) = (deferred.contains(&(right.0, theirs)), deferred.contains(&(left.0, mine)));
                    conflicts[one][two] |= !publishes && !also;
                    arcs[one][two] |= publishes;
                }
            }
        }
    }
    fn step(at: usize, path: &mut Vec<usize>, arc: bool, conflicts: &[Vec<bool>], arcs: &[Vec<bool>]) -> bool {
        let start = path[0];
        if path.len() > 1 && (arcs[at][start] || arc && conflicts[at][start]) {
            return true;
        }
        for next in 0..conflicts.len() {
            if path.contains(&next) || !(conflicts[at][next] || arcs[at][next]) {
                continue;
            }
            path.push(next);
            if step(next, path, arc || arcs[at][next], conflicts, arcs) {
                return true;
            }
            path.pop();
        }
        false
    }
    for start in 0..count {
        let mut path = vec![start];
        if step(start, &mut path, false, &conflicts, &arcs) {
            return Err(Wrong::Deferral(path.into_iter().map(|at| instances[at]).collect()));
        }
    }
    Ok(())
}
