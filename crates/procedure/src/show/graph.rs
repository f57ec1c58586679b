//! The content of all drawings: instances, their operations by piece, and the edges between them.
//!
//! Every procedure of the graph occurs twice. C-edges exist for every pair of instances. One of them is drawn, from the
//! first instance of the earlier procedure to the second instance of the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::plan::{Chopped, Chopping, End, Ground, MergeReason, Role};

/// One instance of a procedure. The two of a procedure follow each other.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) procedure: Arc<str>,
    /// From 1.
    pub(super) number: usize,
    pub(super) pieces: Vec<Group>,
}

/// A piece.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) operations: Vec<Operation>,
    pub(super) role: Role,
    pub(super) conflicting: bool,
    /// Why its operations are in one piece.
    pub(super) merges: Vec<String>,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) id: usize,
    pub(super) label: String,
    /// The objects of its edges: columns, keys.
    pub(super) grounds: String,
}

/// An operation of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) instance: usize,
    pub(super) operation: usize,
}

/// An edge between instances: from a first one to a second one.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) label: String,
    /// From publisher to subscriber, instead of a conflict.
    pub(super) deferred: bool,
}

/// The drawing.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) instances: Vec<Instance>,
    pub(super) edges: Vec<Edge>,
}

pub(super) fn graph(chopping: &Chopping) -> Graph {
    let drawn: Vec<usize> = (0..chopping.procedures.len()).filter(|at| !chopping.procedures[*at].snapshot).collect();
    let pairs = drawn.iter().flat_map(|at| [(*at, 1), (*at, 2)]);
    let instances = pairs.map(|(at, number)| instance(chopping, at, number)).collect();
    let column = |end: End| drawn.iter().position(|at| *at == end.procedure);
    let edge = |from: End, to: End, grounds: &[Ground], deferred| {
        let from = Node { instance: 2 * column(from)?, operation: from.operation };
        let to = Node { instance: 2 * column(to)? + 1, operation: to.operation };
        Some(Edge { from, to, label: join(grounds, "; "), deferred })
    };
    let conflicts = chopping.conflicts.iter().filter_map(|conflict| {
        let (first, second) = match column(conflict.left) <= column(conflict.right) {
            true => (conflict.left, conflict.right),
            false => (conflict.right, conflict.left),
        };
        edge(first, second, &conflict.grounds, false)
    });
    let deferrals = chopping.deferrals.iter().flat_map(|deferral| {
        deferral.subscribers.iter().filter_map(|to| edge(deferral.publisher, *to, &deferral.grounds, true))
    });
    Graph { instances, edges: conflicts.chain(deferrals).collect() }
}

fn instance(chopping: &Chopping, at: usize, number: usize) -> Instance {
    let chopped = &chopping.procedures[at];
    let operation = |id: &usize| {
        let end = End { procedure: at, operation: *id };
        Operation { id: *id, label: chopped.labels[*id].clone(), grounds: grounds(chopping, end) }
    };
    let group = |piece: &crate::plan::Piece| Group {
        operations: piece.operations.iter().map(operation).collect(),
        role: piece.role,
        conflicting: piece.conflicting,
        merges: merges(chopped, &piece.operations),
    };
    Instance { procedure: chopped.procedure.clone(), number, pieces: chopped.pieces.iter().map(group).collect() }
}

/// The objects of the edges of an operation.
fn grounds(chopping: &Chopping, end: End) -> String {
    let conflicts = chopping.conflicts.iter().filter(|conflict| conflict.left == end || conflict.right == end);
    let deferrals =
        chopping.deferrals.iter().filter(|deferral| deferral.publisher == end || deferral.subscribers.contains(&end));
    let all = conflicts.flat_map(|conflict| &conflict.grounds).chain(deferrals.flat_map(|deferral| &deferral.grounds));
    let mut found = BTreeSet::new();
    for ground in all {
        found.extend(match (&ground.index, ground.existence) {
            (Some(index), _) => vec![format!("keys of {index}")],
            (None, true) => vec!["keys".to_owned()],
            (None, false) => ground.columns.iter().map(ToString::to_string).collect(),
        });
    }
    join(&found, ", ")
}

/// Why the operations of a piece were merged.
fn merges(chopped: &Chopped, piece: &[usize]) -> Vec<String> {
    let within = chopped.merges.iter().filter(|merge| piece.contains(&merge.left) && piece.contains(&merge.right));
    within.map(|merge| format!("#{} and #{}: {}", merge.left, merge.right, merge.reason)).collect()
}

/// The reason for a merge in a word or two.
pub(super) fn in_short(reason: &MergeReason) -> &'static str {
    match reason {
        MergeReason::Loop(_) => "a loop",
        MergeReason::Cycle(_) => "SC-cycles",
        MergeReason::Between => "needs on both sides",
        MergeReason::Rollback(_) => "what can fail later",
        MergeReason::Order => "order",
    }
}

fn join<T: ToString>(all: impl IntoIterator<Item = T>, separator: &str) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(separator)
}
