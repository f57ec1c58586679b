//! The declarations of tables, for the analysis.

use std::collections::BTreeMap;
use std::sync::Arc;

use seriatim_catalog::TableDef;

/// The tables that procedures may use.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    tables: BTreeMap<Arc<str>, Arc<TableDef>>,
}

impl Schema {
    /// A schema of these tables.
    pub fn new(tables: impl IntoIterator<Item = TableDef>) -> Schema {
        Schema { tables: tables.into_iter().map(|table| (Arc::from(&*table.name), Arc::new(table))).collect() }
    }

    /// Adds a table, or replaces the one of its name.
    pub fn put(&mut self, table: TableDef) {
        self.tables.insert(Arc::from(&*table.name), Arc::new(table));
    }

    /// Removes the table of this name, if there is one.
    pub fn remove(&mut self, name: &str) {
        self.tables.remove(name);
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.tables.get(name)
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.tables.values()
    }

    /// Whether every partition has a copy of the table of this name.
    pub fn is_replicated(&self, name: &str) -> bool {
        self.table(name).is_some_and(|table| table.partition_column().is_none())
    }
}
