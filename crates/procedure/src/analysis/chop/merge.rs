//! From operations to pieces, for one procedure.
//!
//! 1. Operations that each come after the other are one piece ([`super::order`]).
//! 2. All operations with C-edges are one piece. With two instances of every procedure, an SC-cycle exists exactly if
//!    some procedure has two pieces with C-edges. If there are two, each has a path of C-edges to the same piece of the
//!    second instance, directly or over a third (Theorem 1). S-edges close the cycle. If there is at most one, no path
//!    enters an instance by one piece and leaves it by another. So every order of merging ends with this result, and
//!    undoing a step of it creates a cycle.
//! 3. A piece that the decisive piece needs, and that needs the decisive piece, joins it.
//! 4. Possible failures must be decided in or before the decisive piece; a piece after it that can fail joins
//!    it. Whether a sum leaves its range is certain only where the addition takes effect, since others may add
//!    meanwhile. So, unless room is kept, the addition joins the decisive piece too, or is one.
//!
//! Each step merges only what it must, so no smaller piece keeps the order and is safe.

use std::collections::BTreeSet;

use crate::plan::{
    Chopped, Claim, Conflict, End, Failure, FailureKind, Merge, MergeReason, Options, Piece, Plan, Role,
};

use super::{order, tolerated};

/// The input for chopping a procedure.
pub(super) struct Cut<'a> {
    pub(super) plans: &'a [&'a Plan],
    /// The procedure's index.
    pub(super) at: usize,
    pub(super) order: &'a BTreeSet<(usize, usize)>,
    pub(super) conflicts: &'a [Conflict],
    pub(super) deferred: &'a BTreeSet<End>,
    pub(super) claims: &'a [Claim],
    pub(super) options: Options,
}

impl Cut<'_> {
    fn plan(&self) -> &Plan {
        self.plans[self.at]
    }

    /// The edges of an operation, each with its other end.
    fn edges(&self, operation: usize) -> impl Iterator<Item = (End, &Conflict)> {
        let end = End { procedure: self.at, operation };
        self.conflicts.iter().filter_map(move |conflict| match (conflict.left == end, conflict.right == end) {
            (true, _) => Some((conflict.right, conflict)),
            (false, true) => Some((conflict.left, conflict)),
            (false, false) => None,
        })
    }

    /// Failures that restrict the position of a piece.
    fn failures(&self) -> impl Iterator<Item = &Failure> {
        // A claimed row of the record exists.
        let is_certain = |failure: &Failure| {
            failure.kind == FailureKind::MissingRow
                && self.claims.iter().any(|claim| {
                    claim.exists
                        && claim.operation.procedure == self.at
                        && failure.operation == Some(claim.operation.operation)
                })
        };
        let all = self.plan().failures.iter();
        all.filter(move |failure| !tolerated(failure.kind, self.options) && !is_certain(failure))
    }

    pub(super) fn chop(&self) -> Chopped {
        let count = self.plan().operations.len();
        let mut labels: Vec<usize> = (0..count).collect();
        let mut merges = Vec::new();
        self.settle(&mut labels, &mut merges, |left, right| {
            order::reason(self.plan(), left, right, self.options.reorder)
        });
        let conflicting: Vec<usize> = (0..count).filter(|operation| self.edges(*operation).next().is_some()).collect();
        if let Some((first, rest)) = conflicting.split_first() {
            for operation in rest {
                let reason = || MergeReason::Cycle(self.cycle(*first, *operation));
                join(&mut labels, &mut merges, *first, *operation, reason);
            }
        }
        let exact: Vec<(usize, &Failure)> =
            self.failures().filter_map(|failure| Some((failure.operation?, failure))).filter(is_exact).collect();
        let core = conflicting.first().or_else(|| exact.first().map(|(operation, _)| operation)).copied();
        if let Some(core) = core {
            for (operation, failure) in exact {
                join(&mut labels, &mut merges, core, operation, || rollback(failure));
            }
            self.settle(&mut labels, &mut merges, |_, _| MergeReason::Between);
            self.pull_failures(&mut labels, &mut merges, core);
        }
        self.arrange(&labels, core, merges)
    }

    /// Merges pieces that each come after the other.
    fn settle(&self, labels: &mut Vec<usize>, merges: &mut Vec<Merge>, reason: impl Fn(usize, usize) -> MergeReason) {
        let settled = order::condense(labels, self.order);
        for operation in 0..labels.len() {
            let target = settled[operation];
            if labels[operation] != labels[target] {
                join(labels, merges, target, operation, || reason(target, operation));
            }
        }
        debug_assert_eq!(*labels, settled);
    }

    /// Merges pieces that can fail after the decisive piece into it.
    fn pull_failures(&self, labels: &mut Vec<usize>, merges: &mut Vec<Merge>, decisive: usize) {
        loop {
            let reach = order::reach(labels, self.order);
            let late = self.failures().find_map(|failure| {
                let after = |operation: &&usize| {
                    let label = labels[**operation];
                    label != labels[decisive] && reach[labels[decisive]][label]
                };
                failure.decided_by.iter().find(after).map(|operation| (*operation, failure))
            });
            let Some((operation, failure)) = late else { return };
            join(labels, merges, decisive, operation, || rollback(failure));
            self.settle(labels, merges, |_, _| MergeReason::Between);
        }
    }

    /// Orders the pieces and sets their roles.
    fn arrange(&self, labels: &[usize], core: Option<usize>, merges: Vec<Merge>) -> Chopped {
        let plan = self.plan();
        let pieces: BTreeSet<usize> = labels.iter().copied().collect();
        let reach = order::reach(labels, self.order);
        let failing: BTreeSet<usize> =
            self.failures().flat_map(|failure| &failure.decided_by).map(|operation| labels[*operation]).collect();
        let is_deferred = |piece: usize| self.deferred.contains(&End { procedure: self.at, operation: piece });
        let must_precede = |piece: usize, those: &BTreeSet<usize>| {
            those.contains(&piece) || those.iter().any(|other| *other != piece && reach[piece][*other])
        };
        let core = core.map(|operation| labels[operation]);
        // Before the core, or (without one) up to the last piece that can fail.
        let early: BTreeSet<usize> = match core {
            None => pieces.iter().copied().filter(|piece| must_precede(*piece, &failing)).collect(),
            Some(core) => {
                let free = |piece: usize| piece != core && !reach[core][piece] && !is_deferred(piece);
                let wanted: BTreeSet<usize> = pieces
                    .iter()
                    .copied()
                    .filter(|piece| free(*piece) && (failing.contains(piece) || *piece < core || reach[*piece][core]))
                    .collect();
                pieces.iter().copied().filter(|piece| *piece != core && must_precede(*piece, &wanted)).collect()
            }
        };
        let rank = |piece: usize| match (early.contains(&piece), Some(piece) == core, is_deferred(piece)) {
            (true, ..) => 0,
            (_, true, _) => 1,
            (.., false) => 2,
            (.., true) => 3,
        };
        let mut left: BTreeSet<(usize, usize)> = pieces.iter().map(|piece| (rank(*piece), *piece)).collect();
        let mut sequence = Vec::new();
        while let Some(next) = left
            .iter()
            .copied()
            .find(|(_, piece)| left.iter().all(|(_, other)| other == piece || !reach[*other][*piece]))
        {
            left.remove(&next);
            sequence.push(next.1);
        }
        debug_assert!(left.is_empty(), "pieces have an order");
        let decisive = match core {
            Some(core) => sequence.iter().position(|piece| *piece == core),
            None => sequence
                .iter()
                .rposition(|piece| failing.contains(piece))
                .or_else(|| sequence.iter().position(|piece| !is_deferred(*piece))),
        };
        let roles = sequence.iter().enumerate().map(|(place, piece)| match decisive {
            _ if is_deferred(*piece) => Role::Deferred,
            Some(decisive) if place < decisive => Role::Buffered,
            Some(decisive) if place == decisive => Role::Decisive,
            _ => Role::Visible,
        });
        let piece = |(piece, role): (&usize, Role)| {
            let operations: Vec<usize> = (0..labels.len()).filter(|operation| labels[*operation] == *piece).collect();
            let conflicting = operations.iter().any(|operation| self.edges(*operation).next().is_some());
            Piece { operations, role, conflicting }
        };
        Chopped {
            procedure: plan.procedure.clone(),
            labels: (0..labels.len()).map(|operation| plan.label(operation)).collect(),
            pieces: sequence.iter().zip(roles).map(piece).collect(),
            decisive,
            order: self.order.clone(),
            merges,
            snapshot: false,
        }
    }

    /// An SC-cycle that two conflicting operations in different pieces close, along its edges.
    fn cycle(&self, left: usize, right: usize) -> String {
        let name = |end: &End| format!("{} #{}", self.plans[end.procedure].procedure, end.operation);
        let (mine, other) = (name(&End { procedure: self.at, operation: left }), format!("#{right}"));
        let grounds = |conflict: &Conflict| match conflict.grounds.first() {
            Some(ground) => format!("–C {ground}–"),
            None => "–C–".to_owned(),
        };
        let direct = self.edges(left).flat_map(|edge| self.edges(right).map(move |other| (edge, other)));
        let mut best: Option<(bool, String)> = None;
        for ((there, to), (back, from)) in direct {
            if there.procedure != back.procedure {
                continue;
            }
            let same = there == back;
            let middle = match same {
                true => name(&there),
                false => format!("{} –S– #{}", name(&there), back.operation),
            };
            let text = format!("{mine} {} {middle} {} {other} –S–", grounds(to), grounds(from));
            if best.as_ref().is_none_or(|(found, _)| !found && same) {
                best = Some((same, text));
            }
        }
        if let Some((_, text)) = best {
            return text;
        }
        // Over the second instance of the procedure.
        let (Some((there, to)), Some((back, from))) = (self.edges(left).next(), self.edges(right).next()) else {
            return format!("{mine} –S– {other}");
        };
        let (to, from) = (grounds(to), grounds(from));
        let (there, back) = (name(&there), name(&back));
        format!("{mine} {to} {there} {to} second #{left} –S– second #{right} {from} {back} {from} {other} –S–")
    }
}

/// Whether a failure is certain only where its operation takes effect.
fn is_exact((_, failure): &(usize, &Failure)) -> bool {
    failure.kind == FailureKind::CommutativeOverflow
}

fn rollback(failure: &Failure) -> MergeReason {
    MergeReason::Rollback(format!("{} ({})", failure.kind, failure.place))
}

/// Merges the pieces of two operations, the smaller label winning.
fn join(
    labels: &mut [usize],
    merges: &mut Vec<Merge>,
    left: usize,
    right: usize,
    reason: impl FnOnce() -> MergeReason,
) {
    let (one, two) = (labels[left].min(labels[right]), labels[left].max(labels[right]));
    if one == two {
        return;
    }
    labels.iter_mut().filter(|label| **label == two).for_each(|label| *label = one);
    merges.push(Merge { left, right, reason: reason() });
}
