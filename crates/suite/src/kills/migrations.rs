//! Changes of the tables beside the transfers: columns and indexes come, go and are renamed; rows are written again.
//!
//! The handles of the transfers stay valid.

use std::time::Duration;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType};
use seriatim::{Database, Rng, SchemaError, thread};

use crate::said;

/// Columns of a table at most. Each that is added writes all rows again.
const COLUMNS_MAX: usize = 24;

/// The tables, and a column of each for an index that comes and goes.
const TABLES: [(&str, &str); 3] = [("account", "balance"), ("entry", "account"), ("line", "account")];

/// The index that comes and goes, behind those that the program knows.
const INDEX: &str = "by_turns";

/// Changes the tables until it is over.
pub(super) fn change(db: &Database, seed: u64, stops: &dyn Fn() -> bool) -> Result<(), String> {
    let mut rng = Rng::from_seed(seed.rotate_left(9));
    while !stops() {
        let (table, column) = TABLES[rng.below(TABLES.len() as u64) as usize];
        let definition = db.open_dyn(table).map_err(said)?.definition().clone();
        let columns = definition.columns.len();
        let name = format!("more_{columns}");
        let change = match rng.below(3) {
            0 if columns < COLUMNS_MAX => Change::add_column(ColumnDef::new(name, ColumnType::U32).default("7")),
            1 if definition.extension > 0 => {
                let last = &definition.columns[columns - 1].name;
                let to = if last.starts_with("more") { "other" } else { "more" };
                Change::rename_column(last.clone(), format!("{to}_{}", columns - 1))
            }
            _ if definition.index(INDEX).is_some() => Change::drop_index(INDEX),
            _ => Change::add_index(INDEX, [column]),
        };
        match db.migration().change(table, [change]).run() {
            Ok(_) => thread::sleep(Duration::from_millis(rng.range(0, 20))),
            Err(SchemaError::Busy | SchemaError::WorkersBusy) => {}
            Err(error) => return Err(said(error)),
        }
    }
    Ok(())
}
