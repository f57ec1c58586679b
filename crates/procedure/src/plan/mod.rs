//! The results of the analysis of procedures, as inert data.
//!
//! Invariant: it has no behaviour but to check and print itself. [`analysis`](crate::analysis) makes it; the
//! engine and the apps only read it.
//!
//! A [`Plan`] is about one procedure; a [`Chopping`] about a set of them; [`Fragments`] about one procedure
//! and a way to partition tables. Operations, steps, loops and tables are named by their dense indexes, which
//! for operations and steps are the ids of the intermediate representation. The same procedures and schema
//! give the same bytes in every run.

mod chopping;
mod columns;
mod footprint;
mod fragments;
mod operation;
mod symbol;

pub use chopping::{
    Chopped, Chopping, Claim, Conflict, Deferrable, Deferral, End, Ground, Merge, MergeReason, Options, Piece, Refused,
    Role,
};
pub use columns::Columns;
pub use footprint::{Footprint, Touch};
pub use fragments::{Fragment, Fragments, TransactionClass};
pub use operation::{Access, Existence, Failure, FailureKind, Kind, Known, Operation};
pub use symbol::Symbol;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A table that a procedure uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: Arc<str>,
    /// Names of its columns, in order.
    pub columns: Vec<Arc<str>>,
    /// Names of its indexes, in order.
    pub indexes: Vec<Arc<str>>,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// Its step.
    pub step: usize,
    /// The loop around it.
    pub parent: Option<usize>,
    /// The scan whose rows it runs over; `None` for one over a list or range.
    pub scan: Option<usize>,
    /// Operations whose results decide about its elements.
    pub over_from: BTreeSet<usize>,
}

/// The facts about a procedure that are known before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The procedure's name.
    pub procedure: Arc<str>,
    /// File, line and column.
    pub place: String,
    /// Whether it requires the newest state although it only reads, so that it runs on no snapshot.
    pub latest: bool,
    /// Tables it uses.
    pub tables: Vec<Table>,
    /// Its operations, by id.
    pub operations: Vec<Operation>,
    /// Its loops, outer before inner.
    pub loops: Vec<Iteration>,
    /// Its possible failures.
    pub failures: Vec<Failure>,
}

impl Plan {
    /// Whether no operation may change anything. An update that assigns no column also needs a transaction
    /// that may write.
    pub fn is_read_only(&self) -> bool {
        self.operations.iter().all(|operation| matches!(operation.kind, Kind::Get | Kind::Scan))
    }

    /// Whether foreign keys, or unique constraints that can be deferred, may have it read or change rows that its
    /// operations do not name. Then it runs whole: what is put off until its end is checked once.
    pub fn follows_references(&self) -> bool {
        self.failures.iter().any(|failure| matches!(failure.kind, FailureKind::ForeignKey | FailureKind::Unique))
    }

    /// Whether it may run on a snapshot.
    pub fn takes_snapshot(&self) -> bool {
        self.is_read_only() && !self.latest
    }

    /// The operations to run again when the result of `operation` has changed, in source order. These are the operation
    /// and all that need it directly or indirectly (HTCC §4.3, Figure 9). They also include operations that follow one
    /// of those in its table and may share a row with it. A variable that is assigned repeatedly is a unit: an
    /// operation that reads it needs all operations whose results are assigned to it.
    pub fn descendants(&self, operation: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::from([operation]);
        loop {
            let more: Vec<usize> = (0..self.operations.len())
                .filter(|id| {
                    let operation = &self.operations[*id];
                    let needs = !operation.from().is_disjoint(&found) || !operation.table_from.is_disjoint(&found);
                    needs && !found.contains(id)
                })
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// The rows that the procedure accesses, as far as they are known before it runs.
    pub fn footprint(&self) -> Footprint {
        let touches = self
            .operations
            .iter()
            .enumerate()
            .map(|(id, operation)| Touch {
                operation: id,
                table: self.tables[operation.table].name.clone(),
                index: operation.index.map(|index| self.tables[operation.table].indexes[index].clone()),
                key: operation.key.clone(),
                writes: operation.changes(),
                certain: !operation.conditional,
                known: operation.known == Known::Entry
                    && operation.loops.iter().all(|id| self.loops[*id].over_from.is_empty()),
            })
            .collect();
        Footprint { touches }
    }

    /// A short label of an operation: `3 update stock`.
    pub fn label(&self, operation: usize) -> String {
        let Some(found) = self.operations.get(operation) else { return format!("{operation} ?") };
        let table = &self.tables[found.table];
        let index = found.index.map(|index| format!(" by {}", table.indexes[index])).unwrap_or_default();
        format!("{operation} {} {}{index}", found.kind, table.name)
    }

    /// Checks that the plan does not contradict itself.
    ///
    /// # Errors
    /// The first contradiction, in words.
    pub fn check(&self) -> Result<(), String> {
        let operations = self.operations.len();
        for (id, operation) in self.operations.iter().enumerate() {
            let wrong = |problem: &str| Err(format!("{}: operation {id} {problem}", self.procedure));
            if operation.from().iter().chain(&operation.table_from).any(|from| *from >= operations) {
                return wrong("needs an operation that does not exist");
            }
            let from = operation.from();
            let is_carried = |at: &(usize, usize)| from.contains(&at.0) && operation.loops.contains(&at.1);
            if !operation.carried_from.iter().all(is_carried) {
                return wrong("has what it does not need from earlier iterations");
            }
            if operation.loops.windows(2).any(|pair| self.loops.get(pair[1]).and_then(|l| l.parent) != Some(pair[0])) {
                return wrong("is in loops that are not nested");
            }
            if operation.accesses.first().map(|access| (access.table, access.index)) != Some((operation.table, None)) {
                return wrong("does not access its table first");
            }
            for access in &operation.accesses {
                let overlap = access.commutes.intersection(&access.reads);
                if !overlap.is_empty() || !access.commutes.intersection(&access.writes).is_empty() {
                    return wrong("commutes on a column that it also reads or writes");
                }
                let Some(table) = self.tables.get(access.table) else { return wrong("accesses an unknown table") };
                let sets = [&access.reads, &access.writes, &access.commutes];
                if sets.iter().any(|set| set.iter().any(|column| column.index() >= table.columns.len())) {
                    return wrong("accesses an unknown column");
                }
            }
        }
        match self.failures.iter().find(|failure| failure.decided_by.iter().any(|by| *by >= operations)) {
            Some(failure) => Err(format!("{}: {} is decided by no operation", self.procedure, failure.place)),
            None => Ok(()),
        }
    }

    fn write_access(&self, f: &mut fmt::Formatter<'_>, access: &Access, own: usize) -> fmt::Result {
        let table = &self.tables[access.table];
        let mut parts = Vec::new();
        match (access.index, access.existence) {
            (Some(_), Existence::Reads) => parts.push("reads keys".to_owned()),
            (_, Existence::Writes) => parts.push("changes keys".to_owned()),
            (None, Existence::Reads) => {}
        }
        for (word, columns) in [("reads", &access.reads), ("writes", &access.writes), ("adds to", &access.commutes)] {
            if !columns.is_empty() {
                parts.push(format!("{word} {}", columns.names(&table.columns)));
            }
        }
        let other = if access.table == own { String::new() } else { format!("{}: ", table.name) };
        let index = access.index.map(|index| format!("index {}: ", table.indexes[index])).unwrap_or_default();
        let name = other + &index;
        match parts.is_empty() {
            true => writeln!(f, "      {name}reads keys"),
            false => writeln!(f, "      {name}{}", parts.join("; ")),
        }
    }
}

/// Numbers in braces, for people.
fn numbers(set: &BTreeSet<usize>) -> String {
    set.iter().map(|number| format!("#{number}")).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.is_read_only(), self.latest) {
            (true, false) => " (read only)",
            (true, true) => " (read only, of the latest state)",
            (false, _) => "",
        };
        writeln!(f, "procedure {}{kind}", self.procedure)?;
        for (id, operation) in self.operations.iter().enumerate() {
            let table = &self.tables[operation.table];
            let key: Vec<String> = operation.key.iter().map(Symbol::to_string).collect();
            write!(f, "  #{id} {} {}", operation.kind, table.name)?;
            if let Some(index) = operation.index {
                write!(f, " by {}", table.indexes[index])?;
            }
            write!(f, "({})", key.join(", "))?;
            if operation.required {
                write!(f, ", must exist")?;
            }
            for id in &operation.loops {
                write!(f, ", in loop {id}")?;
            }
            writeln!(f, "{}", if operation.conditional { ", perhaps" } else { "" })?;
            for access in &operation.accesses {
                self.write_access(f, access, operation.table)?;
            }
            for (word, from) in [
                ("key", &operation.key_from),
                ("values", &operation.value_from),
                ("control", &operation.control_from),
                ("rows perhaps", &operation.table_from),
            ] {
                if !from.is_empty() {
                    writeln!(f, "      {word} from {}", numbers(from))?;
                }
            }
            match &operation.known {
                Known::Entry => writeln!(f, "      key known at entry")?,
                Known::After(after, None) => writeln!(f, "      key known after {}", numbers(after))?,
                Known::After(after, Some(id)) => {
                    writeln!(f, "      key known after {}, at loop {id}", numbers(after))?;
                }
            }
            match &operation.partition {
                Some(symbol) => writeln!(f, "      partition {symbol}")?,
                None => writeln!(f, "      partition unknown or any")?,
            }
            let descendants: BTreeSet<usize> = self.descendants(id).into_iter().filter(|other| *other != id).collect();
            if !descendants.is_empty() {
                writeln!(f, "      when it changes, run again {}", numbers(&descendants))?;
            }
        }
        for (id, iteration) in self.loops.iter().enumerate() {
            let parent = iteration.parent.map(|parent| format!(" in loop {parent}")).unwrap_or_default();
            match iteration.scan {
                Some(scan) => writeln!(f, "  loop {id}{parent} over the rows of #{scan}")?,
                None if iteration.over_from.is_empty() => writeln!(f, "  loop {id}{parent} over arguments")?,
                None => writeln!(f, "  loop {id}{parent} over results of {}", numbers(&iteration.over_from))?,
            }
        }
        for failure in &self.failures {
            let by = match failure.operation {
                Some(operation) => format!(" of #{operation}"),
                None if failure.decided_by.is_empty() => " of arguments".to_owned(),
                None => format!(" after {}", numbers(&failure.decided_by)),
            };
            writeln!(f, "  can fail: {}{by} ({})", failure.kind, failure.place)?;
        }
        Ok(())
    }
}
