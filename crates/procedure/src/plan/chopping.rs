//! A set of procedures cut into pieces (DBX-TC §3).
//!
//! ```text
//!  pieces of a procedure, in order of execution
//!
//!   buffered … buffered | decisive | visible … visible | deferred
//!   no conflict, may      all that   no conflict,        no conflict once deferred,
//!   fail, unseen until    conflicts, cannot fail         cannot fail
//!   the decisive commits  may fail
//! ```
//! A transaction takes its place in the order when its decisive piece commits (Theorem 1: a procedure has at
//! most one piece with conflicts). Until then none of its effects is visible, so it may fail; afterwards it
//! cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::Columns;

/// The assumptions of a chopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Read-only procedures run on snapshots and leave the graph (§3.2).
    pub snapshots: bool,
    /// Independent operations may be reordered (§3.1).
    pub reorder: bool,
    /// Additions to a column commute (§3.1).
    pub commute: bool,
    /// Commutative updates may be published later (§3.2, publish–subscribe).
    pub defer: bool,
    /// The search in tables whose set of keys never changes may stay outside a region (§3.3).
    pub statics: bool,
    /// A transaction that deletes a key from a table that never gets it again has the rows of that key to
    /// itself.
    pub claims: bool,
    /// Sums in columns that are only added to stay in range while a chopped transaction runs. The engine
    /// watches that half of the range stays free, and runs the set unchopped otherwise. Without this, an
    /// addition is only checked where it takes effect, so it joins the decisive piece.
    pub headroom: bool,
    /// Memory for all writes of an execution is reserved when it begins. Without this, a write may fail for
    /// lack of memory, and joins the decisive piece if it came after it.
    pub memory: bool,
}

impl Options {
    /// The default graph (Figure 10): reordering and commutativity only; sums do not overflow and memory does
    /// not run out.
    pub const DEFAULT: Options = Options {
        snapshots: false,
        reorder: true,
        commute: true,
        defer: false,
        statics: false,
        claims: false,
        headroom: true,
        memory: true,
    };
    /// The assumptions of execution piece by piece, where each piece is a transaction of the protocol. Nothing
    /// runs on snapshots beside the graph. Nothing is published later (where the protocol could, the engine
    /// prevents it). A sum that overflows, or lack of memory, is a failure like any other.
    pub const PIECES: Options = Options { headroom: false, memory: false, ..Options::DEFAULT };
    /// The optimized graph (Figure 11): everything.
    pub const OPTIMIZED: Options = Options {
        snapshots: true,
        reorder: true,
        commute: true,
        defer: true,
        statics: true,
        claims: true,
        headroom: true,
        memory: true,
    };
}

/// [`Options::DEFAULT`].
impl Default for Options {
    fn default() -> Options {
        Options::DEFAULT
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.snapshots, "snapshots"),
            (self.reorder, "reordering"),
            (self.commute, "commutativity"),
            (self.defer, "deferral"),
            (self.statics, "static tables"),
            (self.claims, "claims"),
            (self.headroom, "headroom"),
            (self.memory, "reserved memory"),
        ];
        let on: Vec<&str> = all.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        f.write_str(if on.is_empty() { "nothing" } else { "" })?;
        f.write_str(&on.join(", "))
    }
}

/// One end of an edge: an operation of a procedure (its position in [`Chopping::procedures`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// The procedure.
    pub procedure: usize,
    /// Its operation.
    pub operation: usize,
}

/// The object of a conflict between two operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ground {
    /// The table.
    pub table: Arc<str>,
    /// The index, if it is one of the table's.
    pub index: Option<Arc<str>>,
    /// Whether one operation changes the set of keys.
    pub existence: bool,
    /// Columns that one operation changes and the other uses or changes too.
    pub columns: Vec<Arc<str>>,
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table)?;
        if let Some(index) = &self.index {
            write!(f, ".{index}")?;
        }
        match (self.existence, self.columns.is_empty()) {
            (true, _) => write!(f, " (keys)"),
            (false, true) => Ok(()),
            (false, false) => write!(f, " ({})", self.columns.join(", ")),
        }
    }
}

/// A C-edge: operations of two instances that conflict; the instances may be of one procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// One operation; not greater than the other.
    pub left: End,
    /// The other.
    pub right: End,
    /// The objects of the conflict, at least one.
    pub grounds: Vec<Ground>,
}

/// A commutative update whose result is published later, so that its conflicts with readers of the sum are
/// removed (§3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The update of the publisher.
    pub publisher: End,
    /// The operations with which it would conflict: subscribers collect what was published before they begin.
    pub subscribers: BTreeSet<End>,
    /// The objects of these conflicts.
    pub grounds: Vec<Ground>,
}

/// An operation that only touches rows of a key that its transaction claimed, and the conflicts that are
/// therefore removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The operation.
    pub operation: End,
    /// The operation of the same procedure that claims the key by deleting it.
    pub by: usize,
    /// The table from which the key is deleted.
    pub token: Arc<str>,
    /// The table that keeps every key that was ever in `token`, so that none comes back; `None` if no
    /// procedure adds keys.
    pub record: Option<Arc<str>>,
    /// Whether its required row certainly exists: it is the one in `record`.
    pub exists: bool,
    /// The operations with which it does not conflict.
    pub against: BTreeSet<End>,
}

/// A deferral that is not legal, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The update.
    pub publisher: End,
    /// The reason.
    pub reason: String,
}

/// The updates of a set that may be published later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deferrable {
    /// These updates, and the users of their sums.
    pub deferrals: Vec<Deferral>,
    /// Updates of sums with other users that may not be published later.
    pub refused: Vec<Refused>,
    /// By the table's name, the columns to which these updates add.
    pub columns: BTreeMap<Arc<str>, Columns>,
    /// All columns of these tables that the set changes.
    pub changed: BTreeMap<Arc<str>, Columns>,
    /// The group of each procedure, by its index in the set. Procedures have the same group if conflicts other
    /// than with these updates connect them.
    pub groups: Vec<usize>,
}

/// The role of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Runs before the decisive piece; its writes are kept until that commits. Has no conflict.
    Buffered,
    /// When it commits, the transaction has its place in the order and can no longer fail. The only piece with
    /// conflicts, if there are any.
    Decisive,
    /// Runs after the decisive piece; its writes are visible at once. Has no conflict and cannot fail.
    Visible,
    /// Runs after the decisive piece; its additions are published at the next epoch. Cannot fail.
    Deferred,
}

/// Operations that are executed atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// In source order. One in a loop stands for all iterations.
    pub operations: Vec<usize>,
    /// Its role.
    pub role: Role,
    /// Whether an operation of it conflicts with another instance.
    pub conflicting: bool,
}

/// Why two operations are in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeReason {
    /// Each needs the other, in another iteration of a loop, as the text says.
    Loop(String),
    /// Both have C-edges, so with two instances of the procedure they close an SC-cycle along these edges.
    Cycle(String),
    /// It needs the piece and the piece needs it.
    Between,
    /// It may fail, and would do so after the decisive piece; the text says how.
    Rollback(String),
    /// Operations may not be reordered, and it is between the others or in a loop with them.
    Order,
}

impl fmt::Display for MergeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeReason::Loop(why) => write!(f, "a loop carries {why}"),
            MergeReason::Cycle(cycle) => write!(f, "SC-cycle {cycle}"),
            MergeReason::Between => f.write_str("it needs the piece, and the piece needs it"),
            MergeReason::Rollback(failure) => write!(f, "it could fail after effects were visible: {failure}"),
            MergeReason::Order => f.write_str("operations keep their order"),
        }
    }
}

/// A step of merging: two operations that were in different pieces are in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// An operation of the one piece.
    pub left: usize,
    /// An operation of the other.
    pub right: usize,
    /// The reason.
    pub reason: MergeReason,
}

/// A procedure in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chopped {
    /// Its name.
    pub procedure: Arc<str>,
    /// A short label for each operation.
    pub labels: Vec<String>,
    /// Its pieces, in order of execution. Empty if it runs on a snapshot.
    pub pieces: Vec<Piece>,
    /// The decisive piece. `None` if it has no pieces, or deferred ones only.
    pub decisive: Option<usize>,
    /// The order of operations: pairs (earlier, later).
    pub order: BTreeSet<(usize, usize)>,
    /// The merges that made the pieces.
    pub merges: Vec<Merge>,
    /// Whether it runs on a snapshot and left the graph.
    pub snapshot: bool,
}

impl Chopped {
    /// The piece an operation is in.
    pub fn piece_of(&self, operation: usize) -> Option<usize> {
        self.pieces.iter().position(|piece| piece.operations.contains(&operation))
    }
}

/// A chopped set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chopping {
    /// The assumptions.
    pub options: Options,
    /// The procedures by name.
    pub procedures: Vec<Chopped>,
    /// C-edges, without those that claims and deferral removed.
    pub conflicts: Vec<Conflict>,
    /// Operations on claimed keys.
    pub claims: Vec<Claim>,
    /// Deferred updates.
    pub deferrals: Vec<Deferral>,
    /// Updates that could not be deferred.
    pub refused: Vec<Refused>,
    /// Tables, of those used, whose set of rows no procedure changes.
    pub statics: BTreeSet<Arc<str>>,
    /// Columns, as `table.column`, to which procedures only add, by operations without conflicts. Protocol
    /// `dbx-tc` publishes these additions after the rest.
    pub sums: BTreeSet<Arc<str>>,
    /// The updates that protocol `dbx-tc` publishes at the end of an epoch with `defer=1`, whatever the pieces
    /// are.
    pub later: Deferrable,
    /// The guarantees that the engine must give, beside running each piece atomically and in order.
    pub obligations: Vec<String>,
}

impl Chopping {
    /// The procedure of this name.
    pub fn procedure(&self, name: &str) -> Option<&Chopped> {
        self.procedures.iter().find(|chopped| &*chopped.procedure == name)
    }

    /// Procedures whose pieces, order or roles differ in `other`, or that are in one of the two only. When
    /// `other` replaces this one, none of their executions may be under way.
    pub fn changed(&self, other: &Chopping) -> BTreeSet<Arc<str>> {
        let pieces = |chopping: &Chopping| -> BTreeMap<Arc<str>, (Vec<Piece>, bool)> {
            let all = chopping.procedures.iter();
            all.map(|chopped| (chopped.procedure.clone(), (chopped.pieces.clone(), chopped.snapshot))).collect()
        };
        let (mine, theirs) = (pieces(self), pieces(other));
        let names = mine.keys().chain(theirs.keys());
        names.filter(|name| mine.get(*name) != theirs.get(*name)).cloned().collect()
    }

    /// Checks that the chopping is safe, as far as it shows that itself. Every operation must be in one piece, and
    /// pieces must respect the order. At most one piece of a procedure may have conflicts (Theorem 1), and it must be
    /// decisive.
    ///
    /// # Errors
    /// The first violation, in words.
    pub fn check(&self) -> Result<(), String> {
        for (at, chopped) in self.procedures.iter().enumerate() {
            let wrong = |problem: String| Err(format!("{}: {problem}", chopped.procedure));
            if chopped.snapshot {
                if !chopped.pieces.is_empty() {
                    return wrong("runs on a snapshot and has pieces".into());
                }
                continue;
            }
            for operation in 0..chopped.labels.len() {
                let in_pieces = chopped.pieces.iter().filter(|piece| piece.operations.contains(&operation)).count();
                if in_pieces != 1 {
                    return wrong(format!("operation {operation} is in {in_pieces} pieces"));
                }
            }
            let conflicts = |operation: usize| {
                let end = End { procedure: at, operation };
                self.conflicts.iter().any(|conflict| conflict.left == end || conflict.right == end)
            };
            for (place, piece) in chopped.pieces.iter().enumerate() {
                if piece.operations.iter().any(|operation| conflicts(*operation)) != piece.conflicting {
                    return wrong(format!("piece {place} is wrongly said to conflict or not to"));
                }
                if piece.conflicting && chopped.decisive != Some(place) {
                    return wrong(format!("piece {place} conflicts and is not the decisive one"));
                }
            }
            for (earlier, later) in &chopped.order {
                if chopped.piece_of(*earlier) > chopped.piece_of(*later) {
                    return wrong(format!("operation {later} runs before {earlier}, which it needs"));
                }
            }
        }
        Ok(())
    }
}

/// The pieces of each procedure in order, the merges that made them, and the edges.
impl fmt::Display for Chopping {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "chopped with {}", self.options)?;
        for chopped in &self.procedures {
            if chopped.snapshot {
                writeln!(out, "\n{}: read only, on a snapshot", chopped.procedure)?;
                continue;
            }
            let count = chopped.pieces.len();
            writeln!(out, "\n{}: {count} {}", chopped.procedure, if count == 1 { "piece" } else { "pieces" })?;
            for (place, piece) in chopped.pieces.iter().enumerate() {
                let role = match piece.role {
                    Role::Buffered => "buffered",
                    Role::Decisive => "decisive",
                    Role::Visible => "visible",
                    Role::Deferred => "deferred",
                };
                let labels: Vec<&str> = piece.operations.iter().map(|operation| &*chopped.labels[*operation]).collect();
                let conflicting = if piece.conflicting { ", conflicting" } else { "" };
                writeln!(out, "  {place} {role}{conflicting}: {}", labels.join(" | "))?;
            }
            for merge in &chopped.merges {
                writeln!(out, "  merged #{} and #{}: {}", merge.left, merge.right, merge.reason)?;
            }
        }
        let name = |end: &End| format!("{} #{}", self.procedures[end.procedure].procedure, end.operation);
        writeln!(out, "\nC-edges, between any two instances")?;
        for conflict in &self.conflicts {
            let grounds: Vec<String> = conflict.grounds.iter().map(ToString::to_string).collect();
            writeln!(out, "  {} – {}: {}", name(&conflict.left), name(&conflict.right), grounds.join("; "))?;
        }
        if !self.claims.is_empty() {
            writeln!(out, "\nclaims")?;
        }
        for claim in &self.claims {
            let against: Vec<String> = claim.against.iter().map(name).collect();
            let record = claim.record.as_ref().map(|record| format!(", recorded in {record}")).unwrap_or_default();
            let exists = if claim.exists { "; its row exists" } else { "" };
            writeln!(
                out,
                "  {} by #{} out of {}{record}: not against {}{exists}",
                name(&claim.operation),
                claim.by,
                claim.token,
                against.join(", ")
            )?;
        }
        let Deferrable { deferrals, refused, .. } = &self.later;
        let kinds = [
            ("publish–subscribe", &self.deferrals, &self.refused),
            ("publish–subscribe of sums alone (dbx-tc with defer=1)", deferrals, refused),
        ];
        for (kind, deferrals, refused) in kinds.into_iter().filter(|(_, some, none)| some.len() + none.len() > 0) {
            writeln!(out, "\n{kind}")?;
            for deferral in deferrals {
                let subscribers: Vec<String> = deferral.subscribers.iter().map(name).collect();
                let grounds: Vec<String> = deferral.grounds.iter().map(ToString::to_string).collect();
                writeln!(out, "  {} to {}: {}", name(&deferral.publisher), subscribers.join(", "), grounds.join("; "))?;
            }
            for refused in refused {
                writeln!(out, "  not {}: {}", name(&refused.publisher), refused.reason)?;
            }
        }
        if !self.statics.is_empty() {
            let statics: Vec<&str> = self.statics.iter().map(|name| &**name).collect();
            writeln!(out, "\nstatic: {}", statics.join(", "))?;
        }
        if !self.sums.is_empty() {
            let sums: Vec<&str> = self.sums.iter().map(|name| &**name).collect();
            writeln!(out, "\nonly added to: {}", sums.join(", "))?;
        }
        if !self.obligations.is_empty() {
            writeln!(out, "\nan engine that runs these pieces must see to it that")?;
            for obligation in &self.obligations {
                writeln!(out, "  {obligation}")?;
            }
        }
        Ok(())
    }
}
