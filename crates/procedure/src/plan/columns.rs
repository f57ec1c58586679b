//! Sets of columns of one table, exact at any width.

use std::collections::BTreeSet;

use seriatim_base::ColumnId;

/// A set of columns of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Columns(BTreeSet<ColumnId>);

impl Columns {
    /// No column.
    pub const fn new() -> Columns {
        Columns(BTreeSet::new())
    }

    /// Adds a column. Returns whether it was new.
    pub fn insert(&mut self, column: ColumnId) -> bool {
        self.0.insert(column)
    }

    /// Removes a column. Returns whether it was in the set.
    pub fn remove(&mut self, column: ColumnId) -> bool {
        self.0.remove(&column)
    }

    /// Whether a column is in the set.
    pub fn contains(&self, column: ColumnId) -> bool {
        self.0.contains(&column)
    }

    /// Whether no column is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The columns in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Columns) -> Columns {
        Columns(self.0.intersection(&other.0).copied().collect())
    }

    /// Adds the columns of another set.
    pub fn extend(&mut self, other: &Columns) {
        self.0.extend(&other.0);
    }

    /// The columns in order.
    pub fn iter(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.0.iter().copied()
    }

    /// Their names, separated by commas.
    pub fn names(&self, columns: &[std::sync::Arc<str>]) -> String {
        let names: Vec<&str> = self.iter().map(|column| columns.get(column.index()).map_or("?", |name| name)).collect();
        names.join(", ")
    }
}

impl FromIterator<ColumnId> for Columns {
    fn from_iter<I: IntoIterator<Item = ColumnId>>(columns: I) -> Columns {
        Columns(columns.into_iter().collect())
    }
}
