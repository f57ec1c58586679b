//! One snapshot of the declarations, as objects with numbers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use seriatim::Database;

use super::Table;
use crate::select::Row;

/// The tables of a database at one moment.
#[derive(Default)]
pub(crate) struct Schema {
    rows: RefCell<BTreeMap<&'static str, Rc<Vec<Row>>>>,
}

impl Schema {
    /// Those of this database now.
    pub(crate) fn of(_database: &Database) -> Schema {
        Schema::default()
    }

    /// The rows of a table of the catalogue.
    pub(crate) fn rows(&self, table: &'static Table) -> Rc<Vec<Row>> {
        if let Some(rows) = self.rows.borrow().get(table.columns) {
            return Rc::clone(rows);
        }
        let rows = Rc::new((table.rows)(self));
        self.rows.borrow_mut().insert(table.columns, Rc::clone(&rows));
        rows
    }
}
