//! What the analysis knows about tables: their declarations, and how rows are spread over partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use seriatim_catalog::TableDef;

/// Which partition a row is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Partitioning {
    /// That of the first column of its primary key.
    #[default]
    FirstKeyColumn,
    /// That of this column.
    Column(Arc<str>),
    /// Every partition has a copy.
    Replicated,
}

/// The tables that procedures may use.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    tables: BTreeMap<Arc<str>, (Arc<TableDef>, Partitioning)>,
}

impl Schema {
    /// These tables, each partitioned by the first column of its key.
    pub fn new(tables: impl IntoIterator<Item = TableDef>) -> Schema {
        let entry = |table: TableDef| (Arc::from(&*table.name), (Arc::new(table), Partitioning::default()));
        Schema { tables: tables.into_iter().map(entry).collect() }
    }

    /// The same tables, one of them partitioned in another way. A name that is no table's changes nothing; a column that the
    /// table does not have leaves the partition of its rows unknown.
    #[must_use]
    pub fn partitioned(mut self, table: &str, partitioning: Partitioning) -> Schema {
        if let Some((_, found)) = self.tables.get_mut(table) {
            *found = partitioning;
        }
        self
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.tables.get(name).map(|(table, _)| table)
    }

    /// How it is partitioned.
    pub fn partitioning(&self, name: &str) -> &Partitioning {
        static DEFAULT: Partitioning = Partitioning::FirstKeyColumn;
        self.tables.get(name).map_or(&DEFAULT, |(_, partitioning)| partitioning)
    }
}
