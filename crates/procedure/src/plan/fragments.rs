//! A procedure divided by partition (Speculation §3.1).

use std::fmt;
use std::sync::Arc;

use super::Symbol;

/// How the operations of a procedure are distributed over partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionClass {
    /// All rows are in the partition of one value known from the arguments.
    Single,
    /// Several partitions known from the arguments, and none needs a result of another: one fragment each,
    /// all sent at once.
    Simple,
    /// Several rounds.
    General {
        /// The most rounds; zero if that depends on data.
        rounds: usize,
    },
}

/// The operations of one round in the partitions of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// From 0.
    pub round: usize,
    /// The value that names the partition. If it varies with the iterations of a loop, there is a fragment for
    /// each value. `None`: wherever the rows are, so possibly all partitions.
    pub partition: Option<Symbol>,
    /// Whether it runs in all partitions and does the same in each, as it changes a replicated table.
    pub everywhere: bool,
    /// Its operations.
    pub operations: Vec<usize>,
    /// Other fragments of its round, by index in [`Fragments::fragments`]. It may share a row with them if the values
    /// that name their partitions are equal. In a partition that both name they are one fragment, with all operations
    /// in source order. The same holds for iterations that name the same partition.
    pub meets: Vec<usize>,
}

/// A procedure by partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// The procedure.
    pub procedure: Arc<str>,
    /// Its class.
    pub class: TransactionClass,
    /// Why it is not of a simpler class; empty for [`TransactionClass::Single`].
    pub reason: String,
    /// Its fragments, by round and first operation.
    pub fragments: Vec<Fragment>,
    /// Operations on replicated tables, which it does not change, that are read in the fragments that need them.
    pub replicated: Vec<usize>,
    /// Whether it can fail without a conflict.
    pub fails: bool,
    /// Whether it can fail when some of its writes may be done already, so that an undo buffer is needed
    /// (Speculation §3.2).
    pub undo: bool,
}

impl fmt::Display for Fragments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            TransactionClass::Single => write!(f, "single partition")?,
            TransactionClass::Simple => write!(f, "simple multi-partition: {}", self.reason)?,
            TransactionClass::General { rounds: 0 } => write!(f, "general: {}", self.reason)?,
            TransactionClass::General { rounds } => write!(f, "general, {rounds} rounds: {}", self.reason)?,
        }
        f.write_str(match (self.fails, self.undo) {
            (false, _) => "; cannot fail\n",
            (true, false) => "; can fail, nothing to undo\n",
            (true, true) => "; can fail, keeps undo\n",
        })?;
        let list = |operations: &[usize]| operations.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(" ");
        let place = |fragment: &Fragment| match &fragment.partition {
            Some(symbol) => symbol.to_string(),
            None => if fragment.everywhere { "every partition" } else { "anywhere" }.to_owned(),
        };
        for fragment in &self.fragments {
            write!(f, "  round {} at {}: {}", fragment.round, place(fragment), list(&fragment.operations))?;
            let meets: Vec<String> = fragment.meets.iter().map(|at| place(&self.fragments[*at])).collect();
            match meets.is_empty() {
                true => writeln!(f)?,
                false => writeln!(f, "; where it is {} too, one in order", meets.join(" or "))?,
            }
        }
        if !self.replicated.is_empty() {
            writeln!(f, "  replicated: {}", list(&self.replicated))?;
        }
        Ok(())
    }
}
