//! One operation of a procedure: its accesses, its inputs, and its possible failures.

use std::collections::BTreeSet;
use std::fmt;

use super::{Columns, Symbol};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    Get,
    Update,
    Insert,
    Delete,
    Scan,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Get => "get",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Delete => "delete",
            Kind::Scan => "scan",
        })
    }
}

/// How an access uses the set of keys of its table or index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Existence {
    /// It reads which keys exist: every access does, if only by finding its row.
    Reads,
    /// It adds or removes a key.
    Writes,
}

/// The access of an operation to a table, or to one of its indexes, which counts as a table of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Index into [`super::Plan::tables`].
    pub table: usize,
    /// Position of the index in [`super::Table::indexes`]; `None` for the table.
    pub index: Option<usize>,
    /// Its use of the set of keys.
    pub existence: Existence,
    /// Columns whose values it uses.
    pub reads: Columns,
    /// Columns it replaces.
    pub writes: Columns,
    /// Columns to which it adds or from which it subtracts blindly. It uses neither the old nor the new value, and the
    /// amount depends on no mutable column of the row. A subtraction from an unsigned column does not count: whether it
    /// falls below zero reveals the sum, and depends on additions before or after it. Disjoint from the other two.
    pub commutes: Columns,
}

impl Access {
    /// Whether it changes anything.
    pub fn changes(&self) -> bool {
        self.existence == Existence::Writes || !self.writes.is_empty() || !self.commutes.is_empty()
    }
}

/// From when on the key of an operation is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// From the arguments alone, for all iterations of the loops around it.
    Entry,
    /// After these operations, at the entry of this loop (for all its iterations) or, without one, at once.
    After(BTreeSet<usize>, Option<usize>),
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its step.
    pub step: usize,
    /// File, line and column.
    pub place: String,
    /// Its kind.
    pub kind: Kind,
    /// Whether a missing row aborts.
    pub required: bool,
    /// Index into [`super::Plan::tables`].
    pub table: usize,
    /// The index by which it finds rows, if not by primary key: position in [`super::Table::indexes`].
    pub index: Option<usize>,
    /// Values of the key's columns, as far as they are known: all of a key, those of a prefix, the equal ones
    /// of two bounds.
    pub key: Vec<Symbol>,
    /// Its access to the table, then to indexes of the table.
    pub accesses: Vec<Access>,
    /// Operations whose results are used in its key.
    pub key_from: BTreeSet<usize>,
    /// Operations whose results are used otherwise.
    pub value_from: BTreeSet<usize>,
    /// Operations that decide whether, and how often, it runs.
    pub control_from: BTreeSet<usize>,
    /// Those of all these operations whose results may come from an earlier iteration, with the loop, which is
    /// one of [`Operation::loops`].
    pub carried_from: BTreeSet<(usize, usize)>,
    /// Operations before it, or in an earlier iteration, whose changed rows it may touch, or whose changes it may
    /// follow. The rows that they share are not known before they run.
    pub table_from: BTreeSet<usize>,
    /// The blocks around it, outermost first: the step of each block, and the number of the block in that
    /// step.
    pub blocks: Vec<(usize, usize)>,
    /// The loops around it, outermost first: indexes into [`super::Plan::loops`].
    pub loops: Vec<usize>,
    /// Whether its result is used: by other operations, by what is returned, or by conditions.
    pub used: bool,
    /// Whether it may be skipped: it is in a branch, or behind an early exit.
    pub conditional: bool,
    /// From when on its key is known.
    pub known: Known,
    /// The value that names its partition; `None` where no single value does.
    pub partition: Option<Symbol>,
}

impl Operation {
    /// Whether no other operation's result can change its key, so that a repeated run finds the same rows
    /// without the index (HTCC §4.2, `is_key_invariant`).
    pub fn is_key_invariant(&self) -> bool {
        self.key_from.is_empty()
    }

    /// The operations whose results it directly needs.
    pub fn from(&self) -> BTreeSet<usize> {
        let mut from = self.key_from.clone();
        from.extend(&self.value_from);
        from.extend(&self.control_from);
        from
    }

    /// Whether it changes anything.
    pub fn changes(&self) -> bool {
        self.accesses.iter().any(Access::changes)
    }

    /// Whether this one has run whenever `later` runs, in the same iteration of the loops around this one.
    pub fn precedes(&self, later: &Operation) -> bool {
        self.step < later.step && later.blocks.starts_with(&self.blocks)
    }

    /// Whether this one runs whenever `other` does, before or after, in the same iteration of the loops around
    /// this one, unless the execution fails.
    pub fn accompanies(&self, other: &Operation) -> bool {
        self.precedes(other) || !self.conditional && other.blocks.starts_with(&self.blocks)
    }
}

/// How an execution can fail without a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// The procedure aborts itself.
    UserAbort,
    /// A row that must exist does not.
    MissingRow,
    /// A row with this key, or this key in a unique index, exists already.
    DuplicateKey,
    /// A row refers to one that does not exist, or is still referred to.
    ForeignKey,
    /// A row agrees with another where a unique constraint does not allow it, which the end looks at.
    Unique,
    /// A row does not meet a condition of its table.
    Check,
    /// A number leaves the range of its type, or a division by zero.
    Overflow,
    /// The sum in a column that is only added to leaves its range; the amount does not depend on the column.
    CommutativeOverflow,
    /// A value does not fit its column: a text whose length is only known at run time.
    Type,
    /// An element beyond the end of a list.
    OutOfBounds,
    /// A `#[pure]` function that is not declared total panics.
    Panic,
    /// An expression of SQL has no value.
    Expression,
    /// No memory for a new row or image.
    OutOfMemory,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureKind::UserAbort => "user abort",
            FailureKind::MissingRow => "missing row",
            FailureKind::DuplicateKey => "duplicate key",
            FailureKind::ForeignKey => "foreign key",
            FailureKind::Unique => "unique constraint",
            FailureKind::Check => "violated condition",
            FailureKind::Overflow => "overflow",
            FailureKind::CommutativeOverflow => "overflow of a sum",
            FailureKind::Type => "a value that does not fit",
            FailureKind::OutOfBounds => "out of bounds",
            FailureKind::Panic => "panic",
            FailureKind::Expression => "an expression without a value",
            FailureKind::OutOfMemory => "out of memory",
        })
    }
}

/// A possible failure of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub kind: FailureKind,
    /// File, line and column.
    pub place: String,
    /// The step that fails.
    pub step: usize,
    /// The loops around it, outermost first: indexes into [`super::Plan::loops`].
    pub loops: Vec<usize>,
    /// The operation that fails; `None` for pure code.
    pub operation: Option<usize>,
    /// Operations after which it is decided: the one that fails, or those whose results the code uses.
    pub decided_by: BTreeSet<usize>,
}
