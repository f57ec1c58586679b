//! Changes of the tables beside the transfers: columns and indexes come, go and are renamed; rows are written again.
//!
//! The handles of the transfers stay valid.

use std::time::Duration;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, Value};
use seriatim::{Database, Rng, SchemaError, TransactError, Transaction, thread};

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
        let changed = match rng.percent(50) {
            true => db.migration().change(table, [change]).run().map(drop),
            false => change_explicitly(db, table, change),
        };
        match changed {
            Ok(()) => thread::sleep(Duration::from_millis(rng.range(0, 20))),
            Err(SchemaError::Busy | SchemaError::WorkersBusy) => {}
            Err(SchemaError::Transact(error)) if error.is_retryable() => {}
            Err(error) => return Err(said(error)),
        }
    }
    Ok(())
}

/// Changes a table in a transaction that also moves an amount, and moves it back.
fn change_explicitly(db: &Database, table: &str, change: Change) -> Result<(), SchemaError> {
    let failed = |error: TransactError| SchemaError::Transact(Box::new(error));
    let mut session = db.session();
    let tx = session.begin().map_err(failed)?;
    tx.migration().change(table, [change]).run()?;
    let accounts = tx.open_dyn("account")?;
    for by in [1, -1] {
        let moved = |tx: &Transaction<'_>| {
            let balance = tx.get_dyn(&accounts, &[Value::from(0u32)])?.and_then(|row| row.get("balance"));
            let Some(Value::Integer(balance, _)) = balance else { return Ok(()) };
            let balance = [("balance", Value::from(balance as i64 + by))];
            tx.update_dyn(&accounts, &[Value::from(0u32)], &balance).map(drop)
        };
        moved(&tx).map_err(|abort| failed(abort.into()))?;
    }
    tx.commit().map(drop).map_err(failed)
}
