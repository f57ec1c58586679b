//! What all drawings show: instances, their operations by piece, and the edges between them.
//!
//! Every procedure that is in the graph stands there twice. Of the C-edges between two procedures, which exist for every pair of
//! instances, one is drawn: from the second instance of the one to the first of the other.

use std::sync::Arc;

use seriatim_plan::{Chopping, End, Role};

/// One instance of a procedure.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) name: Arc<str>,
    pub(super) pieces: Vec<Group>,
}

/// A piece: its operations with their labels.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) operations: Vec<(usize, String)>,
    pub(super) role: Role,
    pub(super) conflicting: bool,
}

/// An operation of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) instance: usize,
    pub(super) operation: usize,
}

/// An edge between instances.
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
    let mut instances = Vec::new();
    for (at, number) in drawn.iter().flat_map(|at| [(*at, 1), (*at, 2)]) {
        let chopped = &chopping.procedures[at];
        let group = |piece: &seriatim_plan::Piece| Group {
            operations: piece
                .operations
                .iter()
                .map(|operation| (*operation, chopped.labels[*operation].clone()))
                .collect(),
            role: piece.role,
            conflicting: piece.conflicting,
        };
        let name = format!("{} {number}", chopped.procedure).into();
        instances.push(Instance { name, pieces: chopped.pieces.iter().map(group).collect() });
    }
    let column = |end: End| drawn.iter().position(|at| *at == end.procedure);
    let nodes = |left: End, right: End| -> Option<(Node, Node)> {
        let (one, other) = (column(left)?, column(right)?);
        let (one, other) = match one.cmp(&other) {
            std::cmp::Ordering::Less => (2 * one + 1, 2 * other),
            std::cmp::Ordering::Equal => (2 * one, 2 * one + 1),
            std::cmp::Ordering::Greater => (2 * one, 2 * other + 1),
        };
        let node = |instance, end: End| Node { instance, operation: end.operation };
        Some((node(one, left), node(other, right)))
    };
    let mut edges = Vec::new();
    for conflict in &chopping.conflicts {
        if let Some((from, to)) = nodes(conflict.left, conflict.right) {
            let label: Vec<String> = conflict.grounds.iter().map(ToString::to_string).collect();
            edges.push(Edge { from, to, label: label.join("; "), deferred: false });
        }
    }
    for deferral in &chopping.deferrals {
        for subscriber in &deferral.subscribers {
            if let Some((from, to)) = nodes(deferral.publisher, *subscriber) {
                edges.push(Edge { from, to, label: "publish–subscribe".to_owned(), deferred: true });
            }
        }
    }
    Graph { instances, edges }
}
